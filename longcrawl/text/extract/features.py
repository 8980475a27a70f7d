"""Features of the blocks of a page: their text, their neighbours, the elements around them, and the page.

Prose is a block's text outside of links, if it is long, has punctuation and few links. Elements with telling names
(``nav``, ``class="comments"``) count only if they do not also contain most of the page's prose. Repetition is measured
in three ways: siblings of the same kind (cards, posts, rows), blocks at the same place in such siblings, and blocks
with the same text (buttons).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.text.extract.html import (
    BEGIN,
    CAPITALS,
    CODE,
    COMMAS,
    DIGITS,
    ELEMENT,
    END,
    ENDS,
    FIRST,
    FNV,
    GROUPS,
    KINDS,
    LINES,
    LINKED,
    LINKS,
    NAMES,
    PARENT,
    PRIME,
    SIGN,
    STOP,
    TAG,
    TAGS,
    WORDS,
    Tree,
    name_bucket,
    slot_of,
)

_U = np.uint64

PLACES = (
    *("header", "article", "main", "section", "figure", "figcaption", "table", "td", "ul", "ol", "li", "blockquote"),
    *("noscript", "details", "dl", "pre", "p", "h1", "h2", "h3"),
)
"""Tags that characterise the blocks inside them."""
NEAR = (*GROUPS, *PLACES)
FAR = 12
"""Distance that means a tag or group is not around a block; 0 is the block's own element."""
LEVELS = ("parent", "grandparent", "third")
"""Names of the elements around a block's element, by distance."""
WINDOWS = (2, 5, 12)
"""Numbers of blocks on each side over which sums are taken."""

_PAGE = (
    *("page_bytes", "page_blocks", "page_linked", "page_prose", "page_prose_blocks", "page_headings", "page_items"),
    *("page_cells", "page_repeated", "page_twice", "page_articles", "page_mean_bytes", "page_names", "page_words"),
    *("page_ends", "page_digits", "page_paragraphs"),
)
FEATURES = (
    *("bytes", "words", "link_density", "links", "ends", "commas", "lines", "last", "tag", "digits", "capitals"),
    *("word_bytes", "money", "copies", "word_score", "place", "number", "depth", "first_word_score"),
    *(
        f"{side}_{each}"
        for side in ("before2", "before", "after", "after2")
        for each in ("bytes", "linked", "tag", "words")
    ),
    *("since_prose", "until_prose", "since_heading", "heading", "since_h1", "heading_score"),
    *(f"window{size}_{each}" for size in WINDOWS for each in ("prose", "linked", "bytes", "words", "names")),
    *("up_to_core", "up_to_best", "in_best"),
    *(
        f"{level}_{each}"
        for level in LEVELS
        for each in ("bytes", "linked", "blocks", "prose", "prose_density", "siblings", "names", "tag")
    ),
    *("names", "names_sum", "names_least", "names_most"),
    *(f"near_{name}" for name in NEAR),
    *(
        f"{group}_{each}"
        for group in ("nearest", "widest")
        for each in ("up", "count", "share", "linked", "mean_bytes", "number", "prose")
    ),
    *("path_count", "path_mean_bytes", "path_linked", "path_copies", "path_words"),
    *_PAGE,
    *(f"kind_{number}" for number in range(len(KINDS))),
)
"""Features of a block, in the order of its row."""

_UNLIKELY = ("comment", "side", "footer", "related", "navigation", "hidden", "notice", "subscribe", "share")
_UNLIKELY_GROUPS = sum(1 << list(GROUPS).index(name) for name in _UNLIKELY)
_PLACE_OF = np.array([PLACES.index(name) if name in PLACES else -1 for name in TAGS])
_NEVER = np.array([name in ("nav", "footer", "aside", "form") for name in TAGS])
_H1, _H6, _LI, _TD, _TH, _P, _ARTICLE = (CODE[name] for name in ("h1", "h6", "li", "td", "th", "p", "article"))
_GROUPS, _NEAR = len(GROUPS), len(NEAR)
_SHORTEST_PROSE, _PROSE_WITHOUT_MARKS = 60, 200
"""Minimum bytes of prose outside of links, with and without punctuation.

Scripts without spaces may have only punctuation that is not known here.
"""
_REPEATED = 3
"""Minimum number of siblings that count as repeated."""
FIRST_WORDS = 16
"""Number of words of a block that are looked up."""


