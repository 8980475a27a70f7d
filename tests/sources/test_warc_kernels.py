"""SHA-1 of many texts, side by side."""

import hashlib
import importlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

kernels = importlib.import_module("longcrawl.sources.warc._kernels")
SIZES = [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 3_000]


def by_hashlib(texts):
    return [hashlib.sha1(text).digest() for text in texts]  # noqa: S324  # the digest of WARC


def hashed(texts):
    joined = np.frombuffer(b"-" + b"".join(texts), np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    return [bytes(row) for row in kernels.hash_texts(joined, 1 + np.cumsum(lengths) - lengths, lengths)]


@given(st.lists(st.tuples(st.one_of(st.sampled_from(SIZES), st.integers(0, 300)), st.binary(max_size=3)), max_size=40))
def test_texts_hashed_side_by_side_have_the_digests_of_hashlib(made):
    texts = [(seed * size + bytes(size))[:size] for size, seed in made]
    given_bytes = kernels.MANY_BYTES
    try:
        kernels.MANY_BYTES = 0
        assert hashed(texts) == by_hashlib(texts)
    finally:
        kernels.MANY_BYTES = given_bytes


def test_many_texts_and_a_long_one_are_hashed():
    texts = [bytes([number]) * (20_000 + number) for number in range(50)] + [b"x" * 500_000]
    assert hashed(texts) == by_hashlib(texts)
