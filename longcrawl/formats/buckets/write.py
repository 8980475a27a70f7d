"""Bucketed datasets as the output of a run: writing, description, inspection and removal.

The plan is written first, as files, then the samples. It has the samples of each split and domain, their measures, and
the origin of each piece of each sample. A group of samples is written by gathering its pieces from the spilled
documents, together with a table of the pieces.

A removed document keeps its row, without tokens or origin, so the numbers of the others do not change.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.display import Column, Table, table
from longcrawl.core.exchange import Engine
from longcrawl.core.outputs import Inspection, Output, Result, TokenRows, WriteTask, are_shuffled, output, result
from longcrawl.core.registry import plain
from longcrawl.core.removal import PROOF_TOKENS, Changes, Proof, Removal, filled_holes, rows_of_ids
from longcrawl.core.stages import SORT_KEY, Stage, column
from longcrawl.errors import FormatError, StageError, as_lines, listed, printable
from longcrawl.formats import order
from longcrawl.formats.buckets import spec
from longcrawl.formats.buckets.spec import DESCRIPTION, FILE_DOCUMENTS, HOLDS_MASK, VERSION
from longcrawl.formats.documents import UNKNOWN, folder_name
from longcrawl.formats.rectangle.spec import LOSS_MASK_SUFFIX
from longcrawl.formats.rectangle.write import BAND, Checksum, Layout, lay_out, write_band
from longcrawl.formats.shards.shard import (
    BLOCK_TOKENS,
    FOUND,
    N_TOKENS,
    ORIGINS,
    TOKENS,
    Documents,
    list_column,
    map_opened,
    token_table,
)
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.formats.shards.writing import OnLoss, TokenType, check_text_column, entries_of
from longcrawl.formats.token_output import TokenOutput, TokenWriter, check_masked, decode_document
from longcrawl.io import structured
from longcrawl.io.files import file_entries, whole_file, whole_files, write_text, write_values
from longcrawl.io.stored_tables import GroupedTable, read_table, write_table
from longcrawl.io.structured import Verification
from longcrawl.tokens import measures
from longcrawl.tokens.loss_mask import LOSS_MASK
from longcrawl.tokens.plan import JOINED, Longs, Plan, Strategy, document_parts, joined_pieces
from longcrawl.tokens.shape import WINDOWS, Windows
from longcrawl.tokens.strategies import KEEP_ORDER, Buckets, Interleaved, LongDocuments, Planner

DOMAIN = "domain"
KEPT = (*ORIGINS, *FOUND, DOMAIN, N_TOKENS)
GROUP_TOKENS = 1 << 22
"""Most tokens gathered at a time for a shard, unless one sample has more."""
GROUP_DOCUMENTS = 50_000
GROUP_SAMPLES = 1 << 18
"""Samples whose pieces are ordered at a time."""
ATTRIBUTES = ("end_of_text", "vocabulary_size", "tokenizer", "json_escaped")
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
TABLE = {"compression": "zstd", "compression_level": 3}
PIECE = np.dtype([("document", "<i8"), ("start", "<i8"), ("size", "<i8")])


@dataclass(frozen=True)
class PlannedBucket:
    """Samples of one capacity in a split or in one of its domains."""

    path: str
    capacity: int
    samples: int
    pieces: int
    documents: int
    """Documents whose first token is in one of the samples."""
    tokens: int
    """Tokens of documents, without padding."""
    plan: int
    first: int
    first_document: int


@dataclass(frozen=True)
class PlannedSplit:
    """Plan of one split, or of one of its domains."""

    split: str
    domain: str | None
    """The domain's value; None for documents without one, or if there are no domains."""
    folder: str
    """Folder of the domain; empty if there are no domains."""
    plan: int
    first_document: int
    """Place of its first document in the order of all documents."""
    documents: int
    pieces: tuple[int, ...]
    composition: measures.Composition

    @property
    def path(self) -> str:
        """Folder of its buckets in the dataset."""
        return f"{self.split}/{self.folder}" if self.folder else self.split

    @property
    def name(self) -> str:
        """Name of the domain in a mix: its value, or its folder if the value is None, empty or ``unknown``."""
        return self.domain if self.domain and self.domain != UNKNOWN else self.folder

    def buckets(self) -> Iterator[PlannedBucket]:
        """Yield the buckets that have samples, smallest first."""
        first = 0
        for bucket, pieces in zip(self.composition.buckets, self.pieces, strict=True):
            path, place = f"{self.path}/{bucket.capacity}", (self.plan, first, self.first_document)
            if bucket.samples:
                counts = (bucket.samples, pieces, bucket.documents, bucket.tokens)
                yield PlannedBucket(path, bucket.capacity, *counts, *place)
            first += bucket.samples


def composition_of(numbers: Mapping[str, Any]) -> measures.Composition:
    """Rebuild a composition from the result of :func:`composition_numbers` or ``dataclasses.asdict``."""
    names = measures.Composition.__dataclass_fields__
    known = {name: numbers[name] for name in names if name != "buckets"}
    return measures.Composition(**known, buckets=tuple(measures.Bucket(**each) for each in numbers["buckets"]))


def composition_numbers(composition: measures.Composition) -> dict[str, Any]:
    """Return a composition for JSON: its counts, and the ratios computed from them."""
    ratios = ("r_pad", "r_tru", "r_cat", "r_tru_tokens", "pieces_per_sample", "context_share", "dropped")
    return {**{name: getattr(composition, name) for name in ratios}, **asdict(composition)}


def plan_split(
    spill: Path,
    strategy: Strategy,
    seed: int,
    lengths: npt.NDArray[np.integer[Any]],
    where: tuple[str, str | None, str, int, int],
) -> PlannedSplit:
    """Plan documents of these lengths pool by pool, write the plan, and measure it.

    Memory holds 40 bytes per sample; ``lengths`` may be memory-mapped. ``seed`` is of the shuffle of samples within
    their buckets. ``where`` is split, domain and its folder, number of the plan, and place of the first document.
    """
    kind = np.min_scalar_type(max(len(lengths), int(lengths.max(initial=0))))
    columns: list[tuple[str, npt.DTypeLike]] = [("keys", np.uint64), ("capacities", np.int32), ("counts", np.int32)]
    columns += [("document", kind), ("start", kind), ("size", kind)]
    measured, pairs, first, joined = list[measures.Composition](), list[Longs](), 0, False
    with ExitStack() as files:
        # Lists of arrays would need memory in addition to the arrays they are joined to.
        opened = {name: files.enter_context(TemporaryFile(dir=spill)) for name, _ in columns}
        for pool in strategy.pools(lengths):
            plan = strategy.plan_pool(pool)
            measured.append(measures.measure(plan, strategy.label, strategy.capacities))
            joined = joined or bool(plan.joined.any())
            pairs.append(measures.neighbours(plan, first))
            of_samples = plan.sample_keys(seed, first), plan.capacities, np.diff(plan.bounds)
            of_pieces = plan.documents + first, plan.starts, plan.sizes
            for (name, stored), values in zip(columns, (*of_samples, *of_pieces), strict=True):
                opened[name].write(values.astype(stored).tobytes())
            first += len(pool)
        made = {name: map_opened(opened[name], stored) for name, stored in columns}
    pieces, bounds = _save_plan(spill, where[3], made)
    parts = _parts(spill, pieces, bounds) if joined else pieces["size"]
    write_values(spill / f"plan-{where[3]:05d}.pairs", np.concatenate(pairs))
    counts = [int(made["counts"][made["capacities"] == capacity].sum()) for capacity in strategy.capacities]
    composition = measures.measure_pools(measured, strategy.label, lengths, parts)
    return PlannedSplit(*where, len(lengths), tuple(counts), composition)


