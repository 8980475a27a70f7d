"""Progress inside running tasks: a task writes the finished share of its input to a file for the leader's progress bar.

Files work for all engines, because workers may be on other machines. A task writes its file at most once a second.
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
"""Minimum time between two writes by a task, and between two reads by the leader."""


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
    """Publish the share noted so far as finished, if the last publication was long enough ago."""
    if (task := _task.get()) is not None and time.monotonic() - task.told >= SECONDS:
        task.told = time.monotonic()
        with suppress(OSError):
            task.file.write_text(f"{task.share:.4f}", "ascii")
    look_at_progress()


@contextmanager
def leading(look: Callable[[], None]) -> Iterator[None]:
    """Call a function at most once a second while this process runs tasks of the block or waits for them."""
    token = _leader.set(_Leader(look))
    try:
        yield
    finally:
        _leader.reset(token)


def look_at_progress() -> None:
    """Call the function given to :func:`leading`, if this process leads and the last call was long enough ago."""
    leader = _leader.get()
    if leader is not None and leader.process == os.getpid() and time.monotonic() - leader.looked >= SECONDS:
        leader.looked = time.monotonic()
        leader.look()


def read_progress(folder: Path) -> dict[str, float]:
    """Return the finished share of each task in a folder, by the name of its file."""
    found = dict[str, float]()
    with suppress(OSError):  # shared folders may fail for a while
        for file in folder.iterdir():
            with suppress(OSError, ValueError):  # it is being written, or its task has just ended
                found[file.name] = float(file.read_text("ascii"))
    return found
