"""Takedown: write a run without some of its documents to a new folder.

All files of the run are linked into the new folder, or copied if the file system cannot link. Files that hold one of
the documents are then replaced. The manifest is written last.
"""

import datetime as dt
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from longcrawl.core.counts import EDITS, LEDGER, QUEUES
from longcrawl.core.display import counted
from longcrawl.core.ledger import open_ledger
from longcrawl.core.outputs import RESULTS
from longcrawl.core.queues import SCHEMA
from longcrawl.core.removal import Removal, rows_of_ids
from longcrawl.dedup.exact import normalise_url
from longcrawl.dedup.index import DESCRIPTION as INDEX_DESCRIPTION
from longcrawl.dedup.index import INDEX, remove_from_index
from longcrawl.errors import CorruptionError, RunError, as_lines, listed, unreadable
from longcrawl.io.files import check_target, file_entries, partial_path, remove, whole_file, write_text, writing
from longcrawl.io.stored_tables import as_written, read_table, table_writer, write_table
from longcrawl.io.structured import load_json, seal
from longcrawl.run.analysis import analyse
from longcrawl.run.card.write import card
from longcrawl.run.manifest import MANIFEST, TOKEN_TABLES, read_sealed
from longcrawl.run.recipe import parse_recipe
from longcrawl.text.refinedweb.opt_out import Entry, named_domains, of_domains
from longcrawl.urls import is_url

RECORD = "takedown.json"
"""File that records every takedown of a run: the requests and their results."""
VERSION = 1
NAMED: Mapping[str, Sequence[str]] = {
    LEDGER: ("kept_id",),
    EDITS: ("also_id", "also_span"),
    **dict.fromkeys(QUEUES, ()),
}
"""Columns of the ledgers that name another document; they are set to null if that one is taken down."""


@dataclass(frozen=True)
class Takedown:
    """Result of a takedown; ``str`` describes it for people."""

    path: str
    asked: str
    listed: dict[str, int]
    """Number of entries in each list: "ids", "urls" and "domains"."""
    documents: int
    ledger_rows: int
    """Rows of ledgers, edits and queues that named one of the documents."""
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    unchanged: int
    windows: int
    found: int
    unmatched: tuple[str, ...] = ()
    """List entries without a document in the run; the record has only their number."""

    def __str__(self) -> str:
        lists = ", ".join(counted(count, name.removesuffix("s"), name) for name, count in self.listed.items())
        rows, written = counted(self.ledger_rows, "row"), counted(len(self.changed), "file")
        files = f"{written} rewritten, {len(self.dropped):,} removed, {self.unchanged:,} unchanged"
        others = f"{self.found:,} found, which other documents also have" if self.found else "none found"
        return as_lines(
            [
                f"{self.path}: {counted(self.documents, 'document')} removed for {lists}",
                f"{rows} of the ledgers; {files}",
                f"searched these files for {self.windows:,} passages of the documents: {others}",
                *([f"no document found for {listed(map(_quoted, self.unmatched))}"] if self.unmatched else []),
            ]
        )

    __repr__ = __str__


