"""The engine of one machine: its processes, and how a task reaches one."""

import contextlib
import multiprocessing
import os
import pickle
import platform
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from longcrawl.core.exchange import Exchange, exchange_files
from longcrawl.core.registry import installed_versions
from longcrawl.errors import LongCrawlError, RunError
from longcrawl.run.engines.hold import HeldAlone

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


R = TypeVar("R")


@dataclass(frozen=True)
class Local(HeldAlone):
    """Processes of this machine.

    >>> sorted(Local().tasks(abs, [-1, 2]))
    [1, 2]
    """

    num_proc: int = 1

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task and yield the results as they come, in any order."""
        return self._while_held(map_tasks(function, tasks, self.num_proc))

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Carry out an exchange through files."""
        exchange_files(self, step, tasks)


def usable_cpus() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_tasks(function: Callable[[T], R], tasks: Sequence[T], num_proc: int) -> Generator[R, None, None]:
    """Call ``function`` on every task and yield results as they come; the order is not that of the tasks.

    With ``num_proc`` 1 everything happens in this process, else nothing, not even a single task: it may take a GPU into
    use, and a process that has done so forks none that can. The first error of a task ends the map; tasks that are
    running are waited for, so that what they write is whole.

    Raises:
        RunError: a process was killed from outside, or does not see the folder that this one works in.
    """
    if num_proc <= 1 or not tasks:
        yield from map(function, tasks)
        return
    # Fork where there is one, as `datasets` does: scripts need no __main__ guard and numba and tokenizers load once.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    workers = min(num_proc, len(tasks))
    watched, held = context.Pipe(duplex=False)
    running, left = set[Future[R]](), iter(tasks)
    with held, watched, ProcessPoolExecutor(workers, context, _start_worker, (watched, held)) as pool:
        try:
            # Only as many as are needed soon: none is then cancelled, on which the thread that watches the workers ends
            # with an error where one of them dies at that time, so that this one would wait for ever (Python 3.11).
            running |= {pool.submit(run_packed, pack(function, task)) for task in islice(left, workers + 1)}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    running |= {pool.submit(run_packed, pack(function, task)) for task in islice(left, 1)}
                    yield each.result()
        except BrokenProcessPool as broken:
            raise RunError(
                "a worker process was killed, by a signal or for lack of memory: run the same command again, with a "
                "lower --num-proc if memory is short; what is finished is kept"
            ) from broken
        finally:
            wait(running)
            # An idle worker that is killed from now on keeps the lock of the queue through which the pool ends others.
            held.close()


def _start_worker(watched: Connection, held: Connection) -> None:
    held.close()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Files are whole or not there, so Ctrl-C may end a worker at once; else each would begin another task first.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: Connection) -> None:
    """End this worker when its run closes the other end, or is gone: after ``kill -9`` nobody else would."""
    with contextlib.suppress(EOFError):
        watched.recv_bytes()
    os._exit(1)
