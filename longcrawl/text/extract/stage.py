"""Text extraction stage, and RefinedWeb's formatting of the extracted text."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import has_values
from longcrawl.core.registry import Conditions
from longcrawl.core.stages import Check, Edit, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.io.files import content_digest
from longcrawl.kernels.texts import check_not_masked, given_texts, valid_texts
from longcrawl.text.extract.blocks import MODEL, PageExplanation, Style, explain_page, extract_blocks, load_model
from longcrawl.text.extract.pool import Extracted, WorkerSettings, check_limits, extract_pages
from longcrawl.text.extract.structured_data import NEARLY_EMPTY, Metadata, fill_in, read_metadata

# Not IGNORECASE, with which U+017F would match an s.
_BEGINS = r"(?:[Hh][Tt]{2}[Pp][Ss]?|[Ff][Tt][Pp])://|(?<![\w.])[Ww]{3}\.(?=[A-Za-z0-9])"
# Scripts with spaces between words: Latin to Sinhala below U+0E00, accented Latin and Greek from U+1E00 on.
_SPACED = "".join(
    letter
    for letter in map(chr, chain(range(0x80, 0xE00), range(0x1E00, 0x2000)))
    if letter.isalnum() or unicodedata.category(letter)[0] == "M"
)
_WITHIN_BEGINS = ("://", "ww.", "wW.", "Ww.", "WW.")
"""Substrings of everything that begins a URL.

Searching for them is faster than matching the pattern everywhere.
"""
_URL = re.compile(rf"(?:{_BEGINS})[-A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%{_SPACED}]+")
_BLANKS = re.compile(r"\s*")
_NO_END = ".,:;!?'*"
_BRACKETS = {")": "(", "]": "["}
_AROUND = dict(zip(")]>）］】〕〉》」』”’»›“", "([<（［【〔〈《「『“‘«‹„", strict=True))  # noqa: RUF001
"""Opening brackets and quotes by the closing ones, which are removed with the URLs that are alone inside them."""
_BETWEEN = re.compile(r"[\s,;|/&]*")


def format_text(text: str, urls: Literal["remove", "keep"] = "remove", max_newlines: int | None = 2) -> str:
    r"""Remove URLs from a text, limit consecutive line feeds, and strip surrounding white space, in this order.

    A URL begins with http://, https:// or ftp://, in any case and even inside a word, or with www. and an ASCII letter
    or digit, unless a letter, digit, _ or full stop precedes it. It continues over characters of RFC 3986, and over
    letters, digits and marks from U+0080 to U+0DFF and from U+1E00 to U+1FFF, as people type them: these scripts
    separate words by spaces. Other scripts end it, since in those without spaces it would extend to the end of the
    paragraph. A URL does not include . , : ; ! ? ' * at its end, nor closing brackets without opening ones. Names such
    as example.org are words and are kept.

    Brackets and quotes, such as ``()``, ``[]``, ``«»`` and full-width ones, are also removed if they contain only URLs,
    with white space or , ; | / & between: "the tide (https://example.org)" becomes "the tide". Straight quotes are
    kept, since opening and closing quotes look the same.

    A URL is removed with the white space before it on its line. That white space is kept if a letter or digit follows
    immediately and something is left before it. If nothing is left before it, the white space after it is also removed.
    A line of which nothing is left is removed with its line feed. Lines without a URL are unchanged.

    More than ``max_newlines`` line feeds with only white space between them become ``max_newlines`` line feeds. None
    means no limit.

    Raises:
        StageError: ``max_newlines`` is less than 1.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1: "we limit new lines to two
    consecutive ones, and remove all URLs".

    >>> format_text("See https://example.org/a_(b)?c=d, or www.example.org.\nhttp://example.org\n\n \n\nThe end.")
    'See, or.\n\nThe end.'
    >>> format_text("Siehe https://de.wikipedia.org/wiki/Übung hier. 参见http://example.org/路径")
    'Siehe hier. 参见路径'
    """
    if max_newlines is not None and max_newlines < 1:
        raise StageError(f"max_newlines must be a whole number of 1 or more, or None for any, got {max_newlines}")
    if urls == "remove" and _may_have_urls(text):
        lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
        text = "".join([_without_urls(line) if _may_have_urls(line) else line for line in lines])
    if max_newlines is not None:
        text = re.sub(rf"\n(?:[^\S\n]*\n){{{max_newlines},}}", "\n" * max_newlines, text)
    return text.strip()


def _may_have_urls(text: str) -> bool:
    return any(each in text for each in _WITHIN_BEGINS)


def _without_urls(line: str) -> str:
    """Return a line, with its line feed, without URLs."""
    content = line.removesuffix("\n")
    kept: list[str] = []
    at = 0
    for start, stop in _with_brackets(
        content, [(m.start(), m.start() + _length(m[0])) for m in _URL.finditer(content)]
    ):
        before = content[at:start]
        at = stop
        if bare := before.rstrip():
            kept.append(bare)
        if not kept:
            at = _BLANKS.match(content, at).end()  # type: ignore[union-attr]  # it matches anywhere
        elif content[at : at + 1].isalnum():
            kept.append(before[len(bare) :])
    kept.append(content[at:])
    left = "".join(kept)
    return left + line[len(content) :] if at == 0 or left else ""


def _with_brackets(content: str, urls: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches to remove: URLs one by one, or with the brackets that contain only them."""
    first, least = 0, 0
    while first < len(urls):
        last = first
        while last + 1 < len(urls) and _BETWEEN.fullmatch(content, urls[last][1], urls[last + 1][0]):
            last += 1
        start, stop = _outside(content, urls[first][0], urls[last][1], least)
        yield from [(start, stop)] if start < urls[first][0] else urls[first : last + 1]
        first, least = last + 1, stop


