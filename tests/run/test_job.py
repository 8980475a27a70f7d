"""A run: killed at any point and finished later with the same bytes; one sentence for everything that goes wrong."""

import functools
import gzip
import hashlib
import http.server
import importlib.metadata
import json
import multiprocessing
import os
import platform
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zarr

import longcrawl as lc
from longcrawl.cli import commands as cli
from longcrawl.errors import (
    FormatError,
    LedgerError,
    LongCrawlError,
    RecipeError,
    RunError,
    SourceError,
    StageError,
    TokenizerError,
)
from longcrawl.run import part as parts_of_runs
from longcrawl.run.engines import Local
from longcrawl.run.inputs import stage_fingerprints
from longcrawl.run.recipe import load_recipe
from longcrawl.sources import blocks
from longcrawl.sources.compressed import Members

PARTS, DOCUMENTS, LENGTH = 3, 40, 128
STAGES = [
    {"min_chars": {"n": 200}},
    "exact_documents",
    {"tokenize": {"tokenizer": "trained", "vocabulary_size": 400}},
    {"min_tokens": {"n": LENGTH}},
    {"truncate": {"n": LENGTH}},
    "shuffle",
    "roll",
]


def write_documents(
    folder: Path, parts: int = PARTS, documents: int = DOCUMENTS, words: tuple[int, int] = (20, 150)
) -> Path:
    chance = random.Random(2)
    folder.mkdir(parents=True)
    for part in range(parts):
        with (folder / f"{part:02d}.jsonl").open("w") as lines:
            for number in range(documents):
                said = (
                    "".join(chance.choices("abcdefghij", k=chance.randint(2, 7))) for _ in range(chance.randint(*words))
                )
                text = "the same text in every part, " * 30 if number % 10 == 9 else " ".join(said)
                document = {"id": f"{part}-{number}", "text": text, "url": f"https://example.org/{part}/{number}"}
                lines.write(json.dumps(document) + "\n")
    return folder


