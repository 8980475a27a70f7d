"""Exact-substring deduplication: long stretches of text that occur at least twice in the data.

Source: RefinedWeb, section G.3.2; K. Lee et al., "Deduplicating Training Data Makes Language Models Better", 2022.

``find`` exists in addition to ``exchange`` because it bounds its memory by ``memory``, and takes half the CPU time of
an exchange with one group.

Equal windows have equal anchors (:mod:`longcrawl.dedup.repeats`), so all windows of an anchor go to one partition. The
*place* of a token combines the number of its group and, in the lower 40 bits, its number in the group.

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

The windows of a frequent anchor are sent one by one, by their own hash, and equal ones within 64 MiB only once. A task
holds up to 10 bytes for each token of its group, and about 400 MB (``benchmarks/passages.py``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.counts import MASK
from longcrawl.core.exchange import Decided, Engine, Exchange, KeyTable, Sketched, cut, key_ranges
from longcrawl.core.places import SPAN_SCHEMA, Spans, list_by_document, make_places, no_places
from longcrawl.core.registry import Conditions
from longcrawl.core.stages import Check, Edited, SpanSurvey, column, document_ids, stage, with_column
from longcrawl.dedup import repeats
from longcrawl.dedup.index import Batch, batches, first_of_equal
from longcrawl.dedup.normalize import convert_spans, normalize, normalize_with_sources
from longcrawl.dedup.repeats import (
    Segments,
    TokenStore,
    find_among,
    find_repeats,
    first_of_kind,
    join_sorted,
    mix,
    numbers_from,
    read_segments,
    store_tokens,
    stored_ids,
    tokens_of,
)
from longcrawl.errors import StageError, TokenizerError
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.tokens.encoders import EncodedTexts, TokenizerStage, load_encoder

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]
Tables = Iterator[pa.Table]
Rows = Iterator[tuple[int, pa.Table]]

GROUP = 40
"""Bits of a place that number the tokens of a group."""
BLOCK = 16
"""Low bits of a place that are ignored when spans and other places are assigned to partitions."""
PIECE = 1 << 25
FREQUENT = 1 << 15
"""Number of segments of an anchor, in all groups, above which its windows are sent one by one."""
MOST = (1 << 16) - 1
"""Greatest count of an anchor's segments that a group sends; higher counts are clipped."""

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


def exchange_spans(min_tokens: int, sketched: Sketched, engine: Engine) -> Decided:
    """Find the spans of all documents, as :meth:`longcrawl.dedup.ExactSubstring.find` does, in many tasks."""
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
    length: int
    sketched: Sketched

    def segments(self, group: int) -> Iterator[Segments]:
        return read_segments(self.sketched.read(group, ["tokens"]), group << GROUP, self.length)

    def make_anchors(self, group: int) -> Rows:
        for batch in batches(pa.table({"hash": segments.keys}) for segments in self.segments(group)):
            keys = np.sort(batch["hash"].to_numpy())
            firsts = np.flatnonzero(first_of_equal(keys))
            once, counts = keys[firsts], np.minimum(np.diff(firsts, append=len(keys)), MOST)
            rows = pa.table({"key": (once & _LOW).astype(np.uint32), "count": counts.astype(np.uint16)})
            numbered = rows.replace_schema_metadata({_GROUP: str(group)})
            yield from cut(numbered, key_ranges(once, self.sketched.groups))

    def count_sent(self, anchors: Exchange, partition: int) -> int:
        """Return an upper bound of the tokens sent for the repeated anchors of a partition."""
        found, windows = anchors.read(partition), repeats.make_windows(np.empty(0, np.uint8), np.uint8(0), self.length)
        width = self.length - windows.gram + 1
        each = np.where(found["frequent"].to_numpy(), width * self.length, width + self.length - 1)
        return int((found["count"].to_numpy().astype(np.int64) * each).sum())

    def make_windows(self, repeated: Exchange, partitions: int, group: int) -> Rows:
        """Send the segments of repeated anchors, or the single windows of frequent ones."""
        segments, single = Batch(), Batch()
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
        """Return the ranges of frequent anchors' windows that were not sent because a copy was, and of that copy."""
        if not pc.any(repeated["frequent"]).as_py():
            return
        for batch in batches(frequent.single() for _, frequent in self._repeated(repeated, group)):
            places, first = batch["place"].to_numpy(), first_of_kind(batch)
            copies = np.flatnonzero(first != np.arange(len(first)))
            heads, seconds = np.unique(first[copies], return_index=True)
            one = places[np.concatenate([heads, copies])]
            other = places[np.concatenate([copies[seconds], first[copies]])]
            if len(ranges):  # the copy that was sent may equal a window of another group or batch
                at = np.minimum(np.searchsorted(ranges[:, 0], other), len(ranges) - 1)
                other = np.where(ranges[at, 0] == other, np.minimum(ranges[at, 2], other), other)
            yield join_sorted(np.stack([one, one + self.length, other], axis=1))

    def _repeated(self, repeated: pa.Table, group: int) -> Iterator[tuple[Segments, Segments]]:
        """Return the segments with repeated anchors: those of rare anchors, and those of frequent ones."""
        keys, frequent = (repeated[name].to_numpy() for name in REPEATED.names)
        table = KeyTable(keys)
        for segments in self.segments(group):
            # numbered as by the step "anchors": the partition, and 32 bits independent of it
            partitions = key_ranges(segments.keys, self.sketched.groups).astype(np.uint64)
            at = table.find(partitions << _HALF | segments.keys & _LOW)
            known = np.flatnonzero(at >= 0)
            often = frequent[at[known]]
            yield segments.take(known[~often]), segments.take(known[often])


