"""The Spark engine: tasks run as Apache Spark tasks, and exchanges use its shuffle.

Documents never pass through the JVM: a task reads and writes its own files in a folder that all machines see. Spark
shuffles packed tables, each a row of (partition, bytes). Finished work is recorded only by the files of the run.
"""

import base64
import gc
import os
import pickle
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from longcrawl.core.exchange import Exchange, pack_table, unpack_table
from longcrawl.core.progress import SECONDS, look_at_progress
from longcrawl.core.registry import installed_versions
from longcrawl.errors import LongCrawlError, RunError
from longcrawl.run.engines.hold import HeldAlone
from longcrawl.run.engines.local import answer, pack, restorable, result_of, unpack

T = TypeVar("T")
R = TypeVar("R")
Batches = Iterator[pa.RecordBatch]

JOBS = 64
"""Largest number of Spark jobs for the tasks of one call; results arrive job by job, so that progress can be shown."""
ATTEMPTS = 8
"""Attempts of each task in sessions opened here; more than Spark's 4, as clusters often take machines away."""
BATCH = 4 << 20
"""Bytes of packed tables after which a batch of them is passed on."""
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
SENT = pa.schema([("p", pa.int32()), ("rows", pa.binary()), ("error", pa.binary())])
ANSWER = "answer binary"
ERROR = re.compile(r"longcrawl-error:([A-Za-z0-9+/=]+)")


@dataclass(frozen=True)
class Spark(HeldAlone):
    """Engine of an Apache Spark cluster, 4.1 or newer; all machines need the run's folder and longcrawl installed.

    Args:
        session: the Spark session to use, such as that of spark-submit, a notebook or Databricks. None to use the
            active session or open a new one.
        master: the master of a session to open, such as "local[4]" or "spark://host:7077"; None for Spark's own
            configuration.
    """

    session: Any = None
    master: str | None = None
    _opened: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task and yield the results as they arrive, in any order."""
        return self._while_held(self._tasks(function, tasks))

    def _tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Generator[R, None, None]:
        if not tasks:
            return
        session, tag = self._session(), f"longcrawl-{uuid.uuid4()}"

        def run_job(some: Sequence[T]) -> list[tuple[bool, Any]]:
            session.addTag(tag)  # applies to the jobs of this thread
            return _collect(_each(session, _on_worker(_answer, function, list(some)), len(some), ANSWER))

        at_once = -(-len(tasks) // JOBS)
        slices = [tasks[first : first + at_once] for first in range(0, len(tasks), at_once)]
        with ThreadPoolExecutor(len(slices)) as pool:
            try:
                running = {pool.submit(run_job, some) for some in slices}
                while running:
                    done, running = wait(running, SECONDS, FIRST_COMPLETED)
                    look_at_progress()
                    for job in done:
                        yield from map(result_of, job.result())
            finally:
                session.interruptTag(tag)
                pool.shutdown(wait=True, cancel_futures=True)

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Carry out an exchange by Spark's shuffle."""
        self.check()
        if not step.waiting():
            return
        session = self._session()
        rows = _each(session, _on_worker(_make, step, list(tasks)), len(tasks), "p int, rows binary, error binary")
        taken = rows.repartitionById(step.partitions, "p").mapInArrow(_on_worker(_take, step), ANSWER)
        before = session.conf.get(BATCH_BYTES)
        session.conf.set(BATCH_BYTES, str(BATCH))  # a row is a packed table: 10,000 of them may be gigabytes
        try:
            answers = _collect(taken)
        finally:
            session.conf.set(BATCH_BYTES, before)
        finished = set(map(result_of, answers))
        for number in sorted(set(range(step.partitions)) - finished):  # partitions without rows
            step.write(number, ())
        self.check()

    def _session(self) -> Any:
        if self.session is None and not self._opened:
            self._opened.append(_open_session(self.master))
        return self._opened[0] if self.session is None else self.session


