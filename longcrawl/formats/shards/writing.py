"""Converts documents to one token type, checks and counts them, and writes the files of a shard."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import SORT_KEY, column, with_column
from longcrawl.errors import FormatError, StageError, check_word, warn_user
from longcrawl.formats.order import copy_values
from longcrawl.formats.shards.shard import (
    FOUND,
    LIST_LIMIT,
    N_TOKENS,
    ORIGINS,
    OVERLAP,
    TOKENS,
    Documents,
    check_ids,
)
from longcrawl.io.block_checksums import SUFFIX, DigestedFile, checksums_of
from longcrawl.io.files import checksum, partial_path, publish, remove, write_text
from longcrawl.tokens.loss_mask import LOSS_MASK, loss_mask_of_tokens
from longcrawl.tokens.shape import WINDOWS, DocumentWindows, windows_of_tokens

DocumentBatch: TypeAlias = pa.Table | Documents
"""Documents to write: arrays, or a table with a column ``tokens`` and optionally ``overlap`` and ``loss_mask``."""
TokenType = Literal["auto", "uint16", "uint32"]
"""Stored type of a token; "auto" is uint16 for a vocabulary of up to 65,536 ids, and uint32 for a larger one.

If the vocabulary is unknown, "auto" is the type of the first documents, or uint32 for integers other than uint16.
"""
Terminate = Literal["missing", "always", "never"]
"""Rule for adding ``end_of_text`` to a document: if the document lacks it at its place, always, or never."""
OnLoss = Literal["error", "warn"]
"""Treatment of content that a format cannot store: write nothing, or warn and write the rest."""
Place = Literal["end", "start"]
"""Position of the end-of-text token in a document."""
NOTE = "note"
"""Policy of :func:`longcrawl.convert` for "warn", which collects losses to warn once for all shards."""
Longs = npt.NDArray[np.int64]
BLOCK = 1 << 22
MOST_INT32 = (1 << 31) - 1
MOST_UINT32 = (1 << 32) - 1
OWN = (TOKENS, N_TOKENS, OVERLAP, LOSS_MASK)
"""Columns of documents that shards can store."""


@dataclass(frozen=True)
class Loss:
    """Content that a format cannot store, as words that follow "cannot hold"; ``{}`` in them stands for the count."""

    what: str
    count: int | None = None

    def __str__(self) -> str:
        return self.what if self.count is None else self.what.replace("{}", f"{self.count:,}")


@dataclass(frozen=True)
class WrittenShard:
    """Result of writing a shard: its files, counts and losses."""

    path: str
    files: tuple[str, ...]
    documents: int
    tokens: int
    losses: tuple[Loss, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict, repr=False)
    """SHA-256 of the files that were written in order, by path."""


@dataclass
class DocumentStream:
    """Documents to write to a shard: in one token type, with end-of-text tokens, checked and counted.

    ``terminate`` None is "missing" if ``end_of_text`` is given. ``holds`` are those of ``overlap`` and ``loss_mask``
    that the format can store; others are dropped and counted.

    Raises:
        FormatError: tokens are missing, null or negative, or ids exceed the token type or the vocabulary.
        StageError: there is no column ``tokens``, or a loss mask does not fit it.
    """

    source: Iterable[DocumentBatch] | DocumentBatch
    dtype: TokenType = "auto"
    end_of_text: int | None = None
    terminate: Terminate | None = None
    vocabulary_size: int | None = None
    holds: frozenset[str] = frozenset()
    place: Place = "end"
    """Side of a document on which the end-of-text token is added.

    A format may set it before the first batch is read.
    """
    documents: int = field(default=0, init=False)
    tokens: int = field(default=0, init=False)
    masked: int = field(default=0, init=False)
    overlapping: int = field(default=0, init=False)
    lost: list[Loss] = field(default_factory=list, init=False)
    """Further losses that the format has found."""
    token_type: "np.dtype[Any]" = field(init=False)
    has: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        check_ids(self.end_of_text, self.vocabulary_size)
        check_word("dtype", self.dtype, TokenType, FormatError)
        if self.terminate is not None:
            check_word("terminate", self.terminate, Terminate, FormatError)
        if self.terminate in ("missing", "always") and self.end_of_text is None:
            raise FormatError(
                f"terminate {self.terminate!r} adds an end-of-text token, but none is set: set end_of_text=ID, or "
                "add --end-of-text ID"
            )
        several = [self.source] if isinstance(self.source, pa.Table | Documents) else self.source
        batches = (each if isinstance(each, Documents) else documents_of(each) for each in several)
        first = next(batches, None)
        self._batches = batches if first is None else chain([first], batches)
        found = np.dtype(np.uint16) if first is None else first.tokens.dtype
        self.token_type = stored_type(self.dtype, self.vocabulary_size, found)
        self.has = frozenset() if first is None else _extras(first)
        if self.end_of_text is not None and self.end_of_text > np.iinfo(self.token_type).max:
            raise FormatError(f"end_of_text {self.end_of_text:,} does not fit {self.token_type}: set dtype to 'uint32'")

    def __iter__(self) -> Iterator[Documents]:
        for batch in self._batches:
            if _extras(batch) != self.has:
                some = " and ".join(sorted(_extras(batch) ^ self.has))
                raise FormatError(f"only some documents have {some}: set it for all or none")
            self._check(batch)
            kept = self._terminated(self._without_lost(batch))
            self.documents += len(kept.lengths)
            self.tokens += len(kept.tokens)
            yield kept

    def losses(self) -> list[Loss]:
        """Return the losses of the documents read so far."""
        lost = [*self.lost]
        if self.masked:
            lost.append(Loss("the loss mask, which is False for {} tokens", self.masked))
        if self.overlapping:
            lost.append(Loss("the overlaps of {} documents, whose first tokens would count twice", self.overlapping))
        return lost

    def _check(self, batch: Documents) -> None:
        if not len(batch.tokens):
            return
        low, high = int(batch.tokens.min()), int(batch.tokens.max())
        limit = self.vocabulary_size or int(np.iinfo(self.token_type).max) + 1
        if low >= 0 and high < min(limit, int(np.iinfo(self.token_type).max) + 1):
            return
        bad = low if low < 0 else high
        at = int(np.argmax(batch.tokens == bad))
        number = self.documents + int(np.searchsorted(np.cumsum(batch.lengths), at, "right"))
        raise FormatError(f"document {number:,} has the id {bad:,}, but {self._reason(bad)}")

    def _reason(self, bad: int) -> str:
        if bad < 0:
            return "ids begin with 0: fix the tokens, or drop the document"
        if bad >= 1 << 32:
            return "no format has ids of more than 32 bits: fix the tokens, or drop the document"
        if self.vocabulary_size is not None and bad >= self.vocabulary_size:
            return f"the vocabulary has {self.vocabulary_size:,}: check vocabulary_size"
        return f"a token is stored as {self.token_type}: set dtype to 'uint32', or fix the tokens"

    def _without_lost(self, batch: Documents) -> Documents:
        overlaps, mask = batch.overlaps, batch.loss_mask
        check_overlaps(batch, self.documents)
        if overlaps is not None and OVERLAP not in self.holds:
            self.overlapping += int(np.count_nonzero(overlaps))
            overlaps = None
        if mask is not None and LOSS_MASK not in self.holds:
            self.masked += len(mask) - int(np.count_nonzero(mask))
            mask = None
        tokens = batch.tokens.astype(self.token_type, copy=False)
        return replace(batch, tokens=tokens, overlaps=overlaps, loss_mask=mask)

    def _terminated(self, batch: Documents) -> Documents:
        if self.end_of_text is None or self.terminate == "never":
            return batch
        ends = np.cumsum(batch.lengths)
        adds = np.ones(len(ends), bool)
        if self.terminate != "always":
            some = np.flatnonzero(batch.lengths)
            looked_at = ends[some] - 1 if self.place == "end" else (ends - batch.lengths)[some]
            adds[some] = batch.tokens[looked_at] != self.end_of_text
        if not adds.any():
            return batch
        lengths = batch.lengths + adds
        firsts = np.cumsum(lengths) - lengths
        added = (firsts + (batch.lengths if self.place == "end" else 0))[adds]
        places = firsts if self.place == "end" else firsts + adds
        starts = ends - batch.lengths
        tokens = _spread(batch.tokens, starts, batch.lengths, places, int(lengths.sum()))
        tokens[added] = self.end_of_text
        mask = None
        if batch.loss_mask is not None:
            mask = _spread(batch.loss_mask, starts, batch.lengths, places, len(tokens))
            mask[added] = True
        return replace(batch, tokens=tokens, lengths=lengths, loss_mask=mask)


def _spread(values: npt.NDArray[Any], starts: Longs, lengths: Longs, places: Longs, count: int) -> npt.NDArray[Any]:
    """Copy stretches of an array to ``places`` in a new array of ``count`` values."""
    given, made = np.ascontiguousarray(values), np.empty(count, values.dtype)
    width = values.dtype.itemsize
    copy_values(given.ctypes.data + starts * width, lengths * width, places * width, made.view(np.uint8))
    return made


def stored_type(dtype: TokenType, vocabulary_size: int | None, found: "np.dtype[Any]") -> "np.dtype[Any]":
    """Return the stored type of tokens that the documents have as type ``found``; see :data:`TokenType`."""
    narrow = found == np.uint16 if vocabulary_size is None else vocabulary_size <= 1 << 16
    return np.dtype(("uint16" if narrow else "uint32") if dtype == "auto" else dtype)


def documents_of(table: pa.Table) -> Documents:
    """Convert a table to documents, without copying tokens in one chunk; errors are of :class:`DocumentStream`."""
    if not isinstance(table, pa.Table):
        raise FormatError(
            f"documents must be Arrow tables, not a {type(table).__name__}: pass data.with_format('arrow').iter(1000)"
        )
    lists = column(table, TOKENS, "a token shard")
    if pa.types.is_fixed_size_list(lists.type) or pa.types.is_large_list(lists.type):
        kind = pa.list_(lists.type.value_type) if len(lists.flatten()) <= LIST_LIMIT else lists.type
        lists = pc.cast(lists, kind)
    if not hasattr(lists.type, "value_type") or not pa.types.is_integer(lists.type.value_type):
        raise FormatError(f"the column {TOKENS!r} is {lists.type}: make it lists of uint16 or uint32, as tokenize does")
    values = lists.flatten()
    if lists.null_count or values.null_count:
        there = lists.drop_null()
        wrong = lists.null_count + len(pc.unique(pc.list_parent_indices(there).filter(there.flatten().is_null())))
        raise FormatError(
            f"the column {TOKENS!r} has nulls in {wrong:,} of {table.num_rows:,} documents: drop or fix them"
        )
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    mask = overlaps = None
    if LOSS_MASK in table.column_names:
        mask = loss_mask_of_tokens(table, lengths, "a token shard").flatten().to_numpy(zero_copy_only=False)
    if OVERLAP in table.column_names:
        found = column(table, OVERLAP, "a token shard")
        if found.null_count or not pa.types.is_integer(found.type):
            raise FormatError(f"the column {OVERLAP!r} is {found.type}: make it integers, 0 where nothing overlaps")
        overlaps = found.to_numpy().astype(np.int64)
    others = table.drop_columns([name for name in OWN if name in table.column_names])
    tokens = values.to_numpy(zero_copy_only=False)
    return Documents(tokens, lengths, overlaps, mask, others if others.num_columns else None)


def check_overlaps(documents: Documents, first: int) -> None:
    """Raise FormatError for overlaps longer than their documents; ``first`` is the number of the first document."""
    overlaps, lengths = documents.overlaps, documents.lengths
    if overlaps is not None and np.any(wrong := (overlaps < 0) | (overlaps > lengths)):
        number = int(np.argmax(wrong))
        raise FormatError(
            f"document {first + number:,} has an overlap of {int(overlaps[number]):,} and {int(lengths[number]):,} "
            "tokens: an overlap is a part of its document"
        )


def report_losses(losses: list[Loss], on_loss: OnLoss | Literal["note"], format_name: str) -> tuple[Loss, ...]:
    """Return the losses; under "error" raise FormatError if there are any, under "warn" warn of each."""
    if on_loss != NOTE:
        check_word("on_loss", on_loss, OnLoss, FormatError)
    if losses and on_loss == "error":
        lost = "; nor ".join(map(str, losses))
        raise FormatError(f"{format_name} cannot hold {lost}; to continue, set on_loss='warn' or add --on-loss warn")
    if on_loss == "warn":
        for loss in losses:
            warn_user(f"{format_name} cannot hold {loss}")
    return tuple(losses)


def marks_of(batch: Documents, mark: int, place: Place) -> tuple[Longs, npt.NDArray[np.bool_]]:
    """Return how often each document has a token, int64 [documents], and whether it is at its start or end."""
    ends = np.cumsum(batch.lengths)
    marks = np.flatnonzero(batch.tokens == mark)
    counts = np.searchsorted(marks, ends) - np.searchsorted(marks, ends - batch.lengths)
    some = batch.lengths > 0
    at_place = np.zeros(len(ends), bool)
    at_place[some] = batch.tokens[(ends - 1 if place == "end" else ends - batch.lengths)[some]] == mark
    return counts, at_place


def write_array(file: IO[bytes], values: npt.NDArray[Any], dtype: npt.DTypeLike) -> None:
    """Append an array to a file as little-endian ``dtype``, in blocks if it must be converted."""
    kind = np.dtype(dtype).newbyteorder("<")
    for first in range(0, len(values), BLOCK):
        file.write(np.ascontiguousarray(values[first : first + BLOCK], kind).data)


def check_int32(batch: Documents, project: str) -> None:
    """Raise FormatError for ids that a project, which stores tokens as int32, cannot store."""
    if batch.tokens.dtype == np.uint32 and len(batch.tokens) and batch.tokens.max() > MOST_INT32:
        raise FormatError(
            f"an id is {int(batch.tokens.max()):,}, but {project}'s int32 holds up to {MOST_INT32:,}: remove it"
        )


def type_without_uint32(token_type: "np.dtype[Any]") -> "np.dtype[Any]":
    """Return the stored type of tokens for projects without uint32: uint16, or int32 after :func:`check_int32`."""
    return np.dtype(np.uint16 if token_type.itemsize == 2 else np.int32)


def write_starts(file: IO[bytes], starts: npt.NDArray[np.int64], path: Path, project: str) -> None:
    """Write the number of documents, the byte where each starts and the size of the file, all as uint32.

    Raises:
        FormatError: the file ``path`` would be larger than uint32 counts.
    """
    if starts[-1] > MOST_UINT32:
        raise FormatError(
            f"{path} would have {int(starts[-1]):,} bytes, but {project} counts up to {MOST_UINT32:,}: split it"
        )
    write_array(file, np.array([len(starts) - 1]), np.uint32)
    write_array(file, starts, np.uint32)


class NewFiles:
    """Files of a shard while they are written, under temporary names beside the final ones."""

    def __init__(self, path: Path, stem: str, besides: Mapping[str, Path], opened: ExitStack) -> None:
        self.path, self._stem, self._besides, self._opened = path, stem, besides, opened
        self.digested = dict[str, DigestedFile]()
        """The opened files, by the part of their names after the shard's stem."""

    def beside(self, suffix: str) -> Path:
        """Return the temporary path of a file."""
        return self._besides[suffix]

    def open(self, suffix: str) -> IO[bytes]:
        """Open a file for writing; it is closed when the shard is complete, or is given up."""
        file = self.digested[suffix] = self._opened.enter_context(DigestedFile(self._besides[suffix]))
        return file

    def sha256(self) -> dict[str, str]:
        """Return the SHA-256 of the files that were written in order, by path."""
        known = {suffix: file.sha256 for suffix, file in self.digested.items()}
        return {self._stem + suffix: digest for suffix, digest in known.items() if digest is not None}

    def spool(self) -> IO[bytes]:
        """Open an unnamed file in the same folder, for numbers to append after all tokens."""
        return self._opened.enter_context(tempfile.TemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}-"))


