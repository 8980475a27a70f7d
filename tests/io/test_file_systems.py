"""Responses of servers and retries, with real servers on this machine."""

import email.utils
import errno
import gc
import gzip
import http.server
import itertools
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
import tomllib
import weakref
from pathlib import Path

import fsspec
import pytest

from longcrawl.core.sources import BadFiles, make_source
from longcrawl.errors import NotYetError, SourceError
from longcrawl.io import file_systems
from longcrawl.io.file_systems import file_system_of
from longcrawl.sources import blocks, files

DOCUMENTS = b"".join(json.dumps({"text": f"document {number}"}).encode() + b"\n" for number in range(9))


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers with what the server's ``script`` says of a path: its content after statuses and cut answers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append((self.command, self.path, time.monotonic()))
        content, answers = self.server.script.get(path, (b"", itertools.repeat(404)))
        answer = next(answers, 200) if self.command == "GET" else 200
        status, *headers = answer if isinstance(answer, tuple) else (answer,)
        body = content if status in (200, "cut") else b"not now"
        self.send_response(200 if status == "cut" else status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: len(body) // 2] if status == "cut" else body)
        if status == "cut":
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815  # the name that the standard library calls

    def log_message(self, *args):
        pass


@pytest.fixture
def scripted(monkeypatch):
    """Return a function that starts a server with a script and returns it; pauses are of milliseconds."""
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "_silent", set())
    servers = []

    def serve(**script):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
        server.script = {
            f"/{name.replace('__', '.')}": (body, iter(answers)) for name, (body, answers) in script.items()
        }
        server.asked = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def gets(server):
    return [path for command, path, _ in server.asked if command == "GET"]


@pytest.mark.parametrize(
    "answers", [[503] * 8, [500, 502, 504], [429] * 5, [408], ["cut"] * 3, [(503, ("Retry-After", "0"))]], ids=str
)
def test_a_server_is_asked_until_it_answers(scripted, answers):
    server = scripted(a__gz=(gzip.compress(DOCUMENTS), answers))
    assert list(blocks.read_blocks(f"{server.url}/a.gz")) == [DOCUMENTS]
    assert len(gets(server)) == len(answers) + 1


@pytest.mark.parametrize("spelled", ["seconds", pytest.param("date", marks=pytest.mark.slow)])
def test_retry_after_is_honoured(scripted, spelled):
    wait = "1" if spelled == "seconds" else email.utils.formatdate(time.time() + 2, usegmt=True)
    server = scripted(a=(b"text", [(429, ("Retry-After", wait))]))
    started = time.monotonic()
    assert blocks.read_bytes(f"{server.url}/a") == b"text"
    assert 0.9 < time.monotonic() - started < 30


def test_a_wait_that_is_longer_than_the_patience_is_not_waited_for(scripted):
    server = scripted(a=(b"text", [(503, ("Retry-After", "86400"))]))
    with pytest.raises(NotYetError, match=r"/a: cannot be fetched now \(ClientResponseError: 503.*asked once"):
        blocks.read_bytes(f"{server.url}/a")


@pytest.mark.parametrize("status", [404, 410])
def test_missing_files_are_missing_at_once(scripted, status):
    server = scripted(a=(b"", itertools.repeat(status)))
    with pytest.raises(files.DamagedFileError, match="is missing"):
        blocks.read_bytes(f"{server.url}/a")
    assert len(gets(server)) == 1
    assert files.fetch_texts([f"{server.url}/a"]) == {f"{server.url}/a": None}
    with pytest.raises(files.DamagedFileError, match="is missing"), files.opened(f"{server.url}/b"):
        pass


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_are_one_sentence_at_once_and_no_policy_skips_them(scripted, status):
    server = scripted(a__jsonl=(b"", itertools.repeat(status)))
    source = make_source("text", {"data_files": f"{server.url}/a.jsonl", "on_bad_files": "skip"})
    with pytest.raises(NotYetError, match=r"a.jsonl: the server does not allow it .*Check your credentials"):
        list(source.read(source.splits()["train"][0], BadFiles("skip")))
    assert len(gets(server)) == 1


@pytest.mark.parametrize("policy", ["error", "warn", "skip"])
def test_an_outage_is_not_yet_under_every_policy(scripted, policy, monkeypatch):
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    server = scripted(a__jsonl=(DOCUMENTS, itertools.repeat(503)), b__warc=(DOCUMENTS, itertools.repeat(503)))
    for name, file in (("text", "a.jsonl"), ("warc", "b.warc")):
        source = make_source(name, {"data_files": f"{server.url}/{file}", "on_bad_files": policy})
        bad_files = BadFiles(policy)
        with pytest.raises(NotYetError, match=f"{file}: cannot be fetched now"):
            list(source.read(source.splits()["train"][0], bad_files))
        assert bad_files.found == []