def _open_session(master: str | None) -> Any:
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise RunError("the engine spark needs PySpark: pip install 'longcrawl[spark]'") from missing
    if (active := SparkSession.getActiveSession()) is not None and master is None:
        return active
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise RunError(
            "Spark needs Java 17 or 21, which is not installed: apt install openjdk-17-jre-headless, conda install "
            "openjdk=17, or set JAVA_HOME"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("longcrawl").config("spark.task.maxFailures", ATTEMPTS)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(re.sub(r"^(local\[[^],]+)\]$", rf"\1,{ATTEMPTS}]", master))
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as failed:
        raise RunError(f"Spark did not start: it needs Java 17 or 21, see its messages above ({failed})") from failed


def _each(session: Any, function: Callable[[Batches], Batches], count: int, schema: str) -> Any:
    """Map a function over the numbers below ``count``, each in its own Spark task; return the data frame."""
    return session.range(0, count, 1, max(count, 1)).mapInArrow(function, schema)


def _collect(answers: Any) -> list[tuple[bool, Any]]:
    try:
        rows = answers.collect()
    except Exception as failed:
        raise _original(failed) from failed
    return [pickle.loads(row["answer"]) for row in rows]  # noqa: S301  # from workers that this process started


def _chosen(tasks: Sequence[T], numbers: Batches) -> Iterator[T]:
    return (tasks[number] for batch in numbers for number in batch["id"].to_pylist())


def _answer(function: Callable[[Any], Any], tasks: Sequence[Any], numbers: Batches) -> Batches:
    for task in _chosen(tasks, numbers):
        yield _answered(function, task)


def _make(step: Exchange, tasks: Sequence[Any], numbers: Batches) -> Batches:
    """Make the rows of some tasks; send a LongCrawlError to all partitions, so that none finishes without its rows."""
    for task in _chosen(tasks, numbers):
        waiting, size = list[tuple[int, bytes | None, bytes | None]](), 0
        try:
            for partition, table in step.make(task):
                waiting.append((partition, packed := pack_table(table), None))
                if (size := size + len(packed)) >= BATCH:
                    yield _batch(waiting)
                    waiting, size = [], 0
        except LongCrawlError as failed:
            error = pickle.dumps(restorable(failed))
            waiting += ((partition, None, error) for partition in range(step.partitions))
        yield _batch(waiting)


def _batch(rows: Sequence[tuple[int, bytes | None, bytes | None]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [(), (), ()]
    return pa.record_batch(list(map(pa.array, columns, SENT.types)), schema=SENT)


def _take(step: Exchange, rows: Batches) -> Batches:
    """Finish the single partition in ``rows``, if any, and yield its number."""
    if (first := next(rows, None)) is not None:
        partition = first["p"][0].as_py()

        def finish(tables: Iterator[pa.Table]) -> int:
            step.write(partition, tables)
            return int(partition)

        yield _answered(finish, _tables(partition, chain([first], rows)))
    for _ in rows:  # after an error, Spark still expects all rows to be read
        pass


def _tables(partition: int, rows: Batches) -> Iterator[pa.Table]:
    for batch in rows:
        for number, packed, error in zip(batch["p"].to_pylist(), batch["rows"], batch["error"], strict=True):
            if number != partition:
                raise RunError(f"Spark sent rows of partition {number} with those of {partition}")
            if error.is_valid:
                raise pickle.loads(error.as_py())  # noqa: S301  # from workers of the same driver
            yield unpack_table(packed.as_buffer(), "Spark")


def _answered(function: Callable[[T], Any], task: T) -> pa.RecordBatch:
    return pa.record_batch({"answer": pa.array([answer(function, task)], pa.binary())})


def _on_worker(function: Callable[..., Batches], *arguments: Any) -> Callable[[Batches], Batches]:
    from pyspark import cloudpickle

    return partial(_unpacked, pack(function, arguments, installed_versions(), cloudpickle.dumps))


def _unpacked(packed: bytes, batches: Batches) -> Batches:
    """Run a function packed by :func:`_on_worker`; encode its error in a message that :func:`_original` decodes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        function, arguments = unpack(packed)
        _freeze_modules(len(sys.modules))
        yield from function(*arguments, batches)
    except Exception as failed:
        text = base64.b64encode(pickle.dumps(restorable(failed))).decode()
        raise RuntimeError(f"longcrawl-error:{text}") from failed


@cache
def _freeze_modules(_loaded: int) -> None:
    """Exclude loaded modules from garbage collection: PySpark collects after each task, which takes 0.1 s with them."""
    gc.freeze()


def _original(failed: Exception) -> Exception:
    if (found := ERROR.search(str(failed))) is not None:
        error: Exception = pickle.loads(base64.b64decode(found[1]))  # noqa: S301  # from workers that this process started
        return error
    if isinstance(failed, LongCrawlError):
        return failed
    reason = str(failed).strip().partition("\n")[0]
    return RunError(f"Spark ended a job of this run ({reason}): run the same command again; finished work is kept")
