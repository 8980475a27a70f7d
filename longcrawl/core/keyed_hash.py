"""Random choices by a keyed hash of a document's id, and samples of documents chosen so.

Nothing here has a state, so a choice never depends on worker count, batch size, order or engine.

Hashes are keyed by a purpose. Documents of one hash, as those of one id, are all in the sample or all out of it. What
a share of a sample reaches is a threshold for all documents.
"""

import hashlib
from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from math import ceil, sqrt

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.batches import document_ids, with_column


def keyed_hash(ids: Iterable[str], purpose: str, seed: int) -> npt.NDArray[np.uint64]:
    """Return one uniform 64-bit number per id: BLAKE2b of the id under the key ``purpose:seed``.

    Two purposes, or two seeds, give independent numbers. Any two of n ids share a number with
    probability n**2 / 2**65: 1.2e-6 for 6.66 million rows; whoever sorts by it breaks ties by id.

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
LAST = (1 << 64) - 1


def up_to_hash(table: pa.Table, purpose: str, last: int) -> pa.Table:
    """Return the documents whose hash is at most ``last``, with their hashes in a column ``HASH``.

    Raises:
        StageError: a document has no id.
    """
    hashes = keyed_hash(document_ids(table, purpose).to_pylist(), purpose, 0)
    return filter_hashes(with_column(table, HASH, pa.array(hashes)), last)


def filter_hashes(table: pa.Table, last: int) -> pa.Table:
    """Return the documents whose hash, in the column ``HASH``, is at most ``last``."""
    return table.filter(pa.array(table[HASH].to_numpy() <= np.uint64(last)))


def likely_last(count: int, documents: int) -> int:
    """Return a hash that ``count`` of so many documents do not exceed, but for one time in 1e15."""
    return min(LAST, ceil((count + 8 * sqrt(count) + 64) / documents * LAST))


def last_chosen(hashes: npt.NDArray[np.uint64], count: int) -> int:
    """Return the largest of the ``count`` smallest hashes; ``LAST`` where there are no more."""
    return LAST if len(hashes) <= count else int(np.partition(hashes, count - 1)[count - 1])


def choose(tables: Iterable[pa.Table], count: int | None, purpose: str) -> Iterable[pa.Table]:
    """Return tables of ``count`` of the documents of tables, all if it is None; up to three times as many in memory."""
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
    """Return the greatest bound that a share of values is at least, rounded up to whole ones.

    >>> reached_by(np.array([3.0, 1.0, 2.0, 9.0]), 0.5)
    3.0
    """
    # 0.7 of 10 documents are 7, not the 8 that the nearest float to 0.7 would ask for.
    count = int((Decimal(repr(share)) * len(values)).to_integral_value(ROUND_CEILING))
    return float(np.partition(values, len(values) - count)[len(values) - count])
