"""Holds the folder of a run for one process, by a lease that several machines see and that can be lost.

A machine that stands still for longer than ``STALE`` seconds finds another one at work when it goes on. Both write the
same bytes, but one removes what the other still reads. So what holds a folder is compared with the lock before steps,
behind them, and before anything is removed or published; a process that has lost it stops.

``flock`` is missing on many file systems of clusters. A lease is a file that is linked into its place, which succeeds
for one process alone. A child process of the owner touches it every ``BEAT`` seconds, even while a kernel holds the
interpreter, and removes it when the owner has ended. It can also stop touching it while the owner uses no CPU time, so
that a process that hangs loses its leases. A process of the same machine sees at once whether the owner has ended; any
process takes a lease that it has watched for ``STALE`` seconds, by its own clock, without a change. Such a lease may be
held twice for a moment: what is done under a lease may be done again, to the same files.

In an object store a lease is an object that is created where there is none, and written again instead of touched.
"""

import contextlib
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
from typing import Any, Literal, Protocol, Self, TypeVar
from uuid import uuid4

from longcrawl.errors import LongCrawlError, NotYetError, RunError, warn_user
from longcrawl.io import files
from longcrawl.io.files import clear_others, name_of, partial_path, url_of

BEAT = 5.0
STALE = 60.0
_beating = set[str]()
"""The owners of leases in this process."""
MOST_PAUSE = 6.0
"""Seconds between two looks at a lease that count, at most."""


class _Carrier(Protocol):
    """What holds the text of a lease."""

    def create(self, path: Path, text: str) -> bool:
        """Write a lease where there is none; return whether it was written."""

    def read(self, path: Path) -> str | None:
        """Return the text of a lease; None where there is none, or it is removed while it is read."""

    def changed(self, path: Path) -> Any:
        """Return what changes when a lease is renewed; None where there is none."""

    def renew(self, path: Path, text: str) -> None:
        """Show that the owner is alive."""

    def remove(self, path: Path) -> None:
        """Remove one's own lease."""

    def take_away(self, path: Path, owner: dict[str, Any]) -> None:
        """Remove the lease of an owner that is gone, unless it is another's by now."""


class _Files:
    def create(self, path: Path, text: str) -> bool:
        beside = partial_path(path)
        beside.write_text(text, "utf-8")
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        finally:
            beside.unlink(missing_ok=True)
        return True

    def read(self, path: Path) -> str | None:
        with contextlib.suppress(OSError):
            return path.read_text("utf-8", "replace")
        return None

    def changed(self, path: Path) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime_ns
        return None

    def renew(self, path: Path, text: str) -> None:  # noqa: ARG002  # its time is enough
        os.utime(path)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def take_away(self, path: Path, owner: dict[str, Any]) -> None:
        # Of several that see it, one renames it. That may be the lease of the next owner already.
        beside = partial_path(path)
        with contextlib.suppress(FileNotFoundError):
            path.rename(beside)
            if read_owner(beside) != owner:
                with contextlib.suppress(FileExistsError):
                    os.link(beside, path)
            beside.unlink(missing_ok=True)


class _Objects:
    create = staticmethod(files.create)
    read = staticmethod(files.read_store)
    changed = staticmethod(files.changed_at)
    renew = staticmethod(files.overwrite)
    remove = staticmethod(files.drop)

    def take_away(self, path: Path, owner: dict[str, Any]) -> None:
        if read_owner(path) == owner:
            files.drop(path)


_FILES, _OBJECTS = _Files(), _Objects()


def _carrier(path: Path) -> _Carrier:
    return _FILES if files.url_of(path) is None else _OBJECTS


