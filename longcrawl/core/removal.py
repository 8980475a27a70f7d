"""What all outputs share when documents are taken out of them: which rows move, and what proves that they are gone.

Files are written new and renamed over their names, so that the same file under another name, a hard link, stays as it
was. Only files that hold a document, and those whose last rows fill its place, are written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.io import structured
from longcrawl.io.files import file_entries, remove, write_text

Longs = npt.NDArray[np.int64]

PROOF_TOKENS = 20
"""Tokens of a removed document that are searched for together."""
PROOF_LETTERS = 100
"""Letters of a removed text that are searched for together."""
BLOCK = 1 << 22
_BASE, _BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
_SIFTED = 16, 26
"""Bits of a hash that a table of one byte for each says whether they occur, at least and at most."""


@dataclass(frozen=True)
class Removal:
    """What an output is without some documents.

    Attributes:
        described: what the writer would say of it, with ``files``.
        documents: that are gone.
        changed: files that were written, by their names in the output.
        dropped: files that are no more.
        kept: a digest of every document that the rewritten files keep, before and after, in any order.
        windows: stretches of the removed documents that were looked for in the rewritten files.
        found: how many of them other documents have, too.
    """

    described: dict[str, Any]
    documents: int
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    kept: tuple[str, str]
    windows: int
    found: int


def filled_holes(rows: int, gone: Longs) -> Longs:
    """Return which row is in each place once some are gone: the last ones fill the places of those before them.

    >>> filled_holes(7, np.array([1, 5])).tolist()
    [0, 6, 2, 3, 4]

    Args:
        rows: how many there were.
        gone: int64, ascending, those that are not to be there.
    """
    kept = rows - len(gone)
    source = np.arange(kept)
    source[gone[gone < kept]] = np.setdiff1d(np.arange(kept, rows), gone)
    return source


def rows_of_ids(table: pa.Table, ids: pa.Array) -> Longs:
    """Return the rows of a table whose ``id`` is among some: int64, ascending."""
    if "id" not in table.column_names:
        return np.empty(0, np.int64)
    among = pc.is_in(pc.cast(table["id"], pa.string()), value_set=ids)
    return np.flatnonzero(among.to_numpy(zero_copy_only=False)).astype(np.int64)


class Proof:
    """Digests what is kept, before and after, and looks for what is removed.

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
        self._known: tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]] | None = None
        self._found: set[int] = set()
        self._shift = np.uint64(0)

    def before(self, name: bytes, values: npt.NDArray[Any], *, kept: bool) -> None:
        """Note a document, or a part of one, of a file that is to be rewritten."""
        if kept:
            self._sums[0] += _digest(name, values)
        else:
            self._removed.append(np.unique(_windows(values, self._length)))

    def after(self, name: bytes, values: npt.NDArray[Any]) -> None:
        """Note a document, or a part of one, of a file that was rewritten."""
        self._sums[1] += _digest(name, values)

    def look(self, pieces: Iterable[npt.NDArray[Any]]) -> None:
        """Look for stretches of what was removed in values that are there now."""
        if self._known is None:
            hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *self._removed]))
            # One place in sixteen at most is taken, so that few windows have to be looked up.
            bits = min(max(_SIFTED[0], len(hashes).bit_length() + 4), _SIFTED[1])
            sieve = np.zeros(1 << bits, np.bool_)
            self._shift = np.uint64(64 - bits)
            sieve[hashes >> self._shift] = True
            self._known = hashes, sieve
        hashes, sieve = self._known
        if not len(hashes):
            return
        for values in pieces:
            for first in range(0, max(len(values) - self._length + 1, 0), BLOCK):
                there = _windows(values[first : first + BLOCK + self._length - 1], self._length)
                there = there[sieve[there >> self._shift]]
                at = np.minimum(np.searchsorted(hashes, there), len(hashes) - 1)
                self._found.update(hashes[at[hashes[at] == there]].tolist())

    @property
    def kept(self) -> tuple[str, str]:
        """The digest before and after."""
        before, after = (f"{each % (1 << 128):032x}" for each in self._sums)
        return before, after

    @property
    def windows(self) -> int:
        """How many different stretches were looked for."""
        return 0 if self._known is None else len(self._known[0])

    @property
    def found(self) -> int:
        """How many of them are there."""
        return len(self._found)


def _digest(name: bytes, values: npt.NDArray[Any]) -> int:
    digest = blake2b(name, digest_size=16)
    digest.update(b"\0")
    digest.update(np.ascontiguousarray(values).data)
    return int.from_bytes(digest.digest(), "little")


def _windows(values: npt.NDArray[Any], length: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each stretch of so many values: uint64 [values - length + 1]."""
    if len(values) < length:
        return np.empty(0, np.uint64)
    block, size, base = values.astype(np.uint64) + np.uint64(1), 1, _BASE
    hashes, done, scale = block, 0, 1
    # The hash of a stretch is that of its front times a power of the base, plus that of its back: stretches of 1, 2, 4
    # and so on make up those of any length.
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
    """The files of an output while documents are taken out of it."""

    folder: Path
    described: dict[str, Any]
    changed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def drop(self, *names: str) -> None:
        """Remove files."""
        for name in names:
            remove(self.folder / name)
            self.dropped.append(name)

    def finish(self, description: str, documents: int, proof: Proof) -> Removal:
        """Write the description of the output, and return what became of it."""
        files = dict(self.described["files"])
        for name in self.dropped:
            files.pop(name, None)
        changed = [name for name in dict.fromkeys(self.changed) if name not in self.dropped]
        if not (changed or self.dropped):
            return Removal(self.described, documents, (), (), proof.kept, proof.windows, proof.found)
        files |= file_entries(self.folder, changed)
        described = {name: value for name, value in self.described.items() if name not in ("files", structured.SEAL)}
        described["files"] = dict(sorted(files.items()))
        write_text(self.folder / description, structured.seal(described))
        dropped = tuple(name for name in dict.fromkeys(self.dropped) if name not in changed)
        return Removal(described, documents, (*changed, description), dropped, proof.kept, proof.windows, proof.found)