def write_recipe(path: Path, source: dict, stages: list | None = None, **rectangle) -> Path:
    spec = {
        "longcrawl": 1,
        "name": path.stem,
        "about": "Made in a test.",
        "source": {"builder": "text", "id_field": "id", **source},
        "stages": STAGES if stages is None else stages,
        "outputs": {"rectangle": {"heldout": 0.1, **rectangle}},
    }
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def limited(size: int, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command that can write no file of more than ``size`` bytes: the system refuses as on a full disk."""
    read, write = os.pipe()
    process = fork_command(words, write, size)
    os.close(write)
    with os.fdopen(read) as said:
        stderr = said.read()
    process.join()
    return subprocess.CompletedProcess(words, process.exitcode, stderr=stderr)


def fork_command(words: tuple[object, ...], stderr: int, size: int = resource.RLIM_INFINITY) -> ForkProcess:
    """Start a command in a process group of its own, which finds all imported, as ``longcrawl`` does."""

    def work() -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        sys.stdout, sys.stderr = open(os.devnull, "w"), os.fdopen(stderr, "w", closefd=False)  # noqa: PTH123, SIM115
        sys.argv = ["longcrawl", *map(str, words)]
        cli.main()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def start(*words: object) -> subprocess.Popen:
    """Start a command as it is typed, in a python of its own, even if these tests ignore Ctrl-C in the background."""
    command = [sys.executable, "-m", "longcrawl", *map(str, words)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)


def kill_a_run(recipe: Path, out: Path, seen: Callable[[], object], num_proc: int = 1, victim: str = "group") -> None:
    """Start a run and kill it as soon as something is seen; begin again where it was done before the kill came."""
    for _ in range(10):
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            process = fork_command(("run", recipe, "--out", out, "--num-proc", num_proc), nowhere.fileno())
        wait_until(lambda: seen() or process.exitcode is not None)  # noqa: B023  # called before the next turn
        workers = children(process.pid)
        if process.exitcode is None:
            (os.killpg if victim == "group" else os.kill)(process.pid, signal.SIGKILL)
        process.join()
        wait_until(lambda: not any(running(worker) for worker in workers), 20)  # noqa: B023  # as above
        if not (out / "manifest.json").exists():
            return
        shutil.rmtree(out)
    pytest.fail("every run was done before it could be killed")


def children(pid: int) -> list[int]:
    task = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in task.read_text().split()] if task.exists() else []


def running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.001)


def sentence(result: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed command said on its last line of stderr; it must have been said without a traceback."""
    assert result.returncode == 1, result
    assert "Traceback" not in result.stderr
    return result.stderr.rstrip().splitlines()[-1].rpartition("\r")[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write_documents(tmp_path_factory.mktemp("source") / "documents")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, source) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe") / "tiny.yaml", {"data_dir": str(source)})


@pytest.fixture(scope="module")
def whole(tmp_path_factory, recipe) -> Path:
    """Return the folder of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "out"
    lc.run(recipe, out)
    return out


# -------------------- what a run leaves


def test_a_finished_run_holds_card_recipe_ledger_output_and_manifest_and_nothing_else(whole):
    assert sorted(path.name for path in whole.iterdir()) == [
        "README.md",
        "edits",
        "ledger",
        "manifest.json",
        "recipe.yaml",
        "rectangle",
    ]
    manifest = json.loads((whole / "manifest.json").read_text())
    found = {path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file()}
    assert set(manifest["files"]) == found - {"manifest.json"}
    for name, entry in manifest["files"].items():
        content = (whole / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert manifest["recipe"] == yaml.safe_load((whole / "recipe.yaml").read_text())
    assert [Path(file["file"]).name for (file,) in manifest["inputs"].values()] == [
        f"{part:02d}.jsonl" for part in range(PARTS)
    ]


def test_the_manifest_tells_no_time_process_or_worker_count(whole, source):
    text = (whole / "manifest.json").read_text().replace(str(source), "SOURCE")
    # That bytes are equal in other processes is tested above; a number of a process may be a count by chance.
    names = set(re.findall(r'"(\w+)":', text))
    assert "funnel" in names
    assert not [name for name in names if re.search("pid|process|num_proc|worker|time|seconds|started", name)]
    assert str(whole) not in text


@pytest.mark.slow
def test_the_recipe_that_a_run_writes_makes_it_again_in_an_empty_folder_of_any_name(whole, tmp_path, directory_digest):
    out = tmp_path / "lr=3" / "spaces, é # and 100 %"
    out.mkdir(parents=True)
    for wrong in ("stages.tokenize.tokenizer=/nowhere/tokenizer.json", "source.data_dir=/nowhere"):
        with pytest.raises(LongCrawlError, match="/nowhere"):
            lc.run(whole / "recipe.yaml", out, overrides=[wrong])
    lc.run(whole / "recipe.yaml", out)
    assert directory_digest(out) == directory_digest(whole)
    assert lc.why(out, "0-0").stage in (None, "min_chars", "min_tokens")
    assert lc.verify(out).problems == ()


def test_removed_and_kept_are_what_was_read(whole):
    ledger = pq.read_table(whole / "ledger")["id"].to_pylist()
    rows = [
        name
        for split in ("train", "heldout")
        for name in pq.read_table(whole / f"rectangle/rows/{split}.parquet")["id"].to_pylist()
    ]
    assert sorted(ledger + rows) == sorted(f"{part}-{number}" for part in range(PARTS) for number in range(DOCUMENTS))
    funnel = lc.funnel(whole)
    assert (funnel.documents, funnel.kept) == (PARTS * DOCUMENTS, len(rows))
    assert {row.stage for row in funnel if row.removed} == {"min_chars", "exact_documents", "min_tokens"}


@pytest.mark.slow
def test_the_largest_parts_are_begun_first(whole, tmp_path):
    class Noting(Local):
        def tasks(self, function, tasks):
            if tasks and isinstance(tasks[0], parts_of_runs.PartTask):
                begun.append([task.part.name for task in tasks])
            return super().tasks(function, tasks)

    begun, folder = [], tmp_path / "source"
    folder.mkdir()
    # The largest file has the shortest text, so it is the last one of the second segment.
    texts_of = {"a": ["a text of a"], "b": ["b"], "c": [f"text {n}" for n in range(30)]}
    for name, texts in texts_of.items():
        note = 10_000 if name == "b" else 0
        rows = [{"id": f"{name}{n}", "text": text, "note": note * "-"} for n, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = str(whole / "rectangle" / "tokenizer.json")
    stages = ["exact_documents", {"tokenize": {"tokenizer": tokenizer}}, {"truncate": {"n": 1}}]
    recipe = write_recipe(tmp_path / "r.yaml", {"data_dir": str(folder)}, stages)
    lc.run(recipe, tmp_path / "out", engine=Noting())
    assert begun == [["b.jsonl", "c.jsonl", "a.jsonl"], ["c.jsonl", "a.jsonl", "b.jsonl"]]


@pytest.mark.parametrize("num_proc", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_the_bytes_do_not_depend_on_the_number_of_processes(recipe, whole, tmp_path, num_proc, directory_digest):
    lc.run(recipe, tmp_path / "out", num_proc)
    assert directory_digest(tmp_path / "out") == directory_digest(whole)


# -------------------- kill -9


@pytest.mark.parametrize(
    ("sign", "victim", "num_proc", "then_num_proc"),
    [
        pytest.param("work/segment-0/00001.json", "parent", 1, 2, id="in the first segment", marks=pytest.mark.slow),
        pytest.param("work/segment-0/00000.json", "group", 2, 1, id="in the first segment, with workers"),
        pytest.param("work/removed-0.json", "parent", 2, 1, id="after the first segment", marks=pytest.mark.slow),
        pytest.param("work/spill/00001.json", "group", 1, 2, id="while spilling", marks=pytest.mark.slow),
        pytest.param("rectangle/zarr.json", "parent", 2, 1, id="while writing", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_is_finished_by_the_same_command(
    recipe, whole, tmp_path, sign, victim, num_proc, then_num_proc, directory_digest
):
    out = tmp_path / "out"
    kill_a_run(recipe, out, (out / sign).exists, num_proc, victim)
    for ask in (lc.funnel, lc.verify, lc.inspect):
        with pytest.raises(RunError, match="is not finished: run the same `longcrawl run` again"):
            ask(out)
    lc.run(recipe, out, then_num_proc)
    assert directory_digest(out) == directory_digest(whole)


@pytest.mark.slow
@pytest.mark.parametrize("step", [16, 5])
def test_killed_just_before_a_file_gets_its_name_a_run_ends_the_same(tmp_path, killed_before_renames, step):
    """Every so many files from the second on."""
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(write_documents(tmp_path / "documents", 2, 12))})
    points = killed_before_renames(recipe, tmp_path / "out", step)
    *killed, (was_killed, _, _, whole_digest) = points.values()
    assert not was_killed
    assert len(killed) > 3
    finished = [True, True, 0, whole_digest]
    assert [point for point, told in zip(points, killed, strict=False) if told != finished] == []


@pytest.mark.slow
def test_killed_just_before_the_manifest_a_run_ends_the_same(recipe, whole, tmp_path, directory_digest):
    """All is written but the manifest: as a kill there leaves it, with what was left half-written beside it."""
    out = tmp_path / "out"
    code = """
import os, signal, sys
import longcrawl as lc

rename = os.replace
def replace(beside, path):
    if str(path).endswith("manifest.json"):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(beside, path)
os.replace = replace
lc.run(*sys.argv[1:])
"""
    killed = subprocess.run([sys.executable, "-c", code, recipe, out], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name.partition("-")[0] for path in out.glob("*.partial*")] == ["manifest.json.partial"]
    assert (out / "README.md").exists()
    lc.run(recipe, out, 2)
    assert directory_digest(out) == directory_digest(whole)


class Unanswered(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and never answers who asks for 10.jsonl or 11.jsonl."""

    def send_head(self):
        if "/1" in self.path:
            self.server.waiting.append(self.path)
            self.server.stopped.wait()
            return None
        return super().send_head()

    def log_message(self, *_):
        pass


@pytest.fixture
def stuck(tmp_path) -> Iterator[tuple[Path, Path, subprocess.Popen]]:
    """Return recipe, folder and process of a run whose two workers wait for input that never comes."""
    folder = write_documents(tmp_path / "documents", 2)
    handler = functools.partial(Unanswered, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.waiting, server.stopped = [], threading.Event()
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        names = ("00.jsonl", "01.jsonl", "10.jsonl", "11.jsonl")
        urls = [f"http://127.0.0.1:{server.server_port}/{name}" for name in names]
        recipe = write_recipe(tmp_path / "stuck.yaml", {"data_files": urls})
        process = start("run", recipe, "--out", tmp_path / "out", "--num-proc", 2)
        markers = tmp_path / "out" / "work" / "segment-0"
        wait_until(lambda: len(server.waiting) == 2)
        wait_until(lambda: len(list(markers.glob("*.json"))) == 2 and len(children(process.pid)) == 3)
        yield recipe, tmp_path / "out", process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        server.stopped.set()
        server.shutdown()


@pytest.mark.slow
def test_workers_end_when_their_run_is_killed(stuck):
    _, _, process = stuck
    workers = children(process.pid)
    assert all(running(worker) for worker in workers)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(running(worker) for worker in workers), 20)


@pytest.mark.slow
def test_a_killed_worker_is_one_sentence_and_what_is_finished_is_kept(stuck):
    _, out, process = stuck
    os.kill(children(process.pid)[-1], signal.SIGKILL)  # the first keeps the lock
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.splitlines()[-1].rpartition("\r")[2] == (
        "RunError: a worker process was killed, by a signal or for lack of memory: run the same command again, with a "
        "lower --num-proc if memory is short; finished work is kept"
    )
    assert len(list(out.glob("work/segment-0/*.json"))) == 2


def test_a_second_run_is_refused_and_the_interrupt_key_ends_the_first_and_its_workers_in_one_line(stuck, longcrawl):
    recipe, out, process = stuck
    said = sentence(longcrawl("run", recipe, "--out", out))
    assert said == (
        f"RunError: another run is working in {out}, process {process.pid} on {platform.node()}: wait for it, or "
        "choose another folder"
    )
    for verb in ("funnel", "verify", "report"):
        assert sentence(longcrawl(verb, out)) == said.replace(", or choose another folder", "")
    assert process.poll() is None
    workers = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.rstrip().splitlines()[-1].rpartition("\r")[2] == "stopped; the same command resumes from here"
    assert "Traceback" not in said
    wait_until(lambda: not any(running(worker) for worker in workers), 20)


# -------------------- a disk that is full


def assert_no_space_left(result: subprocess.CompletedProcess[str], out: Path) -> None:
    said = sentence(result)
    assert said.startswith("RunError: no space left for ")
    assert said.endswith(": make room and run the same command again; finished work is kept")
    assert not (out / "manifest.json").exists()


@pytest.mark.parametrize(
    ("limit", "num_proc"),
    [pytest.param(200, 1, marks=pytest.mark.slow), (1_500, 2), pytest.param(9_000, 1, marks=pytest.mark.slow)],
)
def test_a_full_disk_is_one_sentence_and_the_run_is_finished_when_there_is_room(
    recipe, whole, tmp_path, limit, num_proc, directory_digest
):
    out = tmp_path / "out"
    words = ("run", recipe, "--out", out, "--num-proc", num_proc)
    assert_no_space_left(limited(limit, *words), out)
    lc.run(recipe, out)
    assert directory_digest(out) == directory_digest(whole)


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_second_pass_is_no_different(recipe, whole, tmp_path, directory_digest):
    out = tmp_path / "out"
    kill_a_run(recipe, out, lambda: len(list(out.glob("work/segment-2/*.json"))) == PARTS)
    words = ("run", recipe, "--out", out, "--num-proc", 2)
    assert_no_space_left(limited(3_000, *words), out)
    lc.run(recipe, out)
    assert directory_digest(out) == directory_digest(whole)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_sentence(recipe, tmp_path, longcrawl):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "Permission denied" in sentence(longcrawl("run", recipe, "--out", tmp_path / "closed" / "out"))


def test_a_folder_below_a_file_is_one_sentence(recipe, tmp_path, longcrawl):
    (tmp_path / "file").write_text("")
    said = sentence(longcrawl("run", recipe, "--out", tmp_path / "file" / "out"))
    assert str(tmp_path / "file") in said
    assert said.startswith("RunError: ")


# -------------------- folders that are refused


def test_the_folder_of_another_recipe_is_refused_and_the_difference_named(recipe, whole, longcrawl, directory_digest):
    before = directory_digest(whole)
    result = longcrawl("run", recipe, "--out", whole, "--set", "stages.min_chars.n=300")
    assert sentence(result) == (
        f"RunError: {whole} holds the run of another recipe (there 'n: 200', here 'n: 300'): "
        "choose another folder, or remove it"
    )
    assert directory_digest(whole) == before


def test_another_recipe_is_refused_while_a_run_is_unfinished(recipe, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(RunError, match=r"holds the run of another recipe \(there 'seed: 0', here 'seed: 1'\)"):
        lc.run(recipe, tmp_path / "out", overrides=["stages.shuffle.seed=1"])


def test_a_folder_with_other_files_is_refused(recipe, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty and holds no run: choose another folder"):
        lc.run(recipe, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_a_file_is_refused(recipe, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(RunError, match="is a file: choose another folder"):
        lc.run(recipe, tmp_path / "out")


def test_input_that_changed_since_the_run_began_is_refused(tmp_path):
    documents = write_documents(tmp_path / "documents")
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(documents)})
    kill_a_run(recipe, tmp_path / "out", (tmp_path / "out/work/segment-0/00000.json").exists)
    shutil.copytree(documents, tmp_path / "before")
    file = documents / "00.jsonl"
    changes: dict[Callable[[], object], str] = {
        lambda: file.write_text(file.read_text() + '{"id": "new", "text": "new"}\n'): f"{file} has changed since",
        lambda: file.write_text(file.read_text().replace("a", "b")): f"{file} has changed since",
        lambda: shutil.copy(file, documents / "99.jsonl"): f"since the run began ({documents}/99.jsonl is new)",
        file.unlink: f"since the run began ({file} is gone)",
    }
    for change, sentence in changes.items():
        change()
        with pytest.raises(RunError) as raised:
            lc.run(recipe, tmp_path / "out")
        assert sentence in str(raised.value)
        shutil.rmtree(documents)
        shutil.copytree(tmp_path / "before", documents)
    lc.run(recipe, tmp_path / "out")
    assert lc.verify(tmp_path / "out").problems == ()


@pytest.mark.parametrize(
    "stage",
    [
        {"tokenize": {}},
        {"min_hash": {"bands": 2, "rows": 2}},
        {"exact_substring": {}},
        {"decontaminate": {"against": ["FOLDER/items.jsonl"], "unit": "token"}},
    ],
    ids=lambda stage: next(iter(stage)),
)
def test_a_run_pins_what_its_tokenizer_holds(stage, source, tmp_path):
    (tmp_path / "items.jsonl").write_text('{"text": "one two three four"}\n')
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    ((name, settings),) = stage.items()
    settings = json.loads(json.dumps(settings).replace("FOLDER", str(tmp_path)))
    recipe = write_recipe(
        tmp_path / "tiny.yaml", {"data_dir": str(source)}, [{name: settings | {"tokenizer": str(tokenizer)}}]
    )
    before = stage_fingerprints(load_recipe(recipe))
    assert stage_fingerprints(load_recipe(recipe)) == before
    tokenizer.write_text("{} ")
    assert stage_fingerprints(load_recipe(recipe))[name] != before[name]


@pytest.mark.slow
def test_a_tokenizer_that_changed_since_the_run_began_is_refused(source, whole, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    shutil.copy(whole / "rectangle" / "tokenizer.json", tokenizer)
    stages = [each if "tokenize" not in each else {"tokenize": {"tokenizer": str(tokenizer)}} for each in STAGES]
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(source)}, stages)
    kill_a_run(recipe, tmp_path / "out", (tmp_path / "out/work/segment-0/00000.json").exists)
    document = json.loads(tokenizer.read_text())
    document["model"]["merges"] = document["model"]["merges"][:50]
    tokenizer.write_text(json.dumps(document))
    with pytest.raises(RunError, match="has changed since the run began"):
        lc.run(recipe, tmp_path / "out")


@pytest.fixture
def listed(source, tmp_path) -> tuple[Path, Path]:
    """Return a word list, and a recipe of a stage that reads it."""
    words = tmp_path / "words.json"
    words.write_text('{"en": ["abcdefg"]}')
    stages = [{"c4_quality": {"bad_words": str(words), "language": "en", "terminal_punctuation": "ignored"}}]
    stages[0]["c4_quality"] |= {"min_sentences": None}
    return words, write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(source)}, stages + STAGES[2:])


