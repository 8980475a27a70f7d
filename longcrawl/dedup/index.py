"""What a deduplicated dataset is known by, on disk, so that a later dump is deduplicated against it.

An index is a folder::

    index.json      {"longcrawl_index": 1, "stage": …, "settings": {…}, "documents": n, "bands": b}
    ids.arrow       Arrow IPC: the ids of all documents
    keys-000.npy    uint64 (entries, words): the keys of a band, sorted; one file per band
    rows-000.npy    int64 (entries,): the document that has each key, a place in ids.arrow

Keys are hashes: one word for a band of MinHash, two (128 bits) where equal keys are to mean equal documents. Files are
mapped, not read: a search costs a few pages. ``index.json`` is written last.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.files import whole_file, write_text

__all__ = ["Index", "open_index", "write_index"]

VERSION = 1
Keys = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """An index whose files are mapped as they are asked for."""

    folder: Path
    documents: int
    bands: int

    def find(self, band: int, keys: Keys) -> Places:
        """Give for each key the first document that has it, -1 where none has.

        Args:
            band: which band.
            keys: uint64, shape (n, words).

        """
        known, rows = self._load("keys", band), self._load("rows", band)
        at = np.searchsorted(known[:, 0], keys[:, 0])
        found = np.full(len(keys), -1, np.int64)
        open_ones = np.arange(len(keys))
        while len(open_ones):
            inside = at[open_ones] < len(known)
            open_ones = open_ones[inside]
            open_ones = open_ones[known[at[open_ones], 0] == keys[open_ones, 0]]
            same = np.all(known[at[open_ones]] == keys[open_ones], axis=1)
            found[open_ones[same]] = rows[at[open_ones[same]]]
            # Others share the first word only: their own entry may be the next one.
            open_ones = open_ones[~same]
            at[open_ones] += 1
        return found

    def ids(self, rows: Places) -> pa.Array:
        """Give the ids of documents by their places; -1 is null."""
        with pa.memory_map(str(self.folder / "ids.arrow")) as mapped:
            ids = pa.ipc.open_file(mapped).read_all()["id"].combine_chunks()
            return ids.take(pa.array(rows, mask=rows < 0))

    def _load(self, name: str, band: int) -> npt.NDArray[Any]:
        path = self.folder / f"{name}-{band:03d}.npy"
        try:
            loaded: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as damaged:
            raise CorruptionError(f"{path} cannot be read ({damaged}); make the index again") from damaged
        return loaded


def write_index(
    folder: Path, stage: str, settings: Mapping[str, Any], ids: pa.Array | pa.ChunkedArray, bands: Iterable[Keys]
) -> None:
    """Write an index; what lies in the folder is replaced.

    Args:
        folder: where.
        stage: name of the stage that made the keys.
        settings: what the keys depend on; :func:`open_index` compares them.
        ids: one per document.
        bands: of each band the keys of all documents, uint64 (documents, words).

    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.json").unlink(missing_ok=True)
    table = pa.table({"id": ids.cast(pa.string())})
    with whole_file(folder / "ids.arrow") as beside, pa.ipc.new_file(str(beside), table.schema) as writer:
        writer.write_table(table)
    count = 0
    for band, keys in enumerate(bands):
        order = np.lexsort(keys.T[::-1])
        for name, values in (("keys", keys[order]), ("rows", order.astype(np.int64))):
            with whole_file(folder / f"{name}-{band:03d}.npy") as beside, beside.open("wb") as opened:
                np.save(opened, values, allow_pickle=False)
        count += 1
    about = {"longcrawl_index": VERSION, "stage": stage, "settings": dict(settings), "documents": len(ids)}
    write_text(folder / "index.json", json.dumps(about | {"bands": count}, indent=1, sort_keys=True))


def open_index(path: str, stage: str, settings: Mapping[str, Any]) -> Index:
    """Open the index of a stage: its own folder, or that of a run that saved one.

    Raises:
        FormatError: there is none, or it was made with other settings.

    """
    folder = next((each for each in (Path(path), Path(path, "index", stage)) if (each / "index.json").is_file()), None)
    if folder is None:
        raise FormatError(
            f"there is no index of {stage} at {path}; a run writes one with --set stages.{stage}.index=save"
        )
    about = json.loads((folder / "index.json").read_text("utf-8"))
    made, wanted = (about["stage"], about["settings"]), (stage, dict(settings))
    if made != wanted or about["longcrawl_index"] != VERSION:
        raise FormatError(
            f"the index at {folder} was made by {made[0]} with {made[1]}, this is {wanted[0]} with {wanted[1]}: "
            "use the same settings, or make the index again"
        )
    return Index(folder, about["documents"], about["bands"])
