"""Progress inside running tasks: a task writes the share of its input that is done to a file, for the leader's bar.

A file serves all engines alike, as workers may be on other machines. It is written once a second at most.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

PROGRESS = "progress"
"""Folder in ``work`` for the progress of running tasks."""
SECONDS = 1.0
"""Shortest time between two states of a task, and between two looks at them."""


@dataclass
class _Task:
    file: Path
    share: float = 0.0
    told: float = field(default_factory=time.monotonic)


@dataclass
class _Leader:
    look: Callable[[], None]
    process: int = field(default_factory=os.getpid)
    looked: float = field(default_factory=time.monotonic)


_task: ContextVar[_Task | None] = ContextVar("task", default=None)
_leader: ContextVar[_Leader | None] = ContextVar("leader", default=None)


def progress_file(work: Path, marker: Path) -> Path:
    """Return the path of the progress of a task, by that of its marker."""
    return work / PROGRESS / f"{marker.parent.name}-{marker.stem}"


@contextmanager
def following(file: Path) -> Iterator[None]:
    """Write the progress of the block to a file if its folder exists, and remove the file at the end."""
    token = _task.set(_Task(file))
    try:
        yield
    finally:
        _task.reset(token)
        file.unlink(missing_ok=True)


def note_read(done: int, of: int) -> None:
    """Note how many bytes or rows of its input the running task has read; :func:`tell_progress` publishes it.

    Readers of a section read ahead, so ``done`` may be more than all.
    """
    if (task := _task.get()) is not None:
        task.share = min(done / max(of, 1), 1.0)


def tell_progress() -> None:
    """Publish that the task is done with what it has read so far."""
    if (task := _task.get()) is not None and time.monotonic() - task.told >= SECONDS:
        task.told = time.monotonic()
        with suppress(OSError):
            task.file.write_text(f"{task.share:.4f}", "ascii")
    look_at_progress()


@contextmanager
def leading(look: Callable[[], None]) -> Iterator[None]:
    """Call a function once a second at most while this process waits for tasks of the block, or does one."""
    token = _leader.set(_Leader(look))
    try:
        yield
    finally:
        _leader.reset(token)


def look_at_progress() -> None:
    """Let the process that leads, if it is this one, look at the progress of all tasks."""
    leader = _leader.get()
    if leader is not None and leader.process == os.getpid() and time.monotonic() - leader.looked >= SECONDS:
        leader.looked = time.monotonic()
        leader.look()


def read_progress(folder: Path) -> dict[str, float]:
    """Return the share done by the name of each file of progress in a folder."""
    found = dict[str, float]()
    with suppress(OSError):  # shared folders may fail for a while
        for file in folder.iterdir():
            with suppress(OSError, ValueError):  # it is being written, or its task has just ended
                found[file.name] = float(file.read_text("ascii"))
    return found
