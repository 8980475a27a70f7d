"""Definitions of Gopher's rules by the paper, datatrove, DCLM, dolma and NeMo Curator."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.memory import eight_at, put_eight
from longcrawl.kernels.ngrams import (
    HASHED,
    clear,
    covered,
    forget,
    keep_repeated,
    lengthen,
    most_frequent,
    note,
    number_words,
    same_letters,
)
from longcrawl.kernels.texts import copy, decode, last_start
from longcrawl.text.gopher import words as columns
from longcrawl.text.gopher.words import (
    ALPHABETIC,
    ALPHANUMERIC_FIRST,
    BULLETS,
    ELLIPSIS,
    HASH_SIGN,
    LETTER,
    LINE_BREAK,
    MARKERS,
    SURE,
    SYMBOL,
    TERMINAL,
    TEXTUAL,
    Found,
    Page,
    Texts,
    bits_from,
    count_characters,
    first_bits,
    pack_word,
)

Definitions = Literal["paper", "datatrove", "dclm", "dolma", "nemo-curator"]
"""A name of a project (or the paper) whose definitions of Gopher's rules apply."""
Share = tuple[int, int | None]  # the column of a count, and the column that it is divided by, if any
ALL_WORDS = 0  # value for all words, in place of the flag of the words to count (``TEXTUAL`` or ``ALPHANUMERIC_FIRST``)
MEAN, MEDIAN = range(2)  # averages of the length of words
APART, TOGETHER, WORDS_WITH, WORDS_OF = range(4)
"""Counts of # and ellipses: two; one that includes ``. . .``; words that contain one; words that are mostly these."""
DISTINCT, OCCURRENCES = range(2)  # counts of stop words: distinct ones, or all occurrences
AS_LISTED, LOWERED = range(2)  # spelling of stop words: as listed, or in lower case
UNICODE_LINES, STRIPPED_LINES, FILLED_LINES, NEWLINE_RUNS = range(4)
"""Kinds of lines: those of ``str.splitlines``; not blank, without or with white space around them; ``\\n+`` apart."""
BLANK_LINES, BLANK_APART, PAIRS_APART, PAIRS_APART_STRIPPED, NO_PARAGRAPHS = range(4, 9)
"""Kinds of paragraphs: between blank lines; two or more newlines of the stripped text; pairs of newlines; none."""
FIRST, LONGEST = range(2)  # choice among equally frequent n-grams
REPEATED_ONLY, ONCE_TOO = range(2)  # whether a most frequent n-gram that occurs once counts
IN_WORDS, WITH_SPACES, FOUND_IN_TEXT = range(3)
"""Size of the most frequent n-gram: characters of its words; also spaces; also spaces, at every place in the text."""
UNION, SKIP, SUM, LATER = range(4)
"""Counts of repeated n-grams: words that they cover; later ones without overlaps; all; words that later ones cover."""
NOTHING, EVERYTHING = range(2)  # share of n-grams in a text of fewer than n words: 0 or 1


BULLET_BYTE, ENDING_BYTE, BEFORE_ENDING_BYTE = 1, 2, 4


class Choices(NamedTuple):
    """Choices among definitions of the rules; the defaults are the paper's."""

    lines: int = STRIPPED_LINES
    counted: int = ALL_WORDS
    lengths: int = MEAN
    symbols: int = APART
    alphabetic: int = ALPHABETIC  # flag of the characters that make a word alphabetic
    stop_words: int = DISTINCT
    stop_word_case: int = AS_LISTED
    segments: int = STRIPPED_LINES  # kind of lines of the repetition rules
    paragraphs: int = BLANK_LINES
    gram_words: int = ALL_WORDS
    top: int = FIRST
    top_once: int = REPEATED_ONLY
    top_size: int = IN_WORDS
    repeated: int = UNION
    few_words: int = NOTHING


