"""Plans of samples out of pieces, against plain loops: which pieces are one text, and how plans are put together."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.tokens.plan import Plan, document_parts, join_plans, joined_pieces, plan_of_pieces

SAMPLES = st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=5), max_size=5)


def arrays_of(samples):
    """Return bounds, documents and sizes of samples of (document, size)."""
    pieces = [piece for sample in samples for piece in sample]
    bounds = np.cumsum([0, *map(len, samples)])
    documents, sizes = (np.array([piece[side] for piece in pieces], np.int64) for side in (0, 1))
    return bounds, documents, sizes


@given(SAMPLES)
def test_a_sample_with_a_document_twice_is_one_text(samples):
    bounds, documents, sizes = arrays_of(samples)
    expected, parts = [], Counter()
    for number, sample in enumerate(samples):
        names = [document for document, _ in sample]
        twice = len(set(names)) < len(names)
        expected += [twice and place > 0 for place in range(len(sample))]
        for document, size in sample:
            parts[number, document] += size
    assert joined_pieces(bounds, documents).tolist() == expected
    found = document_parts(bounds, documents, sizes)
    together = sorted((document, size) for (_, document), size in parts.items())
    assert sorted(zip(*(each.tolist() for each in found), strict=True)) == together


def plan_in_any_order(samples, seed):
    """Return a plan of samples whose pieces were given in another order."""
    _, documents, sizes = arrays_of(samples)
    numbers = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples])
    starts = np.arange(len(sizes)) * 10
    order = np.random.default_rng(seed).permutation(len(samples))[numbers].argsort(kind="stable")
    pieces = documents[order], starts[order], sizes[order]
    return plan_of_pieces(np.full(6, 100), numbers[order], np.full(len(samples), 45), pieces)


@given(SAMPLES, st.integers(0, 5))
def test_a_plan_has_the_pieces_of_each_sample_in_their_order(samples, seed):
    plan = plan_in_any_order(samples, seed)
    assert [
        list(zip(plan.documents[first:stop].tolist(), plan.sizes[first:stop].tolist(), strict=True))
        for first, stop in zip(plan.bounds[:-1].tolist(), plan.bounds[1:].tolist(), strict=True)
    ] == samples
    assert plan.tokens.tolist() == [sum(size for _, size in sample) for sample in samples]
    assert plan.samples["padding"].to_pylist() == [45 - sum(size for _, size in sample) for sample in samples]


@given(SAMPLES, SAMPLES, st.booleans())
def test_documents_of_joined_plans_count_on_unless_they_are_the_same(one, other, same):
    joined = join_plans([plan_in_any_order(one, 0), plan_in_any_order(other, 1)], of_same_documents=same)
    assert isinstance(joined, Plan)
    assert (len(joined), len(joined.lengths)) == (len(one) + len(other), 6 if same else 12)
    expected = [document for sample in one for document, _ in sample]
    expected += [document + (0 if same else 6) for sample in other for document, _ in sample]
    assert joined.documents.tolist() == expected
    assert joined.bounds.tolist() == np.cumsum([0, *map(len, [*one, *other])]).tolist()


def test_shuffled_samples_stay_in_their_bucket():
    plan = plan_in_any_order([[(number % 6, 1)] for number in range(40)], 0)
    shuffled = plan.in_buckets(shuffled_by=3)
    assert sorted(shuffled.starts.tolist()) == plan.starts.tolist()
    assert shuffled.starts.tolist() != plan.starts.tolist()
    assert shuffled.starts.tolist() == plan.in_buckets(shuffled_by=3).starts.tolist()
    assert plan.in_buckets().starts.tolist() == plan.starts.tolist()
