"""CPU time that the edit ledger, checksums and the identity of inputs add.

    python benchmarks/checks_cost.py [--part places rectangle feeds inputs] [--text DOCUMENTS.jsonl.zst]

Each line compares one piece of work with the mechanism and without it, in one process by turns, on files in the page
cache: CPU seconds with it over those without, the median of --repeats. Behind it stands the same ratio for the work
without the mechanism against itself, which is the noise. Without --text documents are made up.

- places: ``trace``, which lists what changed, against ``edit`` or ``apply``, which does not; and what a run does with
  the list: count it and write it to the edit ledger.
- rectangle: a pass of ``Rectangle`` over arrays with and without crc32c behind each chunk, of two codecs.
- feeds: passes of ``Windows`` and ``Packed`` over the same shards with and without ``SHARD.crc32c``: the first pass,
  which compares, opening included, and a second one of the same feed.
- inputs: reading JSON lines, plain, gzip and zstd, with and without the SHA-256 of the file afterwards.

The last line is the largest ratio of all.
"""

import argparse
import gzip
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard
from feeds import END, write_documents
from line_corrections import documents, synthetic
from rectangle_loader import make_tokens

import longcrawl as lc
from longcrawl.core.ledger import count_edits, edit_writer
from longcrawl.core.places import edit_rows
from longcrawl.core.sources import BadFiles
from longcrawl.formats.rectangle.write import Layout
from longcrawl.sources.files import reading
from longcrawl.sources.text import Text

BATCH = 500
LENGTH = 2048
PARTS = ("places", "rectangle", "feeds", "inputs")

Work = Callable[[], object]


