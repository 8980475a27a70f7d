"""Shared measures: CPU time of a call, memory of a process, both of several processes."""

import contextlib
import os
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


class Tree:
    """CPU time and peak memory of a process and of all that descend from it, as Linux counts them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[int, int] = {}

    def seconds(self) -> float:
        """Return the CPU seconds that they have spent so far, with those of children that have ended."""
        return sum(sum(map(int, fields[11:15])) for fields in self._living().values()) / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        """Read the memory of all that live; a process that begins and ends between two looks has no peak."""
        for pid in self._living():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                for line in lines:
                    if line.startswith("VmHWM"):
                        self._peaks[pid] = int(line.split()[1]) * 1024

    def peaks(self) -> list[int]:
        """Return the most bytes that each process ever had in memory, the first one's first."""
        return [self._peaks[self._pid], *(self._peaks[pid] for pid in self._peaks if pid != self._pid)]

    def _living(self) -> dict[int, list[str]]:
        """Return what the system says of each process after its name: state, parent and so on, see proc(5)."""
        every = {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                every[int(file.parent.name)] = file.read_text().rpartition(")")[2].split()
        found = [self._pid] if self._pid in every else []
        for pid in found:
            found += [child for child, fields in every.items() if int(fields[1]) == pid]
        return {pid: every[pid] for pid in found}
