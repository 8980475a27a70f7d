"""Token files of the Dolma toolkit and OLMo-core: ``.npy``, with ``.csv.gz`` and a loss mask beside it.

Specification
-------------
* ``NAME.npy``: tokens, little-endian uint16 or uint32, without numpy's header. Documents are stored one after the
  other, each with an end-of-text token at its end.
* ``NAME.csv.gz``: a row for each document, ``start,end,id,src,loc``, without a header, with lines that end in CR LF.
  ``start`` and ``end`` count tokens, ``id`` is the document's, ``src`` the file that it was found in, and ``loc`` its
  place there: the Dolma toolkit's is the number of a line, here it is a byte. Rows of documents without an id are
  ``start,end``, as OLMo-core writes them.
* ``NAME.npy.loss``, optional: a byte for each token, 1 if its loss counts and 0 if not, for ``label_mask_paths`` of
  OLMo-core. Its name does not end in ``.npy``, so that ``*.npy`` matches tokens only.

The files record neither the end-of-text id nor the size of the vocabulary. The width of a token follows from the last
row and the size of ``.npy``; without rows, the user must give it. OLMo-core derives it from the vocabulary of its
tokenizer, or reads the ``dtype`` that it is given.

OLMo-core takes the ends of documents from ``.csv.gz`` of remote files only. In local files it looks for the end-of-text
token, unless it is told not to (``use_array_if_local=False`` of ``NumpyPackedFSLDataset``). So documents that do not
have the token at their end, or have it also elsewhere, are reported as lost if ``end_of_text`` is known; the rows have
their ends all the same. A line break in ``id`` or ``src`` is refused, as OLMo-core splits rows at it, and so is a shard
without tokens, which cannot be mapped to memory.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from longcrawl.errors import CorruptionError, FormatError, check_word
from longcrawl.formats.shards import shard
from longcrawl.formats.shards.base import Opening, Parsed, Reading, ShardFormat, shard_format
from longcrawl.formats.shards.shard import Documents
from longcrawl.formats.shards.writing import DocumentStream, Loss, NewFiles, marks_of, write_array
from longcrawl.tokens.loss_mask import LOSS_MASK

NAME = "olmo-core"
SUFFIX = ".npy"
LOSS = SUFFIX + shard.LOSS_SUFFIX
ROWS = ".csv.gz"
ID, SRC, LOC = "id", "src", "loc"
PLACES = ((SRC, LOC), ("file", "offset"), ("source", None), ("url", None))
"""Columns of documents for ``src`` and ``loc``; the first pair whose first column exists is stored."""
NUMPY_MAGIC = b"\x93NUMPY"


@shard_format(NAME)
class OlmoCore(ShardFormat):
    """Token files of the Dolma toolkit and OLMo-core; a path names the ``.npy`` file.

    Opening a shard reads all rows, which needs 16 bytes of memory for each document, and more while it lasts.
    """

    suffix = SUFFIX
    holds = frozenset([LOSS_MASK])

    @classmethod
    def shard_files(cls, path: "str | Path") -> tuple[Path, ...]:
        """Return the files of a shard, the rows last; the loss mask may be missing."""
        (file,) = super().shard_files(path)
        return file, file.with_name(file.stem + LOSS), file.with_name(file.stem + ROWS)

    @classmethod
    def columns(cls, names: Iterable[str]) -> list[str]:
        """Return the id and the columns of the first existing pair of :data:`PLACES`; nothing without an id."""
        there = set(names)
        if ID not in there:
            return []
        place = next((pair for pair in PLACES if pair[0] in there), ())
        return [ID, *(name for name in place if name in there)]

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles) -> None:
        """Write tokens, rows and loss mask, and count the documents that OLMo-core would not separate."""
        tokens, flags = files.open(SUFFIX), files.open(LOSS) if LOSS_MASK in stream.has else None
        unmarked, columns = 0, None
        # Without a time and a name in its header, gzip gives the same bytes each time.
        with (
            gzip.GzipFile("", "wb", 9, files.open(ROWS), mtime=0) as packed,
            io.TextIOWrapper(packed, "utf-8", newline="") as text,
        ):
            rows = csv.writer(text)
            for batch in stream:
                found = cls.columns([] if batch.others is None else batch.others.column_names)
                columns = found if columns is None else columns
                if found != columns:
                    raise FormatError(
                        f"documents have the columns {found}, but others have {columns}: give all the same"
                    )
                first = stream.documents - len(batch.lengths)
                ends = stream.tokens - len(batch.tokens) + np.cumsum(batch.lengths)
                starts = (ends - batch.lengths).tolist()
                rows.writerows(zip(starts, ends.tolist(), *_origins(batch, columns, first), strict=True))
                write_array(tokens, batch.tokens, stream.token_type)
                if flags is not None and batch.loss_mask is not None:
                    write_array(flags, batch.loss_mask, np.uint8)
                if stream.end_of_text is not None:
                    counts, at_end = marks_of(batch, stream.end_of_text, "end")
                    unmarked += int(np.count_nonzero((counts != 1) | ~at_end))
        if not stream.tokens:
            raise FormatError(f"{files.path} would have no tokens, and OLMo-core cannot map an empty file: exclude it")
        if unmarked:
            what = f"the ends of {{}} documents, which it finds by token {stream.end_of_text} at the end alone"
            stream.lost.append(Loss(what, unmarked))

    @classmethod
    def decode(cls, opening: Opening, *, token_size: Literal[2, 4] | None = None) -> Parsed:
        """Memory-map tokens and loss mask, and read the rows; ``token_size`` is bytes of a token, if rows are missing.

        Without rows, documents are found by their end-of-text token.
        """
        check_word("token_size", token_size, (2, 4, None), FormatError)
        file, loss, index = opening.files
        size = shard.file_bytes(file)
        _check_header(file)
        rows = None
        if index.is_file():
            opening.compare(2)
            rows = _read_rows(index)
        last = None if rows is None else _last(rows)
        width = shard.token_width(file, size, token_size, last, index.name)
        tokens = shard.map_file(file, f"<u{width}", size // width)
        mask, ends = None, None
        problems: Iterable[str] = ()
        if rows is not None:
            starts, ends = (rows[name].to_numpy() for name in ("start", "end"))
            problems = _row_problems(starts, ends, index)
        elif opening.end_of_text is not None:
            opening.compare(0)
            ends = shard.find_ends(tokens, opening.end_of_text)
        if loss.is_file():
            shard.check_size(loss, len(tokens), f"and {file.name}, with a byte for each token, asks for")
            mask = shard.map_file(loss, np.uint8, len(tokens)).view(np.bool_)
        columns = [] if rows is None else cls.columns(rows.column_names)
        return Parsed(
            tokens,
            ends,
            loss_mask=mask,
            left_out=shard.named_columns(columns),
            settings={"token_size": width},
            of_ends=problems,
        )

    @classmethod
    def reading(cls, path: "str | Path", settings: Mapping[str, Any]) -> Reading:
        """Read a shard with the columns ``id``, ``src`` and ``loc`` of its rows, if it has them."""
        read = super().reading(path, settings)
        index = cls.shard_files(path)[-1]
        origins = _read_rows(index).drop_columns(["start", "end"]) if index.is_file() else None
        if origins is None or not origins.num_columns:
            return read
        return replace(read, documents=_with_origins(read.documents, origins), left_out=(), columns=(ID, SRC, LOC))


open, shard_files, verify, write = OlmoCore.open, OlmoCore.shard_files, OlmoCore.verify, OlmoCore.write  # noqa: A001  # public as olmo_core.open


def _with_origins(documents: Iterable[Any], origins: pa.Table) -> Iterator[Documents]:
    first = 0
    for batch in documents:
        yield replace(batch, others=origins.slice(first, len(batch.lengths)))
        first += len(batch.lengths)


def _origins(batch: Documents, columns: Sequence[str], first: int) -> list[Sequence[Any]]:
    """Return the ids, sources and places of documents, whose place is their number if no column has it."""
    if not columns or batch.others is None:
        return []
    for name in columns[2:]:
        kind = batch.others[name].type
        if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise FormatError(
                f"the column {name!r} is {kind}, but a place in {columns[1]!r} is a whole number: rename or remove it"
            )
    found = [batch.others[name].to_pylist() for name in columns]
    for name, values in zip(columns[:2], found, strict=False):
        for number, value in enumerate(values):
            if isinstance(value, str) and ("\n" in value or "\r" in value):
                raise FormatError(
                    f"document {first + number:,} has a line break in its {name}, {value!r}, where OLMo-core "
                    "splits the row: remove it"
                )
    count = len(batch.lengths)
    return [*found, *([""] * count, range(first, first + count))[len(found) - 1 :]]


def has_header(file: Path) -> bool:
    """Return whether a file begins with numpy's header, which token files lack."""
    with file.open("rb") as opened:
        return opened.read(len(NUMPY_MAGIC)) == NUMPY_MAGIC


