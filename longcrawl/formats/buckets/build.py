"""The plan of a composed dataset, in files, and the second pass that builds bands or shards of samples by it.

The plan has the samples of each split and domain, their measures, and where each piece of each sample comes from. The
pieces of some samples are gathered by their places, and written with the table that says what they are.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.composition.measures import Bucket, Composition, combine, measure, measure_pools
from longcrawl.composition.plan import JOINED, Longs, Strategy, document_parts, joined_pieces
from longcrawl.composition.relatedness import DOCUMENTS, Relatedness, neighbours, relate, weigh
from longcrawl.composition.relatedness import TOKENS as FIRST_TOKENS
from longcrawl.formats.documents.spec import UNKNOWN
from longcrawl.formats.rectangle.build import Layout, write_band
from longcrawl.formats.rectangle.spec import LOSS_MASK_SUFFIX
from longcrawl.formats.shards.shard import N_TOKENS, TOKENS, Documents
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.formats.shards.writing import WrittenShard
from longcrawl.formats.spill import ORDER, PLACE, PLANNED, checked, read_batches, read_order, read_places
from longcrawl.formats.token_rows import FOUND, ORIGINS
from longcrawl.storage.files import whole_file, write_values
from longcrawl.storage.stored_tables import GroupedTable
from longcrawl.tokens.loss_mask import LOSS_MASK

DOMAIN = "domain"
KEPT = (*ORIGINS, *FOUND, DOMAIN, N_TOKENS)
GROUP_TOKENS = 1 << 22
"""Tokens of samples that are gathered at a time for a shard, unless one sample has more."""
GROUP_DOCUMENTS = 50_000
GROUP_SAMPLES = 1 << 18
"""Samples whose pieces are put in order at a time."""
PIECE = np.dtype([("document", "<i8"), ("start", "<i8"), ("size", "<i8")])
"""A piece of a plan in its file."""


@dataclass(frozen=True)
class PlannedBucket:
    """The samples of one capacity of one split and domain."""

    path: str
    """``train/2048``, or ``train/web/2048``."""
    capacity: int
    samples: int
    pieces: int
    documents: int
    """Whose first token is in one of them."""
    tokens: int
    """Of documents, without padding."""
    plan: int
    first: int
    """The first of its samples in the plan."""
    first_document: int


@dataclass(frozen=True)
class PlannedSplit:
    """The plan of one split, or of one domain of it."""

    split: str
    domain: str | None
    """The value; None where there are no domains, or for documents without one."""
    folder: str
    """Of the domain; empty where there are no domains."""
    plan: int
    first_document: int
    """Place of its first document in the order of all."""
    documents: int
    pieces: tuple[int, ...]
    """In each bucket."""
    composition: Composition

    @property
    def path(self) -> str:
        """Where its buckets are."""
        return f"{self.split}/{self.folder}" if self.folder else self.split

    @property
    def name(self) -> str:
        """What a mix calls the domain: its value; its folder where that is none, empty or called as none is."""
        return self.domain if self.domain and self.domain != UNKNOWN else self.folder

    def buckets(self) -> Iterator[PlannedBucket]:
        """Return the buckets that have samples, the smallest first."""
        first = 0
        for bucket, pieces in zip(self.composition.buckets, self.pieces, strict=True):
            path, place = f"{self.path}/{bucket.capacity}", (self.plan, first, self.first_document)
            if bucket.samples:
                counts = (bucket.samples, pieces, bucket.documents, bucket.tokens)
                yield PlannedBucket(path, bucket.capacity, *counts, *place)
            first += bucket.samples

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Any]) -> "PlannedSplit":
        """Read what ``dataclasses.asdict`` made, and JSON of it."""
        known = {**numbers, "pieces": tuple(numbers["pieces"]), "composition": composition_of(numbers["composition"])}
        return cls(**known)


def composition_of(numbers: Mapping[str, Any]) -> Composition:
    """Read a composition from the numbers that :func:`composition_numbers` gives, or ``dataclasses.asdict``."""
    names = Composition.__dataclass_fields__
    known = {name: numbers[name] for name in names if name != "buckets"}
    return Composition(**known, buckets=tuple(Bucket(**each) for each in numbers["buckets"]))


def composition_numbers(composition: Composition) -> dict[str, Any]:
    """Return a composition for JSON: its counts, and the ratios that follow from them."""
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

    In memory are 40 bytes for each sample. What else is known of samples and pieces is mapped.

    Args:
        spill: the folder to write to.
        strategy: its samples are shuffled within their buckets, whatever their order in its plan.
        seed: of the shuffle.
        lengths: whole numbers [documents], tokens of each; they may be mapped.
        where: split, domain and its folder, number of the plan, place of the first document.
    """
    kind = np.min_scalar_type(max(len(lengths), int(lengths.max(initial=0))))
    columns: list[tuple[str, npt.DTypeLike]] = [("keys", np.uint64), ("capacities", np.int32), ("counts", np.int32)]
    columns += [("document", kind), ("start", kind), ("size", kind)]
    measured, pairs, first, joined = list[Composition](), list[Longs](), 0, False
    with ExitStack() as files:
        # Lists of arrays would stay in memory beside what they are joined to.
        opened = {name: files.enter_context(TemporaryFile(dir=spill)) for name, _ in columns}
        for pool in strategy.pools(lengths):
            plan = strategy.plan_pool(pool)
            measured.append(measure(plan, strategy.label, strategy.capacities))
            joined = joined or bool(plan.joined.any())
            pairs.append(neighbours(plan, first))
            of_samples = plan.sample_keys(seed, first), plan.capacities, np.diff(plan.bounds)
            of_pieces = plan.documents + first, plan.starts, plan.sizes
            for (name, stored), values in zip(columns, (*of_samples, *of_pieces), strict=True):
                opened[name].write(values.astype(stored).tobytes())
            first += len(pool)
        made = {name: _mapped(opened[name], stored) for name, stored in columns}
    pieces, bounds = _save_plan(spill, where[3], made)
    parts = _parts(spill, pieces, bounds) if joined else pieces["size"]
    write_values(_pairs_file(spill, where[3]), np.concatenate(pairs))
    counts = [int(made["counts"][made["capacities"] == capacity].sum()) for capacity in strategy.capacities]
    composition = measure_pools(measured, strategy.label, lengths, parts)
    return PlannedSplit(*where, len(lengths), tuple(counts), composition)


