"""Modules by the names that documentation of earlier versions shows, for one release."""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

from longcrawl.errors import warn_user

MOVED = {
    "longcrawl.builders.redpajama_v2": "longcrawl.sources.redpajama_v2",
    "longcrawl.builders.sources": "longcrawl.core.sources",
    "longcrawl.builders.warc": "longcrawl.sources.warc.source",
    "longcrawl.outputs": "longcrawl.core.outputs",
    "longcrawl.places": "longcrawl.core.places",
    "longcrawl.results": "longcrawl.core.results",
    "longcrawl.stages": "longcrawl.core.stages",
}


class MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its earlier name, with a DeprecationWarning that names the present one."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002  # Python passes it
        target: ModuleType | None = None,  # noqa: ARG002  # as above
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how a moved module is loaded, None for all others."""
        return importlib.machinery.ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with the names of the present one."""
        present = MOVED[module.__name__]
        warn_user(f"{module.__name__} has moved: import {present}", DeprecationWarning)
        names = vars(importlib.import_module(present)).items()
        vars(module).update({name: value for name, value in names if not name.startswith("__")})


def find_moved_modules() -> None:
    """Have imports by earlier names found; doing it twice changes nothing."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
