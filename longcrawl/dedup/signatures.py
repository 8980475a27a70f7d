"""Near-duplicates by bands of MinHash values: the S-curve, and a stage for RedPajama-V2's published signatures."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import Decided, Engine, Sketched
from longcrawl.core.registry import Conditions
from longcrawl.core.stages import column, document_ids, stage
from longcrawl.dedup.clusters import (
    Clustering,
    OnLargeCluster,
    band_blocks,
    index_arrays,
    near_duplicates_of_earlier,
    remove_near_duplicates,
)
from longcrawl.dedup.index import Arrays, IndexedSurvey, Keys, SaveIndex, search_earlier
from longcrawl.dedup.ngrams import hash_bands
from longcrawl.errors import StageError
from longcrawl.kernels.texts import fixed_binary, fixed_rows

_SHOWN = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_WIDTH = 40
_QUADRATURE = 200
"""Points of the quadrature, exact for polynomials of a degree below 400."""


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

    __repr__ = __str__

    def plot(self, axes: Any = None) -> Any:
        """Draw the curve with matplotlib, into ``axes`` or a new figure, and return the axes."""
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
    """Return the (bands, rows) of at most ``permutations`` hash values with the least weighted error.

    As in datasketch, the error is the area under the curve below the threshold, where pairs are found wrongly, and the
    area above it beyond the threshold, where they are missed. For a weight of 1, the number of rows is the maximum;
    datasketch instead takes the first of several results that its floats cannot tell apart.

    Raises:
        StageError: a number is out of range.

    >>> bands_for_threshold(0.8, 128, 0.5)
    (9, 13)
    """
    if permutations < 2 or not (0 <= threshold <= 1 and 0 <= false_positive_weight <= 1):
        raise StageError(
            f"threshold is {threshold}, permutations {permutations} and false_positive_weight {false_positive_weight}: "
            "set permutations to 2 or more, and the others from 0 to 1"
        )
    # Gauss-Legendre quadrature on both sides of the threshold.
    points, weights = np.polynomial.legendre.leggauss(_QUADRATURE)
    below, beyond = threshold * (points + 1) / 2, threshold + (1 - threshold) * (points + 1) / 2
    best, least = (0, 0), np.inf
    for bands in range(1, permutations + 1):
        for rows in range(1, permutations // bands + 1):
            curve = SimilarityCurve(bands, rows)
            wrong = weights @ curve(below) * threshold / 2
            missed = weights @ (1 - curve(beyond)) * (1 - threshold) / 2
            error = float(false_positive_weight * wrong + (1 - false_positive_weight) * missed)
            if error < least:
                best, least = (bands, rows), error
    return best


RPV2_BANDS = {
    "signature_sim1.0": (1, 128),
    "signature_sim0.9": (5, 25),
    "signature_sim0.8": (9, 13),
    "signature_sim0.7": (14, 9),
}

VALUE = 4


class NearDuplicates(IndexedSurvey):
    """Base of stages that keep one of all documents that share a band of hash values, also across earlier datasets."""

    within_parts: ClassVar[bool] = True
    key: ClassVar[str] = "bands"
    words: ClassVar[int] = 1
    copies_share = "text"
    code_version: ClassVar[str] = "2"

    max_cluster: int | None

    @property
    @abstractmethod
    def clustering(self) -> Clustering:
        """Settings that decide about documents that share a band."""

    @property
    @abstractmethod
    def curve(self) -> SimilarityCurve:
        """Probability that a pair is found, by its similarity; can be printed or plotted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_cluster is not None and self.max_cluster < 1:
            raise StageError(
                f"{self.name}.max_cluster is {self.max_cluster}: set it to 1 or more, or null for no limit"
            )

    def find_earlier(self, sketches: pa.Table) -> pa.Table:
        """Return the removals of documents that share a band with a document of an earlier dataset."""
        return near_duplicates_of_earlier(sketches, self.open_indexes(), self.clustering)[0]

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided:
        """Keep one of all documents that bands link, after removing those found in earlier datasets."""
        return remove_near_duplicates(self.clustering, search_earlier(self, sketched, engine), sketched, engine)

    @property
    def index_bands(self) -> int:
        """Number of bands in an index."""
        return self.curve.bands

    def band_keys(self, known: pa.Table) -> Iterator[Keys]:
        """Return the keys of documents that have n-grams, band by band."""
        for block in band_blocks(known["bands"], np.arange(len(known)), self.curve.bands):
            yield from (keys[:, None] for keys in block)

    def arrays(self, known: pa.Table) -> Arrays:
        """Return the arrays by which similarities and sizes are compared."""
        return index_arrays(known)


