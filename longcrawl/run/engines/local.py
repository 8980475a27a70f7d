"""The engine of one machine: its processes; an exchange goes through files."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from longcrawl.core.exchange import Exchange, exchange_files
from longcrawl.errors import RunError
from longcrawl.run.engines.hold import HeldAlone
from longcrawl.run.engines.worker import pack, run_packed

T = TypeVar("T")
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
