"""Plans against Algorithm 1 spelled out, the baselines against theirs, and every token where it belongs."""

import itertools
from bisect import insort
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.tokens import (
    BestFit,
    Buckets,
    DatasetDecomposition,
    FirstFit,
    FixedLength,
    Interleaved,
    MultiBucket,
    Padded,
    Plan,
)

THRESHOLDS = st.sampled_from([0, 0.01, 0.05, 0.2, 0.5, 1])
CAPACITIES = st.sets(st.integers(1, 80), min_size=1, max_size=4).map(sorted)
LENGTHS = st.integers(1, 200).flatmap(lambda most: st.lists(st.integers(0, most), max_size=60))


def algorithm_1(lengths, capacities, threshold):
    """Return the samples of Algorithm 1, line by line: (capacity, [(document, start, length)], padding)."""
    turns = itertools.count()
    # The key sorts longest first; of equals what was cut last comes first, then the order given.
    left = [(-length, 0, document, 0) for document, length in enumerate(lengths) if length]
    left.sort()  # line 1

    def put_back(document, start, length):
        insort(left, (-length, -1 - next(turns), document, start))

    samples = []
    while left:  # line 2
        longest = -left[0][0]
        capacity = next((each for each in capacities if longest <= each), capacities[-1])  # line 3
        space, pieces = capacity, []
        for entry in list(left):  # line 4
            length, document, start = -entry[0], entry[2], entry[3]
            if length <= space:  # line 5
                pieces.append((document, start, length))  # line 6
                space -= length
                left.remove(entry)
            elif not pieces:  # line 7
                pieces.append((document, start, space))  # line 8
                left.remove(entry)
                put_back(document, start + space, length - space)  # line 9
                space = 0
                break
        padding = space  # line 12: the remaining space
        if left and space / capacity > threshold:  # line 13
            shortest = next(entry for entry in left if entry[0] == left[-1][0])
            left.remove(shortest)
            length, document, start = -shortest[0], shortest[2], shortest[3]
            pieces.append((document, start, space))  # line 14
            put_back(document, start + space, length - space)  # line 15
            padding = 0  # otherwise line 17
        samples.append((capacity, pieces, padding))  # line 19
    return samples


def samples_of(plan: Plan):
    """Spell a plan as the oracles do."""
    found = []
    for capacity, low, high in zip(plan.capacities.tolist(), plan.bounds, plan.bounds[1:], strict=False):
        pieces = [each[low:high].tolist() for each in (plan.documents, plan.starts, plan.sizes)]
        found.append((capacity, list(zip(*pieces, strict=True)), capacity - sum(pieces[2])))
    return found


def assert_every_token_once(plan: Plan, lengths) -> None:
    spans = [[] for _ in lengths]
    for document, start, size in zip(plan.documents, plan.starts, plan.sizes, strict=True):
        spans[document].append((int(start), int(start + size)))
    for length, found in zip(lengths, spans, strict=True):
        edges = [0, *itertools.chain(*sorted(found))]
        assert edges[1::2] == edges[:-1:2]
        assert edges[-1] == length
    assert (plan.tokens <= plan.capacities).all()
    assert (plan.sizes > 0).all()


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(LENGTHS, CAPACITIES, THRESHOLDS)
@example([], [4], 0)
@example([0, 0], [4], 0)
@example([12, 8, 4, 4], [4], 0)
def test_plans_are_those_of_the_algorithm_spelled_out(lengths, capacities, threshold):
    assert_as_spelled_out(lengths, capacities, threshold)


@pytest.mark.slow
def test_three_thousand_plans_more_are_those_of_the_algorithm():
    """The same for the price of a few hundred: hypothesis takes its time to make a list."""
    chance = np.random.default_rng(0)
    for _ in range(3000):
        lengths = chance.integers(0, chance.integers(2, 200), chance.integers(0, 60)).tolist()
        capacities = np.unique(chance.integers(1, 80, chance.integers(1, 5))).tolist()
        assert_as_spelled_out(lengths, capacities, chance.choice([0, 0.01, 0.05, 0.2, 0.5, 1]).item())


