"""Tokens in parquet files with a row per document, readable by any parquet library.

Specification
-------------
``NAME.parquet`` has the columns

* ``tokens``: list of uint16 or uint32, no nulls;
* ``n_tokens``: int64, the length of the list;
* ``overlap``, optional: uint32, the number of tokens that a row repeats from the end of the row before;
* ``loss_mask``, optional: list of bool, as long as ``tokens``, false for tokens without a loss;
* all other columns of the documents: ``id``, ``url`` …

and, in the metadata of its schema, the key ``longcrawl`` with a JSON object of those of ``end_of_text``,
``vocabulary_size`` and ``tokenizer`` that are known. Pages are compressed with zstd; a row group has some four million
tokens.

Files of other projects are also read: any column of lists of integers, named by ``column`` (often ``input_ids``), and
without ``n_tokens``. Parquet is compressed and cannot be memory-mapped, so opening a file decodes it into an unnamed
temporary file, which is mapped. :func:`read` reads it row group by row group instead.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.errors import CorruptionError, FormatError, StageError
from longcrawl.formats.shards.base import Opening, Parsed, Reading, ShardFormat, shard_format
from longcrawl.formats.shards.shard import (
    N_TOKENS,
    OVERLAP,
    TOKENS,
    Documents,
    check_ids,
    file_bytes,
    map_opened,
    named_columns,
    stem_of,
)
from longcrawl.formats.shards.writing import OWN, DocumentStream, NewFiles, documents_of, write_array
from longcrawl.io.block_checksums import read_checksums
from longcrawl.io.stored_tables import table_writer
from longcrawl.io.structured import load_json
from longcrawl.tokens.loss_mask import LOSS_MASK

NAME = "token-parquet"
SUFFIX = ".parquet"
KEY = b"longcrawl"
FACTS = {"end_of_text": int, "vocabulary_size": int, "tokenizer": str}
GROUP_TOKENS = 1 << 22
ROWS = 1_024


@shard_format(NAME)
class TokenParquet(ShardFormat):
    """Token shards in parquet; a path ends in ``.parquet``.

    While a shard is written, memory holds a row group and one table. Opening one decodes it into a temporary file,
    which needs as much disk space as the tokens.
    """

    suffix = SUFFIX
    holds = frozenset([OVERLAP, LOSS_MASK])
    records = frozenset(FACTS)

    @classmethod
    def columns(cls, names: Iterable[str]) -> list[str]:
        """Return all names."""
        return [*names]

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles, *, tokenizer: str | None = None) -> None:
        """Write all columns, in row groups that do not depend on how documents are divided into tables."""
        known = {"end_of_text": stream.end_of_text, "vocabulary_size": stream.vocabulary_size, "tokenizer": tokenizer}
        recorded = json.dumps({name: value for name, value in known.items() if value is not None})
        tables = (batch.table() for batch in stream)
        nothing = Documents(np.empty(0, stream.token_type), np.empty(0, np.int64)).table()
        first = next(tables, nothing)
        schema = first.schema.with_metadata({KEY: recorded.encode()})
        with table_writer(files.beside(SUFFIX), schema, compression="zstd") as writer:
            for group in row_groups(chain([first], tables), schema):
                writer.write_table(group, row_group_size=max(group.num_rows, 1))

    @classmethod
    def decode(cls, opening: Opening, *, column: str = TOKENS) -> Parsed:
        """Decode all rows, with tokens from ``column``; everything except ids is checked, whatever ``check`` is."""
        (file,) = opening.files
        opening.compare(0)
        with _opened(file) as opened:
            schema = opened.schema_arrow
        known = _facts(schema, file, column, opening.end_of_text, opening.vocabulary_size)
        documents = _decoded(_rows(file, column), _token_type(schema, column, file), file)
        return Parsed(
            documents.tokens,
            np.cumsum(documents.lengths),
            documents.overlaps,
            documents.loss_mask,
            first_byte=None,
            settings={"column": column},
            **known,
        )

    @classmethod
    def reading(cls, path: "str | Path", settings: Mapping[str, Any]) -> Reading:
        """Read a shard row group by row group, without a temporary file."""
        given = cls.settings("open", settings)
        column = given.get("column", TOKENS)
        file = _compared(path)
        with _opened(file) as opened:
            schema = opened.schema_arrow
        known = _facts(schema, file, column, given.get("end_of_text"), given.get("vocabulary_size"))
        known.pop("left_out")
        return Reading(_rows(file, column), (), known, tuple(_others(schema, column)))

    @classmethod
    def has_overlaps(cls, path: "str | Path", settings: Mapping[str, Any]) -> bool:  # noqa: ARG003  # the column needs no settings
        """Return whether any document overlaps with the one before it, without reading tokens."""
        with _opened(_compared(path)) as opened:
            if OVERLAP not in opened.schema_arrow.names:
                return False
            return bool(pc.any(pc.not_equal(opened.read([OVERLAP])[OVERLAP], 0)).as_py())


open, shard_files, verify, write = TokenParquet.open, TokenParquet.shard_files, TokenParquet.verify, TokenParquet.write  # noqa: A001  # public as token_parquet.open


def read(path: "str | Path", *, column: str = TOKENS) -> Iterator[pa.Table]:
    """Read a shard in tables of some rows, with ``column`` renamed to ``tokens`` and stored as uint16 or uint32."""
    return _rows(_compared(path), column)


def _facts(
    schema: pa.Schema, file: Path, column: str, end_of_text: int | None, vocabulary_size: int | None
) -> dict[str, Any]:
    """Return the recorded facts combined with the given ones, and a description of the columns that no shard stores."""
    _token_type(schema, column, file)
    known = _recorded(schema, file)
    others = _others(schema, column)
    for name, given in (("end_of_text", end_of_text), ("vocabulary_size", vocabulary_size)):
        if given is not None:
            if known[name] not in (None, given):
                raise FormatError(f"{file} records that its {name} is {known[name]:,}, not {given:,}: remove {name}")
            known[name] = given
    check_ids(known["end_of_text"], known["vocabulary_size"])
    return known | {"left_out": named_columns(others)}


def _others(schema: pa.Schema, column: str) -> list[str]:
    return [name for name in schema.names if name not in OWN and name != column]


def _rows(file: Path, column: str) -> Iterator[pa.Table]:
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
                "it again"
            ) from broken


def _compared(path: "str | Path") -> Path:
    """Return the file of a shard, after comparing all of it with its checksums, if it has any."""
    (file,) = TokenParquet.shard_files(path)
    checksums = read_checksums([file], stem_of(file, SUFFIX))
    if checksums is not None:
        checksums.check()
    return file


def _recorded(schema: pa.Schema, file: Path) -> dict[str, Any]:
    try:
        recorded = load_json((schema.metadata or {}).get(KEY, b"{}"))
        known = {name: recorded.get(name) for name in FACTS}
    except (ValueError, AttributeError) as broken:
        raise CorruptionError(
            f"{file} has metadata under 'longcrawl' that is not a JSON object: write it again"
        ) from broken
    for name, value in known.items():
        if value is not None and type(value) is not FACTS[name]:
            raise CorruptionError(f"{file} records under 'longcrawl' that its {name} is {value!r}: write it again")
    return known


def _opened(file: Path) -> pq.ParquetFile:
    file_bytes(file)
    try:
        return pq.ParquetFile(file, page_checksum_verification=True)
    except (OSError, ValueError, pa.ArrowException) as broken:
        raise CorruptionError(
            f"{file} is not a parquet file, or is cut ({str(broken).splitlines()[0]}): fetch or write it again"
        ) from broken


def _token_type(schema: pa.Schema, column: str, file: Path) -> pa.DataType:
    """Return the type of a token: uint16 for columns of uint8 or uint16, uint32 for other integers."""
    if column not in schema.names:
        have, fix = ", ".join(schema.names), "make tokens of texts with `longcrawl tokenize`"
        raise FormatError(f"{file} has no column {column!r}; it has {have}: set column to one, or {fix}")
    kind = schema.field(column).type
    value = getattr(kind, "value_type", None)
    if value is None or not pa.types.is_integer(value):
        raise FormatError(
            f"{file} has no lists of integers in its column {column!r} but {kind}: name another as column"
        )
    return pa.uint16() if value in (pa.uint16(), pa.uint8()) else pa.uint32()


def _table(table: pa.Table, column: str, kind: pa.DataType, where: str) -> pa.Table:
    """Return a batch with its tokens as the first column ``tokens`` of the given type."""
    lists = pc.cast(table[column], pa.list_(kind))
    if N_TOKENS in table.column_names:
        differ = pc.not_equal(pc.cast(table[N_TOKENS], pa.int64()), pc.cast(pc.list_value_length(lists), pa.int64()))
        row = pc.index(differ, True).as_py()
        if row >= 0:
            raise CorruptionError(
                f"{where}: row {row:,} of these records that it has {table[N_TOKENS][row].as_py():,} tokens, it has "
                f"{len(lists[row]):,}: write the shard again"
            )
    others = {name: table[name] for name in table.column_names if name not in (column, TOKENS)}
    return pa.table({TOKENS: lists} | others)


def _decoded(tables: Iterable[pa.Table], kind: pa.DataType, file: Path) -> Documents:
    dtype = np.dtype(kind.to_pandas_dtype())
    lengths, overlaps = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    with tempfile.TemporaryFile() as ids, tempfile.TemporaryFile() as flags:
        for table in tables:
            try:
                block = documents_of(table)
            except (FormatError, StageError) as broken:
                raise CorruptionError(f"{file} contradicts itself: {broken}") from broken
            write_array(ids, block.tokens, dtype)
            lengths.append(block.lengths)
            if block.overlaps is not None:
                overlaps.append(block.overlaps)
            if block.loss_mask is not None:
                write_array(flags, block.loss_mask, np.uint8)
        tokens, mask = map_opened(ids, dtype), map_opened(flags, np.uint8)
    counts, shared = np.concatenate(lengths), np.concatenate(overlaps)
    return Documents(
        tokens,
        counts,
        shared if len(shared) == len(counts) and len(counts) else None,
        mask.view(np.bool_) if len(mask) == len(tokens) and len(mask) else None,
    )


def row_groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Regroup documents into tables of at most ``GROUP_TOKENS`` tokens, or of one larger document."""
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