class Heartbeat:
    """A child process that renews the leases of this process, and removes them when it has ended.

    Args:
        beat: seconds between two renewals.
        proves: "life" renews leases until this process ends. "progress" renews them only if it has used CPU time since
            the last renewal, or has called :meth:`progress`; without ``/proc``, it is as "life".
    """

    def __init__(self, beat: float = BEAT, proves: Literal["life", "progress"] = "life") -> None:
        forks = "fork" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
        received, self._changes = context.Pipe(duplex=False)
        self._process = context.Process(target=_beat, args=(received, self._changes, beat, proves), daemon=True)
        self._process.start()
        received.close()
        self._owner = {"owner": uuid4().hex, **_process(os.getpid())}
        _beating.add(self._owner["owner"])

    def take(self, path: Path) -> bool:
        """Take a lease, unless another process holds it.

        Raises:
            FileNotFoundError: its folder is not there.
        """
        # A network file system may link, lose its answer, and be asked again; so may a store.
        if not _carrier(path).create(path, json.dumps(self._owner)) and not self.holds(path):
            return False
        try:
            self._changes.send((str(path), json.dumps(self._owner)))
        except OSError as gone:
            _carrier(path).remove(path)
            raise RunError(f"the process that keeps {path} was killed: type the same command again") from gone
        return True

    def progress(self) -> None:
        """Renew the leases though this process may have used little CPU time: it waits for others."""
        with contextlib.suppress(OSError):  # the child was killed, which the next check of a lease finds
            self._changes.send(("", None))

    def holds(self, path: Path) -> bool:
        """Return whether a lease that this process took is still its own."""
        return read_owner(path) == self._owner

    def release(self, path: Path) -> None:
        """Release a lease."""
        with contextlib.suppress(OSError):  # the process was killed: nobody else touches it
            self._changes.send((str(path), None))
        if self.holds(path):
            _carrier(path).remove(path)

    def stop(self) -> None:
        """Release all leases."""
        _beating.discard(self._owner["owner"])
        with contextlib.suppress(OSError):
            self._changes.send(None)
        self._changes.close()
        self._process.join()


@dataclass
class Watched:
    """A lease of another process, and how long this process has seen it unchanged."""

    path: Path
    stale: float = STALE
    taken_from: dict[str, Any] | None = None
    """The owner that the last look took the lease from because it had not renewed it."""
    _seen: tuple[Any, dict[str, Any]] | None = None
    _unchanged: float = 0.0
    _looked: float = field(default_factory=time.monotonic)

    def remove_if_stale(self) -> bool:
        """Remove the lease if its owner has ended or not renewed it; return whether it changed since the last look."""
        owner, pause = read_owner(self.path), time.monotonic() - self._looked
        self._looked += pause
        # Where nobody could reach the files for a while, neither this process nor the owner: that is no silence.
        self._unchanged += min(pause, MOST_PAUSE)
        self.taken_from = None
        if owner is None:
            return False
        before = self._seen
        if (changed := _carrier(self.path).changed(self.path)) is not None:
            self._seen = changed, owner
            if self._seen != before:
                self._unchanged = 0.0
            if (gone := is_gone(owner)) or self._unchanged > self.stale:
                _carrier(self.path).take_away(self.path, owner)
                self.taken_from = None if gone else owner
        return before is not None and self._seen != before

    @property
    def unchanged(self) -> float:
        """Seconds for which it has been seen unchanged."""
        return self._unchanged


def read_owner(path: Path) -> dict[str, Any] | None:
    """Return the owner of a lease; None where nobody holds it."""
    text = _carrier(path).read(path)
    if text is None:  # removed by another machine, perhaps while it was read
        return None
    try:
        owner = json.loads(text)
    except ValueError:
        return {}  # of a damaged file, which goes stale like any other
    return owner if isinstance(owner, dict) else {}


def working_owner(path: Path) -> dict[str, Any] | None:
    """Return the owner of a lease in a folder if it is at work, as far as one look tells; None otherwise."""
    owner = read_owner(path)
    if not owner or is_gone(owner):
        return None
    with contextlib.suppress(OSError):
        if is_here(owner) or time.time() - path.stat().st_mtime < STALE:
            return owner
    return None


def is_here(owner: dict[str, Any]) -> bool:
    """Return whether the owner of a lease is, or was, a process that this one would see."""
    here = _process(os.getpid())
    return here["started"] is not None and all(owner.get(name) == here[name] for name in ("host", "boot", "namespace"))


def is_gone(owner: dict[str, Any]) -> bool:
    """Return whether the owner of a lease is a process of this machine that has ended, or has released it in vain."""
    if not is_here(owner):
        return False
    released = owner["process"] == os.getpid() and owner["owner"] not in _beating
    return released or bool(_process(int(owner["process"]))["started"] != owner["started"])


