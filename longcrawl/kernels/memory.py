"""Intrinsics for kernels: unaligned loads and stores, bit operations, and tests of 64 bytes at once."""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="misc"

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import Intrinsic, forced_inline

_U = np.uint64

TESTED = 64
"""Number of bytes tested by the functions that return one bit per byte."""
WRITTEN = 8
"""Number of places that :func:`write_places` writes at once, so its array needs room for 7 more after the last."""


def _intrinsic(returned: str, second: str = "") -> Callable[[Any], Any]:
    """Make an intrinsic from a function of llvmlite's ``ir``, a builder and the arguments, which builds its code.

    Args:
        returned: name of numba's type of the result.
        second: that of the second argument, if there is one; the first is an integer of any type.
    """

    def decorate(build: Any) -> Any:
        def describe(first: Any, *others: str) -> Any:
            from llvmlite import ir
            from numba import types

            def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
                found = build(ir, builder, *arguments)
                return context.get_dummy_value() if found is None else found

            return getattr(types, returned)(first, *(getattr(types, other) for other in others)), generate

        def of_one(_typing: Any, first: Any) -> Any:
            return describe(first)

        def of_two(_typing: Any, first: Any, _second: Any) -> Any:
            return describe(first, second)

        return Intrinsic(of_two if second else of_one)

    return decorate


def _loader(bits: int, loaded: str) -> Any:

    @_intrinsic(loaded)
    def load(ir: Any, builder: Any, address: Any) -> Any:
        pointer = builder.inttoptr(address, ir.IntType(bits).as_pointer())
        return builder.zext(builder.load(pointer, align=1), ir.IntType(64))

    return load


def _storer(bits: int, stored: str) -> Any:

    @_intrinsic("void", stored)
    def store(ir: Any, builder: Any, address: Any, number: Any) -> None:
        pointer = builder.inttoptr(address, ir.IntType(bits).as_pointer())
        builder.store(builder.trunc(number, ir.IntType(bits)), pointer, align=1)

    return store


byte_at, four_at, eight_at = _loader(8, "int64"), _loader(32, "int64"), _loader(64, "uint64")
put_byte, put_four, put_eight = _storer(8, "int64"), _storer(32, "int64"), _storer(64, "uint64")


