"""Every stretch of tokens that occurs twice, within a bound of memory and pass by pass.

The passes of the first step count anchors, those of the second look windows up (see ``_substring_kernels``); each takes
the anchors or windows whose hash falls into its part, and writes what it found to a file of its own. A pass whose file
is there is not done again. What is found in the end does not depend on how many passes there are: windows with equal
tokens have equal hashes, so they meet in one pass, and each stretch is compared token by token.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from longcrawl.dedup import _substring_kernels as kernels
from longcrawl.dedup._token_store import TokenStore
from longcrawl.display.progress import progress_bar
from longcrawl.errors import StageError
from longcrawl.storage.files import whole_file
from longcrawl.storage.sealed import Marker

Longs = npt.NDArray[np.int64]

ALL_BITS = (1 << 64) - 1

_CELLS = 32
"""Cells per anchor, where there is room: with 32, one anchor in 32 is taken for a repeated one."""
_FEWEST_CELLS = 16
_MOST_CELLS = 1 << 32
_LOAD = 0.75
"""Share of the table that is to be filled, as far as the number of windows can be foretold."""
_FULL = 0.9
_SAMPLE = 1 << 16
"""Windows from which it is predicted, to 0.4 %."""
_FEW = 64
_LINKED = 3
"""Columns of what the second step finds: start, stop, and the start of an equal stretch."""
_NUMBER = 8
"""Bytes of a number of a range."""
_LEAST_BLOCK = 512
"""Ranges of a piece that are read at once, at least."""


class RangeWriter:
    """Appends pieces to a file of ranges."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.counts: list[int] = []

    def add(self, ranges: Longs) -> None:
        """Append a piece: ranges sorted by start."""
        if len(ranges):
            self._file.write(np.ascontiguousarray(ranges, "<i8").data)
            self.counts.append(len(ranges))

    def extend(self, ranges: Longs) -> None:
        """Go on with the last piece: ranges that start after it."""
        if self.counts and len(ranges):
            self._file.write(np.ascontiguousarray(ranges, "<i8").data)
            self.counts[-1] += len(ranges)
        else:
            self.add(ranges)


