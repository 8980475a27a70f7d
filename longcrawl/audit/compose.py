"""Composition measured on anyone's data: how much would each strategy pad, cut and mix of these documents?"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from longcrawl.audit.lengths import Lengths, column_lengths, read_lengths
from longcrawl.composition.lengths import checked_lengths
from longcrawl.composition.measures import Comparison, compare_strategies
from longcrawl.composition.named_strategies import default_strategies
from longcrawl.composition.strategies import Strategy
from longcrawl.errors import StageError
from longcrawl.formats.shards.checks import check_word
from longcrawl.formats.shards.writing import Terminate
from longcrawl.text.values import tables

__all__ = ["compose"]


def compose(
    documents: Any,
    capacities: Sequence[int] = (2048, 4096, 8192, 16384),
    *,
    padding_threshold: float = 0.05,
    tokenizer: str | None = None,
    text_field: str = "text",
    end_of_text: int | None = None,
    terminate: Terminate = "missing",
    strategies: Sequence[Strategy] | None = None,
) -> Comparison:
    """Compare strategies of composing documents into training samples: padding, truncation, concatenation.

    Nothing is written. Documents are planned as the output ``composed`` plans them: each that has tokens ends with an
    end-of-text token, which is one of them. The table says to how many it was added.

    Args:
        documents: the path of a run or of files, as :func:`longcrawl.audit.lengths.read_lengths` takes them; a crawl, a
            dataset or an Arrow table with the column ``n_tokens`` or ``tokens``; or the lengths themselves.
        capacities: of samples, in tokens, ascending.
        padding_threshold: the share of a sample that buckets may pad, P.
        tokenizer: counts the tokens of texts; only with a path.
        text_field: the field of the texts that it counts.
        end_of_text: the id of the end-of-text token. It tells documents apart in token shards that do not say where
            they end, and says which lists of tokens have it already; without it none do, but in files that say so.
        terminate: whether a token is added to each document that has any, for its end: ``"missing"`` where it is not
            counted yet (see :func:`longcrawl.audit.lengths.read_lengths`), ``"always"`` or ``"never"``. Lengths that
            are             given as numbers are taken to count it.
        strategies: what to compare instead of :func:`longcrawl.tokens.default_strategies`.

    Raises:
        SourceError: the path cannot be read, or does not say how long documents are.
        StageError: the capacities do not ascend, or these are no documents.
        FormatError: ``terminate`` is none of these words.

    >>> compose([5000, 900, 300, 40], capacities=[2048, 4096])["Buckets"].cut_documents
    2

    """
    chosen = default_strategies(capacities, padding_threshold) if strategies is None else tuple(strategies)
    check_word("terminate", terminate, Terminate)
    if isinstance(documents, str | Path):
        found = read_lengths(documents, tokenizer, text_field, end_of_text)
    elif tokenizer is None:
        found = _lengths(documents, end_of_text)
    else:
        raise StageError("tokenizer counts the texts of files: give a path, or lc.tokens.Tokenize the documents first")
    added = (found.tokens > 0) & (~found.ended if terminate == "missing" else terminate == "always")
    return replace(compare_strategies(found.tokens + added, chosen), terminated=int(np.count_nonzero(added)))


def _lengths(documents: Any, end_of_text: int | None) -> Lengths:
    if isinstance(documents, Sequence) or (hasattr(documents, "__array__") and not isinstance(documents, pa.Table)):
        given = checked_lengths(documents)
        return Lengths(given, np.ones(len(given), np.bool_))
    name = type(documents).__name__
    found = [column_lengths(table, name, end_of_text) for table in tables(documents)]
    return Lengths(*map(np.concatenate, zip(*found, strict=True)))
