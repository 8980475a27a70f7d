"""Lines of text files and ids, as Python's own functions make them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longcrawl.core.sources import BadFiles, LostRecords, Part
from longcrawl.sources import blocks
from longcrawl.sources import text as text_source
from longcrawl.sources.encodings import Decoding
from longcrawl.sources.text import Text

SPACES = [char for char in map(chr, range(0x3001)) if char.isspace()]  # no space comes later
WORDS = st.text(st.sampled_from([*SPACES, *"aé言\0\u200b\ufeff\x1b😀"]), max_size=5).map(str.encode)
BROKEN = st.sampled_from([b"\xff", b"\xe2\x80", b"\xed\xa0\x80", b"\xc0\xa0", b"\xf4\x90\x80\x80", b"a\x80"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r\r\n", b"\n\n"])
FILES = st.lists(st.tuples(WORDS | BROKEN | st.just(b"word " * 30), ENDS)).map(
    lambda lines: b"".join(map(b"".join, lines))
)


def lines_of(content: bytes) -> tuple[list[tuple[str, str, int]], list[tuple[str, str]]]:
    """Return ids, texts and first bytes of lines, and what is lost, as Python finds them."""
    rows, lost, start = [], [], 0
    for number, line in enumerate(content.split(b"\n")):
        try:
            text = line.decode().rstrip("\r")
            if text.strip():
                rows.append((f"é.txt:{number}", text, start))
        except UnicodeDecodeError as error:
            lost.append((f"line {number + 1}", f"is not UTF-8 ({error.reason} at byte {error.start})"))
        start += len(line) + 1
    return rows, lost


class Noted(LostRecords):
    def __init__(self):
        super().__init__(BadFiles("skip"), "é.txt")
        self.every = []

    def add(self, where, reason):
        self.every.append((where, reason))


@given(FILES, WORDS | BROKEN, st.sampled_from([1, 8, 1 << 18]))
@example(b"a\n" * 300, b"", 64)
@example(b"\n" * 200 + b"x" * 200, b"", 64)
@example(b"", b"", 64)
def test_lines_are_those_of_split_decode_and_strip(tmp_path_factory, content, last, step):
    path = tmp_path_factory.getbasetemp() / "é.txt"
    path.write_bytes(content := content + last)
    text, lost = Text(data_files=str(path), unit="line", origins="line"), Noted()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(blocks, "STEP_BYTES", step)
        patched.setattr(text_source, "seems_binary", lambda _: False)
        tables = list(text._lines(Part("é.txt", (str(path),)), lost, BadFiles(), Decoding("utf-8", lambda _: None)))
    for table in tables:
        table.validate(full=True)
    content = content.removeprefix(b"\xef\xbb\xbf")
    before = 0 if content == path.read_bytes() else 3
    rows, expected = lines_of(content)
    assert [(row["id"], row["text"], row["offset"] - before) for table in tables for row in table.to_pylist()] == rows
    assert lost.every == expected


def test_no_white_space_is_beyond_those_that_are_stripped():
    assert max(map(ord, SPACES)) <= text_source.LAST_SPACE


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 3_000), max_size=20),
)
@example("n", [0, 9, 10, 99, 100, 999, 1_000, 1_001, 10_000, 999_999, 1_000_000, 7, 2**63 - 1])
def test_ids_are_names_and_numbers(name, numbers):
    found = text_source.numbered_ids(name, np.array(numbers, np.int64))
    assert found.to_pylist() == [f"{name}:{number}" for number in numbers]


def test_a_file_of_a_byte_order_mark_alone_has_no_lines(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf")
    text = Text(data_files=str(tmp_path / "a.txt"), unit="line")
    assert sum(table.num_rows for table in text.read(Part("a.txt", (str(tmp_path / "a.txt"),)), BadFiles())) == 0
