"""Feeds of composed samples, against naive readings, under any topology, interruption, schedule and mix."""

import ast
import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import chain, pairwise
from math import lcm

import datasets
import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import LoaderError
from longcrawl.formats.buckets.spec import StoredSamples
from longcrawl.loading import ComposedBatches, ComposedPhase, Packed, Phase
from longcrawl.loading.buckets import plan_phases, plan_schedule
from longcrawl.loading.curriculum import BucketStock
from longcrawl.tokens import Buckets

IGNORED = -100
PAD = 7
STEP = 64
SCHEDULES = ["mixed", "short-first", "long-first", "short-mixed-long", "grow-p2", "grow-linear"]


@dataclass
class Bucket:
    """Samples in memory: the first token of each says which it is, and every third token is masked."""

    domain: str
    capacity: int
    samples: int
    first: int
    split: str = "train"
    identity: str = "as written"
    end_of_text: int | None = 0
    padding: int = PAD

    def __len__(self):
        return self.samples

    def stored(self, samples):
        """Return samples as if those of even and of odd numbers were in a file each."""
        for odd in (0, 1):
            asked = np.flatnonzero(samples % 2 == odd)
            if len(asked):
                rows = [self.row(sample) for sample in samples[asked].tolist()]
                tokens, flags = (np.concatenate([row[at] for row in rows]) for at in (0, 1))
                bounds = np.cumsum([0, *(len(row[2]) for row in rows)])
                numbers = np.arange(len(asked))
                sizes = np.concatenate([row[2] for row in rows])
                yield StoredSamples(asked, numbers, bounds, sizes, tokens, flags, numbers * self.capacity)

    def row(self, sample):
        """Return tokens, loss mask and sizes of pieces: two pieces, and as much padding as the number of the sample."""
        filled = self.capacity - sample % (self.capacity - 1)
        sizes = [1, filled - 1] if filled > 1 else [1]
        tokens = [self.first + sample, *range(1, filled), *[self.padding] * (self.capacity - filled)]
        return (
            np.array(tokens, np.uint32),
            np.arange(self.capacity) % 3 < (np.arange(self.capacity) < filled) * 2,
            sizes,
        )


@dataclass
class InMemory:
    buckets: tuple


def dataset(stock: dict[str, int]) -> InMemory:
    """Return a dataset with as many samples of each bucket, "web/8" or "8"; their ids are from 1,000 on."""
    made, first = [], 1000
    for name, samples in stock.items():
        domain, _, capacity = name.rpartition("/")
        made.append(Bucket(domain, int(capacity), samples, first))
        first += samples
    return InMemory(tuple(made))


DATA = dataset({"web/8": 50, "web/16": 20, "code/8": 10, "code/16": 30, "web/32": 9})


def ids(batch) -> list[int]:
    return [int(row[0]) for row in batch["input_ids"] if row[0] != PAD]


def global_steps(feeds) -> list[tuple[int, list[int]]]:
    """Return capacity and ids of the steps that are left, put together from all ranks; checks what a step promises."""
    made = []
    for batches in zip(*feeds, strict=True):
        shapes = {batch["input_ids"].shape for batch in batches}
        assert len(shapes) == 1
        rows, capacity = shapes.pop()
        assert rows * capacity * len(batches) == feeds[0].tokens_per_step
        together = [[] for _ in range(rows * len(batches))]
        for rank, batch in enumerate(batches):
            for row in range(rows):
                together[row * len(batches) + rank] = ids({"input_ids": batch["input_ids"][row : row + 1]})
        made.append((capacity, list(chain(*together))))
    return made


def ranks(world_size, data=DATA, tokens_per_step=STEP, **fields):
    return [ComposedBatches(data, tokens_per_step, rank=rank, world_size=world_size, **fields)
            for rank in range(world_size)]  # fmt: skip


drawn_stocks = st.dictionaries(
    st.sampled_from([f"{domain}{capacity}" for domain in ("web/", "code/") for capacity in (4, 6, 8, 16)]),
    st.integers(1, 60), min_size=1, max_size=6,
)  # fmt: skip


@given(drawn_stocks, st.sampled_from(SCHEDULES), st.integers(1, 2), st.data())
def test_every_sample_once_on_any_ranks_with_any_interruptions(stock, schedule, epochs, data):
    unit = lcm(*(int(name.split("/")[1]) for name in stock))
    size = data.draw(st.sampled_from([1, 2, 4]))
    fields = {"data": dataset(stock), "tokens_per_step": unit * size, "schedule": schedule, "epochs": epochs}
    fields |= {"last_step": "fill", "seed": data.draw(st.integers(0, 3))}
    whole = global_steps(ranks(1, **fields))
    found, state = [], None
    while True:
        world_size = data.draw(st.sampled_from([each for each in (1, 2, 4) if size % each == 0]))
        feeds = ranks(world_size, **fields)
        for feed in feeds if state else []:
            feed.load_state_dict(state)
        stop = data.draw(st.integers(1, 9)) if len(found) < 20 else len(whole)
        found += global_steps([_Part(feed, stop) for feed in feeds])
        states = [feed.state_dict() for feed in feeds]
        assert all(each == states[0] for each in states)
        state = states[0]
        if feeds[0].status.state == "finished":
            break
    assert found == whole
    counts = Counter(chain(*(samples for _, samples in found)))
    assert counts == dict.fromkeys(range(1000, 1000 + sum(stock.values())), epochs)


