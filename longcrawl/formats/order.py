"""The order in which an output has its documents: in one process, or by an exchange where they are too many for it.

The order is a file, ``PLACE`` of each document: where pass one has kept it. By language if so asked, then by sort key
if shuffled, then by hash of the id, part and row. One process takes some 60 bytes a document to sort them. Beyond
``HELD`` documents ranges of sort keys meet in tasks, and one process joins them: 20 bytes a document, as they stream.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.sketched import cut as cut_rows
from longcrawl.core.sketched import key_ranges
from longcrawl.engines.base import Engine, Exchange
from longcrawl.errors import FormatError
from longcrawl.formats.spill import INDEX, LANGUAGE, ORDER, PLACE, changes, difference, read_places
from longcrawl.storage.files import whole_file, write_text

HELD = 1 << 25
"""Documents that one process sorts, in 2 GB."""
PIECE = 1 << 22
"""Documents of a partition of the exchange, about: 40 bytes each."""
COUNTS = "order.json"
"""How many documents of each language an order has that an exchange has made."""
KEYS = pa.schema(
    [("key", pa.uint64()), ("id", pa.uint64())]
    + [(name, pa.uint32()) for name in ("part", "batch", "row")]
    + [("bytes", pa.uint64())]
)


@dataclass(frozen=True)
class Documents:
    """All documents of one language, or all there are: a stretch of the order."""

    language: str | None
    start: int
    sizes: npt.NDArray[np.uint64]
    """Bytes of each, in their order."""


class Spilled(NamedTuple):
    """What pass one has kept."""

    parts: tuple[int, ...]
    """Those that have documents."""
    rows: int
    schema: pa.Schema
    languages: Mapping[int, Sequence[str]]
    """The names of each part's languages, in its own order."""
    names: tuple[str, ...]
    """All of them, sorted; none where the order does not go by language."""


