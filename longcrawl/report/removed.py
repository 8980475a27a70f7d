"""Some of the removed documents, each with the rule that removed it and what the rule is about."""

from collections.abc import Iterator
from dataclasses import dataclass

from longcrawl.ledger.reasons import Reason
from longcrawl.printable import as_lines, one_line, shortened
from longcrawl.report.passages import Passage, as_html, escape

__all__ = ["RemovedDocument", "RemovedDocuments", "brief", "measured"]

LONGEST_NAME = 300

_WORDS = "overflow-wrap:anywhere"
_PAGE = f"white-space:pre-wrap;{_WORDS};max-height:20em;overflow:auto;border:1px solid #999;padding:.6em"


@dataclass(frozen=True)
class RemovedDocument:
    """One removed document."""

    reason: Reason
    url: str | None = None
    language: str | None = None
    opening: str = ""
    """Its first words, on one line."""
    passages: tuple[Passage, ...] = ()
    """Its text as the stage saw it, long ones in part; of a duplicate, how it differs from what was kept."""
    note: str | None = None
    """What the marks are, or why there are none."""

    def facts(self) -> list[tuple[str, str]]:
        """Return what is known of it, name and value."""
        known = [
            ("id", self.reason.id),
            ("stage", self.reason.stage),
            ("rule", self.reason.rule),
            ("value", measured(self.reason)),
            ("URL", self.url),
            ("language", self.language),
        ]
        return [(name, shortened(value, LONGEST_NAME)) for name, value in known if value]

    def __str__(self) -> str:
        return as_lines([self.reason, f"  {self.opening}"])

    def _repr_html_(self) -> str:
        facts = "<br>".join(f"{name}: {escape(value)}" for name, value in self.facts())
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        text = f"<pre dir='auto' style='{_PAGE}'>{as_html(self.passages)}</pre>" if self.passages else ""
        return f"<details><summary>{escape(self.reason)}</summary><p style='{_WORDS}'>{facts}</p>{note}{text}</details>"


@dataclass(frozen=True)
class RemovedDocuments:
    """A sample of the removed documents, some of each rule: a list in a terminal, texts with marks in a notebook."""

    documents: tuple[RemovedDocument, ...]
    """In the order of stages, then by rule."""
    removed: int
    """How many documents were removed in all."""
    note: str | None = None
    """Why texts are missing."""

    def __iter__(self) -> Iterator[RemovedDocument]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> RemovedDocument:
        return self.documents[number]

    def summary(self) -> str:
        """Describe how many there are, and how they were chosen."""
        if not self.removed:
            return "no document was removed"
        if len(self) == self.removed:
            return "1 document removed" if self.removed == 1 else f"all {self.removed:,} removed documents"
        return f"{len(self):,} of the {self.removed:,} removed documents, some of each rule, chosen by a hash of the id"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *map(str, self), *([one_line(self.note)] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{escape(self.summary())}</b></p>{note}" + "".join(each._repr_html_() for each in self)


def measured(reason: Reason) -> str:
    """Return value against threshold, or of what it is a duplicate; "" where nothing was measured.

    >>> measured(Reason("a", "min_words", "min_words", 12.0, 50.0))
    '12 against 50'
    """
    said = str(reason).removeprefix(one_line(f"{reason.id}: removed at {reason.stage}, rule {reason.rule}"))
    return said.removeprefix(": ")


def brief(reason: Reason) -> str:
    """Return the same in a few letters: of a duplicate, how similar it is, but not to what.

    >>> brief(Reason("a", "min_hash", "near_duplicate", 0.91234, None, "b"))
    'similarity 0.91'
    >>> brief(Reason("a", "gopher_quality", "max_bullet_lines", 0.912345, 0.9))
    '0.9123 against 0.9'
    """
    if reason.kept_id is not None:
        return "duplicate" if reason.value is None else f"similarity {reason.value:.2f}"
    if reason.threshold is None:
        return ""
    value = "unknown" if reason.value is None else _short(reason.value)
    return f"{value} against {_short(reason.threshold)}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:.4g}"
