"""Which long documents the compression ratio, lexical dependency and length choose, and how often they agree.

    python benchmarks/long_choices.py --documents ../shared/data/long.jsonl.zst --read 400
    longcrawl run finepdfs --out pdfs --set source.data_dir=../shared/data/pdf
    python benchmarks/long_choices.py --documents pdfs/parquet --read 400

Documents are those of a file of JSON lines, or of the parquet files of a run, of 32,768 bytes or more. Each chooses
three fifths of the documents of each language: GzipRatio those between its quantiles 0.2 and 0.8, LexicalDependency
those with the highest score, learnt from all of them, and length those with the most bytes. Agreement is the share of
documents that two choose alike, both kept or both removed; independent choices agree on 0.52. Kinds of documents
follow, then the speed of GzipRatio in CPU time of one process, ten documents about which ratio and score disagree (the
five with the highest scores that the ratio removes, and the five with the lowest that it keeps, one of each family),
and, of a run, all about which any two disagree. ``--read`` prints that many characters from the middle of each. The
last line is the agreement of ratio and score.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _measures import best
from _needed import lacks, shared
from long_range import rows

import longcrawl as lc

LOW, HIGH = 0.2, 0.8
SHOWN = 5


def main() -> None:
    """Choose by each, and print."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--documents", type=Path, default=shared("long.jsonl.zst"))
    given.add_argument("--read", type=int, default=0, metavar="CHARACTERS")
    given.add_argument("--repeats", type=int, default=1)
    asked = given.parse_args()
    if lacks("--documents LONG", asked.documents):
        return
    stage = lc.long.GzipRatio(low_quantile=LOW, high_quantile=HIGH, min_documents=1)
    found = rows(asked.documents) if asked.documents.is_file() else rows_of_run(asked.documents)
    documents = [row for row in found if len(row["text"].encode()) >= stage.min_bytes]
    texts = pa.array([row["text"] for row in documents], pa.large_string())
    named = [row["id"] for row in documents], texts, [row["lang"] for row in documents]
    crawl = lc.Crawl(pa.table(named, ["id", "text", "language"]))
    middle = crawl | stage
    scored = crawl | lc.long.LexicalDependency(train_documents=None)
    measures = {
        "ratio": stage.measures(texts).to_numpy(zero_copy_only=False),
        "score": np.array([row["score"] if row else 0.0 for row in scored.data["long_range"]]),
        "bytes": pc.binary_length(texts).to_numpy().astype(np.float64),
    }
    languages = np.array(named[2])
    kept = set(middle.data["id"])
    chosen = {name: highest(values, languages) for name, values in measures.items()}
    chosen["ratio"] = np.array([name in kept for name in named[0]])
    show_bounds(middle.steps[-1], measures["ratio"], languages)
    for one, other in combinations(chosen, 2):
        print(f"{one} and {other}: {counts(chosen[one], chosen[other])}")
    show_kinds(documents, chosen, measures["ratio"], middle.steps[-1])
    taken = best(lambda: stage.measures(texts), asked.repeats)
    print(f"{texts.nbytes / taken / 1e6:.1f} MB/s on one core, {texts.nbytes / 1e6:.0f} MB in {len(texts)} documents")
    show_disagreement(stage, documents, measures, chosen, asked.read)
    if asked.documents.is_dir():
        show_choices(documents, measures, chosen, asked.read)
    print(f"long_choices ratio={agreement(chosen['ratio'], chosen['score']):.3f}")


