"""Zarr's blosc codec with the sizes in a chunk's header checked, which blosc itself trusts.

zarr-python chooses an implementation of a codec by its configuration: :func:`checked_blosc` names this one while an
array is opened. A chunk that was cut would otherwise end the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zarr
from zarr.codecs import BloscCodec
from zarr.registry import register_codec

from longcrawl.formats._rectangle_readers import BLOSC_HEADER, wrong_blosc_header

__all__ = ["CheckedBlosc", "checked_blosc"]


class CheckedBlosc(BloscCodec):
    """Blosc that does not read past the end of a chunk."""

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _check(chunk_bytes)
        return await super()._decode_single(chunk_bytes, chunk_spec)

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _check(chunk_bytes)
        return super()._decode_sync(chunk_bytes, chunk_spec)


def _check(chunk_bytes: Any) -> None:
    stored = chunk_bytes.as_numpy_array()
    wrong = wrong_blosc_header(stored[:BLOSC_HEADER].tobytes(), stored.nbytes, None)
    if wrong:
        raise ValueError(f"a blosc chunk has {wrong}")


register_codec("blosc", CheckedBlosc)


@contextmanager
def checked_blosc() -> Iterator[None]:
    """Decode blosc in arrays opened in the block by :class:`CheckedBlosc`."""
    with zarr.config.set({"codecs.blosc": f"{CheckedBlosc.__module__}.{CheckedBlosc.__qualname__}"}):
        yield
