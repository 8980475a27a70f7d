"""What RedPajama-V2's signals need of a whole document: equal words, equal n-grams, listed phrases, as numba kernels.

Words get numbers by full comparison, so no two different ones can be taken for one; n-grams are in ``_ngram_kernels``.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import Characters
from longcrawl.kernels.lookup import compiled, find_word, mixed
from longcrawl.kernels.ngrams import clear, repetitions
from longcrawl.kernels.word_lists import Phrases, Vocabulary
from longcrawl.text.gopher.page_columns import NGRAMS
from longcrawl.text.rpv2._kernels import COUNTS, HASHED, WORD_CHARACTERS, WORDS, Scratch, read_lines

UNIQUE_WORDS, ENTROPY, LOREM_IPSUM, LISTED_PHRASES, TOP_2_GRAM = range(COUNTS, COUNTS + 5)
DUPLICATE_5_GRAMS = TOP_2_GRAM + 3
MEASURES = TOP_2_GRAM + NGRAMS
"""How many columns a document has; after the two n-gram columns named come those of the next n."""

_U = np.uint64
_LOREM = np.frombuffer(b"lorem", np.uint8)
_IPSUM = np.frombuffer(b"ipsum", np.uint8)


@compiled
def _same_letters(normal: Any, first: int, second: int, length: int) -> bool:
    same = 0
    while same < length and normal[first + same] == normal[second + same]:
        same += 1
    return same == length


@compiled
def _number_words(scratch: Scratch, words: int) -> int:
    """Write the number of each word, and of each number its first word and its count; give how many there are."""
    table, ids, firsts, counts = scratch.table, scratch.ids, scratch.firsts, scratch.counts
    keys, starts, normal = scratch.word_keys, scratch.starts, scratch.normal
    mask = clear(table, words)
    unique = 0
    for word in range(words):
        key, start = keys[word], starts[word]
        length = starts[word + 1] - start
        at = mixed(key) & mask
        while table[at] != 0:
            other = firsts[table[at] - 1]
            same = keys[other] == key and starts[other + 1] - starts[other] == length
            # A key that is no hash is the word itself.
            if same and (key & HASHED == _U(0) or _same_letters(normal, starts[other], start, length)):
                break
            at = (at + 1) & mask
        if table[at] == 0:
            firsts[unique] = word
            counts[unique] = 0
            unique += 1
            table[at] = unique
        ids[word] = table[at] - 1
        counts[ids[word]] += 1
    return unique


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
        point = normal[start + at]
        if point == word[at]:
            continue
        if (point == 0x131 and word[at] == ord("i")) or (point == 0x17F and word[at] == ord("s")):
            folded += 1
        else:
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
        if normal[start - 1] != ord("m") or start - starts[word - 1] < 5 or starts[word + 1] - start < 5:
            continue
        if _spelled(normal, start - 5, _LOREM) == 0:
            letters = _spelled(normal, start, _IPSUM)
            folded += letters >= 0
            exact += letters == 0
    return folded if exact > 0 else 0


@compiled
def _listed_phrases(scratch: Scratch, words: int, unique: int, phrases: Phrases, language: int) -> int:
    """Count the places where a phrase of the language's list stands, word by word."""
    listed = scratch.gram_counts
    some = False
    for number in range(unique):
        first = scratch.firsts[number]
        start, stop = scratch.starts[first], scratch.starts[first + 1]
        listed[number] = find_word(phrases.vocabulary, language, scratch.normal, start, stop)
        some = some or listed[number] >= 0
    if not some:
        return 0
    total = 0
    for word in range(words):
        number = listed[scratch.ids[word]]
        if number < 0:
            continue
        for phrase in range(phrases.by_first_word[number], phrases.by_first_word[number + 1]):
            begin, end = phrases.bounds[phrase], phrases.bounds[phrase + 1]
            length = end - begin
            same = 1
            while (
                same < length
                and word + same < words
                and listed[scratch.ids[word + same]] == phrases.words[begin + same]
            ):
                same += 1
            total += same == length
    return total


@compiled
def measure(
    data: Any,
    offsets: Any,
    languages: Any,
    characters: Characters,
    stop_words: Vocabulary,
    phrases: Phrases,
    scratch: Scratch,
    rows: Any,
    ends: Any,
    values: Any,
    sums: Any,
    first_lines: Any,
) -> None:
    """Measure every document.

    Args:
        data: uint8 [bytes], valid UTF-8.
        offsets: int64 [documents + 1], where each document starts.
        languages: int32 [2, documents], which list of stop words and of phrases is a document's, -1 for none.
        characters: properties of all code points.
        stop_words: the stop words of all languages.
        phrases: the listed phrases of all languages.
        scratch: memory for the longest document.
        rows: float64 [documents, MEASURES], zeros, written: counts and unrounded shares.
        ends: int64 [lines], written: where each line ends, in code points of its document.
        values: float64 [lines, 6], written: the line signals.
        sums: float64 [documents, 6], zeros, written: the line signals added up in order.
        first_lines: int64 [documents + 1], written: the first line of each document.

    """
    line = np.int64(0)
    scratch.starts[0] = 0
    for document in range(len(offsets) - 1):
        row = rows[document]
        at, end = offsets[document], offsets[document + 1]
        first_lines[document] = line
        stops, listed = languages[0, document], languages[1, document]
        line = read_lines(data, at, end, characters, stop_words, stops, scratch, row, ends, values, line)
        for each in range(first_lines[document], line):
            for signal in range(values.shape[1]):
                sums[document, signal] += values[each, signal]
        words = np.int64(row[WORDS])
        if words > 0:
            unique = _number_words(scratch, words)
            row[UNIQUE_WORDS] = unique
            row[ENTROPY] = _entropy(scratch.counts, unique, words)
            row[LOREM_IPSUM] = _lorem_ipsum(scratch, words)
            row[LISTED_PHRASES] = _listed_phrases(scratch, words, unique, phrases, listed)
            repetitions(scratch, words, row[TOP_2_GRAM:])
            row[TOP_2_GRAM:] /= row[WORD_CHARACTERS]
    first_lines[len(offsets) - 1] = line
