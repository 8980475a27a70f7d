"""Which bytes a run read: recorded by size and SHA-256, compared at its end and on resume; outages leave parts open."""

import gzip
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import longcrawl as lc
from longcrawl.core.outputs import OUTPUTS
from longcrawl.core.stages import Check, Judge
from longcrawl.errors import NotYetError, RunError, SourceError
from longcrawl.io import file_systems
from longcrawl.run.inputs import needed_source
from longcrawl.run.job import _Job
from longcrawl.run.manifest import check_manifest, input_names
from longcrawl.run.recipe import load_recipe
from longcrawl.sources.text import Text

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def documents(first: int, count: int = 20) -> bytes:
    rows = ({"id": f"d{number}", "text": " ".join(WORDS[number % 7 :] * 3)} for number in range(first, first + count))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_recipe(folder: Path, stages: tuple = ("exact_documents",), **source: object) -> Path:
    file = folder / "recipe.yaml"
    spec = {"longcrawl": 1, "name": "t", "stages": list(stages), "outputs": {"parquet": {}}}
    file.write_text(yaml.safe_dump(spec | {"source": {"builder": "text", "id_field": "id", **source}}))
    return file


@pytest.fixture
def raw(tmp_path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(documents(0))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(documents(100), mtime=0))
    pq.write_table(
        pa.Table.from_pylist([json.loads(line) for line in documents(200).splitlines()]), folder / "c.parquet"
    )
    return folder


