"""What rule sets over raw text share: thresholds as fields, one rule a field, and thresholds by language."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.stages import Check, Judge, column
from longcrawl.errors import StageError
from longcrawl.kernels.texts import valid_texts
from longcrawl.storage.files import reread_when_changed
from longcrawl.text.gopher import page_columns as page
from longcrawl.text.gopher.marks import find_marks
from longcrawl.text.gopher.pages import Counts, Words, count_pages, ratio
from longcrawl.text.gopher.segmentation import load_segmenter
from longcrawl.text.gopher.variants.definitions import Definitions
from longcrawl.text.language.spoken import places_of_languages
from longcrawl.text.languages import language_files, read_languages

__all__ = ["TextRules"]

Doubles = npt.NDArray[np.float64]
Measure = Callable[[Counts], Doubles]


class _Settings(NamedTuple):
    """What judges documents: the stage's own fields first, then those of each language of its table."""

    languages: tuple[str, ...]
    stop_words: tuple[tuple[str, ...], ...]
    bounds: Mapping[str, Doubles]
    """Of each rule that any of them has: the thresholds, NaN where it is off; the last is NaN, for no judge at all."""


@dataclass(frozen=True)
class TextRules(Judge):
    """Rules whose thresholds are fields: ``min_x`` and ``max_x``, None to switch a rule off; the ledger has that name.

    A document without words has no shares: each counts as 0. A text that is null is judged as an empty one.

    Args:
        words: what a word is in scripts that are written without spaces: the whole run between white space, each of the
            "characters", or as "icu" segments it (``pip install 'longcrawl[segmentation]'``). Elsewhere it is what
            stands between white space.
        max_unspaced_letters: share of the words' characters that may be letters of such scripts while ``words`` is
            "whitespace"; more of them would be counted as a few giant words.
        language: the language of all documents; None takes the column ``language``. Only ``languages`` asks for it.
        languages: thresholds by language, see :func:`longcrawl.text.read_languages`.
        on_unknown_language: what a document gets whose language is not among them: the stage's own thresholds
            ("default"), no judgement ("keep"), or an "error".

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
        self._check_bounds()
        if self.languages is not None:
            read_languages(self.languages)

    def files(self) -> tuple[str, ...]:
        """Name what ``languages`` reads."""
        return language_files(self.languages)

    def prepare(self) -> None:
        """Load what is needed to split words, compile the kernels, and look the language up where it is given."""
        if self.words == "icu":
            load_segmenter()
        one = pa.table({"text": pa.array([""], pa.large_string()), "language": pa.array([self.language], pa.string())})
        self.checks(one.slice(0, 0 if self.language is None else 1))

    def measures(self) -> Mapping[str, Measure]:
        """Return each rule's value as a function of what was counted, in the order in which rules speak."""
        raise NotImplementedError

    def checks(self, table: pa.Table) -> list[Check]:
        """Measure every rule that any language has."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        settings = _settings(self, self.languages)
        places = self._places(table, settings)
        short_line: int = getattr(self, "short_line", 0)
        lists = settings.stop_words
        counts = count_pages(texts, self.columns, lists, places, self.words, short_line, self._definitions())
        measures = self._unspaced() | dict(self.measures())
        return [
            _check(name, measure(counts), settings.bounds[name], places)
            for name, measure in measures.items()
            if name in settings.bounds
        ]

    def marks(self, text: str, rule: str) -> list[tuple[int, int]]:
        """Return the places of a text that a rule is about: offsets in characters, sorted, none overlapping.

        Known for the paper's definitions alone; others have none.
        """
        if self._definitions() != "paper" and rule != "max_unspaced_letters":
            return []
        return find_marks(text, rule, self.words, getattr(self, "short_line", 0))

    def _definitions(self) -> Definitions:
        definitions: Definitions = getattr(self, "definitions", "paper")
        return definitions

    def _unspaced(self) -> dict[str, Measure]:
        return {"max_unspaced_letters": _unspaced_letters} if self.words == "whitespace" else {}

    def _check_bounds(self) -> None:
        """Refuse what can never be meant.

        Raises:
            StageError: a threshold below 0, a least above the most, or stop words that no document can have.

        """
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, bound in own.items():
            if name.startswith(("min_", "max_", "short_")) and bound is not None and bound < 0:
                raise StageError(
                    f"{self.name}.{name} takes a number from 0 on, or null to switch it off, got {bound!r}"
                )
        for what in ("words", "mean_word_length"):
            least, most = own.get(f"min_{what}"), own.get(f"max_{what}")
            if least is not None and most is not None and least > most:
                raise StageError(f"{self.name} keeps nothing: min_{what} {least!r} is above max_{what} {most!r}")
        words, wanted = own.get("stop_words", ()), own.get("min_stop_words") or 0
        for word in words:
            if word.split() != [word]:
                raise StageError(f"{self.name}.stop_words takes single words, got {word!r}")
        if wanted > len(words):
            raise StageError(f"{self.name} keeps nothing: min_stop_words is {wanted} of {len(words)} stop words")

    def _places(self, table: pa.Table, settings: _Settings) -> npt.NDArray[np.int32]:
        """Return which of the settings judges each document, -1 where none does."""
        if self.languages is None:
            return np.zeros(table.num_rows, np.int32)
        places, spoken = places_of_languages(table, settings.languages, self.language, self.name)
        if self.on_unknown_language == "error" and (places < 0).any():
            unknown = [name for name in spoken.filter(pa.array(places < 0)).to_pylist() if name is not None]
            raise self._unknown(repr(unknown[0]) if unknown else "null", settings.languages)
        other = 0 if self.on_unknown_language == "default" else -1
        return np.where(places < 0, other, places + 1).astype(np.int32)

    def _unknown(self, name: str, known: Sequence[str]) -> StageError:
        listed = ", ".join(sorted(known))
        return StageError(
            f"{self.name} has no thresholds for the language {name}; {self.languages} has: {listed}; "
            "add it there, or set on_unknown_language to 'default' or 'keep'"
        )


def _unspaced_letters(counts: Counts) -> Doubles:
    return ratio(counts[page.UNSPACED_LETTERS], counts[page.WORD_CHARACTERS])


@reread_when_changed(16)
def _settings(stage: TextRules, languages: str | None) -> _Settings:
    own = {field.name: getattr(stage, field.name) for field in fields(stage)}
    known = {} if languages is None else read_languages(languages)
    chosen = [own, *(own | {key: value for key, value in entry.items() if key in own} for entry in known.values())]
    rules = [name for name in own if name.startswith(("min_", "max_"))]
    bounds = {
        name: np.array([*(np.nan if each[name] is None else each[name] for each in chosen), np.nan])
        for name in rules
        if any(each[name] is not None for each in chosen)
    }
    return _Settings(tuple(known), tuple(tuple(each.get("stop_words", ())) for each in chosen), bounds)


def _check(name: str, values: Doubles, bounds: Doubles, places: npt.NDArray[np.int32]) -> Check:
    """Compare a rule's values with its thresholds; where there is none, or no language, the document passes."""
    comparison: Literal["at_least", "at_most"] = "at_least" if name.startswith("min_") else "at_most"
    bound = bounds[places]
    passes = np.isnan(bound) | (values >= bound if comparison == "at_least" else values <= bound)
    alike = len(bounds) == 2 and not (places < 0).any()  # the stage's own, and that of no judge
    threshold = float(bounds[0]) if alike else pa.array(bound, mask=np.isnan(bound))
    return Check(name, pa.array(values), pa.array(passes), threshold, comparison)
