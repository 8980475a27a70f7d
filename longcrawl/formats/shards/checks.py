"""What must hold of the files of any token shard, and the sentences where it does not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError

BLOCK = 1 << 22


def local_path(path: "str | Path") -> Path:
    """Return a path of this machine; raise FormatError for a URL."""
    if "://" in str(path):
        raise FormatError(f"{path} is not on this machine, where it could be mapped to memory: copy it here first")
    return Path(path)


def file_bytes(file: Path) -> int:
    """Return the size of a file; raise FormatError if there is none."""
    if not file.is_file():
        raise FormatError(f"there is no file {file}; check the path")
    return file.stat().st_size


def check_size(file: Path, expected: int, because: str) -> None:
    """Raise CorruptionError unless a file is as large as another file, or its own header, says."""
    found = file_bytes(file)
    if found == expected:
        return
    what = f"is cut: it ends at byte {found:,}" if found < expected else f"continues after byte {expected:,}"
    raise CorruptionError(f"{file} {what}, {because} {expected:,} bytes: fetch it again, or write it again")


def check_whole(file: Path, size: int, width: int) -> None:
    """Raise CorruptionError unless a file of tokens without a header has a whole number of them."""
    if size % width:
        raise CorruptionError(
            f"{file} has {size:,} bytes, not a whole number of tokens of {width}: it is cut at byte {size:,}, or "
            "token_size is wrong"
        )


def map_file(file: Path, dtype: npt.DTypeLike, count: int, offset: int = 0) -> npt.NDArray[Any]:
    """Map a piece of a file to memory; a piece of no length is an array, too."""
    if not count:
        return np.empty(0, dtype)
    return np.memmap(file, dtype, "r", offset, (count,))


def check_word(name: str, value: Any, words: Any) -> None:
    """Raise FormatError unless a value is one of ``words``, a ``Literal`` type or a tuple."""
    known = words if isinstance(words, tuple) else get_args(words)
    if value not in known:
        raise FormatError(f"{name} takes one of {', '.join(repr(word) for word in known)}, got {value!r}")


def check_ids(end_of_text: int | None, vocabulary_size: int | None) -> None:
    """Raise FormatError for ids that cannot be: negative, or an end of text that is not in the vocabulary."""
    if vocabulary_size is not None and vocabulary_size < 1:
        raise FormatError(f"vocabulary_size is {vocabulary_size:,}: give the number of ids, or leave it out")
    if end_of_text is not None and not 0 <= end_of_text < (vocabulary_size or 1 << 32):
        raise FormatError(
            f"end_of_text {end_of_text:,} is not an id of the vocabulary: give the id that ends documents"
        )


def end_problems(
    ends: npt.NDArray[np.int64],
    tokens: int,
    file: Path | str,
    entry: Callable[[int], int],
    what: str = "document",
    unit: str = "token",
) -> Iterator[str]:
    """Look for ends of documents that fall, or do not reach the last token.

    Args:
        ends: int64 [documents].
        tokens: how many there are.
        file: the index, for the sentence.
        entry: gives the byte of the file where the end of a document is written.
        what: an entry is called.
        unit: ends are counted in.
    """
    previous = 0
    for first in range(0, len(ends), BLOCK):
        block = np.asarray(ends[first : first + BLOCK])
        # Not by a difference, which wraps around where an entry is damaged.
        before = np.concatenate([[previous], block[:-1]])
        falling = np.flatnonzero(block < before)
        if len(falling):
            number = first + int(falling[0])
            yield (
                f"{file} is damaged at byte {entry(number):,}: {what} {number:,} ends at {unit} {int(ends[number]):,}, "
                f"before its start, {int(before[falling[0]]):,}; fetch it again, or write it again"
            )
            return
        previous = int(block[-1])
    if previous != tokens:
        place = entry(len(ends) - 1) if len(ends) else 0
        yield (
            f"{file} says at byte {place:,} that its last {what} ends at {unit} {previous:,}, but there are {tokens:,} "
            f"{unit}s: the two files do not belong together, so fetch both again, or write them again"
        )


def find_ends(tokens: npt.NDArray[Any], end_of_text: int, *, at_start: bool = False) -> npt.NDArray[np.int64]:
    """Find where documents end by their end-of-text tokens: int64 [documents]; the last end is the last token's.

    With ``at_start`` the token begins documents instead. What comes before the first is then a document, too.
    """
    blocks = range(0, len(tokens), BLOCK)
    found = [np.flatnonzero(tokens[first : first + BLOCK] == end_of_text) + first for first in blocks]
    marks = np.concatenate([np.empty(0, np.int64), *found])
    ends = marks[marks > 0] if at_start else marks + 1
    if len(tokens) and (not len(ends) or ends[-1] != len(tokens)):
        ends = np.append(ends, len(tokens))
    return ends