def measure_related(spill: Path, plan: int, first: int, documents: int) -> measures.Relatedness:
    """Measure how related consecutive documents in samples are, in a plan of documents from the place ``first``."""
    file = order.checked(spill / f"plan-{plan:05d}.pairs", order.PLANNED)
    pairs = np.fromfile(file, np.int64).reshape(-1, 2)
    places = order.read_order(spill, first, first + min(documents, measures.DOCUMENTS))
    beginnings: list[npt.NDArray[Any]] = [np.zeros(0, np.uint16)] * len(places)
    for chosen, batch, rows in order.read_batches(spill, places) if len(pairs) else ():
        lists = batch.column(TOKENS)
        values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
        for place, row in zip(chosen.tolist(), rows.tolist(), strict=True):
            start, stop = int(offsets[row]), int(offsets[row + 1])
            # The last token is the end of text, which all documents share.
            beginnings[place] = values[start : max(stop - 1, start)][: measures.TOKENS].copy()
    return measures.relate(pairs, measures.weigh(beginnings))


def _save_plan(spill: Path, number: int, made: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], Longs]:
    """Write a plan with its samples in their final order, and return its pieces and bounds, memory-mapped."""
    ranked = np.lexsort((made["keys"], made["capacities"]))
    counts = made["counts"].astype(np.int64)
    firsts = np.cumsum(counts) - counts
    path = spill / f"plan-{number:05d}"
    write_values(path.with_suffix(".bounds"), np.concatenate([[0], np.cumsum(counts[ranked])]).astype(np.int64))
    with whole_file(path.with_suffix(".pieces")) as beside, beside.open("wb") as file:
        for block in np.split(ranked, range(GROUP_SAMPLES, len(ranked), GROUP_SAMPLES)):
            several, ends = counts[block], np.cumsum(counts[block])
            chosen = np.arange(several.sum()) + np.repeat(firsts[block] - (ends - several), several)
            pieces = np.empty(len(chosen), PIECE)
            for name in PIECE.names or ():
                pieces[name] = made[name][chosen]
            file.write(pieces.tobytes())
    with path.with_suffix(".pieces").open("rb") as file, path.with_suffix(".bounds").open("rb") as bounds:
        return map_opened(file, PIECE), map_opened(bounds, np.int64)


def _parts(spill: Path, pieces: npt.NDArray[Any], bounds: Longs) -> npt.NDArray[Any]:
    """Return the tokens of each document in each sample, as :func:`document_parts` does, memory-mapped."""
    with TemporaryFile(dir=spill) as file:
        for first in range(0, len(bounds) - 1, GROUP_SAMPLES):
            borders = bounds[first : first + GROUP_SAMPLES + 1]
            here = pieces[borders[0] : borders[-1]]
            _, sizes = document_parts(borders - borders[0], here["document"], here["size"])
            file.write(sizes.astype("<i8").tobytes())
        return map_opened(file, "<i8")


@dataclass(frozen=True)
class TokenFacts:
    """Properties of all spilled tokens."""

    dtype: str
    masked: bool
    """Whether some token has no loss."""


@dataclass(frozen=True)
class SampleFile:
    """The samples of a bucket that one band or shard holds."""

    bucket: PlannedBucket
    number: int
    first: int
    samples: int
    tokens: TokenFacts
    joined: bool
    """Whether the table of pieces has the column ``joined``."""

    @property
    def name(self) -> str:
        """Path of the file without its suffix: ``train/web/2048/00000``."""
        return f"{self.bucket.path}/{self.number:05d}"


@dataclass(frozen=True, eq=False)
class PieceStretch:
    """Pieces of consecutive samples in a plan; arrays are int64 [pieces]."""

    bounds: Longs
    """int64 [samples + 1], bounds of each sample's pieces."""
    samples: Longs
    """Sample of each piece, counted from the first one here."""
    documents: Longs
    """Document of each piece, counted within the split and domain."""
    starts: Longs
    sizes: Longs
    recorded: pa.Table
    """Row for each piece with the recorded columns of its document: its id and the like, and ``n_tokens``."""
    spilled: npt.NDArray[Any]
    """Place (:data:`PLACE`) of each piece's document in the spill."""

    @property
    def lengths(self) -> Longs:
        """Tokens of each sample: int64 [samples]."""
        return np.asarray(np.add.reduceat(self.sizes, self.bounds[:-1]), np.int64)

    def places(self, capacity: int | None = None) -> Longs:
        """Return the offset of each piece, in samples padded to ``capacity`` or, without one, end to end."""
        before = np.cumsum(self.sizes) - self.sizes
        if capacity is None:
            return before
        begins = np.repeat(before[self.bounds[:-1]], np.diff(self.bounds))
        return np.asarray(before - begins + self.samples * capacity, np.int64)

    def table(self, file: SampleFile, first: int) -> pa.Table:
        """Return a table with a row per piece; ``first`` is the number of the first sample in its bucket."""
        joined = {JOINED: pa.array(joined_pieces(self.bounds, self.documents))} if file.joined else {}
        tail = self.starts + self.sizes == self.recorded[N_TOKENS].to_numpy()
        return pa.table(
            {
                "bucket": pa.repeat(pa.scalar(file.bucket.capacity, pa.int64()), len(self.sizes)),
                "sample": pa.array(self.samples + first),
                "document": pa.array(self.documents),
                **{name: self.recorded[name] for name in (*ORIGINS, DOMAIN) if name in self.recorded.column_names},
                "start": pa.array(self.starts),
                "length": pa.array(self.sizes),
                "head": pa.array(self.starts == 0),
                "tail": pa.array(tail),
                **joined,
            }
        )


def _read_pieces(spill: Path, bucket: PlannedBucket, first: int, stop: int) -> PieceStretch:
    path, first, stop = spill / f"plan-{bucket.plan:05d}", bucket.first + first, bucket.first + stop
    for file in (path.with_suffix(".bounds"), path.with_suffix(".pieces"), spill / order.ORDER):
        order.checked(file, order.PLANNED)
    bounds = np.fromfile(f"{path}.bounds", np.int64, count=stop - first + 1, offset=first * 8)
    count = int(bounds[-1] - bounds[0])
    pieces = np.fromfile(f"{path}.pieces", PIECE, count=count, offset=int(bounds[0]) * PIECE.itemsize)
    documents = pieces["document"].astype(np.int64)
    wanted, back = np.unique(documents, return_inverse=True)
    places = np.memmap(spill / order.ORDER, order.PLACE, "r")[wanted + bucket.first_document]
    recorded = order.read_places(spill, places, (*ORIGINS, DOMAIN, N_TOKENS)).take(pa.array(back))
    samples = np.repeat(np.arange(stop - first), np.diff(bounds))
    starts, sizes = pieces["start"], pieces["size"]
    return PieceStretch(bounds - bounds[0], samples, documents, starts, sizes, recorded, places[back])


def _gather(spill: Path, pieces: PieceStretch, name: str, places: Longs, out: npt.NDArray[Any]) -> None:
    """Copy pieces of the spilled column ``name`` to offsets ``places`` in ``out``, and leave the rest unchanged."""
    flat = out.reshape(-1).view(np.uint8) if out.dtype == np.bool_ else out.reshape(-1)
    for chosen, batch, rows in order.read_batches(spill, pieces.spilled):
        lists = batch.column(name)
        values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
        firsts = offsets[rows] + pieces.starts[chosen]
        for first, size, place in zip(
            firsts.tolist(), pieces.sizes[chosen].tolist(), places[chosen].tolist(), strict=True
        ):
            flat[place : place + size] = values[first : first + size]