class Scores(NamedTuple):
    """Log-odds of content by the hash of a word, shape (2**NAME_BITS + 1,) each."""

    names: npt.NDArray[np.float32]
    """Words of classes, ids, roles and itemprops."""
    words: npt.NDArray[np.float32]
    """First words of blocks."""


class Page(NamedTuple):
    """Facts about the elements and blocks of a page."""

    size: npt.NDArray[np.float64]
    """Shape (blocks + 1,): bytes before each block; likewise ``linked``, ``prose``, ``word`` and ``name``."""
    linked: npt.NDArray[np.float64]
    prose: npt.NDArray[np.float64]
    word: npt.NDArray[np.float64]
    name: npt.NDArray[np.float64]
    words: npt.NDArray[np.float32]
    """Shape (blocks,): score of the first words of a block."""
    first: npt.NDArray[np.float32]
    """Shape (blocks,): score of the first word of a block."""
    money: npt.NDArray[np.int8]
    """Shape (blocks,): number of currency signs."""
    copies: npt.NDArray[np.int32]
    """Shape (blocks,): number of blocks with the same text."""
    original: npt.NDArray[np.int32]
    """Shape (blocks,): the first block with the same length and beginning."""
    near: npt.NDArray[np.int8]
    """Shape (elements, near): levels up to the next element with each tag or group, ``FAR`` at most."""
    in_core: npt.NDArray[np.bool_]
    """Shape (elements,): whether an element and all around it contain at least half of the page's prose."""
    names: npt.NDArray[np.float32]
    """Shape (elements, 4): score of an element's names, and the sum, least and greatest of those around it."""
    depths: npt.NDArray[np.int16]
    """Shape (elements,): number of elements around an element."""
    group: npt.NDArray[np.int32]
    """Shape (elements,): number of the group of siblings with the same tag and classes."""
    turn: npt.NDArray[np.int32]
    """Shape (elements,): number of an element in its group."""
    nearest: npt.NDArray[np.int32]
    """Shape (elements, 2): the innermost repeated element around each, and the one from the largest group; or -1."""
    groups: npt.NDArray[np.float64]
    """Shape (groups, 4): elements of a group, and their bytes, bytes in links, and prose."""
    path: npt.NDArray[np.int32]
    """Shape (blocks,): number of the blocks' path: tags and classes of the three innermost elements."""
    paths: npt.NDArray[np.float64]
    """Shape (paths, 5): blocks with a path, and their bytes, bytes in links, copies, and word scores."""
    facts: npt.NDArray[np.float32]
    """Shape (facts,): features of the page."""
    best: npt.NDArray[np.int64]
    """Shape (1,): the element with the most prose close below it."""


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


@compiled
def read_words(text: Any, at: int, end: int, buckets: Any) -> tuple[int, int]:
    """Store the buckets of the first words of a text, in lower case; return how many, and the currency signs."""
    count, money, key, letters = 0, 0, _U(FNV), 0
    while at < end and count < len(buckets):
        byte = np.int64(text[at])
        at += 1
        if 65 <= byte <= 90 or 97 <= byte <= 122 or byte >= 128:
            if (byte == 0x82 and at > 2 and text[at - 3] == 0xE2) or (byte in (0xA3, 0xA5) and text[at - 2] == 0xC2):
                money += 1
            key = (key ^ _U(byte | 32 if byte < 128 else byte)) * _U(PRIME)
            letters += 1
            continue
        money += byte == 36
        if letters:
            buckets[count] = name_bucket(key)
            count += 1
            key, letters = _U(FNV), 0
    if letters and count < len(buckets):
        buckets[count] = name_bucket(key)
        count += 1
    return count, money


