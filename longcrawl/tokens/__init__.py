"""Stages that make and shape tokens, and plans that compose documents into training samples."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.tokens.length_mix import LengthMix
    from longcrawl.tokens.measures import (
        Comparison,
        Composition,
        compare_strategies,
        default_strategies,
        measure,
        named_strategy,
    )
    from longcrawl.tokens.packing import Packing, TokenEntries
    from longcrawl.tokens.plan import Plan
    from longcrawl.tokens.shape import DocumentWindows, MinTokens, Roll, Shuffle, Truncate, Windows, document_windows
    from longcrawl.tokens.strategies import (
        BestFit,
        BinnedGreedy,
        Buckets,
        DatasetDecomposition,
        FirstFit,
        FixedLength,
        Interleaved,
        MultiBucket,
        Padded,
    )
    from longcrawl.tokens.tokenize import Tokenize

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
    "Interleaved",
    "LengthMix",
    "MinTokens",
    "MultiBucket",
    "Packing",
    "Padded",
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
