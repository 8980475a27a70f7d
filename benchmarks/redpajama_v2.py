"""Reading RedPajama-V2: documents joined to signals and duplicates, against gzip and json in plain Python.

    python benchmarks/redpajama_v2.py --release RELEASE [--part 2023-06/0001/en_head]

Both sides join by document id and keep the same fields; ids and word counts are asserted equal. CPU time of one
process, the best of --repeats, after one warm-up (the kernels compile once, about 8 s, and are kept on disk). Without
--release a release of synthetic text is made. The last line is naive seconds / longcrawl seconds.
"""

import argparse
import gzip
import json
import random
import tempfile
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from _measures import seconds


def naive(release: Path, part: str) -> tuple[list[str], list[float]]:
    """Join as a script would: three dictionaries, one json.loads a line."""
    signals = {}
    with gzip.open(release / f"quality_signals/{part}.signals.json.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            signals[record["id"]] = record["quality_signals"]
    listed = set(pq.read_table(release / f"duplicates/{part}.duplicates.parquet")["doc_id"].to_pylist())
    rows = []
    with gzip.open(release / f"documents/{part}.json.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            name = f"{part}.json.gz/{number}"
            rows.append((name, json.loads(line), signals.get(name), name in listed))
    return [row[0] for row in rows], [row[2]["rps_doc_word_count"][0][2] for row in rows]


def ours(release: Path, part: str) -> tuple[list[str], list[float]]:
    """Read the part as `load_dataset` and runs do."""
    from longcrawl.builders.longcrawl import SOURCES
    from longcrawl.core.sources import BadFiles

    snapshot, shard, name = part.split("/")
    source = SOURCES["redpajama-v2"](
        data_dir=str(release),
        snapshots=(snapshot,),
        shards=(int(shard),),
        languages=(name[:2],),
        partitions=(name[3:],),
    )
    (only,) = source.splits()["train"]
    ids, words = [], []
    for table in source.read(only, BadFiles()):
        ids += table["id"].to_pylist()
        words += [row["rps_doc_word_count"] for row in table["signals"].to_pylist()]
    return ids, words


def synthetic(folder: Path) -> Path:
    """Make one part of 400 documents of 2 to 60 KB."""
    part, chosen = "2023-06/0001/en_head", random.Random(0)
    texts = [" ".join(f"w{chosen.randrange(5000)}" for _ in range(chosen.randrange(300, 9000))) for _ in range(400)]
    documents, signals = [], []
    for number, text in enumerate(texts):
        span = [0, len(text)]
        lines = [[start, start + 40, 0.0] for start in range(0, len(text), 40)]
        documents.append({"url": f"u{number}", "raw_content": text, "language": "en", "bucket": "head"})
        quality = {"rps_doc_word_count": [[*span, len(text.split())]], "rps_lines_start_with_bulletpoint": lines}
        quality |= {f"rps_lines_{kind}": lines for kind in ("num_words", "javascript_counts")}
        signals.append({"id": f"{part}.json.gz/{number}", "quality_signals": quality})
    for kind, lines in (("documents", documents), ("quality_signals", signals)):
        path = folder / kind / f"{part}{'.signals' if kind != 'documents' else ''}.json.gz"
        path.parent.mkdir(parents=True)
        spelled = [json.dumps(line, separators=(",", ":")) + "\n" for line in lines]  # as the release spells signals
        path.write_bytes(gzip.compress("".join(spelled).encode()))
    listed = folder / f"duplicates/{part}.duplicates.parquet"
    listed.parent.mkdir(parents=True)
    import pyarrow as pa

    pq.write_table(
        pa.table({"shard_id": [f"{part}.json.gz"], "doc_id": [f"{part}.json.gz/3"], "digest": ["x"]}), listed
    )
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", type=Path)
    parser.add_argument("--part", default="2023-06/0001/en_head")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        release = options.release or synthetic(Path(folder))
        assert ours(release, options.part) == naive(release, options.part)
        times = {
            read.__name__: seconds(partial(read, release, options.part), options.repeats) for read in (naive, ours)
        }
    for name, taken in times.items():
        print(f"{name:6} {taken[0]:.3f} s CPU, spread {taken[-1] / taken[0]:.2f}x over {options.repeats}")
    print(f"redpajama_v2 ratio={times['naive'][0] / times['ours'][0]:.3f}")


if __name__ == "__main__":
    main()