@compiled
def _add_sums(tree: Tree, elements: int, blocks: int, page: Page, everything: Any, unlikely: Any) -> None:
    """Sum up the blocks; prose in comments, menus and the like is not counted, unless there is hardly any other."""
    for number in range(blocks):
        block = tree.blocks[number]
        page.size[number + 1] = page.size[number] + block[END] - block[BEGIN]
        page.linked[number + 1] = page.linked[number] + block[LINKED]
        page.word[number + 1] = page.word[number] + page.words[number]
        page.name[number + 1] = page.name[number] + page.names[block[ELEMENT], 1]
        everything[number + 1] = everything[number] + _prose_of(block)
    for element in range(1, elements):
        row = tree.elements[element]
        says_so = tree.marks[element] & _UNLIKELY_GROUPS != 0 or _NEVER[row[TAG]]
        is_small = _between(everything, row) < 0.6 * everything[blocks]
        unlikely[element] = unlikely[row[PARENT]] or (says_so and is_small)
    for number in range(blocks):
        counts = not unlikely[tree.blocks[number, ELEMENT]]
        page.prose[number + 1] = page.prose[number] + (everything[number + 1] - everything[number]) * counts
    if page.prose[blocks] < 0.2 * everything[blocks]:
        for number in range(blocks + 1):
            page.prose[number] = everything[number]


@compiled
def _best_element(tree: Tree, elements: int, blocks: int, prose_before: Any, score: Any) -> int:
    """Return the element with the most prose below it, discounted at each level."""
    best = 0
    for number in range(blocks):
        prose = prose_before[number + 1] - prose_before[number]
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


@compiled
def _look_around(tree: Tree, elements: int, blocks: int, page: Page) -> None:
    """Find the tags and groups near each element, ignoring elements that contain most of the prose."""
    near, prose = page.near, page.prose
    for element in range(elements):
        row = tree.elements[element]
        holds_most = prose[blocks] > 0 and _between(prose, row) >= 0.5 * prose[blocks]
        page.in_core[element] = element == 0 or (page.in_core[row[PARENT]] and holds_most)
        if page.in_core[element]:
            for place in range(_NEAR):
                near[element, place] = FAR
            continue
        for place in range(_NEAR):
            near[element, place] = min(near[row[PARENT], place] + 1, FAR)
        for group in range(_GROUPS):
            if tree.marks[element] >> group & 1:
                near[element, group] = 0
        if _PLACE_OF[row[TAG]] >= 0:
            near[element, _GROUPS + _PLACE_OF[row[TAG]]] = 0


@compiled
def _score_names(tree: Tree, elements: int, scores: Scores, page: Page) -> None:
    for element in range(elements):
        parent, total, count = tree.elements[element, PARENT], np.float32(0), 0
        for each in range(NAMES):
            bucket = tree.names[element, each]
            if bucket == 0:
                break
            total += scores.names[bucket]
            count += 1
        row, above = page.names[element], page.names[parent]
        row[0] = total / max(count, 1)
        if element == 0:
            row[1] = row[2] = row[3] = row[0]
            page.depths[0] = 0
            continue
        page.depths[element] = page.depths[parent] + 1
        row[1], row[2], row[3] = above[1] + row[0], min(above[2], row[0]), max(above[3], row[0])


@compiled
def _find_groups(tree: Tree, elements: int, page: Page, keys: Any) -> None:
    """Number the groups of siblings of the same kind that contain blocks, and find the repeated ones."""
    for element in range(elements):
        row = tree.elements[element]
        if row[FIRST] == row[STOP]:
            continue
        key = (_U(row[PARENT]) << _U(32) | _U(np.int64(row[SIGN]) & 0xFFFFFFFF)) + _U(1)
        slot = slot_of(keys, key)
        keys[slot] = key
        page.group[element] = slot
        sums = page.groups[slot]
        page.turn[element] = np.int32(sums[0])
        sums[0] += 1
        sums[1] += _between(page.size, row)
        sums[2] += _between(page.linked, row)
        sums[3] += _between(page.prose, row)
    for element in range(elements):
        row = tree.elements[element]
        if element:
            page.nearest[element, 0] = page.nearest[row[PARENT], 0]
            page.nearest[element, 1] = page.nearest[row[PARENT], 1]
        if row[FIRST] == row[STOP] or page.groups[page.group[element], 0] < _REPEATED:
            continue
        page.nearest[element, 0] = element
        widest = page.nearest[element, 1]
        if widest < 0 or page.groups[page.group[element], 1] > page.groups[page.group[widest], 1]:
            page.nearest[element, 1] = element


