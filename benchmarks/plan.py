"""Coverage of a plan's intervals: how often they contain the figures of the run.

    python benchmarks/plan.py --data ../shared/data [--seeds 10] [--recipes quickstart texts]

Three recipes are run whole: quickstart, whose input is a few large packages among many small ones, longcrawl64-clean on
the RedPajama-V2 sample, and filters, line corrections, two deduplications, tokenisation and windows on the texts. Then
each is planned under several seeds, from samples of several sizes and from the one that a plan chooses, and every
figure of every plan is put beside the run's: documents and characters after each stage, tokens, bytes written, and
seconds of a core and bytes of disk for each stage. A run goes first of which nothing is kept, since plans are without
imports and compiling. Figures of one plan go up and down together, so the worst plan is printed, and the CPU seconds
of a plan beside the run's. The last line is the share of figures that were inside.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from time import process_time

from _needed import lacks, shared

import longcrawl as lc
from longcrawl.run.recipe import Recipe, load_recipe, parse_recipe

KINDS = ("documents and text", "seconds", "disk")
CHOSEN = (None, None)
"""Sample of a plan without ``parts`` and ``documents``."""
SAMPLES: dict[str, tuple[tuple[int | None, int | None], ...]] = {
    "quickstart": (CHOSEN, (64, 1000)),
    "longcrawl64-clean": (CHOSEN, (4, 400), (6, 400), (6, 800)),
    "texts": (CHOSEN, (2, 500), (2, 1500)),
}


def recipes(data: Path) -> list[Recipe]:
    tokenizer = str(data / "gpt2.tiktoken")
    overrides = [f"source.data_dir={data / 'rpv2'}", f"stages.tokenize.tokenizer={tokenizer}"]
    texts = {
        "longcrawl": 1,
        "name": "texts",
        "source": {"builder": "text", "data_files": [str(data / "short.jsonl.zst"), str(data / "long.jsonl.zst")]},
        "stages": [
            {"min_chars": {"n": 200}},
            "gopher_repetition",
            "gopher_quality",
            {"line_corrections": {"language": "en"}},
            "exact_documents",
            {"min_hash": {"bands": 14, "rows": 8, "unit": "word", "ngram": 5}},
            {"tokenize": {"tokenizer": tokenizer}},
            {"windows": {"max_length": 2048, "overlap_size": 256}},
        ],
        "outputs": {"gpt-simple": {}},
    }
    return [load_recipe("quickstart", ()), load_recipe("longcrawl64-clean", overrides), parse_recipe(texts)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, default=shared(""), help="the shared data")
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--recipes", nargs="+", choices=list(SAMPLES), default=list(SAMPLES))
    given = arguments.parse_args()
    if lacks("--data, a folder with a release and documents", given.data / "rpv2", given.data / "short.jsonl.zst"):
        return
    total: Counter[str] = Counter()
    for recipe in (each for each in recipes(given.data.absolute()) if each.name in given.recipes):
        with tempfile.TemporaryDirectory() as folder:
            warm = lc.run(recipe, Path(folder) / "warm")
            run = lc.run(recipe, Path(folder) / "run")
            manifest = json.loads((Path(folder) / "run" / "manifest.json").read_text("utf-8"))
        again = sorted(run.costs[label].seconds / cost.seconds for label, cost in warm.costs.items())
        print(f"{recipe.name}: the second run's stages took {again[0]:.2f} to {again[-1]:.2f} of the first's seconds")
        for parts, documents in SAMPLES[recipe.name]:
            held, inside, outside, took = [], Counter[str](), Counter[str](), []
            for seed in range(given.seeds):
                started = process_time()
                plan = lc.plan(recipe, parts=parts, documents=documents, seed=seed)
                took.append(process_time() - started)
                checked = plan.against(manifest, run.costs)
                held.append(sum(each.inside for each in checked))
                inside.update(kind(each.figure) for each in checked if each.inside)
                outside.update(kind(each.figure) for each in checked if not each.inside)
                for each in checked:
                    if not each.inside:
                        print(f"  seed {seed}: {each}")
            tokens = next(each for each in checked if each.figure == "tokens")
            width = (tokens.estimate.high - tokens.estimate.low) / 2 / tokens.truth
            shares = ", ".join(f"{name} {inside[name] / (inside[name] + outside[name]):.3f}" for name in KINDS)
            ran = sum(cost.seconds for cost in run.costs.values())
            print(
                f"{recipe.name}, {plan.sample}: {sum(held) / len(held) / len(checked):.3f} of {len(checked)} figures "
                f"inside over {len(held)} seeds ({shares}), worst {min(held)}; tokens to {100 * width:.0f} %; "
                f"a plan took {median(took):.1f} s, the run {ran:.1f} s"
            )
            total += Counter(inside=inside.total(), all=inside.total() + outside.total())
    print(f"{total['all']} figures")
    print(f"plan ratio={total['inside'] / total['all']:.3f}")


def kind(figure: str) -> str:
    """Return whether a figure is of documents and tokens, of seconds or of disk."""
    return next((name for name in KINDS[1:] if name in figure), KINDS[0])


if __name__ == "__main__":
    main()
