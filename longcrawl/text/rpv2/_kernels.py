"""RedPajama-V2's signals over Arrow's string buffers, line by line, as numba kernels; no Python object per document.

A line is decoded into code points and their flags, small enough to stay in the cache while its raw words, its
normalised words and its line signals are found. What needs the whole document is in ``_repetition_kernels``.
"""

# Numba takes arguments by position and compiles plain loops best:
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import (
    ASCII_LETTER,
    BULLET,
    CAPITAL_SIGMA,
    CASED,
    FINAL_SIGMA,
    IGNORABLE,
    LOWER,
    NUMERIC,
    PLAIN,
    PUNCTUATION,
    RAW_SPACE,
    RAW_WORD,
    SENTENCE_END,
    SPACE,
    SYMBOL,
    TERMINAL,
    UPPER,
    WORD,
    Characters,
)
from longcrawl.kernels.lookup import compiled, find_word, inlined, round_to_8_digits
from longcrawl.kernels.word_lists import Vocabulary

Row = npt.NDArray[np.float64]
Points = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.uint16]

CHARACTERS, LINES, RAW_WORDS, LETTER_WORDS, CAPITAL_WORDS, STOP_WORDS = range(6)
SENTENCES, SYMBOLS, BRACES, ELLIPSIS_LINES, WORDS, WORD_CHARACTERS, IN_SENTENCE = range(6, 13)
"""Columns of what is counted per document; the last is a state: whether the sentence has had a word character."""
COUNTS = 13

TERMINAL_LINE, JAVASCRIPT, LINE_WORDS, NUMERIC_FRACTION, BULLET_LINE, UPPER_FRACTION = range(6)
"""Rows of the line values, in the order of ``LINE_SIGNALS``."""

_U = np.uint64
HASHED = _U(1 << 63)
BLOCK = 4096
"""Code points that are decoded before the next pass looks at them: few enough for the processor's first cache."""

NEWLINE, ELLIPSIS = 0x0A, 0x2026
PLAIN_OR_SPACE = PLAIN | SPACE
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x100000001B3)
MOST_PER_BYTE = 2
"""No character's normal form has more code points per byte of its UTF-8."""

_FEW = 24
"""Combining marks in a row that are sorted by insertion; longer rows, which only attacks have, are counted."""


class Scratch(NamedTuple):
    """Memory for one document at a time, made for the longest of a batch; what is not touched costs nothing."""

    points: Points
    flags: Flags
    normal: Points
    """The normalised words, one after the other without spaces."""
    starts: npt.NDArray[np.int64]
    """Where each word starts in ``normal``, and where the last ends."""
    word_keys: npt.NDArray[np.uint64]
    """The bytes of an ASCII word of up to eight characters; of others a hash, with the top bit set."""
    ids: npt.NDArray[np.int32]
    """Number of each word, equal for equal words, counted in the order in which they first come."""
    places: npt.NDArray[np.int32]
    """The words at which a repeated n-gram starts, ascending."""
    grams: npt.NDArray[np.int32]
    """The number of the n-gram at each of ``places``."""
    firsts: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    gram_firsts: npt.NDArray[np.int32]
    gram_counts: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    table: npt.NDArray[np.int32]


def make_scratch(longest: int) -> Scratch:
    """Allocate memory for documents of up to ``longest`` bytes."""
    words = longest // 2 + 4
    return Scratch(
        np.empty(longest + 1, np.uint32),
        np.empty(longest + 1, np.uint16),
        np.empty(MOST_PER_BYTE * longest + 1, np.uint32),
        np.empty(words, np.int64),
        np.empty(words, np.uint64),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.int32),
        np.empty(words, np.uint64),
        np.empty(1 << (2 * words).bit_length(), np.int32),
    )


@compiled
def _key(normal: Points, start: int, stop: int) -> np.uint64:
    """Return the key of a word that is longer than eight characters, or not ASCII: a hash whose top bit is set."""
    found = _SEED
    for at in range(start, stop):
        found = (found ^ _U(normal[at])) * _PRIME
    return found | HASHED


JAVASCRIPT_KEY = _key(np.frombuffer(b"javascript", np.uint8).astype(np.uint32), 0, 10)


