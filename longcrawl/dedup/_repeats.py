"""Every stretch of tokens that occurs twice, within a bound of memory and pass by pass.

The passes of the first step count anchors, those of the second look windows up (see ``_substring_kernels``); each takes
the anchors or windows whose hash falls into its part, and writes what it found to a file of its own. A pass whose file
is there is not done again. What is found in the end does not depend on how many passes there are: windows with equal
tokens have equal hashes, so they meet in one pass, and each stretch is compared token by token.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from datasets.utils import tqdm

from longcrawl.dedup._ranges import RangeFile, RangeWriter, join_sorted, merge_ranges, range_writer
from longcrawl.dedup._token_store import TokenStore
from longcrawl.errors import StageError
from longcrawl.storage.sealed import Marker

if TYPE_CHECKING:
    from longcrawl.dedup._substring_kernels import Windows

Longs = npt.NDArray[np.int64]

LEAST_MEMORY = 64 << 20
"""Bytes below which a search would spend its time on giving memory back."""

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
    from longcrawl.dedup._substring_kernels import make_windows

    _refuse_strangers(store, min_tokens, memory, folder)
    if len(store.tokens) < min_tokens:
        return iter(())
    windows = make_windows(store.tokens, store.separator, min_tokens)
    search = _Search(store, windows, memory, folder, np.uint64(hash_mask))
    return merge_ranges(search.match(search.scan()), memory // 4)


def _refuse_strangers(store: TokenStore, min_tokens: int, memory: int, folder: Path) -> None:
    here: dict[str, int] = {"columns": _LINKED}
    here |= {
        "documents": len(store.bounds) - 1,
        "tokens": len(store.tokens),
        "min_tokens": min_tokens,
        "memory": memory,
    }
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
    windows: "Windows"
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
        from longcrawl.dedup._anchor_kernels import list_anchors
        from longcrawl.dedup._substring_kernels import CHUNK

        changes = np.empty((16 * CHUNK, 2), np.int64)
        with range_writer(file) as writer:
            for start, stop in self._blocks():
                at = start
                while at < stop:
                    at, found = list_anchors(self.windows, at, stop, changes)
                    writer.extend(changes[:found])
                self._release()

    def _find_runs(self, share: tuple[int, int, int], anchors: RangeFile, file: RangeFile) -> None:
        from longcrawl.dedup._anchor_kernels import count_anchors, find_runs

        counts = np.zeros(share[2] // 32 + 1, np.uint64)
        for changes in anchors.blocks(min(self.memory // 8, 1 << 20)):
            count_anchors(changes, share, counts)
        opened = -1
        with range_writer(file) as writer:
            for changes in anchors.blocks(min(self.memory // 8, 1 << 20)):
                runs = np.empty((len(changes) // 2 + 1, 2), np.int64)
                opened, found = find_runs(changes, share, counts, opened, runs)
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
                with range_writer(file) as writer:
                    self._match_part((part, parts), table, runs, writer)
        return files

    def _distinct_windows(self, runs: list[RangeFile]) -> int:
        """Estimate how many different windows the runs have, from those whose hash ends in zeros."""
        from longcrawl.dedup._substring_kernels import FOUND, RUN, SMALL_CHUNK, STATE, sample_hashes

        windows = sum(int((block[:, 1] - block[:, 0]).sum()) for block in merge_ranges(runs, self.memory // 16))
        every = 1
        while windows // every > _SAMPLE:
            every *= 2
        hashes = np.empty(2 * windows // every + 2 * SMALL_CHUNK, np.uint64)
        state = np.zeros(STATE, np.int64)
        for block in merge_ranges(runs, self.memory // 16):
            state[RUN] = 0
            while state[RUN] < len(block):
                sample_hashes(self.windows, block, self.hash_mask, np.uint64(every - 1), self._mappable, state, hashes)
                self._release()
                if state[FOUND] + SMALL_CHUNK > len(hashes):
                    return windows  # hashes that are far from random tell nothing
        return every * len(np.unique(hashes[: state[FOUND]]))

    def _match_part(
        self, share: tuple[int, int], table: npt.NDArray[np.uint64], runs: list[RangeFile], writer: RangeWriter
    ) -> None:
        """Fill the table and look up in it; where it is full, begin again at the first window that it did not take."""
        from longcrawl.dedup._substring_kernels import START, STATE, UNSEEN

        buffer = _Buffer(max(self.memory // 384, 4), writer)
        first = 0
        while first >= 0:
            table[:] = 0
            state = np.zeros(STATE, np.int64)
            state[START], state[UNSEEN] = first, -1
            for block in merge_ranges(runs, self.memory // 16):
                self._match_block(share, table, block, state, buffer)
            first = int(state[UNSEEN])
        buffer.flush()

    def _match_block(
        self, share: tuple[int, int], table: npt.NDArray[np.uint64], runs: Longs, state: Longs, buffer: "_Buffer"
    ) -> None:
        from longcrawl.dedup._substring_kernels import FOUND, MAPPED, RUN, match_windows

        longest = max(self.memory // 64 // self.store.tokens.itemsize, 2 * self.windows.length)
        room = (int(_FULL * len(table)), len(self.store.tokens) if self._fits else longest, self._mappable)
        state[RUN] = 0
        while state[RUN] < len(runs):
            match_windows(self.windows, runs, share, self.hash_mask, table, room, state, buffer.free)
            buffer.took(int(state[FOUND]))
            if state[MAPPED] >= self._mappable:
                self._release()
        self._release()

    @property
    def _mappable(self) -> int:
        """Bytes of tokens that may be touched before they are given back."""
        from longcrawl.dedup._substring_kernels import CHUNK, PAGE

        if self._fits:
            return int(np.iinfo(np.int64).max)
        return max(self.memory // 4 - 4 * PAGE, 4 * CHUNK * self.store.tokens.itemsize)

    @property
    def _fits(self) -> bool:
        return self.store.tokens.nbytes <= self.memory // 4

    def _release(self) -> None:
        if not self._fits:
            self.store.release()


def _shown(files: list[RangeFile], what: str) -> Iterable[RangeFile]:
    """Return the files of a step, with a progress bar if there are several."""
    shown: Iterable[RangeFile] = tqdm(files, desc=what, unit="pass", disable=len(files) == 1)
    return shown


class _Buffer:
    """Ranges found in any order, on their way to a file; they are sorted and joined where they are many."""

    def __init__(self, rows: int, writer: RangeWriter) -> None:
        self._rows = np.empty((rows, _LINKED), np.int64)
        self._used = 0
        self._writer = writer

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
                self._writer.add(joined)
            else:
                self._rows[: len(joined)] = joined
                self._used = len(joined)

    def flush(self) -> None:
        """Write what is kept."""
        self._writer.add(join_sorted(self._rows[: self._used]))
        self._used = 0
