"""Open token shards of any format, and the checks on their files.

A document is the tokens between two ends in the file. If the file has an end-of-text token, it is the last token of its
document.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.io.block_checksums import BlockChecksums, FileBlocks
from longcrawl.tokens.loss_mask import LOSS_MASK, LOSS_MASK_TYPE

TOKENS = "tokens"
N_TOKENS = "n_tokens"
OVERLAP = "overlap"
"""Column with the number of tokens that a document repeats from the end of the one before; they have no loss."""
LOSS_SUFFIX = ".loss"
"""Suffix that turns the name of a file of tokens into that of its loss mask, if the mask is a file."""
BLOCK_TOKENS = 1 << 22
"""Tokens processed at a time, unless one document has more."""
LIST_LIMIT = (1 << 31) - 1
"""Most values in an Arrow list column."""
INPUT_IDS = "input_ids"
ORIGINS = ("id", "url", "language")
"""Columns that identify the document of a row, if the output records them."""
FOUND = ("date", "source", "file", "offset")
"""Columns with the date and place a document was found, recorded in addition to ``ORIGINS``."""


def list_column(lengths: npt.NDArray[np.int64], values: "npt.NDArray[Any] | pa.Array") -> pa.Array:
    """Return lists of these lengths, whose values are end to end."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values if isinstance(values, pa.Array) else pa.array(values))


def token_table(
    origins: pa.Table,
    tokens: npt.NDArray[Any],
    lengths: npt.NDArray[np.int64],
    loss_mask: npt.NDArray[np.bool_] | None = None,
    **others: Any,
) -> pa.Table:
    """Build a table of the form that :meth:`longcrawl.core.outputs.TokenRows.read` yields.

    ``origins`` has a row for each row of tokens, whose ids are below 2**31 and end to end. ``lengths`` are int64,
    tokens in each row, and ``others`` are further columns.

    >>> token_table(pa.table({"id": ["a"]}), np.array([5, 6], np.uint16), np.array([2])).to_pylist()
    [{'id': 'a', 'n_tokens': 2, 'input_ids': [5, 6]}]
    """
    columns = {name: origins[name] for name in origins.column_names} | others
    columns[N_TOKENS] = pa.array(lengths, pa.int64())
    columns[INPUT_IDS] = list_column(lengths, pa.array(tokens).cast(pa.int32()))
    if loss_mask is not None:
        columns[LOSS_MASK] = list_column(lengths, loss_mask)
    return pa.table(columns)


@dataclass(frozen=True, eq=False)
class Documents:
    """Consecutive documents of a shard, as views of its arrays if possible.

    Attributes:
        tokens: of all documents, end to end; uint16 or uint32, or any integers before they are written.
        lengths: int64, tokens in each document.
        overlaps: int64, tokens that each document repeats from the end of the one before; None if there are none.
        loss_mask: bool for each token, False for tokens without a loss; None if all have one.
        others: further columns, a row for each document; None if there are none.
    """

    tokens: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]
    overlaps: npt.NDArray[np.int64] | None = None
    loss_mask: npt.NDArray[np.bool_] | None = None
    others: pa.Table | None = None

    def table(self) -> pa.Table:
        """Return the columns ``tokens``, ``n_tokens`` (int64) and, if known, ``overlap``, ``loss_mask`` and others."""
        if len(self.tokens) > LIST_LIMIT:
            raise FormatError(
                f"{len(self.lengths):,} documents have {len(self.tokens):,} tokens, but a list column holds "
                f"{LIST_LIMIT:,}: read the shard as arrays, shard.tokens and shard.ends"
            )
        columns = {TOKENS: list_column(self.lengths, self.tokens), N_TOKENS: pa.array(self.lengths, pa.int64())}
        if self.overlaps is not None:
            columns[OVERLAP] = pa.array(self.overlaps, pa.uint32())
        if self.loss_mask is not None:
            columns[LOSS_MASK] = list_column(self.lengths, pa.array(self.loss_mask, LOSS_MASK_TYPE.value_type))
        others = {} if self.others is None else {name: self.others[name] for name in self.others.column_names}
        return pa.table(columns | others)