@compiled
def _find_paths(tree: Tree, blocks: int, page: Page, keys: Any) -> None:
    for number in range(blocks):
        element, key = tree.blocks[number, ELEMENT], _U(FNV)
        for _ in range(3):
            key = (key ^ _U(np.int64(tree.elements[element, SIGN]) & 0xFFFFFFFF)) * _U(PRIME)
            element = tree.elements[element, PARENT]
        slot = slot_of(keys, key | _U(1))
        keys[slot] = key | _U(1)
        page.path[number] = slot
        sums, block = page.paths[slot], tree.blocks[number]
        sums[0] += 1
        sums[1] += block[END] - block[BEGIN]
        sums[2] += block[LINKED]
        sums[3] += page.copies[number]
        sums[4] += page.words[number]


@compiled
def _find_copies(tree: Tree, blocks: int, page: Page, keys: Any, counts: Any, firsts: Any, slots: Any) -> None:
    for number in range(blocks):
        begin, end = tree.blocks[number, BEGIN], tree.blocks[number, END]
        key = _U(FNV) ^ _U(end - begin)
        for at in range(begin, min(end, begin + 64)):
            key = (key ^ _U(tree.text[at])) * _U(PRIME)
        slot = slot_of(keys, key | _U(1))
        keys[slot] = key | _U(1)
        slots[number] = slot
        if counts[slot] == 0:
            firsts[slot] = number
        counts[slot] += 1
    for number in range(blocks):
        page.copies[number], page.original[number] = counts[slots[number]], firsts[slots[number]]


@compiled
def _score_words(tree: Tree, blocks: int, scores: Scores, page: Page, buckets: Any) -> None:
    for number in range(blocks):
        block = tree.blocks[number]
        count, money = read_words(tree.text, block[BEGIN], block[END], buckets)
        total = np.float32(0)
        for each in range(count):
            total += scores.words[buckets[each]]
        page.words[number] = total / np.float32(max(count, 1))
        page.first[number] = scores.words[buckets[0]] if count else 0
        page.money[number] = min(money, 100)


@compiled
def _describe_page(tree: Tree, elements: int, blocks: int, page: Page) -> None:
    facts = page.facts
    size = max(page.size[blocks], 1.0)
    facts[0], facts[1], facts[2] = size, blocks, page.linked[blocks] / size
    facts[3] = page.prose[blocks] / size
    for number in range(blocks):
        block = tree.blocks[number]
        tag = tree.elements[block[ELEMENT], TAG]
        facts[4] += page.prose[number + 1] > page.prose[number]
        facts[5] += _H1 <= tag <= _H6
        facts[6] += tag == _LI
        facts[7] += tag in (_TD, _TH)
        widest = page.nearest[block[ELEMENT], 1]
        facts[8] += (block[END] - block[BEGIN]) / size * (widest >= 0)
        facts[9] += page.copies[number] > 1
        facts[14] += block[ENDS]
        facts[15] += block[DIGITS]
        facts[16] += tag == _P
    for element in range(elements):
        facts[10] += tree.elements[element, TAG] == _ARTICLE
    facts[9] /= max(blocks, 1)
    facts[11] = size / max(blocks, 1)
    facts[12], facts[13] = page.name[blocks] / max(blocks, 1), page.word[blocks] / max(blocks, 1)


