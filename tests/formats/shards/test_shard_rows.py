"""Rows of tokens as plain `datasets` loads them."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.formats.shards.shard import token_table

ROWS = st.lists(st.lists(st.tuples(st.integers(0, 65_535), st.booleans()), max_size=5), max_size=6)


@given(ROWS, st.booleans())
def test_rows_have_their_origins_tokens_and_masks(rows, masked):
    names = [f"d{number}" for number in range(len(rows))]
    tokens = np.array([token for row in rows for token, _ in row], np.uint16)
    mask = np.array([flag for row in rows for _, flag in row], np.bool_) if masked else None
    lengths = np.array([len(row) for row in rows], np.int64)
    origins = pa.table({"id": pa.array(names, pa.string())})
    made = token_table(origins, tokens, lengths, mask, bucket=pa.array(["a"] * len(rows), pa.string()))
    expected = [
        {"id": name, "bucket": "a", "n_tokens": len(row), "input_ids": [token for token, _ in row]}
        | ({"loss_mask": [flag for _, flag in row]} if masked else {})
        for name, row in zip(names, rows, strict=True)
    ]
    assert made.to_pylist() == expected
    assert made.schema.field("input_ids").type.value_type == pa.int32()
