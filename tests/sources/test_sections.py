"""Sections of large files: rows, ids, offsets and losses are those of the whole file, wherever it is divided."""

import gzip
import json
import random
import re
import shutil
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from longcrawl.core.sources import BadFile, BadFiles, joined
from longcrawl.errors import SourceError
from longcrawl.sources import sections
from longcrawl.sources.sections import divide_lines
from longcrawl.sources.text import Text

LINES = st.one_of(
    st.sampled_from(
        [b"", b"  ", b"\r", b"[", b"{", b"null", b'{"text": null}', b'{"id": 1}', b"\xff\xfe", b"\xef\xbb\xbf"]
    ),
    st.text("ab \u00e9\u20ac\U0001f600\u2028", max_size=30).map(lambda text: json.dumps({"text": text}).encode()),
    st.text("ab \u00e9\u20ac\U0001f600\u2028", max_size=30).map(
        lambda text: json.dumps({"text": text, "url": text}, ensure_ascii=False).encode()
    ),
    st.text("ab\u00e9\U0001f600\t", max_size=60).map(str.encode),
)
FILES = st.builds(
    lambda mark, lines, end, last: mark + end.join(lines) + last,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(LINES, max_size=40),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
    st.sampled_from([b"", b"\n", b"\r"]),
)
GUESS = re.compile(r"; its encoding seems to be .*?\)")
"""The guess of an encoding, which is that of the section with the first loss."""
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(source, parts):
    """Return the rows and the joined losses of some parts of one file, and the counts of values by field."""
    rows, found, fields = [], [], BadFiles()
    for part in parts:
        bad_files = BadFiles("skip")
        rows += [row for table in source.read(part, bad_files) for row in table.to_pylist()]
        found += [replace(bad, reason=GUESS.sub("", bad.reason)) for bad in bad_files.found]
        for name, count in bad_files.fields.items():
            fields.count_field(name, count)
        assert not bad_files.encodings
    return rows, joined(found) if found else None, fields.fields


def sections_of(source, part, size, folder):
    return [replace(part, section=each) for each in source.divide(part, size, folder)]


def check(source, size, folder):
    """Check that sections cover a file and have the documents of the whole."""
    ((whole,),) = source.splits().values()
    found = sections_of(source, whole, size, folder / "unpacked")
    if not found:
        return False
    spans = [part.section for part in found]
    assert spans[0].start == spans[0].first == 0
    assert [each.stop for each in spans[:-1]] == [each.start for each in spans[1:]]
    assert [each.first + each.count for each in spans[:-1]] == [each.first for each in spans[1:]]
    assert sum(each.bytes for each in spans) == (folder / whole.name).stat().st_size
    assert read(source, found) == read(source, [whole])
    return True


@st.composite
def packed(draw, content):
    """Compress a text in one member or in several, of which some are empty."""
    compress = draw(st.sampled_from([gzip.compress, zstandard.compress]))
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(content)), max_size=3))), len(content)]
    return b"".join(compress(content[start:stop]) for start, stop in pairwise(cuts))


@MANY
@given(
    st.one_of(FILES, FILES.flatmap(packed)),
    st.integers(1, 200),
    st.sampled_from(["json", "text"]),
    st.sampled_from([30, 1 << 20]),
    st.booleans(),
)
@example(b'{"text": "a"}\n\xef\xbb\xbf{"text": "b"}\n', 1, "json", 1 << 20, True)
@example(b'{"text": "a"}\n\xff\xfe{"text": "b"}\n\xfe\xff', 1, "text", 1 << 20, True)
@example(b"\n\n\n", 1, "text", 1 << 20, True)
def test_sections_of_lines_have_the_documents_of_the_whole(tmp_path, content, size, kind, most_bytes, places):
    shutil.rmtree(tmp_path / "unpacked", ignore_errors=True)
    (tmp_path / "a.jsonl").write_bytes(content)
    source = Text(
        data_files=str(tmp_path / "a.jsonl"),
        format=kind,
        unit="line",
        origins="line" if places else "file",
        max_record_bytes=most_bytes,
        fields=("key",) if kind == "json" else (),
    )
    check(source, size, tmp_path)


