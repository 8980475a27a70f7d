"""Quick verification: whether every file of a run or output is there with its size."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longcrawl.errors import FormatError
from longcrawl.io.structured import Verification, is_sealed, load_json
from longcrawl.run.manifest import MANIFEST, holds_run, read_manifest

CHANGED = "has been changed: the SHA-256 that it records differs"


def check_exists(path: Path) -> None:
    """Raise FormatError if a path does not exist."""
    if not path.exists():
        raise FormatError(f"no file or folder {path}: check the path")


def verify_sizes(folder: Path) -> Verification:
    """Compare the sizes of local files with those that the manifest of a run, or the description of an output, records.

    Raises:
        FormatError: there is no run and no output.
        RunError: the run is not finished.
    """
    check_exists(folder)
    name, described = (MANIFEST, read_manifest(folder)) if holds_run(folder) else _description(folder)
    if not is_sealed(folder / name, described):
        return Verification(str(folder), "the description by itself", (f"{name} {CHANGED}",))
    files = described["files"]
    there = ((folder / name) for name in files)
    return by_sizes(str(folder), files, [each.stat().st_size if each.is_file() else None for each in there])


def _description(folder: Path) -> tuple[str, Mapping[str, Any]]:
    from longcrawl.core.outputs import RESULTS  # imports Arrow, which a run does not need

    for name in RESULTS.described():
        if (folder / name).is_file():
            found: dict[str, Any] = load_json((folder / name).read_bytes())
            return name, found
    raise FormatError(
        f"{folder} holds neither a run nor an output that records the sizes of its files: verify it without --quick"
    )


def by_sizes(path: str, files: Mapping[str, Mapping[str, Any]], sizes: Sequence[int | None]) -> Verification:
    """Compare the sizes of files, None for a missing one, with those that were recorded."""
    problems = [
        f"{name} is missing" if size is None else f"{name} has {size:,} bytes, expected {recorded['bytes']:,}"
        for (name, recorded), size in zip(files.items(), sizes, strict=True)
        if size != recorded["bytes"]
    ]
    return Verification(path, f"{len(files)} files compared by size alone", tuple(problems))
