"""Words by their numbers, and how much of a document repeated n-grams cover, against dictionaries."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.kernels.ngrams import HASHED, make_repeats, number_words, repetitions

WORDS = ["a", "bc", "d" * 9, "d" * 8 + "e", "fgh"]


def naive_repetitions(words):
    """Return the characters in the most frequent 2- to 4-gram, the first of those, and in repeated 5- to 10-grams."""
    found = []
    for n in range(2, 11):
        grams = [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
        counts = Counter(grams)
        top = max(counts, key=lambda gram: counts[gram], default=())
        covered = {at + place for at, gram in enumerate(grams) if counts[gram] > 1 for place in range(n)}
        if not covered:
            break
        found.append(len("".join(top)) * counts[top] if n <= 4 else sum(len(words[at]) for at in covered))
    return found + [0] * (9 - len(found))


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40), st.booleans())
def test_repetitions_are_those_of_dictionaries(words, collide):
    """If all keys are one hash, words are compared by their letters."""
    letters = np.frombuffer("".join(words).encode(), np.uint8)
    starts = np.concatenate([[0], np.cumsum([len(word) for word in words])])
    keys = np.array([int(HASHED) + (0 if collide else WORDS.index(word)) for word in words], np.uint64)
    repeats = make_repeats(len(words))
    assert number_words(letters, starts[:-1], starts[1:], keys, len(words), repeats) == len(set(words))
    order = list(dict.fromkeys(words))
    assert repeats.ids[: len(words)].tolist() == [order.index(word) for word in words]
    assert repeats.counts[: len(order)].tolist() == [words.count(word) for word in order]
    characters = np.zeros(9)
    repetitions(repeats, starts, len(words), characters)
    assert characters.tolist() == naive_repetitions(words)