def test_sections_end_with_the_line_that_completes_their_size(tmp_path):
    (tmp_path / "a").write_bytes(b"aaaa\nbb\n\ncccccccccc\nd\ne")
    found = divide_lines(str(tmp_path / "a"), 6, tmp_path / "unpacked", lambda _: False)
    assert [(each.start, each.stop, each.first, each.count) for each in found] == [
        (0, 8, 0, 2),
        (8, 20, 2, 2),
        (20, 23, 4, 2),
    ]


def test_whole_sections_of_a_stopped_division_are_not_written_again(tmp_path):
    (tmp_path / "texts.jsonl.gz").write_bytes(
        gzip.compress(b"".join(b'{"text": "%02d"}\n' % number for number in range(40)))
    )
    source = Text(data_files=str(tmp_path / "texts.jsonl.gz"))
    ((whole,),) = source.splits().values()
    found = sections_of(source, whole, 100, tmp_path / "unpacked")
    files = sorted((tmp_path / "unpacked").iterdir())
    written = [file.read_bytes() for file in files]
    files[0].write_bytes(written[0][:-3])
    files[1].write_bytes(written[2])
    files[2].unlink()
    before = [file.stat().st_ino for file in files[3:]]
    assert sections_of(source, whole, 100, tmp_path / "unpacked") == found
    assert [file.read_bytes() for file in files] == written
    assert before == [file.stat().st_ino for file in files[3:]] != []


@pytest.mark.slow
@MANY
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=9), st.just(b"long" * 9)), max_size=60),
    st.integers(1, 9),
    st.integers(1, 200),
    st.sampled_from([30, 1 << 20]),
    st.sampled_from(["text", "key"]),
)
def test_sections_of_parquet_have_the_documents_of_the_whole(tmp_path, values, rows, size, most_bytes, field):
    table = pa.table({"text": pa.array(values, pa.binary()), "number": range(len(values))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows)
    found = {"text_field": field, "fields": ("number",), "max_record_bytes": most_bytes}
    check(Text(data_files=str(tmp_path / "a.parquet"), **found), size, tmp_path)


def test_sections_of_parquet_end_with_a_row_group(tmp_path):
    rows = ["a" * 100, "b", "c", "d" * 300, "e"]
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"text": rows}), tmp_path / "a.parquet", row_group_size=1, **plain)
    ((whole,),) = (source := Text(data_files=str(tmp_path / "a.parquet"))).splits().values()
    found = source.divide(whole, 150, tmp_path)
    assert [(each.start, each.stop, each.first, each.count) for each in found] == [
        (0, 2, 0, 2),
        (2, 4, 2, 2),
        (4, 5, 4, 1),
    ]


