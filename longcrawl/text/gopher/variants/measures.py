"""Lines, paragraphs and different words of a page, counted as readings of Gopher's rules do, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.ngrams import HASHED, number_words
from longcrawl.kernels.utf8 import decode, last_start
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_characters import ALPHABETIC, ELLIPSIS, HASH_SIGN, LINE_BREAK, SYMBOL, TERMINAL
from longcrawl.text.gopher._page_kernels import (
    SURE,
    Found,
    Page,
    Texts,
    bits_from,
    count_characters,
    first_bits,
    pack_word,
)
from longcrawl.text.gopher.variants import definitions as defined
from longcrawl.text.gopher.variants.definitions import Readings

_U = np.uint64
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x9E3779B97F4A7C15)
_DOT_KEY = _U(pack_word(b"."))
_NEWLINE, _CARRIAGE_RETURN, _SPACE, _DOT, _HASH_SIGN = 0x0A, 0x0D, 0x20, 0x2E, 0x23


@compiled
def _is_empty(page: Page, line: int) -> bool:
    return page.line_begins[line + 1] - 1 == page.line_begins[line]


@compiled
def _stripped_lines(page: Page, segment: int, first: int, stop: int) -> None:
    """Make a segment of lines, which have a word, without the white space around them."""
    page.segment_begins[segment] = page.word_begins[page.line_words[first]]
    page.segment_ends[segment] = page.word_ends[page.line_words[stop] - 1]
    found = _SEED
    for line in range(first, stop):
        if page.line_words[line + 1] > page.line_words[line]:
            found = (found ^ page.line_keys[line]) * _PRIME
            found ^= found >> _U(32)
    page.segment_keys[segment] = found | HASHED


@compiled
def _whole_lines(page: Page, segment: int, first: int, stop: int) -> None:
    """Make a segment of whole lines, with the white space around them."""
    page.segment_keys[segment] = HASHED
    if page.line_words[stop] > page.line_words[first]:
        _stripped_lines(page, segment, first, stop)
    page.segment_begins[segment] = page.line_begins[first]
    page.segment_ends[segment] = page.line_begins[stop] - 1


@compiled
def _find_lines(page: Page, lines: int, cut: int) -> int:
    """Make segments of lines, ``cut`` as a reading does; give how many there are."""
    segment = np.int64(0)
    for line in range(lines):
        filled = page.line_words[line + 1] > page.line_words[line]
        if cut == defined.STRIPPED_LINES:
            if filled:
                _stripped_lines(page, segment, line, line + 1)
                segment += 1
        elif filled or (cut == defined.NEWLINE_RUNS and (line in (0, lines - 1) or not _is_empty(page, line))):
            _whole_lines(page, segment, line, line + 1)
            segment += 1
    return segment


@compiled
def _between_blank_lines(page: Page, lines: int) -> int:
    """Make paragraphs of what stands between blank lines, without the white space around it."""
    segment, line = np.int64(0), 0
    while line < lines:
        first = line
        while line < lines and page.line_words[line + 1] > page.line_words[line]:
            line += 1
        if line > first:
            _stripped_lines(page, segment, first, line)
            segment += 1
        line += 1
    return segment


@compiled
def _between_empty_lines(page: Page, found: Found) -> int:
    """Make paragraphs of the stripped text, which stand between empty lines; of a blank text an empty one."""
    words, lines = found.words, found.lines
    if words == 0:
        page.segment_keys[0] = HASHED
        page.segment_begins[0], page.segment_ends[0] = found.begin, found.begin
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
            if page.line_words[line] == words:
                page.segment_ends[segment] = page.word_ends[words - 1]
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
        if cut != defined.PAIRS_APART_STRIPPED:
            _whole_lines(page, segment, first, line + 1)
            segment += 1
        elif page.line_words[line + 1] > page.line_words[first]:
            _stripped_lines(page, segment, first, line + 1)
            segment += 1
        line += 2 if pair else 1
        first = line
    return segment


@compiled
def find_segments(page: Page, found: Found, cut: int) -> int:
    """Make segments of lines or paragraphs, ``cut`` as a reading does; give how many there are."""
    if cut == defined.NO_PARAGRAPHS:
        return 0
    if cut == defined.BLANK_LINES:
        return _between_blank_lines(page, found.lines)
    if cut == defined.BLANK_APART:
        return _between_empty_lines(page, found)
    if cut in (defined.PAIRS_APART, defined.PAIRS_APART_STRIPPED):
        return _between_pairs(page, found.lines, cut)
    return _find_lines(page, found.lines, cut)


@compiled
def count_segments(texts: Texts, page: Page, found: Found, segments: int, row: Any) -> None:
    """Count segments and their characters: all, those that come more than once, and those without their first.

    ``page`` has the segments, and its ``repeats`` are overwritten; ``row`` is float64 [6], in the order of the columns.
    """
    ids, counts, firsts = page.repeats.ids, page.repeats.counts, page.repeats.firsts
    begins, ends = page.segment_begins, page.segment_ends
    number_words(texts.data, begins, ends, page.segment_keys, segments, page.repeats)
    total, duplicates, duplicate_characters, later, later_characters = 0, 0, 0, 0, 0
    for segment in range(segments):
        number, characters = ids[segment], count_characters(page, found.begin, begins[segment], ends[segment])
        total += characters
        if counts[number] > 1:
            duplicates += 1
            duplicate_characters += characters
            if firsts[number] != segment:
                later += 1
                later_characters += characters
    row[columns.SEGMENTS], row[columns.SEGMENT_CHARACTERS] = segments, total
    row[columns.DUPLICATES], row[columns.DUPLICATE_CHARACTERS] = duplicates, duplicate_characters
    row[columns.LATER_DUPLICATES], row[columns.LATER_CHARACTERS] = later, later_characters


@compiled
def _lowered(byte: int) -> int:
    return byte + 32 if 0x41 <= byte <= 0x5A else byte


@compiled
def _matches(data: Any, begin: int, end: int, ending: Any, size: int) -> bool:
    """Whether ``data[begin:end]`` ends in an ending, of that many bytes, once it is lowered."""
    same = 0
    while same < size and begin + same < end:
        if _lowered(data[end - 1 - same]) != ending[size - 1 - same]:
            return False
        same += 1
    return same == size and size > 0


@compiled
def _is_bulleted(data: Any, begin: int, after_word: int, readings: Readings, reading: int) -> bool:
    """Whether a line begins with a bullet, or with a marker that is a word, which ends at a byte."""
    found = False
    if readings.edges[reading, data[begin]] & defined.BULLET_BYTE:
        point, after = decode(data, begin)
        for bullet in readings.bullets[reading]:
            found |= point == bullet
        for marker in readings.markers[reading]:
            found |= point == marker and after == after_word
    return found


@compiled
def _has_ending(data: Any, begin: int, end: int, readings: Readings, reading: int) -> bool:
    found = False
    if readings.edges[reading, data[end - 1]] & defined.ENDING_BYTE:
        for place in range(readings.ending_sizes.shape[1]):
            found |= _matches(data, begin, end, readings.endings[reading, place], readings.ending_sizes[reading, place])
    return found


@compiled
def _is_ending(data: Any, begin: int, end: int, readings: Readings, reading: int) -> bool:
    """Whether ``data[begin:end]`` is one of a reading's endings."""
    for place in range(readings.ending_sizes.shape[1]):
        size = readings.ending_sizes[reading, place]
        if size == end - begin and _matches(data, begin, end, readings.endings[reading, place], size):
            return True
    return False


