"""The order of documents that are put in order by an exchange: that of one process, byte for byte."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.engines import Local
from longcrawl.errors import FormatError
from longcrawl.formats import order
from longcrawl.formats.spill import ORDER, spill_documents

documents = st.tuples(st.sampled_from(["en", "fr", None]), st.integers(0, 3) | st.integers(0, 2**64 - 1), st.text("ab"))


def spill(parts, folder, ids=None):
    """Write documents as pass one does; few sort keys, so that ids decide."""
    for number, rows in enumerate(parts):
        names = [f"{number}-{row}" for row in range(len(rows))] if ids is None else ids[number]
        columns = [names, *([row[place] for row in rows] for place in (2, 0, 1))]
        kinds = (pa.string(), pa.large_string(), pa.string(), pa.uint64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        table = pa.table(arrays, names=["id", "text", "language", "sort_key"])
        spill_documents([table.slice(0, 2), table.slice(2)], folder, number, shuffled=True, unique="rectangle")


def ordered(folder, parts, **asked):
    stretches, schema = order.order_documents(folder, parts, shuffled=True, **asked)
    found = [(each.language, each.start, each.sizes.tolist()) for each in stretches]
    return (folder / ORDER).read_bytes(), found, schema


@pytest.mark.parametrize("by_language", [False, True])
@given(parts=st.lists(st.lists(documents, max_size=6), min_size=1, max_size=4), piece=st.integers(1, 9))
def test_an_exchange_gives_the_order_of_one_process(by_language, parts, piece):
    with tempfile.TemporaryDirectory() as one, pytest.MonkeyPatch.context() as patch:
        folder = Path(one, "spill")
        folder.mkdir()
        spill(parts, folder)
        if not any(parts):
            with pytest.raises(FormatError, match="there are no documents to write"):
                order.exchange_order(folder, len(parts), Local(), shuffled=True)
            return
        expected = ordered(folder, len(parts), by_language=by_language)
        (folder / ORDER).unlink()
        patch.setattr(order, "HELD", 0)
        patch.setattr(order, "PIECE", piece)
        order.exchange_order(folder, len(parts), Local(), shuffled=True, by_language=by_language, unique=True)
        assert (folder / order.COUNTS).exists()
        assert ordered(folder, len(parts), by_language=by_language) == expected


def test_documents_that_are_not_shuffled_stay_as_they_come(tmp_path, monkeypatch):
    monkeypatch.setattr(order, "HELD", 0)
    (tmp_path / "spill").mkdir()
    spill([[("en", 1, "a")]], tmp_path / "spill")
    order.exchange_order(tmp_path / "spill", 1, Local(), shuffled=False)
    assert not (tmp_path / "spill" / order.COUNTS).exists()


@pytest.mark.parametrize("held", [0, 1 << 25])
def test_two_rows_of_one_id_are_found_either_way(tmp_path, monkeypatch, held):
    monkeypatch.setattr(order, "HELD", held)
    (tmp_path / "spill").mkdir()
    keys = np.arange(3, dtype=np.uint64).tolist()
    rows = [[("en", key, "a") for key in keys]] * 2
    spill(rows, tmp_path / "spill", [["a", "b", "c"], ["d", "b", "e"]])
    put_in_order = order.order_documents if held else partial(order.exchange_order, engine=Local())
    with pytest.raises(FormatError, match="^two rows are called 'b'; ids must be unique: drop one of the documents$"):
        put_in_order(tmp_path / "spill", 2, shuffled=True, unique=True)
