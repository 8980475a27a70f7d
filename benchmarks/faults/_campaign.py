"""Run the trials of a fault campaign: seeds, forked workers with limits, counts by outcome, repeating a failure.

A campaign is a list of targets. Each prepares files once, and then damages and uses them again and again, each trial
under a random generator of (seed, target, number), so that a number repeats a trial: no worker writes where another one
reads. Workers are forked from one process that has imported everything and started no thread. A trial that hangs, takes
too much memory or kills its worker is a failure like any other, and the next worker resumes after it.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRATCH = Path(tempfile.mkdtemp(prefix="faults-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))  # noqa: S108  # removed at the end
os.environ.update(TMPDIR=str(SCRATCH), HF_HOME=str(SCRATCH / "hf"), HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
tempfile.tempdir = None

from _outcome import FAILED, FULL, SECONDS, SURVIVED, Outcome, guarded  # noqa: E402  # the environment is read while it is imported

READY = "ready"
"""Message of a worker before its first trial."""

START_SECONDS = 400
"""Time limit for a worker's first trial, in which numba may compile."""
ADDRESS_BYTES = 4 << 30
"""Additional address space that a trial may take."""

ENDLESS = 1e6
"""Minutes of a campaign without --minutes."""
SLOW_TRIALS, FAST_TRIALS = 1, 1_000
"""Trials of one worker. A slow one has a worker of its own, so that no earlier trial has a part in its outcome."""

Trial = Callable[[random.Random], Outcome]


class Target(ABC):
    """Something to damage and to use."""

    name: str
    weight: int = 1
    """Its share of the trials of a campaign."""
    seconds: float = SECONDS
    """Time limit for a trial, in seconds."""

    @abstractmethod
    def make(self, folder: Path) -> None:
        """Write what trials start from; called once, in a process of its own."""

    @abstractmethod
    def open(self, folder: Path, scratch: Path) -> Trial:
        """Return what does one trial, in ``scratch``; called once in each worker."""


