"""Stage ``length_mix``: long documents with a replay of short ones, at a ratio of tokens."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import counted
from longcrawl.core.stages import Check, Judge, Stage, column, document_ids, stage
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import LAST, keyed_hash

MEASURES = pa.schema([("hash", pa.uint64()), ("n_tokens", pa.int64())])
"""Schema of the measures that a mix is fitted to: keyed hash of the id, and tokens of the document."""
DOUBLINGS = 7
"""Bounds at which the report divides long documents, each twice the one before: up to 1 Mi tokens, if long is 8 Ki."""

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]


@stage
class LengthMix(Judge):
    """Keep as many tokens of short documents as a mix with the long ones needs.

    Documents of ``long_tokens`` or more are long. Of the others, those with the smallest keyed hashes of their ids are
    kept, until the long documents have ``long_share`` of all tokens: to the nearest document, so at most half of a
    short document away. The others are removed by the rule ``surplus_short``. The choice depends neither on the order
    of documents nor on workers. Tokens are counted with the end-of-text token that outputs add to each document.

    The card lists the tokens and documents of each side, of each doubling of the length on the long side, and those
    left out.

    OLMo 3 trains on 34 % of tokens in long documents, of 8 Ki to more than 1 Mi tokens, and 66 % in short ones (arXiv
    2512.13961). For short documents of another dataset, read both as files of one source.

    Fitting holds 16 bytes of each document in memory.

    Args:
        long_tokens: the fewest tokens of a long document.
        long_share: the share of all tokens that long documents have, above 0 and below 1.
        on_few_short: treatment of a mix for which there are not enough short documents. "error" stops, "keep" keeps all
            documents, and the card has the share that results. "cut" also removes long documents, by the rule
            ``surplus_long``: those with the largest keyed hashes, and at least until the short ones are enough. No
            document is repeated: a feed can do so.
        seed: seed of the choice.

    >>> import pyarrow as pa
    >>> table = pa.table({"id": ["a", "b", "c", "d"], "tokens": [[0] * 9, [0] * 4, [0] * 4, [0] * 4]})
    >>> mix = LengthMix(long_tokens=8, long_share=0.5).fit([table], "")
    >>> removed = mix.apply(table).removed
    >>> removed["rule"].to_pylist()
    ['surplus_short']

    Raises:
        StageError: there is no long document, or not enough short ones and ``on_few_short`` is "error".
    """

    long_tokens: int = 8_192
    long_share: float = 0.34
    on_few_short: Literal["error", "keep", "cut"] = "error"
    seed: int = 0
    looks_at = "tokens"
    fits_measures: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(long_tokens=1)
        if not 0 < self.long_share < 1:
            raise StageError(f"{self.name}.long_share is {self.long_share}: set it above 0 and below 1")

    @property
    def needs_fit(self) -> bool:
        """True: the ratio needs the tokens of all documents."""
        return True

    def checks(self, table: pa.Table) -> Sequence[Check]:  # noqa: ARG002  # only a fitted mix can judge
        """Raise a StageError: only the fitted stage judges."""
        raise StageError(f"{self.name} has not counted the tokens yet: call stage.fit(tables, directory) first")

    def fit(self, tables: Iterable[pa.Table], directory: str) -> Stage:
        """Return the stage that keeps the mix of all documents."""
        return self.fit_measures(map(self.measure_to_fit, tables), directory)

    def measure_to_fit(self, table: pa.Table) -> pa.Table:
        """Return ``MEASURES`` of the documents."""
        return pa.table([self.hashes(table), self.lengths(table)], schema=MEASURES)

    def fit_measures(self, measures: Iterable[pa.Table], directory: str) -> Stage:  # noqa: ARG002  # no file is written
        """Return the stage that keeps the mix of documents with these measures, given in any order."""
        rows = pa.concat_tables([MEASURES.empty_table(), *measures])
        hashes, lengths = rows["hash"].to_numpy(), rows["n_tokens"].to_numpy()
        is_long = lengths >= self.long_tokens
        long, short = int(lengths[is_long].sum()), int(lengths[~is_long].sum())
        if not long:
            raise StageError(
                f"{self.name} found no document of {self.long_tokens:,} tokens or more: lower long_tokens, or add "
                "longer documents"
            )
        odds = (1 - self.long_share) / self.long_share  # tokens of short documents for each of a long one
        last_long = LAST
        if short < long * odds:
            if self.on_few_short == "error":
                raise StageError(
                    f"{self.name} needs {long * odds:,.0f} tokens of short documents for {long:,} of long ones, but "
                    f"there are {short:,}: add short documents, raise long_share to "
                    f"{_rounded_up(long / (long + short))}, or set on_few_short to 'keep' or 'cut'"
                )
            if self.on_few_short == "cut":
                last_long = _last_within(hashes[is_long], lengths[is_long], short / odds)
                long = int(lengths[is_long & (hashes <= np.uint64(last_long))].sum())
        last_short = _nearest_last(hashes[~is_long], lengths[~is_long], long * odds)
        kept = hashes <= np.where(is_long, np.uint64(last_long), np.uint64(last_short))
        return FittedLengthMix(self, last_long, last_short, self._report(lengths, is_long, kept))

    def hashes(self, table: pa.Table) -> pa.Array:
        """Return the keyed hash of each id, uint64."""
        return pa.array(keyed_hash(document_ids(table, self.name).to_pylist(), self.name, self.seed))

    def lengths(self, table: pa.Table) -> pa.Array:
        """Return the number of tokens of each document with its end-of-text token, int64; 0 without tokens."""
        lengths = pc.fill_null(pc.list_value_length(column(table, "tokens", self.name)), 0).cast(pa.int64())
        return pc.add(lengths, pc.sign(lengths))

    def _report(self, lengths: Longs, is_long: npt.NDArray[np.bool_], kept: npt.NDArray[np.bool_]) -> tuple[str, ...]:
        """Return the sentences for the card."""
        long, short = lengths[is_long & kept], lengths[~is_long & kept]
        share = long.sum() / max(long.sum() + short.sum(), 1)
        bounds = [self.long_tokens << doubling for doubling in range(DOUBLINGS + 1)]
        bins = np.searchsorted(bounds, long, "right")
        names = [f"{low:,} to {2 * low - 1:,} tokens" for low in bounds[:-1]] + [f"{bounds[-1]:,} tokens or more"]
        found = [f"{name}: {_counted(long[bins == each])}" for each, name in enumerate(names, 1) if each in bins]
        reached = f"{share:.4%} of the tokens are in documents of {self.long_tokens:,} tokens or more"
        sides = f"{_counted(long)} on the long side, {_counted(short)} on the short"
        surplus = f"{_counted(lengths[is_long & ~kept])} of the long side, {_counted(lengths[~is_long & ~kept])}"
        return (
            f"{reached}, the target is {100 * self.long_share:g}%: {sides}",
            f"the long side by length: {'; '.join(found)}",
            f"removed to reach the share: {surplus} of the short side",
        )


@dataclass(frozen=True)
class FittedLengthMix(Judge):
    """A mix with the greatest keyed hash of kept documents of each side."""

    mix: LengthMix
    last_long: int
    last_short: int
    report: tuple[str, ...]

    looks_at = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "name", self.mix.name)

    def checks(self, table: pa.Table) -> list[Check]:
        """Compare the hashes with the last of their side; the value of a rule is the number of tokens."""
        hashes, lengths = self.mix.hashes(table).to_numpy(), self.mix.lengths(table)
        is_long = lengths.to_numpy() >= self.mix.long_tokens
        surplus_long = is_long & (hashes > np.uint64(self.last_long))
        surplus_short = ~is_long & (hashes > np.uint64(self.last_short))
        return [
            Check("surplus_long", lengths, pa.array(~surplus_long)),
            Check("surplus_short", lengths, pa.array(~surplus_short)),
        ]

    def limits(self) -> tuple[str, ...]:
        """Return the mix that was reached."""
        return self.report


def _nearest_last(hashes: Wide, lengths: Longs, wanted: float) -> int:
    """Return the hash up to which documents, by ascending hash, have the nearest number of tokens to ``wanted``."""
    ranked, totals = _rank(hashes, lengths)
    count = int(np.argmin(np.abs(np.concatenate([[0], totals]) - wanted)))
    return _last(ranked, count)


def _last_within(hashes: Wide, lengths: Longs, most: float) -> int:
    """Return the hash up to which documents, by ascending hash, have at most ``most`` tokens; one is always kept."""
    ranked, totals = _rank(hashes, lengths)
    return _last(ranked, max(int(np.searchsorted(totals, most, "right")), 1))


def _rank(hashes: Wide, lengths: Longs) -> tuple[Wide, Longs]:
    order = np.argsort(hashes)
    return hashes[order], np.cumsum(lengths[order])


def _last(ranked: Wide, count: int) -> int:
    """Return the hash that the first ``count`` documents do not exceed, and the others do."""
    if count == len(ranked):
        return LAST
    return int(ranked[count - 1]) if count else max(int(ranked[0]) - 1, 0)


def _rounded_up(share: float) -> float:
    return math.ceil(share * 1_000) / 1_000


def _counted(lengths: Longs) -> str:
    return f"{counted(len(lengths), 'document')} with {counted(int(lengths.sum()), 'token')}"
