"""Measures of a composition: padding, truncation, concatenation and relatedness, for comparison side by side.

Source: H. Liu et al., "Bucket Pre-training is All You Need", 2024, section 2, equations 1 to 3. Relatedness uses token
ids as terms, of the first ``TOKENS`` tokens of the first ``DOCUMENTS`` documents.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import Column, Table
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.term_vectors import NORM, TermVectors, multiply_pairs
from longcrawl.tokens.plan import Longs, Plan, Strategy, checked_lengths, document_parts, whole_capacities
from longcrawl.tokens.strategies import (
    BestFit,
    Buckets,
    DatasetDecomposition,
    FirstFit,
    FixedLength,
    Interleaved,
    LongDocuments,
    MultiBucket,
    Padded,
    Planner,
)

DOCUMENTS = 10_000
TOKENS = 512
DIGITS = 6  # digits kept of a logarithm, since its last bits differ between machines
_LARGEST = (1 << 32) - 1


class Beginnings:
    """Collector of the first tokens of the first documents."""

    def __init__(self) -> None:
        self.found: list[npt.NDArray[Any]] = []

    @property
    def wanted(self) -> bool:
        """Whether more documents are needed."""
        return len(self.found) < DOCUMENTS

    def add(self, tokens: npt.NDArray[Any], ends: Longs) -> None:
        """Add as many of the concatenated documents as are still needed; values that are not integers are ignored."""
        whole = tokens if tokens.dtype.kind in "iu" else tokens[:0]
        for start, stop in pairwise([0, *ends[: DOCUMENTS - len(self.found)].tolist()]):
            self.found.append(np.array(whole[start : min(stop, start + TOKENS)]))

    def add_lists(self, lists: pa.ChunkedArray) -> None:
        """Add the lists of a column as documents."""
        for chunk in lists.slice(0, DOCUMENTS - len(self.found)).chunks:
            lengths = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False)
            self.add(chunk.flatten().to_numpy(zero_copy_only=False), np.cumsum(lengths))

    def add_one(self, tokens: Sequence[Any]) -> None:
        """Add a document of any values; those that are not integers are ignored."""
        if self.wanted:
            whole = [each & _LARGEST for each in tokens[:TOKENS] if isinstance(each, int)]
            self.found.append(np.array(whole, np.uint32))


class Relatedness(NamedTuple):
    """Result of :func:`relate`: compared pairs, and mean cosine of these and of random pairs, None without a pair."""

    compared_pairs: int  # number of pairs of adjacent documents in a sample
    related: float | None
    related_by_chance: float | None


def neighbours(plan: Plan, first: int = 0) -> Longs:
    """Return the pairs of adjacent documents in samples, int64 [pairs, 2]; ``first`` is the first document's number."""
    documents = plan.documents[: 0 if first >= DOCUMENTS else None] + first
    pairs = np.stack([documents[:-1], documents[1:]], axis=1)
    inside = np.ones(len(pairs), np.bool_)
    inside[plan.bounds[1:-1] - 1 if len(pairs) else ()] = False
    found: Longs = pairs[inside & (pairs[:, 0] != pairs[:, 1]) & (pairs < DOCUMENTS).all(axis=1)]
    return found


def relate(pairs: Longs, vectors: "TermVectors") -> Relatedness:
    """Compare the documents of each pair, int64 [pairs, 2], by their vectors, see :func:`weigh`.

    >>> texts = [np.array(tokens) for tokens in ([1, 2, 3], [7, 8], [1, 2, 4], [7, 9])]
    >>> found = relate(np.array([[0, 2], [1, 3]]), weigh(texts))
    >>> found.compared_pairs, round(found.related, 2)
    (2, 0.27)
    """
    if not len(pairs):
        return Relatedness(0, None, None)
    filled = np.flatnonzero(np.diff(vectors.bounds))
    order = filled[np.argsort(keyed_hash(map(str, filled.tolist()), "pairs", 0))]
    means = []
    for some in (pairs, np.stack([order, np.roll(order, 1)], axis=1)):
        products = np.empty(len(some), np.int64)
        multiply_pairs(vectors, np.ascontiguousarray(some[:, 0]), np.ascontiguousarray(some[:, 1]), products)
        means.append(round(min(int(products.sum()) / NORM**2 / max(len(some), 1), 1.0), DIGITS))
    return Relatedness(len(pairs), *means)


