"""The files that ``data_dir`` and ``data_files`` name, or that lists of paths do, as the parts of a source.

Common Crawl publishes lists: ``warc.paths.gz`` names the files of a dump, one on each line. A list is read whole before
any file of it. Its lines come from elsewhere, so each has to name a file of the source below the base: a path from the
root, another server, ``..`` and the like are errors, and nothing is read then. Documents are the same from a server and
from a mirror on disk, since parts have the names that the list has.
"""

import itertools
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from longcrawl.core.display import counted
from longcrawl.core.sources import Loss, Part
from longcrawl.errors import SourceError, listed, quoted, warn_user
from longcrawl.io.files import match_files, unreachable
from longcrawl.sources.blocks import read_blocks
from longcrawl.sources.files import DamagedFileError, absolute, list_tree, match_remote, reading
from longcrawl.urls import has_pattern, is_url, join, path_of, without_secrets

COMMON_CRAWL = "https://data.commoncrawl.org/"
LONGEST_LINE = 4_096
"""Bytes; paths of Common Crawl have some 140."""
MOST_PATHS = 10_000_000
"""In all lists of a source together; all dumps of Common Crawl together have as many."""

_ABOUT = ("README", "LICENSE", "LICENCE")
_READ_PACKED = (".gz", ".zst")
_PACKED = (*_READ_PACKED, ".xz", ".bz2", ".lz4")
_NO_STOP = MOST_PATHS + 1
_SLICE = re.compile(r"([0-9]{0,12}):([0-9]{0,12})(?::([0-9]{1,12}))?")
_NOT_BELOW = ("", ".", "..")
"""Steps of a path that may lead out of a folder; a scheme and a path from the root have an empty one."""

DataFiles = str | tuple[str, ...] | Mapping[str, Any] | None
"""A path, URL or glob, several, or a mapping from splits to them."""


def named_parts(
    source: str,
    data_dir: str | None,
    data_files: DataFiles,
    endings: tuple[str, ...],
    example: str,
    splits: Callable[[list[str]], Mapping[str, list[str]]] | None = None,
    *,
    whole: tuple[str, ...] = (),
    hint: str = "",
) -> dict[str, list[Part]]:
    """Return a part per file of every split, named relative to ``data_dir`` or the deepest folder that all files share.

    Args:
        source: its name, for messages.
        data_dir: a folder, read with all folders in it, or what ``data_files`` are relative to.
        data_files: what to read; None for all files of ``data_dir`` with one of the endings.
        endings: of the files that the source reads, in lower case.
        example: a pattern of such files, for messages.
        whole: those endings whose files are one document each, see :func:`readable`.
        hint: what to do about a folder without such files, as the end of a message.
        splits: gives the files of each split, of the names of all files below ``data_dir``; None for all those with
            one of the endings as "train", and a warning of others.

    Raises:
        SourceError: no file was named or found.
    """
    if data_files:
        files = chosen_files(data_dir, data_files)
    else:
        files = _below(source, data_dir, endings, example, splits, whole, hint)
    base = _base_of([_written(file) for chosen in files.values() for file in chosen], data_dir)
    return {split: _parts(chosen, base) for split, chosen in files.items()}


def _parts(files: list[str], base: str) -> list[Part]:
    """Name files by their paths.

    Raises:
        SourceError: two URLs differ in their queries or users only, so that their documents would have the same ids.
    """
    parts: dict[str, Part] = {}
    for file in sorted(set(files)):
        # Ids are UTF-8, which names of files need not be.
        name = _written(file).removeprefix(base).lstrip("/").encode("utf-8", "backslashreplace").decode()
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
    whole: tuple[str, ...],
    hint: str,
) -> dict[str, list[str]]:
    if not data_dir:
        raise SourceError(
            f"source {source!r} has nothing to read; set data_dir='FOLDER' or data_files='FOLDER/{example}'"
        )
    base = absolute(data_dir)
    if not is_url(base) and not Path(base).is_dir():
        raise SourceError(f"{base} is not a folder; set data_dir to one, or data_files to the file")
    tree = list_tree(base)
    others = [] if is_url(base) else unreachable(base, [name for name in tree if not has_ending(name, endings)])
    names = readable(tree, endings, whole)
    if not names and not others:
        raise SourceError(
            f"{without_secrets(base)} holds no file that can be read; known endings: {spell_endings(endings)}; found: "
            f"{count_endings(tree)}{hint}"
        )
    if splits is None:
        found = {"train": names}
        if left := _left_out([name for name in tree if name not in others], endings):
            warn_user(f"source {source!r}: {left}")
    else:
        found = dict(splits(tree))
    if others:
        found["train"] = [*found.get("train", []), *others]
    files = {split: [join(base, name) for name in names] for split, names in found.items()}
    return files if is_url(base) else {split: _once(names) for split, names in files.items()}


def _left_out(tree: Sequence[str], endings: tuple[str, ...]) -> str:
    """Return in a sentence what files of a folder are not read by their endings; nothing where there are none.

    A README and a LICENSE say something of the others, and do not count; hidden files are not listed at all.
    """
    left = [name for name in tree if not has_ending(name, endings) and not _is_about(name)]
    files = f"{counted(len(left), 'file')} of data_dir {'is' if len(left) == 1 else 'are'}"
    return (
        f"{files} not read, by ending: {count_endings(left)}. Convert or rename them, or move them away" if left else ""
    )


def has_ending(name: str, endings: tuple[str, ...]) -> bool:
    """Return whether the name of a file has one of some endings, in any case."""
    return name.lower().endswith(endings)


