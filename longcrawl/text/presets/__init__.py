"""Access to shipped YAML files by name, and to users' own files of the same form by path."""

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

    package: str  # the folder, as a dotted name: ``longcrawl.text.presets.lines``
    what: str  # a plural noun for the files in messages, such as "line patterns"
    form: str = ""  # a description of the form of a user's file, for messages

    def names(self) -> list[str]:
        """Return the names of the shipped files."""
        files = resources.files(self.package).iterdir()
        return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))

    def shipped(self, name: str) -> Traversable:
        """Return the shipped file with a name."""
        return resources.files(self.package).joinpath(f"{name}.yaml")

    def own_files(self, name: str | None) -> tuple[str, ...]:
        """Return the user's file that :meth:`read` would read, or nothing for a shipped one, which never changes."""
        return (name,) if name is not None and name.endswith(_ENDINGS) else ()

    def read(self, name: str) -> Any:
        """Return the content of a shipped file, by name, or of a user's file, by path; StageError for invalid YAML."""
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
