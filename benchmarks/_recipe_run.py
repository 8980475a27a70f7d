"""A run of a recipe in a process of its own, with the CPU seconds of each step: for ``recipes.py`` and ``scaling.py``.

Steps are those of the run's own clock, with the blocks in them that are asked for below taken out: a second belongs to
the innermost one. Those of worker processes are seen by the clock of their task alone, so steps are of one process.

With a master of Spark in place of a number of processes, only the time by the clock is measured.

Those of several processes are of the leading one; "path" also has how long it waits for tasks, by their kind.
With one process, "phases" lists the tasks of each call to the engine, with CPU seconds and peak memory, and "alone" the
seconds of each step outside of tasks, which all other processes wait for.
"""

import contextlib
import gc
import heapq
import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.thread import _WorkItem
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _measures import Tree

START, WORKERS, COMPILER = "start-up", "starting workers", "loading the compiler"
READ, WRITE, KEPT = "reading", "writing", "documents between segments"
HELD = "BENCHMARK_HELD"
"""Variable of the environment with the bytes of sketches that one process decides about, for fewer than usual."""


class Steps:
    """Adds up seconds and bytes by step; of blocks within each other, the inner one has them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.seconds: dict[str, float] = defaultdict(float)
        self.alone: dict[str, float] = defaultdict(float)
        """Seconds outside of tasks."""
        self.bytes: dict[str, int] = defaultdict(int)
        self.waited_for = "before and between"
        """Step of the run that is not part of a task."""
        self.in_task = False
        self._open: list[str] = ["other"]
        self._since = now()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self.book()
        self._open.append(name)
        try:
            yield
        finally:
            self.book()
            self._open.pop()

    @property
    def within(self) -> str:
        """The innermost block."""
        return self._open[-1]

    def book(self) -> None:
        """Add the time since the last call to the innermost block."""
        now = self.now()
        self.seconds[self._open[-1]] += now - self._since
        if not self.in_task:
            self.alone[f"{self.waited_for}: {self._open[-1]}"] += now - self._since
        self._since = now

    def skip(self) -> None:
        """Leave out the time since the last call, which the benchmark itself took."""
        self._since = self.now()

    def name_waits(self, measure: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``measure`` of a run's costs that also names what is not part of a task."""

        @contextmanager
        def named(costs: Any, label: str, step: str) -> Iterator[Any]:
            self.book()
            before, self.waited_for = self.waited_for, f"{label} {step}"
            try:
                with measure(costs, label, step) as cost:
                    yield cost
            finally:
                self.book()
                self.waited_for = before

        return named

    def around(self, owner: Any, name: str, step: str) -> None:
        """Count what a function takes as a step."""
        function = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            with self.of(step):
                return function(*arguments, **named)

        setattr(owner, name, counted)


