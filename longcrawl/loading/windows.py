"""Windows of ``seq_len + 1`` tokens, one at a time or in batches.

Window ``i`` of a file begins at token ``i * (seq_len + 1)``, and never spans two files. A model reads the first
``seq_len`` tokens of a window and predicts the last ``seq_len``. A position is the index of a token in its document,
counted from the document's start or, if that is before the window, from the window's start.

The global sequence consists of passes over all windows, each in its own order. A step takes its next
``batch_size * world_size`` windows, of which rank ``r`` gets ``batch_size``, from number ``r * batch_size`` on.
"""

import itertools
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal, overload

import numpy as np
import numpy.typing as npt

from longcrawl.core.registry import check_fields, fields_html, short_repr
from longcrawl.errors import CorruptionError, LoaderError
from longcrawl.formats.shards.base import Check
from longcrawl.kernels.keyed_hash import KeyedOrder, file_order, keyed_order
from longcrawl.loading import feed, window_files
from longcrawl.loading.window_files import ShardTokens, TokenFile, content_names, open_ends, open_tokens
from longcrawl.tokens.packing import locate, positions_from_end_of_text, positions_from_ends

Window = dict[str, npt.NDArray[Any]]
"""Arrays ``input_ids``, and ``positions`` and ``loss_mask`` if present: (seq_len + 1,) or (windows, seq_len + 1)."""
BLOCK = 1 << 16
"""Tokens searched at a time."""
MOST_OPEN = 4096
"""Maximum number of shards mapped at a time; the system allows a process about 65,000 mappings."""


