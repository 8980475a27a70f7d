"""Estimate a dump of Common Crawl and RedPajama-V2 on 1, 16 and 256 machines: the table of docs/plan.md.

    python benchmarks/dump.py [--data LONGCRAWL_DATA] [--machines 1 16 256] [--cores 64] [--gigabits 10]

Samples are the archives and the release of the shared data, whose files are smaller than the real ones. They are scaled
by documents, 3e9 pages in 90,000 files and 20.5e9 documents in 840,000, and estimated as by `longcrawl plan --cores`.
Machines have --cores and a network of --gigabits; downloads are the input's bytes over the networks of all. Requests
for the input are one a file. EVERYTHING HERE IS AN ESTIMATE from a few hundred documents, and its intervals are wide.
The last line is the share of the dump's core-hours that extraction takes.
"""

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

from _needed import lacks, shared

from longcrawl.run.plan.cluster import ClusterPlan, ClusterRow, extrapolate
from longcrawl.run.plan.estimates import amount, duration, size
from longcrawl.run.plan.run_plan import sample_recipe, scale_up


@dataclass(frozen=True)
class Dataset:
    """A dataset, and the recipe that it is estimated for."""

    name: str
    recipe: str
    folder: str
    tokenized: tuple[str, ...]
    documents: float
    files: int


DATASETS = (
    Dataset("a dump", "refinedweb-blocks", "warc", ("min_hash", "exact_substring"), 3e9, 90_000),
    Dataset("RedPajama-V2", "longcrawl64-clean", "rpv2", ("tokenize",), 20.5e9, 840_000),
)


def estimate(dataset: Dataset, data: Path, cores: list[int]) -> list[ClusterPlan]:
    """Return a plan for each number of cores, from one sample."""
    tokenizer = data / "gpt2-tokenizer.json"
    overrides = [f"source.data_dir={data / dataset.folder}"]
    if dataset.folder == "warc":
        overrides = [f"source.data_files={data / 'warc' / 'pages-*.warc.gz'}"]
    overrides += [f"stages.{name}.tokenizer={tokenizer}" for name in dataset.tokenized]
    recipe, sample = sample_recipe(dataset.recipe, 8, 2000, 0, overrides, unit="file")
    documents = sum(part.documents for part in sample.read) / len(sample.read)
    among = sample.among(round(dataset.documents / documents))
    scaled = scale_up(recipe, among, 0, copies="as_sampled", parts=f"{len(sample.read)} files")
    read, inputs = among.input_bytes, round(sample.input_files / sample.files * dataset.files)
    return [
        replace(extrapolate(scaled, recipe, files=dataset.files, cores=each), read=read, input_files=inputs)
        for each in cores
    ]


def rows(plans: list[ClusterPlan], machines: list[int], gigabits: float) -> list[list[str]]:
    """Return the rows of the table: a label, and a figure for each number of machines, or one for all."""
    one = plans[0]
    assert one.read is not None  # files are local
    alone = duration(one.alone.value)
    # Not reading, which has a row of its own and also exchanges ids.
    decided = sum(row.seconds.value for row in one.rows[1:] if row.shuffled.value) / 3600
    return [
        ["input", f"{size(one.read.value)} in {one.input_files:,} files"],
        ["download", *(duration(8 * one.read.value / (gigabits * 1e9 * count)) for count in machines)],
        ["core-hours", amount(one.core_hours.value)],
        *([f"of these {row.stage}", amount(row.seconds.value / 3600)] for row in largest(one)),
        ["of these stages that exchange", amount(decided)],
        ["wall time", *(duration(3600 * plan.wall_hours.value) for plan in plans)],
        ["in one task meanwhile", alone],
        ["exchanged", size(one.shuffled.value)],
        ["disk at its fullest", size(one.disk.value)],
        ["disk of a machine", *(size(one.disk.value / count) for count in machines)],
        ["memory of the largest task", size(one.largest.memory.value)],
        ["requests for the input", amount(float(one.input_files))],
        ["requests for the run's folder", amount(one.requests)],
    ]


def largest(plan: ClusterPlan) -> list[ClusterRow]:
    """Return the two steps that take most core-hours."""
    return sorted(plan.rows, key=lambda row: -row.seconds.value)[:2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LONGCRAWL_DATA") or shared(""))
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--gigabits", type=float, default=10)
    options = parser.parse_args()
    if lacks("--data, a folder with archives and a release", options.data / "warc", options.data / "rpv2"):
        return
    data, cores = options.data.absolute(), [options.cores * count for count in options.machines]
    shares = []
    for dataset in DATASETS:
        plans = estimate(dataset, data, cores)
        shares.append(max(row.seconds.value for row in plans[0].rows) / 3600 / plans[0].core_hours.value)
        print(f"{dataset.name}: {dataset.recipe}, {dataset.documents:.3g} documents, from {plans[0].sample}")
        for label, *figures in rows(plans, options.machines, options.gigabits):
            cells = figures if len(figures) > 1 else figures * len(options.machines)
            print(f"| {label} | {' | '.join(cells)} |")
    print(f"dump ratio={shares[0]:.2f}")


if __name__ == "__main__":
    main()
