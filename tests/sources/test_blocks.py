"""Lines of compressed files: nothing of a member whose checksum is wrong, and lines and members that are too long."""

import gzip
import io
import itertools
import json
import random
import struct
import time
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.sources import BadFiles, UncheckedDataError
from longcrawl.errors import SourceError
from longcrawl.sources import blocks, compressed, files
from longcrawl.sources.blocks import read_blocks
from longcrawl.sources.files import DamagedFileError
from longcrawl.sources.text import Text

DOCUMENTS = [{"text": f"Tide {number}: {'ebb flood ' * (number % 5)}{number * 7}"} for number in range(30)]
LINES = [json.dumps(document).encode() + b"\n" for document in DOCUMENTS]
TEXTS = [document["text"] for document in DOCUMENTS]


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACK = {"gz": lambda data: gzip.compress(data, mtime=0), "zst": zstd}


def packed(kind, *, lines_each=10, lines=LINES):
    """Pack lines, so many in a member."""
    return [PACK[kind](b"".join(lines[first : first + lines_each])) for first in range(0, len(lines), lines_each)]


def rows_of(path, policy="skip", **settings):
    bad_files, source = BadFiles(policy), Text(data_files=str(path), **settings)
    (part,) = source.splits()["train"]
    return [row for table in source.read(part, bad_files) for row in table.to_pylist()], bad_files.found


def texts_until_error(path):
    """Read under the policy "error" up to the error, which must come."""
    source, found = Text(data_files=str(path)), []
    tables = source.read(source.splits()["train"][0], BadFiles())
    with pytest.raises(SourceError, match="on_bad_files"):
        found.extend(text for table in tables for text in table["text"].to_pylist())
    return found


def flipped(data: bytes, bit: int) -> bytes:
    place = bit // 8 % len(data)
    return data[:place] + bytes([data[place] ^ 1 << bit % 8]) + data[place + 1 :]


def with_wrong_checksum(kind, member):
    """Change the CRC of a gzip member, which stands before its length, or the checksum of a zstd frame."""
    return flipped(member, -40 if kind == "gz" else -8)


@given(
    st.lists(st.text("ab\n", max_size=30).map(str.encode), max_size=8),
    st.integers(1, 40),
    st.integers(1, 20),
)
def test_blocks_depend_on_the_text_alone(pieces, block_bytes, step_bytes):
    expected, text = [b""], b"".join(pieces)
    for line in text.splitlines(keepends=True):
        if expected[-1] and len(expected[-1]) + len(line) > block_bytes:
            expected.append(b"")
        expected[-1] += line
    found = [b""]
    with mock.patch.multiple(blocks, STEP_BYTES=step_bytes, LONG_STEP_BYTES=2 * step_bytes):
        lines = blocks._Lines(block_bytes, 1000, pytest.fail, "keep", None)
        for piece in [*pieces, None]:
            for step in lines.end() if piece is None else lines.add(piece):
                if step is None:
                    found.append(b"")
                else:
                    assert bytes(step).endswith(b"\n") or text.endswith(step)
                    found[-1] += step
    assert [block for block in found if block] == [block for block in expected if block]


