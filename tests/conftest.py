"""Fixtures shared by all tests."""

import collections
import ctypes
import functools
import gc
import hashlib
import http.server
import importlib.util
import inspect
import itertools
import json
import os
import re
import shutil
import socket
import string
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from hypothesis import settings

from longcrawl.run import compile_ahead
from longcrawl.run.samples import SIGNATURES, list_part, write_part

datasets.disable_progress_bars()

# A process that compiles ahead imports all that its run does; the processes of the suite keep all CPUs at work.
compile_ahead.usable_cpus = lambda: 1

# Plain implementations that benchmarks measure against are what some tests compare with. What is installed comes first.
sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
# house.py is what test_layers.py shares with `python -m tests.house`.
sys.path.append(str(Path(__file__).parent))

# A first call compiles or reads a file of tables, and other work may be on the machine: no test is about time.
settings.register_profile("longcrawl", deadline=None, max_examples=5)
# `make slow` takes this one. Tests give the number of their examples as a multiple of the profile's, or not at all.
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("longcrawl")

# torch's threads wait for each other busily: two on a busy machine took four to ten times the CPU of one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The suite starts many pythons, and each compiles all of our files where it finds no bytecode; numba writes there too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files are synced before they get their names: test_job.py takes 105 s with temporary files on a disk, 83 s in memory.
# Examples of hypothesis make folders of their own, by tempfile: of tests/formats they took 25 s on a disk.
MEMORY = Path("/dev/shm")  # noqa: S108  # pytest makes a folder of its own there
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None  # which pytest has looked up already

WHOLE = ("", "cli", "core", "publish", "repository", "run", "workflows")
"""Folders of whole runs and of what compiles little, and the files at the top: any process takes any of their files."""

FIRST = ("text", "dedup")
"""Folders of tests that compile most kernels: two processes take one each before all other folders."""

FORKING = (
    "run/test_part_ids.py",
    "run/test_job.py",
    "run/test_inputs_removals.py",
    "run/test_inputs_removals_index.py",
    "run/test_job_damage.py",
)
"""Files that fork most, which takes as long as a process is large: they are first, and the other whole runs next."""

LARGE = (
    "test_crawl.py",
    "cli/test_make.py",
    "core/test_batches.py",
    "publish/hub/test_documents.py",
    "run/test_inputs.py",
    "workflows/test_object_stores.py",
    "workflows/test_places.py",
)
"""Files of whole runs that import most, such as torch and a server of S3: they come after the others."""


