"""What rule sets over raw text share: thresholds as fields, one rule a field, and thresholds by language."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError
from longcrawl.stages import Check, Judge, column
from longcrawl.text import _page_columns as page
from longcrawl.text._marks import find_marks
from longcrawl.text._readings import Definitions
from longcrawl.text._texts import valid_texts
from longcrawl.text.languages import find_language, read_languages
from longcrawl.text.pages import Counts, Words, count_pages, ratio
from longcrawl.text.segmentation import load_segmenter

__all__ = ["TextRules"]

Doubles = npt.NDArray[np.float64]
Measure = Callable[[Counts], Doubles]


class _Chosen(NamedTuple):
    """Which thresholds judge each document."""

    settings: tuple[Mapping[str, Any], ...]
    """Fields by name, one mapping per language that is judged differently; the stage's own come first."""
    places: npt.NDArray[np.int32]
    """Which of them judges each document, -1 where none does."""


@dataclass(frozen=True)
class TextRules(Judge):
    """Rules whose thresholds are fields: ``min_x`` and ``max_x``, None to switch a rule off; the ledger has that name.

    A document without words has no shares: each counts as 0. A text that is null is judged as an empty one.
    """

    words: Words = "whitespace"
    max_unspaced_letters: float | None = 0.3
    language: str | None = None
    languages: str | None = None
    on_unknown_language: Literal["error", "default", "keep"] = "default"

    columns: ClassVar[int]
    """What is to be counted: QUALITY, REPETITION, LINE_RULES."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.languages is not None:
            read_languages(self.languages)

    def prepare(self) -> None:
        """Load what is needed to split words, and compile the kernels."""
        if self.words == "icu":
            load_segmenter()
        empty = pa.table({"text": pa.array([""], pa.large_string()), "language": pa.array([self.language])})
        self.checks(empty.slice(0, 0))

    def measures(self) -> Mapping[str, Measure]:
        """Give each rule's value as a function of what was counted, in the order in which rules speak."""
        raise NotImplementedError

    def checks(self, table: pa.Table) -> list[Check]:
        """Measure every rule that any language has."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        chosen = self._choose(table)
        lists = tuple(tuple(each.get("stop_words", ())) for each in chosen.settings)
        short_line: int = getattr(self, "short_line", 0)
        counts = count_pages(texts, self.columns, lists, chosen.places, self.words, short_line, self._definitions())
        measures = self._unspaced() | dict(self.measures())
        return [
            _check(name, measure(counts), chosen)
            for name, measure in measures.items()
            if any(each[name] is not None for each in chosen.settings)
        ]

    def marks(self, text: str, rule: str) -> list[tuple[int, int]]:
        """Give the places of a text that a rule is about: offsets in characters, sorted, none overlapping.

        Known for the paper's definitions alone; others have none.
        """
        if self._definitions() != "paper" and rule != "max_unspaced_letters":
            return []
        return find_marks(text, rule, self.words, getattr(self, "short_line", 0))

    def _definitions(self) -> Definitions:
        definitions: Definitions = getattr(self, "definitions", "paper")
        return definitions

    def _unspaced(self) -> dict[str, Measure]:
        if self.words != "whitespace":
            return {}
        return {
            "max_unspaced_letters": lambda counts: ratio(counts[page.UNSPACED_LETTERS], counts[page.WORD_CHARACTERS])
        }

    def _own(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _choose(self, table: pa.Table) -> _Chosen:
        own = self._own()
        if self.languages is None:
            return _Chosen((own,), np.zeros(table.num_rows, np.int32))
        known = read_languages(self.languages)
        spoken = self._spoken(table)
        names = spoken.dictionary.to_pylist()
        found = [find_language(known, name) for name in names]
        settings = [own]
        places = np.full(len(names) + 1, 0 if self.on_unknown_language == "default" else -1, np.int32)
        for place, (name, language) in enumerate(zip(names, found, strict=True)):
            if language is not None:
                places[place] = len(settings)
                settings.append(own | {key: value for key, value in known[language].items() if key in own})
            elif self.on_unknown_language == "error":
                raise self._unknown(repr(name), known)
        if self.on_unknown_language == "error" and spoken.null_count:
            raise self._unknown("null", known)
        index = pc.fill_null(spoken.indices, len(names)).to_numpy(zero_copy_only=False)
        return _Chosen(tuple(settings), places[index])

    def _spoken(self, table: pa.Table) -> pa.DictionaryArray:
        if self.language is not None:
            spoken = pa.array([self.language] * table.num_rows, pa.string())
        else:
            spoken = pc.cast(column(table, "language", self.name), pa.string())
        return pc.dictionary_encode(spoken)

    def _unknown(self, name: str, known: Mapping[str, Any]) -> StageError:
        listed = ", ".join(sorted(known))
        return StageError(
            f"{self.name} has no thresholds for the language {name}; {self.languages} has: {listed}; "
            "add it there, or set on_unknown_language to 'default' or 'keep'"
        )


def _unspaced_letters(counts: Counts) -> Doubles:
    return ratio(counts[page.UNSPACED_LETTERS], counts[page.WORD_CHARACTERS])


def _check(name: str, values: Doubles, chosen: _Chosen) -> Check:
    """Compare a rule's values with its thresholds; where there is none, or no language, the document passes."""
    comparison: Literal["at_least", "at_most"] = "at_least" if name.startswith("min_") else "at_most"
    bounds = np.array([np.nan if each[name] is None else each[name] for each in chosen.settings] + [np.nan])
    bound = bounds[chosen.places]
    passes = np.isnan(bound) | (values >= bound if comparison == "at_least" else values <= bound)
    alike = len(chosen.settings) == 1 and not (chosen.places < 0).any()
    threshold = float(bounds[0]) if alike else pa.array(bound, mask=np.isnan(bound))
    return Check(name, pa.array(values), pa.array(passes), threshold, comparison)
