"""Words by which URLs are scored: shipped ones, and those of a user's own file."""

import re
import unicodedata
from collections import deque
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.kernels.code_points import CODE_POINTS, cached_arrays
from longcrawl.kernels.word_lists import Vocabulary, make_vocabulary
from longcrawl.storage.files import reread_when_changed
from longcrawl.text.presets import Presets

STRICT, HARD, SOFT = range(3)
"""The kinds of words, in the order in which they are counted."""

_LISTS = ("strict", "hard", "soft")
_FORM = "it should be YAML like {strict: [xvideos], hard: [porn], soft: [sex, webcam]}"
URL_WORDS = Presets("longcrawl.text.presets.urls", "words for URLs", _FORM)
BREAK = 1
"""What stands in ``load_folded`` for characters between the parts of a URL: marks and white space."""
_BETWEEN_PARTS = frozenset("/\\?&=#+")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


StrictIn = Literal["parts", "url"]
"""Where strict words are looked for: in each part of a URL, or across all of them."""


class Automaton(NamedTuple):
    """Words of a-z and 0-9 as the states of Aho and Corasick's automaton; state 0 is the beginning."""

    steps: npt.NDArray[np.int32]
    """Shape (states, 36): where a digit or a letter leads."""
    words: npt.NDArray[np.int32]
    """Shape (states,): the number of the word that a state spells, -1 for none."""
    shorter: npt.NDArray[np.int32]
    """Shape (states,): the state of the longest word that ends here and is shorter, 0 for none."""


class WordLists(NamedTuple):
    """Words of three lists, as kernels look for them."""

    automaton: Automaton
    """The strict words, looked for inside of others."""
    vocabulary: Vocabulary
    """The hard and the soft words."""
    kinds: npt.NDArray[np.int64]
    """Shape (words of the vocabulary,): ``HARD`` or ``SOFT``."""


class UrlWords(NamedTuple):
    """Words of three lists, by their numbers for the kernels."""

    strict: tuple[str, ...]
    whole: tuple[str, ...]
    lists: WordLists


@reread_when_changed(8)
def read_url_words(name: str) -> UrlWords:
    """Read words by the name of shipped ones or by the path of a YAML file.

    Raises:
        StageError: there is no such file, it is not of the form of the shipped one, or a word of it can never be found.
    """
    lists = _read(name)
    strict = sorted({_part(word, name) for word in lists["strict"]})
    hard = {_word(word, "hard", name) for word in lists["hard"]}
    soft = {_word(word, "soft", name) for word in lists["soft"]}
    if hard & soft:
        raise StageError(f"{name} has {min(hard & soft)!r} among the hard and the soft words; keep it in one list")
    whole = sorted(hard | soft)
    kinds = np.array([HARD if word in hard else SOFT for word in whole], np.int64)
    vocabulary = make_vocabulary((0, word) for word in whole)
    return UrlWords(tuple(strict), tuple(whole), WordLists(_make_automaton(strict), vocabulary, kinds))


@lru_cache(maxsize=2)
def load_folded(strict_in: StrictIn = "parts") -> npt.NDArray[np.uint32]:
    """Return the lower case of every code point that a word may have: letters, digits and marks.

    Others are 0, and ``BREAK`` where strict words end: between parts of a URL, unless they are looked for in all of it.
    """
    folded = cached_arrays("url-2", lambda: {"folded": _fold()})["folded"]
    return folded if strict_in == "parts" else np.where(folded == BREAK, 0, folded).astype(np.uint32)


def _fold() -> npt.NDArray[np.uint32]:
    return np.array([_folded(chr(point)) for point in range(CODE_POINTS)], np.uint32)


def _folded(character: str) -> int:
    if not character.isalnum() and unicodedata.category(character)[0] != "M":
        return BREAK if character in _BETWEEN_PARTS or character.isspace() else 0
    # Only the capital dotted I becomes two characters: the i and a mark.
    return ord(character.lower()[0])


def _read(name: str) -> dict[str, list[str]]:
    found = URL_WORDS.read(name)
    if not isinstance(found, dict) or not found:
        raise StageError(f"{name} holds no words; {_FORM}")
    for kind, words in found.items():
        if kind not in _LISTS:
            raise StageError(f"{name} has the list {kind!r}; known: {', '.join(_LISTS)}")
        for word in words if isinstance(words, list) else [words]:
            if not isinstance(word, str) or not isinstance(words, list):
                raise StageError(f"{name} has {word!r} among the {kind} words, which is not a list of texts; {_FORM}")
    return {kind: found.get(kind, []) for kind in _LISTS}


def _part(word: str, name: str) -> str:
    part = re.sub(r"[\s._-]", "", word.lower())
    if not re.fullmatch("[a-z0-9]{3,}", part):
        raise StageError(
            f"{name} has the strict word {word!r}: these are looked for among a-z and 0-9 alone, and have three of "
            "them at least; put it among the hard words"
        )
    return part


def _word(word: str, kind: str, name: str) -> str:
    folded = load_folded()
    spelled = "".join(chr(folded[ord(letter)]) for letter in word.strip())
    if not spelled or min(spelled) <= chr(BREAK):
        raise StageError(
            f"{name} has the {kind} word {word!r}, which is not a single word of letters and digits; "
            "a URL's words never have marks or spaces inside"
        )
    return spelled


def _make_automaton(words: list[str]) -> Automaton:
    steps: list[list[int]] = [[0] * len(_ALPHABET)]
    spelled = [-1]
    for number, word in enumerate(words):
        state = 0
        for letter in word:
            place = _ALPHABET.index(letter)
            if not steps[state][place]:
                steps[state][place] = len(steps)
                steps.append([0] * len(_ALPHABET))
                spelled.append(-1)
            state = steps[state][place]
        spelled[state] = number
    shorter = _complete(steps, spelled)
    return Automaton(np.array(steps, np.int32), np.array(spelled, np.int32), np.array(shorter, np.int32))


def _complete(steps: list[list[int]], spelled: list[int]) -> list[int]:
    """Lead every missing step to where the longest ending of what has been read leads; return the shorter words."""
    fallback, shorter = [0] * len(steps), [0] * len(steps)
    waiting = deque(state for state in steps[0] if state)
    while waiting:
        state = waiting.popleft()
        back = fallback[state]
        shorter[state] = back if spelled[back] >= 0 else shorter[back]
        for place, child in enumerate(steps[state]):
            if child:
                fallback[child] = steps[back][place]
                waiting.append(child)
            else:
                steps[state][place] = steps[back][place]
    return shorter
