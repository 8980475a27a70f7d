"""Where words begin in scripts that are written without spaces: Chinese, Japanese, Thai, Lao, Khmer and Burmese.

Segmented by ICU's dictionaries through ``icu4py`` (``pip install 'longcrawl[segmentation]'``).
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError

__all__ = ["load_segmenter", "word_breaks"]

Integers = npt.NDArray[np.int64]


def load_segmenter() -> Any:
    """Return ICU's word breaker.

    Raises:
        StageError: ``icu4py`` is not installed.

    """
    try:
        from icu4py.breakers import WordBreaker
    except ImportError as missing:
        raise StageError(
            "words='icu' needs the package icu4py: pip install 'longcrawl[segmentation]', or choose words='characters'"
        ) from missing
    return WordBreaker


def word_breaks(data: npt.NDArray[np.uint8], offsets: Integers, flags: npt.NDArray[np.uint16]) -> Integers:
    """Return the bytes, ascending, at which ICU begins a word inside the runs of scripts without spaces.

    Args:
        data: uint8 [bytes], valid UTF-8.
        offsets: int64 [documents + 1], where each document starts.
        flags: uint16 [0x110000], the flags of every code point.

    """
    from longcrawl.text.gopher._page_kernels import find_unspaced_runs

    breaker = load_segmenter()
    found = [np.zeros(0, np.int64)]
    for document in itertools.pairwise(offsets.tolist()):
        for begin, end in find_unspaced_runs(data, *document, flags):
            sizes = [len(word.encode()) for word in breaker(bytes(data[begin:end]).decode(), "und")]
            found.append(begin + np.cumsum(sizes, dtype=np.int64)[:-1])
    return np.concatenate(found)
