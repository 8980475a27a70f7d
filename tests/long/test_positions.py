"""Means by position are weighted by their counts."""

import math

import numpy as np

from longcrawl.long.positions import bin_positions, mean_of


def test_groups_cover_all_positions_and_an_empty_one_is_not_a_number():
    means, counts = np.array([4.0, 3.0, math.nan, 1.0]), np.array([1, 3, 0, 2])
    borders, grouped = bin_positions(means, counts, bins=4)
    assert (borders[0], borders[-1]) == (0, 4)
    assert len(grouped) == len(borders) - 1
    assert mean_of(means[:2], counts[:2]) == 3.25
    assert math.isnan(mean_of(means[2:3], counts[2:3]))