@_intrinsic("void")
def prefetch(ir: Any, builder: Any, address: Any) -> None:
    """Prefetch the cache line of an address."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    takes = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], takes)
    for_reading, keep, data = number(0), number(3), number(1)
    builder.call(hint, [builder.inttoptr(address, byte), for_reading, keep, data])


@_intrinsic("int64")
def lowest_bit(ir: Any, builder: Any, number: Any) -> Any:
    """Return the position of the lowest set bit, or 64 if there is none."""
    return builder.cttz(number, ir.IntType(1)(0))


@_intrinsic("int64")
def highest_bit(ir: Any, builder: Any, number: Any) -> Any:
    """Return the position of the highest set bit of a nonzero number."""
    return builder.sub(ir.IntType(64)(63), builder.ctlz(number, ir.IntType(1)(1)))


@_intrinsic("int64")
def count_bits(_ir: Any, builder: Any, number: Any) -> Any:
    """Count the set bits of a number."""
    return builder.ctpop(number)


@forced_inline
def write_places(bits: np.uint64, first: int, places: npt.NDArray[np.int64], count: np.uint64) -> np.uint64:
    """Append the positions of set bits, plus ``first``, to ``places`` after ``count`` entries; return the new count.

    It writes ``WRITTEN`` at once, because the processor would mispredict the end of a loop over single bits.
    """
    found = _U(count_bits(bits))
    for begun in range(_U(0), found, _U(WRITTEN)):
        for number in range(_U(WRITTEN)):
            places[count + begun + number] = first + lowest_bit(bits)
            bits &= bits - _U(1)
    return count + found


@_intrinsic("int64")
def least_of_many(ir: Any, builder: Any, address: Any) -> Any:
    """Return the smallest of the 32 unsigned 32-bit numbers at an address."""
    block, number = ir.VectorType(ir.IntType(32), 32), ir.IntType(32)
    name = "llvm.vector.reduce.umin.v32i32"
    least = builder.module.declare_intrinsic(name, (), ir.FunctionType(number, [block]))
    numbers = builder.load(builder.inttoptr(address, block.as_pointer()), align=4)
    return builder.zext(builder.call(least, [numbers]), ir.IntType(64))


@_intrinsic("uint64", "int64")
def find_byte(ir: Any, builder: Any, address: Any, byte: Any) -> Any:
    """Compare the 64 bytes at an address with a byte and return one bit per byte."""
    block, lane = ir.VectorType(ir.IntType(8), 64), ir.VectorType(ir.IntType(32), 64)
    wanted = builder.trunc(byte, ir.IntType(8))
    one = builder.insert_element(ir.Constant(block, ir.Undefined), wanted, ir.IntType(32)(0))
    every = builder.shuffle_vector(one, ir.Constant(block, ir.Undefined), ir.Constant(lane, [0] * 64))
    pointer = builder.inttoptr(address, block.as_pointer())
    same = builder.icmp_unsigned("==", builder.load(pointer, align=1), every)
    return builder.bitcast(same, ir.IntType(64))


def _tester(*ranges: bytes, negated: bool = False) -> Any:
    """Make an intrinsic that returns a bit for each of 64 bytes: 1 if it is in a range, one byte or first and last."""

    @_intrinsic("uint64")
    def find(ir: Any, builder: Any, address: Any) -> Any:
        block = ir.VectorType(ir.IntType(8), 64)
        bytes_ = builder.load(builder.inttoptr(address, block.as_pointer()), align=1)
        first_and_size = [
            [ir.Constant(block, [byte] * 64) for byte in (each[0], each[-1] - each[0])] for each in ranges
        ]
        inside = [builder.icmp_unsigned("<=", builder.sub(bytes_, first), size) for first, size in first_and_size]
        found = reduce(builder.or_, inside)
        return builder.bitcast(builder.not_(found) if negated else found, ir.IntType(64))

    return find


find_spaces = _tester(b"\t\r", b"\x1c ")
"""Test for ASCII white space of ``str.isspace``, including its four separators 0x1C to 0x1F."""
find_marked = _tester(b"\0\x1f", b"&", b"<", b"\xc2", b"\xe2\xe3", b"\xef")
"""Test for controls, ``&``, ``<``, and first bytes of white space beyond ASCII and of the zero-width mark, in HTML."""
find_continuations = _tester(b"\x80\xbf")
find_blanks, find_digits, find_ats, find_colons = _tester(b" "), _tester(b"09"), _tester(b"@"), _tester(b":")
find_leads_of_three = _tester(b"\xe0\xff")
find_white = _tester(b"\t\r", b" ")
find_breaks = _tester(b"\n", b"\r")
find_rare_breaks = _tester(b"\x0b\x0d", b"\x1c\x1e")
"""Test for the ASCII line breaks of ``str.splitlines`` other than line feeds."""
find_apostrophes, find_slashes, find_capitals = _tester(b"'"), _tester(b"/"), _tester(b"AZ")
find_high = _tester(b"\x80\xff")
find_low_continuations = _tester(b"\x80\x9f")
find_least_leads, find_surrogate_leads = _tester(b"\xe0"), _tester(b"\xed")
find_rare_leads = _tester(b"\xc0\xc1", b"\xf0\xff")
"""Test for first bytes of four-byte characters, and for bytes that are never valid in UTF-8."""
find_others = _tester(b"AZ", b"az", negated=True)
"""Bytes other than ASCII letters."""
find_line_feeds, find_quotes, find_commas, find_dots = (_tester(byte) for byte in (b"\n", b'"', b",", b"."))
find_zeros, find_ones, find_opening_brackets, find_closing_brackets = (
    _tester(byte) for byte in (b"0", b"1", b"[", b"]")
)
find_string_stops = _tester(b"\0\x1f", b'"', b"\\")
"""Test for quotes, backslashes and control characters, which end or interrupt a JSON string."""


@_intrinsic("void", "int64")
def copy_block(ir: Any, builder: Any, target: Any, source: Any) -> None:
    """Copy 64 bytes from one address to another."""
    block = ir.VectorType(ir.IntType(8), 64).as_pointer()
    builder.store(builder.load(builder.inttoptr(source, block), align=1), builder.inttoptr(target, block), align=1)
