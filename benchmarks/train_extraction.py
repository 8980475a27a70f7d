r"""Train the model of the extraction engine "blocks", or models for folds that have not seen the pages of a fold.

    pip install -e ".[train]"
    python benchmarks/train_extraction.py --pages wcxb-dev.jsonl.zst [--warc FOLDER] --out blocks.npz
    python benchmarks/train_extraction.py --pages wcxb-dev.jsonl.zst [--warc FOLDER] --folds FOLDER

PAGES is WCXB's development half (Murrough-Foley/web-content-extraction-benchmark, CC-BY-4.0): JSON lines with ``html``,
``main_content``, ``page_type`` and ``url``. FOLDER of --warc holds annotated pages as ``extraction.py`` reads them;
those with a whole text are used. --out writes the model that longcrawl ships. --folds writes a model for each of five
folds, ``0.npz`` to ``4.npz``; all pages of a registered domain are in one fold, and page types are spread evenly.
``extraction.py --folds`` scores them.

Each block should have the share of its words that an alignment with the annotated text matches: the longest common
subsequence of words, in which runs of words count twice. A page counts as much as any other, and its blocks by the
words to the power of 0.75; copies of a text count as one. Scores of words of classes and texts are log-odds over pages;
the rows of a page use scores from pages of other sites. Everything follows from the pages and ``SEED``.
"""

import argparse
import hashlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from _annotated import read_pages, read_truth, site_of
from _needed import lacks, shared

from longcrawl.kernels.compiling import allocating
from longcrawl.text.extract.blocks import LEAST_WORDS, make_trees
from longcrawl.text.extract.features import FEATURES, FIRST_WORDS, Scores, measure_reach, put_row, read_words, study
from longcrawl.text.extract.html import BEGIN, ELEMENT, END, NAME_BITS, PARENT, TAGS, load_markup, make_tree, scan

SEED = 0
FOLDS = 5
TREES = {
    "objective": "cross_entropy",
    "learning_rate": 0.03,
    "num_leaves": 31,
    "max_depth": 8,
    "min_data_in_leaf": 80,
    "lambda_l2": 5,
    "feature_fraction": 0.25,
    "bagging_fraction": 0.6,
    "bagging_freq": 1,
    "max_bin": 63,
    "seed": SEED,
    "num_threads": 1,
    "deterministic": True,
    "verbose": -1,
}
ROUNDS = 800
LEVELS = 4
"""Elements around a block whose names are counted for it."""
SCORE_STEPS = 32
"""Scores are stored as whole numbers of this fraction of a unit."""
MOST_CELLS = 1_500_000_000
"""Size of the largest table of an alignment; larger pages are left out of the training."""


class Sample(NamedTuple):
    """An annotated page."""

    url: str
    site: str
    kind: str
    html: str
    text: str


class Blocks(NamedTuple):
    """Labels and hashed words of the blocks of a page."""

    wanted: npt.NDArray[np.float64]
    """Shape (blocks,): share of a block's words that are content."""
    words: npt.NDArray[np.int64]
    """Shape (blocks,): number of words."""
    copies: npt.NDArray[np.int64]
    """Shape (blocks,): number of blocks with the same text, 1 for texts of fewer than ``LEAST_WORDS`` words."""
    names: npt.NDArray[np.int64]
    """Shape (blocks, LEVELS * names): hashes of names around a block."""
    first: npt.NDArray[np.int64]
    """Shape (blocks, FIRST_WORDS): hashes of the first words."""