class Reading(NamedTuple):
    """One project's definitions of the rules."""

    choices: Choices
    bullets: npt.NDArray[np.uint32]  # code points
    markers: npt.NDArray[np.uint32]  # code points of bullets that must be a word by themselves
    endings: npt.NDArray[np.uint8]
    """Shape (endings, bytes of the longest): endings of ellipsis lines, compared with the line in lower case."""
    ending_sizes: npt.NDArray[np.int64]  # size of each ending in bytes
    edges: npt.NDArray[np.uint8]  # flags of the 256 bytes: first ones of bullets, last ones of endings, and before


def _reading(bullets: str, endings: tuple[str, ...], markers: str = "", **choices: int) -> Reading:
    encoded = [ending.encode() for ending in endings]
    table, edges = np.zeros((len(encoded), max(map(len, encoded))), np.uint8), np.zeros(256, np.uint8)
    for row, ending in zip(table, encoded, strict=True):
        row[: len(ending)] = list(ending)
    cases = [*encoded, *(ending.upper().encode() for ending in endings)]
    edges[[mark.encode()[0] for mark in bullets + markers]] |= BULLET_BYTE
    edges[[ending[-1] for ending in cases]] |= ENDING_BYTE
    edges[[ending[-2] for ending in cases]] |= BEFORE_ENDING_BYTE
    bullet_points, marker_points = (np.array([*map(ord, each)], np.uint32) for each in (bullets, markers))
    sizes = np.array([*map(len, encoded)], np.int64)
    return Reading(Choices(**choices), bullet_points, marker_points, table, sizes, edges)


READINGS: Mapping[Definitions, Reading] = {
    "paper": _reading(BULLETS, ("...", "…"), MARKERS),
    "datatrove": _reading(
        "•-",
        ("...", "…"),
        lines=UNICODE_LINES,
        counted=TEXTUAL,
        segments=NEWLINE_RUNS,
        paragraphs=BLANK_APART,
        top_once=ONCE_TOO,
        top_size=WITH_SPACES,
        repeated=SKIP,
    ),
    "dclm": _reading(
        "●•*-",
        ("...", ". . .", "…"),
        counted=ALPHANUMERIC_FIRST,
        symbols=TOGETHER,
        stop_words=OCCURRENCES,
        stop_word_case=LOWERED,
        paragraphs=PAIRS_APART_STRIPPED,
        gram_words=ALPHANUMERIC_FIRST,
        top=LONGEST,
    ),
    "dolma": _reading(
        "*-",
        ("…",),
        lines=NEWLINE_RUNS,
        lengths=MEDIAN,
        symbols=WORDS_WITH,
        stop_words=OCCURRENCES,
        segments=NEWLINE_RUNS,
        paragraphs=NO_PARAGRAPHS,
        top_once=ONCE_TOO,
        repeated=SUM,
    ),
    "nemo-curator": _reading(
        "•‣\N{HYPHEN BULLET}⁌⁍∙○●◘◦⦾⦿",
        ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more"),
        symbols=WORDS_OF,
        alphabetic=LETTER,
        stop_words=OCCURRENCES,
        segments=FILLED_LINES,
        paragraphs=PAIRS_APART,
        top_once=ONCE_TOO,
        top_size=FOUND_IN_TEXT,
        repeated=LATER,
        few_words=EVERYTHING,
    ),
}


def quality_shares(definitions: Definitions) -> dict[str, Share]:
    """Return the columns that each of Gopher's rules for quality counts and divides by."""
    counted = definitions in ("datatrove", "dclm")
    words = columns.COUNTED_WORDS if counted else columns.WORDS
    length: Share = (columns.WORD_CHARACTERS, columns.WORDS)
    if definitions == "datatrove":
        length = (columns.COUNTED_CHARACTERS, columns.COUNTED_WORDS)
    elif definitions == "dolma":
        length = (columns.MEDIAN_LENGTH, None)
    apart = definitions in ("paper", "datatrove")
    return {
        "min_words": (words, None),
        "max_words": (words, None),
        "min_mean_word_length": length,
        "max_mean_word_length": length,
        "max_hash_ratio": (columns.HASHES if apart else columns.SYMBOLS, columns.WORDS),
        "max_ellipsis_ratio": (columns.ELLIPSES if apart else columns.SYMBOLS, columns.WORDS),
        "max_bullet_lines": (columns.BULLET_LINES, columns.LINES),
        "max_ellipsis_lines": (columns.ELLIPSIS_LINES, columns.LINES),
        "min_alphabetic_words": (columns.ALPHABETIC_WORDS, columns.WORDS),
        "min_stop_words": (columns.STOP_WORDS, None),
    }


