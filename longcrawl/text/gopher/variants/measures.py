"""What readings of Gopher's rules other than the paper's count, as numba kernels over the words and lines of a page."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled, inlined
from longcrawl.text.gopher._page_characters import ALPHABETIC, ALPHANUMERIC, SYMBOL
from longcrawl.text.gopher._page_kernels import Page, count_segments, decode, word_key
from longcrawl.text.gopher._page_measures import count_symbols, count_words
from longcrawl.text.gopher._stop_words import StopWords, find_stop_word
from longcrawl.text.gopher.page_columns import (
    ALPHABETIC_WORDS,
    COUNTED_CHARACTERS,
    COUNTED_WORDS,
    ELLIPSES,
    HASHES,
    LINE_SEGMENTS,
    MEDIAN_LENGTH,
    PARAGRAPH_SEGMENTS,
    QUALITY,
    REPETITION,
    STOP_WORDS,
    SYMBOLS,
)
from longcrawl.text.gopher.variants.characters import TEXTUAL
from longcrawl.text.gopher.variants.definitions import (
    ALL_WORDS,
    APART,
    DISTINCT,
    LOWERED,
    MEDIAN,
    TEXTUAL_WORDS,
    TOGETHER,
    WORDS_WITH,
    Reading,
)
from longcrawl.text.gopher.variants.ngrams import Spelling, count_grams
from longcrawl.text.gopher.variants.segments import (
    count_lines,
    find_reading_lines,
    find_reading_paragraphs,
    is_ending,
    open_last_line,
)

__all__ = ["measure_readings"]

_SPACE, _DOT, _HASH_SIGN = 0x20, 0x2E, 0x23


@inlined
def _is_counted(data: Any, begin: int, flags: int, flag_of: Any, counted: int) -> bool:
    """Whether a word is one that a reading counts, if it does not count them all."""
    if counted == TEXTUAL_WORDS:
        kept = flags & TEXTUAL != 0
    else:
        point, _ = decode(data, begin)
        kept = flag_of[point] & ALPHANUMERIC != 0
    return kept


@compiled
def _count_counted(data: Any, page: Page, words: int, flag_of: Any, counted: int, row: Any) -> None:
    begins, flags, starts = page.word_begins, page.word_flags, page.starts
    found, characters = words, starts[words]
    if counted != ALL_WORDS:
        for word in range(words):
            if not _is_counted(data, begins[word], flags[word], flag_of, counted):
                found -= 1
                characters -= starts[word + 1] - starts[word]
    row[COUNTED_WORDS], row[COUNTED_CHARACTERS] = found, characters


@compiled
def _keep_counted(data: Any, page: Page, words: int, flag_of: Any, counted: int) -> int:
    """Keep the words that count; give how many there are."""
    begins, ends, flags, starts, keys = page.word_begins, page.word_ends, page.word_flags, page.starts, page.word_keys
    left = 0
    for word in range(words):
        if _is_counted(data, begins[word], flags[word], flag_of, counted):
            length = starts[word + 1] - starts[word]
            begins[left], ends[left], keys[left] = begins[word], ends[word], keys[word]
            starts[left + 1] = starts[left] + length
            left += 1
    return left


@compiled
def _median_length(page: Page, words: int, lengths: Any) -> float:
    """Return the middle of the words' lengths, or the mean of the two in the middle."""
    if words == 0:
        return 0.0
    longest = 0
    for word in range(words):
        length = page.starts[word + 1] - page.starts[word]
        lengths[length] += 1
        longest = max(longest, length)
    below, lower, upper = 0, 0, 0
    for length in range(longest + 1):
        if below <= (words - 1) // 2:
            lower = length
        if below <= words // 2:
            upper = length
        below += lengths[length]
        lengths[length] = 0
    return (lower + upper) / 2


@compiled
def _count_spaced_dots(data: Any, begin: int, end: int) -> int:
    """Count ``. . .`` in a text."""
    found, at = 0, begin
    while at + 5 <= end:
        first = data[at] == _DOT and data[at + 2] == _DOT and data[at + 4] == _DOT
        if first and data[at + 1] == _SPACE and data[at + 3] == _SPACE:
            found += 1
            at += 5
        else:
            at += 1
    return found


@compiled
def _has_symbol(data: Any, begin: int, end: int) -> bool:
    for at in range(begin, end):
        if data[at] == _HASH_SIGN or (data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA6):
            return True
    return False


@compiled
def _is_mostly_runs(data: Any, begin: int, end: int, characters: int) -> bool:
    """Whether there are more than half as many runs of number signs as characters."""
    runs = 0
    for at in range(begin, end):
        runs += data[at] == _HASH_SIGN and (at == begin or data[at - 1] != _HASH_SIGN)
    return 2 * runs > characters


@compiled
def _count_symbols_apart(data: Any, page: Page, words: int, row: Any) -> None:
    hashes, ellipses = 0, 0
    for word in range(words):
        if page.word_flags[word] & SYMBOL:
            more = count_symbols(data, page.word_begins[word], page.word_ends[word])
            hashes += more[0]
            ellipses += more[1]
    row[HASHES], row[ELLIPSES] = hashes, ellipses


@compiled
def _count_symbol_words(data: Any, page: Page, words: int, reading: Reading) -> int:
    begins, ends, flags, starts = page.word_begins, page.word_ends, page.word_flags, page.starts
    found = 0
    for word in range(words):
        begin, end, marked = begins[word], ends[word], flags[word] & SYMBOL != 0
        if reading.symbols == WORDS_WITH:
            found += marked and _has_symbol(data, begin, end)
        elif marked and _is_mostly_runs(data, begin, end, starts[word + 1] - starts[word]):
            found += 1
        # An ellipsis that is one word has no letters.
        elif flags[word] & ALPHABETIC == 0:
            found += is_ending(data, begin, end, reading)
    return found


