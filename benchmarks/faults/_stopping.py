"""Stop a run at one of its file operations, by an audit hook in a forked process."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


def changed_path(event: str, arguments: tuple[object, ...]) -> str | None:
    """Return the path of an audit event that changes files; None for all others."""
    if event in CHANGES:
        return os.fspath(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else None  # type: ignore[return-value]
    if event != "open" or not isinstance(arguments[0], str):
        return None
    mode, flags = arguments[1], arguments[2]
    by_mode = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    return arguments[0] if by_mode or (isinstance(flags, int) and flags & WRITES) else None


def on_change(folder: Path, act: Callable[[str], None]) -> None:
    """Call ``act`` with each path in ``folder`` before it is changed, from now on and in all forked processes."""
    inside = str(folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" or event in CHANGES:
            path = changed_path(event, arguments)
            if path is not None and str(path).startswith(inside):
                act(str(path))

    import sys

    sys.addaudithook(hook)


def run_until_event(recipe: Path, folder: Path, *marks: str) -> None:
    """Run a recipe, and kill this process before a path with one of these marks is changed."""
    import longcrawl as lc

    def stop(path: str) -> None:
        if any(mark in path for mark in marks):
            os.kill(os.getpid(), signal.SIGKILL)

    on_change(folder, stop)
    lc.run(recipe, folder)
