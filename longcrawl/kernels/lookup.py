"""Small kernels that the others share: rounding as Python does, hashing, and looking words up in a vocabulary."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import gc
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core.caching import IndexDataCacheFile
from numba.core.registry import CPUDispatcher

from longcrawl.kernels.word_lists import Vocabulary

F = TypeVar("F", bound=Callable[..., Any])
Letters = npt.NDArray[Any]

_U = np.uint64
_MIX = _U(0xFF51AFD7ED558CCD)

_ROOT = Path(__file__).parents[2]
_IMPORT = re.compile(r"^from (longcrawl[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@cache
def _read_source(file: Path) -> tuple[bytes, frozenset[Path]]:
    """Return what a file holds and which files of longcrawl it imports; most kernels import the same few."""
    content = file.read_bytes()
    imported = set()
    for package, names in _IMPORT.findall(content.decode()):
        folder = _ROOT.joinpath(*package.split("."))
        files = {"__init__.py", *(f"{name}.py" for name in re.findall(r"\w+", names))}
        imported |= {folder.with_suffix(".py"), *(folder / name for name in files)}
    return content, frozenset(filter(Path.is_file, imported))


@cache
def digest_sources(file: Path) -> str:
    """Return a SHA-256 of a file and of all that it imports of longcrawl: machine code of its kernels holds both."""
    reached, waiting = {file}, [file]
    while waiting:
        imported = _read_source(waiting.pop())[1] - reached
        reached |= imported
        waiting += imported
    return hashlib.sha256(b"".join(_read_source(path)[0] for path in sorted(reached))).hexdigest()


class _CachedKernels(IndexDataCacheFile):
    """What is kept of a kernel on disk, which is made again where it names a type that has moved to another module.

    numba would raise: it unpickles the types of a kernel's arguments before it compares the source.
    """

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (ImportError, AttributeError):
            return {}


class _Kernel(CPUDispatcher):
    """A kernel that other kernels call without the entry points for Python and C, which are a third of compiling.

    Only what Python calls is kept on disk: its machine code holds all that it calls.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        no_entries = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        self._called_by_kernels = CPUDispatcher(self.py_func, self.locals, self.targetoptions | no_entries)

    def enable_caching(self) -> None:
        """Keep machine code on disk."""
        super().enable_caching()
        kept = self._cache._cache_file  # noqa: SLF001  # numba has no other place for it, here and below
        kept.__class__ = _CachedKernels
        # numba compares the kernel's own file alone: after an upgrade it would run what others were before.
        kept._source_stamp = (kept._source_stamp, digest_sources(Path(self.py_func.__code__.co_filename)))  # noqa: SLF001

    def compile(self, signature: Any) -> Any:
        """Compile without the garbage collector, which walks through all that numba makes: a tenth of the time."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            return super().compile(signature)
        finally:
            if was_on:
                gc.enable()

    @property
    def _numba_type_(self) -> Any:
        """What numba calls where a kernel names this one."""
        return self._called_by_kernels._numba_type_


def compiled(function: F) -> F:
    """Compile a kernel that runs without the interpreter lock and is kept on disk."""
    kernel = _Kernel(function, targetoptions={"nopython": True, "nogil": True, "boundscheck": None})
    kernel.enable_caching()
    return kernel


def inlined(function: F) -> F:
    """As ``compiled``, but put into its callers: calls with many arrays cost more than what they do."""
    kernel: F = numba.njit(cache=True, nogil=True, inline="always")(function)
    return kernel


@compiled
def round_to_8_digits(value: float) -> float:
    """Return ``round(value, 8)`` of a number that is not negative, equal to Python's in every bit.

    Python rounds the exact binary value, half to even. The product with 1e8 is exact as ``high + low``, so a number
    near a half is decided exactly; from 2**26 on neighbouring numbers are further apart than the digits.
    """
    if not value < 67108864.0:
        return value
    high = value * 1e8
    whole = np.floor(high)
    off = high - whole - 0.5
    if abs(off) < 1e-3:
        split = 134217729.0 * value
        upper = split - (split - value)
        off += (upper * 1e8 - high) + (value - upper) * 1e8
    up = off > 0.0 or (off == 0.0 and whole % 2.0 == 1.0)
    return (whole + 1.0 if up else whole) / 1e8


@compiled
def round_all(values: Any) -> None:
    """Round every number of a one-dimensional array in place, as ``round(value, 8)`` does; NaN stays."""
    for at in range(len(values)):
        values[at] = round_to_8_digits(values[at])


_RUN = 16
"""Keys that :func:`stable_order` sorts by insertion before it merges."""


@compiled
def stable_order(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of int64 keys in ascending order, equal ones as they stand: a merge sort.

    That of numba takes 1 to 2 s of compiling for each type of key, this one 0.4 s once.
    """
    count = len(keys)
    order, merged = np.empty(count, np.int64), np.empty(count, np.int64)
    for at in range(count):
        key, place = keys[at], at
        while place % _RUN and keys[order[place - 1]] > key:
            order[place] = order[place - 1]
            place -= 1
        order[place] = at
    width = _RUN
    while width < count:
        for start in range(0, count, 2 * width):
            middle, stop = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for place in range(start, stop):
                if left < middle and (right == stop or keys[order[left]] <= keys[order[right]]):
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@inlined
def order_by(values: npt.NDArray[Any], members: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of ``members`` by their values, integers, as :func:`stable_order` does.

    Of unsigned numbers beyond int64 only equal ones are sure to stand together.
    """
    keys = np.empty(len(members), np.int64)
    for place in range(len(members)):
        keys[place] = np.int64(values[members[place]])
    return stable_order(keys)


@compiled
def mixed(number: np.uint64) -> np.int64:
    """Spread a hash or a key over all bits, as an index to be masked."""
    number ^= number >> _U(33)
    number *= _MIX
    number ^= number >> _U(29)
    return np.int64(number)


@inlined
def _sampled(language: int, letters: Letters, start: int, stop: int) -> np.int64:
    """Hash a listed word by its length and its first and last two letters, which tell most of a list apart."""
    second, before_last = min(start + 1, stop - 1), max(stop - 2, start)
    head = _U(letters[start]) | _U(letters[second]) << _U(21) | _U(stop - start) << _U(42)
    tail = _U(letters[stop - 1]) | _U(letters[before_last]) << _U(21) | _U(language) << _U(42)
    return mixed(head ^ (tail << _U(11) | tail >> _U(53)))


@inlined
def find_word(vocabulary: Vocabulary, language: int, letters: Letters, start: int, stop: int) -> int:
    """Return the number of the word ``letters[start:stop]`` in a language's list, -1 where it is not there."""
    length = stop - start
    if language < 0 or length > vocabulary.longest:
        return -1
    mask = len(vocabulary.table) - 1
    at = _sampled(language, letters, start, stop) & mask
    while vocabulary.table[at] != 0:
        word = vocabulary.table[at] - 1
        first = vocabulary.bounds[word]
        if vocabulary.languages[word] == language and vocabulary.bounds[word + 1] - first == length:
            same = 0
            while same < length and vocabulary.letters[first + same] == letters[start + same]:
                same += 1
            if same == length:
                return word
        at = (at + 1) & mask
    return -1


@compiled
def fill_table(vocabulary: Vocabulary) -> None:
    """Enter all words of a vocabulary into its table of zeros."""
    mask = len(vocabulary.table) - 1
    for word in range(len(vocabulary.languages)):
        start, stop = vocabulary.bounds[word], vocabulary.bounds[word + 1]
        at = _sampled(vocabulary.languages[word], vocabulary.letters, start, stop) & mask
        while vocabulary.table[at] != 0:
            at = (at + 1) & mask
        vocabulary.table[at] = word + 1
