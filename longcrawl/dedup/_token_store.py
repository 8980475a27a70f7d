"""The tokens of all documents in one row on disk, read through a mapping whose memory is given back."""

import mmap
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.stages import reject_duplicate_ids
from longcrawl.errors import StageError
from longcrawl.storage.files import whole_file
from longcrawl.storage.sealed import Marker

Longs = npt.NDArray[np.int64]

_INDEX = "tokens.json"
_FILES = ("tokens.bin", "ids.arrow", "bounds.npy")
_MOST = (1 << 40) - 2


class TokenStore:
    """Tokens of documents end to end, with a separator after each.

    Document d is ``tokens[bounds[d]:bounds[d + 1] - 1]``. The separator is the greatest number of the tokens' type,
    which no token is.
    """

    def __init__(self, tokens: npt.NDArray[Any], bounds: Longs, mapped: mmap.mmap | None = None) -> None:
        self.tokens = tokens.view()
        self.tokens.flags.writeable = False  # a mapping is so too, and kernels would compile for both
        self.bounds = bounds
        self.separator = tokens.dtype.type(np.iinfo(tokens.dtype).max)
        self._mapped = mapped

    def release(self) -> None:
        """Release the memory of what was read of the file; the system still has it at hand while there is room."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)

    def documents_of(self, ranges: Longs) -> tuple[Longs, Longs]:
        """Return the document of each range of tokens, and the ranges counted from their document's first token."""
        documents = np.searchsorted(self.bounds, ranges[:, 0], "right") - 1
        return documents, ranges[:, :2] - self.bounds[documents, None]


def store_tokens(tables: Iterable[pa.Table], folder: Path, needed_by: str) -> TokenStore:
    """Write the columns ``id`` and ``tokens`` of all tables to ``folder``, or take what is there, and open it.

    Raises:
        StageError: two documents have the same id, or there are 2**40 tokens or more.
    """
    index = folder / _INDEX
    stored = Marker.whole(index)
    if stored is None:
        folder.mkdir(parents=True, exist_ok=True)
        described = _write(tables, folder, needed_by)
        stored = Marker(index, described, Marker.entries(index, [folder / name for name in _FILES]))
        stored.write()
    return _open(folder, stored.content)


def stored_ids(folder: Path, documents: Longs) -> pa.Array:
    """Return the ids of documents by their number."""
    with pa.memory_map(str(folder / "ids.arrow")) as mapped:
        ids = pa.ipc.open_file(mapped).read_all()["id"]
        return pa.concat_arrays(ids.take(pa.array(documents)).chunks or [pa.array([], pa.large_string())])


def _write(tables: Iterable[pa.Table], folder: Path, needed_by: str) -> dict[str, Any]:
    dtype, hashes, lengths = np.dtype(np.uint8), array("Q"), array("q")  # these grow without being copied
    schema = pa.schema([("id", pa.large_string())])
    with (
        whole_file(folder / "tokens.bin") as tokens_beside,
        whole_file(folder / "ids.arrow") as ids_beside,
        tokens_beside.open("wb") as file,
        pa.ipc.new_file(str(ids_beside), schema) as ids_file,
    ):
        for table in tables:
            ids = pc.cast(table["id"], pa.large_string())
            ids_file.write_table(pa.table([ids], schema=schema))
            hashes.frombytes(keyed_hash(ids.to_pylist(), "ids", 0).tobytes())
            for values, offsets in token_lists(table["tokens"]):
                dtype = values.dtype
                file.write(separated(values, offsets).data)
                lengths.frombytes((np.diff(offsets) + 1).tobytes())
    bounds = np.zeros(1 + len(lengths), np.int64)
    np.cumsum(np.frombuffer(lengths, np.int64), out=bounds[1:])
    if bounds[-1] > _MOST:
        raise StageError(f"{needed_by} takes fewer than 2**40 tokens, there are {bounds[-1]:,}: split the documents")
    _reject_duplicates(folder, np.frombuffer(hashes, np.uint64), needed_by)
    with whole_file(folder / "bounds.npy") as beside, beside.open("wb") as file:
        np.save(file, bounds)
    return {"documents": len(bounds) - 1, "tokens": int(bounds[-1]), "dtype": dtype.name}


def token_lists(column: pa.ChunkedArray) -> Iterator[tuple[npt.NDArray[Any], Longs]]:
    """Return values and offsets of the chunks of a list column; null has no tokens."""
    for chunk in column.chunks:
        values = chunk.flatten().to_numpy()
        lengths = pc.fill_null(pc.list_value_length(chunk), 0).to_numpy()
        offsets = np.zeros(len(chunk) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        yield values, offsets


def separated(tokens: npt.NDArray[Any], offsets: Longs) -> npt.NDArray[Any]:
    """Return the tokens of documents, of which ``offsets`` are the bounds, with a separator after each."""
    return np.insert(tokens[offsets[0] : offsets[-1]], offsets[1:] - offsets[0], np.iinfo(tokens.dtype).max)


def _reject_duplicates(folder: Path, hashes: npt.NDArray[np.uint64], needed_by: str) -> None:
    """Compare the ids of documents that share a hash of theirs."""
    ordered = np.sort(hashes)
    alike = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(alike):
        del ordered
        # Unless it sorts, numpy 2.0 fails with uint64 beyond int64.
        reject_duplicate_ids(stored_ids(folder, np.flatnonzero(np.isin(hashes, alike, kind="sort"))), needed_by)


def _open(folder: Path, described: dict[str, Any]) -> TokenStore:
    bounds = np.load(folder / "bounds.npy", mmap_mode="r")
    if not described["tokens"]:
        return TokenStore(np.zeros(0, described["dtype"]), bounds)
    with (folder / "tokens.bin").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return TokenStore(np.frombuffer(mapped, described["dtype"]), bounds, mapped)
