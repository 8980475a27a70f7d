"""Composed datasets: documents as training samples of a few lengths, planned before a token is moved.

Specification
-------------
``NAME/`` holds the samples of each *bucket*, which all have one capacity, and tables of documents; docs/formats.md
shows its folder. Domains are named like the folders of languages in the output ``parquet``:

* ``SPLIT/CAPACITY/``, or ``SPLIT/DOMAIN/CAPACITY/``, is an array of the Zarr group ``NAME`` with a row per sample.
  Shards and compression are those of the rectangle. Inner chunks are whole samples: as many, a power of two, as make
  16,384 tokens, or one. A sample is padded with the end-of-text token. In another format the folder holds shards whose
  entries are samples without their padding;
* ``SPLIT/CAPACITY_loss_mask/``, only if some token has no loss: bool, false at tokens without a loss and on padding.
  The formats ``datatrove`` and ``token-parquet`` have it in their own files;
* ``pieces/SPLIT/CAPACITY/`` has a row for each piece of a document in the order of the samples, which are their pieces
  end to end. With ``interleaved`` as strategy or planner, ``joined`` is true for pieces that continue the text of the
  piece before: attention and positions run on, and the first token has a loss. Other pieces are separate texts;
* ``documents/SPLIT/`` has a row for each document, in the numbering of ``document``;
* ``composed.json`` is written last, with its own SHA-256 at its end: without it the output is unfinished.

A document ends with the end-of-text token, which is added if it is missing. With ``strategy: interleaved``, only the
last piece of a sample may end with it. A document without tokens is in no sample.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.order import changes
from longcrawl.formats.rectangle.spec import open_loss_mask, open_split
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.io import structured
from longcrawl.io.stored_tables import read_table
from longcrawl.tokens.plan import JOINED
from longcrawl.urls import is_url

DESCRIPTION = "composed.json"
VERSION = 1
FILE_DOCUMENTS = 1_000_000
"""Rows of a file in ``documents/``, except the last."""
HOLDS_MASK = ("zarr", "datatrove", "token-parquet")
"""Sample formats that can store a loss mask."""
Longs = npt.NDArray[np.int64]
Run = tuple[npt.NDArray[Any], npt.NDArray[np.bool_], Longs]
"""Tokens, flags and starts, as in :class:`StoredSamples`."""
OPEN_TABLES = 1024
OPEN_SHARDS = 64
ROWS_OF_CHUNKS = 4
"""Rows of decoded chunks that a bucket keeps, because samples that are read in order share chunks."""
NO_FLAGS = np.zeros(0, np.bool_)


@dataclass(frozen=True, eq=False)
class StoredSamples:
    """Samples of one file as it stores them, for the kernels of ``tokens/packing.py``."""

    asked: Longs
    """int64 [samples]: the index of each sample in the request."""
    samples: Longs
    """int64 [samples]: the number of each sample in the file."""
    bounds: Longs
    """int64 [samples of the file + 1]: the bounds of each sample's texts in ``sizes``."""
    sizes: Longs
    """int64 [texts of the file]: tokens of each text, which is a piece with the pieces joined to it."""
    tokens: npt.NDArray[Any]
    """uint16 or uint32 [tokens]; the tokens of a sample are consecutive."""
    flags: npt.NDArray[np.bool_]
    """bool [tokens], False for tokens without a loss; or empty if all have one."""
    starts: Longs
    """int64 [samples]: the index in ``tokens`` of each sample's first token."""


@dataclass(frozen=True, eq=False)
class ComposedSamples:
    """Samples read from a bucket."""

    tokens: npt.NDArray[Any]
    """[samples, capacity], uint16 or uint32 as stored, padded with the padding token."""
    loss_mask: npt.NDArray[np.bool_]
    """[samples, capacity], bool: False on padding and on other tokens without a loss."""
    piece_sizes: list[Longs]
    """For each sample, the tokens of its pieces in order, without padding; joined pieces are added up."""


