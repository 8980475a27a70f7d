"""Hub client: the Hub's limits, and errors attributed to the user or the server."""

import pytest

from longcrawl.publish.hub.client import hub_errors, over_limits


@pytest.mark.parametrize("wrong", [KeyError("a"), TypeError("b"), AttributeError("c")], ids=repr)
def test_a_mistake_of_our_own_is_not_blamed_on_the_hub(wrong):
    with pytest.raises(type(wrong)), hub_errors("me/x"):
        raise wrong


@pytest.mark.slow
def test_the_limits_of_the_hub():
    assert over_limits({f"a/{number // 9999}/{number}": 1 for number in range(100_000)}) == []
    (said,) = over_limits({f"a/{number}/0": 1 for number in range(10_001)})
    assert said == "a has 10,001 entries, the Hub takes 10,000 in a folder"
    (said,) = over_limits({f"{number // 9999}/{number}": 1 for number in range(100_001)})
    assert said == "there are 100,001 files, and the Hub advises against more than 100,000"
