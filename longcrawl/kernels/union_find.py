"""Union-find over numbered documents, as numba kernels.

Documents are numbered in the order of preference: of two, the smaller number is the one to keep. The root of a cluster
is its smallest number, so neither the order of bands nor that of links matters.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type"

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.lookup import compiled

__all__ = ["find_roots", "link", "root"]

Numbers = npt.NDArray[np.uint32]


@compiled
def root(parents: Numbers, number: int) -> int:
    """Return the root of a document's cluster."""
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = np.int64(parents[number])
    return number


@compiled
def link(parents: Numbers, one: int, other: int) -> None:
    """Make one cluster of those of two documents."""
    one, other = root(parents, one), root(parents, other)
    if one < other:
        parents[other] = one
    elif other < one:
        parents[one] = other


@compiled
def find_roots(parents: Numbers) -> None:
    """Let every document point at the root of its cluster."""
    for number in range(len(parents)):
        parents[number] = parents[parents[number]]  # roots are smaller, so they are final by now
