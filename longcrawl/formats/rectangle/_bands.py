"""Which rows of an array can be read: bands of rows whose files are all there, taken together as a dense array."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from longcrawl.formats.rectangle._layout import ArrayLayout


@dataclass(frozen=True)
class Band:
    """The rows of one row of files.

    Attributes:
        number: of the row of files, counted from 0.
        rows: as they are delivered.
        stored: the same rows as the array counts them.
    """

    number: int
    rows: range
    stored: range


def whole_bands(layout: ArrayLayout, files: Iterable[str], columns: int | None = None) -> tuple[int, ...]:
    """Return the rows of files that are all there, or so many tokens of each row, by their numbers.

    Args:
        layout: of the array.
        files: names of those that are there; others are passed over.
        columns: of tokens, from the first on; None for all.
    """
    rows, tokens = layout.chunks_per_file[0], layout.shape[1] if columns is None else columns
    needed = -(-tokens // layout.file_shape[1])
    counts = Counter[int]()
    for corner in filter(None, map(layout.chunk_of_file, set(files))):
        if corner[1] // layout.chunks_per_file[1] < needed:
            counts[corner[0] // rows] += 1
    return tuple(sorted(band for band, count in counts.items() if count == needed))


def bands_of(layout: ArrayLayout, numbers: Iterable[int]) -> tuple[Band, ...]:
    """Return bands by their numbers, one after the other."""
    found, height, first = list[Band](), layout.file_shape[0], 0
    for number in numbers:
        stored = range(number * height, min((number + 1) * height, layout.shape[0]))
        found.append(Band(number, range(first, first + len(stored)), stored))
        first += len(stored)
    return tuple(found)


def dense_layout(layout: ArrayLayout, bands: tuple[Band, ...]) -> ArrayLayout:
    """Return the layout of an array that has these bands alone."""
    return replace(layout, shape=(bands[-1].rows.stop if bands else 0, layout.shape[1]))