def stop_at(monkeypatch: pytest.MonkeyPatch, method: str, recipe: Path, out: Path) -> None:
    """Run until a method of the run is called, as Ctrl-C would stop it there."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_Job, method, stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, out)


def manifest_of(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


@pytest.mark.slow
def test_the_manifest_names_the_bytes_that_were_read(raw, tmp_path):
    lc.run(write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "out", 2)
    entries = manifest_of(tmp_path / "out")["inputs"]
    assert list(entries) == ["a.jsonl", "b.jsonl.gz", "c.parquet"]
    for name, files in entries.items():
        content = (raw / name).read_bytes()
        assert files == [
            {"file": str(raw / name), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        ]


def test_a_missing_file_has_a_name_and_no_bytes(raw, tmp_path):
    named = [str(raw / "a.jsonl"), str(raw / "gone.jsonl")]
    lc.run(write_recipe(tmp_path, data_files=named, on_bad_files="skip"), tmp_path / "out")
    assert manifest_of(tmp_path / "out")["inputs"]["gone.jsonl"] == [{"file": named[1]}]


def test_inputs_of_a_manifest_are_objects_with_a_file(raw, tmp_path):
    lc.run(write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    now = check_manifest(manifest, tmp_path / "manifest.json")
    assert input_names(now)["a.jsonl"] == [str(raw / "a.jsonl")]
    for wrong in ({"a.jsonl": [{"bytes": 3}]}, {"a.jsonl": [{"file": "a", "sha256": 3}]}, {"a.jsonl": ["raw/a.jsonl"]}):
        with pytest.raises(RunError, match="should be an object with a file"):
            check_manifest(dict(manifest, inputs=wrong), tmp_path / "manifest.json")


@pytest.mark.slow
def test_a_file_replaced_after_it_was_read_ends_the_run_with_its_name(raw, tmp_path, monkeypatch):
    recipe, out, read = write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "out", Text.read
    before = (raw / "a.jsonl").read_bytes()

    def replacing(self, part, bad_files):
        yield from read(self, part, bad_files)
        if part.name == "c.parquet" and self.text_field == "text":
            (raw / "a.jsonl").write_bytes(documents(500))

    with monkeypatch.context() as patch:
        patch.setattr(Text, "read", replacing)
        with pytest.raises(RunError, match=rf"{raw}/a.jsonl has changed since {out} read it: its SHA-256 was .* --out"):
            lc.run(recipe, out)
    with pytest.raises(RunError, match="a.jsonl has changed"):
        lc.run(recipe, out)
    assert not (out / "manifest.json").exists()
    (raw / "a.jsonl").write_bytes(before)
    assert lc.run(recipe, out).funnel.documents == 60


@pytest.mark.slow
def test_a_file_replaced_while_it_is_read_is_read_again(raw, tmp_path, monkeypatch):
    recipe, out, read = write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "out", Text.read

    def replacing(self, part, bad_files):
        for table in read(self, part, bad_files):
            if part.name == "a.jsonl" and self.text_field == "text":
                (raw / "a.jsonl").write_bytes(documents(500, 30))
            yield table

    with monkeypatch.context() as patch:
        patch.setattr(Text, "read", replacing)
        with pytest.raises(RunError, match=r"1 of 3 parts of .* still open, the first: .*a.jsonl was replaced while"):
            lc.run(recipe, out)
    assert lc.run(recipe, out).funnel.documents == 70
    lc.run(recipe, tmp_path / "unstopped")
    assert manifest_of(out)["inputs"] == manifest_of(tmp_path / "unstopped")["inputs"]
    assert lc.verify(out).problems == ()


def test_a_file_replaced_while_it_is_read_is_noticed_though_size_and_time_stay(raw, tmp_path, monkeypatch):
    recipe, out, read = write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "out", Text.read
    file, status = raw / "a.jsonl", (raw / "a.jsonl").stat()

    def replacing(self, part, bad_files):
        for table in read(self, part, bad_files):
            if part.name == "a.jsonl" and self.text_field == "text":
                file.write_bytes(file.read_bytes().swapcase())
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
            yield table

    monkeypatch.setattr(Text, "read", replacing)
    with pytest.raises(RunError, match=r"1 of 3 parts of .* still open, the first: .*a.jsonl was replaced while"):
        lc.run(recipe, out)
    assert file.stat().st_size == status.st_size


@pytest.mark.slow
def test_on_resume_a_read_file_that_differs_is_named_and_a_copy_of_it_will_do(
    raw, tmp_path, monkeypatch, directory_digest
):
    recipe, out = write_recipe(tmp_path, data_dir=str(raw)), tmp_path / "out"
    stop_at(monkeypatch, "_write_output", recipe, out)
    before = (raw / "b.jsonl.gz").read_bytes()
    flipped = bytearray(before)
    flipped[len(before) // 2] ^= 1
    (raw / "b.jsonl.gz").write_bytes(bytes(flipped))
    with pytest.raises(RunError, match=r"b.jsonl.gz has changed since .*Restore it and run the same command again"):
        lc.run(recipe, out)
    (raw / "b.jsonl.gz").unlink()
    shutil.copy(raw / "a.jsonl", raw / "z.jsonl")
    with pytest.raises(RunError, match=r"has changed since the run began \(.*z.jsonl is new\)"):
        lc.run(recipe, out)
    (raw / "z.jsonl").unlink()
    with pytest.raises(RunError, match=r"has changed since the run began \(.*b.jsonl.gz is gone\)"):
        lc.run(recipe, out)
    (raw / "b.jsonl.gz").write_bytes(before)
    os.utime(raw / "b.jsonl.gz", ns=(1, 1))
    lc.run(recipe, out)
    lc.run(recipe, tmp_path / "unstopped")
    assert directory_digest(out) == directory_digest(tmp_path / "unstopped")


class Outage(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; of the files in ``down``, it sends 503."""

    protocol_version = "HTTP/1.1"

    def send_head(self):
        if self.command == "GET":
            self.server.asked.append(self.path)
        path = self.path.partition("?")[0]
        if path in self.server.down:
            self.send_error(503)
            return None
        if (self.server.needs is not None) and self.server.needs not in self.path + self.headers.get(
            "Authorization", ""
        ):
            self.send_error(403)
            return None
        return super().send_head()

    def end_headers(self):
        if hasattr(self, "path") and self.server.tags:
            self.send_header("ETag", f'"{hash_of(Path(self.translate_path(self.path)))}"')
        super().end_headers()

    def log_message(self, *_):
        pass


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8] if path.is_file() else ""


