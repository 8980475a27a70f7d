"""Pool of this process's extraction workers, with retries for pages on which a worker dies."""

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from longcrawl.core.clock import LIVING
from longcrawl.core.stages import Stage
from longcrawl.errors import StageError
from longcrawl.text.extract import worker as _extraction_worker
from longcrawl.text.extract.worker import HEADER, LAST, LENGTH, MEMORY, MISSING, PART, RAISED, READY

_READ = 1 << 16
"""Maximum bytes in a pipe; a larger buffer would be allocated anew for each answer."""


_SHORTEST, _LONGEST = 0.001, 86_400
"""Bounds of limits in CPU seconds; the system may treat shorter times as no limit."""
_LEAST_MEMORY = 4_000_000
"""Minimum limit in bytes: with 1 MB, no library reads even a small file."""
_WALL_SECONDS = 60.0
"""Seconds without an answer, per CPU second of the limit and at least one, after which a worker counts as stuck."""


class WorkerSettings(NamedTuple):
    """Settings that workers start with."""

    options: Mapping[str, Any]
    """Settings of the program that a worker runs, ready for JSON."""
    max_seconds: float
    max_memory: int
    worker: str = _extraction_worker.__file__
    """Path of the program that a worker runs."""
    stage: str = "extract_text"
    extra: str = "warc"
    """Extra of longcrawl with the libraries that the worker needs."""


def check_limits(stage: Stage, *seconds: str) -> None:
    """Raise StageError if ``max_memory`` or one of the fields in CPU seconds is out of bounds."""
    stage.check_least(max_memory=_LEAST_MEMORY)
    for name in seconds:
        if not _SHORTEST <= (value := getattr(stage, name)) <= _LONGEST:
            raise StageError(f"{stage.name}.{name} must be between {_SHORTEST} and {_LONGEST:,}, got {value}")


class ExtractionProcess:
    """A running worker. Its methods never block: the pool waits for several workers at once."""

    def __init__(self, settings: WorkerSettings) -> None:
        if not sys.executable:
            raise StageError(
                f"{settings.stage} starts a Python process, and sys.executable is empty: set it to the path of Python"
            )
        if not hasattr(signal, "setitimer"):
            raise StageError(
                f"{settings.stage} needs timers that Windows does not have; run it on Linux or macOS, or in WSL"
            )
        settings_json = json.dumps(settings._asdict() | {"parent": os.getpid()})
        command = [sys.executable, "-P", settings.worker, settings_json]
        # Workers use this process's import path. A fixed hash seed keeps the order of sets out of texts, and a single
        # arena keeps glibc's reserves for threads out of a page's memory.
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}
        self.process = subprocess.Popen(  # noqa: S603  # this Python and a file of this package
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        assert self.process.stdin is not None  # for mypy: both are pipes
        assert self.process.stdout is not None
        self.to_worker, self.from_worker = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.to_worker, False)
        os.set_blocking(self.from_worker, False)
        self.wall_seconds = _WALL_SECONDS * max(settings.max_seconds, 1.0)
        self.patience = self.wall_seconds
        """Seconds that an answer may still take."""
        self.ready = False
        self.at_work: deque[int] = deque()
        """Numbers of the pages that were sent and not answered yet."""
        self.outgoing: deque[memoryview] = deque()
        """Bytes waiting to be written."""
        self._incoming = bytearray()

    def send(self, number: int, page: memoryview) -> None:
        """Queue a page; ``write`` sends it."""
        if not self.at_work:
            self.patience = self.wall_seconds
        self.at_work.append(number)
        self.outgoing.extend([memoryview(LENGTH.pack(len(page))), page])

    def write(self) -> None:
        """Write as much as the pipe takes; the death of a worker is noticed when it is read from."""
        with suppress(BlockingIOError):
            while self.outgoing:
                try:
                    written = os.write(self.to_worker, self.outgoing[0])
                except BrokenPipeError:
                    self.outgoing.clear()
                    return
                rest = self.outgoing.popleft()[written:]
                if len(rest):
                    self.outgoing.appendleft(rest)

    def read(self) -> bool:
        """Read available bytes; return False at the end, when the worker has closed its output."""
        try:
            data = os.read(self.from_worker, _READ)
        except BlockingIOError:
            return True
        self._incoming += data
        return bool(data)

    def answers(self) -> Iterator[tuple[bytes, str]]:
        """Yield the complete answers, oldest first."""
        while len(self._incoming) >= HEADER.size:
            kind, seconds, size = HEADER.unpack_from(self._incoming)
            end = HEADER.size + size
            if len(self._incoming) < end:
                return
            text = self._incoming[HEADER.size : end].decode()
            del self._incoming[:end]
            self.patience = self.wall_seconds
            LIVING[self.process.pid] = seconds
            yield kind, text

    def end(self, patience: float = 0.0) -> int:
        """Kill the worker unless it ends within ``patience`` seconds; return its exit code, negative for a signal."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
        code = self.process.wait()
        self.abandon()
        return code

    def abandon(self) -> None:
        """Close the pipes, also in a process that inherited them from the worker's parent."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        LIVING.pop(self.process.pid, None)
        # A forked process cannot wait for its parent's child, so the exit code remains unknown.
        self.process.returncode = self.process.returncode or 0


