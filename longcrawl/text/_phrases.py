"""Phrases as a tree that kernels walk along a text, code point by code point, in any case."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["PhraseTree", "lowered", "make_tree"]


class PhraseTree(NamedTuple):
    """Nodes and their edges; a node stands for the characters on the way to it, in lower case."""

    keys: npt.NDArray[np.uint64]
    """Shape (a power of two,): open addressing, node and code point of an edge, 0 where empty."""
    children: npt.NDArray[np.int32]
    """Where each of these edges leads."""
    kinds: npt.NDArray[np.uint8]
    """Shape (nodes,): the kinds of the phrases that end at a node, or-ed."""
    begins: npt.NDArray[np.bool_]
    """Shape (129,): whether an edge of any root takes this ASCII character; the last stands for all others."""
    pairs: npt.NDArray[np.bool_]
    """Shape (129, 129): whether a phrase can begin with this ASCII character and this byte of UTF-8, likewise."""


def make_tree(roots: int, phrases: Iterable[tuple[int, str, int]]) -> PhraseTree:
    """Make a tree of the root, the text and the kind of each phrase; nodes 0 to ``roots`` - 1 are the roots."""
    from longcrawl.text._phrase_kernels import enter

    edges: dict[tuple[int, str], int] = {}
    kinds = [0] * roots
    for root, phrase, kind in phrases:
        node = root
        for character in lowered(phrase):
            node = edges.setdefault((node, character), len(kinds))
            kinds += [0] * (node == len(kinds))
        kinds[node] |= kind
    spelled = [(node, other, child) for (node, lower), child in edges.items() for other in _spellings(lower)]
    nodes, points, children = np.array(spelled, np.int64).reshape(-1, 3).T
    size = 1 << (2 * len(spelled)).bit_length()
    begins, pairs = _beginnings(roots, spelled, kinds)
    tree = PhraseTree(np.zeros(size, np.uint64), np.zeros(size, np.int32), np.array(kinds, np.uint8), begins, pairs)
    enter(tree, np.ascontiguousarray(nodes), np.ascontiguousarray(points), np.ascontiguousarray(children))
    return tree


def _beginnings(
    roots: int, edges: list[tuple[int, int, int]], kinds: list[int]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    begins, pairs = np.zeros(129, np.bool_), np.zeros((129, 129), np.bool_)
    seconds: dict[int, list[int]] = {}
    for node, point, _ in edges:
        seconds.setdefault(node, []).append(min(point, 128))
    for node, point, child in edges:
        if node < roots:
            begins[min(point, 128)] = True
            # A phrase of one character can have anything after it, or nothing.
            pairs[min(point, 128), slice(None) if kinds[child] else seconds[child]] = True
    return begins, pairs


def lowered(phrase: str) -> str:
    """Give each character in lower case by itself; the few whose lower case is two characters stay as they are."""
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in phrase)


def _spellings(lower: str) -> list[int]:
    return [*_capitals().get(lower, []), ord(lower)]


@lru_cache(maxsize=1)
def _capitals() -> dict[str, list[int]]:
    """Give the characters that have a given lower case, but for itself: K and the Kelvin sign for k."""
    found: dict[str, list[int]] = {}
    for point in range(0x110000):
        lower = chr(point).lower()
        if len(lower) == 1 and lower != chr(point):
            found.setdefault(lower, []).append(point)
    return found
