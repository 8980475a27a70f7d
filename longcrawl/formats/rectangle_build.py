"""The two passes that build a rectangle.

Pass one appends every document's tokens as a raw row to a spill file of its part, since the number of rows is known
only at the end. Then one sort of some 50 bytes per row gives the order. Pass two gathers one band of rows by its
places in the spill files and writes it whole: one writer per shard, so nothing is ever read back and rewritten.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import FormatError, StageError
from longcrawl.files import PARTIAL, publish, whole_file, write_text
from longcrawl.keyed_hash import keyed_hash
from longcrawl.stages import SORT_KEY, column, document_ids
from longcrawl.tokens.loss_mask import LOSS_MASK, MASKED, loss_mask_of_tokens

__all__ = ["BAND", "Checksum", "Layout", "gather", "lay_out", "order_rows", "spill_part", "write_band"]

Checksum = Literal["crc32c", "none"]
"""What each chunk carries, so that readers notice changed bytes."""

BAND = 2048
"""Rows per shard (v3) and per chunk (v2)."""
INNER_ROWS = 64
CHUNK_COLUMNS = 2048
ORDER = "order"
LENGTH = 4
INDEX = np.dtype([("offset", "<u8"), ("sort_key", "<u8"), ("id_hash", "<u8"), ("ordered", "u1")])
PLACE = np.dtype([("part", "<u4"), ("offset", "<u8")])
ORIGINS = pa.schema([("id", pa.string()), ("url", pa.string()), ("roll", pa.int64()), ("n_tokens", pa.int64())])


@dataclass(frozen=True)
class Layout:
    """What decides the bytes of a band."""

    context_length: int
    dtype: str
    fill_value: int
    """End of text; true of a loss mask."""
    zarr_format: Literal[2, 3]
    codec: Literal["zstd", "lz4hc", "lz4"]
    inner_chunk: tuple[int, int] = (INNER_ROWS, CHUNK_COLUMNS)
    """Rows, of which a band has a whole number of times as many, and columns that are decoded at once (v3)."""
    checksum: Checksum = "crc32c"
    """Behind each chunk that is decoded at once (v3)."""

    def create(self, store: Path, rows: int, *, write_empty_chunks: bool = False) -> Any:
        """Create an empty array of so many rows at ``store``."""
        import zarr
        from zarr.codecs import BloscCodec, Crc32cCodec

        shared: dict[str, Any] = {
            "shape": (rows, self.context_length),
            "dtype": self.dtype,
            "fill_value": self.fill_value,
            "zarr_format": self.zarr_format,
            "config": {"write_empty_chunks": write_empty_chunks},
        }
        level = {"zstd": 3, "lz4hc": 5, "lz4": 5}[self.codec]
        if self.zarr_format == 2:
            from numcodecs import Blosc

            blosc = Blosc(cname=self.codec, clevel=level, shuffle=Blosc.NOSHUFFLE)
            chunks = (BAND, min(CHUNK_COLUMNS, self.context_length))
            return zarr.create_array(str(store), chunks=chunks, compressors=blosc, **shared)
        blosc_codec = BloscCodec(cname=self.codec, clevel=level, shuffle="noshuffle")
        codecs = [blosc_codec, Crc32cCodec()] if self.checksum == "crc32c" else [blosc_codec]
        rows_of_chunk, columns = self.inner_chunk[0], min(self.inner_chunk[1], self.context_length)
        shard_columns = -(-self.context_length // columns) * columns
        return zarr.create_array(
            str(store), chunks=(rows_of_chunk, columns), shards=(BAND, shard_columns), compressors=codecs, **shared
        )


def spill_part(tables: Iterable[pa.Table], spill: Path, part: int, context_length: int) -> None:
    """Write the rows of one part: ``NNNNN.rows``, then ``NNNNN.index`` (:data:`INDEX`), then ``NNNNN.json``.

    A record of ``.rows`` is the length of the origin (uint32), the tokens, the loss mask in bits where there is one,
    and the origin as JSON.

    Raises:
        FormatError: a document does not have exactly ``context_length`` tokens.
        StageError: the documents have no tokens, or not of type uint16 or uint32; they are masked, and there is no
            loss mask that fits the tokens.

    """
    spill.mkdir(parents=True, exist_ok=True)
    dtype, index, offset, masked = "", [np.empty(0, INDEX)], 0, set()
    with whole_file(spill / f"{part:05d}.rows") as beside, beside.open("wb") as rows:
        for table in tables:
            tokens = column(table, "tokens", "a rectangle")
            dtype = _token_type(tokens.type)
            _check_lengths(table, tokens, context_length)
            values = tokens.flatten().to_numpy().astype(np.dtype(dtype).newbyteorder("<"), copy=False)
            found = _index(table)
            flags = _packed_mask(table, context_length)
            masked.add(flags is not None)
            for row, origin in enumerate(_origins(table)):
                found["offset"][row] = offset
                offset += rows.write(len(origin).to_bytes(LENGTH, "little"))
                offset += rows.write(values[row * context_length : (row + 1) * context_length].tobytes())
                if flags is not None:
                    offset += rows.write(flags[row].tobytes())
                offset += rows.write(origin)
            index.append(found)
    joined = np.concatenate(index)
    with whole_file(spill / f"{part:05d}.index") as beside:
        joined.tofile(beside)
    ordered = bool(len(joined)) and bool(joined["ordered"].all())
    row_bytes = context_length * np.dtype(dtype or "uint16").itemsize
    if len(masked) > 1:
        raise StageError(f"only some tables of documents have a column {LOSS_MASK!r}: mask all documents, or none")
    has_mask = True in masked
    row_bytes += _mask_bytes(context_length) if has_mask else 0
    told = {"dtype": dtype, "rows": len(joined), "ordered": ordered, "row_bytes": row_bytes, "masked": has_mask}
    write_text(spill / f"{part:05d}.json", json.dumps(told))


def order_rows(spill: Path, parts: int) -> tuple[int, str, bool]:
    """Put all spilled rows in their final order, by sort key where there is one.

    Returns:
        their number, the token type, and whether they have a loss mask.

    Raises:
        FormatError: two rows have the same id, or parts have different token types, or only some have loss masks.

    """
    found = [json.loads((spill / f"{part:05d}.json").read_text()) for part in range(parts)]
    types = sorted({each["dtype"] for each in found if each["rows"]})
    if not types:
        raise FormatError("there are no rows to write: every document left before the output")
    if len(types) > 1:
        raise FormatError(f"parts hold different token types, {' and '.join(types)}: set tokenize.dtype to one of them")
    masked = {each["masked"] for each in found if each["rows"]}
    if len(masked) > 1:
        raise FormatError("only some parts have a loss mask: mask the documents of all, or of none")
    rows = sum(each["rows"] for each in found)
    keys, ids = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
    places = np.empty(rows, PLACE)
    start = 0
    for part, each in enumerate(found):
        index = np.fromfile(spill / f"{part:05d}.index", INDEX)
        stop = start + each["rows"]
        keys[start:stop], ids[start:stop] = index["sort_key"], index["id_hash"]
        places["part"][start:stop], places["offset"][start:stop] = part, index["offset"]
        start = stop
    _refuse_twins(ids, places, spill)
    ordered = all(each["ordered"] for each in found if each["rows"])
    order = places[np.lexsort((ids, keys))] if ordered else places
    with whole_file(spill / ORDER) as beside:
        order.tofile(beside)
    return rows, types[0], masked.pop()


def lay_out(target: Path, arrays: Mapping[str, tuple[Layout, int]], attributes: dict[str, Any]) -> None:
    """Write the metadata of a group and of empty arrays; done again after a crash, it gives the same files.

    Args:
        target: the group.
        arrays: by name, which may be a path in the group: layout and rows. All have one Zarr format.
        attributes: of the group.

    """
    import zarr

    beside = target.with_name(f"{target.name}{PARTIAL}-layout-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    formats: list[Literal[2, 3]] = [layout.zarr_format for layout, _ in arrays.values()]
    zarr.create_group(str(beside), zarr_format=formats[0], attributes=attributes)
    for name, (layout, rows) in arrays.items():
        layout.create(beside / name, rows)
    for made in sorted(path for path in beside.rglob("*") if path.is_file()):
        place = target / made.relative_to(beside)
        place.parent.mkdir(parents=True, exist_ok=True)
        publish(made, place)
    shutil.rmtree(beside)


def gather(
    spill: Path, start: int, stop: int, layout: Layout, *, masked: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8], pa.Table]:
    """Give rows ``start`` to ``stop`` of the order: tokens, loss mask and origins.

    Tokens are (BAND, context_length), short bands filled up; the loss mask likewise, eight in a byte, or of no width.

    Raises:
        FormatError: a spill file is cut.

    """
    order = np.fromfile(spill / ORDER, PLACE, count=stop - start, offset=start * PLACE.itemsize)
    tokens = np.full((BAND, layout.context_length), layout.fill_value, np.dtype(layout.dtype).newbyteorder("<"))
    flags = np.full((BAND, _mask_bytes(layout.context_length) if masked else 0), 0xFF, np.uint8)
    width = tokens.itemsize * layout.context_length + flags.shape[1]
    origins: list[Any] = [None] * len(order)
    for part in np.unique(order["part"]).tolist():
        with (spill / f"{part:05d}.rows").open("rb", buffering=0) as rows:
            for row in np.flatnonzero(order["part"] == part).tolist():
                offset = int(order["offset"][row])
                head = bytearray(LENGTH)
                targets: list[Any] = [
                    head,
                    memoryview(tokens[row]).cast("B"),
                    *([memoryview(flags[row])] if masked else []),
                ]
                if os.preadv(rows.fileno(), targets, offset) != LENGTH + width:
                    raise FormatError(f"{rows.name} is cut: remove the run's folder 'work' and run again")
                origin = os.pread(rows.fileno(), int.from_bytes(head, "little"), offset + LENGTH + width)
                origins[row] = json.loads(origin)
    return tokens, flags, pa.Table.from_pylist(origins, schema=ORIGINS)


def write_band(target: Path, name: str, number: int, tokens: npt.NDArray[Any], layout: Layout) -> list[str]:
    """Write one band of an array into one of its own beside the target, then move its files; give their names."""
    import numcodecs.blosc

    beside = target.with_name(f"{target.name}{PARTIAL}-{name.replace('/', '-')}-{number}-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    sharded = layout.zarr_format == 3  # the Zarr version
    threads = numcodecs.blosc.use_threads
    # Blosc's threads write blocks in the order in which they finish, which would make the bytes depend on chance.
    numcodecs.blosc.use_threads = False
    try:
        empty = not sharded or bool(np.all(tokens == layout.fill_value))
        layout.create(beside, BAND, write_empty_chunks=empty)[:] = tokens
    finally:
        numcodecs.blosc.use_threads = threads
    names = []
    for made in sorted((beside / "c" / "0").iterdir() if sharded else beside.glob("0.*")):
        place = f"{name}/c/{number}/{made.name}" if sharded else f"{name}/{number}.{made.name[2:]}"
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        publish(made, target / place)
        names.append(place)
    shutil.rmtree(beside)
    return names


def _refuse_twins(ids: npt.NDArray[np.uint64], places: npt.NDArray[Any], spill: Path) -> None:
    by_id = np.argsort(ids, kind="stable")
    for first in np.flatnonzero(ids[by_id][1:] == ids[by_id][:-1]).tolist():
        one, other = (_id_at(spill, places[by_id[place]]) for place in (first, first + 1))
        if one == other:
            raise FormatError(f"two rows are called {one!r}; ids must be unique: drop one of the documents")


def _id_at(spill: Path, place: Any) -> str:
    told = json.loads((spill / f"{place['part']:05d}.json").read_text())
    with (spill / f"{place['part']:05d}.rows").open("rb") as rows:
        rows.seek(int(place["offset"]))
        length = int.from_bytes(rows.read(LENGTH), "little")
        rows.seek(told["row_bytes"], os.SEEK_CUR)
        return str(json.loads(rows.read(length))["id"])


def _token_type(tokens: pa.DataType) -> str:
    value = getattr(tokens, "value_type", None)
    if value not in (pa.uint16(), pa.uint32()):
        raise StageError(
            f"a rectangle takes tokens of type uint16 or uint32, these are {tokens}: cast the column, or use tokenize"
        )
    return str(value)


def _check_lengths(table: pa.Table, tokens: pa.Array, context_length: int) -> None:
    lengths = pc.fill_null(pc.list_value_length(tokens), 0)
    wrong = pc.index(pc.not_equal(lengths, context_length), True).as_py()
    if wrong >= 0:
        name = table["id"][wrong].as_py() if "id" in table.column_names else f"document {wrong}"
        raise FormatError(
            f"{name} has {lengths[wrong].as_py():,} tokens, a row holds {context_length:,}: "
            f"put min_tokens: {{n: {context_length}}} and truncate: {{n: {context_length}}} before the rectangle"
        )


def _packed_mask(table: pa.Table, context_length: int) -> npt.NDArray[np.uint8] | None:
    """Give the loss mask of rows that are all ``context_length`` long, eight in a byte: (rows, bytes)."""
    if LOSS_MASK not in table.column_names:
        if MASKED in table.column_names:
            raise StageError(
                f"a rectangle would lose the column {MASKED!r}, which is of the text: make tokens with the stage "
                f"tokenize, which gives {LOSS_MASK!r} too, or drop the column"
            )
        return None
    lengths = np.full(table.num_rows, context_length, np.int64)
    flags = loss_mask_of_tokens(table, lengths, "a rectangle").flatten().to_numpy(zero_copy_only=False)
    return np.packbits(flags.reshape(table.num_rows, context_length), axis=1)


def _mask_bytes(context_length: int) -> int:
    return -(-context_length // 8)


def _index(table: pa.Table) -> npt.NDArray[Any]:
    index = np.zeros(table.num_rows, INDEX)
    index["id_hash"] = keyed_hash(document_ids(table, "a rectangle").to_pylist(), "rectangle", 0)
    if SORT_KEY in table.column_names:
        index["sort_key"], index["ordered"] = table[SORT_KEY].to_numpy(), 1
    return index


def _origins(table: pa.Table) -> list[bytes]:
    named = {
        name: table[name].to_pylist() if name in table.column_names else [None] * table.num_rows
        for name in ORIGINS.names
    }
    rows = zip(*named.values(), strict=True)
    return [json.dumps(dict(zip(named, row, strict=True)), ensure_ascii=True).encode() for row in rows]
