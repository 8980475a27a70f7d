"""Related documents against random order: how alike neighbours are, what packing does with them, time and memory.

    python benchmarks/related.py --data ../shared/data
    python benchmarks/related.py --data ../shared/data --train 800   # and steps of a small GPT, minutes on a core

Four tables. Of the short documents of our sample, for each method and policy: the mean TF-IDF cosine of tokens of
documents that follow each other, as ``longcrawl compose`` has it, the share that are of one kind (manual page, licence,
e-mail …), and the packing of the order. Of documents between the chunks of another: in how many samples, how far apart
chunks are, and how alike the others are to the one in chunks. Of made-up documents, 1, 2 and 4 times as many: CPU
seconds and peak memory of sketches and orders, with one pool and with several. With ``--train``: two models of one
start, one trained on related and one on random packs of the same documents, each measured on both packs of documents
that neither has seen.

CPU time of one process. The last line is how many times as alike neighbours on paths are as in random order.
"""

import argparse
import multiprocessing
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from _measures import Peak, seconds
from _needed import lacks, shared
from long_range import first_of_families, rows

import longcrawl as lc
from longcrawl.tokens import Buckets, FixedLength
from longcrawl.tokens.encoders import load_encoder
from longcrawl.tokens.measures import DOCUMENTS, compare_strategies, relate, weigh

METHODS = ("path", "tree", "keywords")
MADE_UP = (25_000, 50_000, 100_000)
SHORT = 4_000
"""Characters of documents that the models see."""
CONTEXT, BATCH = 512, 8


