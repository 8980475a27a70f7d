"""Runs whose folder is in an object store: a real S3 server on this machine (moto's), and machines that come and go."""

import hashlib
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.exchange import Exchange
from longcrawl.errors import NotYetError, RunError, SourceError
from longcrawl.formats import order
from longcrawl.io import file_systems, files
from longcrawl.io.files import write_text
from longcrawl.io.structured import DamagedWorkError, Marker
from longcrawl.publish import questions
from longcrawl.run import inputs, part
from longcrawl.run.engines import Local, Shared, hold
from longcrawl.run.engines.hold import Heartbeat, Watched, read_owner

FILES, ROWS = 3, 12
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZE = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}
NEAR = {"min_hash": {"bands": 4, "rows": 4, "unit": "word", "index": "save"}}
PASSAGES = {"exact_substring": {"min_tokens": 80, "unit": "character", "min_characters": 1}}
EXACT = {"exact_documents": {"index": "save"}}
SHUFFLE = {"shuffle": {"seed": 1}}
LINES = {"line_corrections": {"on_unknown_language": "keep"}}
ROW = [{"min_tokens": {"n": 16}}, {"truncate": {"n": 16}}]
CHAINS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "parquet": ([LINES, EXACT, SHUFFLE], {"by": "language", "heldout": 2}),
    "datatrove": ([NEAR, PASSAGES, TOKENIZE, SHUFFLE], {"shard_bytes": 4_000}),
    "gpt-simple": (["urls", TOKENIZE, {"windows": {"max_length": 16}}], {"heldout": 2}),
    "rectangle": ([TOKENIZE, *ROW, SHUFFLE], {"heldout": 2}),
    "composed": ([TOKENIZE, SHUFFLE], {"capacities": [16, 64], "domains": "language"}),
}

BRIEF = {"stages": ["exact_documents"], "outputs": {"parquet": {"file_bytes": 20_000}}}

