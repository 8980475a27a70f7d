"""Measure each recipe with one and two processes, and simulate more cores from the times of its tasks.

    python benchmarks/scaling.py [--data LONGCRAWL_DATA] [--recipes datatrove …] [--sizes 4 16] [--cores 8 64 512]
        [--hours 24] [--held 1] [--turns 2] [--spark] [--set stages.extract_text.engine=blocks]

Inputs are those of ``recipes.py``, so many times the sample. Runs by one process record the CPU seconds and the peak
memory of each task, and the seconds that the leading process works alone: they come from ``_recipe_run.py``. Tasks are
then scheduled on more cores as an engine does: the tasks of a phase go in their order to whichever core is free, and
phases follow each other. A task whose threads have a core of their own takes as long as the busiest. A worker's start
counts as measured; the leader starts one after the other, once in a run.

What a phase takes, and how many tasks it has, grows as a line through both sizes; --hours of work for one core is the
input that is simulated beyond. Tasks have the sizes of the sample's up to 4,096 of them, as large files are read in so
many sections, and are larger beyond; what the leader does for each part or exchange then grows no more. Files of an
output have 500 MB, as by default, so each phase that writes or checks them is divided by that. To see how surveys
decide among many inputs, one process decides up to --held MB of sketches, not 64, and larger ones by exchanges. The
layout of the output and the card grow by the row, and are measured on a million rows; the card reads ledgers up to a
size only.

The speed-up is the CPU time of one process over the critical path. "beyond equal shares" are the steps by which the
path is longer than an equal share of all cores. Of the real runs the best of --turns counts. CPU seconds rise by a
quarter and more if other programs share the machine: measure on a quiet one. What two runs gain beside each other,
each by one process, is what the machine itself allows by wall. With --spark each recipe also runs on one and two
executors of a local cluster, of one core each. The last line is the least speed-up by two processes.
"""

import argparse
import heapq
import math
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _measures import best
from _needed import lacks
from _recipe_run import COMPILER, START, WORKERS, has_cores, last_end
from recipes import INPUTS, Inputs, run

from longcrawl.core.ledger import (
    LEDGER_SCHEMA,
    MOST_COUNTED,
    count_contamination,
    find_clusters,
    open_ledger,
    repeated_spans,
)
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.formats.order import order_documents, spill_documents
from longcrawl.run.divide import MOST

FILE_BYTES = 500e6
OF_FILES = ("write_file", "file_entries", "_count")
"""Tasks that write or read whole files of the output."""
SHOWN = 3
SPARK_MEGABYTES = 1024
GOAL = 1.8
ROWS = 1 << 20


@dataclass(frozen=True)
class Line:
    """Growth from one size of the input to another; never downwards."""

    base: float
    slope: float
    most: float = math.inf
    """Size from which on it grows no more."""

    @classmethod
    def through(cls, sizes: Sequence[int], values: Sequence[float]) -> "Line":
        """Return the line through the first and the last size; what only the last one has grows in proportion."""
        if len(sizes) == 1:
            return cls(values[0], 0.0)
        if not values[0]:
            return cls(0.0, values[-1] / sizes[-1])
        slope = max(values[-1] - values[0], 0.0) / (sizes[-1] - sizes[0])
        base = values[-1] - slope * sizes[-1]
        return cls(base, slope) if base > 0 else cls(0.0, values[-1] / sizes[-1])

    def at(self, size: float) -> float:
        """Return the value for a size of the input."""
        return self.base + self.slope * min(size, self.most)


@dataclass(frozen=True)
class Phase:
    """Tasks that do not wait for each other."""

    name: str
    seconds: Line
    tasks: Line
    shares: tuple[float, ...]
    """Seconds of the measured tasks, divided by their mean."""
    longest: float
    """Share of a task's seconds that its busiest thread takes."""
    memory: int

    def at(self, size: float, output_bytes: float) -> list[float]:
        """Return the seconds of each task for a size of the input."""
        seconds, count = self.seconds.at(size), min(max(round(self.tasks.at(size)), 1), MOST)
        if self.name.startswith(OF_FILES):
            count = max(count, int(output_bytes / FILE_BYTES))
        each = [self.shares[number % len(self.shares)] for number in range(count)]
        return [seconds * share / max(sum(each), 1e-9) for share in each]


