"""Validation of a feed before training: problems, warnings, and configurations of gpt-simple."""

import pickle
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from longcrawl.cli.commands import app
from longcrawl.errors import LoaderError
from longcrawl.loading import Packed, Phase, read_curriculum, validate
from longcrawl.loading.validation import configured_length

WEB_CODE = {"web": 0.6, "code": 0.4}


def test_a_report_can_be_read(buckets):
    report = validate(buckets, [{"duration_tokens": 600, "mix": {"web": 3, "code": 1}}], max_length=64)
    assert report.ok
    assert report.problems == ()
    assert report.warnings == ()
    assert report.notes == ("no phase draws from 'math'",)
    text = str(report)
    assert re.search(r"bucket   web: \d+ samples, [\d,]+ tokens; asked for 450, delivers \d+", text)
    assert re.search(r"phase 1  samples 0 to \d+, 6\d\d tokens: web \d\d.\d\d% \(asked 75.00%\), code", text)
    assert re.search(r"total    \d+ samples, 6\d\d tokens, [\d.]+% padding", text)


def test_a_packing_that_leaves_tokens_out_is_noted(buckets):
    class Heads:
        def __init__(self, lengths):
            self.documents = np.flatnonzero(lengths)
            self.starts = np.zeros(len(self.documents), np.int64)
            self.sizes, self.bounds = self.starts + 1, np.arange(len(self.documents) + 1)

    report = validate(buckets, split="val", max_length=4, packing=lambda lengths, _: Heads(lengths))
    assert report.notes == ("the packing has 3 of the 44 tokens of bucket '' in its samples",)


def test_what_a_bucket_lacks_is_a_problem_or_a_warning(buckets):
    phases = [Phase(1000, WEB_CODE), Phase(3000, {"math": 1, "web": 1})]
    report = validate(buckets, phases, max_length=64)
    assert not report.ok
    assert re.fullmatch(
        r"bucket 'math' runs dry at sample \d+, in phase 2 of 2: it has \d+ tokens, and the curriculum asks for 1,500; "
        r"lower its weight or the budgets, repeat it with epochs=\{'math': 2\}, or say on_exhausted='renormalize' to "
        r"continue without it, or 'halt' to stop there",
        report.problems[0],
    )
    assert "ERROR    bucket 'math'" in str(report)
    assert report.plan.halted
    allowed = validate(buckets, phases, max_length=64, on_exhausted="renormalize")
    assert allowed.ok
    assert "from there on the other weights are renormalised" in allowed.warnings[0]
    assert not allowed.plan.halted
    assert validate(buckets, phases, max_length=64, epochs={"math": 3}).ok
    absurd = validate(buckets, [Phase(10**13, {"math": 1})], max_length=64).problems[0]
    assert re.search(r", which would take [\d,]{10,} epochs or more: lower its weight or the budgets$", absurd)


def test_after_a_phase_that_runs_dry_the_next_one_has_its_own_budget(buckets):
    phases = [Phase(10**6, {"math": 1}), Phase(500, {"web": 1}), Phase(500, {"math": 1}), Phase(500, {"web": 1})]
    report = validate(buckets, phases, max_length=64, on_exhausted="renormalize")
    dry, later = (each.sample for each in report.plan.drained if each.bucket is None)
    assert report.warnings[0].endswith(
        f"; at sample {dry} nothing of the mix of phase 1 is left, and phase 2 begins; at sample {later} nothing of "
        "the mix of phase 3 is left, and phase 4 begins"
    )
    assert [500 <= sum(each.tokens.values()) < 564 for each in report.plan.phases] == [False, True, False, True]
    assert "phase 3  no samples: math 0.00%" in str(report)
    assert not report.plan.halted
    halted = validate(buckets, phases, max_length=64, on_exhausted="halt")
    assert halted.warnings[0].endswith("; the feed halts there, and phases 2 to 4 are not trained")
    with pytest.warns(UserWarning, match="phase 2 begins"):
        feed = Packed(buckets, phases, max_length=64, batch_size=1, on_exhausted="renormalize")
    assert (len(list(feed)), feed.status.state) == (len(report.plan), "finished")


def test_budgets_are_compared_with_the_training(buckets):
    phases = [Phase(1000, WEB_CODE)]
    assert validate(buckets, phases, max_length=64, training_tokens=1040).ok
    wrong = validate(buckets, phases, max_length=64, training_tokens=1100)
    said = "the phases have budgets of 1,000 tokens and the training takes 1,100: change one of them, or set "
    assert wrong.problems == (said + "on_budget_mismatch='warn'",)
    warned = validate(buckets, phases, max_length=64, training_tokens=1100, on_budget_mismatch="warn")
    assert warned.ok
    assert "training takes 1,100" in warned.warnings[0]


