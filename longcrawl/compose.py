"""Composition measured on anyone's data: how much would each strategy pad, cut and mix of these documents?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from longcrawl.errors import StageError
from longcrawl.lengths import column_lengths, read_lengths
from longcrawl.text.values import tables
from longcrawl.tokens.composition import Comparison, compare_strategies
from longcrawl.tokens.named_strategies import default_strategies
from longcrawl.tokens.strategies import Strategy

__all__ = ["compose"]


def compose(
    documents: Any,
    capacities: Sequence[int] = (2048, 4096, 8192, 16384),
    *,
    padding_threshold: float = 0.05,
    tokenizer: str | None = None,
    text_field: str = "text",
    end_of_text: int | None = None,
    strategies: Sequence[Strategy] | None = None,
) -> Comparison:
    """Compare strategies of composing documents into training samples: padding, truncation, concatenation.

    Nothing is written. Lengths count the tokens that are there; where you end documents with a token of their own, add
    one to each.

    Args:
        documents: the path of a run or of files, as :func:`longcrawl.lengths.read_lengths` takes them; a crawl, a
            dataset or an Arrow table with the column ``n_tokens`` or ``tokens``; or the lengths themselves.
        capacities: of samples, in tokens, ascending.
        padding_threshold: the share of a sample that buckets may pad, P.
        tokenizer: counts the tokens of texts; only with a path.
        text_field: the field of the texts that it counts.
        end_of_text: the id by which documents are told apart in token shards that do not say where they end.
        strategies: what to compare instead of :func:`longcrawl.tokens.default_strategies`.

    Raises:
        SourceError: the path cannot be read, or does not say how long documents are.
        StageError: the capacities do not ascend, or these are no documents.

    >>> compose([5000, 900, 300, 40], capacities=[2048, 4096])["Buckets"].cut_documents
    2

    """
    chosen = default_strategies(capacities, padding_threshold) if strategies is None else tuple(strategies)
    if isinstance(documents, str | Path):
        return compare_strategies(read_lengths(documents, tokenizer, text_field, end_of_text), chosen)
    if tokenizer is not None:
        raise StageError("tokenizer counts the texts of files: give a path, or lc.tokens.Tokenize the documents first")
    return compare_strategies(_lengths(documents), chosen)


def _lengths(documents: Any) -> Any:
    if isinstance(documents, Sequence) or (hasattr(documents, "__array__") and not isinstance(documents, pa.Table)):
        return documents
    return np.concatenate([column_lengths(table, type(documents).__name__) for table in tables(documents)])
