"""Documents as parquet files that plain ``load_dataset`` reads; docs/formats.md shows their folder.

Files have a row per document with all its columns except ``sort_key``, zstd level 3, about 32 MiB in each row group.
``README.md`` has the configurations for `datasets`: ``documents``, or one for each language and ``all``, the default.
``parquet.json`` is written last, with its own SHA-256 at its end: without it the output is unfinished.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from longcrawl.core import outputs
from longcrawl.core.batches import plain_dtypes
from longcrawl.core.display import Code, Column, Table, code, counted, plain
from longcrawl.core.exchange import Engine
from longcrawl.core.removal import PROOF_LETTERS, Changes, Proof, Removal, rows_of_ids
from longcrawl.core.stages import Stage
from longcrawl.errors import CorruptionError, FormatError, as_lines, printable
from longcrawl.formats import order
from longcrawl.io import structured
from longcrawl.io.files import file_entries, whole_file, write_text
from longcrawl.io.stored_tables import GroupedTable, read_footers, read_row, read_table, scan_tables, table_writer
from longcrawl.io.structured import Verification

if TYPE_CHECKING:
    import pyarrow.dataset as pads

DESCRIPTION, README = "parquet.json", "README.md"
VERSION = 1
UNKNOWN = "unknown"
RESERVED = ("all", "ledger", "edits", UNKNOWN)
LONGEST = 100


def folder_name(language: str | None, what: str = "language", setting: str = "parquet.by to none") -> str:
    """Name the folder and configuration of a value, such as a language; each gets a different name.

    Bytes other than ASCII letters, digits, ``-`` and ``_`` become ``~`` and two hexadecimal digits, and so does the
    first letter of a name that is reserved or begins with ``_``.

    >>> [folder_name(each) for each in ("en", "zh-Hant", "eng_Latn", None, "unknown", "en/US", "..", "_x")]
    ['en', 'zh-Hant', 'eng_Latn', 'unknown', '~75nknown', 'en~2FUS', '~2E~2E', '~5Fx']
    """
    if language is None:
        return UNKNOWN
    escaped = re.sub(rb"[^A-Za-z0-9_-]", lambda byte: b"~%02X" % byte[0][0], language.encode()).decode() or "~"
    if language in RESERVED or language.startswith("_"):
        escaped = f"~{ord(language[0]):02X}{escaped[1:]}"
    if len(escaped) > LONGEST:
        raise FormatError(
            f"the {what} {language[:40]!r}… is too long for a folder name: set {setting}, "
            f"or correct the column {what!r}"
        )
    return escaped


def dataset_configs(described: Mapping[str, Any], folder: str = "") -> list[dict[str, Any]]:
    """Return the dataset configurations that ``README.md`` declares; each path begins with ``folder``."""
    if described["by"] == "none":
        found = {"documents": ("", described["splits"])}
    else:
        found = {"all": ("*/", described["splits"])}
        found |= {each["folder"]: (f"{each['folder']}/", each["splits"]) for each in described["languages"]}
    configs: list[dict[str, Any]] = []
    for name, (place, splits) in found.items():
        files = [{"split": split, "path": f"{folder}{place}{split}-*.parquet"} for split in splits]
        configs.append({"config_name": name, "data_files": files} | ({} if configs else {"default": True}))
    return configs


def read_description(path: Path) -> dict[str, Any]:
    """Read ``parquet.json``; errors are those of :func:`longcrawl.io.structured.read_description`."""
    return structured.read_description(
        path / DESCRIPTION, "parquet", VERSION, ("splits", "by", "columns", "files"), ("documents", "bytes", "files")
    )


@outputs.output("parquet")
class ParquetOutput(outputs.Output):
    """Write documents as parquet files in the format of :mod:`longcrawl.formats.documents`.

    Each pass needs some 160 MB of memory, whatever the number of documents, as long as none is larger than a row
    group (benchmarks/parquet_write.py). Ordering needs some 70 bytes for each of up to 34 million shuffled documents.
    Until the run is done, its folder ``work`` holds a second, uncompressed copy of the documents.

    Args:
        file_bytes: most bytes of documents per file, on average and before compression.
        by: "language" makes a folder and a dataset configuration for each value of the column ``language``.
        heldout: documents to hold out, as a fraction below 1 or a whole number; with ``by`` "language", of each
            language. They are the first of the order.
    """

    second_pass = ("file_bytes", "by", "heldout")

    file_bytes: int = 500_000_000
    by: Literal["none", "language"] = "none"
    heldout: float = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        order.check_heldout(self.heldout, "parquet")
        self.check_least(file_bytes=1)

    def writer(self, stages: Sequence[Stage]) -> "ParquetWriter":
        """Return a writer that keeps the order of a shuffle if the stages contain one; any stage can feed it."""
        return ParquetWriter(self, outputs.are_shuffled(stages))


@dataclass(frozen=True)
class ParquetWriter(outputs.OrderedWriter):
    """Writer of one folder of parquet files."""

    settings: ParquetOutput

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """Spill the documents of one part, with the size, language and sort key of each (first pass)."""
        order.spill_documents(tables, spill, part, shuffled=self.shuffled)

    def order(self, spill: Path, parts: int, engine: Engine) -> None:
        """Order the documents by an exchange if there are too many for one process."""
        order.exchange_order(spill, parts, engine, shuffled=self.shuffled, grouped=self.settings.by == "language")

    def plan(self, spill: Path, parts: int) -> list[outputs.WriteTask]:
        """Order all documents, split off the held-out ones, and list the files to write."""
        by_language = self.settings.by == "language"
        stretches, _ = order.order_documents(spill, parts, shuffled=self.shuffled, grouped=by_language)
        tasks: list[outputs.WriteTask] = []
        for stretch in stretches:
            language = (stretch.group,) if by_language else ()
            of = f" of language {stretch.group or UNKNOWN!r}" if by_language else ""
            for split, bounds in order.split_rows(self.settings.heldout, len(stretch.sizes), of=of).items():
                files = order.cut(stretch, *bounds, self.settings.file_bytes)
                for number, (start, stop) in enumerate(files):
                    name = f"{split}-{number:05d}-of-{len(files):05d}.parquet"
                    tasks.append(outputs.WriteTask(f"file-{len(tasks):06d}", (language, split, name, start, stop)))
        return tasks

    def write(self, spill: Path, target: Path, task: outputs.WriteTask) -> dict[str, Any]:
        """Write one file, row group by row group (second pass)."""
        language, split, name, start, stop = task.details
        path = "/".join([*map(folder_name, language), name])
        with whole_file(target / path) as beside, GroupedTable(beside) as file:
            for table in order.ahead(order.SpillReader(spill).read, order.row_groups(spill, start, stop)):
                file.add(table)
        return {
            "language": list(language),
            "split": split,
            "rows": stop - start,
            "bytes": int(order.read_order(spill, start, stop)["bytes"].sum()),
            "columns": {column.name: str(column.type) for column in file.schema},
            "files": file_entries(target, [path]),
        }

    def finish(self, spill: Path, target: Path, written: Sequence[dict[str, Any]]) -> dict[str, Any]:  # noqa: ARG002  # files are final
        """Describe every file in ``parquet.json``, and the configurations in ``README.md``."""
        described: dict[str, Any] = {
            "longcrawl_parquet": VERSION,
            "by": self.settings.by,
            **self.described_order,
            "columns": written[0]["columns"],
            "splits": _totals(written),
        }
        if self.settings.by == "language":
            described["languages"] = [
                {"language": language, "folder": folder_name(language), "splits": _totals(list(group))}
                for (language,), group in groupby(written, itemgetter("language"))  # as they were planned
            ]
        files = dict(entry for each in written for entry in each["files"].items())
        _write_readme(target, described, files)
        described["files"] = dict(sorted((files | file_entries(target, [README])).items()))
        write_text(target / DESCRIPTION, structured.seal(described))
        return described


def _write_readme(folder: Path, described: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    # `datasets` caches rows under a hash of the configuration, not of the files: without the digest in it, a folder of
    # the same name with other documents would load the old ones.
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    configs = [each | {"description": f"SHA-256 of its files: {digest}"} for each in dataset_configs(described)]
    head = yaml.safe_dump({"configs": configs}, sort_keys=False, allow_unicode=True)
    about = f"Documents written by longcrawl; `{DESCRIPTION}` describes every file."
    write_text(folder / README, f"---\n{head}---\n\n{about}\n")


def _totals(written: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    return order.split_totals(written, {"documents": "rows", "bytes": "bytes"}, "files")


CHARACTERS = 600
VALUE = 100
"""Characters shown of a column's value."""


