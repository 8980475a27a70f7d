"""Chunks of some kB that decode to more than their array's metadata says: one sentence, and no memory for them."""

import functools
import json
import resource
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numcodecs
import numpy as np
import pytest
import zarr
import zstandard

from longcrawl.errors import CorruptionError
from longcrawl.formats.rectangle.spec import open_split

TOKENS = np.arange(16 * 64, dtype=np.uint16).reshape(16, 64)
BOMB_BYTES, ALLOWED = 256 << 20, 128 << 20
CODECS = {
    "blosc": numcodecs.Blosc("zstd"),
    "gzip": numcodecs.GZip(1),
    "zlib": numcodecs.Zlib(1),
    "bz2": numcodecs.BZ2(1),
    "lzma": numcodecs.LZMA(preset=0),
    "zstd": numcodecs.Zstd(1),
    "lz4": numcodecs.LZ4(),
}
SLOW = ("bz2", "lzma", "zlib")
"""These take long to make a bomb; zlib decodes as gzip does."""
COMPRESSORS = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CODECS]
OF_ZARR_3 = {"blosc": zarr.codecs.BloscCodec(), "gzip": zarr.codecs.GzipCodec(), "zstd": zarr.codecs.ZstdCodec()}


@functools.cache
def bomb(name: str) -> bytes:
    zeros = np.zeros(BOMB_BYTES, np.uint8)
    return bytes(CODECS[name].encode(zeros))


def unsized_zstd(_: str) -> bytes:
    frame = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return frame.compress(bytes(BOMB_BYTES)) + frame.flush()


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ALLOWED, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def make(folder: Path, zarr_format: int, **settings) -> Path:
    """Write an array of one chunk; return the file that holds it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codecs of numcodecs are no part of Zarr v3
        array = zarr.create_array(
            folder / "train", shape=TOKENS.shape, dtype="uint16", zarr_format=zarr_format, chunks=(16, 64), **settings
        )
        array[:] = TOKENS
    return folder / "train" / ("0.0" if zarr_format == 2 else "c/0/0")


def check(folder: Path, file: Path, bombed: bytes, request) -> None:
    """Read what was written; then a bomb in its place, in little memory."""
    np.testing.assert_array_equal(open_split(folder, engine="zarr").read_chunk(0, 0), TOKENS)
    file.write_bytes(bombed)
    array = open_split(folder, engine="zarr")
    request.getfixturevalue("little_memory")
    with pytest.raises(CorruptionError, match=r"train/.*is corrupt .*(decodes to more than the|decoding to 268,435)"):
        array.read_chunk(0, 0)


@pytest.mark.variants
@pytest.mark.parametrize("name", [*COMPRESSORS, "unsized zstd"])
def test_a_bomb_in_zarr_2(tmp_path, request, name):
    codec = CODECS[name.removeprefix("unsized ")]
    file = make(tmp_path, 2, compressors=codec)
    check(tmp_path, file, unsized_zstd(name) if name not in CODECS else bomb(name), request)


@pytest.mark.variants
@pytest.mark.parametrize("name", OF_ZARR_3)
def test_a_bomb_in_zarr_3(tmp_path, request, name):
    file = make(tmp_path, 3, compressors=OF_ZARR_3[name])
    check(tmp_path, file, bomb(name), request)


@pytest.mark.variants
@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_a_bomb_in_a_codec_of_numcodecs_in_zarr_3(tmp_path, request, name):
    settings = {key: value for key, value in CODECS[name].get_config().items() if key != "id"}
    file = make(tmp_path, 3, compressors=[{"name": f"numcodecs.{name}", "configuration": settings}])
    check(tmp_path, file, bomb(name), request)


@pytest.mark.variants
@pytest.mark.parametrize("name", OF_ZARR_3)
def test_a_bomb_in_a_shard(tmp_path, request, name):
    file = make(tmp_path, 3, compressors=OF_ZARR_3[name], shards=(16, 64))
    stored = bomb(name)
    index = struct.pack("<QQ", 0, len(stored))
    content = stored + index + google_crc32c.value(index).to_bytes(4, "little")
    check(tmp_path, file, content, request)


@pytest.mark.slow
def test_a_bomb_in_a_filter_of_zarr_2(tmp_path, request):
    """The compressor makes some kB, out of which a filter makes the bomb."""
    file = make(tmp_path, 2, compressors=CODECS["blosc"])
    metadata = json.loads((tmp_path / "train" / ".zarray").read_text())
    metadata["filters"] = [CODECS["zlib"].get_config()]
    (tmp_path / "train" / ".zarray").write_text(json.dumps(metadata))
    file.write_bytes(CODECS["blosc"].encode(CODECS["zlib"].encode(TOKENS)))
    check(tmp_path, file, CODECS["blosc"].encode(bomb("zlib")), request)
