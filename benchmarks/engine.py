"""Decide about duplicates with many tasks, by files and by Spark, and extrapolate to a whole dump.

    python benchmarks/engine.py [--documents 100000] [--large 0] [--engines local spark] [--text DOCUMENTS.jsonl]

Sketches are made with --copies of copies, half of them equal and half with a third of their band keys in common, and
are stored in --groups as a run stores them. Exact documents, MinHash of 14 bands of 8 and, with --large documents, of
450 bands of 20 are then decided about by exchanges: with "local" through files, by --num-proc processes, with "spark"
in Spark's shuffle, and by ``resolve`` in one process that holds all sketches. The answers are asserted to be equal.
CPU seconds are those of all processes, Java's with them. Rows and bytes are those that tasks send, packed.

Tasks, and tables from a task to a partition, take time however few rows they have: both are measured alone, and each
case with 100 documents in as many groups. What it takes beyond that is taken to grow with the documents. So follow the
core-hours of a dump of 3e9 pages, of which 2e9 come to be deduplicated: they are EXTRAPOLATIONS, and each line says
from what. With --text, sketches are made of the documents of a file, too, with --tokenizer for the 450 bands. The last
line is the CPU time of exchanges through files over that of ``resolve``, for MinHash 14x8.
"""

import argparse
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from _measures import Tree, best
from _needed import runs_spark
from minhash import documents as read_documents

from longcrawl.core.exchange import Sketched, pack_table
from longcrawl.core.stages import REMOVAL_SCHEMA
from longcrawl.dedup import ExactDocuments, MinHash, clusters
from longcrawl.dedup.exact import EqualHashes
from longcrawl.dedup.index import IndexedSurvey
from longcrawl.io.structured import Marker
from longcrawl.kernels.texts import fixed_binary
from longcrawl.run import inputs
from longcrawl.run.engines import Engine, Exchange, Local, Spark
from longcrawl.run.part import part_marker, sketches, stored_rows

IN_TABLE = 1000
PAGES, DEDUPLICATED, FILES = 3e9, 2e9, 100_000
WHOLE_RUN = 27_500
"""Core-hours of a run over all pages, nearly all of them to extract texts: measured on 94 pages, see docs/plan.md."""
PARTITIONS = 32
"""And tasks, of the exchanges that are measured with nearly no rows."""
SEGMENTS = 4
"""Tasks of a file: up to exact documents, up to URLs, up to MinHash, and from there to the output."""
SURVEYS: dict[str, IndexedSurvey] = {
    "exact": ExactDocuments(),
    "14x8": MinHash(bands=14, rows=8, unit="word", max_cluster=None),
    "450x20": MinHash(bands=450, rows=20, unit="word", max_cluster=None),
}
KEYS, GROUPS = 1 << 22, 256
"""Keys and groups of a large partition; see ``PIECE`` in :mod:`longcrawl.dedup.clusters`."""
FEW = 100
"""Documents of a case that is to show what takes time however few there are."""
GOALS = {"14x8": 10.0, "450x20": 1200.0}
SHARE = 5.0
TICK = 0.01
"""Seconds in which the system counts those of a process."""
EDGE = 66e-9
"""Seconds of an edge in the union-find among 1e9 documents, measured once with another script."""


class Step(NamedTuple):
    """Cost of one exchange."""

    name: str
    seconds: float
    tasks: int
    partitions: int


