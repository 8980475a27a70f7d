"""The extraction engine "blocks": a page's text blocks, and a model that keeps those of the main content."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.kernels.texts import text_buffers, text_column
from longcrawl.text.extract._block_kernels import FEATURES, Model, describe, extract
from longcrawl.text.extract._markup import load_markup
from longcrawl.text.extract._tree_kernels import BEGIN, END, make_tree, scan

Favor = Literal["precision", "balanced", "recall"]

LEAST: dict[Favor, float] = {"precision": 0.45, "balanced": 0.4, "recall": 0.3}
"""The probability from which on a block is content."""

_MODEL = Path(__file__).parent / "blocks.json"


class Block(NamedTuple):
    """A block of a page, for those who train a model."""

    text: str
    row: npt.NDArray[np.float32]
    """What is known of it, by ``FEATURES``."""
    never: bool
    """Whether it is not content whatever a model says."""


def make_model(trees: Sequence[Mapping[str, Any]]) -> Model:
    """Return the model of trees whose nodes and leaves are numbered each on its own."""
    nodes = np.cumsum([0, *(len(tree["features"]) for tree in trees)])
    leaves = np.cumsum([0, *(len(tree["leaves"]) for tree in trees)])
    children = [
        [child + node if child >= 0 else child - leaf for child in pair]
        for tree, node, leaf in zip(trees, nodes[:-1].tolist(), leaves[:-1].tolist(), strict=True)
        for pair in tree["children"]
    ]
    return Model(
        np.array([FEATURES.index(name) for tree in trees for name in tree["features"]], np.int16),
        np.array([each for tree in trees for each in tree["thresholds"]], np.float64),
        np.array(children, np.int16).reshape(-1, 2),
        nodes[:-1].astype(np.int16),
        np.array([each for tree in trees for each in tree["leaves"]], np.float64),
    )


@cache
def load_model() -> Model:
    """Return the model that comes with longcrawl; ``benchmarks/train_extraction.py`` trains it."""
    return make_model(json.loads(_MODEL.read_text())["trees"])


def read_blocks(page: str) -> list[Block]:
    """Return the blocks of a page."""
    data = np.frombuffer(page.encode(), np.uint8)
    tree = make_tree(len(data))
    elements, blocks = scan(data, tree, load_markup())
    rows, scores = np.zeros((blocks, len(FEATURES)), np.float32), np.empty(blocks)
    describe(tree, elements, blocks, make_model([]), rows, scores)
    texts = [tree.text[block[BEGIN] : block[END]].tobytes().decode() for block in tree.blocks[:blocks]]
    return [Block(*each) for each in zip(texts, rows, np.isinf(scores).tolist(), strict=True)]


def extract_blocks(pages: pa.Array, chosen: npt.NDArray[np.bool_], favor: Favor = "precision") -> pa.Array:
    """Return the main texts of pages (large_string), null where a page is not chosen."""
    data, offsets = text_buffers(pages)
    sizes = np.diff(offsets)[chosen]
    out = np.empty(int(sizes.sum()) * 3 // 2 + 8, np.uint8)
    least = float(np.log(LEAST[favor] / (1 - LEAST[favor])))
    ends = extract(data, offsets, chosen, least, load_markup(), load_model(), make_tree(int(sizes.max(initial=0))), out)
    texts = text_column(out, np.concatenate([[0], ends]), pages, pa.large_string())
    return pc.if_else(pa.array(chosen), texts, pa.scalar(None, pa.large_string()))