@pytest.mark.variants
@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_data_that_comes_before_its_checksum_ends_in_an_error_where_that_is_wrong(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(blocks.read_steps, "__defaults__", (50,))
    monkeypatch.setattr(compressed.Members._gzip, "__defaults__", (64, 100))
    monkeypatch.setattr(compressed.Members._zstd, "__defaults__", (100,))
    path, chance, withdrawn = tmp_path / f"a.jsonl.{kind}", random.Random(1), 0
    data = b"".join(packed(kind))
    for bit in [*chance.sample(range(len(data) * 8), 30), None]:
        path.write_bytes(data if bit is None else flipped(data, bit))
        bad_files, source, seen = BadFiles("skip", checksums="last"), Text(data_files=str(path)), []
        try:
            for table in source.read(source.splits()["train"][0], bad_files):
                seen += table.to_pylist()
        except UncheckedDataError:
            withdrawn += 1
            assert bad_files.has_unchecked
        else:
            assert (seen, bad_files.found) == rows_of(path)
            assert not bad_files.has_unchecked
    assert withdrawn > 2
    assert [row["text"] for row in seen] == TEXTS


@pytest.mark.variants
@pytest.mark.parametrize("most_bytes", [1_000_000, blocks.RECORD_BYTES])
@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_whether_a_file_is_an_array_is_not_decided_by_data_whose_checksum_is_wrong(tmp_path, kind, most_bytes):
    path = tmp_path / f"a.json.{kind}"
    lines = b",\n".join(b'{"text": "document %d"}' % number for number in range(60_000))
    path.write_bytes(with_wrong_checksum(kind, PACK[kind](b"[\n" + lines)) + PACK[kind](b',\n{"text": "sound"}\n]\n'))
    bad_files, source = BadFiles("skip", checksums="last"), Text(data_files=str(path), max_record_bytes=most_bytes)
    with pytest.raises(UncheckedDataError):
        list(source.read(source.splits()["train"][0], bad_files))
    assert bad_files.has_unchecked
    assert [row["text"] for row in rows_of(path, max_record_bytes=most_bytes)[0]] == ["sound"]


@given(
    st.lists(st.text("ab\n", max_size=60).map(str.encode), max_size=6),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 30),
    st.integers(1, 300),
)
def test_steps_are_the_same_where_frames_are_decompressed_behind_what_waits(
    tmp_path_factory, pieces, block_bytes, step_bytes, most_bytes, piece_bytes
):
    path = tmp_path_factory.mktemp("zstd") / "a.jsonl.zst"
    path.write_bytes(b"".join(map(zstd, pieces or [b""])))
    found = []
    with (
        mock.patch.multiple(blocks, STEP_BYTES=step_bytes, LONG_STEP_BYTES=2 * step_bytes),
        mock.patch.object(compressed.Members._zstd, "__defaults__", (piece_bytes,)),
    ):
        for checksums in ("first", "last"):
            lost = []
            steps = blocks.read_steps(
                str(path), block_bytes, most_bytes=most_bytes, on_loss=lost.append, checksums=checksums
            )
            read = [None if step is None else bytes(step) for step in steps]
            found.append((b"".join(step for step in read if step is not None), read.count(None), lost))
    assert found[0] == found[1]
    lines = b"".join(pieces).split(b"\n")
    assert found[0][0].split(b"\n") == [line if len(line) <= most_bytes else b"" for line in lines]


