"""Documents taken out of a composed dataset: their pieces go, and the last samples of a bucket fill empty ones.

A document stays counted as one without tokens, of which nothing is known, so that the numbers of all others stand.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.composition.measures import combine, measure
from longcrawl.composition.plan import JOINED, Plan, joined_pieces
from longcrawl.core.removal import TOKENS, Changes, Longs, Proof, Removal, filled_holes, rows_of_ids
from longcrawl.errors import FormatError
from longcrawl.formats.buckets import spec
from longcrawl.formats.buckets.build import composition_numbers, composition_of
from longcrawl.formats.rectangle.build import Layout, lay_out, write_band
from longcrawl.formats.rectangle.spec import LOSS_MASK_SUFFIX as MASK
from longcrawl.formats.shards.shard import N_TOKENS, Documents
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.storage.stored_tables import read_table, write_table

ATTRIBUTES = ("end_of_text", "vocabulary_size", "tokenizer", "json_escaped")
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
TABLE = {"compression": "zstd", "compression_level": 3}


@dataclass(frozen=True)
class _Group:
    """The buckets of a split, or of a domain of it, and which of their documents go."""

    changes: Changes
    path: str
    gone: Longs
    """int64, ascending, numbers of documents."""
    buckets: tuple[spec.ComposedBucket, ...]

    @property
    def folder(self) -> Path:
        return self.changes.folder

    def tables(self) -> list[str]:
        """Name the tables of documents, in order."""
        begins = f"documents/{self.path}/"
        names = [name for name in self.changes.described["files"] if name.startswith(begins)]
        return sorted(name for name in names if "/" not in name.removeprefix(begins))


def without_documents(folder: Path, ids: pa.Array, layouts: Mapping[int, dict[str, Layout]]) -> Removal:
    """Write the files that hold some documents again without them; see :class:`longcrawl.core.results.Result`.

    Args:
        folder: of the composed dataset.
        ids: of the documents, strings.
        layouts: of the arrays of a bucket, by its capacity and by what follows its path; empty for shards.
    """
    changes, proof, gone = Changes(folder, dict(spec.read_description(folder))), Proof(TOKENS), 0
    opened = spec.open_composed(folder)
    groups = list[tuple[_Group, dict[str, _Rewriting]]]()
    for path in dict.fromkeys(bucket.path.rpartition("/")[0] for bucket in opened.buckets):
        buckets = tuple(each for each in opened.buckets if each.path.rpartition("/")[0] == path)
        group = _Group(changes, path, _forget(changes, path, ids), buckets)
        if len(group.gone):
            gone += len(group.gone)
            groups.append((group, {bucket.path: _Rewriting(bucket, group) for bucket in buckets}))
            for rewriting in groups[-1][1].values():
                rewriting.note(proof)
    for group, rewritings in groups:
        kept = {path: each.write(layouts.get(each.bucket.capacity, {}), proof) for path, each in rewritings.items()}
        _measure(group, kept)
    if gone:
        changes.described["buckets"] = [each for each in changes.described["buckets"] if each["samples"]]
        if layouts:
            _lay_out(changes, layouts)
        _identify(changes)
    return changes.finish(spec.DESCRIPTION, gone, proof)


def _forget(changes: Changes, path: str, ids: pa.Array) -> Longs:
    """Take what is known of some documents out of the tables of a group; return their numbers."""
    found = [np.empty(0, np.int64)]
    group = _Group(changes, path, found[0], ())
    for number, name in enumerate(group.tables()):
        table = read_table(changes.folder / name)
        rows = rows_of_ids(table, ids)
        if len(rows):
            found.append(rows + number * spec.FILE_DOCUMENTS)
            stays = np.ones(table.num_rows, bool)
            stays[rows] = False
            nothing = {
                each: pa.scalar(0 if each == N_TOKENS else None, table[each].type) for each in table.column_names
            }
            columns = {each: pc.if_else(pa.array(stays), table[each], value) for each, value in nothing.items()}
            write_table(pa.table(columns, schema=table.schema).combine_chunks(), changes.folder / name, **TABLE)
            changes.changed.append(name)
    return np.concatenate(found)


@dataclass(frozen=True)
class _Pieces:
    """The pieces of all samples of a bucket, and which of them stay."""

    table: pa.Table
    gone: Longs
    samples: int

    @cached_property
    def stays(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        return np.asarray(~np.isin(self.table["document"].to_numpy(), self.gone))

    @cached_property
    def owners(self) -> Longs:
        return np.asarray(self.table["sample"].to_numpy(), np.int64)

    @cached_property
    def counts(self) -> Longs:
        """How many pieces of each sample stay."""
        return np.asarray(np.bincount(self.owners[self.stays], minlength=self.samples), np.int64)

    @cached_property
    def source(self) -> Longs:
        """Which sample is in each place when it is done."""
        return filled_holes(self.samples, np.flatnonzero(self.counts == 0))

    def rows(self, samples: Longs) -> Longs:
        """Return the rows of the pieces that stay of some samples, sample by sample."""
        bounds = np.searchsorted(self.owners, np.stack([samples, samples + 1]))
        rows = [np.arange(first, stop) for first, stop in bounds.T.tolist()]
        found = np.concatenate([np.empty(0, np.int64), *rows])
        return np.asarray(found[self.stays[found]], np.int64)

    def of(self, samples: Longs, first: int) -> pa.Table:
        """Return the pieces that stay of some samples, which are numbered from ``first`` on."""
        table = self.table.take(pa.array(self.rows(samples))).combine_chunks()
        counts = self.counts[samples]
        columns = {"sample": pa.array(np.repeat(np.arange(len(samples)) + first, counts))}
        if JOINED in table.column_names:
            # What was between two chunks may be gone, or the document whose chunks they were.
            bounds = np.concatenate([[0], np.cumsum(counts)])
            columns[JOINED] = pa.array(joined_pieces(bounds, table["document"].to_numpy()))
        for name, values in columns.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table


@dataclass(frozen=True)
class _Rewriting:
    """The files of a bucket that change."""

    bucket: spec.ComposedBucket
    group: _Group

    @cached_property
    def names(self) -> list[str]:
        """The tables of pieces, one for each file."""
        begins = f"pieces/{self.bucket.path}/"
        return sorted(name for name in self.group.changes.described["files"] if name.startswith(begins))

    @cached_property
    def pieces(self) -> _Pieces:
        """All pieces of the bucket."""
        tables = [read_table(self.group.folder / name) for name in self.names]
        return _Pieces(pa.concat_tables(tables).combine_chunks(), self.group.gone, len(self.bucket))

    @property
    def count(self) -> int:
        """How many files there are when it is done."""
        return -(-len(self.pieces.source) // self.bucket.file_samples)

    @cached_property
    def dirty(self) -> list[int]:
        """The files that are written again."""
        pieces, step = self.pieces, self.bucket.file_samples
        moved = np.flatnonzero(pieces.source != np.arange(len(pieces.source))).tolist()
        touched = np.unique(pieces.owners[~pieces.stays]).tolist()
        found = {sample // step for sample in (*moved, *touched)} & set(range(self.count))
        short = len(pieces.source) < len(self.bucket) and len(pieces.source) % step
        return sorted(found | ({self.count - 1} if short else set()))

    @property
    def dropped(self) -> range:
        """The files that are no more."""
        return range(self.count, len(self.names))

    def note(self, proof: Proof) -> None:
        """Note what is in the files that change."""
        step = self.bucket.file_samples
        for number in (*self.dirty, *self.dropped):
            samples = np.arange(number * step, min((number + 1) * step, len(self.bucket)))
            for row, tokens, _ in _contents(self.bucket, self.pieces, samples):
                proof.before(_name(self.pieces.table, row), tokens, kept=bool(self.pieces.stays[row]))

    def write(self, layouts: dict[str, Layout], proof: Proof) -> pa.Table:
        """Write the files; return the pieces of all samples as they are then."""
        changes, pieces, step = self.group.changes, self.pieces, self.bucket.file_samples
        for number in self.dirty:
            chosen = pieces.source[number * step : (number + 1) * step]
            table = pieces.of(chosen, number * step)
            _write(self.bucket, changes, number, chosen, pieces, layouts, (table, proof))
            write_table(table, self.group.folder / self.names[number], **TABLE)
            changes.changed.append(self.names[number])
        for number in self.dropped:
            changes.drop(self.names[number], *_files(self.bucket, changes, number))
        entry = next(each for each in changes.described["buckets"] if each["path"] == self.bucket.path)
        kept = pieces.of(pieces.source, 0)
        heads, tokens = int((kept["start"].to_numpy() == 0).sum()), int(pc.sum(kept["length"]).as_py() or 0)
        entry |= {"samples": len(pieces.source), "pieces": kept.num_rows, "documents": heads, "tokens": tokens}
        return kept


def _contents(
    bucket: spec.ComposedBucket, pieces: _Pieces, samples: Longs
) -> "Iterator[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.bool_]]]]":
    """Yield the row of each piece of some samples, its tokens and their loss mask."""
    for sample in samples.tolist():
        read, place = bucket.read([sample]), 0
        first, stop = np.searchsorted(pieces.owners, [sample, sample + 1]).tolist()
        for row, size in enumerate(pieces.table["length"][first:stop].to_pylist(), first):
            yield row, read.tokens[0, place : place + size], read.loss_mask[0, place : place + size]
            place += size


def _name(table: pa.Table, row: int) -> bytes:
    return f"{table['document'][row]}/{table['start'][row]}".encode()


def _write(
    bucket: spec.ComposedBucket,
    changes: Changes,
    number: int,
    samples: Longs,
    pieces: _Pieces,
    layouts: dict[str, Layout],
    noted: tuple[pa.Table, Proof],
) -> None:
    """Write one file of samples without the pieces that go."""
    there = [(tokens, mask) for row, tokens, mask in _contents(bucket, pieces, samples) if pieces.stays[row]]
    table, proof = noted
    for row, (tokens, _) in enumerate(there):
        proof.after(_name(table, row), tokens)
        proof.look([tokens])
    owners = np.repeat(np.arange(len(samples)), pieces.counts[samples])
    sizes = np.array([len(tokens) for tokens, _ in there], np.int64)
    lengths = np.bincount(owners, sizes, len(samples)).astype(np.int64)
    flat = np.concatenate([tokens for tokens, _ in there])
    flags = np.concatenate([mask for _, mask in there])
    if not layouts:
        form = FORMATS[bucket.stored_as]
        given = {"end_of_text": bucket.end_of_text, "terminate": "never", "dtype": bucket.dtype}
        given["vocabulary_size"] = changes.described.get("vocabulary_size")
        path = f"{bucket.path}/{number:05d}{form.suffix}"
        entries = Documents(flat, lengths, None, flags if bucket.masked else None)
        form.write([entries], changes.folder / path, **form.settings("write", given))
        changes.changed += _files(bucket, changes, number)
        return
    filled = np.arange(bucket.capacity) < lengths[:, None]
    for suffix, layout in layouts.items():
        values = np.full((layout.whole_chunks(len(samples)), bucket.capacity), layout.fill_value, layout.dtype)
        # What fills a sample up has no loss; rows behind the last one are as if they had.
        values[: len(samples)] = False if suffix else layout.fill_value
        values[: len(samples)][filled] = flags if suffix else flat
        changes.changed += write_band(changes.folder, f"{bucket.path}{suffix}", number, values, layout)


def _files(bucket: spec.ComposedBucket, changes: Changes, number: int) -> list[str]:
    """Name the files of samples of one number, of tokens and of their loss mask."""
    names = changes.described["files"]
    if bucket.stored_as != "zarr":
        return [name for name in names if name.startswith(f"{bucket.path}/{number:05d}.")]
    begins = [f"{bucket.path}{suffix}/{part}" for suffix in ("", MASK) for part in (f"c/{number}/", f"{number}.")]
    return [name for name in names if name.startswith(tuple(begins))]


def _measure(group: _Group, kept: Mapping[str, pa.Table]) -> None:
    """Measure the samples of a group as they are now, and its split."""
    described = group.changes.described
    # The description names tables as they were.
    tables = [pq.read_table(group.folder / name, columns=[N_TOKENS], partitioning=None) for name in group.tables()]
    lengths = np.concatenate([table[N_TOKENS].to_numpy() for table in tables])
    capacities = [np.full(_samples(kept[bucket.path]), bucket.capacity) for bucket in group.buckets]
    tables = [kept[bucket.path] for bucket in group.buckets]
    counts = [np.bincount(table["sample"].to_numpy(), minlength=_samples(table)) for table in tables]
    bounds = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    columns = [np.concatenate([table[name].to_numpy() for table in tables]) for name in ("document", "start", "length")]
    plan = Plan(lengths, np.concatenate(capacities), bounds, *columns)
    split, _, folder = group.path.partition("/")
    label = described["splits"][split]["label"]
    found = measure(plan, label, described["capacities"])
    if "domains" in described:
        for each in described["domains"]:
            if (each["split"], each["folder"]) == (split, folder):
                each.update(composition_numbers(found))
        of_split = [composition_of(each) for each in described["domains"] if each["split"] == split]
        found = combine(of_split, label)
    if split == "train" and not found.samples:
        raise FormatError("no sample to train on would be left: run the recipe again without the documents")
    described["splits"][split] = composition_numbers(found)


def _samples(table: pa.Table) -> int:
    return int(table["sample"][-1].as_py()) + 1 if table.num_rows else 0


def _lay_out(changes: Changes, layouts: Mapping[int, dict[str, Layout]]) -> None:
    described, folder = changes.described, changes.folder
    gone = {each.path for each in spec.open_composed(folder).buckets} - {each["path"] for each in described["buckets"]}
    for name in list(described["files"]):
        if name.rpartition("/")[0].removesuffix(MASK) in gone:
            changes.drop(name)
    arrays = {
        f"{each['path']}{suffix}": (layout, each["samples"])
        for each in described["buckets"]
        for suffix, layout in layouts[each["capacity"]].items()
    }
    attributes = {name: described[name] for name in ATTRIBUTES} | ({"loss_mask": True} if described["masked"] else {})
    changes.changed += lay_out(folder, arrays, attributes)


def _identify(changes: Changes) -> None:
    """Digest the files of each bucket as they are now, as the writer has done."""
    described = changes.described
    for each in described["buckets"]:
        begins = (f"{each['path']}/", f"{each['path']}{MASK}/", f"pieces/{each['path']}/")
        names = {name for name in (*described["files"], *changes.changed) if name.startswith(begins)}
        names = {name for name in names - set(changes.dropped) if name.rpartition("/")[2] not in METADATA}
        digests = [(name, _digest(changes, name)) for name in sorted(names)]
        about = [described["stored_as"], described["dtype"], described["loss_mask"], described["end_of_text"]]
        text = json.dumps([*about, each["samples"], digests])
        each["identity"] = hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest(changes: Changes, name: str) -> str:
    if name in changes.changed:
        return hashlib.sha256((changes.folder / name).read_bytes()).hexdigest()
    return str(changes.described["files"][name]["sha256"])