def _cut_tokens(batch: pa.Table, partitions: int) -> Rows:
    return cut(batch.drop_columns(["hash"]), key_ranges(batch["hash"].to_numpy(), partitions))


def _to_groups(step: Exchange, columns: Sequence[str], partition: int) -> Rows:
    rows = step.read(partition)
    return cut(rows.select(columns), rows["group"].to_numpy())


def _take_anchors(partition: int, tables: Tables) -> pa.Table:
    found = sorted(tables, key=_group_of)
    if not found:
        return ANCHORS.empty_table()
    keys, counts = (pa.concat_tables(found)[name].to_numpy() for name in ("key", "count"))
    groups = np.repeat([*map(_group_of, found)], [table.num_rows for table in found])
    # Sorting packed numbers is faster than an argsort. Rows of one key keep the order of groups.
    packed = keys.astype(np.uint64) << _HALF | np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    order = packed & _LOW
    firsts = np.flatnonzero(first_of_equal(packed >> _HALF))
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
    """Return the ranges of tokens whose windows occur at least twice, with the first other place of each start."""
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
    """Send the spans of a group to the blocks of places that they cover, and the other places to look up."""
    rows = spans.read(group)
    documents, places = rows["document"].to_numpy(), rows["place"].to_numpy()
    firsts = np.flatnonzero(first_of_equal(documents))
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
    found = list(tables)
    known = pa.concat_tables([KNOWN.empty_table(), *(table for table in found if table.schema.equals(KNOWN))])
    asked = pa.concat_tables([ASKED.empty_table(), *(table for table in found if table.schema.equals(ASKED))])
    known, asked = known.sort_by("place"), asked.sort_by([("group", "ascending"), ("place", "ascending")])
    at = np.searchsorted(known["place"].to_numpy(), asked["place"].to_numpy(), "right") - 1
    columns = [asked["group"], asked["place"], known["id"].take(at), known["span"].take(at)]
    return pa.table(columns, schema=ANSWERS).combine_chunks()


def _take_linked(spans: Exchange, group: int, tables: Tables) -> pa.Table:
    rows = spans.read(group)
    answers = pa.concat_tables([LINKS.empty_table(), *tables]).sort_by("place")
    at = np.searchsorted(answers["place"].to_numpy(), rows["other"].to_numpy())
    columns = [*rows.columns[:4], answers["also_id"].take(at), answers["also_span"].take(at)]
    return pa.table(columns, schema=SPAN_SCHEMA).combine_chunks()


MASK_TYPE = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))
"""Type of the column ``masked``: sorted spans [start, end) in characters (code points) of the text."""

LEAST_MEMORY = 64 << 20
"""Least ``memory``, in bytes: a search with less would spend its time releasing mapped pages."""

UnitName = Literal["token", "character", "byte"]
UNITS = get_args(UnitName)


