"""What Gopher's and FineWeb's rules count in raw text, as numba kernels over the words and lines of a page."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, inlined
from longcrawl.kernels.lookup import find_word
from longcrawl.kernels.ngrams import GOLDEN, HASHED, repetitions
from longcrawl.kernels.phrase_trees import step
from longcrawl.kernels.phrases import PhraseTree
from longcrawl.kernels.utf8 import decode, last_start
from longcrawl.kernels.word_lists import Vocabulary
from longcrawl.text.gopher import page_columns as columns
from longcrawl.text.gopher._page_characters import ALPHABETIC, BULLET, MARKER, SYMBOL, TERMINAL
from longcrawl.text.gopher._page_kernels import (
    PACKED,
    Page,
    Texts,
    count_segments,
    find_lines,
    find_paragraphs,
    number_page_words,
    split_page,
)

_NEWLINE, _DOT, _HASH_SIGN = 0x0A, 0x2E, 0x23

_U = np.uint64
_BYTES = (_U(1) << _U(8 * PACKED)) - _U(1)
_HIGH = _U(0x8080808080808080)
"""The highest bit of each of eight bytes; below, numbers that are added to each to set it."""
_FROM_CAPITAL_A = _U(0x3F3F3F3F3F3F3F3F)
_AFTER_CAPITAL_Z = _U(0x2525252525252525)


class StopWords(NamedTuple):
    """Stop words of several languages, and of each document the number of its language."""

    languages: npt.NDArray[np.int32]
    """Shape (documents,): whose stop words a document is searched for, -1 for none."""
    spellings: Vocabulary
    """Of bytes."""
    numbers: npt.NDArray[np.int32]
    """Shape (spellings,): which word of its language's list a spelling is of."""
    most: int
    """Words of the longest list."""
    short_keys: npt.NDArray[np.uint64]
    """Shape (languages, a power of two): open addressing, keys of spellings of up to ``PACKED`` bytes, 0 for none."""
    short_numbers: npt.NDArray[np.int32]
    """The words that these are of."""
    lowered: PhraseTree
    """What words are looked for in lower case; the root is the language."""


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
    point, after = decode(data, page.word_begins[word])
    alone = page.word_ends[word] == after
    return flag_of[point] & BULLET != 0 or (alone and flag_of[point] & MARKER != 0)


@compiled
def _is_lowered(data: Any, at: int, end: int, tree: PhraseTree, language: int) -> bool:
    """Whether a word in lower case, letter by letter, is a stop word of its language."""
    node = np.int64(language)
    while at < end and node >= 0:
        point, at = decode(data, at)
        node = step(tree, node, point)
    return node >= 0 and tree.kinds[node] != 0


@inlined
def _lower_key(key: np.uint64) -> np.uint64:
    """Return the key of a word of ASCII in lower case."""
    return key | ((key + _FROM_CAPITAL_A) & ~(key + _AFTER_CAPITAL_Z) & _HIGH) >> _U(2)


@compiled
def count_stop_words(
    data: Any, page: Page, words: int, stop_words: StopWords, language: int, lowers: int, met: Any
) -> tuple[int, int]:
    """Count different stop words of a language, and all of them; of words in lower case only all.

    ``met``, int64 [most], is written.
    """
    begins, ends, keys, tree = page.word_begins, page.word_ends, page.word_keys, stop_words.lowered
    short_keys, mask, longest = stop_words.short_keys, stop_words.short_keys.shape[1] - 1, stop_words.spellings.longest
    distinct, occurrences = 0, 0
    for number in range(len(met)):
        met[number] = 0
    for word in range(words):
        key = keys[word]
        if lowers and key & (HASHED | _BYTES & _HIGH):
            # Lower case has as many characters, each of a byte or more.
            fits = page.starts[word + 1] - page.starts[word] <= longest
            occurrences += fits and _is_lowered(data, begins[word], ends[word], tree, language)
            continue
        number = -1
        if key & HASHED:
            if ends[word] - begins[word] <= longest:
                spelling = find_word(stop_words.spellings, language, data, begins[word], ends[word])
                number = stop_words.numbers[spelling] if spelling >= 0 else -1
        else:
            if lowers:
                key = _lower_key(key)
            at = np.int64(key * GOLDEN >> _U(32)) & mask
            while short_keys[language, at] != 0:
                if short_keys[language, at] == key:
                    number = stop_words.short_numbers[language, at]
                    break
                at = (at + 1) & mask
        if number >= 0:
            distinct += 1 - met[number]
            met[number] = 1
            occurrences += 1
    return distinct, occurrences