def _check_header(file: Path) -> None:
    if has_header(file):
        raise FormatError(
            f"{file} begins with numpy's header, which OLMo-core reads as tokens: write the array with tofile, "
            "not numpy.save"
        )


def _read_rows(index: Path) -> pa.Table:
    """Return the columns ``start`` and ``end``, int64, and ``id``, ``src`` and ``loc`` if there are five."""
    names = ["start", "end", ID, SRC, LOC]
    kinds = [pa.int64(), pa.int64(), pa.string(), pa.string(), pa.int64()]
    try:
        with gzip.open(index) as packed:
            content = packed.read()
        if not content:
            return pa.table({name: pa.array([], pa.int64()) for name in names[:2]})
        rows = pacsv.read_csv(
            pa.BufferReader(content),
            pacsv.ReadOptions(use_threads=False, autogenerate_column_names=True),
            convert_options=pacsv.ConvertOptions(
                column_types={f"f{number}": kind for number, kind in enumerate(kinds)}, strings_can_be_null=False
            ),
        )
    except (OSError, EOFError, zlib.error, pa.ArrowException) as broken:
        raise CorruptionError(
            f"{index} is cut, or holds other rows than start,end,id,src,loc ({str(broken).splitlines()[0]}): fetch it "
            "again, or write the shard again"
        ) from broken
    count = 5 if rows.num_columns == len(names) else 2
    if rows.num_columns < count or rows["f0"].null_count or rows["f1"].null_count:
        raise CorruptionError(f"{index} has rows without a start and an end: fetch it again, or write the shard again")
    return rows.select(range(count)).rename_columns(names[:count]).combine_chunks()


def _last(rows: pa.Table) -> int:
    return int(rows["end"][-1].as_py()) if rows.num_rows else 0


def _row_problems(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], index: Path) -> Iterator[str]:
    before = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    wrong = np.flatnonzero((starts != before) | (ends < starts))
    if len(wrong):
        row = int(wrong[0])
        yield (
            f"{index} records on line {row + 1:,} a document from token {int(starts[row]):,} to {int(ends[row]):,}, "
            f"after one that ends at {int(before[row]):,}: fetch it again, or write the shard again"
        )
