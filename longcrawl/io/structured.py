"""YAML and JSON of others, within limits on depth and aliases, and which kinds of values JSON of a known form holds."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any

import yaml

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
