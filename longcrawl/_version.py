"""Version of longcrawl, and the hash of its source code."""

import functools
import hashlib
from pathlib import Path

__version__ = "0.1.0"


@functools.cache
def code_hash() -> str:
    """Return the SHA-256 of the version and the source code of longcrawl.

    It names the directory in which `datasets` caches rows, so that edited code does not read rows of older code.
    """
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\n" + path.read_bytes())
    return digest.hexdigest()
