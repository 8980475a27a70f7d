"""Read a composed dataset: any samples of any bucket, in any order. The specification is in ``composed_output``."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats import manifest
from longcrawl.formats.composed_output import DESCRIPTION, VERSION
from longcrawl.formats.rectangle_chunks import SplitArray, open_loss_mask, open_split
from longcrawl.formats.shard_formats import FORMATS
from longcrawl.formats.token_shard import TokenShard

__all__ = ["Composed", "ComposedBucket", "ComposedSamples", "open_composed", "read_description"]

Longs = npt.NDArray[np.int64]

OPEN_TABLES = 1024
OPEN_SHARDS = 64
ROWS_OF_CHUNKS = 4
"""How many rows of decoded chunks a bucket keeps: samples that are read one after the other share them."""


@dataclass(frozen=True, eq=False)
class ComposedSamples:
    """Some samples of a bucket."""

    tokens: npt.NDArray[Any]
    """[samples, capacity], uint16 or uint32 as stored, filled up with the padding token."""
    loss_mask: npt.NDArray[np.bool_]
    """[samples, capacity]: False on padding and on tokens that no loss is due on."""
    piece_sizes: list[Longs]
    """For each sample the tokens of its pieces in their order, without padding."""


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
    """The folder of the domain; empty where there are no domains."""
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
    _reader: "_ArrayReader | _ShardReader" = field(init=False, repr=False)
    _sizes: "Callable[[int], _Sizes]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        reader = _ArrayReader(self) if self.stored_as == "zarr" else _ShardReader(self)
        object.__setattr__(self, "_reader", reader)
        object.__setattr__(self, "_sizes", lru_cache(maxsize=OPEN_TABLES)(partial(_read_sizes, self)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open files."""
        names = [name for name in self.__dataclass_fields__ if not name.startswith("_")]
        return ComposedBucket, tuple(getattr(self, name) for name in names)

    def __len__(self) -> int:
        return self.samples

    @property
    def path(self) -> str:
        """Where it is in the dataset: ``train/2048``, or ``train/web/2048``."""
        return "/".join(each for each in (self.split, self.domain, str(self.capacity)) if each)

    def read(self, samples: npt.ArrayLike) -> ComposedSamples:
        """Read samples by number, in the order asked for.

        Args:
            samples: whole numbers [n] below ``len(self)``.

        Raises:
            IndexError: there is no such sample.
            CorruptionError: a file is missing, cut or does not decode; the message names it.

        """
        wanted = np.asarray(samples, np.int64).reshape(-1)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < self.samples):
            wrong = int(wanted[(wanted < 0) | (wanted >= self.samples)][0])
            raise IndexError(f"{self.root}/{self.path} has samples 0 to {self.samples - 1:,}, not {wrong}")
        sizes = [self.piece_sizes(number) for number in wanted.tolist()]
        lengths = np.array([each.sum() for each in sizes], np.int64)
        tokens = np.full((len(wanted), self.capacity), self.padding, self.dtype)
        loss_mask = np.arange(self.capacity) < lengths[:, None]
        if len(wanted):
            self._reader.fill(wanted, lengths, tokens, loss_mask)
        return ComposedSamples(tokens, loss_mask, sizes)

    def piece_sizes(self, sample: int) -> Longs:
        """Give the tokens of each piece of a sample: int64 [pieces]."""
        number, row = divmod(sample, self.file_samples)
        found = self._sizes(number)
        return found.sizes[found.bounds[row] : found.bounds[row + 1]].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Composed:
    """A composed dataset, opened: its description has been read, nothing else."""

    path: str
    buckets: tuple[ComposedBucket, ...]
    """Of all splits: those of a split and domain together, the smallest capacity first."""
    described: Mapping[str, Any] = field(repr=False)
    """The content of ``composed.json``."""

    def bucket(self, capacity: int, split: str = "train", domain: str = "") -> ComposedBucket:
        """Give one bucket.

        Raises:
            FormatError: there is none; the message lists those that there are.

        """
        for each in self.buckets:
            if (each.capacity, each.split, each.domain) == (capacity, split, domain):
                return each
        known = ", ".join(each.path for each in self.buckets)
        asked = "/".join(each for each in (split, domain, str(capacity)) if each)
        raise FormatError(f"{self.path} has no bucket {asked}; there is: {known}")


def open_composed(path: str | os.PathLike[str]) -> Composed:
    """Open a composed dataset, or that of a finished run.

    Args:
        path: the folder with ``composed.json``, or the one of the run that has it in ``composed/``.

    Raises:
        FormatError: there is none, or it is not finished or of another version.

    """
    folder = Path(path)
    if not (folder / DESCRIPTION).exists() and (folder / "composed" / DESCRIPTION).exists():
        folder = folder / "composed"
    described = read_description(folder)
    shared = {name: described[name] for name in ("end_of_text", "dtype", "stored_as")}
    shared |= {"root": str(folder), "padding": described["end_of_text"], "masked": described["loss_mask"]}
    names = ("split", "domain", "capacity", "samples", "identity", "file_samples")
    buckets = [ComposedBucket(**shared, **{name: each[name] for name in names}) for each in described["buckets"]]
    return Composed(str(folder), tuple(buckets), described)


