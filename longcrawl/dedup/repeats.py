"""Repeated stretches of tokens, found in bounded memory, pass by pass.

The *anchor* of a window is the least hash of its grams, ``gram`` tokens in a row. Equal windows have equal anchors, and
consecutive windows often share one. The anchors, far fewer than the windows, are counted first: a window with an anchor
that occurs only once cannot repeat. The other windows are hashed and looked up in a table of earlier ones. If a hash is
found, tokens are compared one by one.

Each pass handles the anchors or windows with a hash in its part. Windows with equal tokens meet in one pass, so the
result does not depend on the number of passes.

A *segment* is a run of consecutive windows with one anchor. A row of an exchange has its hash, by which it is sent, the
place of its first token, and its tokens.
"""

import mmap
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import progress_bar
from longcrawl.core.stages import reject_duplicate_ids
from longcrawl.errors import StageError
from longcrawl.io.files import whole_file
from longcrawl.io.structured import Marker
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.keyed_hash import keyed_hash

Longs = npt.NDArray[np.int64]

_INDEX = "tokens.json"
_FILES = ("tokens.bin", "ids.arrow", "bounds.npy")
_MOST = (1 << 40) - 2


class TokenStore:
    """Tokens of documents with a separator after each; document d is ``tokens[bounds[d]:bounds[d + 1] - 1]``."""

    def __init__(self, tokens: npt.NDArray[Any], bounds: Longs, mapped: mmap.mmap | None = None) -> None:
        self.tokens = tokens.view()
        # Read-only, as a mapped file is: kernels would otherwise be compiled for both.
        self.tokens.flags.writeable = False
        self.bounds = bounds
        self.separator = tokens.dtype.type(np.iinfo(tokens.dtype).max)
        self._mapped = mapped

    def release(self) -> None:
        """Release the memory of pages read from the file."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def documents_of(self, ranges: Longs) -> tuple[Longs, Longs]:
        """Return the document of each range of tokens, and the ranges relative to their document's first token."""
        documents = np.searchsorted(self.bounds, ranges[:, 0], "right") - 1
        return documents, ranges[:, :2] - self.bounds[documents, None]


def store_tokens(tables: Iterable[pa.Table], folder: Path, needed_by: str) -> TokenStore:
    """Write ``id`` and ``tokens`` of all tables to ``folder``, or reuse its content; StageError for an id twice."""
    index = folder / _INDEX
    stored = Marker.whole(index)
    if stored is None:
        folder.mkdir(parents=True, exist_ok=True)
        described = _write(tables, folder, needed_by)
        stored = Marker(index, described, Marker.entries(index, [folder / name for name in _FILES]))
        stored.write()
    return _open(folder, stored.content)


def stored_ids(folder: Path, documents: Longs) -> pa.Array:
    """Return the ids of documents by their number."""
    with pa.memory_map(str(folder / "ids.arrow")) as mapped:
        ids = pa.ipc.open_file(mapped).read_all()["id"]
        return pa.concat_arrays(ids.take(pa.array(documents)).chunks or [pa.array([], pa.large_string())])


def _write(tables: Iterable[pa.Table], folder: Path, needed_by: str) -> dict[str, Any]:
    dtype, hashes, lengths = np.dtype(np.uint8), array("Q"), array("q")  # arrays of this module grow in place
    schema = pa.schema([("id", pa.large_string())])
    with (
        whole_file(folder / "tokens.bin") as tokens_beside,
        whole_file(folder / "ids.arrow") as ids_beside,
        tokens_beside.open("wb") as file,
        pa.ipc.new_file(str(ids_beside), schema) as ids_file,
    ):
        for table in tables:
            ids = pc.cast(table["id"], pa.large_string())
            ids_file.write_table(pa.table([ids], schema=schema))
            hashes.frombytes(keyed_hash(ids.to_pylist(), "ids", 0).tobytes())
            for values, offsets in token_lists(table["tokens"]):
                dtype = values.dtype
                file.write(separated(values, offsets).data)
                lengths.frombytes((np.diff(offsets) + 1).tobytes())
    bounds = np.zeros(1 + len(lengths), np.int64)
    np.cumsum(np.frombuffer(lengths, np.int64), out=bounds[1:])
    if bounds[-1] > _MOST:
        raise StageError(f"{needed_by} can process fewer than 2**40 tokens, got {bounds[-1]:,}: split the documents")
    _reject_duplicates(folder, np.frombuffer(hashes, np.uint64), needed_by)
    with whole_file(folder / "bounds.npy") as beside, beside.open("wb") as file:
        np.save(file, bounds)
    return {"documents": len(bounds) - 1, "tokens": int(bounds[-1]), "dtype": dtype.name}


