"""Train a small GPT on long documents in minutes on a CPU, and save it as a folder that stages of models take.

    pip install "longcrawl[torch]"
    python examples/train_small_gpt.py small-gpt --documents ../shared/data/long.jsonl.zst

The model has the architecture of GPT-NeoX, two layers of 128, and a vocabulary of 2,048 that is trained on the
documents. Looking back is learnt late: from random weights a model of this size copies nothing within minutes. So
``--start induction``, the default, writes an induction head into the first weights, and all of them are trained from
there: in the first layer a head looks at the token before, by rotary positions, and hands on its embedding; in the
second a head looks, without positions, for earlier places behind the token that is there now, and predicts what stood
there. ``--start random`` is for comparison.

Rows have 512 tokens, those of the last fifth of the steps 8,192. A third of the documents, by the hash of their family
or id, is left out, for measuring (``benchmarks/long_models.py``). Nothing is downloaded.
"""

import argparse
import hashlib
import json
import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import pyarrow as pa
import torch
from datasets import Dataset, load_dataset
from tokenizers import Tokenizer
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

import longcrawl as lc

END = "<|endoftext|>"
LONGEST = 16_384
"""Tokens that the model takes: the head that looks far back has no positions, so more than it was trained on."""
NEAR, ALIKE, EMBEDDING = 80.0, 2.3, 0.05
"""Initial weights: attention logit of the previous token, factor of queries, standard deviation of embeddings."""

Start = Literal["induction", "random"]


def is_left_out(row: Mapping[str, Any]) -> bool:
    """Return whether a document is of the third that no model is trained on; a family is wholly in it or not."""
    key = str(row.get("family") or row.get("exact_group") or row["id"])
    return int(hashlib.sha1(key.encode()).hexdigest(), 16) % 3 == 0  # noqa: S324  # no secret


def make_model(
    vocabulary_size: int, start: Start = "induction", seed: int = 0, layers: int = 2, width: int = 128
) -> GPTNeoXForCausalLM:
    """Return a GPT-NeoX with its first weights: two heads in a layer, a quarter of each with rotary positions."""
    torch.manual_seed(seed)
    positions = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
    config = GPTNeoXConfig(
        vocab_size=vocabulary_size,
        max_position_embeddings=LONGEST,
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=2,
        rope_parameters=positions,
        use_parallel_residual=False,  # what follows attention may doubt it
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPTNeoXForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("dense.weight", "dense_4h_to_h.weight")):
                weight.zero_()
            elif weight.ndim == 2 and "embed" not in name:
                weight.normal_(std=0.5 * weight.shape[1] ** -0.5)
        if start == "induction":
            write_induction(model)
    return model


def write_induction(model: GPTNeoXForCausalLM) -> None:
    """Write an induction head into the first heads of the first two layers.

    Embeddings have the first half of the width. The first layer writes those of the token before into the second half.
    """
    embeddings = model.gpt_neox.embed_in.weight
    half = embeddings.shape[1] // 2  # as wide as a head
    turned = half // 4
    embeddings.normal_(std=EMBEDDING)
    embeddings[:, half:] = 0
    before, same = (layer.attention for layer in model.gpt_neox.layers[:2])
    for attention in (before, same):
        attention.query_key_value.weight[: 3 * half] = 0
        attention.query_key_value.bias[: 3 * half] = 0
        attention.query_key_value.weight[2 * half : 3 * half, :half] = torch.eye(half)
    # Keys are alike, and queries those of one position before: rotary positions make the token before the nearest.
    angles = 10_000.0 ** (-torch.arange(0, turned, 2) / turned)
    size = math.sqrt(NEAR * math.sqrt(half) / len(angles))
    bias = before.query_key_value.bias
    bias[:turned] = size * torch.cat([angles.cos(), -angles.sin()])
    bias[half : half + len(angles)] = size
    before.dense.weight[half:, :half] = EMBEDDING * torch.eye(half)
    # Queries are of the token here, keys of the token before there, values of the token there.
    projection = torch.linalg.qr(torch.randn(half, half - turned))[0].T
    same.query_key_value.weight[turned:half, :half] = ALIKE * projection
    same.query_key_value.weight[half + turned : 2 * half, half:] = projection
    same.dense.weight[:half, :half] = EMBEDDING * torch.eye(half)