class Unit(Protocol):
    """Unit of comparison: maps texts to ids, equal for equal pieces of text, and spans of ids to spans of bytes."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the ids of large strings, none for null, as one unsigned type whose greatest number never occurs."""

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Return the UTF-8 bytes of sorted spans of ids, int64 [spans, 2], which may begin or end inside characters."""


@stage
class ExactSubstring(TokenizerStage, SpanSurvey):
    """Find every stretch of at least ``min_tokens`` tokens that occurs at least twice, in one document or in several.

    All copies count, and none is kept. Windows of ``min_tokens`` equal tokens are compared token by token; windows that
    overlap or touch become one span, and a span covers the whole characters inside its tokens. Documents without
    repeats are unchanged.

    The normal forms of the texts are compared, as in the paper: copies that differ in case, accents, punctuation, white
    space or invisible characters (soft hyphens, zero-width spaces) are also found, and each is cut or masked at its
    place in its own document. A span never begins or ends with white space or punctuation. A character that becomes
    several in the normal form, such as a Hangul syllable, is in the span only if all of them are repeated.

    ``policy`` decides what happens to documents with spans:

    * "cut": the spans are removed; a document is removed if fewer than ``min_characters`` characters remain;
    * "mask": the text is unchanged, and a column ``masked`` (list<struct<start, end>>, in characters; empty if nothing
      repeats) marks where no loss should be computed; a document is removed if fewer than ``min_characters`` characters
      are not masked;
    * "drop-partial": a document is removed if more than ``max_share`` of its characters are in spans;
    * "drop-any": a document is removed if it has a span.

    Args:
        min_tokens: tokens in a window, 1 or more; RefinedWeb uses 50.
        policy: "cut", "mask", "drop-partial" or "drop-any"; RefinedWeb cuts.
        unit: unit of comparison: "token" of ``tokenizer``, "character" or "byte".
        text: "normalised", see :mod:`longcrawl.dedup.normalize`, or "raw": unchanged texts, to the byte.
        tokenizer: a byte-level BPE by name, file or object; see :func:`longcrawl.tokens.encoders.load_encoder`.
        max_share: for "drop-partial": greatest share of characters in spans.
        min_characters: for "cut" and "mask": least number of characters that must remain.
        memory: bytes that the search of one process may take, 64 MiB or more. It makes as many passes as needed, each
            kept on disk until all are done; the result does not depend on their number. Not included are up to 40 bytes
            per document while ids are compared, later 8 in mapped files, the spans themselves and the current batch.

    >>> from datasets import Dataset
    >>> import longcrawl as lc
    >>> texts = ["Of Paris and of London. See also: all articles", "It was the best of times. SEE ALSO all articles"]
    >>> crawl = lc.Crawl(Dataset.from_dict({"id": ["a", "b"], "text": texts}))
    >>> (crawl | lc.dedup.ExactSubstring(20, unit="character")).data["text"][:]
    ['Of Paris and of London. ', 'It was the best of times. ']

    Raises:
        StageError: two documents have one id; an id or the column ``text`` is missing; or the documents are already
            masked: cutting or masking them again would lose the masks.
        TokenizerError: the tokenizer cannot be loaded.
    """

    min_tokens: int = 50
    policy: Literal["cut", "mask", "drop-partial", "drop-any"] = "cut"
    unit: UnitName = "token"
    text: Literal["normalised", "raw"] = "normalised"
    tokenizer: str = "gpt2"
    max_share: float = 0.2
    min_characters: int = 20
    memory: int = 1 << 30
    code_version: ClassVar[str] = "4"
    only_with: ClassVar[Conditions] = MappingProxyType(
        {"max_share": {"policy": ("drop-partial",)}, "min_characters": {"policy": ("cut", "mask")}}
    )
    copies_share = "passages"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(min_tokens=1, min_characters=0, memory=LEAST_MEMORY)
        if not 0 <= self.max_share <= 1:
            raise StageError(f"exact_substring.max_share must be a share from 0 to 1, got {self.max_share:g}")

    def prepare(self) -> None:
        """Load the tokenizer; StageError if its tokens cannot be mapped to bytes of a text."""
        self._unit()

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``tokens``, a large list of uint8, uint16 or uint32; a null text has none."""
        ids = document_ids(table, self.name)
        encoded = self._unit().encode(valid_texts(column(table, "text", self.name), self.name))
        lists = pa.LargeListArray.from_arrays(pa.array(encoded.offsets), pa.array(encoded.ids))
        return pa.table({"id": ids, "tokens": lists})

    def find(self, sketches: Iterable[pa.Table], directory: str) -> Spans:
        """Find the spans of all documents, in tokens; StageError for repeated ids, or the folder of another search."""
        folder = Path(directory)
        store = store_tokens(sketches, folder, self.name)
        found, links = [], []
        for ranges in find_repeats(store, self.min_tokens, self.memory, folder):
            found.append(store.documents_of(ranges))
            links.append(ranges[:, [0, 2]])
        if not found:
            return Spans(SPAN_SCHEMA.empty_table())
        documents, (starts, others) = np.concatenate([here for here, _ in found]), np.concatenate(links).T
        tables, at = [], 0
        for here, inside in found:
            # Every copy is in a span: find the span that contains the other place, and its number in its document.
            also = np.searchsorted(starts, others[at : at + len(here)], "right") - 1
            numbers = also - np.searchsorted(documents, documents[also], "left")
            ids, also_ids = (pc.cast(stored_ids(folder, each), pa.string()) for each in (here, documents[also]))
            columns = [here, ids, inside[:, 0], inside[:, 1], also_ids, numbers]
            tables.append(pa.table(columns, schema=SPAN_SCHEMA))
            at += len(here)
        return Spans(pa.concat_tables(tables))

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided:
        """Find the same spans, with the tokens of each group in a task of their own."""
        return exchange_spans(self.min_tokens, sketched, engine)

    def edit_spans(self, table: pa.Table, spans: Spans) -> tuple[pa.Table, Sequence[Check]]:
        """Apply ``policy`` to a batch of documents."""
        edited = self.trace_spans(table, spans)
        return edited.documents, edited.checks

    def trace_spans(self, table: pa.Table, spans: Spans) -> Edited:
        """Apply ``policy`` to a batch of documents, and list the spans cut or masked, each with another occurrence."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        if "masked" in table.column_names and self.policy in ("cut", "mask"):
            raise StageError("exact_substring would lose the column 'masked' of an earlier stage: drop it first")
        rows, places, chosen = self._characters(document_ids(table, self.name), texts, spans)
        lengths = places[:, 1] - places[:, 0]
        covered = np.zeros(table.num_rows, np.int64)
        np.add.at(covered, rows, lengths)
        checks = [self._check(pc.fill_null(pc.utf8_length(texts), 0).to_numpy(), covered)]
        if self.policy not in ("cut", "mask"):
            return Edited(table, checks, no_places())
        rule, replaced_by = ("cut", 0) if self.policy == "cut" else (MASK, lengths)
        if self.policy == "cut":
            table = with_column(table, "text", cut_spans(texts, rows, places))
        else:
            table = with_column(table, "masked", masked_column(rows, places, table.num_rows))
        return Edited(table, checks, make_places(rows, rule, places, replaced_by, **spans.origins(chosen)))

    def _check(self, lengths: Longs, covered: Longs) -> Check:
        untouched = covered == 0
        if self.policy in ("cut", "mask"):
            kept = lengths - covered
            passes = pa.array(untouched | (kept >= self.min_characters))
            return Check("characters_left", pa.array(kept), passes, self.min_characters, "at_least")
        share = covered / np.maximum(lengths, 1)
        most = self.max_share if self.policy == "drop-partial" else 0.0
        return Check("repeated_share", pa.array(share), pa.array(untouched | (share <= most)), most, "at_most")

    def _characters(self, ids: pa.Array, texts: pa.Array, spans: Spans) -> tuple[Longs, Longs, Longs]:
        """Return the row of each span of a batch, the spans in characters, and their rows in the table of spans."""
        rows, chosen = spans.rows_of(ids)
        in_units = spans.units(chosen)
        with_spans, places = np.unique(rows, return_inverse=True)
        found = locate(self._unit(), texts.take(pa.array(with_spans)), places, in_units)
        whole = found[:, 1] > found[:, 0]
        return rows[whole], found[whole], chosen[whole]

    def _unit(self) -> Unit:
        unit = make_unit(self.unit, self.tokenizer)
        return NormalText(unit) if self.text == "normalised" else unit


def cut_spans(texts: pa.Array, rows: Longs, places: Longs) -> pa.Array:
    """Return the texts without the spans."""
    if not len(rows):
        return texts
    affected, firsts = np.unique(rows, return_index=True)
    made = []
    for row, spans in zip(affected.tolist(), np.split(places, firsts[1:]), strict=True):
        text = texts[row].as_py()
        kept = [0, *spans.ravel().tolist(), len(text)]
        made.append("".join(text[start:stop] for start, stop in zip(kept[::2], kept[1::2], strict=True)))
    replaced = np.zeros(len(texts), bool)
    replaced[affected] = True
    return pc.replace_with_mask(texts, pa.array(replaced), pa.array(made, pa.large_string()))


def masked_column(rows: Longs, places: Longs, documents: int) -> pa.Array:
    """Return the column ``masked``."""
    spans = {"start": pa.array(places[:, 0]), "end": pa.array(places[:, 1])}
    return list_by_document(rows, spans, documents).cast(MASK_TYPE)


@lru_cache(maxsize=4)
def make_unit(name: str, tokenizer: str) -> Unit:
    """Return the unit with this name, one of ``UNITS``; StageError if tokens cannot be mapped to bytes."""
    if name == "token":
        return Tokens(tokenizer)
    return Characters() if name == "character" else Bytes()


def locate(unit: Unit, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
    """Return the characters that are wholly inside spans of ids, int64 [spans, 2]; see ``Unit.to_bytes``."""
    places = unit.to_bytes(texts, rows, spans)
    convert_spans(*text_buffers(texts), rows, places, False)
    places[:, 1] = places.max(axis=1)
    return places


class Tokens:
    """Tokens of a byte-level BPE, such as GPT-2's, as unit."""

    def __init__(self, tokenizer: str) -> None:
        try:
            self._encoder = load_encoder(tokenizer)
        except TokenizerError as missing:
            raise TokenizerError(
                f"exact_substring.tokenizer: {missing}; or set unit='character', which needs none"
            ) from missing
        try:
            self._bytes = self._encoder.token_bytes
        except TokenizerError as wrong:
            raise StageError(
                f"tokens of {tokenizer!r} cannot be mapped to bytes ({wrong}): choose a byte-level BPE such as "
                "gpt2, or the unit 'character'"
            ) from wrong
        self._dtype = np.uint16 if self._encoder.vocabulary_size < 1 << 16 else np.uint32

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return token ids."""
        ids, offsets = self._encoder.encode(texts)
        return EncodedTexts(ids.astype(self._dtype, copy=False), offsets)

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Tokenise again and sum the bytes of the tokens before each position."""
        ids, offsets = self._encoder.encode(texts)
        ends = np.concatenate([[0], np.cumsum(self._bytes[ids], dtype=np.int64)])
        starts = ends[offsets]
        if not np.array_equal(np.diff(starts), pc.binary_length(texts).to_numpy()):
            raise StageError("tokens do not decode to their text: choose a byte-level BPE without normalization")
        return np.asarray(ends[offsets[rows, None] + spans] - starts[rows, None])


