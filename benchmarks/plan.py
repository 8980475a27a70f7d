"""How often the intervals of a plan hold what a run becomes.

    python benchmarks/plan.py --data ../shared/data [--seeds 10]

Two recipes are run whole: longcrawl64-clean on the RedPajama-V2 sample, and filters, line corrections, two
deduplications, tokenisation and windows on the texts. Then each is planned from samples of several sizes under several
seeds, and every figure of every plan (documents and characters after each stage, tokens, bytes written) is put beside
the run's. Figures of one plan go up and down together, so the worst plan is printed, too. The last line is the share of
figures that were inside.
"""

import argparse
import json
import tempfile
from pathlib import Path

import longcrawl as lc
from longcrawl.recipe import Recipe, load_recipe, parse_recipe

SAMPLES = {"longcrawl64-clean": ((4, 400), (6, 400), (6, 800)), "texts": ((2, 500), (2, 1500))}


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
    return [load_recipe("longcrawl64-clean", overrides), parse_recipe(texts)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True, help="the shared data")
    arguments.add_argument("--seeds", type=int, default=10)
    given = arguments.parse_args()
    inside = figures = 0
    for recipe in recipes(given.data.absolute()):
        with tempfile.TemporaryDirectory() as folder:
            lc.run(recipe, Path(folder) / "run")
            manifest = json.loads((Path(folder) / "run" / "manifest.json").read_text("utf-8"))
        for parts, documents in SAMPLES[recipe.name]:
            held = []
            for seed in range(given.seeds):
                plan = lc.plan(recipe, parts=parts, documents=documents, seed=seed)
                checked = plan.against(manifest)
                held.append(sum(each.inside for each in checked))
                outside = [each.figure for each in checked if not each.inside]
                if outside:
                    print(f"  seed {seed}: outside are {', '.join(outside)}")
            inside, figures = inside + sum(held), figures + len(held) * len(checked)
            share = sum(held) / len(held) / len(checked)
            tokens = next(each for each in checked if each.figure == "tokens")
            width = (tokens.estimate.high - tokens.estimate.low) / 2 / tokens.truth
            print(
                f"{recipe.name}, {plan.sample}: {share:.3f} of {len(checked)} figures inside over {len(held)} seeds, "
                f"worst {min(held)}; tokens to {100 * width:.0f} % either way"
            )
    print(f"plan ratio={inside / figures:.3f}")


if __name__ == "__main__":
    main()
