"""What surveys answer: removals with sentences beside them, or places inside documents, which they edit afterwards.

A :class:`SpanSurvey` answers with :class:`longcrawl.core.stages.Spans`, and ``edit_spans`` is what it does to a batch
of documents once all spans are known: :class:`WithSpans` is that as an ordinary edit. Sketches may be larger than
memory, so ``find`` takes them table by table and has a folder for its files. One that orders documents by what is in
all of them answers with the place of each, ``sort_key``, where others have ``start`` and ``end``.
"""

import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from longcrawl.core.places import changed_places
from longcrawl.core.stages import Check, Edit, Edited, Needs, Spans, Survey


class SpanSurvey(Survey):
    """Finds places in documents with all of them in view."""

    within_parts: ClassVar[bool] = True

    @abstractmethod
    def find(self, sketches: Iterable[pa.Table], directory: str) -> Spans:
        """Turn the sketches of all documents into spans.

        Files go to ``directory``. Called again with the same sketches and the same ``directory``, it resumes where it
        was stopped; sketches that are not needed again are then not read.
        """

    @property
    def needs(self) -> Needs:
        """All documents, to find spans."""
        return "spans"

    @abstractmethod
    def edit_spans(self, table: pa.Table, spans: Spans) -> tuple[pa.Table, Sequence[Check]]:
        """Edit a batch of documents, as :meth:`longcrawl.core.stages.Edit.edit` does; ``spans`` are found by id."""

    def trace_spans(self, table: pa.Table, spans: Spans) -> Edited:
        """Edit, and list what changed, as :meth:`longcrawl.core.stages.Edit.trace` does."""
        edited, checks = self.edit_spans(table, spans)
        return Edited(edited, checks, changed_places(table, edited))

    def resolve(self, sketches: pa.Table) -> Spans:
        """Turn the sketches of all documents into spans, with files in a temporary folder."""
        with tempfile.TemporaryDirectory() as directory:
            return self.find([sketches], directory)


@dataclass(frozen=True)
class WithSpans(Edit):
    """The edit that a survey makes of the spans it found."""

    survey: SpanSurvey
    spans: Spans

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "name", self.survey.name)

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Apply the spans to a batch."""
        return self.survey.edit_spans(table, self.spans)

    def trace(self, table: pa.Table) -> Edited:
        """Apply the spans to a batch, and list what changed."""
        return self.survey.trace_spans(table, self.spans)