class Characters:
    """Code points as unit."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the code point of every character, uint32."""
        offsets = np.concatenate([[0], np.cumsum(pc.fill_null(pc.utf8_length(texts), 0).to_numpy(), dtype=np.int64)])
        ids = np.empty(offsets[-1], np.uint32)
        for text, start, stop in zip(texts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            ids[start:stop] = np.frombuffer((text.as_py() or "").encode("utf-32-le"), "<u4")
        return EncodedTexts(ids, offsets)

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Convert spans of characters to bytes."""
        places = spans.copy()
        convert_spans(*text_buffers(texts), rows, places, True)
        return places


class Bytes:
    """Bytes of UTF-8 as unit."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the bytes, uint8; no UTF-8 contains 255."""
        data, offsets = text_buffers(texts)
        return EncodedTexts(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:  # noqa: ARG002  # ids are bytes
        """Return the spans as they are."""
        return spans.copy()


class NormalText:
    """Unit that is applied to the normal form of texts; see :mod:`longcrawl.dedup.normalize`."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the ids of the normal forms."""
        return self._unit.encode(normalize(texts))

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Return the original bytes that the spans of the normal form come from, without partial characters."""
        normal = normalize_with_sources(texts)
        found = normal.source_spans(rows, self._unit.to_bytes(normal.texts, rows, spans))
        # Marks that the normal form reorders may come from before the end of the previous span.
        text_starts = text_buffers(texts)[1][rows]
        places = found + text_starts[:, None]
        ends = np.maximum.accumulate(places[:, 1])
        places[1:, 0] = np.maximum(places[1:, 0], ends[:-1])
        places[:, 1] = places.max(axis=1)
        return places - text_starts[:, None]
