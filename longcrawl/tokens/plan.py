"""Composition plans, and the strategies that make them from the lengths of documents.

A plan assigns the tokens of documents to training samples. Making one moves no tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.registry import check_fields
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import keyed_hash

Longs = npt.NDArray[np.int64]

LARGEST = 1 << 24  # largest capacity in tokens; planning keeps one number for each length up to it

SAMPLE_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("bucket", "sample", "first_piece", "pieces", "tokens", "padding")]
)

PIECE_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("bucket", "sample", "document", "start", "length")]
    + [(name, pa.bool_()) for name in ("head", "tail")]
)
"""Arrow schema of pieces; ``head`` marks a piece with the first token of its document, ``tail`` with its last."""

JOINED = "joined"


class PackingPlan(Protocol):
    """Interface of a plan: samples as pieces of documents, int64; a piece has at least one token, and is a text."""

    @property
    def bounds(self) -> Longs:
        """[samples + 1]: pieces ``bounds[s]`` to ``bounds[s + 1]`` are those of sample s, in order."""

    @property
    def documents(self) -> Longs:
        """[pieces], index of each piece's document among the lengths."""

    @property
    def starts(self) -> Longs:
        """[pieces], the first token of each within its document."""

    @property
    def sizes(self) -> Longs:
        """[pieces], tokens of each."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Samples, the pieces of documents in each, and the planned lengths; all arrays are int64.

    Samples are ordered by bucket, the smallest capacity first. A sample is its pieces end to end, then padding.

    >>> import longcrawl as lc
    >>> plan = lc.tokens.Buckets([4, 8], order="planned").plan([7, 3, 1, 1])
    >>> plan.samples.to_pylist()[1]
    {'bucket': 8, 'sample': 0, 'first_piece': 2, 'pieces': 2, 'tokens': 8, 'padding': 0}
    >>> plan.pieces.to_pylist()[2]
    {'bucket': 8, 'sample': 0, 'document': 0, 'start': 0, 'length': 7, 'head': True, 'tail': True}
    """

    lengths: Longs  # [documents], tokens of each; a document of 0 tokens is in no sample
    capacities: Longs  # [samples], tokens of each including padding
    bounds: Longs  # [samples + 1]: pieces ``bounds[s]`` to ``bounds[s + 1]`` are those of sample s
    documents: Longs
    """[pieces], index of each piece's document among the lengths, its first token in it, and its tokens."""
    starts: Longs
    sizes: Longs
    omitted: int = 0
    """Last tokens of a document without which it still counts as whole: 1 if samples omit its end of text."""

    def __len__(self) -> int:
        return len(self.capacities)

    @property
    def tokens(self) -> Longs:
        """Tokens of documents in each sample: int64 [samples]."""
        sums = np.concatenate([[0], np.cumsum(self.sizes)])
        return np.asarray(np.diff(sums[self.bounds]), np.int64)

    @cached_property
    def joined(self) -> npt.NDArray[np.bool_]:
        """Mask of the pieces that continue the text of the piece before, see :func:`joined_pieces`: bool [pieces]."""
        return joined_pieces(self.bounds, self.documents)

    @property
    def samples(self) -> pa.Table:
        """Table of samples, with ``SAMPLE_SCHEMA``."""
        tokens = self.tokens
        columns = [self.capacities, self._numbers(), self.bounds[:-1], np.diff(self.bounds), tokens]
        return pa.table([*columns, self.capacities - tokens], schema=SAMPLE_SCHEMA)

    @property
    def pieces(self) -> pa.Table:
        """Table of pieces in the order of the samples, with ``PIECE_SCHEMA``."""
        counts = np.diff(self.bounds)
        of_samples = [np.repeat(each, counts) for each in (self.capacities, self._numbers())]
        tail = self.starts + self.sizes == self.lengths[self.documents]
        columns = [*of_samples, self.documents, self.starts, self.sizes, self.starts == 0, tail]
        return pa.table(columns, schema=PIECE_SCHEMA)

    def in_buckets(self, shuffled_by: int | None = None) -> "Plan":
        """Return the plan with its samples sorted by bucket, and shuffled by a seed within each if one is given."""
        if shuffled_by is None:
            return self._taken(np.argsort(self.capacities, kind="stable"))
        return self._taken(np.lexsort((self.sample_keys(shuffled_by), self.capacities)))

    def sample_keys(self, seed: int, first_document: int = 0) -> npt.NDArray[np.uint64]:
        """Return the keys that shuffle the samples of a bucket; documents are numbered from ``first_document`` on."""
        first = self.bounds[:-1]
        names = zip((self.documents[first] + first_document).tolist(), self.starts[first].tolist(), strict=True)
        return keyed_hash((f"{document}:{start}" for document, start in names), "samples", seed)

    def _numbers(self) -> Longs:
        starts = np.flatnonzero(np.diff(self.capacities, prepend=-1))
        counts = np.diff(np.append(starts, len(self)))
        return np.arange(len(self), dtype=np.int64) - np.repeat(starts, counts)

    def _taken(self, order: npt.NDArray[np.intp]) -> "Plan":
        counts = np.diff(self.bounds)[order]
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        pieces = np.arange(bounds[-1]) + np.repeat(self.bounds[:-1][order] - bounds[:-1], counts)
        moved = {name: getattr(self, name)[pieces] for name in ("documents", "starts", "sizes")}
        return replace(self, capacities=self.capacities[order], bounds=bounds, **moved)


