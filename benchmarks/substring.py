"""Spans of 50 tokens that repeat: time and peak memory against a suffix array, with equal spans.

    python benchmarks/substring.py --tokenizer gpt2.tiktoken --text long.jsonl.zst short.jsonl.zst [--large]

Every measurement is a process of its own, on tokens that lie ready: ours maps them from its store on disk, the suffix
array has them in memory. Time is the processor time of that process from tokens to spans, the least of --repeats.
Memory is the peak resident set above that before the tokens are opened, so it has the tokens in it, on either side.

The suffix array is pydivsufsort's, over tokens as two bytes. Neighbouring suffixes are compared over 50 tokens, as the
tool behind the paper does: an LCP array would take as much memory again. Texts that are too few for a size are
repeated with another numbering of the tokens, and one document in 20 gets 30 to 200 tokens of an earlier one. Without
--text tokens are made up. --large adds 1e8 tokens, which takes some 5 minutes and 2 GB.

The last line is the time of the suffix array over ours at 1e7 tokens.
"""

import argparse
import hashlib
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

LENGTH = 50
VOCABULARY = 50_257
LEAST = 64 << 20


def read(files: list[Path], tokenizer: str) -> list[np.ndarray]:
    import zstandard

    from longcrawl.tokens.encoders import load_encoder

    texts = []
    for file in files:
        with file.open("rb") as packed:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8")
            texts += [json.loads(line)["text"] for line in lines]
    ids, offsets = load_encoder(tokenizer).encode(texts)
    return [ids[start:stop] for start, stop in itertools.pairwise(offsets)]


def made_up(count: int) -> list[np.ndarray]:
    """Return documents of Zipf-distributed tokens; one sentence in ten is one of a thousand that return."""
    draw = np.random.default_rng(0)
    returning = [(draw.zipf(1.3, draw.integers(20, 90)) % VOCABULARY).astype(np.uint16) for _ in range(1000)]
    documents = []
    while count > 0:
        sentences = [
            returning[draw.integers(1000)]
            if draw.random() < 0.1
            else (draw.zipf(1.3, 30) % VOCABULARY).astype(np.uint16)
            for _ in range(draw.integers(2, 100))
        ]
        documents.append(np.concatenate(sentences))
        count -= len(documents[-1])
    return documents