def repetition_shares(definitions: Definitions) -> dict[str, Share]:
    """Return the columns that each of Gopher's rules for repetition counts and divides by."""
    shares: dict[str, Share] = {}
    count, characters = columns.DUPLICATES, columns.DUPLICATE_CHARACTERS
    if definitions in ("datatrove", "nemo-curator"):
        count, characters = columns.LATER_DUPLICATES, columns.LATER_CHARACTERS
    of = {"datatrove": columns.CHARACTERS, "dolma": columns.WORD_CHARACTERS}
    # datatrove checks paragraphs first, and the ledger names the first failed rule.
    kinds = {"dolma": ("line",), "datatrove": ("paragraph", "line")}
    for kind in kinds.get(definitions, ("line", "paragraph")):
        first = columns.LINE_SEGMENTS if kind == "line" else columns.PARAGRAPH_SEGMENTS
        every = of.get(definitions, first + columns.SEGMENT_CHARACTERS)
        shares[f"max_duplicate_{kind}s"] = first + count, first + columns.SEGMENTS
        shares[f"max_duplicate_{kind}_characters"] = first + characters, every
    of = {"datatrove": columns.CHARACTERS, "nemo-curator": columns.CHARACTERS, "dclm": columns.COUNTED_CHARACTERS}
    words = of.get(definitions, columns.WORD_CHARACTERS)
    for n in range(2, 5):
        shares[f"max_top_{n}gram"] = columns.TOP_2_GRAM + n - 2, words
    for n in range(5, 11):
        grams = columns.GRAM_CHARACTERS + n - 5 if definitions == "dolma" else words
        shares[f"max_duplicate_{n}grams"] = columns.DUPLICATE_5_GRAMS + n - 5, grams
    return shares


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
    kept, segments, characters = 0, 0, 0
    for line in range(found.lines):
        begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
        filled = not _is_blank(page, line)
        if cut == STRIPPED_LINES and filled:
            begin = page.word_begins[page.line_words[line]]
            end = page.word_ends[page.line_words[line + 1] - 1]
        if filled or (cut == NEWLINE_RUNS and (end > begin or line in (0, found.lines - 1))):
            segments += 1
            characters += count_characters(page, found, begin, end)
            kept = _keep(page, kept, line, line + 1, begin, end)
    return kept, segments, characters


@compiled
def _find_paragraphs(page: Page, found: Found, cut: int) -> tuple[int, int, int]:
    """Make segments of paragraphs that end at blank or empty lines; see :func:`_find_segments`."""
    words, lines = found.words, found.lines
    blank = cut == BLANK_LINES
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
            # White space around the text does not count.
            if blank or segments == 0:
                begin = page.word_begins[page.line_words[first]]
            if blank or page.line_words[line] == words:
                end = page.word_ends[page.line_words[line] - 1]
            segments += 1
            characters += count_characters(page, found, begin, end)
            kept = _keep(page, kept, first, line, begin, end)
        line += 1
    return kept, segments, characters


@compiled
def _between_pairs(page: Page, found: Found, cut: int) -> tuple[int, int, int]:
    """Make segments of paragraphs between pairs of newlines, paired as by ``str.split``; see :func:`_find_segments`."""
    kept, segments, characters, first, line, lines = 0, 0, 0, 0, 0, found.lines
    while line < lines:
        pair = line + 2 < lines and _is_empty(page, line + 1)
        if not pair and line + 1 < lines:
            line += 1
            continue
        begin, end = page.line_begins[first], page.line_begins[line + 1] - 1
        filled = page.line_words[line + 1] > page.line_words[first]
        if cut == PAIRS_APART_STRIPPED and filled:
            begin = page.word_begins[page.line_words[first]]
            end = page.word_ends[page.line_words[line + 1] - 1]
        if filled or cut != PAIRS_APART_STRIPPED:
            segments += 1
            characters += count_characters(page, found, begin, end)
            kept = _keep(page, kept, first, line + 1, begin, end)
        line += 2 if pair else 1
        first = line
    return kept, segments, characters


