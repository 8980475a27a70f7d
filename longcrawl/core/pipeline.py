"""Stages one after the other: their labels, what one may not do after another, and what runs without a break.

A stage that keeps one of several equal texts relies on it. If a later stage removes that one for what it shares with
another document, but not its text, the content is gone and no copy is kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from longcrawl.core.registry import stage_name
from longcrawl.core.stages import SpanSurvey, Stage, Survey

_ORDER = ("list", "url", "text", "passages")
"""What copies share, see :attr:`Stage.copies_share`, in the order in which stages may come."""


def label_stages(names: Sequence[str]) -> list[str]:
    """Name the stages of one pipeline apart: a second ``min_words`` is ``min_words_2``, a dotted path is its class.

    >>> label_stages(["min_words", "my_package.stages:OnlyPoems", "min_words"])
    ['min_words', 'only_poems', 'min_words_2']
    """
    seen: Counter[str] = Counter()
    labels = []
    for name in map(stage_name, names):
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return labels


def stages_fault(stages: Sequence[tuple[str, Stage]]) -> str | None:
    """Return what is wrong with the labelled stages of a recipe or a crawl, and what to do; None if nothing is."""
    return bytes_fault(stages) or order_fault(stages)


def bytes_fault(stages: Iterable[tuple[str, Stage]]) -> str | None:
    """Return in which setting ``min_bytes`` counts bytes of another text than ``tokenize`` encodes; None if in none.

    It would keep documents that are too short, or remove some that are long enough.
    """
    by_name: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for label, stage in stages:
        by_name.setdefault(stage.name, []).append((label, stage.settings()))
    for counts, counted in by_name.get("min_bytes", []):
        for encodes, encoded in by_name.get("tokenize", []):
            for field in ["json_escaped", "ensure_ascii"] if encoded["json_escaped"] else ["json_escaped"]:
                if counted[field] != encoded[field]:
                    return (
                        f"{counts}.{field} is {counted[field]} and {encodes}.{field} is {encoded[field]}: set both "
                        f"alike (of a recipe: --set stages.{counts}.{field}={str(encoded[field]).lower()})"
                    )
    return None


def order_fault(stages: Iterable[tuple[str, Stage]]) -> str | None:
    """Return what is wrong with labelled stages one after the other, and what to do; None if nothing is.

    * Copies by a list go before those by URL, and these before those by text. Else the document that stands for several
      equal texts may leave for one of another text.
    * Whole documents go before passages: of passages no copy is kept, so that two equal documents lose all they have.
      After one look at whole documents there may be others: cutting makes texts equal that were not.
    * Nothing orders documents again after a stage that has put related ones together.
    * No stage replaces the measures of another.
    """
    before: dict[str, str] = {}
    measured: dict[str, str] = {}
    related = ""
    for label, stage in stages:
        if twice := [name for name in stage.measures_in if name in measured]:
            fix = f"set {label}.column to another name" if hasattr(stage, "column") else "leave one of them out"
            return f"{label} would replace the column {twice[0]!r} that {measured[twice[0]]} sets: {fix}"
        measured |= dict.fromkeys(stage.measures_in, label)
        if related and stage.orders:
            return f"{label} would undo the order in which {related} puts related documents: leave one of them out"
        if stage.relates:
            related = label
        kind = stage.copies_share
        if kind is None:
            continue
        later = [each for each in before if _ORDER.index(each) > _ORDER.index(kind)]
        if later == ["passages"] and not (kind == "text" and "text" in before):
            cutter = before["passages"]
            return f"{label} comes after {cutter}, which keeps no copy of a repeated text: put {label} before {cutter}"
        if kind != "text" and later:
            first = before[later[0]]
            return (
                f"{label} after {first} would remove documents for which {first} has removed all copies: "
                f"put {label} before {first}"
            )
        before.setdefault(kind, label)
    return None


@dataclass(frozen=True)
class Segment:
    """Stages that run fused over each part; ``ends_with`` needs all parts before the next segment can start."""

    number: int
    stages: tuple[tuple[str, Stage], ...]
    ends_with: tuple[str, Stage] | None
    begins_with: tuple[str, SpanSurvey] | None
    """The survey that ended the segment before and found spans, which are applied first."""

    @property
    def keeps_documents(self) -> bool:
        """Whether its stages or spans may change or remove documents, so that it has to write those that stay."""
        return self.number == 0 or bool(self.stages) or self.begins_with is not None

    @property
    def survey(self) -> Survey | None:
        """The survey that ends it, which needs sketches of the documents that it keeps."""
        last: Any = self.ends_with[1] if self.ends_with else None
        return None if last is None or last.needs == "fit" else last


def next_segments(
    number: int, stages: Sequence[tuple[str, Stage]], found: tuple[str, SpanSurvey] | None, parts: int
) -> list[Segment]:
    """Return the next segment and, if its survey waits for earlier parts, those that each part then passes by itself.

    The last of them ends with a stage that needs all parts together, or with the output.
    """
    segments = [next_segment(number, stages, found)]
    if parts == 1 or segments[0].survey is None or not segments[0].survey.after_parts:
        return segments
    while (survey := segments[-1].survey) is not None and (survey.within_parts or survey.after_parts):
        stages = stages[len(segments[-1].stages) + 1 :]
        spans = segments[-1].ends_with if survey.needs == "spans" else None
        segments.append(next_segment(segments[-1].number + 1, stages, cast("Any", spans)))
    return segments


def next_segment(number: int, stages: Sequence[tuple[str, Stage]], found: tuple[str, SpanSurvey] | None) -> Segment:
    """Return the segment that the stages still to run begin with; ``found`` is the one before's survey of spans."""
    for place, (label, stage) in enumerate(stages):
        if stage.needs not in ("batch", "order"):
            return Segment(number, tuple(stages[:place]), (label, stage), found)
    return Segment(number, tuple(stages), None, found)
