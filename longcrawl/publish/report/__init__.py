"""HTML report of a run: its funnel, rules, removed documents and texts on one page without network access."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.formats.rectangle.write import RectangleResult
    from longcrawl.run.analysis import Analysis
    from longcrawl.text.values import plot_rules

__all__ = ["Analysis", "RectangleResult", "plot_rules"]

lazy(__name__)
