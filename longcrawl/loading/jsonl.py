"""Packed samples from JSON lines tokenised during training, with exact resume.

Files are read in blocks of whole lines, always cut at the same places, and each block is tokenised and packed on its
own. The number of samples in a block is known only after it is tokenised. Therefore every rank tokenises every block,
and the length of the feed is unknown.

Source: GPT-Simple's data pipeline, format "jsonl".
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.registry import check_fields
from longcrawl.core.sources import BadFile, BadFiles, Loss, LostRecords, OnBadFiles, Part
from longcrawl.errors import CorruptionError, LoaderError, SourceError
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.kernels.keyed_hash import KeyedOrder, file_order
from longcrawl.loading.feed import Batch, Feed, Origin, Status, TokenFacts, data_changes, data_identity
from longcrawl.loading.samples import LastBatch, Positions, Rows, ShardBucket, assemble
from longcrawl.loading.window_files import TokenFile, file_sizes
from longcrawl.sources.blocks import RECORD_BYTES, line_end, read_blocks, stop_at_damage, too_long
from longcrawl.sources.compressed import stored_compression
from longcrawl.sources.files import DamagedFileError, absolute, has_ending, named_parts
from longcrawl.sources.json_lines import parse_object, read_lines
from longcrawl.tokens.encoders import Encoder, load_encoder, name_tokenizer
from longcrawl.tokens.packing import AnyPacking, plan_packing
from longcrawl.tokens.plan import Longs
from longcrawl.tokens.shape import document_windows
from longcrawl.urls import has_pattern, is_url

ShuffleJson = Literal["none", "files", "blocks"]
"""Unit that is shuffled in each epoch: none, the files, or all blocks of all files."""
EXTENSIONS = tuple(f"{kind}{packed}" for kind in (".jsonl", ".json", ".ndjson") for packed in ("", ".gz", ".zst"))

STEP = 1 << 16
"""Bytes read at a time to count lines."""


@dataclass(frozen=True)
class Block:
    """A block of whole lines of a file.

    Attributes:
        file: index of the file in the order of the epoch; 0 if blocks are shuffled.
        number: index of the block in its file or, if blocks are shuffled, in the order of all blocks.
        start, stop: byte range, counted in the uncompressed file.
        content: the lines, or None to read them from ``start`` to ``stop``.
        damage: reason why the file ends here or a line is lost; "" for no damage.
        lines_lost: number of lines lost by damage, or None if unknown.
    """

    file: int
    number: int
    part: Part
    start: int
    stop: int
    content: bytes | None = None
    damage: str = ""
    lines_lost: int | None = None

    def read(self) -> bytes:
        """Return the lines, without a byte order mark."""
        content = self.content
        if content is None:
            with Path(self.part.files[0]).open("rb") as opened:
                opened.seek(self.start)
                content = opened.read(self.stop - self.start)
            if len(content) < self.stop - self.start:
                raise CorruptionError(f"{self.part.files[0]} was cut while it was read: open the feed again")
        return content if self.start else content.removeprefix(b"\xef\xbb\xbf")

    def first_line(self, max_record_bytes: int) -> int:
        """Count the lines of the file before this block, by reading all content before it."""
        path = self.part.files[0]
        if _is_seekable(path):
            with Path(path).open("rb") as opened:
                steps = range(0, self.start, STEP)
                return sum(opened.read(min(STEP, self.start - step)).count(b"\n") for step in steps)
        lines, left = 0, self.start
        pass_lines = stop_at_damage(lambda _: None)
        for content in read_blocks(path, STEP, most_bytes=max_record_bytes, on_loss=pass_lines):
            lines, left = lines + bytes(content[:left]).count(b"\n"), left - len(content)
            if left <= 0:
                break
        return lines


@dataclass(frozen=True, eq=False)
class JsonFiles:
    """Files of JSON lines, cut into blocks of about ``block_bytes`` uncompressed bytes."""

    parts: tuple[Part, ...]
    block_bytes: int
    shuffle: ShuffleJson
    seed: int
    max_record_bytes: int = RECORD_BYTES
    _known_bounds: dict[int, Longs] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for part in self.parts if self.shuffle == "blocks" else ():
            if not _is_seekable(part.files[0]):
                raise LoaderError(
                    f"shuffle='blocks' reads files from any offset, but {part.files[0]} is compressed or remote: "
                    "unpack it to a local file, or set shuffle='files'"
                )

    @cached_property
    def listed(self) -> list[TokenFile]:
        """Files with their sizes in bytes, as states describe them."""
        found = []
        for path in (part.files[0] for part in self.parts):
            (size,) = file_sizes([path])
            if size is None:
                raise LoaderError(f"{path} does not exist: choose a folder, a file or a pattern of JSON lines")
            found.append(TokenFile(path, size, 0))
        return found

    def blocks(self, epoch: int, file: int, number: int) -> Iterator[Block]:
        """Yield the blocks of an epoch from a given one on; in plain local files, earlier blocks are not read."""
        if self.shuffle == "blocks":
            yield from self._shuffled(epoch, number)
            return
        names = [part.name for part in self.parts]
        order = file_order(names, self.seed, epoch) if self.shuffle == "files" else range(len(names))
        for place in range(file, len(order)):
            yield from self._of_file(place, order[place], number if place == file else 0)

    def _shuffled(self, epoch: int, number: int) -> Iterator[Block]:
        firsts = np.cumsum([0] + [len(self._bounds(file)) - 1 for file in range(len(self.parts))])
        order = KeyedOrder(int(firsts[-1]), self.seed, f"blocks of epoch {epoch}")
        for place in range(number, int(firsts[-1])):
            chosen = order(np.array([place]))
            file = int(np.searchsorted(firsts, chosen[0], "right")) - 1
            start, stop = self._bounds(file)[chosen[0] - firsts[file] :][:2].tolist()
            yield self._plain(0, place, self.parts[file], start, stop)

    def _of_file(self, place: int, file: int, first: int) -> Iterator[Block]:
        part = self.parts[file]
        if _is_seekable(part.files[0]):
            bounds = self._bounds(file).tolist()
            for number in range(first, len(bounds) - 1):
                yield self._plain(place, number, part, bounds[number], bounds[number + 1])
            return
        number, start, lost = 0, 0, list[Loss]()
        note = stop_at_damage(lost.append)
        try:
            contents = read_blocks(part.files[0], self.block_bytes, most_bytes=self.max_record_bytes, on_loss=note)
            for content in contents:
                damage, lines = "; ".join(f"line {loss.line} {loss.reason}" for loss in lost), len(lost)
                lost.clear()
                if number >= first:
                    yield Block(place, number, part, start, start + len(content), bytes(content), damage, lines)
                number, start = number + 1, start + len(content)
        except DamagedFileError as broken:
            yield Block(place, number, part, start, start, b"", str(broken), broken.records_lost)

    def _plain(self, place: int, number: int, part: Part, start: int, stop: int) -> Block:
        """Return a block of a plain file, empty if it is a single line that is too long."""
        if stop - start <= max(self.max_record_bytes, self.block_bytes):
            return Block(place, number, part, start, stop)
        damage = f"the line at byte {start:,} {too_long(self.max_record_bytes)}"
        return Block(place, number, part, start, stop, b"", damage, 1)

    def _bounds(self, file: int) -> Longs:
        if file not in self._known_bounds:
            self._known_bounds[file] = _block_bounds(self.parts[file].files[0], self.block_bytes)
        return self._known_bounds[file]


def find_json_files(path: str | os.PathLike[str] | tuple[str | os.PathLike[str], ...]) -> tuple[Part, ...]:
    """List the JSON-lines files in a folder, path, URL or pattern, or in several, sorted by name."""
    named = tuple(map(str, path)) if isinstance(path, tuple) else str(path)
    folder: str | None = None
    if isinstance(named, str):
        is_remote = is_url(named) and not has_pattern(named)
        is_folder = not has_ending(named, EXTENSIONS) if is_remote else Path(absolute(named)).is_dir()
        folder = named if is_folder else None
    try:
        parts = named_parts("jsonl", folder, named if folder is None else None, EXTENSIONS, "*.jsonl")["train"]
    except SourceError as missing:
        raise LoaderError(f"no JSON lines to read: {missing}") from missing
    for part in parts:
        if not has_ending(part.files[0], EXTENSIONS):
            raise LoaderError(f"{part.files[0]} is not a JSON lines file; known suffixes: {', '.join(EXTENSIONS)}")
    return tuple(parts)


def _is_seekable(path: str) -> bool:
    if is_url(path):
        return False
    try:
        with Path(path).open("rb") as opened:
            return stored_compression(opened, path) == "none"
    except (OSError, SourceError):
        return False


def _block_bounds(path: str, block_bytes: int) -> Longs:
    """Return the starts of a plain file's blocks, as :func:`read_blocks` cuts them, and its end."""
    bounds, size = [0], Path(path).stat().st_size
    content = np.memmap(path, np.uint8, "r").data if size else memoryview(b"")
    while size - bounds[-1] > block_bytes:
        rest = content[bounds[-1] :]
        bounds.append(bounds[-1] + (line_end(rest, block_bytes) or len(rest)))
    return np.array(bounds + [size] * (bounds[-1] < size), np.int64)


