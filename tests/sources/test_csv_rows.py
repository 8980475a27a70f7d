"""CSV: what Python's writer writes comes back, and what is damaged is lost alone or ends the file."""

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.sources import BadFiles, Part
from longcrawl.errors import SourceError
from longcrawl.sources.text import Text

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from('\n\r",;\t ﻿'))


def read(path, policy="error", **fields):
    source, bad = Text(data_files=str(path), **fields), BadFiles(policy)
    tables = list(source.read(Part(path.name, (str(path),)), bad))
    assert all(table.schema == source.schema() for table in tables)
    return [row for table in tables for row in table.to_pylist()], [
        (each.reason, each.records_lost) for each in bad.found
    ]


def texts(path, policy="skip", **fields):
    rows, bad = read(path, policy, **fields)
    return [(row["id"].rpartition(":")[2], row["text"]) for row in rows], bad


@given(
    st.lists(st.tuples(CELLS, CELLS)),
    st.sampled_from([("a.csv", ","), ("a.tsv", "\t"), ("a.csv.gz", ",")]),
    st.booleans(),
)
def test_what_a_writer_writes_comes_back(tmp_path_factory, rows, kind, marked):
    name, separator = kind
    path, written = tmp_path_factory.mktemp("csv") / name, io.StringIO(newline="")
    csv.writer(written, delimiter=separator, quoting=csv.QUOTE_ALL).writerows([("url", "text"), *rows])
    data = written.getvalue().encode("utf-8-sig" if marked else "utf-8")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found, bad = read(path)
    assert bad == []
    assert [(row["url"], row["text"]) for row in found] == [(url or None, text) for url, text in rows]
    assert [row["id"] for row in found] == [f"{name}:{number}" for number in range(len(rows))]


def test_rows_that_are_not_right_are_lost_alone_and_keep_their_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,id\none,a\n\nwith,too,many\n"bad"quote,b\nlatin \xe9,c\n"two\nlines",d\n')
    assert texts(path) == (
        [("0", "one"), ("4", "two\nlines")],
        [("row 1 has 3 fields, but the first row has 2 (and 2 more like it)", 3)],
    )
    with pytest.raises(SourceError, match=r"a\.csv: row 1 has 3 fields, but the first row has 2; to continue"):
        read(path)


def test_a_quote_that_is_not_closed_takes_the_rest(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\none\n"two\nthree\nfour\n')
    found, bad = texts(path)
    assert found == [("0", "one")]
    assert bad[0][0].startswith("has a row 1 that is not CSV (unexpected end of data), and may have an open quote")
    assert bad[0][1] is None  # nobody knows how many rows these lines are
    found, bad = texts(path, max_record_bytes=10)
    assert found == [("0", "one")]
    assert "has a row that has more than 10 bytes; or one before it has a quote that is not closed" in bad[0][0]


@pytest.mark.parametrize(
    "last", [b'"a "quoted word",b', b'"a "quoted word",b\n', b'"two,b\n', b'"a "quoted" word",b\r\n']
)
def test_a_last_line_that_is_not_right_is_one_row(tmp_path, last):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,id\none,a\n" + last)
    found, ((reason, lost),) = texts(path)
    assert (found, lost) == ([("0", "one")], 1)
    assert reason.startswith("row 1 is not CSV (")


def test_a_line_of_one_field_says_nothing_of_quotes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\none\n"a "b\nmiddle\nend" c"\nlast\n')
    found, ((_, lost),) = texts(path)
    assert (found, lost) == ([("0", "one")], None)


@pytest.mark.parametrize(
    "row",
    [
        b'"a "quoted" word\nmiddle of the same row\nend of it",b\n',
        b'"a "quoted word\nmiddle" of the same row\nend of it",b\n',
        b'"first line\na "quoted" word\nend of it",b\n',
        b'"first line\n"quoted"\nend of it",b\n',
        b'"a quote that is not closed,b\nmiddle\n"end",b\n',
    ],
)
def test_nothing_is_read_after_a_row_whose_quote_may_be_open(tmp_path, row):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,id\none,a\n" + row + b"last,c\n")
    found, ((reason, lost),) = texts(path)
    assert found == [("0", "one")]
    assert reason.startswith("has a row 1 that is not CSV (")
    assert reason.endswith("may have an open quote; double the quotes inside fields")
    assert lost is None
    with pytest.raises(SourceError, match=r"a\.csv: has a row 1 that is not CSV .* inside fields; to continue"):
        read(path)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_nothing_is_read_after_damage(tmp_path, damage):
    path = tmp_path / "a.csv.gz"
    halves = [
        gzip.compress(b"text\n" + b"".join(b'"row %d,\nits text"\n' % row for row in range(first, first + 500)))
        for first in (0, 500)
    ]
    data = bytearray(halves[0] + halves[1])
    if damage == "cut":
        del data[-20:]
    else:
        data[len(halves[0]) + len(halves[1]) // 2] ^= 0xFF
    path.write_bytes(data)
    found, bad = texts(path)
    assert found == [(str(row), f"row {row},\nits text") for row in range(500)]
    assert bad


def test_a_field_that_is_not_there_names_those_that_are(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("body,title\nx,y\n")
    with pytest.raises(SourceError, match=r"a\.csv: has no field 'text'; its fields: body, title; set text_field="):
        read(path)
    assert texts(path, "error", text_field="body") == ([("0", "x")], [])
    path.write_text("")
    with pytest.raises(SourceError, match=r"has no field 'text'; its fields: "):
        read(path)


def test_long_texts_are_read_whole(tmp_path):
    path = tmp_path / "a.csv"
    long = "word, " * 200_000
    path.write_text(f'text,id\n"{long}",a\nshort,b\n')
    rows, _ = read(path, id_field="id")
    assert [(row["id"], row["text"]) for row in rows] == [("a", long), ("b", "short")]
