"""Reading web archives: pages with digests and characters decoded, against warcio and fastwarc doing the same.

    python benchmarks/warc_reading.py [--archives crawl/*.warc.gz]

warcio is not among our dependencies: pip install -r benchmarks/peers/requirements-warc.txt. Without it the ratio is
fastwarc's. Every side gives a table of the HTML pages with status 200: id, URL, SHA-1 of the body with its encodings
undone, and HTML. warcio and fastwarc decode by the charset of the header or as UTF-8, with U+FFFD for what is
malformed, as scripts do; ours follows longcrawl.sources.warc.pages. Ids and digests are asserted equal. The line
"fastwarc, bytes only" reads payloads and does nothing with them. CPU time of one process, the best of --repeats.
Without --archives an archive of made-up pages is read. The last line is warcio's seconds / longcrawl's seconds.
"""

import argparse
import base64
import gzip
import hashlib
import importlib.util
import random
import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
from _measures import seconds

HTML = ("text/html", "application/xhtml+xml")


def digest(payload: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(payload).digest()).decode()  # noqa: S324  # the digest of WARC


def decoded(payload: bytes, content_type: str) -> str:
    charset = content_type.lower().partition("charset=")[2].strip("\"' ;") or "utf-8"
    try:
        return payload.decode(charset, "replace")
    except LookupError:
        return payload.decode("utf-8", "replace")


def table(rows: list[tuple[str, str, str, str]]) -> pa.Table:
    ids, urls, digests, pages = zip(*rows, strict=True)
    return pa.table({"id": ids, "url": urls, "digest": digests, "html": pa.array(pages, pa.large_string())})


def warcio(archives: list[Path]) -> pa.Table:
    from warcio.archiveiterator import ArchiveIterator

    rows = []
    for path in archives:
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                headers = record.http_headers
                if record.rec_type != "response" or headers is None or headers.get_statuscode() != "200":
                    continue
                kind = headers.get_header("Content-Type") or ""
                if kind.partition(";")[0].strip().lower() not in HTML:
                    continue
                payload = record.content_stream().read()
                if payload:
                    name, url = (
                        record.rec_headers.get_header(f"WARC-{field}") for field in ("Record-ID", "Target-URI")
                    )
                    rows.append((name, url, digest(payload), decoded(payload, kind)))
    return table(rows)


def fastwarc(archives: list[Path]) -> pa.Table:
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    rows = []
    for path in archives:
        for record in ArchiveIterator(str(path), record_types=WarcRecordType.response, auto_decode="all"):
            headers = record.http_headers
            if headers is None or headers.status_code != 200 or record.http_content_type not in HTML:
                continue
            payload = record.reader.read()
            if payload:
                html = decoded(payload, headers.get("Content-Type", ""))
                rows.append((record.record_id, record.headers["WARC-Target-URI"], digest(payload), html))
    return table(rows)


def bytes_only(archives: list[Path]) -> None:
    from fastwarc.warc import ArchiveIterator

    for path in archives:
        for record in ArchiveIterator(str(path)):
            record.reader.read()


def ours(archives: list[Path]) -> pa.Table:
    from longcrawl.core.sources import BadFiles
    from longcrawl.sources.warc.source import Warc

    source = Warc(data_files=tuple(map(str, archives)), mimes=HTML, record_types=("response",))
    parts = source.splits()["train"]
    return pa.concat_tables(found for part in parts for found in source.read(part, BadFiles()))


def synthetic(folder: Path) -> list[Path]:
    """Make an archive of 500 pages of 10 to 200 KB, a request after each."""
    chosen, members = random.Random(0), []
    words = ["".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=chosen.randrange(2, 10))) for _ in range(5_000)]
    words += ["größe", "naïve", "你好"]
    for number in range(500):
        text = " ".join(chosen.choices(words, k=chosen.randrange(1_500, 30_000)))
        page = f"<html><body><p>{text}</p></body></html>".encode()
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(page)}\r\n\r\n".encode()
        )
        for kind, block in (("response", head + page), ("request", b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")):
            fields = {
                "WARC-Type": kind,
                "WARC-Record-ID": f"<urn:uuid:{kind}-{number}>",
                "WARC-Target-URI": f"https://example.org/{number}",
                "WARC-Date": "2024-01-02T03:04:05Z",
                "Content-Type": f"application/http; msgtype={kind}",
                "Content-Length": str(len(block)),
            }
            header = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            members.append(gzip.compress(f"WARC/1.0\r\n{header}\r\n".encode() + block + b"\r\n\r\n", 6))
    (folder / "synthetic.warc.gz").write_bytes(b"".join(members))
    return [folder / "synthetic.warc.gz"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archives", type=Path, nargs="*")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archives = options.archives or synthetic(Path(folder))
        found = ours(archives)
        expected = dict(zip(found["id"].to_pylist(), found["digest"].to_pylist(), strict=True))
        peers = {"warcio": warcio, "fastwarc": fastwarc}
        if importlib.util.find_spec("warcio") is None:
            print("warcio is not installed: pip install -r benchmarks/peers/requirements-warc.txt")
            peers.pop("warcio")
        for read in peers.values():
            theirs = read(archives)
            differing = {
                name
                for name, url, value in zip(
                    *(theirs[column].to_pylist() for column in ("id", "url", "digest")), strict=True
                )
                if url.startswith("http") and expected.get(name) != value
            }
            assert not differing, (read.__name__, differing)
        sides = {**peers, "fastwarc, bytes only": bytes_only, "longcrawl": ours}
        times = {name: seconds(partial(read, archives), options.repeats) for name, read in sides.items()}
    megabytes = sum(len(page.as_buffer()) for page in found["html"]) / 1e6
    for name, taken in times.items():
        print(
            f"{name:20} {taken[0]:.3f} s CPU, {megabytes / taken[0]:6.0f} MB/s of HTML, "
            f"{found.num_rows / taken[0]:7,.0f} pages/s, spread {taken[-1] / taken[0]:.2f}x over {options.repeats}"
        )
    against_fastwarc = times["fastwarc"][0] / times["longcrawl"][0]
    print(f"{found.num_rows:,} pages, {megabytes:.1f} MB; fastwarc / longcrawl {against_fastwarc:.2f}")
    print(f"warc_reading ratio={times[next(iter(peers))][0] / times['longcrawl'][0]:.3f}")


if __name__ == "__main__":
    main()