def assert_as_spelled_out(lengths, capacities, threshold):
    strategy = Buckets(capacities, threshold)
    plan = strategy.plan_pool(lengths)
    expected = algorithm_1(lengths, capacities, threshold)
    assert samples_of(plan) == expected
    assert_every_token_once(plan, lengths)
    planned = Buckets(capacities, threshold, order="planned").plan(lengths)
    assert samples_of(planned) == sorted(expected, key=lambda sample: sample[0])


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(
    st.lists(st.integers(0, 3_000_000), max_size=12),
    st.sets(st.integers(1, 900_000), min_size=1, max_size=3).map(sorted).filter(lambda sizes: sizes[-1] > 1000),
    THRESHOLDS,
)
def test_lengths_may_be_far_apart(lengths, capacities, threshold):
    assert samples_of(Buckets(capacities, threshold).plan_pool(lengths)) == algorithm_1(lengths, capacities, threshold)


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(LENGTHS, CAPACITIES, THRESHOLDS)
def test_exact_fill_loses_nothing_and_keeps_the_threshold(lengths, capacities, threshold):
    plan = Buckets(capacities, threshold, planner="exact-fill").plan_pool(lengths)
    assert_every_token_once(plan, lengths)
    padding = plan.capacities - plan.tokens
    assert (padding[:-1] / plan.capacities[:-1] <= threshold).all()
    for capacity, pieces, _ in samples_of(plan):
        assert capacity == next((each for each in capacities if pieces[0][2] <= each), capacities[-1])


def filled_in_order(left, capacity):
    """Return the pieces of a sample, the documents left and its gap."""
    (document, start, length), *others = left
    if length > capacity:
        return [(document, start, capacity)], [(document, start + capacity, length - capacity), *others], 0
    space, pieces, passed_over = capacity, [], []
    for at, entry in enumerate(left):
        if not space or len(passed_over) == 32:
            return pieces, passed_over + left[at:], space
        if entry[2] > space:
            passed_over.append(entry)
        else:
            pieces.append(entry)
            space -= entry[2]
    return pieces, passed_over, space


def in_order(lengths, capacities, threshold):
    """Return the samples of the planner "in-order", spelled out as those of ``algorithm_1`` are."""
    left = [(document, 0, length) for document, length in enumerate(lengths) if length]
    samples = []
    while left:
        large = [each for each in capacities if left[0][2] <= each] or capacities[-1:]
        tries = [filled_in_order(left, capacity) for capacity in large]
        shares = [space / capacity for capacity, (_, _, space) in zip(large, tries, strict=True)]
        best = next((number for number, share in enumerate(shares) if share <= threshold), shares.index(min(shares)))
        capacity, (pieces, left, space) = large[best], tries[best]
        if left and space / capacity > threshold:
            document, start, length = left.pop(0)
            pieces.append((document, start, space))
            left.insert(0, (document, start + space, length - space))
            space = 0
        samples.append((capacity, pieces, space))
    return samples


@settings(deadline=None)
@given(LENGTHS, CAPACITIES, THRESHOLDS)
@example([30] + [60] * 70 + [20], [50, 100], 0.5)
@example([1] * 70 + [99], [100], 1)
def test_plans_in_order_are_those_spelled_out(lengths, capacities, threshold):
    plan = Buckets(capacities, threshold, planner="in-order").plan_pool(lengths)
    assert samples_of(plan) == in_order(lengths, capacities, threshold)
    assert_every_token_once(plan, lengths)


