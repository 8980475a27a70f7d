"""Which of some languages each document is in."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import column
from longcrawl.errors import StageError
from longcrawl.text.languages import Languages, find_language

__all__ = ["places_of_languages"]


def places_of_languages(
    table: pa.Table, known: Sequence[str], language: str | None, needed_by: str
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return each document's place among the known languages, -1 for another or none, and what it is said to be in.

    All documents are in ``language``; None takes the column ``language``. A name need not be the known one, see
    ``find_language``.

    Raises:
        StageError: the column is needed and not there, or holds no strings.

    """
    spoken = column(table, "language", needed_by) if language is None else pa.repeat(language, table.num_rows)
    try:
        spoken = pc.cast(spoken, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise StageError(f"{needed_by} needs a column 'language' of strings, this one is {spoken.type}") from wrong
    encoded = pc.dictionary_encode(spoken)
    entries: Languages = {name: {} for name in known}
    found = [find_language(entries, name) for name in encoded.dictionary.to_pylist()]
    places = np.array([*(-1 if name is None else known.index(name) for name in found), -1], np.int32)
    indices = pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)
    return places[indices], spoken
