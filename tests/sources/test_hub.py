"""Datasets of the Hub as a source: opened by name, read at one commit, and what the Hub does not have."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import config, load_dataset

import longcrawl as lc
from longcrawl.errors import LongCrawlError, RunError, SourceError
from longcrawl.run.recipe import parse_recipe

# -------------------- the Hub


@pytest.fixture
def repository(hub, tmp_path):
    """Return a private dataset of two configurations, whose texts are in the column ``content``."""
    from huggingface_hub import HfApi

    api = HfApi()
    name = f"me/{re.sub(r'[^a-z]', '', tmp_path.name)[:40]}"
    api.create_repo(name, repo_type="dataset", private=True)
    pq.write_table(pa.table({"content": [f"first {row}" for row in range(5)]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"content": ["held out"]}), tmp_path / "b.parquet")
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"content": text}) + "\n" for text in ("x", "y")))
    web = [{"split": "train", "path": "web/a*"}, {"split": "test", "path": "web/b*"}]
    lines = {"config_name": "lines", "data_files": "c.jsonl"}
    card = {"configs": [{"config_name": "web", "default": True, "data_files": web}, lines]}
    files = {
        "web/a.parquet": (tmp_path / "a.parquet").read_bytes(),
        "web/b.parquet": (tmp_path / "b.parquet").read_bytes(),
    }
    files |= {"c.jsonl": (tmp_path / "c.jsonl").read_bytes(), "README.md": f"---\n{yaml.safe_dump(card)}---\n".encode()}
    for path, content in files.items():
        api.upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=name, repo_type="dataset")
    return name


def test_a_dataset_of_the_hub_is_opened_by_its_name(repository):
    crawl = lc.open(repository, text_field="content")
    assert crawl.data["id"][:] == [f"web/a.parquet:{row}" for row in range(5)]
    assert crawl.data["text"][:] == load_dataset(repository, split="train")["content"][:]
    assert lc.open(repository, split="test", text_field="content").data["text"][:] == ["held out"]
    lines = lc.open(repository, config="lines", text_field="content", streaming=True)
    assert [(row["id"], row["text"]) for row in lines.data] == [("c.jsonl:0", "x"), ("c.jsonl:1", "y")]


def test_what_the_hub_does_not_have_is_one_sentence(repository, monkeypatch):
    wrong = [
        ({}, r"web/a\.parquet: has no field 'text'; its fields: content; set text_field="),
        ({"config": "none"}, r"BuilderConfig 'none' not found.*web.*; set config"),
        (
            {"path": "me/nothing"},
            r"Dataset 'me/nothing' doesn't exist on the Hub.*: check path and revision; a private",
        ),
        ({"revision": "v9"}, r"'v9'.*: check path and revision"),
    ]
    for fields, sentence in wrong:
        with pytest.raises(LongCrawlError, match=sentence):
            lc.load("hub", **{"path": repository} | fields)
    monkeypatch.setattr(config, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE is set, but only the Hub can list the files of a dataset"):
        lc.open(repository)
    with pytest.raises(SourceError, match=r"reads a dataset of the Hub, not 'name': set path to ORG/NAME"):
        lc.load("hub", path="name")


def test_other_kinds_of_files_are_opened_with_datasets(hub):
    from huggingface_hub import HfApi

    HfApi().create_repo("me/pictures", repo_type="dataset")
    HfApi().upload_file(path_or_fileobj=b"x", path_in_repo="a.png", repo_id="me/pictures", repo_type="dataset")
    with pytest.raises(
        SourceError, match=r"me/pictures has files other than parquet.*lc\.Crawl\(datasets\.load_dataset"
    ):
        lc.open("me/pictures")


def recipe(repository, **source):
    source = {"builder": "hub", "path": repository, "text_field": "content", **source}
    return parse_recipe(
        {
            "longcrawl": 1,
            "name": "from_hub",
            "source": source,
            "stages": [{"min_chars": {"n": 2}}],
            "outputs": {"parquet": {}},
        }
    )


def test_a_run_reads_one_commit_of_the_hub(repository, tmp_path):
    from huggingface_hub import HfApi

    api, first = HfApi(), HfApi().dataset_info(repository).sha
    lc.run(recipe(repository), tmp_path / "run")
    manifest = (tmp_path / "run" / "manifest.json").read_text()
    assert f"{repository}@{first}/web/a.parquet" in manifest
    lc.run(recipe(repository, split="test"), tmp_path / "other")
    table = pq.read_table(next((tmp_path / "other" / "parquet").rglob("*.parquet")))
    assert table["text"].to_pylist() == ["held out"]

    where = {"repo_id": repository, "repo_type": "dataset"}
    api.upload_file(path_or_fileobj=b"no parquet", path_in_repo="web/a2.parquet", **where)
    with pytest.raises(LongCrawlError, match=r"web/a2\.parquet: is corrupt"):
        lc.run(recipe(repository), tmp_path / "stopped")
    api.delete_file("web/a2.parquet", **where)
    with pytest.raises(RunError, match="input"):
        lc.run(recipe(repository), tmp_path / "stopped")
    lc.run(recipe(repository, revision=first), tmp_path / "pinned")
    assert json.loads((tmp_path / "pinned" / "manifest.json").read_text())["inputs"] == json.loads(manifest)["inputs"]


@pytest.mark.slow
def test_tokenize_takes_a_dataset_of_the_hub(repository, tmp_path):
    lc.tokenize(
        repository,
        tmp_path / "tokens",
        "trained",
        overrides=["source.text_field=content", "stages.tokenize.vocabulary_size=300"],
    )
    assert next((tmp_path / "tokens").rglob("*.bin")).stat().st_size > 0
