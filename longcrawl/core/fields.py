"""Configuration as frozen dataclasses: strict construction from plain values, one sentence on a wrong one."""

import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

from longcrawl.errors import LongCrawlError, StageError, known_names, quoted

T = TypeVar("T")

Conditions = Mapping[str, Mapping[str, tuple[Any, ...] | None]]
"""Fields that have an effect only together with some values of others.

By field: other fields, and their values of which one is enough; None for every value but null. A field of several
values has to have one of them.
"""


def build(cls: type[T], settings: Mapping[str, Any], where: str, error: type[LongCrawlError]) -> T:
    """Make a ``cls`` from YAML values; an unknown name raises ``error`` and lists the known ones.

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
    """Return the fields of each preset of a class, by name; none of a class without presets."""
    found: Mapping[str, Mapping[str, Any]] = getattr(cls, "presets", {})
    return found


def preset_fields(
    cls: type, name: Any, changes: Mapping[str, Any], where: str = "", error: type[LongCrawlError] = StageError
) -> dict[str, Any]:
    """Return the fields of a preset of a class, where ``changes`` are to differ.

    Raises:
        error: there is no such preset; the message lists those there are.
    """
    presets = presets_of(cls)
    if not isinstance(name, str) or name not in presets:
        raise error(f"{where}unknown preset {quoted(name)}; {known_names(presets, str(name))}")
    made = {**_defaults(cls), **presets[name], **changes}
    conditions: Conditions = getattr(cls, "only_with", {})
    unused = {each for each, others in conditions.items() if each not in changes and not _has_effect(others, made)}
    return {**{each: value for each, value in presets[name].items() if each not in unused}, **changes}


def check_effects(instance: Any, conditions: Conditions, error: type[LongCrawlError]) -> None:
    """Check that fields which differ from their defaults have an effect.

    Raises:
        error: naming one that has none, and what it takes to have one.
    """
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
        raise error(f"{where} has no effect with {now}: leave it out, or set {needed}")


def _has_effect(others: Mapping[str, tuple[Any, ...] | None], values: Mapping[str, Any]) -> bool:
    for other, allowed in others.items():
        value = values[other]
        several = value if isinstance(value, tuple | list) else (value,)
        if value is not None if allowed is None else any(each in allowed for each in several):
            return True
    return False


def _defaults(cls: type) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(cls)}


def check_fields(instance: Any, error: type[LongCrawlError]) -> None:
    """Check every field against its annotation and turn lists into tuples, so that instances stay hashable.

    Raises:
        error: naming the class, the field, the value and what the field takes.
    """
    hints = typing.get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(instance, field.name, value)
        if isinstance(value, float) and value.is_integer() and not _fits(value, hints[field.name]):
            # A whole number may be spelled 5e9.
            value = int(value)
            object.__setattr__(instance, field.name, value)
        if not _fits(value, hints[field.name]):
            wants = spell(hints[field.name])
            unquoted = "a, b" in wants and isinstance(value, tuple) and bool in map(type, value)
            hint = "; quote 'no', 'on' and the like, which YAML reads as false and true" if unquoted else ""
            raise error(f"{_public_name(type(instance))}.{field.name} takes {wants}, got {quoted(value)}{hint}")


def _public_name(cls: type) -> str:
    return next(each.__name__ for each in cls.__mro__ if not each.__name__.startswith("_"))


def plain_settings(instance: Any) -> dict[str, Any]:
    """Return the fields of a configuration as YAML-ready values, in declaration order."""
    return {field.name: plain(getattr(instance, field.name)) for field in dataclasses.fields(instance) if field.init}


def plain(value: Any) -> Any:
    """Return the value of a field as YAML can hold it."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def describe_kind(cls: type) -> str:
    """Return the docstring of a stage, source or output without the marks of reStructuredText."""
    text = (inspect.getdoc(cls) or "").replace("``", "`")
    for role in (":mod:", ":class:", ":func:", ":meth:", ":data:"):
        text = text.replace(f"{role}`~", "`").replace(f"{role}`", "`")
    return text


def describe_fields(cls: type) -> list[tuple[str, str, str]]:
    """Return the name, what it takes and the default of every field of a configuration.

    >>> from longcrawl.tokens import Truncate
    >>> describe_fields(Truncate)
    [('n', 'a whole number', '65536')]
    """
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return [(field.name, spell(hints[field.name]), _default(field)) for field in fields]


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is not dataclasses.MISSING:
        return _as_yaml(plain(field.default))
    return "must be given" if field.default_factory is dataclasses.MISSING else _as_yaml(plain(field.default_factory()))


def _as_yaml(value: Any) -> str:
    """Return a default as a recipe spells it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


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
    """Return in words what a field with this annotation takes.

    >>> spell(int | None), spell(str | tuple[str, ...]), spell(dict[str, float])
    ('a whole number or null', 'text or a list such as [a, b]', 'a mapping such as {a: 1}')
    """
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(option) for option in options)
    if origin in (Union, types.UnionType):
        return " or ".join(map(spell, options))
    if origin is tuple:
        return f"a list such as [{'1, 2' if _is_numeric(options[0]) else 'a, b'}]"
    if origin is not None and issubclass(origin, Mapping):
        return f"a mapping such as {{a: {'1' if _is_numeric(options[1]) else 'b'}}}"
    return _WORDS.get(hint) or str(getattr(hint, "__name__", hint))


def _is_numeric(hint: Any) -> bool:
    return not {int, float}.isdisjoint({hint, *typing.get_args(hint)})