@compiled
def _find_segments(page: Page, found: Found, cut: int) -> tuple[int, int, int]:
    if cut == NO_PARAGRAPHS:
        return 0, 0, 0
    if cut in (BLANK_LINES, BLANK_APART):
        return _find_paragraphs(page, found, cut)
    if cut in (PAIRS_APART, PAIRS_APART_STRIPPED):
        return _between_pairs(page, found, cut)
    return _find_lines(page, found, cut)


@compiled
def count_segments(texts: Texts, page: Page, found: Found, cut: int, row: Any) -> None:
    """Write to ``row``, float64 [6], lines or paragraphs and their characters: all, repeated ones, and later ones."""
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
    same = 0
    while same < size and begin + same < end:
        if _lowered(data[end - 1 - same]) != ending[size - 1 - same]:
            return False
        same += 1
    return same == size and size > 0


@compiled
def _has_edges(data: Any, begin: int, end: int, edges: Any) -> bool:
    """Return whether a line may begin with a bullet or have an ending, by its first byte and its last two."""
    if end - begin < 2:
        return end > begin
    ending = edges[data[end - 1]] & ENDING_BYTE and edges[data[end - 2]] & BEFORE_ENDING_BYTE
    return edges[data[begin]] & BULLET_BYTE != 0 or ending != 0


@compiled
def _count_line(data: Any, begin: int, end: int, after_word: int, reading: Reading, row: Any) -> None:
    """Count a line if it begins with a bullet, and if it has an ending; ``after_word`` is the end of its first word."""
    if not _has_edges(data, begin, end, reading.edges):
        return
    bulleted, ended = False, False
    point, after = decode(data, begin)
    for bullet in reading.bullets:
        bulleted |= point == bullet
    for marker in reading.markers:
        bulleted |= point == marker and after == after_word
    for place in range(len(reading.ending_sizes)):
        ended |= _matches(data, begin, end, reading.endings[place], reading.ending_sizes[place])
    row[columns.BULLET_LINES] += bulleted
    row[columns.ELLIPSIS_LINES] += ended


@compiled
def _is_ending(data: Any, begin: int, end: int, reading: Reading) -> bool:
    for place in range(len(reading.ending_sizes)):
        size = reading.ending_sizes[place]
        if size == end - begin and _matches(data, begin, end, reading.endings[place], size):
            return True
    return False


@compiled
def _count_breaks(data: Any, at: int, end: int, flag_of: Any) -> int:
    breaks = 0
    while at < end:
        point, at = decode(data, at)
        paired = point == _CARRIAGE_RETURN and at < end and data[at] == _NEWLINE
        breaks += flag_of[point] & LINE_BREAK != 0 and not paired
    return breaks


@compiled
def _count_unicode_lines(texts: Texts, page: Page, found: Found, reading: Reading, row: Any) -> None:
    data, words, at, first = texts.data, found.words, found.begin, 0
    for word in range(words + 1):
        stop = page.word_begins[word] if word < words else found.end
        alone = stop - at == 1 and data[at] == _SPACE
        breaks = 0 if alone else _count_breaks(data, at, stop, texts.flags)
        row[columns.LINES] += breaks
        if word > first and (breaks or word == words):
            begin, end = page.word_begins[first], page.word_ends[word - 1]
            _count_line(data, begin, end, page.word_ends[first], reading, row)
            first = word
        if word < words:
            at = page.word_ends[word]
    if found.end > found.begin:
        point, _ = decode(data, last_start(data, found.end))
        row[columns.LINES] += texts.flags[point] & LINE_BREAK == 0


