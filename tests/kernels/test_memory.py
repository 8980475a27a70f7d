"""Intrinsics that compile to few instructions, against Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import (
    TESTED,
    WRITTEN,
    count_bits,
    find_blanks,
    find_byte,
    find_capitals,
    find_continuations,
    find_digits,
    find_high,
    find_white,
    highest_bit,
    least_of_many,
    lowest_bit,
    write_places,
)

TESTS = {
    "blanks": b" ",
    "digits": b"0123456789",
    "white": b"\t\n\v\f\r ",
    "capitals": b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "high": bytes(range(0x80, 0x100)),
    "continuations": bytes(range(0x80, 0xC0)),
}


@compiled
def _test_all(data, found):
    address = data.ctypes.data
    found[0] = find_blanks(address)
    found[1] = find_digits(address)
    found[2] = find_white(address)
    found[3] = find_capitals(address)
    found[4] = find_high(address)
    found[5] = find_continuations(address)


@given(st.binary(min_size=TESTED, max_size=TESTED))
def test_a_bit_for_each_byte_that_passes(data):
    found = np.empty(len(TESTS), np.uint64)
    _test_all(np.frombuffer(data, np.uint8), found)
    for bits, wanted in zip(found.tolist(), TESTS.values(), strict=True):
        assert [bits >> place & 1 for place in range(64)] == [byte in wanted for byte in data]


@compiled
def _look(data, byte, numbers, places, counts):
    bits = find_byte(data.ctypes.data, byte)
    counts[0] = count_bits(bits)
    counts[1] = lowest_bit(bits)
    counts[2] = highest_bit(bits | np.uint64(1))
    counts[3] = write_places(bits, 100, places, np.uint64(1))
    counts[4] = least_of_many(numbers.ctypes.data)


@given(st.binary(min_size=64, max_size=64), st.integers(0, 255), st.lists(st.integers(0, 2**32 - 1), min_size=32))
def test_places_and_counts_of_bits_are_those_of_a_loop(data, byte, numbers):
    numbers = np.array(numbers[:32], np.uint32)
    places, counts = np.zeros(1 + TESTED + WRITTEN, np.int64), np.zeros(5, np.int64)
    _look(np.frombuffer(data, np.uint8), byte, numbers, places, counts)
    there = [place for place, each in enumerate(data) if each == byte]
    assert counts.tolist() == [
        len(there), min(there, default=64), max(there, default=0), 1 + len(there), numbers.min()
    ]  # fmt: skip
    assert places[1 : 1 + len(there)].tolist() == [100 + place for place in there]
