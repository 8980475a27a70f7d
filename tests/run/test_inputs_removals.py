"""Deduplication in parts: each part by itself, URLs across them; killed and resumed, the same."""

import json
import random
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
import pytest
import yaml

import longcrawl as lc
from longcrawl.core.funnel import Funnel
from longcrawl.errors import RecipeError, RunError
from longcrawl.run import inputs
from longcrawl.run.engines import Local
from longcrawl.run.segments import group_inputs

WORDS = [f"word{number}" for number in range(500)]
FILES, PARTS = 5, 2
STAGES = [
    "urls",
    {"min_hash": {"bands": 20, "rows": 4, "unit": "word", "keep": "first"}},
    {"exact_substring": {"unit": "character", "min_tokens": 60}},
    {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}},
    {"truncate": {"n": 64}},
]


def write_files(folder: Path) -> Path:
    """Write files of which each has a document of its own, one that all files have, and one URL that all have."""
    folder.mkdir()
    for number in range(FILES):
        chance = random.Random(number)
        everywhere = " ".join(random.Random(99).choices(WORDS, k=80))
        own = " ".join(chance.choices(WORDS, k=80))
        notice = " ".join(random.Random(98).choices(WORDS, k=20))
        texts = {"everywhere": everywhere, "own": own, "url": " ".join(chance.choices(WORDS, k=80))}
        if number in (0, 3):
            texts["notice"] = " ".join([*chance.choices(WORDS, k=80), notice, *chance.choices(WORDS, k=80)])
        with (folder / f"{number}.jsonl").open("w") as lines:
            for name, text in texts.items():
                url = "https://example.org/" + (name if name == "url" else f"{number}/{name}")
                lines.write(json.dumps({"id": f"{number}-{name}", "text": text, "url": url}) + "\n")
    return folder


def recipe(source: Path, files: Iterable[int] = range(FILES), parts: int = PARTS, stages: list | None = None) -> Path:
    spec = {
        "longcrawl": 1,
        "name": "parts",
        "source": {"builder": "text", "id_field": "id", "data_files": [str(source / f"{n}.jsonl") for n in files]},
        "stages": STAGES if stages is None else stages,
        "parts": parts,
        "outputs": {"rectangle": {}},
    }
    path = source.parent / f"parts-{parts}-{len(list(source.parent.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write_files(tmp_path_factory.mktemp("parts") / "files")


