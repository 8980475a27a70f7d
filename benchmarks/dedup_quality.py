"""Recall of each MinHash preset: known pairs by similarity, and families of near-duplicates.

    python benchmarks/dedup_quality.py [--data FOLDER] [--tokenizer gpt2-tokenizer.json]

FOLDER holds short.jsonl.zst and long.jsonl.zst (id, text, family and exact_group or null) and
near_duplicate_pairs.jsonl.gz (a, b, jaccard_5gram of lower-cased words). Without it documents are synthetic: copies in
which some words are replaced.

Pairs are sorted by their similarity in the file. "expected" is the mean of the S-curve at their similarity under the
preset's own n-grams, "band" the share that has a common band key, "cluster" the share of which one document leaves for
the other, or both for a third. Of families, recall is the share of pairs of one family that are in one cluster, and
precision the share of pairs in one cluster, both with a family, that have the same. Of documents that leave, the table
gives the share whose similarity to the kept one is at least 0.5, 0.7 and 0.8. Without --tokenizer "refinedweb" takes
words. First come the groups of equal texts: how many of them each stage that is made for them, or finds them on its
way, leaves one document of.

The last line is found / expected pairs with a common band key over all presets.
"""

import argparse
import gzip
import io
import itertools
import json
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

import longcrawl as lc
from longcrawl.dedup.minhash import PRESETS

FIELDS = ("id", "text", "family", "exact_group")
EDGES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.01)


def read_folder(folder: Path) -> tuple[list[dict], list[tuple[str, str, float]]]:
    import zstandard

    documents = []
    for name in ("short", "long"):
        with (folder / f"{name}.jsonl.zst").open("rb") as packed:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), encoding="utf-8")
            documents += [{key: row.get(key) for key in FIELDS} for row in map(json.loads, lines)]
    with gzip.open(folder / "near_duplicate_pairs.jsonl.gz", "rt", encoding="utf-8") as lines:
        pairs = [(row["a"], row["b"], row["jaccard_5gram"]) for row in map(json.loads, lines)]
    return documents, pairs


def synthetic() -> tuple[list[dict], list[tuple[str, str, float]]]:
    """Make 150 families of a text and two copies of it in which up to an eighth of the words is replaced."""
    chosen, documents, pairs = random.Random(0), [], []
    for family in range(150):
        words = [f"w{chosen.randrange(20_000)}" for _ in range(chosen.randint(100, 600))]
        members = []
        for copy in range(3):
            share = copy * chosen.random() / 16
            changed = [f"x{chosen.randrange(20_000)}" if chosen.random() < share else word for word in words]
            one = {"id": f"{family}-{copy}", "text": " ".join(changed), "family": str(family), "exact_group": None}
            members.append((one, changed))
        documents += [document for document, _ in members]
        for (one, left), (other, right) in itertools.combinations(members, 2):
            grams = [{tuple(each[at : at + 5]) for at in range(len(each) - 4)} for each in (left, right)]
            pairs.append((one["id"], other["id"], len(grams[0] & grams[1]) / len(grams[0] | grams[1])))
    return documents, [pair for pair in pairs if pair[2] >= 0.5]


def similarity(one: np.ndarray, other: np.ndarray) -> float:
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / max(len(one) + len(other) - common, 1)


def compare(stage, documents: list[dict], pairs: list[tuple[str, str, float]]) -> tuple[float, float]:
    """Print what a stage finds; gives how many pairs have a common band key, and how many were expected to."""
    table = pa.table({name: [row[name] for row in documents] for name in ("id", "text")})
    started = time.process_time()
    sketches = stage.sketch(table)
    removed = stage.resolve(sketches)
    took = time.process_time() - started
    place = {name: at for at, name in enumerate(table["id"].to_pylist())}
    with_grams = lc.dedup.MinHash(
        bands=1, rows=1, ngram=stage.ngram, unit=stage.unit, tokenizer=stage.tokenizer, verify=1.0
    )
    grams = [row.values.to_numpy() for row in with_grams.sketch(table)["ngrams"]]
    kept = dict(zip(removed["id"].to_pylist(), removed["kept_id"].to_pylist(), strict=True))
    sizes = Counter(kept.values())
    near = np.array([similarity(grams[place[one]], grams[place[other]]) for one, other in kept.items()])
    shares = ", ".join(f"{np.mean(near >= least):.3f} at >= {least}" for least in (0.5, 0.7, 0.8))
    print(
        f"  {len(documents):,} documents, {took:.1f} s: {len(kept):,} leave, in {len(sizes):,} clusters of up to "
        f"{max(sizes.values(), default=0) + 1}; of those that leave, similar to the kept one: {shares}"
    )
    print_families(documents, kept)
    keys = [None if key is None else np.frombuffer(key, np.uint64) for key in sketches["bands"].to_pylist()]
    return print_pairs(stage, pairs, place, grams, keys, kept)


