"""Extraction worker process: reads pages from standard input and writes texts to standard output.

It is run by path and imports nothing of longcrawl, which takes more time and memory to load than an engine. Its only
argument is JSON: ``options`` with the engine's file and ``favor``, the limits, and the process id of the parent; the
worker ends when its parent ends. The file has a function ``make_extractor(favor)``, which returns a function from HTML
to text or None.

A page is its length in bytes (eight bytes, little-endian) and its HTML as UTF-8. An answer is one byte for its kind,
the CPU seconds that this process has used so far (a little-endian double), and a text in the same form as a page. The
first answer is sent without a page: ``READY``, or ``MISSING`` with the name of a library that is not installed. A
worker may send a page's text in pieces: any number of ``PART``, then ``TEXT``, or ``LAST`` if it ends after this page.
"""

import contextlib
import json
import os
import runpy
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

LENGTH = struct.Struct("<Q")
HEADER = struct.Struct("<cdQ")
READY, MISSING, PART, TEXT, LAST, RAISED, MEMORY = b"R", b"I", b"P", b"T", b"L", b"E", b"M"

_WARM_UP = "<html><body><article>" + "<p>A first page, by which the engine loads what it needs.</p>" * 3
_LOOKS_FOR_PARENT = 0.5
_ANY = 1 << 62


def main(settings: dict[str, Any]) -> None:
    """Answer pages until the input ends."""
    answers = open_answers(settings["parent"])
    try:
        options = settings["options"]
        extract = runpy.run_path(options["engine"])["make_extractor"](options["favor"])
        extract(_WARM_UP)
    except ImportError as missing:
        answer(answers, MISSING, str(missing))
        return
    bound = begin(answers, settings["max_memory"])
    for page in sent():
        answer(answers, *_extracted(extract, page, settings["max_seconds"], bound))


def open_answers(parent: int) -> BinaryIO:
    """Set up this process as a worker of ``parent``, and return the file for answers."""
    # The parent handles Ctrl-C. It may ignore SIGPROF, which this process would inherit.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    # Output printed by libraries must not mix with the answers.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return answers


def begin(answers: BinaryIO, max_memory: int) -> int | None:
    """Answer that this worker is ready; return the largest address space allowed for a page, None for no bound."""
    # After this point, libraries print only complaints about pages, which nobody reads.
    os.dup2(1, 2)
    bound = _limit_memory(max_memory)
    answer(answers, READY, "")
    return bound


def sent() -> Iterator[bytes]:
    """Yield the pages from standard input."""
    pages = sys.stdin.buffer
    while (head := pages.read(LENGTH.size)) and len(head) == LENGTH.size:
        yield pages.read(LENGTH.unpack(head)[0])


def _extracted(
    extract: Callable[[str], str | None], page: bytes, max_seconds: float, bound: int | None
) -> tuple[bytes, str]:
    """Return the answer to a page. If it takes too long, the system kills this process in the middle of its work."""
    signal.setitimer(signal.ITIMER_PROF, max_seconds)
    try:
        kind, text = TEXT, extract(page.decode()) or ""
    except MemoryError:
        kind, text = MEMORY, ""
    except Exception:  # noqa: BLE001  # any failure of a library only costs this page
        kind, text = RAISED, ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    # Libraries may continue after a failed allocation, so the peak decides.
    if bound is not None and peak_memory() > bound:
        return MEMORY, ""
    return kind, text


def _limit_memory(max_memory: int) -> int | None:
    """Make the system refuse twice the bound; return the maximum address space of a page, None for no bound."""
    import resource

    if not Path("/proc/self/status").exists():
        return None
    peak = peak_memory()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = min(peak + 2 * max_memory, _ANY)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return peak + max_memory


def peak_memory() -> int:
    """Return the peak address space of this process in bytes."""
    with Path("/proc/self/status").open("rb") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(b"VmPeak:"))


def answer(answers: BinaryIO, kind: bytes, text: str) -> None:
    """Send an answer."""
    data = text.encode("utf-8", "replace")
    answers.write(HEADER.pack(kind, time.process_time(), len(data)))
    answers.write(data)
    answers.flush()


def _end_with(parent: int) -> None:
    """End this worker when its parent has ended, even in the middle of a page."""
    while os.getppid() == parent:
        time.sleep(_LOOKS_FOR_PARENT)
    os._exit(1)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(json.loads(sys.argv[1]))
