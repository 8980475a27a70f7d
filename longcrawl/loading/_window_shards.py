"""The tokens of one shard by place: mapped to memory, or fetched by range from where fsspec reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.composition.packing import kernels
from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.shards import datatrove
from longcrawl.formats.shards.checks import end_problems
from longcrawl.formats.shards.shard import TokenShard
from longcrawl.formats.shards.spec import find_format, open_shard
from longcrawl.storage.block_checksums import SUFFIX, BlockChecksums, parse_checksums
from longcrawl.storage.file_systems import exists, fetch, size_of, sizes_of
from longcrawl.urls import is_url

READ_AHEAD = 1 << 22
"""Bytes that are fetched at once where a shard is read from front to back."""


@dataclass(frozen=True, eq=False)
class _MappedShard:
    """A shard of this machine."""

    path: str
    tokens: npt.NDArray[Any]
    document_ends: npt.NDArray[np.int64] | None
    mask: npt.NDArray[np.bool_] | None
    overlaps: npt.NDArray[Any] | None
    shard: TokenShard

    @property
    def dtype(self) -> "np.dtype[Any]":
        return self.tokens.dtype

    @property
    def count(self) -> int:
        return len(self.tokens)

    def copy(self, starts: npt.NDArray[np.int64], pad: int, out: npt.NDArray[Any]) -> None:
        """Copy the tokens from each start on into a row of ``out``; what lies behind the last token is ``pad``."""
        if self.shard.unread:
            for start in starts.tolist():
                self.shard.compare(start, min(start + out.shape[1], len(self.tokens)))
        kernels().copy_windows(self.tokens, starts, pad, out)

    def ends(self) -> npt.NDArray[np.int64]:
        if self.document_ends is None:
            raise FormatError(
                f"{self.path} does not say where its documents end: write its index, or set "
                "positions='eos' and end_of_text to the id that documents end with"
            )
        self.shard.compare_index()
        return self.document_ends

    @property
    def masked(self) -> bool:
        return self.mask is not None or self.overlaps is not None

    def loss_mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which tokens' loss counts."""
        self.shard.compare(start, stop)
        counts = np.ones(stop - start, np.bool_) if self.mask is None else self.mask[start:stop].copy()
        if self.overlaps is not None:
            self._leave_out_overlaps(start, stop, counts)
        return counts

    def _leave_out_overlaps(self, start: int, stop: int, counts: npt.NDArray[np.bool_]) -> None:
        ends, overlaps = self.ends(), self.overlaps
        document = int(np.searchsorted(ends, start, "right"))
        first = int(ends[document - 1]) if document else 0
        while first < stop and document < len(ends) and overlaps is not None:
            counts[max(first - start, 0) : max(first + int(overlaps[document]) - start, 0)] = False
            first, document = int(ends[document]), document + 1


def remote_width(path: str, given: int | None) -> int:
    """Return the bytes of a token of a remote ``.ds``, by its index if nothing else says it."""
    index = f"{path}{datatrove.INDEX}"
    size, entries = sizes_of([path, index])
    if size is None:
        raise FormatError(f"there is no file {path}; check the path")
    if entries is None:
        if given is None:
            raise FormatError(f"{path} has no .index and nothing else says how wide its tokens are: set token_size")
        if size % given:
            raise CorruptionError(f"{path} has {size:,} bytes, no whole tokens of {given}: check token_size")
        return given
    last = int.from_bytes(fetch(index, max(entries - 8, 0), entries), "little") if entries else 0
    for width in (2, 4) if given is None else (given,):
        if size == last * width:
            return width
    raise CorruptionError(
        f"{path} has {size:,} bytes, but its index ends at token {last:,}: check token_size, or fetch both again"
    )


