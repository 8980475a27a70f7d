"""Every shipped recipe is listed with what it is about."""

import longcrawl as lc
from longcrawl.run.shipped import shipped


def test_recipes_are_sorted_and_have_one_line_each():
    found = lc.recipes()
    assert list(found) == sorted(found) == list(shipped())
    assert all(about and "\n" not in about for about in found.values())
