"""Stage that turns PDF files into text."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import document_ids, has_values
from longcrawl.core.counts import FROM_OCR, OCR, REFETCH
from longcrawl.core.display import counted
from longcrawl.core.places import make_places
from longcrawl.core.queues import SCHEMA, queue_rows
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.errors import StageError, listed, quoted
from longcrawl.kernels.texts import check_not_masked, given_texts
from longcrawl.sources.warc.pages import begins_like_pdf
from longcrawl.text.extract.pool import Extracted, Workers, WorkerSettings, check_limits
from longcrawl.text.pdf.ocr_results import put_in_place, read_results, result_files

_WORKER = str(Path(__file__).with_name("_worker.py"))
_NAMED = 5
"""Documents that a warning names."""
_MISSING_PAGES = {"failed": "failed_page", "scan": "scanned_page", "garbled": "garbled_page"}
"""Rules of the edit ledger for pages without a text that no queue lists, by the kind of the page."""
_COLUMNS = {
    "page_offsets": pa.list_(pa.int64()),
    "pages": pa.int32(),
    "pages_read": pa.int32(),
    "pages_scanned": pa.int32(),
    "pages_garbled": pa.int32(),
    "pages_blank": pa.int32(),
    "ocr_pages": pa.list_(pa.int32()),
    "pdf_partial": pa.string(),
    "pdf_encrypted": pa.bool_(),
    "pdf_restricted": pa.bool_(),
    "pdf_producer": pa.string(),
}

_workers = Workers()


@stage
class ExtractPdf(Edit):
    r"""Extract text from PDF files: ``content`` (binary) becomes ``text``.

    A row without content keeps its text, and its other columns are null. A later ``extract_text`` can extract web pages
    among the documents; it does not change texts of PDFs. Pages are read in the order of the file, or by columns if the
    file jumps between them. Running headers and footers, page numbers, and leaders in tables of contents are removed. A
    running line is at the same height on three of nine neighbouring pages. Lines and pages are joined to paragraphs,
    and hyphens at line ends removed, unless the hyphenated word is more frequent in the document. Cells of aligned
    tables are separated by tabs, and rows by line breaks. Truncated files are repaired. Scanned, garbled and unreadable
    pages have no text, and are listed for OCR.

    Args:
        max_bytes: largest file.
        max_pages: maximum number of pages that are read.
        max_page_seconds: CPU seconds for a page.
        max_seconds: CPU seconds for a document; the pages read before are kept, as for the other limits.
        max_memory: bytes of memory for a document, at least 4 million (Linux only).
        max_characters: characters of a document.
        cut_files: "rescue" repairs files without their end, 24 % of PDFs in crawls that cut at 1 MiB; "remove" removes
            them by the rule ``pdf_unreadable``.
        on_scanned: "queue" removes documents with too few text pages, and puts documents with pages for OCR into the
            OCR queue of a run; "drop" removes them and queues nothing; "keep" queues, and keeps documents with any
            text, also if most pages are scanned or garbled.
        hidden_text: "keep" uses text that is not painted, as OCR writes over scans; "queue" counts the page as scanned.
        restricted: "drop" removes files whose owner forbids the extraction of text, which no password enforces.
        min_text_pages: share of the pages with ink that must have text, between 0 and 1.
        min_characters_per_page: characters on average, if more pages are blank than have text. Short documents are
            kept, and files without their end.
        running: "keep" keeps running lines and leaders.
        hyphens: "keep" does not join words at line ends.
        page_break: text between two pages, unless a paragraph continues.
        join: files with the texts of pages that an OCR program has read, as paths or globs. They are JSON lines with
            ``id`` and ``page`` and ``text``, or ``pages`` and ``texts``. These texts replace scanned and garbled pages,
            which then count as text pages. All of them are held in memory.
        workers: processes that extract at the same time.

    Columns:
        ``page_offsets``: list of int64, the start of each page read, in characters of ``text``.
        ``pages``, ``pages_read``, ``pages_scanned``, ``pages_garbled``, ``pages_blank``: int32.
        ``ocr_pages``: list of int32, the pages that only OCR may read, counted from 1: scanned and garbled ones, and
            those that PDFium cannot load or that have more than 2 million characters, unless the file is cut.
        ``pdf_partial``: why text may be missing, or null: "cut" by the crawler, "rescued" without its end, or the limit
            that was reached: "pages", "characters", "time" or "memory"; "failures" if pages could not be read, "crash"
            if PDFium ended behind the last page read.
        ``pdf_encrypted``: whether the file is encrypted; it opens without a password.
        ``pdf_restricted``: whether the owner of the file forbids the extraction of text.
        ``pdf_producer``: the program that made the file.
        ``pages_joined``: int32, pages whose text is from ``join``; only if that is set.

    Source: the steps of FinePDFs (Hugging Face, 2025); the reading order is ours.

    >>> ExtractPdf().settings()["on_scanned"]
    'queue'
    """

    rewrites = "text"
    code_version: ClassVar[str] = "1"
    looks_at = "content"

    max_bytes: int = 64 << 20
    max_pages: int = 20_000
    max_page_seconds: float = 5.0
    max_seconds: float = 120.0
    max_memory: int = 1_000_000_000
    max_characters: int = 50_000_000
    cut_files: Literal["rescue", "remove"] = "rescue"
    on_scanned: Literal["queue", "drop", "keep"] = "queue"
    hidden_text: Literal["queue", "keep"] = "queue"
    restricted: Literal["keep", "drop"] = "keep"
    min_text_pages: float = 0.5
    min_characters_per_page: int = 100
    running: Literal["remove", "keep"] = "remove"
    hyphens: Literal["join", "keep"] = "join"
    page_break: str = "\n\n"
    join: tuple[str, ...] = ()
    workers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(max_bytes=1, max_pages=1, max_characters=1, workers=1, min_characters_per_page=0)
        check_limits(self, "max_page_seconds", "max_seconds")
        if not 0 <= self.min_text_pages <= 1:
            raise StageError(f"extract_pdf.min_text_pages must be between 0 and 1, got {self.min_text_pages}")

    def files(self) -> tuple[str, ...]:
        """Return the paths of the results to join."""
        return result_files(self.join)

    def prepare(self) -> None:
        """Read the results to join and start a worker.

        Raises:
            StageError: pypdfium2 is not installed, or a file of results is missing or has another form.
        """
        read_results(*self.files())
        _workers.extract(self._worker_settings(), self.workers, None)

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Return the table with the texts and without ``content``, and the checks of every rule."""
        return self.trace(table)[:2]

    def trace(self, table: pa.Table) -> Edited:
        """Return what :meth:`edit` does, and the lines, hyphens and pages that are not in the texts.

        Raises:
            StageError: the column ``content`` is missing or not binary, pypdfium2 is not installed, or a column that
                the stage adds exists.
        """
        columns = _COLUMNS | ({"pages_joined": pa.int32()} if self.join else {})
        if taken := [name for name in columns if name in table.column_names]:
            raise StageError(
                f"extract_pdf adds a column {taken[0]!r}, which the documents already have: rename or remove it"
            )
        check_not_masked(table, self.name)
        contents = _contents(table)
        given, kind = given_texts(table, self.name)
        read, joined = self._joined(table, self._read(contents, _are_whole(table)))
        texts = [text if each is None else each.text for text, each in zip(given, read, strict=True)]
        made = with_column(table.drop_columns("content"), "text", pa.array(texts, kind))
        rows = [
            {} if each is None else _values(each) | {"pages_joined": count}
            for each, count in zip(read, joined, strict=True)
        ]
        for name, column_type in columns.items():
            made = made.append_column(name, pa.array([row.get(name) for row in rows], column_type))
        pages = zip(texts, has_values(table, "html"), strict=True)
        lengths = pa.array([None if is_page else len(text or "") for text, is_page in pages], pa.int64())
        return Edited(made, self._checks(pc.binary_length(contents), read, lengths), self._places(read))

    def _places(self, read: "list[ReadPdf | None]") -> pa.Table:
        """Return what was removed from pages, and pages without a text that no queue lists."""
        rows, pages, rules, texts = list[int](), list[int](), list[str](), list[str | None]()
        for row, each in enumerate(read):
            queued = () if each is None or self.on_scanned == "drop" else each.for_ocr
            for page, (kind, removed) in enumerate(zip(each.kinds, each.removed, strict=True) if each else (), 1):
                whole = [(_MISSING_PAGES[kind], None)] if kind in _MISSING_PAGES and page not in queued else []
                for rule, text in [*whole, *removed]:
                    rows.append(row)
                    pages.append(page)
                    rules.append(rule)
                    texts.append(text)
        ends = [len(text or "") for text in texts]
        places = np.stack([np.zeros(len(ends), np.int64), np.array(ends, np.int64)], axis=1)
        columns = {"page": pa.array(pages, pa.int32()), "text": pa.array(texts, pa.string())}
        return make_places(np.array(rows, np.int64), pa.array(rules, pa.string()), places, **columns)

    def queue(self, before: pa.Table, after: pa.Table, rules: pa.Array) -> dict[str, pa.Table]:
        """Return documents with pages for OCR, and those whose file lacks a part, see :mod:`longcrawl.core.queues`."""
        sizes = {"bytes": pc.cast(pc.binary_length(_contents(before)), pa.int64()), "pages": after["pages"]}
        read = sizes | {"pages_read": after["pages_read"]}
        has_pages = pc.fill_null(pc.greater(pc.list_value_length(after["ocr_pages"]), 0), False)
        if self.on_scanned == "drop":
            has_pages = pa.array([False] * after.num_rows)
        cut = pc.is_in(after["pdf_partial"], pa.array(["cut", "rescued"]))
        cut = pc.and_not(cut, pa.array([is_whole is True for is_whole in _are_whole(before)], pa.bool_()))
        images = pc.fill_null(pc.greater(pc.add(after["pages_scanned"], after["pages_garbled"]), 0), False)
        missing = pc.if_else(images, "pages", "unreadable_pages")
        for_ocr = read | {"reason": pc.coalesce(rules, missing), "page_numbers": after["ocr_pages"]}
        to_fetch = read | {"reason": pc.coalesce(rules, after["pdf_partial"])}
        queued = {OCR: queue_rows(after, has_pages, for_ocr), REFETCH: queue_rows(after, cut, to_fetch)}
        if self.join:
            results = read_results(*self.files())
            numbers = [sorted(results.get(name, ())) for name in document_ids(after, self.name).to_pylist()]
            joined = pc.fill_null(pc.greater(after["pages_joined"], 0), False)
            pages = pa.array(numbers, SCHEMA.field("page_numbers").type)
            columns = read | {"reason": pc.coalesce(rules, "pages"), "page_numbers": pages}
            queued[FROM_OCR] = queue_rows(after, joined, columns)
        return {name: rows for name, rows in queued.items() if rows.num_rows}

    def check_joined(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return a warning if some documents of ``join`` are not among ``ids``; raise a StageError if all are not."""
        if not self.join:
            return ()
        results = read_results(*self.files())
        used = results.keys() & set(ids)
        if not used:
            raise StageError(
                f"extract_pdf.join: no document has an id in {', '.join(self.join)}: join results with the source of "
                "the run whose queue was read"
            )
        unused = [name for name in results if name not in used]
        if not unused:
            return ()
        first = listed(map(quoted, unused[:_NAMED]))
        here = f"join has texts of {counted(len(results), 'document')}, but {len(unused):,} of these are not here"
        return (f"{here}, the first: {first}: join results with the source of the run whose queue was read",)

    def _read(self, contents: pa.Array, are_whole: list[bool | None]) -> "list[ReadPdf | None]":
        """Return the result for each row, None for a row without content."""
        # Buffers of the column itself, so that no file is copied before it is written to the pipe.
        files = {row: memoryview(each.as_buffer()) for row, each in enumerate(contents) if each.is_valid}
        read: list[ReadPdf | None] = [None] * len(contents)
        sent: dict[int, memoryview] = {}
        for row, file in files.items():
            is_small = len(file) <= self.max_bytes
            read[row] = ReadPdf("not_pdf" if is_small else "bytes")
            if is_small and begins_like_pdf(file, declared=True):
                sent[row] = file
        answers = _workers.extract(self._worker_settings(), self.workers, list(sent.values()))
        for row in reversed(sent):
            read[row] = read_answer(answers.pop())  # frees each answer, which is as long as the text
        for row, each in enumerate(read):
            read[row] = each and replace(each, is_whole=are_whole[row])
        return read

    def _joined(self, table: pa.Table, read: "list[ReadPdf | None]") -> "tuple[list[ReadPdf | None], list[int]]":
        """Return the documents with the results of OCR in their places, and the number of these in each."""
        if not self.join:
            return read, [0] * len(read)
        results = read_results(*self.files())
        own = [results.get(each, {}) for each in document_ids(table, self.name).to_pylist()]
        made = list(read)
        for row, (name, each, pages) in enumerate(zip(table["id"].to_pylist(), read, own, strict=True)):
            if each is None or not pages:
                continue
            if unwanted := sorted(set(pages) - set(each.for_ocr)):
                raise StageError(
                    f"extract_pdf.join has a text for page {unwanted[0]} of document {name!r}, which is not among its "
                    "pages for OCR: join results with the recipe and the source of the run whose queue was read"
                )
            made[row] = each.with_results(pages, self.page_break)
        return made, [0 if each is None else len(pages) for each, pages in zip(read, own, strict=True)]

    def _worker_settings(self) -> WorkerSettings:
        fields = ("max_pages", "max_seconds", "max_characters", "cut_files", "hidden_text", "running", "hyphens")
        options = {name: getattr(self, name) for name in (*fields, "page_break")}
        limits = (self.max_page_seconds, self.max_memory)
        return WorkerSettings(options, *limits, worker=_WORKER, stage=self.name, extra="pdf")

    def _checks(self, sizes: pa.Array, read: "list[ReadPdf | None]", lengths: pa.Array) -> list[Check]:
        """Return the checks in order of precedence; ``lengths`` of texts are null for pages without a text so far.

        The value of a document stopped at a limit is the limit, as its full amount is unknown.
        """
        failures = np.array([None if each is None else each.failure for each in read], object)
        checks = [Check("pdf_bytes", sizes, pa.array(failures != "bytes"), self.max_bytes, "at_most")]
        unknown = pa.nulls(len(read), pa.float64())
        for failure in ("not_pdf", "encrypted", "unreadable", "crash"):
            value = sizes if failure == "unreadable" else unknown
            rule = failure if failure == "not_pdf" else f"pdf_{failure}"
            checks.append(Check(rule, value, pa.array(failures != failure)))
        for failure, limit in (("memory", self.max_memory), ("time", self.max_page_seconds)):
            stopped = failures == failure
            value = pa.array(np.full(len(read), float(limit)), mask=~stopped)
            checks.append(Check(f"pdf_{failure}", value, pa.array(~stopped), limit, "at_most"))
        if self.restricted == "drop":
            checks.append(
                Check("pdf_restricted", unknown, pa.array([each is None or not each.restricted for each in read]))
            )

        def measured(measure: Callable[[ReadPdf], float | None]) -> pa.Array:
            values = [None if each is None or each.failure is not None else measure(each) for each in read]
            return pa.array(values, pa.float64())

        most = 1 - self.min_text_pages
        checks.append(_at_least("pdf_blank", measured(lambda each: each.inked), 1))
        if self.on_scanned != "keep":
            checks += [
                _at_most("pdf_garbled", measured(lambda each: each.share("garbled")), most),
                _at_most("pdf_scanned", measured(lambda each: each.share("scan", "garbled")), most),
            ]
        average = measured(lambda each: each.characters_per_page if each.seems_empty else None)
        return [
            *checks,
            _at_least("pdf_few_characters", average, self.min_characters_per_page),
            _at_least("no_text", lengths, 1),
        ]


@dataclass(frozen=True)
class ReadPdf:
    """Result of reading a PDF."""

    failure: str | None = None
    """Reason why no page was read."""
    kinds: tuple[str, ...] = ()
    """Kind of each page, see :data:`longcrawl.text.pdf.words.Kind`."""
    text: str | None = None
    """Text of all pages, or None if no page was read."""
    lengths: tuple[int, ...] = ()
    """Characters of each page."""
    removed: tuple[Sequence[tuple[str, str]], ...] = ()
    """Rules and removed texts of each page."""
    pages: int | None = None
    """Number of pages that the file claims; None if the worker ended before it sent it."""
    rescued: bool = False
    stopped: str | None = None
    """Limit at which reading stopped, or None at the last page."""
    encrypted: bool | None = None
    restricted: bool | None = None
    """Whether the owner forbids the extraction of text."""
    producer: str | None = None
    is_whole: bool | None = None
    """Whether the file is complete; None if that is not known."""

    @property
    def inked(self) -> int:
        """Number of pages with text or an image."""
        return self.count("text", "scan", "garbled")

    @property
    def partial(self) -> str | None:
        """Reason why text may be missing, or None."""
        if self.is_whole is False:
            return "cut"
        return "rescued" if self.rescued else self.stopped or ("failures" if "failed" in self.kinds else None)

    @property
    def for_ocr(self) -> list[int]:
        """Pages that only OCR may read, counted from 1; those that a cut file lacks must be fetched again."""
        is_cut = self.is_whole is False or (self.rescued and self.is_whole is None)
        wanted = ("scan", "garbled") if is_cut else ("scan", "garbled", "failed")
        return [number for number, kind in enumerate(self.kinds, 1) if kind in wanted]

    def with_results(self, results: Mapping[int, str], page_break: str) -> "ReadPdf":
        """Return the document with the texts that OCR has read, by number of the page, as pages with text or blank."""
        ends = list(accumulate(self.lengths))
        texts = [(self.text or "")[end - length : end] for end, length in zip(ends, self.lengths, strict=True)]
        made = put_in_place(texts, results, page_break)
        kinds = [
            ("text" if made[number - 1] else "blank") if number in results else kind
            for number, kind in enumerate(self.kinds, 1)
        ]
        return replace(self, failure=None, kinds=tuple(kinds), text="".join(made), lengths=tuple(map(len, made)))

    @property
    def seems_empty(self) -> bool:
        """Whether more pages are blank than have text, in a file with its end."""
        return not self.rescued and self.count("blank") > self.count("text")

    @property
    def characters_per_page(self) -> float:
        """Mean number of characters of the pages that were read."""
        return sum(self.lengths) / max(self.count("text", "scan", "garbled", "blank"), 1)

    def count(self, *kinds: str) -> int:
        """Return the number of pages of some kinds."""
        return sum(map(self.kinds.count, kinds))

    def share(self, *kinds: str) -> float:
        """Return the share of pages of some kinds among those with ink."""
        return self.count(*kinds) / max(self.inked, 1)


def read_answer(answer: Extracted) -> ReadPdf:
    """Return the result from the messages of a worker, see :class:`longcrawl.text.pdf.document.Document`."""
    kinds, texts, removed = [], [], []
    summary: dict[str, Any] = {"stopped": answer.failure}
    for line in _lines(answer.text or ""):
        message = json.loads(line)
        if isinstance(message, dict):
            summary = message
        else:
            kinds.append(message[0])
            texts.append(message[1])
            removed.append(message[2] if len(message) > 2 else ())
    if "failure" in summary:
        return ReadPdf(summary["failure"])
    # A file may claim any number of pages; pages that it lacks are not listed for OCR.
    while summary["stopped"] == "failures" and kinds and kinds[-1] == "failed":
        for each in (kinds, texts, removed):
            each.pop()
    read = ReadPdf(None, tuple(kinds), "".join(texts), tuple(map(len, texts)), tuple(removed), **summary)
    if all(kind == "failed" for kind in kinds):
        failure = read.stopped if read.stopped in ("time", "memory", "crash") else "unreadable"
        return replace(read, failure=failure, text=None)
    return read


def _values(read: ReadPdf) -> dict[str, Any]:
    """Return the values of the added columns for a document."""
    for_ocr = {"pages": read.pages, "ocr_pages": read.for_ocr} if read.kinds else {}
    if read.failure is not None:
        partial = read.partial if read.partial in ("cut", "rescued") else None
        return for_ocr | {"pdf_encrypted": read.failure == "encrypted" or None, "pdf_partial": partial}
    return for_ocr | {
        "page_offsets": [0, *accumulate(read.lengths)][:-1],
        "pages_read": read.count("text", "scan", "garbled", "blank"),
        "pages_scanned": read.count("scan"),
        "pages_garbled": read.count("garbled"),
        "pages_blank": read.count("blank"),
        "pdf_partial": read.partial,
        "pdf_encrypted": read.encrypted,
        "pdf_restricted": read.restricted,
        "pdf_producer": read.producer,
    }


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a long text one by one, without a copy of all of them."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    if start < len(text):
        yield text[start:]


def _at_least(rule: str, values: pa.Array, bound: float) -> Check:
    return Check(rule, values, pc.fill_null(pc.greater_equal(values, bound), True), bound, "at_least")


def _at_most(rule: str, values: pa.Array, bound: float) -> Check:
    return Check(rule, values, pc.fill_null(pc.less_equal(values, bound), True), bound, "at_most")


def _contents(table: pa.Table) -> pa.Array:
    contents = column(table, "content", ExtractPdf.name)
    if pa.types.is_binary(contents.type) or pa.types.is_large_binary(contents.type):
        return contents
    if pa.types.is_null(contents.type):
        return pc.cast(contents, pa.large_binary())
    raise StageError(
        f"extract_pdf needs a column 'content' of binary values, but it is {contents.type}: give the bytes of files"
    )


def _are_whole(table: pa.Table) -> list[bool | None]:
    """Return which files are whole, by columns of the source: False if a crawler has cut it, None if unknown."""
    columns = (
        table[name].to_pylist() if name in table.column_names else None for name in ("truncated", "bytes_announced")
    )
    cut, announced = (column or [None] * table.num_rows for column in columns)
    sizes = pc.binary_length(_contents(table)).to_pylist()
    return [
        False if reason else (wanted is not None and size is not None and size >= wanted) or None
        for reason, wanted, size in zip(cut, announced, sizes, strict=True)
    ]