def train(
    texts: Iterable[str],
    out: Path,
    steps: int = 750,
    tokens: int = 4_096,
    context_length: int = 8_192,
    vocabulary_size: int = 2_048,
    start: Start = "induction",
    seed: int = 0,
) -> list[float]:
    """Train a tokenizer and a model on texts, save both in ``out``, and return the loss of every step."""
    rows = {"id": [], "text": []}
    for number, text in enumerate(texts):
        rows["id"].append(str(number))
        rows["text"].append(text)
    crawl = lc.Crawl(Dataset(pa.table(rows))) | lc.tokens.Tokenize("trained", vocabulary_size=vocabulary_size)
    with tempfile.TemporaryDirectory() as folder:
        shards = Path(folder, "shards")
        crawl.to_gpt_simple(shards)
        tokenizer = Tokenizer.from_file(str(shards / "tokenizer.json"))
        model = make_model(vocabulary_size, start, seed)
        phases = ((context_length // 16, steps - steps // 5), (context_length, steps // 5))
        losses = run_steps(model, batches(shards, phases, tokens, seed), steps)
    model.save_pretrained(out)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(out)
    return losses


def batches(shards: Path, phases: Iterable[tuple[int, int]], tokens: int, seed: int) -> Iterator[Any]:
    """Yield batches of phases, each rows of one length for so many steps: so many tokens, or one row if it has more."""
    feeds = (
        islice(
            lc.loading.Packed(shards, max_length=length, batch_size=max(1, tokens // length), epochs=9, seed=seed),
            steps,
        )
        for length, steps in phases
    )
    return chain.from_iterable(feeds)


def make_optimizers(model: GPTNeoXForCausalLM) -> list[Any]:
    """Return Muon for matrices, with a lower rate for those of attention, and AdamW for embeddings and vectors."""
    inner = [(name, weight) for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    names = {name for name, _ in inner}
    groups = [
        {"params": [weight for name, weight in inner if "attention" not in name], "lr": 1e-2, "weight_decay": 0.1},
        {"params": [weight for name, weight in inner if "attention" in name], "lr": 2e-3, "weight_decay": 0.0},
    ]
    others = [weight for name, weight in model.named_parameters() if name not in names]
    return [
        torch.optim.Muon(groups, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=4e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def run_steps(model: GPTNeoXForCausalLM, feed: Iterable[Any], steps: int) -> list[float]:
    """Train for so many steps, rates rising for 40 of them and falling in the second half, and print the loss."""
    optimizers = make_optimizers(model)
    rates = torch.optim.lr_scheduler.LambdaLR
    schedules = [
        rates(each, lambda step: min(1, (step + 1) / 40) * min(1, 2 * (1 - step / steps) + 0.03)) for each in optimizers
    ]
    losses: list[float] = []
    started = time.process_time()
    for step, batch in enumerate(feed):
        ids, labels = (torch.as_tensor(batch[name]) for name in ("input_ids", "labels"))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each in (*optimizers, *schedules):
            each.step()
        losses.append(loss.item())
        if step % 50 == 49:
            taken = time.process_time() - started
            print(f"step {step + 1:5,}  loss {fmean(losses[-50:]):.4f}  {taken:,.0f} CPU seconds", flush=True)
    return losses


def main() -> None:
    """Read what was typed, train, and say how the loss fell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=Path, required=True, help="JSON lines with id and text, compressed or not")
    parser.add_argument("--steps", type=int, default=750)
    parser.add_argument("--start", choices=("induction", "random"), default="induction")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="of torch; all cores else")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    documents = load_dataset("json", data_files=str(options.documents), split="train")
    texts = [row["text"] for row in documents if not is_left_out(row)]
    losses = train(texts, options.out, options.steps, start=options.start, seed=options.seed)
    parameters = GPTNeoXForCausalLM.from_pretrained(options.out).num_parameters()
    print(f"{parameters:,} parameters, {len(losses):,} steps, {len(texts):,} documents")
    print(f"loss: {fmean(losses[:10]):.4f} in the first ten steps, {fmean(losses[-10:]):.4f} in the last ten")
    (options.out / "training.json").write_text(json.dumps({"steps": len(losses), "loss": fmean(losses[-10:])}))


if __name__ == "__main__":
    main()
