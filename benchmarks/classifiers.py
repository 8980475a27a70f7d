"""Classifiers: documents a second of our stages against fasttext-predict and against a pipeline of transformers.

    python benchmarks/classifiers.py [--documents short.jsonl.zst] [--repeats 3] [--every 20]

Models of fastText are trained here on kinds of documents (manuals and specifications against pages, mail and lists):
one by our defaults, one with fastText's usual 100 dimensions, 2,000,000 buckets and rate of 0.1. AUC is of documents
that were held out. Scores are asserted equal in every bit to fasttext-predict's, which reads the same files. CPU time
of one process, the best of --repeats, both sides in turn.

The model of transformers is a random BERT of 6 layers and 384 dimensions (the shape of MiniLM), with GPT-2's tokens.
Each --every-th document is classified by its first 512 tokens, in wall time, as both sides use all cores; the pipeline
with 1, 4 and 16 documents in a batch, of which the fastest counts. How far scores differ is printed.

The last line is fasttext-predict's seconds / ours, of the larger model, or the fastest pipeline's / ours: the lesser.
"""

import argparse
import io
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard
from _measures import best
from _needed import lacks, shared

import longcrawl as lc

GOOD, BAD = ("webdoc", "spec"), ("webpage", "email-spam", "list", "page-version")
FASTTEXT = {"dimensions": 100, "buckets": 2_000_000, "learning_rate": 0.1}


def read(path: Path) -> list[dict[str, str]]:
    with path.open("rb") as file:
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        return [row for row in map(json.loads, stream) if row["text"]]


def table(texts: Sequence[str]) -> pa.Table:
    return pa.table({"text": pa.array(texts, pa.large_string())})


def batches(texts: Sequence[str], size: int = 200) -> list[pa.Table]:
    return [table(texts[start : start + size]) for start in range(0, len(texts), size)]


def train(rows: Sequence[dict[str, str]], settings: dict[str, Any], path: Path) -> None:
    """Train a model, and print what it is worth."""
    sides = [table([row["text"] for row in rows if row["kind"] in kinds]) for kinds in (GOOD, BAD)]
    started = time.process_time()
    trained = lc.text.train_classifier(*sides, path, **settings)
    print(f"{trained}\ntrained in {time.process_time() - started:.1f} s of CPU")


def compare_fasttext(texts: Sequence[str], path: Path, repeats: int) -> float:
    """Print documents a second of both sides; return their ratio."""
    import fasttext

    stage, peer = lc.text.FastTextClassifier(str(path), "good"), fasttext.load_model(str(path))
    tables, lines = batches(texts), [text.replace("\n", " ") + "\n" for text in texts]

    def ours() -> list[Any]:
        return [stage.edit(each)[0]["quality"] for each in tables]

    def theirs() -> list[Any]:
        return [peer.f.predict(line, -1, 0.0, "strict") for line in lines]

    listed = [{name: score for score, name in found}["__label__good"] for found in theirs()]
    assert [score for scores in ours() for score in scores.to_pylist()] == listed
    size, taken = sum(len(text.encode()) for text in texts) / 1e6, {ours: float("inf"), theirs: float("inf")}
    for _ in range(repeats):
        taken |= {side: min(taken[side], best(side, 1)) for side in taken}
    for side, seconds in taken.items():
        print(f"{side.__name__:8} {len(texts) / seconds:8,.0f} documents/s {size / seconds:7.1f} MB/s")
    print(f"ratio {taken[theirs] / taken[ours]:.2f}, {len(texts):,} scores equal in every bit")
    return taken[theirs] / taken[ours]


def save_model(folder: Path, tokenizer: Path) -> str:
    """Write a random model of three labels and its tokenizer; return the folder."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    torch.manual_seed(0)
    tokens = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), pad_token="<|endoftext|>")  # noqa: S106  # no secret
    shape = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    config = BertConfig(vocab_size=len(tokens), num_labels=3, pad_token_id=tokens.pad_token_id, **shape)
    for each in (BertForSequenceClassification(config), tokens):
        each.save_pretrained(folder)
    return str(folder)


def compare_pipeline(texts: Sequence[str], model: str, repeats: int) -> float:
    """Print documents a second of both sides; return the ratio."""
    import torch
    from transformers import pipeline

    labels = tuple(f"LABEL_{number}" for number in range(3))
    stage = lc.text.SequenceClassifier(model, label=labels, device="cpu")
    stage.prepare()
    peer = pipeline("text-classification", model, device="cpu", top_k=None)
    taken: dict[str, float] = {}
    for _ in range(repeats):
        started = time.perf_counter()
        edited = [stage.edit(each)[0] for each in batches(texts)]
        taken["ours"] = min(taken.get("ours", float("inf")), time.perf_counter() - started)
        for size in (1, 4, 16):
            started = time.perf_counter()
            found = peer(list(texts), truncation=True, max_length=512, batch_size=size)
            name = f"pipeline of {size}"
            taken[name] = min(taken.get(name, float("inf")), time.perf_counter() - started)
    scores = pa.concat_tables(edited).select([f"quality_{label}" for label in labels]).to_pylist()
    listed = [{f"quality_{each['label']}": each["score"] for each in every} for every in found]
    furthest = max(abs(one[name] - other[name]) for one, other in zip(scores, listed, strict=True) for name in one)
    print(f"{len(texts):,} documents, {torch.get_num_threads()} threads, scores differ by at most {furthest:.1e}")
    for name, seconds in taken.items():
        print(f"{name:15} {len(texts) / seconds:6.1f} documents/s")
    ratio = min(seconds for name, seconds in taken.items() if name != "ours") / taken["ours"]
    print(f"ratio {ratio:.2f}")
    return ratio


def main() -> None:
    """Train, compare, and print."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--documents", type=Path, default=shared("short.jsonl.zst"))
    given.add_argument("--tokenizer", type=Path, default=shared("gpt2-tokenizer.json"))
    given.add_argument("--repeats", type=int, default=3)
    given.add_argument("--every", type=int, default=20, help="classify every n-th document by transformers")
    asked = given.parse_args()
    needed = "fasttext-predict, torch, --documents and --tokenizer"
    if lacks(needed, asked.documents, asked.tokenizer, packages=["fasttext", "torch"]):
        return
    rows = read(asked.documents)
    with tempfile.TemporaryDirectory() as folder:
        for number, settings in enumerate(({}, FASTTEXT)):
            path = Path(folder, f"{number}.bin")
            train(rows, settings, path)
            ratio = compare_fasttext([row["text"] for row in rows], path, asked.repeats)
        chosen = [row["text"] for row in rows[:: asked.every]]
        by_transformers = compare_pipeline(chosen, save_model(Path(folder, "model"), asked.tokenizer), asked.repeats)
    print(f"classifiers ratio={min(ratio, by_transformers):.3f}")


if __name__ == "__main__":
    main()
