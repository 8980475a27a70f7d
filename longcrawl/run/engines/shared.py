"""The shared engine: machines that see the same folder and run the same command, such as the tasks of a Slurm array.

One process leads: it carries out the run and posts the tasks of each step in the run's folder. All processes, the
leader included, take tasks under a lease (:mod:`longcrawl.run.engines.hold`) and write the results beside them.

``work/tasks/ID/`` is a step::

    tasks.pickle    the packed function and all tasks; its SHA-256 is in tasks.json, which is written last
    NNNNN.lock      the lease of a task
    NNNNN.result    the pickled result of a task, or its error

Pickles are only loaded if the current user wrote them.
"""

import contextlib
import hashlib
import os
import pickle
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

from longcrawl.core.exchange import Exchange, exchange_files, with_checksum, without_checksum
from longcrawl.core.progress import look_at_progress
from longcrawl.core.registry import installed_versions
from longcrawl.errors import RunError, show
from longcrawl.io.files import PARTIAL, partial_path, publish, url_of, whole_file, write_text
from longcrawl.io.structured import Marker
from longcrawl.run.engines.hold import BEAT, LOCK, STALE, Heartbeat, Hold, LostLeadError, Watched, read_owner
from longcrawl.run.engines.local import answer, pack, result_of, unpack

T = TypeVar("T")
R = TypeVar("R")

TASKS = "tasks"
FAILED = "failed.txt"
"""File with the error that ended the leading process, which also ends the others."""
ATTEMPTS = 3
"""Number of times that a task is begun if its process ends or hangs each time."""
TELLS = 15.0
"""Seconds of waiting after which the user is shown the awaited processes."""
FIRST_PAUSE, LAST_PAUSE = 0.05, 3.0
"""Shortest and longest time in seconds between two looks at a folder."""


