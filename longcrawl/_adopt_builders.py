"""Find ``longcrawl.builders`` and ``longcrawl.cards`` when python runs in the root of a checkout.

Installed, both are folders of this package. In a checkout they lie beside it, so python, which finds ``longcrawl`` in
the current folder first, would not find them there.
"""

import importlib.util
import sys
from pathlib import Path

__all__ = ["adopt_builders"]


def adopt_builders() -> None:
    """Make the folders beside this package its sub-packages where they are not found otherwise."""
    for folder in ("builders", "cards"):
        name = f"longcrawl.{folder}"
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            continue
        beside = Path(__file__).resolve().parent.parent / folder
        inside = [str(beside)]
        spec = importlib.util.spec_from_file_location(name, beside / "__init__.py", submodule_search_locations=inside)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"{name} is neither installed nor at {beside}: pip install longcrawl")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        setattr(sys.modules["longcrawl"], folder, module)
