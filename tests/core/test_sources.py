"""The policy for broken input, parts, fingerprints, files and blocks."""

import gzip
import json
import os
from unittest import mock

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.sources import SOURCES, BadFile, BadFiles, LostRecords, make_source
from longcrawl.errors import SourceError
from longcrawl.sources import blocks


def test_every_source_is_known_by_its_name():
    assert {"installed", "redpajama-v2", "text"} <= set(SOURCES)
    assert all(source.name == name for name, source in SOURCES.items())


def test_unknown_source_and_field_list_the_known_ones():
    with pytest.raises(SourceError, match=r"source 'c4' is unknown; known: .*redpajama-v2"):
        make_source("c4", {})
    with pytest.raises(SourceError, match=r"no field 'langs'; known: .*languages"):
        make_source("redpajama-v2", {"langs": ["en"]})


def test_a_wrong_value_says_what_the_field_takes():
    with pytest.raises(SourceError, match=r"on_bad_files takes one of 'error', 'warn', 'skip', got 'ignore'"):
        make_source("text", {"on_bad_files": "ignore"})


def test_bad_files_stop_warn_or_skip():
    with pytest.raises(SourceError, match="a.gz: is cut; to continue without it, set on_bad_files to 'warn' or 'skip'"):
        BadFiles("error").report("a.gz", "is cut")
    warn, skip = BadFiles("warn"), BadFiles("skip")
    with pytest.warns(UserWarning, match="a.gz: is cut") as told:
        warn.report("a.gz", "is cut", 3)
    assert told[0].filename == __file__
    skip.report("a.gz", "is cut", 3)
    assert warn.found == skip.found == [BadFile("a.gz", "is cut", 3)]


def test_a_warning_is_about_a_line_of_the_user_and_of_no_source(tmp_path):
    source = make_source("warc", {"data_files": str(tmp_path / "gone.warc"), "on_bad_files": "warn"})
    with pytest.warns(UserWarning, match=r"gone.warc: is missing") as told:
        list(source.read(source.splits()["train"][0], BadFiles("warn")))
    assert told[0].filename == __file__


def test_lost_records_are_one_report_per_file():
    bad_files = BadFiles("skip")
    lost = LostRecords(bad_files, "a.gz")
    lost.report()
    assert bad_files.found == []
    for line in (3, 5, 9):
        lost.add(f"line {line}", "is not JSON")
    lost.report()
    assert bad_files.found == [BadFile("a.gz", "line 3 is not JSON (and 2 more like it)", 3)]


def test_a_reason_is_never_longer_than_a_page():
    bad_files = BadFiles("skip")
    bad_files.report("a.gz", "has no field 'text'; its fields: " + "x" * 1_000_000)
    assert bad_files.found[0].reason.startswith("has no field 'text'; its fields: xxx")
    assert len(bad_files.found[0].reason) == 2_000


def test_fingerprint_follows_settings_and_files(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n')
    source = make_source("text", {"data_dir": str(tmp_path)})
    first = source.fingerprint()
    assert first == make_source("text", {"data_dir": str(tmp_path)}).fingerprint()
    assert first != make_source("text", {"data_dir": str(tmp_path), "language": "en"}).fingerprint()
    os.utime(path, ns=(1, 1))
    assert first != source.fingerprint()


LINES = [json.dumps({"n": number, "x": "y" * (number * 37 % 400)}).encode() + b"\n" for number in range(2_000)]
TEXT = b"".join(LINES)


def packed(kind: str, data: bytes) -> bytes:
    if kind == ".gz":
        return gzip.compress(data)
    return zstandard.compress(data) if kind == ".zst" else data


@given(st.binary(max_size=40), st.integers(0, 60))
def test_line_ends_are_found_window_by_window(text, near):
    with mock.patch.object(blocks, "WINDOW_BYTES", 7):
        ends = text.rfind(b"\n", 0, near) + 1 or text.find(b"\n", near) + 1
        assert blocks.line_end(memoryview(text), near) == ends


@pytest.mark.parametrize("kind", ["", ".gz", ".zst"])
def test_blocks_end_at_the_same_lines_however_the_file_is_packed(tmp_path, kind):
    path = tmp_path / f"a.jsonl{kind}"
    path.write_bytes(packed(kind, TEXT))
    read = list(blocks.read_blocks(str(path), block_bytes=10_000))
    assert b"".join(read) == TEXT
    assert all(len(block) <= 10_000 and bytes(block).endswith(b"\n") for block in read)
    plain = tmp_path / "plain"
    plain.write_bytes(TEXT)
    assert read == list(blocks.read_blocks(str(plain), block_bytes=10_000))


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_members_and_frames_follow_each_other(tmp_path, kind):
    path = tmp_path / f"a{kind}"
    path.write_bytes(
        packed(kind, b"one\n") + packed(kind, b"") + packed(kind, b"two") + (b"\0" * 99 if kind == ".gz" else b"")
    )
    assert list(blocks.read_blocks(str(path))) == [b"one\ntwo"]


def test_a_line_longer_than_a_block_stays_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a\n" + b"b" * 5_000 + b"\nc\nd")
    assert list(blocks.read_blocks(str(path), 100)) == [b"a\n", b"b" * 5_000 + b"\n", b"c\nd"]
    path.write_bytes(b"")
    assert list(blocks.read_blocks(str(path))) == []


@pytest.mark.parametrize("ending", ["jsonl", "txt", "csv"])
def test_ids_of_a_file_whose_name_is_not_utf8_escape_it(tmp_path, ending):
    (tmp_path / os.fsdecode(b"on\xe9." + ending.encode())).write_text(
        {"jsonl": '{"text": "one"}\n', "txt": "one", "csv": "text\none\n"}[ending]
    )
    source = make_source("text", {"data_dir": str(tmp_path)})
    (part,) = source.splits()["train"]
    rows = [row for table in source.read(part, BadFiles()) for row in table.to_pylist()]
    assert [(row["source"], row["text"]) for row in rows] == [(f"on\\udce9.{ending}", "one")]
    assert rows[0]["id"].startswith(f"on\\udce9.{ending}")
    assert len(source.fingerprint()) == 64
