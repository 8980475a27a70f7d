"""Readers of inputs: JSON lines, texts, parquet, web archives, RedPajama-V2, and what looks into their records."""

import gzip
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard
from _campaign import Outcome, Target, Trial
from _inputs import (
    compress_gzip,
    compress_zstd,
    documents,
    json_lines,
    parquet_bytes,
    read_files,
    release_files,
    web_records,
    write_files,
)
from _mutations import BINARY, TEXT, Mutation, damage
from _outcome import judge_sentence

from longcrawl.errors import LongCrawlError

Files = dict[str, bytes]
Rows = list[dict[str, Any]]
UNUSUAL = "Tide {} \u2014 \u201cebb\u201d \u00e4 \U0001f600\n"


@dataclass(frozen=True)
class Reading:
    """Rows and counts of a source under ``on_bad_files="skip"``."""

    rows: Rows
    reported: bool
    lost: int
    left_out: int


Judge = Callable[[Files, Reading, Reading], Outcome]
"""Judges the reading of damaged files, which is neither that of the whole ones nor has it been reported."""


class SourceTarget(Target):
    """A source over files of which one is damaged."""

    def __init__(
        self,
        name: str,
        weight: int,
        source: str,
        files: Callable[[], Files],
        *,
        ways: Sequence[Mutation] = BINARY,
        settings: Mapping[str, Any] | None = None,
        judge: Judge | None = None,
        inside: bool = False,
    ) -> None:
        self.name, self.weight, self.source, self.files = name, weight, source, files
        self.ways, self.settings, self.inside = ways, settings or {}, inside
        self.judge = judge or (lambda *_: Outcome("legitimate"))

    def make(self, folder: Path) -> None:
        write_files(folder, self.files())

    def open(self, folder: Path, scratch: Path) -> Trial:
        files = read_files(folder)
        write_files(scratch, files)
        whole = self.read(scratch)
        contents = {name: self.unpacked(name, content) for name, content in files.items()}
        others = list(contents.values())

        def trial(chance: random.Random) -> Outcome:
            name = chance.choice(sorted(files))
            damaged = self.packed(name, damage(contents[name], chance, others, self.ways))
            (scratch / name).write_bytes(damaged)
            try:
                return self.outcome(scratch, files | {name: damaged}, whole)
            finally:
                (scratch / name).write_bytes(files[name])

        return trial

    def unpacked(self, name: str, content: bytes) -> bytes:
        """Return what is damaged: the file, or what is inside of it."""
        return gzip.decompress(content) if self.inside and name.endswith(".gz") else content

    def packed(self, name: str, content: bytes) -> bytes:
        return gzip.compress(content, 1) if self.inside and name.endswith(".gz") else content

    def outcome(self, folder: Path, files: Files, whole: Reading) -> Outcome:
        reading = self.read(folder)
        stopped = self.stops(folder)
        if stopped is not None and stopped.word != "noticed":
            return stopped
        if reading.reported != (stopped is not None):
            said = f"'error' raises: {stopped.detail}" if stopped else "'error' raises nothing"
            return Outcome("contradiction", f"'skip' reports: {reading.reported}; {said}")
        if reading.rows == whole.rows:
            return Outcome("same")
        judged = self.judge(files, reading, whole)
        return Outcome("reported") if reading.reported and judged.survived else judged

    def read(self, folder: Path) -> Reading:
        from longcrawl.core.sources import BadFiles

        bad_files = BadFiles("skip")
        rows = self._rows(folder, bad_files)
        lost = sum(bad.records_lost or 0 for bad in bad_files.found)
        return Reading(rows, bool(bad_files.found), lost, sum(bad_files.left_out.values()))

    def stops(self, folder: Path) -> Outcome | None:
        """Return what the sentence is like by which reading stops under "error"; None where it does not."""
        from longcrawl.core.sources import BadFiles

        try:
            self._rows(folder, BadFiles("error"))
        except LongCrawlError as error:
            return judge_sentence(error)
        return None

    def _rows(self, folder: Path, bad_files: Any) -> Rows:
        from longcrawl.core.sources import make_source

        source = make_source(self.source, {"data_dir": str(folder), "on_bad_files": bad_files.policy, **self.settings})
        rows: Rows = []
        for parts in source.splits().values():
            for part in parts:
                for table in source.read(part, bad_files):
                    table.validate(full=True)
                    rows += table.to_pylist()
        return rows


def every_line(files: Files, reading: Reading, _: Reading) -> Outcome:
    """Each line that is not blank is a row, or is reported."""
    lines = sum(bool(line.strip()) for content in files.values() for line in _unpacked(content).split(b"\n"))
    if len(reading.rows) + reading.lost < lines and not (reading.reported and not reading.lost):
        return Outcome("silent loss", f"{lines} lines, {len(reading.rows)} rows, {reading.lost} reported")
    return Outcome("legitimate")