@compiled
def _decode(
    data: Any,
    at: int,
    end: int,
    base: int,
    flag_of: Flags,
    points: Points,
    flags: Flags,
    ends: Any,
    values: Any,
    line: int,
) -> tuple[int, int, int]:
    """Decode whole lines until there are about ``BLOCK`` code points: the next byte, how many points, the next line.

    Writes where each line ends, counted from ``base``, and how many of its code points are upper case.
    """
    count, upper = 0, 0
    while at < end:
        point = np.uint32(data[at])
        if point < 0x80:
            at += 1
        elif point < 0xE0:
            point = (point & 0x1F) << 6 | data[at + 1] & 0x3F
            at += 2
        elif point < 0xF0:
            point = (point & 0xF) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F
            at += 3
        else:
            point = (point & 7) << 18 | (data[at + 1] & 0x3F) << 12 | (data[at + 2] & 0x3F) << 6 | data[at + 3] & 0x3F
            at += 4
        flag = flag_of[point]
        points[count] = point
        flags[count] = flag
        count += 1
        upper += (flag & UPPER) != 0
        if point == NEWLINE or at == end:
            ends[line] = base + count
            values[line, UPPER_FRACTION] = upper
            line += 1
            upper = 0
            if count >= BLOCK:
                break
    return at, count, line


@compiled
def _count_symbols(points: Points, flags: Flags, start: int, stop: int, row: Row) -> None:
    """Count what is special in a raw word of punctuation: ends of sentences, braces, and # ... … as symbols."""
    dots = 0
    for at in range(start, stop):
        point = points[at]
        dots = dots + 1 if point == ord(".") else 0
        if dots == 3 or point == ord("#") or point == ELLIPSIS:
            row[SYMBOLS] += 1
            dots = 0
        row[BRACES] += point == ord("{") or point == ord("}")
        if flags[at] & SENTENCE_END:
            row[IN_SENTENCE] = 0
        elif flags[at] & WORD:
            _start_sentence(row)


@inlined
def _start_sentence(row: Row) -> None:
    row[SENTENCES] += 1 - row[IN_SENTENCE]
    row[IN_SENTENCE] = 1


@compiled
def _raw_words(points: Points, flags: Flags, count: int, stop_words: Vocabulary, language: int, row: Row) -> None:
    r"""Count the matches of ``\w+|[^\w\s]+``, and the sentences: stretches without .!? that have a word character."""
    at, raw, letters, capitals, stops = np.int64(0), 0, 0, 0, 0
    while at < count:
        seen = flags[at]
        start = at
        at += 1
        if seen & RAW_SPACE:
            continue
        kind = seen & RAW_WORD
        while at < count and flags[at] & (RAW_WORD | RAW_SPACE) == kind:
            seen |= flags[at]
            at += 1
        raw += 1
        letters += (seen & ASCII_LETTER) != 0
        capitals += (seen & (UPPER | LOWER)) == UPPER
        stops += find_word(stop_words, language, points, start, at) >= 0
        if seen & SYMBOL:
            _count_symbols(points, flags, start, at, row)
        elif seen & WORD:
            _start_sentence(row)
    row[RAW_WORDS] += raw
    row[LETTER_WORDS] += letters
    row[CAPITAL_WORDS] += capitals
    row[STOP_WORDS] += stops


@compiled
def _is_final_sigma(flags: Flags, at: int, count: int) -> bool:
    """Whether a capital sigma comes after a cased character and before none, ignorable ones passed over."""
    before = at - 1
    while before >= 0 and flags[before] & IGNORABLE:
        before -= 1
    if before < 0 or not flags[before] & CASED:
        return False
    after = at + 1
    while after < count and flags[after] & IGNORABLE:
        after += 1
    return after == count or not flags[after] & CASED


@compiled
def _order_marks(normal: Points, start: int, stop: int, combining: npt.NDArray[np.uint8]) -> None:
    """Bring every row of combining marks into canonical order: by class, stable."""
    at = start
    while at < stop:
        first = at
        while at < stop and combining[normal[at]] != 0:
            at += 1
        if at - first > _FEW:
            classes = combining[normal[first:at]]
            normal[first:at] = normal[first:at][np.argsort(classes, kind="mergesort")]
        else:
            for place in range(first + 1, at):
                mark = normal[place]
                while place > first and combining[normal[place - 1]] > combining[mark]:
                    normal[place] = normal[place - 1]
                    place -= 1  # noqa: PLW2901  # the mark walks back to its place
                normal[place] = mark
        at += 1


