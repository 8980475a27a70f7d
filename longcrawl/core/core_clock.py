"""What work takes of a core, by names."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CoreClock"]


class CoreClock:
    """Adds up the seconds of a core that this process spends, by name.

    Those of all its threads count, and those that other programs take from a busy machine do not.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count what happens in the block under ``name``."""
        started = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] += time.process_time() - started
