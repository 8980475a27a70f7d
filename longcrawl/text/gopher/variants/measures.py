"""What readings of Gopher's rules other than the paper's count, as numba kernels over the words and lines of a page."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import allocating, compiled, inlined
from longcrawl.kernels.ngrams import HASHED
from longcrawl.kernels.utf8 import decode, last_start
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_characters import ALPHABETIC, LINE_BREAK, SYMBOL
from longcrawl.text.gopher._page_kernels import Page, Texts, count_segments, find_lines, make_segment, pack_word
from longcrawl.text.gopher._page_measures import StopWords, count_stop_words, count_symbols, count_words
from longcrawl.text.gopher.variants import definitions as defined
from longcrawl.text.gopher.variants.definitions import Reading
from longcrawl.text.gopher.variants.ngrams import Spelling, count_grams

_DOT_KEY = np.uint64(pack_word(b"."))
_NEWLINE, _CARRIAGE_RETURN, _SPACE, _DOT, _HASH_SIGN = 0x0A, 0x0D, 0x20, 0x2E, 0x23


@compiled
def _open_last_line(texts: Texts, document: int, page: Page, words: int, lines: int) -> int:
    """Make the lines those of ``str.split`` at newlines, where an empty one follows the last newline; give how many."""
    begin, end = texts.offsets[document], texts.offsets[document + 1]
    if end > begin and texts.data[end - 1] != _NEWLINE:
        return lines
    page.line_begins[lines + 1] = page.line_begins[lines] + 1
    page.line_places[lines + 1] = page.line_places[lines] + 1
    page.line_words[lines : lines + 2] = words
    return lines + 1


@inlined
def _is_empty(page: Page, line: int) -> bool:
    return page.line_begins[line + 1] - 1 == page.line_begins[line]


@compiled
def _whole_lines(page: Page, segment: int, first: int, stop: int) -> None:
    """Make a segment of whole lines, with the white space around them."""
    page.segment_keys[segment] = HASHED
    if page.line_words[stop] > page.line_words[first]:
        make_segment(page, segment, first, stop)
    page.segment_begins[segment] = page.line_begins[first]
    page.segment_ends[segment] = page.line_begins[stop] - 1
    page.segment_characters[segment] = page.line_places[stop] - page.line_places[first] - 1


@inlined
def _is_between_newline_runs(page: Page, line: int, lines: int) -> bool:
    return line in (0, lines - 1) or not _is_empty(page, line)


@compiled
def _find_lines(page: Page, lines: int, cut: int) -> int:
    """Make segments of lines, ``cut`` as a reading does; give how many there are."""
    if cut == defined.STRIPPED_LINES:
        return find_lines(page, lines)
    segment = np.int64(0)
    for line in range(lines):
        filled = page.line_words[line + 1] > page.line_words[line]
        if filled or (cut == defined.NEWLINE_RUNS and _is_between_newline_runs(page, line, lines)):
            _whole_lines(page, segment, line, line + 1)
            segment += 1
    return segment


@compiled
def _between_empty_lines(page: Page, words: int, lines: int) -> int:
    """Make paragraphs of the stripped text, which stand between empty lines; of a blank text an empty one."""
    if words == 0:
        page.segment_keys[0] = HASHED
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
        if cut != defined.PAIRS_APART_STRIPPED:
            _whole_lines(page, segment, first, line + 1)
            segment += 1
        elif page.line_words[line + 1] > page.line_words[first]:
            make_segment(page, segment, first, line + 1)
            segment += 1
        line += 2 if pair else 1
        first = line
    return segment


@compiled
def _find_paragraphs(page: Page, words: int, lines: int, cut: int) -> int:
    """Make segments of paragraphs, ``cut`` as a reading does; give how many there are."""
    if cut == defined.NO_PARAGRAPHS:
        return 0
    if cut == defined.BLANK_APART:
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
def _is_ending(data: Any, begin: int, end: int, reading: Reading) -> bool:
    """Whether ``data[begin:end]`` is one of a reading's endings."""
    for ending in range(len(reading.ending_sizes)):
        if reading.ending_sizes[ending] == end - begin and _matches(data, begin, end, reading, ending):
            return True
    return False


@compiled
def _is_bullet(data: Any, begin: int, reading: Reading) -> bool:
    point, found = decode(data, begin)[0], False
    for bullet in reading.bullets:
        found |= point == bullet
    return found


@compiled
def _has_ending(data: Any, begin: int, end: int, reading: Reading) -> bool:
    found = False
    for ending in range(len(reading.ending_sizes)):
        found |= _matches(data, begin, end, reading, ending)
    return found


