"""Words that return after long gaps, measured on hashes of words, as numba kernels."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.dedup import ngrams
from longcrawl.kernels.compiling import allocating, compiled, forced_inline

Wide = npt.NDArray[np.uint64]

_U = np.uint64
GRAM = 5
"""Words of a passage that counts as repeated verbatim."""
COMMON, FREQUENT = 0.2, 0.1
"""Words in a larger share of pieces say nothing about far context, and about interleaving."""
LAST = 8
"""Earlier occurrences of a word whose gaps are counted."""
LAG = 4
"""Bins from a gap to twice the gap."""
FIRST = 5
"""Windows that are far from the first window that is measured."""
FEWEST = 100
"""Gaps in the bins that are compared."""
_FACTOR = _U(ngrams.NGRAM_FACTOR)


@forced_inline
def _slot(keys: Wide, key: np.uint64) -> int:
    """Return where a key is, or belongs, in a table of a power of two of slots; 0 is no key."""
    last = _U(len(keys) - 1)
    at = key & last  # a hash already
    while keys[at] != _U(0) and keys[at] != key:
        at = (at + _U(1)) & last
    return np.int64(at)


@compiled
def fill_table(words: Wide, counts: Any, keys: Wide, values: Any) -> None:
    """Enter words and their counts, uint32, into a table of twice as many slots or more."""
    for number in range(len(words)):
        key = words[number] | _U(words[number] == _U(0))
        at = _slot(keys, key)
        keys[at], values[at] = key, counts[number]


@compiled
def _number_words(units: Wide, keys: Wide, numbers: Any, ids: Any, known: Wide, values: Any, counts: Any) -> int:
    """Number the distinct words of a document in the order in which they come, and look up the count of each."""
    count = 0
    for at in range(len(units)):
        key = units[at] | _U(units[at] == _U(0))
        slot = _slot(keys, key)
        if keys[slot] == _U(0):
            keys[slot], numbers[slot] = key, count
            found = _slot(known, key)
            counts[count] = values[found] if known[found] == key else 0
            count += 1
        ids[at] = numbers[slot]
    return count


@compiled
def _take_shares(ids: Any, times: int, size: int, pieces: int, words: int, last: Any, shares: Any) -> None:
    """Turn counts of pieces into shares of the pieces of other documents, a little more than 0 where none has a word.

    Args:
        ids: int32 [words], the number of each word.
        times: how often the document was counted.
        size: words of a piece.
        pieces: how many were counted.
        words: how many distinct ones there are.
        last: int32 [distinct words], memory.
        shares: float64 [distinct words], counts, then shares.
    """
    for word in range(words):
        last[word] = -1
    for at in range(len(ids) if times else 0):
        if last[ids[at]] != at // size:
            last[ids[at]] = at // size
            shares[ids[at]] -= times
    others = pieces - times * ((len(ids) + size - 1) // size)
    for word in range(words):
        shares[word] = (max(shares[word], 0.0) + 0.3) / (max(others, 0) + 1)


@compiled
def _mark_repeated(units: Wide, keys: Wide, repeated: Any) -> float:
    """Mark the words of passages that have come before in the document; return their share."""
    for at in range(len(units)):
        repeated[at] = False
    for start in range(len(units) - GRAM + 1):
        hashed = _U(0)
        for at in range(start, start + GRAM):
            hashed = hashed * _FACTOR + units[at]
        hashed |= _U(hashed == _U(0))
        slot = _slot(keys, hashed)
        if keys[slot] == hashed:
            for at in range(start, start + GRAM):
                repeated[at] = True
        keys[slot] = hashed
    marked = 0
    for at in range(len(units)):
        marked += repeated[at]
    return marked / len(units)


@allocating
def select_terms(
    units: Wide, bounds: Any, known: Wide, values: Any, pieces: int, common: float, least: float, norm: int,
    ends: Any, terms: Any, sizes: Any, keywords: Wide,
) -> None:  # fmt: skip
    """Write the words of each document that weigh most, (1 + log(count)) * -log(share), and a keyword.

    Args:
        units: uint64 [words], hashes of the words of all documents.
        bounds: int64 [documents + 1], where each starts.
        known: uint64 [slots], the words of statistics, see :func:`fill_table`; no other word is a term.
        values: uint32 [slots], how many pieces have each.
        pieces: how many there are.
        common: words of a larger share are no terms.
        least: the keyword is the heaviest word of at least this share, or else the most common of the terms.
        norm: the length of the weights of a document.
        ends: int64 [documents + 1], written: where the terms of each end.
        terms: uint32 [documents * most], written: the upper halves of the hashes, ascending in each document.
        sizes: uint16 [documents * most], written: the weight of each, 1 or more.
        keywords: uint64 [documents], written: the hash of the keyword, 0 for none.
    """
    most, longest = len(terms) // max(len(keywords), 1), 1
    for document in range(len(keywords)):
        longest = max(longest, bounds[document + 1] - bounds[document])
    slots = 16
    while slots < 2 * longest:
        slots *= 2
    keys, numbers, ids = np.empty(slots, np.uint64), np.empty(slots, np.int32), np.empty(longest, np.int32)
    shares, counts, words = np.empty(longest), np.empty(longest, np.int64), np.empty(longest, np.uint64)
    best, weights = np.empty(most, np.int64), np.empty(most)
    ends[0] = 0
    for document in range(len(keywords)):
        start, stop = bounds[document], bounds[document + 1]
        used = 16
        while used < 2 * (stop - start):
            used *= 2
        keys[:used] = 0
        text = units[start:stop]
        distinct = _number_words(text, keys[:used], numbers, ids, known, values, shares)
        for word in range(distinct):
            shares[word] = (shares[word] + 0.3) / (pieces + 1) if shares[word] > 0.0 else 1.0
        counts[:distinct] = 0
        for at in range(len(text)):
            counts[ids[at]] += 1
            words[ids[at]] = text[at]
        kept = _choose_heaviest(distinct, counts, words, shares, common, best, weights)
        keywords[document] = _choose_keyword(best[:kept], words, shares, least)
        square = 0.0
        for at in range(kept):
            square += weights[at] * weights[at]
        first = ends[document]
        ends[document + 1] = first + kept
        for at in range(kept):
            term, place = np.uint32(words[best[at]] >> _U(32)), first + at
            while place > first and terms[place - 1] > term:
                terms[place], sizes[place] = terms[place - 1], sizes[place - 1]
                place -= 1
            terms[place] = term
            sizes[place] = max(np.int64(np.rint(weights[at] / np.sqrt(square) * norm)), 1)


@compiled
def _choose_heaviest(
    distinct: int, counts: Any, words: Wide, shares: Any, common: float, best: Any, weights: Any
) -> int:
    """Write the numbers and weights of the words that weigh most, the heaviest first; return how many there are."""
    kept, most = 0, len(best)
    for word in range(distinct):
        if shares[word] > common:
            continue
        weight = (1.0 + np.log(np.float64(counts[word]))) * -np.log(shares[word])
        at = min(kept, most - 1)
        if kept == most and not _weighs_more(weight, words[word], weights[at], words[best[at]]):
            continue
        kept = min(kept + 1, most)
        while at > 0 and _weighs_more(weight, words[word], weights[at - 1], words[best[at - 1]]):
            best[at], weights[at] = best[at - 1], weights[at - 1]
            at -= 1
        best[at], weights[at] = word, weight
    return kept


@compiled
def _choose_keyword(best: Any, words: Wide, shares: Any, least: float) -> np.uint64:
    """Return the first word of at least a share, or the most common one, 0 for none."""
    found, highest = _U(0), 0.0
    for word in best:
        if shares[word] > highest and highest < least:
            found, highest = words[word], shares[word]
    return found


@compiled
def _weighs_more(weight: float, word: np.uint64, other: float, than: np.uint64) -> bool:
    """Return whether a word comes before another one: by weight, then by hash."""
    return weight > other or (weight == other and word < than)


@compiled
def _far_words(
    ids: Any,
    repeated: Any,
    weights: Any,
    absent: Any,
    words: int,
    window: int,
    near: int,
    length: float,
    seen: Any,
    stamp: Any,
) -> float:
    """Return the share of rare words, by weight, that have come far before, above what chance explains.

    Args:
        ids: int32 [words], the number of each word.
        repeated: bool [words], words of passages that have come before.
        weights: float64 [distinct words], written: -log(p) of each that is rare, 0 of others.
        absent: float64 [distinct words], the share of pieces that have each; then the logarithm of the share without.
        words: how many distinct ones there are.
        window: words of a window.
        near: windows before it that are near.
        length: mean words of a piece.
        seen: int32 [distinct words], memory.
        stamp: int32 [distinct words], memory.
    """
    for word in range(words):
        seen[word], stamp[word] = -1, -1
        share = absent[word]
        weights[word] = -np.log(share) if share < COMMON else 0.0
        absent[word] = np.log1p(-share)
    found = every = 0.0
    for number in range(len(ids) // window):
        first = number * window
        pieces = (number - near) * window / length
        if number >= near + FIRST:
            for at in range(first, first + window):
                word = ids[at]
                if repeated[at] or stamp[word] == number:
                    continue
                stamp[word] = number
                if weights[word] > 0.0 and seen[word] < number - near:
                    chance = 1.0 - np.exp(pieces * absent[word])
                    found += weights[word] * ((seen[word] >= 0) - chance)
                    every += weights[word]
        for at in range(first, first + window):
            seen[ids[at]] = number
    return found / every if every > 0.0 else 0.0


@compiled
def _count_gaps(
    ids: Any, repeated: Any, shares: Any, words: int, bins: Any, rings: Any, filled: Any, gaps: Any
) -> None:
    """Count by their bin the gaps between a rare word and its last occurrences before it."""
    for word in range(words):
        filled[word] = 0
    for number in range(len(gaps)):
        gaps[number] = 0
    for at in range(len(ids)):
        word = ids[at]
        if repeated[at] or shares[word] > FREQUENT:
            continue
        for place in range(min(filled[word], LAST)):
            gap = at - rings[word, place]
            if gap < len(bins) and bins[gap] >= 0:
                gaps[bins[gap]] += 1
        rings[word, filled[word] % LAST] = at
        filled[word] += 1


@compiled
def _interleaving(gaps: Any, widths: Any, middles: Any, words: int, rates: Any) -> float:
    """Return how much likelier a word returns after twice a gap than after the gap, as a logarithm; 0 at least.

    In one text words return ever more seldom. In two that alternate they return after the other one's turn.
    """
    last = 0
    while last < len(gaps) and middles[last] <= 0.6 * words:
        rates[last] = gaps[last] / widths[last] / max(words - middles[last], 1.0)
        last += 1
    most = 0.0
    for first in range(LAG + 2, last - LAG - 1):
        counted = 0
        for number in range(first, first + LAG + 1):
            counted += gaps[number]
        here = rates[first - 1] + rates[first] + rates[first + 1]
        there = rates[first + LAG - 1] + rates[first + LAG] + rates[first + LAG + 1]
        if counted >= FEWEST and here > 0.0 and there > 0.0:
            most = max(most, np.log(there / here))
    return most


@allocating
def measure(
    units: Wide, bounds: Any, times: Any, known: Wide, values: Any, pieces: int, length: float, size: int,
    window: int, near: int, bins: Any, widths: Any, middles: Any, out: Any,
) -> None:  # fmt: skip
    """Write far words, interleaving and repetition of each document.

    Args:
        units: uint64 [words], hashes of the words of all documents.
        bounds: int64 [documents + 1], where each starts.
        times: int64 [documents], how often each is among those that the statistics were learnt from.
        known: uint64 [slots], the words of statistics, see :func:`fill_table`.
        values: uint32 [slots], how many pieces have each.
        pieces: how many there are.
        length: mean words of a piece.
        size: words of a piece, at most.
        window: words of a window.
        near: windows before it that are near.
        bins: int8 [longest gap + 1], the bin of each gap, -1 of none.
        widths: float64 [bins].
        middles: float64 [bins].
        out: float64 [documents, 3], written.
    """
    longest = 1
    for document in range(len(bounds) - 1):
        longest = max(longest, bounds[document + 1] - bounds[document])
    slots = 16
    while slots < 2 * longest:
        slots *= 2
    keys, numbers = np.empty(slots, np.uint64), np.empty(slots, np.int32)
    ids, repeated = np.empty(longest, np.int32), np.empty(longest, np.bool_)
    weights = np.empty(longest, np.float64)
    shares, seen, stamp = np.empty(longest, np.float64), np.empty(longest, np.int32), np.empty(longest, np.int32)
    rings, gaps, rates = np.empty((longest, LAST), np.int32), np.empty(len(widths), np.int64), np.empty(len(widths))
    for document in range(len(bounds) - 1):
        start, stop = bounds[document], bounds[document + 1]
        out[document, 0] = out[document, 1] = out[document, 2] = 0.0
        if start == stop:
            continue
        used = 16
        while used < 2 * (stop - start):
            used *= 2
        text = units[start:stop]
        keys[:used] = 0
        words = _number_words(text, keys[:used], numbers, ids, known, values, shares)
        _take_shares(ids[: stop - start], times[document], size, pieces, words, seen, shares)
        keys[:used] = 0
        out[document, 2] = _mark_repeated(text, keys[:used], repeated)
        mine, marked = ids[: stop - start], repeated[: stop - start]
        _count_gaps(mine, marked, shares, words, bins, rings, stamp, gaps)
        out[document, 1] = _interleaving(gaps, widths, middles, stop - start, rates)
        out[document, 0] = _far_words(mine, marked, weights, shares, words, window, near, length, seen, stamp)