@dataclass(frozen=True)
class RangeFile:
    """Sorted ranges [start, stop) on disk, in pieces that were made one after the other.

    A range is 16 bytes, two little-endian int64, or 24 where a third number goes with each. Beside the file a JSON
    file, written last, says how many ranges each piece has: a file without it is not finished.
    """

    path: Path
    columns: int = 2
    """Start, stop and, with 3, the number that goes with a range."""

    @property
    def finished(self) -> bool:
        """Whether all pieces are there."""
        return Marker.whole(self._index) is not None

    @property
    def pieces(self) -> list[int]:
        """How many ranges each piece has."""
        counts: list[int] = Marker.open(self._index).content["pieces"]
        return counts

    def read(self, first: int, count: int) -> Longs:
        """Read ranges ``first`` … ``first + count - 1``, shape (count, columns)."""
        stored = np.fromfile(self.path, "<i8", self.columns * count, offset=first * self.columns * _NUMBER)
        return stored.reshape(-1, self.columns)

    def blocks(self, memory: int) -> Iterator[Longs]:
        """Return all ranges as they were written, ``memory`` bytes of them at once."""
        count, rows = sum(self.pieces), max(memory // (self.columns * _NUMBER), 1)
        return (self.read(first, min(rows, count - first)) for first in range(0, count, rows))

    @property
    def _index(self) -> Path:
        return self.path.with_suffix(".json")

    @contextmanager
    def write(self) -> Iterator[RangeWriter]:
        """Write the file, which is finished when the block ends without an error."""
        with whole_file(self.path) as beside, beside.open("wb") as file:
            writer = RangeWriter(file)
            yield writer
        Marker(self._index, {"pieces": writer.counts}, Marker.entries(self._index, [self.path])).write()


def join_sorted(ranges: Longs) -> Longs:
    """Sort ranges by start and join those that overlap or touch, as :func:`merge_ranges` does."""
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    return ranges[: kernels.join(ranges)]


def merge_ranges(files: Sequence[RangeFile], memory: int) -> Iterator[Longs]:
    """Return the ranges of all pieces of all files in increasing order, joined where they overlap or touch.

    Files have as many columns each; a joined range keeps the least third number of those that start where it starts.

    What is read at once stays near ``memory`` bytes, however many pieces there are, down to 8 KiB for each.
    """
    pieces = [piece for file in files for piece in _pieces(file)]
    columns = max((file.columns for file in files), default=2)
    rows = max(memory // (6 * columns * _NUMBER * max(len(pieces), 1)), _LEAST_BLOCK)
    last = np.empty((0, columns), np.int64)
    while pieces:
        for piece in pieces:
            piece.fill(rows)
        # A piece that is not read to its end may have any more ranges that start after its last one read.
        safe = min((piece.held[-1, 0] for piece in pieces if piece.unread), default=None)
        ready = join_sorted(np.concatenate([last, *(piece.take(safe) for piece in pieces)]))
        pieces = [piece for piece in pieces if piece.unread or len(piece.held)]
        last = ready[-1:]
        yield ready[:-1]
    yield last


class _Piece:
    def __init__(self, file: RangeFile, first: int, count: int) -> None:
        self._file = file
        self._first = first
        self.unread = count
        self.held = np.empty((0, file.columns), np.int64)

    def fill(self, rows: int) -> None:
        """Hold ``rows`` ranges, or all that are left."""
        wanted = min(rows - len(self.held), self.unread)
        if wanted > 0:
            self.held = np.concatenate([self.held, self._file.read(self._first, wanted)])
            self._first += wanted
            self.unread -= wanted

    def take(self, safe: np.int64 | None) -> Longs:
        """Release the ranges that start at ``safe`` or before; all of them where it is None."""
        count = len(self.held) if safe is None else int(np.searchsorted(self.held[:, 0], safe, "right"))
        taken, self.held = self.held[:count], self.held[count:]
        return taken


def _pieces(file: RangeFile) -> Iterator[_Piece]:
    first = 0
    for count in file.pieces:
        yield _Piece(file, first, count)
        first += count


def find_repeats(
    store: TokenStore, min_tokens: int, memory: int, folder: Path, hash_mask: int = ALL_BITS
) -> Iterator[Longs]:
    """Return, in increasing order, the maximal ranges of tokens covered by windows which occur twice or more.

    Args:
        store: the tokens.
        min_tokens: tokens in a window, 1 or more.
        memory: bytes that the search may hold beside the store's 8 bytes per document; ``LEAST_MEMORY`` or more.
        folder: holds the passes that are done, in a few bytes per token; it belongs to these documents and settings.
        hash_mask: the bits of hashes that are used; fewer make passes slower, and change nothing else.

    Yields:
        int64 arrays of shape (n, 3): [start, stop) in tokens of the store, no range reaches over a separator; and where
        the window at its start also stands: at the first other place in the store, by any ``memory``.

    Raises:
        StageError: ``folder`` holds passes over other documents or with other settings.
    """
    _check_same_search(store, min_tokens, memory, folder)
    if len(store.tokens) < min_tokens:
        return iter(())
    windows = kernels.make_windows(store.tokens, store.separator, min_tokens)
    search = _Search(store, windows, memory, folder, np.uint64(hash_mask))
    return merge_ranges(search.match(search.scan()), memory // 4)


def find_among(store: TokenStore, runs: Longs, min_tokens: int) -> Longs:
    """Return what :func:`find_repeats` yields, of windows that are few enough for a table of 11 bytes each.

    Args:
        store: the tokens.
        runs: windows [first, stop) that are looked at, in increasing order, shape (runs, 2).
        min_tokens: tokens in a window.
    """
    rows = int((runs[:, 1] - runs[:, 0]).sum() / _LOAD) + _FEW
    table, state, found = np.zeros(rows, np.uint64), np.zeros(kernels.STATE, np.int64), list[Longs]()
    buffer = _Buffer(1 << 16, found.append)
    windows = kernels.make_windows(store.tokens, store.separator, min_tokens)
    room = (int(_FULL * rows), len(store.tokens), int(np.iinfo(np.int64).max))
    state[kernels.UNSEEN] = -1
    while state[kernels.RUN] < len(runs):
        kernels.match_windows(windows, runs, (0, 1), np.uint64(ALL_BITS), table, room, state, buffer.free)
        buffer.took(int(state[kernels.FOUND]))
    buffer.flush()
    return join_sorted(np.concatenate([np.empty((0, _LINKED), np.int64), *found]))


def _check_same_search(store: TokenStore, min_tokens: int, memory: int, folder: Path) -> None:
    here = {"columns": _LINKED, "documents": len(store.bounds) - 1, "tokens": len(store.tokens)}
    here |= {"min_tokens": min_tokens, "memory": memory}
    plan = folder / "passes.json"
    begun = Marker.whole(plan)
    if begun is None:
        for marker in folder.glob("*-*.json"):  # of passes, perhaps with other settings
            marker.unlink()
        (folder / "anchors.json").unlink(missing_ok=True)
        Marker(plan, here, {}).write()
    elif begun.content != here:
        raise StageError(
            f"{folder} holds passes of another search ({begun.content}, not {here}): remove it, or take another"
        )


@dataclass(frozen=True)
class _Search:
    store: TokenStore
    windows: kernels.HashedWindows
    memory: int
    folder: Path
    hash_mask: np.uint64

    def scan(self) -> list[RangeFile]:
        """List the runs of windows whose anchor occurs twice."""
        anchors = RangeFile(self.folder / "anchors.bin")
        if not anchors.finished:
            self._list_anchors(anchors)
        count = sum(anchors.pieces)
        most = min(self.memory // 2 * 4, _MOST_CELLS)
        parts = -(-_FEWEST_CELLS * (count + 1) // most)
        cells = min(_CELLS * (count + 1) // parts, most)
        files = [RangeFile(self.folder / f"runs-{part:04d}.bin") for part in range(parts)]
        for part, file in enumerate(_shown(files, "count anchors")):
            if not file.finished:
                self._find_runs((part, parts, cells), anchors, file)
        return files

    def _list_anchors(self, file: RangeFile) -> None:
        changes = np.empty((16 * kernels.CHUNK, 2), np.int64)
        with file.write() as writer:
            for start, stop in self._blocks():
                at = start
                while at < stop:
                    at, found = kernels.list_anchors(self.windows, at, stop, changes)
                    writer.extend(changes[:found])
                self._release()

    def _find_runs(self, share: tuple[int, int, int], anchors: RangeFile, file: RangeFile) -> None:
        counts = np.zeros(share[2] // 32 + 1, np.uint64)
        for changes in anchors.blocks(min(self.memory // 8, 1 << 20)):
            kernels.count_anchors(changes, share, counts)
        opened = -1
        with file.write() as writer:
            for changes in anchors.blocks(min(self.memory // 8, 1 << 20)):
                runs = np.empty((len(changes) // 2 + 1, 2), np.int64)
                opened, found = kernels.find_runs(changes, share, counts, opened, runs)
                writer.extend(runs[:found])
            if opened >= 0:
                writer.extend(np.array([[opened, len(self.store.tokens) - self.windows.length + 1]]))

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Cut all windows into blocks of which one at a time may be in memory."""
        windows = len(self.store.tokens) - self.windows.length + 1
        step = windows if self._fits else max(self.memory // 8 // self.store.tokens.itemsize, 1)
        return ((start, min(start + step, windows)) for start in range(0, windows, step))

    def match(self, runs: list[RangeFile]) -> list[RangeFile]:
        """List the ranges that windows of the runs have in common with others."""
        rows = int(self._distinct_windows(runs) / _LOAD) + _FEW
        most = max(self.memory // 2 // 8, _FEW)
        parts = -(-rows // most)
        table = np.empty(min(rows // parts + _FEW, most), np.uint64)
        files = [RangeFile(self.folder / f"windows-{part:04d}.bin", _LINKED) for part in range(parts)]
        for part, file in enumerate(_shown(files, "look windows up")):
            if not file.finished:
                with file.write() as writer:
                    self._match_part((part, parts), table, runs, writer)
        return files

    def _distinct_windows(self, runs: list[RangeFile]) -> int:
        """Estimate how many different windows the runs have, from those whose hash ends in zeros."""
        windows = sum(int((block[:, 1] - block[:, 0]).sum()) for block in merge_ranges(runs, self.memory // 16))
        every = 1
        while windows // every > _SAMPLE:
            every *= 2
        hashes = np.empty(2 * windows // every + 2 * kernels.SMALL_CHUNK, np.uint64)
        state = np.zeros(kernels.STATE, np.int64)
        for block in merge_ranges(runs, self.memory // 16):
            state[kernels.RUN] = 0
            while state[kernels.RUN] < len(block):
                kernels.sample_hashes(
                    self.windows, block, self.hash_mask, np.uint64(every - 1), self._mappable, state, hashes
                )
                self._release()
                if state[kernels.FOUND] + kernels.SMALL_CHUNK > len(hashes):
                    return windows  # hashes that are far from random say nothing
        return every * len(np.unique(hashes[: state[kernels.FOUND]]))

    def _match_part(
        self, share: tuple[int, int], table: npt.NDArray[np.uint64], runs: list[RangeFile], writer: RangeWriter
    ) -> None:
        """Fill the table and look up in it; where it is full, begin again at the first window that it did not take."""
        buffer = _Buffer(max(self.memory // 384, 4), writer.add)
        first = 0
        while first >= 0:
            table[:] = 0
            state = np.zeros(kernels.STATE, np.int64)
            state[kernels.START], state[kernels.UNSEEN] = first, -1
            for block in merge_ranges(runs, self.memory // 16):
                self._match_block(share, table, block, state, buffer)
            first = int(state[kernels.UNSEEN])
        buffer.flush()

    def _match_block(
        self, share: tuple[int, int], table: npt.NDArray[np.uint64], runs: Longs, state: Longs, buffer: "_Buffer"
    ) -> None:
        longest = max(self.memory // 64 // self.store.tokens.itemsize, 2 * self.windows.length)
        room = (int(_FULL * len(table)), len(self.store.tokens) if self._fits else longest, self._mappable)
        state[kernels.RUN] = 0
        while state[kernels.RUN] < len(runs):
            kernels.match_windows(self.windows, runs, share, self.hash_mask, table, room, state, buffer.free)
            buffer.took(int(state[kernels.FOUND]))
            if state[kernels.MAPPED] >= self._mappable:
                self._release()
        self._release()

    @property
    def _mappable(self) -> int:
        """Bytes of tokens that may be touched before they are given back."""
        if self._fits:
            return int(np.iinfo(np.int64).max)
        return max(self.memory // 4 - 4 * kernels.PAGE, 4 * kernels.CHUNK * self.store.tokens.itemsize)

    @property
    def _fits(self) -> bool:
        return self.store.tokens.nbytes <= self.memory // 4

    def _release(self) -> None:
        if not self._fits:
            self.store.release()


def _shown(files: list[RangeFile], what: str) -> Iterable[RangeFile]:
    """Return the files of a step, with a progress bar if there are several."""
    shown: Iterable[RangeFile] = progress_bar(files, desc=what, unit="pass", disable=len(files) == 1)
    return shown


class _Buffer:
    """Ranges found in any order, on their way out; they are sorted and joined where they are many."""

    def __init__(self, rows: int, add: Callable[[Longs], None]) -> None:
        self._rows = np.empty((rows, _LINKED), np.int64)
        self._used = 0
        self._add = add

    @property
    def free(self) -> Longs:
        """The rows to write to, at least two."""
        return self._rows[self._used :]

    def took(self, count: int) -> None:
        """Keep the first ``count`` of the free rows; make room if there is none."""
        self._used += count
        if len(self.free) < 2:
            joined = join_sorted(self._rows[: self._used])
            self._used = 0
            if len(joined) > len(self._rows) // 2:
                self._add(joined)
            else:
                self._rows[: len(joined)] = joined
                self._used = len(joined)

    def flush(self) -> None:
        """Write what is kept."""
        self._add(join_sorted(self._rows[: self._used]))
        self._used = 0
