"""A plan's figures for a run: exact if everything was read, else intervals that contain the truth."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import zstandard
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import RunError
from longcrawl.io.structured import seal
from longcrawl.run import divide
from longcrawl.run.plan import estimates, run_plan


def test_a_plan_of_all_documents_is_what_the_run_becomes(recipe):
    made = lc.plan(recipe, documents=160)
    assert lc.Plan.from_dict(json.loads(json.dumps(made.as_dict()))) == made
    summary = lc.run(recipe, "out", plan=made)
    checked = {each.figure: each for each in summary.checked}
    timed = {name for name in checked if "seconds" in name}
    assert {"text: seconds", "min_chars: seconds", "gpt-simple: seconds", "seconds"} <= timed
    assert all(checked[name].truth > 0 for name in timed)
    stored = {name for name in checked if "disk" in name or "bytes" in name}
    assert {"exact_documents: disk", "tokenize: disk", "gpt-simple: disk", "disk", "bytes written"} == stored
    for row in made.rows[:-1]:  # all was read, so nothing but the clock and what starts a run widens it
        assert row.seconds.low == pytest.approx(row.seconds.value / 1.5)
        assert row.seconds.high > row.seconds.value * 1.5
    for name in checked.keys() - timed:
        assert checked[name].inside or "disk" in name, checked[name]
        error = 0.25 if name in stored else 1e-9  # of files of some kilobytes
        assert checked[name].estimate.value == pytest.approx(checked[name].truth, rel=error), checked[name]
    manifest = json.loads(Path("out/manifest.json").read_text("utf-8"))
    assert [each["figure"] for each in manifest["plan"]] == [name for name in checked if name not in timed | stored] + [
        "bytes written"
    ]
    became = json.loads(Path("out/plan.json").read_text("utf-8"))["became"]
    assert became == [each.as_dict() for each in summary.checked]
    assert "plan.json" not in manifest["files"]
    assert {"text: documents", "exact_documents: characters", "tokens", "bytes written"} <= {
        each.figure for each in summary.checked
    }
    assert "the plan's intervals hold" in str(summary)


@pytest.mark.slow
def test_more_of_small_parts_are_read_until_there_are_documents(recipe):
    assert lc.plan(recipe, parts=2, documents=100).sample == "160 documents of 4 of 4 parts"
    held_out = ["outputs.gpt-simple.heldout=30"]
    assert lc.plan(recipe, parts=2, overrides=held_out).sample == "160 documents of 4 of 4 parts"


@pytest.mark.slow
def test_costs_are_known_of_any_number_of_processes(recipe):
    made = lc.run(recipe, "out", num_proc=2)
    assert list(made.costs) == ["text", "min_chars", "exact_documents", "tokenize", "shuffle", "gpt-simple"]
    assert all(cost.seconds > 0 for cost in made.costs.values())
    assert {label for label, cost in made.costs.items() if cost.disk} == {"exact_documents", "tokenize", "gpt-simple"}
    assert lc.run(recipe, "out").costs == {}


@pytest.mark.slow
def test_a_plan_of_some_parts_and_documents(recipe):
    made = lc.plan(recipe, parts=3, documents=60, seed=1)
    assert made.sample == "60 documents of 3 of 4 parts"
    assert made.rows[0].documents.low <= 160 <= made.rows[0].documents.high
    assert made.tokens.low < made.tokens.high
    assert lc.plan(recipe, parts=3, documents=60, seed=1).rows[2].documents == made.rows[2].documents
    assert "exact_documents" in made._repr_html_()


def test_the_command_line_plans_saves_and_compares(recipe):
    shown = CliRunner().invoke(
        app, ["plan", recipe, "--documents", "80", "--save", "plan.json"], catch_exceptions=False
    )
    assert "80 documents of 4 of 4 parts" in shown.output
    assert "time of a core" in shown.output
    ran = CliRunner().invoke(app, ["run", recipe, "--out", "out", "--plan", "plan.json"], catch_exceptions=False)
    assert "the plan's intervals hold" in ran.output


def test_a_sample_of_which_nothing_is_left_says_what_is_known(recipe):
    made = lc.plan(recipe, documents=40, overrides=["stages.min_chars.n=100000"])
    assert made.rows[-1].stage == "min_chars"
    assert made.written is None
    assert made.rows[-1].documents.value == 0 < made.rows[-1].documents.high
    assert "no document of the sample remains after 'min_chars'" in str(made)


@pytest.mark.parametrize("file", ["0.jsonl", "*.jsonl"])
def test_a_source_without_documents_is_one_sentence(recipe, file):
    for part in range(4):
        Path(f"texts/{part}.jsonl").write_text("")
    overrides = [f"source.data_files=texts/{file}", "source.data_dir=null"]
    with pytest.raises(RunError, match="source 'text' has no documents to plan for: check its settings"):
        lc.plan(recipe, overrides=overrides)
    with pytest.raises(RunError, match="source 'text' has no documents to plan for: check its settings"):
        lc.plan_cluster(recipe, cores=2, overrides=overrides)


@pytest.mark.slow
def test_a_plan_of_one_document_counts_in_the_singular(recipe):
    Path("texts/0.jsonl").write_text(json.dumps({"text": "tide " * 30}))
    overrides = ["source.data_files=texts/0.jsonl", "source.data_dir=null"]
    assert lc.plan(recipe, overrides=overrides).sample == "1 document of 1 of 1 part"
    shown = str(lc.plan_cluster(recipe, cores=3, overrides=overrides))
    assert "over 1 file on 3 cores with the engine shared, estimated from 1 document of 1 part;" in shown
    assert "2 of 3 cores have nothing to read: use 1 core\n" in shown


@pytest.mark.parametrize("tokens", [1.0, 300.0])
@pytest.mark.parametrize("times", [1, 10, 5000])
def test_what_one_document_takes_is_not_what_all_take(tokens, times):
    one = (tokens, 5e4)
    all_of_them = run_plan.Line.through(one, one, one).at(estimates.exact(times * tokens))
    assert 5e4 in all_of_them  # all of it may be fixed
    assert 5e4 * times in all_of_them  # or nothing
    more = run_plan.Line.through(one, one, (2 * tokens, 6e4)).at(estimates.exact((1 + times) * tokens))
    assert more.value == pytest.approx(5e4 + 1e4 * times)
    assert more.low > 0.9 * more.value


@pytest.mark.slow
def test_a_larger_sample_is_advised_only_if_it_can_narrow_an_interval(recipe):
    advice = "a larger sample narrows the wide intervals (core-hours"
    whole = lc.plan_cluster(recipe, cores=2)
    assert whole.core_hours.high > 4 * whole.core_hours.low  # by what starts a run
    assert advice not in str(whole)
    some = str(lc.plan_cluster(recipe, cores=2, parts=2, documents=20))
    assert advice in some
    assert "): more --parts and --documents\n" in some
    made = lc.plan(recipe, parts=2, documents=20)
    assert made.seconds.high > 4 * made.seconds.low
    (line,) = (line for line in str(made).splitlines() if line.startswith("a larger sample narrows"))
    assert "time" in line
    # There are four files, and figures of more differ by more than a larger sample of them can show.
    assert "more --documents, and a source of more than 4 files" in str(lc.plan_cluster(recipe, cores=2, files=90_000))


def test_a_changed_plan_and_one_without_a_seal_are_rejected(recipe, tmp_path):
    made = lc.plan(recipe, documents=40)
    made.save("plan.json")
    assert lc.Plan.load("plan.json") == made
    written = json.loads(Path("plan.json").read_text())
    del written["sha256"]
    Path("bare.json").write_text(json.dumps(written, indent=1))
    Path("plan.json").write_text(Path("plan.json").read_text().replace(made.digest, made.digest[::-1]))
    for name in ("plan.json", "bare.json"):
        with pytest.raises(RunError, match=rf"{name} has been changed: .*write it again with longcrawl plan RECIPE"):
            lc.Plan.load(name)


def test_bad_input_is_one_sentence(recipe, tmp_path):
    with pytest.raises(RunError, match="--parts of 2 or more"):
        lc.plan(recipe, parts=1)
    with pytest.raises(RunError, match="is not a plan"):
        lc.Plan.load("planned.yaml")
    Path("cut.json").write_text(seal({"longcrawl_plan": 1}))
    with pytest.raises(RunError, match="is not a complete plan"):
        lc.Plan.load("cut.json")
    with pytest.raises(RunError, match="plan again"):
        lc.run(recipe, "out", plan=lc.plan(recipe, documents=40, overrides=["stages.min_chars.n=10"]))
    told = lc.plan(recipe, documents=40).as_dict()
    figures = told["stages"][0]
    broken = ({"stages": []}, {"tokens": ["a", 1, 2]}, {"tokens": [1, 2, 1]}, {"stages": [figures | {"disk": None}]})
    for change in broken:
        Path("odd.json").write_text(seal(told | change))
        with pytest.raises(RunError, match=r"odd\.json is not a complete plan"):
            lc.Plan.load("odd.json")
    with pytest.raises(RunError, match="texts is a folder: choose a file, such as texts/plan.json"):
        lc.Plan.from_dict(told).save("texts")
    asked = CliRunner().invoke(app, ["plan", recipe, "--save", "texts"])
    assert "texts is a folder: choose a file" in str(asked.exception)


@pytest.mark.slow
def test_samples_grow_until_they_cost_a_tenth_of_the_run(recipe, monkeypatch):
    monkeypatch.setattr(run_plan, "FIRST_DOCUMENTS", 10)
    monkeypatch.setattr(run_plan, "DOCUMENTS", 40)
    monkeypatch.setattr(run_plan, "WORTH", 0.0)
    assert lc.plan(recipe).sample == "10 documents of 2 of 4 parts"
    monkeypatch.setattr(run_plan, "WORTH", 1e9)
    assert lc.plan(recipe).sample == "40 documents of 4 of 4 parts"
    monkeypatch.setattr(run_plan, "NARROW", 1e9)
    assert lc.plan(recipe).sample == "10 documents of 2 of 4 parts"


@pytest.mark.slow
def test_sections_of_a_large_file_are_sampled(recipe, tmp_path, monkeypatch):
    for name in ("LARGE", "SECTION"):
        monkeypatch.setattr(divide, name, 1 << 12)
    monkeypatch.setattr(estimates, "SECTION", 1 << 12)
    lines = [json.dumps({"id": f"more-{number}", "text": "ebb and flow " * 20}) for number in range(200)]
    (tmp_path / "texts" / "large.jsonl").write_text("\n".join(lines))
    made = lc.plan(recipe, parts=4, documents=40)
    assert int(made.sample.split()[-2]) > 10
    assert 360 in made.rows[0].documents
    whole = lc.plan(recipe, parts=40, documents=4000)
    assert whole.rows[0].documents.value == 360
    cluster = lc.plan_cluster(recipe, cores=1000, parts=40, documents=4000)
    assert (cluster.files, cluster.input_files, cluster.busy) == (5, 5, cluster.tasks)
    assert cluster.read.value == pytest.approx(sum(file.stat().st_size for file in Path("texts").iterdir()))
    source = lc.load_recipe(recipe).source
    parts = source.splits()["train"]
    tasks = divide.divide_tasks(tmp_path / "work", source, parts, [part.local_bytes() for part in parts])
    divided, _, _ = divide.divided_parts(parts, tasks, [divide.divide(task) for task in tasks])
    assert cluster.tasks == pytest.approx(len(divided), rel=0.1)
    many = lc.plan_cluster(recipe, files=50, cores=1000, parts=5, documents=40)
    assert (many.files, many.tasks) == (50, pytest.approx(10 * len(divided), rel=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gz", "zst"])
def test_large_compressed_files_are_read_to_their_first_bytes(recipe, tmp_path, monkeypatch, compress):
    monkeypatch.setattr(divide, "LARGE", 1 << 17)
    monkeypatch.setattr(estimates, "BEGINNING", 1 << 17)
    chance, ending = np.random.default_rng(0), "gz" if compress is gzip.compress else "zst"
    for file in range(3):
        texts = [" ".join(map(str, chance.integers(0, 1 << 30, 30))) for _ in range(1500)]
        lines = [json.dumps({"id": f"packed-{file}-{number}", "text": text}) for number, text in enumerate(texts)]
        (tmp_path / "texts" / f"packed-{file}.jsonl.{ending}").write_bytes(compress("\n".join(lines).encode()))
    made = lc.plan(recipe, parts=7, documents=40)
    read, parts = (int(number) for number in re.findall(r"([0-9]+) of ([0-9]+) parts", made.sample)[0])
    assert read == 7 < parts
    assert made.rows[0].documents.value == pytest.approx(3 * 1500 + 160, rel=0.2)


def test_lines_of_a_large_compressed_file_take_disk_until_they_are_read(recipe, tmp_path, monkeypatch):
    for name in ("LARGE", "SECTION"):
        monkeypatch.setattr(divide, name, 1 << 16)
    chance = np.random.default_rng(0)
    texts = [" ".join(map(str, chance.integers(0, 1 << 30, 30))) for _ in range(2_000)]
    lines = [json.dumps({"id": f"packed-{number}", "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "texts" / "packed.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    made = lc.plan(recipe, parts=5, documents=400)
    checked = {each.figure: each for each in lc.run(recipe, "run", plan=made).checked}
    assert checked["text: disk"].inside
    assert made.disk.value == pytest.approx(sum(row.disk.value for row in made.rows) + made.written.value)
