"""Words, lines and paragraphs of raw text over Arrow's string buffers, as numba kernels; no Python object per document.

A word is what stands between white space (``str.isspace``). In scripts that are written without spaces it is, as asked,
the whole run, each character, or what stands between given breaks. Words stay bytes: nothing is decoded but what is not
ASCII, and a word of up to seven bytes is its own key.
"""

# Numba takes arguments by position and compiles plain loops best:
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled, inlined, mixed
from longcrawl.kernels.ngrams import clear
from longcrawl.text.gopher._page_characters import ALPHANUMERIC, MARK, SPACE, UNSPACED
from longcrawl.text.gopher.page_columns import (
    DUPLICATE_CHARACTERS,
    DUPLICATES,
    EACH_CHARACTER,
    LATER_CHARACTERS,
    LATER_DUPLICATES,
    SEGMENT_CHARACTERS,
    SEGMENTS,
    WHOLE_RUNS,
)

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_U = np.uint64
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x9E3779B97F4A7C15)
_HASHED = _U(1 << 63)
_NEWLINE = 0x0A
_PACKED = 7
"""Bytes of a word that is its own key; the top bit of the key says that it is a hash."""

_STOP = np.uint16(1 << 15)
"""White space, or the first byte of a character that is not ASCII."""


class Page(NamedTuple):
    """Memory for one document at a time, made for the longest of a batch; what is not touched costs nothing."""

    byte_flags: npt.NDArray[np.uint16]
    """Flags of every byte; of those beyond ASCII only that a word of ASCII stops there."""
    word_begins: Integers
    """Byte at which each word begins."""
    word_ends: Integers
    starts: Integers
    """Where each word starts among the characters of all words, and where the last ends."""
    word_places: Integers
    """Where each word starts among the characters of the document."""
    word_keys: Keys
    word_flags: npt.NDArray[np.uint16]
    """The flags of all characters of a word, or-ed."""
    line_words: Integers
    """The first word of each line, and how many there are."""
    line_begins: Integers
    """Byte at which each line begins; the last entry is one past the last line's newline, or where that would be."""
    line_places: Integers
    """The same in characters."""
    segment_begins: Integers
    segment_ends: Integers
    segment_characters: Integers
    segment_keys: Keys
    ids: npt.NDArray[np.int32]
    """Number of each word, equal for equal words, counted in the order in which they first come."""
    firsts: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]
    grams: npt.NDArray[np.int32]
    gram_firsts: npt.NDArray[np.int32]
    gram_counts: npt.NDArray[np.int32]
    keys: Keys
    table: npt.NDArray[np.int32]


def make_page(longest: int, newlines: int, flag_of: npt.NDArray[np.uint16]) -> Page:
    """Allocate memory for documents of up to ``longest`` bytes and ``newlines`` newlines, split by these flags."""
    byte_flags = np.full(256, _STOP)
    byte_flags[:128] = flag_of[:128] | np.where(flag_of[:128] & SPACE, _STOP, np.uint16(0))
    words, lines = longest // 2 + longest // 3 + 4, min(longest, newlines) + 3
    return Page(
        byte_flags=byte_flags,
        word_begins=np.empty(words, np.int64),
        word_ends=np.empty(words, np.int64),
        starts=np.empty(words, np.int64),
        word_places=np.empty(words, np.int64),
        word_keys=np.empty(words, np.uint64),
        word_flags=np.empty(words, np.uint16),
        line_words=np.empty(lines, np.int64),
        line_begins=np.empty(lines, np.int64),
        line_places=np.empty(lines, np.int64),
        segment_begins=np.empty(lines, np.int64),
        segment_ends=np.empty(lines, np.int64),
        segment_characters=np.empty(lines, np.int64),
        segment_keys=np.empty(lines, np.uint64),
        ids=np.empty(words, np.int32),
        firsts=np.empty(words, np.int32),
        counts=np.empty(words, np.int32),
        places=np.empty(words, np.int32),
        grams=np.empty(words, np.int32),
        gram_firsts=np.empty(words, np.int32),
        gram_counts=np.empty(words, np.int32),
        keys=np.empty(words, np.uint64),
        table=np.empty(max(16, 1 << (2 * max(words, lines)).bit_length()), np.int32),
    )


@inlined
def decode(data: Any, at: int) -> tuple[int, int]:
    """Return the code point that starts at a byte, and how many bytes it has; the text must be valid UTF-8."""
    point, size = np.int64(data[at]), 1
    if point >= 0xF0:
        point = (point & 7) << 18 | (data[at + 1] & 0x3F) << 12 | (data[at + 2] & 0x3F) << 6 | data[at + 3] & 0x3F
        size = 4
    elif point >= 0xE0:
        point = (point & 0xF) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F
        size = 3
    elif point >= 0x80:
        point = (point & 0x1F) << 6 | data[at + 1] & 0x3F
        size = 2
    return point, size