@allocating
def study(tree: Tree, elements: int, blocks: int, kinds: int, scores: Scores) -> Page:
    """Return facts about all elements and blocks of a page, in time linear in their number."""
    slots, cells = 16, 16
    while slots < 2 * elements:
        slots *= 2
    while cells < 2 * blocks:
        cells *= 2
    facts = np.zeros(len(_PAGE) + len(KINDS), np.float32)
    page = Page(
        np.zeros(blocks + 1),
        np.zeros(blocks + 1),
        np.zeros(blocks + 1),
        np.zeros(blocks + 1),
        np.zeros(blocks + 1),
        np.zeros(blocks, np.float32),
        np.zeros(blocks, np.float32),
        np.zeros(blocks, np.int8),
        np.zeros(blocks, np.int32),
        np.zeros(blocks, np.int32),
        np.empty((elements, _NEAR), np.int8),
        np.zeros(elements, np.bool_),
        np.zeros((elements, 4), np.float32),
        np.zeros(elements, np.int16),
        np.zeros(elements, np.int32),
        np.zeros(elements, np.int32),
        np.full((elements, 2), -1, np.int32),
        np.zeros((slots, 4)),
        np.zeros(blocks, np.int32),
        np.zeros((cells, 5)),
        facts,
        np.zeros(1, np.int64),
    )
    _score_names(tree, elements, scores, page)
    _score_words(tree, blocks, scores, page, np.zeros(FIRST_WORDS, np.int64))
    _add_sums(tree, elements, blocks, page, np.zeros(blocks + 1), np.zeros(elements, np.bool_))
    _look_around(tree, elements, blocks, page)
    keys, counts, firsts = np.zeros(cells, np.uint64), np.zeros(cells, np.int32), np.zeros(cells, np.int32)
    _find_copies(tree, blocks, page, keys, counts, firsts, np.zeros(blocks, np.int64))
    _find_groups(tree, elements, page, np.zeros(slots, np.uint64))
    _find_paths(tree, blocks, page, np.zeros(cells, np.uint64))
    _describe_page(tree, elements, blocks, page)
    for each in range(len(KINDS)):
        facts[len(_PAGE) + each] = kinds >> each & 1
    page.best[0] = _best_element(tree, elements, blocks, page.prose, np.zeros(elements))
    return page


class Reach(NamedTuple):
    """Distances of each block to others, in blocks."""

    until: npt.NDArray[np.int32]
    """Shape (blocks + 1,): to the next prose."""
    since: npt.NDArray[np.int32]
    """Shape (blocks, 5): to the last prose, heading and h1, then the tag of the last heading and its block."""


@allocating
def measure_reach(tree: Tree, blocks: int, page: Page) -> Reach:
    """Return distances to prose and headings, 50 at most."""
    until, since = np.full(blocks + 1, 50, np.int32), np.zeros((blocks, 5), np.int32)
    for number in range(blocks - 1, -1, -1):
        until[number] = 0 if page.prose[number + 1] > page.prose[number] else min(until[number + 1] + 1, 50)
    prose, heading, title, tag, last = 50, 50, -1, 0, -1
    for number in range(blocks):
        row = since[number]
        row[0], row[1], row[2], row[3], row[4] = prose, heading, title, tag, last
        prose = 0 if until[number] == 0 else min(prose + 1, 50)
        own = tree.elements[tree.blocks[number, ELEMENT], TAG]
        heading = min(heading + 1, 50)
        title = title if title < 0 else min(title + 1, 500)
        if _H1 <= own <= _H6:
            heading, tag, last = 0, own - _H1 + 1, number
            title = 0 if own == _H1 else title
    return Reach(until, since)


@compiled
def _put_block(tree: Tree, number: int, page: Page, row: Any) -> int:
    block = tree.blocks[number]
    size, last = block[END] - block[BEGIN], tree.text[block[END] - 1]
    blocks = len(page.words)
    row[0], row[1], row[2], row[3] = size, block[WORDS], block[LINKED] / size, block[LINKS]
    row[4], row[5], row[6] = block[ENDS], block[COMMAS], block[LINES]
    row[7] = 1 if last in (46, 33, 63) else 2 if last == 58 else 3 if last >= 128 else 4 if 48 <= last <= 57 else 0
    row[8] = tree.elements[block[ELEMENT], TAG]
    row[9], row[10], row[11] = block[DIGITS] / size, block[CAPITALS] / size, size / max(block[WORDS], 1)
    row[12], row[13], row[14] = page.money[number], page.copies[number], page.words[number]
    row[15], row[16] = page.size[number] / page.size[blocks], number
    row[17], row[18] = page.depths[block[ELEMENT]], page.first[number]
    column = 19
    for side in (-2, -1, 1, 2):
        other = number + side
        if 0 <= other < blocks:
            near = tree.blocks[other]
            row[column], row[column + 1] = near[END] - near[BEGIN], near[LINKED] / (near[END] - near[BEGIN])
            row[column + 2], row[column + 3] = tree.elements[near[ELEMENT], TAG], page.words[other]
        else:
            row[column], row[column + 1], row[column + 2], row[column + 3] = 0, 1, -1, 0
        column += 4
    return column


