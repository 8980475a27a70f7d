"""How many documents are held out of training: the setting ``heldout`` of every output that has one."""

import math

from longcrawl.errors import FormatError, StageError

__all__ = ["check_heldout", "heldout_rows", "split_rows"]


def check_heldout(heldout: float, output: str) -> None:
    """Raise StageError for what is neither a fraction below 1 nor a whole number; ``output`` is named."""
    if not 0 <= heldout < math.inf or (heldout >= 1 and heldout != int(heldout)):
        raise StageError(f"{output}.heldout takes a fraction below 1 or a whole number of rows, got {heldout!r}")


def heldout_rows(heldout: float, rows: int, of: str = "") -> int:
    """Return how many of so many rows are held out: a fraction is rounded, but to no less than one row of two.

    >>> heldout_rows(0.008, 1000), heldout_rows(0.008, 2), heldout_rows(0.008, 1), heldout_rows(5, 1000)
    (8, 1, 0, 5)

    Raises:
        FormatError: nothing would be left to train on; ``of`` is said after the number of rows.

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
