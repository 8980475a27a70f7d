"""Repeated passages among many tasks: what :mod:`longcrawl.dedup._repeats` finds with all tokens in one store.

Equal windows have equal anchors. So the windows of an anchor meet in one partition, which looks them up as one process
does with all. Windows in a row share an anchor: they are sent as one *segment* of tokens, not one by one. The *place*
of a token is the number of its group and, in the lower 40 bits, its number in the group: places have the order of all
tokens in one store.

========  ======================  ======================================  =============================================
step      tasks > partitions      rows that meet                          a partition becomes
========  ======================  ======================================  =============================================
anchors   G > G, by anchor        32 bits of each anchor of each group    anchors that occur twice or more, with groups
repeated  G > G, by group         these                                   the repeated anchors of a group
windows   G > pieces, by anchor   segments of repeated anchors            ranges of tokens that occur twice or more
spans     pieces > G, by group    these                                   the spans of a group
places    G > G, by place         spans, and the other place of each one  the spans at these other places
linked    G > G, by group         these                                   ``SPAN_SCHEMA`` of a group
========  ======================  ======================================  =============================================

A frequent anchor would make its partition large, by windows in which only the anchor repeats. Its windows are sent one
by one, by their own hash, equal ones of 64 MiB once: what stands in every document is a few rows of each group.

A task holds up to 10 bytes for each token of its group, and some 400 MB (``benchmarks/passages.py``): tokens are read
table by table, and sent by 64 MiB. A piece is as large as its segments are, which are counted by the first step.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import SPAN_SCHEMA
from longcrawl.core.sketched import Decided, Sketched, cut, key_ranges
from longcrawl.dedup import _substring_kernels as kernels
from longcrawl.dedup._repeats import find_among, join_sorted
from longcrawl.dedup._segments import Segments, first_of_kind, mix, numbers_from, read_segments, tokens_of
from longcrawl.dedup._token_store import TokenStore
from longcrawl.engines.base import Engine, Exchange

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]
Tables = Iterator[pa.Table]
Rows = Iterator[tuple[int, pa.Table]]

GROUP = 40
"""Bits of a place that number the tokens of a group."""
BLOCK = 16
"""Bits of a place that do not decide where spans and other places meet."""
SENT = 64 << 20
"""Bytes of rows that are cut into partitions together."""
PIECE = 1 << 25
"""Tokens that are sent to one partition of the step "windows"."""
FREQUENT = 1 << 15
"""Segments of an anchor, of all groups, beyond which its windows are sent one by one."""
MOST = (1 << 16) - 1
"""Segments of an anchor that are counted in what a group sends."""
CELLS = 8
"""Bytes for each repeated anchor of a table that passes over most of the others."""

REPEATED = pa.schema([("key", pa.uint64()), ("frequent", pa.bool_())])
ANCHORS = pa.schema([("group", pa.int64()), *REPEATED, ("count", pa.uint16())])
RANGES = pa.schema([("start", pa.int64()), ("stop", pa.int64()), ("other", pa.int64())])
FOUND = pa.schema([("group", pa.int64()), *RANGES])
SPANS = pa.schema([*list(SPAN_SCHEMA)[:4], ("place", pa.int64()), ("other", pa.int64())])
KNOWN = pa.schema([("place", pa.int64()), ("id", pa.string()), ("span", pa.int64())])
ASKED = pa.schema([("place", pa.int64()), ("group", pa.int64())])
LINKS = pa.schema([("place", pa.int64()), *list(SPAN_SCHEMA)[4:]])
ANSWERS = pa.schema([("group", pa.int64()), *LINKS])

_GROUP = b"group"
_LOW = np.uint64((1 << 32) - 1)
_HALF = np.uint64(32)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def exchange_spans(min_tokens: int, sketched: Sketched, engine: Engine) -> Decided:
    """Find the spans of all documents, and another one for each, as :meth:`longcrawl.dedup.ExactSubstring.find` does.

    Args:
        min_tokens: tokens in a window, 1 or more.
        sketched: see :meth:`longcrawl.dedup.ExactSubstring.sketch`.
        engine: what carries it out.
    """
    search, groups, place = _Search(min_tokens, sketched), sketched.groups, sketched.place
    anchors = Exchange(search.make_anchors, _take_anchors, groups, place("anchors"))
    engine.exchange(anchors, range(groups))
    repeated = Exchange(partial(_to_groups, anchors, REPEATED.names), _take_repeated, groups, place("repeated"))
    engine.exchange(repeated, range(groups))
    pieces = -(-sum(engine.tasks(partial(search.count_sent, anchors), range(groups))) // PIECE) or 1
    make = partial(search.make_windows, repeated, pieces)
    windows = Exchange(make, partial(_take_windows, min_tokens), pieces, place("windows"))
    engine.exchange(windows, range(groups))
    take = partial(search.take_spans, repeated)
    spans = Exchange(partial(_to_groups, windows, RANGES.names), take, groups, place("spans"))
    engine.exchange(spans, range(pieces))
    places = Exchange(partial(_make_places, spans, groups), _take_places, groups, place("places"))
    engine.exchange(places, range(groups))
    linked = Exchange(partial(_to_groups, places, LINKS.names), partial(_take_linked, spans), groups, place("linked"))
    engine.exchange(linked, range(groups))
    return Decided(linked.read)


@dataclass(frozen=True)
class _Search:
    """What a task needs to look at the tokens of a group."""

    length: int
    sketched: Sketched

    def segments(self, group: int) -> Iterator[Segments]:
        """Return the windows of a group."""
        return read_segments(self.sketched.read(group, ["tokens"]), group << GROUP, self.length)

    def make_anchors(self, group: int) -> Rows:
        """Send the anchors of a group, each with the number of its segments."""
        for batch in _batches(pa.table({"hash": segments.keys}) for segments in self.segments(group)):
            keys = np.sort(batch["hash"].to_numpy())
            firsts = _firsts_of_equal(keys)
            once, counts = keys[firsts], np.minimum(np.diff(firsts, append=len(keys)), MOST)
            rows = pa.table({"key": (once & _LOW).astype(np.uint32), "count": counts.astype(np.uint16)})
            numbered = rows.replace_schema_metadata({_GROUP: str(group)})
            yield from cut(numbered, key_ranges(once, self.sketched.groups))

    def count_sent(self, anchors: Exchange, partition: int) -> int:
        """Return how many tokens are sent at most for the repeated anchors of a partition."""
        found, windows = anchors.read(partition), kernels.make_windows(np.empty(0, np.uint8), np.uint8(0), self.length)
        width = self.length - windows.gram + 1
        each = np.where(found["frequent"].to_numpy(), width * self.length, width + self.length - 1)
        return int((found["count"].to_numpy().astype(np.int64) * each).sum())

    def make_windows(self, repeated: Exchange, partitions: int, group: int) -> Rows:
        """Send the segments of repeated anchors; of frequent ones the windows, one by one."""
        segments, single = _Batch(), _Batch()
        for rare, frequent in self._repeated(repeated.read(group), group):
            for batch in segments.add(rare.rows()):
                yield from _cut_tokens(batch, partitions)
            for batch in single.add(frequent.single()):
                yield from _cut_tokens(batch.take(np.unique(first_of_kind(batch))), partitions)
        for batch in segments.release():
            yield from _cut_tokens(batch, partitions)
        for batch in single.release():
            yield from _cut_tokens(batch.take(np.unique(first_of_kind(batch))), partitions)

    def take_spans(self, repeated: Exchange, group: int, tables: Tables) -> pa.Table:
        """Join the ranges of a group to the spans of its documents (``SPANS``)."""
        rows = pa.concat_tables([RANGES.empty_table(), *tables])
        ranges = np.stack([rows[name].to_numpy() for name in RANGES.names], axis=1)
        ranges = ranges[np.argsort(ranges[:, 0])]
        copies = list(self._copies(repeated.read(group), group, ranges))
        joined = join_sorted(np.concatenate([ranges, *copies]) if copies else ranges)
        found, number, place = [SPANS.empty_table()], int(self.sketched.starts[group]), group << GROUP
        for table in self.sketched.read(group):
            lengths = pc.fill_null(pc.list_value_length(table["tokens"]), 0).to_numpy()
            bounds = place + np.cumsum([0, *(lengths + 1)])
            here = joined[slice(*np.searchsorted(joined[:, 0], bounds[[0, -1]]))]
            documents = np.searchsorted(bounds, here[:, 0], "right") - 1
            starts, ends = (here[:, :2] - bounds[documents, None]).T
            ids = pc.cast(table["id"].take(documents), pa.string())
            found.append(pa.table([number + documents, ids, starts, ends, here[:, 0], here[:, 2]], schema=SPANS))
            number, place = number + table.num_rows, int(bounds[-1])
        return pa.concat_tables(found).combine_chunks()

    def _copies(self, repeated: pa.Table, group: int, ranges: Longs) -> Iterator[Longs]:
        """Return the ranges of windows of frequent anchors of which only the first was sent, and of this first."""
        if not pc.any(repeated["frequent"]).as_py():
            return
        for batch in _batches(frequent.single() for _, frequent in self._repeated(repeated, group)):
            yield self._linked(batch, ranges)

    def _linked(self, batch: pa.Table, ranges: Longs) -> Longs:
        places, first = batch["place"].to_numpy(), first_of_kind(batch)
        copies = np.flatnonzero(first != np.arange(len(first)))
        heads, seconds = np.unique(first[copies], return_index=True)
        one, other = places[np.concatenate([heads, copies])], places[np.concatenate([copies[seconds], first[copies]])]
        if len(ranges):  # the first, which was sent, may have met an equal one of another group, or of another batch
            at = np.minimum(np.searchsorted(ranges[:, 0], other), len(ranges) - 1)
            other = np.where(ranges[at, 0] == other, np.minimum(ranges[at, 2], other), other)
        return join_sorted(np.stack([one, one + self.length, other], axis=1))

    def _repeated(self, repeated: pa.Table, group: int) -> Iterator[tuple[Segments, Segments]]:
        """Return the segments whose anchors are repeated: those of rare anchors, and those of frequent ones."""
        keys, frequent = (repeated[name].to_numpy() for name in REPEATED.names)
        table = _KeyTable(keys)
        for segments in self.segments(group):
            at = table.find(_whole_keys(segments.keys, self.sketched.groups))
            known = np.flatnonzero(at >= 0)
            often = frequent[at[known]]
            yield segments.take(known[~often]), segments.take(known[often])


def _whole_keys(keys: Wide, partitions: int) -> Wide:
    """Return anchors as the step "anchors" knows them: the partition, and 32 bits that it does not follow from."""
    return key_ranges(keys, partitions).astype(np.uint64) << _HALF | keys & _LOW


def _firsts_of_equal(values: npt.NDArray[Any]) -> Longs:
    """Return where sorted values differ from the one before."""
    return np.flatnonzero(np.diff(values, prepend=~values[:1]) != 0)


def _cut_tokens(batch: pa.Table, partitions: int) -> Rows:
    return cut(batch.drop_columns(["hash"]), key_ranges(batch["hash"].to_numpy(), partitions))


@dataclass(frozen=True)
class _Batch:
    """Rows that wait until they are many."""

    tables: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> Tables:
        """Take rows, and return all that wait where they are many."""
        if table.num_rows:
            self.tables.append(table)
        if sum(each.nbytes for each in self.tables) > SENT:
            yield from self.release()

    def release(self) -> Tables:
        """Return all that wait as one table, if any do."""
        if self.tables:
            yield pa.concat_tables(self.tables)
            self.tables.clear()


def _batches(tables: Iterable[pa.Table]) -> Tables:
    batch = _Batch()
    for table in tables:
        yield from batch.add(table)
    yield from batch.release()


class _KeyTable:
    """Where keys are among some that are sorted."""

    def __init__(self, keys: Wide) -> None:
        self._keys = keys
        bits = max(CELLS * len(keys), 2).bit_length()
        self._shift, self._cells = np.uint64(64 - bits), np.zeros(1 << bits, bool)
        self._cells[self._cell(keys)] = True

    def find(self, keys: Wide) -> Longs:
        """Return the place of each key, or -1."""
        near = np.flatnonzero(self._cells[self._cell(keys)])
        near = near[np.argsort(keys[near])]  # a search is near the one before it
        at = np.searchsorted(self._keys, keys[near])
        known = at < len(self._keys)
        known[known] = self._keys[at[known]] == keys[near[known]]
        found = np.full(len(keys), -1)
        found[near[known]] = at[known]
        return found

    def _cell(self, keys: Wide) -> Wide:
        return keys * _SPREAD >> self._shift


def _to_groups(step: Exchange, columns: Sequence[str], partition: int) -> Rows:
    """Send columns of a finished partition to the groups that its rows belong to."""
    rows = step.read(partition)
    return cut(rows.select(columns), rows["group"].to_numpy())


def _take_anchors(partition: int, tables: Tables) -> pa.Table:
    """Return the anchors that have two segments or more (``ANCHORS``)."""
    found = sorted(tables, key=_group_of)
    if not found:
        return ANCHORS.empty_table()
    keys, counts = (pa.concat_tables(found)[name].to_numpy() for name in ("key", "count"))
    groups = np.repeat([*map(_group_of, found)], [table.num_rows for table in found])
    # Numbers are sorted faster than their order is found. Rows of one key stay in the order of groups.
    packed = keys.astype(np.uint64) << _HALF | np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    order = packed & _LOW
    firsts = _firsts_of_equal(packed >> _HALF)
    ends = np.append(firsts[1:], len(packed))[: len(firsts)]
    sums = np.concatenate([[0], np.cumsum(counts[order], dtype=np.int64)])
    totals = np.repeat(sums[ends] - sums[firsts], ends - firsts)
    chosen = totals > 1
    whole = packed[chosen] >> _HALF | np.uint64(partition) << _HALF
    columns = [groups[order[chosen]], whole, totals[chosen] > FREQUENT, counts[order[chosen]]]
    return pa.table(columns, schema=ANCHORS)


def _group_of(anchors: pa.Table) -> int:
    return int(anchors.schema.metadata[_GROUP])


def _take_repeated(_: int, tables: Tables) -> pa.Table:
    rows = pa.concat_tables([REPEATED.empty_table(), *tables])
    keys, places = np.unique(rows["key"].to_numpy(), return_index=True)
    return pa.table([keys, rows["frequent"].to_numpy()[places]], schema=REPEATED)


def _take_windows(length: int, _: int, tables: Tables) -> pa.Table:
    """Return the ranges of tokens of windows that occur twice or more, with the first other place of their start."""
    found = list(tables)
    if not found:
        return FOUND.empty_table()
    rows = pa.concat_tables(found)
    rows = rows.take(np.argsort(rows["place"].to_numpy()))
    places, tokens = rows["place"].to_numpy(), tokens_of(rows)
    bounds = tokens.shape[1] * np.arange(len(tokens) + 1)
    store = TokenStore(tokens.ravel(), bounds)
    counts = np.count_nonzero(tokens != store.separator, axis=1) - length + 1
    ranges = find_among(store, np.stack([bounds[:-1], bounds[:-1] + counts], axis=1), length)
    segments, inside = np.divmod(ranges, tokens.shape[1])
    starts, stops, others = (places[segments] + inside).T
    return pa.table([starts >> GROUP, starts, stops, others], schema=FOUND)


def _make_places(spans: Exchange, partitions: int, group: int) -> Rows:
    """Send the spans of a group to where places inside them are asked for, and the places to ask for."""
    rows = spans.read(group)
    documents, places = rows["document"].to_numpy(), rows["place"].to_numpy()
    firsts = _firsts_of_equal(documents)
    numbers = numbers_from(np.zeros_like(firsts), np.diff(firsts, append=len(documents)))
    blocks = places >> BLOCK
    counts = (places + rows["end"].to_numpy() - rows["start"].to_numpy() - 1 >> BLOCK) - blocks + 1
    known = pa.table([places, rows["id"], numbers], schema=KNOWN).take(np.repeat(np.arange(len(counts)), counts))
    yield from cut(known, _blocks(numbers_from(blocks, counts), partitions))
    others = np.unique(rows["other"].to_numpy())
    asked = pa.table([others, np.full(len(others), group)], schema=ASKED)
    yield from cut(asked, _blocks(others >> BLOCK, partitions))


def _blocks(blocks: Longs, partitions: int) -> Longs:
    return key_ranges(mix(blocks.view(np.uint64)), partitions)


def _take_places(_: int, tables: Tables) -> pa.Table:
    """Return the span in which each asked place lies (``ANSWERS``)."""
    found = list(tables)
    known = pa.concat_tables([KNOWN.empty_table(), *(table for table in found if table.schema.equals(KNOWN))])
    asked = pa.concat_tables([ASKED.empty_table(), *(table for table in found if table.schema.equals(ASKED))])
    known, asked = known.sort_by("place"), asked.sort_by([("group", "ascending"), ("place", "ascending")])
    at = np.searchsorted(known["place"].to_numpy(), asked["place"].to_numpy(), "right") - 1
    columns = [asked["group"], asked["place"], known["id"].take(at), known["span"].take(at)]
    return pa.table(columns, schema=ANSWERS).combine_chunks()


def _take_linked(spans: Exchange, group: int, tables: Tables) -> pa.Table:
    """Return the spans of a group with their other ones (``SPAN_SCHEMA``)."""
    rows = spans.read(group)
    answers = pa.concat_tables([LINKS.empty_table(), *tables]).sort_by("place")
    at = np.searchsorted(answers["place"].to_numpy(), rows["other"].to_numpy())
    columns = [*rows.columns[:4], answers["also_id"].take(at), answers["also_span"].take(at)]
    return pa.table(columns, schema=SPAN_SCHEMA).combine_chunks()
