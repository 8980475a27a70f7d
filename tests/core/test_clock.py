"""The CPU time of a block counts, and so does that of child processes."""

from longcrawl.core.clock import LIVING, CoreClock


def test_blocks_of_one_name_are_added_with_the_time_of_living_children():
    clock = CoreClock()
    for _ in range(2):
        with clock.measure("work"):
            LIVING[-1] = LIVING.get(-1, 0.0) + 2.0
    del LIVING[-1]
    assert 4.0 <= clock.seconds["work"] < 5.0
