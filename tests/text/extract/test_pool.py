"""Workers that extract: their limits, what becomes of a page that one does not survive, and of the workers."""

import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import longcrawl as lc
from longcrawl.core.clock import CoreClock
from longcrawl.core.sources import BadFiles
from longcrawl.errors import StageError
from longcrawl.run.part import Tally, run_fused
from longcrawl.sources.warc.source import Warc
from longcrawl.text.extract import pool as _extraction_pool
from longcrawl.text.extract.pool import WorkerSettings, extract_pages

pytestmark = pytest.mark.usefixtures("own_workers", "no_workers_left")

ENGINES = ("trafilatura", "resiliparse", "blocks")


RESILIPARSE_TOO, TRAFILATURA_TOO = (pytest.param(name, marks=pytest.mark.slow) for name in ENGINES[1::-1])


ENGINE = """\
import os, re, signal, sys, time
def make_extractor(favor):
    def extract(html):
"""


def running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(seen, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def workers() -> list[int]:
    pool = _extraction_pool._here.pool
    return [each.process.pid for each in pool.processes] if pool else []


@pytest.fixture
def engine(tmp_path):
    """Return a function that writes an engine of its own: the body of what it does to ``html``."""

    def write(body: str) -> str:
        path = tmp_path / "engine.py"
        lines = "".join(f"        {line}\n" for line in body.splitlines()) + "    return extract\n"
        path.write_text(f"{ENGINE}{lines}")
        return str(path)

    return write


def run_engine(path: str, pages: list[str], workers: int = 1, **settings) -> list[tuple[str | None, str | None]]:
    limits = {"max_seconds": 5.0, "max_memory": 100_000_000} | settings
    sent = [memoryview(each.encode()) for each in pages]
    found = extract_pages(sent, WorkerSettings({"engine": path, "favor": ""}, **limits), workers)
    return [tuple(each) for each in found]


def extraction(name: str, **fields) -> lc.text.ExtractText:
    return lc.text.ExtractText(engine=name, **fields)


@pytest.mark.slow
def test_a_page_that_waits_is_not_stopped_by_the_limit_of_time(engine):
    assert run_engine(engine("time.sleep(0.6)\nreturn html"), ["a"], max_seconds=0.3) == [("a", None)]


@pytest.mark.parametrize(
    "loop",
    [
        "re.match('(a*)*b', 'a' * 99)",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("while True: pass", "sum(range(10**12))")),
    ],
)
def test_an_endless_loop_is_ended_in_python_and_in_c(engine, loop):
    path = engine(f"if html == 'loop':\n    {loop}\nreturn html")
    found = run_engine(path, ["a", "loop", "b", "loop", "c"], max_seconds=0.3)
    assert found == [("a", None), (None, "time"), ("b", None), (None, "time"), ("c", None)]


@pytest.mark.slow
def test_a_worker_that_stands_still_is_ended_by_wall_time(engine, monkeypatch):
    monkeypatch.setattr(_extraction_pool, "_WALL_SECONDS", 0.5)
    path = engine("if html == 'stuck':\n    time.sleep(1000)\nreturn html")
    assert run_engine(path, ["a", "stuck", "b"]) == [("a", None), (None, "time"), ("b", None)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the address space")
@pytest.mark.parametrize("need", ["150 * 10**6", "10**9", "10**15"])
def test_a_worker_that_runs_out_of_memory(engine, need):
    """Between once and twice the limit the page is finished and dropped; beyond, the system refuses."""
    path = engine(f"if html == 'big':\n    return str(len(bytearray({need})))\nreturn html")
    assert run_engine(path, ["a", "big", "b"]) == [("a", None), (None, "memory"), ("b", None)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the address space")
def test_memory_that_a_library_did_without_is_noticed(engine):
    path = engine(
        "made = []\ntry:\n    while html == 'big':\n        made.append(bytearray(10**6))\n"
        "except MemoryError:\n    pass\nreturn html"
    )
    assert run_engine(path, ["a", "big", "b"]) == [("a", None), (None, "memory"), ("b", None)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the address space")
def test_what_earlier_pages_left_in_memory_is_not_charged_to_a_page(engine):
    path = engine("sys.modules.setdefault('kept', []).append(bytearray(30 * 10**6))\nreturn html")
    assert run_engine(path, list("abcdefgh")) == [(each, None) for each in "abcdefgh"]


# Workers that die.


@pytest.mark.variants
@pytest.mark.parametrize(
    "death",
    [
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "raise ValueError",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "sys.exit()")
        ),
    ],
)
def test_a_page_that_kills_its_worker_leaves(engine, death):
    path = engine(f"if html == 'bad':\n    {death}\nreturn html")
    for count in (1, 2):
        found = run_engine(path, ["a", "bad", "b", "bad", "bad", "c"], workers=count)
        assert found == [("a", None), (None, "crash"), ("b", None), (None, "crash"), (None, "crash"), ("c", None)]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT interrupt: a shell starts what is in its background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_batch_leaves_nothing_behind(engine):
    path = engine("time.sleep(float(html) if html.isdigit() else 0)\nreturn html")
    assert run_engine(path, ["0"]) == [("0", None)]
    (first,) = workers()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_engine(path, ["50", "0"])
    assert not running(first)
    assert run_engine(path, ["0"]) == [("0", None)]


def test_ctrl_c_is_not_for_the_worker(engine):
    path = engine("return html")
    run_engine(path, ["a"])
    before = workers()
    os.kill(before[0], signal.SIGINT)
    assert run_engine(path, ["b"]) == [("b", None)]
    assert workers() == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "body",
    [pytest.param("return html", id="idle", marks=pytest.mark.slow), pytest.param("time.sleep(1000)", id="at work")],
)
def test_a_worker_ends_with_its_parent(engine, tmp_path, body):
    """The parent is killed, and a process that was forked from it, and has its pipes, lives on."""
    began = tmp_path / "began"
    path = engine(f"if 'warm' in html or 'first' in html:\n    return html\nopen({str(began)!r}, 'w')\n{body}")
    fork = multiprocessing.get_context("fork")
    told, tells = fork.Pipe(duplex=False)

    def extract_until_killed() -> None:
        run_engine(path, ["first page"], max_seconds=60.0)
        child = os.fork()
        if child == 0:
            time.sleep(600)
        tells.send((workers()[0], child))
        run_engine(path, ["x"], max_seconds=60.0)
        time.sleep(600)

    parent = fork.Process(target=extract_until_killed)
    parent.start()
    assert told.poll(60)
    worker, child = told.recv()
    try:
        assert running(worker)
        wait_until(began.exists)
        parent.kill()
        parent.join()
        wait_until(lambda: not running(worker))
    finally:
        os.kill(child, signal.SIGKILL)


