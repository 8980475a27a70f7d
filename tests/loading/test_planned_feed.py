"""Feeds whose steps are planned up front: what is advised where a bucket runs dry."""

import ast
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.errors import LoaderError
from longcrawl.loading import Packed, Phase, plan_curriculum
from longcrawl.loading.planned_feed import demand_of, sufficient_epochs


def test_a_bucket_that_runs_dry_is_an_error_before_training(buckets):
    with pytest.raises(LoaderError, match=r"bucket 'math' runs dry at sample \d+, in phase 1 of 1: it has"):
        Packed(buckets, [Phase(2000, {"math": 1, "web": 1})], max_length=32)


def test_the_epochs_that_an_error_names_suffice(buckets):
    mix = [Phase(4000, {"math": 1, "web": 2}), Phase(9000, {"math": 1, "code": 1})]
    with pytest.raises(LoaderError, match=r"repeat it with epochs=\{") as refused:
        Packed(buckets, mix, max_length=32)
    epochs = ast.literal_eval(re.search(r"epochs=(\{.*?\})", str(refused.value)).group(1))
    assert not Packed(buckets, mix, max_length=32, epochs=epochs).plan.drained
    for name in epochs:
        with pytest.raises(LoaderError, match="runs dry"):
            Packed(buckets, mix, max_length=32, epochs=epochs | {name: epochs[name] - 1})


def test_what_phases_ask_of_a_bucket_is_its_share_of_all_tokens():
    phases = [Phase(1000, {"web": 3, "code": 1}), Phase(100, {"web": 1})]
    assert demand_of(phases) == {"web": 850, "code": 250}


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1), st.integers(1, 200), st.integers(0, 3))
def test_with_the_epochs_that_are_enough_no_bucket_runs_dry(samples, tokens, seed):
    def plan_with(epochs):
        stock = {name: np.full(count * epochs[name], 10) for name, count in samples.items()}
        return plan_curriculum(phases, stock, seed=seed)

    phases = [Phase(tokens, dict.fromkeys(samples, 1))]
    once = dict.fromkeys(samples, 1)
    sizes = {name: 10 * count for name, count in samples.items()}
    enough = sufficient_epochs(phases, once, sizes, plan_with)
    assert not plan_with(enough).drained
    asked = demand_of(phases)
    assert all(enough[name] * sizes[name] >= asked[name] for name in samples)
