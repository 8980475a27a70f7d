"""MinTokens, Truncate, Shuffle, Roll."""

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.tokens.shape import roll_amounts

token_lists = st.lists(st.lists(st.integers(0, 65_535), max_size=12), max_size=12)


def documents(lists, kind=pa.list_(pa.uint16())):
    return pa.table({"id": [f"d{i}" for i in range(len(lists))], "tokens": pa.array(lists, kind)})


@given(token_lists, st.integers(0, 8), st.sampled_from([pa.list_(pa.uint16()), pa.large_list(pa.uint32())]))
def test_truncate_keeps_the_first_tokens_and_the_type(lists, n, kind):
    cut = lc.tokens.Truncate(n).rewrite(documents(lists, kind))
    assert cut["tokens"].to_pylist() == [each[:n] for each in lists]
    assert cut["tokens"].type == kind


@given(token_lists, st.integers(0, 12))
def test_min_tokens_counts_tokens(lists, n):
    assert lc.tokens.MinTokens(n)(documents(lists)) == [len(each) >= n for each in lists]


@given(token_lists, st.integers(0, 3))
def test_roll_is_numpy_roll_by_the_amount_it_notes(lists, seed):
    rolled = lc.tokens.Roll(seed).rewrite(documents(lists))
    for before, after, amount in zip(lists, rolled["tokens"].to_pylist(), rolled["roll"].to_pylist(), strict=True):
        assert np.roll(before, amount).tolist() == after
        assert 0 <= amount < max(len(before), 1)


def test_stages_work_on_a_slice_of_a_bigger_table():
    table = documents([[1, 2, 3], [4, 5, 6], [7, 8, 9]]).slice(1, 2)
    assert lc.tokens.Truncate(2).rewrite(table)["tokens"].to_pylist() == [[4, 5], [7, 8]]
    rolled = lc.tokens.Roll().rewrite(table)
    assert [sorted(each) for each in rolled["tokens"].to_pylist()] == [[4, 5, 6], [7, 8, 9]]


def test_roll_depends_on_the_id_and_not_on_the_order():
    ids = [f"d{i}" for i in range(100)]
    lengths = np.full(100, 65_536)
    forwards = dict(zip(ids, roll_amounts(ids, lengths, 0).tolist(), strict=True))
    backwards = dict(zip(ids[::-1], roll_amounts(ids[::-1], lengths, 0).tolist(), strict=True))
    assert forwards == backwards
    assert len(set(forwards.values())) > 95


def test_rolls_are_uniform():
    amounts = roll_amounts([f"d{i}" for i in range(20_000)], np.full(20_000, 16), 0)
    counts = np.bincount(amounts, minlength=16)
    assert abs(counts - 1250).max() < 5 * np.sqrt(1250)


def test_shuffle_orders_by_key_whatever_the_order_of_documents():
    data = Dataset.from_dict({"id": [f"d{i}" for i in range(50)]})
    one = lc.Crawl(data) | lc.tokens.Shuffle(seed=3)
    other = lc.Crawl(data.select(range(49, -1, -1))) | lc.tokens.Shuffle(seed=3)
    assert one.data["id"][:] == other.data["id"][:]
    assert sorted(one.data["id"][:]) == sorted(data["id"][:])
    assert one.data["id"][:] != data["id"][:]
    assert one.data["id"][:] != (lc.Crawl(data) | lc.tokens.Shuffle(seed=4)).data["id"][:]


def test_shuffle_refuses_two_documents_of_one_name():
    with pytest.raises(StageError, match="shuffle needs unique ids, but 'a' occurs twice"):
        lc.Crawl(Dataset.from_dict({"id": ["a", "b", "a"]})) | lc.tokens.Shuffle()


def test_truncate_refuses_a_negative_length():
    with pytest.raises(StageError, match="must not be negative"):
        lc.tokens.Truncate(-1)
