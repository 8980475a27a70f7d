"""Fetching block lists, from a real server on this machine."""

import email.utils
import gzip
import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from filelock import FileLock

import longcrawl as lc
from longcrawl.errors import SourceError
from longcrawl.run.recipe import parse_recipe
from longcrawl.text.refinedweb.fetch_lists import LISTS, PACKAGES, fetch_lists

ADULT = "".join(f"name{number}.example\n" for number in range(3000))
GOOD = {
    "blacklists/adult/domains": ADULT,
    "blacklists/adult/urls": "site.example/bad/",
    "blacklists/adult/usage": "black",
    "blacklists/gambling/domains": "casino.example\n",
    "blacklists/README": "Licence",
}


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


def archive(files: dict[str, str], *others: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as opened:
        for name, text in files.items():
            opened.addfile(member(name, size=len(text.encode())), io.BytesIO(text.encode()))
        for other in others:
            opened.addfile(other)
    return packed.getvalue()


@dataclass
class Served:
    """Response of a server, changed between requests."""

    content: bytes
    tag: str | None = '"1"'
    cut: int | None = None
    """Bytes after which the connection ends."""
    honest: bool = True
    """Whether a range of another archive is refused."""
    leads_to: str | None = None
    asked: list[str | None] = field(default_factory=list)
    """The ranges that were asked for."""
    url: str = ""


@pytest.fixture
def served():
    state = Served(archive(GOOD))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            state.asked.append(wanted)
            if state.leads_to is not None and self.path == "/lists.tar.gz":
                self.send_response(302)
                self.send_header("Location", state.leads_to)
                self.end_headers()
                return
            start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted else 0
            going_on = bool(wanted) and (self.headers.get("If-Range") == state.tag or not state.honest)
            start = start if going_on else 0
            if start > len(state.content):
                self.send_error(416)
                return
            self.send_response(206 if going_on else 200)
            size = len(state.content)
            if going_on:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("Content-Length", str(size - start))
            self.send_header("Last-Modified", email.utils.formatdate(0, usegmt=True))
            if state.tag:
                self.send_header("ETag", state.tag)
            self.end_headers()
            self.wfile.write(state.content[start : state.cut])

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}/lists.tar.gz"
    yield state
    server.shutdown()
    server.server_close()


def tree(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir())


def test_lists_are_downloaded_unpacked_and_described(tmp_path, served):
    served.content = archive(GOOD, member("blacklists/porn", tarfile.SYMTYPE, "adult"))
    fetched = fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert tree(tmp_path) == [f"ut1/{name}" for name in
                              ("README", "adult/domains", "adult/urls", "gambling/domains", "lists.json")]  # fmt: skip
    assert (tmp_path / "ut1" / "adult" / "domains").read_text() == ADULT
    assert (tmp_path / "ut1" / "porn").resolve() == tmp_path / "ut1" / "adult"
    assert fetched.lines == {"adult/domains": 3000, "adult/urls": 1, "gambling/domains": 1}
    described = json.loads((tmp_path / "ut1" / "lists.json").read_text())
    assert described["links"] == {"porn": "adult"}
    assert described["licence"] == "Creative Commons BY-SA"
    assert "3,002 lines in 2 categories" in str(fetched)
    assert "licence: Creative Commons BY-SA" in str(fetched)
    stage = lc.text.UrlFilter(lists=str(tmp_path / "ut1"), categories=("porn", "gambling"))
    urls = ["http://name7.example", "http://site.example/bad/x", "http://casino.example", "http://good.example"]
    assert stage.judge(pa.table({"url": urls}))["rule"].to_pylist() == [
        "blocked_domain",
        "blocked_url",
        "blocked_domain",
        None,
    ]


def test_the_command_says_the_licence(tmp_path, served, longcrawl):
    words = ["lists", "fetch", "ut1", "--out", tmp_path / "ut1", "--url", served.url]
    done = longcrawl(*words)
    assert done.returncode == 0, done.stderr
    assert "licence: Creative Commons BY-SA" in done.stdout
    again = longcrawl(*words)
    assert again.returncode == 1
    assert again.stderr.strip().endswith("remove it to fetch the lists again, or choose another --out")


