"""Estimates from samples: intervals that hold the truth, and who is drawn."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.sources import Part
from longcrawl.run.plan.estimates import Drawn, Thinning, draw_sample, estimate_parts, estimate_total
from longcrawl.sources.text import Text

DRAWS = 30


LEAST_INSIDE = 0.8
"""Least share inside a nominal interval of 0.95: a binomial of 30 draws falls below it once in 300 times."""


class _Made(Text):
    """Parts that are in memory: ``made[part]`` is the length of each document."""

    made = ()
    known_bytes = False

    def part_bytes(self, part):
        return int(sum(self.made[int(part.name)])) if self.known_bytes else 0

    def read(self, part, _bad_files):
        lengths = self.made[int(part.name)]
        for first in range(0, len(lengths), 64):
            texts = ["x" * each for each in lengths[first : first + 64]]
            yield pa.table({"id": [f"{part.name}-{first + i}" for i in range(len(texts))], "text": texts})


def _sampled(made, parts, documents, seed, *, known_bytes=False):
    source = _Made(data_dir=".")
    object.__setattr__(source, "made", made)
    object.__setattr__(source, "known_bytes", known_bytes)
    return draw_sample(source, [Part(str(number)) for number in range(len(made))], parts, documents, seed)


def _lengths(chance, parts=6):
    return [chance.lognormal(6, 1.5, chance.integers(150, 250)).astype(int) + 1 for _ in range(parts)]


@pytest.mark.variants
@pytest.mark.parametrize("parts", [4, 6])
def test_intervals_hold_the_truth_of_counts_and_of_sums(parts):
    made = _lengths(np.random.default_rng(0))
    everything = np.concatenate(made)
    limit = 2000
    inside, values, halves = np.zeros(3), [], []
    for seed in range(DRAWS):
        sample = _sampled(made, parts, 240, seed)
        lengths = np.concatenate([np.array(pa.compute.utf8_length(part.table["text"]), float) for part in sample.read])
        few = estimate_total((lengths > limit) * 1.0, sample.drawn, counts=True)
        much = estimate_total(lengths * (lengths > limit), sample.drawn)
        all_of_them = estimate_parts(sample.drawn.documents.tolist(), sample.drawn)
        truths = ((everything > limit).sum(), everything[everything > limit].sum(), len(everything))
        told = (few, much, all_of_them)
        inside += [truth in each for truth, each in zip(truths, told, strict=True)]
        values.append([each.value for each in told])
        halves.append([(each.high - each.low) / 2 for each in told])
    assert (inside / DRAWS >= LEAST_INSIDE).all(), inside
    # And they are no wider than that takes: of few parts, Student's t of three degrees has 3.2 deviations, and the
    # upper end allows for larger parts.
    assert (np.mean(halves, 0) <= (2.7 if parts == len(made) else 4.3) * np.std(values, 0)).all()


FEW_HAVE_MOST = [np.full(count, 100) for count in [100, 90, 60, *[2] * 57]]
OF_LONGER_TEXTS = [np.full(count, 2000) for count in [20, 10, 5]] + [np.full(1 + part % 7, 200) for part in range(57)]


@pytest.mark.slow
@pytest.mark.parametrize(("made", "known_bytes"), [(FEW_HAVE_MOST, False), (OF_LONGER_TEXTS, True)])
def test_a_few_large_parts_are_allowed_for(made, known_bytes):
    truth, found = sum(map(len, made)), []
    for seed in range(60):
        sample = _sampled(made, 2, 30, seed, known_bytes=known_bytes)
        assert len(sample.read) in (2, 4, 8, 16, 32, 60)  # no matter which part has the last of the documents
        found.append(estimate_parts(sample.drawn.documents.tolist(), sample.drawn))
    seen = [each for each in found if each.high > each.low]
    assert sum(truth in each for each in seen) >= LEAST_INSIDE * len(seen)


def test_a_part_that_is_larger_than_all_that_were_read_may_have_few_documents():
    made = [np.full(300, 100) for _ in range(11)] + [np.full(3, 80_000)]
    truth, are_left_out = sum(map(len, made)), []
    for seed in range(8):
        sample = _sampled(made, 2, 600, seed, known_bytes=True)
        found = estimate_parts(sample.drawn.documents.tolist(), sample.drawn)
        assert found.low <= truth <= found.high
        are_left_out.append(all(part.number != len(made) - 1 for part in sample.read))
        if are_left_out[-1]:  # nothing that was read is like the rest
            assert found.low < found.value < found.high
    assert any(are_left_out)


@pytest.mark.slow
def test_rare_removals_that_the_sample_has_not_are_allowed_for():
    made = [np.full(600, 1000)]
    gone = {f"0-{number}" for number in range(0, 600, 90)}
    truth = 1000.0 * (600 - len(gone))
    inside = 0
    for seed in range(20):
        sample = _sampled(made, 1, 60, seed)
        kept = np.array([name not in gone for name in sample.read[0].table["id"].to_pylist()])
        inside += truth in estimate_total(kept * sample.read[0].sizes, sample.drawn)
    assert inside >= 16


@pytest.mark.slow
def test_documents_are_drawn_with_the_chances_that_are_given():
    made = _lengths(np.random.default_rng(1), parts=1)
    sums = []
    for seed in range(150):
        (part,) = _sampled(made, 1, 40, seed).read
        assert part.table.num_rows == 40
        sums.append((part.sizes / part.chances).sum())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - made[0].sum()) < 4 * error


def test_who_is_drawn_does_not_depend_on_how_tables_are_cut(monkeypatch):
    made = _lengths(np.random.default_rng(2), parts=2)
    whole = _sampled(made, 2, 50, 3).read[0].table

    def other(self, part, bad_files):
        tables = list(_Made.__dict__["read"](self, part, bad_files))
        yield pa.concat_tables(tables).combine_chunks()

    class Other(_Made):
        read = other

    source = Other(data_dir=".")
    object.__setattr__(source, "made", made)
    again = draw_sample(source, [Part("0"), Part("1")], 2, 50, 3).read[0].table
    assert again["id"].to_pylist() == whole["id"].to_pylist()


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_what_was_read_whole_is_exact(values):
    one = [np.ones(len(values))]
    drawn = Drawn(1, 1.0, np.ones(1), one, one, np.array([len(values)]), np.array([len(values)]), 1.0)
    estimate = estimate_total(np.array(values, float), drawn, counts=True)
    assert (estimate.low, estimate.value, estimate.high) == (pytest.approx(sum(values)),) * 3


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 10]), st.sampled_from([0.2, 0.5, 0.8]))
def test_more_duplicates_are_expected_of_more_documents(seed, cluster, share):
    """Clusters of one size, of which a share of all documents is drawn; the survey removes all but one of each."""
    chance = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(4000 // cluster), cluster)

    def removed(members):
        return 1 - len(np.unique(members)) / len(members)

    drawn = clusters[chance.random(len(clusters)) < share]
    half = drawn[chance.random(len(drawn)) < 0.5]
    kept = Thinning(len(drawn), removed(drawn), removed(half), share).kept()
    truth = (1 / cluster) / (1 - removed(drawn))
    slack = 0.04  # five standard errors of the smallest samples here
    assert kept.low - slack <= truth <= kept.high + slack
