"""Deduplication by equal hashes: one of each is kept, and what an earlier dataset has kept is kept there."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.stages import PART, REMOVAL_SCHEMA, document_ids, reject_duplicate_ids
from longcrawl.dedup.index import write_index
from longcrawl.dedup.indexed import IndexedSurvey, SaveIndex
from longcrawl.ledger.funnel import number_rule

__all__ = ["EqualHashes"]

HASH_BYTES = 16


@dataclass(frozen=True)
class EqualHashes(IndexedSurvey):
    """Keep one of all documents that have the same 128-bit hash.

    Two different things among 1e9 share a hash with probability 1.5e-21. ``keep`` is "first" (the smallest id) or
    "random" (the smallest keyed hash of ``seed`` and id); neither depends on order. In a run of several ``parts`` the
    document of the earliest part stays, as RefinedWeb has it. A document whose hash is null is kept. ``against`` names
    indexes of earlier datasets, or runs that saved one: what they have leaves here, by the rule ``seen_before``, with
    its number where there are several. With ``index="save"`` a run writes one of the documents that it has kept in the
    end.
    """

    keep: Literal["first", "random"] = "first"
    seed: int = 0
    against: tuple[str, ...] = ()
    index: SaveIndex = "none"

    same: ClassVar[str]
    """The rule by which a twin leaves."""

    @abstractmethod
    def hashes(self, table: pa.Table) -> pa.Array:
        """Return the 16-byte hash of each document; null keeps it."""

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``hash`` (16 bytes)."""
        return pa.table({"id": document_ids(table, self.name), "hash": self.hashes(table)})

    def resolve(self, sketches: pa.Table) -> pa.Table:
        """Return one removal per document that has a kept twin; ``kept_id`` names the twin.

        Raises:
            StageError: two documents have the same id.

        """
        reject_duplicate_ids(sketches["id"], self.name)
        earlier = self._seen_before(sketches)
        kept = pc.invert(pc.is_in(sketches["id"], value_set=earlier["id"]))
        return pa.concat_tables([earlier, self._twins(sketches.filter(kept))])

    def save_index(self, kept: pa.Table, folder: Path) -> None:
        """Write the index of documents whose sketches are given."""
        known = kept.filter(pc.is_valid(kept["hash"]))
        write_index(folder, self.name, self.hashed(), known["id"], [_words(known["hash"])])

    def _seen_before(self, sketches: pa.Table) -> pa.Table:
        removals = [REMOVAL_SCHEMA.empty_table()]
        left = sketches.filter(pc.is_valid(sketches["hash"]))
        indexes = self.open_indexes()
        for number, index in enumerate(indexes, 1):
            found = index.find(0, _words(left["hash"]))
            gone = np.flatnonzero(found >= 0)
            rule = number_rule("seen_before", number, len(indexes))
            removals.append(_removals(left["id"].take(gone), rule, index.ids(found[gone])))
            left = left.take(np.flatnonzero(found < 0))
        return pa.concat_tables(removals)

    def _twins(self, sketches: pa.Table) -> pa.Table:
        known = sketches.filter(pc.is_valid(sketches["hash"]))
        if known.num_rows < 2:  # it takes two
            return REMOVAL_SCHEMA.empty_table()
        rank = pa.array(np.zeros(known.num_rows, np.uint64))
        if self.keep == "random":
            ids = (name.as_py() for name in known["id"])  # not as a list, which would hold every id as an object
            rank = pa.array(keyed_hash(ids, self.name, self.seed), pa.uint64())
        ranked = known.append_column("rank", rank)
        keys = ["hash", *([PART] if PART in known.column_names else []), "rank", "id"]
        order = pc.sort_indices(ranked, sort_keys=[(key, "ascending") for key in keys])
        ids, hashes = known["id"].take(order), known["hash"].take(order)
        same = np.concatenate([[False], pc.equal(hashes[1:], hashes[:-1]).to_numpy()])
        leaders = np.maximum.accumulate(np.where(same, 0, np.arange(len(same))))
        gone = np.flatnonzero(same)
        return _removals(ids.take(gone), self.same, ids.take(leaders[gone]))


def _removals(ids: Any, rule: str, kept_ids: Any) -> pa.Table:
    nothing = pa.nulls(len(ids), pa.float64())
    rules = pa.array([rule] * len(ids), pa.string())
    return pa.table([ids, rules, nothing, nothing, kept_ids], schema=REMOVAL_SCHEMA)


def _words(hashes: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return hashes without nulls as two words each: uint64 (n, 2)."""
    whole = pa.concat_arrays(hashes.chunks) if hashes.num_chunks else pa.array([], pa.binary(HASH_BYTES))
    data = whole.buffers()[1] or b""
    return np.frombuffer(data, np.uint64)[2 * whole.offset : 2 * (whole.offset + len(whole))].reshape(-1, 2)
