"""Tables with a row of tokens each, as plain `datasets` loads them, and the columns that all token outputs share."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.formats.shards.shard import N_TOKENS
from longcrawl.tokens.tokenize import LOSS_MASK

INPUT_IDS = "input_ids"
ORIGINS = ("id", "url", "language")
"""Columns that identify the document of a row, if the output records them."""
FOUND = ("date", "source", "file", "offset")
"""Columns with the date and place a document was found, recorded in addition to ``ORIGINS``."""


def token_table(
    origins: pa.Table,
    tokens: npt.NDArray[Any],
    lengths: npt.NDArray[np.int64],
    loss_mask: npt.NDArray[np.bool_] | None = None,
    **others: Any,
) -> pa.Table:
    """Build a table of the form that :meth:`longcrawl.core.outputs.TokenRows.read` yields.

    ``origins`` has a row for each row of tokens, whose ids are below 2**31 and end to end. ``lengths`` are int64,
    tokens in each row, and ``others`` are further columns.

    >>> token_table(pa.table({"id": ["a"]}), np.array([5, 6], np.uint16), np.array([2])).to_pylist()
    [{'id': 'a', 'n_tokens': 2, 'input_ids': [5, 6]}]
    """
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    columns = {name: origins[name] for name in origins.column_names} | others
    columns[N_TOKENS] = pa.array(lengths, pa.int64())
    columns[INPUT_IDS] = pa.ListArray.from_arrays(offsets, pa.array(tokens).cast(pa.int32()))
    if loss_mask is not None:
        columns[LOSS_MASK] = pa.ListArray.from_arrays(offsets, pa.array(loss_mask))
    return pa.table(columns)
