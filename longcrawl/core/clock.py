"""A clock of CPU time, which also counts child processes."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

LIVING: dict[int, float] = {}
"""CPU seconds reported by each living child process, by process id; the system counts those of ended processes."""


class CoreClock:
    """A clock of the CPU seconds of all threads of this process and its children, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the CPU time of the block to ``name``."""
        started = cpu_seconds()
        try:
            yield
        finally:
            self.seconds[name] += cpu_seconds() - started


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children so far."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + sum(LIVING.values())