@contextmanager
def whole_shard(*files: Path, stem: str) -> Iterator[NewFiles]:
    """Open the files of a shard, tokens first, for writing; they get their names when the block ends without an error.

    The last file is the index: that of other data is removed first, and the new one is published last. A file that the
    block did not write is removed. The checksums of all files are written last. The paths of all files begin with
    ``stem``; folders with it in their path are the shard's own.
    """
    sums, folders = checksums_beside(files[0]), {file.parent for file in files}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    besides = {str(file).removeprefix(stem): partial_path(file) for file in files}
    try:
        with ExitStack() as opened:
            new = NewFiles(files[0], stem, besides, opened)
            yield new
        written = {suffix: beside for suffix, beside in besides.items() if beside.exists()}
        checksums = checksums_of(written, {suffix: file.crc32c for suffix, file in new.digested.items()})
        named = dict(zip(besides, files, strict=True))
        there = {suffix: file for suffix, file in named.items() if file.exists()}
        same = all(suffix in written and checksum(file) == checksum(written[suffix]) for suffix, file in there.items())
        # Equal bytes come from another attempt at the same task, whose index and checksums others may be reading.
        if not same or (sums.exists() and sums.read_bytes() != checksums.encode()):
            sums.unlink(missing_ok=True)
            if len(files) > 1:
                files[-1].unlink(missing_ok=True)
        for suffix, file in named.items():
            if suffix in written:
                publish(written[suffix], file)
            else:
                remove(file)
        write_text(sums, checksums)
    finally:
        for beside in besides.values():
            beside.unlink(missing_ok=True)
        own = {each for folder in folders for each in (folder, *folder.parents) if f"{each}/".startswith(f"{stem}/")}
        for folder in sorted(own, reverse=True):
            with suppress(OSError):  # not empty, as after all but a failure
                folder.rmdir()


