"""Small generated crawls to try the package: a RedPajama-V2 release, a web archive, JSON lines, PDFs.

The same seed makes the same pages on every machine. All words and patterns were written for longcrawl.
"""

import gzip
import hashlib
import html
import json
import random
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.dedup.minhash import MinHash
from longcrawl.text.rpv2 import Signals

_THINGS = (
    "harbour", "kitchen", "library", "garden", "mill", "road", "letter", "engine", "field", "school", "market",
    "bridge", "winter", "journal", "lamp", "orchard", "river", "station", "teacher", "sailor", "printer", "map",
    "clock", "barn", "valley", "theatre", "boat", "council", "museum", "bakery", "forest", "ledger", "window",
    "storm", "village", "choir",
)  # fmt: skip
_KINDS = (
    "old", "quiet", "narrow", "useful", "distant", "early", "familiar", "careful", "heavy", "bright", "ordinary",
    "slow", "broken", "public", "patient", "northern", "empty", "modest", "strange", "busy", "cold", "honest", "open",
    "small",
)  # fmt: skip
_DEEDS = (
    "described", "followed", "repaired", "remembered", "measured", "opened", "painted", "visited", "counted",
    "carried", "watched", "changed", "reached", "studied", "planned", "explained", "crossed", "finished", "recorded",
    "shared", "avoided", "improved", "noticed", "collected",
)  # fmt: skip
_PEOPLE = (
    "the teacher", "her brother", "a visitor", "the owner", "our neighbour", "the committee", "a young engineer",
    "they", "the harbour master", "my grandmother", "one of the clerks", "the editor", "two students", "a farmer",
    "the crew",
)  # fmt: skip
_TIMES = (
    "in the morning", "before the rain", "last year", "every other week", "after the meeting", "for a long time",
    "without any help", "at the end of the season", "during the repairs", "on most days", "since then", "by hand",
)  # fmt: skip
_JOINTS = ("and", "but", "because", "while", "although", "so")
_PATTERNS = (
    "{Who} {did} the {kind} {thing} {time}, {joint} {who} {did} the {thing}.",
    "The {thing} of the {kind} {thing} was {kind}, {joint} {who} {did} it {time}.",
    "{Time}, {who} {did} a {kind} {thing} that {who} had {did}.",
    "It is said that {who} {did} the {thing} with a {kind} {thing}, {joint} nobody {did} the {kind} {thing}.",
    "What {who} {did} {time} was to be the {kind} {thing} that we have {did} here.",
    "From the {thing} to the {thing} there are {number} steps, {joint} the {kind} one was {did} {time}.",
    "{Who} had no {kind} {thing} {time}; {who} {did} the {thing} of another {thing}.",
)
_DORF = (
    "Das {ding} war {art}, und {wer} ging {wann} zum {ding} zurück.",
    "Im {ding} fand {wer} {wann} ein {art}es {ding}, das niemand kannte.",
    "Wenn {wer} {wann} an das {ding} dachte, blieb es {art} und still.",
)
_GERMAN = {
    "ding": ("Boot", "Dorf", "Haus", "Feld", "Buch", "Fenster", "Museum", "Schiff", "Werkzeug", "Theater"),
    "art": ("alt", "klein", "leer", "ruhig", "schön", "schwer", "fremd", "schmal"),
    "wer": ("die Lehrerin", "der Nachbar", "ein Kind", "meine Schwester", "der Müller"),
    "wann": ("am Morgen", "im Winter", "nach dem Regen", "jeden Tag", "vor der Ernte"),
}


def sentence(chance: random.Random) -> str:
    """Return an English sentence of 12 to 25 words."""
    pattern = chance.choice(_PATTERNS)
    while "{" in pattern:
        name = pattern[pattern.index("{") + 1 : pattern.index("}")]
        lists = {"who": _PEOPLE, "did": _DEEDS, "kind": _KINDS, "thing": _THINGS, "time": _TIMES, "joint": _JOINTS}
        word = str(chance.randrange(3, 900)) if name == "number" else chance.choice(lists[name.lower()])
        pattern = pattern.replace(f"{{{name}}}", word[:1].upper() + word[1:] if name[0].isupper() else word, 1)
    return pattern


def prose(chance: random.Random, words: int) -> str:
    """Return paragraphs of at least ``words`` words in total."""
    paragraphs = []
    while words > 0:
        paragraphs.append(" ".join(sentence(chance) for _ in range(chance.randrange(3, 8))))
        words -= paragraphs[-1].count(" ") + 1
    return "\n".join(paragraphs)


def german(chance: random.Random, sentences: int) -> str:
    """Return a given number of German sentences."""
    return " ".join(
        chance.choice(_DORF).format(**{name: chance.choice(words) for name, words in _GERMAN.items()})
        for _ in range(sentences)
    )


@dataclass(frozen=True)
class Page:
    """Page of a generated crawl."""

    url: str
    text: str
    language: str = "en"


