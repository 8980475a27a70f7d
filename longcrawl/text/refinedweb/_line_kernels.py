"""Line-wise corrections over Arrow's string buffers: one pass decides about each line and writes what is left of it."""

# To look for a byte in a tuple, numba compiles functions of its own:
# ruff: noqa: SIM109, PLR1714
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import NUMERIC, SPACE, UPPER, WORD
from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.memory import (
    TESTED,
    count_bits,
    find_byte,
    find_capitals,
    find_digits,
    find_high,
    find_line_feeds,
    find_others,
    find_spaces,
    highest_bit,
    lowest_bit,
)
from longcrawl.kernels.phrase_trees import OTHERS, step
from longcrawl.kernels.phrases import PhraseTree
from longcrawl.kernels.utf8 import copy, decode, skip_space

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]
Facts = npt.NDArray[np.int64]

UPPERCASE, NUMERICAL, COUNTER, PREFIX, SUFFIX, ANYWHERE, LINE = (1 << bit for bit in range(7))
KINDS = {
    "uppercase": UPPERCASE,
    "numerical": NUMERICAL,
    "counter": COUNTER,
    "prefix": PREFIX,
    "suffix": SUFFIX,
    "anywhere": ANYWHERE,
    "line": LINE,
}
"""The rules that flag a line, in the order in which they are tried; an edited line can have several of the last."""

AT_THE_END = SUFFIX | COUNTER | LINE
AFTER_NUMBER = 1
"""The root of phrases that follow a number, counted from the root of those that do not."""
KEEP = -1
"""In place of a root: a document that is not looked at."""

FIRST, STOP, WORDS, CHARACTERS, SOLID, UPPERS, NUMERICS, CORE, CORE_STOP = range(9)
"""What is known of a line: the bytes of its content, counts, and the bytes from its first to last word character."""
FACTS = 9

NEWLINE = 0x0A
_COMMA, _DOT, _PLUS, _K, _M, _B = b",.+kmb"
SPACE_BAR = np.uint32(0x20)
_UNDERSCORE = 0x5F
_U = np.uint64
_EVERY = _U(0xFFFFFFFFFFFFFFFF)


class Limits(NamedTuple):
    """Thresholds; one that is switched off is out of reach."""

    uppercase: float
    """A line with a larger share of upper-case characters goes."""
    numerical: float
    """A line with at least this share of numerical characters among those other than space goes."""
    short: int
    """A line of more words is not edited."""


@compiled
def _read_line(data: Bytes, at: int, end: int, flag_of: Flags, line: Facts) -> int:
    """Write what is known of the line that starts at a byte; gives where the next one starts."""
    line[:] = 0
    line[FIRST] = line[CORE] = -1
    line[STOP] = line[CORE_STOP] = at
    ended, spaces, inside, first = False, 0, _U(0), np.int64(data.ctypes.data)
    while at < end and not ended:
        block = min(at + TESTED, end)
        taken = _EVERY if at + TESTED <= end else (_U(1) << _U(end - at)) - _U(1)
        if at + TESTED <= len(data) and find_high(first + at) & taken == _U(0):
            feeds = find_line_feeds(first + at) & taken
            if feeds != _U(0):
                taken &= feeds ^ (feeds - _U(1))
            ended = feeds != _U(0)
            spaces, inside = _read_ascii(first + at, at, taken, spaces, inside, line)
            at += count_bits(taken)
            continue
        while at < block and not ended:
            point, after = decode(data, at)
            flag = flag_of[point]
            if flag & SPACE:
                inside = _U(0)
                spaces += 1
                ended = point == NEWLINE
            else:
                line[WORDS] += inside == _U(0)
                line[CHARACTERS] += 1 + (spaces if line[FIRST] >= 0 else 0)
                line[FIRST] = at if line[FIRST] < 0 else line[FIRST]
                spaces, inside = 0, _U(1)
                line[SOLID] += 1
                line[UPPERS] += (flag & UPPER) != 0
                line[NUMERICS] += (flag & NUMERIC) != 0
                if flag & WORD:
                    line[CORE] = at if line[CORE] < 0 else line[CORE]
                    line[CORE_STOP] = after
                line[STOP] = after
            at = after
    return at


