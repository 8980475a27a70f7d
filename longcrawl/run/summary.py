"""Summary of a finished run, and the cost of its stages.

Times differ from run to run, so no file that a manifest seals has them. While a run is at work, its folder ``work``
keeps them beside the markers of what is done: a run that was stopped and resumed knows them all.
"""

import html
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from longcrawl.core.clock import CoreClock
from longcrawl.core.funnel import Funnel, RemovalRates
from longcrawl.core.outputs import RESULTS
from longcrawl.errors import as_lines
from longcrawl.io.files import folder_bytes
from longcrawl.io.structured import Marker


@dataclass
class StageCost:
    """What a stage took."""

    seconds: float = 0.0
    """Of a core, over all processes."""
    disk: int = 0
    """Bytes that it needed in the run's folder; what is kept in the end is not among them."""


class RunCosts:
    """The costs of one run by the labels of its stages, with its source and its output among them."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.stages: dict[str, StageCost] = defaultdict(StageCost)

    def add_parts(self, reader: str, keeper: str, results: Sequence[Mapping[str, Any]]) -> None:
        """Add what the parts of a segment took: reading counts for ``reader``, writing what stays for ``keeper``."""
        for result in results:
            took = result.get("seconds", {})
            self.stages[reader].seconds += took.get("read", 0.0)
            for label, seconds in took.get("stages", {}).items():
                self.stages[label].seconds += seconds
            self.stages[keeper].seconds += took.get("keep", 0.0)

    @contextmanager
    def measure(self, label: str, step: str) -> Iterator[StageCost]:
        """Count a block that all parts wait for, and the bytes that it notes; once done, it takes what it took then."""
        note = self._work / f"took-{step}.json"
        noted = Marker.read(note)
        before = StageCost() if noted is None else StageCost(**noted.content)
        took, clock = StageCost(), CoreClock()
        with clock.measure(label):
            yield took
        took = StageCost(max(clock.seconds[label], before.seconds), max(took.disk, before.disk))
        Marker(note, asdict(took), {}).write()
        self.stages[label].seconds += took.seconds
        self.stages[label].disk += took.disk

    def add_disk(self, ended_by: Sequence[str]) -> None:
        """Add what is in the work folder at the end of a run, by the labels of what ended its segments.

        Markers are left out: they have about a kilobyte per part and stage that needs all documents.
        """
        for number, label in enumerate(ended_by[:-1]):
            kept = (f"segment-{number}", f"fit-{number}", f"removed-{number}")
            markers = sum(file.stat().st_size for file in (self._work / f"segment-{number}").glob("*.json"))
            self.stages[label].disk += sum(folder_bytes(self._work / name) for name in kept) - markers
        self.stages[ended_by[-1]].disk += folder_bytes(self._work / "spill")


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