@dataclass(frozen=True, eq=False)
class EncodedBlock:
    """Documents of a block as entries of a token shard, and its unreadable lines.

    Attributes:
        tokens: tokens of all entries, uint16 or uint32.
        ends: int64 [entries], exclusive end of each entry.
        overlaps: int64 [entries], number of tokens at the start of each entry that repeat the entry before it.
        lost: line number in the block, and reason, for each line that could not be read.
        lines: int64 [entries], line of the block that each entry is from.
        starts: int64 [entries], index within its document of each entry's first token.
    """

    block: Block
    tokens: npt.NDArray[Any]
    ends: Longs
    overlaps: Longs
    lost: Sequence[tuple[int, str]]
    lines: Longs
    starts: Longs

    def locate(self, found: Origin, first_line: int) -> Origin:
        """Complete an origin in these entries with its line in the file, after ``first_line``, and its document."""
        line, part = int(self.lines[found.entry]), self.block.part
        rest = self.block.read().split(b"\n", line)[line]
        record = parse_object(rest.partition(b"\n")[0])
        fields = ("id", "url", "date", "source")
        texts: dict[str, Any] = {name: str(record[name]) for name in fields if record.get(name) is not None}
        return replace(
            found,
            token=found.token + int(self.starts[found.entry]),
            entry=first_line + line,
            document=texts.pop("id", f"{part.name}:{first_line + line}"),
            file=part.files[0],
            offset=self.block.stop - len(rest) if _is_seekable(part.files[0]) else None,
            **texts,
        )


