"""N-grams of words and tokens: which there are, and their hashes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.dedup import ngram_hash
from longcrawl.dedup.ngrams import unique_ngrams


def test_ids_beyond_16_bits_hash_as_any_other():
    from longcrawl.dedup.ngrams import hash_tokens

    ids = [0, 1, 65_535, 65_536, (1 << 32) - 1]
    units = np.empty(5, np.uint64)
    hash_tokens(np.array(ids, np.uint32), units)
    assert [ngram_hash([each]) for each in ids] == [ngram_hash_of_unit(int(unit)) for unit in units]
    narrow = np.empty(3, np.uint64)
    hash_tokens(np.array(ids[:3], np.uint16), narrow)
    assert narrow.tolist() == units[:3].tolist()


def ngram_hash_of_unit(unit):
    """Return the hash of the one-gram whose unit has this hash: its upper 32 bits after mixing once more."""
    from longcrawl.dedup import ngrams

    return ngrams._mix(unit) >> 32


def test_an_ngram_whose_hash_is_0_counts_once():
    """0 marks an empty place in the table of hashes."""
    from longcrawl.dedup import ngrams
    from longcrawl.dedup.ngrams import Permutations, make_scratch, sketch

    def unmixed(number):
        number ^= number >> 33
        for factor in (ngrams.MIX_2, ngrams.MIX_1):
            number = number * pow(factor, -1, 1 << 64) % (1 << 64)
            number ^= number >> 33
        return number

    hashes = [5 << 32, 3, 4, 5 << 32, 3, 9 << 32, 0]
    assert [ngrams._mix(unmixed(each)) for each in hashes] == hashes
    units = np.array([unmixed(each) for each in hashes], np.uint64)
    one = Permutations(np.ones(1, np.uint32), np.zeros(1, np.uint32))
    counts, keys, samples = np.empty(1, np.int32), np.empty((1, 1), np.uint64), np.empty((1, 1), np.uint8)
    kept, ends = np.empty(8, np.uint32), np.empty(2, np.int64)
    sketch(units, np.array([0, 7]), 1, 1, one, make_scratch(7, 1), counts, keys, samples, kept, ends)
    assert counts[0] == 3
    assert kept[: ends[1]].tolist() == [0, 5, 9]


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 6))
def test_ngrams_are_unique_and_in_order(units, n):
    grams = unique_ngrams(units, n)
    windows = [tuple(units[at : at + n]) for at in range(len(units) - n + 1)] or ([tuple(units)] if units else [])
    assert grams == [gram for at, gram in enumerate(windows) if gram not in windows[:at]]
