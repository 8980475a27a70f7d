"""Which folder a run may take: a new one, or one that holds the same recipe's run, as far as that went."""

from pathlib import Path
from typing import Any

from longcrawl.errors import RunError
from longcrawl.manifest.folder import INPUTS, MANIFEST, WORK
from longcrawl.recipe import Recipe
from longcrawl.storage.files import PARTIAL
from longcrawl.storage.sealed import Marker

__all__ = ["any_done", "first_pass", "reject_other_contents"]


def reject_other_contents(folder: Path, recipe: Recipe) -> None:
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
    """Return whether a run has finished anything in this folder."""
    written = any(entry.name not in ("recipe.yaml", WORK) for entry in folder.iterdir())
    return written or any((folder / WORK).glob("segment-*/*.json"))


def _difference(written: Path, recipe: Recipe) -> str:
    before, now = written.read_text("utf-8", "replace").splitlines(), recipe.as_yaml().splitlines()
    for old, new in zip(before, now, strict=False):
        if old != new:
            return f"there {old.strip()[:60]!r}, here {new.strip()[:60]!r}"
    return "one has more lines than the other"
