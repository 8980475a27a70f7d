"""How often buckets have to be repeated for a curriculum to be spent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from longcrawl.loading._curriculum_report import MOST_EPOCHS
from longcrawl.loading._shard_buckets import ShardBucket
from longcrawl.loading._step_report import buckets_called
from longcrawl.loading.composed_phases import BucketStock, ComposedPhase
from longcrawl.loading.curriculum import MixBy, Phase, plan_curriculum
from longcrawl.loading.step_plan import StepPlan, plan_phases

__all__ = ["sufficient_epochs", "sufficient_step_epochs"]


def sufficient_epochs(
    phases: Sequence[Phase], buckets: Mapping[str, ShardBucket], seed: int, mix_by: MixBy
) -> dict[str, int]:
    """Return epochs of each bucket with which none runs dry: those that the shares ask for, and more where draws do."""
    asked = dict.fromkeys(buckets, 0.0)
    for phase in phases:
        for name, weight in phase.mix.items():
            asked[name] += phase.duration_tokens * weight / sum(phase.mix.values())
    epochs = {
        name: max(bucket.epochs, -int(-asked[name] // max(int(bucket.sample_tokens.sum()), 1)))
        for name, bucket in buckets.items()
    }
    if max(epochs.values()) > MOST_EPOCHS:
        return epochs
    while True:
        inventory = {name: replace(bucket, epochs=epochs[name]).tokens_by_place() for name, bucket in buckets.items()}
        plan = plan_curriculum(phases, inventory, seed=seed, mix_by=mix_by, on_exhausted="halt")
        dry = [each.bucket for each in plan.drained if each.bucket is not None]
        if not dry:
            return epochs
        for name in dry:
            epochs[name] += 1


def sufficient_step_epochs(
    phases: Sequence[ComposedPhase], buckets: Mapping[BucketStock, int], tokens_per_step: int, seed: int, plan: StepPlan
) -> dict[str, int]:
    """Return epochs of each bucket of a composed dataset with which no phase runs dry.

    Args:
        phases: of the curriculum.
        buckets: what one epoch of each has, and epochs that it has at least.
        tokens_per_step: of all ranks.
        seed: of the draws.
        plan: in which one runs dry.

    """
    asked = [(phase.duration_tokens, shares) for phase, shares in zip(phases, plan.asked, strict=True)]
    least = {each: sum(tokens * shares[each.name] for tokens, shares in asked) for each in buckets}
    epochs = {
        each.name: max(before, -int(-least[each] // (each.samples * each.capacity))) for each, before in buckets.items()
    }
    while max(epochs.values()) <= MOST_EPOCHS:
        stock = [each._replace(samples=each.samples * epochs[each.name]) for each in buckets]
        drained = plan_phases(phases, stock, tokens_per_step, seed, "halt").steps.drained
        if not drained:
            break
        for name in buckets_called(drained[0].bucket, stock):
            epochs[name] += 1 + epochs[name] // 8
    return epochs
