"""Neighbours by the terms that documents have in common."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.kernels import term_vectors
from longcrawl.kernels.texts import read_only


@given(st.integers(0, 1 << 30))
def test_only_documents_of_like_weights_are_compared_where_very_many_have_a_term(seed):
    """Beyond the window a neighbour may be missed, but what is found has its whole product."""
    chance = np.random.default_rng(seed)
    weights = chance.integers(1, 1 << 14, 300).astype(np.uint16)
    terms = read_only(np.ones(300, np.uint32))
    vectors = term_vectors.TermVectors(np.arange(301), terms, read_only(weights))  # as the stage has them
    found, scores = np.empty((300, 4), np.int32), np.empty((300, 4), np.int64)
    nothing = read_only(np.zeros((300, 0), np.int16)), read_only(np.zeros((300, 0), np.uint8))
    term_vectors.find_neighbours(vectors, term_vectors.make_postings(vectors), *nothing, 1, found, scores)
    places = np.argsort(np.argsort(-weights.astype(int), kind="stable"))
    assert (np.abs(places[found] - places[:, None]) <= term_vectors.WINDOW).all()
    assert (scores == weights[found].astype(np.int64) * weights[:, None]).all()
