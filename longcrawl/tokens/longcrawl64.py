"""LongCrawl64's last steps: long documents only, truncated to one length, shuffled, rolled.

Source: J. Buckman, "LongCrawl64: A Long-Context Natural-Language Dataset", 2024, "How the dataset was constructed".
"""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core import stages
from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.places import make_places
from longcrawl.errors import StageError
from longcrawl.tokens.loss_mask import LOSS_MASK, loss_mask_of_tokens

Integers = npt.NDArray[np.int64]


@stages.stage
class MinTokens(stages.Judge):
    """Keep documents of at least ``n`` tokens; LongCrawl64 keeps 65,536 and more.

    >>> import pyarrow as pa
    >>> table = pa.table({"tokens": pa.array([[1, 2, 3], [1]], pa.list_(pa.uint16()))})
    >>> MinTokens(2).judge(table).to_pylist()[1]
    {'rule': 'min_tokens', 'value': 1.0, 'threshold': 2.0}
    """

    n: int = 65_536
    looks_at = "tokens"

    def checks(self, table: pa.Table) -> list[stages.Check]:
        """Compare the length of ``tokens`` with ``n``."""
        lengths = _lengths(stages.column(table, "tokens", self.name))
        return [stages.Check("min_tokens", lengths, pc.greater_equal(lengths, self.n), self.n, "at_least")]


@stages.stage
class Truncate(stages.Rewrite):
    """Cut each document to its first ``n`` tokens; shorter ones stay as they are, ``n_tokens`` keeps the full count.

    ``loss_mask``, where there is one, is cut with the tokens. Of a document of t tokens, max(0, t - n) are lost; the
    rectangle's rows table says how many each row had.
    """

    n: int = 65_536
    rewrites = "tokens"
    looks_at = "tokens"
    code_version: ClassVar[str] = "2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < 0:
            raise StageError(f"truncate.n must not be negative, got {self.n}")

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Slice ``tokens``, list<uint16|uint32>, and ``loss_mask``, without touching the other columns."""
        return self.trace(table).documents

    def trace(self, table: pa.Table) -> stages.Edited:
        """Do what ``rewrite`` does, and list the tokens cut off each longer document."""
        lengths, columns = _token_columns(table, self.name)
        kept, done = np.minimum(lengths, self.n), table
        starts = np.cumsum(lengths) - lengths
        for name, values in columns.items():
            flat = values.flatten().to_numpy(zero_copy_only=False)
            heads = [flat[:0], *(flat[start : start + n] for start, n in zip(starts, kept, strict=True))]
            done = stages.with_column(done, name, _lists(np.concatenate(heads), kept, values.type))
        rows = np.flatnonzero(lengths > kept)
        return stages.Edited(done, (), make_places(rows, "cut", np.stack([kept, lengths], axis=1)[rows], unit="tokens"))


@stages.stage
class Shuffle(stages.Survey):
    """Order documents by a keyed hash of their ids: no worker count, batch size or order changes the permutation."""

    seed: int = 0
    orders = True

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``sort_key`` (uint64)."""
        ids = stages.document_ids(table, self.name)
        keys = keyed_hash(ids.to_pylist(), "shuffle", self.seed)
        return pa.table({"id": ids, stages.SORT_KEY: pa.array(keys, pa.uint64())})

    def resolve(self, sketches: pa.Table) -> stages.Order:
        """Sort by key, then by id.

        Raises:
            StageError: two documents have the same id; their order would depend on the order in which they came.
        """
        stages.reject_duplicate_ids(sketches["id"], self.name)
        ordered = pc.sort_indices(sketches, sort_keys=[(stages.SORT_KEY, "ascending"), ("id", "ascending")])
        return stages.Order(ordered.to_numpy().astype(np.int64))


@stages.stage
class Roll(stages.Rewrite):
    """Roll each document by an amount of its own, as ``numpy.roll``: [12, 5, 7, 4, 21] by 3 is [7, 4, 21, 12, 5].

    The amount is uniform over the document's length and comes from ``seed`` and its id alone; it is kept in the column
    ``roll`` (int64), so a row can be rolled back. ``loss_mask``, where there is one, is rolled with the tokens.
    """

    seed: int = 0
    rewrites = "tokens"
    looks_at = "tokens"

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Return the rolled ``tokens`` and ``roll``."""
        lengths, columns = _token_columns(table, self.name)
        amounts = roll_amounts(stages.document_ids(table, self.name).to_pylist(), lengths, self.seed)
        done = table
        for name, values in columns.items():
            rolled = _rolled(values.flatten().to_numpy(zero_copy_only=False), lengths, amounts)
            done = stages.with_column(done, name, _lists(rolled, lengths, values.type))
        if "roll" in done.column_names:
            done = done.drop_columns("roll")
        return done.append_column("roll", pa.array(amounts, pa.int64()))


def roll_amounts(ids: list[str], lengths: Integers, seed: int) -> Integers:
    """Return how far each document is rolled: int64, at least 0 and less than its length (0 for an empty one)."""
    amounts: Integers = (keyed_hash(ids, "roll", seed) % np.maximum(lengths, 1).astype(np.uint64)).astype(np.int64)
    return amounts


def _rolled(values: npt.NDArray[Any], lengths: Integers, amounts: Integers) -> npt.NDArray[Any]:
    rolled = np.empty_like(values)
    start = 0
    for length, amount in zip(lengths.tolist(), amounts.tolist(), strict=True):
        stop = start + length
        rolled[start : start + amount] = values[stop - amount : stop]
        rolled[start + amount : stop] = values[start : stop - amount]
        start = stop
    return rolled


def _lengths(tokens: pa.Array) -> pa.Array:
    return pc.cast(pc.fill_null(pc.list_value_length(tokens), 0), pa.int64())


def _token_columns(table: pa.Table, needed_by: str) -> tuple[Integers, dict[str, pa.Array]]:
    """Return the tokens of each document, and the columns that have a value for each token."""
    tokens = stages.column(table, "tokens", needed_by)
    lengths = _lengths(tokens).to_numpy()
    masks = {LOSS_MASK: loss_mask_of_tokens(table, lengths, needed_by)} if LOSS_MASK in table.column_names else {}
    return lengths, {"tokens": tokens, **masks}


def _lists(values: npt.NDArray[Any], lengths: Integers, like: pa.DataType) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = pa.array(values, like.value_type)
    if pa.types.is_large_list(like):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
