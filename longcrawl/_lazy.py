"""Lazy packages, which import a public name on first access."""

import ast
import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from longcrawl.errors import known_names


def lazy(package: str) -> None:
    """Make a package import each of its public names on first access.

    The names are those that the package imports under ``if TYPE_CHECKING:``, so that type checkers and this function
    read the same list. ``__all__`` lists the same names.
    """
    module = sys.modules[package]
    homes: dict[str, tuple[str, str]] = {}
    for block in ast.parse(inspect.getsource(module)).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in (each for each in block.body if isinstance(each, ast.ImportFrom)):
                homes |= {each.asname or each.name: (str(line.module), each.name) for each in line.names}
    vars(module)["_homes"] = homes
    module.__class__ = LazyPackage


class LazyPackage(ModuleType):
    """A package that imports its public names on first access, see :func:`lazy`.

    Importing a module does not replace a function of the same name, such as ``longcrawl.run``.
    """

    _homes: Mapping[str, tuple[str, str]]
    """Module, and name in that module, by public name."""

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise self._unknown(name, sys._getframe(1).f_code.co_name)  # noqa: SLF001  # Python has no public way to find the caller
        home, there = self._homes[name]
        if home == self.__name__:
            return import_module(f"{home}.{name}")
        found = getattr(__import__(home, fromlist=[there]), there)
        vars(self)[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        taken = self._homes.get(name, (self.__name__, name)) != (self.__name__, name)
        if not (taken and isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: `datasets` pickles a script's function together with the packages that it uses."""
        return import_module, (self.__name__,)

    def _unknown(self, name: str, asked_by: str) -> Exception:
        """Return the error for a name that the package does not have.

        For ``from … import`` it is an ImportError, because Python would drop the message of an AttributeError.
        """
        wrong = f"module {self.__name__!r} has no attribute {name!r}"
        if name.startswith("_"):
            return AttributeError(wrong, name=name, obj=self)
        sentence = f"{wrong}; {known_names(self._homes, name, f'dir({self.__name__})')}"
        if asked_by == "_handle_fromlist" and find_spec(f"{self.__name__}.{name}") is None:
            return ImportError(sentence, name=self.__name__)
        return AttributeError(sentence, name=name, obj=None)  # given an object, Python would add its own suggestion