@compiled
def _hash(data: Any, begin: int, end: int) -> np.uint64:
    """Hash the bytes of a long word, eight at a time."""
    found, block = _SEED, _U(0)
    for at in range(begin, end):
        block = block << _U(8) | _U(data[at])
        if (at - begin) & 7 == 7:
            found = (found ^ block) * _PRIME
            found ^= found >> _U(32)
    return (found ^ block) * _PRIME | _HASHED


@compiled
def word_key(data: Any, begin: int, end: int) -> np.uint64:
    """Return the key of a word: its bytes, or a hash if there are more than seven of them."""
    if end - begin > _PACKED:
        return _hash(data, begin, end)
    key = _U(0)
    for at in range(begin, end):
        key = key << _U(8) | _U(data[at])
    return key


@inlined
def _begins_word(flag: int, before: int, at: int, mode: int, breaks: Integers, next_break: int) -> tuple[bool, int]:
    """Whether a word begins inside a run, at a character of a script without spaces or after one."""
    if mode == WHOLE_RUNS or not (flag & UNSPACED or (before & UNSPACED and flag & ALPHANUMERIC)):
        return False, next_break
    if mode == EACH_CHARACTER:
        return flag & MARK == 0, next_break
    while next_break < len(breaks) and breaks[next_break] < at:
        next_break += 1
    return next_break < len(breaks) and breaks[next_break] == at, next_break


@compiled
def split_page(  # noqa: C901, PLR0912, PLR0915  # reading a word in a function of its own takes a fifth of the speed
    data: Any, at: int, end: int, flag_of: Any, mode: int, breaks: Integers, next_break: int, page: Page
) -> tuple[int, int, int, int]:
    """Write words and lines of the document at ``data[at:end]``.

    Args:
        data: uint8, valid UTF-8.
        at: where the document starts.
        end: where it ends.
        flag_of: uint16 [0x110000], the flags of every code point.
        mode: how runs of a script without spaces are cut.
        breaks: ascending bytes at which words begin inside such runs, for ``AT_BREAKS``.
        next_break: the first of them that is not before the document.
        page: written.

    Returns:
        How many words, lines, and letters of scripts without spaces there are, and the next break.

    """
    word, line, unspaced, characters = 0, 0, 0, 0
    # A byte that is no character of its own has been passed over: a place in characters is a byte less those.
    behind, byte_flags = at, page.byte_flags
    page.starts[0] = 0
    page.line_words[0], page.line_begins[0], page.line_places[0] = 0, at, 0
    while at < end:
        byte = data[at]
        flag = byte_flags[byte]
        if flag & SPACE:
            at += 1
            if byte == _NEWLINE:
                line += 1
                page.line_words[line], page.line_begins[line], page.line_places[line] = word, at, at - behind
            continue
        if flag & _STOP:
            point, size = decode(data, at)
            if flag_of[point] & SPACE:
                at += size
                behind += size - 1
                continue
        begin, first, key, seen, before = at, at - behind, _U(0), np.uint16(0), np.uint16(0)
        while True:
            # Most text is ASCII: nothing to decode, and no script without spaces.
            while flag & _STOP == 0:
                seen |= flag
                key = key << _U(8) | _U(byte)
                at += 1
                if at == end:
                    break
                byte = data[at]
                flag = byte_flags[byte]
                before = np.uint16(0)
            if at == end or flag & SPACE:
                break
            point, size = decode(data, at)
            flag = flag_of[point]
            if flag & SPACE:
                break
            if at > begin and (flag | before) & UNSPACED:
                cut, next_break = _begins_word(flag, before, at, mode, breaks, next_break)
                if cut:
                    break
            seen |= flag
            unspaced += flag & UNSPACED != 0
            for step in range(size):
                key = key << _U(8) | _U(data[at + step])
            at += size
            behind += size - 1
            before = flag
            if at == end:
                break
            byte = data[at]
            flag = byte_flags[byte]
            if before & UNSPACED and flag & _STOP == 0:
                cut, next_break = _begins_word(flag, before, at, mode, breaks, next_break)
                if cut:
                    break
        page.word_begins[word], page.word_ends[word], page.word_places[word] = begin, at, first
        page.word_keys[word] = key if at - begin <= _PACKED else _hash(data, begin, at)
        page.word_flags[word] = seen
        characters += at - behind - first
        word += 1
        page.starts[word] = characters
    if at > page.line_begins[line]:
        line += 1
        page.line_words[line], page.line_begins[line], page.line_places[line] = word, at + 1, at + 1 - behind
    page.line_words[line] = word
    return word, line, unspaced, next_break


@compiled
def same_bytes(data: Any, first: int, second: int, length: int) -> bool:
    same = 0
    while same < length and data[first + same] == data[second + same]:
        same += 1
    return same == length


