r"""Train the model of the extraction engine "blocks", and print how right it is on pages that it has not seen.

    pip install lightgbm
    python benchmarks/train_extraction.py [--data FOLDER] [--out longcrawl/text/extract/blocks.json] [--folds 3]

FOLDER is that of ``benchmarks/extraction.py``. The pages of a third of the sites, by registered domain, are held out;
the model is trained on the others, and written with --out. --folds divides the sites into so many parts and trains on
all parts but one, each in turn, so that every page is extracted by a model that has seen no page of its site. The texts
of trafilatura and resiliparse are scored beside it, and the differences printed with intervals.

What a block should be: content where an annotation says so; else what trafilatura makes of it in two modes, of little
weight where they do not agree. Pieces of text that pages must contain, or not, weigh five times. Elements that say that
they are not content may only lower the odds as they come closer: some of them are on few of the pages.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from _annotated import Page, Truth, compare, describe, parts_of, read_pages, read_truth, site_of
from _needed import lacks, shared

TREES = {
    "objective": "cross_entropy",
    "learning_rate": 0.06,
    "num_leaves": 7,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 5,
    "max_bin": 127,
    "seed": 0,
    "num_threads": 1,
    "deterministic": True,
    "verbose": -1,
}
ROUNDS = 250
FAVORS = ("precision", "balanced", "recall")
UNWANTED = (
    *("comment", "navigation", "footer", "side", "share", "subscribe", "related", "advertisement", "hidden", "notice"),
    *("author", "tag", "form", "index", "teaser", "date"),
)
"""What may only lower the odds as it comes closer."""


class Example(NamedTuple):
    """A page's blocks: what is known of them, how likely each should be, and how much it counts."""

    rows: npt.NDArray[np.float32]
    wanted: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]


def plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


def find_blocks(blocks: Sequence[str], text: str) -> npt.NDArray[np.float64]:
    """Return which blocks a text holds: long ones anywhere, short ones between those."""
    whole, found, spans = f" {plain(text)} ", np.zeros(len(blocks)), [(-1, -1)] * len(blocks)
    short: list[int] = []
    reached = 0
    for number, block in enumerate(map(plain, blocks)):
        if len(block) < 30:
            short.append(number)
            continue
        at = whole.find(block, reached)
        at = whole.find(block) if at < 0 else at
        for piece in (block[:100], block[-100:]) if at < 0 and len(block) > 200 else ():
            at = whole.find(piece) if at < 0 else at
        if at >= 0:
            found[number], spans[number] = 1, (at, at + len(block))
            reached = max(reached, at + len(block))
    upper = [len(whole)] * (len(blocks) + 1)
    for number in range(len(blocks) - 1, -1, -1):
        upper[number] = spans[number][0] if found[number] else upper[number + 1]
    lower, waiting = 0, set(short)
    for number, block in enumerate(map(plain, blocks)):
        if number not in waiting:
            lower = spans[number][1] if found[number] else lower
        elif block and 0 <= (at := whole.find(f" {block} ", max(lower - 1, 0))) < min(
            upper[number + 1] + 5, lower + 200
        ):
            found[number], lower = 1, at + len(block) + 1
    return found


def make_example(page: Page, known: Sequence[dict[str, Any]]) -> Example:
    from trafilatura import extract
    from trafilatura.settings import Extractor

    from longcrawl.text.extract.blocks import read_blocks

    blocks = [block for block in read_blocks(page.html) if not block.never]
    texts = [block.text for block in blocks]
    rows = np.array([block.row for block in blocks], np.float32)
    size = rows[:, 0] if blocks else np.zeros(0)
    weight = np.minimum((size / 100) ** 0.5, 3) + 0.2
    annotated = [each["text"] for each in known if "text" in each]
    if annotated:
        return Example(rows, find_blocks(texts, annotated[0]), 2 * weight)
    modes = [Extractor(precision=precision, comments=False) for precision in (True, False)]
    first, second = (find_blocks(texts, extract(page.html, options=mode) or "") for mode in modes)
    wanted, weight = (first + second) / 2, np.where(first == second, weight, 0.3 * weight)
    for each in known:
        for value, pieces in ((1, each["must_contain"]), (0, each["must_not_contain"])):
            for piece in filter(None, map(plain, pieces)):
                hit = np.array([piece in text or (len(text) > 25 and text in piece) for text in map(plain, texts)])
                weight = np.where(hit, np.where((wanted == value) & (weight > 5), weight, weight * 5), weight)
                wanted = np.where(hit, value, wanted)
    return Example(rows, wanted, weight)


