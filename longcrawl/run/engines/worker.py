"""How a task reaches a worker: with the folder from which its paths count, and the versions that it must find there."""

import os
import pickle
import platform
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from longcrawl.core.registry import installed_versions
from longcrawl.errors import LongCrawlError, RunError

T = TypeVar("T")


def pack(
    function: Callable[[T], Any],
    task: T,
    versions: Mapping[str, str] | None = None,
    dumps: Callable[[Any], bytes] = pickle.dumps,
) -> bytes:
    """Pickle a task for a worker that may start in another folder: its relative paths count from this one.

    With ``versions``, a worker that has others rejects it.
    """
    return pickle.dumps((os.getcwd(), versions, dumps((function, task))))  # noqa: PTH109  # as a text


def run_packed(packed: bytes) -> Any:
    """Run a task of :func:`pack`, as :func:`unpack` restores it."""
    function, task = unpack(packed)
    return function(task)


def unpack(packed: bytes) -> tuple[Callable[..., Any], Any]:
    """Restore function and task of :func:`pack` in the folder where they were packed, and stay there.

    What they hold looks for its files as it is made.

    Raises:
        RunError: this machine has no such folder, or other versions of what decides about the bytes of a run.
    """
    folder, versions, work = pickle.loads(packed)  # noqa: S301  # of the process that started this one
    try:
        os.chdir(folder)
    except OSError as failed:
        raise RunError(
            f"a worker cannot enter {folder}, from which relative paths count ({failed.strerror}): start the run in a "
            "folder that all workers see"
        ) from failed
    if versions is not None:
        _check_versions(versions)
    restored: tuple[Callable[..., Any], Any] = pickle.loads(work)  # noqa: S301  # as above
    return restored


def answer(function: Callable[[T], Any], task: T) -> bytes:
    """Return, pickled, whether a task was done, and its result or its error: what waits for it raises that."""
    try:
        return pickle.dumps((True, function(task)))
    except Exception as failed:  # noqa: BLE001  # it is raised where the results are asked for
        return pickle.dumps((False, restorable(failed)))


def restorable(failed: Exception) -> Exception:
    """Return an error as it can be sent to the driver; of one that is no sentence for users, with its traceback."""
    if not isinstance(failed, LongCrawlError):
        failed.add_note("".join(["in a worker:\n", *traceback.format_exception(failed)]).rstrip())
    try:
        pickle.loads(pickle.dumps(failed))  # noqa: S301  # its own
    except Exception:  # noqa: BLE001  # an error of any library, whose constructor may want anything
        sent = RunError(f"{type(failed).__name__}: {failed}")
        sent.__notes__ = failed.__notes__
        return sent
    return failed


def _check_versions(wanted: Mapping[str, str]) -> None:
    here = installed_versions()
    for name in sorted(wanted.keys() | here.keys()):
        if here.get(name) != wanted.get(name):
            raise RunError(
                f"a worker on {platform.node()} has {name} {here.get(name, 'not installed')}, the driver "
                f"{wanted.get(name, 'not installed')}: install the same versions on all machines, and type the same "
                "command again"
            )
