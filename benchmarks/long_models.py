r"""Scores of long documents by models: what they cost, and what a small GPT's tell apart, beside words alone.

    python examples/train_small_gpt.py small-gpt --documents ../shared/data/long.jsonl.zst
    python benchmarks/long_models.py --model small-gpt --documents ../shared/data/short.jsonl.zst \
        ../shared/data/long.jsonl.zst --tokenizer ../shared/data/gpt2-tokenizer.json

Cost: CPU seconds, of all threads, per million tokens of one text, by a model of GPT-2's shape with random weights, 124
million parameters; and how long two rows take by one thread each, against both by two threads one after the other.

Apart: documents of the third that neither the model nor the statistics of words have seen, cut to so many characters,
against texts that are as long, see ``long_range.py``: joined pages that have nothing to do with each other; passages of
about 1,000 characters, drawn from all of the documents; the same documents with passages or words in another order. The
AUC of each score, and rank correlations (Spearman) of the scores of the documents as they are. The last line is the AUC
of the information gain against joined pages.
"""

import argparse
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from _needed import lacks, shared
from long_range import auc, first_of_families, is_in, joined, rows, turns

import longcrawl as lc

CONTEXT = 1_024
"""Tokens that GPT-2 takes."""
LONG, SHORT = 8_192, 1_024
"""Tokens of the contexts that the small GPT compares."""


