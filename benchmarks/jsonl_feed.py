"""Tokens per second of the feed from JSON lines, against a plain loop of json, a tokenizer and a list.

    python benchmarks/jsonl_feed.py --text short.jsonl.zst --tokenizer gpt2-tokenizer.json --repeats 3

One core, processor time, files in the page cache. A plain loop is what one writes oneself: ``json.loads`` of 1,000
lines, `tokenizers` or `tiktoken` on all of them, rows cut from one run of ids, with labels and positions; it has no
borders of documents, no windows and no state. The feed gives batches of 8 rows of 2,048 tokens, with an empty memory of
words, and in a second epoch with a full one; "Packed" reads the same documents from shards. Then, in time by the clock:
the first batch of a feed that is opened, and of one that goes on in the middle, plain and compressed; and where the
blocks of a large file begin. Rates are medians over the repeats, the spread is the largest over the smallest. The last
line is the ratio of the feed, new words, to the faster loop. Without ``--text`` documents are made up, without
``--tokenizer`` one is trained on them.
"""

import argparse
import gzip
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import zstandard

import longcrawl as lc
from longcrawl.tokens.bpe import GPT2_PATTERN, byte_level_bpe
from longcrawl.tokens.encoders import Encoder, load_encoder

LENGTH, ROWS, BATCH = 2048, 8, 1000
WORDS = 20_000
RESUMES = 5

Encode = Callable[[list[str]], list[list[int]]]


def made_up(characters: int) -> list[str]:
    """Return documents of made-up words, the n-th 1/n as frequent as the first."""
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghijklmnoprstuvw"), draw.integers(2, 10))) for _ in range(WORDS)]
    documents = []
    while characters > 0:
        picked = np.minimum(draw.zipf(1.2, draw.integers(50, 2000)), WORDS) - 1
        documents.append(" ".join([words[each] for each in picked]))
        characters -= len(documents[-1])
    return documents


def write_lines(text: Path | None, path: Path, characters: int) -> None:
    """Write so much text as JSON lines."""
    if text is None:
        documents = iter(made_up(characters))
    else:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(text.open("rb")), "utf-8")
        documents = (json.loads(line)["text"] for line in lines)
    with path.open("w") as file:
        while characters > 0 and (document := next(documents, None)) is not None:
            file.write(json.dumps({"text": document}) + "\n")
            characters -= len(document)


def with_tokenizers(tokenizer: str) -> Encode:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(tokenizer)
    return lambda texts: [encoded.ids for encoded in loaded.encode_batch_fast(texts, add_special_tokens=False)]


def with_tiktoken(tokenizer: str) -> Encode:
    """Return what encodes with the ranks of a tokenizer, whose numbers may be others than its ids."""
    import tiktoken

    ranks = dict(byte_level_bpe(json.loads(Path(tokenizer).read_text())).ranks)
    encoding = tiktoken.Encoding("plain", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
    return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=1)


def plain_loop(path: Path, encode: Encode, end: int) -> Iterator[int]:
    """Return the tokens of each batch of the loop that one writes oneself."""
    left: list[int] = []
    with path.open() as file:
        while texts := [json.loads(line)["text"] for line in islice(file, BATCH)]:
            for ids in encode(texts):
                left += [*ids, end]
            while len(left) >= ROWS * LENGTH:
                rows = np.array(left[: ROWS * LENGTH], np.int64).reshape(ROWS, LENGTH)
                _batch = {"input_ids": rows, "labels": rows.copy(), "position_ids": np.arange(LENGTH)}
                del left[: ROWS * LENGTH]
                yield rows.size


def feed_of(path: Path, tokenizer: str, **fields: object) -> lc.loading.Jsonl:
    return lc.loading.Jsonl(path, tokenizer, max_length=LENGTH, batch_size=ROWS, **fields)


