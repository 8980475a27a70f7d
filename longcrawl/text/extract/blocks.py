"""Extraction engine "blocks": a model that decides which blocks of a page are main content.

Prose is a block's text outside of links, if it is long, has punctuation and few links. The most important feature is
the amount of prose in the elements around a block. Next are its length and links, and elements around it with telling
names (``nav``, ``class="comments"``), except those that also contain most of the page's prose.
"""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.texts import copy, text_buffers, text_column
from longcrawl.text.extract.html import (
    BEGIN,
    CODE,
    COMMAS,
    ELEMENT,
    END,
    ENDS,
    FIRST,
    GROUPS,
    LINES,
    LINKED,
    LINKS,
    PARENT,
    STOP,
    TAG,
    TAGS,
    WORDS,
    Bytes,
    Markup,
    Tree,
    load_markup,
    make_tree,
    scan,
)

_U = np.uint64


class Trees(NamedTuple):
    """Regression trees, whose values are summed.

    A leaf points to itself, so that a tree takes the same number of steps for every block; a processor would mispredict
    an early end.
    """

    features: npt.NDArray[np.uint16]
    """Shape (nodes,): the column that a node compares."""
    thresholds: npt.NDArray[np.float32]
    """Shape (nodes,): the largest value that is sent to the left child."""
    children: npt.NDArray[np.uint16]
    """Shape (2 * nodes,): the left and the right child of each node."""
    values: npt.NDArray[np.float64]
    """Shape (nodes,): the value of a leaf, 0 for other nodes."""
    roots: npt.NDArray[np.uint16]
    """Shape (trees,): the first node of each tree."""
    depths: npt.NDArray[np.int64]
    """Shape (trees,): the number of steps to the deepest leaf."""


@compiled
def add_up(trees: Trees, row: Any) -> float:
    """Return the sum of all trees for a row of float32."""
    total = 0.0
    for number in range(len(trees.roots)):
        node = _U(trees.roots[number])
        for _ in range(trees.depths[number]):
            right = row[_U(trees.features[node])] > trees.thresholds[node]
            node = _U(trees.children[_U(2) * node + _U(right)])
        total += trees.values[node]
    return total


