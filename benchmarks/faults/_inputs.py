"""Small inputs of every kind that recipes read, made from a seed: texts, a release, archives, a tokenizer."""

import gzip
import hashlib
import io
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

VOCABULARY = """
the of to and that have with be in is was were for not all had been which their people town harbour boats children
morning river houses hill bread storm winter bells nobody afraid because long until old fishermen waiting brought
baskets remember window garden letters evening street school teacher between tide mud flour water time rain stone
"""
WORDS = VOCABULARY.split()
NOTICE = (
    "\nAll rights to this text and to its pictures are with the harbour, which has to be asked before they are used.\n"
)
END_OF_TEXT = "<|endoftext|>"
SNAPSHOT = "2023-06"
GOOD_SIGNALS = {
    "ccnet_nlines": 6.0,
    "rps_doc_word_count": 900,
    "rps_doc_mean_word_length": 4.5,
    "rps_doc_symbol_to_word_ratio": 0.0,
    "rps_doc_frac_chars_top_2gram": 0.01,
}
"""Signals that the rules of the preset ``rpv2-card`` read."""


def sentences(chance: random.Random, words: int) -> str:
    """Return lines of so many words that read like sentences to the quality rules."""
    lines = []
    while words > 0:
        count = min(words, 14)
        lines.append(" ".join(chance.choices(WORDS, k=count)).capitalize() + ".")
        words -= count
    return "\n".join(lines)


def documents(count: int, words: tuple[int, int] = (20, 120), seed: int = 3) -> list[dict[str, Any]]:
    """Return documents, each seventh one the same text; each fifth of the others ends with the same notice."""
    chance = random.Random(seed)
    return [
        {
            "id": f"d{number}",
            "text": "the same text again " * 30
            if number % 7 == 6
            else sentences(chance, chance.randint(*words)) + NOTICE * (number % 5 == 0),
            "url": f"https://site{number % 3}.example/{number}",
            "language": "en",
        }
        for number in range(count)
    ]


def json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=bool(number % 2)) + "\n" for number, row in enumerate(rows)).encode()


def write_texts(folder: Path, files: int = 3, count: int = 40, words: tuple[int, int] = (20, 120)) -> Path:
    """Write JSON lines; ids are unique over all files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = documents(count * files, words)
    for number in range(files):
        (folder / f"{number}.jsonl").write_bytes(json_lines(rows[number::files]))
    return folder


def compress_gzip(content: bytes) -> bytes:
    return gzip.compress(content, 6, mtime=0)


def compress_zstd(content: bytes) -> bytes:
    """Compress with a checksum, as the command ``zstd`` does."""
    return bytes(zstandard.ZstdCompressor(write_checksum=True).compress(content))


def train_tokenizer(path: Path, vocabulary_size: int = 400) -> Path:
    """Write a small byte-level BPE as ``tokenizer.json``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([row["text"] for row in documents(40)], trainer)
    tokenizer.save(str(path))
    return path


def web_page(chance: random.Random, paragraphs: int = 6) -> bytes:
    body = "".join(f"<p>{sentences(chance, 42)}</p>" for _ in range(paragraphs))
    return (
        f"<!DOCTYPE html><html><head><title>A page</title></head><body><article>{body}</article></body></html>".encode()
    )


def web_record(name: str, url: str, page: bytes, head: str = "Content-Type: text/html; charset=utf-8\r\n") -> bytes:
    """Return a WARC record of one answer of a web server."""
    block = f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + page
    fields = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{name}>\r\nWARC-Target-URI: {url}\r\n"
        f"WARC-Date: 2023-06-01T00:00:00Z\r\nContent-Type: application/http\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return fields.encode() + block + b"\r\n\r\n"


def web_records(number: int, pages: int = 8, paragraphs: int = 6) -> list[bytes]:
    """Return records of an archive; one page is in every archive, one host is on the block list of the recipe."""
    chance = random.Random(f"archive {number}")
    records = [
        web_record(f"{number}-{page}", f"https://site{number}.example/{page}", web_page(chance, paragraphs))
        for page in range(pages)
    ]
    shared = web_page(random.Random("shared"), paragraphs)
    records.append(web_record(f"{number}-shared", f"https://site{number}.example/shared", shared))
    records.append(web_record(f"{number}-bad", "https://xxx-porn.example/", web_page(chance, paragraphs)))
    return records


def write_archives(folder: Path, files: int = 3, pages: int = 8) -> Path:
    """Write web archives, a gzip member for each record."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        members = map(compress_gzip, web_records(number, pages))
        (folder / f"{number}.warc.gz").write_bytes(b"".join(members))
    return folder


def release_files(shards: int = 2, count: int = 12, words: tuple[int, int] = (600, 900)) -> dict[str, bytes]:
    """Return the files of a RedPajama-V2 release, by their paths in it."""
    files: dict[str, bytes] = {}
    for shard in range(shards):
        for bucket in ("head", "middle"):
            part = f"{SNAPSHOT}/{shard:04d}/en_{bucket}"
            rows = documents(count, words, seed=shard * 2 + (bucket == "middle"))
            files |= _release_part(part, rows)
    return files


def write_release(folder: Path, shards: int = 2, count: int = 12, words: tuple[int, int] = (600, 900)) -> Path:
    """Write a RedPajama-V2 release; every document passes the rules of its card, the last of each file is listed."""
    write_files(folder, release_files(shards, count, words))
    return folder


def _release_part(part: str, rows: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    bucket = part.rpartition("_")[2]
    records, signals = [], []
    for line, row in enumerate(rows):
        text, name = row["text"], f"{part}.json.gz/{line}"
        digest = "sha1:" + hashlib.sha1(text.encode()).hexdigest()  # noqa: S324  # the release's own digest
        url = f"https://example.org/{part}/{line}"
        records.append(
            {
                "url": url,
                "date_download": "2023-02-03T04:05:06Z",
                "digest": digest,
                "length": len(text),
                "nlines": text.count("\n") + 1,
                "source_domain": "example.org",
                "title": f"Document {line}",
                "raw_content": text,
                "cc_segment": f"crawl-data/CC-MAIN-{SNAPSHOT}/wet/0.warc.wet.gz",
                "original_nlines": text.count("\n") + 1,
                "original_length": len(text),
                "language": "en",
                "language_score": 0.98,
                "perplexity": 321.5,
                "bucket": bucket,
            }
        )
        measured = {signal: [[0, len(text), value]] for signal, value in GOOD_SIGNALS.items()}
        measured["rps_lines_start_with_bulletpoint"] = [[0, len(text), 0.0]]
        about = {"url": url, "language": "en", "snapshot_id": SNAPSHOT}
        signals.append({"id": name, "id_int": line, "metadata": about, "quality_signals": measured})
    listed = [{"shard_id": f"{part}.json.gz", "doc_id": f"{part}.json.gz/{len(rows) - 1}", "digest": digest}]
    return {
        f"documents/{part}.json.gz": compress_gzip(json_lines(records)),
        f"quality_signals/{part}.signals.json.gz": compress_gzip(json_lines(signals)),
        f"duplicates/{part}.duplicates.parquet": parquet_bytes(pa.Table.from_pylist(listed)),
    }


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def digest_of(folder: Path) -> str:
    """Return a digest of the names and bytes of all files below a folder."""
    digest = hashlib.sha256()
    for name, content in read_files(folder).items():
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def fingerprint(value: object) -> str:
    """Return a digest of anything with a faithful ``repr``."""
    return hashlib.sha1(repr(value).encode("utf-8", "surrogatepass")).hexdigest()  # noqa: S324  # compared, not trusted
