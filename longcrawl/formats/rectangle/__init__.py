"""Rectangles, the format of LongCrawl64: a Zarr array with one row of fixed length per long document.

``spec`` is the specification, and opens rectangles of longcrawl and the original LongCrawl64. ``zarr_reader`` reads
the chunks that ``spec`` leaves to zarr-python. ``write`` has the output of a run and its verification, and ``source``
reads rows back. Documents are chosen by the signals of :mod:`longcrawl.sources.redpajama_v2` and shaped by
:mod:`longcrawl.tokens.shape`. :mod:`longcrawl.loading.rectangle` is the feed.
"""
