"""Tokens per second of the rectangle loader against the LongCrawl64 article's loader and a raw memory map.

    python benchmarks/rectangle_loader.py --text long.jsonl.zst --ranks gpt2.tiktoken

One process on one core; all files in the page cache; every loader makes fresh arrays for every batch. Two stores hold
the same tokens: ours (Zarr 3, shards of 2,048 rows, inner chunks 64 x 2,048, zstd) and the article's (Zarr 2, chunks
2,048 x 2,048, lz4, shuffle). Each repeat times every loader once, from nothing decoded: ours over a full pass, the
others until ``--seconds`` are over. Rates are medians over the repeats, the spread is the largest over the smallest.

``fits`` has a cache that is smaller than the dataset but holds what lies between two visits of a chunk; ``scan`` one
that holds a quarter of that, as with the full dataset, where one column of chunks of all 6.6 million documents does not
fit. The article's loader returns uint16, all others int64, which is to its advantage. The last line is about the
article's own layout: from ours its loader, too, decodes 32 times less.
"""

import argparse
import io
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import zarr
from numcodecs import Blosc
from zarr.codecs import BloscCodec

from longcrawl.loading import Rectangle

END_OF_TEXT = 50256
CONTEXTS = (512, 2048, 8192, 65536)
BATCH_SIZES = (8, 64)
CACHE_BYTES = 300 * 2**20
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def read_tokens(text: Path, ranks: Path, enough: int) -> np.ndarray:
    import tiktoken
    import zstandard
    from tiktoken.load import load_tiktoken_bpe

    encoding = tiktoken.Encoding(
        "gpt2",
        pat_str=GPT2_PATTERN,
        mergeable_ranks=load_tiktoken_bpe(str(ranks)),
        special_tokens={"<|endoftext|>": END_OF_TEXT},
    )
    parts, count = [], 0
    with text.open("rb") as packed:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8"):
            parts.append(np.array([*encoding.encode_ordinary(json.loads(line)["text"]), END_OF_TEXT], np.uint16))
            count += len(parts[-1])
            if count >= enough:
                break
    return np.concatenate(parts)


def make_tokens(count: int) -> np.ndarray:
    """Zipf-distributed tokens in phrases that repeat, as words do."""
    random = np.random.default_rng(0)
    ids = random.permutation(END_OF_TEXT).astype(np.uint16)
    lengths = random.integers(1, 9, 200_000)
    words = ids[np.minimum(random.zipf(1.2, lengths.sum()) - 1, END_OF_TEXT - 1)]
    starts = np.cumsum(lengths) - lengths
    parts, made = [], 0
    while made < count:
        chosen = np.minimum(random.zipf(1.1, 100_000) - 1, len(lengths) - 1)
        order = np.repeat(starts[chosen] - np.cumsum(lengths[chosen]) + lengths[chosen], lengths[chosen])
        parts.append(words[order + np.arange(len(order))])
        made += len(parts[-1])
    return np.concatenate(parts)[:count]


def write_stores(folder: Path, stream: np.ndarray, rows: int, row_length: int, codec: str) -> None:
    """Write the same rows raw, in our layout and in the article's; every 64 rows are different text."""
    shape = (rows, row_length)
    raw = np.memmap(folder / "raw", np.uint16, "w+", shape=shape)
    for row in range(rows):
        raw[row] = np.take(stream, np.arange(row * row_length, (row + 1) * row_length) + row * 131, mode="wrap")
    group = zarr.create_group(folder / "ours", attributes={"end_of_text": END_OF_TEXT})
    group.create_array(
        "train",
        shape=shape,
        dtype="uint16",
        chunks=(64, 2048),
        shards=(2048, row_length),
        compressors=BloscCodec(cname=codec, clevel={"zstd": 3, "lz4hc": 5}[codec], shuffle="noshuffle"),
        fill_value=END_OF_TEXT,
    )[:] = raw
    zarr.create_array(
        folder / "article" / "train.zarr",
        shape=shape,
        dtype="<u2",
        chunks=(2048, 2048),
        zarr_format=2,
        compressors=Blosc("lz4", 5, Blosc.SHUFFLE),
        fill_value=0,
    )[:] = raw
    for store in ("ours", "article"):
        stored = sum(file.stat().st_size for file in (folder / store).rglob("*") if file.is_file())
        print(f"{store}: {stored / 1e6:.0f} MB, {raw.nbytes / stored:.2f} times smaller than raw")