def weigh(beginnings: Iterable[npt.NDArray[np.integer[Any]]]) -> "TermVectors":
    """Return term vectors of documents; a token weighs (1 + log(count)) * log(documents / documents that have it)."""
    texts = [each[:TOKENS] for each in beginnings]
    lengths = np.array([len(each) for each in texts], np.int64)
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), lengths)
    tokens = np.concatenate([np.zeros(0, np.uint32), *texts]).astype(np.uint64) & np.uint64(_LARGEST)
    keys, counts = np.unique(owners << np.uint64(32) | tokens, return_counts=True)
    terms, owners = keys.astype(np.uint32), (keys >> np.uint64(32)).astype(np.int64)
    _, numbers, having = np.unique(terms, return_inverse=True, return_counts=True)
    rarity = np.round(np.log(np.count_nonzero(lengths) / having), DIGITS)
    weights = (1 + np.round(np.log(counts), DIGITS)) * rarity[numbers]
    sizes = np.sqrt(np.bincount(owners, weights**2, minlength=len(texts)))
    whole = np.rint(NORM * weights / np.maximum(sizes[owners], 1e-9)).astype(np.uint16)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(texts)))])
    return TermVectors(bounds.astype(np.int64), terms, whole)


BLOCK = 1 << 20  # numbers added up together, at least 128


@dataclass(frozen=True)
class Bucket:
    """Counts for the samples of one capacity."""

    capacity: int
    samples: int
    documents: int  # documents with their first token in one of these samples; ``tokens`` are without padding
    tokens: int


