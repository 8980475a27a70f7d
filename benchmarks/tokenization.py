"""Bytes per second of our encoder against tiktoken, tokenizers and transformers, with equal ids.

    python benchmarks/tokenization.py --tokenizer gpt2.tiktoken --text short.jsonl.zst

One core, and the processor time of the process, which other work on the machine disturbs less than the clock. Each gets
texts as it takes them: ours columns of Arrow, the others Python's strings. Columns are made before; the strings have
their UTF-8 since, which takes as long as our encoder where it is made. "new words" is our encoder that knows the
vocabulary alone, "known words" the same documents once more; what a long job sees
lies between the two. All five patterns split for the same ranks. Only GPT-2's is compared with tokenizers and
transformers, which read some of the others in another way. Rates are medians over the repeats, the spread is the
largest over the smallest. Without ``--text`` the documents are made up, without ``--tokenizer`` one is trained on
them. The last line has the lowest ratio to tiktoken on new words. The file is not called ``tokenize.py`` because
scripts in this folder would then import it in place of Python's own module.
"""

import argparse
import dataclasses
import io
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from longcrawl.tokens import Tokenize
from longcrawl.tokens.bpe import GPT2_PATTERN, ByteLevelBPE, byte_level_bpe
from longcrawl.tokens.encoders import BytePairs, load_encoder

_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE, _AFTER = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SPLITS = {
    "gpt2": GPT2_PATTERN,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": f"{_BEFORE}{_CAPITALS}*{_SMALL}+{_AFTER}|{_BEFORE}{_CAPITALS}+{_SMALL}*{_AFTER}"
    r"|\p{N}{1,3}" + _TAIL.replace(r"[\r\n]*|", r"[\r\n/]*|"),
    "llama3": _WORD + r"|\p{N}{1,3}" + _TAIL,
    "qwen2": _WORD + r"|\p{N}" + _TAIL,
}
TIKTOKEN = "tiktoken encode_ordinary_batch"
BATCH = 1000
LONG = 400_000


def made_up(characters: int) -> list[str]:
    """Return short documents of words of syllables, the n-th of 50,000 words 1/n as frequent as the first."""
    draw = np.random.default_rng(0)
    syllables = [first + vowel for first in "bcdfghklmnprstvw" for vowel in ("a", "e", "i", "o", "u", "er", "an", "st")]
    words = ["".join(draw.choice(syllables, draw.integers(1, 5))) for _ in range(50_000)]
    documents = []
    while characters > 0:
        picked = np.minimum(draw.zipf(1.2, draw.integers(50, 2000)), len(words)) - 1
        documents.append(" ".join([words[i] for i in picked]))
        characters -= len(documents[-1])
    return documents


def read(files: list[Path], characters: int) -> list[str]:
    import zstandard

    documents = []
    for file in files:
        with file.open("rb") as packed:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8")
            documents += [json.loads(line)["text"] for line in lines]
    np.random.default_rng(0).shuffle(documents)
    ends = np.cumsum([len(document) for document in documents])
    return documents[: int(np.searchsorted(ends, characters)) + 1]


def long_documents(documents: list[str]) -> list[str]:
    whole = "\n".join(documents)
    return [whole[start : start + LONG] for start in range(0, len(whole), LONG)]


def batches(encode: Callable, documents: list[str]) -> list[list[int]]:
    return [ids for start in range(0, len(documents), BATCH) for ids in encode(documents[start : start + BATCH])]


def columns(documents: list[str]) -> list[pa.Array]:
    return [pa.array(documents[start : start + BATCH], pa.large_string()) for start in range(0, len(documents), BATCH)]


def ours(engine: BytePairs, batches: list[pa.Array]) -> list[np.ndarray]:
    """Do what an encoder does with its engine."""
    found = []
    for batch in batches:
        ids, offsets = engine.encode_texts(batch)
        ids = ids.astype(np.uint16, copy=False)
        found += [ids[a:b] for a, b in itertools.pairwise(offsets)]
    return found