def readable(names: Iterable[str], endings: tuple[str, ...], whole: tuple[str, ...]) -> list[str]:
    """Return the names of files with one of some endings.

    A README or LICENSE that would be one document is left out beside files of records: it is about them.
    """
    found = [name for name in names if has_ending(name, endings)]
    if all(has_ending(name, whole) for name in found):
        return found
    return [name for name in found if not (has_ending(name, whole) and _is_about(name))]


def spell_endings(endings: Iterable[str]) -> str:
    """Return endings for a message, those of compressed files once.

    >>> spell_endings([".csv", ".csv.gz", ".csv.zst", ".parquet"])
    '.csv, .parquet, and the same before .gz and .zst'
    """
    plain = [ending for ending in endings if not ending.endswith(_READ_PACKED)]
    packed = ", and the same before .gz and .zst" if len(plain) < len(list(endings)) else ""
    return ", ".join(plain) + packed


def _is_about(name: str) -> bool:
    return name.rpartition("/")[2].upper().startswith(_ABOUT)


def count_endings(names: Iterable[str]) -> str:
    """Return the endings of files with the number of each, for a message.

    >>> count_endings(["a.pdf", "b.pdf", "c.xml.gz"])
    '.pdf 2, .xml.gz 1'
    """
    counts = Counter(_ending(name.rpartition("/")[2]) for name in names)
    return listed(f"{ending} {count:,}" for ending, count in sorted(counts.items())) if counts else "no files"


def _ending(name: str) -> str:
    """Return the ending of a name, with what is before it where that says that it is packed."""
    stem, ending = posixpath.splitext(name)
    return posixpath.splitext(stem)[1] + ending if ending in _PACKED else ending or "none"


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


@dataclass(frozen=True)
class Listed:
    """What lists of paths name."""

    parts: tuple[Part, ...]
    """A part for each file, sorted, with the names that the lists have."""
    lists: Mapping[str, Mapping[str, Any]]
    """Bytes, SHA-256 and number of paths of each list, by its path or URL without secrets."""


def parse_slice(files: Any) -> range:
    """Return which paths ``START:STOP:STEP`` stands for, counted from 0; each of the three may be left out.

    >>> parse_slice("0:90000:90")
    range(0, 90000, 90)

    Raises:
        SourceError: it is not such a slice, or it holds no path.
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
    """Read lists of paths, and choose among their lines.

    Args:
        paths: the lists, local files or URLs; gzip and zstd are decompressed.
        base_url: what the paths in them are relative to, a URL or a folder.
        files: which paths to take of all lists, one after the other, as :func:`parse_slice` reads it; None for all.
        endings: of the files that the source reads.

    Raises:
        SourceError: a list is missing or damaged, or has fewer paths than the slice; a line that was chosen does not
            name a file below the base.
        NotYetError: the server of a list does not give it now.
    """
    chosen, base = parse_slice(files), _list_base(base_url)
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
    _check_range(files, chosen, count, list(lists))
    if repeated:
        warn_user(f"{counted(repeated, 'line')} of {', '.join(lists)} repeat a path: each file is read once")
    return Listed(tuple(found[name] for name in sorted(found)), lists)


def _list_base(base_url: str) -> str:
    """Return the base without a slash at its end.

    Raises:
        SourceError: it is a folder, and is not there.
    """
    base = absolute(base_url)
    if not is_url(base) and not Path(base).is_dir():
        raise SourceError(f"{base} is not a folder: set base_url to the folder, or to the URL, that paths start at")
    return base


def _list_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines of a list that are not blank.

    Raises:
        SourceError: the list is missing, damaged, or not text; whatever the policy for broken files is, as nobody knows
            which files it would have named.
    """
    name = without_secrets(path)

    def stop(loss: Loss) -> None:
        if loss.kind == "line":
            raise SourceError(f"{name}, line {loss.line:,} has more than {LONGEST_LINE:,} bytes: check paths")
        raise SourceError(f"{name} {loss.reason}: fetch it again")

    number = 0
    try:
        for block in read_blocks(path, most_bytes=LONGEST_LINE, on_loss=stop):
            for number, line in enumerate(bytes(block).splitlines(), number + 1):  # noqa: B020  # it begins where the last block ended
                if text := line.strip():
                    yield number, text.decode("utf-8-sig")
    except DamagedFileError as damage:
        raise SourceError(f"the list {name} {damage}: check paths") from damage
    except UnicodeDecodeError as wrong:
        raise SourceError(f"{name}, line {number:,} is not UTF-8: check paths") from wrong


def _below_root(line: str, root: str, endings: tuple[str, ...]) -> str:
    """Return the path of a line relative to the root.

    Raises:
        SourceError: it may lead elsewhere, or it does not name a file that the source reads.
    """
    path = (line if is_url(root) else line.removeprefix("file://")).removeprefix(root)
    leaves = any(step in _NOT_BELOW for step in unquote(path).split("/"))
    # Two colons chain file systems of fsspec; a query and a fragment are no part of a file's name.
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


def _check_range(files: str | None, chosen: range, count: int, names: Sequence[str]) -> None:
    """Check that a slice ends within the lists.

    Raises:
        SourceError: it does not, or they are empty.
    """
    there = f"{', '.join(names)} has {counted(count, 'path')}"
    if not count:
        raise SourceError(f"{there}: check paths")
    if chosen.start >= count or (chosen.stop > count and chosen.stop != _NO_STOP):
        raise SourceError(f"files is {files!r}, and {there}: set files to a slice of '0:{count}'")