@pytest.mark.variants
@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("held", [compressed.HELD_BYTES, 100])
def test_no_flipped_bit_makes_a_wrong_text(tmp_path, monkeypatch, kind, held):
    monkeypatch.setattr(compressed, "HELD_BYTES", held)
    path, chance = tmp_path / f"a.jsonl.{kind}", random.Random(0)
    data = b"".join(packed(kind))
    noticed = 0
    for bit in chance.sample(range(len(data) * 8), 20):
        path.write_bytes(flipped(data, bit))
        rows, bad = rows_of(path)
        found = [row["text"] for row in rows]
        assert set(found) <= set(TEXTS)
        assert len(found) in (0, 10, 20, 30)
        assert bool(bad) == (len(found) < 30)
        if bad:
            noticed += 1
            # The lines are those of damaged data, so their number may be wrong too.
            assert bad[0].records_lost != 0
            before = texts_until_error(path)
            assert before == TEXTS[: len(before)]
    assert noticed > 15


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_lines_of_a_member_whose_checksum_is_wrong_are_lost_and_counted(tmp_path, kind, broken):
    parts = packed(kind)
    parts[broken] = with_wrong_checksum(kind, parts[broken])
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(b"".join(parts))
    rows, bad = rows_of(path)
    left = [number for number in range(30) if number // 10 != broken]
    assert [(row["id"], row["text"]) for row in rows] == [(f"{path.name}:{number}", TEXTS[number]) for number in left]
    assert [found.records_lost for found in bad] == [10]
    assert "checksum" in bad[0].reason
    assert f"10 lines seem to be lost, from line {broken * 10 + 1} on" in bad[0].reason


def test_a_zstd_frame_that_lost_the_flag_of_its_checksum(tmp_path):
    """The four bytes behind the frame are then no frame: the flipped bit in its data would go unnoticed."""
    parts = packed("zst")
    without_flag = flipped(parts[1], 4 * 8 + 2)
    wrong = [flipped(without_flag, bit) for bit in range(len(without_flag) * 8 - 300, len(without_flag) * 8 - 40, 13)]
    path = tmp_path / "a.jsonl.zst"
    for damaged in (without_flag, *wrong):
        path.write_bytes(parts[0] + damaged + parts[2])
        rows, bad = rows_of(path)
        assert [row["text"] for row in rows] == TEXTS[:10] + TEXTS[20:]
        assert len(bad) == 1


@pytest.mark.parametrize("after", [b"", bytes(3), bytes(600), zstd(b""), b"\x50\x2a\x4d\x18" + bytes(4)])
def test_a_zstd_frame_without_a_checksum(tmp_path, after):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"".join(LINES)) + after)
    rows, bad = rows_of(path)
    assert [row["text"] for row in rows] == TEXTS
    assert bad == []


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_cut_member_is_lost_whole(tmp_path, kind):
    parts = packed(kind)
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(parts[0] + parts[1][:-4])
    rows, bad = rows_of(path)
    assert [row["text"] for row in rows] == TEXTS[:10]
    assert bad[0].records_lost is None
    assert bad[0].reason.startswith("is cut: it ends before its compressed data does")
    with pytest.raises(files.DamagedFileError, match="is cut"):
        list(read_blocks(str(path)))


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_lines_across_members_are_lost_with_any_of_them(tmp_path, kind):
    text = b"".join(LINES)
    cuts = [0, 700, 1300, len(text)]
    parts = [PACK[kind](text[start:stop]) for start, stop in itertools.pairwise(cuts)]
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(b"".join(parts))
    assert [row["text"] for row in rows_of(path)[0]] == TEXTS
    parts[1] = with_wrong_checksum(kind, parts[1])
    path.write_bytes(b"".join(parts))
    rows, bad = rows_of(path)
    first, last = text[:700].count(b"\n"), text[:1300].count(b"\n") + 1
    assert [row["id"] for row in rows] == [f"{path.name}:{number}" for number in [*range(first), *range(last, 30)]]
    assert [row["text"] for row in rows] == TEXTS[:first] + TEXTS[last:]
    assert [found.records_lost for found in bad] == [last - first]


def test_a_line_of_plain_text_that_may_lack_its_beginning_is_lost(tmp_path):
    parts = [gzip.compress(text) for text in (b"one\ntwo", b"two\nthree\nth", b"ree\nfour\n")]
    path = tmp_path / "a.txt.gz"
    path.write_bytes(b"".join(parts))
    assert [row["text"] for row in rows_of(path, unit="line")[0]] == ["one", "twotwo", "three", "three", "four"]
    parts[1] = with_wrong_checksum("gz", parts[1])
    path.write_bytes(b"".join(parts))
    rows, bad = rows_of(path, unit="line")
    assert [(row["id"], row["text"]) for row in rows] == [("a.txt.gz:0", "one"), ("a.txt.gz:4", "four")]
    assert [found.records_lost for found in bad] == [3]
    assert "line 4 may lack its beginning" in bad[0].reason


