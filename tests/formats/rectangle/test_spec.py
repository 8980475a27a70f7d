"""Chunks of every layout, by both engines, and what is not as it should be."""

import dataclasses
import functools
import http.server
import json
import multiprocessing
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, GzipCodec, ShardingCodec

from longcrawl.errors import CorruptionError, FormatError, NotYetError
from longcrawl.formats.rectangle.spec import SplitArray, open_split
from longcrawl.io import file_systems

END_OF_TEXT = 777
ZSTD = BloscCodec(cname="zstd", clevel=3, shuffle="noshuffle")
LZ4 = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)
Write = Callable[[Path, np.ndarray], None]


def tokens_of(rows: int, length: int, dtype: str = "uint16") -> np.ndarray:
    return np.random.default_rng(rows * length).integers(0, 50_000, (rows, length)).astype(dtype)


def write_ours(folder: Path, tokens: np.ndarray, chunks=(8, 32), band=32, codec=ZSTD) -> None:
    group = zarr.open_group(folder, mode="a", attributes={"end_of_text": END_OF_TEXT})
    shards = (band, -(-tokens.shape[1] // chunks[1]) * chunks[1])
    array = group.create_array(
        "train",
        shape=tokens.shape,
        dtype=tokens.dtype,
        chunks=chunks,
        shards=shards,
        compressors=codec,
        fill_value=END_OF_TEXT,
    )
    array[:] = tokens


def write_ours_index_first(folder: Path, tokens: np.ndarray) -> None:
    group = zarr.create_group(folder, attributes={"end_of_text": END_OF_TEXT})
    sharding = ShardingCodec(chunk_shape=(8, 32), codecs=[zarr.codecs.BytesCodec(), ZSTD], index_location="start")
    array = group.create_array(
        "train",
        shape=tokens.shape,
        dtype=tokens.dtype,
        chunks=(32, -(-tokens.shape[1] // 32) * 32),
        serializer=sharding,
        compressors=None,
        fill_value=END_OF_TEXT,
    )
    array[:] = tokens


def write_unsharded(folder: Path, tokens: np.ndarray, codec=ZSTD) -> None:
    group = zarr.create_group(folder, attributes={"end_of_text": END_OF_TEXT})
    array = group.create_array(
        "train", shape=tokens.shape, dtype=tokens.dtype, chunks=(16, 64), compressors=codec, fill_value=END_OF_TEXT
    )
    array[:] = tokens


def write_v2_group(folder: Path, tokens: np.ndarray) -> None:
    group = zarr.create_group(folder, attributes={"end_of_text": END_OF_TEXT}, zarr_format=2)
    array = group.create_array(
        "train", shape=tokens.shape, dtype=tokens.dtype, chunks=(16, 64), compressors=LZ4, fill_value=END_OF_TEXT
    )
    array[:] = tokens


def write_original(folder: Path, tokens: np.ndarray) -> None:
    array = zarr.create_array(
        folder / "train.zarr",
        shape=tokens.shape,
        dtype=tokens.dtype,
        chunks=(16, 64),
        compressors=LZ4,
        fill_value=0,
        zarr_format=2,
    )
    array[:] = tokens


LAYOUTS: dict[str, Write] = {
    "ours": write_ours,
    "ours, index first": write_ours_index_first,
    "unsharded": write_unsharded,
    "version 2 group": write_v2_group,
    "original": write_original,
}
every_layout = pytest.mark.parametrize("write", LAYOUTS.values(), ids=LAYOUTS.keys())
both_engines = pytest.mark.parametrize("engine", ["direct", "zarr"])


def read_all(array: SplitArray) -> np.ndarray:
    rows, columns = array.layout.chunk_grid
    return np.block([[array.read_chunk(row, column) for column in range(columns)] for row in range(rows)])


@pytest.mark.variants
@both_engines
@pytest.mark.parametrize(
    ("dtype", "write"),
    [
        pytest.param(dtype, write, id=f"{dtype}-{name}", marks=marks)
        for name, write in LAYOUTS.items()
        for dtype, marks in {"uint16": (), "uint32": () if name == "ours" else pytest.mark.slow}.items()
    ],
)
def test_every_chunk_of_every_layout(tmp_path, write, engine, dtype):
    tokens = tokens_of(75, 210, dtype)
    write(tmp_path, tokens)
    array = open_split(tmp_path, "train", engine)
    assert (array.shape, array.dtype, array.engine) == (tokens.shape, tokens.dtype, engine)
    read = read_all(array)
    assert read.dtype == tokens.dtype
    np.testing.assert_array_equal(read, tokens)


@every_layout
def test_auto_reads_local_blosc_files_directly(tmp_path, write):
    write(tmp_path, tokens_of(20, 40))
    assert open_split(tmp_path).engine == "direct"
    assert open_split(f"file://{tmp_path}").engine == "direct"


@given(
    rows=st.integers(1, 50),
    length=st.integers(1, 50),
    chunks=st.tuples(st.integers(1, 9), st.integers(1, 20)),
    chunks_per_band=st.integers(1, 4),
)
def test_engines_agree_on_any_shape(tmp_path_factory, rows, length, chunks, chunks_per_band):
    folder, tokens = tmp_path_factory.mktemp("rectangle"), tokens_of(rows, length)
    write_ours(folder, tokens, chunks, chunks[0] * chunks_per_band)
    np.testing.assert_array_equal(read_all(open_split(folder, engine="direct")), tokens)
    np.testing.assert_array_equal(read_all(open_split(folder, engine="zarr")), tokens)


def test_end_of_text_and_fill_value_come_from_the_store(tmp_path):
    write_ours(tmp_path / "ours", tokens_of(4, 4))
    write_v2_group(tmp_path / "v2", tokens_of(4, 4))
    write_original(tmp_path / "original", tokens_of(4, 4))
    found = [open_split(tmp_path / name) for name in ("ours", "v2", "original")]
    assert [array.end_of_text for array in found] == [END_OF_TEXT, END_OF_TEXT, 50256]
    assert [array.layout.fill_value for array in found] == [END_OF_TEXT, END_OF_TEXT, 0]


def test_other_codecs_go_through_zarr(tmp_path):
    tokens = tokens_of(40, 100)
    write_unsharded(tmp_path, tokens, GzipCodec())
    array = open_split(tmp_path)
    assert array.engine == "zarr"
    np.testing.assert_array_equal(read_all(array), tokens)
    with pytest.raises(FormatError, match=r"direct engine does not read codecs \['bytes', 'gzip'\]; use engine='auto'"):
        open_split(tmp_path, engine="direct")


@both_engines
def test_a_chunk_absent_from_its_shard_is_fill(tmp_path, engine):
    tokens = tokens_of(32, 64)
    tokens[8:16, 32:] = END_OF_TEXT
    write_ours(tmp_path, tokens)
    np.testing.assert_array_equal(read_all(open_split(tmp_path, engine=engine)), tokens)


@both_engines
@pytest.mark.parametrize(
    "case",
    [(write_ours, "train/c/1/0", (5, 2), END_OF_TEXT), (write_original, "train.zarr/1.2", (1, 2), 0)],
    ids=["shard", "chunk"],
)
def test_a_missing_file_is_an_error_unless_asked_for(tmp_path, engine, case):
    write, file, chunk, fill = case
    write(tmp_path, tokens_of(75, 210))
    (tmp_path / file).unlink()
    with pytest.raises(CorruptionError, match=re.escape(f"{file} is missing, which holds chunk {chunk}")):
        open_split(tmp_path, engine=engine).read_chunk(*chunk)
    assert (open_split(tmp_path, "train", engine, "fill").read_chunk(*chunk) == fill).all()


def test_a_cut_shard_names_itself(tmp_path):
    write_ours(tmp_path, tokens_of(32, 210))
    shard = tmp_path / "train/c/0/0"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:40])
    with pytest.raises(CorruptionError, match=r"c/0/0 is cut: it has 40 bytes, its index alone 452"):
        open_split(tmp_path).read_chunk(0, 0)
    shard.write_bytes(whole[200:])
    with pytest.raises(CorruptionError, match=r"c/0/0.*corrupt|c/0/0 is cut: chunk \(3, 6\)"):
        read_all(open_split(tmp_path))


def test_a_changed_index_fails_its_checksum(tmp_path):
    write_ours(tmp_path, tokens_of(32, 210))
    shard = tmp_path / "train/c/0/0"
    changed = bytearray(shard.read_bytes())
    changed[-20] ^= 1
    shard.write_bytes(changed)
    with pytest.raises(CorruptionError, match=r"c/0/0 is corrupt: its shard index does not match"):
        open_split(tmp_path, engine="direct").read_chunk(0, 0)
    with pytest.raises(CorruptionError, match=r"c/0/0: chunk \(0, 0\), rows 0 to 7, is corrupt"):
        open_split(tmp_path, engine="zarr").read_chunk(0, 0)


@pytest.mark.parametrize(
    "damage",
    [lambda packed: packed[:-9], lambda packed: packed[:7], lambda packed: packed[:4] + bytes(len(packed) - 4)],
)
def test_a_damaged_chunk_file_names_file_and_chunk(tmp_path, damage):
    write_original(tmp_path, tokens_of(75, 210))
    file = tmp_path / "train.zarr/2.1"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CorruptionError, match=r"train\.zarr/2\.1: chunk \(2, 1\), rows 32 to 47, is corrupt"):
        open_split(tmp_path).read_chunk(2, 1)


def test_damaged_compressed_bytes_are_noticed_by_blosc(tmp_path):
    write_ours(tmp_path, tokens_of(64, 512) % 4, chunks=(64, 512), band=64)
    shard = tmp_path / "train/c/0/0"
    changed = bytearray(shard.read_bytes())
    changed[16:60] = b"\xff" * 44
    shard.write_bytes(changed)
    with pytest.raises(CorruptionError, match=r"chunk \(0, 0\), rows 0 to 63, is corrupt"):
        open_split(tmp_path).read_chunk(0, 0)


def test_what_is_there_is_named(tmp_path):
    write_ours(tmp_path, tokens_of(4, 4))
    with pytest.raises(FormatError, match=r"has no split 'heldout'; known: 'train', 'zarr.json'"):
        open_split(tmp_path, "heldout")
    with pytest.raises(FormatError, match=r"no rectangle at .*nowhere"):
        open_split(tmp_path / "nowhere")
    np.testing.assert_array_equal(read_all(open_split(tmp_path / "train")), tokens_of(4, 4))
    with pytest.raises(FormatError, match=f"not the one of 'heldout': open the folder {re.escape(str(tmp_path))}"):
        open_split(tmp_path / "train", "heldout")


def test_what_is_no_rectangle_is_said(tmp_path):
    zarr.create_array(tmp_path / "flat" / "train", shape=(9,), chunks=(3,), dtype="uint16")
    zarr.create_array(tmp_path / "floats" / "train", shape=(9, 9), chunks=(3, 3), dtype="float32")
    with pytest.raises(FormatError, match="a rectangle is two-dimensional"):
        open_split(tmp_path / "flat")
    with pytest.raises(FormatError, match="token ids must be uint16 or uint32, but this array has float32"):
        open_split(tmp_path / "floats")
    write_ours(tmp_path / "group", tokens_of(4, 4))
    (tmp_path / "group" / "zarr.json").write_text(
        json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"end_of_text": "eot"}})
    )
    with pytest.raises(FormatError, match="end_of_text must be a token id, it is 'eot'"):
        open_split(tmp_path / "group")
    (tmp_path / "group" / "train" / "zarr.json").write_text("{")
    with pytest.raises(FormatError, match=r"zarr\.json cannot be read .JSONDecodeError"):
        open_split(tmp_path / "group")
    (tmp_path / "group" / "train" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array"}')
    with pytest.raises(FormatError, match=r"the Zarr metadata of .*train cannot be read \(KeyError: 'chunk_grid'\)"):
        open_split(tmp_path / "group")


def test_no_chunk_outside_the_grid(tmp_path):
    write_ours(tmp_path, tokens_of(75, 210))
    array = open_split(tmp_path)
    for outside in ((10, 0), (0, 7), (-1, 0)):
        with pytest.raises(IndexError, match=re.escape(str(outside))):
            array.read_chunk(*outside)


@pytest.mark.variants
@every_layout
@both_engines
def test_pickled_after_reading(tmp_path, write, engine):
    tokens = tokens_of(75, 210)
    write(tmp_path, tokens)
    array = open_split(tmp_path, engine=engine)
    array.read_chunk(0, 0)
    copy = pickle.loads(pickle.dumps(array))  # made in the line itself
    assert copy == array
    np.testing.assert_array_equal(read_all(copy), tokens)


@pytest.mark.variants
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@both_engines
def test_usable_after_a_fork(tmp_path, engine):
    tokens = tokens_of(75, 210)
    write_ours(tmp_path, tokens)
    array = open_split(tmp_path, engine=engine)
    array.read_chunk(0, 0)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(read_all, (array,)), tokens)
    np.testing.assert_array_equal(read_all(array), tokens)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list open files")
