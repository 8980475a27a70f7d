"""Extraction engine "blocks": a model that decides which blocks of a page are main content.

A page is divided into blocks of text in reading order. Decision trees give each block a probability from its
``features``. Rows of tables, lists, code and quotations get one probability for all their text, so they are kept or
removed whole. Of repeated texts, one copy is kept. The threshold of a page maximises the expected F1 of the kept text.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import one_line, shortened
from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.texts import copy, text_buffers, text_column
from longcrawl.text.extract.features import FEATURES, Page, Scores, measure_reach, put_row, study
from longcrawl.text.extract.html import (
    BEGIN,
    CODE,
    ELEMENT,
    END,
    FIRST,
    LINK_COUNT,
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
    values: npt.NDArray[np.float32]
    """Shape (nodes,): the value of a leaf, 0 for other nodes."""
    roots: npt.NDArray[np.uint16]
    """Shape (trees,): the first node of each tree."""
    depths: npt.NDArray[np.int64]
    """Shape (trees,): the number of steps to the deepest leaf."""


class Model(NamedTuple):
    """Trees, and scores of words that are among their features."""

    trees: Trees
    scores: Scores


ROWS = 8
"""Rows that walk through the trees together, so the processor does not wait for one node after the other."""


@compiled
def add_up(trees: Trees, first: int, last: int, rows: Any, nodes: Any, totals: Any) -> None:
    """Store the sums of some trees for ``ROWS`` rows of float32; ``nodes`` is scratch memory, uint64 [ROWS]."""
    for row in range(ROWS):
        totals[row] = 0.0
    for number in range(first, last):
        for row in range(ROWS):
            nodes[row] = trees.roots[number]
        for _ in range(trees.depths[number]):
            for row in range(ROWS):
                node = nodes[row]
                right = rows[row, _U(trees.features[node])] > trees.thresholds[node]
                nodes[row] = trees.children[_U(2) * node + _U(right)]
        for row in range(ROWS):
            totals[row] += trees.values[nodes[row]]


def make_trees(trees: Sequence[Mapping[str, Any]]) -> Trees:
    """Merge all trees into one table of nodes.

    Args:
        trees: for each tree, the ``features`` of its inner nodes by number, ``thresholds``, ``children`` and
            ``leaves``; a negative child is the complement of a leaf's number.
    """
    features, roots = list[int](), list[int]()
    thresholds, values, children = list[float](), list[float](), list[list[int]]()
    for tree in trees:
        root, inner, leaves = len(features), len(tree["features"]), len(tree["leaves"])
        roots.append(root)
        features += [*tree["features"], *[0] * leaves]
        thresholds += [*tree["thresholds"], *[0.0] * leaves]
        values += [*[0.0] * inner, *tree["leaves"]]
        following = [[root + (child if child >= 0 else inner + ~child) for child in pair] for pair in tree["children"]]
        children += [*following, *([root + inner + leaf] * 2 for leaf in range(leaves))]
    return Trees(
        np.array(features, np.uint16),
        _rounded_down(np.array(thresholds, np.float64)),
        np.array(children, np.uint16).ravel(),
        np.array(values, np.float32),
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

Style = Literal["text", "markdown", "markdown with links"]
STYLES: tuple[Style, ...] = ("text", "markdown", "markdown with links")

LENIENCE: dict[Favor, float] = {"precision": 1.0, "balanced": 0.75, "recall": 0.5}
"""Factor of the minimum probability at which a block is content."""
LEAST, MOST = 0.08, 0.95
"""Bounds of this minimum probability."""

MODEL = Path(__file__).parent / "blocks.npz"
"""Trees and scores, trained on pages of WCXB (CC-BY-4.0)."""

_LI, _TABLE, _TR, _TD, _TH, _H1, _H6 = (CODE[name] for name in ("li", "table", "tr", "td", "th", "h1", "h6"))
_PRE_TAG, _BLOCKQUOTE = CODE["pre"], CODE["blockquote"]
_FENCE, _FENCE_END, _ROW_END, _RULE = tuple(b"```\n"), tuple(b"\n```"), tuple(b" |"), tuple(b"| --- ")
_WHOLE = np.array([name in ("ul", "ol", "dl", "pre", "blockquote", "figcaption") for name in TAGS])
"""Elements that are kept or removed whole."""
_LARGEST_CELL, _LARGEST_UNIT = 1000, 8000
"""Maximum bytes of a cell of data, and of a list or quotation that is kept or removed whole; larger ones are layout."""
LEAST_WORDS = 5
"""Minimum words of a block of which only one copy is kept, and whose copies have the same label in training."""
_LEAST_WORDS_OF_UNIT = 20
"""Minimum words of a block in a list, quotation or code of which only one copy is kept."""
_BYTES_PER_WORD = 12
"""Bytes that count as a word for these minimums, for scripts without spaces."""
_MOST_ODDS = 8.0
"""Bound of the absolute log-odds of a block."""
_BINS, _BIN_WIDTH = 256, 0.05
"""Number and width of the steps of log-odds, around 0, from which the threshold is chosen."""


class Cells(NamedTuple):
    """Rows of data among the elements of a page."""

    row: npt.NDArray[np.int32]
    """Shape (elements,): the row of data around an element, or -1."""
    cell: npt.NDArray[np.int32]
    """Shape (elements,): number of the cell around an element in this row, from 0 on."""


@compiled
def _chance(odds: float) -> float:
    """Convert log-odds to a probability."""
    return 1.0 / (1.0 + np.exp(-odds))


@allocating
def find_cells(tree: Tree, elements: int, page: Page) -> Cells:
    """Find the rows of data: each of their cells is small and contains no table."""
    rows, cells = np.full(elements, -1, np.int32), np.zeros(elements, np.int32)
    layout, counts = np.zeros(elements, np.bool_), np.zeros(elements, np.int32)
    for element in range(elements - 1, 0, -1):
        row = tree.elements[element]
        size = page.size[row[STOP]] - page.size[row[FIRST]]
        nested = layout[element] and row[TAG] != _TR
        layout[row[PARENT]] |= row[TAG] == _TABLE or nested or (row[TAG] in (_TD, _TH) and size > _LARGEST_CELL)
    for element in range(1, elements):
        row = tree.elements[element]
        parent = row[PARENT]
        rows[element], cells[element] = rows[parent], cells[parent]
        if row[TAG] == _TR:
            rows[element] = -1 if layout[element] else element
        elif row[TAG] in (_TD, _TH) and tree.elements[parent, TAG] == _TR:
            cells[element] = counts[parent]
            counts[parent] += 1
    return Cells(rows, cells)


@compiled
def _table_of(tree: Tree, row: int) -> int:
    """Return the table around a row, or 0."""
    while row and tree.elements[row, TAG] != _TABLE:
        row = tree.elements[row, PARENT]
    return row


@allocating
def unite(tree: Tree, elements: int, page: Page, cells: Cells, odds: Any) -> Any:
    """Set the blocks of a unit to the log-odds of their mean probability, by bytes; return which blocks are in a unit.

    Units are tables of data or else their rows, lists, quotations, code and captions. The outermost unit counts.
    """
    united = np.zeros(len(odds), np.bool_)
    content = np.zeros(len(odds) + 1)
    for number in range(len(odds)):
        content[number + 1] = content[number] + _chance(odds[number]) * (page.size[number + 1] - page.size[number])
    data = np.zeros(elements, np.int32)
    for element in range(elements):
        row = tree.elements[element]
        if row[TAG] == _TR:
            table = _table_of(tree, element)
            data[table] = -1 if cells.row[element] < 0 or data[table] < 0 else 1
    stop = 0
    for element in range(elements):
        row = tree.elements[element]
        first, last = row[FIRST], row[STOP]
        if last - first < 2 or last <= stop:
            continue
        size = page.size[last] - page.size[first]
        is_unit = row[TAG] == _TABLE and data[element] > 0 and size <= _LARGEST_UNIT
        is_unit |= row[TAG] == _TR and cells.row[element] == element
        is_unit |= _WHOLE[row[TAG]] and size <= _LARGEST_UNIT
        if is_unit:
            mean = (content[last] - content[first]) / size
            even = np.log(mean / (1 - mean))
            for number in range(first, last):
                odds[number], united[number] = even, True
            stop = last
    return united


@compiled
def _same_text(tree: Tree, number: int, other: int) -> bool:
    at, end, shift = tree.blocks[number, BEGIN], tree.blocks[number, END], tree.blocks[other, BEGIN]
    same = tree.blocks[other, END] - shift == end - at
    shift -= at
    while same and at < end:
        same = tree.text[at] == tree.text[at + shift]
        at += 1
    return same


@allocating
def drop_copies(tree: Tree, page: Page, cells: Cells, united: Any, odds: Any) -> None:
    """Set the log-odds of all copies of a text, except the likeliest, to the minimum.

    Pages have text twice for wide and narrow screens, in carousels and in quotations. Cells and short texts may repeat,
    and so may siblings, as a refrain does.
    """
    best = np.full(len(odds), -1, np.int64)
    for number in range(len(odds)):
        first, element = page.original[number], tree.blocks[number, ELEMENT]
        least = _LEAST_WORDS_OF_UNIT if united[number] else LEAST_WORDS
        size = tree.blocks[number, END] - tree.blocks[number, BEGIN]
        short = tree.blocks[number, WORDS] < least and size < _BYTES_PER_WORD * least
        if page.copies[number] == 1 or short or cells.row[element] >= 0 or not _same_text(tree, number, first):
            continue
        known = best[first]
        if known < 0 or odds[number] > odds[known]:
            best[first] = number
        parent = tree.elements[element, PARENT]
        if known >= 0 and tree.elements[tree.blocks[known, ELEMENT], PARENT] != parent:
            odds[known if best[first] == number else number] = -_MOST_ODDS


@allocating
def choose_threshold(page: Page, odds: Any, lenience: float) -> float:
    """Return the minimum log-odds of kept blocks.

    The threshold maximises F1 = 2 * right / (kept + content) with expected numbers of bytes; its probability is then
    multiplied by ``lenience``.
    """
    sizes, right = np.zeros(_BINS), np.zeros(_BINS)
    content = 0.0
    for number in range(len(odds)):
        size = page.size[number + 1] - page.size[number]
        step = np.int64(np.floor(odds[number] / _BIN_WIDTH)) + _BINS // 2
        step = min(max(step, 0), _BINS - 1)
        sizes[step] += size
        right[step] += size * _chance(odds[number])
        content += size * _chance(odds[number])
    best, chosen, kept, kept_right = -1.0, 0, 0.0, 0.0
    for step in range(_BINS - 1, -1, -1):
        kept += sizes[step]
        kept_right += right[step]
        f1 = 2 * kept_right / max(kept + content, 1e-9)
        if sizes[step] > 0 and f1 > best:
            best, chosen = f1, step
    least = min(max(_chance((chosen - _BINS // 2) * _BIN_WIDTH) * lenience, LEAST), MOST)
    return np.log(least / (1 - least))


FIRST_TREES = 100
"""Trees that all blocks walk through."""
SURE = 2.0
"""Absolute log-odds after the first trees above which a block skips the others: F1 is the same, in half the time."""


@allocating
def _add_trees(
    tree: Tree, page: Page, reach: Any, trees: Trees, first_tree: int, last_tree: int, numbers: Any, odds: Any
) -> None:
    """Add the sums of some trees to the log-odds of the blocks with these numbers."""
    rows, nodes, totals = np.zeros((ROWS, len(FEATURES)), np.float32), np.zeros(ROWS, np.uint64), np.zeros(ROWS)
    for first in range(0, len(numbers), ROWS):
        some = numbers[first : first + ROWS]
        for row in range(len(some)):
            put_row(tree, some[row], page, reach, rows[row])
        add_up(trees, first_tree, last_tree, rows, nodes, totals)
        for row in range(len(some)):
            odds[some[row]] += totals[row]


@allocating
def judge(tree: Tree, elements: int, blocks: int, kinds: int, model: Model) -> tuple[Any, Page, Cells]:
    """Return the log-odds of each block, float64 [blocks], and facts about the page."""
    page = study(tree, elements, blocks, kinds, model.scores)
    reach, cells = measure_reach(tree, blocks, page), find_cells(tree, elements, page)
    odds, count = np.zeros(blocks), min(FIRST_TREES, len(model.trees.roots))
    _add_trees(tree, page, reach, model.trees, 0, count, np.arange(blocks), odds)
    unsure = np.flatnonzero((odds > -SURE) & (odds < SURE))
    _add_trees(tree, page, reach, model.trees, count, len(model.trees.roots), unsure, odds)
    odds[:] = np.minimum(np.maximum(odds, -_MOST_ODDS), _MOST_ODDS)
    united = unite(tree, elements, page, cells, odds)
    drop_copies(tree, page, cells, united, odds)
    return odds, page, cells


@compiled
def _pad_row(column: int, cell: int, out: Bytes, place: int) -> int:
    """Write a " | " for each step between two cells of a row."""
    for _ in range(cell - column):
        out[place], out[place + 1], out[place + 2] = 32, 124, 32
        place += 3
    return place


@compiled
def _separate_cells(column: int, cell: int, out: Bytes, place: int) -> int:
    """Write the separator between two blocks of a row: a space within a cell."""
    if cell == column:
        out[place] = 32
        return place + 1
    return _pad_row(column, cell, out, place)


@compiled
def _separate(tree: Tree, cells: Cells, number: int, before: int, out: Bytes, place: int) -> int:
    """Write the separator before a block: " | " between cells, also empty ones, " " in a cell, else a line break.

    A list item begins with "- ".
    """
    element = tree.blocks[number, ELEMENT]
    row, cell = cells.row[element], cells.cell[element]
    if before >= 0 and row >= 0 and cells.row[tree.blocks[before, ELEMENT]] == row:
        return _separate_cells(cells.cell[tree.blocks[before, ELEMENT]], cell, out, place)
    if before >= 0:
        out[place] = 10
        place += 1
    if row >= 0:
        for _ in range(cell):
            out[place], out[place + 1] = 124, 32
            place += 2
        return place
    while element and tree.elements[element, TAG] != _LI and tree.elements[element, FIRST] == number:
        element = tree.elements[element, PARENT]
    if tree.elements[element, TAG] == _LI and tree.elements[element, FIRST] == number:
        out[place], out[place + 1] = 45, 32
        place += 2
    return place


@compiled
def _write_text(tree: Tree, cells: Cells, odds: Any, enough: float, out: Bytes, place: int) -> int:
    before = -1
    for block in range(len(odds)):
        if odds[block] >= enough:
            place = _separate(tree, cells, block, before, out, place)
            place = copy(tree.text, tree.blocks[block, BEGIN], tree.blocks[block, END], out, place)
            before = block
    return place


_PLAIN, _PRE, _QUOTE, _HEADING, _ITEM, _ROW = range(6)
"""Kinds of blocks in Markdown."""
_DEEPEST_ITEM = 6


@compiled
def _kind_of(tree: Tree, cells: Cells, number: int) -> tuple[int, int]:
    """Return the kind of a block, and the heading, item or row around it."""
    element = tree.blocks[number, ELEMENT]
    if cells.row[element] >= 0:
        return _ROW, cells.row[element]
    while element:
        tag = tree.elements[element, TAG]
        if _H1 <= tag <= _H6:
            return _HEADING, element
        if tag == _PRE_TAG:
            return _PRE, element
        if tag == _LI:
            return _ITEM, element
        if tag == _BLOCKQUOTE:
            return _QUOTE, element
        element = tree.elements[element, PARENT]
    return _PLAIN, 0


@compiled
def _put_all(out: Bytes, place: int, text: Any) -> int:
    for byte in text:
        out[place] = byte
        place += 1
    return place


@compiled
def _put_item(tree: Tree, number: int, item: int, out: Bytes, place: int) -> int:
    """Write the indent of a list item, and its mark if the block is its first."""
    depth, around = 0, tree.elements[item, PARENT]
    while around:
        depth += tree.elements[around, TAG] == _LI
        around = tree.elements[around, PARENT]
    for _ in range(2 * min(depth, _DEEPEST_ITEM)):
        out[place] = 32
        place += 1
    first = tree.elements[item, FIRST] == number
    out[place], out[place + 1] = 45 if first else 32, 32
    return place + 2


@compiled
def _put_content(page: Bytes, tree: Tree, number: int, kind: int, links: Any, out: Bytes, place: int) -> int:
    """Write the text of a block with its links; ``links`` is [next link, number of links]."""
    at, end = np.int64(tree.blocks[number, BEGIN]), np.int64(tree.blocks[number, END])
    while at < end:
        while links[0] < links[1] and tree.links[links[0], 0] < at:
            links[0] += 1
        opened = links[0] < links[1] and tree.links[links[0], 0] == at and kind != _PRE
        stop = np.int64(min(tree.links[links[0], 1], end)) if opened else end
        if not opened and links[0] < links[1] and kind != _PRE:
            stop = np.int64(min(tree.links[links[0], 0], end))
        if opened:
            out[place] = 91
            place += 1
        while at < stop:
            byte = tree.text[at]
            if byte == 124 and kind == _ROW:
                out[place] = 92
                place += 1
            out[place] = 32 if byte == 10 and kind in (_ROW, _HEADING) else byte
            place += 1
            at += 1
        if opened:
            out[place], out[place + 1] = 93, 40
            place = copy(page, tree.links[links[0], 2], tree.links[links[0], 3], out, place + 2)
            out[place] = 41
            place += 1
            links[0] += 1
    return place


_KIND, _AROUND, _COLUMN, _LAST_TABLE = range(4)
"""State of the Markdown writer: the last block's kind, the element of that kind, its cell, and the last table."""


