"""Seconds of a core that a block of code takes, in this process and in its children."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

LIVING: dict[int, float] = {}
"""Seconds of a core that each child process has reported so far, by its id.

Whoever waits for the end of a child takes it out: from then on the system counts it. Children that end in the block
that starts them need no entry.
"""


class CoreClock:
    """Adds up the seconds of a core that this process and its children spend, by name.

    Those of all their threads count, and those that other programs take from a busy machine do not.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count what happens in the block under ``name``."""
        started = _seconds()
        try:
            yield
        finally:
            self.seconds[name] += _seconds() - started


def _seconds() -> float:
    """Return the seconds of this process, of children that have ended, and of those that live."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + sum(LIVING.values())
