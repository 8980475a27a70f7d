"""What a run says when it is done."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from longcrawl.core.results import RESULTS
from longcrawl.ledger.funnel import Funnel, RemovalRates
from longcrawl.printable import as_lines
from longcrawl.run.costs import StageCost

OUTSIDE = 5
"""Figures outside of a plan's intervals that are listed."""


class ComparedFigure(Protocol):
    """One figure of a plan beside what became of it; ``str`` describes both."""

    @property
    def inside(self) -> bool:
        """Whether the plan's interval holds what became of it."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""


class ComparedPlan(Protocol):
    """What a run asks of a plan that was made of its recipe: :class:`longcrawl.Plan`."""

    @property
    def recipe(self) -> str:
        """The name of the recipe."""

    @property
    def digest(self) -> str:
        """The digest of the recipe."""

    def against(self, manifest: Mapping[str, Any], costs: Mapping[str, StageCost] = ...) -> Sequence[ComparedFigure]:
        """Compare the plan's figures with those of a finished run."""

    def save(self, path: Path, checked: Sequence[Any] = ()) -> None:
        """Write the plan as JSON with the compared figures."""


@dataclass(frozen=True)
class RunSummary:
    """What a run did."""

    recipe: str
    out: str
    rates: RemovalRates
    """The funnel in percent, beside the figures that the recipe refers to."""
    written: dict[str, Any]
    batch: str
    """What the beginning of the output looks like when it is read back."""
    bad_files: int
    seconds: float
    checked: Sequence[ComparedFigure] = ()
    """The figures of the plan that was given, beside what became of them."""
    costs: Mapping[str, StageCost] = field(default_factory=dict)
    """What each stage took, the source first, the output last; empty of a run that was done before."""
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What a user of the documents must know first, by stage."""
    of_source: Sequence[str] = ()
    """Reports on reading, such as how many documents have a field."""

    @property
    def funnel(self) -> Funnel:
        """How many documents each stage kept."""
        return self.rates.funnel

    def __str__(self) -> str:
        rates = [repr(self.rates), ""] if self.rates.reference.documents else []
        return "\n".join([repr(self.funnel), "", *rates, as_lines(self._done())])

    def _repr_html_(self) -> str:
        table = self.rates if self.rates.reference.documents else self.funnel
        return f"{table._repr_html_()}<p>{'<br>'.join(map(html.escape, self._done()))}</p>"

    def _done(self) -> list[str]:
        written = RESULTS[self.written["format"]].summary(self.written)
        lines = [f"{self.recipe} is done in {self.seconds:.1f} s: {self.out} ({written})", f"read back: {self.batch}"]
        if self.checked:
            outside = [str(each) for each in self.checked if not each.inside]
            inside = len(self.checked) - len(outside)
            lines.append(f"the plan's intervals hold {inside} of {len(self.checked)} figures; plan.json has all")
            lines += [f"  outside: {each}" for each in outside[:OUTSIDE]]
            if len(outside) > OUTSIDE:
                lines.append(f"  and {len(outside) - OUTSIDE} more")
        if self.bad_files:
            lines.append(
                f"{self.bad_files} input file(s) could not be read whole; manifest.json and README.md list them"
            )
        lines += self.of_source
        return lines + [f"WARNING: {label}: {each}" for label, found in self.warnings.items() for each in found]