@compiled
def _end_unit(tree: Tree, state: Any, around: int, out: Bytes, place: int) -> int:
    """End code or a row if the next block is not part of it; the first row of a table is its header."""
    if around == state[_AROUND]:
        return place
    if state[_KIND] == _PRE:
        return _put_all(out, place, _FENCE_END)
    if state[_KIND] != _ROW:
        return place
    table = _table_of(tree, state[_AROUND])
    place = _put_all(out, place, _ROW_END)
    if table != state[_LAST_TABLE]:
        out[place] = 10
        place += 1
        for _ in range(state[_COLUMN] + 1):
            place = _put_all(out, place, _RULE)
        out[place] = 124
        place += 1
    state[_LAST_TABLE] = table
    return place


@compiled
def _begin_block(
    tree: Tree, cells: Cells, number: int, kind: int, around: int, state: Any, out: Bytes, place: int
) -> int:
    """Write the line breaks and the mark before a block."""
    cell = cells.cell[tree.blocks[number, ELEMENT]]
    if kind == _ROW and around == state[_AROUND]:
        return _separate_cells(state[_COLUMN], cell, out, place)
    if state[_KIND] >= 0:
        tight = kind == state[_KIND] and kind in (_ITEM, _ROW, _PRE)
        out[place], out[place + 1] = 10, 10
        place += 1 if tight else 2
    if kind == _ROW:
        out[place], out[place + 1] = 124, 32
        place = _pad_row(0, cell, out, place + 2)
    elif kind == _PRE and around != state[_AROUND]:
        place = _put_all(out, place, _FENCE)
    else:
        place = _put_mark(tree, number, kind, around, out, place)
    return place