@pytest.mark.slow
def test_a_data_file_that_changed_since_the_run_began_is_refused_and_an_unchanged_one_goes_on(
    listed, tmp_path, directory_digest
):
    words, recipe = listed
    out = tmp_path / "out"
    kill_a_run(recipe, out, (out / "work/segment-0/00000.json").exists)
    words.write_text('{"en": ["gfedcba"]}')
    with pytest.raises(RunError) as raised:
        lc.run(recipe, out)
    asked = "choose another folder, or remove that folder"
    assert str(raised.value) == f"the input of {out} has changed since the run began: {asked}"
    words.write_text('{"en": ["abcdefg"]}')
    lc.run(recipe, out)
    lc.run(recipe, tmp_path / "unstopped")
    assert directory_digest(out) == directory_digest(tmp_path / "unstopped")


@pytest.mark.slow
def test_a_data_file_that_changes_under_a_run_is_refused_in_the_end(listed, tmp_path, monkeypatch):
    words, recipe = listed
    fit = lc.tokens.Tokenize.fit

    def edit_and_fit(*asked):
        words.write_text('{"en": []}')
        return fit(*asked)

    monkeypatch.setattr(lc.tokens.Tokenize, "fit", edit_and_fit)
    for _ in range(2):
        with pytest.raises(RunError, match="has changed since the run began"):
            lc.run(recipe, tmp_path / "out")


