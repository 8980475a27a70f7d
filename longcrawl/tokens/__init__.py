"""Stages that make and shape tokens, and plans that compose documents into training samples."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.composition.comparison import Comparison, compare_strategies, default_strategies, named_strategy
    from longcrawl.composition.measures import Composition, measure
    from longcrawl.composition.packing import Packing, TokenEntries
    from longcrawl.composition.plan import Plan
    from longcrawl.composition.strategies import (
        BestFit,
        BinnedGreedy,
        Buckets,
        DatasetDecomposition,
        FirstFit,
        FixedLength,
        MultiBucket,
    )
    from longcrawl.tokens.longcrawl64 import MinTokens, Roll, Shuffle, Truncate
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

lazy(__name__)
