"""Everything longcrawl raises on purpose, under :class:`LongCrawlError`, and warnings.

A message says what is wrong, where, and what to type next, mostly in one sentence. Passwords and signatures of URLs are
removed from it here, whoever raises it.
"""

import errno
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longcrawl.printable import MOST_QUOTED, one_line, shortened
from longcrawl.urls import hide_secrets

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where a disk is full."""

_PANIC = "PanicException"
"""Derives from BaseException, and each library in Rust has one of its own."""
_INSIDE = ("longcrawl", "datasets")


class LongCrawlError(Exception):
    """The root of all errors that longcrawl raises on purpose."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*(hide_secrets(value) if isinstance(value, str) else value for value in values))

    def __str__(self) -> str:
        """Return the message as one line: names in it may be of a crawl."""
        return one_line(super().__str__())


class StageError(LongCrawlError, ValueError):
    """A stage has wrong settings, or a table lacks what the stage needs."""


class SourceError(LongCrawlError):
    """An input folder, file or record cannot be read."""


class NotYetError(SourceError):
    """A server does not give a file or a listing now: nothing is lost, and the same command asks for it again.

    No policy for broken files applies to it.
    """


class TokenizerError(LongCrawlError, ValueError):
    """A tokenizer cannot be loaded, or does not fit what was asked of it."""


class FormatError(LongCrawlError):
    """A dataset on disk is not what its format says."""


class CorruptionError(FormatError):
    """A file of a dataset is missing, cut or changed."""


class LoaderError(LongCrawlError, ValueError):
    """A loader was asked for a batch, state or shape that it cannot give."""


class RecipeError(LongCrawlError, ValueError):
    """A recipe or an override names something that does not exist."""


class RunError(LongCrawlError):
    """A run cannot start, continue or finish."""


class HubError(LongCrawlError):
    """The Hub cannot be reached, or does not take or give what was asked."""


class LedgerError(LongCrawlError, LookupError):
    """A question to the ledger that it cannot answer."""


@contextmanager
def unreadable(what: str | Path, error: type[LongCrawlError], fix: str) -> Iterator[None]:
    """Raise ``error`` where a library cannot read ``what``, with the library's reason and how to fix it.

    Damaged and hostile files make pyarrow, zarr, tokenizers and PyYAML raise almost anything: errors of their own,
    KeyError, MemoryError, RecursionError; libraries in Rust panic, which is not an Exception. Put no code of ours but
    the call into the block, so that nothing else hides.

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
    """Return class and first line of an error, at most ``MOST_QUOTED`` characters."""
    first = one_line(next(iter(str(failed).strip().splitlines()), ""))
    return shortened(f"{type(failed).__name__}: {first}" if first else type(failed).__name__, MOST_QUOTED)


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


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the call that led here from outside of this package and `datasets`, which calls it in between."""
    level, frame = 1, sys._getframe()  # noqa: SLF001  # as `warnings` itself looks for the caller
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(one_line(message), category, stacklevel=level)
