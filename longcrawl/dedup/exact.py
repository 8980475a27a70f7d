"""Exact duplicates: those that a release lists, and those that have the same text."""

import hashlib
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Judge, column, stage
from longcrawl.dedup.equal import EqualHashes
from longcrawl.dedup.normalize import normalize
from longcrawl.kernels.texts import valid_texts

__all__ = ["ExactDocuments", "ListedDuplicates"]


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
