"""Which files below a folder are token shards, and of which split: held-out shards are never those to train on.

A folder with one of the usual names of held-out data, :data:`HELD_OUT`, is a split.

Names are relative to the folder that the user named, with ``/`` between their steps, so that local and remote folders
are looked at alike.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from longcrawl.errors import FormatError
from longcrawl.storage.structured import load_json

TRAIN = "train"
HELD_OUT = ("val", "valid", "validation", "dev", "eval", "test", "heldout")
"""Usual names of folders with held-out data; all but "test" are names for the same thing."""
SPLITS = (TRAIN, *HELD_OUT)
TABLES = ("documents", "pieces")
"""Folders that outputs have beside their splits, with tables of where documents or pieces came from."""
KIND = "longcrawl_token_shards"
"""The entry that says what a description describes."""


def sort_into_splits(names: Iterable[str], outputs: Collection[str] = ()) -> dict[str, list[str]]:
    """Sort shards into splits: those below a folder of :data:`HELD_OUT` are of that split, all others are "train".

    >>> sort_into_splits(["out/train/web/0.bin", "out/val/web/0.bin", "other/0.bin"])
    {'train': ['out/train/web/0.bin', 'other/0.bin'], 'val': ['out/val/web/0.bin']}

    Args:
        names: of shards, relative.
        outputs: folders that are outputs by their description, whose own splits count before those around them.

    Raises:
        FormatError: a shard lies beside a split that is held out, but not in ``train/``, so that its split is unknown.
    """
    listed = list(names)
    folders = {folder for name in listed for folder in _folders(name)}
    splits: dict[str, list[str]] = {}
    for name in listed:
        splits.setdefault(_split_of(name, folders, outputs), []).append(name)
    return splits


def beside_shards(name: str, folders: Collection[str]) -> bool:
    """Return whether a name is in a folder of tables beside splits, such as ``documents/train/00000.parquet``.

    Args:
        name: of a file, relative.
        folders: all that there are, relative, "" for the one that names are relative to.
    """
    return any(
        PurePosixPath(folder).name in TABLES and _below(_above(folder), split) in folders
        for folder in _folders(name)
        for split in SPLITS
    )


def described_shards(description: Path) -> list[str] | None:
    """Return the files in the splits that an output's description lists, relative to its folder; None if it is none."""
    try:
        described = load_json(description.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(described, dict) or KIND not in described or not isinstance(described.get("files"), dict):
        return None
    return [name for name in described["files"] if name.partition("/")[0] in SPLITS]


def named_split(wanted: str, is_there: Callable[[str], bool]) -> str:
    """Return the name that a split has: the one that is wanted, or else the one other usual name that is there.

    >>> named_split("val", {"train", "validation", "test"}.__contains__)
    'validation'

    Raises:
        FormatError: several other names are there.
    """
    alike = [name for name in HELD_OUT if name != "test"]
    if wanted not in alike or is_there(wanted):
        return wanted
    found = [name for name in alike if is_there(name)]
    if len(found) > 1:
        raise FormatError(f"there is no split {wanted!r}, but {', '.join(map(repr, found))}: name one of them")
    return found[0] if found else wanted


def _split_of(name: str, folders: Collection[str], outputs: Collection[str]) -> str:
    # An output's own splits count before those of folders around it.
    for folder in sorted(_folders(name), key=lambda each: each not in outputs):
        there = [split for split in SPLITS if _below(folder, split) in folders]
        inside = next((split for split in there if name.startswith(f"{_below(folder, split)}/")), None)
        held_out = [split for split in there if split != TRAIN]
        if inside in held_out or (inside == TRAIN and (held_out or folder in outputs)):
            return inside or TRAIN
        if held_out:
            raise FormatError(
                f"{name} lies beside the folder{'s' * (len(there) > 1)} {' and '.join(there)}, so that its split is "
                "unknown: move it into one of them, or into train, or name files one by one"
            )
    return TRAIN


def _folders(name: str) -> Iterator[str]:
    """Return the folders that a file is in, the outermost, "", first."""
    steps = name.split("/")
    return ("/".join(steps[:count]) for count in range(len(steps)))


def _above(folder: str) -> str:
    return folder.rpartition("/")[0]


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
