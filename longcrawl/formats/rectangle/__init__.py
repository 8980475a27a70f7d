"""LongCrawl64's rectangle: long documents of one length, a row each, as a Zarr array.

``spec`` is the specification, and opens ours and the original LongCrawl64. ``write`` is the output of a run, in two
passes, ``chunks`` and ``zarr_reader`` read chunks, ``source`` reads rows back, and ``facts`` is what cards and
``verify`` ask. Documents are chosen by the signals of
:mod:`longcrawl.sources.redpajama_v2` and shaped by :mod:`longcrawl.tokens.shape`;
:mod:`longcrawl.loading.rectangle` is the feed.
"""
