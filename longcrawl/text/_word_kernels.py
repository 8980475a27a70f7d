"""Words of UTF-8 texts as RedPajama-V2 counts them, by a numba kernel."""

# Inside the kernel ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, operator, arg-type"

import string
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import SPACE
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.utf8 import decode

_BEGINS, _STAYS = 1, 2
"""What a character does to a word: white space neither, punctuation cannot begin one."""
_KINDS = np.full(128, _BEGINS | _STAYS, np.uint8)
_KINDS[[code for code in range(128) if chr(code) in string.punctuation]] = _STAYS
_KINDS[[code for code in range(128) if chr(code).isspace()]] = 0

_U = np.uint64


@compiled
def count_words(data: npt.NDArray[np.uint8], offsets: Any, flag_of: Any, counts: Any) -> None:
    """Write to ``counts``, float64 [documents], the words of each text; white space parts them."""
    for document in range(len(offsets) - 1):
        at, end = offsets[document], offsets[document + 1]
        words, inside = 0, 0
        while at < end:
            byte = data[_U(at)]
            if byte < len(_KINDS):
                kind = _KINDS[byte]
                at += 1
            else:
                point, at = decode(data, at)
                kind = 0 if flag_of[point] & SPACE else _BEGINS | _STAYS
            begins = kind & _BEGINS
            words += begins & ~inside
            inside = (inside | begins) & (kind >> 1)
        counts[document] = words
