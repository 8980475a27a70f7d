"""Rows of many tasks that meet by partition: in memory, packed, and cut by keys."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.exchange import Exchange, InMemory, key_ranges, pack_table, report_of, unpack_table, with_report
from longcrawl.errors import CorruptionError


def test_packed_tables_have_a_checksum():
    packed = pack_table(pa.table({"number": [1, 2]}))
    assert unpack_table(packed, "a file")["number"].to_pylist() == [1, 2]
    for changed in (packed[:3], packed[:-1], bytes([packed[0] ^ 1]) + packed[1:], packed[:40] + b"?" + packed[41:]):
        with pytest.raises(CorruptionError, match="data from a file has been changed"):
            unpack_table(changed, "a file")


def by_remainder(numbers):
    for number in numbers:
        yield number % 3, pa.table({"number": [number]})


def in_order(_, tables):
    return pa.concat_tables(tables).sort_by("number")


def test_rows_meet_by_partition_in_memory():
    step = Exchange(by_remainder, in_order, 3, None)
    assert step.waiting() == [0, 1, 2]
    InMemory().exchange(step, [[5, 3, 1, 0], [2, 4, 6]])
    assert [step.read(number)["number"].to_pylist() for number in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert ([step.rows(number) for number in range(3)], step.waiting()) == ([3, 2, 2], [])


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 9))
def test_every_key_is_in_one_range_and_ranges_are_in_order(keys, count):
    ranges = key_ranges(np.array(keys, np.uint64), count)
    pairs = sorted(zip(keys, ranges.tolist(), strict=True))
    assert [number for _, number in pairs] == sorted(ranges.tolist())
    assert all(0 <= number < count for number in ranges)


def test_sentences_travel_with_removals():
    removals = pa.table({"row": [1]})
    assert report_of(removals) == []
    assert report_of(with_report(removals, ["one", "another"])) == ["one", "another"]