def test_open_files_are_bounded_and_closed(tmp_path):
    write_ours(tmp_path, tokens_of(150, 4), chunks=(1, 4), band=1)
    array = open_split(tmp_path, engine="direct")
    before = open_files()
    read_all(array)
    assert open_files() <= before + 64
    del array
    assert open_files() == before


@pytest.fixture
def memory_store(tmp_path) -> Iterator[str]:
    write_ours(tmp_path, tokens_of(75, 210))
    files = fsspec.filesystem("memory")
    files.put(str(tmp_path), "/rectangle", recursive=True)
    yield "memory://rectangle"
    files.rm("/rectangle", recursive=True)


def test_reads_fsspec_urls(memory_store):
    assert open_split(memory_store).engine == "direct"
    for engine in ("direct", "zarr"):
        np.testing.assert_array_equal(read_all(open_split(memory_store, engine=engine)), tokens_of(75, 210))
    with pytest.raises(FormatError, match=r"has no split 'heldout'; known: 'train', 'zarr.json'"):
        open_split(memory_store, "heldout")


def test_a_missing_remote_file_is_an_error(memory_store):
    fsspec.filesystem("memory").rm("/rectangle/train/c/1/0")
    with pytest.raises(CorruptionError, match="memory://rectangle/train/c/1/0 is missing"):
        open_split(memory_store).read_chunk(5, 2)
    assert (open_split(memory_store, on_missing_chunks="fill").read_chunk(5, 2) == END_OF_TEXT).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "before"),
    [
        ("direct", [503]),
        ("zarr", [0]),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("direct", [429]), ("direct", [0]), ("zarr", [503]), ("zarr", [429]))
        ),
    ],
    ids=str,
)
def test_a_server_is_asked_again_that_does_not_answer_now(tmp_path, web_server, monkeypatch, engine, before):
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "_silent", set())
    write_ours(tmp_path, tokens_of(75, 210))
    array = open_split(web_server(tmp_path, before=before), engine=engine)
    np.testing.assert_array_equal(read_all(array), tokens_of(75, 210))


