"""Means of values by position in the context: in groups of positions, and as a plot."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError

BINS = 32
"""Maximum number of groups of positions in a plot."""


def bin_positions(
    means: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], bins: int = BINS
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Group positions into at most ``bins`` groups of geometric widths and average each; NaN if it has no values.

    >>> borders, grouped = bin_positions(np.array([4.0, 3.0, 2.0]), np.array([2, 2, 4]), 2)
    >>> borders.tolist(), grouped.tolist()
    ([0, 1, 3], [4.0, 2.3333333333333335])

    Args:
        means: float64 [positions].
        counts: int64 [positions], number of values behind each mean.
        bins: maximum number of groups.

    Returns:
        Borders of the groups, int64 [groups + 1], and their means, float64 [groups].
    """
    length = len(means)
    borders = np.unique(np.rint(np.geomspace(1, length + 1, min(bins, length) + 1)).astype(np.int64)) - 1
    return borders, np.array(
        [mean_of(means[slice(*pair)], counts[slice(*pair)]) for pair in pairwise(borders.tolist())]
    )


def mean_of(means: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> float:
    """Return the mean of means weighted by counts, or NaN if one of them is NaN or there are no values."""
    counted = counts > 0
    total = float((means[counted] * counts[counted]).sum())
    return total / int(counts.sum()) if counted.any() else float("nan")


def plot_positions(
    axes: Any, borders: npt.NDArray[np.int64], means: npt.NDArray[np.float64], measured: str, /, **line: Any
) -> Any:
    """Plot group means against the position with matplotlib, into ``axes`` or a new figure, and return the axes.

    Raises:
        StageError: matplotlib is not installed.
    """
    if axes is None:
        try:
            from matplotlib.figure import Figure
        except ImportError as missing:
            raise StageError("plots need matplotlib: pip install 'longcrawl[plots]', or print it") from missing
        axes = Figure().add_subplot()
    # Positions count from 1: a logarithmic axis has no 0.
    axes.plot(np.sqrt((borders[:-1] + 1.0) * borders[1:]), means, **line)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("position in the context")
    axes.set_ylabel(measured)
    return axes