def rate(batches: Iterator[int]) -> float:
    start, tokens = time.process_time(), 0
    for each in batches:
        tokens += each
    return tokens / (time.process_time() - start)


def tokens_of(batches: object) -> Iterator[int]:
    for batch in batches:
        yield int(batch["n_tokens"].sum())


def timed(function: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    found = function()
    return 1000 * (time.perf_counter() - start), found


def resume(path: Path, tokenizer: str) -> tuple[float, float]:
    """Return the milliseconds of opening a feed in the middle until its first batch, and of a feed's first batch."""
    feed = feed_of(path, tokenizer)
    steps = sum(1 for _ in feed)
    halfway = feed_of(path, tokenizer)
    for _ in islice(halfway, steps // 2):
        pass
    state = halfway.state_dict()

    def go_on() -> object:
        resumed = feed_of(path, tokenizer)
        resumed.load_state_dict(state)
        return next(iter(resumed))

    firsts = [timed(lambda: next(iter(feed_of(path, tokenizer))))[0] for _ in range(RESUMES)]
    return statistics.median(timed(go_on)[0] for _ in range(RESUMES)), statistics.median(firsts)


def rates(path: Path, tokenizer: str, shards: Path, repeats: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    loops = {"loop, tokenizers": with_tokenizers(tokenizer), "loop, tiktoken": with_tiktoken(tokenizer)}
    for _ in range(repeats):
        for name, encode in loops.items():
            end = load_encoder(tokenizer).end_of_text
            found.setdefault(name, []).append(rate(plain_loop(path, encode, end)))
        feed = feed_of(path, tokenizer, last_batch="fill", epochs=2)
        feed.__dict__["_encoder"] = Encoder(Path(tokenizer))
        once = sum(1 for _ in feed_of(path, tokenizer, last_batch="fill"))
        batches = tokens_of(feed)
        found.setdefault("Jsonl, new words", []).append(rate(islice(batches, once)))
        found.setdefault("Jsonl, known words", []).append(rate(batches))
        packed = lc.loading.Packed(shards, max_length=LENGTH, batch_size=ROWS, shuffle="none", end_of_text=0)
        found.setdefault("Packed, of shards", []).append(rate(tokens_of(packed)))
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--text", type=Path, help="JSON lines, zstd")
    asked.add_argument("--tokenizer", help="a tokenizer.json")
    asked.add_argument("--characters", type=int, default=20_000_000)
    asked.add_argument("--repeats", type=int, default=1)
    given = asked.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        path, out = Path(name) / "raw.jsonl", Path(name) / "out"
        write_lines(given.text, path, given.characters)
        lc.tokenize(path, out, given.tokenizer or "trained")
        tokenizer = given.tokenizer or str(out / "gpt-simple/tokenizer.json")
        found = rates(path, tokenizer, out / "gpt-simple", given.repeats)
        for each, values in found.items():
            spread = max(values) / min(values)
            print(f"{each:<20} {statistics.median(values) / 1e6:8.2f} million tokens/s, spread {spread:.2f}")
        packed = Path(f"{path}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), 6))
        for file in (path, packed):
            middle, first = resume(file, tokenizer)
            print(f"{file.suffix:<7} first batch {first:,.0f} ms, in the middle {middle:,.0f} ms")
        large = Path(name) / "large.jsonl"
        with large.open("wb") as file:
            for _ in range(max(500_000_000 // path.stat().st_size, 1)):
                file.write(path.read_bytes())
        spent, blocks = timed(lambda: sum(1 for _ in feed_of(large, tokenizer).blocks_left()))
        print(f"borders of {blocks:,} blocks in {large.stat().st_size:,} bytes: {spent:.0f} ms")
        loops = max(statistics.median(values) for name, values in found.items() if name.startswith("loop"))
        ratio = statistics.median(found["Jsonl, new words"]) / loops
    print(f"jsonl_feed ratio={ratio:.2f}")


if __name__ == "__main__":
    main()
