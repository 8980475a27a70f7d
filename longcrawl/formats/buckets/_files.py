"""The files of one bucket of a composed dataset: where samples lie in them, and which pieces each has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError
from longcrawl.formats.rectangle.chunks import SplitArray, open_loss_mask, open_split
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.storage.stored_tables import read_table

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
    """Samples of one file as they lie there, for the kernels of ``composition/packing_kernels.py``."""

    asked: Longs
    """int64 [samples]: which of those asked for each is."""
    samples: Longs
    """int64 [samples]: which of the file's."""
    bounds: Longs
    """int64 [samples of the file + 1]: the pieces of each."""
    sizes: Longs
    """int64 [pieces of the file]: tokens of each."""
    tokens: npt.NDArray[Any]
    """uint16 or uint32, of one dimension; the tokens of a sample are next to each other."""
    flags: npt.NDArray[np.bool_]
    """As long: False where no loss is due; or empty for True throughout."""
    starts: Longs
    """int64 [samples]: the place of the first token of each in ``tokens``."""


class FilePieces(NamedTuple):
    """The pieces of the samples of one file."""

    bounds: Longs
    """int64 [samples + 1]: where those of each begin."""
    sizes: Longs
    """int64 [pieces]: the tokens of each."""
    lengths: Longs
    """int64 [samples]: the tokens of each."""


class Bucket(Protocol):
    """What is known of a bucket before a file is read, see :class:`longcrawl.formats.buckets.spec.ComposedBucket`."""

    @property
    def root(self) -> str:
        """The composed dataset's folder."""

    @property
    def path(self) -> str:
        """Where the bucket is in it."""

    @property
    def samples(self) -> int:
        """How many there are."""

    @property
    def file_samples(self) -> int:
        """How many a file has, but the last."""

    @property
    def capacity(self) -> int:
        """Tokens of each, padding included."""

    @property
    def stored_as(self) -> str:
        """The format."""

    @property
    def masked(self) -> bool:
        """Whether there is a loss mask."""

    @property
    def end_of_text(self) -> int | None:
        """The token that ends documents."""


class BucketFiles:
    """Opens the files of a bucket as they are needed."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._read = (_ArrayReader if bucket.stored_as == "zarr" else _ShardReader)(bucket).read
        self._pieces: Callable[[int], FilePieces] = lru_cache(maxsize=OPEN_TABLES)(self._read_pieces)

    def stored(self, samples: Longs) -> Iterator[StoredSamples]:
        """Return samples, those of each file together.

        Raises:
            CorruptionError: a file is missing, cut or does not decode; the message names it.

        """
        files, within = np.divmod(samples, self._bucket.file_samples)
        for number, asked in _groups(files):
            pieces = self._pieces(number)
            tokens, flags, starts = self._read(number, within[asked], pieces)
            yield StoredSamples(asked, within[asked], pieces.bounds, pieces.sizes, tokens, flags, starts)

    def _read_pieces(self, number: int) -> FilePieces:
        bucket = self._bucket
        file = Path(bucket.root) / "pieces" / bucket.path / f"{number:05d}.parquet"
        first = number * bucket.file_samples
        samples = min(bucket.file_samples, bucket.samples - first)
        table = read_table(file, ["sample", "length"])
        sizes, owners = table["length"].to_numpy().astype(np.int64), table["sample"].to_numpy() - first
        bounds = np.searchsorted(owners, np.arange(samples + 1))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        lengths = np.diff(ends[bounds])
        whole = bounds[0] == 0 and bounds[-1] == len(owners) and (np.diff(owners) >= 0).all()
        if not (whole and (sizes > 0).all() and (lengths > 0).all() and (lengths <= bucket.capacity).all()):
            raise CorruptionError(f"{file} has other pieces than its samples; longcrawl verify says what is wrong")
        return FilePieces(bounds, sizes, lengths)


def _groups(keys: Longs) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Return each key with the places where it is."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    firsts = np.flatnonzero(np.diff(ranked, prepend=-1)).tolist()
    for first, stop in pairwise([*firsts, len(keys)]):
        yield int(ranked[first]), order[first:stop]


class _ArrayReader:
    """Reads samples that are rows of a Zarr array, with their padding."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._open: Callable[[], list[_Rows]] = lru_cache(maxsize=1)(self._opened)

    def read(self, number: int, samples: Longs, pieces: FilePieces) -> Run:
        """Decode the chunks that samples are in, and take these out of them."""
        del pieces
        rows = samples + number * self._bucket.file_samples
        tokens, *flags = [each.read(rows).reshape(-1) for each in self._open()]
        return tokens, flags[0] if flags else NO_FLAGS, np.arange(len(rows)) * self._bucket.capacity

    def _opened(self) -> "list[_Rows]":
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

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._open: Callable[[int], tuple[TokenShard, Run]] = lru_cache(maxsize=OPEN_SHARDS)(self._opened)

    def read(self, number: int, samples: Longs, pieces: FilePieces) -> Run:
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
        suffix = FORMATS[self._bucket.stored_as].suffix
        return Path(self._bucket.root) / self._bucket.path / f"{number:05d}{suffix}"

    def _wrong(self, number: int, wrong: str) -> CorruptionError:
        return CorruptionError(f"{self._file(number)} has {wrong}; longcrawl verify says what is wrong")
