"""The stretches of an archive file that cannot be read, gathered for one entry of the report."""

from dataclasses import dataclass, field

from longcrawl.core.sources import BadFiles

MOST_NAMED = 10
"""How many lost stretches of a file are named; all are counted."""

MOST_REASONS = 3
"""How many reasons are named of a stretch."""

ARC_FILE = "this is an ARC file, the form before WARC; convert it, e.g. with `warcio recompress FILE.arc FILE.warc.gz`"


@dataclass
class Lost:
    """Gathers the stretches of one file that cannot be read; the policy "error" stops at the first."""

    bad_files: BadFiles
    file: str
    _named: list[str] = field(default_factory=list)
    _stretches: int = 0
    _reasons: list[str] = field(default_factory=list)
    _begin: int | None = None
    _records: int | None = 0

    def open(self, offset: int, reason: str, *, records: int | None = 1) -> None:
        """Note that nothing can be read from here on until ``close``; ``records`` is None where nobody can know."""
        if self._begin is None:
            self._begin = offset
        if reason not in self._reasons and (len(self._reasons) < MOST_REASONS or reason == ARC_FILE):
            self._reasons.append(reason)
        self._records = None if self._records is None or records is None else self._records + records
        if self.bad_files.policy == "error":
            self.bad_files.report(self.file, f"at byte {offset:,}: {reason}")

    @property
    def is_open(self) -> bool:
        """Whether nothing can be read since the last ``open``."""
        return self._begin is not None

    def close(self, offset: int | None) -> None:
        """Note that reading resumes at ``offset``, or no more."""
        if self._begin is not None:
            end = "to its end" if offset is None else f"to {offset:,}"
            # Other reasons say nothing more about an ARC file.
            reasons = [ARC_FILE] if ARC_FILE in self._reasons else self._reasons
            self._stretches += 1
            if self._stretches <= MOST_NAMED:
                self._named.append(f"from byte {self._begin:,} {end}: {', then '.join(reasons)}")
            self._begin, self._reasons = None, []
            if offset is None:
                self._records = None

    def report(self) -> None:
        """Report what was lost, if anything, in one entry."""
        if self._stretches:
            more = self._stretches - MOST_NAMED
            named = self._named + [f"and {more} more stretches"] * (more > 0)
            self.bad_files.report(self.file, f"cannot be read {'; '.join(named)}", self._records)
