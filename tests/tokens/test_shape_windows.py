"""Windows of documents against a naive oracle, and the defects of others that must not come back."""

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.tokens.shape import Windows, document_windows, windows_of_tokens

END = 0
SIZES = [
    *(pytest.param(*each, marks=pytest.mark.slow) for each in [(1, 0), (2, 1), (3, 1)]),
    *[(16, 0), (16, 4), (16, 8), (64, 16), (100, 20), (100, 50), (2048, 256)],
]


def naive(length: int, max_length: int, overlap_size: int) -> list[tuple[int, int, int]]:
    """Cut one document as one would by hand: go on from the overlap until the end is reached."""
    if length == 0:
        return []
    found, start, overlap = [], 0, 0
    while True:
        stop = min(start + max_length, length)
        found.append((start, stop, overlap))
        if stop == length:
            return found
        start, overlap = stop - overlap_size, overlap_size


def tokens_of(*lengths: int) -> pa.Table:
    return pa.table({"tokens": pa.array([list(range(1, n + 1)) for n in lengths], pa.list_(pa.uint16()))})


@pytest.mark.variants
@pytest.mark.parametrize(
    ("max_length", "overlap_size"),
    SIZES,
)
def test_every_length_up_to_2000_is_cut_as_by_hand(max_length, overlap_size):
    made = document_windows(np.arange(2001), max_length, overlap_size)
    rows = list(zip(made.starts.tolist(), made.stops.tolist(), made.overlaps.tolist(), strict=True))
    bounds = np.searchsorted(made.documents, np.arange(2002))
    for length in range(2001):
        assert rows[bounds[length] : bounds[length + 1]] == naive(length, max_length, overlap_size)


