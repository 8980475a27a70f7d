"""What a run tells people: dataset cards, and pictures of what rules measure."""

from longcrawl.report.plots import plot_rules

__all__ = ["plot_rules"]
