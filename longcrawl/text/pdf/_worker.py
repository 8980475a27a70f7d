"""PDF worker process: reads documents from standard input and writes the messages about their pages to standard output.

It speaks the protocol of :mod:`longcrawl.text.extract.worker`. PDFium can take any time and memory for a page, and
Python cannot interrupt it. A second thread therefore checks the limits while the main thread is inside PDFium: if one
is exceeded, it sends the pages read so far and ends the process.
"""

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from longcrawl.text.extract.worker import (
    LAST,
    MEMORY,
    MISSING,
    PART,
    RAISED,
    TEXT,
    answer,
    begin,
    open_answers,
    peak_memory,
    sent,
)

_LOOKS = 0.05
"""Seconds between two checks of the limits."""
_GRACE = 2.0
"""CPU seconds after a limit at which the system ends a process that is not inside PDFium."""


def main(settings: dict[str, Any]) -> None:
    """Answer documents until the input ends."""
    answers = open_answers(settings["parent"])
    try:
        from longcrawl.text.pdf.document import Document, Options
    except ImportError as missing:
        answer(answers, MISSING, str(missing))
        return
    options = Options(**settings["options"])
    watch = _Watch(answers, settings["max_seconds"], begin(answers, settings["max_memory"]))
    watch.start()
    gc.freeze()  # repeated garbage collection of the modules' objects took 3 % of the time
    for content in sent():
        document = Document(options, watch.send, watch.end)
        with watch.lock:
            watch.document = document
            try:
                document.read(content, watch.waiting)
            except MemoryError:
                answer(answers, MEMORY, "")
            except Exception:  # noqa: BLE001  # any failure of a library only costs this document
                answer(answers, RAISED, "")
            watch.rest()
        if watch.is_spent:
            return


class _Watch(threading.Thread):
    """Watchdog that stops reading a document when a page takes too long or too much memory."""

    def __init__(self, answers: BinaryIO, max_seconds: float, bound: int | None) -> None:
        super().__init__(daemon=True)
        self.lock = threading.Lock()
        """Held by the main thread except inside PDFium."""
        self.document: Any = None
        self._answers = answers
        self._max_seconds, self._bound = max_seconds, bound
        self._deadline = float("inf")
        self.is_spent = False
        """Whether this process must not read another document."""

    def send(self, message: str) -> None:
        """Send a message about a page."""
        answer(self._answers, PART, message)

    def end(self, message: str) -> None:
        """Send the last message about a document; this process then ends if its peak memory exceeds the limit."""
        self.is_spent = self.is_spent or self._exceeded() == "memory"
        answer(self._answers, LAST if self.is_spent else TEXT, message)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let the watch act during a call of PDFium; check the limits after a long call, as the watch may be late."""
        started = time.process_time()
        self._deadline = started + self._max_seconds
        signal.setitimer(signal.ITIMER_PROF, self._max_seconds + _GRACE)
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()
        if time.process_time() > started + _LOOKS:
            self._stop_if_exceeded()

    def rest(self) -> None:
        """Stop watching until the next document."""
        self.document, self._deadline = None, float("inf")
        signal.setitimer(signal.ITIMER_PROF, 0)

    def run(self) -> None:
        """Check the limits until one is exceeded."""
        while True:
            time.sleep(_LOOKS)
            if self._exceeded() is not None:
                with self.lock:
                    self._stop_if_exceeded()

    def _stop_if_exceeded(self) -> None:
        """End this process with the pages that were read, if a limit is exceeded; the caller holds the lock."""
        reason = self._exceeded()
        if reason is not None and self.document is not None:
            self.is_spent = True
            self.document.stop(reason)
            os._exit(0)

    def _exceeded(self) -> str | None:
        if time.process_time() > self._deadline:
            return "time"
        return "memory" if self._bound is not None and peak_memory() > self._bound else None


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(json.loads(sys.argv[1]))
