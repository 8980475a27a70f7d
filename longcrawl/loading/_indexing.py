"""Indices of feeds and windows: whole numbers of any library, slices and lists of numbers."""

import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import numpy as np

from longcrawl.errors import LoaderError
from longcrawl.printable import quoted

Item = TypeVar("Item")
Index = int | slice | Iterable[int]


class IndexTypeError(LoaderError, TypeError):
    """An index that is neither a whole number nor several of them."""


@overload
def items(index: int, count: int | None, one: Callable[[int], Item], what: str = "batch") -> Item: ...


@overload
def items(
    index: slice | Iterable[int], count: int | None, one: Callable[[int], Item], what: str = "batch"
) -> list[Item]: ...


def items(index: Index, count: int | None, one: Callable[[int], Item], what: str = "batch") -> Item | list[Item]:
    """Return the item of a number, or the list of those of a slice or of several numbers.

    Args:
        index: as of a list in Python, or several whole numbers.
        count: how many items there are; None if that is not known, so that nothing counts from the end.
        one: returns the item of a number from 0 on, or raises IndexError.
        what: the word for an item in messages.

    Raises:
        IndexTypeError: there is a number that is not whole, or a bool.
        IndexError: there is no such item.
    """
    if isinstance(index, slice):
        return [one(number) for number in range(count)[index]] if count is not None else _open_slice(index, one, what)
    if getattr(index, "ndim", 0) == 0 and not isinstance(index, list | tuple | range):
        return one(_from_start(whole_number(index), count, what))
    return [one(_from_start(whole_number(number), count, what)) for number in index]  # type: ignore[union-attr]  # no number


def whole_number(index: Any) -> int:
    """Return a whole number of any library as that of Python; raise IndexTypeError for anything else."""
    try:
        if not (isinstance(index, bool) or "bool" in str(getattr(index, "dtype", ""))):
            return operator.index(index)
    except TypeError:
        pass
    raise IndexTypeError(
        f"the index {quoted(index)} is not a whole number ({type(index).__name__}): give a number, a slice or a list "
        "of numbers"
    )


def whole_numbers(places: Any) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return several whole numbers as int64; raise IndexTypeError for anything else."""
    array = np.asarray(places)
    if array.dtype.kind not in "iu" and array.size:
        raise IndexTypeError(f"places are {array.dtype}: give whole numbers")
    return array.astype(np.int64, copy=False)


def _from_start(number: int, count: int | None, what: str) -> int:
    """Count a negative number from the end, and reject one that is outside."""
    if count is None:
        if number < 0:
            raise IndexError(f"{what} {number:,}: they are counted from 0, as their number is not known")
        return number
    if not -count <= number < count:
        raise IndexError(f"{what} {number:,} of {count:,}: they are counted from 0 to {count - 1:,}")
    return number % count


def _open_slice(index: slice, one: Callable[[int], Item], what: str) -> list[Item]:
    """Return the items of a slice up to the last that there is."""
    parts = [None if part is None else whole_number(part) for part in (index.start, index.stop, index.step)]
    start, stop, step = parts
    if stop is None or min(start or 0, stop, step or 1) < 0 or step == 0:
        raise IndexError(f"{what} {index}: they are counted from 0, as their number is not known; give [0:10] or so")
    found = []
    for number in range(start or 0, stop, step or 1):
        try:
            found.append(one(number))
        except IndexError:
            break
    return found
