"""Sources of documents: what ``load_dataset("longcrawl", NAME, …)`` and recipes read."""

from longcrawl.sources import hub, installed, rectangle, redpajama_v2, text, token_shards
from longcrawl.sources.warc import source as warc

__all__ = ["hub", "installed", "rectangle", "redpajama_v2", "text", "token_shards", "warc"]
