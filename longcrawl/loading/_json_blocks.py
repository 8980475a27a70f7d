"""JSON lines in blocks of whole lines, cut at the same places each time, and their order.

A plain local file is cut by looking for the line feed nearest to each border, so that any block is read by itself. What
is compressed or remote has no such borders: its blocks come one after the other, from the file's beginning.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.composition.plan import Longs
from longcrawl.core.sources import Loss, Part
from longcrawl.errors import CorruptionError, LoaderError, SourceError
from longcrawl.kernels.keyed_order import KeyedOrder, file_order
from longcrawl.loading._window_files import TokenFile, file_sizes
from longcrawl.loading.origins import Origin
from longcrawl.sources.blocks import RECORD_BYTES, read_blocks, stop_at, too_long
from longcrawl.sources.files import DamagedFileError, absolute
from longcrawl.sources.json_lines import parse_object
from longcrawl.sources.members import stored_compression
from longcrawl.sources.named_files import has_ending, named_parts
from longcrawl.urls import has_pattern, is_url

ShuffleJson = Literal["none", "files", "blocks"]
"""What has an order of its own in each epoch: nothing, the files, or all blocks of all files."""

EXTENSIONS = tuple(f"{kind}{packed}" for kind in (".jsonl", ".json", ".ndjson") for packed in ("", ".gz", ".zst"))

STEP = 1 << 16
"""Bytes that are looked at for a line feed at a time."""


@dataclass(frozen=True)
class Block:
    """Some whole lines of a file.

    Attributes:
        file: where its file is in the order of the epoch; 0 where blocks are shuffled.
        number: where the block is in its file, or in the order of all blocks where they are shuffled.
        part: the file, and its name.
        start: the first byte, unpacked.
        stop: the byte after the last one.
        content: the lines; None to read them from ``start`` to ``stop``.
        damage: why the file ends here, or why the line that is here is lost; "" for no damage.
        lines_lost: how many lines damage takes; None where nobody can know.
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
        """Count the lines of the file before this block, which reads all that comes before it."""
        path = self.part.files[0]
        if _is_seekable(path):
            with Path(path).open("rb") as opened:
                steps = range(0, self.start, STEP)
                return sum(opened.read(min(STEP, self.start - step)).count(b"\n") for step in steps)
        lines, left = 0, self.start
        for content in read_blocks(path, STEP, most_bytes=max_record_bytes, on_loss=_pass_line):
            lines, left = lines + bytes(content[:left]).count(b"\n"), left - len(content)
            if left <= 0:
                break
        return lines


@dataclass(frozen=True, eq=False)
class JsonFiles:
    """Files of JSON lines, cut into blocks of about ``block_bytes``, unpacked.

    Raises:
        LoaderError: blocks are to be shuffled, and a file cannot be read from any place.
    """

    parts: tuple[Part, ...]
    block_bytes: int
    shuffle: ShuffleJson
    seed: int
    max_record_bytes: int = RECORD_BYTES

    def __post_init__(self) -> None:
        for part in self.parts if self.shuffle == "blocks" else ():
            if not _is_seekable(part.files[0]):
                raise LoaderError(
                    f"shuffle='blocks' reads files from any place, and {part.files[0]} is compressed or remote: unpack "
                    "it to a local file, or say shuffle='files'"
                )

    @cached_property
    def listed(self) -> list[TokenFile]:
        """The files with their bytes, as states describe them."""
        paths = [part.files[0] for part in self.parts]
        sizes = [size for path in paths for size in file_sizes([path])]
        for path, size in zip(paths, sizes, strict=True):
            if size is None:
                raise LoaderError(f"{path} is missing: name a folder, a file or a pattern of JSON lines")
        return [TokenFile(path, size or 0, 0) for path, size in zip(paths, sizes, strict=True)]

    def blocks(self, epoch: int, file: int, number: int) -> Iterator[Block]:
        """Return the blocks of an epoch from one of them on; what is not read costs nothing in plain local files."""
        if self.shuffle == "blocks":
            yield from self._shuffled(epoch, number)
            return
        order = list(range(len(self.parts)))
        if self.shuffle == "files":
            order = file_order([part.name for part in self.parts], self.seed, epoch)
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

        def note(loss: Loss) -> None:
            _pass_line(loss)
            lost.append(loss)

        try:
            contents = read_blocks(part.files[0], self.block_bytes, most_bytes=self.max_record_bytes, on_loss=note)
            for content in contents:
                damage = "; ".join(f"line {loss.line} {loss.reason}" for loss in lost)
                lines = len(lost)
                lost.clear()
                if number >= first:
                    yield Block(place, number, part, start, start + len(content), bytes(content), damage, lines)
                number, start = number + 1, start + len(content)
        except DamagedFileError as broken:
            yield Block(place, number, part, start, start, b"", str(broken), broken.records_lost)

    def _plain(self, place: int, number: int, part: Part, start: int, stop: int) -> Block:
        """Return a block of a plain file, without its line if that is too long: it is the only one then."""
        if stop - start <= max(self.max_record_bytes, self.block_bytes):
            return Block(place, number, part, start, stop)
        damage = f"the line at byte {start:,} {too_long(self.max_record_bytes)}"
        return Block(place, number, part, start, stop, b"", damage, 1)

    def _bounds(self, file: int) -> Longs:
        if file not in self._known_bounds:
            self._known_bounds[file] = _block_bounds(self.parts[file].files[0], self.block_bytes)
        return self._known_bounds[file]

    @cached_property
    def _known_bounds(self) -> dict[int, Longs]:
        return {}