@pytest.fixture
def server(raw, monkeypatch):
    """Return a server of the folder, with what it has been asked for."""
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(file_systems, "_silent", set())
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *asked: Outage(*asked, directory=str(raw))
    ) as started:
        started.down, started.asked, started.needs = set(), [], None
        started.tags = True
        started.host = f"127.0.0.1:{started.server_port}"
        threading.Thread(target=started.serve_forever, args=(0.02,), daemon=True).start()
        yield started
        started.shutdown()


@pytest.mark.parametrize(
    ("policy", "num_proc"),
    [
        ("skip", 1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("skip", 2), ("warn", 1), ("error", 1))),
    ],
)
def test_an_outage_leaves_parts_open_and_the_same_command_asks_for_these_alone(
    raw, server, tmp_path, policy, num_proc, directory_digest
):
    urls = [f"http://{server.host}/{name}" for name in ("a.jsonl", "b.jsonl.gz", "c.parquet")]
    recipe, out = write_recipe(tmp_path, data_files=urls, on_bad_files=policy), tmp_path / "out"
    server.down = {"/a.jsonl", "/b.jsonl.gz"}
    with pytest.raises(RunError) as raised:
        lc.run(recipe, out, num_proc)
    said = str(raised.value)
    assert said.startswith(f"2 of 3 parts of {out} are still open, the first: {urls[0]}: cannot be fetched now (")
    assert "503" in said
    assert said.endswith("the same command asks for these parts again")
    assert not (out / "manifest.json").exists()
    server.down = set()
    server.asked.clear()
    assert lc.run(recipe, out, num_proc).funnel.documents == 60
    assert set(server.asked) == {"/a.jsonl", "/b.jsonl.gz"}
    entries = manifest_of(out)["inputs"]
    assert entries["a.jsonl"] == [
        {
            "file": urls[0],
            "bytes": (raw / "a.jsonl").stat().st_size,
            "sha256": hashlib.sha256((raw / "a.jsonl").read_bytes()).hexdigest(),
            "etag": hash_of(raw / "a.jsonl"),
        }
    ]
    lc.run(recipe, tmp_path / "unstopped")
    assert directory_digest(out) == directory_digest(tmp_path / "unstopped")


@pytest.mark.variants
@pytest.mark.parametrize("query", ["", "?sig=x"])
def test_an_outage_ends_a_stream_of_datasets(server, monkeypatch, query):
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.01)
    server.down = {"/b.jsonl.gz"}
    files = [f"http://{server.host}/{name}{query}" for name in ("a.jsonl", "b.jsonl.gz")]
    stream = datasets.load_dataset(
        "longcrawl", "text", data_files=files, streaming=True, split="train", on_bad_files="skip"
    )
    with pytest.raises(NotYetError, match=r"/b.jsonl.gz: cannot be fetched now .*503"):
        list(stream)


@pytest.mark.slow
def test_the_command_ends_with_a_sentence_and_a_nonzero_code(server, tmp_path, longcrawl):
    urls = [f"http://{server.host}/{name}" for name in ("a.jsonl", "c.parquet")]
    recipe, out = write_recipe(tmp_path, data_files=urls, on_bad_files="skip"), tmp_path / "out"
    server.down = {"/a.jsonl"}
    command = [str(Path(sys.executable).with_name("longcrawl")), "run", str(recipe), "--out", str(out)]
    environment = os.environ | {"LONGCRAWL_RETRY_SECONDS": "0.1"}
    stopped = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert stopped.returncode == 1
    assert "1 of 2 parts of" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    server.down = set()
    assert longcrawl("run", recipe, "--out", out).returncode == 0
    assert manifest_of(out)["funnel"]["documents"] == 40


