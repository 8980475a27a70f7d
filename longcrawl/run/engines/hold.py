"""Leases that lock the folder of a run for one process across machines, and that can be lost.

Many cluster file systems lack ``flock``. So a lease is a file that is hard-linked into place, which succeeds for one
process only; in an object store it is an object that is created only if there is none. A child process of the owner
renews it every ``BEAT`` seconds, and removes it when the owner has ended; it can also stop while the owner uses no CPU
time. Any process may take a lease that it has seen unchanged for ``STALE`` seconds, by its own clock. A suspended
machine may then find another one in its place: both write the same bytes, but one removes files that the other still
reads. So the owner checks its lock before and after each step, and before removing or publishing anything.
"""

import json
import multiprocessing
import os
import platform
import signal
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from uuid import uuid4

from longcrawl.errors import LongCrawlError, NotYetError, RunError, warn_user
from longcrawl.io import files
from longcrawl.io.files import clear_others, name_of, partial_path, url_of

BEAT = 5.0
"""Seconds between renewals of a lease."""
STALE = 60.0
"""Seconds without a renewal after which a lease may be taken over."""
_beating = set[str]()
"""Ids of this process's lease owners that have not been stopped."""
MOST_PAUSE = 6.0
"""Largest number of seconds between two looks at a lease that counts as time without a change."""


class _Files:
    """Leases in files; ``changed`` returns a value that changes when a lease is renewed, or None without one."""

    @staticmethod
    def create(path: Path, text: str) -> bool:
        beside = partial_path(path)
        beside.write_text(text, "utf-8")
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        finally:
            beside.unlink(missing_ok=True)
        return True

    @staticmethod
    def read(path: Path) -> str | None:
        with suppress(OSError):
            return path.read_text("utf-8", "replace")
        return None

    @staticmethod
    def changed(path: Path) -> int | None:
        with suppress(FileNotFoundError):
            return path.stat().st_mtime_ns
        return None

    @staticmethod
    def renew(path: Path, _: str) -> None:
        os.utime(path)  # changing the time is enough

    @staticmethod
    def remove(path: Path) -> None:
        path.unlink(missing_ok=True)

    @staticmethod
    def take_away(path: Path, owner: dict[str, Any]) -> None:
        # Several processes may see the stale lease, but only one can rename it. By then it may be the next owner's.
        beside = partial_path(path)
        with suppress(FileNotFoundError):
            path.rename(beside)
            if read_owner(beside) != owner:
                with suppress(FileExistsError):
                    os.link(beside, path)
            beside.unlink(missing_ok=True)


class _Objects:
    create = staticmethod(files.create)
    read = staticmethod(files.read_store)
    changed = staticmethod(files.changed_at)
    renew = staticmethod(files.overwrite)
    remove = staticmethod(files.drop)

    @staticmethod
    def take_away(path: Path, owner: dict[str, Any]) -> None:
        if read_owner(path) == owner:
            files.drop(path)


def _carrier(path: Path) -> type[_Files] | type[_Objects]:
    return _Files if url_of(path) is None else _Objects


class Heartbeat:
    """Child process that renews the leases of this process, and removes them when this process has ended.

    Args:
        beat: seconds between two renewals.
        proves: "life" renews leases until this process ends. "progress" renews them only if this process has used CPU
            time since the last renewal, or has called :meth:`progress`; without ``/proc`` it is the same as "life".
    """

    def __init__(self, beat: float = BEAT, proves: Literal["life", "progress"] = "life") -> None:
        forks = "fork" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
        received, self._changes = context.Pipe(duplex=False)
        given = received, self._changes, beat, proves == "progress"
        self._process = context.Process(target=_beat, args=given, daemon=True)
        self._process.start()
        received.close()
        self._owner = {"owner": uuid4().hex, **_process(os.getpid())}
        _beating.add(self._owner["owner"])

    def take(self, path: Path) -> bool:
        """Take a lease, unless another process holds it; FileNotFoundError if its folder does not exist."""
        # A network file system or a store may create the lease, lose the reply and report failure on a retry.
        if not _carrier(path).create(path, json.dumps(self._owner)) and not self.holds(path):
            return False
        try:
            self._changes.send((str(path), json.dumps(self._owner)))
        except OSError as gone:
            _carrier(path).remove(path)
            raise RunError(f"the process that held {path} was killed: run the same command again") from gone
        return True

    def progress(self) -> None:
        """Renew the leases even if this process has used little CPU time because it waits for others."""
        with suppress(OSError):  # the child was killed; the next check of a lease notices
            self._changes.send(("", None))

    def holds(self, path: Path) -> bool:
        """Return whether this process still owns a lease that it took."""
        return read_owner(path) == self._owner

    def release(self, path: Path) -> None:
        """Release a lease."""
        with suppress(OSError):  # the child was killed, so nothing renews the lease
            self._changes.send((str(path), None))
        if self.holds(path):
            _carrier(path).remove(path)

    def stop(self) -> None:
        """Release all leases."""
        _beating.discard(self._owner["owner"])
        with suppress(OSError):
            self._changes.send(None)
        self._changes.close()
        self._process.join()


