"""Composed datasets: documents as training samples of a few lengths, planned before a token is moved.

Specification
-------------
``NAME/`` holds the samples of each *bucket*, which are all of one capacity, and what they were made of:

* ``SPLIT/CAPACITY/``, such as ``train/2048/``, and with ``domains: COLUMN`` ``SPLIT/DOMAIN/CAPACITY/``, domains being
  named as the folders of languages of the output ``parquet`` are. It is an array of the Zarr group ``NAME`` with a row
  per sample, in shards and compressed as the rectangle is, but for its inner chunks, which are whole samples: as many,
  a power of two, as make 16,384 tokens, or one. A sample's end is filled up with the end-of-text token. In another
  format it holds ``00000.bin`` and so on, whose entries are samples without their padding;
* ``SPLIT/CAPACITY_loss_mask/``, only where there is a token that no loss is due on: bool, in the shape of the tokens,
  false there and on padding. The formats ``datatrove`` and ``token-parquet`` have it in their own files;
* ``pieces/SPLIT/CAPACITY/00000.parquet`` …: a row for each piece of a document in the order of the samples: ``bucket``
  (the capacity), ``sample``, ``document``, ``id``, ``url``, ``language`` and ``domain``, whichever there are, ``start``
  and ``length`` in tokens of its document, ``head`` and ``tail``, whether it has the first and the last of them. A
  sample is its pieces end to end. With ``planner: interleaved``, ``joined`` is true for pieces that continue the text
  of the piece before: attention and positions run on, and the first token has a loss. Other pieces are texts of their
  own. A file has the pieces of as many samples as a shard, or a band of 2,048;
* ``documents/SPLIT/00000.parquet`` …: a row for each document, those that ``document`` counts: ``id`` and the like,
  ``date``, ``source``, ``file`` and ``offset``, whichever there are, and ``n_tokens``, with its end-of-text token;
* ``tokenizer.json``, when the tokens were made here;
* ``composed.json``: settings, measures of the composition, buckets, and bytes and SHA-256 of every file and, last, its
  own. It is written last: without it the output is not finished.

A document ends with the end-of-text token, which is added where it is missing; one without tokens is in no sample. The
held-out split is ``heldout`` of arrays, ``val`` of shards, as these formats' own outputs have it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.rectangle.spec import SplitArray, open_loss_mask, open_split
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.io import structured
from longcrawl.io.stored_tables import read_table
from longcrawl.tokens.plan import JOINED
from longcrawl.urls import is_url

DESCRIPTION = "composed.json"
VERSION = 1
FILE_DOCUMENTS = 1_000_000
"""Rows of a table of documents."""
HOLDS_MASK = ("zarr", "datatrove", "token-parquet")
"""The formats of samples that have a place for a loss mask."""

Longs = npt.NDArray[np.int64]

Run = tuple[npt.NDArray[Any], npt.NDArray[np.bool_], Longs]
"""Tokens, flags and starts, see :class:`StoredSamples`."""

OPEN_TABLES = 1024
OPEN_SHARDS = 64
ROWS_OF_CHUNKS = 4
"""How many rows of decoded chunks a bucket keeps: samples that are read one after the other share them."""

NO_FLAGS = np.zeros(0, np.bool_)


@dataclass(frozen=True, eq=False)
class StoredSamples:
    """Samples of one file as they lie there, for the kernels of ``tokens/packing.py``."""

    asked: Longs
    """int64 [samples]: which of those asked for each is."""
    samples: Longs
    """int64 [samples]: which of the file's."""
    bounds: Longs
    """int64 [samples of the file + 1]: the texts of each."""
    sizes: Longs
    """int64 [texts of the file]: tokens of each; a text is a piece with those that are joined to it."""
    tokens: npt.NDArray[Any]
    """uint16 or uint32, of one dimension; the tokens of a sample are next to each other."""
    flags: npt.NDArray[np.bool_]
    """As long: False where no loss is due; or empty for True throughout."""
    starts: Longs
    """int64 [samples]: the place of the first token of each in ``tokens``."""


@dataclass(frozen=True, eq=False)
class ComposedSamples:
    """Some samples of a bucket."""

    tokens: npt.NDArray[Any]
    """[samples, capacity], uint16 or uint32 as stored, filled up with the padding token."""
    loss_mask: npt.NDArray[np.bool_]
    """[samples, capacity]: False on padding and on tokens that no loss is due on."""
    piece_sizes: list[Longs]
    """For each sample the tokens of its pieces in their order, without padding; joined ones are added up."""


