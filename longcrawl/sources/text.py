"""Text datasets: JSON lines, parquet, CSV, text files and PDFs, local or behind URLs.

JSON lines (``.jsonl``, ``.json``, ``.ndjson``) and rows of parquet and CSV (``.csv``, ``.tsv``, with names in the first
row) are documents ``FILE:LINE`` and ``FILE:ROW``; ``.txt``, ``.md``, ``.py`` and the like are one document ``FILE``, or
one ``FILE:LINE`` per line that has text. With ``format: pdf``, a file is one document ``FILE`` with its bytes in
``content``, and ``file_field`` names a column of parquet with such bytes; a later stage makes them texts.

Endings are compared in any case. All but parquet may be compressed with gzip or zstd, which is detected from the first
bytes; the name may also end in ``.gz`` or ``.zst``. Ids count lines and rows from 0, including blank and unreadable
ones; messages count lines from 1, as editors do. FILE is relative to ``data_dir``, or to the deepest folder that all
``data_files`` share. A JSON file that is one array of objects has one document per object, numbered like lines; it is
held in memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core import sources
from longcrawl.core.batches import CONTENT, FILE_BYTES, FILE_PATH
from longcrawl.core.fields import as_text, names_in, names_of, path_of, type_at
from longcrawl.core.sources import LostRecords, is_utf8
from longcrawl.errors import MOST_QUOTED, SourceError, listed_with_near, shortened
from longcrawl.io.files import why_no_file
from longcrawl.sources.blocks import RECORD_BYTES, read_bytes, read_steps, seeming_encoding, too_long
from longcrawl.sources.csv_rows import ENDINGS, read_csv, read_names
from longcrawl.sources.encodings import LOOKED_AT, Decoding, check_encoding, seems_binary
from longcrawl.sources.files import (
    PDF_HINT,
    PDFS,
    DamagedFileError,
    DataFiles,
    has_ending,
    named_parts,
    spell_endings,
)
from longcrawl.sources.json_lines import LineReader, array_blocks, begins_array, parse_object
from longcrawl.sources.parquet import divide_rows, open_parquet, read_rows, up_to, utf8_rows, written_out
from longcrawl.sources.sections import divide_lines
from longcrawl.urls import is_url, without_secrets

LAST_SPACE = 0x3000
"""Highest code point that ``str.isspace`` accepts."""
_SPACES = "".join(filter(str.isspace, map(chr, range(LAST_SPACE + 1))))


class TextLines:
    """Column of the lines that are not blank, filled step by step."""

    def __init__(self, lost: LostRecords, first: int = 0) -> None:
        self._lost, self.count = lost, first
        """Report of lines that are not UTF-8, and number of lines of the file up to the last one added."""
        self._begin()

    def _begin(self) -> None:
        self._texts, self._bytes = [pa.array([], pa.large_string())], 0
        self._places = [np.empty((2, 0), np.int64)]
        """Arrays of two rows, the numbers of the copied lines and their first bytes in the block."""

    def add(self, step: memoryview) -> None:
        """Copy the lines of a step; only the last line of a file may lack its line end."""
        text = step if is_utf8(step) else _without_damage(step, self.count, self._lost)
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
        last = [len(text)] if len(text) > (ends[-1] if len(ends) else 0) else []
        offsets = np.concatenate([[0], ends, last]).astype(np.int64)
        lines = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))
        lines = pc.utf8_rtrim(lines, "\r\n")
        has_text = pc.not_equal(pc.binary_length(pc.utf8_ltrim(lines, _SPACES)), 0)
        kept = np.flatnonzero(has_text.to_numpy(zero_copy_only=False))
        self._texts.append(lines.filter(has_text))
        self._places.append(np.array([kept + self.count, offsets[kept] + self._bytes]))
        self.count, self._bytes = self.count + len(lines), self._bytes + len(step)

    def take(self) -> tuple[pa.LargeStringArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the lines added since the last call, their numbers in the file, and their byte offsets since then."""
        (numbers, starts), texts = np.concatenate(self._places, axis=1), pa.concat_arrays(self._texts)
        self._begin()
        return texts, numbers, starts