def test_a_stopped_download_goes_on(tmp_path, served):
    served.cut = 1000
    with pytest.raises(
        SourceError, match=r"ended after 1,000 of [\d,]+ bytes; run the same command again to resume it"
    ):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert not (tmp_path / "ut1").exists()
    served.cut = None
    fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert served.asked == [None, "bytes=1000-"]
    assert (tmp_path / "ut1" / "adult" / "domains").read_text() == ADULT
    assert [file.name for file in tmp_path.iterdir()] == ["ut1"]


@pytest.mark.parametrize("tag", [None, 'W/"1"'])
def test_a_download_without_a_strong_tag(tmp_path, served, tag):
    served.cut, served.tag = 1000, tag
    with pytest.raises(SourceError, match="to resume it"):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    served.cut = None
    fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert (tmp_path / "ut1" / "adult" / "domains").read_text() == ADULT
    assert served.asked[0] is None


def test_a_download_of_another_archive_begins_anew(tmp_path, served):
    served.cut = 1000
    with pytest.raises(SourceError):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    served.cut, served.tag, served.content = None, '"2"', archive({"adult/domains": "new.example\n"})
    fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert (tmp_path / "ut1" / "adult" / "domains").read_text() == "new.example\n"


@pytest.mark.parametrize("text", ["new.example\n", ADULT[:40000]])
def test_a_server_that_mixes_archives_is_found_out(tmp_path, served, text):
    served.cut = 1000
    with pytest.raises(SourceError):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    served.cut, served.tag, served.content, served.honest = None, '"2"', archive({"adult/domains": text}), False
    with pytest.raises(SourceError, match="has changed since the download began; run the same command"):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert (tmp_path / "ut1" / "adult" / "domains").read_text() == text


@pytest.mark.parametrize(
    "content",
    [
        archive(GOOD)[:2000],
        b"<html>moved</html>",
        b"",
        gzip.compress(b"no tar" * 200),
        archive(GOOD)[:-9] + b"\xff" * 9,
    ],
    ids=["cut", "html", "empty", "no tar", "checksum"],
)
def test_a_broken_archive_is_one_sentence_and_leaves_nothing(tmp_path, served, content):
    served.content = content
    with pytest.raises(SourceError, match=r"is a broken archive \(.+\); it was removed, run the same command again$"):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert tree(tmp_path) in ([], ["ut1.partial.lock"])
    served.content = archive(GOOD)
    assert fetch_lists("ut1", tmp_path / "ut1", served.url).lines["gambling/domains"] == 1


def test_an_archive_without_lists_is_one_sentence(tmp_path, served):
    served.content = archive({"blacklists/adult/usage": "black", "README": "a"})
    with pytest.raises(SourceError, match="has no lists, that is, files such as adult/domains; set another --url"):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert not (tmp_path / "ut1").exists()


def test_nothing_of_a_hostile_archive_leaves_the_folder(tmp_path, served):
    hostile = {
        "../../evil/domains": "a.example\n",
        "/absolute/domains": "b.example\n",
        "blacklists/../domains": "c.example\n",
        "a/b/c/d/domains": "d.example\n",
        ".hidden/domains": "e.example\n",
        "blacklists/README/../../../README": "f",
    }
    links = {"etc": "/etc", "up": "..", "far": "../../x", "gone": "nothing", "adult": "gambling", "self": "self"}
    others = [member(f"blacklists/{name}", tarfile.SYMTYPE, target) for name, target in links.items()]
    others += [member("blacklists/hard", tarfile.LNKTYPE, "/etc/passwd"), member("adult/fifo/urls", tarfile.FIFOTYPE)]
    others += [member("blacklists/dating/domains", tarfile.SYMTYPE, "/etc/passwd")]
    served.content = archive(GOOD | hostile, *others)
    (tmp_path / "below").mkdir()
    fetched = fetch_lists("ut1", tmp_path / "below" / "ut1", served.url)
    below = [file.relative_to(tmp_path).parts for file in tmp_path.rglob("*")]
    assert all(parts[:2] in (("below",), ("below", "ut1")) for parts in below)
    assert not fetched.links
    assert not any(file.is_symlink() for file in tmp_path.rglob("*"))
    assert set(fetched.lines) <= {"adult/domains", "adult/urls", "gambling/domains", "evil/domains", "absolute/domains"}


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path, served, monkeypatch):
    monkeypatch.setattr("longcrawl.text.refinedweb.fetch_lists._MOST_BYTES", 10_000)
    with pytest.raises(SourceError, match="is a broken archive"):
        fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert not (tmp_path / "ut1").exists()


