"""Formats on disk: specification, writing, opening and verification of each."""

from longcrawl.formats import datatrove, gpt_simple, megatron, nanogpt, token_parquet
from longcrawl.formats.composed import Composed, ComposedBucket, ComposedSamples, open_composed
from longcrawl.formats.composed_output import ComposedOutput
from longcrawl.formats.composed_result import ComposedResult
from longcrawl.formats.convert import Conversion
from longcrawl.formats.parquet import ParquetOutput
from longcrawl.formats.parquet_result import ParquetResult
from longcrawl.formats.rectangle import RectangleOutput
from longcrawl.formats.shard_formats import open_shard, verify_shard
from longcrawl.formats.shard_output import DatatroveOutput, GptSimpleOutput, MegatronOutput, NanoGptOutput
from longcrawl.formats.shard_result import DatatroveResult, GptSimpleResult, MegatronResult, NanoGptResult
from longcrawl.formats.token_shard import Documents, TokenShard

__all__ = [
    "Composed",
    "ComposedBucket",
    "ComposedOutput",
    "ComposedResult",
    "ComposedSamples",
    "Conversion",
    "DatatroveOutput",
    "DatatroveResult",
    "Documents",
    "GptSimpleOutput",
    "GptSimpleResult",
    "MegatronOutput",
    "MegatronResult",
    "NanoGptOutput",
    "NanoGptResult",
    "ParquetOutput",
    "ParquetResult",
    "RectangleOutput",
    "TokenShard",
    "datatrove",
    "gpt_simple",
    "megatron",
    "nanogpt",
    "open_composed",
    "open_shard",
    "token_parquet",
    "verify_shard",
]