def main() -> None:
    """Measure, and print."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [shared("short.jsonl.zst"), shared("long.jsonl.zst")]
    given.add_argument("--model", type=Path)
    given.add_argument("--documents", nargs=2, type=Path, default=usual, metavar=("SHORT", "LONG"))
    given.add_argument("--tokenizer", type=Path, help="of GPT-2; without it cost is not measured")
    given.add_argument("--most", type=int, default=24, help="documents of each kind")
    given.add_argument("--characters", type=int, default=48_000)
    given.add_argument("--only-gain", action="store_true", help="measure no other score")
    asked = given.parse_args()
    needed = "torch, --model, which examples/train_small_gpt.py trains, and --documents SHORT LONG"
    if lacks(needed, asked.model, *asked.documents, packages=["torch"]):
        return
    short, long = ([row for row in rows(path) if row["lang"] == "en"] for path in asked.documents)
    if asked.tokenizer:
        measure_cost(asked.tokenizer, long[0]["text"])
    found = tell_apart(asked.model, short, long, asked.most, asked.characters, only_gain=asked.only_gain)
    print(f"long_models ratio={found:.3f}")


def measure_cost(tokenizer: Path, text: str) -> None:
    """Print CPU seconds per million tokens of each score by a GPT-2 of 124 million parameters."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), eos_token="<|endoftext|>").save_pretrained(folder)  # noqa: S106  # no secret
        model = {"model": folder, "device": "cpu"}
        gain = lc.long.InformationGain(long_context=CONTEXT, short_context=128, **model)
        text = text[: len(text) // len(gain.pretrained().token_ids([text])[0]) * 2 * CONTEXT]
        tokens = len(gain.pretrained().token_ids([text])[0])
        print(f"{gain.pretrained().module.num_parameters():,} parameters, a text of {tokens:,} tokens")
        spent("information gain, 1,024 over 128 tokens", tokens, lambda: gain.measures([text]))
        pairs = lc.long.DependencyScore(segment=512, window=4 * 512, pairs=6, **model)
        taken = spent("dependency score, 6 pairs of 4 segments", tokens, lambda: pairs.measures([text]))
        passes = (64 + 500) / 64
        print(f"{'':9} with 500 pairs of 64 segments, {passes:.1f} passes for 2.5: {taken * passes / 2.5:,.0f}")
        spans = lc.long.AttentionDependency(span=32, **model)
        spent("attention dependency, spans of 32", tokens, lambda: spans.measures([text]))
        compare_threads(gain.pretrained())


def spent(name: str, tokens: int, compute: Callable[[], object]) -> float:
    """Print and return CPU seconds per million tokens."""
    before = time.process_time()
    compute()
    taken = (time.process_time() - before) / tokens * 1e6
    print(f"{'cost':9} {name:42} {taken:7,.0f} CPU seconds per million tokens")
    return taken


def compare_threads(model: Any) -> None:
    """Print how much faster two rows are by one thread each."""
    import torch

    from longcrawl.text.models import token_losses

    two = [np.random.default_rng(0).integers(0, 50_000, CONTEXT) for _ in range(2)]
    torch.set_num_threads(2)
    started = time.monotonic()
    model.each(two, token_losses)
    apart = time.monotonic() - started
    started = time.monotonic()
    with torch.inference_mode():
        for row in two:
            token_losses(model.module, torch.from_numpy(row)[None])
    print(f"{'threads':9} two rows by one thread each: {(time.monotonic() - started) / apart:.2f} times as fast")


def tell_apart(
    model: Path, short: list[dict[str, Any]], long: list[dict[str, Any]], most: int, size: int, *, only_gain: bool
) -> float:
    """Print the AUC of each score against each kind of text, and correlations; return that of the gain."""
    chance = random.Random("models")
    halves = [[row for row in first_of_families(long) if is_in(row, name)] for name in ("chosen on", "held out")]
    real = [row["text"][:size] for row in chance.sample(halves[1], min(most, len(halves[1])))]
    pages = [row["text"] for row in first_of_families(short) if is_in(row, "held out") and len(row["text"]) >= 500]
    kinds = {"real": real, "joined": joined(real, pages, chance)}
    passages = [list(turns(text, 1_000)) for text in real]
    kinds["exchanged passages"] = exchanged(passages, chance)
    kinds["passages in another order"] = [shuffled(parts, chance) for parts in passages]
    kinds["words in another order"] = [shuffled(re.findall(r"\s*\S+", text), chance) for text in real]
    chosen = [row["text"] for row in first_of_families(short) if is_in(row, "chosen on")]
    learnt = pa.table({"text": pa.array([*chosen, *(row["text"] for row in halves[0])], pa.large_string())})
    with tempfile.TemporaryDirectory() as folder:
        lc.long.count_words([learnt]).save(Path(folder, "words.parquet"))
        scores = scorers(str(model), str(Path(folder, "words.parquet")))[: 1 if only_gain else None]
        found: dict[str, dict[str, Any]] = {}
        for measure in scores:
            for kind, texts in kinds.items():
                for name, each in measure(texts).items():
                    found.setdefault(name, {})[kind] = each
    others = [kind for kind in kinds if kind != "real"]
    print(f"{len(real)} documents of {size:,} characters; AUC of real ones against")
    print(f"{'':24}" + "".join(f"{kind:>28}" for kind in others))
    areas = {name: [auc(known(of["real"]), known(of[kind])) for kind in others] for name, of in found.items()}
    for name, values in areas.items():
        print(f"{name:24}" + "".join(f"{value:28.3f}" for value in values))
    for name, of in found.items():
        low, middle, high = np.quantile(known(of["real"]), [0.1, 0.5, 0.9])
        print(f"{name:24} of {len(known(of['real']))} real ones: {low:.4f} to {high:.4f}, median {middle:.4f}")
    print("rank correlations of real ones")
    for name, of in found.items():
        print(f"{name:24}" + "".join(f"{spearman(of['real'], each['real']):8.2f}" for each in found.values()))
    gain = lc.long.InformationGain(str(model), long_context=LONG, short_context=SHORT, device="cpu")
    for kind, each in found["information gain"].items():
        print(f"information gain, {kind}: " + " ".join(f"{score:.4f}" for score in sorted(known(each), reverse=True)))
    for kind in ("real", "joined"):
        borders, means = gain.by_position(kinds[kind][:8]).binned(16)
        shown = [f"{start:,}: {mean:.4f}" for start, mean in zip(borders.tolist(), means.tolist(), strict=False)]
        print(f"gain by position, {kind}: " + ", ".join(each for each in shown if "nan" not in each))
    return areas["information gain"][0]


def scorers(model: str, words: str) -> list[Callable[[Sequence[str]], dict[str, Any]]]:
    """Return what measures texts, each some scores by name."""
    asked: dict[str, Any] = {"model": model, "device": "cpu"}
    gain = lc.long.InformationGain(long_context=LONG, short_context=SHORT, **asked)
    pairs = lc.long.DependencyScore(segment=256, window=32 * 256, pairs=60, **asked)
    spans = lc.long.AttentionDependency(span=32, window=1_024, **asked)
    lexical = lc.long.LexicalDependency(statistics=words)
    named = {"information gain": "score", "gain in nats": "nats"}
    measured: list[tuple[dict[str, str], Callable[[Sequence[str]], pa.StructArray]]] = [
        (named, gain.measures),
        ({"dependency score": "score", "strength of dependency": "strength"}, pairs.measures),
        ({"attention dependency": "score"}, spans.measures),
        ({"words alone": "score"}, lambda texts: lexical.measures(pa.array(texts, pa.large_string()))),
    ]
    return [partial(measure_all, names, measure) for names, measure in measured]


def measure_all(
    names: dict[str, str], measure: Callable[[Sequence[str]], pa.StructArray], texts: Sequence[str]
) -> dict[str, Any]:
    """Return measures of texts by other names."""
    found = measure(texts)
    return {name: values(found, field) for name, field in names.items()}


def values(measured: pa.StructArray, name: str) -> Any:
    """Return a measure of texts."""
    return pc.struct_field(measured, name).to_numpy(zero_copy_only=False)


def known(scores: Any) -> Any:
    """Return the scores of those that are long enough for it."""
    return scores[~np.isnan(scores)]


def shuffled(parts: list[str], chance: random.Random) -> str:
    """Return parts in another order."""
    return "".join(chance.sample(parts, len(parts)))


def exchanged(passages: list[list[str]], chance: random.Random) -> list[str]:
    """Return as many texts, of as many passages each, that are drawn from all without being put back."""
    every = iter(chance.sample(each := [part for parts in passages for part in parts], len(each)))
    return ["".join(islice(every, len(parts))) for parts in passages]


def spearman(one: Any, other: Any) -> float:
    """Return the correlation of ranks, of those that have both scores."""
    both = ~np.isnan(one) & ~np.isnan(other)
    one, other = one[both], other[both]
    first, second = (np.argsort(np.argsort(each)) for each in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


if __name__ == "__main__":
    main()
