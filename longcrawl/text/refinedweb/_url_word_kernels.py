"""Words in URLs: as parts of what is left of a URL without its marks, and as whole words."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled, inlined
from longcrawl.kernels.lookup import find_word
from longcrawl.kernels.word_lists import Vocabulary
from longcrawl.text.refinedweb._url_kernels import find_authority, next_byte
from longcrawl.text.refinedweb._url_words import BREAK, STRICT, Automaton, WordLists

Bytes = npt.NDArray[np.uint8]

_NOUGHT, _LOWER_A, _PERCENT, _BEYOND = ord("0"), ord("a"), ord("%"), 128


@compiled
def _next_point(data: Bytes, at: int, stop: int) -> Any:
    """Read one character, escaped or not: its code point, 0 in bytes that are not UTF-8, and where the next begins."""
    first, at = next_byte(data, at, stop)
    if first < _BEYOND:
        return first, at
    more = 1 if first >> 5 == 6 else 2 if first >> 4 == 14 else 3 if first >> 3 == 30 else 0
    point, place = first & (0x3F >> more), at
    for _ in range(more):
        if place >= stop:
            return 0, at
        byte, place = next_byte(data, place, stop)
        if byte >> 6 != 2:
            return 0, at
        point = point << 6 | (byte & 0x3F)
    # An overlong form, such as C1 B0 for p, is not UTF-8.
    least = 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
    return (point, place) if more and least <= point < 0x110000 else (0, at)


@compiled
def _read_points(data: Bytes, start: int, stop: int, folded: Any, points: Any) -> int:
    """Write the characters of a URL in lower case, 0 or BREAK for those that are of no word; return how many."""
    count, at = 0, start
    while at < stop:
        byte = data[at]
        if byte < _BEYOND and byte != _PERCENT:
            points[count] = folded[byte]
            at += 1
        else:
            point, at = _next_point(data, at, stop)
            points[count] = folded[point]
        count += 1
    return count


@inlined
def _symbol(point: int) -> int:
    """Return the place of a digit or a letter in the automaton's alphabet, -1 for another character."""
    if point >= _BEYOND or point <= BREAK:
        return -1
    return point - _LOWER_A + 10 if point >= _LOWER_A else point - _NOUGHT


@compiled
def _find_parts(points: Any, count: int, strict: Automaton, seen: Any) -> int:
    """Mark the words that digits and letters a-z spell, whatever but BREAK stands between them, and count them."""
    state, found = 0, 0
    for at in range(count):
        if points[at] == BREAK:
            state = 0
        symbol = _symbol(np.int64(points[at]))
        if symbol < 0:
            continue
        state = strict.steps[state, symbol]
        ending = state
        while ending != 0:
            word = strict.words[ending]
            if word >= 0 and not seen[word]:
                seen[word] = True
                found += 1
            ending = strict.shorter[ending]
    return found


@compiled
def _find_words(points: Any, count: int, whole: Vocabulary, kinds: Any, seen: Any, counts: Any) -> None:
    """Mark the whole words that are listed, and count the different ones of each kind."""
    at = 0
    while at < count:
        start = at
        while at < count and points[at] > BREAK:
            at += 1
        if at > start:
            word = find_word(whole, 0, points, start, at)
            if word >= 0 and not seen[word]:
                seen[word] = True
                counts[kinds[word]] += 1
        at += 1


@compiled
def match_words(
    data: Bytes, offsets: Any, folded: Any, lists: WordLists, points: Any, parts: Any, words: Any, counts: Any
) -> None:
    """Count the different words of every URL.

    Args:
        data: bytes of the URLs.
        offsets: where each starts and the last ends.
        folded: lower case of every code point, 0 for those of no word, BREAK for those that no strict word spans.
        lists: what is looked for.
        points: as long as the longest URL.
        parts: bool, (URLs or 1, strict words): gets which were found; with one row those of the last URL.
        words: bool, (URLs or 1, hard and soft words): the same of these.
        counts: of zeros, (URLs, 3): STRICT, HARD and SOFT.
    """
    strict, whole, kinds = lists.automaton, lists.vocabulary, lists.kinds
    for row in range(len(offsets) - 1):
        _, _, _, first, stop = find_authority(data, offsets[row], offsets[row + 1])
        count = _read_points(data, first, stop, folded, points)
        line = min(row, len(parts) - 1)
        parts[line, :] = False
        words[line, :] = False
        counts[row, STRICT] = _find_parts(points, count, strict, parts[line])
        _find_words(points, count, whole, kinds, words[line], counts[row])
