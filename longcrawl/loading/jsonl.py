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
from typing import TYPE_CHECKING, Any

import numpy as np

from longcrawl.builders.blocks import RECORD_BYTES
from longcrawl.builders.sources import BadFile, BadFiles, LostRecords, OnBadFiles
from longcrawl.errors import LoaderError
from longcrawl.fields import check_fields
from longcrawl.loading._data_identity import STATE_VERSION, changed_values, check_state, data_changes, data_identity
from longcrawl.loading._json_blocks import Block, JsonFiles, ShuffleJson, find_json_files
from longcrawl.loading._json_encoding import EncodedBlock, encode_block, pack_block
from longcrawl.loading._packed_rows import Batch, LastBatch, Positions, assemble
from longcrawl.loading._shard_buckets import ShardBucket
from longcrawl.loading.packing_plan import Packing
from longcrawl.tokens.encoders import Encoder, load_encoder

if TYPE_CHECKING:
    from longcrawl.loading._json_workers import JsonWorkers

__all__ = ["Jsonl"]


@dataclass(frozen=True)
class _Place:
    """A sample: ``next_sample`` counts all before it, and the others say where it is."""

    next_sample: int = 0
    epoch: int = 0
    file: int = 0
    block: int = 0
    sample: int = 0


@dataclass
class _Progress:
    place: _Place = field(default_factory=_Place)