@compiled
def count_lines(texts: Texts, page: Page, found: Found, reading: Reading, row: Any) -> None:
    """Count the lines, those that begin with a bullet, and those that end in an ellipsis."""
    data, cut, filled, runs = texts.data, reading.choices.lines, 0, 0
    has_breaks = cut == UNICODE_LINES and found.breaks
    for line in range(found.lines):
        first, stop = page.line_words[line], page.line_words[line + 1]
        begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
        runs += end > begin or line in (0, found.lines - 1)
        filled += stop > first
        if cut == NEWLINE_RUNS and end > begin:
            _count_line(data, begin, end, page.word_ends[first], reading, row)
        elif cut != NEWLINE_RUNS and stop > first and not has_breaks:
            _count_line(data, page.word_begins[first], page.word_ends[stop - 1], page.word_ends[first], reading, row)
    if cut != UNICODE_LINES:
        row[columns.LINES] = runs if cut == NEWLINE_RUNS else filled
    elif found.breaks:
        _count_unicode_lines(texts, page, found, reading, row)
    else:
        # ``str.splitlines`` has no empty line after the last newline.
        row[columns.LINES] = found.lines - (page.line_begins[found.lines - 1] == found.end)


@compiled
def count_line_rules(texts: Texts, page: Page, found: Found, short: int, row: Any) -> None:
    """Count lines for FineWeb's rules: those that are not blank, with the white space around them."""
    ended, few = 0, 0
    for line in range(found.lines):
        if not _is_blank(page, line):
            begin, end = page.line_begins[line], page.line_begins[line + 1] - 1
            point, _ = decode(texts.data, last_start(texts.data, end))
            ended += texts.flags[point] & TERMINAL != 0
            few += count_characters(page, found, begin, end) <= short
    row[columns.TERMINAL_LINES], row[columns.SHORT_LINES] = ended, few
    count_segments(texts, page, found, FILLED_LINES, row[columns.RAW_LINES :][:6])


@compiled
def count_counted(page: Page, found: Found, types: int, counted: int, row: Any) -> None:
    """Count the words with the flag ``counted`` (or all), and their characters."""
    words, characters, counts = found.words, found.word_characters, page.repeats.counts
    if counted != ALL_WORDS:
        words, characters = 0, 0
        for number in range(types):
            first = page.repeats.firsts[number]
            count = np.int64(counts[number]) * (page.type_flags[number] & counted != 0)
            words += count
            characters += count * (page.starts[first + 1] - page.starts[first])
    row[columns.COUNTED_WORDS], row[columns.COUNTED_CHARACTERS] = words, characters


@compiled
def count_alphabetic(page: Page, types: int, flag: int) -> int:
    """Count the words that have a flag."""
    found = 0
    for number in range(types):
        found += np.int64(page.repeats.counts[number]) * (page.type_flags[number] & flag != 0)
    return found


@compiled
def median_length(page: Page, types: int) -> float:
    """Return the median length of words, by counting the words of each length."""
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
    """Return the numbers of number signs and of ellipses (``…`` and three full stops in a row)."""
    hashes, ellipses = 0, 0
    for number in range(types):
        if page.type_flags[number] & SYMBOL == 0:
            continue
        first, count, dots = page.repeats.firsts[number], page.repeats.counts[number], 0
        begin, end = page.word_begins[first], page.word_ends[first]
        if page.type_flags[number] & (HASH_SIGN | ELLIPSIS) == 0 and end - begin <= SURE:
            # Most of these words have one full stop, at their end.
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
    """Count ``. . .`` in a text, found by its second full stop, which is a word."""
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
    runs = 0
    for at in range(begin, end):
        runs += data[at] == _HASH_SIGN and (at == begin or data[at - 1] != _HASH_SIGN)
    return 2 * runs > characters


