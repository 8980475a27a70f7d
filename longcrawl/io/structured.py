"""JSON and YAML files: limits on reading, seals with SHA-256, and markers of finished work.

A marker is a sealed JSON file that is written after the files of finished work. ``content`` has their counts, ``files``
their bytes and SHA-256 by path relative to the marker. Files may be on disk for days, so they are compared with the
marker when they are first read. If either has changed, the work is done again.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import UnionType
from typing import Any

import yaml

from longcrawl.errors import (
    CorruptionError,
    FormatError,
    LongCrawlError,
    RunError,
    as_lines,
    one_line,
    quoted,
    unreadable,
    warn_user,
)
from longcrawl.io.files import (
    bring,
    bring_again,
    checksum,
    content_digest,
    file_entries,
    reread_when_changed,
    write_text,
)

DEPTH = 100
"""Maximum nesting depth of lists and mappings."""
ENTRIES = 1_000_000
"""Maximum number of values in YAML after every alias is expanded."""


class SafeLoader(yaml.SafeLoader):
    """PyYAML's safe loader with numbers like 5e9, as in YAML 1.2; YAML 1.1 requires 5.0e+9."""


_EXPONENT = re.compile(r"[-+]?[0-9]{1,400}(\.[0-9]{0,400})?[eE][-+]?[0-9]{1,4}$")
SafeLoader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def load_yaml(text: str, loader: Any = SafeLoader) -> Any:
    """Parse one YAML document to plain values, with a safe loader of PyYAML or a class derived from one.

    >>> load_yaml("{a: [1, 2], b: no, c: 5e9}")
    {'a': [1, 2], 'b': False, 'c': 5000000000.0}

    Raises:
        RepeatedKeyError: a mapping has two equal keys, of which PyYAML would silently take the last.
        yaml.YAMLError: the text is not YAML of values that Python has, or exceeds ``DEPTH`` or ``ENTRIES``.
    """
    try:
        _check_limits(text, loader)
        return yaml.load(text, Loader=_with_distinct_keys(loader))  # noqa: S506  # callers pass safe loaders only
    except yaml.YAMLError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as wrong:
        # For example a date with month 13, a number of 5,000 digits, or !!float before a word.
        raise yaml.YAMLError(f"{type(wrong).__name__}: {wrong}") from wrong


def fields_set(overrides: Iterable[str], of: str, error: type[LongCrawlError]) -> dict[str, Any]:
    """Return the fields that ``--set FIELD=VALUE`` names, with YAML values; ``of`` names their owner in errors.

    >>> fields_set(["batch_size=8", "split=heldout"], "a feed", FormatError)
    {'batch_size': 8, 'split': 'heldout'}
    """
    settings = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not name.isidentifier() or not equals:
            raise error(f"--set takes FIELD=VALUE of {of}, got {override!r}")
        with unreadable(f"--set {override!r}", error, "give FIELD=VALUE with a value in YAML"):
            settings[name] = load_yaml(text)
    return settings


def _check_limits(text: str, loader: Any) -> None:
    """Check the number and depth of values from parser events, before any value is constructed."""
    entries = 0
    sizes: dict[str, int] = {}
    """Number of values in each finished node with an anchor."""
    open_nodes: list[tuple[str | None, int]] = []
    """Anchors of the open lists and mappings, with the number of values before each."""
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise _too_much(f"the alias *{event.anchor} is inside the value it refers to", event)
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
            raise _too_much(f"lists and mappings are nested more than {DEPTH} deep", event)
        if entries > ENTRIES:
            raise _too_much(f"there are more than {ENTRIES:,} values, aliases counted in full", event)