KILLED = """
import json, os, signal, sys
from pathlib import Path
import datasets, fsspec
import longcrawl as lc
from longcrawl.run.engines import hold
from longcrawl.io import files

datasets.disable_progress_bars()
hold.SETTLES = 0.05
recipe, url, places, step = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
os.environ |= json.loads(sys.argv[5])
fsspec.get_filesystem_class(url.partition(":")[0])

def on_a_machine(name, work):
    child = os.fork()
    if not child:
        os.setsid()
        os.environ["LONGCRAWL_PLACES"] = str(places / name)
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]

def run_until(last, target):
    sent, send = 0, files.send
    def counted(*paths):
        nonlocal sent
        sent += 1
        if sent == last and last % 2:
            os.killpg(0, signal.SIGKILL)
        send(*paths)
        if sent == last:
            os.killpg(0, signal.SIGKILL)
    files.send = counted
    lc.run(recipe, target)

point = 1
while on_a_machine("one", lambda: run_until(point, f"{url}/{point}")) == signal.SIGKILL:
    assert on_a_machine("other", lambda: lc.run(recipe, f"{url}/{point}")) == 0, point
    point += step
print(point)
"""
"""Kills all processes of a run at its first PUT, and at every so many after it; another machine finishes the run."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the local copies of runs in a folder of the test, and tests in one where a folder ``s3:`` would be seen.

    Nobody else takes the locks of these stores, so a run looks at its own again at once.
    """
    monkeypatch.setattr(hold, "SETTLES", 0.05)
    monkeypatch.setenv(files.PLACES, str(tmp_path / "places"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "places"


def write_recipe(folder: Path, output: str = "parquet", **changes: Any) -> Path:
    """Write documents, some of which are equal or have an equal id, and a recipe for them."""
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    for number in range(FILES):
        rows = [
            {
                "id": f"{number}-{row}" if row else "first",
                "text": f"{LETTERS[row % 7] * 5} some words {(row * number) % 9} of it and more\n" * (5 + row),
                "url": f"https://example.org/{row % 5}/{number}",
                "language": "de" if row % 3 else "en",
            }
            for row in range(ROWS)
        ]
        (raw / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stages, settings = CHAINS[output]
    source = {"builder": "text", "id_field": "id", "data_dir": str(raw), "on_duplicate_ids": "keep_first"}
    spec = {"longcrawl": 1, "name": "it", "source": source, "stages": stages, "outputs": {output: settings}}
    file = folder / f"{output}.yaml"
    file.write_text(yaml.safe_dump(spec | changes))
    return file


def files_of(folder: Path) -> dict[str, str]:
    found = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def quick(*outputs: str) -> list[Any]:
    """Return all outputs as cases; `make slow` has those that are not named."""
    return [output if output in outputs else pytest.param(output, marks=pytest.mark.slow) for output in CHAINS]


class Machines(Local):
    """Two machines and a driver, none of which sees the files of another: all that they share is the store."""

    @contextmanager
    def on(self, number: int) -> Iterator[None]:
        """Put the folder of a machine in the place of the driver's."""
        (top,) = Path(os.environ[files.PLACES]).glob(f"{files.PREFIX}*")
        asides = [top.with_name(f"of {name}") for name in ("the driver", number)]
        asides[1].mkdir(exist_ok=True)
        top.rename(asides[0])
        asides[1].rename(top)
        try:
            yield
        finally:
            top.rename(asides[1])
            asides[0].rename(top)

    def tasks(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            packed = pickle.dumps((function, task))
            with self.on(number % 2):
                here, one = pickle.loads(packed)
                result = here(one)
            yield result

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        made = dict[int, list[Any]]()
        for rows in self.tasks(partial(_make, step), tasks):
            for partition, table in rows:
                made.setdefault(partition, []).append(table)
        for _ in self.tasks(partial(_take, step), [(number, made.get(number, [])) for number in step.waiting()]):
            pass


def _make(step: Exchange, task: Any) -> list[Any]:
    return list(step.make(task))


def _take(step: Exchange, task: tuple[int, list[Any]]) -> int:
    return step.write(*task)


@pytest.mark.slow
@pytest.mark.parametrize("output", quick("rectangle"))
def test_a_run_in_a_store_has_the_files_of_one_in_a_folder(store, tmp_path, places, output):
    recipe = write_recipe(tmp_path, output)
    summary = lc.run(recipe, tmp_path / "local")
    far = lc.run(recipe, store.url("deep/my run"), 2)
    assert store.files("deep/my run") == files_of(tmp_path / "local")
    assert (far.out, far.batch, far.funnel) == (store.url("deep/my run"), summary.batch, summary.funnel)
    assert lc.run(recipe, store.url("deep/my run")).batch == summary.batch
    assert list(places.iterdir()) == []
    assert not (tmp_path / "s3:").exists()


@pytest.mark.slow
def test_a_run_in_a_store_is_inspected_composed_and_pushed_as_one_in_a_folder(store, hub, tmp_path, monkeypatch):
    recipe, far = write_recipe(tmp_path, "rectangle"), store.url("run")
    for out in (tmp_path / "local", far):
        lc.run(recipe, out)
    found, expected = lc.inspect(far, row=1), lc.inspect(tmp_path / "local", row=1)
    assert (found.path, found.text) == (f"{far}/rectangle", expected.text)
    assert str(lc.compose(far, (16, 64))) == str(lc.compose(tmp_path / "local", (16, 64)))
    there, here = (CliRunner().invoke(app, ["inspect", path]) for path in (far, str(tmp_path / "local")))
    assert (there.exit_code, there.stdout) == (0, here.stdout.replace(str(tmp_path / "local"), far))
    pushed = lc.push(far, "me/far", "private")
    lc.push(tmp_path / "local", "me/local", "private")
    assert pushed.digests == lc.push(tmp_path / "local", "me/near", "private").digests
    assert store.files("run") == files_of(tmp_path / "local")
    assert (lc.push(far, "me/far", "private").send, lc.verify(far).problems) == ({}, ())
    monkeypatch.setattr(questions, "FETCHED", 1)
    with pytest.raises(RunError, match=rf"^{far}: [\d,]+ bytes would be downloaded for this: copy the run to a folder"):
        lc.inspect(far)


def test_a_run_in_a_bucket_of_the_hub_has_the_files_of_one_in_a_folder(bucket, hub, tmp_path, places, monkeypatch):
    recipe, far = write_recipe(tmp_path, **BRIEF), bucket.url("deep/my run")
    summary = lc.run(recipe, tmp_path / "local")
    assert lc.run(recipe, far).funnel == summary.funnel
    assert bucket.files("deep/my run") == files_of(tmp_path / "local")
    assert lc.run(recipe, far).batch == summary.batch
    assert lc.verify(far).problems == ()
    assert lc.inspect(far).text == lc.inspect(tmp_path / "local").text
    assert list(places.iterdir()) == []
    hub.fail("GET /api/buckets/", status=403, times=9)
    with pytest.raises(NotYetError, match=r"^hf://buckets/me/.*: the server does not allow it .*hf auth login"):
        lc.funnel(far)
    hub.failures.clear()
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.01)
    hub.fail("GET /api/buckets/", status=503, times=9)
    with pytest.raises(NotYetError, match=r"^hf://buckets/me/.*: cannot be fetched now .*503"):
        lc.run(recipe, far)
    hub.failures.clear()
    with pytest.raises(SourceError, match="the server has no bucket 'me/nothing'"):
        lc.run(recipe, "hf://buckets/me/nothing/run")
    for url in ("hf://datasets/me/it", "s3://"):
        with pytest.raises(RunError, match=rf"^a run cannot be written to {url.rstrip('/')}.* choose .* hf://buckets/"):
            lc.run(recipe, url)


@pytest.mark.slow
@pytest.mark.parametrize("output", quick("parquet"))
def test_machines_that_share_a_bucket_alone_write_the_same_files(bucket, tmp_path, places, output, monkeypatch):
    machines_share(bucket, tmp_path, output, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("output", quick("parquet"))
def test_machines_that_share_the_store_alone_write_the_same_files(store, tmp_path, places, output, monkeypatch):
    machines_share(store, tmp_path, output, monkeypatch)


def machines_share(store: Any, tmp_path: Path, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path, output)
    lc.run(recipe, tmp_path / "local")
    for module, name, value in (
        (inputs, "HELD", 0), (inputs, "TASK", 1), (order, "HELD", 0), (order, "PIECE", 5), (part, "HELD", 0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    lc.run(recipe, store.url("run"), engine=Machines())
    assert store.files("run") == files_of(tmp_path / "local")


@pytest.mark.slow
def test_machines_that_share_the_store_alone_read_divided_files(store, tmp_path, places, divided):
    for recipe in divided.recipes(tmp_path):
        lc.run(recipe, tmp_path / recipe.stem)
        lc.run(recipe, store.url(recipe.stem), engine=Machines())
        assert store.files(recipe.stem) == files_of(tmp_path / recipe.stem)
        assert sum(name.startswith("ledger/") for name in store.files(recipe.stem)) > 2


def killed(store: Any, python: Callable[..., Any], tmp_path: Path, step: int) -> None:
    recipe = write_recipe(tmp_path, **BRIEF)
    lc.run(recipe, tmp_path / "local")
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    words = (recipe, store.url("killed"), tmp_path / "places", step, json.dumps(environment))
    last = int(python(KILLED, *words).stdout)
    assert last > 2 * step
    expected = files_of(tmp_path / "local")
    for point in range(1, last, step):
        assert store.files(f"killed/{point}") == expected, point
    # The copies of killed commands are those of runs that this machine has not begun again.
    assert len(list((tmp_path / "places/other").iterdir())) == 0


@pytest.mark.slow
def test_a_killed_run_is_finished_on_another_machine(store, python, tmp_path):
    killed(store, python, tmp_path, 45)


@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_is_finished_on_another_machine(store, python, tmp_path):
    killed(store, python, tmp_path, 2)


@pytest.mark.slow
def test_a_run_in_a_bucket_that_is_killed_is_finished_on_another_machine(bucket, hub, tmp_path, xet):
    # The client reads where its server is as it is imported.
    environment = os.environ | hub.environment | {"HF_HUB_DISABLE_XET": "0", "HF_XET_CACHE": str(xet)}

    def python(program: str, *words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *map(str, words)]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)

    killed(bucket, python, tmp_path, 7)


@pytest.mark.slow
def test_the_copies_of_a_killed_command_go_with_the_next_one(store, tmp_path, places):
    recipe = write_recipe(tmp_path, **BRIEF)
    bucket = store.url().strip("/").partition("://")[2]
    left, other = (places / f"{files.PREFIX}{name}/s3/{bucket}/{name}" for name in ("run", "other"))
    for folder in (left, other):
        folder.mkdir(parents=True)
    lc.run(recipe, store.url("run"))
    assert (left.exists(), other.exists()) == (False, True)


@pytest.fixture
def lock(store: Any) -> Iterator[Path]:
    with files.open_place(store.url("run")) as folder:
        yield folder / "work" / "lock"


@pytest.mark.slow
def test_one_of_two_commands_keeps_the_lock_of_a_bucket_which_both_may_create(bucket, monkeypatch):
    monkeypatch.setattr(hold, "SETTLES", 1.0)
    with files.open_place(bucket.url("run")) as one, files.open_place(bucket.url("run")) as other:
        with hold.hold_alone(one / "work"), pytest.raises(RunError, match="another run is working in hf://buckets/me/"):
            hold.hold_alone(other / "work").__enter__()
        late = threading.Timer(0.5, lambda: files.overwrite(one / "work" / "lock", '{"owner": "other"}'))
        late.start()
        with pytest.raises(RunError, match="another process has started work in hf"), hold.hold_alone(one / "work"):
            pass
        late.join()


def test_one_of_many_creates_an_object(lock):
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda number: files.create(lock, str(number)), range(16))) == 1
    assert not lock.exists()


@pytest.mark.slow
def test_a_lock_in_a_store_is_one_owners_and_shows_that_it_lives(lock):
    owner, other = Heartbeat(0.1), Heartbeat(0.1)
    try:
        assert owner.take(lock)
        assert not other.take(lock)
        assert owner.take(lock)  # as where a store took it, and its answer was lost
        watched = Watched(lock)
        watched.remove_if_stale()
        time.sleep(1.5)  # stores count seconds
        assert watched.remove_if_stale()
        owner.release(lock)
        assert other.take(lock)
        assert (owner.holds(lock), other.holds(lock)) == (False, True)
    finally:
        owner.stop()
        other.stop()
    assert read_owner(lock) is None


def test_a_run_that_another_command_holds_is_one_sentence(store, lock, tmp_path):
    heartbeat = Heartbeat()
    try:
        heartbeat.take(lock)
        with pytest.raises(RunError, match=rf"^another run is working in {store.url('run')}, process {os.getpid()} on"):
            lc.run(write_recipe(tmp_path, **BRIEF), store.url("run"))
    finally:
        heartbeat.stop()


@pytest.mark.slow
def test_a_lock_that_its_process_could_not_remove_is_taken_by_it(store, lock):
    """A server that failed to the end of a run left it, and in a notebook the process lives on."""
    heartbeat = Heartbeat()
    heartbeat.take(lock)
    left = files.read_store(lock)
    heartbeat.stop()
    files.create(lock, str(left))
    with hold.hold_alone(lock.parent) as held:
        held.check()


@pytest.mark.slow
def test_the_lock_of_a_machine_that_is_gone_is_taken(store, lock, tmp_path, monkeypatch):
    monkeypatch.setattr(hold, "STALE", 0.0)
    monkeypatch.setattr(hold, "SETTLES", 0.05)
    files.create(lock, json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
    with pytest.warns(UserWarning, match=rf"^{store.url('run')} is of elsewhere: waiting"):
        lc.run(write_recipe(tmp_path, **BRIEF), store.url("run"))


@pytest.mark.slow
def test_of_two_that_see_a_stale_lock_one_notices_that_it_has_lost_it(lock, monkeypatch):
    def lose(seconds: float) -> None:
        pause(seconds)
        if seconds == hold.SETTLES:
            files.overwrite(lock, json.dumps({"owner": "y", "host": "elsewhere"}))

    gone = json.dumps({**hold._process(os.getpid()), "owner": "x", "started": 1})
    files.create(lock, gone)
    with hold.hold_alone(lock.parent) as held:
        held.check()
    files.create(lock, gone)
    pause = time.sleep
    monkeypatch.setattr(time, "sleep", lose)
    taken = hold.hold_alone(lock.parent)
    with pytest.raises(RunError, match="another process has started work in s3://"), taken:
        pass


@pytest.mark.slow
def test_what_a_store_does_not_take_is_one_sentence(store, tmp_path, monkeypatch):
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    recipe, url = write_recipe(tmp_path, **BRIEF), store.url("run")
    with pytest.raises(SourceError, match=r"^s3://no-such-bucket/run/\S+: the server has no bucket 'no-such-bucket'"):
        lc.run(recipe, "s3://no-such-bucket/run")
    with pytest.raises(
        RunError,
        match=rf"^--engine shared needs a shared folder, not {url}: set --out to a "
        r"folder that all machines see, or choose",
    ):
        lc.run(recipe, url, engine=Shared())
    store.answers = itertools.repeat("403 AccessDenied")
    with pytest.raises(
        NotYetError, match=r"^s3://\S+: the server does not allow it .*AWS_PROFILE.*same command again$"
    ):
        lc.run(recipe, url)
    store.answers = itertools.chain([None] * 40, itertools.repeat("503 SlowDown"))
    with pytest.raises((NotYetError, RunError), match=r"s3://\S+: cannot be \w+ now .* the same command"):
        lc.run(recipe, url)
    store.answers = iter(())
    assert 0 < len(store.files("run")) < 40
    lc.run(recipe, url)
    lc.run(recipe, tmp_path / "local")
    assert store.files("run") == files_of(tmp_path / "local")
    monkeypatch.setenv(files.PLACES, str(recipe))
    with pytest.raises(RunError, match=rf"cannot hold local copies of {url} .*set LONGCRAWL_PLACES=FOLDER$"):
        lc.run(recipe, url)


@pytest.mark.slow
def test_a_server_that_fails_now_and_then_changes_nothing(store, tmp_path):
    recipe = write_recipe(tmp_path, **BRIEF)
    lc.run(recipe, tmp_path / "local")
    chance = random.Random(0)
    store.answers = ("503 SlowDown" if chance.random() < 0.2 else None for _ in itertools.count())
    lc.run(recipe, store.url("run"))
    store.answers = iter(())
    assert store.files("run") == files_of(tmp_path / "local")


@pytest.mark.slow
def test_what_a_store_already_has_is_not_written_over(store, tmp_path):
    recipe = write_recipe(tmp_path, **BRIEF)
    store.put("data/a.csv", b"mine")
    with pytest.raises(RunError, match=rf"^{store.url('data')} is not empty and holds no run: choose another folder$"):
        lc.run(recipe, store.url("data"))
    lc.run(recipe, store.url("run"))
    before = store.files("run")
    with pytest.raises(RunError, match=rf"^{store.url('run')} holds the run of another recipe \("):
        lc.run(write_recipe(tmp_path, "datatrove"), store.url("run"))
    assert store.files("run") == before
    assert store.files("data") == {"a.csv": hashlib.sha256(b"mine").hexdigest()}


@pytest.mark.slow
def test_the_command_line_writes_to_a_store(store, tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path, **BRIEF)
    told = CliRunner().invoke(app, ["run", str(recipe), "--out", store.url("run")])
    assert (told.exit_code, store.url("run") in told.stdout) == (0, True)
    assert lc.verify(store.url("run")).problems == ()
    assert not (tmp_path / "s3:").exists()


def test_a_file_that_changes_on_this_machine_is_fetched_again(store):
    with files.open_place(store.url("run")) as folder:
        marker = Marker(folder / "a.json", {}, {})
        write_text(folder / "a.txt", "as it was")
        Marker(marker.path, {}, Marker.entries(marker.path, [folder / "a.txt"])).write()
        (folder / "a.txt").write_text("as it is")
        Marker.open(marker.path, folder / "a.txt")
        assert (folder / "a.txt").read_text() == "as it was"
        store.put("run/a.txt", b"as it is")
        (folder / "a.txt").write_text("as it is")
        with pytest.raises(DamagedWorkError, match=r"a\.txt has 8 bytes, expected 9"):
            Marker.open(marker.path, folder / "a.txt")


def test_a_spilled_file_that_another_machine_fetches_is_compared(store):
    with files.open_place(store.url("run")) as one, files.open_place(store.url("run")) as other:
        marker = one / "work" / "spill" / order.sealed(1)
        file = marker.with_name("00001.arrow")
        write_text(file, "as it was written")
        Marker(marker, {}, Marker.entries(marker, [file])).write()
        fetched = other / "work" / "spill" / file.name
        assert order.checked(fetched, marker.name).read_text() == "as it was written"
        fetched.unlink()
        files.overwrite(fetched, "as it was writteN")
        with pytest.raises(DamagedWorkError, match="00001.arrow has been changed"):
            order.checked(fetched, marker.name)
        assert not fetched.exists()
