"""Composed datasets as the end of a crawl or a run, see :mod:`longcrawl.formats.buckets.spec`."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.composition.comparison import StrategyName, named_strategy
from longcrawl.composition.plan import JOINED, Strategy
from longcrawl.composition.strategies import KEEP_ORDER, Buckets, Planner
from longcrawl.core.outputs import WriteTask, are_shuffled, output
from longcrawl.core.stages import SORT_KEY, Stage, column
from longcrawl.engines.base import Engine
from longcrawl.errors import FormatError, StageError
from longcrawl.formats.buckets import build
from longcrawl.formats.buckets.build import PlannedBucket, PlannedSplit, TokenFacts
from longcrawl.formats.buckets.spec import DESCRIPTION, FILE_DOCUMENTS, HOLDS_MASK, VERSION
from longcrawl.formats.documents.spec import folder_name
from longcrawl.formats.order import Stretch, exchange_order, order_documents
from longcrawl.formats.rectangle.build import BAND, Checksum, Layout, lay_out
from longcrawl.formats.rectangle.spec import LOSS_MASK_SUFFIX
from longcrawl.formats.shards.entries import check_text_column, entries_of
from longcrawl.formats.shards.shard import N_TOKENS, TOKENS
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.formats.shards.writing import OnLoss, TokenType
from longcrawl.formats.spill import spill_documents
from longcrawl.formats.splits import split_rows
from longcrawl.formats.token_output import TokenOutput, TokenWriter
from longcrawl.formats.token_rows import FOUND, ORIGINS
from longcrawl.storage import sealed
from longcrawl.storage.files import file_entries, whole_file, whole_files, write_text
from longcrawl.storage.place import bring
from longcrawl.storage.stored_tables import GroupedTable
from longcrawl.tokens.loss_mask import LOSS_MASK, MASKED
from longcrawl.tokens.windows import WINDOWS, Windows

PLANS = "plans.json"
CHUNK_TOKENS = 16_384
"""Tokens of samples that are decoded at once, unless one sample has more."""

NO_WINDOWS = "composed cuts documents where its plan says: leave the stage windows out, which would cut them before"

Format = Literal["zarr", "gpt-simple", "datatrove", "megatron", "token-parquet"]


@output("composed")
class ComposedOutput(TokenOutput):
    """Write a composed dataset, see :mod:`longcrawl.formats.buckets.spec`.

    ``strategy`` and the fields up to ``chunk_tokens`` are those of :func:`longcrawl.tokens.named_strategy`; whatever
    the strategy, the samples of a bucket are shuffled by ``seed``. ``heldout`` is a fraction below 1 of all documents,
    or a whole number of them, of each domain where there are several: the first of the order. They are composed by
    themselves. ``domains`` names a column of text, such as ``source`` or ``language``: each of its values is composed
    by itself.

    ``format`` is that of the samples: ``"zarr"``, with ``zarr_format``, ``codec`` and ``checksum`` as of the rectangle,
    or a format of token shards of ``shard_bytes`` at most. ``end_of_text`` is taken from the stage ``tokenize`` where
    it is left out, and so are ``vocabulary_size``, which every id must be below, and ``dtype``: "auto" is uint16 for
    65,536 ids or fewer, and what the documents have where no vocabulary is known. ``on_loss`` says what is done about a
    loss mask that the format cannot hold.

    Peak memory is that of one band of 2,048 samples of the largest capacity, 2.7 times over, or some 60 MB for shards,
    whatever the number of documents (benchmarks/composed_write.py); planning takes some 110 bytes for each document.
    """

    second_pass = (
        "strategy", "capacities", "padding_threshold", "planner", "seed", "pool_size", "chunk_tokens", "heldout",
        "format", "zarr_format", "codec", "checksum", "shard_bytes", "on_loss",
    )  # fmt: skip
    plans_documents = True

    strategy: StrategyName = "buckets"
    capacities: tuple[int, ...] = (2048, 4096, 8192, 16384)
    padding_threshold: float = 0.05
    planner: Planner = "algorithm-1"
    seed: int = 0
    pool_size: int | None = None
    chunk_tokens: int = Buckets.chunk_tokens
    heldout: float = 0
    domains: str | None = None
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

    def chosen(self) -> Strategy:
        """Return the strategy; raise StageError unless the capacities ascend and fit it."""
        settings = (self.padding_threshold, self.planner, self.seed, self.pool_size, self.chunk_tokens)
        return named_strategy(self.strategy, self.capacities, *settings)

    @property
    def joins(self) -> bool:
        """Whether the tables of pieces have the column ``joined``."""
        return self.planner == "interleaved"

    def layouts(self, capacity: int, dtype: str, end_of_text: int, *, masked: bool) -> dict[str, Layout]:
        """Return the layouts of a bucket's arrays by what follows the bucket in their names."""
        chunk = (_chunk_rows(capacity), capacity)
        tokens = Layout(capacity, dtype, end_of_text, self.zarr_format, self.codec, chunk, self.checksum)
        mask = {LOSS_MASK_SUFFIX: replace(tokens, dtype="bool", fill_value=True)}
        return {"": tokens} | (mask if masked else {})

    def writer(self, stages: Sequence[Stage]) -> "ComposedWriter":
        """Take end of text and tokenizer from ``tokenize``, and refuse windows, which would cut documents before."""
        tokenize = self.find_tokenize(stages)
        if any(stage.name == Windows.name for stage in stages):
            raise StageError(NO_WINDOWS)
        related = next((stage.name for stage in stages if stage.relates), None)
        if related is not None and self.planner not in KEEP_ORDER:
            raise StageError(
                f"composed.planner {self.planner!r} would part the documents that {related} puts together: set "
                f"composed.planner to {' or '.join(KEEP_ORDER)}"
            )
        return ComposedWriter(self, are_shuffled(stages), tokenize=tokenize)


