"""The local engine: worker processes on this machine, and the packing of tasks for workers."""

import contextlib
import gc
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
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, TypeVar

from longcrawl.core.clock import LIVING, cpu_seconds
from longcrawl.core.exchange import Exchange, exchange_files
from longcrawl.core.progress import SECONDS, look_at_progress
from longcrawl.core.registry import installed_versions
from longcrawl.errors import LongCrawlError, RunError
from longcrawl.kernels.compiling import load_compiler
from longcrawl.run.engines.hold import HeldAlone

T = TypeVar("T")


def pack(
    function: Callable[[T], Any],
    task: T,
    versions: Mapping[str, str] | None = None,
    dumps: Callable[[Any], bytes] = pickle.dumps,
) -> bytes:
    """Pickle a task with the current folder, from which its relative paths count, and the versions a worker needs."""
    return pickle.dumps((os.getcwd(), versions, dumps((function, task))))  # noqa: PTH109  # as a text


def run_packed(packed: bytes) -> Any:
    """Unpack and run a task of :func:`pack`."""
    function, task = unpack(packed)
    return function(task)


def unpack(packed: bytes) -> tuple[Callable[..., Any], Any]:
    """Restore the function and task of :func:`pack`, after changing to the folder in which they were packed.

    The folder is changed first because objects may open files by relative paths while they are unpickled.

    Raises:
        RunError: this machine has no such folder, or other versions of packages that affect a run's bytes.
    """
    folder, versions, work = pickle.loads(packed)  # noqa: S301  # from the process that started this one
    try:
        os.chdir(folder)
    except OSError as failed:
        raise RunError(
            f"a worker cannot enter {folder}, the base of relative paths ({failed.strerror}): start the run in a "
            "folder that all workers see"
        ) from failed
    if versions is not None:
        _check_versions(versions)
    restored: tuple[Callable[..., Any], Any] = pickle.loads(work)  # noqa: S301  # from the process that started this one
    return restored


def answer(function: Callable[[T], Any], task: T) -> bytes:
    """Run a task and return, pickled, True and its result or False and its error, for the caller to raise."""
    try:
        return pickle.dumps((True, function(task)))
    except Exception as failed:  # noqa: BLE001  # the process that waits for the result raises it
        return pickle.dumps((False, restorable(failed)))


def result_of(answered: tuple[bool, Any]) -> Any:
    """Return the result of a task from its restored :func:`answer`, or raise its error."""
    done, result = answered
    if not done:
        raise result
    return result


def restorable(failed: Exception) -> Exception:
    """Return an error that can be pickled; errors of other libraries get the worker's traceback as a note."""
    if not isinstance(failed, LongCrawlError):
        failed.add_note("".join(["in a worker:\n", *traceback.format_exception(failed)]).rstrip())
    try:
        pickle.loads(pickle.dumps(failed))  # noqa: S301  # pickled in this line
    except Exception:  # noqa: BLE001  # constructors of other libraries' errors may take any arguments
        sent = RunError(f"{type(failed).__name__}: {failed}")
        sent.__notes__ = failed.__notes__
        return sent
    return failed


def _check_versions(wanted: Mapping[str, str]) -> None:
    versions = installed_versions()
    for name in sorted(wanted.keys() | versions.keys()):
        here, there = (each.get(name, "not installed") for each in (versions, wanted))
        if here != there:
            raise RunError(
                f"a worker on {platform.node()} has {name} {here}, but the driver has {there}: install the same "
                "versions on all machines, and run the same command again"
            )


R = TypeVar("R")