class Shared:
    """Engine of any number of processes on machines that see the run's folder; processes may join and leave.

    Args:
        beat: seconds between two renewals of a lease, made while the process uses CPU time or waits for others.
        stale: seconds without a renewal after which another process takes over.
    """

    def __init__(self, beat: float = BEAT, stale: float = STALE) -> None:
        self._beat, self._stale = beat, stale
        self._watched: dict[Path, Watched] = {}

    def __repr__(self) -> str:
        return f"Shared(beat={self._beat}, stale={self._stale})"

    @contextmanager
    def hold(self, work: Path, is_finished: Callable[[], bool]) -> Iterator[Self | None]:
        """Lead the run, or help the leading process; yield None once that one has finished the run.

        A process that loses the lead, as its disk or machine hung, ends the ``with`` block: hold again, to help.

        Raises:
            RunError: the leading process has failed, or the run is in an object store.
        """
        if (url := url_of(work.parent)) is not None:
            raise RunError(
                f"--engine shared needs a shared folder, not {url}: set --out to a folder that all machines see, "
                "or choose the engine local or spark"
            )
        self._heartbeat, self._work, self._watched = Heartbeat(self._beat, "progress"), work, {}
        self._held = Hold(self._heartbeat, work)
        try:
            leads = self._work_until_it_leads(is_finished)
            try:
                yield self if leads else None
            except LostLeadError:
                show("another process leads this run now, as this one showed no progress; this one helps", error=True)
            except Exception as failed:
                if self._heartbeat.holds(work / LOCK):
                    write_text(work / FAILED, str(failed))
                raise
        finally:
            self._heartbeat.stop()

    def check(self) -> None:
        """Check that this process still leads the run."""
        self._held.check()

    def tasks(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Call a function on every task, here and in all other processes, and yield the results as they arrive."""
        if not tasks:
            return
        step, pause, found = _Step.post(self._work / TASKS / uuid4().hex, function, tasks), _Pause(), set[int]()
        try:
            while len(found) < len(tasks):
                self.check()
                for number in sorted(step.finished() - found):
                    found.add(number)
                    yield step.result(number)
                    pause = _Pause()
                if len(found) < len(tasks) and not self._do_one(step):
                    self._wait(pause)
            self.check()
        except FileNotFoundError:
            self.check()
            raise
        finally:
            _withdraw(step.folder)
            self._watched.clear()

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Carry out an exchange through files."""
        exchange_files(self, step, tasks)

    def _work_until_it_leads(self, is_finished: Callable[[], bool]) -> bool:
        lock, pause, before = self._work / LOCK, _Pause(), _changed(self._work / FAILED)
        steps = dict[Path, _Step]()
        while not is_finished():
            with contextlib.suppress(FileNotFoundError):  # the run or the step has just been finished
                self._watch(lock)
                leads = self._heartbeat.take(lock)
                if _changed(self._work / FAILED) != before:
                    reason = (self._work / FAILED).read_text("utf-8")
                    raise RunError(f"the process that led this run has ended: {reason}")
                if leads and self._leads(is_finished):
                    return True
                if not leads and self._help(steps):
                    pause = _Pause()
            self._wait(pause)
        return False

    def _watch(self, lock: Path) -> None:
        """Remove the lease of another process if that has ended or shows no progress; report the latter."""
        watched = self._watched.setdefault(lock, Watched(lock, self._stale))
        watched.remove_if_stale()
        if watched.taken_from is not None:
            hangs = _describe(lock, watched.taken_from)
            show(f"{hangs}, has shown no progress for {self._stale:.0f} s: another process takes over", error=True)

    def _wait(self, pause: "_Pause") -> None:
        self._heartbeat.progress()
        look_at_progress()
        if not pause.told and time.time() - pause.begun > TELLS:
            pause.told = True
            if awaited := [_describe(lock, owner) for lock in self._watched if (owner := read_owner(lock))]:
                more = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
                since = time.strftime("%H:%M:%S", time.localtime(pause.begun))
                until = f"it is replaced after {self._stale:.0f} s without progress"
                show(f"waiting since {since} for {awaited[-1]}{more}; {until}", error=True)
        time.sleep(pause.seconds)
        pause.seconds = min(2 * pause.seconds, LAST_PAUSE)

    def _leads(self, is_finished: Callable[[], bool]) -> bool:
        time.sleep(FIRST_PAUSE)  # of two processes that saw the lock as stale, one may have restored a third's lock
        if not self._heartbeat.holds(self._work / LOCK):
            return False
        if is_finished():
            self._heartbeat.release(self._work / LOCK)
            return False
        _withdraw(self._work / TASKS)
        self._watched.clear()
        return True

    def _help(self, steps: dict[Path, "_Step"]) -> bool:
        """Do tasks of the leading process while there are any; return whether one was done."""
        helped = False
        for folder in [each for each in (self._work / TASKS).iterdir() if PARTIAL not in each.name]:
            if folder not in steps:
                steps.clear()
                self._watched.clear()
                steps[folder] = _Step.open(folder)
            with contextlib.suppress(FileNotFoundError):
                while self._do_one(steps[folder]):
                    helped = True
        return helped

    def _do_one(self, step: "_Step") -> bool:
        for number in step.candidates():
            lock = step.file(number, "lock")
            if step.file(number, "result").exists():
                continue
            if not lock.exists() and self._heartbeat.take(lock):
                try:
                    if not step.file(number, "result").exists():
                        step.do(number)
                finally:
                    self._heartbeat.release(lock)
                return True
            self._watch(lock)
        return False


@dataclass
class _Pause:
    seconds: float = FIRST_PAUSE
    begun: float = field(default_factory=time.time)
    told: bool = False


class _Step:
    def __init__(self, folder: Path, function: Callable[[Any], Any], tasks: Sequence[Any]) -> None:
        self.folder, self.function, self.tasks = folder, function, tasks
        self._untried = random.sample(range(len(tasks)), len(tasks))  # each process begins elsewhere

    @classmethod
    def post(cls, folder: Path, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Self:
        file, marker = folder / "tasks.pickle", folder / "tasks.json"
        with whole_file(file) as beside:
            beside.write_bytes(pack(function, list(tasks), installed_versions()))
        Marker(marker, {}, Marker.entries(marker, [file])).write()
        return cls(folder, function, tasks)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read a step of another process; FileNotFoundError if it is not written yet or has been removed."""
        file, marker = folder / "tasks.pickle", Marker.read(folder / "tasks.json")
        packed = file.read_bytes()
        if marker is None or marker.files[file.name]["sha256"] != hashlib.sha256(packed).hexdigest():
            raise FileNotFoundError(file)
        if file.stat().st_uid != _user_there(folder):
            raise RunError(f"{file} belongs to another user, so its tasks are not run. Start all processes as one user")
        return cls(folder, *unpack(packed))

    def file(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:05d}.{kind}"

    def finished(self) -> set[int]:
        return {int(name.partition(".")[0]) for name in os.listdir(self.folder) if name.endswith(".result")}  # noqa: PTH208  # names are enough

    def candidates(self) -> Iterator[int]:
        """Yield the numbers of tasks that may be unfinished, first those that this process has not tried."""
        while self._untried:
            yield self._untried.pop()
        yield from sorted(set(range(len(self.tasks))) - self.finished())

    def do(self, number: int) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        attempts, result = self.file(number, "attempts"), self.file(number, "result")
        begun = len(attempts.read_bytes()) if attempts.exists() else 0
        if begun < ATTEMPTS:
            with attempts.open("ab") as file:
                file.write(b".")
            packed = answer(self.function, self.tasks[number])
        else:
            packed = answer(_give_up, begun)
        beside = partial_path(result)
        beside.write_bytes(with_checksum(packed))
        publish(beside, result)

    def result(self, number: int) -> Any:
        file = self.file(number, "result")
        if file.stat().st_uid != (self.folder / "tasks.pickle").stat().st_uid:
            raise RunError(f"{file} belongs to another user and is not read. Start all processes as one user")
        content = without_checksum(file.read_bytes(), str(file))
        return result_of(pickle.loads(content))  # noqa: S301  # written by this user's processes


def _give_up(begun: int) -> None:
    raise RunError(
        f"a task was started {begun} times, and its process ended or hung each time: it may need more memory than a "
        "process has here, or a disk that does not answer. Finished work is kept"
    )


def _describe(lock: Path, owner: Mapping[str, Any]) -> str:
    does = "leads the run" if lock.name == LOCK else f"does task {int(lock.stem) + 1:,} of its step"
    return f"process {owner.get('process')} on {owner.get('host')}, which {does}"


def _user_there(folder: Path) -> int:
    """Return the user id of new files in a folder, as a mount may map this process's user to another."""
    beside = partial_path(folder / "user")
    beside.touch()
    user = beside.stat().st_uid
    beside.unlink()
    return user


def _changed(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None


def _withdraw(folder: Path) -> None:
    """Remove a folder in which other processes may be about to write, by renaming it first."""
    beside = partial_path(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(beside)
    shutil.rmtree(beside, ignore_errors=True)
