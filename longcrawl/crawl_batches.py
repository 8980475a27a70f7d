"""What a crawl maps over batches: its stages, with verdicts and sketches instead of documents."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.stages import VERDICT_SCHEMA, Edit, Judge, Survey, document_ids, first_failure

__all__ = ["VERDICT", "Edited", "Kept", "Sketched", "Verdicts"]

VERDICT = "verdict of this edit: "
"""What the columns of verdicts are called while they stand beside edited documents."""


@dataclass(frozen=True)
class Verdicts:
    """Judge a batch and keep nothing of it but ids and verdicts, so that no text is copied."""

    judge: Judge

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the ids and verdicts of a batch."""
        verdicts = self.judge.judge(table)
        return verdicts.add_column(0, "id", document_ids(table, self.judge.name))


@dataclass(frozen=True)
class Edited:
    """Edit a batch and put the verdicts beside it; the documents that leave go once they are in the ledger."""

    edit: Edit

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the edited documents of a batch with their verdicts."""
        edited, checks = self.edit.edit(table)
        document_ids(edited, self.edit.name)
        verdicts = first_failure(edited.num_rows, checks)
        for name in VERDICT_SCHEMA.names:
            edited = edited.append_column(VERDICT + name, verdicts[name])
        return edited


@dataclass(frozen=True)
class Kept:
    """Return the documents of a batch that a judge keeps."""

    judge: Judge

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the documents that stay."""
        return table.filter(pc.is_null(self.judge.judge(table)["rule"]))


@dataclass(frozen=True)
class Sketched:
    """Return what a survey needs to know of a batch."""

    survey: Survey

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return one row per document."""
        return self.survey.sketch(table)
