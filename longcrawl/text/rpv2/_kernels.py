"""RedPajama-V2's signals over Arrow's string buffers, line by line, as numba kernels; no Python object per document.

A line is decoded into code points and their flags, small enough to stay in the cache while its raw words, its
normalised words and its line signals are found. Equal words, equal n-grams and listed phrases need the whole document.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels import code_points as kind
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import find_word, order_by, round_to_8_digits
from longcrawl.kernels.ngrams import HASHED, Repeats, make_repeats, number_words, repetitions
from longcrawl.kernels.utf8 import decode
from longcrawl.kernels.word_lists import Phrases, Vocabulary
from longcrawl.text.gopher.page_columns import NGRAMS

Row = npt.NDArray[np.float64]
Points = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.uint16]

CHARACTERS, LINES, RAW_WORDS, LETTER_WORDS, CAPITAL_WORDS, STOP_WORDS = range(6)
SENTENCES, SYMBOLS, BRACES, ELLIPSIS_LINES, WORDS, WORD_CHARACTERS, IN_SENTENCE = range(6, 13)
"""Columns of what is counted per document; the last is a state: whether the sentence has had a word character."""
UNIQUE_WORDS, ENTROPY, LOREM_IPSUM, LISTED_PHRASES, TOP_2_GRAM = range(13, 18)
DUPLICATE_5_GRAMS = TOP_2_GRAM + 3
MEASURES = TOP_2_GRAM + NGRAMS
"""How many columns a document has; after the two n-gram columns named come those of the next n."""

TERMINAL_LINE, JAVASCRIPT, LINE_WORDS, NUMERIC_FRACTION, BULLET_LINE, UPPER_FRACTION = range(6)
"""Rows of the line values, in the order of ``LINE_SIGNALS``."""

_U = np.uint64
BLOCK = 4096
"""Code points that are decoded before the next pass looks at them: few enough for the processor's first cache."""

NEWLINE, ELLIPSIS = 0x0A, 0x2026
_DOT, _NUMBER_SIGN, _OPEN, _CLOSE, _I, _S, _M = b".#{}ism"
_LOREM, _IPSUM = (np.frombuffer(word, np.uint8) for word in (b"lorem", b"ipsum"))
_PLAIN_OR_SPACE = kind.PLAIN | kind.SPACE
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x100000001B3)
MOST_PER_BYTE = 2
"""No character's normal form has more code points per byte of its UTF-8."""

_FEW = 24
"""Combining marks in a row that are sorted by insertion; longer rows, which only attacks have, are counted."""


class Scratch(NamedTuple):
    """Memory for one document at a time, made for the longest of a batch; what is not touched costs nothing."""

    points: Points
    flags: Flags
    normal: Points
    """The normalised words, one after the other without spaces."""
    starts: npt.NDArray[np.int64]
    """Where each word starts in ``normal``, and where the last ends."""
    word_keys: npt.NDArray[np.uint64]
    """The bytes of an ASCII word of up to eight characters; of others a hash."""
    repeats: Repeats


def make_scratch(longest: int) -> Scratch:
    """Allocate memory for documents of up to ``longest`` bytes."""
    words = longest // 2 + 4
    return Scratch(
        np.empty(longest + 1, np.uint32),
        np.empty(longest + 1, np.uint16),
        np.empty(MOST_PER_BYTE * longest + 1, np.uint32),
        np.empty(words, np.int64),
        np.empty(words, np.uint64),
        make_repeats(words),
    )


@compiled
def _key(normal: Points, start: int, stop: int) -> np.uint64:
    """Return the key of a word that is longer than eight characters, or not ASCII: a hash whose top bit is set."""
    found = _SEED
    for at in range(start, stop):
        found = (found ^ _U(normal[at])) * _PRIME
    return found | HASHED


JAVASCRIPT_KEY = 13026705096557300458
"""The key of the word "javascript"."""


@compiled
def _decode(
    data: Any, at: int, end: int, base: int, flag_of: Flags, scratch: Scratch, measured: Any, line: int
) -> tuple[int, int, int]:
    """Decode whole lines until there are about ``BLOCK`` code points: the next byte, how many points, the next line.

    Writes where each line ends, counted from ``base``, and how many of its code points are upper case.
    """
    points, flags, ends, values = scratch.points, scratch.flags, measured.ends, measured.values
    count, upper = 0, 0
    while at < end:
        point = np.uint32(data[at])
        if point < 0x80:
            at += 1
        else:
            point, at = decode(data, at)
        flag = flag_of[point]
        points[count] = point
        flags[count] = flag
        count += 1
        upper += (flag & kind.UPPER) != 0
        if point == NEWLINE or at == end:
            ends[line] = base + count
            values[line, UPPER_FRACTION] = upper
            line += 1
            upper = 0
            if count >= BLOCK:
                break
    return at, count, line


