"""The folder of a run: its files by name, and its manifest."""

from pathlib import Path
from typing import Any

from longcrawl.errors import RunError
from longcrawl.manifest.schema import check_manifest
from longcrawl.storage.structured import load_json

WORK = "work"
"""The folder of a run that holds what is finished while the run is not."""
INPUTS = "inputs.json"
"""The marker in ``work`` of what a run is made of."""
MANIFEST = "manifest.json"
PLAN = "plan.json"
"""What was planned, beside what became of it; times differ from run to run, so the manifest does not list it."""


def holds_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, finished or not, if only its input is known yet."""
    return any((folder / name).exists() for name in (MANIFEST, "recipe.yaml", f"{WORK}/{INPUTS}"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished run; looking up what it does not hold is one sentence, see `run_manifest`.

    Raises:
        RunError: there is none, the run is not finished, or it is not one that this longcrawl reads.
    """
    if not (folder / MANIFEST).is_file():
        raise RunError(_why_no_manifest(folder))
    try:
        manifest = load_json((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError) as broken:
        raise RunError(
            f"{folder / MANIFEST} is not JSON: {broken}; copy it back from where it is whole, or run the recipe again "
            f"into another folder than {folder}"
        ) from broken
    return check_manifest(manifest, folder / MANIFEST)


def _why_no_manifest(folder: Path) -> str:
    """Describe what there is instead of a finished run, and what to type."""
    if folder.is_file():
        at = next((above for above in folder.parents if (above / MANIFEST).is_file()), None)
        return f"{folder} is a file: name the folder of a run" + ("" if at is None else f", such as {at}")
    if not folder.exists():
        return (
            f"there is no folder {folder}: name that of a run, which `longcrawl run RECIPE --out {folder}` would make"
        )
    if (folder / WORK).exists():
        return f"{folder} is not finished: type the same `longcrawl run` again"
    below = next((each.parent for each in sorted(folder.glob(f"*/{MANIFEST}"))), None)
    above = next((each for each in folder.absolute().parents if (each / MANIFEST).is_file()), None)
    run = below or above
    return f"{folder} holds no run, it has no {MANIFEST}: name the folder of one" + (
        "" if run is None else f", such as {run}"
    )