def joined_pieces(bounds: Longs, documents: Longs) -> npt.NDArray[np.bool_]:
    """Return a mask of the pieces that continue the text of the piece before: bool [pieces].

    All pieces of a sample with several pieces of one document are one text.

    >>> joined_pieces(np.array([0, 3, 5]), np.array([7_000, 2, 7_000, 5, 6])).tolist()
    [False, True, True, False, False]
    """
    joined = np.zeros(len(documents), np.bool_)
    returning, samples = _returning(bounds, documents)
    if len(returning):
        several = np.zeros(len(bounds) - 1, np.bool_)
        several[samples[returning]] = True
        joined = several[samples]
        joined[bounds[:-1][several]] = False
    return joined


def document_parts(bounds: Longs, documents: Longs, sizes: Longs) -> tuple[Longs, Longs]:
    """Merge the pieces of a document in the same sample, and return document and tokens of each part, int64 [parts]."""
    returning, samples = _returning(bounds, documents)
    if not len(returning):
        return documents, sizes
    keys = samples * (int(documents.max()) + 1) + documents
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    return documents[order][begins], np.add.reduceat(sizes[order], begins)


def _returning(bounds: Longs, documents: Longs) -> tuple[Longs, Longs]:
    """Return pieces with an earlier one of their document in the same sample, and the sample of each piece if any."""
    if documents.max(initial=0) > 4 * len(documents):
        documents = np.unique(documents, return_inverse=True)[1]
    cut = np.flatnonzero(np.bincount(documents, minlength=1)[documents] > 1)
    if not len(cut):
        return cut, cut
    samples = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    keys = samples[cut] * (int(documents.max()) + 1) + documents[cut]
    order = np.argsort(keys, kind="stable")
    return cut[order[1:][np.diff(keys[order]) == 0]], samples