@dataclass
class Counted:
    """Outcomes of the trials of one target."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, Outcome]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, number: int, outcome: Outcome) -> None:
        self.outcomes[outcome.word] += 1
        self.faults.update(outcome.faults)
        if not outcome.survived:
            self.failures.append((number, outcome))


@dataclass(frozen=True)
class Job:
    """Trials of one target for one worker."""

    target: Target
    numbers: range


@dataclass
class Worker:
    """A forked process and what it has reported so far."""

    job: Job
    process: int
    log: Path
    pipe: int
    deadline: float
    started: float
    """When it was ready for its first trial."""
    next_number: int
    ready: bool = False
    buffer: bytes = b""


def chance_of(seed: int, target: str, number: int) -> random.Random:
    return random.Random(f"{seed} {target} {number}")


def apart(work: Callable[[], object], log: Path | None = None) -> int:
    """Do something in a forked process; return its exit code, negative for a signal."""
    process = os.fork()
    if not process:
        with _leaving(log):
            work()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@contextlib.contextmanager
def _leaving(log: Path | None) -> Iterator[None]:
    """End this process, 0 or 1, without what the parent would do at its end."""
    _redirect(log)
    code = 1
    try:
        yield
        code = 0
    except BaseException:  # noqa: BLE001  # the parent prints the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path | None) -> None:
    opened = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(opened, 1)
    os.dup2(opened, 2)


class Campaign:
    """All targets with their shares of trials, done by a few workers at a time."""

    def __init__(self, name: str, targets: Sequence[Target], options: argparse.Namespace) -> None:
        self.name, self.options = name, options
        self.targets = _chosen(targets, options)
        self.counted = {target.name: Counted() for target in self.targets}
        self.end = time.monotonic() + 60 * options.minutes
        if options.only:
            os.environ[FULL] = "1"
        self.selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Do all trials, print what became of them, and exit."""
        made = [target for target in self.targets if self._make(target)]
        waiting = self._jobs(made)
        while waiting or self.selector.get_map():
            while waiting and len(self.selector.get_map()) < self.options.num_proc:
                if time.monotonic() < self.end:
                    self._start(waiting.pop(0))
                else:
                    waiting.clear()
            waiting += self._listen()
        self.report()

    def _make(self, target: Target) -> bool:
        folder, log = SCRATCH / "made" / target.name, SCRATCH / f"{target.name}.log"
        folder.mkdir(parents=True)
        progress(f"{self.name}: preparing {target.name}")
        if not apart(lambda: target.make(folder), log):
            return True
        self.counted[target.name].add(-1, Outcome("traceback", "cannot be prepared: " + log.read_text()[-1500:]))
        return False

    def _jobs(self, targets: Sequence[Target]) -> list[Job]:
        if self.options.only:
            number = int(self.options.only.rpartition(":")[2])
            return [Job(target, range(number, number + 1)) for target in targets]
        weights = sum(target.weight for target in targets)
        jobs = []
        for target in sorted(targets, key=lambda each: each.weight):
            share = max(1, round(self.options.n * target.weight / weights))
            most = self._most(target, share)
            jobs += [Job(target, range(first, min(first + most, share))) for first in range(0, share, most)]
        return sorted(jobs, key=lambda job: job.numbers.start) if self.options.minutes < ENDLESS else jobs

    def _most(self, target: Target, share: int) -> int:
        """Return how many trials a worker does."""
        if target.seconds > SECONDS:
            return SLOW_TRIALS
        return share if share < FAST_TRIALS else -(-share // self.options.num_proc)

    def _start(self, job: Job) -> None:
        reader, writer = os.pipe()
        scratch = SCRATCH / f"worker-{job.numbers.start:08d}-{job.target.name}"
        process = os.fork()
        if not process:
            os.close(reader)
            os.setpgid(0, 0)
            with _leaving(log_of(scratch)):
                _work(job, scratch, writer, self.options.seed, self.end)
        os.close(writer)
        now = time.monotonic()
        worker = Worker(job, process, log_of(scratch), reader, now + START_SECONDS, 0.0, job.numbers.start)
        self.selector.register(reader, selectors.EVENT_READ, worker)

    def _listen(self) -> list[Job]:
        """Take what workers report; return what is left of those that died."""
        left = []
        for key, _ in self.selector.select(1.0):
            worker: Worker = key.data
            if block := os.read(worker.pipe, 1 << 16):
                self._take(worker, block)
            else:
                left += self._finish(worker)
        for key in list(self.selector.get_map().values()):
            if time.monotonic() > key.data.deadline:
                left += self._finish(key.data, hangs=True)
        return left

    def _take(self, worker: Worker, block: bytes) -> None:
        *lines, worker.buffer = (worker.buffer + block).split(b"\n")
        counted = self.counted[worker.job.target.name]
        for line in lines:
            number, word, detail, faults = json.loads(line)
            if word == READY:
                worker.ready, worker.started = True, time.monotonic()
            else:
                counted.add(number, Outcome(word, detail, tuple(faults)))
                worker.next_number = number + 1
        worker.deadline = time.monotonic() + 2 * worker.job.target.seconds

    def _finish(self, worker: Worker, *, hangs: bool = False) -> list[Job]:
        if hangs:
            os.killpg(worker.process, signal.SIGKILL)
        self.selector.unregister(worker.pipe)
        os.close(worker.pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1])
        counted, number = self.counted[worker.job.target.name], worker.next_number
        counted.seconds += time.monotonic() - worker.started if worker.started else 0
        tried = sum(counted.outcomes.values())
        progress(f"{self.name}: {worker.job.target.name}: {tried:,} tried, {len(counted.failures)} not survived")
        if number >= worker.job.numbers.stop or (code == 0 and not hangs):
            return []
        said = worker.log.read_text("utf-8", "replace")[-900:]
        counted.add(number, Outcome("hang" if hangs else "crash", f"the process ended with {code}: {said}"))
        return [Job(worker.job.target, range(number + 1, worker.job.numbers.stop))] if worker.ready else []

    def report(self) -> None:
        """Print counts, failures and how to repeat them, and the ratio; exit with 1 after a failure."""
        words = [word for word in (*SURVIVED, *FAILED) if any(each.outcomes[word] for each in self.counted.values())]
        print(f"{'target':26}{'trials':>9}{'per s':>8}" + "".join(f"{word:>{len(word) + 2}}" for word in words))
        tried = survived = 0
        for name, counted in self.counted.items():
            count = sum(counted.outcomes.values())
            tried, survived = tried + count, survived + count - len(counted.failures)
            rate = count / counted.seconds if counted.seconds > 0.01 else 0
            cells = "".join(f"{counted.outcomes[word]:>{len(word) + 2},}" for word in words)
            print(f"{name:26}{count:>9,}{rate:>8,.0f}{cells}")
            if counted.faults:
                kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counted.faults.items()))
                print(f"  {sum(counted.faults.values()):,} faults: {kinds}")
        for name, counted in self.counted.items():
            for number, outcome in _distinct(counted.failures):
                print(
                    f"\n{name}: {outcome.word}: {_printable(outcome.detail)}\n  repeat: {self._command(name, number)}"
                )
        print(f"\n{survived:,} of {tried:,} trials survived (seed {self.options.seed})")
        print(f"{self.name} ratio={survived / max(tried, 1):.3f}", flush=True)
        shutil.rmtree(SCRATCH, ignore_errors=True)
        os._exit(int(survived < tried or not tried))

    def _command(self, target: str, number: int) -> str:
        return f"python benchmarks/faults/{self.name}.py --seed {self.options.seed} --only '{target}:{number}'"


