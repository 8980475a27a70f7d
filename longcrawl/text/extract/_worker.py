"""The process that extracts: pages come in by standard input, texts go out by standard output.

It is run by its path and imports nothing of longcrawl, which takes more time and memory to load than an engine does.
The one argument is JSON: the engine's file, what it favors, the limits, and the process that the worker ends with.

A page is eight bytes, its length in bytes (little-endian), and its HTML as UTF-8. An answer is one byte, what it is,
the seconds of a core that this process has taken so far (a little-endian double), then a length and a text in the same
form. The first answer comes unasked: ``READY``, or ``MISSING`` with what is not installed.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

LENGTH = struct.Struct("<Q")
HEADER = struct.Struct("<cdQ")
READY, MISSING, TEXT, RAISED, MEMORY = b"R", b"I", b"T", b"E", b"M"

_WARM_UP = "<html><body><article>" + "<p>A first page, by which the engine loads what it needs.</p>" * 3
_LOOKS_FOR_PARENT = 0.5
_ANY = 1 << 62


def main(settings: dict[str, Any]) -> None:
    """Answer pages until there are no more."""
    # What Ctrl-C ends is up to the process that asks. It may have SIGPROF ignored, which would be inherited.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    threading.Thread(target=_end_with, args=(settings["parent"],), daemon=True).start()
    pages, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What libraries print is not an answer.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    try:
        extract = runpy.run_path(settings["engine"])["make_extractor"](settings["favor"])
        extract(_WARM_UP)
    except ImportError as missing:
        _answer(answers, MISSING, str(missing))
        return
    # From here on they complain about pages, and nobody reads that.
    os.dup2(silent, 2)
    bound = _limit_memory(settings["max_memory"])
    _answer(answers, READY, "")
    while (head := pages.read(LENGTH.size)) and len(head) == LENGTH.size:
        page = pages.read(LENGTH.unpack(head)[0])
        _answer(answers, *_extracted(extract, page, settings["max_seconds"], bound))


def _extracted(
    extract: Callable[[str], str | None], page: bytes, max_seconds: float, bound: int | None
) -> tuple[bytes, str]:
    """Return the answer to a page. Who takes longer is killed by the system, in the middle of whatever it does."""
    signal.setitimer(signal.ITIMER_PROF, max_seconds)
    try:
        kind, text = TEXT, extract(page.decode()) or ""
    except MemoryError:
        kind, text = MEMORY, ""
    except Exception:  # noqa: BLE001  # whatever a library stumbles over, it is this page that goes
        kind, text = RAISED, ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    # Libraries continue without what could not be allocated, so it is the peak that counts.
    if bound is not None and _peak_memory() > bound:
        return MEMORY, ""
    return kind, text


def _limit_memory(max_memory: int) -> int | None:
    """Let the system refuse twice the bound. Return the largest address space a page may need, None for any."""
    import resource

    if not Path("/proc/self/status").exists():
        return None
    peak = _peak_memory()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = min(peak + 2 * max_memory, _ANY)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return peak + max_memory


def _peak_memory() -> int:
    """Return the largest address space so far, in bytes."""
    with Path("/proc/self/status").open("rb") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(b"VmPeak:"))


def _answer(answers: BinaryIO, kind: bytes, text: str) -> None:
    data = text.encode("utf-8", "replace")
    answers.write(HEADER.pack(kind, time.process_time(), len(data)))
    answers.write(data)
    answers.flush()


def _end_with(parent: int) -> None:
    """End this worker when its parent is gone, were it in the middle of a page."""
    while os.getppid() == parent:
        time.sleep(_LOOKS_FOR_PARENT)
    os._exit(1)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(json.loads(sys.argv[1]))
