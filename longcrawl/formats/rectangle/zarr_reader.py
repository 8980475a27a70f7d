"""Reads chunks of any codec through zarr-python, and limits the size that each may decode to.

While an array is opened, :func:`checked_codecs` replaces the codecs of zarr-python by ones that check sizes. Without
them a chunk of some kB could fill the memory, and a cut blosc chunk would end the process.
"""

import asyncio
import bz2
import gzip
import io
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import zarr
import zstandard
from numcodecs.compat import ensure_bytes
from zarr.codecs._v2 import V2Codec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import get_codec_class, register_codec, register_pipeline

from longcrawl.errors import SourceError, reason_of
from longcrawl.formats.rectangle.spec import BLOSC_HEADER, ChunkReader, Folder, Pair, Tokens, wrong_blosc_header
from longcrawl.io.file_systems import ask, verdict_of
from longcrawl.urls import is_url


@dataclass(eq=False)
class ZarrReader(ChunkReader):
    """Reader of chunks of any codec from any store through zarr-python."""

    def __post_init__(self) -> None:
        self._checked = set[str]()
        self._array: Any = None
        self._process = -1

    def read(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode one chunk, clipped to the array's shape."""
        place = (row_chunk, column_chunk)
        file = self.file(place)
        if file not in self._checked:
            self._look_at(place)
            self._checked.add(file)
        try:
            return ask(file, partial(self._decoded, place)) if is_url(file) else self._decoded(place)
        except OSError as failed:
            if is_url(file):
                if isinstance(failed, FileNotFoundError):
                    raise self.missing(place) from failed
                raise
            raise SourceError(
                f"{file} cannot be read ({reason_of(failed)}): check the disk and resume from the last state"
            ) from failed

    def _decoded(self, place: Pair) -> Tokens:
        try:
            chunk: Tokens = self._open()[self.layout.clip(*place)]
        except Exception as failed:  # the errors of zarr, its codecs and its stores have no common root
            if verdict_of(failed).kind != "unknown":
                raise
            raise self.corrupt(place, f"it does not decode: {reason_of(failed)}") from failed
        return chunk

    def _look_at(self, place: Pair) -> None:
        """Check that a file exists and, if it is a single chunk, compare its checksum before zarr reads it."""
        folder, file = Folder(self.root), f"{self.name}/{self.layout.file_name(*place)}"
        content = folder.read(file) if self.layout.index_at == "none" else None
        if content is not None:
            self.check_file(place, content)
        elif self.on_missing_chunks == "error" and not folder.exists(file):
            raise self.missing(place)

    def _open(self) -> Any:
        # An array opened before a fork waits for an event loop whose thread does not exist in the child.
        if self._process != os.getpid():
            with checked_codecs():
                array = zarr.open_array(self.root, path=self.name, mode="r")
            self._array, self._process = array, os.getpid()
        return self._array


SLACK_BYTES = 8 << 20
"""Bytes allowed in addition to a chunk's tokens, for checksums and the index of a shard (at most 4 MiB)."""
PLAIN = ("blosc", "gzip", "zstd")
"""Codecs that Zarr v3 names without the prefix ``numcodecs.``."""
WIDEST_TOKEN = 8
"""Most bytes of a token after the filters of Zarr v2, such as one from differences of int64 to uint16."""


def _of_stream(opened: Callable[[io.BytesIO], Any]) -> Callable[[bytes, int, Any], int]:
    def decoded(stored: bytes, most: int, _: Any) -> int:
        try:
            return len(opened(io.BytesIO(stored)).read(most + 1))
        except OSError as broken:  # raised by the decoder: the stream is in memory
            raise ValueError(str(broken)) from broken

    return decoded


def _of_lzma(stored: bytes, most: int, codec: Any) -> int:
    return len(lzma.LZMAFile(io.BytesIO(stored), format=codec.format, filters=codec.filters).read(most + 1))


def _of_zstd(stored: bytes, most: int, _: Any) -> int:
    # numcodecs decodes all frames if the first records no length, and otherwise trusts that length.
    length: int = zstandard.frame_content_size(stored)
    if length >= 0:
        return length
    stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(stored), read_across_frames=True)
    decoded: bytes = stream.read(most + 1)
    return len(decoded)


