"""Ways to damage bytes: cut, flip, insert, remove, repeat, splice, and replace numbers and values."""

import random
import re
import struct
from collections.abc import Callable, Sequence

INTEGERS = (
    bytes(8),
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    struct.pack("<q", 1),
    struct.pack("<q", 1 << 40),
    struct.pack("<Q", 1 << 63),
    struct.pack("<q", -5),
)
VALUES = (
    b"null", b"-1", b"0", b"1e400", b"99999999999999999999", b'""', b"[]", b"{}", b"true", b'"../../etc/passwd"',
    b'"\\u0000"', b"NaN", b"Infinity", b'"\\ud800"', b"[[[[[[", b"0.5", b'"a"', b'"' + b"A" * 300 + b'"', b"&a [*a,*a]",
    b'"\\u001b[31m"', b"10000000000000000",
)  # fmt: skip
VALUE = re.compile(rb'-?\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"|true|false|null|\[\]|\{\}')
SEARCHED = 20_000

Mutation = Callable[[bytes, random.Random, Sequence[bytes]], bytes]


def damage(content: bytes, chance: random.Random, others: Sequence[bytes], ways: Sequence[Mutation]) -> bytes:
    """Damage bytes in one to five ways; the result differs from the content."""
    while True:
        damaged = content
        for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
            damaged = chance.choice(ways)(damaged, chance, others)
        if damaged != content:
            return damaged


def flip_bit(content: bytes, chance: random.Random) -> bytes:
    """Flip one bit."""
    place, bit = divmod(chance.randrange(len(content) * 8), 8)
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def _span(content: bytes, chance: random.Random, sizes: Sequence[int]) -> tuple[int, int]:
    start = chance.randrange(len(content) + 1)
    return start, min(len(content), start + chance.choice(sizes))


def cut(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] if chance.random() < 0.6 else content[place:]


def flip(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    return flip_bit(content, chance) if content else b"\0"


def replace_byte(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]


def insert(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] + chance.randbytes(chance.choice((1, 4, 16, 300))) + content[place:]


def remove(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    start, stop = _span(content, chance, (1, 4, 40, 400))
    return content[:start] + content[stop:]


def repeat(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    start, stop = _span(content, chance, (4, 40, 400))
    return content[:stop] + content[start:]


def splice(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)
    start, stop = _span(other, chance, (8, 100, 2_000))
    place = chance.randrange(len(content) + 1)
    return content[:place] + other[start:stop] + content[place:]


def clear(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    start, stop = _span(content, chance, (4, 40, 400))
    return content[:start] + bytes(stop - start) + content[stop:]


def overwrite_integer(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    place, number = chance.randrange(len(content) + 1), chance.choice(INTEGERS)
    return content[:place] + number + content[place + len(number) :]


def replace_value(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    """Replace a number, string or constant of a text by one that readers do not expect."""
    start = max(0, chance.randrange(len(content) + 1) - 40)
    found = list(VALUE.finditer(content, start, start + 400)) or list(VALUE.finditer(content[:SEARCHED]))
    if not found:
        return content + chance.choice(VALUES)
    chosen = chance.choice(found)
    return content[: chosen.start()] + chance.choice(VALUES) + content[chosen.end() :]


def nest(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    """Put brackets, thousands of them at times, before a value."""
    place = chance.randrange(len(content) + 1)
    bracket = chance.choice((b"[", b'{"a":', b"- ", b"{a: ", b"[["))
    return content[:place] + bracket * chance.choice((1, 3, 50, 5_000)) + content[place:]


ANY: tuple[Mutation, ...] = (cut, flip, flip, replace_byte, insert, remove, repeat, splice, clear)
BINARY: tuple[Mutation, ...] = (*ANY, overwrite_integer)
TEXT: tuple[Mutation, ...] = (*ANY, replace_value, replace_value, replace_value, nest)
