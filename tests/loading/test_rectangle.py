"""The rectangle loader against the article's formulas, its order under any topology, and its limits."""

import json
import multiprocessing
import os
import re
import threading
import weakref
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec

from longcrawl.errors import CorruptionError, FormatError, LoaderError
from longcrawl.formats.rectangle.spec import SplitArray
from longcrawl.loading import Rectangle

END_OF_TEXT = 777
ROWS, LENGTH = 77, 210


def tokens_of(rows: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50_000, (rows, length), dtype=np.uint16)


def write_ours(folder: Path, tokens: np.ndarray, chunks=(8, 32), band=32, split="train") -> Path:
    group = zarr.open_group(folder, mode="a", attributes={"end_of_text": END_OF_TEXT})
    array = group.create_array(
        split,
        shape=tokens.shape,
        dtype=tokens.dtype,
        chunks=chunks,
        shards=(band, -(-tokens.shape[1] // chunks[1]) * chunks[1]),
        compressors=BloscCodec(cname="zstd", clevel=3, shuffle="noshuffle"),
        fill_value=END_OF_TEXT,
    )
    array[:] = tokens
    return folder


def write_original(folder: Path, tokens: np.ndarray, chunks=(16, 64)) -> Path:
    array = zarr.create_array(
        folder / "train.zarr",
        shape=tokens.shape,
        dtype=tokens.dtype,
        chunks=chunks,
        compressors=numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
        fill_value=0,
        zarr_format=2,
    )
    array[:] = tokens
    return folder


class Article:
    """The article's loader in memory: throw away edges, walk rows then columns, pad on the left."""

    def __init__(self, tokens: np.ndarray, batch_size: int, context_length: int, pad: int = END_OF_TEXT) -> None:
        self.tokens, self.batch_size, self.context_length, self.pad = tokens, batch_size, context_length, pad

    def __len__(self) -> int:
        return (self.tokens.shape[0] // self.batch_size) * (self.tokens.shape[1] // self.context_length)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        down = self.tokens.shape[0] // self.batch_size
        top, left = index % down * self.batch_size, index // down * self.context_length
        targets = self.tokens[top : top + self.batch_size, left : left + self.context_length].astype(np.int64)
        return {"text": np.hstack([np.full((self.batch_size, 1), self.pad), targets[:, :-1]]), "targets": targets}


def assert_equal(batch: dict, wanted: dict) -> None:
    assert sorted(batch) == ["targets", "text"]
    for name, values in wanted.items():
        np.testing.assert_array_equal(batch[name], values, err_msg=name)


def assert_global(batches: list, wanted: Article, first: int, step: int = 1) -> None:
    for number, batch in enumerate(batches):
        assert_equal(batch, wanted[first + number * step])


@pytest.fixture
def tokens() -> np.ndarray:
    return tokens_of(ROWS, LENGTH)


@pytest.fixture
def ours(tmp_path, tokens) -> Path:
    return write_ours(tmp_path / "ours", tokens)


shapes = st.tuples(st.integers(1, 60), st.integers(1, 60))
chunk_shapes = st.tuples(st.integers(1, 20), st.integers(1, 30))


@settings(deadline=None)
@given(data=st.data(), shape=shapes, chunks=chunk_shapes, prefetch=st.sampled_from(["on", "off"]))
def test_every_batch_of_every_rank_is_the_articles(tmp_path_factory, data, shape, chunks, prefetch):
    batch_size = data.draw(st.integers(1, shape[0]), "batch_size")
    context_length = data.draw(st.integers(1, shape[1]), "context_length")
    tokens = tokens_of(*shape)
    wanted = Article(tokens, batch_size, context_length)
    world_size = data.draw(st.integers(1, min(5, len(wanted))), "world_size")
    folder = tmp_path_factory.mktemp("rectangle")
    if original := data.draw(st.booleans(), "original"):
        write_original(folder, tokens, chunks)
        wanted.pad = 50256
    else:
        write_ours(folder, tokens, chunks, chunks[0] * 2)
    smallest = Rectangle(folder, "train", batch_size, context_length)
    needed = (smallest.walk.most_chunks() + 1) * smallest.array.layout.chunk_bytes
    cache_bytes = data.draw(st.integers(needed, needed * 4), "cache_bytes")
    for rank in range(world_size):
        batches = Rectangle(
            folder, "train", batch_size, context_length, rank, world_size, cache_bytes=cache_bytes, prefetch=prefetch
        )
        read = list(batches)
        assert len(read) == len(batches) == len(wanted) // world_size
        assert_global(read, wanted, rank, world_size)
        index = data.draw(st.integers(-len(batches), len(batches) - 1), "index")
        assert_equal(batches[index], read[index])
    assert original == (batches.pad_token == 50256)


@settings(deadline=None)
@given(
    worlds=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=4),
    prefetch=st.sampled_from(["on", "off"]),
)
@example(worlds=[(4, 8), (4, 0), (1, 1)], prefetch="on")
def test_resume_goes_on_in_global_order_under_other_world_sizes(tmp_path_factory, worlds, prefetch):
    tokens = tokens_of(23, 40)
    folder = write_ours(tmp_path_factory.mktemp("rectangle"), tokens, (4, 16), 8)
    wanted, state, reached = Article(tokens, 3, 8), None, 0
    for world_size, steps in worlds:
        ranks = [Rectangle(folder, "train", 3, 8, rank, world_size, prefetch=prefetch) for rank in range(world_size)]
        if state is not None:
            for rank in ranks:
                rank.load_state_dict(state)
        if steps and len(wanted) - reached < world_size:
            reached = 0
        taken = min(steps, (len(wanted) - reached) // world_size)
        loops = [iter(rank) for rank in ranks]
        for _ in range(taken):
            for number, loop in enumerate(loops):
                assert_equal(next(loop), wanted[reached + number])
            reached += world_size
        states = [rank.state_dict() for rank in ranks]
        assert all(other == states[0] for other in states)
        state = json.loads(json.dumps(states[0]))
        if taken:
            assert state["position"] == reached


def test_a_loop_ends_and_the_next_is_a_new_pass(ours, tokens):
    batches, wanted = Rectangle(ours, batch_size=8, context_length=100), Article(tokens, 8, 100)
    assert len(batches) == len(wanted) == 18
    first = list(batches)
    assert batches.state_dict()["position"] == 18
    second = list(batches)
    assert len(first) == len(second) == 18
    assert_global(second, wanted, 0)


def test_a_broken_loop_goes_on_where_it_was(ours, tokens):
    batches, wanted = Rectangle(ours, batch_size=8, context_length=100, prefetch="on"), Article(tokens, 8, 100)
    for number, _ in enumerate(batches):
        assert batches.state_dict()["position"] == number + 1
        if number == 4:
            break
    batches[17]
    assert batches.state_dict()["position"] == 5
    assert_global(list(batches), wanted, 5)


def test_a_state_of_the_end_begins_a_new_pass(ours, tokens):
    done = Rectangle(ours, batch_size=8, context_length=100, world_size=4, rank=1)
    assert len(list(done)) == 4
    assert done.state_dict()["position"] == 16
    again = Rectangle(ours, batch_size=8, context_length=100, world_size=4, rank=1)
    again.load_state_dict(done.state_dict())
    assert_global(list(again), Article(tokens, 8, 100), 1, 4)
    alone = Rectangle(ours, batch_size=8, context_length=100)
    alone.load_state_dict(done.state_dict())
    rest = list(alone)
    assert len(rest) == 2
    assert_global(rest, Article(tokens, 8, 100), 16)


def test_the_defaults_are_whole_rows_and_the_stores_own_end_of_text(ours, tokens):
    batches = Rectangle(ours)
    assert (batches.context_length, batches.pad_token) == (LENGTH, END_OF_TEXT)
    assert_global(list(batches), Article(tokens, 1, LENGTH), 0)


@pytest.mark.parametrize(("name", "dtype"), [("int64", np.int64), ("int32", np.int32), ("store", np.uint16)])
def test_dtypes(ours, tokens, name, dtype):
    batch = Rectangle(ours, batch_size=8, dtype=name, pad_token=3)[2]
    assert batch["text"].dtype == batch["targets"].dtype == dtype
    assert_equal(batch, Article(tokens, 8, LENGTH, pad=3)[2])


def test_batches_are_the_callers_own(ours, tokens):
    batches = Rectangle(ours, batch_size=8, context_length=30)
    batch = batches[0]
    batch["targets"][:] = 0
    assert_equal(batches[0], Article(tokens, 8, 30)[0])
    assert not np.shares_memory(batch["text"], batch["targets"])


def test_engines_give_equal_batches(ours):
    options = {"batch_size": 5, "context_length": 50}
    for direct, through_zarr in zip(
        Rectangle(ours, engine="direct", **options), Rectangle(ours, engine="zarr", **options), strict=True
    ):
        assert_equal(direct, through_zarr)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context_length": 211}, "context_length 211 must be from 1 to the 210 tokens of a document"),
        ({"context_length": 0}, "context_length 0 must be from 1"),
        ({"batch_size": 78}, "batch_size 78 must be from 1 to the 77 documents of split 'train'"),
        ({"batch_size": 0}, "batch_size 0 must be from 1"),
        ({"batch_size": "8"}, "Rectangle.batch_size takes a whole number, got '8'"),
        ({"batch_size": 8, "world_size": 10}, "split 'train' gives 9 batches, not one for each of 10 ranks"),
        (
            {"dtype": "store", "pad_token": 65536},
            "pad_token 65536 is not an id of uint16 tokens: set it from",
        ),
        ({"dtype": "float32"}, "Rectangle.dtype takes one of 'int64', 'int32', 'store', got 'float32'"),
        ({"cache_bytes": 3583}, "a batch needs 7 chunks of 512 bytes at once; set cache_bytes to 3584 or more"),
        ({"cache_bytes": 3584, "prefetch": "on"}, "and prefetch one more; set cache_bytes to 4096 or more"),
    ],
)
def test_what_cannot_be_is_said(ours, settings, message):
    with pytest.raises(LoaderError, match=re.escape(message)):
        Rectangle(ours, **settings)


def test_no_such_split(ours):
    with pytest.raises(FormatError, match="has no split 'heldout'"):
        Rectangle(ours, "heldout")


def test_a_state_of_something_else_is_refused(tmp_path, ours):
    state = Rectangle(ours, batch_size=8, context_length=100).state_dict()
    other = write_ours(tmp_path / "other", tokens_of(ROWS, LENGTH, seed=1))
    with pytest.raises(LoaderError, match="as opened here: tokens or loss mask changed in row 0, from token 0"):
        Rectangle(other, batch_size=8, context_length=100).load_state_dict(state)
    with pytest.raises(LoaderError, match="as opened here: context_length was 100 and is 50;"):
        Rectangle(ours, batch_size=4, context_length=50).load_state_dict(state)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("before", "after"),
    [((4, 2), (8, 1)), ((4, 2), (2, 4)), ((8, 1), (4, 2)), ((4, 1), (2, 1)), ((2, 1), (4, 1)), ((3, 2), (2, 3))],
)
def test_a_state_is_also_one_of_batches_of_another_size_that_begin_there(ours, before, after):
    """Rows go on where they stopped, where a batch of the other size begins; elsewhere the sizes that fit are named."""

    def opened(size, ranks, rank=0):
        return Rectangle(ours, batch_size=size, context_length=100, rank=rank, world_size=ranks)

    feed, whole, fitted = opened(*before), opened(after[0], 1), 0
    per_window = ROWS // before[0]
    for _ in range(len(feed)):
        window, batch = divmod(feed.position, per_window)
        row, resumed = batch * before[0], [opened(*after, rank) for rank in range(after[1])]
        if row % after[0]:
            with pytest.raises(
                LoaderError, match=rf"at row {row} .* no batch of {after[0]} begins: set batch_size to 1"
            ):
                resumed[0].load_state_dict(feed.state_dict())
        else:
            first = window * (ROWS // after[0]) + row // after[0]
            for rank, each in enumerate(resumed):
                each.load_state_dict(feed.state_dict())
                assert each.position == first
                if each.status.state == "running":
                    assert_equal(each[0] if first == each.most else next(iter(each)), whole[first + rank])
            fitted += 1
        next(iter(feed))
    assert fitted > 3


def test_a_state_fits_the_same_tokens_stored_otherwise(tmp_path, ours, tokens):
    before = Rectangle(ours, batch_size=8, context_length=100, pad_token=0)
    loop = iter(before)
    for _ in range(7):
        next(loop)
    stored_otherwise = Rectangle(
        write_original(tmp_path / "original", tokens), batch_size=8, context_length=100, pad_token=0
    )
    stored_otherwise.load_state_dict(before.state_dict())
    assert_equal(next(iter(stored_otherwise)), next(loop))


@pytest.mark.variants
@pytest.mark.parametrize("prefetch", ["on", "off"])
@pytest.mark.parametrize("chunks_in_cache", [8, 11, 40])
def test_decoded_chunks_stay_within_cache_bytes(ours, monkeypatch, prefetch, chunks_in_cache):
    alive: weakref.WeakSet = weakref.WeakSet()
    most, decoding, lock = 0, 0, threading.Lock()
    read_chunk = SplitArray.read_chunk

    class Counted(np.ndarray):
        """An array that can be in a weak set."""

        __hash__ = object.__hash__

    def counting(array, row, column):
        nonlocal most, decoding
        with lock:
            decoding += 1
            most = max(most, len(alive) + decoding)
        chunk = read_chunk(array, row, column).view(Counted)
        with lock:
            decoding -= 1
            alive.add(chunk)
        return chunk

    monkeypatch.setattr(SplitArray, "read_chunk", counting)
    for context_length in (LENGTH, 20):
        batches = Rectangle(ours, "train", 8, context_length, cache_bytes=chunks_in_cache * 512, prefetch=prefetch)
        assert len(list(batches)) == len(batches)
        assert 0 < most <= chunks_in_cache
        del batches
        most = 0


def test_part_of_a_band_that_does_not_fit_is_kept(tmp_path, monkeypatch):
    folder, reads = write_ours(tmp_path, tokens_of(64, 64), (4, 32), 32), []
    read_chunk = SplitArray.read_chunk

    def counting(array, row, column):
        reads.append((row, column))
        return read_chunk(array, row, column)

    monkeypatch.setattr(SplitArray, "read_chunk", counting)
    chunk_bytes = 4 * 32 * 2
    counts = {}
    for chunks_in_cache in (1, 8, 12, 16, 32):
        reads.clear()
        for _ in Rectangle(folder, "train", 4, 8, cache_bytes=chunks_in_cache * chunk_bytes, prefetch="off"):
            pass
        counts[chunks_in_cache] = len(reads)
    # Two bands of 16 chunks, each visited by 4 windows. Least recently used would read all 128 with up to 15 places.
    assert all(count <= 128 - 2 * 3 * (min(places, 16) - 1) for places, count in counts.items())
    assert counts[16] == counts[32] == 32


@pytest.mark.parametrize("prefetch", ["on", "off"])
def test_a_missing_shard_stops_at_its_batch_and_not_before(ours, tokens, prefetch):
    state = Rectangle(ours, batch_size=8, context_length=100).state_dict()
    (ours / "train/c/1/0").unlink()
    batches = Rectangle(ours, batch_size=8, context_length=100, prefetch=prefetch)
    batches.load_state_dict(state)
    Rectangle(ours, batch_size=8, context_length=100, on_missing_chunks="error").load_state_dict(batches.state_dict())
    assert 0 < batches.state_dict()["data"].count(None) < 64
    with pytest.raises(CorruptionError, match=r"c/1/0 is missing, which holds chunk \(4, 0\)"):
        list(batches)
    loop = iter(Rectangle(ours, batch_size=8, context_length=100, prefetch=prefetch))
    read = [next(loop) for _ in range(4)]
    with pytest.raises(CorruptionError):
        next(loop)
    assert_global(read, Article(tokens, 8, 100), 0)
    filled = Rectangle(ours, batch_size=8, context_length=100, prefetch=prefetch, on_missing_chunks="fill")
    assert (list(filled)[4]["targets"] == END_OF_TEXT).all()


def test_no_thread_outlives_its_loop(ours):
    def decoding() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "longcrawl-decode"]

    batches = Rectangle(ours, batch_size=2, context_length=7, prefetch="on", cache_bytes=10 * 512)
    loop = iter(batches)
    next(loop)
    assert len(decoding()) == 1
    other = iter(batches)
    next(other)
    assert len(decoding()) == 1
    loop.close()
    other.close()
    assert decoding() == []


