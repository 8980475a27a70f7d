"""Writing documents: ends of text, and entries of overlapping windows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.formats.shards.writing import DocumentStream, entries_of

END = 600


@pytest.mark.parametrize("terminate", ["missing", "always", "never"])
@pytest.mark.parametrize("place", ["end", "start"])
@given(documents=st.lists(st.lists(st.sampled_from([1, 2, END]), max_size=4), min_size=1, max_size=6))
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_the_end_of_text_is_added_as_the_policy_says(token_table, terminate, place, documents):
    def expected(one: list[int]) -> list[int]:
        there = bool(one) and one[-1 if place == "end" else 0] == END
        if terminate == "never" or (terminate == "missing" and there):
            return one
        return [*one, END] if place == "end" else [END, *one]

    masks = [[False] * len(one) for one in documents]
    stream = DocumentStream(
        [token_table(documents, loss_mask=masks)], "auto", END, terminate, holds=frozenset(["loss_mask"]), place=place
    )
    (batch,) = stream
    ends = np.cumsum(batch.lengths)
    assert [batch.tokens[end - length : end].tolist() for end, length in zip(ends, batch.lengths, strict=True)] == [
        expected(one) for one in documents
    ]
    added = len(batch.tokens) - sum(map(len, documents))
    assert np.count_nonzero(batch.loss_mask) == added, "what is added counts, what was masked stays so"
    assert (batch.tokens[batch.loss_mask] == END).all()


def test_windows_are_cut_as_they_overlap():
    table = pa.table({"tokens": pa.array([[], [1, 2, 9], [3, 4, 5, 9], []], pa.list_(pa.uint16()))})
    windows = [[], [(0, 3, 0)], [(0, 2, 0), (1, 3, 1), (2, 4, 1)], []]
    kind = pa.list_(pa.struct([(name, pa.int64()) for name in ("start", "stop", "overlap")]))
    named = [[dict(zip(("start", "stop", "overlap"), each, strict=True)) for each in row] for row in windows]
    cut = table.append_column("windows", pa.array(named, kind))
    for rows, tokens, counts in (
        ([0, 3], [], [0, 0]),
        ([1], [1, 2, 9], [1]),
        ([0, 1, 2], [1, 2, 9, 3, 4, 4, 5, 5, 9], [0, 1, 3]),
    ):
        entries, found = entries_of(cut.take(rows), None, "gpt-simple", "keep")
        assert (entries.tokens.tolist(), found.tolist()) == (tokens, counts)