def print_groups(documents: list[dict]) -> None:
    """Print of how many groups of equal texts one document is left."""
    table = pa.table({name: [row[name] for row in documents] for name in ("id", "text")})
    groups: dict[str, list[str]] = {}
    for row in documents:
        if row["exact_group"] is not None:
            groups.setdefault(row["exact_group"], []).append(row["id"])
    groups = {name: members for name, members in groups.items() if len(members) > 1}
    exact = [lc.dedup.ExactDocuments(), lc.dedup.ExactDocuments(text="normalised")]
    for stage in (*exact, lc.dedup.MinHash.preset("fineweb")):
        gone = set(stage.resolve(stage.sketch(table))["id"].to_pylist())
        whole = sum(sum(name not in gone for name in members) <= 1 for members in groups.values())
        print(f"{stage.name}: {whole} of {len(groups)} groups of equal texts whole, {len(gone):,} documents leave")


def print_families(documents: list[dict], kept: dict[str, str]) -> None:
    groups, clusters, both = Counter(), Counter(), Counter()
    for row in documents:
        if row["family"] is not None:
            cluster = kept.get(row["id"], row["id"])
            groups[row["family"]] += 1
            clusters[cluster] += 1
            both[row["family"], cluster] += 1
    counts = [sum(count * (count - 1) // 2 for count in each.values()) for each in (both, groups, clusters)]
    print(
        f"  families: {sum(count > 1 for count in groups.values())} of more than one document, {counts[1]:,} pairs, "
        f"recall {counts[0] / max(counts[1], 1):.3f}, precision {counts[0] / max(counts[2], 1):.3f}"
    )


def print_pairs(stage, pairs, place, grams, keys, kept) -> tuple[float, float]:
    print("  similarity     pairs  expected   band  cluster")
    sums = np.zeros(2)
    for first, last in itertools.pairwise(EDGES):
        found = [(place[one], place[other]) for one, other, value in pairs if first <= value < last]
        if not found:
            continue
        expected = stage.curve([similarity(grams[one], grams[other]) for one, other in found])
        band = [
            keys[one] is not None and keys[other] is not None and (keys[one] == keys[other]).any()
            for one, other in found
        ]
        together = [
            kept.get(one, one) == kept.get(other, other) for one, other, value in pairs if first <= value < last
        ]
        name = f"{first:.2f} - {min(last, 1.0):.2f}"
        print(f"  {name} {len(found):9,} {np.mean(expected):9.3f} {np.mean(band):6.3f} {np.mean(together):8.3f}")
        sums += [np.sum(band), np.sum(expected)]
    return float(sums[0]), float(sums[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer")
    options = parser.parse_args()
    documents, pairs = read_folder(options.data) if options.data else synthetic()
    stages = {name: lc.dedup.MinHash.preset(name) for name in PRESETS}
    words = {} if options.tokenizer is None else {"tokenizer": options.tokenizer, "unit": "token"}
    stages["refinedweb"] = lc.dedup.MinHash.preset("refinedweb", **(words or {"unit": "word"}))
    stages["lee2022, star"] = lc.dedup.MinHash.preset("lee2022", linkage="star")
    stages["20 bands of 450"] = lc.dedup.MinHash(bands=20, rows=450, unit="word")
    print_groups(documents)
    totals = np.zeros(2)
    for name, stage in stages.items():
        print(f"{name}: {stage.bands} bands of {stage.rows}, {stage.unit}s, verify={stage.verify}")
        totals += compare(stage, documents, pairs)
    print(f"dedup_quality ratio={totals[0] / totals[1]:.3f}")


if __name__ == "__main__":
    main()
