"""Run after run, as RefinedWeb works on its parts: what one has kept leaves the next."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import longcrawl as lc
from longcrawl.dedup.index import open_index
from longcrawl.errors import FormatError, RunError
from longcrawl.io.structured import seal

TOKENIZE = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}
SHORT = "too short"


def text_of(name):
    return " ".join(f"word{(ord(each) * step) % 97}" for each in name for step in range(1, 60))


def write_part(folder: Path, name: str, documents: dict[str, str], texts: dict[str, str] | None = None) -> Path:
    """Write documents, given as ids and the last part of their URLs, to two files."""
    folder.mkdir(parents=True)
    ids = list(documents)
    for file, chosen in (("0", ids[::2]), ("1", ids[1::2])):
        lines = [
            {
                "id": each,
                "text": (texts or {}).get(each, text_of(name + each)),
                "url": f"https://example.org/{documents[each]}",
            }
            for each in chosen
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_recipe(path: Path, documents: Path, *stages) -> Path:
    spec = {
        "longcrawl": 1,
        "name": "tiny",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(documents)},
        "stages": [*stages, TOKENIZE, {"truncate": {"n": 64}}],
        "outputs": {"rectangle": {"heldout": 0.2}},
    }
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def left(run: Path, stage: str = "urls") -> list[tuple[str, str, str]]:
    rows = pq.read_table(run / "ledger").to_pylist() if (run / "ledger").exists() else []
    return sorted((row["id"], row["rule"], row["kept_id"]) for row in rows if row["stage"] == stage)


def indexed(index: Path, stage: str = "urls") -> list[str]:
    settings = json.loads((index / "index.json").read_text())["settings"]
    opened = open_index(str(index), stage, settings)
    return sorted(opened.ids(np.arange(opened.documents)).to_pylist())


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Path:
    """Return a folder with three parts, their recipes, and the runs of the first and second."""
    root = tmp_path_factory.mktemp("parts")
    first = {"a1": "x", "a2": "x/", "a3": "y", "a4": "z", "a5": "v", "a6": "w"}
    second = {"b1": "x?utm_source=1", "b2": "q", "b3": "q", "b4": "z", "b5": "r", "b6": "s", "b7": "t"}
    third = {"c1": "x", "c2": "q", "c3": "z", "c4": "n1", "c5": "n2", "c6": "n3", "c7": "n4"}
    # a4 leaves after the URLs have been compared, so its URL is not kept, and b4 of the same URL stays.
    write_part(root / "one", "one", first, {"a4": SHORT})
    write_part(root / "two", "two", second)
    write_part(root / "three", "three", third)
    for part in ("one", "two", "three"):
        write_recipe(root / f"{part}.yaml", root / part, {"urls": {"index": "save"}}, {"min_chars": {"n": 50}})
    lc.run(root / "one.yaml", root / "RUN1")
    lc.run(root / "two.yaml", root / "RUN2", overrides=[f"stages.urls.against=[{root / 'RUN1'}]"])
    return root


def test_a_run_saves_what_it_has_kept_in_the_end(parts):
    run = parts / "RUN1"
    assert left(run) == [("a2", "same_url", "a1")]
    assert left(run, "min_chars")[0][0] == "a4"
    assert indexed(run / "index/urls") == ["a1", "a3", "a5", "a6"]
    listed = {name for name in json.loads((run / "manifest.json").read_text())["files"] if name.startswith("index/")}
    assert listed == {f"index/urls/{name}" for name in ("index.json", "ids.arrow", "keys-000.npy", "rows-000.npy")}
    assert lc.verify(run).problems == ()


def test_what_an_earlier_run_has_kept_leaves_a_later_one(parts):
    assert left(parts / "RUN2") == [("b1", "seen_before", "a1"), ("b2", "same_url", "b3")]
    assert indexed(parts / "RUN2/index/urls") == ["b3", "b4", "b5", "b6", "b7"]
    assert str(lc.why(parts / "RUN2", "b1")) == "b1: removed at urls, rule seen_before: a duplicate of a1"


def test_a_third_run_against_both(parts):
    both = f"stages.urls.against=[{parts / 'RUN1'}, {parts / 'RUN2' / 'index' / 'urls'}]"
    lc.run(parts / "three.yaml", parts / "RUN3", overrides=[both])
    assert left(parts / "RUN3") == [
        ("c1", "seen_before_1", "a1"),
        ("c2", "seen_before_2", "b3"),
        ("c3", "seen_before_2", "b4"),
    ]


def test_the_manifest_names_the_indexes_by_content(parts):
    used = json.loads((parts / "RUN2/manifest.json").read_text())["indexes"]
    digest = hashlib.sha256((parts / "RUN1/index/urls/index.json").read_bytes()).hexdigest()
    assert used == {"urls": {str(parts / "RUN1"): digest}}
    assert "indexes" not in json.loads((parts / "RUN1/manifest.json").read_text())


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_processes(parts, tmp_path):
    against = [f"stages.urls.against=[{parts / 'RUN1'}]"]
    lc.run(parts / "two.yaml", tmp_path / "out", num_proc=2, overrides=against)
    assert content(tmp_path / "out") == content(parts / "RUN2")


IN_TASKS = """
from longcrawl.dedup import index
from longcrawl.run import inputs