def _process(process: int) -> dict[str, Any]:
    """Describe a process of this machine; ``started`` is None if it has ended, and if there is no /proc."""
    described = {"host": platform.node(), "process": process, "boot": None, "namespace": None, "started": None}
    with contextlib.suppress(OSError):
        described["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        described["namespace"] = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # a text, no path
        state, *values = _process_state(process)
        described["started"] = None if state in "ZX" else int(values[18])
    return described


def _process_state(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the name of the program."""
    return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()


def _cpu_time(process: int) -> int | None:
    """Return the CPU time of all threads of a process, in ticks of mostly 10 ms; None if there is no /proc."""
    with contextlib.suppress(OSError):
        user, system = _process_state(process)[11:13]
        return int(user) + int(system)
    return None


def _beat(received: Connection, other_end: Connection, beat: float, proves: Literal["life", "progress"]) -> None:
    """Renew leases until the owner closes its end or ends; then remove them."""
    other_end.close()
    for stops in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stops, signal.SIG_IGN)
    held: dict[str, str] = {}
    owner_process = os.getppid()
    used = _cpu_time(owner_process)
    with contextlib.suppress(EOFError):
        # A process that the owner has forked, and that outlives it, may hold the other end open.
        while os.getppid() == owner_process:
            if received.poll(beat):
                change = received.recv()
                if change is None:
                    break
                path, owner = change
                held.pop(path, None)
                if owner is not None:
                    held[path] = owner
            elif proves == "progress" and used is not None and used == _cpu_time(owner_process):
                continue
            used = _cpu_time(owner_process)
            for path, owner in _own(held):
                with contextlib.suppress(OSError, LongCrawlError):
                    _carrier(path).renew(path, owner)
    for path, _ in _own(held):
        with contextlib.suppress(OSError, LongCrawlError):
            _carrier(path).remove(path)


def _own(held: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Return the leases that have not become another's."""
    for name, owner in held.items():
        path = Path(name)
        with contextlib.suppress(OSError, LongCrawlError):
            if _carrier(path).read(path) == owner:
                yield path, owner


R = TypeVar("R")

LOCK = "lock"
SETTLES = 2.0
"""Seconds after which a lock that was taken in a store, which cannot rename, is looked at again."""


class Hold:
    """The folder ``work`` of a run, as long as the lock in it is this process's own."""

    def __init__(self, heartbeat: Heartbeat, work: Path) -> None:
        self._heartbeat, self._work, self._looked = heartbeat, work, time.monotonic()

    def check(self) -> None:
        """Compare the owner of the lock with this process.

        Raises:
            RunError: it is another one, or there is no lock any more.
        """
        self._looked = time.monotonic()
        if not self._heartbeat.holds(self._work / LOCK):
            raise RunError(
                "this process did not renew its lock for so long that another one leads the run in "
                f"{name_of(self._work.parent)} now, and it has stopped: wait for that one, or with --engine shared "
                "type the same command again to help it"
            )

    def pass_on(self, results: Generator[R, None, None]) -> Iterator[R]:
        """Yield the results of tasks, as long as the folder is held; of many, it is looked at now and then."""
        self.check()
        with closing(results):
            for result in results:
                if time.monotonic() - self._looked >= BEAT:
                    with suppress(NotYetError):  # a store that does not answer now has not said that it is another's
                        self.check()
                yield result
        self.check()


@dataclass(frozen=True)
class HeldAlone:
    """What engines have in common whose run is one process's, with workers of its own."""

    held: Hold | None = field(default=None, kw_only=True, repr=False, compare=False)
    """Of the run that it carries out."""

    @contextmanager
    def hold(self, work: Path, is_finished: Callable[[], bool]) -> Iterator[Self | None]:
        """Hold the folder of a run, as the only process that does."""
        with hold_alone(work) as held:
            yield None if is_finished() else replace(self, held=held)

    def check(self) -> None:
        """Check that this process still holds the folder of the run."""
        if self.held is not None:
            self.held.check()

    def _while_held(self, results: Generator[R, None, None]) -> Iterator[R]:
        return results if self.held is None else self.held.pass_on(results)


def at_work(doing: str, run: str, owner: Mapping[str, Any]) -> str:
    """Describe who holds a run, and that it is waited for."""
    return f"another {doing} is working in {run}, process {owner.get('process')} on {owner.get('host')}: wait for it"


@contextmanager
def hold_alone(work: Path, doing: str = "run") -> Iterator[Hold]:
    """Hold the folder ``work`` of a run, as the only process that does.

    Args:
        work: a folder in that of the run.
        doing: what another process does there, for the message.

    Raises:
        RunError: another run, or what else holds it, is working there.
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
                warn_user(f"{run} is of {owner.get('host')}: waiting up to {STALE:.0f} s for a sign that it still runs")
            time.sleep(1)
            renewed = watched.remove_if_stale()
        _check_it_stays(heartbeat, lock, run)
        clear_others(work.parent)
        yield Hold(heartbeat, work)
    finally:
        heartbeat.stop()


def _check_it_stays(heartbeat: Heartbeat, lock: Path, run: str) -> None:
    """Check that no other process has the lock of a store: one that saw it stale, too, or was not refused."""
    if url_of(lock) is not None:
        time.sleep(SETTLES)
        if not heartbeat.holds(lock):
            raise RunError(f"another process has begun to work in {run}: wait for it, or choose another folder")
