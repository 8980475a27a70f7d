"""Samples as rows of a batch: tokens, what is trained on, positions and documents."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from longcrawl.loading._shard_buckets import ShardBucket, kernels
from longcrawl.loading.packing_plan import Longs

__all__ = ["IGNORED", "Batch", "LastBatch", "Positions", "assemble"]

Batch = dict[str, Any]
"""See :class:`longcrawl.loading.Packed`."""

Positions = Literal["reset", "continuous"]

LastBatch = Literal["drop", "fill"]
"""What becomes of the samples at the end that do not fill a step: left out, or delivered with rows of padding."""

IGNORED = -100
"""The label of a token that is no target."""


def assemble(
    rows: Mapping[ShardBucket, tuple[Longs, Longs]],
    batch_size: int,
    max_length: int,
    pad_token: int,
    positions: Positions,
) -> Batch:
    """Make a batch of samples; rows that are left have padding only.

    Args:
        rows: for each bucket the rows that are its, and the samples that go there.
        batch_size: how many rows there are.
        max_length: of a row.
        pad_token: the id that fills it up.
        positions: see :class:`longcrawl.loading.Packed`.

    """
    out = np.empty((4, batch_size, max_length), np.int64)
    counts, filled = np.zeros((2, batch_size), np.int64)
    lengths = [np.array([max_length], np.int64)] * batch_size
    reset = int(positions == "reset")
    for bucket, (places, samples) in rows.items():
        sizes, first = bucket.fill(samples, places, reset, out, counts, filled), 0
        pieces, padded = counts.tolist(), (max_length - filled).tolist()
        for row in places.tolist():
            stop, padding = first + pieces[row], padded[row]
            lengths[row] = np.array([*sizes[first:stop].tolist(), padding]) if padding else sizes[first:stop]
            first = stop
    kernels().fill_padding(filled, counts, pad_token, reset, out)
    named = dict(zip(("input_ids", "labels", "position_ids", "doc_ids"), out, strict=True))
    return {**named, "n_tokens": filled, "seq_lengths": lengths}