inputs.HELD, inputs.TASK, index.PIECE = 0, 1, 2
"""
"""Makes each input a group of an exchange, and each band several ranges of keys."""


@pytest.mark.slow
@pytest.mark.parametrize("num_proc", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_tasks_save_the_index_that_one_process_saves(parts, tmp_path, num_proc, python):
    """The second run looks at the index of the first."""
    recipe, out, against = str(parts / "two.yaml"), str(tmp_path / "out"), f"stages.urls.against=[{parts / 'RUN1'}]"
    code = f"{IN_TASKS}\nimport longcrawl as lc\nlc.run({recipe!r}, {out!r}, {num_proc}, [{against!r}])"
    assert python(code).returncode == 0
    assert content(tmp_path / "out") == content(parts / "RUN2")


def run_until(sign: str, recipe: Path, out: Path, against: str, before: str = "") -> None:
    """Run a recipe and kill the run as soon as a file is whole whose path ends with ``sign``."""
    code = f"""{before}
import os, signal
from pathlib import Path
import longcrawl as lc

rename = os.replace

def replace(source, target):
    rename(source, target)
    if str(target).endswith({sign!r}):
        os.kill(os.getpid(), signal.SIGKILL)

Path.replace = replace
lc.run({str(recipe)!r}, {str(out)!r}, overrides=[{against!r}])
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(out.rglob(sign))
    assert not (out / "manifest.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["index/urls/ids.arrow", "index/urls/index.json"])
def test_a_run_killed_while_it_saves_is_finished_to_the_same_bytes(parts, tmp_path, sign):
    against = f"stages.urls.against=[{parts / 'RUN1'}]"
    run_until(sign, parts / "two.yaml", tmp_path / "out", against)
    lc.run(parts / "two.yaml", tmp_path / "out", overrides=[against])
    assert content(tmp_path / "out") == content(parts / "RUN2")


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["known/00001.json", "keys/00001.json", "urls/rows-000.npy", "files/keys-000.json"])
def test_a_run_killed_while_tasks_save_is_finished_by_one_process(parts, tmp_path, sign):
    against = f"stages.urls.against=[{parts / 'RUN1'}]"
    run_until(sign, parts / "two.yaml", tmp_path / "out", against, IN_TASKS)
    lc.run(parts / "two.yaml", tmp_path / "out", overrides=[against])
    assert content(tmp_path / "out") == content(parts / "RUN2")