@compiled
def _read_ascii(
    address: int, at: int, taken: np.uint64, spaces: int, inside: np.uint64, line: Facts
) -> tuple[int, np.uint64]:
    """Add to what is known of a line the characters of a block in ASCII that have a bit in ``taken``.

    ``spaces`` are before them, and ``inside`` is 1 where a word is. Return how many spaces come last then, and whether
    the last character is none.
    """
    blank = find_spaces(address) & taken
    solid = taken & ~blank
    if solid == _U(0):
        return spaces + count_bits(blank), _U(0)
    begin, last = lowest_bit(solid), highest_bit(solid)
    behind = count_bits(blank >> _U(last))
    digits = find_digits(address)
    word = (~find_others(address) | digits | find_byte(address, _UNDERSCORE)) & taken
    line[WORDS] += count_bits(solid & ~(solid << _U(1) | inside))
    line[CHARACTERS] += count_bits(taken) - behind
    if line[FIRST] < 0:
        line[FIRST] = at + begin
        line[CHARACTERS] -= begin
    else:
        line[CHARACTERS] += spaces
    line[STOP] = at + last + 1
    line[SOLID] += count_bits(solid)
    line[UPPERS] += count_bits(find_capitals(address) & taken)
    line[NUMERICS] += count_bits(digits & taken)
    if word != _U(0):
        line[CORE] = at + lowest_bit(word) if line[CORE] < 0 else line[CORE]
        line[CORE_STOP] = at + highest_bit(word) + 1
    return behind, solid >> _U(63)


@compiled
def _walk(data: Bytes, at: int, stop: int, wanted: int, flag_of: Flags, tree: PhraseTree, root: int) -> tuple[int, int]:
    """Return the kind and the end of the longest phrase of a wanted kind that starts at a byte; kind 0 for none.

    A run of white space counts as one space bar. A phrase that ends in a word character is not followed by another.
    """
    kind, end, node = 0, at, root
    while at < stop:
        point, after = decode(data, at)
        flag = flag_of[point]
        if flag & SPACE:
            point, after = SPACE_BAR, skip_space(data, after, stop, flag_of)
        node = step(tree, node, point)
        if node < 0:
            break
        at = after
        found = tree.kinds[node] & wanted
        if at < stop:
            found &= ~AT_THE_END
            if found and flag & WORD and flag_of[decode(data, at)[0]] & WORD:
                found = 0
        if found:
            kind, end = found & -found, at
    return kind, end


@compiled
def _skip_number(data: Bytes, at: int, stop: int, flag_of: Flags) -> int:
    """Return the end of a number such as 3, 1,234 or 1.2K+ that starts at a byte, and of white space after it."""
    start = at
    while at < stop:
        point, after = decode(data, at)
        if not (flag_of[point] & NUMERIC or (at > start and (point == _COMMA or point == _DOT))):
            break
        at = after
    if at < stop and _is_scale(data[at]) and (at + 1 == stop or not flag_of[decode(data, at + 1)[0]] & WORD):
        at += 1
    if at < stop and data[at] == _PLUS:
        at += 1
    return skip_space(data, at, stop, flag_of)


@compiled
def _is_scale(byte: int) -> bool:
    """Whether a byte is the K, M or B, in either case, of thousands, millions and billions."""
    letter = byte | 0x20
    return letter == _K or letter == _M or letter == _B


@compiled
def _match(
    data: Bytes, at: int, stop: int, wanted: int, flag_of: Flags, tree: PhraseTree, root: int
) -> tuple[int, int]:
    """As ``_walk``, for phrases that follow a number as well."""
    kind, end, point = 0, at, decode(data, at)[0]
    if tree.begins[min(point, OTHERS)]:
        kind, end = _walk(data, at, stop, wanted, flag_of, tree, root)
    if kind == 0 and flag_of[point] & NUMERIC:
        after = _skip_number(data, at, stop, flag_of)
        kind, end = _walk(data, after, stop, wanted, flag_of, tree, root + AFTER_NUMBER)
    return kind, end


@compiled
def _write_piece(
    data: Bytes, start: int, stop: int, flag_of: Flags, out: Bytes, begin: int, place: int
) -> tuple[int, int]:
    """Write a stretch of an edited line without white space at its ends: where it ends, and how many words it has.

    A space bar parts it from what was written from ``begin`` on.
    """
    words, inside, last = 0, False, start
    start = skip_space(data, start, stop, flag_of)
    at = start
    while at < stop:
        point, after = decode(data, at)
        solid = not flag_of[point] & SPACE
        words += solid and not inside
        inside = solid
        at = after
        if solid:
            last = at
    if words:
        if place > begin:
            out[place] = SPACE_BAR
            place += 1
        place = copy(data, start, last, out, place)
    return place, words


