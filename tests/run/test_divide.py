"""Large files are several parts of a run, and its documents, losses and ledgers are those of whole files."""

import gzip
import json
import os
import random
import re
import shutil

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import longcrawl as lc
from longcrawl.core.sources import Part
from longcrawl.errors import RunError, SourceError
from longcrawl.run import divide, job
from longcrawl.run import part as parts_of_runs
from longcrawl.run.engines.local import Local
from longcrawl.run.engines.shared import Shared
from longcrawl.run.recipe import load_recipe

RECIPE = """
longcrawl: 1
name: large
about: Large files.
source: {{builder: text, data_dir: {folder}, id_field: {ids}, on_bad_files: {policy}, origins: line}}
stages:
  - min_chars: {{n: 40}}
  - exact_documents: {{}}
outputs:
  parquet: {{}}
"""


def lines_of(seed: int, lines: int = 200) -> bytes:
    chance = random.Random(seed)
    rows = [
        {"id": f"{seed}-{row}", "text": " ".join(chance.choices("abcdefgh", k=chance.choice([5, 30, 60])))}
        for row in range(lines)
    ]
    rows[50]["text"] = rows[150]["text"] = "the same text in two sections of a file and in every file " * 2
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "input"
    found.mkdir()
    (found / "a.jsonl").write_bytes(lines_of(1).replace(b'"id"', b'"id', 1))
    (found / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + lines_of(2).replace(b'"text"', b'"other"', 3))
    (found / "c.jsonl.gz").write_bytes(gzip.compress(lines_of(3)[:-300], mtime=0))
    rows = [json.loads(line) for line in lines_of(4).splitlines()]
    rows[7]["text"] = rows[177]["text"] = None
    pq.write_table(pa.Table.from_pylist(rows), found / "d.parquet", row_group_size=20, compression="none")
    return found


@pytest.fixture
def small(monkeypatch):
    """Divide all but one of the files."""
    monkeypatch.setattr(divide, "LARGE", 2_000)
    monkeypatch.setattr(divide, "SECTION", 4_000)


def recipe(folder, ids="null", policy="skip", *overrides):
    file = folder.parent / "recipe.yaml"
    file.write_text(RECIPE.format(folder=folder, ids=ids, policy=policy), "utf-8")
    return load_recipe(file, overrides)


def manifest(run):
    return json.loads((run / "manifest.json").read_bytes())


def ledger(run):
    return pa.concat_tables(pq.read_table(file) for file in sorted((run / "ledger").iterdir()))


def without_ledgers(run):
    found = manifest(run)
    own = {name: entry for name, entry in found["files"].items() if name.startswith(("parquet/", "recipe"))}
    assert own
    return found | {"files": own, "sha256": ""}


class Stopped(Local):
    """An engine that is interrupted after some results."""

    def tasks(self, function, tasks):
        for result in super().tasks(function, tasks):
            yield result
            LEFT[0] -= 1
            if LEFT[0] == 0:
                raise KeyboardInterrupt


LEFT = [0]


@pytest.mark.parametrize("several", [Local(2), pytest.param(Shared(), marks=pytest.mark.slow)], ids=["local", "shared"])
def test_every_engine_gives_the_files_of_one_process(tmp_path, divided, directory_digest, several):
    """The contract for all kinds of files; Spark and object stores have tests of their own."""
    engines = {"one": Local(), "several": several}
    for name, engine in engines.items():
        for chosen in divided.recipes(tmp_path):
            lc.run(chosen, tmp_path / name / chosen.stem, engine=engine)
            assert len(list((tmp_path / name / chosen.stem / "ledger").iterdir())) > 2
    assert len({directory_digest(tmp_path / name) for name in engines}) == 1


@pytest.mark.variants
@pytest.mark.parametrize("ids", ["null", "id"])
def test_documents_losses_and_ledgers_are_those_of_whole_files(folder, tmp_path, small, monkeypatch, ids):
    one, whole = tmp_path / "one", tmp_path / "whole"
    lc.run(recipe(folder, ids), one)
    assert len(list((one / "ledger").iterdir())) > 8
    monkeypatch.setattr(divide, "LARGE", 10**9)
    lc.run(recipe(folder, ids), whole)
    assert without_ledgers(one) == without_ledgers(whole)
    assert ledger(one).equals(ledger(whole))
    assert [bad["part"] for bad in manifest(one)["bad_files"]] == ["a.jsonl", "b.jsonl", "c.jsonl.gz", "d.parquet"]


