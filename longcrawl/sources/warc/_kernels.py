"""Plain records, and SHA-1 of many texts, compiled by numba.

Of a record, it is found where the fields of its headers are, and what bytes its page has.

Instructions that compute one SHA-1 wait for each other, so many texts are hashed side by side: the words of 8 of them
lie in one vector, in each of its places one text. By hand, with vectors of 256 bits, pages of an archive take half of
what OpenSSL with the instructions for SHA-1 takes for one after the other.
"""

# numba hands intrinsics the types of their arguments, and takes arguments by position; tests of bytes are long chains:
# ruff: noqa: ARG001, C901, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled, intrinsic
from longcrawl.kernels.memory import TESTED, find_byte
from longcrawl.kernels.utf8 import begins_with
from longcrawl.sources._scalar_kernels import is_utf8
from longcrawl.sources.warc.fields import HEADER_BYTES, NAMES
from longcrawl.sources.warc.plain import MOST_BLANK

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

LANES = 8
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

_TAB, _LF, _CR, _SPACE, _DOT, _SLASH, _ZERO, _NINE, _COLON, _DELETE = b"\t\n\r ./09:\x7f"
_TO_LOWER = 0x20
"""The bit that makes a letter lower case, and leaves a hyphen as it is; control characters never come here."""

_LENGTHS = np.array([len(name) for name in NAMES])
_SPELLED = np.zeros((len(NAMES), _LENGTHS.max()), np.uint8)
for _row, _name in zip(_SPELLED, NAMES, strict=True):
    _row[: len(_name)] = np.frombuffer(_name.encode(), np.uint8)
_CONTENT_LENGTH = NAMES.index("content-length")
_DIGITS = 18
"""How many digits a length has at most."""

_HTTP = np.frombuffer(b"HTTP/", np.uint8)

_BLOCK, _PAGE, _STOP, _OWN, _OTHERS, _STATUS, _IS_UTF8, _HAS_ZERO = range(8)
"""What is found of a record, see ``read_record``."""


def _words() -> Any:
    from llvmlite import ir

    return ir.VectorType(ir.IntType(32), LANES)


def _every(number: int) -> Any:
    from llvmlite import ir

    return ir.Constant(_words(), [number] * LANES)


def _call(builder: Any, name: str, *arguments: Any) -> Any:
    from llvmlite import ir

    kind = ir.FunctionType(_words(), [_words()] * len(arguments))
    return builder.call(builder.module.declare_intrinsic(f"llvm.{name}.v{LANES}i32", (), kind), arguments)


def _rotated(builder: Any, words: Any, count: int) -> Any:
    return _call(builder, "fshl", words, words, _every(count))


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of a square of words; each step swaps the off-diagonal squares of a size."""
    from llvmlite import ir

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


@intrinsic
def _hash_blocks(_typing: Any, state: Any, places: Any, count: Any) -> Any:
    """Take so many blocks of each lane: from its address in ``places`` on, into its column of ``state``."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        state, places = (
            builder.inttoptr(address, kind.as_pointer())
            for address, kind in zip(arguments, (_words(), number), strict=False)
        )
        begins = [builder.load(builder.gep(places, [number(lane)])) for lane in range(LANES)]
        stored = [builder.gep(state, [number(row)]) for row in range(len(_FIRST))]
        values = [builder.load(each, align=4) for each in stored]
        before, loop = builder.block, builder.append_basic_block("blocks")
        builder.branch(loop)
        builder.position_at_end(loop)
        turn, hashes = builder.phi(number), [builder.phi(_words()) for _ in values]
        turn.add_incoming(number(0), before)
        at = builder.mul(turn, number(BLOCK))
        words = list[Any]()
        for first in range(0, BLOCK, 4 * LANES):
            places_of_rows = [builder.add(builder.add(begin, at), number(first)) for begin in begins]
            rows = [builder.load(builder.inttoptr(place, _words().as_pointer()), align=1) for place in places_of_rows]
            words += [_call(builder, "bswap", column) for column in _transposed(builder, rows)]
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


