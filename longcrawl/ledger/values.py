"""By which values of a column the documents fell apart while a run went on, such as the languages of a crawl."""

from longcrawl.display.table import ShareRow, Table, share_table
from longcrawl.ledger.funnel import Funnel

__all__ = ["value_tables"]

TOLD = 20
"""Values that a table names; the funnel has all."""


def value_tables(funnel: Funnel) -> list[Table]:
    """Return a table for each column that a stage has counted: RefinedWeb's Appendix D, for languages.

    A column in which no document has a value has none.

    >>> from longcrawl.ledger.funnel import FunnelRow
    >>> row = FunnelRow("identify_language", 5, 4, values={"language": {"en": 3, "de": 1}})
    >>> print(value_tables(Funnel("warc", 5, (row,)))[0])
    language     documents    share
    en                   3   75.0 %  ████████████████████████
    de                   1   25.0 %  ████████
    after identify_language; values of language: 2
    """
    return [
        share_table(
            column,
            [ShareRow(name or "none", count, count / row.documents_out) for name, count in list(counts.items())[:TOLD]],
            f"after {row.stage}; values of {column}: {len(counts.keys() - {''}):,}",
        )
        for row in funnel
        for column, counts in row.values.items()
        if any(counts)
    ]