def folder_of(file: str) -> str:
    """Return the folder of ``tests/`` in which a file is, at any depth, or nothing for a file at the top."""
    return next(iter(Path(file).parts[1:-1]), "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run each file in one process, and the files of a folder in one process as long as there are other folders.

    What a module makes once is made once, and files of one folder compile the same kernels.
    """
    from xdist.scheduler import LoadFileScheduling

    class FolderScheduling(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            self.workqueue.move_to_end(self._next_file(node), last=False)
            super()._assign_work_unit(node)

        def _next_file(self, node: Any) -> str:
            """Return a whole run, else a file of a folder that this process has begun, else of a new folder."""
            mine = {folder_of(file) for file in self.assigned_work.get(node, ())}
            begun = {folder_of(file) for files in self.assigned_work.values() for file in files}
            waiting = list(self.workqueue)
            whole = (file for file in waiting if folder_of(file) in WHOLE)
            own = (file for file in waiting if folder_of(file) in mine)
            new = (file for file in waiting if folder_of(file) not in begun)
            return next(itertools.chain(whole, own, new, waiting))

    config.option.loadscopereorder = False
    return FolderScheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Read files from the last to the first in every second process.

    Where nothing has bytecode, pytest takes 11 s to rewrite all assertions. Two processes that meet do half each.
    """
    report = yield
    name = getattr(collector.config, "workerinput", {}).get("workerid", "gw0")
    if isinstance(collector, pytest.Directory) and int(name.removeprefix("gw")) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark variants slow, and order files for several processes: whole runs come first, then what compiles most."""
    seen = set()
    for item in items:
        if item.get_closest_marker("variants") and not item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker("slow")
            seen.add(test)
    if config.getoption("numprocesses", None) is None and not hasattr(config, "workerinput"):
        return

    def turn(item: pytest.Item) -> tuple[bool, int, Path]:
        file = item.nodeid.partition("::")[0]
        folder = folder_of(file)
        whole = folder in WHOLE
        names, name = ((*FORKING, "", *LARGE), file.removeprefix("tests/")) if whole else ((*FIRST, ""), folder)
        return (not whole, names.index(name if name in names else ""), item.path)

    items.sort(key=turn)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Read tests without the garbage collector, and keep what is imported out of it.

    It took a quarter of the time of collecting, which makes hardly any garbage; and each fork copies the pages that a
    collection touches. It also runs less often than by default: it took 5 % of the time of the tests of formats.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Return memory that a file's tests have freed: each fork copies what lists the pages of a process."""
    if nextitem is None or nextitem.path != item.path:
        pa.default_memory_pool().release_unused()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real input named by LONGCRAWL_DATA, or skip."""
    folder = os.environ.get("LONGCRAWL_DATA")
    if not folder:
        pytest.skip("LONGCRAWL_DATA names no folder of real data")
    return Path(folder)


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return names of folders. For each that pytest makes, it lists all that earlier tests have made."""
    folder = tmp_path_factory.mktemp("datasets_caches")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_cache(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what `datasets` caches out of the user's cache, and apart between tests."""
    cache = next(caches)
    cache.mkdir()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)


COMMANDS = """
import atexit, gc, json, os, pathlib, sys, traceback
import datasets, numba, longcrawl.cli
# What commands import when they need it: most of the time of a command that each child would take again.
import charset_normalizer, tiktoken, tokenizers, typer._adapters, zarr
from longcrawl.run import compile_ahead
from longcrawl.core.outputs import OUTPUTS, RESULTS
from longcrawl.core.sources import SOURCES
from longcrawl.core.stages import STAGES
for name in longcrawl.__all__:
    getattr(longcrawl, name)
for kinds in (SOURCES, STAGES, OUTPUTS, RESULTS):
    list(kinds.values())

numba.njit(lambda number: number)(1)  # numba imports a third of itself when it first compiles or loads a kernel
compile_ahead.usable_cpus = lambda: 1
gc.freeze()
for line in sys.stdin:
    words, folder, cache, given, output, errors = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(folder)
    for number, path in enumerate((given, output, errors)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    datasets.config.HF_DATASETS_CACHE = pathlib.Path(cache)
    code = 0
    try:
        if words[:1] == ["-c"]:
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<program>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = ["longcrawl", *words]
            longcrawl.cli.main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    # As python ends, but for taking apart every module that was imported, which takes longer than most commands.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code or 0)
"""


@pytest.fixture(scope="session")
def forked() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Return what ``longcrawl`` and ``python`` run words with: processes of their own, forked where all is imported."""
    server = subprocess.Popen(
        [sys.executable, "-c", COMMANDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def run(words: Sequence[object], given: bytes = b"") -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as folder:
            read, output, errors = (Path(folder, name) for name in ("input", "output", "errors"))
            read.write_bytes(given)
            command = [str(word) for word in words]
            places = (Path.cwd(), datasets.config.HF_DATASETS_CACHE, read, output, errors)
            server.stdin.write(json.dumps([command, *map(str, places)]) + "\n")
            server.stdin.flush()
            code = int(server.stdout.readline())
            return subprocess.CompletedProcess(command, code, output.read_text("utf-8"), errors.read_text("utf-8"))

    with server:
        yield run


@pytest.fixture(scope="session")
def longcrawl(
    forked: Callable[..., subprocess.CompletedProcess[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command of ``longcrawl`` in a process of its own, forked where all is imported.

    Most of the time of a short command is importing, and taking apart what was imported. That commands start where
    nothing is imported, and as they are installed, is tested in ``run/test_job.py``, by the README and
    in ``cli/test_commands.py``.
    """
    return lambda *words, given=b"": forked(words, given)


@pytest.fixture(scope="session")
def python(
    forked: Callable[[Sequence[object]], subprocess.CompletedProcess[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a program, told what stands behind it, as ``longcrawl`` runs commands."""
    return lambda program, *arguments: forked(["-c", program, *arguments])


def directory_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@pytest.fixture(scope="session", name="directory_digest")
def give_directory_digest() -> Callable[[Path], str]:
    """Return a function that digests the names and bytes of all that is in a folder."""
    return directory_digest


LIMITS = {
    "run.inputs": {"HELD": 0, "TASK": 1, "WRITTEN": 1},
    "run.part": {"HELD": 0, "PIECE": 16},
    "formats.order": {"HELD": 0, "PIECE": 8},
    "dedup.clusters": {"SECTION": 5, "PIECE": 8, "BANDS": 7, "TABLES": 10},
    "dedup.substring": {"PIECE": 1500, "FREQUENT": 2},
    "dedup.index": {"PIECE": 4, "SENT": 1},
    "run.engines.spark": {"BATCH": 1000},
}
"""Limits of a process or task so low that a few documents of a test exceed them, and all that can spill does."""


@pytest.fixture(scope="session")
def set_limits() -> str:
    """Return a line of Python that sets them, for processes that a test starts."""
    return (
        "import importlib\n"
        f"for module, named in {LIMITS!r}.items():\n"
        "    vars(importlib.import_module(f'longcrawl.{module}')).update(named)\n"
    )


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one process, and each task, hold as little as ``LIMITS`` has."""
    for module, named in LIMITS.items():
        for name, value in named.items():
            monkeypatch.setattr(importlib.import_module(f"longcrawl.{module}"), name, value)


KILL_BEFORE_RENAMES = """
import hashlib, json, os, shutil, signal, sys
from pathlib import Path
import datasets
import longcrawl as lc

datasets.disable_progress_bars()
recipe, folder, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
exec(sys.argv[4])
os.fsync = lambda opened: None  # kill -9 loses nothing that the system has taken, and the disk is slow
rename = os.replace

def in_a_child(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]

def run_until(last):
    renames = 0
    def replace(*paths):
        nonlocal renames
        renames += 1
        if renames == last:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(*paths)
    os.replace = replace
    lc.run(recipe, folder)

told, point = {}, 2
while True:
    killed = in_a_child(lambda: run_until(point)) == signal.SIGKILL
    unfinished = not (folder / "manifest.json").exists()
    status = in_a_child(lambda: lc.run(recipe, folder)) if killed else 0
    told[point] = [killed, unfinished, status, directory_digest(folder)]
    shutil.rmtree(folder)
    if not killed:
        break
    point += step
print(json.dumps(told))
"""


@pytest.fixture(scope="session")
def killed_before_renames() -> Callable[[Path, Path, int], dict[str, tuple[bool, bool, int, str]]]:
    """Return a function that kills a run just before a file gets its name, the second, then every so many after it.

    Each is finished by a second run, but for the last, which is not killed any more. Each tells whether it was killed,
    had no manifest then, how the second run ended, and the digest of what that wrote.
    """

    def run(recipe: Path, folder: Path, step: int) -> dict[str, tuple[bool, bool, int, str]]:
        words = map(str, (recipe, folder, step, inspect.getsource(directory_digest)))
        command = [sys.executable, "-c", KILL_BEFORE_RENAMES, *words]
        return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)

    return run


NULL_SIGNALS = [
    "rps_doc_curly_bracket",
    "rps_doc_ldnoobw_words",
    "rps_doc_lorem_ipsum",
    "rps_doc_stop_word_fraction",
    "rps_doc_ut1_blacklist",
    "rps_doc_frac_chars_dupe_10grams",
    "rps_doc_frac_chars_dupe_5grams",
    "rps_doc_frac_chars_dupe_6grams",
    "rps_doc_frac_chars_dupe_7grams",
    "rps_doc_frac_chars_dupe_8grams",
    "rps_doc_frac_chars_dupe_9grams",
    "rps_doc_frac_chars_top_3gram",
    "rps_doc_frac_chars_top_4gram",
    "rps_doc_frac_all_caps_words",
    "rps_doc_frac_lines_end_with_ellipsis",
    "rps_doc_frac_no_alph_words",
    "rps_doc_frac_unique_words",
    "rps_doc_num_sentences",
    "rps_doc_unigram_entropy",
    "rps_doc_ml_palm_score",
    "rps_doc_ml_wikipedia_score",
    "rps_doc_ml_wikiref_score",
    "rps_doc_books_importance",
    "rps_doc_books_importance_length_correction",
    "rps_doc_openwebtext_importance",
    "rps_doc_openwebtext_importance_length_correction",
    "rps_doc_wikipedia_importance",
    "rps_doc_wikipedia_importance_length_correction",
]


def naive_signals(text: str, bucket: str) -> dict[str, Any]:
    """Return the signals that filters look at, computed the plain way; all other ones are null."""
    bare = text.translate(str.maketrans("", "", string.punctuation)).lower()
    words = bare.split()
    pairs = Counter(itertools.pairwise(words))
    top, count = max(pairs.items(), key=lambda pair: pair[1], default=(("", ""), 0))
    characters = sum(map(len, words))
    symbols = text.count("#") + text.count("...") + text.count("…")
    raw_words = re.findall(r"\w+|[^\w\s]+", text)
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
    ends = list(itertools.accumulate(map(len, lines)))
    starts = [0, *ends[:-1]] if lines else []
    spans = list(zip(starts, ends, lines, strict=True))
    measured: dict[str, Any] = {
        "ccnet_length": float(len(text)),
        "ccnet_original_length": float(len(text)),
        "ccnet_nlines": float(len(lines)),
        "ccnet_original_nlines": float(len(lines)),
        "ccnet_language_score": 0.98,
        "ccnet_perplexity": 321.5,
        "ccnet_bucket": {"head": 0.0, "middle": 1.0, "tail": 2.0}[bucket],
        **dict.fromkeys(NULL_SIGNALS),
        "rps_doc_word_count": len(words),
        "rps_doc_mean_word_length": round(characters / len(words), 8) if words else None,
        "rps_doc_symbol_to_word_ratio": round(symbols / len(raw_words), 8) if raw_words else None,
        "rps_doc_frac_chars_top_2gram": round(sum(map(len, top)) * count / characters, 8) if count > 1 else 0.0,
    }
    signals = {name: [[0, len(text), value]] for name, value in measured.items()}
    per_line = {
        "rps_lines_ending_with_terminal_punctution_mark": lambda line: float(
            line.rstrip().endswith((".", "!", "?", "”"))
        ),
        "rps_lines_javascript_counts": lambda line: float(line.lower().split().count("javascript")),
        "rps_lines_num_words": lambda line: len(line.split()),
        "rps_lines_numerical_chars_fraction": lambda line: round(sum(map(str.isnumeric, line)) / len(line), 8),
        "rps_lines_start_with_bulletpoint": lambda line: float(line.lstrip().startswith(tuple("•‣▶◀◦■□▪▫\u2013"))),
        "rps_lines_uppercase_letter_fraction": lambda line: round(sum(map(str.isupper, line)) / len(line), 8),
    }
    for name, measure in per_line.items():
        signals[name] = [[start, end, measure(line)] for start, end, line in spans]
    return signals


def _naive_signals(documents: Sequence[dict[str, Any]], bucket: str) -> Iterator[dict[str, Any] | None]:
    for document in documents:
        if (changed := document.get("signals", {})) is None:
            yield None
        else:
            spans = {key: value if isinstance(value, list) else [[0, 1, value]] for key, value in changed.items()}
            yield naive_signals(document["text"], bucket) | spans


def _naive_signatures(texts: Sequence[str]) -> list[dict[str, list[bytes]]]:
    """Return signatures that equal texts have alike, and others nothing in common."""
    return [
        {
            f"signature_sim{similarity}": [
                hashlib.shake_128(f"{band} {text}".encode()).digest(4 * rows) for band in range(count)
            ]
            for similarity, (count, rows) in SIGNATURES.items()
        }
        for text in texts
    ]


@pytest.fixture(scope="session")
def make_release() -> Callable[..., Path]:
    """Return a function that writes a small RedPajama-V2 release and returns its folder.

    ``make_release(root, {"2023-06/0000/en_head": ["a text", {"text": "another", "duplicate": True}]})``: a document is
    its text, or a dictionary of ``text`` and what is to differ: fields of the record (``url``, ``perplexity``, …),
    ``duplicate=True`` to list it, ``signals={NAME: VALUE or spans}`` over the computed ones, ``signals=None`` for a
    document that the signals file lacks.
    """

    def write(root: Path, parts: Mapping[str, Sequence[str | dict[str, Any]]], *, listings: bool = True) -> Path:
        for part, asked in parts.items():
            documents = [{"text": each} if isinstance(each, str) else dict(each) for each in asked]
            signals = list(_naive_signals(documents, part.rpartition("_")[2]))
            write_part(root, part, documents, lambda _, signals=signals: signals, _naive_signatures)
            if listings:
                list_part(root, part)
        return root

    return write


@pytest.fixture(scope="session")
def list_members() -> Callable[..., tuple[list[tuple[int, bytes, int]], Exception | None]]:
    """Return a function that lists the members of a file, each from where to where, and what ends it."""
    from longcrawl.sources.compressed import BrokenMemberError, Members

    def listed(members: Members, offset: int = 0) -> tuple[list[tuple[int, bytes, int]], Exception | None]:
        found, begin, data = [], 0, b""
        try:
            for event in itertools.chain.from_iterable(event.parts() for event in members.events(offset)):
                if event.kind == "begin":
                    begin, data = event.offset, b""
                elif event.kind == "data":
                    data += event.data
                else:
                    found.append((begin, data, event.offset))
        except BrokenMemberError as broken:
            return found, broken
        return found, None

    return listed


@pytest.fixture
def web_server() -> Iterator[Callable[..., str]]:
    """Return a function that serves a folder on 127.0.0.1 and returns its URL.

    The first ``failures`` answers are 503. Every single request is answered with the statuses ``before`` it is
    answered, 0 for a connection that is reset.
    """
    servers = []

    def serve(folder: Path, failures: int = 0, before: Sequence[int] = ()) -> str:
        left, scripts = iter(range(failures)), collections.defaultdict(lambda: iter(before))
        handler = functools.partial(_QuietHandler, directory=str(folder), failures=left, scripts=scripts)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Any]:
    """Return an S3 server that runs here; its tests are skipped where moto or s3fs is not installed."""
    with _load("s3_server").serve() as server:
        yield server


@pytest.fixture
def store(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a bucket of an S3 server that runs here."""
    from longcrawl.io import file_systems

    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "_silent", set())
    with s3_server.begin(monkeypatch) as found:
        yield found


@pytest.fixture
def divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that writes a file of each divided kind, with small files divided in this test."""
    from longcrawl.run import divide

    monkeypatch.setattr(divide, "LARGE", 2_000)
    monkeypatch.setattr(divide, "SECTION", 4_000)
    return _load("divided_files")


@pytest.fixture(scope="session")
def write_model() -> Any:
    """Return what writes a small model of fastText."""
    return _load("fasttext_models").write_model


def _load(name: str) -> Any:
    """Load a module of this folder, which no test can import as it is no package."""
    return _load_file(Path(__file__).with_name(f"{name}.py"))


def _load_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def torch() -> Any:
    """Return torch, or skip. Tests import it when they first need it: with it a fork takes half as long again."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def gpu(torch: Any) -> None:
    """Skip tests where no GPU is."""
    if not torch.cuda.device_count():
        pytest.skip("no GPU here")


@pytest.fixture(scope="session")
def tiny_models(torch: Any) -> Any:
    """Return the module that makes random models, see its functions."""
    return _load("tiny_models")


@pytest.fixture(scope="session")
def write_word_tokenizer() -> Callable[[Path, int, int], None]:
    """Return what writes a ``tokenizer.json`` of some words, ``w0`` and so on, one for others, and an end of text."""

    def write(file: Path, words: int, end_of_text: int) -> None:
        end = {"id": end_of_text, "content": "<|endoftext|>", "special": True}
        end |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None}
        tokenizer |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None}
        vocabulary = {f"w{number}": number for number in range(words)} | {"?": words}
        tokenizer["model"] = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
        file.write_text(json.dumps(tokenizer))

    return write


@pytest.fixture(scope="session")
def write_partial_array() -> Callable[..., None]:
    """Return what writes an array in the layout of the original LongCrawl64, and removes some of its files."""

    def write(path: Path, tokens: Any, chunks: tuple[int, int], missing: Sequence[str]) -> None:
        import zarr
        from numcodecs import Blosc

        made = zarr.create_array(
            path, shape=tokens.shape, chunks=chunks, dtype=tokens.dtype, compressors=Blosc("lz4"), zarr_format=2
        )
        made[:] = tokens
        for name in missing:
            (path / name).unlink()

    return write


@pytest.fixture(scope="session")
def load_trainer() -> Callable[[Path], Any]:
    """Return what loads a script that trains with transformers' Trainer; tests without what that needs are skipped."""

    def load(path: Path) -> Any:
        pytest.importorskip("torch", reason="the Trainer is torch's")
        pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
        module = _load_file(path)
        # The end of each training collects garbage: without what these packages are, in 0.01 s instead of 0.45.
        gc.freeze()
        return module

    return load


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a server that speaks the Hub's protocol, with this process's `huggingface_hub` signed in to it.

    ``hub.environment`` does the same for another process; ``hub.token`` is what nobody may see.
    """
    from huggingface_hub import constants

    module = _load("hub_server")
    server = module.HubServer()
    home = tmp_path_factory.mktemp("hub_home")
    server.token = module.TOKEN
    server.environment = {"HF_ENDPOINT": server.url, "HF_TOKEN": module.TOKEN, "HF_HOME": str(home)}
    server.environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_UPDATE_DOWNLOAD_COUNTS": "0"}
    server.environment |= {"HF_HUB_OFFLINE": "0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", module.TOKEN)
        patch.setattr(constants, "ENDPOINT", server.url)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(datasets.config, "HF_ENDPOINT", server.url)
        # Who runs tests without a network says so to `huggingface_hub`; this server is on this machine.
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
        yield server
    server.stop()


@pytest.fixture
def xet(hub: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let the client use Xet, as it does wherever hf_xet is installed; return the folder that it keeps."""
    from huggingface_hub import constants

    pytest.importorskip("hf_xet")
    client = importlib.import_module("huggingface_hub.utils._xet")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setattr(client, "_GLOBAL_XET_HOLDER", client.XetSessionHolder())
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))
    return tmp_path / "xet"


@pytest.fixture
def bucket(hub: Any, xet: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a new bucket of the Hub; like ``store``, and its files come and go by Xet."""
    from longcrawl.io import file_systems

    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    return hub.new_bucket()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files as web servers do, with ranges, which the handler of the standard library lacks."""

    def __init__(
        self, *args: Any, failures: Iterator[int], scripts: Mapping[tuple[str, str], Iterator[int]], **kwargs: Any
    ) -> None:
        self._failures, self._scripts = failures, scripts
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if next(self._failures, None) is not None:
            self.send_error(503)
        elif self._fails():
            return
        elif wanted is None or not path.is_file():
            super().do_GET()
        else:
            self._send_range(path.read_bytes(), *wanted.groups())

    def do_HEAD(self) -> None:
        if not self._fails():
            super().do_HEAD()

    def _fails(self) -> bool:
        status = next(self._scripts[f"{self.command} {self.path}", self.headers.get("Range", "")], None)
        if status == 0:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif status is not None:
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
        return status is not None

    def _send_range(self, content: bytes, first: str, last: str) -> None:
        start = int(first) if first else max(len(content) - int(last), 0)
        stop = min(int(last) + 1, len(content)) if first and last else len(content)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self.wfile.write(content[start:stop])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the parent's name
        pass