@stage
class MinHashSignatures(NearDuplicates):
    """Keep one of all documents that share a band of a published MinHash signature; no text is read.

    RedPajama-V2 has four columns, lists with one binary per band that holds the band's hash values end to end. The
    source ``redpajama-v2`` reads them with ``minhash=True``. ``load_dataset("parquet",
    data_files="release/minhash/**/*.parquet")`` also has ``id`` and all four.

    A document without a signature (null: fewer than 13 words, or no file) is always kept. The value in the ledger is
    the similarity to the kept document, estimated from up to 128 hash values. Everything else works as in
    :class:`longcrawl.dedup.MinHash`.

    Args:
        column: signature_sim1.0 (1 band of 128 rows), 0.9 (5 of 25), 0.8 (9 of 13) or 0.7 (14 of 9).
        keep: document of a cluster to keep: "random", or the "first" in reading order.
        seed: seed of the choice "random".
        max_cluster: maximum size of a cluster, above which ``on_large_cluster`` applies; None for no bound.
        on_large_cluster: "warn", "error", or "keep" all of its documents and warn.
        against: indexes of earlier dumps, or runs that saved one. A document that shares a band with a document kept
            there is removed first, by the rule ``near_duplicate_of_earlier``; see :mod:`longcrawl.dedup.clusters`.
        index: with "save", a run writes an index of the documents that it finally kept, 16 bytes per band and document.
    """

    column: str = "signature_sim0.8"
    keep: Literal["random", "first"] = "random"
    seed: int = 1
    max_cluster: int | None = 10_000
    on_large_cluster: OnLargeCluster = "warn"
    against: tuple[str, ...] = ()
    index: SaveIndex = "none"
    only_with: ClassVar[Conditions] = MappingProxyType({"on_large_cluster": {"max_cluster": None}})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column not in RPV2_BANDS:
            raise StageError(f"{self.name}.column is {self.column!r}: set it to one of {', '.join(RPV2_BANDS)}")

    @property
    def curve(self) -> SimilarityCurve:
        """Probability that a pair is found, by its similarity; can be printed or plotted."""
        return SimilarityCurve(*RPV2_BANDS[self.column])

    @property
    def clustering(self) -> Clustering:
        """Settings that decide about documents that share a band."""
        bounds = self.max_cluster, self.on_large_cluster
        return Clustering(self.name, self.curve.bands, self.keep, self.seed, None, "single", None, *bounds)

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id``, ``bands`` (8 bytes per band, or null) and ``sample`` (low bytes of the hash values)."""
        ids, given = document_ids(table, self.name), self._signatures(table)
        bands, rows = RPV2_BANDS[self.column]
        there = given.is_valid().to_numpy(zero_copy_only=False)
        values = _band_bytes(given.drop_null().flatten(), VALUE * rows, self.column)
        keys = np.zeros((len(there), bands), np.uint64)
        samples = np.zeros((len(there), bands * rows), np.uint8)
        found = np.empty((int(there.sum()), bands), np.uint64)
        hash_bands(values.reshape(-1, bands * VALUE * rows), VALUE * rows, found)
        keys[there] = found
        samples[there] = values.reshape(-1, bands * rows, VALUE)[:, :, VALUE - 1]
        return pa.table({"id": ids, "bands": fixed_binary(keys.view(np.uint8), there), "sample": fixed_binary(samples)})

    def hashed(self) -> dict[str, Any]:
        """Return the settings that the band keys depend on."""
        return {"column": self.column, "code_version": self.code_version}

    def _signatures(self, table: pa.Table) -> pa.Array:
        if self.column not in table.column_names:
            raise StageError(
                f"{self.name} needs a column {self.column!r}: open redpajama-v2 with minhash=True; "
                f"the documents have: {', '.join(table.column_names)}"
            )
        found = column(table, self.column, self.name)
        if pa.types.is_null(found.type):
            return pc.cast(found, pa.list_(pa.binary()))
        if not (pa.types.is_list(found.type) or pa.types.is_large_list(found.type)):
            raise StageError(f"{self.name} needs lists of binary in {self.column!r}, but it has {found.type}")
        bands = RPV2_BANDS[self.column][0]
        lengths = pc.list_value_length(found)
        if (wrong := pc.index(pc.not_equal(lengths, bands), True).as_py()) >= 0:
            raise StageError(
                f"a signature in {self.column!r} has {lengths[wrong].as_py()} bands, not {bands}: this is not "
                "RedPajama-V2's minhash"
            )
        return found


def _band_bytes(bands: pa.Array, width: int, name: str) -> npt.NDArray[np.uint8]:
    widths = pc.binary_length(bands)
    if bands.null_count or pc.any(pc.not_equal(widths, width)).as_py():
        found = ", ".join(f"{each}" for each in pc.unique(widths).to_pylist()[:5])
        raise StageError(f"the bands in {name!r} have {found} bytes, not {width}: this is not RedPajama-V2's minhash")
    return fixed_rows(pc.cast(pc.cast(bands, pa.binary()), pa.binary(width)))
