"""On-disk index of a deduplicated dataset, and surveys that remove documents found in earlier datasets.

An index is a folder::

    index.json      {"longcrawl_index": 1, "stage": …, "settings": {…}, "documents": n, "bands": b,
                     "files": {NAME: {"bytes": …, "sha256": …}}}
    ids.arrow       Arrow IPC: the ids of all documents
    keys-000.npy    uint64 (entries, words): the keys of a band, sorted; one file per band
    rows-000.npy    int64 (entries,): the document that has each key, a row number in ids.arrow
    NAME.npy        any other data that a stage keeps of its documents

Keys are hashes: one 64-bit word for a band of MinHash, two words if equal keys must mean equal documents. Files are
mapped, and keys are looked up in sorted order, so that no file has to fit into memory. ``index.json`` is written last
and contains its own SHA-256. Each file is compared with its SHA-256 once before it is mapped.

Tasks build the same files in three steps: the sketches of each group, then a range of the keys of a band (16 or 24
bytes a key) with their documents, then each file. A task holds one group or range of about ``PIECE`` documents in 200
to 270 MB. :func:`write_index` is for a single process, in which tasks would take 1.1 to 2 times as much CPU time.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0

from longcrawl.core.exchange import DOCUMENT, Engine, Exchange, Sketched, cut, key_ranges, no_rows, take_each
from longcrawl.core.stages import REMOVAL_SCHEMA, Survey
from longcrawl.errors import CorruptionError, FormatError, unreadable
from longcrawl.io.files import (
    checksum,
    content_digest,
    described_content,
    file_entries,
    remember_content,
    remove,
    whole_file,
    write_text,
)
from longcrawl.io.structured import Marker, is_sealed, load_json, seal, verify_files

INDEX = "index"

DESCRIPTION = "index.json"
VERSION = 1
AGAIN = "build the index again"
CHUNK_IDS = 1 << 16
"""Ids in a chunk of a column: below the 2 GiB limit of the type ``string``, for ids up to 32 KiB."""

SaveIndex = Literal["none", "save"]
Keys = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """Opened index; its files are verified and mapped on first use."""

    folder: Path
    documents: int
    bands: int
    files: Mapping[str, Mapping[str, Any]]

    def find(self, band: int, keys: Keys) -> Places:
        """Return the first document that has each key, uint64 (n, words), or -1."""
        known, rows = self._band(band, keys.shape[1])
        asked, entries = self.entries(band, keys[:, 0], len(known), keys.shape[1])
        same = np.flatnonzero(np.all(known[entries] == keys[asked], axis=1))[::-1]  # the first of several is set last
        found = np.full(len(keys), -1, np.int64)
        found[asked[same]] = self._places(rows[entries[same]])
        return found

    def matches(self, band: int, keys: Keys, most: int) -> tuple[Places, Places]:
        """Return the pairs of a requested key, uint64 (n,), and one of its first ``most`` documents, as positions."""
        asked, entries = self.entries(band, keys, most)
        return asked, self.documents_of(band, entries)

    def entries(self, band: int, keys: Keys, most: int, words: int = 1) -> tuple[Places, Places]:
        """Return all pairs of a requested first word and an entry that has it; arguments as for :meth:`matches`."""
        known, _ = self._band(band, words)
        asked = np.argsort(keys)  # search the file in one pass
        starts = np.searchsorted(known[:, 0], keys[asked], "left")
        counts = np.minimum(np.searchsorted(known[:, 0], keys[asked], "right") - starts, most)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(asked, counts), np.repeat(starts, counts) + within

    def documents_of(self, band: int, entries: Places) -> Places:
        """Return the documents of entries of a band."""
        return self._places(self.array(band_names(band)[1], np.int64, None)[entries])

    def array(self, name: str, dtype: npt.DTypeLike, *shape: int | None) -> npt.NDArray[Any]:
        """Return another array that the stage saved, mapped and checked; None in the shape accepts any length."""
        path = self._whole(f"{name}.npy")
        with unreadable(path, CorruptionError, AGAIN):
            found = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        wanted = tuple(side if length is None else length for length, side in zip(shape, found.shape, strict=False))
        if found.dtype != dtype or found.ndim != len(shape) or found.shape != wanted:
            raise CorruptionError(
                f"{path} holds {found.dtype} of shape {found.shape}, which does not match the index: {AGAIN}"
            )
        return found

    def has(self, name: str) -> bool:
        """Whether the stage saved an array of this name."""
        return f"{name}.npy" in self.files

    def ids(self, rows: Places) -> pa.ChunkedArray:
        """Return the ids of documents by their row numbers; -1 gives null."""
        path = self._whole("ids.arrow")
        with unreadable(path, CorruptionError, AGAIN), pa.memory_map(str(path)) as mapped:
            return take_ids(pa.ipc.open_file(mapped).read_all()["id"], rows)

    def _band(self, band: int, words: int) -> tuple[Keys, Places]:
        keys_name, rows_name = band_names(band)
        keys = self.array(keys_name, np.uint64, None, words)
        return keys, self.array(rows_name, np.int64, len(keys))

    def _places(self, rows: Places) -> Places:
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.documents:
            raise CorruptionError(f"{self.folder} refers to documents that it does not contain: {AGAIN}")
        return rows

    def _whole(self, name: str) -> Path:
        """Return the path of a file after comparing it with its SHA-256, once per process."""
        path = self.folder / name
        if name not in self.files:
            raise CorruptionError(f"{path} is not listed in {DESCRIPTION} beside it: {AGAIN}")
        if not path.is_file():
            raise CorruptionError(f"{path} is missing, though {DESCRIPTION} beside it lists it; {AGAIN}")
        for problem in verify_files(Path(), {str(path): self.files[name]}, lambda file: content_digest(str(file))):
            raise CorruptionError(f"{problem}; {AGAIN}")
        return path


def write_index(
    folder: Path,
    stage: str,
    settings: Mapping[str, Any],
    ids: pa.Array | pa.ChunkedArray,
    bands: Iterable[Keys],
    more: Mapping[str, npt.NDArray[Any]] = MappingProxyType({}),
) -> None:
    """Write an index, replacing the one in the folder; ``bands`` are keys, uint64 (documents, words)."""
    remove(folder / DESCRIPTION)
    names, count = [write_ids(folder, [pa.table({"id": ids})])], 0
    for band, keys in enumerate(bands):
        order = np.lexsort(keys.T[::-1])
        keys_name, rows_name = band_names(band)
        names += [write_array(folder, keys_name, [keys[order]]), write_array(folder, rows_name, [order])]
        count += 1
    names += [write_array(folder, name, [values]) for name, values in more.items()]
    describe_index(folder, stage, settings, len(ids), count, file_entries(folder, names))


def band_names(band: int) -> tuple[str, str]:
    """Return the names of the two arrays of a band: its keys and its rows."""
    return f"keys-{band:03d}", f"rows-{band:03d}"


def write_ids(folder: Path, tables: Iterable[pa.Table]) -> str:
    """Write the ids of tables end to end, each non-empty chunk as a batch; return the name of the file."""
    schema, name = pa.schema([("id", pa.string())]), "ids.arrow"
    with whole_file(folder / name) as beside, pa.ipc.new_file(str(beside), schema) as writer:
        for ids in filter(len, (chunk for table in tables for chunk in table["id"].chunks)):
            writer.write_table(pa.table([ids.cast(pa.string())], schema=schema))
    return name


def write_array(folder: Path, name: str, pieces: Iterable[npt.NDArray[Any]]) -> str:
    """Write one or more arrays end to end, as ``numpy.save`` writes a single one; return the name of the file."""
    about, rows = dict[str, Any](), 0
    with whole_file(folder / f"{name}.npy") as beside, beside.open("wb") as opened:
        for piece in map(np.ascontiguousarray, pieces):
            if not rows:
                opened.seek(0)
                about = header_data_from_array_1_0(piece)
                write_array_header_1_0(opened, about)
            opened.write(piece.data)
            rows += len(piece)
        # The header leaves room for any number of rows, so its size does not change.
        opened.seek(0)
        write_array_header_1_0(opened, about | {"shape": (rows, *about["shape"][1:])})
    return f"{name}.npy"


def describe_index(
    folder: Path, stage: str, settings: Mapping[str, Any], documents: int, bands: int, files: Mapping[str, Any]
) -> None:
    """Write ``index.json``, after all files; their entries are sorted by name."""
    about = {"longcrawl_index": VERSION, "stage": stage, "settings": dict(settings), "documents": documents}
    write_text(folder / DESCRIPTION, seal(about | {"bands": bands, "files": dict(sorted(files.items()))}))


def open_index(path: str, stage: str, settings: Mapping[str, Any]) -> Index:
    """Open the index of a stage, in ``path`` or in ``index/STAGE`` of a run.

    Raises:
        FormatError: the index is missing, or was made with settings other than ``settings``.
    """
    places = (Path(path), Path(path, INDEX, stage))
    folder = next((each for each in places if (each / DESCRIPTION).is_file()), None)
    if folder is None:
        others = sorted(str(each.parent) for each in Path(path, INDEX).glob(f"*/{DESCRIPTION}"))
        write_one = f"a run writes one with --set stages.{stage}.index=save"
        advice = f"there are {', '.join(others)}" if others else write_one
        raise FormatError(f"no index of {stage} at {path}; {advice}")
    with unreadable(folder / DESCRIPTION, CorruptionError, AGAIN):
        about = load_json((folder / DESCRIPTION).read_bytes())
        changed = not is_sealed(folder / DESCRIPTION, about)
        made, version = (about["stage"], dict(about["settings"])), about["longcrawl_index"]
        files = {name: {"bytes": each["bytes"], "sha256": each["sha256"]} for name, each in about["files"].items()}
        found = Index(folder, int(about["documents"]), int(about["bands"]), files)
    if changed:
        raise CorruptionError(f"{folder / DESCRIPTION} has been changed: its SHA-256 differs; {AGAIN}")
    wanted = (stage, dict(settings))
    if made != wanted or version != VERSION:
        there = {"version of the index": version, "stage": made[0], **made[1]}
        here = {"version of the index": VERSION, "stage": stage, **settings}
        names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
        differ = (f"{name} {there.get(name, 'missing')}, here {here.get(name, 'missing')}" for name in names)
        raise FormatError(
            f"the index at {folder} has {', '.join(differ)}; it was made by {made[0]} with {made[1]}, but this is "
            f"{wanted[0]} with {wanted[1]}: use the same settings, or build the index again"
        )
    return found


class Arrays(NamedTuple):
    """Data of an index's documents other than ids and keys, by name."""

    whole: Mapping[str, npt.NDArray[Any]] = MappingProxyType({})
    lengths: Mapping[str, Places] = MappingProxyType({})
    """Lengths to accumulate, from 0, into offsets: the start of each document in another array."""


