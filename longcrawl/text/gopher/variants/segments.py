"""Lines and paragraphs as readings of Gopher's rules cut them, as numba kernels over the words and lines of a page."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np

from longcrawl.kernels.lookup import compiled, inlined
from longcrawl.text.gopher._page_characters import LINE_BREAK
from longcrawl.text.gopher._page_kernels import Page, decode, find_lines, make_segment
from longcrawl.text.gopher.page_columns import BULLET_LINES, ELLIPSIS_LINES, LINES
from longcrawl.text.gopher.variants.definitions import (
    BLANK_APART,
    NEWLINE_RUNS,
    NO_PARAGRAPHS,
    PAIRS_APART_STRIPPED,
    STRIPPED_LINES,
    UNICODE_LINES,
    Reading,
)

__all__ = ["count_lines", "find_reading_lines", "find_reading_paragraphs", "is_ending", "open_last_line"]

_CARRIAGE_RETURN, _NEWLINE = 0x0D, 0x0A


@compiled
def open_last_line(data: Any, begin: int, end: int, page: Page, words: int, lines: int) -> int:
    """Make the lines those of ``str.split`` at newlines, where an empty one follows the last newline; give how many."""
    if end > begin and data[end - 1] != _NEWLINE:
        return lines
    page.line_begins[lines + 1] = page.line_begins[lines] + 1
    page.line_places[lines + 1] = page.line_places[lines] + 1
    page.line_words[lines] = words
    page.line_words[lines + 1] = words
    return lines + 1


@inlined
def _is_empty(page: Page, line: int) -> bool:
    return page.line_begins[line + 1] - 1 == page.line_begins[line]


@compiled
def _whole_lines(page: Page, segment: int, first: int, stop: int) -> None:
    """Make a segment of whole lines, with the white space around them."""
    page.segment_keys[segment] = np.uint64(0)
    if page.line_words[stop] > page.line_words[first]:
        make_segment(page, segment, page.line_words[first], page.line_words[stop] - 1)
    page.segment_begins[segment] = page.line_begins[first]
    page.segment_ends[segment] = page.line_begins[stop] - 1
    page.segment_characters[segment] = page.line_places[stop] - page.line_places[first] - 1


@inlined
def _is_between_newline_runs(page: Page, line: int, lines: int) -> bool:
    return line in (0, lines - 1) or not _is_empty(page, line)


@compiled
def find_reading_lines(page: Page, lines: int, cut: int) -> int:
    """Make segments of lines, ``cut`` as a reading does; give how many there are."""
    if cut == STRIPPED_LINES:
        return find_lines(page, lines)
    segment = np.int64(0)
    for line in range(lines):
        filled = page.line_words[line + 1] > page.line_words[line]
        if filled or (cut == NEWLINE_RUNS and _is_between_newline_runs(page, line, lines)):
            _whole_lines(page, segment, line, line + 1)
            segment += 1
    return segment


@compiled
def _between_empty_lines(page: Page, words: int, lines: int) -> int:
    """Make paragraphs of the stripped text, which stand between empty lines; of a blank text an empty one."""
    if words == 0:
        page.segment_keys[0] = np.uint64(0)
        page.segment_begins[0], page.segment_ends[0], page.segment_characters[0] = 0, 0, 0
        return 1
    line, segment = np.int64(0), np.int64(0)
    while page.line_words[line + 1] == 0:
        line += 1
    while line < lines and page.line_words[line] < words:
        first = line
        while line < lines and not _is_empty(page, line):
            line += 1
        if line > first:
            _whole_lines(page, segment, first, line)
            if segment == 0:
                page.segment_begins[0] = page.word_begins[0]
                page.segment_characters[0] -= page.word_places[0] - page.line_places[first]
            if page.line_words[line] == words:
                after = page.word_places[words - 1] + page.starts[words] - page.starts[words - 1]
                page.segment_ends[segment] = page.word_ends[words - 1]
                page.segment_characters[segment] -= page.line_places[line] - 1 - after
            segment += 1
        line += 1
    return segment


@compiled
def _between_pairs(page: Page, lines: int, cut: int) -> int:
    """Make paragraphs of what stands between two newlines, as ``str.split`` pairs them."""
    segment, first, line = np.int64(0), np.int64(0), np.int64(0)
    while line < lines:
        pair = line + 2 < lines and _is_empty(page, line + 1)
        if not pair and line + 1 < lines:
            line += 1
            continue
        first_word, stop_word = page.line_words[first], page.line_words[line + 1]
        if cut != PAIRS_APART_STRIPPED:
            _whole_lines(page, segment, first, line + 1)
            segment += 1
        elif stop_word > first_word:
            make_segment(page, segment, first_word, stop_word - 1)
            segment += 1
        line += 2 if pair else 1
        first = line
    return segment


@compiled
def find_reading_paragraphs(page: Page, words: int, lines: int, cut: int) -> int:
    """Make segments of paragraphs, ``cut`` as a reading does; give how many there are."""
    if cut == NO_PARAGRAPHS:
        return 0
    if cut == BLANK_APART:
        return _between_empty_lines(page, words, lines)
    return _between_pairs(page, lines, cut)


@inlined
def _lowered(byte: int) -> int:
    return byte + 32 if 0x41 <= byte <= 0x5A else byte


@inlined
def _matches(data: Any, begin: int, end: int, reading: Reading, ending: int) -> bool:
    """Whether ``data[begin:end]`` ends in an ending once it is lowered."""
    size = reading.ending_sizes[ending]
    same = 0
    while same < size and begin + same < end:
        if _lowered(data[end - 1 - same]) != reading.endings[ending, size - 1 - same]:
            return False
        same += 1
    return same == size


@compiled
def is_ending(data: Any, begin: int, end: int, reading: Reading) -> bool:
    """Whether ``data[begin:end]`` is one of a reading's endings."""
    for ending in range(len(reading.ending_sizes)):
        if reading.ending_sizes[ending] == end - begin and _matches(data, begin, end, reading, ending):
            return True
    return False


