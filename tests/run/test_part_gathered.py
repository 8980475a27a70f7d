"""Many small files are a few parts of a run, and nothing but its speed shows it."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import longcrawl as lc
from longcrawl.core.sources import BadFiles, Part
from longcrawl.errors import RunError, SourceError
from longcrawl.run import part as gathered_parts
from longcrawl.run.part import SMALL, gather_small
from longcrawl.run.recipe import Recipe, load_recipe

RECIPE = """
longcrawl: 1
name: small
about: Small files.
source: {{builder: text, data_dir: {folder}, id_field: {ids}, on_bad_files: {policy}}}
stages:
  - min_chars: {{n: 40}}
  - exact_documents: {{}}
outputs:
  parquet: {{}}
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder of 40 files of three documents, one of them short, one of them as in another file."""
    found = tmp_path / "input"
    found.mkdir()
    for number in range(40):
        texts = [f"document {number} {'word ' * 20}", "short", f"document {number % 7} {'other ' * 20}"]
        lines = [json.dumps({"id": f"{number}-{row}", "text": text}) for row, text in enumerate(texts)]
        content = "\n".join(lines).encode()
        if number % 3:
            (found / f"{number:03}.jsonl").write_bytes(content)
        else:
            (found / f"{number:03}.jsonl.gz").write_bytes(gzip.compress(content, mtime=0))
    return found


@pytest.fixture
def alone(monkeypatch):
    """Let each file be a part, as in versions that did not gather any."""
    return lambda: monkeypatch.setattr(gathered_parts, "ALONE", 10**9)


def recipe(folder, ids="id", policy="error") -> Recipe:
    file = folder.parent / "recipe.yaml"
    file.write_text(RECIPE.format(folder=folder, ids=ids, policy=policy), "utf-8")
    return load_recipe(file)


def manifest(run):
    return json.loads((run / "manifest.json").read_bytes())


def ledger_files(run):
    return sorted((run / "ledger").iterdir())


def ledger(run):
    return pa.concat_tables(pq.read_table(file) for file in ledger_files(run))


def test_output_and_manifest_are_those_of_files_that_are_parts_by_themselves(folder, alone, tmp_path):
    chosen = recipe(folder)
    lc.run(chosen, tmp_path / "gathered", num_proc=2)
    alone()
    lc.run(chosen, tmp_path / "alone")
    one, other = manifest(tmp_path / "gathered"), manifest(tmp_path / "alone")
    assert len(list((tmp_path / "gathered" / "ledger").iterdir())) < len(
        list((tmp_path / "alone" / "ledger").iterdir())
    )
    assert ledger(tmp_path / "gathered").equals(ledger(tmp_path / "alone"))
    assert len(one["inputs"]) == 40
    for each in (one, other):
        own = {name: entry for name, entry in each["files"].items() if name.startswith(("parquet/", "recipe"))}
        each |= {"files": own, "sha256": ""}
    assert one["files"]
    assert one == other


@pytest.mark.slow
def test_a_run_goes_on_with_the_parts_that_it_began_with(folder, alone, tmp_path, monkeypatch):
    chosen = recipe(folder)
    lc.run(chosen, tmp_path / "whole")
    damaged, content = folder / "063.jsonl.gz", (folder / "063.jsonl.gz").read_bytes()
    damaged.write_bytes(content[:-9])
    alone()
    with pytest.raises(SourceError, match=r"063\.jsonl\.gz"):
        lc.run(chosen, tmp_path / "run")
    monkeypatch.undo()
    assert len(list((tmp_path / "run" / "work" / "segment-0").glob("*.json"))) > 32
    damaged.write_bytes(content)
    lc.run(chosen, tmp_path / "run")
    assert len(list((tmp_path / "run" / "ledger").glob("00-0*"))) == 40
    assert ledger(tmp_path / "run").equals(ledger(tmp_path / "whole"))
    assert manifest(tmp_path / "run")["output"] == manifest(tmp_path / "whole")["output"]


@pytest.mark.slow
def test_a_damaged_file_is_named_and_costs_no_other(folder, tmp_path):
    (folder / "033.jsonl.gz").write_bytes(b"no gzip")
    (folder / "034.pdf").write_bytes(b"%PDF")
    with pytest.warns(UserWarning, match=r"1 file of data_dir is not read, by ending: \.pdf 1"):
        lc.run(recipe(folder, policy="skip"), tmp_path / "run")
    found = manifest(tmp_path / "run")
    assert [bad["part"] for bad in found["bad_files"]] == ["033.jsonl.gz"]
    assert found["inputs"]["033.jsonl.gz"][0]["bytes"] == 7
    assert found["funnel"]["documents"] == 39 * 3


def test_ids_that_occur_twice_are_named_by_their_files(folder, tmp_path):
    (folder / "030.jsonl.gz").write_bytes((folder / "031.jsonl").read_bytes())
    (folder / "030.jsonl.gz").rename(folder / "030.jsonl")
    with pytest.raises(RunError, match=r"'31-0', in \S+/030\.jsonl and in \S+/031\.jsonl"):
        lc.run(recipe(folder), tmp_path / "run")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([10] * 32, [1] * 32),
        ([10] * 33, [2] * 16 + [1]),
        ([10] * 64, [2] * 32),
        ([SMALL // 2 + 1] * 40, [1] * 40),
        ([SMALL // 2] * 40, [2] * 20),
        ([10, SMALL + 1] * 20, [1] * 40),
        ([10] * 330, [11] * 30),
    ],
)
def test_which_parts_are_one(sizes, expected, folder, tmp_path):
    parts = []
    for number, size in enumerate(sizes):
        file = tmp_path / f"{number:04}"
        with file.open("wb") as written:
            written.truncate(size)
        parts.append(Part(file.name, (str(file),)))
    found = gather_small(parts, recipe(folder))
    assert [len(part.each()) for part in found] == expected
    assert [piece for part in found for piece in part.each()] == parts
    assert [file for part in found for file in part.files] == [file for part in parts for file in part.files]


def test_files_elsewhere_and_parts_that_decide_what_is_compared_stay_alone(folder):
    remote = [Part(str(number), (f"https://localhost/{number}",)) for number in range(50)]
    assert gather_small(remote, recipe(folder)) == remote
    local = recipe(folder).source.splits()["train"]
    assert gather_small(local, load_recipe(folder.parent / "recipe.yaml", ["parts=2"])) == local


class _Mixed:
    """A source whose files have texts of two types."""

    def read(self, part, bad_files):  # noqa: ARG002  # as sources have it
        kind = pa.string() if part.name in "ad" else pa.large_string()
        yield pa.table({"text": pa.array([part.name], kind)})


def test_tables_of_other_types_are_not_joined():
    pieces = tuple(Part(name) for name in "abcd")
    tables = list(gathered_parts.read_gathered(_Mixed(), Part("a", (), pieces), BadFiles()))
    assert [table["text"].to_pylist() for table in tables] == [["a"], ["b", "c"], ["d"]]
