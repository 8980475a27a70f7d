"""Reads chunks of any codec through zarr-python, and bounds what each decodes to.

zarr-python chooses an implementation of a codec by its configuration: :func:`checked_codecs` names these while an array
is opened. Otherwise a chunk of some kB could fill the memory, and a cut one of blosc would end the process.
"""

import asyncio
import bz2
import gzip
import io
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import zarr
import zstandard
from numcodecs.compat import ensure_bytes
from zarr.codecs._v2 import V2Codec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import get_codec_class, register_codec, register_pipeline

from longcrawl.errors import SourceError, reason_of
from longcrawl.formats.rectangle.spec import (
    BLOSC_HEADER,
    Folder,
    OnMissingChunks,
    StoredArray,
    Tokens,
    missing_chunk,
    wrong_blosc_header,
)
from longcrawl.io.file_systems import ask, verdict_of
from longcrawl.urls import is_url


class ZarrReader:
    """Reads chunks of any codec from any store through zarr-python."""

    def __init__(self, array: StoredArray, folder: Folder, on_missing_chunks: OnMissingChunks) -> None:
        self._stored, self._layout = array, array.layout
        self._folder, self._on_missing_chunks = folder, on_missing_chunks
        self._checked: set[str] = set()
        self._array: Any = None
        self._process = -1

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Return one chunk, clipped to the array's shape."""
        place = (row_chunk, column_chunk)
        file = self._layout.file_name(*place)
        if file not in self._checked:
            self._check_file(f"{self._stored.name}/{file}", place)
            self._checked.add(file)
        if is_url(self._stored.root):
            return self._asked(f"{self._stored.root}/{self._stored.name}/{file}", place)
        try:
            return self._decoded(place)
        except OSError as failed:
            raise SourceError(
                f"{self._stored.root}/{self._stored.name}/{file} cannot be read ({reason_of(failed)}): check the disk "
                "and go on from the last state"
            ) from failed

    def read_file(self, places: Sequence[tuple[int, int]]) -> list[Tokens]:
        """Return chunks of one file, one after the other."""
        return [self.read(*place) for place in places]

    def _asked(self, url: str, place: tuple[int, int]) -> Tokens:
        try:
            return ask(url, partial(self._decoded, place))
        except FileNotFoundError as missing:
            raise missing_chunk(url, *place) from missing

    def _decoded(self, place: tuple[int, int]) -> Tokens:
        try:
            chunk: Tokens = self._open()[self._layout.clip(*place)]
        except Exception as failed:  # the errors of zarr, its codecs and its stores have no common root
            if verdict_of(failed).kind != "unknown":
                raise
            raise self._stored.corrupt(place, f"it does not decode: {reason_of(failed)}") from failed
        return chunk

    def _check_file(self, file: str, place: tuple[int, int]) -> None:
        """Look for a file, and where it is one chunk compare it with its checksum, before zarr reads it."""
        content = self._folder.read(file) if self._layout.index_at == "none" else None
        if content is None and not self._folder.exists(file):
            if self._on_missing_chunks == "error":
                raise missing_chunk(f"{self._stored.root}/{file}", *place)
            return
        if content is not None:
            self._stored.check_file(place, content)

    def _open(self) -> Any:
        # An array opened before a fork waits for an event loop whose thread the child does not have.
        if self._process != os.getpid():
            import zarr

            with checked_codecs():
                array = zarr.open_array(self._stored.root, path=self._stored.name, mode="r")
            self._array, self._process = array, os.getpid()
        return self._array


SLACK_BYTES = 8 << 20
"""What checksums and the index of a shard, which has at most 4 MiB, may add to the bytes of a chunk."""


PLAIN = ("blosc", "gzip", "zstd")
"""Codecs that Zarr v3 itself names."""


WIDEST_TOKEN = 8
"""Bytes of a token after filters of Zarr v2, such as one from differences of int64 to uint16."""


def _of_stream(opened: Callable[[io.BytesIO], Any]) -> Callable[[bytes, int, Any], int]:
    def decoded(stored: bytes, most: int, _: Any) -> int:
        try:
            return len(opened(io.BytesIO(stored)).read(most + 1))
        except OSError as broken:  # of the stream; nothing is read from a disk or a server here
            raise ValueError(str(broken)) from broken

    return decoded


def _of_zlib(stored: bytes, most: int, _: Any) -> int:
    return len(zlib.decompressobj().decompress(stored, most + 1))


def _of_lzma(stored: bytes, most: int, codec: Any) -> int:
    return len(lzma.LZMAFile(io.BytesIO(stored), format=codec.format, filters=codec.filters).read(most + 1))


def _of_zstd(stored: bytes, most: int, _: Any) -> int:
    # Of a frame that does not say its length, numcodecs decodes all frames; of others it believes the first.
    length: int = zstandard.frame_content_size(stored)
    if length >= 0:
        return length
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(stored), read_across_frames=True)
    decoded: bytes = stream.read(most + 1)
    return len(decoded)