@dataclass
class Watched:
    """Lease of another process, and the time for which this process has seen it unchanged."""

    path: Path
    stale: float = STALE
    taken_from: dict[str, Any] | None = None
    """Owner that the last look took the lease from for lack of a renewal, or None."""
    unchanged: float = 0.0
    _seen: tuple[Any, dict[str, Any]] | None = None
    _looked: float = field(default_factory=time.monotonic)

    def remove_if_stale(self) -> bool:
        """Remove the lease if its owner has ended or not renewed it; return whether it changed since the last look."""
        owner, pause = read_owner(self.path), time.monotonic() - self._looked
        self._looked += pause
        # After a long pause the file system may have been unreachable for the owner as well, so count a short one.
        self.unchanged += min(pause, MOST_PAUSE)
        self.taken_from = None
        if owner is None:
            return False
        before = self._seen
        if (changed := _carrier(self.path).changed(self.path)) is not None:
            self._seen = changed, owner
            if self._seen != before:
                self.unchanged = 0.0
            if (gone := is_gone(owner)) or self.unchanged > self.stale:
                _carrier(self.path).take_away(self.path, owner)
                self.taken_from = None if gone else owner
        return before is not None and self._seen != before


def read_owner(path: Path) -> dict[str, Any] | None:
    """Return the owner of a lease, or None if nobody holds it; a damaged lease gives an empty dictionary."""
    if (text := _carrier(path).read(path)) is None:  # removed by another machine, perhaps while it was read
        return None
    with suppress(ValueError):  # a damaged file goes stale like any other
        if isinstance(owner := json.loads(text), dict):
            return owner
    return {}


def working_owner(path: Path) -> dict[str, Any] | None:
    """Return the owner of a lease if a single look shows that it is probably at work, else None."""
    owner = read_owner(path)
    if not owner or is_gone(owner):
        return None
    with suppress(OSError):
        if is_here(owner) or time.time() - path.stat().st_mtime < STALE:
            return owner
    return None


def is_here(owner: dict[str, Any]) -> bool:
    """Return whether the owner of a lease is or was visible to this process: same host, boot and PID namespace."""
    here = _process(os.getpid())
    return here["started"] is not None and all(owner.get(name) == here[name] for name in ("host", "boot", "namespace"))


def is_gone(owner: dict[str, Any]) -> bool:
    """Return whether the owner of a lease has ended on this machine, or is a stopped heartbeat of this process."""
    if not is_here(owner):
        return False
    released = owner["process"] == os.getpid() and owner["owner"] not in _beating
    return released or bool(_process(int(owner["process"]))["started"] != owner["started"])


