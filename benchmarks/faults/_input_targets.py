"""Readers of inputs: JSON lines, texts, parquet, web archives, RedPajama-V2, and what looks into their records."""

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard
from _campaign import Outcome, Target, Trial, judge_sentence
from _inputs import (
    compress_gzip,
    compress_zstd,
    documents,
    fingerprint,
    json_lines,
    parquet_bytes,
    read_files,
    release_files,
    web_records,
    write_files,
)
from _mutations import BINARY, TEXT, Mutation, damage

from longcrawl.errors import LongCrawlError

Files = dict[str, bytes]
Rows = list[dict[str, Any]]
UNUSUAL = "Tide {} \u2014 \u201cebb\u201d \u00e4 \U0001f600\n"


@dataclass(frozen=True)
class Reading:
    """What a source made of its files under ``on_bad_files="skip"``."""

    rows: Rows
    reported: bool
    lost: int
    left_out: int


Judge = Callable[[Files, Reading, Reading], Outcome]
"""Judges the reading of damaged files, which is neither that of the whole ones nor has it been reported."""


class MemoryTarget(Target):
    """A function that is given bytes; whatever it returns is right, unless its own check raises."""

    def __init__(self, name: str, weight: int, samples: Callable[[], Sequence[bytes]], read: Callable[[], Any]) -> None:
        self.name, self.weight, self.samples, self.read = name, weight, samples, read

    def make(self, folder: Path) -> None:
        write_files(folder, {f"{number:03d}": sample for number, sample in enumerate(self.samples())})

    def open(self, folder: Path, scratch: Path) -> Trial:  # noqa: ARG002  # nothing is written
        samples, read = list(read_files(folder).values()), self.read()
        before = [fingerprint(read(sample)) for sample in samples]

        def trial(chance: random.Random) -> Outcome:
            number = chance.randrange(len(samples))
            found = read(damage(samples[number], chance, samples, TEXT))
            return Outcome("same" if fingerprint(found) == before[number] else "legitimate")

        return trial


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
        from longcrawl.builders.sources import BadFiles

        bad_files = BadFiles("skip")
        rows = self._rows(folder, bad_files)
        lost = sum(bad.records_lost or 0 for bad in bad_files.found)
        return Reading(rows, bool(bad_files.found), lost, sum(bad_files.left_out.values()))

    def stops(self, folder: Path) -> Outcome | None:
        """Return what the sentence is like by which reading stops under "error"; None where it does not."""
        from longcrawl.builders.sources import BadFiles

        try:
            self._rows(folder, BadFiles("error"))
        except LongCrawlError as error:
            return judge_sentence(error)
        return None

    def _rows(self, folder: Path, bad_files: Any) -> Rows:
        from longcrawl.builders.sources import make_source

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


def decompress_zstd(content: bytes) -> bytes:
    """Decompress all frames, strictly."""
    whole = b""
    while content:
        inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        whole += inflater.decompress(content)
        if not inflater.eof:
            raise EOFError("the last frame is cut")
        content = inflater.unused_data
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


def _documents() -> Rows:
    rows = documents(10, (8, 30))
    return [row | {"text": UNUSUAL.format(number) * 3 + row["text"], "n": number} for number, row in enumerate(rows)]


def _members() -> Files:
    return {"a.jsonl.gz": b"".join(compress_gzip(json_lines([row])) for row in _documents())}


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


def _records() -> list[bytes]:
    return web_records(0, pages=4, paragraphs=1)


def _small_release() -> Files:
    return {name: content for name, content in release_files(1, 5, (20, 40)).items() if "middle" not in name}


TEXTS = {"id_field": "id", "fields": ["n"]}
RELEASE = {"snapshots": ["2023-06"], "partitions": ["head"], "line_signals": ["rps_lines_start_with_bulletpoint"]}


def source_targets() -> list[Target]:
    """Return a target for each kind of input file."""
    lines = json_lines(_documents())
    return [
        SourceTarget("jsonl", 30, "text", lambda: {"a.jsonl": lines}, ways=TEXT, settings=TEXTS, judge=every_line),
        SourceTarget("jsonl.gz", 30, "text", _members, settings=TEXTS, judge=checksummed(gzip.decompress)),
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
            lambda: {"a.parquet": parquet_bytes(pa.Table.from_pylist(_documents()), row_group_size=5)},
            settings={"fields": ["n"]},
        ),
        SourceTarget("warc", 20, "warc", lambda: {"a.warc": b"".join(_records())}, ways=TEXT),
        SourceTarget(
            "warc.gz",
            20,
            "warc",
            lambda: {"a.warc.gz": b"".join(map(compress_gzip, _records()))},
            judge=checksummed(gzip.decompress, "html"),
        ),
        SourceTarget(
            "warc.zst",
            20,
            "warc",
            lambda: {"a.warc.zst": b"".join(map(compress_zstd, _records()))},
            judge=checksummed(decompress_zstd, "html"),
        ),
        SourceTarget("wet.gz", 20, "warc", _conversions, judge=checksummed(gzip.decompress)),
        SourceTarget("release", 8, "redpajama-v2", _small_release, settings=RELEASE),
        SourceTarget("release inside", 8, "redpajama-v2", _small_release, ways=TEXT, settings=RELEASE, inside=True),
    ]


