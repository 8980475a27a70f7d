"""Small crawls of generated text, to try the package without a network: a release, a web archive, JSON lines."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.samples.archive import write_archive, write_texts
    from longcrawl.samples.release import write_release

__all__ = ["write_archive", "write_release", "write_texts"]

lazy(__name__)
