"""The tree of a page: one pass over its bytes gives its elements and its blocks of text.

It follows HTML's rules for implied end tags, tables and lists (HTML Standard, 13.2.6) as far as they decide which block
a text is in: inline elements are not in the tree, and formatting elements that overlap are not repaired. The time is
linear in the page's bytes, whatever they are.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.memory import TESTED, copy_block, find_blanks, find_marked, lowest_bit
from longcrawl.text.extract._markup import BLOCK, CLOSES_PARAGRAPH, CODE, RAW, SCOPE, TABLE_PART, UNSEEN, Markup
from longcrawl.text.extract._markup_kernels import (
    AND,
    HAS_TARGET,
    LESS,
    SLASH,
    is_letter,
    next_byte,
    put_reference,
    read_attributes,
    skip_declaration,
    skip_raw,
    tag_code,
    wide_space,
)

Bytes = npt.NDArray[np.uint8]

DEEPEST = 256
"""Elements below this depth are not in the tree, as in browsers; their text belongs to the element above."""

TAG, PARENT, FIRST, STOP = range(4)
"""Columns of elements: code of the tag, the element around it, its first block, and the block after its last."""

ELEMENT, BEGIN, END, LINKED, LINKS, WORDS, ENDS, COMMAS, DIGITS, CAPITALS, LINES = range(11)
"""Columns of blocks: the innermost element, where its text begins and ends, bytes in links, links, words, ends of
sentences, commas, digits, capitals, and line breaks."""

_A, _BODY, _BR, _HEAD, _HTML = (CODE[name] for name in ("a", "body", "br", "head", "html"))
_NOSCRIPT, _P, _PRE, _SVG, _TEMPLATE = (CODE[name] for name in ("noscript", "p", "pre", "svg", "template"))
_DD, _DL, _DT, _LI, _MENU, _OL, _UL = (CODE[name] for name in ("dd", "dl", "dt", "li", "menu", "ol", "ul"))
_TABLE, _TBODY, _TD, _TFOOT = (CODE[name] for name in ("table", "tbody", "td", "tfoot"))
_TH, _THEAD, _TR, _H1, _H6 = (CODE[name] for name in ("th", "thead", "tr", "h1", "h6"))

(
    _ELEMENTS,
    _BLOCKS,
    _DEPTH,
    _OVERFLOW,
    _UNSEEN_FROM,
    _PRE_OPEN,
    _BEGIN,
    _PLACE,
    _IN_LINK,
    _LINK_FROM,
    _LINK_DEPTH,
    _LINKED,
    _LINKS,
) = range(13)
_STATE = 13
"""What the scanner knows: numbers of elements and blocks, the depth and what is open below it, from which depth on
nothing is shown, open ``pre``, where the block begins and its text ends, and of links whether one is open, since where
and at which depth, and the bytes and links of this block."""

_U = np.uint64
_SPACE, _NEWLINE = 32, 10
_WIDE_ENDS = tuple(int.from_bytes(mark.encode()) for mark in "\u3002\uff01\uff1f\u0964\u104b\u17d4\u1362")
_WIDE_COMMAS = tuple(int.from_bytes(mark.encode()) for mark in "\u3001\uff0c")
_ARABIC_ENDS, _ARABIC_COMMA = (
    tuple(int.from_bytes(mark.encode()) for mark in "\u061f\u06d4"),
    int.from_bytes("\u060c".encode()),
)


class Tree(NamedTuple):
    """What a page is made of, and what is used to find it; a page of n bytes has at most n // 3 + 2 elements."""

    elements: npt.NDArray[np.int32]
    """Shape (elements, 4), in the order of their start tags."""
    marks: npt.NDArray[np.int64]
    """Shape (elements,): groups of words in class, id and role."""
    blocks: npt.NDArray[np.int32]
    """Shape (blocks, 11), in the order of the page; all blocks of an element are next to each other."""
    text: Bytes
    """The texts of the blocks, decoded, with single spaces."""
    stack: npt.NDArray[np.int32]
    """Shape (DEEPEST + 1,): the open elements."""
    opened: npt.NDArray[np.int32]
    """Shape (256,): how many elements of a tag are open."""


