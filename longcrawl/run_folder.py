"""The folder of a run: what may be begun, continued and read there."""

from pathlib import Path
from typing import Any

from longcrawl.errors import RunError
from longcrawl.files import PARTIAL
from longcrawl.part import WORK
from longcrawl.recipe import Recipe
from longcrawl.run_manifest import check_manifest
from longcrawl.sealed import Marker
from longcrawl.structured import load_json

__all__ = [
    "INPUTS",
    "MANIFEST",
    "PLAN",
    "WORK",
    "any_done",
    "first_pass",
    "holds_run",
    "read_manifest",
    "refuse_strangers",
]

INPUTS = "inputs.json"
"""The marker in ``work`` of what a run is made of."""
MANIFEST = "manifest.json"
PLAN = "plan.json"
"""What was planned, beside what became of it; times differ from run to run, so the manifest does not list it."""


def holds_run(folder: Path) -> bool:
    """Say whether a folder is that of a run, finished or not, if only its input is known yet."""
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
    """Say what there is instead of a finished run, and what to type."""
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


def refuse_strangers(folder: Path, recipe: Recipe) -> None:
    """Refuse a folder that holds something else than this recipe's run; one in which nothing is done yet is taken."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is a file: choose another folder")
    if not (folder / MANIFEST).exists():
        _refuse_links(folder)
    written = folder / "recipe.yaml"
    if written.exists():
        if any_done(folder) and not _may_go_on(folder, written.read_bytes(), recipe):
            raise RunError(
                f"{folder} holds the run of another recipe ({_difference(written, recipe)}): "
                "choose another folder, or remove it"
            )
    elif any(entry.name != WORK and PARTIAL not in entry.name for entry in folder.iterdir()):
        raise RunError(f"{folder} is not empty and holds no run: choose another folder")


def _refuse_links(folder: Path) -> None:
    """Refuse links in the folder of a run, which clears what it needs no more: that would be somebody else's."""
    link = next((path for path in sorted(folder.rglob("*")) if path.is_symlink()), None)
    if link is not None:
        raise RunError(
            f"{link} is a link to {link.readlink()}, and a run clears only what is in its own folder. Remove the "
            "link, or choose an --out folder on that disk"
        )


def _may_go_on(folder: Path, written: bytes, recipe: Recipe) -> bool:
    """Return whether what is done in ``folder`` is of use to ``recipe``; ``written`` may be damaged."""
    if written == recipe.as_yaml().encode():
        return True
    begun = None if (folder / MANIFEST).exists() else Marker.read(folder / WORK / INPUTS)
    return begun is not None and begun.content["recipe"] == first_pass(recipe)


def first_pass(chosen: Recipe) -> dict[str, Any]:
    """Return the part of a recipe that decides what is spilled."""
    recipe = chosen.as_dict()
    ((name, settings),) = recipe["outputs"].items()
    free = chosen.output.second_pass
    kept = {field: value for field, value in settings.items() if field not in free}
    return {"source": recipe["source"], "stages": recipe["stages"], "parts": recipe["parts"], "outputs": {name: kept}}


def any_done(folder: Path) -> bool:
    """Say whether a run has finished anything in this folder."""
    written = any(entry.name not in ("recipe.yaml", WORK) for entry in folder.iterdir())
    return written or any((folder / WORK).glob("segment-*/*.json"))


def _difference(written: Path, recipe: Recipe) -> str:
    before, now = written.read_text("utf-8", "replace").splitlines(), recipe.as_yaml().splitlines()
    for old, new in zip(before, now, strict=False):
        if old != new:
            return f"there {old.strip()[:60]!r}, here {new.strip()[:60]!r}"
    return "one has more lines than the other"