@dataclass
class _Part:
    """The next steps of a feed."""

    feed: ComposedBatches
    steps: int

    @property
    def tokens_per_step(self):
        return self.feed.tokens_per_step

    def __iter__(self):
        for _, batch in zip(range(self.steps), self.feed, strict=False):
            yield batch


weights = st.dictionaries(st.sampled_from(["web", "code", "web/8", "code/16"]), st.integers(1, 5), max_size=3)
phases = st.lists(
    st.builds(
        lambda tokens, mix, sizes: {"duration_tokens": tokens, "mix": mix, "capacities": {} if mix else sizes},
        st.integers(1, 500), weights, st.dictionaries(st.sampled_from([8, 16, 32]), st.integers(1, 3), max_size=3),
    ), min_size=1, max_size=4,
)  # fmt: skip


@settings(deadline=None)
@given(phases, st.integers(0, 5), st.integers(0, 12))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_curriculum_is_one_sequence_that_never_repeats_a_sample(curriculum, seed, stop):
    fields = {"curriculum": curriculum, "on_exhausted": "renormalize", "seed": seed}
    whole = global_steps(ranks(1, **fields))
    feeds, rest = ranks(2, **fields), ranks(1, **fields)
    found = global_steps([_Part(feed, stop) for feed in feeds])
    rest[0].load_state_dict(feeds[0].state_dict())
    assert found + global_steps(rest) == whole
    delivered = list(chain(*(samples for _, samples in whole)))
    assert len(set(delivered)) == len(delivered)
    report = rest[0].report
    if all(each.bucket is not None for each in report.plan.drained):
        assert len(whole) == -(-sum(each["duration_tokens"] for each in curriculum) // STEP)
    for totals, phase in zip(report.plan.phases, curriculum, strict=False):
        steps = whole[totals.first_sample : totals.stop_sample]
        assert sum(totals.tokens.values()) == len(steps) * STEP
        if phase["capacities"]:
            assert {capacity for capacity, _ in steps} <= set(phase["capacities"])


def test_a_batch_is_what_a_naive_reading_gives():
    for positions in ("reset", "continuous"):
        feed = ComposedBatches(DATA, STEP, positions=positions, shuffle="none", schedule="short-first", pad_token=9)
        batch = feed[len(feed) - 1]
        bucket = next(each for each in DATA.buckets if each.capacity == 32)
        for row in range(2):
            tokens, trained, sizes = bucket.row(int(batch["input_ids"][row, 0]) - bucket.first)
            filled = sum(sizes)
            assert batch["n_tokens"][row] == filled
            assert batch["seq_lengths"][row].tolist() == sizes + [32 - filled] * (filled < 32)
            assert batch["input_ids"][row].tolist() == [*tokens[:filled], *[9] * (32 - filled)]
            first = {0, *np.cumsum(sizes).tolist()}
            wanted = [int(tokens[at]) if trained[at] and at not in first else IGNORED for at in range(32)]
            assert batch["labels"][row].tolist() == wanted
            numbers = [number for number, size in enumerate(batch["seq_lengths"][row]) for _ in range(size)]
            assert batch["doc_ids"][row].tolist() == numbers
            places = [place for size in batch["seq_lengths"][row] for place in range(size)]
            continuous = [*range(filled), *[0] * (32 - filled)]
            assert batch["position_ids"][row].tolist() == (places if positions == "reset" else continuous)
        assert {batch[name].dtype for name in ("input_ids", "labels", "position_ids", "doc_ids")} == {np.dtype("int64")}


@pytest.mark.variants
@pytest.mark.parametrize("stored_as", ["zarr", "token-parquet", "gpt-simple"])
def test_batches_are_of_the_samples_that_are_read(stored_as, tmp_path):
    chance = np.random.default_rng(0)
    documents = [chance.integers(1, 60_000, size).tolist() for size in chance.geometric(0.02, 300)]
    rows = {"id": [str(number) for number in range(300)], "tokens": pa.array(documents, pa.list_(pa.uint16()))}
    if stored_as != "gpt-simple":
        rows["loss_mask"] = [(chance.random(len(each)) < 0.8).tolist() for each in documents]
    fields = {"capacities": [32, 64, 128], "end_of_text": 0, "shard_bytes": 2000, "format": stored_as}
    lc.Crawl(datasets.Dataset(pa.table(rows))).to_composed(tmp_path / "out", **fields)
    feed = ComposedBatches(tmp_path / "out", 256, last_step="fill")
    samples = {}
    for bucket in lc.formats.open_composed(tmp_path / "out").buckets:
        read = bucket.read(np.arange(len(bucket)))
        for tokens, trained, sizes in zip(read.tokens, read.loss_mask, read.piece_sizes, strict=True):
            trained[np.cumsum(sizes) - sizes] = False
            padding = bucket.capacity - int(sizes.sum())
            lengths = [*sizes.tolist(), *([padding] if padding else [])]
            samples[tuple(tokens.tolist())] = np.where(trained, tokens.astype(np.int64), IGNORED).tolist(), lengths
    delivered = Counter()
    for batch in feed:
        for row in np.flatnonzero(batch["n_tokens"]):
            sample = tuple(batch["input_ids"][row].tolist())
            assert (batch["labels"][row].tolist(), batch["seq_lengths"][row].tolist()) == samples[sample]
            delivered[sample] += 1
    assert delivered == dict.fromkeys(samples, 1)


INTERLEAVED = Buckets([64], 1, planner="interleaved", chunk_tokens=8)


def assert_interleaved(batch, origins, documents):
    """Check that each row is one text, of the chunks of its longest document with others between."""
    for row, length in enumerate(batch["n_tokens"].tolist()):
        pieces = [each for each in origins if each.row == row]
        tokens = [documents[each.document][each.token : each.token + each.stop - each.start] for each in pieces]
        assert batch["input_ids"][row, :length].tolist() == list(chain(*tokens))
        ids = [each.document for each in pieces]
        chunks = [each for each in pieces if each.document == max(ids, key=ids.count)]
        assert len(chunks) > 2
        assert all(one.stop < other.start for one, other in pairwise(chunks))
        assert chunks[0].start == 0
        sizes = [each.stop - each.start for each in chunks]
        assert [each.token for each in chunks] == [0, *np.cumsum(sizes)[:-1].tolist()]
        assert batch["position_ids"][row, :length].tolist() == list(range(length))
        assert batch["seq_lengths"][row].tolist() == [length, *([64 - length] if length < 64 else [])]
        assert batch["doc_ids"][row].tolist() == [0] * length + [1] * (64 - length)
        labels = batch["labels"][row].tolist()
        assert labels == [IGNORED, *batch["input_ids"][row, 1:length].tolist(), *[IGNORED] * (64 - length)]


@pytest.mark.variants
@pytest.mark.parametrize("stored_as", ["zarr", "gpt-simple"])
def test_chunks_of_a_document_are_one_text_with_what_lies_between(stored_as, tmp_path):
    lengths = [30, 9, 11, 10, 3, 28, 12, 14, 7] * 4
    documents = {
        f"d{number}": [*range(100 * number + 1, 100 * number + size), 0] for number, size in enumerate(lengths)
    }
    table = pa.table({"id": list(documents), "tokens": pa.array(documents.values(), pa.list_(pa.uint16()))})
    fields = {"capacities": [64], "end_of_text": 0, "planner": "interleaved", "chunk_tokens": 8, "padding_threshold": 1}
    lc.Crawl(datasets.Dataset(table)).to_composed(tmp_path / "out", format=stored_as, **fields)
    feed = ComposedBatches(tmp_path / "out", 128, last_step="fill")
    for step, batch in enumerate(feed):
        filled = {name: values[: np.count_nonzero(batch["n_tokens"])] for name, values in batch.items()}
        assert_interleaved(filled, feed.origins(step), documents)
    assert lc.formats.open_composed(tmp_path / "out").described["splits"]["train"]["cut_documents"] == 0
    (rows,) = lc.formats.ComposedResult().token_rows(tmp_path / "out")["train"].read(0, 4)
    assert [len(each) for each in rows["seq_lengths"].to_pylist()] == [1] * 4


def test_a_packer_that_interleaves_makes_one_text_of_a_row(tmp_path):
    documents = {
        f"d{number}": [*range(100 * number + 1, 100 * number + 30 - 20 * (number % 4 > 0)), 0] for number in range(16)
    }
    table = pa.table({"id": list(documents), "tokens": pa.array(documents.values(), pa.list_(pa.uint16()))})
    lc.Crawl(datasets.Dataset(table)).to_gpt_simple(tmp_path / "out", end_of_text=0)
    feed = Packed(tmp_path / "out", max_length=64, batch_size=4, shuffle="none", packing=INTERLEAVED)
    assert_interleaved(feed[0], feed.origins(0), documents)
    shard = lc.formats.open_shard(next((tmp_path / "out").glob("train/*.bin")))
    packing = lc.tokens.Packing(64, positions="reset")
    made = packing.fill(shard, INTERLEAVED.plan(np.diff(shard.ends, prepend=0)))
    assert_interleaved(made, feed.origins(0), documents)


@settings(deadline=None)
@given(drawn_stocks, st.integers(1, 3), st.integers(0, 3), st.sampled_from(["drop", "fill"]))
def test_schedules_order_the_same_steps(stock, size, seed, last_step):
    buckets = [BucketStock(*name.split("/"), samples) for name, samples in stock.items()]
    buckets = [each._replace(capacity=int(each.capacity)) for each in buckets]
    tokens = lcm(*(each.capacity for each in buckets)) * size
    plans = {each: plan_schedule(buckets, tokens, each, last_step, seed) for each in SCHEDULES}
    found = {name: plan.capacities.tolist() for name, plan in plans.items()}
    totals = Counter()
    for each in buckets:
        totals[each.capacity] += each.samples
    round_up = last_step == "fill"
    wanted = Counter({capacity: (count * capacity + (tokens - 1) * round_up) // tokens
                      for capacity, count in totals.items()})  # fmt: skip
    assert all(Counter(each) == +wanted for each in found.values())
    assert found["short-first"] == sorted(found["short-first"])
    assert found["long-first"] == sorted(found["long-first"], reverse=True)
    short, long = min(totals), max(totals)
    if short != long:
        begins, ends = wanted[short] // 2, wanted[long] // 2
        assert found["short-mixed-long"][:begins] == [short] * begins
        assert found["short-mixed-long"][len(found["mixed"]) - ends :] == [long] * ends
    names = {each: [plan.samples.names[pick] for pick in plan.samples.picks] for each, plan in plans.items()}
    for step in (1, len(plans["mixed"]) // 2, len(plans["mixed"])):
        begun = {name: (plan.fingerprint(step), plan.first_sample(step)) for name, plan in plans.items()}
        for one, other in pairwise(SCHEDULES):
            alike = names[one][: begun[one][1]] == names[other][: begun[other][1]]
            assert (begun[one][0] == begun[other][0]) == alike


def grown(steps, schedule, cycles, cycle_steps):
    """Return how many steps of each capacity the stretches of a growing schedule have, spelled out."""
    if cycle_steps == "balanced":
        steps = [min(steps)] * len(steps)
    if cycle_steps != "all":
        steps = [count - count % cycles for count in steps]
    stretches = []
    for cycle in range(cycles):
        here = []
        for own, count in enumerate(steps):
            now = count * (cycle + 1) // cycles - count * cycle // cycles
            # The rank rises to the number of capacities in the own stretch, then goes on from below where it began.
            ranks = [*range(len(steps) - own, len(steps) + 1), *range(len(steps) - own - 1, 0, -1)]
            weights = ranks if schedule == "grow-linear" else [2 ** (rank - 1) for rank in ranks]
            parts = []
            for weight in weights:
                parts.append(min(round(weight / sum(weights) * now), now - sum(parts)))
            parts[-1] += now - sum(parts)
            here.append(parts)
        stretches += list(zip(*here, strict=True))
    return stretches


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from([4, 8, 16, 32, 64]), st.integers(0, 90), min_size=1),
    st.sampled_from(["grow-p2", "grow-linear"]), st.integers(1, 9), st.sampled_from(["all", "equal", "balanced"]),
    st.integers(0, 3),
)  # fmt: skip
def test_lengths_grow_in_every_cycle(stock, schedule, cycles, cycle_steps, seed):
    stock = dict(sorted(stock.items()))
    buckets = [BucketStock("", capacity, steps * (64 // capacity)) for capacity, steps in stock.items()]
    plan = plan_schedule(buckets, 64, schedule, "drop", seed, cycles, cycle_steps)
    capacities, first = plan.capacities.tolist(), 0
    for counts in grown(list(stock.values()), schedule, cycles, cycle_steps):
        found = Counter(capacities[first : first + sum(counts)])
        assert found == +Counter(dict(zip(stock, counts, strict=True)))
        first += sum(counts)
    assert first == len(plan)
    assert cycle_steps != "all" or len(plan) == sum(stock.values())


def test_epochs_of_a_growing_schedule_are_cycles_of_their_own():
    """With as many cycles in each, samples repeat only in the second half of the cycles."""
    fields = {"schedule": "grow-p2", "cycle_steps": "equal"}
    data = dataset({"8": 64, "16": 32, "32": 24})
    once = global_steps(ranks(1, data, cycles=2, **fields))
    twice = global_steps(ranks(1, data, cycles=4, epochs=2, **fields))
    for half in (twice[: len(once)], twice[len(once) :]):
        samples = list(chain(*(ids for _, ids in half)))
        assert len(set(samples)) == len(samples)
        assert Counter(capacity for capacity, _ in half) == Counter(capacity for capacity, _ in once)


def test_steps_that_a_growing_schedule_omits_are_reported():
    data = dataset({"8": 80, "16": 36, "32": 4})
    with pytest.warns(UserWarning, match=r"68 of the samples of 8 .*, 85.0% of them: cycle_steps='balanced' omits"):
        ComposedBatches(
            data,
            32,
            schedule="grow-p2",
            cycles=3,
            cycle_steps="balanced",
        )
    with pytest.raises(LoaderError, match="the plan has no step: .* and cycle_steps='all'"):
        ComposedBatches(data, 32, schedule="grow-p2", cycles=5, cycle_steps="balanced")


@pytest.mark.slow
def test_hundreds_of_domains_are_told_apart():
    data = dataset({f"{domain:03d}/8": 9 for domain in range(300)})
    whole = list(chain(*(samples for _, samples in global_steps([ComposedBatches(data, STEP, last_step="fill")]))))
    assert sorted(whole) == list(range(1000, 1000 + 9 * 300))
    asked = {f"{domain:03d}": 1 for domain in range(250, 300)}
    feed = ComposedBatches(data, STEP, [ComposedPhase(STEP * 9, asked)], on_exhausted="error")
    assert {(number - 1000) // 9 >= 250 for _, samples in global_steps([feed]) for number in samples} == {True}
    assert (feed.plan.samples.picks.dtype, feed.plan.steps.picks.dtype) == (np.uint16, np.uint8)


def test_mixed_buckets_run_dry_together():
    stock = [BucketStock(domain, capacity, samples * 400) for domain, capacity, samples in
             [("web", 8, 50), ("web", 16, 20), ("code", 8, 10), ("code", 16, 30)]]  # fmt: skip
    plan = plan_schedule(stock, STEP, "mixed", "drop", 0)
    half = plan.first_sample(len(plan) // 2)
    for bucket, each in enumerate(stock):
        assert np.count_nonzero(plan.samples.picks[:half] == bucket) == pytest.approx(each.samples / 2, rel=0.05)


def test_a_phase_has_the_shares_that_it_asks_for():
    stock = [BucketStock(domain, capacity, 200_000) for domain in ("web", "code") for capacity in (8, 16, 32)]
    mixes = [
        ComposedPhase(STEP * 4000, {"web": 0.7, "code": 0.3}, {8: 0.25, 32: 0.75}),
        ComposedPhase(STEP * 4000, {"web/8": 0.2, "code/16": 0.8}),
        ComposedPhase(STEP * 4000, {"code": 1.0}),
        ComposedPhase(STEP * 4000, {}, {16: 1}),
    ]
    plan = plan_phases(mixes, stock, STEP)
    wanted = [
        {"web/8": 0.175, "web/32": 0.525, "code/8": 0.075, "code/32": 0.225},
        {"web/8": 0.2, "code/16": 0.8},
        {"code/8": 8 / 56, "code/16": 16 / 56, "code/32": 32 / 56},
        {"web/16": 0.5, "code/16": 0.5},
    ]
    for totals, asked, shares in zip(plan.steps.phases, plan.asked, wanted, strict=True):
        for name, tokens in totals.tokens.items():
            assert asked[name] == pytest.approx(shares.get(name, 0), abs=0.03)
            assert tokens / (STEP * 4000) == pytest.approx(asked[name], abs=0.02)


def test_capacities_are_spread_over_every_sixteen_steps():
    stock = [BucketStock("", capacity, 10_000) for capacity in (8, 16, 32)]
    found = plan_phases([ComposedPhase(STEP * 100, {}, {8: 0.5, 16: 0.25, 32: 0.25})], stock, STEP, seed=1).capacities
    for first in range(0, 96, 16):
        assert Counter(found[first : first + 16].tolist()) == {8: 8, 16: 4, 32: 4}
    assert len({tuple(found[first : first + 16]) for first in range(0, 96, 16)}) == 6


def test_a_phase_goes_on_where_the_one_before_it_stopped_and_the_prefix_stays():
    data = dataset({"8": 200, "32": 50})
    one = ComposedBatches(data, STEP, [ComposedPhase(STEP * 10, {}, {8: 1})])
    two = ComposedBatches(data, STEP, [Phase(STEP * 10, {"8": 1}), {"duration_tokens": STEP * 20}])
    first, both = global_steps([one]), global_steps([two])
    assert both[:10] == first
    assert two.plan.steps.phase_of(10) == 1
    more = ComposedBatches(data, STEP, [{"duration_tokens": STEP * 15, "mix": {"8": 1}}])
    more.load_state_dict(one.state_dict())
    assert len(global_steps([more])) == 5


def test_where_a_bucket_runs_dry_is_known_before_training():
    mix = [{"duration_tokens": STEP * 20, "mix": {"web/32": 1, "code": 1}}]
    with pytest.raises(LoaderError, match=r"bucket 'web/32' runs dry at step \d+, in phase 1 of 1: it has 288 tokens"):
        ComposedBatches(DATA, STEP, mix)
    with pytest.warns(UserWarning, match="the feed halts there"):
        halting = ComposedBatches(DATA, STEP, mix, on_exhausted="halt", world_size=2)
    list(halting)
    dry = halting.plan.steps.drained[0].sample
    assert str(halting.status) == f"halted: bucket 'web/32' is exhausted at step {dry}, in phase 1"
    with pytest.warns(UserWarning, match="the other weights are renormalised"):
        resumed = ComposedBatches(DATA, STEP, mix, on_exhausted="renormalize")
    resumed.load_state_dict(halting.state_dict())
    assert {capacity for capacity, _ in global_steps([resumed])} in ({8, 16}, {16})
    repeated = ComposedBatches(DATA, STEP, mix, epochs={"web/32": 3, "code": 2})
    assert repeated.report.stock["web/32"].epochs == 3
    with pytest.raises(LoaderError, match=r"everything runs dry at step 23, .* epochs=2"):
        ComposedBatches(DATA, STEP, [{"duration_tokens": STEP * 24}])
    with pytest.raises(LoaderError, match=r"bucket '8' runs dry at step 7, .* epochs=\{'8': 2\}"):
        ComposedBatches(DATA, STEP, [{"duration_tokens": STEP * 8, "capacities": {8: 1}}])


def test_after_a_phase_that_runs_dry_the_next_one_has_its_own_budget():
    phases = [{"duration_tokens": STEP * 100, "capacities": {8: 1}}, {"duration_tokens": STEP * 4}]
    with pytest.warns(UserWarning, match=r"tokens, and .*; at step 7 nothing of the mix of phase 1 is left, and phase"):
        feed = ComposedBatches(DATA, STEP, phases, on_exhausted="renormalize")
    assert "renormalised" not in feed.report.warnings[0]
    found = [capacity for capacity, _ in global_steps([feed])]
    assert (found[:7], len(found), feed.status.state) == ([8] * 7, 7 + 4, "finished")
    with pytest.warns(UserWarning, match="the feed halts there, and phase 2 is not trained"):
        assert len(ComposedBatches(DATA, STEP, phases, on_exhausted="halt")) == 7
    with pytest.warns(UserWarning, match="at step 11 nothing of the mix of phase 3 is left, and the feed halts"):
        last = ComposedBatches(DATA, STEP, [*phases, phases[0]], on_exhausted="renormalize")
    list(last)
    assert str(last.status) == "halted: every bucket of the mix is exhausted at step 11, in phase 3"


@pytest.mark.parametrize(
    ("mix", "steps"),
    [
        ({"capacities": {8: 1, 32: 3}}, 90),
        ({"mix": {"web": 3, "code/8": 1}}, 120),
        ({"mix": {"web/32": 1}}, 40),
        ({}, 90),
    ],
)
def test_epochs_that_are_said_to_be_enough_are(mix, steps):
    phases = [{"duration_tokens": STEP * 7, "mix": {"web/8": 1}} if mix else {"duration_tokens": STEP}]
    phases += [{"duration_tokens": STEP * steps} | mix]
    with pytest.raises(LoaderError, match="runs dry") as raised:
        ComposedBatches(DATA, STEP, phases)
    epochs = ast.literal_eval(re.search(r"epochs=(\{.*?\}|\d+)", str(raised.value))[1])
    assert max(epochs.values() if mix else [epochs]) > 3
    feed = ComposedBatches(DATA, STEP, phases, epochs=epochs)
    assert len(feed) == steps + (7 if mix else 1)
    phases[1]["duration_tokens"] = 10**12
    with pytest.raises(LoaderError, match=r"tokens?, .* which would take [\d,]{9,} epochs or more: lower .*budgets$"):
        ComposedBatches(DATA, STEP, phases)


def test_a_report_says_what_comes_of_it():
    report = lc.loading.validate(DATA, [{"duration_tokens": STEP * 99, "mix": {"web/8": 1}}], tokens_per_step=STEP)
    assert not report.ok
    assert str(report).splitlines()[3:] == [
        "bucket   web/16: 20 samples, 320 tokens; asked for 0, delivers 0",
        "bucket   web/32: 9 samples, 288 tokens; asked for 0, delivers 0",
        "phase 1  steps 0 to 5, 384 tokens: web/8 100.00% (asked 100.00%)",
        "total    6 steps of 64 tokens, padding included: 48 samples, 384 tokens",
        *(
            f"note     {left} of the samples of {each} tokens are in no step"
            for each, left in ((8, 12), (16, 50), (32, 9))
        ),
        f"ERROR    {report.problems[0]}",
    ]
    with pytest.raises(LoaderError, match="a ComposedPhase needs a composed dataset"):
        lc.loading.validate("anywhere", [ComposedPhase(8)])


def test_ranks_that_have_padding_alone_are_warned_of():
    data = dataset({"8": 65, "16": 34})
    with pytest.warns(UserWarning, match="the last step of 8 has samples for 1 of 4 ranks and padding") as warned:
        feeds = ranks(4, data, 512, last_step="fill", schedule="short-first")
    assert len(warned) == 4 * 2
    assert [int((feed[1]["labels"] != IGNORED).sum() > 0) for feed in feeds] == [1, 0, 0, 0]
    assert not ComposedBatches(data, 512, last_step="fill").report.warnings


def test_what_is_left_is_dropped_or_filled():
    with pytest.warns(UserWarning, match="in no step, which takes") as warned:
        dropped = ComposedBatches(DATA, 512)
    assert [str(each.message)[:60] for each in warned] == [
        "60 of the samples of 8 tokens are in no step, which takes 64",
        "18 of the samples of 16 tokens are in no step, 36.0% of them",
        "9 of the samples of 32 tokens are in no step, which takes 16",
    ]
    assert "WARNING  18 of the samples of 16 tokens are in no step, 36.0% of them: they do not" in str(dropped.report)
    little = ComposedBatches(dataset({"8": 64 * 30 + 63, "32": 16 * 90}), 512).report
    assert (little.notes[0][:52], little.warnings) == ("63 of the samples of 8 tokens are in no step, 3.2% o", ())
    much = ComposedBatches(dataset({"8": 64 + 60, "16": 32 * 200 + 1}), 512).report
    assert [each[:4] for each in (*much.warnings, *much.notes)] == ["60 o", "1 of"]
    steps = global_steps(ranks(2, tokens_per_step=512, last_step="fill"))
    assert sorted(len(samples) for _, samples in steps) == [9, 18, 32, 60]
    batch = ComposedBatches(DATA, 512, schedule="long-first", last_step="fill")[0]
    assert (batch["n_tokens"][9:] == 0).all()
    assert (batch["labels"][9:] == IGNORED).all()
    assert batch["input_ids"][9:].tolist() == [[PAD] * 32] * 7
    assert [lengths.tolist() for lengths in batch["seq_lengths"][9:]] == [[32]] * 7
    lc.loading.collators.for_flash_attention(batch, tensors="numpy")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"world_size": 3}, "on 3 ranks that is not a whole number of samples of 8, 16, 32 tokens on each: give a mul"),
        ({"world_size": 3}, "give a multiple of 96, such as 96, 192, 288; or a world_size of 1, 2"),
        ({"tokens_per_step": 100}, "give a multiple of 32, such as 64, 96, 128, 160"),
        ({"tokens_per_step": 0}, "give a multiple of 32, such as 32"),
        ({"tokens_per_step": 1 << 20}, "the plan has no step: lower tokens_per_step or cycles"),
        ({"split": "val"}, "no samples in split 'val' of the dataset; splits: 'train'"),
        ({"epochs": 0}, "epochs of 'the data' is 0"),
        ({"epochs": {"math": 2}}, "epochs names 'math', which does not exist; known: 'code/8'"),
        ({"schedule": "random"}, "ComposedBatches.schedule takes one of 'mixed', 'short-first'"),
        ({"cycles": 3}, "need a growing schedule, got 'mixed': set schedule='grow-p2' or 'grow-linear'"),
        ({"schedule": "grow-p2", "cycles": 0}, "cycles is 0: set it to 1 or more"),
        ({"schedule": "short-first", "curriculum": [ComposedPhase(8)]}, "remove one or the other"),
        ({"curriculum": [ComposedPhase(8)], "training_tokens": 16}, "the phases have budgets of 8 tokens"),
        ({"curriculum": [ComposedPhase(8, {"math": 1})]}, "phase 1 draws from 'math', which is not there"),
        ({"curriculum": [ComposedPhase(8, {}, {64: 1})]}, "from capacity 64, which does not exist; known: 8, 16, 32"),
        ({"curriculum": [ComposedPhase(8, {"web/8": 1}, {8: 1})]}, "'web/8' in its mix is not a domain; known: 'code'"),
        ({"curriculum": [ComposedPhase(8, {"code": 1}, {32: 1})]}, "phase 1 draws from 'code/32', which is not there"),
        ({"curriculum": [{"duration_tokens": 0}]}, "duration_tokens is 0: set it to 1 or more"),
        ({"curriculum": [{"duration_tokens": 1, "capacities": {"x": 1}}]}, "capacity 'x' is not a number"),
        ({"curriculum": [{"duration_tokens": 1, "mix": {"web": -1}}]}, "the weight of bucket 'web' is -1"),
        ({"curriculum": [{"duration_tokens": 1, "capacities": {8: 0}}]}, "capacities has no positive weight"),
        ({"curriculum": None}, "a curriculum is a list of phases, got None: write"),
        ({"curriculum": {"duration_tokens": 8}}, "a curriculum is a list of phases, got {'duration_tokens': 8}"),
        ({"curriculum": ["web"]}, "phase 1 is 'web': give its duration_tokens"),
        ({"pad_token": -5}, "pad_token -5 is not an id of uint32 tokens: set it from 0 to 4,294,967,295"),
        ({"curriculum": [{"tokens": 1}]}, "phase 1 has no field 'tokens'; known: capacities, duration_tokens, mix"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(fields, said):
    with pytest.raises(LoaderError, match=re.escape(said)):
        ComposedBatches(DATA, **{"tokens_per_step": STEP} | fields)


def other_data():
    return InMemory((*DATA.buckets[:1], Bucket("web", 16, 20, 1050, identity="written again"), *DATA.buckets[2:]))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tokens_per_step": 128}, "tokens_per_step was 64 and is 128, plan up to here was"),
        ({"seed": 1}, "seed was 0 and is 1, plan up to here was"),
        ({"shuffle": "none"}, "shuffle was 'keyed' and is 'none'"),
        ({"positions": "continuous"}, "positions was 'reset' and is 'continuous'"),
        ({"schedule": "long-first"}, "opened here: plan up to here was"),
        (
            {"path": InMemory(DATA.buckets[1:])},
            "buckets were 'code/16', 'code/8', 'web/16', 'web/32', 'web/8' and are 'c",
        ),
        ({"path": other_data()}, "opened here: data of web/16 was 'as written' and is 'written again'"),
    ],
)
def test_a_state_of_something_else_is_refused_and_what_changed_is_named(fields, said):
    opened = {"path": DATA, "tokens_per_step": STEP}
    feed = ComposedBatches(**opened)
    for _ in range(5):
        next(iter(feed))
    other = ComposedBatches(**opened | fields)
    with pytest.raises(LoaderError, match=re.escape(said)):
        other.load_state_dict(feed.state_dict())
    assert other.state_dict()["position"] == 0
    with pytest.raises(LoaderError, match="buckets were none and are 'code/16'"):
        feed.load_state_dict(feed.state_dict() | {"data": None})


@pytest.fixture(scope="module")
def compose(tmp_path_factory):
    """Return what writes forty documents into samples of 8 and 16 tokens, and gives their folder."""

    def write(end_of_text=7, token=20, *, trained=True, **fields):
        chance = np.random.default_rng(0)
        documents = [chance.integers(8, 100, size).tolist() for size in np.tile([3, 6, 10, 14], 10)]
        masks = [[True] * len(tokens) for tokens in documents]
        documents[5][2], masks[5][3], masks[6][0] = token, trained, False
        rows = {"id": [str(row) for row in range(40)], "tokens": documents, "loss_mask": masks}
        rows["source"] = ["web", "a b"] * 20
        table = pa.table(rows).set_column(1, "tokens", pa.array(documents, pa.list_(pa.uint16())))
        folder = tmp_path_factory.mktemp("composed") / "out"
        lc.Crawl(Dataset(table)).to_composed(folder, capacities=[8, 16], end_of_text=end_of_text, **fields)
        return folder

    return write


@pytest.mark.variants
@pytest.mark.parametrize("stored_as", ["zarr", "datatrove"])
def test_a_state_is_of_the_content_of_a_composed_dataset(compose, stored_as):
    feed = ComposedBatches(compose(format=stored_as), 32)
    next(iter(feed))
    state = json.loads(json.dumps(feed.state_dict()))
    again = ComposedBatches(compose(format=stored_as), 32)
    again.load_state_dict(state)
    assert [ids(batch) for batch in again] == [ids(batch) for batch in feed]
    for changed in ({"token": 21}, {"trained": False}, {"end_of_text": 6}):
        other = ComposedBatches(compose(format=stored_as, **changed), 32)
        with pytest.raises(LoaderError, match=r"as opened here: .*data of (8|16) was"):
            other.load_state_dict(state)
    with pytest.raises(LoaderError, match="opened here: pad_token was 7 and is 6; open it the same way"):
        ComposedBatches(feed.path, 32, pad_token=6).load_state_dict(state)
    with pytest.raises(LoaderError, match="pad_token 70000 is not an id of uint16 tokens: set it from 0 to 65,535"):
        ComposedBatches(feed.path, 32, pad_token=70_000)
    with pytest.raises(lc.errors.FormatError, match=r"composed.json is a file, .*: give .*out"):
        ComposedBatches(feed.path / "composed.json", 32)


def test_a_composed_dataset_is_validated_by_steps(compose):
    folder, phases = compose(), [{"duration_tokens": 64, "capacities": {16: 1}}]
    for path in (folder, DATA):
        with pytest.raises(LoaderError, match="is a composed dataset: give tokens_per_step to lc.loading.validate"):
            lc.loading.validate(path, phases)
    assert lc.loading.validate(folder, phases, tokens_per_step=32).ok


def test_domains_are_called_by_their_values(compose):
    folder = compose(domains="source")
    assert sorted(each.name for each in (folder / "train").iterdir() if each.is_dir()) == ["a~20b", "web"]
    phases = [{"duration_tokens": 64, "mix": {"a b": 1}}, {"duration_tokens": 64, "mix": {"a b/16": 1, "web": 1}}]
    feed = ComposedBatches(folder, 32, phases, epochs={"a b": 2})
    assert {each.stock.name: each.epochs for each in feed.buckets}["a b/16"] == 2
    assert "bucket   a b/16: " in str(feed.report)
    composed = lc.formats.open_composed(folder)
    found = feed[0]["input_ids"].tolist()
    bucket = composed.bucket(len(found[0]), domain="a b")
    assert bucket.path == f"train/a~20b/{bucket.capacity}"
    assert {tuple(row) for row in bucket.read(range(len(bucket))).tokens.tolist()} >= set(map(tuple, found))
    with pytest.raises(lc.errors.FormatError, match="has no bucket train/sea/16; known: train/a b/8, "):
        composed.bucket(16, domain="sea")
