"""The result of a verification."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longcrawl.errors import as_lines, one_line
from longcrawl.io.structured import verify_described


@dataclass(frozen=True)
class Verification:
    """The result of a verification; ``problems`` is empty if the output is whole."""

    path: str
    checked: str
    problems: tuple[str, ...]

    @classmethod
    def by_description(cls, folder: Path, name: str, described: Mapping[str, Any], files: str = "*") -> "Verification":
        """Verify the files of an output that match ``files`` against its description, the file ``name``."""
        checked = f"{len(described['files'])} files compared with their SHA-256"
        return cls(str(folder), checked, tuple(verify_described(folder, name, described, files)))

    def __str__(self) -> str:
        if not self.problems:
            return one_line(f"{self.path}: whole; {self.checked}")
        return as_lines(
            [f"{self.path}: {len(self.problems)} problem(s); {self.checked}", *(f"  {each}" for each in self.problems)]
        )

    __repr__ = __str__