def make_pages(seed: int, good: int) -> Iterator[Page]:
    """Yield pages: ``good`` of plain prose, and six for every ten of them that filters or deduplication should find."""
    chance = random.Random(seed)  # noqa: S311  # a seed makes the same pages everywhere
    texts = [prose(chance, chance.randrange(90, 900)) for _ in range(good)]
    kept = [Page(f"https://site{number % 9}.example/{number}", text) for number, text in enumerate(texts)]
    yield from kept
    for number, page in enumerate(kept[: good // 10]):
        yield Page(f"{page.url}?utm_source=mail", page.text)
        yield Page(f"https://mirror.example/{number}", page.text)
        yield Page(f"https://quotes.example/{number}", edited(chance, page.text, chance.uniform(0.005, 0.2)))
        clauses = [prose(random.Random(clause), 60) for clause in range(5)]  # noqa: S311  # the same in every shop
        shop = f"Shop Number {chance.randrange(100, 1000)}"
        terms = [f"{clause} This is what {shop} asks of you." for clause in clauses]
        yield Page(f"https://shop{number}.example/terms", "\n".join(terms))
        yield Page(f"https://dorf.example/{number}", german(chance, 40), "de")
        yield Page(f"https://site{number % 9}.example/bad/{number}", _bad(chance, number))


def edited(chance: random.Random, text: str, share: float) -> str:
    """Return a text with a share of its words replaced."""

    def word_or_other(word: str) -> str:
        return chance.choice(_THINGS) if chance.random() < share else word

    return "\n".join(" ".join(map(word_or_other, line.split(" "))) for line in text.split("\n"))


def _bad(chance: random.Random, number: int) -> str:
    line = sentence(chance)
    return (
        "\n".join([line] * 30),
        "\n".join(f"• {chance.choice(_KINDS)} {chance.choice(_THINGS)}" for _ in range(80)),
        " ".join(f"#{chance.choice(_THINGS)} {chance.choice(_KINDS)}" for _ in range(120)),
        "\n".join(f"{sentence(chance)[:40]}..." for _ in range(40)),
        f"Sign in\n{line}\n12 likes\nRead more...",
        "\n".join(sentence(chance).upper() for _ in range(12)),
    )[number % 6]


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
    found = list(make_pages(seed, 120))
    found += [
        Page("https://en.wikipedia.org/wiki/Archive", "An archive is a place where records are kept. " * 20),
        Page("https://free-porn.example/", "Not a page for a language model. " * 20),
        Page("https://empty.example/", ""),
        Page("https://moved.example/", ""),
    ]
    for number in range(2):
        records = [_archive_record(place, found[place], "200 OK") for place in range(number, len(found), 2)]
        records.append(_archive_record(10_000 + number, Page("https://old.example/", ""), "301 Moved Permanently"))
        (root / f"{number:05d}.warc.gz").write_bytes(b"".join(records))
    return root


def write_texts(path: str | Path, *, pages: int = 120, seed: int = 0) -> Path:
    """Write JSON lines with ``id``, ``url``, ``language`` and ``text``, and return the path.

    ``pages`` of plain prose, and six bad or copied ones for every ten: 192 documents of 580 kB by default.

    >>> import longcrawl as lc
    >>> lc.open(str(lc.samples.write_texts("texts.jsonl"))).data.column_names[:2]
    ['id', 'text']
    """
    rows = [
        {"id": f"page-{number}", "url": page.url, "language": page.language, "text": page.text}
        for number, page in enumerate(make_pages(seed, pages))
    ]
    Path(path).write_text(_json_lines(rows), "utf-8")
    return Path(path)


_SCANNED = b"q 612 0 0 792 0 0 cm /Scan Do Q"
"""Content of a page that is one image."""
_CHARACTERS, _LINES = 52, 30
"""Size of a page in large print, so that a report of a few hundred words has several pages."""


def write_pdfs(folder: str | Path, *, seed: int = 0) -> Path:
    """Write 18 files, PDFs of 3 or 4 pages with headers and page numbers, and return the folder.

    One is a copy, one has lost its end, two have scanned pages, and two cannot be read: a page of HTML, and a file with
    nothing behind its header.

    >>> import longcrawl as lc
    >>> lc.open(lc.samples.write_pdfs("reports")).data["id"][-2:]
    ['report-11.pdf', 'scan.pdf']
    """
    root, chance = Path(folder), random.Random(seed)  # noqa: S311  # a seed makes the same files everywhere
    root.mkdir(parents=True, exist_ok=True)
    reports = [_printed(prose(chance, chance.randrange(500, 900)), f"Report {number}") for number in range(12)]
    scanned = [_SCANNED] * 3
    files = {f"report-{number:02}": _pdf(pages) for number, pages in enumerate(reports)}
    files |= {"copy": files["report-03"], "scan": _pdf(scanned), "mixed": _pdf([*reports[0], *scanned[:1]])}
    files |= {"cut": files["report-05"][: files["report-05"].rindex(b"xref\n0 ")]}
    files |= {"login": b"<html><body>Sign in</body></html>", "empty": b"%PDF-1.4\n"}
    for name, content in files.items():
        (root / f"{name}.pdf").write_bytes(content)
    return root


def _printed(text: str, title: str) -> list[bytes]:
    """Return the contents of the pages of a text."""
    lines = [line for paragraph in text.split("\n") for line in textwrap.wrap(paragraph, _CHARACTERS)]
    pages = [lines[start : start + _LINES] for start in range(0, len(lines), _LINES)]
    return [
        f"BT /F 18 Tf 20 TL 72 750 Td ({title}) Tj 0 -40 Td ({') Tj T* ('.join(page)}) Tj ET\n"
        f"BT /F 18 Tf 300 40 Td ({number}) Tj ET".encode()
        for number, page in enumerate(pages, 1)
    ]


def _pdf(pages: Sequence[bytes]) -> bytes:
    """Return a file of pages, each given by its content."""
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    image = "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 /Length 1"
    inherited = "/MediaBox [0 0 612 792] /Resources << /Font << /F 3 0 R >> /XObject << /Scan 4 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] {inherited} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< {image} >>\nstream\n\x7f\nendstream".encode(),
    ]
    for page in pages:
        objects += [
            f"<< /Type /Page /Parent 2 0 R /Contents {len(objects) + 2} 0 R >>".encode(),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(page), page),
        ]
    made, table = bytearray(b"%PDF-1.4\n"), b"0000000000 65535 f \n"
    for number, each in enumerate(objects, 1):
        table += b"%010d 00000 n \n" % len(made)
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    count, place = len(objects) + 1, len(made)
    made += b"xref\n0 %d\n%strailer << /Size %d /Root 1 0 R >>\n" % (count, table, count)
    return bytes(made + b"startxref\n%d\n%%%%EOF\n" % place)