# -------------------- a run that is done


def test_a_finished_run_is_left_alone(recipe, whole, directory_digest):
    def state():
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in whole.rglob("*")}

    before, digest = state(), directory_digest(whole)
    summary = lc.run(recipe, whole, 2)
    assert state() == before
    assert directory_digest(whole) == digest
    assert summary.funnel == lc.funnel(whole)
    assert "tiny is done" in str(summary)


def test_a_finished_run_needs_its_input_no_more(tmp_path):
    documents = write_documents(tmp_path / "documents", 1)
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(documents)})
    first = lc.run(recipe, tmp_path / "out")
    shutil.rmtree(documents)
    again = lc.run(recipe, tmp_path / "out")
    assert (again.funnel, again.written) == (first.funnel, first.written)


def test_what_a_kill_after_the_manifest_leaves_is_cleared_away(recipe, whole, tmp_path, directory_digest):
    shutil.copytree(whole, tmp_path / "out")
    (tmp_path / "out" / "work" / "segment-0").mkdir(parents=True)
    (tmp_path / "out" / "work" / "segment-0" / "00000.json").write_text("{}")
    lc.run(recipe, tmp_path / "out")
    assert directory_digest(tmp_path / "out") == directory_digest(whole)


# -------------------- nothing depends on how the input is cut


