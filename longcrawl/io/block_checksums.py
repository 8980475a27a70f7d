"""Checksums of the blocks of a token shard's files, in a file beside them: ``SHARD.crc32c``.

Specification
-------------
``00000.bin.crc32c`` is beside ``00000.bin``. It is JSON whose last entry, ``sha256``, is the SHA-256 of the JSON
without it (:mod:`longcrawl.io.structured`):

* ``longcrawl_block_checksums``: 1;
* ``block_bytes``: 65,536;
* ``files``: for each file of the shard, by its suffix after the shard's stem (``.bin``, ``.idx``): its ``bytes``, and
  ``crc32c``, eight hexadecimal digits for each block. The last block may be shorter.

Each block is checked when it is first read. A shard without the file is also readable.
"""

import hashlib
import io
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, unreadable
from longcrawl.io import structured

SUFFIX = ".crc32c"
VERSION = 1
KIND = "longcrawl_block_checksums"
BLOCK_BYTES = 1 << 16
"""Bytes per block. Random access reads a whole block for its first window; each block costs eight digits."""
WAITING = 2
"""Maximum number of written pieces of a file that wait for their digests."""
FEW = 16
"""Number of unchecked blocks of a file at which the rest are all checked at once."""


@dataclass(eq=False)
class FileBlocks:
    """The block checksums of one file, and the record of blocks already checked."""

    path: str
    size: int
    sums: npt.NDArray[np.uint32] = field(repr=False)
    left: int = field(init=False)
    """Number of blocks that are not checked yet."""
    _compared: bytearray = field(init=False, repr=False)
    _bytes: npt.NDArray[np.uint8] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.left, self._compared = len(self.sums), bytearray(len(self.sums))

    def check(self, first: int = 0, stop: int | None = None) -> None:
        """Check the blocks with bytes ``first:stop`` of a local file that are not checked yet.

        Raises:
            CorruptionError: a block was changed, or the file was truncated. All methods raise it.
        """
        if not self.left:
            return
        stop = self.size if stop is None or stop > self.size else stop
        begin, end = first // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES
        # A window spans one or two blocks, mostly checked already: this path takes a third of a microsecond.
        if begin <= end <= begin + 1 and self._compared[begin] and self._compared[end]:
            return
        # Check the last few at once: the tail of a file may never be read, and feeds are fastest with none left.
        few = self.left <= FEW
        for block in range(len(self.sums)) if few else range(begin, end + 1):
            if not self._compared[block]:
                if self._bytes is None:
                    # A plain array on the same pages: slices of a memmap cost five times as much.
                    self._bytes = np.asarray(np.memmap(self.path, np.uint8, "r"))
                self.check_block(block, self._bytes[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])
        if not self.left:
            self._bytes = None

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """Return the start and end offset of the blocks that contain bytes ``first:stop``."""
        return first // BLOCK_BYTES * BLOCK_BYTES, min(-(-stop // BLOCK_BYTES) * BLOCK_BYTES, self.size)

    def read(self, read: Callable[[int, int], bytes], first: int, stop: int) -> bytes:
        """Return bytes ``first:stop`` of a remote file, after ``read`` has read whole blocks and they are checked."""
        begin, until = self.span(first, stop)
        content = read(begin, until)
        numbers = np.frombuffer(content, np.uint8)
        for place in range(begin, until, BLOCK_BYTES):
            self.check_block(place // BLOCK_BYTES, numbers[place - begin :][:BLOCK_BYTES])
        return content[first - begin : stop - begin]

    def check_block(self, block: int, content: npt.NDArray[np.uint8]) -> None:
        """Check one block, even if it was checked before."""
        if google_crc32c.value(content) != self.sums[block]:
            first = block * BLOCK_BYTES
            raise CorruptionError(
                f"{self.path} has been changed between byte {first:,} and {min(first + BLOCK_BYTES, self.size):,}: its "
                f"crc32c differs. Copy the file back, or remove its {SUFFIX} file if you changed it yourself"
            )
        if not self._compared[block]:
            self._compared[block] = 1
            self.left -= 1


@dataclass(frozen=True, eq=False)
class BlockChecksums:
    """The block checksums of all files of a shard."""

    files: Mapping[str, FileBlocks]
    """Block checksums of each file, by its suffix after the shard's stem."""

    def check_sizes(self, found: Mapping[str, int], where: str) -> None:
        """Raise CorruptionError unless the files of a shard, by suffix, are those written, of the same sizes."""
        for suffix in sorted(found.keys() | self.files.keys()):
            there = found.get(suffix)
            written = self.files[suffix].size if suffix in self.files else None
            if there == written:
                continue
            what = "is missing" if there is None else f"has {there:,} bytes"
            what += " and was not written with this shard" if written is None else f", {written:,} were written"
            raise CorruptionError(
                f"{where}{suffix} {what}. Copy the shard again, or remove its {SUFFIX} file if you changed it yourself"
            )

    def check(self) -> None:
        """Check all blocks of all files; raise CorruptionError if one was changed."""
        for each in self.files.values():
            each.check()


class DigestedFile(io.BufferedWriter):
    """A file opened for sequential writing, with digests computed in a thread from a copy of the bytes."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self._thread = ThreadPoolExecutor(1)
        self._waiting = deque[Future[None]]()
        self._sha256, self._crc32c = hashlib.sha256(), list[int]()
        self._size = 0
        self._in_order = True

    def write(self, content: Any) -> int:
        """Append bytes."""
        self._waiting.append(self._thread.submit(self._digest, np.frombuffer(content, np.uint8).copy()))
        if len(self._waiting) > WAITING:
            self._waiting.popleft().result()
        return super().write(content)

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """Seek to another position, after which the digests of the file are unknown."""
        self._in_order = False
        return super().seek(place, whence)

    def close(self) -> None:
        """Close the file and wait for its digests."""
        super().close()
        self._thread.shutdown()
        for each in self._waiting:
            each.result()

    @property
    def sha256(self) -> str | None:
        """SHA-256 of the closed file, or None if it was not written in order."""
        return self._sha256.hexdigest() if self._in_order else None

    @property
    def crc32c(self) -> list[int] | None:
        """Block checksums of the closed file, or None if it was not written in order."""
        return self._crc32c if self._in_order else None

    def _digest(self, content: npt.NDArray[np.uint8]) -> None:
        self._sha256.update(content.data)
        first = 0
        if filled := self._size % BLOCK_BYTES:
            first = min(BLOCK_BYTES - filled, len(content))
            self._crc32c[-1] = google_crc32c.extend(self._crc32c[-1], content[:first])
        for start in range(first, len(content), BLOCK_BYTES):
            self._crc32c.append(google_crc32c.value(content[start : start + BLOCK_BYTES]))
        self._size += len(content)


def checksums_of(files: Mapping[str, Path], known: Mapping[str, list[int] | None]) -> str:
    """Return the content of a checksum file for files of a shard, by suffix after the shard's stem.

    Files whose block checksums are not ``known`` are read.
    """
    described = {}
    for suffix, file in sorted(files.items()):
        sums = known.get(suffix) or _sums(file)
        described[suffix] = {"bytes": file.stat().st_size, "crc32c": "".join(f"{each:08x}" for each in sums)}
    return structured.seal({KIND: VERSION, "block_bytes": BLOCK_BYTES, "files": described})


def read_checksums(files: Sequence[Path], stem: str) -> BlockChecksums | None:
    """Read the checksums beside a shard's files, tokens first, and check their sizes; return None without any.

    ``stem`` is the path of the shard without its suffix.
    """
    beside = files[0].with_name(files[0].name + SUFFIX)
    if not beside.is_file():
        return None
    found = parse_checksums(beside.read_bytes(), str(beside), stem)
    there = {str(file).removeprefix(stem): file.stat().st_size for file in files if file.is_file()}
    found.check_sizes(there, stem)
    return found


def parse_checksums(text: bytes, where: str, stem: str) -> BlockChecksums:
    """Parse the checksum file at the path ``where``; ``stem`` is the path of the shard without its suffix."""
    fix = f"copy {where} back, or remove it to read the shard without it"
    described = structured.unsealed(text, where, fix)
    with unreadable(where, CorruptionError, fix):
        known = described[KIND] == VERSION and described["block_bytes"] == BLOCK_BYTES
        files = {suffix: _blocks(stem + suffix, entry) for suffix, entry in described["files"].items()}
    if not known:
        raise CorruptionError(f"{where} has a version that this longcrawl does not know: upgrade longcrawl")
    return BlockChecksums(files)


def _blocks(path: str, entry: Mapping[str, Any]) -> FileBlocks:
    size, digits = int(entry["bytes"]), str(entry["crc32c"])
    sums = np.frombuffer(bytes.fromhex(digits), ">u4").astype(np.uint32)
    if len(sums) != -(-size // BLOCK_BYTES):
        raise ValueError(f"{len(sums):,} blocks for {size:,} bytes")
    return FileBlocks(path, size, sums)


def _sums(file: Path) -> list[int]:
    with file.open("rb") as opened:
        return [google_crc32c.value(block) for block in iter(lambda: opened.read(BLOCK_BYTES), b"")]