def rows_of_run(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of a run as rows of the JSON lines."""
    for file in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(file, columns=["id", "text", "url", "language", "mime"]).to_pylist():
            yield row | {"lang": row["language"], "kind": row["mime"], "title": row["url"]}


def highest(values: Any, languages: Any) -> Any:
    """Return a mask of the three fifths of documents of each language with the highest values."""
    mask = np.zeros(len(values), bool)
    for language in np.unique(languages):
        (places,) = np.nonzero(languages == language)
        order = places[np.argsort(-values[places], kind="stable")]
        mask[order[: round((HIGH - LOW) * len(order))]] = True
    return mask


def agreement(one: Any, other: Any) -> float:
    """Return the share of documents that two choose alike."""
    return float((one == other).mean())


def counts(one: Any, other: Any) -> str:
    """Return the numbers of documents that both, one, the other and none of two keep."""
    parts = [int(each.sum()) for each in (one & other, one & ~other, ~one & other, ~one & ~other)]
    return "both {}, first {}, second {}, none {}".format(*parts) + f", agreement {agreement(one, other):.3f}"


def show_bounds(stage: Any, ratios: Any, languages: Any) -> None:
    """Print the fitted bounds of each language, and the range of its ratios."""
    for language in stage.low:
        own = ratios[languages == language]
        bounds = f"kept from {stage.low[language]:.3f} to {stage.high[language]:.3f}"
        print(f"{language}: {len(own)} documents, ratio {own.min():.3f} to {own.max():.3f}, {bounds}")


def show_kinds(documents: Any, chosen: dict[str, Any], ratios: Any, stage: Any) -> None:
    """Print how many documents of each kind there are, and the share of them that each keeps or the ratio removes."""
    kinds = np.array([row["kind"] for row in documents])
    below = ratios < np.array([stage.low[row["lang"]] for row in documents])
    for kind, count in Counter(kinds.tolist()).most_common():
        own = kinds == kind
        shares = ", ".join(f"{name} {mask[own].mean():.2f}" for name, mask in chosen.items())
        removed = f"ratio too low {below[own].mean():.2f}, too high {(~below & ~chosen['ratio'])[own].mean():.2f}"
        print(f"{kind:8} {count:4} documents, kept: {shares}; {removed}")


def without_furniture(text: str) -> str:
    """Return a text without the footers and headers between the pages of a draft, indentation and empty lines."""
    joined = re.sub(r"\n+[^\n]*\[Page \d+\]\n+(?:\f?\n*(?:Internet-Draft|RFC)[^\n]*\n+)?", "\n", text)
    return "\n".join(filter(None, map(str.strip, joined.split("\n"))))


def show_disagreement(
    stage: Any, documents: Any, measures: dict[str, Any], chosen: dict[str, Any], characters: int
) -> None:
    """Print the documents that the ratio removes and the score keeps with the highest scores, and the reverse."""
    cases = (
        ("the score keeps", ~chosen["ratio"] & chosen["score"], -measures["score"]),
        ("the ratio keeps", chosen["ratio"] & ~chosen["score"], measures["score"]),
    )
    for name, mask, order in cases:
        (places,) = np.nonzero(mask)
        seen = set[str]()
        for place in places[np.argsort(order[places], kind="stable")]:
            row = documents[place]
            family = row.get("family") or row["id"]
            if family in seen or len(seen) == SHOWN:
                continue
            seen.add(family)
            (bare,) = stage.measures(pa.array([without_furniture(row["text"])], pa.large_string())).to_pylist()
            found = f"ratio {measures['ratio'][place]:.2f}, {bare:.2f} without page headers, footers and indentation"
            found += f", score {measures['score'][place]:.3f}"
            print(f"{name}: {row['kind']}, {found}, {len(row['text'].encode()):,} bytes, {row['title']!r}")
            show_middle(row["text"], characters)


def show_choices(documents: Any, measures: dict[str, Any], chosen: dict[str, Any], characters: int) -> None:
    """Print each document that not all choose alike, with its measures and those that keep it."""
    for place, row in enumerate(documents):
        kept_by = [name for name, mask in chosen.items() if mask[place]]
        if 0 < len(kept_by) < len(chosen):
            found = ", ".join(f"{name} {values[place]:,.3f}" for name, values in measures.items())
            print(f"{' and '.join(kept_by)} keep: {row['title']!r}, {found}")
            show_middle(row["text"], characters)


def show_middle(text: str, characters: int) -> None:
    if characters:
        start = len(text) // 2
        print(f"    {text[start : start + characters]!r}")


if __name__ == "__main__":
    main()
