"""Long context: how much of a document depends on what is far before it, and short documents that belong together."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.long.dependency import (
        AttentionDependency,
        DependencyScore,
        InformationGain,
        PositionGain,
        TokenGains,
    )
    from longcrawl.long.lexical import LexicalDependency, WordStatistics, count_words
    from longcrawl.long.related import Related

__all__ = [
    "AttentionDependency",
    "DependencyScore",
    "InformationGain",
    "LexicalDependency",
    "PositionGain",
    "Related",
    "TokenGains",
    "WordStatistics",
    "count_words",
]

lazy(__name__)
