"""Manifests: what is no manifest of a run, what a run took, and what is there of it."""

import json

import pytest

import longcrawl as lc
from longcrawl.errors import RunError
from longcrawl.run.manifest import NEEDED, RunCosts, emptied_funnel, holds_run, input_names, lost_ledger


def test_what_was_done_before_a_stop_takes_what_it_took_then(tmp_path):
    stopped, went_on = RunCosts(tmp_path), RunCosts(tmp_path)
    with stopped.measure("min_hash", "0") as cost:
        cost.disk = 100
        sum(range(300_000))
    with went_on.measure("min_hash", "0"):
        pass
    assert went_on.stages == stopped.stages
    assert went_on.stages["min_hash"].seconds > 0


def complete(form: object) -> dict:
    """Return a manifest that has every entry, of an output of this format."""
    blocks = {block: dict.fromkeys(entries, 0) for block, entries in NEEDED.items()}
    return {"longcrawl_run": 1, **blocks, "output": {"format": form}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"longcrawl_run": 1}, rf"manifest.json lacks {', '.join(NEEDED)}: run the recipe again"),
        ({"longcrawl_run": 2}, r"manifest.json has version 2, but this longcrawl reads 1: upgrade"),
        ({"rows": 3}, r"manifest.json is not the manifest of a run: run the recipe again, into another folder than"),
        ([1], r"manifest.json is not the manifest of a run"),
        (
            {"longcrawl_run": 1, "recipe": {"name": "a", "about": ""}, "versions": {}, "funnel": [], "output": {}},
            r"lacks recipe.source, recipe.stages, .*, versions.longcrawl, .*, funnel, output.format, analysis, files:",
        ),
        (complete("tape"), r"has the output 'tape', but this longcrawl knows composed, .*: upgrade"),
        (complete(["x"]), r"has the output \['x'\], but this longcrawl knows composed, .*: upgrade"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused_in_a_sentence(tmp_path, content, said):
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    for ask in (lc.card, lc.funnel, lc.write_report, lambda run: lc.push(run, "me/tiny", "private", dry_run=True)):
        with pytest.raises(RunError, match=said):
            ask(tmp_path)


def test_what_is_missing_of_a_run_is_named(tmp_path):
    assert not holds_run(tmp_path)
    (tmp_path / "recipe.yaml").touch()
    assert holds_run(tmp_path)
    assert emptied_funnel(tmp_path) is None
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger/00000.parquet").touch()
    files = {"rectangle/zarr.json": {}, "ledger/00000.parquet": {}, "edits/00000.parquet": {}}
    assert lost_ledger(tmp_path, {"files": files}) == "edits/00000.parquet"
    del files["edits/00000.parquet"]
    assert lost_ledger(tmp_path, {"files": files}) == ""


def test_files_are_named_for_each_part():
    read = [{"file": "raw/a.jsonl", "bytes": 7}, {"file": "raw/b.jsonl", "bytes": None}]
    assert input_names({"inputs": {"a": read, "b": []}}) == {"a": ["raw/a.jsonl", "raw/b.jsonl"], "b": []}