@inlined
def _count_line(data: Any, begin: int, end: int, reading: Reading, row: Any) -> None:
    if end > begin:
        if reading.edges[data[begin]] & defined.BULLET_BYTE:
            row[columns.BULLET_LINES] += _is_bullet(data, begin, reading)
        if reading.edges[data[end - 1]] & defined.ENDING_BYTE:
            row[columns.ELLIPSIS_LINES] += _has_ending(data, begin, end, reading)


@inlined
def _count_breaks(data: Any, at: int, end: int, flag_of: Any) -> int:
    """Count line breaks in white space; a carriage return and the newline after it are one."""
    breaks = 0
    while at < end:
        point, at = decode(data, at)
        paired = point == _CARRIAGE_RETURN and at < end and data[at] == _NEWLINE
        breaks += flag_of[point] & LINE_BREAK != 0 and not paired
    return breaks


@compiled
def _count_unicode_lines(texts: Texts, document: int, page: Page, words: int, reading: Reading, row: Any) -> None:
    """Count lines of ``str.splitlines``, blank ones too, without the white space around them."""
    data, begin, end = texts.data, texts.offsets[document], texts.offsets[document + 1]
    at, first = begin, 0
    for word in range(words + 1):
        stop = page.word_begins[word] if word < words else end
        alone = stop - at == 1 and data[at] == _SPACE
        breaks = 0 if alone else _count_breaks(data, at, stop, texts.flags)
        row[columns.LINES] += breaks
        if word > first and (breaks or word == words):
            _count_line(data, page.word_begins[first], page.word_ends[word - 1], reading, row)
            first = word
        if word < words:
            at = page.word_ends[word]
    if end > begin:
        point, _ = decode(data, last_start(data, end))
        row[columns.LINES] += texts.flags[point] & LINE_BREAK == 0


@compiled
def _count_lines(texts: Texts, document: int, page: Page, words: int, lines: int, reading: Reading, row: Any) -> None:
    """Count a reading's lines, those that begin with a bullet, and those that end in an ellipsis."""
    if reading.lines == defined.UNICODE_LINES:
        _count_unicode_lines(texts, document, page, words, reading, row)
        return
    segments = _find_lines(page, lines, reading.lines)
    row[columns.LINES] = segments
    for segment in range(segments):
        _count_line(texts.data, page.segment_begins[segment], page.segment_ends[segment], reading, row)


@compiled
def _count_counted(page: Page, words: int, counted: int, row: Any) -> None:
    flags, starts = page.word_flags, page.starts
    found, characters = words, starts[words]
    if counted != defined.ALL_WORDS:
        found, characters = 0, 0
        for word in range(words):
            counts = np.int64(flags[word] & counted != 0)
            found += counts
            characters += counts * (starts[word + 1] - starts[word])
    row[columns.COUNTED_WORDS], row[columns.COUNTED_CHARACTERS] = found, characters


@compiled
def _keep_counted(page: Page, words: int, counted: int) -> int:
    """Keep the words that count; give how many there are."""
    begins, ends, starts, keys = page.word_begins, page.word_ends, page.starts, page.word_keys
    flags, left = page.word_flags, 0
    for word in range(words):
        length = starts[word + 1] - starts[word]
        begins[left], ends[left], keys[left] = begins[word], ends[word], keys[word]
        starts[left + 1] = starts[left] + length
        left += flags[word] & counted != 0
    return left


@compiled
def _count_spaced_dots(data: Any, page: Page, words: int, begin: int, end: int) -> int:
    """Count ``. . .`` in a text, whose second full stop is a word."""
    found, reached = 0, begin
    for word in range(words):
        at = page.word_begins[word] - 2
        if page.word_keys[word] != _DOT_KEY or at < reached or at + 5 > end:
            continue
        dots = data[at] == _DOT and data[at + 4] == _DOT
        if dots and data[at + 1] == _SPACE and data[at + 3] == _SPACE:
            found += 1
            reached = at + 5
    return found


@compiled
def _is_mostly_runs(data: Any, begin: int, end: int, characters: int) -> bool:
    """Whether there are more than half as many runs of number signs as characters."""
    runs = 0
    for at in range(begin, end):
        runs += data[at] == _HASH_SIGN and (at == begin or data[at - 1] != _HASH_SIGN)
    return 2 * runs > characters


@compiled
def _has_symbol(data: Any, begin: int, end: int) -> bool:
    for at in range(begin, end):
        if data[at] == _HASH_SIGN or (data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA6):
            return True
    return False


@compiled
def _count_symbols_apart(data: Any, page: Page, words: int, row: Any) -> None:
    hashes, ellipses = 0, 0
    for word in range(words):
        if page.word_flags[word] & SYMBOL:
            more = count_symbols(data, page.word_begins[word], page.word_ends[word])
            hashes += more[0]
            ellipses += more[1]
    row[columns.HASHES], row[columns.ELLIPSES] = hashes, ellipses