@dataclass(frozen=True, eq=False)
class TokenShard:
    """An open token shard with memory-mapped arrays, pickled as its path and settings.

    >>> shard = open_shard("00000_tokens.ds")  # doctest: +SKIP
    >>> len(shard), shard.tokens.dtype, shard.document(0)  # doctest: +SKIP
    (16384, dtype('uint16'), memmap([ 464, 9214,  373, ...], dtype=uint16))

    ``tokens`` are uint16 or uint32. ``document_ends`` are int64 or None, see :attr:`ends`. ``overlaps`` are unsigned
    integers, for each document, and ``loss_mask`` is bool, for each token; None if there are none. ``left_out``
    describes other content of the file, and ``first_byte`` is the offset of the tokens.

    ``check="everything"`` compares all blocks of the files with ``checksums`` on opening. Otherwise :meth:`document`
    and :meth:`documents` check the tokens that they return, and code that uses ``tokens`` must call :meth:`compare`.
    """

    path: str
    format: str
    tokens: npt.NDArray[Any] = field(repr=False)
    document_ends: npt.NDArray[np.int64] | None = field(repr=False)
    overlaps: npt.NDArray[Any] | None = field(default=None, repr=False)
    loss_mask: npt.NDArray[np.bool_] | None = field(default=None, repr=False)
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    tokenizer: str | None = None
    left_out: tuple[str, ...] = ()
    opened_by: tuple[Callable[..., "TokenShard"], Mapping[str, Any]] | None = field(default=None, repr=False)
    checksums: BlockChecksums | None = field(default=None, repr=False)
    first_byte: int = field(default=0, repr=False)
    suffix: str = field(default="", repr=False)
    """End of ``path``; the paths of all files of the shard begin with the rest of it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the tokens."""
        if self.opened_by is None:
            raise FormatError(f"a shard of {self.path} that no format has opened cannot be sent to another process")
        opener, settings = self.opened_by
        return partial(opener, self.path, **{**settings, "check": "sizes"}), ()

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """Ends of documents: int64 [documents], exclusive, never falling; FormatError if they are unknown."""
        if self.document_ends is None:
            raise FormatError(
                f"{self.path} does not record where its documents end: set end_of_text=ID, or add --end-of-text ID"
            )
        self.compare_index()
        return self.document_ends

    def compare(self, first: int, stop: int) -> None:
        """Check the blocks of tokens ``first:stop`` and their mask, each once; raise CorruptionError if one changed."""
        blocks, mask, _ = self._blocks
        if blocks is not None and blocks.left:
            width = self.tokens.itemsize
            blocks.check(self.first_byte + first * width, self.first_byte + stop * width)
        if mask is not None and mask.left:
            mask.check(first, stop)

    def compare_index(self) -> None:
        """Check all files but tokens and loss mask, each once; raise CorruptionError if one was changed."""
        for blocks in self._blocks[2]:
            if blocks.left:
                blocks.check()

    @cached_property
    def _blocks(self) -> tuple[FileBlocks | None, FileBlocks | None, list[FileBlocks]]:
        """Blocks of the tokens, of the loss mask, and of each other file."""
        files = {} if self.checksums is None else dict(self.checksums.files)
        mask = None if self.loss_mask is None else files.pop(self.suffix + LOSS_SUFFIX, None)
        return files.pop(self.suffix, None), mask, list(files.values())

    @property
    def unread(self) -> bool:
        """Whether some tokens have checksums that :meth:`compare` has not compared yet."""
        return self._blocks[0] is not None and bool(self._blocks[0].left)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.ends)

    def document(self, number: int) -> npt.NDArray[Any]:
        """Return a view of one document's tokens; raise IndexError if there is no such document."""
        if not 0 <= number < len(self):
            raise IndexError(f"{self.path} has documents 0 to {len(self) - 1:,}, not {number}")
        first, stop = self.start(number), int(self.ends[number])
        self.compare(first, stop)
        return self.tokens[first:stop]

    def start(self, number: int) -> int:
        """Return the offset of a document's first token."""
        return int(self.ends[number - 1]) if number else 0

    def documents(self, start: int = 0, stop: int | None = None) -> Documents:
        """Return documents ``start:stop``."""
        stop = len(self) if stop is None else stop
        first = self.start(start)
        ends = np.asarray(self.ends[start:stop])
        last = int(ends[-1]) if len(ends) else first
        self.compare(first, last)
        return Documents(
            self.tokens[first:last],
            np.diff(ends, prepend=first),
            None if self.overlaps is None else self.overlaps[start:stop].astype(np.int64),
            None if self.loss_mask is None else self.loss_mask[first:last],
        )

    def blocks(self, block_tokens: int = BLOCK_TOKENS, start: int = 0, stop: int | None = None) -> Iterator[Documents]:
        """Yield documents ``start:stop``, about ``block_tokens`` tokens at a time, in the same blocks each time."""
        last = len(self) if stop is None else stop
        while start < last:
            found = int(np.searchsorted(self.ends, self.start(start) + block_tokens, "right"))
            end = min(max(found, start + 1), start + block_tokens, last)
            yield self.documents(start, end)
            start = end


BLOCK = 1 << 22


def stem_of(path: "str | Path", suffix: str) -> str:
    """Return the path of a shard without the suffix of its format."""
    return str(path).removesuffix(suffix)


def shard_folder(path: "str | Path", suffix: str) -> Path:
    """Return the folder that a shard is in, with the other shards of its split."""
    return Path(stem_of(path, suffix)).parent


