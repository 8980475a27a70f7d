"""Patterns of lines that a crawl has on many pages, proposed for :class:`longcrawl.text.LineCorrections`.

What extraction leaves behind differs between crawls: buttons, menus, notices. The shipped patterns are those that
RefinedWeb's paper names; these are counted in one's own documents, to be read by a person before they are used.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from longcrawl.core.addresses import url_hosts
from longcrawl.core.batches import column
from longcrawl.display.table import Column, Table, Tabular
from longcrawl.errors import StageError
from longcrawl.kernels.texts import valid_texts
from longcrawl.storage.files import check_target, make_folder, write_text
from longcrawl.text.refinedweb.line_corrections import LineCorrections
from longcrawl.text.values import tables

LONGEST = 100
"""Characters of a line that is counted."""
HELD = 1_000_000
"""Different lines in memory; of more, those go that one document had so far."""
SITES = 3
"""So many sites of a line are told apart."""
_SHOWN = 30
_SCALES = ("", "k", "m", "b")

PROPOSED_SCHEMA = pa.schema(
    [("pattern", pa.string()), ("list", pa.string()), ("documents", pa.int64()), ("sites", pa.int64())]
)
"""One row per pattern; ``sites`` is at most ``SITES``, and null where documents have no URL."""


@dataclass(frozen=True, repr=False)
class ProposedLines(Tabular):
    """Lines that many documents have; prints as a table, most first."""

    table: pa.Table
    """``PROPOSED_SCHEMA``, sorted by documents."""
    documents: int
    """How many were looked at."""

    def tables(self) -> tuple[Table]:
        """Return the ``_SHOWN`` most frequent as a table."""
        shown, whole = self.table.slice(0, _SHOWN).to_pylist(), max(self.documents, 1)
        rows = [
            [row["pattern"], row["list"], row["documents"], row["documents"] / whole, _sites(row["sites"])]
            for row in shown
        ]
        columns = [Column("line"), Column("list"), Column("documents", "count"), Column("of all", "share")]
        columns.append(Column("sites"))
        more = self.table.num_rows - _SHOWN
        about = f"{self.table.num_rows:,} lines that several of {self.documents:,} documents have"
        return (Table(columns, rows, about, [f"and {more:,} more, in .table"] if more > 0 else []),)

    def save(self, path: str | Path, language: str = "en") -> None:
        """Write a new YAML file that ``LineCorrections.patterns`` takes; delete what is wrong, then use it.

        Args:
            path: the file.
            language: of these documents.

        Raises:
            StageError: something is there already, or it cannot be written.
        """
        target = Path(path)
        check_new_patterns(target)
        lines = [
            f"# Lines of {self.documents:,} documents, with how many had each. Read them before you use them.",
            f"default: {json.dumps(language)}",
            "languages:",
            f"  {json.dumps(language)}:",
        ]
        for kind in ("counters", "lines"):
            chosen = [row for row in self.table.to_pylist() if row["list"] == kind]
            lines.append(f"    {kind}:{'' if chosen else ' []'}")
            lines += [f"      - {_phrase(row)}  # {row['documents']:,} documents" for row in chosen]
        write_text(target, "\n".join(lines) + "\n")


def check_new_patterns(path: Path) -> None:
    """Raise StageError where a file of patterns cannot be written."""
    check_target(path, StageError, "remove it, or choose another --out", example="lines.yaml")
    make_folder(path.parent, StageError, "choose another --out")


def propose_lines(
    documents: Any,
    *,
    min_documents: int | None = None,
    max_words: int = 10,
    most: int = 500,
    patterns: str | None = "refinedweb",
) -> ProposedLines:
    r"""Return the short lines that most documents have, as patterns for lines.

    Lines are compared in lower case, with single spaces, and with # for a number at the beginning. A line counts once
    in a document. Left out are lines that ``LineCorrections`` discards or edits already, those without a letter, and
    of documents with URLs those that one site alone has.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table with a column ``text``.
        min_documents: leave out what fewer documents have. None: 3, or a thousandth of all if that is more.
        max_words: of a line.
        most: how many to return.
        patterns: what is used already, as ``LineCorrections.patterns``; None for nothing.

    Raises:
        StageError: there is no column ``text``, or these are no documents.

    >>> texts = [f"Story {n} is told.\nShare this\n{n} people like it" for n in range(5)]
    >>> propose_lines(pa.table({"text": texts})).table["pattern"].to_pylist()
    ['# people like it', 'share this']
    """
    used = LineCorrections(patterns=patterns, language="en", on_unknown_language="default", max_removed_words=None)
    counts: defaultdict[str, int] = defaultdict(int)
    sites: defaultdict[str, set[str]] = defaultdict(set)
    total, has_urls = 0, False
    for table in tables(documents):
        column(table, "text", "lines")
        corrected = used.edit(table)[0]
        hosts = url_hosts(table["url"]).to_pylist() if "url" in table.column_names else [None] * table.num_rows
        has_urls |= any(host is not None for host in hosts)
        for text, host in zip(valid_texts(column(corrected, "text", "lines"), "lines"), hosts, strict=True):
            for line in set(_short_lines(text.as_py() or "", max_words)):
                counts[line] += 1
                if host is not None and len(sites[line]) < SITES:
                    sites[line].add(host)
        total += table.num_rows
        if len(counts) > HELD:
            counts = defaultdict(int, {line: count for line, count in counts.items() if count > 1})
            sites = defaultdict(set, {line: sites[line] for line in counts if line in sites})
    least = max(3, math.ceil(total / 1000)) if min_documents is None else min_documents
    frequent = [line for line, count in counts.items() if count >= least and (not has_urls or len(sites[line]) > 1)]
    chosen = sorted(frequent, key=lambda line: (-counts[line], line))[:most]
    columns = [chosen, list(map(_list, chosen)), [counts[line] for line in chosen]]
    named = [len(sites[line]) if has_urls else None for line in chosen]
    return ProposedLines(pa.table([*columns, named], schema=PROPOSED_SCHEMA), total)


def _short_lines(text: str, max_words: int) -> Iterator[str]:
    """Yield the short lines of a text that have a letter, in the form in which they are compared."""
    for line in text.split("\n"):
        words = line.split(None, max_words) if len(line) <= 2 * LONGEST else []
        if not 0 < len(words) <= max_words:
            continue
        if _is_number(words[0]):
            words[0] = "#"
        compared = " ".join(words).lower()
        if len(compared) <= LONGEST and any(map(str.isalpha, compared)):
            yield compared


def _is_number(word: str) -> bool:
    """Whether a word is a number such as 3, 1,234 or 1.2K+."""
    return word[:1].isdigit() and word.lower().strip("0123456789.,+") in _SCALES


def _list(line: str) -> Literal["counters", "lines"]:
    words = line.split(" ")
    return "counters" if words[0] == "#" and all(map(str.isalpha, words[1:])) else "lines"


def _phrase(row: dict[str, Any]) -> str:
    """Return a pattern as a file of patterns spells it, quoted."""
    pattern: str = row["pattern"]
    return json.dumps(pattern.removeprefix("# ") if row["list"] == "counters" else pattern, ensure_ascii=False)


def _sites(count: int | None) -> str:
    return "" if count is None else f"{count} or more" if count == SITES else f"{count}"
