"""The loss mask: a column that excludes tokens from the loss."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import column
from longcrawl.errors import StageError

MASKED = "masked"
"""Column of the spans of a text that are excluded from the loss: list<struct<start, end>>, in characters."""
LOSS_MASK = "loss_mask"
"""Column parallel to ``tokens``, False for tokens that are excluded from the loss. An Arrow boolean takes one bit."""
LOSS_MASK_TYPE = pa.list_(pa.bool_())


def loss_mask_of_tokens(table: pa.Table, lengths: npt.NDArray[np.int64], needed_by: str) -> pa.Array:
    """Return ``loss_mask`` as :data:`LOSS_MASK_TYPE`; StageError unless it has a value for each token."""
    flags = column(table, LOSS_MASK, needed_by)
    found = pc.fill_null(pc.list_value_length(flags), 0).to_numpy()
    if not np.array_equal(found, lengths):
        row = int(np.flatnonzero(found != lengths)[0])
        raise StageError(
            f"{needed_by} found {found[row]:,} values of {LOSS_MASK!r} for the {lengths[row]:,} tokens of row {row:,}: "
            "make both with the stage tokenize"
        )
    values = pc.cast(flags.flatten(), pa.bool_())
    if values.null_count:
        raise StageError(f"{needed_by} found a null among the values of {LOSS_MASK!r}: set it to true or false")
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
