"""Functions that look into records: charsets, answers of web servers, fields, lines, URLs, pages."""

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from _campaign import Outcome, Target, Trial
from _input_targets import small_records, unusual_documents
from _inputs import compress_gzip, compress_zstd, fingerprint, json_lines, read_files, write_files
from _mutations import TEXT, damage


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


_HALVES = re.compile("[\ud800-\udfff]")


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
    from longcrawl.sources.warc.pages import decode_page

    def read(page: bytes) -> object:
        found = decode_page(page, ("utf-8", None, "gb2312", "utf-16")[len(page) % 4], markup=True)
        text = bytes(found.utf8)
        assert b"\0" not in text, "a NUL character is left"
        text.decode("utf-8")
        return text, found.charset

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
    from longcrawl.sources.warc.pages import LeftOutError, body_of, parse_message

    def read(block: bytes) -> object:
        try:
            message = parse_message(block)
            return message.status, sorted(message.fields.items()), body_of(message, 1 << 20)
        except LeftOutError as rule:
            return str(rule)

    return read


def _read_lines() -> Callable[[bytes], object]:
    """Compare each row with what Python's json makes of its line."""
    from longcrawl.sources.json_lines import read_lines

    schema = pa.schema([pa.field("text", pa.large_string(), nullable=False), pa.field("id", pa.string())])

    def read(block: bytes) -> object:
        found = read_lines(block, schema)
        lines = block.split(b"\n")
        blank = sum(not line.strip() for line in lines[: found.count])
        rows, lost = found.table.num_rows, len(found.lost)
        assert rows + lost + blank >= found.count, f"{rows} rows and {lost} lost of {found.count} lines, {blank} blank"
        for number, text in zip(found.numbers.tolist(), found.table["text"].to_pylist(), strict=True):
            parsed = json.loads(lines[number])["text"]
            # Half of a surrogate pair is no character: Arrow's texts have U+FFFD in its place.
            wanted = _HALVES.sub("\ufffd", parsed) if isinstance(parsed, str) else text
            assert text == wanted, f"{text!r} was read for {parsed!r}"
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
    from longcrawl.sources.warc.records import parse_fields

    return [
        MemoryTarget("charset", 90, _pages, _decode_page),
        MemoryTarget("http answer", 90, _answers, _read_answer),
        MemoryTarget(
            "warc fields",
            60,
            lambda: [each.partition(b"\r\n\r\n")[0] for each in small_records()],
            lambda: parse_fields,
        ),
        MemoryTarget("json lines", 60, lambda: [json_lines([row]) for row in unusual_documents()], _read_lines),
        MemoryTarget("urls", 40, lambda: ["\n".join(URLS).encode()], _judge_urls),
        MemoryTarget(
            "html", 2, lambda: [each.partition(b"\r\n\r\n")[2] for each in small_records()[:3]], _extract_text
        ),
    ]