@compiled
def _edit(
    data: Bytes, start: int, stop: int, flag_of: Flags, tree: PhraseTree, root: int, out: Bytes, begin: int
) -> tuple[int, int, int]:
    """Write a line's content without its phrases: which kinds there were, where it ends, how many words are left."""
    at, kept, place, kinds, words, in_word = start, start, begin, 0, 0, False
    while at < stop:
        point, after = decode(data, at)
        word = flag_of[point] & WORD != 0
        if not (in_word and word) and (tree.begins[min(point, OTHERS)] or flag_of[point] & NUMERIC):
            wanted = PREFIX | SUFFIX | ANYWHERE if at == start else SUFFIX | ANYWHERE
            kind, end = _match(data, at, stop, wanted, flag_of, tree, root)
            if kind:
                place, more = _write_piece(data, kept, at, flag_of, out, begin, place)
                words += more
                kinds |= kind
                kept = at = end
                in_word = False
                continue
        in_word = word
        at = after
    if kinds:
        place, more = _write_piece(data, kept, stop, flag_of, out, begin, place)
        words += more
    return kinds, place, words


@compiled
def _flag(data: Bytes, line: Facts, flag_of: Flags, limits: Limits, tree: PhraseTree, root: int) -> int:
    """Return the rule by which a line goes as a whole, 0 for none."""
    if line[UPPERS] / line[CHARACTERS] > limits.uppercase:
        return UPPERCASE
    if line[NUMERICS] / line[SOLID] >= limits.numerical:
        return NUMERICAL
    if line[CORE] >= 0 and flag_of[decode(data, line[CORE])[0]] & NUMERIC:
        after = _skip_number(data, line[CORE], line[CORE_STOP], flag_of)
        counter = _walk(data, after, line[CORE_STOP], np.int64(COUNTER), flag_of, tree, root + AFTER_NUMBER)[0]
        if counter:
            return counter
    return _match(data, line[FIRST], line[STOP], np.int64(LINE), flag_of, tree, root)[0]


@allocating
def correct_lines(
    data: Bytes,
    offsets: Any,
    roots: npt.NDArray[np.int32],
    flag_of: Flags,
    tree: PhraseTree,
    limits: Limits,
    out: Bytes,
    ends: Any,
    counts: Any,
    log: Any,
) -> int:
    """Write the corrected documents to ``out``; gives how many lines were flagged.

    Writes ``ends``, shape (documents + 1,); ``counts``, shape (documents, 3): words, words that went, words of flagged
    lines; and to ``log`` as many flagged lines as it has rows: line number, start and stop in ``data``, then in
    ``out``, kinds.
    """
    line = np.empty(FACTS, np.int64)
    place, flagged = np.int64(0), 0
    ends[0] = 0
    for document in range(len(offsets) - 1):
        at, end, root = offsets[document], offsets[document + 1], np.int64(roots[document])
        number, end_of_edit = 0, place
        if root == KEEP:
            place = copy(data, at, end, out, place)
            at = end
        while at < end:
            start, begin = at, place
            at = _read_line(data, at, end, flag_of, line)
            number += 1
            words, left, kinds = line[WORDS], 0, 0
            counts[document, 0] += words
            if words:
                kinds = _flag(data, line, flag_of, limits, tree, root)
                if kinds == 0 and words <= limits.short:
                    begin = copy(data, start, line[FIRST], out, place)
                    kinds, end_of_edit, left = _edit(data, line[FIRST], line[STOP], flag_of, tree, root, out, begin)
            if kinds == 0:
                place = copy(data, start, at, out, place)
                continue
            counts[document, 1] += words - left
            counts[document, 2] += words
            if flagged < len(log):
                # A row at once is an array to numba: checking its shape takes 1.4 s to compile.
                log[flagged, 0], log[flagged, 1], log[flagged, 2] = number, line[FIRST], line[STOP]
                log[flagged, 3], log[flagged, 4], log[flagged, 5] = begin, end_of_edit if left else begin, kinds
            flagged += 1
            if left:
                place = copy(data, line[STOP], at, out, end_of_edit)
        ends[document + 1] = place
    return flagged