def make_tree(size: int) -> Tree:
    """Return empty arrays for pages of up to ``size`` bytes."""
    most = size // 3 + 2
    return Tree(
        np.empty((most, 4), np.int32),
        np.empty(most, np.int64),
        np.empty((most, 11), np.int32),
        np.empty(size + size // 4 + TESTED + 8, np.uint8),
        np.empty(DEEPEST + 1, np.int32),
        np.empty(256, np.int32),
    )


@compiled
def _measure(text: Bytes, block: Any) -> None:
    """Count what a block's text is made of."""
    words, ends, commas, digits, capitals, lines, inside = 0, 0, 0, 0, 0, 0, False
    at, end = np.int64(block[BEGIN]), np.int64(block[END])
    while at < end:
        byte = np.int64(text[at])
        at += 1
        if byte <= 32:
            inside = False
            lines += byte == _NEWLINE
            continue
        words += not inside
        inside = True
        if 48 <= byte <= 57:
            digits += 1
        elif 65 <= byte <= 90:
            capitals += 1
        elif byte in (46, 33, 63):
            ends += at == end or text[at] <= 32 or text[at] == 34 or text[at] == 39 or text[at] == 41 or text[at] >= 128
        elif byte == 44:
            commas += 1
        elif byte >= 0xD8 and at + 1 < end:
            point = byte << 16 | np.int64(text[at]) << 8 | np.int64(text[at + 1])
            ends += point in _WIDE_ENDS or point >> 8 in _ARABIC_ENDS
            commas += point in _WIDE_COMMAS or point >> 8 == _ARABIC_COMMA
    block[WORDS], block[ENDS], block[COMMAS] = words, ends, commas
    block[DIGITS], block[CAPITALS], block[LINES] = digits, capitals, lines


@compiled
def _end_block(state: Any, tree: Tree) -> None:
    """End the block that is open, where it has text."""
    begin, place = state[_BEGIN], state[_PLACE]
    while place > begin and tree.text[place - 1] <= 32:
        place -= 1
    if state[_IN_LINK]:
        state[_LINKED] += max(0, place - state[_LINK_FROM])
    if place > begin:
        block = tree.blocks[state[_BLOCKS]]
        block[ELEMENT], block[BEGIN], block[END] = tree.stack[state[_DEPTH] - 1], begin, place
        block[LINKED], block[LINKS] = min(state[_LINKED], place - begin), state[_LINKS]
        _measure(tree.text, block)
        state[_BLOCKS] += 1
    state[_BEGIN] = state[_PLACE] = state[_LINK_FROM] = place
    state[_LINKED], state[_LINKS] = 0, state[_IN_LINK]


@compiled
def _end_link(state: Any) -> None:
    if state[_IN_LINK]:
        state[_LINKED] += max(0, state[_PLACE] - state[_LINK_FROM])
        state[_IN_LINK] = 0


@compiled
def _push(state: Any, tree: Tree, code: int, marks: int, markup: Markup) -> None:
    """Begin an element."""
    depth, element = state[_DEPTH], state[_ELEMENTS]
    if depth > DEEPEST:
        state[_OVERFLOW] += 1
        return
    row = tree.elements[element]
    row[TAG], row[PARENT], row[FIRST] = code, tree.stack[depth - 1] if depth else 0, state[_BLOCKS]
    tree.marks[element] = marks
    tree.stack[depth] = element
    tree.opened[code] += 1
    state[_ELEMENTS] += 1
    state[_DEPTH] += 1
    state[_PRE_OPEN] += code == _PRE
    if markup.kinds[code] & UNSEEN and not state[_UNSEEN_FROM]:
        state[_UNSEEN_FROM] = state[_DEPTH]


@compiled
def _pop(state: Any, tree: Tree, depth: int) -> None:
    """End elements until there are ``depth`` of them."""
    while state[_DEPTH] > depth:
        _end_block(state, tree)
        state[_DEPTH] -= 1
        row = tree.elements[tree.stack[state[_DEPTH]]]
        row[STOP] = state[_BLOCKS]
        tree.opened[row[TAG]] -= 1
        state[_PRE_OPEN] -= row[TAG] == _PRE
    if state[_UNSEEN_FROM] > depth:
        state[_UNSEEN_FROM] = 0
    if state[_LINK_DEPTH] > depth:
        _end_link(state)


@compiled
def _depth_of(state: Any, tree: Tree, code: int, barrier: int, markup: Markup) -> int:
    """Return the depth of the innermost open element of a tag, -1 where there is none inside of a barrier."""
    if not tree.opened[code]:
        return -1
    for depth in range(state[_DEPTH] - 1, 0, -1):
        tag = tree.elements[tree.stack[depth], TAG]
        if tag == code:
            return depth
        if markup.kinds[tag] & barrier:
            return -1
    return -1


@compiled
def _end_item(state: Any, tree: Tree, code: int, other: int, markup: Markup) -> None:
    """End the list item that is open in the innermost list."""
    for depth in range(state[_DEPTH] - 1, 0, -1):
        tag = tree.elements[tree.stack[depth], TAG]
        if tag in (code, other):
            _pop(state, tree, depth)
            return
        if tag in (_UL, _OL, _MENU, _DL) or markup.kinds[tag] & (SCOPE | UNSEEN):
            return


@compiled
def _pop_to_table(state: Any, tree: Tree, code: int) -> None:
    """End what is open inside of the innermost table, section of a table, or row, whichever a part of it goes into."""
    depth = state[_DEPTH]
    while True:
        tag = tree.elements[tree.stack[depth - 1], TAG]
        section = tag in (_TBODY, _THEAD, _TFOOT)
        cell = code in (_TD, _TH)
        if tag == _TABLE or (section and (cell or code == _TR)) or (tag == _TR and cell):
            break
        depth -= 1
    _pop(state, tree, depth)


@compiled
def _start(state: Any, tree: Tree, code: int, marks: int, markup: Markup) -> None:
    """Begin an element of the tree, and end those that cannot hold it."""
    kind = markup.kinds[code]
    if code == _HTML or (code == _BODY and tree.opened[_BODY]):
        tree.marks[0] |= marks
        return
    top = tree.elements[tree.stack[state[_DEPTH] - 1], TAG]
    if top == _HEAD and code not in (_NOSCRIPT, _TEMPLATE):
        _pop(state, tree, state[_DEPTH] - 1)
    _end_block(state, tree)
    depth = _depth_of(state, tree, _P, SCOPE | UNSEEN, markup) if kind & CLOSES_PARAGRAPH else -1
    if depth > 0:
        _pop(state, tree, depth)
    if kind & TABLE_PART:
        if not tree.opened[_TABLE]:
            return
        _pop_to_table(state, tree, code)
    elif code == _LI:
        _end_item(state, tree, _LI, _LI, markup)
    elif code in (_DT, _DD):
        _end_item(state, tree, _DT, _DD, markup)
    elif _H1 <= code <= _H6 and _H1 <= tree.elements[tree.stack[state[_DEPTH] - 1], TAG] <= _H6:
        _pop(state, tree, state[_DEPTH] - 1)
    _push(state, tree, code, marks, markup)


@compiled
def _finish(state: Any, tree: Tree, code: int, markup: Markup) -> None:
    """Act on the end tag of an element of the tree."""
    _end_block(state, tree)
    if code in (_BODY, _HTML):
        return
    if state[_OVERFLOW]:
        state[_OVERFLOW] -= 1
        return
    if code == _TABLE or markup.kinds[code] & TABLE_PART:
        depth = -1
        if tree.opened[code]:
            for each in range(state[_DEPTH] - 1, 0, -1):
                tag = tree.elements[tree.stack[each], TAG]
                if tag == code:
                    depth = each
                if tag in (code, _TABLE):
                    break
    else:
        depth = _depth_of(state, tree, code, SCOPE, markup)
    if depth > 0:
        _pop(state, tree, depth)


@compiled
def _put_line(state: Any, tree: Tree) -> None:
    """Write a line break in place of the space before it."""
    place = state[_PLACE]
    if place > state[_BEGIN]:
        place -= tree.text[place - 1] == _SPACE and not state[_PRE_OPEN]
        tree.text[place] = _NEWLINE
        state[_PLACE] = place + 1


@compiled
def _read_text(page: Bytes, at: int, end: int, state: Any, tree: Tree, markup: Markup) -> int:
    """Add text to the block that is open; return the byte of the next ``<``, at which text may go on."""
    text, place, begin, pre = tree.text, state[_PLACE], state[_BEGIN], state[_PRE_OPEN]
    source, target = np.int64(page.ctypes.data), np.int64(text.ctypes.data)
    while at < end:
        byte = page[at]
        if byte == LESS:
            break
        if byte > 32 and byte != AND and byte < 0xC2:
            if pre or at + TESTED > end:
                text[place] = byte
                place += 1
                at += 1
                continue
            spaces = find_blanks(source + at)
            plain = lowest_bit(find_marked(source + at) | spaces & spaces << _U(1))
            copy_block(target + place, source + at)
            at += plain
            place += plain
            continue
        before = place
        if byte == AND:
            at, place = put_reference(page, at, end, text, place, markup)
            width = wide_space(text, before, place)
            space = text[before] <= 32 or width == place - before
        else:
            width = 1 if byte <= 32 else wide_space(page, at, end)
            space = width > 0 and not (pre and byte in (_NEWLINE, _SPACE, 9))
            if place > begin or byte > 32:
                text[place] = byte
                place += 1
            at += max(abs(width), 1)
            while space and not pre and at < end and page[at] <= 32:
                at += 1
        if space or width < 0:
            place = before
            if space and place > begin and text[place - 1] > 32:
                text[place] = _SPACE
                place += 1
    state[_PLACE] = place
    return at


@compiled
def _read_end(state: Any, tree: Tree, code: int, markup: Markup) -> None:
    """Act on an end tag; those of ``br``, and of a paragraph that is not open, are line breaks."""
    if code == _A:
        _end_link(state)
    elif code == _BR or (code == _P and not tree.opened[_P]):
        _put_line(state, tree)
    elif markup.kinds[code] & BLOCK:
        _finish(state, tree, code, markup)


@compiled
def _read_start(state: Any, tree: Tree, code: int, marks: int, closed: Any, markup: Markup) -> None:
    """Act on a start tag; only elements of other languages close themselves."""
    if code == _A:
        _end_link(state)
        if marks & HAS_TARGET:
            state[_IN_LINK], state[_LINK_FROM], state[_LINK_DEPTH] = 1, state[_PLACE], state[_DEPTH]
            state[_LINKS] += 1
    elif code == _BR:
        if not state[_UNSEEN_FROM]:
            _put_line(state, tree)
    elif markup.kinds[code] & BLOCK and not (closed and (code == _SVG or tree.opened[_SVG])):
        _start(state, tree, code, marks & ~HAS_TARGET, markup)


@compiled
def _read_tag(page: Bytes, at: int, end: int, state: Any, tree: Tree, markup: Markup) -> int:
    """Act on the tag at ``<``; return the byte behind it, and behind what it holds where that is not mark-up."""
    closing = page[at + 1] == SLASH
    code, at = tag_code(page, at + 1 + closing, end, markup)
    wanted = not closing and (markup.kinds[code] & BLOCK or code == _A)
    marks, at, closed = read_attributes(page, at, end, markup, wanted)
    if closing:
        _read_end(state, tree, code, markup)
    elif not markup.kinds[code] & RAW:
        _read_start(state, tree, code, marks, closed, markup)
    elif not (closed and tree.opened[_SVG]):
        at = skip_raw(page, at, end, code, markup)
    return at


@allocating
def scan(page: Bytes, tree: Tree, markup: Markup) -> tuple[int, int]:
    """Fill a tree with a page, UTF-8; return how many elements and blocks it has."""
    state = np.zeros(_STATE, np.int64)
    tree.opened[:] = 0
    _push(state, tree, _HTML, 0, markup)
    at, end = 0, len(page)
    while at < end:
        if page[at] == LESS and at + 1 < end:
            byte = page[at + 1]
            if is_letter(byte) or (byte == SLASH and at + 2 < end and is_letter(page[at + 2])):
                at = _read_tag(page, at, end, state, tree, markup)
                continue
            if byte in (33, 63, SLASH):
                at = skip_declaration(page, at, end)
                continue
        if page[at] == LESS:
            if not state[_UNSEEN_FROM]:
                tree.text[state[_PLACE]] = LESS
                state[_PLACE] += 1
            at += 1
        at = next_byte(page, at, end, LESS) if state[_UNSEEN_FROM] else _read_text(page, at, end, state, tree, markup)
    _pop(state, tree, 0)
    return state[_ELEMENTS], state[_BLOCKS]
