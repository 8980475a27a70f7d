"""``longcrawl stages``, ``sources`` and ``outputs``: what a recipe can name, with fields, types and defaults."""

import dataclasses
import inspect
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from longcrawl.core.fields import plain, spell
from longcrawl.core.outputs import OUTPUTS
from longcrawl.core.registry import Registry
from longcrawl.core.sources import SOURCES
from longcrawl.core.stages import STAGES
from longcrawl.errors import LongCrawlError
from longcrawl.printable import as_lines, printable, show

__all__ = ["add_catalog", "describe", "list_kinds"]

Name = Annotated[str | None, typer.Argument(help="One of them, or a path such as my_package.stages:OnlyPoems.")]


def add_catalog(app: typer.Typer) -> None:
    """Add the three verbs to a command line."""

    @app.command()
    def stages(name: Name = None) -> None:
        """List the stages that a recipe can have, or the fields of one."""
        _show(STAGES, name)

    @app.command()
    def sources(name: Name = None) -> None:
        """List the sources that a recipe can read, or the fields of one."""
        _show(SOURCES, name)

    @app.command()
    def outputs(name: Name = None) -> None:
        """List the outputs that a recipe can write, or the fields of one."""
        _show(OUTPUTS, name)


def list_kinds(registry: Registry[Any]) -> tuple[str, list[str]]:
    """Return a line for each kind, its name and the first line of its docstring, and why some cannot be loaded."""
    found, broken = [], []
    for name in registry:
        try:
            found.append((name, _first_line(registry.find(name))))
        except LongCrawlError as wrong:
            broken.append(str(wrong))
    broken += registry.unused()
    return as_lines(_columns(found)), broken


def describe(registry: Registry[Any], name: str) -> str:
    """Return the docstring of a kind and its fields, with types and defaults.

    Raises:
        LongCrawlError: there is no such kind.

    """
    kind = registry.find(name)
    rows = [(field.name, spell(hint), _default(field)) for field, hint in _fields(kind)]
    presets = sorted(getattr(kind, "presets", {}))
    about = registry.implementation(kind)
    package = f" of {about['package']} {about['version']}" if "package" in about else ""
    return "\n".join(
        [
            as_lines([f"{kind.name}{package}"]),
            printable(inspect.getdoc(kind) or ""),
            as_lines(["", *(_columns([("field", "takes", "default"), *rows]) if rows else ["It has no fields."])]),
            *([as_lines([f"presets  {', '.join(presets)}"])] if presets else []),
        ]
    )


def _show(registry: Registry[Any], name: str | None) -> None:
    if name is not None:
        show(describe(registry, name))
        return
    lines, broken = list_kinds(registry)
    show(lines)
    for sentence in broken:
        show(sentence, error=True)


def _fields(kind: Any) -> Iterator[tuple[Any, Any]]:
    hints = typing.get_type_hints(kind)
    return ((field, hints[field.name]) for field in dataclasses.fields(kind) if field.init)


def _default(field: Any) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(plain(field.default))
    return "must be given" if field.default_factory is dataclasses.MISSING else repr(plain(field.default_factory()))


def _first_line(kind: type) -> str:
    return next(iter((inspect.getdoc(kind) or "").splitlines()), "")


def _columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Pad the cells of rows but the last of each, so that they stand below each other."""
    table = [*rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
