"""Exact duplicates: those that a release lists, and those that have equal hashes, such as of their text."""

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.stages import PART, REMOVAL_SCHEMA, Check, Judge, column, document_ids, reject_duplicate_ids, stage
from longcrawl.dedup.index import IndexedSurvey, SaveIndex, removal_table, write_index
from longcrawl.dedup.normalize import normalize
from longcrawl.kernels.texts import fixed_rows, valid_texts
from longcrawl.ledger.reasons import number_rule

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
    """The rule by which a duplicate leaves."""

    @abstractmethod
    def hashes(self, table: pa.Table) -> pa.Array:
        """Return the 16-byte hash of each document; null keeps it."""

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``hash`` (16 bytes)."""
        return pa.table({"id": document_ids(table, self.name), "hash": self.hashes(table)})

    def resolve(self, sketches: pa.Table) -> pa.Table:
        """Return one removal per document that duplicates a kept one; ``kept_id`` names that one.

        Raises:
            StageError: two documents have the same id.
        """
        reject_duplicate_ids(sketches["id"], self.name)
        earlier = self._seen_before(sketches)
        kept = pc.invert(pc.is_in(sketches["id"], value_set=earlier["id"]))
        return pa.concat_tables([earlier, self._duplicates(sketches.filter(kept))])

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
            removals.append(removal_table(left["id"].take(gone), rule, index.ids(found[gone])))
            left = left.take(np.flatnonzero(found < 0))
        return pa.concat_tables(removals)

    def _duplicates(self, sketches: pa.Table) -> pa.Table:
        known = sketches.filter(pc.is_valid(sketches["hash"]))
        if known.num_rows < 2:
            return REMOVAL_SCHEMA.empty_table()
        keys = ["hash", *([PART] if PART in known.column_names else [])]
        if self.keep == "random":
            ids = (name.as_py() for name in known["id"])  # not as a list, which would hold every id as an object
            known = known.append_column("rank", pa.array(keyed_hash(ids, self.name, self.seed), pa.uint64()))
            keys.append("rank")
        order = pc.sort_indices(known, sort_keys=[(key, "ascending") for key in (*keys, "id")])
        ids, hashes = known["id"].take(order), known["hash"].take(order)
        same = np.concatenate([[False], pc.equal(hashes[1:], hashes[:-1]).to_numpy()])
        leaders = np.maximum.accumulate(np.where(same, 0, np.arange(len(same))))
        gone = np.flatnonzero(same)
        return removal_table(ids.take(gone), self.same, ids.take(leaders[gone]))


def _words(hashes: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return hashes without nulls as two words each: uint64 (n, 2)."""
    whole = pa.concat_arrays(hashes.chunks) if hashes.num_chunks else pa.array([], pa.binary(HASH_BYTES))
    return fixed_rows(whole).view(np.uint64)


@stage
class ListedDuplicates(Judge):
    """Remove documents that the release itself lists as duplicates (column ``duplicate``, bool).

    RedPajama-V2 lists every document whose digest a Bloom filter had seen in a newer snapshot, so a share of about 1 in
    10,000 to 1 in 100 unique documents is listed too. ``on_missing`` says what a document gets whose list is not there
    (``duplicate`` is null): "drop" shows it in the ledger as ``no_duplicates_list``.
    """

    on_missing: Literal["drop", "keep"] = "drop"

    copies_share = "list"

    def checks(self, table: pa.Table) -> list[Check]:
        """Look at ``duplicate``."""
        listed = pc.cast(column(table, "duplicate", self.name), pa.bool_())
        nothing = pa.nulls(table.num_rows, pa.float64())
        checks = [Check("listed_duplicate", nothing, pc.fill_null(pc.invert(listed), True))]
        if self.on_missing == "drop":
            checks.append(Check("no_duplicates_list", nothing, pc.is_valid(listed)))
        return checks


@stage
class ExactDocuments(EqualHashes):
    """Keep one of all documents that have exactly the same text; an empty text and a null one are the same.

    With ``text="normalised"``, texts are the same whose normal forms are (:mod:`longcrawl.dedup.normalize`), whatever
    their case, accents, punctuation and white space; all texts of punctuation only are then the same as an empty one.

    >>> import pyarrow as pa
    >>> table = pa.table({"id": ["a", "b"], "text": ["To be, or not to be?", "to be -- or not to BE"]})
    >>> stage = ExactDocuments(text="normalised")
    >>> stage.resolve(stage.sketch(table)).to_pylist()[0]["kept_id"]
    'a'
    """

    text: Literal["raw", "normalised"] = "raw"

    same: ClassVar[str] = "same_text"
    copies_share = "text"

    def prepare(self) -> None:
        """Open the indexes and compile the kernels."""
        super().prepare()
        self.sketch(pa.table({"id": ["a"], "text": ["a text"]}))

    def hashes(self, table: pa.Table) -> pa.Array:
        """Hash ``text``: BLAKE2b, 128 bits."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        if self.text == "normalised":
            texts = normalize(texts)
        data = pc.fill_null(pc.cast(texts, pa.large_binary()), b"")
        return pa.array([hashlib.blake2b(one.as_buffer(), digest_size=16).digest() for one in data], pa.binary(16))

    def hashed(self) -> dict[str, Any]:
        """Return the settings on which the hashes depend."""
        return {"text": self.text, "code_version": self.code_version}