@compiled
def number_words(data: Any, page: Page, words: int) -> int:
    """Write the number of each word, and of each number its first word and its count; give how many there are."""
    table, ids, firsts, counts = page.table, page.ids, page.firsts, page.counts
    keys, begins, ends = page.word_keys, page.word_begins, page.word_ends
    mask = clear(table, words)
    unique = 0
    for word in range(words):
        key, begin = keys[word], begins[word]
        length = ends[word] - begin
        at = mixed(key ^ _U(length)) & mask
        while table[at] != 0:
            other = firsts[table[at] - 1]
            same = keys[other] == key and ends[other] - begins[other] == length
            # A key that is no hash is the word itself.
            if same and (key & _HASHED == _U(0) or same_bytes(data, begins[other], begin, length)):
                break
            at = (at + 1) & mask
        if table[at] == 0:
            firsts[unique] = word
            counts[unique] = 0
            unique += 1
            table[at] = unique
        ids[word] = table[at] - 1
        counts[ids[word]] += 1
    return unique


@compiled
def make_segment(page: Page, segment: int, first: int, last: int) -> None:
    """Make a segment of the words from ``first`` to ``last``, without the white space around them."""
    page.segment_begins[segment], page.segment_ends[segment] = page.word_begins[first], page.word_ends[last]
    length = page.starts[last + 1] - page.starts[last]
    page.segment_characters[segment] = page.word_places[last] + length - page.word_places[first]
    found = _SEED
    for word in range(first, last + 1):
        found = (found ^ page.word_keys[word]) * _PRIME
        found ^= found >> _U(32)
    page.segment_keys[segment] = found


@compiled
def find_lines(page: Page, lines: int) -> int:
    """Make segments of the lines that are not blank, without the white space around them; give how many there are."""
    segment = np.int64(0)
    for line in range(lines):
        first, stop = page.line_words[line], page.line_words[line + 1]
        if stop > first:
            make_segment(page, segment, first, stop - 1)
            segment += 1
    return segment


@compiled
def find_paragraphs(page: Page, lines: int) -> int:
    """Make segments of what stands between blank lines; give how many there are."""
    segment, line = np.int64(0), 0
    while line < lines:
        first = page.line_words[line]
        while line < lines and page.line_words[line + 1] > page.line_words[line]:
            line += 1
        if page.line_words[line] > first:
            make_segment(page, segment, first, page.line_words[line] - 1)
            segment += 1
        line += 1
    return segment


@compiled
def count_segments(data: Any, page: Page, segments: int, row: Any) -> None:
    """Count segments and their characters: all, those that come more than once, and those without their first.

    Args:
        data: uint8, the text.
        page: has the segments; ``table`` and the n-grams' memory are overwritten.
        segments: how many there are.
        row: float64 [6], written in the order of the constants.

    """
    row[:] = 0.0
    mask = clear(page.table, segments)
    begins, ends, keys = page.segment_begins, page.segment_ends, page.segment_keys
    for segment in range(segments):
        length, characters = ends[segment] - begins[segment], page.segment_characters[segment]
        row[SEGMENTS] += 1
        row[SEGMENT_CHARACTERS] += characters
        at = mixed(keys[segment] ^ _U(length)) & mask
        while page.table[at] != 0:
            other = abs(page.table[at]) - 1
            same = keys[other] == keys[segment] and ends[other] - begins[other] == length
            if same and same_bytes(data, begins[other], begins[segment], length):
                break
            at = (at + 1) & mask
        if page.table[at] == 0:
            page.table[at] = segment + 1
            continue
        # The first of several is entered as a negative number once it has been counted.
        times = 2 if page.table[at] > 0 else 1
        page.table[at] = -abs(page.table[at])
        row[DUPLICATES] += times
        row[DUPLICATE_CHARACTERS] += times * characters
        row[LATER_DUPLICATES] += 1
        row[LATER_CHARACTERS] += characters


@compiled
def _walk_runs(data: Any, at: int, end: int, flag_of: Any, runs: Any) -> int:
    """Write as many runs as there is room for; give how many there are."""
    found, begin, unspaced = 0, at, False
    while at < end:
        point, size = decode(data, at)
        flag = flag_of[point]
        unspaced = unspaced or flag & UNSPACED != 0
        if flag & SPACE or at + size == end:
            if unspaced:
                if found < len(runs):
                    runs[found, 0] = begin
                    runs[found, 1] = at if flag & SPACE else at + size
                found += 1
            begin, unspaced = at + size, False
        at += size
    return found


def find_unspaced_runs(data: Any, at: int, end: int, flag_of: Any) -> Integers:
    """Return where what stands between white space has letters of scripts without spaces: int64 [runs, 2], in bytes."""
    runs = np.empty((_walk_runs(data, at, end, flag_of, np.empty((0, 2), np.int64)), 2), np.int64)
    _walk_runs(data, at, end, flag_of, runs)
    return runs
