"""Import ``longcrawl.builders`` and ``longcrawl.cards`` from the checkout that this package lies in, and register them.

Installed, both are folders of this package. In a checkout they lie beside it. Python would look for them where
longcrawl is installed, which may be another checkout: sources of one tree must never run with stages of another.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def adopt_builders() -> None:
    """Make the folders beside this package its sub-packages, unless it holds them itself."""
    package = Path(__file__).resolve().parent
    for folder in ("builders", "cards"):
        name = f"longcrawl.{folder}"
        if name in sys.modules or (package / folder / "__init__.py").is_file():
            continue
        beside = package.parent / folder
        inside = [str(beside)]
        spec = importlib.util.spec_from_file_location(name, beside / "__init__.py", submodule_search_locations=inside)
        if spec is None or spec.loader is None or not beside.is_dir():
            raise ModuleNotFoundError(f"{package} has no {folder}: pip install --force-reinstall longcrawl")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        setattr(sys.modules["longcrawl"], folder, module)


def register_with_datasets() -> None:
    """Register the builder with `datasets`: now where that is imported, else as soon as it is.

    Raises:
        LongCrawlError: this release of `datasets` has moved the names that registration needs.
    """
    if "datasets" in sys.modules:
        _register()
    elif not any(isinstance(finder, _Datasets) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Datasets())


def _register() -> None:
    from longcrawl.builders.register import register

    register()


class _Datasets(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `datasets` as all others do, and registers the builder once it is imported."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how `datasets` is loaded, None for all else."""
        others = [finder for finder in sys.meta_path if finder is not self] if name == "datasets" else []
        found = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if found is None or found.loader is None:
            return None
        self._loader, found.loader = found.loader, self
        return found

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Let the loader of `datasets` make the module."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import `datasets` and register the builder."""
        assert module.__spec__ is not None  # find_spec has made it
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        sys.meta_path.remove(self)
        _register()
