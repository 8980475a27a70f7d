"""Documentation installed with Python and its packages, which needs no network.

Each installed distribution contributes the long description in its METADATA, its licence files, and the ``.md``,
``.rst`` and ``.txt`` files listed in its RECORD. Python itself contributes the help topics in ``pydoc_data``.
"""

import csv
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from longcrawl.core.sources import DOCUMENTS, BadFiles, OnBadFiles, Part, Source, source
from longcrawl.errors import SourceError

PYTHON = "python"
"""Name of the part with Python's own help topics."""
_ENDINGS = (".md", ".rst", ".txt")
_LICENCE = re.compile(r"(licen[cs]es?|copying|notice|authors|copyright)([-._].*)?", re.IGNORECASE)
_BOOKKEEPING = {"top_level.txt", "entry_points.txt", "SOURCES.txt", "dependency_links.txt", "namespace_packages.txt"}
_BOOKKEEPING |= {"requires.txt", "METADATA", "PKG-INFO", "RECORD", "WHEEL", "INSTALLER"}
_METADATA_FOLDER = re.compile(r"[^/]*\.(dist|egg)-info$")


@source("installed")
class Installed(Source):
    """Documentation of the installed packages and of Python itself.

    Ids are ``PACKAGE/PATH``, without versions and local folders; ``source`` is ``PACKAGE==VERSION``, and ``url`` the
    home page in the package's metadata. Files that are not UTF-8 are skipped, and so are the distribution ``longcrawl``
    and everything outside ``site-packages`` and ``dist-packages`` folders.

    Args:
        packages: names of distributions, and "python" for the help topics; empty for all.
        on_bad_files: what to do about a file that is recorded but missing, which is common on many systems.
    """

    homepage: ClassVar[str] = "https://packaging.python.org/en/latest/specifications/core-metadata/"
    license: ClassVar[str] = "of each package, as installed"

    packages: tuple[str, ...] = ()
    on_bad_files: OnBadFiles = "skip"

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""
        return DOCUMENTS

    @property
    def unique_ids(self) -> bool:
        """True, since ids are names of packages and paths."""
        return True

    def splits(self) -> dict[str, list[Part]]:
        """Return a part per distribution, and "python/pydoc_data"."""
        known = [PYTHON, *_distributions()]
        wanted = [_normalized(name) for name in self.packages] or known
        for name in wanted:
            if name not in known:
                raise SourceError(f"no package {name!r} is installed; known: {', '.join(sorted(known))}")
        return {"train": [Part(f"{PYTHON}/pydoc_data" if name == PYTHON else name) for name in sorted(set(wanted))]}

    def content(self) -> str:
        """Return the versions of Python and of all installed distributions."""
        packages = [f"{name}=={found.version}" for name, found in _distributions().items()]
        return repr([platform.python_version(), packages])

    def part_bytes(self, part: Part) -> int:
        """Return the bytes of a distribution's documents by its RECORD, with all of its METADATA."""
        if part.name == f"{PYTHON}/pydoc_data":
            from pydoc_data.topics import topics

            return sum(map(len, topics.values()))
        found = next(iter(importlib.metadata.distributions(name=part.name, path=_folders())))
        sizes = (size for _, size in _recorded(found.read_text("RECORD") or ""))
        return len(found.read_text("METADATA") or "") + sum(int(size) for size in sizes if size.isdecimal())

    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read the documents of one distribution, or Python's help topics."""
        url: str | None = "https://docs.python.org/3/"
        if part.name == f"{PYTHON}/pydoc_data":
            from pydoc_data.topics import topics

            documents = {f"{part.name}/{name}": text for name, text in sorted(topics.items())}
            source = f"{PYTHON}=={platform.python_version()}"
        else:
            found = next(iter(importlib.metadata.distributions(name=part.name, path=_folders())))
            metadata = found.metadata
            documents, url = _documents(part.name, found, metadata, bad_files), _home_page(metadata)
            source = f"{part.name}=={metadata['Version']}"
        columns: list[list[str | None]] = [list(documents), list(documents.values())]
        columns += [[value] * len(documents) for value in (url, None, source, "en")]
        if documents:
            yield pa.table(columns, schema=DOCUMENTS)


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    """Return the installed distributions by name, sorted; of duplicates, the one that Python would import."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions(path=_folders()):
        if (name := _normalized(distribution.metadata["Name"] or "")) and name != "longcrawl":
            found.setdefault(name, distribution)
    return dict(sorted(found.items()))


def _folders() -> list[str]:
    return [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]


def _normalized(name: str) -> str:
    """Return the normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _home_page(metadata: importlib.metadata.PackageMetadata) -> str | None:
    links = metadata.get_all("Project-URL") or []
    named = [link.partition(",")[2].strip() for link in links if link.lower().startswith("home")]
    return next(iter([*metadata.get_all("Home-page", []), *named]), None)


def _documents(
    package: str,
    distribution: importlib.metadata.Distribution,
    metadata: importlib.metadata.PackageMetadata,
    bad_files: BadFiles,
) -> dict[str, str]:
    documents = {}
    description = str(next(iter(metadata.get_all("Description", [])), "")).strip()
    if description and description != "UNKNOWN":
        documents[f"{package}/METADATA"] = description
    record = distribution.read_text("RECORD")
    # From Python 3.13 on, ``files`` omits those that are missing.
    files = (
        [path for path, _ in _recorded(record)]
        if record is not None
        else filter(_is_document, distribution.files or ())
    )
    for recorded in files:
        # Drop steps upward, and the version in the name of a metadata folder.
        steps = [_METADATA_FOLDER.sub(r"\1-info", step) for step in recorded.parts if step != ".."]
        name = "/".join([package, *steps])
        try:
            text = Path(str(distribution.locate_file(recorded))).read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            continue
        except OSError as error:
            bad_files.report(name, f"is recorded but cannot be read: {error.strerror}")
            continue
        if text.strip():
            documents[name] = text
    return dict(sorted(documents.items()))


def _recorded(record: str) -> Iterator[tuple[importlib.metadata.PackagePath, str]]:
    """Yield the path and size of each document in a RECORD."""
    for row in csv.reader(record.splitlines()):
        if row and (row[0].endswith(_ENDINGS) or "-info/" in row[0]):
            path = importlib.metadata.PackagePath(row[0])
            if _is_document(path):
                yield path, row[-1]


def _is_document(path: importlib.metadata.PackagePath) -> bool:
    in_metadata = any(_METADATA_FOLDER.fullmatch(step) for step in path.parts[:-1])
    if in_metadata and path.name in _BOOKKEEPING:
        return False
    return path.suffix in _ENDINGS or (in_metadata and bool(_LICENCE.fullmatch(path.name) or "licenses" in path.parts))
