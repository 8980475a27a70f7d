"""A run of a recipe in a process of its own, with the CPU seconds of each of its steps: for ``recipes.py``.

Steps are those of the run's own clock, with the blocks in them that are asked for below taken out: a second belongs to
the innermost one. Those of worker processes are seen by the clock of their task alone, so steps are of one process.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures.thread import _WorkItem
from contextlib import contextmanager
from typing import Any

READ, WRITE, KEPT = "reading", "writing", "documents between segments"


class Steps:
    """Adds up seconds and bytes by step; of blocks within each other, the inner one has them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.seconds: dict[str, float] = defaultdict(float)
        self.bytes: dict[str, int] = defaultdict(int)
        self._open: list[str] = ["other"]
        self._since = now()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    @property
    def within(self) -> str:
        """The innermost block."""
        return self._open[-1]

    def _book(self) -> None:
        now = self.now()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def finish(self) -> None:
        self._book()

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
    """CPU seconds through a run of several processes: what waits for tasks waits for the busiest of them."""

    def __init__(self) -> None:
        self.waited = self.tasks = self.beside = 0.0

    def around_threads(self, function: Callable[..., Any], num_proc: int) -> Callable[..., Any]:
        """Return a function whose threads run beside each other in as many cores as there are processes."""

        def timed(*arguments: Any) -> Any:
            result, spent, busiest = in_threads(function, *arguments)
            self.beside += spent - max(busiest, spent / num_proc)
            return result

        return timed

    def around(self, map_tasks: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``map_tasks`` that adds up what its processes take."""

        def timed(function: Any, tasks: Any, num_proc: int) -> Iterator[Any]:
            if num_proc <= 1 or len(tasks) <= 1:
                yield from map_tasks(function, tasks, num_proc)
                return
            taken, busiest = 0.0, defaultdict[int, float](float)
            for result, process, seconds, longest in map_tasks(Timed(function), tasks, num_proc):
                taken += seconds
                busiest[process] += longest
                yield result
            self.waited += max(taken / num_proc, *busiest.values())
            self.tasks += taken

        return timed

    def seconds(self, num_proc: int) -> float:
        """Return the seconds of this process, of the busiest ones, and of starting and ending each."""
        own, ended = time.process_time(), os.times()
        around_tasks = max(ended.children_user + ended.children_system - self.tasks, 0.0)
        return own - self.beside + self.waited + around_tasks / num_proc


class Timed:
    """A task that also returns its process, and the CPU seconds of that and of its busiest thread."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, task: Any) -> tuple[Any, int, float, float]:
        from longcrawl.core.stages import _seconds

        started = _seconds()
        result, spent, busiest = in_threads(self.function, task)
        seconds = _seconds() - started
        return result, os.getpid(), seconds, busiest + max(seconds - spent, 0.0)


class WrittenHere:
    """Writes a file, counting threads in this process alone: those of as many workers have no core to themselves."""

    def __init__(self, write: Callable[..., Any], counting: Callable[..., Any]) -> None:
        self.write, self.counting = write, counting

    def __call__(self, *task: Any) -> Any:
        return self.counting(*task)

    def __reduce__(self) -> tuple[Any, ...]:
        return _uncounted, ()


def _uncounted() -> Callable[..., Any]:
    from longcrawl.run import segments

    return getattr(segments.write_file, "write", segments.write_file)


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


def main() -> None:
    recipe, out, num_proc, *settings = sys.argv[1:]
    import longcrawl as lc

    run = lc.run
    from longcrawl.core import stages
    from longcrawl.io import files, structured
    from longcrawl.kernels import compiling
    from longcrawl.run import job, part, segments
    from longcrawl.run.engines import local
    from longcrawl.run.recipe import load_recipe

    start_up = time.process_time()
    now = stages._seconds  # noqa: SLF001  # a benchmark of it
    steps, path = Steps(now), LongestPath()
    loaded = load_recipe(recipe, settings)
    names = {loaded.source.name: READ, loaded.output.name: WRITE, "read": READ, "all": WRITE, "write": WRITE}

    @contextmanager
    def measure(self: Any, name: str) -> Iterator[None]:
        started = now()
        with steps.of(names.get(name, name)):
            yield
        self.seconds[name] += now() - started

    stages.CoreClock.measure = measure  # type: ignore[method-assign]  # counted here instead
    for owner, name, step in (
        (compiling.Kernel, "_compile", "kernels"),  # what is compiled; kernels on disk load within their steps
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
    local.map_tasks = path.around(local.map_tasks)
    segments.write_file = WrittenHere(segments.write_file, path.around_threads(segments.write_file, int(num_proc)))
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
    run(loaded, out, int(num_proc))
    steps.finish()
    wall = time.monotonic() - before
    print(
        json.dumps(
            {
                "steps": {"start-up": start_up} | dict(steps.seconds),
                "bytes": steps.bytes,
                "cpu": start_up + sum(steps.seconds.values()),
                "wall": wall,
                "path": path.seconds(int(num_proc)),
            }
        )
    )


if __name__ == "__main__":
    main()
