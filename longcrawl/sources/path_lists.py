"""Lists of paths, such as Common Crawl's ``warc.paths.gz``, which select the files of a dump.

A list names one file per line, and is read whole before any of its files. Because its lines are untrusted, each has to
name a file of the source below the base: an absolute path, another server, ``..`` and the like are errors. Parts are
named after the entries, so documents are the same from a server and from a mirror on disk.

"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from longcrawl.core.display import counted
from longcrawl.core.sources import Loss, Part
from longcrawl.errors import SourceError, quoted, warn_user
from longcrawl.sources.blocks import read_blocks
from longcrawl.sources.files import DamagedFileError, absolute, has_ending, reading
from longcrawl.urls import is_url, join, path_of, without_secrets

COMMON_CRAWL = "https://data.commoncrawl.org/"
LONGEST_LINE = 4_096
"""Bytes per line; paths of Common Crawl have about 140."""
MOST_PATHS = 10_000_000
"""Limit for all lists of a source together, about the number of paths in all dumps of Common Crawl."""
_NO_STOP = MOST_PATHS + 1
_SLICE = re.compile(r"([0-9]{0,12}):([0-9]{0,12})(?::([0-9]{1,12}))?")
_NOT_BELOW = ("", ".", "..")
"""Path steps that may lead out of a folder; a URL scheme or an absolute path has an empty step."""


@dataclass(frozen=True)
class Listed:
    """Files named by lists of paths."""

    parts: tuple[Part, ...]
    """A part for each file, sorted, with the name in the list."""
    lists: Mapping[str, Mapping[str, Any]]
    """Size in bytes, SHA-256 and number of paths of each list, by its path or URL without secrets."""


def parse_slice(files: Any) -> range:
    """Parse a slice of paths, ``START:STOP:STEP`` counted from 0; each of the three may be left out.

    A SourceError is raised if the text is not a slice, or the slice is empty.

    >>> parse_slice("0:90000:90")
    range(0, 90000, 90)
    """
    if files is None:
        return range(_NO_STOP)
    found = _SLICE.fullmatch(files) if isinstance(files, str) else None
    if found is None:
        raise SourceError(
            f"files takes a slice in quotes, such as '0:1000' or '0:90000:90', got {quoted(files)}: YAML reads 10:20 "
            "without quotes as a number, so type --set 'source.files=\"10:20\"'"
        )
    start, stop, step = (int(each or default) for each, default in zip(found.groups(), (0, _NO_STOP, 1), strict=True))
    if start >= stop or not step:
        raise SourceError(
            f"files {files!r} holds no path: set it to START:STOP with START below STOP, such as '0:1000'"
        )
    return range(start, stop, step)


def read_lists(paths: Sequence[str], base_url: str, files: str | None, endings: tuple[str, ...]) -> Listed:
    """Read lists of paths and select a slice of their lines.

    Args:
        paths: the lists, local files or URLs; gzip and zstd are decompressed.
        base_url: URL or folder that the listed paths are relative to.
        files: slice of the concatenated lists, see :func:`parse_slice`, or None for all paths.
        endings: file endings that the source reads.

    A SourceError is raised if a list is damaged or has fewer paths than the slice, or if a selected line is no file
    below the base; NotYetError if a server does not answer now.
    """
    chosen, base = parse_slice(files), absolute(base_url)
    if not is_url(base) and not Path(base).is_dir():
        raise SourceError(f"{base} is not a folder: set base_url to the folder, or to the URL, that paths start at")
    root = path_of(without_secrets(base)).rstrip("/") + "/"
    lists = dict[str, Mapping[str, Any]]()
    found = dict[str, Part]()
    count = repeated = 0
    for path in map(absolute, paths):
        name, before = without_secrets(path), count
        if name in lists:
            raise SourceError(f"paths names {name} twice: name each list once")
        with reading([path]) as read:
            for number, line in _list_lines(path):
                if count in chosen:
                    try:
                        below = _below_root(line, root, endings)
                    except SourceError as wrong:
                        raise SourceError(f"{name}, line {number:,}: {wrong}") from None
                    repeated += below in found
                    found[below] = Part(below, (join(base, below),))
                count += 1
                if count > MOST_PATHS:
                    raise SourceError(f"{name} has more than {MOST_PATHS:,} paths: write those you want into a list")
        lists[name] = {"bytes": read[0].bytes, "sha256": read[0].sha256, "paths": count - before}
    _check_range(files, chosen, count, ", ".join(lists))
    if repeated:
        warn_user(f"{counted(repeated, 'line')} of {', '.join(lists)} repeat a path: each file is read once")
    return Listed(tuple(found[name] for name in sorted(found)), lists)


def _list_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that is not blank.

    Damage is a SourceError under any policy for broken files, because it is unknown which files the lost lines name.
    """
    name = without_secrets(path)

    def stop(loss: Loss) -> None:
        if loss.kind == "line":
            raise SourceError(f"{name}, line {loss.line:,} has more than {LONGEST_LINE:,} bytes: check paths")
        raise SourceError(f"{name} {loss.reason}: fetch it again")

    number = 0
    try:
        for block in read_blocks(path, most_bytes=LONGEST_LINE, on_loss=stop):
            for number, line in enumerate(bytes(block).splitlines(), number + 1):  # noqa: B020  # continues the numbers of the last block
                if text := line.strip():
                    yield number, text.decode("utf-8-sig")
    except DamagedFileError as damage:
        raise SourceError(f"the list {name} {damage}: check paths") from damage
    except UnicodeDecodeError as wrong:
        raise SourceError(f"{name}, line {number:,} is not UTF-8: check paths") from wrong


def _below_root(line: str, root: str, endings: tuple[str, ...]) -> str:
    """Return the path in a line, relative to the root, or raise a SourceError if it may lead out of the root."""
    path = (line if is_url(root) else line.removeprefix("file://")).removeprefix(root)
    leaves = any(step in _NOT_BELOW for step in unquote(path).split("/"))
    # Two colons chain file systems of fsspec; a query or fragment is not part of a file name.
    if leaves or "::" in path or not path.isprintable() or any(sign in path for sign in "\\?#"):
        raise SourceError(
            f"{quoted(line)} is not a path below {root}. Fix the line, or set base_url to what the paths start at"
        )
    if not has_ending(path, endings):
        raise SourceError(
            f"{quoted(line)} does not end in {', '.join(endings)}. Set paths to a list of such files, or name files "
            "with data_files"
        )
    return path


def _check_range(files: str | None, chosen: range, count: int, names: str) -> None:
    there = f"{names} has {counted(count, 'path')}"
    if not count:
        raise SourceError(f"{there}: check paths")
    if chosen.start >= count or (chosen.stop > count and chosen.stop != _NO_STOP):
        raise SourceError(f"files is {files!r}, and {there}: set files to a slice of '0:{count}'")
