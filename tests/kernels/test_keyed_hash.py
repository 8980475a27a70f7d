"""The order of windows and of samples: each thing once, any place alone, the same everywhere, like chance."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.kernels.keyed_hash import KeyedOrder, keyed_hash, reached_by

EIGHT = [7, 2, 4, 0, 1, 5, 3, 6]
"""Order of the first pass of windows with seed 0; stored feed states depend on it."""


@settings(deadline=None)
@given(count=st.integers(1, 2000), seed=st.integers(0, 2**63), purpose=st.sampled_from(["windows of pass 0", "\udcff"]))
def test_a_keyed_order_has_each_place_once_however_it_is_asked(count, seed, purpose):
    order = KeyedOrder(count, seed, purpose)(np.arange(count))
    assert sorted(order.tolist()) == list(range(count))
    some = np.arange(count)[:: max(count // 5, 1)]
    assert KeyedOrder(count, seed, purpose)(some).tolist() == order[some].tolist()


def naive_order(count: int, seed: int, purpose: str) -> list[int]:
    """Go through the rounds with Python's integers."""
    wrap = 2**64
    columns = next(number for number in range(1, count + 1) if number**2 >= count)
    rows = -(-count // columns)
    keys = keyed_hash(map(str, range(8)), purpose, seed).tolist()
    order = []
    for number in range(count):
        place = number
        while True:
            (high, low), (left, right) = divmod(place, columns), (rows, columns)
            for key in keys:
                mixed = (low ^ key) * 0x9E3779B97F4A7C15 % wrap
                mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % wrap
                mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % wrap
                mixed ^= mixed >> 31
                high, low, left, right = low, (high + mixed % left) % left, right, left
            place = high * right + low
            if place < count:
                break
        order.append(place)
    return order


@given(count=st.integers(1, 60), seed=st.integers(0, 9))
def test_an_order_is_the_same_on_every_machine_and_release(count, seed):
    assert KeyedOrder(count, seed, "made")(np.arange(count)).tolist() == naive_order(count, seed, "made")
    assert KeyedOrder(8, 0, "windows of pass 0")(np.arange(8)).tolist() == EIGHT


def test_keyed_orders_look_like_chance_and_differ_by_seed_and_purpose():
    count = 10_007
    orders = [KeyedOrder(count, seed, purpose)(np.arange(count)) for seed, purpose in ((0, "a"), (0, "b"), (1, "a"))]
    for at, order in enumerate(orders):
        assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.05
        assert (np.diff(order) == 1).mean() < 0.002
        # The mean of |difference| of neighbours in a random order is a third of the count.
        assert abs(np.abs(np.diff(order)).mean() / count - 1 / 3) < 0.02
        for other in orders[at + 1 :]:
            assert (order == other).mean() < 0.002
    # Every order of four things turns up, about as often as the others.
    small = [tuple(KeyedOrder(4, seed, "a")(np.arange(4)).tolist()) for seed in range(4_800)]
    counts = [small.count(each) for each in set(small)]
    assert len(counts) == 24
    assert max(counts) < 2 * min(counts)


def test_a_thing_may_be_at_any_place():
    found = np.array([KeyedOrder(50, seed, "a")(np.arange(50)) for seed in range(400)])
    counts = np.apply_along_axis(np.bincount, 0, found, minlength=50)
    # Each of 2,500 counts is binomial with mean 8 and deviation 2.8.
    assert counts.max() < 8 + 6 * 2.8
    assert abs(counts.var() / (400 * 0.02 * 0.98) - 1) < 0.15


def test_large_orders_are_reached_at_any_place():
    order = KeyedOrder(10**13 + 37, 5, "a")
    places = np.array([0, 1, 10**12, 10**13 + 36])
    found = order(places)
    assert ((found >= 0) & (found < 10**13 + 37)).all()
    assert [int(order(places[at : at + 1])[0]) for at in range(4)] == found.tolist()


@given(st.lists(st.integers(-5, 5), min_size=1), st.integers(1, 99))
def test_a_share_reaches_a_bound_and_no_greater_one(values, percent):
    bound = reached_by(np.array(values, np.float64), percent / 100)
    wanted = -(-percent * len(values) // 100)
    assert sum(value >= bound for value in values) >= wanted
    assert sum(value > bound for value in values) < wanted
    assert bound in values
