"""Every random choice of longcrawl: a keyed hash of a document's id.

Nothing here has a state, so a choice never depends on worker count, batch size, order or engine.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


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
