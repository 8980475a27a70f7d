"""Names by which `datasets` finds what it has cached."""

import functools
import hashlib
from pathlib import Path
from typing import Any

import longcrawl
from longcrawl._version import __version__


def shard_key(shard: int, table: int) -> Any:
    """Return the key of a table within a split in the form that this release of `datasets` expects."""
    import datasets.builder  # importing it registers our builder, which imports this module

    key = getattr(datasets.builder, "Key", None)
    return key(shard, table) if key else f"{shard}_{table}"


@functools.cache
def code_hash() -> str:
    """Return a hash of the version and the source code of longcrawl.

    It names the cache folder, so that edited code does not find the rows of the old one.
    """
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(Path(longcrawl.__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\n" + path.read_bytes())
    return digest.hexdigest()
