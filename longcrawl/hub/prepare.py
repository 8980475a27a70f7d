"""What a push makes in the folder of a run first: tables of its tokens, and few files of a ledger instead of many.

Plain `datasets` reads neither Zarr nor token shards. ``tokens/`` has the rows of such an output as parquet, and is the
card's default configuration. Everything is written to ``.push`` and moved from there at once; a list of the moves is
written before the first, so that the same push finishes them. Whatever the number of processes, the bytes are the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.card.write import CARD, card, is_marked
from longcrawl.core.results import RESULTS, TokenRows
from longcrawl.engines.hold import LOCK, hold_alone
from longcrawl.engines.local import Local
from longcrawl.errors import RunError, warn_user
from longcrawl.formats.shards.parquet import row_groups
from longcrawl.formats.token_output import TOKENIZER, decode_beginning, decode_tokens
from longcrawl.formats.token_rows import INPUT_IDS
from longcrawl.ledger.edits import EDITS
from longcrawl.ledger.reasons import LEDGER
from longcrawl.manifest import MANIFEST, TOKEN_TABLES, read_sealed
from longcrawl.run.segments import do_once
from longcrawl.storage.files import checksum, file_entries, publish, remove, whole_file, write_text, writing
from longcrawl.storage.sealed import Marker, seal
from longcrawl.storage.stored_tables import GroupedTable, check_undamaged

Tables = Literal["make", "text", "keep"]
PREPARING = ".push"
MOVES = "moves.json"
"""The marker, in ``.push``, of what is moved from there."""
FILE_TOKENS = 1 << 27
"""Tokens of a file, about: 200 to 300 MB, of which the Hub's viewer reads the first part."""
BEGINNING, TEXT = "beginning", "text"
BEGINNING_TOKENS = 64
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


def missing_tables(folder: Path, manifest: Mapping[str, Any], tables: Tables) -> list[str]:
    """Name the tables of tokens that a push would write first."""
    return [f"{TOKEN_TABLES}/{task.file.name}" for task in _tasks(folder, manifest, tables)]


def prepare(folder: Path, tables: Tables = "make", num_proc: int = 1) -> None:
    """Write the tables of tokens and merge small files of the ledgers, where that is still to do.

    Card and manifest name them then. A card without longcrawl's comments is a person's: then nothing is written, with a
    warning, as no configuration would name the tables.

    Raises:
        RunError: a file cannot be written.
    """
    manifest = read_sealed(folder)
    tasks, merges = _tasks(folder, manifest, tables), _merges(manifest)
    if tables == "keep" or not (tasks or merges):
        return
    if not _is_ours(folder, manifest):
        warn_user(
            f"{folder / CARD} has no comments of longcrawl, so it cannot name tables of tokens and none are written: "
            "move it away and type `longcrawl card`, or push with --tables keep"
        )
        return
    with _alone(folder) as beside:
        # Another push may have made them meanwhile.
        manifest = read_sealed(folder)
        tasks, merges = _tasks(folder, manifest, tables), _merges(manifest)
        if not (tasks or merges):
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
        old = [name for name in _table_files(manifest) if tasks]
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
    with writing(beside, RunError, "make room for tables of its tokens, or push with --tables keep"):
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


def _tasks(folder: Path, manifest: Mapping[str, Any], tables: Tables) -> list[_TableTask]:
    made = _table_files(manifest)
    # Tables of another push are made again where they have texts and none are asked for, or the other way round.
    if tables == "keep" or (made and (TEXT in pq.read_schema(folder / made[0]).names) == (tables == "text")):
        return []
    described = manifest["output"]
    name, shown = described["format"], TEXT if tables == "text" else BEGINNING
    escaped, end_of_text = bool(described.get("json_escaped")), described.get("end_of_text")
    found, tasks = RESULTS[name].token_rows(folder / name), []
    if found and shown == TEXT and not (folder / name / TOKENIZER).exists():
        raise RunError(f"{folder / name} has no {TOKENIZER} to decode its tokens with: push with --tables make")
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
        tables = (_with_texts(table, task) for table in tables)
    with whole_file(task.file) as beside, GroupedTable(beside) as written:
        first = next(tables)
        for group in row_groups(chain([first], tables), first.schema):
            written.add(group.combine_chunks())
    content = {"rows": task.stop - task.start, "shown": task.shown}
    Marker(task.marker, content, Marker.entries(task.marker, [task.file])).write()
    return content


def _with_texts(table: pa.Table, task: _TableTask) -> pa.Table:
    """Add the text of each row, or its beginning, which people look at; of a rolled row that of its document."""
    rolls = table["roll"].to_pylist() if "roll" in table.column_names else [0] * table.num_rows
    found, begins = [], task.shown == BEGINNING
    decode = decode_beginning if begins else decode_tokens
    for tokens, roll in zip(_lists(table), rolls, strict=True):
        start = (roll or 0) % max(len(tokens), 1)
        most = BEGINNING_TOKENS if begins else len(tokens)
        chosen = np.concatenate([tokens[start : start + most], tokens[:start]])[:most]
        if not begins and len(chosen) and chosen[-1] == task.end_of_text:
            chosen = chosen[:-1]
        try:
            found.append(decode(task.output, chosen.tolist(), json_escaped=task.json_escaped))
        except ValueError:  # A window may begin within an escape.
            found.append(decode(task.output, chosen.tolist(), json_escaped=False))
    return table.add_column(table.column_names.index(INPUT_IDS), task.shown, pa.array(found, pa.string()))


def _lists(table: pa.Table) -> "Iterator[np.ndarray[tuple[int], np.dtype[np.int32]]]":
    for chunk in table[INPUT_IDS].chunks:
        values, ends = chunk.values.to_numpy(), chunk.offsets.to_numpy()
        yield from (values[first:last] for first, last in pairwise(ends.tolist()))


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