@compiled
def _count_breaks(data: Any, at: int, end: int, flag_of: Any) -> int:
    """Count line breaks in white space; a carriage return and the newline after it are one."""
    breaks = 0
    while at < end:
        point, at = decode(data, at)
        paired = point == _CARRIAGE_RETURN and at < end and data[at] == _NEWLINE
        breaks += flag_of[point] & LINE_BREAK != 0 and not paired
    return breaks


@compiled
def _count_unicode_lines(
    texts: Texts, page: Page, found: Found, readings: Readings, reading: int
) -> tuple[int, int, int]:
    """Count lines of ``str.splitlines``, blank ones too, without the white space around them."""
    data, words, at, first = texts.data, found.words, found.begin, 0
    lines, bulleted, ended = 0, 0, 0
    for word in range(words + 1):
        stop = page.word_begins[word] if word < words else found.end
        alone = stop - at == 1 and data[at] == _SPACE
        breaks = 0 if alone else _count_breaks(data, at, stop, texts.flags)
        lines += breaks
        if word > first and (breaks or word == words):
            begin, end = page.word_begins[first], page.word_ends[word - 1]
            bulleted += _is_bulleted(data, begin, page.word_ends[first], readings, reading)
            ended += _has_ending(data, begin, end, readings, reading)
            first = word
        if word < words:
            at = page.word_ends[word]
    if found.end > found.begin:
        point, _ = decode(data, last_start(data, found.end))
        lines += texts.flags[point] & LINE_BREAK == 0
    return lines, bulleted, ended


