"""Errors and warnings that longcrawl raises on purpose, and the escaping of untrusted text in messages.

A message names what is wrong, where, and what to type next, mostly on one line. Texts and names of a crawl may contain
escape sequences, which move the cursor or change colours, and line breaks, which forge lines of a table. Use
:func:`one_line` for names in messages and tables and :func:`printable` for texts. Only :func:`show` prints.

"""

import errno
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from longcrawl.urls import hide_secrets

MOST_QUOTED = 200
"""Maximum number of characters of a value quoted in a message."""
MOST_LISTED = 20
"""Maximum number of known names listed in a message about an unknown one."""
_COMMANDS = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except line breaks and tabs, overrides of the text direction, and lone surrogates."""


def printable(text: object) -> str:
    r"""Escape the characters of a text that control a terminal, as Python does; keep its line breaks.

    >>> print(printable("one\n\x1b[31mtwo"))
    one
    \x1b[31mtwo
    """
    return _COMMANDS.sub(lambda found: _escaped(found[0]), str(text))


def one_line(text: object) -> str:
    r"""Return a text as one line: escape all that Python does not count as printable, including line breaks and tabs.

    >>> print(one_line("id\n\x1b[31m: kept"))
    id\n\x1b[31m: kept
    """
    name = str(text)
    return name if name.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in name)


def as_lines(lines: Iterable[object], separator: str = "\n") -> str:
    """Escape each line with :func:`one_line` and join them."""
    return separator.join(map(one_line, lines))


def shortened(text: str, most: int) -> str:
    """Shorten a text to at most ``most`` characters, ending in an ellipsis if it is cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(value: object) -> str:
    """Return the ``repr`` of a value for a message, at most ``MOST_QUOTED`` characters."""
    return shortened(repr(value), MOST_QUOTED)


def listed(names: Iterable[str]) -> str:
    """Join names with commas for a message, at most ``MOST_QUOTED`` characters."""
    return shortened(", ".join(names) or "none", MOST_QUOTED)


def known_names(names: Iterable[str], wrong: object, listing: str = "") -> str:
    """Return the end of a message about a wrong name: the known names, or the closest ones if there are many.

    With more than ``MOST_LISTED`` names, only the first ones are listed, or, if given, ``listing``, the command that
    lists all names, with the closest ones.

    >>> known_names(["min_chars", "min_words"], "min_char")
    "known: min_chars, min_words. Did you mean 'min_chars'?"
    >>> known_names(map(str, range(100, 200)), "1a5", "longcrawl numbers")
    "did you mean '195', '185' or '175'? `longcrawl numbers` lists all 100"
    """
    there = list(names)
    if listing and len(there) > MOST_LISTED:
        *others, last = [repr(name) for name in get_close_matches(str(wrong), there, 3, 0.5)] or [""]
        guess = f"did you mean {', '.join(others)}{' or ' if others else ''}{last}? " if last else ""
        return f"{guess}`{listing}` lists all {len(there)}"
    near = get_close_matches(str(wrong), there, 1, 0.7)
    more = f" and {len(there) - MOST_LISTED} more" if len(there) > MOST_LISTED else ""
    return f"known: {', '.join(there[:MOST_LISTED]) or 'none'}{more}{f'. Did you mean {near[0]!r}?' if near else ''}"


@lru_cache(64)  # many records have the same names
def _near_field(names: tuple[str, ...], wrong: str) -> str:
    """Return the field closest to a wrong name, compared with and without the enclosing objects, or ""."""
    last = {name.rpartition(".")[2]: name for name in reversed(names)}
    if near := get_close_matches(wrong.rpartition(".")[2], last, 1):
        return last[near[0]]
    return next(iter(get_close_matches(wrong, names, 1, 0.75)), "")


def listed_with_near(names: Iterable[str], wrong: str) -> str:
    """Return field names as :func:`listed` does, followed by the one closest to a wrong name, if any.

    >>> listed_with_near(["text", "metadata.url"], "ulr")
    "text, metadata.url (did you mean 'metadata.url'?)"
    """
    there = tuple(names)
    near = _near_field(there, wrong)
    return f"{listed(there)}{f' (did you mean {near!r}?)' if near else ''}"


def show(message: object, *, error: bool = False, end: str = "\n", colour: Callable[[str], str] = str) -> None:
    """Print to standard output or error, escaping control characters and what its encoding cannot represent.

    ``colour`` may add escape sequences to the escaped text for a terminal, unless NO_COLOR is set.
    """
    stream = sys.stderr if error else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    shown = printable(message)
    if colour is not str and stream.isatty() and "NO_COLOR" not in os.environ:
        shown = colour(shown)
    stream.write(f"{shown}{end}".encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def has_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr.isatty()


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, an exceeded quota and a file that is too large."""
_PANIC = "PanicException"
"""Class name of Rust panics. It derives from BaseException, and each library in Rust defines its own."""
_INSIDE = ("longcrawl", "datasets")


class LongCrawlError(Exception):
    """Base class of all errors that longcrawl raises on purpose."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*(hide_secrets(value) if isinstance(value, str) else value for value in values))

    def __str__(self) -> str:
        """Return the message as one line: names in it may come from a crawl."""
        return one_line(super().__str__())


class StageError(LongCrawlError, ValueError):
    """A stage has wrong settings, or a table lacks what the stage needs."""


class SourceError(LongCrawlError):
    """An input folder, file or record cannot be read."""


class NotYetError(SourceError):
    """A server cannot serve a file or a listing now; the same command retries, under any policy for broken files."""


class TokenizerError(LongCrawlError, ValueError):
    """A tokenizer cannot be loaded, or does not fit the request."""


class FormatError(LongCrawlError):
    """A dataset on disk does not follow its format."""


class CorruptionError(FormatError):
    """A file of a dataset is missing, truncated or changed."""


class LoaderError(LongCrawlError, ValueError):
    """A loader was asked for a batch, state or shape that it cannot give."""


class RecipeError(LongCrawlError, ValueError):
    """A recipe or an override names something that does not exist."""


class RunError(LongCrawlError):
    """A run cannot start, continue or finish."""


class HubError(LongCrawlError):
    """The Hub cannot be reached, or rejects a request."""


class LedgerError(LongCrawlError, LookupError):
    """The ledger cannot answer a question."""


def check_word(name: str, value: Any, words: Any, error: type[LongCrawlError]) -> None:
    """Raise ``error`` unless the value of an argument is one of ``words``, a ``Literal`` type or a tuple."""
    known = words if isinstance(words, tuple) else get_args(words)
    if value not in known:
        raise error(f"{name} takes one of {', '.join(map(repr, known))}, got {quoted(value)}")


@contextmanager
def unreadable(what: str | Path, error: type[LongCrawlError], fix: str) -> Iterator[None]:
    """Raise ``error`` if a library fails to read ``what``, with the library's reason and ``fix``.

    Damaged and hostile files make libraries raise almost anything, and those in Rust panic, which is not an Exception.
    Put only the library call into the block: it would also hide bugs in our own code.

    >>> with unreadable("run/recipe.yaml", LongCrawlError, "restore it from a backup"):
    ...     {}["name"]
    Traceback (most recent call last):
    longcrawl.errors.LongCrawlError: run/recipe.yaml cannot be read (KeyError: 'name'): restore it from a backup
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
    """Return the class and the first line of an error, at most ``MOST_QUOTED`` characters."""
    first = one_line(next(iter(str(failed).strip().splitlines()), ""))
    return shortened(f"{type(failed).__name__}: {first}" if first else type(failed).__name__, MOST_QUOTED)


@contextmanager
def no_documents(source: str) -> Iterator[None]:
    """Replace the error of `datasets` about a source without documents by a SourceError that names the source."""
    try:
        yield
    except ValueError as empty:
        if not str(empty).endswith("corresponds to no data!"):
            raise
        raise SourceError(
            f"source {source!r} produced no documents. Check its settings; on_bad_files='error' names a file "
            "that cannot be read"
        ) from empty


def warn_user(message: str) -> None:
    """Warn at the caller's line: the innermost frame outside longcrawl and `datasets`, which may be in between."""
    level, frame = 1, sys._getframe()  # noqa: SLF001  # `warnings` finds the caller in the same way
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(one_line(message), stacklevel=level)
