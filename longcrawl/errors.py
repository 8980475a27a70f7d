"""Everything longcrawl raises on purpose, under one root.

LongCrawlError
├── StageError          a stage has wrong settings, or a table lacks what it needs
├── SourceError         an input folder, file or record cannot be read
│   └── NotYetError     a server does not give a file now; asked again later, it may
├── TokenizerError      a tokenizer cannot be loaded, or does not fit what was asked of it
├── FormatError         a dataset on disk is not what its format says
│   └── CorruptionError a file is missing, cut or changed
├── LoaderError         a loader was asked for a batch, state or shape it cannot give
├── RecipeError         a recipe or an override names something that does not exist
├── RunError            a run cannot start, continue or finish
├── HubError            the Hub cannot be reached, or does not take or give what was asked
└── LedgerError         a question to the ledger that it cannot answer

Every message is one sentence: what is wrong, where, and what to type next. Passwords and signatures of URLs are removed
from it here, whoever raises it.
"""

from typing import Any

from longcrawl.printable import one_line
from longcrawl.urls import hide_secrets

__all__ = [
    "CorruptionError",
    "FormatError",
    "HubError",
    "LedgerError",
    "LoaderError",
    "LongCrawlError",
    "NotYetError",
    "RecipeError",
    "RunError",
    "SourceError",
    "StageError",
    "TokenizerError",
]


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