@pytest.fixture(scope="module")
def in_parts(source, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    lc.run(recipe(source), out)
    return out


@pytest.mark.parametrize("num_proc", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_documents_in_many_tasks_give_the_same_files(
    source, in_parts, tmp_path, small_limits, num_proc, directory_digest
):
    lc.run(recipe(source), tmp_path / "out", num_proc)
    assert directory_digest(tmp_path / "out") == directory_digest(in_parts)


@pytest.mark.variants
@pytest.mark.parametrize(
    "stage",
    [
        lc.dedup.ExactDocuments(),
        pytest.param(lc.dedup.Urls(), marks=pytest.mark.slow),
        lc.dedup.MinHash(bands=4, rows=2, unit="word", keep="first"),
        pytest.param(
            lc.dedup.MinHash(bands=4, rows=2, unit="word", keep="first", verify=0.9, linkage="star"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["exact", "urls", "linked", "star"],
)
@pytest.mark.parametrize(
    "limits", [("small_limits",), pytest.param((), marks=pytest.mark.slow)], ids=["exchanged", "one process"]
)
def test_the_first_of_equal_documents_is_the_first_in_reading_order(tmp_path, request, stage, limits):
    """Lines 2 and 10 of a file are not in the order of their ids as text."""
    same, url = " ".join(random.Random(5).choices(WORDS, k=60)), "http://example.org/same"
    (tmp_path / "in").mkdir()
    for name, places in (("a", ()), ("part-10", (2, 10)), ("part-2", (1,))):
        rows = [
            {"text": same, "url": url}
            if row in places
            else {"text": " ".join(random.Random(f"{name} {row}").choices(WORDS, k=60)), "url": f"{url}/{name}/{row}"}
            for row in range(12)
        ]
        (tmp_path / f"in/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    gone = [("part-10.jsonl:10", "part-10.jsonl:2"), ("part-2.jsonl:1", "part-10.jsonl:2")]
    crawl = lc.open(str(tmp_path / "in")) | stage
    assert list(zip(*(crawl.ledger[name].to_pylist() for name in ("id", "kept_id")), strict=True)) == gone
    spec = {
        "longcrawl": 1,
        "name": "first",
        "source": {"builder": "text", "data_dir": str(tmp_path / "in")},
        "stages": [{stage.name: stage.settings()}],
        "outputs": {"parquet": {}},
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(spec))
    for fixture in limits:
        request.getfixturevalue(fixture)
    lc.run(tmp_path / "r.yaml", tmp_path / "out")
    ledger = pq.read_table(tmp_path / "out/ledger").sort_by("id")
    assert list(zip(*(ledger[name].to_pylist() for name in ("id", "kept_id")), strict=True)) == gone


class Counted(Local):
    """One process, and how many tasks each function has had."""

    seen: ClassVar[list[tuple[str, int]]] = []

    def tasks(self, function, tasks):
        self.seen.append((getattr(function, "func", function).__name__, len(tasks)))
        return super().tasks(function, tasks)


@pytest.mark.slow
def test_what_one_process_has_decided_is_written_by_tasks(source, in_parts, tmp_path, monkeypatch, directory_digest):
    """One process wrote ledger, rows and marker of each of 90,000 inputs, one after the other."""
    monkeypatch.setattr(inputs, "WRITTEN", 2)
    lc.run(recipe(source), tmp_path / "out", engine=Counted())
    assert directory_digest(tmp_path / "out") == directory_digest(in_parts)
    # URLs and near-duplicates of the three inputs of the first part, URLs of the two of the second.
    assert [count for name, count in Counted.seen if name == "_write"] == [2, 2, 2]
    assert [count for name, count in Counted.seen if name == "keep_spans"] == [2]


@pytest.mark.slow
def test_a_search_of_spans_that_has_no_exchange_takes_all_documents(
    source, in_parts, tmp_path, monkeypatch, directory_digest
):
    monkeypatch.setattr(inputs, "HELD", 0)
    monkeypatch.setattr(inputs, "TASK", 1)
    monkeypatch.delattr(lc.dedup.ExactSubstring, "exchange")
    lc.run(recipe(source), tmp_path / "out")
    assert directory_digest(tmp_path / "out") == directory_digest(in_parts)


KILLED = """
import os, signal, sys
import longcrawl as lc
from longcrawl.run.engines import Local
from longcrawl.core.exchange import Exchange
from longcrawl.run import inputs

recipe, out, step = sys.argv[1:]
inputs.HELD, inputs.TASK, write = 0, 1, Exchange.write

def write_or_die(self, partition, tables):
    if self.folder.name == step and partition == self.partitions - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, partition, tables)

Exchange.write = write_or_die
lc.run(recipe, out)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["spans", *(pytest.param(name, marks=pytest.mark.slow) for name in ("anchors", "repeated", "windows", "linked"))],
)
def test_an_exchange_of_passages_that_is_killed_is_finished_by_others(
    source, in_parts, tmp_path, monkeypatch, step, directory_digest, python
):
    out = tmp_path / "out"
    assert python(KILLED, recipe(source), out, step).returncode == -signal.SIGKILL
    assert [folder.name for folder in out.glob("work/search-*")] == ["search-2-0"]
    assert len([*out.glob(f"work/search-*/*/{step}-rows/*.rows")]) == (1 if step == "spans" else 3)
    monkeypatch.setattr(inputs, "HELD", 0)
    monkeypatch.setattr(inputs, "TASK", 1)
    lc.run(recipe(source), out)
    assert directory_digest(out) == directory_digest(in_parts)


def left_at(run: Path, stage: str) -> set[str]:
    files = [file for file in (run / "ledger").glob("*.parquet") if pq.read_table(file).num_rows]
    return {
        row["id"]: row["kept_id"] for file in files for row in pq.read_table(file).to_pylist() if row["stage"] == stage
    }


def test_each_part_keeps_one_of_what_is_everywhere(in_parts):
    gone = left_at(in_parts, "min_hash")
    assert gone == {"2-everywhere": "0-everywhere", "4-everywhere": "0-everywhere", "3-everywhere": "1-everywhere"}


@pytest.mark.slow
def test_near_duplicates_are_those_of_the_parts_alone(source, in_parts, tmp_path):
    alone = {}
    for part, files in enumerate(group_inputs(FILES, PARTS)):
        lc.run(recipe(source, files, parts=1), tmp_path / str(part))
        alone |= left_at(tmp_path / str(part), "min_hash")
    assert left_at(in_parts, "min_hash") == alone


@pytest.mark.slow
def test_substrings_are_those_of_one_part(source, in_parts, tmp_path):
    """The notice is in files 0 and 3, which are in different parts; in one part it repeats."""
    policy = [{"exact_substring": {"unit": "character", "min_tokens": 60, "policy": "drop-any"}}, *STAGES[-2:]]
    lc.run(recipe(source, parts=1, stages=policy), tmp_path / "one")
    lc.run(recipe(source, parts=2, stages=policy), tmp_path / "two")
    assert {"0-notice", "3-notice"} <= set(left_at(tmp_path / "one", "exact_substring"))
    assert not {"0-notice", "3-notice"} & set(left_at(tmp_path / "two", "exact_substring"))


def test_urls_kept_in_earlier_parts_leave_from_later_ones(in_parts):
    assert left_at(in_parts, "urls") == {f"{number}-url": "0-url" for number in (1, 2, 3, 4)}


@pytest.mark.variants
@pytest.mark.parametrize("keep", ["first", "random"])
def test_the_earliest_part_keeps_a_url_whatever_the_order_of_ids(tmp_path, keep):
    folder = tmp_path / "files"
    folder.mkdir()
    for number, name in enumerate("zya"):
        document = {"id": name, "text": f"text {name} " * 40, "url": "https://example.org"}
        (folder / f"{number}.jsonl").write_text(json.dumps(document) + "\n")
    stages = [{"urls": {"keep": keep}}, *STAGES[-2:]]
    lc.run(recipe(folder, range(3), parts=3, stages=stages), tmp_path / "out")
    assert left_at(tmp_path / "out", "urls") == {"y": "z", "a": "z"}


NEAR = {"min_hash": {"bands": 20, "rows": 5, "ngram": 5, "unit": "word", "keep": "first"}}


def write_revisits(folder: Path) -> list[Path]:
    """Write files whose documents share URLs and texts in every way, and some of which each later stage removes."""
    chance, files = random.Random(5), []
    texts = [" ".join(chance.choices(WORDS, k=60)) for _ in range(12)]
    folder.mkdir()
    for number in range(5):
        rows = []
        for place in range(12):
            text = chance.choice(["", "", " and more"]).join([chance.choice(texts), ""])
            text = chance.choice([text, text, "too short", f"{text} {chance.choice(texts)}"])
            url = f"https://site.example/{chance.randrange(30)}"
            rows.append({"id": f"{number}-{place:02d}", "url": url, "text": text})
        files.append(folder / f"{number}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


def run_stages(files: list[Path], out: Path, stages: list, parts: int = 1, **options) -> set[str]:
    """Run stages in parts; return the ids of the documents that are kept."""
    source = {"builder": "text", "id_field": "id", "data_files": [str(file) for file in files]}
    spec = {"longcrawl": 1, "name": "r", "source": source, "stages": stages, "parts": parts, "outputs": {"parquet": {}}}
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(spec))
    lc.run(path, out, **options)
    return {name for file in (out / "parquet").glob("*.parquet") for name in pq.read_table(file)["id"].to_pylist()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "stages",
    [
        ["urls", {"min_words": {"n": 5}}],
        ["urls", NEAR],
        ["urls", NEAR, {"exact_substring": {"unit": "character", "min_tokens": 60, "policy": "drop-any"}}],
        ["urls", "exact_documents", {"min_words": {"n": 5}}, NEAR, {"min_words": {"n": 61}}],
        ["urls", {"urls": {"query": "all"}}, NEAR],
    ],
    ids=lambda stages: "-".join(next(iter(each)) if isinstance(each, dict) else each for each in stages),
)
@pytest.mark.usefixtures("small_limits")
def test_parts_are_runs_one_after_the_other(tmp_path, stages):
    files = write_revisits(tmp_path / "files")
    named = [(each, {}) if isinstance(each, str) else next(iter(each.items())) for each in stages]
    kept, before = set(), []
    for part, members in enumerate(group_inputs(len(files), 3)):
        labels = iter(["urls", "urls_2"])
        chosen = []
        for name, settings in named:
            label = next(labels) if name == "urls" else name
            indexed = {"index": "save", "against": [str(run / "index" / label) for run in before]}
            chosen.append({name: settings | (indexed if name in ("urls", "exact_documents") else {})})
        kept |= run_stages([files[number] for number in members], tmp_path / f"part-{part}", chosen)
        before.append(tmp_path / f"part-{part}")
    assert run_stages(files, tmp_path / "whole", stages, 3) == kept
    assert len(run_stages(files, tmp_path / "one", stages)) < len(kept)


@pytest.mark.slow
def test_the_result_does_not_depend_on_processes(source, in_parts, tmp_path):
    out = tmp_path / "out"
    lc.run(recipe(source), out, num_proc=2)
    assert (out / "manifest.json").read_bytes() == (in_parts / "manifest.json").read_bytes()


def test_characters_are_counted_after_every_stage_that_has_texts(source, in_parts):
    funnel = lc.funnel(in_parts)
    texts = [json.loads(line)["text"] for file in source.glob("*.jsonl") for line in file.open()]
    assert funnel.characters == sum(map(len, texts))
    by_stage = {row.stage: row.characters for row in funnel}
    gone = left_at(in_parts, "urls") | left_at(in_parts, "min_hash")
    known = {one["id"]: one["text"] for file in source.glob("*.jsonl") for one in map(json.loads, file.open())}
    assert by_stage["min_hash"] == sum(len(text) for name, text in known.items() if name not in gone)
    assert by_stage["exact_substring"] <= by_stage["min_hash"] < by_stage["urls"] < funnel.characters
    assert by_stage["tokenize"] is None
    assert Funnel.from_dict(json.loads(json.dumps(funnel.as_dict()))) == funnel


def test_parts_can_be_set_from_outside_and_are_in_the_recipe(source):
    made = lc.load_recipe(recipe(source), ["parts=3"])
    assert made.parts == 3
    assert lc.load_recipe(recipe(source)).digest != made.digest


@pytest.mark.parametrize("parts", [0, True, "two"])
def test_a_wrong_number_of_parts_is_one_sentence(source, parts):
    with pytest.raises(RecipeError, match=f"recipe 'parts': parts takes a whole number of 1 or more, got {parts!r}"):
        lc.load_recipe(recipe(source), [f"parts={str(parts).lower() if parts is True else parts}"])


def test_a_run_in_other_parts_is_another_run(source, in_parts):
    with pytest.raises(RunError, match="holds the run of another recipe"):
        lc.run(recipe(source, parts=1), in_parts)