def test_what_cannot_be_fetched_is_one_sentence(tmp_path, served, web_server):
    out = tmp_path / "ut1"
    with pytest.raises(SourceError, match="unknown lists 'ut2'; known: ut1"):
        fetch_lists("ut2", out)
    for url in ("http://lists.example/a.tar.gz", "ftp://127.0.0.1/a", "/a.tar.gz", "file:///etc/passwd"):
        with pytest.raises(SourceError, match="lists are fetched by https, not from"):
            fetch_lists("ut1", out, url)
    gone = web_server(tmp_path) + "/gone.tar.gz"
    with pytest.raises(SourceError, match=r"gone.tar.gz cannot be fetched \(.*File not found\)"):
        fetch_lists("ut1", out, gone)
    with pytest.raises(SourceError, match=r"cannot be fetched \(.*refused\); run the same command again"):
        fetch_lists("ut1", out, "http://127.0.0.1:1/a.tar.gz")
    served.leads_to = "file:///etc/passwd"
    with pytest.raises(SourceError, match="cannot be fetched"):
        fetch_lists("ut1", out, served.url)
    with (
        FileLock(tmp_path / "ut1.partial.lock"),
        pytest.raises(SourceError, match="another process is fetching lists to .*: wait for it"),
    ):
        fetch_lists("ut1", out, served.url)
    assert not out.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="cannot be written .*: choose another --out"):
        fetch_lists("ut1", tmp_path / "file" / "ut1", served.url)


def test_a_redirect_is_followed(tmp_path, served):
    served.leads_to = "/elsewhere.tar.gz"
    assert fetch_lists("ut1", tmp_path / "ut1", served.url).lines["gambling/domains"] == 1


def test_what_a_killed_process_left_is_no_obstacle(tmp_path, served):
    (tmp_path / "ut1.partial" / "adult").mkdir(parents=True)
    (tmp_path / "ut1.partial.tar.json").write_text("{")
    (tmp_path / "ut1.partial.tar.gz").write_bytes(b"what is this")
    fetch_lists("ut1", tmp_path / "ut1", served.url)
    assert [file.name for file in tmp_path.iterdir()] == ["ut1"]


# -------------------- the wheel of a package

SHIPPED = {
    "peer/assets/banned_subwords.txt": "Two Words 1\nbad-word\n#comment\n",
    "peer/assets/banned_words.txt": "hardword\nHARDWORD\nboth\n#no\n",
    "peer/assets/soft_banned_words.txt": "mild\nweak\nboth\n",
    "peer/code.py": "domains = 1",
}
_INFO = f"{PACKAGES['datatrove'].replace('==', '-')}.dist-info"
METADATA = {
    f"{_INFO}/METADATA": "Metadata-Version: 2.1\nName: datatrove\nVersion: {}\n".format(
        PACKAGES["datatrove"].split("==")[1]
    ),
    f"{_INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{_INFO}/RECORD": "",
}
"""Smallest wheel that pip installs."""
IN_ARCHIVE = {"domains": "bad.example\nworse.example", "urls": "site.example/bad/\n", "../evil": "x", "other": "y"}


def wheel(path: Path, files: dict[str, str] = SHIPPED, lists: dict[str, str] | None = IN_ARCHIVE) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
        if lists is not None:
            packed.writestr("peer/assets/url_lists.tar.gz", archive(lists))
    return path