@compiled
def _count_symbols(points: Points, flags: Flags, start: int, stop: int, row: Row) -> None:
    """Count what is special in a raw word of punctuation: ends of sentences, braces, and # ... … as symbols."""
    dots = 0
    for at in range(start, stop):
        point = points[at]
        dots = dots + 1 if point == _DOT else 0
        if dots == 3 or point == _NUMBER_SIGN or point == ELLIPSIS:  # noqa: PLR1714, SIM109  # quicker to compile
            row[SYMBOLS] += 1
            dots = 0
        row[BRACES] += point == _OPEN or point == _CLOSE  # noqa: PLR1714  # as above
        if flags[at] & kind.SENTENCE_END:
            row[IN_SENTENCE] = 0
        elif flags[at] & kind.WORD:
            _start_sentence(row)


@forced_inline
def _start_sentence(row: Row) -> None:
    row[SENTENCES] += 1 - row[IN_SENTENCE]
    row[IN_SENTENCE] = 1


@compiled
def _raw_words(points: Points, flags: Flags, count: int, stop_words: Vocabulary, language: int, row: Row) -> None:
    r"""Count the matches of ``\w+|[^\w\s]+``, and the sentences: stretches without .!? that have a word character."""
    at, raw, letters, capitals, stops = np.int64(0), 0, 0, 0, 0
    while at < count:
        seen = flags[at]
        start = at
        at += 1
        if seen & kind.RAW_SPACE:
            continue
        spelled = seen & kind.RAW_WORD
        while at < count and flags[at] & (kind.RAW_WORD | kind.RAW_SPACE) == spelled:
            seen |= flags[at]
            at += 1
        raw += 1
        letters += (seen & kind.ASCII_LETTER) != 0
        capitals += (seen & (kind.UPPER | kind.LOWER)) == kind.UPPER
        stops += find_word(stop_words, language, points, start, at) >= 0
        if seen & kind.SYMBOL:
            _count_symbols(points, flags, start, at, row)
        elif seen & kind.WORD:
            _start_sentence(row)
    row[RAW_WORDS] += raw
    row[LETTER_WORDS] += letters
    row[CAPITAL_WORDS] += capitals
    row[STOP_WORDS] += stops


@compiled
def _is_final_sigma(flags: Flags, at: int, count: int) -> bool:
    """Whether a capital sigma comes after a cased character and before none, ignorable ones passed over."""
    before = at - 1
    while before >= 0 and flags[before] & kind.IGNORABLE:
        before -= 1
    if before < 0 or not flags[before] & kind.CASED:
        return False
    after = at + 1
    while after < count and flags[after] & kind.IGNORABLE:
        after += 1
    return after == count or not flags[after] & kind.CASED


@allocating
def _order_marks(normal: Points, start: int, stop: int, combining: npt.NDArray[np.uint8]) -> None:
    """Bring every row of combining marks into canonical order: by class, stable."""
    at = start
    while at < stop:
        first = at
        while at < stop and combining[normal[at]] != 0:
            at += 1
        if at - first > _FEW:
            marks = normal[first:at].astype(np.int64)
            order = order_by(combining, marks)
            for place in range(at - first):
                normal[first + place] = marks[order[place]]
        else:
            for place in range(first + 1, at):
                mark = normal[place]
                while place > first and combining[normal[place - 1]] > combining[mark]:
                    normal[place] = normal[place - 1]
                    place -= 1  # noqa: PLW2901  # the mark walks back to its place
                normal[place] = mark
        at += 1


@compiled
def _normalise(
    points: Points, flags: Flags, at: int, count: int, characters: kind.Characters, normal: Points, end: int
) -> tuple[int, int]:
    """Write the normal form of a character that is not plain: where it ends, and how many of it are numeric."""
    place = np.int64(characters.mapped[points[at]])
    length = np.int64(characters.sequences[place])
    for step in range(length):
        normal[end + step] = characters.sequences[place + 2 + step]
    if points[at] == kind.CAPITAL_SIGMA and _is_final_sigma(flags, at, count):
        normal[end] = kind.FINAL_SIGMA
    return end + length, np.int64(characters.sequences[place + 1])


