"""Word lists, hash tables of words, phrase trees and sorting for kernels."""

import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.io.files import reread_when_changed
from longcrawl.io.structured import load_json
from longcrawl.kernels.compiling import allocating, compiled, forced_inline, inlined

WordLists = Mapping[str, frozenset[str]]

_LANGUAGE_FILE = re.compile(r"(?P<language>[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*)(?:\.txt|\.json)?")


class Vocabulary(NamedTuple):
    """A hash table of words in several languages, found by their letters: code points or UTF-8 bytes."""

    table: npt.NDArray[np.int32]
    """Open addressing table, shape (a power of two,): word number + 1, or 0 if empty."""
    languages: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.int64]
    """Start of each word in ``letters``, and the end of the last, shape (words + 1,)."""
    letters: npt.NDArray[Any]
    longest: int


class Phrases(NamedTuple):
    """Sequences of words, sorted by their first word."""

    vocabulary: Vocabulary
    by_first_word: npt.NDArray[np.int64]
    """Number of the first phrase that begins with each word, shape (words of the vocabulary + 1,)."""
    bounds: npt.NDArray[np.int64]
    words: npt.NDArray[np.int32]


def make_vocabulary(
    words: Iterable[tuple[int, str]], letters: Literal["code points", "bytes"] = "code points"
) -> Vocabulary:
    """Make a vocabulary from pairs of a language number and a word; words are numbered in sorted order."""
    chosen = sorted({(language, word) for language, word in words if word})
    encoding, kind = ("utf-8", np.uint8) if letters == "bytes" else ("utf-32-le", np.uint32)
    spelled = [np.frombuffer(word.encode(encoding, "surrogatepass"), kind) for _, word in chosen]
    vocabulary = Vocabulary(
        np.zeros(1 << (4 * len(chosen)).bit_length(), np.int32),
        np.array([language for language, _ in chosen], np.int32),
        np.cumsum([0, *map(len, spelled)], dtype=np.int64),
        np.concatenate([np.zeros(0, kind), *spelled]),
        max(map(len, spelled), default=0),
    )
    fill_table(vocabulary)
    return vocabulary


def make_phrases(phrases: Iterable[tuple[int, str]]) -> Phrases:
    """Make phrases from pairs of a language number and words joined by single spaces."""
    split = sorted({(language, tuple(phrase.split(" "))) for language, phrase in phrases})
    # Two spaces in a row enclose an empty word, which no document contains.
    split = [(language, words) for language, words in split if all(words)]
    pairs = sorted({(language, word) for language, words in split for word in words})
    number = {pair: at for at, pair in enumerate(pairs)}
    firsts = [number[language, words[0]] for language, words in split]
    return Phrases(
        make_vocabulary(pairs),
        np.searchsorted(np.array(firsts, np.int64), np.arange(len(pairs) + 1)).astype(np.int64),
        np.cumsum([0, *(len(words) for _, words in split)], dtype=np.int64),
        np.array([number[language, word] for language, words in split for word in words], np.int32),
    )


@reread_when_changed(8)
def read_word_lists(path: str) -> WordLists:
    """Read word lists by language, from a JSON file or a directory.

    A JSON file has {language: [word, …]}. A directory has files LANGUAGE or LANGUAGE.txt with one entry per line, or
    LANGUAGE.json with a list; other files are ignored. White space around entries is removed.

    Raises:
        StageError: the path does not exist, or does not have this form.
    """
    place = Path(path)
    if place.is_dir():
        files = filter(Path.is_file, sorted(place.iterdir()))
        named = [(match["language"], file) for file in files if (match := _LANGUAGE_FILE.fullmatch(file.name))]
        lists = {
            language: _words(_json(file) if file.suffix == ".json" else _read(file).splitlines(), file)
            for language, file in named
        }
    else:
        found = _json(place)
        if not isinstance(found, dict):
            raise StageError(f"{path} has no lists by language; it should be JSON like {{'en': ['the', 'of']}}")
        lists = {language: _words(words, place) for language, words in found.items()}
    if not lists:
        raise StageError(f"{path} has no word lists; call its files en.txt, de.txt, … or give a JSON file of lists")
    return lists


@reread_when_changed(2)
def read_domain_categories(path: str) -> Mapping[str, int]:
    """Read domain categories from a JSON file of {domain: number}, plain or .gz; StageError for another form."""
    found = _json(Path(path))
    if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
        raise StageError(f"{path} has no domain categories; it should be JSON like {{'example.org': 5}}")
    return found


def _words(words: Any, file: Path) -> frozenset[str]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise StageError(f"{file} has a list of something other than words; it should be like ['the', 'of']")
    return frozenset(stripped for word in words if (stripped := word.strip()))


