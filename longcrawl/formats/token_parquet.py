"""Tokens in parquet: a row per document, as any reader of parquet takes it.

Specification
-------------
``NAME.parquet`` has the columns

* ``tokens``: list of uint16 or uint32, no nulls;
* ``n_tokens``: int64, the length of the list;
* ``overlap``, if any: uint32, with how many tokens of the row before it a row begins;
* ``loss_mask``, if any: list of bool, as long as ``tokens``, false where no loss is to be computed;
* whatever else the documents have: ``id``, ``url`` …

and, in the metadata of its schema, the key ``longcrawl`` with a JSON object of ``end_of_text``, ``vocabulary_size`` and
``tokenizer``, each only where it is known. Pages are compressed with zstd; a row group has some four million tokens.

Files of others are read, too: any column of lists of integers, named by ``column`` (often ``input_ids``), and without
``n_tokens``. Parquet is compressed and cannot be mapped to memory, so opening a file decodes it into a temporary one
without a name, which is mapped. :func:`read` goes through it row group by row group instead.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.errors import CorruptionError, FormatError, StageError
from longcrawl.formats._token_shard_checks import (
    Check,
    Opened,
    check_ids,
    check_word,
    checked,
    file_bytes,
    first_checksums,
    id_problems,
    local_path,
    verification,
)
from longcrawl.formats._token_shard_writing import (
    OWN,
    DocumentBatch,
    DocumentStream,
    OnLoss,
    Terminate,
    TokenType,
    WrittenShard,
    documents_of,
    whole_shard,
    write_array,
    written_files,
)
from longcrawl.formats.token_shard import N_TOKENS, OVERLAP, TOKENS, Documents, TokenShard
from longcrawl.results import Verification
from longcrawl.stored_tables import table_writer
from longcrawl.structured import load_json
from longcrawl.tokens.loss_mask import LOSS_MASK

__all__ = ["NAME", "SUFFIX", "Facts", "facts", "has_overlaps", "open", "read", "shard_files", "verify", "write"]

NAME = "token-parquet"
SUFFIX = ".parquet"
KEY = b"longcrawl"
FACTS = {"end_of_text": int, "vocabulary_size": int, "tokenizer": str}
GROUP_TOKENS = 1 << 22
ROWS = 1_024
"""Rows that are read at a time."""


def write(
    documents: Iterable[DocumentBatch] | DocumentBatch,
    path: "str | Path",
    *,
    dtype: TokenType = "auto",
    end_of_text: int | None = None,
    terminate: Terminate | None = None,
    vocabulary_size: int | None = None,
    tokenizer: str | None = None,
    on_loss: OnLoss = "error",  # noqa: ARG001  # every format's writer takes it; nothing is lost here
) -> WrittenShard:
    """Write a shard; documents are taken as they come, and memory holds a row group and one table at a time.

    Row groups do not depend on how documents are divided into tables.

    Args:
        documents: tables, or one, with a column ``tokens``; all their columns are written.
        path: ends in ``.parquet``.
        dtype: what a token is stored as; "auto" goes by ``vocabulary_size``, and where that is not named by the
            first table.
        end_of_text: the id to end documents with; None leaves documents as they are.
        terminate: whether it is added where it is "missing", "always", or "never"; None for the first if it is named.
        vocabulary_size: an id that is not below it is an error.
        tokenizer: its name, for the file's metadata.
        on_loss: nothing is lost in this format.

    Raises:
        FormatError: tokens cannot be stored, or tables have different columns; no file is changed.
        StageError: no column ``tokens``, or a loss mask that does not fit it.

    """
    (file,) = shard_files(path)
    holds = frozenset([OVERLAP, LOSS_MASK])
    stream = DocumentStream(documents, dtype, end_of_text, terminate, vocabulary_size, holds)
    facts = {"end_of_text": end_of_text, "vocabulary_size": vocabulary_size, "tokenizer": tokenizer}
    told = json.dumps({name: value for name, value in facts.items() if value is not None})
    tables = (batch.table() for batch in stream)
    nothing = Documents(np.empty(0, stream.token_type), np.empty(0, np.int64)).table()
    with whole_shard(file) as (beside,):
        first = next(tables, nothing)
        schema = first.schema.with_metadata({KEY: told.encode()})
        with table_writer(beside, schema, compression="zstd") as writer:
            for group in _row_groups(chain([first], tables), schema):
                writer.write_table(group, row_group_size=max(group.num_rows, 1))
    return WrittenShard(str(file), written_files(file), stream.documents, stream.tokens)


def open(  # noqa: A001  # token_parquet.open reads as it should; files are opened by Path.open here
    path: "str | Path",
    *,
    column: str = TOKENS,
    end_of_text: int | None = None,
    vocabulary_size: int | None = None,
    check: Check = "everything",
) -> TokenShard:
    """Open a shard: decode it into a temporary file, which takes as much room on disk as the tokens.

    Args:
        path: ends in ``.parquet``.
        column: of tokens.
        end_of_text: the id that documents end with; None for what the file says.
        vocabulary_size: every id is compared with it under "everything"; None for what the file says.
        check: what is looked at; all but the ids are in any case.

    Raises:
        FormatError: there is no such file, or no column of tokens in it.
        CorruptionError: it cannot be decoded, or contradicts itself or the settings; the message names file and row.

    """
    return checked(_open(path, column, end_of_text, vocabulary_size, check))


def verify(
    path: "str | Path",
    *,
    column: str = TOKENS,
    end_of_text: int | None = None,
    vocabulary_size: int | None = None,
) -> Verification:
    """Look at everything, and say all that is wrong; see :func:`open`.

    Raises:
        FormatError: there is no such file, or no column of tokens in it.

    """
    return verification(path, lambda: _open(path, column, end_of_text, vocabulary_size, "everything"))


def read(path: "str | Path", *, column: str = TOKENS) -> Iterator[pa.Table]:
    """Read a shard in tables of some rows; ``column`` is called ``tokens`` there, and is uint16 or uint32.

    Raises:
        FormatError: there is no such file, or no column of tokens in it.
        CorruptionError: it cannot be decoded, or contradicts itself; the message names file and row.

    """
    (file,) = shard_files(path)
    first = 0
    with _opened(file) as opened:
        kind = _token_type(opened.schema_arrow, column, file)
        try:
            for batch in opened.iter_batches(ROWS, use_threads=False):
                yield _table(pa.Table.from_batches([batch]), column, kind, f"{file}, rows from {first:,} on")
                first += batch.num_rows
        except (OSError, UnicodeDecodeError, pa.ArrowException) as broken:
            raise CorruptionError(
                f"{file} cannot be read after row {first:,} ({str(broken).splitlines()[0]}): fetch it again, or write "
                "it anew"
            ) from broken


def has_overlaps(path: "str | Path") -> bool:
    """Say whether any document overlaps with the one before it; no tokens are read.

    Raises:
        FormatError: there is no such file.
        CorruptionError: it cannot be decoded.

    """
    (file,) = shard_files(path)
    with _opened(file) as opened:
        if OVERLAP not in opened.schema_arrow.names:
            return False
        return bool(pc.any(pc.not_equal(opened.read([OVERLAP])[OVERLAP], 0)).as_py())


def shard_files(path: "str | Path") -> tuple[Path]:
    """Name the file of a shard.

    Raises:
        FormatError: the path does not end in ``.parquet``.

    """
    file = local_path(path)
    if file.suffix != SUFFIX:
        raise FormatError(f"{path} is no name of a parquet file: it must end in {SUFFIX}")
    return (file,)


@dataclass(frozen=True)
class Facts:
    """What a file says of its tokens, and the columns in it that no shard holds."""

    end_of_text: int | None
    vocabulary_size: int | None
    tokenizer: str | None
    left_out: tuple[str, ...]


def facts(
    path: "str | Path", column: str = TOKENS, end_of_text: int | None = None, vocabulary_size: int | None = None
) -> Facts:
    """Read what a file says of its tokens, and add what is known besides.

    Raises:
        FormatError: there is no such file, or no column of tokens in it, or it says otherwise.
        CorruptionError: its metadata cannot be read.

    """
    (file,) = shard_files(path)
    with _opened(file) as opened:
        schema = opened.schema_arrow
    _token_type(schema, column, file)
    known = _told(schema, file)
    others = [name for name in schema.names if name not in OWN and name != column]
    left_out = (f"the column{'s' * (len(others) > 1)} {', '.join(others)}",) if others else ()
    known["end_of_text"] = _agreed(file, "end_of_text", known["end_of_text"], end_of_text)
    known["vocabulary_size"] = _agreed(file, "vocabulary_size", known["vocabulary_size"], vocabulary_size)
    check_ids(known["end_of_text"], known["vocabulary_size"])
    return Facts(**known, left_out=left_out)


def _open(
    path: "str | Path", column: str, end_of_text: int | None, vocabulary_size: int | None, check: Check
) -> Opened:
    check_word("check", check, Check)
    (file,) = shard_files(path)
    told = facts(file, column, end_of_text, vocabulary_size)
    known = {"end_of_text": told.end_of_text, "vocabulary_size": told.vocabulary_size}
    documents = _decoded(read(file, column=column), _width(file, column), file)
    shard = TokenShard(
        str(file),
        NAME,
        documents.tokens,
        np.cumsum(documents.lengths),
        overlaps=documents.overlaps,
        loss_mask=documents.loss_mask,
        end_of_text=told.end_of_text,
        vocabulary_size=told.vocabulary_size,
        tokenizer=told.tokenizer,
        left_out=told.left_out,
        opened_by=(open, {"column": column, **known}),
    )
    return shard, id_problems(shard, file, None) if check == "everything" else iter(())


def _told(schema: pa.Schema, file: Path) -> dict[str, Any]:
    try:
        told = load_json((schema.metadata or {}).get(KEY, b"{}"))
        known = {name: told.get(name) for name in FACTS}
    except (ValueError, AttributeError) as broken:
        raise CorruptionError(
            f"{file} has metadata under 'longcrawl' that is no JSON object: write it anew"
        ) from broken
    for name, value in known.items():
        if value is not None and type(value) is not FACTS[name]:
            raise CorruptionError(f"{file} says under 'longcrawl' that its {name} is {value!r}: write it anew")
    return known


def _opened(file: Path) -> pq.ParquetFile:
    file_bytes(file)
    checksums = first_checksums(file)
    if checksums is not None:
        checksums.check()
    try:
        return pq.ParquetFile(file, page_checksum_verification=True)
    except (OSError, ValueError, pa.ArrowException) as broken:
        raise CorruptionError(
            f"{file} is no parquet file, or is cut ({str(broken).splitlines()[0]}): fetch it again, or write it anew"
        ) from broken


def _token_type(schema: pa.Schema, column: str, file: Path) -> pa.DataType:
    """Give the type of a token: uint16 where the file has that, uint32 for all other integers."""
    if column not in schema.names:
        raise FormatError(f"{file} has no column {column!r}, it has {', '.join(schema.names)}: name one as column")
    value = getattr(schema.field(column).type, "value_type", None)
    if value is None or not pa.types.is_integer(value):
        kind = schema.field(column).type
        raise FormatError(
            f"{file} has no lists of integers in its column {column!r} but {kind}: name another as column"
        )
    return pa.uint16() if value in (pa.uint16(), pa.uint8()) else pa.uint32()


def _table(table: pa.Table, column: str, kind: pa.DataType, where: str) -> pa.Table:
    """Give a batch with its tokens first, under their own name and in their own type."""
    lists = pc.cast(table[column], pa.list_(kind))
    if N_TOKENS in table.column_names:
        differ = pc.not_equal(pc.cast(table[N_TOKENS], pa.int64()), pc.cast(pc.list_value_length(lists), pa.int64()))
        row = pc.index(differ, True).as_py()
        if row >= 0:
            raise CorruptionError(
                f"{where}: row {row:,} of these says that it has {table[N_TOKENS][row].as_py():,} tokens, it has "
                f"{len(lists[row]):,}: write the shard anew"
            )
    others = {name: table[name] for name in table.column_names if name not in (column, TOKENS)}
    return pa.table({TOKENS: lists} | others)


def _decoded(tables: Iterable[pa.Table], dtype: "np.dtype[Any]", file: Path) -> Documents:
    """Put all documents into temporary files and map these to memory."""
    lengths, overlaps = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    with tempfile.TemporaryFile() as ids, tempfile.TemporaryFile() as flags:
        for table in tables:
            block = _documents(table, file)
            write_array(ids, block.tokens, dtype)
            lengths.append(block.lengths)
            if block.overlaps is not None:
                overlaps.append(block.overlaps)
            if block.loss_mask is not None:
                write_array(flags, block.loss_mask, np.uint8)
        tokens, mask = _mapped(ids, dtype), _mapped(flags, np.dtype("uint8"))
    counts, shared = np.concatenate(lengths), np.concatenate(overlaps)
    return Documents(
        tokens,
        counts,
        shared if len(shared) == len(counts) and len(counts) else None,
        mask.view(np.bool_) if len(mask) == len(tokens) and len(mask) else None,
    )


def _documents(table: pa.Table, file: Path) -> Documents:
    try:
        return documents_of(table)
    except (FormatError, StageError) as broken:
        raise CorruptionError(f"{file} contradicts itself: {broken}") from broken


def _mapped(file: IO[bytes], dtype: "np.dtype[Any]") -> npt.NDArray[Any]:
    file.flush()
    count = file.tell() // dtype.itemsize
    return np.memmap(file, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)


def _width(file: Path, column: str) -> "np.dtype[Any]":
    with _opened(file) as opened:
        return np.dtype("uint16" if _token_type(opened.schema_arrow, column, file) == pa.uint16() else "uint32")


def _agreed(file: Path, name: str, told: int | None, given: int | None) -> int | None:
    if None not in (told, given) and told != given:
        raise FormatError(f"{file} says that its {name} is {told:,}, not {given:,}: leave {name} out")
    return told if given is None else given


def _row_groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Regroup documents into tables of GROUP_TOKENS tokens, or one document."""
    held: list[pa.Table] = []
    room = GROUP_TOKENS
    for table in tables:
        if not table.schema.equals(schema):
            raise FormatError(
                f"tables of documents have different columns, {table.schema.names} after {schema.names}, or types: "
                "give all the same"
            )
        ends = np.cumsum(table[N_TOKENS].to_numpy())
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            stop = int(np.searchsorted(ends, before + room, "right"))
            if stop <= first and held:
                yield pa.concat_tables(held)
                held, room = [], GROUP_TOKENS
                continue
            stop = max(stop, first + 1)
            held.append(table.slice(first, stop - first))
            room -= int(ends[stop - 1]) - before
            first = stop
    yield pa.concat_tables(held or [schema.empty_table()])
