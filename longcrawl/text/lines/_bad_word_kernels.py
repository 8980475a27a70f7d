"""Counting the listed words of texts over Arrow's string buffers."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import WORD
from longcrawl.kernels.lookup import compiled
from longcrawl.kernels.phrase_trees import OTHERS, decode, step
from longcrawl.kernels.phrases import PhraseTree

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]


@compiled
def count_listed(
    data: Bytes, offsets: Any, roots: Any, unspaced: Any, flag_of: Flags, tree: PhraseTree, counts: Any
) -> None:
    """Count the listed words in every document whose root is not negative.

    A word is flanked by characters that are of no word, but in languages that ``unspaced`` says write without spaces.
    """
    for document in range(len(offsets) - 1):
        at, end, root = offsets[document], offsets[document + 1], roots[document]
        inside = False
        while at < end and root >= 0:
            point, after = decode(data, at)
            if (unspaced[root] or not inside) and tree.begins[min(point, OTHERS)]:
                node, place = root, at
                while place < end:
                    other, place = decode(data, place)
                    node = step(tree, node, other)
                    if node < 0:
                        break
                    if tree.kinds[node]:
                        flanked = place == end or not flag_of[decode(data, place)[0]] & WORD
                        counts[document] += flanked or unspaced[root]
            inside = flag_of[point] & WORD != 0
            at = after
