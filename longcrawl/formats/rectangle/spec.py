"""The rectangle: one document per row, all rows of one length, as Zarr. Opened for reading chunk by chunk.

Specification
-------------
``NAME/`` is a Zarr group with the arrays ``train`` and, when any rows are held out, ``heldout``: (rows,
context_length), little-endian uint16 or uint32, fill value = the end-of-text token. Zarr v3 (the default) has one
shard per band of 2,048 rows with inner chunks of 64 x 2,048 tokens, Blosc zstd level 3 *without* shuffle: on GPT-2
tokens of long documents that is 1.64 times smaller than raw, with shuffle 1.43, with bitshuffle 1.19
(benchmarks/codecs.py). Behind each inner chunk is its crc32c, Zarr's codec of this name, so that every reader notices
changed bytes. ``zarr_format=2`` gives the chunks of the original LongCrawl64, 2,048 x 2,048 (103,296 files for its 6.6
million rows where v3 has 3,228), with the same codec and no checksum in them: each is a file, whose SHA-256 is in
``rectangle.json``.

Beside the arrays lie

* ``train_loss_mask``, ``heldout_loss_mask``, only where the documents have a column ``loss_mask``: arrays of the shape,
  chunks and codec of the tokens, bool, fill value true; false where no loss is to be computed;
* ``rows/train.parquet``, ``rows/heldout.parquet``: ``row``, ``id``, ``url``, ``roll``, ``n_tokens`` (before
  truncation), and ``date``, ``source``, ``file`` and ``offset``, whichever of these the documents have;
* ``tokenizer.json``, when the tokens were made here: what decodes a row;
* ``rectangle.json``: shapes, end of text, and bytes and SHA-256 of every file and, last, its own. It is written last:
  without it the rectangle is not finished.

The group's attributes hold ``end_of_text``, ``vocabulary_size``, ``tokenizer``, ``json_escaped`` and ``rolled``,
and ``loss_mask``, true, where there are loss masks.

Reading
-------
A rectangle is a folder with two token arrays of shape (documents, tokens per document), dtype uint16 or uint32, one
document per row. Each split lies in ``<folder>/<split>`` (ours, Zarr format 3 or 2) or ``<folder>/<split>.zarr`` (the
original LongCrawl64, Zarr format 2). Two engines give equal chunks:

* ``"direct"`` reads little-endian, row-major, blosc-compressed chunks, in shards (whose index is checked against its
  crc32c) or not;
* ``"zarr"`` reads everything that zarr-python reads.

Both read local folders and URLs of fsspec (``http://``, ``hf://``, ``memory://``). "direct" fetches the index of a
shard once and then the bytes of each chunk that is asked for; plain Zarr over ``hf://`` reads five megabytes ahead.

A chunk that a shard's index records as absent is all fill value. A *file* that is absent reads as fill value in plain
Zarr, without a word; here it is a :class:`~longcrawl.errors.CorruptionError`. ``on_missing_chunks="skip"`` opens a copy
of which only a part is there: the bands of rows whose files are all there, as a dense array that knows which rows of
the whole they are (:attr:`SplitArray.bands`). ``"fill"`` does what plain Zarr does.

Changed bytes are a CorruptionError too, in what longcrawl has written. Shards carry a crc32c behind each chunk,
compared whenever that is decoded. In Zarr v2 a chunk is a file: its SHA-256 in ``rectangle.json`` is compared when it
is first read. Metadata is compared with that file when a split is opened. :attr:`SplitArray.checksum` says which. In
arrays that carry none, changed bytes are noticed only where blosc notices them.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from longcrawl.core.outputs import RESULTS
from longcrawl.errors import CorruptionError, FormatError, unreadable
from longcrawl.formats.rectangle.chunks import (
    ArrayLayout,
    ChunkReader,
    DirectReader,
    Folder,
    StoredArray,
    Tokens,
    bands_of,
    dense_layout,
    parse_layout,
)
from longcrawl.formats.rectangle.chunks import Band as Band  # noqa: PLC0414  # it is in the signatures below
from longcrawl.formats.rectangle.chunks import OnMissingChunks as OnMissingChunks  # noqa: PLC0414  # as above
from longcrawl.formats.rectangle.chunks import whole_bands as whole_bands  # noqa: PLC0414  # for who fetches them
from longcrawl.io import structured
from longcrawl.io.structured import load_json

Engine = Literal["auto", "direct", "zarr"]
"""Who decodes chunks: "direct" (blosc), "zarr" (zarr-python), or "auto": direct where it can."""

GPT2_END_OF_TEXT = 50256
"""The end-of-text id of a rectangle that does not name its own, as the original LongCrawl64 does not."""

DESCRIPTION = "rectangle.json"
VERSION = 1

DESCRIPTIONS = (DESCRIPTION, "composed.json")
"""What names the checksums of all files: of a rectangle; of a composed dataset, whose splits are folders of arrays."""

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
        vocabulary_size: ids are below it, from there, too; None where it is not recorded.
        engine: the engine that reads, never "auto".
        on_missing_chunks: what a missing file does.
        masked: whether the rectangle says that its splits have loss masks, see :func:`open_loss_mask`.
        file_checksums: SHA-256 of chunks that are files of their own, by their names in ``root``, where recorded.
        rolled: whether rows are rolled; None where nobody recorded it.
        stored: the layout of all bands, where some are skipped; None where none is.
        kept: the numbers of the bands that are not skipped, then.
    """

    root: str
    name: str
    layout: ArrayLayout
    end_of_text: int
    engine: Literal["direct", "zarr"]
    on_missing_chunks: OnMissingChunks = "error"
    masked: bool = False
    file_checksums: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    vocabulary_size: int | None = None
    rolled: bool | None = None
    stored: ArrayLayout | None = None
    kept: tuple[int, ...] = ()
    _reader: ChunkReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader: ChunkReader
        stored = StoredArray(self.root, self.name, self.stored or self.layout, self.file_checksums)
        missing: OnMissingChunks = "fill" if self.on_missing_chunks == "fill" else "error"
        if self.engine == "direct":
            reader = DirectReader(stored, missing)
        else:
            from longcrawl.formats.rectangle.zarr_reader import ZarrReader  # zarr takes 0.1 s to import

            reader = ZarrReader(stored, Folder(self.root), missing)
        object.__setattr__(self, "_reader", reader)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open files."""
        names = [name for name in self.__dataclass_fields__ if not name.startswith("_")]
        return SplitArray, tuple(getattr(self, name) for name in names)

    @property
    def shape(self) -> tuple[int, int]:
        """Documents, and tokens per document."""
        return self.layout.shape

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The stored dtype in native byte order: uint16 or uint32, bool of a loss mask."""
        return self.layout.dtype

    @property
    def checksum(self) -> Literal["crc32c", "sha256", "none"]:
        """What the bytes of each chunk are compared with as they are read."""
        return "sha256" if self.layout.checksum == "none" and self.file_checksums else self.layout.checksum

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
        return self._reader.read(self._stored_chunk(row_chunk), column_chunk)

    def read_chunks(self, places: Sequence[tuple[int, int]]) -> list[Tokens]:
        """Decode chunks that lie in one file, see :meth:`file_of`; of a remote one neighbours are fetched together."""
        return self._reader.read_file([(self._stored_chunk(row), column) for row, column in places])

    def decode(self, content: bytes, row_chunk: int, column_chunk: int) -> Tokens:
        """Decode the bytes of a chunk that is a file of its own, as :meth:`read_chunk` does.

        Raises:
            CorruptionError: they do not decode.
            FormatError: the array is not one of blosc chunks in files of their own.
        """
        if not isinstance(self._reader, DirectReader) or self.layout.index_at != "none":
            raise FormatError(f"{self.root}/{self.name} has no chunks in files of their own: read them with read_chunk")
        return self._reader.decode(content, (self._stored_chunk(row_chunk), column_chunk))

    def file_of(self, row_chunk: int, column_chunk: int) -> str:
        """Name the file that holds a chunk."""
        return self.layout.file_name(self._stored_chunk(row_chunk), column_chunk)

    def _stored_chunk(self, row_chunk: int) -> int:
        """Return which row of chunks a row of chunks is in its files."""
        if self.stored is None:
            return row_chunk
        band, within = divmod(row_chunk, self.layout.chunks_per_file[0])
        return self.kept[band] * self.layout.chunks_per_file[0] + within

    @property
    def bands(self) -> tuple[Band, ...]:
        """The bands of rows that are read, one row of files each."""
        stored = self.stored or self.layout
        return bands_of(stored, self.kept if self.stored else range(-(-stored.shape[0] // stored.file_shape[0])))

    def stored_rows(self, start: int, stop: int) -> list[range]:
        """Return which rows of the files rows ``start:stop`` are, in stretches."""
        if self.stored is None:
            return [range(start, stop)]
        found, height = list[range](), self.layout.file_shape[0]
        for band in self.bands[start // height : -(-stop // height)]:
            first, last = max(start, band.rows.start), min(stop, band.rows.stop)
            shift = band.stored.start - band.rows.start
            found.append(range(first + shift, last + shift))
        return found


def open_split(
    path: str | os.PathLike[str],
    split: str = "train",
    engine: Engine = "auto",
    on_missing_chunks: OnMissingChunks = "error",
) -> SplitArray:
    """Open one split of the rectangle at ``path``, a local folder or an fsspec URL; or the array of a split itself.

    >>> array = open_split("mini64.zarr", "heldout")  # doctest: +SKIP
    >>> array.shape, array.dtype, array.layout.chunks  # doctest: +SKIP
    ((52131, 65536), dtype('uint16'), (64, 2048))

    Raises:
        FormatError: no such folder or split (the message names what is there), or not a rectangle.
    """
    try:
        array = _open(os.fspath(path), split, engine, on_missing_chunks)
    except _OneArrayError as one:
        if split not in ("train", one.name.removesuffix(".zarr")):
            raise FormatError(f"{path} is one array, and not that of {split!r}: open the folder {one.parent}") from one
        array = _open(one.parent, one.name, engine, on_missing_chunks)
    if array.dtype == np.bool_:
        raise FormatError(f"{array.root}/{array.name}: token ids are uint16 or uint32, this array has {array.dtype}")
    return _with_whole_bands(array) if on_missing_chunks == "skip" else array


class _OneArrayError(FormatError):
    """What was opened is one array, and not a folder of splits."""

    def __init__(self, root: str) -> None:
        parent, _, self.name = root.rpartition("/")
        self.parent = parent or ("/" if root.startswith("/") else ".")
        super().__init__(
            f"{root} is one array, not a rectangle: open the folder that holds its splits, {self.parent!r}"
        )


def _with_whole_bands(array: SplitArray) -> SplitArray:
    """Return an array without the bands that lack a file, of tokens or of their loss mask."""
    folder, layout = Folder(array.root), array.layout
    there = folder.files(array.name)
    kept = set(whole_bands(layout, there))
    if array.masked:
        kept &= set(whole_bands(layout, folder.files(f"{array.name}{LOSS_MASK_SUFFIX}")))
    if not kept:
        raise FormatError(
            f"{array.root}/{array.name} has no complete rows: {len(there):,} of {layout.files:,} files are there, and "
            f"{-(-layout.shape[1] // layout.file_shape[1]):,} make one band of {layout.file_shape[0]:,} rows"
        )
    return take_bands(array, tuple(sorted(kept)))


def take_bands(array: SplitArray, kept: tuple[int, ...]) -> SplitArray:
    """Return some bands of an array as an array, in this order; a band of fewer rows than the others is the last."""
    bands = bands_of(array.layout, kept)
    if bands == array.bands:
        return array
    return replace(array, layout=dense_layout(array.layout, bands), stored=array.layout, kept=kept)


def read_description(path: Path) -> dict[str, Any]:
    """Read ``rectangle.json``, with the errors of :func:`longcrawl.io.structured.read_description`."""
    return structured.read_description(path / DESCRIPTION, "rectangle", VERSION, ("shapes", "files", "json_escaped"))


def has_split(path: str | os.PathLike[str], split: str) -> bool:
    """Return whether there is metadata of a split, whole or not."""
    folder = Folder(os.fspath(path))
    return any(folder.exists(file) for file in _metadata_files(split))


def open_loss_mask(array: SplitArray) -> SplitArray:
    """Open the loss mask of a ``masked`` split; raise FormatError unless it is bool and lies as the tokens do."""
    name = f"{array.name}{LOSS_MASK_SUFFIX}"
    mask = _open(array.root, name, "zarr" if array.engine == "zarr" else "auto", array.on_missing_chunks)
    mask = take_bands(mask, array.kept) if array.stored else mask
    if mask.dtype != np.bool_ or mask.shape != array.shape or mask.layout.chunks != array.layout.chunks:
        raise FormatError(
            f"{mask.root}/{mask.name} is {mask.dtype} {mask.shape} in chunks of {mask.layout.chunks}, a loss mask is "
            f"bool and lies as its tokens, {array.shape} in chunks of {array.layout.chunks}; build the rectangle again"
        )
    return mask


def _open(path: str, split: str, engine: Engine, on_missing_chunks: OnMissingChunks) -> SplitArray:
    folder = Folder(path)
    checksums = _recorded_checksums(folder, split)
    name, metadata = _find_array(folder, split, checksums)
    layout = parse_layout(metadata, f"{folder.root}/{name}")
    if engine == "direct" and layout.indirect:
        raise FormatError(f"{folder.root}/{name}: the direct engine does not read {layout.indirect}; use engine='auto'")
    chosen: Literal["direct", "zarr"] = "zarr" if engine == "zarr" or layout.indirect else "direct"
    attributes = _attributes(folder, checksums)
    return SplitArray(
        folder.root,
        name,
        layout,
        _end_of_text(folder.root, attributes),
        chosen,
        on_missing_chunks,
        attributes.get("loss_mask") is True,
        {file: each for file, each in checksums.items() if layout.index_at == "none" and file.startswith(f"{name}/")},
        _vocabulary_size(folder.root, attributes),
        attributes["rolled"] if isinstance(attributes.get("rolled"), bool) else None,
    )


def _recorded_checksums(folder: Folder, split: str) -> dict[str, str]:
    """Return the SHA-256 of all files of a finished dataset of longcrawl; nothing of others."""
    name = DESCRIPTIONS["/" in split]
    text = folder.read(name)
    return {} if text is None else structured.sealed_files(text, f"{folder.root}/{name}")


def _attributes(folder: Folder, checksums: Mapping[str, str]) -> Mapping[str, Any]:
    attributes = (_read_json(folder, "zarr.json", checksums) or {}).get("attributes")
    attributes = attributes or _read_json(folder, ".zattrs", checksums) or {}
    if not isinstance(attributes, dict):
        raise FormatError(f"{folder.root}: the attributes in zarr.json are not an object; fetch this file again")
    return attributes


def _metadata_files(split: str) -> list[str]:
    return [f"{name}/{file}" for name in (split, f"{split}.zarr") for file in ("zarr.json", ".zarray")]


def _find_array(folder: Folder, split: str, checksums: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    for file in _metadata_files(split):
        metadata = _read_json(folder, file, checksums)
        if metadata is not None and metadata.get("node_type", "array") == "array":
            return file.rpartition("/")[0], metadata
    if folder.exists(".zarray") or (_read_json(folder, "zarr.json", checksums) or {}).get("node_type") == "array":
        raise _OneArrayError(folder.root)
    names = folder.names()
    if names is None:
        raise FormatError(
            f"there is no rectangle at {folder.root}, which does not exist or cannot be listed; check the path"
        )
    found = ", ".join(repr(name) for name in names[:8]) or "nothing"
    if other := next(
        (name for name in RESULTS if f"{name}.json" in names and RESULTS[name].feed not in ("", "rectangle")), None
    ):
        feed = RESULTS[other].feed
        reads = {"buckets": "ComposedBatches"}.get(feed, feed.capitalize())
        raise FormatError(f"{folder.root} is of the format {other!r}, not a rectangle; open it by lc.loading.{reads}")
    inside = f"; open the rectangle in it, {f'{folder.root}/rectangle'!r}" if "rectangle" in names else ""
    raise FormatError(f"{folder.root} has no split {split!r}; there is: {found}{inside}")


def _end_of_text(root: str, attributes: Mapping[str, Any]) -> int:
    end_of_text = attributes.get("end_of_text", GPT2_END_OF_TEXT)
    if not isinstance(end_of_text, int) or isinstance(end_of_text, bool) or end_of_text < 0:
        raise FormatError(f"{root}: the attribute end_of_text must be a token id, it is {end_of_text!r}")
    return end_of_text


def _vocabulary_size(root: str, attributes: Mapping[str, Any]) -> int | None:
    size = attributes.get("vocabulary_size")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise FormatError(f"{root}: the attribute vocabulary_size must be a number of ids, it is {size!r}")
    return size


def _read_json(folder: Folder, name: str, checksums: Mapping[str, str]) -> dict[str, Any] | None:
    text = folder.read(name)
    if text is None:
        if name in checksums:
            raise CorruptionError(f"{folder.root}/{name} is missing, which was written with this dataset; copy it back")
        return None
    if name in checksums and hashlib.sha256(text).hexdigest() != checksums[name]:
        raise CorruptionError(
            f"{folder.root}/{name} has been changed: its SHA-256 differs from the one recorded; copy this file again"
        )
    with unreadable(f"{folder.root}/{name}", FormatError, "it must be JSON; fetch this file again"):
        value = load_json(text)
    if not isinstance(value, dict):
        raise FormatError(f"{folder.root}/{name} holds no JSON object; fetch this file again")
    return value
