"""A loss mask has a value for each token."""

import numpy as np
import pyarrow as pa
import pytest

from longcrawl.errors import StageError
from longcrawl.tokens.loss_mask import LOSS_MASK, loss_mask_of_tokens


def test_a_mask_is_returned_and_one_of_another_length_or_with_nulls_is_an_error():
    table = pa.table({LOSS_MASK: [[True, False], [True]]})
    assert loss_mask_of_tokens(table, np.array([2, 1]), "an output").to_pylist() == [[True, False], [True]]
    with pytest.raises(StageError, match="1 values of 'loss_mask' for the 2 tokens of row 1"):
        loss_mask_of_tokens(table, np.array([2, 2]), "an output")
    with pytest.raises(StageError, match="found a null"):
        loss_mask_of_tokens(pa.table({LOSS_MASK: [[True, None]]}), np.array([2]), "an output")