@dataclass(frozen=True)
class Composition:
    """Measures of one plan, of documents with tokens: an empty one is in no sample and would only raise ``r_cat``."""

    label: str
    documents: int
    empty_documents: int
    tokens: int  # tokens of all documents, in samples or dropped
    samples: int
    pieces: int
    capacity: int
    placed_tokens: int
    cut_documents: int  # documents that are not whole in one sample: cut, or dropped, if only in part
    cut_documents_tokens: int
    context: float  # mean number of earlier tokens of the same document in the sample of a placed token
    whole_context: float  # ``context`` if no document were cut, its maximum without dropping tokens
    longer_documents: int
    buckets: tuple[Bucket, ...]
    compared_pairs: int = 0
    related: float | None = None  # mean cosine of the TF-IDF weights of the compared pairs, or None without any
    related_by_chance: float | None = None  # mean cosine of random pairs of these documents, or None likewise

    @property
    def r_pad(self) -> float:
        """Equation 1: padding tokens of all samples / length of all samples, both in tokens."""
        return _ratio(self.capacity - self.placed_tokens, self.capacity)

    @property
    def r_tru(self) -> float:
        """Equation 2: cut documents / documents; one with all its pieces in one sample is not cut."""
        return _ratio(self.cut_documents, self.documents)

    @property
    def r_cat(self) -> float:
        """Equation 3: documents / samples."""
        return _ratio(self.documents, self.samples)

    @property
    def pieces_per_sample(self) -> float:
        """Documents or parts of documents per sample; ``r_cat`` counts a document once, however many parts it has."""
        return _ratio(self.pieces, self.samples)

    @property
    def r_tru_tokens(self) -> float:
        """Tokens of cut documents / tokens: ``r_tru`` weighted by tokens."""
        return _ratio(self.cut_documents_tokens, self.tokens)

    @property
    def dropped(self) -> float:
        """Tokens in no sample / tokens."""
        return _ratio(self.tokens - self.placed_tokens, self.tokens)

    @property
    def context_share(self) -> float:
        """``context`` / ``whole_context``; 1 if every token sees all of its document before it."""
        return _ratio(self.context, self.whole_context) if self.whole_context else 1.0

    @property
    def r_tru_floor(self) -> float:
        """Lower bound of ``r_tru`` for samples of these capacities: documents longer than the largest must be cut."""
        return _ratio(self.longer_documents, self.documents)

    @property
    def r_cat_floor(self) -> float:
        """Lower bound of ``r_cat`` for samples of these capacities, the smallest at least, and this padding."""
        return _ratio(self.documents * self.buckets[0].capacity, self.capacity) if self.buckets else 0.0

    def __str__(self) -> str:
        return f"{table_of([self])}\n\n{_bucket_table(self)}"

    def markdown(self) -> str:
        """Return the row and the table of buckets as Markdown."""
        return f"{table_of([self]).markdown()}\n\n{_bucket_table(self).markdown()}"


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def measure(plan: Plan, label: str = "", capacities: Sequence[int] | None = None) -> Composition:
    """Measure a plan of any strategy; by default ``capacities`` are those that its samples have.

    >>> import longcrawl as lc
    >>> found = measure(lc.tokens.FixedLength(4, order="given").plan([3, 3, 3]))
    >>> found.r_pad, round(found.r_tru, 3), found.r_cat, found.pieces_per_sample
    (0.25, 0.667, 1.0, 1.6666666666666667)
    """
    lengths = plan.lengths
    owners, parts = document_parts(plan.bounds, plan.documents, plan.sizes)
    whole = np.zeros(len(lengths), np.bool_)
    whole[owners[parts >= lengths[owners] - plan.omitted]] = True
    cut = ~whole & (lengths > plan.omitted)
    documents, tokens, placed = int((lengths > 0).sum()), int(lengths.sum()), int(plan.sizes.sum())
    possible = sorted(set(capacities if capacities is not None else plan.capacities.tolist()))
    return Composition(
        label=label,
        documents=documents,
        empty_documents=len(lengths) - documents,
        tokens=tokens,
        samples=len(plan),
        pieces=len(plan.sizes),
        capacity=int(plan.capacities.sum()),
        placed_tokens=placed,
        cut_documents=int(cut.sum()),
        cut_documents_tokens=int(lengths[cut].sum()),
        context=_ratio(_context(parts), placed),
        whole_context=_ratio(_context(lengths), tokens),
        longer_documents=int((lengths > possible[-1]).sum()) if possible else documents,
        buckets=_buckets(plan, possible),
    )


def _context(lengths: npt.NDArray[np.integer[Any]]) -> float:
    """Sum over all tokens the number of tokens before each in its part, ``BLOCK`` parts at a time."""
    if len(lengths) > BLOCK:
        half = len(lengths) // 2 // 8 * 8  # NumPy splits sums here, so blocks give the same bits
        return _context(lengths[:half]) + _context(lengths[half:])
    # In floating point: the square of a document of five billion tokens does not fit into 64 bits.
    sizes = lengths.astype(np.float64)
    return float((sizes * (sizes - 1) / 2).sum())


def _buckets(plan: Plan, capacities: Sequence[int]) -> tuple[Bucket, ...]:
    of_pieces = np.repeat(plan.capacities, np.diff(plan.bounds))
    found = []
    for capacity in capacities:
        here = of_pieces == capacity
        heads = int((plan.starts[here] == 0).sum())
        found.append(Bucket(capacity, int((plan.capacities == capacity).sum()), heads, int(plan.sizes[here].sum())))
    return tuple(found)


def measure_pools(
    pools: Sequence[Composition], label: str, lengths: npt.NDArray[np.integer[Any]], sizes: npt.NDArray[np.integer[Any]]
) -> Composition:
    """Combine measures of pools, and add up context in the order of the plan, which determines how sums are rounded."""
    found = combine(pools, label)
    context, whole_context = _ratio(_context(sizes), found.placed_tokens), _ratio(_context(lengths), found.tokens)
    return replace(found, context=context, whole_context=whole_context)


