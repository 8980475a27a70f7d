"""Intrinsics for kernels: unaligned loads and stores, bit operations, and tests of 64 bytes at once."""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import forced_inline, intrinsic

_U = np.uint64

TESTED = 64
"""Number of bytes tested by the functions that return one bit per byte."""
WRITTEN = 8
"""Number of places that :func:`write_places` writes at once, so its array needs room for 7 more after the last."""


def _loader(bits: int, loaded: str) -> Any:
    """Make an intrinsic that loads a little-endian number of ``bits`` bits from any address."""

    @intrinsic
    def load(_typing: Any, address: Any) -> Any:
        from llvmlite import ir
        from numba import types

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            return builder.zext(builder.load(pointer, align=1), ir.IntType(64))

        return getattr(types, loaded)(address), generate

    return load


def _storer(bits: int, stored: str) -> Any:
    """Make an intrinsic that stores the low ``bits`` bits of a number at any address."""

    @intrinsic
    def store(_typing: Any, address: Any, _number: Any) -> Any:
        from llvmlite import ir
        from numba import types

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            builder.store(builder.trunc(arguments[1], ir.IntType(bits)), pointer, align=1)
            return context.get_dummy_value()

        return types.void(address, getattr(types, stored)), generate

    return store


byte_at, four_at, eight_at = _loader(8, "int64"), _loader(32, "int64"), _loader(64, "uint64")
put_byte, put_four, put_eight = _storer(8, "int64"), _storer(32, "int64"), _storer(64, "uint64")


@intrinsic
def prefetch(_typing: Any, address: Any) -> Any:
    """Prefetch the cache line of an address."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        for_reading, keep, data = number(0), number(3), number(1)
        builder.call(hint, [builder.inttoptr(arguments[0], byte), for_reading, keep, data])
        return context.get_dummy_value()

    return types.void(address), generate


@intrinsic
def lowest_bit(_typing: Any, number: Any) -> Any:
    """Return the position of the lowest set bit, or 64 if there is none."""
    from llvmlite import ir
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(number), generate


@intrinsic
def highest_bit(_typing: Any, number: Any) -> Any:
    """Return the position of the highest set bit of a nonzero number."""
    from llvmlite import ir
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.sub(ir.IntType(64)(63), builder.ctlz(arguments[0], ir.IntType(1)(1)))

    return types.int64(number), generate


@intrinsic
def count_bits(_typing: Any, number: Any) -> Any:
    """Count the set bits of a number."""
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(number), generate


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


@intrinsic
def least_of_many(_typing: Any, address: Any) -> Any:
    """Return the smallest of the 32 unsigned 32-bit numbers at an address."""
    from llvmlite import ir
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        block, number = ir.VectorType(ir.IntType(32), 32), ir.IntType(32)
        name = "llvm.vector.reduce.umin.v32i32"
        least = builder.module.declare_intrinsic(name, (), ir.FunctionType(number, [block]))
        numbers = builder.load(builder.inttoptr(arguments[0], block.as_pointer()), align=4)
        return builder.zext(builder.call(least, [numbers]), ir.IntType(64))

    return types.int64(address), generate


def _tester(test: Any) -> Any:
    """Make an intrinsic that tests the 64 bytes at an address and returns one bit per byte."""

    @intrinsic
    def find(_typing: Any, address: Any) -> Any:
        from llvmlite import ir
        from numba import types

        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            block = ir.VectorType(ir.IntType(8), 64)
            pointer = builder.inttoptr(arguments[0], block.as_pointer())
            passed = test(builder, builder.load(pointer, align=1), lambda byte: ir.Constant(block, [byte] * 64))
            return builder.bitcast(passed, ir.IntType(64))

        return types.uint64(address), generate

    return find


@intrinsic
def find_byte(_typing: Any, address: Any, _byte: Any) -> Any:
    """Compare the 64 bytes at an address with a byte and return one bit per byte."""
    from llvmlite import ir
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        block, lane = ir.VectorType(ir.IntType(8), 64), ir.VectorType(ir.IntType(32), 64)
        wanted = builder.trunc(arguments[1], ir.IntType(8))
        one = builder.insert_element(ir.Constant(block, ir.Undefined), wanted, ir.IntType(32)(0))
        every = builder.shuffle_vector(one, ir.Constant(block, ir.Undefined), ir.Constant(lane, [0] * 64))
        pointer = builder.inttoptr(arguments[0], block.as_pointer())
        same = builder.icmp_unsigned("==", builder.load(pointer, align=1), every)
        return builder.bitcast(same, ir.IntType(64))

    return types.uint64(address, types.int64), generate


find_spaces = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("<=", builder.sub(bytes_, every(ord("\t"))), every(4)),
        builder.icmp_unsigned("<=", builder.sub(bytes_, every(0x1C)), every(4)),
    )
)
"""Test for ASCII white space of ``str.isspace``, including its four separators 0x1C to 0x1F."""
find_marked = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.or_(
            builder.icmp_unsigned("<", bytes_, every(ord(" "))), builder.icmp_unsigned("==", bytes_, every(ord("&")))
        ),
        builder.or_(
            builder.icmp_unsigned("==", bytes_, every(ord("<"))),
            builder.or_(
                builder.icmp_unsigned("==", builder.and_(bytes_, every(0xDF)), every(0xC2)),
                builder.or_(
                    builder.icmp_unsigned("==", bytes_, every(0xE3)), builder.icmp_unsigned("==", bytes_, every(0xEF))
                ),
            ),
        ),
    )
)
"""Test for bytes of HTML text that need handling, except spaces.

