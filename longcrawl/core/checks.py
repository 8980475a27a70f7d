"""Rules measured on documents, and the verdicts that follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["VERDICT_SCHEMA", "Check", "first_failure"]

VERDICT_SCHEMA = pa.schema([("rule", pa.string()), ("value", pa.float64()), ("threshold", pa.float64())])
"""One row per document judged: all null where it is kept."""


@dataclass(frozen=True)
class Check:
    """One rule measured on a batch: float64 ``value`` per document (null where unknown) and whether it passes.

    ``threshold`` is one number, or one per document where it depends on the document's language.
    """

    rule: str
    value: pa.Array
    passes: pa.Array
    threshold: float | pa.Array | None = None
    comparison: Literal["at_least", "at_most"] | None = None


def first_failure(rows: int, checks: Sequence[Check]) -> pa.Table:
    """Return verdicts in which the first failed check of each document speaks; a null in ``passes`` fails."""
    failed_by = np.full(rows, -1, dtype=np.int64)
    for number, check in enumerate(checks):
        passes = pc.fill_null(check.passes, False).to_numpy(zero_copy_only=False)
        failed_by[(failed_by < 0) & ~passes] = number
    rules = pa.array([check.rule for check in checks], pa.string())
    values, thresholds = pa.nulls(rows, pa.float64()), pa.nulls(rows, pa.float64())
    for number, check in enumerate(checks):
        failed = failed_by == number
        if failed.any():
            values = pc.if_else(pa.array(failed), pc.cast(check.value, pa.float64()), values)
            bound = (
                check.threshold if isinstance(check.threshold, pa.Array) else pa.scalar(check.threshold, pa.float64())
            )
            thresholds = pc.if_else(pa.array(failed), bound, thresholds)
    verdicts = [rules.take(pa.array(failed_by, mask=failed_by < 0)), values, thresholds]
    return pa.table(verdicts, schema=VERDICT_SCHEMA)
