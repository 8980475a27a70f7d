"""Lengths of documents in tokens, as windows and compositions are planned from them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.errors import StageError

__all__ = ["checked_lengths"]


def checked_lengths(lengths: Any) -> npt.NDArray[np.int64]:
    """Return lengths in tokens as int64 [documents].

    Raises:
        StageError: they are not one whole number of 0 or more per document.

    """
    if isinstance(lengths, pa.Array | pa.ChunkedArray):
        if lengths.null_count:
            raise StageError(f"{lengths.null_count:,} documents have no length; write 0 for those without tokens")
        lengths = lengths.to_numpy(zero_copy_only=False) if isinstance(lengths, pa.Array) else lengths.to_numpy()
    if isinstance(lengths, Sequence) and any(isinstance(each, Sequence | np.ndarray) for each in lengths[:1]):
        raise StageError(
            f"lengths take one whole number of tokens per document, got a {type(lengths[0]).__name__} for the first: "
            "write [len(tokens) for tokens in documents]"
        )
    found = np.asarray(lengths)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise StageError(
            f"lengths take one whole number of tokens per document, got {found.dtype} of shape {found.shape}"
        )
    whole = np.ascontiguousarray(found, np.int64)
    if whole.size and whole.min() < 0:
        at = int(whole.argmin())
        raise StageError(f"document {at} has {whole[at]:,} tokens; a length is 0 or more")
    return whole