def _without_damage(lines: memoryview, first: int, lost: LostRecords) -> bytes:
    """Return lines with those that are not UTF-8 replaced by spaces and reported as lost."""
    kept = bytes(lines).split(b"\n")
    for number, line in enumerate(kept):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            lost.add(f"line {first + number + 1}", f"is not UTF-8 ({error.reason} at byte {error.start})")
            kept[number] = b" " * len(line)
    return b"\n".join(kept)


def numbered_ids(name: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return the ids of the records of a file: its name, a colon and the number."""
    return pc.binary_join_element_wise(name, pa.array(numbers, pa.int64()).cast(pa.string()), ":")


_PACKED = ("", ".gz", ".zst")
_PLACE = (pa.field("file", pa.string()), pa.field("offset", pa.int64()))
_MARK = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8, which is not part of the first line."""
_SET_ENCODING = "--set source.encoding="
_BINARY = "seems to be binary: it has control characters that do not occur in text"
FORCE = (
    ". To read files regardless of their names, set format to their content, such as 'text': "
    "lc.open(FOLDER, format='text'), or --set source.format=text"
)
_SET = "--set source.{}=NAME"
_PROSE = (
    ".txt", ".text", ".md", ".markdown", ".mdx", ".rmd", ".qmd", ".rst", ".tex", ".org", ".adoc", ".asciidoc",
    ".textile", ".wiki",
)  # fmt: skip
_CODE = (
    ".adb", ".ads", ".agda", ".asm", ".bash", ".bat", ".c", ".cc", ".cjs", ".clj", ".cmake", ".cob", ".cpp", ".cs",
    ".css", ".cu", ".cuh", ".cxx", ".d", ".dart", ".el", ".erl", ".ex", ".exs", ".f", ".f90", ".f95", ".fish", ".for",
    ".fs", ".go", ".groovy", ".h", ".hh", ".hpp", ".hs", ".hxx", ".java", ".jl", ".js", ".jsx", ".kt", ".kts", ".lean",
    ".less", ".lisp", ".lua", ".m", ".mjs", ".ml", ".mli", ".mm", ".nim", ".pas", ".php", ".pl", ".pm", ".proto",
    ".ps1", ".py", ".pyi", ".pyx", ".r", ".rb", ".rkt", ".rs", ".s", ".scala", ".scm", ".scss", ".sh", ".sol", ".sql",
    ".sv", ".swift", ".tcl", ".ts", ".tsx", ".v", ".vb", ".vhd", ".vue", ".zig", ".zsh",
)  # fmt: skip
_LINES = (".jsonl", ".json", ".ndjson")


def _each(*endings: str) -> tuple[str, ...]:
    return tuple(f"{ending}{packed}" for ending in endings for packed in _PACKED)


WHOLE = _each(*_PROSE, *_CODE)
"""Endings of files that are one document each."""
RECORDS = (*_each(*_LINES, *ENDINGS), ".parquet")
"""Endings of files with one document per record."""
EXTENSIONS = (*RECORDS, *WHOLE)
_FORMATS = {"json": ".jsonl", "csv": ".csv", "tsv": ".tsv", "parquet": ".parquet", "text": ".txt", "pdf": ".pdf"}
"""The file ending that selects the reader, by format."""
_ENCODED = ("not UTF-8", "not JSON", "has no field", "seems to be binary")
"""Errors that a wrong encoding may explain."""


def kind_of(name: str) -> str:
    """Return the kind of a file by its name: ``.jsonl``, ``.csv``, ``.tsv``, ``.parquet``, ``.txt``, or "" if unknown.

    >>> kind_of("a/B.MD.gz"), kind_of("a.NDJSON"), kind_of("a.pdf")
    ('.txt', '.jsonl', '')
    """
    ending = "." + name.lower().removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]
    if ending in _LINES:
        return ".jsonl"
    return ".txt" if ending in (*_PROSE, *_CODE) else ending if ending in RECORDS else ""


FIELD_SETTINGS = ("text_field", "id_field", "url_field", "date_field", "language_field", "file_field")
"""Settings that name one field of records."""
_LOOKED_AT = 100
"""Lines of JSON searched for field names to list in an error."""


@dataclass(frozen=True)
class _Records:
    table: pa.Table
    numbers: npt.NDArray[np.int64] | None
    """The line or row number of each record, or None if the file is one document."""
    offsets: pa.Array | None = None
    """The byte offset of each record in the file, if known and requested."""