@dataclass(frozen=True)
class _Layout:
    """Files in the order of a pass; first window of each, followed by the total, as a list and as an array."""

    files: list[int]
    firsts: list[int]
    starts: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Windows:
    """Map-style dataset of all windows of one or many files; all windows take equally long to read.

    >>> windows = Windows("shards/", seq_len=2048, positions="index", shuffle="windows")  # doctest: +SKIP
    >>> windows[7]["input_ids"], windows[7]["positions"]  # each (2049,) int64  # doctest: +SKIP
    >>> for batch in windows.batches(batch_size=8, rank=0, world_size=2):  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["positions"])  # each (8, 2049) int64

    ``torch.utils.data.DataLoader(windows, ...)`` accepts it with any number of workers.

    Attributes:
        paths: a folder, a pattern with ``*``, a file, or a list of files; for ``.ds`` files, also a URL that fsspec
            reads.
        seq_len: context length of a model; a window has one more token.
        positions: "index" to number tokens by the document ends recorded with the files, "eos" by the ``end_of_text``
            tokens in the window, "none" to omit positions.
        end_of_text: id that ends each document, or None for the id that a longcrawl output records.
        tail: handling of the last tokens of a file that do not fill a window: "drop" omits them, as datatrove does;
            "pad" fills the window with ``pad_token``. On padding, ``loss_mask`` is False and positions start from 0.
        pad_token: id of the padding token for ``tail="pad"``, or None for the end of text that an output records.
        shuffle: "windows" for a keyed order of all windows, "files" for a keyed order of the files, "none" for neither.
        seed: seed of that order, which differs in every pass.
        dtype: type of ``input_ids``: "int64", "int32", or "store" for the stored type, uint16 or uint32.
        loss_mask: "on" adds a bool for each token, False for tokens without loss in the file; "auto" adds it if the
            first file has a mask or overlaps, or if there is padding; "off" omits it.
        max_tokens: limit to windows within the first ``max_tokens`` tokens, files in their order; None for all windows.
        format: format of the files, or None to detect it.
        token_size: bytes per token, for files that do not record it: ``.ds`` without an index, and flat ``.bin``.
        vocabulary_size: upper limit of ids, exclusive; a window with a larger id raises an error.
        check: checks when a file is opened: "sizes"; "ends", which adds document ends and is always included with
            positions="index"; or "everything", for local files only, which adds ids outside of the vocabulary.
        subfolders: "read" to include the sub-folders of a folder, or "skip".
        split: split to read from a folder or pattern: "train", a held-out one such as "val", which also finds its
            synonyms, or "all". Without such folders, all files are "train".
        paths_file: a local JSON file that caches the list of files and their sizes; files added later are not read.
        on_stale_paths: handling of a ``paths_file`` with other sizes, or with files that ``paths`` does not name.
            "refresh" lists the files again, and "error" raises an error. "trust" raises an error for files that
            ``paths`` does not name, and for a file of another size only when it is opened.

    Raises:
        LoaderError: a field does not fit the others or the files.
        FormatError: a file does not exist, or lacks required data.
        CorruptionError: a file is cut, has grown, or contradicts its index.
    """

    paths: str | os.PathLike[str] | tuple[str | os.PathLike[str], ...]
    seq_len: int
    positions: Literal["none", "index", "eos"] = "none"
    end_of_text: int | None = None
    tail: Literal["drop", "pad"] = "drop"
    pad_token: int | None = None
    shuffle: Literal["none", "files", "windows"] = "none"
    seed: int = 0
    dtype: Literal["int64", "int32", "store"] = "int64"
    loss_mask: Literal["auto", "on", "off"] = "auto"
    max_tokens: int | None = None
    format: str | None = None
    token_size: Literal[2, 4] | None = None
    vocabulary_size: int | None = None
    check: Check = "sizes"
    subfolders: Literal["read", "skip"] = "read"
    split: window_files.Split = "train"
    paths_file: str | os.PathLike[str] | None = None
    on_stale_paths: window_files.OnStalePaths = "refresh"

    __repr__ = short_repr
    _repr_html_ = fields_html

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        if self.seq_len < 1:
            raise LoaderError(f"seq_len {self.seq_len} must be 1 or more")
        for name, least in (("vocabulary_size", 1), ("max_tokens", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise LoaderError(f"{name} {value} must be {least} or more, or None")
        if self.paths_file is not None and "://" in str(self.paths_file):
            raise LoaderError(f"paths_file {self.paths_file} cannot be locked: choose a local file")
        self._take_recorded()
        if not len(self):
            raise LoaderError(
                f"{self.paths} has no window of {self.seq_len + 1:,} tokens: the longest file has "
                f"{max(file.tokens for file in self.files):,}; lower seq_len, or set tail='pad'"
            )
        self._check_ids()

    def _take_recorded(self) -> None:
        for setting, word, name in (("positions", "eos", "end_of_text"), ("tail", "pad", "pad_token")):
            if getattr(self, setting) == word and getattr(self, name) is None:
                if self.recorded.end_of_text is None:
                    raise LoaderError(f"{setting}={word!r} needs {name}, as no output of longcrawl records end_of_text")
                object.__setattr__(self, name, self.recorded.end_of_text)

    def _check_ids(self) -> None:
        self.recorded.check_vocabulary(self.vocabulary_size)
        self.recorded.check_end_of_text(self.end_of_text, (shard.dtype for shard in self._shards()))
        if self.pad_token is not None:
            types = (shard.dtype for shard in self._shards())
            self.recorded.check_padding(self.pad_token, self.vocabulary_size, types, self.window_dtype)
        if self.positions == "eos" and self.end_of_text is not None and self.recorded.end_of_text is None:
            feed.warn_of_absent(self.end_of_text, self.paths, self._blocks())

    @cached_property
    def recorded(self) -> feed.TokenFacts:
        """Facts that the output of the files records about its tokens."""
        return feed.recorded_facts([file.path for file in self.files])

    def _shards(self) -> Iterator[ShardTokens]:
        return (open_tokens(file.path, self.format, self._settings, "sizes") for file in self.files)

    def _blocks(self) -> Iterator[npt.NDArray[Any]]:
        for file, shard in zip(self.files, self._shards(), strict=True):
            for start in range(0, file.tokens, BLOCK):
                block = np.empty((1, min(BLOCK, file.tokens - start)), np.int64)
                shard.copy(np.array([start]), 0, block)
                yield block[0]

    @cached_property
    def files(self) -> list[TokenFile]:
        """Files in order, with their sizes in bytes and in tokens."""
        if self.paths_file is None:
            return self._find(None)
        named = self._named
        if isinstance(named, str) and window_files.is_file(named):
            named = [named]
        return window_files.read_paths(Path(self.paths_file), named, self.split, self.on_stale_paths, self._find)

    @property
    def _named(self) -> str | list[str]:
        if not isinstance(self.paths, tuple):
            return os.fspath(self.paths)
        return [os.fspath(path).removeprefix("file://") for path in self.paths]

    def of_files(self, files: list[TokenFile]) -> "Windows":
        """Return the windows of known files with the same settings."""
        made = copy(self)
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        # Remove all cached properties, which belong to other files.
        vars(made).clear()
        vars(made).update(kept | {"paths": tuple(file.path for file in files), "paths_file": None, "files": files})
        return made

    def _find(self, known: list[str] | None) -> list[TokenFile]:
        recursive = self.subfolders == "read"
        listed = known or window_files.find_files(self._named, self.format, recursive=recursive, split=self.split)
        counts = [open_tokens(path, self.format, self._settings, "sizes").count for path in listed]
        sizes = window_files.file_sizes(listed)
        return [TokenFile(path, size or 0, count) for path, size, count in zip(listed, sizes, counts, strict=True)]

    @cached_property
    def _settings(self) -> dict[str, Any]:
        given = {"token_size": self.token_size, "vocabulary_size": self.vocabulary_size}
        # With an end of text, opening a file without an index would search it for document ends.
        given["end_of_text"] = self.end_of_text if self.positions == "index" else None
        return {name: value for name, value in given.items() if value is not None}

    @cached_property
    def window_dtype(self) -> "np.dtype[Any]":
        """Type of ``input_ids``."""
        return self._shard(0).dtype if self.dtype == "store" else np.dtype(self.dtype)

    @cached_property
    def masked(self) -> bool:
        """Whether windows have a ``loss_mask``."""
        if self.loss_mask != "auto":
            return self.loss_mask == "on"
        return self.tail == "pad" or self._shard(0).masked

    @cached_property
    def counts(self) -> list[int]:
        """Number of windows in each file."""
        length, left = self.seq_len + 1, math.inf if self.max_tokens is None else self.max_tokens
        counts = []
        for file in self.files:
            tokens = int(min(file.tokens, left))
            left -= tokens
            whole = self.tail == "pad" and tokens == file.tokens
            counts.append(-(-tokens // length) if whole else tokens // length)
        return counts

    @property
    def tokens_left_out(self) -> int:
        """Number of tokens in no window: the tails of files, and tokens after ``max_tokens``."""
        length = self.seq_len + 1
        pairs = zip(self.files, self.counts, strict=True)
        return sum(file.tokens - min(count * length, file.tokens) for file, count in pairs)

    @cached_property
    def _count(self) -> int:
        return sum(self.counts)

    def __len__(self) -> int:
        """Count the windows of all files."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> Window: ...

    @overload
    def __getitem__(self, index: slice | Iterable[int]) -> list[Window]: ...

    def __getitem__(self, index: feed.Index) -> Window | list[Window]:
        """Return a window of the first pass, in the order of ``shuffle``, or a list of windows."""
        return feed.items(index, self._count, self._window, "window")

    def _window(self, place: int) -> Window:
        if self.shuffle == "windows":
            place = int(self._keyed(0)(np.array([place]))[0])
        layout = self._layout(0)
        slot = bisect_right(layout.firsts, place) - 1
        window = self._empty(1)
        starts = np.array([(place - layout.firsts[slot]) * (self.seq_len + 1)])
        self._fill(layout.files[slot], starts, window)
        return {name: values[0] for name, values in window.items()}

    def __getitems__(self, indices: list[int]) -> list[Window]:
        """Return windows for a DataLoader that forms batches itself, such as that of transformers' Trainer.

        They also have the fields of :func:`longcrawl.loading.collators.for_transformers`.
        """
        batch = self.read(np.asarray(indices, np.int64))
        rows = ({name: values[row] for name, values in batch.items()} for row in range(len(indices)))
        return [inputs | window for window, inputs in zip(rows, feed.rows_of(batch), strict=True)]

    def __iter__(self) -> Iterator[Window]:
        """Yield every window of the first pass, in order."""
        for index in range(self._count):
            yield self[index]

    def read(self, places: npt.NDArray[np.int64], pass_number: int = 0) -> Window:
        """Return the windows at these places of a pass as one batch: arrays (len(places), seq_len + 1)."""
        places = feed.whole_numbers(places)
        if len(places) and (places.min() < 0 or places.max() >= self._count):
            raise IndexError(f"windows {places.min()} to {places.max()} of {self._count:,} do not all exist")
        layout = self._layout(pass_number)
        numbers = self._keyed(pass_number)(places) if self.shuffle == "windows" else places
        slots, starts = np.empty((2, len(places)), np.int64)
        borders = np.empty(len(places) + 1, np.int64)
        count = locate(numbers, layout.starts, self.seq_len + 1, slots, starts, borders)
        batch = self._empty(len(places))
        if count == 2:
            self._fill(layout.files[int(slots[0])], starts, batch)
            return batch
        for first, last in itertools.pairwise(borders[:count].tolist()):
            rows = {name: values[first:last] for name, values in batch.items()}
            self._fill(layout.files[int(slots[first])], starts[first:last], rows)
        return batch

    def origins(self, places: npt.NDArray[np.int64], pass_number: int = 0) -> list[feed.Origin]:
        """Return the documents in the windows at these places of a pass, window by window."""
        layout, places = self._layout(pass_number), feed.whole_numbers(places)
        numbers = self._keyed(pass_number)(places) if self.shuffle == "windows" else places
        slots = np.searchsorted(layout.starts, numbers, "right") - 1
        files, starts = np.asarray(layout.files)[slots], (numbers - layout.starts[slots]) * (self.seq_len + 1)
        end_of_text = self.recorded.end_of_text if self.end_of_text is None else self.end_of_text
        opened = {file: open_ends(self.files[file].path, self.format, self._settings, end_of_text) for file in files}
        found = list[feed.Origin]()
        for row, (number, start) in enumerate(zip(files.tolist(), starts.tolist(), strict=True)):
            file = self.files[number]
            stop = min(start + self.seq_len + 1, file.tokens)
            found += feed.entry_origins(file.path, opened[number], row, 0, start, stop)
        return found

    def batches(
        self, batch_size: int = 1, rank: int = 0, world_size: int = 1, leftover: "Leftover" = "carry"
    ) -> "WindowBatches":
        """Return batches for one rank of a trainer, with exact resume; see :class:`WindowBatches`."""
        return WindowBatches(self, batch_size, rank, world_size, leftover)

    def _empty(self, windows: int) -> Window:
        shape = (windows, self.seq_len + 1)
        made = {"input_ids": np.empty(shape, self.window_dtype)}
        if self.positions != "none":
            made["positions"] = np.empty(shape, np.int32 if self.dtype == "int32" else np.int64)
        if self.masked:
            made["loss_mask"] = np.empty(shape, np.bool_)
        return made

    def _fill(self, file: int, starts: npt.NDArray[np.int64], rows: Window) -> None:
        shard = self._shard(file)
        tokens = rows["input_ids"]
        shard.copy(starts, self.pad_token or 0, tokens)
        if self.vocabulary_size is not None:
            feed.check_ids(
                tokens, self.vocabulary_size, lambda row, place: f"{shard.path}, token {starts[row] + place:,},"
            )
        elif self.dtype == "int32" and shard.dtype.itemsize == 4 and tokens.size and tokens.min() < 0:
            raise LoaderError(f"{shard.path} has a token id that int32 cannot hold: set dtype='int64'")
        if self.positions == "index":
            positions_from_ends(shard.ends(), starts, rows["positions"])
        elif self.positions == "eos":
            assert self.end_of_text is not None  # _take_recorded checks it
            numbers = rows["positions"]
            positions_from_end_of_text(tokens, self.end_of_text, starts, shard.count, numbers)
        if self.masked:
            for row, start in zip(rows["loss_mask"], starts.tolist(), strict=True):
                stop = min(start + len(row), shard.count)
                row[: stop - start] = shard.loss_mask(start, stop)
                row[stop - start :] = False

    @cached_property
    def _shard(self) -> Callable[[int], ShardTokens]:
        return lru_cache(maxsize=MOST_OPEN)(self._open_shard)

    def _open_shard(self, file: int) -> ShardTokens:
        known = self.files[file]
        check = "ends" if self.check == "sizes" and self.positions == "index" else self.check
        shard = open_tokens(known.path, self.format, self._settings, "sizes" if file in self._checked else check)
        if shard.count != known.tokens:
            raise CorruptionError(
                f"{known.path} has {shard.count:,} tokens, but had {known.tokens:,} when files were listed: fetch it "
                "again, or remove the paths file so that files are listed again"
            )
        if file and self.dtype == "store" and shard.dtype != self.window_dtype:
            raise LoaderError(f"{known.path} has {shard.dtype}, other files {self.window_dtype}: set dtype='int64'")
        if shard.masked and file and self.loss_mask == "auto" and not self.masked:
            raise LoaderError(f"{known.path} has a loss mask but the first file has none: set loss_mask='on', or 'off'")
        self._checked.add(file)
        return shard

    @cached_property
    def _checked(self) -> set[int]:
        """Files that were already checked, also in the process that sent these windows."""
        return set()

    @cached_property
    def _layouts(self) -> dict[int, _Layout]:
        return {}

    def _layout(self, pass_number: int) -> _Layout:
        number = pass_number if self.shuffle == "files" else 0
        if number not in self._layouts:
            files = list(range(len(self.files)))
            if self.shuffle == "files":
                files = file_order(content_names([file.path for file in self.files]), self.seed, number)
            starts = np.cumsum([0, *(self.counts[file] for file in files)], dtype=np.int64)
            if len(self._layouts) > 1:
                self._layouts.pop(max(self._layouts), None)
            self._layouts[number] = _Layout(files, starts.tolist(), starts)
        return self._layouts[number]

    def _keyed(self, number: int) -> KeyedOrder:
        return keyed_order(self._count, self.seed, f"windows of pass {number}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_shard"}


Leftover = Literal["carry", "short", "drop"]


@dataclass(frozen=True, eq=False, repr=False)
class WindowBatches(feed.Feed):
    """Batches of windows for one rank of a trainer, as returned by :meth:`Windows.batches`.

    Iterating resumes after the last delivered batch and ends with the pass. The next ``for`` loop takes the next pass.
    Run only one loop at a time. ``batches[i]`` is batch ``i`` of this rank, counted from the start of the first pass.

    Attributes:
        windows: source of the batches.
        batch_size: windows per batch.
        rank: index of this process among the trainer's ``world_size`` processes.
        world_size: number of processes that share a step's windows.
        leftover: handling of the windows at the end of a pass that do not fill a step. "carry" completes the step with
            the first windows of the next pass, so every pass has each window once, and all batches are full. "short"
            delivers batches with fewer windows, or none, so a loop has each window once; use it for evaluation. "drop"
            omits them.

    Raises:
        LoaderError: a field has a wrong value.
    """

    kind: ClassVar[str] = "windows"
    unit: ClassVar[str] = "windows"

    windows: Windows
    batch_size: int = 1
    rank: int = 0
    world_size: int = 1
    leftover: Leftover = "carry"

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        self.check_ranks(batch_size=1)
        if self.leftover == "drop" and len(self.windows) < self.step_size:
            raise LoaderError(
                f"{len(self.windows):,} windows do not fill a step of {self.step_size:,}: lower batch_size, or set "
                "leftover='carry'"
            )

    def stop(self, position: int) -> int:
        """Return the position at which a pass ends, without dropped windows."""
        end = self._pass_end(position)
        return end - (end - position) % self.step_size if self.leftover == "drop" else end

    def remaining_steps(self) -> range:
        """Return the first window of every step up to the end of the pass, counted over all passes."""
        if self.leftover == "drop" and self.stop(self.position) == self.position:
            self.move_to(self._pass_end(self.position))
        return super().remaining_steps()

    def read(self, step: int) -> feed.Batch:
        """Return this rank's windows of the step that begins at window ``step``, counted over all passes."""
        first, *others = [self.windows.read(places, number) for places, number in self._parts(step)]
        if not others:
            return first
        return {name: np.concatenate([values, *(part[name] for part in others)]) for name, values in first.items()}

    @property
    def endless(self) -> bool:
        """Whether passes continue within a batch."""
        return self.leftover == "carry"

    def origins_at(self, position: int) -> list[feed.Origin]:
        """Return the documents in this rank's windows of a step; columns are those of ``input_ids``."""
        found, rows = list[feed.Origin](), 0
        for places, number in self._parts(position):
            found += [replace(each, row=rows + each.row) for each in self.windows.origins(places, number)]
            rows += len(places)
        return found

    def _parts(self, step: int) -> "list[tuple[npt.NDArray[np.int64], int]]":
        """Return the places of this rank's windows of a step, and their pass, for each pass in the step."""
        start, stop = step + self.rank * self.batch_size, step + (self.rank + 1) * self.batch_size
        if self.leftover == "short":
            end = self._pass_end(step)
            start, stop = min(start, end), min(stop, end)
        count = len(self.windows)
        borders = [start, *range(self._pass_end(start), stop, count), stop]
        return [
            (np.arange(left, right) - left // count * count, left // count)
            for left, right in itertools.pairwise(borders)
        ]

    def hand_out(self, step: int) -> None:
        """Record the delivery of a step, and skip dropped or missing windows at the end of a pass."""
        following, end = step + self.step_size, self._pass_end(step)
        over = self.leftover != "carry" and end - following < (self.step_size if self.leftover == "drop" else 1)
        self.move_to(end if over else following)

    def _pass_end(self, window: int) -> int:
        count = len(self.windows)
        return (window // count + 1) * count

    def identity(self, position: int) -> Mapping[str, Any]:  # noqa: ARG002  # the same at every position
        """Return settings and a description of the data, with names of files if they determine the order."""
        return self._identity

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed; the list is empty if they match."""
        return feed.data_changes(state, self._identity, self.windows.files)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return order_identity(self.windows) | feed.data_identity(self.windows.files)


def order_identity(windows: Windows) -> dict[str, Any]:
    """Return the settings that, with the data, determine the tokens of each window in a pass."""
    names = content_names([file.path for file in windows.files]) if windows.shuffle == "files" else []
    return {
        "seq_len": windows.seq_len,
        "windows": len(windows),
        "shuffle": windows.shuffle,
        "seed": windows.seed if windows.shuffle != "none" else None,
        "positions": windows.positions,
        "end_of_text": windows.end_of_text if windows.positions != "none" else None,
        "tail": windows.tail,
        "pad_token": windows.pad_token if windows.tail == "pad" else None,
        "loss_mask": windows.masked,
        "names": blake2b("\0".join(names).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest(),
    }
