r"""Tokens per second of training on a GPU, with each feed and without loading any data.

    python benchmarks/training_step.py [--layers 12] [--width 768] [--steps 60] [--turns 3] [--feeds Packed Windows]

A transformer (bfloat16, `torch.compile`, fused AdamW; by default 124 million parameters) trains on steps of 65,536
tokens. In each turn every feed has three runs of so many steps: "fixed" trains on one batch that is on the GPU already,
"feed" iterates over the feed in the training process, and "loader" over ``feed.dataloader(num_workers=2,
pin_memory=True)``, from its first batch on. "alone" is the feed without training.
Rates are medians over the turns, by the clock; the spread is the largest over the smallest.

FlexAttention keeps documents of ``Packed`` and ``Jsonl`` apart, with ``for_flex_attention`` and ``document_mask``;
attention is causal otherwise. Rows have 2,048 tokens, those of ``Rectangle`` 16,384. Tokens are random, but ``Jsonl``
tokenises made-up words. The last line is the least rate of training with a feed, by the faster of both ways, over that
with fixed batches.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _needed import lacks
from composed_write import lengths
from datasets import Dataset
from jsonl_feed import made_up, write_lines

import longcrawl as lc

VOCABULARY = 50_304
END = 50_256
STEP_TOKENS = 1 << 16
LENGTH = 2048
ROWS = STEP_TOKENS // LENGTH
CONTEXT = 16_384
DOCUMENTS = 30_000
LONG_DOCUMENTS = 128
CHARACTERS = 80_000_000
WORDS = 8_192
HEAD = 64

Batch = dict[str, Any]
Step = Callable[[Batch], Any]


def documents(sizes: Any) -> lc.Crawl:
    """Return documents of random tokens."""
    chance, ends = np.random.default_rng(0), np.concatenate([[0], np.cumsum(sizes)])
    tokens = pa.array(chance.integers(0, END, ends[-1], np.uint16))
    ids = [str(number) for number in range(len(sizes))]
    return lc.Crawl(Dataset(pa.table({"id": ids, "tokens": pa.LargeListArray.from_arrays(pa.array(ends), tokens)})))


def write_inputs(folder: Path) -> None:
    """Write shards, a rectangle, JSON lines and a tokenizer."""
    from tokenizers import ByteLevelBPETokenizer

    sizes = lengths(DOCUMENTS, np.random.default_rng(0), LENGTH - 1)
    documents(sizes).to_gpt_simple(folder / "shards", end_of_text=END)
    long = documents(np.full(LONG_DOCUMENTS, STEP_TOKENS))
    long.to_rectangle(folder / "rectangle.zarr", context_length=STEP_TOKENS, end_of_text=END)
    write_lines(None, folder / "lines.jsonl", CHARACTERS)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(made_up(2_000_000), WORDS, special_tokens=["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def open_feed(name: str, folder: Path) -> Any:
    """Open a feed whose steps have STEP_TOKENS tokens."""
    match name:
        case "Packed":
            return lc.loading.Packed(folder / "shards", max_length=LENGTH, batch_size=ROWS)
        case "Windows":
            return lc.loading.Windows(folder / "shards", LENGTH - 1, shuffle="windows").batches(ROWS)
        case "Rectangle":
            rectangle = folder / "rectangle.zarr"
            return lc.loading.Rectangle(rectangle, batch_size=STEP_TOKENS // CONTEXT, context_length=CONTEXT)
        case _:
            tokenizer = str(folder / "tokenizer.json")
            return lc.loading.Jsonl(folder / "lines.jsonl", tokenizer, max_length=LENGTH, batch_size=ROWS)


FEEDS = ("Packed", "Windows", "Rectangle", "Jsonl")


def collate(batch: Batch) -> Batch:
    """Return the tensors that a step needs; loaders call this in their workers."""
    if "doc_ids" in batch:
        return lc.loading.collators.for_flex_attention(batch)
    made = lc.loading.collators.for_transformers(batch)
    return {name: made[name] for name in ("input_ids", "labels")}


def forever(make: Callable[[], Iterable[Batch]]) -> Iterator[Batch]:
    """Yield batches, pass after pass."""
    while True:
        yield from make()


def rotary_tables() -> tuple[Any, Any]:
    """Return cosines and sines, [1, 1, STEP_TOKENS, HEAD / 2], on the GPU."""
    import torch

    angles = torch.outer(torch.arange(STEP_TOKENS), 10_000 ** (-torch.arange(0, HEAD, 2) / HEAD))
    return angles.cos().cuda().bfloat16()[None, None], angles.sin().cuda().bfloat16()[None, None]


def build_model(layers: int, width: int) -> Any:
    """Return a transformer with rotary positions, whose loss is that of ``(ids, labels, block mask or None)``."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.nn.attention.flex_attention import flex_attention

    cosines, sines = rotary_tables()

    def rotated(vectors: Any) -> Any:
        one, other = vectors.chunk(2, -1)
        cosine, sine = cosines[:, :, : vectors.shape[2]], sines[:, :, : vectors.shape[2]]
        return torch.cat([one * cosine - other * sine, other * cosine + one * sine], -1)

    @torch.compile(dynamic=False)
    def loss_of(states: Any, embedding: Any, labels: Any) -> Any:
        logits = functional.linear(functional.rms_norm(states, (width,)), embedding)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, states: Any, mask: Any) -> Any:
            rows, columns, _ = states.shape
            made = self.inputs(functional.rms_norm(states, (width,)))
            query, key, value = made.view(rows, columns, 3, -1, HEAD).permute(2, 0, 3, 1, 4)
            query, key = rotated(query), rotated(key)
            if mask is None:
                attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            else:
                attended = flex_attention(query, key, value, block_mask=mask)
            states = states + self.output(attended.transpose(1, 2).reshape(rows, columns, width))
            return states + self.down(functional.relu(self.up(functional.rms_norm(states, (width,)))).square())

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            for block in self.blocks:  # alike, so one of them is compiled
                block.compile(dynamic=False)

        def forward(self, ids: Any, labels: Any, mask: Any) -> Any:
            states = self.embedding(ids)
            for block in self.blocks:
                states = block(states, mask)
            return loss_of(states, self.embedding.weight, labels)

    return Transformer().cuda().bfloat16()