GPT_SIMPLE = """
data:
  path: ./data/tokenized
  format: pretokenized
  allow_bucket_exhaustion: true
  curriculum:
    - duration_tokens: 1_000
      mix: {web: 0.6, code: 0.4}
    - duration_tokens: 3_000
      mix: {math: 1, web: 1}
"""


def test_the_command_line_prints_the_report_and_fails_with_its_problems(buckets, tmp_path):
    runner, file = CliRunner(), tmp_path / "phases.yaml"
    file.write_text("- {duration_tokens: 1000, mix: {web: 1}}")
    told = runner.invoke(app, ["validate", str(buckets), "--curriculum", str(file), "--max-length", "64"])
    assert (told.exit_code, told.stdout) == (0, f"{validate(buckets, [Phase(1000, {'web': 1})], max_length=64)}\n")
    assert runner.invoke(app, ["validate", str(buckets), "--split", "val"]).exit_code == 0
    file.write_text(GPT_SIMPLE.replace("true", "false"))
    command = ["validate", str(buckets), "--curriculum", str(file), "--max_length", "64"]
    told = runner.invoke(app, command)
    assert told.exit_code == 1
    assert re.search(r"^ERROR    bucket 'math' runs dry at sample \d+, in phase 2 of 2", told.stdout, re.MULTILINE)
    told = runner.invoke(app, [*command, "--on-exhausted", "renormalize", "--training-tokens", "9000"])
    assert told.exit_code == 1
    assert "WARNING  bucket 'math'" in told.stdout
    assert "ERROR    the phases have budgets of 4,000 tokens and the training takes 9,000" in told.stdout
    assert runner.invoke(app, [*command, "--epochs", "3"]).exit_code == 0
    file.write_text(GPT_SIMPLE)
    told = runner.invoke(app, command)
    assert told.exit_code == 0
    assert "WARNING  bucket 'math'" in told.stdout


CONFIGURED = (
    "data: {max_length: 128, overlap_size: 64, packing: PACKING, curriculum: [{duration_tokens: 1000, mix: {web: 1}}]}"
)


@pytest.mark.parametrize("packing", ["true", "false"])
def test_a_feed_and_its_validation_read_a_configuration_alike(buckets, tmp_path, packing):
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURED.replace("PACKING", packing))
    fields = read_curriculum(file)
    feed = Packed(buckets, **fields)
    strategy = "length-binned" if packing == "true" else "separate"
    assert (feed.max_length, feed.packing, configured_length(file)) == (128, strategy, 128)
    assert feed[0]["input_ids"].shape == (1, 128)
    by_hand = Packed(buckets, [Phase(1000, {"web": 1})], max_length=128, packing=strategy)
    assert feed.state_dict() == by_hand.state_dict()
    assert str(validate(buckets, **fields)) == str(by_hand.report)
    told = CliRunner().invoke(app, ["validate", str(buckets), "--curriculum", str(file)])
    assert told.stdout.strip() == str(by_hand.report)
    # What is given beside it wins, also where it is the default of a feed without configuration.
    for wins in ({"max_length": 2048}, {"packing": "in-order"}, {"max_length": 64, "packing": "length-binned"}):
        other = Packed(buckets, **wins, **fields)
        assert {name: getattr(other, name) for name in wins} == wins
    told = CliRunner().invoke(app, ["validate", str(buckets), "--curriculum", str(file), "--max-length", "64"])
    assert told.stdout.strip() == str(validate(buckets, max_length=64, **fields))
    again = pickle.loads(pickle.dumps(fields))["curriculum"]
    assert (again.max_length, again.packed) == (128, packing == "true")


