"""Plans as tables for people."""

from collections.abc import Callable, Iterator
from math import floor, inf, log10
from typing import TYPE_CHECKING

from longcrawl.display.table import Column, Table
from longcrawl.plan.estimates import Estimate

if TYPE_CHECKING:
    from longcrawl.plan.run_plan import Plan

__all__ = ["amount", "duration", "plan_table", "size"]

HEAD = ("stage", "documents", "characters", "time of a core", "disk meanwhile")
UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def plan_table(plan: "Plan") -> Table:
    """Return a row for each stage, and what the plan comes to."""
    columns = [Column(name, "count" if place else "text") for place, name in enumerate(HEAD)]
    return Table(columns, list(_cells(plan)), notes=["", *_words(plan)])


def amount(number: float) -> str:
    """Write a count with three digits that count.

    >>> amount(1234567), amount(87)
    ('1,230,000', '87')
    """
    if number == inf:
        return "?"
    digits = max(floor(log10(number)) - 2, 0) if number >= 1 else 0
    return f"{round(number / 10**digits) * 10**digits:,}"


def size(number: float) -> str:
    """Write bytes.

    >>> size(123_456_789)
    '123 MB'
    """
    if number == inf:
        return "?"
    unit = 0
    while number >= 1000 and unit < len(UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {UNITS[unit]}"


def duration(seconds: float) -> str:
    """Write seconds as hours, or as what is smaller.

    >>> duration(7200), duration(90), duration(2)
    ('2 h', '1.5 min', '2 s')
    """
    if seconds == inf:
        return "?"
    for name, unit in (("h", 3600), ("min", 60)):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s"


def _cells(plan: "Plan") -> Iterator[list[str]]:
    for row in plan.rows:
        letters = "" if row.characters is None else _interval(row.characters, amount)
        disk = _interval(row.disk, size) if row.disk.high else ""
        yield [row.stage, _interval(row.documents, amount), letters, _interval(row.seconds, duration), disk]


def _words(plan: "Plan") -> Iterator[str]:
    yield f"{plan.recipe} from {plan.sample}; intervals hold the truth about 19 times of 20"
    if plan.tokens is not None:
        yield f"tokens: {_interval(plan.tokens, amount)}"
    if plan.written is None:
        last = plan.rows[-1]
        yield (
            f"nothing of the sample is left after {last.stage!r}, so what comes after is not known: at most "
            f"{amount(last.documents.high)} documents; draw more with --documents and --parts"
        )
    else:
        yield f"output: {_interval(plan.written, size)}"
    yield f"all stages: {_interval(plan.seconds, duration)} of a core"
    yield f"disk at its fullest: {_interval(plan.disk, size)}"


def _interval(estimate: Estimate, show: Callable[[float], str]) -> str:
    low, value, high = show(estimate.low), show(estimate.value), show(estimate.high)
    return value if low == value == high else f"{value} ({low} to {high})"