def combine(compositions: Sequence[Composition], label: str = "") -> Composition:
    """Combine the measures of plans of different documents, at least one; capacities must be the same in all."""
    if len(compositions) == 1:
        return replace(compositions[0], label=label)
    counts = [each.name for each in fields(Composition) if each.type is int]
    added = {name: sum(getattr(each, name) for each in compositions) for name in counts}
    context = sum(each.context * each.placed_tokens for each in compositions)
    whole_context = sum(each.whole_context * each.tokens for each in compositions)
    compared = [each for each in compositions if each.compared_pairs]
    related, by_chance = (
        _ratio(sum(getattr(each, name) * each.compared_pairs for each in compared), added["compared_pairs"])
        if compared
        else None
        for name in ("related", "related_by_chance")
    )
    names = ("samples", "documents", "tokens")
    buckets = [
        Bucket(here[0].capacity, *(sum(getattr(each, name) for each in here) for name in names))
        for here in zip(*(each.buckets for each in compositions), strict=True)
    ]
    return Composition(
        label=label,
        context=_ratio(context, added["placed_tokens"]),
        whole_context=_ratio(whole_context, added["tokens"]),
        buckets=tuple(buckets),
        related=related,
        related_by_chance=by_chance,
        **added,
    )


def _percent(value: float) -> str:
    digits = 100 * value
    if digits >= 1:
        return f"{digits:.2f}"
    return "0" if not digits else f"{digits:.2g}" if digits >= 0.0001 else "<0.0001"


LEGEND = (
    "r_pad: padding in all samples. r_tru: documents that are cut, and their share of all tokens. r_cat: documents per "
    "sample. floor: lower bound for every plan with these capacities (and this padding). pieces: documents and parts "
    "of documents per sample. context: tokens of the same document before a token in its sample, as a share of those "
    "in the whole document. dropped: tokens in no sample."
)
RELATED_LEGEND = (
    "related: mean cosine of the TF-IDF weights of tokens in adjacent documents of a sample, among the first "
    f"{DOCUMENTS:,}; chance: that of any two of them."
)


def legend_of(compositions: Sequence[Composition]) -> str:
    """Return the meaning of the columns of :func:`table_of`."""
    return f"{LEGEND} {RELATED_LEGEND}" if any(each.compared_pairs for each in compositions) else LEGEND


def table_of(compositions: Sequence[Composition]) -> Table:
    """Return a table with a row for each composition."""
    titles = ["r_pad %", "r_tru %", "floor", "in tokens %", "r_cat", "floor", "pieces", "context %", "dropped %"]
    rows = [
        [
            each.label,
            _percent(each.r_pad),
            _percent(each.r_tru),
            _percent(each.r_tru_floor),
            _percent(each.r_tru_tokens),
            f"{each.r_cat:.2f}",
            f"{each.r_cat_floor:.2f}",
            f"{each.pieces_per_sample:.2f}",
            _percent(each.context_share),
            _percent(each.dropped),
            f"{each.samples:,}",
        ]
        for each in compositions
    ]
    if any(each.compared_pairs for each in compositions):
        titles += ["related", "chance"]
        for row, each in zip(rows, compositions, strict=True):
            row[-1:-1] = ["" if value is None else f"{value:.3f}" for value in (each.related, each.related_by_chance)]
    return _table("strategy", [*titles, "samples"], rows)


def _bucket_table(row: Composition) -> Table:
    titles = ("samples", "of samples %", "of tokens %", "of documents %", "r_pad %")
    rows = [
        [
            f"{each.capacity:,}",
            f"{each.samples:,}",
            _percent(_ratio(each.samples, row.samples)),
            _percent(_ratio(each.tokens, row.placed_tokens)),
            _percent(_ratio(each.documents, row.documents)),
            _percent(1 - _ratio(each.tokens, each.samples * each.capacity)) if each.samples else "",
        ]
        for each in row.buckets
    ]
    return _table("bucket", titles, rows)


