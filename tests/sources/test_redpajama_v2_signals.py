"""The signals kernel against Python's ``json``, which reads the same lines by another way."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.sources import redpajama_v2
from longcrawl.sources.json_lines import parse_object
from longcrawl.sources.redpajama_v2 import DOCUMENT_SIGNALS, LINE_SIGNALS, SIGNALS_TYPE

numbers = st.none() | st.integers(0, 10**9) | st.floats(-1e9, 1e9).map(lambda value: round(value, 8))
spans = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), numbers), max_size=9) | st.none()
signals = st.dictionaries(st.sampled_from([*DOCUMENT_SIGNALS, *LINE_SIGNALS, "other"]), spans, max_size=12)
records = st.fixed_dictionaries(
    {"id": st.text(max_size=9).filter(str.isprintable), "quality_signals": signals},
    optional={
        "metadata": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        "id_int": st.integers(0, 2**64 - 1),
    },
)

separators = st.sampled_from([(",", ":"), (", ", ": ")])
"""The release has no spaces between its values, for which the kernels have a way of their own."""


EVERY = tuple(field.name for field in SIGNALS_TYPE)


def by_kernel(block, line_signals=LINE_SIGNALS, names=EVERY):
    return rows_of(block, line_signals, names).table()


def rows_of(block, line_signals=LINE_SIGNALS, names=EVERY):
    rows = redpajama_v2._Rows(names, line_signals)
    rows.add(memoryview(block))
    return rows


def by_json(line, line_signals=LINE_SIGNALS):
    return redpajama_v2._row(parse_object(line), line_signals)


@given(st.lists(records, max_size=4), separators)
@settings(deadline=None)  # the first call compiles the kernels
def test_kernel_and_json_give_equal_rows(rows, between):
    lines = [json.dumps(row, separators=between, ensure_ascii=False).encode() for row in rows]
    expected = [by_json(line) for line in lines]
    found = by_kernel(b"\n".join(lines)).to_pylist()
    assert sorted(found, key=repr) == sorted(
        (
            {**row, "line_signals": {name: as_lists(value) for name, value in row["line_signals"].items()}}
            for row in expected
        ),
        key=repr,
    )


def as_lists(value):
    return None if value is None else [list(span) for span in value]


@given(records, separators, st.data())
@settings(max_examples=4 * settings.default.max_examples, deadline=None)
def test_the_kernel_accepts_no_line_that_json_refuses(record, between, data):
    line = bytearray(json.dumps(record, separators=between).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(line) - 1))
        change = data.draw(st.sampled_from(list(b'{}[]",:\\u0eE+-.19tfn \x00\x7f\xc3')))
        if data.draw(st.booleans()):
            line[place] = change
        else:
            line.insert(place, change)
    rows = rows_of(bytes(line), ())
    table = rows.table()
    if not (rows._late or rows._lost):
        assert table.select(["signals"]).to_pylist() == [{"signals": by_json(bytes(line), ())["signals"]}]


plain_values = st.integers(0, 10**7 - 1) | st.decimals(0, 10**6, places=8).map(float).filter(
    lambda value: "e" not in repr(value)
)
plain_spans = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), plain_values), min_size=1, max_size=30)


def plain_triples(text):
    """Return what the kernel for lists as the release spells them finds: where it ends, first value, sum."""
    data = np.frombuffer(b" " * 8 + text + b" " * 64, np.uint8)
    end, first, total = redpajama_v2._plain_triples(data, 8, 8 + len(text))
    return end - 8, first, total


@pytest.mark.slow
@given(plain_spans)
@settings(deadline=None)
def test_lists_as_the_release_spells_them_are_read_64_bytes_at_a_time(spans):
    text = json.dumps(spans, separators=(",", ":")).encode()
    total = 0.0
    for _, _, value in spans:
        total += value
    assert plain_triples(text) == (len(text), spans[0][2], total)


@pytest.mark.slow
@given(plain_spans, st.data())
@settings(max_examples=4 * settings.default.max_examples, deadline=None)
def test_a_changed_list_is_what_json_says_or_left_to_others(spans, data):
    text = bytearray(json.dumps(spans, separators=(",", ":")).encode())
    for _ in range(data.draw(st.integers(1, 2))):
        place, change = data.draw(st.integers(0, len(text) - 1)), data.draw(st.sampled_from(b"[],.09-e "))
        text[place : place + data.draw(st.integers(0, 1))] = bytes([change]) * data.draw(st.integers(0, 2))
    end, first, total = plain_triples(bytes(text))
    if end >= 0:
        found, expected = json.loads(text[:end]), 0.0
        for _, _, value in found:
            expected += value
        assert all(isinstance(number, int) for start, stop, _ in found for number in (start, stop))
        assert (first, total) == (found[0][2], expected)


@pytest.mark.parametrize("name", [b"id", b"i\\u0064"])  # the kernel takes the first, json the other
def test_half_a_character_of_an_id_is_replaced(name):
    line = b'{"%s": "a\\udc00b", "quality_signals": {}}' % name
    assert by_kernel(line)["id"].to_pylist() == ["a\ufffdb"]


def test_every_document_signal_and_every_sum_is_a_field():
    assert [field.name for field in SIGNALS_TYPE] == [*DOCUMENT_SIGNALS, *(f"{name}.sum" for name in LINE_SIGNALS)]
    assert len(DOCUMENT_SIGNALS) == 39
    assert len(LINE_SIGNALS) == 6


@pytest.mark.parametrize(
    ("spelled", "value", "total"),
    [
        ("null", None, None),
        ("[]", None, 0.0),
        ("[[0, 0, null]]", None, 0.0),
        ("[[0, 4, 1.5], [4, 5, null], [5, 9, 2]]", 1.5, 3.5),
        ("[ [ 0 ,4, 1e2 ]\t]", 100.0, 100.0),
        ("[[0, 4, 0.30000000000000004]]", 0.30000000000000004, 0.30000000000000004),
    ],
)
def test_what_a_value_and_a_sum_are(spelled, value, total):
    line = f'{{"id": "x", "quality_signals": {{"ccnet_length": {spelled}, "rps_lines_num_words": {spelled}}}}}'.encode()
    (row,) = by_kernel(line).to_pylist()
    assert row["signals"]["ccnet_length"] == value
    assert row["signals"]["rps_lines_num_words.sum"] == total
    assert row["signals"]["ccnet_nlines"] is None
    assert row["line_signals"]["rps_lines_javascript_counts"] is None


def test_a_file_without_lines_has_no_rows():
    assert by_kernel(b"\n \n").num_rows == 0
    assert by_kernel(b"\n").column_names == ["id", "signals", "line_signals"]


@given(
    st.lists(records, min_size=1, max_size=4, unique_by=lambda row: row["id"]),
    st.lists(st.sampled_from(EVERY), min_size=1, max_size=4, unique=True),
)
@settings(deadline=None)  # the first call compiles the kernels
def test_signals_that_are_named_are_those_of_all(rows, names):
    block = b"\n".join(json.dumps(row, separators=(",", ":")).encode() for row in rows)
    all_of_them = by_kernel(block, ()).to_pylist()
    chosen = by_kernel(block, (), names)
    assert [field.name for field in chosen.schema.field("signals").type] == [name for name in EVERY if name in names]
    found = {row["id"]: row["signals"] for row in chosen.to_pylist()}
    assert found == {row["id"]: {name: row["signals"][name] for name in found[row["id"]]} for row in all_of_them}


@pytest.mark.parametrize("other", ['[["]]"]]', "[" + "[1]," * 40 + "[1]]", '[{"a": [[1]]}]', "[[0,1,2.5]]", "3"])
@pytest.mark.parametrize("behind", [b"", b"\n" + b" " * 100])
def test_what_is_not_looked_into_ends_where_it_ends(other, behind):
    first = f'{{"id":"x","quality_signals":{{"other":{other},"ccnet_length":[[0,4,7.0]]}}}}'.encode()
    last = f'{{"id":"x","quality_signals":{{"ccnet_length":[[0,4,7.0]],"other":{other}}}}}'.encode()
    for line in (first, last):
        found = by_kernel(line + behind, (), ["ccnet_length"])
        assert found.to_pylist() == [{"id": "x", "signals": {"ccnet_length": 7.0}}]
