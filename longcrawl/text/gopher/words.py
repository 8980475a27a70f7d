"""Kernels that split raw text into words, lines and paragraphs.

White space (``str.isspace``) separates words. In scripts that are written without spaces, a word is the whole run, each
character, or the part between given breaks. Words remain bytes: only characters beyond ASCII are decoded, and a word of
up to seven bytes is its own key.

Properties of characters come from Python's ``str`` and ``unicodedata``, so rules follow the Unicode version of this
Python.
"""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import unicodedata
from functools import lru_cache
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

_SCRIPTS = (
    (0x0E00, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x0F00, 0x0FFF),  # Tibetan, which separates syllables
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x3005, 0x3007),  # ideographic iteration mark and zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3105, 0x312F),  # Bopomofo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA980, 0xA9DF),  # Javanese
    (0xA9E0, 0xA9FF),  # Myanmar Extended
    (0xAA60, 0xAADF),  # Myanmar Extended, Tai Viet
    (0xF900, 0xFAFF),  # Han, compatibility
    (0xFF66, 0xFF9F),  # Katakana, half width
    (0x1B000, 0x1B16F),  # Kana Supplement and extensions
    (0x20000, 0x323AF),  # Han
)


@lru_cache(maxsize=1)
def load_page_characters() -> npt.NDArray[np.uint16]:
    """Return the cached flags of every code point, uint16 [0x110000]."""
    return cached_arrays("page-2", lambda: {"flags": _build()})["flags"]


@lru_cache(maxsize=1)
def load_reading_characters() -> npt.NDArray[np.uint16]:
    """Return all flags of every code point, uint16 [0x110000]: the cached ones, and those that are quick to compute."""
    flags = load_page_characters() | np.uint16(TEXTUAL)
    flags[flags & ALPHABETIC != 0] |= LETTER
    flags[_listed(_ALPHABETIC_NO_LETTERS)] |= LETTER
    flags[_listed(_PUNCTUATION)] &= ~np.uint16(TEXTUAL)
    flags[ord("#")] |= HASH_SIGN
    flags[ord("…")] |= ELLIPSIS
    return flags


def _build() -> npt.NDArray[np.uint16]:
    flags = flags_of_code_points(_RULES)
    flags[_listed(_SENTENCE_TERMINAL)] |= TERMINAL
    return flags


def _listed(ranges: str) -> list[int]:
    """Parse code points in the form of Unicode's files, ``0345 0363-036F``."""
    ends = [[int(end, 16) for end in each.split("-")] for each in ranges.split()]
    return [point for each in ends for point in range(each[0], each[-1] + 1)]


def _is_unspaced(character: str) -> bool:
    category = unicodedata.category(character)
    return (category[0] in "LM" or category == "Nl") and any(
        first <= ord(character) <= last for first, last in _SCRIPTS
    )


_SENTENCE_TERMINAL = """
0021 002E 003F 0589 061D-061F 06D4 0700-0702 07F9 0837 0839 083D-083E 0964-0965 104A-104B 1362 1367-1368 166E
1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F
2024 203C-203D 2047-2049 2CF9-2CFB 2E2E 2E3C 2E53-2E54 2E60-2E61 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877
A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57
10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239
1123B-1123C 112A9 113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946
11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 16D6E-16D6F
16E98 1BC9F 1DA88
"""
"""Unicode's property Sentence_Terminal, version 17, which Python does not have."""

