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

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import (
    WRITTEN,
    count_bits,
    eight_at,
    find_continuations,
    find_high,
    find_line_feeds,
    find_others,
    find_rare_breaks,
    find_spaces,
    lowest_bit,
    write_places,
)
from longcrawl.kernels.ngrams import HASHED, Repeats, forget, make_repeats, note, number_words
from longcrawl.kernels.utf8 import decode
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_characters import ALPHANUMERIC, ALPHANUMERIC_FIRST, LINE_BREAK, MARK, SPACE, UNSPACED

Integers = npt.NDArray[np.int64]

_U = np.uint64
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x9E3779B97F4A7C15)
_OTHER_PRIME = _U(0xFF51AFD7ED558CCD)
_NEWLINE = 0x0A
PACKED = 7
"""Bytes of a word that is its own key: they and their number."""
_LENGTH_AT = _U(8 * PACKED)

_LAST_BIT = _U(1 << 63)
_TO_FIRST = np.uint16(ALPHANUMERIC_FIRST // ALPHANUMERIC)
BLOCK = 64
"""Bytes that are looked at together."""
SURE = 56
"""Of them those after the first that is not at the start of a byte of bits."""


class Texts(NamedTuple):
    """The documents of a batch, and how they are split into words."""

    data: npt.NDArray[np.uint8]
    """Valid UTF-8 of all documents."""
    offsets: Integers
    """Shape (documents + 1,): the byte at which each document starts."""
    flags: npt.NDArray[np.uint16]
    """Shape (0x110000,): the flags of every code point."""
    mode: int
    """How runs of a script without spaces are cut."""
    breaks: Integers
    """Ascending bytes at which words begin inside such runs, for ``AT_BREAKS``."""


class Page(NamedTuple):
    """Memory for one document at a time, made for the longest of a batch; what is not touched costs nothing."""

    others: npt.NDArray[np.uint64]
    """A bit for each byte that is no letter of ASCII."""
    continuations: npt.NDArray[np.uint64]
    """A bit for each byte that belongs to a character that began before it."""
    behind: Integers
    """How many of these are before each 64 bytes."""
    tail: npt.NDArray[np.uint8]
    """The last bytes of the batch, and others."""
    word_begins: Integers
    """Byte at which each word begins."""
    word_ends: Integers
    starts: Integers
    """Where each word starts among the characters of all words, and where the last ends."""
    word_keys: npt.NDArray[np.uint64]
    type_flags: npt.NDArray[np.uint16]
    """Of each different word the flags of all its characters, or-ed, and that of its first."""
    lengths: Integers
    """How many words have each length."""
    line_words: Integers
    """The first word of each line, and how many there are."""
    line_begins: Integers
    """Byte at which each line begins; the last entry is one past the last line's newline, or where that would be."""
    line_keys: npt.NDArray[np.uint64]
    """A hash of the words of each line."""
    line_again: npt.NDArray[np.uint8]
    """Whether there may be another line of the same words."""
    segment_begins: Integers
    """Byte at which each line or paragraph begins that may come again."""
    segment_ends: Integers
    segment_keys: npt.NDArray[np.uint64]
    repeats: Repeats
    """Of words, or of segments."""


class Found(NamedTuple):
    """How much there is in a document, and where it begins."""

    begin: int
    """Its first byte, and one past its last."""
    end: int
    words: int
    lines: int
    """As ``str.split`` finds them at newlines: an empty one follows the last newline."""
    characters: int
    word_characters: int
    unspaced: int
    """Letters of scripts without spaces."""
    breaks: int
    """Characters other than newlines at which ``str.splitlines`` splits."""


def make_page(texts: Texts) -> Page:
    """Allocate memory for the longest document."""
    longest = int(np.diff(texts.offsets).max(initial=0))
    newlines = np.count_nonzero(texts.data[texts.offsets[0] : texts.offsets[-1]] == _NEWLINE)
    words, lines, blocks = longest // 2 + longest // 3 + 4, min(longest, int(newlines)) + 3, longest // BLOCK + 3
    word_begins, word_ends = np.empty((2, words + WRITTEN), np.int64)
    line_words, line_begins, segment_begins, segment_ends = np.empty((4, lines), np.int64)
    line_keys, segment_keys = np.empty((2, lines), np.uint64)
    others, continuations = np.empty((2, blocks), np.uint64)
    return Page(
        others=others,
        continuations=continuations,
        behind=np.empty(blocks, np.int64),
        tail=np.zeros(BLOCK, np.uint8),
        word_begins=word_begins,
        word_ends=word_ends,
        starts=np.empty(words, np.int64),
        word_keys=np.empty(words, np.uint64),
        type_flags=np.empty(words, np.uint16),
        lengths=np.empty(longest + 1, np.int64),
        line_words=line_words,
        line_begins=line_begins,
        line_keys=line_keys,
        line_again=np.empty(lines, np.uint8),
        segment_begins=segment_begins,
        segment_ends=segment_ends,
        segment_keys=segment_keys,
        repeats=make_repeats(max(words, lines)),
    )


@compiled
def bits_from(bits: Any, place: int) -> np.uint64:
    """Return the next 57 bits or more of an array."""
    return eight_at(np.int64(bits.ctypes.data) + (place >> 3)) >> _U(place & 7)


@compiled
def first_bits(count: int) -> np.uint64:
    """Return a number of so many bits, fewer than 64."""
    return (_U(1) << _U(count)) - _U(1)


@compiled
def _spell(data: Any, begin: int, end: int) -> np.uint64:
    """Return up to eight bytes as a number."""
    key = _U(0)
    for at in range(begin, end):
        key |= _U(data[at]) << _U(8 * (at - begin))
    return key


@compiled
def _hash(address: int, begin: int, end: int) -> np.uint64:
    """Hash a word of eight bytes or more, eight at a time."""
    found, last = _SEED, address + end - 8
    for at in range(address + begin, last, 8):
        found = (found ^ eight_at(at)) * _PRIME
        found ^= found >> _U(32)
    return (found ^ eight_at(last)) * _PRIME | HASHED


def pack_word(spelled: bytes) -> int:
    """Return the key of a short word: its bytes and their number."""
    return int.from_bytes(spelled, "little") | len(spelled) << 8 * PACKED


@compiled
def _begins_word(flag: int, before: int, at: int, mode: int, breaks: Integers, next_break: int) -> tuple[bool, int]:
    """Whether a word begins inside a run, at a character of a script without spaces or after one."""
    if not (flag & UNSPACED or (before & UNSPACED and flag & ALPHANUMERIC)):
        return False, next_break
    if mode == columns.EACH_CHARACTER:
        return flag & MARK == 0, next_break
    while next_break < len(breaks) and breaks[next_break] < at:
        next_break += 1
    return next_break < len(breaks) and breaks[next_break] == at, next_break


@compiled
def find_words(  # noqa: C901, PLR0915  # in functions of their own, parts of it would share twenty variables
    texts: Texts, document: int, next_break: int, page: Page
) -> tuple[Found, int]:
    """Write where words and lines begin and end, 64 bytes at a time; ``next_break`` is the first break not before.

    Returns:
        How much there is, and the next break.
    """
    data, flag_of, cuts_runs = texts.data, texts.flags, texts.mode != columns.WHOLE_RUNS
    begin, end = texts.offsets[document], texts.offsets[document + 1]
    word_begins, word_ends, tail = page.word_begins, page.word_ends, page.tail
    address, whole = np.int64(data.ctypes.data), len(data) - BLOCK
    words, ended, line, unspaced, breaks, behind, letters = 0, 0, 0, 0, 0, 0, 0
    after_space, more_spaces, more_cuts = _U(1), _U(0), _U(0)
    reached, before = np.int64(-1), np.uint16(0)
    page.line_words[0], page.line_begins[0] = 0, begin
    for at in range(begin, end + 1, BLOCK):
        block, source, left = (at - begin) // BLOCK, address + at, end - at
        inside = ~_U(0) if left >= BLOCK else first_bits(left)
        if at > whole:
            for place in range(min(left, BLOCK)):
                tail[place] = data[at + place]
            source = np.int64(tail.ctypes.data)
        spaces, cuts, continuations = find_spaces(source) | ~inside | more_spaces, more_cuts, _U(0)
        newlines, high = find_line_feeds(source) & inside, find_high(source) & inside
        more_spaces, more_cuts = _U(0), _U(0)
        breaks += count_bits(find_rare_breaks(source) & inside)
        if high:
            continuations = find_continuations(source) & inside
            leads = high & ~continuations
            while leads:
                place = lowest_bit(leads)
                leads &= leads - _U(1)
                point, after = decode(data, at + place)
                flag, size = flag_of[point], after - at - place
                if flag & SPACE:
                    breaks += flag & LINE_BREAK != 0
                    spaces |= first_bits(size) << _U(place)
                    if place + size > BLOCK:
                        more_spaces = first_bits(place + size - BLOCK)
                    continue
                unspaced += flag & UNSPACED != 0
                if cuts_runs:
                    before = before if reached == at + place else np.uint16(0)
                    cut, next_break = _begins_word(flag, before, at + place, texts.mode, texts.breaks, next_break)
                    cuts |= _U(cut) << _U(place)
                    reached, before = after, flag
                    if after < end and data[after] < 0x80:
                        cut, next_break = _begins_word(
                            flag_of[data[after]], flag, after, texts.mode, texts.breaks, next_break
                        )
                        if after - at < BLOCK:
                            cuts |= _U(cut) << _U(after - at)
                        else:
                            more_cuts = _U(cut) << _U(after - at - BLOCK)
        page.others[block], page.continuations[block], page.behind[block] = find_others(source), continuations, behind
        behind += count_bits(continuations)
        letters += count_bits(~spaces & ~continuations)
        spaced = spaces << _U(1) | after_space
        after_space = spaces >> _U(BLOCK - 1)
        cuts &= ~spaced
        starting, ending = ~spaces & spaced | cuts, spaces & ~spaced | cuts
        while newlines:
            place = lowest_bit(newlines)
            newlines &= newlines - _U(1)
            line += 1
            page.line_words[line] = words + count_bits(starting & first_bits(place))
            page.line_begins[line] = at + place + 1
        words = np.int64(write_places(starting, at, word_begins, _U(words)))
        ended = np.int64(write_places(ending, at, word_ends, _U(ended)))
    page.line_words[line + 1], page.line_begins[line + 1] = words, end + 1
    return Found(begin, end, words, line + 1, end - begin - behind, letters, unspaced, breaks), next_break


@compiled
def read_words(texts: Texts, document: int, next_break: int, page: Page) -> tuple[Found, int]:
    """As :func:`find_words`, for Python: types of what another kernel calls are not inferred again."""
    return find_words(texts, document, next_break, page)


@compiled
def count_characters(page: Page, document: Found, begin: int, end: int) -> int:
    """Count the characters between two bytes of a document."""
    if document.characters == document.end - document.begin:
        return end - begin
    first, last = begin - document.begin, end - document.begin
    few = count_bits(page.continuations[first // BLOCK] & first_bits(first % BLOCK))
    more = count_bits(page.continuations[last // BLOCK] & first_bits(last % BLOCK))
    return last - first - (page.behind[last // BLOCK] + more - page.behind[first // BLOCK] - few)


@compiled
def write_keys(data: Any, page: Page, words: int) -> None:
    """Write a key of each word: its bytes and their number, or the hash of a longer one."""
    begins, ends, keys = page.word_begins, page.word_ends, page.word_keys
    address, whole = np.int64(data.ctypes.data), len(data) - 8
    for word in range(words):
        begin, end = begins[word], ends[word]
        size = end - begin
        if begin > whole:
            short = _spell(data, begin, end) | _U(size) << _LENGTH_AT
            keys[word] = short if size <= PACKED else _hash(address, begin, end)
            continue
        # Both kinds of keys are made: which one it will be is hard to guess for the processor.
        first, last = eight_at(address + begin), eight_at(address + max(end - 8, 0))
        short = first & first_bits(8 * min(size, PACKED)) | _U(size) << _LENGTH_AT
        long = (_SEED ^ first) * _PRIME
        long = ((long ^ long >> _U(32)) ^ last) * _PRIME | HASHED
        if size > 16:
            long = _hash(address, begin, end)
        keys[word] = short if size <= PACKED else long


@compiled
def hash_lines(page: Page, lines: int) -> None:
    """Write a hash of the words of each line, and whether it may come again; that of blank lines is one."""
    keys, seen, mask = page.word_keys, page.repeats.seen, forget(page.repeats.seen, lines)
    for line in range(lines):
        found, first = _SEED, page.line_words[line]
        for word in range(first, page.line_words[line + 1]):
            mixed = (keys[word] ^ _U(word - first) * _PRIME) * _OTHER_PRIME
            found += mixed ^ mixed >> _U(29)
        page.line_keys[line] = found
        slot = (found ^ found >> _U(32)) & _U(mask)
        note(seen, slot, 1)
    for line in range(lines):
        found = page.line_keys[line]
        page.line_again[line] = seen[(found ^ found >> _U(32)) & _U(mask)] > 1


@compiled
def write_starts(page: Page, found: Found) -> None:
    """Write where each word starts among the characters of all words."""
    begins, ends, starts, characters = page.word_begins, page.word_ends, page.starts, 0
    starts[0] = 0
    for word in range(found.words):
        begin, end = begins[word], ends[word]
        characters += count_characters(page, found, begin, end)
        starts[word + 1] = characters


@compiled
def number_page_words(texts: Texts, page: Page, words: int) -> int:
    """Write ``repeats`` of the words; give how many differ."""
    return number_words(texts.data, page.word_begins, page.word_ends, page.word_keys, words, page.repeats)


@compiled
def tell_apart(page: Page, words: int) -> int:
    """Write ``repeats`` as if no two words were equal, for what counts words alone."""
    firsts, counts = page.repeats.firsts, page.repeats.counts
    for word in range(words):
        firsts[word], counts[word] = word, 1
    return words


@compiled
def _flag_at(data: Any, flag_of: Any, place: int) -> np.uint16:
    """Return the flags of the character that starts at a byte."""
    point = np.uint32(data[place])
    if point >= 0x80:
        point, _ = decode(data, place)
    return flag_of[point]


@compiled
def flag_types(texts: Texts, page: Page, start: int, types: int) -> None:
    """Write the flags of each different word."""
    data, flag_of, firsts = texts.data, texts.flags, page.repeats.firsts
    letter = flag_of[0x61]
    for number in range(types):
        begin, end = page.word_begins[firsts[number]], page.word_ends[firsts[number]]
        head = _flag_at(data, flag_of, begin)
        seen = head | (head & ALPHANUMERIC) * _TO_FIRST
        for at in range(begin, end, SURE):
            every = first_bits(min(end - at, SURE))
            others = bits_from(page.others, at - start) & every
            seen |= letter if others != every else np.uint16(0)
            others &= ~bits_from(page.continuations, at - start)
            # Whether there is one is hard to guess for the processor: without one the first character is taken again.
            place = lowest_bit(others | _LAST_BIT) if others else begin - at
            seen |= _flag_at(data, flag_of, at + place)
            others &= others - _U(1)
            while others:
                seen |= _flag_at(data, flag_of, at + lowest_bit(others))
                others &= others - _U(1)
        page.type_flags[number] = seen