@inlined
def _count_line(data: Any, begin: int, end: int, reading: Reading, row: Any) -> None:
    if end > begin:
        point, _ = decode(data, begin)
        for bullet in reading.bullets:
            row[BULLET_LINES] += point == bullet
        ended = False
        for ending in range(len(reading.ending_sizes)):
            ended = ended or _matches(data, begin, end, reading, ending)
        row[ELLIPSIS_LINES] += ended


@inlined
def _count_breaks(data: Any, at: int, end: int, flag_of: Any) -> int:
    """Count line breaks in white space; a carriage return and the newline after it are one."""
    breaks = 0
    while at < end:
        point, size = decode(data, at)
        at += size
        paired = point == _CARRIAGE_RETURN and at < end and data[at] == _NEWLINE
        breaks += flag_of[point] & LINE_BREAK != 0 and not paired
    return breaks


@compiled
def _count_unicode_lines(
    data: Any, begin: int, end: int, page: Page, words: int, flag_of: Any, reading: Reading, row: Any
) -> None:
    """Count lines of ``str.splitlines``, blank ones too, without the white space around them."""
    at, first = begin, 0
    for word in range(words + 1):
        stop = page.word_begins[word] if word < words else end
        breaks = _count_breaks(data, at, stop, flag_of)
        row[LINES] += breaks
        if word > first and (breaks or word == words):
            _count_line(data, page.word_begins[first], page.word_ends[word - 1], reading, row)
            first = word
        if word < words:
            at = page.word_ends[word]
    if end > begin:
        last = end - 1
        while data[last] & 0xC0 == 0x80:
            last -= 1
        point, _ = decode(data, last)
        row[LINES] += flag_of[point] & LINE_BREAK == 0


@compiled
def count_lines(
    data: Any, begin: int, end: int, page: Page, words: int, lines: int, flag_of: Any, reading: Reading, row: Any
) -> None:
    """Count a reading's lines, those that begin with a bullet, and those that end in an ellipsis."""
    if reading.lines == UNICODE_LINES:
        _count_unicode_lines(data, begin, end, page, words, flag_of, reading, row)
        return
    segments = find_reading_lines(page, lines, reading.lines)
    row[LINES] = segments
    for segment in range(segments):
        _count_line(data, page.segment_begins[segment], page.segment_ends[segment], reading, row)