def interleaved(samples, chunk):
    """Return samples with the longest piece of each in chunks, the others between them, spelled out."""
    made = []
    for capacity, stretch, padding in samples:
        pieces = stretch
        longest = max(range(len(pieces)), key=lambda place: (pieces[place][2], -place))
        document, begin, size = pieces[longest]
        others = [piece for place, piece in enumerate(pieces) if place != longest]
        chunks = -(-size // chunk)
        if chunks > 1 and others:
            # For every token of the others the gap that it is in if all were spread evenly, and in the middle of each.
            total, before, gaps = sum(piece[2] for piece in others), 0, [[] for _ in range(chunks - 1)]
            for piece in others:
                gaps[int(Fraction(2 * before + piece[2], 2 * total) * (chunks - 1))].append(piece)
                before += piece[2]
            edges = [number * size // chunks for number in range(chunks + 1)]
            pieces, first = [], 0
            for gap, stop in zip([*gaps, [None]], edges[1:], strict=True):
                if gap:
                    pieces += [(document, begin + first, stop - first), *filter(None, gap)]
                    first = stop
        made.append((capacity, pieces, padding))
    return made


@settings(deadline=None)
@given(LENGTHS, CAPACITIES.filter(lambda sizes: sizes[-1] > 1), THRESHOLDS, st.integers(1, 79))
@example([70, 3, 20, 2, 60, 1, 9], [100], 0.5, 7)
def test_interleaved_plans_are_those_spelled_out(lengths, capacities, threshold, chunk):
    chunk = 1 + (chunk - 1) % (capacities[-1] - 1)
    plan = Buckets(capacities, threshold, planner="interleaved", chunk_tokens=chunk).plan_pool(lengths)
    in_order = Buckets(capacities, threshold, planner="in-order").plan_pool(lengths)
    assert samples_of(plan) == interleaved(samples_of(in_order), chunk)
    assert_every_token_once(plan, lengths)
    joined, found = iter(plan.joined), lc.tokens.measure(plan)
    for _, pieces, _ in samples_of(plan):
        documents = [document for document, _, _ in pieces]
        several = len(set(documents)) < len(documents)
        assert [next(joined) for _ in pieces] == [several and bool(place) for place in range(len(pieces))]
    # No document of a sample is cut by what lies between its chunks.
    usual = lc.tokens.measure(in_order)
    assert replace(found, pieces=usual.pieces, label="") == usual


def test_a_plan_in_order_keeps_neighbours_and_pads_and_cuts_little():
    lengths = web_lengths(20_000)
    usual, kept = (Buckets(planner=planner).plan(lengths) for planner in ("algorithm-1", "in-order"))
    for plan, least, most in ((usual, 1_000, 1e9), (kept, 0, 60)):
        apart = np.abs(np.diff(plan.documents))[np.isin(np.arange(1, len(plan.documents)), plan.bounds, invert=True)]
        assert least < np.median(apart) < most
    measured = lc.tokens.measure(kept)
    assert measured.r_pad < 0.01
    assert measured.r_tru < measured.r_tru_floor + 0.001


@pytest.mark.parametrize(
    ("lengths", "first"),
    [([70, 20, 16, 14], [70, 16, 14]), ([70, 20, 15, 15], [70, 15, 15]), ([70, 20, 13, 9, 8], [70, 13, 9, 8])],
)
def test_exact_fill_closes_a_sample_with_two_or_three_that_fit(lengths, first):
    (_, pieces, padding), *_ = samples_of(Buckets([100], 1, planner="exact-fill").plan_pool(lengths))
    assert [size for _, _, size in pieces] == first
    assert padding == 0


def web_lengths(documents: int) -> np.ndarray:
    """Return lengths like those of web pages: most short, a few longer than any bucket."""
    chance = np.random.Generator(np.random.PCG64(0))
    return (32 + np.exp(chance.normal(5.8, 1.4, documents))).astype(np.int64)


def test_exact_fill_pads_less_at_the_same_truncation_on_lengths_like_those_of_a_crawl():
    usual, exact = (
        lc.tokens.measure(Buckets(padding_threshold=1, planner=planner).plan(web_lengths(50_000)))
        for planner in ("algorithm-1", "exact-fill")
    )
    assert exact.r_pad < usual.r_pad / 2
    assert exact.r_tru == usual.r_tru == usual.r_tru_floor


@pytest.mark.parametrize("planner", ["algorithm-1", "exact-fill"])
def test_pools_are_planned_apart_and_threads_change_nothing(planner):
    strategy = Buckets(pool_size=1000, planner=planner)
    lengths = web_lengths(3_500)
    plan = strategy.plan(lengths)
    assert_every_token_once(plan, lengths)
    assert strategy.plan(lengths, num_threads=3).pieces.equals(plan.pieces)
    assert [len(pool) for pool in strategy.pools(lengths)] == [1000, 1000, 1500]
    joined = strategy.join([strategy.plan_pool(pool) for pool in strategy.pools(lengths)])
    assert joined.pieces.equals(plan.pieces)
    assert joined.samples.equals(plan.samples)
    pool_of = np.minimum(plan.documents // 1000, 2)
    for low, high in itertools.pairwise(plan.bounds.tolist()):
        assert len(set(pool_of[low:high].tolist())) == 1


def test_samples_are_shuffled_within_their_bucket_by_the_seed():
    lengths = web_lengths(5_000)
    plans = {seed: samples_of(Buckets(seed=seed).plan(lengths)) for seed in (0, 1)}
    planned = samples_of(Buckets(order="planned").plan(lengths))
    assert plans[0] == samples_of(Buckets(seed=0).plan(lengths))
    assert plans[0] != plans[1]
    for shuffled in plans.values():
        assert [sample[0] for sample in shuffled] == sorted(sample[0] for sample in shuffled)
        assert sorted(shuffled) == sorted(planned)
    # As planned, samples of many short documents come last; shuffled, they are everywhere.
    small = [[len(pieces) for capacity, pieces, _ in each if capacity == 2048] for each in (planned, plans[0])]
    first, last = (np.array([np.mean(counts[:200]), np.mean(counts[-200:])]) for counts in small)
    assert first[1] > 5 * first[0]
    assert 0.6 < last[1] / last[0] < 1.6


def test_tables_say_where_every_piece_comes_from():
    plan = Buckets([4, 8], 0.05, order="planned").plan([20, 3])
    assert plan.samples.to_pylist() == [
        {"bucket": 4, "sample": 0, "first_piece": 0, "pieces": 1, "tokens": 4, "padding": 0},
        {"bucket": 4, "sample": 1, "first_piece": 1, "pieces": 1, "tokens": 3, "padding": 1},
        {"bucket": 8, "sample": 0, "first_piece": 2, "pieces": 1, "tokens": 8, "padding": 0},
        {"bucket": 8, "sample": 1, "first_piece": 3, "pieces": 1, "tokens": 8, "padding": 0},
    ]
    pieces = plan.pieces.to_pylist()
    assert pieces[0] == {
        "bucket": 4, "sample": 0, "document": 0, "start": 16, "length": 4, "head": False, "tail": True
    }  # fmt: skip
    assert [(each["head"], each["tail"]) for each in pieces] == [
        (False, True), (True, True), (True, False), (False, False)
    ]  # fmt: skip


def test_a_document_longer_than_any_bucket_by_a_thousand_times():
    plan = Buckets().plan([16_384_000 + 5, 100])
    assert_every_token_once(plan, [16_384_005, 100])
    assert len(plan) == 1001
    assert lc.tokens.measure(plan).cut_documents == 1


@pytest.mark.variants
@pytest.mark.parametrize(
    "strategy",
    [Buckets(), Buckets(planner="exact-fill"), MultiBucket(), FixedLength(), BestFit(), FirstFit(),
     DatasetDecomposition([1, 512])],
)  # fmt: skip
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [2048], [40_000]])
def test_no_document_empty_ones_and_one(strategy, lengths):
    plan = strategy.plan(lengths)
    assert_every_token_once(plan, lengths)
    assert len(plan) == len(plan.samples) == len(plan.bounds) - 1
    assert len(plan.pieces) == len(plan.sizes)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("capacities", "sentence"),
    [
        ([4096, 2048], r"got \[4096, 2048\]: write \[2048, 4096\]"),
        ([2048, 2048, 4096], r"each once, got .*: write \[2048, 4096\]"),
        ([0, 2048], r"write \[2048\]"),
        ([-1], r"write \[2048, 4096, 8192, 16384\]"),
        ([], "needs a capacity"),
        ([2048, 1 << 30], r"must ascend, from 1 to 16,777,216 tokens.*write \[2048\]"),
        ([2048.5], "takes a list"),
    ],
)
@pytest.mark.parametrize("strategy", [Buckets, MultiBucket, DatasetDecomposition])
def test_capacities_that_cannot_be_are_refused_with_those_to_write(strategy, capacities, sentence):
    with pytest.raises(StageError, match=sentence):
        strategy(capacities)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Buckets(padding_threshold=5), "from 0 to 1, got 5"),
        (lambda: Buckets(planner="magic"), "'in-order', 'interleaved', got 'magic'"),
        (lambda: Buckets([8], planner="interleaved", chunk_tokens=8), "chunk_tokens .* less than the largest capacity"),
        (lambda: Buckets([8], planner="interleaved", chunk_tokens=0), "chunk_tokens of the planner 'interleaved' is 0"),
        (lambda: lc.tokens.named_strategy("buckets", chunk_tokens=9), "'algorithm-1' makes no chunks"),
        (
            lambda: lc.tokens.named_strategy("fixed", [9], planner="interleaved"),
            "is only for the strategy 'buckets', got 'fixed'",
        ),
        (lambda: Interleaved(64, 1), "has 1 documents in a sample and 4 chunks of each: set documents_per_sample"),
        (lambda: Interleaved(64, 8, 16), "8 documents with 16 chunks each do not fit into a sample of 64 tokens"),
        (lambda: Padded(8, "split"), "'truncate', 'fragment', got 'split'"),
        (lambda: lc.tokens.named_strategy("fixed", [9], documents_per_sample=3), "'fixed' interleaves no documents"),
        (
            lambda: lc.tokens.named_strategy("fixed", [9], long_documents="fragment"),
            "is only for padded and interleaved",
        ),
        (lambda: lc.tokens.named_strategy("bets"), "unknown strategy 'bets'; known: 'buckets', 'fixed'"),
        (lambda: lc.tokens.named_strategy("padded", [9, 10]), "makes samples of one length"),
        (lambda: Buckets(order="sorted"), "'shuffled', 'planned'"),
        (lambda: Buckets(pool_size=0), "pool_size"),
        (lambda: FirstFit(pool_size=0), "pool_size"),
        (lambda: FixedLength(0), r"write \[2048"),
        (lambda: Buckets().plan([3, -2]), "document 1 has -2 tokens"),
        (lambda: Buckets().plan([1.5]), "whole number"),
        (lambda: Buckets().plan([[1]]), "got a list for the first"),
        (lambda: Buckets().plan(np.zeros((1, 1), int)), "shape"),
        (lambda: Buckets().plan(["a"]), "whole number"),
        (lambda: Buckets().plan(pa.array([1, None])), "1 documents have no length"),
    ],
)
def test_other_settings_and_lengths_that_cannot_be(make, sentence):
    with pytest.raises(StageError, match=sentence):
        make()


