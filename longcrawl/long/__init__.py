"""Stages that measure how much of a document depends on what is far before it."""

from longcrawl.long.dependency import AttentionDependency, DependencyScore
from longcrawl.long.gain import InformationGain, PositionGain, TokenGains
from longcrawl.long.lexical import LexicalDependency, WordStatistics, count_words

__all__ = [
    "AttentionDependency",
    "DependencyScore",
    "InformationGain",
    "LexicalDependency",
    "PositionGain",
    "TokenGains",
    "WordStatistics",
    "count_words",
]
