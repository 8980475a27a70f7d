"""Warnings that point at the line of the user's own code."""

import sys
import warnings

from longcrawl.printable import one_line

__all__ = ["warn_user"]


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the call that led here from outside of this package and `datasets`, which calls it in between."""
    level, frame = 1, sys._getframe()  # noqa: SLF001  # as `warnings` itself looks for the caller
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(one_line(message), category, stacklevel=level)


_INSIDE = ("longcrawl", "datasets")
