"""Hash tables, word lists and phrase trees for kernels."""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

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
    """Words of several languages, to be looked up by their letters: code points, or bytes of UTF-8."""

    table: npt.NDArray[np.int32]
    """Shape (a power of two,): open addressing, word number + 1, 0 where empty."""
    languages: npt.NDArray[np.int32]
    """Shape (words,): which list a word is of."""
    bounds: npt.NDArray[np.int64]
    """Shape (words + 1,): where each word starts in ``letters``."""
    letters: npt.NDArray[Any]
    """The words one after the other: uint32 code points or uint8 bytes."""
    longest: int
    """Letters of the longest word."""


class Phrases(NamedTuple):
    """Sequences of words, sorted by their first."""

    vocabulary: Vocabulary
    by_first_word: npt.NDArray[np.int64]
    """Shape (words of the vocabulary + 1,): the first phrase that begins with each word."""
    bounds: npt.NDArray[np.int64]
    """Shape (phrases + 1,): where each phrase starts in ``words``."""
    words: npt.NDArray[np.int32]


def make_vocabulary(
    words: Iterable[tuple[int, str]], letters: Literal["code points", "bytes"] = "code points"
) -> Vocabulary:
    """Make a vocabulary of pairs of a language's number and a word; words are numbered in sorted order."""
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
    """Make phrases of pairs of a language's number and words joined by single spaces."""
    split = sorted({(language, tuple(phrase.split(" "))) for language, phrase in phrases})
    # An empty word is between two spaces in a row: no document ever has such a phrase.
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
    """Read lists by language: a JSON file of {language: [word, …]}, or a folder of LANGUAGE, LANGUAGE.txt or .json.

    A text file has one entry per line, a JSON file of a folder is a list. Space around an entry is dropped, other
    files of the folder are passed over.

    Raises:
        StageError: nothing is there, or it is not of that form.
    """
    place = Path(path)
    if place.is_dir():
        named = [(match["language"], file) for file in sorted(place.iterdir()) if (match := _named_by_language(file))]
        lists = {language: _entries(file) for language, file in named}
    else:
        found = _json(place)
        if not isinstance(found, dict):
            raise StageError(f"{path} holds no lists by language; it should be JSON like {{'en': ['the', 'of']}}")
        lists = {language: _words(words, place) for language, words in found.items()}
    if not lists:
        raise StageError(f"{path} holds no word list; name its files en.txt, de.txt, … or give a JSON file of lists")
    return lists


@reread_when_changed(2)
def read_domain_categories(path: str) -> Mapping[str, int]:
    """Read a JSON file, plain or .gz, of {domain: number}.

    Raises:
        StageError: nothing is there, or it is not of that form.
    """
    found = _json(Path(path))
    if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
        raise StageError(f"{path} holds no domain categories; it should be JSON like {{'example.org': 5}}")
    return found


def _named_by_language(file: Path) -> re.Match[str] | None:
    return _LANGUAGE_FILE.fullmatch(file.name) if file.is_file() else None


def _entries(file: Path) -> frozenset[str]:
    return _words(_json(file) if file.suffix == ".json" else _read(file).splitlines(), file)


def _words(words: Any, file: Path) -> frozenset[str]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise StageError(f"{file} holds a list that is not one of words; it should be like ['the', 'of']")
    return frozenset(stripped for word in words if (stripped := word.strip()))


def _json(file: Path) -> Any:
    try:
        return load_json(_read(file))
    except StageError:
        raise
    except ValueError as error:
        raise StageError(f"{file} is not valid JSON ({error}); give a JSON file, or a folder of word lists") from error


