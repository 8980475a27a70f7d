"""Measure each recipe with one and two processes, and simulate more cores from the times of its tasks.

    python benchmarks/scaling.py [--data LONGCRAWL_DATA] [--recipes datatrove …] [--sizes 4 16] [--cores 8 64 512]
        [--hours 24] [--held 1] [--turns 2] [--set stages.extract_text.engine=blocks]

Inputs are those of ``recipes.py``, so many times the sample. Runs by one process record the CPU seconds and the peak
memory of each task, and the seconds that the leading process works alone: they come from ``_recipe_run.py``. Tasks are
then scheduled on more cores as an engine does: the tasks of a phase go in their order to whichever core is free, and
phases follow each other. A task whose threads have a core of their own takes as long as the busiest. A worker's start
counts as measured; the leader starts one after the other, once in a run.

What a phase takes, and how many tasks it has, grows as a line through both sizes; --hours of work for one core is the
input that is simulated beyond. Tasks have the sizes of the sample's up to 4,096 of them, as large files are read in so
many sections, and are larger beyond; what the leader does for each part then grows no more. Files of an output have 500
MB, as by default, so each phase that writes or checks them is divided by that. To see how surveys decide among many
inputs, one process decides up to --held MB of sketches, not 64, and larger ones by exchanges. Serial steps of some ten
milliseconds are noise that grows with the input: take the figures of hours as orders of magnitude.

The speed-up is the CPU time of one process over the critical path. "beyond equal shares" are the steps by which the
path is longer than an equal share of all cores. Of the real runs the best of --turns counts. CPU seconds rise by a
quarter and more if other programs share the machine: measure on a quiet one. The last line is the
least speed-up by two processes.
"""

import argparse
import heapq
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _recipe_run import has_cores
from recipes import INPUTS, Inputs, run

from longcrawl.run.divide import MOST

FILE_BYTES = 500e6
BETWEEN = "before and between"
"""Serial steps for each part, such as reading markers, but not those in which a stage waits for all parts."""
OF_FILES = ("write_file", "file_entries", "_count")
"""Tasks that write or read whole files of the output."""
SHOWN = 3
START = "start-up"
WORKERS = "starting workers"


@dataclass(frozen=True)
class Line:
    """Growth from one size of the input to another; never downwards."""

    base: float
    slope: float

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
        return self.base + self.slope * size


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
    def of(cls, sizes: Sequence[int], runs: Sequence[dict[str, Any]]) -> "Model":
        """Return the model of runs by one process on inputs of these sizes, smallest first."""
        names = dict.fromkeys(name for each in runs for name in each["alone"])
        lines = {name: Line.through(sizes, [each["alone"].get(name, 0.0) for each in runs]) for name in names}
        lines[START] = Line(min(each["start-up"] for each in runs), 0.0)
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
        output = Line.through(sizes, [each["output"] for each in runs])
        return cls(lines, tuple(phases), min(each["worker"][0] for each in runs), output)

    def serial(self, size: float) -> Counter[str]:
        """Return the seconds of each serial step."""
        parts = max((phase.tasks for phase in self.phases), key=lambda tasks: tasks.slope)
        full = (MOST - parts.base) / parts.slope if parts.slope else size
        sizes = ((name, min(size, full) if name.startswith(BETWEEN) else size) for name in self.alone)
        return Counter({name: self.alone[name].at(each) for name, each in sizes})

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

    def path(self, size: float, cores: int) -> Counter[str]:
        """Return the seconds of the critical path, by serial step and phase."""
        path, output = self.serial(size), self.output.at(size)
        for phase in self.phases:
            tasks = phase.at(size, output)
            threads = phase.longest if has_cores(len(tasks), cores) else 1.0
            path[phase.name] += makespan(tasks, min(cores, len(tasks))) * threads
        path[WORKERS] += self.worker * cores
        return path

    def remainders(self, size: float, path: Counter[str], cores: int) -> list[tuple[str, float]]:
        """Return what each step has on the path beyond its equal share of all cores, largest first."""
        shares = self.serial(size) | {phase.name: phase.seconds.at(size) for phase in self.phases}
        beyond = Counter({name: seconds - shares.get(name, 0.0) / cores for name, seconds in path.items()})
        return beyond.most_common()


def numbered(phases: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the phases that have tasks, with names that differ."""
    seen = Counter[str]()
    for phase in phases:
        if phase["seconds"]:
            seen[phase["name"]] += 1
            number = seen[phase["name"]]
            yield phase["name"] if number == 1 else f"{phase['name']} ({number})", phase


def makespan(tasks: Sequence[float], workers: int) -> float:
    """Return when the last task ends, if each begins on the first free worker.

    >>> makespan([3.0, 2.0, 2.0], 2)
    4.0
    """
    free = [0.0] * workers
    for seconds in tasks:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def shown(remainders: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in remainders[:SHOWN])


def show_more(model: Model, cores: Sequence[int], hours: float) -> None:
    """Print the speed-up by more cores for an input that takes one core so many hours."""
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

    def best(size: int, processes: int, by: str, held: int | None = None) -> dict[str, Any]:
        runs = [run(recipe, inputs.settings(recipe, size), processes, machine_code, held) for _ in range(options.turns)]
        return {**min(runs, key=lambda each: float(each[by])), "wall": min(float(each["wall"]) for each in runs)}

    one, two = (best(sizes[-1], processes, by) for processes, by in ((1, "cpu"), (2, "path")))
    alone, speed_up = Model.of(sizes[-1:], [one]), float(one["cpu"] / two["path"])
    path = alone.path(sizes[-1], 2)
    print(
        f"{recipe}, {sizes[-1]} times the sample, {one['cpu']:.1f} s of CPU: two processes {speed_up:.2f} by CPU on "
        f"the critical path ({one['cpu'] / sum(path.values()):.2f} simulated), "
        f"{one['wall'] / two['wall']:.2f} by wall"
    )
    print(f"  beyond equal shares: {shown(alone.remainders(sizes[-1], path, 2))}", flush=True)
    if len(sizes) > 1:
        held = int(options.held * 1e6)
        model = Model.of(sizes, [best(size, 1, "cpu", held) for size in sizes])
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
    parser.add_argument("--set", dest="settings", action="append", default=[], help="a setting, as of `longcrawl run`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(options.data, Path(folder), more=options.settings)
        speed_ups = [measure(recipe, inputs, options, Path(folder) / "code") for recipe in options.recipes]
    print(f"scaling ratio={min(speed_ups):.2f}")


if __name__ == "__main__":
    main()
