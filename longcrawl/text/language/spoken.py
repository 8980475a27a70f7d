"""The column ``language``: how many documents each language has, and which of some languages each document is in."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import column
from longcrawl.errors import StageError
from longcrawl.text.language.codes import language_code
from longcrawl.text.languages import Languages, find_language
from longcrawl.text.values import tables


def places_of_languages(
    table: pa.Table, known: Sequence[str], language: str | None, needed_by: str
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return each document's place among the known languages, -1 for another or none, and the name of its language.

    All documents are in ``language``; None takes the column ``language``. A name need not be the known one, see
    ``find_language``.

    Raises:
        StageError: the column is needed and not there, or holds no strings.
    """
    spoken = _names(table, needed_by) if language is None else pa.repeat(language, table.num_rows)
    encoded = pc.dictionary_encode(spoken)
    entries: Languages = {name: {} for name in known}
    found = [find_language(entries, name) for name in encoded.dictionary.to_pylist()]
    places = np.array([*(-1 if name is None else known.index(name) for name in found), -1], np.int32)
    indices = pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)
    return places[indices], spoken


def _names(table: pa.Table, needed_by: str) -> pa.Array:
    names = column(table, "language", needed_by)
    try:
        return pc.cast(names, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise StageError(f"{needed_by} needs a column 'language' of strings, this one is {names.type}") from wrong


def language_shares(documents: Any) -> pa.Table:
    """Count the documents of each language, as appendix D of RefinedWeb does.

    The table has ``language`` (string), ``documents`` (int64) and ``share`` of all documents (float64), the largest
    first, equal ones by name. en, eng, en-GB and eng_Latn are one language; null are documents that have none.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table, with a column
            ``language``, such as ``IdentifyLanguage`` fills.

    Raises:
        StageError: there is no column ``language``, or it holds no strings.

    >>> language_shares(pa.table({"language": ["en", "de", "eng_Latn", None]})).to_pylist()[0]
    {'language': 'en', 'documents': 2, 'share': 0.5}
    """
    counts: Counter[str | None] = Counter()
    for table in tables(documents):
        for each in pc.value_counts(_names(table, "language_shares")).to_pylist():
            counts[each["values"] and language_code(each["values"])] += each["counts"]
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0] is None, pair[0]))
    total = max(counts.total(), 1)
    columns = [
        pa.array([name for name, _ in found], pa.string()),
        pa.array([count for _, count in found], pa.int64()),
        pa.array([count / total for _, count in found], pa.float64()),
    ]
    return pa.table(columns, names=["language", "documents", "share"])
