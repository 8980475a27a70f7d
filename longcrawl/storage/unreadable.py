"""One border around the libraries that read files: whatever they raise becomes one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longcrawl.errors import LongCrawlError, SourceError
from longcrawl.printable import one_line

__all__ = ["no_documents", "reason_of", "unreadable"]

MOST_CHARACTERS = 200
_PANIC = "PanicException"
"""Derives from BaseException, and each library in Rust has one of its own."""


@contextmanager
def unreadable(what: str | Path, error: type[LongCrawlError], fix: str) -> Iterator[None]:
    """Raise ``error`` where a library cannot read ``what``, with the library's reason and how to fix it.

    Damaged and hostile files make pyarrow, zarr, tokenizers and PyYAML raise almost anything: errors of their own,
    KeyError, MemoryError, RecursionError; libraries in Rust panic, which is no Exception. Put no code of ours but the
    call into the block, so that nothing else hides.

    >>> with unreadable("run/recipe.yaml", LongCrawlError, "copy it back from a backup"):
    ...     {}["name"]
    Traceback (most recent call last):
    longcrawl.errors.LongCrawlError: run/recipe.yaml cannot be read (KeyError: 'name'): copy it back from a backup
    """
    try:
        yield
    except LongCrawlError:
        raise
    except BaseException as failed:  # the libraries' errors have no common root
        if not isinstance(failed, Exception) and type(failed).__name__ != _PANIC:
            raise
        raise error(f"{what} cannot be read ({reason_of(failed)}): {fix}") from failed


def reason_of(failed: BaseException) -> str:
    """Return class and first line of an error, at most ``MOST_CHARACTERS``."""
    first = one_line(next(iter(str(failed).strip().splitlines()), ""))
    reason = f"{type(failed).__name__}: {first}" if first else type(failed).__name__
    return reason if len(reason) <= MOST_CHARACTERS else f"{reason[: MOST_CHARACTERS - 1]}…"


@contextmanager
def no_documents(source: str) -> Iterator[None]:
    """Raise one sentence where `datasets` finds that a source produced no documents.

    Raises:
        SourceError: it did not produce any.

    """
    try:
        yield
    except ValueError as empty:
        if not str(empty).endswith("corresponds to no data!"):
            raise
        raise SourceError(
            f"source {source!r} produced no documents. Check its settings; on_bad_files='error' names a file "
            "that cannot be read"
        ) from empty
