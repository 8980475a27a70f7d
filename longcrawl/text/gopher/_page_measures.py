"""What Gopher's and FineWeb's rules count in raw text, as numba kernels over the words and lines of a page."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled, inlined
from longcrawl.kernels.ngrams import repetitions
from longcrawl.text.gopher._page_characters import ALPHABETIC, BULLET, MARKER, SYMBOL, TERMINAL
from longcrawl.text.gopher._page_kernels import (
    Page,
    count_segments,
    decode,
    find_lines,
    find_paragraphs,
    number_words,
    split_page,
)
from longcrawl.text.gopher._stop_words import StopWords, find_stop_word
from longcrawl.text.gopher.page_columns import (
    ALPHABETIC_WORDS,
    BULLET_LINES,
    CHARACTERS,
    ELLIPSES,
    ELLIPSIS_LINES,
    HASHES,
    LINE_RULES,
    LINE_SEGMENTS,
    LINES,
    NEWLINES,
    NGRAMS,
    PARAGRAPH_SEGMENTS,
    QUALITY,
    RAW_LINES,
    REPETITION,
    SHORT_LINES,
    STOP_WORDS,
    TERMINAL_LINES,
    TOP_2_GRAM,
    UNSPACED_LETTERS,
    WORD_CHARACTERS,
    WORDS,
)

_NEWLINE, _DOT, _HASH_SIGN = 0x0A, 0x2E, 0x23


@inlined
def count_symbols(data: Any, begin: int, end: int) -> tuple[int, int]:
    """Count number signs, and ellipses: ``…`` and three full stops in a row."""
    hashes, ellipses, dots = 0, 0, 0
    for at in range(begin, end):
        byte = data[at]
        if byte == _DOT:
            dots += 1
            if dots == 3:
                ellipses += 1
                dots = 0
            continue
        dots = 0
        hashes += byte == _HASH_SIGN
        ellipses += byte == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA6
    return hashes, ellipses


@inlined
def _ends_with_ellipsis(data: Any, begin: int, end: int) -> bool:
    """Whether the last bytes are three full stops or an ellipsis."""
    if end - begin < 3:
        return False
    last, middle, first = data[end - 1], data[end - 2], data[end - 3]
    return (last == _DOT and middle == _DOT and first == _DOT) or (last == 0xA6 and middle == 0x80 and first == 0xE2)


@inlined
def _is_bullet(data: Any, page: Page, word: int, flag_of: Any) -> bool:
    """Whether a line begins with a bullet, or with a word that is a marker by itself."""
    point, size = decode(data, page.word_begins[word])
    alone = page.word_ends[word] - page.word_begins[word] == size
    return flag_of[point] & BULLET != 0 or (alone and flag_of[point] & MARKER != 0)


@compiled
def _quality(
    data: Any,
    page: Page,
    words: int,
    lines: int,
    flag_of: Any,
    stop_words: StopWords,
    language: int,
    met: Any,
    row: Any,
) -> None:
    met[:] = 0
    alphabetic, distinct, hashes, ellipses = 0, 0, 0, 0
    for word in range(words):
        flags = page.word_flags[word]
        alphabetic += flags & ALPHABETIC != 0
        if flags & SYMBOL:
            more = count_symbols(data, page.word_begins[word], page.word_ends[word])
            hashes += more[0]
            ellipses += more[1]
        length = page.word_ends[word] - page.word_begins[word]
        if language >= 0 and length <= stop_words.longest:
            number = find_stop_word(stop_words, language, data, page.word_begins[word], length, page.word_keys[word])
            if number >= 0:
                distinct += 1 - met[number]
                met[number] = 1
    row[HASHES], row[ELLIPSES], row[ALPHABETIC_WORDS], row[STOP_WORDS] = hashes, ellipses, alphabetic, distinct
    filled, bullets, endings = 0, 0, 0
    for line in range(lines):
        first, last = page.line_words[line], page.line_words[line + 1] - 1
        if last < first:
            continue
        filled += 1
        if page.word_flags[first] & (BULLET | MARKER):
            bullets += _is_bullet(data, page, first, flag_of)
        if page.word_flags[last] & SYMBOL:
            endings += _ends_with_ellipsis(data, page.word_begins[last], page.word_ends[last])
    row[LINES], row[BULLET_LINES], row[ELLIPSIS_LINES] = filled, bullets, endings


@compiled
def _repetition(data: Any, page: Page, words: int, lines: int, row: Any) -> None:
    count_segments(data, page, find_lines(page, lines), row[LINE_SEGMENTS : LINE_SEGMENTS + 6])
    count_segments(data, page, find_paragraphs(page, lines), row[PARAGRAPH_SEGMENTS : PARAGRAPH_SEGMENTS + 6])
    if words:
        number_words(data, page, words)
        repetitions(page, words, row[TOP_2_GRAM : TOP_2_GRAM + NGRAMS])


@compiled
def _line_rules(data: Any, page: Page, lines: int, flag_of: Any, short: int, row: Any) -> None:
    """Count lines as FineWeb does: those that are not blank, with the white space around them."""
    # The keys are those of the words, so that raw lines need no hash of their own.
    find_lines(page, lines)
    segment = np.int64(0)
    for line in range(lines):
        if page.line_words[line + 1] == page.line_words[line]:
            continue
        begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
        page.segment_begins[segment], page.segment_ends[segment] = begin, end
        length = page.line_places[line + 1] - page.line_places[line] - 1
        page.segment_characters[segment] = length
        last = end - 1
        while data[last] & 0xC0 == 0x80:
            last -= 1
        point, _ = decode(data, last)
        row[TERMINAL_LINES] += flag_of[point] & TERMINAL != 0
        row[SHORT_LINES] += length <= short
        segment += 1
    count_segments(data, page, segment, row[RAW_LINES : RAW_LINES + 6])


@compiled
def count_words(
    data: Any, begin: int, end: int, flag_of: Any, mode: int, breaks: Any, next_break: int, page: Page, row: Any
) -> tuple[int, int, int]:
    """Split a document and write the columns that are always there; give words, lines and the next break."""
    words, lines, unspaced, next_break = split_page(data, begin, end, flag_of, mode, breaks, next_break, page)
    row[WORDS], row[WORD_CHARACTERS], row[UNSPACED_LETTERS] = words, page.starts[words], unspaced
    row[NEWLINES] = lines - 1 if end > begin and data[end - 1] != _NEWLINE else lines
    row[CHARACTERS] = page.line_places[lines] - (row[NEWLINES] < lines)
    return words, lines, next_break


@compiled
def measure_pages(
    data: Any,
    offsets: Any,
    languages: Any,
    stop_words: StopWords,
    flag_of: npt.NDArray[np.uint16],
    mode: int,
    breaks: Any,
    what: int,
    short: int,
    page: Page,
    rows: Any,
) -> None:
    """Measure every document.

    Args:
        data: uint8 [bytes], valid UTF-8.
        offsets: int64 [documents + 1], where each document starts.
        languages: int32 [documents], whose stop words a document is searched for, -1 for none.
        stop_words: the stop words of all languages.
        flag_of: uint16 [0x110000], the flags of every code point.
        mode: how runs of a script without spaces are cut into words.
        breaks: int64, ascending bytes at which words begin inside such runs, for ``AT_BREAKS``.
        what: which columns are wanted: QUALITY, REPETITION, LINE_RULES, or-ed.
        short: a line of up to so many characters is short.
        page: memory for the longest document.
        rows: float64 [documents, COLUMNS], zeros, written.

    """
    next_break = np.int64(0)
    met = np.zeros(max(1, stop_words.most), np.int64)
    for document in range(len(offsets) - 1):
        row = rows[document]
        begin, end = offsets[document], offsets[document + 1]
        words, lines, next_break = count_words(data, begin, end, flag_of, mode, breaks, next_break, page, row)
        if what & QUALITY:
            _quality(data, page, words, lines, flag_of, stop_words, languages[document], met, row)
        if what & REPETITION:
            _repetition(data, page, words, lines, row)
        if what & LINE_RULES:
            _line_rules(data, page, lines, flag_of, short, row)
