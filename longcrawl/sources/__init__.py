"""Sources of documents: what ``load_dataset("longcrawl", NAME, …)`` and recipes read."""

from longcrawl.sources import composed, hub, installed, rectangle, redpajama_v2, text, token_shards
from longcrawl.sources.warc import source as warc

__all__ = ["composed", "hub", "installed", "rectangle", "redpajama_v2", "text", "token_shards", "warc"]
