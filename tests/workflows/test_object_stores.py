"""Runs that read objects of a store: a real S3 server on this machine (moto's), with its outages and its errors."""

import gzip
import itertools
import json
import random
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

import longcrawl as lc
from longcrawl.core.sources import BadFiles, make_source
from longcrawl.errors import NotYetError, RecipeError, RunError, SourceError
from longcrawl.io import file_systems
from longcrawl.io.file_systems import fetch
from longcrawl.run.job import _Job
from longcrawl.sources import files

NAMES = ("a.jsonl.gz", "50% of ü #1.jsonl.gz", "deep/%41 +&=b.jsonl.gz")
"""Keys with a space, signs that URLs escape, what looks escaped, and letters beyond ASCII."""


def documents(first: int, count: int = 20) -> bytes:
    rows = ({"id": f"d{number}", "text": f"a text of number {number} " * 5} for number in range(first, first + count))
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    (folder / "deep").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(documents(number * 15))
    return folder


def write_recipe(folder: Path, **source: object) -> Path:
    file = folder / "recipe.yaml"
    spec = {"longcrawl": 1, "name": "t", "stages": ["exact_documents"], "outputs": {"parquet": {}}}
    source = {"builder": "text", "id_field": "id", "on_duplicate_ids": "keep_first"} | source
    file.write_text(yaml.safe_dump(spec | {"source": source}))
    return file


def manifest_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "manifest.json").read_text())


def without_names(out: Path) -> dict[str, Any]:
    """A manifest but for the names of its inputs, and for the digests of what has these names in it."""
    manifest = manifest_of(out)
    manifest["recipe"].pop("source")
    for name in ("sha256", "digest"):
        manifest.pop(name)
    for name in ("recipe.yaml", "README.md"):
        manifest["files"].pop(name)
    for read in manifest["inputs"].values():
        for file in read:
            assert set(file) <= {"file", "bytes", "sha256", "etag"}
            file.pop("file")
            file.pop("etag", None)
    return manifest


def test_objects_give_the_manifest_of_local_files(store, raw, tmp_path):
    store.put_folder(raw)
    lc.run(write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "local")
    lc.run(write_recipe(tmp_path, data_files=[store.url("*.jsonl.gz"), store.url("deep/*")]), tmp_path / "globs")
    lc.run(write_recipe(tmp_path, data_dir=f"s3://{store.bucket}"), tmp_path / "folder", 2)
    expected = without_names(tmp_path / "local")
    assert sorted(expected["inputs"]) == sorted(NAMES)
    for out in ("globs", "folder"):
        assert without_names(tmp_path / out) == expected
        for name in NAMES:
            (file,) = manifest_of(tmp_path / out)["inputs"][name]
            tag = store.client.head_object(Bucket=store.bucket, Key=name)["ETag"]
            assert (file["file"], file["etag"]) == (store.url(name), tag.strip('"'))


def warc_bytes(number: int) -> bytes:
    page = f"<p>Page {number}</p>".encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
        f"WARC-Target-URI: https://example.org/{number}\r\nContent-Type: application/http\r\n"
        f"Content-Length: {len(answer)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + answer + b"\r\n\r\n", mtime=0)


def pages(**settings: object) -> list[dict[str, Any]]:
    source = make_source("warc", settings)
    parts = source.splits()["train"]
    return [row for part in parts for table in source.read(part, BadFiles()) for row in table.to_pylist()]


def test_web_archives_are_read_by_folder_glob_and_list_of_paths(store, tmp_path):
    for number in range(3):
        file = tmp_path / f"crawl/segment {number}/a.warc.gz"
        file.parent.mkdir(parents=True)
        file.write_bytes(warc_bytes(2 * number) + warc_bytes(2 * number + 1))
    store.put_folder(tmp_path)
    local = pages(data_dir=str(tmp_path / "crawl"))
    assert len(local) == 6
    assert pages(data_dir=store.url("crawl")) == local
    assert pages(data_files=store.url("crawl/**/*.warc.gz")) == local
    store.put(
        "warc.paths.gz", gzip.compress("".join(f"crawl/segment {each}/a.warc.gz\n" for each in range(3)).encode())
    )
    listed = pages(paths=store.url("warc.paths.gz"), base_url=store.url(), files="1:3")
    assert [row["html"] for row in listed] == [row["html"] for row in local[2:]]
    source = make_source("warc", {"paths": store.url("warc.paths.gz"), "base_url": store.url()})
    assert source.lists()[store.url("warc.paths.gz")]["paths"] == 3


