"""Text extraction: the stage, and RefinedWeb's formatting of the text."""

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

from longcrawl.core.registry import Conditions
from longcrawl.core.stages import Check, Edit, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.texts import check_not_masked, valid_texts
from longcrawl.text.extract._pool import Extracted, WorkerSettings, extract_pages
from longcrawl.text.extract.blocks import extract_blocks, load_model

# In any case, and without IGNORECASE, by which U+017F would be an s.
_BEGINS = r"(?:[Hh][Tt]{2}[Pp][Ss]?|[Ff][Tt][Pp])://|(?<![\w.])[Ww]{3}\.(?=[A-Za-z0-9])"
# Below U+0E00 are Latin to Sinhala, all with spaces between words; from U+1E00 on Latin and Greek with accents.
_SPACED = "".join(
    letter
    for letter in map(chr, chain(range(0x80, 0xE00), range(0x1E00, 0x2000)))
    if letter.isalnum() or unicodedata.category(letter)[0] == "M"
)
_WITHIN_BEGINS = ("://", "ww.", "wW.", "Ww.", "WW.")
"""One of these is in all that begins a URL; to look for them takes less time than to try the pattern everywhere."""
_URL = re.compile(rf"(?:{_BEGINS})[-A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%{_SPACED}]+")
_BLANKS = re.compile(r"\s*")
_NO_END = ".,:;!?'*"
_BRACKETS = {")": "(", "]": "["}
_AROUND = dict(zip(")]>）］】〕〉》」』”’»›“", "([<（［【〔〈《「『“‘«‹„", strict=True))  # noqa: RUF001
"""By what closes them brackets and quotes that go with a URL, or with several, that stands in them alone."""
_BETWEEN = re.compile(r"[\s,;|/&]*")


