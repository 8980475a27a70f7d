"""Which texts are written in capitals, as a numba kernel."""

# Inside the kernel ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, operator, arg-type"

import string
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import NUMERIC, UPPER, WORD
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.utf8 import decode

CHEROKEE = (0x13A0, 0x13F5)
"""Letters that Unicode calls capitals, though texts without capitals are written in them."""

_CAPITAL, _OTHER = 1, 2
_ASCII = np.array(
    [
        _CAPITAL * (chr(byte) in string.ascii_uppercase) + _OTHER * (chr(byte) in string.ascii_lowercase)
        for byte in range(128)
    ],
    np.uint8,
)
_AT_ONCE = 64
"""Bytes after which to look whether the rest can change the result."""


@compiled
def _kind(point: int, flags: int) -> int:
    if flags & UPPER and not CHEROKEE[0] <= point <= CHEROKEE[1]:
        return _CAPITAL
    return _OTHER if flags & WORD and not flags & NUMERIC else 0


@compiled
def find_capitals(data: npt.NDArray[np.uint8], offsets: Any, flag_of: Any, found: Any) -> None:
    """Write to ``found``, bool [texts], whether more than half of a text's letters, of all scripts, are capitals."""
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        capitals, others = 0, 0
        while at < end and others - capitals <= end - at:
            stop = min(at + _AT_ONCE, end)
            while at < stop:
                if data[at] < 128:
                    kind = np.int64(_ASCII[data[at]])
                    at += 1
                else:
                    point, at = decode(data, at)
                    kind = _kind(point, flag_of[point])
                capitals += kind & _CAPITAL
                others += kind >> 1
        found[text] = capitals > others