@compiled
def _quality(
    texts: Texts, document: int, page: Page, words: int, lines: int, stop_words: StopWords, met: Any, row: Any
) -> None:
    data, language, word_flags = texts.data, stop_words.languages[document], page.word_flags
    alphabetic, hashes, ellipses = 0, 0, 0
    for word in range(words):
        flags = word_flags[word]
        alphabetic += flags & ALPHABETIC != 0
        if flags & SYMBOL:
            more = count_symbols(data, page.word_begins[word], page.word_ends[word])
            hashes += more[0]
            ellipses += more[1]
    row[columns.HASHES], row[columns.ELLIPSES], row[columns.ALPHABETIC_WORDS] = hashes, ellipses, alphabetic
    if language >= 0:
        row[columns.STOP_WORDS] = count_stop_words(data, page, words, stop_words, language, 0, met)[0]
    filled, bullets, endings = 0, 0, 0
    for line in range(lines):
        first, last = page.line_words[line], page.line_words[line + 1] - 1
        if last < first:
            continue
        filled += 1
        if page.word_flags[first] & (BULLET | MARKER):
            bullets += _is_bullet(data, page, first, texts.flags)
        if page.word_flags[last] & SYMBOL:
            endings += _ends_with_ellipsis(data, page.word_begins[last], page.word_ends[last])
    row[columns.LINES], row[columns.BULLET_LINES], row[columns.ELLIPSIS_LINES] = filled, bullets, endings


@compiled
def _repetition(texts: Texts, page: Page, words: int, lines: int, row: Any) -> None:
    count_segments(texts, page, find_lines(page, lines), row[columns.LINE_SEGMENTS :][:6])
    count_segments(texts, page, find_paragraphs(page, lines), row[columns.PARAGRAPH_SEGMENTS :][:6])
    if words:
        number_page_words(texts, page, words)
        repetitions(page.repeats, page.starts, words, row[columns.TOP_2_GRAM :])


@compiled
def _line_rules(texts: Texts, page: Page, lines: int, short: int, row: Any) -> None:
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
        point, _ = decode(texts.data, last_start(texts.data, end))
        row[columns.TERMINAL_LINES] += texts.flags[point] & TERMINAL != 0
        row[columns.SHORT_LINES] += length <= short
        segment += 1
    count_segments(texts, page, segment, row[columns.RAW_LINES :][:6])


@compiled
def count_words(texts: Texts, document: int, next_break: int, page: Page, row: Any) -> tuple[int, int, int]:
    """Split a document and write the columns that are always there; give words, lines and the next break."""
    words, lines, unspaced, next_break = split_page(texts, document, next_break, page)
    begin, end = texts.offsets[document], texts.offsets[document + 1]
    ended = end > begin and texts.data[end - 1] == _NEWLINE
    newlines = lines if ended or end == begin else lines - 1
    characters = page.line_places[lines] - (newlines < lines)
    row[columns.WORDS], row[columns.WORD_CHARACTERS] = words, page.starts[words]
    row[columns.UNSPACED_LETTERS], row[columns.NEWLINES] = unspaced, newlines
    row[columns.CHARACTERS], row[columns.LINE_CHARACTERS] = characters, characters - newlines
    return words, lines, next_break


@allocating
def measure_pages(texts: Texts, stop_words: StopWords, what: int, short: int, page: Page, rows: Any) -> None:
    """Measure every document.

    Args:
        texts: the documents.
        stop_words: the stop words of all languages.
        what: which columns are wanted: QUALITY, REPETITION, LINE_RULES, or-ed.
        short: a line of up to so many characters is short.
        page: memory for the longest document.
        rows: float64 [documents, COLUMNS], zeros, written.
    """
    next_break = np.int64(0)
    met = np.zeros(stop_words.most, np.int64)
    for document in range(len(texts.offsets) - 1):
        row = rows[document]
        words, lines, next_break = count_words(texts, document, next_break, page, row)
        if what & columns.QUALITY:
            _quality(texts, document, page, words, lines, stop_words, met, row)
        if what & columns.REPETITION:
            _repetition(texts, page, words, lines, row)
        if what & columns.LINE_RULES:
            _line_rules(texts, page, lines, short, row)
