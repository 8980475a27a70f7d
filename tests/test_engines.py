"""Tasks in processes of this machine."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from longcrawl.engines.local import map_tasks
from longcrawl.errors import RunError


def end_worker(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_killed_before_the_last_task_is_submitted_is_one_sentence():
    with pytest.raises(RunError, match="a worker process was killed"):
        list(map_tasks(end_worker, range(20_000), 2))


def meet_the_other(folder: Path) -> int:
    """Return the number of a worker once both have a task."""
    (folder / str(os.getpid())).touch()
    while len([*folder.iterdir()]) < 2:
        time.sleep(0.01)
    return os.getpid()


@pytest.mark.parametrize("stopped", [min, max])
def test_a_worker_killed_after_the_last_task_keeps_no_other_from_ending(tmp_path, stopped):
    # An idle worker waits for tasks with a lock in hand: one of the two, whose death the other one would not survive.
    results = map_tasks(meet_the_other, [tmp_path, tmp_path], 2)
    workers = [next(results), next(results)]
    os.kill(stopped(workers), signal.SIGSTOP)

    def finish() -> None:
        with contextlib.suppress(RunError):
            list(results)

    ended = threading.Thread(target=finish, daemon=True)
    ended.start()
    ended.join(0.5)
    with contextlib.suppress(ProcessLookupError):
        os.kill(stopped(workers), signal.SIGKILL)
    ended.join(30)
    assert not ended.is_alive()