def takedown(
    run: str | Path,
    out: str | Path,
    *,
    ids: Any = None,
    urls: Any = None,
    domains: Any = None,
    asked: str | None = None,
) -> Takedown:
    """Write a run without some documents to a new folder; the run itself does not change.

    Only files that hold one of the documents are written, and only these need to be sent by a later ``push``. All
    others are links to the files of the run. ``takedown.json`` records the request, without ids and URLs, and the
    proof.

    >>> lc.takedown("crawl", "crawl-2", domains=["example.org"], asked="2026-11-02")  # doctest: +SKIP

    Args:
        run: the folder of a finished run.
        out: the new folder.
        ids: the ids, or a file with an id in each line. White space counts. A ``.jsonl`` file has a JSON string in each
            line, so that an id may have line breaks.
        urls: the URLs, or a file of them; they are compared in the form of :func:`longcrawl.dedup.normalise_url`.
        domains: the domains, or a file of them; their subdomains are included.
        asked: the date of the request, such as 2026-11-02; None for today.

    Raises:
        RunError: the run has none of the documents, the folder exists, or the date is not valid.
        FormatError: documents cannot be removed from this output.
        CorruptionError: a file of the run is damaged, or other documents have changed.
    """
    try:
        day = dt.datetime.now(dt.UTC).date() if asked is None else dt.date.fromisoformat(asked)
    except ValueError:
        raise RunError(f"--asked {asked!r} is not a date: write it as 2026-11-02") from None
    folder, target = Path(run), Path(out)
    if is_url(str(run)) or is_url(str(out)):
        raise RunError(f"a takedown needs a local folder: fetch {run} first, and push the new run")
    check_target(target, RunError, "remove it, or choose another --out")
    if folder.resolve() in target.resolve().parents:
        raise RunError(f"{target} is inside {folder}, which is not changed: choose another --out")
    wanted, manifest = Asked.read(ids, urls, domains), read_sealed(folder)
    name = manifest["output"]["format"]
    result = RESULTS[name]
    for queue in QUEUES:
        with open_ledger(folder / queue, SCHEMA) as rows:
            wanted.queued.update(wanted.find(rows).to_pylist() if rows.files else ())
    gone = wanted.find(result.ids(folder / name))
    beside = partial_path(target)
    try:
        with writing(target, RunError, "make room, or choose another --out"):
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(folder, beside, manifest)
            work = _Takedown(folder, beside, manifest, gone, wanted)
            work.take_out(result.without(beside / name, gone, parse_recipe(manifest["recipe"]).output))
            if not len(gone) and not work.ledger_rows:
                total = counted(sum(wanted.counts.values()), "entry", "entries")
                check = f"check {listed(map(_quoted, wanted.unmatched()))}; longcrawl inspect shows ids and URLs"
                raise RunError(f"{folder} holds none of the {total}: {check}")
            made = work.finish(str(target), day.isoformat())
            beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return made


def _link(folder: Path, beside: Path, manifest: dict[str, Any]) -> None:
    for name in manifest["files"]:
        (beside / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).is_file():
            raise CorruptionError(f"{folder / name} is missing; longcrawl verify {folder} lists all that is wrong")
        try:
            os.link(folder / name, beside / name)
        except OSError:
            shutil.copyfile(folder / name, beside / name)


@dataclass(frozen=True)
class Asked:
    """The documents to take down.

    Attributes:
        lists: the entries of the lists "ids", "urls" and "domains", by the form in which they are compared: URLs in
            that of :func:`longcrawl.dedup.normalise_url`, domains in that of the stage ``opt_out``, with subdomains.
        matched: pairs of list name and entry for which a document was found.
        queued: ids of documents in the queues of the run, which have URLs also if they were removed.
    """

    lists: Mapping[str, Mapping[str, str]]
    matched: set[tuple[str, str]] = field(default_factory=set)
    queued: set[str] = field(default_factory=set)

    @property
    def counts(self) -> dict[str, int]:
        """The number of entries in each list that is not empty, by its name."""
        return {kind: len(lines) for kind, lines in self.lists.items() if lines}

    def unmatched(self) -> tuple[str, ...]:
        """Return the entries for which no document was found."""
        lines = ((kind, each, line) for kind, listed in self.lists.items() for each, line in listed.items())
        return tuple(line for kind, each, line in lines if (kind, each) not in self.matched)

    @classmethod
    def read(cls, ids: Any = None, urls: Any = None, domains: Any = None) -> "Asked":
        """Read the lists, each given as a file or as the entries themselves."""
        lists = {"ids": {each: each for each in _entries(ids)}}
        lists["urls"] = {normalise_url(each): each for each in _entries(urls) if each.strip()}
        lists["domains"] = {name: each for each in _entries(domains) for name in named_domains(each.strip())}
        if not any(lists.values()):
            raise RunError("nothing to take down: add --ids, --urls or --domains, a file with one per line")
        if wrong := sorted(each for each in lists["domains"] if not each or any(mark in each for mark in "/: ")):
            raise RunError(f"{wrong[0]!r} is not a domain: list names such as example.org, and put URLs in --urls")
        return cls(lists)

    def find(self, documents: pads.FileSystemDataset) -> pa.Array:
        """Return the distinct ids (strings) of the documents of an output to take down."""
        if not documents.files or "id" not in documents.schema.names:
            raise RunError("the output records no ids of documents: run its recipe again, with the stage opt_out")
        columns = [name for name in ("id", "url") if name in documents.schema.names]
        ids = self.lists["ids"]
        found = dict[str, None]()
        for batch in documents.to_batches(columns=columns):
            names = pc.cast(batch.column(0), pa.string())
            among = pc.is_in(names, value_set=pa.array(sorted({*ids, *self.queued}), pa.string()))
            among = among.to_numpy(zero_copy_only=False)
            if len(columns) > 1:
                among = among | self._match(pc.cast(batch.column(1), pa.large_string()))
            for name in names.filter(pa.array(among)).to_pylist():
                if name is None:
                    raise RunError("one of these documents has no id: run the recipe again, with the stage opt_out")
                found[name] = None
        self.matched.update(("ids", name) for name in ids.keys() & found.keys())
        return pa.array(found, pa.string())

    def _match(self, urls: pa.Array) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        found, asked, domains = np.zeros(len(urls), bool), self.lists["urls"], self.lists["domains"]
        if asked:
            spelled = [None if url is None else normalise_url(url) for url in urls.to_pylist()]
            found |= np.array([url in asked for url in spelled], bool)
            self.matched.update(("urls", url) for url in asked.keys() & set(spelled))
        if domains:
            entries = of_domains(pc.fill_null(urls, ""), {each: (Entry(each, ""),) for each in domains})
            found |= np.array([bool(each) for each in entries], bool)
            self.matched.update(("domains", entry.path) for each in entries for entry in each)
        return found


