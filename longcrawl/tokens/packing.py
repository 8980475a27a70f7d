"""Packing: several documents in one sequence of ``max_length`` tokens, planned from their lengths alone.

Source: GPT-Simple's data pipeline, "Sequence packing".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from longcrawl.core.registry import check_fields
from longcrawl.errors import LoaderError, StageError
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import count_up_to
from longcrawl.kernels.texts import read_only
from longcrawl.tokens.plan import Longs, PackingPlan, Plan, check_capacities
from longcrawl.tokens.strategies import BestFit, BinnedGreedy, FirstFit, Padded, cut_long

Ints = npt.NDArray[Any]
IGNORED = -100  # label of a token that is excluded from the loss
BLOCK = 64


@allocating
def lay_out(
    bounds: Longs,
    sizes: Longs,
    joined: npt.NDArray[np.bool_],
    samples: Longs,
    rows: Longs,
    counts: Longs,
    filled: Longs,
) -> tuple[Longs, npt.NDArray[np.int64]]:
    """List where the pieces of some samples of a plan go, sample by sample.

    ``rows`` is the row of a batch for each sample; ``counts`` and ``filled``, int64 [rows], get its texts and tokens.
    Returns the number of each piece in the plan, and int64 [7, pieces] for :func:`fill_pieces`, without first tokens.
    """
    total = 0
    for sample in samples:
        total += bounds[sample + 1] - bounds[sample]
    numbers, pieces, at = np.empty(total, np.int64), np.empty((7, total), np.int64), 0
    for wanted in range(len(samples)):
        row, place, begin, text = rows[wanted], 0, 0, -1
        for piece in range(bounds[samples[wanted]], bounds[samples[wanted] + 1]):
            begins = len(joined) == 0 or not joined[piece]
            if begins:
                begin, text = place, text + 1
            numbers[at] = piece
            pieces[1, at], pieces[2, at], pieces[3, at] = sizes[piece], begins, row
            pieces[4, at], pieces[5, at], pieces[6, at] = place, text, place - begin
            place += sizes[piece]
            at += 1
        counts[row], filled[row] = text + 1, place
    return numbers, pieces


@forced_inline
def mask_labels(flags: npt.NDArray[np.bool_], labels: npt.NDArray[np.int64]) -> None:
    """Mask the labels without a flag."""
    for at in range(len(labels)):
        if not flags[at]:
            labels[at] = IGNORED


@forced_inline
def mask_after(end: int, ids: npt.NDArray[np.int64], after: bool, labels: npt.NDArray[np.int64]) -> None:  # noqa: FBT001  # kernels take arguments by position
    """Mask each label after an ``end``; ``after`` is whether the first label is one."""
    for at in range(len(labels)):
        if after:
            labels[at] = IGNORED
        after = ids[at] == end


def fill_pieces(
    tokens: npt.NDArray[np.uint32],
    flags: npt.NDArray[np.bool_],
    base: int,
    pieces: npt.NDArray[np.int64],
    reset: int,
    end: int,
    out: npt.NDArray[np.int64],
) -> None:
    """Copy the tokens of pieces into samples, and write their labels, positions and document numbers.

    Args:
        tokens: uint16 or uint32, of one shard; a piece that begins in another shard is skipped.
        flags: as long as ``tokens``, False for tokens excluded from the loss; or empty for none.
        base: number of the first of ``tokens``.
        pieces: int64 [7, pieces], in the order of each sample: first token, number of tokens, number of first tokens
            excluded from the loss, sample, position in it, number of the text in it, and position in that text.
        reset: 1 if positions restart with each text and in the padding, 0 if they continue and are 0 there.
        end: id after which a label is masked, or -1.
        out: int64 [4, samples, capacity], written: ids, labels, positions, documents.
    """
    _fill_pieces(read_only(tokens), read_only(flags), base, pieces, reset, end, out)


@compiled
def _fill_pieces(
    tokens: Any, flags: npt.NDArray[np.bool_], base: int, pieces: Longs, reset: int, end: int, out: Longs
) -> None:
    for piece in range(pieces.shape[1]):
        start, size, sample, place = pieces[0, piece] - base, pieces[1, piece], pieces[3, piece], pieces[4, piece]
        if start < 0 or start >= len(tokens):
            continue
        stop, number, shift = place + size, pieces[5, piece], pieces[6, piece] if reset else place
        stored, ids, labels = tokens[start : start + size], out[0, sample, place:stop], out[1, sample, place:stop]
        positions, numbers = out[2, sample, place:stop], out[3, sample, place:stop]
        # Separate loops over each array from index 0 on compile to vector instructions. Slice assignments and a single
        # loop over all arrays do not.
        for at in range(len(stored)):
            ids[at] = stored[at]
        for at in range(len(stored)):
            labels[at] = stored[at]
        for at in range(len(positions)):
            positions[at] = at + shift
        for at in range(len(numbers)):
            numbers[at] = number
        for at in range(pieces[2, piece]):
            labels[at] = IGNORED
        if len(flags):
            mask_labels(flags[start : start + size], labels)
        if end >= 0:
            mask_after(end, ids, place > 0 and out[0, sample, place - 1] == end, labels)


@allocating
def fill_padding(filled: Longs, counts: Longs, padding: int, reset: int, out: Longs) -> tuple[Longs, Longs]:
    """Pad samples after their pieces, see :func:`fill_pieces`; return bounds of texts, and lengths of paddings."""
    borders = np.zeros(len(filled) + 1, np.int64)
    for sample in range(len(filled)):
        row = out[:, sample, filled[sample] :]
        row[0], row[1], row[3] = padding, IGNORED, counts[sample]
        positions = row[2]
        for place in range(len(positions)):
            positions[place] = place if reset else 0
        borders[sample + 1] = borders[sample] + counts[sample] + (len(positions) > 0)
    lengths = np.zeros(borders[-1], np.int64)
    for sample in range(len(filled)):
        if filled[sample] < out.shape[2]:
            lengths[borders[sample + 1] - 1] = out.shape[2] - filled[sample]
    return borders, lengths


@compiled
def write_lengths(pieces: Longs, borders: Longs, lengths: Longs) -> None:
    """Add the lengths of pieces, in the form for :func:`fill_pieces`, to those of their texts."""
    for piece in range(pieces.shape[1]):
        lengths[borders[pieces[3, piece]] + pieces[5, piece]] += pieces[1, piece]


@compiled
def copy_windows(tokens: Ints, starts: Ints, pad: int, out: Ints) -> None:
    """Copy the tokens from each start on into a row of ``out``, with ``pad`` after the last token."""
    for row in range(len(starts)):
        stored, window = tokens[starts[row] : starts[row] + out.shape[1]], out[row]
        # Indices from 0 on need no test for negative ones, so such loops compile to vector instructions.
        for column in range(len(stored)):
            window[column] = stored[column]
        window[len(stored) :] = pad


@compiled
def locate(numbers: Ints, firsts: Ints, length: int, slots: Ints, starts: Ints, borders: Ints) -> int:
    """Find the file of each window, and its first token in it; return the number of ``borders`` between files."""
    found = 0
    for row in range(len(numbers)):
        number = numbers[row]
        if row == 0 or not firsts[slots[row - 1]] <= number < firsts[slots[row - 1] + 1]:
            slots[row] = count_up_to(firsts, number) - 1
            borders[found] = row
            found += 1
        else:
            slots[row] = slots[row - 1]
        starts[row] = (number - firsts[slots[row]]) * length
    borders[found] = len(numbers)
    return found + 1


@forced_inline
def count_up(out: Ints) -> None:
    """Write 0, 1, 2, … ."""
    for position in range(len(out)):
        out[position] = position


@compiled
def positions_from_ends(ends: Ints, starts: Ints, out: Ints) -> None:
    """Number the tokens of each window from 0, and again after every document end within it, or several equal ones."""
    length = out.shape[1]
    for row in range(len(starts)):
        start, first = starts[row], 0
        end = count_up_to(ends, start)
        while first < length:
            stop = length
            if end < len(ends) and ends[end] - start < length:
                stop = ends[end] - start
            count_up(out[row, first:stop])
            first = stop
            end += 1


@compiled
def positions_from_end_of_text(windows: Ints, end_of_text: int, starts: Ints, tokens: int, out: Ints) -> None:
    """Number the tokens of each window from 0, again after each ``end_of_text`` and in the padding at the end."""
    for row in range(len(windows)):
        first, length = 0, min(tokens - starts[row], windows.shape[1])
        for start in range(0, length, BLOCK):
            block = windows[row, start : min(start + BLOCK, length)]
            # Counting has no branch, so most of a window is checked many tokens at a time.
            found = 0
            for place in range(len(block)):
                found += block[place] == end_of_text
            for place in range(len(block) if found else 0):
                if block[place] == end_of_text:
                    stop = start + place + 1
                    count_up(out[row, first:stop])
                    first = stop
        count_up(out[row, first:length])
        count_up(out[row, length:])


class TokenEntries(Protocol):
    """Interface of entries to pack, concatenated; :class:`longcrawl.formats.TokenShard` implements it."""

    @property
    def tokens(self) -> npt.NDArray[Any]:
        """Tokens of all entries, uint16 or uint32."""

    @property
    def ends(self) -> Longs:
        """End of each entry: int64 [entries], exclusive."""

    @property
    def overlaps(self) -> npt.NDArray[Any] | None:
        """Tokens that each entry shares with the one before, excluded from the loss, or None."""

    @property
    def loss_mask(self) -> npt.NDArray[np.bool_] | None:
        """Mask of all tokens, False for those excluded from the loss, or None."""


@dataclass(frozen=True)
class Packing:
    """Settings for packing entries into training sequences: grouping, positions, and tokens that count in the loss.

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
        positions: "continuous" over a sequence and 0 in the padding, or "reset" at each piece and at the padding.
        mask_first: first tokens to mask because another entry would predict them: those of "every-piece", those
            "after-end-of-text", or "none". A window that does not end its document has no end-of-text token.
        end_of_text: token id of the end of text, for "after-end-of-text".
        padding: token id of the padding, or None for ``end_of_text``, or 0 if that is not set.
        pool_size: entries packed at a time, for "length-binned" and "first-fit", or None for all.
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
            raise StageError("Packing.strategy 'best-fit' plans all entries together: remove pool_size")
        for name in ("end_of_text", "padding"):
            if (getattr(self, name) or 0) < 0:
                raise StageError(f"Packing.{name} must be a token id, 0 or more, got {getattr(self, name)}")

    def plan(self, lengths: Any, num_threads: int = 1) -> Plan:
        """Group entries into samples, given only their lengths; see :meth:`Strategy.plan`."""
        if self.strategy == "best-fit":
            return BestFit(self.max_length).plan(lengths, num_threads)
        kind = BinnedGreedy if self.strategy == "length-binned" else FirstFit
        return kind(self.max_length, pool_size=self.pool_size).plan(lengths, num_threads)

    def fill(self, entries: TokenEntries, plan: Plan, samples: Sequence[int] | slice | None = None) -> dict[str, Any]:
        """Copy the tokens of some samples of a plan, by default of all.

        Returns:
            int64 arrays [samples, max_length]: ``input_ids``; ``labels``, not shifted, and -100 for padding, overlaps,
            and tokens masked by a loss mask or ``mask_first``; ``position_ids``; and ``doc_ids``, which number the
            texts of a sample from 0 with the padding last. Collators also get ``n_tokens``, int64 [samples], without
            the padding, and ``seq_lengths``, for each sample the lengths of its texts and of any padding.

        Raises:
            StageError: the plan was made for other entries or another length.
        """
        chosen = np.arange(len(plan))[slice(None) if samples is None else samples]
        counts, filled = np.zeros((2, len(chosen)), np.int64)
        asked = chosen, np.arange(len(chosen))
        numbers, pieces = lay_out(plan.bounds, plan.sizes, plan.joined, *asked, counts, filled)
        documents = plan.documents[numbers]
        self._check(entries, plan, documents)
        pieces[0] = entries.ends[documents] - plan.lengths[documents] + plan.starts[numbers]
        pieces[2] *= int(self.mask_first == "every-piece")
        if entries.overlaps is not None:
            left = entries.overlaps[documents].astype(np.int64) - plan.starts[numbers]
            pieces[2] = np.clip(left, pieces[2], pieces[1])
        flags = np.zeros(0, bool) if entries.loss_mask is None else entries.loss_mask
        out = np.empty((4, len(chosen), self.max_length), np.int64)
        padding, reset = self.end_of_text or 0 if self.padding is None else self.padding, int(self.positions == "reset")
        end = -1 if self.end_of_text is None or self.mask_first != "after-end-of-text" else self.end_of_text
        fill_pieces(entries.tokens, flags, 0, pieces, reset, end, out)
        return padded_rows(out, [pieces], counts, filled, padding, reset)

    def _check(self, entries: TokenEntries, plan: Plan, documents: Longs) -> None:
        if (plan.capacities != self.max_length).any():
            raise StageError(
                f"the plan has sequences of lengths other than {self.max_length:,}: plan with this packing"
            )
        ends = np.asarray(entries.ends)
        same = len(ends) == len(plan.lengths)
        if same:
            found = ends[documents] - np.where(documents > 0, ends[documents - 1], 0)
            same = np.array_equal(found, plan.lengths[documents])
        if not same:
            raise StageError(
                f"the plan is for {len(plan.lengths):,} entries and got {len(ends):,}, or the lengths of some differ: "
                "plan the entries that you fill from"
            )


