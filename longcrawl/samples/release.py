"""A small RedPajama-V2 release in the files of the public one: documents, signals, duplicates, MinHash signatures."""

import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.samples.prose import Page, pages, prose

BOOKS = (16_500, 17_000, 18_000, 19_000, 20_500, 22_000, 24_000, 26_000, 28_000, 101_000)
"""Words of the long documents; the last one is over the cap of Gopher's rules."""

SIGNATURES = {"1.0": (1, 128), "0.9": (5, 25), "0.8": (9, 13), "0.7": (14, 9)}
"""Bands and rows of the release's columns of signatures."""

Record = Mapping[str, Any]
Measure = Callable[[Sequence[Record]], Iterable[Mapping[str, Any] | None]]


def write_release(folder: str | Path) -> Path:
    """Write a RedPajama-V2 release of about 330 documents in English and German, and return its folder.

    Snapshot 2023-06, shard 0: ``en_head`` and ``en_middle`` with ten books of 16,500 to 101,000 words, ``de_head``. It
    has 1.5 MB, and takes a few seconds.

    >>> import longcrawl as lc
    >>> release = lc.samples.write_release("release")
    >>> len(lc.open("redpajama-v2", data_dir=str(release), languages=["en"]).data)
    310
    """
    chance = random.Random(0)  # noqa: S311  # a seed makes the same books everywhere
    books = [Page(f"https://books.example/{words}", prose(chance, words)) for words in BOOKS]
    found = [*pages(0, 200), *books]
    chance.shuffle(found)
    english = [page for page in found if page.language == "en"]
    parts = {
        "2023-06/0000/en_head": english[::2],
        "2023-06/0000/en_middle": english[1::2],
        "2023-06/0000/de_head": [page for page in found if page.language == "de"],
    }
    seen: set[str] = set()
    root = Path(folder)
    for part, members in parts.items():
        documents = []
        for page in members:
            documents.append({"text": page.text, "url": page.url, "duplicate": page.text in seen})
            seen.add(page.text)
        write_part(root, part, documents, measure_signals, sign_documents)
        list_part(root, part)
    return root


def list_part(root: Path, part: str) -> None:
    """Add a part to the listing of its language and snapshot."""
    snapshot, _, name = part.split("/")
    language, bucket = name.split("_")
    listing = root / f"listings/{language}-{snapshot}-{'tail' if bucket == 'tail' else 'head_middle'}.txt"
    listing.parent.mkdir(parents=True, exist_ok=True)
    parts = listing.read_text("utf-8").splitlines() if listing.exists() else []
    if part not in parts:
        listing.write_text("".join(f"{each}\n" for each in [*parts, part]), "utf-8")


def measure_signals(records: Sequence[Record]) -> Iterable[dict[str, Any]]:
    """Yield the signals of records, as ``signals`` computes them, in the shape of the release's files."""
    from longcrawl.text.rpv2.signals import Signals

    columns = {"raw_content": "text", "url": "url", "language": "language", "perplexity": "perplexity"}
    columns |= {name: name for name in ("bucket", "original_length", "original_nlines", "language_score")}
    table = pa.table({ours: [record[theirs] for record in records] for theirs, ours in columns.items()})
    measured = Signals(line_signals=("all",)).rewrite(table)
    rows = zip(records, measured["signals"].to_pylist(), measured["line_signals"].to_pylist(), strict=True)
    for record, document, lines in rows:
        values = {name: value for name, value in document.items() if not name.endswith(".sum")}
        yield {name: [[0, record["length"], value]] for name, value in values.items()} | lines


