"""What a run tells people: dataset cards, what a dataset holds, and pictures of what rules measure."""

from longcrawl.report.analysis import Analysis
from longcrawl.report.plots import plot_rules
from longcrawl.report.rectangle_result import RectangleResult

__all__ = ["Analysis", "RectangleResult", "plot_rules"]
