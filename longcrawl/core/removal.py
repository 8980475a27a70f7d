"""Removal of documents from written outputs: moved rows, rewritten files, and proof that the documents are gone.

Files are written under a new name and renamed, so that hard links to the old file do not change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import KeyTable
from longcrawl.io import structured
from longcrawl.io.files import file_entries, remove, write_text

Longs = npt.NDArray[np.int64]

PROOF_TOKENS, PROOF_LETTERS = 20, 100
"""Length of the windows of removed documents that are searched for, in tokens or in characters."""
BLOCK = 1 << 22
"""Windows hashed at a time."""
_BASE, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
_MOST_BITS = 26
"""Maximum number of bits of a cell's number in the table of hashes; a cell is one byte."""


@dataclass(frozen=True)
class Removal:
    """The result of removing documents from an output.

    ``windows`` counts the different windows of removed documents that were searched for in the ``changed`` files, and
    ``found`` those that kept documents also contain.
    """

    described: dict[str, Any]
    documents: int
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    kept: tuple[str, str]
    """Digests of all kept documents in the rewritten files before and after, independent of their order."""
    windows: int
    found: int


def filled_holes(rows: int, gone: Longs) -> Longs:
    """Return the old row number of each new row, after the last of ``rows`` have filled the holes of removed ones.

    >>> filled_holes(7, np.array([1, 5])).tolist()
    [0, 6, 2, 3, 4]
    """
    kept = rows - len(gone)
    source = np.arange(kept)
    source[gone[gone < kept]] = np.setdiff1d(np.arange(kept, rows), gone)
    return source


def rows_of_ids(table: pa.Table, ids: pa.Array) -> Longs:
    """Return the rows of a table whose ``id`` is one of ``ids``: int64, ascending."""
    if "id" not in table.column_names:
        return np.empty(0, np.int64)
    among = pc.is_in(pc.cast(table["id"], pa.string()), value_set=ids)
    return np.flatnonzero(among.to_numpy(zero_copy_only=False)).astype(np.int64)


class Proof:
    """Proof of a removal: compares digests of the kept documents, and searches for windows of the removed ones.

    >>> proof = Proof(2)
    >>> for document, kept in ((b"a", False), (b"b", True)):
    ...     proof.before(document, np.frombuffer(document * 3, np.uint8), kept=kept)
    >>> proof.after(b"b", np.frombuffer(b"bbb", np.uint8))
    >>> proof.look([np.frombuffer(b"bbb", np.uint8)])
    >>> proof.kept[0] == proof.kept[1], proof.windows, proof.found
    (True, 1, 0)
    """

    def __init__(self, length: int) -> None:
        self._length, self._sums = length, [0, 0]
        self._removed: list[npt.NDArray[np.uint64]] = []
        self._known: KeyTable | None = None
        self._found: set[int] = set()

    def before(self, name: bytes, values: npt.NDArray[Any], *, kept: bool) -> None:
        """Add a document, or a part of one, of a file before it is rewritten."""
        if kept:
            self._sums[0] += _digest(name, values)
        else:
            self._removed.append(np.unique(_windows(values, self._length)))

    def after(self, name: bytes, values: npt.NDArray[Any]) -> None:
        """Add a document, or a part of one, of a rewritten file."""
        self._sums[1] += _digest(name, values)

    def look(self, pieces: Iterable[npt.NDArray[Any]]) -> None:
        """Search the values of rewritten files for windows of removed documents."""
        if self._known is None:
            hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *self._removed]))
            self._known = KeyTable(hashes, _MOST_BITS)
        for values in pieces if len(self._known.keys) else ():
            for first in range(0, max(len(values) - self._length + 1, 0), BLOCK):
                there = _windows(values[first : first + BLOCK + self._length - 1], self._length)
                at = self._known.find(there)
                self._found.update(self._known.keys[at[at >= 0]].tolist())

    @property
    def kept(self) -> tuple[str, str]:
        """Digests of all kept documents before and after."""
        before, after = (f"{each % (1 << 128):032x}" for each in self._sums)
        return before, after

    @property
    def windows(self) -> int:
        """Number of different windows that were searched for."""
        return 0 if self._known is None else len(self._known.keys)

    @property
    def found(self) -> int:
        """Number of different windows that were found."""
        return len(self._found)


def _digest(name: bytes, values: npt.NDArray[Any]) -> int:
    digest = blake2b(name, digest_size=16)
    digest.update(b"\0")
    digest.update(np.ascontiguousarray(values).data)
    return int.from_bytes(digest.digest(), "little")


def _windows(values: npt.NDArray[Any], length: int) -> npt.NDArray[np.uint64]:
    """Hash each window of ``length`` values: uint64 [values - length + 1]."""
    if len(values) < length:
        return np.empty(0, np.uint64)
    block, size, base = values.astype(np.uint64) + np.uint64(1), 1, _BASE
    hashes, done, scale = block, 0, 1
    # The hash of a window is that of its front times a power of the base, plus that of its back. So windows of 1, 2, 4
    # and so on values combine to any length.
    while done < length:
        if length & size:
            count = len(values) - done - size + 1
            front = block[:count] * np.uint64(scale)
            hashes = front + hashes[size : size + count] if done else front
            done, scale = done + size, scale * base & _BITS
        block = block[:-size] * np.uint64(base) + block[size:]
        size, base = 2 * size, base * base & _BITS
    hashes ^= hashes >> np.uint64(31)
    hashes *= np.uint64(_BASE)
    return hashes


@dataclass
class Changes:
    """The changed and deleted files of an output during a removal."""

    folder: Path
    described: dict[str, Any]
    changed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    _entries: dict[str, dict[str, int | str]] = field(default_factory=dict)

    def entry(self, name: str) -> Mapping[str, Any]:
        """Return bytes and SHA-256 of a file; a changed one is read once, so it must be final."""
        entry: Mapping[str, Any] = self._read(name) if name in self.changed else self.described["files"][name]
        return entry

    def _read(self, name: str) -> dict[str, int | str]:
        if name not in self._entries:
            self._entries |= file_entries(self.folder, [name])
        return self._entries[name]

    def drop(self, *names: str) -> None:
        """Delete files."""
        for name in names:
            remove(self.folder / name)
            self.dropped.append(name)

    def finish(self, description: str, documents: int, proof: Proof) -> Removal:
        """Write the new description of the output, and return the result of the removal."""
        changed = [name for name in dict.fromkeys(self.changed) if name not in self.dropped]
        if not (changed or self.dropped):
            return Removal(self.described, documents, (), (), proof.kept, proof.windows, proof.found)
        files = {name: entry for name, entry in self.described["files"].items() if name not in self.dropped}
        files |= {name: self._read(name) for name in changed}
        described = {name: value for name, value in self.described.items() if name not in ("files", structured.SEAL)}
        described["files"] = dict(sorted(files.items()))
        write_text(self.folder / description, structured.seal(described))
        dropped = tuple(name for name in dict.fromkeys(self.dropped) if name not in changed)
        return Removal(described, documents, (*changed, description), dropped, proof.kept, proof.windows, proof.found)
