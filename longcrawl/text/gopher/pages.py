"""Counts for Gopher's and FineWeb's rules, and the places in one document that the rules refer to."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.errors import StageError
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import PhraseTree, Vocabulary, find_word, lowered, make_tree, make_vocabulary, step
from longcrawl.kernels.ngrams import GOLDEN, HASHED
from longcrawl.kernels.texts import decode, text_buffers
from longcrawl.text.gopher import variants as defined
from longcrawl.text.gopher import words as columns
from longcrawl.text.gopher.variants import (
    LOWERED,
    READINGS,
    Definitions,
    Reading,
    Spelling,
    count_alphabetic,
    count_counted,
    count_grams,
    count_line_rules,
    count_lines,
    count_segments,
    count_skipped,
    count_spaced_dots,
    count_symbol_words,
    count_symbols,
    make_spelling,
    median_length,
)
from longcrawl.text.gopher.words import (
    ALPHABETIC,
    BULLET,
    MARKER,
    PACKED,
    TERMINAL,
    UNSPACED,
    Found,
    Page,
    Texts,
    find_words,
    flag_types,
    hash_lines,
    load_reading_characters,
    make_page,
    number_page_words,
    pack_word,
    tell_apart,
    write_keys,
    write_starts,
)

_U = np.uint64
_BYTES = (_U(1) << _U(8 * PACKED)) - _U(1)
_HIGH = _U(0x8080808080808080)  # the highest bit of each of eight bytes
_FROM_CAPITAL_A = _U(0x3F3F3F3F3F3F3F3F)  # added to ASCII bytes, sets the highest bit of those from A on
_AFTER_CAPITAL_Z = _U(0x2525252525252525)  # added to ASCII bytes, sets the highest bit of those after Z


class StopWords(NamedTuple):
    """Stop words of several languages."""

    spellings: Vocabulary  # spellings, in bytes
    numbers: npt.NDArray[np.int32]  # shape (spellings,): number of a spelling's word in its language's list
    met: npt.NDArray[np.int64]
    """Buffer of flags for each word of the longest list; the last is for words that are not listed."""
    short_keys: npt.NDArray[np.uint64]
    """Shape (languages, a power of two): hash tables of keys of spellings of up to ``PACKED`` bytes, 0 for none."""
    short_numbers: npt.NDArray[np.int32]  # numbers of the words of these spellings, in the same shape
    lowered: PhraseTree  # words to find in lower case; the root is the language


@compiled
def _is_lowered(data: Any, at: int, end: int, tree: PhraseTree, language: int) -> bool:
    node = np.int64(language)
    while at < end and node >= 0:
        point, at = decode(data, at)
        node = step(tree, node, point)
    return node >= 0 and tree.kinds[node] != 0


@compiled
def _lower_key(key: np.uint64) -> np.uint64:
    return key | ((key + _FROM_CAPITAL_A) & ~(key + _AFTER_CAPITAL_Z) & _HIGH) >> _U(2)


@compiled
def _place_short(keys: Any, language: int, key: np.uint64) -> int:
    at = np.int64(key * GOLDEN >> _U(32)) & keys.shape[1] - 1
    while (keys[language, at] != 0) & (keys[language, at] != key):
        at = (at + 1) & keys.shape[1] - 1
    return at


@compiled
def _count_stop_words(
    data: Any, page: Page, types: int, stop_words: StopWords, language: int, lowers: int
) -> tuple[int, int]:
    """Return the numbers of distinct and of all stop words of a language; if ``lowers``, only the latter is right."""
    begins, ends, counts, firsts = page.word_begins, page.word_ends, page.repeats.counts, page.repeats.firsts
    met, keys, longest, occurrences = stop_words.met, stop_words.short_keys, stop_words.spellings.longest, 0
    # Words to compare by their letters. Unless words are lowered, these are only long ones.
    by_letters = HASHED | _BYTES & _HIGH if lowers else (HASHED if longest > PACKED else _U(0))
    met[:] = 0
    for word_type in range(types):
        word = firsts[word_type]
        key = page.word_keys[word]
        # Lowering preserves the number of characters, and each has at least one byte.
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
    texts: Texts, page: Page, found: Found, types: int, reading: Reading, stop_words: StopWords, language: int, row: Any
) -> None:
    choices, data = reading.choices, texts.data
    count_lines(texts, page, found, reading, row)
    row[columns.ALPHABETIC_WORDS] = count_alphabetic(page, types, choices.alphabetic)
    if choices.symbols in (defined.WORDS_WITH, defined.WORDS_OF):
        row[columns.SYMBOLS] = count_symbol_words(data, page, types, reading)
    else:
        row[columns.HASHES], row[columns.ELLIPSES] = count_symbols(data, page, found, types)
    if choices.symbols == defined.TOGETHER:
        row[columns.SYMBOLS] = row[columns.HASHES] + row[columns.ELLIPSES] + count_spaced_dots(data, page, found)
    if choices.lengths == defined.MEDIAN and types:
        row[columns.MEDIAN_LENGTH] = median_length(page, types)
    if language >= 0:
        lowers = choices.stop_word_case == defined.LOWERED
        distinct, every = _count_stop_words(data, page, types, stop_words, language, lowers)
        row[columns.STOP_WORDS] = distinct if choices.stop_words == defined.DISTINCT else every


@compiled
def _count_repetition(texts: Texts, page: Page, found: Found, reading: Reading, spelling: Spelling, row: Any) -> None:
    if reading.choices.few_words == defined.EVERYTHING and found.words:
        for n in range(found.words + 1, 11):
            row[columns.TOP_2_GRAM + n - 2] = row[columns.CHARACTERS]
    count_grams(texts, page, found, reading.choices, spelling, row)
    if reading.choices.repeated == defined.SKIP:
        count_skipped(texts, page, found.words, spelling, row)


@compiled
def measure_pages(
    texts: Texts,
    what: int,
    short_line: int,
    reading: Reading,
    stop_words: StopWords,
    languages: npt.NDArray[np.int32],
    page: Page,
    spelling: Spelling,
    rows: Any,
) -> None:
    """Write the counts that are :class:`Asked` for to ``rows``, float64 [documents, COLUMNS], which must be zeros."""
    next_break = np.int64(0)
    for document in range(len(texts.offsets) - 1):
        row = rows[document]
        found, next_break = find_words(texts, document, next_break, page)
        row[columns.WORDS], row[columns.WORD_CHARACTERS] = found.words, found.word_characters
        row[columns.UNSPACED_LETTERS], row[columns.NEWLINES] = found.unspaced, found.lines - 1
        row[columns.CHARACTERS], row[columns.LINE_CHARACTERS] = found.characters, found.characters - found.lines + 1
        if what:
            write_keys(texts.data, page, found.words)
        if what & (columns.REPETITION | columns.LINE_RULES):
            hash_lines(page, found.lines)
        if what & columns.REPETITION:
            count_segments(texts, page, found, reading.choices.segments, row[columns.LINE_SEGMENTS :][:6])
            count_segments(texts, page, found, reading.choices.paragraphs, row[columns.PARAGRAPH_SEGMENTS :][:6])
        if what & columns.LINE_RULES:
            count_line_rules(texts, page, found, short_line, row)
        if what & (columns.QUALITY | columns.REPETITION):
            write_starts(page, found)
            types = tell_apart(page, found.words)
            if what & columns.REPETITION:
                types = number_page_words(texts, page, found.words)
            flag_types(texts, page, found.begin, types)
            count_counted(page, found, types, reading.choices.counted, row)
            if what & columns.QUALITY:
                _count_quality(texts, page, found, types, reading, stop_words, languages[document], row)
            if what & columns.REPETITION:
                _count_repetition(texts, page, found, reading, spelling, row)


Doubles = npt.NDArray[np.float64]
Span = tuple[int, int]
Words = Literal["whitespace", "characters", "icu"]
"""The words of scripts that are written without spaces: whole runs, single characters, or the segments of ICU."""

_MODES = {"whitespace": columns.WHOLE_RUNS, "characters": columns.EACH_CHARACTER, "icu": columns.WHOLE_RUNS}


class Asked(NamedTuple):
    """A request for counts."""

    what: int  # QUALITY, REPETITION and LINE_RULES of ``words.py``, combined with or
    definitions: Definitions = "paper"  # the project whose definitions of Gopher's rules apply
    stop_words: Sequence[tuple[str, ...]] = ()  # lists of stop words
    languages: npt.NDArray[np.int32] | None = None
    """Index of the list of stop words for each document, -1 for none; None is none for all."""
    short_line: int = 0  # largest number of characters of a short line


def count_pages(texts: pa.Array, asked: Asked, words: Words = "whitespace") -> Doubles:
    """Return the counts of valid large strings, null as empty: float64 (columns, documents), as in ``words.py``."""
    batch = _batch(texts, words)
    languages = np.full(len(texts), -1, np.int32) if asked.languages is None else asked.languages
    reading, stop_words = READINGS[asked.definitions], _stop_words(tuple(asked.stop_words), asked.definitions)
    rows, page, spelling = np.zeros((len(texts), columns.COLUMNS)), make_page(batch), make_spelling(batch)
    measure_pages(batch, asked.what, asked.short_line, reading, stop_words, languages, page, spelling, rows)
    return rows.T


def distinct_words(texts: pa.Array, words: Words = "whitespace") -> Iterator[dict[str, int]]:
    """Yield the number of occurrences of each word with a letter, in lower case, for each valid text."""
    batch = _batch(texts, words)
    page, next_break = make_page(batch), 0
    for document in range(len(texts)):
        found, next_break = find_words(batch, document, next_break, page)
        write_keys(batch.data, page, found.words)
        unique = number_page_words(batch, page, found.words)
        flag_types(batch, page, found.begin, unique)
        counted: Counter[str] = Counter()
        repeats, with_letter = page.repeats, page.type_flags[:unique] & ALPHABETIC != 0
        for first, count in zip(
            repeats.firsts[:unique][with_letter], repeats.counts[:unique][with_letter], strict=True
        ):
            spelled = bytes(batch.data[page.word_begins[first] : page.word_ends[first]]).decode()
            counted[spelled.lower()] += int(count)
        yield counted


def _batch(texts: pa.Array, words: Words) -> Any:
    batch = Texts(*text_buffers(texts), load_reading_characters(), _MODES[words], np.zeros(0, np.int64))
    return batch._replace(mode=columns.AT_BREAKS, breaks=_icu_breaks(batch)) if words == "icu" else batch


def _icu_breaks(batch: Any) -> npt.NDArray[np.int64]:
    breaker, page, breaks = load_segmenter(), make_page(batch), [np.zeros(0, np.int64)]
    for document in range(len(batch.offsets) - 1):
        found, _ = find_words(batch, document, 0, page)
        flag_types(batch, page, found.begin, tell_apart(page, found.words))
        for word in np.flatnonzero(page.type_flags[: found.words] & UNSPACED):
            begin, end = page.word_begins[word], page.word_ends[word]
            sizes = [len(piece.encode()) for piece in breaker(bytes(batch.data[begin:end]).decode(), "und")]
            breaks.append(begin + np.cumsum(sizes, dtype=np.int64)[:-1])
    return np.concatenate(breaks)


def load_segmenter() -> Any:
    """Load ICU's word breaker, with dictionaries; raise StageError if ``icu4py`` is not installed."""
    try:
        from icu4py.breakers import WordBreaker
    except ImportError as missing:
        raise StageError(
            "words='icu' needs the package icu4py: pip install 'longcrawl[segmentation]', or choose words='characters'"
        ) from missing
    return WordBreaker