def build_step(model: Any) -> Step:
    """Return a function that trains the model on a batch of the GPU and returns its loss."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    to_mask = torch.compile(create_block_mask, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(batch: Batch) -> Any:
        mask = None
        if "document_ids" in batch:
            within = lc.loading.collators.document_mask(batch["document_ids"])
            rows, columns = batch["input_ids"].shape
            mask = to_mask(within, rows, None, columns, columns)
        loss = model(batch["input_ids"], batch["labels"], mask)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def pinned(batch: Batch) -> Batch:
    """Return the batch in memory that is copied to the GPU while it computes."""
    return {name: each.pin_memory() for name, each in batch.items()}


def to_gpu(batch: Batch) -> Batch:
    """Return the batch on the GPU; a pinned one is copied while the GPU computes."""
    return {name: each.cuda(non_blocking=True) for name, each in batch.items()}


def rate(batches: Iterator[Batch], steps: int, use: Callable[[Batch], object]) -> float:
    """Return the tokens per second of some steps after the first three."""
    import torch

    for batch in islice(batches, 3):
        use(batch)
    torch.cuda.synchronize()
    tokens, started = 0, time.perf_counter()
    for batch in islice(batches, steps):
        tokens += batch["input_ids"].numel()
        use(batch)
    torch.cuda.synchronize()
    return tokens / (time.perf_counter() - started)


def measure(name: str, folder: Path, step: Step, steps: int, turns: int) -> float:
    """Print the rates of a feed; return that of training with it over that with fixed batches."""
    fixed = to_gpu(collate(next(iter(open_feed(name, folder)))))
    step(fixed)  # compiles

    def fed() -> Iterator[Batch]:
        return map(collate, forever(lambda: open_feed(name, folder)))

    def loaded() -> Iterator[Batch]:
        if name == "Jsonl":  # its workers give blocks of rows, which this process collates and pins
            blocks = forever(lambda: open_feed(name, folder).dataloader(num_workers=2))
            return map(pinned, map(collate, blocks))
        options = {"num_workers": 2, "pin_memory": True, "collate_fn": collate}
        return forever(lambda: open_feed(name, folder).dataloader(**options))

    rates: dict[str, list[float]] = {"fixed": [], "feed": [], "loader": [], "alone": []}
    for _ in range(turns):
        rates["fixed"].append(rate(repeat(fixed), steps, step))
        rates["feed"].append(rate(fed(), steps, lambda batch: step(to_gpu(pinned(batch)))))
        rates["loader"].append(rate(loaded(), steps, lambda batch: step(to_gpu(batch))))
        rates["alone"].append(rate(fed(), steps, lambda _: None))
    medians = {kind: statistics.median(found) for kind, found in rates.items()}
    said = [f"{kind} {medians[kind] / 1e3:,.0f} ({max(found) / min(found):.2f})" for kind, found in rates.items()]
    print(f"{name:16} thousand tokens/s (spread): {', '.join(said)}", flush=True)
    return max(medians["feed"], medians["loader"]) / medians["fixed"]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--feeds", nargs="+", choices=FEEDS, default=FEEDS)
    options = parser.parse_args()
    if lacks("torch", packages=["torch"]):
        return
    import torch

    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    torch.manual_seed(0)
    model = build_model(options.layers, options.width)
    step, parameters = build_step(model), sum(each.numel() for each in model.parameters())
    print(f"{torch.cuda.get_device_name()}, {parameters / 1e6:,.0f} million parameters, {STEP_TOKENS:,} tokens a step")
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        write_inputs(folder)
        ratios = [measure(name, folder, step, options.steps, options.turns) for name in options.feeds]
    print(f"training_step ratio={min(ratios):.3f}")


if __name__ == "__main__":
    main()
