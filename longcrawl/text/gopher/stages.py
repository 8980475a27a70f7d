"""Stages with Gopher's rules (Rae et al. 2021, A.1.1), as the paper or other projects define them, and with FineWeb's.

All have thresholds as fields, one field per rule, and thresholds by language.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from longcrawl.core.stages import Check, Judge, Outcome, Stage, column, stage
from longcrawl.errors import StageError
from longcrawl.io.files import reread_when_changed
from longcrawl.kernels.texts import valid_texts
from longcrawl.text.gopher import words as columns
from longcrawl.text.gopher.pages import Asked, Words, count_pages, find_marks, load_segmenter
from longcrawl.text.gopher.variants import Definitions, Share, quality_shares, repetition_shares
from longcrawl.text.languages import language_files, places_of_languages, read_languages

Doubles = npt.NDArray[np.float64]
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class _Settings(NamedTuple):
    """Stop words and thresholds: those of the stage's own fields first, then those of each language of its table."""

    languages: tuple[str, ...]
    stop_words: tuple[tuple[str, ...], ...]
    bounds: Mapping[str, Doubles]
    """Thresholds by active rule, one per settings, NaN if off; the last is NaN, for documents that are not judged."""


@dataclass(frozen=True)
class TextRules(Judge):
    """Base class of rule sets with thresholds as fields, ``min_x`` and ``max_x``; None switches a rule off.

    The ledger names a rule by its field. All shares of a document without words are 0. A null text counts as empty.

    Args:
        words: the words of scripts that are written without spaces: the whole run between white space ("whitespace"),
            single "characters", or the segments of "icu" (``pip install 'longcrawl[segmentation]'``). In other scripts,
            words are separated by white space.
        max_unspaced_letters: the largest share of the words' characters that may be letters of such scripts if
            ``words`` is "whitespace", since they would count as a few giant words.
        language: the language of all documents; None takes the column ``language``. Only ``languages`` needs it.
        languages: thresholds by language, see :func:`longcrawl.text.read_languages`.
        on_unknown_language: how to judge a document in a language without thresholds: by the stage's own thresholds
            ("default"), not at all ("keep"), or with an "error".
    """

    words: Words = "whitespace"
    max_unspaced_letters: float | None = 0.3
    language: str | None = None
    languages: str | None = None
    on_unknown_language: Literal["error", "default", "keep"] = "default"

    columns: ClassVar[int]  # counts that the rules need: QUALITY, REPETITION or LINE_RULES
    definitions = "paper"  # a field of the stages that have a choice
    short_line = 0  # likewise

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_bounds()
        if self.languages is not None:
            read_languages(self.languages)

    def files(self) -> tuple[str, ...]:
        """Return the path of the thresholds in ``languages``."""
        return language_files(self.languages)

    def prepare(self) -> None:
        """Load the word segmenter, compile the kernels, and check the language if one is given."""
        if self.words == "icu":
            load_segmenter()
        one = pa.table({"text": pa.array([""], pa.large_string()), "language": pa.array([self.language], pa.string())})
        self.checks(one.slice(0, 0 if self.language is None else 1))

    def shares(self) -> Mapping[str, Share]:
        """Return the columns that each rule counts and divides by, in the order of the rules."""
        raise NotImplementedError

    def checks(self, table: pa.Table) -> list[Check]:
        """Check every rule that is active for some language."""
        settings = _settings(self, self.languages)
        places = self.places(table, settings, self.on_unknown_language)
        measured = self._measured in table.column_names
        counts = _read_counts(table[self._measured]) if measured else _count_together([self], table)
        unspaced = {"max_unspaced_letters": (columns.UNSPACED_LETTERS, columns.WORD_CHARACTERS)}
        shares = (unspaced if self.words == "whitespace" else {}) | dict(self.shares())
        return [
            _check(name, _divided(counts, share), settings.bounds[name], places)
            for name, share in shares.items()
            if name in settings.bounds
        ]

    def measure_ahead(self, table: pa.Table, following: Sequence[Stage]) -> tuple[pa.Table, Sequence[Stage]]:
        """Add the counts of this and the next rule sets in one pass; return all these stages, or none if alone."""
        if self._measured in table.column_names:
            return table, ()
        together: list[TextRules] = []
        for rules in (self, *following):
            # A subclass with its own checks may need texts, which a run withholds from stages that read counts.
            if not isinstance(rules, TextRules) or type(rules).checks is not TextRules.checks:
                break
            if rules in together or not _fit_together([*together, rules]):
                break
            together.append(rules)
        if len(together) <= 1:
            return table, ()
        counts = _write_counts(_count_together(together, table))
        for rules in together:
            table = table.append_column(rules._measured, counts)  # noqa: SLF001  # of this class
        return table, together

    def apply(self, table: pa.Table) -> Outcome:
        """Judge the documents, and drop the column of this stage's counts."""
        outcome = super().apply(table)
        kept = outcome.documents
        return outcome._replace(documents=kept.drop_columns(list({self._measured} & set(kept.column_names))))

    @property
    def _measured(self) -> str:
        return f"counts of {self!r}"

    def marks(self, text: str, rule: str) -> list[tuple[int, int]]:
        """Return the places in a text that a rule refers to by the paper's definitions: offsets in characters."""
        if self.definitions != "paper" and rule != "max_unspaced_letters":
            return []
        return find_marks(text, rule, self.words, self.short_line)

    def _check_bounds(self) -> None:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, bound in own.items():
            if name.startswith(("min_", "max_", "short_")) and bound is not None and bound < 0:
                raise StageError(f"{self.name}.{name} must be 0 or more, or null to switch it off, got {bound!r}")
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

    def places(self, table: pa.Table, settings: _Settings, on_unknown: str) -> npt.NDArray[np.int32]:
        """Return the index of the settings that judge each document, -1 for none."""
        if self.languages is None:
            return np.zeros(table.num_rows, np.int32)
        places, spoken = places_of_languages(table, settings.languages, self.language, self.name)
        if on_unknown == "error" and (places < 0).any():
            unknown = [repr(name) for name in spoken.filter(pa.array(places < 0)).to_pylist() if name is not None]
            raise StageError(
                f"{self.name} has no thresholds for the language {(unknown or ['null'])[0]}; {self.languages} has: "
                f"{', '.join(sorted(settings.languages))}; add it there, or set on_unknown_language to 'default' or "
                "'keep'"
            )
        other = 0 if on_unknown == "default" else -1
        return np.where(places < 0, other, places + 1).astype(np.int32)


