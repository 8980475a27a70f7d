"""Crawls that are pushed to the Hub without a run."""

import importlib.util

import datasets

import longcrawl as lc


def on_hub(hub, repo: str, revision: str = "main") -> dict[str, bytes]:
    files = hub.repositories[repo].files(revision)
    return {name: blob.content for name, blob in files.items() if name != ".gitattributes"}


def test_a_stream_is_pushed_in_files_of_one_schema(hub, repo, monkeypatch):
    documents = importlib.import_module("longcrawl.publish.hub.documents")
    for name, value in {"BATCH": 20, "GROUP_BYTES": 300, "SHARD_BYTES": 900}.items():
        monkeypatch.setattr(documents, name, value)
    rows = [{"id": str(number), "text": "tide", "note": None if number < 100 else "late"} for number in range(130)]
    stream = datasets.Dataset.from_list(rows).to_iterable_dataset()
    (lc.Crawl(stream) | lc.text.MinChars(1)).push_to_hub(repo, "private")
    loaded = datasets.load_dataset(repo, split="train")
    assert loaded.to_list() == rows
    assert len([name for name in on_hub(hub, repo) if name.startswith("documents/train-")]) > 2
