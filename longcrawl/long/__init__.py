"""Stages that measure how much of a document depends on what is far before it."""

from longcrawl.long.lexical import LexicalDependency, WordStatistics, count_words

__all__ = ["LexicalDependency", "WordStatistics", "count_words"]
