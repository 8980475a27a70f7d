"""What lies on the Hub while a push of several commits is under way, so that nobody takes a part for the whole.

The first commit takes away whatever would say how to read the files, and puts two files in its place: a card that loads
nothing, and ``unfinished-push.json``, which tells whose push it is and which files are of longcrawl. The last commit
does the opposite.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from longcrawl.card.text import CARD
from longcrawl.core.results import RESULTS
from longcrawl.errors import FormatError
from longcrawl.hub.remote import is_intact, read_object
from longcrawl.manifest import MANIFEST
from longcrawl.storage.sealed import seal

__all__ = ["CARD", "TAG", "TAG_BEGINS", "UNFINISHED", "UnfinishedPush", "says_how_to_read"]

UNFINISHED = "unfinished-push.json"
VERSION = 1
TAG_BEGINS = "run-"
TAG = re.compile(rf"{TAG_BEGINS}[0-9a-f]{{12}}")
ZARR = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
"""Without its metadata an array cannot be opened; with them, chunks that are missing would be read as zeros."""

INTERIM_CARD = """---
configs:
- config_name: unfinished
  data_files: this repository is not whole yet, see README.md
---

# Not whole yet

`longcrawl push` is sending {tag} in several commits, of which this is not the last. Do not load what is here. Tags of
this repository that begin with `run-` are whole: `revision="run-…"`.

Should the push have been stopped, the same command goes on.
"""


def says_how_to_read(name: str) -> bool:
    """Return whether a file tells others what to read, so that it must not lie beside a part of what it tells of."""
    last = name.rpartition("/")[2]
    return name in (CARD, MANIFEST) or last in ZARR or last in RESULTS.described()


@dataclass(frozen=True)
class UnfinishedPush:
    """A push of several commits, the last of which has not been made."""

    tag: str
    files: frozenset[str]
    """What a run of longcrawl has put on the Hub, or may have by then: this one, and the one before it."""

    @classmethod
    def of(cls, tag: str, files: Iterable[str]) -> "UnfinishedPush":
        """Describe a push to a tag of its own."""
        return cls(tag, frozenset(files))

    @classmethod
    def read(cls, text: bytes) -> "UnfinishedPush":
        """Read what lies on the Hub.

        Raises:
            FormatError: longcrawl has not written it.

        """
        content = read_object(text, UNFINISHED)
        files, tag = content.get("files"), content.get("tag")
        names = isinstance(files, list) and all(isinstance(each, str) for each in files)
        known = content.get("longcrawl_push") == VERSION and isinstance(tag, str) and TAG.fullmatch(tag)
        if not (names and known and is_intact(content, text)):
            raise FormatError(f"{UNFINISHED} is not as this longcrawl writes it")
        return cls(str(tag), frozenset(files or ()))

    def as_json(self) -> bytes:
        """Return what is to lie on the Hub, the same for the same push."""
        content = {"longcrawl_push": VERSION, "tag": self.tag, "files": sorted(self.files)}
        return seal(content).encode()

    def as_card(self) -> bytes:
        """Return a card of which `datasets` loads nothing, and says why."""
        return INTERIM_CARD.format(tag=self.tag).encode()