class _Place(NamedTuple):
    """Position of a sample; ``sample`` counts the samples before it in its block."""

    epoch: int = 0
    file: int = 0
    block: int = 0
    sample: int = 0


_Samples = tuple[ShardBucket, Longs, EncodedBlock]
"""Samples of one block: the block as a bucket, their indices in it, and the encoded block."""


class _Step(NamedTuple):
    samples: list[_Samples]
    following: int
    place: _Place


@dataclass(frozen=True, eq=False, repr=False)
class Jsonl(Feed):
    """Batches of packed samples for one rank of a trainer, from JSON lines, such as ``{"text": "Rain."}``.

    >>> batches = Jsonl("raw", tokenizer="gpt2", max_length=2048, batch_size=8)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["labels"])  # each (8, 2048) int64
    ...     checkpoint["data"] = batches.state_dict()

    This feed is for experiments and small datasets. For larger ones, tokenise once with ``longcrawl tokenize``, and
    read the shards with :class:`Packed`. Batches are the same as those of :class:`Packed` from these shards, except
    that a sample has documents from only one block. Iterating resumes after the last delivered batch and does not start
    over after the last epoch. Run only one loop at a time.

    Attributes:
        path: a folder, a file, a URL, a pattern with ``*``, or a list of them: ``.jsonl``, ``.json`` or ``.ndjson``,
            plain, gzip or zstd. For a folder, all such files in it, sorted by name. A remote file is fetched whole.
        tokenizer: a file or a Hub id, see :func:`longcrawl.tokens.encoders.load_encoder`.
        text_field: field that contains the text.
        max_length: tokens per sample, including padding, and per window of a long document.
        overlap_size: tokens that a window shares with the one before it, which are not targets; at most half of
            ``max_length``.
        batch_size, rank, world_size, packing, positions, last_batch: see :class:`Packed`.
        seed: seed of the order.
        shuffle: "none" for the order of files and lines; "blocks" to shuffle all blocks in each epoch, only for plain
            local files; "files" to shuffle the files. Both kinds of shuffling also shuffle the samples within each
            block.
        epochs: number of times that documents are delivered.
        pad_token: id of the padding token, or None for the end of text.
        end_of_text: name of the token that ends documents, or None for the tokenizer's ``eos_token`` or another usual
            one.
        on_bad_files: "error" to raise an error for a line that is not a document or for a damaged file, "warn" to skip
            it with a warning, or "skip" to skip it silently; see :attr:`bad_files`.
        block_bytes: uncompressed bytes per block, unless one line is longer; the last sample of a block is not filled
            from the next block.
        max_record_bytes: most bytes in a line; a longer line is not a document and is never fully in memory.

    Raises:
        LoaderError: a field has a wrong value, or no file matches.
        TokenizerError: the tokenizer does not exist or does not have the token.
    """

    kind: ClassVar[str] = "jsonl"
    unit: ClassVar[str] = "samples"
    fixed_options: ClassVar[tuple[str, ...]] = (*Feed.fixed_options, "collate_fn", "persistent_workers", "pin_memory")
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
        _ = self._files.listed, self._encoder.end_of_text
        TokenFacts().check_padding(self.pad_token, self._encoder.vocabulary_size, ())

    @cached_property
    def _files(self) -> JsonFiles:
        return JsonFiles(find_json_files(self.path), self.block_bytes, self.shuffle, self.seed, self.max_record_bytes)

    @cached_property
    def _encoder(self) -> Encoder:
        return load_encoder(self.tokenizer, self.end_of_text)

    @property
    def bad_files(self) -> tuple[BadFile, ...]:
        """Unreadable parts so far, one entry per block: file, reason and number of lost lines."""
        return tuple(bad for found in self._bad_files.values() for bad in found)

    @property
    def _place(self) -> _Place:
        place: _Place = vars(self).get("_next_place", _Place())
        return place

    def _move(self, position: int, place: _Place) -> None:
        self.move_to(position)
        vars(self).update(_next_place=place, _over=False)

    @property
    def status(self) -> Status:
        """Whether there is another step; if the last samples are dropped, this is known only after looking for one."""
        over = self._place.epoch >= self.epochs or vars(self).get("_over", False)
        return Status("finished" if over else "running")

    def stop(self, position: int) -> int:
        """Raise TypeError: the number of samples is unknown until all files are tokenised."""
        raise TypeError(
            f"{self.path} has no length before it is tokenised, from sample {position:,} on: give a Trainer "
            "feed.iterable('rows'), a DataLoader feed.iterable(), or iterate"
        )

    def read(self, step: int) -> Batch:
        """Return this rank's part of the step that begins at global sample ``step``; tokenises everything before it."""
        return self._batch(self._step(step, self._encoded(_Place())).samples)

    @property
    def batches_known(self) -> None:
        """Always None: batches can be indexed from 0 on, which tokenises everything before them."""
        return

    def origins_at(self, position: int) -> list[Origin]:
        """Return the lines in this rank's part of a step, by columns of ``input_ids``; tokenises everything before."""
        # Keeping the content avoids reading a compressed file again.
        blocks = ((epoch, replace(self._encode(block), block=block)) for epoch, block in self._blocks(_Place()))
        origins, row = list[Origin](), 0
        for bucket, places, encoded in self._step(position, blocks).samples:
            first_line = encoded.block.first_line(self.max_record_bytes)
            found = bucket.origins(places, np.arange(row, row + len(places)))
            origins += [encoded.locate(each, first_line) for each in found]
            row += len(places)
        return origins

    def _step(self, step: int, blocks: Iterable[tuple[int, EncodedBlock]]) -> _Step:
        if (found := next(self._steps(step, _Place(), blocks, skipped=step), None)) is None:
            raise IndexError(f"{self.path} has no step at sample {step:,}")
        return found

    def pieces(self, worker: int, workers: int) -> Iterator[tuple[int, EncodedBlock]]:
        """Yield the epoch and the tokens of every ``workers``-th remaining block, starting with the current one."""
        return self._encoded(self._place, worker, workers)

    def _encoded(self, place: _Place, first: int = 0, every: int = 1) -> Iterator[tuple[int, EncodedBlock]]:
        for epoch, block in islice(self._blocks(place), first, None, every):
            yield epoch, self._encode(block)

    def _encode(self, block: Block) -> EncodedBlock:
        schema = pa.schema([pa.field(self.text_field, pa.large_string(), nullable=False)])
        lines = read_lines(block.read(), schema)
        ids, offsets = self._encoder.encode(lines.table[self.text_field])
        lengths = np.diff(offsets) + 1
        ends = np.cumsum(lengths)
        tokens = np.insert(ids, offsets[1:], ids.dtype.type(self._encoder.end_of_text))
        windows = document_windows(lengths, self.max_length, self.overlap_size)
        sizes = windows.stops - windows.starts
        stops = np.cumsum(sizes)
        if windows.overlaps.any():
            firsts = (ends - lengths)[windows.documents] + windows.starts
            tokens = tokens[np.arange(stops[-1]) + np.repeat(firsts - (stops - sizes), sizes)]
        entries = (tokens, stops, windows.overlaps, tuple(lines.lost), lines.numbers[windows.documents], windows.starts)
        return EncodedBlock(replace(block, content=None), *entries)

    def _pack(self, encoded: EncodedBlock, epoch: int) -> ShardBucket:
        block, lengths = encoded.block, np.diff(encoded.ends, prepend=0)
        shard = TokenShard(block.part.files[0], "jsonl", encoded.tokens, encoded.ends, encoded.overlaps)
        # A packer may fail if it gets no entries.
        plan = plan_packing(lengths, self.max_length, self.packing if len(lengths) else "in-order")
        seed = None if self.shuffle == "none" else self.seed
        return ShardBucket(f"{block.part.name}/{block.start}/{epoch}", (shard,), plan, 1, seed)

    def _blocks(self, place: _Place) -> Iterator[tuple[int, Block]]:
        for epoch in range(place.epoch, self.epochs):
            file, number = (place.file, place.block) if epoch == place.epoch else (0, 0)
            for block in self._files.blocks(epoch, file, number):
                yield epoch, block

    def upcoming(self, first: int, every: int) -> Iterator[Batch]:
        """Yield every ``every``-th remaining batch from number ``first`` on; all batches are tokenised."""
        steps = self._steps(self.position, self._place, self._encoded(self._place))
        for step in islice(steps, first, None, every):
            yield self._batch(step.samples)

    def deliver(self, pieces: Iterable[tuple[int, EncodedBlock]]) -> Iterator[Batch]:
        """Yield the batches of all remaining blocks, and record each as delivered."""
        for step in self._steps(self.position, self._place, pieces):
            batch = self._batch(step.samples)
            self._move(step.following, step.place)
            yield batch
        vars(self)["_over"] = True

    def skip_pass(self) -> None:
        """Record all epochs as delivered."""
        self._move(self.position, _Place(self.epochs))

    def _steps(
        self, position: int, place: _Place, blocks: Iterable[tuple[int, EncodedBlock]], skipped: int = 0
    ) -> Iterator[_Step]:
        """Yield this rank's samples of each batch, from a place on, after skipping ``skipped`` global samples."""
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
        """Return the first remaining sample of a block; it is above 0 only in a partly delivered block."""
        if (epoch, block.file, block.number) != (place.epoch, place.file, place.block):
            return 0
        if place.sample > len(bucket):
            raise LoaderError(
                f"{block.part.files[0]} has {len(bucket):,} samples from byte {block.start:,} to {block.stop:,}, where "
                f"the state is at sample {place.sample:,}: the file has changed; restore it"
            )
        return place.sample

    def _batch(self, rows: list[_Samples]) -> Batch:
        padding = self._encoder.end_of_text if self.pad_token is None else self.pad_token
        picks = np.repeat(np.arange(len(rows)), [len(places) for _, places, _ in rows])
        places = np.concatenate([places for _, places, _ in rows])
        buckets = {pick: bucket for pick, (bucket, _, _) in enumerate(rows)}
        return assemble(buckets, picks, places, padding, Rows(self.batch_size, self.max_length, self.positions))

    def _report(self, encoded: EncodedBlock) -> None:
        """Apply ``on_bad_files`` to the unreadable parts of a block, once per block."""
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
        """Return the place of the next sample, and a description of data, order and tokenizer."""
        return self._place._asdict() | self._identity

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed; ``epochs`` may have changed."""
        return data_changes(state, self._identity, self._files.listed)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take position and place of a state."""
        place = {name: state[name] for name in _Place._fields}
        wrong = [name for name, number in place.items() if type(number) is not int or number < 0]
        if wrong:
            raise LoaderError(
                f"{wrong[0]} {place[wrong[0]]!r} of the state is not a number: pass what state_dict() gave"
            )
        self._move(state["position"], _Place(**place))

    @cached_property
    def _identity(self) -> dict[str, Any]:
        # The repr of a function contains its memory address.
        packing = getattr(self.packing, "__qualname__", None) or str(self.packing)
        own = ("text_field", "max_length", "overlap_size", "block_bytes", "shuffle", "seed", "positions")
        return {
            **self.values_of(*own, "max_record_bytes"),
            "packing": packing,
            "tokenizer": self._encoder.fingerprint,
            "end_of_text": self._encoder.end_of_text,
            **data_identity(self._files.listed),
        }
