"""Compression ratio of long documents: how many times smaller zlib makes a text, and which ratios to keep."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import cut
from longcrawl.core.places import no_places
from longcrawl.core.registry import Conditions
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import reached_by
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.text.languages import find_language, places_of_languages

COLUMN = "gzip_ratio"
LEVEL, WINDOW = 6, 15
"""Level and window bits of zlib: gzip's default level, and a window of 32 KiB."""
MEASURES = pa.schema([("group", pa.string()), (COLUMN, pa.float64())])
"""Schema of the measures that bounds are fitted to; quantiles are those of a group: a language, or "" for all."""
_QUANTILES: Mapping[str, None] = MappingProxyType({"low_quantile": None, "high_quantile": None})


@stage
class GzipRatio(Edit):
    """Measure how well a long document compresses, and drop those that compress too little or too much.

    The column ``gzip_ratio``, float64, is ``len(utf8) / len(zlib.compress(utf8, level=6, wbits=15))``: the higher, the
    more repetitive. Documents of less than ``min_bytes`` have null and are kept. A lower ratio than ``low`` is removed
    by the rule ``gzip_ratio_low`` (tables of numbers, encoded data, scanned noise), a higher one than ``high`` by
    ``gzip_ratio_high`` (templates, logs, repeated pages). OLMo 3 keeps the middle 60 % of its long documents (arXiv
    2512.13961), which is ``low_quantile=0.2, high_quantile=0.8``; it does not publish level and unit.

    Ratios depend on the script: 2.76 to 3.93 for English manuals, 2.66 to 3.35 for Chinese ones and 3.37 to 4.03 for
    Russian and Ukrainian ones. So quantiles are fitted for each language; bounds of all documents together would remove
    most Cyrillic. zlib sees 32 KiB back, so the ratio hardly depends on length, and copies that are further apart do
    not count: it replaces no stage for duplicates.

    Quantiles are exact and do not depend on order: ``low`` is the highest ratio of a document with at most the share
    ``low_quantile`` of documents strictly below it, and ``high`` the lowest with at most 1 - ``high_quantile`` strictly
    above it. Documents with the ratio of a bound are kept. The fitted bounds are in the card and in the manifest, where
    they can be copied to ``low`` and ``high``.

    Args:
        low: the lowest ratio of kept documents: a number, or one by language such as ``{en: 2.8}``. Names of languages
            match in any form (en, eng, eng_Latn); documents of other languages and of none are kept.
        high: the highest ratio of kept documents, in the same form.
        low_quantile: the share of documents below ``low``, which is then fitted.
        high_quantile: the share of documents up to ``high``, which is then fitted.
        by: "language" fits bounds to the documents of each value of the column ``language``, "all" to all together.
        min_bytes: the fewest bytes of a measured text; 32,768 are about 8,192 tokens of English.
        min_documents: the fewest measured documents of a language to fit bounds for it.

    >>> texts = ["".join(f"{number} sheep. " for number in range(9_999)), "Sheep. " * 9_999, "short"]
    >>> table = pa.table({"id": ["a", "b", "c"], "text": texts})
    >>> GzipRatio(high=50).apply(table).removed["rule"].to_pylist()
    ['gzip_ratio_high']
    """

    low: float | dict[str, float] | None = field(default=None, hash=False)
    high: float | dict[str, float] | None = field(default=None, hash=False)
    low_quantile: float | None = None
    high_quantile: float | None = None
    by: Literal["language", "all"] = "language"
    min_bytes: int = 32_768
    min_documents: int = 100
    fits_measures: ClassVar[bool] = True
    only_with: ClassVar[Conditions] = MappingProxyType({"by": _QUANTILES, "min_documents": _QUANTILES})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(min_bytes=1, min_documents=1)
        if self.needs_fit and not (self.low is None and self.high is None):
            raise StageError(f"{self.name} has both bounds and quantiles: set low and high, or only the quantiles")
        least = 0 if self.low_quantile is None else self.low_quantile
        most = 1 if self.high_quantile is None else self.high_quantile
        if not 0 <= least < most <= 1:
            raise StageError(
                f"{self.name} has low_quantile {least} and high_quantile {most}: set them from 0 to 1, the first "
                "below the second"
            )
        for name in ("low", "high"):
            self._check_bounds(name)
        self._check_order()

    def _check_bounds(self, name: str) -> None:
        bounds = getattr(self, name)
        if bounds == {}:
            raise StageError(f"{self.name}.{name} has no language: add one, such as {{en: 2.8}}, or remove it")
        for language, bound in self._by_language(name).items():
            if not isinstance(language, str):
                raise StageError(f"{self.name}.{name} has the language {language!r}: quote it, such as 'no'")
            of = f" of {language}" if isinstance(bounds, Mapping) else ""
            if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 < bound < float("inf"):
                raise StageError(f"{self.name}.{name}{of} is {bound!r}: set a ratio such as 2.8")

    def _check_order(self) -> None:
        pairs = product(self._by_language("low").items(), self._by_language("high").items())
        for (language, low), (other, high) in pairs:
            is_same = not language or not other or find_language({other: {}}, language) is not None
            if is_same and low > high:
                of = f" of {language or other}" if language or other else ""
                raise StageError(f"{self.name} keeps no long document{of}: low {low} is above high {high}")

    def _by_language(self, name: str) -> dict[str, float]:
        """Return bounds by language; "" is all documents."""
        bounds = getattr(self, name)
        return bounds if isinstance(bounds, dict) else {} if bounds is None else {"": bounds}

    @property
    def measures_in(self) -> tuple[str, ...]:
        """Column with the ratio: ``gzip_ratio``."""
        return (COLUMN,)

    @property
    def needs_fit(self) -> bool:
        """Whether bounds must first be fitted to quantiles."""
        return self.low_quantile is not None or self.high_quantile is not None

    def libraries(self) -> dict[str, str]:
        """Return the version of zlib: another one, such as zlib-ng, compresses to other sizes."""
        return {"zlib": zlib.ZLIB_RUNTIME_VERSION}

    def limits(self) -> tuple[str, ...]:
        """Describe the bounds, which can be copied to a recipe."""
        bounds = {name: getattr(self, name) for name in ("low", "high") if getattr(self, name) is not None}
        if not bounds:
            return ()
        shown = ", ".join(f"{name}: {_shown(bound)}" for name, bound in bounds.items())
        others = "; other languages have none" if any(isinstance(each, Mapping) for each in bounds.values()) else ""
        return (f"bounds of the compression ratio of texts of {self.min_bytes:,} bytes or more: {shown}{others}",)

    def measures(self, texts: pa.Array) -> pa.DoubleArray:
        """Return the ratios of valid large strings, float64; null for texts of less than ``min_bytes``."""
        data, offsets = text_buffers(texts)
        sizes = np.diff(offsets)
        ratios = np.ones(len(sizes))
        for row in np.flatnonzero(sizes >= self.min_bytes).tolist():
            packed = zlib.compress(data[offsets[row] : offsets[row + 1]].data, LEVEL, WINDOW)
            ratios[row] = sizes[row] / len(packed)
        return pa.array(ratios, mask=sizes < self.min_bytes)

    def fit(self, tables: Iterable[pa.Table], directory: str) -> Self:
        """Return the stage with the bounds of the quantiles; StageError if no language has enough documents."""
        return self.fit_measures(map(self.measure_to_fit, tables), directory) if self.needs_fit else self

    def measure_to_fit(self, table: pa.Table) -> pa.Table:
        """Return ``MEASURES`` of the documents that are long enough and, unless ``by`` is "all", have a language."""
        ratios = self.measures(valid_texts(column(table, "text", self.name), self.name))
        _, groups = places_of_languages(table, (), "" if self.by == "all" else None, self.name)
        return pa.table([groups, ratios], schema=MEASURES).drop_null()

    def fit_measures(self, measures: Iterable[pa.Table], directory: str) -> Self:  # noqa: ARG002  # no file is written
        """Return the stage with the bounds of the quantiles of measures, given in any order."""
        rows = pa.concat_tables([MEASURES.empty_table(), *measures]).combine_chunks()
        groups = pc.dictionary_encode(rows["group"].combine_chunks())
        values = {
            groups.dictionary[number].as_py(): group[COLUMN].to_numpy()
            for number, group in cut(rows, groups.indices.to_numpy())
        }
        fitted = {name: values[name] for name in sorted(values) if len(values[name]) >= self.min_documents}
        if not fitted:
            having = "the most frequent language has" if self.by == "language" else "there are"
            most = max(map(len, values.values()), default=0)
            raise StageError(
                f"{self.name} fits its quantiles to {self.min_documents:,} documents of {self.min_bytes:,} bytes or "
                f"more, but {having} only {most:,}: lower min_documents or min_bytes, or set low and high"
            )
        low: Any = None
        high: Any = None
        if self.low_quantile is not None:
            # The difference of floats may be just above the share, which would then be rounded up by a document.
            share = float(1 - Decimal(repr(self.low_quantile)))
            low = {name: reached_by(group, share) for name, group in fitted.items()}
        if self.high_quantile is not None:
            high = {name: -reached_by(-group, self.high_quantile) for name, group in fitted.items()}
        if self.by == "all":
            low, high = (None if bounds is None else bounds[""] for bounds in (low, high))
        return type(self)(low=low, high=high, min_bytes=self.min_bytes)

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Add the column ``gzip_ratio`` and compare it with the bounds."""
        if self.needs_fit:
            raise StageError(
                f"{self.name} has no bounds yet: call stage.fit(tables, directory) first, or set low and high"
            )
        ratios = self.measures(valid_texts(column(table, "text", self.name), self.name))
        checks = []
        if self.low is not None:
            low = self._bounds(table, self.low)
            passes = pc.fill_null(pc.greater_equal(ratios, low), True)
            checks.append(Check("gzip_ratio_low", ratios, passes, low, "at_least"))
        if self.high is not None:
            high = self._bounds(table, self.high)
            passes = pc.fill_null(pc.less_equal(ratios, high), True)
            checks.append(Check("gzip_ratio_high", ratios, passes, high, "at_most"))
        return with_column(table, COLUMN, ratios), checks

    def trace(self, table: pa.Table) -> Edited:
        """Add the column; texts do not change."""
        return Edited(*self.edit(table), no_places())

    def _bounds(self, table: pa.Table, bounds: float | Mapping[str, float]) -> pa.Array:
        """Return the bound of each document, float64; null if its language has none."""
        if not isinstance(bounds, Mapping):
            return pa.repeat(pa.scalar(bounds, pa.float64()), table.num_rows)
        places, _ = places_of_languages(table, tuple(bounds), None, self.name)
        return pa.array([*bounds.values(), None], pa.float64()).take(
            pa.array(np.where(places < 0, len(bounds), places))
        )


def _shown(bounds: float | Mapping[str, float]) -> str:
    """Return bounds as YAML spells them."""
    if not isinstance(bounds, Mapping):
        return repr(bounds)
    return f"{{{', '.join(f'{json.dumps(name)}: {bound!r}' for name, bound in bounds.items())}}}"