@pytest.mark.variants
@pytest.mark.parametrize("results", [2, 6, 17])
def test_a_stopped_run_is_finished_with_the_same_bytes(folder, tmp_path, small, results, directory_digest):
    lc.run(recipe(folder), tmp_path / "run")
    LEFT[0] = results
    with pytest.raises(KeyboardInterrupt):
        lc.run(recipe(folder), tmp_path / "stopped", engine=Stopped())
    lc.run(recipe(folder), tmp_path / "stopped", engine=Shared())
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "stopped")


@pytest.mark.slow
def test_a_file_is_hashed_once_and_recorded_once(folder, tmp_path, small, monkeypatch):
    hashed, checksum = [], lc.sources.files.checksum
    monkeypatch.setattr(lc.sources.files, "checksum", lambda path: hashed.append(path.name) or checksum(path))
    lc.run(recipe(folder), tmp_path / "run")
    assert sorted(hashed) == ["a.jsonl", "b.jsonl", "c.jsonl.gz", "d.parquet"]
    assert [len(files) for files in manifest(tmp_path / "run")["inputs"].values()] == [1] * 4


def stopped_run(folder, out, results=8):
    LEFT[0] = results
    with pytest.raises(KeyboardInterrupt):
        lc.run(recipe(folder), out, engine=Stopped())
    assert list((out / "work" / "segment-0").glob("*.json"))


@pytest.mark.slow
def test_a_touched_file_is_read_on_and_another_one_is_not(folder, tmp_path, small, directory_digest):
    lc.run(recipe(folder), tmp_path / "run")
    for name in ("touched", "changed"):
        stopped_run(folder, tmp_path / name)
    os.utime(folder / "b.jsonl", (1, 1))
    lc.run(recipe(folder), tmp_path / "touched")
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "touched")
    content = (folder / "b.jsonl").read_bytes()
    (folder / "b.jsonl").write_bytes(content.replace(b" a ", b" b ", 1))
    with pytest.raises(RunError, match=r"b\.jsonl has changed since \S+changed (divided|read) it"):
        lc.run(recipe(folder), tmp_path / "changed")
    (folder / "b.jsonl").write_bytes(content)
    lc.run(recipe(folder), tmp_path / "changed")
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "changed")


@pytest.mark.slow
def test_a_run_that_was_begun_with_whole_files_is_not_divided(folder, tmp_path, small, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(divide, "LARGE", 10**9)
        LEFT[0] = 2
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe(folder), tmp_path / "run", engine=Stopped())
    with pytest.raises(RunError, match="has changed since the run began"):
        lc.run(recipe(folder), tmp_path / "run")


@pytest.mark.slow
def test_a_damaged_list_of_sections_is_made_again(folder, tmp_path, small, directory_digest):
    lc.run(recipe(folder), tmp_path / "run")
    stopped_run(folder, tmp_path / "stopped")
    for marker in (tmp_path / "stopped" / "work" / "divided").glob("*.json"):
        marker.write_text("{}")
    with pytest.warns(UserWarning, match="made again"):
        lc.run(recipe(folder), tmp_path / "stopped")
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "stopped")


@pytest.mark.slow
@pytest.mark.parametrize("harm", [lambda file: file.write_bytes(b"harm"), lambda file: file.unlink()])
def test_the_damaged_lines_of_a_section_are_decompressed_again(folder, tmp_path, small, harm, directory_digest):
    lc.run(recipe(folder), tmp_path / "run")
    LEFT[0] = 5  # the divisions and a section
    with pytest.raises(KeyboardInterrupt):
        lc.run(recipe(folder), tmp_path / "stopped", engine=Stopped())
    unpacked = list((tmp_path / "stopped" / "work" / "divided").glob("*/*.zst"))
    assert len(unpacked) > 3
    for file in unpacked:
        harm(file)
    with pytest.warns(UserWarning, match="its work is done again"):
        lc.run(recipe(folder), tmp_path / "stopped")
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "stopped")