def test_an_index_of_other_settings_is_refused_before_anything_is_read(parts, tmp_path):
    wrong = ["stages.urls.query=all", f"stages.urls.against=[{parts / 'RUN1'}]"]
    with pytest.raises(FormatError, match="made by urls with .*'drop-tracking'.*, but this is urls with .*'all'"):
        lc.run(parts / "two.yaml", tmp_path / "out", overrides=wrong)
    assert not list((tmp_path / "out").rglob("segment-*"))
    none = [f"stages.urls.against=[{parts / 'one'}]"]
    with pytest.raises(FormatError, match="no index of urls at .*one; a run writes one with --set stages.urls.index"):
        lc.run(parts / "two.yaml", tmp_path / "out", overrides=none)


@pytest.mark.slow
def test_an_index_that_changed_since_the_run_began_is_refused(parts, tmp_path):
    against, out = f"stages.urls.against=[{parts / 'RUN1'}]", tmp_path / "out"
    run_until("segment-0/00000.json", parts / "two.yaml", out, against)
    description = parts / "RUN1/index/urls/index.json"
    before = description.read_text()
    try:
        description.write_text(seal(json.loads(before) | {"note": "another index"}))
        with pytest.raises(RunError, match="the input of .* has changed since the run began"):
            lc.run(parts / "two.yaml", out, overrides=[against])
    finally:
        description.write_text(before)
    lc.run(parts / "two.yaml", out, overrides=[against])
    assert content(out) == content(parts / "RUN2")


@pytest.mark.slow
def test_two_stages_of_one_kind_save_apart_and_the_second_is_named_in_full(parts, tmp_path):
    twice = [{"urls": {"index": "save"}}, {"min_chars": {"n": 50}}, {"urls": {"query": "none", "index": "save"}}]
    lc.run(write_recipe(tmp_path / "twice.yaml", parts / "one", *twice), tmp_path / "twice")
    assert sorted(each.name for each in (tmp_path / "twice/index").iterdir()) == ["urls", "urls_2"]
    assert indexed(tmp_path / "twice/index/urls") == indexed(tmp_path / "twice/index/urls_2")
    second = lc.dedup.Urls(query="none", against=[str(tmp_path / "twice/index/urls_2")])
    second.prepare()
    with pytest.raises(FormatError, match="made by urls with .*'drop-tracking'"):
        lc.dedup.Urls(query="none", against=[str(tmp_path / "twice")]).prepare()
    with pytest.raises(FormatError, match="no index of exact_documents at .*; there are .*index/urls, .*index/urls_2"):
        lc.dedup.ExactDocuments(against=[str(tmp_path / "twice")]).prepare()


@pytest.mark.slow
@pytest.mark.parametrize("verify", [None, pytest.param(0.5, marks=pytest.mark.slow)])
def test_near_duplicates_of_an_earlier_run_leave_a_later_one(tmp_path, verify):
    settings = {"bands": 20, "rows": 4, "ngram": 3, "unit": "word", "keep": "first", "verify": verify, "index": "save"}
    before = {f"a{number}": text_of(letter) for number, letter in enumerate("pqrst")}
    before["a3"] = before["a3"][:250]
    after = {f"b{number}": f"{text} and more" for number, text in enumerate([*before.values(), *map(text_of, "uv")])}
    after["b7"] = after["b3"] + " again"
    for name, texts in (("one", before), ("two", after)):
        write_part(tmp_path / name, name, dict.fromkeys(texts, "x"), texts)
    # a3 leaves after near-duplicates have been looked for, so b3 stays.
    stages = [{"min_hash": settings}, {"min_chars": {"n": 300}}]
    lc.run(write_recipe(tmp_path / "one.yaml", tmp_path / "one", *stages), tmp_path / "RUN1")
    assert indexed(tmp_path / "RUN1/index/min_hash", "min_hash") == ["a0", "a1", "a2", "a4"]
    recipe = write_recipe(tmp_path / "two.yaml", tmp_path / "two", *stages[:1])
    against = [f"stages.min_hash.against=[{tmp_path / 'RUN1'}]"]
    lc.run(recipe, tmp_path / "RUN2", overrides=against)
    lc.run(recipe, tmp_path / "again", num_proc=2, overrides=against)
    earlier = [(f"b{number}", "near_duplicate_of_earlier", f"a{number}") for number in (0, 1, 2, 4)]
    assert left(tmp_path / "RUN2", "min_hash") == [*earlier, ("b7", "near_duplicate", "b3")]
    assert indexed(tmp_path / "RUN2/index/min_hash", "min_hash") == ["b3", "b5", "b6"]
    assert content(tmp_path / "again") == content(tmp_path / "RUN2")
    assert lc.verify(tmp_path / "RUN2").problems == ()
    assert (tmp_path / "RUN2/index/min_hash/ngrams.npy").exists() == (verify is not None)
    with pytest.raises(FormatError, match="made by min_hash with .*'rows': 4.*, but this is min_hash with .*'rows': 5"):
        lc.run(recipe, tmp_path / "other", overrides=[*against, "stages.min_hash.rows=5"])


