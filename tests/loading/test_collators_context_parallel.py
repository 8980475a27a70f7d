"""Batches that are cut for context parallelism, against the whole batch and against torch."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import LoaderError
from longcrawl.loading import Packed, Windows, collators

IGNORED = -100
FIELDS = ("input_ids", "labels", "position_ids", "document_ids")
LAYOUTS = ("zigzag", "contiguous")
LENGTH = 24
cut = partial(collators.for_context_parallel, tensors="numpy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_shards) -> Path:
    folder = tmp_path_factory.mktemp("context")
    write_shards(folder, [7, 9, 3, 1, 5, 12, 40, 4, 2, 17, 6, 30, 11, 8, 24, 19])
    return folder


def one_token_at_a_time(row: list[int], rank: int, size: int, layout: str) -> list[int]:
    """Deal the tokens of a row by the number of the chunk that each is in."""
    chunks = size * 2 if layout == "zigzag" else size
    chunk_length = len(row) // chunks
    owned = [token for place, token in enumerate(row) if place // chunk_length == rank]
    if layout == "zigzag":
        owned += [token for place, token in enumerate(row) if place // chunk_length == chunks - 1 - rank]
    return owned


shapes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.sampled_from(LAYOUTS))


@given(shape=shapes, seed=st.integers(0, 99), masked=st.booleans(), kind=st.sampled_from(("rectangle", "windows")))
def test_every_rank_has_its_chunks_of_all_fields(shape, seed, masked, kind):
    size, width, rows, layout = shape
    chance, length = np.random.default_rng(seed), 2 * size * width
    tokens = chance.integers(1, 99, (rows, length + 1))
    starts = chance.random((rows, length + 1)) < 0.3
    flags = chance.random((rows, length + 1)) < 0.7
    starts[:, 0] = True
    positions = np.array(
        [[place - max(np.flatnonzero(row[: place + 1])) for place in range(length + 1)] for row in starts]
    )
    if kind == "windows":
        batch = {"input_ids": tokens, "positions": positions} | ({"loss_mask": flags} if masked else {})
    else:
        batch = {"text": tokens[:, :-1], "targets": tokens[:, 1:], "position_ids": positions[:, :-1]}
        batch |= {"loss_mask": flags[:, 1:]} if masked else {}
    labels = np.where(flags, tokens, IGNORED)[:, 1:] if masked else tokens[:, 1:]
    wanted = {
        "input_ids": tokens[:, :-1],
        "labels": labels,
        "position_ids": positions[:, :-1],
        "document_ids": starts.cumsum(1)[:, :-1] - 1,
    }
    for rank in range(size):
        part = cut(batch, rank, size, layout)
        assert tuple(part) == FIELDS
        for name in FIELDS:
            assert part[name].dtype == np.int64
            rows_of_rank = [one_token_at_a_time(row, rank, size, layout) for row in wanted[name].tolist()]
            assert part[name].tolist() == rows_of_rank, name


@given(shape=shapes)
def test_columns_put_the_ranks_together_again(shape):
    size, width, rows, layout = shape
    row = np.arange(rows * 2 * size * width).reshape(rows, -1)
    columns = [collators.context_columns(row.shape[1], rank, size, layout) for rank in range(size)]
    whole = np.full_like(row, -1)
    for each in columns:
        whole[:, each] = row[:, each]
    assert whole.tolist() == row.tolist()
    assert sum(map(len, columns)) == row.shape[1]


@given(size=st.integers(1, 8), width=st.integers(1, 9))
def test_causal_attention_costs_all_ranks_of_a_zigzag_the_same(size, width):
    costs = {int((collators.context_columns(2 * size * width, rank, size) + 1).sum()) for rank in range(size)}
    assert len(costs) == 1


@pytest.mark.parametrize("size", [1, 2, 4])
def test_torch_balances_the_same_columns(size):
    balancer = pytest.importorskip("torch.distributed.tensor.experimental._context_parallel._load_balancer")
    arranged = balancer._HeadTailLoadBalancer(48, size, "cpu")._generate_indices()
    for rank, columns in enumerate(arranged.reshape(size, -1).tolist()):
        assert collators.context_columns(48, rank, size).tolist() == columns


@pytest.mark.slow
def test_two_processes_of_torch_cut_alike(tmp_path):
    """Through the public function, which divides tensors in place; the test above compares its columns alone."""
    pytest.importorskip("torch.distributed.tensor.experimental", reason="torch divides the tensors")
    script = tmp_path / "cut.py"
    script.write_text(
        "import numpy as np, torch\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.tensor.experimental import context_parallel\n"
        "from longcrawl.loading.collators import for_context_parallel\n"
        "tokens = np.arange(34).reshape(2, 17)\n"
        "mesh = init_device_mesh('cpu', (2,))\n"
        "whole, part = (for_context_parallel({'input_ids': tokens}, *at) for at in ((0, 1), (mesh.get_rank(), 2)))\n"
        "with context_parallel(mesh, buffers=list(whole.values()), buffer_seq_dims=[1] * 4):\n"
        "    assert all(torch.equal(part[name], whole[name]) for name in part)\n"
        "torch.distributed.destroy_process_group()\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run(launch, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)


@pytest.mark.parametrize("positions", ["reset", "continuous"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_rows_keep_labels_and_documents_of_the_whole(folder, layout, positions):
    batch = Packed(folder, max_length=LENGTH, batch_size=3, positions=positions)[0]
    inputs, labels = collators.for_torchtitan(batch, tensors="numpy")
    ids = collators.for_flex_attention(batch, tensors="numpy")["document_ids"]
    whole = dict(zip(FIELDS, (inputs["input"], labels, inputs["positions"], ids), strict=True))
    for rank in range(3):
        part, columns = cut(batch, rank, 3, layout), collators.context_columns(LENGTH, rank, 3, layout)
        assert {name: part[name].tolist() for name in FIELDS} == {
            name: whole[name][:, columns].tolist() for name in FIELDS
        }
    assert {name: values.tolist() for name, values in cut(batch, 0, 1, "contiguous").items()} == {
        name: whole[name].tolist() for name in FIELDS
    }


def test_batches_without_documents_have_one_of_the_rows_positions(folder):
    part = cut(next(iter(Windows(folder, seq_len=LENGTH).batches(batch_size=2))), 1, 2)
    assert part["position_ids"].tolist() == [[*range(6, 18)]] * 2
    assert not part["document_ids"].any()


def test_lists_of_batches_and_rows_are_cut_like_one_batch(folder):
    batch = Packed(folder, max_length=LENGTH, batch_size=3, packing="in-order")[0]
    single = Packed(folder, max_length=LENGTH, packing="in-order")
    wanted = cut(batch, 1, 2)
    for several in (single[:3], single.__getitems__([0, 1, 2])):
        made = cut(several, 1, 2)
        assert all(np.array_equal(made[name], wanted[name]) for name in FIELDS)


def open_feed(kind: str, folder: Path, rank: int, world_size: int):
    if kind == "windows":
        return Windows(folder, seq_len=LENGTH, positions="index", shuffle="windows").batches(1, rank, world_size)
    return Packed(folder, max_length=LENGTH, rank=rank, world_size=world_size)


@pytest.mark.parametrize("kind", ["packed", "windows"])
def test_the_state_of_one_rank_resumes_all(kind, folder):
    """Two data-parallel ranks of three context-parallel ones each, that stop and go on as one rank with another cut."""
    states = []
    for rank in range(6):
        feed = open_feed(kind, folder, rank // 3, 2)
        loop = iter(feed)
        batch = next(loop)
        whole = cut(open_feed(kind, folder, rank // 3, 2)[0], 0, 1)
        part = cut(batch, rank % 3, 3)
        columns = collators.context_columns(LENGTH, rank % 3, 3)
        assert all(np.array_equal(part[name], whole[name][:, columns]) for name in FIELDS)
        states.append(feed.state_dict())
    assert all(state == states[0] for state in states)
    uncut = open_feed(kind, folder, 0, 1)
    uncut.load_state_dict(states[0])
    wanted = cut(next(iter(uncut)), 0, 1)
    for rank in range(2):
        again = open_feed(kind, folder, 0, 1)
        again.load_state_dict(states[5])
        part = cut(next(iter(again)), rank, 2, "contiguous")
        columns = collators.context_columns(LENGTH, rank, 2, "contiguous")
        assert all(np.array_equal(part[name], wanted[name][:, columns]) for name in FIELDS)


def test_loaders_of_torch_collate_with_it(folder):
    torch = pytest.importorskip("torch", reason="the loader and the tensors are torch's")
    feed = Packed(folder, max_length=LENGTH, batch_size=2)
    collate = partial(collators.for_context_parallel, rank=1, size=2)
    for batch, whole in zip(feed.dataloader(collate_fn=collate), feed[:], strict=True):
        assert batch["labels"].dtype == torch.int64
        assert all(np.array_equal(batch[name].numpy(), cut(whole, 1, 2)[name]) for name in FIELDS)


def test_rectangles_keep_their_last_target(tmp_path):
    rows = pa.array([list(range(first, first + 32)) for first in range(4)], pa.list_(pa.uint16()))
    lc.Crawl(pa.table({"id": list("abcd"), "tokens": rows})).to_rectangle(
        tmp_path / "r.zarr", context_length=32, end_of_text=0
    )
    batch = lc.loading.Rectangle(tmp_path / "r.zarr", batch_size=2, context_length=16, dtype="store")[0]
    part = cut(batch, 0, 2)
    assert part["input_ids"].tolist() == batch["text"][:, [0, 1, 2, 3, 12, 13, 14, 15]].tolist()
    assert part["labels"].tolist() == batch["targets"][:, [0, 1, 2, 3, 12, 13, 14, 15]].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "rows of 24 tokens do not divide into 10 equal chunks, as 'zigzag' needs for 5 context-parallel"),
        ((0, 5), "set max_length, seq_len, context_length or capacities to multiples of 10, such as 20"),
        ((0, 7, "contiguous"), "into 7 equal chunks, as 'contiguous' needs for 7"),
        ((0, 24), "multiples of 48, such as 48"),
        ((2, 2), "rank 2 of 2 context-parallel ranks does not exist: count from 0 to size - 1"),
        ((-1, 2), "rank -1 of 2"),
        ((0, 0), "rank 0 of 0"),
        (("0", 2), "rank must be a whole number, got '0'"),
        ((0, 2.0), "size must be a whole number, got 2.0"),
        ((0, 2, "striped"), "layout takes one of 'zigzag', 'contiguous', got 'striped'"),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_is_refused(folder, arguments, message):
    with pytest.raises(LoaderError, match=re.escape(message)):
        cut(Packed(folder, max_length=LENGTH)[0], *arguments)


@pytest.mark.parametrize("batches", [None, [None], 3, "rows"])
def test_what_is_no_batch_is_refused(batches):
    with pytest.raises(LoaderError, match="this is not a batch: .*; pass a batch from iterating a feed"):
        cut(batches, 0, 2)
