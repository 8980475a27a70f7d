"""Settings by which documents that share a band key are clustered."""

from typing import Literal, NamedTuple

Keep = Literal["random", "longest", "first"]
Linkage = Literal["single", "star"]
OnLargeCluster = Literal["warn", "error", "keep"]


class Clustering(NamedTuple):
    """What decides about documents that share a band key; see :class:`longcrawl.dedup.MinHash`."""

    stage: str
    bands: int
    keep: Keep
    seed: int
    verify: float | None
    linkage: Linkage
    min_size_ratio: float | None
    max_cluster: int | None
    on_large_cluster: OnLargeCluster