def train(examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Return the trees of a model."""
    import lightgbm

    from longcrawl.text.extract.blocks import FEATURES

    filled = [each for each in examples if len(each.rows)]
    rows, wanted, weight = (np.concatenate([each[part] for each in filled]) for part in range(3))
    monotone = [int(name.removeprefix("near_") in UNWANTED and name.startswith("near_")) for name in FEATURES]
    data = lightgbm.Dataset(rows, wanted, weight=weight)
    trained = lightgbm.train(TREES | {"monotone_constraints": monotone}, data, ROUNDS)
    return [flatten(tree["tree_structure"], FEATURES) for tree in trained.dump_model()["tree_info"]]


def flatten(root: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a tree as lists; children below 0 are the complements of leaves."""
    made: dict[str, Any] = {"features": [], "thresholds": [], "children": [], "leaves": []}

    def visit(node: dict[str, Any]) -> int:
        if "leaf_value" in node:
            made["leaves"].append(round(node["leaf_value"], 6))
            return ~(len(made["leaves"]) - 1)
        number = len(made["features"])
        made["features"].append(names[node["split_feature"]])
        made["thresholds"].append(float(f"{node['threshold']:.6g}"))
        made["children"].append([0, 0])
        made["children"][number] = [visit(node["left_child"]), visit(node["right_child"])]
        return number

    if "leaf_value" in root:
        root = {"split_feature": 0, "threshold": 0.0, "left_child": root, "right_child": root}
    visit(root)
    return made


def extract_with(trees: list[dict[str, Any]], pages: Sequence[Page], favor: str) -> list[str]:
    from longcrawl.text.extract import blocks
    from longcrawl.text.extract.blocks import make_trees

    model = make_trees(trees, blocks.FEATURES)
    blocks.load_model = lambda: model
    chosen = np.ones(len(pages), np.bool_)
    return blocks.extract_blocks(pa.array([page.html for page in pages], pa.large_string()), chosen, favor).to_pylist()


def print_scores(pages: Sequence[Page], texts: dict[str, list[str]], truth: Truth) -> None:
    """Print how right texts of held-out pages are, and those of other engines on the same pages."""
    from longcrawl.text.extract import _resiliparse_engine, _trafilatura_engine

    urls = [page.url for page in pages]
    for favor, each in texts.items():
        print(f"held out, {favor}: {describe(urls, each, truth)}")
    for name, engine in (("trafilatura", _trafilatura_engine), ("resiliparse", _resiliparse_engine)):
        extract = engine.make_extractor("precision")
        others = [extract(page.html) for page in pages]
        print(f"{name} on the same pages: {describe(urls, others, truth)}")
        print(f"precision minus {name}: {compare(urls, texts['precision'], others, truth)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=shared("warc"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folds", type=int)
    options = parser.parse_args()
    needed = "lightgbm and --data, a folder of annotated pages"
    if lacks(needed, options.data / "groundtruth.jsonl.gz", packages=["lightgbm", "trafilatura"]):
        return
    truth = read_truth(options.data)
    pages = list({page.html: page for page in reversed(read_pages(options.data))}.values())
    examples = [make_example(page, truth.get(page.url, ())) for page in pages]
    print(f"{len(pages)} pages of {len({site_of(page.url) for page in pages})} sites, ", end="")
    print(f"{sum(len(each.rows) for each in examples):,} blocks")

    parts_by_html = parts_of(pages, truth, options.folds or 3)
    parts = [parts_by_html[page.html] for page in pages]
    held, texts = list[Page](), {favor: list[str]() for favor in FAVORS}
    for fold in range(options.folds) if options.folds else [0]:
        trees = train([each for each, part in zip(examples, parts, strict=True) if part != fold])
        chosen = [page for page, part in zip(pages, parts, strict=True) if part == fold]
        held += chosen
        for favor in FAVORS:
            texts[favor] += extract_with(trees, chosen, favor)
    print_scores(held, texts, truth)
    if options.out and not options.folds:
        from longcrawl.text.extract.html import TAGS

        lines = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in trees)
        options.out.write_text(f'{{"tags":{json.dumps(TAGS)},\n"trees":[\n{lines}\n]}}\n')
        print(f"{len(trees)} trees in {options.out}")


if __name__ == "__main__":
    main()