def test_lengths_may_be_of_any_kind():
    expected = Buckets().plan([30, 5000]).pieces
    for lengths in (
        np.array([30, 5000], np.uint16),
        pa.array([30, 5000], pa.int32()),
        pa.chunked_array([[30], [5000]]),
        (30, 5000),
    ):
        assert Buckets().plan(lengths).pieces.equals(expected)


def chopped(lengths, order, capacity):
    """Cut the concatenation of documents, token by token."""
    stream = [(document, at) for document in order for at in range(lengths[document])]
    samples = []
    for first in range(0, len(stream), capacity):
        tokens = stream[first : first + capacity]
        pieces = []
        for document, group in itertools.groupby(tokens, key=lambda token: token[0]):
            places = [at for _, at in group]
            pieces.append((document, places[0], len(places)))
        samples.append((capacity, pieces, capacity - len(tokens)))
    return samples


def interleaved_documents(documents, length, count, chunks, long_documents, end):
    """Return the tokens of samples of several documents, chunk by chunk, worked out on the documents themselves."""
    share, heads = length // count, []
    for document in documents:
        stretches = [document[first : first + share] for first in range(0, len(document), share)]
        heads += stretches if long_documents == "fragment" else stretches[:1]
    samples = []
    for group in (heads[first : first + count] for first in range(0, len(heads), count)):
        bodies = [np.array_split([token for token in each if token != end], chunks) for each in group]
        tokens = [int(token) for chunk in range(chunks) for body in bodies for token in body[chunk]]
        samples.append(tokens + [end] * any(end in each for each in group))
    return samples


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(LENGTHS, st.integers(2, 4), st.integers(2, 5), st.integers(0, 60), st.sampled_from(["truncate", "fragment"]))
@example([1, 1, 1], 2, 2, 0, "truncate")
@example([30, 4, 5], 2, 3, 4, "fragment")
def test_interleaved_documents_are_chunks_in_turn(lengths, count, chunks, more, long_documents):
    length = count * chunks + more
    strategy = Interleaved(length, count, chunks, long_documents, order="given", pool_size=None)
    plan = strategy.plan(lengths)
    documents = [[1000 * (number + 1) + at for at in range(size - 1)] + [0] for number, size in enumerate(lengths)]
    documents = [tokens[:size] for tokens, size in zip(documents, lengths, strict=True)]
    found = [
        [token for document, start, size in pieces for token in documents[document][start : start + size]]
        for _, pieces, _ in samples_of(plan)
    ]
    assert found == interleaved_documents(filter(None, documents), length, count, chunks, long_documents, 0)
    assert (plan.sizes > 0).all()
    for low, high in itertools.pairwise(plan.bounds.tolist()):
        assert plan.joined[low:high].tolist() == [high - low > 1 and place > 0 for place in range(high - low)]
    if long_documents == "fragment":
        assert sorted(token for tokens in found for token in tokens if token) == sorted(
            token for tokens in documents for token in tokens if token
        )