def _entries(given: Any) -> list[str]:
    """Return the distinct entries of a list or a file.

    A file has an entry in each line: a JSON string if its name ends with ``.jsonl``, else the line without its end.
    """
    if given is None:
        return []
    if not isinstance(given, str | Path):
        return list(dict.fromkeys(map(str, given)))
    with unreadable(given, RunError, "name a text file in UTF-8, a line for each"):
        text = Path(given).read_bytes().decode("utf-8-sig")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if str(given).endswith(".jsonl"):
        return list(dict.fromkeys(_string(given, *each) for each in enumerate(lines, 1) if each[1].strip()))
    return list(dict.fromkeys(line for line in lines if line))


def _string(file: str | Path, number: int, line: str) -> str:
    found = None
    with suppress(ValueError):
        found = load_json(line)
    if not isinstance(found, str):
        raise RunError(f'{file}, line {number:,}, is not a JSON string: write "ID", with \\n for a line break')
    return found


def _quoted(entry: str) -> str:
    """Quote an entry for a message if it is empty or has white space."""
    return entry if entry.split() == [entry] else repr(entry)


class _Takedown:
    def __init__(self, folder: Path, beside: Path, manifest: dict[str, Any], gone: pa.Array, wanted: Asked) -> None:
        self.folder, self.beside, self.manifest, self.gone, self.wanted = folder, beside, manifest, gone, wanted
        self.removal: Removal
        self.ids = pa.array(sorted({*gone.to_pylist(), *wanted.lists["ids"], *wanted.queued}), pa.string())
        self.changed: list[str] = []
        self.dropped: list[str] = []
        self.ledger_rows = 0

    def take_out(self, removal: Removal) -> None:
        self.removal = removal
        if removal.kept[0] != removal.kept[1] or removal.documents < len(self.gone):
            raise CorruptionError(
                f"{self.folder}: the kept documents have changed, from {removal.kept[0]} to {removal.kept[1]}: nothing "
                f"is written; longcrawl verify {self.folder} lists the damage"
            )
        name = self.manifest["output"]["format"]
        self.changed += [f"{name}/{each}" for each in removal.changed]
        self.dropped += [f"{name}/{each}" for each in removal.dropped]
        for table in self.manifest["files"]:
            if table.partition("/")[0] in NAMED and table.endswith(".parquet"):
                self._rewrite_ledger(table)
        self._rewrite_tokens()
        self._rewrite_indexes()

    def _rewrite_ledger(self, name: str) -> None:
        """Drop the rows of the documents, and their ids from other rows."""
        table, columns = read_table(self.folder / name), NAMED[name.partition("/")[0]]
        others = [table.select([each]).rename_columns(["id"]) for each in columns[:1]]
        rows = set(rows_of_ids(table, self.ids).tolist())
        naming = {row for each in others for row in rows_of_ids(each, self.ids).tolist()}
        if not rows | naming:
            return
        self.ledger_rows += len(rows | naming)
        self.wanted.matched.update(("ids", table["id"][row].as_py()) for row in rows)
        other = pa.array([row in naming for row in range(table.num_rows)])
        for column in columns:
            values = pc.if_else(other, pa.scalar(None, table[column].type), table[column])
            table = table.set_column(table.column_names.index(column), table.schema.field(column), values)
        kept = table.filter(pa.array([row not in rows for row in range(table.num_rows)])).combine_chunks()
        if kept.num_rows:
            write_table(kept, self.beside / name)
            self.changed.append(name)
        else:
            remove(self.beside / name)
            self.dropped.append(name)

    def _rewrite_tokens(self) -> None:
        """Drop rows of the tables of tokens made by a push; tables of samples are removed whole, to be made again."""
        names = [name for name in self.manifest["files"] if name.startswith(f"{TOKEN_TABLES}/")]
        for name in names if len(self.gone) else ():
            file = pq.ParquetFile(self.folder / name)
            if "id" not in file.schema_arrow.names:
                remove(self.beside / name)
                self.dropped.append(name)
            elif len(rows_of_ids(read_table(self.folder / name, ["id"]), self.gone)):
                schema = as_written(file.schema_arrow.empty_table(), file.metadata).schema
                settings = {"compression": "zstd", "compression_level": 3}
                with whole_file(self.beside / name) as beside, table_writer(beside, schema, **settings) as out:
                    for group in range(file.num_row_groups):
                        table = as_written(file.read_row_group(group), file.metadata)
                        among = pc.is_in(pc.cast(table["id"], pa.string()), value_set=self.gone)
                        kept = table.filter(pc.invert(among)).combine_chunks()
                        if kept.num_rows:
                            out.write_table(kept, row_group_size=kept.num_rows)
                self.changed.append(name)

    def _rewrite_indexes(self) -> None:
        files, end = self.manifest["files"], f"/{INDEX_DESCRIPTION}"
        for index in sorted(
            name.removesuffix(end) for name in files if name.startswith(f"{INDEX}/") and name.endswith(end)
        ):
            if remove_from_index(self.beside / index, self.ids):
                self.changed += [each for each in files if each.startswith(f"{index}/")]

    def finish(self, target: str, asked: str) -> Takedown:
        self._check_absent()
        name, removal, counts = self.manifest["output"]["format"], self.removal, self.wanted.counts
        changed, dropped, unmatched = sorted(self.changed), sorted(self.dropped), self.wanted.unmatched()
        windows, found = removal.windows, removal.found
        told = {
            "asked": asked,
            "listed": counts,
            "unmatched": len(unmatched),
            "documents": removal.documents,
            "ledger_rows": self.ledger_rows,
            "ids_sha256": [
                hashlib.sha256(each.encode("utf-8", "surrogatepass")).hexdigest() for each in self.gone.to_pylist()
            ],
            "from": self.manifest["sha256"],
            "proof": {"kept": removal.kept[1], "windows": windows, "found": found, "ids_absent": True},
            "changed": changed,
            "dropped": dropped,
        }
        earlier = self.folder / RECORD
        records = load_json(earlier.read_text("utf-8"))["takedowns"] if earlier.is_file() else []
        write_text(self.beside / RECORD, seal({"longcrawl_takedown": VERSION, "takedowns": [*records, told]}))
        files = {each: entry for each, entry in self.manifest["files"].items() if each not in self.dropped}
        files |= file_entries(self.beside, [each for each in self.changed if each not in self.dropped] + [RECORD])
        about = {key: value for key, value in removal.described.items() if key != "files"}
        manifest: dict[str, Any] = {
            **self.manifest,
            "output": {"format": name, **about},
            "analysis": analyse(RESULTS[name].ids(self.beside / name)).as_dict(),
            "takedowns": [{each: record[each] for each in ("asked", "documents")} for record in (*records, told)],
            "files": dict(sorted(files.items())),
        }
        write_text(self.beside / MANIFEST, seal(manifest))
        card(self.beside)
        unchanged, ways = len(files) - len(set(changed)) - 1, (tuple(changed), tuple(dropped))
        numbers = removal.documents, self.ledger_rows
        return Takedown(target, asked, counts, *numbers, *ways, unchanged, windows, found, unmatched)

    def _check_absent(self) -> None:
        for name in self.changed:
            if name.endswith(".parquet") and name not in self.dropped:
                table = pq.ParquetFile(self.beside / name)
                if "id" in table.schema_arrow.names and len(rows_of_ids(table.read(["id"]), self.ids)):
                    raise CorruptionError(
                        f"{name} still names a document to take down: nothing was written; report this"
                    )
