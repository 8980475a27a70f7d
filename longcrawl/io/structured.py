"""JSON and YAML files: read within limits, and sealed with SHA-256.

A marker is a sealed JSON file that is written after the files it stands for: ``content`` is what was counted,
``files`` has bytes and SHA-256 by path relative to the marker. What lies on disk for days is compared with it when it
is first read: a marker that is not as it was written counts as missing, and so does one whose files are not, so that
what it stands for is made again.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Self

import yaml

from longcrawl.errors import CorruptionError, FormatError, RunError, quoted, unreadable, warn_user
from longcrawl.io.files import bring, bring_again, checksum, content_digest, file_entries, write_text

DEPTH = 100
"""How deep lists and mappings may lie in one another."""
ENTRIES = 1_000_000
"""How many values YAML may have once every alias is replaced by what it stands for."""


class SafeLoader(yaml.SafeLoader):
    """PyYAML's safe loader, to which 5e9 is a number, as in YAML 1.2; YAML 1.1 wants 5.0e+9."""


_EXPONENT = re.compile(r"[-+]?[0-9]{1,400}(\.[0-9]{0,400})?[eE][-+]?[0-9]{1,4}$")
SafeLoader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def load_yaml(text: str, loader: Any = SafeLoader) -> Any:
    """Return the plain values of one YAML document, read by a safe loader of PyYAML or a class made of one.

    >>> load_yaml("{a: [1, 2], b: no, c: 5e9}")
    {'a': [1, 2], 'b': False, 'c': 5000000000.0}

    Raises:
        RepeatedKeyError: a mapping has two equal keys, of which PyYAML would silently take the last.
        yaml.YAMLError: it is not YAML, holds a value that Python cannot, or exceeds ``DEPTH`` or ``ENTRIES``.
    """
    try:
        _check_limits(text, loader)
        return yaml.load(text, Loader=_with_distinct_keys(loader))  # noqa: S506  # a safe one, says the argument
    except yaml.YAMLError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as wrong:
        # A date of month 13, a number of 5,000 digits, !!float of a word.
        raise yaml.YAMLError(f"{type(wrong).__name__}: {wrong}") from wrong


def _check_limits(text: str, loader: Any) -> None:
    """Count values and their depth from what the parser finds, before anything is made of it."""
    entries = 0
    sizes: dict[str, int] = {}
    """Values by anchor, of those that are whole."""
    open_nodes: list[tuple[str | None, int]] = []
    """Anchors of lists and mappings that have begun, and the values before them."""
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise _TooMuchError(f"the alias *{event.anchor} stands inside of what it stands for", event.start_mark)
            entries += sizes.get(str(event.anchor), 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes |= {} if anchor is None else {anchor: entries - before}
        elif isinstance(event, yaml.NodeEvent):
            entries += 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append((event.anchor, entries - 1))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
        if len(open_nodes) > DEPTH:
            raise _TooMuchError(f"lists and mappings lie more than {DEPTH} deep", event.start_mark)
        if entries > ENTRIES:
            raise _TooMuchError(f"there are more than {ENTRIES:,} values, aliases counted in full", event.start_mark)


@cache
def _with_distinct_keys(loader: Any) -> Any:
    """Return a loader that rejects a mapping with two equal keys; merged mappings (``<<``) may have the same."""

    class Distinct(loader):  # type: ignore[misc]  # which loader is known when it runs
        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self.checked = set[yaml.MappingNode]()

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            # A node that is merged into several is flattened again, then with the keys of those merged into it.
            if node not in self.checked:
                self.checked.add(node)
                self.check_keys(node)
            super().flatten_mapping(node)

        def check_keys(self, node: yaml.MappingNode) -> None:
            first: dict[Any, yaml.ScalarNode] = {}
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    value = self.construct_object(key)
                    if first.setdefault(value, key) is not key:
                        raise RepeatedKeyError(first[value], key)

    return Distinct


class RepeatedKeyError(yaml.MarkedYAMLError):
    """A mapping has two equal keys."""

    def __init__(self, first: yaml.ScalarNode, second: yaml.ScalarNode) -> None:
        super().__init__(problem=f"the key {second.value!r} is given twice: keep one", problem_mark=second.start_mark)
        self._key, self._lines = second.value, sorted({node.start_mark.line + 1 for node in (first, second)})

    def __str__(self) -> str:
        lines = " and ".join(map(str, self._lines))
        return f"the key {self._key!r} is given twice, in line{'s' * (len(self._lines) - 1)} {lines}: keep one"


class _TooMuchError(yaml.MarkedYAMLError):
    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


def load_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    >>> load_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}

    Raises:
        ValueError: it is not JSON, or lies deeper than ``DEPTH``.
    """
    try:
        value = json.loads(text)
    except RecursionError as wrong:
        raise _too_deep() from wrong
    level = [value]
    for _ in range(DEPTH):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [child for each in inside for child in each if isinstance(child, dict | list)]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"lists and objects lie more than {DEPTH} deep")


Kinds = Sequence[tuple[Any, ...]]
"""A type or a function that says whether a value is right, what it should be, and paths such as "files.*.bytes"."""


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of 0 or more, and below 2**63."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def may_be_count(value: Any) -> bool:
    """Return whether a value is such a number or null."""
    return value is None or is_count(value)


def misfits(content: Mapping[str, Any], kinds: Kinds) -> Iterator[tuple[str, Any, str]]:
    """Yield path and value of what is there and of another kind, and what it should be; the whole before its parts."""
    rows = [(path, right, kind) for right, kind, *paths in kinds for path in paths]
    for path, right, kind in sorted(rows, key=lambda row: row[0].count(".")):
        first, *rest = path.split(".")
        if first in content:
            for name, value in _found(content[first], rest, first):
                if not (isinstance(value, right) if isinstance(right, type | UnionType) else right(value)):
                    yield name, value, kind


def _found(value: Any, rest: Sequence[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield all that a path leads to, with its name; "*" stands for each, and what is not there is left out."""
    if not rest:
        yield name, value
        return
    step, *rest = rest
    if value is None:
        below = []
    elif step != "*":
        below = [(f".{step}", value[step])] if step in value else []
    elif isinstance(value, dict):
        below = [(f".{key}", each) for key, each in value.items()]
    else:
        below = [(f"[{number}]", each) for number, each in enumerate(value)]
    for key, each in below:
        yield from _found(each, rest, f"{name}{key}")