@compiled
def _words(
    scratch: Scratch, base: int, lines: tuple[int, int], measured: Any, characters: kind.Characters, word: int
) -> int:
    """Append the normalised words of a block of lines to those of ``scratch``, which are ``word`` so far.

    Writes of each line how many words it has, how many of them are "javascript", and the share of numeric characters.
    """
    points, flags, normal, starts = scratch.points, scratch.flags, scratch.normal, scratch.starts
    keys, ends, values, end, at = scratch.word_keys, measured.ends, measured.values, starts[word], np.int64(0)
    mapped, combining = characters.mapped, characters.combining
    for line in range(lines[0], lines[1]):
        stop, first, line_start, numerics, scripts = ends[line] - base, word, end, 0, 0
        while at < stop:
            start, key, seen, marked = end, _U(0), np.uint32(0), False
            while at < stop:
                flag = flags[at]
                if flag & _PLAIN_OR_SPACE == kind.PLAIN:
                    point = mapped[points[at]]
                    normal[end] = point
                    seen |= point
                    key = key << _U(8) | _U(point)
                    numerics += (flag & kind.NUMERIC) != 0
                    end += 1
                elif flag & kind.SPACE:
                    break
                elif not flag & kind.PUNCTUATION:
                    end, more = _normalise(points, flags, at, stop, characters, normal, end)
                    numerics += more
                    marked = True
                at += 1
            at += 1
            if end > start:
                if marked:
                    _order_marks(normal, start, end, combining)
                if marked or seen > 0x7F or end - start > 8:
                    key = _key(normal, start, end)
                    scripts += end - start == 10 and key == JAVASCRIPT_KEY
                keys[word] = key
                word += 1
                starts[word] = end
        at = stop
        values[line, LINE_WORDS] = word - first
        values[line, JAVASCRIPT] = scripts
        length = end - line_start + max(word - first - 1, 0)
        values[line, NUMERIC_FRACTION] = round_to_8_digits(numerics / length) if length > 0 else 0.0
    return word


@compiled
def _line_ends(scratch: Scratch, base: int, lines: tuple[int, int], measured: Any, row: Row) -> None:
    """Write the signals that look at the first and the last character of a line other than space, and round shares."""
    points, flags, ends, values = scratch.points, scratch.flags, measured.ends, measured.values
    start = 0
    for line in range(lines[0], lines[1]):
        stop = ends[line] - base
        first, last = start, stop - 1
        while first < stop and flags[first] & kind.SPACE:
            first += 1
        while last > first and flags[last] & kind.SPACE:
            last -= 1
        some = first < stop
        values[line, TERMINAL_LINE] = some and flags[last] & kind.TERMINAL != 0
        values[line, BULLET_LINE] = some and flags[first] & kind.BULLET != 0
        values[line, UPPER_FRACTION] = round_to_8_digits(values[line, UPPER_FRACTION] / (stop - start))
        dots = last >= first + 2 and points[last] == points[last - 1] == points[last - 2] == _DOT
        row[ELLIPSIS_LINES] += dots or (some and points[last] == ELLIPSIS)
        start = stop


@compiled
def read_lines(
    data: Any, at: int, end: int, tables: Any, language: int, scratch: Scratch, measured: Any, row: Row, line: int
) -> int:
    """Read a document from byte ``at`` on: write counts, line signals and normalised words; give the next line."""
    characters, word = tables.characters, np.int64(0)
    row[LINES] = -line
    while at < end:
        base, first = np.int64(row[CHARACTERS]), line
        at, count, line = _decode(data, at, end, base, characters.flags, scratch, measured, line)
        _raw_words(scratch.points, scratch.flags, count, tables.stop_words, language, row)
        word = _words(scratch, base, (first, line), measured, characters, word)
        _line_ends(scratch, base, (first, line), measured, row)
        row[CHARACTERS] += count
    row[LINES] += line
    row[WORDS] = word
    row[WORD_CHARACTERS] = scratch.starts[word]
    return line


