"""SHA-1 of many texts, compiled by numba.

Instructions that compute one SHA-1 wait for each other, so many texts are hashed side by side: the words of 16 of them
lie in one vector, in each of its places one text. By hand, 16 texts take 3.7 times less than OpenSSL with the
instructions for SHA-1 takes for one after the other, and 1.7 times less where vectors have 256 bits.
"""

# numba hands intrinsics the types of their arguments, and takes arguments by position:
# ruff: noqa: ARG001, C901, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
from numba import types
from numba.extending import intrinsic

from longcrawl.kernels.compiling import compiled

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

LANES = 16
"""How many texts are hashed side by side."""

MANY_BYTES = 1 << 20
"""From how many on texts are hashed side by side; fewer are done before the kernel is loaded."""

ALONE = 4
"""How many times as fast as in a lane a text is hashed by OpenSSL."""

BLOCK = 64
"""How many bytes SHA-1 takes at a time."""

_FIRST = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0)
_ADDED = (0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6)
"""What FIPS 180-4 names: the first hash value, and the constants of each 20 rounds."""

_WORDS = ir.VectorType(ir.IntType(32), LANES)


def _every(number: int) -> Any:
    return ir.Constant(_WORDS, [number] * LANES)


def _call(builder: Any, name: str, *arguments: Any) -> Any:
    kind = ir.FunctionType(_WORDS, [_WORDS] * len(arguments))
    return builder.call(builder.module.declare_intrinsic(f"llvm.{name}.v{LANES}i32", (), kind), arguments)


