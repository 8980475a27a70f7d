"""The files that ``data_dir`` and ``data_files`` name, as the parts of a source."""

import itertools
import os
import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from longcrawl.core.sources import Part
from longcrawl.errors import SourceError
from longcrawl.sources.files import absolute, list_tree, match_remote
from longcrawl.storage.listing import match_files, unreachable
from longcrawl.urls import has_pattern, is_url, join, path_of, without_secrets

DataFiles = str | tuple[str, ...] | Mapping[str, Any] | None
"""A path, URL or glob, several, or a mapping from splits to them."""


def named_parts(
    source: str,
    data_dir: str | None,
    data_files: DataFiles,
    endings: tuple[str, ...],
    example: str,
    splits: Callable[[list[str]], Mapping[str, list[str]]] | None = None,
) -> dict[str, list[Part]]:
    """Return a part per file of every split, named relative to ``data_dir`` or the deepest folder that all files share.

    Args:
        source: its name, for messages.
        data_dir: a folder, read with all folders in it, or what ``data_files`` are relative to.
        data_files: what to read; None for all files of ``data_dir`` with one of the endings.
        endings: of the files that the source reads.
        example: a pattern of such files, for messages.
        splits: gives the files of each split, of the names of all files below ``data_dir``; None for all those with
            one of the endings as "train".

    Raises:
        SourceError: no file was named or found.
    """
    files = chosen_files(data_dir, data_files) if data_files else _below(source, data_dir, endings, example, splits)
    base = _base_of([_written(file) for chosen in files.values() for file in chosen], data_dir)
    return {split: _parts(chosen, base) for split, chosen in files.items()}


def _parts(files: list[str], base: str) -> list[Part]:
    """Name files by their paths.

    Raises:
        SourceError: two URLs differ in their queries or users only, so that their documents would have the same ids.
    """
    parts: dict[str, Part] = {}
    for file in sorted(set(files)):
        name = _written(file).removeprefix(base).lstrip("/")
        if name in parts:
            raise SourceError(f"{without_secrets(file)} is named twice, with two queries or users: name each path once")
        parts[name] = Part(name, (file,))
    return [parts[name] for name in sorted(parts)]


def _written(file: str) -> str:
    """Return the path of a file as ids and manifests have it: without query, and without the password of a URL."""
    return path_of(without_secrets(file))


def _below(
    source: str,
    data_dir: str | None,
    endings: tuple[str, ...],
    example: str,
    splits: Callable[[list[str]], Mapping[str, list[str]]] | None,
) -> dict[str, list[str]]:
    if not data_dir:
        raise SourceError(
            f"source {source!r} has nothing to read; set data_dir='FOLDER' or data_files='FOLDER/{example}'"
        )
    base = absolute(data_dir)
    if not is_url(base) and not Path(base).is_dir():
        raise SourceError(f"{base} is not a folder; set data_dir to one, or data_files to the file")
    tree = list_tree(base)
    others = [] if is_url(base) else unreachable(base, [name for name in tree if not name.endswith(endings)])
    if not any(name.endswith(endings) for name in tree) and not others:
        raise SourceError(
            f"{without_secrets(base)} holds no file that can be read; known endings: {', '.join(endings)}"
        )
    found = {"train": [name for name in tree if name.endswith(endings)]} if splits is None else dict(splits(tree))
    if others:
        found["train"] = [*found.get("train", []), *others]
    files = {split: [join(base, name) for name in names] for split, names in found.items()}
    return files if is_url(base) else {split: _once(names) for split, names in files.items()}


def _once(files: list[str]) -> list[str]:
    """Leave out names of files that have another name here: rather those with links in them, then the later ones."""
    real = {file: os.path.realpath(file) for file in files}
    ordered = sorted(real, key=lambda file: (Path(file).is_symlink(), real[file] != file, file))
    first = {real[file]: file for file in reversed(ordered)}
    return [file for file in files if first[real[file]] == file]


def chosen_files(data_dir: str | None, data_files: DataFiles) -> dict[str, list[str]]:
    """Return the paths and URLs that ``data_files`` names, by split.

    Raises:
        SourceError: a pattern matches nothing.
    """
    chosen = data_files if isinstance(data_files, Mapping) else {"train": data_files}
    base = absolute(data_dir or "")
    files: dict[str, list[str]] = {}
    for split, patterns in chosen.items():
        listed = [patterns] if isinstance(patterns, str) else list(patterns or [])
        files[split] = [file for pattern in listed for file in _expand(str(pattern), base)]
    return files


def _expand(pattern: str, base: str) -> list[str]:
    """Return the files that a path, URL or glob stands for, relative ones below ``base``.

    Raises:
        SourceError: there are none.
    """
    rooted = is_url(pattern) or pattern.startswith(("/", "~", "file://")) or Path(pattern).is_absolute()
    path = absolute(pattern if rooted else join(base, pattern))
    if not has_pattern(path) or (not is_url(path) and Path(path).is_file()):
        return [path]
    if not is_url(path):
        try:
            return _found(_once(match_files(path)), pattern)
        except ValueError as wrong:
            raise SourceError(f"{pattern} is not a pattern ({wrong}). Change data_files") from wrong
    return _found(match_remote(path), pattern)


def _found(files: list[str], pattern: str) -> list[str]:
    if not files:
        raise SourceError(f"no file matches {without_secrets(pattern)!r}; check data_files")
    return files


def _base_of(files: list[str], data_dir: str | None) -> str:
    """Return the folder that names are relative to: ``data_dir``, else the deepest folder that all files share."""
    base = _written(absolute(data_dir or "")).rstrip("/")
    if data_dir and all(file.startswith(f"{base}/") for file in files):
        return base
    folders = [posixpath.dirname(file).split("/") for file in files]
    return "/".join(steps[0] for steps in itertools.takewhile(lambda steps: len(set(steps)) == 1, zip(*folders)))  # noqa: B905  # it ends with the shortest
