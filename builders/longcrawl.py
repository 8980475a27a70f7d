"""The builder of ``load_dataset("longcrawl", NAME, …)`` and its configuration, where `datasets` keeps those of others.

The code is in the package, so that a checkout and an installed longcrawl import the same: ``longcrawl/builders``.
"""

from longcrawl.builders.longcrawl import LongCrawl, LongCrawlConfig

__all__ = ["LongCrawl", "LongCrawlConfig"]