def write_array_band(
    spill: Path, target: Path, band: SampleFile, layouts: Mapping[str, Layout], table: GroupedTable
) -> list[str]:
    """Write one band of samples into the arrays of its bucket and their pieces to a table; return the files' names."""
    path, capacity = band.bucket.path, band.bucket.capacity
    pieces = _read_pieces(spill, band.bucket, band.first, band.first + band.samples)
    table.add(pieces.table(band, band.first))
    places = pieces.places(capacity)
    layout = layouts[""]
    rows = layout.whole_chunks(band.samples)
    tokens = np.full((rows, capacity), layout.fill_value, np.dtype(layout.dtype).newbyteorder("<"))
    _gather(spill, pieces, TOKENS, places, tokens)
    names = write_band(target, path, band.number, tokens, layout)
    del tokens
    if LOSS_MASK_SUFFIX in layouts:
        mask = np.arange(rows)[:, None] >= np.full((1, capacity), band.samples)
        _gather(spill, pieces, LOSS_MASK, places, mask)
        names += write_band(target, path + LOSS_MASK_SUFFIX, band.number, mask, layouts[LOSS_MASK_SUFFIX])
    return names


def _entries(spill: Path, shard: SampleFile, table: GroupedTable) -> Iterator[Documents]:
    """Yield samples of a shard without padding, and write their pieces to a table."""
    capacity, masked = shard.bucket.capacity, shard.tokens.masked
    rows = max(GROUP_TOKENS // capacity, 1)
    for first in range(shard.first, shard.first + shard.samples, rows):
        pieces = _read_pieces(spill, shard.bucket, first, min(first + rows, shard.first + shard.samples))
        table.add(pieces.table(shard, first))
        places, lengths = pieces.places(), pieces.lengths
        tokens = np.empty(int(lengths.sum()), shard.tokens.dtype)
        _gather(spill, pieces, TOKENS, places, tokens)
        mask = np.empty(len(tokens) if masked else 0, np.bool_)
        if masked:
            _gather(spill, pieces, LOSS_MASK, places, mask)
        yield Documents(tokens, lengths, None, mask if masked else None)


PLANS = "plans.json"
OF_STRATEGY = {
    "padded": ("long_documents",),
    "interleaved": ("documents_per_sample", "chunks_per_document", "long_documents", "padded_domains"),
}
"""Settings that only these strategies have."""
CHUNK_TOKENS = 16_384
"""Most tokens in an inner chunk, unless one sample has more."""
NO_WINDOWS = "composed cuts documents by its own plan: remove the stage windows, which would cut them before"
Format = Literal["zarr", "gpt-simple", "datatrove", "megatron", "token-parquet"]


@output("composed")
class ComposedOutput(TokenOutput):
    """Write a composed dataset in the format of :mod:`longcrawl.formats.buckets.spec`.

    ``strategy`` and the fields up to ``long_documents`` are those of :func:`longcrawl.tokens.named_strategy`.

    Peak memory is 2.7 times that of one band of 2,048 samples of the largest capacity, or some 60 MB for shards,
    whatever the number of documents (benchmarks/composed_write.py). Planning needs some 110 bytes per document.

    Args:
        seed: of the strategy, and of the shuffle of samples within their buckets, which every strategy has.
        heldout: documents to hold out, as a fraction below 1 or a whole number; of each domain if ``domains`` is set.
            They are the first of the order, and are composed separately.
        domains: a text column, such as ``source`` or ``language``; each of its values is composed separately.
        padded_domains: domains composed by "padded" where the strategy of the others is "interleaved".
        format: of the samples: "zarr", or a format of token shards.
        zarr_format: for "zarr", as in the output rectangle.
        codec: for "zarr", as in the output rectangle.
        checksum: for "zarr", as in the output rectangle.
        shard_bytes: most bytes of tokens per shard.
        end_of_text: the id that ends a document; by default that of the stage ``tokenize``.
        vocabulary_size: every id must be below it; by default that of the stage ``tokenize``.
        dtype: type of a token; by default that of the stage ``tokenize``. "auto" is uint16 for vocabularies of up to
            65,536 ids, and the type of the documents' tokens if the vocabulary is unknown.
        on_loss: treatment of a loss mask that the format cannot store.
    """

    second_pass = (
        "strategy", "capacities", "padding_threshold", "planner", "seed", "pool_size", "chunk_tokens",
        "documents_per_sample", "chunks_per_document", "long_documents", "heldout", "padded_domains",
        "format", "zarr_format", "codec", "checksum", "shard_bytes", "on_loss",
    )  # fmt: skip
    plans_documents = True
    omitted_defaults = OF_STRATEGY["interleaved"]

    strategy: measures.StrategyName = "buckets"
    capacities: tuple[int, ...] = (2048, 4096, 8192, 16384)
    padding_threshold: float = 0.05
    planner: Planner = "algorithm-1"
    seed: int = 0
    pool_size: int | None = None
    chunk_tokens: int = Buckets.chunk_tokens
    documents_per_sample: int = Interleaved.documents_per_sample
    chunks_per_document: int = Interleaved.chunks_per_document
    long_documents: LongDocuments = "truncate"
    heldout: float = 0
    domains: str | None = None
    padded_domains: tuple[str, ...] = ()
    format: Format = "zarr"
    zarr_format: Literal[2, 3] = 3
    codec: Literal["zstd", "lz4hc", "lz4"] = "zstd"
    checksum: Checksum = "crc32c"
    shard_bytes: int = 500_000_000
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    dtype: TokenType = "auto"
    on_loss: OnLoss = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(shard_bytes=1)
        self.chosen()
        if self.padded_domains and (self.strategy != "interleaved" or self.domains is None):
            raise StageError(
                "composed.padded_domains needs strategy interleaved: set composed.strategy to interleaved and "
                "composed.domains to a column, or remove padded_domains"
            )

    def chosen(self, domain: str | None = None) -> Strategy:
        """Return the strategy of a domain; raise StageError if the capacities do not ascend, or do not fit it."""
        if domain in self.padded_domains:
            return measures.named_strategy("padded", self.capacities, long_documents=self.long_documents)
        return measures.named_strategy(
            self.strategy,
            self.capacities,
            self.padding_threshold,
            self.planner,
            self.seed,
            self.pool_size,
            self.chunk_tokens,
            self.documents_per_sample,
            self.chunks_per_document,
            self.long_documents,
        )

    @property
    def joins(self) -> bool:
        """Whether the tables of pieces have the column ``joined``."""
        return "interleaved" in (self.strategy, self.planner)

    def layouts(self, capacity: int, dtype: str, end_of_text: int, *, masked: bool) -> dict[str, Layout]:
        """Return the layouts of a bucket's arrays, by the suffix that each adds to the bucket's path."""
        # A power of two, so that it divides a band.
        rows = min(1 << (max(CHUNK_TOKENS // capacity, 1).bit_length() - 1), BAND)
        chunk = (rows, capacity)
        tokens = Layout(capacity, dtype, end_of_text, self.zarr_format, self.codec, chunk, self.checksum)
        return tokens.with_mask(masked=masked)

    def writer(self, stages: Sequence[Stage]) -> "ComposedWriter":
        """Return a writer with the end of text and tokenizer of ``tokenize``."""
        tokenize = self.find_tokenize(stages)
        if any(stage.name == Windows.name for stage in stages):
            raise StageError(NO_WINDOWS)
        related = next((stage.name for stage in stages if stage.relates), None)
        if related is not None and self.planner not in KEEP_ORDER:
            raise StageError(
                f"composed.planner {self.planner!r} would separate the documents that {related} puts together: set "
                f"composed.planner to {' or '.join(KEEP_ORDER)}"
            )
        return ComposedWriter(self, are_shuffled(stages), tokenize=tokenize)


@dataclass(frozen=True)
class ComposedWriter(TokenWriter):
    """Writer of one composed dataset."""

    spills = (*TokenWriter.spills, "facts")
    settings: ComposedOutput

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """Spill the tokens of one part with their origins (first pass)."""
        masked = False

        def kept(table: pa.Table) -> pa.Table:
            nonlocal masked
            columns = self._kept_columns(table)
            if LOSS_MASK in columns:
                masked = masked or not columns[LOSS_MASK].values.to_numpy().all()
            return pa.table(columns)

        def sizes(batch: pa.RecordBatch) -> Longs:
            return np.asarray(batch.column(N_TOKENS), np.int64)

        order.spill_documents(map(kept, tables), spill, part, shuffled=self.shuffled, group=DOMAIN, sizes=sizes)
        write_text(spill / f"{part:05d}.facts", json.dumps({"masked": bool(masked)}))

    def _kept_columns(self, table: pa.Table) -> dict[str, Any]:
        """Return the columns to spill, with exactly one end of text per document unless it has no tokens."""
        domains = self.settings.domains
        if WINDOWS in table.column_names:
            raise StageError(NO_WINDOWS)
        check_masked(table, "composed")
        if domains is not None:
            check_text_column(table, domains, "composed.domains")
        empty = pc.fill_null(pc.equal(pc.list_value_length(column(table, TOKENS, "composed")), 0), False)
        filled = pc.invert(empty)
        end, asked, most = self._end_of_text(), self._asked_type(), self._vocabulary_size()
        ended, _ = entries_of(table.filter(filled), end, "composed", "loss_mask", asked, most)
        lengths = np.zeros(table.num_rows, np.int64)
        lengths[filled.to_numpy(zero_copy_only=False)] = ended.lengths
        columns = {name: table[name] for name in (*ORIGINS, *FOUND) if name in table.column_names}
        if domains is not None:
            columns[DOMAIN] = table[domains]
        if self.shuffled:
            columns[SORT_KEY] = table[SORT_KEY]
        columns |= {N_TOKENS: pa.array(lengths), TOKENS: list_column(lengths, ended.tokens)}
        if ended.loss_mask is not None:
            columns[LOSS_MASK] = list_column(lengths, ended.loss_mask.view(np.uint8))
        return columns

    def order(self, spill: Path, parts: int, engine: Engine) -> None:
        """Order the documents by an exchange if there are too many for one process."""
        order.exchange_order(spill, parts, engine, shuffled=self.shuffled, grouped=self.settings.domains is not None)

    def plan(self, spill: Path, parts: int) -> list[WriteTask]:
        """Plan the samples of each split and domain, and list the files to write."""
        by_domain = self.settings.domains is not None
        stretches, schema = order.order_documents(spill, parts, shuffled=self.shuffled, grouped=by_domain)
        if not any(each.sizes.any() for each in stretches):
            raise FormatError("no tokens to write: every document is empty or was removed before the output")
        masked = any(each["masked"] for each in order.spilled_json(spill, parts, ".facts"))
        facts = TokenFacts(str(schema.field(TOKENS).type.value_type), masked)
        seed, plans = self.settings.seed, list[PlannedSplit]()
        for name in sorted(set(self.settings.padded_domains) - {each.group for each in stretches}):
            raise FormatError(
                f"composed.padded_domains names {name!r}, which is not a {self.settings.domains} of the documents; "
                f"known: {listed(repr(each.group) for each in stretches)}"
            )
        # Shards call the held-out split ``val``, as their makers do.
        held_out = "heldout" if self.settings.format == "zarr" else "val"
        for stretch in stretches:
            domains, to = self.settings.domains, "composed.domains to another column"
            folder = "" if domains is None else folder_name(stretch.group, domains, to)
            of = f" of {self.settings.domains} {stretch.group!r}" if by_domain else ""
            splits = order.split_rows(self.settings.heldout, len(stretch.sizes), held_out, of)
            strategy = self.settings.chosen(stretch.group)
            for split, (start, stop) in splits.items():
                where = (split, stretch.group, folder, len(plans), stretch.start + start)
                plans.append(plan_split(spill, strategy, seed, stretch.sizes[start:stop], where))
        strategy = self.settings.chosen()
        if not any(each.composition.samples for each in plans if each.split == "train"):
            raise FormatError(
                "no samples to train on: every document is empty, held out, or dropped as shorter than the "
                f"smallest capacity of {strategy.label}, {strategy.capacities[0]:,}"
            )
        write_text(spill / PLANS, json.dumps({"facts": asdict(facts), "plans": [asdict(each) for each in plans]}))
        buckets = [bucket for each in plans for bucket in each.buckets()]
        samples, documents = enumerate(self._sample_files(buckets, facts)), enumerate(_document_tables(plans))
        return [
            *(WriteTask(f"samples-{number:06d}", ("samples", each)) for number, each in samples),
            *(WriteTask(f"documents-{number:06d}", ("documents", *each)) for number, each in documents),
            *(
                WriteTask(f"related-{each.plan:06d}", ("related", each.plan, each.first_document, each.documents))
                for each in plans
            ),
            *([WriteTask("arrays", ("arrays", buckets, facts))] if self.settings.format == "zarr" else []),
        ]

    def write(self, spill: Path, target: Path, task: WriteTask) -> dict[str, Any]:
        """Write a band or shard with its pieces, a table of documents or arrays' metadata, or measure relatedness."""
        kind, *details = task.details
        if kind == "documents":
            name, start, stop = details
            with whole_file(target / name) as beside, GroupedTable(beside) as file:
                for first in range(start, stop, GROUP_DOCUMENTS):
                    places = order.read_order(spill, first, min(first + GROUP_DOCUMENTS, stop))
                    file.add(order.read_places(spill, places, KEPT))
            return {"bucket": None, "files": file_entries(target, [name])}
        if kind == "related":
            return {"bucket": None, "files": {}, "related": measure_related(spill, *details)._asdict()}
        if kind == "arrays":
            buckets, facts = details
            arrays = {
                f"{bucket.path}{suffix}": (layout, bucket.samples)
                for bucket in buckets
                for suffix, layout in self._layouts(bucket.capacity, facts).items()
            }
            names = lay_out(target, arrays, self._attributes() | ({"loss_mask": True} if facts.masked else {}))
            return {"bucket": None, "files": file_entries(target, names)}
        (here,) = details
        known: Mapping[str, str] = {}
        table = f"pieces/{here.name}.parquet"
        with whole_file(target / table) as beside, GroupedTable(beside) as pieces:
            if self.settings.format == "zarr":
                layouts = self._layouts(here.bucket.capacity, here.tokens)
                names = write_array_band(spill, target, here, layouts, pieces)
            else:
                form = FORMATS[self.settings.format]
                path, settings = target / f"{here.name}{form.suffix}", self._shard_settings(here.tokens.dtype)
                shard = form.write(_entries(spill, here, pieces), path, **settings)
                names, known = [Path(each).relative_to(target).as_posix() for each in shard.files], shard.sha256
        return {"bucket": here.bucket.path, "files": file_entries(target, [*names, table], known)}

    def finish(self, spill: Path, target: Path, written: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Add the tokenizer, and describe composition, buckets and every file in ``composed.json``."""
        recorded = json.loads((spill / PLANS).read_text("utf-8"))
        facts, plans = TokenFacts(**recorded["facts"]), list[PlannedSplit]()
        related = [each["related"] for each in written if "related" in each]
        for numbers, found in zip(recorded["plans"], related, strict=True):
            composition = replace(composition_of(numbers["composition"]), **found)
            plans.append(PlannedSplit(**numbers | {"pieces": tuple(numbers["pieces"]), "composition": composition}))
        if self.tokenize is not None:
            self.tokenize.encoder().save(str(target))
        files = {name: entry for each in written for name, entry in each["files"].items()}
        there = {path.relative_to(target).as_posix() for path in whole_files(target)}
        files |= file_entries(target, sorted(there - files.keys() - {DESCRIPTION}))
        settings = self.settings.settings()
        splits: dict[str, list[measures.Composition]] = {}
        for each in plans:
            splits.setdefault(each.split, []).append(each.composition)
        described: dict[str, Any] = {
            "longcrawl_composed": VERSION,
            "stored_as": self.settings.format,
            "dtype": facts.dtype,
            **self._attributes(),
            "masked": facts.masked,
            "loss_mask": self._masked(facts),
            **self.described_order,
            **{name: settings[name] for name in ("strategy", "padding_threshold", "planner", "seed", "pool_size")},
            **{name: plain(getattr(self.settings, name)) for name in OF_STRATEGY.get(self.settings.strategy, ())},
            **({"chunk_tokens": self.settings.chunk_tokens} if self.settings.planner == "interleaved" else {}),
            **({JOINED: True} if self.settings.joins else {}),
            "capacities": list(self.settings.chosen().capacities),
            "domain_column": self.settings.domains,
            "splits": {
                split: composition_numbers(measures.combine(here, self.settings.chosen().label))
                for split, here in splits.items()
            },
            "buckets": [self._entry(each, bucket, facts, written) for each in plans for bucket in each.buckets()],
            "files": dict(sorted(files.items())),
        }
        if self.settings.domains is not None:
            described["domains"] = [
                {name: getattr(each, name) for name in ("split", "domain", "folder")}
                | composition_numbers(each.composition)
                for each in plans
            ]
        write_text(target / DESCRIPTION, structured.seal(described))
        return described

    def _layouts(self, capacity: int, facts: TokenFacts) -> dict[str, Layout]:
        return self.settings.layouts(capacity, facts.dtype, self._end_of_text(), masked=facts.masked)

    def _file_samples(self, capacity: int, facts: TokenFacts) -> int:
        if self.settings.format == "zarr":
            return BAND
        return max(self.settings.shard_bytes // (capacity * np.dtype(facts.dtype).itemsize), 1)

    def _sample_files(self, buckets: Sequence[PlannedBucket], facts: TokenFacts) -> Iterator[SampleFile]:
        for bucket in buckets:
            most = self._file_samples(bucket.capacity, facts)
            for number, first in enumerate(range(0, bucket.samples, most)):
                counts = number, first, min(most, bucket.samples - first)
                yield SampleFile(bucket, *counts, facts, self.settings.joins)

    def _entry(
        self, plan: PlannedSplit, bucket: PlannedBucket, facts: TokenFacts, written: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Describe a bucket; its identity is a digest of its files and of the settings that determine their reading."""
        files = {name: each for one in written if one["bucket"] == bucket.path for name, each in one["files"].items()}
        digests = [(name, files[name]["sha256"]) for name in sorted(files)]
        about = [self.settings.format, facts.dtype, self._masked(facts), self._end_of_text()]
        counts = {name: getattr(bucket, name) for name in ("capacity", "samples", "pieces", "documents", "tokens")}
        return {
            "path": bucket.path,
            "split": plan.split,
            "domain": plan.name,
            **counts,
            "file_samples": self._file_samples(bucket.capacity, facts),
            "identity": bucket_identity(about, bucket.samples, digests),
        }

    def _masked(self, facts: TokenFacts) -> bool:
        return facts.masked and self.settings.format in HOLDS_MASK

    def _shard_settings(self, dtype: str) -> dict[str, Any]:
        settings = {
            "end_of_text": self._end_of_text(),
            "terminate": "never",
            "vocabulary_size": self._vocabulary_size(),
            "dtype": dtype,
            "on_loss": self.settings.on_loss,
        }
        return FORMATS[self.settings.format].settings("write", settings)


def bucket_identity(about: Sequence[Any], samples: int, digests: Sequence[tuple[str, str]]) -> str:
    """Return the identity of a bucket with these settings, number of samples, and names and SHA-256 of files."""
    return hashlib.sha256(json.dumps([*about, samples, digests]).encode()).hexdigest()[:32]


def _document_tables(plans: Sequence[PlannedSplit]) -> Iterator[tuple[str, int, int]]:
    for each in plans:
        for file, first in enumerate(range(0, each.documents, FILE_DOCUMENTS)):
            start, stop = each.first_document + first, each.first_document + min(first + FILE_DOCUMENTS, each.documents)
            yield f"documents/{each.path}/{file:05d}.parquet", start, stop


def without_documents(folder: Path, ids: pa.Array, layouts: Mapping[int, dict[str, Layout]]) -> Removal:
    """Rewrite the files that contain some documents; see :class:`longcrawl.core.outputs.Result`.

    ``layouts`` has for each capacity the layouts of a bucket's arrays by the suffixes of their paths; {} for shards.
    """
    changes, proof, gone = Changes(folder, dict(spec.read_description(folder))), Proof(PROOF_TOKENS), 0
    opened = spec.open_composed(folder)
    groups: dict[str, list[_Rewriting]] = {}
    for path in dict.fromkeys(bucket.path.rpartition("/")[0] for bucket in opened.buckets):
        if len(removed := _forget(changes, path, ids)):
            gone += len(removed)
            buckets = (each for each in opened.buckets if each.path.rpartition("/")[0] == path)
            groups[path] = [_Rewriting(each, changes, removed) for each in buckets]
            for rewriting in groups[path]:
                rewriting.note(proof)
    for path, rewritings in groups.items():
        kept = [each.write(layouts.get(each.bucket.capacity, {}), proof) for each in rewritings]
        _measure(changes, path, [each.bucket.capacity for each in rewritings], kept)
    if gone:
        changes.described["buckets"] = [each for each in changes.described["buckets"] if each["samples"]]
        if layouts:
            _lay_out(changes, layouts)
        _identify(changes)
    return changes.finish(DESCRIPTION, gone, proof)


def _tables(changes: Changes, path: str) -> list[str]:
    begins = f"documents/{path}/"
    names = [name for name in changes.described["files"] if name.startswith(begins)]
    return sorted(name for name in names if "/" not in name.removeprefix(begins))


def _forget(changes: Changes, path: str, ids: pa.Array) -> Longs:
    """Blank the rows of some documents in the tables of a split or domain, and return their numbers, ascending."""
    found = [np.empty(0, np.int64)]
    for number, name in enumerate(_tables(changes, path)):
        table = read_table(changes.folder / name)
        rows = rows_of_ids(table, ids)
        if len(rows):
            found.append(rows + number * FILE_DOCUMENTS)
            stays = np.ones(table.num_rows, bool)
            stays[rows] = False
            nothing = {
                each: pa.scalar(0 if each == N_TOKENS else None, table[each].type) for each in table.column_names
            }
            columns = {each: pc.if_else(pa.array(stays), table[each], value) for each, value in nothing.items()}
            write_table(pa.table(columns, schema=table.schema).combine_chunks(), changes.folder / name, **TABLE)
            changes.changed.append(name)
    return np.concatenate(found)


class _Rewriting:
    def __init__(self, bucket: spec.ComposedBucket, changes: Changes, gone: Longs) -> None:
        self.bucket, self.changes, step = bucket, changes, bucket.file_samples
        self.names = sorted(name for name in changes.described["files"] if name.startswith(f"pieces/{bucket.path}/"))
        pieces = [read_table(changes.folder / name) for name in self.names]
        self.table = pa.concat_tables(pieces).combine_chunks()
        self.stays = np.asarray(~np.isin(self.table["document"].to_numpy(), gone))
        self.owners = np.asarray(self.table["sample"].to_numpy(), np.int64)
        # The number of kept pieces of each sample, and the old number of each new sample: those from the end replace
        # empty ones.
        self.counts: Longs = np.asarray(np.bincount(self.owners[self.stays], minlength=len(bucket)), np.int64)
        self.source = filled_holes(len(bucket), np.flatnonzero(self.counts == 0))
        count = -(-len(self.source) // step)
        moved = np.flatnonzero(self.source != np.arange(len(self.source))).tolist()
        touched = np.unique(self.owners[~self.stays]).tolist()
        short = len(self.source) < len(bucket) and len(self.source) % step
        found = {sample // step for sample in (*moved, *touched)} & set(range(count))
        self.dirty = sorted(found | ({count - 1} if short else set()))
        self.dropped = range(count, len(self.names))

    def of(self, samples: Longs, first: int) -> pa.Table:
        """Return a table of the kept pieces of some samples, which are renumbered from ``first``."""
        bounds = np.searchsorted(self.owners, np.stack([samples, samples + 1])).T.tolist()
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(*each) for each in bounds)])
        table = self.table.take(pa.array(rows[self.stays[rows]])).combine_chunks()
        counts = self.counts[samples]
        columns = {"sample": pa.array(np.repeat(np.arange(len(samples)) + first, counts))}
        if JOINED in table.column_names:
            # A removed piece may have separated two chunks of a document, or been one of them.
            ends = np.concatenate([[0], np.cumsum(counts)])
            columns[JOINED] = pa.array(joined_pieces(ends, table["document"].to_numpy()))
        for name, values in columns.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table

    def note(self, proof: Proof) -> None:
        step = self.bucket.file_samples
        for number in (*self.dirty, *self.dropped):
            samples = np.arange(number * step, min((number + 1) * step, len(self.bucket)))
            for row, tokens, _ in self._contents(samples):
                proof.before(_name(self.table, row), tokens, kept=bool(self.stays[row]))

    def write(self, layouts: dict[str, Layout], proof: Proof) -> pa.Table:
        changes, step = self.changes, self.bucket.file_samples
        for number in self.dirty:
            chosen = self.source[number * step : (number + 1) * step]
            table = self.of(chosen, number * step)
            self._write_file(number, chosen, layouts, table, proof)
            write_table(table, changes.folder / self.names[number], **TABLE)
            changes.changed.append(self.names[number])
        for number in self.dropped:
            changes.drop(self.names[number], *self._files(number))
        entry = next(each for each in changes.described["buckets"] if each["path"] == self.bucket.path)
        kept = self.of(self.source, 0)
        heads, tokens = int((kept["start"].to_numpy() == 0).sum()), int(pc.sum(kept["length"]).as_py() or 0)
        entry |= {"samples": len(self.source), "pieces": kept.num_rows, "documents": heads, "tokens": tokens}
        return kept

    def _contents(self, samples: Longs) -> "Iterator[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]":
        for sample in samples.tolist():
            read, place = self.bucket.read([sample]), 0
            first, stop = np.searchsorted(self.owners, [sample, sample + 1]).tolist()
            for row, size in enumerate(self.table["length"][first:stop].to_pylist(), first):
                yield row, read.tokens[0, place : place + size], read.loss_mask[0, place : place + size]
                place += size

    def _write_file(
        self, number: int, samples: Longs, layouts: dict[str, Layout], table: pa.Table, proof: Proof
    ) -> None:
        bucket, changes = self.bucket, self.changes
        there = [(tokens, mask) for row, tokens, mask in self._contents(samples) if self.stays[row]]
        for row, (tokens, _) in enumerate(there):
            proof.after(_name(table, row), tokens)
            proof.look([tokens])
        owners = np.repeat(np.arange(len(samples)), self.counts[samples])
        sizes = np.array([len(tokens) for tokens, _ in there], np.int64)
        lengths = np.bincount(owners, sizes, len(samples)).astype(np.int64)
        flat, flags = (np.concatenate(each) for each in zip(*there, strict=True))
        if not layouts:
            form = FORMATS[bucket.stored_as]
            given = {"end_of_text": bucket.end_of_text, "terminate": "never", "dtype": bucket.dtype}
            given["vocabulary_size"] = changes.described.get("vocabulary_size")
            path = f"{bucket.path}/{number:05d}{form.suffix}"
            entries = Documents(flat, lengths, None, flags if bucket.masked else None)
            form.write([entries], changes.folder / path, **form.settings("write", given))
            changes.changed += self._files(number)
            return
        filled = np.arange(bucket.capacity) < lengths[:, None]
        for suffix, layout in layouts.items():
            values = np.full((layout.whole_chunks(len(samples)), bucket.capacity), layout.fill_value, layout.dtype)
            # Padding in a sample has no loss; rows after the last sample keep the fill value.
            values[: len(samples)] = False if suffix else layout.fill_value
            values[: len(samples)][filled] = flags if suffix else flat
            changes.changed += write_band(changes.folder, f"{bucket.path}{suffix}", number, values, layout)

    def _files(self, number: int) -> list[str]:
        path = self.bucket.path
        begins = [f"{path}/{number:05d}."]
        if self.bucket.stored_as == "zarr":
            begins = [
                f"{path}{suffix}/{part}" for suffix in ("", LOSS_MASK_SUFFIX) for part in (f"c/{number}/", f"{number}.")
            ]
        return [name for name in self.changes.described["files"] if name.startswith(tuple(begins))]


def _name(table: pa.Table, row: int) -> bytes:
    return f"{table['document'][row]}/{table['start'][row]}".encode()


def _measure(changes: Changes, path: str, sizes: Sequence[int], tables: Sequence[pa.Table]) -> None:
    """Measure a split or domain again, from the capacities of its buckets and their remaining pieces."""
    described = changes.described
    # The description still has the sizes of the tables before the rewriting.
    names = [changes.folder / name for name in _tables(changes, path)]
    documents = pa.concat_tables([pq.read_table(name, columns=[N_TOKENS], partitioning=None) for name in names])
    counts = [np.bincount(table["sample"].to_numpy()) for table in tables]
    capacities = np.repeat(sizes, [len(each) for each in counts])
    bounds = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    pieces = {
        name: np.concatenate([table[column].to_numpy() for table in tables])
        for name, column in (("documents", "document"), ("starts", "start"), ("sizes", "length"))
    }
    split, _, folder = path.partition("/")
    domain = next((each["domain"] for each in described.get("domains", ()) if each["folder"] == folder), None)
    once = described["strategy"] == "interleaved" and domain not in described["padded_domains"]
    plan = Plan(documents[N_TOKENS].to_numpy(), capacities, bounds, **pieces, omitted=int(once))
    label = described["splits"][split]["label"]
    found = measures.measure(plan, label, described["capacities"])
    if "domains" in described:
        for each in described["domains"]:
            if (each["split"], each["folder"]) == (split, folder):
                each.update(composition_numbers(found))
        of_split = [composition_of(each) for each in described["domains"] if each["split"] == split]
        found = measures.combine(of_split, label)
    if split == "train" and not found.samples:
        raise FormatError("no samples would remain to train on: run the recipe again without the documents")
    described["splits"][split] = composition_numbers(found)


def _lay_out(changes: Changes, layouts: Mapping[int, dict[str, Layout]]) -> None:
    described, folder = changes.described, changes.folder
    gone = {each.path for each in spec.open_composed(folder).buckets} - {each["path"] for each in described["buckets"]}
    for name in list(described["files"]):
        if name.rpartition("/")[0].removesuffix(LOSS_MASK_SUFFIX) in gone:
            changes.drop(name)
    arrays = {
        f"{each['path']}{suffix}": (layout, each["samples"])
        for each in described["buckets"]
        for suffix, layout in layouts[each["capacity"]].items()
    }
    attributes = {name: described[name] for name in ATTRIBUTES} | ({"loss_mask": True} if described["masked"] else {})
    changes.changed += lay_out(folder, arrays, attributes)


def _identify(changes: Changes) -> None:
    described = changes.described
    for each in described["buckets"]:
        begins = (f"{each['path']}/", f"{each['path']}{LOSS_MASK_SUFFIX}/", f"pieces/{each['path']}/")
        names = {name for name in (*described["files"], *changes.changed) if name.startswith(begins)}
        names = {name for name in names - set(changes.dropped) if name.rpartition("/")[2] not in METADATA}
        digests = [(name, changes.entry(name)["sha256"]) for name in sorted(names)]
        about = [described["stored_as"], described["dtype"], described["loss_mask"], described["end_of_text"]]
        each["identity"] = bucket_identity(about, each["samples"], digests)


BUCKETS = """@misc{liu2024bucket,
  title = {Bucket Pre-training is All You Need},
  author = {Liu, Hongtao and Peng, Qiyao and Yang, Qing and Liu, Kai and Xu, Hongyan},
  year = {2024},
  eprint = {2407.07495},
  archivePrefix = {arXiv}
}"""
MOST_PIECES = 10
SEQ_LENGTHS = "seq_lengths"
"""Column with the tokens of each piece of a sample, named as in TRL."""


@dataclass(frozen=True, kw_only=True)
class ComposedInspection(Inspection):
    """Description of one split of a composed dataset, with one of its samples."""

    counts: Mapping[str, int]
    """Number of samples in each bucket of the split, by its path."""
    dtype: str
    stored_bytes: int
    bucket: str
    sample: int
    """The sample's number within its bucket."""
    capacity: int
    pieces: tuple[Mapping[str, Any], ...]
    """Rows of the table of pieces."""
    lossless: int
    """Tokens of the sample without a loss, including padding."""

    def __str__(self) -> str:
        held = ", ".join(f"{path} {count:,} samples" for path, count in self.counts.items())
        tokens = sum(piece["length"] for piece in self.pieces)
        of = f"{tokens:,} tokens of {len(self.pieces):,} pieces, {self.capacity - tokens:,} of padding"
        lines = [
            f"{self.path}  split {self.split}: {held}, {self.dtype}",
            f"{self.stored_bytes:,} bytes stored",
            f"sample {self.row}: {self.bucket} number {self.sample:,}; {of}; no loss on {self.lossless:,}",
        ]
        for piece in self.pieces[:MOST_PIECES]:
            name = piece.get("id") or f"document {piece['document']:,}"
            stop = piece["start"] + piece["length"]
            part = "a chunk" if any(each.get(JOINED) for each in self.pieces) else "cut"
            whole = "whole" if piece["head"] and piece["tail"] else part
            lines.append(f"  {name}  {piece.get('url') or ''}  tokens {piece['start']:,} to {stop:,}, {whole}")
        if len(self.pieces) > MOST_PIECES:
            lines.append(f"  and {len(self.pieces) - MOST_PIECES:,} more")
        shown = "  (no tokenizer to decode it)" if self.text is None else printable(self.text)
        return f"{as_lines(lines)}\n{shown}"

    __repr__ = __str__


@dataclass(frozen=True)
class ComposedRows(TokenRows):
    """Samples of one split without padding, bucket after bucket; one block is in memory at a time."""

    buckets: tuple[spec.ComposedBucket, ...]
    rows: int
    tokens: int

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield blocks of samples: ``capacity``, ``domain`` if there are domains, ``seq_lengths`` and tokens."""
        before = 0
        for bucket in self.buckets:
            step = max(BLOCK_TOKENS // bucket.capacity, 1)
            last = min(stop - before, len(bucket))
            for first in range(max(start - before, 0), last, step):
                yield self._read_block(bucket, np.arange(first, min(first + step, last)))
            before += len(bucket)

    def _read_block(self, bucket: spec.ComposedBucket, samples: Longs) -> pa.Table:
        found = bucket.read(samples)
        lengths = np.array([sizes.sum() for sizes in found.piece_sizes], np.int64)
        filled = np.arange(bucket.capacity) < lengths[:, None]
        names = {"capacity": pa.array(np.full(len(samples), bucket.capacity), pa.int64())}
        if any(each.domain for each in self.buckets):
            names |= {"domain": pa.array([bucket.domain] * len(samples), pa.string())}
        pieces = pa.array([sizes.tolist() for sizes in found.piece_sizes], pa.list_(pa.int32()))
        flags = found.loss_mask[filled] if bucket.masked else None
        return token_table(pa.table(names), found.tokens[filled], lengths, flags, **{SEQ_LENGTHS: pieces})


@result
class ComposedResult(Result):
    """Samples in buckets for a loader, with plain tables of their pieces and documents."""

    name: ClassVar[str] = "composed"
    description: ClassVar[str] = DESCRIPTION
    tags: ClassVar[tuple[str, ...]] = ("pretokenized", "packed")
    citation: ClassVar[str] = BUCKETS
    fewer_files: ClassVar[str] = "a larger composed.shard_bytes"
    smaller_files: ClassVar[str] = "a smaller composed.shard_bytes"
    feed: ClassVar[str] = "buckets"
    lengths: ClassVar[str] = "documents/**/*.parquet"
    lengths_are_ended: ClassVar[bool] = True

    def documents(self, described: Mapping[str, Any]) -> int:
        """Return the number of documents, including those without tokens."""
        return sum(each["documents"] + each["empty_documents"] for each in described["splits"].values())

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return the samples of each split and the measures of the composition."""
        parts = []
        for split, counts in described["splits"].items():
            sizes = {each["capacity"] for each in described["buckets"] if each["split"] == split}
            figures = f"r_pad {counts['r_pad']:.2%}, r_tru {counts['r_tru']:.2%}, r_cat {counts['r_cat']:.2f}"
            if counts.get("compared_pairs"):
                figures += f", related {counts['related']:.3f} ({counts['related_by_chance']:.3f} by chance)"
            samples = f"{counts['samples']:,} samples of {', '.join(f'{size:,}' for size in sorted(sizes))} tokens"
            parts.append(f"{split} {samples} of {counts['documents']:,} documents: {figures}")
        return "; ".join(parts)

    def read_back(self, folder: Path) -> str:
        """Read the first samples as a loader would, and describe them."""
        bucket = next(each for each in spec.open_composed(folder).buckets if each.split == "train")
        samples = bucket.read(np.arange(min(8, len(bucket))))
        shape, kept = tuple(samples.tokens.shape), float(samples.loss_mask.mean())
        return f"{bucket.path}: tokens {samples.tokens.dtype} {shape}, {kept:.1%} of them in the loss"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables, and the samples by capacity if plain `datasets` reads their format."""
        depth = "*/" if "domains" in described else ""
        capacities = sorted({each["capacity"] for each in described["buckets"]})
        places = {"pieces": f"pieces/{{}}/{depth}*/*.parquet", "documents": f"documents/{{}}/{depth}*.parquet"}
        if described["stored_as"] == "token-parquet":
            places = {str(each): f"{{}}/{depth}{each}/*.parquet" for each in capacities} | places
        configs: list[dict[str, Any]] = []
        for name, place in places.items():
            here = [each for each in described["buckets"] if not name.isdigit() or each["capacity"] == int(name)]
            splits = described["splits"] if name == "documents" else dict.fromkeys(each["split"] for each in here)
            files = [{"split": split, "path": f"composed/{place.format(split)}"} for split in splits]
            configs.append({"config_name": name, "data_files": files} | ({} if configs else {"default": True}))
        return configs

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of the splits, and the definition of a sample."""
        counts = ("samples", "documents", "tokens")
        splits = sorted(described["splits"].items(), reverse=True)
        rows = [[split, *(each[name] for name in counts)] for split, each in splits]
        shown = Table([Column("split"), *(Column(name, "count") for name in counts)], rows).markdown()
        about = (
            "A sample is whole documents and parts of documents end to end, filled up to the capacity of its bucket."
        )
        if described.get(JOINED):
            about += (
                " Where it has chunks of a document with others between, it is one text: attention and positions run "
                f"on in pieces that are `{JOINED}`."
            )
        return f"{shown}\n\n{about}"

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # all is described
        """Return the measures of each split, with its buckets, and a table of the domains."""
        parts, measured = [], []
        for split, counts in sorted(described["splits"].items(), reverse=True):
            measured.append(composition_of(counts))
            parts += [f"**{split}**", measured[-1].markdown()]
        if "domains" in described:
            head = ["split", "domain", "documents", "samples", "r_pad %", "r_tru %", "r_cat"]
            rows = []
            for each in described["domains"]:
                figures = [f"{100 * each['r_pad']:.4f}", f"{100 * each['r_tru']:.2f}", f"{each['r_cat']:.2f}"]
                counts = [f"{each[name]:,}" for name in ("documents", "samples")]
                rows.append([each["split"], f"`{each['folder']}`", *counts, *figures])
            parts.append(table(head, rows, 5))
        return "\n\n".join([*parts, measures.legend_of(measured)])

    def cut(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # all is described
        """Describe the share of training tokens that are in no sample."""
        dropped = described["splits"]["train"]["dropped"]
        return f"{dropped:.2%} of the tokens of `train` are in no sample." if dropped else ""

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of one training bucket, and code that reads its format directly."""
        bucket = next(each for each in described["buckets"] if each["split"] == "train")
        shard = f"composed/{bucket['path']}/00000"
        if described["stored_as"] == "zarr":
            directly = f'zarr.open_group("composed", mode="r")["{bucket["path"]}"]'
            code = f"import zarr\n\nrows = {directly}  # (samples, {bucket['capacity']})"
        else:
            suffix = FORMATS[described["stored_as"]].suffix
            code = (
                f"import longcrawl as lc\n\nshard = lc.formats.open_shard("
                f'"{shard}{suffix}", end_of_text={described["end_of_text"]})\n'
                "shard.document(0)  # the first sample, without its padding"
            )
        return {
            "capacity": str(bucket["capacity"]),
            "domain": f", domain={json.dumps(bucket['domain'], ensure_ascii=False)}" if bucket["domain"] else "",
            "directly": code,
            "stored_as": "rows of Zarr arrays" if described["stored_as"] == "zarr" else "entries of token shards",
        }

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe the token type, masked tokens, and tokens and documents that are in no sample."""
        end, train = described["end_of_text"], described["splits"]["train"]
        fills = "It also fills samples up, where no loss is due: their pieces say how long they are."
        once = described["strategy"] == "interleaved"
        ends = "ends samples of interleaved documents with room for it" if once else "ends each document"
        limits = [f"Tokens are {described['dtype']}; token {end} {ends}. {fills}"]
        if described.get(JOINED) and not once:
            limits.append(
                f"Samples with chunks of a document are one text with token {end} within: readers that begin again "
                "after it hide the far context."
            )
        if described["json_escaped"]:
            limits.append("Tokens are those of JSON-escaped text: a newline is a backslash and an n.")
        if described["loss_mask"]:
            limits.append("Some tokens are masked: compute no loss where the loss mask is false.")
        if described["masked"] and described["stored_as"] not in HOLDS_MASK:
            limits.append(f"Documents had a loss mask, which {described['stored_as']} does not hold: it is lost.")
        if train["dropped"]:
            limits.append(f"{train['dropped']:.2%} of the tokens are in no sample.")
        if train["empty_documents"]:
            limits.append(f"{train['empty_documents']:,} documents of train have no tokens and are in no sample.")
        return limits

    def verify(self, folder: Path) -> Verification:
        """Compare every file with its checksum, and report files that the description does not list."""
        return Verification.by_description(folder, DESCRIPTION, spec.read_description(folder))

    def inspect(self, folder: Path, split: str, row: int) -> ComposedInspection:
        """Describe a split and return one of its samples; buckets are numbered one after the other."""
        opened = spec.open_composed(folder)
        buckets = [each for each in opened.buckets if each.split == split]
        if not buckets:
            known = ", ".join(dict.fromkeys(each.split for each in opened.buckets))
            raise FormatError(f"{folder} has no split {split!r}; known: {known}")
        if not 0 <= row < (total := sum(map(len, buckets))):
            raise FormatError(f"{folder} split {split!r} has samples 0 to {total - 1:,}, not {row}")
        ends = np.cumsum([*map(len, buckets)])
        place = int(np.searchsorted(ends, row, "right"))
        bucket, sample = buckets[place], row - int(ends[place] - len(buckets[place]))
        read = bucket.read([sample])
        table_of_pieces = folder / "pieces" / bucket.path / f"{sample // bucket.file_samples:05d}.parquet"
        pieces = read_table(table_of_pieces, condition=pc.field("sample") == sample).to_pylist()
        files = opened.described["files"].items()
        return ComposedInspection(
            path=str(folder),
            split=split,
            row=row,
            row_id=pieces[0].get("id"),
            url=pieces[0].get("url"),
            text=decode_document(Path(opened.path), read.tokens[0, : pieces[0]["length"]].tolist(), opened.described),
            counts={each.path: len(each) for each in buckets},
            dtype=bucket.dtype,
            stored_bytes=sum(each["bytes"] for name, each in files if name.startswith(f"{split}/")),
            bucket=bucket.path,
            sample=sample,
            capacity=bucket.capacity,
            pieces=tuple(pieces),
            lossless=int((~read.loss_mask).sum()),
        )

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:
        """Rewrite the files that contain some documents; see :class:`longcrawl.core.outputs.Result`."""
        described = spec.read_description(folder)
        if not isinstance(settings, ComposedOutput):
            raise FormatError(
                f"{folder} was not written by the output composed: run its recipe again without the documents"
            )
        layouts = {}
        if described["stored_as"] == "zarr":
            about = (described["dtype"], described["end_of_text"])
            capacities = {each["capacity"] for each in described["buckets"]}
            layouts = {each: settings.layouts(each, *about, masked=described["masked"]) for each in capacities}
        return without_documents(folder, ids, layouts)

    def token_rows(self, folder: Path) -> dict[str, ComposedRows]:
        """Return the samples of each split that has any."""
        opened = spec.open_composed(folder)
        found = {}
        for split in sorted({each.split for each in opened.buckets}, reverse=True):
            buckets = tuple(each for each in opened.buckets if each.split == split and len(each))
            tokens = sum(each.capacity * len(each) for each in buckets)
            found[split] = ComposedRows(buckets, sum(map(len, buckets)), tokens)
        return {split: each for split, each in found.items() if each.rows}
