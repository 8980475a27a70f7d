"""How good a composition is: padding, truncation and concatenation, for any plan and for many strategies side by side.

Source: H. Liu et al., "Bucket Pre-training is All You Need", 2024, section 2, equations 1 to 3.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from longcrawl.composition.lengths import checked_lengths
from longcrawl.composition.named_strategies import default_strategies
from longcrawl.composition.plan import Plan
from longcrawl.composition.strategies import Longs, Strategy
from longcrawl.display.table import Column, Table

__all__ = ["Bucket", "Comparison", "Composition", "combine", "compare_strategies", "measure"]


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
    """Documents that are not whole in one sample: cut, or dropped in part or altogether."""
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

    @property
    def r_pad(self) -> float:
        """Equation 1: padding tokens of all samples / length of all samples, both in tokens."""
        return _ratio(self.capacity - self.placed_tokens, self.capacity)

    @property
    def r_tru(self) -> float:
        """Equation 2: documents that were cut / documents. However often one is cut, it counts once."""
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
        return [_table([self]), Table(_columns(_BUCKET_HEAD), _bucket_rows(self))]


_COUNTS = (
    "documents",
    "empty_documents",
    "tokens",
    "samples",
    "pieces",
    "capacity",
    "placed_tokens",
    "cut_documents",
    "cut_documents_tokens",
    "longer_documents",
)


class _Column(NamedTuple):
    title: str
    value: Callable[[Composition], str]


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
    whole = np.zeros(len(lengths), np.bool_)
    whole[plan.documents[plan.sizes == lengths[plan.documents]]] = True
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
        _ratio(_context(plan.sizes), placed),
        _ratio(_context(lengths), tokens),
        int((lengths > possible[-1]).sum()) if possible else documents,
        _buckets(plan, possible),
    )


def _context(lengths: Longs) -> float:
    """Sum over all tokens of the number of tokens before each in its piece."""
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


def combine(compositions: Sequence[Composition], label: str = "") -> Composition:
    """Measure several plans of different documents as one; capacities must be the same in all.

    Args:
        compositions: at least one.
        label: what tables call it.

    """
    if len(compositions) == 1:
        return replace(compositions[0], label=label)
    added = {name: sum(getattr(each, name) for each in compositions) for name in _COUNTS}
    context = sum(each.context * each.placed_tokens for each in compositions)
    whole_context = sum(each.whole_context * each.tokens for each in compositions)
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
        **added,
    )


def compare_strategies(lengths: Any, strategies: Sequence[Strategy] | None = None) -> "Comparison":
    """Plan the same documents by each strategy and measure the plans.

    Args:
        lengths: whole numbers [documents], tokens of each.
        strategies: those of :func:`default_strategies`, if left out.

    Raises:
        StageError: a length is no whole number of 0 or more.

    """
    checked = checked_lengths(lengths)
    chosen = default_strategies() if strategies is None else strategies
    rows = tuple(measure(each.plan(checked), each.label, each.capacities) for each in chosen)
    return Comparison(checked, rows)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Strategies side by side on the same documents; prints as a table, ``plot()`` draws it.

    >>> print(compare_strategies([900, 300, 5000, 40, 2100]).rows[0].r_tru)
    0.4
    """

    lengths: Longs
    """int64 [documents]"""
    rows: tuple[Composition, ...]
    terminated: int = 0
    """Documents whose lengths were given an end-of-text token; in those of the others it is counted, or left out."""

    def __iter__(self) -> Iterator[Composition]:
        return iter(self.rows)

    def __getitem__(self, label: str) -> Composition:
        """Return the row of this label.

        Raises:
            KeyError: there is none; the message lists those that there are.

        """
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(f"no strategy {label!r}; known: {', '.join(row.label for row in self.rows)}")

    @property
    def about(self) -> str:
        """One sentence about the lengths."""
        filled = self.lengths[self.lengths > 0]
        if not len(filled):
            return f"{len(self.lengths):,} documents, none with a token"
        low, middle, high = np.percentile(filled, [10, 50, 90])
        empty = len(self.lengths) - len(filled)
        return (
            f"{len(filled):,} documents of {int(filled.sum()):,} tokens: mean {filled.mean():,.1f}, "
            f"median {middle:,.0f}, the middle 80 % from {low:,.0f} to {high:,.0f}, the longest {filled.max():,}"
            + (f"; {empty:,} more are empty" if empty else "")
            + f"; {self._recorded_ends(len(filled))}"
        )

    def _recorded_ends(self, filled: int) -> str:
        if not self.terminated:
            return "lengths as they are, no end-of-text token added"
        to = "each" if self.terminated == filled else f"{self.terminated:,} of them"
        return f"an end-of-text token was added to {to}"

    def __repr__(self) -> str:
        about = textwrap.fill(self.about, 160, break_on_hyphens=False)
        return f"{about}\n\n{_table(self.rows)}\n\n{textwrap.fill(LEGEND, 110)}"

    def markdown(self) -> str:
        """Return the table as Markdown."""
        return _table(self.rows).markdown()

    def _repr_html_(self) -> str:
        return replace(_table(self.rows), title=self.about, notes=[LEGEND])._repr_html_()

    def plot(self) -> Any:
        """Draw the lengths and the measures with matplotlib, and give the ``Figure``.

        Raises:
            StageError: matplotlib is not installed, or no document has a token.

        """
        from longcrawl.composition._plots import plot_comparison

        return plot_comparison(self)


