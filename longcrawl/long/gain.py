"""Information gain of a long context over a short one, token by token, by any causal language model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.display import BINS, bin_positions, plot_positions
from longcrawl.core.stages import stage
from longcrawl.errors import StageError
from longcrawl.text.models import ModelScore, token_losses

Floats = npt.NDArray[np.float64]
DECIMALS = 6


@dataclass(frozen=True, eq=False)
class TokenGains:
    """Losses of the tokens of a document that have more context in long windows than in short ones.

    Attributes:
        start: the position of the first of them.
        long: float64 [tokens], nats, with the long context.
        short: float64 [tokens], nats, with the short one.
    """

    start: int
    long: Floats
    short: Floats

    @property
    def gain(self) -> Floats:
        """LongFilter's gain of each token: p(token | long) * log(p(token | long) / p(token | short))."""
        return np.exp(-self.long) * (self.short - self.long)


@dataclass(frozen=True, eq=False)
class PositionGain:
    """The mean gain at each position of documents.

    Attributes:
        gain: float64 [positions]; NaN where no document has a token with a longer context.
        tokens: int64 [positions], how many documents have one.
    """

    gain: Floats
    tokens: npt.NDArray[np.int64]

    def binned(self, bins: int = BINS) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return borders of groups of positions, and the mean gain of each: int64 [groups + 1], float64 [groups]."""
        return bin_positions(self.gain, self.tokens, bins)

    def plot(self, axes: Any = None, bins: int = BINS, **line: Any) -> Any:
        """Draw it as :meth:`longcrawl.loading.evaluate.PositionLoss.plot` draws a loss.

        Raises:
            StageError: matplotlib is not installed.
        """
        return plot_positions(axes, *self.binned(bins), "information gain", **line)


class _Window(NamedTuple):
    start: int
    stop: int
    first: int
    """The first token whose loss counts."""


def windows(tokens: int, size: int) -> Iterator[_Window]:
    """Yield windows of a document, each half a window after the one before: from the second on, new tokens count.

    >>> [tuple(window) for window in windows(10, 4)]
    [(0, 4, 1), (2, 6, 4), (4, 8, 6), (6, 10, 8)]
    """
    step, start, counted = max(1, size // 2), 0, 1
    while counted < tokens:
        stop = min(start + size, tokens)
        yield _Window(start, stop, counted)
        start, counted = start + step, stop


@stage
class InformationGain(ModelScore):
    """How much better a model predicts a document's tokens from a long context than from a short one (LongFilter).

    The column ``information_gain`` has, null for documents of ``short_context`` tokens and fewer:

    * ``score``: mean over tokens of exp(-L_long) * (L_short - L_long), L being the loss of a token in nats: the term of
      the Kullback-Leibler divergence between the predictions that belongs to the token that is there. The mean is over
      the tokens that have a longer context in long windows, all but the first ``short_context``; the paper divides by
      all tokens of samples of one length, which ranks those alike;
    * ``nats``: mean over the same tokens of L_short - L_long;
    * ``tokens``: how many they are.

    From the paper (Deng et al., arXiv 2510.25804): the formula, and contexts of 4,096 and 65,536 tokens. It was read in
    others' notes: whether its windows move by half, as these do, could not be verified. Left out: training on what was
    chosen, and samples of one length.

    Windows move by half of their length: a token sees between half a window and all of it, and all that came before in
    the first. The long window is ``long_context``, or what the model takes if that is less. A token goes through the
    model 3 times, in documents of many long windows 4 times. The first short window begins as the first long one does:
    its losses are those, and are not computed. Keys and values of later short windows cannot be those of the long pass,
    which have seen what is to be hidden; only first layers, before positions, are equal. No special tokens are added:
    models that were always trained with one in front predict worse without.

    Each row is computed by itself, and scores are rounded to six decimals: they do not depend on other documents, their
    order, threads or processes.

    >>> stage = lc.long.InformationGain("gpt2", long_context=1_024, short_context=128)  # doctest: +SKIP
    >>> stage.measures([text])[0].as_py()  # doctest: +SKIP
    {'score': 0.031842, 'nats': 0.102211, 'tokens': 15872}

    Args:
        long_context: tokens of a long window.
        short_context: tokens of a short window, 2 or more.
    """

    long_context: int = 65_536
    short_context: int = 4_096
    adds: ClassVar[str] = "information_gain"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.short_context < self.long_context:
            raise StageError(
                f"{self.name}.short_context is {self.short_context}: take 2 or more, and fewer than long_context, "
                f"{self.long_context}"
            )

    def prepare(self) -> None:
        """Load the model, and compare what it takes."""
        self._long()

    def measures(self, texts: Sequence[str]) -> pa.StructArray:
        """Return the measures of texts."""
        found = self.gains(texts)
        kept = [each for each in found if each is not None]
        scores = np.round([float(each.gain.mean()) for each in kept], DECIMALS)
        nats = np.round([float((each.short - each.long).mean()) for each in kept], DECIMALS)
        rows: list[dict[str, Any] | None] = [None] * len(found)
        places = [number for number, each in enumerate(found) if each is not None]
        for place, score, more, each in zip(places, scores.tolist(), nats.tolist(), kept, strict=True):
            rows[place] = {"score": score, "nats": more, "tokens": len(each.long)}
        return pa.array(rows, pa.struct([("score", pa.float64()), ("nats", pa.float64()), ("tokens", pa.int64())]))

    def gains(self, texts: Sequence[str]) -> list[TokenGains | None]:
        """Return the losses of each text's tokens with both contexts, None where it is too short.

        Raises:
            StageError: the model takes no longer rows than ``short_context``.
        """
        short = self.short_context
        sizes, model = (self._long(), short), self.pretrained()
        documents = model.token_ids(texts)
        found = [np.full((2, len(ids)), np.nan) if len(ids) > short else None for ids in documents]
        asked = [
            (ids, losses[number], window)
            for ids, losses in zip(documents, found, strict=True)
            if losses is not None
            for number, size in enumerate(sizes)
            for window in windows(len(ids), size)
            if window.start or size != short
        ]
        answers = model.each([ids[window.start : window.stop] for ids, _, window in asked], token_losses)
        for (_, losses, window), answer in zip(asked, answers, strict=True):
            losses[window.first : window.stop] = answer[window.first - window.start - 1 :]
        return [None if losses is None else TokenGains(short, *losses[:, short:]) for losses in found]

    def by_position(self, texts: Sequence[str]) -> PositionGain:
        """Return the mean gain at each position of texts: where a far context pays."""
        found = [each for each in self.gains(texts) if each is not None]
        length = max((each.start + len(each.long) for each in found), default=0)
        total, tokens = np.zeros(length), np.zeros(length, np.int64)
        for each in found:
            total[each.start : each.start + len(each.long)] += each.gain
            tokens[each.start : each.start + len(each.long)] += 1
        with np.errstate(invalid="ignore"):
            return PositionGain(total / tokens, tokens)

    def _long(self) -> int:
        """Return the length of a long window."""
        most = min(self.long_context, self.pretrained().longest)
        if most <= self.short_context:
            raise StageError(
                f"{self.name}.short_context is {self.short_context:,}, {self.model} takes {most:,} tokens: take fewer"
            )
        return most