@pytest.mark.slow
def test_the_same_documents_in_other_files_make_the_same_rectangle(source, tmp_path, directory_digest):
    lines = [line for file in sorted(source.iterdir()) for line in file.read_text().splitlines()]
    random.Random(5).shuffle(lines)
    (tmp_path / "documents").mkdir()
    for number, (first, last) in enumerate([(0, 7), (7, 100), (100, 101), (101, len(lines))]):
        text = "\n".join(lines[first:last]) + "\n"
        with gzip.open(tmp_path / "documents" / f"{number}.jsonl.gz", "wt") as file:
            file.write(text)
    whole, in_any_order = tmp_path / "whole", ["stages.exact_documents.keep=random"]
    for folder, out in ((source, whole), (tmp_path / "documents", tmp_path / "out")):
        lc.run(write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(folder)}), out, overrides=in_any_order)
    for split in ("train", "heldout"):
        made, expected = tmp_path / "out" / "rectangle", whole / "rectangle"
        assert directory_digest(made / split) == directory_digest(expected / split)
        # Where a row was found is all that differs.
        tables = [pq.read_table(each / f"rows/{split}.parquet").drop_columns("source") for each in (made, expected)]
        assert tables[0].equals(tables[1])
    ledgers = [pq.read_table(out / "ledger").sort_by("id").to_pylist() for out in (tmp_path / "out", whole)]
    assert ledgers[0] == ledgers[1]


@pytest.mark.slow
def test_the_size_of_the_tables_that_are_read_does_not_matter(recipe, whole, tmp_path, monkeypatch, directory_digest):
    monkeypatch.setattr(blocks.read_steps, "__defaults__", (3000,))
    lc.run(recipe, tmp_path / "out")
    assert directory_digest(tmp_path / "out" / "rectangle") == directory_digest(whole / "rectangle")


@pytest.mark.slow
def test_a_crawl_with_the_same_stages_writes_the_same_rectangle(source, whole, tmp_path, directory_digest):
    crawl = lc.open("text", data_dir=str(source), id_field="id")
    for _, stage in lc.load_recipe(whole / "recipe.yaml").stages:
        crawl = crawl | stage
    crawl.to_rectangle(tmp_path / "rectangle", heldout=0.1)
    assert directory_digest(tmp_path / "rectangle") == directory_digest(whole / "rectangle")
    assert [(row.stage, row.removed, row.rules) for row in crawl.funnel] == [
        (row.stage, row.removed, row.rules) for row in lc.funnel(whole)
    ]
    ledger = pq.read_table(whole / "ledger").sort_by("id")
    assert crawl.ledger.sort_by("id").to_pylist() == ledger.to_pylist()


@pytest.mark.slow
def test_without_shuffle_rows_are_in_the_order_of_the_parts(source, tmp_path):
    recipe = write_recipe(
        tmp_path / "tiny.yaml", {"data_dir": str(source)}, [each for each in STAGES if each != "shuffle"], heldout=2
    )
    lc.run(recipe, tmp_path / "out")
    names = [
        tuple(map(int, name.split("-")))
        for split in ("heldout", "train")
        for name in pq.read_table(tmp_path / f"out/rectangle/rows/{split}.parquet")["id"].to_pylist()
    ]
    assert names == sorted(names)


@pytest.mark.slow
def test_stages_before_and_after_two_surveys(source, tmp_path, directory_digest):
    """A second survey, and a judge between: every document is counted once and leaves once."""
    stages = [
        {"exact_documents": {"keep": "random"}},
        {"min_chars": {"n": 300}},
        "exact_documents",
        {"min_chars": {"n": 400}},
        *STAGES[2:],
    ]
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(source)}, stages)
    lc.run(recipe, tmp_path / "one", 1)
    lc.run(recipe, tmp_path / "two", 2)
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "two")
    labels = ["exact_documents", "min_chars", "exact_documents_2", "min_chars_2"]
    assert [row.stage for row in lc.funnel(tmp_path / "one")][:4] == labels
    gone = pq.read_table(tmp_path / "one" / "ledger")
    rows = sum(zarr.open_array(str(tmp_path / "one" / "rectangle" / split)).shape[0] for split in ("train", "heldout"))
    assert len(set(gone["id"].to_pylist())) == gone.num_rows == PARTS * DOCUMENTS - rows


# -------------------- nothing is left, nothing was there


