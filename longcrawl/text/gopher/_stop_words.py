"""Stop words of several languages in the form in which kernels look words up by their bytes."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled, inlined, mixed
from longcrawl.text.gopher._page_kernels import word_key

Spelled = Literal["any case", "as listed"]

_U = np.uint64
_GOLDEN = _U(0x9E3779B97F4A7C15)


class StopWords(NamedTuple):
    """Spellings of stop words, by open addressing."""

    table: npt.NDArray[np.int32]
    """Shape (a power of two,): number of a spelling + 1, 0 where empty."""
    languages: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    begins: npt.NDArray[np.int64]
    """Shape (spellings + 1,): where each starts in ``spelled``."""
    spelled: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.int32]
    """Which word of its language's list a spelling is of."""
    longest: int
    """Bytes of the longest spelling."""
    most: int
    """Words of the longest list."""


def make_stop_words(lists: Sequence[Sequence[str]], spelled: Spelled = "any case") -> StopWords:
    """Make stop words of one list per language; in any case means lower case, capitalised and capitals as well."""
    spellings: dict[tuple[int, bytes], int] = {}
    for language, words in enumerate(lists):
        for number, word in enumerate(words):
            cases = (word.lower(), word.capitalize(), word.upper()) if spelled == "any case" else ()
            for spelling in (word, *cases):
                spellings.setdefault((language, spelling.encode()), number)
    chosen = sorted(spellings)
    begins = np.cumsum([0, *(len(word) for _, word in chosen)], dtype=np.int64)
    made = StopWords(
        np.zeros(1 << (4 * len(chosen)).bit_length(), np.int32),
        np.array([language for language, _ in chosen], np.int32),
        np.zeros(len(chosen), np.uint64),
        begins,
        np.frombuffer(b"".join(word for _, word in chosen) or b"\0", np.uint8),
        np.array([spellings[each] for each in chosen], np.int32),
        max((len(word) for _, word in chosen), default=0),
        max(map(len, lists), default=0),
    )
    _fill(made)
    return made


@inlined
def _place(stop_words: StopWords, language: int, key: np.uint64, length: int) -> int:
    return mixed((key ^ _U(language) << _U(56)) * _GOLDEN ^ _U(length)) & (len(stop_words.table) - 1)


@compiled
def _fill(stop_words: StopWords) -> None:
    for spelling in range(len(stop_words.languages)):
        begin, end = stop_words.begins[spelling], stop_words.begins[spelling + 1]
        stop_words.keys[spelling] = word_key(stop_words.spelled, begin, end)
        at = _place(stop_words, stop_words.languages[spelling], stop_words.keys[spelling], end - begin)
        while stop_words.table[at] != 0:
            at = (at + 1) & (len(stop_words.table) - 1)
        stop_words.table[at] = spelling + 1


@inlined
def find_stop_word(stop_words: StopWords, language: int, data: Any, begin: int, length: int, key: np.uint64) -> int:
    """Return which word of its language's list ``data[begin : begin + length]`` is, -1 if none."""
    at = _place(stop_words, language, key, length)
    while stop_words.table[at] != 0:
        spelling = stop_words.table[at] - 1
        first = stop_words.begins[spelling]
        if (
            stop_words.keys[spelling] == key
            and stop_words.languages[spelling] == language
            and stop_words.begins[spelling + 1] - first == length
        ):
            same = 0
            while same < length and stop_words.spelled[first + same] == data[begin + same]:
                same += 1
            if same == length:
                return stop_words.numbers[spelling]
        at = (at + 1) & (len(stop_words.table) - 1)
    return -1