def test_the_lists_of_a_wheel_are_taken_out_and_used_by_a_run(tmp_path, monkeypatch, longcrawl):
    monkeypatch.chdir(tmp_path)
    given = wheel(tmp_path / "datatrove-1-py3-none-any.whl")
    done = longcrawl("lists", "fetch", "datatrove", "--out", "lists", "--url", given)
    assert done.returncode == 0, done.stderr
    assert "3 lines in 1 category and 2 strict, 2 hard, 2 soft words from datatrove-1-py3-none-any.whl" in done.stdout
    assert "licence: Apache-2.0" in done.stdout
    assert tree(tmp_path / "lists") == ["lists.json", "peer/domains", "peer/urls", "words.yaml"]
    words = yaml.safe_load(Path("lists/words.yaml").read_text())
    assert words == {"strict": ["badword", "twowords1"], "hard": ["both", "hardword"], "soft": ["mild", "weak"]}
    assert given.exists()
    described = json.loads(Path("lists/lists.json").read_text())
    assert described["sha256"] == hashlib.sha256(given.read_bytes()).hexdigest()
    assert str(tmp_path) not in json.dumps(described)

    urls = [
        "http://x.bad.example/",
        "http://site.example/bad/1",
        "http://a.example/bad_word",
        "http://a.example/mild-weak",
    ]
    rows = ({"text": f"text {row}", "url": url} for row, url in enumerate([*urls, "http://good.example/"]))
    Path("pages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"lists": "lists", "categories": ["peer"], "words": "lists/words.yaml", "curated_sources": None}
    spec = {"longcrawl": 1, "name": "listed", "source": {"builder": "text", "data_files": "pages.jsonl"}}
    lc.run(parse_recipe(spec | {"stages": [{"url_filter": settings}], "outputs": {"parquet": {}}}), "run")
    (row,) = lc.funnel("run").rows
    assert row.rules == {"blocked_domain": 1, "blocked_url": 1, "max_soft_words": 1, "strict_word": 1}
    manifest, card = json.loads(Path("run/manifest.json").read_text()), Path("run/README.md").read_text()
    used = manifest["materials"]["url_filter"]
    assert used["lists"] == {name: described[name] for name in ("about", "url", "licence", "sha256")}
    assert used["lists/words.yaml"]["licence"] == "Apache-2.0"
    assert f"licence: Apache-2.0; SHA-256 `{described['sha256']}`" in card
    assert "warnings" not in manifest


@pytest.mark.parametrize(
    ("files", "lists", "sentence"),
    [
        ({"a.py": ""}, IN_ARCHIVE, "has no lists of a URL filter; use the wheel of datatrove=="),
        (SHIPPED, None, "has no lists of a URL filter"),
        (SHIPPED, {"other": "x"}, "has no lists of a URL filter"),
    ],
)
def test_another_wheel_is_one_sentence_and_leaves_nothing(tmp_path, files, lists, sentence):
    given = wheel(tmp_path / "other.whl", files, lists)
    with pytest.raises(SourceError, match=sentence):
        fetch_lists("datatrove", tmp_path / "lists", str(given))
    assert {file.name for file in tmp_path.iterdir()} <= {"other.whl", "lists.partial.lock"}
    given.write_bytes(given.read_bytes()[:-40])
    with pytest.raises(SourceError, match=r"other\.whl is a broken archive .*; fetch it again"):
        fetch_lists("datatrove", tmp_path / "lists", str(given))
    assert given.exists()


@pytest.mark.slow
def test_a_wheel_that_pip_cannot_fetch_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SourceError, match=r"pip cannot fetch datatrove==.*; download its wheel, and set --url"):
        fetch_lists("datatrove", tmp_path / "lists")
    wheel(tmp_path / f"{PACKAGES['datatrove'].replace('==', '-')}-py3-none-any.whl", SHIPPED | METADATA)
    fetched = fetch_lists("datatrove", tmp_path / "lists")
    assert fetched.lines == {"peer/domains": 2, "peer/urls": 1}
    assert fetched.url == PACKAGES["datatrove"]


def test_the_known_lists_are_fetched_by_https_and_name_their_licence():
    assert all(each.url.startswith("https://") and each.licence for each in LISTS.values())
