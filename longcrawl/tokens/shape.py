"""Stages that shape tokenized documents: minimum length, truncation, shuffle, roll, windows.

Sources: J. Buckman, "LongCrawl64: A Long-Context Natural-Language Dataset", 2024, "How the dataset was constructed";
GPT-Simple's data pipeline, "Document windowing". The first tokens of a window, its *overlap*, are only context: they
are also in the window before, so they are excluded from the loss, and each token of a document counts once.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core import stages
from longcrawl.core.places import make_places
from longcrawl.core.stages import Rewrite, column, document_ids, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.tokens.loss_mask import LOSS_MASK, loss_mask_of_tokens
from longcrawl.tokens.plan import checked_lengths

Longs = npt.NDArray[np.int64]
WINDOWS = "windows"
WINDOWS_TYPE = pa.list_(pa.struct([(name, pa.int64()) for name in ("start", "stop", "overlap")]))


@dataclass(frozen=True, eq=False)
class DocumentWindows:
    """Windows of some documents, in the order of the documents; all arrays are int64 [windows]."""

    documents: Longs
    starts: Longs  # first token of each window within its document
    stops: Longs  # one past its last
    overlaps: Longs  # tokens shared with the window before; 0 for the first window of a document

    def __len__(self) -> int:
        return len(self.starts)


@stage
class Windows(Rewrite):
    """Add the column ``windows``, by which outputs cut documents of more than ``max_length`` tokens.

    There is still one row per document, so held-out documents are held out whole, and the ledger counts documents. The
    outputs ``gpt-simple``, ``datatrove`` and ``megatron`` write the windows. ``windows`` is a list of ``start``,
    ``stop`` (exclusive) and ``overlap``, in tokens (int64).

    A window has ``max_length`` tokens, and the last one of a document at least ``overlap_size`` + 1. These include the
    end-of-text token. Without ``end_of_text`` every document gets one more token, which outputs add; with the id, only
    documents that do not end with it do. Outputs reject windows that do not match the tokens they write.

    >>> import pyarrow as pa
    >>> table = pa.table({"tokens": pa.array([[1, 2, 3, 4, 5]], pa.list_(pa.uint16()))})
    >>> [list(window.values()) for window in Windows(4, 1)(table)["windows"][0].as_py()]
    [[0, 4, 0], [3, 6, 1]]

    ``overlap_probability`` is the share of documents with overlapping windows, chosen by a keyed hash of their ids.
    GPT-Simple chooses by a hash that differs in every process.

    Raises:
        StageError: ``max_length`` is less than 1, ``overlap_size`` is negative or more than half of it,
            ``overlap_probability`` is not a probability, or a required column ``tokens`` or ``id`` is missing.
    """

    max_length: int = 2048
    overlap_size: int = 0
    end_of_text: int | None = None
    overlap_probability: float = 1.0
    omitted_defaults: ClassVar[tuple[str, ...]] = ("overlap_probability",)
    rewrites = "tokens"
    looks_at = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sizes(self.max_length, self.overlap_size, "windows.")
        if self.end_of_text is not None and self.end_of_text < 0:
            raise StageError(f"windows.end_of_text must be a token id, 0 or more, got {self.end_of_text}")
        if not 0 <= self.overlap_probability <= 1:
            raise StageError(f"windows.overlap_probability must be from 0 to 1, got {self.overlap_probability}")

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Return the table with the column ``windows``."""
        tokens = column(table, "tokens", self.name)
        lengths = _lengths(tokens).to_numpy()
        ended = lengths + 1
        if self.end_of_text is not None:
            ends, some = np.cumsum(lengths), lengths > 0
            values = tokens.flatten().to_numpy(zero_copy_only=False)
            ended[some] -= values[ends[some] - 1] == self.end_of_text
        made = document_windows(ended, self.max_length, self._overlaps(table))
        fields = [pa.array(each) for each in (made.starts, made.stops, made.overlaps)]
        structs = pa.StructArray.from_arrays(fields, fields=list(WINDOWS_TYPE.value_type))
        offsets = np.searchsorted(made.documents, np.arange(len(lengths) + 1))
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)
        return with_column(table, WINDOWS, lists)

    def _overlaps(self, table: pa.Table) -> int | Longs:
        if self.overlap_probability == 1 or not self.overlap_size:
            return self.overlap_size
        hashes = keyed_hash(document_ids(table, self.name).to_pylist(), "overlap", 0)
        return np.where(hashes * 2.0**-64 < self.overlap_probability, self.overlap_size, 0)


