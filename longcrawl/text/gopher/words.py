"""Kernels that split raw text into words, lines and paragraphs.

White space (``str.isspace``) separates words. In scripts that are written without spaces, a word is the whole run, each
character, or the part between given breaks. Rules follow the Unicode version of this Python.
"""

import re
import unicodedata
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import Rules, cached_arrays, flags_of_code_points
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
from longcrawl.kernels.texts import decode

QUALITY, REPETITION, LINE_RULES = 1, 2, 4  # bit flags of the counts that are needed

WHOLE_RUNS, EACH_CHARACTER, AT_BREAKS = range(3)  # ways to split runs of a script without spaces into words

WORDS, WORD_CHARACTERS, CHARACTERS, LINE_CHARACTERS, NEWLINES, UNSPACED_LETTERS = range(6)
"""Columns that all rules have; characters of lines are all but newlines."""
HASHES, ELLIPSES, ALPHABETIC_WORDS, STOP_WORDS, LINES, BULLET_LINES, ELLIPSIS_LINES = range(6, 13)
"""Columns of the quality rules."""

SEGMENTS, SEGMENT_CHARACTERS, DUPLICATES, DUPLICATE_CHARACTERS, LATER_DUPLICATES, LATER_CHARACTERS = range(6)
"""Counts of lines or paragraphs: all, those that occur more than once, and those that repeat an earlier one."""
LINE_SEGMENTS = 13  # first of six columns of lines
PARAGRAPH_SEGMENTS = LINE_SEGMENTS + 6  # first of six columns of paragraphs

NGRAMS = 9  # number of n-gram columns: the most frequent for n = 2 to 4, all repeated ones for n = 5 to 10
TOP_2_GRAM = PARAGRAPH_SEGMENTS + 6
DUPLICATE_5_GRAMS = TOP_2_GRAM + 3

TERMINAL_LINES = TOP_2_GRAM + NGRAMS
SHORT_LINES = TERMINAL_LINES + 1
RAW_LINES = SHORT_LINES + 1  # first of six columns of lines with the white space around them

COUNTED_WORDS, COUNTED_CHARACTERS, MEDIAN_LENGTH, SYMBOLS = range(RAW_LINES + 6, RAW_LINES + 10)
"""Columns that only definitions other than the paper's need; counted words are those that a definition counts."""
GRAM_CHARACTERS = SYMBOLS + 1  # first of six columns: characters of all n-grams for n = 5 to 10, with overlaps

COLUMNS = GRAM_CHARACTERS + 6  # number of columns


SPACE = 1 << 0
ALPHABETIC = 1 << 1
ALPHANUMERIC = 1 << 2
UNSPACED = 1 << 3  # flag of a letter or mark of a script that is written without spaces between words
MARK = 1 << 4  # flag of a combining mark, which belongs to the character before it
SYMBOL = 1 << 5  # flag of the number sign, the full stop and the ellipsis, which Gopher's symbol rules count
TERMINAL = 1 << 6  # flag of a character that ends sentences in some script: Unicode's Sentence_Terminal
LINE_BREAK = 1 << 7  # flag of a character at which ``str.splitlines`` splits

BULLET = 1 << 8
MARKER = 1 << 9  # flag of a character that is a bullet if white space follows

LETTER = 1 << 10
"""Flag of Unicode's property Alphabetic, which includes vowel signs, Roman numerals and circled letters."""
TEXTUAL = 1 << 11  # flag of a character that datatrove does not class as punctuation
ALPHANUMERIC_FIRST = 1 << 12  # flag of a word with an alphanumeric first character

HASH_SIGN = 1 << 13
ELLIPSIS = 1 << 14

BULLETS = "•‣\N{HYPHEN BULLET}⁌⁍∙◘◦⦾⦿▪▫■□●○◆◇▶►◀"
MARKERS = "-*+\N{EN DASH}"
_SYMBOLS = "#.…"


@lru_cache(maxsize=1)
def load_page_characters() -> npt.NDArray[np.uint16]:
    """Return the cached flags of every code point, uint16 [0x110000]."""
    return cached_arrays("page-2", lambda: {"flags": _build()})["flags"]


@lru_cache(maxsize=1)
def load_reading_characters() -> npt.NDArray[np.uint16]:
    """Return all flags of every code point, uint16 [0x110000]: the cached ones, and those that are quick to compute."""
    flags = load_page_characters() | np.uint16(TEXTUAL)
    flags[flags & ALPHABETIC != 0] |= LETTER
    flags[_properties()["Alphabetic"]] |= LETTER
    flags[_properties()["Punctuation"]] &= ~np.uint16(TEXTUAL)
    flags[ord("#")] |= HASH_SIGN
    flags[ord("…")] |= ELLIPSIS
    return flags


