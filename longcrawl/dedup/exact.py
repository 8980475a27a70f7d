"""Exact duplicates: those that a release lists, and those that have the same text."""

import hashlib
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.dedup.equal import EqualHashes
from longcrawl.stages import Check, Judge, column, stage

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
class ExactDocuments(EqualHashes):
    """Keep one of all documents that have exactly the same text; an empty text and a null one are the same."""

    same: ClassVar[str] = "same_text"

    def hashes(self, table: pa.Table) -> pa.Array:
        """Hash ``text``: BLAKE2b, 128 bits."""
        texts = pc.fill_null(pc.cast(column(table, "text", self.name), pa.large_binary()), b"")
        return pa.array([hashlib.blake2b(one.as_buffer(), digest_size=16).digest() for one in texts], pa.binary(16))

    def hashed(self) -> dict[str, Any]:
        """Give the settings on which the hashes depend."""
        return {"code_version": self.code_version}
