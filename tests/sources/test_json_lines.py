"""The JSON kernels against Python's ``json``: equal values, and nothing accepted that it refuses."""

import ctypes
import gc
import itertools
import json
import math
import mmap

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.sources import json_lines
from longcrawl.sources.json_lines import read_lines

SCHEMA = pa.schema(
    [
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("length", pa.int64()),
        pa.field("score", pa.float64()),
    ]
)


def is_understood(line):
    """Return whether the kernels read a line, none where there is no line."""
    reader = json_lines.LineReader(SCHEMA)
    found = list(
        json_lines.find_fields(np.frombuffer(line, np.uint8), reader._names, reader._texts, np.zeros(4, np.bool_))
    )
    return found[0].status.tolist()[:1] == [0]


short_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
long_texts = st.lists(st.sampled_from(["words of a longer text ", "\n", '"', "\\", "\x01", "é", "😀"]), max_size=30)
texts = short_texts | long_texts.map("".join)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**25), 10**25), st.floats(allow_nan=False, allow_infinity=False), texts
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
records = st.fixed_dictionaries(
    {"text": texts},
    optional={
        "url": texts | st.none(),
        "length": st.integers(-(2**63) + 1, 2**63 - 1) | st.none(),
        "score": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20) | st.none(),
        "other": values,
        'quo"ted': values,
    },
)


def expected_row(record):
    score = record.get("score")
    return {
        "text": record["text"],
        "url": record.get("url"),
        "length": record.get("length"),
        "score": None if score is None else float(score),
    }


@given(st.lists(records, max_size=8), st.booleans(), st.sampled_from([None, 1]), st.booleans())
@settings(deadline=None)  # the first call compiles the kernels
def test_records_come_back_as_json_loads_gives_them(rows, ascii_only, indent, last_end):
    lines = [json.dumps(row, ensure_ascii=ascii_only, indent=indent).replace("\n", "\r\t") for row in rows]
    block = ("\n".join(lines) + ("\n" if last_end else "")).encode()
    read = read_lines(block, SCHEMA)
    assert read.lost == []
    assert read.table.schema == SCHEMA
    assert read.table.to_pylist() == [expected_row(row) for row in rows]
    assert read.numbers.tolist() == list(range(len(rows)))


@given(st.lists(texts | st.binary(max_size=5), max_size=40), st.integers(0, 70), st.integers(0, 70))
@settings(deadline=None)  # as above
def test_the_kernel_calls_utf8_what_python_decodes(pieces, before, behind):
    content = b"".join(each.encode() if isinstance(each, str) else each for each in pieces)
    data = np.frombuffer(b"\xc3" * before + content + b"\xa9" * behind, np.uint8)
    try:
        content.decode()
    except UnicodeDecodeError:
        is_right = False
    else:
        is_right = True
    assert json_lines._is_utf8_span(data, before, before + len(content)) is is_right


@pytest.mark.parametrize("behind", [0, 70])
def test_the_kernel_knows_every_lead_and_what_may_follow_it(behind):
    for lead, second in itertools.product(range(0x7E, 0x100), [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0]):
        for third, at in itertools.product([b"", b"\x80", b"\xbf\x80", b"\x80\xbf\x80", b"\xc0"], [0, 60, 62, 63]):
            content = b"x" * at + bytes([lead, second]) + third
            data = np.frombuffer(content + b"x" * behind, np.uint8)
            is_right = content.decode("utf-8", "ignore").encode() == content
            assert json_lines._is_utf8_span(data, 0, len(content)) is is_right, content


