"""Train a small GPT on long documents in minutes on a CPU, and save it as a folder that stages of models take.

    pip install "longcrawl[torch]"
    python examples/train_small_gpt.py small-gpt --documents ../shared/data/long.jsonl.zst

The model has the architecture of GPT-NeoX, whose rotary positions learn to look back soonest: two layers of 128, a
vocabulary of 2,048 that is trained on the documents. It sees each document in rows of 1,024 tokens. A third of the
documents, by the hash of their family or id, is left out, for measuring (``benchmarks/long_models.py``). Nothing is
downloaded.
"""

import argparse
import hashlib
import json
import math
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import torch
from datasets import Dataset, load_dataset
from tokenizers import Tokenizer
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

import longcrawl as lc

END = "<|endoftext|>"


def is_left_out(row: Mapping[str, Any]) -> bool:
    """Return whether a document is of the third that no model is trained on; a family is wholly in it or not."""
    key = str(row.get("family") or row.get("exact_group") or row["id"])
    return int(hashlib.sha1(key.encode()).hexdigest(), 16) % 3 == 0  # noqa: S324  # no secret


def make_model(vocabulary_size: int, context_length: int, layers: int = 2, width: int = 128) -> GPTNeoXForCausalLM:
    """Return a GPT-NeoX with random weights."""
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=vocabulary_size,
        max_position_embeddings=context_length,
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=4,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPTNeoXForCausalLM(config)


def train(
    texts: Iterable[str],
    out: Path,
    steps: int = 900,
    batch_size: int = 4,
    context_length: int = 1_024,
    vocabulary_size: int = 2_048,
) -> list[float]:
    """Train a tokenizer and a model on texts, save both in ``out``, and return the loss of every step."""
    rows = {"id": [], "text": []}
    for number, text in enumerate(texts):
        rows["id"].append(str(number))
        rows["text"].append(text)
    crawl = lc.Crawl(Dataset(pa.table(rows))) | lc.tokens.Tokenize("trained", vocabulary_size=vocabulary_size)
    with tempfile.TemporaryDirectory() as folder:
        crawl.to_gpt_simple(Path(folder, "shards"))
        tokenizer = Tokenizer.from_file(str(Path(folder, "shards/tokenizer.json")))
        feed = lc.loading.Packed(Path(folder, "shards"), max_length=context_length, batch_size=batch_size, epochs=9)
        model = make_model(vocabulary_size, context_length)
        losses = run_steps(model, feed, steps)
    model.save_pretrained(out)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(out)
    return losses


def run_steps(model: Any, feed: Any, steps: int, most: float = 4e-3) -> list[float]:
    """Train for so many steps, the rate rising for a twentieth of them and falling to a tenth, and print the loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=most, betas=(0.9, 0.95), weight_decay=0.1)
    losses: list[float] = []
    started = time.monotonic()
    for step, batch in zip(range(steps), feed, strict=False):
        done = step / steps
        rate = min(1.0, 20 * (step + 1) / steps) * (0.55 + 0.45 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = most * rate
        ids, labels = (torch.as_tensor(batch[name]) for name in ("input_ids", "labels"))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 49:
            taken = time.monotonic() - started
            print(
                f"step {step + 1:5,}  loss {fmean(losses[-50:]):.4f}  {ids.numel() * (step + 1) / taken:,.0f} tokens/s"
            )
    return losses


def main() -> None:
    """Read what was typed, train, and say how the loss fell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=Path, required=True, help="JSON lines with id and text, compressed or not")
    parser.add_argument("--steps", type=int, default=900)
    options = parser.parse_args()
    documents = load_dataset("json", data_files=str(options.documents), split="train")
    texts = [row["text"] for row in documents if not is_left_out(row)]
    losses = train(texts, options.out, options.steps)
    parameters = GPTNeoXForCausalLM.from_pretrained(options.out).num_parameters()
    print(f"{parameters:,} parameters, {len(losses):,} steps, {len(texts):,} documents")
    print(f"loss: {fmean(losses[:10]):.4f} in the first ten steps, {fmean(losses[-10:]):.4f} in the last ten")
    (options.out / "training.json").write_text(json.dumps({"steps": len(losses), "loss": fmean(losses[-10:])}))


if __name__ == "__main__":
    main()
