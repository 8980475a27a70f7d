"""Bucketed datasets: training samples of several lengths (buckets), with a folder for each length.

:mod:`longcrawl.tokens.strategies` plans the documents of each sample before a token is moved. ``spec`` is the
specification and opens a dataset, ``source`` reads its samples as rows, ``write`` is the output of a run, and ``facts``
has its card, verification and removal. :mod:`longcrawl.loading.buckets` is the feed.
"""
