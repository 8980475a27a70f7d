"""The S-curve of banded MinHash: how likely a pair of a given similarity is found."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError

_SHOWN = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_WIDTH = 40


@dataclass(frozen=True)
class SimilarityCurve:
    """The probability ``1 - (1 - s**rows)**bands`` that two documents of Jaccard similarity s share a band.

    >>> SimilarityCurve(bands=450, rows=20)([0.75, 0.8]).round(3).tolist()
    [0.761, 0.995]
    >>> round(SimilarityCurve(bands=14, rows=8).half, 3)
    0.685
    """

    bands: int
    rows: int

    def __call__(self, similarity: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probability for each similarity."""
        # log1p and expm1: with 450 bands of 20, 1 - s**20 has no digits left below s = 0.16.
        with np.errstate(divide="ignore"):
            missed = self.bands * np.log1p(-(np.asarray(similarity, np.float64) ** self.rows))
        return np.asarray(-np.expm1(missed))

    @property
    def half(self) -> float:
        """The similarity at which half of all pairs are found."""
        return float((-np.expm1(np.log(0.5) / self.bands)) ** (1 / self.rows))

    def __str__(self) -> str:
        lines = [f"{self.bands} bands of {self.rows}: half of all pairs of similarity {self.half:.3f} are found"]
        for similarity in sorted({*_SHOWN, round(self.half, 2)}):
            found = float(self(similarity))
            lines.append(f"{similarity:4.2f}  {found:6.4f}  {'█' * round(_WIDTH * found)}")
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draw the curve with matplotlib, into ``axes`` or a new figure, and return the axes.

        Raises:
            StageError: matplotlib is not installed.
        """
        if axes is None:
            try:
                from matplotlib import pyplot as plt
            except ImportError as missing:
                raise StageError(
                    "plots need matplotlib: pip install 'longcrawl[plots]', or print the curve"
                ) from missing
            axes = plt.figure().add_subplot()
        similarity = np.linspace(0.0, 1.0, 501)
        axes.plot(similarity, self(similarity), label=f"{self.bands} bands of {self.rows}")
        axes.set_xlabel("Jaccard similarity")
        axes.set_ylabel("probability that a pair is found")
        axes.legend()
        return axes


def bands_for_threshold(threshold: float, permutations: int, false_positive_weight: float) -> tuple[int, int]:
    """Return the (bands, rows) of at most ``permutations`` hash values that datasketch's optimiser finds best.

    It weighs the area under the curve below the threshold against the area above it above the threshold.
    """
    from datasketch import MinHashLSH

    weights = (false_positive_weight, 1.0 - false_positive_weight)
    try:
        found = MinHashLSH(threshold=threshold, num_perm=permutations, weights=weights)
    except ValueError as wrong:
        raise StageError(
            f"no bands for threshold {threshold} and {permutations} permutations ({wrong}): take a threshold and a "
            "false_positive_weight between 0 and 1, and 2 or more permutations"
        ) from wrong
    return found.b, found.r
