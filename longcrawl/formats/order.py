"""Splits and order of an output's documents.

The order is a file, ``PLACE`` of each document: where pass one has kept it. By group if so asked (a language, bucket or
domain), then by sort key and hash of the id if shuffled, then by part and row. One process takes some 60 bytes a
document to sort them. Beyond ``HELD`` documents ranges of sort keys meet in tasks, and one process joins them: 20 bytes
a document, as they stream. Documents that are not shuffled stream, too, to where those of other groups and parts end,
and ranges of hashes of their ids meet in tasks. What is known of all documents is mapped from the file.

Ids must be unique: documents whose hashes are equal are read, and their ids compared. Those without an id are not.
"""

import json
import math
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.exchange import Engine, Exchange, key_ranges
from longcrawl.core.exchange import cut as cut_rows
from longcrawl.errors import FormatError, StageError
from longcrawl.formats.spill import (
    COLUMNS,
    INDEX,
    LANGUAGE,
    ORDER,
    PLACE,
    changes,
    checked,
    difference,
    read_places,
    sealed,
)
from longcrawl.io.files import bring, whole_file, write_text, write_values

SPLITS = ("train", "heldout", "val")


def check_heldout(heldout: float, output: str) -> None:
    """Raise StageError for what is neither a fraction below 1 nor a whole number; ``output`` is named."""
    if not 0 <= heldout < math.inf or (heldout >= 1 and heldout != int(heldout)):
        raise StageError(f"{output}.heldout takes a fraction below 1 or a whole number of rows, got {heldout!r}")


def heldout_rows(heldout: float, rows: int, of: str = "") -> int:
    """Return how many of so many rows are held out: a fraction is rounded, but to no less than one row of two.

    >>> heldout_rows(0.008, 1000), heldout_rows(0.008, 2), heldout_rows(0.008, 1), heldout_rows(5, 1000)
    (8, 1, 0, 5)

    Raises:
        FormatError: nothing would be left to train on; ``of`` follows the number of rows.
    """
    at_least = int(heldout > 0 and rows > 1)
    count = int(heldout) if heldout >= 1 else max(round(rows * heldout), at_least)
    if count >= rows:
        raise FormatError(
            f"heldout {heldout:g} takes {count:,} of {rows:,} rows{of} and leaves none to train on: set it lower"
        )
    return count


def split_rows(heldout: float, rows: int, name: str = "heldout", of: str = "") -> dict[str, tuple[int, int]]:
    """Return the bounds of each split: of ``name``, the first rows, if any are held out, and of ``train``."""
    held = heldout_rows(heldout, rows, of)
    return {name: (0, held), "train": (held, rows)} if held else {"train": (0, rows)}


def split_totals(
    written: Sequence[Mapping[str, Any]], sums: Mapping[str, str], files: str
) -> dict[str, dict[str, int]]:
    """Add up what was written of each split.

    Args:
        written: a description of each file, with its split.
        sums: what is added up, by its name in the totals.
        files: what the totals call the number of files.
    """
    totals = {}
    for split in SPLITS:
        here = [each for each in written if each["split"] == split]
        if here:
            totals[split] = {name: sum(each[entry] for each in here) for name, entry in sums.items()}
            totals[split][files] = len(here)
    return totals


def counts_of_split(folder: Path, described: Mapping[str, Any], split: str, row: int) -> Mapping[str, int]:
    """Return what a description records of a split; raise FormatError if it has no such split, or no such document."""
    if split not in described["splits"]:
        raise FormatError(f"{folder} has no split {split!r}; there is: {', '.join(described['splits'])}")
    counts: Mapping[str, int] = described["splits"][split]
    if not 0 <= row < counts["documents"]:
        raise FormatError(f"{folder} split {split!r} has documents 0 to {counts['documents'] - 1:,}, not {row}")
    return counts


Counts = npt.NDArray[np.int64]

