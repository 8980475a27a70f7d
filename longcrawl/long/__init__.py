"""Long-context measures and ordering: scores of long-range dependency, and an order that groups related documents."""

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
    from longcrawl.long.gzip_ratio import GzipRatio
    from longcrawl.long.lexical import LexicalDependency, WordStatistics, count_words
    from longcrawl.long.related import Related

__all__ = [
    "AttentionDependency",
    "DependencyScore",
    "GzipRatio",
    "InformationGain",
    "LexicalDependency",
    "PositionGain",
    "Related",
    "TokenGains",
    "WordStatistics",
    "count_words",
]

lazy(__name__)
