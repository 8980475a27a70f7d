"""Readers note the share of a file, or of a section, that they have read."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from longcrawl.core import progress
from longcrawl.core.progress import following, tell_progress
from longcrawl.core.sources import BadFiles, Part, Section, make_source
from longcrawl.sources import blocks
from longcrawl.sources.warc import source as archives

ROWS = [{"id": str(row), "text": f"text of row {row}"} for row in range(60)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
RECORDS = [
    b"WARC/1.0\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:%d>\r\nWARC-Target-URI: https://a.example/%d\r\n"
    b"Content-Type: text/html\r\nContent-Length: 12\r\n\r\n<p>%05d</p>\r\n\r\n" % (row, row, row)
    for row in range(60)
]


def write(folder: Path, name: str) -> Path:
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), file, row_group_size=10)
    elif name.endswith(".warc.gz"):
        file.write_bytes(b"".join(gzip.compress(each) for each in RECORDS))
    else:
        compress = {".gz": gzip.compress, ".zst": zstandard.compress}.get(file.suffix, bytes)
        file.write_bytes(compress(LINES))
    return file


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.warc.gz"])
@pytest.mark.parametrize("size", [None, 200])
def test_the_share_of_what_is_read_grows_to_all(tmp_path, monkeypatch, name, size):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    monkeypatch.setattr(blocks, "READ_BYTES", 100)
    monkeypatch.setattr(blocks, "STEP_BYTES", 100)
    monkeypatch.setattr(archives, "ROWS", 10)
    file, state = write(tmp_path, name), tmp_path / "state"
    kind = "warc" if ".warc" in name else "text"
    source = make_source(kind, {"data_files": str(file)} | ({"id_field": "id"} if kind == "text" else {}))
    (whole,) = source.splits()["train"]
    sections: list[Section | None] = [None]
    if size is not None:
        sections = list(source.divide(whole, size, tmp_path / "unpacked"))
        assert len(sections) > 1
    for section in sections:
        told = []
        with following(state):
            for _ in source.read(Part(whole.name, whole.files, section=section), BadFiles()):
                tell_progress()
                told.append(float(state.read_text()))
        assert told == sorted(told)
        assert told[0] > 0
        assert told[-1] == 1
        assert not state.exists()
