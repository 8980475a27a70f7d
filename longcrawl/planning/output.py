"""What an output takes: the documents left of a sample are written twice, all and half of them."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from longcrawl.outputs import Output
from longcrawl.planning.estimates import Estimate
from longcrawl.stages import SORT_KEY, Stage

__all__ = ["MeasuredOutput", "measure_output"]

LEAST_NOISE = 0.03


@dataclass(frozen=True)
class MeasuredOutput:
    """Bytes as a straight line over tokens, or over documents where they have no tokens."""

    fixed: float
    """Bytes that are written whatever the documents, such as a tokenizer."""
    slope: float
    noise: float
    """By which share the two halves differ from each other."""
    spilled: float
    """Bytes of the first pass, per token or document."""
    seconds: float
    """Per token or document."""

    def bytes_of(self, amount: Estimate) -> Estimate:
        """Give the bytes of this many tokens or documents."""
        value, low, high = (self.fixed + self.slope * each for each in (amount.value, amount.low, amount.high))
        return Estimate(value, low, high).widened(max(self.noise, LEAST_NOISE))


def measure_output(output: Output, stages: Sequence[Stage], documents: pa.Table) -> MeasuredOutput:
    """Write documents, and half of them, into a folder that is removed afterwards."""
    ordered = documents.sort_by(SORT_KEY) if SORT_KEY in documents.column_names else documents
    half = ordered.slice(0, ordered.num_rows // 2)
    written, spilled, seconds = _write(output, stages, ordered)
    amount = _amount(ordered)
    if not half.num_rows:
        return MeasuredOutput(0.0, written / amount, 1.0, spilled / amount, seconds / amount)
    half_written, _, _ = _write(output, stages, half)
    rest = max(amount - _amount(half), 1.0)
    slope = max((written - half_written) / rest, 0.0)
    fixed = max(written - slope * amount, 0.0)
    first = max(half_written - fixed, 0.0) / max(_amount(half), 1.0)
    noise = abs(first - slope) / max(first + slope, 1e-9)
    return MeasuredOutput(fixed, slope, noise, spilled / amount, seconds / amount)


def _amount(documents: pa.Table) -> float:
    return float(np.sum(documents["n_tokens"])) if "n_tokens" in documents.column_names else float(documents.num_rows)


def _write(output: Output, stages: Sequence[Stage], documents: pa.Table) -> tuple[float, float, float]:
    """Give bytes written, bytes spilled, and seconds."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        spill, made = Path(folder) / "spill", Path(folder) / "made"
        spill.mkdir()
        writer = output.writer(stages)
        writer.spill([documents], spill, 0)
        spilled = _folder_bytes(spill)
        writer.finish(spill, made, [writer.write(spill, made, task) for task in writer.plan(spill, 1, made)])
        return _folder_bytes(made), spilled, time.perf_counter() - started


def _folder_bytes(folder: Path) -> float:
    return float(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))