def read_lines(pages: Path) -> Iterator[dict[str, Any]]:
    """Yield the pages of WCXB."""
    import zstandard

    with pages.open("rb") as file:
        yield from map(json.loads, io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"))


def read_samples(pages: Path, warc: Path | None) -> list[Sample]:
    """Read annotated pages; those whose annotation has no word are left out."""
    samples = [
        Sample(
            line["url"] or line["id"],
            site_of(line["url"]) if line["url"] else line["id"],
            line["page_type"],
            line["html"],
            line["main_content"] or "",
        )
        for line in read_lines(pages)
    ]
    if warc:
        truth = read_truth(warc)
        for page in {page.html: page for page in reversed(read_pages(warc))}.values():
            texts = [known["text"] for known in truth.get(page.url, ()) if "text" in known]
            if texts:
                samples.append(Sample(page.url, site_of(page.url), "warc", page.html, texts[0]))
    return [sample for sample in samples if re.search(r"\w", sample.text)]


def folds_of(samples: Sequence[Sample]) -> dict[str, int]:
    """Return the fold of each site: the largest sites first, each in the fold with the fewest pages of its type."""
    by_site = defaultdict(list)
    for sample in samples:
        by_site[sample.site].append(sample.kind)
    counts, folds = defaultdict[str, Any](lambda: np.zeros(FOLDS)), {}
    for site in sorted(by_site, key=lambda site: (-len(by_site[site]), hashlib.sha256(site.encode()).hexdigest())):
        kind = by_site[site][0]
        folds[site] = int(np.argmin(counts[kind]))
        counts[kind][folds[site]] += len(by_site[site])
    return folds


@allocating
def align(page: Any, text: Any) -> Any:
    """Return which words of a page are in the best alignment with a text; a match after a match counts twice."""
    best, run = np.zeros(len(text) + 1, np.float32), np.full(len(text) + 1, -1e9, np.float32)
    steps = np.zeros((len(page) + 1, len(text) + 1), np.uint8)
    for row in range(1, len(page) + 1):
        last_best, last_run = best[0], run[0]
        for column in range(1, len(text) + 1):
            above, above_run, step, ends = best[column], run[column], np.uint8(1), np.float32(-1e9)
            if page[row - 1] == text[column - 1]:
                continued = last_run + 2 >= last_best + 1
                ends = last_run + np.float32(2) if continued else last_best + np.float32(1)
                step |= np.uint8(4) * np.uint8(continued)
            score = above
            if best[column - 1] > score:
                score, step = best[column - 1], np.uint8(step & 4 | 2)
            if ends > score:
                score, step = ends, np.uint8(step & 4 | 3)
            best[column], run[column], steps[row, column] = score, ends, step
            last_best, last_run = above, above_run
    matched = np.zeros(len(page), np.uint8)
    row, column, inside = len(page), len(text), False
    while row > 0 and column > 0:
        step = steps[row, column]
        if inside or step & 3 == 3:
            matched[row - 1] = 1
            inside = step & 4 != 0
            row, column = row - 1, column - 1
        elif step & 3 == 1:
            row -= 1
        else:
            column -= 1
    return matched


def label(blocks: Sequence[str], text: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]] | None:
    """Return the share of each block's words that is in a text, and the number of words; None for too large pages."""
    known: dict[str, int] = {}
    wanted = np.array([known.setdefault(word, len(known)) for word in re.findall(r"\w+", text.lower())], np.int32)
    words = [[known.get(word, -1) for word in re.findall(r"\w+", block.lower())] for block in blocks]
    counts = np.array([len(each) for each in words], np.int64)
    flat = np.array([word for each in words for word in each], np.int32)
    chosen = np.flatnonzero(flat >= 0)
    if len(chosen) * len(wanted) > MOST_CELLS:
        return None
    matched = np.zeros(len(flat))
    matched[chosen] = align(flat[chosen], wanted)
    return np.bincount(np.repeat(np.arange(len(words)), counts), matched, len(words)) / np.maximum(counts, 1), counts