def token_lists(column: pa.ChunkedArray) -> Iterator[tuple[npt.NDArray[Any], Longs]]:
    """Yield values and offsets of the chunks of a list column; null has no tokens."""
    for chunk in column.chunks:
        values = chunk.flatten().to_numpy()
        lengths = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy()
        yield values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def separated(tokens: npt.NDArray[Any], offsets: Longs) -> npt.NDArray[Any]:
    """Return the tokens of documents, which ``offsets`` delimits, with a separator after each."""
    return np.insert(tokens[offsets[0] : offsets[-1]], offsets[1:] - offsets[0], np.iinfo(tokens.dtype).max)


def _reject_duplicates(folder: Path, hashes: npt.NDArray[np.uint64], needed_by: str) -> None:
    ordered = np.sort(hashes)
    alike = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(alike):
        del ordered
        # Without kind="sort", numpy 2.0 fails with uint64 beyond int64.
        reject_duplicate_ids(stored_ids(folder, np.flatnonzero(np.isin(hashes, alike, kind="sort"))), needed_by)


def _open(folder: Path, described: dict[str, Any]) -> TokenStore:
    bounds = np.load(folder / "bounds.npy", mmap_mode="r")
    if not described["tokens"]:
        return TokenStore(np.zeros(0, described["dtype"]), bounds)
    with (folder / "tokens.bin").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return TokenStore(np.frombuffer(mapped, described["dtype"]), bounds, mapped)


Tokens = npt.NDArray[Any]
Wide = npt.NDArray[np.uint64]

_U = np.uint64
_BASE = 0x9E3779B97F4A7C15
_MIX = _U(0xD6E8FEB86659FD93)
_ANCHOR_MIX = _U(0xA0761D6478BD642F)
_LOW = _U(0xFFFFFFFF)
_HALF = _U(32)

_GRAM_SHARE = 0.6

CHUNK = 4096
"""Windows that are hashed together, so that intermediate results stay in the first-level cache."""
SMALL_CHUNK = 256
"""The same for lookups: runs are short, and a match makes the rest of a chunk useless."""

_PLACE_BITS = _U(40)
_PLACE = _U((1 << 40) - 1)
_TAG = _U(0xFFFFFF)

PAGE = 1 << 21
"""Bytes that the system may map when one byte of a file is touched (Linux 6.18 maps large folios whole)."""

STATE = 8
"""Size of the state that ``match_windows`` keeps between calls; it starts as zeros, but ``UNSEEN`` as -1."""
RUN, START, SKIP, USED, UNSEEN, MAPPED, NEAR, FOUND = range(STATE)
# RUN and START: the run and window to resume with; SKIP: the first window not known to repeat an earlier one; USED:
# windows in the table; UNSEEN: the first window for which it was full; MAPPED: bytes of tokens touched; NEAR: a place
# around which they are counted; FOUND: rows written.


class HashedWindows(NamedTuple):
    """All windows of ``length`` tokens that are inside a document."""

    tokens: Tokens
    """Unsigned integers, with ``separator`` after each document."""
    separator: Any
    length: int
    gram: int
    """Tokens in a gram; the gram with the least hash is a window's anchor."""
    powers: Wide
    """Powers of the base of the polynomial hash, modulo 2**64."""
    inverse_powers: Wide


def make_windows(tokens: Tokens, separator: Any, length: int) -> HashedWindows:
    """Describe the windows of ``length`` tokens, 1 or more, and compute the powers of the hash."""
    powers = np.empty((2, CHUNK + 2 * length), np.uint64)
    inverse = pow(_BASE, -1, 1 << 64)
    up = down = 1
    for at in range(powers.shape[1]):
        powers[:, at] = up, down
        up, down = up * _BASE % (1 << 64), down * inverse % (1 << 64)
    gram = max(1, round(_GRAM_SHARE * length))
    return HashedWindows(tokens, separator, length, gram, powers[0], powers[1])


