"""Bucket pre-training's datasets: training samples of several lengths (buckets), a folder for each.

:mod:`longcrawl.tokens.strategies` plans which documents make each sample, before a token is moved; ``spec`` is the
specification and opens a dataset, ``write`` is the output of a run, ``facts`` is what cards
and ``verify`` ask. :mod:`longcrawl.loading.buckets` is the feed.
"""