def peers(folder: Path, bpe: ByteLevelBPE, against: str) -> dict[str, Callable]:
    """Return what gives the ids of texts, by name."""
    import tiktoken
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    encoding = tiktoken.Encoding("peer", pat_str=bpe.pattern, mergeable_ranks=dict(bpe.ranks), special_tokens={})
    found = {TIKTOKEN: lambda texts: encoding.encode_ordinary_batch(texts, num_threads=1)}
    if against == "tiktoken" or bpe.pattern != GPT2_PATTERN:
        return found
    file = str(folder / "tokenizer.json")
    plain = Tokenizer.from_file(file)
    plain.encode_special_tokens = True
    fast = PreTrainedTokenizerFast(tokenizer_file=file, split_special_tokens=True)
    return found | {
        "tokenizers encode_batch_fast": lambda texts: [e.ids for e in plain.encode_batch_fast(texts)],
        "tokenizers encode_batch": lambda texts: [e.ids for e in plain.encode_batch(texts)],
        "transformers __call__": lambda texts: fast(texts, return_attention_mask=False)["input_ids"],
    }


def timed(function: Callable, *arguments) -> tuple[float, list]:
    start = time.process_time()
    found = function(*arguments)
    return time.process_time() - start, found


def measure(folder: Path, bpe: ByteLevelBPE, documents: list[str], repeats: int, against: str) -> dict:
    seconds: dict[str, list[float]] = {}
    others, batched = peers(folder, bpe, against), columns(documents)
    for _ in range(repeats):
        engine = BytePairs(bpe)
        engine.encode("")  # makes its tables
        for name in ("longcrawl, new words", "longcrawl, known words"):
            spent, mine = timed(ours, engine, batched)
            seconds.setdefault(name, []).append(spent)
        for name, encode in others.items():
            spent, theirs = timed(batches, encode, documents)
            seconds.setdefault(name, []).append(spent)
            if name == TIKTOKEN and bpe.ids is not None:
                theirs = [bpe.ids[ranks] for ranks in theirs]
            if not all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True)):
                raise SystemExit(f"{name}: other ids than ours")
    return seconds


def print_table(title: str, seconds: dict[str, list[float]], size: float) -> float:
    peer = statistics.median(seconds[TIKTOKEN])
    print(f"{title}: {size:.1f} MB, equal ids\n{'':34}{'MB/s':>8}{'spread':>8}{'ratio':>8}")
    for name, spent in seconds.items():
        middle = statistics.median(spent)
        print(f"{name:34}{size / middle:8.2f}{max(spent) / min(spent):8.2f}{peer / middle:8.2f}")
    return peer / statistics.median(seconds["longcrawl, new words"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tokenizer",
        help="a tokenizer.json or *.tiktoken file with GPT-2's pattern, whose ranks are split for by all patterns",
    )
    parser.add_argument("--text", type=Path, nargs="+", help=".jsonl.zst files with a field 'text'")
    parser.add_argument("--megabytes", type=float, default=4.0, help="millions of characters to encode")
    parser.add_argument("--patterns", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--against", choices=["all", "tiktoken"], default="all", help="tiktoken alone is faster")
    parser.add_argument("--core", type=int, default=0)
    settings = parser.parse_args()
    os.sched_setaffinity(0, {settings.core})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    characters = int(settings.megabytes * 1e6)
    short = read(settings.text, characters) if settings.text else made_up(characters)
    with tempfile.TemporaryDirectory() as folder:
        tables = [pa.table({"text": short})]
        path = settings.tokenizer or Tokenize("trained").fit(tables, folder).tokenizer
        load_encoder(path).save(folder)
        bpe = byte_level_bpe(json.loads((Path(folder) / "tokenizer.json").read_text()))
        ratios = []
        for name in settings.patterns:
            split = dataclasses.replace(bpe, pattern=SPLITS[name])
            for title, documents in (("short documents", short), ("documents of 400 KB", long_documents(short))):
                size = sum(len(document.encode()) for document in documents) / 1e6
                seconds = measure(Path(folder), split, documents, settings.repeats, settings.against)
                ratios.append(print_table(f"{name}, {title}", seconds, size))
                print()
    print(f"tokenization ratio={min(ratios):.2f}")


if __name__ == "__main__":
    main()
