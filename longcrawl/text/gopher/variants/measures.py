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
def _is_blank(page: Page, line: int) -> bool:
    return page.line_words[line + 1] == page.line_words[line]


@compiled
def _keep(page: Page, kept: int, first: int, stop: int, begin: int, end: int) -> int:
    """Write a segment, which has some lines, if there may be another one like it; give how many are written then."""
    line = first
    while line + 1 < stop and _is_blank(page, line):
        line += 1
    if not page.line_again[line]:
        return kept
    found = _SEED
    for line in range(first, stop):
        if not _is_blank(page, line):
            found = (found ^ page.line_keys[line]) * _PRIME
            found ^= found >> _U(32)
    page.segment_begins[kept], page.segment_ends[kept], page.segment_keys[kept] = begin, end, found | HASHED
    return kept + 1


@compiled
def _find_lines(page: Page, found: Found, cut: int) -> tuple[int, int, int]:
    """Make segments of lines, ``cut`` as a reading does; give what :func:`_find_segments` does."""
    kept, segments, characters = 0, 0, 0
    for line in range(found.lines):
        begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
        filled = not _is_blank(page, line)
        if cut == defined.STRIPPED_LINES and filled:
            begin = page.word_begins[page.line_words[line]]
            end = page.word_ends[page.line_words[line + 1] - 1]
        if filled or (cut == defined.NEWLINE_RUNS and (end > begin or line in (0, found.lines - 1))):
            segments += 1
            characters += count_characters(page, found, begin, end)
            kept = _keep(page, kept, line, line + 1, begin, end)
    return kept, segments, characters


@compiled
def _find_paragraphs(page: Page, found: Found, cut: int) -> tuple[int, int, int]:
    """Make segments of paragraphs, which end at blank lines or at empty ones; give what :func:`_find_segments` does."""
    words, lines = found.words, found.lines
    blank, strips = cut == defined.BLANK_LINES, cut == defined.BLANK_LINES
    if words == 0:
        return 0, np.int64(not blank), 0
    kept, segments, characters, line = 0, 0, 0, 0
    while page.line_words[line + 1] == 0:
        line += 1
    while line < lines and page.line_words[line] < words:
        first = line
        while line < lines and not (_is_blank(page, line) if blank else _is_empty(page, line)):
            line += 1
        if line > first:
            begin, end = page.line_begins[first], page.line_begins[line] - 1
            # The text is without the white space around it.
            if strips or segments == 0:
                begin = page.word_begins[page.line_words[first]]
            if strips or page.line_words[line] == words:
                end = page.word_ends[page.line_words[line] - 1]
            segments += 1
            characters += count_characters(page, found, begin, end)
            kept = _keep(page, kept, first, line, begin, end)
        line += 1
    return kept, segments, characters


@compiled
def _between_pairs(page: Page, found: Found, cut: int) -> tuple[int, int, int]:
    """Make paragraphs of what stands between two newlines, as ``str.split`` pairs them."""
    kept, segments, characters, first, line, lines = 0, 0, 0, 0, 0, found.lines
    while line < lines:
        pair = line + 2 < lines and _is_empty(page, line + 1)
        if not pair and line + 1 < lines:
            line += 1
            continue
        begin, end = page.line_begins[first], page.line_begins[line + 1] - 1
        filled = page.line_words[line + 1] > page.line_words[first]
        if cut == defined.PAIRS_APART_STRIPPED and filled:
            begin = page.word_begins[page.line_words[first]]
            end = page.word_ends[page.line_words[line + 1] - 1]
        if filled or cut != defined.PAIRS_APART_STRIPPED:
            segments += 1
            characters += count_characters(page, found, begin, end)
            kept = _keep(page, kept, first, line + 1, begin, end)
        line += 2 if pair else 1
        first = line
    return kept, segments, characters


@compiled
def _find_segments(page: Page, found: Found, cut: int) -> tuple[int, int, int]:
    """Make segments of lines or paragraphs, ``cut`` as a reading does.

    Returns:
        How many may come again, which are written, how many there are, and their characters.
    """
    if cut == defined.NO_PARAGRAPHS:
        return 0, 0, 0
    if cut in (defined.BLANK_LINES, defined.BLANK_APART):
        return _find_paragraphs(page, found, cut)
    if cut in (defined.PAIRS_APART, defined.PAIRS_APART_STRIPPED):
        return _between_pairs(page, found, cut)
    return _find_lines(page, found, cut)