@given(
    st.lists(st.integers(0, 300), max_size=20),
    st.integers(1, 60).flatmap(lambda most: st.tuples(st.just(most), st.integers(0, most // 2))),
)
def test_every_token_counts_once_and_no_window_is_all_overlap(lengths, sizes):
    made = document_windows(lengths, *sizes)
    counted = [np.zeros(length, int) for length in lengths]
    for document, start, stop, overlap in zip(made.documents, made.starts, made.stops, made.overlaps, strict=True):
        assert overlap < stop - start <= sizes[0]
        counted[document][start + overlap : stop] += 1
    assert all((each == 1).all() for each in counted)


@pytest.mark.parametrize(
    ("length", "max_length", "overlap_size", "windows"),
    [
        pytest.param(2048, 2048, 256, [(0, 2048, 0)], id="max_length: GPT-Simple's second is all overlap"),
        pytest.param(112, 64, 16, [(0, 64, 0), (48, 112, 16)], id="the tail is the overlap: GPT-Simple makes a third"),
        pytest.param(113, 64, 16, [(0, 64, 0), (48, 112, 16), (96, 113, 16)], id="one token more than that"),
    ],
)
def test_known_defects_are_not_here(length, max_length, overlap_size, windows):
    made = document_windows([length], max_length, overlap_size)
    assert list(zip(made.starts, made.stops, made.overlaps, strict=True)) == windows


def test_a_document_of_more_than_10_000_windows_keeps_its_tail():
    made = document_windows([200_000], 16, 0)
    assert len(made) == 12_500
    assert made.stops[-1] == 200_000


def test_the_stage_counts_the_end_of_text_in():
    table = lc.tokens.Windows(4, 2).rewrite(tokens_of(3, 4, 0))
    assert [[tuple(each.values()) for each in row] for row in table["windows"].to_pylist()] == [
        [(0, 4, 0)],
        [(0, 4, 0), (2, 5, 2)],
        [(0, 1, 0)],
    ]


def test_a_document_that_ends_with_its_end_of_text_gets_no_second_one():
    tokens = pa.table({"tokens": pa.array([[5, 6, 7, END], [5, 6, 7, 8], []], pa.list_(pa.uint16()))})
    table = lc.tokens.Windows(4, end_of_text=END).rewrite(tokens)
    assert [row[-1]["stop"] for row in table["windows"].to_pylist()] == [4, 5, 1]


def test_the_stage_runs_on_a_dataset_and_in_a_crawl():
    data = Dataset.from_dict({"id": ["a", "b"], "tokens": [list(range(10)), [1]]})
    mapped = data.with_format("arrow").map(lc.tokens.Windows(4, 1), batched=True)
    crawl = lc.Crawl(data) | lc.tokens.Windows(4, 1)
    assert mapped.with_format(None)["windows"][:] == crawl.data["windows"][:]
    assert len(crawl.data["windows"][0]) == 4
    assert crawl.funnel.kept == 2


def test_windows_read_back_are_those_that_were_made():
    table = lc.tokens.Windows(4, 2).rewrite(tokens_of(3, 9, 0))
    read = windows_of_tokens(table, np.array([4, 10, 1]), "a test")
    assert read.documents.tolist() == [0, 1, 1, 1, 1, 2]
    assert (read.stops[-1], read.overlaps.tolist()) == (1, [0, 0, 2, 2, 2, 0])


@pytest.mark.parametrize("lengths", [[4, 9, 1], [4, 11, 1], [4, 10, 0]])
def test_windows_that_do_not_fit_the_tokens_are_refused(lengths):
    table = lc.tokens.Windows(4, 2).rewrite(tokens_of(3, 9, 0))
    with pytest.raises(StageError, match="do not cover its .* tokens, end of text included: put the stage"):
        windows_of_tokens(table, np.array(lengths), "a test")


@pytest.mark.parametrize(
    "windows",
    [[(0, 2, 0), (3, 4, 0)], [(0, 2, 0), (0, 2, 2), (2, 4, 0)], [(1, 4, 0)], [(0, 4, 1)], [(0, 5, 0), (4, 4, 1)]],
)
def test_windows_with_gaps_or_nothing_but_overlap_are_refused(windows):
    names = ("start", "stop", "overlap")
    table = pa.table({"windows": [[dict(zip(names, each, strict=True)) for each in windows]]})
    with pytest.raises(StageError, match="the windows of row 0 do not cover its 4 tokens"):
        windows_of_tokens(table, np.array([4]), "a test")


def test_a_column_of_something_else_is_refused():
    with pytest.raises(StageError, match="the column 'windows' is list<.*int64>, but must be list<"):
        windows_of_tokens(pa.table({"windows": [[1]]}), np.array([4]), "a test")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_length": 0}, "windows.max_length must be a number of tokens, 1 or more, got 0"),
        (
            {"max_length": 100, "overlap_size": 51},
            "windows.overlap_size must be from 0 to half of max_length, 50 here, got 51",
        ),
        (
            {"max_length": 100, "overlap_size": -1},
            "windows.overlap_size must be from 0 to half of max_length, 50 here, got -1",
        ),
        ({"end_of_text": -1}, "windows.end_of_text must be a token id, 0 or more, got -1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(StageError) as refused:
        lc.tokens.Windows(**settings)
    assert str(refused.value) == said


@given(
    lengths=st.lists(st.integers(0, 40), max_size=30),
    max_length=st.integers(2, 12),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    data=st.data(),
)
def test_each_document_is_cut_by_its_own_overlap(lengths, max_length, share, data):
    overlap_size = data.draw(st.integers(0, max_length // 2))
    overlaps = np.array([overlap_size * data.draw(st.booleans()) for _ in lengths], np.int64)
    made = document_windows(lengths, max_length, overlaps)
    for document, (length, overlap) in enumerate(zip(lengths, overlaps.tolist(), strict=True)):
        alone, mine = document_windows([length], max_length, overlap), made.documents == document
        assert (made.starts[mine].tolist(), made.stops[mine].tolist()) == (alone.starts.tolist(), alone.stops.tolist())
        assert made.overlaps[mine].tolist() == alone.overlaps.tolist()
    ids = [f"d{row}" for row in range(len(lengths))]
    tokens = pa.array([list(range(length)) for length in lengths], pa.list_(pa.uint16()))
    stage = Windows(max_length, overlap_size, overlap_probability=share)
    rows = stage(pa.table({"id": pa.array(ids, pa.string()), "tokens": tokens}))["windows"].to_pylist()
    chosen = keyed_hash(ids, "overlap", 0) / 2.0**64 < share
    for length, overlaps_too, windows in zip(lengths, chosen, rows, strict=True):
        alone = document_windows([length + 1], max_length, overlap_size if overlaps_too else 0)
        assert [tuple(window.values()) for window in windows] == list(
            zip(alone.starts.tolist(), alone.stops.tolist(), alone.overlaps.tolist(), strict=True)
        )


@pytest.mark.parametrize("overlap_size", [5, -1, np.array([0, 5]), np.array([-1, 0])])
def test_sizes_are_checked_also_where_no_document_is(overlap_size):
    with pytest.raises(StageError, match="overlap_size must be from 0 to half of max_length, 4 here"):
        document_windows([9, 9] if np.ndim(overlap_size) else [], 8, overlap_size)


def test_overlap_probability_is_spelled_only_where_it_is_set():
    assert "overlap_probability" not in Windows(8, 2).settings()
    assert Windows(8, 2, overlap_probability=0.5).settings()["overlap_probability"] == 0.5
    with pytest.raises(StageError, match=r"windows\.overlap_probability must be from 0 to 1, got 1\.5"):
        Windows(8, 2, overlap_probability=1.5)