def test_interleaved_documents_are_shuffled_by_the_seed_in_pools():
    lengths = web_lengths(1_000)
    plans = [Interleaved(seed=seed, pool_size=300).plan(lengths) for seed in (0, 1)]
    assert samples_of(plans[0]) != samples_of(plans[1])
    assert samples_of(plans[0]) == samples_of(Interleaved(pool_size=300).plan(lengths, num_threads=3))
    assert [sorted(set(plan.documents.tolist())) for plan in plans] == [list(range(1_000))] * 2
    pool_of = np.minimum(plans[0].documents // 300, 2)
    assert all(len(set(pool_of[low:high].tolist())) == 1 for low, high in itertools.pairwise(plans[0].bounds.tolist()))
    # A document that lacks only its end of text is whole.
    assert lc.tokens.measure(Interleaved(64, 2, 2).plan([20, 30, 10])).r_tru == 0


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 80))
def test_padded_samples_have_one_document_each(lengths, capacity):
    heads = [(capacity, [(number, 0, min(size, capacity))], capacity - min(size, capacity))
             for number, size in enumerate(lengths) if size]  # fmt: skip
    assert samples_of(Padded(capacity).plan(lengths)) == heads
    pieces = Padded(capacity, "fragment").plan(lengths)
    assert_every_token_once(pieces, lengths)
    assert [sample for sample in samples_of(pieces) if sample[1][0][1] == 0] == heads


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(LENGTHS, CAPACITIES)
def test_concatenation_is_that_of_the_tokens(lengths, capacities):
    plan = FixedLength(capacities[0], order="given").plan(lengths)
    assert samples_of(plan) == chopped(lengths, range(len(lengths)), capacities[0])
    assert_every_token_once(FixedLength(capacities[0]).plan(lengths), lengths)
    classes = [[0, *capacities][at : at + 2] for at in range(len(capacities))]
    classes[-1][1] = 10**9
    expected = []
    for capacity, (low, high) in zip(capacities, classes, strict=True):
        here = [document for document, length in enumerate(lengths) if low < length <= high]
        expected += chopped(lengths, here, capacity)
    assert samples_of(MultiBucket(capacities, order="given").plan(lengths)) == expected
    assert_every_token_once(MultiBucket(capacities).plan(lengths), lengths)


