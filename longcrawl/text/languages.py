"""Thresholds and stop words by language: shipped, in a YAML file, or in a folder of FineWeb-2's files."""

from collections.abc import Mapping
from typing import Any

__all__ = ["find_language", "read_languages"]

Languages = Mapping[str, Mapping[str, Any]]


def read_languages(name: str) -> Languages:
    """Read thresholds by language."""
    raise NotImplementedError(name)


def find_language(known: Languages, name: str) -> str | None:
    """Give the entry for a language as documents name it."""
    return name if name in known else None
