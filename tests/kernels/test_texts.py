"""Text columns as buffers for kernels and back."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.errors import StageError
from longcrawl.kernels.texts import (
    check_not_masked,
    fixed_binary,
    fixed_rows,
    text_buffers,
    text_column,
    valid_texts,
)

TEXTS = st.lists(st.none() | st.text(st.sampled_from("aé漢😀 \n"), max_size=6), max_size=8)


@given(TEXTS, st.sampled_from([pa.string(), pa.large_string()]), st.integers(0, 3))
def test_texts_come_back_as_they_were(texts, kind, first):
    column = valid_texts(pa.array(texts, kind).slice(first), "a test")
    data, offsets = text_buffers(column)
    pieces = [bytes(data[start:stop]).decode() for start, stop in pairwise(offsets)]
    assert pieces == [text or "" for text in texts[first:]]
    assert (data.flags.writeable, offsets.flags.writeable) == (False, False)
    begin = int(offsets[0])
    made = text_column(data[begin:].copy(), offsets - begin, column, kind)
    assert (made.type, made.to_pylist()) == (kind, texts[first:])


def test_texts_of_another_type_or_that_are_damaged_are_one_sentence():
    with pytest.raises(StageError, match=r"a test needs a column 'text' of strings, but it is int64; cast it first"):
        valid_texts(pa.array([1]), "a test")
    buffers = [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
    with pytest.raises(StageError, match="the column 'text' is damaged"):
        valid_texts(pa.Array.from_buffers(pa.string(), 1, buffers), "a test")


@given(st.lists(st.none() | st.binary(min_size=3, max_size=3), min_size=1, max_size=20), st.integers(0, 3))
def test_rows_of_bytes_are_binary_values(values, first):
    rows = np.array([list(value or b"   ") for value in values], np.uint8)
    made = fixed_binary(rows, np.array([value is not None for value in values]))
    assert (made.type, made.to_pylist()) == (pa.binary(3), values)
    assert (fixed_rows(made.slice(first)) == rows[first:]).all()


def test_a_text_with_masks_is_not_changed():
    check_not_masked(pa.table({"text": ["a"]}), "a test")
    with pytest.raises(StageError, match="a test would shift what 'masked' points to; put it before the stage"):
        check_not_masked(pa.table({"masked": [1]}), "a test")
