"""Long-range dependency measured with a causal language model: by losses of segments or by attention between spans."""

import hashlib
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.stages import stage
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.long.positions import BINS, bin_positions, plot_positions
from longcrawl.text.models import ModelScore, Pretrained, load_model, token_losses

Floats = npt.NDArray[np.float64]
DECIMALS = 6


@dataclass(frozen=True, eq=False)
class TokenGains:
    """Losses of those tokens of a document that have more context in long windows than in short ones.

    Attributes:
        start: position of the first of these tokens.
        long: float64 [tokens], nats, with the long context.
        short: float64 [tokens], nats, with the short context.
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
    """Mean gain at each position of documents.

    Attributes:
        gain: float64 [positions]; NaN if no document has a token with a longer context there.
        tokens: int64 [positions], number of documents that have one.
    """

    gain: Floats
    tokens: npt.NDArray[np.int64]

    def binned(self, bins: int = BINS) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return bounds of groups of positions, and the mean gain of each: int64 [groups + 1], float64 [groups]."""
        return bin_positions(self.gain, self.tokens, bins)

    def plot(self, axes: Any = None, bins: int = BINS, **line: Any) -> Any:
        """Plot the gain as :meth:`longcrawl.loading.evaluate.PositionLoss.plot` plots a loss."""
        return plot_positions(axes, *self.binned(bins), "information gain", **line)


def windows(tokens: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield windows of a document, each half a window after the previous one: start, stop, first token that counts.

    >>> list(windows(10, 4))
    [(0, 4, 1), (2, 6, 4), (4, 8, 6), (6, 10, 8)]
    """
    start, counted = 0, 1
    while counted < tokens:
        stop = min(start + size, tokens)
        yield start, stop, counted
        start, counted = start + max(1, size // 2), stop


@stage
class InformationGain(ModelScore):
    """Measure how much better a model predicts tokens from a long context than from a short one (LongFilter).

    The column ``information_gain`` is null for documents of at most ``short_context`` tokens and otherwise has:

    * ``score``: mean over tokens of exp(-L_long) * (L_short - L_long), with L the loss of a token in nats: the actual
      token's term of the Kullback-Leibler divergence between the predictions. The mean is over all tokens but the first
      ``short_context``; the paper divides by all tokens of samples of one length, which ranks those alike;
    * ``nats``: mean over the same tokens of L_short - L_long;
    * ``tokens``: number of these tokens.

    The formula and the contexts of 4,096 and 65,536 tokens are those of the paper (Deng et al., arXiv 2510.25804), as
    reported by others. Whether its windows also move by half is unknown. Not implemented: samples of one length.

    Windows move by half of their length: a token sees between half a window and a whole one, and in the first window
    everything before it. The long window is ``long_context``, or the model's maximum if that is less. A token passes
    through the model 3 times, in documents of many long windows 4 times. No special tokens are added: models that were
    always trained with one in front predict worse without.

    Scores are rounded to six decimals, so they do not depend on other documents, their order, threads or processes.

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
                f"{self.name}.short_context is {self.short_context}: set it to 2 or more, and below long_context, "
                f"{self.long_context}"
            )

    def prepare(self) -> None:
        """Load the model, and check that it takes more than ``short_context`` tokens."""
        self._long()

    def measures(self, texts: Sequence[str]) -> pa.StructArray:
        """Return the measures of texts."""
        rows = [
            None
            if found is None
            else {
                "score": float(np.round(found.gain.mean(), DECIMALS)),
                "nats": float(np.round((found.short - found.long).mean(), DECIMALS)),
                "tokens": len(found.long),
            }
            for found in self.gains(texts)
        ]
        return pa.array(rows, pa.struct([("score", pa.float64()), ("nats", pa.float64()), ("tokens", pa.int64())]))

    def gains(self, texts: Sequence[str]) -> list[TokenGains | None]:
        """Return the losses of each text's tokens with both contexts, or None if the text is too short."""
        short = self.short_context
        sizes, model = (self._long(), short), self.pretrained()
        documents = model.token_ids(texts)
        found = [np.full((2, len(ids)), np.nan) if len(ids) > short else None for ids in documents]
        asked = [
            (ids[start:stop], losses[number, first:stop])
            for ids, losses in zip(documents, found, strict=True)
            if losses is not None
            for number, size in enumerate(sizes)
            for start, stop, first in windows(len(ids), size)
            if start or size != short
        ]
        answers = model.each([ids for ids, _ in asked], token_losses)
        for (_, losses), answer in zip(asked, answers, strict=True):
            losses[:] = answer[-len(losses) :]
        return [None if losses is None else TokenGains(short, *losses[:, short:]) for losses in found]

    def by_position(self, texts: Sequence[str]) -> PositionGain:
        """Return the mean gain at each position of texts, which shows where distant context helps."""
        found = [each for each in self.gains(texts) if each is not None]
        length = max((each.start + len(each.long) for each in found), default=0)
        total, tokens = np.zeros(length), np.zeros(length, np.int64)
        for each in found:
            total[each.start : each.start + len(each.long)] += each.gain
            tokens[each.start : each.start + len(each.long)] += 1
        with np.errstate(invalid="ignore"):
            return PositionGain(total / tokens, tokens)

    def _long(self) -> int:
        most = min(self.long_context, self.pretrained().longest)
        if most <= self.short_context:
            raise StageError(
                f"{self.name}.short_context is {self.short_context:,}, but {self.model} takes at most {most:,} tokens: "
                "set it below that"
            )
        return most


