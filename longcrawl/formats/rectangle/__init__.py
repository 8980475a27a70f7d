"""Rectangles, the format of LongCrawl64: a Zarr array with one row of fixed length per long document.

``spec`` is the specification, and opens rectangles of longcrawl and the original LongCrawl64.
"""
