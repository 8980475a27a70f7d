"""Samples as rows of a batch: tokens, what is trained on, positions and documents."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.loading._shard_buckets import ShardBucket

__all__ = ["IGNORED", "Batch", "Positions", "assemble"]

Batch = dict[str, Any]
"""See :class:`longcrawl.loading.Packed`."""

Positions = Literal["reset", "continuous"]

IGNORED = -100
"""The label of a token that is no target."""


def assemble(
    rows: Sequence[tuple[ShardBucket, int]], batch_size: int, max_length: int, pad_token: int, positions: Positions
) -> Batch:
    """Make a batch of samples; rows that are left have padding only."""
    tokens = np.full((batch_size, max_length), pad_token, np.int64)
    trained = np.zeros((batch_size, max_length), np.bool_)
    lengths = [_fill(bucket, sample, tokens[row], trained[row]) for row, (bucket, sample) in enumerate(rows)]
    left = batch_size - len(rows)
    lengths += [np.array([max_length], np.int64)] * left
    sizes = np.concatenate(lengths)
    numbers = np.concatenate([np.arange(len(each)) for each in lengths])
    filled = np.array([bucket.sample_tokens[sample] for bucket, sample in rows] + [0] * left, np.int64)
    places = np.arange(batch_size * max_length).reshape(batch_size, max_length)
    if positions == "reset":
        places -= np.repeat(np.cumsum(sizes) - sizes, sizes).reshape(batch_size, max_length)
    else:
        places %= max_length
        places *= places < filled[:, None]
    return {
        "input_ids": tokens,
        "labels": np.where(trained, tokens, IGNORED),
        "position_ids": places,
        "doc_ids": np.repeat(numbers, sizes).reshape(batch_size, max_length),
        "n_tokens": filled,
        "seq_lengths": lengths,
    }


def _fill(
    bucket: ShardBucket, sample: int, tokens: npt.NDArray[np.int64], trained: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Put a sample into a row, and give the lengths of its pieces, padding as the last."""
    pieces = bucket.pieces(sample)
    filled = 0
    for stretch, mask in bucket.stretches(pieces):
        stop = filled + len(stretch)
        tokens[filled:stop] = stretch
        trained[filled:stop] = True if mask is None else mask
        filled = stop
    sizes = bucket.plan.sizes[pieces]
    starts = np.cumsum(sizes) - sizes
    for start, untrained in zip(starts.tolist(), bucket.untrained(pieces).tolist(), strict=True):
        trained[start : start + untrained] = False
    return np.append(sizes, len(tokens) - filled) if filled < len(tokens) else sizes