def log_of(scratch: Path) -> Path:
    """Return the file of all that a worker prints."""
    return scratch.with_name(f"{scratch.name}.log")


def _work(job: Job, scratch: Path, pipe: int, seed: int, end: float) -> None:
    """Do the trials of a job in this process, one line of the pipe for each."""
    scratch.mkdir()
    try:
        trial = job.target.open(SCRATCH / "made" / job.target.name, scratch)
        _limit_memory()
        os.write(pipe, json.dumps([job.numbers.start, READY, "", ()]).encode() + b"\n")
        for number in job.numbers:
            if time.monotonic() > end:
                break
            chance = chance_of(seed, job.target.name, number)
            outcome = guarded(lambda: trial(chance), job.target.seconds)  # noqa: B023  # it is called here
            detail = "" if outcome.survived else outcome.detail
            os.write(pipe, json.dumps([number, outcome.word, detail, outcome.faults]).encode() + b"\n")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _limit_memory() -> None:
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_BYTES, resource.RLIM_INFINITY))


def _chosen(targets: Sequence[Target], options: argparse.Namespace) -> list[Target]:
    names = [options.only.rpartition(":")[0]] if options.only else options.targets
    unknown = set(names) - {target.name for target in targets}
    if unknown:
        sys.exit(f"no target {', '.join(sorted(unknown))}; known: {', '.join(target.name for target in targets)}")
    return [target for target in targets if not names or target.name in names]


def _printable(text: str) -> str:
    return "".join(each if each == "\n" or each.isprintable() else ascii(each)[1:-1] for each in text.strip())


def _distinct(failures: Sequence[tuple[int, Outcome]], most: int = 2) -> list[tuple[int, Outcome]]:
    """Return the first failures of each kind; those that end in the same words are of one kind."""
    seen: Counter[tuple[str, str]] = Counter()
    chosen = []
    for number, outcome in failures:
        kind = (outcome.word, re.sub(r"[0-9a-f]{16}|\d+", "", outcome.detail.strip().rpartition("(")[2])[-120:])
        seen[kind] += 1
        if seen[kind] <= most:
            chosen.append((number, outcome))
    return chosen[:12]


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments(about: str, trials: int) -> argparse.ArgumentParser:
    """Return the options that all campaigns have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="names of targets; all without one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=trials, help="trials, all targets together")
    parser.add_argument("--minutes", type=float, default=ENDLESS, help="start no trial after so many")
    parser.add_argument("--only", help="TARGET:NUMBER of one trial, to repeat it")
    parser.add_argument("--num-proc", type=int, default=2)
    return parser


def warm_up(seed: int) -> None:
    """Import what trials use and load a compiled kernel, so that forked workers start at once.

    Sets have the order that follows from the seed then: the process starts again with it, as that of Python is random.
    """
    hashes = str(seed % 2**32)
    if os.environ.get("PYTHONHASHSEED") != hashes:
        shutil.rmtree(SCRATCH)
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONHASHSEED": hashes})  # noqa: S606  # no shell is needed
    import datasets
    import pyarrow as pa
    import tokenizers  # noqa: F401  # as all of these
    import transformers  # noqa: F401
    import yaml  # noqa: F401
    import zarr  # noqa: F401
    import zstandard  # noqa: F401

    import longcrawl  # noqa: F401
    from longcrawl.sources.json_lines import read_lines

    # Most of the time of a first kernel is numba's own.
    read_lines(b"{}\n", pa.schema([pa.field("text", pa.large_string())]))
    datasets.disable_progress_bars()
    if threading.active_count() > 1:
        progress("a library has started threads while it was imported: forked workers may hang")
