"""What a survey has to say about its answer; a run writes it into its manifest and its card."""

import json
from collections.abc import Sequence

import pyarrow as pa

__all__ = ["report_of", "with_report"]

_KEY = b"longcrawl report"
"""The key of the answer's schema metadata that holds the sentences."""


def with_report(removals: pa.Table, sentences: Sequence[str]) -> pa.Table:
    """Return the answer of a survey with sentences beside it, in the place of those it had."""
    return removals.replace_schema_metadata({_KEY: json.dumps(list(sentences))} if sentences else None)


def report_of(removals: pa.Table) -> list[str]:
    """Return what :func:`with_report` put beside an answer."""
    sentences: list[str] = json.loads((removals.schema.metadata or {}).get(_KEY, b"[]"))
    return sentences