def _json(file: Path) -> Any:
    text = _read(file)
    try:
        return load_json(text)
    except ValueError as error:
        raise StageError(f"{file} is not valid JSON ({error}); give a JSON file, or a folder of word lists") from error


def _read(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
    except FileNotFoundError as error:
        raise StageError(f"{file} does not exist; give the path of a word list, or remove the field") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StageError(f"{file} cannot be read as UTF-8 text: {error}; download it again") from error


Letters = npt.NDArray[Any]

_U = np.uint64
_MIX = _U(0xFF51AFD7ED558CCD)


@compiled
def round_to_8_digits(value: float) -> float:
    """Return ``round(value, 8)`` of a nonnegative number, bit for bit like Python, which rounds half to even.

    Numbers near a half are decided by the exact product with 1e8; from 2**26 on, floats are further apart than the
    digits.
    """
    if not value < 67108864.0:
        return value
    high = value * 1e8
    whole = np.floor(high)
    off = high - whole - 0.5
    if abs(off) < 1e-3:
        split = 134217729.0 * value
        upper = split - (split - value)
        off += (upper * 1e8 - high) + (value - upper) * 1e8
    up = off > 0.0 or (off == 0.0 and whole % 2.0 == 1.0)
    return (whole + 1.0 if up else whole) / 1e8


@compiled
def round_all(values: Any) -> None:
    """Round all numbers of a one-dimensional array in place like ``round(value, 8)``; NaN is kept."""
    for at in range(len(values)):
        values[at] = round_to_8_digits(values[at])


@compiled
def count_up_to(values: npt.NDArray[np.int64], most: int) -> int:
    """Count the values of at most ``most`` in an ascending int64 array, without scipy, which ``np.searchsorted`` needs.

    >>> count_up_to(np.array([2, 4, 4, 7]), 4)
    3
    """
    below, end = 0, len(values)
    while below < end:
        middle = (below + end) // 2
        if values[middle] <= most:
            below = middle + 1
        else:
            end = middle
    return below


_RUN = 16


@allocating
def stable_order(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the indices that sort int64 keys, by a stable merge sort, which compiles faster than numba's own."""
    count = len(keys)
    order, merged = np.empty(count, np.int64), np.empty(count, np.int64)
    for at in range(count):
        key, place = keys[at], at
        while place % _RUN and keys[order[place - 1]] > key:
            order[place] = order[place - 1]
            place -= 1
        order[place] = at
    width = _RUN
    while width < count:
        for start in range(0, count, 2 * width):
            middle, stop = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for place in range(start, stop):
                if left < middle and (right == stop or keys[order[left]] <= keys[order[right]]):
                    merged[place] = order[left]
                    left += 1
                else:
                    merged[place] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@inlined
def order_by(values: npt.NDArray[Any], members: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the indices that sort ``members`` by their integer values; unsigned ones beyond int64 are only grouped."""
    keys = np.empty(len(members), np.int64)
    for place in range(len(members)):
        keys[place] = np.int64(values[members[place]])
    return stable_order(keys)


@compiled
def mixed(number: np.uint64) -> np.int64:
    """Mix a hash or key over all bits, to be masked as an index."""
    number ^= number >> _U(33)
    number *= _MIX
    number ^= number >> _U(29)
    return np.int64(number)


@forced_inline
def _sampled(language: int, letters: Letters, start: int, stop: int) -> np.int64:
    """Hash a word of a list by its length and its first and last two letters, which distinguish most words."""
    second, before_last = min(start + 1, stop - 1), max(stop - 2, start)
    head = _U(letters[start]) | _U(letters[second]) << _U(21) | _U(stop - start) << _U(42)
    tail = _U(letters[stop - 1]) | _U(letters[before_last]) << _U(21) | _U(language) << _U(42)
    return mixed(head ^ (tail << _U(11) | tail >> _U(53)))


@forced_inline
def find_word(vocabulary: Vocabulary, language: int, letters: Letters, start: int, stop: int) -> int:
    """Return the number of the word ``letters[start:stop]`` in a language's list, or -1 if it is not listed."""
    length = stop - start
    if language < 0 or length > vocabulary.longest:
        return -1
    mask = len(vocabulary.table) - 1
    at = _sampled(language, letters, start, stop) & mask
    while vocabulary.table[at] != 0:
        word = vocabulary.table[at] - 1
        first = vocabulary.bounds[word]
        if vocabulary.languages[word] == language and vocabulary.bounds[word + 1] - first == length:
            same = 0
            while same < length and vocabulary.letters[first + same] == letters[start + same]:
                same += 1
            if same == length:
                return word
        at = (at + 1) & mask
    return -1


@compiled
def fill_table(vocabulary: Vocabulary) -> None:
    """Insert all words of a vocabulary into its zero-filled table."""
    mask = len(vocabulary.table) - 1
    for word in range(len(vocabulary.languages)):
        start, stop = vocabulary.bounds[word], vocabulary.bounds[word + 1]
        at = _sampled(vocabulary.languages[word], vocabulary.letters, start, stop) & mask
        while vocabulary.table[at] != 0:
            at = (at + 1) & mask
        vocabulary.table[at] = word + 1


class PhraseTree(NamedTuple):
    """A prefix tree of phrases; a node represents the lower-case characters on the path to it."""

    keys: npt.NDArray[np.uint64]
    """Open addressing table of edges, shape (a power of two,): node and code point, or 0 if empty."""
    children: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.uint8]
    """Kinds of the phrases that end at each node, combined by bitwise or, shape (nodes,)."""
    begins: npt.NDArray[np.bool_]
    """Whether a phrase can begin with each ASCII character, shape (129,); the last entry is for all others."""
    sure: int
    """Length of the shortest phrase in characters, at most 8."""
    places: npt.NDArray[np.uint8]
    """Bits of the positions of each ASCII character in the first ``sure`` of phrases, shape (129,), like ``begins``."""


def make_tree(roots: int, phrases: Iterable[tuple[int, str, int]]) -> PhraseTree:
    """Make a tree from the root, text and kind of each phrase; nodes 0 to ``roots`` - 1 are the roots."""
    given = list(phrases)
    edges: dict[tuple[int, str], int] = {}
    kinds = [0] * roots
    for root, phrase, kind in given:
        node = root
        for character in lowered(phrase):
            node = edges.setdefault((node, character), len(kinds))
            kinds += [0] * (node == len(kinds))
        kinds[node] |= kind
    spelled = [(node, other, child) for (node, lower), child in edges.items() for other in _spellings(lower)]
    nodes, points, children = np.array(spelled, np.int64).reshape(-1, 3).T
    size = 1 << (2 * len(spelled)).bit_length()
    begins, sure, places = _beginnings([lowered(phrase) for _, phrase, _ in given])
    tree = PhraseTree(
        np.zeros(size, np.uint64), np.zeros(size, np.int32), np.array(kinds, np.uint8), begins, sure, places
    )
    enter(tree, np.ascontiguousarray(nodes), np.ascontiguousarray(points), np.ascontiguousarray(children))
    return tree


def _beginnings(phrases: Sequence[str]) -> tuple[npt.NDArray[np.bool_], int, npt.NDArray[np.uint8]]:
    sure = max(1, min([8, *map(len, phrases)]))
    places = np.zeros(129, np.uint8)
    for phrase in phrases:
        for place, lower in enumerate(phrase[:sure]):
            for point in _spellings(lower):
                places[min(point, 128)] |= 1 << place
    return places & 1 != 0, sure, places


def lowered(phrase: str) -> str:
    """Lowercase each character of a phrase separately, except the few with a lower case of two characters."""
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in phrase)


def _spellings(lower: str) -> list[int]:
    return [*_capitals().get(lower, []), ord(lower)]


@lru_cache(maxsize=1)
def _capitals() -> dict[str, list[int]]:
    """Return the other characters with each lower case, but Dotted I, whose lower case has two characters."""
    points = np.arange(0x110000, dtype="<u4")
    points = points[((points < 0xD800) | (points >= 0xE000)) & (points != ord("\u0130"))]
    lower = np.frombuffer(points.tobytes().decode("utf-32-le").lower().encode("utf-32-le"), "<u4")
    found: dict[str, list[int]] = {}
    for at in np.flatnonzero(points != lower).tolist():
        found.setdefault(chr(lower[at]), []).append(int(points[at]))
    return found


OTHERS = np.uint32(128)
"""Index of all characters other than ASCII in ``begins`` and ``places`` of a :class:`PhraseTree`."""


@compiled
def _key(node: int, point: np.uint32) -> np.uint64:
    return (_U(node) << _U(21) | _U(point)) + _U(1)


@compiled
def step(tree: PhraseTree, node: int, point: np.uint32) -> int:
    """Return the node that a character leads to, or -1 if there is no such edge."""
    key, mask = _key(node, point), len(tree.keys) - 1
    at = mixed(key) & mask
    while tree.keys[at] != 0:
        if tree.keys[at] == key:
            return tree.children[at]
        at = (at + 1) & mask
    return -1


@compiled
def enter(tree: PhraseTree, nodes: Any, points: Any, children: Any) -> None:
    """Insert all edges of a tree into its zero-filled table."""
    mask = len(tree.keys) - 1
    for edge in range(len(nodes)):
        key = _key(nodes[edge], points[edge])
        at = mixed(key) & mask
        while tree.keys[at] != 0:
            at = (at + 1) & mask
        tree.keys[at] = key
        tree.children[at] = children[edge]
