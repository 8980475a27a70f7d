"""Runs on the Hub: the real client pushes to a server of our own, is cut off, goes on, and reads back what it sent."""

import _thread
import hashlib
import importlib.util
import itertools
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

import datasets
import fsspec
import huggingface_hub
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.sources import SOURCES
from longcrawl.errors import FormatError, HubError, LongCrawlError, NotYetError, RunError, SourceError
from longcrawl.io import file_systems
from longcrawl.io.structured import seal

push_module = importlib.import_module("longcrawl.publish.hub.push")
DOCUMENTS, LENGTH = 240, 64
RECTANGLE = "rectangle/train/c/0/0"


def write_run(folder: Path, heldout: int, output: str = "rectangle") -> Path:
    chance = random.Random(2)
    folder.mkdir()
    with (folder / "documents.jsonl").open("w") as lines:
        for number in range(DOCUMENTS):
            words = 40 if number % 10 else 3
            text = " ".join("".join(chance.choices("abcdefghij", k=chance.randint(2, 7))) for _ in range(words))
            lines.write(json.dumps({"id": str(number), "url": f"https://e.org/{number}", "text": text}) + "\n")
    stages = [{"min_chars": {"n": 100}}, {"tokenize": {"tokenizer": "trained", "vocabulary_size": 400}}]
    stages += [{"min_tokens": {"n": LENGTH}}, {"truncate": {"n": LENGTH}}, "shuffle"]
    stages = stages[:1] if output == "parquet" else stages
    source = {"builder": "text", "id_field": "id", "data_files": str(folder / "documents.jsonl")}
    spec = {"longcrawl": 1, "name": "tiny", "about": "Made in a test.", "source": source, "stages": stages}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(spec | {"outputs": {output: {"heldout": heldout}}}))
    lc.run(folder / "tiny.yaml", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("finished") / "a", 10)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Return a finished run of the same documents that holds none of them out."""
    return write_run(tmp_path_factory.mktemp("other") / "b", 0)


@pytest.fixture
def run(finished, tmp_path):
    """Return a copy of a finished run, with things in its folder that are no part of it."""
    folder = shutil.copytree(finished, tmp_path / "run")
    for left in ("work/spill/00.tokens", "notes.txt", "rectangle/train/c/0/0.partial-12"):
        (folder / left).parent.mkdir(parents=True, exist_ok=True)
        (folder / left).write_text("not to be sent")
    return folder


@pytest.fixture
def slept(monkeypatch):
    """Return how long the client would have waited before each further attempt."""
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def described(run: Path) -> dict[str, bytes]:
    """Return what a push is to send."""
    names = [*json.loads((run / "manifest.json").read_text())["files"], "manifest.json"]
    return {name: (run / name).read_bytes() for name in names}


def on_hub(hub, repo: str, revision: str = "main") -> dict[str, bytes]:
    files = hub.repositories[repo].files(revision)
    return {name: blob.content for name, blob in files.items() if name != ".gitattributes"}


def titles(hub, repo: str) -> list[str]:
    return [commit.title for commit in hub.repositories[repo].commits.values()][1:]


def commit(repo: str, **files: str) -> None:
    """Commit files as somebody else would."""
    operations = [huggingface_hub.CommitOperationAdd(name, text.encode()) for name, text in files.items()]
    api = huggingface_hub.HfApi()
    api.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
    api.create_commit(repo, operations, commit_message="by hand", repo_type="dataset")


def test_a_push_sends_the_run_and_nothing_else_once(hub, repo, run):
    sent = lc.push(run, repo, "private")
    assert on_hub(hub, repo) == on_hub(hub, repo, sent.tag) == described(run)
    assert hub.sent() == {name: len(content) for name, content in described(run).items()} == sent.send
    assert hub.repositories[repo].private
    assert titles(hub, repo) == [sent.tag]
    assert sent.tag == f"run-{json.loads((run / 'manifest.json').read_text())['sha256'][:12]}"
    assert str(sent).startswith(f"{repo} (private) holds the run at {sent.commit[:12]}, tag {sent.tag}: ")

    hub.reset()
    again = lc.push(run, repo, "private")
    assert (again.send, again.commit, hub.sent()) == ({}, sent.commit, {})
    assert not [asked for asked in hub.requests if not asked.startswith("GET")]

    (run / "README.md").write_text((run / "README.md").read_text() + "\nA person has added this.\n")
    edited = lc.push(run, repo, "private")
    assert edited.send.keys() == hub.sent().keys() == {"README.md"}
    assert b"A person" not in on_hub(hub, repo, sent.tag)["README.md"]
    assert b"A person" in on_hub(hub, repo)["README.md"]


def test_a_dry_run_lists_what_would_be_sent_and_changes_nothing(hub, repo, run):
    shown = CliRunner().invoke(app, ["push", str(run), repo, "--public", "--dry-run"])
    for name, content in described(run).items():
        assert f"{len(content):,}  {name}\n" in shown.stdout
    assert "notes.txt" not in shown.stdout
    assert hub.requests == [f"GET /api/datasets/{repo}"]
    assert repo not in hub.repositories


@pytest.mark.variants
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_the_answer_of_a_push_as_json(hub, repo, run, more):
    facts = json.loads(CliRunner().invoke(app, ["push", str(run), repo, "--public", "--json", *more]).stdout)
    assert (facts["repo"], facts["visibility"], facts["unchanged"], facts["delete"]) == (repo, "public", {}, [])
    assert facts["send"] == {name: len(content) for name, content in described(run).items()}
    assert (facts["commit"] is None) == bool(more)


@pytest.mark.variants
@pytest.mark.parametrize("there", ["nothing", "private", "public"])
def test_a_dry_run_needs_no_token(hub, repo, run, monkeypatch, there):
    if there != "nothing":
        lc.push(run, repo, there)
    monkeypatch.delenv("HF_TOKEN")
    shown = lc.push(run, repo, "public", dry_run=True)
    assert shown.send.keys() == (set() if there == "public" else described(run).keys())
    assert ("you are not signed in: if" in str(shown)) == (there != "public")
    with pytest.raises(HubError, match="you are not signed in to the Hub"):
        lc.push(run, repo, "public")


@pytest.mark.slow
def test_a_cut_upload_is_tried_again_and_a_stopped_push_goes_on(hub, repo, run, slept):
    oid = hashlib.sha256((run / RECTANGLE).read_bytes()).hexdigest()
    hub.fail(f"PUT /lfs/{oid}", cut_after=5000, times=6)
    with pytest.raises(HubError, match="run the same command again; what was sent is not sent again"):
        lc.push(run, repo, "private")
    assert slept == [1, 2, 4, 8, 8]
    arrived = set(hub.received)
    assert arrived
    assert on_hub(hub, repo) == {}

    hub.reset()
    hub.fail(f"PUT /lfs/{oid}", cut_after=5000)
    lc.push(run, repo, "private")
    assert RECTANGLE in hub.sent()
    assert not arrived & set(hub.received)
    assert on_hub(hub, repo) == described(run)


@pytest.fixture
def stopped(hub, monkeypatch):
    """Return a push that commits few files at once and is cut off at its second commit."""
    create = huggingface_hub.HfApi.create_commit

    def push_and_cut(run, repo, **settings):
        messages = []

        def create_and_cut(*given, **arguments):
            messages.append(arguments["commit_message"])
            if len(messages) == 2:
                hub.fail("POST .*/commit/main", cut_after=10)
            return create(*given, **arguments)

        with monkeypatch.context() as patch:
            patch.setattr(huggingface_hub.HfApi, "create_commit", create_and_cut)
            with pytest.raises(HubError, match="cannot be reached.*run the same command again; what was sent"):
                lc.push(run, repo, "private", **settings)

    monkeypatch.setattr(push_module, "COMMIT_FILES", 6)
    return push_and_cut


def assert_nothing_loads(repo: str) -> None:
    url = f"hf://datasets/{repo}"
    huggingface_hub.HfFileSystem.clear_instance_cache()
    for name in ((repo,), (repo, "rows")):
        with pytest.raises((ValueError, FileNotFoundError)):
            datasets.load_dataset(*name)
    with pytest.raises(LongCrawlError):
        datasets.load_dataset("longcrawl", "rectangle", data_dir=f"{url}/rectangle", context_length=32)
    for open_it, place in ((zarr.open_group, "rectangle"), (zarr.open_array, "rectangle/train")):
        with pytest.raises(FileNotFoundError):
            open_it(f"{url}/{place}", mode="r")
    with pytest.raises(FormatError, match="is incomplete, since a push to it was stopped or is still running"):
        lc.verify(url)
    with pytest.raises(FormatError, match="holds neither a run nor an output"):
        lc.verify(f"{url}/rectangle")


def test_a_part_of_a_push_is_never_the_whole_and_the_same_push_goes_on(hub, repo, run, stopped):
    hub.multipart_over, hub.page = 3000, 3
    stopped(run, repo)
    first = on_hub(hub, repo)
    assert first.keys() == {"README.md", "unfinished-push.json", *sorted(first.keys() & described(run).keys())}
    assert not {"manifest.json", "rectangle/rectangle.json", "rectangle/train/zarr.json"} & first.keys()
    assert hub.repositories[repo].tags == {}
    assert_nothing_loads(repo)
    before = hub.sent()

    hub.reset()
    sent = lc.push(run, repo, "private")
    assert sent.commits == 1
    assert titles(hub, repo) == [f"{sent.tag}, part 1 of 2", sent.tag]
    assert hub.repositories[repo].tags == {sent.tag: sent.commit}
    assert on_hub(hub, repo) == described(run)
    assert before.keys() & hub.sent().keys() == {"README.md"}
    assert lc.verify(f"hf://datasets/{repo}").problems == ()


@pytest.mark.slow
def test_commits_that_take_the_hub_too_long_are_halved(hub, repo, run, monkeypatch):
    hub.commit_operations = 8
    with pytest.raises(HubError, match="has failed at .* .504: Gateway Time-out.: run the same command again"):
        lc.push(run, repo, "private")
    monkeypatch.setattr(push_module, "COMMIT_FILES", 6)
    hub.commit_operations = 2
    sent = lc.push(run, repo, "private")
    commits = titles(hub, repo)
    assert commits[0].startswith(f"{sent.tag}, part 1 of ")
    assert commits[-1] == f"{sent.tag}, part {len(commits)} of {len(commits)}"
    oldest = list(hub.repositories[repo].commits.values())[1]
    assert oldest.files.keys() - {".gitattributes"} == {"README.md", "unfinished-push.json"}
    assert on_hub(hub, repo) == on_hub(hub, repo, sent.tag) == described(run)


@pytest.mark.slow
def test_another_run_neither_mixes_with_a_part_of_a_push_nor_hides_what_it_is(
    hub, repo, run, other, stopped, tmp_path, monkeypatch
):
    monkeypatch.setattr(push_module, "COMMIT_FILES", 2)
    whole = lc.push(run, repo, "private")
    stopped(other, repo)
    assert_nothing_loads(repo)
    assert lc.verify(f"hf://datasets/{repo}@{whole.tag}").problems == ()

    tag = lc.push(other, repo, "private", dry_run=True).tag
    hub.reset()
    for more in ([], ["--dry-run"], ["--instead-of", whole.tag]):
        shown = CliRunner().invoke(app, ["push", str(run), repo, "--private", *more])
        assert str(shown.exception) == (
            f"{repo} holds a part of {tag}, whose push was stopped or is still running: push that run again to "
            f"finish it, or add --instead-of {tag} to the command to replace it"
        )
    assert not [asked for asked in hub.requests if not asked.startswith("GET")]

    third = write_run(tmp_path / "c", 20)
    stopped(third, repo, instead_of=tag)
    for _ in range(2):
        shown = CliRunner().invoke(app, ["push", str(third), repo, "--private", "--instead-of", tag])
        assert shown.exit_code == 0
        assert on_hub(hub, repo) == described(third)

    stopped(other, repo)
    lc.push(run, repo, "private", instead_of=tag)
    assert on_hub(hub, repo) == described(run)
    assert lc.verify(f"hf://datasets/{repo}").problems == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "waited"),
    [
        ({"request": "POST .*/preupload/", "status": 500}, [1]),
        ({"request": "PUT /lfs/", "status": 503, "times": 2}, None),
        ({"request": "POST .*/objects/batch", "status": 429, "retry_after": 7}, [8]),
    ],
    ids=["500", "503", "429"],
)
def test_what_passes_by_itself_is_waited_for(hub, repo, run, slept, failure, waited):
    hub.fail(**failure)
    lc.push(run, repo, "private")
    assert waited is None or slept == waited
    assert on_hub(hub, repo) == described(run)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (
            {"request": "POST .*/commit/", "status": 429, "retry_after": 3600},
            "limits the rate of requests .* wait 3,600 seconds; run the same",
        ),
        ({"request": "POST .*/commit/", "status": 403}, "does not allow this request"),
        ({"request": "POST .*/commit/", "cut_after": 20}, "cannot be reached"),
        ({"request": "POST .*/commit/", "answer": False}, "cannot be reached"),
        ({"request": "POST .*/commit/", "status": 413}, "rejects the size of a request .*have the run write fewer"),
        ({"request": "POST .*/commit/", "status": 422}, "rejects a request to .* .422: told to fail"),
        ({"request": "POST .*/preupload/", "status": 404}, "has no .*, or does not show it to you"),
        ({"request": "POST .*/tag/", "status": 500}, "has failed"),
        ({"request": "GET .*/tree/", "status": 200, "times": 1}, "did not answer like the Hugging Face Hub .TypeError"),
        ({"request": "POST .*/create", "status": 302}, "did not answer like the Hugging Face Hub .KeyError"),
    ],
    ids=["429", "403", "cut", "lost", "413", "422", "404", "tag", "other-JSON", "redirected"],
)
def test_what_does_not_pass_is_one_sentence_and_the_next_push_goes_on(hub, repo, run, slept, failure, sentence):
    hub.fail(**failure)
    with pytest.raises(HubError, match=sentence) as raised:
        lc.push(run, repo, "private")
    assert "\n" not in str(raised.value)
    sent = lc.push(run, repo, "private")
    assert on_hub(hub, repo, sent.tag) == described(run)


@pytest.mark.slow
def test_a_push_can_be_stopped_by_hand(hub, repo, run, monkeypatch):
    oid = hashlib.sha256((run / RECTANGLE).read_bytes()).hexdigest()
    monkeypatch.setattr(hub, "delay", 0.02)
    for request in (f"PUT /lfs/{oid}", "POST .*/commit/"):
        hub.fail(request, then=_thread.interrupt_main)
        shown = CliRunner().invoke(app, ["push", str(run), repo, "--private"])
        assert shown.exit_code == 130
        assert shown.stderr.endswith("stopped; the same command resumes from here\n")
    lc.push(run, repo, "private")
    assert on_hub(hub, repo) == described(run)


@pytest.mark.slow
def test_what_becomes_of_a_failure_is_said_as_it_is(hub, repo, run, slept):
    lc.push(run, repo, "private")
    hub.fail("GET", status=500, times=99)
    for ask in (lambda: lc.push(run, repo, "private", dry_run=True), lambda: lc.push(run, repo, "private")):
        with pytest.raises(HubError, match="has failed at .*: nothing has been sent, run the same command again$"):
            ask()
    with pytest.raises(HubError, match="has failed at .*told to fail.: run the same command again$"):
        lc.verify(f"hf://datasets/{repo}")


@pytest.mark.slow
def test_a_commit_of_somebody_else_meanwhile_stops_a_push(hub, repo, run, monkeypatch):
    create = huggingface_hub.HfApi.create_commit

    def create_after_another(*given, **settings):
        monkeypatch.setattr(huggingface_hub.HfApi, "create_commit", create)
        commit(repo, LICENSE="mine")
        return create(*given, **settings)

    monkeypatch.setattr(huggingface_hub.HfApi, "create_commit", create_after_another)
    with pytest.raises(HubError, match="another commit to"):
        lc.push(run, repo, "private")
    lc.push(run, repo, "private")
    assert on_hub(hub, repo) == described(run) | {"LICENSE": b"mine"}


def test_another_run_replaces_the_one_before_and_nothing_of_anybody_else(hub, repo, run, other):
    lc.push(run, repo, "private")
    commit(repo, **{"LICENSE": "mine", "pictures/a.svg": "<svg/>"})
    sent = lc.push(other, repo, "private")
    gone = set(described(run)) - set(described(other))
    assert set(sent.delete) == gone
    assert "rectangle/rows/heldout.parquet" in gone
    assert on_hub(hub, repo) == {**described(other), "LICENSE": b"mine", "pictures/a.svg": b"<svg/>"}
    assert len(hub.repositories[repo].tags) == 2

    commit(repo, **{"rectangle/train/c/9/0": "a chunk of nobody's"})
    with pytest.raises(HubError, match="holds rectangle/train/c/9/0, which was not pushed by a run of longcrawl"):
        lc.push(other, repo, "private")


def test_what_somebody_else_wrote_is_not_overwritten(hub, repo, run):
    commit(repo, **{"README.md": "---\nlicense: mit\n---\n"})
    with pytest.raises(HubError, match=r"holds README\.md, which was not pushed by a run of longcrawl"):
        lc.push(run, repo, "private")
    put(hub, repo, ".gitignore", b"*.parquet\n")
    with pytest.raises(HubError, match=r"holds a \.gitignore, for which the Hub may silently omit files"):
        lc.push(run, repo, "private")


@pytest.mark.slow
def test_a_card_that_was_edited_on_the_hub_is_not_replaced(hub, repo, run):
    lc.push(run, repo, "private")
    edited = (run / "README.md").read_text().replace("Made in a test.", "What I know of it.")
    commit(repo, **{"README.md": edited})
    said = r"README\.md of .* was edited on the Hub \('by hand'\), .*then add --instead-of README\.md to"
    for dry_run in (True, False):
        with pytest.raises(HubError, match=said):
            lc.push(run, repo, "private", dry_run=dry_run)
    shutil.copy(huggingface_hub.hf_hub_download(repo, "README.md", repo_type="dataset"), run)
    assert lc.push(run, repo, "private").send == {}
    (run / "README.md").write_text(edited + "And more.\n")
    shown = CliRunner().invoke(app, ["push", str(run), repo, "--private", "--instead-of", "README.md"])
    assert shown.exit_code == 0
    assert on_hub(hub, repo) == described(run)


@pytest.mark.slow
def test_an_edited_card_is_pushed_with_a_warning_until_the_manifest_names_it(hub, repo, run):
    lc.push(run, repo, "private")
    (run / "README.md").write_text((run / "README.md").read_text() + "\nA person has added this.\n")
    said = r"README\.md was edited and is pushed as it is, so longcrawl verify will report .*: run longcrawl card"
    for dry_run in (True, False):
        with pytest.warns(UserWarning, match=said):
            lc.push(run, repo, "private", dry_run=dry_run)
    (problem,) = lc.verify(f"hf://datasets/{repo}").problems
    assert problem.startswith("README.md has ")
    lc.card(run)
    with warnings.catch_warnings(action="error", category=UserWarning):
        assert lc.push(run, repo, "private").send.keys() == {"README.md", "manifest.json"}
    assert b"A person has added this." in on_hub(hub, repo)["README.md"]
    assert lc.verify(f"hf://datasets/{repo}").problems == ()


@pytest.mark.slow
def test_instead_of_names_what_is_there(hub, repo, run, other, stopped):
    def push(what: Path, instead_of: str) -> None:
        lc.push(what, repo, "private", instead_of=instead_of)

    with pytest.raises(
        HubError, match="'nonsense' matches nothing to replace.* holds no unfinished push, and no run: re"
    ):
        push(run, "nonsense")
    assert repo not in hub.repositories
    stopped(run, repo)
    tag = titles(hub, repo)[0].partition(",")[0]
    with pytest.raises(HubError, match=f"'{tag}0' matches nothing to replace, since {repo} holds a part of {tag}: "):
        push(run, f"{tag}0")
    for name in (tag, tag, "README.md"):
        push(run, name)
    for name in (tag, "run-0123456789ab", "README"):
        with pytest.raises(HubError, match=f"'{name}' matches nothing .* no unfinished push, and {tag}: remove it"):
            push(other, name)
    assert on_hub(hub, repo) == described(run)


@pytest.mark.slow
def test_who_may_see_it_is_asked_and_never_changed(hub, repo, run):
    shown = CliRunner().invoke(app, ["push", str(run), repo])
    assert shown.exit_code == 1
    assert str(shown.exception) == f"choose who may see {repo}: add --private or --public"
    for both in ({}, {"visibility": "public", "private": False}):
        with pytest.raises(HubError, match=r"give private or public, or one of private=True and private=False$"):
            lc.push(run, repo, **both)
    lc.push(run, repo, private=False)
    assert not hub.repositories[repo].private
    with pytest.raises(HubError, match=f"{repo} is public: push it as public"):
        lc.push(run, repo, "private")
    with pytest.raises(HubError, match="give private or public, got 'secret'"):
        lc.push(run, repo, "secret")
    with pytest.raises(HubError, match="write it as user/name"):
        lc.push(run, "tiny", "private")
    with pytest.raises(HubError, match="does not allow this request to somebody/else .403: you have no rights"):
        lc.push(run, "somebody/else", "private")


def test_a_run_that_is_not_whole_or_does_not_fit_is_not_pushed(hub, repo, run, finished, monkeypatch):
    hub_module = importlib.import_module("longcrawl.publish.hub.client")
    monkeypatch.setattr(hub_module, "FOLDER_ENTRIES", 2)
    with pytest.raises(RunError, match=r"takes 2 in a folder.*run its recipe again with rectangle\.zarr_format=3"):
        lc.push(run, repo, "private")
    monkeypatch.undo()
    hub.fail("POST .*/validate-yaml", status=400)
    shutil.copy(finished / "README.md", run)
    with pytest.raises(RunError, match="told to fail"):
        lc.push(run, repo, "private")
    assert repo not in hub.repositories
    hub.reset()
    (run / RECTANGLE).write_bytes(b"cut")
    with pytest.raises(RunError, match="was not pushed: rectangle/train/c/0/0 has 3 bytes"):
        lc.push(run, repo, "private")
    told = json.loads((finished / "manifest.json").read_text("utf-8"))
    (run / "manifest.json").write_text(json.dumps(told | {"digest": "another"}))
    with pytest.raises(RunError, match=r"manifest\.json has been changed. `longcrawl verify"):
        lc.push(run, repo, "private")
    for text in ("[]", "{}", json.dumps({"files": {}, "output": {"format": "rectangle"}})):
        (run / "manifest.json").write_text(text)
        with pytest.raises(RunError, match=r"manifest\.json is not the manifest of a run"):
            lc.push(run, repo, "private")
    (run / "manifest.json").unlink()
    with pytest.raises(RunError, match="is not finished"):
        lc.push(run, repo, "private")
    assert hub.requests == []


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (
            b"# my own\n",
            "it does not begin with YAML front matter .*move the card away and run longcrawl card",
        ),
        (b"---\n---\n# my own\n", "it does not begin with YAML front matter between two lines of ---"),
        (b"---\nlicense: mit\n---\n\xff", r"it is not UTF-8 \(.*0xff.*\)\. Save it as UTF-8"),
        (
            b"---\nlicense: {\n---\n",
            r"its YAML front matter is invalid \(while parsing .*\)\. Fix the block between the --- lines",
        ),
        (b"---\n- mit\n---\n", r"its YAML front matter is invalid .*\. Fix the block between the --- lines"),
        (b"---\n1: mit\n---\n", r"its YAML front matter is invalid .*\. Fix the block between the --- lines"),
    ],
    ids=["none", "empty", "latin", "YAML", "list", "number"],
)
def test_a_card_that_nothing_loads_by_is_refused_before_anything_is_asked(hub, repo, run, caplog, card, said):
    (run / "README.md").write_bytes(card)
    for dry_run in (True, False):
        with pytest.raises(RunError, match=rf"README\.md was not pushed: {said}") as raised:
            lc.push(run, repo, "private", dry_run=dry_run)
        assert "\n" not in str(raised.value)
    assert (hub.requests, caplog.records) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"license": "mine"}, r'"license\[0\]" must be one of'),
        ({"language": ["en", "English"]}, r'"language\[1\]" must be an ISO 639'),
        ({"size_categories": ["huge"]}, r'"size_categories\[0\]" must be one of'),
        ({"task_categories": ["writing"]}, r'"task_categories\[0\]" is not in the official list'),
        ({"configs": [{"data_files": "a"}]}, r'"configs\[0\].config_name" is required'),
        ({"configs": [{"config_name": "a"}]}, r'"configs\[0\].data_files" is required'),
        ({"dataset_info": "a"}, r'"dataset_info\[0\]" must be of type object'),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_head_that_the_hub_refuses_stops_a_push_before_anything_is_made(hub, repo, run, wrong, said):
    _, head, body = (run / "README.md").read_text().split("---\n", 2)
    (run / "README.md").write_text(f"---\n{yaml.safe_dump(yaml.safe_load(head) | wrong)}---\n{body}")
    with pytest.raises(RunError, match=rf"the Hub rejects the YAML front matter of .*{said}.*Fix the block"):
        lc.push(run, repo, "private")
    assert [asked for asked in hub.requests if not asked.startswith("GET")] == ["POST /api/validate-yaml"]
    assert repo not in hub.repositories


@pytest.mark.slow
@pytest.mark.parametrize("becomes", [None, b"cut", "other"])
def test_a_push_compares_what_the_hub_holds_before_it_sets_a_tag(hub, repo, run, becomes):
    def lose() -> None:
        there = hub.repositories[repo]
        files = there.files()
        content = bytes(len(files[RECTANGLE].content)) if becomes == "other" else becomes
        other = {} if content is None else {RECTANGLE: hub.regular(content)}
        there.commit("main", "lost", {name: blob for name, blob in files.items() if name != RECTANGLE} | other)

    # Asked for three times: whether it is there, after it was made, and after it was filled.
    for then in (lambda: None, lambda: None, lose):
        hub.fail(f"GET /api/datasets/{repo}$", then=then)
    with pytest.raises(HubError, match=f"does not hold {RECTANGLE} as sent: run the same command again"):
        lc.push(run, repo, "private")
    assert hub.repositories[repo].tags == {}
    sent = lc.push(run, repo, "private")
    assert sent.send.keys() == {RECTANGLE}
    assert on_hub(hub, repo, sent.tag) == described(run)


def test_the_token_is_nowhere_but_in_requests(hub, repo, run, slept, monkeypatch, caplog, capfd):
    home = Path(hub.environment["HF_HOME"])
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="huggingface_hub")
    monkeypatch.setattr(huggingface_hub.constants, "HF_DEBUG", True)
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
    wrong = "hf_thisIsAnotherTokenThatTheHubDoesNotKnow"
    said, told = [], []
    for token, failure in [(hub.token, None), (hub.token, 500), (wrong, None), (f"{wrong}\x07", None), (None, None)]:
        monkeypatch.setenv("HF_TOKEN", token) if token else monkeypatch.delenv("HF_TOKEN")
        if failure:
            (run / "README.md").write_text((run / "README.md").read_text() + "more\n")
            hub.fail("", status=failure, times=7)
        shown = CliRunner().invoke(app, ["push", str(run), repo, "--private"])
        said += [shown.output, repr(shown.exception)]
        if shown.exception is not None:
            told.append("".join(traceback.format_exception(shown.exception)))
        hub.failures.clear()
    monkeypatch.setenv("HF_TOKEN", f"hf_odd\x0b{wrong[3:]}")
    shown = CliRunner().invoke(app, ["verify", f"hf://datasets/{repo}"])
    said += [shown.output, repr(shown.exception)]
    assert "has invalid characters" in said[-1]
    assert "holds the run" in said[0]
    assert "401" in said[5]
    assert "has invalid characters" in said[7]
    assert "not signed in" in said[9]
    written = [file.read_bytes().decode("utf-8", "replace") for file in home.rglob("*") if file.is_file()]
    written += [
        content.decode("utf-8", "replace") for content in (*described(run).values(), *on_hub(hub, repo).values())
    ]
    assert "authorization: <TOKEN>" in caplog.text.lower().replace("<token>", "<TOKEN>")
    assert len(told) == 4
    for text in (*said, *told, *written, caplog.text, *capfd.readouterr()):
        assert hub.token not in text
        assert wrong[3:] not in text


@pytest.mark.slow
def test_files_come_and_go_by_xet(hub, repo, run, xet, tmp_path):
    hub.fail("POST .*/commit/", status=500)
    with pytest.raises(HubError, match="has failed at"):
        lc.push(run, repo, "private")
    large = sum((run / name).stat().st_size for name in described(run) if not name.endswith((".json", ".md", ".yaml")))
    chunks = sum(size for name, size in hub.sent().items() if name.startswith("xorb "))
    assert 0.7 * large < chunks < large

    hub.reset()
    lc.push(run, repo, "private")
    assert on_hub(hub, repo) == described(run)
    assert not [name for name in hub.sent() if name.startswith("xorb ")]
    assert not [asked for asked in hub.requests if "/lfs" in asked]
    assert lc.push(run, repo, "private").send == {}

    hub.reset()
    rows = datasets.load_dataset(repo, "rows", split="train", cache_dir=str(tmp_path / "cache"))
    assert rows["id"] == pq.read_table(run / "rectangle/rows/train.parquet")["id"].to_pylist()
    assert hub.served["rectangle/rows/train.parquet"] == 0
    assert [name for name in hub.served if name.startswith("xorb ")]
    assert lc.verify(f"hf://datasets/{repo}").problems == ()
    batch = lc.loading.Rectangle(f"hf://datasets/{repo}/rectangle", batch_size=8)[0]
    np.testing.assert_array_equal(batch["targets"], lc.loading.Rectangle(run / "rectangle", batch_size=8)[0]["targets"])

    hub.fail("GET .*/xet-write-token/", status=403, times=9)
    with pytest.raises(HubError, match="does not allow this request to .*set HF_TOKEN to a token that may"):
        lc.push(run, f"{repo}-other", "private")
    kept = [file.read_bytes() for file in xet.rglob("*") if file.is_file()]
    assert kept
    assert not [content for content in kept if hub.token.encode() in content]


@pytest.fixture(scope="module")
def without_longcrawl(tmp_path_factory):
    """Return the interpreter of a second environment, where everything is installed that is here, except longcrawl."""
    place = Path(__file__).parents[2] / "second_environment.py"
    spec = importlib.util.spec_from_file_location(place.stem, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.environment_without("longcrawl", tmp_path_factory.mktemp("without_longcrawl") / "environment")


PLAIN = """
import importlib.metadata, importlib.util, sys

