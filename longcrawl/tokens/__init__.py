"""Stages that make and shape tokens, and plans that compose documents into training samples."""

from longcrawl.tokens.baselines import BestFit, DatasetDecomposition, FirstFit, FixedLength, MultiBucket
from longcrawl.tokens.buckets import Buckets
from longcrawl.tokens.composition import Comparison, Composition, compare_strategies, default_strategies, measure
from longcrawl.tokens.longcrawl64 import MinTokens, Roll, Shuffle, Truncate
from longcrawl.tokens.plan import Plan
from longcrawl.tokens.tokenize import Tokenize

__all__ = [
    "BestFit",
    "Buckets",
    "Comparison",
    "Composition",
    "DatasetDecomposition",
    "FirstFit",
    "FixedLength",
    "MinTokens",
    "MultiBucket",
    "Plan",
    "Roll",
    "Shuffle",
    "Tokenize",
    "Truncate",
    "compare_strategies",
    "default_strategies",
    "measure",
]
