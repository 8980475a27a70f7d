"""What is shipped as data, one YAML file each, by name; and users' own files of the same form, by path."""

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from longcrawl.errors import StageError
from longcrawl.io.structured import load_yaml

__all__ = ["Presets"]

_ENDINGS = (".yaml", ".yml")


class Presets(NamedTuple):
    """The YAML files of one folder below ``text/presets``."""

    package: str
    """The folder, as a dotted name: ``longcrawl.text.presets.lines``."""
    what: str
    """What its files are, such as "line patterns"."""
    form: str = ""
    """What a user's own file should be like."""

    def names(self) -> list[str]:
        """Name the shipped files."""
        files = resources.files(self.package).iterdir()
        return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))

    def shipped(self, name: str) -> Traversable:
        """Return the shipped file of a name."""
        return resources.files(self.package).joinpath(f"{name}.yaml")

    def own_files(self, name: str | None) -> tuple[str, ...]:
        """Return the user's file that :meth:`read` reads by a name; shipped ones never change."""
        return (name,) if name is not None and name.endswith(_ENDINGS) else ()

    def read(self, name: str) -> Any:
        """Return the values of a shipped file by its name, or of a user's own by its path.

        Raises:
            StageError: there is no such file, or it is not YAML.
        """
        try:
            return load_yaml(self._text(name))
        except yaml.YAMLError as error:
            raise StageError(f"{name} is not valid YAML ({' '.join(str(error).split())}); {self.form}") from error

    def _text(self, name: str) -> str:
        if not name.endswith(_ENDINGS):
            if name not in self.names():
                known = ", ".join(self.names())
                raise StageError(f"unknown {self.what} {name!r}; known: {known}, or give the path of a .yaml file")
            return self.shipped(name).read_text("utf-8")
        try:
            return Path(name).read_text("utf-8")
        except FileNotFoundError as error:
            raise StageError(f"{name} does not exist; give the path of a YAML file of {self.what}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise StageError(f"{name} cannot be read as UTF-8 text: {error}; write it again") from error