@pytest.mark.slow
def test_a_run_of_which_nothing_is_left_answers_what_its_ledger_knows(recipe, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(RunError, match=r"no document remains: stage 'min_tokens' removed the last 9\d\. ") as raised:
        lc.run(recipe, out, overrides=["stages.min_tokens.n=100000"])
    assert "--set stages.min_tokens.FIELD=VALUE" in str(raised.value)
    assert not (out / "manifest.json").exists()
    assert repr(lc.funnel(out)) == raised.value.__notes__[0]
    gone = pq.read_table(out / "ledger")
    assert gone.num_rows == lc.funnel(out).documents
    row = next(each for each in gone.to_pylist() if each["stage"] == "min_tokens")
    assert (lc.why(out, row["id"]).stage, lc.why(out, row["id"]).threshold) == ("min_tokens", 100000)
    with pytest.raises(LedgerError, match="never had a document 'none'; ids look like '"):
        lc.why(out, "none")
    for ask in (lc.verify, lc.inspect, lc.removal_rates, lc.write_report):
        with pytest.raises(RunError, match=r"has no result: stage 'min_tokens' removed its last documents, as "):
            ask(out)


@pytest.mark.slow
def test_when_the_first_stage_removes_all_no_later_one_is_blamed(recipe, tmp_path):
    for _ in range(2):  # and the same again when the same command is typed again
        with pytest.raises(RunError, match=f"stage 'min_chars' removed the last {PARTS * DOCUMENTS}"):
            lc.run(recipe, tmp_path / "out", overrides=["stages.min_chars.n=1000000"])


def test_a_source_without_documents_is_said_so(tmp_path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "empty.jsonl").write_text("")
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(tmp_path / "documents")})
    with pytest.raises(RunError, match="source 'text' produced no documents: check its settings in"):
        lc.run(recipe, tmp_path / "out")


def test_a_source_of_broken_files_and_other_records_is_said_so_with_the_first_reason(tmp_path):
    block = b"GET / HTTP/1.1\r\n\r\n"
    head = f"WARC/1.0\r\nWARC-Type: request\r\nWARC-Record-ID: <urn:1>\r\nContent-Length: {len(block)}\r\n\r\n"
    (tmp_path / "a.warc").write_bytes(2 * (head.encode() + block + b"\r\n\r\n"))
    (tmp_path / "b.warc.gz").write_bytes(b"no gzip at all")
    files = [str(tmp_path / "a.warc"), str(tmp_path / "b.warc.gz")]
    recipe = write_recipe(tmp_path / "tiny.yaml", {})
    source = {"builder": "warc", "data_files": files, "on_bad_files": "skip"}
    recipe.write_text(yaml.safe_dump(yaml.safe_load(recipe.read_text()) | {"source": source}))
    with pytest.raises(RunError) as raised:
        lc.run(recipe, tmp_path / "out")
    said = str(raised.value)
    assert said.startswith("source 'warc' produced no documents: check its settings in ")
    assert f"; 1 input file(s) could not be read whole, the first: {tmp_path}/b.warc.gz: " in said
    assert said.endswith("; 2 record(s) were left out by the source's rules: request 2")


@pytest.mark.slow
@pytest.mark.parametrize("copies", [2, 1])
def test_ids_that_occur_twice_stop_a_run_before_its_surveys_and_the_files_are_named(tmp_path, copies):
    folder = write_documents(tmp_path / "documents", 3)
    lines = (folder / "01.jsonl").read_text()
    (folder / ("01.jsonl" if copies == 1 else "02.jsonl")).write_text(lines * (3 - copies))
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(folder)})
    with pytest.raises(RunError) as raised:
        lc.run(recipe, tmp_path / "out", 2)
    where, out = f"twice in {folder}/01.jsonl", "that file, or its copies,"
    if copies == 2:
        where, out = f"in {folder}/01.jsonl and in {folder}/02.jsonl", "one of the two"
    said = f"a run needs unique ids, but some occur more than once, such as '1-0', {where}: remove {out} "
    said += (
        "from the source by naming all others, --set 'source.data_files=[FILE, FILE]', or keep the first document of "
    )
    assert str(raised.value) == said + "each id, --set source.on_duplicate_ids=keep_first"
    assert not (tmp_path / "out" / "work" / "segment-0").exists()
    others = f"source.data_files={json.dumps([str(folder / '00.jsonl'), str(folder / '02.jsonl')])}"
    lc.run(recipe, tmp_path / "again", 1, [others])
    assert lc.funnel(tmp_path / "again").documents == 2 * DOCUMENTS


def test_versions_are_those_of_what_is_installed(whole):
    versions = json.loads((whole / "manifest.json").read_text())["versions"]
    assert {"python", "longcrawl", "numpy", "lxml", "trafilatura", "icu4py"} <= versions.keys()
    for name in versions.keys() - {"python", "longcrawl"}:
        assert versions[name] == importlib.metadata.version(name)


@pytest.mark.slow
def test_a_part_without_documents_is_no_obstacle(source, whole, tmp_path, directory_digest):
    shutil.copytree(source, tmp_path / "documents")
    (tmp_path / "documents" / "03a.jsonl").write_text("\n")
    (tmp_path / "documents" / "99.jsonl").write_text("")
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(tmp_path / "documents")})
    lc.run(recipe, tmp_path / "out")
    assert directory_digest(tmp_path / "out" / "rectangle") == directory_digest(whole / "rectangle")


@pytest.mark.slow
def test_nothing_held_out_makes_no_second_split(source, tmp_path):
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(source)}, heldout=0)
    summary = lc.run(recipe, tmp_path / "out")
    assert list(summary.written["shapes"]) == ["train"]
    assert sorted(path.name for path in (tmp_path / "out" / "rectangle").iterdir()) == [
        "rectangle.json", "rows", "tokenizer.json", "train", "zarr.json",
    ]  # fmt: skip


@pytest.mark.slow
def test_more_rows_held_out_than_there_are_is_one_sentence(recipe, tmp_path):
    with pytest.raises(
        FormatError, match=r"heldout 5000 takes 5,000 of \d+ rows and leaves none to train on: lower it"
    ):
        lc.run(recipe, tmp_path / "out", 1, ["outputs.rectangle.heldout=5000"])


# -------------------- broken input