class IndexedSurvey(Survey):
    """Base of surveys that remove documents found in earlier datasets, and that can save an index of kept documents."""

    against: tuple[str, ...]
    """Indexes of earlier datasets, or the runs that saved them; see :func:`open_index`."""
    index: SaveIndex
    """With "save", a run writes an index of the documents that it finally kept to ``index/STAGE``."""

    @abstractmethod
    def hashed(self) -> dict[str, Any]:
        """Return the settings that the keys depend on, ready for JSON."""

    words: ClassVar[int]

    @property
    @abstractmethod
    def index_bands(self) -> int:
        """Number of bands in an index."""

    @abstractmethod
    def band_keys(self, known: pa.Table) -> Iterator[Keys]:
        """Return the keys of documents that have keys, band by band; use each array before taking the next."""

    def arrays(self, known: pa.Table) -> "Arrays":  # noqa: ARG002  # those that save more need it
        """Return other data of documents that have keys, for the index; the column of keys may be missing."""
        return Arrays()

    def known(self, kept: pa.Table) -> pa.Table:
        """Return the sketches of documents that have keys."""
        return kept.filter(pc.is_valid(kept[self.key]))

    def save_index(self, kept: pa.Table, folder: Path) -> None:
        """Write the index of documents from their sketches."""
        known = self.known(kept)
        whole, lengths = self.arrays(known)
        totals = {name: np.cumsum(np.concatenate([[0], each])) for name, each in lengths.items()}
        write_index(folder, self.name, self.hashed(), known["id"], self.band_keys(known), {**whole, **totals})

    def exchange_index(self, kept: Sketched, folder: Path, engine: Engine) -> None:
        """Write the index as :meth:`save_index` does, from sketches in groups; finished parts are not made again."""
        assert kept.folder is not None, "sketches in memory have save_index"
        known = Exchange(no_rows, partial(_take_known, self, kept), kept.groups, kept.folder / "known")
        take_each(known, engine)
        numbered = replace(kept, rows=tuple(map(known.rows, range(kept.groups))))
        documents = int(numbered.starts[-1])
        pieces = -(-documents // PIECE) or 1
        make, take = partial(_make_keys, self, numbered, pieces), partial(_take_keys, self.words)
        keys = Exchange(make, take, self.index_bands * pieces, kept.folder / "keys")
        engine.exchange(keys, range(kept.groups))
        remove(folder / DESCRIPTION)
        whole, lengths = self.arrays(known.read(0).slice(0, 0))
        files: dict[str, Callable[[Path], list[str]]] = {"ids": partial(_write_ids, known)}
        files |= {name: partial(_write_whole, self, known, name) for name in whole}
        files |= {name: partial(_write_total, self, known, name) for name in lengths}
        files |= {band_names(band)[0]: partial(_write_band, keys, pieces, band) for band in range(self.index_bands)}
        markers = {name: kept.folder / "files" / f"{name}.json" for name in files}
        waiting = [(markers[name], write) for name, write in files.items() if Marker.read(markers[name]) is None]
        for _ in engine.tasks(partial(_write_files, folder), waiting):
            pass
        made = [Marker.open(marker).resolved_files() for marker in markers.values()]
        entries = {Path(file).name: entry for each in made for file, entry in each.items()}
        describe_index(folder, self.name, self.hashed(), documents, self.index_bands, entries)

    @abstractmethod
    def find_earlier(self, sketches: pa.Table) -> pa.Table:
        """Return the removals (``REMOVAL_SCHEMA``) of documents found in earlier datasets."""

    @property
    def saves_index(self) -> bool:
        """Whether a run saves an index."""
        return self.index == "save"

    def used_indexes(self) -> dict[str, str]:
        """Return the SHA-256 of each ``index.json``, which contains those of all files, by path."""
        opened = zip(self.against, self.open_indexes(), strict=True)
        return {path: checksum(index.folder / DESCRIPTION) for path, index in opened}

    def prepare(self) -> None:
        """Open the indexes, so that a wrong one is rejected before any document is read."""
        self.open_indexes()

    def open_indexes(self) -> list[Index]:
        """Open the indexes of ``against``; FormatError if one is missing or was made with other settings."""
        return [open_index(path, self.name, self.hashed()) for path in self.against]


REMOVALS = pa.schema([(DOCUMENT, pa.int64()), *REMOVAL_SCHEMA])


def removal_table(
    ids: Any, rule: str, kept_ids: Any, values: npt.NDArray[np.float64] | None = None, threshold: float | None = None
) -> pa.Table:
    """Return rows of ``REMOVAL_SCHEMA``: documents removed by one rule, each in favour of a kept document."""
    nothing = pa.nulls(len(ids), pa.float64())
    measured = nothing if values is None else pa.array(values, pa.float64())
    bound = nothing if threshold is None else pa.repeat(pa.scalar(threshold, pa.float64()), len(ids))
    return pa.table([ids, pa.repeat(rule, len(ids)), measured, bound, kept_ids], schema=REMOVAL_SCHEMA)


def take_ids(ids: pa.ChunkedArray, places: Places) -> pa.ChunkedArray:
    """Return the ids at some positions, in this order; -1 gives null. ``take`` would join chunks: up to 2 GiB."""
    ends = np.cumsum([len(chunk) for chunk in ids.chunks] or [0])
    order = np.argsort(places, kind="stable")
    inside = order[np.searchsorted(places[order], 0) :]
    taken = [pa.array([], pa.large_string())]
    stops = np.searchsorted(places[inside], ends)
    for chunk, end, first, stop in zip(ids.chunks, ends, [0, *stops[:-1]], stops, strict=False):
        if stop > first:
            here = places[inside[first:stop]] - (end - len(chunk))
            taken.append(pc.cast(chunk, pa.large_string()).take(pa.array(here)))
    found = np.full(len(places), -1, np.int64)
    found[inside] = np.arange(len(inside))
    whole = pa.concat_arrays(taken).take(pa.array(found, mask=found < 0))
    pieces = [pc.cast(whole[first : first + CHUNK_IDS], pa.string()) for first in range(0, len(whole), CHUNK_IDS)]
    return pa.chunked_array(pieces, pa.string())


def first_of_equal(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that differ from the one before."""
    differ = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=differ[1:])
    return differ


SENT = 64 << 20


@dataclass(frozen=True)
class Batch:
    """Buffer that collects rows into large batches."""

    tables: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Add rows; yield the batch when it is large enough."""
        if table.num_rows:
            self.tables.append(table)
        if sum(each.nbytes for each in self.tables) > SENT:
            yield from self.release()

    def release(self) -> Iterator[pa.Table]:
        """Yield the collected rows as one table, if there are any."""
        if self.tables:
            yield pa.concat_tables(self.tables)
            self.tables.clear()


def batches(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Collect the rows of tables into large batches."""
    batch = Batch()
    for table in tables:
        yield from batch.add(table)
    yield from batch.release()


PIECE = 1 << 22


def _take_known(survey: IndexedSurvey, kept: Sketched, group: int, _: Iterator[pa.Table]) -> pa.Table:
    """Return a group's documents that have keys; chunks are not combined, because each becomes a batch of ids."""
    return pa.concat_tables(survey.known(table).drop_columns([survey.key]) for table in kept.read(group))


def _make_keys(survey: IndexedSurvey, numbered: Sketched, pieces: int, group: int) -> Iterator[tuple[int, pa.Table]]:
    known = pa.concat_tables(map(survey.known, numbered.read(group)))
    documents = np.arange(*numbered.starts[group : group + 2])
    for band, keys in enumerate(survey.band_keys(known)):
        rows = pa.table([*keys.T, documents], schema=_key_schema(survey.words))
        yield from cut(rows, band * pieces + key_ranges(keys[:, 0], pieces))


def _take_keys(words: int, _: int, tables: Iterator[pa.Table]) -> pa.Table:
    schema = _key_schema(words)
    rows = pa.concat_tables([schema.empty_table(), *tables])
    return rows.sort_by([(name, "ascending") for name in schema.names]).combine_chunks()


def _key_schema(words: int) -> pa.Schema:
    return pa.schema([*((f"key_{word}", pa.uint64()) for word in range(words)), (DOCUMENT, pa.int64())])


def _write_files(folder: Path, task: tuple[Path, Callable[[Path], list[str]]]) -> None:
    marker, write = task
    Marker(marker, {}, Marker.entries(marker, [folder / name for name in write(folder)])).write()


def _write_ids(known: Exchange, folder: Path) -> list[str]:
    return [write_ids(folder, map(known.read, range(known.partitions)))]


def _write_whole(survey: IndexedSurvey, known: Exchange, name: str, folder: Path) -> list[str]:
    pieces = (survey.arrays(table).whole[name] for table in map(known.read, range(known.partitions)))
    return [write_array(folder, name, pieces)]


def _write_total(survey: IndexedSurvey, known: Exchange, name: str, folder: Path) -> list[str]:
    def pieces() -> Iterator[Places]:
        total = np.zeros(1, np.int64)
        yield total
        for table in map(known.read, range(known.partitions)):
            totals = np.cumsum(np.concatenate([total, survey.arrays(table).lengths[name]]))
            yield totals[1:]
            total = totals[-1:]

    return [write_array(folder, name, pieces())]


def _write_band(keys: Exchange, pieces: int, band: int, folder: Path) -> list[str]:
    keys_name, rows_name = band_names(band)
    partitions = range(band * pieces, (band + 1) * pieces)
    tables, again = map(keys.read, partitions), map(keys.read, partitions)
    words = (np.stack([column.to_numpy() for column in table.columns[:-1]], axis=1) for table in tables)
    rows = (table[DOCUMENT].to_numpy() for table in again)
    return [write_array(folder, keys_name, words), write_array(folder, rows_name, rows)]


ENDS = "_ends"
"""Suffix of arrays with the offsets of documents in another array: ``ngram_ends`` for ``ngrams``."""


def remove_from_index(folder: Path, ids: pa.Array) -> int:
    """Rewrite an index without some documents, if it has any of them; return the number removed.

    FormatError for an array with neither a row for each document nor offsets, CorruptionError for a changed file.
    """
    about = json.loads((folder / DESCRIPTION).read_bytes())
    if problem := next(verify_files(folder, about["files"]), ""):
        raise CorruptionError(f"{folder}: {problem}; nothing was written; longcrawl verify lists all problems")
    with pa.memory_map(str(folder / "ids.arrow")) as mapped:
        known = pa.ipc.open_file(mapped).read_all()
    stays = ~np.asarray(pc.is_in(known["id"], value_set=ids).to_numpy(zero_copy_only=False), bool)
    if stays.all():
        return 0
    places: Places = np.cumsum(stays) - 1
    bands = [band_names(band) for band in range(about["bands"])]
    more = [name.removesuffix(".npy") for name in about["files"] if name.endswith(".npy")]
    others = dict(_others(folder, sorted(set(more) - {name for pair in bands for name in pair}), stays))
    names = [write_ids(folder, [known.filter(pa.array(stays))])]
    for keys_name, rows_name in bands:
        keys, rows = _array(folder, keys_name), _array(folder, rows_name)
        kept = stays[rows]
        names += [write_array(folder, keys_name, [keys[kept]]), write_array(folder, rows_name, [places[rows[kept]]])]
    names += [write_array(folder, name, [values]) for name, values in others.items()]
    files = file_entries(folder, names)
    describe_index(folder, about["stage"], about["settings"], int(stays.sum()), len(bands), files)
    return int((~stays).sum())


def _others(folder: Path, names: list[str], stays: "npt.NDArray[np.bool_]") -> Iterator[tuple[str, npt.NDArray[Any]]]:
    flat = {f"{name.removesuffix(ENDS)}s": name for name in names if name.endswith(ENDS)}
    for name in names:
        values = _array(folder, name)
        if name in flat:
            lengths = np.diff(_array(folder, flat[name]))
            yield name, values[np.repeat(stays, lengths)]
        elif name.endswith(ENDS):
            yield name, np.cumsum(np.concatenate([[0], np.diff(values)[stays]])).astype(values.dtype)
        elif len(values) == len(stays):
            yield name, values[stays]
        else:
            raise FormatError(
                f"{folder / name}.npy has {len(values):,} rows for {len(stays):,} documents: save it again"
            )


def _array(folder: Path, name: str) -> npt.NDArray[Any]:
    return np.asarray(np.load(folder / f"{name}.npy", allow_pickle=False))


def search_earlier(survey: IndexedSurvey, sketched: Sketched, engine: Engine) -> Exchange:
    """Find the documents of each group that are in earlier datasets (``REMOVALS``), in one task per group."""
    folder, compared = sketched.place("earlier"), sketched.place("indexes.json")
    step = Exchange(no_rows, partial(_take_earlier, survey, sketched, compared), sketched.groups, folder)
    if survey.against and compared and step.waiting() and Marker.read(compared) is None:
        files = [str(index.folder / name) for index in survey.open_indexes() for name in index.files]
        Marker(compared, {"files": sorted(engine.tasks(described_content, files))}, {}).write()
    take_each(step, engine)
    return step


def _take_earlier(
    survey: IndexedSurvey, sketched: Sketched, compared: Path | None, group: int, _: Iterator[pa.Table]
) -> pa.Table:
    if not survey.against:
        return REMOVALS.empty_table()
    if compared:
        remember_content(map(tuple, Marker.open(compared).content["files"]))
    table = sketched.table(group)
    removals = survey.find_earlier(table)
    places = pc.index_in(removals["id"], value_set=pc.cast(table["id"], pa.string()).combine_chunks())
    numbers = places.to_numpy().astype(np.int64) + sketched.starts[group]
    return pa.table([numbers, *removals.columns], schema=REMOVALS).sort_by(DOCUMENT).combine_chunks()


def staying(keys: pa.ChunkedArray, group: int, sketched: Sketched, earlier: Exchange) -> Places:
    """Return the positions in a group of the documents that have a key and are in no earlier dataset."""
    stays = pc.is_valid(keys).to_numpy().copy()
    stays[earlier.read(group)[DOCUMENT].to_numpy() - sketched.starts[group]] = False
    return np.flatnonzero(stays)
