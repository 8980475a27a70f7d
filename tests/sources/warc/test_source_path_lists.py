"""Lists of paths, as Common Crawl publishes them: slices, hostile and broken lines, runs from a server and a mirror."""

import functools
import gzip
import hashlib
import http.server
import json
import os
import pickle
import shutil
import threading
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from datasets import load_dataset
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.sources import BadFiles
from longcrawl.errors import NotYetError, RecipeError, RunError, SourceError
from longcrawl.io import file_systems
from longcrawl.run.card.write import local_paths
from longcrawl.run.job import _Job
from longcrawl.run.recipe import load_recipe
from longcrawl.sources.warc.source import Warc
from longcrawl.urls import is_url

NAMES = [f"crawl-data/CC-MAIN-2024-10/segments/{n // 2}/wet/CC-MAIN-2024-{n:05}.warc.wet.gz" for n in range(6)]
LIST = "wet.paths.gz"


def archive(number: int) -> bytes:
    texts = [f"page {page} of file {number} says {'more and ' * (page + 3)}".encode() for page in range(4)]
    heads = [
        f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Record-ID: <urn:uuid:{number}-{page}>\r\n"
        f"WARC-Target-URI: https://example.org/{number}/{page}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(text)}\r\n\r\n".encode()
        for page, text in enumerate(texts)
    ]
    return b"".join(gzip.compress(head + text + b"\r\n\r\n", mtime=0) for head, text in zip(heads, texts, strict=True))