@compiled
def count_segments(texts: Texts, page: Page, found: Found, cut: int, row: Any) -> None:
    """Count lines or paragraphs and their characters: all, those that come more than once, and those but their first.

    The ``repeats`` of ``page`` are overwritten; ``row`` is float64 [6], in the order of the columns.
    """
    kept, segments, total = _find_segments(page, found, cut)
    ids, counts, firsts = page.repeats.ids, page.repeats.counts, page.repeats.firsts
    begins, ends = page.segment_begins, page.segment_ends
    if kept:
        number_words(texts.data, begins, ends, page.segment_keys, kept, page.repeats)
    duplicates, duplicate_characters, later, later_characters = 0, 0, 0, 0
    for segment in range(kept):
        number = ids[segment]
        if counts[number] > 1:
            characters = count_characters(page, found, begins[segment], ends[segment])
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
def _has_edges(data: Any, begin: int, end: int, edges: Any) -> bool:
    """Whether a line may begin with a bullet or have an ending, by its first byte and its last two."""
    if end - begin < 2:
        return end > begin
    ending = edges[data[end - 1]] & defined.ENDING_BYTE and edges[data[end - 2]] & defined.BEFORE_ENDING_BYTE
    return edges[data[begin]] & defined.BULLET_BYTE != 0 or ending != 0


@compiled
def _count_line(data: Any, begin: int, end: int, after_word: int, readings: Readings, reading: int, row: Any) -> None:
    """Count a line if it begins with a bullet, and if it has an ending; its first word ends at a byte."""
    if not _has_edges(data, begin, end, readings.edges[reading]):
        return
    bulleted, ended = False, False
    point, after = decode(data, begin)
    for bullet in readings.bullets[reading]:
        bulleted |= point == bullet
    for marker in readings.markers[reading]:
        bulleted |= point == marker and after == after_word
    for place in range(readings.ending_sizes.shape[1]):
        ended |= _matches(data, begin, end, readings.endings[reading, place], readings.ending_sizes[reading, place])
    row[columns.BULLET_LINES] += bulleted
    row[columns.ELLIPSIS_LINES] += ended


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
def _count_unicode_lines(texts: Texts, page: Page, found: Found, readings: Readings, reading: int, row: Any) -> None:
    """Count lines of ``str.splitlines``, blank ones too, without the white space around them."""
    data, words, at, first = texts.data, found.words, found.begin, 0
    for word in range(words + 1):
        stop = page.word_begins[word] if word < words else found.end
        alone = stop - at == 1 and data[at] == _SPACE
        breaks = 0 if alone else _count_breaks(data, at, stop, texts.flags)
        row[columns.LINES] += breaks
        if word > first and (breaks or word == words):
            begin, end = page.word_begins[first], page.word_ends[word - 1]
            _count_line(data, begin, end, page.word_ends[first], readings, reading, row)
            first = word
        if word < words:
            at = page.word_ends[word]
    if found.end > found.begin:
        point, _ = decode(data, last_start(data, found.end))
        row[columns.LINES] += texts.flags[point] & LINE_BREAK == 0


@compiled
def count_lines(texts: Texts, page: Page, found: Found, readings: Readings, rows: Any) -> None:
    """Count lines as each reading does, those that begin with a bullet, and those that end in an ellipsis."""
    data, cuts, filled, runs = texts.data, readings.choices[:, defined.LINES], 0, 0
    edges = readings.edges[len(cuts)]
    for line in range(found.lines):
        first, stop = page.line_words[line], page.line_words[line + 1]
        begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
        runs += end > begin or line in (0, found.lines - 1)
        filled += stop > first
        if end == begin:
            continue
        word_begin, word_end = (page.word_begins[first], page.word_ends[stop - 1]) if stop > first else (begin, begin)
        if not _has_edges(data, begin, end, edges) and not _has_edges(data, word_begin, word_end, edges):
            continue
        for reading in range(len(cuts)):
            after = page.word_ends[first]
            if cuts[reading] == defined.NEWLINE_RUNS:
                _count_line(data, begin, end, after, readings, reading, rows[reading])
            elif stop > first and not (cuts[reading] == defined.UNICODE_LINES and found.breaks):
                _count_line(data, word_begin, word_end, after, readings, reading, rows[reading])
    for reading in range(len(cuts)):
        if cuts[reading] != defined.UNICODE_LINES:
            rows[reading, columns.LINES] = runs if cuts[reading] == defined.NEWLINE_RUNS else filled
        elif found.breaks:
            _count_unicode_lines(texts, page, found, readings, reading, rows[reading])
        else:
            # After the last newline there is no line.
            rows[reading, columns.LINES] = found.lines - (page.line_begins[found.lines - 1] == found.end)


@compiled
def count_line_rules(texts: Texts, page: Page, found: Found, short: int, row: Any) -> None:
    """Count lines as FineWeb does: those that are not blank, with the white space around them."""
    ended, few = 0, 0
    for line in range(found.lines):
        if not _is_blank(page, line):
            begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
            point, _ = decode(texts.data, last_start(texts.data, end))
            ended += texts.flags[point] & TERMINAL != 0
            few += count_characters(page, found, begin, end) <= short
    row[columns.TERMINAL_LINES], row[columns.SHORT_LINES] = ended, few
    count_segments(texts, page, found, defined.FILLED_LINES, row[columns.RAW_LINES :][:6])


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
        elif flags & ALPHABETIC == 0 and readings.edges[reading, data[end - 1]] & defined.ENDING_BYTE:
            found = _is_ending(data, begin, end, readings, reading)
        total += found * np.int64(page.repeats.counts[number])
    return total