@pytest.mark.slow
def test_signals_and_duplicates_that_do_not_come_now_are_not_left_null(server, raw, tmp_path, make_release):
    make_release(raw, {"2023-06/0000/en_head": ["one text", "another text"]})
    settings = {"builder": "redpajama-v2", "data_dir": f"http://{server.host}", "snapshots": ["2023-06"]}
    recipe = write_recipe(tmp_path, (), **settings, on_bad_files="skip")
    spec = yaml.safe_load(recipe.read_text())
    del spec["source"]["id_field"]
    recipe.write_text(yaml.safe_dump(spec | {"source": spec["source"] | {"partitions": ["head"]}}))
    for kind, ending in (("quality_signals", "signals.json.gz"), ("duplicates", "duplicates.parquet")):
        server.down = {f"/{kind}/2023-06/0000/en_head.{ending}"}
        with pytest.raises(RunError, match=f"1 of 1 parts of .* still open, the first: .*{ending}: cannot be fetched"):
            lc.run(recipe, tmp_path / "out")
    server.down = set()
    lc.run(recipe, tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    assert manifest["bad_files"] == []
    assert [len(file["sha256"]) for file in manifest["inputs"]["2023-06/0000/en_head"]] == [64, 64, 64]


def test_a_remote_file_replaced_under_a_run_is_noticed_by_its_tag(raw, server, tmp_path, monkeypatch):
    recipe, out = write_recipe(tmp_path, data_files=f"http://{server.host}/a.jsonl"), tmp_path / "out"
    stop_at(monkeypatch, "_write_output", recipe, out)
    (raw / "a.jsonl").write_bytes(documents(500))
    with pytest.raises(RunError, match=r"/a.jsonl has changed since .* read it: its entity tag was"):
        lc.run(recipe, out)


@pytest.mark.slow
def test_a_remote_file_without_a_tag_is_compared_by_its_size(raw, server, tmp_path, monkeypatch):
    server.tags = False
    recipe, out = write_recipe(tmp_path, data_files=f"http://{server.host}/a.jsonl"), tmp_path / "out"
    stop_at(monkeypatch, "_write_output", recipe, out)
    (raw / "a.jsonl").write_bytes(documents(500, 30))
    with pytest.raises(RunError, match=r"/a.jsonl has changed since .* read it: it had [\d,]+ bytes and now has"):
        lc.run(recipe, out)


def everything_written(folder: Path) -> str:
    return "\n".join(file.read_bytes().decode("latin-1") for file in sorted(folder.rglob("*")) if file.is_file())


@pytest.mark.variants
@pytest.mark.parametrize("how", ["presigned", "password"])
def test_secrets_of_urls_are_read_with_and_never_written(raw, server, tmp_path, how, monkeypatch, capfd, caplog):
    def url(name: str, secret: str) -> str:
        if how == "password":
            return f"http://me:{secret}@{server.host}/{name}"
        return f"http://{server.host}/{name}?X-Amz-Expires=9&X-Amz-Signature={secret}"

    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.01)
    server.needs = "Basic" if how == "password" else "X-Amz-Signature"
    names, out = ("a.jsonl", "b.jsonl.gz", "c.parquet"), tmp_path / "out"
    server.down = {"/b.jsonl.gz"}
    recipe = write_recipe(tmp_path, data_files=[url(name, "hush1") for name in names], on_bad_files="warn")
    with pytest.raises(RunError) as raised:
        lc.run(recipe, out)
    assert "b.jsonl.gz" in str(raised.value)
    assert "hush" not in everything_written(out) + str(raised.value)
    server.down = set()
    recipe = write_recipe(tmp_path, data_files=[url(name, "hush2") for name in names], on_bad_files="warn")
    summary = lc.run(recipe, out)
    assert summary.funnel.documents == 60
    assert list(manifest_of(out)["inputs"]) == list(names)
    assert yaml.safe_load((out / "recipe.yaml").read_text())["source"]["data_files"] == [
        f"http://{server.host}/{name}" for name in names
    ]
    shown = capfd.readouterr()
    for text in (everything_written(out), str(summary), shown.out, shown.err, caplog.text):
        assert "hush" not in text
        assert "//me" not in text