def _fit_together(stages: Sequence[TextRules]) -> bool:
    """Return whether one array can hold all counts: words and definitions agree, only REPETITION is in several."""
    # The counts of LINE_RULES are the same by all definitions.
    definitions = {each.definitions for each in stages if each.columns != columns.LINE_RULES}
    alone = [sum(bool(each.columns & what) for each in stages) for what in (columns.QUALITY, columns.LINE_RULES)]
    return max(alone) <= 1 and len(definitions) <= 1 and len({each.words for each in stages}) == 1


def _count_together(stages: Sequence[TextRules], table: pa.Table) -> Doubles:
    texts = valid_texts(column(table, "text", stages[0].name), stages[0].name)
    asked = Asked(0)
    for each in stages:
        asked = asked._replace(what=asked.what | each.columns, short_line=max(asked.short_line, each.short_line))
        if each.columns != columns.LINE_RULES:
            asked = asked._replace(definitions=each.definitions)  # type: ignore[arg-type]  # a field of subclasses
        if each.columns & columns.QUALITY:
            settings = _settings(each, each.languages)
            # Ignore errors about languages here: the stage that judges the document raises them.
            places = each.places(table, settings, "default" if each.on_unknown_language == "default" else "keep")
            asked = asked._replace(stop_words=settings.stop_words, languages=places)
    return count_pages(texts, asked, stages[0].words)


