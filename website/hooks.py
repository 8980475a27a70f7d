"""What MkDocs adds to docs/: README, notebooks and the reference as pages, and links that also work on GitHub.

A link in docs/ is relative to its file in the repository. Here it leads to the page that the file becomes, or to a copy
of the file.
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
"""Pages of the site that are elsewhere than in docs/, by their path in the repository."""
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add what is made here, and copies of the files that pages link."""
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
    """Let links lead to pages of the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def moved(found: re.Match[str]) -> str:
        path = _resolve(page.file.src_uri, found[1])
        uri = _uri(path)
        return found[1] if uri is None else posixpath.relpath(uri, folder or ".")

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def _source(uri: str) -> str:
    """Return where the file of a page is in the repository."""
    for source, page in PAGES.items():
        if page == uri:
            return source
    return uri if uri.startswith("notebooks/") else f"docs/{uri}"


def _resolve(uri: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(_source(uri)), target))


def _uri(path: str) -> str | None:
    """Return where a file of the repository is on the site; None where it is not a file."""
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