DECODED_BYTES: dict[str, Callable[[bytes, int, Any], int]] = {
    "gzip": _of_stream(lambda stored: gzip.GzipFile(fileobj=stored)),
    "bz2": _of_stream(bz2.BZ2File),
    "zlib": lambda stored, most, _: len(zlib.decompressobj().decompress(stored, most + 1)),
    "lzma": _of_lzma,
    "zstd": _of_zstd,
    "lz4": lambda stored, _most, _: int.from_bytes(stored[:4], "little"),
}
"""Functions that return the decoded bytes of each codec, exact up to a limit; other codecs keep the length."""


def _check(codec_id: str, codec: Any, stored: bytes, most: int) -> None:
    """Raise ValueError if decoding would allocate more than ``most`` bytes, or if a blosc header is wrong."""
    if codec_id == "blosc":
        if wrong := wrong_blosc_header(stored[:BLOSC_HEADER], len(stored), None, most):
            raise ValueError(f"a blosc chunk has {wrong}")
    elif codec_id in DECODED_BYTES and DECODED_BYTES[codec_id](stored, most, codec) > most:
        raise ValueError(f"what is stored by {codec_id} decodes to more than the {most:,} bytes that a chunk may have")


def _most(chunk_spec: Any, token_bytes: int = 0) -> int:
    """Return the most bytes that a chunk may have while it is decoded."""
    width: int = max(token_bytes, chunk_spec.dtype.to_native_dtype().itemsize)
    tokens: int = math.prod(chunk_spec.shape)
    return tokens * width + SLACK_BYTES


def _checked(made: Any, codec_id: str) -> Any:
    """Return a subclass of a Zarr v3 codec that checks sizes before it decodes."""

    class Checked(made):  # type: ignore[misc]  # the class is looked up by name, so its type is unknown
        def _check(self, chunk_bytes: Any, chunk_spec: Any) -> None:
            _check(codec_id, getattr(self, "_codec", None), chunk_bytes.to_bytes(), _most(chunk_spec))

        if hasattr(made, "_decode_sync"):  # _decode_single calls it

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
    """A numcodecs codec with a limit on the bytes of one decoded chunk."""

    def __init__(self, codec: Any, most: int) -> None:
        self._codec, self._most = codec, most

    def decode(self, stored: Any) -> Any:
        _check(self._codec.codec_id, self._codec, ensure_bytes(stored), self._most)
        return self._codec.decode(stored)


class _CheckedV2(V2Codec):
    """Compressor and filters of Zarr v2, each limited to the size of a chunk."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        most = _most(chunk_spec, WIDEST_TOKEN if self.filters else 0)
        filters: Any = tuple(_Bounded(each, most) for each in self.filters or ()) or None
        compressor: Any = _Bounded(self.compressor, most) if self.compressor else None
        checked = V2Codec(filters, compressor)
        return await checked._decode_single(chunk_bytes, chunk_spec)  # noqa: SLF001  # a method of the base class


class CheckedPipeline(BatchedCodecPipeline):
    """Codec pipeline that checks the sizes of Zarr v2 chunks."""

    @classmethod
    def from_codecs(cls, codecs: Iterable[Any], **settings: Any) -> Any:
        """Build the pipeline from the codecs of an array."""
        checked = [_CheckedV2(each.filters, each.compressor) if type(each) is V2Codec else each for each in codecs]
        return super().from_codecs(checked, **settings)


register_pipeline(CheckedPipeline)


@cache
def _registered() -> Mapping[str, str]:
    """Register the checked codecs of Zarr v3, and return their class paths by codec name."""
    found = {}
    for name in (*PLAIN, *(f"numcodecs.{codec_id}" for codec_id in ("blosc", *DECODED_BYTES))):
        with suppress(KeyError):  # zarr-python before 3.1.4 has no codecs "numcodecs.*": numcodecs registers them
            checked = _checked(get_codec_class(name), name.removeprefix("numcodecs."))
            register_codec(name, checked)
            found[name] = f"{checked.__module__}.{checked.__qualname__}"
    return found


@contextmanager
def checked_codecs() -> Iterator[None]:
    """Check sizes in all codecs of the arrays that are opened in this context."""
    pipeline = f"{CheckedPipeline.__module__}.{CheckedPipeline.__qualname__}"
    codecs = {**zarr.config.get("codecs"), **_registered()}
    with zarr.config.set({"codecs": codecs, "codec_pipeline.path": pipeline}):
        yield