@dataclass(frozen=True, eq=False)
class ComposedBucket:
    """Samples of one capacity in a split or in one of its domains; picklable, usable after a fork.

    >>> bucket = open_composed("run/composed").buckets[0]  # doctest: +SKIP
    >>> bucket.split, bucket.domain, bucket.capacity, len(bucket)  # doctest: +SKIP
    ('train', '', 2048, 45731)
    >>> bucket.read(np.array([7, 0])).tokens.shape  # doctest: +SKIP
    (2, 2048)
    """

    root: str
    split: str
    domain: str
    """The domain's value; empty if there are no domains."""
    path: str
    """The bucket's folder in the dataset: ``train/2048``, or ``train/web/2048`` with the folder of a domain."""
    capacity: int
    samples: int
    identity: str
    """Digest of its files, known without reading one."""
    end_of_text: int | None
    padding: int
    dtype: str
    stored_as: str
    masked: bool
    """Whether a loss mask is stored; padding never has a loss."""
    file_samples: int
    """Samples per file, except the last."""
    joined: bool = False
    """Whether pieces may be joined, as :mod:`longcrawl.formats.buckets.spec` specifies."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open files."""
        return ComposedBucket, tuple(getattr(self, each.name) for each in fields(self))

    def __len__(self) -> int:
        return self.samples

    def read(self, samples: npt.ArrayLike) -> ComposedSamples:
        """Read samples by number, in the order of the request; errors are as of :meth:`stored`."""
        wanted = np.asarray(samples, np.int64).reshape(-1)
        tokens = np.full((len(wanted), self.capacity), self.padding, self.dtype)
        loss_mask = np.zeros(tokens.shape, np.bool_)
        piece_sizes = [np.empty(0, np.int64)] * len(wanted)
        for stored in self.stored(wanted):
            firsts, stops = stored.bounds[stored.samples], stored.bounds[stored.samples + 1]
            places = (each.tolist() for each in (stored.asked, firsts, stops, stored.starts))
            for row, first, stop, start in zip(*places, strict=True):
                sizes = piece_sizes[row] = stored.sizes[first:stop].copy()
                length = int(sizes.sum())
                tokens[row, :length] = stored.tokens[start : start + length]
                loss_mask[row, :length] = stored.flags[start : start + length] if len(stored.flags) else True
        return ComposedSamples(tokens, loss_mask, piece_sizes)

    def stored(self, samples: Longs) -> Iterator[StoredSamples]:
        """Yield samples, int64 [n], as their files store them, grouped by file, for feeds to copy into batches.

        Raises:
            IndexError: there is no such sample.
            CorruptionError: a file is missing, cut or does not decode; the message names it.
        """
        if len(samples) and not (samples.min() >= 0 and samples.max() < self.samples):
            wrong = int(samples[(samples < 0) | (samples >= self.samples)][0])
            raise IndexError(f"{self.root}/{self.path} has samples 0 to {self.samples - 1:,}, not {wrong}")
        files, within = np.divmod(samples, self.file_samples)

        def stored(number: int, asked: Longs) -> StoredSamples:
            pieces, here = self._pieces(number), within[asked]
            return StoredSamples(asked, here, pieces.bounds, pieces.sizes, *self._reader.read(number, here, pieces))

        return (stored(number, asked) for number, asked in _groups(files))

    @cached_property
    def _reader(self) -> "_ArrayReader | _ShardReader":
        return _ArrayReader(self) if self.stored_as == "zarr" else _ShardReader(self)

    @cached_property
    def _pieces(self) -> "Callable[[int], _FilePieces]":
        return lru_cache(maxsize=OPEN_TABLES)(partial(_read_pieces, self))


@dataclass(frozen=True, eq=False)
class Composed:
    """An open composed dataset, of which only the description has been read."""

    path: str
    buckets: tuple[ComposedBucket, ...]
    """Buckets of all splits, grouped by split and domain, smallest capacity first."""
    described: Mapping[str, Any] = field(repr=False)

    def bucket(self, capacity: int, split: str = "train", domain: str = "") -> ComposedBucket:
        """Return the bucket with this capacity, split and domain; the FormatError for an unknown one lists all."""
        for each in self.buckets:
            if (each.capacity, each.split, each.domain) == (capacity, split, domain):
                return each
        names = [*((each.split, each.domain, each.capacity) for each in self.buckets), (split, domain, capacity)]
        *known, asked = ("/".join(str(part) for part in each if part != "") for each in names)
        raise FormatError(f"{self.path} has no bucket {asked}; known: {', '.join(known)}")


def open_composed(path: str | os.PathLike[str]) -> Composed:
    """Open the composed dataset in a folder, or in ``composed/`` in the folder of a finished run."""
    if is_url(str(path)):
        raise FormatError(f"{path}: bucketed datasets are read from local folders: download it first")
    folder = Path(path)
    if folder.is_file():
        raise FormatError(f"{folder} is a file, but a composed dataset is a folder: give {folder.parent}")
    if not (folder / DESCRIPTION).exists() and (folder / "composed" / DESCRIPTION).exists():
        folder = folder / "composed"
    described = read_description(folder)
    if not structured.is_sealed(folder / DESCRIPTION, described):
        raise CorruptionError(
            f"{folder / DESCRIPTION} has been changed: the SHA-256 that it records differs; copy it again, or "
            "build the dataset again"
        )
    shared = {name: described[name] for name in ("end_of_text", "dtype", "stored_as")}
    shared |= {"root": str(folder), "padding": described["end_of_text"], "masked": described["loss_mask"]}
    shared["joined"] = described.get(JOINED, False)
    names = ("split", "domain", "path", "capacity", "samples", "identity", "file_samples")
    buckets = [ComposedBucket(**shared, **{name: each[name] for name in names}) for each in described["buckets"]]
    return Composed(str(folder), tuple(buckets), described)


def read_description(path: Path) -> dict[str, Any]:
    """Read ``composed.json``; errors are those of :func:`longcrawl.io.structured.read_description`."""
    needed = ("stored_as", "dtype", "end_of_text", "json_escaped", "loss_mask", "splits", "buckets", "files")
    return structured.read_description(path / DESCRIPTION, "composed", VERSION, needed, ("documents", "tokens"))


