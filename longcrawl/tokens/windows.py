"""Windows of long documents: pieces of at most one length, each beginning with the end of the one before it.

A window's first tokens, its *overlap*, are context alone: the window before it had them, so no loss is due on them, and
each token of a document counts once.

Source: GPT-Simple's data pipeline, "Document windowing". GPT-Simple 0.1.2 also makes windows that are all overlap, with
a second end-of-document token, and windows of one token more than ``max_length``; here there are none of these.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.composition.plan import checked_lengths
from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.stages import Rewrite, column, document_ids, stage, with_column
from longcrawl.errors import StageError

Longs = npt.NDArray[np.int64]

WINDOWS = "windows"
"""The column beside ``tokens`` that says which windows a document is written as."""

WINDOWS_TYPE = pa.list_(pa.struct([(name, pa.int64()) for name in ("start", "stop", "overlap")]))


@dataclass(frozen=True, eq=False)
class DocumentWindows:
    """The windows of some documents, document by document; all arrays are int64 [windows]."""

    documents: Longs
    """The number of the document that each is of."""
    starts: Longs
    """Its first token within the document."""
    stops: Longs
    """The token after its last one."""
    overlaps: Longs
    """With how many tokens of the window before it begins; 0 for the first of a document."""

    def __len__(self) -> int:
        return len(self.starts)


@stage
class Windows(Rewrite):
    """Describe by the column ``windows`` how outputs cut documents of more than ``max_length`` tokens.

    The rows stay what they are, one for each document, so that ids are unique, held-out documents are held out whole
    and the ledger speaks of documents; the outputs ``gpt-simple``, ``datatrove`` and ``megatron`` write the windows.
    ``windows`` is a list of ``start``, ``stop`` (exclusive) and ``overlap``, in tokens (int64).

    A window has ``max_length`` tokens, the last one of a document at least ``overlap_size`` + 1. The end-of-text token
    is counted in: without ``end_of_text`` every document gets one more token, which outputs add; with the id, those
    that do not end with it do. Outputs refuse windows that do not fit what they write.

    >>> import pyarrow as pa
    >>> table = pa.table({"tokens": pa.array([[1, 2, 3, 4, 5]], pa.list_(pa.uint16()))})
    >>> [list(window.values()) for window in Windows(4, 1)(table)["windows"][0].as_py()]
    [[0, 4, 0], [3, 6, 1]]

    ``overlap_probability`` is the share of documents whose windows overlap, chosen by a keyed hash of their ids; the
    windows of the others share no token. GPT-Simple draws by a hash that differs in every process.

    Raises:
        StageError: ``max_length`` is less than 1, ``overlap_size`` is negative or more than half of it,
            ``overlap_probability`` is no probability, or there is no column ``tokens``, or ``id`` where it is needed.
    """

    max_length: int = 2048
    overlap_size: int = 0
    end_of_text: int | None = None
    overlap_probability: float = 1.0
    rewrites = "tokens"
    looks_at = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sizes(self.max_length, self.overlap_size, "windows.")
        if self.end_of_text is not None and self.end_of_text < 0:
            raise StageError(f"windows.end_of_text is a token id, 0 or more, got {self.end_of_text}")
        if not 0 <= self.overlap_probability <= 1:
            raise StageError(f"windows.overlap_probability is from 0 to 1, got {self.overlap_probability}")

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values; ``overlap_probability`` only if it is not 1."""
        left_out = {"overlap_probability"} if self.overlap_probability == 1 else set()
        return {name: value for name, value in super().settings().items() if name not in left_out}

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Return the table with the column ``windows``."""
        tokens = column(table, "tokens", self.name)
        lengths = pc.fill_null(pc.list_value_length(tokens), 0).to_numpy().astype(np.int64)
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
        """Return the tokens that windows share, of each document or of all."""
        if self.overlap_probability == 1 or not self.overlap_size:
            return self.overlap_size
        hashes = keyed_hash(document_ids(table, self.name).to_pylist(), "overlap", 0)
        return np.where(hashes * 2.0**-64 < self.overlap_probability, self.overlap_size, 0)


def document_windows(lengths: Any, max_length: int, overlap_size: int | Longs = 0) -> DocumentWindows:
    """Cut documents into windows, looking at nothing but their lengths.

    Window k starts at token k * (``max_length`` - ``overlap_size``); the first that reaches the end of its document is
    the last. So each token is in one window outside of its overlap, and no window is all overlap.

    Args:
        lengths: whole numbers [documents]: tokens of each, with an end-of-text token that it has or is to get. A
            document of 0 tokens has no window.
        max_length: tokens of a window at most.
        overlap_size: tokens that a window shares with the one before it, at most half of ``max_length``; of all
            documents, or int64 [documents].

    Raises:
        StageError: for sizes other than that.
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
    """Read the column ``windows`` of documents that have so many tokens.

    Raises:
        StageError: it is not a column of windows, or they do not cover a document from its first token to its last.
    """
    lists = column(table, WINDOWS, needed_by)
    if lists.type != WINDOWS_TYPE and not _is_castable(lists.type):
        raise StageError(f"the column {WINDOWS!r} is {lists.type}, it must be {WINDOWS_TYPE}: make it with windows")
    lists = pc.cast(lists, WINDOWS_TYPE)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    values = lists.flatten()
    starts, stops, overlaps = (values.field(name).to_numpy() for name in ("start", "stop", "overlap"))
    documents = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    found = DocumentWindows(documents, starts, stops, overlaps)
    wrong = _wrong_documents(found, counts, lengths)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise StageError(
            f"the windows of row {row:,} do not cover its {lengths[row]:,} tokens, end of text included: put the stage "
            "windows after all that changes tokens, and set windows.end_of_text where documents end with it already"
        )
    return found


def _wrong_documents(windows: DocumentWindows, counts: Longs, lengths: Longs) -> npt.NDArray[np.bool_]:
    """Return the documents whose windows have gaps, are empty, overlap throughout, or do not end as they do."""
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
        raise StageError(f"{where}max_length is a number of tokens, 1 or more, got {max_length}")
    if not 0 <= 2 * overlap_size <= max_length:
        raise StageError(
            f"{where}overlap_size is from 0 to half of max_length, {max_length // 2:,} here, got {overlap_size:,}"
        )