@pytest.mark.slow
def test_the_decompressed_lines_are_removed_when_they_are_read(folder, tmp_path, small, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(job._Job, "_write_output", stop)
    with pytest.raises(KeyboardInterrupt):
        lc.run(recipe(folder), tmp_path / "run")
    assert list((tmp_path / "run" / "work" / "divided").iterdir())
    assert not list((tmp_path / "run" / "work" / "divided").glob("*/*"))


def test_of_many_files_the_compressed_ones_are_whole(folder, tmp_path, small, monkeypatch):
    chosen = recipe(folder)
    found = chosen.source.splits()["train"]
    for few, names in ((4, "abcd"), (3, "abd")):
        monkeypatch.setattr(divide, "FEW", few)
        tasks = divide.divide_tasks(tmp_path, chosen.source, found, [9_000] * 4)
        assert [task.part.name[0] for task in tasks] == list(names)


@pytest.mark.slow
def test_progress_shows_that_remote_files_are_not_divided(folder, tmp_path, small, web_server, capsys):
    url = web_server(folder)
    chosen = recipe(
        folder, "null", "skip", "source.data_dir=null", f"source.data_files=[{url}/b.jsonl,{url}/d.parquet]"
    )
    datasets.enable_progress_bars()
    try:
        lc.run(chosen, tmp_path / "run")
    finally:
        datasets.disable_progress_bars()
    assert re.search(r"^min_chars\S*.*: 2 of 2 remote files, not divided, ", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.slow
def test_sections_are_compared_with_those_of_the_part_of_their_file(folder, tmp_path, small, monkeypatch):
    near = RECIPE.replace("exact_documents: {{}}", "min_hash: {{bands: 4, rows: 2, unit: word, ngram: 1}}")
    file = tmp_path / "near.yaml"
    file.write_text(near.format(folder=folder, ids="null", policy="skip"), "utf-8")
    chosen = load_recipe(file, ["parts=2"])
    lc.run(chosen, tmp_path / "run")
    assert len(list((tmp_path / "run" / "ledger").iterdir())) > 8
    monkeypatch.setattr(divide, "LARGE", 10**9)
    lc.run(chosen, tmp_path / "whole")
    assert without_ledgers(tmp_path / "run") == without_ledgers(tmp_path / "whole")
    assert ledger(tmp_path / "run").equals(ledger(tmp_path / "whole"))


def test_an_unreadable_line_ends_a_run_with_its_number(folder, tmp_path, small):
    content = (folder / "b.jsonl").read_bytes().replace(b'"other"', b'"text"').splitlines()
    (folder / "b.jsonl").write_bytes(b"\n".join([*content[:187], b"{", *content[187:]]))
    for name in ("a.jsonl", "c.jsonl.gz", "d.parquet"):
        (folder / name).unlink()
    with pytest.raises(SourceError, match=r"b\.jsonl: line 188 is not JSON"):
        lc.run(recipe(folder, policy="error"), tmp_path / "run")


@pytest.mark.variants
@pytest.mark.parametrize("policy", ["error", "keep_first"])
def test_equal_ids_of_sections_are_found(folder, tmp_path, small, policy, monkeypatch):
    content = lines_of(2).replace(b'"2-190"', b'"2-3"')
    (folder / "b.jsonl").write_bytes(content)
    chosen = recipe(folder, "id", "skip", f"source.on_duplicate_ids={policy}")
    if policy == "error":
        with pytest.raises(RunError, match=r"'2-3', twice in \S+b\.jsonl"):
            lc.run(chosen, tmp_path / "run")
    else:
        lc.run(chosen, tmp_path / "run")
        monkeypatch.setattr(divide, "LARGE", 10**9)
        lc.run(chosen, tmp_path / "whole")
        order = [("id", "ascending"), ("stage", "ascending")]
        assert ledger(tmp_path / "run").sort_by(order).equals(ledger(tmp_path / "whole").sort_by(order))
        assert without_ledgers(tmp_path / "run") == without_ledgers(tmp_path / "whole")


def test_ids_of_a_single_file_are_compared_after_its_only_reading(folder, tmp_path, small):
    chosen = recipe(folder, "id")
    ((part, *_),) = (parts_of_runs.gather_small(chosen.source.splits()["train"], chosen),)
    tasks = divide.divide_tasks(tmp_path, chosen.source, [part], [part_bytes := part.local_bytes()])
    sections, markers, _ = divide.divided_parts([part], tasks, [divide.divide(task) for task in tasks])
    assert sum(map(Part.local_bytes, sections)) == part_bytes
    found = parts_of_runs.id_tasks(tmp_path, chosen.source, sections, "error", markers)
    assert len(found) > 2
    assert all(task.waits for task in found)


def test_more_data_has_larger_sections(folder, tmp_path, small, monkeypatch):
    monkeypatch.setattr(divide, "MOST", 4)
    chosen = recipe(folder)
    found = chosen.source.splits()["train"]
    tasks = divide.divide_tasks(tmp_path, chosen.source, found, [8_000, 1_999, 12_000, None])
    assert [(task.part.name, task.size) for task in tasks] == [("a.jsonl", 5_000), ("c.jsonl.gz", 5_000)]


@pytest.mark.slow
def test_no_process_needs_what_was_divided_when_the_run_is_done(folder, tmp_path, small):
    lc.run(recipe(folder), tmp_path / "run")
    shutil.rmtree(folder)
    assert not (tmp_path / "run" / "work").exists()
    assert lc.run(recipe(tmp_path / "input"), tmp_path / "run").funnel.documents