@pytest.mark.slow
def test_web_archives_give_the_manifest_of_local_files(store, tmp_path):
    folder = tmp_path / "crawl"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.warc.gz").write_bytes(warc_bytes(2 * number) + warc_bytes(2 * number + 1))
    store.put_folder(folder)
    spec = {"longcrawl": 1, "name": "t", "stages": [], "outputs": {"parquet": {}}}
    for out, where in (("local", str(folder)), ("store", f"s3://{store.bucket}")):
        recipe = tmp_path / f"{out}.yaml"
        recipe.write_text(yaml.safe_dump(spec | {"source": {"builder": "warc", "data_dir": where}}))
        lc.run(recipe, tmp_path / out)
    assert without_names(tmp_path / "store") == without_names(tmp_path / "local")


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["503 SlowDown", "500 InternalError"])
def test_a_server_that_fails_now_and_then_changes_nothing(store, raw, tmp_path, answer):
    store.put_folder(raw)
    lc.run(write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "local")
    chance = random.Random(0)
    store.answers = (answer if chance.random() < 0.3 else None for _ in itertools.count())
    lc.run(write_recipe(tmp_path, data_dir=store.url()), tmp_path / "out")
    assert without_names(tmp_path / "out") == without_names(tmp_path / "local")


@pytest.mark.slow
def test_an_outage_leaves_parts_open_and_the_same_command_reads_them(store, raw, tmp_path, monkeypatch):
    store.put_folder(raw)
    recipe = write_recipe(tmp_path, data_dir=store.url())
    lc.run(recipe, tmp_path / "whole")
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    store.answers = itertools.chain([None] * 2, itertools.repeat("503 SlowDown"))
    with pytest.raises(RunError, match="still open.*cannot be fetched now"):
        lc.run(recipe, tmp_path / "out")
    store.answers = iter(())
    lc.run(recipe, tmp_path / "out")
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()


@pytest.mark.slow
def test_a_key_that_is_replaced_between_two_attempts_is_found(store, raw, tmp_path, monkeypatch):
    store.put_folder(raw)
    recipe = write_recipe(tmp_path, data_dir=store.url())

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_Job, "_write_output", stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, tmp_path / "out")
    store.put(NAMES[0], documents(500))
    with pytest.raises(RunError, match=r"a\.jsonl\.gz has changed since .* its entity tag was \w+ and is \w+"):
        lc.run(recipe, tmp_path / "out")
    store.put(NAMES[0], (raw / NAMES[0]).read_bytes())
    lc.run(recipe, tmp_path / "out")
    lc.run(recipe, tmp_path / "whole")
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()


def test_a_key_that_is_replaced_while_it_is_read_is_not_mixed(store):
    store.put("a.bin", b"a" * 1_000)
    with files.opened(store.url("a.bin"), 100) as file:
        assert file.read(100) == b"a" * 100
        store.put("a.bin", b"b" * 1_000)
        with pytest.raises(NotYetError, match=r"a\.bin was replaced while it was read\. Run the same command again"):
            file.read(100)


def test_ranges_of_an_object_are_fetched(store):
    """The second argument of ``cat_file`` is a version in s3fs, and the first byte elsewhere."""
    store.put("a.bin", bytes(range(100)))
    assert fetch(store.url("a.bin"), 10, 20) == bytes(range(10, 20))
    assert fetch(store.url("a.bin"), 0, 1_000) == bytes(range(100))
    assert fetch(store.url("a.bin"), 90) == bytes(range(90, 100))


def test_a_listing_of_before_is_not_believed(store):
    store.put("x/a.jsonl", b"1\n")
    assert files.list_tree(store.url("x")) == ["a.jsonl"]
    store.put("x/b.jsonl", b"2\n")
    store.put("x/a.jsonl", b"12345\n")
    assert files.list_tree(store.url("x")) == ["a.jsonl", "b.jsonl"]
    files.list_tree(store.url("x"))
    store.put("x/a.jsonl", b"123456789\n")
    with files.opened(store.url("x/a.jsonl")) as file:
        assert file.read() == b"123456789\n"


def train(**settings: object) -> list[Any]:
    source = make_source("text", settings)
    return [table for part in source.splits()["train"] for table in source.read(part, BadFiles(source.on_bad_files))]


