"""A small web archive (WARC) and a file of JSON lines, of the same generated pages."""

import gzip
import html
import json
from pathlib import Path

from longcrawl.samples import prose
from longcrawl.samples.prose import Page

_MENU = "<nav><ul><li>Home</li><li>About us</li><li>Sign in</li></ul></nav><aside>3 likes</aside>"


def write_archive(folder: str | Path, *, seed: int = 0) -> Path:
    """Write ``00000.warc.gz`` and ``00001.warc.gz``, about 200 pages and two redirects, and return the folder.

    Some pages are copies, adverts, in German, empty, or at URLs that RefinedWeb's filter removes.

    >>> import longcrawl as lc
    >>> folder = lc.samples.write_archive("crawl")
    >>> len(lc.open("warc", data_files=f"{folder}/*.warc.gz").data)
    196
    """
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    found = list(prose.pages(seed, 120))
    found += [
        Page("https://en.wikipedia.org/wiki/Archive", "An archive is a place where records are kept. " * 20),
        Page("https://free-porn.example/", "Not a page for a language model. " * 20),
        Page("https://empty.example/", ""),
        Page("https://moved.example/", ""),
    ]
    for number in range(2):
        records = [_record(place, found[place], "200 OK") for place in range(number, len(found), 2)]
        records.append(_record(10_000 + number, Page("https://old.example/", ""), "301 Moved Permanently"))
        (root / f"{number:05d}.warc.gz").write_bytes(b"".join(records))
    return root


def write_texts(path: str | Path, *, pages: int = 120, seed: int = 0) -> Path:
    """Write JSON lines with ``id``, ``url``, ``language`` and ``text``, and return the path.

    ``pages`` of plain prose, and six bad or copied ones for every ten: 192 documents of 580 kB by default.

    >>> import longcrawl as lc
    >>> lc.open(str(lc.samples.write_texts("texts.jsonl"))).data.column_names[:2]
    ['id', 'text']
    """
    target = Path(path)
    rows = [
        {"id": f"page-{number}", "url": page.url, "language": page.language, "text": page.text}
        for number, page in enumerate(prose.pages(seed, pages))
    ]
    target.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return target


def _record(number: int, page: Page, status: str) -> bytes:
    title = page.text.partition(".")[0][:60]
    paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in page.text.split("\n") if line)
    article = f"<article><h1>{html.escape(title)}</h1>{paragraphs}</article>" if page.text else ""
    body = f"<html><head><title>{html.escape(title)}</title></head><body>{_MENU}{article}</body></html>"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    block = f"{head}{body}".encode()
    lines = [
        "WARC/1.0",
        "WARC-Type: response",
        f"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-{number:012d}>",
        f"WARC-Target-URI: {page.url}",
        "WARC-Date: 2026-01-01T00:00:00Z",
        "Content-Type: application/http; msgtype=response",
        f"Content-Length: {len(block)}",
    ]
    return gzip.compress("\r\n".join(lines).encode() + b"\r\n\r\n" + block + b"\r\n\r\n", mtime=0)