def _table(name: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return Table([Column(name), *(Column(title, "count") for title in titles)], rows)


StrategyName = Literal[
    "buckets", "fixed", "multi-bucket", "best-fit", "first-fit", "decomposition", "padded", "interleaved"
]
LEAST_INTERLEAVED = Interleaved.documents_per_sample * Interleaved.chunks_per_document
ONE_LENGTH = ("fixed", "best-fit", "first-fit", "padded", "interleaved")
FIRST_FIT_POOL = 256
_DOCUMENTS, _TOKENS, _BOUND = "#4c78a8", "#f58518", "#222222"
_BINS = 60
_PANELS = (
    ("r_pad", "padding: r_pad, %", 100),
    ("r_tru", "documents cut: r_tru, %", 100),
    ("r_cat", "documents per sample: r_cat", 1),
    ("context_share", "context within documents, %", 100),
)


def named_strategy(
    name: StrategyName,
    capacities: Sequence[int] = (2048, 4096, 8192, 16384),
    padding_threshold: float = 0.05,
    planner: Planner = "algorithm-1",
    seed: int = 0,
    pool_size: int | None = None,
    chunk_tokens: int = Buckets.chunk_tokens,
    documents_per_sample: int = Interleaved.documents_per_sample,
    chunks_per_document: int = Interleaved.chunks_per_document,
    long_documents: LongDocuments = "truncate",
) -> Strategy:
    """Return a strategy by name, as :func:`default_strategies` makes it.

    >>> named_strategy("best-fit", [4096]).label, named_strategy("decomposition", [1024]).capacities
    ('Best-fit-4096', (256, 512, 1024))

    Args:
        name: "fixed", "best-fit", "first-fit", "padded" and "interleaved" make samples of one length.
        capacities: capacities in tokens, ascending. "decomposition" adds the half, the quarter … of the first one.
        padding_threshold: for "buckets", see :class:`longcrawl.tokens.Buckets`.
        planner: for "buckets". With "in-order", "fixed", "multi-bucket", "first-fit" and "interleaved" also keep the
            order.
        seed: seed of the order in which "fixed", "multi-bucket" and "interleaved" take documents, and of "buckets".
        pool_size: documents planned together by "buckets" and "interleaved" (by default 100,000) and "first-fit" (256).
        chunk_tokens: for the planner "interleaved".
        documents_per_sample: for the strategy "interleaved", see :class:`longcrawl.tokens.Interleaved`.
        chunks_per_document: for the strategy "interleaved".
        long_documents: for "padded" and "interleaved".
    """
    sizes = whole_capacities(name, capacities)
    if name in ONE_LENGTH and len(sizes) > 1:
        raise StageError(
            f"the strategy {name!r} makes samples of one length, but got the capacities {list(sizes)}: "
            f"write [{sizes[-1]}], or choose buckets, multi-bucket or decomposition"
        )
    if pool_size is not None and name not in ("buckets", "first-fit", "interleaved"):
        raise StageError(f"the strategy {name!r} plans all documents together: remove pool_size")
    _check_planner(name, planner, chunk_tokens)
    _check_unused(name, documents_per_sample, chunks_per_document, long_documents)
    order: Literal["shuffled", "given"] = "given" if planner == "in-order" else "shuffled"
    fitted: Literal["longest-first", "given"] = "given" if planner == "in-order" else "longest-first"
    pool = Buckets.pool_size if pool_size is None else pool_size
    counts = documents_per_sample, chunks_per_document
    strategies: dict[StrategyName, Callable[[], Strategy]] = {
        "buckets": lambda: Buckets(
            sizes, padding_threshold, planner, seed=seed, pool_size=pool, chunk_tokens=chunk_tokens
        ),
        "fixed": lambda: FixedLength(sizes[0], order, seed),
        "multi-bucket": lambda: MultiBucket(sizes, order, seed),
        "best-fit": lambda: BestFit(sizes[0]),
        "first-fit": lambda: FirstFit(sizes[0], fitted, FIRST_FIT_POOL if pool_size is None else pool_size),
        "decomposition": lambda: DatasetDecomposition((*_halves(sizes[0]), *sizes)),
        "padded": lambda: Padded(sizes[0], long_documents),
        "interleaved": lambda: Interleaved(sizes[0], *counts, long_documents, order, seed, pool),
    }
    if name not in strategies:
        raise StageError(f"unknown strategy {name!r}; known: {', '.join(map(repr, strategies))}")
    return strategies[name]()


def _check_planner(name: str, planner: Planner, chunk_tokens: int) -> None:
    if planner == "interleaved" and name != "buckets":
        raise StageError(f"the planner 'interleaved' is only for the strategy 'buckets', got {name!r}: choose buckets")
    if planner == "in-order" and name in ("best-fit", "decomposition"):
        raise StageError(
            f"the strategy {name!r} plans by length and not in order: choose buckets, or remove planner 'in-order'"
        )
    if planner != "interleaved" and chunk_tokens != Buckets.chunk_tokens:
        raise StageError(f"the planner {planner!r} makes no chunks: remove chunk_tokens, or choose 'interleaved'")


def _check_unused(name: str, documents_per_sample: int, chunks_per_document: int, long_documents: str) -> None:
    counts = (documents_per_sample, chunks_per_document)
    if counts != (Interleaved.documents_per_sample, Interleaved.chunks_per_document) and name != "interleaved":
        raise StageError(
            f"the strategy {name!r} interleaves no documents: remove documents_per_sample and chunks_per_document, "
            "or choose interleaved"
        )
    if long_documents != "truncate" and name not in ("padded", "interleaved"):
        raise StageError(
            f"long_documents {long_documents!r} is only for padded and interleaved, not for {name!r}: remove it"
        )


def default_strategies(
    capacities: Sequence[int] = (2048, 4096, 8192, 16384), padding_threshold: float = 0.05
) -> tuple[Strategy, ...]:
    """Return the strategies that ``lc.compose`` compares: bin packing, padding, buckets and others."""
    sizes = whole_capacities("compose", capacities)
    interleaved = [named_strategy("interleaved", sizes[-1:])] if sizes[-1] >= LEAST_INTERLEAVED else []
    return (
        *(named_strategy("fixed", [size]) for size in sizes),
        named_strategy("multi-bucket", sizes),
        named_strategy("best-fit", sizes[-1:]),
        named_strategy("first-fit", sizes[-1:]),
        named_strategy("padded", sizes[-1:]),
        *interleaved,
        named_strategy("decomposition", sizes),
        named_strategy("buckets", sizes, padding_threshold),
        named_strategy("buckets", sizes, padding_threshold, planner="exact-fill"),
        named_strategy("buckets", sizes, padding_threshold, planner="in-order"),
    )


def _halves(capacity: int) -> list[int]:
    found: list[int] = []
    while capacity % 2 == 0 and capacity // 2 >= 256:
        capacity //= 2
        found.insert(0, capacity)
    return found


@dataclass(frozen=True, eq=False)
class Comparison:
    """Strategies measured on the same documents; prints as a table, and ``plot()`` draws it.

    >>> print(compare_strategies([900, 300, 5000, 40, 2100]).rows[0].r_tru)
    0.4
    """

    lengths: Longs
    rows: tuple[Composition, ...]
    terminated: int = 0  # documents to which an end-of-text token was added; the lengths of the others are unchanged

    def __iter__(self) -> Iterator[Composition]:
        return iter(self.rows)

    def __getitem__(self, label: str) -> Composition:
        """Return the row with a label; KeyError lists the known ones."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(f"no strategy {label!r}; known: {', '.join(row.label for row in self.rows)}")

    @property
    def about(self) -> str:
        """Summary of the lengths in one line."""
        filled = self.lengths[self.lengths > 0]
        if not len(filled):
            return f"{len(self.lengths):,} documents, none with a token"
        low, middle, high = np.percentile(filled, [10, 50, 90])
        empty = len(self.lengths) - len(filled)
        to = "each" if self.terminated == len(filled) else f"{self.terminated:,} of them"
        ends = f"an end-of-text token was added to {to}"
        return (
            f"{len(filled):,} documents of {int(filled.sum()):,} tokens: mean {filled.mean():,.1f}, "
            f"median {middle:,.0f}, the middle 80 % from {low:,.0f} to {high:,.0f}, the longest {filled.max():,}"
            + (f"; {empty:,} more are empty" if empty else "")
            + f"; {ends if self.terminated else 'lengths as they are, no end-of-text token added'}"
        )

    def __repr__(self) -> str:
        about = textwrap.fill(self.about, 160, break_on_hyphens=False)
        return f"{about}\n\n{table_of(self.rows)}\n\n{textwrap.fill(legend_of(self.rows), 110)}"

    def markdown(self) -> str:
        """Return the table as Markdown."""
        return table_of(self.rows).markdown()

    def _repr_html_(self) -> str:
        return replace(table_of(self.rows), title=self.about, notes=[legend_of(self.rows)])._repr_html_()

    def plot(self) -> Any:
        """Draw the lengths of documents and a bar of each measure per strategy, and return a matplotlib ``Figure``."""
        try:
            from matplotlib.figure import Figure
        except ImportError as missing:
            raise StageError(
                "plots need matplotlib: pip install 'longcrawl[plots]', or print the comparison"
            ) from missing
        if not self.lengths.any():
            raise StageError("no document has a token, so there is nothing to draw: pass lengths above 0")
        figure = Figure(figsize=(13, 2.6 + 0.24 * len(self.rows)), layout="constrained")
        panels = figure.subplots(1, 1 + len(_PANELS), width_ratios=[1.6] + [1.0] * len(_PANELS))
        _draw_lengths(panels[0], self)
        for axes, (name, title, scale) in zip(panels[1:], _PANELS, strict=True):
            _draw_measure(axes, self, name, title, scale)
            axes.tick_params(labelleft=axes is panels[1])
        return figure


def compare_strategies(
    lengths: Any, strategies: Sequence[Strategy] | None = None, beginnings: Sequence[npt.NDArray[np.integer[Any]]] = ()
) -> Comparison:
    """Plan the same documents with each strategy, by default those of :func:`default_strategies`, and measure.

    ``beginnings`` are the first tokens of the first documents, to measure how related neighbours in samples are.
    """
    checked = checked_lengths(lengths)
    chosen = default_strategies() if strategies is None else strategies
    vectors, rows = weigh(beginnings) if len(beginnings) else None, []
    for each in chosen:
        plan = each.plan(checked)
        rows.append(measure(plan, each.label, each.capacities))
        if vectors is not None:
            pairs = neighbours(plan)
            found = relate(pairs[(pairs < len(beginnings)).all(axis=1)], vectors)
            rows[-1] = replace(rows[-1], **found._asdict())
    return Comparison(checked, tuple(rows))


def _draw_lengths(axes: Any, comparison: Comparison) -> None:
    lengths = comparison.lengths[comparison.lengths > 0]
    edges = np.geomspace(1, max(int(lengths.max()), 2) + 1, _BINS + 1)
    for weights, color, label in ((None, _DOCUMENTS, "documents"), (lengths, _TOKENS, "tokens")):
        counts, _ = np.histogram(lengths, edges, weights=weights)
        axes.stairs(100 * counts / counts.sum(), edges, color=color, label=label)
    for capacity in sorted({bucket.capacity for row in comparison for bucket in row.buckets}):
        axes.axvline(capacity, color=_BOUND, linewidth=0.7, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("tokens of a document; dotted: capacities", fontsize=8)
    axes.set_title("share by length, %", fontsize=9)
    axes.legend(fontsize=7)
    axes.tick_params(labelsize=7)


def _draw_measure(axes: Any, comparison: Comparison, name: str, title: str, scale: float) -> None:
    rows = comparison.rows
    values = [scale * getattr(row, name) for row in rows]
    bars = axes.barh([row.label for row in rows], values, color=_DOCUMENTS, height=0.6)
    axes.bar_label(bars, [f"{value:.2g}" if value < 10 else f"{value:.1f}" for value in values], padding=3, fontsize=7)
    for place, row in enumerate(rows if name in ("r_tru", "r_cat") else ()):
        floor = scale * getattr(row, f"{name}_floor")
        axes.plot([floor, floor], [place - 0.4, place + 0.4], color=_BOUND, linewidth=1)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * max(values) or 1)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
