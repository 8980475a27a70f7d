"""Text from documents in Markdown: what stands in an id, a URL or a reason is shown, and never means anything."""

import re
from collections.abc import Iterable, Sequence

MOST_LETTERS = 200

_MEANS_SOMETHING = re.compile(r"([\\`*\[\]|~])")


def code(text: str, most: int = MOST_LETTERS) -> str:
    r"""Return a code span, also for a cell of a table; what cannot be printed becomes "?".

    >>> print(code("a|b"), code("a`b"))
    `a\|b` ``a`b``
    """
    shown = _printable(text, most)
    ticks = "`" * (_longest_run(shown) + 1)
    space = " " if shown[:1] in ("`", " ", "") or shown[-1:] in ("`", " ") else ""
    return f"{ticks}{space}{shown}{space}{ticks}".replace("|", r"\|")


def plain(text: str) -> str:
    r"""Return a sentence as it stands: no emphasis, links, cells or HTML in it.

    >>> print(plain("<b> | [x](y)"))
    &lt;b&gt; \| \[x\](y)
    """
    shown = _printable(" ".join(text.split()), 2_000)
    escaped = _MEANS_SOMETHING.sub(r"\\\1", shown.replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def fenced(text: str, language: str = "") -> str:
    """Return a block of code, whose fence is longer than any in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """Return a table; the last ``numbers`` columns are aligned to the right. Cells are Markdown already."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])


def _printable(text: str, most: int) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