@compiled
def _count_alphabetic(page: Page, words: int, flag: int) -> int:
    found = 0
    for word in range(words):
        found += page.word_flags[word] & flag != 0
    return found


@compiled
def _write_point(written: Any, at: int, point: int) -> int:
    """Encode a code point as UTF-8; give how many bytes that took."""
    if point < 0x80:
        written[at] = point
        return 1
    size = 2 if point < 0x800 else 3 if point < 0x10000 else 4
    for step in range(size - 1, 0, -1):
        written[at + step] = 0x80 | point & 0x3F
        point >>= 6
    written[at] = (0xF00 >> size) & 0xFF | point
    return size


@inlined
def _lower(data: Any, at: int, end: int, lower: Any, written: Any) -> int:
    """Write a word in lower case, letter by letter; give how many bytes that took."""
    size = 0
    while at < end:
        point, step = decode(data, at)
        size += _write_point(written, size, np.int64(lower[point]))
        at += step
    return size


@compiled
def _count_stop_words(
    data: Any, page: Page, words: int, stop_words: StopWords, language: int, reading: Reading, lower: Any, written: Any
) -> int:
    begins, ends, keys = page.word_begins, page.word_ends, page.word_keys
    met = np.zeros(max(1, stop_words.most), np.int64)
    distinct, occurrences = 0, 0
    for word in range(words):
        begin, length, number = begins[word], ends[word] - begins[word], -1
        if reading.stop_word_case == LOWERED:
            # The lower case of a letter has at least a third of its bytes.
            if length <= 3 * stop_words.longest:
                size = _lower(data, begin, begin + length, lower, written)
                key = word_key(written, 0, size)
                number = find_stop_word(stop_words, language, written, 0, size, key)
        elif length <= stop_words.longest:
            number = find_stop_word(stop_words, language, data, begin, length, keys[word])
        if number >= 0:
            distinct += 1 - met[number]
            met[number] = 1
            occurrences += 1
    return distinct if reading.stop_words == DISTINCT else occurrences


@compiled
def _count_quality(
    data: Any,
    begin: int,
    end: int,
    page: Page,
    words: int,
    lines: int,
    flag_of: Any,
    reading: Reading,
    spelling: Spelling,
    row: Any,
) -> None:
    count_lines(data, begin, end, page, words, lines, flag_of, reading, row)
    if reading.symbols in (APART, TOGETHER):
        _count_symbols_apart(data, page, words, row)
        row[SYMBOLS] = row[HASHES] + row[ELLIPSES] + _count_spaced_dots(data, begin, end)
    else:
        row[SYMBOLS] = _count_symbol_words(data, page, words, reading)
    row[ALPHABETIC_WORDS] = _count_alphabetic(page, words, reading.alphabetic)
    if reading.lengths == MEDIAN:
        row[MEDIAN_LENGTH] = _median_length(page, words, spelling.lengths)


@compiled
def _count_repetition(
    data: Any,
    begin: int,
    end: int,
    page: Page,
    words: int,
    lines: int,
    flag_of: Any,
    reading: Reading,
    spelling: Spelling,
    row: Any,
) -> None:
    found = find_reading_lines(page, lines, reading.segments)
    count_segments(data, page, found, row[LINE_SEGMENTS : LINE_SEGMENTS + 6])
    found = find_reading_paragraphs(page, words, lines, reading.paragraphs)
    count_segments(data, page, found, row[PARAGRAPH_SEGMENTS : PARAGRAPH_SEGMENTS + 6])
    if reading.gram_words != ALL_WORDS:
        words = _keep_counted(data, page, words, flag_of, reading.gram_words)
    count_grams(data, begin, end, page, words, reading, spelling, row)


@compiled
def measure_readings(
    data: Any,
    offsets: Any,
    languages: Any,
    stop_words: StopWords,
    flag_of: npt.NDArray[np.uint16],
    lower: npt.NDArray[np.uint32],
    mode: int,
    breaks: Any,
    what: int,
    reading: Reading,
    page: Page,
    spelling: Spelling,
    rows: Any,
) -> None:
    """Measure every document.

    Args:
        data: uint8 [bytes], valid UTF-8.
        offsets: int64 [documents + 1], where each document starts.
        languages: int32 [documents], whose stop words a document is searched for, -1 for none.
        stop_words: the stop words of all languages.
        flag_of: uint16 [0x110000], the flags of every code point.
        lower: uint32 [0x110000], the lower case of every code point.
        mode: how runs of a script without spaces are cut into words.
        breaks: int64, ascending bytes at which words begin inside such runs, for ``AT_BREAKS``.
        what: which columns are wanted: QUALITY, REPETITION, or-ed.
        reading: whose rules are followed.
        page: memory for the longest document.
        spelling: the same.
        rows: float64 [documents, READING_COLUMNS], zeros, written.

    """
    next_break = np.int64(0)
    for document in range(len(offsets) - 1):
        row = rows[document]
        begin, end = offsets[document], offsets[document + 1]
        words, lines, next_break = count_words(data, begin, end, flag_of, mode, breaks, next_break, page, row)
        lines = open_last_line(data, begin, end, page, words, lines)
        _count_counted(data, page, words, flag_of, reading.counted, row)
        if what & QUALITY:
            _count_quality(data, begin, end, page, words, lines, flag_of, reading, spelling, row)
            if languages[document] >= 0:
                row[STOP_WORDS] = _count_stop_words(
                    data, page, words, stop_words, languages[document], reading, lower, spelling.joined
                )
        if what & REPETITION:
            _count_repetition(data, begin, end, page, words, lines, flag_of, reading, spelling, row)