@compiled
def _put_reach(number: int, page: Page, reach: Reach, row: Any, column: int) -> int:
    since, blocks = reach.since[number], len(page.words)
    row[column], row[column + 1], row[column + 2] = since[0], reach.until[number + 1], since[1]
    row[column + 3], row[column + 4] = since[3], since[2]
    row[column + 5] = page.words[since[4]] if since[4] >= 0 else 0
    column += 6
    for reached in WINDOWS:
        first, last = max(0, number - reached), min(blocks, number + reached + 1)
        size = page.size[last] - page.size[first]
        row[column] = (page.prose[last] - page.prose[first]) / size
        row[column + 1] = (page.linked[last] - page.linked[first]) / size
        row[column + 2] = size / (last - first)
        row[column + 3] = (page.word[last] - page.word[first]) / (last - first)
        row[column + 4] = (page.name[last] - page.name[first]) / (last - first)
        column += 5
    return column


@compiled
def _put_around(tree: Tree, number: int, page: Page, row: Any, column: int) -> int:
    own, blocks = tree.blocks[number, ELEMENT], len(page.words)
    best_first, best_stop = tree.elements[page.best[0], FIRST], tree.elements[page.best[0], STOP]
    element, row[column], row[column + 1] = own, 0, 0
    while not page.in_core[element]:
        element = tree.elements[element, PARENT]
        row[column] += 1
    element = own
    while not (tree.elements[element, FIRST] <= best_first and tree.elements[element, STOP] >= best_stop):
        element = tree.elements[element, PARENT]
        row[column + 1] += 1
    row[column + 2] = best_first <= number < best_stop
    column += 3
    element = own
    for _ in range(3):
        element = tree.elements[element, PARENT]
        held = tree.elements[element]
        size, prose = _between(page.size, held), _between(page.prose, held)
        row[column], row[column + 1] = size, _between(page.linked, held) / size
        row[column + 2] = held[STOP] - held[FIRST]
        row[column + 3] = prose / max(page.prose[blocks], 1.0)
        row[column + 4] = prose / size
        row[column + 5] = page.groups[page.group[element], 0]
        row[column + 6], row[column + 7] = page.names[element, 0], held[TAG]
        column += 8
    for each in range(4):
        row[column + each] = page.names[own, each]
    column += 4
    for place in range(_NEAR):
        row[column + place] = page.near[own, place]
    return column + _NEAR


@compiled
def _put_repeats(tree: Tree, number: int, page: Page, row: Any, column: int) -> int:
    own, blocks = tree.blocks[number, ELEMENT], len(page.words)
    for each in range(2):
        element = page.nearest[own, each]
        if element < 0:
            for place in range(7):
                row[column + place] = -1
        else:
            sums = page.groups[page.group[element]]
            row[column] = page.depths[own] - page.depths[element]
            row[column + 1], row[column + 2] = sums[0], sums[1] / page.size[blocks]
            row[column + 3], row[column + 4] = sums[2] / sums[1], sums[1] / sums[0]
            row[column + 5], row[column + 6] = page.turn[element], sums[3] / sums[1]
        column += 7
    sums = page.paths[page.path[number]]
    row[column], row[column + 1], row[column + 2] = sums[0], sums[1] / sums[0], sums[2] / sums[1]
    row[column + 3], row[column + 4] = sums[3] / sums[0], sums[4] / sums[0]
    return column + 5


@compiled
def put_row(tree: Tree, number: int, page: Page, reach: Reach, row: Any) -> int:
    """Write the features of a block; return how many there are."""
    column = _put_block(tree, number, page, row)
    column = _put_reach(number, page, reach, row, column)
    column = _put_around(tree, number, page, row, column)
    column = _put_repeats(tree, number, page, row, column)
    for each in range(len(page.facts)):
        row[column + each] = page.facts[each]
    return column + len(page.facts)