def _of_lz4(stored: bytes, _most: int, _: Any) -> int:
    return int.from_bytes(stored[:4], "little")


DECODED_BYTES: dict[str, Callable[[bytes, int, Any], int]] = {
    "gzip": _of_stream(lambda stored: gzip.GzipFile(fileobj=stored)),
    "bz2": _of_stream(bz2.BZ2File),
    "zlib": _of_zlib,
    "lzma": _of_lzma,
    "zstd": _of_zstd,
    "lz4": _of_lz4,
}
"""How many bytes a codec makes of what is stored, exact up to a limit; not in it are those that keep the length."""


def _check(codec_id: str, codec: Any, stored: bytes, most: int) -> None:
    """Raise ValueError where decoding would allocate more than a chunk has."""
    if codec_id == "blosc":
        if wrong := wrong_blosc_header(stored[:BLOSC_HEADER], len(stored), None, most):
            raise ValueError(f"a blosc chunk has {wrong}")
    elif codec_id in DECODED_BYTES and DECODED_BYTES[codec_id](stored, most, codec) > most:
        raise ValueError(f"what is stored by {codec_id} decodes to more than the {most:,} bytes that a chunk may have")


def _most(chunk_spec: Any, token_bytes: int = 0) -> int:
    """Return how many bytes a chunk may have while it is decoded."""
    width: int = max(token_bytes, chunk_spec.dtype.to_native_dtype().itemsize)
    tokens: int = math.prod(chunk_spec.shape)
    return tokens * width + SLACK_BYTES


def _checked(made: Any, codec_id: str) -> Any:
    """Return a codec of Zarr v3 that compares sizes before it decodes."""

    class Checked(made):  # type: ignore[misc]  # found by its name, so of no known type
        def _check(self, chunk_bytes: Any, chunk_spec: Any) -> None:
            _check(codec_id, getattr(self, "_codec", None), chunk_bytes.to_bytes(), _most(chunk_spec))

        if hasattr(made, "_decode_sync"):  # which _decode_single calls

            def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
                self._check(chunk_bytes, chunk_spec)
                return super()._decode_sync(chunk_bytes, chunk_spec)

        else:

            async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
                await asyncio.to_thread(self._check, chunk_bytes, chunk_spec)
                return await super()._decode_single(chunk_bytes, chunk_spec)

    Checked.__name__, Checked.__qualname__ = made.__name__, made.__qualname__
    return Checked


class _Bounded:
    """A codec of numcodecs for one chunk."""

    def __init__(self, codec: Any, most: int) -> None:
        self._codec, self._most = codec, most

    def decode(self, stored: Any) -> Any:
        _check(self._codec.codec_id, self._codec, ensure_bytes(stored), self._most)
        return self._codec.decode(stored)


class _CheckedV2(V2Codec):
    """Compressor and filters of Zarr v2, each compared with the size of a chunk."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        most = _most(chunk_spec, WIDEST_TOKEN if self.filters else 0)
        filters: Any = tuple(_Bounded(each, most) for each in self.filters or ()) or None
        compressor: Any = _Bounded(self.compressor, most) if self.compressor else None
        checked = V2Codec(filters, compressor)
        return await checked._decode_single(chunk_bytes, chunk_spec)  # noqa: SLF001  # as _CheckedV2's own


class CheckedPipeline(BatchedCodecPipeline):
    """The codecs of an array, those of Zarr v2 checked."""

    @classmethod
    def from_codecs(cls, codecs: Iterable[Any], **settings: Any) -> Any:
        """Return a pipeline of codecs."""
        checked = [_CheckedV2(each.filters, each.compressor) if type(each) is V2Codec else each for each in codecs]
        return super().from_codecs(checked, **settings)


register_pipeline(CheckedPipeline)


@cache
def _registered() -> Mapping[str, str]:
    """Register the checked codecs of Zarr v3; return the classes by the names of codecs."""
    found = {}
    for name in (*PLAIN, *(f"numcodecs.{codec_id}" for codec_id in ("blosc", *DECODED_BYTES))):
        with suppress(KeyError):  # zarr-python before 3.1.4 leaves those of numcodecs to numcodecs
            checked = _checked(get_codec_class(name), name.removeprefix("numcodecs."))
            register_codec(name, checked)
            found[name] = f"{checked.__module__}.{checked.__qualname__}"
    return found


@contextmanager
def checked_codecs() -> Iterator[None]:
    """Decode by checked codecs in arrays opened in the block."""
    pipeline = f"{CheckedPipeline.__module__}.{CheckedPipeline.__qualname__}"
    codecs = {**zarr.config.get("codecs"), **_registered()}
    with zarr.config.set({"codecs": codecs, "codec_pipeline.path": pipeline}):
        yield
