"""The `datasets` adapter, which registers the longcrawl builder once `datasets` is imported.

Importing longcrawl alone does not import `datasets`.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType


def register_with_datasets() -> None:
    """Register the builder with `datasets`, now if it is imported, else as soon as it is."""
    if "datasets" in sys.modules:
        _register()
    elif not any(isinstance(finder, _Datasets) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Datasets())


def _register() -> None:
    from longcrawl.builders.register import register

    register()


class _Datasets(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that registers the builder once `datasets` is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of `datasets` with this hook as its loader, or None for any other module."""
        others = [finder for finder in sys.meta_path if finder is not self] if name == "datasets" else []
        found = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if found is None or found.loader is None:
            return None
        self._loader, found.loader = found.loader, self
        return found

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # find_spec has made it
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        sys.meta_path.remove(self)
        _register()