@dataclass(frozen=True, eq=False)
class ComposedBucket:
    """The samples of one capacity of a split, or of a domain of it; picklable, usable after a fork.

    >>> bucket = open_composed("run/composed").buckets[0]  # doctest: +SKIP
    >>> bucket.split, bucket.domain, bucket.capacity, len(bucket)  # doctest: +SKIP
    ('train', '', 2048, 45731)
    >>> bucket.read(np.array([7, 0])).tokens.shape  # doctest: +SKIP
    (2, 2048)
    """

    root: str
    """The composed dataset's folder."""
    split: str
    domain: str
    """The domain's value; empty where there are no domains."""
    path: str
    """Where it is in the dataset: ``train/2048``, or ``train/web/2048``, with the folder of the domain."""
    capacity: int
    samples: int
    identity: str
    """A digest of its files; known without reading one."""
    end_of_text: int | None
    padding: int
    """The token id that samples are filled up with."""
    dtype: str
    stored_as: str
    masked: bool
    """Whether there is a loss mask beside what is padding."""
    file_samples: int
    """How many samples a file has, but the last."""
    joined: bool = False
    """Whether pieces may be joined, see :mod:`longcrawl.formats.buckets.spec`."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open files."""
        return ComposedBucket, tuple(getattr(self, each.name) for each in fields(self))

    def __len__(self) -> int:
        return self.samples

    def read(self, samples: npt.ArrayLike) -> ComposedSamples:
        """Read samples by number, in the order asked for.

        Args:
            samples: whole numbers [n] below ``len(self)``.

        Raises:
            IndexError: there is no such sample.
            CorruptionError: a file is missing, cut or does not decode; the message names it.
        """
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
        """Return samples as they lie in their files, those of a file together: what feeds move into batches.

        Args:
            samples: int64 [n] below ``len(self)``.

        Raises:
            IndexError: there is no such sample.
            CorruptionError: a file is missing, cut or does not decode; the message names it.
        """
        if len(samples) and not (samples.min() >= 0 and samples.max() < self.samples):
            wrong = int(samples[(samples < 0) | (samples >= self.samples)][0])
            raise IndexError(f"{self.root}/{self.path} has samples 0 to {self.samples - 1:,}, not {wrong}")
        files, within = np.divmod(samples, self.file_samples)
        return (self._stored(number, asked, within[asked]) for number, asked in _groups(files))

    def _stored(self, number: int, asked: Longs, samples: Longs) -> StoredSamples:
        pieces = self._pieces(number)
        tokens, flags, starts = self._reader.read(number, samples, pieces)
        return StoredSamples(asked, samples, pieces.bounds, pieces.sizes, tokens, flags, starts)

    @cached_property
    def _reader(self) -> "_ArrayReader | _ShardReader":
        return _ArrayReader(self) if self.stored_as == "zarr" else _ShardReader(self)

    @cached_property
    def _pieces(self) -> "Callable[[int], _FilePieces]":
        return lru_cache(maxsize=OPEN_TABLES)(partial(_read_pieces, self))


@dataclass(frozen=True, eq=False)
class Composed:
    """A composed dataset, opened: its description has been read, nothing else."""

    path: str
    buckets: tuple[ComposedBucket, ...]
    """Of all splits: those of a split and domain together, the smallest capacity first."""
    described: Mapping[str, Any] = field(repr=False)
    """The content of ``composed.json``."""

    def bucket(self, capacity: int, split: str = "train", domain: str = "") -> ComposedBucket:
        """Return one bucket; raise FormatError, which lists all, if there is none."""
        for each in self.buckets:
            if (each.capacity, each.split, each.domain) == (capacity, split, domain):
                return each
        names = [*((each.split, each.domain, each.capacity) for each in self.buckets), (split, domain, capacity)]
        *known, asked = ("/".join(str(part) for part in each if part != "") for each in names)
        raise FormatError(f"{self.path} has no bucket {asked}; there is: {', '.join(known)}")


def open_composed(path: str | os.PathLike[str]) -> Composed:
    """Open a composed dataset, or that of a finished run.

    Args:
        path: the folder with ``composed.json``, or the one of the run that has it in ``composed/``.

    Raises:
        FormatError: there is none, or it is not finished or of another version.
        CorruptionError: its description was changed after it was written.
    """
    if is_url(str(path)):
        raise FormatError(f"{path}: bucketed datasets are read from folders of this machine, so download it first")
    folder = Path(path)
    if folder.is_file():
        raise FormatError(f"{folder} is a file, and a composed dataset is a folder: give {folder.parent}")
    if not (folder / DESCRIPTION).exists() and (folder / "composed" / DESCRIPTION).exists():
        folder = folder / "composed"
    described = read_description(folder)
    if not structured.is_sealed(folder / DESCRIPTION, described):
        raise CorruptionError(
            f"{folder / DESCRIPTION} has been changed: the SHA-256 that it gives of itself differs; copy it again, or "
            "build the dataset again"
        )
    shared = {name: described[name] for name in ("end_of_text", "dtype", "stored_as")}
    shared |= {"root": str(folder), "padding": described["end_of_text"], "masked": described["loss_mask"]}
    shared["joined"] = described.get(JOINED, False)
    names = ("split", "domain", "path", "capacity", "samples", "identity", "file_samples")
    buckets = [ComposedBucket(**shared, **{name: each[name] for name in names}) for each in described["buckets"]]
    return Composed(str(folder), tuple(buckets), described)


