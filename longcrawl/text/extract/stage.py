"""From HTML to the main text of a page: RefinedWeb's extraction."""

from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.fields import Conditions
from longcrawl.core.stages import Check, Edit, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.texts import check_not_masked, valid_texts
from longcrawl.text.extract._pool import Extracted, WorkerSettings, extract_pages
from longcrawl.text.extract.blocks import extract_blocks, load_model
from longcrawl.text.refinedweb.formatting import format_text

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