def test_threads_share_one_loader(ours, tokens):
    batches, wanted = Rectangle(ours, batch_size=8, context_length=30, cache_bytes=3 * 512), Article(tokens, 8, 30)
    failures = []

    def read(seed: int) -> None:
        try:
            for index in np.random.default_rng(seed).integers(0, len(batches), 60):
                assert_equal(batches[int(index)], wanted[int(index)])
        except AssertionError as failure:
            failures.append(failure)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_a_fork_in_the_middle_of_a_loop(ours, tokens):
    batches, wanted = Rectangle(ours, batch_size=8, context_length=10, prefetch="on"), Article(tokens, 8, 10)
    for number, batch in enumerate(batches):
        assert_equal(batch, wanted[number])
        if number % 60 == 5:
            with multiprocessing.get_context("fork").Pool(1) as pool:
                assert_equal(pool.apply(batches.__getitem__, (number,)), wanted[number])
                assert_equal(pool.apply(batches.__getitem__, (-1,)), wanted[len(wanted) - 1])


def test_auto_prefetch_asks_for_a_second_processor(ours, monkeypatch):
    def runs_a_thread(processors: int) -> bool:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
        loop = iter(Rectangle(ours, batch_size=2, context_length=7))
        next(loop)
        found = any(thread.name == "longcrawl-decode" for thread in threading.enumerate())
        loop.close()
        return found

    assert not runs_a_thread(1)
    assert runs_a_thread(2)
