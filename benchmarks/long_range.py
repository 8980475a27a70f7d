"""Real long documents against what only looks like them: AUC of the measures of LexicalDependency, and its speed.

    python benchmarks/long_range.py --documents ../shared/data/short.jsonl.zst ../shared/data/long.jsonl.zst

English documents are cut to 400,000 characters. Against those of the last file stand, as long as they are:

* joined: short documents that have nothing to do with each other;
* alternating: halves of two long documents, 600, 3,000 or 12,000 characters of each at a time;
* templated: pages that fill in one form, such as manual pages, proposals and release notes of one project;
* repeated: one page again and again, with one word in 50 replaced.

Two thirds of the documents are those on which the measures were chosen; word statistics come from them. The other
third is held out: no document, family or template text of it was seen. Families of near duplicates are one document.
The ten highest and lowest documents of both files are printed for reading. CPU time of one process. The last line is
the AUC against joined documents, held out.
"""

import argparse
import hashlib
import io
import json
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from _measures import best
from _needed import lacks, shared

import longcrawl as lc

MOST = 400_000
TURNS = (600, 3_000, 12_000)
FORMS = ("tldr", "list", "release-notes")


def main() -> None:
    """Make the sets, measure, and print."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [shared("short.jsonl.zst"), shared("long.jsonl.zst")]
    given.add_argument("--documents", nargs=2, type=Path, default=usual, metavar=("SHORT", "LONG"))
    given.add_argument("--repeats", type=int, default=3)
    asked = given.parse_args()
    if lacks("--documents SHORT LONG", *asked.documents):
        return
    short, long = ([row for row in rows(path) if row["lang"] == "en"] for path in asked.documents)
    halves = {name: texts_of(short, long, name) for name in ("chosen on", "held out")}
    learnt = pa.table({"text": pa.array(halves["chosen on"]["short"] + halves["chosen on"]["real"], pa.large_string())})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "words.parquet")
        lc.long.count_words([learnt]).save(path)
        stage = lc.long.LexicalDependency(statistics=str(path))
        stage.prepare()
        found = {name: compare(stage, texts, name) for name, texts in halves.items()}
        texts = pa.array([row["text"][:MOST] for row in long], pa.large_string())
        taken = best(lambda: stage.measures(texts), asked.repeats)
        print(
            f"{texts.nbytes / taken / 1e6:.0f} MB/s on one core, {texts.nbytes / 1e6:.0f} MB in {len(texts)} documents"
        )
        show_ends(stage, [*short, *long])
    print(f"long_range ratio={found['held out']['joined']:.3f}")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of a file of compressed JSON lines."""
    with path.open("rb") as file:
        yield from map(json.loads, io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"))


def is_in(row: dict[str, Any], half: str) -> bool:
    """Return whether a document is of a half; a family is of one."""
    key = row.get("family") or row.get("exact_group") or row["id"]
    return (int(hashlib.sha1(str(key).encode()).hexdigest(), 16) % 3 == 0) == (half == "held out")  # noqa: S324  # no secret


def texts_of(short: list[dict[str, Any]], long: list[dict[str, Any]], half: str) -> dict[str, list[str]]:
    """Return the texts of a half by kind, as the head of this file says."""
    chance = random.Random(half)
    real = [row["text"][:MOST] for row in first_of_families(long) if is_in(row, half)]
    pages = [row["text"] for row in first_of_families(short) if is_in(row, half) and len(row["text"]) >= 500]
    made: dict[str, list[str]] = {"real": real, "short": pages, "joined": joined(real, pages, chance)}
    chance.shuffle(pairs := list(range(len(real))))
    for turn in TURNS:
        chosen = zip(pairs[::2], pairs[1::2], strict=False)
        made[f"alternating by {turn:,}"] = [alternating(real[one], real[other], turn) for one, other in chosen]
    made["templated"] = templated([row for row in short if is_in(row, half)], chance)
    made["repeated"] = [
        repeated(chance.choice([page for page in pages if len(page) >= 2_000]), chance) for _ in range(25)
    ]
    return made


def first_of_families(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one document of each family and of each group of equal ones."""
    named = {row.get("family") or row.get("exact_group") or row["id"]: row for row in reversed(documents)}
    return list(named.values())[::-1]


def joined(real: list[str], pages: list[str], chance: random.Random) -> list[str]:
    """Return as long a text for each real one, of pages in random order, each taken once before any comes again."""
    waiting: list[str] = []
    texts = []
    for text in real:
        parts, size = [], 0
        while size < len(text):
            if not waiting:
                waiting = chance.sample(pages, len(pages))
            parts.append(waiting.pop())
            size += len(parts[-1]) + 2
        texts.append("\n\n".join(parts)[: len(text)])
    return texts


def alternating(one: str, other: str, turn: int) -> str:
    """Return the halves of two texts, so many characters of each at a time, to the end of a line."""
    both = zip(*(turns(text[: len(text) // 2], turn) for text in (one, other)), strict=False)
    return "".join(part for parts in both for part in parts)


def turns(text: str, turn: int) -> Iterator[str]:
    """Yield lines together that have so many characters."""
    waiting = ""
    for line in re.split(r"(?<=\n)", text):
        waiting += line
        if len(waiting) >= turn:
            yield waiting
            waiting = ""


def templated(pages: list[dict[str, Any]], chance: random.Random) -> list[str]:
    """Return texts of pages that share a form, six of each that has 60,000 characters."""
    forms = defaultdict(list)
    for page in pages:
        if page.get("template") or page["kind"] in FORMS:
            forms[page.get("template") or page["kind"]].append(page["text"])
    large = [texts for texts in forms.values() if sum(map(len, texts)) >= 60_000]
    wholes = ["\n\n".join(chance.sample(texts, len(texts))) for texts in large for _ in range(6)]
    return [whole[: chance.randrange(60_000, max(60_001, min(len(whole), MOST)))] for whole in wholes]


def repeated(page: str, chance: random.Random) -> str:
    """Return 150,000 characters of a page that comes again with other numbers in it."""
    words = page[:20_000].split(" ")
    copies = [[str(chance.randrange(10**6)) if chance.random() < 0.02 else word for word in words] for _ in range(76)]
    return "\n\n".join(map(" ".join, copies))[:150_000]


def compare(stage: Any, texts: dict[str, list[str]], half: str) -> dict[str, float]:
    """Print and return the AUC of the score of real documents against each other kind."""
    measured = {
        kind: stage.measures(pa.array(these, pa.large_string())) for kind, these in texts.items() if kind != "short"
    }
    found = {}
    for kind in measured.keys() - {"real"}:
        found[kind] = auc(values(measured["real"], "score"), values(measured[kind], "score"))
    for kind in [each for each in measured if each != "real"]:
        alone = auc(values(measured["real"], "far_words"), values(measured[kind], "far_words"))
        print(
            f"{half:9}  {kind:22} {len(measured[kind]):4} documents  AUC {found[kind]:.3f}, far words alone {alone:.3f}"
        )
    return found


def values(measured: pa.StructArray, name: str) -> Any:
    """Return a measure of the documents that are long enough."""
    return pc.struct_field(measured, name).drop_null().to_numpy()


def auc(high: Any, low: Any) -> float:
    """Return the chance that one of ``high`` is larger than one of ``low``."""
    return float((high[:, None] > low[None, :]).mean() + (high[:, None] == low[None, :]).mean() / 2)


def show_ends(stage: Any, documents: list[dict[str, Any]]) -> None:
    """Print the documents with the highest and lowest scores."""
    measured = stage.measures(pa.array([row["text"][:MOST] for row in documents], pa.large_string()))
    scored = [(row["score"], number) for number, row in enumerate(measured.to_pylist()) if row is not None]
    scored.sort()
    for name, chosen in (("highest", scored[:-11:-1]), ("lowest", scored[:10])):
        for score, number in chosen:
            row = documents[number]
            title = row.get("title") or row["text"][:60]
            print(f"{name:7} {score:6.3f}  {row['kind']:12} {len(row['text']):9,} characters  {title[:60]!r}")


if __name__ == "__main__":
    main()