def _too_much(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


_MERGE = "tag:yaml.org,2002:merge"


def _check_keys(loader: Any, node: yaml.MappingNode) -> None:
    first: dict[Any, yaml.ScalarNode] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            value = loader.construct_object(key)
            if first.setdefault(value, key) is not key:
                raise RepeatedKeyError(first[value], key)


def _merged_mappings(key: yaml.Node, value: yaml.Node) -> list[Any]:
    """Return the mappings that a merge entry (``<<``) merges; empty for any other or an invalid entry."""
    sources: list[Any] = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return sources if key.tag == _MERGE and all(isinstance(each, yaml.MappingNode) for each in sources) else []


@cache
def _with_distinct_keys(loader: Any) -> Any:
    """Return a loader class that rejects mappings with two equal keys, except between merged mappings (``<<``)."""

    class Distinct(loader):  # type: ignore[misc]  # the base class is known at run time only
        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self.flat = set[yaml.MappingNode]()

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            # PyYAML 6.0.4 loses merged values: it compares keys by identity, and keeps the last of several mappings.
            if node in self.flat:
                return
            self.flat.add(node)
            _check_keys(self, node)
            merged = []
            for entry in list(node.value):
                if sources := _merged_mappings(*entry):
                    node.value.remove(entry)
                for each in reversed(sources):
                    self.flatten_mapping(each)
                    merged += each.value
            super().flatten_mapping(node)
            node.value = merged + node.value

    return Distinct


class RepeatedKeyError(yaml.MarkedYAMLError):
    """A mapping has two equal keys."""

    def __init__(self, first: yaml.ScalarNode, second: yaml.ScalarNode) -> None:
        super().__init__(problem=f"the key {second.value!r} is given twice: keep one", problem_mark=second.start_mark)
        self._key, self._lines = second.value, sorted({node.start_mark.line + 1 for node in (first, second)})

    def __str__(self) -> str:
        lines = " and ".join(map(str, self._lines))
        return f"the key {self._key!r} is given twice, in line{'s' * (len(self._lines) - 1)} {lines}: keep one"


def load_json(text: str | bytes) -> Any:
    """Parse a JSON text; raise ValueError if it is not valid, or nested more than ``DEPTH`` deep.

    >>> load_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    too_deep = f"lists and objects are nested more than {DEPTH} deep"
    try:
        value = json.loads(text)
    except RecursionError as wrong:
        raise ValueError(too_deep) from wrong
    level = [value]
    for _ in range(DEPTH):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [child for each in inside for child in each if isinstance(child, dict | list)]
        if not level:
            return value
    raise ValueError(too_deep)


Kinds = Sequence[tuple[Any, ...]]
"""Rows of a type or a check function, the description of valid values, and paths such as "files.*.bytes"."""


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number from 0 to 2**63 - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def may_be_count(value: Any) -> bool:
    """Return whether a value is null or a whole number from 0 to 2**63 - 1."""
    return value is None or is_count(value)


def misfits(content: Mapping[str, Any], kinds: Kinds) -> Iterator[tuple[str, Any, str]]:
    """Yield path, value and expected kind of each wrong value that exists, outer values before inner ones."""
    rows = [(path, right, kind) for right, kind, *paths in kinds for path in paths]
    for path, right, kind in sorted(rows, key=lambda row: row[0].count(".")):
        first, *rest = path.split(".")
        if first in content:
            for name, value in _found(content[first], rest, first):
                if not (isinstance(value, right) if isinstance(right, type | UnionType) else right(value)):
                    yield name, value, kind


def _found(value: Any, rest: Sequence[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the existing values at a path, with their full names; "*" matches every entry."""
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
"""Name of the entry with the SHA-256 of all other entries."""


def seal(content: Mapping[str, Any]) -> str:
    """Return JSON whose last entry is the SHA-256 of the JSON without this entry.

    >>> seal(json.loads(seal({"rows": 1}))) == seal({"rows": 1})
    True
    """
    unsealed = {name: value for name, value in content.items() if name != SEAL}
    # File names may have lone surrogates, which UTF-8 cannot encode: only these are written as JSON escapes.
    text = json.dumps(unsealed, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
    entry = f' "{SEAL}": "{hashlib.sha256(text).hexdigest()}"\n}}\n'
    # Same text as json.dumps with one more entry, without dumping all others again: that took a tenth of a small run.
    return f"{text.decode().removesuffix('}').rstrip()}{',' if unsealed else ''}\n{entry}"


def is_sealed(file: Path, content: Mapping[str, Any]) -> bool:
    """Return whether the bytes of a sealed JSON file match its SHA-256."""
    # The bytes are hashed as they are: dumping the JSON again for each marker would take ten times as long.
    body, _, end = file.read_bytes().rpartition(f'\n "{SEAL}": "'.encode())
    unsealed = b"{}" if body == b"{" else body.removesuffix(b",") + b"\n}"
    digest = hashlib.sha256(unsealed).hexdigest()
    return body.endswith((b",", b"{")) and end == f'{digest}"\n}}\n'.encode() and content.get(SEAL) == digest


def verify_files(
    folder: Path, files: Mapping[str, Mapping[str, Any]], digest: Callable[[Path], str | None] = checksum
) -> Iterator[str]:
    """Compare files, named relative to a directory, with their bytes and SHA-256; yield one line per problem."""
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
    """A marker or a file of finished work has changed since it was written."""

    def __init__(self, problem: str, *stale: Path) -> None:
        super().__init__(problem, *stale)
        self.problem = problem
        self.stale = stale
        """Markers, or directories of markers, to remove so that the work is done again."""

    def __str__(self) -> str:
        return f"{self.args[0]} although it was written again: check disk and memory, then run the same command again"


@dataclass(frozen=True)
class Marker:
    """A sealed record of finished files, see the docstring of this module."""

    path: Path
    content: dict[str, Any]
    files: Mapping[str, Mapping[str, Any]]

    @staticmethod
    def entries(path: Path, files: Iterable[Path]) -> dict[str, dict[str, int | str]]:
        """Return bytes and SHA-256 of finished files, by their paths relative to the marker."""
        # The directory of the marker, to which the names are relative, may not exist yet.
        entries = file_entries(Path(), [str(file) for file in files])
        return {os.path.relpath(file, path.parent): entry for file, entry in entries.items()}

    def write(self) -> None:
        """Write the marker, after its files."""
        write_text(self.path, seal({"content": self.content, "files": self.files}))

    @classmethod
    def read(cls, path: Path) -> "Marker | None":
        """Read a marker, or return None if it is missing or damaged."""
        return cls.read_all([path])[0]

    @classmethod
    def read_all(cls, paths: Iterable[Path]) -> "list[Marker | None]":
        """Read several markers like :meth:`read`, downloading all of them together from a store."""
        named = list(paths)
        bring(*named)
        return [_read_marker(str(path)) for path in named]

    @classmethod
    def whole(cls, path: Path) -> "Marker | None":
        """Read a marker and verify all its files; return None, with a warning, if something is damaged."""
        if (marker := cls.read(path)) is not None:
            problem = next(marker.problems(path.parent / name for name in marker.files), "")
            if not problem:
                return marker
        elif path.exists():
            problem = f"{path} is damaged"
        else:
            return None
        warn_user(f"{problem}: its work is done again")
        return None

    @classmethod
    def open(cls, path: Path, *files: Path) -> "Marker":
        """Read a marker and :meth:`check` the given files; a process reads each file once for that."""
        marker = cls.read(path)
        if marker is None:
            raise DamagedWorkError(f"{path} is missing or damaged", path)
        marker.check(*files)
        return marker

    def check(self, *files: Path) -> None:
        """Verify files against the marker; raise DamagedWorkError if one is missing or has changed."""
        for problem in self.problems(files):
            raise DamagedWorkError(problem, self.path)

    def names(self, file: Path) -> bool:
        """Return whether the marker lists a file."""
        return resolved(file) in self.resolved_files()

    def problems(self, files: Iterable[Path]) -> Iterator[str]:
        """Verify files against the marker and yield one line per problem."""
        compared = list(files)
        known = self.resolved_files() if compared else {}
        for file in compared:
            name = resolved(file)
            if name not in known:
                yield f"{file} is not among the files of {self.path}"
            else:
                yield from verify_files(Path(), {name: known[name]}, lambda each: content_digest(str(each)))

    def resolved_files(self) -> dict[str, Mapping[str, Any]]:
        """Return the entries of the marker's files by absolute path."""
        folder = _resolved_folder(os.path.abspath(self.path.parent))  # noqa: PTH100  # as a text
        return {os.path.normpath(f"{folder}/{name}"): entry for name, entry in self.files.items()}


@reread_when_changed(1 << 12)
def _read_marker(path: str) -> Marker | None:
    """Read a marker once until it changes: the leading process needs the markers of all parts about ten times."""
    # Flipped bits can turn JSON into anything.
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, AttributeError, KeyError, RecursionError):
        file = Path(path)
        found = json.loads(file.read_bytes())
        if is_sealed(file, found):
            return Marker(file, found["content"], found["files"])
    return None


def resolved(file: Path) -> str:
    """Return the absolute path of a file in a run's folder, which has no links.

    >>> resolved(Path("/", "proc", "..", "proc", "stat"))
    '/proc/stat'
    """
    return os.path.normpath(f"{_resolved_folder(os.path.abspath(file.parent))}/{file.name}")  # noqa: PTH100  # as a text


@lru_cache(1 << 10)
def _resolved_folder(folder: str) -> str:
    """Look up the links on the way to a folder once: a leading process needs the paths of all parts' files."""
    return os.path.realpath(folder)


def sealed_files(text: bytes, file: str) -> dict[str, str]:
    """Return the SHA-256 of the files listed in a description, by name; ``file`` is its path for messages."""
    fix = f"copy {file} back, or build the dataset again"
    described = unsealed(text, file, fix)
    with unreadable(file, CorruptionError, fix):
        return {name: entry["sha256"] for name, entry in described["files"].items()}


def unsealed(text: bytes, file: str, fix: str) -> dict[str, Any]:
    """Verify sealed JSON and return its content; raise CorruptionError if it has changed or is not sealed."""
    with unreadable(file, CorruptionError, fix):
        described: dict[str, Any] = load_json(text)
        whole = text == seal(described).encode()
    if not whole:
        raise CorruptionError(f"{file} has been changed: the SHA-256 that it records differs; {fix}")
    return described


def check_unchanged(file: Path) -> None:
    """Raise CorruptionError if a description is not JSON, or has a seal and has changed since it was written."""
    fix = "longcrawl verify shows what else is wrong; restore it, or build it again"
    with unreadable(file, CorruptionError, fix):
        described = load_json(file.read_bytes())
    if isinstance(described, dict) and SEAL in described:
        unsealed(file.read_bytes(), str(file), fix)


def verify_described(folder: Path, name: str, described: Mapping[str, Any], files: str = "*") -> Iterator[str]:
    """Verify a directory, or the files that match a pattern, against its description ``name``; yield the problems."""
    if not is_sealed(folder / name, described):
        yield f"{name} has been changed: the SHA-256 that it records differs"
        return
    yield from verify_files(folder, described["files"])
    there = {path.relative_to(folder).as_posix() for path in folder.rglob(files) if path.is_file()}
    yield from (f"{extra} is not part of this output" for extra in sorted(there - described["files"].keys() - {name}))


@dataclass(frozen=True)
class Verification:
    """The result of a verification; ``problems`` is empty if the output is whole."""

    path: str
    checked: str
    problems: tuple[str, ...]

    @classmethod
    def by_description(cls, folder: Path, name: str, described: Mapping[str, Any], files: str = "*") -> "Verification":
        """Verify the files of an output that match ``files`` against its description, the file ``name``."""
        checked = f"{len(described['files'])} files compared with their SHA-256"
        return cls(str(folder), checked, tuple(verify_described(folder, name, described, files)))

    def __str__(self) -> str:
        if not self.problems:
            return one_line(f"{self.path}: whole; {self.checked}")
        return as_lines(
            [f"{self.path}: {len(self.problems)} problem(s); {self.checked}", *(f"  {each}" for each in self.problems)]
        )

    __repr__ = __str__


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and is_count(value.get("bytes")) and isinstance(value.get("sha256"), str)


def _is_bucket(value: Any) -> bool:
    """Return whether a value describes a bucket of a composed dataset or of token shards."""
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
"""Valid values of the entries that are read from descriptions, if they exist."""


def read_description(
    file: Path, kind: str, version: int, needed: Sequence[str], of_splits: Sequence[str] = ()
) -> dict[str, Any]:
    """Read and check the description of an output, such as ``rectangle.json`` of the kind "rectangle".

    Its entry ``longcrawl_KIND`` must be ``version``. It must have the entries ``needed``, and each split the entries
    ``of_splits``. A missing, malformed or unknown entry is a FormatError.
    """
    if not file.is_file():
        raise FormatError(f"{file.parent} has no {file.name}: it is not a finished {kind} of longcrawl")
    with unreadable(file, FormatError, f"restore it, or build the {kind} again"):
        described: dict[str, Any] = load_json(file.read_text("utf-8"))
    if not isinstance(described, dict):
        raise FormatError(f"{file} is not a JSON object; build the {kind} again")
    if (found := described.get(f"longcrawl_{kind}")) != version:
        raise FormatError(
            f"{file.parent} is a {kind} of version {found!r}, but this longcrawl reads version {version}: upgrade "
            "longcrawl"
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
