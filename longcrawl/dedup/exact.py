"""Exact duplicates: those that a release lists, and those that have the same text."""

import hashlib
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.keyed_hash import keyed_hash
from longcrawl.stages import (
    REMOVAL_SCHEMA,
    Check,
    Judge,
    Survey,
    column,
    document_ids,
    refuse_twins,
    stage,
)

__all__ = ["ExactDocuments", "ListedDuplicates"]


@stage
class ListedDuplicates(Judge):
    """Remove documents that the release itself lists as duplicates (column ``duplicate``, bool).

    RedPajama-V2 lists every document whose digest a Bloom filter had seen in a newer snapshot, so a share of about 1 in
    10,000 to 1 in 100 unique documents is listed too. ``on_missing`` says what a document gets whose list is not there
    (``duplicate`` is null): "drop" shows it in the ledger as ``no_duplicates_list``.
    """

    on_missing: Literal["drop", "keep"] = "drop"

    def checks(self, table: pa.Table) -> list[Check]:
        """Look at ``duplicate``."""
        listed = pc.cast(column(table, "duplicate", self.name), pa.bool_())
        nothing = pa.nulls(table.num_rows, pa.float64())
        checks = [Check("listed_duplicate", nothing, pc.fill_null(pc.invert(listed), True))]
        if self.on_missing == "drop":
            checks.append(Check("no_duplicates_list", nothing, pc.is_valid(listed)))
        return checks


@stage
class ExactDocuments(Survey):
    """Keep one of all documents that have exactly the same text.

    Texts are compared by 128-bit BLAKE2b: two different texts among 1e9 share a hash with probability 1.5e-21. ``keep``
    is "first" (the smallest id) or "random" (the smallest keyed hash of ``seed`` and id); neither depends on order.
    """

    keep: Literal["first", "random"] = "first"
    seed: int = 0

    def sketch(self, table: pa.Table) -> pa.Table:
        """Give ``id`` and ``text_hash`` (16 bytes; null text hashes as empty)."""
        ids = document_ids(table, self.name)
        texts = pc.fill_null(pc.cast(column(table, "text", self.name), pa.large_binary()), b"")
        hashes = [hashlib.blake2b(one.as_buffer(), digest_size=16).digest() for one in texts]
        return pa.table({"id": ids, "text_hash": pa.array(hashes, pa.binary(16))})

    def resolve(self, sketches: pa.Table) -> pa.Table:
        """Give one removal per document that has a kept twin; ``kept_id`` names the twin.

        Raises:
            StageError: two documents have the same id.

        """
        refuse_twins(sketches["id"], self.name)
        rank = pc.cast(pa.array(np.zeros(sketches.num_rows)), pa.uint64())
        if self.keep == "random":
            rank = pa.array(keyed_hash(sketches["id"].to_pylist(), "exact_documents", self.seed), pa.uint64())
        ranked = sketches.append_column("rank", rank)
        order = pc.sort_indices(
            ranked, sort_keys=[("text_hash", "ascending"), ("rank", "ascending"), ("id", "ascending")]
        )
        ids, hashes = sketches["id"].take(order), sketches["text_hash"].take(order)
        if len(hashes) < 2:
            return REMOVAL_SCHEMA.empty_table()
        same = np.concatenate([[False], pc.equal(hashes[1:], hashes[:-1]).to_numpy()])
        leaders = np.maximum.accumulate(np.where(same, 0, np.arange(len(same))))
        gone = np.flatnonzero(same)
        nothing = pa.nulls(len(gone), pa.float64())
        rule = pa.array(["same_text"] * len(gone), pa.string())
        return pa.table([ids.take(gone), rule, nothing, nothing, ids.take(leaders[gone])], schema=REMOVAL_SCHEMA)