def corpus(documents: list[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``count`` tokens and the offsets of their documents."""
    draw = np.random.default_rng(0)
    made: list[np.ndarray] = []
    held, copies = 0, 0
    while held < count:
        numbers = draw.permutation(VOCABULARY).astype(np.uint16) if copies else np.arange(VOCABULARY, dtype=np.uint16)
        for number in draw.permutation(len(documents)):
            tokens = numbers[documents[number]]
            if made and draw.random() < 0.05 and len(other := made[draw.integers(len(made))]) > 220:
                length = draw.integers(30, 200)
                start = draw.integers(len(other) - length)
                tokens = np.insert(tokens, draw.integers(len(tokens) + 1), other[start : start + length])
            made.append(tokens[: count - held])
            held += len(made[-1])
            if held >= count:
                break
        copies += 1
    return np.concatenate(made), np.concatenate([[0], np.cumsum([len(tokens) for tokens in made])])


def suffix_array_spans(tokens: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """Return [start, stop) of every maximal stretch that windows cover which occur twice, by a suffix array."""
    from pydivsufsort import divsufsort

    suffixes = divsufsort(tokens.astype(">u2").view(np.uint8))
    marks = windows_of(offsets, length)
    compiled(mark_neighbours)(tokens, suffixes, length, marks)
    return list_spans(marks, offsets, length)


def doubling_spans(tokens: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """Return the same, by numbering stretches of 1, 2, 4 … tokens: equal stretches are equal pairs of numbers."""
    numbers, width = np.unique(tokens, return_inverse=True)[1], 1
    while width < length and len(numbers):
        step = min(width, length - width)
        second = numbers[step:]
        numbers = np.unique(numbers[: len(second)] * (len(tokens) + 1) + second, return_inverse=True)[1]
        width += step
    marks = windows_of(offsets, length)
    places = np.flatnonzero(marks[: len(numbers)] == 0)
    _, inverse, counts = np.unique(numbers[places], return_inverse=True, return_counts=True)
    marks[places] = counts[inverse] > 1
    return list_spans(marks, offsets, length)


def windows_of(offsets: np.ndarray, length: int) -> np.ndarray:
    """Return 0 for every token with which a window starts that lies in one document, -1 for others."""
    marks = np.zeros(offsets[-1], np.int8)
    for start, stop in itertools.pairwise(offsets.tolist()):
        marks[max(start, stop - length + 1) : stop] = -1
    return marks


def mark_neighbours(tokens, suffixes, length, marks):
    """Set the marks of windows that are equal to the one before or after them in the order of suffixes to 1."""
    before = -1
    for suffix in suffixes:
        place = suffix >> 1
        if suffix & 1 or marks[place] < 0:
            continue
        same = 0
        while before >= 0 and same < length and tokens[place + same] == tokens[before + same]:
            same += 1
        if same == length:
            marks[place] = marks[before] = 1
        before = place


def join_marks(marks, offsets, length, spans):
    """Join marked windows of each document into spans, and give how many there are; write those that have room."""
    found = 0
    for document in range(len(offsets) - 1):
        stop = -1
        for place in range(offsets[document], offsets[document + 1]):
            if marks[place] <= 0:
                continue
            if place > stop:
                found += 1
                if found <= len(spans):
                    spans[found - 1, 0] = place
            stop = place + length
            if found <= len(spans):
                spans[found - 1, 1] = stop
    return found


@cache
def compiled(kernel):
    import numba

    return numba.njit(nogil=True)(kernel)


def list_spans(marks: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    join = compiled(join_marks)
    spans = np.empty((join(marks, offsets, length, np.empty((0, 2), np.int64)), 2), np.int64)
    join(marks, offsets, length, spans)
    return spans


def our_spans(store, folder: Path, memory: int) -> np.ndarray:
    """Return the same, by longcrawl."""
    from longcrawl.dedup.repeats import find_repeats

    found = [np.zeros((0, 2), np.int64)]
    for ranges in find_repeats(store, LENGTH, memory, folder):
        documents, _ = store.documents_of(ranges)
        found.append(ranges[:, :2] - documents[:, None])  # the store has a separator after each document
    return np.concatenate(found)


def put_down(folder: Path, tokens: np.ndarray, offsets: np.ndarray) -> None:
    """Write tokens for both sides."""
    from longcrawl.dedup.repeats import store_tokens

    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens))
    ids = [str(number) for number in range(len(lists))]
    store_tokens([pa.table({"id": ids, "tokens": lists})], folder, "benchmark")
    np.save(folder / "tokens.npy", tokens)
    np.save(folder / "offsets.npy", offsets)


def memory_now(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell how much memory a process has")


def measure(side: str, folder: Path, memory: int) -> dict[str, object]:
    """Measure one side in this process; a small call before compiles the kernels."""
    with tempfile.TemporaryDirectory() as other:
        small = np.tile(np.arange(300, dtype=np.uint16), 3)
        put_down(Path(other), small, np.array([0, len(small)]))
        run(side, Path(other), memory)
        base = memory_now("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        started = time.process_time()
        spans = run(side, folder, memory)
        seconds = time.process_time() - started
        peak = memory_now("VmHWM") - base
    return {
        "seconds": seconds,
        "peak": peak,
        "spans": len(spans),
        "digest": hashlib.sha256(spans.tobytes()).hexdigest(),
    }


def run(side: str, folder: Path, memory: int) -> np.ndarray:
    from longcrawl.dedup.repeats import store_tokens

    if side == "ours":
        with tempfile.TemporaryDirectory(dir=folder) as passes:
            return our_spans(store_tokens([], folder, "benchmark"), Path(passes), memory)
    return suffix_array_spans(np.load(folder / "tokens.npy"), np.load(folder / "offsets.npy"), LENGTH)


def measured(side: str, folder: Path, repeats: int, memory: int = 1 << 30) -> dict:
    """Measure one side ``repeats`` times, each in a process of its own; give the least time and the largest peak."""
    command = [sys.executable, __file__, "--measure", side, str(folder), str(memory)]
    found = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    seconds = sorted(each["seconds"] for each in found)
    best = {**found[0], "seconds": seconds[0], "spread": seconds[-1] / seconds[0]}
    return best | {"peak": max(each["peak"] for each in found)}


def told(name: str, count: int, found: dict) -> str:
    return (
        f"{count:>11,} tokens  {name:<22} {found['seconds']:8.3f} s (spread {found['spread']:.2f})  "
        f"{found['peak'] / count:6.2f} bytes a token  {found['spans']:,} spans"
    )


def compare(documents: list[np.ndarray], count: int, repeats: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        put_down(Path(folder), *corpus(documents, count))
        theirs = measured("suffix array", Path(folder), repeats)
        print(told("suffix array", count, theirs), flush=True)
        for name, memory in (("ours, 1 GiB", 1 << 30), ("ours, 64 MiB", LEAST)):
            found = measured("ours", Path(folder), repeats, memory)
            assert found["digest"] == theirs["digest"], "the spans differ"
            ratio, less = theirs["seconds"] / found["seconds"], theirs["peak"] / found["peak"]
            print(f"{told(name, count, found)}  {ratio:.1f} times as fast in 1/{less:.1f} of the memory", flush=True)
            if memory == 1 << 30:
                result = ratio
    return result


def growth(documents: list[np.ndarray], counts: list[int], repeats: int) -> None:
    before = None
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            put_down(Path(folder), *corpus(documents, count))
            found = measured("ours", Path(folder), repeats)
        line = told("ours, 1 GiB", count, found)
        if before:
            time_factor, memory_factor = found["seconds"] / before["seconds"], found["peak"] / before["peak"]
            line += f"  x{time_factor:.2f} time, x{memory_factor:.2f} memory for twice the tokens"
        print(line, flush=True)
        before = found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="+")
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=3, metavar=("SIDE", "FOLDER", "MEMORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        side, folder, memory = options.measure
        print(json.dumps(measure(side, Path(folder), int(memory))))
        return
    documents = read(options.text, options.tokenizer) if options.text else made_up(10_000_000)
    compare(documents, 1_000_000, options.repeats)
    ratio = compare(documents, 10_000_000, options.repeats)
    if options.large:
        compare(documents, 100_000_000, 1)
    growth(documents, [1_000_000 << step for step in range(7 if options.large else 5)], options.repeats)
    print(f"substring ratio={ratio:.3f}")


if __name__ == "__main__":
    main()