def append_spool(file: IO[bytes], spool: IO[bytes]) -> None:
    """Append the content of a spool to a file."""
    spool.seek(0)
    shutil.copyfileobj(spool, file)


def checksums_beside(tokens: Path) -> Path:
    """Return the path of a shard's file of checksums."""
    return tokens.with_name(tokens.name + SUFFIX)


def _extras(documents: Documents) -> frozenset[str]:
    there = {OVERLAP: documents.overlaps, LOSS_MASK: documents.loss_mask}
    return frozenset(name for name, values in there.items() if values is not None)


COLUMNS = (*ORIGINS, *FOUND, N_TOKENS, TOKENS, LOSS_MASK, OVERLAP, WINDOWS, SORT_KEY)


def spilled_columns(table: pa.Table, name: str, bucket: str | None) -> pa.Table:
    """Select the columns of documents that a shard or its table of documents can store."""
    tokens = column(table, TOKENS, name)
    if {WINDOWS, OVERLAP} <= {*table.column_names}:
        raise StageError(f"documents have a column {OVERLAP!r}, so they are windows already: remove the stage windows")
    if bucket is not None:
        check_text_column(table, bucket, f"{name}.buckets")
    wanted = {*COLUMNS, *([] if bucket is None else [bucket])}
    kept = table.select([each for each in table.column_names if each in wanted])
    if N_TOKENS not in kept.column_names:
        return with_column(kept, N_TOKENS, pc.cast(pc.fill_null(pc.list_value_length(tokens), 0), pa.int64()))
    return kept