@pytest.mark.variants
@pytest.mark.parametrize("spelled", ["\\n", "\\u00e9", "é", "\\\\"])
def test_nothing_behind_the_data_is_read(spelled):
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 2 * page) as pages:
        libc, first = ctypes.CDLL(None, use_errno=True), ctypes.addressof(ctypes.c_char.from_buffer(pages))
        assert libc.mprotect(ctypes.c_void_p(first + page), ctypes.c_size_t(page), 0) == 0
        data = np.frombuffer(pages, np.uint8, page)
        for before in range(40, 140):
            line = b'{"text":"' + b"a" * before + spelled.encode() + b'b"}'
            data[page - len(line) :] = np.frombuffer(line, np.uint8)
            read = read_lines(data[page - len(line) :].data.toreadonly(), SCHEMA)
            assert read.table["text"].to_pylist() == [json.loads(line)["text"]]
        libc.mprotect(ctypes.c_void_p(first + page), ctypes.c_size_t(page), mmap.PROT_READ | mmap.PROT_WRITE)
        del data, read
        gc.collect()


def test_millions_of_blank_lines_take_no_memory_each():
    reader = json_lines.LineReader(SCHEMA)
    reader.add(b"\n" * 200_000 + b'{"text": "a"}\n' + b" \r\n" * 1000)
    assert sum(len(each[0]) for each in reader._found) == 1
    read = reader.take()
    assert (read.numbers.tolist(), read.starts.tolist(), read.count) == ([200_000], [200_000], 201_001)


@pytest.mark.parametrize("number", ["1e19", "-9223372036854775808", "1e300", "9223372036854775808"])
def test_whole_numbers_of_more_than_64_bits_lose_their_line_alone(number):
    lines = (
        f'{{"text": "", "length": {number}}}\n{{"text": "b", "score": 0.12345678901234567890123, "length": {number}}}'
    )
    read = read_lines(f'{lines}\n{{"text": "a", "length": 1}}'.encode(), SCHEMA)
    assert read.table["text"].to_pylist() == ["a"]
    assert [reason for _, reason in read.lost] == [
        f"holds {number} in its field 'length', not a whole number of 64 bits"
    ] * 2


@given(st.lists(st.lists(records, max_size=3), max_size=5), st.lists(st.booleans(), min_size=5, max_size=5))
@settings(deadline=None)  # as above
def test_lines_that_come_piece_by_piece_are_the_lines_of_one_block(pieces, wrong):
    spelled = [
        b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b"[]\n\n" * bad
        for rows, bad in zip(pieces, wrong, strict=False)
    ]
    reader = json_lines.LineReader(SCHEMA)
    for _ in range(2):
        for piece in spelled:
            reader.add(piece)
        found, expected = reader.take(), read_lines(b"".join(spelled), SCHEMA)
        assert found.table.equals(expected.table)
        assert (found.lost, found.count) == (expected.lost, expected.count)
        assert (found.numbers.tolist(), found.starts.tolist()) == (expected.numbers.tolist(), expected.starts.tolist())


