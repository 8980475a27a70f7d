"""Blocks of JSON lines as samples: texts are tokenised, ended, cut into windows and packed, block by block."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.formats.shards.shard import TokenShard
from longcrawl.loading._json_blocks import Block
from longcrawl.loading._shard_buckets import ShardBucket
from longcrawl.loading.packing_plan import Longs, Packing, plan_packing
from longcrawl.sources.json_lines import read_lines
from longcrawl.tokens.encoders import Encoder
from longcrawl.tokens.windows import document_windows

__all__ = ["EncodedBlock", "encode_block", "pack_block"]


@dataclass(frozen=True, eq=False)
class EncodedBlock:
    """The documents of a block as entries of a token shard, and the lines that are none.

    Attributes:
        block: where it is from, without its content.
        tokens: of all entries, uint16 or uint32.
        ends: int64 [entries], exclusive.
        overlaps: int64 [entries], with how many tokens of the entry before it each begins.
        lost: number of each line of the block that could not be read, and why.

    """

    block: Block
    tokens: npt.NDArray[Any]
    ends: Longs
    overlaps: Longs
    lost: tuple[tuple[int, str], ...]


def encode_block(
    block: Block, encoder: Encoder, end_of_text: int, text_field: str, max_length: int, overlap_size: int
) -> EncodedBlock:
    """Tokenise the documents of a block, end each with ``end_of_text``, and cut long ones into windows.

    Raises:
        CorruptionError: the file is shorter than it was.

    """
    schema = pa.schema([pa.field(text_field, pa.large_string(), nullable=False)])
    lines = read_lines(block.read(), schema)
    ids, offsets = encoder.encode(lines.table[text_field])
    lengths = np.diff(offsets) + 1
    ends = np.cumsum(lengths)
    tokens = np.empty(int(ends[-1]) if len(ends) else 0, ids.dtype)
    is_text = np.ones(len(tokens), np.bool_)
    is_text[ends - 1] = False
    tokens[is_text], tokens[ends - 1] = ids, end_of_text
    windows = document_windows(lengths, max_length, overlap_size)
    sizes = windows.stops - windows.starts
    stops = np.cumsum(sizes)
    if windows.overlaps.any():
        firsts = (ends - lengths)[windows.documents] + windows.starts
        tokens = tokens[np.arange(stops[-1]) + np.repeat(firsts - (stops - sizes), sizes)]
    where = replace(block, content=None)
    return EncodedBlock(where, tokens, stops, windows.overlaps, tuple(lines.lost))


def pack_block(encoded: EncodedBlock, max_length: int, packing: Packing, seed: int | None, epoch: int) -> ShardBucket:
    """Plan the samples of a block; with a seed they have an order of their own in each epoch.

    Raises:
        LoaderError: the packing has made what cannot be delivered.

    """
    block = encoded.block
    shard = TokenShard(block.part.files[0], "jsonl", encoded.tokens, encoded.ends, encoded.overlaps)
    lengths = np.diff(encoded.ends, prepend=0)
    # A packer may not know what to do with nothing.
    plan = plan_packing(lengths, max_length, packing if len(lengths) else "in-order")
    return ShardBucket(f"{block.part.name}/{block.start}/{epoch}", (shard,), plan, 1, seed)
