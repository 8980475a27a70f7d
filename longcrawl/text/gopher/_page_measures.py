"""What Gopher's and FineWeb's rules count in raw text, each thing of a page once for all who ask."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import find_word
from longcrawl.kernels.ngrams import GOLDEN, HASHED
from longcrawl.kernels.phrase_trees import step
from longcrawl.kernels.phrases import PhraseTree
from longcrawl.kernels.utf8 import decode
from longcrawl.kernels.word_lists import Vocabulary
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_characters import ALPHANUMERIC_FIRST
from longcrawl.text.gopher._page_kernels import (
    PACKED,
    Found,
    Page,
    Texts,
    find_words,
    flag_types,
    hash_lines,
    number_page_words,
    tell_apart,
    write_keys,
    write_starts,
)
from longcrawl.text.gopher.variants import definitions as defined
from longcrawl.text.gopher.variants.definitions import Readings
from longcrawl.text.gopher.variants.measures import (
    count_alphabetic,
    count_counted,
    count_line_rules,
    count_lines,
    count_segments,
    count_spaced_dots,
    count_symbol_words,
    count_symbols,
    median_length,
)
from longcrawl.text.gopher.variants.ngrams import Spelling, count_grams, count_skipped

_U = np.uint64
_BYTES = (_U(1) << _U(8 * PACKED)) - _U(1)
_HIGH = _U(0x8080808080808080)
"""The highest bit of each of eight bytes; below, numbers that are added to each to set it."""
_FROM_CAPITAL_A = _U(0x3F3F3F3F3F3F3F3F)
_AFTER_CAPITAL_Z = _U(0x2525252525252525)


class StopWords(NamedTuple):
    """Stop words of several languages, and of each document the number of its language."""

    languages: npt.NDArray[np.int32]
    """Shape (readings, documents): whose stop words a document is searched for, -1 for none."""
    spellings: Vocabulary
    """Of bytes."""
    numbers: npt.NDArray[np.int32]
    """Shape (spellings,): which word of its language's list a spelling is of."""
    met: npt.NDArray[np.int64]
    """Memory for each word of the longest list, and for what is none."""
    counts: npt.NDArray[np.int64]
    """Shape (readings, 2): of one document, how many different ones there are, and how many."""
    short_keys: npt.NDArray[np.uint64]
    """Shape (languages, a power of two): open addressing, keys of spellings of up to ``PACKED`` bytes, 0 for none."""
    short_numbers: npt.NDArray[np.int32]
    """The words that these are of."""
    lowered: PhraseTree
    """What words are looked for in lower case; the root is the language."""


@compiled
def _is_lowered(data: Any, at: int, end: int, tree: PhraseTree, language: int) -> bool:
    """Whether a word in lower case, letter by letter, is a stop word of its language."""
    node = np.int64(language)
    while at < end and node >= 0:
        point, at = decode(data, at)
        node = step(tree, node, point)
    return node >= 0 and tree.kinds[node] != 0


@compiled
def _lower_key(key: np.uint64) -> np.uint64:
    """Return the key of a word of ASCII in lower case."""
    return key | ((key + _FROM_CAPITAL_A) & ~(key + _AFTER_CAPITAL_Z) & _HIGH) >> _U(2)


@compiled
def _place_short(keys: Any, language: int, key: np.uint64) -> int:
    """Return the place of a short word in the table of its language, or an empty one."""
    at = np.int64(key * GOLDEN >> _U(32)) & keys.shape[1] - 1
    while (keys[language, at] != 0) & (keys[language, at] != key):
        at = (at + 1) & keys.shape[1] - 1
    return at