def check_text_column(table: pa.Table, name: str, setting: str) -> None:
    """Raise StageError unless the column that a setting names is a text column."""
    kind = column(table, name, setting).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise StageError(f"{setting} refers to column {name!r}, which is {kind}: choose a text column")


def token_bytes(batch: pa.RecordBatch, width: int) -> Longs:
    """Return the bytes of each document's tokens in a shard, including an end-of-text token."""
    tokens = batch.column(TOKENS)
    lengths: Longs = pc.fill_null(pc.list_value_length(tokens), 0).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    if WINDOWS in batch.schema.names:
        windows = batch.column(WINDOWS)
        sizes = pc.subtract(pc.struct_field(windows.flatten(), "stop"), pc.struct_field(windows.flatten(), "start"))
        ends = np.concatenate([[0], np.cumsum(pc.list_value_length(windows).to_numpy(zero_copy_only=False))])
        lengths = np.diff(np.concatenate([[0], np.cumsum(sizes.to_numpy(zero_copy_only=False))])[ends])
    return lengths * width


def entries_of(
    table: pa.Table,
    end_of_text: int | None,
    name: str,
    overlaps: str,
    dtype: TokenType = "auto",
    vocabulary_size: int | None = None,
) -> tuple[Documents, Longs]:
    """Cut documents into entries, and return the entries and the number of entries of each document: int64 [documents].

    Documents with a column ``windows`` are cut, and must then end with ``end_of_text``, unless it is None. With
    ``overlaps`` "loss_mask", a loss mask replaces the overlaps of windows. Types are as in :class:`DocumentStream`.
    """
    given = documents_of(table)
    # A window from another shard may continue in the next one, and then has no end of text.
    terminate: Terminate | None = None if given.overlaps is None else "never"
    holds = frozenset([LOSS_MASK, OVERLAP])
    ended = next(iter(DocumentStream(given, dtype, end_of_text, terminate, vocabulary_size, holds)))
    ended = replace(ended, others=None)
    made, counts = ended, np.ones(len(ended.lengths), np.int64)
    if WINDOWS in table.column_names:
        windows = windows_of_tokens(table, ended.lengths, name)
        counts = np.bincount(windows.documents, minlength=len(counts)).astype(np.int64)
        made = _cut(ended, windows)
    return overlaps_masked(made) if overlaps == "loss_mask" else made, counts


