"""Results of an OCR program: reading them by document and page, and inserting them into a document's text."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longcrawl.errors import StageError, unreadable
from longcrawl.io.files import match_files, reread_when_changed

Results = Mapping[str, Mapping[int, str]]
"""Texts by id of the document and number of the page, counted from 1."""
_FIX = (
    'write lines such as {"id": "a", "page": 3, "text": "..."} or {"id": "a", "pages": [3, 4], "texts": ["...", "..."]}'
)


def result_files(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the files that paths and globs name, each once, sorted.

    Raises:
        StageError: a pattern names no file.
    """
    found = set[str]()
    for pattern in patterns:
        is_glob = any(sign in pattern for sign in "*?[")
        matches = match_files(pattern) if is_glob else [pattern] if Path(pattern).is_file() else []
        if not matches:
            raise StageError(
                f"extract_pdf.join: no file matches {pattern!r}: set join to the results of the OCR program"
            )
        found.update(matches)
    return tuple(sorted(found))


@reread_when_changed(2)
def read_results(*files: str) -> Results:
    """Read files of JSON lines, one page or several pages of a document in each.

    Raises:
        StageError: a file cannot be read, a line has another form, or a page occurs twice.
    """
    results: dict[str, dict[int, str]] = {}
    for file in files:
        with unreadable(file, StageError, "choose a file of JSON lines in UTF-8"):
            lines = Path(file).read_text("utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"{file}, line {number:,}"
            name, pages, texts = _parse(line, place)
            own = results.setdefault(name, {})
            for page, text in zip(pages, texts, strict=True):
                if page in own:
                    raise StageError(f"{place}: page {page} of document {name!r} occurs twice: remove one of them")
                own[page] = text
    return results


def _parse(line: str, place: str) -> tuple[str, list[int], list[str]]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StageError(f"{place}: not valid JSON: {_FIX}") from error
    if not isinstance(row, dict) or not isinstance(name := row.get("id"), str):
        raise StageError(f"{place}: no document id: {_FIX}")
    pages, texts = ([row.get("page")], [row.get("text")]) if "page" in row else (row.get("pages"), row.get("texts"))
    if not isinstance(pages, list) or not isinstance(texts, list) or len(pages) != len(texts):
        raise StageError(f"{place}: the numbers of pages and texts differ: {_FIX}")
    if not all(type(page) is int and page > 0 for page in pages):
        raise StageError(f"{place}: a page is not a whole number from 1: {_FIX}")
    if not all(isinstance(text, str) and _is_unicode(text) for text in texts):
        raise StageError(f"{place}: a text is not a string of Unicode characters: {_FIX}")
    return name, pages, texts


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def put_in_place(texts: Sequence[str], results: Mapping[int, str], page_break: str) -> list[str]:
    r"""Return the texts of all pages with results in their places, and a page break on both sides of each.

    Args:
        texts: pages in the order of the document, each with the separator after it.
        results: texts by number of the page, counted from 1.
        page_break: text between two pages.

    >>> put_in_place(["one ", "", "three"], {2: "two\n"}, "\n\n")
    ['one\n\n', 'two\n\n', 'three']
    """
    made = list(texts)
    before: int | None = None
    for place, text in enumerate(texts):
        is_result = place + 1 in results
        made[place] = results[place + 1].strip() if is_result else text
        if not made[place]:
            continue
        if before is not None and (is_result or before + 1 in results) and not made[before].endswith(page_break):
            made[before] = made[before].rstrip() + page_break
        before = place
    return made
