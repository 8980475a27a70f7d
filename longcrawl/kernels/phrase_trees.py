"""Kernels that decode UTF-8 and walk phrase trees, shared by the stages that edit lines."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import SPACE
from longcrawl.kernels.lookup import compiled, mixed
from longcrawl.kernels.phrases import PhraseTree

__all__ = ["OTHERS", "SPACE_BAR", "copy", "decode", "enter", "skip_space", "step"]

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]

_U = np.uint64
SPACE_BAR = np.uint32(0x20)
OTHERS = np.uint32(128)
"""In place of a character that is not ASCII, in what tells whether a phrase begins with one."""


@compiled
def decode(data: Bytes, at: int) -> tuple[np.uint32, int]:
    """Return the code point that starts at a byte, and where the next one starts."""
    point = np.uint32(data[at])
    if point < 0x80:
        return point, at + 1
    if point < 0xE0:
        return np.uint32((point & 0x1F) << 6 | data[at + 1] & 0x3F), at + 2
    if point < 0xF0:
        return np.uint32((point & 0xF) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F), at + 3
    high = (point & 7) << 18 | (data[at + 1] & 0x3F) << 12
    return np.uint32(high | (data[at + 2] & 0x3F) << 6 | data[at + 3] & 0x3F), at + 4


@compiled
def skip_space(data: Bytes, at: int, stop: int, flag_of: Flags) -> int:
    """Return the first byte from ``at`` on that is no white space, ``stop`` where there is none."""
    while at < stop:
        point, after = decode(data, at)
        if not flag_of[point] & SPACE:
            break
        at = after
    return at


@compiled
def copy(data: Bytes, start: int, stop: int, out: Bytes, place: int) -> int:
    """Copy bytes to ``place``; gives where they end."""
    source, target = data[start:stop], out[place : place + stop - start]
    # A count from 0 is an index without a sign, and the loop a copy of blocks.
    for at in range(len(source)):
        target[at] = source[at]
    return place + stop - start


@compiled
def _key(node: int, point: np.uint32) -> np.uint64:
    return (_U(node) << _U(21) | _U(point)) + _U(1)


@compiled
def step(tree: PhraseTree, node: int, point: np.uint32) -> int:
    """Return the node that a character leads to, -1 where there is none."""
    key, mask = _key(node, point), len(tree.keys) - 1
    at = mixed(key) & mask
    while tree.keys[at] != 0:
        if tree.keys[at] == key:
            return tree.children[at]
        at = (at + 1) & mask
    return -1


@compiled
def enter(tree: PhraseTree, nodes: Any, points: Any, children: Any) -> None:
    """Enter all edges of a tree into its table of zeros."""
    mask = len(tree.keys) - 1
    for edge in range(len(nodes)):
        key = _key(nodes[edge], points[edge])
        at = mixed(key) & mask
        while tree.keys[at] != 0:
            at = (at + 1) & mask
        tree.keys[at] = key
        tree.children[at] = children[edge]
