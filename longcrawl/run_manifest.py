"""What ``manifest.json`` of a run must hold, and one sentence where it does not.

Runs outlive versions: a manifest may be of an earlier longcrawl, which told less. What every version has written is
asked for when a manifest is read; whatever else somebody looks up in it and does not find raises :class:`NotTold`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longcrawl.errors import RunError
from longcrawl.results import RESULTS

__all__ = ["VERSION", "NotTold", "Told", "check_manifest", "writer_of"]

VERSION = 1
"""Of manifests, not of longcrawl."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "recipe": ("name", "source", "stages", "outputs"),
    "versions": (),
    "funnel": ("source", "documents", "stages"),
    "output": ("format",),
    "files": (),
}
"""What every version of longcrawl has written, and what of it."""


class NotTold(RunError):  # noqa: N818  # it says what is, as LookupError does
    """A manifest does not hold an entry that something needs."""

    def __init__(self, entry: str, version: str) -> None:
        self.entry = entry
        """Its path, such as "output.shapes"."""
        self.version = version
        super().__init__(
            f"the manifest of this run, of longcrawl {version}, has no {entry!r}: run its recipe again to have it"
        )


class Told(dict[str, Any]):
    """An object of a manifest; looking up what it does not hold raises :class:`NotTold` and no KeyError.

    >>> Told({"funnel": {}}, "0.1.0")["funnel"]["stages"]
    Traceback (most recent call last):
    longcrawl.run_manifest.NotTold: the manifest of this run, of longcrawl 0.1.0, has no 'funnel.stages': run its \
recipe again to have it
    """

    def __init__(self, values: Mapping[str, Any], version: str, path: str = "", plain: Sequence[str] = ()) -> None:
        self._version, self._path = version, path
        super().__init__((name, value if name in plain else self._told(name, value)) for name, value in values.items())

    def _told(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return Told(value, self._version, f"{self._path}{name}.")
        if isinstance(value, list):
            return [self._told(name, each) for each in value]
        return value

    def __missing__(self, name: str) -> Any:
        raise NotTold(f"{self._path}{name}", self._version)


def check_manifest(manifest: Any, file: Path) -> Told:
    """Give a manifest that holds what each has to.

    The recipe in it is as it was read, so that it can be written as YAML; all else is :class:`Told`. Whether somebody
    has changed the manifest is not asked here.

    Args:
        manifest: the content of a JSON file.
        file: it, to be named.

    Raises:
        RunError: it is no manifest of a run, or of a version or a format that this longcrawl does not know.

    """
    again = f"run the recipe again, into another folder than {file.parent}"
    if not isinstance(manifest, dict) or "longcrawl_run" not in manifest:
        raise RunError(f"{file} is not the manifest of a run: {again}")
    if manifest["longcrawl_run"] != VERSION:
        raise RunError(f"{file} is of version {manifest['longcrawl_run']!r}, this longcrawl reads {VERSION}: upgrade")
    if lacking := _lacking(manifest):
        raise RunError(f"{file} lacks {', '.join(lacking)}: {again}")
    form = manifest["output"]["format"]
    if form not in RESULTS:
        raise RunError(f"{file} is of an output {form!r}, this longcrawl knows {', '.join(sorted(RESULTS))}: upgrade")
    return Told(manifest, writer_of(manifest), plain=("recipe",))


def _lacking(manifest: Mapping[str, Any]) -> list[str]:
    lacking = []
    for block, entries in NEEDED.items():
        found = manifest.get(block)
        if not isinstance(found, dict):
            lacking.append(block)
        else:
            lacking += [f"{block}.{entry}" for entry in entries if entry not in found]
    return lacking


def writer_of(manifest: Mapping[str, Any]) -> str:
    """Give the version of longcrawl that wrote a manifest."""
    return str(manifest["versions"].get("longcrawl", "that gives no version"))
