"""What readings of Gopher's rules other than the paper's count, as numba kernels over the words and lines of a page."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.text._lookup_kernels import compiled
from longcrawl.text._page_characters import ALPHANUMERIC, SYMBOL
from longcrawl.text._page_columns import (
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
from longcrawl.text._page_kernels import Page, count_segments, decode, word_key
from longcrawl.text._page_measures import count_symbols, count_words
from longcrawl.text._reading_characters import TEXTUAL
from longcrawl.text._reading_ngrams import Spelling, count_grams
from longcrawl.text._reading_segments import (
    count_lines,
    find_reading_lines,
    find_reading_paragraphs,
    is_ending,
    open_last_line,
)
from longcrawl.text._readings import (
    ALL_WORDS,
    APART,
    AS_LISTED,
    DISTINCT,
    MEDIAN,
    TEXTUAL_WORDS,
    TOGETHER,
    WORDS_WITH,
    Reading,
)
from longcrawl.text._stop_words import StopWords, find_stop_word

__all__ = ["measure_readings"]

_SPACE, _DOT, _HASH_SIGN = 0x20, 0x2E, 0x23


@compiled
def _is_counted(data: Any, page: Page, word: int, flag_of: Any, counted: int) -> bool:
    if counted == ALL_WORDS:
        return True
    if counted == TEXTUAL_WORDS:
        return page.word_flags[word] & TEXTUAL != 0
    point, _ = decode(data, page.word_begins[word])
    return flag_of[point] & ALPHANUMERIC != 0


@compiled
def _count_counted(data: Any, page: Page, words: int, flag_of: Any, counted: int, row: Any) -> None:
    for word in range(words):
        if _is_counted(data, page, word, flag_of, counted):
            row[COUNTED_WORDS] += 1
            row[COUNTED_CHARACTERS] += page.starts[word + 1] - page.starts[word]


@compiled
def _keep_counted(data: Any, page: Page, words: int, flag_of: Any, counted: int) -> int:
    """Keep the words that count; give how many there are."""
    left = 0
    for word in range(words):
        if not _is_counted(data, page, word, flag_of, counted):
            continue
        length = page.starts[word + 1] - page.starts[word]
        page.word_begins[left], page.word_ends[left] = page.word_begins[word], page.word_ends[word]
        page.word_keys[left] = page.word_keys[word]
        page.starts[left + 1] = page.starts[left] + length
        left += 1
    return left


@compiled
def _median_length(page: Page, words: int, lengths: Any) -> float:
    """Give the middle of the words' lengths, or the mean of the two in the middle."""
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
def _is_symbol(data: Any, page: Page, word: int, reading: Reading) -> bool:
    """Whether a word is an ellipsis, or has more than half as many runs of number signs as characters."""
    begin, end = page.word_begins[word], page.word_ends[word]
    if is_ending(data, begin, end, reading):
        return True
    if page.word_flags[word] & SYMBOL == 0:
        return False
    runs = 0
    for at in range(begin, end):
        runs += data[at] == _HASH_SIGN and (at == begin or data[at - 1] != _HASH_SIGN)
    return 2 * runs > page.starts[word + 1] - page.starts[word]


@compiled
def _count_all_symbols(data: Any, begin: int, end: int, page: Page, words: int, reading: Reading, row: Any) -> None:
    for word in range(words):
        marked = page.word_flags[word] & SYMBOL != 0
        if reading.symbols in (APART, TOGETHER):
            if marked:
                hashes, ellipses = count_symbols(data, page.word_begins[word], page.word_ends[word])
                row[HASHES] += hashes
                row[ELLIPSES] += ellipses
        elif reading.symbols == WORDS_WITH:
            row[SYMBOLS] += marked and _has_symbol(data, page.word_begins[word], page.word_ends[word])
        else:
            row[SYMBOLS] += _is_symbol(data, page, word, reading)
    if reading.symbols == TOGETHER:
        row[SYMBOLS] = row[HASHES] + row[ELLIPSES] + _count_spaced_dots(data, begin, end)


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


@compiled
def _lower(data: Any, at: int, end: int, lower: Any, written: Any) -> int:
    """Write a word in lower case, letter by letter; give how many bytes that took."""
    size = 0
    while at < end:
        point, step = decode(data, at)
        size += _write_point(written, size, np.int64(lower[point]))
        at += step
    return size


@compiled
def _find_listed(
    data: Any, page: Page, word: int, stop_words: StopWords, language: int, reading: Reading, lower: Any, written: Any
) -> int:
    """Give which stop word of its language a word is, -1 if none."""
    begin, end = page.word_begins[word], page.word_ends[word]
    if reading.stop_word_case == AS_LISTED:
        if end - begin > stop_words.longest:
            return -1
        return find_stop_word(stop_words, language, data, begin, end - begin, page.word_keys[word])
    # The lower case of a letter has at least a third of its bytes.
    if end - begin > 3 * stop_words.longest:
        return -1
    size = _lower(data, begin, end, lower, written)
    return find_stop_word(stop_words, language, written, 0, size, word_key(written, 0, size))


@compiled
def _count_stop_words(
    data: Any, page: Page, words: int, stop_words: StopWords, language: int, reading: Reading, lower: Any, written: Any
) -> int:
    met = np.zeros(max(1, stop_words.most), np.int64)
    distinct, occurrences = 0, 0
    for word in range(words):
        number = _find_listed(data, page, word, stop_words, language, reading, lower, written)
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
    _count_all_symbols(data, begin, end, page, words, reading, row)
    for word in range(words):
        row[ALPHABETIC_WORDS] += page.word_flags[word] & reading.alphabetic != 0
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
    next_break = 0
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