@compiled
def _put_mark(tree: Tree, number: int, kind: int, around: int, out: Bytes, place: int) -> int:
    """Write the mark of a heading, an item or a quotation."""
    if kind == _HEADING:
        for _ in range(tree.elements[around, TAG] - _H1 + 1):
            out[place] = 35
            place += 1
        out[place] = 32
        place += 1
    elif kind == _ITEM:
        place = _put_item(tree, number, around, out, place)
    elif kind == _QUOTE:
        out[place], out[place + 1] = 62, 32
        place += 2
    return place


@compiled
def _write_markdown(
    page: Bytes, tree: Tree, cells: Cells, odds: Any, enough: float, state: Any, links: Any, out: Bytes, place: int
) -> int:
    """Write kept blocks as Markdown: headings, lists, tables, quotations, code in fences, and links."""
    state[:] = -1
    for block in range(len(odds)):
        if odds[block] >= enough:
            kind, around = _kind_of(tree, cells, block)
            place = _end_unit(tree, state, around, out, place)
            place = _begin_block(tree, cells, block, kind, around, state, out, place)
            place = _put_content(page, tree, block, kind, links, out, place)
            state[_KIND], state[_AROUND], state[_COLUMN] = kind, around, cells.cell[tree.blocks[block, ELEMENT]]
    return _end_unit(tree, state, -2, out, place)