@compiled
def count_lines(texts: Texts, page: Page, found: Found, readings: Readings, reading: int) -> tuple[int, int, int]:
    """Count a reading's lines, those that begin with a bullet, and those that end in an ellipsis."""
    data, cut = texts.data, readings.choices[reading, defined.LINES]
    if cut == defined.UNICODE_LINES and found.breaks:
        return _count_unicode_lines(texts, page, found, readings, reading)
    lines, bulleted, ended = 0, 0, 0
    for line in range(found.lines):
        first, stop = page.line_words[line], page.line_words[line + 1]
        begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
        filled = stop > first
        if cut == defined.NEWLINE_RUNS:
            lines += end > begin or line in (0, found.lines - 1)
            filled = end > begin
        else:
            lines += filled or cut == defined.UNICODE_LINES
            if filled:
                begin, end = page.word_begins[first], page.word_ends[stop - 1]
        if filled:
            bulleted += _is_bulleted(data, begin, page.word_ends[first], readings, reading)
            ended += _has_ending(data, begin, end, readings, reading)
    # After the last newline there is no line.
    lines -= cut == defined.UNICODE_LINES and page.line_begins[found.lines - 1] == found.end
    return lines, bulleted, ended


@compiled
def count_line_rules(texts: Texts, page: Page, found: Found, short: int, row: Any) -> None:
    """Count lines as FineWeb does: those that are not blank, with the white space around them."""
    segments, ended, few = _find_lines(page, found.lines, defined.FILLED_LINES), 0, 0
    for segment in range(segments):
        begin, end = page.segment_begins[segment], page.segment_ends[segment]
        point, _ = decode(texts.data, last_start(texts.data, end))
        ended += texts.flags[point] & TERMINAL != 0
        few += count_characters(page, found.begin, begin, end) <= short
    row[columns.TERMINAL_LINES], row[columns.SHORT_LINES] = ended, few
    count_segments(texts, page, found, segments, row[columns.RAW_LINES :][:6])


@compiled
def count_counted(page: Page, found: Found, types: int, counted: int, row: Any) -> None:
    """Count the words that a reading counts, and their characters."""
    words, characters, counts = found.words, found.word_characters, page.repeats.counts
    if counted != defined.ALL_WORDS:
        words, characters = 0, 0
        for number in range(types):
            first = page.repeats.firsts[number]
            count = np.int64(counts[number]) * (page.type_flags[number] & counted != 0)
            words += count
            characters += count * (page.starts[first + 1] - page.starts[first])
    row[columns.COUNTED_WORDS], row[columns.COUNTED_CHARACTERS] = words, characters


