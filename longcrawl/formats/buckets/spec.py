"""Read a composed dataset: any samples of any bucket, in any order. The specification is in ``docs/formats.md``."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.buckets._files import BucketFiles, StoredSamples
from longcrawl.formats.buckets.write import DESCRIPTION, VERSION
from longcrawl.storage import manifest

__all__ = ["Composed", "ComposedBucket", "ComposedSamples", "StoredSamples", "open_composed", "read_description"]

Longs = npt.NDArray[np.int64]


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
    _files: BucketFiles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_files", BucketFiles(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open files."""
        names = [name for name in self.__dataclass_fields__ if not name.startswith("_")]
        return ComposedBucket, tuple(getattr(self, name) for name in names)

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
        return self._files.stored(samples)


@dataclass(frozen=True, eq=False)
class Composed:
    """A composed dataset, opened: its description has been read, nothing else."""

    path: str
    buckets: tuple[ComposedBucket, ...]
    """Of all splits: those of a split and domain together, the smallest capacity first."""
    described: Mapping[str, Any] = field(repr=False)
    """The content of ``composed.json``."""

    def bucket(self, capacity: int, split: str = "train", domain: str = "") -> ComposedBucket:
        """Return one bucket.

        Raises:
            FormatError: there is none; the message lists those that there are.

        """
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
    folder = Path(path)
    if folder.is_file():
        raise FormatError(f"{folder} is a file, and a composed dataset is a folder: give {folder.parent}")
    if not (folder / DESCRIPTION).exists() and (folder / "composed" / DESCRIPTION).exists():
        folder = folder / "composed"
    described = read_description(folder)
    if not manifest.is_sealed(folder / DESCRIPTION, described):
        raise CorruptionError(
            f"{folder / DESCRIPTION} has been changed: the SHA-256 that it gives of itself differs; copy it again, or "
            "build the dataset again"
        )
    shared = {name: described[name] for name in ("end_of_text", "dtype", "stored_as")}
    shared |= {"root": str(folder), "padding": described["end_of_text"], "masked": described["loss_mask"]}
    names = ("split", "domain", "path", "capacity", "samples", "identity", "file_samples")
    buckets = [ComposedBucket(**shared, **{name: each[name] for name in names}) for each in described["buckets"]]
    return Composed(str(folder), tuple(buckets), described)


def read_description(path: Path) -> dict[str, Any]:
    """Read ``composed.json``.

    Raises:
        FormatError: there is none, or it is of a version that this longcrawl does not know.

    """
    needed = ("stored_as", "dtype", "end_of_text", "json_escaped", "loss_mask", "splits", "buckets", "files")
    return manifest.read_description(path / DESCRIPTION, "composed", VERSION, needed, ("documents", "tokens"))
