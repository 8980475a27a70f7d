"""On-disk output formats: for each one its specification, writer, reader and verification."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.formats.buckets.spec import Composed, ComposedBucket, ComposedSamples, open_composed
    from longcrawl.formats.buckets.write import ComposedOutput, ComposedResult
    from longcrawl.formats.documents import ParquetOutput, ParquetResult
    from longcrawl.formats.rectangle.write import RectangleOutput, RectangleResult
    from longcrawl.formats.shards import datatrove, gpt_simple, levanter, litdata, mds, megatron, nanogpt, olmo_core
    from longcrawl.formats.shards import parquet as token_parquet
    from longcrawl.formats.shards.convert import Conversion
    from longcrawl.formats.shards.shard import Documents, TokenShard
    from longcrawl.formats.shards.spec import open_shard, verify_shard
    from longcrawl.formats.shards.write import (
        DatatroveOutput,
        DatatroveResult,
        GptSimpleOutput,
        GptSimpleResult,
        LevanterOutput,
        LevanterResult,
        LitdataOutput,
        LitdataResult,
        MdsOutput,
        MdsResult,
        MegatronOutput,
        MegatronResult,
        NanoGptOutput,
        NanoGptResult,
        OlmoCoreOutput,
        OlmoCoreResult,
    )

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
    "LevanterOutput",
    "LevanterResult",
    "LitdataOutput",
    "LitdataResult",
    "MdsOutput",
    "MdsResult",
    "MegatronOutput",
    "MegatronResult",
    "NanoGptOutput",
    "NanoGptResult",
    "OlmoCoreOutput",
    "OlmoCoreResult",
    "ParquetOutput",
    "ParquetResult",
    "RectangleOutput",
    "RectangleResult",
    "TokenShard",
    "datatrove",
    "gpt_simple",
    "levanter",
    "litdata",
    "mds",
    "megatron",
    "nanogpt",
    "olmo_core",
    "open_composed",
    "open_shard",
    "token_parquet",
    "verify_shard",
]

lazy(__name__)