def in_threads(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Call a function; return its result, and the CPU seconds of this process and of its busiest thread meanwhile."""
    taken: dict[int, float] = defaultdict(float)
    run = _WorkItem.run

    def count(item: Any) -> None:
        started = time.thread_time()
        run(item)
        taken[threading.get_ident()] += time.thread_time() - started

    started, began = time.process_time(), time.thread_time()
    _WorkItem.run = count  # type: ignore[method-assign]  # nothing else says which thread has done what
    try:
        result = function(*arguments)
    finally:
        _WorkItem.run = run  # type: ignore[method-assign]  # put back
    spent, here = time.process_time() - started, time.thread_time() - began
    others = spent - here - sum(taken.values())  # threads that take no tasks of a pool, such as zarr's loop
    return result, spent, max(here, others, *taken.values(), 0.0)


class LongestPath:
    """CPU seconds of a run of several processes, in tasks: what waits for them waits for the busiest process.

    What the leading process does between the first and the last result has its share of the cores meanwhile.
    """

    def __init__(self) -> None:
        self.waited = defaultdict[str, float](float)
        self.tasks = 0.0

    def around(self, map_tasks: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``map_tasks`` that adds up what its processes take."""

        def timed(function: Any, tasks: Any, num_proc: int, workers: Any = None) -> Iterator[Any]:
            if num_proc <= 1 or not len(tasks):
                yield from map_tasks(function, tasks, num_proc, workers)
                return
            busy, last, own = Counter[int](), dict[int, tuple[float, float]](), list[float]()
            before, are_alone = self.tasks, has_cores(len(tasks), num_proc)
            for result, process, seconds, longest in map_tasks(Timed(function), tasks, num_proc, workers):
                own.append(time.process_time())
                busy[process] += longest if are_alone else seconds
                last[process] = seconds, longest / max(seconds, 1e-9)
                self.tasks += seconds
                yield result
            meanwhile = own[-1] - own[0]
            taken = self.tasks - before + meanwhile
            slowest = max(busy, key=lambda process: busy[process])
            ended = busy[slowest] if are_alone else last_end([*busy.values()], *last[slowest], num_proc)
            self.waited[task_name(function, tasks)] += max(taken / num_proc, ended, meanwhile) - meanwhile

        return timed

    def seconds(self, num_proc: int, own: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds by step: those of this process, of the busiest ones, and of starting and ending each."""
        ended = os.times()
        around_tasks = max(ended.children_user + ended.children_system - self.tasks, 0.0)
        return {**self.waited, **own, WORKERS: around_tasks / num_proc}


def has_cores(tasks: int, cores: int) -> bool:
    """Return whether the threads of a task have more than one core, so that only the busiest is waited for."""
    return 2 * tasks <= cores


def last_end(ends: Sequence[float], last: float, threads: float, cores: int) -> float:
    """Return when the last process ends if the threads of its ``last`` task have all cores once it is alone.

    ``ends`` has the seconds of all processes, and ``threads`` the share of a task that its busiest thread takes.

    >>> last_end([1.0, 3.0], 3.0, 0.25, 2)
    2.0
    """
    final, before = heapq.nlargest(2, [*ends, 0.0])
    alone = min(final - before, last)
    return final - alone * (1 - max(threads, 1 / cores))


def task_name(function: Any, tasks: Any) -> str:
    """Return the name of the tasks of a call to the engine."""
    name = getattr(getattr(function, "func", function), "__name__", "task")
    return f"{name} {tasks[0].segment.number}" if len(tasks) and hasattr(tasks[0], "segment") else name


class Phases:
    """Calls to the engine of a run by one process, with CPU seconds and peak memory of each task."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.found: list[dict[str, Any]] = []

    def around(self, map_tasks: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``map_tasks`` that records the tasks of one process."""

        def recorded(function: Any, tasks: Any, num_proc: int, workers: Any = None) -> Iterator[Any]:
            if num_proc > 1:
                yield from map_tasks(function, tasks, num_proc, workers)
                return
            seconds, longest, memory = list[float](), list[float](), list[int]()
            self.found.append(
                {"name": task_name(function, tasks), "seconds": seconds, "longest": longest, "memory": memory}
            )

            def timed(task: Any) -> Any:
                self.steps.book()
                forget_peak()
                self.steps.skip()
                self.steps.in_task = True
                try:
                    result, _, taken, busiest = Timed(function)(task)
                finally:
                    self.steps.book()
                    self.steps.in_task = False
                seconds.append(taken)
                longest.append(busiest)
                memory.append(peak())
                self.steps.skip()
                return result

            yield from map_tasks(timed, tasks, 1)

        return recorded


def forget_peak() -> None:
    """Have Linux count the peak memory of this process from here."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the peak memory of this process and of its children, in bytes."""
    tree = Tree(os.getpid())
    tree.look()
    return sum(tree.peaks())


def nothing(_: int) -> None:
    """Do nothing: a task that shows what starting a worker costs."""


def worker_seconds(map_tasks: Callable[..., Any], workers: int = 8) -> tuple[float, float]:
    """Return the CPU seconds of starting and ending a worker: of this process, and of the worker."""
    started, before = time.process_time(), os.times()
    for _ in map_tasks(nothing, range(workers), workers):
        pass
    own, after = time.process_time() - started, os.times()
    others = after.children_user + after.children_system - before.children_user - before.children_system
    return own / workers, others / workers


class Timed:
    """A task that also returns its process, and the CPU seconds of that and of its busiest thread."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, task: Any) -> tuple[Any, int, float, float]:
        from longcrawl.core.clock import cpu_seconds

        started = cpu_seconds()
        result, spent, busiest = in_threads(self.function, task)
        seconds = cpu_seconds() - started
        return result, os.getpid(), seconds, busiest + max(seconds - spent, 0.0)


def rows_of(folder: Path) -> int:
    """Return the rows of all parquet files of a folder."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


def text_bytes(table: Any) -> int:
    """Return the bytes of pages, texts or tokens, whichever documents have."""
    column = next(name for name in ("html", "text", "tokens", *table.column_names) if name in table.column_names)
    return int(table[column].nbytes)


def count_batches(kind: type[Any], label: str, steps: Steps) -> None:
    """Count the bytes that reach a stage, and what a survey sketches as the survey's."""
    apply = kind.apply

    def counted(self: Any, table: Any) -> Any:
        steps.bytes[label] += text_bytes(table)
        return apply(self, table)

    kind.apply = counted
    if hasattr(kind, "sketch"):
        sketch = kind.sketch

        def sketched(self: Any, table: Any) -> Any:
            if steps.within != label:
                steps.bytes[label] += text_bytes(table)
            with steps.of(label):
                return sketch(self, table)

        kind.sketch = sketched


def load_run() -> Callable[..., Any]:
    """Return ``longcrawl.run``, imported as the command imports it: without pandas or garbage collection."""
    gc.disable()
    from longcrawl.cli.commands import leave_pandas_out

    leave_pandas_out()
    import longcrawl

    run: Callable[..., Any] = longcrawl.run
    gc.freeze()
    gc.enable()
    return run


def spark_seconds(run: Callable[..., Any], recipe: str, out: str, master: str, settings: list[str]) -> float:
    """Return the seconds of a run on Spark by the clock, once a worker of each executor has started."""
    from longcrawl.run.engines import Spark

    engine = Spark(master=master)
    for _ in engine.tasks(nothing, range(8)):
        pass
    before = time.monotonic()
    run(recipe, out, engine=engine, overrides=settings)
    return time.monotonic() - before


def main() -> None:
    recipe, out, count, *settings = sys.argv[1:]
    run = load_run()
    if not count.isdigit():
        print(json.dumps({"wall": spark_seconds(run, recipe, out, count, settings)}))
        return
    num_proc = int(count)
    from longcrawl.core import clock
    from longcrawl.io import files, structured
    from longcrawl.kernels import compiling
    from longcrawl.run import inputs as decisions
    from longcrawl.run import job, manifest, part
    from longcrawl.run.engines import local
    from longcrawl.run.recipe import load_recipe

    start_up = time.process_time()
    now = clock.cpu_seconds if num_proc == 1 else time.process_time
    steps, path = Steps(now), LongestPath()
    phases = Phases(steps)
    loaded = load_recipe(recipe, settings)
    names = {loaded.source.name: READ, loaded.output.name: WRITE, "read": READ, "all": WRITE, "write": WRITE}

    @contextmanager
    def measure(self: Any, name: str) -> Iterator[None]:
        started = clock.cpu_seconds()
        with steps.of(names.get(name, name)):
            yield
        self.seconds[name] += clock.cpu_seconds() - started

    clock.CoreClock.measure = measure  # type: ignore[method-assign]  # counted here instead
    for owner, name, step in (
        (compiling.Kernel, "compile", "kernels"),  # what is compiled; kernels on disk load within their steps
        (files, "checksum", "digests"),
        (structured, "checksum", "digests"),
        (structured.Marker, "write", "markers"),
        (structured.Marker, "entries", "markers"),
        (structured.Marker, "problems", "markers"),
        (job, "analyse", "analysis"),
        (job, "write_card", "card"),
        (part, "_keep", KEPT),
    ):
        steps.around(owner, name, step)
    for kind in {type(stage): label for label, stage in reversed(loaded.stages)}.items():
        count_batches(*kind, steps)
    manifest.RunCosts.measure = steps.name_waits(manifest.RunCosts.measure)  # type: ignore[method-assign]
    start_workers = local.map_tasks
    local.map_tasks = phases.around(path.around(local.map_tasks))
    decisions.HELD = int(os.environ.get(HELD, decisions.HELD))
    before = time.monotonic()
    inputs = part._input  # noqa: SLF001  # tables are read nowhere else

    def read(task: Any, *others: Any) -> Iterator[Any]:
        tables = iter(inputs(task, *others))
        while True:
            with steps.of(READ if task.segment.number == 0 else KEPT):
                if (table := next(tables, None)) is None:
                    return
            if task.segment.number == 0:
                steps.bytes[READ] += text_bytes(table)
            yield table

    part._input = read  # noqa: SLF001  # tables are read nowhere else
    with steps.of(COMPILER):  # a run does so before its first tasks or, by one process, in the first one
        compiling.load_compiler()
    done = run(loaded, out, num_proc)
    steps.book()
    wall = time.monotonic() - before
    taken = {START: start_up} | dict(steps.seconds)
    print(
        json.dumps(
            {
                "steps": taken,
                "bytes": steps.bytes,
                "cpu": sum(taken.values()) + path.tasks,
                "wall": wall,
                "path": taken if num_proc == 1 else path.seconds(num_proc, {START: start_up} | steps.alone),
                "alone": steps.alone,
                "phases": phases.found,
                "output": files.folder_bytes(Path(out) / loaded.output.name),
                "rows": {"kept": done.funnel.kept} | {name: rows_of(Path(out) / name) for name in ("ledger", "edits")},
                "worker": worker_seconds(start_workers),
            }
        )
    )


if __name__ == "__main__":
    main()