@compiled
def hash_windows(windows: HashedWindows, start: int, count: int, length: int, sums: Wide, hashes: Wide) -> None:
    """Hash ``count`` stretches of ``length`` tokens from ``start`` on, as scaled differences of a running sum."""
    tokens, powers, inverse_powers = windows.tokens[start:], windows.powers, windows.inverse_powers
    total = _U(0)
    sums[0] = total
    for at in range(count + length - 1):
        total += _U(tokens[at] + 1) * powers[at]
        sums[at + 1] = total
    for at in range(count):
        mixed = (sums[at + length] - sums[at]) * inverse_powers[at]
        hashes[at] = (mixed ^ (mixed >> _HALF)) * _MIX


@compiled
def _lower(first: Wide, second: Wide, lower: Wide) -> None:
    for at in range(first.size):
        lower[at] = min(first[at], second[at])


@allocating
def _least_of_each(hashes: Wide, count: int, width: int, here: Wide, there: Wide) -> Wide:
    """Return the minimum of ``width`` hashes from each of ``count`` on, by doubling; ``here``, ``there``: scratch."""
    size = count + width - 1
    least, span = hashes, 1
    while 2 * span <= width:
        size -= span
        _lower(least[:size], least[span : span + size], here[:size])
        least, here, there = here, there, here
        span *= 2
    if width > span:
        _lower(least[:count], least[width - span : width - span + count], here[:count])
        least = here
    return least


@compiled
def _changes(
    ends: Tokens, entering: Wide, least: Wide, separator: Any, length: int, start: int, carried: Longs, changes: Longs
) -> int:
    """List the windows at which the anchor changes, or an equal one enters, and those at which documents end."""
    found = 0
    last_separator, was_inside, before, again = carried[0], carried[1] != 0, _U(carried[2]), carried[3] != 0
    for at in range(ends.size):
        last_separator = at + length - 1 if ends[at] == separator else last_separator
        inside = last_separator < at
        anchor = least[at]
        new = (anchor != before) | (not was_inside)
        enters = entering[at] == anchor
        changes[found, 0] = 2 * (start + at) + inside
        changes[found, 1] = np.int64(anchor)
        found += (inside & (new | (enters & (not again)))) | (inside != was_inside)
        again = (enters | again) & (not new)
        was_inside = inside
        before = anchor
    carried[0], carried[1], carried[2], carried[3] = last_separator - ends.size, was_inside, np.int64(before), again
    return found


@allocating
def list_anchors(windows: HashedWindows, start: int, stop: int, changes: Longs) -> tuple[int, int]:
    """List the anchor changes among windows from ``start`` to ``stop``, not among the last ``length - 1`` tokens.

    ``changes``, int64 (n, 2), n at least CHUNK + 1, gets twice a window's place, plus 1 if it is inside a document, and
    the bits of its anchor's hash. An anchor that holds when the next call begins is listed once more. Returns the first
    window not processed, which is ``stop`` unless ``changes`` is full, and the number of rows written.
    """
    at, length, width = start, windows.length, windows.length - windows.gram + 1
    sums, hashes = np.empty(CHUNK + 2 * length, np.uint64), np.empty(CHUNK + 2 * length, np.uint64)
    here, there = np.empty(CHUNK + 2 * length, np.uint64), np.empty(CHUNK + 2 * length, np.uint64)
    carried, written = np.array([-1, 0, 0, 0]), 0
    for ahead in range(length - 1):
        if windows.tokens[at + ahead] == windows.separator:
            carried[0] = ahead
    while at < stop and written + CHUNK + 1 <= len(changes):
        count = min(CHUNK, stop - at)
        hash_windows(windows, at, count + width - 1, windows.gram, sums, hashes)
        least = _least_of_each(hashes, count, width, here, there)
        last = at + length - 1
        ends, entering = windows.tokens[last : last + count], hashes[width - 1 : width - 1 + count]
        written += _changes(ends, entering, least, windows.separator, length, at, carried, changes[written:])
        at += count
    return at, written


@compiled
def _to_cells(changes: Longs, share: tuple[int, int, int], cells: Wide, counts_here: Wide) -> None:
    """Write the cell of each anchor, and 1 if it belongs to the part and its window is inside a document, or else 0."""
    for row in range(len(changes)):
        mixed = _U(changes[row, 1])
        mixed = (mixed ^ (mixed >> _U(29))) * _ANCHOR_MIX
        mixed ^= mixed >> _HALF
        scaled = (mixed >> _HALF) * _U(share[1])
        counts_here[row] = _U((scaled >> _HALF == _U(share[0])) & (changes[row, 0] & 1 != 0))
        # The cell follows from the rest of the upper half within the part, and from the lower half.
        cells[row] = ((scaled & _LOW) ^ (mixed & _LOW)) * _U(share[2]) >> _HALF