def make_trees(trees: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Trees:
    """Merge all trees into one table of nodes.

    Args:
        trees: for each tree, the ``features`` of its inner nodes, ``thresholds``, ``children`` and ``leaves``; a
            negative child is the complement of a leaf's number.
        columns: the features in the order of their columns.
    """
    features, roots = list[int](), list[int]()
    thresholds, values, children = list[float](), list[float](), list[list[int]]()
    for tree in trees:
        root, inner, leaves = len(features), len(tree["features"]), len(tree["leaves"])
        roots.append(root)
        features += [*(columns.index(name) for name in tree["features"]), *[0] * leaves]
        thresholds += [*tree["thresholds"], *[0.0] * leaves]
        values += [*[0.0] * inner, *tree["leaves"]]
        following = [[root + (child if child >= 0 else inner + ~child) for child in pair] for pair in tree["children"]]
        children += [*following, *([root + inner + leaf] * 2 for leaf in range(leaves))]
    return Trees(
        np.array(features, np.uint16),
        _rounded_down(np.array(thresholds, np.float64)),
        np.array(children, np.uint16).ravel(),
        np.array(values, np.float64),
        np.array(roots, np.uint16),
        np.array([_depth(tree["children"], 0) for tree in trees], np.int64),
    )


def _rounded_down(thresholds: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the largest float32 not above each threshold, which the same float32 values exceed."""
    nearest = thresholds.astype(np.float32)
    return np.where(nearest > thresholds, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def _depth(children: Sequence[Sequence[int]], node: int) -> int:
    return 0 if node < 0 else 1 + max(_depth(children, child) for child in children[node])


Favor = Literal["precision", "balanced", "recall"]

LEAST: dict[Favor, float] = {"precision": 0.45, "balanced": 0.38, "recall": 0.28}
"""Least probability at which a block is content."""

_MODEL = Path(__file__).parent / "blocks.json"

PLACES = ("header", "article", "main", "section", "figure", "figcaption", "table", "td", "ul", "ol", "li", "blockquote")
"""Tags that characterise the blocks inside them."""

NEAR = (*GROUPS, *PLACES)
FAR = 12
"""Distance to a tag or group that is not around a block; 0 is its own element."""

LEVELS = ("parent", "grandparent", "third")
"""Names of the elements around that of a block, by distance."""

FEATURES = (
    *("bytes", "words", "link_density", "links", "ends", "commas", "lines", "last", "tag"),
    *("previous_bytes", "previous_link_density", "next_bytes", "next_link_density"),
    *("since_prose", "until_prose", "since_heading", "prose_density"),
    *("up_to_core", "up_to_best", "in_best"),
    *(f"{level}_{each}" for level in LEVELS for each in ("bytes", "link_density", "blocks", "prose", "prose_density")),
    *(f"near_{name}" for name in NEAR),
)
"""Features of a block, in the order of its row."""

_NEIGHBOURS, _SINCE, _UP = (FEATURES.index(name) for name in ("previous_bytes", "since_prose", "up_to_core"))
_LEVELS, _AROUND = FEATURES.index("parent_bytes"), FEATURES.index(f"near_{NEAR[0]}")
"""Columns at which parts of a row begin."""

_UNLIKELY = ("comment", "side", "footer", "related", "navigation", "hidden", "notice", "subscribe", "share")
_UNLIKELY_GROUPS = sum(1 << list(GROUPS).index(name) for name in _UNLIKELY)
_PLACE_OF = np.array([PLACES.index(name) if name in PLACES else -1 for name in TAGS])
_NEVER = np.array([name in ("nav", "footer", "aside", "form") for name in TAGS])
_H1, _H4, _LI, _TR = (CODE[name] for name in ("h1", "h4", "li", "tr"))
_GROUPS, _NEAR = len(GROUPS), len(NEAR)

_SHORTEST_PROSE, _PROSE_WITHOUT_MARKS = 60, 200
"""Least bytes of prose outside of links, with and without punctuation.

Scripts without spaces may have only punctuation that is not known here.
"""

_NEAR_BEST, _HOPELESS = 0.7, -3.0
"""Bounds in log-odds: a block half as likely as the best one, and the least for any content (0.05)."""


class Sums(NamedTuple):
    """Sums over the blocks before each block, shape (blocks + 1,) each."""

    size: npt.NDArray[np.float64]
    linked: npt.NDArray[np.float64]
    prose: npt.NDArray[np.float64]


class Surroundings(NamedTuple):
    """Facts about the elements of a page."""

    near: npt.NDArray[np.int8]
    """Shape (elements, near): levels up to the next element with each tag or group, ``FAR`` at most."""
    in_core: npt.NDArray[np.bool_]
    """Shape (elements,): whether an element and all around it contain at least half of the page's prose."""
    never: npt.NDArray[np.bool_]
    """Shape (elements,): whether an element is in navigation, a footer, an aside or a form outside of the core."""
    best: int
    """The element with the most prose close below it."""


@compiled
def _prose_of(block: Any) -> float:
    size = block[END] - block[BEGIN]
    own = size - block[LINKED]
    has_marks = block[ENDS] + block[COMMAS] > 0 or own >= _PROSE_WITHOUT_MARKS
    return np.float64(own) if own >= _SHORTEST_PROSE and block[LINKED] < 0.4 * size and has_marks else 0.0


@compiled
def _between(sums: Any, row: Any) -> float:
    """Return a sum over the blocks of an element."""
    return sums[row[STOP]] - sums[row[FIRST]]


@allocating
def _sum(tree: Tree, elements: int, blocks: int) -> Sums:
    """Sum up the blocks; prose in comments, menus and the like is not counted, unless there is hardly any other."""
    sums = Sums(np.zeros(blocks + 1), np.zeros(blocks + 1), np.zeros(blocks + 1))
    everything = np.zeros(blocks + 1)
    for number in range(blocks):
        block = tree.blocks[number]
        sums.size[number + 1] = sums.size[number] + block[END] - block[BEGIN]
        sums.linked[number + 1] = sums.linked[number] + block[LINKED]
        everything[number + 1] = everything[number] + _prose_of(block)
    unlikely = np.zeros(elements, np.bool_)
    for element in range(1, elements):
        row = tree.elements[element]
        says_so = tree.marks[element] & _UNLIKELY_GROUPS != 0 or _NEVER[row[TAG]]
        is_small = _between(everything, row) < 0.6 * everything[blocks]
        unlikely[element] = unlikely[row[PARENT]] or (says_so and is_small)
    for number in range(blocks):
        counts = not unlikely[tree.blocks[number, ELEMENT]]
        sums.prose[number + 1] = sums.prose[number] + (everything[number + 1] - everything[number]) * counts
    if sums.prose[blocks] < 0.2 * everything[blocks]:
        for number in range(blocks + 1):
            sums.prose[number] = everything[number]
    return sums


@allocating
def _best_element(tree: Tree, elements: int, blocks: int, sums: Sums) -> int:
    """Return the element with the most prose below it, discounted at each level."""
    score, best = np.zeros(elements), 0
    for number in range(blocks):
        prose = sums.prose[number + 1] - sums.prose[number]
        element = tree.elements[tree.blocks[number, ELEMENT], PARENT]
        for _ in range(4 * (prose > 0)):
            score[element] += prose
            prose *= 0.6
            if element == 0:
                break
            element = tree.elements[element, PARENT]
    for element in range(elements):
        if score[element] > score[best]:
            best = element
    return best


@allocating
def _look_around(tree: Tree, elements: int, blocks: int, sums: Sums) -> Surroundings:
    """Find the tags and groups near each element, ignoring elements that contain most of the prose."""
    near = np.full((elements, _NEAR), FAR, np.int8)
    in_core, never = np.zeros(elements, np.bool_), np.zeros(elements, np.bool_)
    for element in range(elements):
        row = tree.elements[element]
        holds_most = sums.prose[blocks] > 0 and _between(sums.prose, row) >= 0.5 * sums.prose[blocks]
        in_core[element] = element == 0 or (in_core[row[PARENT]] and holds_most)
        if in_core[element]:
            continue
        never[element] = never[row[PARENT]] or _NEVER[row[TAG]]
        for place in range(_NEAR):
            near[element, place] = min(near[row[PARENT], place] + 1, FAR)
        for group in range(_GROUPS):
            if tree.marks[element] >> group & 1:
                near[element, group] = 0
        if _PLACE_OF[row[TAG]] >= 0:
            near[element, _GROUPS + _PLACE_OF[row[TAG]]] = 0
    return Surroundings(near, in_core, never, _best_element(tree, elements, blocks, sums))


@compiled
def _describe_neighbours(tree: Tree, number: int, blocks: int, sums: Sums, row: Any) -> None:
    for side in range(2):
        other = number + 2 * side - 1
        column = _NEIGHBOURS + 2 * side
        row[column], row[column + 1] = 0, 1
        if 0 <= other < blocks:
            size = tree.blocks[other, END] - tree.blocks[other, BEGIN]
            row[column], row[column + 1] = size, tree.blocks[other, LINKED] / size
    first, last = max(0, number - 4), min(blocks, number + 5)
    row[_SINCE + 3] = (sums.prose[last] - sums.prose[first]) / (sums.size[last] - sums.size[first])


@compiled
def _describe_tree(tree: Tree, number: int, blocks: int, sums: Sums, around: Surroundings, row: Any) -> None:
    own = tree.blocks[number, ELEMENT]
    best_first, best_stop = tree.elements[around.best, FIRST], tree.elements[around.best, STOP]
    element, row[_UP], row[_UP + 1] = own, 0, 0
    while not around.in_core[element]:
        element = tree.elements[element, PARENT]
        row[_UP] += 1
    element = own
    while not (tree.elements[element, FIRST] <= best_first and tree.elements[element, STOP] >= best_stop):
        element = tree.elements[element, PARENT]
        row[_UP + 1] += 1
    row[_UP + 2] = best_first <= number < best_stop
    element, column = own, _LEVELS
    for _ in range(3):
        element = tree.elements[element, PARENT]
        held = tree.elements[element]
        size, prose = _between(sums.size, held), _between(sums.prose, held)
        row[column], row[column + 1] = size, _between(sums.linked, held) / size
        row[column + 2] = held[STOP] - held[FIRST]
        row[column + 3] = prose / max(sums.prose[blocks], 1.0)
        row[column + 4] = prose / size
        column += 5
    for place in range(_NEAR):
        row[_AROUND + place] = around.near[own, place]


@compiled
def _describe_block(tree: Tree, number: int, row: Any) -> None:
    block = tree.blocks[number]
    size, last = block[END] - block[BEGIN], tree.text[block[END] - 1]
    row[0], row[1], row[2], row[3] = size, block[WORDS], block[LINKED] / size, block[LINKS]
    row[4], row[5], row[6] = block[ENDS], block[COMMAS], block[LINES]
    row[7] = 1 if last in (46, 33, 63) else 2 if last == 58 else 3 if last >= 128 else 0
    row[8] = tree.elements[block[ELEMENT], TAG]


@allocating
def describe(tree: Tree, elements: int, blocks: int, model: Trees, rows: Any, scores: Any) -> None:
    """Write the features of each block, shape (blocks, features) or one reused row, and its log-odds.

    Blocks in navigation, footers, asides and forms are never content: 0.2 % of them were on the annotated pages. If
    forms contain most of a page's prose, the page itself is a form, and they are not excluded.
    """
    sums = _sum(tree, elements, blocks)
    around = _look_around(tree, elements, blocks, sums)
    until = np.full(blocks + 1, 2 * blocks, np.int64)
    for number in range(blocks - 1, -1, -1):
        until[number] = 0 if sums.prose[number + 1] > sums.prose[number] else until[number + 1] + 1
    since, heading = 50, 50
    for number in range(blocks):
        row, own = rows[number % len(rows)], tree.blocks[number, ELEMENT]
        if around.never[own]:
            scores[number] = -np.inf
        else:
            _describe_block(tree, number, row)
            _describe_neighbours(tree, number, blocks, sums, row)
            _describe_tree(tree, number, blocks, sums, around, row)
            row[_SINCE], row[_SINCE + 1], row[_SINCE + 2] = since, min(until[number + 1], 50), heading
            scores[number] = add_up(model, row)
        since = 0 if until[number] == 0 else min(since + 1, 50)
        heading = 0 if _H1 <= tree.elements[own, TAG] <= _H4 else min(heading + 1, 50)


@compiled
def _least_of(scores: Any, blocks: int, least: float) -> float:
    """Return the least log-odds of kept blocks; if no block of a page reaches ``least``, the best ones are kept."""
    best = -np.inf
    for number in range(blocks):
        best = max(best, scores[number])
    return least if best >= least else max(best - _NEAR_BEST, _HOPELESS)


@compiled
def _separate(tree: Tree, number: int, before: int, out: Bytes, place: int) -> int:
    """Write the separator before a block and, at the start of a list item, "- ".

    Cells of a row are separated by " | ", other blocks by a line break.
    """
    element = tree.blocks[number, ELEMENT]
    if before >= 0:
        cell, row = tree.blocks[before, ELEMENT], tree.elements[element, PARENT]
        if cell != element and tree.elements[cell, PARENT] == row and tree.elements[row, TAG] == _TR:
            out[place], out[place + 1], out[place + 2] = 32, 124, 32
            return place + 3
        out[place] = 10
        place += 1
    while element and tree.elements[element, TAG] != _LI and tree.elements[element, FIRST] == number:
        element = tree.elements[element, PARENT]
    if tree.elements[element, TAG] == _LI and tree.elements[element, FIRST] == number:
        out[place], out[place + 1] = 45, 32
        place += 2
    return place


@allocating
def extract(
    data: Bytes, offsets: Any, chosen: Any, least: float, markup: Markup, model: Trees, tree: Tree, out: Bytes
) -> Any:
    """Write the main text of pages; return the end of each text.

    Args:
        data: the pages, UTF-8.
        offsets: start of each page and end of the last, int64 [pages + 1].
        chosen: whether a page is extracted, bool [pages]; the text of others is empty.
        least: least log-odds of content.
        markup: the tables of the scanner.
        model: the model of blocks.
        tree: scratch memory for the largest page.
        out: uint8, at least 1.5 times as long as all chosen pages.
    """
    place = 0
    rows, scores, ends = (
        np.zeros((1, len(FEATURES)), np.float32),
        np.empty(len(tree.blocks)),
        np.zeros(len(chosen), np.int64),
    )
    for page in range(len(chosen)):
        if chosen[page]:
            elements, blocks = scan(data[offsets[page] : offsets[page + 1]], tree, markup)
            describe(tree, elements, blocks, model, rows, scores)
            before, enough = -1, _least_of(scores, blocks, least)
            for number in range(blocks):
                if scores[number] >= enough:
                    place = _separate(tree, number, before, out, place)
                    place = copy(tree.text, tree.blocks[number, BEGIN], tree.blocks[number, END], out, place)
                    before = number
        ends[page] = place
    return ends


class Block(NamedTuple):
    """A block of a page, for training a model."""

    text: str
    row: npt.NDArray[np.float32]
    """Features of the block, by ``FEATURES``."""
    never: bool
    """Whether it is excluded from the content regardless of the model."""


@cache
def load_model() -> Trees:
    """Load the model shipped with longcrawl, which ``benchmarks/train_extraction.py`` trains."""
    return make_trees(json.loads(_MODEL.read_text())["trees"], FEATURES)


def read_blocks(page: str) -> list[Block]:
    """Return the blocks of a page."""
    data = np.frombuffer(page.encode(), np.uint8)
    tree = make_tree(len(data))
    elements, blocks = scan(data, tree, load_markup())
    rows, scores = np.zeros((blocks, len(FEATURES)), np.float32), np.empty(blocks)
    describe(tree, elements, blocks, make_trees([], FEATURES), rows, scores)
    texts = [tree.text[block[BEGIN] : block[END]].tobytes().decode() for block in tree.blocks[:blocks]]
    return [Block(*each) for each in zip(texts, rows, np.isinf(scores).tolist(), strict=True)]


def extract_blocks(pages: pa.Array, chosen: npt.NDArray[np.bool_], favor: Favor = "precision") -> pa.Array:
    """Return the main texts of pages (large_string), null for pages that are not chosen."""
    data, offsets = text_buffers(pages)
    sizes = np.diff(offsets)[chosen]
    out = np.empty(int(sizes.sum()) * 3 // 2 + 8, np.uint8)
    least = float(np.log(LEAST[favor] / (1 - LEAST[favor])))
    ends = extract(data, offsets, chosen, least, load_markup(), load_model(), make_tree(int(sizes.max(initial=0))), out)
    texts = text_column(out, np.concatenate([[0], ends]), pages, pa.large_string())
    return pc.if_else(pa.array(chosen), texts, pa.scalar(None, pa.large_string()))
