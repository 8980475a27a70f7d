"""Time GPT-Simple's packed loader and print its batches; feeds.py runs this where gpt-simple-lm is installed."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from gpt_simple.data import PreTokenizedDataset, cursor_aware_collate
from torch.utils.data import DataLoader

BATCH = 8


def rate(feed: Iterator[dict], seconds: float) -> float:
    """Return tokens per second of CPU time, cut after ``seconds``."""
    tokens, start = 0, time.process_time()
    for item in feed:
        tokens += item["input_ids"].numel()
        if time.process_time() - start > seconds:
            break
    return tokens / (time.process_time() - start)


def main() -> None:
    folder, max_length, end_of_text, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    files = sorted(Path(folder).glob("*.bin"))

    def opened(attention_mode: str) -> PreTokenizedDataset:
        return PreTokenizedDataset(files, max_length, 0, end_of_text, end_of_text, attention_mode)

    def batches(attention_mode: str) -> DataLoader:
        return DataLoader(opened(attention_mode), BATCH, collate_fn=cursor_aware_collate)

    start = time.process_time()
    next(iter(batches("document")))
    first = time.process_time() - start
    rates = {
        "item, no doc_ids": rate(opened("causal"), seconds),
        "item": rate(opened("document"), seconds),
        "batch, no doc_ids": rate(batches("causal"), seconds),
        "batch": rate(batches("document"), seconds),
    }
    delivered = useful = total = 0
    for item in opened("causal"):
        tokens = item["input_ids"][: int(item["attention_mask"].sum())]
        delivered, useful, total = delivered + max_length, useful + len(tokens), total + int(tokens.sum())
    print(json.dumps({"first": first, "rates": rates, "delivered": delivered, "useful": useful, "sum": total}))


if __name__ == "__main__":
    main()