@allocating
def count_anchors(changes: Longs, share: tuple[int, int, int], counts: Wide) -> None:
    """Count, up to two, the anchors of the part of ``share``, (part, parts, cells), in two bits per cell."""
    cells, counts_here = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    for first in range(0, len(changes), CHUNK):
        chunk = changes[first : first + CHUNK]
        _to_cells(chunk, share, cells, counts_here)
        # As a loop of its own, this does not wait for one count before it fetches the next.
        for row in range(len(chunk)):
            word, shift = counts[cells[row] >> _U(5)], (cells[row] & _U(31)) * _U(2)
            seen = _U(1) | ((word >> shift & _U(1)) << _U(1))
            counts[cells[row] >> _U(5)] = word | (seen << shift) * counts_here[row]


@allocating
def find_runs(changes: Longs, share: tuple[int, int, int], counts: Wide, opened: int, runs: Longs) -> tuple[int, int]:
    """List runs of windows whose anchors were counted twice as [first, stop) in ``runs``; return how many.

    ``opened`` is the first window of a run that continues from an earlier call, or -1, and returned for the next.
    """
    written = 0
    cells, counts_here = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    for first in range(0, len(changes), CHUNK):
        chunk = changes[first : first + CHUNK]
        _to_cells(chunk, share, cells, counts_here)
        for row in range(len(chunk)):
            cells[row] = counts[cells[row] >> _U(5)] >> ((cells[row] & _U(31)) * _U(2) + _U(1)) & counts_here[row]
        for row in range(len(chunk)):
            repeats = cells[row] != _U(0)
            if repeats and opened < 0:
                opened = chunk[row, 0] >> 1
            elif opened >= 0 and not repeats:
                runs[written, 0], runs[written, 1] = opened, chunk[row, 0] >> 1
                written += 1
                opened = -1
    return opened, written


@forced_inline
def _common(tokens: Tokens, separator: Any, earlier: int, later: int, longest: int) -> int:
    """Count the equal tokens from two places on, up to the end of either's document and at most ``longest``."""
    same = 0
    while same < longest and tokens[later + same] == tokens[earlier + same] and tokens[later + same] != separator:
        same += 1
    return same


@forced_inline
def _meet(
    windows: HashedWindows, place: int, mixed: np.uint64, table: Wide, room: tuple[int, int, int], state: Longs
) -> tuple[int, int]:
    """Find an earlier window with the same tokens; return its place and how many are equal, 0 if it is entered now."""
    tag = mixed >> _HALF & _TAG
    slot, size = (mixed & _LOW) * _U(table.size) >> _HALF, _U(table.size)
    while table[slot] != _U(0):
        entry = table[slot]
        if entry >> _PLACE_BITS == tag:
            earlier = np.int64(entry & _PLACE) - 1
            same = _common(windows.tokens, windows.separator, earlier, place, room[1])
            state[MAPPED] += 2 * same * windows.tokens.itemsize
            if abs(earlier - state[NEAR]) * windows.tokens.itemsize >= PAGE:
                state[MAPPED] += 3 * PAGE
                state[NEAR] = earlier
            if same >= windows.length:
                return earlier, same
        slot += _U(1)
        if slot == size:
            slot = _U(0)
    if state[USED] < room[0]:
        table[slot] = tag << _PLACE_BITS | _U(place + 1)
        state[USED] += 1
    elif state[UNSEEN] < 0:
        state[UNSEEN] = place
    return 0, 0


