"""Text of a PDF document, page by page: opening, reading, and the limits between pages."""

import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pypdfium2

from longcrawl.text.pdf.lines import page_lines
from longcrawl.text.pdf.paragraphs import Paragraphs
from longcrawl.text.pdf.rescue import rescue
from longcrawl.text.pdf.running_lines import Cleared, RunningLines
from longcrawl.text.pdf.tables import separate_cells
from longcrawl.text.pdf.words import Page, read_page

_TOGETHER = 4
"""Pages per message: fewer messages cost less."""
_MOST_FAILURES = 100
"""Number of unreadable pages in a row after which the page count of a file is not believed."""
_NEEDS_PASSWORD = "password"  # noqa: S105  # a word of PDFium's message
_MAY_EXTRACT = 1 << 4
"""Bit of the permissions that allows the extraction of text (ISO 32000-1, table 22, bit 5)."""


class Options(NamedTuple):
    """Settings of :class:`longcrawl.text.pdf.stage.ExtractPdf` that a worker needs, see there."""

    max_pages: int
    max_seconds: float
    max_characters: int
    cut_files: str
    hidden_text: str
    running: str
    hyphens: str
    page_break: str


class Document:
    """A document being read: sends pages in groups once their text is known, then a summary.

    A message has lines of JSON: for each page in order, a list of kind, text and, if anything was removed, the list of
    rules and removed texts; and an object at the end. At most nine pages are held back.
    """

    def __init__(self, options: Options, send: Callable[[str], None], end: Callable[[str], None]) -> None:
        self._options = options
        self._send, self._end = send, end
        self._unsent: list[str] = []
        """Lines of the next message."""
        self._kinds: deque[str] = deque()
        """Kinds of the pages whose text is not sent yet."""
        self._removed: deque[list[tuple[str, str]]] = deque()
        """Rules and removed texts of these pages, except pages whose neighbours are not known yet."""
        self._running = RunningLines(0)
        self._paragraphs = Paragraphs(options.hyphens, options.page_break)
        self._characters = 0
        self._summary: dict[str, Any] = {"pages": 0, "rescued": False}

    def read(self, data: bytes, waiting: Callable[[], AbstractContextManager[Any]]) -> None:
        """Read a document and send its messages; ``waiting`` surrounds calls that may take long."""
        with waiting():
            opened = _open(data)
        if isinstance(opened, str) and opened != "encrypted" and self._options.cut_files == "rescue":
            with waiting():
                saved = rescue(data)
                opened = _open(saved) if saved is not None else opened
            self._summary["rescued"] = not isinstance(opened, str)
        if isinstance(opened, str):
            self._end(json.dumps({"failure": opened}))
            return
        try:
            self._summary |= _facts(opened)
            self._read_all(opened, waiting)
        finally:
            opened.close()

    def _read_all(self, opened: pypdfium2.PdfDocument, waiting: Callable[[], AbstractContextManager[Any]]) -> None:
        options, count, failures = self._options, self._summary["pages"], 0
        self._running = RunningLines(count)
        end = time.process_time() + options.max_seconds
        for number in range(min(count, options.max_pages)):
            page = read_page(opened.raw, number, options.hidden_text, waiting)
            failures = failures + 1 if page.kind == "failed" else 0
            self._add(page)
            if len(self._unsent) >= _TOGETHER:
                self._send_lines()
            if failures == _MOST_FAILURES:
                self.stop("failures")
            elif self._characters > options.max_characters:
                self.stop("characters")
            elif time.process_time() > end:
                self.stop("time")
            else:
                continue
            return
        self.stop("pages" if count > options.max_pages else None)

    def stop(self, reason: str | None) -> None:
        """Send the pages that were read, and the summary with the limit at which reading stopped."""
        if self._characters > self._options.max_characters:
            reason = "characters"
        for cleared in self._running.end():
            self._finish(cleared)
        for text in self._paragraphs.end():
            self._add_line(text)
        self._send_lines()
        self._end(json.dumps(self._summary | {"stopped": reason}, ensure_ascii=False))

    def _add(self, page: Page) -> None:
        lines = page_lines(page.words) if page.words is not None else []
        self._kinds.append(page.kind)
        self._paragraphs.count_words(lines)
        self._characters += sum(len(line.text) for line in lines)
        if self._options.running == "keep":
            self._finish(Cleared(lines, []))
            return
        for cleared in self._running.add(lines):
            self._finish(cleared)

    def _finish(self, cleared: Cleared) -> None:
        separate_cells(cleared.lines)
        self._removed.append(cleared.removed)
        for text in self._paragraphs.add(cleared.lines):
            self._add_line(text)

    def _add_line(self, text: str) -> None:
        message: list[Any] = [self._kinds.popleft(), text]
        removed = self._removed.popleft()
        if count := self._paragraphs.hyphens:
            removed = [*removed, ("hyphens", "-" * count)]
        if removed:
            message.append(removed)
        self._unsent.append(json.dumps(message, ensure_ascii=False) + "\n")

    def _send_lines(self) -> None:
        if self._unsent:
            self._send("".join(self._unsent))
            self._unsent.clear()


def _open(data: bytes) -> pypdfium2.PdfDocument | str:
    """Return an open document, or "encrypted" or "unreadable"."""
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        return "encrypted" if _NEEDS_PASSWORD in str(error).lower() else "unreadable"


def _facts(opened: pypdfium2.PdfDocument) -> dict[str, Any]:
    return {
        "pages": len(opened),
        "encrypted": pypdfium2.raw.FPDF_GetSecurityHandlerRevision(opened.raw) >= 0,
        "restricted": not pypdfium2.raw.FPDF_GetDocPermissions(opened.raw) & _MAY_EXTRACT,
        "producer": opened.get_metadata_value("Producer") or None,
    }
