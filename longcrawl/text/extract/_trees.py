"""Regression trees, as a kernel adds them up."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import compiled

_U = np.uint64


class Trees(NamedTuple):
    """Regression trees, whose sum is what is looked for.

    A leaf leads to itself, so that a tree takes the same number of steps for every block: where it ends would be
    guessed wrong.
    """

    features: npt.NDArray[np.uint16]
    """Shape (nodes,): the column that a node asks about."""
    thresholds: npt.NDArray[np.float32]
    """Shape (nodes,): the largest value that goes left."""
    children: npt.NDArray[np.uint16]
    """Shape (2 * nodes,): the next node to the left and to the right of each."""
    values: npt.NDArray[np.float64]
    """Shape (nodes,): what a leaf adds."""
    roots: npt.NDArray[np.uint16]
    """Shape (trees,): the first node of each tree."""
    depths: npt.NDArray[np.int64]
    """Shape (trees,): steps to the leaf that is furthest from each."""


@compiled
def add_up(trees: Trees, row: Any) -> float:
    """Return the sum of all trees for a row of float32."""
    total = 0.0
    for number in range(len(trees.roots)):
        node = _U(trees.roots[number])
        for _ in range(trees.depths[number]):
            right = row[_U(trees.features[node])] > trees.thresholds[node]
            node = _U(trees.children[_U(2) * node + _U(right)])
        total += trees.values[node]
    return total


def make_trees(trees: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Trees:
    """Return all trees as one table of nodes.

    Args:
        trees: of each the ``features`` that its nodes ask about, ``thresholds``, ``children`` and ``leaves``; a child
            below 0 is the complement of a leaf's number.
        columns: the features in the order of their columns.
    """
    features, roots = list[int](), list[int]()
    thresholds, values, children = list[float](), list[float](), list[list[int]]()
    for tree in trees:
        root, inner, leaves = len(features), len(tree["features"]), len(tree["leaves"])
        roots.append(root)
        features += [*(columns.index(name) for name in tree["features"]), *[0] * leaves]
        thresholds += [*tree["thresholds"], *[0.0] * leaves]
        values += [*[0.0] * inner, *tree["leaves"]]
        following = [[root + (child if child >= 0 else inner + ~child) for child in pair] for pair in tree["children"]]
        children += [*following, *([root + inner + leaf] * 2 for leaf in range(leaves))]
    return Trees(
        np.array(features, np.uint16),
        _rounded_down(np.array(thresholds, np.float64)),
        np.array(children, np.uint16).ravel(),
        np.array(values, np.float64),
        np.array(roots, np.uint16),
        np.array([_depth(tree["children"], 0) for tree in trees], np.int64),
    )


def _rounded_down(thresholds: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the largest float32 not above each threshold: the same float32 are greater than it."""
    nearest = thresholds.astype(np.float32)
    return np.where(nearest > thresholds, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def _depth(children: Sequence[Sequence[int]], node: int) -> int:
    return 0 if node < 0 else 1 + max(_depth(children, child) for child in children[node])
