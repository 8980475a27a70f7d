"""Random numbers and orders that are addressed, not drawn in turn: nothing here has a state.

Only integers of BLAKE2b and Philox's raw output are used, which no release of NumPy changes.
"""

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

__all__ = ["shuffled_places", "uniform_numbers"]

ROUNDS = 6
BLOCK = 1 << 16
"""Places that are shuffled at a time: what a round touches then stays in a processor's cache."""

WORDS = 4
"""64-bit numbers of one step of Philox's counter."""


def uniform_numbers(seed: int, purpose: str, first: int, count: int) -> npt.NDArray[np.float64]:
    """Give numbers ``first`` to ``first + count`` of a sequence in [0, 1): float64, the same however it is cut.

    >>> bool((uniform_numbers(0, "mix", 5, 3) == uniform_numbers(0, "mix", 0, 8)[5:]).all())
    True
    """
    key = np.frombuffer(_digest(seed, purpose), "<u8")[:2].astype(np.uint64)
    philox = np.random.Philox(key=key)
    philox.advance(first // WORDS)
    skipped = first % WORDS
    raw = philox.random_raw(skipped + count)[skipped:]
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)


def shuffled_places(places: npt.NDArray[np.int64], size: int, seed: int, purpose: str) -> npt.NDArray[np.int64]:
    """Give where each place of an order goes in a shuffled one: a permutation of 0 to ``size - 1``, place by place.

    A Feistel network on the bits of a place; what falls outside of ``size`` goes through it again.

    >>> sorted(shuffled_places(np.arange(10), 10, 0, "web").tolist()) == list(range(10))
    True
    """
    keys = np.frombuffer(_digest(seed, purpose), "<u8").astype(np.uint64)
    shuffled = places.astype(np.uint64)
    for first in range(0, len(shuffled), BLOCK):
        block = shuffled[first : first + BLOCK]
        outside = np.arange(len(block))
        while len(outside):
            block[outside] = _feistel(block[outside], size, keys)
            outside = outside[block[outside] >= size]
    return shuffled.astype(np.int64)


def _feistel(places: npt.NDArray[np.uint64], size: int, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    bits = max((size - 1).bit_length(), 2)
    low_bits = bits // 2
    low_mask, high_mask = np.uint64((1 << low_bits) - 1), np.uint64((1 << (bits - low_bits)) - 1)
    shift = np.uint64(low_bits)
    low, high = places & low_mask, places >> shift
    for number in range(0, ROUNDS, 2):
        low ^= _mixed(high, keys[number]) & low_mask
        high ^= _mixed(low, keys[number + 1]) & high_mask
    return (high << shift) | low


def _mixed(values: npt.NDArray[np.uint64], key: np.uint64) -> npt.NDArray[np.uint64]:
    """Spread every bit of a value and a key over the lower half of a 64-bit number; products wrap around."""
    mixed = (values + key) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return np.asarray(mixed >> np.uint64(32))


def _digest(seed: int, purpose: str) -> bytes:
    return blake2b(f"{purpose}:{seed}".encode("utf-8", "surrogatepass"), digest_size=8 * ROUNDS).digest()