@dataclass(frozen=True)
class ComposedWriter(TokenWriter):
    """Writes one composed dataset."""

    spills = (*TokenWriter.spills, "facts")
    settings: ComposedOutput

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """First pass: keep the tokens of one part, and where they came from."""
        masked = False

        def kept(table: pa.Table) -> pa.Table:
            nonlocal masked
            columns = self._kept_columns(table)
            if LOSS_MASK in columns:
                masked = masked or not columns[LOSS_MASK].values.to_numpy().all()
            return pa.table(columns)

        spill_documents(map(kept, tables), spill, part, shuffled=self.shuffled, group=build.DOMAIN, sizes=_sizes)
        write_text(spill / f"{part:05d}.facts", json.dumps({"masked": bool(masked)}))

    def _kept_columns(self, table: pa.Table) -> dict[str, Any]:
        """Return what is spilled of documents: a document without tokens stays so, any other one ends once."""
        domains = self.settings.domains
        _check_columns(table, domains)
        empty = pc.fill_null(pc.equal(pc.list_value_length(column(table, TOKENS, "composed")), 0), False)
        filled = pc.invert(empty)
        end, asked, most = self._end_of_text(), self._asked_type(), self._vocabulary_size()
        ended, _ = entries_of(table.filter(filled), end, "composed", "loss_mask", asked, most)
        lengths = np.zeros(table.num_rows, np.int64)
        lengths[filled.to_numpy(zero_copy_only=False)] = ended.lengths
        columns = {name: table[name] for name in (*ORIGINS, *FOUND) if name in table.column_names}
        if domains is not None:
            columns[build.DOMAIN] = table[domains]
        if self.shuffled:
            columns[SORT_KEY] = table[SORT_KEY]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        columns |= {N_TOKENS: pa.array(lengths), TOKENS: pa.ListArray.from_arrays(offsets, pa.array(ended.tokens))}
        if ended.loss_mask is not None:
            columns[LOSS_MASK] = pa.ListArray.from_arrays(offsets, pa.array(ended.loss_mask.view(np.uint8)))
        return columns

    def order(self, spill: Path, parts: int, engine: Engine) -> None:
        """Put documents in order by an exchange, where they are too many for one process."""
        exchange_order(spill, parts, engine, shuffled=self.shuffled, grouped=self.settings.domains is not None)

    def plan(self, spill: Path, parts: int, target: Path) -> list[WriteTask]:
        """Plan the samples of each split and domain, lay out empty arrays, and list bands or shards."""
        target.mkdir(parents=True, exist_ok=True)
        by_domain = self.settings.domains is not None
        stretches, schema = order_documents(spill, parts, shuffled=self.shuffled, grouped=by_domain)
        if not any(each.sizes.any() for each in stretches):
            raise FormatError("there is no token to write: all documents are empty or were removed before the output")
        files = [spill / f"{part:05d}.facts" for part in range(parts)]
        bring(*files)
        masked = [json.loads(file.read_text("utf-8"))["masked"] for file in files]
        facts = TokenFacts(str(schema.field(TOKENS).type.value_type), any(masked))
        strategy, seed, plans = self.settings.chosen(), self.settings.seed, list[PlannedSplit]()
        for stretch in stretches:
            folder = self._folder(stretch.group)
            for split, (start, stop) in self._splits(stretch).items():
                where = (split, stretch.group, folder, len(plans), stretch.start + start)
                plans.append(build.plan_split(spill, strategy, seed, stretch.sizes[start:stop], where))
        _check_samples(plans, strategy)
        write_text(spill / PLANS, json.dumps({"facts": asdict(facts), "plans": [asdict(each) for each in plans]}))
        buckets = [bucket for each in plans for bucket in each.buckets()]
        if self.settings.format == "zarr":
            self._lay_out(target, buckets, facts)
        return [*self._sample_tasks(buckets, facts), *_document_tasks(plans), *_related_tasks(plans)]

    def write(self, spill: Path, target: Path, task: WriteTask) -> dict[str, Any]:
        """Second pass: write one band or shard with the table of its pieces, or a table of documents."""
        kind, *details = task.details
        if kind == "documents":
            return {"bucket": None, "files": file_entries(target, [build.write_documents(spill, target, *details)])}
        if kind == "related":
            return {"bucket": None, "files": {}, "related": build.measure_related(spill, *details)._asdict()}
        (here,) = details
        known: Mapping[str, str] = {}
        table = f"pieces/{here.name}.parquet"
        with whole_file(target / table) as beside, GroupedTable(beside) as pieces:
            if self.settings.format == "zarr":
                layouts = self._layouts(here.bucket.capacity, here.tokens)
                names = build.write_array_band(spill, target, here, layouts, pieces)
            else:
                settings = self._shard_settings(here.tokens.dtype)
                shard = build.write_shard(spill, target, here, self.settings.format, settings, pieces)
                names, known = [Path(each).relative_to(target).as_posix() for each in shard.files], shard.sha256
        return {"bucket": here.bucket.path, "files": file_entries(target, [*names, table], known)}

    def finish(self, spill: Path, target: Path, written: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Add the tokenizer, and describe composition, buckets and every file in ``composed.json``."""
        recorded = json.loads((spill / PLANS).read_text("utf-8"))
        facts, plans = TokenFacts(**recorded["facts"]), [PlannedSplit.from_dict(each) for each in recorded["plans"]]
        related = [each["related"] for each in written if "related" in each]
        plans = [
            replace(plan, composition=replace(plan.composition, **found))
            for plan, found in zip(plans, related, strict=True)
        ]
        if self.tokenize is not None:
            self.tokenize.encoder().save(str(target))
        files = {name: entry for each in written for name, entry in each["files"].items()}
        there = {path.relative_to(target).as_posix() for path in whole_files(target)}
        files |= file_entries(target, sorted(there - files.keys() - {DESCRIPTION}))
        settings = self.settings.settings()
        described: dict[str, Any] = {
            "longcrawl_composed": VERSION,
            "stored_as": self.settings.format,
            "dtype": facts.dtype,
            **self._attributes(),
            "masked": facts.masked,
            "loss_mask": self._masked(facts),
            **self.described_order,
            **{name: settings[name] for name in ("strategy", "padding_threshold", "planner", "seed", "pool_size")},
            **({"chunk_tokens": self.settings.chunk_tokens, JOINED: True} if self.settings.joins else {}),
            "capacities": list(self.settings.chosen().capacities),
            "domain_column": self.settings.domains,
            "splits": {split: build.composition_numbers(found) for split, found in build.by_split(plans).items()},
            "buckets": [self._entry(each, bucket, facts, written) for each in plans for bucket in each.buckets()],
            "files": dict(sorted(files.items())),
        }
        if self.settings.domains is not None:
            described["domains"] = [
                {name: getattr(each, name) for name in ("split", "domain", "folder")}
                | build.composition_numbers(each.composition)
                for each in plans
            ]
        write_text(target / DESCRIPTION, sealed.seal(described))
        return described

    def _splits(self, stretch: Stretch) -> dict[str, tuple[int, int]]:
        """Return first and last document of each split of one domain; ``val`` is what makers of shards call it."""
        rows, column = len(stretch.sizes), self.settings.domains
        of = f" of {column} {stretch.group!r}" if column is not None else ""
        return split_rows(self.settings.heldout, rows, "heldout" if self.settings.format == "zarr" else "val", of)

    def _folder(self, domain: str | None) -> str:
        if self.settings.domains is None:
            return ""
        return folder_name(domain, self.settings.domains, "composed.domains to another column")

    def _lay_out(self, target: Path, buckets: Sequence[PlannedBucket], facts: TokenFacts) -> None:
        arrays = {
            f"{bucket.path}{suffix}": (layout, bucket.samples)
            for bucket in buckets
            for suffix, layout in self._layouts(bucket.capacity, facts).items()
        }
        attributes = self._attributes() | ({"loss_mask": True} if facts.masked else {})
        lay_out(target, arrays, attributes)

    def _layouts(self, capacity: int, facts: TokenFacts) -> dict[str, Layout]:
        """Return the layouts of a bucket's arrays by what follows the bucket in their names."""
        return self.settings.layouts(capacity, facts.dtype, self._end_of_text(), masked=facts.masked)

    def _file_samples(self, capacity: int, facts: TokenFacts) -> int:
        """Return how many samples a file has, but the last of a bucket."""
        if self.settings.format == "zarr":
            return BAND
        return max(self.settings.shard_bytes // (capacity * np.dtype(facts.dtype).itemsize), 1)

    def _sample_tasks(self, buckets: Sequence[PlannedBucket], facts: TokenFacts) -> Iterator[WriteTask]:
        number = 0
        for bucket in buckets:
            most = self._file_samples(bucket.capacity, facts)
            for file, first in enumerate(range(0, bucket.samples, most)):
                counts = file, first, min(most, bucket.samples - first)
                here = build.SampleFile(bucket, *counts, facts, self.settings.joins)
                yield WriteTask(f"samples-{number:06d}", ("samples", here))
                number += 1

    def _entry(
        self, plan: PlannedSplit, bucket: PlannedBucket, facts: TokenFacts, written: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Describe a bucket; its identity is a digest of its files and of what decides how they are read."""
        files = {name: each for one in written if one["bucket"] == bucket.path for name, each in one["files"].items()}
        digests = [(name, files[name]["sha256"]) for name in sorted(files)]
        about = [self.settings.format, facts.dtype, self._masked(facts), self._end_of_text(), bucket.samples, digests]
        counts = {name: getattr(bucket, name) for name in ("capacity", "samples", "pieces", "documents", "tokens")}
        return {
            "path": bucket.path,
            "split": plan.split,
            "domain": plan.name,
            **counts,
            "file_samples": self._file_samples(bucket.capacity, facts),
            "identity": hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32],
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


def _chunk_rows(capacity: int) -> int:
    """Return how many samples are decoded for one: a power of two, as a band is."""
    return min(1 << (max(CHUNK_TOKENS // capacity, 1).bit_length() - 1), BAND)


def _sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = batch.column(N_TOKENS).to_numpy()
    return lengths


def _check_columns(table: pa.Table, domains: str | None) -> None:
    if WINDOWS in table.column_names:
        raise StageError(NO_WINDOWS)
    if MASKED in table.column_names and LOSS_MASK not in table.column_names:
        raise StageError(
            f"composed would lose the column {MASKED!r}, which is of the text: make tokens with the stage tokenize, "
            f"which gives {LOSS_MASK!r} too, or drop the column"
        )
    if domains is not None:
        check_text_column(table, domains, "composed.domains")


def _check_samples(plans: Sequence[PlannedSplit], strategy: Strategy) -> None:
    if not any(each.composition.samples for each in plans if each.split == "train"):
        raise FormatError(
            "there is no sample to train on: every document is empty, held out, or dropped as shorter than the "
            f"smallest capacity of {strategy.label}, {strategy.capacities[0]:,}"
        )


def _related_tasks(plans: Sequence[PlannedSplit]) -> Iterator[WriteTask]:
    for each in plans:
        yield WriteTask(f"related-{each.plan:06d}", ("related", each.plan, each.first_document, each.documents))


def _document_tasks(plans: Sequence[PlannedSplit]) -> Iterator[WriteTask]:
    number = 0
    for each in plans:
        for file, first in enumerate(range(0, each.documents, FILE_DOCUMENTS)):
            start, stop = each.first_document + first, each.first_document + min(first + FILE_DOCUMENTS, each.documents)
            yield WriteTask(
                f"documents-{number:06d}", ("documents", f"documents/{each.path}/{file:05d}.parquet", start, stop)
            )
            number += 1
