"""Packed samples from JSON lines that are tokenised while a model trains, with exact resume.

Files are read in blocks of whole lines, which are cut at the same places each time; a block is tokenised and packed by
itself. So the sequence of samples is a function of files and settings, a place in it is a block and a number, and no
more than a few blocks are in memory. How many samples a block has is known once it is tokenised, and not before: every
rank tokenises every block, which is what ranks need to agree without a word, and the length of the feed is unknown.

Source: GPT-Simple's data pipeline, format "jsonl".
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from longcrawl.composition.packing import AnyPacking, plan_packing
from longcrawl.composition.plan import Longs
from longcrawl.core.fields import check_fields
from longcrawl.core.sources import BadFile, BadFiles, LostRecords, OnBadFiles
from longcrawl.errors import LoaderError
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.loading._data_identity import changed_values, data_changes, data_identity
from longcrawl.loading._json_blocks import Block, EncodedBlock, JsonFiles, ShuffleJson, find_json_files
from longcrawl.loading._samples import LastBatch, Positions, Rows, ShardBucket, assemble
from longcrawl.loading._token_facts import TokenFacts
from longcrawl.loading.feed import Batch, Feed, Status
from longcrawl.loading.origins import Origin
from longcrawl.sources.blocks import RECORD_BYTES
from longcrawl.sources.json_lines import read_lines
from longcrawl.tokens.encoders import Encoder, load_encoder
from longcrawl.tokens.tokenizer_files import name_tokenizer
from longcrawl.tokens.windows import document_windows


@dataclass(frozen=True)
class _Place:
    """Where a sample is: how many samples of its block come before it."""

    epoch: int = 0
    file: int = 0
    block: int = 0
    sample: int = 0


_Samples = tuple[ShardBucket, Longs, EncodedBlock]
"""Samples of one block: the block as a bucket, their places in it, and the block."""


@dataclass(frozen=True)
class _Step:
    """The samples of a batch, and where the next one begins: samples before it, and its place."""

    samples: list[_Samples]
    following: int
    place: _Place


@dataclass(frozen=True, eq=False)
class Jsonl(Feed):
    """Batches of packed samples for one rank of a trainer, from JSON lines, such as ``{"text": "Rain."}``.

    >>> batches = Jsonl("raw", tokenizer="gpt2", max_length=2048, batch_size=8)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["labels"])  # each (8, 2048) int64
    ...     checkpoint["data"] = batches.state_dict()

    It is for experiments and small data sets; for others tokenise once, with ``longcrawl tokenize``, and read the
    shards with :class:`Packed`, which also mixes buckets by a curriculum. Samples are those that :class:`Packed` makes
    of such shards, but for that a sample has documents of one block alone. Batches have the fields of :class:`Packed`.

    Step s of ``world_size`` ranks takes the next ``world_size * batch_size`` global samples; rank r has every
    ``world_size``-th of them from the r-th on. Iterating resumes after the last batch handed out, and ends after the
    last epoch, for good; one loop at a time.

    Attributes:
        path: a folder, a file, a URL, a pattern with ``*``, or a list of them: ``.jsonl`` or ``.json``, plain, gzip
            or zstd. Of a folder, all such files, sorted by name. A remote file is fetched whole.
        tokenizer: a file or a Hub id, see :func:`longcrawl.tokens.encoders.load_encoder`.
        text_field: the field of the text.
        max_length: tokens of a sample, padding included, and of a window of a long document.
        overlap_size: tokens that a window shares with the one before it, no targets there; at most half of
            ``max_length``.
        batch_size: samples per batch, on each rank.
        rank: which of the trainer's ``world_size`` processes this is.
        world_size: processes that share the global samples.
        seed: of the order.
        shuffle: "none" for the order of files and lines; "blocks" for an order of all blocks in each epoch, only of
            plain local files; "files" for one of the files. With both, samples have an order of their own in a block.
        packing: see :func:`longcrawl.composition.packing.plan_packing`.
        positions: "reset" counts ``position_ids`` from 0 in every piece, padding, too; "continuous" counts through the
            row, and has 0 in padding.
        epochs: how often documents are delivered.
        last_batch: "drop" leaves out samples at the end that do not fill a step; "fill" has rows of padding instead,
            where a rank may have no target: divide by those of all ranks.
        pad_token: id of padding; None for the end of text.
        end_of_text: the token that ends documents, by name; None for the tokenizer's ``eos_token``, or a usual one.
        on_bad_files: whether a line that is not a document, or a damaged file, is an "error", or is left out with a
            warning, "warn", or without, "skip"; see :attr:`bad_files`.
        block_bytes: of a block, unpacked, unless one line is longer; the last sample of a block is not filled up.
        max_record_bytes: of a line at most; a longer one is not a document, and is never held whole.

    Raises:
        LoaderError: a field does not fit, or there are no such files.
        TokenizerError: there is no such tokenizer, or it has no such token.
    """

    kind: ClassVar[str] = "jsonl"
    unit: ClassVar[str] = "samples"
    fixed_options: ClassVar[tuple[str, ...]] = (
        *Feed.fixed_options,
        "collate_fn",
        "persistent_workers",
        "pin_memory",
    )
    fixed_because: ClassVar[str] = "workers give blocks, not batches"

    path: str | os.PathLike[str] | tuple[str | os.PathLike[str], ...]
    tokenizer: str = "gpt2"
    text_field: str = "text"
    max_length: int = 2048
    overlap_size: int = 0
    batch_size: int = 1
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    shuffle: ShuffleJson = "none"
    packing: AnyPacking = "length-binned"
    positions: Positions = "reset"
    epochs: int = 1
    last_batch: LastBatch = "drop"
    pad_token: int | None = None
    end_of_text: str | None = None
    on_bad_files: OnBadFiles = "error"
    block_bytes: int = 4_000_000
    max_record_bytes: int = RECORD_BYTES
    _bad_files: dict[tuple[str, int], list[BadFile]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        name_tokenizer(self)
        check_fields(self, LoaderError)
        self.check_ranks(max_length=2, batch_size=1, epochs=1, block_bytes=1, max_record_bytes=1)
        if not 0 <= 2 * self.overlap_size <= self.max_length:
            raise LoaderError(
                f"overlap_size is from 0 to half of max_length, {self.max_length // 2:,}, and is {self.overlap_size:,}"
            )
        _ = self._files.listed, self._end_of_text
        TokenFacts().check_padding(self.pad_token, self._encoder.vocabulary_size, ())

    @cached_property
    def _files(self) -> JsonFiles:
        return JsonFiles(find_json_files(self.path), self.block_bytes, self.shuffle, self.seed, self.max_record_bytes)

    @cached_property
    def _encoder(self) -> Encoder:
        return load_encoder(self.tokenizer, self.end_of_text)

    @property
    def _end_of_text(self) -> int:
        return self._encoder.end_of_text

    @property
    def bad_files(self) -> tuple[BadFile, ...]:
        """What could not be read so far, an entry for each block: file, reason, and how many lines are lost."""
        return tuple(bad for found in self._bad_files.values() for bad in found)

    @property
    def step_size(self) -> int:
        """Global samples of a step."""
        return self.world_size * self.batch_size

    @property
    def _place(self) -> _Place:
        place: _Place = vars(self).get("_next_place", _Place())
        return place

    def _move(self, position: int, place: _Place) -> None:
        self.move_to(position)
        vars(self).update(_next_place=place, _over=False)

    @property
    def status(self) -> Status:
        """Whether there is another step; a feed that drops its last samples knows once it has looked for one."""
        over = self._place.epoch >= self.epochs or vars(self).get("_over", False)
        return Status("finished" if over else "running")

    def stop(self, position: int) -> int:
        """Raise: how many samples there are is known once all is tokenised."""
        raise TypeError(
            f"{self.path} has no length before it is tokenised, from sample {position:,} on: give a Trainer "
            "feed.iterable('rows'), a DataLoader feed.iterable(), or iterate"
        )

    def read(self, step: int) -> Batch:
        """Return this rank's part of the step that begins with global sample ``step``; tokenises all before it."""
        return self._batch(self._step(step, self._encoded(_Place())).samples)

    @property
    def batches_known(self) -> None:
        """None: batches are indexed from 0 on, and all that is before one is tokenised."""
        return

    @property
    def endless(self) -> bool:
        """Whether nobody knows how many steps there are: lines are not tokenised before they are read."""
        return True

    def origins_at(self, position: int) -> list[Origin]:
        """Return which lines are in this rank's part of the step there; tokenises all before it.

        Columns are those of ``input_ids``.
        """
        # Of a compressed file nothing is read twice.
        blocks = ((epoch, replace(self._encode(block), block=block)) for epoch, block in self._blocks(_Place()))
        origins, row = list[Origin](), 0
        for bucket, places, encoded in self._step(position, blocks).samples:
            first_line = encoded.block.first_line(self.max_record_bytes)
            found = bucket.origins(places, np.arange(row, row + len(places)))
            origins += [encoded.locate(each, first_line) for each in found]
            row += len(places)
        return origins

    def _step(self, step: int, blocks: Iterable[tuple[int, EncodedBlock]]) -> _Step:
        for found in self._steps(step, _Place(), blocks, skipped=step):
            return found
        raise IndexError(f"{self.path} has no step at sample {step:,}")

    def pieces(self, worker: int, workers: int) -> Iterator[tuple[int, EncodedBlock]]:
        """Yield the epoch and the tokens of every ``workers``-th block that is left, the begun one first."""
        return self._encoded(self._place, worker, workers)

    def _encoded(self, place: _Place, first: int = 0, every: int = 1) -> Iterator[tuple[int, EncodedBlock]]:
        for epoch, block in islice(self._blocks(place), first, None, every):
            yield epoch, self._encode(block)

    def _encode(self, block: Block) -> EncodedBlock:
        """Tokenise the documents of a block, end each with the end of text, and cut long ones into windows."""
        schema = pa.schema([pa.field(self.text_field, pa.large_string(), nullable=False)])
        lines = read_lines(block.read(), schema)
        ids, offsets = self._encoder.encode(lines.table[self.text_field])
        lengths = np.diff(offsets) + 1
        ends = np.cumsum(lengths)
        tokens = np.empty(int(ends[-1]) if len(ends) else 0, ids.dtype)
        is_text = np.ones(len(tokens), np.bool_)
        is_text[ends - 1] = False
        tokens[is_text], tokens[ends - 1] = ids, self._end_of_text
        windows = document_windows(lengths, self.max_length, self.overlap_size)
        sizes = windows.stops - windows.starts
        stops = np.cumsum(sizes)
        if windows.overlaps.any():
            firsts = (ends - lengths)[windows.documents] + windows.starts
            tokens = tokens[np.arange(stops[-1]) + np.repeat(firsts - (stops - sizes), sizes)]
        entries = (tokens, stops, windows.overlaps, tuple(lines.lost), lines.numbers[windows.documents], windows.starts)
        return EncodedBlock(replace(block, content=None), *entries)

    def _pack(self, encoded: EncodedBlock, epoch: int) -> ShardBucket:
        """Plan the samples of a block; where shuffled, they have an order of their own in each epoch."""
        block = encoded.block
        shard = TokenShard(block.part.files[0], "jsonl", encoded.tokens, encoded.ends, encoded.overlaps)
        lengths = np.diff(encoded.ends, prepend=0)
        # A packer may not know what to do with nothing.
        plan = plan_packing(lengths, self.max_length, self.packing if len(lengths) else "in-order")
        seed = None if self.shuffle == "none" else self.seed
        return ShardBucket(f"{block.part.name}/{block.start}/{epoch}", (shard,), plan, 1, seed)

    def _blocks(self, place: _Place) -> Iterator[tuple[int, Block]]:
        """Yield the epoch and the block of all from a place on; nothing is tokenised."""
        for epoch in range(place.epoch, self.epochs):
            file, number = (place.file, place.block) if epoch == place.epoch else (0, 0)
            for block in self._files.blocks(epoch, file, number):
                yield epoch, block

    def upcoming(self, first: int, every: int) -> Iterator[Batch]:
        """Yield every ``every``-th batch that is left, from the ``first``-th on; all are tokenised."""
        steps = self._steps(self.position, self._place, self._encoded(self._place))
        for step in islice(steps, first, None, every):
            yield self._batch(step.samples)

    def deliver(self, pieces: Iterable[tuple[int, EncodedBlock]]) -> Iterator[Batch]:
        """Yield the batches of all blocks that are left, each noted as handed out."""
        for step in self._steps(self.position, self._place, pieces):
            batch = self._batch(step.samples)
            self._move(step.following, step.place)
            yield batch
        vars(self)["_over"] = True

    def skip_pass(self) -> None:
        """Note all epochs as handed out."""
        self._move(self.position, _Place(self.epochs))

    def _steps(
        self, position: int, place: _Place, blocks: Iterable[tuple[int, EncodedBlock]], skipped: int = 0
    ) -> Iterator[_Step]:
        """Yield the samples of this rank's batches of all blocks from a place on, but for so many samples.

        Raises:
            SourceError: a line is not a document or a file is damaged, under ``on_bad_files="error"``.
            LoaderError: there are fewer samples than one step takes.
        """
        rows: list[_Samples] = []
        done, taken, size = position, 0, self.step_size
        for epoch, encoded in blocks:
            self._report(encoded)
            bucket = self._pack(encoded, epoch)
            first = self._first_sample(place, epoch, encoded.block, bucket)
            passed = min(skipped, len(bucket) - first)
            first, skipped = first + passed, skipped - passed
            while first < len(bucket):
                stop = min(first + size - taken, len(bucket))
                mine = np.arange(first + (self.rank - taken) % self.world_size, stop, self.world_size)
                rows.append((bucket, mine, encoded))
                first, taken = stop, taken + stop - first
                if taken == size:
                    done += size
                    yield _Step(rows, done, _Place(epoch, encoded.block.file, encoded.block.number, first))
                    rows, taken = [], 0
        if taken and self.last_batch == "fill":
            yield _Step(rows, done + taken, _Place(self.epochs))
        elif not done and place == _Place():
            raise LoaderError(
                f"{self.path} has {taken:,} samples, not one for each row of {self.world_size} batches of "
                f"{self.batch_size}; lower batch_size or max_length, or set last_batch='fill'"
            )

    def _first_sample(self, place: _Place, epoch: int, block: Block, bucket: ShardBucket) -> int:
        """Return the first sample of a block that is left: those of the block that was begun are partly handed out."""
        if (epoch, block.file, block.number) != (place.epoch, place.file, place.block):
            return 0
        if place.sample > len(bucket):
            raise LoaderError(
                f"{block.part.files[0]} has {len(bucket):,} samples from byte {block.start:,} to {block.stop:,}, where "
                f"the state is at sample {place.sample:,}: the file has changed; open it as it was then"
            )
        return place.sample

    def _batch(self, rows: list[_Samples]) -> Batch:
        padding = self._end_of_text if self.pad_token is None else self.pad_token
        picks = np.repeat(np.arange(len(rows)), [len(places) for _, places, _ in rows])
        places = np.concatenate([places for _, places, _ in rows])
        buckets = {pick: bucket for pick, (bucket, _, _) in enumerate(rows)}
        return assemble(buckets, picks, places, padding, Rows(self.batch_size, self.max_length, self.positions))

    def _report(self, encoded: EncodedBlock) -> None:
        """Apply the policy to what could not be read of a block, once."""
        block = encoded.block
        key = (block.part.files[0], block.start)
        if not (encoded.lost or block.damage) or key in self._bad_files:
            return
        noted = BadFiles(self.on_bad_files)
        lost = LostRecords(noted, block.part.files[0])
        before = block.first_line(self.max_record_bytes) if encoded.lost else 0
        for number, reason in encoded.lost:
            hint = "; set text_field= to one of them" if reason.startswith("has no field") else ""
            lost.add(f"line {before + number + 1}", reason + hint)
        lost.report(block.damage, block.lines_lost)
        self._bad_files[key] = noted.found

    def identity(self, position: int) -> dict[str, Any]:  # noqa: ARG002  # the same at every position
        """Return where the next sample is, and of which data, order and tokenizer."""
        return {**vars(self._place), **self._order, **self._data}

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed; ``epochs`` may have changed."""
        return changed_values(state, self._order) + data_changes(state, self._data, self._files.listed)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take position and place of a state. Blocks before it are not read, or, of a compressed file, unpacked."""
        place = {name: state[name] for name in vars(_Place())}
        wrong = [name for name, number in place.items() if type(number) is not int or number < 0]
        if wrong:
            raise LoaderError(
                f"{wrong[0]} {place[wrong[0]]!r} of the state is not a number: pass what state_dict() gave"
            )
        self._move(state["position"], _Place(**place))

    @cached_property
    def _order(self) -> dict[str, Any]:
        # A function's repr has its place in memory.
        packing = getattr(self.packing, "__qualname__", None) or str(self.packing)
        own = ("text_field", "max_length", "overlap_size", "block_bytes", "shuffle", "seed", "positions")
        return {
            **self.values_of(*own, "max_record_bytes"),
            "packing": packing,
            "tokenizer": self._encoder.fingerprint,
            "end_of_text": self._end_of_text,
        }

    @cached_property
    def _data(self) -> dict[str, Any]:
        return data_identity(self._files.listed)