_AT_WORK = 2
"""Pages that a worker has at once: one in progress, and one waiting in the pipe, so that it never idles."""
_LAST_SECONDS = 10.0
"""Seconds that a worker that has closed its output may take to exit."""

_LONGEST_WAIT = 1.0
"""Seconds of wall time to wait for any worker before checking for stuck ones."""


Failure = Literal["time", "memory", "crash"]


class Extracted(NamedTuple):
    """Result of a page: its text, and the reason if the text is missing or incomplete."""

    text: str | None
    """None if the extraction failed before any part of the text was sent."""
    failure: Failure | None = None


@dataclass
class _Pool:
    """Up to ``workers`` processes with equal settings."""

    settings: WorkerSettings
    workers: int
    processes: list[ExtractionProcess] = field(default_factory=list)


class _Batch:
    """Pages that a pool is processing.

    If a worker dies on a page, the page is tried once more, as the first page of another worker, so that neither
    earlier pages nor an external ``kill`` decide about it. A page that takes too long is not retried.
    """

    def __init__(self, pool: _Pool, pages: Sequence[memoryview]) -> None:
        self.pool = pool
        self.pages = pages
        self.waiting = deque(range(len(pages)))
        self.found: dict[int, Extracted] = {}
        self.parts: dict[int, list[str]] = defaultdict(list)
        """Parts of texts that are not complete yet, by the number of the page."""
        self.tried: set[int] = set()
        self.selector = selectors.DefaultSelector()

    def run(self, *, start_only: bool) -> list[Extracted]:
        """Return the result of each page, in their order."""
        with self.selector:
            for worker in self.pool.processes:
                self.selector.register(worker.from_worker, selectors.EVENT_READ, worker)
            if start_only and not self.pool.processes:
                self._start_worker()
            while len(self.found) < len(self.pages) or (start_only and not self.pool.processes[0].ready):
                self._feed()
                self._step()
        return [self.found[number] for number in range(len(self.pages))]

    def _start_worker(self) -> ExtractionProcess:
        worker = ExtractionProcess(self.pool.settings)
        self.pool.processes.append(worker)
        self.selector.register(worker.from_worker, selectors.EVENT_READ, worker)
        return worker

    def _feed(self) -> None:
        """Send workers their next pages, one each before any has two."""
        while len(self.pool.processes) < min(self.pool.workers, len(self.waiting)):
            self._start_worker()
        for held in range(_AT_WORK):
            for worker in self.pool.processes:
                if self.waiting and len(worker.at_work) <= held:
                    self._send(worker, self.waiting.popleft())

    def _send(self, worker: ExtractionProcess, number: int) -> None:
        worker.send(number, self.pages[number])
        self._write(worker)

    def _write(self, worker: ExtractionProcess) -> None:
        worker.write()
        registered = worker.to_worker in self.selector.get_map()
        if worker.outgoing and not registered:
            self.selector.register(worker.to_worker, selectors.EVENT_WRITE, worker)
        elif registered and not worker.outgoing:
            self.selector.unregister(worker.to_worker)

    def _step(self) -> None:
        """Wait for an event of a worker, and handle it."""
        began = time.monotonic()
        happened = self.selector.select(_LONGEST_WAIT)
        # Capped, so that time in which this process was suspended does not count.
        waited = min(time.monotonic() - began, _LONGEST_WAIT)
        for worker in [each for each in self.pool.processes if each.at_work or not each.ready]:
            worker.patience -= waited
        for key, events in happened:
            if key.data not in self.pool.processes:
                continue
            if events & selectors.EVENT_WRITE:
                self._write(key.data)
            else:
                self._read(key.data)
        for worker in [each for each in self.pool.processes if each.patience < 0]:
            self._lose(worker, "time")

    def _read(self, worker: ExtractionProcess) -> None:
        is_open = worker.read()
        for kind, text in worker.answers():
            if kind == MISSING:
                settings = self.pool.settings
                raise StageError(
                    f"{settings.stage} lacks a library ({text}): pip install 'longcrawl[{settings.extra}]'"
                )
            if kind == READY:
                worker.ready = True
            elif kind == PART:
                self.parts[worker.at_work[0]].append(text)
            elif kind == MEMORY:
                self._lose(worker, "memory")
                return
            else:
                number = worker.at_work.popleft()
                self.found[number] = self._failed(number, "crash") if kind == RAISED else self._whole(number, text)
                if kind == LAST:
                    self._dismiss(worker)
                    self.waiting.extendleft(reversed(worker.at_work))
                    return
        if not is_open:
            self._lose(worker, None)

    def _whole(self, number: int, text: str) -> Extracted:
        return Extracted("".join([*self.parts.pop(number, ()), text]))

    def _failed(self, number: int, failure: Failure) -> Extracted:
        return Extracted("".join(self.parts.pop(number, ())) or None, failure)

    def _dismiss(self, worker: ExtractionProcess, patience: float = 0.0) -> int:
        """End a worker and return its exit code."""
        self.selector.unregister(worker.from_worker)
        if worker.to_worker in self.selector.get_map():
            self.selector.unregister(worker.to_worker)
        self.pool.processes.remove(worker)
        return worker.end(patience)

    def _lose(self, worker: ExtractionProcess, reason: Literal["time", "memory"] | None) -> None:
        """End a worker that may have died, and decide about its current page; its other pages get another worker."""
        code = self._dismiss(worker, _LAST_SECONDS if reason is None else 0.0)
        if not worker.ready:
            raise StageError(
                f"the process that extracts pages ended with code {code} before it was ready; see its messages"
            )
        self.waiting.extendleft(reversed(worker.at_work))
        if not worker.at_work:
            return
        number = self.waiting.popleft()
        failure: Failure = reason or ("time" if code == -signal.SIGPROF else "crash")
        if failure == "time" or number in self.tried:
            self.found[number] = self._failed(number, failure)
        else:
            self.tried.add(number)
            self.parts.pop(number, None)
            self._send(self._start_worker(), number)


