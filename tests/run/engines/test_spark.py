"""The engine Spark: the same files as one process, whatever is killed. Skipped where PySpark or Java is missing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

import longcrawl as lc
from longcrawl.errors import RunError
from longcrawl.io.files import PARTIAL
from longcrawl.run import segments
from longcrawl.run.engines import Exchange, Spark
from longcrawl.run.engines import spark as spark_engine

cloudpickle = pytest.importorskip("pyspark", reason="PySpark is missing: pip install -e '.[spark]'").cloudpickle
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is missing: apt install openjdk-17-jre-headless"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file

FILES = 4
WAIT = 200.0
"""Seconds to a kill in a run, at most: on a loaded machine its later steps begin after a minute."""
WORDS = [f"word{number}" for number in range(40)]
STAGES = [
    "urls",
    "exact_documents",
    {"min_hash": {"bands": 8, "rows": 2, "ngram": 2, "unit": "word"}},
    {"exact_substring": {"unit": "character", "min_tokens": 40, "min_characters": 0}},
    {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300, "train_documents": 40}},
    "shuffle",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Spark]:
    """Two executors, which are processes of their own, of one core each."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"] = sys.executable, "127.0.0.1"
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    session = builder.config("spark.task.maxFailures", 3).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield Spark(session)
    session.stop()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spark")
    for number in range(FILES):
        with (folder / f"{number}.jsonl").open("w") as lines:
            for row in range(30):
                words = [WORDS[(row * place + number * (row % 3)) % len(WORDS)] for place in range(1, 30)]
                url = f"https://example.org/{row % 7 if row < 9 else f'{number}/{row}'}"
                lines.write(json.dumps({"id": f"{number}-{row}", "text": " ".join(words), "url": url}) + "\n")
    source = {"builder": "text", "id_field": "id", "data_files": [str(folder / f"{n}.jsonl") for n in range(FILES)]}
    spec = {
        "longcrawl": 1,
        "name": "spark",
        "source": source,
        "stages": STAGES,
        "outputs": {"datatrove": {"shard_bytes": 1500}},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture(scope="module")
def whole(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    lc.run(recipe, out)
    return out


class Marks:
    """Files that tasks leave: one when they begin, with their process, and one when they end."""

    def __init__(self, folder: Path, killed: str) -> None:
        self.folder, self.killed = folder, killed
        folder.mkdir()

    def find(self, kind: str, name: str) -> list[Path]:
        return list(self.folder.glob(f"{kind}-{name}-*"))

    def begin(self, name: str) -> None:
        """Begin a task; the first attempt of one of them waits to be killed."""
        first = not self.find("began", name)
        mark = self.folder / f"new-{uuid.uuid4()}"
        mark.write_text(f"{os.getpid()} {os.getppid()}")
        mark.rename(self.folder / f"began-{name}-{uuid.uuid4()}")
        end = time.monotonic() + WAIT
        while name == self.killed and first and os.getppid() != 1 and time.monotonic() < end:
            time.sleep(0.05)

    def end(self, name: str) -> None:
        (self.folder / f"ended-{name}-{uuid.uuid4()}").touch()

    def kill(self, victim: str) -> None:
        """Kill the task that waits for it, as soon as it does: its process, or the executor that this is part of."""
        wait_until(lambda: self.find("began", self.killed), WAIT)
        worker, daemon = map(int, self.find("began", self.killed)[0].read_text().split())
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
        os.kill(executor if victim == "executor" else worker, signal.SIGKILL)


def wait_until(true, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def double(marks: Marks, task: int) -> int:
    marks.begin(f"task{task}")
    marks.end(f"task{task}")
    return 2 * task


def make(marks: Marks, task: int):
    for partition in range(3):
        yield partition, pa.table({"number": pa.array(range(partition, task, 3), pa.int64())})
        if partition == 1:
            marks.begin(f"make{task}")
    marks.end(f"make{task}")


def take(marks: Marks, partition: int, tables) -> pa.Table:
    found = [next(tables)]
    marks.begin(f"take{partition}")
    table = pa.concat_tables([*found, *tables]).sort_by("number").combine_chunks()
    marks.end(f"take{partition}")
    return table


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["executor", "worker"])
@pytest.mark.parametrize("killed", ["task1", "make5", "take2"])
def test_what_is_killed_is_done_again(cluster, tmp_path, killed, victim):
    marks = Marks(tmp_path / "marks", killed)
    step = Exchange(partial(make, marks), partial(take, marks), 3, tmp_path / "step")
    with ThreadPoolExecutor(1) as beside:
        killing = beside.submit(marks.kill, victim)
        if killed.startswith("task"):
            assert sorted(cluster.tasks(partial(double, marks), [0, 1, 2, 3])) == [0, 2, 4, 6]
        else:
            cluster.exchange(step, [5, 8, 2])
            expected = [sorted(n for task in (5, 8, 2) for n in range(task) if n % 3 == rest) for rest in range(3)]
            assert [step.read(partition)["number"].to_pylist() for partition in range(3)] == expected
        killing.result()
    assert len(marks.find("began", killed)) > len(marks.find("ended", killed)) >= 1


def refuse(_):
    raise RunError("one sentence")


def refuse_table(_, __):
    raise RunError("one sentence")


def make_or_refuse(task):
    yield from ((partition, pa.table({"number": [task] * 50_000})) for partition in range(3))
    if task == 1:
        raise RunError("one sentence")


def joined(_, tables):
    return pa.concat_tables(tables).combine_chunks()


@pytest.mark.slow
def test_no_partition_is_finished_without_the_rows_of_a_task_that_failed(cluster, tmp_path):
    step = Exchange(make_or_refuse, joined, 3, tmp_path / "step")
    with pytest.raises(RunError, match="^one sentence$"):
        cluster.exchange(step, [0, 1, 2, 3])
    assert step.waiting() == [0, 1, 2]


@pytest.mark.slow
def test_an_error_of_a_worker_is_raised_as_it_is(cluster, tmp_path):
    with pytest.raises(RunError, match="^one sentence$"):
        list(cluster.tasks(refuse, [1, 2]))
    step = Exchange(partial(make, Marks(tmp_path / "marks", "")), refuse_table, 4, tmp_path / "step")
    with pytest.raises(RunError, match="^one sentence$"):
        cluster.exchange(step, [5])


def test_a_worker_with_other_versions_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(spark_engine, "installed_versions", lambda: {"longcrawl": "0"})
    with pytest.raises(
        RunError, match="a worker on .* has brotli .*, but the driver has not installed: install the same"
    ):
        list(cluster.tasks(abs, [1]))


def test_java_that_is_missing_is_one_sentence(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(
        RunError, match="^Spark needs Java 17 or 21, which is not installed: apt install openjdk-17-jre"
    ):
        list(Spark(master="local[1]").tasks(abs, [1]))


def test_a_run_has_the_files_of_one_process(cluster, recipe, whole, tmp_path, small_limits, directory_digest):
    lc.run(recipe, tmp_path / "out", engine=cluster)
    assert directory_digest(tmp_path / "out") == directory_digest(whole)


class Marked:
    """An engine whose tasks leave marks where a test may kill them.

    ``run_part-2.1`` is the second task of the third call of that function, ``make-first.1`` and ``take-first.1`` are of
    the exchange in the folder ``first``, and ``shard-000001.2`` is the second file that a task of an output names.
    """

    def __init__(self, engine: Spark, marks: Marks, calls: Counter[str] | None = None) -> None:
        self.engine, self.marks = engine, marks
        self.check, self.calls = engine.check, Counter() if calls is None else calls

    @contextmanager
    def hold(self, work: Path, is_finished):
        with self.engine.hold(work, is_finished) as held:
            yield Marked(held, self.marks, self.calls)

    def tasks(self, function, tasks):
        called = getattr(function, "func", function)
        if called is segments.write_file:
            return self.engine.tasks(partial(write_marked, self.marks, function), tasks)
        label = f"{called.__name__}-{self.calls[called.__name__]}"
        self.calls[called.__name__] += 1
        return self.engine.tasks(partial(do_marked, self.marks, label, list(tasks), function), tasks)

    def exchange(self, step, tasks):
        make = partial(make_marked, self.marks, f"make-{step.folder.name}", list(tasks), step.make)
        take = partial(take_marked, self.marks, f"take-{step.folder.name}", step.take)
        self.engine.exchange(replace(step, make=make, take=take), tasks)


def do_marked(marks: Marks, label: str, tasks, function, task):
    name = f"{label}.{tasks.index(task)}"
    marks.begin(name)
    done = function(task)
    marks.end(name)
    return done


def make_marked(marks: Marks, label: str, tasks, make, task):
    """Make the rows of a task; mark it behind the first of them."""
    name = f"{label}.{tasks.index(task)}"
    for number, row in enumerate(make(task)):
        yield row
        if number == 0:
            marks.begin(name)
    marks.end(name)


def take_marked(marks: Marks, label: str, take, partition, tables):
    name, found = f"{label}.{partition}", [*islice(tables, 1)]
    if not found:  # of a partition without rows the driver takes none
        return take(partition, tables)
    marks.begin(name)
    table = take(partition, chain(found, tables))
    marks.end(name)
    return table


def write_marked(marks: Marks, write, task):
    """Do a task that writes files of an output; mark it at the first one that is whole, and at the second."""
    renamed, rename = [], Path.replace

    def marked(beside: Path, path: Path) -> Path:
        if PARTIAL in beside.name:
            renamed.append(path)
            marks.begin(f"{task[0].name}.{len(renamed)}")
        return rename(beside, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", marked)
        done = write(task)
    for number in range(len(renamed)):
        marks.end(f"{task[0].name}.{number + 1}")
    return done


KILLED = [
    "list_ids-1.0",
    "run_part-2.1",
    "_write-1.3",
    "make-meeting-4.2",
    "take-meeting-4.3",
    "make-link-0.1",
    "take-choose.3",
    "make-anchors.1",
    "take-linked.0",
    "make-order-all-any.2",
    "take-order-all-any.0",
    "shard-000001.1",
    "shard-000001.2",
]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["executor", "worker"])
@pytest.mark.parametrize("killed", KILLED)
def test_a_run_of_which_a_task_is_killed_is_that_of_one_process(
    cluster, recipe, whole, tmp_path, killed, victim, small_limits, directory_digest
):
    marks = Marks(tmp_path / "marks", killed)
    with ThreadPoolExecutor(1) as beside:
        killing = beside.submit(marks.kill, victim)
        lc.run(recipe, tmp_path / "out", engine=Marked(cluster, marks))
        killing.result()
    assert len(marks.find("began", killed)) > len(marks.find("ended", killed)) >= 1
    assert (tmp_path / "out" / "manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()
    assert directory_digest(tmp_path / "out") == directory_digest(whole)


@pytest.mark.slow
@pytest.mark.parametrize("engines", ["spark, then local", "local, then spark"])
def test_a_driver_that_is_killed_is_followed_by_another_engine(
    cluster, recipe, whole, tmp_path, engines, monkeypatch, directory_digest
):
    out = tmp_path / "out"
    first = ["--engine", "spark", "--master", "local[2]"] if engines.startswith("spark") else []
    words = [sys.executable, "-m", "longcrawl", "run", recipe, "--out", out, *first]
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL) as command:
        wait_until(lambda: len([*out.glob("work/segment-0/*.json")]) >= 2)
        os.killpg(command.pid, signal.SIGKILL)
    assert not (out / "manifest.json").exists()
    before = {path: path.stat().st_mtime_ns for path in out.glob("work/segment-0/*.json")}
    kept, remove = [], shutil.rmtree

    def note_and_remove(path, *words, **named):
        if path == out / "work":
            kept.append({each: each.stat().st_mtime_ns for each in before})
        remove(path, *words, **named)

    monkeypatch.setattr(shutil, "rmtree", note_and_remove)
    lc.run(recipe, out, engine=None if first else cluster)
    assert kept == [before]
    assert directory_digest(out) == directory_digest(whole)


@pytest.mark.slow
def test_divided_files_give_the_files_of_one_process(cluster, tmp_path, divided, directory_digest):
    for recipe in divided.recipes(tmp_path):
        lc.run(recipe, tmp_path / "one" / recipe.stem)
        lc.run(recipe, tmp_path / "cluster" / recipe.stem, engine=cluster)
        assert len(list((tmp_path / "one" / recipe.stem / "ledger").iterdir())) > 2
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "cluster")
