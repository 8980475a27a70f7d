"""Adds README, notebooks and the reference to the site, and makes links that work on GitHub work there.

A link in docs/ is relative to its file in the repository. On the site it leads to the page made from that file, or to a
copy of the file.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))

import notebook_page  # noqa: E402
import reference  # noqa: E402

PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the site whose files are outside docs/, by their path in the repository."""
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Replace ``FOLDER/*`` in the navigation by the pages of that folder of docs/, its index first."""
    for section in config.nav:
        for entries in section.values():
            for entry in entries if isinstance(entries, list) else ():
                for title, target in entry.items():
                    if target.endswith("/*"):
                        names = sorted(path.name for path in (ROOT / "docs" / target[:-2]).glob("*.md"))
                        names.sort(key=lambda name: name != "index.md")
                        entry[title] = [f"{target[:-1]}{name}" for name in names]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add generated pages, and copies of the files that pages link."""
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for source, uri in PAGES.items():
        texts[uri] = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, uri, content=texts[uri]))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        uri = f"notebooks/{path.stem}.md"
        texts[uri], pictures = notebook_page.page(path)
        files.append(File.generated(config, uri, content=texts[uri]))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    for uri, text in reference.pages():
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, "style.css", content=(ROOT / "website/style.css").read_text("utf-8")))
    linked = {path for uri, text in texts.items() for path in _links(uri, text) if _is_copied(path)}
    for path in sorted(linked):
        files.append(File.generated(config, path, content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links to files of the repository as links to pages of the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def moved(found: re.Match[str]) -> str:
        path = _resolve(page.file.src_uri, found[1])
        uri = _uri(path)
        return found[1] if uri is None else posixpath.relpath(uri, folder or ".")

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def _source(uri: str) -> str:
    """Return the path of a page's file in the repository."""
    for source, page in PAGES.items():
        if page == uri:
            return source
    return uri if uri.startswith("notebooks/") else f"docs/{uri}"


def _resolve(uri: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(_source(uri)), target))


def _uri(path: str) -> str | None:
    """Return the path of a file of the repository on the site, or None if there is no such file."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("notebooks/") and path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return path if (ROOT / path).is_file() else None


def _links(uri: str, text: str) -> set[str]:
    prose = FENCE.sub("", text)
    return {_resolve(uri, found[1]) for found in LINK.finditer(prose)}


def _is_copied(path: str) -> bool:
    return _uri(path) == path
