"""Tokenizers that are trained on a sample, which depends on the documents alone."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import choose, keyed_hash
from longcrawl.run import segments
from longcrawl.run.recipe import load_recipe
from longcrawl.run.shipped import recipes
from longcrawl.tokens import Tokenize

FILES, COUNT, VOCABULARY = 3, 25, 300
PURPOSE = "tokenize.train_documents"


def smallest(ids, count):
    hashes = keyed_hash(ids, PURPOSE, 0).tolist()
    return {name for name, found in zip(ids, hashes, strict=True) if found in sorted(hashes)[:count]}


@given(ids=st.lists(st.text(max_size=2), max_size=30), count=st.integers(1, 12), batch=st.integers(1, 9))
def test_a_sample_is_of_the_smallest_hashes_in_any_order_and_batches(ids, count, batch):
    table = pa.table({"id": pa.array(ids, pa.string()), "row": range(len(ids))})
    tables = [table.slice(start, batch) for start in range(0, max(len(ids), 1), batch)]
    (found,) = choose(iter(tables), count, PURPOSE)
    assert found.schema == table.schema
    assert found["row"].to_pylist() == [row for row, name in enumerate(ids) if name in smallest(ids, count)]


@pytest.fixture(scope="module")
def documents() -> dict[str, str]:
    chance = random.Random(0)
    return {f"d{number}": " ".join(chance.choices("abcdefghij", k=40)) + f" {number}" for number in range(90)}


@pytest.fixture(scope="module")
def recipe(documents, tmp_path_factory):
    """Return what writes a recipe, whose input has the documents in an order."""

    def write(ids, **settings) -> Path:
        folder = tmp_path_factory.mktemp("input")
        for number in range(FILES):
            lines = [json.dumps({"id": name, "text": documents[name]}) + "\n" for name in ids[number::FILES]]
            (folder / f"{number}.jsonl").write_text("".join(lines))
        settings = {"tokenizer": "trained", "vocabulary_size": VOCABULARY, "train_documents": COUNT} | settings
        spec = {
            "longcrawl": 1,
            "name": "sampled",
            "source": {"builder": "text", "id_field": "id", "data_dir": str(folder)},
            "stages": [{"min_chars": {"n": 1}}, {"tokenize": settings}],
            "outputs": {"datatrove": {}},
        }
        (folder / "recipe.yaml").write_text(yaml.safe_dump(spec))
        return folder / "recipe.yaml"

    return write


def tokenizer_of(run: Path) -> bytes:
    (found,) = run.glob("datatrove/**/tokenizer.json")
    return found.read_bytes()


@pytest.fixture(scope="module")
def run(documents, recipe, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    lc.run(recipe(list(documents)), out)
    return out


def test_a_run_trains_on_exactly_these_documents(run, documents, tmp_path):
    chosen = sorted(smallest(list(documents), COUNT))
    assert len(chosen) == COUNT
    table = pa.table({"id": chosen, "text": [documents[name] for name in chosen]})
    alone = Tokenize("trained", vocabulary_size=VOCABULARY).fit([table], str(tmp_path))
    alone.encoder().save(str(tmp_path))
    assert tokenizer_of(run) == (tmp_path / "tokenizer.json").read_bytes()
    every = pa.table({"id": list(documents), "text": list(documents.values())})
    sampled = Tokenize("trained", vocabulary_size=VOCABULARY, train_documents=COUNT).fit([every], str(tmp_path / "all"))
    assert sampled.tokenizer.split("/")[-2] == alone.tokenizer.split("/")[-2]
    assert Tokenize("trained", vocabulary_size=VOCABULARY).fit([every], str(tmp_path)).tokenizer != alone.tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("few", [False, True])
def test_neither_processes_nor_the_order_of_inputs_matter(run, documents, recipe, tmp_path, monkeypatch, few):
    if few:  # so that tasks have to draw again
        monkeypatch.setattr(segments, "likely_last", lambda *_: 1 << 56)
    ids = sorted(documents, key=lambda name: documents[name])
    lc.run(recipe(ids), tmp_path / "out", num_proc=1 if few else 2)
    assert tokenizer_of(tmp_path / "out") == tokenizer_of(run)


@pytest.mark.slow
def test_manifest_and_card_say_on_how_many_documents(run, documents, recipe, tmp_path):
    said = "it was trained on 25 of 90 documents, those whose ids have the smallest keyed hashes"
    assert json.loads((run / "manifest.json").read_text())["reports"] == {"tokenize": [said]}
    assert f"`tokenize`: {said}" in (run / "README.md").read_text()
    lc.run(recipe(list(documents), train_documents=90), tmp_path / "all")
    reports = json.loads((tmp_path / "all" / "manifest.json").read_text())["reports"]
    assert reports == {"tokenize": ["it was trained on all 90 documents"]}


@pytest.mark.slow
def test_a_plan_says_on_how_many_documents(documents, recipe):
    path = recipe(list(documents))
    assert "; a run trains tokenize on at most 25 documents" in str(lc.plan(path))
    assert "trains" not in str(lc.plan(path, overrides=["stages.tokenize.train_documents=null"]))


@pytest.mark.slow
def test_recipes_that_do_not_set_it_are_spelled_as_before():
    for name in recipes():
        spelled = yaml.safe_load(load_recipe(name).as_yaml())["stages"]
        assert all("train_documents" not in fields for stage in spelled for fields in [stage.get("tokenize", ())])
    sampled = load_recipe("quickstart", ["stages.tokenize.train_documents=100"])
    assert "train_documents: 100" in sampled.as_yaml()
    assert sampled.digest != load_recipe("quickstart").digest


@pytest.mark.parametrize(("tokenizer", "count"), [("gpt2", 5), ("trained", 0)])
def test_a_number_that_means_nothing_is_one_sentence(tokenizer, count):
    with pytest.raises(
        StageError, match=f"train_documents is {count} with the tokenizer '{tokenizer}': set it to 1 or more"
    ):
        Tokenize(tokenizer, train_documents=count)
