"""Find repeated passages with many tasks: CPU time, bytes sent and memory, against one process.

    python benchmarks/passages.py [--tokens 4000000] [--groups 4] [--equal] [--engines local spark]

Tokens are those of ``benchmarks/substring.py``: of --text by --tokenizer, or made up; some passages return. They are
stored in --groups as a run stores sketches; with --equal each group has the same documents, so that everything repeats.
The spans of 50 tokens, and where else each stands, are then found by exchanges between groups, and by ``find`` in one
process; both are asserted to be equal. Everything is done once before, so that no kernel is compiled meanwhile.

CPU seconds are those of all processes. Rows and bytes are those that tasks send, packed, of every token of all groups.
Memory is the most that one process had beside what it had before the step, over the tokens of a group, for the engine
"local", which is one process here. The last line is the CPU time of exchanges through files over that of ``find``.
"""

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import substring
from _measures import Peak
from engine import Measured, spent

from longcrawl.core.exchange import Sketched
from longcrawl.dedup import ExactSubstring
from longcrawl.io.structured import Marker
from longcrawl.run.engines import Engine, Exchange, Local, Spark
from longcrawl.run.part import part_marker, sketches

IN_TABLE = 1000


def read_group(work: Path, group: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    return sketches(work, 0, [group], columns)


@dataclass(frozen=True)
class Groups:
    """Sketches that are stored as those of a run."""

    work: Path
    rows: tuple[int, ...]
    tokens: int

    def sketched(self, folder: Path) -> Sketched:
        """Return them, for a decision in a folder."""
        return Sketched(folder, self.rows, partial(read_group, self.work))

    def tables(self) -> Iterator[pa.Table]:
        """Return all of them."""
        return sketches(self.work, 0, range(len(self.rows)))


def store(tokens: np.ndarray, offsets: np.ndarray, groups: int, work: Path, *, equal: bool) -> Groups:
    """Store documents in groups: all of them in each, or in each its share."""
    documents = len(offsets) - 1
    bounds = np.linspace(0, documents, groups + 1, dtype=int)
    cuts = [(0, documents)] * groups if equal else list(itertools.pairwise(bounds))
    number = itertools.count()
    for group, (first, stop) in enumerate(cuts):
        spread = (next(number) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128) for _ in range(first, stop))
        lists = pa.LargeListArray.from_arrays(pa.array(offsets[first : stop + 1]), pa.array(tokens))
        table = pa.table({"id": [f"<urn:uuid:{each:032x}>" for each in spread], "tokens": lists})
        marker = part_marker(work, 0, group)
        file = marker.with_suffix(".sketches")
        file.parent.mkdir(parents=True, exist_ok=True)
        with pa.ipc.new_file(str(file), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, max_chunksize=IN_TABLE)
        Marker(marker, {}, Marker.entries(marker, [file])).write()
    counts = [offsets[stop] - offsets[first] for first, stop in cuts]
    return Groups(work, tuple(int(stop - first) for first, stop in cuts), int(sum(counts)))


class Watched(Measured):
    """An engine whose exchanges are measured, with the memory that each takes in this process."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.memory: dict[str, int] = {}
        self._peak = Peak()

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Measure an exchange."""
        pa.default_memory_pool().release_unused()
        self._peak.most = before = Peak.now()
        super().exchange(step, tasks)
        self.memory[step.folder.name] = self._peak.most - before


def find(survey: ExactSubstring, groups: Groups, folder: Path) -> tuple[pa.Table, float]:
    """Return the spans that one process finds, and the CPU seconds that it takes."""
    started = spent()
    table = survey.find(groups.tables(), str(folder)).table
    return table, spent() - started


def compare(survey: ExactSubstring, groups: Groups, engines: dict[str, Engine], folder: Path) -> dict[str, float]:
    """Print what each engine takes after asserting that it finds what one process finds; return CPU s over that."""
    wanted, alone = find(survey, groups, folder / "find")
    covered = int((wanted["end"].to_numpy() - wanted["start"].to_numpy()).sum())
    print(
        f"\n{groups.tokens:,} tokens of {sum(groups.rows):,} documents in {len(groups.rows)} groups, "
        f"{wanted.num_rows:,} spans with {100 * covered / groups.tokens:.0f} % of the tokens; find in one process "
        f"takes {alone:.2f} CPU s, {1e9 * alone / groups.tokens:.0f} ns a token"
    )
    ratios = {}
    for name, engine in engines.items():
        watched = Watched(engine)
        decided = survey.exchange(groups.sketched(folder / name), watched)
        found = pa.concat_tables(decided.read(group) for group in range(len(groups.rows)))
        assert found.equals(wanted), f"{name} does not find what one process finds"
        sent = watched.sent()
        head = ["CPU s", "ns/token", "tables", "rows/token", "bytes/token", "memory/token"]
        print("  {:9} {:>7} {:>9} {:>7} {:>11} {:>12} {:>13}".format(name, *head))
        for step in watched.taken:
            line = f"    {step.name:9}{step.seconds:7.2f} {1e9 * step.seconds / groups.tokens:9.1f}"
            if step.name in sent:
                tables, rows, size = sent[step.name]
                line += f" {tables:7,} {rows / groups.tokens:11.4f} {size / groups.tokens:12.3f}"
                if name == "local":
                    line += f" {watched.memory[step.name] * len(groups.rows) / groups.tokens:13.1f}"
            print(line)
        total = sum(size for _, _, size in sent.values())
        print(
            f"    {'all':9}{watched.seconds:7.2f} {1e9 * watched.seconds / groups.tokens:9.1f} {'':19} "
            f"{total / groups.tokens:12.3f}"
        )
        ratios[name] = watched.seconds / alone
        print(f"  {name}: {ratios[name]:.2f} times the CPU time of find")
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=4e6)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--equal", action="store_true", help="the same documents in each group")
    parser.add_argument("--engines", nargs="+", choices=("local", "spark"), default=["local"])
    parser.add_argument("--text", type=Path, nargs="*")
    parser.add_argument("--tokenizer", default="gpt2")
    options = parser.parse_args()
    engines: dict[str, Engine] = {"local": Local(), "spark": Spark(master="local[2]")}
    engines = {name: engines[name] for name in options.engines}
    survey, count = ExactSubstring(substring.LENGTH), int(options.tokens)
    texts = substring.read(options.text, options.tokenizer) if options.text else substring.made_up(count)
    tokens, offsets = substring.corpus(texts, count // options.groups if options.equal else count)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        few = store(tokens, offsets[:50], 2, folder / "few", equal=True)
        for name, engine in engines.items():
            survey.exchange(few.sketched(folder / f"{name}-few"), engine)
        find(survey, few, folder / "find-few")
        groups = store(tokens, offsets, options.groups, folder / "sketches", equal=options.equal)
        ratios = compare(survey, groups, engines, folder)
    print(f"passages ratio={ratios[options.engines[0]]:.3f}")


if __name__ == "__main__":
    main()
