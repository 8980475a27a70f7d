"""Formats on disk: specification, writing, opening and verification of each."""

from longcrawl.formats.rectangle import RectangleOutput

__all__ = ["RectangleOutput"]
