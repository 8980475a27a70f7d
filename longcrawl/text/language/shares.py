"""How much of a dataset is in which language."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import column
from longcrawl.errors import StageError
from longcrawl.text.language.codes import language_code
from longcrawl.text.values import tables

__all__ = ["language_shares"]


def language_shares(documents: Any) -> pa.Table:
    """Count the documents of each language, as appendix D of RefinedWeb does.

    Gives a table of ``language`` (string), ``documents`` (int64) and ``share`` of all documents (float64), the largest
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
        spoken = column(table, "language", "language_shares")
        try:
            names = pc.cast(spoken, pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
            raise StageError(f"language_shares needs a column 'language' of strings, got {spoken.type}") from wrong
        for each in pc.value_counts(names).to_pylist():
            counts[each["values"] and language_code(each["values"])] += each["counts"]
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0] is None, pair[0]))
    total = max(counts.total(), 1)
    columns = [
        pa.array([name for name, _ in found], pa.string()),
        pa.array([count for _, count in found], pa.int64()),
        pa.array([count / total for _, count in found], pa.float64()),
    ]
    return pa.table(columns, names=["language", "documents", "share"])
