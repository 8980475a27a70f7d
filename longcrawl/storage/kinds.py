"""What JSON of a known form holds where: kinds of values by path, checked once where a file is read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Kinds", "is_count", "is_list", "is_object", "is_text", "may_be_count", "misfits"]

Kinds = Sequence[tuple[str, Callable[[Any], bool], str]]
"""Paths such as "files.*.bytes", whether a value there is right, and what it should be; the whole before its parts."""


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of 0 or more, and below 2**63."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def is_text(value: Any) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def is_object(value: Any) -> bool:
    """Return whether a value is an object."""
    return isinstance(value, dict)


def is_list(value: Any) -> bool:
    """Return whether a value is a list."""
    return isinstance(value, list)


def may_be_count(value: Any) -> bool:
    """Return whether a value is such a number or null."""
    return value is None or is_count(value)


def misfits(content: Mapping[str, Any], kinds: Kinds) -> Iterator[tuple[str, Any, str]]:
    """Yield path and value of what is there and of another kind, and what it should be."""
    for path, is_right, kind in kinds:
        first, *rest = path.split(".")
        if first in content:
            for name, value in _found(content[first], rest, first):
                if not is_right(value):
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