@compiled
def _normalise(
    points: Points, flags: Flags, at: int, count: int, characters: Characters, normal: Points, end: int
) -> tuple[int, int]:
    """Write the normal form of a character that is not plain: where it ends, and how many of it are numeric."""
    place = np.int64(characters.mapped[points[at]])
    length = np.int64(characters.sequences[place])
    for step in range(length):
        normal[end + step] = characters.sequences[place + 2 + step]
    if points[at] == CAPITAL_SIGMA and _is_final_sigma(flags, at, count):
        normal[end] = FINAL_SIGMA
    return end + length, np.int64(characters.sequences[place + 1])


@compiled
def _words(
    points: Points,
    flags: Flags,
    base: int,
    lines: tuple[int, int],
    ends: Any,
    values: Any,
    characters: Characters,
    normal: Points,
    starts: Any,
    keys: Any,
    word: int,
) -> int:
    """Append the normalised words of a block of lines to ``normal``, ``starts`` and ``keys``, which hold ``word`` now.

    Writes of each line how many words it has, how many of them are "javascript", and the share of numeric characters.
    """
    mapped, combining, end, at = characters.mapped, characters.combining, starts[word], np.int64(0)
    for line in range(lines[0], lines[1]):
        stop, first, line_start, numerics, scripts = ends[line] - base, word, end, 0, 0
        while at < stop:
            start, key, seen, marked = end, _U(0), np.uint32(0), False
            while at < stop:
                flag = flags[at]
                if flag & PLAIN_OR_SPACE == PLAIN:
                    point = mapped[points[at]]
                    normal[end] = point
                    seen |= point
                    key = key << _U(8) | _U(point)
                    numerics += (flag & NUMERIC) != 0
                    end += 1
                elif flag & SPACE:
                    break
                elif not flag & PUNCTUATION:
                    end, more = _normalise(points, flags, at, stop, characters, normal, end)
                    numerics += more
                    marked = True
                at += 1
            at += 1
            if end > start:
                if marked:
                    _order_marks(normal, start, end, combining)
                if marked or seen > 0x7F or end - start > 8:
                    key = _key(normal, start, end)
                    scripts += end - start == 10 and key == JAVASCRIPT_KEY
                keys[word] = key
                word += 1
                starts[word] = end
        at = stop
        values[line, LINE_WORDS] = word - first
        values[line, JAVASCRIPT] = scripts
        length = end - line_start + max(word - first - 1, 0)
        values[line, NUMERIC_FRACTION] = round_to_8_digits(numerics / length) if length > 0 else 0.0
    return word


@compiled
def _line_ends(
    points: Points, flags: Flags, base: int, lines: tuple[int, int], ends: Any, values: Any, row: Row
) -> None:
    """Write the signals that look at the first and the last character of a line that are no space, and round shares."""
    start = 0
    for line in range(lines[0], lines[1]):
        stop = ends[line] - base
        first, last = start, stop - 1
        while first < stop and flags[first] & SPACE:
            first += 1
        while last > first and flags[last] & SPACE:
            last -= 1
        some = first < stop
        values[line, TERMINAL_LINE] = some and flags[last] & TERMINAL != 0
        values[line, BULLET_LINE] = some and flags[first] & BULLET != 0
        values[line, UPPER_FRACTION] = round_to_8_digits(values[line, UPPER_FRACTION] / (stop - start))
        if (some and points[last] == ELLIPSIS) or (
            last >= first + 2 and points[last] == points[last - 1] == points[last - 2] == ord(".")
        ):
            row[ELLIPSIS_LINES] += 1
        start = stop


@compiled
def read_lines(
    data: Any,
    at: int,
    end: int,
    characters: Characters,
    stop_words: Vocabulary,
    language: int,
    scratch: Scratch,
    row: Row,
    ends: Any,
    values: Any,
    line: int,
) -> int:
    """Read a document of lines from byte ``at`` on: add to its counts, write its line signals, give the next line.

    The normalised words are written to ``scratch``.
    """
    points, flags, word = scratch.points, scratch.flags, np.int64(0)
    row[LINES] = -line
    while at < end:
        base, first = np.int64(row[CHARACTERS]), line
        at, count, line = _decode(data, at, end, base, characters.flags, points, flags, ends, values, line)
        _raw_words(points, flags, count, stop_words, language, row)
        lines = (first, line)
        word = _words(
            points,
            flags,
            base,
            lines,
            ends,
            values,
            characters,
            scratch.normal,
            scratch.starts,
            scratch.word_keys,
            word,
        )
        _line_ends(points, flags, base, lines, ends, values, row)
        row[CHARACTERS] += count
    row[LINES] += line
    row[WORDS] = word
    row[WORD_CHARACTERS] = scratch.starts[word]
    return line
