"""An index made by tasks, of documents in groups that are each small enough for one; and without some documents.

Made by tasks, it has the same files as in one process, byte for byte. One process keeps a path of its own,
:func:`longcrawl.dedup.index.write_index`: with all documents as one group, tasks take 1.1 to 2 times as much CPU time,
since they make the arrays once for each file, and cut the keys into ranges before they sort them.

========  ==============================  ==========================  ==============================================
step      tasks > partitions              rows that meet              a partition becomes
========  ==============================  ==========================  ==============================================
known     a task for each group           none                        the sketches of its documents, without keys
keys      groups > bands x pieces,        all keys of each group, 16  the keys of a range, sorted, with the documents
          by band and range of keys       or 24 bytes each            that have them
files     a task for each file, or two    none                        a file: ids, keys and rows of a band, an array
          of a band
========  ==============================  ==========================  ==============================================

A task of "known" or "keys" holds the sketches of a group, one of "files" those of one group without keys, or the keys
of one range. A range has about ``PIECE`` documents, in 200 to 270 MB. Those that share a key are in one: 1e8 kept
documents with one key of MinHash, which ``verify`` finds unlike, would take 5 GB. A table is sent from each group to
each range of each band: with 450 bands, beyond some 1e8 documents, these are very many small ones.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sketched import DOCUMENT, Sketched, cut, key_ranges, no_rows, take_each
from longcrawl.dedup.index import DESCRIPTION, IndexedSurvey, Places, band_names, describe_index, write_array, write_ids
from longcrawl.engines.base import Engine, Exchange
from longcrawl.errors import CorruptionError, FormatError
from longcrawl.storage.files import file_entries, remove
from longcrawl.storage.sealed import Marker, verify_files

PIECE = 1 << 22
"""Documents whose keys of a band are in one partition, about."""


def exchange_index(survey: IndexedSurvey, kept: Sketched, folder: Path, engine: Engine) -> None:
    """Write the index of documents in groups; what is finished of it lies in ``kept.folder``, and is not made again.

    Args:
        survey: which made their sketches.
        kept: those of documents that a run has kept in the end; how many there are of each group is not known.
        folder: where; what lies there is replaced.
        engine: what carries it out.
    """
    assert kept.folder is not None, "sketches in memory have save_index"
    known = Exchange(no_rows, partial(_take_known, survey, kept), kept.groups, kept.folder / "known")
    take_each(known, engine)
    numbered = replace(kept, rows=tuple(map(known.rows, range(kept.groups))))
    documents = int(numbered.starts[-1])
    pieces = -(-documents // PIECE) or 1
    make, take = partial(_make_keys, survey, numbered, pieces), partial(_take_keys, survey.words)
    keys = Exchange(make, take, survey.index_bands * pieces, kept.folder / "keys")
    engine.exchange(keys, range(kept.groups))
    remove(folder / DESCRIPTION)
    whole, lengths = survey.arrays(known.read(0).slice(0, 0))
    files: dict[str, Callable[[Path], list[str]]] = {"ids": partial(_write_ids, known)}
    files |= {name: partial(_write_whole, survey, known, name) for name in whole}
    files |= {name: partial(_write_total, survey, known, name) for name in lengths}
    files |= {band_names(band)[0]: partial(_write_band, keys, pieces, band) for band in range(survey.index_bands)}
    markers = {name: kept.folder / "files" / f"{name}.json" for name in files}
    waiting = [(markers[name], write) for name, write in files.items() if Marker.read(markers[name]) is None]
    for _ in engine.tasks(partial(_write_files, folder), waiting):
        pass
    made = [Marker.open(marker).resolved_files() for marker in markers.values()]
    entries = {Path(file).name: entry for each in made for file, entry in each.items()}
    describe_index(folder, survey.name, survey.hashed(), documents, survey.index_bands, entries)


def _take_known(survey: IndexedSurvey, kept: Sketched, group: int, _: Iterator[pa.Table]) -> pa.Table:
    """Return a group's documents that have keys; its chunks stay, as each is a batch of ids."""
    return pa.concat_tables(survey.known(table).drop_columns([survey.key]) for table in kept.read(group))


def _make_keys(survey: IndexedSurvey, numbered: Sketched, pieces: int, group: int) -> Iterator[tuple[int, pa.Table]]:
    """Send the keys of a group, each with the number of its document, by band and range."""
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


def _read_all(step: Exchange, partitions: range) -> Iterator[pa.Table]:
    yield from map(step.read, partitions)


def _write_ids(known: Exchange, folder: Path) -> list[str]:
    return [write_ids(folder, _read_all(known, range(known.partitions)))]


def _write_whole(survey: IndexedSurvey, known: Exchange, name: str, folder: Path) -> list[str]:
    pieces = (survey.arrays(table).whole[name] for table in _read_all(known, range(known.partitions)))
    return [write_array(folder, name, pieces)]


def _write_total(survey: IndexedSurvey, known: Exchange, name: str, folder: Path) -> list[str]:
    return [write_array(folder, name, _totals(survey, known, name))]


def _totals(survey: IndexedSurvey, known: Exchange, name: str) -> Iterator[Places]:
    total = np.zeros(1, np.int64)
    yield total
    for table in _read_all(known, range(known.partitions)):
        totals = np.cumsum(np.concatenate([total, survey.arrays(table).lengths[name]]))
        yield totals[1:]
        total = totals[-1:]


def _write_band(keys: Exchange, pieces: int, band: int, folder: Path) -> list[str]:
    keys_name, rows_name = band_names(band)
    tables = partial(_read_all, keys, range(band * pieces, (band + 1) * pieces))
    words = (np.stack([column.to_numpy() for column in table.columns[:-1]], axis=1) for table in tables())
    rows = (table[DOCUMENT].to_numpy() for table in tables())
    return [write_array(folder, keys_name, words), write_array(folder, rows_name, rows)]


ENDS = "_ends"
"""How the name of an array ends that says where documents begin in another one, as ``ngram_ends`` in ``ngrams``."""


def remove_from_index(folder: Path, ids: pa.Array) -> int:
    """Write an index again without some documents; return how many they were. Nothing is written where there are none.

    Raises:
        FormatError: it has an array of which nobody knows what belongs to a document.
        CorruptionError: a file of it has been changed.
    """
    about = json.loads((folder / DESCRIPTION).read_bytes())
    if problem := next(verify_files(folder, about["files"]), ""):
        raise CorruptionError(f"{folder}: {problem}; nothing is written, longcrawl verify lists all that is wrong")
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
    """Yield the arrays beside the keys, without what is of documents that go."""
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