@allocating
def extract(
    data: Bytes,
    offsets: Any,
    chosen: Any,
    lenience: float,
    style: int,
    markup: Markup,
    model: Model,
    tree: Tree,
    out: Bytes,
) -> Any:
    """Write the main text of pages; return the end of each text.

    Args:
        data: the pages, UTF-8.
        offsets: start of each page and end of the last, int64 [pages + 1].
        chosen: whether a page is extracted, bool [pages]; the text of others is empty.
        lenience: factor of the minimum probability of content.
        style: 0 for text, 1 for Markdown without links, 2 with links.
        markup: the tables of the scanner.
        model: the model of blocks.
        tree: scratch memory for the largest page.
        out: uint8, at least 1.5 times as long as all chosen pages, for Markdown 6 times.
    """
    place, ends, links = 0, np.zeros(len(chosen), np.int64), np.zeros(2, np.int64)
    state = np.zeros(4, np.int64)
    for number in range(len(chosen)):
        if chosen[number]:
            content = data[offsets[number] : offsets[number + 1]]
            elements, blocks, kinds = scan(content, tree, markup)
            if blocks:
                odds, page, cells = judge(tree, elements, blocks, kinds, model)
                enough = choose_threshold(page, odds, lenience)
                if style == 0:
                    place = _write_text(tree, cells, odds, enough, out, place)
                else:
                    links[0], links[1] = 0, tree.found[LINK_COUNT] * (style == 2)
                    place = _write_markdown(content, tree, cells, odds, enough, state, links, out, place)
        ends[number] = place
    return ends