@dataclass(eq=False)
class _RemoteShard:
    """A shard behind a URL, with the methods of :class:`_MappedShard`."""

    path: str
    width: int
    _ends: npt.NDArray[np.int64] | None = field(default=None, init=False)
    _ahead: tuple[int, bytes] = field(default=(0, b""), init=False)
    _next: int = field(default=0, init=False)

    @property
    def dtype(self) -> "np.dtype[Any]":
        return np.dtype(f"<u{self.width}")

    @property
    def count(self) -> int:
        return self._size // self.width

    @cached_property
    def _size(self) -> int:
        size = size_of(self.path)
        if size is None:
            raise FormatError(f"there is no file {self.path}; check the path")
        return size

    def copy(self, starts: npt.NDArray[np.int64], pad: int, out: npt.NDArray[Any]) -> None:
        for row, start in enumerate(starts.tolist()):
            tokens = self._fetch(start, start + out.shape[1])
            out[row, : len(tokens)] = tokens
            out[row, len(tokens) :] = pad

    def _fetch(self, start: int, stop: int) -> npt.NDArray[Any]:
        first, last = start * self.width, min(stop * self.width, self._size)
        held, block = self._ahead
        if not held <= first <= last <= held + len(block):
            # One window at a time where windows are shuffled, many where they follow each other.
            until = max(last, min(first + READ_AHEAD, self._size)) if first == self._next else last
            checksums = self._checksums
            # What is fetched to be compared is kept.
            begin, until = (first, until) if checksums is None else checksums.files[datatrove.SUFFIX].span(first, until)
            held, block = self._ahead = begin, self._read("", begin, until)
            if len(block) != until - begin:
                raise CorruptionError(f"{self.path} is cut at byte {begin + len(block):,}: it changed. Open it again")
        self._next = last
        return np.frombuffer(block, self.dtype, (last - first) // self.width, first - held)

    def ends(self) -> npt.NDArray[np.int64]:
        if self._ends is None:
            size = size_of(f"{self.path}{datatrove.INDEX}")
            if size is None:
                raise FormatError(f"{self.path} has no .index: set positions='eos' and end_of_text, or write its index")
            entries = self._read(datatrove.INDEX, 0, size)
            if len(entries) % 8:
                raise CorruptionError(f"{self.path}.index is cut at byte {len(entries):,}: fetch it again")
            self._ends = np.frombuffer(entries, "<i8")
        return self._ends

    def check_ends(self) -> None:
        """Look at where documents end."""
        for problem in end_problems(self.ends(), self.count, f"{self.path}{datatrove.INDEX}", lambda entry: 8 * entry):
            raise CorruptionError(problem)

    @cached_property
    def masked(self) -> bool:
        return exists(f"{self.path}{datatrove.LOSS}")

    def loss_mask(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        stop = min(stop, self.count)
        if not self.masked:
            return np.ones(stop - start, np.bool_)
        return np.frombuffer(self._read(datatrove.LOSS, start, stop), np.bool_)

    def _read(self, suffix: str, first: int, stop: int) -> bytes:
        """Read bytes of the tokens, or of a file beside them; in whole blocks, compared, where these have checksums."""
        read = partial(fetch, f"{self.path}{suffix}")
        checksums = self._checksums
        if checksums is None or datatrove.SUFFIX + suffix not in checksums.files:
            return read(first, stop)
        return checksums.files[datatrove.SUFFIX + suffix].read(read, first, stop)

    @cached_property
    def _checksums(self) -> BlockChecksums | None:
        """The checksums beside the shard, where there are any."""
        beside = f"{self.path}{SUFFIX}"
        try:
            text = fetch(beside)
        except FileNotFoundError:
            return None
        stem = self.path.removesuffix(datatrove.SUFFIX)
        checksums = parse_checksums(text, beside, stem)
        suffixes = (datatrove.INDEX, datatrove.LOSS, datatrove.METADATA)
        sizes = sizes_of([f"{self.path}{suffix}" for suffix in suffixes])
        found = {datatrove.SUFFIX: self._size}
        for suffix, size in zip(suffixes, sizes, strict=True):
            if size is not None:
                found[datatrove.SUFFIX + suffix] = size
        checksums.check_sizes(found, stem)
        return checksums


ShardTokens = _MappedShard | _RemoteShard


def open_tokens(path: str, format: str | None, settings: Mapping[str, Any], check: str) -> ShardTokens:  # noqa: A002  # the word that says what is meant
    """Open a shard to read windows of it."""
    if is_url(path):
        if format not in (None, datatrove.Datatrove.name) or not path.endswith(datatrove.SUFFIX):
            raise FormatError(f"{path} is not on this machine, where only .ds files are read from: copy it here first")
        if check == "everything":
            raise FormatError(
                f"{path} would have to be fetched whole for check='everything': copy it here first, or set "
                "check='ends', with which ids are compared as windows are read"
            )
        remote = _RemoteShard(path, remote_width(path, settings.get("token_size")))
        if check == "ends":
            remote.check_ends()
        return remote
    found = find_format(path, format)
    shard = open_shard(path, found.name, check=check, **settings)
    # A plain array on the same pages: slices of a memmap cost five times those of an array.
    ends = None if shard.document_ends is None else np.asarray(shard.document_ends)
    mask = None if shard.loss_mask is None else np.asarray(shard.loss_mask)
    if shard.overlaps is not None:
        shard.compare_index()
    overlaps = None if shard.overlaps is None or not shard.overlaps.any() else np.asarray(shard.overlaps)
    return _MappedShard(path, np.asarray(shard.tokens), ends, mask, overlaps, shard)


def open_ends(
    path: str,
    format: str | None,  # noqa: A002  # the word that says what is meant
    settings: Mapping[str, Any],
    end_of_text: int | None,
) -> npt.NDArray[np.int64] | None:
    """Return where the entries of a shard end, by its index or by their end of text; None where nothing says it."""
    given = dict(settings) | ({} if end_of_text is None or is_url(path) else {"end_of_text": end_of_text})
    try:
        return open_tokens(path, format, given, "sizes").ends()
    except FormatError:
        return None