@compiled
def count_symbol_words(data: Any, page: Page, types: int, reading: Reading) -> int:
    """Count the words with a number sign or an ellipsis, or the words that consist mostly of them."""
    with_symbol, total = reading.choices.symbols == WORDS_WITH, 0
    for number in range(types):
        flags, first = page.type_flags[number], page.repeats.firsts[number]
        begin, end, found = page.word_begins[first], page.word_ends[first], False
        if with_symbol:
            found = flags & (HASH_SIGN | ELLIPSIS) != 0
        elif flags & HASH_SIGN and _is_mostly_runs(data, begin, end, page.starts[first + 1] - page.starts[first]):
            found = True
        # A word that is an ellipsis has no letters.
        elif flags & ALPHABETIC == 0 and reading.edges[data[end - 1]] & ENDING_BYTE:
            found = _is_ending(data, begin, end, reading)
        total += found * np.int64(page.repeats.counts[number])
    return total


_BASE = _U(0x9E3779B97F4A7C15)
_OTHER_BASE = _U(0xFF51AFD7ED558CCD)
_LEAST = 5  # words of the shortest n-grams that are compared by their letters
_MOST = 10  # words of the longest n-grams that are compared by their letters
_FIRST_LETTERS = 16  # bytes of these n-grams that are compared first


class Spelling(NamedTuple):
    """Buffers for one document, for readings that compare n-grams by their letters without spaces."""

    kept_starts: npt.NDArray[np.int64]
    """Start of each word that a reading counts in n-grams among their characters, and the end of the last."""
    joined: npt.NDArray[np.uint8]  # the bytes of all words without spaces
    begins: npt.NDArray[np.int64]  # start of each word in ``joined``, and the end of the last
    firsts: npt.NDArray[np.uint64]  # hash of the letters from each word on that have been compared so far
    candidates: npt.NDArray[np.int32]  # words at which a repeated n-gram may start
    limits: npt.NDArray[np.int32]  # number of letters from each candidate on that is too large for a repeated n-gram
    undecided: npt.NDArray[np.int32]  # candidates with all letters compared so far also found elsewhere


def make_spelling(texts: Texts) -> Spelling:
    """Allocate buffers for the longest document."""
    longest = int(np.diff(texts.offsets).max(initial=0))
    words = longest // 2 + longest // 3 + 5
    candidates, limits, undecided = np.empty((3, words), np.int32)
    kept_starts, begins = np.empty((2, words), np.int64)
    joined = np.empty(longest + 2 * _FIRST_LETTERS, np.uint8)
    return Spelling(kept_starts, joined, begins, np.empty(words, np.uint64), candidates, limits, undecided)


@compiled
def _join(data: Any, page: Page, words: int, spelling: Spelling) -> None:
    at, begins, ends, places = 0, page.word_begins, page.word_ends, spelling.begins
    source, target, whole = np.int64(data.ctypes.data), np.int64(spelling.joined.ctypes.data), len(data) - 16
    for word in range(words):
        begin, end = begins[word], ends[word]
        places[word] = at
        if begin > whole or end > begin + 16:
            copy(data, begin, end, spelling.joined, at)
        else:
            put_eight(target + at, eight_at(source + begin))
            put_eight(target + at + 8, eight_at(source + begin + 8))
        at += end - begin
    places[words] = at


@compiled
def _find_candidates(words: int, seen: Any, spelling: Spelling) -> int:
    begins, firsts = spelling.begins, spelling.firsts
    address, last = np.int64(spelling.joined.ctypes.data), begins[words] - _FIRST_LETTERS
    mask = forget(seen, words)
    for word in range(words):
        at = address + begins[word]
        key = (eight_at(at) * _BASE ^ eight_at(at + 8)) * _OTHER_BASE
        firsts[word] = key
        note(seen, key >> _U(32) & _U(mask), begins[word] <= last)
    found, left = 0, 0
    for word in range(words - _LEAST + 1):
        again = seen[firsts[word] >> _U(32) & _U(mask)] > 1
        spelling.candidates[found], spelling.undecided[left], spelling.limits[word] = word, word, _FIRST_LETTERS
        found += (begins[word + _LEAST] - begins[word] < _FIRST_LETTERS) | again
        left += again
    letters = _FIRST_LETTERS
    while left:
        letters += 8
        left = _decide(words, letters, left, seen, spelling)
    return found


