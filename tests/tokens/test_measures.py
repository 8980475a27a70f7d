"""The measures against counting token by token, floors that nothing goes below, and how they are shown."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.tokens import Buckets, DatasetDecomposition, Plan, compare_strategies, measure

LENGTHS = st.integers(1, 200).flatmap(lambda most: st.lists(st.integers(0, most), max_size=40))


CAPACITIES = st.sets(st.integers(1, 80), min_size=1, max_size=4).map(sorted)


def test_the_measures_worked_out_by_hand():
    """Two samples of 4 and one of 8; a document of 9 is cut in two, one of 3 is whole, one of 2 is dropped."""
    lengths, bounds = np.array([9, 3, 2, 0]), np.array([0, 1, 2, 3])
    plan = Plan(lengths, np.array([4, 4, 8]), bounds, np.array([0, 1, 0]), np.array([0, 0, 2]), np.array([2, 3, 7]))
    found = measure(plan, "by hand")
    assert (found.documents, found.empty_documents, found.tokens, found.samples, found.pieces) == (3, 1, 14, 3, 3)
    assert found.r_pad == 4 / 16
    assert found.r_tru == 2 / 3
    assert found.r_cat == 3 / 3
    assert found.pieces_per_sample == 1
    assert found.r_tru_tokens == 11 / 14
    assert found.dropped == 2 / 14
    assert found.context == pytest.approx((0 + 1 + 0 + 1 + 2 + sum(range(7))) / 12)
    assert found.whole_context == pytest.approx((sum(range(9)) + sum(range(3)) + sum(range(2))) / 14)
    assert found.context_share == pytest.approx(found.context / found.whole_context)
    assert found.r_tru_floor == 1 / 3
    assert found.r_cat_floor == 3 * 4 / 16
    assert [(each.capacity, each.samples, each.documents, each.tokens) for each in found.buckets] == [
        (4, 2, 2, 5), (8, 1, 0, 7)
    ]  # fmt: skip


def counted(plan):
    """Measure token by token: r_pad, r_tru, r_cat, and earlier tokens of its document in its sample."""
    samples, homes = [], [[] for _ in plan.lengths]
    for number, (low, high) in enumerate(zip(plan.bounds, plan.bounds[1:], strict=False)):
        tokens, seen = [], Counter()
        for piece in range(low, high):
            document, start = plan.documents[piece], plan.starts[piece]
            for at in range(plan.sizes[piece]):
                tokens.append((document, start + at, seen[document]))
                seen[document] += 1
            homes[document] += [number] * plan.sizes[piece]
        samples.append(tokens + [None] * (plan.capacities[number] - len(tokens)))
    documents = [document for document, length in enumerate(plan.lengths) if length]
    least = plan.lengths - plan.omitted
    split = [max(Counter(homes[each]).values(), default=0) < least[each] for each in documents]
    everything = sum(map(len, samples))
    seen = [token[2] for tokens in samples for token in tokens if token]
    return (
        sum(tokens.count(None) for tokens in samples) / everything if everything else 0,
        sum(split) / len(split) if split else 0,
        len(documents) / len(samples) if samples else 0,
        sum(seen) / len(seen) if seen else 0,
    )


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(LENGTHS, CAPACITIES, st.sampled_from([0, 0.05, 0.3, 1]))
def test_every_plan_measures_as_its_tokens_counted(lengths, capacities, threshold):
    for strategy in lc.tokens.default_strategies(capacities, threshold):
        plan = strategy.plan(lengths)
        found = measure(plan, strategy.label, strategy.capacities)
        assert (found.r_pad, found.r_tru, found.r_cat, found.context) == pytest.approx(counted(plan))
        assert found.r_tru >= found.r_tru_floor
        assert found.r_cat >= found.r_cat_floor - 1e-12
        assert found.pieces_per_sample >= found.r_cat or found.dropped
        assert sum(each.samples for each in found.buckets) == found.samples
        assert sum(each.tokens for each in found.buckets) == found.placed_tokens
        assert found.placed_tokens == pytest.approx(found.tokens * (1 - found.dropped))
        if not found.dropped:
            assert sum(each.documents for each in found.buckets) == found.documents
            assert found.context <= found.whole_context + 1e-9


def test_floors_are_reached():
    assert measure(Buckets([4]).plan([4, 4])).r_cat == measure(Buckets([4]).plan([4, 4])).r_cat_floor == 1
    found = measure(Buckets([4], 1).plan([9, 4]))
    assert found.r_tru == found.r_tru_floor == 1 / 2


def test_context_of_a_document_of_billions_of_tokens_does_not_overflow():
    lengths = np.array([6_000_000_000])
    found = measure(Plan(lengths, lengths, np.array([0, 1]), np.array([0]), np.array([0]), lengths))
    assert found.context == found.whole_context == pytest.approx(3e9)


@pytest.fixture(scope="module")
def comparison():
    chance = np.random.Generator(np.random.PCG64(0))
    return compare_strategies(np.append(np.exp(chance.normal(5.8, 1.4, 3000)).astype(np.int64), [0, 30_000]))


def test_a_comparison_prints_as_a_table(comparison):
    said = repr(comparison)
    assert said.startswith(
        f"{(comparison.lengths > 0).sum():,} documents of {comparison.lengths.sum():,} tokens: mean "
    )
    assert "the longest 30,000; " in said
    assert " more are empty" in said
    labels = tuple(row.label for row in comparison)
    rows = [line for line in said.splitlines() if line.startswith(labels)]
    assert len(rows) == len(labels)
    assert len({len(line) for line in rows}) == 1
    assert re.search(rf"^Fixed-2048 +\S+ +{100 * comparison['Fixed-2048'].r_tru:.2f} ", said, re.MULTILINE)
    assert max(map(len, said.splitlines())) <= 160
    markdown = comparison.markdown().splitlines()
    assert len({line.count("|") for line in markdown}) == 1
    assert len(markdown) == 2 + len(comparison.rows)
    page = comparison._repr_html_()
    assert page.count("<tr>") == 1 + len(comparison.rows)
    assert [row.label for row in comparison] == [row.label for row in comparison.rows]
    with pytest.raises(KeyError, match="known: Fixed-2048"):
        comparison["Fixed-1"]


def test_one_composition_prints_its_buckets(comparison):
    said = str(comparison["Buckets"]).splitlines()
    assert said[0].split()[:3] == ["strategy", "r_pad", "%"]
    assert [line.split()[0] for line in said[4:]] == ["2,048", "4,096", "8,192", "16,384"]


@pytest.mark.parametrize(
    ("value", "spelled"), [(0, "0"), (1e-9, "<0.0001"), (0.000012, "0.0012"), (0.5, "50.00"), (1, "100.00")]
)
def test_percents_are_short_and_never_a_false_zero(value, spelled, comparison):
    row = replace(comparison["Buckets"], capacity=10**12, placed_tokens=round(10**12 * (1 - value)))
    assert str(row).splitlines()[1].split()[1] == spelled


@pytest.mark.slow
def test_a_comparison_is_drawn(comparison, tmp_path):
    figure = comparison.plot()
    assert len(figure.axes) == 5
    bars = {axes.get_title(): [bar.get_width() for bar in axes.patches] for axes in figure.axes[1:]}
    assert bars["documents per sample: r_cat"] == [row.r_cat for row in comparison]
    figure.savefig(tmp_path / "plot.svg")
    with pytest.raises(StageError, match="nothing to draw"):
        compare_strategies([0, 0]).plot()


def test_no_document_at_all_is_a_table_too():
    for lengths in ([], [0]):
        assert "none with a token" in repr(lc.compose(lengths))
        assert {row.r_cat for row in lc.compose(lengths)} == {0}


def test_decompositions_of_the_default_table_go_down_to_short_pieces():
    chosen = lc.tokens.default_strategies([2048, 4096])
    assert [each for each in chosen if isinstance(each, DatasetDecomposition)] == [
        DatasetDecomposition([256, 512, 1024, 2048, 4096])
    ]
    assert lc.tokens.default_strategies([100])[-2:] == (
        Buckets([100], planner="exact-fill"),
        Buckets([100], planner="in-order"),
    )
