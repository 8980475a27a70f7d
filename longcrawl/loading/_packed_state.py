"""What has changed between a state of packed samples and the feed that it is loaded into."""

from collections.abc import Collection, Mapping
from typing import Any

from longcrawl.loading._data_identity import changed_values
from longcrawl.loading._shard_buckets import ShardBucket

__all__ = ["state_changes"]

BY_BUCKET = ("data", "packing")


def state_changes(
    state: Mapping[str, Any], now: Mapping[str, Any], buckets: Mapping[str, ShardBucket], drawn: Collection[str]
) -> list[str]:
    """Say in which way a state is not one of this feed; nothing where it is.

    Args:
        state: what was saved; it has every name of ``now``.
        now: what the feed says of itself at the sample of the state.
        buckets: of the feed.
        drawn: names of those that samples were taken from up to there; what the others hold may change.

    """
    changed = changed_values(state, now, apart=BY_BUCKET)
    data, packing = (state[name] if isinstance(state[name], Mapping) else {} for name in BY_BUCKET)
    if not set(drawn) <= set(data) or (changed and set(data) != set(buckets)):
        was, are = (", ".join(map(repr, sorted(names))) or "none" for names in (data, buckets))
        return [*changed, f"buckets were {was} and are {are}"]
    for name in sorted(drawn):
        changed += buckets[name].changes(data[name], packing.get(name))
    return changed