def test_what_libraries_print_is_no_answer(engine, capfd):
    path = engine("print('noise', flush=True); os.write(1, b'noise'); os.write(2, b'noise')\nreturn html")
    assert run_engine(path, ["a", "b"]) == [("a", None), ("b", None)]
    # The page by which a worker warms up comes before it is silent.
    assert capfd.readouterr() == ("", "noise")


def test_texts_with_lone_surrogates_are_replaced(engine):
    assert run_engine(engine("return html + chr(0xd800)"), ["a"]) == [("a?", None)]


def test_a_missing_library_is_one_sentence(engine):
    path = engine("return html")
    Path(path).write_text("def make_extractor(favor):\n    import trafilatura_of_nobody\n")
    with pytest.raises(StageError, match=r"lacks a library .*trafilatura_of_nobody.*: pip install 'longcrawl\[warc\]'"):
        run_engine(path, ["a"])
    assert workers() == []


def test_a_worker_that_cannot_begin_is_one_sentence(engine):
    path = engine("return html")
    Path(path).write_text("import os\nos._exit(3)\n")
    with pytest.raises(StageError, match="ended with code 3 before it was ready"):
        run_engine(path, ["a"])


# What it takes.


def process_tree_seconds() -> float:
    """Return the CPU seconds of this process and of all its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.mark.slow
def test_counted_seconds_are_those_of_living_ended_and_killed_workers(engine):
    """Only the 0.09 seconds of the waiting process were counted once, not the child's 2.65."""
    burn = (
        "until = time.process_time() + (1.0 if 'endless' in html else 0.05)\nwhile time.process_time() < until: pass\n"
    )
    path = engine(f"{burn}if 'exit' in html: os._exit(1)\nreturn html")
    _extraction_pool._here.close()
    clock, before = CoreClock(), process_tree_seconds()
    with clock.measure("all"):
        for pages in (["a", "b", "exit"], ["c", "endless", "d"]):
            run_engine(path, pages, workers=2, max_seconds=0.2)
    own = clock.seconds["all"]
    _extraction_pool._here.close()
    assert clock.seconds["all"] == own
    assert own == pytest.approx(process_tree_seconds() - before, rel=0.1)
    assert own > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", [RESILIPARSE_TOO, "trafilatura"], scope="module")
def test_the_counted_seconds_of_real_pages_are_those_of_the_process_tree(real_data, name):
    source, tally = Warc(data_files=str(real_data / "warc" / "pages-00000.warc.gz")), Tally()
    documents = next(iter(source.read(source.splits()["train"][0], BadFiles()))).slice(0, 8)
    _extraction_pool._here.close()
    before = process_tree_seconds()
    for _ in run_fused([("extract", extraction(name))], [documents], tally):
        pass
    _extraction_pool._here.close()
    assert tally.clock.seconds["extract"] == pytest.approx(process_tree_seconds() - before, rel=0.1)