@pytest.fixture
def broken(tmp_path) -> Path:
    """Return a source in which one file is cut in the middle of its compressed data."""
    folder = write_documents(tmp_path / "documents", 3)
    text = (folder / "01.jsonl").read_bytes()
    (folder / "01.jsonl").unlink()
    packed = gzip.compress(text, mtime=0)
    (folder / "01.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    return folder


def lines_before_cut(broken) -> int:
    return zlib.decompressobj(31).decompress((broken / "01.jsonl.gz").read_bytes()).count(b"\n") + 1


@pytest.mark.slow
def test_a_broken_file_stops_a_run_unless_it_may_be_left_out(broken, tmp_path):
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(broken)})
    with pytest.raises(SourceError) as raised:
        lc.run(recipe, tmp_path / "out", 2)
    assert str(raised.value) == (
        f"{broken}/01.jsonl.gz: is cut: it ends before its compressed data does; "
        f"{lines_before_cut(broken)} lines seem to be lost, from line 1 on; "
        "to continue without it, set on_bad_files to 'warn' or 'skip' (--set source.on_bad_files=skip)"
    )


@pytest.mark.variants
@pytest.mark.parametrize("policy", ["warn", "skip"])
def test_a_broken_file_that_is_left_out_is_in_the_manifest_and_on_the_card(broken, tmp_path, policy):
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(broken), "on_bad_files": policy})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        summary = lc.run(recipe, tmp_path / "out")
    assert "1 input file(s) could not be read whole; manifest.json and README.md list them" in str(summary)
    assert any("01.jsonl.gz: is cut" in str(each.message) for each in warned) is (policy == "warn")
    (bad,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["bad_files"]
    reason = (
        "is cut: it ends before its compressed data does; "
        f"{lines_before_cut(broken)} lines seem to be lost, from line 1 on"
    )
    assert bad == {
        "part": "01.jsonl.gz",
        "file": f"{broken}/01.jsonl.gz",
        "reason": reason,
        "records_lost": None,
    }
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"- `{broken}/01.jsonl.gz`: {reason} (lost: an unknown number of records)" in card
    assert lc.funnel(tmp_path / "out").documents == 2 * DOCUMENTS


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "error"])
def test_what_was_made_of_data_whose_checksum_is_wrong_is_made_again(tmp_path, monkeypatch, directory_digest, policy):
    monkeypatch.setattr(blocks.read_steps, "__defaults__", (3000,))
    monkeypatch.setattr(Members._gzip, "__defaults__", (1000, 3000))
    folder = write_documents(tmp_path / "documents", 2)
    sound, broken = (gzip.compress((folder / f"0{number}.jsonl").read_bytes(), mtime=0) for number in range(2))
    shutil.rmtree(folder)
    damaged = sound + broken[:-5] + bytes([broken[-5] ^ 1]) + broken[-4:]
    recipes, read = {}, []
    for name, content in {"sound": sound, "damaged": damaged}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl.gz").write_bytes(content)
        source = {"data_dir": str(tmp_path / name), "on_bad_files": policy}
        recipes[name] = write_recipe(tmp_path / f"{name}.yaml", source)

    def run_and_note(task, bad_files, run=parts_of_runs._run_part):
        if task.segment.number == 0:
            read.append(bad_files.checksums)
        return run(task, bad_files)

    monkeypatch.setattr(parts_of_runs, "_run_part", run_and_note)
    lc.run(recipes["sound"], tmp_path / "whole")
    assert read == ["last"]
    if policy == "error":
        with pytest.raises(SourceError, match=r"a.jsonl.gz: is corrupt at byte [\d,]+: damaged gzip.* \d+ lines seem"):
            lc.run(recipes["damaged"], tmp_path / "out")
    else:
        lc.run(recipes["damaged"], tmp_path / "out")
        for name in ("rectangle", "ledger"):
            assert directory_digest(tmp_path / "out" / name) == directory_digest(tmp_path / "whole" / name)
        assert len(json.loads((tmp_path / "out/manifest.json").read_text())["bad_files"]) == 1
    assert read == ["last", "last", "first"]


@pytest.mark.slow
def test_records_of_web_archives_that_are_no_documents_are_in_the_manifest_and_on_the_card(tmp_path):
    chance = random.Random(3)
    for part in range(2):
        records = []
        for number in range(40):
            kind, content_type = ("request", "application/http") if number % 4 == 0 else ("conversion", "text/plain")
            block = " ".join("".join(chance.choices("abcdefgh", k=5)) for _ in range(100)).encode()
            head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:{part}-{number}>\r\n"
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(block)}\r\n\r\n"
            records.append(gzip.compress(head.encode() + block + b"\r\n\r\n"))
        (tmp_path / f"{part}.warc.wet.gz").write_bytes(b"".join(records))
    recipe = write_recipe(tmp_path / "tiny.yaml", {})
    spec = yaml.safe_load(recipe.read_text()) | {"source": {"builder": "warc", "data_dir": str(tmp_path)}}
    recipe.write_text(yaml.safe_dump(spec))
    lc.run(recipe, tmp_path / "out")
    assert lc.funnel(tmp_path / "out").documents == 60
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["left_out"] == {"request": 20}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Records that the source left out, by rule: request 20." in card


# -------------------- settings that do not exist


