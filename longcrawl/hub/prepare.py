"""What a push makes in the folder of a run first: tables of its tokens, and few files of a ledger instead of many.

Plain `datasets` reads neither Zarr nor token shards. ``tokens/`` has the rows of such an output as parquet, and is the
card's default configuration. Everything is written to ``.push`` and moved from there at once; a list of the moves is
written before the first, so that the same push finishes them. Whatever the number of processes, the bytes are the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.card.write import CARD, card, is_marked
from longcrawl.core.results import RESULTS, TokenRows
from longcrawl.engines.hold import LOCK, hold_alone
from longcrawl.engines.local import Local
from longcrawl.errors import RunError, warn_user
from longcrawl.formats.shards.parquet import row_groups
from longcrawl.formats.token_output import TOKENIZER
from longcrawl.formats.token_texts import BEGINNING, TEXT, with_texts
from longcrawl.ledger.edits import EDITS
from longcrawl.ledger.reasons import LEDGER
from longcrawl.manifest import MANIFEST, TOKEN_TABLES, open_run, read_sealed
from longcrawl.run.segments import do_once
from longcrawl.storage.files import checksum, file_entries, publish, remove, whole_file, write_text, writing
from longcrawl.storage.place import check_writable
from longcrawl.storage.sealed import Marker, seal
from longcrawl.storage.stored_tables import GroupedTable, check_undamaged

Tables = Literal["tokens", "text", "none"]
"""Tables with the beginning of each text, with the whole text, or none."""
PREPARING = ".push"
MOVES = "moves.json"
"""The marker, in ``.push``, of what is moved from there."""
FILE_TOKENS = 1 << 27
"""Tokens of a file, about: 200 to 300 MB, of which the Hub's viewer reads the first part."""
LEDGER_BYTES = 16 << 20
"""Bytes of small files that one replaces, at most; larger ones stay."""
MERGED = "merged-"
"""What names of such files begin with; they are not merged again."""


@dataclass(frozen=True)
class _TableTask:
    """One file of tokens."""

    file: Path
    output: Path
    rows: TokenRows
    start: int
    stop: int
    shown: str
    """The column of text: BEGINNING or TEXT."""
    json_escaped: bool
    end_of_text: int | None

    @property
    def marker(self) -> Path:
        return self.file.with_suffix(".json")


def check_tables(tables: str) -> None:
    """Raise RunError unless ``tables`` is one of its words."""
    if tables not in get_args(Tables):
        raise RunError(f"--tables takes {', '.join(get_args(Tables))}, got {tables!r}")


def changed_tables(folder: Path, manifest: Mapping[str, Any], tables: Tables) -> tuple[list[str], list[str]]:
    """Name the tables of tokens that a push would write first, and those that it would remove."""
    tasks = _tasks(folder, manifest, tables)
    return [f"{TOKEN_TABLES}/{task.file.name}" for task in tasks], _replaced(manifest, tasks, tables)


def write_tables(run: str | Path, tables: Tables = "tokens", num_proc: int = 1) -> None:
    """Write the tables of tokens of a finished run now, as a push would: plain `datasets` then loads them.

    Args:
        run: the folder of a finished run, or the URL of one in an object store.
        tables: "tokens", "text" or "none", as for a push.
        num_proc: processes that write them; the bytes do not depend on it.

    Raises:
        RunError: the run is not finished, or a file cannot be written.
    """
    check_tables(tables)
    with open_run(run, "") as folder:
        check_writable(folder / TOKEN_TABLES)
        resume_moves(folder)
        prepare(folder, tables, num_proc)


def prepare(folder: Path, tables: Tables = "tokens", num_proc: int = 1) -> None:
    """Write the tables of tokens and merge small files of the ledgers, where that is still to do.

    Card and manifest name them then. With "none", tables that are there are removed, and nothing else is done. A card
    without longcrawl's comments is a person's: then nothing is written, with a warning, as no configuration would name
    the tables.

    Raises:
        RunError: a file cannot be written.
    """
    manifest = read_sealed(folder)
    if not any(_to_do(folder, manifest, tables)):
        return
    if not _is_ours(folder, manifest):
        warn_user(
            f"{folder / CARD} has no comments of longcrawl, so it cannot name tables of tokens and none are written: "
            "move it away and type `longcrawl card`, or push with --tables none"
        )
        return
    with _alone(folder) as beside:
        # Another push may have made them meanwhile.
        manifest = read_sealed(folder)
        tasks, merges, old = _to_do(folder, manifest, tables)
        if not (tasks or merges or old):
            return
        (beside / TOKEN_TABLES).mkdir(parents=True, exist_ok=True)
        markers = [task.marker for task in tasks]
        for task in tasks:
            if (begun := Marker.read(task.marker)) is not None and begun.content["shown"] != task.shown:
                remove(task.marker)
        if tasks:
            do_once(folder, _write_table, tasks, markers, Local(num_proc), TOKEN_TABLES, "files")
        made = {f"{TOKEN_TABLES}/{task.file.name}": Marker.open(task.marker, task.file) for task in tasks}
        entries = {name: next(iter(marker.files.values())) for name, marker in made.items()}
        for name, files in merges.items():
            _merge([folder / each for each in files], beside / name)
        entries |= file_entries(beside, list(merges))
        moves = {
            "output": _identity(manifest),
            "made": entries,
            "replaced": [*old, *(name for files in merges.values() for name in files)],
        }
        Marker(beside / MOVES, moves, {}).write()
        _move(folder, beside)


def resume_moves(folder: Path) -> None:
    """Move what a push has prepared that stopped before its moves were all done."""
    if Marker.read(folder / PREPARING / MOVES) is not None:
        with _alone(folder) as beside:
            _move(folder, beside)


@contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """Yield the folder of what is prepared, held by this process; it is removed where nothing is left in it.

    Raises:
        RunError: another push is preparing the run, or a file cannot be written.
    """
    beside = folder / PREPARING
    with writing(beside, RunError, "make room for tables of its tokens, or push with --tables none"):
        beside.mkdir(exist_ok=True)
        with hold_alone(beside, "push"):
            yield beside
        with suppress(OSError):
            beside.rmdir()


def _move(folder: Path, beside: Path) -> None:
    """Move what was prepared to its place, and name it in card and manifest; again after a stop between the two."""
    moves = Marker.read(beside / MOVES)
    if moves is None:
        return
    manifest = read_sealed(folder)
    if moves.content["output"] != _identity(manifest):
        return
    # The old tables go first: with both, each document would have left twice.
    for name in moves.content["replaced"]:
        remove(folder / name)
    with suppress(OSError):
        (folder / TOKEN_TABLES).rmdir()
    for name in moves.content["made"]:
        if (beside / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            publish(beside / name, folder / name)
    kept = {name: entry for name, entry in manifest["files"].items() if name not in moves.content["replaced"]}
    files = dict(sorted((kept | moves.content["made"]).items()))
    write_text(folder / MANIFEST, seal({**manifest, "files": files}))
    card(folder)
    for made in beside.iterdir():
        if made.name != LOCK:
            remove(made)


def _identity(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what describes the output: that of another run differs."""
    result = RESULTS[manifest["output"]["format"]]
    return str(manifest["files"].get(f"{result.name}/{result.description}", {}).get("sha256"))


def _is_ours(folder: Path, manifest: Mapping[str, Any]) -> bool:
    file = folder / CARD
    return is_marked(file.read_text("utf-8")) or checksum(file) == manifest["files"].get(CARD, {}).get("sha256")


def _table_files(manifest: Mapping[str, Any]) -> list[str]:
    return [name for name in manifest["files"] if name.startswith(f"{TOKEN_TABLES}/")]


def _replaced(manifest: Mapping[str, Any], tasks: list[_TableTask], tables: Tables) -> list[str]:
    return _table_files(manifest) if tasks or tables == "none" else []


def _to_do(
    folder: Path, manifest: Mapping[str, Any], tables: Tables
) -> tuple[list[_TableTask], dict[str, list[str]], list[str]]:
    """Return tables to write, files of ledgers to merge, and tables to remove."""
    tasks = _tasks(folder, manifest, tables)
    return tasks, {} if tables == "none" else _merges(manifest), _replaced(manifest, tasks, tables)


def _tasks(folder: Path, manifest: Mapping[str, Any], tables: Tables) -> list[_TableTask]:
    made = _table_files(manifest)
    # Tables of another push are made again where they have texts and none are asked for, or the other way round.
    if tables == "none" or (made and (TEXT in pq.read_schema(folder / made[0]).names) == (tables == "text")):
        return []
    described = manifest["output"]
    name, shown = described["format"], TEXT if tables == "text" else BEGINNING
    escaped, end_of_text = bool(described.get("json_escaped")), described.get("end_of_text")
    found, tasks = RESULTS[name].token_rows(folder / name), []
    if found and shown == TEXT and not (folder / name / TOKENIZER).exists():
        raise RunError(f"{folder / name} has no {TOKENIZER} to decode its tokens with: ask for --tables tokens")
    for split, rows in found.items():
        count = min(max(-(-rows.tokens // FILE_TOKENS), 1), rows.rows)
        bounds = [rows.rows * number // count for number in range(count + 1)]
        for number in range(count):
            file = folder / PREPARING / TOKEN_TABLES / f"{split}-{number:05d}-of-{count:05d}.parquet"
            part = _TableTask(
                file, folder / name, rows, bounds[number], bounds[number + 1], shown, escaped, end_of_text
            )
            tasks.append(part)
    return tasks


def _write_table(task: _TableTask) -> dict[str, Any]:
    """Write one file of tokens and its marker."""
    tables = task.rows.read(task.start, task.stop)
    if (task.output / TOKENIZER).exists():
        texts = partial(
            with_texts,
            output=task.output,
            shown=task.shown,
            json_escaped=task.json_escaped,
            end_of_text=task.end_of_text,
        )
        tables = map(texts, tables)
    with whole_file(task.file) as beside, GroupedTable(beside) as written:
        first = next(tables)
        for group in row_groups(chain([first], tables), first.schema):
            written.add(group.combine_chunks())
    content = {"rows": task.stop - task.start, "shown": task.shown}
    Marker(task.marker, content, Marker.entries(task.marker, [task.file])).write()
    return content


def _merges(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the files of ledgers that are to be one, by its name: neighbours in the order of names."""
    merges: dict[str, list[str]] = {}
    for kind in (LEDGER, EDITS):
        groups: list[list[str]] = []
        size = 0
        for name, entry in sorted(manifest["files"].items()):
            if Path(name).parent != Path(kind) or not name.endswith(".parquet") or Path(name).name.startswith(MERGED):
                continue
            if not groups or size + entry["bytes"] > LEDGER_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(name)
            size += entry["bytes"]
        large = [group for group in groups if len(group) > 1]
        merges |= {f"{kind}/{MERGED}{number:05d}.parquet": group for number, group in enumerate(large)}
    return merges


def _merge(files: list[Path], merged: Path) -> None:
    merged.parent.mkdir(exist_ok=True)
    check_undamaged(files)
    with whole_file(merged) as beside, GroupedTable(beside) as written:
        written.add(pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).combine_chunks())
