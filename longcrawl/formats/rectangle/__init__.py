"""The rectangle of LongCrawl64."""
