"""Numbers that are looked up, ordered and rounded, and letters in one case, as Python and numpy have them."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longcrawl.kernels import lookup


@given(st.lists(st.integers(-9, 9), max_size=40), st.integers(-11, 11))
def test_a_search_by_halves_counts_as_numpy_does(values, most):
    values = np.sort(np.array(values, np.int64))
    assert lookup.count_up_to(values, most) == np.searchsorted(values, most, "right")


@given(st.lists(st.integers(-4, 4) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=100))
def test_an_order_is_that_of_numpy_with_equal_keys_as_they_stand(keys):
    array = np.array(keys, np.int64)
    assert lookup.stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()


def test_capitals_are_those_that_each_character_has():
    naive: dict[str, list[int]] = {}
    for point in range(0x110000):
        lower = chr(point).lower()
        if len(lower) == 1 and lower != chr(point):
            naive.setdefault(lower, []).append(point)
    assert lookup._capitals() == naive


@given(st.floats(0, 1e9) | st.integers(0, 10**12).map(lambda halves: (halves + 0.5) / 1e8))
@example(0.5e-8)
@example(67108863.999999985)
@settings(max_examples=2 * settings.default.max_examples)
def test_rounding_is_pythons(value):
    assert lookup.round_to_8_digits(value) == round(value, 8)


@given(st.integers(0, 2**53), st.integers(1, 10**6))
def test_rounding_of_shares_is_pythons(count, total):
    assert lookup.round_to_8_digits(count % total / total) == round(count % total / total, 8)
