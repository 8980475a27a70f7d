"""One worker process as its parent sees it: pages that are on their way, and answers that have come."""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from longcrawl.errors import StageError
from longcrawl.text.extract import _worker as _extraction_worker
from longcrawl.text.extract._worker import HEADER, LENGTH

_READ = 1 << 20


class WorkerSettings(NamedTuple):
    """The settings that workers start with."""

    engine: str
    """The path of a file with a function ``make_extractor(favor)``, which gives one from HTML to a text or None."""
    favor: str
    max_seconds: float
    max_memory: int
    wall_seconds: float
    """After so long without an answer a worker is taken to be stuck. It does not know of that."""


class ExtractionProcess:
    """A worker that has been started. Nothing here waits: the pool does, for several of them at once."""

    def __init__(self, settings: WorkerSettings) -> None:
        if not sys.executable:
            raise StageError("extract_text starts a Python process, and sys.executable does not say where Python is")
        if not hasattr(signal, "setitimer"):
            raise StageError(
                "extract_text needs timers that Windows does not have; run it on Linux or macOS, or in WSL"
            )
        settings_json = json.dumps(settings._asdict() | {"parent": os.getpid()})
        command = [sys.executable, "-P", _extraction_worker.__file__, settings_json]
        # Libraries are looked for where this process looks. No order of a set of strings may show in a text, and what
        # glibc sets aside for threads is not what a page takes.
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
        self.wall_seconds = settings.wall_seconds
        self.patience = self.wall_seconds
        """How long an answer may still take."""
        self.ready = False
        self.at_work: deque[int] = deque()
        """Numbers of the pages that it has been sent and has not answered."""
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()

    def send(self, number: int, page: memoryview) -> None:
        """Put a page in line; ``write`` sends it."""
        if not self.at_work:
            self.patience = self.wall_seconds
        self.at_work.append(number)
        self._outgoing.extend([memoryview(LENGTH.pack(len(page))), page])

    @property
    def has_more(self) -> bool:
        """Whether something is waiting to be written."""
        return bool(self._outgoing)

    def write(self) -> None:
        """Write as much as the pipe takes; that the worker has died shows when it is read from."""
        with suppress(BlockingIOError):
            while self._outgoing:
                try:
                    written = os.write(self.to_worker, self._outgoing[0])
                except BrokenPipeError:
                    self._outgoing.clear()
                    return
                rest = self._outgoing.popleft()[written:]
                if len(rest):
                    self._outgoing.appendleft(rest)

    def read(self) -> bool:
        """Read what there is; False at the end, when the worker has closed its output."""
        try:
            data = os.read(self.from_worker, _READ)
        except BlockingIOError:
            return True
        self._incoming += data
        return bool(data)

    def answers(self) -> Iterator[tuple[bytes, str]]:
        """Return the answers that are whole, oldest first."""
        while len(self._incoming) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._incoming)
            end = HEADER.size + size
            if len(self._incoming) < end:
                return
            text = self._incoming[HEADER.size : end].decode()
            del self._incoming[:end]
            self.patience = self.wall_seconds
            yield kind, text

    def end(self, patience: float = 0.0) -> int:
        """End the worker if it does not do so by itself; gives its return code, below 0 for a signal."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
        code = self.process.wait()
        self.abandon()
        return code

    def abandon(self) -> None:
        """Close the pipes, in a process that has inherited them from the worker's parent as well."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        # Of a child of another process nothing will be learned.
        self.process.returncode = self.process.returncode or 0