def test_concatenation_is_in_random_order_by_the_seed():
    lengths = web_lengths(500)
    orders = [FixedLength(seed=seed).plan(lengths).documents for seed in (0, 0, 1)]
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], np.sort(orders[0]))


def packed(lengths, capacity, choose, *, longest_first=True):
    """Pack pieces one by one; ``choose`` picks among the samples with room, by (room, number)."""
    pieces = []
    for document, length in enumerate(lengths):
        pieces += [(document, start, min(capacity, length - start)) for start in range(0, length, capacity)]
    if longest_first:
        pieces.sort(key=lambda piece: -piece[2])
    samples, room = [], []
    for piece in pieces:
        fitting = [(space, number) for number, space in enumerate(room) if space >= piece[2]]
        if fitting:
            number = choose(fitting)
        else:
            number = len(room)
            samples.append([])
            room.append(capacity)
        samples[number].append(piece)
        room[number] -= piece[2]
    return samples, room


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(LENGTHS, st.integers(1, 120))
def test_first_fit_takes_the_first_sample_with_room(lengths, capacity):
    for order in ("longest-first", "given"):
        plan = FirstFit(capacity, order).plan(lengths)
        samples, _ = packed(
            lengths, capacity, lambda fitting: min(number for _, number in fitting),
            longest_first=order == "longest-first",
        )  # fmt: skip
        assert [pieces for _, pieces, _ in samples_of(plan)] == samples
        assert_every_token_once(plan, lengths)


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(LENGTHS, st.integers(1, 120))
def test_best_fit_takes_the_fullest_sample_with_room(lengths, capacity):
    plan = BestFit(capacity).plan(lengths)
    _, room = packed(lengths, capacity, lambda fitting: min(fitting)[1])
    # Which of equally full samples is taken is free, and how full they are in the end does not depend on it.
    assert sorted(plan.capacities - plan.tokens) == sorted(room)
    assert_every_token_once(plan, lengths)
    cut = {document for document, length in enumerate(lengths) if length > capacity}
    assert set(plan.documents[plan.sizes < plan.lengths[plan.documents]].tolist()) == cut


def test_first_fit_in_pools_pads_each_pool():
    lengths = [6] * 9
    assert len(FirstFit(10, pool_size=3).plan(lengths)) == len(FirstFit(10).plan(lengths)) == 9
    assert len(FirstFit(12, pool_size=3).plan(lengths)) == 6
    assert len(FirstFit(12).plan(lengths)) == 5


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(LENGTHS, CAPACITIES)
def test_decomposition_cuts_each_document_by_itself(lengths, capacities):
    plan = DatasetDecomposition(capacities).plan(lengths)
    expected = []
    for document, length in enumerate(lengths):
        start = 0
        for capacity in capacities[::-1]:
            while length - start >= capacity:
                expected.append((capacity, [(document, start, capacity)], 0))
                start += capacity
    assert sorted(samples_of(plan)) == sorted(expected)
    assert lc.tokens.measure(plan).pieces_per_sample in (0, 1)