def _outside(content: str, start: int, stop: int, least: int) -> tuple[int, int]:
    """Extend a stretch by all brackets that contain nothing else; it never begins before ``least``."""
    while True:
        begin, end = start, _BLANKS.match(content, stop).end()  # type: ignore[union-attr]  # it matches anywhere
        while begin > least and content[begin - 1].isspace():
            begin -= 1
        if begin == least or content[begin - 1] != _AROUND.get(content[end : end + 1]):
            return start, stop
        start, stop = begin - 1, end + 1


def _length(url: str) -> int:
    """Return the length of the URL at the beginning of a match."""
    surplus = {closing: url.count(closing) - url.count(opening) for closing, opening in _BRACKETS.items()}
    end = len(url)
    while url[end - 1] in _NO_END or surplus.get(url[end - 1], 0) > 0:
        if url[end - 1] in surplus:
            surplus[url[end - 1]] -= 1
        end -= 1
    return end


@stage
class ExtractText(Edit):
    r"""Extract the main content of a page, without menus, headers, footers and ads (RefinedWeb, section 3.1).

    The page's text is extracted from the column ``html``, which is removed, to the column ``text``, formatted by
    :func:`format_text`. If ``html`` is null, there was no page (conversion records of WET files, plain text): the
    existing text is only formatted. Texts of :class:`~longcrawl.text.ExtractPdf`, which have ``pages_read``, are not
    changed, since their ``page_offsets`` count characters.

    Documents are removed by these rules:

    * ``extraction_bytes``: the page is larger than ``max_bytes``; it is not extracted;
    * ``extraction_time``: the extraction took more than ``max_seconds``;
    * ``extraction_memory``: the extraction took more than ``max_memory``;
    * ``extraction_crash``: the library failed, or its process died;
    * ``no_text``: the extracted or given text is empty.

    The engine "blocks" divides a page into blocks of text by HTML's rules, and keeps those that a model, trained on
    annotated pages of seven types, classifies as main content. Rows of tables, lists, quotations and code are kept or
    removed whole; cells are separated by " | ". Hidden elements (``hidden``, ``display: none`` or
    ``visibility: hidden`` in an attribute or a simple rule of a ``<style>``) have no text, unless they contain a
    quarter of the page's text, which a script then displays. The page's title is content only if the annotators
    included it. :func:`~longcrawl.text.explain_page` shows the blocks of a page and their probabilities.

    "blocks" extracts pages in this process: time and memory are linear in a page's bytes, with at most 4 s of CPU and
    140 MB for a megabyte of the shortest paragraphs. ``max_seconds``, ``max_memory`` and ``workers`` do not apply to
    it.

    On the 1,476 annotated pages of WCXB's development half, by models that had not seen the site, its mean F1 is 0.881,
    against trafilatura's 0.764 and resiliparse's 0.784 (words; articles 0.956, 0.914 and 0.885). The model is trained
    on these pages, which are English for the most part.

    If "blocks" finds fewer than 500 characters, texts of the page's JSON-LD and microdata that it lacks are added if
    they are together at least as long: bodies of articles, posts, questions, answers and comments, recipes and
    descriptions of products.

    With ``metadata``, every engine adds the columns ``title``, ``author`` and ``published``, strings that are null if
    unknown. Each comes from JSON-LD, if it describes one article or post, recipe, product or question; else from meta
    tags (``og:title``, ``author``, ``article:published_time`` and the like); else from ``<title>`` or
    ``<time datetime>``. ``published`` is a date, or a date and time, of ISO 8601 as the page has it. The column
    ``date`` keeps the time of the crawl.

    For the other engines, pages are extracted in separate processes, ``workers`` for each process that runs stages,
    which are kept for later batches and end with their parent. A hostile page therefore costs only itself. The
    operating system enforces the limits. Time is CPU time of the process, whatever else the machine does. Memory is
    address space beyond that of an idle worker, on Linux only; the system refuses more than twice ``max_memory``. A
    page on which a worker dies is tried again alone, so that neither earlier pages nor an external ``kill`` decide
    about it.

    The result of a document does not depend on other documents, so batches, ``workers`` and ``--num-proc`` do not
    change it. Some things can still vary. A page close to the time limit passes on a faster machine, and one close to
    the memory limit with another version of a library. Versions of the engines give different texts. A worker without
    an answer for a minute of wall time per second of ``max_seconds`` counts as stuck, and its page is removed by
    ``extraction_time``.

    Args:
        engine: "trafilatura", the paper's; "blocks"; or "resiliparse", which keeps more text that is not content.
        favor: preference in doubtful cases. "balanced" is trafilatura's own default. For "blocks", "precision" keeps
            blocks above the probability that maximises the expected F1 of a page; "balanced" and "recall" multiply this
            probability by 0.75 and 0.5, so each keeps everything that the stricter setting keeps. Not used by
            resiliparse.
        format: "text", or "markdown" with headings, lists, tables, quotations, code and, if ``urls`` is "keep", links;
            only with "blocks".
        max_seconds: CPU time per page, up to a day.
        max_bytes: maximum size of ``html`` as UTF-8.
        max_memory: bytes per page, at least 4 million.
        urls: whether to remove or keep URLs in the text.
        max_newlines: maximum number of consecutive line feeds; None for no limit.
        workers: worker processes. One keeps a core busy; more are for a notebook, in which nothing else runs at the
            same time.
        metadata: whether to add the columns ``title``, ``author`` and ``published``.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1; Barbaresi, "Trafilatura", 2021;
    Bevendorff et al., "Elastic ChatNoir", 2018 (resiliparse).

    >>> import pyarrow as pa
    >>> page = "<html><body><nav>Home</nav><main><p>The story.</p><p>See https://example.org</p></main></body></html>"
    >>> ExtractText(engine="resiliparse")(pa.table({"id": ["a"], "html": [page]})).to_pylist()
    [{'id': 'a', 'text': 'The story.\n\nSee'}]
    """

    rewrites = "text"
    code_version: ClassVar[str] = "6"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("metadata",)
    only_with: ClassVar[Conditions] = MappingProxyType(
        {
            "favor": {"engine": ("trafilatura", "blocks")},
            "format": {"engine": ("blocks",)},
            "max_seconds": {"engine": ("trafilatura", "resiliparse")},
            "max_memory": {"engine": ("trafilatura", "resiliparse")},
            "workers": {"engine": ("trafilatura", "resiliparse")},
        }
    )
    looks_at = "html"

    engine: Literal["trafilatura", "resiliparse", "blocks"] = "trafilatura"
    favor: Literal["precision", "balanced", "recall"] = "precision"
    format: Literal["text", "markdown"] = "text"
    max_seconds: float = 10.0
    max_bytes: int = 10_000_000
    max_memory: int = 1_000_000_000
    urls: Literal["remove", "keep"] = "remove"
    max_newlines: int | None = 2
    workers: int = 1
    metadata: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(max_bytes=1, max_newlines=1, workers=1)
        check_limits(self, "max_seconds")

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return the origin and digest of the model of "blocks"."""
        if self.engine != "blocks":
            return {}
        pages = "WCXB's development half (Murrough-Foley/web-content-extraction-benchmark)"
        about = {"about": f"model of extract_text, trained on {pages}", "licence": "CC-BY-4.0"}
        return {MODEL.name: about | {"sha256": content_digest(str(MODEL))}}

    def prepare(self) -> None:
        """Start a worker, or load the model.

        Raises:
            StageError: the engine is not installed.
        """
        if self.engine == "blocks":
            load_model()
        else:
            extract_pages(None, self._worker_settings(), self.workers)

    def edit(self, table: pa.Table) -> tuple[pa.Table, list[Check]]:
        """Return the table with the texts and without ``html``, and the checks of every rule.

        Raises:
            StageError: the column ``html`` is missing or does not contain strings, the engine is not installed, or a
                column of ``metadata`` exists.
        """
        if self.metadata and (taken := [name for name in Metadata._fields if name in table.column_names]):
            raise StageError(
                f"extract_text.metadata adds a column {taken[0]!r}, which the documents already have: "
                "rename or remove that column, or remove metadata"
            )
        check_not_masked(table, self.name)
        pages = valid_texts(column(table, "html", self.name), self.name, "html")
        given, kind = given_texts(table, self.name)
        sizes = pc.binary_length(pages)
        chosen = np.asarray(pc.fill_null(pc.less_equal(sizes, self.max_bytes), False))
        extracted = self._extract(pages, chosen)
        texts = [text if page is None else None for text, page in zip(given, sizes.to_pylist(), strict=True)]
        failures: list[str | None] = [None] * table.num_rows
        for row, (text, failure) in zip(np.flatnonzero(chosen).tolist(), extracted, strict=True):
            texts[row], failures[row] = text, failure
            if self.engine == "blocks" and text is not None and len(text) < NEARLY_EMPTY:
                texts[row] = fill_in(text, pages[row].as_buffer().to_pybytes())
        formatted = [
            text if text is None or is_pdf else format_text(text, self.urls, self.max_newlines)
            for text, is_pdf in zip(texts, has_values(table, "pages_read"), strict=True)
        ]
        made = with_column(table.drop_columns("html"), "text", pa.array(formatted, kind))
        if self.metadata:
            made = _with_metadata(made, pages, chosen)
        return made, self._checks(sizes, np.array(failures, object), formatted)

    def explain_page(self, page: str) -> PageExplanation:
        """Explain which blocks of a page this stage keeps; StageError if its engine is not "blocks"."""
        if self.engine != "blocks":
            raise StageError(f"extract_text shows blocks of a page only with engine 'blocks', not {self.engine!r}")
        content = page.encode()
        if len(content) > self.max_bytes:
            return PageExplanation((), f"the page has {len(content):,} bytes, more than max_bytes: it is not extracted")
        text = extract_blocks(pa.array([page], pa.large_string()), np.ones(1, np.bool_), self.favor)[0].as_py()
        added = len(fill_in(text, content)) - len(text) if len(text) < NEARLY_EMPTY else 0
        note = f"structured data of the page adds {added:,} characters" if added else None
        return PageExplanation(explain_page(page, self.favor).blocks, note)

    def _extract(self, pages: pa.Array, chosen: npt.NDArray[np.bool_]) -> list[Extracted]:
        """Return the results of the chosen pages."""
        if self.engine == "blocks":
            style: Style = "text"
            if self.format == "markdown":
                style = "markdown with links" if self.urls == "keep" else "markdown"
            texts = extract_blocks(pages, chosen, self.favor, style)
            return [Extracted(text) for text in texts.filter(chosen).to_pylist()]
        # Use the buffers of the column, so that no page is copied before it is written to the pipe.
        sent = [memoryview(pages[row].as_buffer()) for row in np.flatnonzero(chosen).tolist()]
        return extract_pages(sent, self._worker_settings(), self.workers)

    def _worker_settings(self) -> WorkerSettings:
        engine = str(Path(__file__).parent / f"_{self.engine}_engine.py")
        return WorkerSettings({"engine": engine, "favor": self.favor}, self.max_seconds, self.max_memory)

    def _checks(self, sizes: pa.Array, failures: Any, texts: list[str | None]) -> list[Check]:
        """Return the checks; the value of a page stopped at a limit is the limit, as its full amount is unknown."""
        fits = pc.fill_null(pc.less_equal(sizes, self.max_bytes), True)
        checks = [Check("extraction_bytes", sizes, fits, self.max_bytes, "at_most")]
        for reason, limit in (("time", self.max_seconds), ("memory", self.max_memory), ("crash", None)):
            stopped = failures == reason
            value = pa.array(
                np.full(len(stopped), limit or 0.0), mask=~stopped if limit else np.ones(len(stopped), bool)
            )
            checks.append(Check(f"extraction_{reason}", value, pa.array(~stopped), limit, "at_most" if limit else None))
        lengths = pa.array([len(text or "") for text in texts], pa.int64())
        checks.append(Check("no_text", lengths, pc.greater(lengths, 0), 1, "at_least"))
        return checks


def _with_metadata(table: pa.Table, pages: pa.Array, chosen: npt.NDArray[np.bool_]) -> pa.Table:
    read = [
        read_metadata(page.as_buffer().to_pybytes()) if wanted else Metadata()
        for page, wanted in zip(pages, chosen.tolist(), strict=True)
    ]
    for name in Metadata._fields:
        table = table.append_column(name, pa.array([getattr(each, name) for each in read], pa.string()))
    return table