def write_list(folder: Path, lines: list[str], name: str = LIST, end: str = "\n") -> Path:
    content = end.join([*lines, ""]).encode()
    (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return folder / name


@pytest.fixture
def dump(tmp_path) -> Path:
    """Return a folder that mirrors a dump of six files, with their list."""
    folder = tmp_path / "dump"
    for number, name in enumerate(NAMES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(archive(number))
    write_list(folder, NAMES)
    return folder


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(file_systems, "_silent", set())


def mirrored(folder: Path, files: str | None = None, **settings) -> Warc:
    return Warc(paths=str(folder / LIST), base_url=str(folder), files=files, **settings)


def names(source: Warc) -> list[str]:
    return [part.name for part in source.splits()["train"]]


def rows(source: Warc) -> list[dict]:
    parts = source.splits()["train"]
    return [row for part in parts for table in source.read(part, BadFiles("error")) for row in table.to_pylist()]


def write_recipe(folder: Path, **source: object) -> Path:
    spec = {"longcrawl": 1, "name": "dump", "stages": ["exact_documents"], "outputs": {"parquet": {}}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(spec | {"source": {"builder": "warc", **source}}))
    return folder / "recipe.yaml"


def manifest_of(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


def test_a_list_that_was_read_is_not_read_again_without_digests(dump):
    source = mirrored(dump)
    read = names(source)
    (dump / LIST).unlink()
    assert names(source.for_tokens([])) == read


def test_a_server_and_a_mirror_give_the_same_documents(dump, web_server):
    url = web_server(dump)
    remote = Warc(paths=f"{url}/{LIST}", base_url=url, files="1:5:2")
    assert [part.files for part in remote.splits()["train"]] == [(f"{url}/{NAMES[1]}",), (f"{url}/{NAMES[3]}",)]
    found = rows(remote)
    assert found == rows(mirrored(dump, "1:5:2"))
    assert [row["id"] for row in found] == [f"<urn:uuid:{number}-{page}>" for number in (1, 3) for page in range(4)]
    assert {row["source"] for row in found} == {NAMES[1], NAMES[3]}
    assert all(row["text"].startswith("page ") for row in found)
    settings = {"paths": f"{url}/{LIST}", "base_url": f"{url}/", "files": "1:5:2", "split": "train", "streaming": True}
    assert [row["id"] for row in load_dataset("longcrawl", "warc", **settings)] == [row["id"] for row in found]


def test_the_base_of_common_crawl_is_the_default(dump):
    (part,) = Warc(paths=str(dump / LIST), files="5:6").splits()["train"]
    assert part.files == (f"https://data.commoncrawl.org/{NAMES[5]}",)


@pytest.mark.parametrize(
    ("files", "numbers"),
    [
        (None, [0, 1, 2, 3, 4, 5]),
        ("0:2", [0, 1]),
        ("4:", [4, 5]),
        (":1", [0]),
        (":", [0, 1, 2, 3, 4, 5]),
        ("0:6:4", [0, 4]),
        ("1::2", [1, 3, 5]),
        ("5:6:900", [5]),
    ],
)
def test_a_slice_counts_paths_and_not_lines(dump, files, numbers):
    assert names(mirrored(dump, files)) == [NAMES[number] for number in numbers]
    blank = ["", *(line for name in NAMES for line in (f" {name} ", ""))]
    write_list(dump, blank, end="\r\n")
    assert names(mirrored(dump, files)) == [NAMES[number] for number in numbers]
    assert mirrored(dump, files).lists()[str(dump / LIST)]["paths"] == 6


@pytest.mark.parametrize("files", ["3:3", "5:2", "0:9:0", ":0"])
def test_an_empty_slice_is_one_sentence(dump, files):
    with pytest.raises(SourceError, match=r"^files '.*' selects no path: set it to START:STOP with START below STOP"):
        mirrored(dump, files)


@pytest.mark.parametrize("files", ["-1:3", "1", "", "a:b", "0:1:2:3", 620, {1000: None}, True, "0:" + "9" * 40])
def test_what_is_no_slice_is_one_sentence(dump, files):
    with pytest.raises(SourceError, match=r"^files takes a slice in quotes, such as '0:1000' .*got .*source.files="):
        mirrored(dump, files)


@pytest.mark.parametrize("files", ["0:7", "6:", "6:9", "0:90000:90"])
def test_a_slice_beyond_the_list_names_the_slice_of_all(dump, files):
    with pytest.raises(SourceError, match=rf"files is '{files}', and {dump / LIST} has 6 paths: set .* of '0:6'"):
        names(mirrored(dump, files))


HOSTILE = [
    "../../etc/passwd",
    "crawl-data/../../../x.warc.gz",
    "crawl-data/%2e%2e/%2E%2e/x.warc.gz",
    "/etc/x.warc.gz",
    "file:///etc/x.warc.gz",
    "http://169.254.169.254/x.warc.gz",
    "s3://bucket/x.warc.gz",
    "memory://x.warc.gz",
    "simplecache::file:x.warc.gz",
    "a/b::c/x.warc.gz",
    "./x.warc.gz",
    "a//x.warc.gz",
    "..\\x.warc.gz",
    "x.warc.gz?as=root",
    "x.html#.warc.gz",
    "x\x1b[31m.warc.gz",
    "x\0.warc.gz",
]


@pytest.mark.variants
@pytest.mark.parametrize("line", HOSTILE)
@pytest.mark.parametrize("base", ["https://data.commoncrawl.org/", "folder"])
def test_a_line_that_leads_elsewhere_is_refused(dump, line, base, tmp_path):
    write_list(dump, [NAMES[0], "", line])
    base = str(dump) if base == "folder" else base
    with pytest.raises(SourceError) as raised:
        names(Warc(paths=str(dump / LIST), base_url=base))
    said = str(raised.value)
    assert said.startswith(f"{dump / LIST}, line 3: ")
    assert f"is not a path below {base.rstrip('/')}/: correct the line, or set base_url to" in said
    assert said.isprintable()
    assert names(Warc(paths=str(dump / LIST), base_url=base, files="0:1")) == [NAMES[0]]


@given(
    st.lists(
        st.sampled_from(["..", ".", "", "a", "%2e", "%2E%2e", "%2f", "~", "file:", "http:", "::", "\\", "?", "#", " "])
    ),
    st.sampled_from(["/", ""]),
)
def test_whatever_a_line_says_its_file_is_below_the_base(tmp_path_factory, steps, between):
    folder = tmp_path_factory.getbasetemp() / "base"
    folder.mkdir(exist_ok=True)
    line = between.join(steps) + ".warc.gz"
    (folder / "a.paths").write_text(f"{line}\n")
    for base in (str(folder), "https://host.example/cc"):
        try:
            (part,) = Warc(paths=str(folder / "a.paths"), base_url=base).splits()["train"]
        except SourceError:
            continue
        (file,) = part.files
        below = urlsplit(file).path if "://" in base else file
        root = urlsplit(base).path if "://" in base else base
        assert os.path.normpath(unquote(below)) == unquote(below)
        assert unquote(below).startswith(f"{root}/")
        assert is_url(file) == is_url(base)


def test_a_host_that_only_begins_like_the_base_is_elsewhere(dump):
    write_list(dump, [f"https://data.commoncrawl.org.evil.example/{NAMES[0]}"])
    with pytest.raises(SourceError, match=r"is not a path below https://data.commoncrawl.org/: correct the line"):
        names(Warc(paths=str(dump / LIST)))


@pytest.mark.parametrize("written", ["{base}/{name}", "file://{base}/{name}"])
def test_whole_paths_below_the_base_are_those_paths(dump, written):
    write_list(dump, [written.format(base=dump, name=name) for name in NAMES])
    assert names(mirrored(dump)) == NAMES
    assert mirrored(dump).splits()["train"][2].files == (str(dump / NAMES[2]),)


def test_whole_urls_below_the_base_are_those_paths(dump):
    write_list(dump, [f"https://mirror.example/cc/{name}" for name in NAMES], "list.paths")
    listed = Warc(paths=str(dump / "list.paths"), base_url="https://mirror.example/cc/").splits()["train"]
    assert [part.name for part in listed] == NAMES
    assert listed[0].files == (f"https://mirror.example/cc/{NAMES[0]}",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (LIST, gzip.compress("\n".join(NAMES * 99).encode())[:-20], "is cut: it ends before .*: fetch it again"),
        (LIST, gzip.compress(b"x" * 999)[:-8] + b"\xff" * 8, "is corrupt: .*: fetch it again"),
        (LIST, b"", "is cut"),
        (LIST, b"<\x01html>", "corrupt: no gzip data: fetch it again"),
        ("a.paths", b"", "has 0 paths: check paths"),
        ("a.paths", b"\r\n \n", "has 0 paths: check paths"),
        ("a.paths", b"crawl-data/\xff.warc.gz\n", "line 1 is not UTF-8: check paths"),
        ("a.paths", b"crawl-data/" + b"x" * 5000 + b".warc.gz\n", "line 1 has more than 4,096 bytes: check paths"),
        ("a.paths", b"<!doctype html>\n", "line 1: '<!doctype html>' does not end in .warc, .* or use data_files"),
        ("a.paths", b"crawl-data/CC-MAIN-1.warc.wat.gz\n", r"line 1: .*wat.gz' does not end in .* set paths to a list"),
        ("a.paths", NAMES[0].encode()[:-4], "does not end in .warc"),
    ],
    ids=["cut", "flipped", "nothing", "plain", "empty", "blank", "bytes", "long", "html", "wat", "half"],
)
def test_a_broken_list_is_one_sentence_under_every_policy(dump, name, content, message):
    (dump / name).write_bytes(content)
    for policy in ("error", "skip"):
        with pytest.raises(SourceError, match=rf"{name}.*{message}"):
            Warc(paths=str(dump / name), base_url=str(dump), on_bad_files=policy).splits()


def test_settings_that_contradict_each_other_are_one_sentence(dump):
    listed = str(dump / LIST)
    with pytest.raises(SourceError, match=r"paths beside data_dir or data_files: set only one"):
        Warc(paths=listed, data_files="a.warc.gz")
    with pytest.raises(SourceError, match=r"files or base_url without paths: set paths to a list such as warc.paths"):
        Warc(data_dir=str(dump), files="0:3")
    with pytest.raises(SourceError, match=r"gone is not a folder: set base_url to the folder or URL"):
        names(Warc(paths=listed, base_url=str(dump / "gone")))
    with pytest.raises(SourceError, match=r"the list .*gone.paths.gz is missing: check paths"):
        names(Warc(paths=str(dump / "gone.paths.gz")))
    with pytest.raises(SourceError, match=rf"paths names {listed} twice: list each file once"):
        names(Warc(paths=(listed, listed), base_url=str(dump)))
    with pytest.raises(RecipeError, match=r"source 'warc': files takes a slice in quotes.* got 620"):
        load_recipe("refinedweb", [f"source.paths={listed}", "source.files=10:20"])


def test_lists_follow_each_other_and_a_repeated_path_is_read_once(dump):
    write_list(dump, NAMES[:4], "one.paths.gz")
    write_list(dump, NAMES[2:], "two.paths")
    paths = (str(dump / "two.paths"), str(dump / "one.paths.gz"))
    source = Warc(paths=paths, base_url=str(dump))
    with pytest.warns(UserWarning, match=r"2 lines of .*two.paths, .*one.paths.gz repeat a path: each file is read"):
        assert names(source) == NAMES
    assert [each["paths"] for each in source.lists().values()] == [4, 4]
    assert names(Warc(paths=paths, base_url=str(dump), files="3:6")) == [NAMES[0], NAMES[1], NAMES[5]]


def test_tasks_do_not_carry_the_list(dump):
    source = mirrored(dump)
    before = pickle.dumps(source)
    assert names(source) == NAMES
    assert pickle.dumps(source) == before
    again = pickle.loads(before)  # our own bytes
    assert again == source
    assert names(again) == NAMES


def test_a_fingerprint_follows_list_and_slice(dump):
    first = mirrored(dump, "0:2").fingerprint()
    assert first == mirrored(dump, "0:2").fingerprint() != mirrored(dump, "0:3").fingerprint()
    write_list(dump, NAMES[::-1])
    assert mirrored(dump, "0:2").fingerprint() != first


def test_recipes_without_lists_are_as_they_were(dump):
    settings = load_recipe(write_recipe(dump, data_dir=str(dump))).as_dict()["source"]
    assert not {"paths", "base_url", "files"} & settings.keys()
    recipes = [
        load_recipe(write_recipe(dump, paths=str(dump / LIST), base_url=str(dump), files=files))
        for files in (None, "0:2", "0:3")
    ]
    assert len({recipe.digest for recipe in recipes}) == 3
    assert all(one != other for one, other in pairwise(recipe.as_yaml() for recipe in recipes))
    source = recipes[1].as_dict()["source"]
    assert (source["paths"], source["base_url"], source["files"]) == (str(dump / LIST), str(dump), "0:2")


def test_a_run_records_list_slice_and_digest(dump, tmp_path, directory_digest, web_server):
    url, out = web_server(dump), tmp_path / "out"
    recipe = write_recipe(tmp_path, paths=f"{url}/{LIST}", base_url=f"{url}/", files="0:6:2")
    assert lc.run(recipe, out, num_proc=2).funnel.documents == 12
    content = (dump / LIST).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    manifest = manifest_of(out)
    assert manifest["lists"] == {f"{url}/{LIST}": {"bytes": len(content), "sha256": digest, "paths": 6}}
    assert list(manifest["inputs"]) == NAMES[::2]
    assert manifest["inputs"][NAMES[0]][0]["sha256"] == hashlib.sha256((dump / NAMES[0]).read_bytes()).hexdigest()
    card = (out / "README.md").read_text()
    assert f"Its input is `0:6:2` of 6 paths below `{url}/`, named by these lists:" in card
    assert f"- `{url}/{LIST}`: 6 paths, SHA-256 `{digest}`" in card
    assert "Common Crawl" in card
    lc.run(recipe, tmp_path / "again")
    assert directory_digest(out) == directory_digest(tmp_path / "again")
    assert lc.verify(out).problems == ()
    shown = CliRunner().invoke(app, ["inspect", str(out), "--row", "0"], catch_exceptions=False)
    assert "page" in shown.output


def test_a_plan_samples_the_slice(dump, tmp_path, web_server):
    url = web_server(dump)
    recipe = write_recipe(tmp_path, paths=f"{url}/{LIST}", base_url=url, files="0:5")
    made = lc.plan(recipe, parts=2, documents=8)
    remark = "; a run does not divide 5 large or remote files, each read by one process"
    assert made.sample == f"8 documents of 2 of 5 parts{remark}"
    assert made.rows[0].documents.value == 20


@pytest.mark.slow
def test_a_resumed_run_wants_the_list_that_it_began_with(dump, tmp_path, monkeypatch, web_server, directory_digest):
    url, out = web_server(dump), tmp_path / "out"
    recipe = write_recipe(tmp_path, paths=f"{url}/{LIST}", base_url=url, files="0:3")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_Job, "_write_output", stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, out)
    before = (dump / LIST).read_bytes()
    for others in ([*NAMES[:3], NAMES[5]], NAMES[1:]):  # the same three files in the slice, and others
        write_list(dump, others)
        with pytest.raises(RunError, match=rf"the list {url}/{LIST} has changed since {out} read it: its SHA-256 was "):
            lc.run(recipe, out)
    (dump / LIST).write_bytes(before)
    lc.run(recipe, out)
    lc.run(recipe, tmp_path / "unstopped")
    assert directory_digest(out) == directory_digest(tmp_path / "unstopped")


@pytest.mark.usefixtures("impatient")
def test_a_list_that_does_not_come_now_is_not_yet(dump, tmp_path, web_server):
    url = web_server(dump, failures=1)
    assert names(Warc(paths=f"{url}/{LIST}", base_url=url)) == NAMES
    down = web_server(dump, failures=99)
    with pytest.raises(NotYetError, match=rf"{down}/{LIST}: cannot be fetched now .*Run the same command again"):
        lc.run(write_recipe(tmp_path, paths=f"{down}/{LIST}", base_url=url, on_bad_files="skip"), tmp_path / "out")


class Outage(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; of the files in ``down``, it sends 503."""

    def send_head(self):
        self.server.asked.append(self.path)
        if self.path.lstrip("/") in self.server.down:
            self.send_error(503)
            return None
        return super().send_head()

    def log_message(self, *_):
        pass


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_files_that_do_not_come_now_stay_open_and_are_asked_for_again(dump, tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Outage, directory=str(dump))) as server:
        server.down, server.asked = {NAMES[1], NAMES[4]}, []
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url, out = f"http://127.0.0.1:{server.server_port}", tmp_path / "out"
        recipe = write_recipe(tmp_path, paths=f"{url}/{LIST}", base_url=url, on_bad_files="skip")
        with pytest.raises(RunError, match=rf"2 of 6 parts of {out} are still open, the first: {url}/{NAMES[1]}"):
            lc.run(recipe, out)
        server.down = set()
        server.asked.clear()
        assert lc.run(recipe, out).funnel.documents == 24
        assert {path.lstrip("/") for path in server.asked} >= {LIST, NAMES[1], NAMES[4]}
        server.shutdown()
    assert list(manifest_of(out)["inputs"]) == NAMES


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_file_that_the_list_names_and_the_server_lacks_goes_by_the_policy(dump, tmp_path, web_server):
    url = web_server(dump)
    (dump / NAMES[1]).unlink()
    recipe = write_recipe(tmp_path, paths=f"{url}/{LIST}", base_url=url, on_bad_files="skip")
    assert lc.run(recipe, tmp_path / "out").funnel.documents == 20
    assert [(bad["part"], bad["reason"]) for bad in manifest_of(tmp_path / "out")["bad_files"]] == [
        (NAMES[1], "is missing")
    ]
    with pytest.raises(SourceError, match=rf"{url}/{NAMES[1]}: is missing; to continue without it"):
        lc.run(write_recipe(tmp_path, paths=f"{url}/{LIST}", base_url=url), tmp_path / "other")


def test_one_file_under_two_paths_is_found_by_its_ids(dump, tmp_path):
    shutil.copy(dump / NAMES[0], dump / NAMES[3])
    recipe = write_recipe(tmp_path, paths=str(dump / LIST), base_url=str(dump))
    with pytest.raises(RunError, match=r"remove one of the two from the source, or keep the first document of each"):
        lc.run(recipe, tmp_path / "out")


@pytest.mark.slow
def test_secrets_of_the_base_read_files_and_are_not_written(dump, tmp_path, web_server):
    url, out = web_server(dump), tmp_path / "out"
    settings = {"paths": f"{url}/{LIST}?X-Amz-Signature=hush", "base_url": f"{url}/?X-Amz-Signature=hush"}
    (part, *_) = Warc(**settings).splits()["train"]
    assert part.files == (f"{url}/{NAMES[0]}?X-Amz-Signature=hush",)
    assert lc.run(write_recipe(tmp_path, **settings), out).funnel.documents == 24
    assert all("hush" not in file.read_bytes().decode("latin-1") for file in out.rglob("*") if file.is_file())


@pytest.mark.slow
def test_a_card_says_what_to_set_on_another_machine(dump, tmp_path):
    recipe = load_recipe(write_recipe(tmp_path, paths=[str(dump / LIST)], base_url=str(dump)))
    assert local_paths(recipe.as_dict()) == {"source.paths": (str(dump / LIST),), "source.base_url": (str(dump),)}
    lc.run(recipe, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "--set 'source.paths=[PATH]' --set source.base_url=FOLDER" in card
    assert f"Its input is all of 6 paths below `{dump}`" in card