def test_without_a_curriculum_all_buckets_are_drawn_alike(buckets, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("data: {max_length: 64, overlap_size: 0}")
    by_hand = Packed(buckets, [Phase(1, {"web": 1, "code": 1, "math": 1})], max_length=64)
    sizes = {name: len(bucket) for name, bucket in by_hand.buckets.items()}
    feed = Packed(buckets, **read_curriculum(file))
    assert (feed.mix_by, sorted(feed.buckets)) == ("samples", ["code", "math", "web"])
    counts = dict(zip(feed.plan.names, np.bincount(feed.plan.picks).tolist(), strict=True))
    # It ends where the first bucket has no sample left.
    assert counts["math"] == sizes["math"] == min(sizes.values())
    assert max(counts.values()) < 3 * sizes["math"]
    assert sum(1 for _ in feed) == len(feed) == sum(counts.values())
    assert feed.status.state == "finished"
    told = CliRunner().invoke(app, ["validate", str(buckets), "--curriculum", str(file)])
    assert (told.exit_code, told.stdout.strip()) == (0, str(feed.report))
    # Or else with all of them, or with the samples that training takes.
    file.write_text("data: {max_length: 64, overlap_size: 0, allow_bucket_exhaustion: true}")
    with pytest.warns(UserWarning, match="'math' runs dry at sample"):
        assert len(Packed(buckets, **read_curriculum(file))) == sum(sizes.values())
    file.write_text(
        "{data: {max_length: 64, overlap_size: 0, curriculum: null}, "
        "training: {max_steps: 3, per_device_batch_size: 2, gradient_accumulation_steps: 1}}"
    )
    for ranks in (1, 2):
        feed = Packed(buckets, world_size=ranks, **read_curriculum(file))
        assert [each.duration_tokens for each in feed.curriculum] == [3 * 2 * 64 * ranks]
        assert 6 * ranks <= len(feed.plan) <= 9 * ranks
    assert len(Packed(buckets / "train", max_length=64, split="web", **read_curriculum(file))) > 0


def test_an_overlap_that_gpt_simple_takes_by_default_and_rejects_is_warned_of(buckets, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("data: {max_length: 64}")
    with pytest.warns(
        UserWarning, match="its default of 256 as more than half of max_length 64: write overlap_size: 0"
    ):
        assert Packed(buckets, **read_curriculum(file)).max_length == 64


def test_a_curriculum_is_read_from_a_file(buckets, tmp_path):
    file = tmp_path / "phases.yaml"
    file.write_text(GPT_SIMPLE.replace("pretokenized", "pretokenized\n  allow_budget_mismatch: true"))
    fields = read_curriculum(file)
    assert fields == {
        "curriculum": (Phase(1000, {"web": 0.6, "code": 0.4}), Phase(3000, {"math": 1, "web": 1})),
        "on_exhausted": "renormalize",
        "on_budget_mismatch": "warn",
    }
    with pytest.warns(UserWarning, match="runs dry"):
        assert len(Packed(buckets, max_length=64, **fields))
    for content, sentence in (
        ("data: {}", "has no list of phases: write '- {duration_tokens"),
        ("[1, 2]", "has no list of phases"),
        ("a: [", "cannot be read as YAML"),
        ("- {duration: 1, mix: {web: 1}}", r"phases\.yaml: phase 1 has no field 'duration'"),
        ("data: {format: jsonl, curriculum: [{}]}", "has format 'jsonl', but its feeds read token shards"),
        ("data: {format: jsonl, max_length: 512}", r"tokenize first, or read the texts with lc\.loading\.Jsonl"),
        ("data: {curriculum: [], max_length: 512}", "has no list of phases"),
        ("data: {max_length: 512, overlap_size: 257}", "overlap_size 257, more than half of max_length 512: write 256"),
        ("data: {overlap_size: 1025}", "overlap_size 1,025, more than half of max_length 2,048"),
        ("data: {max_length: 1}", "has max_length 1: write a whole number of tokens, such as 2048"),
        ("data: {max_length: '512'}", "has max_length '512': write a whole number"),
        ("data: {max_length: 512, overlap_size: -1}", "has overlap_size -1: write a whole number of tokens, 0 or more"),
        ("data: {packing: separate}", "has packing 'separate': write true or false"),
        ("data: {max_length: 512, allow_bucket_exhaustion: 'true'}", "has allow_bucket_exhaustion 'true': write true"),
        ("data: {max_length: 512, num_workers: true}", "has num_workers True: write a whole number of 0 or more"),
        ("data: {max_len: 512}", "has no setting 'max_len' of data in GPT-Simple; .* Did you mean 'max_length'"),
        ("{data: {max_length: 512}, training: {max_steps: 0}}", "has max_steps 0: write a whole number of 1 or more"),
    ):
        file.write_text(content)
        with pytest.raises(LoaderError, match=sentence):
            read_curriculum(file)
    with pytest.raises(LoaderError, match=r"no file .*nowhere\.yaml: check the path of the curriculum"):
        read_curriculum(tmp_path / "nowhere.yaml")