def _pairs_file(spill: Path, plan: int) -> Path:
    return spill / f"plan-{plan:05d}.pairs"


def measure_related(spill: Path, plan: int, first: int, documents: int) -> Relatedness:
    """Measure how related documents are that follow each other in the samples of a plan.

    Args:
        spill: the folder of the first pass.
        plan: its number.
        first: place of its first document in the order of all.
        documents: how many it has.
    """
    pairs = np.fromfile(checked(_pairs_file(spill, plan), PLANNED), np.int64).reshape(-1, 2)
    places = read_order(spill, first, first + min(documents, DOCUMENTS))
    beginnings: list[npt.NDArray[Any]] = [np.zeros(0, np.uint16)] * len(places)
    for chosen, batch, rows in read_batches(spill, places) if len(pairs) else ():
        lists = batch.column(TOKENS)
        values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
        for place, row in zip(chosen.tolist(), rows.tolist(), strict=True):
            start, stop = int(offsets[row]), int(offsets[row + 1])
            # The last token ends the document, as it does all of them.
            beginnings[place] = values[start : max(stop - 1, start)][:FIRST_TOKENS].copy()
    return relate(pairs, weigh(beginnings))


def by_split(plans: Sequence[PlannedSplit]) -> dict[str, Composition]:
    """Measure each split, over its domains."""
    splits = dict.fromkeys(each.split for each in plans)
    found = {}
    for split in splits:
        here = [each.composition for each in plans if each.split == split]
        found[split] = combine(here, here[0].label)
    return found


def _save_plan(spill: Path, number: int, made: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], Longs]:
    """Write a plan, its samples in their final order, so that the pieces of any can be read; return both, mapped."""
    order = np.lexsort((made["keys"], made["capacities"]))
    counts = made["counts"].astype(np.int64)
    firsts = np.cumsum(counts) - counts
    path = spill / f"plan-{number:05d}"
    write_values(path.with_suffix(".bounds"), np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64))
    with whole_file(path.with_suffix(".pieces")) as beside, beside.open("wb") as file:
        for block in np.split(order, range(GROUP_SAMPLES, len(order), GROUP_SAMPLES)):
            several, ends = counts[block], np.cumsum(counts[block])
            chosen = np.arange(several.sum()) + np.repeat(firsts[block] - (ends - several), several)
            pieces = np.empty(len(chosen), PIECE)
            for name in PIECE.names or ():
                pieces[name] = made[name][chosen]
            file.write(pieces.tobytes())
    with path.with_suffix(".pieces").open("rb") as file, path.with_suffix(".bounds").open("rb") as bounds:
        return _mapped(file, PIECE), _mapped(bounds, np.int64)


def _parts(spill: Path, pieces: npt.NDArray[Any], bounds: Longs) -> npt.NDArray[Any]:
    """Return the tokens of each document in each sample, see :func:`document_parts`, mapped."""
    with TemporaryFile(dir=spill) as file:
        for first in range(0, len(bounds) - 1, GROUP_SAMPLES):
            borders = bounds[first : first + GROUP_SAMPLES + 1]
            here = pieces[borders[0] : borders[-1]]
            _, sizes = document_parts(borders - borders[0], here["document"], here["size"])
            file.write(sizes.astype("<i8").tobytes())
        return _mapped(file, "<i8")