def _write_counts(counts: Doubles) -> pa.Array:
    """Return counts as a dictionary-encoded column, so that dropping documents does not copy the counts."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(counts.T).ravel()), len(counts))
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(rows), dtype=np.int32)), rows)


def _read_counts(measured: pa.ChunkedArray) -> Doubles:
    rows = [np.zeros((0, columns.COLUMNS))]
    for chunk in measured.chunks:
        counted: Doubles = chunk.dictionary.flatten().to_numpy().reshape(-1, columns.COLUMNS)
        rows.append(counted[chunk.indices.to_numpy()])
    return np.concatenate(rows).T


def _divided(counts: Doubles, share: Share) -> Doubles:
    count: Doubles = counts[share[0]]
    if share[1] is None:
        return count
    of: Doubles = counts[share[1]]
    divided: Doubles = np.divide(count, of, out=np.zeros_like(of), where=of > 0)
    return divided


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
    comparison: Literal["at_least", "at_most"] = "at_least" if name.startswith("min_") else "at_most"
    bound = bounds[places]
    passes = np.isnan(bound) | (values >= bound if comparison == "at_least" else values <= bound)
    alike = len(bounds) == 2 and not (places < 0).any()  # one threshold besides the NaN
    threshold = float(bounds[0]) if alike else pa.array(bound, mask=np.isnan(bound))
    return Check(name, pa.array(values), pa.array(passes), threshold, comparison)


@stage
class GopherQuality(TextRules):
    """Keep documents that look like natural text, by Gopher's rules for quality.

    White space separates words. Each rule has the name of a field, which is also its name in the ledger:

    * ``min_words``, ``max_words``: number of words; the maximum also removes the longest books, None switches it off;
    * ``min_mean_word_length``, ``max_mean_word_length``: in characters;
    * ``max_hash_ratio``, ``max_ellipsis_ratio``: number signs, and ``…`` or ``...``, per word;
    * ``max_bullet_lines``: share of lines that begin with a bullet, or with ``-``, ``*``, ``+`` or an en dash before
      white space;
    * ``max_ellipsis_lines``: share of lines that end in an ellipsis;
    * ``min_alphabetic_words``: share of words with a letter of any script;
    * ``min_stop_words``: number of distinct ``stop_words`` in the text, in lower case, capitalised or in capitals.

    Blank lines do not count. ``definitions`` selects a project's version of these rules:

    |  | datatrove | dclm | dolma | nemo-curator |
    | --- | --- | --- | --- | --- |
    | counted words | not only punctuation | first character alphanumeric | all | all |
    | length of words | mean of counted words | mean of all | median | mean |
    | number signs, ellipses | as the paper | together, with ``. . .`` | words with ``#`` or ``…`` | words of symbols |
    | lines | ``str.splitlines``, with blank | as the paper | between newlines, not stripped | as the paper |
    | bullets | ``•`` and ``-`` | ``●`` ``•`` ``*`` ``-`` | ``*`` and ``-`` | twelve, not ``-`` or ``*`` |
    | ends of lines | as the paper | also ``. . .`` | ``…`` | also ``[...]``, ``-»``, "read more" and others |
    | words with a letter | as the paper | as the paper | as the paper | Unicode's Alphabetic |
    | stop words | distinct, as listed | all, in lower case | all, as listed | all, as listed |

    ``min_words`` and ``max_words`` use counted words; ratios are per word of any kind. If number signs and ellipses are
    one ratio, both rules use it. NeMo Curator's words of symbols are an ellipsis, or have more than half as many runs
    of number signs as characters. See :class:`GopherRepetition` for differences that remain.
    """

    min_words: int | None = 50
    max_words: int | None = 100_000
    min_mean_word_length: float | None = 3.0
    max_mean_word_length: float | None = 10.0
    max_hash_ratio: float | None = 0.1
    max_ellipsis_ratio: float | None = 0.1
    max_bullet_lines: float | None = 0.9
    max_ellipsis_lines: float | None = 0.3
    min_alphabetic_words: float | None = 0.8
    min_stop_words: int | None = 2
    stop_words: tuple[str, ...] = STOP_WORDS
    definitions: Definitions = "paper"

    columns: ClassVar[int] = columns.QUALITY

    def shares(self) -> Mapping[str, Share]:
        """Return the columns that each rule counts and divides by, in the order of the rules."""
        return quality_shares(self.definitions)


@stage
class GopherRepetition(TextRules):
    """Keep documents that do not repeat themselves, by Gopher's rules for repetition.

    A line, paragraph or n-gram is a duplicate if it occurs more than once; all of its occurrences count. Lines are
    compared without surrounding white space, and blank lines do not count. Blank lines separate paragraphs.

    * ``max_duplicate_lines``, ``max_duplicate_paragraphs``: share of duplicate lines or paragraphs;
    * ``max_duplicate_line_characters``, ``max_duplicate_paragraph_characters``: the same by characters;
    * ``max_top_2gram`` to ``max_top_4gram``: share of the words' characters in all occurrences of the most frequent
      n-gram of words (the first of equally frequent ones; 0 if none occurs twice);
    * ``max_duplicate_5grams`` to ``max_duplicate_10grams``: share of the words' characters in any repeated n-gram, each
      word counted once.

    Shares of n-grams grow with a document's length, so the same thresholds are stricter on long documents.

    ``definitions`` selects a project's version of these rules:

    |  | datatrove | dclm | dolma | nemo-curator |
    | --- | --- | --- | --- | --- |
    | lines | between newlines, not stripped | as the paper | as datatrove | not blank, not stripped |
    | paragraphs | between two or more newlines | between pairs of newlines | no rules | as dclm, not stripped |
    | duplicates | all but the first | all | all | all but the first |
    | their characters per | character | character of a line or paragraph | character of a word | as dclm |
    | words in n-grams | all | first character alphanumeric | all | all |
    | top n-gram | with spaces | the longest of equals | as the paper | occurrences in the raw text |
    | unrepeated top n-gram | counts | does not count | counts | counts |
    | repeated n-grams | later ones, no overlaps | as the paper | each, with overlaps | later ones, with spaces |
    | their characters per | character | character of a word | character of all n-grams | character |

    The versions are datatrove 0.10, DCLM's RefinedWeb recipe, dolma's ``gopher_v2`` and NeMo Curator 1.4. Lines between
    newlines include empty ones at the start and the end of a text. datatrove compares n-grams without spaces. NeMo
    Curator also finds its top n-gram inside words, but not across line ends; in a text of fewer than n words, its share
    of n-grams is 1.

    Some differences remain. datatrove uses spaCy's words, and DCLM uniseg's; here ``words`` defines a word. Among
    equally frequent n-grams, NeMo Curator's choice is random; here it is the first. ``explain`` marks places by the
    paper alone.
    """

    max_duplicate_lines: float | None = 0.3
    max_duplicate_paragraphs: float | None = 0.3
    max_duplicate_line_characters: float | None = 0.2
    max_duplicate_paragraph_characters: float | None = 0.2
    max_top_2gram: float | None = 0.2
    max_top_3gram: float | None = 0.18
    max_top_4gram: float | None = 0.16
    max_duplicate_5grams: float | None = 0.15
    max_duplicate_6grams: float | None = 0.14
    max_duplicate_7grams: float | None = 0.13
    max_duplicate_8grams: float | None = 0.12
    max_duplicate_9grams: float | None = 0.11
    max_duplicate_10grams: float | None = 0.1
    definitions: Definitions = "paper"

    columns: ClassVar[int] = columns.REPETITION

    def shares(self) -> Mapping[str, Share]:
        """Return the columns that each rule counts and divides by, in the order of the rules."""
        return repetition_shares(self.definitions)


@stage
class FineWebQuality(TextRules):
    """Keep documents whose lines look like prose, by FineWeb's own rules (Penedo et al. 2024), without blank lines.

    * ``min_terminal_lines``: share of lines whose last character ends a sentence in some script (Unicode's
      Sentence_Terminal);
    * ``max_short_lines``: share of lines of up to ``short_line`` characters;
    * ``max_later_line_characters``: characters of lines that repeat an earlier line, per character that is not a
      newline. FineWeb was made with 0.01; its paper has 0.1;
    * ``max_newline_ratio``: newlines per word. FineWeb counts spaCy's tokens, which are more numerous than words
      between white space, so the same bound is stricter here.
    """

    min_terminal_lines: float | None = 0.12
    max_short_lines: float | None = 0.67
    short_line: int = 30
    max_later_line_characters: float | None = 0.01
    max_newline_ratio: float | None = 0.3

    columns: ClassVar[int] = columns.LINE_RULES

    def shares(self) -> Mapping[str, Share]:
        """Return the columns that each rule counts and divides by, in the order of the rules."""
        lines = columns.RAW_LINES + columns.SEGMENTS
        return {
            "min_terminal_lines": (columns.TERMINAL_LINES, lines),
            "max_short_lines": (columns.SHORT_LINES, lines),
            "max_later_line_characters": (columns.RAW_LINES + columns.LATER_CHARACTERS, columns.LINE_CHARACTERS),
            "max_newline_ratio": (columns.NEWLINES, columns.WORDS),
        }
