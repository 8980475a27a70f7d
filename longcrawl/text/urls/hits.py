"""Which domains and words drop how many documents: where to look for false positives."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import column, first_failure
from longcrawl.display.table import Column, Table, Tabular
from longcrawl.errors import StageError
from longcrawl.text.urls.filter import UrlFilter, UrlMatch
from longcrawl.text.values import tables

HITS_SCHEMA = pa.schema(
    [
        ("rule", pa.string()),
        ("matched", pa.string()),
        ("domain", pa.string()),
        ("categories", pa.list_(pa.string())),
        ("documents", pa.int64()),
        ("example", pa.string()),
    ]
)
"""As :class:`longcrawl.text.urls.filter.UrlMatch`, with how many documents it removed and the first URL of them."""

_BATCH = 5000
_SHOWN = 20
_TITLES = ("documents", "rule", "matched", "domain", "categories", "example")


@dataclass(frozen=True, repr=False)
class UrlHits(Tabular):
    """What a URL filter dropped, the most frequent first; prints as a table."""

    table: pa.Table
    """``HITS_SCHEMA``, sorted by documents; of domains and words with as few as were asked for at least."""
    documents: int
    """How many were looked at."""
    dropped: int
    """How many of them leave, those that the table leaves out among them."""

    def tables(self) -> tuple[Table]:
        """Return the ``_SHOWN`` most frequent as a table."""
        found = self.table.slice(0, _SHOWN).to_pylist()
        rows = [[", ".join(row[name]) if name == "categories" else row[name] for name in _TITLES] for row in found]
        more = self.table.num_rows - _SHOWN
        about = f"{self.dropped:,} of {self.documents:,} documents leave"
        columns = [Column(name, "count" if name == "documents" else "text") for name in _TITLES]
        return (Table(columns, rows, about, [f"and {more:,} more, in .table"] if more > 0 else []),)


def url_hits(documents: Any, stage: UrlFilter | None = None, min_documents: int = 1) -> UrlHits:
    """Count the documents that a URL filter drops by what drops them: a listed domain, an address, or words of a host.

    A document counts once, by the rule by which it leaves. RefinedWeb looked at every domain that dropped more than
    4,000 of 832 million pages (``min_documents=4001``), and took about a hundred benign ones off the list: these go
    into ``UrlFilter.allowed_domains`` or ``allow_list``.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table with a column ``url``.
        stage: the filter. None: ``documents`` is a crawl that has passed one, and what was removed there is counted.
        min_documents: leave out what drops fewer.

    Raises:
        StageError: there is no filter, or no column ``url``.

    >>> urls = ["http://a.xxx-b.example/", "http://a.xxx-b.example/2", "http://plain.example/"]
    >>> print(url_hits(pa.table({"url": urls}), UrlFilter()))
    2 of 3 documents leave
    documents  rule       matched  domain           categories  example
            2  hard_word  xxx      a.xxx-b.example              http://a.xxx-b.example/
    """
    if stage is not None:
        return count_hits(tables(documents, _BATCH), stage, min_documents)
    steps = getattr(documents, "steps", None)
    if steps is None:
        raise StageError("url_hits needs a filter for documents that are no crawl: url_hits(documents, UrlFilter(…))")
    labels = [row.stage for row in documents.funnel]
    passed = [(label, step) for label, step in zip(labels, steps, strict=True) if isinstance(step, UrlFilter)]
    if not passed:
        raise StageError("this crawl has not passed url_filter; name a filter: url_hits(crawl, UrlFilter(…))")
    label, step = passed[0]
    came = next(row.documents_in for row in documents.funnel if row.stage == label)
    found = count_hits(tables(documents.removed(label).select_columns("url"), _BATCH), step, min_documents)
    return UrlHits(found.table, came, found.dropped)


def count_hits(batches: Iterable[pa.Table], stage: UrlFilter, min_documents: int = 1) -> UrlHits:
    """Count what a filter drops of tables with a column ``url``, see :func:`url_hits`."""
    counts: Counter[UrlMatch] = Counter()
    examples: dict[UrlMatch, str | None] = {}
    documents = 0
    for batch in batches:
        table = pa.table({"url": column(batch, "url", stage.name)})
        documents += table.num_rows
        dropped = table.filter(pc.is_valid(first_failure(table.num_rows, stage.checks(table))["rule"]))
        for url, matches in zip(dropped["url"].to_pylist(), stage.matches(dropped), strict=True):
            counts[matches[0]] += 1
            examples.setdefault(matches[0], url)
    frequent = [match for match, count in counts.most_common() if count >= min_documents]
    frequent.sort(key=lambda match: (-counts[match], match))
    rows = [
        {**named._asdict(), "documents": counts[match], "example": examples[match]}
        for match, named in zip(frequent, stage.with_categories(frequent), strict=True)
    ]
    return UrlHits(pa.Table.from_pylist(rows, schema=HITS_SCHEMA), documents, counts.total())
