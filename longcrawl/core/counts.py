"""Counts that funnels record: edits by rule, and documents in queues.

They are plain values, so that reading the manifest of a finished run does not import Arrow.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from longcrawl.core.display import counted

LEDGER = "ledger"
"""Directory of the ledger of removed documents in a run."""

EDITS = "edits"
"""Directory of the edit ledger in a run."""

MASK = "mask"
"""Rule of places that are excluded from the loss; their text is not changed."""

TAG = "tag"
"""Prefix of the rules of places that are only tagged; their text is not changed."""


class RuleEdits(NamedTuple):
    """Counts of the edits by one rule of a stage."""

    places: int
    touched: int
    """Characters or tokens that were cut, replaced or masked."""
    removed: int


@dataclass(frozen=True)
class EditCounts:
    """Counts of the edits by one stage, including edits of documents that it or a later stage removed."""

    documents: int
    unit: str
    """Unit of the counts: "characters" or "tokens"."""
    rules: Mapping[str, RuleEdits]

    @property
    def removed(self) -> int:
        """Decrease in characters or tokens."""
        return sum(rule.removed for rule in self.rules.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as JSON-ready values, the inverse of :meth:`from_dict`."""
        rules = {rule: counts._asdict() for rule, counts in self.rules.items()}
        return {"documents": self.documents, "unit": self.unit, "rules": rules}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EditCounts":
        """Restore counts from the values of :meth:`as_dict`."""
        rules = {rule: RuleEdits(**counts) for rule, counts in values["rules"].items()}
        return cls(values["documents"], values["unit"], rules)

    @property
    def masked(self) -> int:
        """Number of kept characters that are excluded from the loss."""
        return self.rules[MASK].touched if MASK in self.rules else 0

    @property
    def tagged(self) -> int:
        """Number of kept characters that are tagged with a name."""
        return sum(counts.touched for rule, counts in self.rules.items() if rule.startswith(TAG))

    def __str__(self) -> str:
        if all(rule.startswith(TAG) for rule in self.rules):
            return f"{self.documents:,} tagged, {self.tagged:,} {self.unit}"
        cut = [f"{self.removed:,} {self.unit} cut"] if self.removed or not self.masked else []
        masked = [f"{self.masked:,} {self.unit} masked"] if self.masked else []
        return ", ".join([f"{self.documents:,} edited", *cut, *masked])


def add_edits(counts: Iterable[EditCounts | None]) -> EditCounts | None:
    """Add the edit counts of one stage in several batches or parts; return None if all are None."""
    known = [each for each in counts if each is not None]
    if not known:
        return None
    rules: dict[str, RuleEdits] = {}
    for each in known:
        for rule, more in each.rules.items():
            before = rules.get(rule, RuleEdits(0, 0, 0))
            rules[rule] = RuleEdits(*(one + other for one, other in zip(before, more, strict=True)))
    return EditCounts(sum(each.documents for each in known), known[0].unit, dict(sorted(rules.items())))


OCR, REFETCH = QUEUES = ("ocr_queue", "refetch_queue")
"""Names of the queues, and of their folders in a run."""
FROM_OCR = "from_ocr"
"""Name of the count of pages with text from OCR. They have no folder; the markers of parts list their ids."""
PURPOSE: Mapping[str, str] = {OCR: "for OCR", REFETCH: "to fetch again", FROM_OCR: "with text from OCR"}
"""Words after a number of documents."""

Counts = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Counts of "documents", and of their missing "pages" if known, by queue and reason."""


def known_pages(queue: str, count: Mapping[str, int]) -> int | None:
    """Return the missing pages of a count, or None if a truncated file lost an unknown number."""
    return None if queue == REFETCH and not count["pages"] else count["pages"]


def add_counts(parts: Iterable[Counts]) -> Counts:
    """Add the counts of several tables; sort them by name."""
    sums: dict[str, dict[str, Counter[str]]] = {}
    for part in parts:
        for name, reasons in part.items():
            for reason, counts in reasons.items():
                sums.setdefault(name, {}).setdefault(reason, Counter()).update(counts)
    return {
        name: {reason: dict(counts) for reason, counts in sorted(reasons.items())}
        for name, reasons in sorted(sums.items())
    }


def describe(counts: Counts) -> list[str]:
    """Describe the counts of each queue.

    >>> describe({"ocr_queue": {"pages": {"documents": 1, "pages": 2}, "pdf_scanned": {"documents": 4, "pages": 30}}})
    ['5 documents (32 pages) for OCR']
    """
    said = []
    for name, reasons in counts.items():
        total = sum(map(Counter, reasons.values()), Counter[str]())
        pages = f" ({counted(total['pages'], 'page')})" if total["pages"] else ""
        said.append(f"{counted(total['documents'], 'document')}{pages} {PURPOSE[name]}")
    return said
