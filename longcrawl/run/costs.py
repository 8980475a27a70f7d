"""What the stages of a run take: seconds of a core, and bytes on disk until the run is done.

Times differ from run to run, so no file that a manifest seals has them. While a run is at work, its folder ``work``
keeps them beside the markers of what is done: a run that was stopped and resumed knows them all.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longcrawl.core.clock import CoreClock
from longcrawl.storage.files import folder_bytes
from longcrawl.storage.sealed import Marker


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