SEAL = "sha256"
"""The entry of a description that is the SHA-256 of all others."""


def seal(content: Mapping[str, Any]) -> str:
    """Return JSON whose last entry is the SHA-256 of the JSON without it: the file of all checksums has its own.

    >>> seal(json.loads(seal({"rows": 1}))) == seal({"rows": 1})
    True
    """
    unsealed = {name: value for name, value in content.items() if name != SEAL}
    # Names of files may hold lone surrogates, which UTF-8 cannot: these alone are written as JSON's escapes.
    text = json.dumps(unsealed, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
    entry = f' "{SEAL}": "{hashlib.sha256(text).hexdigest()}"\n}}\n'
    # What json.dumps makes of one more entry, which would spell all others again: it took a tenth of a small run.
    return f"{text.decode().removesuffix('}').rstrip()}{',' if unsealed else ''}\n{entry}"


def is_sealed(file: Path, content: Mapping[str, Any]) -> bool:
    """Return whether a JSON file that holds its own SHA-256 is, to the byte, as it was written."""
    # The bytes are hashed as they are: to spell the JSON again takes ten times as long, for each marker of each step.
    body, _, end = file.read_bytes().rpartition(f'\n "{SEAL}": "'.encode())
    unsealed = b"{}" if body == b"{" else body.removesuffix(b",") + b"\n}"
    digest = hashlib.sha256(unsealed).hexdigest()
    return body.endswith((b",", b"{")) and end == f'{digest}"\n}}\n'.encode() and content.get(SEAL) == digest


def verify_files(
    folder: Path, files: Mapping[str, Mapping[str, Any]], digest: Callable[[Path], str | None] = checksum
) -> Iterator[str]:
    """Compare files, named relative to a folder, with their bytes and SHA-256; yields one sentence per problem."""
    bring(*(folder / name for name in files))
    for name, expected in files.items():
        problem = _problem(folder, name, expected, digest)
        if problem and bring_again(folder / name):
            problem = _problem(folder, name, expected, digest)
        if problem:
            yield problem


def _problem(folder: Path, name: str, expected: Mapping[str, Any], digest: Callable[[Path], str | None]) -> str:
    file = folder / name
    if not file.is_file():
        return f"{name} is missing"
    if file.stat().st_size != expected["bytes"]:
        return f"{name} has {file.stat().st_size:,} bytes, expected {expected['bytes']:,}"
    return f"{name} has been changed: its SHA-256 differs" if digest(file) != expected["sha256"] else ""


class DamagedWorkError(RunError):
    """A file that a marker stands for is not as it was written."""

    def __init__(self, problem: str, *stale: Path) -> None:
        super().__init__(problem, *stale)
        self.problem = problem
        self.stale = stale
        """Markers, or folders of them, to be removed, so that what they stand for is made again."""

    def __str__(self) -> str:
        return f"{self.args[0]} though it was made again: check disk and memory, then type the same command again"


@dataclass(frozen=True)
class Marker:
    """What stands for finished files, see this module's docstring."""

    path: Path
    content: dict[str, Any]
    files: Mapping[str, Mapping[str, Any]]

    @staticmethod
    def entries(path: Path, files: Iterable[Path]) -> dict[str, dict[str, int | str]]:
        """Return bytes and SHA-256 of finished files, by their paths relative to the marker."""
        # The marker's folder, from which the names start, need not be there yet.
        entries = file_entries(Path(), [str(file) for file in files])
        return {os.path.relpath(file, path.parent): entry for file, entry in entries.items()}

    def write(self) -> None:
        """Write the marker, after its files."""
        write_text(self.path, seal({"content": self.content, "files": self.files}))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return a marker; None where there is none, or it is not as it was written."""
        return cls.read_all([path])[0]

    @classmethod
    def read_all(cls, paths: Iterable[Path]) -> list[Self | None]:
        """Return several markers as :meth:`read` does; a store is asked for all of them together."""
        named = list(paths)
        bring(*named)
        return [cls._read(path) for path in named]

    @classmethod
    def _read(cls, path: Path) -> Self | None:
        try:
            found = json.loads(path.read_bytes())
            if is_sealed(path, found):
                return cls(path, found["content"], found["files"])
        except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError, KeyError, RecursionError):
            # Flipped bits make anything of JSON.
            return None
        return None

    @classmethod
    def whole(cls, path: Path) -> Self | None:
        """Return a marker all of whose files are as they were written; None, with a warning, where one is not."""
        marker = cls.read(path)
        if marker is None and not path.exists():
            return None
        problem = f"{path} is damaged"
        if marker is not None:
            problem = next(marker.problems(path.parent / name for name in marker.files), "")
        if not problem:
            return marker
        warn_user(f"{problem}: what it was made for is made again")
        return None

    @classmethod
    def open(cls, path: Path, *files: Path) -> Self:
        """Return a marker, after comparing the files named with it; a process reads each of them once for that.

        Raises:
            DamagedWorkError: one of them, or the marker, is not as it was written.
        """
        marker = cls.read(path)
        if marker is None:
            raise DamagedWorkError(f"{path} is missing or damaged", path)
        marker.check(*files)
        return marker

    def check(self, *files: Path) -> None:
        """Compare files with what was written.

        Raises:
            DamagedWorkError: one of them is not as it was written.
        """
        for problem in self.problems(files):
            raise DamagedWorkError(problem, self.path)

    def names(self, file: Path) -> bool:
        """Return whether a file is among those that the marker stands for."""
        return str(file.resolve()) in self.resolved_files()

    def problems(self, files: Iterable[Path]) -> Iterator[str]:
        """Compare files with what was written; yields one sentence per problem."""
        compared = list(files)
        known = self.resolved_files() if compared else {}
        for file in compared:
            name = str(file.resolve())
            if name not in known:
                yield f"{file} is not among the files of {self.path}"
            else:
                yield from verify_files(Path(), {name: known[name]}, lambda each: content_digest(str(each)))

    def resolved_files(self) -> dict[str, Mapping[str, Any]]:
        """Return the entries of the files by their absolute paths."""
        return {os.path.realpath(f"{self.path.parent}/{name}"): entry for name, entry in self.files.items()}


def sealed_files(text: bytes, file: str) -> dict[str, str]:
    """Return the SHA-256 of the files that a description names, by name; ``file`` is where the description lies.

    Raises:
        CorruptionError: the description was changed after it was written, or is not one.
    """
    fix = f"copy {file} back, or build the dataset again"
    described = unsealed(text, file, fix)
    with unreadable(file, CorruptionError, fix):
        return {name: entry["sha256"] for name, entry in described["files"].items()}


def unsealed(text: bytes, file: str, fix: str) -> dict[str, Any]:
    """Return the content of JSON that holds its own SHA-256, after comparing it.

    Raises:
        CorruptionError: it was changed after it was written, or is not such JSON.
    """
    with unreadable(file, CorruptionError, fix):
        described: dict[str, Any] = load_json(text)
        whole = text == seal(described).encode()
    if not whole:
        raise CorruptionError(f"{file} has been changed: the SHA-256 that it gives of itself differs; {fix}")
    return described


def check_unchanged(file: Path) -> None:
    """Compare a description with the SHA-256 that it gives of itself, where it gives one.

    Raises:
        CorruptionError: it was changed after it was written, or is not JSON.
    """
    fix = "longcrawl verify says what else is wrong; copy it back, or build it again"
    with unreadable(file, CorruptionError, fix):
        described = load_json(file.read_bytes())
    if isinstance(described, dict) and SEAL in described:
        unsealed(file.read_bytes(), str(file), fix)


def verify_described(folder: Path, name: str, described: Mapping[str, Any], files: str = "*") -> Iterator[str]:
    """Compare all that lies in a folder, or all of a pattern, with its description ``name``; yields sentences."""
    if not is_sealed(folder / name, described):
        yield f"{name} has been changed: the SHA-256 that it gives of itself differs"
        return
    yield from verify_files(folder, described["files"])
    there = {path.relative_to(folder).as_posix() for path in folder.rglob(files) if path.is_file()}
    yield from (f"{extra} is not part of this output" for extra in sorted(there - described["files"].keys() - {name}))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and is_count(value.get("bytes")) and isinstance(value.get("sha256"), str)


def _is_bucket(value: Any) -> bool:
    """Return whether this names a bucket of a composed dataset, or of token shards."""
    return isinstance(value, dict) and any(names <= set(value) for names in ({"path", "split"}, {"folder", "splits"}))


COUNTED = ("documents", "bytes", "files", "entries", "tokens", "shards", "samples")
BUCKETS_COUNT = ("capacity", "samples", "pieces", "file_samples")
DESCRIBED: Kinds = (
    (dict, "an object", "files", "splits", "splits.*", "columns", "shapes"),
    (list, "a list", "buckets"),
    (str, "a text", "columns.*", "dtype", "stored_as", "buckets.*.path", "buckets.*.split"),
    (bool, "true or false", "json_escaped", "loss_mask"),
    (is_count, "a whole number", *(f"splits.*.{name}" for name in COUNTED)),
    (is_count, "a whole number", *(f"buckets.*.{name}" for name in BUCKETS_COUNT)),
    (may_be_count, "a whole number or null", "end_of_text"),
    (_is_file, "an object with bytes and sha256", "files.*"),
    (_is_shape, "rows and tokens", "shapes.*"),
    (_is_bucket, "an object with path and split, or folder and splits", "buckets.*"),
)
"""What is read of descriptions, where it is there."""


def read_description(
    file: Path, kind: str, version: int, needed: Sequence[str], of_splits: Sequence[str] = ()
) -> dict[str, Any]:
    """Read the description of an output, such as ``rectangle.json`` of the kind "rectangle".

    Its entry ``longcrawl_KIND`` must hold ``version``; it must have the entries ``needed``, and each split those
    ``of_splits``.

    Raises:
        FormatError: there is none, it is not of that form, or it is of a version that this longcrawl does not know.
    """
    if not file.is_file():
        raise FormatError(f"{file.parent} has no {file.name}: it is not a finished {kind} of longcrawl")
    with unreadable(file, FormatError, f"copy it back, or build the {kind} again"):
        described: dict[str, Any] = load_json(file.read_text("utf-8"))
    if not isinstance(described, dict):
        raise FormatError(f"{file} holds no JSON object; build the {kind} again")
    if (found := described.get(f"longcrawl_{kind}")) != version:
        raise FormatError(
            f"{file.parent} is a {kind} of version {found!r}, this longcrawl reads version {version}: upgrade longcrawl"
        )
    for name in needed:
        if name not in described:
            raise FormatError(f"{file} lacks {name!r}; build the {kind} again")
    for path, value, right in misfits(described, DESCRIBED):
        raise FormatError(f"{file}: {path} is {quoted(value)} and should be {right}; build the {kind} again")
    for split, recorded in described.get("splits", {}).items() if of_splits else ():
        if lacking := [name for name in of_splits if name not in recorded]:
            raise FormatError(f"{file}: splits.{split} lacks {', '.join(lacking)}; build the {kind} again")
    return described