@pytest.mark.parametrize("engine", ["direct", "zarr"])
def test_a_server_that_stays_silent_is_not_yet_and_no_damage(tmp_path, web_server, monkeypatch, engine):
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(file_systems, "_silent", set())
    write_ours(tmp_path, tokens_of(75, 210))
    with pytest.raises(NotYetError, match=r"rectangle.json: cannot be fetched now \(ClientResponseError: 503"):
        open_split(web_server(tmp_path, before=[503] * 999), engine=engine)
    array = open_split(web_server(tmp_path), engine=engine)
    silent = dataclasses.replace(array, root=web_server(tmp_path, before=[503] * 999))
    with pytest.raises(NotYetError, match=r"train.*: cannot be fetched now \(ClientResponseError: 503"):
        silent.read_chunk(0, 0)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """A file server that answers byte ranges, which shards are read by, as every object store does."""

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        file = Path(self.translate_path(self.path))
        if wanted is None or not file.is_file():
            super().do_GET()
            return
        content, (first, last) = file.read_bytes(), wanted.groups()
        start = int(first) if first else len(content) - int(last)
        part = content[start : int(last) + 1 if first and last else len(content)]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Describe nothing."""


def test_reads_over_http(tmp_path):
    pytest.importorskip("aiohttp", reason="fsspec reads http through aiohttp")
    write_ours(tmp_path, tokens_of(75, 210))

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Ranges, directory=str(tmp_path))
    ) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            np.testing.assert_array_equal(read_all(open_split(url)), tokens_of(75, 210))
            (tmp_path / "train/c/2/0").unlink()
            with pytest.raises(CorruptionError, match="train/c/2/0 is missing"):
                open_split(url).read_chunk(8, 0)
        finally:
            server.shutdown()
