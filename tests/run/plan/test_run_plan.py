"""What a plan says of a run: exact where everything was read, else intervals that hold the truth."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.sources import Part
from longcrawl.errors import RunError
from longcrawl.io.structured import seal
from longcrawl.run.manifest import RunCosts
from longcrawl.run.plan.estimates import Drawn, Thinning, draw_sample, estimate_parts, estimate_total
from longcrawl.sources.text import Text

DRAWS = 30
LEAST_INSIDE = 0.8
"""Of nominal 0.95: a binomial of 30 draws falls below it once in 300 times."""


class _Made(Text):
    """Parts that are in memory: ``made[part]`` is the length of each document."""

    made = ()

    def read(self, part, _bad_files):
        lengths = self.made[int(part.name)]
        for first in range(0, len(lengths), 64):
            texts = ["x" * each for each in lengths[first : first + 64]]
            yield pa.table({"id": [f"{part.name}-{first + i}" for i in range(len(texts))], "text": texts})


def _sampled(made, parts, documents, seed):
    source = _Made(data_dir=".")
    object.__setattr__(source, "made", made)
    return draw_sample(source, [Part(str(number)) for number in range(len(made))], parts, documents, seed)


def _lengths(chance, parts=6):
    return [chance.lognormal(6, 1.5, chance.integers(150, 250)).astype(int) + 1 for _ in range(parts)]


@pytest.mark.parametrize("parts", [6, 4])
def test_intervals_hold_the_truth_of_counts_and_of_sums(parts):
    made = _lengths(np.random.default_rng(0))
    everything = np.concatenate(made)
    limit = 2000
    inside, values, halves = np.zeros(3), [], []
    for seed in range(DRAWS):
        sample = _sampled(made, parts, 240, seed)
        lengths = [np.array(pa.compute.utf8_length(part.table["text"]), float) for part in sample.read]
        few = estimate_total([(each > limit) * 1.0 for each in lengths], sample.drawn, counts=True)
        much = estimate_total([each * (each > limit) for each in lengths], sample.drawn)
        all_of_them = estimate_parts(sample.drawn.documents.tolist(), sample.drawn)
        truths = ((everything > limit).sum(), everything[everything > limit].sum(), len(everything))
        told = (few, much, all_of_them)
        inside += [truth in each for truth, each in zip(truths, told, strict=True)]
        values.append([each.value for each in told])
        halves.append([(each.high - each.low) / 2 for each in told])
    assert (inside / DRAWS >= LEAST_INSIDE).all(), inside
    # And they are no wider than that takes: of few parts, Student's t of three degrees has 3.2 deviations.
    assert (np.mean(halves, 0) <= (2.7 if parts == len(made) else 3.8) * np.std(values, 0)).all()


def test_rare_removals_that_the_sample_has_not_are_allowed_for():
    made = [np.full(600, 1000)]
    gone = {f"0-{number}" for number in range(0, 600, 90)}
    truth = 1000.0 * (600 - len(gone))
    inside = 0
    for seed in range(20):
        sample = _sampled(made, 1, 60, seed)
        kept = np.array([name not in gone for name in sample.read[0].table["id"].to_pylist()])
        inside += truth in estimate_total([kept * sample.read[0].sizes], sample.drawn)
    assert inside >= 16


def test_documents_are_drawn_with_the_chances_that_are_given():
    made = _lengths(np.random.default_rng(1), parts=1)
    sums = []
    for seed in range(150):
        (part,) = _sampled(made, 1, 40, seed).read
        assert part.table.num_rows == 40
        sums.append((part.sizes / part.chances).sum())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - made[0].sum()) < 4 * error


def test_who_is_drawn_does_not_depend_on_how_tables_are_cut(monkeypatch):
    made = _lengths(np.random.default_rng(2), parts=2)
    whole = _sampled(made, 2, 50, 3).read[0].table

    def other(self, part, bad_files):
        tables = list(_Made.__dict__["read"](self, part, bad_files))
        yield pa.concat_tables(tables).combine_chunks()

    class Other(_Made):
        read = other

    source = Other(data_dir=".")
    object.__setattr__(source, "made", made)
    again = draw_sample(source, [Part("0"), Part("1")], 2, 50, 3).read[0].table
    assert again["id"].to_pylist() == whole["id"].to_pylist()


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_what_was_read_whole_is_exact(values):
    one = [np.ones(len(values))]
    drawn = Drawn(1, 1.0, np.ones(1), one, one, np.array([len(values)]), np.array([len(values)]))
    estimate = estimate_total([np.array(values, float)], drawn, counts=True)
    assert (estimate.low, estimate.value, estimate.high) == (pytest.approx(sum(values)),) * 3


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 10]), st.sampled_from([0.2, 0.5, 0.8]))
def test_more_duplicates_are_expected_of_more_documents(seed, cluster, share):
    """Clusters of one size, of which a share of all documents is drawn; the survey removes all but one of each."""
    chance = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(4000 // cluster), cluster)

    def removed(members):
        return 1 - len(np.unique(members)) / len(members)

    drawn = clusters[chance.random(len(clusters)) < share]
    half = drawn[chance.random(len(drawn)) < 0.5]
    kept = Thinning(len(drawn), removed(drawn), removed(half), share).kept()
    truth = (1 / cluster) / (1 - removed(drawn))
    slack = 0.04  # five standard errors of the smallest samples here
    assert kept.low - slack <= truth <= kept.high + slack


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


def test_more_of_small_parts_are_read_until_there_are_documents(recipe):
    assert lc.plan(recipe, parts=2, documents=100).sample == "120 documents of 3 of 4 parts"
    held_out = ["outputs.gpt-simple.heldout=30"]
    assert lc.plan(recipe, parts=2, overrides=held_out).sample == "160 documents of 4 of 4 parts"


@pytest.mark.slow
def test_costs_are_known_of_any_number_of_processes(recipe):
    made = lc.run(recipe, "out", num_proc=2)
    assert list(made.costs) == ["text", "min_chars", "exact_documents", "tokenize", "shuffle", "gpt-simple"]
    assert all(cost.seconds > 0 for cost in made.costs.values())
    assert {label for label, cost in made.costs.items() if cost.disk} == {"exact_documents", "tokenize", "gpt-simple"}
    assert lc.run(recipe, "out").costs == {}


def test_what_was_done_before_a_stop_takes_what_it_took_then(tmp_path):
    stopped, went_on = RunCosts(tmp_path), RunCosts(tmp_path)
    with stopped.measure("min_hash", "0") as cost:
        cost.disk = 100
        sum(range(300_000))
    with went_on.measure("min_hash", "0"):
        pass
    assert went_on.stages == stopped.stages
    assert went_on.stages["min_hash"].seconds > 0


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
    with pytest.raises(RunError, match="--parts 2 or more"):
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
    with pytest.raises(RunError, match="texts is a folder: name a file, such as texts/plan.json"):
        lc.Plan.from_dict(told).save("texts")
    asked = CliRunner().invoke(app, ["plan", recipe, "--save", "texts"])
    assert "texts is a folder: name a file" in str(asked.exception)