Ids = npt.NDArray[np.int64]
Pair = tuple[int, int]
SPANS = "longcrawl_spans"  # name under which :func:`_attend` is registered with transformers
_asked = threading.local()


@stage
class DependencyScore(ModelScore):
    """Measure how much later segments of a document gain from earlier ones, by distance and specificity (ProLong).

    A document is split into segments c of ``segment`` tokens; a shorter rest is ignored. PPL is the perplexity of all
    tokens of a segment but the first, alone or after another segment. For pairs i > j:

    * strength: DST = (PPL(c_i) - PPL(c_i | c_j)) / PPL(c_i);
    * distance: DDI = (i - j) / (N - 1), with N = ``window // segment``;
    * specificity: DSP_i = (log n - H) / log n, with H the entropy of the softmax of PPL(c_i) - PPL(c_i | c_j) over the
      n pairs of c_i; 1 if there is one pair;
    * ``score``: the sum of (DST + DDI) * DSP_i over pairs with DST above ``least_strength``.

    The column ``dependency_score`` has ``score``, ``strength``, the mean DST of all pairs, and ``pairs``, their number;
    it is null for documents of fewer than two segments. The score is a sum, as in the paper: compare documents with
    equally many pairs. In documents of more than N segments, a random N of them are measured, in their order.

    Formulas and defaults are those of the program of the paper's authors (Chen et al., arXiv 2405.17915), with a model
    such as opt-350m. Two things differ: pairs are drawn by keyed hashes of seed and tokens, not by one generator for
    all documents; and documents with fewer pairs use all of them, where the program gives 0. Not implemented: weights
    of the terms, which are 1 there.

    With the defaults, a token of 32,768 passes through the model up to 8.8 times.

    >>> lc.long.DependencyScore("facebook/opt-350m").measures([text])[0].as_py()  # doctest: +SKIP
    {'score': 31.207418, 'strength': 0.041193, 'pairs': 500}

    Args:
        segment: tokens of a segment, 2 or more; the model must take twice as many.
        window: greatest number of tokens measured in a document.
        pairs: greatest number of pairs of segments that are measured.
        least_strength: pairs must have more than this strength to count in the score.
        seed: seed of the choice of segments and pairs.
    """

    segment: int = 512
    window: int = 32_768
    pairs: int = 500
    least_strength: float = 0.1
    seed: int = 11
    adds: ClassVar[str] = "dependency_score"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segment < 2 or self.window < 2 * self.segment or self.pairs < 1:
            raise StageError(f"{self.name} needs at least segments of 2 tokens, a window of two segments and one pair")

    def pretrained(self) -> Pretrained:
        """Load the model; raise a StageError if it does not take two segments."""
        model = super().pretrained()
        if model.longest < 2 * self.segment:
            raise StageError(
                f"{self.name}.segment is {self.segment}, but {self.model} takes at most {model.longest:,} tokens: "
                "set it to at most half of that"
            )
        return model

    def measures(self, texts: Sequence[str]) -> pa.StructArray:
        """Return the measures of texts."""
        model = self.pretrained()
        drawn = [self._draw(ids) for ids in model.token_ids(texts)]
        asked = [
            (number, one, others)
            for number, (_, pairs) in enumerate(drawn)
            for one in sorted({each for pair in pairs for each in pair})
            for others in [[later for later, earlier in pairs if earlier == one]]
        ]
        rows = [np.stack([drawn[number][0][each] for each in (one, *others)]) for number, one, others in asked]
        alone: list[dict[int, float]] = [{} for _ in drawn]
        behind: list[dict[Pair, float]] = [{} for _ in drawn]
        for (number, one, others), losses in zip(asked, model.each(rows, _segment_losses), strict=True):
            alone[number][one], *more = np.exp(losses).tolist()
            behind[number].update({(later, one): found for later, found in zip(others, more, strict=True)})
        measured = [
            self._score(alone[number], [(*pair, behind[number][pair]) for pair in pairs]) if pairs else None
            for number, (_, pairs) in enumerate(drawn)
        ]
        return pa.array(
            measured, pa.struct([("score", pa.float64()), ("strength", pa.float64()), ("pairs", pa.int64())])
        )

    def _draw(self, ids: Ids) -> tuple[Ids, list[Pair]]:
        """Return segments, [segments, tokens], and the sorted pairs of them to measure."""
        count = len(ids) // self.segment
        segments = ids[: count * self.segment].reshape(count, self.segment)
        purpose = f"{self.name} {hashlib.sha256(ids.tobytes()).hexdigest()}"
        segments = segments[self._chosen([str(each) for each in range(count)], self.window // self.segment, purpose)]
        pairs = [(later, earlier) for later in range(len(segments)) for earlier in range(later)]
        return segments, [pairs[each] for each in self._chosen([f"{i} {j}" for i, j in pairs], self.pairs, purpose)]

    def _chosen(self, names: Sequence[str], most: int, purpose: str) -> list[int]:
        if len(names) <= most:
            return list(range(len(names)))
        found: list[int] = np.sort(np.argsort(keyed_hash(names, purpose, self.seed), kind="stable")[:most]).tolist()
        return found

    def _score(self, alone: dict[int, float], behind: Sequence[tuple[int, int, float]]) -> dict[str, Any]:
        score, strengths, last = 0.0, [], self.window // self.segment - 1
        for later in sorted({pair[0] for pair in behind}):
            pairs = [(earlier, alone[later] - found) for each, earlier, found in behind if each == later]
            specific = _specificity(np.array([gained for _, gained in pairs]))
            for earlier, gained in pairs:
                strengths.append(gained / alone[later])
                if strengths[-1] > self.least_strength:
                    score += (strengths[-1] + (later - earlier) / last) * specific
        mean = math.fsum(strengths) / len(strengths)
        return {"score": round(score, DECIMALS), "strength": round(mean, DECIMALS), "pairs": len(strengths)}


def _specificity(gained: Floats) -> float:
    """Return 1 if one of several segments explains all of the gain, 0 if all explain equally much."""
    if len(gained) == 1:
        return 1.0
    chances = np.exp(gained - gained.max())
    chances = chances[chances > 0] / chances.sum()
    entropy = -float((chances * np.log(chances)).sum())
    return min(1.0, max(0.0, 1 - entropy / math.log(len(gained))))


def _segment_losses(module: Any, ids: Any) -> Any:
    """Return the mean loss of a segment alone, and of others after it: [1, parts] of [1, parts, tokens]."""
    import torch

    first, *others = ids[0]
    answer = module(first[None], use_cache=bool(others))
    kept: Any = getattr(answer, "past_key_values", None)
    found = [_mean_loss(answer, first)]
    if others and not hasattr(kept, "crop"):
        raise StageError(
            f"{type(module).__name__} does not keep keys and values of tokens: choose a model with attention"
        )
    for each in others:
        found.append(_mean_loss(module(each[None], past_key_values=kept, use_cache=True), each))
        try:
            kept.crop(-len(each))
        except RuntimeError as passed:
            raise StageError(
                f"{type(module).__name__} has a sliding window that two segments of {len(each):,} tokens fill: "
                "set a shorter segment, or choose a model without a sliding window"
            ) from passed
    return torch.stack(found)[None]


def _mean_loss(answer: Any, ids: Any) -> Any:
    import torch

    losses = torch.nn.functional.cross_entropy(answer.logits[0, :-1].float(), ids[1:], reduction="none")
    return losses.double().mean()


@stage
class AttentionDependency(ModelScore):
    """Measure how much attention later spans of a document pay to distant earlier ones, and how unequally (LADM).

    A document is split into windows of N spans of ``span`` tokens. PFS(i, j) is the attention that the tokens of span j
    pay to those of span i, summed over tokens and averaged over all heads of a layer. Spans i run down from j -
    ``near`` - 1 to ``initial`` by ``stride``, spans j down from N - 1 to ``first`` by ``stride``:

    * AFS(j) = s_j * sum over i of (j - i) / N * PFS(i, j), with s_j the sample standard deviation of these PFS(i, j); 0
      for a single one;
    * ``score``: CDS = sum over j of j / N * AFS(j), averaged over all layers and all whole windows of the document.

    The column ``attention_dependency`` has ``score`` and ``windows``; it is null if there is no span j. A window has
    ``window`` tokens, or the model's maximum if that is less. A document without a whole window is measured as one with
    fewer spans; otherwise, the rest after the whole windows is ignored.

    Formulas and defaults are those of the paper (Chen et al., arXiv 2503.02502), which uses a TinyLlama of 1.1B trained
    on samples of 32,768 tokens. Means over heads and layers, and counting from the end, follow its authors' program.
    The program differs from this stage in three points: it includes i = j - 4, which the paper leaves out, computes the
    softmax without the tokens of span j itself, and averages over j instead of summing. Not implemented: truncating
    documents to one window.

    A token passes through the model once. Models whose attention transformers cannot replace are not supported.

    >>> lc.long.AttentionDependency("UltraRonin/Long-Attn-Calculator").measures([text])[0].as_py()  # doctest: +SKIP
    {'score': 14.150281, 'windows': 1}

    Args:
        span: tokens of a span.
        window: tokens of a window.
        initial: spans at the beginning that are ignored, as all others attend to them.
        near: spans before j that are ignored.
        stride: step between spans i and between spans j.
        first: the first span j.
    """

    span: int = 128
    window: int = 32_768
    initial: int = 1
    near: int = 4
    stride: int = 4
    first: int = 16
    adds: ClassVar[str] = "attention_dependency"
    attention: ClassVar[str] = SPANS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(span=1, stride=1, near=0)
        if self.initial < 0 or self.first <= self.initial + self.near:
            raise StageError(
                f"{self.name}.first is {self.first}: set it above initial and near together, {self.initial + self.near}"
            )

    def pretrained(self) -> Pretrained:
        """Load the model, with an attention function that records the weights between spans."""
        _register()
        model = load_model(self.model, "causal", self.device, self.dtype, self.attention)
        if self._spans(model) <= self.first:
            raise StageError(
                f"{self.name} measures from span {self.first} on, but its windows have only {self._spans(model)} "
                f"spans of {self.span} tokens: lower span or first"
            )
        return model

    def measures(self, texts: Sequence[str]) -> pa.StructArray:
        """Return the measures of texts."""
        model = self.pretrained()
        size = self._spans(model) * self.span
        cut = [self._windows(ids, size) for ids in model.token_ids(texts)]
        answers = iter(model.each([row for rows in cut for row in rows], self._ask))
        measured: list[dict[str, Any] | None] = []
        for rows in cut:
            found = [self._score(next(answers)) for _ in rows]
            score = round(math.fsum(found) / len(found), DECIMALS) if found else None
            measured.append({"score": score, "windows": len(found)} if found else None)
        return pa.array(measured, pa.struct([("score", pa.float64()), ("windows", pa.int64())]))

    def _spans(self, model: Pretrained) -> int:
        return min(self.window, model.longest) // self.span

    def _windows(self, ids: Ids, size: int) -> list[Ids]:
        whole = [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
        rest = ids[: len(ids) // self.span * self.span]
        return whole or ([rest] if len(rest) > self.first * self.span else [])

    def _later(self, count: int) -> list[int]:
        return list(range(count - 1, self.first - 1, -self.stride))

    def _ask(self, module: Any, ids: Any) -> Any:
        """Return PFS(i, j), [1, layers, spans j, spans i]."""
        import torch

        _asked.spans, _asked.later, _asked.found = self.span, self._later(ids.shape[1] // self.span), []
        module.base_model(ids, use_cache=False)
        found, _asked.found = _asked.found, []
        if not found:
            raise StageError(f"{self.name} gets no attention from {type(module).__name__}: choose another model")
        return torch.stack(found, 1)

    def _score(self, layers: Floats) -> float:
        count, later = layers.shape[2], self._later(layers.shape[2])
        score = 0.0
        for place, j in enumerate(later):
            earlier = np.arange(j - self.near - 1, self.initial - 1, -self.stride)
            paid = layers[:, place, earlier]
            spread = paid.std(1, ddof=1) if len(earlier) > 1 else np.zeros(len(layers))
            score += j / count * float((spread * (paid * (j - earlier)).sum(1) / count).mean())
        return score


def _attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any) -> tuple[Any, None]:
    """Compute torch's attention, and record the attention between spans, [rows, spans j, spans i], for this thread."""
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if special := [name for name in ("softcap", "s_aux") if settings.get(name) is not None]:
        kind = type(module).__name__
        raise StageError(f"{kind} changes its attention by {special[0]}, which is not supported: choose another model")
    size, heads = _asked.spans, query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(heads, 1) if heads > 1 else key
    scale = settings.get("scaling") or query.shape[-1] ** -0.5
    count, paid = query.shape[2] // size, []
    for j in _asked.later:
        start, stop = j * size, (j + 1) * size
        seen = (query[:, :, start:stop] @ keys[:, :, :stop].transpose(2, 3)).float() * scale
        if attention_mask is None:
            hidden = torch.ones(size, size, dtype=torch.bool, device=seen.device).triu(1)
            seen[..., start:stop].masked_fill_(hidden, -torch.inf)
        else:
            shown = attention_mask[:, :, start:stop, :stop]
            seen = seen.masked_fill(~shown, -torch.inf) if shown.dtype == torch.bool else seen + shown
        found = seen.softmax(-1).sum(2).mean(1).unflatten(1, (j + 1, size)).sum(2)
        paid.append(torch.nn.functional.pad(found, (0, count - j - 1)))
    _asked.found.append(torch.stack(paid, 1))
    return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, **settings)[0], None


@cache
def _register() -> None:
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    except ImportError:  # torch is missing; load_model() raises an error for that
        return
    AttentionInterface.register(SPANS, _attend)
    AttentionMaskInterface.register(SPANS, sdpa_mask)