def _archive_record(number: int, page: Page, status: str) -> bytes:
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


BOOKS = (16_500, 17_000, 18_000, 19_000, 20_500, 22_000, 24_000, 26_000, 28_000, 101_000)
"""Lengths of the long documents in words; the last one exceeds the maximum of the Gopher rules."""

SIGNATURES = {"1.0": (1, 128), "0.9": (5, 25), "0.8": (9, 13), "0.7": (14, 9)}
"""MinHash bands and rows of the release's signature columns, by similarity."""

Record = Mapping[str, Any]
Measure = Callable[[Sequence[Record]], Iterable[Mapping[str, Any] | None]]


def write_release(folder: str | Path) -> Path:
    """Write a RedPajama-V2 release of about 330 documents in English and German, and return its folder.

    It is shard 0 of snapshot 2023-06: ``en_head`` and ``en_middle``, with ten books of 16,500 to 101,000 words, and
    ``de_head``. It has 1.5 MB and takes a few seconds to write.

    >>> import longcrawl as lc
    >>> release = lc.samples.write_release("release")
    >>> len(lc.open("redpajama-v2", data_dir=str(release), languages=["en"]).data)
    310
    """
    chance = random.Random(0)  # noqa: S311  # a seed makes the same books everywhere
    books = [Page(f"https://books.example/{words}", prose(chance, words)) for words in BOOKS]
    found = [*make_pages(0, 200), *books]
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
    """Add a part to the release's listing file for its language and snapshot."""
    snapshot, _, name = part.split("/")
    language, bucket = name.split("_")
    listing = root / f"listings/{language}-{snapshot}-{'tail' if bucket == 'tail' else 'head_middle'}.txt"
    listing.parent.mkdir(parents=True, exist_ok=True)
    parts = listing.read_text("utf-8").splitlines() if listing.exists() else []
    if part not in parts:
        listing.write_text("".join(f"{each}\n" for each in [*parts, part]), "utf-8")


def measure_signals(records: Sequence[Record]) -> Iterable[dict[str, Any]]:
    """Yield the signals of records, computed by the stage ``signals``, in the form of the release's files."""
    columns = {"raw_content": "text", "url": "url", "language": "language", "perplexity": "perplexity"}
    columns |= {name: name for name in ("bucket", "original_length", "original_nlines", "language_score")}
    table = pa.table({ours: [record[theirs] for record in records] for theirs, ours in columns.items()})
    measured = Signals(line_signals=("all",)).rewrite(table)
    rows = zip(records, measured["signals"].to_pylist(), measured["line_signals"].to_pylist(), strict=True)
    for record, document, lines in rows:
        values = {name: value for name, value in document.items() if not name.endswith(".sum")}
        yield {name: [[0, record["length"], value]] for name, value in values.items()} | lines


def sign_documents(texts: Sequence[str]) -> list[dict[str, list[bytes]]]:
    """Return signatures of texts, whose bands are equal exactly if those of MinHash over 13-grams of words are."""
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
        part: SNAPSHOT/SHARD/LANGUAGE_BUCKET; for the bucket "tail" the release has only documents.
        documents: ``text`` and fields that differ from the defaults; a true ``duplicate`` adds it to the duplicates.
        measure: function that returns the signals of records, with None for a record missing from the signals file.
        sign: function that returns the signatures of texts.
    """
    records = [_release_record(part, line, document) for line, document in enumerate(documents)]
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


def _release_record(part: str, line: int, document: Mapping[str, Any]) -> dict[str, Any]:
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
    path.write_bytes(gzip.compress(_json_lines(records).encode(), mtime=0))


def _json_lines(records: Iterable[Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