def article_batches(store: Path, batch_size: int, context_length: int) -> Iterator[int]:
    """The article's loader, from its formulas: slice a rectangle, roll it by one, pad the first column."""
    array = zarr.open_array(store, mode="r")
    row_batches = array.shape[0] // batch_size
    for index in range(row_batches * (array.shape[1] // context_length)):
        window, number = divmod(index, row_batches)
        rows = slice(number * batch_size, (number + 1) * batch_size)
        data = array[rows, window * context_length : (window + 1) * context_length]
        text = np.roll(data, 1, axis=-1)
        text[..., 0] = END_OF_TEXT
        batch = {"text": np.array(text), "targets": np.array(data)}
        yield batch["targets"].size


def memmap_batches(path: Path, shape: tuple[int, int], batch_size: int, context_length: int) -> Iterator[int]:
    """Read a memory-mapped raw file in the trainer's dtype, a lower bound for every format."""
    raw = np.memmap(path, np.uint16, "r", shape=shape)
    for left in range(0, shape[1] - context_length + 1, context_length):
        for top in range(0, shape[0] - batch_size + 1, batch_size):
            targets = raw[top : top + batch_size, left : left + context_length].astype(np.int64)
            text = np.empty_like(targets)
            text[:, 0] = END_OF_TEXT
            text[:, 1:] = targets[:, :-1]
            batch = {"text": text, "targets": targets}
            yield batch["targets"].size


def our_batches(path: Path, batch_size: int, context_length: int, *, scan: bool) -> Iterator[int]:
    """Ours, with a cache that holds a band of chunks or only a quarter of it."""
    cache_bytes = CACHE_BYTES
    if scan:
        opened = Rectangle(path, batch_size=batch_size, context_length=context_length)
        chunks = max(opened.walk.most_chunks(), opened.walk.worth_keeping() // 4)
        cache_bytes = chunks * opened.array.layout.chunk_bytes
    for batch in Rectangle(path, batch_size=batch_size, context_length=context_length, cache_bytes=cache_bytes):
        yield batch["targets"].size


def rate(batches: Iterator[int], seconds: float) -> float:
    """Tokens per second, cut after ``seconds``."""
    tokens, start = 0, time.perf_counter()
    for size in batches:
        tokens += size
        if time.perf_counter() - start > seconds:
            break
    return tokens / (time.perf_counter() - start)


def measure(
    folder: Path, shape: tuple[int, int], repeats: int, seconds: float
) -> dict[tuple[int, int], dict[str, float]]:
    medians = {}
    for batch_size in BATCH_SIZES:
        for context in CONTEXTS:
            runs: dict[str, Callable[[], Iterator[int]]] = {
                "memmap": lambda b=batch_size, c=context: memmap_batches(folder / "raw", shape, b, c),
            }
            for store, array in (("ours", "ours/train"), ("article", "article/train.zarr")):
                runs |= {
                    f"fits/{store}": lambda b=batch_size, c=context, s=store: our_batches(folder / s, b, c, scan=False),
                    f"scan/{store}": lambda b=batch_size, c=context, s=store: our_batches(folder / s, b, c, scan=True),
                    f"article/{store}": lambda b=batch_size, c=context, a=array: article_batches(folder / a, b, c),
                }
            rates: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(repeats):
                for name, run in runs.items():
                    whole_pass = name.startswith(("fits", "scan"))
                    rates[name].append(rate(run(), math.inf if whole_pass else seconds))
            medians[batch_size, context] = {name: statistics.median(found) for name, found in rates.items()}
            cells = "".join(
                f" | {statistics.median(found) / 1e6:8.2f} x{max(found) / min(found):4.2f}" for found in rates.values()
            )
            if (batch_size, context) == (BATCH_SIZES[0], CONTEXTS[0]):
                print("million tokens/s, xspread\nbatch context" + "".join(f" | {name:>14}" for name in runs))
            print(f"{batch_size:5d} {context:7d}{cells}", flush=True)
    return medians


def report(medians: dict[tuple[int, int], dict[str, float]]) -> None:
    def smallest(ours: str, other: str, batch_size: int) -> float:
        return min(found[ours] / found[other] for (size, _), found in medians.items() if size == batch_size)

    print("\nours as a multiple of the other, on the same store")
    for (batch_size, context), found in medians.items():
        cells = "".join(
            f" | {cache} on {store}: article x{found[f'{cache}/{store}'] / found[f'article/{store}']:7.1f}"
            f" memmap x{found[f'{cache}/{store}'] / found['memmap']:5.3f}"
            for store in ("ours", "article")
            for cache in ("fits", "scan")
        )
        print(f"{batch_size:5d} {context:7d}{cells}")
    for batch_size in BATCH_SIZES:
        for store in ("ours", "article"):
            for cache in ("fits", "scan"):
                over_article = smallest(f"{cache}/{store}", f"article/{store}", batch_size)
                over_memmap = smallest(f"{cache}/{store}", "memmap", batch_size)
                print(
                    f"smallest at batch {batch_size}, {cache}, store {store}: "
                    f"article x{over_article:.1f}, memmap x{over_memmap:.3f}"
                )
    print(f"rectangle_loader_memmap ratio={smallest('fits/ours', 'memmap', 8):.3f}")
    print(f"rectangle_loader ratio={smallest('fits/article', 'article/article', 8):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--text", type=Path, help="jsonl.zst of documents with a field text; made-up tokens without it")
    parser.add_argument("--ranks", type=Path, help="tiktoken rank file of GPT-2, needed with --text")
    parser.add_argument("--codec", choices=["zstd", "lz4hc"], default="zstd", help="of the store in our layout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="longest time for one loader in one repeat")
    parser.add_argument("--quick", action="store_true", help="2,560 rows, one short repeat: under a minute")
    given = parser.parse_args()
    if given.text and not given.ranks:
        parser.error("--text needs --ranks, a tiktoken rank file of GPT-2")
    if given.quick:
        given.rows, given.repeats, given.seconds = 2560, 1, 0.25
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    shape = (given.rows, max(CONTEXTS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = read_tokens(given.text, given.ranks, 16_000_000) if given.text else make_tokens(16_000_000)
        write_stores(folder, stream, *shape, given.codec)
        medians = measure(folder, shape, given.repeats, given.seconds)
    report(medians)


if __name__ == "__main__":
    main()