@dataclass
class Measured:
    """An engine whose exchanges are measured, and kept to count their rows."""

    engine: Engine
    taken: list[Step] = field(default_factory=list)
    exchanges: list[tuple[Exchange, Sequence[Any]]] = field(default_factory=list)
    edges: int = 0
    """Edges found in the step that links documents."""

    @property
    def seconds(self) -> float:
        """CPU seconds of all steps."""
        return sum(step.seconds for step in self.taken)

    def tasks(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Measure what is not an exchange."""
        started = spent()
        results = list(self.engine.tasks(function, tasks))
        self.taken.append(Step("tasks", spent() - started, len(tasks), 0))
        return iter(results)

    def exchange(self, step: Exchange, tasks: Sequence[Any]) -> None:
        """Measure an exchange."""
        started = spent()
        self.engine.exchange(step, tasks)
        self.taken.append(Step(step.folder.name, spent() - started, len(tasks), step.partitions))
        self.exchanges.append((step, tasks))
        if step.folder.name.startswith("link"):
            self.edges += sum(step.read(partition).num_rows for partition in range(step.partitions))

    def sent(self) -> dict[str, tuple[int, int, int]]:
        """Return tables, rows and bytes that each exchange has sent: their rows are made again."""
        found = {}
        for step, tasks in self.exchanges:
            tables = [table for task in tasks for _, table in step.make(task)]
            rows, size = sum(each.num_rows for each in tables), sum(len(pack_table(each)) for each in tables)
            found[step.folder.name] = len(tables), rows, size
        return found


def spent() -> float:
    """Return the CPU seconds of this process and of all that descend from it, so far."""
    return Tree(os.getpid()).seconds()


@dataclass(frozen=True)
class Case:
    """A survey, and sketches that are stored as those of a run."""

    name: str
    survey: IndexedSurvey
    documents: int
    work: Path
    groups: int

    @property
    def bands(self) -> int:
        """Number of bands, 0 for hashes of whole texts."""
        return 0 if isinstance(self.survey, EqualHashes) else self.survey.clustering.bands

    def write(self, copies: float) -> None:
        """Write the sketches."""
        rng = np.random.default_rng(0)
        keys = rng.integers(0, 1 << 64, (self.documents, self.bands or 2), dtype=np.uint64)
        copy = np.flatnonzero(rng.random(self.documents) < copies)
        equal, near = copy[::2], copy[1::2]
        keys[equal] = keys[rng.integers(0, self.documents, len(equal))]
        shared = max(self.bands // 3, 1)
        keys[near, :shared] = keys[rng.integers(0, self.documents, len(near)), :shared]
        for number, rows in enumerate(np.array_split(np.arange(self.documents), self.groups)):
            self._write_group(number, rows, keys[rows], rng)

    def _write_group(self, number: int, rows: np.ndarray, keys: np.ndarray, rng: np.random.Generator) -> None:
        spread = (int(row) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128) for row in rows)
        columns = {"id": [f"<urn:uuid:{each:032x}>" for each in spread]}
        if self.bands:
            samples = rng.integers(0, 256, (len(rows), min(self.survey.permutations, 128)), dtype=np.uint8)
            columns |= {"bands": fixed_binary(keys.view(np.uint8)), "sample": fixed_binary(samples)}
            columns["n_ngrams"] = pa.array(np.full(len(rows), 300, np.int32))
        else:
            columns["hash"] = fixed_binary(keys.view(np.uint8))
        file, table = self.file(number), pa.table(columns)
        file.parent.mkdir(parents=True, exist_ok=True)
        with pa.ipc.new_file(str(file), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, max_chunksize=IN_TABLE)
        marker = part_marker(self.work, 0, number)
        Marker(marker, {"kept": len(rows)}, Marker.entries(marker, [file])).write()

    def file(self, number: int) -> Path:
        """Name the sketches of a group."""
        return part_marker(self.work, 0, number).with_suffix(".sketches")

    def sketched(self, folder: Path) -> Sketched:
        """Return the sketches, for a decision in a folder."""
        rows = tuple(stored_rows(self.work, 0, number) for number in range(self.groups))
        return Sketched(folder, rows, partial(read_group, self.work))

    def bytes_each(self) -> float:
        """Return the bytes of a sketch on disk."""
        return sum(self.file(number).stat().st_size for number in range(self.groups)) / self.documents

    def shape(self, documents: float, groups: int) -> list[tuple[str, int, int]]:
        """Return name, tasks and partitions of each exchange for so many documents."""
        if not self.bands:
            return [(name, groups, groups) for name in ("first", "removals")]
        pieces = math.ceil(documents / clusters.PIECE)
        sections = min(math.ceil(documents / clusters.SECTION), groups)
        after = [(name, sections, sections) for name in ("choose", "near")]
        many = groups * self.bands * pieces > clusters.TABLES
        firsts = range(0, self.bands, clusters.BANDS if many else self.bands)
        counts = [min(firsts.step, self.bands - first) for first in firsts]
        tasks = math.ceil(groups / len(counts))
        passes = [(f"link-{first}", tasks, count * pieces) for first, count in zip(firsts, counts, strict=True)]
        return [*passes, *after]


def read_group(work: Path, group: int, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    return sketches(work, 0, [group], columns)


def read_removals(read: Callable[[int], pa.Table], group: int) -> pa.Table:
    return read(group).select(REMOVAL_SCHEMA.names)


class Cost(NamedTuple):
    """CPU seconds of what takes them however few rows there are, by engine."""

    task: float
    table: float
    key: float
    """Seconds for a key of a large partition, with any engine."""


def send_rows(tables: int, number: int) -> Iterator[tuple[int, pa.Table]]:
    """Send a table of one row to some partitions."""
    for partition in range(number, number + tables):
        yield partition % PARTITIONS, pa.table({"row": [1]})


def count_rows(_: int, tables: Iterator[pa.Table]) -> pa.Table:
    return pa.table({"rows": [sum(table.num_rows for table in tables)]})


def fixed_cost(engine: Engine, folder: Path, key: float) -> Cost:
    """Measure exchanges of nearly no rows: with one table from each task, and with one to each partition."""
    taken = []
    for tables in (1, 1, PARTITIONS):
        started = spent()
        step = Exchange(partial(send_rows, tables), count_rows, PARTITIONS, folder / f"tables-{len(taken)}")
        engine.exchange(step, range(PARTITIONS))
        taken.append(spent() - started)
    _, few, many = taken
    return Cost(few / (2 * PARTITIONS), max(many - few, 0.0) / (PARTITIONS**2 - PARTITIONS), key)


def sort_keys() -> float:
    """Print and return the CPU seconds that a key takes in a partition of the step "link" that has very many."""
    rng, tables = np.random.default_rng(0), []
    for group in range(GROUPS):
        keys = np.unique(rng.integers(0, 2 * KEYS, KEYS // GROUPS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        tables.append(pa.table({"key": keys, "document": group * KEYS + np.arange(len(keys))}))
    seconds = best(lambda: clusters._take_links(0, iter(tables)), 2) / KEYS  # noqa: SLF001  # it is measured
    print(f"  a key of MinHash in a partition of {KEYS:,}, from {GROUPS} tasks: {1e9 * seconds:.0f} ns")
    return seconds


def warm_up(engines: dict[str, Engine], folder: Path) -> dict[str, Cost]:
    """Start the engines and load all code; print and return what takes time however few rows there are."""
    small = Case("small", MinHash(bands=14, rows=8, unit="word"), 100, folder / "sketches-small", 4)
    small.write(0.5)
    print("CPU time of an engine, however few rows there are")
    costs, key = {}, sort_keys()
    for name, engine in engines.items():
        started = spent()
        measure(small, engine, folder / name / "small")
        begun = spent() - started
        costs[name] = fixed_cost(engine, folder / name, key)
        print(
            f"  {name:6} start and the first 100 documents {begun:.1f} s, a task of an exchange "
            f"{1e3 * costs[name].task:.1f} ms, a table from a task to a partition {1e3 * costs[name].table:.2f} ms"
        )
    return costs


def measure(case: Case, engine: Engine, folder: Path) -> tuple[Measured, pa.Table]:
    """Decide about the documents of a case; return what was measured, and what is removed."""
    measured = Measured(engine)
    decided = case.survey.exchange(case.sketched(folder), measured)
    found = list(measured.tasks(partial(read_removals, decided.read), range(case.groups)))
    assert [(step.name, step.tasks, step.partitions) for step in measured.taken if step.partitions] == case.shape(
        case.documents, case.groups
    ), "the number of tasks and partitions is another one than whole dumps are extrapolated by"
    return measured, pa.concat_tables(found).sort_by("id")


def compare(case: Case, engines: dict[str, Engine], folder: Path) -> tuple[dict[str, Measured], float]:
    """Print what each engine takes for a case, after asserting that all remove the same; return CPU s of resolve."""
    measured, removed = {}, {}
    for name, engine in engines.items():
        measured[name], removed[name] = measure(case, engine, folder / name / case.name)
    started = spent()
    resolved = case.survey.resolve(pa.concat_tables(sketches(case.work, 0, range(case.groups))))
    resolve = max(spent() - started, TICK)
    wanted = resolved.replace_schema_metadata(None).sort_by("id")
    for name, found in removed.items():
        assert found.equals(wanted), f"{name} does not remove what resolve removes"
    print(
        f"\n{case.name}: {case.documents:,} documents in {case.groups} groups, {case.bytes_each():.0f} bytes of a "
        f"sketch on disk, {wanted.num_rows:,} removed; resolve in one process takes {resolve:.2f} CPU s, "
        f"{1e6 * resolve / case.documents:.2f} us a document"
    )
    sent = next(iter(measured.values())).sent()
    for name, found in measured.items():
        head = ["CPU s", "us/document", "us/row", "tables", "rows/doc", "bytes/doc"]
        print(f"  {name:10} {head[0]:>7} {head[1]:>12} {head[2]:>7} {head[3]:>7} {head[4]:>9} {head[5]:>10}")
        for step in (*sent, "tasks"):
            seconds = sum(each.seconds for each in found.taken if each.name == step)
            line = f"    {step:8} {seconds:7.2f} {1e6 * seconds / case.documents:12.2f}"
            if step in sent:
                tables, rows, size = sent[step]
                line += f" {1e6 * seconds / max(rows, 1):7.2f} {tables:7,}"
                line += f" {rows / case.documents:9.2f} {size / case.documents:10.1f}"
            print(line)
        print(f"    {'all':8} {found.seconds:7.2f} {1e6 * found.seconds / case.documents:12.2f}")
    for name, found in measured.items():
        print(f"  {case.name} by {name}: {found.seconds / resolve:.2f} times the CPU time of resolve")
    return measured, resolve


def extrapolate(case: Case, many: Measured, few: Measured, cost: Cost) -> float:
    """Print and return the core-hours that a case takes for all documents of a dump."""
    each = max(many.seconds - few.seconds, 0.0) / (case.documents - FEW)
    groups = math.ceil(DEDUPLICATED * case.bytes_each() / inputs.TASK)
    shape = case.shape(DEDUPLICATED, groups)
    tasks = sum(tasks + partitions for _, tasks, partitions in shape) + 2 * groups  # what is earlier, what is removed
    tables = sum(tasks * partitions for _, tasks, partitions in shape)
    seconds = [DEDUPLICATED * each, tasks * cost.task, tables * cost.table, DEDUPLICATED * case.bands * cost.key]
    hours = [each / 3600 for each in seconds]
    print(
        f"  {case.name}: {sum(hours):,.1f} core-hours: {hours[0]:,.1f} by documents, {1e6 * each:.2f} us each "
        f"({many.seconds:.2f} CPU s of {case.documents:,} less {few.seconds:.2f} of {FEW}); {hours[1]:,.1f} by "
        f"{tasks:,} tasks ({groups:,} groups of {inputs.TASK >> 20} MiB of sketches); {hours[2]:,.1f} by up to "
        f"{tables:.1e} tables; {hours[3]:,.1f} by keys in large partitions, where small ones above took less"
    )
    if many.edges:
        edges = many.edges / case.documents * DEDUPLICATED
        print(
            f"    of these in one task, union-find: {edges * EDGE / 3600:.2f} hours for {edges:.1e} edges "
            f"({many.edges / case.documents:.2f} a document above) of {1e9 * EDGE:.0f} ns, NOT measured here"
        )
    return sum(hours)


def print_dump(engine: str, cases: Sequence[Case], measured: dict[str, tuple[Measured, Measured]], cost: Cost) -> None:
    """Print what a whole dump would take, from what an engine took for cases and for few of their documents."""
    print(f"\nEXTRAPOLATED from the above by {engine}: {PAGES:.0e} pages, {DEDUPLICATED:.0e} of them deduplicated")
    hours = {case.name: extrapolate(case, *measured[case.name], cost) for case in cases}
    for name in hours.keys() & GOALS.keys():
        verdict = "reached" if hours[name] < GOALS[name] else "MISSED"
        print(f"  goal for MinHash {name} under {GOALS[name]:,.0f} core-hours, without sketches: {verdict}")
    starts = FILES * SEGMENTS * cost.task / 3600
    whole = starts + 2 * hours["exact"] + hours["14x8"]
    share = 100 * whole / WHOLE_RUN
    print(
        f"  engine: {whole:,.1f} core-hours, for exact documents, URLs (taken as those), MinHash 14x8 and "
        f"{FILES * SEGMENTS:,} tasks of {FILES:,} files ({starts:.1f}): {share:.2f} % of a run of {WHOLE_RUN:,} "
        f"core-hours; goal under {SHARE:.0f} %: {'reached' if share < SHARE else 'MISSED'}"
    )


def sketching(options: argparse.Namespace) -> dict[str, float]:
    """Return the CPU seconds of making a sketch of a document of a file; nothing without one."""
    if options.text is None:
        print("  sketches: not measured, name documents with --text")
        return {}
    texts = read_documents(options.text, 200)
    table = pa.table({"id": [str(number) for number in range(len(texts))], "text": texts})
    found = {}
    for name, survey in (
        ("14x8", MinHash.preset("fineweb")),
        ("450x20", MinHash.preset("refinedweb", tokenizer=options.tokenizer)),
    ):
        survey.prepare()
        survey.sketch(table)
        found[name] = best(partial(survey.sketch, table), 2) / len(texts)
        size = sum(map(len, texts)) / len(texts)
        print(f"  {name}: a sketch takes {1e6 * found[name]:.0f} us, of {len(texts)} texts of {size:,.0f} characters")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=0, help="documents with 450 bands, such as 10000")
    parser.add_argument("--copies", type=float, default=0.4)
    parser.add_argument("--groups", type=int, default=8)
    usual = ["local", "spark"] if runs_spark() else ["local"]
    parser.add_argument("--engines", nargs="+", choices=("local", "spark"), default=usual)
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--tokenizer", default="gpt2")
    options = parser.parse_args()
    engines: dict[str, Engine] = {"local": Local(options.num_proc), "spark": Spark(master=f"local[{options.num_proc}]")}
    engines = {name: engines[name] for name in options.engines}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sizes = {name: options.large if name == "450x20" else options.documents for name in SURVEYS}
        cases = [
            Case(name, survey, sizes[name], folder / f"sketches-{name}", options.groups)
            for name, survey in SURVEYS.items()
            if sizes[name]
        ]
        fewer = [replace(case, documents=FEW, work=folder / f"sketches-{case.name}-few") for case in cases]
        for case in (*cases, *fewer):
            case.write(options.copies)
        costs = warm_up(engines, folder)
        ratio, measured = math.nan, {}
        for case, few in zip(cases, fewer, strict=True):
            many, resolve = compare(case, engines, folder)
            small = {
                name: measure(few, engine, folder / name / f"{few.name}-few")[0] for name, engine in engines.items()
            }
            measured[case.name] = {name: (many[name], small[name]) for name in engines}
            if case.name == "14x8":
                ratio = many[options.engines[0]].seconds / resolve
        for name, cost in costs.items():
            print_dump(name, cases, {case.name: measured[case.name][name] for case in cases}, cost)
        print("\nMaking sketches, CPU time of a process")
        for seconds in sketching(options).values():
            print(f"    EXTRAPOLATED: {DEDUPLICATED * seconds / 3600:,.0f} core-hours for 2e9 such texts")
    print(f"engine ratio={ratio:.3f}")


if __name__ == "__main__":
    main()
