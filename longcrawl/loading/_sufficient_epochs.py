"""How often buckets have to be repeated for a curriculum to be spent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from longcrawl.loading._shard_buckets import ShardBucket
from longcrawl.loading.curriculum import MixBy, Phase, plan_curriculum

__all__ = ["sufficient_epochs"]


def sufficient_epochs(
    phases: Sequence[Phase], buckets: Mapping[str, ShardBucket], seed: int, mix_by: MixBy
) -> dict[str, int]:
    """Give epochs of each bucket with which none runs dry: those that the shares ask for, and more where draws do."""
    asked = dict.fromkeys(buckets, 0.0)
    for phase in phases:
        for name, weight in phase.mix.items():
            asked[name] += phase.duration_tokens * weight / sum(phase.mix.values())
    epochs = {
        name: max(bucket.epochs, -int(-asked[name] // max(int(bucket.sample_tokens.sum()), 1)))
        for name, bucket in buckets.items()
    }
    while True:
        inventory = {name: replace(bucket, epochs=epochs[name]).tokens_by_place() for name, bucket in buckets.items()}
        plan = plan_curriculum(phases, inventory, seed=seed, mix_by=mix_by, on_exhausted="halt")
        dry = [each.bucket for each in plan.drained if each.bucket is not None]
        if not dry:
            return epochs
        for name in dry:
            epochs[name] += 1