@compiled
def _entropy(counts: npt.NDArray[np.int32], unique: int, words: int) -> float:
    """Add up -p ln p in the order in which the words first come; most words come once, so that is computed once."""
    once = -1.0 / words * np.log(1.0 / words)
    total = 0.0
    for word in range(unique):
        count = np.float64(counts[word])
        total += once if count == 1.0 else -count / words * np.log(count / words)
    return total


@compiled
def _spelled(normal: Any, start: int, word: Any) -> int:
    """Return how many of five code points spell ``word`` only where case is ignored, -1 where they do not.

    A regex that ignores case reads the dotless i and the long s as i and s.
    """
    folded = 0
    for at in range(5):
        point, letter = normal[start + at], word[at]
        if point != letter:
            folded += 1
            if not ((point == 0x131 and letter == _I) or (point == 0x17F and letter == _S)):
                return -1
    return folded


@compiled
def _lorem_ipsum(scratch: Scratch, words: int) -> int:
    """Count "lorem ipsum": a word that ends with lorem before one that starts with ipsum.

    The release looks for the text as it is, and only where it finds it counts the matches of a regex that ignores case.
    """
    normal, starts = scratch.normal, scratch.starts
    exact, folded = 0, 0
    for word in range(1, words):
        start = starts[word]
        if normal[start - 1] != _M or start - starts[word - 1] < 5 or starts[word + 1] - start < 5:
            continue
        if _spelled(normal, start - 5, _LOREM) == 0:
            letters = _spelled(normal, start, _IPSUM)
            folded += letters >= 0
            exact += letters == 0
    return folded if exact > 0 else 0


@compiled
def _listed_phrases(scratch: Scratch, words: int, unique: int, phrases: Phrases, language: int) -> int:
    """Count the places where a phrase of the language's list stands, word by word."""
    listed, ids, firsts = scratch.repeats.gram_counts, scratch.repeats.ids, scratch.repeats.firsts
    starts, normal, vocabulary = scratch.starts, scratch.normal, phrases.vocabulary
    total, met = 0, False
    for number in range(unique):
        first = firsts[number]
        listed[number] = find_word(vocabulary, language, normal, starts[first], starts[first + 1])
        met |= listed[number] >= 0
    for word in range(words if met else 0):
        number = listed[ids[word]]
        if number < 0:
            continue
        for phrase in range(phrases.by_first_word[number], phrases.by_first_word[number + 1]):
            begin = phrases.bounds[phrase]
            length = phrases.bounds[phrase + 1] - begin
            same = 1
            while same < length and word + same < words and listed[ids[word + same]] == phrases.words[begin + same]:
                same += 1
            total += same == length
    return total


@compiled
def measure(data: Any, offsets: Any, languages: Any, tables: Any, scratch: Scratch, measured: Any) -> None:
    """Measure every document.

    Args:
        data: uint8 [bytes], valid UTF-8.
        offsets: int64 [documents + 1], where each document starts.
        languages: int32 [2, documents], which list of stop words and of phrases is a document's, -1 for none.
        tables: ``Tables`` of the signals.
        scratch: memory for the longest document.
        measured: ``Measured`` of the signals, written; ``rows`` and ``sums`` are zeros.
    """
    line, values, sums = np.int64(0), measured.values, measured.sums
    scratch.starts[0] = 0
    for document in range(len(offsets) - 1):
        row = measured.rows[document]
        at, end = offsets[document], offsets[document + 1]
        measured.first_lines[document] = line
        stops, listed = languages[0, document], languages[1, document]
        line = read_lines(data, at, end, tables, stops, scratch, measured, row, line)
        for each in range(measured.first_lines[document], line):
            for signal in range(values.shape[1]):
                sums[document, signal] += values[each, signal]
        words, starts, repeats = np.int64(row[WORDS]), scratch.starts, scratch.repeats
        if words > 0:
            unique = number_words(scratch.normal, starts, starts[1:], scratch.word_keys, words, repeats)
            row[UNIQUE_WORDS] = unique
            row[ENTROPY] = _entropy(repeats.counts, unique, words)
            row[LOREM_IPSUM] = _lorem_ipsum(scratch, words)
            row[LISTED_PHRASES] = _listed_phrases(scratch, words, unique, tables.phrases, listed)
            repetitions(repeats, starts, words, row[TOP_2_GRAM:])
            for share in range(TOP_2_GRAM, len(row)):
                row[share] /= row[WORD_CHARACTERS]
    measured.first_lines[len(offsets) - 1] = line