@compiled
def read_record(data: Any, most_bytes: int, places: Any, found: Any) -> bool:
    """Read data that is one plain record and line ends; return whether it is.

    Args:
        data: uint8.
        most_bytes: how long a block is at most whose page is looked at.
        places: int64 [2, names, 3], written: the fields of the record and of its message, see ``find_fields``.
        found: int64 [8], written: where the block begins; where its page does, which is the body of a plain message or
            a block that is no message, -1 of others; where the block ends, also where that is behind the data; how many
            fields the record has, and how many the message; the status of the message; and of the page, whether it is
            UTF-8, and whether it has a zero.
    """
    found[:] = 0
    begin, found[_OWN] = find_fields(data, 0, min(len(data), HEADER_BYTES), places[0])
    if begin < 0:
        return False
    length = -1
    for field in range(found[_OWN]):
        if places[0, field, 0] == _CONTENT_LENGTH:
            length = _number(data, places[0, field, 1], places[0, field, 2])
    stop = begin + length
    found[_STOP] = stop if length >= 0 else -1
    if length < 0 or stop > len(data) or len(data) - stop > MOST_BLANK:
        return False
    for at in range(stop, len(data)):
        if data[at] != _LF and data[at] != _CR:
            return False
    found[_BLOCK], found[_PAGE] = begin, begin
    if begins_with(data, begin, stop, _HTTP):
        found[_PAGE], found[_STATUS] = -1, _status(data, begin + len(_HTTP), stop)
        if found[_STATUS] >= 200:
            found[_PAGE], found[_OTHERS] = find_fields(data, begin, min(stop, begin + HEADER_BYTES), places[1])
    if found[_PAGE] >= 0 and length <= most_bytes:
        found[_IS_UTF8], found[_HAS_ZERO] = scan_bytes(data, found[_PAGE], stop)
    return True


@compiled
def scan_bytes(data: Any, start: int, stop: int) -> tuple[bool, bool]:
    """Return whether bytes are UTF-8, and whether a zero is among them."""
    first, at, zeros = np.int64(data.ctypes.data), start, np.uint64(0)
    while at + TESTED <= stop:
        zeros |= find_byte(first + at, 0)
        at += TESTED
    has_zero = zeros != np.uint64(0)
    while at < stop:
        has_zero |= data[at] == 0
        at += 1
    return is_utf8(data, start, stop), has_zero


@compiled
def find_fields(data: Any, start: int, stop: int, places: Any) -> tuple[int, int]:
    """Find the values of the fields that ``NAMES`` has, in a header whose first line is passed over.

    Args:
        data: uint8.
        start: where the header begins.
        stop: where it ends at the latest.
        places: int64 [names, 3], written: of each field that is there its place in ``NAMES``, and where its value
            begins and ends, without white space around it.

    Returns:
        Where the header ends, with its empty line, -1 where it is not plain; and how many fields are there.
    """
    count, seen, at = 0, 0, start
    while at < stop and data[at] != _LF:
        at += 1
    at += 1
    while at < stop:
        if data[at] == _LF or data[at] == _CR:
            while at < stop and data[at] == _CR:
                at += 1
            return (at + 1 if at < stop and data[at] == _LF else -1), count
        line = at
        while at < stop and data[at] != _COLON:
            # A name with a slash may be the version that begins another record.
            if data[at] <= _SPACE or data[at] >= _DELETE or data[at] == _SLASH:
                return -1, 0
            at += 1
        length = at - line
        at += 1
        while at < stop and (data[at] == _SPACE or data[at] == _TAB):
            at += 1
        value, end = at, at
        while at < stop and (data[at] >= _SPACE or data[at] == _TAB):
            at += 1
            if data[at - 1] > _SPACE:
                end = at
        while at < stop and data[at] == _CR:
            at += 1
        if at >= stop or data[at] != _LF or length == 0:
            return -1, 0
        at += 1
        known = _number_of_name(data, line, length)
        if known >= 0:
            if seen >> known & 1:
                return -1, 0
            seen |= 1 << known
            places[count, 0], places[count, 1], places[count, 2] = known, value, end
            count += 1
    return -1, 0


@compiled
def _number_of_name(data: Any, start: int, length: int) -> int:
    """Return the place in ``NAMES`` of a name that is spelled in any case, -1 where it has none."""
    for name in range(len(_LENGTHS)):
        if _LENGTHS[name] == length:
            at = 0
            while at < length and data[start + at] | _TO_LOWER == _SPELLED[name, at]:
                at += 1
            if at == length:
                return name
    return -1


@compiled
def _number(data: Any, start: int, stop: int) -> int:
    """Return the number that some digits are, -1 where they are none or too many."""
    if start == stop or stop - start > _DIGITS:
        return -1
    value = 0
    for at in range(start, stop):
        if data[at] < _ZERO or data[at] > _NINE:
            return -1
        value = value * 10 + np.int64(data[at] - _ZERO)
    return value


@compiled
def _status(data: Any, start: int, stop: int) -> int:
    """Return the status that follows ``HTTP/``, -1 where none does."""
    at = _skip_digits(data, start, stop)
    if at == start:
        return -1
    if at < stop and data[at] == _DOT:
        point = at + 1
        at = _skip_digits(data, point, stop)
        if at == point:
            return -1
    blank = at
    while at < stop and (data[at] == _SPACE or data[at] == _TAB):
        at += 1
    end = _skip_digits(data, at, stop)
    return _number(data, at, end) if at > blank and end - at == 3 else -1


@compiled
def _skip_digits(data: Any, at: int, stop: int) -> int:
    while at < stop and _ZERO <= data[at] <= _NINE:
        at += 1
    return at
