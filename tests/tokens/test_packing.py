"""Packing against naive oracles: which entries go together, and what every token, label and position then is."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.formats import TokenShard
from longcrawl.tokens import BestFit, BinnedGreedy, FirstFit, Packing
from longcrawl.tokens.strategies import binned_greedy

END, PAD = 0, 9
LENGTHS = st.lists(st.integers(0, 40), max_size=60)


def naive_greedy(sizes: list[int], capacity: int, bin_of: list[int], look_at: int) -> list[list[int]]:
    bins = [[item for item, size in enumerate(sizes) if bin_of[size] == number] for number in range(max(bin_of) + 1)]
    samples: list[list[int]] = []
    while any(bins):
        sample: list[int] = []
        room = capacity
        at = max(number for number, items in enumerate(bins) if items)
        while at >= 0:
            fits = next((item for item in bins[at][:look_at] if sizes[item] <= room), None)
            if fits is None:
                at -= 1
                continue
            bins[at].remove(fits)
            sample.append(fits)
            room -= sizes[fits]
            if room == 0:
                break
            at = bin_of[room]
        samples.append(sample)
    return samples


@given(st.lists(st.integers(1, 30), max_size=60), st.integers(1, 4), st.integers(1, 8))
def test_binned_greedy_is_what_a_naive_one_does(sizes, look_at, width):
    bin_of = [size // width for size in range(31)]
    numbers = np.empty(len(sizes), np.int64)
    count = binned_greedy(np.array(sizes, np.int64), 30, np.array(bin_of), look_at, numbers)
    made = [sorted(np.flatnonzero(numbers == sample).tolist()) for sample in range(count)]
    assert made == [sorted(sample) for sample in naive_greedy(sizes, 30, bin_of, look_at)]


@given(LENGTHS, st.integers(1, 32), st.integers(1, 9) | st.none())
def test_every_token_of_every_entry_is_in_one_sample(lengths, capacity, pool_size):
    for strategy in (BinnedGreedy(capacity, pool_size), FirstFit(capacity, pool_size=pool_size), BestFit(capacity)):
        plan = strategy.plan(lengths)
        assert (plan.tokens <= capacity).all()
        assert (plan.tokens > 0).all()
        counted = [np.zeros(length, int) for length in lengths]
        for document, start, size in zip(plan.documents, plan.starts, plan.sizes, strict=True):
            counted[document][start : start + size] += 1
        assert all((each == 1).all() for each in counted)


def test_binned_greedy_pads_about_as_little_as_best_fit():
    lengths = np.random.default_rng(0).geometric(1 / 300, 20_000)
    used = {type(each): lengths.sum() / (2048 * len(each.plan(lengths))) for each in (BinnedGreedy(), BestFit())}
    assert used[BinnedGreedy] > 0.995 * used[BestFit]


@st.composite
def shards(draw) -> TokenShard:
    lengths = draw(st.lists(st.integers(0, 20), min_size=1, max_size=12))
    total = sum(lengths)
    tokens = draw(st.lists(st.integers(0, 3), min_size=total, max_size=total))
    overlaps = [draw(st.integers(0, length)) for length in lengths] if draw(st.booleans()) else None
    mask = draw(st.lists(st.booleans(), min_size=total, max_size=total)) if draw(st.booleans()) else None
    return TokenShard(
        "made",
        "-",
        np.array(tokens, draw(st.sampled_from([np.uint16, np.uint32]))),
        np.cumsum(lengths),
        None if overlaps is None else np.array(overlaps, np.uint16),
        None if mask is None else np.array(mask, bool),
    )


def naive_sample(shard: TokenShard, packing: Packing, pieces: list[tuple[int, int, int]]) -> list[list[int]]:
    rows: list[list[int]] = []
    for number, (document, start, size) in enumerate(pieces):
        for place in range(size):
            at = shard.start(document) + start + place
            token, counts = int(shard.tokens[at]), True
            counts &= shard.overlaps is None or start + place >= shard.overlaps[document]
            counts &= shard.loss_mask is None or bool(shard.loss_mask[at])
            counts &= packing.mask_first != "every-piece" or place > 0
            after_end = bool(rows) and rows[-1][0] == END
            counts &= packing.mask_first != "after-end-of-text" or not after_end
            position = place if packing.positions == "reset" else len(rows)
            rows.append([token, token if counts else -100, position, number])
    padding = range(packing.max_length - len(rows))
    return rows + [[PAD, -100, place if packing.positions == "reset" else 0, len(pieces)] for place in padding]


@given(
    shards(),
    st.integers(1, 25),
    st.sampled_from(["length-binned", "best-fit", "first-fit"]),
    st.sampled_from(["continuous", "reset"]),
    st.sampled_from(["every-piece", "after-end-of-text", "none"]),
)
def test_samples_are_what_a_naive_loop_gives(shard, max_length, strategy, positions, mask_first):
    packing = Packing(max_length, strategy, positions, mask_first, END, PAD)
    plan = packing.plan(np.diff(shard.ends, prepend=0))
    made = packing.fill(shard, plan)
    assert list(made) == ["input_ids", "labels", "position_ids", "doc_ids", "n_tokens", "seq_lengths"]
    tokens, lengths = made.pop("n_tokens"), made.pop("seq_lengths")
    for sample, (first, stop) in enumerate(itertools.pairwise(plan.bounds.tolist())):
        pieces = [tuple(map(int, each)) for each in zip(plan.documents, plan.starts, plan.sizes, strict=True)]
        wanted = naive_sample(shard, packing, pieces[first:stop])
        assert np.stack([values[sample] for values in made.values()], axis=1).tolist() == wanted
        sizes = plan.sizes[first:stop].tolist()
        padding = max_length - sum(sizes)
        assert lengths[sample].tolist() == sizes + [padding] * (padding > 0)
        assert tokens[sample] == sum(sizes)


def shard_of(*documents: list[int], **more) -> TokenShard:
    tokens = np.array([token for each in documents for token in each], np.uint16)
    return TokenShard("made", "-", tokens, np.cumsum([len(each) for each in documents]), **more)


def test_some_samples_are_those_of_all():
    shard = shard_of(*([1] * n for n in (5, 4, 3, 6, 2)))
    packing = Packing(6)
    plan = packing.plan([5, 4, 3, 6, 2])
    whole = packing.fill(shard, plan)
    for chosen in ([2, 0], slice(1, 3), [-1]):
        some = packing.fill(shard, plan, chosen)
        lengths = [whole["seq_lengths"][at].tolist() for at in np.arange(len(plan))[chosen]]
        assert [each.tolist() for each in some.pop("seq_lengths")] == lengths
        assert all(np.array_equal(values, whole[name][chosen]) for name, values in some.items())
    assert packing.fill(shard, plan, [])["labels"].shape == (0, 6)
    with pytest.raises(IndexError):
        packing.fill(shard, plan, [len(plan)])


def test_windows_of_one_document_have_a_number_each():
    """GPT-Simple finds documents by their end of text, which windows but the last do not have."""
    shard = shard_of([1, 1], [1, 1], [1, 0])
    packing = Packing(8)
    assert packing.fill(shard, packing.plan([2, 2, 2]))["doc_ids"].tolist() == [[0, 0, 1, 1, 2, 2, 3, 3]]


def test_packing_reads_a_mapped_shard_of_windows(tmp_path):
    data = lc.Crawl(lc_dataset()) | lc.tokens.Windows(8, 3)
    data.to_gpt_simple(tmp_path / "out", end_of_text=END)
    shard = lc.formats.open_shard(tmp_path / "out/train/00000.bin")
    packing = Packing(8, "first-fit", end_of_text=END)
    made = packing.fill(shard, packing.plan(np.diff(shard.ends, prepend=0)))
    counted = np.sort(made["labels"][made["labels"] > 0])
    firsts = sum(int(shard.tokens[shard.start(n)]) > 0 and shard.overlaps[n] == 0 for n in range(len(shard)))
    assert len(counted) == 20 + 7 + 1 - firsts


def lc_dataset():
    from datasets import Dataset

    return Dataset.from_dict(
        {"id": ["a", "b", "c"], "tokens": [list(range(1, 21)), list(range(1, 8)), [5]]},
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mask_first": "after-end-of-text"}, "set end_of_text to its id"),
        ({"strategy": "best-fit", "pool_size": 4}, "plans all entries together: remove pool_size"),
        ({"max_length": 0}, "capacities of Packing must ascend, from 1"),
        ({"padding": -1}, "Packing.padding must be a token id, 0 or more, got -1"),
        ({"positions": "none"}, "takes one of 'continuous', 'reset', got 'none'"),
        ({"pool_size": 0}, "BinnedGreedy.pool_size is 0: set it to 1 or more documents"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(StageError, match=said):
        Packing(**settings).plan([1])


def test_a_plan_of_other_entries_is_refused():
    packing = Packing(8)
    shard = shard_of([1, 2], [3])
    for lengths in ([2, 1, 1], [1, 2]):
        with pytest.raises(StageError, match="the plan is for . entries and got 2, or the lengths of some differ"):
            packing.fill(shard, packing.plan(lengths))
    with pytest.raises(StageError, match="sequences of lengths other than 8: plan with this"):
        packing.fill(shard, Packing(4).plan([2, 1]))