def main() -> None:
    """Measure and print."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--data", type=Path, default=shared(""))
    given.add_argument("--train", type=int, default=0, metavar="STEPS")
    given.add_argument("--skip-growth", action="store_true")
    asked = given.parse_args()
    if lacks("--data, a folder with documents and a tokenizer", asked.data / "short.jsonl.zst"):
        return
    documents = list(rows(asked.data / "short.jsonl.zst"))
    ratio = compare_orders(documents, asked.data / "gpt2-tokenizer.json")
    if not asked.skip_growth:
        show_growth()
    if asked.train:
        train_both(documents, asked.train)
    print(f"related ratio={ratio:.1f}")


def table_of(documents: list[dict[str, Any]]) -> pa.Table:
    """Return ids and texts."""
    texts = pa.array([row["text"] for row in documents], pa.large_string())
    return pa.table({"id": [row["id"] for row in documents], "text": texts})


def compare_orders(documents: list[dict[str, Any]], tokenizer: Path) -> float:
    """Print how alike neighbours are in each order, and how it packs; return path against random order."""
    table, kinds = table_of(documents), np.array([row["kind"] for row in documents])
    encoded = load_encoder(str(tokenizer)).encode(table["text"])
    tokens = np.split(encoded.ids, encoded.offsets[1:-1])
    assert len(tokens) < DOCUMENTS
    lengths, vectors = np.diff(encoded.offsets) + 1, weigh(tokens)
    chance = np.random.default_rng(0).permutation(len(tokens))
    found = {"random": alike(chance, vectors, kinds)}
    print(f"{len(tokens):,} documents of {lengths.sum():,} tokens; copies and near duplicates are among them")
    print("order                       cosine  one kind   documents/s")
    print(f"random                       {found['random'][0]:.3f}     {found['random'][1]:5.1%}")
    orders = {}
    with tempfile.TemporaryDirectory() as folder:
        learnt = lc.long.Related(train_documents=None).fit([table], folder)
        print(f"a sketch takes {learnt.sketch(table).nbytes / len(table):.0f} bytes a document")
        for method in METHODS:
            for policy in ("apart", "allowed"):
                stage = replace(learnt, method=method, near_duplicates=policy)
                stage.prepare()
                order, took = timed(stage, table)
                name = f"{method}, near duplicates {policy}"
                found[name], orders[name] = alike(order, vectors, kinds), order
                print(f"{name:27}  {found[name][0]:.3f}     {found[name][1]:5.1%}    {len(table) / took:10,.0f}")
        several = replace(learnt, pool_size=len(table) // 8)
        by_pools = alike(several.order(several.sketch(table)), vectors, kinds)
        print(f"path, in eight pools         {by_pools[0]:.3f}     {by_pools[1]:5.1%}")
    show_packing({"random": chance, "path": orders["path, near duplicates apart"]}, lengths, tokens)
    for method in METHODS:
        show_interleaving(method, orders[f"{method}, near duplicates apart"], lengths, vectors)
    show_planning(lengths)
    return found["path, near duplicates apart"][0] / found["random"][0]


def timed(stage: Any, table: pa.Table) -> tuple[npt.NDArray[np.int64], float]:
    """Return the order of documents and the CPU seconds of sketches and order."""
    found = []
    taken = seconds(lambda: found.append(stage.order(stage.sketch(table))), 3)
    return found[0], taken[0]


def alike(order: Any, vectors: Any, kinds: Any) -> tuple[float, float]:
    """Return the mean cosine of neighbours in an order, and the share of them that are of one kind."""
    pairs = np.stack([order[:-1], order[1:]], axis=1)
    return relate(pairs, vectors).related, float((kinds[pairs[:, 0]] == kinds[pairs[:, 1]]).mean())


def show_packing(orders: dict[str, Any], lengths: Any, tokens: list[Any]) -> None:
    """Print what strategies make of a random order and of paths."""
    strategies = [Buckets(), Buckets(pool_size=64), Buckets(planner="in-order"), FixedLength(2048, "given")]
    strategies += [Buckets((16_384,)), Buckets((16_384,), planner="in-order")]
    print("order   strategy                    r_pad %  r_tru %  r_cat  related  by chance")
    for name, order in orders.items():
        compared = compare_strategies(lengths[order], strategies, [tokens[place] for place in order])
        for strategy, row in zip(strategies, compared, strict=True):
            pool = ", pools of 64" if strategy.pool_size == 64 else ""
            label = f"{row.label}{pool}{', 16384' if len(strategy.capacities) == 1 and row.label[0] == 'B' else ''}"
            measures = f"{100 * row.r_pad:8.3f} {100 * row.r_tru:8.2f} {row.r_cat:6.2f}"
            print(f"{name:7} {label:26} {measures}  {row.related:7.3f} {row.related_by_chance:10.3f}")


def show_interleaving(method: str, order: Any, lengths: Any, vectors: Any) -> None:
    """Print of how many samples the longest document is in chunks, what lies between these, and how alike it is."""
    print("order     capacity  chunk  in chunks  of samples  tokens between  related  by chance")
    for capacity, chunk in ((2_048, 256), (16_384, 512), (16_384, 2_048)):
        plan = Buckets((capacity,), planner="interleaved", chunk_tokens=chunk).plan(lengths[order])
        first = np.repeat(plan.documents[plan.bounds[:-1]], np.diff(plan.bounds))
        other = plan.documents != first
        texts = np.add.reduceat(plan.joined, plan.bounds[:-1]) > 0
        inside = np.repeat(texts, np.diff(plan.bounds))
        gaps = np.count_nonzero(inside & ~other) - np.count_nonzero(texts)
        pairs = order[np.unique(np.stack([first, plan.documents], axis=1)[inside & other], axis=0)]
        found, between = relate(pairs, vectors), plan.sizes[inside & other].sum() / gaps
        counts = f"{np.count_nonzero(texts):9,}  {np.count_nonzero(texts) / len(texts):10.1%}"
        alike_too = f"{found.related:7.3f}  {found.related_by_chance:9.3f}"
        print(f"{method:8}  {capacity:8,}  {chunk:5,}  {counts}  {between:14,.0f}  {alike_too}")


def show_planning(lengths: Any) -> None:
    """Print CPU seconds of plans of a million documents."""
    drawn = np.random.default_rng(0).choice(lengths, 1_000_000)
    for planner in ("in-order", "interleaved"):
        strategy = Buckets(planner=planner, chunk_tokens=512)
        print(f"a million lengths, {planner}: {seconds(lambda: strategy.plan(drawn), 3)[0]:.2f} s")  # noqa: B023


def show_growth() -> None:
    """Print time and memory of made-up documents, each number of them in a process of its own."""
    print("made-up documents  pools of  CPU s  documents/s  MB above the texts")
    for documents in MADE_UP:
        for pool in (25_000, 100_000):
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                took, memory = alone.apply(grow, (documents, pool))
            print(f"{documents:17,}  {pool:8,}  {took:5.1f}  {documents / took:11,.0f}  {memory / 1e6:18,.0f}")


def grow(documents: int, pool: int) -> tuple[float, float]:
    """Return CPU seconds and bytes of memory of sketches and order."""
    table = made_up(documents)
    with tempfile.TemporaryDirectory() as folder:
        stage = lc.long.Related(pool_size=pool, train_documents=5_000).fit([table], folder)
        stage.prepare()
        watched, started = Peak(), time.process_time()
        sketches = pa.concat_tables(stage.sketch(table.slice(first, 1_000)) for first in range(0, documents, 1_000))
        stage.order(sketches)
        return time.process_time() - started, watched.most - watched.before


def made_up(documents: int) -> pa.Table:
    """Return documents of 120 words, half of them of one of a thousand topics."""
    chance = np.random.default_rng(0)
    common = np.minimum(chance.zipf(1.3, (documents, 60)), 50_000)
    topics, own = chance.integers(0, 1_000, (documents, 1)), np.minimum(chance.zipf(1.2, (documents, 60)), 500)
    texts = [
        " ".join([f"w{word}" for word in left] + [f"t{topic}x{word}" for word in right])
        for left, (topic,), right in zip(common.tolist(), topics.tolist(), own.tolist(), strict=True)
    ]
    return pa.table({"id": [f"d{row}" for row in range(documents)], "text": pa.array(texts, pa.large_string())})


def train_both(documents: list[dict[str, Any]], steps: int) -> None:
    """Train on related and on random packs; print the loss of each model on both packs of unseen documents."""
    import torch

    torch.set_num_threads(1)  # on busy cores threads wait for each other, at three times the CPU time
    chosen = [row for row in first_of_families(documents) if row["lang"] == "en" and len(row["text"]) <= SHORT]
    random.Random(0).shuffle(chosen)
    parts = {"unseen": table_of(chosen[: len(chosen) // 5]), "trained": table_of(chosen[len(chosen) // 5 :])}
    with tempfile.TemporaryDirectory() as folder:
        tokenize = lc.tokens.Tokenize("trained", vocabulary_size=2_048).fit([parts["trained"]], folder)
        learnt = lc.long.Related().fit([parts["trained"]], folder)
        packs = {
            (part, kind): pack(parts[part], learnt, tokenize, kind) for part in parts for kind in ("related", "random")
        }
    print(
        f"{len(chosen):,} English documents of up to {SHORT:,} characters, one of each family; rows of {CONTEXT} tokens"
    )
    losses = {}
    for kind in ("related", "random"):
        torch.manual_seed(0)
        started = time.process_time()
        model = train(packs["trained", kind], steps)
        took = time.process_time() - started
        print(
            f"trained on {kind:7}: {steps * BATCH * CONTEXT:,} tokens of {packs['trained', kind].size:,}, {took:.0f} s"
        )
        for asked in ("related", "random"):
            losses[kind, asked] = measure_loss(model, packs["unseen", asked])
    print("trained on  measured on   all     by position")
    for (kind, asked), loss in losses.items():
        borders, values = loss.binned(8)
        shown = "  ".join(f"{stop}: {value:.3f}" for stop, value in zip(borders[1:], values, strict=True))
        print(f"{kind:10}  {asked:11}  {loss.mean:.4f}  {shown}")


def pack(table: pa.Table, stage: Any, tokenize: Any, kind: str) -> Any:
    """Return documents end to end in rows of one length, in the order of paths or at random: int64 [rows, tokens]."""
    order = stage.order(stage.sketch(table)) if kind == "related" else np.random.default_rng(1).permutation(len(table))
    encoder = tokenize.encoder()
    encoded = encoder.encode(table["text"].take(pa.array(order)))
    texts = [np.append(text, encoder.end_of_text) for text in np.split(encoded.ids, encoded.offsets[1:-1])]
    flat = np.concatenate(texts).astype(np.int64)
    return flat[: len(flat) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)


def train(packed: Any, steps: int) -> Any:
    """Return a GPT-2 of 0.7 million parameters after so many steps over shuffled rows."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=2_048, n_positions=CONTEXT, n_embd=128, n_layer=2, n_head=4, **off))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    chance = np.random.default_rng(2)
    numbers = np.concatenate([chance.permutation(len(packed)) for _ in range(1 + steps * BATCH // len(packed))])
    for step in range(steps):
        rows_of_step = torch.from_numpy(packed[numbers[step * BATCH : (step + 1) * BATCH]])
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(rows_of_step, labels=rows_of_step).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model


def measure_loss(model: Any, packed: Any) -> lc.evaluate.PositionLoss:
    """Return the loss at each position of rows."""
    import torch

    total = torch.zeros(CONTEXT - 1, dtype=torch.float64)
    with torch.no_grad():
        for some in torch.from_numpy(packed).split(BATCH):
            logits = model(some).logits[:, :-1].transpose(1, 2)
            total += torch.nn.functional.cross_entropy(logits, some[:, 1:], reduction="none").double().sum(0)
    counts = np.full(CONTEXT - 1, len(packed))
    return lc.evaluate.PositionLoss(total.numpy() / counts, counts)


if __name__ == "__main__":
    main()