def _without_descriptions(parts: list[sources.Part]) -> list[sources.Part]:
    """Return the parts without ``parquet.json``, which describes an output of longcrawl, above parquet files."""
    tables = [part.name for part in parts if kind_of(part.name) == ".parquet"]
    above = [part.name.removesuffix("parquet.json") for part in parts if f"/{part.name}".endswith("/parquet.json")]
    described = {f"{folder}parquet.json" for folder in above if any(name.startswith(folder) for name in tables)}
    return [part for part in parts if part.name not in described]


@sources.source("text")
class Text(sources.Source):
    """Documents of JSON lines, parquet, CSV or text files, or PDFs.

    The column ``source`` is the file name; a field ``source`` of the records replaces it only if ``fields`` names it.

    Args:
        data_dir: a folder, read with all its subfolders, or the URL of one.
        data_files: a path, URL or glob, several of them, or a mapping from splits to them; relative to ``data_dir`` if
            set.
        text_field: the field with the text, in JSON, parquet and CSV. A name with dots reaches into objects, such as
            ``doc.text``; the other field settings work the same way.
        id_field: the field with the id, or None for file and line. Ids are used unchanged, even if repeated.
        url_field: the field with the URL; null in records without it.
        date_field: the field with the date; null in records without it.
        language_field: the field with the language.
        file_field: instead of a text, the field of parquet with the bytes of a file, or with the struct of bytes and
            path that `datasets` writes for ``Pdf``. They become the column ``content`` (large_binary) for the stage
            ``extract_pdf``, with the column ``digest`` ("sha1:" and base32), and ``text`` is null.
        language: the language of documents without one.
        fields: additional fields of JSON, parquet and CSV, such as ``domain`` or ``metadata.domain``. Each becomes a
            column of text with that name, null in records without it. A list or an object is not text.
        origins: how to trace a document back: to its "file" in ``source``, or also to its "line" in the columns
            ``file`` and ``offset``, its byte offset in the decompressed file. The offset is null for parquet, CSV and
            whole text files, for files that are not UTF-8, and after lost lines. Outputs record both columns, so
            parquet and rectangles of the same documents differ if the documents are in other files.
        source_from: value of ``source``: the "file", or the "folder", the first step of its relative path, null for a
            file at the top. With "folder", ``buckets: source`` of an output makes a bucket of each folder.
        unit: whether a text file is one document, or each of its lines that is not blank.
        format: format of the files, whatever their names: "json" (lines or an array), "csv", "tsv", "parquet" or
            "text"; all files of a folder are then read. "pdf" reads the PDFs of a folder, those
            that end in ``.pdf``: their bytes are in ``content`` and ``digest``, as with ``file_field``, and ``url`` is
            the URL of a remote one. "auto" chooses by the ending of each file, and skips PDFs.
        encoding: encoding of text, CSV and JSON files: "utf-8", "latin-1" or another Python codec, or "detect" to
            detect it for each file, which reads the file twice. A byte order mark takes precedence. A manifest counts
            the files that are not known to be UTF-8 by encoding.
        max_record_bytes: maximum bytes of a line of JSON or text, a text in parquet, or a file that is one document.
            A longer one is a bad record. Reading a record takes several times its length of memory.
        on_bad_files: what to do about a missing, cut or corrupt file and about a record without text. Members of a
            compressed file with a correct checksum are kept, see ``longcrawl.sources.compressed``.
        storage_options: fsspec options for the stores that URLs name, such as ``{endpoint_url: …, anon: true}``. Keep
            credentials in the environment or a profile instead.
    """

    data_dir: str | None = None
    data_files: DataFiles = None
    text_field: str = "text"
    id_field: str | None = None
    url_field: str = "url"
    date_field: str = "date"
    language_field: str = "language"
    language: str | None = None
    fields: tuple[str, ...] = ()
    origins: Literal["file", "line"] = "file"
    source_from: Literal["file", "folder"] = "file"
    unit: Literal["file", "line"] = "file"
    format: Literal["auto", "json", "csv", "tsv", "parquet", "text", "pdf"] = "auto"
    file_field: str | None = None
    encoding: str = "utf-8"
    max_record_bytes: int = RECORD_BYTES
    on_bad_files: sources.OnBadFiles = "error"
    storage_options: sources.StorageOptions = None
    omitted_defaults: ClassVar[tuple[str, ...]] = ("format", "file_field", "encoding")
    unpacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        sources.check_record_bytes(self.max_record_bytes)
        check_encoding(self.encoding)
        for name in self.fields:
            if name in sources.DOCUMENTS.names and name != "source":
                raise SourceError(f"text.fields names {name!r}, which is always a column: set {name}_field instead")
            if self.fields.count(name) > 1:
                raise SourceError(f"text.fields names {name!r} twice: list it once")
        if "source" in self.fields and self.source_from == "folder":
            raise SourceError("text.fields names 'source', and source_from is 'folder': remove one of them")
        if self.file_field is not None and (self.format not in ("auto", "parquet") or self.text_field != "text"):
            other = "text_field" if self.text_field != "text" else "format"
            raise SourceError(
                f"text.file_field names a field of parquet instead of a text, and {other} is "
                f"{getattr(self, other)!r}: remove one of them"
            )
        if self._holds_files and CONTENT.name in self.fields:
            raise SourceError(f"text.fields names {CONTENT.name!r}, the column of the bytes: remove it")

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""
        own = [field for field in _PLACE if self.origins == "line" and field.name not in self.fields]
        further = [pa.field(name, pa.string()) for name in self.fields if name not in sources.DOCUMENTS.names]
        names = {field.name for field in further}
        files = [field for field in (sources.DIGEST, CONTENT) if self._holds_files and field.name not in names]
        return pa.schema([*sources.DOCUMENTS, *further, *own, *files])

    def splits(self) -> dict[str, list[sources.Part]]:
        """List the files of every split."""
        data_dir, data_files = self.located((self.data_dir, self.data_files))
        endings, hint = (EXTENSIONS, FORCE) if self.format == "auto" else (("",), "")
        if self.format == "pdf" and not data_files:
            endings, hint = PDFS, ". To read PDFs with other endings, set data_files"
        splits = named_parts(self.name, data_dir, data_files, endings, "*.jsonl", whole=WHOLE, hint=hint)
        if not data_files:
            splits = {split: _without_descriptions(parts) for split, parts in splits.items()}
        for part in (part for parts in splits.values() for part in parts):
            if not has_ending(part.name, endings) and why_no_file(part.files[0]) is None:
                known, hint = spell_endings(EXTENSIONS), PDF_HINT if has_ending(part.name, PDFS) else hint
                raise SourceError(f"{part.name} has an unsupported ending; known: {known}{hint}")
        return splits

    @property
    def unique_ids(self) -> bool:
        """Whether ids are made from file names and numbers, not taken from a field."""
        return self.id_field is None

    def named_fields(self) -> Mapping[str, str]:
        """Return the record fields named in settings, mapped to the setting; defaults are left out."""
        kind = type(self)
        chosen = [name for name in FIELD_SETTINGS if getattr(self, name) not in (None, "", getattr(kind, name))]
        return dict.fromkeys(self.fields, "fields") | {getattr(self, name): name for name in chosen}

    def known_fields(self, part: sources.Part) -> Sequence[str]:
        """Return the fields of the first records of a file; none for text or for a file that cannot be read."""
        (path,) = part.files
        kind, decoding = self._kind(part.name), Decoding(self.encoding, lambda _: None)
        try:
            if kind == ".parquet":
                with open_parquet(path) as (file, _):
                    return list(names_of(file.schema_arrow))
            if kind in ENDINGS:
                return read_names(path, ENDINGS[kind], self.max_record_bytes, decoding)
            return [] if kind in (".txt", ".pdf") else _json_names(path, self.max_record_bytes, decoding)
        except DamagedFileError:
            return []

    def list_ids(self, part: sources.Part) -> Iterator[pa.ChunkedArray] | None:
        """List the ids of records without other fields, or return None for text and remote files."""
        field = self.id_field
        if field is None or self._kind(part.name) in (".txt", ".pdf") or is_url(part.files[0]):
            return None
        own = dict.fromkeys(("text_field", "url_field", "date_field", "language_field"), field)
        alone = replace(self, **own, fields=(), file_field=None)  # type: ignore[arg-type]  # names of text fields
        return (table["id"] for table in alone.read(part, sources.BadFiles("skip")))

    def divides(self, part: sources.Part) -> bool:
        """Return whether a file has a document per line of JSON, line of text, or row of parquet, and is in UTF-8."""
        kind = self._kind(part.name)
        has_lines = kind == ".jsonl" or (kind == ".txt" and self.unit == "line")
        return kind == ".parquet" or (has_lines and self.encoding == "utf-8")

    def divide(self, part: sources.Part, size: int, folder: Path) -> Sequence[sources.Section]:
        """Divide a file at line ends or between row groups.

        Arrays, damaged files, and files that seem binary or not in UTF-8 by their first bytes have no sections.
        """
        if self._kind(part.name) == ".parquet":
            return divide_rows(part.files[0], size)
        is_other = begins_array if self._kind(part.name) == ".jsonl" else _begins_binary
        # Offsets are unknown after a line that is too long.
        most_bytes = self.max_record_bytes if self.origins == "line" else None
        return divide_lines(part.files[0], size, folder, is_other, most_bytes)

    def read(self, part: sources.Part, bad_files: sources.BadFiles) -> Iterator[pa.Table]:
        """Read the documents of one file or of a section of it."""
        (path,), name, section = part.files, part.name, part.section
        kind = self._kind(name)
        if self.file_field is not None and kind != ".parquet":
            raise SourceError(f"{name} is not parquet, the only format with fields of bytes: remove file_field")
        explain = partial(self._explain, path, section) if kind != ".parquet" else str
        lost = sources.LostRecords(bad_files, path, explain=explain)

        def note(encoding: str) -> None:
            if self.encoding != "utf-8" or encoding != "utf-8":
                bad_files.encodings[encoding] += 1

        decoding = Decoding(self.encoding, note)
        if kind == ".pdf":
            tables = self._binary(name, path)
        elif kind == ".txt" and self.unit == "file":
            tables = self._file(name, path, decoding)
        elif kind == ".txt":
            tables = self._lines(part, lost, bad_files, decoding)
        else:
            if kind == ".parquet":
                records = self._parquet(path, lost, section)
            elif kind in ENDINGS:
                records = self._csv(path, ENDINGS[kind], lost, decoding)
            else:
                records = self._json(part, lost, bad_files, decoding)
            tables = self._tables(name, records, bad_files)
        try:
            yield from tables
            lost.report()
        except DamagedFileError as damage:
            lost.report(explain(self._hint(str(damage))), damage.records_lost)
        bad_files.has_unchecked = False

    @property
    def _holds_files(self) -> bool:
        return self.format == "pdf" or self.file_field is not None

    def _kind(self, name: str) -> str:
        return _FORMATS.get(self.format) or kind_of(name)

    def _explain(self, path: str, section: sources.Section | None, reason: str) -> str:
        """Add encodings to a reason: the one set that does not fit, or the likely one of a file that is not UTF-8."""
        if not any(part in reason for part in _ENCODED):
            return reason
        if self.encoding != "utf-8":
            before, found, after = reason.partition("is not UTF-8")
            # Byte positions refer to the decoded text.
            after = after.partition(")")[2] if after.startswith(" (") else after
            return f"{before}is not {self.encoding}{after}" if found else reason
        if (name := seeming_encoding(path, section)) in (None, "utf-8"):
            return reason
        return (
            f"{reason}; its encoding seems to be {name}: set encoding to that, or to 'detect' ({_SET_ENCODING}{name})"
        )

    def _tables(self, name: str, found: Iterator["_Records"], bad_files: sources.BadFiles) -> Iterator[pa.Table]:
        named = self.named_fields()
        for records in found:
            for field in named:
                if field in records.table.column_names:
                    column = records.table[field]
                    bad_files.count_field(field, len(column) - column.null_count)
            yield self._table(name, records)

    def _json(
        self, part: sources.Part, lost: sources.LostRecords, bad_files: sources.BadFiles, decoding: Decoding
    ) -> Iterator["_Records"]:
        (path,), section, before = part.files, part.section, _lines_before(part)
        wanted = {self.text_field: pa.field(self.text_field, pa.large_string(), nullable=False)}
        if self.id_field:
            wanted.setdefault(self.id_field, pa.field(self.id_field, pa.string(), nullable=False))
        for extra in self._optional():
            wanted.setdefault(extra, pa.field(extra, pa.string()))
        reader, first = LineReader(pa.schema(list(wanted.values()))), before
        checksums = bad_files.when_to_check(part.name)
        most = self.max_record_bytes
        placed = _placed_steps(part, most, lost, "keep", checksums, lambda: before + reader.lines, decoding)
        begin = next(placed, None)
        if section is None and begin is not None and begins_array(begin[1] or b""):
            array, where = _read_array(path, most, checksums, decoding), "object"
            placed = ((None, step) for block in array_blocks(array) for step in (memoryview(block), None))
        else:
            placed, where = chain([] if begin is None else [begin], placed), "line"
        for at, step in placed:
            if step is not None:
                reader.add(step)
                continue
            lines = reader.take()
            for number, reason in lines.lost:
                lost.add(f"{where} {first + number + 1}", self._hint(reason))
            if lines.table.num_rows:
                table = lines.table.select([field for field in lines.table.column_names if field in reader.present])
                yield _Records(table, lines.numbers + first, self._moved(lines.starts, at))
            first += lines.count

    def _parquet(self, path: str, lost: sources.LostRecords, section: sources.Section | None) -> Iterator["_Records"]:
        with open_parquet(path) as (file, copy):
            columns = self._columns(file.schema_arrow, section.count if section else file.metadata.num_rows)
            for first, table in read_rows(file, copy, columns, self.max_record_bytes, section):
                yield self._rows(table, np.arange(first, first + table.num_rows), lost)

    def _columns(self, schema: pa.Schema, rows: int) -> dict[str, tuple[str, ...]]:
        """Return the path steps of each wanted field in the schema of a file with ``rows`` rows."""
        wanted = dict.fromkeys([*self._needed(), *self._optional()])
        columns = {field: path for field in wanted if (path := path_of(schema, field)) is not None}
        if missing := next((field for field in self._needed() if field not in columns), None):
            fields = listed_with_near(names_of(schema), missing)
            raise DamagedFileError(f"has no field {missing!r}; its fields: {fields}", rows)
        for field, path in list(columns.items()):
            fix = "remove it from fields" if field in self.fields else "choose another field"
            if (many := schema.names.count(path[0])) > 1:
                raise DamagedFileError(f"has {many} columns named {path[0]!r}: rename one, or {fix}", rows)
            kind = type_at(schema, path)
            is_content = field == self.file_field
            if is_content and pa.types.is_struct(kind) and kind.get_field_index(FILE_BYTES) >= 0:
                if kind.get_field_index(FILE_PATH) >= 0:
                    columns[f"{field}.{FILE_PATH}"] = (*path, FILE_PATH)
                columns[field], kind = (*path, FILE_BYTES), kind.field(FILE_BYTES).type
            if pa.types.is_nested(kind) or (is_content and not _holds_bytes(kind)):
                what, shown = "bytes" if is_content else "text", shortened(str(kind), MOST_QUOTED)
                raise DamagedFileError(f"has no {what} in its field {field!r} but {shown}; {fix}", rows)
        return columns

    def _csv(self, path: str, separator: str, lost: sources.LostRecords, decoding: Decoding) -> Iterator["_Records"]:
        for rows in read_csv(path, self._needed(), self._optional(), separator, self.max_record_bytes, decoding):
            for number, reason in rows.lost:
                lost.add(f"row {number}", reason)
            if rows.table.num_rows:
                yield _Records(rows.table, rows.numbers)

    def _rows(self, table: pa.Table, numbers: npt.NDArray[np.int64], lost: sources.LostRecords) -> "_Records":
        """Return the rows that are valid UTF-8, within the length limit, and have a text and any required id."""

        def keep(kept: npt.NDArray[np.bool_] | None, reason: str) -> None:
            nonlocal table, numbers
            if kept is not None:
                for number in numbers[~kept].tolist():
                    lost.add(f"row {number}", reason)
                table, numbers = table.filter(pa.array(kept)), numbers[kept]

        for field in table.column_names:
            where = "" if field in (self.text_field, self.file_field) else f" in its field {field!r}"
            keep(up_to(table[field], self.max_record_bytes), too_long(self.max_record_bytes, where))
        for place, field in enumerate(table.column_names):
            if pa.types.is_dictionary(table[field].type):
                table = table.set_column(place, field, written_out(table[field]))
        for field in (name for name in table.column_names if name != self.file_field):
            keep(utf8_rows(table[field]), f"is not UTF-8 in its field {field!r}")
        for field in self._needed():
            keep(*self._filled(table, field))
        return _Records(table, numbers)

    def _filled(self, table: pa.Table, field: str) -> tuple[npt.NDArray[np.bool_] | None, str]:
        """Return which rows have a needed field, or None for all, and the reason to lose the others.

        Rows without a file are kept: a rule of the stage that reads files removes them, which the ledger lists.
        """
        is_there, reason = table[field].is_valid(), f"has null in its field {field!r}"
        if field == self.file_field:
            if (path := f"{field}.{FILE_PATH}") not in table.column_names:
                return None, ""
            is_there = pc.or_(is_there, table[path].is_null())
            reason = f"only names a file in its field {field!r}: lc.Crawl(data, content={field!r}) reads those"
        return None if pc.all(is_there).as_py() else is_there.to_numpy(zero_copy_only=False), reason

    def _lines(
        self, part: sources.Part, lost: sources.LostRecords, bad_files: sources.BadFiles, decoding: Decoding
    ) -> Iterator[pa.Table]:
        lines = TextLines(lost, _lines_before(part))
        checksums = bad_files.when_to_check(part.name)
        placed = _placed_steps(part, self.max_record_bytes, lost, "drop", checksums, lambda: lines.count, decoding)
        for at, step in placed:
            if step is not None:
                if lines.count == 0 and _begins_binary(step):
                    raise DamagedFileError(_BINARY)
                lines.add(step)
                continue
            texts, numbers, starts = lines.take()
            records = _Records(pa.table({self.text_field: texts}), numbers, self._moved(starts, at))
            yield self._table(part.name, records)

    def _file(self, name: str, path: str, decoding: Decoding) -> Iterator[pa.Table]:
        try:
            text = read_bytes(path, self.max_record_bytes, decoding=decoding).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DamagedFileError(f"is not UTF-8 ({error.reason} at byte {error.start})", 1) from error
        if seems_binary(text):
            raise DamagedFileError(_BINARY, 1)
        yield self._table(name, _Records(pa.table({self.text_field: pa.array([text], pa.large_string())}), None))

    def _binary(self, name: str, path: str) -> Iterator[pa.Table]:
        url = without_secrets(path) if is_url(path) else None
        columns = {
            CONTENT.name: pa.array([read_bytes(path, self.max_record_bytes)], CONTENT.type),
            self.url_field: pa.array([url], pa.string()),
        }
        yield self._table(name, _Records(pa.table(columns), None))

    def _table(self, name: str, records: "_Records") -> pa.Table:
        table, rows, schema = records.table, records.table.num_rows, self.schema()

        def column(field: str) -> Any:
            return table[field] if field in table.column_names else pa.nulls(rows, pa.string())

        found = {
            "url": column(self.url_field),
            "date": column(self.date_field),
            "language": column(self.language_field),
        }
        if self.language:
            found["language"] = pc.fill_null(as_text(found["language"]), self.language)
        found |= {"text": column(self.text_field), "source": self._source(name, rows), "id": pa.repeat(name, rows)}
        if self._holds_files:
            content = table[self.file_field or CONTENT.name]
            digests = [sources.digest_of(each.as_buffer()) if each.is_valid else None for each in content]
            found |= {CONTENT.name: content, sources.DIGEST.name: pa.array(digests, sources.DIGEST.type)}
        if self.id_field and self.id_field in table.column_names:
            found["id"] = table[self.id_field]
        elif records.numbers is not None:
            found["id"] = numbered_ids(name, records.numbers)
        if self.origins == "line":
            offsets = pa.nulls(rows) if records.offsets is None else records.offsets
            found |= {"file": pa.repeat(name, rows), "offset": offsets}
        found |= {field: column(field) for field in self.fields}
        columns = [(found[field.name], field.type) for field in schema]
        return pa.table([each if each.type == kind else as_text(each, kind) for each, kind in columns], schema=schema)

    def _moved(self, starts: npt.NDArray[np.int64] | None, by: int | None) -> pa.Array | None:
        """Return the byte offsets of lines in the file, given those in a block; None if unknown or not requested."""
        return None if self.origins == "file" or starts is None or by is None else pa.array(starts + by)

    def _source(self, name: str, rows: int) -> pa.Array:
        if self.source_from == "file":
            return pa.repeat(name, rows)
        folder, below, _ = name.partition("/")
        return pa.repeat(folder, rows) if below else pa.nulls(rows, pa.string())

    def _needed(self) -> list[str]:
        return [field for field in (self.file_field or self.text_field, self.id_field) if field]

    def _optional(self) -> tuple[str, ...]:
        return (self.url_field, self.date_field, self.language_field, *self.fields)

    def _hint(self, reason: str) -> str:
        """Add to a reason which setting to change if a field is missing."""
        for setting in ("text_field", "id_field", "file_field"):
            if reason.startswith(f"has no field {getattr(self, setting)!r}"):
                return f"{reason}; set {setting}{sources.OTHER_FIELD} ({_SET.format(setting)})"
        return reason


