"""Runs whose folder is in an object store: a real S3 server on this machine (moto's), and machines that come and go."""

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import longcrawl as lc
from longcrawl.engines import Local
from longcrawl.engines.base import Exchange
from longcrawl.formats import order
from longcrawl.run import ids, removals
from longcrawl.storage import place

FILES, ROWS = 3, 12
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZE = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}
NEAR = {"min_hash": {"bands": 4, "rows": 4, "unit": "word", "index": "save"}}
SHUFFLE = {"shuffle": {"seed": 1}}
LINES = {"line_corrections": {"on_unknown_language": "keep"}}
ROW = [{"min_tokens": {"n": 16}}, {"truncate": {"n": 16}}]
CHAINS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "parquet": ([LINES, "exact_documents", NEAR, SHUFFLE], {"by": "language", "heldout": 2}),
    "datatrove": ([TOKENIZE, SHUFFLE], {"shard_bytes": 4_000}),
    "gpt-simple": (["urls", TOKENIZE, {"windows": {"max_length": 16}}], {"heldout": 2}),
    "rectangle": ([TOKENIZE, *ROW, SHUFFLE], {"heldout": 2}),
    "composed": ([TOKENIZE, SHUFFLE], {"capacities": [16, 64], "domains": "language"}),
}


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the local copies of runs in a folder of the test, and tests in one where a folder ``s3:`` would be seen."""
    monkeypatch.setenv(place.PLACES, str(tmp_path / "places"))
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


class Machines(Local):
    """Two machines and a driver, none of which sees the files of another: all that they share is the store."""

    @contextmanager
    def on(self, number: int) -> Iterator[None]:
        """Put the folder of a machine in the place of the driver's."""
        (top,) = Path(os.environ[place.PLACES]).glob(f"{place.PREFIX}*")
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


@pytest.mark.parametrize("output", CHAINS)
def test_a_run_in_a_store_has_the_files_of_one_in_a_folder(store, tmp_path, places, output):
    recipe = write_recipe(tmp_path, output)
    summary = lc.run(recipe, tmp_path / "local")
    far = lc.run(recipe, store.url("deep/my run"), 2)
    assert store.files("deep/my run") == files_of(tmp_path / "local")
    assert (far.out, far.batch, far.funnel) == (store.url("deep/my run"), summary.batch, summary.funnel)
    assert lc.run(recipe, store.url("deep/my run")).batch == summary.batch
    assert list(places.iterdir()) == []
    assert not (tmp_path / "s3:").exists()


@pytest.mark.parametrize("output", CHAINS)
def test_machines_that_share_the_store_alone_write_the_same_files(store, tmp_path, places, output, monkeypatch):
    recipe = write_recipe(tmp_path, output)
    lc.run(recipe, tmp_path / "local")
    for module, name, value in (
        (removals, "HELD", 0), (removals, "TASK", 1), (order, "HELD", 0), (order, "PIECE", 5), (ids, "HELD", 0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    lc.run(recipe, store.url("run"), engine=Machines())
    assert store.files("run") == files_of(tmp_path / "local")
