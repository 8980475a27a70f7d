"""Open one split of a rectangle for reading chunk by chunk.

A rectangle is a folder with two token arrays of shape (documents, tokens per document), dtype uint16 or uint32, one
document per row. Each split lies in ``<folder>/<split>`` (ours, Zarr format 3 or 2) or ``<folder>/<split>.zarr`` (the
original LongCrawl64, Zarr format 2). Two engines give equal chunks:

* ``"direct"`` reads little-endian, row-major, blosc-compressed chunks, in shards (whose index is checked against its
  crc32c) or not;
* ``"zarr"`` reads everything that zarr-python reads.

Both read local folders and URLs of fsspec (``http://``, ``hf://``, ``memory://``). "direct" fetches the index of a
shard once and then the bytes of each chunk that is asked for; plain Zarr over ``hf://`` reads five megabytes ahead.

A chunk that a shard's index records as absent is all fill value. A *file* that is absent reads as fill value in plain
Zarr, without a word; here it is a :class:`~longcrawl.errors.CorruptionError` unless ``on_missing_chunks="fill"``. Bytes
changed inside a chunk are noticed only where blosc notices them, as chunks carry no checksum: use ``longcrawl verify``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np

from longcrawl.errors import FormatError
from longcrawl.formats._byte_ranges import is_remote
from longcrawl.formats._rectangle_layout import ArrayLayout, parse_layout
from longcrawl.formats._rectangle_readers import ChunkReader, DirectReader, OnMissingChunks, Tokens, ZarrReader

__all__ = [
    "GPT2_END_OF_TEXT",
    "LOSS_MASK_SUFFIX",
    "Engine",
    "OnMissingChunks",
    "SplitArray",
    "open_loss_mask",
    "open_split",
]

Engine = Literal["auto", "direct", "zarr"]
"""Who decodes chunks: "direct" (blosc), "zarr" (zarr-python), or "auto": direct where it can."""

GPT2_END_OF_TEXT = 50256
"""The end-of-text id of a rectangle that does not name its own, as the original LongCrawl64 does not."""

LOSS_MASK_SUFFIX = "_loss_mask"
"""What follows the name of a split in that of its loss mask: ``train_loss_mask``."""


@dataclass(frozen=True)
class SplitArray:
    """One split of a rectangle, or its loss mask; picklable, usable from threads and after a fork.

    Attributes:
        root: the rectangle's folder or URL.
        name: the array's folder in it: ``train`` or ``train.zarr``.
        layout: shape, dtype, chunk shape and fill value.
        end_of_text: id that separates documents, from the group's attributes.
        engine: the engine that reads, never "auto".
        on_missing_chunks: what a missing file does.
        masked: whether the rectangle says that its splits have loss masks, see :func:`open_loss_mask`.

    """

    root: str
    name: str
    layout: ArrayLayout
    end_of_text: int
    engine: Literal["direct", "zarr"]
    on_missing_chunks: OnMissingChunks = "error"
    masked: bool = False
    _reader: ChunkReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader: ChunkReader
        if self.engine == "direct":
            reader = DirectReader(f"{self.root}/{self.name}", self.layout, self.on_missing_chunks)
        else:
            reader = ZarrReader(self.root, self.name, self.layout, _folder(self.root).exists, self.on_missing_chunks)
        object.__setattr__(self, "_reader", reader)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open files."""
        told = (self.root, self.name, self.layout, self.end_of_text, self.engine, self.on_missing_chunks, self.masked)
        return SplitArray, told

    @property
    def shape(self) -> tuple[int, int]:
        """Documents, and tokens per document."""
        return self.layout.shape

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The stored dtype in native byte order: uint16 or uint32, bool of a loss mask."""
        return self.layout.dtype

    def read_chunk(self, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode one chunk: a new array, clipped at the array's last row and column.

        Raises:
            CorruptionError: the file is missing, cut or does not decode; the message names file and chunk.
            IndexError: there is no such chunk.

        """
        if not (0 <= row_chunk < self.layout.chunk_grid[0] and 0 <= column_chunk < self.layout.chunk_grid[1]):
            raise IndexError(
                f"{self.root}/{self.name} has {self.layout.chunk_grid} chunks, none at {(row_chunk, column_chunk)}"
            )
        return self._reader.read(row_chunk, column_chunk)


def open_split(
    path: str | os.PathLike[str],
    split: str = "train",
    engine: Engine = "auto",
    on_missing_chunks: OnMissingChunks = "error",
) -> SplitArray:
    """Open one split of the rectangle at ``path``, a local folder or an fsspec URL.

    >>> array = open_split("mini64.zarr", "heldout")  # doctest: +SKIP
    >>> array.shape, array.dtype, array.layout.chunks  # doctest: +SKIP
    ((52131, 65536), dtype('uint16'), (64, 2048))

    Raises:
        FormatError: no such folder or split (the message names what is there), or not a rectangle.

    """
    array = _open(os.fspath(path), split, engine, on_missing_chunks)
    if array.dtype == np.bool_:
        raise FormatError(f"{array.root}/{array.name}: token ids are uint16 or uint32, this array has {array.dtype}")
    return array