assert sys.prefix != sys.base_prefix
assert importlib.util.find_spec("longcrawl") is None
assert "longcrawl" not in {each.name for each in importlib.metadata.distributions()}
import json, zarr
from datasets import load_dataset

repo, tag = sys.argv[1:]
rows = load_dataset(repo, "rows", revision=tag)
ledger = load_dataset(repo, "ledger", split="removed")
group = zarr.open_group(f"hf://datasets/{repo}@{tag}/rectangle", mode="r")
told = {"rows": {split: data["id"] for split, data in rows.items()}, "ledger": ledger[0]}
told |= {"default": load_dataset(repo, split="train").num_rows, "train": group["train"][:].tolist()}
told |= {"attributes": dict(group.attrs), "parquet": load_dataset(f"{repo}-parquet", split="heldout")["id"]}
print(json.dumps(told, default=list))
"""


@pytest.mark.slow
def test_what_was_pushed_loads_without_longcrawl(hub, repo, run, tmp_path, without_longcrawl):
    sent = lc.push(run, repo, "private")
    documents = write_run(tmp_path / "parquet", 7, "parquet")
    lc.push(documents, f"{repo}-parquet", "public")
    environment = os.environ | hub.environment | {"HF_HOME": str(tmp_path / "home"), "USE_TORCH": "NO"}
    command = [without_longcrawl, "-I", "-c", PLAIN, repo, sent.tag]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    for split in ("train", "heldout"):
        assert told["rows"][split] == pq.read_table(run / f"rectangle/rows/{split}.parquet")["id"].to_pylist()
    assert told["default"] == len(told["train"]) == DOCUMENTS - 24 - 10
    assert told["ledger"]["stage"] == "min_chars"
    assert told["parquet"] == pq.read_table(next(documents.glob("parquet/heldout-*")))["id"].to_pylist()
    batch = lc.loading.Rectangle(run / "rectangle", batch_size=8)[0]
    assert told["train"][:8] == batch["targets"].tolist()
    assert told["attributes"]["end_of_text"] == lc.loading.Rectangle(run / "rectangle").pad_token


@pytest.mark.slow
def test_windows_stream_from_the_hub_and_only_their_chunks_are_fetched(hub, repo, run, slept, monkeypatch):
    lc.push(run, repo, "private")
    url = f"hf://datasets/{repo}/rectangle"
    hub.reset()
    settings = {"split": "train", "streaming": True, "context_length": 32}
    data = datasets.load_dataset("longcrawl", "rectangle", data_dir=url, **settings)
    here = datasets.load_dataset("longcrawl", "rectangle", data_dir=str(run / "rectangle"), **settings)
    first = next(iter(data))
    # Of 206 rows, a chunk has 64; the index of a shard has 32 chunks that could be, and a checksum.
    stored = (run / RECTANGLE).stat().st_size
    assert hub.served[RECTANGLE] < 0.4 * stored
    assert hub.requests.count(f"GET /datasets/{repo}/resolve/main/{RECTANGLE}") == len(("index", "chunk"))
    assert hub.served["rectangle/heldout/c/0/0"] == 0
    assert first == next(iter(here))

    hub.reset()
    hub.fail(f"GET .*/{RECTANGLE}", cut_after=100)
    hub.fail(f"GET .*/{RECTANGLE}", status=500)
    assert list(data) == list(here)
    assert len(slept) == 2
    assert hub.served[RECTANGLE] < 2.5 * stored

    remote, local = (lc.loading.Rectangle(place, batch_size=8, context_length=16) for place in (url, run / "rectangle"))
    assert len(remote) == len(local)
    np.testing.assert_array_equal(remote[-1]["targets"], local[-1]["targets"])
    hub.fail(f"GET .*/{RECTANGLE}", status=500, times=999)
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.01)
    with pytest.raises(NotYetError, match=f"{RECTANGLE}: cannot be fetched now"):
        lc.loading.Rectangle(url, batch_size=8)[0]


@pytest.mark.slow
def test_a_stream_from_the_hub_goes_on_from_the_part_before(hub, repo, run, monkeypatch):
    # A part is 2,048 rows, which share their chunks by 64; here it is one chunk, of four.
    monkeypatch.setattr(sys.modules[SOURCES["rectangle"].__module__], "PART_ROWS", 64)
    lc.push(run, repo, "private")
    settings = {"split": "train", "streaming": True, "context_length": LENGTH}
    url = f"hf://datasets/{repo}/rectangle"
    seen = list(datasets.load_dataset("longcrawl", "rectangle", data_dir=url, **settings))
    data, again = (datasets.load_dataset("longcrawl", "rectangle", data_dir=url, **settings) for _ in range(2))
    windows = iter(data)
    assert [next(windows) for _ in range(140)] == seen[:140]
    again.load_state_dict(json.loads(json.dumps(data.state_dict())))
    hub.reset()
    windows = iter(again)
    assert next(windows) == seen[140]
    # `datasets` reads on behind the last table before: of row 140, in the third part, this is the second.
    fetched = ("index", "second chunk", "index", "third chunk")
    assert hub.requests.count(f"GET /datasets/{repo}/resolve/main/{RECTANGLE}") == len(fetched)
    assert hub.served[RECTANGLE] < 0.7 * (run / RECTANGLE).stat().st_size
    assert list(windows) == seen[141:]


@pytest.mark.slow
def test_a_rectangle_on_the_hub_is_verified_by_the_digests_that_the_hub_lists(hub, repo, run):
    sent = lc.push(run, repo, "private")
    hub.reset()
    found = lc.verify(f"hf://datasets/{repo}")
    assert found.problems == ()
    assert "8 files compared with the SHA-256 that the Hub lists" in str(found)
    assert hub.served[RECTANGLE] == 0
    assert lc.verify(f"hf://datasets/{repo}/rectangle").problems == ()
    assert lc.inspect(f"hf://datasets/{repo}").text == lc.inspect(run).text

    heldout = (run / "rectangle/heldout/c/0/0").stat().st_size
    changed = {"rectangle/heldout/c/0/0": "\0" * heldout, "rectangle/train/c/0/0": "\0other"}
    commit(repo, **changed, **{"rectangle/train/c/1/0": "more", "recipe.yaml": "longcrawl: 1"})
    shown = CliRunner().invoke(app, ["verify", f"hf://datasets/{repo}"])
    assert shown.exit_code == 1
    assert "rectangle/heldout/c/0/0 has been changed: its SHA-256 differs" in shown.stdout
    assert "rectangle/train/c/0/0 has 6 bytes" in shown.stdout
    assert "rectangle/train/c/1/0 is not part of this output" in shown.stdout
    assert "recipe.yaml has 12 bytes" in shown.stdout
    assert lc.verify(f"hf://datasets/{repo}@{sent.tag}").problems == ()
    with pytest.raises(HubError, match="check the name"):
        lc.verify("hf://datasets/me/nothing")
    for name in (repo, f"{repo}/rectangle", "me/nothing"):
        with pytest.raises(
            HubError, match=f"hf://{name} is not the name of a dataset: write datasets/ .*, hf://datasets/{name}$"
        ):
            lc.verify(f"hf://{name}")
    for place in (f"hf://datasets/{repo}", run):
        with pytest.raises(FormatError, match=f"no split 'train'; known: .*; open the .* it, '{place}/rectangle'$"):
            lc.loading.Rectangle(place, batch_size=8)


def test_an_output_behind_any_url_is_verified_by_fetching_it(run, monkeypatch):
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    files = fsspec.filesystem("memory")
    files.put(str(run / "rectangle"), "/verified", recursive=True)
    try:
        (stranger,) = lc.verify("memory://verified").problems
        assert stranger == "train/c/0/0.partial-12 is not part of this output"
        files.pipe_file("/verified/train/c/0/0", bytes((run / RECTANGLE).stat().st_size))
        files.rm_file("/verified/tokenizer.json")
        assert {each.split(" ")[0] for each in lc.verify("memory://verified").problems} == {
            "train/c/0/0", "tokenizer.json", "train/c/0/0.partial-12",
        }  # fmt: skip
        with pytest.raises(FormatError, match="holds neither a run nor an output"):
            lc.verify("memory://verified/train")
        with pytest.raises(
            SourceError, match=r"127.0.0.1:9/x/manifest.json: cannot be fetched now .*Connect call failed"
        ):
            lc.verify("http://127.0.0.1:9/x")
        with pytest.raises(SourceError, match=r"nowhere://x cannot be reached .*Protocol not known.*check the URL"):
            lc.verify("nowhere://x")
        with pytest.raises(FormatError, match="hf:// is not a URL: write it as hf://datasets/user/name"):
            lc.verify("hf://")
    finally:
        files.rm("/verified", recursive=True)


@pytest.mark.slow
def test_verify_asks_a_server_again_that_does_not_answer_now(run, web_server, monkeypatch):
    # Each folder of the output is a question that fails once.
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "_silent", set())
    (stranger,) = lc.verify(web_server(run / "rectangle", before=[503])).problems
    assert stranger == "train/c/0/0.partial-12 is not part of this output"
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    with pytest.raises(NotYetError, match=r"manifest.json: cannot be fetched now \(ClientResponseError: 503"):
        lc.verify(web_server(run / "rectangle", before=[503] * 999))


def put(hub, repo: str, name: str, content: bytes) -> None:
    """Lay a file into a repository, as others may: no client looks at it."""
    there = hub.repositories[repo]
    there.commit("main", "by others", {**there.files(), name: hub.regular(content)})


@pytest.mark.slow
def test_a_description_of_others_leads_nowhere(hub, repo, run):
    lc.push(run, repo, "private")
    manifest = json.loads((run / "manifest.json").read_text())
    entry = {"bytes": 5, "sha256": "0" * 64}
    for name in ("../x", "/etc/passwd", "rectangle/../../x", "a//b", "", ".", "..\\x", "a\x1b[2J"):
        put(hub, repo, "manifest.json", seal({**manifest, "files": {name: entry}}).encode())
        hub.reset()
        with pytest.raises(FormatError, match="which is not a path inside its folder") as raised:
            lc.verify(f"hf://datasets/{repo}")
        assert "\x1b" not in str(raised.value)
        assert {asked.rpartition("/")[2] for asked in hub.requests if "/resolve/" in asked} == {"manifest.json"}
        with pytest.raises(HubError, match=r"holds manifest\.json, which was not pushed by a run of longcrawl"):
            lc.push(run, repo, "private")
    # A size that is not the Hub's needs no download.
    files = {"recipe.yaml": {**entry, "bytes": 10**18}}
    put(hub, repo, "manifest.json", seal({**manifest, "files": files}).encode())
    hub.reset()
    assert lc.verify(f"hf://datasets/{repo}").problems[0].endswith(" bytes, expected 1,000,000,000,000,000,000")
    assert hub.served["recipe.yaml"] == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
ENTRY = JSON | st.fixed_dictionaries(
    {}, optional={"bytes": JSON | st.just(4), "sha256": JSON | st.just(hashlib.sha256(b"here").hexdigest())}
)
FILES = JSON | st.dictionaries(st.sampled_from(["here", "README.md", "..", "a/b", "manifest.json"]), ENTRY, max_size=3)
DESCRIPTION = JSON | st.fixed_dictionaries(
    {"files": FILES},
    optional={"output": JSON | st.fixed_dictionaries({"format": JSON | st.just("rectangle")}), "sha256": JSON}
    | {"longcrawl_run": JSON, "longcrawl_push": JSON | st.just(1), "tag": JSON | st.just("run-0123456789ab")},
)


@st.composite
def descriptions(draw):
    told = draw(DESCRIPTION)
    if isinstance(told, dict) and draw(st.booleans()):
        return seal(told).encode(errors="surrogatepass")
    return draw(st.sampled_from([json.dumps(told).encode(), json.dumps(told).encode()[:-1], b"\xff", b"[" * 9999]))


def refusal(ask) -> str:
    """Return what is said where something is refused; any other error is one of the test."""
    try:
        ask()
    except LongCrawlError as wrong:
        return str(wrong)
    return ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=descriptions(), name=st.sampled_from(["manifest.json", "rectangle.json"]))
def test_whatever_a_url_describes_is_a_report_or_one_sentence(text, name):
    files = fsspec.filesystem("memory")
    files.pipe({f"/odd/{name}": text, "/odd/here": b"here"})
    try:
        assert "\n" not in refusal(lambda: lc.verify("memory://odd"))
    finally:
        files.rm("/odd", recursive=True)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(manifest=descriptions(), unfinished=descriptions())
def test_whatever_lies_on_the_hub_a_push_is_a_plan_or_one_sentence(hub, repo, run, manifest, unfinished):
    if repo not in hub.repositories:
        lc.push(run, repo, "private")
    there = hub.repositories[repo]
    whole = there.files(next(iter(there.tags)))
    for name, text in (("manifest.json", manifest), ("unfinished-push.json", unfinished)):
        there.commit("main", "by others", {**whole, name: hub.regular(text)})
        assert "\n" not in refusal(lambda: lc.push(run, repo, "private", dry_run=True))


def test_a_crawl_pushes_its_documents_and_its_ledger(hub, repo):
    documents = datasets.Dataset.from_dict({"id": ["a", "b"], "text": ["too short", "just about long enough"]})
    (lc.Crawl(documents) | lc.text.MinChars(12)).push_to_hub(repo, "private")
    assert hub.repositories[repo].private
    assert datasets.load_dataset(repo, split="train")["id"] == ["b"]
    assert datasets.load_dataset(repo, "ledger", split="removed")["id"] == ["a"]
    with pytest.raises(LongCrawlError, match="private or public"):
        lc.Crawl(documents).push_to_hub(repo, "yes")


def documents_of(count, **more):
    return lc.Crawl([{"id": str(number), "text": f"tide {number}", **more} for number in range(count)])


PUSHES = {
    "the same": [(12, 7, {}), (12, 7, {}), (12, 7, {})],
    "a ledger comes": [(12, 1, {}), (12, 7, {})],
    "a ledger goes": [(12, 7, {}), (20, 1, {})],
    "a column comes and goes": [(12, 1, {}), (12, 1, {"more": 1}), (12, 7, {})],
    "a column of another type": [(12, 1, {"more": 1}), (12, 1, {"more": "one"}), (12, 1, {"more": [1.5]})],
}


@pytest.mark.slow
@pytest.mark.parametrize("pushes", PUSHES.values(), ids=["same", "comes", "goes", "column", "type"])
def test_what_a_crawl_pushed_last_is_what_loads(hub, repo, pushes):
    for count, least, more in pushes:
        crawl = documents_of(count, **more) | lc.text.MinChars(least)
        crawl = crawl.map(lambda row: row["text"].upper(), name="upper") if least == 7 else crawl
        crawl.push_to_hub(repo, "private")
        kept = crawl.data.to_list()
        loaded = datasets.load_dataset(repo)
        assert loaded.keys() == {"train"}
        assert loaded["train"].features == crawl.data.features
        assert loaded["train"].to_list() == kept
        found = {
            "documents",
            *(["ledger"] if crawl.ledger.num_rows else []),
            *(["edits"] if crawl.edits.num_rows else []),
        }
        assert set(datasets.get_dataset_config_names(repo)) == found
        if "ledger" in found:
            assert datasets.load_dataset(repo, "ledger")["removed"]["id"][:] == crawl.ledger["id"].to_pylist()
        if "edits" in found:
            assert datasets.load_dataset(repo, "edits")["changed"]["id"][:] == crawl.edits["id"].to_pylist()
    changes = 1 + sum(before != after for before, after in itertools.pairwise(pushes))
    assert len(titles(hub, repo)) == changes


def test_a_crawl_without_documents_is_not_pushed(hub, repo):
    for crawl in (documents_of(3), lc.Crawl(documents_of(3).data.to_iterable_dataset())):
        with pytest.raises(HubError, match="no document remains"):
            (crawl | lc.text.MinChars(99)).push_to_hub(repo, "private")
    assert repo not in hub.repositories


def test_documents_replace_nothing_of_others(hub, repo, tmp_path):
    head = {"license": "mit", "configs": [{"config_name": "mine", "data_files": "a.parquet", "default": True}]}
    commit(repo, **{"README.md": f"---\n{yaml.safe_dump(head)}---\n# Mine\n"})
    datasets.Dataset.from_dict({"x": [1]}).to_parquet(tmp_path / "a.parquet")
    put(hub, repo, "a.parquet", (tmp_path / "a.parquet").read_bytes())
    documents_of(3).push_to_hub(repo, "private")
    assert len(datasets.load_dataset(repo)["train"]) == 3
    assert datasets.load_dataset(repo, "mine")["train"]["x"][:] == [1]
    assert "license: mit" in (card := on_hub(hub, repo)["README.md"].decode())
    assert card.endswith("# Mine\n")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"documents/notes.txt": "mine"}, "holds documents/notes.txt, which was not pushed by a crawl of longcrawl"),
        ({".gitignore": "*"}, r"holds a \.gitignore"),
        ({".huggingface.yaml": "license: mit"}, r"holds \.huggingface\.yaml, which overrides the configurations"),
        (
            {"README.md": "---\nconfigs:\n- config_name: default\n  data_files: a.csv\n---\n"},
            "has a configuration 'default'",
        ),
        ({"README.md": "---\nconfigs: mine\n---\n"}, "are not a list"),
        ({"README.md": "---\n{\n---\n"}, "cannot be read .*: fix it on the Hub"),
    ],
    ids=["file", "ignored", "other-card", "default", "configs", "YAML"],
)
def test_documents_that_would_mix_with_others_are_refused(hub, repo, there, said):
    commit(repo, LICENSE="mine")
    for name, content in there.items():
        put(hub, repo, name, content.encode())
    hub.reset()
    with pytest.raises(HubError, match=said):
        documents_of(3).push_to_hub(repo, "private")
    assert not [asked for asked in hub.requests if not asked.startswith(("GET", "HEAD"))]


def test_a_run_on_the_hub_answers_as_one_on_disk_and_is_only_read(hub, repo, run, tmp_path):
    lc.push(run, repo, "private")
    url, kept = f"hf://datasets/{repo}", lc.report.RectangleResult().ids(run / "rectangle").head(1)["id"][0].as_py()
    assert str(lc.why(url, kept)) == str(lc.why(run, kept))
    assert repr(lc.funnel(url)) == repr(lc.funnel(run))
    hub.reset()
    told = rf"^{url}/\S+ cannot be written, since runs are only read from there: fetch the run, .*longcrawl push"
    for write in (lc.card, lc.write_report):
        with pytest.raises(RunError, match=told):
            write(url)
    assert lc.write_report(url, tmp_path / "a.html") == tmp_path / "a.html"
    assert hub.sent() == {}
    with pytest.raises(RunError, match="^no finished run at hf://datasets/me/nothing, which has no manifest"):
        lc.funnel("hf://datasets/me/nothing")