@dataclass(frozen=True)
class Model:
    """Serial steps and phases of a recipe's run, by the size of the input."""

    alone: dict[str, Line]
    phases: tuple[Phase, ...]
    worker: float
    """Seconds of the leader to start a worker."""
    output: Line
    """Bytes of the output."""

    @classmethod
    def of(
        cls, sizes: Sequence[int], runs: Sequence[dict[str, Any]], by_row: Mapping[str, Mapping[str, float]]
    ) -> "Model":
        """Return the model of runs by one process on inputs of these sizes, smallest first.

        ``by_row`` are the seconds of :func:`row_seconds`.
        """
        lines = {START: Line(min(float(each["steps"][START]) for each in runs), 0.0)}
        found = [dict(numbered(each["phases"])) for each in runs]
        phases = []
        for name, last in found[-1].items():
            both = [each.get(name, {"seconds": []})["seconds"] for each in found]
            seconds, tasks = ([float(call(each)) for each in both] for call in (sum, len))
            mean = seconds[-1] / tasks[-1]
            shares = tuple(each / max(mean, 1e-9) for each in last["seconds"])
            grown = Line.through(sizes, seconds), Line.through(sizes, tasks)
            longest = sum(last["longest"]) / max(seconds[-1], 1e-9)
            phases.append(Phase(name, *grown, shares, longest, max(last["memory"])))
        parts = max((phase.tasks for phase in phases), key=lambda tasks: tasks.slope)
        full = (MOST - parts.base) / parts.slope if parts.slope else math.inf
        for name in dict.fromkeys(name for each in runs for name in each["alone"]):
            values = [each["alone"].get(name, 0.0) for each in runs]
            grows = Line(min(values), 0.0) if name.endswith(COMPILER) else Line.through(sizes, values)
            lines[name] = replace(grows, most=full)
            for taken in (by_row[step] for step in by_row if step in name):
                rows = {kind: runs[-1]["rows"][kind] / sizes[-1] for kind in taken}
                most = MOST_COUNTED / max(rows.get("ledger", 0.0), 1e-9)
                lines[name] = Line(min(values), sum(taken[kind] * rows[kind] for kind in rows), most)
        output = Line.through(sizes, [each["output"] for each in runs])
        return cls(lines, tuple(phases), min(each["worker"][0] for each in runs), output)

    def serial(self, size: float) -> Counter[str]:
        """Return the seconds of each serial step."""
        return Counter({name: line.at(size) for name, line in self.alone.items()})

    def seconds(self, size: float) -> float:
        """Return the CPU seconds of one process."""
        return self.serial(size).total() + sum(phase.seconds.at(size) for phase in self.phases)

    def size(self, seconds: float) -> float:
        """Return the size of the input that takes one process so long."""
        low, high = 0.0, 1.0
        while self.seconds(high) < seconds:
            low, high = high, 2 * high
        while high - low > 0.01 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.seconds(middle) < seconds else (low, middle)
        return high

    def seconds_for(self, speed_up: float, cores: int) -> float:
        """Return the CPU seconds of the smallest input that so many cores speed up so much; infinite beyond a day."""
        size = 0.1
        while (seconds := self.seconds(size)) < 86_400:
            if seconds / self.path(size, cores).total() >= speed_up:
                return seconds
            size *= 1.05
        return math.inf

    def path(self, size: float, cores: int) -> Counter[str]:
        """Return the seconds of the critical path, by serial step and phase."""
        path, output = self.serial(size), self.output.at(size)
        for phase in self.phases:
            tasks = phase.at(size, output)
            name, _, _ = phase.name.partition(" (")
            if has_cores(len(tasks), cores):
                end = makespan(tasks, len(tasks)) * phase.longest
            else:
                end = makespan(tasks, min(cores, len(tasks)), phase.longest)
            path[name] += end
        path[WORKERS] += self.worker * cores
        return path

    def remainders(self, size: float, path: Counter[str], cores: int) -> list[tuple[str, float]]:
        """Return what each step has on the path beyond its equal share of all cores, largest first."""
        beyond = defaultdict[str, float](float, path)
        for name, seconds in self.serial(size).items():
            beyond[name] -= seconds / cores
        for phase in self.phases:  # tasks of the same kind may be several phases
            beyond[phase.name.partition(" (")[0]] -= phase.seconds.at(size) / cores
        return sorted(beyond.items(), key=lambda each: -each[1])