def exchange_order(
    spill: Path, parts: int, engine: Engine, *, shuffled: bool, by_language: bool = False, unique: bool = False
) -> None:
    """Put shuffled documents in their final order, where they are too many for :func:`order_documents` alone.

    Raises:
        FormatError: as :func:`order_documents` raises it.
    """
    spilled = _describe(spill, parts, by_language)
    if spilled.rows <= HELD or not shuffled:
        return
    counts = np.sum([*engine.tasks(partial(_count_languages, spill, spilled), spilled.parts)], axis=0)
    pieces = -(-counts // PIECE)
    make, take = partial(_make_keys, spill, spilled, pieces), partial(_take_keys, spill, unique)
    step = Exchange(make, take, int(pieces.sum()), spill.parent / ORDER)
    engine.exchange(step, spilled.parts)
    with whole_file(spill / ORDER) as beside, beside.open("wb") as file:
        for partition in range(step.partitions):
            _places(step.read(partition)).tofile(file)
    write_text(spill / COUNTS, json.dumps(counts.tolist()))


def order_documents(
    spill: Path, parts: int, *, shuffled: bool, by_language: bool = False, unique: bool = False
) -> tuple[list[Documents], pa.Schema]:
    """Put all documents in their final order: by language if so asked, then by sort key if shuffled, then by part.

    Returns:
        the documents, one entry for each language or one for all, and their columns.

    Raises:
        FormatError: there are none, parts have different columns, there is no column for the language, or two
            documents have one id where ids are to be unique.
    """
    spilled = _describe(spill, parts, by_language)
    names = [*spilled.names, None]
    if shuffled and (spill / COUNTS).exists():
        counts = np.array(json.loads((spill / COUNTS).read_text("utf-8")))
        known = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        return [*_by_language(np.memmap(spill / ORDER, PLACE, "r"), known, names)], spilled.schema
    places, keys, ids = (np.empty(spilled.rows, kind) for kind in (PLACE, np.uint64, np.uint64))
    language, start = np.zeros(spilled.rows, np.uint32), 0
    for part in spilled.parts:
        index, ranks = _read_index(spill, spilled, part)
        here = slice(start, start + len(index))
        places["part"][here] = part
        for name in ("batch", "row", "bytes"):
            places[name][here] = index[name]
        keys[here], ids[here], language[here] = index["sort_key"], index["id_hash"], ranks
        start += len(index)
    if unique:
        _check_unique(spill, ids, places)
    if shuffled or by_language:
        order = np.lexsort((ids, keys, language))
        places, language = places[order], language[order]
    with whole_file(spill / ORDER) as beside:
        places.tofile(beside)
    return [*_by_language(places, language, names)], spilled.schema


def cut(documents: Documents, start: int, stop: int, file_bytes: int) -> list[tuple[int, int]]:
    """Cut a stretch of documents into files of about equal size, as few as hold no more than ``file_bytes`` on average.

    Returns:
        first and last document of each, in the order of all documents.
    """
    sizes = documents.sizes[start:stop].astype(np.int64)
    whole = int(sizes.sum())
    share = max(-(-whole // max(-(-whole // file_bytes), 1)), 1)
    bounds = changes((np.cumsum(sizes) - sizes) // share)
    return [(documents.start + start + first, documents.start + start + last) for first, last in bounds]


def _describe(spill: Path, parts: int, by_language: bool) -> Spilled:  # noqa: FBT001  # as the callers were asked
    found = [json.loads((spill / f"{part:05d}.json").read_text("utf-8")) for part in range(parts)]
    rows = sum(each["rows"] for each in found)
    if not rows:
        raise FormatError("there are no documents to write: all documents were removed before the output")
    filled = [part for part in range(parts) if found[part]["rows"]]
    schema = _one_schema(spill, filled)
    if by_language and not all(found[part]["has_language"] for part in filled):
        raise FormatError(
            f"parquet.by is 'language', and the documents have no column {LANGUAGE!r} of text, only: "
            f"{', '.join(schema.names)}; add the stage identify_language, or set parquet.by to none"
        )
    names = sorted({name for each in found for name in each["languages"]}) if by_language else []
    return Spilled(tuple(filled), rows, schema, {part: found[part]["languages"] for part in filled}, tuple(names))


def _read_index(spill: Path, spilled: Spilled, part: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32]]:
    """Return what is known of the documents of a part, and the place of the language of each among all."""
    index = np.fromfile(spill / f"{part:05d}.index", INDEX)
    if not spilled.names:
        return index, np.zeros(len(index), np.uint32)
    return index, _ranks(index["language"], spilled.languages[part], spilled.names)


def _count_languages(spill: Path, spilled: Spilled, part: int) -> npt.NDArray[np.int64]:
    return np.bincount(_read_index(spill, spilled, part)[1], minlength=len(spilled.names) + 1)


def _make_keys(
    spill: Path, spilled: Spilled, pieces: npt.NDArray[np.int64], part: int
) -> Iterator[tuple[int, pa.Table]]:
    """Send the documents of a part to ranges of sort keys, language by language."""
    index, ranks = _read_index(spill, spilled, part)
    ranges = key_ranges(index["sort_key"], pieces[ranks])
    columns = [index["sort_key"], index["id_hash"], np.full(len(index), part, np.uint32)]
    columns += [index[name].copy() for name in ("batch", "row", "bytes")]
    rows = pa.table([np.ascontiguousarray(column) for column in columns], schema=KEYS)
    yield from cut_rows(rows, (np.cumsum(pieces) - pieces)[ranks] + ranges)


def _take_keys(spill: Path, unique: bool, _: int, tables: Iterator[pa.Table]) -> pa.Table:  # noqa: FBT001  # as above
    found = [KEYS.empty_table(), *tables]
    rows = pa.concat_tables(found).sort_by([(name, "ascending") for name in KEYS.names[:-1]]).combine_chunks()
    if unique:
        same = (rows["key"].to_numpy()[1:] == rows["key"].to_numpy()[:-1]).nonzero()[0]
        near = np.unique([same, same + 1])
        _check_unique(spill, rows["id"].to_numpy()[near], _places(rows)[near])
    return rows.select(["part", "batch", "row", "bytes"])


def _places(rows: pa.Table) -> npt.NDArray[Any]:
    places = np.empty(rows.num_rows, PLACE)
    for name in PLACE.names or ():
        places[name] = rows[name].to_numpy()
    return places


def _one_schema(spill: Path, parts: Sequence[int]) -> pa.Schema:
    first: pa.Schema | None = None
    for part in parts:
        with pa.memory_map(str(spill / f"{part:05d}.arrow")) as mapped:
            schema = pa.ipc.open_file(mapped).schema
        if first is not None and schema != first:
            raise FormatError(f"parts hold documents of different columns: {difference(first, schema)}")
        first = schema
    return first


def _check_unique(spill: Path, ids: npt.NDArray[np.uint64], places: npt.NDArray[Any]) -> None:
    by_id = np.argsort(ids, kind="stable")
    for first in np.flatnonzero(ids[by_id][1:] == ids[by_id][:-1]).tolist():
        one, other = read_places(spill, places[by_id[first : first + 2]], ["id"])["id"].to_pylist()
        if one == other:
            raise FormatError(f"two rows are called {one!r}; ids must be unique: drop one of the documents")


def _ranks(codes: npt.NDArray[np.uint32], here: Sequence[str], names: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Turn the numbers that a part gives its languages into their places among all; no language comes last."""
    places = {name: place for place, name in enumerate(names)}
    table = np.array([*(places[name] for name in here), len(names)], np.uint32)
    return table[np.minimum(codes, len(here))]


def _by_language(
    places: npt.NDArray[Any], language: npt.NDArray[np.uint32], names: Sequence[str | None]
) -> Iterator[Documents]:
    for first, last in changes(language):
        yield Documents(names[language[first]], first, places["bytes"][first:last])
