"""Which files below a folder are token shards, and of which split: held-out shards are never those to train on.

Names are relative to the folder that the user named, with ``/`` between their steps, so that local and remote folders
are looked at alike.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from longcrawl.errors import FormatError
from longcrawl.structured import load_json

__all__ = ["HELD_OUT", "TRAIN", "beside_shards", "described_shards", "sort_into_splits"]

TRAIN, HELD_OUT = "train", "val"
TABLES = ("documents", "pieces")
"""Folders that outputs have beside their splits, with tables of where documents or pieces came from."""
KIND = "longcrawl_token_shards"
"""The entry that says what a description describes."""


def sort_into_splits(names: Iterable[str], outputs: Collection[str] = ()) -> dict[str, list[str]]:
    """Sort shards into splits: below ``train/`` and ``val/`` of one folder there are two, elsewhere all are "train".

    >>> sort_into_splits(["out/train/web/0.bin", "out/val/web/0.bin", "other/0.bin"])
    {'train': ['out/train/web/0.bin', 'other/0.bin'], 'val': ['out/val/web/0.bin']}

    Args:
        names: of shards, relative.
        outputs: folders that are outputs by their description, which may have one of the two splits only.

    Raises:
        FormatError: a shard lies beside ``train/`` and ``val/``, so that nobody knows which it is.

    """
    listed = list(names)
    folders = {folder for name in listed for folder in _folders(name)}
    splits: dict[str, list[str]] = {}
    for name in listed:
        splits.setdefault(_split_of(name, folders, outputs), []).append(name)
    return splits


def beside_shards(name: str, folders: Collection[str]) -> bool:
    """Say whether a name is in a folder of tables beside splits, such as ``documents/train/00000.parquet``.

    Args:
        name: of a file, relative.
        folders: all that there are, relative, "" for the one that names are relative to.

    """
    return any(
        PurePosixPath(folder).name in TABLES and _below(_above(folder), split) in folders
        for folder in _folders(name)
        for split in (TRAIN, HELD_OUT)
    )


def described_shards(description: Path) -> list[str] | None:
    """Give the files in the splits that an output's description lists, relative to its folder; None if it is none."""
    try:
        told = load_json(description.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(told, dict) or KIND not in told or not isinstance(told.get("files"), dict):
        return None
    return [name for name in told["files"] if name.partition("/")[0] in (TRAIN, HELD_OUT)]


def _split_of(name: str, folders: Collection[str], outputs: Collection[str]) -> str:
    for folder in _folders(name):
        train, held_out = (_below(folder, split) for split in (TRAIN, HELD_OUT))
        there = (train in folders) + (held_out in folders)
        if there < (1 if folder in outputs else 2):
            continue
        for split, inside in ((TRAIN, train), (HELD_OUT, held_out)):
            if name.startswith(f"{inside}/"):
                return split
        raise FormatError(
            f"{name} lies beside the folders {TRAIN} and {HELD_OUT}, so that its split is unknown: move it into one of "
            "them, or name files one by one"
        )
    return TRAIN


def _folders(name: str) -> Iterator[str]:
    """Give the folders that a file is in, the outermost, "", first."""
    steps = name.split("/")
    return ("/".join(steps[:count]) for count in range(len(steps)))


def _above(folder: str) -> str:
    return folder.rpartition("/")[0]


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