def _process(process: int) -> dict[str, Any]:
    """Describe a process of this machine; ``started`` is None if it has ended or there is no /proc."""
    described = {"host": platform.node(), "process": process, "boot": None, "namespace": None, "started": None}
    with suppress(OSError):
        described["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        described["namespace"] = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # the link's text is not a path
        state, *values = _process_state(process)
        described["started"] = None if state in "ZX" else int(values[18])
    return described


def _process_state(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()  # behind the program's name


def _cpu_time(process: int) -> int | None:
    """Return the CPU time of all threads of a process in clock ticks, usually 10 ms, or None if there is no /proc."""
    with suppress(OSError):
        user, system = _process_state(process)[11:13]
        return int(user) + int(system)
    return None


def _beat(received: Connection, other_end: Connection, beat: float, needs_progress: bool) -> None:  # noqa: FBT001  # sent
    """Renew leases until the owner closes its end of the pipe or ends; then remove them."""
    other_end.close()
    for stops in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stops, signal.SIG_IGN)
    held: dict[str, str] = {}
    owner_process = os.getppid()
    used = _cpu_time(owner_process)
    with suppress(EOFError):
        # A process forked by the owner may outlive it and keep the pipe open, so watch the parent's id as well.
        while os.getppid() == owner_process:
            if received.poll(beat):
                change = received.recv()
                if change is None:
                    break
                path, owner = change
                held.pop(path, None)
                if owner is not None:
                    held[path] = owner
            elif needs_progress and used is not None and used == _cpu_time(owner_process):
                continue
            used = _cpu_time(owner_process)
            for path, owner in _own(held):
                with suppress(OSError, LongCrawlError):
                    _carrier(path).renew(path, owner)
    for path, _ in _own(held):
        with suppress(OSError, LongCrawlError):
            _carrier(path).remove(path)


def _own(held: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the leases that have not been taken over."""
    for name, owner in held.items():
        path = Path(name)
        with suppress(OSError, LongCrawlError):
            if _carrier(path).read(path) == owner:
                yield path, owner


R = TypeVar("R")

LOCK = "lock"
SETTLES = 2.0
"""Seconds after which a lock taken in an object store, which cannot rename, is checked again."""


class LostLeadError(RunError):
    """Another process leads the run now."""


class Hold:
    """Hold on the ``work`` folder of a run, valid as long as this process owns the lock in it."""

    def __init__(self, heartbeat: Heartbeat, work: Path) -> None:
        self._heartbeat, self._work, self._looked = heartbeat, work, time.monotonic()

    def check(self) -> None:
        """Raise a LostLeadError unless this process still owns the lock."""
        self._looked = time.monotonic()
        if not self._heartbeat.holds(self._work / LOCK):
            raise LostLeadError(
                "this process did not renew its lock in time, so another one leads the run in "
                f"{name_of(self._work.parent)} now, and it has stopped: wait for that one"
            )

    def pass_on(self, results: Generator[R, None, None]) -> Iterator[R]:
        """Yield the results of tasks; check the lock before and after, and every ``BEAT`` seconds between."""
        self.check()
        with closing(results):
            for result in results:
                if time.monotonic() - self._looked >= BEAT:
                    with suppress(NotYetError):  # no reply from a store does not mean that the lock is lost
                        self.check()
                yield result
        self.check()


@dataclass(frozen=True)
class HeldAlone:
    """Base of engines in which one process owns the run and has its own workers."""

    held: Hold | None = field(default=None, kw_only=True, repr=False, compare=False)

    @contextmanager
    def hold(self, work: Path, is_finished: Callable[[], bool]) -> Iterator[Self | None]:
        """Lock the folder of a run for this process alone; yield None if the run is finished by then."""
        with hold_alone(work) as held:
            yield None if is_finished() else replace(self, held=held)

    def check(self) -> None:
        """Check that this process still holds the folder of the run."""
        if self.held is not None:
            self.held.check()

    def _while_held(self, results: Generator[R, None, None]) -> Iterator[R]:
        return results if self.held is None else self.held.pass_on(results)


def at_work(doing: str, run: str, owner: Mapping[str, Any]) -> str:
    """Return the message that another process is working in a run."""
    return f"another {doing} is working in {run}, process {owner.get('process')} on {owner.get('host')}: wait for it"


@contextmanager
def hold_alone(work: Path, doing: str = "run") -> Iterator[Hold]:
    """Lock the ``work`` folder of a run for this process alone; ``doing`` is a noun for another process in messages.

    Raises:
        RunError: another process is working there.
    """
    heartbeat, lock = Heartbeat(), work / LOCK
    watched, run = Watched(lock, STALE), name_of(work.parent)
    try:
        renewed = watched.remove_if_stale()
        while not heartbeat.take(lock):
            owner = read_owner(lock) or {}
            if renewed or is_here(owner):
                raise RunError(f"{at_work(doing, run, owner)}, or choose another folder")
            if not watched.unchanged:
                warn_user(f"{run} is locked by {owner.get('host')}: waiting up to {STALE:.0f} s to see if it runs")
            time.sleep(1)
            renewed = watched.remove_if_stale()
        if url_of(lock) is not None:  # another process may overwrite it, after also seeing the old one as stale
            time.sleep(SETTLES)
            if not heartbeat.holds(lock):
                raise RunError(f"another process has started work in {run}: wait for it, or choose another folder")
        clear_others(work.parent)
        yield Hold(heartbeat, work)
    finally:
        heartbeat.stop()