HELD = 1 << 25
"""Documents that one process sorts, in 2 GB."""
PIECE = 1 << 22
"""Documents of a partition of the exchange, about: 40 bytes each."""
BLOCK = 1 << 20
"""Documents whose sizes are added up together."""
COUNTS = "order.json"
"""How many documents of each group an order has that an exchange has made."""
KEYS = pa.schema(
    [("key", pa.uint64()), ("id", pa.uint64())]
    + [(name, pa.uint32()) for name in ("part", "batch", "row")]
    + [("bytes", pa.uint64())]
)


@dataclass(frozen=True)
class Stretch:
    """All documents of one group, or all there are: what follows each other in the order."""

    group: str | None
    start: int
    sizes: npt.NDArray[np.uint64]
    """Bytes of each, in their order."""


class Spilled(NamedTuple):
    """What pass one has kept."""

    parts: tuple[int, ...]
    """Those that have documents."""
    rows: int
    schema: pa.Schema
    groups: Mapping[int, Sequence[str]]
    """The names of each part's groups, in its own order."""
    names: tuple[str, ...]
    """All of them, sorted; none where the order does not go by group."""


def exchange_order(spill: Path, parts: int, engine: Engine, *, shuffled: bool, grouped: bool = False) -> None:
    """Do what :func:`order_documents` cannot do alone: sort too many documents, or compare the ids of too many.

    Raises:
        FormatError: as :func:`order_documents` raises it.
    """
    spilled = _describe(spill, parts, grouped)
    if spilled.rows <= HELD:
        return
    if not shuffled:
        if "id" in spilled.schema.names:
            pieces = np.array([-(-spilled.rows // PIECE)])
            one_group = spilled._replace(names=())
            make, take = partial(_make_keys, spill, one_group, pieces, "id_hash"), partial(_take_unique, spill)
            engine.exchange(Exchange(make, take, int(pieces[0]), spill.parent / f"{ORDER}-ids"), spilled.parts)
        return
    counts = np.sum([*engine.tasks(partial(_count_groups, spill, spilled), spilled.parts)], axis=0)
    pieces = -(-counts // PIECE)
    make, take = partial(_make_keys, spill, spilled, pieces, "sort_key"), partial(_take_keys, spill)
    # A run may be resumed with another order of groups: it must not find what this one has left.
    name = f"{ORDER}-{'language' if grouped else 'all'}"
    step = Exchange(make, take, int(pieces.sum()), spill.parent / name)
    engine.exchange(step, spilled.parts)
    with whole_file(spill / ORDER) as beside, beside.open("wb") as file:
        for partition in range(step.partitions):
            file.write(_places(step.read(partition)).tobytes())
    write_text(spill / COUNTS, json.dumps(counts.tolist()))


def order_documents(
    spill: Path, parts: int, *, shuffled: bool, grouped: bool = False
) -> tuple[list[Stretch], pa.Schema]:
    """Put all documents in their final order: by group if so asked, then by sort key if shuffled, then by part.

    Returns:
        the documents, one entry for each group or one for all, and their columns.

    Raises:
        FormatError: there are none, parts have different columns, there is no column for the group, or two
            documents have one id.
    """
    spilled = _describe(spill, parts, grouped)
    if shuffled and (spill / COUNTS).exists():
        counts = np.array(json.loads((spill / COUNTS).read_text("utf-8")))
    elif shuffled or spilled.rows <= HELD:
        counts = _sort(spill, spilled, shuffled=shuffled)
    else:
        counts = _append(spill, spilled)
    sizes, starts = np.memmap(spill / ORDER, PLACE, "r")["bytes"], np.cumsum(counts) - counts
    stretches = zip([*spilled.names, None], starts.tolist(), counts.tolist(), strict=True)
    return [Stretch(name, start, sizes[start:][:count]) for name, start, count in stretches if count], spilled.schema


def describe_order(described: Mapping[str, Any]) -> str:
    """Say in which order the documents of a described output are."""
    if described.get("related"):
        return "Related documents follow each other"
    return "The order is random" if described["shuffled"] else "The order is that of the source"


def cut(stretch: Stretch, start: int, stop: int, file_bytes: int) -> list[tuple[int, int]]:
    """Cut a stretch of documents into files of about equal size, as few as hold no more than ``file_bytes`` on average.

    Returns:
        first and last document of each, in the order of all documents.
    """
    sizes, bounds, before, last = stretch.sizes[start:stop], list[int](), 0, -1
    blocks = [sizes[first : first + BLOCK] for first in range(0, len(sizes), BLOCK)]
    whole = sum(int(block.sum(dtype=np.int64)) for block in blocks)
    share = max(-(-whole // max(-(-whole // file_bytes), 1)), 1)
    for number, block in enumerate(blocks):
        ends = before + np.cumsum(block.astype(np.int64))
        files = (ends - block.astype(np.int64)) // share
        bounds += (np.flatnonzero(np.diff(files, prepend=last)) + number * BLOCK).tolist()
        before, last = int(ends[-1]), int(files[-1])
    first = stretch.start + start
    return [(first + one, first + other) for one, other in pairwise([*bounds, len(sizes)])]


def _describe(spill: Path, parts: int, grouped: bool) -> Spilled:  # noqa: FBT001  # as the callers were asked
    files = [spill / f"{part:05d}.json" for part in range(parts)]
    bring(*files)
    found = [json.loads(file.read_text("utf-8")) for file in files]
    rows = sum(each["rows"] for each in found)
    if not rows:
        raise FormatError("there are no documents to write: all documents were removed before the output")
    filled = [part for part in range(parts) if found[part]["rows"]]
    schema = _one_schema([found[part] for part in filled])
    if grouped and not all(found[part]["has_language"] for part in filled):
        raise FormatError(
            f"parquet.by is 'language', and the documents have no column {LANGUAGE!r} of text, only: "
            f"{', '.join(schema.names)}; add the stage identify_language, or set parquet.by to none"
        )
    names = sorted({name for each in found for name in each["languages"]}) if grouped else []
    return Spilled(tuple(filled), rows, schema, {part: found[part]["languages"] for part in filled}, tuple(names))


def _read_index(spill: Path, spilled: Spilled, part: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32]]:
    """Return what is known of the documents of a part, and the place of the group of each among all."""
    index = np.fromfile(checked(spill / f"{part:05d}.index", sealed(part)), INDEX)
    if not spilled.names:
        return index, np.zeros(len(index), np.uint32)
    return index, _ranks(index["language"], spilled.groups[part], spilled.names)


def _sort(spill: Path, spilled: Spilled, *, shuffled: bool) -> Counts:
    """Write the order with all documents in memory; return how many there are of each group."""
    places, keys, ids = (np.empty(spilled.rows, kind) for kind in (PLACE, np.uint64, np.uint64))
    group, start = np.zeros(spilled.rows, np.uint32), 0
    for part in spilled.parts:
        index, ranks = _read_index(spill, spilled, part)
        here = slice(start, start + len(index))
        places[here] = _places_of(index, part)
        keys[here], ids[here], group[here] = index["sort_key"], index["id_hash"], ranks
        start += len(index)
    if "id" in spilled.schema.names:
        _check_unique(spill, ids, places)
    order = np.lexsort((ids, keys, group)) if shuffled else np.argsort(group, kind="stable")
    write_values(spill / ORDER, places[order])
    return np.bincount(group, minlength=len(spilled.names) + 1)


def _append(spill: Path, spilled: Spilled) -> Counts:
    """Write the order of documents that stay as they come, group by group, with one part in memory."""
    none = np.zeros(len(spilled.names) + 1, np.int64)
    counts = sum((_count_groups(spill, spilled, part) for part in spilled.parts), none)
    ends = np.cumsum(counts) - counts
    with whole_file(spill / ORDER) as beside, beside.open("wb") as file:
        for part in spilled.parts:
            index, ranks = _read_index(spill, spilled, part)
            order = np.argsort(ranks, kind="stable")
            places, ranks = _places_of(index[order], part), ranks[order]
            for first, last in changes(ranks):
                file.seek(int(ends[ranks[first]]) * PLACE.itemsize)
                file.write(places[first:last].tobytes())
                ends[ranks[first]] += last - first
    return counts


def _places_of(index: npt.NDArray[Any], part: int) -> npt.NDArray[Any]:
    places = np.empty(len(index), PLACE)
    places["part"] = part
    for name in ("batch", "row", "bytes"):
        places[name] = index[name]
    return places


def _count_groups(spill: Path, spilled: Spilled, part: int) -> Counts:
    return np.bincount(_read_index(spill, spilled, part)[1], minlength=len(spilled.names) + 1)


def _make_keys(
    spill: Path, spilled: Spilled, pieces: Counts, key: Literal["sort_key", "id_hash"], part: int
) -> Iterator[tuple[int, pa.Table]]:
    """Send the documents of a part to ranges of a key, group by group."""
    index, ranks = _read_index(spill, spilled, part)
    ranges = key_ranges(index[key], pieces[ranks])
    columns = [index[key], index["id_hash"], np.full(len(index), part, np.uint32)]
    columns += [index[name].copy() for name in ("batch", "row", "bytes")]
    rows = pa.table([np.ascontiguousarray(column) for column in columns], schema=KEYS)
    yield from cut_rows(rows, (np.cumsum(pieces) - pieces)[ranks] + ranges)


def _take_keys(spill: Path, _: int, tables: Iterator[pa.Table]) -> pa.Table:
    found = [KEYS.empty_table(), *tables]
    rows = pa.concat_tables(found).sort_by([(name, "ascending") for name in KEYS.names[:-1]]).combine_chunks()
    same = (rows["key"].to_numpy()[1:] == rows["key"].to_numpy()[:-1]).nonzero()[0]
    near = np.unique([same, same + 1])
    _check_unique(spill, rows["id"].to_numpy()[near], _places(rows)[near])
    return rows.select(["part", "batch", "row", "bytes"])


def _take_unique(spill: Path, partition: int, tables: Iterator[pa.Table]) -> pa.Table:
    """Compare the ids of a range of hashes; nothing is left of them."""
    return _take_keys(spill, partition, tables).slice(0, 0)


def _places(rows: pa.Table) -> npt.NDArray[Any]:
    places = np.empty(rows.num_rows, PLACE)
    for name in PLACE.names or ():
        places[name] = rows[name].to_numpy()
    return places


def _one_schema(found: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Return the columns of the parts that have documents, as each of them recorded its own."""
    columns = dict.fromkeys(each[COLUMNS] for each in found)
    schemas = [pa.ipc.read_schema(pa.py_buffer(b64decode(each))) for each in columns]
    for other in schemas[1:]:
        if other != schemas[0]:
            raise FormatError(f"parts hold documents of different columns: {difference(schemas[0], other)}")
    return schemas[0]


def _check_unique(spill: Path, ids: npt.NDArray[np.uint64], places: npt.NDArray[Any]) -> None:
    by_id = np.argsort(ids, kind="stable")
    for first in np.flatnonzero(ids[by_id][1:] == ids[by_id][:-1]).tolist():
        one, other = read_places(spill, places[by_id[first : first + 2]], ["id"])["id"].to_pylist()
        if one == other and one is not None:
            raise FormatError(f"two rows are called {one!r}; ids must be unique: drop one of the documents")


def _ranks(codes: npt.NDArray[np.uint32], here: Sequence[str], names: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Turn the numbers that a part gives its groups into their places among all; no group comes last."""
    places = {name: place for place, name in enumerate(names)}
    table = np.array([*(places[name] for name in here), len(names)], np.uint32)
    return table[np.minimum(codes, len(here))]
