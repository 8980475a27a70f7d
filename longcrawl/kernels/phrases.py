"""Phrase trees, matched along a text in any case."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.lookup import mixed


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
    sure: int
    """Characters of the shortest phrase, or 8."""
    places: npt.NDArray[np.uint8]
    """Shape (129,): bit n says whether a phrase can have this ASCII character as the n-th of its ``sure``, as above."""


def make_tree(roots: int, phrases: Iterable[tuple[int, str, int]]) -> PhraseTree:
    """Make a tree of the root, the text and the kind of each phrase; nodes 0 to ``roots`` - 1 are the roots."""
    given = list(phrases)
    edges: dict[tuple[int, str], int] = {}
    kinds = [0] * roots
    for root, phrase, kind in given:
        node = root
        for character in lowered(phrase):
            node = edges.setdefault((node, character), len(kinds))
            kinds += [0] * (node == len(kinds))
        kinds[node] |= kind
    spelled = [(node, other, child) for (node, lower), child in edges.items() for other in _spellings(lower)]
    nodes, points, children = np.array(spelled, np.int64).reshape(-1, 3).T
    size = 1 << (2 * len(spelled)).bit_length()
    begins, sure, places = _beginnings([lowered(phrase) for _, phrase, _ in given])
    tree = PhraseTree(
        np.zeros(size, np.uint64), np.zeros(size, np.int32), np.array(kinds, np.uint8), begins, sure, places
    )
    enter(tree, np.ascontiguousarray(nodes), np.ascontiguousarray(points), np.ascontiguousarray(children))
    return tree


def _beginnings(phrases: Sequence[str]) -> tuple[npt.NDArray[np.bool_], int, npt.NDArray[np.uint8]]:
    """Return which characters start a phrase, and where others stand among the first that every phrase has."""
    sure = max(1, min([8, *map(len, phrases)]))
    places = np.zeros(129, np.uint8)
    for phrase in phrases:
        for place, lower in enumerate(phrase[:sure]):
            for point in _spellings(lower):
                places[min(point, 128)] |= 1 << place
    return places & 1 != 0, sure, places


def lowered(phrase: str) -> str:
    """Return each character in lower case by itself; the few whose lower case is two characters stay as they are."""
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in phrase)


def _spellings(lower: str) -> list[int]:
    return [*_capitals().get(lower, []), ord(lower)]


@lru_cache(maxsize=1)
def _capitals() -> dict[str, list[int]]:
    """Return the characters that have a given lower case, but for itself: K and the Kelvin sign for k.

    All characters are lowered as one string, as each by itself takes ten times as long. Dotted I, the one whose lower
    case has two, is left out; a sigma that another letter follows is not a final one.
    """
    points = np.arange(0x110000, dtype="<u4")
    points = points[((points < 0xD800) | (points >= 0xE000)) & (points != ord("\u0130"))]
    lower = np.frombuffer(points.tobytes().decode("utf-32-le").lower().encode("utf-32-le"), "<u4")
    found: dict[str, list[int]] = {}
    for at in np.flatnonzero(points != lower).tolist():
        found.setdefault(chr(lower[at]), []).append(int(points[at]))
    return found


# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"


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