def share_labels(blocks: Sequence[str], wanted: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Give copies of a text the label of the best, since an alignment matches only one; return their numbers."""
    known = defaultdict[str, list[int]](list)
    for number, block in enumerate(blocks):
        if len(re.findall(r"\w+", block)) >= LEAST_WORDS:
            known[block].append(number)
    copies = np.ones(len(blocks), np.int64)
    for numbers in known.values():
        copies[numbers], wanted[numbers] = len(numbers), wanted[numbers].max()
    return copies


@allocating
def first_words(tree: Any, blocks: int) -> Any:
    words = np.zeros((blocks, FIRST_WORDS), np.int64)
    for number in range(blocks):
        read_words(tree.text, tree.blocks[number, BEGIN], tree.blocks[number, END], words[number])
    return words


@allocating
def rows_of(tree: Any, elements: int, blocks: int, kinds: int, scores: Any) -> Any:
    page = study(tree, elements, blocks, kinds, scores)
    reach, rows = measure_reach(tree, blocks, page), np.zeros((blocks, len(FEATURES)), np.float32)
    for number in range(blocks):
        put_row(tree, number, page, reach, rows[number])
    return rows


class Reader:
    """Reads blocks and rows of pages."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.tree = make_tree(max(len(sample.html.encode()) for sample in samples))

    def blocks(self, sample: Sample) -> Blocks | None:
        """Return what is known of the blocks of a page, or None for one that is not used."""
        _, count, _ = self._scan(sample)
        tree = self.tree
        texts = [tree.text[block[BEGIN] : block[END]].tobytes().decode() for block in tree.blocks[:count]]
        labelled = label(texts, sample.text) if count else None
        if labelled is None:
            return None
        around, names = tree.blocks[:count, ELEMENT], []
        for _ in range(LEVELS):
            names.append(tree.names[around])
            around = tree.elements[around, PARENT]
        copies = share_labels(texts, labelled[0])
        return Blocks(*labelled, copies, np.concatenate(names, 1).astype(np.int64), first_words(tree, count))

    def rows(self, sample: Sample, scores: Scores) -> npt.NDArray[np.float32]:
        """Return the features of the blocks of a page, shape (blocks, features)."""
        elements, count, kinds = self._scan(sample)
        rows: npt.NDArray[np.float32] = rows_of(self.tree, elements, count, kinds, scores)
        return rows

    def _scan(self, sample: Sample) -> tuple[int, int, int]:
        return scan(np.frombuffer(sample.html.encode(), np.uint8), self.tree, load_markup())


def score_words(pages: Sequence[Blocks]) -> Scores:
    """Return the log-odds of content of the words of classes and of texts, as they are stored."""
    return Scores(
        _log_odds([(page.names, np.minimum(page.words, 50) + 1.0, page.wanted) for page in pages]),
        _log_odds([(page.first, np.ones(len(page.words)), page.wanted) for page in pages]),
    )


def _stored(odds: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return log-odds as they are stored, with 0 for bucket 0, the absence of a word."""
    odds[..., 0] = 0
    steps = np.round(np.clip(odds, -3.9, 3.9) * SCORE_STEPS)
    return (steps / SCORE_STEPS).astype(np.float32)


def _log_odds(pages: Sequence[tuple[Any, Any, Any]]) -> npt.NDArray[np.float32]:
    """Return log-odds by hash; a page counts for a word at most once, and less if the word is rare on it."""
    size = 2**NAME_BITS + 1
    totals = np.zeros((2, size))
    for hashes, weight, wanted in pages:
        share = weight / weight.sum()
        each = [np.zeros(size), np.zeros(size)]
        for column in hashes.T:
            each[0] += np.bincount(column, share * (1 - wanted), size)
            each[1] += np.bincount(column, share * wanted, size)
        both = each[0] + each[1]
        counted = np.minimum(1, 20 * both) / np.maximum(both, 1e-12)
        totals += np.array(each) * counted
    totals[:, 0] = 0
    prior = totals.sum(1) / totals.sum()
    return _stored(np.log((totals[1] + prior[1]) / (totals[0] + prior[0])) - np.log(prior[1] / prior[0]))


def train(rows: Sequence[Any], blocks: Sequence[Blocks]) -> list[dict[str, Any]]:
    """Return the trees of a model."""
    import lightgbm

    weights = [(page.words + 1.0) ** 0.75 / page.copies for page in blocks]
    weight = np.concatenate([50 * each / each.sum() for each in weights])
    wanted = np.concatenate([page.wanted for page in blocks])
    data = lightgbm.Dataset(np.concatenate(rows), wanted, weight=weight)
    trained = lightgbm.train(TREES, data, ROUNDS)
    return [flatten(tree["tree_structure"]) for tree in trained.dump_model()["tree_info"]]


def flatten(root: dict[str, Any]) -> dict[str, Any]:
    """Return a tree as lists; children below 0 are the complements of leaves."""
    made: dict[str, Any] = {"features": [], "thresholds": [], "children": [], "leaves": []}

    def visit(node: dict[str, Any]) -> int:
        if "leaf_value" in node:
            made["leaves"].append(node["leaf_value"])
            return ~(len(made["leaves"]) - 1)
        number = len(made["features"])
        made["features"].append(node["split_feature"])
        made["thresholds"].append(node["threshold"])
        made["children"].append([0, 0])
        made["children"][number] = [visit(node["left_child"]), visit(node["right_child"])]
        return number

    if "leaf_value" in root:
        root = {"split_feature": 0, "threshold": 0.0, "left_child": root, "right_child": root}
    visit(root)
    return made


def save(path: Path, trees: Sequence[dict[str, Any]], scores: Scores) -> None:
    stored = {name: np.round(each * SCORE_STEPS).astype(np.int8) for name, each in scores._asdict().items()}
    np.savez_compressed(path, **make_trees(trees)._asdict(), **stored, tags=np.array(TAGS), columns=np.array(FEATURES))
    print(f"{len(trees)} trees in {path}, {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, default=shared("extraction") / "wcxb-dev.jsonl.zst")
    parser.add_argument("--warc", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folds", type=Path)
    options = parser.parse_args()
    if lacks("lightgbm and --pages, annotated pages", options.pages, packages=["lightgbm"]):
        return
    samples = read_samples(options.pages, options.warc)
    reader = Reader(samples)
    folds = folds_of(samples)
    known = [(sample, page) for sample in samples if (page := reader.blocks(sample)) is not None]
    print(f"{len(known)} of {len(samples)} pages, {sum(len(page.words) for _, page in known):,} blocks")
    fold = np.array([folds[sample.site] for sample, _ in known])
    pages = [page for _, page in known]

    rows: list[Any] = [None] * len(known)
    others = [np.flatnonzero(fold != each) for each in range(FOLDS)]
    scores = [score_words([pages[at] for at in each]) for each in others]
    for at, (sample, _) in enumerate(known):
        rows[at] = reader.rows(sample, scores[fold[at]])
    if options.folds:
        options.folds.mkdir(parents=True, exist_ok=True)
        for each in range(FOLDS):
            trees = train([rows[at] for at in others[each]], [pages[at] for at in others[each]])
            save(options.folds / f"{each}.npz", trees, scores[each])
    if options.out:
        save(options.out, train(rows, pages), score_words(pages))


if __name__ == "__main__":
    main()