def read_description(path: Path) -> dict[str, Any]:
    """Read ``composed.json``, with the errors of :func:`longcrawl.io.structured.read_description`."""
    needed = ("stored_as", "dtype", "end_of_text", "json_escaped", "loss_mask", "splits", "buckets", "files")
    return structured.read_description(path / DESCRIPTION, "composed", VERSION, needed, ("documents", "tokens"))


class _FilePieces(NamedTuple):
    """The texts of the samples of one file: pieces, with those that are joined to them."""

    bounds: Longs
    """int64 [samples + 1]: where those of each begin."""
    sizes: Longs
    """int64 [texts]: the tokens of each."""
    lengths: Longs
    """int64 [samples]: the tokens of each."""


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
        raise CorruptionError(f"{file} has other pieces than its samples; longcrawl verify says what is wrong")
    return _FilePieces(bounds, sizes, lengths)


def _groups(keys: Longs) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Return each key with the places where it is."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    firsts = np.flatnonzero(np.diff(ranked, prepend=-1)).tolist()
    for first, stop in pairwise([*firsts, len(keys)]):
        yield int(ranked[first]), order[first:stop]


class _ArrayReader:
    """Reads samples that are rows of a Zarr array, with their padding."""

    def __init__(self, bucket: ComposedBucket) -> None:
        self._bucket = bucket

    def read(self, number: int, samples: Longs, pieces: _FilePieces) -> Run:
        """Decode the chunks that samples are in, and take these out of them."""
        del pieces
        rows = samples + number * self._bucket.file_samples
        tokens, *flags = [each.read(rows).reshape(-1) for each in self._arrays]
        return tokens, flags[0] if flags else NO_FLAGS, np.arange(len(rows)) * self._bucket.capacity

    @cached_property
    def _arrays(self) -> "list[_Rows]":
        array = open_split(self._bucket.root, self._bucket.path)
        return [_Rows(array), _Rows(open_loss_mask(array))] if self._bucket.masked else [_Rows(array)]


class _Rows:
    """Reads rows of a Zarr array, and keeps the chunks of the last ones."""

    def __init__(self, array: SplitArray) -> None:
        self._array = array
        kept = lru_cache(maxsize=ROWS_OF_CHUNKS * array.layout.chunk_grid[1])
        self._chunk: Callable[[int, int], npt.NDArray[Any]] = kept(array.read_chunk)

    def read(self, rows: Longs) -> npt.NDArray[Any]:
        """Return rows in the order asked for: [rows, columns of the array]."""
        layout = self._array.layout
        height, width = layout.chunks
        columns = [slice(place * width, (place + 1) * width) for place in range(layout.chunk_grid[1])]
        out = np.empty((len(rows), layout.shape[1]), layout.dtype)
        for asked in np.argsort(rows).tolist():
            block, row = divmod(int(rows[asked]), height)
            for place, each in enumerate(columns):
                out[asked, each] = self._chunk(block, place)[row]
        return out


class _ShardReader:
    """Finds samples that are entries of token shards, which are mapped into memory."""

    def __init__(self, bucket: ComposedBucket) -> None:
        self._bucket = bucket
        self._open: Callable[[int], tuple[TokenShard, Run]] = lru_cache(maxsize=OPEN_SHARDS)(self._opened)

    def read(self, number: int, samples: Longs, pieces: _FilePieces) -> Run:
        """Return all of a shard, and where samples begin in it."""
        shard, (tokens, flags, ends) = self._open(number)
        if len(ends) != len(pieces.lengths):
            raise self._wrong(number, f"{len(ends):,} entries, its pieces are of {len(pieces.lengths):,}")
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
        # Slices and scalars of arrays cost a fraction of those of maps.
        chosen = FORMATS[self._bucket.stored_as]
        shard = chosen.open(self._file(number), end_of_text=self._bucket.end_of_text, check="sizes")
        masked = self._bucket.masked and shard.loss_mask is not None
        flags = np.asarray(shard.loss_mask) if masked else NO_FLAGS
        return shard, (np.asarray(shard.tokens), flags, np.asarray(shard.ends))

    def _file(self, number: int) -> Path:
        name = f"{number:05d}{FORMATS[self._bucket.stored_as].suffix}"
        return Path(self._bucket.root, self._bucket.path, name)

    def _wrong(self, number: int, wrong: str) -> CorruptionError:
        return CorruptionError(f"{self._file(number)} has {wrong}; longcrawl verify says what is wrong")