def plan_of_pieces(lengths: Longs, numbers: Longs, capacities: Longs, pieces: tuple[Longs, Longs, Longs]) -> Plan:
    """Make a plan from pieces in any order: document, start and size of each, and the number of its sample."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(capacities) + 1)).astype(np.int64)
    documents, starts, sizes = (each[order] for each in pieces)
    return Plan(lengths, capacities, bounds, documents, starts, sizes)


def join_plans(plans: Iterable[Plan], *, of_same_documents: bool = False) -> Plan:
    """Join plans; unless all are ``of_same_documents``, documents are numbered after those of the plan before."""
    parts = list(plans)
    lengths = [plan.lengths for plan in (parts[:1] if of_same_documents else parts)]
    documents = [0] * len(parts) if of_same_documents else np.cumsum([0] + [len(each) for each in lengths[:-1]])
    pieces = np.cumsum([0] + [len(plan.sizes) for plan in parts])
    shifted = [plan.documents + first for plan, first in zip(parts, documents, strict=True)]
    bounds = [plan.bounds[:-1] + first for plan, first in zip(parts, pieces[:-1], strict=True)]
    return Plan(
        np.concatenate(lengths),
        np.concatenate([plan.capacities for plan in parts]),
        np.concatenate([*bounds, pieces[-1:]]),
        np.concatenate(shifted),
        np.concatenate([plan.starts for plan in parts]),
        np.concatenate([plan.sizes for plan in parts]),
        parts[0].omitted,
    )


class Strategy(ABC):
    """Base class of strategies: frozen dataclasses that plan documents in independent pools."""

    capacities: tuple[int, ...]
    pool_size: int | None = None
    """Consecutive documents planned together, up to twice as many in the last pool, or None for all."""
    title: str

    def __post_init__(self) -> None:
        check_fields(self, StageError)
        check_capacities(type(self).__name__, self.capacities)
        if self.pool_size is not None and self.pool_size < 1:
            raise StageError(f"{type(self).__name__}.pool_size is {self.pool_size}: set it to 1 or more documents")

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.title.format_map(vars(self))

    @abstractmethod
    def plan_pool(self, lengths: Any) -> Plan:
        """Plan any number of documents as one pool; samples are in the order in which they were made."""

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Join the plans of consecutive pools, with the samples of each bucket in their final order."""
        return join_plans(plans).in_buckets()

    def pools(self, lengths: npt.NDArray[np.integer[Any]]) -> list[npt.NDArray[np.integer[Any]]]:
        """Split the documents into pools."""
        if self.pool_size is None:
            return [lengths]
        pools = max(len(lengths) // self.pool_size, 1)
        return np.split(lengths, self.pool_size * np.arange(1, pools))

    def plan(self, lengths: Any, num_threads: int = 1) -> Plan:
        """Plan all documents; the number of pools planned at a time does not affect the plan.

        ``lengths`` are tokens of each document, whole numbers of 0 or more or an Arrow array, or StageError is raised.
        """
        pools = self.pools(checked_lengths(lengths))
        if num_threads <= 1 or len(pools) == 1:
            return self.join([self.plan_pool(pool) for pool in pools])
        with ThreadPoolExecutor(num_threads) as threads:
            return self.join(list(threads.map(self.plan_pool, pools)))


def checked_lengths(lengths: Any) -> Longs:
    """Return lengths in tokens as int64 [documents]; StageError unless each is one whole number of 0 or more."""
    if isinstance(lengths, pa.Array | pa.ChunkedArray):
        if lengths.null_count:
            raise StageError(f"{lengths.null_count:,} documents have no length: write 0 for those without tokens")
        lengths = lengths.to_numpy(zero_copy_only=False) if isinstance(lengths, pa.Array) else lengths.to_numpy()
    if isinstance(lengths, Sequence) and any(isinstance(each, Sequence | np.ndarray) for each in lengths[:1]):
        raise StageError(
            f"lengths must be one whole number of tokens per document, got a {type(lengths[0]).__name__} as the first: "
            "write [len(tokens) for tokens in documents]"
        )
    found = np.asarray(lengths)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise StageError(
            f"lengths must be one whole number of tokens per document, got {found.dtype} of shape {found.shape}"
        )
    whole = np.ascontiguousarray(found, np.int64)
    if whole.size and whole.min() < 0:
        at = int(whole.argmin())
        raise StageError(f"document {at} has {whole[at]:,} tokens; a length is 0 or more")
    return whole


def whole_capacities(name: str, capacities: Any) -> tuple[int, ...]:
    """Return capacities as a tuple of Python integers; StageError unless they are whole numbers and ascend."""
    listed = capacities.tolist() if isinstance(capacities, np.ndarray) else capacities
    if isinstance(listed, Iterable) and not isinstance(listed, str | bytes | Mapping):
        sizes = tuple(listed)
        if all(isinstance(size, int | np.integer) and not isinstance(size, bool) for size in sizes):
            check_capacities(name, tuple(map(int, sizes)))
            return tuple(map(int, sizes))
    write = f"[{listed}]" if isinstance(listed, int) else "[2048, 4096, 8192, 16384]"
    raise StageError(
        f"capacities of {name} must be a list of whole numbers of tokens, got {capacities!r}: write {write}"
    )


def check_capacities(name: str, capacities: tuple[int, ...]) -> None:
    """Raise StageError, with valid ones, unless capacities are ascending whole numbers of tokens, each once."""
    if not capacities:
        raise StageError(f"{name} needs a capacity: write [2048, 4096, 8192, 16384]")
    valid = sorted({capacity for capacity in capacities if 0 < capacity <= LARGEST})
    if list(capacities) != valid:
        raise StageError(
            f"capacities of {name} must ascend, from 1 to {LARGEST:,} tokens, each once, got {list(capacities)}: "
            f"write {valid or [2048, 4096, 8192, 16384]}"
        )
