"""Import ``longcrawl.builders`` and ``longcrawl.cards`` from the checkout that this package lies in.

Installed, both are folders of this package. In a checkout they lie beside it. Python would look for them where
longcrawl is installed, which may be another checkout: sources of one tree must never run with stages of another.
"""

import importlib.util
import sys
from pathlib import Path


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
