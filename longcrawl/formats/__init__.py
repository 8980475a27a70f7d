"""Formats on disk: specification, writing, opening and verification of each."""

from longcrawl.formats.parquet import ParquetOutput
from longcrawl.formats.parquet_result import ParquetResult
from longcrawl.formats.rectangle import RectangleOutput

__all__ = ["ParquetOutput", "ParquetResult", "RectangleOutput"]