@runtime_checkable
class Packer(Protocol):
    """Interface of an object that plans samples of ``max_length`` tokens."""

    def plan(self, lengths: Longs, /) -> PackingPlan:
        """Plan documents with these lengths."""


Name = Literal["length-binned", "best-fit", "first-fit", "in-order", "separate"]
AnyPacking = Name | Packer | Callable[[Longs, int], PackingPlan]
"""A packing by name, a packer, or a function from lengths (int64 [documents]) and max_length to a plan."""


def check_packing(packing: Any, max_length: int, positions: str, pad_token: int | None) -> None:
    """Check that a packing is valid, and that its settings match those of the feed; LoaderError otherwise."""
    named = isinstance(packing, str)
    if not (packing in get_args(Name) if named else isinstance(packing, Packer) or callable(packing)):
        known = ", ".join(repr(name) for name in get_args(Name))
        raise LoaderError(
            f"Packed.packing takes one of {known}, an object with plan(lengths), or a function of lengths and "
            f"max_length; got {packing!r}"
        )
    wanted: dict[str, Any] = {"max_length": max_length, "context_length": max_length}
    if isinstance(packing, Packing):
        wanted |= {"positions": positions, "mask_first": "every-piece"}
        wanted |= {"padding": pad_token} if packing.padding is not None else {}
    differ = [
        f"{name} {getattr(packing, name)!r} where the feed has {value!r}"
        for name, value in wanted.items()
        if getattr(packing, name, value) != value
    ]
    if differ:
        raise LoaderError(
            f"the packing has {', '.join(differ)}: set both the same, or choose a strategy by name, such as "
            "packing='best-fit'"
        )