@compiled
def _count_symbol_words(data: Any, page: Page, words: int, reading: Reading) -> int:
    begins, ends, flags, starts = page.word_begins, page.word_ends, page.word_flags, page.starts
    found = 0
    for word in range(words):
        begin, end, marked = begins[word], ends[word], flags[word] & SYMBOL != 0
        if reading.symbols == defined.WORDS_WITH:
            found += marked and _has_symbol(data, begin, end)
        elif marked and _is_mostly_runs(data, begin, end, starts[word + 1] - starts[word]):
            found += 1
        # An ellipsis that is one word has no letters.
        elif flags[word] & ALPHABETIC == 0:
            found += _is_ending(data, begin, end, reading)
    return found


@allocating
def _median_length(page: Page, words: int) -> float:
    """Return the middle of the words' lengths, or the mean of the two in the middle; lengths are few, so counted."""
    longest = 0
    for word in range(words):
        longest = max(longest, page.starts[word + 1] - page.starts[word])
    counts = np.zeros(longest + 1, np.int64)
    for word in range(words):
        counts[page.starts[word + 1] - page.starts[word]] += 1
    length, seen, twice = -1, 0, 0
    for rank in ((words - 1) // 2, words // 2):
        while seen <= rank:
            length += 1
            seen += counts[length]
        twice += length
    return twice / 2


@compiled
def _count_quality(
    texts: Texts,
    document: int,
    page: Page,
    words: int,
    lines: int,
    stop_words: StopWords,
    reading: Reading,
    met: Any,
    row: Any,
) -> None:
    data, begin, end = texts.data, texts.offsets[document], texts.offsets[document + 1]
    _count_lines(texts, document, page, words, lines, reading, row)
    if reading.symbols in (defined.APART, defined.TOGETHER):
        _count_symbols_apart(data, page, words, row)
        if reading.symbols == defined.TOGETHER:
            row[columns.SYMBOLS] = row[columns.HASHES] + row[columns.ELLIPSES]
            row[columns.SYMBOLS] += _count_spaced_dots(data, page, words, begin, end)
    else:
        row[columns.SYMBOLS] = _count_symbol_words(data, page, words, reading)
    alphabetic = 0
    for word in range(words):
        alphabetic += page.word_flags[word] & reading.alphabetic != 0
    row[columns.ALPHABETIC_WORDS] = alphabetic
    if reading.lengths == defined.MEDIAN and words:
        row[columns.MEDIAN_LENGTH] = _median_length(page, words)
    language = stop_words.languages[document]
    if language >= 0:
        lowers = reading.stop_word_case == defined.LOWERED
        distinct, occurrences = count_stop_words(data, page, words, stop_words, language, lowers, met)
        row[columns.STOP_WORDS] = distinct if reading.stop_words == defined.DISTINCT else occurrences


@compiled
def _count_repetition(
    texts: Texts,
    document: int,
    page: Page,
    words: int,
    lines: int,
    reading: Reading,
    spelling: Spelling,
    row: Any,
) -> None:
    found = _find_lines(page, lines, reading.segments)
    count_segments(texts, page, found, row[columns.LINE_SEGMENTS :][:6])
    found = _find_paragraphs(page, words, lines, reading.paragraphs)
    count_segments(texts, page, found, row[columns.PARAGRAPH_SEGMENTS :][:6])
    if reading.gram_words != defined.ALL_WORDS:
        words = _keep_counted(page, words, reading.gram_words)
    count_grams(texts, document, page, words, reading, spelling, row)


@allocating
def measure_readings(
    texts: Texts, stop_words: StopWords, what: int, reading: Reading, page: Page, spelling: Spelling, rows: Any
) -> None:
    """Measure every document.

    Args:
        texts: the documents.
        stop_words: the stop words of all languages.
        what: which columns are wanted: QUALITY, REPETITION, or-ed.
        reading: whose rules are followed.
        page: memory for the longest document.
        spelling: the same.
        rows: float64 [documents, READING_COLUMNS], zeros, written.
    """
    next_break = np.int64(0)
    met = np.zeros(stop_words.most, np.int64)
    for document in range(len(texts.offsets) - 1):
        row = rows[document]
        words, lines, next_break = count_words(texts, document, next_break, page, row)
        lines = _open_last_line(texts, document, page, words, lines)
        _count_counted(page, words, reading.counted, row)
        if what & columns.QUALITY:
            _count_quality(texts, document, page, words, lines, stop_words, reading, met, row)
        if what & columns.REPETITION:
            _count_repetition(texts, document, page, words, lines, reading, spelling, row)