def test_what_a_store_does_not_give_is_one_sentence(store):
    for settings in (
        {"data_files": "s3://no-such-bucket/*.jsonl"},
        {"data_files": "s3://no-such-bucket/a.jsonl", "on_bad_files": "skip"},
        {"data_dir": "s3://no-such-bucket/raw"},
    ):
        with pytest.raises(SourceError, match=r"s3://.*: the server has no bucket 'no-such-bucket'\. Check its name"):
            train(**settings)
    with pytest.raises(SourceError, match=r"no file matches 's3://.*/x/\*\.jsonl'; check data_files"):
        train(data_files=store.url("x/*.jsonl"))
    with pytest.raises(SourceError, match=r"holds no file that can be read; known endings"):
        train(data_dir=store.url("x"))
    with pytest.raises(SourceError, match=r"/x\.jsonl: is missing; to continue without it, set on_bad_files"):
        train(data_files=store.url("x.jsonl"))
    assert train(data_files=store.url("x.jsonl"), on_bad_files="skip") == []


@pytest.mark.parametrize("answer", ["403 AccessDenied", "403 InvalidAccessKeyId", "403 SignatureDoesNotMatch"])
def test_a_store_that_denies_access_is_one_sentence_at_once(store, answer):
    store.put("a.jsonl", b'{"text": "one"}\n')
    for settings in (
        {"data_files": store.url("*.jsonl")},
        {"data_files": store.url("a.jsonl"), "on_bad_files": "skip"},
    ):
        store.asked.clear()
        store.answers = itertools.repeat(answer)
        with pytest.raises(NotYetError, match=r"s3://.*: the server does not allow it .*AWS_PROFILE.*same command"):
            train(**settings)
        assert len(store.asked) == 1


def test_missing_credentials_are_one_sentence(store, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    store.put("a.jsonl", b'{"text": "one"}\n')
    message = r"does not allow it \(NoCredentialsError.*anon: true"
    with store.read_environment_again(), pytest.raises(NotYetError, match=message):
        train(data_files=store.url("*.jsonl"))
    store.client.put_bucket_acl(Bucket=store.bucket, ACL="public-read")
    store.client.put_object_acl(Bucket=store.bucket, Key="a.jsonl", ACL="public-read")
    (table,) = train(data_files=store.url("*.jsonl"), storage_options={"anon": True})
    assert table["text"].to_pylist() == ["one"]


def test_a_refused_connection_is_not_yet(store, monkeypatch):
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "config_kwargs": {"retries": {"max_attempts": 0}}}
    options |= {"client_kwargs": {"region_name": "us-east-1"}}
    with pytest.raises(NotYetError, match=r"s3://.*: cannot be fetched now .*127.0.0.1.*Check the endpoint, or run"):
        train(data_files=store.url("*.jsonl"), storage_options=options)


@pytest.mark.slow
def test_an_endpoint_of_the_recipe_reaches_every_process(store, raw, tmp_path, monkeypatch):
    store.put_folder(raw)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("LONGCRAWL_RETRY_SECONDS", "1")
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 1)
    options = {"endpoint_url": store.endpoint, "use_ssl": False}
    with store.read_environment_again():
        lc.run(write_recipe(tmp_path, data_dir=store.url(), storage_options=options), tmp_path / "out", 2)
    manifest = manifest_of(tmp_path / "out")
    assert manifest["recipe"]["source"]["storage_options"] == options
    assert [file["file"] for (file,) in manifest["inputs"].values()] == [store.url(name) for name in sorted(NAMES)]
    texts = [file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert not any(b"hidden" in text or b"://options:" in text for text in texts)


def test_a_recipe_without_options_is_as_before(raw):
    assert "storage_options" not in make_source("text", {"data_dir": str(raw)}).settings()


@pytest.mark.parametrize(
    "options",
    [
        {"key": "me", "secret": "hidden"},
        {"secret": "hidden"},
        {"token": "hidden"},
        {"client_kwargs": {"aws_session_token": "hidden"}},
        {"account_key": "hidden"},
        {"connection_string": "hidden"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_credentials_in_a_recipe_are_rejected(tmp_path, options):
    with pytest.raises(RecipeError, match="storage_options has '.*credentials in the environment") as raised:
        lc.run(write_recipe(tmp_path, data_dir="s3://bucket", storage_options=options), tmp_path / "out")
    assert "hidden" not in str(raised.value)
    make_source("text", {"data_dir": "gs://bucket", "storage_options": {"token": "anon", "project": "p"}})