class Block(NamedTuple):
    """A block of a page and its probability of being content."""

    text: str
    chance: float
    kept: bool


@cache
def load_model() -> Model:
    """Load the model shipped with longcrawl, which ``benchmarks/train_extraction.py`` trains."""
    with np.load(MODEL, allow_pickle=False) as file:
        trees = Trees(*(file[name] for name in Trees._fields))
        scores = Scores(*(file[name].astype(np.float32) / 32 for name in Scores._fields))
    return Model(trees, scores)


def read_blocks(page: str, favor: Favor = "precision") -> list[Block]:
    """Return the blocks of a page in reading order, with their probabilities."""
    data = np.frombuffer(page.encode(), np.uint8)
    tree = make_tree(len(data))
    elements, blocks, kinds = scan(data, tree, load_markup())
    if not blocks:
        return []
    odds, facts, _ = judge(tree, elements, blocks, kinds, load_model())
    least = choose_threshold(facts, odds, LENIENCE[favor])
    texts = [tree.text[block[BEGIN] : block[END]].tobytes().decode() for block in tree.blocks[:blocks]]
    chances = 1 / (1 + np.exp(-odds))
    return [Block(*each) for each in zip(texts, chances.tolist(), (odds >= least).tolist(), strict=True)]


def extract_blocks(
    pages: pa.Array, chosen: npt.NDArray[np.bool_], favor: Favor = "precision", style: Style = "text"
) -> pa.Array:
    """Return the main texts of pages (large_string), null for pages that are not chosen."""
    data, offsets = text_buffers(pages)
    sizes = np.diff(offsets)[chosen]
    number = STYLES.index(style)
    out = np.empty(int(sizes.sum()) * (6 if number else 3) // (1 if number else 2) + 64, np.uint8)
    tree = make_tree(int(sizes.max(initial=0)))
    ends = extract(data, offsets, chosen, LENIENCE[favor], number, load_markup(), load_model(), tree, out)
    texts = text_column(out, np.concatenate([[0], ends]), pages, pa.large_string())
    return pc.if_else(pa.array(chosen), texts, pa.scalar(None, pa.large_string()))


_WIDTH = 100
"""Characters of a block that a :class:`PageExplanation` prints."""


@dataclass(frozen=True)
class PageExplanation:
    """The blocks of a page in reading order; in a notebook the kept ones are green, the removed ones grey."""

    blocks: tuple[Block, ...]
    note: str | None = None
    """Texts that do not come from blocks, or the reason why there are no blocks."""

    def summary(self) -> str:
        """Return the number of kept blocks, and the note."""
        kept = f"{sum(block.kept for block in self.blocks)} of {len(self.blocks)} blocks are kept"
        if self.note is None:
            return kept
        return one_line(f"{kept}; {self.note}" if self.blocks else self.note)

    def lines(self, most: int) -> list[str]:
        """Return a line per block with at most ``most`` characters of its text."""
        texts = [one_line(shortened(" ".join(block.text.split()), most)) for block in self.blocks]
        marks = ["+" if block.kept else "-" for block in self.blocks]
        return [
            f"{mark} {block.chance:.2f} {text}" for mark, block, text in zip(marks, self.blocks, texts, strict=True)
        ]

    def __str__(self) -> str:
        """Return a line per block: "+" if it is kept, else "-"; its probability; and the beginning of its text."""
        return "\n".join([self.summary(), *self.lines(_WIDTH)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self.summary())}</p>"]
        for kept, blocks in groupby(self.blocks, lambda block: block.kept):
            texts = "".join(
                f"<p title='{block.chance:.2f}'>{_score(block)} {html.escape(block.text)}</p>" for block in blocks
            )
            look = "background:#dff3df;color:#111" if kept else "color:#999"
            parts.append(f"<div style='{look};padding:0 .5em;white-space:pre-wrap'>{texts}</div>")
        return "".join(parts)


def _score(block: Block) -> str:
    green = round(120 * block.chance)
    return f"<small style='background:hsl({green},70%,80%);color:#111'>{block.chance:.2f}</small>"


def explain_page(page: str, favor: Favor = "precision") -> PageExplanation:
    """Explain which blocks of a page the engine "blocks" keeps, with the probability that each is content.

    Args:
        page: HTML.
        favor: preference in doubtful cases, as for :class:`~longcrawl.text.ExtractText`.

    >>> story = "<p>The tide came in at noon, and the boats went out to sea with it, as on every day.</p>" * 3
    >>> print(explain_page(f"<nav><a href=/>Home</a></nav><article>{story}</article>").blocks[0].kept)
    False
    """
    return PageExplanation(tuple(read_blocks(page, favor)))