@compiled
def _decide(words: int, letters: int, left: int, seen: Any, spelling: Spelling) -> int:
    begins, firsts, undecided = spelling.begins, spelling.firsts, spelling.undecided
    mask, last = forget(seen, left), begins[words] - letters
    address = np.int64(spelling.joined.ctypes.data) + letters - 8
    for at in range(left):
        word = undecided[at]
        key = (firsts[word] ^ eight_at(address + begins[word])) * _BASE
        firsts[word] = key ^ key >> _U(32)
        note(seen, firsts[word] >> _U(24) & _U(mask), begins[word] <= last)
    still = 0
    for at in range(left):
        word = undecided[at]
        undecided[still] = word
        spelling.limits[word] = letters
        still += (seen[firsts[word] >> _U(24) & _U(mask)] > 1) & (
            begins[min(word + _MOST, words)] - begins[word] >= letters
        )
    return still


@compiled
def _drop_long(words: int, n: int, candidates: int, spelling: Spelling) -> int:
    begins, kept = spelling.begins, 0
    for candidate in range(candidates):
        word = spelling.candidates[candidate]
        spelling.candidates[kept] = word
        kept += (word + n <= words) & (begins[min(word + n, words)] - begins[word] < spelling.limits[word])
    return kept


@compiled
def _skipped(page: Page, n: int, candidates: int, spelling: Spelling) -> int:
    """Count the characters of n-grams that repeat an earlier one, without overlaps, compared by their letters."""
    begins, starts, joined, table = spelling.begins, page.starts, spelling.joined, page.repeats.table
    firsts, keys, letters = page.repeats.gram_firsts, page.repeats.keys, np.int64(joined.ctypes.data)
    mask = clear(table, candidates)
    reached, unique, characters = 0, 0, 0
    for candidate in range(candidates):
        place = spelling.candidates[candidate]
        if place < reached:
            continue
        begin, length = begins[place], begins[place + n] - begins[place]
        key, rest = _U(0), begin + length // 8 * 8
        for at in range(letters + begin, letters + rest, 8):
            key = (key ^ eight_at(at)) * _BASE
            key ^= key >> _U(32)
        key = (key ^ eight_at(letters + rest) & (_U(1) << _U(8 * (length % 8))) - _U(1)) * _BASE
        at = mixed(key ^ _U(length)) & mask
        while table[at] != 0:
            other = firsts[table[at] - 1]
            same = keys[table[at] - 1] == key and begins[other + n] - begins[other] == length
            if same and same_letters(joined, begins[other], begin, length):
                break
            at = (at + 1) & mask
        if table[at] != 0:
            characters += starts[place + n] - starts[place]
            reached = place + n
            continue
        firsts[unique], keys[unique] = place, key
        unique += 1
        table[at] = unique
    return characters


@compiled
def count_skipped(texts: Texts, page: Page, words: int, spelling: Spelling, row: Any) -> None:
    """Count the characters of 5- to 10-grams that repeat an earlier one, without overlaps, for ``SKIP``."""
    if words < _LEAST:
        return
    _join(texts.data, page, words, spelling)
    candidates = _find_candidates(words, page.repeats.seen, spelling)
    for n in range(_LEAST, _MOST + 1):
        candidates = _drop_long(words, n, candidates, spelling)
        row[columns.TOP_2_GRAM + n - 2] = _skipped(page, n, candidates, spelling)


@compiled
def _count_in_text(data: Any, page: Page, document: Found, first: int, n: int) -> int:
    """Count the occurrences in the text, also within words, of the n words from ``first`` on joined by spaces."""
    begins, ends = page.word_begins, page.word_ends
    found, reached, head = 0, document.begin, ends[first] - begins[first]
    size = head + n - 1
    for word in range(first + 1, first + n):
        size += ends[word] - begins[word]
    before, after = data[ends[first] - 1], data[begins[first + 1]]
    for word in range(document.words - 1):
        # The n-gram's first space is after the end of a word of the text.
        space = ends[word]
        if data[space - 1] != before or data[space + 1] != after or data[space] != _SPACE:
            continue
        begin = space - head
        fits = begin >= reached and begin + size <= document.end
        if not (fits and same_letters(data, begin, begins[first], head)):
            continue
        at, same = space, True
        for other in range(first + 1, first + n):
            length = ends[other] - begins[other]
            same = same and data[at] == _SPACE and same_letters(data, at + 1, begins[other], length)
            at += 1 + length
        if same:
            found += 1
            reached = at
    return found


