"""Do our compositions make OLMo-core's instances, and what do they cost in padding, truncation and context?

    python -m venv oc && oc/bin/pip install -r benchmarks/peers/olmo_core.txt
    python benchmarks/olmo_core_compositions.py --olmo-core oc/bin/python [--length 16384] [--batch 32768]

The documents of long.jsonl.zst and short.jsonl.zst are written as tokens in the format ``olmo-core``, once with GPT-2's
tokens and once with each document's number in place of its tokens. OLMo-core's datasets, padded, interleaved and of
variable length, read both in their own environment. Ours are planned from lengths and filled from the same shard; those
of interleaved documents in the order that OLMo-core drew. Instances are compared token by token. The measures of both
sides are computed by one function from the numbers of the documents in the instances, without end-of-text tokens.

Of variable lengths, the bucket of each batch of an epoch is also compared, as the number of batches of each bucket in
each stretch of each cycle: the order within a stretch is random on both sides. OLMo-core exchanges the first batch with
the first of the largest bucket. It fails where the rounded shares of a cycle add up to more batches than there are,
which is printed. The last line is the share of all comparisons that are equal.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _needed import gpt2, lacks, shared
from long_range import rows

import longcrawl as lc
from longcrawl.loading.buckets import GROWING, _growth, _in_cycles, plan_schedule
from longcrawl.loading.curriculum import BucketStock
from longcrawl.tokens import DatasetDecomposition, Interleaved, Packing, Padded, Plan
from longcrawl.tokens.encoders import load_encoder

LEAST, SEED, CYCLES = 256, 7, 4
END, PAD = 0, 65_535
"""Ids in place of the end of text and of padding, among the numbers of documents."""
MIXES: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("mixed", {}),
    *((name, {"num_cycles": CYCLES, "balanced": balanced}) for name in GROWING for balanced in (False, True)),
)
COUNTS = {"documents_per_sample": 2, "chunks_per_document": 4}
Instances = Mapping[str, np.ndarray]


def write_tokens(folder: Path, tokens: np.ndarray, ends: np.ndarray) -> None:
    """Write the tokens of the documents, and their numbers from 1 on, as OLMo-core's files."""
    numbers = np.repeat(np.arange(1, len(ends) + 1), np.diff(ends, prepend=0)).astype(np.uint16)
    numbers[ends - 1] = END
    for name, values in (("tokens", tokens), ("numbers", numbers)):
        table = pa.table({"tokens": pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), pa.array(values))})
        lc.formats.olmo_core.write([table], folder / f"{name}.npy", end_of_text=int(values[-1]), dtype="uint16")


def compose_ours(file: Path, ids: Mapping[str, int], length: int, order: np.ndarray) -> dict[str, np.ndarray]:
    """Return the instances of each of our compositions."""
    shard = lc.formats.open_shard(file, end_of_text=ids["eos_token_id"])
    lengths = np.diff(shard.ends, prepend=0)
    packing = Packing(length, padding=ids["pad_token_id"])
    padded = Padded(length).plan(lengths)
    taken = Interleaved(length, **COUNTS, order="given").plan(lengths[order])
    interleaved = replace(taken, lengths=lengths, documents=order.astype(np.int64)[taken.documents])
    made = {
        name: packing.fill(shard, plan)["input_ids"].astype(np.uint16)
        for name, plan in (("padded", padded), ("interleaved", interleaved))
    }
    plan = decomposed(lengths, length)
    firsts = (shard.ends - lengths)[plan.documents] + plan.starts
    for size in capacities(length):
        here = firsts[plan.capacities == size]
        made[f"variable-{size}"] = np.asarray(shard.tokens)[here[:, None] + np.arange(size)]
    return made


