"""The engine of machines that share a folder: each types the same command, as the tasks of a Slurm array do.

One process leads: it carries the run out, and posts the tasks of each step in the run's folder. All processes, this
one too, take tasks under a lease (:mod:`longcrawl.run.engines.hold`) and write the result beside them. A process that
has ended, or shows no progress, loses its leases, and another one takes its task, or the lead; what is finished is
known by the files of the run.

``work/tasks/ID/`` is a step::

    tasks.pickle    the function and all tasks, as a worker gets them; its SHA-256 is in tasks.json, written last
    NNNNN.lock      the lease of a task
    NNNNN.result    what it returned, or its error

Both are pickled by a process of the same user, and those of any other are rejected.
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
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

from longcrawl.core.exchange import Exchange, exchange_files, with_checksum, without_checksum
from longcrawl.core.registry import installed_versions
from longcrawl.errors import RunError, show
from longcrawl.io.files import PARTIAL, partial_path, publish, url_of, whole_file, write_text
from longcrawl.io.structured import Marker
from longcrawl.run.engines.hold import BEAT, LOCK, STALE, Heartbeat, Hold, Watched, read_owner
from longcrawl.run.engines.local import answer, pack, unpack

T = TypeVar("T")
R = TypeVar("R")

TASKS = "tasks"
FAILED = "failed.txt"
"""The error by which the process that leads has ended: the others end by it, too."""
ATTEMPTS = 3
"""Times that a task is begun whose process ends or hangs each time."""
TELLS = 15.0
"""Seconds of waiting for other processes after which the user is told for which."""
FIRST_PAUSE, LAST_PAUSE = 0.05, 3.0
"""Seconds between two looks at a folder."""


class Shared:
    """Processes on machines that see the folder of a run, in any number, that may come and go.

    Args:
        beat: seconds between two signs that a process makes progress: it uses CPU time, or waits for others.
        stale: seconds without such a sign after which another process takes over.
    """

    def __init__(self, beat: float = BEAT, stale: float = STALE) -> None:
        self._beat, self._stale = beat, stale
        self._heartbeat: Heartbeat
        self._held: Hold
        self._work: Path
        self._watched: dict[Path, Watched] = {}

    @contextmanager
    def hold(self, work: Path, is_finished: Callable[[], bool]) -> Iterator[Self | None]:
        """Lead the run, or do tasks for the process that leads it; None once that one has finished it.

        Raises:
            RunError: the process that led the run has ended by an error, or the run is in an object store.
        """
        if (url := url_of(work.parent)) is not None:
            raise RunError(
                f"--engine shared needs a folder that all machines see, not {url}: choose such a folder for --out, or "
                "the engine local or spark"
            )
        self._heartbeat, self._work, self._watched = Heartbeat(self._beat, "progress"), work, {}
        self._held = Hold(self._heartbeat, work)
        try:
            leads = self._work_until_it_leads(is_finished)
            try:
                yield self if leads else None
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
        """Call a function on every task, here and in all other processes, and yield the results as they come."""
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
            with contextlib.suppress(FileNotFoundError):  # of a run, or a step, that has just been finished
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
        """Take the lease of another process away if that has ended or shows no progress, and tell the user."""
        watched = self._watched.setdefault(lock, Watched(lock, self._stale))
        watched.remove_if_stale()
        if watched.taken_from is not None:
            hangs = _describe(lock, watched.taken_from)
            show(f"{hangs}, has shown no progress for {self._stale:.0f} s: another process takes over", error=True)

    def _wait(self, pause: "_Pause") -> None:
        """Wait for other processes, and tell the user for which if it takes long."""
        self._heartbeat.progress()
        if not pause.told and time.time() - pause.begun > TELLS:
            pause.told = True
            owners = {lock: read_owner(lock) for lock in self._watched}
            awaited = [_describe(lock, owner) for lock, owner in owners.items() if owner]
            if awaited:
                more = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
                since = time.strftime("%H:%M:%S", time.localtime(pause.begun))
                until = f"it is replaced after {self._stale:.0f} s without progress"
                show(f"waiting since {since} for {awaited[-1]}{more}; {until}", error=True)
        pause.wait()

    def _leads(self, is_finished: Callable[[], bool]) -> bool:
        """Return whether the run is this process's to finish, once it has the lock."""
        time.sleep(FIRST_PAUSE)  # of two that saw the lock stale, one may have put the lock of a third back
        if not self._heartbeat.holds(self._work / LOCK):
            return False
        if is_finished():
            self._heartbeat.release(self._work / LOCK)
            return False
        _withdraw(self._work / TASKS)
        self._watched.clear()
        return True

    def _help(self, steps: dict[Path, "_Step"]) -> bool:
        """Do the tasks of the process that leads, as long as there are some to do."""
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
        """Do a task that no other process does; False where there is none."""
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