def read_description(path: Path) -> dict[str, Any]:
    """Read ``composed.json``.

    Raises:
        FormatError: there is none, or it is of a version that this longcrawl does not know.

    """
    needed = ("stored_as", "dtype", "end_of_text", "json_escaped", "loss_mask", "splits", "buckets", "files")
    return manifest.read_description(path / DESCRIPTION, "composed", VERSION, needed)


class _Sizes(NamedTuple):
    """The pieces of the samples of one file: where those of each begin, and the tokens of each."""

    bounds: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int32]


def _read_sizes(bucket: ComposedBucket, number: int) -> _Sizes:
    file = Path(bucket.root) / "pieces" / bucket.path / f"{number:05d}.parquet"
    first = number * bucket.file_samples
    samples = min(bucket.file_samples, bucket.samples - first)
    try:
        table = pq.read_table(file, columns=["sample", "length"])
    except (OSError, pa.ArrowException) as broken:
        raise CorruptionError(f"{file} cannot be read: {broken}; longcrawl verify says what is wrong") from broken
    counts = np.bincount(table["sample"].to_numpy() - first, minlength=samples)
    if len(counts) != samples:
        raise CorruptionError(f"{file} has pieces of other samples; longcrawl verify says what is wrong")
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return _Sizes(bounds, table["length"].to_numpy().astype(np.int32))


class _ArrayReader:
    """Reads samples that are rows of a Zarr array."""

    def __init__(self, bucket: ComposedBucket) -> None:
        self._bucket = bucket
        self._open: Callable[[], tuple[Callable[..., Any], Callable[..., Any] | None, SplitArray]]
        self._open = lru_cache(maxsize=1)(self._opened)

    def fill(self, samples: Longs, lengths: Longs, tokens: npt.NDArray[Any], loss_mask: npt.NDArray[np.bool_]) -> None:
        """Copy samples into the rows of ``tokens``, and what their loss mask says into ``loss_mask``."""
        del lengths  # rows are stored with their padding
        read, read_mask, array = self._open()
        rows, width = array.layout.chunks
        blocks = samples // rows
        for block in np.unique(blocks).tolist():
            here = np.flatnonzero(blocks == block)
            for place in range(array.layout.chunk_grid[1]):
                columns = slice(place * width, (place + 1) * width)
                tokens[here, columns] = read(block, place)[samples[here] % rows]
                if read_mask is not None:
                    loss_mask[here, columns] &= read_mask(block, place)[samples[here] % rows]

    def _opened(self) -> tuple[Callable[..., Any], Callable[..., Any] | None, SplitArray]:
        array = open_split(self._bucket.root, self._bucket.path)
        most = ROWS_OF_CHUNKS * array.layout.chunk_grid[1]
        masks = open_loss_mask(array).read_chunk if self._bucket.masked else None
        kept = lru_cache(maxsize=most)
        return kept(array.read_chunk), None if masks is None else lru_cache(maxsize=most)(masks), array


class _ShardReader:
    """Reads samples that are entries of token shards."""

    def __init__(self, bucket: ComposedBucket) -> None:
        self._bucket = bucket
        self._open: Callable[[int], TokenShard] = lru_cache(maxsize=OPEN_SHARDS)(self._opened)

    def fill(self, samples: Longs, lengths: Longs, tokens: npt.NDArray[Any], loss_mask: npt.NDArray[np.bool_]) -> None:
        """Copy samples into the rows of ``tokens``, and what their loss mask says into ``loss_mask``."""
        for row, (sample, length) in enumerate(zip(samples.tolist(), lengths.tolist(), strict=True)):
            number, entry = divmod(sample, self._bucket.file_samples)
            shard = self._open(number)
            start, stop = shard.start(entry), int(shard.ends[entry])
            if stop - start != length:
                raise CorruptionError(
                    f"{shard.path} has {stop - start:,} tokens in entry {entry:,}, its pieces {length:,}; "
                    "longcrawl verify says what is wrong"
                )
            tokens[row, :length] = shard.tokens[start:stop]
            if self._bucket.masked and shard.loss_mask is not None:
                loss_mask[row, :length] = shard.loss_mask[start:stop]

    def _opened(self, number: int) -> TokenShard:
        chosen = FORMATS[self._bucket.stored_as]
        file = Path(self._bucket.root) / self._bucket.path / f"{number:05d}{chosen.suffix}"
        return chosen.open(file, end_of_text=self._bucket.end_of_text, check="sizes")
