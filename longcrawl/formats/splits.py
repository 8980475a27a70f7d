"""The splits of outputs: how many documents are held out of training, and how many each split has."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longcrawl.errors import FormatError, StageError

SPLITS = ("train", "heldout", "val")


def check_heldout(heldout: float, output: str) -> None:
    """Raise StageError for what is neither a fraction below 1 nor a whole number; ``output`` is named."""
    if not 0 <= heldout < math.inf or (heldout >= 1 and heldout != int(heldout)):
        raise StageError(f"{output}.heldout takes a fraction below 1 or a whole number of rows, got {heldout!r}")


def heldout_rows(heldout: float, rows: int, of: str = "") -> int:
    """Return how many of so many rows are held out: a fraction is rounded, but to no less than one row of two.

    >>> heldout_rows(0.008, 1000), heldout_rows(0.008, 2), heldout_rows(0.008, 1), heldout_rows(5, 1000)
    (8, 1, 0, 5)

    Raises:
        FormatError: nothing would be left to train on; ``of`` follows the number of rows.
    """
    at_least = int(heldout > 0 and rows > 1)
    count = int(heldout) if heldout >= 1 else max(round(rows * heldout), at_least)
    if count >= rows:
        raise FormatError(
            f"heldout {heldout:g} takes {count:,} of {rows:,} rows{of} and leaves none to train on: set it lower"
        )
    return count


def split_rows(heldout: float, rows: int, name: str = "heldout", of: str = "") -> dict[str, tuple[int, int]]:
    """Return the bounds of each split: of ``name``, the first rows, if any are held out, and of ``train``."""
    held = heldout_rows(heldout, rows, of)
    return {name: (0, held), "train": (held, rows)} if held else {"train": (0, rows)}


def split_totals(
    written: Sequence[Mapping[str, Any]], sums: Mapping[str, str], files: str
) -> dict[str, dict[str, int]]:
    """Add up what was written of each split.

    Args:
        written: a description of each file, with its split.
        sums: what is added up, by its name in the totals.
        files: what the totals call the number of files.
    """
    totals = {}
    for split in SPLITS:
        here = [each for each in written if each["split"] == split]
        if here:
            totals[split] = {name: sum(each[entry] for each in here) for name, entry in sums.items()}
            totals[split][files] = len(here)
    return totals


def counts_of_split(folder: Path, described: Mapping[str, Any], split: str, row: int) -> Mapping[str, int]:
    """Return what a description records of a split; raise FormatError if it has no such split, or no such document."""
    if split not in described["splits"]:
        raise FormatError(f"{folder} has no split {split!r}; there is: {', '.join(described['splits'])}")
    counts: Mapping[str, int] = described["splits"][split]
    if not 0 <= row < counts["documents"]:
        raise FormatError(f"{folder} split {split!r} has documents 0 to {counts['documents'] - 1:,}, not {row}")
    return counts
