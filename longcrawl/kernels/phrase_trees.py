"""Kernels that walk phrase trees."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import mixed
from longcrawl.kernels.phrases import PhraseTree

_U = np.uint64
OTHERS = np.uint32(128)
"""In place of a character that is not ASCII, in what tells whether a phrase begins with one."""


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
