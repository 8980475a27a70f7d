"""What each stage of a run leaves, in percent of the start and of the stage before, as RefinedWeb's Figure 2 shows it.

A recipe may name the figures of the work that it follows under ``reference``; they stand beside those of the run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from longcrawl.core.fields import check_fields
from longcrawl.display.numbers import percent
from longcrawl.display.table import Column, Table
from longcrawl.errors import RecipeError
from longcrawl.ledger.funnel import Funnel

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
    stage               kept    of all  of before  RefinedWeb
    warc                 200   100.0 %
    language             100    50.0 %     50.0 %      48.0 %
    gopher_quality        25    12.5 %     25.0 %
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
        counts = ["kept", "of all", "of before"]
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
            yield cells + ([percent(published)] if self.reference.documents else [])

    def table(self) -> Table:
        """Return the figures for a terminal, Markdown and a notebook."""
        first, *others = self.head
        return Table([Column(first), *(Column(name, "count", 8) for name in others)], list(self))

    def __repr__(self) -> str:
        return str(self.table())

    def markdown(self) -> str:
        """Return the table as Markdown, as dataset cards hold it."""
        return self.table().markdown()

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

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
            shares = (count / whole if whole else None for whole in (first, before))
            yield [f"{count:,}", *map(percent, shares)]
        before = count
