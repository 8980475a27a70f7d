"""Stages that measure how much of a document depends on what is far before it."""

from longcrawl.long.gain import InformationGain, PositionGain, TokenGains
from longcrawl.long.lexical import LexicalDependency, WordStatistics, count_words

__all__ = [
    "InformationGain",
    "LexicalDependency",
    "PositionGain",
    "TokenGains",
    "WordStatistics",
    "count_words",
]
