"""How good a composition is: padding, truncation and concatenation, for any plan.

Source: H. Liu et al., "Bucket Pre-training is All You Need", 2024, section 2, equations 1 to 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.composition.plan import Plan, document_parts
from longcrawl.composition.relatedness import DOCUMENTS
from longcrawl.display.table import Column, Table

BLOCK = 1 << 20
"""Numbers that are added up together; 128 or more."""


@dataclass(frozen=True)
class Bucket:
    """The samples of one capacity."""

    capacity: int
    samples: int
    documents: int
    """Documents whose first token is in one of them."""
    tokens: int
    """Of documents, without padding."""


@dataclass(frozen=True)
class Composition:
    """The measures of one plan.

    Documents are those that have tokens: an empty one is in no sample and would only raise ``r_cat``. It is counted in
    ``empty_documents``.
    """

    label: str
    documents: int
    """M of the paper."""
    empty_documents: int
    tokens: int
    """Of all documents, in samples or dropped."""
    samples: int
    """C of the paper."""
    pieces: int
    """Documents and parts of documents in all samples."""
    capacity: int
    """Tokens of all samples, with padding."""
    placed_tokens: int
    """Tokens of documents in samples."""
    cut_documents: int
    """Documents that are not whole in one sample: cut, or dropped in part or altogether.

    One whose pieces are all in one sample, with others between, is whole: the sample is one text."""
    cut_documents_tokens: int
    """Tokens of these documents."""
    context: float
    """For how many earlier tokens of its own document a placed token has in its sample, on average."""
    whole_context: float
    """The same if no document were cut: the most that ``context`` can be without dropping tokens."""
    longer_documents: int
    """Documents longer than the largest sample, which every plan cuts."""
    buckets: tuple[Bucket, ...]
    """Ascending by capacity."""
    compared_pairs: int = 0
    """Documents next to each other in a sample that were compared, see :mod:`longcrawl.composition.relatedness`."""
    related: float | None = None
    """Mean cosine of their TF-IDF weights; None if no pair was compared."""
    related_by_chance: float | None = None
    """The same of random pairs of these documents."""

    @property
    def r_pad(self) -> float:
        """Equation 1: padding tokens of all samples / length of all samples, both in tokens."""
        return _ratio(self.capacity - self.placed_tokens, self.capacity)

    @property
    def r_tru(self) -> float:
        """Equation 2: documents that were cut / documents. However often one is cut, it counts once.

        A document is cut where it ends up in several samples. One of which all pieces are in one sample, as the planner
        "interleaved" makes them, is not: each token of it sees all that come before.
        """
        return _ratio(self.cut_documents, self.documents)

    @property
    def r_cat(self) -> float:
        """Equation 3: documents / samples."""
        return _ratio(self.documents, self.samples)

    @property
    def pieces_per_sample(self) -> float:
        """How many documents or parts of one a sample has; ``r_cat`` counts a document once, in however many it is."""
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
        """``context`` / ``whole_context``; 1 where every token sees all of its document before it."""
        return _ratio(self.context, self.whole_context) if self.whole_context else 1.0

    @property
    def r_tru_floor(self) -> float:
        """The least ``r_tru`` with samples of these capacities: documents longer than the largest must be cut."""
        return _ratio(self.longer_documents, self.documents)

    @property
    def r_cat_floor(self) -> float:
        """The least ``r_cat`` with samples of these capacities and this padding.

        All samples together have placed_tokens / (1 - r_pad) tokens, each at least the smallest capacity, so there are
        at most placed_tokens / ((1 - r_pad) x smallest) of them.
        """
        return _ratio(self.documents * self.buckets[0].capacity, self.capacity) if self.buckets else 0.0

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._tables()))

    def markdown(self) -> str:
        """Return the row and the table of buckets as Markdown."""
        return "\n\n".join(table.markdown() for table in self._tables())

    def _tables(self) -> list[Table]:
        return [table_of([self]), _bucket_table(self)]


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def measure(plan: Plan, label: str = "", capacities: Sequence[int] | None = None) -> Composition:
    """Measure a plan.

    Args:
        plan: of any strategy.
        label: what tables call it.
        capacities: that samples could have had; those that they have, if left out.

    >>> import longcrawl as lc
    >>> found = measure(lc.tokens.FixedLength(4, order="given").plan([3, 3, 3]))
    >>> found.r_pad, round(found.r_tru, 3), found.r_cat, found.pieces_per_sample
    (0.25, 0.667, 1.0, 1.6666666666666667)
    """
    lengths = plan.lengths
    owners, parts = document_parts(plan.bounds, plan.documents, plan.sizes)
    whole = np.zeros(len(lengths), np.bool_)
    whole[owners[parts == lengths[owners]]] = True
    cut = ~whole & (lengths > 0)
    documents, tokens, placed = int((lengths > 0).sum()), int(lengths.sum()), int(plan.sizes.sum())
    possible = sorted(set(capacities if capacities is not None else plan.capacities.tolist()))
    return Composition(
        label,
        documents,
        len(lengths) - documents,
        tokens,
        len(plan),
        len(plan.sizes),
        int(plan.capacities.sum()),
        placed,
        int(cut.sum()),
        int(lengths[cut].sum()),
        _ratio(_context(parts), placed),
        _ratio(_context(lengths), tokens),
        int((lengths > possible[-1]).sum()) if possible else documents,
        _buckets(plan, possible),
    )


def _context(lengths: npt.NDArray[np.integer[Any]]) -> float:
    """Sum over all tokens of the number of tokens before each in its part, ``BLOCK`` parts at a time."""
    if len(lengths) > BLOCK:
        half = len(lengths) // 2 // 8 * 8  # where NumPy cuts an array to add it up, so that blocks change no bit
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
    pools: Sequence[Composition],
    label: str,
    lengths: npt.NDArray[np.integer[Any]],
    sizes: npt.NDArray[np.integer[Any]],
) -> Composition:
    """Measure a plan by what :func:`measure` found of its pools.

    Args:
        pools: of consecutive documents; capacities must be the same in all.
        label: what tables call the plan.
        lengths: tokens of each document.
        sizes: tokens of each part of a document, in the order of the plan, by which sums are rounded.
    """
    found = combine(pools, label)
    context, whole_context = _ratio(_context(sizes), found.placed_tokens), _ratio(_context(lengths), found.tokens)
    return replace(found, context=context, whole_context=whole_context)


def combine(compositions: Sequence[Composition], label: str = "") -> Composition:
    """Measure several plans of different documents as one; capacities must be the same in all.

    Args:
        compositions: at least one.
        label: what tables call it.
    """
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
    buckets = [
        Bucket(
            here[0].capacity,
            *(sum(getattr(each, name) for each in here) for name in ("samples", "documents", "tokens")),
        )
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
    "r_pad: padding in all samples. r_tru: documents that are cut, and the share of all tokens that is theirs. r_cat: "
    "documents per sample. floor: what no plan with these capacities (and this padding) can be below. pieces: "
    "documents and parts of one per sample. context: tokens of its own document before a token in its sample, of those "
    "in whole documents. dropped: tokens in no sample."
)
RELATED_LEGEND = (
    "related: mean cosine of TF-IDF weights of tokens, of documents next to each other in a sample, among the first "
    f"{DOCUMENTS:,}; chance: of any two of them."
)


def legend_of(compositions: Sequence[Composition]) -> str:
    """Return what the columns of :func:`table_of` mean."""
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
        rows = [[*row[:-1], *_related(each), row[-1]] for row, each in zip(rows, compositions, strict=True)]
    return _table("strategy", [*titles, "samples"], rows)


def _related(row: Composition) -> list[str]:
    return ["" if each is None else f"{each:.3f}" for each in (row.related, row.related_by_chance)]


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
    """Return a table with a column of names, and others of figures."""
    return Table([Column(name), *(Column(title, "count") for title in titles)], rows)
