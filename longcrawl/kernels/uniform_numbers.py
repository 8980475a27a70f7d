"""Random numbers that are addressed, not drawn in turn: nothing here has a state.

Only integers of BLAKE2b and Philox's raw output are used, which no release of NumPy changes.
"""

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

__all__ = ["uniform_numbers"]

WORDS = 4
"""64-bit numbers of one step of Philox's counter."""


def uniform_numbers(seed: int, purpose: str, first: int, count: int) -> npt.NDArray[np.float64]:
    """Return numbers ``first`` to ``first + count`` of a sequence in [0, 1): float64, the same however it is cut.

    >>> bool((uniform_numbers(0, "mix", 5, 3) == uniform_numbers(0, "mix", 0, 8)[5:]).all())
    True
    """
    digest = blake2b(f"{purpose}:{seed}".encode(), digest_size=48).digest()
    key = np.frombuffer(digest, "<u8")[:2].astype(np.uint64)
    philox = np.random.Philox(key=key)
    philox.advance(first // WORDS)
    skipped = first % WORDS
    raw = philox.random_raw(skipped + count)[skipped:]
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)