@given(st.lists(records, min_size=1, max_size=4), st.data())
@settings(max_examples=4 * settings.default.max_examples, deadline=None)
def test_the_kernels_accept_no_line_that_json_refuses(rows, data):
    line = bytearray(json.dumps(data.draw(st.sampled_from(rows))).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(line) - 1))
        change = data.draw(st.sampled_from(list(b'{}[]",:\\u0eE+-.19tfn \x00\x1f\x7f\xc3\xed')))
        if data.draw(st.booleans()):
            line[place] = change
        else:
            line.insert(place, change)
    line = bytes(line).replace(b"\n", b" ")
    if is_understood(line):
        accepted = json.loads(line.decode())
        read = read_lines(line, pa.schema([pa.field("text", pa.large_string()), pa.field("other", pa.string())]))
        if isinstance(accepted.get("text"), str) and not isinstance(accepted.get("other"), list | dict):
            text = accepted["text"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            assert read.table["text"].to_pylist() == [text]


@given(st.integers(-(10**20), 10**20), st.integers(-40, 40), st.sampled_from(["", "0", "00", "5"]))
@settings(deadline=None)  # as above
def test_exact_numbers_are_the_floats_that_python_reads(mantissa, exponent, zeros):
    spelled = f"{mantissa}.{zeros or 0}e{exponent}"
    read = read_lines(f'{{"text": "", "score": {spelled}}}'.encode(), SCHEMA)
    assert read.table["score"].to_pylist() == [float(spelled)]


@pytest.mark.parametrize(
    "number", ["0", "-0", "0.1", "123456.12345678", "9007199254740993", "1e22", "1e23", "4.35", "1E-5"]
)
def test_numbers_in_the_forms_of_the_release(number):
    row = read_lines(f'{{"text": "", "score": {number}}}'.encode(), SCHEMA).table.to_pylist()[0]
    assert row["score"] == float(number)


@pytest.mark.parametrize("number", ["01", "+1", ".5", "1.", "1e", "--1", "0x10", "1_000", "- 1", "\u0661"])
def test_what_json_calls_no_number_loses_the_line(number):
    read = read_lines(f'{{"text": "", "score": {number}}}'.encode(), SCHEMA)
    assert read.table.num_rows == 0
    assert [line for line, _ in read.lost] == [0]


def test_nan_and_infinity_are_read_as_python_does():
    read = read_lines(
        b'{"text": "", "score": NaN}\n{"text": "", "score": -Infinity}\n{"text": "", "length": NaN}', SCHEMA
    )
    first, second = read.table["score"].to_pylist()
    assert math.isnan(first)
    assert second == -math.inf
    assert read.lost == [(2, "holds NaN in its field 'length', not a whole number of 64 bits")]


@pytest.mark.parametrize(
    ("spelled", "text"),
    [
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d", "\ufffd"),
        (r"\ude00x", "\ufffdx"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"a\u0000b", "a\0b"),
        (r"\"\\\/\b\f\n\r\t\u00e9\u20AC", '"\\/\b\f\n\r\té€'),
    ],
)
def test_escapes_are_resolved_alike_by_kernel_and_json(spelled, text):
    plain = f'{{"text": "{spelled}"}}'
    by_json = f'{{"text": "{spelled}", "length": 12345678901234567}}'
    read = read_lines(f"{plain}\n{by_json}".encode(), SCHEMA)
    assert read.table["text"].to_pylist() == [text, text]
    assert is_understood(plain.encode())


def test_the_last_of_two_equal_keys_counts():
    lines = (
        b'{"text": "a", "text": "b", "url": "x", "url": null}\n{"text": "a", "text": "b", "length": 12345678901234567}'
    )
    assert read_lines(lines, SCHEMA).table["text"].to_pylist() == ["b", "b"]
    assert read_lines(lines, SCHEMA).table["url"].to_pylist() == [None, None]


def test_lines_that_cannot_be_read_keep_their_numbers():
    lines = [
        b'{"text": "a"}',
        b"",
        b'{"text": ',
        b" \t\r",
        b"[1]",
        b'{"url": "u"}',
        b'{"text": null}',
        b'{"text": ["x"]}',
        b'"s"',
        b'{"text": "\xff"}',
        b'{"text": "z"}',
    ]
    read = read_lines(b"\n".join(lines), SCHEMA)
    assert read.count == 11
    assert read.numbers.tolist() == [0, 10]
    assert read.table["text"].to_pylist() == ["a", "z"]
    reasons = dict(read.lost)
    assert sorted(reasons) == [2, 4, 5, 6, 7, 8, 9]
    assert reasons[2].startswith("is not JSON")
    assert reasons[4] == "holds a list, not an object"
    assert reasons[5] == "has no field 'text'; its fields: url"
    assert reasons[6] == "has null in its field 'text'; its fields: text"
    assert reasons[7] == "holds a list in its field 'text', not text"
    assert reasons[8] == "holds text, not an object"
    assert reasons[9] == "is not UTF-8 (invalid start byte at byte 10 of the line)"


def test_deep_nesting_does_not_end_the_process():
    deep = b"[" * 200_000
    read = read_lines(
        b'{"text": "a", "other": ' + deep + b"]" * 200_000 + b'}\n{"text": "b", "other": ' + deep + b"}", SCHEMA
    )
    assert read.table.num_rows == 0
    assert [line for line, _ in read.lost] == [0, 1]


def test_numbers_and_words_in_text_fields_are_taken_as_spelled():
    block = b'{"text": 1.50, "url": true}\n{"text": 1.50, "url": true, "length": 12345678901234567}'
    assert read_lines(block, SCHEMA).table.select(["text", "url"]).to_pylist() == [{"text": "1.50", "url": "true"}] * 2


def test_an_empty_block_has_no_rows():
    read = read_lines(b"", SCHEMA)
    assert (read.table.num_rows, read.count, read.lost) == (0, 0, [])


NESTED = pa.schema(
    [
        pa.field("meta.url", pa.string()),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("meta.deep.url", pa.string()),
        pa.field("meta.deep.size", pa.int64()),
        pa.field("doc.text", pa.large_string(), nullable=False),
    ]
)
leaves = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | texts | st.just([1, {"url": "in a list"}])
steps = st.sampled_from(["url", "deep", "deep.url", "size", "text", 'u"rl', "other"])


@st.composite
def spelled_objects(draw, depth=2):
    """Spell an object whose keys may come twice and be escaped."""
    pairs = draw(st.lists(st.tuples(steps, st.booleans() if depth else st.just(False)), max_size=4))
    inner = [draw(spelled_objects(depth - 1)) if nested else json.dumps(draw(leaves)) for _, nested in pairs]
    return "{" + ", ".join(f"{json.dumps(key)}:{value}" for (key, _), value in zip(pairs, inner, strict=True)) + "}"


def walk(record, name):
    if name in record:
        return record[name]
    for step in name.split("."):
        record = record.get(step) if isinstance(record, dict) else None
    return record


def spell(value):
    return value if value is None or isinstance(value, str) else json.dumps(value)


def is_whole(value):
    return value is None or (type(value) is int and abs(value) < 2**63)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["meta", "meta", "doc", "meta.url", "doc.text", "text", "\\u006deta"]),
                spelled_objects() | leaves.map(json.dumps),
            ),
            max_size=5,
        ),
        max_size=5,
    )
)
@settings(deadline=None)
def test_dotted_names_find_what_steps_through_objects_find(rows):
    plain = '"text": "a", "doc": {"text": "b"}'
    lines = ["{" + ", ".join([plain, *(f'"{key}": {value}' for key, value in row)]) + "}" for row in rows]
    read, kept = read_lines("\n".join(lines).encode(), NESTED), []
    for number, record in enumerate(map(json.loads, lines)):
        found = {name: walk(record, name) for name in NESTED.names}
        is_lost = any(isinstance(value, list | dict) for value in found.values()) or None in (
            found["text"],
            found["doc.text"],
        )
        if not is_lost and is_whole(found["meta.deep.size"]):
            kept.append((number, {k: v if k == "meta.deep.size" else spell(v) for k, v in found.items()}))
    assert read.numbers.tolist() == [number for number, _ in kept]
    assert read.table.to_pylist() == [row for _, row in kept]


def test_kernels_read_dotted_names_themselves(monkeypatch):
    monkeypatch.setattr(json_lines, "parse_object", None)
    lines = [
        b'{"meta": {"deep": {"url": "\\u00e9", "size": 3}, "url": 1.50}, "text": "a", "doc": {"text": "b"}}',
        b'{"text": "a", "meta": null, "doc.text": "dotted", "doc": {"text": "b"}}',
    ]
    rows = read_lines(b"\n".join(lines), NESTED).table.to_pylist()
    assert rows[0] == {"meta.url": "1.50", "text": "a", "meta.deep.url": "é", "meta.deep.size": 3, "doc.text": "b"}
    assert rows[1] == {
        "meta.url": None,
        "text": "a",
        "meta.deep.url": None,
        "meta.deep.size": None,
        "doc.text": "dotted",
    }