@compiled
def _count_stop_words(
    data: Any, page: Page, types: int, stop_words: StopWords, language: int, lowers: int
) -> tuple[int, int]:
    """Count different stop words of a language, and all of them; of words in lower case only all."""
    begins, ends, counts, firsts = page.word_begins, page.word_ends, page.repeats.counts, page.repeats.firsts
    met, keys, longest, occurrences = stop_words.met, stop_words.short_keys, stop_words.spellings.longest, 0
    # What is looked for by its letters: of words that are listed as they are, only long ones.
    by_letters = HASHED | _BYTES & _HIGH if lowers else (HASHED if longest > PACKED else _U(0))
    met[:] = 0
    for word_type in range(types):
        word = firsts[word_type]
        key = page.word_keys[word]
        # Lower case has as many characters, each of a byte or more.
        if (key & by_letters != _U(0)) & (page.starts[word + 1] - page.starts[word] <= longest):
            if lowers:
                listed = _is_lowered(data, begins[word], ends[word], stop_words.lowered, language)
                occurrences += counts[word_type] * listed
                continue
            spelling = find_word(stop_words.spellings, language, data, begins[word], ends[word])
            if spelling >= 0:
                met[stop_words.numbers[spelling]] = 1
                occurrences += counts[word_type]
            continue
        key = _lower_key(key) if lowers else key
        at = _place_short(keys, language, key)
        found = keys[language, at] == key
        met[stop_words.short_numbers[language, at] if found else len(met) - 1] = 1
        occurrences += counts[word_type] * found
    distinct = 0
    for number in range(len(met) - 1):
        distinct += met[number]
    return distinct, occurrences


@compiled
def _count_quality(
    texts: Texts,
    page: Page,
    found: Found,
    types: int,
    readings: Readings,
    languages: Any,
    stop_words: StopWords,
    rows: Any,
) -> None:
    choices, data, counted = readings.choices, texts.data, -1
    count_lines(texts, page, found, readings, rows)
    for reading in range(len(choices)):
        if choices[reading, defined.WHAT] & columns.QUALITY == 0:
            continue
        row, symbols, language = rows[reading], choices[reading, defined.SYMBOLS], languages[reading]
        row[columns.ALPHABETIC_WORDS] = count_alphabetic(page, types, choices[reading, defined.ALPHABETIC_WORDS])
        if symbols in (defined.WORDS_WITH, defined.WORDS_OF):
            row[columns.SYMBOLS] = count_symbol_words(data, page, types, readings, reading)
        elif counted < 0:
            row[columns.HASHES], row[columns.ELLIPSES] = count_symbols(data, page, found, types)
            counted = reading
        else:
            row[columns.HASHES], row[columns.ELLIPSES] = rows[counted, columns.HASHES], rows[counted, columns.ELLIPSES]
        if symbols == defined.TOGETHER:
            row[columns.SYMBOLS] = row[columns.HASHES] + row[columns.ELLIPSES]
            row[columns.SYMBOLS] += count_spaced_dots(data, page, found)
        if choices[reading, defined.LENGTHS] == defined.MEDIAN and types:
            row[columns.MEDIAN_LENGTH] = median_length(page, types)
        if language >= 0:
            same = 0
            while choices[same, defined.WHAT] & columns.QUALITY == 0 or languages[same] != language:
                same += 1
            if same == reading:
                lowers = choices[reading, defined.STOP_WORD_CASE] == defined.LOWERED
                met = _count_stop_words(data, page, types, stop_words, language, lowers)
                stop_words.counts[reading, 0], stop_words.counts[reading, 1] = met
            row[columns.STOP_WORDS] = stop_words.counts[same, choices[reading, defined.STOP_WORDS]]


