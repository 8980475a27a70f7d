"""What several of the scripts here measure alike: CPU time of a call, and memory of a process."""

import threading
import time
from collections.abc import Callable
from pathlib import Path


def seconds(compute: Callable[[], object], repeats: int) -> list[float]:
    """Return CPU seconds of each repeat, sorted."""
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        compute()
        taken.append(time.process_time() - started)
    return sorted(taken)


def best(compute: Callable[[], object], repeats: int) -> float:
    """Return the least CPU seconds of some repeats."""
    return seconds(compute, repeats)[0]


class Peak(threading.Thread):
    """Watch this process's own memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.most = self.now()
        self.start()

    def run(self) -> None:
        """Look again and again; the thread ends with the process."""
        while True:
            self.most = max(self.most, self.now())
            time.sleep(0.005)

    @staticmethod
    def now() -> int:
        """Return the bytes that belong to no file."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
