"""The card of a finished run, written again: with pictures, by a newer longcrawl, or after a person has edited it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longcrawl.card.edits import Merged, is_marked
from longcrawl.card.plots import draw_pictures
from longcrawl.card.source import PICTURES
from longcrawl.card.text import CARD, card_problems, merged_card, new_card
from longcrawl.errors import LongCrawlError, RunError
from longcrawl.ledger.edits import EDITS
from longcrawl.manifest.folder import MANIFEST, read_manifest
from longcrawl.printable import as_lines
from longcrawl.storage.files import checksum, file_entries, write_text
from longcrawl.storage.manifest import is_sealed, seal

__all__ = ["Card", "card"]

FOLDER = "card"
"""Where pictures lie in a run."""
SHOWN = ("analysis", "bad_files", "digest", "inputs")
"""Blocks of a manifest that a card shows, and that are not needed for one."""


@dataclass(frozen=True)
class Card:
    """A card that was written again."""

    path: str
    kept: tuple[str, ...]
    """What a person has changed in it and is still there."""
    pictures: tuple[str, ...]
    """Paths in the run."""
    missing: tuple[str, ...] = ()
    """Blocks of the manifest that an earlier longcrawl has not written, and whose part of the card says so."""
    problems: tuple[str, ...] = ()
    """What the Hub would refuse in its head, a sentence each; the card is written all the same."""

    def __str__(self) -> str:
        pictures = f" with {len(self.pictures)} pictures" if self.pictures else ""
        kept = f"; kept your edits in: {', '.join(self.kept)}" if self.kept else ""
        missing = f"; its manifest has no {', '.join(self.missing)}, as the card says" if self.missing else ""
        lines = [f"the Hub will not take its head: {each}" for each in self.problems]
        return as_lines([f"{self.path} is written{pictures}{kept}{missing}", *lines])


def card(run: str | Path, *, plots: bool = False) -> Card:
    """Write the card of a finished run again, from its manifest and ledger, and keep what a person has changed in it.

    The manifest then names the card as it is now, and the run is whole to ``verify``. Pictures that were drawn before
    stay. Without edits and pictures, the card is the one that the run wrote. Of a run of an earlier longcrawl, whose
    manifest tells less, the card says what is missing. An edited head that the Hub would not take is kept like every
    edit, and ``problems`` says what is wrong with it.

    Args:
        run: the folder of a finished run.
        plots: draw pictures into ``card/``, too; matplotlib does it.

    Raises:
        RunError: the run is not finished, its manifest has been changed, its ledger is gone, or its card has
            no marks that tell it from a person's, or a file is where pictures would go.
        FormatError: the head of the card is not YAML.
        StageError: matplotlib is not installed.

    """
    folder = Path(run)
    manifest = read_manifest(folder)
    if not is_sealed(folder / MANIFEST, manifest):
        raise RunError(f"{folder / MANIFEST} has been changed; longcrawl verify {folder} says it all")
    ledgers = [name for name in manifest["files"] if name.startswith(("ledger/", f"{EDITS}/"))]
    if gone := [name for name in ledgers if not (folder / name).is_file()]:
        raise RunError(f"{folder} has lost {gone[0]}, which lists removed documents: copy it back, then write the card")
    if plots and (folder / FOLDER).exists() and not (folder / FOLDER).is_dir():
        raise RunError(f"{folder / FOLDER} is a file, and pictures go to a folder of this name: move it away")
    # Nothing is written before it is known that the card can be.
    try:
        drawn = draw_pictures(manifest) if plots else {}
        there = [name for name in PICTURES if name in drawn or (folder / FOLDER / f"{name}.svg").is_file()]
        written = _merged(folder, manifest, there)
    except LongCrawlError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as odd:
        raise RunError(
            f"{folder / MANIFEST} is not as runs write it ({type(odd).__name__}: {odd}): run the recipe again, into "
            f"another folder than {folder}"
        ) from odd
    pictures = tuple(f"{FOLDER}/{name}.svg" for name in there)
    try:
        for name, picture in drawn.items():
            write_text(folder / FOLDER / f"{name}.svg", picture)
        write_text(folder / CARD, written.text)
        _name_in_manifest(folder, manifest, pictures)
    except OSError as failed:
        raise RunError(
            f"the card cannot be written to {folder} ({failed.strerror or failed}): make it writable, or copy the run"
        ) from failed
    missing = tuple(name for name in SHOWN if name not in manifest)
    return Card(str(folder / CARD), written.kept, pictures, missing, tuple(card_problems(written.text)))


def _merged(folder: Path, manifest: dict[str, Any], pictures: list[str]) -> Merged:
    """Return the card; one without marks is left out of it only if it is the one that an earlier longcrawl wrote."""
    file = folder / CARD
    text = _read(file) if file.exists() else ""
    if text and not is_marked(text):
        if checksum(file) != manifest["files"].get(CARD, {}).get("sha256"):
            raise RunError(
                f"{file} has none of the comments that tell your edits from what longcrawl wrote: "
                "move it away and type the same command again"
            )
        text = ""
    return merged_card(text, folder, manifest, pictures) if text else Merged(new_card(folder, manifest, pictures), ())


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except ValueError as broken:
        raise RunError(f"{file} is not UTF-8 ({broken}): fix it, or move it away") from broken


def _name_in_manifest(folder: Path, manifest: dict[str, Any], pictures: Sequence[str]) -> None:
    """Return the manifest the bytes of the card and its pictures as they are now."""
    files = {
        name: entry for name, entry in manifest["files"].items() if name != CARD and not name.startswith(f"{FOLDER}/")
    }
    changed = {**manifest, "files": dict(sorted((files | file_entries(folder, [CARD, *pictures])).items()))}
    if json.dumps(changed) != json.dumps(manifest):
        write_text(folder / MANIFEST, seal(changed))
