"""The order of documents that are put in order by an exchange: that of one process, byte for byte."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.errors import FormatError
from longcrawl.formats import order
from longcrawl.formats.order import ORDER, PLACE, SpillReader, _hash_ids, ahead, read_places, spill_documents
from longcrawl.run.engines import Local

documents = st.tuples(st.sampled_from(["en", "fr", None]), st.integers(0, 3) | st.integers(0, 2**64 - 1), st.text("ab"))


def spill(parts, folder, ids=None, *, shuffled=True):
    """Write documents as pass one does; few sort keys, so that ids decide."""
    for number, rows in enumerate(parts):
        names = [f"{number}-{row}" for row in range(len(rows))] if ids is None else ids[number]
        columns = [names, *([row[place] for row in rows] for place in (2, 0, 1))]
        kinds = (pa.string(), pa.large_string(), pa.string(), pa.uint64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        table = pa.table(arrays, names=["id", "text", "language", "sort_key"])
        spill_documents([table.slice(0, 2), table.slice(2)], folder, number, shuffled=shuffled)


def ordered(folder, parts, **asked):
    stretches, schema = order.order_documents(folder, parts, shuffled=True, **asked)
    found = [(each.group, each.start, each.sizes.tolist()) for each in stretches]
    return (folder / ORDER).read_bytes(), found, schema


@pytest.mark.parametrize("grouped", [False, True])
@given(parts=st.lists(st.lists(documents, max_size=6), min_size=1, max_size=4), piece=st.integers(1, 9))
def test_an_exchange_gives_the_order_of_one_process(grouped, parts, piece):
    with tempfile.TemporaryDirectory() as one, pytest.MonkeyPatch.context() as patch:
        folder = Path(one, "spill")
        folder.mkdir()
        spill(parts, folder)
        if not any(parts):
            with pytest.raises(FormatError, match="no documents to write"):
                order.exchange_order(folder, len(parts), Local(), shuffled=True)
            return
        expected = ordered(folder, len(parts), grouped=grouped)
        (folder / ORDER).unlink()
        patch.setattr(order, "HELD", 0)
        patch.setattr(order, "PIECE", piece)
        order.exchange_order(folder, len(parts), Local(), shuffled=True, grouped=grouped)
        assert (folder / order.COUNTS).exists()
        assert ordered(folder, len(parts), grouped=grouped) == expected


@pytest.mark.parametrize("shuffled", [True, False])
def test_an_order_is_made_without_the_documents(tmp_path, shuffled):
    spill([[("en", 1, "a")], [], [("de", 2, "b")]], tmp_path, shuffled=shuffled)
    for documents_of_part in tmp_path.glob("*.arrow"):  # in a store, they would be fetched
        documents_of_part.unlink()
    _, schema = order.order_documents(tmp_path, 3, shuffled=shuffled)
    assert schema.names == ["id", "text", "language"] + ["sort_key"] * (not shuffled)


def test_an_order_by_language_is_not_taken_from_one_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr(order, "HELD", 0)
    (tmp_path / "spill").mkdir()
    spill([[("en", 1, "a"), ("de", 2, "b")], [("en", 3, "c"), ("de", 4, "d")]], tmp_path / "spill")
    for grouped in (False, True):  # a run that is stopped, and resumed with parquet.by=language
        order.exchange_order(tmp_path / "spill", 2, Local(), shuffled=True, grouped=grouped)
        stretches, _ = order.order_documents(tmp_path / "spill", 2, shuffled=True, grouped=grouped)
    read = np.fromfile(tmp_path / "spill" / ORDER, PLACE)
    assert sorted(read_places(tmp_path / "spill", read)["text"].to_pylist()[:2]) == ["b", "d"]
    assert [(each.group, len(each.sizes)) for each in stretches] == [("de", 2), ("en", 2)]


@pytest.mark.parametrize("grouped", [False, True])
@given(parts=st.lists(st.lists(documents, max_size=6), min_size=1, max_size=4), held=st.sampled_from([0, 1 << 25]))
def test_documents_that_are_not_shuffled_stay_as_they_come(grouped, parts, held):
    parts = [*parts, [("en", 1, "a")]]
    with tempfile.TemporaryDirectory() as one, pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "HELD", held)
        folder = Path(one, "spill")
        folder.mkdir()
        spill(parts, folder, shuffled=False)
        order.exchange_order(folder, len(parts), Local(), shuffled=False, grouped=grouped)
        stretches, _ = order.order_documents(folder, len(parts), shuffled=False, grouped=grouped)
        came = [(row[0] if grouped else None, number, row) for number, rows in enumerate(parts) for row in rows]
        expected = sorted(came, key=lambda one: (one[0] is None, one[0] or ""))  # which leaves equal ones as they stand
        places = np.fromfile(folder / ORDER, PLACE)
        assert places["part"].tolist() == [number for _, number, _ in expected]
        assert read_places(folder, places)["text"].to_pylist() == [row[2] for _, _, row in expected]
        assert [(each.group, each.start) for each in stretches] == [
            (name, next(place for place, one in enumerate(expected) if one[0] == name))
            for name in dict.fromkeys(name for name, _, _ in expected)
        ]
        assert np.concatenate([each.sizes for each in stretches]).tolist() == places["bytes"].tolist()


@given(
    sizes=st.lists(st.integers(0, 9), max_size=30),
    file_bytes=st.integers(1, 40),
    block=st.integers(1, 7),
    data=st.data(),
)
def test_files_are_of_about_equal_size(sizes, file_bytes, block, data):
    start = data.draw(st.integers(0, len(sizes)))
    stop = data.draw(st.integers(start, len(sizes)))
    stretch = order.Stretch(None, 100, np.array(sizes, np.uint64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "BLOCK", block)
        found = order.cut(stretch, start, stop, file_bytes)
    here = sizes[start:stop]
    files = max(-(-sum(here) // file_bytes), 1)
    share = max(-(-sum(here) // files), 1)
    numbers = [sum(here[:place]) // share for place in range(len(here))]
    assert [[number for number in numbers if number == one] for one in sorted(set(numbers))] == [
        numbers[first - 100 - start : last - 100 - start] for first, last in found
    ]


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("held", [0, 1 << 25])
def test_two_rows_of_one_id_are_found_either_way(tmp_path, monkeypatch, held, shuffled):
    monkeypatch.setattr(order, "HELD", held)
    (tmp_path / "spill").mkdir()
    keys = np.arange(3, dtype=np.uint64).tolist()
    rows = [[("en", key, "a") for key in keys]] * 2
    spill(rows, tmp_path / "spill", [["a", "b", "c"], ["d", "b", "e"]], shuffled=shuffled)
    put_in_order = order.order_documents if held else partial(order.exchange_order, engine=Local())
    with pytest.raises(FormatError, match="^two rows have the id 'b'; ids must be unique: drop one of the documents$"):
        put_in_order(tmp_path / "spill", 2, shuffled=shuffled)


lists = st.none() | st.lists(st.integers(0, 9) | st.none(), max_size=4)
texts = st.text("ab") | st.integers(0, 200).map("abcdefg".__mul__)


@given(
    st.lists(st.lists(st.tuples(lists, lists, texts), max_size=5), min_size=1, max_size=3),
    st.integers(1, 9),
    st.data(),
)
def test_rows_are_read_by_their_places(parts, mapped, data):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "MAPPED", mapped)
        places, expected = [], []
        for number, rows in enumerate(parts):
            without_nulls = [None if row[0] is None else [each or 0 for each in row[0]] for row in rows]
            first = [row[1][0] if row[1] else None for row in rows]
            columns = {
                "tokens": pa.array([[1], [], *without_nulls], pa.list_(pa.uint16())).slice(2),
                "wide": pa.array(without_nulls, pa.large_list(pa.field("value", pa.float64()))),
                "some": pa.array([row[1] for row in rows], pa.list_(pa.int32())),
                "text": pa.array([row[2] for row in rows], pa.string()),
                "number": pa.array(first, pa.int64()),
                "day": pa.array(first, pa.date32()),
                "bytes": pa.array(
                    [None if each is None else row[2].encode() for each, row in zip(first, rows, strict=True)],
                    pa.large_binary(),
                ),
                "flag": pa.array([None if each is None else each > 1 for each in first], pa.bool_()),
                "windows": pa.array(
                    [[{"start": len(row[2]), "stop": each}] for each, row in zip(first, rows, strict=True)]
                ),
                "nothing": pa.nulls(len(rows)),
            }
            columns["windows"] = columns["windows"].cast(pa.list_(pa.struct({"start": pa.int64(), "stop": pa.int64()})))
            table = pa.table(columns)
            spill_documents([table.slice(0, 2), table.slice(2)], Path(folder), number, shuffled=False)
            places += [(number, row > 1, row - 2 * (row > 1), 0) for row in range(len(rows))]
            expected += table.to_pylist()
        reader = SpillReader(Path(folder))
        for _ in range(2):
            if chosen := data.draw(st.lists(st.integers(0, len(places) - 1), max_size=9)) if places else []:
                read = reader.read(np.array([places[each] for each in chosen], PLACE))
                read.validate(full=True)
                assert read.schema == table.schema
                assert {column.num_chunks for column in read.columns} == {1}
                assert read.to_pylist() == [expected[each] for each in chosen]


def test_what_is_computed_ahead_keeps_its_order_and_its_errors():
    assert list(ahead(str, range(5))) == ["0", "1", "2", "3", "4"]
    found = ahead(lambda number: 6 // number, [3, 2, 0, 1])
    assert [next(found), next(found)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_documents_without_ids_have_hashes_of_their_own():
    batches = [
        pa.table({"id": pa.array([None, "a", None], pa.string())}),
        pa.table({"id": pa.array([None, None, "b"])}),
    ]
    hashes = [_hash_ids(batch, f"0 {number}", shuffled=False) for number, batch in enumerate(batches)]
    assert len(set(np.concatenate(hashes).tolist())) == 6
    assert (_hash_ids(batches[0], "9 9", shuffled=False)[1] == hashes[0][1]).all()
