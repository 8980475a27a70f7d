"""A second virtual environment without a download: all that is installed here, except what is named."""

import sys
import venv
from pathlib import Path

__all__ = ["environment_without"]


def environment_without(package: str, folder: Path) -> Path:
    """Make an environment of links to everything that this interpreter imports but one package, and give its python."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for place in (Path(each) for each in sys.path if each.endswith(("site-packages", "dist-packages"))):
        for entry in place.iterdir():
            # A .pth file is what leads to a package that was installed from its checkout.
            if package not in entry.name and entry.suffix != ".pth" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"
