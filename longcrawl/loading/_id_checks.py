"""Whether the ids of a batch are those of a vocabulary."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError

__all__ = ["check_ids"]


def check_ids(ids: npt.NDArray[Any], vocabulary_size: int, where: Callable[[int, int], str]) -> None:
    """Compare ids with a vocabulary, at the moment at which they would go into a model.

    Args:
        ids: integers [rows, length].
        vocabulary_size: ids are below it.
        where: says, for a row and a place in it, where the id is from.

    Raises:
        CorruptionError: one is not below it.

    """
    # As unsigned numbers, so that an id that did not fit is none of the vocabulary.
    unsigned = ids.view(f"u{ids.itemsize}")
    if unsigned.size and int(unsigned.max()) >= vocabulary_size:
        row, place = (int(each) for each in np.argwhere(unsigned >= vocabulary_size)[0])
        raise CorruptionError(
            f"{where(row, place)} has id {int(unsigned[row, place]):,}, the vocabulary has {vocabulary_size:,}: check "
            "vocabulary_size, and that the data are of this tokenizer"
        )