@dataclass(frozen=True, kw_only=True)
class ParquetInspection(outputs.Inspection):
    """Description of one split of parquet files, with one of its documents."""

    documents: int
    files: int
    stored_bytes: int
    document_bytes: int
    columns: Mapping[str, str]
    values: Mapping[str, str]
    """The document's other columns, each shortened to at most ``VALUE`` characters."""

    def __str__(self) -> str:
        smaller = self.document_bytes / max(self.stored_bytes, 1)
        lines = [
            f"{self.path}  split {self.split}: {self.documents:,} documents in {counted(self.files, 'file')}",
            f"columns {', '.join(f'{name} {kind}' for name, kind in self.columns.items())}",
            f"{self.stored_bytes:,} bytes stored, {smaller:.2f} times smaller than raw",
            f"document {self.row}: {self.row_id or 'without an id'}  {self.url or ''}".rstrip(),
            *(f"  {name}: {value}" for name, value in self.values.items()),
        ]
        return f"{as_lines(lines)}\n{'  (no text)' if self.text is None else printable(self.text)}"

    __repr__ = __str__


@outputs.result
class ParquetResult(outputs.Result):
    """Documents in parquet files, readable without longcrawl."""

    name: ClassVar[str] = "parquet"
    description: ClassVar[str] = DESCRIPTION
    tags: ClassVar[tuple[str, ...]] = ("web-text",)
    fewer_files: ClassVar[str] = "a larger parquet.file_bytes"
    smaller_files: ClassVar[str] = "a smaller parquet.file_bytes"

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return the number of documents and files in each split, and of language folders."""
        splits = described["splits"].items()
        parts = [f"{name} {each['documents']:,} documents in {counted(each['files'], 'file')}" for name, each in splits]
        languages = described.get("languages")
        return ", ".join([*parts, *([counted(len(languages), "folder")] if languages else [])])

    def read_back(self, folder: Path) -> str:
        """Read the first document with the features that `datasets` gives it, and describe it."""
        # No `datasets` stream: pyarrow aborts a process that exits soon after abandoning one (apache/arrow#45214).
        files = _files(folder, read_description(folder), "train")[:1]
        first = _document(files, 0)
        schema = read_footers(files)[0].schema.to_arrow_schema()
        if (kinds := plain_dtypes(schema)) is None:
            from datasets import Features

            features = Features.from_arrow_schema(schema).items()
            kinds = {name: getattr(feature, "dtype", type(feature).__name__) for name, feature in features}
        columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        shown = f"; the first is {first['id']}" if "id" in first else ""
        return f"documents of {columns}{shown}"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return one configuration, or one for each language and one for all documents."""
        return dataset_configs(described, "parquet/")

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of documents and bytes by split, and by language if files are grouped by it."""
        by_language = described["by"] == "language"
        counts = ("documents", "bytes", "files")
        groups = [(each["folder"], each["splits"]) for each in described["languages"]] if by_language else []
        rows = [
            [*([Code(name)] if by_language else []), split, *(each[count] for count in counts)]
            for name, splits in [("all", described["splits"]), *groups]
            for split, each in splits.items()
        ]
        names = [Column("configuration"), Column("split")] if by_language else [Column("split")]
        table = Table([*names, *(Column(count, "count") for count in counts)], rows)
        columns = ", ".join(f"{code(name)} {plain(kind)}" for name, kind in described["columns"].items())
        about = (
            f"Every row is one document: {columns}. Bytes are before compression. {order.describe_order(described)}."
        )
        return f"{table.markdown()}\n\n{about}"

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the name of one configuration, for the loading example of the card."""
        return {"configuration": dataset_configs(described, "parquet/")[-1]["config_name"]}

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe how languages are assigned, and warn if there is no column ``text``."""
        limits = []
        if described["by"] == "language":
            limits.append(f"A language is what the column `language` says; documents without one are in `{UNKNOWN}`.")
        if "text" not in described["columns"]:
            limits.append("The documents have no column `text`.")
        return limits

    def verify(self, folder: Path) -> Verification:
        """Compare every file with its checksum, and fail on parquet files that the description does not list."""
        return Verification.by_description(folder, DESCRIPTION, read_description(folder), "*.parquet")

    def inspect(self, folder: Path, split: str, row: int) -> ParquetInspection:
        """Describe a split and return one document; languages are read one after the other."""
        described = read_description(folder)
        counts = order.counts_of_split(folder, described, split, row)
        files = _files(folder, described, split)
        found = _document(files, row)
        text, row_id, url = (found.pop(name, None) for name in ("text", "id", "url"))
        return ParquetInspection(
            path=str(folder),
            split=split,
            row=row,
            row_id=None if row_id is None else str(row_id),
            url=url,
            text=None if text is None else str(text)[:CHARACTERS],
            documents=counts["documents"],
            files=counts["files"],
            stored_bytes=sum(file.stat().st_size for file in files),
            document_bytes=counts["bytes"],
            columns=described["columns"],
            values={name: _shown(value) for name, value in found.items()},
        )

    def without(self, folder: Path, ids: pa.Array, settings: outputs.Output) -> Removal:  # noqa: ARG002  # files are alike
        """Rewrite the files that contain some documents; see :class:`longcrawl.core.outputs.Result`."""
        changes, proof, gone = Changes(folder, read_description(folder)), Proof(PROOF_LETTERS), 0
        for name in [name for name in changes.described["files"] if name.endswith(".parquet")]:
            if len(rows := rows_of_ids(read_table(folder / name, ["id"]), ids)):
                gone += len(rows)
                changes.changed.append(name)
                removed = set(rows.tolist())
                for row, each in enumerate(_letters(read_table(folder / name))):
                    proof.before(*each, kept=row not in removed)
        for name in changes.changed:
            _rewrite(changes, name, ids, proof)
        if changes.changed:
            files = {name: changes.entry(name) for name in changes.described["files"] if name != README}
            _write_readme(folder, changes.described, files)
            changes.changed.append(README)
        return changes.finish(DESCRIPTION, gone, proof)

    def ids(self, folder: Path) -> "pads.FileSystemDataset":
        """Return a dataset of all parquet files."""
        return scan_tables(sorted(folder.rglob("*.parquet")))


def _files(folder: Path, described: Mapping[str, Any], split: str) -> list[Path]:
    return [folder / name for name in described["files"] if Path(name).name.startswith(f"{split}-")]


def _document(files: list[Path], row: int) -> dict[str, Any]:
    """Read one document by its row in the joined files of a split; only its row group is read."""
    if (found := read_row(files, row)) is not None:
        return found
    raise CorruptionError(
        f"the files hold fewer documents than {DESCRIPTION} records; longcrawl verify shows what is wrong"
    )


def _shown(value: Any) -> str:
    shown = " ".join(str(value).split())
    return shown if len(shown) <= VALUE else f"{shown[: VALUE - 1]}…"


def _rewrite(changes: Changes, name: str, ids: pa.Array, proof: Proof) -> None:
    file = changes.folder / name
    table = read_table(file)
    here = np.ones(table.num_rows, bool)
    here[rows_of_ids(table, ids)] = False
    kept = table.filter(pa.array(here)).combine_chunks()
    with whole_file(file) as beside, table_writer(beside, table.schema, compression="zstd", compression_level=3) as out:
        sizes = np.concatenate([np.empty(0, np.int64), *map(order.row_sizes, kept.to_batches())])
        for first, last in order.changes((np.cumsum(sizes) - sizes) // order.ROW_GROUP):
            out.write_table(kept.slice(first, last - first).combine_chunks(), row_group_size=last - first)
    # The description still has the size of the file before the rewrite.
    for name_of, letters in _letters(pq.read_table(file, partitioning=None, page_checksum_verification=True)):
        proof.after(name_of, letters)
        proof.look([letters])
    lost = int(sum(sizes.sum() for sizes in map(order.row_sizes, table.filter(pa.array(~here)).to_batches())))
    split = Path(name).name.partition("-")[0]
    groups = [each for each in changes.described.get("languages", []) if name.startswith(f"{each['folder']}/")]
    for splits in [changes.described["splits"], *(each["splits"] for each in groups)]:
        splits[split]["documents"] -= int((~here).sum())
        splits[split]["bytes"] -= lost


def _letters(table: pa.Table) -> "list[tuple[bytes, np.ndarray[tuple[int], np.dtype[np.uint32]]]]":
    texts = pc.fill_null(table["text"], "").to_pylist() if "text" in table.column_names else [""] * table.num_rows
    names = [str(name).encode("utf-8", "surrogatepass") for name in table["id"].to_pylist()]
    return [(name, np.frombuffer(text.encode("utf-32-le"), np.uint32)) for name, text in zip(names, texts, strict=True)]