def _holds_bytes(kind: pa.DataType) -> bool:
    kind, types = kind.value_type if pa.types.is_dictionary(kind) else kind, pa.types
    is_binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return is_binary or bool(types.is_fixed_size_binary(kind))


@contextmanager
def without_set() -> Iterator[None]:
    """Reword errors of a source for commands that have ``--text-field`` instead of ``--set``."""
    try:
        yield
    except SourceError as wrong:
        sentence = str(wrong).replace(_SET.format("text_field"), "--text-field NAME")
        sentence = sentence.replace(sources.WITHOUT, "; fix it, or choose other files")
        sentence = sentence.replace(_SET_ENCODING, "--encoding ").replace("--set source.format=", "--format ")
        if sentence == str(wrong):
            raise
        raise SourceError(sentence) from wrong


def _json_names(path: str, most_bytes: int, decoding: Decoding) -> list[str]:
    steps = (each for each in read_steps(path, most_bytes=most_bytes, decoding=decoding) if each is not None)
    begin = bytes(next(steps, b"")).removeprefix(_MARK)
    if begins_array(begin):
        begin = next(array_blocks(read_bytes(path, most_bytes, decoding=decoding)), b"")
    names = dict[str, None]()
    for line in islice(begin.split(b"\n"), _LOOKED_AT):
        with suppress(ValueError):
            names |= dict.fromkeys(names_in(parse_object(line)))
    return list(names)