def capacities(length: int) -> list[int]:
    return [LEAST << power for power in range((length // LEAST).bit_length())]


def decomposed(lengths: np.ndarray, length: int) -> Plan:
    return DatasetDecomposition(tuple(capacities(length))).plan(lengths)


def measure(instances: Sequence[np.ndarray], lengths: np.ndarray) -> list[str]:
    """Measure instances of document numbers: instances, tokens, padding, truncated documents, context."""
    held, samples, used, capacity, context = np.zeros(len(lengths) + 1, np.int64), 0, 0, 0, 0.0
    for part in instances:
        for row in part:
            counts = np.bincount(row[(row != END) & (row != PAD)], minlength=len(held))
            held = np.maximum(held, counts)
            context += float((counts * (counts - 1.0) / 2).sum())
        samples, capacity = samples + len(part), capacity + part.size
        used += int((part != PAD).sum())
    cut = (held[1:] < lengths - 1).sum()
    return [
        f"{samples:,}",
        f"{used:,}",
        f"{used / lengths.sum():.2%}",
        f"{1 - used / capacity:.2%}",
        f"{cut:,}",
        f"{context / used:,.1f}",
    ]


def our_steps(lengths: np.ndarray, length: int, batch: int, name: Any, settings: Mapping[str, Any]) -> np.ndarray:
    """Return the bucket of each of our steps."""
    plan = decomposed(lengths, length)
    stock = [BucketStock("", size, int((plan.capacities == size).sum())) for size in capacities(length)]
    steps = "balanced" if settings.get("balanced") else "equal"
    cycles = {"cycles": settings["num_cycles"], "cycle_steps": steps} if settings else {}
    made = plan_schedule(stock, batch, name, "drop", SEED, **cycles).capacities
    return np.searchsorted(capacities(length), made)


def same_steps(ours: np.ndarray, theirs: np.ndarray, name: Any, buckets: int) -> bool:
    """Compare counts in all stretches; OLMo-core's first batch is exchanged with a later one of the last bucket."""
    counts = np.bincount(ours, minlength=buckets)
    if not np.array_equal(counts, np.bincount(theirs, minlength=buckets)):
        return False
    if name not in GROWING:
        return True
    lengths = _growth(_in_cycles(counts, CYCLES, "equal"), name).sum(axis=1).ravel()
    owners = np.repeat(np.arange(len(lengths)), lengths)
    apart = np.zeros((len(lengths), buckets), np.int64)
    np.add.at(apart, (owners, theirs), 1)
    np.add.at(apart, (owners, ours), -1)
    exchanged = np.flatnonzero(apart.any(axis=1)).tolist()
    return not exchanged or (len(exchanged) == 2 and exchanged[0] == 0 and np.abs(apart).sum() == 4)


def compare(folder: Path, options: argparse.Namespace) -> list[bool]:
    """Print both sides; return what is equal."""
    encoded = load_encoder(gpt2()).encode(pa.array(texts(), pa.large_string()))
    lengths = np.diff(encoded.offsets) + 1
    ends = np.cumsum(lengths)
    tokens = np.full(ends[-1], 50_256, np.uint16)
    inside = np.ones(len(tokens), bool)
    inside[ends - 1] = False
    tokens[inside] = encoded.ids
    write_tokens(folder, tokens, ends)
    ids = {
        "tokens": {"eos_token_id": 50_256, "pad_token_id": 50_257, "vocab_size": 50_258},
        "numbers": {"eos_token_id": END, "pad_token_id": PAD, "vocab_size": PAD + 1},
    }
    counts = {"docs_per_instance": COUNTS["documents_per_sample"], "chunks_per_doc": COUNTS["chunks_per_document"]}
    asked = {
        **ids, "length": options.length, "least": LEAST, "batch": options.batch, "seed": SEED, "curricula": MIXES,
        "interleaved": {"seed": SEED, **counts},
    }  # fmt: skip
    (folder / "asked.json").write_text(json.dumps(asked))
    script = Path(__file__).parent / "peers" / "compose_olmo_core.py"
    done = subprocess.run([options.olmo_core, str(script), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script.name} failed:\n{done.stderr[-3000:]}")
    order = np.load(folder / "tokens-order.out.npy")
    ours = {}
    for name in ("numbers", "tokens"):
        begun = time.process_time()
        ours[name] = compose_ours(folder / f"{name}.npy", ids[name], options.length, order)
        taken = time.process_time() - begun
    theirs = {name: {what: np.load(folder / f"{name}-{what}.out.npy") for what in made} for name, made in ours.items()}
    print(f"{len(lengths):,} documents of {lengths.sum():,} tokens, samples of {options.length:,}\n")
    equal = show_instances(ours, theirs, lengths)
    print(
        f"\nCPU seconds to compose and read all: OLMo-core {float(done.stdout.splitlines()[-1]):.2f}, ours {taken:.2f}"
    )
    return equal + show_steps(folder, lengths, options)


def texts() -> list[str]:
    """Return the real documents."""
    return [row["text"] for name in ("long.jsonl.zst", "short.jsonl.zst") for row in rows(shared(name))]


def show_instances(ours: Mapping[str, Instances], theirs: Mapping[str, Instances], lengths: np.ndarray) -> list[bool]:
    names = ("padded", "interleaved", "variable")
    print("composition  side        instances      tokens     used  padding  cut documents  context  equal instances")
    equal = []
    for name in names:
        parts = [each for each in ours["tokens"] if each.startswith(name)]
        # OLMo-core drops documents that do not fill the last instance of interleaved ones.
        same = [
            int((ours["tokens"][part][: len(theirs["tokens"][part])] == theirs["tokens"][part]).all(axis=1).sum())
            for part in parts
        ]
        count = sum(len(theirs["tokens"][part]) for part in parts)
        equal.append(sum(same) == count)
        for side, made in (("OLMo-core", theirs), ("longcrawl", ours)):
            row = measure([made["numbers"][part] for part in parts], lengths)
            shown = "  ".join(f"{value:>{width}}" for value, width in zip(row, (9, 10, 7, 7, 13, 7), strict=True))
            print(f"{name:11}  {side:10}  {shown}  {f'{sum(same):,} of {count:,}' if side == 'longcrawl' else ''}")
    return equal


def show_steps(folder: Path, lengths: np.ndarray, options: argparse.Namespace) -> list[bool]:
    sizes, equal = capacities(options.length), []
    print(f"\nbatches of {options.batch:,} tokens in an epoch; 0 is {sizes[0]}, {len(sizes) - 1} is {sizes[-1]:,}")
    for number, (name, settings) in enumerate(MIXES):
        file = folder / f"tokens-curriculum-{number}.out.npy"
        theirs = np.load(file) if file.exists() else np.empty(0, np.int64)
        ours = our_steps(lengths, options.length, options.batch, name, settings)
        found = "OLMo-core fails"
        if file.exists():
            equal.append(same_steps(ours, theirs, name, len(sizes)))
            found = f"{len(theirs):,} of OLMo-core's, {'equal' if equal[-1] else 'DIFFERENT'}"
        kind = " ".join((name, *(f"{key}={value}" for key, value in settings.items())))
        print(f"\n{kind}: {len(ours):,} batches, {found}")
        for side, steps in (("OLMo-core", theirs), ("longcrawl", ours)):
            digits = "".join(map(str, steps.tolist()))
            print(
                "\n".join(f"{side if not at else '':10} {digits[at : at + 100]}" for at in range(0, len(digits), 100))
            )
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--olmo-core", metavar="PYTHON")
    parser.add_argument("--length", type=int, default=16_384)
    parser.add_argument("--batch", type=int, default=32_768)
    options = parser.parse_args()
    if lacks("--olmo-core and real documents", options.olmo_core, shared("long.jsonl.zst")):
        return
    with tempfile.TemporaryDirectory() as name:
        equal = compare(Path(name), options)
    print(f"\nolmo_core_compositions ratio={sum(equal) / len(equal):.3f}")
    sys.exit(not all(equal))


if __name__ == "__main__":
    main()