def _pages() -> list[bytes]:
    names = ("utf-8", "iso-8859-1", "gb18030", "utf-16", "shift_jis", "windows-1251", "koi8-r", "big5", "euc-kr")
    texts = dict.fromkeys(names, "naïve Größe"[:4]) | {
        "gb18030": "你好世界",
        "utf-16": "naïve 你好",
        "koi8-r": "прилив",
    }
    texts |= {
        "shift_jis": "こんにちは",
        "windows-1251": "прилив",
        "big5": "你好",
        "euc-kr": "안녕하세요",
        "utf-8": "naïve 你好",
    }
    page = "<html><head><meta charset='{}'><title>t</title></head><body>{}</body></html>"
    return [page.format(name, text * 20).encode(name, "replace") for name, text in texts.items()]


def _decode_page() -> Callable[[bytes], object]:
    from longcrawl.builders.charsets import decode_page

    def read(page: bytes) -> object:
        text, name = decode_page(page, ("utf-8", None, "gb2312", "utf-16")[len(page) % 4], markup=True)
        assert "\0" not in text.decode("utf-8"), "a NUL character is left"
        return text, name

    return read


def _answers() -> list[bytes]:
    import brotli

    body = b"<html><body>" + b"<p>The tide was out.</p>" * 10
    chunked = b"5\r\n" + body[:5] + b"\r\n%x;a=b\r\n" % len(body[5:]) + body[5:] + b"\r\n0\r\n\r\n"
    codings = {
        "": body,
        "Content-Encoding: gzip\r\n": compress_gzip(body),
        "Content-Encoding: deflate\r\n": gzip.zlib.compress(body),
        "Content-Encoding: br\r\n": brotli.compress(body),
        "Content-Encoding: zstd\r\n": compress_zstd(body),
        "Content-Encoding: gzip, br\r\n": brotli.compress(compress_gzip(body)),
        "Transfer-Encoding: chunked\r\n": chunked,
    }
    first = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
    return [f"{first}{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent for head, sent in codings.items()]


def _read_answer() -> Callable[[bytes], object]:
    from longcrawl.builders.warc_http import LeftOutError, body_of, parse_message

    def read(block: bytes) -> object:
        try:
            message = parse_message(block)
            return message.status, sorted(message.fields.items()), body_of(message, 1 << 20)
        except LeftOutError as rule:
            return str(rule)

    return read


def _read_lines() -> Callable[[bytes], object]:
    """Compare each row with what Python's json makes of its line."""
    from longcrawl.builders.json_lines import read_lines

    schema = pa.schema([pa.field("text", pa.large_string(), nullable=False), pa.field("id", pa.string())])

    def read(block: bytes) -> object:
        found = read_lines(block, schema)
        lines = block.split(b"\n")
        blank = sum(not line.strip() for line in lines[: found.count])
        rows, lost = found.table.num_rows, len(found.lost)
        assert rows + lost + blank >= found.count, f"{rows} rows and {lost} lost of {found.count} lines, {blank} blank"
        for number, text in zip(found.numbers.tolist(), found.table["text"].to_pylist(), strict=True):
            parsed = json.loads(lines[number])["text"]
            assert text == parsed or not isinstance(parsed, str), f"{text!r} was read for {parsed!r}"
        return found.table.to_pydict()

    return read


URLS = (
    "https://www.example.com/a/b?c=d#e", "http://xn--nxasmq6b/ä", "http://[::1]:99999/", "http://a@b:c@d/%00", "//x",
    "http://" + "a." * 60 + "org", "https://de.wikipedia.org/wiki/Flut", "http://xxx-porn.example/", "HTTP://EXAMPLE.ORG:80",
    "ftp://127.0.0.1/%E4%BD%A0", "", "data:text/html,x", "https://example.co.uk/casino/poker?free=sex",
)  # fmt: skip


def _judge_urls() -> Callable[[bytes], object]:
    from longcrawl.text import UrlFilter

    stage = UrlFilter()
    stage.prepare()

    def read(content: bytes) -> object:
        urls = content.decode("utf-8", "replace").split("\n")
        table = pa.table({"id": [str(number) for number in range(len(urls))], "url": urls})
        verdicts = stage.judge(table)
        assert verdicts.num_rows == len(urls), f"{verdicts.num_rows} verdicts for {len(urls)} URLs"
        return verdicts.to_pydict()

    return read


def _extract_text() -> Callable[[bytes], object]:
    from longcrawl.text import ExtractText

    stage = ExtractText()
    stage.prepare()

    def read(page: bytes) -> object:
        html = page.decode("utf-8", "replace").replace("\0", "")
        table = pa.table(
            {"id": ["a"], "text": pa.nulls(1, pa.large_string()), "url": ["http://e.example"], "html": [html]}
        )
        edited, checks = stage.edit(table)
        return edited["text"].to_pylist(), [check.passes.tolist() for check in checks]

    return read


def record_targets() -> list[Target]:
    """Return a target for each function that looks into records."""
    from longcrawl.builders.warc_records import parse_fields

    return [
        MemoryTarget("charset", 90, _pages, _decode_page),
        MemoryTarget("http answer", 90, _answers, _read_answer),
        MemoryTarget(
            "warc fields", 60, lambda: [each.partition(b"\r\n\r\n")[0] for each in _records()], lambda: parse_fields
        ),
        MemoryTarget("json lines", 60, lambda: [json_lines([row]) for row in _documents()], _read_lines),
        MemoryTarget("urls", 40, lambda: ["\n".join(URLS).encode()], _judge_urls),
        MemoryTarget("html", 2, lambda: [each.partition(b"\r\n\r\n")[2] for each in _records()[:3]], _extract_text),
    ]
