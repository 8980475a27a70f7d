"""Tasks of hosts that share a folder: two attempts at one with one process id, and workers that start elsewhere."""

import ctypes
import itertools
import json
import multiprocessing
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import longcrawl as lc
from longcrawl.core.stages import next_segment
from longcrawl.errors import RunError
from longcrawl.io.files import remove_partial, whole_files, write_text
from longcrawl.io.structured import Marker
from longcrawl.run import segments
from longcrawl.run.engines import local
from longcrawl.run.manifest import WORK
from longcrawl.run.part import SPILL, PartTask, run_part
from longcrawl.run.recipe import Recipe, parse_recipe

NEW_PROCESS_IDS = 0x20000000
"""CLONE_NEWPID of Linux."""
ROW = 16
OUTPUTS = {
    "parquet": {},
    "gpt-simple": {},
    "rectangle": {"context_length": ROW},
    "composed": {"capacities": [ROW, 2 * ROW], "format": "datatrove"},
}
TIMES = 3


def with_process_id_1(work: Callable[[], None]) -> int:
    """Start a process that does some work as the first one of a container does; without the right to, it says it is."""
    if child := os.fork():
        return child
    failed = True
    try:
        os.fsync = lambda _: None  # nothing is switched off here, and the disk is slow
        if ctypes.CDLL(None, use_errno=True).unshare(NEW_PROCESS_IDS):
            os.getpid = lambda: 1
        elif inside := os.fork():
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1]))
        assert os.getpid() == 1
        work()
        failed = False
    except BaseException:  # noqa: BLE001  # printed, and the exit code says so
        traceback.print_exc()
    finally:
        os._exit(failed)


def twice_at_once(work: Callable[[], object], times: int, marker: Path, look: Callable[[], object]) -> None:
    """Do some work in two such processes at once, again and again; look at what there is from the first marker on."""
    together = multiprocessing.get_context("fork").Barrier(2)

    def attempts() -> None:
        for _ in range(times):
            together.wait(20)
            work()

    waiting = {with_process_id_1(attempts) for _ in range(2)}
    while waiting:
        if marker.exists():
            look()
        for child in list(waiting):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                waiting.remove(child)
                assert status == 0
        time.sleep(0.003)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder; of a marker what it stands for, as no two attempts take equally long."""
    found = {}
    for file in whole_files(folder):
        name, content = file.relative_to(folder).as_posix(), file.read_bytes()
        is_marker = file.parent.name in ("segment-0", segments.WRITTEN)
        found[name] = json.dumps(json.loads(content)["files"]).encode() if is_marker else content
    return found


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in ("parquet", "composed") else ()) for name in OUTPUTS],
)
def recipe(request, tmp_path_factory) -> Recipe:
    """Return a recipe that removes and changes documents of its one part; what is kept are texts or tokens."""
    folder, chance = tmp_path_factory.mktemp(request.param), random.Random(7)
    texts = [" ".join("".join(chance.choices("abcde", k=4)) for _ in range(number % 7 * 9 + 1)) for number in range(60)]
    lines = [json.dumps({"id": str(number), "text": f"{text}\n3 likes\n"}) for number, text in enumerate(texts)]
    (folder / "0.jsonl").write_text("\n".join(lines))
    stages = [{"min_chars": {"n": 20}}, {"line_corrections": {"language": "en"}}]
    if request.param != "parquet":
        trained = lc.tokens.Tokenize("trained", vocabulary_size=300).fit([pa.table({"text": texts})], str(folder))
        stages.append({"tokenize": {"tokenizer": trained.tokenizer}})
    if request.param == "rectangle":
        stages += [{"min_tokens": {"n": ROW}}, {"truncate": {"n": ROW}}]
    source = {"builder": "text", "data_files": str(folder / "0.jsonl"), "id_field": "id"}
    outputs = {request.param: OUTPUTS[request.param]}
    spec = {"longcrawl": 1, "name": "twice", "source": source, "stages": [*stages, "shuffle"], "outputs": outputs}
    return parse_recipe(spec)


def tasks_of(recipe: Recipe, folder: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yield marker and work of each task of a run of one part; a task begins when the one before it is done."""
    segment, (part,) = next_segment(0, list(recipe.stages), None), recipe.source.splits()["train"]
    writer = recipe.output.writer([stage for _, stage in segment.stages])
    task = PartTask(folder, segment, 0, part, recipe.source, writer)
    yield task.marker, partial(run_part, task)
    spill, target = folder / WORK / SPILL, folder / "out"
    for what in writer.plan(spill, 1):
        marker = folder / WORK / segments.WRITTEN / f"{what.name}.json"
        yield marker, partial(segments.write_file, writer, spill, target, (what, marker))


