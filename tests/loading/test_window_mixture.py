"""Mixtures of windows: shares, epochs and phases against a naive reading, under any topology."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.errors import LoaderError
from longcrawl.loading import Packed, Phase, WindowMixture, Windows, plan_curriculum
from longcrawl.loading.curriculum import even_picks

SIZES = {"code": 40, "wiki": 25, "web": 90}
"""Windows of each bucket."""
LENGTH = 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of three buckets; a token says of which bucket and window it is."""
    made = tmp_path_factory.mktemp("mixture")
    for number, (name, windows) in enumerate(SIZES.items()):
        (made / name).mkdir()
        tokens = np.repeat(np.arange(windows) + 1_000 * number, LENGTH + 1).astype("<u2")
        for half, part in enumerate(np.split(tokens, [windows // 2 * (LENGTH + 1)])):
            part.tofile(made / name / f"{half}.ds")
    return made


def opened(folder, shuffle="windows", **fields):
    return {name: Windows(folder / name, LENGTH, token_size=2, shuffle=shuffle, **fields) for name in SIZES}


def delivered(feed) -> list[tuple[str, int]]:
    """Return bucket and window of every row."""
    ids = np.concatenate([batch["input_ids"] for batch in feed])
    assert (ids == ids[:, :1]).all()
    return [(list(SIZES)[token // 1_000], token % 1_000) for token in ids[:, 0].tolist()]


@given(
    weights=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    budgets=st.lists(st.integers(1, 120), min_size=1, max_size=3),
    shuffle=st.sampled_from(["windows", "none"]),
    mixing=st.sampled_from(["even", "random"]),
    seed=st.integers(0, 3),
)
def test_windows_come_in_the_order_of_their_buckets_and_epochs(folder, weights, budgets, shuffle, mixing, seed):
    mixes = [dict(zip(SIZES, weights[turn:] + weights[:turn], strict=True)) for turn in range(3)]
    phases = [Phase(windows * LENGTH, mix) for windows, mix in zip(budgets, mixes, strict=False)]
    windows = opened(folder, shuffle)
    feed = WindowMixture(windows, phases, epochs=20, mixing=mixing, seed=seed)
    rows = delivered(feed)
    assert len(rows) == sum(budgets)
    for name, each in windows.items():
        mine = [window for bucket, window in rows if bucket == name]
        naive = [
            int(each.read(np.array([place]), number)["input_ids"][0, 0]) % 1_000
            for number, place in itertools.islice(itertools.product(range(20), range(len(each))), len(mine))
        ]
        assert mine == naive
        for first in range(0, len(mine), SIZES[name]):  # each window once before any comes again
            epoch = mine[first : first + SIZES[name]]
            assert len(set(epoch)) == len(epoch)


@pytest.mark.slow
def test_every_stretch_has_the_shares_of_the_mix(folder):
    for seed in range(40):
        feed = WindowMixture(opened(folder), [Phase(196 * LENGTH, {"web": 7, "code": 3})], epochs=4, seed=seed)
        taken = np.array([bucket == "web" for bucket, _ in delivered(feed)])
        assert 137 <= taken.sum() <= 138
        assert all(abs(taken[first : first + 30].sum() - 21) < 2 for first in range(166))
    orders = {tuple(WindowMixture(opened(folder), {"web": 1, "code": 1}, seed=seed).plan.picks) for seed in range(5)}
    assert len(orders) > 1


def naive_picks(weights: list[int], numbers: list[float]) -> list[int]:
    """Return picks by exact fractions: of the buckets whose next sample may come, the one whose sample is due first."""
    drawn = [bucket for bucket, weight in enumerate(weights) if weight]
    shares, taken, picks = [Fraction(each, sum(weights)) for each in weights], [0] * len(weights), []
    for sample, number in enumerate(numbers, 1):
        start, due = int(number * len(drawn)), {}
        for bucket in drawn[start:] + drawn[:start]:
            if shares[bucket] * sample > taken[bucket]:
                due[bucket] = math.ceil((taken[bucket] + 1) / shares[bucket])
        picks.append(min(due, key=due.__getitem__))
        taken[picks[-1]] += 1
    return picks


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 4), st.integers(1, 5_000)), min_size=1, max_size=7).filter(any),
    st.integers(1, 300),
    st.integers(0, 300),
    st.integers(0, 99),
)
def test_every_beginning_has_the_shares_to_less_than_one_sample(weights, count, cut, seed):
    numbers = np.random.default_rng(seed).random(count)
    shares = np.array(weights) / sum(weights)
    first = even_picks(shares, np.zeros(len(weights), np.int64), numbers[:cut])
    rest = even_picks(shares, np.bincount(first, minlength=len(weights)), numbers[cut:])
    picks = np.concatenate([first, rest])
    assert picks.tolist() == naive_picks(weights, numbers.tolist())
    taken = np.cumsum(picks[:, None] == np.arange(len(weights)), axis=0)
    asked = np.arange(1, count + 1)[:, None] * np.array(weights)
    assert np.abs(taken * sum(weights) - asked).max() < sum(weights)


@pytest.fixture(scope="module")
def windows_of(tmp_path_factory):
    """Return what makes a bucket of so many windows, in the order of the file; a token is the number of its window."""
    made = tmp_path_factory.mktemp("sizes")

    def windows(count: int) -> Windows:
        if not (made / f"{count}.ds").exists():
            np.repeat(np.arange(count), LENGTH + 1).astype("<u2").tofile(made / f"{count}.ds")
        return Windows(made / f"{count}.ds", LENGTH, token_size=2)

    return windows


@pytest.mark.parametrize(
    ("sizes", "mix", "fields", "expected"),
    [
        ([8], [1], {}, [8]),
        ([10, 10], [1, 1], {}, [10, 10]),
        ([20, 20], [1, 0], {}, [20, 0]),
        ([10, 90], [0.1, 0.9], {}, [10, 90]),
        ([7, 30], [0.7, 0.3], {}, [7, 3]),
        ([1, 50], [1, 9], {}, [1, 9]),
        ([5, 5, 5], [1, 1, 1], {"epochs": 3}, [15, 15, 15]),
        ([4, 20], [1, 1], {"epochs": {"0": 5}}, [20, 20]),
        ([6, 18], [1, 3], {"batch_size": 4}, [6, 18]),
    ],
)
def test_weights_deliver_all_that_they_allow(windows_of, sizes, mix, fields, expected):
    windows = {str(number): windows_of(size) for number, size in enumerate(sizes)}
    weights = {str(number): weight for number, weight in enumerate(mix)}
    for seed in range(3):
        plan = WindowMixture(windows, weights, seed=seed, **fields).plan
        assert np.bincount([int(plan.names[pick]) for pick in plan.picks], minlength=len(sizes)).tolist() == expected


@pytest.mark.parametrize("mixing", ["even", "random"])
@pytest.mark.parametrize(
    ("batch_size", "ranks"),
    [(2, 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in [(1, 1), (3, 1), (5, 2)])],
)
def test_every_window_comes_once_wherever_a_mixture_resumes(windows_of, mixing, batch_size, ranks):
    windows, weights = {"a": windows_of(20), "b": windows_of(31)}, {"a": 2, "b": 3}
    whole = WindowMixture(windows, weights, mixing=mixing)
    assert len(whole) == len(whole.plan) <= 50
    assert mixing == "random" or len(whole) == 50
    rows = [int(batch["input_ids"][0, 0]) for batch in whole]
    feed = WindowMixture(windows, weights, batch_size, 0, ranks, mixing=mixing)
    steps = len(rows) // (batch_size * ranks)
    assert len(feed) == steps
    for step in range(steps + 1):
        found = []
        for rank in range(ranks):
            resumed = WindowMixture(windows, weights, batch_size, rank, ranks, mixing=mixing)
            resumed.load_state_dict(feed.state_dict())
            found.append([batch["input_ids"][:, 0].tolist() for batch in resumed])
        merged = [row for parts in zip(*found, strict=True) for part in parts for row in part]
        assert merged == rows[step * batch_size * ranks : steps * batch_size * ranks]
        if step < steps:
            next(iter(feed))


def test_packed_mixes_evenly_too(folder):
    phases = [Phase(196 * 4 * LENGTH, {"web": 7, "code": 3})]
    stock = {"web": [4 * LENGTH] * 300, "code": [4 * LENGTH] * 300}
    counts = [np.bincount(plan_curriculum(phases, stock, seed=seed, mixing="even").picks) for seed in range(20)]
    assert {len(each) for each in counts} == {2}
    assert all(58 <= code <= 59 for code, _ in counts)
    assert Packed.__dataclass_fields__["mixing"].default == "random"


def test_the_sequence_is_one_under_any_topology(folder):
    phases = [Phase(60 * LENGTH, {"web": 2, "wiki": 1}), Phase(60 * LENGTH, {"code": 1, "web": 1})]
    whole = delivered(WindowMixture(opened(folder), phases, batch_size=12))
    feed = WindowMixture(opened(folder), phases, batch_size=2)
    rows = delivered(itertools.islice(feed, 9))
    for batch_size, ranks, steps in ((3, 2, 4), (6, 3, 2), (1, 1, 42)):
        state = feed.state_dict()
        feeds = [WindowMixture(opened(folder), phases, batch_size, rank, ranks) for rank in range(ranks)]
        for each in feeds:
            each.load_state_dict(state)
        parts = [list(itertools.islice(each, steps)) for each in feeds]
        rows += [row for step in zip(*parts, strict=True) for row in delivered(step)]
        feed = feeds[0]
    assert rows == whole


def test_what_comes_later_may_change_and_what_was_taken_may_not(folder, tmp_path):
    first = Phase(40 * LENGTH, {"web": 1, "wiki": 1})
    feed = WindowMixture(opened(folder), [first, Phase(9 * LENGTH, {"web": 1})], batch_size=4)
    rows = delivered(itertools.islice(feed, 5))
    later = WindowMixture(opened(folder), [first, Phase(20 * LENGTH, {"code": 1})], batch_size=4)
    later.load_state_dict(feed.state_dict())
    assert {bucket for bucket, _ in delivered(later)} == {"web", "wiki", "code"}
    assert len(rows) == 20
    for changed, sentence in (
        ({"windows": opened(folder, "none")}, "shuffle was 'windows' and is 'none' of bucket"),
        ({"curriculum": [Phase(40 * LENGTH, {"web": 3, "wiki": 1})]}, "curriculum up to here was"),
        (
            {"windows": opened(folder) | {"web": Windows(folder / "code", LENGTH, token_size=2, shuffle="windows")}},
            "bytes was",
        ),
    ):
        other = WindowMixture(
            **{"windows": opened(folder), "curriculum": [first], "batch_size": 4, "epochs": 9} | changed
        )
        with pytest.raises(LoaderError, match=sentence):
            other.load_state_dict(feed.state_dict())


def test_a_bucket_that_runs_dry_names_the_epochs_that_are_enough(folder):
    phases = [Phase(120 * LENGTH, {"wiki": 1, "web": 1})]
    with pytest.raises(LoaderError, match=r"bucket 'wiki' runs dry at window 5\d.*repeat it with epochs=\{'wiki': 3\}"):
        WindowMixture(opened(folder), phases)
    assert len(WindowMixture(opened(folder), phases, epochs={"wiki": 3})) == 120
    halted = WindowMixture(opened(folder), phases, on_exhausted="halt")
    assert 50 <= len(list(halted)) <= 51
    assert halted.status.state == "halted"
    went_on = WindowMixture(opened(folder), [Phase(100 * LENGTH, {"wiki": 1, "web": 1})], on_exhausted="renormalize")
    assert [bucket for bucket, _ in delivered(went_on)].count("wiki") == SIZES["wiki"]


def test_weights_alone_are_one_epoch(folder):
    feed = WindowMixture(opened(folder), {"code": 0.5, "web": 0.5})
    assert len(feed) == 80
    with pytest.raises(LoaderError, match="weights name 'books', which does not exist; known: code, wiki, web"):
        WindowMixture(opened(folder), {"books": 1.0})


def test_windows_that_are_not_alike_are_refused(folder):
    windows = opened(folder)
    for other, sentence in (
        (
            Windows(folder / "web", LENGTH + 1, token_size=2),
            "have seq_len 9, those of 'web' 10: open all with the same",
        ),
        (Windows(folder / "web", LENGTH, token_size=2, dtype="int32"), "window_dtype int64, those of 'web' int32"),
        (folder / "web", r"bucket 'web' is PosixPath: make it Windows\(FOLDER, seq_len\)"),
    ):
        with pytest.raises(LoaderError, match=sentence):
            WindowMixture(windows | {"web": other}, {"web": 1, "code": 1})
    with pytest.raises(LoaderError, match="epochs names bucket 'books'"):
        WindowMixture(windows, {"web": 1}, epochs={"books": 2})
