"""Stages that make and shape tokens, and plans that compose documents into training samples."""

from longcrawl.tokens.baselines import BestFit, DatasetDecomposition, FirstFit, FixedLength, MultiBucket
from longcrawl.tokens.buckets import Buckets
from longcrawl.tokens.composition import Comparison, Composition, compare_strategies, measure
from longcrawl.tokens.longcrawl64 import MinTokens, Roll, Shuffle, Truncate
from longcrawl.tokens.named_strategies import default_strategies, named_strategy
from longcrawl.tokens.packing import BinnedGreedy, Packing, TokenEntries
from longcrawl.tokens.plan import Plan
from longcrawl.tokens.tokenize import Tokenize
from longcrawl.tokens.windows import DocumentWindows, Windows, document_windows

__all__ = [
    "BestFit",
    "BinnedGreedy",
    "Buckets",
    "Comparison",
    "Composition",
    "DatasetDecomposition",
    "DocumentWindows",
    "FirstFit",
    "FixedLength",
    "MinTokens",
    "MultiBucket",
    "Packing",
    "Plan",
    "Roll",
    "Shuffle",
    "TokenEntries",
    "Tokenize",
    "Truncate",
    "Windows",
    "compare_strategies",
    "default_strategies",
    "document_windows",
    "measure",
    "named_strategy",
]