@compiled
def _longest_of_most_frequent(page: Page, starts: Any, found: int, n: int) -> int:
    counts, firsts = page.repeats.gram_counts, page.repeats.gram_firsts
    best = 0
    for gram in range(1, found):
        longer = starts[firsts[gram] + n] - starts[firsts[gram]] > starts[firsts[best] + n] - starts[firsts[best]]
        if counts[gram] > counts[best] or (longer and counts[gram] == counts[best]):
            best = gram
    return best


@compiled
def _top_characters(
    texts: Texts, page: Page, document: Found, starts: Any, size: int, found: int, n: int, choices: Choices
) -> int:
    first, count = 0, 0
    if size:
        longest = choices.top == LONGEST
        gram = _longest_of_most_frequent(page, starts, found, n) if longest else most_frequent(page.repeats, found)
        first, count = page.repeats.gram_firsts[gram], page.repeats.gram_counts[gram]
    elif choices.top_once == ONCE_TOO:
        count = 1
    length = starts[first + n] - starts[first]
    if choices.top_size == IN_WORDS:
        return length * count
    if choices.top_size == FOUND_IN_TEXT:
        count = _count_in_text(texts.data, page, document, first, n)
    return (length + n - 1) * count


@compiled
def _later(page: Page, starts: Any, size: int, n: int) -> int:
    places, grams, firsts = page.repeats.places, page.repeats.grams, page.repeats.gram_firsts
    total, reached = 0, 0
    for at in range(size):
        place = places[at]
        if firsts[grams[at]] == place:
            continue
        new = max(place, reached)
        reached = place + n
        total += starts[reached] - starts[new] + min(reached - new, n - 1)
    return total


@compiled
def _start_grams(page: Page, spelling: Spelling, words: int, counted: int) -> tuple[int, int]:
    """Write the counted words, and those that occur more than once as n-grams of one word; return both numbers."""
    ids, counts, flags = page.repeats.ids, page.repeats.counts, page.type_flags
    kept, size, characters = 0, 0, 0
    spelling.kept_starts[0] = 0
    for word in range(words):
        number = ids[word]
        page.repeats.places[size], page.repeats.grams[size] = kept, number
        counts_here = counted == ALL_WORDS or flags[number] & counted != 0
        size += counts_here and counts[number] > 1
        kept += counts_here
        characters += (page.starts[word + 1] - page.starts[word]) * counts_here
        spelling.kept_starts[kept] = characters
    return kept, size


@compiled
def count_grams(texts: Texts, page: Page, document: Found, choices: Choices, spelling: Spelling, row: Any) -> None:
    """Count the characters of the most frequent 2- to 4-gram and of repeated 5- to 10-grams, except for ``SKIP``."""
    words, size = _start_grams(page, spelling, document.words, choices.gram_words)
    starts, found, longest = spelling.kept_starts, 0, 4 if choices.repeated == SKIP else 10
    for n in range(2, min(words, longest) + 1):
        if size:
            size, found = lengthen(page.repeats, size)
            size = keep_repeated(page.repeats, size)
        characters = 0
        if n <= 4:
            characters = _top_characters(texts, page, document, starts, size, found, n, choices)
        elif choices.repeated == SUM:
            for place in page.repeats.places[:size]:
                characters += starts[place + n] - starts[place]
            for word in range(n):
                row[columns.GRAM_CHARACTERS + n - 5] += starts[words - word] - starts[word]
        elif choices.repeated == LATER:
            characters = _later(page, starts, size, n)
        else:
            characters = covered(page.repeats, starts, size, n)
        row[columns.TOP_2_GRAM + n - 2] = characters