@pytest.mark.variants
@pytest.mark.parametrize(
    ("overrides", "error", "said"),
    [
        (["stages.signal_rules.preset=gopher"], RecipeError, "unknown preset 'gopher'; known: rpv2-card"),
        (["stages.min_hash.bands=3"], RecipeError, "the recipe has no stage 'min_hash'; it has: signal_rules, "),
        (["stages.min_words.many=3"], RecipeError, "stage 3 'min_words' has no field 'many'; known: n"),
        (["source.languages=[xx]"], SourceError, "has no language 'xx'; known: en"),
        (["source.snapshots=['1999-01']"], SourceError, "has no snapshot '1999-01'; known: 2023-06"),
        (["source.data_dir=/nowhere"], SourceError, "/nowhere is not a RedPajama-V2 release"),
        (["source.folder=x"], RecipeError, "has no field 'folder'; known: data_dir, "),
        (["outputs.rectangle.colour=red"], RecipeError, "has no field 'colour'; known: checksum, codec, "),
        (["outputs.parquet.rows=1"], RecipeError, "the recipe has no 'parquet'; it has: rectangle"),
        (
            ["stages.tokenize.tokenizer=/nowhere/tokenizer.json"],
            TokenizerError,
            "no tokenizer at '/nowhere/tokenizer.json'",
        ),
    ],
)
def test_settings_that_do_not_exist_are_one_sentence(make_release, tmp_path, overrides, error, said):
    release = make_release(tmp_path / "release", {"2023-06/0000/en_head": ["one two three four five " * 30]})
    settings = [f"source.data_dir={release}", "stages.min_words.n=5", "stages.min_bytes.n=5", *overrides]
    with pytest.raises(LongCrawlError) as raised:
        lc.run("longcrawl64", tmp_path / "out", overrides=settings)
    assert type(raised.value) is error
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.fixture(scope="module")
def big_vocabulary(tmp_path_factory) -> Path:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    names = {"<unk>": 0} | {f"w{number}": number for number in range(1, 70_000)}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token="<unk>"))  # noqa: S106  # a token of text
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    path = tmp_path_factory.mktemp("big") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def words_recipe(tmp_path: Path, tokenizer: Path, dtype: str) -> Path:
    (tmp_path / "documents").mkdir()
    texts = [" ".join(f"w{66_000 + 50 * row + word}" for word in range(40)) for row in range(60)]
    lines = [json.dumps({"id": str(row), "text": text}) for row, text in enumerate(texts)]
    (tmp_path / "documents" / "a.jsonl").write_text("\n".join(lines))
    stages = [{"tokenize": {"tokenizer": str(tokenizer), "dtype": dtype}}, {"truncate": {"n": 40}}]
    return write_recipe(tmp_path / "words.yaml", {"data_dir": str(tmp_path / "documents")}, stages)


@pytest.mark.slow
def test_a_tokenizer_that_does_not_fit_uint16_is_refused(tmp_path, big_vocabulary):
    recipe = words_recipe(tmp_path, big_vocabulary, "uint16")
    with pytest.raises(TokenizerError, match=r"tokenize.dtype is uint16, but .* has 70,001 ids: set it to 'auto'"):
        lc.run(recipe, tmp_path / "out")


@pytest.mark.slow
def test_a_big_vocabulary_makes_a_rectangle_of_uint32(tmp_path, big_vocabulary):
    lc.run(words_recipe(tmp_path, big_vocabulary, "auto"), tmp_path / "out")
    train = zarr.open_array(str(tmp_path / "out" / "rectangle" / "train"), mode="r")
    assert train.dtype == np.uint32
    assert int(train[:].max()) >= 1 << 16
    assert train.fill_value == 70_000


def test_a_split_other_than_train_is_not_enough(source, tmp_path):
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_files": {"test": [str(source / "00.jsonl")]}})
    with pytest.raises(RunError, match="source 'text' has no split 'train'; it has: test"):
        lc.run(recipe, tmp_path / "out")


def test_documents_without_what_a_stage_needs_are_one_sentence(source, tmp_path):
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(source)}, ["signal_rules", *STAGES])
    with pytest.raises(StageError, match="signal_rules needs a column 'signals'; the documents have: id, text, url"):
        lc.run(recipe, tmp_path / "out", 2)


@pytest.mark.parametrize("without", ["tokenize", "truncate"])
def test_stages_that_cannot_feed_the_rectangle_are_refused_before_anything_is_read(source, tmp_path, without):
    stages = [each for each in STAGES if without not in each]
    recipe = write_recipe(tmp_path / "tiny.yaml", {"data_dir": str(source)}, stages)
    with pytest.raises(StageError, match=f"add .*{without}"):
        lc.run(recipe, tmp_path / "out")
    assert not list(tmp_path.glob("out/work/segment-*"))


def test_an_unfinished_folder_and_no_folder_are_told_apart(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        lc.funnel(tmp_path)
    (tmp_path / "work").mkdir()
    with pytest.raises(RunError, match="is not finished"):
        lc.funnel(tmp_path)


def is_whole(folder: Path) -> bool:
    try:
        return not lc.verify(folder).problems
    except LongCrawlError:
        return False


def test_one_flipped_bit_in_any_file_of_a_run_is_found(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    assert lc.verify(copy).problems == ()
    for file in sorted(path for path in copy.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for place in {0, len(content) // 2, len(content) - 1}:
            file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            assert not is_whole(copy), f"byte {place} of {file}"
        file.write_bytes(content)
    (copy / "ledger" / "00-00000.parquet").unlink()
    assert "ledger/00-00000.parquet is missing" in lc.verify(copy).problems


def test_overrides_of_a_recipe_that_is_made_are_refused(recipe, tmp_path):
    with pytest.raises(RunError, match="overrides change a recipe's name or file, not a Recipe"):
        lc.run(lc.load_recipe(recipe), tmp_path / "out", overrides=["stages.min_chars.n=3"])


def test_ledger_of_a_run_is_one_table(whole):
    ledger = pq.read_table(whole / "ledger")
    assert ledger.schema.names == ["id", "stage", "rule", "value", "threshold", "kept_id"]
    twins = ledger.filter(pa.compute.equal(ledger["stage"], "exact_documents"))
    assert set(twins["kept_id"].to_pylist()) == {"0-9"}
