"""Small crawls of generated text, to try the package without a network: a release, a web archive, JSON lines."""

from longcrawl.samples.archive import write_archive, write_texts
from longcrawl.samples.release import write_release

__all__ = ["write_archive", "write_release", "write_texts"]
