"""What an output takes: the documents left of a sample are written twice, all and half of them."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from longcrawl.core.outputs import Output, Writer
from longcrawl.core.stages import SORT_KEY, Stage
from longcrawl.plan.estimates import Estimate
from longcrawl.run.costs import CoreClock
from longcrawl.storage.files import file_entries, folder_bytes

__all__ = ["MeasuredOutput", "measure_output"]

LEAST_NOISE = 0.03


class Point(NamedTuple):
    """What writing some documents took."""

    amount: float
    """Their tokens, or how many they are where they have none."""
    took: float


@dataclass(frozen=True)
class Line:
    """A straight line over tokens, or over documents where they have no tokens."""

    fixed: float
    """What is there whatever the documents, such as a tokenizer."""
    slope: float
    noise: float
    """By which share half of the documents lay off the line."""

    @classmethod
    def through(cls, one: Point, half: Point, whole: Point) -> "Line":
        """Return the line from one document, or none, to all of them; half of them say how far off it is."""
        slope = max((whole.took - one.took) / max(whole.amount - one.amount, 1.0), 0.0)
        fixed = max(one.took - slope * one.amount, 0.0)
        expected = fixed + slope * half.amount
        return cls(fixed, slope, abs(half.took - expected) / max(expected, 1e-9))

    def at(self, amount: Estimate) -> Estimate:
        """Return the figure for this many tokens or documents."""
        value, low, high = (self.fixed + self.slope * each for each in (amount.value, amount.low, amount.high))
        return Estimate(value, low, high).widened(min(max(self.noise, LEAST_NOISE), 1.0))


@dataclass(frozen=True)
class MeasuredOutput:
    """What writing takes, by the amount that is written."""

    written: Line
    """Bytes."""
    spilled: Line
    """Bytes of the first pass."""
    seconds: Line
    """Of a core."""
    start: float
    """Seconds of a core that writing one document took at first."""


def measure_output(output: Output, stages: Sequence[Stage], documents: pa.Table) -> MeasuredOutput:
    """Write one document, half of them and all, into a folder that is removed afterwards; none of them is held out."""
    if "heldout" in output.settings():
        output = replace(cast("Any", output), heldout=0)
    ordered = documents.sort_by(SORT_KEY) if SORT_KEY in documents.column_names else documents
    sizes = (1, (ordered.num_rows + 1) // 2, ordered.num_rows)
    nothing = _spilled(output.writer(stages), ordered.slice(0, 0))
    _, _, start = _write(output, stages, ordered.slice(0, 1))
    amounts = [_amount(ordered.slice(0, few)) for few in sizes]
    took = [_write(output, stages, ordered.slice(0, few)) for few in sizes]
    written, spilled, seconds = ([*map(Point, amounts, values)] for values in zip(*took, strict=True))
    spilled[0] = Point(0.0, nothing)
    return MeasuredOutput(Line.through(*written), Line.through(*spilled), Line.through(*seconds), start)


def _spilled(writer: Writer, documents: pa.Table) -> float:
    """Return the bytes of the first pass."""
    with tempfile.TemporaryDirectory() as folder:
        writer.spill([documents], Path(folder), 0)
        return float(folder_bytes(Path(folder)))


def _amount(documents: pa.Table) -> float:
    return float(np.sum(documents["n_tokens"])) if "n_tokens" in documents.column_names else float(documents.num_rows)


def _write(output: Output, stages: Sequence[Stage], documents: pa.Table) -> tuple[float, float, float]:
    """Return bytes written, bytes spilled, and seconds."""
    clock = CoreClock()
    with tempfile.TemporaryDirectory() as folder:
        spill, made = Path(folder) / "spill", Path(folder) / "made"
        spill.mkdir()
        made.mkdir()
        with clock.measure("write"):
            writer = output.writer(stages)
            writer.spill([documents], spill, 0)
            writer.finish(spill, made, [writer.write(spill, made, task) for task in writer.plan(spill, 1, made)])
            file_entries(made, [path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()])
        return float(folder_bytes(made)), float(folder_bytes(spill)), clock.seconds["write"]