class Workers:
    """Worker processes that end with the ``with`` block, or with this process; they start with the first tasks."""

    def __init__(self, count: int) -> None:
        # Fork if the system can, as `datasets` does: scripts need no __main__ guard, and numba loads once.
        self._method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(self._method)
        self._watched, self._held = context.Pipe(duplex=False)
        self._count, self._used = count, set[int]()
        self._pool = ProcessPoolExecutor(count, context, _start_worker, (self._watched, self._held))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Workers end themselves when this closes. The pool cannot always end them: an idle worker that is killed
        # keeps the lock of the queue through which the pool stops the others.
        self._held.close()
        self._pool.shutdown()
        self._watched.close()
        for process in self._used:  # the system counts their time now
            LIVING.pop(process, None)

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Generator[R, None, None]:
        """Call ``function`` on every task and yield the results as they arrive, see :func:`map_tasks`."""
        if self._method == "fork":
            load_compiler()
        running, left = set[Future[tuple[R, int, float]]](), (pack(function, task) for task in tasks)
        try:
            # Submit few tasks at a time, so that none must be cancelled. If a worker dies just after a cancellation,
            # the pool's management thread fails and this process would wait for ever (Python 3.11).
            running |= {self._pool.submit(_run_counted, task) for task in islice(left, self._count + 1)}
            while running:
                done, running = wait(running, SECONDS, FIRST_COMPLETED)
                look_at_progress()
                for each in done:
                    running |= {self._pool.submit(_run_counted, task) for task in islice(left, 1)}
                    result, process, seconds = each.result()
                    self._used.add(process)
                    LIVING[process] = seconds
                    yield result
        except BrokenProcessPool as broken:
            raise RunError(
                "a worker process was killed, by a signal or for lack of memory: run the same command again, with a "
                "lower --num-proc if memory is short; finished work is kept"
            ) from broken
        finally:
            wait(running)


def _run_counted(packed: bytes) -> tuple[Any, int, float]:
    """Run a task of :func:`pack`; also return this process and its CPU seconds so far."""
    return run_packed(packed), os.getpid(), cpu_seconds()


@dataclass(frozen=True)
class Local(HeldAlone):
    """Engine that runs tasks in processes of this machine.

    >>> sorted(Local().tasks(abs, [-1, 2]))
    [1, 2]
    """

    num_proc: int = 1
    workers: Workers | None = field(default=None, kw_only=True, repr=False, compare=False)
    """Processes kept while the engine holds a run, so that each loads kernels and tokenizers once; None at other times.
    """

    @contextmanager
    def hold(self, work: Path, is_finished: Callable[[], bool]) -> Iterator[Self | None]:
        """Lock the folder of a run for this process alone; yield None if the run is finished by then."""
        kept = Workers(self.num_proc) if self.num_proc > 1 else nullcontext()
        with super().hold(work, is_finished) as holding, kept as workers:
            yield None if holding is None else replace(holding, workers=workers)

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task and yield the results as they arrive, in any order."""
        return self._while_held(map_tasks(function, tasks, self.num_proc, self.workers))

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Carry out an exchange through files."""
        exchange_files(self, step, tasks)


def usable_cpus() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_tasks(
    function: Callable[[T], R], tasks: Sequence[T], num_proc: int, workers: Workers | None = None
) -> Generator[R, None, None]:
    """Call ``function`` on every task and yield the results as they arrive, in any order.

    With ``num_proc`` 1 all tasks run in this process. Otherwise none does: it may initialise CUDA, and forked children
    of such a process cannot use a GPU. The first error ends the map after the running tasks, so their files are whole.
    Without ``workers``, processes are started for these tasks alone.

    Raises:
        RunError: a worker process was killed, or cannot enter the current folder.
    """
    if num_proc <= 1 or not tasks:
        yield from map(function, tasks)
        return
    with Workers(min(num_proc, len(tasks))) if workers is None else nullcontext(workers) as those:
        yield from those.map(function, tasks)


def _start_worker(watched: Connection, held: Connection) -> None:
    held.close()
    gc.freeze()  # what the parent process has loaded is never garbage here
    LIVING.clear()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Ctrl-C may end a worker at once, as files are written whole or not at all; else each would begin another task.
    # A run that ignores it, as in the background of a shell script, has workers that ignore it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: Connection) -> None:
    """End this worker when the run closes the other end of the pipe or dies, even by ``kill -9``."""
    with contextlib.suppress(EOFError):
        watched.recv_bytes()
    os._exit(1)
