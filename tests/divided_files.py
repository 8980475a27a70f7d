"""Small files of each kind that a run divides, and recipes for them."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

KINDS = ("lines.jsonl", "members.jsonl.gz", "member.jsonl.gz", "frames.jsonl.zst", "rows.parquet", "pages.warc.gz")


def write(folder: Path, kind: str) -> Path:
    """Write a file of one of ``KINDS``, with some equal documents and some that cannot be read."""
    folder.mkdir(parents=True, exist_ok=True)
    chance, file = random.Random(kind), folder / kind
    texts = [" ".join(chance.choices("abcdefgh", k=chance.choice([5, 60, 120]))) for _ in range(160)]
    texts[30] = texts[130] = "the same text in two sections " * 4
    if kind.endswith(".warc.gz"):
        file.write_bytes(b"".join(gzip.compress(_record(row, text), mtime=0) for row, text in enumerate(texts)))
        return file
    rows = [{"id": f"{kind}-{row}", "text": text} for row, text in enumerate(texts)]
    if kind.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=20, compression="none")
        return file
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    lines[110] = b"no JSON\n"
    if kind.startswith("members"):
        file.write_bytes(b"".join(gzip.compress(b"".join(lines[at : at + 25]), mtime=0) for at in range(0, 160, 25)))
    elif kind.startswith("member"):
        file.write_bytes(gzip.compress(b"".join(lines), mtime=0))
    elif kind.startswith("frames"):
        file.write_bytes(b"".join(zstandard.compress(b"".join(lines[at : at + 25])) for at in range(0, 160, 25)))
    else:
        file.write_bytes(b"".join(lines))
    return file


def _record(row: int, text: str) -> bytes:
    page = f"<html><body><p>{text}</p></body></html>".encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{row}>\r\n"
        f"WARC-Target-URI: https://example.org/{row}\r\nContent-Type: application/http\r\n"
        f"Content-Length: {len(answer)}\r\n\r\n"
    )
    return head.encode() + answer + b"\r\n\r\n"


def recipes(folder: Path, files: Sequence[str] = ()) -> list[Path]:
    """Write a recipe for all files of texts and one for the archive; ``files`` are their URLs, if not local."""
    named = files or [str(write(folder / "input", kind)) for kind in KINDS]
    texts = {"builder": "text", "data_files": list(named[:-1]), "id_field": "id", "on_bad_files": "skip"}
    pages = {"builder": "warc", "data_files": [named[-1]], "on_bad_files": "skip"}
    made, stages = [], [{"min_chars": {"n": 40}}, "exact_documents"]
    for source, before in ((texts, []), (pages, [{"extract_text": {"engine": "blocks"}}])):
        made.append(folder / f"{source['builder']}.yaml")
        spec = {"longcrawl": 1, "name": "divided", "source": source, "outputs": {"parquet": {}}}
        spec["stages"] = [*before, *stages]
        made[-1].write_text(yaml.safe_dump(spec), "utf-8")
    return made