def _build() -> npt.NDArray[np.uint16]:
    unspaced = frozenset(_properties()["Unspaced"])

    def is_unspaced(character: str) -> bool:
        category = unicodedata.category(character)
        return ord(character) in unspaced and (category[0] in "LM" or category == "Nl")

    flags = flags_of_code_points(_RULES | {UNSPACED: is_unspaced})
    flags[_properties()["Sentence_Terminal"]] |= TERMINAL
    return flags


@lru_cache(maxsize=1)
def _properties() -> dict[str, list[int]]:
    """Read ``properties.txt``: code points by property, in the form of Unicode's files, ``0345 0363-036F``.

    Sentence_Terminal and Alphabetic (without letters) are Unicode's, version 17, which Python does not have.
    Punctuation is what datatrove 0.10 classes so, with control characters; it does not count a word of only these.
    Unspaced are blocks of scripts that are written without spaces.
    """
    found: dict[str, list[int]] = {}
    for block in resources.files(__package__).joinpath("properties.txt").read_text("utf-8").split("\n\n"):
        name, *ranges = re.sub("#.*", "", block).split()
        ends = [[int(end, 16) for end in each.split("-")] for each in ranges]
        found[name] = [point for each in ends for point in range(each[0], each[-1] + 1)]
    return found


_RULES: Rules = {
    SPACE: str.isspace,
    ALPHABETIC: str.isalpha,
    ALPHANUMERIC: str.isalnum,
    MARK: lambda character: unicodedata.category(character)[0] == "M",
    SYMBOL: _SYMBOLS.__contains__,
    BULLET: BULLETS.__contains__,
    MARKER: MARKERS.__contains__,
    LINE_BREAK: lambda character: len(f"a{character}b".splitlines()) > 1,
}


Integers = npt.NDArray[np.int64]

_U = np.uint64
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x9E3779B97F4A7C15)
_OTHER_PRIME = _U(0xFF51AFD7ED558CCD)
_NEWLINE = 0x0A
PACKED = 7  # bytes of the longest word that is its own key: its bytes and their number
_LENGTH_AT = _U(8 * PACKED)

