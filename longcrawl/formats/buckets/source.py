"""Composed datasets as a source with a row per sample, without its padding."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from longcrawl.core.sources import BadFiles, OnBadFiles, Part, Source, StorageOptions, source
from longcrawl.errors import CorruptionError, FormatError, SourceError
from longcrawl.formats.buckets.spec import DESCRIPTION, Composed, ComposedBucket, open_composed
from longcrawl.formats.shards.shard import BLOCK_TOKENS, N_TOKENS, TOKENS, list_column
from longcrawl.sources.files import absolute
from longcrawl.tokens.loss_mask import LOSS_MASK, LOSS_MASK_TYPE


@source("composed")
class ComposedSamples(Source):
    """Samples of a composed dataset, bucket after bucket.

    Columns: ``id``, ``BUCKET:NUMBER``, such as ``train/2048:17``; ``capacity``, int64; ``domain``, if there are
    domains; ``tokens``, a list of uint16 or uint32, and ``n_tokens``; ``seq_lengths``, the tokens of each piece; and
    ``loss_mask``, if the dataset has one.

    Args:
        data_dir: folder that holds ``composed.json``, or the run that has it in ``composed``.
        capacity: of the buckets to read; None for all.
        domain: of the buckets to read; None for all.
        on_bad_files: treatment of a missing or broken file of samples; "skip" loses its samples.
        storage_options: ignored, because composed datasets are read from folders of this machine.
    """

    data_dir: str | None = None
    capacity: int | None = None
    domain: str | None = None
    on_bad_files: OnBadFiles = "error"
    storage_options: StorageOptions = None

    def schema(self) -> pa.Schema:
        """Return the columns, with tokens in their stored type."""
        buckets = self._buckets.values()
        columns = [("id", pa.string()), ("capacity", pa.int64())]
        columns += [("domain", pa.string())] * any(each.domain for each in buckets)
        kind = pa.from_numpy_dtype(np.dtype(next(iter(buckets)).dtype))
        columns += [(TOKENS, pa.list_(kind)), (N_TOKENS, pa.int64()), ("seq_lengths", pa.list_(pa.int32()))]
        return pa.schema(columns + [(LOSS_MASK, LOSS_MASK_TYPE)] * any(each.masked for each in buckets))

    @property
    def unique_ids(self) -> bool:
        """Whether ids are unique: always, as they name a bucket and a number in it."""
        return True

    def splits(self) -> dict[str, list[Part]]:
        """Return a part for each file of samples."""
        found: dict[str, list[Part]] = {}
        for path, bucket in self._buckets.items():
            files = range(-(-len(bucket) // bucket.file_samples))
            found.setdefault(bucket.split, []).extend(Part(f"{path}/{number:05d}") for number in files)
        return found

    def content(self) -> str:
        """Return a hash of the description, which includes the checksums of all files."""
        return hashlib.sha256((Path(self._dataset.path) / DESCRIPTION).read_bytes()).hexdigest()

    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read the samples of one file, in tables of some four million tokens."""
        path, _, number = part.name.rpartition("/")
        bucket, schema = self._buckets[path], self.schema()
        first = int(number) * bucket.file_samples
        stop, step = min(first + bucket.file_samples, len(bucket)), max(BLOCK_TOKENS // bucket.capacity, 1)
        for start in range(first, stop, step):
            samples = np.arange(start, min(start + step, stop))
            try:
                yield _table(bucket, samples, schema)
            except CorruptionError as broken:
                bad_files.report(f"{bucket.root}/{part.name}", str(broken), stop - start)
                return

    @cached_property
    def _dataset(self) -> Composed:
        if self.data_dir is None:
            raise SourceError(f"source 'composed' needs data_dir: the folder that holds {DESCRIPTION}")
        try:
            return open_composed(absolute(self.data_dir))
        except CorruptionError:
            raise
        except FormatError as wrong:
            raise SourceError(str(wrong)) from wrong

    @cached_property
    def _buckets(self) -> Mapping[str, ComposedBucket]:
        chosen = {
            each.path: each
            for each in self._dataset.buckets
            if self.capacity in (None, each.capacity) and self.domain in (None, each.domain) and len(each)
        }
        if not chosen:
            known = ", ".join(each.path for each in self._dataset.buckets if len(each)) or "none"
            raise SourceError(
                f"{self._dataset.path} has no samples with capacity {self.capacity} and domain {self.domain}; buckets "
                f"with samples: {known}"
            )
        return chosen


def _table(bucket: ComposedBucket, samples: "np.ndarray[Any, np.dtype[np.int64]]", schema: pa.Schema) -> pa.Table:
    found = bucket.read(samples)
    pieces = np.array([len(sizes) for sizes in found.piece_sizes], np.int64)
    lengths = np.array([sizes.sum() for sizes in found.piece_sizes], np.int64)
    filled = np.arange(bucket.capacity) < lengths[:, None]
    columns = {
        "id": pa.array([f"{bucket.path}:{sample}" for sample in samples.tolist()], pa.string()),
        "capacity": pa.array(np.full(len(samples), bucket.capacity)),
        "domain": pa.array([bucket.domain] * len(samples), pa.string()),
        TOKENS: list_column(lengths, found.tokens[filled]),
        N_TOKENS: pa.array(lengths),
        "seq_lengths": list_column(pieces, np.concatenate(found.piece_sizes).astype(np.int32)),
        LOSS_MASK: list_column(lengths, found.loss_mask[filled]),
    }
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)
