"""What each stage of a run leaves, in percent of the start and of the stage before, as RefinedWeb's Figure 2 shows it.

A recipe may name the figures of the work that it follows under ``reference``; they stand beside those of the run.
"""

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from longcrawl.core.fields import check_fields
from longcrawl.display.markdown import plain, table
from longcrawl.errors import RecipeError
from longcrawl.ledger.funnel import Funnel
from longcrawl.printable import as_lines

__all__ = ["Reference", "RemovalRates"]


@dataclass(frozen=True)
class Reference:
    """Figures that somebody has published: the part of a recipe under ``reference``.

    ``documents`` gives the share of all documents that is left after a stage, such as ``{language: 0.48}``.
    """

    name: str = ""
    documents: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, RecipeError)
        for stage, share in self.documents.items():
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
                raise RecipeError(f"documents.{stage} takes a share from 0 to 1, got {share!r}")
        if self.documents and not self.name:
            raise RecipeError("documents need a name: say whose figures they are")


@dataclass(frozen=True)
class RemovalRates:
    """A funnel in percent: a table in a terminal, in Markdown and in a notebook.

    >>> from longcrawl.ledger.funnel import FunnelRow
    >>> funnel = Funnel("warc", 200, (FunnelRow("language", 200, 100), FunnelRow("gopher_quality", 100, 25)))
    >>> print(RemovalRates(funnel, Reference("RefinedWeb", {"language": 0.48})))
    stage           documents    of all  of before  RefinedWeb
    warc                  200   100.0 %
    language              100    50.0 %     50.0 %      48.0 %
    gopher_quality         25    12.5 %     25.0 %
    """

    funnel: Funnel
    reference: Reference = field(default_factory=Reference)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "RemovalRates":
        """Take both from the manifest of a run."""
        return cls(Funnel.from_dict(manifest["funnel"]), Reference(**manifest["recipe"].get("reference", {})))

    @property
    def head(self) -> list[str]:
        """What the columns are called."""
        counts = ["documents", "of all", "of before"]
        if self.has_characters:
            counts += ["characters", "of all", "of before"]
        return ["stage", *counts, *([self.reference.name] if self.reference.documents else [])]

    def __iter__(self) -> Iterator[list[str]]:
        """Return the cells of each row, the input first."""
        funnel = self.funnel
        names = [funnel.source, *(row.stage for row in funnel)]
        documents = _rates([funnel.documents, *(row.documents_out for row in funnel)])
        characters = _rates([funnel.characters, *(row.characters for row in funnel)])
        for name, one, other in zip(names, documents, characters, strict=True):
            published = self.reference.documents.get(name)
            cells = [name, *one, *(other if self.has_characters else [])]
            yield cells + ([_percent(published)] if self.reference.documents else [])

    def __repr__(self) -> str:
        table = [self.head, *self]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = []
        for name, *cells in table:
            counts = "".join(f"{cell:>{max(width, 8) + 2}}" for cell, width in zip(cells, widths[1:], strict=True))
            lines.append(f"{name:<{widths[0]}}{counts}".rstrip())
        return as_lines(lines)

    def markdown(self) -> str:
        """Return the table as Markdown, as dataset cards hold it."""
        return table(
            [plain(name) for name in self.head], ([plain(cell) for cell in row] for row in self), len(self.head) - 1
        )

    def _repr_html_(self) -> str:
        first, *others = map(html.escape, self.head)
        head = f"<th style='text-align:left'>{first}</th>{''.join(f'<th>{name}</th>' for name in others)}"
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name)}</td>"
            f"{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
            for name, *cells in self
        )
        look = "text-align:right;font-variant-numeric:tabular-nums"
        return f"<table style='{look}'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    @property
    def has_characters(self) -> bool:
        """Whether there are columns of characters: some stage has counted them."""
        return any(row.characters is not None for row in self.funnel)


def _rates(counts: list[int | None]) -> Iterator[list[str]]:
    """Return count, percent of the first known one and percent of the one before."""
    first = next((count for count in counts if count is not None), None)
    before: int | None = None
    for count in counts:
        if count is None:
            yield ["", "", ""]
        else:
            yield [
                f"{count:,}",
                _percent(count / first if first else None),
                _percent(count / before if before else None),
            ]
        before = count


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