def plan_packing(lengths: Longs, max_length: int, packing: AnyPacking) -> PackingPlan:
    """Plan the samples of documents with these lengths, int64 [documents]; one of 0 tokens is in no sample.

    Documents longer than ``max_length`` are cut into pieces of ``max_length`` and a rest. "length-binned", "best-fit"
    and "first-fit" pad least; they are the strategies of :class:`Packing`. "in-order" keeps the order of the shards:
    each piece goes into the current sample if it fits, else into a new one, which pads a fifth of samples of short
    documents. "separate" makes a sample of each piece.

    >>> plan = plan_packing(np.array([3, 2, 4, 9]), 6, "in-order")
    >>> plan.bounds.tolist(), plan.documents.tolist(), plan.starts.tolist(), plan.sizes.tolist()
    ([0, 2, 3, 4, 5], [0, 1, 2, 3, 3], [0, 0, 0, 0, 6], [3, 2, 4, 6, 3])

    Raises:
        LoaderError: a packing has made samples that are too long or empty, or pieces that are not in a document.
    """
    if not isinstance(packing, str):
        plan = packing.plan(lengths) if isinstance(packing, Packer) else packing(lengths, max_length)
        _check(plan, lengths, max_length)
        return plan
    if packing != "separate" and packing != "in-order":  # noqa: PLR1714  # mypy narrows the type this way
        return Packing(max_length, packing).plan(lengths)
    if packing == "separate":
        return Padded(max_length, "fragment").plan(lengths)
    pieces = cut_long(lengths, max_length)
    bounds = _bounds_in_order(pieces[2], max_length)
    return Plan(lengths, np.full(len(bounds) - 1, max_length), bounds, *pieces)


