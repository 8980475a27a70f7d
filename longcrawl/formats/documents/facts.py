"""Summary, card text, verification and inspection of documents in parquet files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from longcrawl.core.features import plain_dtypes
from longcrawl.core.outputs import Output
from longcrawl.core.removal import LETTERS, Changes, Proof, Removal, rows_of_ids
from longcrawl.core.results import Inspection, Result, Verification, result
from longcrawl.display.markdown import code, plain
from longcrawl.display.numbers import counted
from longcrawl.display.table import Code, Column, Table
from longcrawl.errors import CorruptionError
from longcrawl.formats.documents.spec import DESCRIPTION, UNKNOWN, dataset_configs, read_description
from longcrawl.formats.order import describe_order
from longcrawl.formats.spill import ROW_GROUP, row_sizes
from longcrawl.formats.spill import changes as stretches
from longcrawl.formats.splits import counts_of_split
from longcrawl.printable import as_lines, printable
from longcrawl.storage.files import whole_file
from longcrawl.storage.stored_tables import read_footers, read_row, read_table, scan_tables, table_writer

CHARACTERS = 600
VALUE = 100
"""Characters of a value that are shown."""


@dataclass(frozen=True, kw_only=True)
class ParquetInspection(Inspection):
    """What one split of parquet files holds, and one of its documents."""

    documents: int
    files: int
    stored_bytes: int
    document_bytes: int
    columns: Mapping[str, str]
    values: Mapping[str, str]
    """The other columns of the document, each as a short text."""

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


@result
class ParquetResult(Result):
    """Documents in parquet files, which everybody reads."""

    name: ClassVar[str] = "parquet"
    description: ClassVar[str] = DESCRIPTION
    tags: ClassVar[tuple[str, ...]] = ("web-text",)
    fewer_files: ClassVar[str] = "a larger parquet.file_bytes"
    smaller_files: ClassVar[str] = "a smaller parquet.file_bytes"

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return documents and files of every split, and how many folders of languages."""
        splits = described["splits"].items()
        parts = [f"{name} {each['documents']:,} documents in {counted(each['files'], 'file')}" for name, each in splits]
        languages = described.get("languages")
        return ", ".join([*parts, *([counted(len(languages), "folder")] if languages else [])])

    def read_back(self, folder: Path) -> str:
        """Read the first document with the features that `datasets` gives it, and say what came."""
        # Not a stream of `datasets`: pyarrow aborts a process that ends soon after one was left (apache/arrow#45214).
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
        """Return one configuration, or one for each language and one for all."""
        return dataset_configs(described, "parquet/")

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of documents and bytes, by language where there are several."""
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
        about = f"Every row is one document: {columns}. Bytes are before compression. {describe_order(described)}."
        return f"{table.markdown()}\n\n{about}"

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the name of the configuration that has all documents."""
        return {"configuration": dataset_configs(described, "parquet/")[-1]["config_name"]}

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe what languages are."""
        limits = []
        if described["by"] == "language":
            limits.append(f"A language is what the column `language` says; documents without one are in `{UNKNOWN}`.")
        if "text" not in described["columns"]:
            limits.append("The documents have no column `text`.")
        return limits

    def verify(self, folder: Path) -> Verification:
        """Compare every file with its checksum; one that is not described would be loaded with the others."""
        return Verification.by_description(folder, DESCRIPTION, read_description(folder), "*.parquet")

    def inspect(self, folder: Path, split: str, row: int) -> ParquetInspection:
        """Return how much a split holds, and one document; languages come one after the other."""
        described = read_description(folder)
        counts = counts_of_split(folder, described, split, row)
        files = _files(folder, described, split)
        found = _document(files, row)
        text = found.pop("text", None)
        row_id, url = found.pop("id", None), found.pop("url", None)
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

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:  # noqa: ARG002  # files are alike
        """Write the files that hold some documents again; see :class:`longcrawl.core.results.Result`."""
        return _without_documents(folder, ids)

    def ids(self, folder: Path) -> pads.FileSystemDataset:
        """Return all files."""
        return scan_tables(sorted(folder.rglob("*.parquet")))


def _files(folder: Path, described: Mapping[str, Any], split: str) -> list[Path]:
    """Return the files of a split, in the order of ``parquet.json``."""
    return [folder / name for name in described["files"] if Path(name).name.startswith(f"{split}-")]


def _document(files: list[Path], row: int) -> dict[str, Any]:
    """Read one document, of a split's files end to end; only its row group is read."""
    if (found := read_row(files, row)) is not None:
        return found
    raise CorruptionError(
        f"the files hold fewer documents than {DESCRIPTION} says; longcrawl verify says what is wrong"
    )


def _shown(value: Any) -> str:
    shown = " ".join(str(value).split())
    return shown if len(shown) <= VALUE else f"{shown[: VALUE - 1]}…"


def _without_documents(folder: Path, ids: pa.Array) -> Removal:
    """Write the files that hold some documents again without them; see :class:`longcrawl.core.results.Result`."""
    changes, proof, gone = Changes(folder, read_description(folder)), Proof(LETTERS), 0
    for name in [name for name in changes.described["files"] if name.endswith(".parquet")]:
        if len(rows := rows_of_ids(read_table(folder / name, ["id"]), ids)):
            gone += len(rows)
            changes.changed.append(name)
            removed = set(rows.tolist())
            for row, each in enumerate(_letters(read_table(folder / name))):
                proof.before(*each, kept=row not in removed)
    for name in changes.changed:
        _rewrite(changes, name, ids, proof)
    return changes.finish(DESCRIPTION, gone, proof)


def _rewrite(changes: Changes, name: str, ids: pa.Array, proof: Proof) -> None:
    file = changes.folder / name
    table = read_table(file)
    here = np.ones(table.num_rows, bool)
    here[rows_of_ids(table, ids)] = False
    kept = table.filter(pa.array(here)).combine_chunks()
    with whole_file(file) as beside, table_writer(beside, table.schema, compression="zstd", compression_level=3) as out:
        sizes = np.concatenate([np.empty(0, np.int64), *map(row_sizes, kept.to_batches())])
        for first, last in stretches((np.cumsum(sizes) - sizes) // ROW_GROUP):
            out.write_table(kept.slice(first, last - first).combine_chunks(), row_group_size=last - first)
    # The description names the file as it was.
    for name_of, letters in _letters(pq.read_table(file, partitioning=None, page_checksum_verification=True)):
        proof.after(name_of, letters)
        proof.look([letters])
    lost = int(sum(sizes.sum() for sizes in map(row_sizes, table.filter(pa.array(~here)).to_batches())))
    split = Path(name).name.partition("-")[0]
    groups = [each for each in changes.described.get("languages", []) if name.startswith(f"{each['folder']}/")]
    for splits in [changes.described["splits"], *(each["splits"] for each in groups)]:
        splits[split]["documents"] -= int((~here).sum())
        splits[split]["bytes"] -= lost


def _letters(table: pa.Table) -> "list[tuple[bytes, np.ndarray[tuple[int], np.dtype[np.uint32]]]]":
    """Return each document's id, and the code points of its text."""
    texts = pc.fill_null(table["text"], "").to_pylist() if "text" in table.column_names else [""] * table.num_rows
    names = [str(name).encode("utf-8", "surrogatepass") for name in table["id"].to_pylist()]
    return [(name, np.frombuffer(text.encode("utf-32-le"), np.uint32)) for name, text in zip(names, texts, strict=True)]
