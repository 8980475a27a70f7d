"""Kill runs of every recipe at random, type the same command again, and compare what comes out, byte for byte.

    python benchmarks/faults/kills.py --n 400 [--seed 1] [--minutes 20] [RECIPE ...]

A trial is a run that is killed one to three times in a row and then finished, each time by 1 or 2 processes. It is
killed at its n-th file operation or at a time: the whole process group by SIGKILL or SIGINT, or after it was suspended;
the driver alone by SIGKILL or SIGTERM; a worker alone, which the run has to end with in one sentence. A trial is
survived if the digest of the whole folder is that of a run without interruption. The last line is trials survived /
trials tried; the kills of each recipe are counted above it.
"""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _campaign import Campaign, Outcome, Target, Trial, arguments, warm_up
from _forked_run import DONE, INTERRUPTED, SENTENCE, ForkedRun, RunSpec, import_modules, imported_modules
from _inputs import digest_of, read_files
from _outcome import judge_sentence
from _recipes import SMALL, make_inputs, settings_of
from _stopping import on_change

from longcrawl.errors import RunError

AT_OPERATION, WORKER_AT_OPERATION = "group at operation", "worker at operation"
BY_TIME = ("group", "group", "worker", "driver", "TERM", "INT", "suspended")
KINDS = (AT_OPERATION, AT_OPERATION, WORKER_AT_OPERATION, *BY_TIME)
ENDED = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, INTERRUPTED}
BUSY = "another run is working in"
WORKER_OPERATIONS = 30
PATIENCE = 120.0


@dataclass(frozen=True)
class Whole:
    """Result of a recipe's run without interruption."""

    digest: str
    operations: int
    seconds: float
    modules: list[str]


@dataclass(frozen=True)
class Kill:
    """Signal and moment at which a run is killed."""

    kind: str
    processes: int
    operation: int
    seconds: float
    worker: float
    """Worker to kill, as a fraction from 0 to 1 of the list of workers."""

    @classmethod
    def draw(cls, chance: random.Random, whole: Whole) -> "Kill":
        """Return a kill at random."""
        kind = chance.choice(KINDS)
        processes = 2 if kind in ("worker", WORKER_AT_OPERATION, "driver") else chance.choice((1, 2))
        most = whole.operations if kind == AT_OPERATION else WORKER_OPERATIONS
        operation = 1 + int(chance.random() * most)
        return cls(kind, processes, operation, chance.random() * whole.seconds * 1.05, chance.random())

    def before(self, out: Path) -> Callable[[], None] | None:
        """Return what the run calls first."""
        if self.kind not in (AT_OPERATION, WORKER_AT_OPERATION):
            return None
        return lambda: self._count(out)

    def _count(self, out: Path) -> None:
        driver, seen = os.getpid(), 0

        def change(_: str) -> None:
            nonlocal seen
            mine = os.getpid() == driver
            if mine != (self.kind == AT_OPERATION):
                return
            seen += 1
            if seen == self.operation:
                os.kill(os.getpid(), signal.SIGKILL) if not mine else os.killpg(driver, signal.SIGKILL)

        on_change(out, change)

    def send(self, run: ForkedRun) -> None:
        """Kill a run that goes by time."""
        if self.kind in (AT_OPERATION, WORKER_AT_OPERATION) or run.wait(self.seconds) is not None:
            return
        workers = run.workers()
        if self.kind == "worker" and workers:
            os.kill(workers[int(self.worker * len(workers))], signal.SIGKILL)
        elif self.kind == "driver":
            run.signal_driver(signal.SIGKILL)
        elif self.kind == "TERM":
            run.signal_driver(signal.SIGTERM)
        elif self.kind == "INT":
            run.signal_group(signal.SIGINT)
        else:
            if self.kind == "suspended":
                run.signal_group(signal.SIGSTOP)
                time.sleep(0.1)
                run.signal_group(signal.SIGCONT)
                time.sleep(0.02)
            run.signal_group(signal.SIGKILL)