class _Pause:
    """The time between two looks at a folder, which grows while nothing happens there: many processes look."""

    def __init__(self) -> None:
        self.seconds, self.begun, self.told = FIRST_PAUSE, time.time(), False

    def wait(self) -> None:
        time.sleep(self.seconds)
        self.seconds = min(2 * self.seconds, LAST_PAUSE)


class _Step:
    """A function and its tasks in a folder, see this module's docstring."""

    def __init__(self, folder: Path, function: Callable[[Any], Any], tasks: Sequence[Any]) -> None:
        self.folder, self.function, self.tasks = folder, function, tasks
        self._untried = random.sample(range(len(tasks)), len(tasks))  # each process begins elsewhere

    @classmethod
    def post(cls, folder: Path, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Self:
        """Write a step for all processes."""
        file, marker = folder / "tasks.pickle", folder / "tasks.json"
        with whole_file(file) as beside:
            beside.write_bytes(pack(function, list(tasks), installed_versions()))
        Marker(marker, {}, Marker.entries(marker, [file])).write()
        return cls(folder, function, tasks)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read a step that another process has written.

        Raises:
            FileNotFoundError: it is not written yet, or has just been removed.
            RunError: it was written by another user, or by other versions of what decides about bytes.
        """
        file, marker = folder / "tasks.pickle", Marker.read(folder / "tasks.json")
        packed = file.read_bytes()
        if marker is None or marker.files[file.name]["sha256"] != hashlib.sha256(packed).hexdigest():
            raise FileNotFoundError(file)
        if file.stat().st_uid != _user_there(folder):
            raise RunError(f"{file} is another user's: its tasks are not run. Start all processes as one user")
        return cls(folder, *unpack(packed))

    def file(self, number: int, kind: str) -> Path:
        """Name the lock or the result of a task."""
        return self.folder / f"{number:05d}.{kind}"

    def finished(self) -> set[int]:
        """Return the tasks that have a result."""
        return {int(name.partition(".")[0]) for name in os.listdir(self.folder) if name.endswith(".result")}  # noqa: PTH208  # names are enough

    def candidates(self) -> Iterator[int]:
        """Return tasks that may be left to do, those first that this process has not looked at."""
        while self._untried:
            yield self._untried.pop()
        yield from sorted(set(range(len(self.tasks))) - self.finished())

    def do(self, number: int) -> None:
        """Do a task and write its result, or its error; of a step that was removed meanwhile, nothing."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        attempts, result = self.file(number, "attempts"), self.file(number, "result")
        begun = len(attempts.read_bytes()) if attempts.exists() else 0
        if begun < ATTEMPTS:
            with attempts.open("ab") as file:
                file.write(b".")
            packed = answer(self.function, self.tasks[number])
        else:
            packed = answer(_give_up, f"a task was begun {begun} times, and its process ended or hung each time")
        beside = partial_path(result)
        beside.write_bytes(with_checksum(packed))
        publish(beside, result)

    def result(self, number: int) -> Any:
        """Return the result of a task, or raise its error."""
        file = self.file(number, "result")
        if file.stat().st_uid != (self.folder / "tasks.pickle").stat().st_uid:
            raise RunError(f"{file} is another user's, and not read. Start all processes as one user")
        content = without_checksum(file.read_bytes(), str(file))
        done, result = pickle.loads(content)  # noqa: S301  # of the same user's processes
        if not done:
            raise result
        return result


def _give_up(reason: str) -> None:
    raise RunError(
        f"{reason}: it may need more memory than a process has here, or a disk that does not answer. What is finished "
        "is kept"
    )


def _describe(lock: Path, owner: Mapping[str, Any]) -> str:
    does = "leads the run" if lock.name == LOCK else f"does task {int(lock.stem) + 1:,} of its step"
    return f"process {owner.get('process')} on {owner.get('host')}, which {does}"


def _user_there(folder: Path) -> int:
    """Return the user that a file of this process has in a folder: a mount may give it another than its own."""
    beside = partial_path(folder / "user")
    beside.touch()
    user = beside.stat().st_uid
    beside.unlink()
    return user


def _changed(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None


def _withdraw(folder: Path) -> None:
    """Remove a folder in which others may be about to write: they do not find it any more.

    What one writes at that very moment stays, and goes with the folder of the run's work.
    """
    beside = partial_path(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(beside)
    shutil.rmtree(beside, ignore_errors=True)