def test_ids_come_from_the_path_of_a_url_and_two_queries_of_one_path_are_refused(server):
    one = f"http://{server.host}/a.jsonl"
    crawl = lc.open("text", data_files=f"{one}?X-Amz-Signature=abc")
    assert crawl.data[0]["id"] == "a.jsonl:0"
    hosts = (f"http://me:hush@{server.host}/a.jsonl", "http://me:hush@other.example/b.jsonl")
    assert [part.name for part in Text(data_files=hosts).splits()["train"]] == [
        f"{server.host}/a.jsonl", "other.example/b.jsonl",
    ]  # fmt: skip
    with pytest.raises(lc.errors.SourceError, match=rf"{one} is listed twice, with two queries or users"):
        Text(data_files=(f"{one}?sig=1", f"{one}?sig=2")).splits()


@dataclass(frozen=True)
class SeesAnyColumn(Judge):
    """A stage of another package, which says nothing of signals."""

    def checks(self, table):
        return [Check("any", pa.nulls(table.num_rows, pa.float64()), pa.array([True] * table.num_rows))]


def test_a_run_reads_the_signals_that_its_stages_look_at():
    recipe = load_recipe("longcrawl64-clean", ["stages.signal_rules.thresholds={min_word_count: null}"])
    assert needed_source(recipe).signals == (
        "ccnet_nlines",
        "rps_doc_frac_chars_top_2gram",
        "rps_doc_mean_word_length",
        "rps_doc_symbol_to_word_ratio",
        "rps_doc_word_count",
        "rps_lines_start_with_bulletpoint.sum",
    )
    assert recipe.source.signals is True
    other = replace(recipe, stages=(("any", SeesAnyColumn()), *recipe.stages))
    kept = replace(recipe, output=OUTPUTS.make("parquet", {}))
    assert needed_source(other).signals is needed_source(kept).signals is True


def test_a_run_computes_the_digests_of_pages_where_its_output_may_write_them():
    kept = load_recipe("refinedweb", ["source.data_files=pages.warc.gz"])
    assert needed_source(kept).digests
    tokens = replace(kept, output=OUTPUTS.make("datatrove", {}))
    assert not needed_source(tokens).digests
    assert tokens.source.digests
    assert needed_source(replace(tokens, stages=(("any", SeesAnyColumn()), *tokens.stages))).digests


@pytest.mark.slow
@pytest.mark.parametrize("num_proc", [1, 2])
def test_a_field_that_no_record_has_ends_the_run_and_a_rare_one_is_counted(tmp_path, raw, num_proc):
    (raw / "d.jsonl").write_text('{"id": "d", "text": "another one", "meta": {"doi": "10.1"}}\n')
    recipe = write_recipe(tmp_path, ("urls",), data_dir=str(raw), url_field="meta.dio")
    with pytest.raises(SourceError, match=r"'meta.dio' that url_field names; .*\(did you mean 'meta.doi'\?\)"):
        lc.run(recipe, tmp_path / "wrong", num_proc)
    if num_proc == 1:
        recipe = write_recipe(tmp_path, ("urls",), data_dir=str(raw), fields=["meta.doi"])
        with pytest.warns(UserWarning, match="none of the first 20 records has the field 'meta.doi' that"):
            summary = lc.run(recipe, tmp_path / "out")
        said = "1 of 61 documents have a value in the field 'meta.doi'"
        assert said in str(summary)
        assert said in (tmp_path / "out" / "README.md").read_text()
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["reports"]["text"] == [said]