def document_windows(lengths: Any, max_length: int, overlap_size: int | Longs = 0) -> DocumentWindows:
    """Cut documents into windows, given only their lengths, including an end-of-text token that each has or will get.

    Window k starts at token k * (``max_length`` - ``overlap_size``), and the first window that reaches the end of its
    document is the last. A document of 0 tokens has no window. ``overlap_size``, one number or int64 [documents], is at
    most half of ``max_length``, or StageError is raised.
    """
    checked = checked_lengths(lengths)
    sizes = np.asarray(overlap_size, np.int64)
    for size in (sizes.min(initial=0), sizes.max(initial=0)):
        _check_sizes(max_length, int(size), "")
    overlap = np.broadcast_to(sizes, len(checked))
    stride = max_length - overlap
    counts = np.where(checked > max_length, -(-(checked - max_length) // stride) + 1, np.minimum(checked, 1))
    documents = np.repeat(np.arange(len(checked), dtype=np.int64), counts)
    within = np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = within * stride[documents]
    stops = np.minimum(starts + max_length, checked[documents])
    return DocumentWindows(documents, starts, stops, np.where(within > 0, overlap[documents], 0))


def windows_of_tokens(table: pa.Table, lengths: Longs, needed_by: str) -> DocumentWindows:
    """Read the column ``windows``; StageError if it does not cover documents with these numbers of tokens."""
    lists = column(table, WINDOWS, needed_by)
    if lists.type != WINDOWS_TYPE and not _is_castable(lists.type):
        raise StageError(f"the column {WINDOWS!r} is {lists.type}, but must be {WINDOWS_TYPE}: make it with windows")
    lists = pc.cast(lists, WINDOWS_TYPE)
    counts, values = _lengths(lists).to_numpy(), lists.flatten()
    starts, stops, overlaps = (values.field(name).to_numpy() for name in ("start", "stop", "overlap"))
    documents = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    found = DocumentWindows(documents, starts, stops, overlaps)
    wrong = _wrong_documents(found, counts, lengths)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise StageError(
            f"the windows of row {row:,} do not cover its {lengths[row]:,} tokens, end of text included: put the stage "
            "windows after all stages that change tokens, and set windows.end_of_text if documents already end with it"
        )
    return found


def _wrong_documents(windows: DocumentWindows, counts: Longs, lengths: Longs) -> npt.NDArray[np.bool_]:
    wrong: npt.NDArray[np.bool_] = (counts == 0) != (lengths == 0)
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    before = np.concatenate([[0], windows.stops[:-1]])[: len(windows)]
    before[firsts] = 0
    bad = windows.starts + windows.overlaps != before
    bad |= (windows.overlaps < 0) | (windows.starts < 0) | (windows.stops - windows.starts <= windows.overlaps)
    bad[firsts] |= windows.overlaps[firsts] != 0
    lasts = (np.cumsum(counts) - 1)[counts > 0]
    bad[lasts] |= windows.stops[lasts] != lengths[counts > 0]
    wrong[windows.documents[bad]] = True
    return wrong


def _is_castable(kind: pa.DataType) -> bool:
    wanted = WINDOWS_TYPE.value_type
    return (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        and pa.types.is_struct(kind.value_type)
        and [field.name for field in kind.value_type] == [field.name for field in wanted]
        and all(pa.types.is_integer(field.type) for field in kind.value_type)
    )


def _check_sizes(max_length: int, overlap_size: int, where: str) -> None:
    if max_length < 1:
        raise StageError(f"{where}max_length must be a number of tokens, 1 or more, got {max_length}")
    if not 0 <= 2 * overlap_size <= max_length:
        raise StageError(
            f"{where}overlap_size must be from 0 to half of max_length, {max_length // 2:,} here, got {overlap_size:,}"
        )


@stages.stage
class MinTokens(stages.Judge):
    """Keep documents of at least ``n`` tokens; LongCrawl64 requires 65,536.

    >>> import pyarrow as pa
    >>> table = pa.table({"tokens": pa.array([[1, 2, 3], [1]], pa.list_(pa.uint16()))})
    >>> MinTokens(2).judge(table).to_pylist()[1]
    {'rule': 'min_tokens', 'value': 1.0, 'threshold': 2.0}
    """

    n: int = 65_536
    looks_at = "tokens"

    def checks(self, table: pa.Table) -> list[stages.Check]:
        """Compare the length of ``tokens`` with ``n``."""
        lengths = _lengths(stages.column(table, "tokens", self.name))
        return [stages.Check("min_tokens", lengths, pc.greater_equal(lengths, self.n), self.n, "at_least")]


@stages.stage
class Truncate(stages.Rewrite):
    """Cut each document, and its ``loss_mask``, to its first ``n`` tokens; ``n_tokens`` keeps the full count."""

    n: int = 65_536
    rewrites = "tokens"
    looks_at = "tokens"
    code_version: ClassVar[str] = "2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < 0:
            raise StageError(f"truncate.n must not be negative, got {self.n}")

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Cut ``tokens``, list<uint16|uint32>, and ``loss_mask``; the other columns are unchanged."""
        return self.trace(table).documents

    def trace(self, table: pa.Table) -> stages.Edited:
        """Cut the tokens like ``rewrite``, and list the tokens removed from each longer document."""
        lengths, columns = _token_columns(table, self.name)
        kept, done = np.minimum(lengths, self.n), table
        starts = np.cumsum(lengths) - lengths
        for name, values in columns.items():
            flat = values.flatten().to_numpy(zero_copy_only=False)
            heads = [flat[:0], *(flat[start : start + n] for start, n in zip(starts, kept, strict=True))]
            done = stages.with_column(done, name, _lists(np.concatenate(heads), kept, values.type))
        rows = np.flatnonzero(lengths > kept)
        return stages.Edited(done, (), make_places(rows, "cut", np.stack([kept, lengths], axis=1)[rows], unit="tokens"))


@stages.stage
class Shuffle(stages.Survey):
    """Order documents by a keyed hash of their ids, whatever the number of workers, batch size and input order."""

    seed: int = 0
    orders = True

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``sort_key`` (uint64)."""
        ids = stages.document_ids(table, self.name)
        keys = keyed_hash(ids.to_pylist(), "shuffle", self.seed)
        return pa.table({"id": ids, stages.SORT_KEY: pa.array(keys, pa.uint64())})

    def resolve(self, sketches: pa.Table) -> stages.Order:
        """Sort by key, then by id; StageError if two documents have one id."""
        stages.reject_duplicate_ids(sketches["id"], self.name)
        ordered = pc.sort_indices(sketches, sort_keys=[(stages.SORT_KEY, "ascending"), ("id", "ascending")])
        return stages.Order(ordered.to_numpy().astype(np.int64))


@stages.stage
class Roll(stages.Rewrite):
    """Roll each document by its own amount, like ``numpy.roll``: [12, 5, 7, 4, 21] by 3 is [7, 4, 21, 12, 5].

    The amount is uniform over the document's length and depends only on ``seed`` and the id. The column ``roll``
    (int64) has it, so that a row can be rolled back. ``loss_mask``, if present, is rolled with the tokens.
    """

    seed: int = 0
    rewrites = "tokens"
    looks_at = "tokens"

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Return the rolled ``tokens`` and ``roll``."""
        lengths, columns = _token_columns(table, self.name)
        amounts = roll_amounts(stages.document_ids(table, self.name).to_pylist(), lengths, self.seed)
        done = table
        for name, values in columns.items():
            rolled = _rolled(values.flatten().to_numpy(zero_copy_only=False), lengths, amounts)
            done = stages.with_column(done, name, _lists(rolled, lengths, values.type))
        kept = done.drop_columns([name for name in done.column_names if name == "roll"])
        return kept.append_column("roll", pa.array(amounts, pa.int64()))


def roll_amounts(ids: list[str], lengths: Longs, seed: int) -> Longs:
    """Return the amount by which each document is rolled: int64, from 0 to its length - 1 (0 for an empty one)."""
    amounts: Longs = (keyed_hash(ids, "roll", seed) % np.maximum(lengths, 1).astype(np.uint64)).astype(np.int64)
    return amounts


def _rolled(values: npt.NDArray[Any], lengths: Longs, amounts: Longs) -> npt.NDArray[Any]:
    rolled = np.empty_like(values)
    start = 0
    for length, amount in zip(lengths.tolist(), amounts.tolist(), strict=True):
        stop = start + length
        rolled[start : start + amount] = values[stop - amount : stop]
        rolled[start + amount : stop] = values[start : stop - amount]
        start = stop
    return rolled


def _lengths(tokens: pa.Array) -> pa.Array:
    return pc.cast(pc.fill_null(pc.list_value_length(tokens), 0), pa.int64())


def _token_columns(table: pa.Table, needed_by: str) -> tuple[Longs, dict[str, pa.Array]]:
    tokens = stages.column(table, "tokens", needed_by)
    lengths = _lengths(tokens).to_numpy()
    masks = {LOSS_MASK: loss_mask_of_tokens(table, lengths, needed_by)} if LOSS_MASK in table.column_names else {}
    return lengths, {"tokens": tokens, **masks}


def _lists(values: npt.NDArray[Any], lengths: Longs, like: pa.DataType) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = pa.array(values, like.value_type)
    if pa.types.is_large_list(like):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