@pytest.mark.slow
def test_large_clusters_are_in_the_manifest_and_on_the_card(tmp_path):
    texts = {f"d{number}": text_of("p" if number < 5 else chr(ord("a") + number)) for number in range(9)}
    write_part(tmp_path / "texts", "texts", dict.fromkeys(texts, "x"), texts)
    recipe = write_recipe(tmp_path / "recipe.yaml", tmp_path / "texts", {"min_hash": {"preset": "fineweb"}})
    with pytest.warns(UserWarning, match="more than max_cluster=3"):
        lc.run(recipe, tmp_path / "RUN", overrides=["stages.min_hash.max_cluster=3"])
    (said,) = json.loads((tmp_path / "RUN/manifest.json").read_text())["reports"]["min_hash"]
    assert said.startswith("min_hash found 1 cluster(s) of more than max_cluster=3 documents; the largest has 5 around")
    assert f"- `min_hash`: {said}.\n" in (tmp_path / "RUN/README.md").read_text()
    lc.run(recipe, tmp_path / "silent")
    assert "reports" not in json.loads((tmp_path / "silent/manifest.json").read_text())


@pytest.mark.slow
def test_published_signatures_are_compared_run_after_run(make_release, tmp_path):
    texts = {name: text_of(name) for name in "abcdefgh"}
    make_release(
        tmp_path / "release",
        {
            "2022-49/0000/en_head": [texts[name] for name in "abcde"],
            "2023-06/0000/en_head": [texts[name] for name in "bdfgh"],
        },
    )
    stages = [{"min_hash_signatures": {"index": "save"}}, TOKENIZE, {"truncate": {"n": 64}}]
    spec = {"longcrawl": 1, "name": "tiny", "stages": stages, "outputs": {"rectangle": {"heldout": 0.2}}}
    for snapshot, run in (("2022-49", "RUN1"), ("2023-06", "RUN2")):
        source = {"builder": "redpajama-v2", "data_dir": str(tmp_path / "release"), "minhash": True}
        spec["source"] = source | {"languages": ["en"], "snapshots": [snapshot]}
        (tmp_path / f"{run}.yaml").write_text(yaml.safe_dump(spec))
    lc.run(tmp_path / "RUN1.yaml", tmp_path / "RUN1")
    lc.run(
        tmp_path / "RUN2.yaml",
        tmp_path / "RUN2",
        overrides=[f"stages.min_hash_signatures.against=[{tmp_path / 'RUN1'}]"],
    )
    assert left(tmp_path / "RUN2", "min_hash_signatures") == [
        (f"2023-06/0000/en_head.json.gz/{there}", "near_duplicate_of_earlier", f"2022-49/0000/en_head.json.gz/{here}")
        for there, here in ((0, 1), (1, 3))
    ]
    index = tmp_path / "RUN2/index/min_hash_signatures"
    assert len(indexed(index, "min_hash_signatures")) == 3