_ALPHABETIC_NO_LETTERS = """
0345 0363-036F 05B0-05BD 05BF 05C1-05C2 05C4-05C5 05C7-05C9 0610-061A 064B-0657 0659-065F 0670 06D6-06DC 06E1-06E4
06E7-06E8 06ED 0711 0730-073F 07A6-07B0 0816-0817 081B-0823 0825-0827 0829-082C 0897 08D4-08DF 08E3-08E9 08F0-0903
093A-093B 093E-094C 094E-094F 0955-0957 0962-0963 0981-0983 09BE-09C4 09C7-09C8 09CB-09CC 09D7 09E2-09E3 0A01-0A03
0A3E-0A42 0A47-0A48 0A4B-0A4C 0A51 0A70-0A71 0A75 0A81-0A83 0ABE-0AC5 0AC7-0AC9 0ACB-0ACC 0AE2-0AE3 0AFA-0AFC
0B01-0B03 0B3E-0B44 0B47-0B48 0B4B-0B4C 0B56-0B57 0B62-0B63 0B82 0BBE-0BC2 0BC6-0BC8 0BCA-0BCC 0BD7 0C00-0C04
0C3E-0C44 0C46-0C48 0C4A-0C4C 0C55-0C56 0C62-0C63 0C81-0C83 0CBE-0CC4 0CC6-0CC8 0CCA-0CCC 0CD5-0CD6 0CE2-0CE3 0CF3
0D00-0D03 0D3E-0D44 0D46-0D48 0D4A-0D4C 0D57 0D62-0D63 0D81-0D83 0DCF-0DD4 0DD6 0DD8-0DDF 0DF2-0DF3 0E31 0E34-0E3A
0E4D 0EB1 0EB4-0EB9 0EBB-0EBC 0ECD 0F71-0F83 0F8D-0F97 0F99-0FBC 102B-1036 1038 103B-103E 1056-1059 105E-1060
1062-1064 1067-106D 1071-1074 1082-108D 108F 109A-109D 16EE-16F0 1712-1713 1732-1733 1752-1753 1772-1773 17B6-17C8
1885-1886 18A9 1920-192B 1930-1938 1A17-1A1B 1A55-1A5E 1A61-1A74 1ABF-1AC0 1ACC-1ACE 1B00-1B04 1B35-1B43 1B80-1B82
1BA1-1BA9 1BAC-1BAD 1BE7-1BF1 1C24-1C36 1DD3-1DF4 2160-2182 2185-2188 24B6-24E9 2DE0-2DFF 3007 3021-3029 3038-303A
A674-A67B A69E-A69F A6E6-A6EF A802 A80B A823-A827 A880-A881 A8B4-A8C3 A8C5 A8FF A926-A92A A947-A952 A980-A983
A9B4-A9BF A9E5 AA29-AA36 AA43 AA4C-AA4D AA7B-AA7D AAB0 AAB2-AAB4 AAB7-AAB8 AABE AAEB-AAEF AAF5 ABE3-ABEA FB1E
10140-10174 10341 1034A 10376-1037A 103D1-103D5 10A01-10A03 10A05-10A06 10A0C-10A0F 10D24-10D27 10D69 10EAB-10EAC
10ECB-10ECD 10EF3 10EF5 10EF7-10EF8 10EFA-10EFC 11000-11002 11038-11045 11073-11074 11080-11082 110B0-110B8 110C2
11100-11102 11127-11132 11145-11146 11180-11182 111B3-111BF 111CE-111CF 1122C-11234 11237 1123E 11241 112DF-112E8
11300-11303 1133E-11344 11347-11348 1134B-1134C 11357 11362-11363 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113CD
11435-11441 11443-11445 114B0-114C1 115AF-115B5 115B8-115BE 115DC-115DD 11630-1163E 11640 116AB-116B5 1171D-1172A
1182C-11838 11930-11935 11937-11938 1193B-1193C 11940 11942 119D1-119D7 119DA-119DF 119E4 11A01-11A0A 11A35-11A39
11A3B-11A3E 11A51-11A5B 11A8A-11A97 11B60-11B67 11C2F-11C36 11C38-11C3E 11C92-11CA7 11CA9-11CB6 11D31-11D36 11D3A
11D3C-11D3D 11D3F-11D41 11D43 11D47 11D8A-11D8E 11D90-11D91 11D93-11D96 11DF0 11EF3-11EF6 11F00-11F01 11F03
11F34-11F3A 11F3E-11F40 12400-1246F 12475-1247F 12550-12686 1611E-1612E 16F4F 16F51-16F87 16F8F-16F92 16FF0-16FF1
16FF4-16FF6 1BC9E 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E08F 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5
1E947 1F130-1F149 1F150-1F169 1F170-1F189
"""
"""Code points of Unicode's property Alphabetic that are not letters, version 17; Python does not have the property."""

_PUNCTUATION = """
0000-0008 000B-001F 0021-002F 003A-0040 005B-0060 007B-009F 00AB 00B4 00BB 0589 061D-061F 06D4 0700-0702 07F9 0837
0839 083D-083E 0964-0965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB
1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 2013-2014 2019 201C-201E 2026 203C-203D 2047-2049 2236 2501 25BA
2E2E 2E3C 2E53-2E54 3001-3002 3008-300D 3010-3011 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9
AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF05 FF08-FF09 FF0C FF0E FF11 FF1A-FF1B FF1F FF5E FF61 10A56-10A57
10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C
112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42
11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 16E98 1BC9F 1DA88
"""
"""Marks and control characters that datatrove 0.10 classes as punctuation; it does not count a word of only these."""

_RULES: Rules = {
    SPACE: str.isspace,
    ALPHABETIC: str.isalpha,
    ALPHANUMERIC: str.isalnum,
    UNSPACED: _is_unspaced,
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
    """Return whether a word begins at a place within a run of a script without spaces, and the next break."""
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

    Args:
        texts: the documents.
        document: the number of the document.
        next_break: the index of the first break that is not before the document.
        page: buffers, written.

    Returns:
        The size of the document, and the next break.
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
def read_words(texts: Texts, document: int, next_break: int, page: Page) -> tuple[Found, int]:
    """Call :func:`find_words` from Python, which saves type inference for the kernels that call it directly."""
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
    """Return the flags of the character that starts at a byte."""
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