def sign_documents(texts: Sequence[str]) -> list[dict[str, list[bytes]]]:
    """Return a document's signatures: bands are equal where those of MinHash over 13-grams of words are."""
    from longcrawl.dedup.minhash import MinHash

    table = pa.table({"id": [str(number) for number in range(len(texts))], "text": list(texts)})
    signed: list[dict[str, list[bytes]]] = [{} for _ in texts]
    for similarity, (bands, rows) in SIGNATURES.items():
        keys = MinHash(bands, rows, unit="word", ngram=13).sketch(table)["bands"].to_pylist()
        for signatures, key in zip(signed, keys, strict=True):
            each = [key[8 * band : 8 * band + 8] for band in range(bands)]
            signatures[f"signature_sim{similarity}"] = [hashlib.shake_128(one).digest(4 * rows) for one in each]
    return signed


def write_part(
    root: Path,
    part: str,
    documents: Sequence[Mapping[str, Any]],
    measure: Measure,
    sign: Callable[[Sequence[str]], Sequence[Mapping[str, list[bytes]]]],
) -> None:
    """Write the files of a part, such as "2023-06/0000/en_head".

    Args:
        root: the folder of the release.
        part: SNAPSHOT/SHARD/LANGUAGE_BUCKET; of "tail" the release has documents alone.
        documents: ``text`` and what is to differ from a plain record; ``duplicate`` lists it.
        measure: returns the signals of records; None for a record that the signals file lacks.
        sign: returns the signatures of texts.
    """
    records = [_record(part, line, document) for line, document in enumerate(documents)]
    _write_gz(root / f"documents/{part}.json.gz", records)
    if part.endswith("_tail"):
        return
    texts = [record["raw_content"] for record in records]
    signals, listed, hashed = [], [], []
    rows = zip(documents, records, measure(records), sign(texts), strict=True)
    for line, (document, record, measured, signatures) in enumerate(rows):
        name = f"{part}.json.gz/{line}"
        number = int.from_bytes(hashlib.sha1(name.encode()).digest()[:8], "little")  # noqa: S324  # the release's own id
        if measured is not None:
            metadata = {"url": record["url"], "language": record["language"], "snapshot_id": part.partition("/")[0]}
            signals.append({"id": name, "id_int": number, "metadata": metadata, "quality_signals": measured})
        if document.get("duplicate"):
            listed.append({"shard_id": f"{part}.json.gz", "doc_id": name, "digest": record["digest"]})
        hashed.append({"shard_id": f"{part}.json.gz", "id": name, "id_int": number, **signatures})
    _write_gz(root / f"quality_signals/{part}.signals.json.gz", signals)
    duplicates = pa.schema([(key, pa.string()) for key in ("shard_id", "doc_id", "digest")])
    columns = [(f"signature_sim{similarity}", pa.list_(pa.binary())) for similarity in SIGNATURES]
    minhash = pa.schema([("shard_id", pa.string()), ("id", pa.string()), ("id_int", pa.uint64()), *columns])
    for kind, found, schema in (("duplicates", listed, duplicates), ("minhash", hashed, minhash)):
        path = root / f"{kind}/{part}.{kind}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(found, schema=schema), path)


def _record(part: str, line: int, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record that the release has of a document."""
    snapshot, shard, name = part.split("/")
    language, bucket = name.split("_")
    text = document["text"]
    lines = text.count("\n") + 1
    plain = {
        "url": f"https://example.org/{part}/{line}",
        "date_download": f"{snapshot[:4]}-02-03T04:05:06Z",
        "digest": "sha1:" + hashlib.sha1(text.encode()).hexdigest(),  # noqa: S324  # the release's own digest
        "length": len(text),
        "nlines": lines,
        "source_domain": "example.org",
        "title": f"Document {line} of shard {shard}",
        "raw_content": text,
        "cc_segment": f"crawl-data/CC-MAIN-{snapshot}/wet/{shard}.warc.wet.gz",
        "original_nlines": lines,
        "original_length": len(text),
        "line_ids": str(list(range(lines))),
        "language": language,
        "language_score": 0.98,
        "perplexity": 321.5,
        "bucket": bucket,
    }
    return plain | {key: value for key, value in document.items() if key not in ("text", "signals", "duplicate")}


def _write_gz(path: Path, records: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))
