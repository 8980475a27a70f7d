"""Run tasks in processes of this machine."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from longcrawl.errors import RunError

__all__ = ["map_tasks"]

T = TypeVar("T")
R = TypeVar("R")


def map_tasks(function: Callable[[T], R], tasks: Sequence[T], num_proc: int) -> Iterator[R]:
    """Call ``function`` on every task and yield results as they come; the order is not that of the tasks.

    With ``num_proc`` 1 everything happens in this process. The first error of a task ends the map; tasks that are
    running are waited for, so that what they write is whole.

    Raises:
        RunError: a process was killed from outside.

    """
    if num_proc <= 1 or len(tasks) <= 1:
        yield from map(function, tasks)
        return
    # Fork where there is one, as `datasets` does: scripts need no __main__ guard and numba and tokenizers load once.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    workers = min(num_proc, len(tasks))
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(os.getpid(),)) as pool:
        try:
            waiting = [pool.submit(function, task) for task in tasks]  # a worker may be killed before the last one
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool as broken:
            raise RunError(
                "a worker process was killed, by a signal or for lack of memory: run the same command again, with a "
                "lower --num-proc if memory is short; what is finished is kept"
            ) from broken
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(parent: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Files are whole or not there, so Ctrl-C may end a worker at once; else each would begin another task first.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this worker when its run is gone: after ``kill -9`` nobody else would."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
