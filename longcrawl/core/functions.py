"""Functions of a user as stages of a crawl, so that what they drop and change is in its ledgers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from longcrawl.core.batches import Check, with_column
from longcrawl.core.stages import Judge, Rewrite
from longcrawl.errors import StageError
from longcrawl.printable import one_line

Row = Mapping[str, Any]


class _OfFunction:
    """What both kinds share: a name of their own, and a function in place of settings."""

    name: str
    function: Callable[[Row], Any]

    def __init__(self, function: Callable[[Row], Any], name: str | None = None) -> None:
        self.function, self.name = function, name or str(getattr(function, "__name__", ""))
        if not self.name.isidentifier():
            raise StageError(f"the ledger needs a name for {function!r}: add one, name='only_poems'")

    def settings(self) -> dict[str, Any]:
        """Return the function's own name: what a function does cannot be written as settings."""
        return {"function": getattr(self.function, "__qualname__", repr(self.function))}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as function and name; `datasets` caches by the function's code."""
        return type(self), (self.function, self.name)


class FilterFunction(_OfFunction, Judge):
    """Keeps the documents for which a function of a row returns a true value."""

    def checks(self, table: pa.Table) -> Sequence[Check]:
        """Ask the function about every row."""
        passes = pa.array([bool(self.function(row)) for row in table.to_pylist()], pa.bool_())
        return [Check(self.name, pa.nulls(table.num_rows, pa.float64()), passes)]


class MapFunction(_OfFunction, Rewrite):
    """Sets the columns that a function of a row returns."""

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Ask the function about every row; columns keep their types."""
        made = [self._columns_of(row) for row in table.to_pylist()]
        names = dict.fromkeys(name for columns in made for name in columns)
        for name in names:
            known = table.schema.field(name).type if name in table.column_names else None
            old = table[name].to_pylist() if known is not None else [None] * len(made)
            values = [columns.get(name, before) for columns, before in zip(made, old, strict=True)]
            table = with_column(table, name, pa.array(values, known))
        return table

    def _columns_of(self, row: Row) -> Mapping[str, Any]:
        made = self.function(row)
        if isinstance(made, str):
            made = {"text": made}
        if not isinstance(made, Mapping):
            raise StageError(f"{self.name} returns {type(made).__name__}: return a text, or columns, {{'text': …}}")
        if made.get("id", row.get("id")) != row.get("id"):
            raise StageError(
                f"{self.name} changes the id {row.get('id')!r}, by which ledgers know a document: leave it"
            )
        return made


@contextmanager
def columns_of_one_type(name: str, rows: int) -> Iterator[None]:
    """Raise a sentence where a function makes a column of several types; the first rows decide which it has.

    Raises:
        StageError: a column has values of several types, or None in the first ``rows`` rows, and others later.
    """
    try:
        yield
    except (TypeError, pa.ArrowInvalid) as wrong:  # of `datasets`, and of pyarrow
        if not str(wrong).startswith(("Couldn't write column", "Could not convert")):
            raise
        reason = one_line(wrong).partition(". ")[0]
        raise StageError(
            f"{name} makes a column of several types ({reason}): return one type, and in the first {rows} rows a "
            "value that is not None"
        ) from wrong
