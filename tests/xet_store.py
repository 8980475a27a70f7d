"""In-memory part of Xet's storage service that the real `hf_xet` client needs to upload and download.

An upload brings xorbs, which hold compressed chunks of any files, and then shards, which say of which chunks files are
made. The formats are those of https://huggingface.co/docs/xet; what serves to deduplicate across uploads is left out.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

NO_FILE = b"\xff" * 32
VERIFIED, WITH_SHA256 = 1 << 31, 1 << 30


class XetStore:
    def __init__(self) -> None:
        self.xorbs: dict[str, bytes] = {}
        self.files: dict[str, list[tuple[str, int, int, int]]] = {}
        """Pieces of each file by its hash: a xorb, first chunk, end chunk, and bytes."""

    def add_shard(self, content: bytes) -> dict[str, bytes]:
        """Learn of which chunks files are made, and give these files, by their Xet hash."""
        files = dict(_files(content))
        self.files |= files
        return {name: b"".join(self._piece(*piece) for piece in pieces) for name, pieces in files.items()}

    def reconstruction(self, name: str, url: str) -> dict[str, Any]:
        """Describe where the pieces of a file are."""
        terms, fetches = [], {}
        for xorb, first, last, size in self.files[name]:
            bounds = [0, *(end for end, _ in _chunks(self.xorbs[xorb]))]
            whole = {"start": bounds[first], "end": bounds[last] - 1}
            span = {"start": first, "end": last}
            terms.append({"hash": xorb, "unpacked_length": size, "range": span})
            fetches.setdefault(xorb, []).append({"range": span, "url": f"{url}/{xorb}", "url_range": whole})
        return {"offset_into_first_range": 0, "terms": terms, "fetch_info": fetches}

    def _piece(self, xorb: str, first: int, last: int, size: int) -> bytes:
        piece = b"".join([chunk for _, chunk in _chunks(self.xorbs[xorb])][first:last])
        assert len(piece) == size
        return piece


def _chunks(xorb: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the chunks of a xorb, and where each ends in it."""
    at = 0
    # What follows the chunks is a footer that begins with a name.
    while at < len(xorb) and xorb[at] == 0:
        packed, size = (int.from_bytes(xorb[at + start : at + start + 3], "little") for start in (1, 5))
        body, scheme = xorb[at + 8 : at + 8 + packed], xorb[at + 4]
        at += 8 + packed
        if scheme:
            body = pa.Codec("lz4").decompress(body, size).to_pybytes()
        yield at, _ungrouped(body) if scheme == 2 else body


def _ungrouped(content: bytes) -> bytes:
    """Undo the order in which all first bytes of four come first, then all second ones."""
    grouped = np.frombuffer(content, np.uint8)
    bytes_ = np.empty_like(grouped)
    start = 0
    for lane in range(4):
        stop = start + len(bytes_[lane::4])
        bytes_[lane::4] = grouped[start:stop]
        start = stop
    return bytes_.tobytes()


def _files(shard: bytes) -> Iterator[tuple[str, list[tuple[str, int, int, int]]]]:
    at = 48
    while shard[at : at + 32] != NO_FILE:
        name, flags, count = struct.unpack_from("<32sII", shard, at)
        entries = [struct.unpack_from("<32sIIII", shard, at + 48 * (each + 1)) for each in range(count)]
        yield _text(name), [(_text(xorb), first, last, size) for xorb, _, size, first, last in entries]
        at += 48 * (1 + count + (count if flags & VERIFIED else 0) + (1 if flags & WITH_SHA256 else 0))


def _text(name: bytes) -> str:
    """Write a hash as Xet does: four numbers of which the last byte comes first."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", name))
