"""Composed datasets as the end of runs: the same bytes however they are run, and what is told of them."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset, load_dataset

import longcrawl as lc
from longcrawl.errors import FormatError, RecipeError
from longcrawl.formats import open_composed
from longcrawl.formats.buckets.write import composition_of

DOCUMENTS = 100
STOP = """
import os
from pathlib import Path
replace = Path.replace
def stop(self, target):
    if {place!r} in str(target):
        os._exit(9)
    return replace(self, target)
Path.replace = stop
"""


def recipe_of(path: Path, source: Path, tokenizer: str, **fields) -> Path:
    told = {
        "longcrawl": 1,
        "name": "samples",
        "about": "Made in a test.",
        "source": {"builder": "text", "data_dir": str(source), "id_field": "id"},
        "stages": [{"tokenize": {"tokenizer": tokenizer}}, {"shuffle": {"seed": 1}}],
        "outputs": {"composed": {"capacities": [64, 128], "heldout": 0.1, **fields}},
    }
    path.write_text(yaml.safe_dump(told, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, source, tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("run")
    lc.run(recipe_of(folder / "r.yaml", source, tokenizer), folder / "out")
    return folder / "out"


def texts_of(source: Path) -> dict[str, str]:
    lines = [line for file in sorted(source.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return {each["id"]: each["text"] for each in map(json.loads, lines)}


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers(run_folder, tmp_path, source, tokenizer, directory_digest):
    lc.run(recipe_of(tmp_path / "r.yaml", source, tokenizer), tmp_path / "out", num_proc=2)
    assert directory_digest(tmp_path / "out") == directory_digest(run_folder)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["composed/train/128/zarr.json", "pieces/train/128/00000.parquet"])
def test_a_killed_run_goes_on_to_the_same_bytes(
    place, run_folder, tmp_path, source, tokenizer, python, directory_digest
):
    made, out = recipe_of(tmp_path / "r.yaml", source, tokenizer), tmp_path / "out"
    program = STOP.format(place=place) + f"import longcrawl as lc\nlc.run({str(made)!r}, {str(out)!r})\n"
    killed = python(program)
    assert killed.returncode == 9, killed.stderr
    assert not (out / "manifest.json").exists()
    assert list(out.glob("*.partial-*")) or list(out.rglob("*.partial-*"))
    lc.run(made, out)
    assert directory_digest(out) == directory_digest(run_folder)


@pytest.mark.slow
def test_another_strategy_takes_what_is_spilled(run_folder, tmp_path, source, tokenizer, monkeypatch, directory_digest):
    """Settings that only the second pass reads may change while a run is stopped."""
    out = tmp_path / "out"
    with monkeypatch.context() as broken:
        broken.setattr(lc.formats.ComposedOutput, "chosen", lambda *_: 1 / 0 if (out / "work/spill").exists() else None)
        with pytest.raises(ZeroDivisionError):
            lc.run(recipe_of(tmp_path / "r.yaml", source, tokenizer, seed=5), out)
    lc.run(recipe_of(tmp_path / "r.yaml", source, tokenizer), out)
    assert directory_digest(out) == directory_digest(run_folder)


@pytest.mark.slow
def test_samples_hold_the_tokens_of_the_texts(run_folder, source, tokenizer):
    encoder = lc.tokens.Tokenize(tokenizer).encoder()
    texts, found = texts_of(source), {}
    composed = open_composed(run_folder)
    for bucket in composed.buckets:
        samples, place = bucket.read(range(len(bucket))), {}
        for row in pq.read_table(run_folder / "composed/pieces" / bucket.path).to_pylist():
            first = place.get(row["sample"], 0)
            place[row["sample"]] = first + row["length"]
            tokens = samples.tokens[row["sample"], first : first + row["length"]]
            found.setdefault(row["id"], {})[row["start"]] = tokens
    assert found.keys() == texts.keys()
    for name, pieces in found.items():
        tokens = np.concatenate([pieces[start] for start in sorted(pieces)]).tolist()
        assert tokens == [*encoder.encode([texts[name]]).ids.tolist(), encoder.end_of_text]


def test_a_run_is_verified_inspected_and_asked(run_folder, source):
    told = lc.inspect(run_folder, row=3)
    assert told.text.split()[0] in texts_of(source)[told.row_id]
    assert told.row_id in str(told)
    assert "train/64" in str(told)
    assert sum(piece["length"] for piece in told.pieces) + told.lossless == told.capacity
    assert lc.inspect(run_folder / "composed", "heldout").pieces[0]["head"]
    assert str(lc.why(run_folder, told.row_id)) == f"{told.row_id}: kept"
    assert lc.analysis(run_folder) == lc.analysis(run_folder / "composed")
    assert lc.analysis(run_folder).documents == DOCUMENTS
    assert len(lc.compose(run_folder).lengths) == DOCUMENTS
    with pytest.raises(FormatError, match="has no split 'val'; known: heldout, train"):
        lc.inspect(run_folder, "val")
    with pytest.raises(FormatError, match=r"split 'train' has samples 0 to \d+, not 1000"):
        lc.inspect(run_folder, row=1000)


def test_every_changed_missing_or_added_file_is_found(run_folder, tmp_path):
    assert str(lc.verify(run_folder)).startswith(f"{run_folder}: whole")
    copy = tmp_path / "composed"
    shutil.copytree(run_folder / "composed", copy)
    assert lc.verify(copy).problems == ()
    changed = copy / "train/64/c/0/0"
    content = changed.read_bytes()
    changed.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    (copy / "pieces/train/64/00000.parquet").unlink()
    (copy / "train/64/c/9").mkdir()
    (copy / "train/64/c/9/0").write_bytes(b"1")
    said = " ".join(lc.verify(copy).problems)
    assert "train/64/c/0/0 has been changed" in said
    assert "pieces/train/64/00000.parquet is missing" in said
    assert "train/64/c/9/0 is not part of this output" in said
    (copy / "composed.json").write_text((copy / "composed.json").read_text().replace("Buckets", "buckets"))
    assert lc.verify(copy).problems == ("composed.json has been changed: the SHA-256 that it records differs",)


@pytest.mark.slow
def test_the_card_tells_the_composition_and_its_code_runs(run_folder, python, monkeypatch):
    card = (run_folder / "README.md").read_text()
    told = json.loads((run_folder / "manifest.json").read_text())["output"]
    assert told["format"] == "composed"
    assert composition_of(told["splits"]["train"]).markdown() in card
    blocks = card.split("## Load it")[1].split("## What is left")[0].split("```python\n")[1:]
    program = "\n".join(block.split("```")[0] for block in blocks).replace('"user/name"', f'"{run_folder}"')
    assert len(blocks) == 3
    monkeypatch.chdir(run_folder)
    ran = python(program)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_plain_datasets_loads_the_tables_and_samples_in_parquet(run_folder, tmp_path, source, tokenizer):
    pieces = load_dataset(str(run_folder), "pieces", split="train")
    assert pieces.column_names == [
        "bucket", "sample", "document", "id", "url", "language", "start", "length", "head", "tail"
    ]  # fmt: skip
    documents = load_dataset(str(run_folder), "documents", split="heldout")
    assert documents.column_names == ["id", "url", "language", "date", "source", "n_tokens"]
    made = recipe_of(tmp_path / "r.yaml", source, tokenizer, format="token-parquet", domains="language", heldout=3)
    lc.run(made, tmp_path / "out")
    samples = load_dataset(str(tmp_path / "out"), "64", split="train")
    buckets = [each for each in open_composed(tmp_path / "out").buckets if each.capacity == 64]
    assert len(samples) == sum(len(each) for each in buckets if each.split == "train")
    assert max(samples["n_tokens"]) <= 64
    assert "| train | `de` |" in (tmp_path / "out/README.md").read_text()


def test_a_wrong_field_is_refused_when_the_recipe_is_read(tmp_path, source, tokenizer):
    with pytest.raises(RecipeError, match=r"capacities of buckets must ascend, .* write \[64, 128\]"):
        lc.load_recipe(recipe_of(tmp_path / "r.yaml", source, tokenizer, capacities=[128, 64]))


def test_the_shipped_recipe_runs(tmp_path, make_release, tokenizer):
    chance = random.Random(0)
    texts = []
    for number in range(24):
        words = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 7))) for _ in range(60 * (number % 5 + 1))]
        texts.append(". ".join(" ".join(words[first : first + 12]) for first in range(0, len(words), 12)) + ".")
    folder = make_release(tmp_path / "release", {"2023-06/0000/en_head": [*texts, texts[0]]})
    overrides = [
        f"source.data_dir={folder}",
        f"stages.tokenize.tokenizer={tokenizer}",
        "stages.signal_rules.thresholds={max_word_count: null, min_word_count: 1}",
        "outputs.composed.capacities=[256, 512, 1024]",
        "outputs.composed.heldout=2",
    ]
    summary = lc.run("bucket-pretraining", tmp_path / "out", overrides=overrides)
    told = summary.written["splits"]["train"]
    assert summary.written["padding_threshold"] == 0.05
    assert told["documents"] == summary.funnel.kept - 2 > 10
    assert told["r_tru"] == told["longer_documents"] / told["documents"]
    assert {each.capacity for each in open_composed(tmp_path / "out").buckets} <= {256, 512, 1024}


def test_a_shuffled_crawl_is_described_as_shuffled(tmp_path):
    data = Dataset.from_dict({"id": ["a", "b"], "tokens": [[1, 2, 3], [4]]})
    settings = {"capacities": (4, 8), "end_of_text": 0}
    plain, shuffled = lc.Crawl(data), lc.Crawl(data) | lc.tokens.Shuffle(seed=1)
    assert plain.to_composed(tmp_path / "plain", **settings)["shuffled"] is False
    assert shuffled.to_composed(tmp_path / "shuffled", **settings)["shuffled"] is True