def local_path(path: "str | Path") -> Path:
    """Return a local path; raise FormatError for a URL."""
    if "://" in str(path):
        raise FormatError(f"{path} is not local, so it cannot be memory-mapped: copy it to this machine first")
    return Path(path)


def file_bytes(file: Path) -> int:
    """Return the size of a file; raise FormatError if there is none."""
    if not file.is_file():
        raise FormatError(f"no file {file}: check the path")
    return file.stat().st_size


def check_size(file: Path | str, expected: int, because: str, found: int | None = None) -> None:
    """Raise CorruptionError unless a file has the expected size; the message begins the reason with ``because``.

    ``found`` is the size of a file that is not on this machine.
    """
    if (found := file_bytes(Path(file)) if found is None else found) != expected:
        what = f"is cut: it ends at byte {found:,}" if found < expected else f"continues after byte {expected:,}"
        raise CorruptionError(f"{file} {what}, {because} {expected:,} bytes: fetch it again, or write it again")


def check_whole(file: Path | str, size: int, width: int) -> None:
    """Raise CorruptionError unless a file without a header has a whole number of tokens."""
    if size % width:
        raise CorruptionError(
            f"{file} has {size:,} bytes, not a whole number of tokens of {width}: it is cut at byte {size:,}, or "
            "token_size is wrong"
        )


def token_width(file: Path | str, size: int, given: int | None, last: int | None, index: str) -> int:
    """Return the bytes of a token, as given or derived from ``last``, the end in an index, or None without one.

    ``size`` is the number of bytes of the file of tokens, and ``index`` the name of the index, for messages.
    """
    if last is None:
        if given is None:
            raise FormatError(
                f"{file} has no {index} and nothing else records the width of its tokens: open it with "
                "token_size=2 or token_size=4, or add --set reading.token_size=2"
            )
        check_whole(file, size, given)
        return given
    given = given or next((width for width in (2, 4) if size == last * width), None)
    if given is None:
        raise CorruptionError(
            f"{file} has {size:,} bytes, but its index ends at token {last:,}, which is byte {2 * last:,} or "
            f"{4 * last:,}: one of them is cut or has grown, so fetch both again, or write them again"
        )
    check_size(file, last * given, f"and {index}, with {given} bytes a token, asks for", size)
    return given


def map_file(file: Path, dtype: npt.DTypeLike, count: int, offset: int = 0) -> npt.NDArray[Any]:
    """Memory-map a part of a file; an empty part gives an empty array."""
    return np.memmap(file, dtype, "r", offset, (count,)) if count else np.empty(0, dtype)


def map_opened(file: IO[bytes], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Memory-map an open file from its beginning; an empty file gives an empty array."""
    return np.memmap(file, dtype, "r") if file.seek(0, os.SEEK_END) else np.empty(0, dtype)


def named_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Describe columns of documents for messages; an empty tuple if there are none."""
    return (f"the column{'s' * (len(names) > 1)} {', '.join(names)}",) if names else ()


def check_ids(end_of_text: int | None, vocabulary_size: int | None) -> None:
    """Raise FormatError for invalid ids: a negative number, or an end of text outside the vocabulary."""
    if vocabulary_size is not None and vocabulary_size < 1:
        raise FormatError(f"vocabulary_size is {vocabulary_size:,}: give the number of ids, or remove it")
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
    """Yield the problems of ends of documents: ends that fall, or that do not reach the last token.

    ``file`` is the index, whose byte ``entry(number)`` stores the end of a document. ``what`` and ``unit`` are the
    names of an entry and of what ends count, for messages.
    """
    previous = 0
    for first in range(0, len(ends), BLOCK):
        block = np.asarray(ends[first : first + BLOCK])
        # A difference would wrap around if an entry is damaged.
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
            f"{file} records at byte {place:,} that its last {what} ends at {unit} {previous:,}, but there are "
            f"{tokens:,} {unit}s: the two files do not belong together, so fetch both again, or write them again"
        )


def find_ends(tokens: npt.NDArray[Any], end_of_text: int, *, at_start: bool = False) -> npt.NDArray[np.int64]:
    """Find the ends of documents by their end-of-text tokens: int64 [documents]; the last is the number of tokens.

    With ``at_start`` the token begins documents instead, and any tokens before the first one are also a document.
    """
    blocks = range(0, len(tokens), BLOCK)
    found = [np.flatnonzero(tokens[first : first + BLOCK] == end_of_text) + first for first in blocks]
    marks = np.concatenate([np.empty(0, np.int64), *found])
    ends = marks[marks > 0] if at_start else marks + 1
    if len(tokens) and (not len(ends) or ends[-1] != len(tokens)):
        ends = np.append(ends, len(tokens))
    return ends