def test_damaged_parquet_stays_whole(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no parquet PAR1")
    source = Text(data_files=str(tmp_path / "a.parquet"))
    ((whole,),) = source.splits().values()
    assert source.divides(whole)
    assert sections_of(source, whole, 1, tmp_path) == []


@pytest.mark.parametrize("harm", [lambda content: content[:-9], lambda content: content[:-6] + b"damage"])
def test_a_damaged_compressed_file_stays_whole(tmp_path, harm):
    content = gzip.compress(b"".join(b'{"text": "%d"}\n' % number for number in range(9_000)))
    (tmp_path / "a.jsonl.gz").write_bytes(content)
    source = Text(data_files=str(tmp_path / "a.jsonl.gz"))
    ((whole,),) = source.splits().values()
    assert (
        len(list((tmp_path / "unpacked").iterdir() if sections_of(source, whole, 900, tmp_path / "unpacked") else ()))
        > 100
    )
    (tmp_path / "a.jsonl.gz").write_bytes(harm(content))
    assert sections_of(source, whole, 900, tmp_path / "unpacked") == []
    assert not (tmp_path / "unpacked").exists()


def test_a_line_that_would_fill_the_memory_leaves_a_compressed_file_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "RECORD_BYTES", 1_000)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"a\n" * 100 + b"b" * 2_000_000))
    assert divide_lines(str(tmp_path / "a.jsonl.gz"), 100, tmp_path / "unpacked", lambda _: False) == []
    assert not (tmp_path / "unpacked").exists()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'[{"text": "a"},\n{"text": "b"}]', "json"),
        (b'\xef\xbb\xbf [\n{"text": "a"},\n{"text": "b"}]', "json"),
        ('{"text": "a"}\n{"text": "b"}\n'.encode("utf-16"), "json"),
        (b"a\0\nb\n", "text"),
        (b"", "text"),
    ],
)
def test_other_files_than_lines_of_utf_8_stay_whole(tmp_path, content, kind):
    (tmp_path / "a.jsonl").write_bytes(content)
    source = Text(data_files=str(tmp_path / "a.jsonl"), format=kind, unit="line")
    ((whole,),) = source.splits().values()
    assert source.divides(whole)
    assert sections_of(source, whole, 1, tmp_path) == []


def test_files_that_other_readers_read_are_not_opened(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    for settings_ in ({}, {"format": "csv"}, {"format": "pdf"}, {"unit": "line", "encoding": "detect"}):
        source = Text(data_files=str(tmp_path / "a.txt"), **settings_)
        ((whole,),) = source.splits().values()
        assert not source.divides(whole)


def test_a_missing_file_is_reported_by_the_part_that_reads_it_whole(tmp_path):
    source = Text(data_files=str(tmp_path / "a.jsonl"))
    ((whole,),) = source.splits().values()
    assert sections_of(source, whole, 1, tmp_path) == []
    with pytest.raises(SourceError, match="is missing"):
        list(source.read(whole, BadFiles()))


def test_losses_of_sections_are_joined_like_those_of_one_file():
    bad = partial(BadFile, "a")
    lost = [bad("line 2 is x (and 2 more like it)", 3), bad("line 9 is y", 1), bad("line 11 is x", 1)]
    assert asdict(joined(lost)) == asdict(bad("line 2 is x (and 4 more like it)", 5))
    assert joined(lost[1:2]) == lost[1]
    assert joined([bad("has no field", 7), bad("has no field", 5)]) == bad("has no field", 12)
    assert joined([bad("is corrupt"), lost[0]]) == bad("is corrupt; line 2 is x (and 2 more like it)")


def in_members(pack):
    return lambda text: b"".join(pack(text[start : start + 300_000]) for start in range(0, len(text), 300_000))


PACKED = {"gz": partial(gzip.compress, compresslevel=1), "zst": zstandard.ZstdCompressor().compress}


@pytest.mark.variants
@pytest.mark.parametrize("pack", [*PACKED.values(), *map(in_members, PACKED.values())])
def test_the_beginning_of_a_compressed_file_has_its_first_lines_and_their_share_of_bytes(tmp_path, pack):
    chance = random.Random(0)
    lines = [b"%x\n" % chance.randrange(1 << chance.randrange(900)) for _ in range(20_000)]
    (tmp_path / "packed").write_bytes(pack(b"".join(lines)))
    stored = (tmp_path / "packed").stat().st_size
    (tmp_path / "begin").mkdir()
    file, took = sections.write_beginning(str(tmp_path / "packed"), stored // 2, tmp_path / "begin")
    read = b"".join(sections.sound_pieces(str(file)))
    assert b"".join(lines).startswith(read)
    assert read.endswith(b"\n")
    assert read.count(b"\n") / len(lines) == pytest.approx(took / stored, rel=0.12)  # a block of zstd has 128 KiB
    assert took <= stored // 2