@allocating
def match_windows(
    windows: HashedWindows,
    runs: Longs,
    share: tuple[int, int],
    hash_mask: np.uint64,
    table: Wide,
    room: tuple[int, int, int],
    state: Longs,
    spans: Longs,
) -> None:
    """Look up the windows of ``runs`` that belong to a part, and write every stretch of tokens shared by two places.

    An entry of ``table`` is 24 bits of a window's hash and 40 of the first place of its tokens plus 1; 0 is empty.
    Tokens are also compared beyond the window's end: windows inside the common stretch are known to repeat and are
    skipped.

    ``runs``, shape (runs, 2), are windows [first, stop) in increasing order; ``share`` is (part, parts); ``room`` the
    windows that the table may hold, tokens compared at once, and bytes of tokens to touch before returning; ``state``
    see ``RUN``; and ``spans``, shape (n, 3), n at least 2, gets [start, stop) in tokens, and the start of the other
    stretch.
    """
    length = windows.length
    sums, hashes = np.empty(SMALL_CHUNK + 2 * length, np.uint64), np.empty(SMALL_CHUNK + 2 * length, np.uint64)
    part, parts = _U(share[0]), _U(share[1])
    state[FOUND] = state[MAPPED] = 0
    state[NEAR] = -PAGE
    reached = np.int64(-1)
    while state[RUN] < len(runs):
        at, stop = max(runs[state[RUN], 0], state[START], state[SKIP]), runs[state[RUN], 1]
        while at < stop:
            count, step = min(SMALL_CHUNK, stop - at), 0
            hash_windows(windows, at, count, length, sums, hashes)
            # The gap to the last run counts as touched, since it may share pages with it.
            state[MAPPED] += (at + count - (reached if reached >= 0 else at)) * windows.tokens.itemsize
            reached = at + count
            while step < count:
                if state[FOUND] + 2 > len(spans) or state[MAPPED] >= room[2]:
                    state[START] = at + step
                    return
                mixed = (hashes[step] ^ (hashes[step] >> _HALF)) & hash_mask
                step += 1
                if (mixed >> _HALF) * parts >> _HALF != part:
                    continue
                place = at + step - 1
                earlier, same = _meet(windows, place, mixed, table, room, state)
                if same > 0:
                    found = state[FOUND]
                    spans[found, 0], spans[found, 1], spans[found, 2] = earlier, earlier + same, place
                    spans[found + 1, 0], spans[found + 1, 1], spans[found + 1, 2] = place, place + same, earlier
                    state[FOUND] = found + 2
                    state[SKIP] = place + same - length + 1
                    step += same - length
            at = max(at + count, state[SKIP])
        state[RUN] += 1


@allocating
def sample_hashes(
    windows: HashedWindows,
    runs: Longs,
    hash_mask: np.uint64,
    sampled: np.uint64,
    mappable: int,
    state: Longs,
    hashes: Wide,
) -> None:
    """Write the hashes of windows of ``runs`` that have none of the bits ``sampled``, until ``hashes`` is full."""
    sums, chunk = np.empty(CHUNK + 2 * windows.length, np.uint64), np.empty(CHUNK + 2 * windows.length, np.uint64)
    mapped = 0
    while state[RUN] < len(runs):
        at, stop = max(runs[state[RUN], 0], state[START]), runs[state[RUN], 1]
        mapped += (at - state[START]) * windows.tokens.itemsize if mapped > 0 else 0
        while at < stop:
            if mapped >= mappable or state[FOUND] + SMALL_CHUNK > len(hashes):
                state[START] = at
                return
            count = min(SMALL_CHUNK, stop - at)
            hash_windows(windows, at, count, windows.length, sums, chunk)
            for place in range(count):
                mixed = (chunk[place] ^ (chunk[place] >> _HALF)) & hash_mask
                hashes[state[FOUND]] = mixed
                state[FOUND] += mixed & sampled == _U(0)
            at += count
            mapped += count * windows.tokens.itemsize
        state[START] = at
        state[RUN] += 1


@compiled
def join(spans: Longs) -> int:
    """Join, in place, stretches that overlap or touch and are sorted by start; return how many are left."""
    kept, linked = 0, spans.shape[1] > 2
    for row in range(len(spans)):
        if kept > 0 and spans[row, 0] <= spans[kept - 1, 1]:
            spans[kept - 1, 1] = max(spans[kept - 1, 1], spans[row, 1])
            if linked and spans[row, 0] == spans[kept - 1, 0]:
                spans[kept - 1, 2] = min(spans[kept - 1, 2], spans[row, 2])
        else:
            spans[kept, 0], spans[kept, 1] = spans[row, 0], spans[row, 1]
            if linked:
                spans[kept, 2] = spans[row, 2]
            kept += 1
    return kept


STRETCH = 1 << 18
ROWS = 1 << 24


@dataclass(frozen=True)
class Segments:
    """Runs of consecutive windows with one anchor each, in a stretch of tokens."""

    windows: HashedWindows
    place: int
    firsts: Longs
    stops: Longs
    keys: Wide

    def take(self, chosen: npt.NDArray[Any]) -> "Segments":
        """Return some of the segments."""
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
        size = _row_tokens(self.windows)
        tokens = np.lib.stride_tricks.sliding_window_view(self.windows.tokens, size)[firsts]
        stops = np.broadcast_to(counts + self.windows.length - 1, len(firsts))
        tokens[np.arange(size) >= stops[:, None]] = self.windows.separator
        rows = pa.FixedSizeListArray.from_arrays(pa.array(tokens.ravel()), size)
        return pa.table({"hash": hashes, "place": self.place + firsts, "tokens": rows})