class _FilePieces(NamedTuple):
    """Sizes of the texts in a file's samples; a text is a piece with the pieces joined to it."""

    bounds: Longs
    """int64 [samples + 1]: bounds of each sample's texts in ``sizes``."""
    sizes: Longs
    """int64 [texts]: tokens of each text."""
    lengths: Longs
    """int64 [samples]: tokens of each sample."""


def _read_pieces(bucket: ComposedBucket, number: int) -> _FilePieces:
    file = Path(bucket.root) / "pieces" / bucket.path / f"{number:05d}.parquet"
    first = number * bucket.file_samples
    samples = min(bucket.file_samples, bucket.samples - first)
    table = read_table(file, ["sample", "length", *([JOINED] if bucket.joined else [])])
    sizes, owners = table["length"].to_numpy().astype(np.int64), table["sample"].to_numpy() - first
    if bucket.joined:
        begins = np.flatnonzero(~table[JOINED].to_numpy() | (np.diff(owners, prepend=-1) != 0))
        sizes, owners = np.add.reduceat(sizes, begins), owners[begins]
    bounds = np.searchsorted(owners, np.arange(samples + 1))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    lengths = np.diff(ends[bounds])
    whole = bounds[0] == 0 and bounds[-1] == len(owners) and (np.diff(owners) >= 0).all()
    if not (whole and (sizes > 0).all() and (lengths > 0).all() and (lengths <= bucket.capacity).all()):
        raise CorruptionError(f"{file} has pieces that do not match its samples; longcrawl verify shows what is wrong")
    return _FilePieces(bounds, sizes, lengths)


def _groups(keys: Longs) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield each distinct key with its indices, in ascending order."""
    order = np.argsort(keys, kind="stable")
    for first, stop in changes(keys[order]):
        yield int(keys[order[first]]), order[first:stop]


class _ArrayReader:
    """Reader of samples stored as rows of a Zarr array, with their padding, that keeps the last decoded chunks."""

    def __init__(self, bucket: ComposedBucket) -> None:
        self._bucket, array = bucket, open_split(bucket.root, bucket.path)
        arrays = [array, open_loss_mask(array)] if bucket.masked else [array]
        self._arrays = [(each.layout, lru_cache(maxsize=ROWS_OF_CHUNKS)(each.read_band)) for each in arrays]

    def read(self, number: int, samples: Longs, pieces: _FilePieces) -> Run:
        del pieces
        rows = samples + number * self._bucket.file_samples
        order, found = np.argsort(rows).tolist(), list[npt.NDArray[Any]]()
        for layout, read_band in self._arrays:
            out = np.empty((len(rows), layout.shape[1]), layout.dtype)
            for asked in order:
                block, row = divmod(int(rows[asked]), layout.chunks[0])
                out[asked] = read_band(block)[row]
            found.append(out.reshape(-1))
        tokens, *flags = found
        return tokens, flags[0] if flags else NO_FLAGS, np.arange(len(rows)) * self._bucket.capacity


class _ShardReader:
    """Reader of samples stored as entries of memory-mapped token shards."""

    def __init__(self, bucket: ComposedBucket) -> None:
        self._bucket = bucket
        self._open: Callable[[int], tuple[TokenShard, Run]] = lru_cache(maxsize=OPEN_SHARDS)(self._opened)

    def read(self, number: int, samples: Longs, pieces: _FilePieces) -> Run:
        shard, (tokens, flags, ends) = self._open(number)
        if len(ends) != len(pieces.lengths):
            raise self._wrong(number, f"{len(ends):,} entries, but its pieces have {len(pieces.lengths):,}")
        starts = np.where(samples > 0, ends[samples - 1], 0).astype(np.int64)
        wrong = np.flatnonzero(ends[samples] - starts != pieces.lengths[samples])
        if len(wrong):
            entry = samples[wrong[0]]
            size = ends[entry] - starts[wrong[0]]
            raise self._wrong(number, f"{size:,} tokens in entry {entry:,}, its pieces {pieces.lengths[entry]:,}")
        if shard.unread:
            for first, stop in zip(starts.tolist(), ends[samples].tolist(), strict=True):
                shard.compare(first, stop)
        return tokens, flags, starts

    def _opened(self, number: int) -> tuple[TokenShard, Run]:
        chosen = FORMATS[self._bucket.stored_as]
        shard = chosen.open(self._file(number), end_of_text=self._bucket.end_of_text, check="sizes")
        flags = shard.loss_mask if self._bucket.masked and shard.loss_mask is not None else NO_FLAGS
        # Slices and scalars of plain arrays cost a fraction of those of memory maps.
        return shard, (np.asarray(shard.tokens), np.asarray(flags), np.asarray(shard.ends))

    def _file(self, number: int) -> Path:
        name = f"{number:05d}{FORMATS[self._bucket.stored_as].suffix}"
        return Path(self._bucket.root, self._bucket.path, name)

    def _wrong(self, number: int, wrong: str) -> CorruptionError:
        return CorruptionError(f"{self._file(number)} has {wrong}; longcrawl verify shows what is wrong")