def _percent(value: float) -> str:
    digits = 100 * value
    if digits >= 1:
        return f"{digits:.2f}"
    return "0" if not digits else f"{digits:.2g}" if digits >= 0.0001 else "<0.0001"


_COLUMNS = (
    _Column("strategy", lambda row: row.label),
    _Column("r_pad %", lambda row: _percent(row.r_pad)),
    _Column("r_tru %", lambda row: _percent(row.r_tru)),
    _Column("floor", lambda row: _percent(row.r_tru_floor)),
    _Column("in tokens %", lambda row: _percent(row.r_tru_tokens)),
    _Column("r_cat", lambda row: f"{row.r_cat:.2f}"),
    _Column("floor", lambda row: f"{row.r_cat_floor:.2f}"),
    _Column("pieces", lambda row: f"{row.pieces_per_sample:.2f}"),
    _Column("context %", lambda row: _percent(row.context_share)),
    _Column("dropped %", lambda row: _percent(row.dropped)),
    _Column("samples", lambda row: f"{row.samples:,}"),
)
_BUCKET_HEAD = ["bucket", "samples", "of samples %", "of tokens %", "of documents %", "r_pad %"]
LEGEND = (
    "r_pad: padding in all samples. r_tru: documents that are cut, and the share of all tokens that is theirs. r_cat: "
    "documents per sample. floor: what no plan with these capacities (and this padding) can be below. pieces: "
    "documents and parts of one per sample. context: tokens of its own document before a token in its sample, of those "
    "in whole documents. dropped: tokens in no sample."
)


def _columns(titles: Sequence[str]) -> list[Column]:
    """Return a column of names, and others of figures."""
    return [Column(title, "count" if place else "text") for place, title in enumerate(titles)]


def _table(rows: Sequence[Composition]) -> Table:
    return Table(_columns([each.title for each in _COLUMNS]), [[each.value(row) for each in _COLUMNS] for row in rows])


def _bucket_rows(row: Composition) -> list[list[str]]:
    return [
        [
            f"{each.capacity:,}",
            f"{each.samples:,}",
            _percent(_ratio(each.samples, row.samples)),
            _percent(_ratio(each.tokens, row.placed_tokens)),
            _percent(_ratio(each.documents, row.documents)),
            _percent(1 - _ratio(each.tokens, each.samples * each.capacity) if each.samples else 0.0),
        ]
        for each in row.buckets
    ]