def _read(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
    except FileNotFoundError as error:
        raise StageError(f"{file} does not exist; give the path of a word list, or leave the field out") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StageError(f"{file} cannot be read as UTF-8 text: {error}; download it again") from error


Letters = npt.NDArray[Any]

_U = np.uint64
_MIX = _U(0xFF51AFD7ED558CCD)


@compiled
def round_to_8_digits(value: float) -> float:
    """Return ``round(value, 8)`` of a number that is not negative, equal to Python's in every bit.

    Python rounds the exact binary value, half to even. The product with 1e8 is exact as ``high + low``, so a number
    near a half is decided exactly; from 2**26 on neighbouring numbers are further apart than the digits.
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
    """Round every number of a one-dimensional array in place, as ``round(value, 8)`` does; NaN stays."""
    for at in range(len(values)):
        values[at] = round_to_8_digits(values[at])


@compiled
def count_up_to(values: npt.NDArray[np.int64], most: int) -> int:
    """Return how many ascending int64 numbers are no more than ``most``, by binary search.

    ``np.searchsorted`` in a kernel has every process that loads it import scipy, 0.2 s.

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
"""Keys that :func:`stable_order` sorts by insertion before it merges."""


@allocating
def stable_order(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of int64 keys in ascending order, equal ones as they stand: a merge sort.

    That of numba takes 1 to 2 s of compiling for each type of key, this one 0.4 s once.
    """
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
    """Return the places of ``members`` by their values, integers, as :func:`stable_order` does.

    Of unsigned numbers beyond int64 only equal ones are sure to stand together.
    """
    keys = np.empty(len(members), np.int64)
    for place in range(len(members)):
        keys[place] = np.int64(values[members[place]])
    return stable_order(keys)


@compiled
def mixed(number: np.uint64) -> np.int64:
    """Spread a hash or a key over all bits, as an index to be masked."""
    number ^= number >> _U(33)
    number *= _MIX
    number ^= number >> _U(29)
    return np.int64(number)


@forced_inline
def _sampled(language: int, letters: Letters, start: int, stop: int) -> np.int64:
    """Hash a listed word by its length and its first and last two letters, which tell most of a list apart."""
    second, before_last = min(start + 1, stop - 1), max(stop - 2, start)
    head = _U(letters[start]) | _U(letters[second]) << _U(21) | _U(stop - start) << _U(42)
    tail = _U(letters[stop - 1]) | _U(letters[before_last]) << _U(21) | _U(language) << _U(42)
    return mixed(head ^ (tail << _U(11) | tail >> _U(53)))


@forced_inline
def find_word(vocabulary: Vocabulary, language: int, letters: Letters, start: int, stop: int) -> int:
    """Return the number of the word ``letters[start:stop]`` in a language's list, -1 where it is not there."""
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
    """Enter all words of a vocabulary into its table of zeros."""
    mask = len(vocabulary.table) - 1
    for word in range(len(vocabulary.languages)):
        start, stop = vocabulary.bounds[word], vocabulary.bounds[word + 1]
        at = _sampled(vocabulary.languages[word], vocabulary.letters, start, stop) & mask
        while vocabulary.table[at] != 0:
            at = (at + 1) & mask
        vocabulary.table[at] = word + 1


class PhraseTree(NamedTuple):
    """Nodes and their edges; a node stands for the characters on the way to it, in lower case."""

    keys: npt.NDArray[np.uint64]
    """Shape (a power of two,): open addressing, node and code point of an edge, 0 where empty."""
    children: npt.NDArray[np.int32]
    """Where each of these edges leads."""
    kinds: npt.NDArray[np.uint8]
    """Shape (nodes,): the kinds of the phrases that end at a node, or-ed."""
    begins: npt.NDArray[np.bool_]
    """Shape (129,): whether an edge of any root takes this ASCII character; the last stands for all others."""
    sure: int
    """Characters of the shortest phrase, or 8."""
    places: npt.NDArray[np.uint8]
    """Shape (129,): bit n says whether a phrase can have this ASCII character as the n-th of its ``sure``, as above."""


def make_tree(roots: int, phrases: Iterable[tuple[int, str, int]]) -> PhraseTree:
    """Make a tree of the root, the text and the kind of each phrase; nodes 0 to ``roots`` - 1 are the roots."""
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
    """Return which characters start a phrase, and where others stand among the first that every phrase has."""
    sure = max(1, min([8, *map(len, phrases)]))
    places = np.zeros(129, np.uint8)
    for phrase in phrases:
        for place, lower in enumerate(phrase[:sure]):
            for point in _spellings(lower):
                places[min(point, 128)] |= 1 << place
    return places & 1 != 0, sure, places


def lowered(phrase: str) -> str:
    """Return each character in lower case by itself; the few whose lower case is two characters stay as they are."""
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in phrase)


def _spellings(lower: str) -> list[int]:
    return [*_capitals().get(lower, []), ord(lower)]


@lru_cache(maxsize=1)
def _capitals() -> dict[str, list[int]]:
    """Return the characters that have a given lower case, but for itself: K and the Kelvin sign for k.

    All characters are lowered as one string, as each by itself takes ten times as long. Dotted I, the one whose lower
    case has two, is left out; a sigma that another letter follows is not a final one.
    """
    points = np.arange(0x110000, dtype="<u4")
    points = points[((points < 0xD800) | (points >= 0xE000)) & (points != ord("\u0130"))]
    lower = np.frombuffer(points.tobytes().decode("utf-32-le").lower().encode("utf-32-le"), "<u4")
    found: dict[str, list[int]] = {}
    for at in np.flatnonzero(points != lower).tolist():
        found.setdefault(chr(lower[at]), []).append(int(points[at]))
    return found


OTHERS = np.uint32(128)
"""In place of a character that is not ASCII, in what tells whether a phrase begins with one."""


@compiled
def _key(node: int, point: np.uint32) -> np.uint64:
    return (_U(node) << _U(21) | _U(point)) + _U(1)


@compiled
def step(tree: PhraseTree, node: int, point: np.uint32) -> int:
    """Return the node that a character leads to, -1 where there is none."""
    key, mask = _key(node, point), len(tree.keys) - 1
    at = mixed(key) & mask
    while tree.keys[at] != 0:
        if tree.keys[at] == key:
            return tree.children[at]
        at = (at + 1) & mask
    return -1


@compiled
def enter(tree: PhraseTree, nodes: Any, points: Any, children: Any) -> None:
    """Enter all edges of a tree into its table of zeros."""
    mask = len(tree.keys) - 1
    for edge in range(len(nodes)):
        key = _key(nodes[edge], points[edge])
        at = mixed(key) & mask
        while tree.keys[at] != 0:
            at = (at + 1) & mask
        tree.keys[at] = key
        tree.children[at] = children[edge]