@dataclass(frozen=True, eq=False)
class Jsonl:
    """Batches of packed samples for one rank of a trainer, from JSON lines, such as ``{"text": "Rain."}``.

    >>> batches = Jsonl("raw", tokenizer="gpt2", max_length=2048, batch_size=8)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["labels"])  # each (8, 2048) int64
    ...     checkpoint["data"] = batches.state_dict()

    It is for experiments and small data sets; for others tokenise once, with ``longcrawl tokenize``, and read the
    shards with :class:`Packed`, which also mixes buckets by a curriculum. Samples are those that :class:`Packed` makes
    of such shards, but for that a sample has documents of one block alone. Batches have the fields of :class:`Packed`.

    Step s of ``world_size`` ranks takes the next ``world_size * batch_size`` global samples; rank r has every
    ``world_size``-th of them from the r-th on. Iterating goes on after the last batch handed out, and ends after the
    last epoch, for good; one loop at a time.

    Attributes:
        path: a folder, a file, a URL, a pattern with ``*``, or a list of them: ``.jsonl`` or ``.json``, plain, ``.gz``
            or ``.zst``. Of a folder, all such files, sorted by name. A remote file is fetched whole.
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
        packing: see :func:`longcrawl.loading.packing_plan.plan_packing`.
        positions: "reset" counts ``position_ids`` from 0 in every piece, padding, too; "continuous" counts through the
            row, and has 0 in padding.
        epochs: how often documents are delivered.
        last_batch: "drop" leaves out samples at the end that do not fill a step; "fill" has rows of padding instead,
            where a rank may have no target: divide by those of all ranks.
        pad_token: id of padding; None for the end of text.
        end_of_text: the token that ends documents, by name; None for the tokenizer's usual one.
        on_bad_files: whether a line that is no document, or a damaged file, is an "error", or is left out with a
            warning, "warn", or without, "skip"; see :attr:`bad_files`.
        block_bytes: of a block, unpacked, unless one line is longer; the last sample of a block is not filled up.
        max_record_bytes: of a line at most; a longer one is no document, and is never held whole.

    Raises:
        LoaderError: a field does not fit, or there are no such files.
        TokenizerError: there is no such tokenizer, or it has no such token.

    """

    path: str | os.PathLike[str] | tuple[str | os.PathLike[str], ...]
    tokenizer: str = "gpt2"
    text_field: str = "text"
    max_length: int = 2048
    overlap_size: int = 0
    batch_size: int = 8
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    shuffle: ShuffleJson = "none"
    packing: Packing = "length-binned"
    positions: Positions = "reset"
    epochs: int = 1
    last_batch: LastBatch = "drop"
    pad_token: int | None = None
    end_of_text: str | None = None
    on_bad_files: OnBadFiles = "error"
    block_bytes: int = 4_000_000
    max_record_bytes: int = RECORD_BYTES
    _progress: _Progress = field(init=False, repr=False, default_factory=_Progress)
    _bad_files: dict[tuple[str, int], list[BadFile]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        for name, least in (
            ("max_length", 2),
            ("batch_size", 1),
            ("world_size", 1),
            ("epochs", 1),
            ("block_bytes", 1),
            ("max_record_bytes", 1),
        ):
            if getattr(self, name) < least:
                raise LoaderError(f"{name} is {getattr(self, name)}: give {least} or more")
        if not 0 <= self.rank < self.world_size:
            raise LoaderError(f"rank {self.rank} must be from 0 to world_size - 1 = {self.world_size - 1}")
        if not 0 <= 2 * self.overlap_size <= self.max_length:
            raise LoaderError(
                f"overlap_size is from 0 to half of max_length, {self.max_length // 2:,}, and is {self.overlap_size:,}"
            )
        _ = self._files.listed, self._end_of_text

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

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches that are left."""
        yield from self.batches_of((epoch, self.encode(block)) for epoch, block in self.blocks_left())

    def blocks_left(self) -> Iterator[tuple[int, Block]]:
        """Give the epoch and the block of all that is not handed out, the begun block first; nothing is tokenised."""
        place = self._progress.place
        for epoch in range(place.epoch, self.epochs):
            file, number = (place.file, place.block) if epoch == place.epoch else (0, 0)
            for block in self._files.blocks(epoch, file, number):
                yield epoch, block

    def encode(self, block: Block) -> EncodedBlock:
        """Tokenise a block."""
        return encode_block(
            block, self._encoder, self._end_of_text, self.text_field, self.max_length, self.overlap_size
        )

    def batches_of(self, blocks: Iterable[tuple[int, EncodedBlock]]) -> Iterator[Batch]:
        """Put this rank's batches together from all blocks that are left, and note each as handed out.

        Raises:
            SourceError: a line is no document or a file is damaged, under ``on_bad_files="error"``.
            LoaderError: there are fewer samples than one step takes.

        """
        place, step = self._progress.place, self.world_size * self.batch_size
        rows: list[tuple[ShardBucket, int]] = []
        done, taken = place.next_sample, 0
        for epoch, encoded in blocks:
            self._report(encoded)
            bucket = pack_block(encoded, self.max_length, self.packing, self._shuffle_seed, epoch)
            first = self._first_sample(place, epoch, encoded.block, bucket)
            while first < len(bucket):
                samples = bucket.samples_at(np.arange(first, min(first + step - taken, len(bucket))))
                rows += [
                    (bucket, int(each)) for each in samples[(self.rank - taken) % self.world_size :: self.world_size]
                ]
                first, taken = first + len(samples), taken + len(samples)
                if taken == step:
                    batch, done = self._batch(rows), done + step
                    self._progress.place = _Place(done, epoch, encoded.block.file, encoded.block.number, first)
                    yield batch
                    rows, taken = [], 0
        if taken and self.last_batch == "fill":
            batch = self._batch(rows)
            self._progress.place = _Place(done + taken, self.epochs)
            yield batch
        elif not done:
            raise LoaderError(
                f"{self.path} has {taken:,} samples, not one for each row of {self.world_size} batches of "
                f"{self.batch_size}; lower batch_size or max_length, or say last_batch='fill'"
            )

    def _first_sample(self, place: _Place, epoch: int, block: Block, bucket: ShardBucket) -> int:
        """Give the first sample of a block that is left: those of the block that was begun are partly handed out."""
        if (epoch, block.file, block.number) != (place.epoch, place.file, place.block):
            return 0
        if place.sample > len(bucket):
            raise LoaderError(
                f"{block.part.files[0]} has {len(bucket):,} samples from byte {block.start:,} to {block.stop:,}, where "
                f"the state is at sample {place.sample:,}: the file has changed; open it as it was then"
            )
        return place.sample

    def _batch(self, rows: list[tuple[ShardBucket, int]]) -> Batch:
        padding = self._end_of_text if self.pad_token is None else self.pad_token
        chosen: dict[ShardBucket, list[tuple[int, int]]] = {}
        for row, (bucket, sample) in enumerate(rows):
            chosen.setdefault(bucket, []).append((row, sample))
        named = {bucket: (np.array(pairs)[:, 0], np.array(pairs)[:, 1]) for bucket, pairs in chosen.items()}
        return assemble(named, self.batch_size, self.max_length, padding, self.positions)

    @property
    def _shuffle_seed(self) -> int | None:
        return None if self.shuffle == "none" else self.seed

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
            lost.add(f"line {before + number}", reason + hint)
        lost.report(block.damage, block.lines_lost)
        self._bad_files[key] = noted.found

    def state_dict(self) -> dict[str, Any]:
        """Give what a resume needs, the same on every rank: where the next sample is, and of which data."""
        return {**vars(self._progress.place), **self._order, **self._data}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state taken under any world size, batch size or workers; ``epochs`` may have changed, too.

        The begun block is tokenised once more. What comes before it is not read, or, of a compressed file, unpacked.

        Raises:
            LoaderError: the state is of other data, another order or another tokenizer; the message names which.

        """
        names = tuple(vars(_Place()))
        state = {"max_record_bytes": RECORD_BYTES, **state}  # what states had before they named it
        check_state(state, (*names, *self._order, *self._data), "JSON lines")
        changed = changed_values(state, self._order) + data_changes(state, self._data, self._files.listed)
        if changed:
            raise LoaderError(f"this state is not of {self.path} as opened here: {', '.join(changed)}; open it as then")
        wrong = [name for name in names if type(state[name]) is not int or state[name] < 0]
        if wrong:
            raise LoaderError(f"{wrong[0]} {state[wrong[0]]!r} of the state is no number: pass what state_dict() gave")
        self._progress.place = replace(_Place(), **{name: state[name] for name in names})

    @cached_property
    def _order(self) -> dict[str, Any]:
        # A function's repr has its place in memory.
        packing = getattr(self.packing, "__qualname__", None) or str(self.packing)
        own = ("text_field", "max_length", "overlap_size", "block_bytes", "shuffle", "seed", "positions")
        return {
            "version": STATE_VERSION,
            **{name: getattr(self, name) for name in (*own, "max_record_bytes")},
            "packing": packing,
            "tokenizer": self._encoder.fingerprint,
            "end_of_text": self._end_of_text,
        }

    @cached_property
    def _data(self) -> dict[str, Any]:
        return data_identity(self._files.listed)

    def dataloader(self, num_workers: int = 0, **options: Any) -> "JsonWorkers":
        """Give an iterable of torch tensors in the global order; ``num_workers`` processes share the tokenising.

        It takes part in this feed's state: ``batches.state_dict()`` counts what the trainer was given, not what workers
        have read. ``options`` go to ``torch.utils.data.DataLoader``; its items are blocks.

        Raises:
            LoaderError: torch is not installed, or an option is not one of a loader of blocks.

        """
        from longcrawl.loading._json_workers import JsonWorkers

        return JsonWorkers(self, num_workers, options)
