"""What becomes of a document on its way into a shard: its columns, its end-of-text token, its windows."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import SORT_KEY, column, with_column
from longcrawl.errors import StageError
from longcrawl.formats.shards.shard import N_TOKENS, OVERLAP, TOKENS, Documents
from longcrawl.formats.shards.writing import DocumentStream, Terminate, TokenType, documents_of
from longcrawl.formats.token_rows import FOUND, ORIGINS
from longcrawl.tokens.loss_mask import LOSS_MASK
from longcrawl.tokens.windows import WINDOWS, DocumentWindows, windows_of_tokens

Longs = npt.NDArray[np.int64]
COLUMNS = (*ORIGINS, *FOUND, N_TOKENS, TOKENS, LOSS_MASK, OVERLAP, WINDOWS, SORT_KEY)


def spilled_columns(table: pa.Table, name: str, bucket: str | None) -> pa.Table:
    """Return the columns of documents that a shard or the tables beside it have a place for.

    Raises:
        StageError: no column ``tokens``, or no column of text that says the bucket; documents that are windows already
            are cut into windows again.
    """
    tokens = column(table, TOKENS, name)
    if {WINDOWS, OVERLAP} <= {*table.column_names}:
        raise StageError(f"documents have a column {OVERLAP!r}: they are windows already, leave the stage windows out")
    if bucket is not None:
        check_text_column(table, bucket, f"{name}.buckets")
    wanted = {*COLUMNS, *([] if bucket is None else [bucket])}
    kept = table.select([each for each in table.column_names if each in wanted])
    if N_TOKENS not in kept.column_names:
        return with_column(kept, N_TOKENS, pc.cast(pc.fill_null(pc.list_value_length(tokens), 0), pa.int64()))
    return kept


def check_text_column(table: pa.Table, name: str, setting: str) -> None:
    """Raise StageError unless a column that a setting names is text."""
    kind = column(table, name, setting).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise StageError(f"{setting} names the column {name!r}, which is {kind}: name one of text")


def token_bytes(batch: pa.RecordBatch, width: int) -> Longs:
    """Return the bytes that the tokens of each document take in a shard, an end-of-text token included."""
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
    """Return the entries of some documents, each ended once, and how many entries each document has: int64 [documents].

    Args:
        table: documents, with a column ``windows`` if they are to be cut.
        end_of_text: what a document ends with; None to leave documents as they are.
        name: the output, for messages.
        overlaps: "loss_mask" to say by a loss mask that the beginning of a window does not count.
        dtype: what a token is stored as; "auto" goes by ``vocabulary_size``, and without one by the table.
        vocabulary_size: an id that is not below it is an error; None for no bound.

    Raises:
        StageError: windows do not fit the tokens.
        FormatError: tokens or ids that cannot be stored.
    """
    given = documents_of(table)
    # A window that comes from another shard may go on in the next one, and then has no end.
    terminate: Terminate | None = None if given.overlaps is None else "never"
    holds = frozenset([LOSS_MASK, OVERLAP])
    ended = next(iter(DocumentStream(given, dtype, end_of_text, terminate, vocabulary_size, holds)))
    ended = replace(ended, others=None)
    if WINDOWS not in table.column_names:
        return overlaps_masked(ended) if overlaps == "loss_mask" else ended, np.ones(len(ended.lengths), np.int64)
    windows = windows_of_tokens(table, ended.lengths, name)
    counts = np.bincount(windows.documents, minlength=len(ended.lengths)).astype(np.int64)
    made = _cut(ended, windows)
    return overlaps_masked(made) if overlaps == "loss_mask" else made, counts


def _cut(documents: Documents, windows: DocumentWindows) -> Documents:
    firsts = (np.cumsum(documents.lengths) - documents.lengths)[windows.documents] + windows.starts
    lengths = windows.stops - windows.starts
    ends = firsts + lengths
    # Windows that follow each other are one stretch; a number for each token takes ten times as long.
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
    """Describe by the loss mask what overlaps say; all documents of an output then have one, or none has."""
    if documents.overlaps is None:
        return documents
    mask = np.ones(len(documents.tokens), bool) if documents.loss_mask is None else documents.loss_mask.copy()
    starts, some = np.cumsum(documents.lengths) - documents.lengths, np.flatnonzero(documents.overlaps)
    for start, overlap in zip(starts[some].tolist(), documents.overlaps[some].tolist(), strict=True):
        mask[start : start + overlap] = False
    return replace(documents, overlaps=None, loss_mask=mask)
