"""Tasks in processes of this machine, and exchanges of rows between them through files."""

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from longcrawl.core.clock import LIVING, cpu_seconds
from longcrawl.core.registry import installed_versions
from longcrawl.errors import RunError
from longcrawl.io.structured import DamagedWorkError
from longcrawl.run.engines import Exchange, Local, Spark
from longcrawl.run.engines.local import answer, map_tasks, pack, run_packed


def end_worker(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.variants
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("tasks", [2, 5, 20_000])
def test_a_worker_killed_before_the_last_task_is_submitted_is_one_sentence(tasks):
    with pytest.raises(RunError, match="a worker process was killed"):
        list(map_tasks(end_worker, range(tasks), 2))


def meet_the_other(folder: Path) -> int:
    """Return the number of a worker once both have a task."""
    (folder / str(os.getpid())).touch()
    while len([*folder.iterdir()]) < 2:
        time.sleep(0.01)
    return os.getpid()


def pid_of(_: int) -> int:
    return os.getpid()


def test_a_single_task_of_several_processes_is_not_done_in_the_one_that_forks():
    assert list(map_tasks(pid_of, [0], 1)) == [os.getpid()]
    (worker,) = map_tasks(pid_of, [0], 2)
    assert worker != os.getpid()


def test_a_run_keeps_its_workers_from_step_to_step_and_counts_their_time(tmp_path):
    folders = [tmp_path / name for name in ("work", "first", "second")]
    for folder in folders:
        folder.mkdir()
    before = cpu_seconds()
    with Local(2).hold(folders[0], lambda: False) as engine:
        first, second = ({*engine.tasks(meet_the_other, [folder, folder])} for folder in folders[1:])
        assert first == second <= LIVING.keys()
        assert cpu_seconds() > before + sum(LIVING[each] for each in first) > before
    assert not first & LIVING.keys()
    assert not any(Path("/proc", str(worker)).exists() for worker in first)


@pytest.mark.variants
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


def numbers_by_remainder(task):
    """Send each number below a task's to its remainder by 3, and none to the fourth partition."""
    for partition in range(3):
        yield partition, pa.table({"number": pa.array(range(partition, task, 3), pa.int64())})


def no_numbers(task):
    raise RunError(f"task {task} is made again")


def sorted_numbers(_, tables):
    return (
        pa.concat_tables([pa.table({"number": pa.array([], pa.int64())}), *tables]).sort_by("number").combine_chunks()
    )


def rejected(_, tables):
    raise RunError(f"{len(list(tables))} tables are too many")


@pytest.mark.variants
@pytest.mark.parametrize("num_proc", [2, 1])
@pytest.mark.parametrize("tasks", [[7, 0, 10, 3], [], [0], [1]])
def test_an_exchange_brings_the_rows_of_all_tasks_together(tmp_path, num_proc, tasks):
    step = Exchange(numbers_by_remainder, sorted_numbers, 4, tmp_path / "step")
    assert step.waiting() == [0, 1, 2, 3]
    Local(num_proc).exchange(step, tasks)
    expected = [sorted(n for task in tasks for n in range(task) if n % 3 == partition) for partition in range(3)]
    assert [step.read(partition)["number"].to_pylist() for partition in range(4)] == [*expected, []]
    assert step.waiting() == []
    assert [path.name for path in tmp_path.iterdir()] == ["step"]


def test_what_is_there_of_an_exchange_is_not_made_again(tmp_path):
    step = Exchange(numbers_by_remainder, sorted_numbers, 4, tmp_path / "step")
    with pytest.raises(RunError, match="2 tables are too many"):
        Local().exchange(Exchange(numbers_by_remainder, rejected, 4, tmp_path / "step"), [4, 5])
    step.write(1, [pa.table({"number": [99]})])
    assert step.waiting() == [0, 2, 3]
    Local().exchange(Exchange(no_numbers, sorted_numbers, 4, tmp_path / "step"), [4, 5])
    assert step.read(1)["number"].to_pylist() == [99]
    assert step.read(0)["number"].to_pylist() == [0, 0, 3, 3]


def test_rows_that_were_cut_for_other_partitions_are_cut_again(tmp_path):
    with pytest.raises(RunError):
        Local().exchange(Exchange(numbers_by_remainder, rejected, 4, tmp_path / "step"), [4, 5])
    step = Exchange(numbers_by_remainder_of_two, sorted_numbers, 2, tmp_path / "step")
    Local().exchange(step, [4, 5])
    assert [step.read(partition)["number"].to_pylist() for partition in range(2)] == [[0, 0, 2, 2, 4], [1, 1, 3, 3]]


def numbers_by_remainder_of_two(task):
    for partition in range(2):
        yield partition, pa.table({"number": pa.array(range(partition, task, 2), pa.int64())})


def test_a_file_of_rows_that_is_missing_is_made_again(tmp_path):
    with pytest.raises(RunError):
        Local().exchange(Exchange(numbers_by_remainder, rejected, 4, tmp_path / "step"), [4, 5])
    (tmp_path / "step-rows" / "00001.rows").unlink()
    step = Exchange(numbers_by_remainder, sorted_numbers, 4, tmp_path / "step")
    with pytest.raises(DamagedWorkError, match=r"00001.rows is missing or has been changed") as found:
        read_again(step)
    found.value.stale[0].unlink()
    assert read_again(step) == [0, 0, 3, 3]


def read_again(step):
    Local().exchange(step, [4, 5])
    return step.read(0)["number"].to_pylist()


@pytest.mark.parametrize("kind", ["rows", "places", "arrow"])
def test_rows_that_were_changed_on_disk_are_found(tmp_path, kind):
    step = Exchange(numbers_by_remainder, sorted_numbers, 4, tmp_path / "step")
    if kind == "arrow":
        Local().exchange(step, [4, 5])
    else:
        with pytest.raises(RunError):
            Local().exchange(Exchange(numbers_by_remainder, rejected, 4, tmp_path / "step"), [4, 5])
    damaged = min(tmp_path.rglob(f"*.{kind}"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 3] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(DamagedWorkError) as found:
        read_again(step)
    for path in found.value.stale:
        path.unlink()
    assert read_again(step) == [0, 0, 3, 3]


def test_a_worker_with_other_versions_is_refused():
    versions = dict(installed_versions())
    assert run_packed(pack(abs, -1, versions)) == 1
    with pytest.raises(RunError, match=r"has tokenizers [\d.]+, but the driver has 0.0.1: install the same versions"):
        run_packed(pack(abs, -1, versions | {"tokenizers": "0.0.1"}))
    with pytest.raises(RunError, match="has extra-package not installed, but the driver has 1"):
        run_packed(pack(abs, -1, versions | {"extra-package": "1"}))


@pytest.mark.parametrize("name", ["pyspark", "pyspark.sql", "pyspark.errors"])
def test_spark_that_is_missing_is_one_sentence(monkeypatch, name):
    for loaded in [each for each in sys.modules if each.partition(".")[0] == "pyspark"]:  # by another test
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RunError, match=r"^the engine spark needs PySpark: pip install 'longcrawl\[spark\]'$"):
        list(Spark(master="local[1]").tasks(abs, [1]))


def test_options_of_one_engine_are_refused_with_another(longcrawl, tmp_path):
    done = longcrawl("run", "quickstart", "--out", tmp_path / "out", "--master", "local[2]")
    assert "RunError: --master local[2] needs the Spark engine: add --engine spark" in done.stderr
    done = longcrawl("run", "quickstart", "--out", tmp_path / "out", "--engine", "shared", "--num-proc", 2)
    assert "RunError: num_proc=2 works only with the engine local: remove num_proc or engine" in done.stderr
    assert not (tmp_path / "out").exists()


def _broken(number):
    return [][number]


def test_workers_ignore_the_interrupt_key_if_their_run_does():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert list(map_tasks(signal.getsignal, [signal.SIGINT] * 2, 2)) == [signal.SIG_DFL] * 2
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert list(map_tasks(signal.getsignal, [signal.SIGINT] * 2, 2)) == [signal.SIG_IGN] * 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_of_a_worker_has_the_traceback_that_it_had_there():
    done, failed = pickle.loads(answer(_broken, 3))
    assert (done, type(failed)) == (False, IndexError)
    assert "_broken" in failed.__notes__[0]
    assert "return [][number]" in failed.__notes__[0]
