"""What rules say about one document: a table in a terminal, the text in colours in a notebook."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from longcrawl.display.numbers import counted, figure
from longcrawl.display.table import Column, Table
from longcrawl.printable import as_lines, one_line

__all__ = ["Change", "Explanation", "MeasuredRule", "SeenText", "Span", "Unexplained"]

Span = tuple[int, int]
"""Where something begins and ends, in characters."""

SNIPPETS = 3
"""So many places of a rule are printed."""

_COLUMNS = [Column("stage"), Column("rule"), Column("value", "count"), Column("threshold"), Column("verdict")]

BOUNDS = {"at_least": "at least", "at_most": "at most", None: ""}


class Change(NamedTuple):
    """What an edit did to one line of a text."""

    line: int
    """Counted from 1; blank lines count."""
    before: str
    """The line as it was; the white space around it may be left out."""
    after: str | None
    """None where the line was removed."""
    rule: str


@dataclass(frozen=True)
class MeasuredRule:
    """One rule and what it says of the document; ``value`` and ``threshold`` are None where there is none."""

    stage: str
    rule: str
    value: float | None
    comparison: Literal["at_least", "at_most"] | None
    threshold: float | None
    verdict: Literal["passes", "fails", "off"]
    """Off is a rule that has no threshold for the document's language."""

    @property
    def demand(self) -> str:
        """What the rule asks for, in words: "at least 50"."""
        return f"{BOUNDS[self.comparison]} {figure(self.threshold)}".strip() if self.threshold is not None else ""

    @property
    def measured(self) -> str:
        """The value, in as many digits as tell it from the threshold."""
        if self.value is None:
            return "unknown" if self.comparison else ""
        spelled = figure(self.value)
        same = self.threshold is not None and self.value != self.threshold and spelled == figure(self.threshold)
        return repr(self.value) if same else spelled


@dataclass(frozen=True)
class Unexplained:
    """A stage about which one document says nothing, and why."""

    stage: str
    reason: str


@dataclass(frozen=True)
class SeenText:
    """A text as some stages saw it, the places that their rules are about, and what an edit did to it."""

    text: str
    stages: tuple[str, ...] = ()
    marks: tuple[tuple[MeasuredRule, tuple[Span, ...]], ...] = ()
    edited_by: str | None = None
    changes: tuple[Change, ...] = ()

    def changed_places(self) -> list[tuple[Span, Change]]:
        """Return where the changed part of each line stands: without the white space that the edit leaves out."""
        lines, at = [], 0
        for line in self.text.split("\n"):
            lines.append((at, at + len(line)))
            at += len(line) + 1
        places = []
        for change in self.changes:
            begin, end = lines[change.line - 1]
            found = self.text.find(change.before, begin, end)
            places.append(((begin, end) if found < 0 else (found, found + len(change.before)), change))
        return places


@dataclass(frozen=True)
class Explanation:
    """Every rule of some stages with value, threshold and verdict, and the places of the text that they are about.

    ``print`` gives a table, a few offending places and the verdict; a notebook shows the text in colours as well.
    """

    rules: tuple[MeasuredRule, ...]
    unexplained: tuple[Unexplained, ...] = ()
    texts: tuple[SeenText, ...] = ()

    @property
    def first_failure(self) -> MeasuredRule | None:
        """The rule that the ledger of a crawl would name; None where all pass."""
        return next((rule for rule in self.rules if rule.verdict == "fails"), None)

    @property
    def verdict(self) -> Literal["kept", "leaves", "unknown"]:
        """Whether a crawl would keep the document; unknown where no rule could be measured."""
        if not self.rules:
            return "unknown"
        return "kept" if self.first_failure is None else "leaves"

    def verdict_line(self) -> str:
        """Return the verdict as a sentence."""
        first, failed = self.first_failure, sum(rule.verdict == "fails" for rule in self.rules)
        left = f"; {counted(len(self.unexplained), 'stage')} not explained" if self.unexplained else ""
        if first is None:
            return (
                f"KEPT: no rule of {len(self.rules)} fails{left}" if self.rules else f"UNKNOWN: no rule applies{left}"
            )
        numbers = f" is {first.measured}, must be {first.demand}" if first.demand else ""
        leaves = f"LEAVES at {first.stage}: {first.rule}{numbers}"
        return one_line(f"{leaves} ({failed} of {len(self.rules)} rules fail){left}")

    def __str__(self) -> str:
        width = max(40, shutil.get_terminal_size((120, 24)).columns)
        parts = [self._table(), *(_places(text, width) for text in self.texts)]
        parts.append(as_lines(f"not explained: {stage.stage}, which {stage.reason}" for stage in self.unexplained))
        return "\n\n".join(part for part in [*parts, self.verdict_line()] if part)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from longcrawl.text._explanation_html import as_html

        return as_html(self)

    def _table(self) -> str:
        if not self.rules:
            return ""
        rows = [
            [rule.stage, rule.rule, rule.measured, rule.demand, "FAILS" if rule.verdict == "fails" else rule.verdict]
            for rule in self.rules
        ]
        return str(Table(_COLUMNS, rows))


def _places(seen: SeenText, width: int) -> str:
    """Return the places that rules which fail are about, and what an edit did, a few of each."""
    blocks: list[str] = []
    for rule, spans in seen.marks:
        if rule.verdict == "fails":
            blocks += [
                f"{rule.stage} {rule.rule}, {counted(len(spans), 'place')}:",
                *_snippets(seen.text, spans, width),
            ]
    for name, changes in _by_rule(seen.changes):
        blocks.append(f"{seen.edited_by} {name}, {counted(len(changes), 'line')} changed:")
        blocks += [_cut(f"  line {each.line:,}: {_change(each)}", width) for each in changes[:SNIPPETS]]
    return "\n".join(blocks)


def _snippets(text: str, spans: Iterable[Span], width: int) -> Iterator[str]:
    """Return the most frequent of the places, each with the line where it first stands."""
    places = [(text[begin:end], begin) for begin, end in spans]
    first = dict(reversed(places))
    for place, times in Counter(place for place, _ in places).most_common(SNIPPETS):
        line = text.count("\n", 0, first[place]) + 1
        tail = f"  ({times:,} times)" if times > 1 else ""
        yield _cut(f"  line {line:,}: {place}", width - len(tail)) + tail


def _by_rule(changes: Iterable[Change]) -> list[tuple[str, list[Change]]]:
    grouped: dict[str, list[Change]] = {}
    for change in changes:
        grouped.setdefault(change.rule, []).append(change)
    return list(grouped.items())


def _change(change: Change) -> str:
    return f"removed: {change.before}" if change.after is None else f"{change.before} -> {change.after}"


def _cut(line: str, width: int) -> str:
    """Bring a line to the width of a terminal, without what would move its cursor."""
    head = line[: 4 * width]
    plain = "".join(character if character.isprintable() else " " for character in head)
    return plain if len(line) <= width else f"{plain[: width - 1].rstrip()}…"