def open_loss_mask(array: SplitArray) -> SplitArray:
    """Open the loss mask of a split that is ``masked``: bool, of the shape and the chunks of its tokens.

    Raises:
        FormatError: there is none, or it does not lie as the tokens do.

    """
    name = f"{array.name}{LOSS_MASK_SUFFIX}"
    mask = _open(array.root, name, "zarr" if array.engine == "zarr" else "auto", array.on_missing_chunks)
    if mask.dtype != np.bool_ or mask.shape != array.shape or mask.layout.chunks != array.layout.chunks:
        raise FormatError(
            f"{mask.root}/{mask.name} is {mask.dtype} {mask.shape} in chunks of {mask.layout.chunks}, a loss mask is "
            f"bool and lies as its tokens, {array.shape} in chunks of {array.layout.chunks}; build the rectangle again"
        )
    return mask


def _open(path: str, split: str, engine: Engine, on_missing_chunks: OnMissingChunks) -> SplitArray:
    folder = _folder(path)
    name, metadata = _find_array(folder, split)
    layout = parse_layout(metadata, f"{folder.root}/{name}")
    if engine == "direct" and layout.indirect:
        raise FormatError(f"{folder.root}/{name}: the direct engine does not read {layout.indirect}; use engine='auto'")
    chosen: Literal["direct", "zarr"] = "zarr" if engine == "zarr" or layout.indirect else "direct"
    attributes = (_read_json(folder, "zarr.json") or {}).get("attributes") or _read_json(folder, ".zattrs") or {}
    masked = attributes.get("loss_mask") is True
    return SplitArray(
        folder.root, name, layout, _end_of_text(folder.root, attributes), chosen, on_missing_chunks, masked
    )


def _find_array(folder: "_Folder", split: str) -> tuple[str, Mapping[str, Any]]:
    for name in (split, f"{split}.zarr"):
        for file in ("zarr.json", ".zarray"):
            metadata = _read_json(folder, f"{name}/{file}")
            if metadata is not None and metadata.get("node_type", "array") == "array":
                return name, metadata
    if folder.exists(".zarray") or (_read_json(folder, "zarr.json") or {}).get("node_type") == "array":
        parent = folder.root.rsplit("/", 1)[0]
        raise FormatError(
            f"{folder.root} is one array, not a rectangle: open the folder that holds its splits, {parent!r}"
        )
    names = folder.names()
    if names is None:
        raise FormatError(
            f"there is no rectangle at {folder.root}, which does not exist or cannot be listed; check the path"
        )
    found = ", ".join(repr(name) for name in names[:8]) or "nothing"
    inside = f"; open the rectangle in it, {f'{folder.root}/rectangle'!r}" if "rectangle" in names else ""
    raise FormatError(f"{folder.root} has no split {split!r}; there is: {found}{inside}")


def _end_of_text(root: str, attributes: Mapping[str, Any]) -> int:
    end_of_text = attributes.get("end_of_text", GPT2_END_OF_TEXT)
    if not isinstance(end_of_text, int) or isinstance(end_of_text, bool) or end_of_text < 0:
        raise FormatError(f"{root}: the attribute end_of_text must be a token id, it is {end_of_text!r}")
    return end_of_text


def _read_json(folder: "_Folder", name: str) -> dict[str, Any] | None:
    text = folder.read(name)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as wrong:
        raise FormatError(f"{folder.root}/{name} is not JSON ({wrong}); fetch this file again") from wrong
    if not isinstance(value, dict):
        raise FormatError(f"{folder.root}/{name} holds no JSON object; fetch this file again")
    return value


class _Folder(Protocol):
    """The little that is asked of a folder, local or remote."""

    root: str

    def read(self, name: str) -> bytes | None: ...
    def exists(self, name: str) -> bool: ...
    def names(self) -> list[str] | None: ...


class _LocalFolder:
    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"

    def read(self, name: str) -> bytes | None:
        try:
            return Path(self.root, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, name: str) -> bool:
        return Path(self.root, name).is_file()

    def names(self) -> list[str] | None:
        return sorted(entry.name for entry in Path(self.root).iterdir()) if Path(self.root).is_dir() else None


class _RemoteFolder:
    def __init__(self, root: str) -> None:
        import fsspec

        self.root = root.rstrip("/")
        self._files, self._path = fsspec.core.url_to_fs(self.root)

    def read(self, name: str) -> bytes | None:
        try:
            text: bytes = self._files.cat_file(f"{self._path}/{name}")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return text

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(f"{self._path}/{name}"))

    def names(self) -> list[str] | None:
        try:
            return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in self._files.ls(self._path, detail=False))
        except (OSError, NotImplementedError):
            return None


def _folder(root: str) -> _Folder:
    if root.startswith("file://"):
        return _LocalFolder(unquote(urlsplit(root).path))
    return _RemoteFolder(root) if is_remote(root) else _LocalFolder(root)
