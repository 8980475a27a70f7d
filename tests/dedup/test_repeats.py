"""Tokens that are searched for repeats: how they are stored, and how sorted ranges on disk are merged."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.repeats import RangeFile, merge_ranges, store_tokens
from longcrawl.errors import StageError


@given(st.lists(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 30)), max_size=40), max_size=5))
@settings(deadline=None)
def test_ranges_of_many_pieces_are_merged_in_order(tmp_path_factory, pieces):
    folder = tmp_path_factory.mktemp("ranges")
    files = []
    for number, piece in enumerate(pieces):
        files.append(RangeFile(folder / f"{number}.bin"))
        rows = np.array(sorted((start, start + size) for start, size in piece), np.int64).reshape(-1, 2)
        with files[-1].write() as writer:
            writer.add(rows[: len(rows) // 2])
            writer.add(rows[len(rows) // 2 :])
    covered = np.zeros(600, np.int8)
    for start, size in (each for piece in pieces for each in piece):
        covered[start : start + size] = 1
    edges = np.flatnonzero(np.diff(covered, prepend=0, append=0))
    merged = np.concatenate([np.empty((0, 2), np.int64), *merge_ranges(files, 1)])
    assert merged.ravel().tolist() == edges.tolist()


def table_of(texts, ids=None):
    ids = [f"d{number:04d}" for number in range(len(texts))] if ids is None else ids
    return pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.large_string())})


def test_ids_whose_hashes_collide_are_still_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("longcrawl.dedup.repeats.keyed_hash", lambda ids, *_: np.zeros(len(ids), np.uint64))
    stage = lc.dedup.ExactSubstring(unit="byte", text="raw")
    store = store_tokens([stage.sketch(table_of(["one", "two", "three"]))], tmp_path, "test")
    assert store.bounds.tolist() == [0, 4, 8, 14]
    with pytest.raises(StageError, match="'b' occurs twice"):
        store_tokens([stage.sketch(table_of(["one", "two", "three"], ["b", "a", "b"]))], tmp_path / "other", "test")


@pytest.mark.slow
def test_storing_tokens_takes_at_most_40_bytes_per_document_beside_a_batch(tmp_path):
    documents, batch = 100_000, 500
    lists = pa.LargeListArray.from_arrays(pa.array(np.arange(batch + 1)), pa.array(np.zeros(batch, np.uint16)))

    def sketches():
        for first in range(0, documents, batch):
            yield pa.table({"id": [f"{number:040d}" for number in range(first, first + batch)], "tokens": lists})

    tracemalloc.start()
    try:
        store_tokens(sketches(), tmp_path, "exact_substring")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * documents + 500_000
