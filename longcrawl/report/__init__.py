"""What a run tells people: dataset cards, what a dataset holds, and pictures of what rules measure."""

from longcrawl.formats.rectangle.facts import RectangleResult
from longcrawl.ledger.analysis import Analysis
from longcrawl.text.values import plot_rules

__all__ = ["Analysis", "RectangleResult", "plot_rules"]