These are control characters, ``&``, ``<``, and the first bytes of all white space beyond ASCII and of the zero-width
mark (0xC2, 0xE2, 0xE3, 0xEF)."""
find_continuations = _tester(lambda builder, bytes_, every: builder.icmp_signed("<", bytes_, every(0xC0)))
"""Test for continuation bytes of UTF-8."""
find_blanks = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord(" "))))
"""Test for the space."""
find_digits = _tester(
    lambda builder, bytes_, every: builder.icmp_unsigned("<=", builder.sub(bytes_, every(ord("0"))), every(9))
)
"""Test for ASCII digits."""
find_ats = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("@"))))
find_colons = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord(":"))))
find_leads_of_three = _tester(lambda builder, bytes_, every: builder.icmp_unsigned(">=", bytes_, every(0xE0)))
"""Test for first bytes of UTF-8 characters with three or four bytes."""
find_white = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("<=", builder.sub(bytes_, every(ord("\t"))), every(4)),
        builder.icmp_unsigned("==", bytes_, every(ord(" "))),
    )
)
"""Test for ASCII white space: tab to carriage return, and the space."""
find_breaks = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("==", bytes_, every(ord("\n"))), builder.icmp_unsigned("==", bytes_, every(ord("\r")))
    )
)
find_rare_breaks = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("<=", builder.sub(bytes_, every(0x0B)), every(2)),
        builder.icmp_unsigned("<=", builder.sub(bytes_, every(0x1C)), every(2)),
    )
)
"""Test for the ASCII line breaks of ``str.splitlines`` other than line feeds."""
find_apostrophes = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("'"))))
find_slashes = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("/"))))
find_capitals = _tester(
    lambda builder, bytes_, every: builder.icmp_unsigned("<=", builder.sub(bytes_, every(ord("A"))), every(25))
)
find_high = _tester(lambda builder, bytes_, every: builder.icmp_signed("<", bytes_, every(0)))
"""Test for bytes of characters beyond ASCII."""
find_low_continuations = _tester(lambda builder, bytes_, every: builder.icmp_signed("<", bytes_, every(0xA0)))
"""Test for bytes 0x80 to 0x9F."""
find_least_leads = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(0xE0)))
find_surrogate_leads = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(0xED)))
find_rare_leads = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("==", builder.and_(bytes_, every(0xFE)), every(0xC0)),
        builder.icmp_unsigned(">=", bytes_, every(0xF0)),
    )
)
"""Test for first bytes of four-byte characters, and for bytes that are never valid in UTF-8."""
find_others = _tester(
    lambda builder, bytes_, every: builder.icmp_unsigned(
        ">", builder.sub(builder.or_(bytes_, every(0x20)), every(ord("a"))), every(25)
    )
)
"""Test for bytes other than ASCII letters."""
find_line_feeds = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("\n"))))
find_quotes = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord('"'))))
find_commas = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord(","))))
find_dots = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("."))))
find_zeros = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("0"))))
find_ones = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("1"))))
find_opening_brackets = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("["))))
find_closing_brackets = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("]"))))
find_string_stops = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("<", bytes_, every(ord(" "))),
        builder.or_(
            builder.icmp_unsigned("==", bytes_, every(ord('"'))),
            builder.icmp_unsigned("==", bytes_, every(ord("\\"))),
        ),
    )
)
"""Test for quotes, backslashes and control characters, which end or interrupt a JSON string."""


@intrinsic
def copy_block(_typing: Any, target: Any, source: Any) -> Any:
    """Copy 64 bytes from one address to another."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        block = ir.VectorType(ir.IntType(8), 64).as_pointer()
        to, at = (builder.inttoptr(each, block) for each in arguments)
        builder.store(builder.load(at, align=1), to, align=1)
        return context.get_dummy_value()

    return types.void(target, source), generate