def _begins_binary(step: bytes | memoryview) -> bool:
    return seems_binary(str(step[:LOOKED_AT], "utf-8", "replace"))


def _lines_before(part: sources.Part) -> int:
    return 0 if part.section is None else part.section.first


def _read_array(path: str, most_bytes: int, checksums: sources.Checksums, decoding: Decoding) -> bytes:
    """Read a JSON file that begins with an array; UncheckedDataError if its beginning was used before its check."""
    try:
        noted_before = Decoding(decoding.encoding, lambda _: None)
        return read_bytes(path, most_bytes, None, noted_before)
    except DamagedFileError as damage:
        if checksums == "last":
            raise sources.UncheckedDataError(str(damage)) from damage
        raise


def _placed_steps(
    part: sources.Part,
    most_bytes: int,
    lost: sources.LostRecords,
    after_damage: Literal["keep", "drop"],
    checksums: sources.Checksums,
    lines_read: Callable[[], int],
    decoding: Decoding,
) -> Iterator[tuple[int | None, memoryview | None]]:
    """Read lines step by step, each with the byte offset of its block, or None if not UTF-8 or after lost lines."""
    (path,), section = part.files, part.section
    first = 0 if section is None else section.start
    place: int | None = first
    begin: int | None = None

    def note(encoding: str) -> None:
        nonlocal place
        place = place if encoding == "utf-8" else None
        decoding.note(encoding)

    def lose(loss: sources.Loss) -> None:
        nonlocal place
        place = None
        lost.add_loss(loss)

    read = partial(read_steps, on_loss=lose, after_damage=after_damage, checksums=checksums, lines_read=lines_read)
    noted, begins = Decoding(decoding.encoding, note), True
    for number, step in enumerate(read(path, most_bytes=most_bytes, decoding=noted, section=section)):
        if step is None:
            yield begin, None
            begins = True
            continue
        text = step[len(_MARK) :] if number == first == 0 and step[: len(_MARK)] == _MARK else step
        begin = (None if place is None else place + len(step) - len(text)) if begins else begin
        yield begin, text
        place, begins = None if place is None else place + len(step), False
