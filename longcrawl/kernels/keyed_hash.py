"""Reproducible random samples, orders and numbers from keyed hashes of ids or positions.

Only integers from BLAKE2b and the raw output of Philox are used, which do not change between NumPy releases. Nothing
has state. Documents with the same hash, such as those with the same id, are all in a sample or all out of it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import cached_property, lru_cache
from math import ceil, isqrt, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.batches import document_ids, with_column
from longcrawl.kernels.compiling import compiled


def keyed_hash(ids: Iterable[str], purpose: str, seed: int) -> npt.NDArray[np.uint64]:
    """Return one uniform 64-bit number per id: BLAKE2b of the id under the key ``purpose:seed``.

    Numbers of different purposes or seeds are independent. Two of n ids share a number with probability n**2 / 2**65,
    which is 1.2e-6 for 6.66 million rows, so sorting by it must break ties by id.

    >>> keyed_hash(["a", "b"], "shuffle", 0)
    array([14476366166743582373, 14468151576499404451], dtype=uint64)
    """
    key = hashlib.blake2b(f"{purpose}:{seed}".encode("utf-8", "surrogatepass"), digest_size=32).digest()
    base = hashlib.blake2b(digest_size=8, key=key)
    digests = bytearray()
    for name in ids:
        one = base.copy()
        one.update(name.encode("utf-8", "surrogatepass"))
        digests += one.digest()
    return np.frombuffer(bytes(digests), dtype="<u8").astype(np.uint64, copy=False)


HASH = "hash"
"""Name of the column with the hash of each document."""
LAST = (1 << 64) - 1


def up_to_hash(table: pa.Table, purpose: str, last: int) -> pa.Table:
    """Return the documents with a hash of at most ``last``, and their hashes in a column ``HASH``."""
    hashes = keyed_hash(document_ids(table, purpose).to_pylist(), purpose, 0)
    return filter_hashes(with_column(table, HASH, pa.array(hashes)), last)


def filter_hashes(table: pa.Table, last: int) -> pa.Table:
    """Return the documents with a hash, in the column ``HASH``, of at most ``last``."""
    return table.filter(pa.array(table[HASH].to_numpy() <= np.uint64(last)))


def likely_last(count: int, documents: int) -> int:
    """Return a hash that at least ``count`` of ``documents`` do not exceed, except once in 1e15 times."""
    return min(LAST, ceil((count + 8 * sqrt(count) + 64) / documents * LAST))


def last_chosen(hashes: npt.NDArray[np.uint64], count: int) -> int:
    """Return the largest of the ``count`` smallest hashes, or ``LAST`` if there are at most ``count``."""
    return LAST if len(hashes) <= count else int(np.partition(hashes, count - 1)[count - 1])


def choose(tables: Iterable[pa.Table], count: int | None, purpose: str) -> Iterable[pa.Table]:
    """Choose ``count`` random documents of tables, or all if it is None; up to three times as many are in memory."""
    if count is None:
        return tables
    found, last = list[pa.Table](), LAST
    for table in tables:
        found.append(up_to_hash(table, purpose, last))
        if sum(map(len, found)) > 2 * count:
            last = last_chosen(pa.concat_tables(found)[HASH].to_numpy(), count)
            found = [pa.concat_tables(filter_hashes(each, last) for each in found).combine_chunks()]
    if not found:
        return []
    every = pa.concat_tables(found)
    return [filter_hashes(every, last_chosen(every[HASH].to_numpy(), count)).drop_columns([HASH])]


def reached_by(values: npt.NDArray[np.float64], share: float) -> float:
    """Return the largest bound that at least a share of values reaches, rounded up to a whole number of values.

    >>> reached_by(np.array([3.0, 1.0, 2.0, 9.0]), 0.5)
    3.0
    """
    # 0.07 of 100 documents are 7, but the product of floats is just above 7 and would be rounded up to 8.
    count = int((Decimal(repr(share)) * len(values)).to_integral_value(ROUND_CEILING))
    return float(np.partition(values, len(values) - count)[len(values) - count])


Ints = npt.NDArray[Any]

ROUNDS = 8

_WORDS = 4


@dataclass(frozen=True)
class KeyedOrder:
    """A random permutation of ``count`` items by seed and purpose; calling it returns the items at given positions.

    It is a Feistel network with rounds keyed by BLAKE2b of both, so all positions cost the same and the permutation is
    not kept in memory. The purpose names the items and, if every pass has its own order, the pass.

    >>> sorted(KeyedOrder(5, 0, "windows of pass 0")(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    count: int
    seed: int
    purpose: str

    def __call__(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the items at these positions, int64."""
        rows, columns, keys = self._network
        things = np.empty(len(places), np.int64)
        _permute(places, self.count, rows, columns, keys, things)
        return things

    @cached_property
    def _network(self) -> tuple[int, int, npt.NDArray[Any]]:
        columns = max(isqrt(self.count - 1) + 1, 1)
        rows = max(-(-self.count // columns), 1)
        return rows, columns, keyed_hash(map(str, range(ROUNDS)), self.purpose, self.seed)


keyed_order = lru_cache(maxsize=256)(KeyedOrder)
"""Cached constructor of :class:`KeyedOrder`, for callers that need the same order for every batch."""


@compiled
def _permute(numbers: Ints, count: int, rows: int, columns: int, keys: Ints, out: Ints) -> None:
    """Permute numbers below ``count`` by a Feistel network over rows x columns; results beyond are permuted again."""
    for number in range(len(numbers)):
        place = np.uint64(numbers[number])
        while True:
            left, right = np.uint64(rows), np.uint64(columns)
            high, low = place // right, place % right
            for key in keys:
                mixed = (low ^ key) * np.uint64(0x9E3779B97F4A7C15)
                mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                mixed ^= mixed >> np.uint64(31)
                high, low = low, (high + mixed % left) % left
                left, right = right, left
            place = high * right + low
            if place < np.uint64(count):
                break
        out[number] = place


def file_order(names: Sequence[str], seed: int, number: int) -> list[int]:
    """Return the order of files in pass ``number``: sorted by a keyed hash of their names."""
    keys = keyed_hash(names, f"files of pass {number}", seed).tolist()
    return sorted(range(len(names)), key=lambda file: (keys[file], names[file]))


def uniform_numbers(seed: int, purpose: str, first: int, count: int) -> npt.NDArray[np.float64]:
    """Return the numbers ``first`` to ``first + count`` of a random sequence in [0, 1), float64.

    They do not depend on how the sequence is split into calls.

    >>> bool((uniform_numbers(0, "mix", 5, 3) == uniform_numbers(0, "mix", 0, 8)[5:]).all())
    True
    """
    digest = hashlib.blake2b(f"{purpose}:{seed}".encode(), digest_size=48).digest()
    key = np.frombuffer(digest, "<u8")[:2].astype(np.uint64)
    philox = np.random.Philox(key=key)
    philox.advance(first // _WORDS)
    skipped = first % _WORDS
    raw = philox.random_raw(skipped + count)[skipped:]
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)
