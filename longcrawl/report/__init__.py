"""What a run tells people: dataset cards, what a dataset holds, and pictures of what rules measure."""

from longcrawl.ledger.analysis import Analysis
from longcrawl.loading.rectangle_result import RectangleResult
from longcrawl.text.plots import plot_rules

__all__ = ["Analysis", "RectangleResult", "plot_rules"]
