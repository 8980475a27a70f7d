"""Windows in a row that have one anchor: what is sent of them, so that equal windows of many tasks meet.

Equal windows have equal anchors, see ``_substring_kernels``, and a dozen windows in a row share one: a segment of 60
tokens holds them all. A row has a hash, by which it is sent, the place of its first token, and its tokens.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.dedup import _substring_kernels as kernels
from longcrawl.dedup._token_store import TokenStore, separated, token_lists

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

STRETCH = 1 << 18
"""Windows that are looked at together, at most."""
ROWS = 1 << 24
"""Tokens of the rows of these windows, one by one, at most."""

_MIX = np.uint64(0xA0761D6478BD642F)


@dataclass(frozen=True)
class Segments:
    """Windows in a row that have one anchor, in a stretch of tokens."""

    windows: kernels.HashedWindows
    place: int
    """Of the first of the tokens."""
    firsts: Longs
    stops: Longs
    keys: Wide
    """The mixed hash of each anchor."""

    def take(self, chosen: npt.NDArray[Any]) -> "Segments":
        """Return some of them."""
        return replace(self, firsts=self.firsts[chosen], stops=self.stops[chosen], keys=self.keys[chosen])

    def rows(self) -> pa.Table:
        """Return ``hash``, ``place`` and ``tokens`` of each segment."""
        return self._rows(self.keys, self.firsts, self.stops - self.firsts)

    def single(self) -> pa.Table:
        """Return ``hash``, ``place`` and ``tokens`` of each window."""
        firsts = numbers_from(self.firsts, self.stops - self.firsts)
        hashes = _hash_windows(self.windows, *(firsts[[0, -1]] if len(firsts) else (0, -1)))
        return self._rows(hashes[firsts - firsts[:1]], firsts, 1)

    def _rows(self, hashes: Wide, firsts: Longs, counts: Longs | int) -> pa.Table:
        """Return rows of equally many bytes, filled up with separators; at least one ends a row."""
        size = _row_tokens(self.windows)
        tokens = np.lib.stride_tricks.sliding_window_view(self.windows.tokens, size)[firsts]
        stops = np.broadcast_to(counts + self.windows.length - 1, len(firsts))
        tokens[np.arange(size) >= stops[:, None]] = self.windows.separator
        rows = pa.FixedSizeListArray.from_arrays(pa.array(tokens.ravel()), size)
        return pa.table({"hash": hashes, "place": self.place + firsts, "tokens": rows})


def read_segments(tables: Iterable[pa.Table], place: int, length: int) -> Iterator[Segments]:
    """Return all windows of ``length`` tokens of documents, whose first token has a place.

    Args:
        tables: with a column ``tokens``, a large list of one type of unsigned integers.
        place: of the first token; a document takes one place more than it has tokens.
        length: tokens in a window.
    """
    made, changes = list[kernels.HashedWindows](), np.empty((16 * kernels.CHUNK, 2), np.int64)
    for table in tables:
        for values, offsets in token_lists(table["tokens"]):
            tokens = separated(values, offsets)
            if not made:
                made.append(kernels.make_windows(tokens, TokenStore(tokens, offsets).separator, length))
            filled = np.append(tokens, np.repeat(made[0].separator, _row_tokens(made[0])))
            windows = made[0]._replace(tokens=TokenStore(filled, offsets).tokens)
            at, end, most = 0, len(tokens) - length + 1, min(STRETCH, ROWS // _row_tokens(windows) or 1)
            while at < end:
                at, found = kernels.list_anchors(windows, at, min(at + most, end), changes)
                yield _cut_segments(windows, place, changes[:found], at)
            place += len(tokens)


def _cut_segments(windows: kernels.HashedWindows, place: int, changes: Longs, stop: int) -> Segments:
    """Return the windows before ``stop`` by rows of ``list_anchors``; at most so many together as a gram can be in."""
    firsts, stops = changes[:, 0] >> 1, np.append(changes[1:, 0] >> 1, stop)[: len(changes)]
    inside = changes[:, 0] & 1 != 0
    firsts, stops, keys = firsts[inside], stops[inside], mix(changes[inside, 1].view(np.uint64))
    width = windows.length - windows.gram + 1
    counts = -(-(stops - firsts) // width)
    if len(counts) and counts.max() > 1:
        firsts = np.repeat(firsts, counts) + width * numbers_from(np.zeros_like(counts), counts)
        stops = np.minimum(firsts + width, np.repeat(stops, counts))
        keys = np.repeat(keys, counts)
    return Segments(windows, place, firsts, stops, keys)


def mix(values: Wide) -> Wide:
    """Return other numbers for numbers, of which each bit follows from all bits: the least of many hashes are small."""
    mixed = (values ^ (values >> np.uint64(29))) * _MIX
    return mixed ^ (mixed >> np.uint64(32))


def numbers_from(firsts: Longs, counts: Longs) -> Longs:
    """Return the numbers from each first on, as many as its count."""
    ends = np.cumsum(counts)
    numbers: Longs = np.arange(ends[-1] if len(ends) else 0) + np.repeat(firsts - (ends - counts), counts)
    return numbers


def _row_tokens(windows: kernels.HashedWindows) -> int:
    """Return how many tokens a row has: those of a segment of windows that may all have one gram, and a separator."""
    return 2 * windows.length - windows.gram + 1


def tokens_of(rows: pa.Table) -> npt.NDArray[Any]:
    """Return the tokens of rows, an array of two dimensions."""
    tokens: npt.NDArray[Any] = pa.concat_arrays(rows["tokens"].chunks).flatten().to_numpy()
    return tokens.reshape(rows.num_rows, -1)


def _hash_windows(windows: kernels.HashedWindows, first: int, last: int) -> Wide:
    """Return the hashes of the windows from ``first`` to ``last``."""
    hashes, sums = np.empty(last + 1 - first, np.uint64), np.empty(kernels.CHUNK + 2 * windows.length, np.uint64)
    for at in range(0, len(hashes), kernels.CHUNK):
        here = hashes[at : at + kernels.CHUNK]
        kernels.hash_windows(windows, first + at, len(here), windows.length, sums, here)
    return hashes


def first_of_kind(batch: pa.Table) -> Longs:
    """Return for each window the first with its tokens; a later one where another of the same hash lies between."""
    tokens, hashes = tokens_of(batch), batch["hash"].to_numpy()
    order = np.argsort(hashes, kind="stable")
    near = 1 + np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    firsts = np.arange(len(order))
    firsts[near[(tokens[order[near]] == tokens[order[near - 1]]).all(axis=1)]] = 0
    found = np.empty_like(order)
    found[order] = order[np.maximum.accumulate(firsts)]
    return found