def row_seconds() -> dict[str, dict[str, float]]:
    """Return the CPU seconds of a row in the steps of the leading process that read all rows, by step and kind."""
    random = np.random.default_rng(0)
    ids = np.array([f"<urn:uuid:{number:032x}>" for number in range(ROWS)])
    others, is_repeat = pa.array(ids[random.integers(0, ROWS, ROWS)]), pa.array(random.integers(0, 10, ROWS) < 3)
    repeated, ones = pc.if_else(is_repeat, others, None), pa.array(np.ones(ROWS, np.int64))
    stage = pc.if_else(is_repeat, "min_hash", "gopher_quality")
    removed = {"id": ids, "stage": stage, "rule": stage, "kept_id": repeated}
    edits = {"id": ids, "stage": stage, "rule": stage, "unit": pa.repeat("token", ROWS), "also_id": repeated}
    edits |= dict.fromkeys(("start", "end", "replaced_by", "span"), ones)
    edits |= {"also_span": pc.if_else(is_repeat, ones, None)}
    labels = ["gopher_quality", "min_hash"]
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        for name, schema, columns in (("ledger", LEDGER_SCHEMA, removed), ("edits", EDIT_SCHEMA, edits)):
            (folder / name).mkdir()
            known = [columns.get(each.name, pa.nulls(ROWS, each.type)) for each in schema]
            pq.write_table(pa.table(known, schema=schema), folder / name / "00000.parquet", write_page_checksum=True)
        with open_ledger(folder / "ledger") as ledger:
            clusters = best(lambda: find_clusters(ledger, labels), 2)
        with open_ledger(folder / "edits", EDIT_SCHEMA) as ledger:
            spans = best(lambda: (repeated_spans(ledger, 10), count_contamination(ledger)), 2)
        documents = (pa.table({"id": ids[first:][:4096]}) for first in range(0, ROWS, 4096))
        (folder / "spill").mkdir()
        spill_documents(documents, folder / "spill", 0, shuffled=False)
        layout = best(lambda: order_documents(folder / "spill", 1, shuffled=False), 2)
    return {": card": {"ledger": clusters / ROWS, "edits": spans / ROWS}, "layout: writing": {"kept": layout / ROWS}}