def _mapped(file: IO[bytes], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Map a file from its beginning; an empty one cannot be mapped."""
    return np.memmap(file, kind, "r") if file.seek(0, os.SEEK_END) else np.empty(0, kind)


@dataclass(frozen=True)
class TokenFacts:
    """What all spilled tokens have in common."""

    dtype: str
    masked: bool
    """Whether there is a token that no loss is due on."""


@dataclass(frozen=True)
class SampleFile:
    """Which samples of a bucket a file or shard has."""

    bucket: PlannedBucket
    number: int
    first: int
    """Number of its first sample in the bucket."""
    samples: int
    tokens: TokenFacts
    joined: bool
    """Whether the table of pieces has the column ``joined``."""

    @property
    def name(self) -> str:
        """Where the file is, without its ending: ``train/web/2048/00000``."""
        return f"{self.bucket.path}/{self.number:05d}"


@dataclass(frozen=True, eq=False)
class PieceStretch:
    """The pieces of consecutive samples of a plan; arrays are int64 [pieces]."""

    samples: Longs
    """Counted from the first sample of the stretch."""
    documents: Longs
    """Counted within the split and domain."""
    starts: Longs
    sizes: Longs
    recorded: pa.Table
    """What is known of the document of each: its id and the like, and ``n_tokens``."""
    spilled: npt.NDArray[Any]
    """Where the document of each was spilled, see :data:`PLACE`."""

    @property
    def lengths(self) -> Longs:
        """How many tokens each sample has: int64 [samples]."""
        return np.asarray(np.add.reduceat(self.sizes, self._firsts()), np.int64)

    def places(self, capacity: int | None = None) -> Longs:
        """Return where each piece begins, of samples of ``capacity`` tokens or, without one, end to end."""
        before = np.cumsum(self.sizes) - self.sizes
        if capacity is None:
            return before
        firsts = self._firsts()
        counts = np.diff(np.append(firsts, len(self.samples)))
        return np.asarray(before - np.repeat(before[firsts], counts) + self.samples * capacity, np.int64)

    def table(self, file: SampleFile, first: int) -> pa.Table:
        """Return a row for each piece, ``first`` being the number of the first sample in its bucket."""
        bounds = np.append(self._firsts(), len(self.sizes))
        joined = {JOINED: pa.array(joined_pieces(bounds, self.documents))} if file.joined else {}
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

    def _firsts(self) -> npt.NDArray[np.intp]:
        """Return the first piece of each sample."""
        return np.flatnonzero(np.diff(self.samples, prepend=-1))


def _read_pieces(spill: Path, bucket: PlannedBucket, first: int, stop: int) -> PieceStretch:
    path, first, stop = spill / f"plan-{bucket.plan:05d}", bucket.first + first, bucket.first + stop
    for file in (path.with_suffix(".bounds"), path.with_suffix(".pieces"), spill / ORDER):
        checked(file, PLANNED)
    bounds = np.fromfile(f"{path}.bounds", np.int64, count=stop - first + 1, offset=first * 8)
    count = int(bounds[-1] - bounds[0])
    pieces = np.fromfile(f"{path}.pieces", PIECE, count=count, offset=int(bounds[0]) * PIECE.itemsize)
    documents = pieces["document"].astype(np.int64)
    wanted, back = np.unique(documents, return_inverse=True)
    places = np.memmap(spill / ORDER, PLACE, "r")[wanted + bucket.first_document]
    recorded = read_places(spill, places, (*ORIGINS, DOMAIN, N_TOKENS)).take(pa.array(back))
    samples = np.repeat(np.arange(stop - first), np.diff(bounds))
    return PieceStretch(samples, documents, pieces["start"], pieces["size"], recorded, places[back])


def _gather(spill: Path, pieces: PieceStretch, name: str, places: Longs, out: npt.NDArray[Any]) -> None:
    """Copy pieces of the spilled column ``name`` to ``places`` of ``out``, which is filled elsewhere."""
    flat = out.reshape(-1).view(np.uint8) if out.dtype == np.bool_ else out.reshape(-1)
    for chosen, batch, rows in read_batches(spill, pieces.spilled):
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
    """Write one band of samples into the arrays of its bucket; return the names of the files.

    Args:
        spill: the folder of the first pass.
        target: the Zarr group.
        band: which samples.
        layouts: of the bucket's arrays, by what follows the bucket in their names.
        table: of their pieces.
    """
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


def write_shard(
    spill: Path, target: Path, shard: SampleFile, name: str, settings: Mapping[str, Any], table: GroupedTable
) -> WrittenShard:
    """Write one token shard whose entries are samples without their padding."""
    shard_format = FORMATS[name]
    file = target / f"{shard.name}{shard_format.suffix}"
    return shard_format.write(_entries(spill, shard, table), file, **settings)


def _entries(spill: Path, shard: SampleFile, table: GroupedTable) -> Iterator[Documents]:
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


def write_documents(spill: Path, target: Path, name: str, start: int, stop: int) -> str:
    """Write the table of documents ``start`` to ``stop`` of the order; return its name."""
    with whole_file(target / name) as beside, GroupedTable(beside) as file:
        for first in range(start, stop, GROUP_DOCUMENTS):
            file.add(read_places(spill, read_order(spill, first, min(first + GROUP_DOCUMENTS, stop)), KEPT))
    return name
