"""Tasks in processes of this machine."""

import os
import signal

import pytest

from longcrawl.engines.local import map_tasks
from longcrawl.errors import RunError


def end_worker(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_killed_before_the_last_task_is_submitted_is_one_sentence():
    with pytest.raises(RunError, match="a worker process was killed"):
        list(map_tasks(end_worker, range(20_000), 2))