def find_json_files(path: str | os.PathLike[str] | tuple[str | os.PathLike[str], ...]) -> tuple[Part, ...]:
    """List the files of JSON lines that a folder, path, URL or pattern names, or several, sorted by name."""
    named = tuple(map(str, path)) if isinstance(path, tuple) else str(path)
    is_remote = isinstance(named, str) and is_url(named) and not has_pattern(named)
    is_folder = isinstance(named, str) and (
        not has_ending(named, EXTENSIONS) if is_remote else Path(absolute(named)).is_dir()
    )
    folder, files = (str(named), None) if is_folder else (None, named)
    try:
        parts = named_parts("jsonl", folder, files, EXTENSIONS, "*.jsonl")["train"]
    except SourceError as missing:
        raise LoaderError(f"there are no JSON lines to read: {missing}") from missing
    for part in parts:
        if not has_ending(part.files[0], EXTENSIONS):
            raise LoaderError(f"{part.files[0]} is not a file of JSON lines; known endings: {', '.join(EXTENSIONS)}")
    return tuple(parts)


def _pass_line(loss: Loss) -> None:
    """Continue after a line that is lost, and stop at damage."""
    if loss.kind == "damage":
        stop_at(loss)


def _is_seekable(path: str) -> bool:
    if is_url(path):
        return False
    try:
        with Path(path).open("rb") as opened:
            return stored_compression(opened, path) == "none"
    except (OSError, SourceError):
        return False


def _block_bounds(path: str, block_bytes: int) -> Longs:
    """Return where the blocks of a plain file begin, and its end, cut as :func:`read_blocks` cuts them."""
    bounds, size = [0], Path(path).stat().st_size
    with Path(path).open("rb") as opened:
        while size - bounds[-1] > block_bytes:
            bounds.append(_cut(opened, bounds[-1], bounds[-1] + block_bytes))
    return np.array(bounds + [size] * (bounds[-1] < size), np.int64)


def _cut(opened: BinaryIO, start: int, stop: int) -> int:
    """Return the end of the last line that ends before ``stop``, or else of the first one after it."""
    last = stop
    while last > start:
        first = max(last - STEP, start)
        opened.seek(first)
        found = opened.read(last - first).rfind(b"\n")
        if found >= 0:
            return first + found + 1
        last = first
    opened.seek(stop)
    while piece := opened.read(STEP):
        found = piece.find(b"\n")
        if found >= 0:
            return stop + found + 1
        stop += len(piece)
    return stop


@dataclass(frozen=True, eq=False)
class EncodedBlock:
    """The documents of a block as entries of a token shard, and the lines that are none.

    Attributes:
        block: where it is from, without its content.
        tokens: of all entries, uint16 or uint32.
        ends: int64 [entries], exclusive.
        overlaps: int64 [entries], with how many tokens of the entry before it each begins.
        lost: number of each line of the block that could not be read, and why.
        lines: int64 [entries], the line of the block that each is from.
        starts: int64 [entries], which token of its document each begins with.
    """

    block: Block
    tokens: npt.NDArray[Any]
    ends: Longs
    overlaps: Longs
    lost: tuple[tuple[int, str], ...]
    lines: Longs
    starts: Longs

    def locate(self, found: Origin, first_line: int) -> Origin:
        """Return an origin in these entries with its line in the file, and what the line says of its document.

        Args:
            found: in the block, by its entry.
            first_line: of the block.
        """
        content = self.block.read()
        line = int(self.lines[found.entry])
        before = content.split(b"\n", line)
        record, part = parse_object(before[line].partition(b"\n")[0]), self.block.part
        offset = self.block.stop - len(before[line])
        texts: dict[str, Any] = {
            name: str(record[name]) for name in ("url", "date", "source") if record.get(name) is not None
        }
        return replace(
            found,
            token=found.token + int(self.starts[found.entry]),
            entry=first_line + line,
            document=str(record["id"]) if record.get("id") is not None else f"{part.name}:{first_line + line}",
            file=part.files[0],
            offset=offset if _is_seekable(part.files[0]) else None,
            **texts,
        )
