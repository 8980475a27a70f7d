"""Finding evaluation sets in text: recall, false positives and speed, against a set of n-grams in plain Python.

    python benchmarks/decontamination.py [--documents short.jsonl.zst long.jsonl.zst] [--megabytes 16] [--items 500]

Items are passages of 20 to 60 words, taken from every tenth document, which is left out of the text. Each is planted in
a document of the rest: a third of them as they stand, a third with a word in twelve replaced, and a third in capitals
over lines of four words with other marks between them. Without --documents synthetic text is made.

Plain Python normalises a text as we do, splits it and looks every n-gram up in a set: it must flag the same documents,
what only one of both flags is printed and must be 0. Beside it is a simpler one, which lowers, drops the marks of ASCII
and stops at the first hit. Recall is the share of planted items that the ledger names in their document, by kind of
plant and for the definitions over words. Documents flagged without a plant have passages that stood there before. CPU
time of one process, the best of --repeats after one warm-up. The last line is plain seconds over ours, for 13-grams of
words.
"""

import argparse
import json
import random
import string
import tempfile
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path

import pyarrow as pa
from _measures import best
from datasets import Dataset
from signals import synthetic

import longcrawl as lc
from longcrawl.dedup.ngrams import split_words

KINDS = ("verbatim", "edited", "other lines and marks")
MARKS = str.maketrans("", "", string.punctuation)
BATCH = 200


def read(paths: list[str], most: float) -> list[str]:
    """Return texts of JSON lines, compressed with zstandard, up to so many bytes from each file."""
    import io

    import zstandard

    texts = []
    for path in paths:
        held = 0
        with Path(path).open("rb") as packed:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8"):
                texts.append(json.loads(line)["text"])
                held += len(texts[-1].encode())
                if held > most / len(paths):
                    break
    return texts


def take_items(texts: list[str], count: int, chance: random.Random) -> list[str]:
    """Return passages of 20 to 60 words, none of which share a word."""
    pieces = [words[at : at + 60] for text in texts for words in [text.split()] for at in range(0, len(words) - 60, 60)]
    return [" ".join(words[: chance.randint(20, 60)]) for words in chance.sample(pieces, count)]


def changed(item: str, kind: str, chance: random.Random) -> str:
    words = item.split()
    if kind == "edited":
        first = chance.randrange(12)
        return " ".join("otherwise" if at % 12 == first else word for at, word in enumerate(words))
    if kind == "other lines and marks":
        lines = [" ".join(words[at : at + 4]) for at in range(0, len(words), 4)]
        return " --\n".join(lines).upper()
    return item


def plant(texts: list[str], items: list[str], chance: random.Random) -> tuple[list[str], list[tuple[int, str]]]:
    """Return texts with every item between two words of one of them, and the text and the kind of each."""
    words = [text.split(" ") for text in texts]
    places = [(chance.randrange(len(texts)), KINDS[number % len(KINDS)]) for number in range(len(items))]
    at = [chance.randint(0, len(words[row])) for row, _ in places]
    for number in sorted(range(len(items)), key=lambda number: (at[number], number), reverse=True):
        row, kind = places[number]
        words[row].insert(at[number], f"\n{changed(items[number], kind, chance)}\n")
    return [" ".join(each) for each in words], places


def simple(texts: list[str], known: set[tuple[str, ...]], n: int) -> list[bool]:
    """Flag texts by n-grams of words in lower case without the marks of ASCII."""
    split = (text.lower().translate(MARKS).split() for text in texts)
    return [any(tuple(words[at : at + n]) in known for at in range(len(words) - n + 1)) for words in split]


@cache
def left_out() -> tuple[dict[int, None], dict[int, None]]:
    """Return tables that remove punctuation, and accents: what tests import from here needs neither."""
    categories = [(point, unicodedata.category(chr(point))) for point in range(0x110000)]
    marks = [point for point, each in categories if each[0] == "P"] + [*map(ord, string.punctuation)]
    return dict.fromkeys(marks), dict.fromkeys(point for point, each in categories if each == "Mn")