@compiled
def count_alphabetic(page: Page, types: int, flag: int) -> int:
    """Count the words of which a character has a flag."""
    found = 0
    for number in range(types):
        found += np.int64(page.repeats.counts[number]) * (page.type_flags[number] & flag != 0)
    return found


@compiled
def median_length(page: Page, types: int) -> float:
    """Return the middle of the words' lengths, or the mean of the two in the middle; lengths are few, so counted."""
    firsts, starts, lengths, words, longest = page.repeats.firsts, page.starts, page.lengths, 0, -1
    for number in range(types):
        length, count = starts[firsts[number] + 1] - starts[firsts[number]], page.repeats.counts[number]
        while longest < length:
            longest += 1
            lengths[longest] = 0
        lengths[length] += count
        words += count
    length, seen, twice = -1, 0, 0
    for rank in ((words - 1) // 2, words // 2):
        while seen <= rank:
            length += 1
            seen += lengths[length]
        twice += length
    return twice / 2


@compiled
def count_symbols(data: Any, page: Page, found: Found, types: int) -> tuple[int, int]:
    """Count number signs, and ellipses: ``…`` and three full stops in a row."""
    hashes, ellipses = 0, 0
    for number in range(types):
        if page.type_flags[number] & SYMBOL == 0:
            continue
        first, count, dots = page.repeats.firsts[number], page.repeats.counts[number], 0
        begin, end = page.word_begins[first], page.word_ends[first]
        if page.type_flags[number] & (HASH_SIGN | ELLIPSIS) == 0 and end - begin <= SURE:
            # Most have one full stop, at their end.
            others = bits_from(page.others, begin - found.begin) & first_bits(end - begin)
            if others & others >> _U(1) & others >> _U(2) == 0:
                continue
        for at in range(begin, end):
            byte = data[at]
            if byte == _DOT:
                dots += 1
                if dots == 3:
                    ellipses += count
                    dots = 0
                continue
            dots = 0
            if byte == _HASH_SIGN:
                hashes += count
            elif byte == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA6:
                ellipses += count
    return hashes, ellipses


@compiled
def count_spaced_dots(data: Any, page: Page, found: Found) -> int:
    """Count ``. . .`` in a text, whose second full stop is a word."""
    count, reached = 0, found.begin
    for word in range(found.words):
        at = page.word_begins[word] - 2
        if page.word_keys[word] != _DOT_KEY or at < reached or at + 5 > found.end:
            continue
        dots = data[at] == _DOT and data[at + 4] == _DOT
        if dots and data[at + 1] == _SPACE and data[at + 3] == _SPACE:
            count += 1
            reached = at + 5
    return count


@compiled
def _is_mostly_runs(data: Any, begin: int, end: int, characters: int) -> bool:
    """Whether there are more than half as many runs of number signs as characters."""
    runs = 0
    for at in range(begin, end):
        runs += data[at] == _HASH_SIGN and (at == begin or data[at - 1] != _HASH_SIGN)
    return 2 * runs > characters


@compiled
def count_symbol_words(data: Any, page: Page, types: int, readings: Readings, reading: int) -> int:
    """Count words with a number sign or an ellipsis, or that are little else."""
    with_symbol, total = readings.choices[reading, defined.SYMBOLS] == defined.WORDS_WITH, 0
    for number in range(types):
        flags, first = page.type_flags[number], page.repeats.firsts[number]
        begin, end, found = page.word_begins[first], page.word_ends[first], False
        if with_symbol:
            found = flags & (HASH_SIGN | ELLIPSIS) != 0
        elif flags & HASH_SIGN and _is_mostly_runs(data, begin, end, page.starts[first + 1] - page.starts[first]):
            found = True
        # An ellipsis that is one word has no letters.
        elif flags & ALPHABETIC == 0:
            found = _is_ending(data, begin, end, readings, reading)
        total += found * np.int64(page.repeats.counts[number])
    return total