class Turns:
    """Compares work with a mechanism and without it, and keeps the ratios."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        self.ratios: dict[str, float] = {}

    def compare(self, name: str, checked: Work, plain: Work) -> None:
        """Print what the mechanism costs."""
        sides = {"checked": checked, "plain": plain, "again": plain}
        for work in (checked, plain):
            work()
        pairs: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(self.repeats):
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                started = time.process_time()
                sides[side]()
                pairs[side].append(time.process_time() - started)
        seconds = {side: statistics.median(taken) for side, taken in pairs.items()}
        self.ratios[name] = seconds["checked"] / seconds["plain"]
        print(
            f"{name:<44} {seconds['plain'] * 1e3:8.1f} ms, with it {self.ratios[name]:.3f} times as much "
            f"(the same twice: {seconds['again'] / seconds['plain']:.3f})",
            flush=True,
        )


def tables_of(texts: list[str]) -> list[pa.Table]:
    ids = [f"document {number:07d}" for number in range(len(texts))]
    whole = pa.table({"id": ids, "text": pa.array(texts, pa.large_string())})
    return [whole.slice(start, BATCH) for start in range(0, len(texts), BATCH)]


def compare_places(turns: Turns, texts: list[str], folder: Path) -> None:
    tables = tables_of(texts)
    substring = lc.dedup.ExactSubstring(unit="character")
    half = [text[: len(text) // 2] for text in texts]
    repeated = tables_of([one + two for one, two in zip(texts, [*half[1:], half[0]], strict=True)])
    spans = substring.resolve(pa.concat_tables([substring.sketch(table) for table in repeated]))
    stages: list[tuple[str, list[pa.Table], Callable[[pa.Table], Any], Callable[[pa.Table], Any]]] = [
        (stage.name, tables, stage.trace, stage.edit)
        for stage in (lc.text.C4Quality(), lc.text.LineCorrections(language="en"))
    ]
    trace, apply = (partial(work, spans=spans) for work in (substring.trace, substring.apply))
    stages.append((substring.name, repeated, trace, apply))
    for name, batches, trace, edit in stages:

        def ledger(name: str = name, batches: list[pa.Table] = batches, trace: Any = trace) -> None:
            with edit_writer(folder / f"{name}.parquet") as add:
                for table in batches:
                    places = trace(table).places
                    count_edits(places)
                    add(edit_rows(table, places, name))

        def run(batches: list[pa.Table] = batches, work: Any = edit) -> None:
            for table in batches:
                work(table)

        turns.compare(f"places of {name}", lambda run=run, trace=trace: run(work=trace), run)
        turns.compare(f"places of {name}, in a ledger", ledger, run)


def drain(feed: Iterable[Any]) -> None:
    for _ in feed:
        pass


def compare_rectangle(turns: Turns, folder: Path) -> None:
    rows, columns = 2048, 8192
    tokens = make_tokens(rows * columns).reshape(rows, columns)
    for codec in ("zstd", "lz4hc"):
        for checksum in ("crc32c", "none"):
            layout = Layout(columns, "uint16", END, 3, codec, checksum=checksum)
            store = folder / f"{codec}-{checksum}"
            store.mkdir()
            (store / "zarr.json").write_text(
                json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"end_of_text": END}})
            )
            layout.create(store / "train", rows)[:] = tokens
        checked, plain = (
            lambda store=folder / f"{codec}-{checksum}": drain(
                lc.loading.Rectangle(store, batch_size=8, context_length=columns)
            )
            for checksum in ("crc32c", "none")
        )
        turns.compare(f"rectangle of {codec}, a pass", checked, plain)


def windows(shards: Path) -> Any:
    return lc.loading.Windows(shards, LENGTH, "index", END, shuffle="windows").batches(8)


def packed(shards: Path, epochs: int = 1) -> Any:
    return lc.loading.Packed(shards, max_length=LENGTH, batch_size=8, epochs=epochs)


def compare_feeds(turns: Turns, folder: Path, tokens: int) -> None:
    for feed, module in ((windows, lc.formats.datatrove), (packed, lc.formats.gpt_simple)):
        checked, plain = folder / feed.__name__, folder / f"{feed.__name__}-plain"
        write_documents(checked, tokens, module, LENGTH)
        shutil.copytree(checked, plain, ignore=shutil.ignore_patterns("*.crc32c"))
        passes = [lambda shards=shards, feed=feed: drain(feed(shards)) for shards in (checked, plain)]
        turns.compare(f"{feed.__name__}, opening and first pass", *passes)
    opened = [windows(folder / name) for name in ("windows", "windows-plain")]
    turns.compare("windows, later passes", lambda: drain(opened[0]), lambda: drain(opened[1]))
    endless = [iter(packed(folder / name, epochs=100_000)) for name in ("packed", "packed-plain")]
    batches = tokens // (LENGTH * 8)
    later = [lambda feed=feed: drain(islice(feed, batches)) for feed in endless]
    turns.compare("packed, later passes", *later)


def compare_inputs(turns: Turns, texts: list[str], folder: Path) -> None:
    lines = "".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts)).encode()
    packed = {"": lines, ".gz": gzip.compress(lines, 6), ".zst": zstandard.ZstdCompressor().compress(lines)}
    for ending, content in packed.items():
        file = folder / f"documents.jsonl{ending}"
        file.write_bytes(content)
        source = Text(data_files=str(file))
        (part,) = source.splits()["train"]

        def read(source: Text = source, part: Any = part) -> None:
            drain(source.read(part, BadFiles()))

        def identified(part: Any = part, read: Work = read) -> None:
            with reading(part.files):
                read()

        turns.compare(f"identity of {file.name}, {len(content) / 1e6:.0f} MB", identified, read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--text", type=Path, help="jsonl.zst of documents with the fields text and lang")
    parser.add_argument("--tokens", type=int, default=10_000_000, help="tokens of the shards that feeds read")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    texts = documents(given.text) if given.text else synthetic()
    turns = Turns(given.repeats)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "places" in given.part:
            compare_places(turns, texts, folder)
        if "rectangle" in given.part:
            compare_rectangle(turns, folder)
        if "feeds" in given.part:
            compare_feeds(turns, folder, given.tokens)
        if "inputs" in given.part:
            compare_inputs(turns, texts, folder)
    print(f"checks_cost ratio={max(turns.ratios.values()):.3f}")


if __name__ == "__main__":
    main()
