"""Packing: several entries of a shard in one sequence of ``max_length`` tokens, so that little is padding.

A plan says which entries go together and looks at lengths alone; then tokens are moved, sample by sample, from arrays
that may be mapped files. Whoever resumes needs the plan and a number.

Source: GPT-Simple's data pipeline, "Sequence packing".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from longcrawl.composition.baselines import BestFit, FirstFit, OneCapacity, cut_long
from longcrawl.composition.lengths import checked_lengths
from longcrawl.composition.plan import Plan, join_plans, plan_of_pieces
from longcrawl.composition.strategies import Longs, Strategy, check_capacities, cut_pools
from longcrawl.core.fields import check_fields
from longcrawl.errors import StageError

__all__ = ["BinnedGreedy", "Packing", "TokenEntries"]

BINS, EXPONENT, LOOK_AT = 64, 1.5, 512


class TokenEntries(Protocol):
    """Entries to pack, one after the other; a :class:`longcrawl.formats.TokenShard` is such a thing."""

    @property
    def tokens(self) -> npt.NDArray[Any]:
        """Of all entries, uint16 or uint32."""

    @property
    def ends(self) -> Longs:
        """Where each entry ends: int64 [entries], exclusive."""

    @property
    def overlaps(self) -> npt.NDArray[Any] | None:
        """With how many tokens of the entry before it each begins, on which no loss is due."""

    @property
    def loss_mask(self) -> npt.NDArray[np.bool_] | None:
        """False for each token that no loss is due on."""


@dataclass(frozen=True)
class BinnedGreedy(OneCapacity):
    """Length-binned greedy packing: samples are filled one after the other, from 64 bins of like lengths.

    Bin k holds entries of ``context_length`` * (k / 64) ** 1.5 tokens and more, so short ones are separated better.
    A sample begins with an entry of the highest bin that has one. Its room is then filled with the first entry that
    fits of the bin that the room is in, 512 being looked at, or else of the highest bin below. Entries longer than
    ``context_length`` are cut into pieces of it. In a bin, entries keep their order.

    ``pool_size`` entries are packed at a time; None packs all together.
    """

    context_length: int = 2048
    pool_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool_size is not None and self.pool_size < 1:
            raise StageError(f"BinnedGreedy.pool_size is a number of entries, 1 or more, or None, got {self.pool_size}")

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"Binned-greedy-{self.context_length}"

    def pools(self, lengths: Longs) -> list[Longs]:
        """Cut the entries into pools of ``pool_size``."""
        return [lengths] if self.pool_size is None else cut_pools(lengths, self.pool_size)

    def plan_pool(self, lengths: Any) -> Plan:
        """Pack these entries."""
        from longcrawl.composition.packing_kernels import binned_greedy

        checked = checked_lengths(lengths)
        pieces = cut_long(checked, self.context_length)
        numbers = np.empty(len(pieces[2]), np.int64)
        count = binned_greedy(pieces[2], self.context_length, _bin_of(self.context_length), LOOK_AT, numbers)
        return plan_of_pieces(checked, numbers, np.full(count, self.context_length), pieces)

    def join(self, plans: Iterable[Plan]) -> Plan:
        """Put plans together."""
        return join_plans(plans)


@dataclass(frozen=True)
class Packing:
    """How entries become training sequences: which go together, what their positions are, what counts in the loss.

    >>> import numpy as np
    >>> import longcrawl as lc
    >>> shard = lc.formats.TokenShard("made", "-", np.array([5, 6, 0, 7, 0], np.uint16), np.array([3, 5]))
    >>> packing = lc.tokens.Packing(6, mask_first="after-end-of-text", end_of_text=0, padding=0)
    >>> made = packing.fill(shard, packing.plan(np.diff(shard.ends, prepend=0)))
    >>> {name: values[0].tolist() for name, values in made.items()}["labels"]
    [5, 6, 0, -100, 0, -100]

    Args:
        max_length: tokens of a sequence.
        strategy: "length-binned" (:class:`BinnedGreedy`), "best-fit" or "first-fit" (longest first).
        positions: "continuous" over a sequence, 0 in the padding; or "reset" at each piece, the padding being one.
        mask_first: which first tokens are masked, that would be predicted from another entry: those of "every-piece",
            those "after-end-of-text", or "none". A window that does not end its document has no end-of-text token.
        end_of_text: its id, for "after-end-of-text".
        padding: the id that fills a sequence up; None for ``end_of_text``, or 0 where that is not known.
        pool_size: entries that are packed at a time, for "length-binned" and "first-fit"; None for all.

    """

    max_length: int = 2048
    strategy: Literal["length-binned", "best-fit", "first-fit"] = "length-binned"
    positions: Literal["continuous", "reset"] = "continuous"
    mask_first: Literal["every-piece", "after-end-of-text", "none"] = "every-piece"
    end_of_text: int | None = None
    padding: int | None = None
    pool_size: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, StageError)
        check_capacities("Packing", (self.max_length,))
        if self.mask_first == "after-end-of-text" and self.end_of_text is None:
            raise StageError("Packing.mask_first is 'after-end-of-text': set end_of_text to its id")
        if self.pool_size is not None and self.strategy == "best-fit":
            raise StageError("Packing.strategy 'best-fit' looks at all entries: leave pool_size out")
        for name in ("end_of_text", "padding"):
            if (getattr(self, name) or 0) < 0:
                raise StageError(f"Packing.{name} is a token id, 0 or more, got {getattr(self, name)}")

    def plan(self, lengths: Any, num_threads: int = 1) -> Plan:
        """Describe which entries go together, from the tokens of each alone; see :meth:`Strategy.plan`."""
        return self._strategy().plan(lengths, num_threads)

    def fill(self, entries: TokenEntries, plan: Plan, samples: Sequence[int] | slice | None = None) -> dict[str, Any]:
        """Move the tokens of some samples of a plan, all if none are named.

        Returns:
            int64 arrays [samples, max_length]: ``input_ids``; ``labels``, not shifted, -100 where no loss is due: on
            padding, overlaps, what a loss mask says and what ``mask_first`` says; ``position_ids``; and ``doc_ids``,
            which count the pieces of a sample from 0, the padding being the last. And what collators need beside them:
            ``n_tokens``, int64 [samples], without the padding, and ``seq_lengths``, for each sample an int64 array with
            the lengths of its pieces, the padding's as the last where there is some.

        Raises:
            StageError: the plan is one of other entries or of another length.
            IndexError: the plan has no such sample.

        """
        from longcrawl.composition.packing_kernels import fill_padding, fill_pieces, lay_out

        chosen = np.arange(len(plan))[slice(None) if samples is None else samples]
        counts, filled = np.zeros((2, len(chosen)), np.int64)
        numbers, pieces = lay_out(plan.bounds, plan.sizes, chosen, np.arange(len(chosen)), counts, filled)
        documents = plan.documents[numbers]
        self._check(entries, plan, documents)
        pieces[0] = entries.ends[documents] - plan.lengths[documents] + plan.starts[numbers]
        pieces[2] = int(self.mask_first == "every-piece")
        if entries.overlaps is not None:
            left = entries.overlaps[documents].astype(np.int64) - plan.starts[numbers]
            pieces[2] = np.clip(left, pieces[2], pieces[1])
        flags = np.zeros(0, bool) if entries.loss_mask is None else np.asarray(entries.loss_mask)
        out = np.empty((4, len(chosen), self.max_length), np.int64)
        padding, reset, end = self._rules()
        fill_pieces(np.asarray(entries.tokens), flags, 0, pieces, reset, end, out)
        fill_padding(filled, counts, padding, reset, out)
        named = dict(zip(("input_ids", "labels", "position_ids", "doc_ids"), out, strict=True))
        return {**named, "n_tokens": filled, "seq_lengths": self._lengths(pieces[1], counts, filled)}

    def _lengths(self, sizes: Longs, counts: Longs, filled: Longs) -> list[Longs]:
        """Return the lengths of the pieces of each sample, and of its padding."""
        last = np.cumsum(counts)
        rows = [sizes[first:stop] for first, stop in zip((last - counts).tolist(), last.tolist(), strict=True)]
        padded = (self.max_length - filled).tolist()
        return [np.append(row, padding) if padding else row for row, padding in zip(rows, padded, strict=True)]

    def _strategy(self) -> Strategy:
        if self.strategy == "best-fit":
            return BestFit(self.max_length)
        kind = BinnedGreedy if self.strategy == "length-binned" else FirstFit
        return kind(self.max_length, pool_size=self.pool_size)

    def _rules(self) -> tuple[int, int, int]:
        padding = self.padding if self.padding is not None else self.end_of_text or 0
        end = self.end_of_text if self.mask_first == "after-end-of-text" else None
        return padding, int(self.positions == "reset"), -1 if end is None else end

    def _check(self, entries: TokenEntries, plan: Plan, documents: Longs) -> None:
        """Compare what is to be moved alone, so that a batch of a large shard costs no more than one of a small one."""
        if (plan.capacities != self.max_length).any():
            raise StageError(
                f"the plan has sequences of other lengths than {self.max_length:,}: plan with this packing"
            )
        ends = np.asarray(entries.ends)
        same = len(ends) == len(plan.lengths)
        if same:
            found = ends[documents] - np.where(documents > 0, ends[documents - 1], 0)
            same = np.array_equal(found, plan.lengths[documents])
        if not same:
            raise StageError(
                f"the plan is one of {len(plan.lengths):,} entries, here are {len(ends):,}, or some are of another "
                "length: plan the entries that you fill from"
            )


def _bin_of(capacity: int) -> Longs:
    """Return the bin of every length up to ``capacity``: int64 [capacity + 1]."""
    edges = capacity * (np.arange(1, BINS) / BINS) ** EXPONENT
    return np.searchsorted(edges, np.arange(capacity + 1), side="right").astype(np.int64)