def ngrams_of(text: str, n: int) -> list[tuple[str, ...]]:
    """Return the n-grams of the words of a normal form."""
    marks, accents = left_out()
    bare = text.translate(marks).lower()
    words = split_words(" ".join(unicodedata.normalize("NFD", bare).translate(accents).split()))
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def plain(texts: list[str], known: set[tuple[str, ...]], n: int) -> list[bool]:
    """Flag texts by the places of all n-grams that are known."""
    return [bool([at for at, gram in enumerate(ngrams_of(text, n)) if gram in known]) for text in texts]


def tables_of(texts: list[str]) -> list[pa.Table]:
    table = pa.table({"id": [f"d{row}" for row in range(len(texts))], "text": pa.array(texts, pa.large_string())})
    return [pa.table(table.slice(at, BATCH).to_pydict(), schema=table.schema) for at in range(0, len(texts), BATCH)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", nargs="+", default=[], help="JSON lines with `text`, compressed with zstandard")
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    chance = random.Random(0)
    texts = read(given.documents, given.megabytes * 1e6) if given.documents else synthetic()
    items = take_items(texts[::10], given.items, chance)
    rest = [text for row, text in enumerate(texts) if row % 10]
    made, places = plant(rest, items, chance)
    size = sum(len(text.encode()) for text in made) / 1e6
    print(f"{len(items)} items in {len(made):,} documents of {size:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        exam = Path(folder, "exam.jsonl")
        exam.write_text("".join(json.dumps({"question": item}) + "\n" for item in items))
        for name, settings in {"13-grams": {"ngram": 13}, **lc.dedup.Decontaminate.presets}.items():
            if settings.get("unit") == "token":
                continue
            kept = {key: settings[key] for key in settings if key not in lc.dedup.Decontaminate.only_with}
            tell(name, lc.dedup.Decontaminate(**{**kept, "against": [str(exam)], "policy": "tag"}), made, places)
        stage = lc.dedup.Decontaminate(against=[str(exam)])
        stage.prepare()
        tables = tables_of(made)
        known = {gram for item in items for gram in ngrams_of(item, 13)}
        compare_with_oracle(stage, tables, plain(made, known, 13))
        ours = best(lambda: [stage.apply(table) for table in tables], given.repeats)
        theirs = best(lambda: plain(made, known, 13), 1)
        simpler = best(lambda: simple(made, known, 13), 1)
    print(f"13-grams: {size / ours:.0f} MB/s, plain Python {size / theirs:.1f}, the simpler one {size / simpler:.1f}")
    print(f"decontamination: {theirs / ours:.1f} times a set of n-grams in plain Python")


def tell(name: str, stage: lc.dedup.Decontaminate, texts: list[str], places: list[tuple[int, str]]) -> None:
    """Print the recall of each kind of plant, and the documents that are flagged without one."""
    data = Dataset.from_dict({"id": [f"d{row}" for row in range(len(texts))], "text": texts})
    crawl = lc.Crawl(data) | stage
    named = {(row["id"], row["also_id"]) for row in crawl.edits.to_pylist()}
    found, planted = Counter[str](), Counter[str](kind for _, kind in places)
    for number, (row, kind) in enumerate(places):
        found[kind] += (f"d{row}", f"exam#{number}") in named
    others = {document for document, _ in named} - {f"d{row}" for row, _ in places}
    recall = ", ".join(f"{kind} {found[kind] / planted[kind]:.3f}" for kind in KINDS)
    print(f"{name}: recall {recall}; documents flagged without a plant: {len(others)}")


def compare_with_oracle(stage: lc.dedup.Decontaminate, tables: list[pa.Table], flagged: list[bool]) -> None:
    ours = [not passes for table in tables for passes in stage.checks(table)[0].passes.to_pylist()]
    missed = sum(one and not other for one, other in zip(flagged, ours, strict=True))
    wrong = sum(other and not one for one, other in zip(flagged, ours, strict=True))
    print(f"plain Python flags {sum(flagged)} documents; of these we miss {missed}, and flag {wrong} others")
    assert missed == wrong == 0


if __name__ == "__main__":
    main()