def test_a_text_file_with_a_wrong_checksum_is_no_document(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(with_wrong_checksum("gz", gzip.compress(b"one\ntwo\n")))
    rows, bad = rows_of(path)
    assert rows == []
    assert [found.records_lost for found in bad] == [1]
    assert "checksum" in bad[0].reason


def test_damage_that_hides_the_next_member_keeps_those_after_it(tmp_path):
    parts = packed("gz")
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(parts[0][:30] + b"\xff" * 9 + parts[0][39:-9] + parts[1] + parts[2])
    rows, bad = rows_of(path)
    assert [row["text"] for row in rows] == TEXTS[10:]
    assert [found.records_lost for found in bad] == [None]
    path.write_bytes(b"".join(parts) + b"no gzip data")
    rows, bad = rows_of(path)
    assert [row["text"] for row in rows] == TEXTS
    assert [(found.reason, found.records_lost) for found in bad] == [
        (f"is corrupt at byte {sum(map(len, parts)):,}: no gzip data", None)
    ]


def test_a_frame_without_a_checksum_is_known_by_its_length_alone(tmp_path):
    data = b"".join(LINES)
    frame = zstandard.ZstdCompressor(write_checksum=False, level=1).compress(data)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(frame)
    assert [row["text"] for row in rows_of(path)[0]] == TEXTS
    assert struct.unpack("<H", frame[5:7])[0] + 256 == len(data)
    path.write_bytes(flipped(frame, 40))
    rows, bad = rows_of(path)
    assert (rows, len(bad)) == ([], 1)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_the_end_of_a_member_with_a_wrong_checksum_is_found(kind):
    chance = random.Random(1)
    for size in (0, 1, 100, 65_510, 70_000, 3_000_000):
        data = chance.randbytes(size // 2).hex().encode()
        part = with_wrong_checksum(kind, PACK[kind](data))
        opened = io.BytesIO(PACK[kind](b"first") + part + PACK[kind](b"next") * 3)
        found = compressed.Members(opened, "gzip" if kind == "gz" else "zstd")
        with pytest.raises(compressed.BrokenMemberError) as raised:
            list(found.events())
        begin, taken = len(PACK[kind](b"first")), []
        assert raised.value.offset == begin
        end = begin + len(part)
        assert found.recover(raised.value, taken.append) == (end, end)
        assert b"".join(taken) == data


LIMIT = 1 << 20
MEASURE = """
import resource, sys
from longcrawl.core.sources import BadFiles, make_source
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
for path in sys.argv[2:]:
    unit = "file" if "whole" in path else "line"
    source = make_source("text", {"data_files": path, "unit": unit, "max_record_bytes": int(sys.argv[1])})
    before, bad_files = peak(), BadFiles("skip")
    rows = sum(table.num_rows for part in source.splits()["train"] for table in source.read(part, bad_files))
    print(path.rpartition("/")[2], rows, [found.records_lost for found in bad_files.found], peak() - before)
"""


@pytest.mark.slow
def test_bombs_of_text_take_no_memory(tmp_path, python):
    """Files of some kB whose one line has 64 MB, in a process that has not held so much before."""
    line, bomb = b'{"text": "one"}\n', b'{"text": "' + b"a" * (64 << 20) + b'"}\n'
    paths = [tmp_path / "first.jsonl"]
    paths[0].write_bytes(line * 2 + b"x" * 40_000_000 + b"\n" + line)
    for kind, pack in {"gz": lambda data: gzip.compress(data, 1), "zst": zstd}.items():
        for name, content in (
            (f"one.jsonl.{kind}", pack(line + bomb + line)),
            (f"several.jsonl.{kind}", pack(line) + pack(bomb[: 32 << 20]) + pack(bomb[32 << 20 :] + line)),
            (f"open.jsonl.{kind}", pack(line * 2 + bomb[:-1])),
            (f"whole.txt.{kind}", pack(bomb)),
        ):
            paths.append(tmp_path / name)
            paths[-1].write_bytes(content)
    done = python(MEASURE, LIMIT, *paths)
    assert done.returncode == 0, done.stderr
    for told, path in zip(done.stdout.splitlines()[1:], paths[1:], strict=True):
        name, rows, lost, grown = told.split()
        assert (name, rows, lost) == (path.name, "0" if "whole" in name else "2", "[1]")
        assert int(grown) < 60, told  # MB


CONFINED = """
import resource, sys
from longcrawl.core.sources import BadFiles, make_source
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
source, bad = make_source("text", {"data_files": sys.argv[1], "max_record_bytes": int(sys.argv[2])}), BadFiles("skip")
print(sum(table.num_rows for part in source.splits()["train"] for table in source.read(part, bad)))
for found in bad.found:
    print(found.records_lost, found.reason)
"""


@pytest.mark.slow
def test_a_dictionary_of_parquet_never_becomes_its_texts(tmp_path, python):
    """Some kB that are one text of 16 MB in each of 10,000 rows: 168 GB, of which a batch took 17 GB."""
    places = pa.array([0] + [1] * 9_999, pa.int32())
    texts = pa.DictionaryArray.from_arrays(places, pa.array(["short", "a" * (16 << 20)]))
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    done = python(CONFINED, tmp_path / "a.parquet", LIMIT)
    assert done.returncode == 0, done.stderr
    rows, lost = done.stdout.splitlines()
    assert rows == "1"
    assert lost.startswith("9999 row 1 has more than 1,048,576 bytes; to read it, raise max_record_bytes")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_a_line_that_is_too_long_is_lost_alone(tmp_path, suffix):
    lines = [b'{"text": "%d"}\n' % number for number in range(3)] + [b'{"text": "' + b"a" * 2_000_000 + b'"}\n']
    lines = [*lines, *lines]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK.get(suffix.rpartition(".")[2], bytes)(b"".join(lines)))
    assert len(rows_of(path)[0]) == 8
    rows, bad = rows_of(path, max_record_bytes=LIMIT)
    assert [row["id"] for row in rows] == [f"{path.name}:{number}" for number in (0, 1, 2, 4, 5, 6)]
    assert [found.records_lost for found in bad] == [2]
    assert bad[0].reason.startswith("line 4 has more than 1,048,576 bytes; to read it, raise max_record_bytes (and 1")
    with pytest.raises(SourceError, match="line 4 has more than"):
        rows_of(path, "error", max_record_bytes=LIMIT)
    with pytest.raises(files.DamagedFileError, match="has a line 4 that has more than"):
        list(read_blocks(str(path), most_bytes=LIMIT))


def test_a_window_that_takes_all_memory_is_refused(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    parameters = zstandard.ZstdCompressionParameters(window_log=29, enable_ldm=True)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(frame.compress(LINES[0]) + frame.flush())
    rows, bad = rows_of(path)
    assert rows == []
    assert "too much memory" in bad[0].reason


def nested(count: int) -> bytes:
    """Beginnings of members, each of which goes on to the end of the file and breaks there."""
    begin = gzip.compress(b"", mtime=0)[:10]
    return b"".join(begin + b"\0" + struct.pack("<HH", 15 * 1_000, 15 * 1_000 ^ 0xFFFF) for _ in range(count))


def test_beginnings_of_members_that_all_break_take_linear_time(tmp_path):
    path, took = tmp_path / "a.jsonl.gz", []
    for count in (2_000, 8_000):
        path.write_bytes(nested(count))
        begin = time.perf_counter()
        rows, bad = rows_of(path)
        took.append(time.perf_counter() - begin)
        assert rows == []
        assert bad[0].records_lost is None
    assert took[1] < 8 * took[0] + 1


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_file_of_zeros_is_no_empty_file(tmp_path, ending):
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(bytes(24))
    with pytest.raises(DamagedFileError, match="contains only zeros, no compressed data"):
        list(read_blocks(str(path)))


def test_a_skippable_frame_that_reaches_beyond_the_file_is_damage(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(b"one\n") + b"\x50\x2a\x4d\x18" + struct.pack("<I", 99) + b"rest")
    blocks = read_blocks(str(path))
    assert next(blocks) == b"one\n"
    with pytest.raises(DamagedFileError, match="is cut"):
        next(blocks)
