"""Curriculum plans against a naive oracle that draws one sample at a time, and what is said before training."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.errors import LoaderError
from longcrawl.kernels.keyed_hash import uniform_numbers
from longcrawl.loading import (
    CurriculumPlan,
    Phase,
    plan_curriculum,
)

WEB_CODE = {"web": 0.6, "code": 0.4}
FIRST_DRAWS = [0.2561151055628742, 0.8837079797680657, 0.010198823591648143]


def naive_plan(phases, inventory, seed, mix_by, renormalize):
    """Return (names of buckets by sample, where buckets ran dry, whether it was cut)."""
    stock = {name: list(inventory[name]) for name in sorted(inventory)}
    shares = {name: np.mean(tokens) if mix_by == "tokens" else 1.0 for name, tokens in stock.items()}
    picks, drained, dry, spent, budget = [], [], set(), 0, 0
    for number, phase in enumerate(phases):
        budget += phase.duration_tokens
        while spent < budget:
            weights = {name: 0.0 if name in dry else phase.mix.get(name, 0.0) / shares[name] for name in stock}
            if not sum(weights.values()):
                drained.append((len(picks), number, None))
                budget = spent
                break
            limits = np.cumsum(list(weights.values())) / sum(weights.values())
            draw = float(uniform_numbers(seed, "curriculum", len(picks), 1)[0])
            bucket = next(name for name, limit in zip(stock, limits, strict=True) if draw < limit)
            if not stock[bucket]:
                drained.append((len(picks), number, bucket))
                dry.add(bucket)
                if not renormalize:
                    return picks, drained, True
                continue
            spent += stock[bucket].pop(0)
            picks.append(bucket)
    return picks, drained, bool(drained) and drained[-1][1:] == (len(phases) - 1, None)


def names_of(plan: CurriculumPlan) -> list[str]:
    return [plan.names[pick] for pick in plan.picks]


stocks = st.fixed_dictionaries({name: st.lists(st.integers(1, 9), min_size=1, max_size=40) for name in "abc"})
mixes = st.fixed_dictionaries({name: st.integers(0, 5) for name in "abc"}).filter(lambda mix: sum(mix.values()) > 0)
some_phases = st.lists(st.builds(Phase, st.integers(1, 120), mixes), min_size=1, max_size=4)


@settings(deadline=None)
@given(some_phases, stocks, st.integers(0, 5), st.sampled_from(["tokens", "samples"]), st.booleans())
def test_a_plan_is_what_drawing_one_sample_at_a_time_gives(phases, inventory, seed, mix_by, renormalize):
    on_exhausted = "renormalize" if renormalize else "halt"
    plan = plan_curriculum(phases, inventory, seed=seed, mix_by=mix_by, on_exhausted=on_exhausted)
    picks, drained, cut = naive_plan(phases, inventory, seed, mix_by, renormalize)
    assert names_of(plan) == picks
    assert [(each.sample, each.phase, each.bucket) for each in plan.drained] == drained
    assert plan.halted == cut
    totals = {name: sum(inventory[name][: picks.count(name)]) for name in inventory}
    assert {name: sum(phase.tokens[name] for phase in plan.phases) for name in inventory} == totals


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_plan_does_not_depend_on_how_it_is_cut(chunk, monkeypatch):
    inventory = {"web": [5] * 600, "code": [7] * 500, "math": [3] * 20}
    phases = [Phase(1500, WEB_CODE), Phase(2000, {"web": 1, "math": 1})]
    whole = plan_curriculum(phases, inventory, on_exhausted="renormalize")
    monkeypatch.setattr("longcrawl.loading.curriculum.CHUNK", chunk)
    again = plan_curriculum(phases, inventory, on_exhausted="renormalize")
    assert whole.picks.tolist() == again.picks.tolist()
    assert whole.drained == again.drained
    assert whole.phases == again.phases


def test_a_draw_is_a_function_of_seed_and_global_sample():
    whole = uniform_numbers(3, "curriculum", 0, 100)
    for first in range(50):
        assert uniform_numbers(3, "curriculum", first, 9).tolist() == whole[first : first + 9].tolist()
    assert not set(uniform_numbers(4, "curriculum", 0, 100)) & set(whole)
    assert 0 <= whole.min() <= whole.max() < 1


def test_draws_are_the_same_on_every_machine_and_release():
    assert uniform_numbers(0, "curriculum", 0, 3).tolist() == FIRST_DRAWS


@pytest.mark.parametrize("mix_by", ["tokens", "samples"])
def test_a_mix_is_met_by_tokens_or_by_samples(mix_by):
    inventory = {"web": [100] * 60_000, "code": [300] * 20_000}
    plan = plan_curriculum([Phase(4_000_000, WEB_CODE)], inventory, mix_by=mix_by)
    tokens = plan.phases[0].tokens["web"] / sum(plan.phases[0].tokens.values())
    samples = float((plan.picks == plan.names.index("web")).mean())
    assert abs((tokens if mix_by == "tokens" else samples) - 0.6) < 0.01


def test_places_count_the_samples_of_a_bucket_before():
    inventory = {"web": [1] * 9000, "code": [1] * 6000}
    plan = plan_curriculum([Phase(12_000, WEB_CODE)], inventory)
    picks = plan.picks
    naive = np.array([np.count_nonzero(picks[:sample] == picks[sample]) for sample in range(0, 12_000, 37)])
    _, places = plan.places(0, 12_000)
    assert places[::37].tolist() == naive.tolist()
    for first in (0, 1, 4095, 4096, 8191, 11_990):
        ids, some = plan.places(first, first + 20)
        assert ids.tolist() == picks[first : first + 20].tolist()
        assert some.tolist() == places[first : first + 20].tolist()


def test_a_fingerprint_is_of_the_samples_up_to_it():
    inventory = {"web": [1] * 9000, "code": [1] * 9000}
    short = plan_curriculum([Phase(6000, WEB_CODE)], inventory)
    long = plan_curriculum([Phase(6000, WEB_CODE), Phase(5000, {"math": 1})], inventory | {"math": [1] * 9000})
    other = plan_curriculum([Phase(6000, {"web": 0.5, "code": 0.5})], inventory)
    for samples in (0, 5, 4096, 5000, 6000):
        assert short.fingerprint(samples) == long.fingerprint(samples)
    assert short.fingerprint(5000) != other.fingerprint(5000)
    assert len({short.fingerprint(samples) for samples in range(4000, 4200)}) == 200


def test_the_phase_of_a_sample():
    plan = plan_curriculum([Phase(10, {"web": 1}), Phase(10, {"web": 1})], {"web": [3] * 9})
    assert [(each.first_sample, each.stop_sample) for each in plan.phases] == [(0, 4), (4, 7)]
    assert [plan.phase_of(sample) for sample in range(9)] == [0, 0, 0, 0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("phases", "inventory", "said"),
    [
        ([], {"web": [1]}, "a curriculum has no phases: add one or more"),
        ({"duration_tokens": 5, "mix": {"web": 1}}, {"web": [1]}, "a curriculum is a list of phases, got {'duration"),
        (Phase(5, {"web": 1}), {"web": [1]}, "a curriculum is a list of phases, got Phase(duration_tokens=5"),
        ([5], {"web": [1]}, "phase 1 is 5: give its duration_tokens and mix"),
        (
            [Phase(5, {"web": 1}), Phase(5, {"wiki": 1})],
            {"web": [9], "code": [9]},
            "phase 2 draws from bucket 'wiki', which does not exist; known: 'code', 'web'",
        ),
        ([Phase(5, {"web": 1})], {"web": []}, "phase 1 draws from bucket 'web', which has no tokens: remove it"),
        ([{"duration": 5}], {"web": [1]}, "phase 1 has no field 'duration'; known: duration_tokens, mix"),
        ([{"duration_tokens": "5", "mix": {"web": 1}}], {"web": [1]}, "takes a whole number, got '5'"),
        ([{"duration_tokens": 0, "mix": {"web": 1}}], {"web": [1]}, "duration_tokens is 0: set it to 1"),
        (
            [{"duration_tokens": 5, "mix": {"web": -1}}],
            {"web": [1]},
            "the weight of bucket 'web' is -1: set it to 0 or more",
        ),
        ([{"duration_tokens": 5, "mix": {"web": 0}}], {"web": [1]}, "a phase has no weighted bucket: give one"),
        ([{"duration_tokens": 5, "mix": {"web": "x"}}], {"web": [1]}, "the weight of bucket 'web' is 'x'"),
        ([Phase(5, {"0": 1})], {str(name): [1] for name in range(65_536)}, "65,536 buckets exceed the limit of 65,535"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_sentence(phases, inventory, said):
    with pytest.raises(LoaderError, match=re.escape(said)):
        plan_curriculum(phases, inventory)


def test_a_bucket_of_no_weight_is_not_drawn_from():
    plan = plan_curriculum([Phase(50, {"a": 0, "b": 1, "c": 0})], {"a": [], "b": [1] * 60, "c": [1]})
    assert names_of(plan) == ["b"] * 50