@compiled
def _count_segments(texts: Texts, page: Page, found: Found, readings: Readings, rows: Any) -> None:
    """Count lines and paragraphs, those of readings that cut a page alike once."""
    choices = readings.choices
    for reading in range(len(choices)):
        if choices[reading, defined.WHAT] & columns.REPETITION == 0:
            continue
        for choice, at in ((defined.SEGMENTS, columns.LINE_SEGMENTS), (defined.PARAGRAPHS, columns.PARAGRAPH_SEGMENTS)):
            same, cut = 0, choices[reading, choice]
            while choices[same, defined.WHAT] & columns.REPETITION == 0 or choices[same, choice] != cut:
                same += 1
            if same == reading:
                count_segments(texts, page, found, cut, rows[reading, at : at + 6])
            for column in range(at, at + 6):
                rows[reading, column] = rows[same, column]
    for reading in range(len(choices)):
        if choices[reading, defined.WHAT] & columns.LINE_RULES:
            count_line_rules(texts, page, found, choices[reading, defined.SHORT_LINE], rows[reading])


@compiled
def _count_repetition(
    texts: Texts, page: Page, found: Found, readings: Readings, spelling: Spelling, rows: Any
) -> None:
    choices, counted = readings.choices, -1
    for reading in range(len(choices)):
        row, here = rows[reading], choices[reading, defined.WHAT] & columns.REPETITION
        if here and choices[reading, defined.FEW_WORDS] == defined.EVERYTHING and found.words:
            for n in range(found.words + 1, 11):
                row[columns.TOP_2_GRAM + n - 2] = row[columns.CHARACTERS]
    for flag in (defined.ALL_WORDS, ALPHANUMERIC_FIRST):
        for reading in range(len(choices)):
            here = choices[reading, defined.WHAT] & columns.REPETITION
            if here and choices[reading, defined.GRAM_WORDS] == flag and counted != flag:
                counted = flag
                count_grams(texts, page, found, readings, flag, spelling, rows)
    for reading in range(len(choices)):
        here = choices[reading, defined.WHAT] & columns.REPETITION
        if here and choices[reading, defined.REPEATED] == defined.SKIP:
            count_skipped(texts, page, found.words, spelling, rows[reading])


@compiled
def _write_sizes(found: Found, rows: Any) -> None:
    """Write the columns that are always there."""
    for row in rows:
        row[columns.WORDS], row[columns.WORD_CHARACTERS] = found.words, found.word_characters
        row[columns.UNSPACED_LETTERS], row[columns.NEWLINES] = found.unspaced, found.lines - 1
        row[columns.CHARACTERS], row[columns.LINE_CHARACTERS] = found.characters, found.characters - found.lines + 1


@compiled
def measure_pages(
    texts: Texts, readings: Readings, stop_words: StopWords, page: Page, spelling: Spelling, rows: Any
) -> None:
    """Measure every document, as several readings of the rules do.

    Args:
        texts: the documents.
        readings: what is counted, and how.
        stop_words: the stop words of all readings and languages.
        page: memory for the longest document.
        spelling: the same.
        rows: float64 [readings, documents, COLUMNS], zeros, written.
    """
    next_break, what, choices = np.int64(0), 0, readings.choices
    for reading in range(len(choices)):
        what |= choices[reading, defined.WHAT]
    for document in range(len(texts.offsets) - 1):
        found, next_break = find_words(texts, document, next_break, page)
        _write_sizes(found, rows[:, document])
        if what:
            write_keys(texts.data, page, found.words)
        if what & (columns.REPETITION | columns.LINE_RULES):
            hash_lines(page, found.lines)
            _count_segments(texts, page, found, readings, rows[:, document])
        if what & (columns.QUALITY | columns.REPETITION):
            write_starts(page, found)
            types = tell_apart(page, found.words)
            if what & columns.REPETITION:
                types = number_page_words(texts, page, found.words)
            flag_types(texts, page, found.begin, types)
            for reading in range(len(choices)):
                count_counted(page, found, types, choices[reading, defined.COUNTED], rows[reading, document])
            if what & columns.QUALITY:
                languages = stop_words.languages[:, document]
                _count_quality(texts, page, found, types, readings, languages, stop_words, rows[:, document])
            if what & columns.REPETITION:
                _count_repetition(texts, page, found, readings, spelling, rows[:, document])
