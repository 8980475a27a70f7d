"""What kernels compile to few instructions: numbers at any address, ends of bits, the least of 32, tests of 64."""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import forced_inline, intrinsic

_U = np.uint64

TESTED = 64
"""How many bytes those functions look at that return a bit for each."""
WRITTEN = 8
"""How many places :func:`write_places` writes at once: there is room for 7 behind the last."""


def _loader(bits: int, loaded: str) -> Any:
    """Return what loads a little-endian number of so many bits from any address."""

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
    """Return what stores the low bits of a number, so many, at any address."""

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
    """Begin to load the cache line of an address."""
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
    """Return the place of the lowest bit, 64 where there is none."""
    from llvmlite import ir
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(number), generate


@intrinsic
def highest_bit(_typing: Any, number: Any) -> Any:
    """Return the place of the highest bit of a number that is not 0."""
    from llvmlite import ir
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.sub(ir.IntType(64)(63), builder.ctlz(arguments[0], ir.IntType(1)(1)))

    return types.int64(number), generate


@intrinsic
def count_bits(_typing: Any, number: Any) -> Any:
    """Return how many bits of a number are set."""
    from numba import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(number), generate


@forced_inline
def write_places(bits: np.uint64, first: int, places: npt.NDArray[np.int64], count: np.uint64) -> np.uint64:
    """Write the places of bits, counted from ``first``, behind ``count`` that are there; return how many are then.

    A loop for each bit would end at a place that the processor guesses wrong.
    """
    found = _U(count_bits(bits))
    for begun in range(_U(0), found, _U(WRITTEN)):
        for number in range(_U(WRITTEN)):
            places[count + begun + number] = first + lowest_bit(bits)
            bits &= bits - _U(1)
    return count + found


@intrinsic
def least_of_many(_typing: Any, address: Any) -> Any:
    """Return the least of 32 numbers of 32 bits."""
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
    """Return what tests the 64 bytes at an address, and gives a bit for each that passes."""

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
    """Return a bit for each of the 64 bytes at an address that is this one."""
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
"""Which bytes are what ``str.isspace`` takes for white space of ASCII, its four separators too."""
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
"""Which bytes of a text in HTML stand for something else, but for spaces: control characters, ``&``, ``<``, and the
first bytes of all white space beyond ASCII and of the mark of no width (0xC2, 0xE2, 0xE3, 0xEF)."""
find_continuations = _tester(lambda builder, bytes_, every: builder.icmp_signed("<", bytes_, every(0xC0)))
"""Which bytes belong to a character that began before them."""
find_blanks = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord(" "))))
"""Which bytes are spaces."""
find_digits = _tester(
    lambda builder, bytes_, every: builder.icmp_unsigned("<=", builder.sub(bytes_, every(ord("0"))), every(9))
)
"""Which bytes are digits of ASCII."""
find_ats = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("@"))))
find_colons = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord(":"))))
find_leads_of_three = _tester(lambda builder, bytes_, every: builder.icmp_unsigned(">=", bytes_, every(0xE0)))
"""Which bytes begin characters of three bytes of UTF-8, or of four."""
find_white = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("<=", builder.sub(bytes_, every(ord("\t"))), every(4)),
        builder.icmp_unsigned("==", bytes_, every(ord(" "))),
    )
)
"""Which bytes are white space of ASCII."""
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
"""Which bytes of ASCII, other than newlines, are where ``str.splitlines`` splits."""
find_apostrophes = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("'"))))
find_slashes = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(ord("/"))))
find_capitals = _tester(
    lambda builder, bytes_, every: builder.icmp_unsigned("<=", builder.sub(bytes_, every(ord("A"))), every(25))
)
find_high = _tester(lambda builder, bytes_, every: builder.icmp_signed("<", bytes_, every(0)))
"""Which bytes belong to characters beyond ASCII."""
find_low_continuations = _tester(lambda builder, bytes_, every: builder.icmp_signed("<", bytes_, every(0xA0)))
"""Which bytes are 0x80 to 0x9F."""
find_least_leads = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(0xE0)))
find_surrogate_leads = _tester(lambda builder, bytes_, every: builder.icmp_unsigned("==", bytes_, every(0xED)))
find_rare_leads = _tester(
    lambda builder, bytes_, every: builder.or_(
        builder.icmp_unsigned("==", builder.and_(bytes_, every(0xFE)), every(0xC0)),
        builder.icmp_unsigned(">=", bytes_, every(0xF0)),
    )
)
"""Which bytes begin characters of four bytes, or none."""
find_others = _tester(
    lambda builder, bytes_, every: builder.icmp_unsigned(
        ">", builder.sub(builder.or_(bytes_, every(0x20)), every(ord("a"))), every(25)
    )
)
"""Which bytes are no letters of ASCII."""
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
"""Which bytes are quotes, backslashes or control characters: a string of JSON goes on over all others."""


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
