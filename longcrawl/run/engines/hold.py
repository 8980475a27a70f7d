"""The folder of a run, which one process holds: its lock is a lease, and a lease can be lost.

A machine that stands still for longer than ``STALE`` seconds finds another one at work when it goes on. Both write the
same bytes, but one removes what the other still reads. So what holds a folder is compared with the lock before steps,
behind them, and before anything is removed or published; a process that has lost it stops.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from longcrawl.errors import NotYetError, RunError, warn_user
from longcrawl.io.lease import BEAT, STALE, Heartbeat, Watched, is_here, read_owner
from longcrawl.io.place import clear_others, name_of, url_of

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
