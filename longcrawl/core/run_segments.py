"""How the stages of a recipe fall into segments: what runs fused, and what must wait for all parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from longcrawl.core.spans import SpanSurvey
from longcrawl.core.stages import Stage

__all__ = ["Segment", "next_segment"]


@dataclass(frozen=True)
class Segment:
    """Stages that run fused over each part; ``ends_with`` needs all parts before the next segment can start."""

    number: int
    stages: tuple[tuple[str, Stage], ...]
    ends_with: tuple[str, Stage] | None
    begins_with: tuple[str, SpanSurvey] | None
    """The survey that ended the segment before and found spans, which are applied first."""


def next_segment(number: int, stages: Sequence[tuple[str, Stage]], found: tuple[str, SpanSurvey] | None) -> Segment:
    """Return the segment that the stages still to run begin with; ``found`` is the one before's survey of spans."""
    for place, (label, stage) in enumerate(stages):
        if stage.needs not in ("batch", "order"):
            return Segment(number, tuple(stages[:place]), (label, stage), found)
    return Segment(number, tuple(stages), None, found)