def numbered(phases: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the phases that have tasks, with names that differ."""
    seen = Counter[str]()
    for phase in phases:
        if phase["seconds"]:
            seen[phase["name"]] += 1
            number = seen[phase["name"]]
            yield phase["name"] if number == 1 else f"{phase['name']} ({number})", phase


def makespan(tasks: Sequence[float], workers: int, threads: float = 1.0) -> float:
    """Return when the last task ends, if each begins on the first free worker.

    The busiest thread takes the share ``threads`` of a task.

    >>> makespan([3.0, 2.0, 2.0], 2)
    4.0
    """
    free, last = [(0.0, worker) for worker in range(workers)], [0.0] * workers
    for seconds in tasks:
        started, worker = free[0]
        heapq.heapreplace(free, (started + seconds, worker))
        last[worker] = seconds
    return last_end([end for end, _ in free], last[max(free)[1]], threads, workers)


def seconds_of(run: dict[str, Any]) -> float:
    """Return the CPU seconds of a run's critical path; for one process they are all."""
    return float(sum(run["path"].values()))


def shown(remainders: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in remainders[:SHOWN])


def show_more(model: Model, cores: Sequence[int], hours: float) -> None:
    """Print the speed-up by more cores for an input that takes one core so many hours."""
    print(f"  two cores gain {GOAL} from {model.seconds_for(GOAL, 2):.0f} s of one core on, simulated")
    size = model.size(hours * 3600)
    seconds = model.seconds(size)
    print(f"  {seconds / 3600:.1f} hours of one core, {size:,.0f} times the sample:")
    for count in cores:
        path = model.path(size, count)
        beyond = shown(model.remainders(size, path, count))
        print(f"  {count:5} cores {seconds / sum(path.values()):7.1f}   beyond equal shares: {beyond}")
    largest = max(model.phases, key=lambda phase: phase.memory)
    print(f"  memory of a task at most {largest.memory / 1e6:.0f} MB, {largest.name}", flush=True)


def measure(recipe: str, inputs: Inputs, options: argparse.Namespace, machine_code: Path) -> float:
    """Print how a recipe scales; return the speed-up of two processes at the largest size."""
    sizes = [*options.sizes] if INPUTS[recipe] else [1]
    run(recipe, inputs.settings(recipe, sizes[0]), 2, machine_code)  # compiles

    def least(size: int, processes: int, held: int | None = None) -> dict[str, Any]:
        runs = [run(recipe, inputs.settings(recipe, size), processes, machine_code, held) for _ in range(options.turns)]
        return {**min(runs, key=seconds_of), "wall": min(float(each["wall"]) for each in runs)}

    one, two = (least(sizes[-1], processes) for processes in (1, 2))
    with ThreadPoolExecutor(2) as pool:
        pair = list(pool.map(lambda _: run(recipe, inputs.settings(recipe, sizes[-1]), 1, machine_code), range(2)))
    ceiling = 2 * one["wall"] / max(float(each["wall"]) for each in pair)
    alone, speed_up = Model.of(sizes[-1:], [one], {}), seconds_of(one) / seconds_of(two)
    print(
        f"{recipe}, {sizes[-1]} times the sample, {one['cpu']:.1f} s of CPU: two processes {speed_up:.2f} by CPU on "
        f"the critical path ({one['cpu'] / alone.path(sizes[-1], 2).total():.2f} simulated), "
        f"{one['wall'] / two['wall']:.2f} by wall ({ceiling:.2f} by two runs beside each other)"
    )
    print(f"  beyond equal shares: {shown(alone.remainders(sizes[-1], Counter(two['path']), 2))}", flush=True)
    if options.spark and not lacks("PySpark and Java", "java", packages=["pyspark"]):
        masters = [f"local-cluster[{count},1,{SPARK_MEGABYTES}]" for count in (1, 2)]
        runs = [run(recipe, inputs.settings(recipe, sizes[-1]), master, machine_code) for master in masters]
        walls = [float(each["wall"]) for each in runs]
        print(f"  Spark, one and two executors: {walls[0]:.1f} and {walls[1]:.1f} s, {walls[0] / walls[1]:.2f} by wall")
    if len(sizes) > 1:
        held = int(options.held * 1e6)
        model = Model.of(sizes, [least(size, 1, held) for size in sizes], row_seconds())
        show_more(model, options.cores, options.hours)
    return speed_up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LONGCRAWL_DATA"))
    parser.add_argument("--recipes", nargs="+", choices=list(INPUTS), default=list(INPUTS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--cores", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--held", type=float, default=1, help="MB of sketches that one process decides about")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--spark", action="store_true", help="also run on a local cluster of Spark")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="a setting, as of `longcrawl run`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(options.data, Path(folder), more=options.settings)
        speed_ups = [measure(recipe, inputs, options, Path(folder) / "code") for recipe in options.recipes]
    print(f"scaling ratio={min(speed_ups):.2f}")


if __name__ == "__main__":
    main()
