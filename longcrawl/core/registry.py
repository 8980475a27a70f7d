"""Kinds of one idea by name: longcrawl's own, those that installed packages announce, and any by its dotted path.

A package announces a kind by an entry point, such as ``poems = "my_package.sources:Poems"`` in the group
``longcrawl.sources``; ``my_package.sources:Poems`` names it without one. Nothing is imported before it is asked for.
"""

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from longcrawl.core.fields import build
from longcrawl.core.installed import announced_kinds
from longcrawl.errors import LongCrawlError, known_names, shortened

T = TypeVar("T")
K = TypeVar("K")

MOST_CHARACTERS = 60
"""Of an unknown name that a sentence repeats."""

Implementation = dict[str, str]
"""Of a kind from another package: ``path``, ``package`` and ``version`` where known, ``sha256`` of its module."""


def stage_name(spelling: str) -> str:
    """Return the name of a stage that may be spelled as a dotted path, of which nothing is imported.

    >>> stage_name("my_package.stages:OnlyPoems")
    'only_poems'
    """
    _, colon, path = spelling.rpartition(":")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.rpartition(".")[2]).lower() if colon else spelling


class Registry(MutableMapping[str, type[T]], Generic[T]):
    """The kinds of one idea, such as stages, each a class with a ``name``.

    Args:
        what: the idea in one word, for messages.
        base: the class that every kind is derived from.
        error: what is raised for a kind that is unknown or cannot be loaded.
        ours: the paths of longcrawl's own kinds by their names.
    """

    def __init__(self, what: str, base: type, error: type[LongCrawlError], ours: Mapping[str, str]) -> None:
        self.what = what
        self.group = f"longcrawl.{what}s"
        """The group of entry points in which packages announce their kinds."""
        self._base = base
        self._error = error
        self._ours = ours
        self._kinds: dict[str, type[T]] = {}

    def find(self, name: str, where: str | None = None, error: type[LongCrawlError] | None = None) -> type[T]:
        """Return the kind of this name or dotted path; its package is imported if need be.

        Args:
            name: such as ``min_chars`` or ``my_package.stages:OnlyPoems``.
            where: what begins the sentence of an error, such as ``recipe 'mini': stage 3``; the idea if left out.
            error: what is raised; the registry's own error if left out.

        Raises:
            LongCrawlError: there is none, or its package cannot be loaded.
        """
        subject, error = f"{where or self.what} {shortened(repr(name), MOST_CHARACTERS)}", error or self._error
        for known, kind in self._kinds.items():
            if name in (known, _path(kind)):
                return kind
        if name in self._ours:
            importlib.import_module(self._ours[name].partition(":")[0])
            return self._kinds[name]
        if ":" in name:
            fix = "check its name, install its package, or name its folder in PYTHONPATH"
            return self._load(metadata.EntryPoint("", name, self.group), subject, fix, error)
        announced = self._announced().get(name, [])
        packages = [_package(entry) for entry in announced]
        if not announced:
            raise error(f"{subject} is unknown; {known_names(self, name, f'longcrawl {self.what}s')}")
        if len(announced) > 1:
            raise error(f"{subject} is announced by {' and '.join(packages)}: uninstall one, or name the class's path")
        return self._load(announced[0], subject, f"repair or uninstall {packages[0]}", error)

    def make(
        self,
        name: str,
        settings: Mapping[str, Any],
        where: str | None = None,
        error: type[LongCrawlError] | None = None,
    ) -> T:
        """Make one of a kind from YAML-ready settings.

        Raises:
            LongCrawlError: no such kind or field, or a wrong value.
        """
        kind = self.find(name, where, error)
        return build(kind, settings, f"{where or self.what} {name!r}", error or self._error)

    def add(self, name: str, cls: type[K]) -> type[K]:
        """Make a class a frozen dataclass called ``name`` and one of these kinds.

        Raises:
            LongCrawlError: another class has this name.
        """
        made: Any = dataclass(frozen=True)(cls)
        made.name = name
        self[name] = made
        found: type[K] = made
        return found

    def loaded(self) -> list[str]:
        """Return the names of longcrawl's own kinds, and of all others that are imported."""
        return sorted(self._known())

    def unused(self) -> list[str]:
        """Return a sentence for each announcement of a name that another kind has."""
        return [
            f"{self.what} {name!r} of {_package(entry)} is not used, as {self._ours[name]} has this name: rename it"
            for name, entries in self._announced().items()
            for entry in entries
            if name in self._ours
        ]

    def spelling(self, kind: type[T]) -> str:
        """Return what finds a kind in any process: its name, or its dotted path where nobody announces it."""
        name = _name(kind)
        if _is_ours(kind) or kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
            return name
        return name if len(self._announced().get(name, [])) == 1 and self.find(name) is kind else _path(kind)

    def implementation(self, kind: type[T]) -> Implementation:
        """Describe where the code of a kind from another package is, and what it is; nothing for longcrawl's own."""
        if _is_ours(kind):
            return {}
        about = {"path": _path(kind)}
        if package := _packages(tuple(sys.path)).get(kind.__module__.partition(".")[0]):
            about |= {"package": package[0], "version": metadata.version(package[0])}
        file = inspect.getsourcefile(kind) if kind.__module__ != "__main__" else None
        if file is not None and Path(file).is_file():
            about["sha256"] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        return about

    def __getitem__(self, name: str) -> type[T]:
        if name not in self:
            raise KeyError(name)
        return self.find(name)

    def __setitem__(self, name: str, kind: type[T]) -> None:
        """Make a kind known by its name; a class that is made again takes the place of what it was.

        Raises:
            LongCrawlError: another class has this name.
        """
        path = _path(kind)
        other = _path(self._kinds[name]) if name in self._kinds else self._ours.get(name, path)
        if other != path:
            raise self._error(f"two {self.what}s are called {name!r}, {other} and {path}: rename one")
        self._kinds[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._kinds[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._known() or name in self._announced())

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._known(), *self._announced()}))

    def __len__(self) -> int:
        return len({*self._known(), *self._announced()})

    def _known(self) -> set[str]:
        return {*self._ours, *self._kinds}

    def _announced(self) -> Mapping[str, Sequence[metadata.EntryPoint]]:
        found: dict[str, list[metadata.EntryPoint]] = {}
        for entry in announced_kinds(tuple(sys.path))[self.group]:
            found.setdefault(entry.name, []).append(entry)
        return found

    def _load(self, entry: metadata.EntryPoint, subject: str, fix: str, error: type[LongCrawlError]) -> type[T]:
        """Import what an entry point names; whatever another's code raises then becomes one sentence."""
        try:
            kind = entry.load()
        except Exception as wrong:
            raise error(f"{subject} cannot be loaded ({type(wrong).__name__}: {wrong}): {fix}") from wrong
        found = self._kinds.get(_name(kind))
        if found is None or found is not kind:
            raise error(f"{subject} is not a {self.what}: decorate a {self._base.__name__} class with @{self.what}")
        if entry.name not in ("", _name(found)):
            raise error(f"{subject} is called {_name(found)!r}: {fix}")
        return found


@cache
def _packages(_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the installed packages that have a module, by its name; looking takes a second."""
    return metadata.packages_distributions()


def is_ours(kind: type) -> bool:
    """Return whether a kind is longcrawl's own, not a user's."""
    return kind.__module__.startswith("longcrawl.")


def _name(kind: object) -> str:
    return str(getattr(kind, "name", ""))


def _path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "longcrawl"


def _package(entry: metadata.EntryPoint) -> str:
    return "its package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