def _rotated(builder: Any, words: Any, count: int) -> Any:
    return _call(builder, "fshl", words, words, _every(count))


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of a square of words; each step swaps the off-diagonal squares of a size."""
    size = 1
    while size < LANES:
        for row in (row for row in range(LANES) if not row & size):
            pair = rows[row], rows[row + size]
            low = [place if not place & size else place - size + LANES for place in range(LANES)]
            high = [place + size if not place & size else place + LANES for place in range(LANES)]
            for to, order in ((row, low), (row + size, high)):
                rows[to] = builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))
        size *= 2
    return rows


def _rounds(builder: Any, words: list[Any], state: list[Any]) -> list[Any]:
    """Return the hash values after a block, whose 16 words those of all lanes are (FIPS 180-4, 6.1.2)."""
    a, b, c, d, e = state
    for turn in range(80):
        if turn >= 16:
            mixed = builder.xor(
                builder.xor(words[turn - 3], words[turn - 8]), builder.xor(words[turn - 14], words[turn - 16])
            )
            words.append(_rotated(builder, mixed, 1))
        if turn < 20:
            chosen = builder.xor(d, builder.and_(b, builder.xor(c, d)))
        elif 40 <= turn < 60:
            chosen = builder.or_(builder.and_(b, c), builder.and_(d, builder.or_(b, c)))
        else:
            chosen = builder.xor(builder.xor(b, c), d)
        known = builder.add(builder.add(e, _every(_ADDED[turn // 20])), builder.add(words[turn], chosen))
        a, b, c, d, e = builder.add(known, _rotated(builder, a, 5)), a, _rotated(builder, b, 30), c, d
    return [builder.add(before, after) for before, after in zip(state, (a, b, c, d, e), strict=True)]


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types
def _hash_blocks(_typing: Any, state: Any, places: Any, count: Any) -> Any:
    """Take so many blocks of each lane: from its address in ``places`` on, into its column of ``state``."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        state, places = (
            builder.inttoptr(address, kind.as_pointer())
            for address, kind in zip(arguments, (_WORDS, number), strict=False)
        )
        begins = [builder.load(builder.gep(places, [number(lane)])) for lane in range(LANES)]
        stored = [builder.gep(state, [number(row)]) for row in range(len(_FIRST))]
        values = [builder.load(each, align=4) for each in stored]
        before, loop = builder.block, builder.append_basic_block("blocks")
        builder.branch(loop)
        builder.position_at_end(loop)
        turn, hashes = builder.phi(number), [builder.phi(_WORDS) for _ in values]
        turn.add_incoming(number(0), before)
        at = builder.mul(turn, number(BLOCK))
        rows = [
            builder.load(builder.inttoptr(builder.add(begin, at), _WORDS.as_pointer()), align=1) for begin in begins
        ]
        words = [_call(builder, "bswap", column) for column in _transposed(builder, rows)]
        after = _rounds(builder, words, hashes)
        following = builder.add(turn, number(1))
        turn.add_incoming(following, loop)
        for phi, first, last in zip(hashes, values, after, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(last, loop)
        end = builder.append_basic_block("hashed")
        builder.cbranch(builder.icmp_signed("<", following, arguments[2]), loop, end)
        builder.position_at_end(end)
        for value, pointer in zip(after, stored, strict=True):
            builder.store(value, pointer, align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def hash_texts(data: Bytes, starts: Numbers, lengths: Numbers) -> Bytes:
    """Return the SHA-1 of texts that lie in one array: uint8 [texts, 20].

    Args:
        data: uint8.
        starts: int64 [texts], where each begins in ``data``.
        lengths: int64 [texts].
    """
    digests = np.empty((len(starts), len(_FIRST)), np.uint32)
    total, longest_first = int(lengths.sum()), np.argsort(-lengths, kind="stable")
    sizes = np.append(lengths[longest_first], 0)
    before = np.cumsum(sizes) - sizes
    # The other lanes would wait for a text that is longer than their share.
    cost = before / ALONE + np.maximum((total - before) / LANES, sizes)
    alone = int(np.argmin(cost)) if total >= MANY_BYTES else len(lengths)
    for text in longest_first[:alone]:
        start, stop = starts[text], starts[text] + lengths[text]
        digests[text] = np.frombuffer(hashlib.sha1(data[start:stop]).digest(), ">u4")  # noqa: S324  # see Warc
    if alone < len(lengths):
        state, ends = np.empty((len(_FIRST), LANES), np.uint32), np.empty((LANES, 2 * BLOCK), np.uint8)
        lanes = np.empty((4, LANES), np.int64)
        hash_side_by_side(data, starts, lengths, longest_first[alone:], state, ends, lanes, digests)
    return digests.astype(">u4").view(np.uint8)


@compiled
def hash_side_by_side(
    data: Any, starts: Any, lengths: Any, order: Any, state: Any, ends: Any, lanes: Any, digests: Any
) -> None:
    """Write the SHA-1 of texts that lie in one array.

    Args:
        data: uint8.
        starts: int64 [texts], where each begins in ``data``.
        lengths: int64 [texts].
        order: int64, the texts to hash; with the longest first, fewest lanes wait at the end.
        state: uint32 [5, LANES], scratch.
        ends: uint8 [LANES, 2 * BLOCK], scratch: the last bytes of each lane's text, padded.
        lanes: int64 [4, LANES], scratch: the text of each lane, the address of its next block, how many blocks are
            there, and how many follow them in ``ends``.
        digests: uint32 [texts, 5], written.
    """
    texts, places, counts, rest = lanes[0], lanes[1], lanes[2], lanes[3]
    first, following = np.int64(data.ctypes.data), 0
    counts[:], rest[:], texts[:] = 0, 0, -1
    while True:
        least, some = np.int64(0), np.int64(0)
        for lane in range(LANES):
            if counts[lane] == 0 and rest[lane] == 0:
                last, texts[lane] = texts[lane], -1
                for row in range(len(_FIRST)):
                    if last >= 0:
                        digests[last, row] = state[row, lane]
                    state[row, lane] = _FIRST[row]
                if following < len(order):
                    text = order[following]
                    texts[lane], places[lane], counts[lane] = text, first + starts[text], lengths[text] // BLOCK
                    rest[lane] = _pad(data, starts[text], lengths[text], ends[lane])
                    following += 1
            if counts[lane] == 0 and rest[lane] > 0:
                places[lane] = np.int64(ends.ctypes.data) + lane * 2 * BLOCK
                counts[lane], rest[lane] = rest[lane], 0
            if counts[lane] > 0 and (least == 0 or counts[lane] < least):
                least, some = counts[lane], places[lane]
        if least == 0:
            return
        for lane in range(LANES):
            if counts[lane] == 0:
                places[lane] = some
        _hash_blocks(np.int64(state.ctypes.data), np.int64(lanes.ctypes.data) + 8 * LANES, least)
        for lane in range(LANES):
            if counts[lane] > 0:
                counts[lane] -= least
                places[lane] += least * BLOCK


@compiled
def _pad(data: Any, start: int, length: int, end: Any) -> int:
    """Write the last bytes of a text as SHA-1 pads them; return how many blocks that makes."""
    whole = length // BLOCK * BLOCK
    size = length - whole
    end[:] = 0
    for at in range(size):
        end[at] = data[start + whole + at]
    end[size] = 0x80
    blocks = 1 if size < BLOCK - 8 else 2
    bits = length * 8
    for at in range(8):
        end[blocks * BLOCK - 1 - at] = (bits >> (8 * at)) & 0xFF
    return blocks