def format_text(text: str, urls: Literal["remove", "keep"] = "remove", max_newlines: int | None = 2) -> str:
    r"""Remove the URLs of a text, limit its line feeds in a row, and strip the white space around it, in this order.

    A URL begins with http://, https:// or ftp://, in any case and inside a word as well, or with www. and an ASCII
    letter or digit, where neither a letter, digit or _ nor a full stop is before it. It continues for as long as there
    are characters of RFC 3986, or letters, digits and marks from U+0080 to U+0DFF or from U+1E00 to U+1FFF, as people
    type them: scripts with spaces between words. Other scripts end it, since those without spaces would go with it up
    to the end of the paragraph. From its end . , : ; ! ? ' * are not part of it, nor are closing brackets of which it
    has more than opening ones. Names such as example.org are words and stay.

    Brackets and quotes go with what is removed, such as ``()``, ``[]``, ``«»`` and full-width ones, where URLs are all
    that is in them, with white space or , ; | / & between: of "the tide (https://example.org)" nothing but "the tide"
    is left. Straight quotes stay, as they do not say which of them open.

    A URL goes with the white space before it on its line, which stays where a letter or digit comes right behind it and
    something is left before it; where nothing is, the white space behind it goes as well. A line of which nothing is
    left goes with its line feed. Lines without a URL stay as they are.

    More than ``max_newlines`` line feeds with nothing but white space between them become ``max_newlines`` ones. None
    is any number.

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
        raise StageError(f"max_newlines is a whole number from 1 on, or None for any, got {max_newlines}")
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
    """Yield what is to be removed: URLs one by one, or with the brackets around those that stand in them alone."""
    first, least = 0, 0
    while first < len(urls):
        last = first
        while last + 1 < len(urls) and _BETWEEN.fullmatch(content, urls[last][1], urls[last + 1][0]):
            last += 1
        start, stop = _outside(content, urls[first][0], urls[last][1], least)
        yield from [(start, stop)] if start < urls[first][0] else urls[first : last + 1]
        first, least = last + 1, stop


def _outside(content: str, start: int, stop: int, least: int) -> tuple[int, int]:
    """Return a stretch with all brackets that have nothing else in them; none begins before ``least``."""
    while True:
        begin, end = start, _BLANKS.match(content, stop).end()  # type: ignore[union-attr]  # it matches anywhere
        while begin > least and content[begin - 1].isspace():
            begin -= 1
        if begin == least or content[begin - 1] != _AROUND.get(content[end : end + 1]):
            return start, stop
        start, stop = begin - 1, end + 1


def _length(url: str) -> int:
    """Return how many characters of what looks like a URL are one."""
    surplus = {closing: url.count(closing) - url.count(opening) for closing, opening in _BRACKETS.items()}
    end = len(url)
    while url[end - 1] in _NO_END or surplus.get(url[end - 1], 0) > 0:
        if url[end - 1] in surplus:
            surplus[url[end - 1]] -= 1
        end -= 1
    return end


_WALL_SECONDS = 60.0
"""Seconds without an answer per second of ``max_seconds``, after which a worker is taken to be stuck."""

_SHORTEST, _LONGEST = 0.001, 86_400
"""Seconds; what is shorter the system may take for no limit."""


@stage
class ExtractText(Edit):
    r"""Extract the main content of a page, without menus, headers, footers and ads: section 3.1 of RefinedWeb.

    The text of the page in the column ``html`` goes to the column ``text``, formatted by :func:`format_text`, and
    ``html`` goes. Where ``html`` is null there was no page (the conversion records of WET files, plain text): the text
    that is there is formatted, and nothing else happens to it.

    Documents leave by these rules:

    * ``extraction_bytes``: the page is larger than ``max_bytes``; it is not looked at;
    * ``extraction_time``: the extraction took more than ``max_seconds``;
    * ``extraction_memory``: it took more than ``max_memory``;
    * ``extraction_crash``: the library failed, or its process died;
    * ``no_text``: nothing is left, or nothing was there.

    The engine "blocks" divides a page into blocks of text by HTML's rules, and a model that was trained on annotated
    pages keeps those of the main content. Pages are extracted in this process: the time is linear in a page's bytes and
    the memory at most 60 times as much, so that ``max_seconds``, ``max_memory`` and ``workers`` mean nothing to it. On
    annotated pages of sites that it was not trained on, F1 of tokens is 0.963 and trafilatura's 0.964, at 17 times the
    speed; it keeps some more pieces that are not content.

    For the other engines pages are extracted in processes of their own, ``workers`` for each process that works on
    documents, which stay for later batches and end with their parent. So a hostile page costs one page. The operating
    system keeps the limits: time is CPU time of the process, whatever else the machine does, and memory is address
    space beyond what an idle worker has (on Linux only; more than twice ``max_memory`` is refused). A page that a
    worker dies of is tried again alone, so neither the pages before it nor somebody's ``kill`` decide about it.

    What a document becomes depends on no other document, so batches, ``workers`` and ``--num-proc`` change nothing.
    What can still vary: a page close to the limit of time passes on a faster machine, and one close to that of memory
    with another version of a library; versions of the engines give different texts; and a worker that has not answered
    for a minute of wall time per second of ``max_seconds`` is taken to be stuck, so that its page leaves as for time.

    Args:
        engine: "trafilatura", the paper's; "blocks", or "resiliparse", which keeps more that is not content.
        favor: what happens in doubt; "balanced" is trafilatura's own default, and "blocks" keeps what is content with a
            probability of 0.45, 0.38 or 0.28. Comments of readers are left out. Of no account for resiliparse.
        max_seconds: CPU time per page, up to a day.
        max_bytes: of ``html`` as UTF-8.
        max_memory: bytes per page.
        urls: what happens to URLs in the text.
        max_newlines: the most line feeds in a row, None for any number.
        workers: processes. One keeps a core busy; more are for a notebook, where nothing else runs at the same time.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1; Barbaresi, "Trafilatura", 2021;
    Bevendorff et al., "Elastic ChatNoir", 2018 (resiliparse).

    >>> import pyarrow as pa
    >>> page = "<html><body><nav>Home</nav><main><p>The story.</p><p>See https://example.org</p></main></body></html>"
    >>> ExtractText(engine="resiliparse")(pa.table({"id": ["a"], "html": [page]})).to_pylist()
    [{'id': 'a', 'text': 'The story.\n\nSee'}]

    """

    rewrites = "text"
    code_version: ClassVar[str] = "4"
    only_with: ClassVar[Conditions] = MappingProxyType(
        {
            "favor": {"engine": ("trafilatura", "blocks")},
            "max_seconds": {"engine": ("trafilatura", "resiliparse")},
            "max_memory": {"engine": ("trafilatura", "resiliparse")},
            "workers": {"engine": ("trafilatura", "resiliparse")},
        }
    )
    looks_at = "html"

    engine: Literal["trafilatura", "resiliparse", "blocks"] = "trafilatura"
    favor: Literal["precision", "balanced", "recall"] = "precision"
    max_seconds: float = 10.0
    max_bytes: int = 10_000_000
    max_memory: int = 1_000_000_000
    urls: Literal["remove", "keep"] = "remove"
    max_newlines: int | None = 2
    workers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("max_bytes", 1), ("max_memory", 1), ("max_newlines", 1), ("workers", 1)):
            if (value := getattr(self, name)) is not None and value < least:
                raise StageError(f"extract_text.{name} must be at least {least}, got {value}")
        if not _SHORTEST <= self.max_seconds <= _LONGEST:
            raise StageError(
                f"extract_text.max_seconds must be between {_SHORTEST} and {_LONGEST:,}, got {self.max_seconds}"
            )

    def prepare(self) -> None:
        """Start a worker, or read the model.

        Raises:
            StageError: the engine is not installed.

        """
        if self.engine == "blocks":
            load_model()
        else:
            extract_pages(None, self._worker_settings(), self.workers)

    def edit(self, table: pa.Table) -> tuple[pa.Table, list[Check]]:
        """Return the table with the texts and without ``html``, and every rule measured.

        Raises:
            StageError: there is no column ``html``, it is not one of strings, or the engine is not installed.

        """
        check_not_masked(table, self.name)
        pages = valid_texts(column(table, "html", self.name), self.name, "html")
        given, kind = _given_texts(table)
        sizes = pc.binary_length(pages)
        chosen = np.asarray(pc.fill_null(pc.less_equal(sizes, self.max_bytes), False))
        extracted = self._extract(pages, chosen)
        texts = [text if page is None else None for text, page in zip(given, sizes.to_pylist(), strict=True)]
        failures: list[str | None] = [None] * table.num_rows
        for row, (text, failure) in zip(np.flatnonzero(chosen).tolist(), extracted, strict=True):
            texts[row], failures[row] = text, failure
        formatted = [None if text is None else format_text(text, self.urls, self.max_newlines) for text in texts]
        made = with_column(table.drop_columns("html"), "text", pa.array(formatted, kind))
        return made, self._checks(sizes, np.array(failures, object), formatted)

    def _extract(self, pages: pa.Array, chosen: npt.NDArray[np.bool_]) -> list[Extracted]:
        """Return what became of the pages that are chosen."""
        if self.engine == "blocks":
            return [Extracted(text) for text in extract_blocks(pages, chosen, self.favor).filter(chosen).to_pylist()]
        # Buffers of the column itself: no page is copied before it is in the pipe.
        sent = [memoryview(pages[row].as_buffer()) for row in np.flatnonzero(chosen).tolist()]
        return extract_pages(sent, self._worker_settings(), self.workers)

    def _worker_settings(self) -> WorkerSettings:
        wall_seconds = _WALL_SECONDS * max(self.max_seconds, 1.0)
        engine = str(Path(__file__).parent / f"_{self.engine}_engine.py")
        return WorkerSettings(engine, self.favor, self.max_seconds, self.max_memory, wall_seconds)

    def _checks(self, sizes: pa.Array, failures: Any, texts: list[str | None]) -> list[Check]:
        """Return the rules; the value of a page stopped at a limit is the limit, as its full amount is unknown."""
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


def _given_texts(table: pa.Table) -> tuple[list[str | None], pa.DataType]:
    """Return the texts that are there before any page is looked at, and what kind of column they are to be."""
    if "text" not in table.column_names:
        return [None] * table.num_rows, pa.large_string()
    texts = column(table, "text", ExtractText.name)
    kind = pa.large_string() if pa.types.is_null(texts.type) else texts.type
    return valid_texts(texts, ExtractText.name).to_pylist(), kind