def read_segments(tables: Iterable[pa.Table], place: int, length: int) -> Iterator[Segments]:
    """Yield all windows of ``length`` tokens of the column ``tokens``, as segments; ``place`` is of the first token."""
    made, changes = list[HashedWindows](), np.empty((16 * CHUNK, 2), np.int64)
    for table in tables:
        for values, offsets in token_lists(table["tokens"]):
            tokens = separated(values, offsets)
            if not made:
                made.append(make_windows(tokens, TokenStore(tokens, offsets).separator, length))
            filled = np.append(tokens, np.repeat(made[0].separator, _row_tokens(made[0])))
            windows = made[0]._replace(tokens=TokenStore(filled, offsets).tokens)
            at, end, most = 0, len(tokens) - length + 1, min(STRETCH, ROWS // _row_tokens(windows) or 1)
            while at < end:
                at, found = list_anchors(windows, at, min(at + most, end), changes)
                yield _cut_segments(windows, place, changes[:found], at)
            place += len(tokens)


def _cut_segments(windows: HashedWindows, place: int, changes: Longs, stop: int) -> Segments:
    """Convert rows of ``list_anchors`` to segments, each with at most as many windows as can share one gram."""
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
    """Mix numbers so that each bit of the result depends on all bits; the least of many hashes is a small number."""
    mixed = (values ^ (values >> np.uint64(29))) * _ANCHOR_MIX
    return mixed ^ (mixed >> np.uint64(32))


def numbers_from(firsts: Longs, counts: Longs) -> Longs:
    """Return consecutive numbers from each first on, as many as its count."""
    ends = np.cumsum(counts)
    numbers: Longs = np.arange(ends[-1] if len(ends) else 0) + np.repeat(firsts - (ends - counts), counts)
    return numbers


def _row_tokens(windows: HashedWindows) -> int:
    """Return the tokens in a row: those of the longest segment, whose windows all share one gram, and a separator."""
    return 2 * windows.length - windows.gram + 1


def tokens_of(rows: pa.Table) -> npt.NDArray[Any]:
    """Return the tokens of rows as a two-dimensional array."""
    tokens: npt.NDArray[Any] = pa.concat_arrays(rows["tokens"].chunks).flatten().to_numpy()
    return tokens.reshape(rows.num_rows, -1)


def _hash_windows(windows: HashedWindows, first: int, last: int) -> Wide:
    hashes, sums = np.empty(last + 1 - first, np.uint64), np.empty(CHUNK + 2 * windows.length, np.uint64)
    for at in range(0, len(hashes), CHUNK):
        here = hashes[at : at + CHUNK]
        hash_windows(windows, first + at, len(here), windows.length, sums, here)
    return hashes


def first_of_kind(batch: pa.Table) -> Longs:
    """Return for each window the first with its tokens; a later one if another with the same hash is between them."""
    tokens, hashes = tokens_of(batch), batch["hash"].to_numpy()
    order = np.argsort(hashes, kind="stable")
    near = 1 + np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    firsts = np.arange(len(order))
    firsts[near[(tokens[order[near]] == tokens[order[near - 1]]).all(axis=1)]] = 0
    found = np.empty_like(order)
    found[order] = order[np.maximum.accumulate(firsts)]
    return found


ALL_BITS = (1 << 64) - 1

_CELLS = 32
"""Cells per anchor, if there is room: with 32, one anchor in 32 is taken for a repeated one."""
_FEWEST_CELLS = 16
_MOST_CELLS = 1 << 32
_LOAD = 0.75
"""Share of the table that should be filled, according to the estimated number of windows."""
_FULL = 0.9
_SAMPLE = 1 << 16
"""Windows from which the number of distinct windows is estimated, to 0.4 %."""
_FEW = 64
_LINKED = 3
_NUMBER = 8
_LEAST_BLOCK = 512


class RangeWriter:
    """Writer that appends pieces to a file of ranges."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.counts: list[int] = []

    def add(self, ranges: Longs) -> None:
        """Append a piece: ranges sorted by start."""
        self.counts.append(0)
        self.extend(ranges)

    def extend(self, ranges: Longs) -> None:
        """Continue the last piece with ranges that start after it."""
        self.counts = self.counts or [0]
        self._file.write(np.ascontiguousarray(ranges, "<i8").data)
        self.counts[-1] += len(ranges)


@dataclass(frozen=True)
class RangeFile:
    """File of ranges [start, stop), two or three little-endian int64, in pieces sorted by start, with a JSON marker."""

    path: Path
    columns: int = 2

    @property
    def finished(self) -> bool:
        """Whether all pieces are written."""
        return Marker.whole(self._index) is not None

    @property
    def pieces(self) -> list[int]:
        """Number of ranges in each piece."""
        return list(Marker.open(self._index).content["pieces"])

    def read(self, first: int, count: int) -> Longs:
        """Read ranges ``first`` … ``first + count - 1``, shape (count, columns)."""
        stored = np.fromfile(self.path, "<i8", self.columns * count, offset=first * self.columns * _NUMBER)
        return stored.reshape(-1, self.columns)

    def blocks(self, memory: int) -> Iterator[Longs]:
        """Return all ranges in the order in which they were written, ``memory`` bytes of them at a time."""
        count, rows = sum(self.pieces), max(memory // (self.columns * _NUMBER), 1)
        return (self.read(first, min(rows, count - first)) for first in range(0, count, rows))

    @property
    def _index(self) -> Path:
        return self.path.with_suffix(".json")

    @contextmanager
    def write(self) -> Iterator[RangeWriter]:
        """Open a writer for the file, which is finished when the block ends without an error."""
        with whole_file(self.path) as beside, beside.open("wb") as file:
            writer = RangeWriter(file)
            yield writer
        Marker(self._index, {"pieces": writer.counts}, Marker.entries(self._index, [self.path])).write()


def join_sorted(ranges: Longs) -> Longs:
    """Sort ranges by start and join those that overlap or touch."""
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    return ranges[: join(ranges)]


def merge_ranges(files: Sequence[RangeFile], memory: int) -> Iterator[Longs]:
    """Yield the ranges of all pieces of all files in increasing order, joined, with about ``memory`` bytes at once."""
    firsts = [(file, zip(accumulate(file.pieces, initial=0), file.pieces, strict=False)) for file in files]
    pieces = [_Piece(file, first, count) for file, counted in firsts for first, count in counted]
    columns = max((file.columns for file in files), default=2)
    rows = max(memory // (6 * columns * _NUMBER * max(len(pieces), 1)), _LEAST_BLOCK)
    last = np.empty((0, columns), np.int64)
    while pieces:
        for piece in pieces:
            piece.fill(rows)
        # An unfinished piece may have more ranges, which start after the last one read.
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
        wanted = min(rows - len(self.held), self.unread)
        if wanted > 0:
            self.held = np.concatenate([self.held, self._file.read(self._first, wanted)])
            self._first += wanted
            self.unread -= wanted

    def take(self, safe: np.int64 | None) -> Longs:
        count = len(self.held) if safe is None else int(np.searchsorted(self.held[:, 0], safe, "right"))
        taken, self.held = self.held[:count], self.held[count:]
        return taken


def find_repeats(
    store: TokenStore, min_tokens: int, memory: int, folder: Path, hash_mask: int = ALL_BITS
) -> Iterator[Longs]:
    """Return, in increasing order, the maximal ranges of tokens covered by windows that occur at least twice.

    The search holds ``memory`` bytes and 8 per document; ``folder``, only of these documents and settings, keeps
    finished passes. ``hash_mask`` has the bits of the hashes that are used. Each range, int64 (n, 3), is [start, stop)
    in tokens of the store, never across a separator, and the first other place of the window at the start.
    """
    _check_same_search(store, min_tokens, memory, folder)
    if len(store.tokens) < min_tokens:
        return iter(())
    windows = make_windows(store.tokens, store.separator, min_tokens)
    search = _Search(store, windows, memory, folder, np.uint64(hash_mask))
    return merge_ranges(search.match(search.scan()), memory // 4)


def find_among(store: TokenStore, runs: Longs, min_tokens: int) -> Longs:
    """Return the ranges of :func:`find_repeats` for ``runs``, windows [first, stop) that fit into a table."""
    rows = int((runs[:, 1] - runs[:, 0]).sum() / _LOAD) + _FEW
    table, state, found = np.zeros(rows, np.uint64), np.zeros(STATE, np.int64), list[Longs]()
    buffer = _Buffer(1 << 16, found.append)
    windows = make_windows(store.tokens, store.separator, min_tokens)
    room = (int(_FULL * rows), len(store.tokens), int(np.iinfo(np.int64).max))
    state[UNSEEN] = -1
    while state[RUN] < len(runs):
        match_windows(windows, runs, (0, 1), np.uint64(ALL_BITS), table, room, state, buffer.free)
        buffer.took(int(state[FOUND]))
    buffer.flush()
    return join_sorted(np.concatenate([np.empty((0, _LINKED), np.int64), *found]))


def _check_same_search(store: TokenStore, min_tokens: int, memory: int, folder: Path) -> None:
    here = {"columns": _LINKED, "documents": len(store.bounds) - 1, "tokens": len(store.tokens)}
    here |= {"min_tokens": min_tokens, "memory": memory}
    plan = folder / "passes.json"
    begun = Marker.whole(plan)
    if begun is None:
        for marker in folder.glob("*-*.json"):  # markers of passes, perhaps with other settings
            marker.unlink()
        (folder / "anchors.json").unlink(missing_ok=True)
        Marker(plan, here, {}).write()
    elif begun.content != here:
        raise StageError(
            f"{folder} holds passes of a different search ({begun.content}, not {here}): remove it, or choose "
            "another folder"
        )


@dataclass(frozen=True)
class _Search:
    store: TokenStore
    windows: HashedWindows
    memory: int
    folder: Path
    hash_mask: np.uint64

    def scan(self) -> list[RangeFile]:
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
        changes = np.empty((16 * CHUNK, 2), np.int64)
        windows = len(self.store.tokens) - self.windows.length + 1
        step = windows if self._fits else max(self.memory // 8 // self.store.tokens.itemsize, 1)
        with file.write() as writer:
            for start in range(0, windows, step):
                at, stop = start, min(start + step, windows)
                while at < stop:
                    at, found = list_anchors(self.windows, at, stop, changes)
                    writer.extend(changes[:found])
                self._release()

    def _find_runs(self, share: tuple[int, int, int], anchors: RangeFile, file: RangeFile) -> None:
        counts = np.zeros(share[2] // 32 + 1, np.uint64)
        for changes in anchors.blocks(min(self.memory // 8, 1 << 20)):
            count_anchors(changes, share, counts)
        opened = -1
        with file.write() as writer:
            for changes in anchors.blocks(min(self.memory // 8, 1 << 20)):
                runs = np.empty((len(changes) // 2 + 1, 2), np.int64)
                opened, found = find_runs(changes, share, counts, opened, runs)
                writer.extend(runs[:found])
            if opened >= 0:
                writer.extend(np.array([[opened, len(self.store.tokens) - self.windows.length + 1]]))

    def match(self, runs: list[RangeFile]) -> list[RangeFile]:
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
        """Estimate the number of distinct windows in the runs, from those with a hash that ends in zeros."""
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
                    return windows  # hashes that are far from random allow no estimate
        return every * len(np.unique(hashes[: state[FOUND]]))

    def _match_part(self, share: tuple[int, int], table: Wide, runs: list[RangeFile], writer: RangeWriter) -> None:
        """Look up the windows of a part; if the table is full, start again with the first window not entered."""
        buffer = _Buffer(max(self.memory // 384, 4), writer.add)
        first = 0
        while first >= 0:
            table[:] = 0
            state = np.zeros(STATE, np.int64)
            state[START], state[UNSEEN] = first, -1
            for block in merge_ranges(runs, self.memory // 16):
                self._match_block(share, table, block, state, buffer)
            first = int(state[UNSEEN])
        buffer.flush()

    def _match_block(self, share: tuple[int, int], table: Wide, runs: Longs, state: Longs, buffer: "_Buffer") -> None:
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
    shown: Iterable[RangeFile] = progress_bar(files, desc=what, unit="pass", disable=len(files) == 1)
    return shown


class _Buffer:
    """Buffer of unsorted ranges, which are sorted and joined whenever it is full."""

    def __init__(self, rows: int, add: Callable[[Longs], None]) -> None:
        self._rows = np.empty((rows, _LINKED), np.int64)
        self._used = 0
        self._add = add

    @property
    def free(self) -> Longs:
        return self._rows[self._used :]

    def took(self, count: int) -> None:
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
        self._add(join_sorted(self._rows[: self._used]))
        self._used = 0
