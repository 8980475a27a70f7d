"""Packed feeds against a naive reading of their shards, under any topology, interruption and change of data."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, LoaderError
from longcrawl.loading import Packed, Phase
from longcrawl.tokens.packing import plan_packing

MIX = [Phase(1000, {"web": 0.6, "code": 0.4}), Phase(1500, {"web": 0.5, "code": 0.3, "math": 0.2})]
IGNORED = -100


def tokens_in(samples) -> list[int]:
    return [token for row, _ in samples for token in row if token]


WHOLE = {}


def whole_pass(path, global_samples, **fields):
    """Return all global samples as one rank has them, read once for the same fields."""
    key = (path, *(str(each) for each in sorted(fields.items())))
    if key not in WHOLE:
        feed = Packed(path, batch_size=1, **fields)
        WHOLE[key] = [sample for batch in feed for sample in global_samples([batch])]
    return WHOLE[key]


def in_segments(path, global_samples, segments, **fields):
    """Return all global samples of runs that follow each other: (steps, world size, batch size, workers) of each."""
    state, samples = None, []
    for steps, world_size, batch_size, *workers in [*segments, (10**6, 1, 1)]:
        feeds = [Packed(path, rank=rank, world_size=world_size, batch_size=batch_size, **fields)
                 for rank in range(world_size)]  # fmt: skip
        for feed in feeds if state else []:
            feed.load_state_dict(state)
        loops = [feed.dataloader(*workers) for feed in feeds] if any(workers) else feeds
        for _, batches in zip(range(steps), zip(*loops, strict=True), strict=False):
            samples += global_samples(list(batches))
            states = [feed.state_dict() for feed in feeds]
            assert all(each == states[0] for each in states)
            state = states[0]
    return samples


packings = st.sampled_from(["in-order", "length-binned", "best-fit"])
topologies = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(1, 4)), max_size=4)


@given(topologies, st.sampled_from([16, 33, 64]), st.sampled_from(["drop", "fill"]), packings)
def test_every_token_is_delivered_once_however_it_is_interrupted(
    buckets, global_samples, segments, max_length, last_batch, packing
):
    fields = {"max_length": max_length, "last_batch": last_batch, "packing": packing}
    samples = in_segments(buckets, global_samples, segments, **fields)
    written = [shard.tokens for bucket in Packed(buckets, **fields).buckets.values() for shard in bucket.shards]
    assert sorted(tokens_in(samples)) == sorted(np.concatenate(written).tolist())
    assert samples == whole_pass(buckets, global_samples, **fields)


with_workers = st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(1, 4), st.sampled_from([0, 2]))


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.lists(with_workers, min_size=1, max_size=2), packings, st.sampled_from([(), MIX]))
def test_numbers_of_workers_that_change_at_stops_change_nothing(buckets, global_samples, segments, packing, curriculum):
    pytest.importorskip("torch", reason="worker processes are torch's")
    fields = {"max_length": 32, "packing": packing, "curriculum": curriculum}
    assert in_segments(buckets, global_samples, segments, **fields) == whole_pass(buckets, global_samples, **fields)


@pytest.mark.slow
@given(topologies)
def test_a_curriculum_is_the_same_sequence_under_any_topology(buckets, global_samples, segments):
    fields = {"curriculum": MIX, "max_length": 32}
    assert in_segments(buckets, global_samples, segments, **fields) == whole_pass(buckets, global_samples, **fields)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=60), st.integers(2, 30), st.sampled_from(["in-order", "separate"]))
def test_a_packing_in_order_has_every_token_once_and_in_order(lengths, max_length, packing):
    plan = plan_packing(np.array(lengths, np.int64), max_length, packing)
    found = [
        (document, token)
        for document, start, size in zip(plan.documents, plan.starts, plan.sizes, strict=True)
        for token in range(start, start + size)
    ]
    assert found == [(document, token) for document, length in enumerate(lengths) for token in range(length)]
    samples = [plan.sizes[first:stop] for first, stop in zip(plan.bounds[:-1], plan.bounds[1:], strict=True)]
    assert all(1 <= sizes.sum() <= max_length for sizes in samples)
    if packing == "separate":
        assert all(len(sizes) == 1 for sizes in samples)
    else:
        nexts = [sizes[0] for sizes in samples[1:]]
        assert all(sizes.sum() + first > max_length for sizes, first in zip(samples, nexts, strict=False))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 50), max_size=60), st.integers(2, 30),
    st.sampled_from(["length-binned", "best-fit", "first-fit"]),
)  # fmt: skip
def test_packings_that_fit_are_those_of_tokens(lengths, max_length, packing):
    plan = plan_packing(np.array(lengths, np.int64), max_length, packing)
    wanted = lc.tokens.Packing(max_length, packing).plan(lengths)
    for name in ("bounds", "documents", "starts", "sizes"):
        assert np.array_equal(getattr(plan, name), getattr(wanted, name))


def test_short_documents_are_packed_with_little_padding_unless_asked_otherwise(tmp_path, write_shards):
    lengths = np.random.default_rng(0).geometric(1 / 20, 3000)
    write_shards(tmp_path, lengths.tolist())
    rows = {packing: len(Packed(tmp_path, max_length=80, batch_size=1, packing=packing))
            for packing in ("length-binned", "in-order")}  # fmt: skip
    assert len(Packed(tmp_path, max_length=80, batch_size=1)) == rows["length-binned"]
    assert rows["length-binned"] * 80 < 1.02 * lengths.sum()
    assert rows["in-order"] * 80 > 1.2 * lengths.sum()


def naive_row(pieces, max_length, positions):
    """Return tokens, labels, positions, document ids and lengths of a row: (document, start, size, overlap) each."""
    row = {name: [] for name in ("input_ids", "labels", "position_ids", "doc_ids")}
    lengths = []
    for number, (document, start, size, overlap) in enumerate(pieces):
        for place in range(size):
            token = document[start + place]
            row["input_ids"].append(token)
            row["labels"].append(IGNORED if place == 0 or start + place < overlap else token)
            row["position_ids"].append(place)
            row["doc_ids"].append(number)
        lengths.append(size)
    padding = max_length - sum(lengths)
    row["input_ids"] += [0] * padding
    row["labels"] += [IGNORED] * padding
    row["position_ids"] += list(range(padding))
    row["doc_ids"] += [len(pieces)] * padding
    if positions == "continuous":
        row["position_ids"] = [*range(sum(lengths)), *[0] * padding]
    return row | {"seq_lengths": lengths + [padding] * (padding > 0), "n_tokens": sum(lengths)}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=20).filter(
        lambda documents: any(length for length, _ in documents)
    ),
    st.integers(2, 20),
    st.sampled_from(["length-binned", "best-fit", "first-fit", "in-order", "separate"]),
    st.sampled_from(["reset", "continuous"]),
    st.integers(1, 3),
)
def test_rows_are_what_a_naive_reading_gives(tmp_path_factory, write_shards, made, max_length, packing, positions, n):
    assume(n == 1 or (n <= len(made) and all(length for length, _ in made)))
    folder = tmp_path_factory.mktemp("rows")
    overlaps = [min(overlap, length) for length, overlap in made]
    documents = write_shards(folder, [length for length, _ in made], shards=n, overlap=overlaps)
    feed = Packed(folder, max_length=max_length, batch_size=1, shuffle="none", packing=packing, positions=positions)
    plan = plan_packing(np.array([length for length, _ in made]), max_length, packing)
    assert len(feed) == len(plan.bounds) - 1
    for number, batch in enumerate(feed):
        pieces = [
            (documents[plan.documents[piece]], int(plan.starts[piece]), int(plan.sizes[piece]),
             overlaps[plan.documents[piece]])
            for piece in range(plan.bounds[number], plan.bounds[number + 1])
        ]  # fmt: skip
        wanted = naive_row(pieces, max_length, positions)
        assert {name: values[0].tolist() for name, values in batch.items()} == wanted


def test_what_a_batch_has(buckets):
    batch = Packed(buckets, max_length=32, batch_size=5)[0]
    for name in ("input_ids", "labels", "position_ids", "doc_ids"):
        assert batch[name].shape == (5, 32)
        assert batch[name].dtype == np.int64
    assert [int(lengths.sum()) for lengths in batch["seq_lengths"]] == [32] * 5


def test_a_loss_mask_has_no_labels(tmp_path):
    table = pa.table({"tokens": [[1, 2, 3, 4], [5, 6]], "loss_mask": [[True, True, False, True], [True, False]]})
    lc.formats.datatrove.write([table], tmp_path / "a.ds")
    batch = next(iter(Packed(tmp_path, max_length=8, batch_size=1)))
    assert batch["labels"].tolist() == [[IGNORED, 2, IGNORED, 4, IGNORED, IGNORED, IGNORED, IGNORED]]


@pytest.mark.variants
@pytest.mark.parametrize("name", ["datatrove", "gpt_simple", "megatron", "token_parquet"])
def test_every_format_gives_the_same_batches(tmp_path, write_shards, global_samples, name):
    lengths = [5, 0, 17, 3, 8, 1, 30]
    write_shards(tmp_path / "one", lengths)
    write_shards(tmp_path / "other", lengths, name=name)
    one, other = (whole_pass(tmp_path / each, global_samples, max_length=16) for each in ("one", "other"))
    assert one == other


def test_a_flat_file_is_read_by_its_end_of_text(tmp_path):
    np.array([7, 8, 0, 9, 0], np.uint16).tofile(tmp_path / "a.bin")
    feed = Packed(tmp_path, max_length=5, batch_size=1, format="nanogpt", end_of_text=0)
    batch = feed[0]
    assert batch["seq_lengths"][0].tolist() == [3, 2]
    assert batch["input_ids"].tolist() == [[7, 8, 0, 9, 0]]


def test_padding_is_the_end_of_text_where_it_is_known(tmp_path, write_shards):
    write_shards(tmp_path, [3])
    assert Packed(tmp_path, max_length=4, batch_size=1)[0]["input_ids"].tolist() == [[1, 2, 3, 0]]
    assert Packed(tmp_path, max_length=4, batch_size=1, end_of_text=9)[0]["input_ids"].tolist() == [[1, 2, 3, 9]]
    assert Packed(tmp_path, max_length=4, batch_size=1, pad_token=8)[0]["input_ids"].tolist() == [[1, 2, 3, 8]]


def test_ids_are_compared_with_a_vocabulary_as_they_are_delivered(tmp_path, write_shards):
    write_shards(tmp_path, [4] * 6)
    feeds = [Packed(tmp_path, max_length=8, batch_size=1, shuffle="none", vocabulary_size=20, rank=rank, world_size=2)
             for rank in range(2)]  # fmt: skip
    assert feeds[0][0]["input_ids"].max() < 20
    whole = Packed(tmp_path, max_length=8, batch_size=3, shuffle="none")
    sample, place = np.argwhere(whole[0]["input_ids"] >= 20)[0]
    said = f"sample {sample} of {tmp_path}, place {place}, has id 20, the vocabulary has 20: check vocabulary_size"
    with pytest.raises(CorruptionError, match=re.escape(said)):
        Packed(tmp_path, max_length=8, batch_size=3, shuffle="none", vocabulary_size=20)[0]
    with pytest.raises(CorruptionError, match="has id 20 at byte"):
        Packed(tmp_path, max_length=8, vocabulary_size=20, check="everything")
    with pytest.raises(LoaderError, match="pad_token 20 is not an id of a vocabulary of 20"):
        Packed(tmp_path, max_length=8, vocabulary_size=20, pad_token=20)


def test_each_epoch_has_all_samples_in_an_order_of_its_own(buckets, global_samples):
    once = whole_pass(buckets, global_samples, max_length=32)
    twice = whole_pass(buckets, global_samples, max_length=32, epochs=2)
    first, second = twice[: len(once)], twice[len(once) :]
    assert first == once
    assert first != second
    assert sorted(first) == sorted(second)
    assert whole_pass(buckets, global_samples, max_length=32, seed=1) != once


def test_phases_go_on_in_a_bucket_where_the_one_before_stopped(buckets, global_samples):
    half = [Phase(700, {"web": 1}), Phase(700, {"web": 1})]
    samples = whole_pass(buckets, global_samples, curriculum=half, max_length=32)
    feed = Packed(buckets, half, max_length=32, batch_size=4)
    phases = [feed.phase for _ in feed]
    assert (phases[0], phases[-1]) == (0, 1)
    assert samples == whole_pass(buckets, global_samples, curriculum=[Phase(1400, {"web": 1})], max_length=32)
    assert len(set(tokens_in(samples))) == len(tokens_in(samples))


def test_what_a_packing_fills_goes_into_collators_as_a_feeds_batches_do(tmp_path, write_shards):
    write_shards(tmp_path, [5, 9, 3, 1, 7], shards=1)
    shard, packing = lc.formats.open_shard(tmp_path / "0.bin"), lc.tokens.Packing(12, positions="reset")
    made = packing.fill(shard, packing.plan(np.diff(shard.ends, prepend=0)))
    batch = Packed(tmp_path, max_length=12, batch_size=len(made["input_ids"]), shuffle="none")[0]
    assert made.keys() == batch.keys()
    for collate in (lc.loading.collators.for_flash_attention, lc.loading.collators.for_flex_attention):
        one, other = collate(made, tensors="numpy"), collate(batch, tensors="numpy")
        assert {name: np.asarray(each).tolist() for name, each in one.items()} == {
            name: np.asarray(each).tolist() for name, each in other.items()
        }


def test_windows_need_no_collator_and_the_error_says_so(tmp_path, write_shards):
    write_shards(tmp_path, [50])
    with pytest.raises(LoaderError, match="feed; windows need no collator, or for_transformers"):
        lc.loading.collators.for_flash_attention(lc.loading.Windows(tmp_path, 4).batches(2)[0])


def test_a_feed_halts_where_a_bucket_runs_dry(buckets, global_samples):
    mix = [Phase(2000, {"math": 1, "web": 1})]
    with pytest.warns(UserWarning, match="the feed halts there"):
        feeds = [Packed(buckets, mix, max_length=32, batch_size=2, on_exhausted="halt", rank=rank, world_size=2)
                 for rank in range(2)]  # fmt: skip
    assert str(feeds[0].status) == "running"
    for feed in feeds:
        list(feed)
    dry = feeds[0].plan.drained[0].sample
    assert [str(feed.status) for feed in feeds] == [
        f"halted: bucket 'math' is exhausted at sample {dry:,}, in phase 1"
    ] * 2
    assert feeds[0].state_dict()["position"] == dry // 4 * 4
    assert list(feeds[0]) == []


def test_a_halted_feed_goes_on_with_a_renormalised_mix(buckets, global_samples):
    fields = {"curriculum": [Phase(2000, {"math": 1, "web": 1})], "max_length": 32}
    with pytest.warns(UserWarning, match="bucket 'math' runs dry"):
        whole = whole_pass(buckets, global_samples, **fields, on_exhausted="renormalize")
    with pytest.warns(UserWarning, match="the feed halts there"):
        halting = Packed(buckets, **fields, batch_size=3, on_exhausted="halt")
    samples = [sample for batch in halting for sample in global_samples([batch])]
    with pytest.warns(UserWarning, match="the other weights are renormalised"):
        resumed = Packed(buckets, **fields, batch_size=1, on_exhausted="renormalize")
    resumed.load_state_dict(halting.state_dict())
    samples += [sample for batch in resumed for sample in global_samples([batch])]
    assert samples == whole
    assert resumed.status.state == "finished"
    assert len(set(tokens_in(samples))) == len(tokens_in(samples))


def test_the_last_batch_is_filled_with_padding(tmp_path, write_shards):
    write_shards(tmp_path, [4] * 5)
    fields = {"max_length": 4, "batch_size": 3, "world_size": 2, "last_batch": "fill"}
    ranks = [list(Packed(tmp_path, rank=rank, **fields)) for rank in range(2)]
    assert [[batch["n_tokens"].tolist() for batch in batches] for batches in ranks] == [[[4, 4, 4]], [[4, 4, 0]]]
    assert ranks[1][0]["labels"][2].tolist() == [IGNORED] * 4
    with pytest.warns(UserWarning, match="the last step has samples for 1 of 2 ranks and padding alone on the others"):
        Packed(tmp_path, **fields | {"batch_size": 2})


def test_a_packing_of_ones_own(tmp_path, write_shards):
    write_shards(tmp_path, [2, 3, 2])

    class Reversed:
        bounds, documents = np.array([0, 2, 3]), np.array([2, 0, 1])
        starts, sizes = np.array([0, 0, 0]), np.array([2, 2, 3])

        def plan(self, lengths):
            assert lengths.tolist() == [2, 3, 2]
            return self

    named = lc.tokens.Packing(4, "first-fit", positions="reset", pool_size=2)
    wanted = Packed(tmp_path, max_length=4, batch_size=2, shuffle="none", packing="first-fit")
    assert Packed(tmp_path, max_length=4, batch_size=2, packing=named)[0].keys() == wanted[0].keys()
    for packing in (Reversed(), lambda *_: Reversed()):
        feed = Packed(tmp_path, max_length=4, batch_size=2, shuffle="none", packing=packing)
        assert feed[0]["input_ids"].tolist() == [[6, 7, 1, 2], [3, 4, 5, 0]]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"bounds": [0, 2]}, "bounds that do not rise from 0 to its 3 pieces"),
        ({"bounds": [0, 2, 2, 3]}, "bounds that do not rise"),
        ({"documents": [0, 1, 3]}, "a piece of a document that is not one of 3"),
        ({"documents": [0, 1]}, "2 documents and 3 starts for 3 pieces"),
        ({"starts": [0, 0, 1]}, "a piece that ends after its document"),
        ({"starts": [0, 0, -1]}, "a piece without tokens, or before its document"),
        ({"sizes": [2, 0, 2]}, "a piece without tokens"),
        ({"bounds": [0, 3]}, "a sample of more than 5 tokens"),
    ],
)
def test_a_packing_that_is_wrong_is_refused(changed, said):
    arrays = {"bounds": [0, 2, 3], "documents": [0, 1, 2], "starts": [0, 0, 0], "sizes": [2, 3, 2]} | changed
    plan = type("Plan", (), {name: np.array(values) for name, values in arrays.items()})
    with pytest.raises(LoaderError, match=re.escape(f"the packing returned {said}")):
        plan_packing(np.array([2, 3, 2]), 5, lambda *_: plan)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_length": 16}, "max_length was 32 and is 16, packing of bucket 'code' was"),
        ({"seed": 1}, "seed was 0 and is 1, curriculum up to here was"),
        ({"shuffle": "none"}, "shuffle was 'keyed' and is 'none'"),
        ({"positions": "continuous"}, "positions was 'reset' and is 'continuous'"),
        ({"packing": "separate"}, "packing of bucket 'code' was"),
        ({"curriculum": [Phase(1600, {"web": 1, "code": 0.1, "math": 0.1})]}, ": curriculum up to here was"),
        ({"curriculum": [Phase(1600, {"web": 1})]}, "buckets were 'code', 'math', 'web' and are 'web'"),
    ],
)
def test_a_state_of_something_else_is_refused_and_what_changed_is_named(buckets, fields, said):
    opened = {"curriculum": MIX, "max_length": 32, "batch_size": 4}
    feed = Packed(buckets, **opened)
    for _ in range(5):
        next(iter(feed))
    other = Packed(buckets, **opened | fields)
    with pytest.raises(LoaderError, match=re.escape(said)):
        other.load_state_dict(feed.state_dict())
    assert other.state_dict()["position"] == 0


def test_a_state_of_changed_data_names_the_bucket(tmp_path, write_shards):
    for name in ("web", "code"):
        write_shards(tmp_path / "train" / name, [5] * 40)
    mix = [Phase(200, {"web": 1, "code": 1})]
    feed = Packed(tmp_path, mix, max_length=16, batch_size=8)
    next(iter(feed))
    assert set(feed.plan.picks[:8]) == {0, 1}
    state = feed.state_dict()
    (tmp_path / "train" / "web" / "0.bin").rename(tmp_path / "train" / "web" / "0-renamed.bin")
    (tmp_path / "train" / "web" / "0.idx").rename(tmp_path / "train" / "web" / "0-renamed.idx")
    Packed(tmp_path, mix, max_length=16, batch_size=1).load_state_dict(state)
    for file in (tmp_path / "train" / "web").glob("0-renamed.*"):
        file.unlink()
    write_shards(tmp_path / "train" / "web", [5] * 40, first=900)
    said = (
        r"as opened here: size, sampled, first or last bytes changed of .*web/0\.bin or its index or loss mask of "
        r"bucket 'web'; open it the same way"
    )
    with pytest.raises(LoaderError, match=said):
        Packed(tmp_path, mix, max_length=16, batch_size=1).load_state_dict(state)


def test_what_comes_after_a_state_may_change(tmp_path, write_shards, global_samples):
    for first, name in enumerate(("web", "code", "math", "wiki")):
        write_shards(tmp_path / "train" / name, [5] * 40, first=1 + 200 * first)
    begin, fields = Phase(100, {"web": 1}), {"max_length": 16, "batch_size": 2}
    feed = Packed(tmp_path, [begin, Phase(100, {"code": 1})], **fields)
    samples = global_samples([next(iter(feed))])
    state = feed.state_dict()
    other = [begin, Phase(60, {"web": 1, "wiki": 2}), Phase(60, {"math": 1})]
    write_shards(tmp_path / "train" / "code", [7] * 40, first=900)
    for path, curriculum in ((tmp_path, other), (tmp_path, [begin, Phase(100, {"code": 1})]), (tmp_path, [begin])):
        resumed = Packed(path, curriculum, **fields)
        resumed.load_state_dict(state)
        whole = [sample for batch in Packed(path, curriculum, **fields) for sample in global_samples([batch])]
        assert samples + [sample for batch in resumed for sample in global_samples([batch])] == whole
    with pytest.raises(LoaderError, match=r"curriculum up to here was .*, buckets were 'code', 'web' and are 'code'"):
        Packed(tmp_path, [Phase(100, {"code": 1})], **fields).load_state_dict(state)
    with pytest.raises(LoaderError, match="files was None"):
        Packed(tmp_path, [begin], **fields).load_state_dict(state | {"data": {"web": 3}})
    with pytest.raises(LoaderError, match="buckets were none and are 'web'"):
        Packed(tmp_path, [begin], **fields).load_state_dict(state | {"data": None})
    write_shards(tmp_path / "train" / "web", [7] * 40, first=900)
    with pytest.raises(LoaderError, match="of bucket 'web'"):
        Packed(tmp_path, [begin], **fields).load_state_dict(state)


def test_ends_that_move_are_another_packing_though_all_tokens_are_the_same(tmp_path, write_shards):
    write_shards(tmp_path, [5, 7, 9], shards=1)
    state = Packed(tmp_path, max_length=10, batch_size=1).state_dict()
    before = (tmp_path / "0.bin").read_bytes()
    write_shards(tmp_path, [5, 8, 8], shards=1)
    assert (tmp_path / "0.bin").read_bytes() == before
    with pytest.raises(LoaderError, match=r"loss mask, packing was '\w+' and is '\w+'; open it"):
        Packed(tmp_path, max_length=10, batch_size=1).load_state_dict(state)


def test_a_state_is_of_the_labels_too(tmp_path, write_shards):
    """Overlaps, a loss mask and tokens in the middle leave lengths, and so the packing, as they are."""
    lengths = [40] * 600
    write_shards(tmp_path, lengths, shards=1)
    state = Packed(tmp_path, max_length=128, batch_size=1).state_dict()
    write_shards(tmp_path, lengths, shards=1, overlap=[0, *[10] * 599])
    with pytest.raises(LoaderError, match=r"0\.bin or its index or loss mask, packing was"):
        Packed(tmp_path, max_length=128, batch_size=1).load_state_dict(state)
    write_shards(tmp_path, lengths, shards=1)
    feed = Packed(tmp_path, max_length=128, batch_size=1)
    feed.load_state_dict(state)
    whole = (tmp_path / "0.bin").read_bytes()
    (tmp_path / "0.bin.crc32c").unlink()
    (tmp_path / "0.bin").write_bytes(whole[:20_000] + bytes(6_000) + whole[26_000:])
    with pytest.raises(LoaderError, match=r"sampled, first or last bytes changed of .*0\.bin or its"):
        Packed(tmp_path, max_length=128, batch_size=1).load_state_dict(state)
    write_shards(tmp_path / "ds", lengths, shards=1, name="datatrove")
    state = Packed(tmp_path / "ds", max_length=128, batch_size=1).state_dict()
    (tmp_path / "ds" / "0.ds.crc32c").unlink()
    np.zeros(sum(lengths), np.bool_).tofile(tmp_path / "ds" / "0.ds.loss")
    with pytest.raises(LoaderError, match=r"0\.ds or its index or loss mask"):
        Packed(tmp_path / "ds", max_length=128, batch_size=1).load_state_dict(state)
    with pytest.raises(LoaderError, match="pad_token was 0 and is 5"):
        Packed(tmp_path / "ds", max_length=128, batch_size=1, pad_token=5).load_state_dict(state)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"curriculum": [Phase(5, {"wiki": 1})]}, "draws from bucket 'wiki', which is not a folder of"),
        ({"curriculum": [Phase(5, {"web": 1})], "split": "test"}, "no folder"),
        ({"split": "test"}, "splits in"),
        ({"epochs": 0}, "epochs of 'the data' is 0: set a whole number of 1 or more"),
        ({"curriculum": MIX, "epochs": {"wiki": 2}}, "epochs names bucket 'wiki', which does not exist; known: 'code'"),
        ({"max_length": 1}, "max_length is 1: set it to 2 or more"),
        ({"batch_size": 10_000}, "samples, not one for each row of 1 batches of 10000; lower batch_size"),
        ({"positions": "none"}, "Packed.positions takes one of 'reset', 'continuous', got 'none'"),
        (
            {"packing": "best"},
            "'in-order', 'separate', an object with plan(lengths), or a function of lengths and max_length; got 'best'",
        ),
        ({"packing": 5}, "or a function of lengths and max_length; got 5"),
        ({"curriculum": {"duration_tokens": 5, "mix": {"web": 1}}}, "a curriculum is a list of phases, got {'dur"),
        (
            {"packing": lc.tokens.Packing(16, positions="continuous", mask_first="none", padding=3)},
            "where the feed has 32, positions 'continuous' where the feed has 'reset', mask_first 'none' where",
        ),
        ({"packing": lc.tokens.BinnedGreedy(16)}, "the packing has context_length 16 where the feed has 32: set both"),
        ({"format": "zip"}, "format 'zip' is unknown"),
    ],
)
def test_what_does_not_fit_is_said(buckets, fields, said):
    with pytest.raises(lc.LongCrawlError, match=re.escape(said)):
        Packed(buckets, **{"max_length": 32} | fields)


def test_empty_buckets_are_named(tmp_path, write_shards):
    write_shards(tmp_path / "train" / "web", [0, 0], shards=1, name="datatrove")
    (tmp_path / "train" / "code").mkdir()
    for name, said in {"web": "have no tokens: replace them", "code": "holds no token shard"}.items():
        with pytest.raises(LoaderError, match=rf"bucket '{name}' is empty: .*{said}"):
            Packed(tmp_path, [Phase(5, {name: 1})])
    with pytest.raises(LoaderError, match="the data is empty"):
        Packed(tmp_path)


def test_held_out_shards_of_an_output_are_not_trained_on(tmp_path, write_shards, global_samples):
    write_shards(tmp_path / "run" / "gpt-simple" / "train", [5, 9])
    write_shards(tmp_path / "run" / "gpt-simple" / "val", [7, 9], first=100)
    documents = tmp_path / "run" / "gpt-simple" / "documents" / "train" / "0.parquet"
    documents.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["a"]}), documents)
    for path in (tmp_path / "run", tmp_path / "run" / "gpt-simple"):
        for split, first, tokens in (("train", 1, 14), ("val", 100, 16)):
            samples = whole_pass(path, global_samples, split=split, max_length=16)
            assert sorted(tokens_in(samples)) == list(range(first, first + tokens))


def test_validation_data_are_those_of_val(buckets, global_samples):
    assert sorted(tokens_in(whole_pass(buckets, global_samples, split="val", max_length=64))) == list(
        range(15_000, 15_044)
    )