class Workers:
    """Pool of this process for one stage. A forked process starts its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: _Pool | None = None
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def extract(self, settings: WorkerSettings, workers: int, pages: Sequence[memoryview] | None) -> list[Extracted]:
        """Extract pages or, with None, wait for a first worker; an interrupted pool is not reused."""
        with self.lock:
            if self.pool is None or (self.pool.settings, self.pool.workers) != (settings, workers):
                self.close()
                self.pool = _Pool(settings, workers)
            try:
                return _Batch(self.pool, pages or ()).run(start_only=pages is None)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End all workers."""
        pool, self.pool = self.pool, None
        for worker in pool.processes if pool is not None else ():
            worker.end()

    def forget(self) -> None:
        """Close the pipes of the parent's workers, which would not end with it while another process holds them."""
        pool, self.lock, self.pool = self.pool, threading.Lock(), None
        for worker in pool.processes if pool is not None else ():
            worker.abandon()


_here = Workers()


def extract_pages(pages: Sequence[memoryview] | None, settings: WorkerSettings, workers: int) -> list[Extracted]:
    """Extract pages, UTF-8 each, in up to ``workers`` processes, which are kept for the next call.

    With None, no page is extracted, and the call returns when a first worker is ready.

    Raises:
        StageError: the engine's library is not installed, or a worker cannot be started.
    """
    return _here.extract(settings, workers, pages)