def test_a_refused_connection_and_an_unknown_host_are_not_yet(monkeypatch):
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for host in (f"127.0.0.1:{port}", "nowhere.invalid"):
        for read in (
            blocks.read_bytes,
            lambda url: files.opened(url).__enter__(),
            lambda url: files.fetch_texts([url]),
        ):
            with pytest.raises(NotYetError, match=f"http://{host}/a: cannot be fetched now"):
                read(f"http://{host}/a")
        with pytest.raises(NotYetError, match="cannot be fetched now"):
            files.list_tree(f"http://{host}/folder/")


def test_after_one_files_patience_others_of_a_silent_host_are_asked_once(scripted):
    down = [503, 503, (503, ("Retry-After", "86400"))]
    server = scripted(a=(b"1", down), b=(b"2", [503]), c=(b"3", [503, 503]))
    with pytest.raises(NotYetError, match="asked 3 times"):
        blocks.read_bytes(f"{server.url}/a")
    with pytest.raises(NotYetError, match="asked once"):
        blocks.read_bytes(f"{server.url}/b")
    assert blocks.read_bytes(f"{server.url}/b") == b"2"
    assert blocks.read_bytes(f"{server.url}/c") == b"3"


def test_a_listing_that_fails_is_no_empty_folder(scripted, monkeypatch):
    page = b'<a href="x.jsonl">x</a> <a href="deep/">deep</a>'
    script = {"raw/": (page, [503]), "raw/x__jsonl": (b"", [])}
    server = scripted(**script)
    server.script["/raw/deep/"] = (b'<a href="y.jsonl">y</a>', iter([500, 429]))
    assert files.list_tree(f"{server.url}/raw/") == ["deep/y.jsonl", "x.jsonl"]
    assert files.match_remote(f"{server.url}/raw/*.jsonl") == [f"{server.url}/raw/x.jsonl"]
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    server.script["/raw/deep/"] = (b"", itertools.repeat(500))
    for listing in (files.list_tree, lambda url: files.match_remote(f"{url}**/*.jsonl")):
        with pytest.raises(NotYetError, match="raw/.*: cannot be fetched now"):
            listing(f"{server.url}/raw/")
    server.script["/raw/deep/"] = (b"", itertools.repeat(404))
    assert files.list_tree(f"{server.url}/raw/") == ["x.jsonl"]


def test_a_protocol_that_needs_a_package_is_one_sentence():
    with pytest.raises(SourceError, match=r"nowhere://a cannot be reached .*Install the package of its protocol"):
        files.list_tree("nowhere://a")


@pytest.mark.parametrize(("protocol", "package", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs")])
def test_a_store_without_its_package_names_the_extra(monkeypatch, protocol, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, protocol, raising=False)
    source = make_source("text", {"data_files": f"{protocol}://bucket/*.jsonl"})
    fix = f"{protocol}://bucket/.* cannot be reached .*. Run pip install 'longcrawl\\[{extra}\\]'$"
    with pytest.raises(SourceError, match=fix):
        source.splits()
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert extras["project"]["optional-dependencies"][extra][0].startswith(package)


class StorageError(OSError):
    """An error as botocore raises it, whose package need not be installed."""

    def __init__(self, status, code="Other"):
        super().__init__(f"status {status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (StorageError(503), "later"),
        (StorageError(403), "forbidden"),
        (StorageError(404), "missing"),
        (StorageError(404, "NoSuchBucket"), "no_bucket"),
        (StorageError(412), "replaced"),
        (FileNotFoundError("x"), "missing"),
        (PermissionError("x"), "forbidden"),
        (TimeoutError(), "later"),
        (fsspec.exceptions.FSTimeoutError(), "later"),
        (ConnectionResetError(), "later"),
        (socket.gaierror("no such host"), "later"),
        (KeyError("name"), "unknown"),
    ],
    ids=repr,
)
def test_errors_of_other_file_systems(failed, kind):
    assert file_systems.verdict_of(failed).kind == kind
    hidden = FileNotFoundError("fsspec says so of every failure")
    hidden.__cause__ = failed
    assert file_systems.verdict_of(hidden).kind == (kind if kind != "unknown" else "missing")


def test_a_disk_that_is_full_is_not_asked_about_again():
    def fetched():
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        file_systems.ask("s3://bucket/file", fetched)


def test_a_forked_process_does_not_close_the_file_systems_of_its_parent():
    """fsspec drops them in the child; what their finalizers close belongs to the event loop of the parent."""
    closed = weakref.finalize(file_system_of("http://127.0.0.1:1/a")[0], int)

    def child() -> None:
        file_system_of("http://127.0.0.1:1/a")
        gc.collect()
        os._exit(not closed.alive)

    forked = multiprocessing.get_context("fork").Process(target=child)
    forked.start()
    forked.join()
    assert forked.exitcode == 0