@pytest.mark.variants
def test_two_attempts_at_a_task_with_one_process_id_publish_the_same_whole_files(recipe, tmp_path):
    """Names with the process id gave two attempts one file: one lost it, and the other's was published half-written."""
    once, twice = tmp_path / "once", tmp_path / "twice"
    for (_, alone), (marker, task) in zip(tasks_of(recipe, once), tasks_of(recipe, twice), strict=True):
        alone()
        expected = contents(once)

        def look(expected=expected) -> None:
            assert contents(twice) == expected

        twice_at_once(task, TIMES, marker, look)
        look()
        assert not [*twice.rglob("*.partial-*")]
        assert Marker.whole(marker) is not None
    assert {"ledger/00-00000.parquet", "edits/00-00000.parquet", "work/spill/00000.arrow"} <= contents(twice).keys()


@pytest.mark.slow
def test_an_attempt_that_ends_early_takes_nothing_that_another_has_published(recipe, tmp_path, monkeypatch):
    """It removed the ledger as it began, and the index of a shard before its own came."""
    for _, task in tasks_of(recipe, tmp_path):
        known = contents(tmp_path).keys()
        task()
        expected, ended, last = contents(tmp_path), True, 0
        while ended:
            synced, last = itertools.count(), last + 1

            def end(_: int, synced=synced, last=last) -> None:
                if next(synced) == last:
                    raise KeyboardInterrupt

            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                patch.setattr(os, "fsync", end)
                ended = not task()
            assert contents(tmp_path) == expected
        assert last > min(len(expected.keys() - known), 2)  # one writes its marker alone


def test_what_a_stopped_attempt_left_goes(tmp_path):
    """A part that removes and changes nothing, and unfinished files with any suffix."""
    (tmp_path / "0.jsonl").write_text('{"text": "kept"}\n')
    source = {"builder": "text", "data_files": str(tmp_path / "0.jsonl")}
    spec = {"longcrawl": 1, "name": "once", "source": source, "stages": [{"min_chars": {"n": 1}}]}
    recipe, out = parse_recipe({**spec, "outputs": {"parquet": {}}}), tmp_path / "out"
    left = [out / kind / "00-00000.parquet" for kind in ("ledger", "edits")]
    unfinished = [out / "work" / f"a.arrow.partial-{name}" for name in ("4711", "layout-4711", "0" * 32)]
    for file in (*left, *unfinished):
        write_text(file, "of other bytes")
    remove_partial(out, idle=60)  # of a process that may be at work
    assert all(file.exists() for file in unfinished)
    remove_partial(out)
    assert not [file for file in unfinished if file.exists()]
    segment, (part,) = next_segment(0, list(recipe.stages), None), recipe.source.splits()["train"]
    assert run_part(PartTask(out, segment, 0, part, recipe.source, recipe.output.writer([])))["documents"] == 1
    assert not [file for file in left if file.exists()]


@pytest.fixture
def started_elsewhere(monkeypatch, tmp_path) -> None:
    """Have worker processes start in another folder than the run, which works in ``tmp_path``."""
    start_worker = local._start_worker

    def start(*pipes: object) -> None:
        os.chdir("/")
        start_worker(*pipes)

    monkeypatch.setattr(local, "_start_worker", start)
    monkeypatch.chdir(tmp_path)