_LAST_BIT = _U(1 << 63)
_TO_FIRST = np.uint16(ALPHANUMERIC_FIRST // ALPHANUMERIC)
BLOCK = 64  # bytes that are scanned at a time
SURE = 56  # bytes that ``bits_from`` surely covers, from any place


class Texts(NamedTuple):
    """The documents of a batch, and how they are split into words."""

    data: npt.NDArray[np.uint8]  # valid UTF-8 of all documents
    offsets: Integers  # shape (documents + 1,): the start of each document and the end of the last, in bytes
    flags: npt.NDArray[np.uint16]  # shape (0x110000,): the flags of every code point
    mode: int  # the way to split runs of a script without spaces
    breaks: Integers  # ascending bytes at which words begin within such runs, for ``AT_BREAKS``


class Page(NamedTuple):
    """Buffers for one document at a time, large enough for the longest of a batch; untouched memory costs nothing."""

    others: npt.NDArray[np.uint64]  # a bit for each byte that is not an ASCII letter
    continuations: npt.NDArray[np.uint64]  # a bit for each byte that continues a character
    behind: Integers  # number of continuation bytes before each 64 bytes
    tail: npt.NDArray[np.uint8]  # a copy of the last bytes of the batch, padded to 64 bytes
    word_begins: Integers  # first byte of each word
    word_ends: Integers  # end of each word, in bytes
    starts: Integers  # start of each word among the characters of all words, and the end of the last
    word_keys: npt.NDArray[np.uint64]  # key of each word: its bytes, or a hash of a longer word
    type_flags: npt.NDArray[np.uint16]
    """Flags of each distinct word: those of all its characters combined, and ``ALPHANUMERIC_FIRST``."""
    lengths: Integers  # number of words of each length
    line_words: Integers  # first word of each line, and the number of words
    line_begins: Integers
    """First byte of each line; the last entry is one past the last line's newline, or where that would be."""
    line_keys: npt.NDArray[np.uint64]  # hash of the words of each line
    line_again: npt.NDArray[np.uint8]  # whether another line may have the same words
    segment_begins: Integers  # first byte of each line or paragraph that may be repeated
    segment_ends: Integers  # end of each of these, in bytes
    segment_keys: npt.NDArray[np.uint64]  # hash of each of these
    repeats: Repeats  # repeats of words, or of segments


class Found(NamedTuple):
    """The position and the size of a document."""

    begin: int  # first byte
    end: int  # one past the last byte
    words: int
    lines: int  # number of lines, as ``str.split`` at newlines gives them: an empty one follows the last newline
    characters: int
    word_characters: int
    unspaced: int  # number of letters of scripts without spaces
    breaks: int  # number of characters other than newlines at which ``str.splitlines`` splits


def make_page(texts: Texts) -> Page:
    """Allocate buffers for the longest document."""
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
    """Return at least 57 bits of an array, from a place on."""
    return eight_at(np.int64(bits.ctypes.data) + (place >> 3)) >> _U(place & 7)


@compiled
def first_bits(count: int) -> np.uint64:
    """Return a number with its lowest ``count`` bits set, for a count below 64."""
    return (_U(1) << _U(count)) - _U(1)


@compiled
def _spell(data: Any, begin: int, end: int) -> np.uint64:
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
    if not (flag & UNSPACED or (before & UNSPACED and flag & ALPHANUMERIC)):
        return False, next_break
    if mode == EACH_CHARACTER:
        return flag & MARK == 0, next_break
    while next_break < len(breaks) and breaks[next_break] < at:
        next_break += 1
    return next_break < len(breaks) and breaks[next_break] == at, next_break


@compiled
def find_words(  # noqa: C901, PLR0915  # separate functions would have to share twenty variables
    texts: Texts, document: int, next_break: int, page: Page
) -> tuple[Found, int]:
    """Write the begin and end of words and lines of a document to ``page``, 64 bytes at a time.

    ``next_break`` is the first break that is not before the document. Return the document's size, and the next break.
    """
    data, flag_of, cuts_runs = texts.data, texts.flags, texts.mode != WHOLE_RUNS
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
    """Write the key of each word: its bytes and their number, or the hash of a longer word."""
    begins, ends, keys = page.word_begins, page.word_ends, page.word_keys
    address, whole = np.int64(data.ctypes.data), len(data) - 8
    for word in range(words):
        begin, end = begins[word], ends[word]
        size = end - begin
        if begin > whole:
            short = _spell(data, begin, end) | _U(size) << _LENGTH_AT
            keys[word] = short if size <= PACKED else _hash(address, begin, end)
            continue
        # Both kinds of keys are computed, as the processor could hardly predict which one is needed.
        first, last = eight_at(address + begin), eight_at(address + max(end - 8, 0))
        short = first & first_bits(8 * min(size, PACKED)) | _U(size) << _LENGTH_AT
        long = (_SEED ^ first) * _PRIME
        long = ((long ^ long >> _U(32)) ^ last) * _PRIME | HASHED
        if size > 16:
            long = _hash(address, begin, end)
        keys[word] = short if size <= PACKED else long


@compiled
def hash_lines(page: Page, lines: int) -> None:
    """Write the hash of each line's words, equal for all blank lines, and whether the line may be repeated."""
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
    """Write the start of each word among the characters of all words."""
    begins, ends, starts, characters = page.word_begins, page.word_ends, page.starts, 0
    starts[0] = 0
    for word in range(found.words):
        begin, end = begins[word], ends[word]
        characters += count_characters(page, found, begin, end)
        starts[word + 1] = characters


@compiled
def number_page_words(texts: Texts, page: Page, words: int) -> int:
    """Write ``repeats`` of the words, and return the number of distinct words."""
    return number_words(texts.data, page.word_begins, page.word_ends, page.word_keys, words, page.repeats)


@compiled
def tell_apart(page: Page, words: int) -> int:
    """Write ``repeats`` as if all words were distinct, which is enough to count words."""
    firsts, counts = page.repeats.firsts, page.repeats.counts
    for word in range(words):
        firsts[word], counts[word] = word, 1
    return words


@compiled
def _flag_at(data: Any, flag_of: Any, place: int) -> np.uint16:
    point = np.uint32(data[place])
    if point >= 0x80:
        point, _ = decode(data, place)
    return flag_of[point]


@compiled
def flag_types(texts: Texts, page: Page, start: int, types: int) -> None:
    """Write the flags of each distinct word."""
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
            # The processor could hardly predict whether there is one; if not, the first character is read again.
            place = lowest_bit(others | _LAST_BIT) if others else begin - at
            seen |= _flag_at(data, flag_of, at + place)
            others &= others - _U(1)
            while others:
                seen |= _flag_at(data, flag_of, at + lowest_bit(others))
                others &= others - _U(1)
        page.type_flags[number] = seen