def _unpacked(content: bytes) -> bytes:
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def checksummed(decompress: Callable[[bytes], bytes], column: str = "text") -> Judge:
    """Judge files whose compression has checksums: by a library's strict decompression, and by the whole texts."""

    def judge(files: Files, reading: Reading, whole: Reading) -> Outcome:
        known = {row[column] for row in whole.rows}
        wrong = [row[column] for row in reading.rows if row[column] not in known]
        if not wrong and reading.reported:
            return Outcome("reported")
        try:
            for content in files.values():
                decompress(content)
        except (OSError, EOFError, zstandard.ZstdError, gzip.zlib.error) as damaged:
            what = f"{len(wrong)} wrong texts, such as {str(wrong[:1])[:200]}" if wrong else "nothing is reported"
            return Outcome("silent change", f"{type(damaged).__name__}: {damaged}, and {what}")
        return Outcome("legitimate")

    return judge


def decompress_gzip(content: bytes) -> bytes:
    """Decompress all members, strictly, but for zeros before them."""
    return gzip.decompress(content.lstrip(b"\0"))


def decompress_zstd(content: bytes) -> bytes:
    """Decompress all frames, strictly."""
    whole = b""
    while content:
        inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        whole += inflater.decompress(content)
        if not inflater.eof:
            raise EOFError("the last frame is cut")
        content = inflater.unused_data.lstrip(b"\0")  # what pads the end of a file is no damage
    return whole


def same_texts_by_id(files: Files, reading: Reading, whole: Reading) -> Outcome:  # noqa: ARG001  # as all judges
    """Rows of a release are as they were, or lack what was reported."""
    known = {row["id"]: row for row in whole.rows}
    for row in reading.rows:
        before = known.get(row["id"])
        if before is None or row["text"] != before["text"]:
            return Outcome("silent change", f"{row['id']} has another text than before")
        if row["signals"] not in (None, before["signals"]):
            return Outcome("silent change", f"{row['id']} has other signals than before")
    return Outcome("legitimate" if reading.reported else "silent loss", f"{len(reading.rows)} of {len(known)} rows")


def unusual_documents() -> Rows:
    rows = documents(10, (8, 30))
    return [row | {"text": UNUSUAL.format(number) * 3 + row["text"], "n": number} for number, row in enumerate(rows)]


def _members() -> Files:
    return {"a.jsonl.gz": b"".join(compress_gzip(json_lines([row])) for row in unusual_documents())}


def _conversions() -> Files:
    records = []
    for number in range(6):
        text = (UNUSUAL.format(number) * 20).encode()
        head = (
            f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: https://e.example/{number}\r\n"
            f"WARC-Record-ID: <urn:uuid:{number}>\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        records.append(compress_gzip(head.encode() + text + b"\r\n\r\n"))
    return {"a.warc.wet.gz": b"".join(records)}


def small_records() -> list[bytes]:
    return web_records(0, pages=4, paragraphs=1)


def _small_release() -> Files:
    return {name: content for name, content in release_files(1, 5, (20, 40)).items() if "middle" not in name}


TEXTS = {"id_field": "id", "fields": ["n"]}
RELEASE = {"snapshots": ["2023-06"], "partitions": ["head"], "line_signals": ["rps_lines_start_with_bulletpoint"]}


def source_targets() -> list[Target]:
    """Return a target for each kind of input file."""
    lines = json_lines(unusual_documents())
    return [
        SourceTarget("jsonl", 30, "text", lambda: {"a.jsonl": lines}, ways=TEXT, settings=TEXTS, judge=every_line),
        SourceTarget("jsonl.gz", 30, "text", _members, settings=TEXTS, judge=checksummed(decompress_gzip)),
        SourceTarget(
            "jsonl.zst",
            20,
            "text",
            lambda: {"a.jsonl.zst": compress_zstd(lines)},
            settings=TEXTS,
            judge=checksummed(decompress_zstd),
        ),
        SourceTarget(
            "txt",
            20,
            "text",
            lambda: {"a.txt": (UNUSUAL.format(1) * 30).encode()},
            settings={"unit": "line"},
            judge=every_line,
        ),
        SourceTarget(
            "parquet",
            20,
            "text",
            lambda: {"a.parquet": parquet_bytes(pa.Table.from_pylist(unusual_documents()), row_group_size=5)},
            settings={"fields": ["n"]},
        ),
        SourceTarget("warc", 20, "warc", lambda: {"a.warc": b"".join(small_records())}, ways=TEXT),
        SourceTarget(
            "warc.gz",
            20,
            "warc",
            lambda: {"a.warc.gz": b"".join(map(compress_gzip, small_records()))},
            judge=checksummed(decompress_gzip, "html"),
        ),
        SourceTarget(
            "warc.zst",
            20,
            "warc",
            lambda: {"a.warc.zst": b"".join(map(compress_zstd, small_records()))},
            judge=checksummed(decompress_zstd, "html"),
        ),
        SourceTarget("wet.gz", 20, "warc", _conversions, judge=checksummed(decompress_gzip)),
        SourceTarget("release", 8, "redpajama-v2", _small_release, settings=RELEASE),
        SourceTarget("release inside", 8, "redpajama-v2", _small_release, ways=TEXT, settings=RELEASE, inside=True),
    ]