def write_relative_recipe(path: Path, source: dict, stages: list, **outputs: dict) -> Path:
    spec = {"longcrawl": 1, "name": "relative", "source": source, "stages": stages, "outputs": outputs}
    path.write_text(json.dumps(spec))  # which is YAML
    return path


@pytest.mark.slow
def test_relative_paths_count_from_where_the_run_was_started(started_elsewhere, tmp_path, directory_digest):
    """Paths of run, source, tokenizer, lists and an earlier run, for workers that start in another folder."""
    (tmp_path / "raw").mkdir()
    words = ["one two three four", "five six seven eight", "mercury venus earth mars"]
    for number, text in enumerate(words):
        lines = [json.dumps({"text": f"{text} {copy} {number * copy}\nzap me now\n"}) for copy in range(20)]
        (tmp_path / "raw" / f"{number}.jsonl").write_text("\n".join(lines))
    (tmp_path / "zap.yaml").write_text("default: en\nlanguages: {en: {anywhere: [zap me]}}")
    lc.tokens.Tokenize("trained", vocabulary_size=300).fit([pa.table({"text": words})], "tokenizer")
    (tokenizer,) = Path("tokenizer").iterdir()
    text = {"builder": "text", "data_dir": "raw"}
    first, keys = {"builder": "text", "data_files": "raw/0.jsonl"}, [{"exact_documents": {"index": "save"}}]
    earlier = write_relative_recipe(Path("earlier.yaml"), first, keys, parquet={})
    lc.run(earlier, "earlier")
    stages = [
        {"exact_documents": {"against": ["earlier"]}},
        {"line_corrections": {"patterns": "zap.yaml", "language": "en", "max_removed_words": 1.0}},
        {"tokenize": {"tokenizer": str(tokenizer)}},
    ]
    tokens = write_relative_recipe(Path("tokens.yaml"), text, stages, **{"gpt-simple": {}})
    shards = {"builder": "gpt-simple", "data_dir": "tokens/1/gpt-simple"}
    again = write_relative_recipe(Path("again.yaml"), shards, [], megatron={"end_of_text": 0})
    for recipe in (tokens, again):
        out = Path(recipe.stem)
        for processes in (1, 2):
            lc.run(recipe, out / str(processes), processes)
        assert directory_digest(out / "1") == directory_digest(out / "2")


@pytest.mark.parametrize(
    ("out", "fix"),
    [
        ("hf://datasets/me/run", "`longcrawl push FOLDER user/name`"),
        (Path("s3://"), "gs://BUCKET/FOLDER or hf://buckets/USER/BUCKET/FOLDER"),
        (Path("hf://datasets/me/run"), "`longcrawl push FOLDER user/name`"),
        ("file:///run", "gs://BUCKET/FOLDER or hf://buckets/USER/BUCKET/FOLDER"),
        ("s3://", "gs://BUCKET/FOLDER or hf://buckets/USER/BUCKET/FOLDER"),
        ("s3://bucket/../run", "gs://BUCKET/FOLDER or hf://buckets/USER/BUCKET/FOLDER"),
    ],
)
def test_a_url_that_is_not_a_folder_of_a_store_is_rejected(out, fix, tmp_path, monkeypatch):
    """It made a local folder ``hf:``, and a traceback at the end."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=rf"^a run cannot be written to \w+:\S*: choose a folder, .*{fix}$"):
        lc.run("quickstart", out)
    assert not [*tmp_path.iterdir()]


def test_a_worker_that_cannot_enter_the_folder_of_the_run_says_so(tmp_path, monkeypatch):
    """Its relative paths would be those of other files."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    packed = local.pack(len, "a task")
    (tmp_path / "here").rmdir()
    with pytest.raises(RunError, match=r"a worker cannot enter \S+here, the base of relative paths \(No such file"):
        local.run_packed(packed)
