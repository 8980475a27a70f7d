"""Texts of rows of tokens, for people who look at tables of them."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from longcrawl.formats.token_output import decode_beginning, decode_tokens
from longcrawl.formats.token_rows import INPUT_IDS

BEGINNING, TEXT = "beginning", "text"
"""The column of the first ``BEGINNING_TOKENS`` tokens, and that of all."""
BEGINNING_TOKENS = 64


def with_texts(table: pa.Table, *, output: Path, shown: str, json_escaped: bool, end_of_text: int | None) -> pa.Table:
    """Add the text of each row, or its beginning; of a rolled row from where its document begins.

    Args:
        table: as :meth:`longcrawl.core.results.TokenRows.read` yields it.
        output: the folder with the tokenizer.
        shown: BEGINNING or TEXT.
        json_escaped: whether the tokens are of JSON-escaped text.
        end_of_text: the token that ends a document; it is not part of its text.
    """
    rolls = table["roll"].to_pylist() if "roll" in table.column_names else [0] * table.num_rows
    found, begins = [], shown == BEGINNING
    decode = decode_beginning if begins else decode_tokens
    for tokens, roll in zip(_lists(table), rolls, strict=True):
        start = (roll or 0) % max(len(tokens), 1)
        most = BEGINNING_TOKENS if begins else len(tokens)
        chosen = np.concatenate([tokens[start : start + most], tokens[:start]])[:most]
        if not begins and len(chosen) and chosen[-1] == end_of_text:
            chosen = chosen[:-1]
        try:
            found.append(decode(output, chosen.tolist(), json_escaped=json_escaped))
        except ValueError:  # A window may begin within an escape.
            found.append(decode(output, chosen.tolist(), json_escaped=False))
    return table.add_column(table.column_names.index(INPUT_IDS), shown, pa.array(found, pa.string()))


def _lists(table: pa.Table) -> "Iterator[np.ndarray[tuple[int], np.dtype[np.int32]]]":
    for chunk in table[INPUT_IDS].chunks:
        values, ends = chunk.values.to_numpy(), chunk.offsets.to_numpy()
        yield from (values[first:last] for first, last in pairwise(ends.tolist()))