class KilledRecipe(Target):
    """A recipe over small inputs."""

    seconds = 400.0

    def __init__(self, name: str) -> None:
        self.name = name

    def make(self, folder: Path) -> None:
        """Run it once without interruption, in one process and in two."""
        from longcrawl.run.job import run

        make_inputs(self.name, folder / "in")
        settings = settings_of(self.name, folder / "in")
        operations = 0

        def count(_: str) -> None:
            nonlocal operations
            operations += 1

        run(self.name, folder / "first", 2, settings)
        on_change(folder / "whole", count)
        started = time.monotonic()
        run(self.name, folder / "whole", 1, settings)
        whole = Whole(digest_of(folder / "whole"), operations, time.monotonic() - started, imported_modules())
        if whole.digest != digest_of(folder / "first"):
            raise AssertionError("two processes write other bytes than one")
        (folder / "whole.json").write_text(json.dumps(vars(whole)))
        shutil.rmtree(folder / "first")

    def open(self, folder: Path, scratch: Path) -> Trial:
        """Return what kills a run and finishes it."""
        whole = Whole(**json.loads((folder / "whole.json").read_text()))
        import_modules(whole.modules)
        spec = RunSpec(self.name, settings_of(self.name, folder / "in"), scratch / "out")

        def trial(chance: random.Random) -> Outcome:
            shutil.rmtree(spec.out, ignore_errors=True)
            return KilledRun(spec, whole, folder / "whole", scratch / "log").trial(chance)

        return trial


class KilledRun:
    """One folder whose run is killed until it may finish."""

    def __init__(self, spec: RunSpec, whole: Whole, reference: Path, log: Path) -> None:
        self.spec, self.whole, self.reference, self.log = spec, whole, reference, log
        self.kills: list[Kill] = []
        self.landed: list[str] = []

    def trial(self, chance: random.Random) -> Outcome:
        """Kill one to three runs, and finish the last one."""
        # All is drawn first: how far a run gets until it is killed decides nothing else of the trial.
        planned = [Kill.draw(chance, self.whole) for _ in range(chance.choice((1, 1, 2, 3)))]
        processes = chance.choice((1, 2))
        for kill in planned:
            self.kills.append(kill)
            outcome = self._killed(kill)
            if outcome is not None:
                return self._outcome(outcome.word, outcome.detail)
            if (self.spec.out / "manifest.json").exists():
                break
        return self._finish(processes)

    def _killed(self, kill: Kill) -> Outcome | None:
        """Kill a run; return what is wrong with how it ended."""
        run = self._start(kill.processes, kill.before(self.spec.out))
        kill.send(run)
        code = run.wait(PATIENCE)
        if code is None:
            run.end()
            return Outcome("hang", f"the run does not end: {run.said()[-600:]}")
        if code == DONE:
            return None
        if code in ENDED:
            self.landed.append(kill.kind)
            return None
        # Ctrl-C reaches the workers too, and may end them before the driver sees it.
        if code == SENTENCE and kill.kind in ("worker", WORKER_AT_OPERATION, "INT"):
            self.landed.append(kill.kind)
            return self._unclear(run)
        return Outcome("traceback", f"the run ended with {code}: {run.said()[-900:]}")

    def _start(self, processes: int, before: Callable[[], None] | None = None) -> ForkedRun:
        """Start a run; workers of one that was killed may hold the folder for a moment."""
        end = time.monotonic() + PATIENCE
        while True:
            run = self.spec.start(processes, self.log, before)
            if run.wait(0.05) != SENTENCE or BUSY not in run.said() or time.monotonic() > end:
                return run
            time.sleep(0.2)

    @staticmethod
    def _unclear(run: ForkedRun) -> Outcome | None:
        outcome = judge_sentence(RunError(run.said()))
        return None if outcome.survived else outcome

    def _finish(self, processes: int) -> Outcome:
        end = time.monotonic() + PATIENCE
        run = self._start(processes)
        while run.wait(PATIENCE) == SENTENCE and BUSY in run.said() and time.monotonic() < end:
            run = self._start(processes)
        if run.code is None:
            run.end()
            return self._outcome("hang", f"the same command does not end: {run.said()[-600:]}")
        if run.code != DONE:
            return self._outcome("traceback", f"the same command ended with {run.code}: {run.said()[-900:]}")
        if digest_of(self.spec.out) == self.whole.digest:
            return self._outcome("same")
        return self._outcome("silent change", self._difference())

    def _difference(self) -> str:
        found, expected = read_files(self.spec.out), read_files(self.reference)
        names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        return f"{len(names)} files differ: {', '.join(names[:8])}"

    def _outcome(self, word: str, detail: str = "") -> Outcome:
        return Outcome(word, f"{detail} after {self.kills}", tuple(self.landed))


def main() -> None:
    options = arguments(__doc__, 12).parse_args()
    warm_up(options.seed)
    Campaign("kills", [KilledRecipe(name) for name in SMALL], options).run()


if __name__ == "__main__":
    main()