def _cut(documents: Documents, windows: DocumentWindows) -> Documents:
    firsts = (np.cumsum(documents.lengths) - documents.lengths)[windows.documents] + windows.starts
    lengths = windows.stops - windows.starts
    ends = firsts + lengths
    # Consecutive windows are copied as one stretch; an index for each token would take ten times as long.
    heads = np.flatnonzero(np.append(True, firsts[1:] != ends[:-1]))[: len(firsts)]
    tails = np.append(heads[1:], len(firsts))[: len(heads)] - 1
    stretches = [slice(*each) for each in zip(firsts[heads].tolist(), ends[tails].tolist(), strict=True)]
    mask = None if documents.loss_mask is None else _joined(documents.loss_mask, stretches)
    return Documents(_joined(documents.tokens, stretches), lengths, windows.overlaps, mask)


def _joined(values: npt.NDArray[Any], stretches: list[slice]) -> npt.NDArray[Any]:
    if len(stretches) == 1:
        return values[stretches[0]]
    return np.concatenate([values[:0], *(values[each] for each in stretches)])


def overlaps_masked(documents: Documents) -> Documents:
    """Replace overlaps by a loss mask; all documents of an output then have one, or none has."""
    if documents.overlaps is None:
        return documents
    mask = np.ones(len(documents.tokens), bool) if documents.loss_mask is None else documents.loss_mask.copy()
    starts, some = np.cumsum(documents.lengths) - documents.lengths, np.flatnonzero(documents.overlaps)
    for start, overlap in zip(starts[some].tolist(), documents.overlaps[some].tolist(), strict=True):
        mask[start : start + overlap] = False
    return replace(documents, overlaps=None, loss_mask=mask)