@lru_cache(maxsize=8)
def _stop_words(lists: tuple[tuple[str, ...], ...], definitions: Definitions) -> Any:
    """Return the tables of stop words, by number of their list; the paper's match three spellings of each word."""
    numbers: dict[tuple[int, str], int] = {}
    for language, words in enumerate(lists):
        for number, word in enumerate(words):
            cases = (word.lower(), word.capitalize(), word.upper()) if definitions == "paper" else ()
            for spelling in (word, *cases):
                numbers.setdefault((language, spelling), number)
    lowers = READINGS[definitions].choices.stop_word_case == LOWERED
    short = {each: number for each, number in numbers.items() if not lowers or lowered(each[1]) == each[1]}
    return StopWords(
        make_vocabulary(numbers, "bytes"),
        np.array([numbers[each] for each in sorted(numbers)], np.int32),
        np.zeros(1 + max(map(len, lists), default=0), np.int64),
        *_short_words(len(lists), short),
        make_tree(len(lists), [(language, word, 1) for language, word in short] if lowers else []),
    )


def _short_words(
    languages: int, numbers: Mapping[tuple[int, str], int]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    short = {
        (each[0], pack_word(each[1].encode())): numbers[each] for each in numbers if len(each[1].encode()) <= PACKED
    }
    most = max(Counter(language for language, _ in short).values(), default=1)
    size = 1 << (8 * most).bit_length()
    keys, found = np.zeros((languages + 1, size), np.uint64), np.zeros((languages + 1, size), np.int32)
    for (language, key), number in short.items():
        at = (key * int(GOLDEN) >> 32) % size
        while keys[language, at]:
            at = (at + 1) % size
        keys[language, at], found[language, at] = key, number
    return keys, found


def find_marks(text: str, rule: str, words: Words = "whitespace", short_line: int = 0) -> list[Span]:
    """Return the places in a text that a rule (a minimum: its lack) refers to: sorted offsets without overlaps.

    >>> find_marks("One # and ## more.", "max_hash_ratio")
    [(4, 5), (10, 11), (11, 12)]
    """
    find = _FINDERS.get(rule)
    return [] if find is None else list(find(_split(text, words, short_line)))


class _Text(NamedTuple):
    """One text, split by the kernels, with all places in characters."""

    text: str
    flags: list[int]  # flags of each character
    words: list[Span]
    raw_lines: list[Span]  # lines that are not blank, with the white space around them, without their newline
    lines: list[Span]  # lines that are not blank, without the white space around them
    paragraphs: list[Span]  # parts between blank lines, without the white space around them
    short_line: int  # largest number of characters of a short line

    def at(self, span: Span) -> str:
        return self.text[slice(*span)]


def _split(text: str, words: Words, short_line: int) -> _Text:
    batch = _batch(pa.array([text], pa.large_string()), words)
    page = make_page(batch)
    found, _ = find_words(batch, 0, 0, page)
    before = np.concatenate([[0], np.cumsum(batch.data[: found.end] & 0xC0 != 0x80)])
    begins, ends = (before[places[: found.words]].tolist() for places in (page.word_begins, page.word_ends))
    line_begins, line_ends = page.line_begins[: found.lines], page.line_begins[1 : found.lines + 1] - 1
    first_words = list(pairwise(page.line_words[: found.lines + 1].tolist()))
    filled = [row for row, (first, stop) in enumerate(first_words) if stop > first]
    lines = [(begins[first_words[row][0]], ends[first_words[row][1] - 1]) for row in filled]
    paragraphs = np.split(np.arange(len(filled)), np.flatnonzero(np.diff(filled) > 1) + 1)
    return _Text(
        text,
        batch.flags[np.frombuffer(text.encode("utf-32-le"), np.uint32)].tolist(),
        list(zip(begins, ends, strict=True)),
        list(zip(before[line_begins[filled]].tolist(), before[line_ends[filled]].tolist(), strict=True)),
        lines,
        [(lines[each[0]][0], lines[each[-1]][1]) for each in paragraphs if len(each)],
        short_line,
    )


def _matches(page: _Text, pattern: str) -> Iterator[Span]:
    return (match.span() for match in re.finditer(pattern, page.text))


def _unspaced_letters(page: _Text) -> Iterator[Span]:
    unspaced = "".join("x" if flag & UNSPACED else " " for flag in page.flags)
    return (match.span() for match in re.finditer("x+", unspaced))


def _bullet_lines(page: _Text) -> Iterator[Span]:
    ends = dict(page.words)
    for begin, end in page.lines:
        alone = ends[begin] == begin + 1
        if page.flags[begin] & BULLET or (alone and page.flags[begin] & MARKER):
            yield begin, end


def _later_lines(page: _Text) -> Iterator[Span]:
    seen = set()
    for span in page.raw_lines:
        if page.at(span) in seen:
            yield span
        seen.add(page.at(span))


def _duplicates(page: _Text, spans: list[Span]) -> list[Span]:
    spelled = [*map(page.at, spans)]
    times = Counter(spelled)
    return [span for span, text in zip(spans, spelled, strict=True) if times[text] > 1]


def _top_ngram(page: _Text, n: int) -> list[Span]:
    grams = _ngrams(page, n)
    # Counters preserve the order of first occurrences, and max returns the first of equals.
    top, times = max(Counter(grams).items(), key=itemgetter(1), default=((), 0))
    return _places(page, n, [gram == top for gram in grams]) if times > 1 else []


def _duplicate_ngrams(page: _Text, n: int) -> list[Span]:
    grams = _ngrams(page, n)
    times = Counter(grams)
    return _places(page, n, [times[gram] > 1 for gram in grams])


def _ngrams(page: _Text, n: int) -> list[tuple[str, ...]]:
    words = [*map(page.at, page.words)]
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def _places(page: _Text, n: int, chosen: list[bool]) -> list[Span]:
    found: list[Span] = []
    for at in (at for at, one in enumerate(chosen) if one):
        begin, end = page.words[at][0], page.words[at + n - 1][1]
        if found and begin < found[-1][1]:
            begin = found.pop()[0]
        found.append((begin, end))
    return found


_FINDERS: dict[str, Callable[[_Text], Iterable[Span]]] = {
    "max_unspaced_letters": _unspaced_letters,
    "max_hash_ratio": partial(_matches, pattern="#"),
    "max_ellipsis_ratio": partial(_matches, pattern=r"\.\.\.|…"),
    "max_bullet_lines": _bullet_lines,
    "max_ellipsis_lines": lambda page: [span for span in page.lines if page.at(span).endswith(("...", "…"))],
    "min_alphabetic_words": lambda page: [span for span in page.words if not any(map(str.isalpha, page.at(span)))],
    "max_duplicate_lines": lambda page: _duplicates(page, page.lines),
    "max_duplicate_line_characters": lambda page: _duplicates(page, page.lines),
    "max_duplicate_paragraphs": lambda page: _duplicates(page, page.paragraphs),
    "max_duplicate_paragraph_characters": lambda page: _duplicates(page, page.paragraphs),
    "min_terminal_lines": lambda page: [span for span in page.raw_lines if not page.flags[span[1] - 1] & TERMINAL],
    "max_short_lines": lambda page: [span for span in page.raw_lines if len(page.at(span)) <= page.short_line],
    "max_later_line_characters": _later_lines,
}
_FINDERS |= {f"max_top_{n}gram": partial(_top_ngram, n=n) for n in range(2, 5)}
_FINDERS |= {f"max_duplicate_{n}grams": partial(_duplicate_ngrams, n=n) for n in range(5, 11)}
