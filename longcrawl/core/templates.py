"""Templates of cards and reports: the files of ``cards/``, which is installed inside the package."""

from pathlib import Path

import longcrawl


def read_template(name: str) -> str:
    """Return a file of ``cards/``, of the package itself or, in a checkout, beside it."""
    package = Path(longcrawl.__file__).parent
    inside = package / "cards"
    return ((inside if inside.is_dir() else package.parent / "cards") / name).read_text("utf-8")
