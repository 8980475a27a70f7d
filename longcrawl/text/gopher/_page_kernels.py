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

from longcrawl.kernels.compiling import compiled, inlined
from longcrawl.kernels.memory import eight_at, find_others, find_stops, lowest_bit
from longcrawl.kernels.ngrams import HASHED, Repeats, make_repeats, number_words
from longcrawl.kernels.utf8 import decode
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_characters import ALPHABETIC, ALPHANUMERIC, ALPHANUMERIC_FIRST, MARK, SPACE, UNSPACED

Integers = npt.NDArray[np.int64]

_U = np.uint64
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x9E3779B97F4A7C15)
_NEWLINE = 0x0A
PACKED = 7
"""Bytes of a word that is its own key: they and their number."""
_LENGTH_AT = _U(8 * PACKED)

_TO_FIRST = np.uint16(ALPHANUMERIC_FIRST // ALPHANUMERIC)
_BLOCK = 64
"""Bytes that are looked at together."""
_SURE = 56
"""Of them those after the first that is not at the start of a byte of bits."""

_STOP = np.uint16(1 << 15)
"""White space, or the first byte of a character that is not ASCII."""


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

    byte_flags: npt.NDArray[np.uint16]
    """Flags of every byte; of those beyond ASCII only that a word of ASCII stops there."""
    stops: npt.NDArray[np.uint64]
    """A bit for each byte at which a word of ASCII stops."""
    others: npt.NDArray[np.uint64]
    """A bit for each byte that is no letter of ASCII."""
    word_begins: Integers
    """Byte at which each word begins."""
    word_ends: Integers
    starts: Integers
    """Where each word starts among the characters of all words, and where the last ends."""
    word_places: Integers
    """Where each word starts among the characters of the document."""
    word_keys: npt.NDArray[np.uint64]
    word_flags: npt.NDArray[np.uint16]
    """The flags of all characters of a word, or-ed, and that of its first."""
    line_words: Integers
    """The first word of each line, and how many there are."""
    line_begins: Integers
    """Byte at which each line begins; the last entry is one past the last line's newline, or where that would be."""
    line_places: Integers
    """The same in characters."""
    line_keys: npt.NDArray[np.uint64]
    """A hash of the words of each line."""
    segment_begins: Integers
    segment_ends: Integers
    segment_characters: Integers
    segment_keys: npt.NDArray[np.uint64]
    repeats: Repeats
    """Of words, or of segments."""


def make_page(texts: Texts) -> Page:
    """Allocate memory for the longest document."""
    longest = int(np.diff(texts.offsets).max(initial=0))
    newlines = np.count_nonzero(texts.data[texts.offsets[0] : texts.offsets[-1]] == _NEWLINE)
    words, lines = longest // 2 + longest // 3 + 4, min(longest, int(newlines)) + 3
    of_ascii = texts.flags[:128]
    byte_flags = np.full(256, _STOP)
    byte_flags[:128] = of_ascii | np.where(of_ascii & SPACE, _STOP, np.uint16(0))
    return Page(
        byte_flags=byte_flags,
        stops=np.empty(longest // _BLOCK + 3, np.uint64),
        others=np.empty(longest // _BLOCK + 3, np.uint64),
        word_begins=np.empty(words, np.int64),
        word_ends=np.empty(words, np.int64),
        starts=np.empty(words, np.int64),
        word_places=np.empty(words, np.int64),
        word_keys=np.empty(words, np.uint64),
        word_flags=np.empty(words, np.uint16),
        line_words=np.empty(lines, np.int64),
        line_begins=np.empty(lines, np.int64),
        line_places=np.empty(lines, np.int64),
        line_keys=np.empty(lines, np.uint64),
        segment_begins=np.empty(lines, np.int64),
        segment_ends=np.empty(lines, np.int64),
        segment_characters=np.empty(lines, np.int64),
        segment_keys=np.empty(lines, np.uint64),
        repeats=make_repeats(max(words, lines)),
    )


@compiled
def _mark_bytes(data: Any, begin: int, end: int, page: Page) -> None:
    """Write bits of all bytes of a document: where words of ASCII stop and it ends, and which are no letters."""
    address, whole = np.int64(data.ctypes.data), len(data) - _BLOCK
    for at in range(begin, end + 1, _BLOCK):
        stops, others, left = _U(0), _U(0), end - at
        if at <= whole:
            stops, others = find_stops(address + at), find_others(address + at)
        else:
            for place in range(left):
                flag = page.byte_flags[data[at + place]]
                stops |= _U(data[at + place] <= 0x20 or flag & _STOP != 0) << _U(place)
                others |= _U(flag & ALPHABETIC == 0) << _U(place)
        if left < _BLOCK:
            stops |= ~_U(0) << _U(left)
        page.stops[(at - begin) // _BLOCK], page.others[(at - begin) // _BLOCK] = stops, others


@inlined
def _bits_from(bits: int, place: int) -> np.uint64:
    """Return the next 57 bits or more of an array at an address."""
    return eight_at(bits + (place >> 3)) >> _U(place & 7)


@compiled
def _word_key(data: Any, begin: int, end: int) -> np.uint64:
    """Return a short word and its length, or the hash of a longer one, read eight bytes at a time."""
    address, size = np.int64(data.ctypes.data), end - begin
    if size > PACKED:
        found, last = _SEED, address + end - 8
        for at in range(address + begin, last, 8):
            found = (found ^ eight_at(at)) * _PRIME
            found ^= found >> _U(32)
        return (found ^ eight_at(last)) * _PRIME | HASHED
    key = _U(0)
    if begin + 8 <= len(data):
        key = eight_at(address + begin) & (_U(1) << _U(8 * size)) - _U(1)
    else:
        for at in range(size):
            key |= _U(data[begin + at]) << _U(8 * at)
    return key | _U(size) << _LENGTH_AT


def pack_word(spelled: bytes) -> int:
    """Return the key of a short word, as :func:`_word_key` does."""
    return int.from_bytes(spelled, "little") | len(spelled) << 8 * PACKED


@inlined
def _begins_word(flag: int, before: int, at: int, mode: int, breaks: Integers, next_break: int) -> tuple[bool, int]:
    """Whether a word begins inside a run, at a character of a script without spaces or after one."""
    if mode == columns.WHOLE_RUNS or not (flag & UNSPACED or (before & UNSPACED and flag & ALPHANUMERIC)):
        return False, next_break
    if mode == columns.EACH_CHARACTER:
        return flag & MARK == 0, next_break
    while next_break < len(breaks) and breaks[next_break] < at:
        next_break += 1
    return next_break < len(breaks) and breaks[next_break] == at, next_break


@compiled
def split_page(  # noqa: C901, PLR0912, PLR0915  # reading a word in a function of its own takes a fifth of the speed
    texts: Texts, document: int, next_break: int, page: Page
) -> tuple[int, int, int, int]:
    """Write words and lines of a document to ``page``; ``next_break`` is the first break that is not before it.

    Returns:
        How many words, lines, and letters of scripts without spaces there are, and the next break.
    """
    data, flag_of, mode, breaks = texts.data, texts.flags, texts.mode, texts.breaks
    at, end = texts.offsets[document], texts.offsets[document + 1]
    stop_bits, other_bits = np.int64(page.stops.ctypes.data), np.int64(page.others.ctypes.data)
    word, line, unspaced, characters, line_key = 0, 0, 0, 0, _SEED
    # A byte that does not start a character has been passed over: a place in characters is a byte less those.
    document_begin, behind, byte_flags = at, at, page.byte_flags
    letter = byte_flags[0x61]
    page.starts[0] = 0
    _mark_bytes(data, at, end, page)
    page.line_words[0], page.line_begins[0], page.line_places[0] = 0, at, 0
    while at < end:
        byte = data[at]
        flag = byte_flags[byte]
        if flag & SPACE:
            at += 1
            if byte == _NEWLINE:
                page.line_keys[line], line_key = line_key, _SEED
                line += 1
                page.line_words[line], page.line_begins[line], page.line_places[line] = word, at, at - behind
            continue
        head = flag
        if flag & _STOP:
            point, after = decode(data, at)
            head = flag_of[point]
            if head & SPACE:
                behind += after - at - 1
                at = after
                continue
        begin, first, seen, before = at, at - behind, (head & ALPHANUMERIC) * _TO_FIRST, np.uint16(0)
        while True:
            # Most text is ASCII: nothing to decode, and no script without spaces.
            while flag & _STOP == 0:
                place = at - document_begin
                stops, others = _bits_from(stop_bits, place), _bits_from(other_bits, place)
                size = lowest_bit(stops) if stops else _SURE
                every = (_U(1) << _U(size)) - _U(1)
                others &= every
                if others != every:
                    seen |= letter
                while others:
                    seen |= byte_flags[data[at + lowest_bit(others)]]
                    others &= others - _U(1)
                # A control character stops words, too, where it is not white space.
                if size == 0:
                    seen |= flag
                    size = 1
                at += size
                if at == end:
                    break
                byte = data[at]
                flag = byte_flags[byte]
                before = np.uint16(0)
            if at == end or flag & SPACE:
                break
            point, after = decode(data, at)
            flag = flag_of[point]
            if flag & SPACE:
                break
            if at > begin and (flag | before) & UNSPACED:
                cut, next_break = _begins_word(flag, before, at, mode, breaks, next_break)
                if cut:
                    break
            seen |= flag
            unspaced += flag & UNSPACED != 0
            behind += after - at - 1
            at = after
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
        key = _word_key(data, begin, at)
        page.word_keys[word], page.word_flags[word] = key, seen
        line_key = (line_key ^ key) * _PRIME
        line_key ^= line_key >> _U(32)
        characters += at - behind - first
        word += 1
        page.starts[word] = characters
    if at > page.line_begins[line]:
        page.line_keys[line] = line_key
        line += 1
        page.line_words[line], page.line_begins[line], page.line_places[line] = word, at + 1, at + 1 - behind
    page.line_words[line] = word
    return word, line, unspaced, next_break


@compiled
def number_page_words(texts: Texts, page: Page, words: int) -> int:
    """Write ``repeats`` of the words; give how many differ."""
    return number_words(texts.data, page.word_begins, page.word_ends, page.word_keys, words, page.repeats)


@compiled
def make_segment(page: Page, segment: int, first: int, stop: int) -> None:
    """Make a segment of lines, which have a word, without the white space around them."""
    first_word, last_word = page.line_words[first], page.line_words[stop] - 1
    page.segment_begins[segment], page.segment_ends[segment] = page.word_begins[first_word], page.word_ends[last_word]
    length = page.starts[last_word + 1] - page.starts[last_word]
    page.segment_characters[segment] = page.word_places[last_word] + length - page.word_places[first_word]
    found = _SEED
    for line in range(first, stop):
        if page.line_words[line + 1] > page.line_words[line]:
            found = (found ^ page.line_keys[line]) * _PRIME
            found ^= found >> _U(32)
    page.segment_keys[segment] = found | HASHED


@compiled
def find_lines(page: Page, lines: int) -> int:
    """Make segments of the lines that are not blank, without the white space around them; give how many there are."""
    segment = np.int64(0)
    for line in range(lines):
        if page.line_words[line + 1] > page.line_words[line]:
            make_segment(page, segment, line, line + 1)
            segment += 1
    return segment


@compiled
def find_paragraphs(page: Page, lines: int) -> int:
    """Make segments of what stands between blank lines; give how many there are."""
    segment, line = np.int64(0), 0
    while line < lines:
        first = line
        while line < lines and page.line_words[line + 1] > page.line_words[line]:
            line += 1
        if line > first:
            make_segment(page, segment, first, line)
            segment += 1
        line += 1
    return segment


@compiled
def count_segments(texts: Texts, page: Page, segments: int, row: Any) -> None:
    """Count segments and their characters: all, those that come more than once, and those without their first.

    ``page`` has the segments, and its ``repeats`` are overwritten; ``row`` is float64 [6], in the order of the columns.
    """
    row[:] = 0.0
    ids, counts, firsts, lengths = page.repeats.ids, page.repeats.counts, page.repeats.firsts, page.segment_characters
    number_words(texts.data, page.segment_begins, page.segment_ends, page.segment_keys, segments, page.repeats)
    for segment in range(segments):
        number, characters = ids[segment], lengths[segment]
        row[columns.SEGMENTS] += 1
        row[columns.SEGMENT_CHARACTERS] += characters
        if counts[number] > 1:
            row[columns.DUPLICATES] += 1
            row[columns.DUPLICATE_CHARACTERS] += characters
        if firsts[number] != segment:
            row[columns.LATER_DUPLICATES] += 1
            row[columns.LATER_CHARACTERS] += characters
