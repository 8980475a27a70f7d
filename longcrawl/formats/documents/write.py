"""Documents in parquet files as the end of a crawl or a run, see :mod:`longcrawl.formats.documents.spec`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import yaml

from longcrawl.core.outputs import OrderedWriter, Output, WriteTask, are_shuffled, output
from longcrawl.core.stages import Stage
from longcrawl.engines.base import Engine
from longcrawl.formats.documents.spec import DESCRIPTION, UNKNOWN, VERSION, dataset_configs, folder_name
from longcrawl.formats.order import Stretch, cut, exchange_order, order_documents
from longcrawl.formats.spill import SpillReader, ahead, read_order, row_groups, spill_documents
from longcrawl.formats.splits import check_heldout, split_rows, split_totals
from longcrawl.storage import sealed
from longcrawl.storage.files import file_entries, whole_file, write_text
from longcrawl.storage.stored_tables import GroupedTable


@output("parquet")
class ParquetOutput(Output):
    """Write documents as parquet files, see :mod:`longcrawl.formats.documents.spec`.

    ``file_bytes`` is how many bytes of documents a file holds at most, on average and before compression; ``by``
    "language" makes a folder and a dataset configuration for each value of the column ``language``. ``heldout`` is a
    fraction below 1 of all documents, or a whole number of them, of each language where there are several: the first
    of the order.

    Peak memory is some 160 MB in either pass, whatever the number of documents, as long as none is larger than a row
    group (benchmarks/parquet_write.py); ordering takes some 70 bytes for each of up to 34 million shuffled documents.
    The folder ``work`` of a run holds the documents once more, uncompressed, until it is done.
    """

    second_pass = ("file_bytes", "by", "heldout")

    file_bytes: int = 500_000_000
    by: Literal["none", "language"] = "none"
    heldout: float = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heldout(self.heldout, "parquet")
        self.check_least(file_bytes=1)

    def writer(self, stages: Sequence[Stage]) -> "ParquetWriter":
        """Learn from the stages whether documents have been shuffled; every stage can feed this output."""
        return ParquetWriter(self, are_shuffled(stages))


@dataclass(frozen=True)
class ParquetWriter(OrderedWriter):
    """Writes one folder of parquet files."""

    settings: ParquetOutput

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """First pass: keep the documents of one part, and the size, language and sort key of each."""
        spill_documents(tables, spill, part, shuffled=self.shuffled)

    def order(self, spill: Path, parts: int, engine: Engine) -> None:
        """Put documents in order by an exchange, where they are too many for one process."""
        exchange_order(spill, parts, engine, shuffled=self.shuffled, grouped=self.settings.by == "language")

    def plan(self, spill: Path, parts: int, target: Path) -> list[WriteTask]:
        """Order all documents, cut off the held-out ones, and list the files."""
        target.mkdir(parents=True, exist_ok=True)
        by_language = self.settings.by == "language"
        stretches, _ = order_documents(spill, parts, shuffled=self.shuffled, grouped=by_language)
        tasks: list[WriteTask] = []
        for stretch in stretches:
            for split, files in self._splits(stretch):
                for number, (start, stop) in enumerate(files):
                    name = f"{split}-{number:05d}-of-{len(files):05d}.parquet"
                    language = (stretch.group,) if by_language else ()
                    tasks.append(WriteTask(f"file-{len(tasks):06d}", (language, split, name, start, stop)))
        return tasks

    def write(self, spill: Path, target: Path, task: WriteTask) -> dict[str, Any]:
        """Second pass: gather the documents of one file, row group by row group."""
        language, split, name, start, stop = task.details
        path = "/".join([*map(folder_name, language), name])
        with whole_file(target / path) as beside, GroupedTable(beside) as file:
            for table in ahead(SpillReader(spill).read, row_groups(spill, start, stop)):
                file.add(table)
        return {
            "language": list(language),
            "split": split,
            "rows": stop - start,
            "bytes": int(read_order(spill, start, stop)["bytes"].sum()),
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
            languages = list(dict.fromkeys(each["language"][0] for each in written))
            described["languages"] = [
                {
                    "language": language,
                    "folder": folder_name(language),
                    "splits": _totals([each for each in written if each["language"] == [language]]),
                }
                for language in languages
            ]
        head = yaml.safe_dump({"configs": dataset_configs(described)}, sort_keys=False, allow_unicode=True)
        about = f"Documents written by longcrawl; `{DESCRIPTION}` describes every file."
        write_text(target / "README.md", f"---\n{head}---\n\n{about}\n")
        files = [each["files"] for each in written] + [file_entries(target, ["README.md"])]
        described["files"] = dict(sorted(entry for entries in files for entry in entries.items()))
        write_text(target / DESCRIPTION, sealed.seal(described))
        return described

    def _splits(self, stretch: Stretch) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return the files of each split of one stretch of documents."""
        rows = len(stretch.sizes)
        of = f" of language {stretch.group or UNKNOWN!r}" if self.settings.by == "language" else ""
        splits = split_rows(self.settings.heldout, rows, of=of)
        return [(split, cut(stretch, *bounds, self.settings.file_bytes)) for split, bounds in splits.items()]


def _totals(written: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    return split_totals(written, {"documents": "rows", "bytes": "bytes"}, "files")