def _bounds_in_order(sizes: Longs, max_length: int) -> Longs:
    ends = np.cumsum(sizes)
    following = np.searchsorted(ends, ends - sizes + max_length, "right").tolist()
    bounds, piece = [0], 0
    while piece < len(following):
        piece = following[piece]
        bounds.append(piece)
    return np.array(bounds, np.int64)


def _check(plan: PackingPlan, lengths: Longs, max_length: int) -> None:
    pieces = len(plan.sizes)
    wrong = ""
    if not len(plan.bounds) or plan.bounds[0] != 0 or plan.bounds[-1] != pieces or (np.diff(plan.bounds) < 1).any():
        wrong = f"bounds that do not rise from 0 to its {pieces:,} pieces"
    elif len(plan.documents) != pieces or len(plan.starts) != pieces:
        wrong = f"{len(plan.documents):,} documents and {len(plan.starts):,} starts for {pieces:,} pieces"
    elif pieces and not 0 <= plan.documents.min() <= plan.documents.max() < len(lengths):
        wrong = f"a piece of a document that is not one of {len(lengths):,}"
    elif (plan.sizes < 1).any() or (plan.starts < 0).any():
        wrong = "a piece without tokens, or before its document"
    elif (plan.starts + plan.sizes > lengths[plan.documents]).any():
        wrong = "a piece that ends after its document"
    elif pieces and np.add.reduceat(plan.sizes, plan.bounds[:-1]).max() > max_length:
        wrong = f"a sample of more than {max_length:,} tokens"
    if wrong:
        raise LoaderError(f"the packing returned {wrong}: correct it, or set packing='length-binned'")


def padded_rows(
    out: Longs, pieces: Iterable[Longs], counts: Longs, filled: Longs, padding: int, reset: int
) -> dict[str, Any]:
    """Pad the rows that pieces were copied into, and name their arrays as :meth:`Packing.fill` does."""
    borders, lengths = fill_padding(filled, counts, padding, reset, out)
    for each in pieces:
        write_lengths(each, borders, lengths)
    named = dict(zip(("input_ids", "labels", "position_ids", "doc_ids"), out, strict=True))
    rows = [lengths[start:stop] for start, stop in pairwise(borders.tolist())]
    return {**named, "n_tokens": filled, "seq_lengths": rows}
