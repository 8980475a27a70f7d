"""Gopher's rules (Rae et al. 2021, A.1.1) as the paper words them and as others read it, and FineWeb's own.

What they share: thresholds as fields, one rule a field, and thresholds by language.
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

    def shares(self) -> Mapping[str, Share]:
        """Return what each rule counts and divides by, in the order in which rules speak."""
        raise NotImplementedError

    def checks(self, table: pa.Table) -> list[Check]:
        """Measure every rule that any language has."""
        settings = _settings(self, self.languages)
        places = self.places(table, settings, self.on_unknown_language)
        measured = self._measured in table.column_names
        counts = _read_counts(table[self._measured]) if measured else _count_together([self], table)[0]
        unspaced = {"max_unspaced_letters": (columns.UNSPACED_LETTERS, columns.WORD_CHARACTERS)}
        shares = (unspaced if self.words == "whitespace" else {}) | dict(self.shares())
        return [
            _check(name, _divided(counts, share), settings.bounds[name], places)
            for name, share in shares.items()
            if name in settings.bounds
        ]

    def measure_ahead(self, table: pa.Table, following: Sequence[Stage]) -> tuple[pa.Table, Sequence[Stage]]:
        """Return the documents with what this and next stages count, which are read once, and these stages."""
        if self._measured in table.column_names:
            return table, ()
        together: dict[str, TextRules] = {}
        for rules in (self, *following):
            # A class of others may look at texts, too, which a run holds back while stages look at counts.
            if not isinstance(rules, TextRules) or type(rules).checks is not TextRules.checks:
                break
            if rules.words != self.words or rules._measured in together:  # noqa: SLF001  # of this class
                break
            together[rules._measured] = rules  # noqa: SLF001  # as above
        if len(together) <= 1:
            return table, ()
        stages = list(together.values())
        for name, counts in zip(together, _count_together(stages, table), strict=True):
            table = table.append_column(name, _write_counts(counts))
        return table, stages

    def apply(self, table: pa.Table) -> Outcome:
        """Do as every judge does, and drop the column of its own counts."""
        outcome = super().apply(table)
        kept = outcome.documents
        return outcome._replace(documents=kept.drop_columns(list({self._measured} & set(kept.column_names))))

    @property
    def _measured(self) -> str:
        """The name of the column that has its counts."""
        return f"counts of {self!r}"

    def marks(self, text: str, rule: str) -> list[tuple[int, int]]:
        """Return the places of a text that a rule is about: offsets in characters, sorted, none overlapping.

        Known for the paper's definitions alone; others have none.
        """
        if self.reads_as != "paper" and rule != "max_unspaced_letters":
            return []
        return find_marks(text, rule, self.words, self.short_lines)

    @property
    def reads_as(self) -> Definitions:
        """Whose variant of the rules is taken, where the stage has a field for it."""
        return getattr(self, "definitions", "paper")

    @property
    def short_lines(self) -> int:
        """Of how many characters a line is short, where the stage has a field for it."""
        return getattr(self, "short_line", 0)

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

    def places(self, table: pa.Table, settings: _Settings, on_unknown: str) -> npt.NDArray[np.int32]:
        """Return which of the settings judges each document, -1 where none does."""
        if self.languages is None:
            return np.zeros(table.num_rows, np.int32)
        places, spoken = places_of_languages(table, settings.languages, self.language, self.name)
        if on_unknown == "error" and (places < 0).any():
            unknown = [name for name in spoken.filter(pa.array(places < 0)).to_pylist() if name is not None]
            raise self._unknown(repr(unknown[0]) if unknown else "null", settings.languages)
        other = 0 if on_unknown == "default" else -1
        return np.where(places < 0, other, places + 1).astype(np.int32)

    def _unknown(self, name: str, known: Sequence[str]) -> StageError:
        listed = ", ".join(sorted(known))
        return StageError(
            f"{self.name} has no thresholds for the language {name}; {self.languages} has: {listed}; "
            "add it there, or set on_unknown_language to 'default' or 'keep'"
        )


def _count_together(rules: Sequence[TextRules], table: pa.Table) -> list[Doubles]:
    """Return what each stage needs of texts, counted in one pass; those that fit beside each other share an array."""
    texts = valid_texts(column(table, "text", rules[0].name), rules[0].name)
    asked: list[Asked] = []
    places = []
    for rule in rules:
        one = _asked(rule, table)
        beside = [place for place, other in enumerate(asked) if _fits_beside(one, other)]
        if beside:
            other = asked[beside[0]]
            with_words = one if one.what & columns.QUALITY else other
            short_line = max(one.short_line, other.short_line)
            asked[beside[0]] = with_words._replace(what=one.what | other.what, short_line=short_line)
        else:
            asked.append(one)
        places.append(beside[0] if beside else len(asked) - 1)
    counts = count_pages(texts, asked, rules[0].words)
    return [counts[place] for place in places]


def _asked(rules: TextRules, table: pa.Table) -> Asked:
    settings = _settings(rules, rules.languages)
    # A language that is an error is one of the stage that judges it.
    places = rules.places(table, settings, "default" if rules.on_unknown_language == "default" else "keep")
    return Asked(rules.columns, rules.reads_as, settings.stop_words, places, rules.short_lines)


def _fits_beside(one: Asked, other: Asked) -> bool:
    """Whether one row has what both ask for: by the same definitions, with one list of stop words."""
    return one.definitions == other.definitions and not one.what & other.what & ~columns.REPETITION


def _write_counts(counts: Doubles) -> pa.Array:
    """Return counts as a column of row numbers, so that documents are dropped without a copy of the counts."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(counts.T).ravel()), len(counts))
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(rows), dtype=np.int32)), rows)


def _read_counts(measured: pa.ChunkedArray) -> Doubles:
    rows = [np.zeros((0, columns.COLUMNS))]
    for chunk in measured.chunks:
        counted: Doubles = chunk.dictionary.flatten().to_numpy().reshape(-1, columns.COLUMNS)
        rows.append(counted[chunk.indices.to_numpy()])
    return np.concatenate(rows).T


def _divided(counts: Doubles, share: Share) -> Doubles:
    """Divide a column by another, if any; of nothing the share is 0."""
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
    """Compare a rule's values with its thresholds; where there is none, or no language, the document passes."""
    comparison: Literal["at_least", "at_most"] = "at_least" if name.startswith("min_") else "at_most"
    bound = bounds[places]
    passes = np.isnan(bound) | (values >= bound if comparison == "at_least" else values <= bound)
    alike = len(bounds) == 2 and not (places < 0).any()  # the stage's own, and that of no judge
    threshold = float(bounds[0]) if alike else pa.array(bound, mask=np.isnan(bound))
    return Check(name, pa.array(values), pa.array(passes), threshold, comparison)


@stage
class GopherQuality(TextRules):
    """Keep documents that look like natural text, by Gopher's rules for quality.

    Words are what stands between white space. The rules, each the name of a field and of an entry in the ledger:

    * ``min_words``, ``max_words``: the cap also removes the longest books; None switches it off;
    * ``min_mean_word_length``, ``max_mean_word_length``: in characters;
    * ``max_hash_ratio``, ``max_ellipsis_ratio``: number signs, and ``…`` or ``...``, per word;
    * ``max_bullet_lines``: share of lines that begin with a bullet, or with ``-``, ``*``, ``+`` or an en dash before
      white space;
    * ``max_ellipsis_lines``: share of lines that end in an ellipsis;
    * ``min_alphabetic_words``: share of words with a letter of any script;
    * ``min_stop_words``: how many different ones of ``stop_words`` there are, in lower case, capitalised or capitals.

    Blank lines do not count. ``definitions`` takes these rules as others read them:

    |  | datatrove | dclm | dolma | nemo-curator |
    | --- | --- | --- | --- | --- |
    | words that count | not only punctuation | first character alphanumeric | all | all |
    | length of words | mean of these | mean of all | median | mean |
    | number signs, ellipses | apart, as above | together, ``. . .`` too | words with ``#`` or ``…`` | words of them |
    | lines | ``str.splitlines``, blank too | as above | between newlines, not stripped | as above |
    | bullets | ``•`` and ``-`` | ``●`` ``•`` ``*`` ``-`` | ``*`` and ``-`` | twelve, not ``-`` or ``*`` |
    | ends of lines | as above | ``. . .`` too | ``…`` | ``[...]``, ``-»``, "read more" and others too |
    | words with a letter | as above | as above | as above | Unicode's Alphabetic |
    | stop words | different ones, as listed | all, in lower case | all, as listed | all, as listed |

    Words that count are those of ``min_words`` and ``max_words``; ratios are per word of any kind. Where number signs
    and ellipses are one ratio, both rules have it. NeMo Curator's "words of them" are an ellipsis, or have more than
    half as many runs of number signs as characters. See :class:`GopherRepetition` for what no reading can give.
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
        """Return what each rule counts and divides by, in the order in which rules speak."""
        return quality_shares(self.definitions)


@stage
class GopherRepetition(TextRules):
    """Keep documents that do not repeat themselves, by Gopher's rules for repetition.

    A line, paragraph or n-gram is a duplicate where the same one stands more than once; all of its occurrences count.
    Lines are compared without the white space around them, blank ones are none; paragraphs stand between blank lines.

    * ``max_duplicate_lines``, ``max_duplicate_paragraphs``: their share of all;
    * ``max_duplicate_line_characters``, ``max_duplicate_paragraph_characters``: the same by characters;
    * ``max_top_2gram`` to ``max_top_4gram``: share of the words' characters that is in all occurrences of the most
      frequent n-gram of words (of equally frequent ones the first; 0 where none comes twice);
    * ``max_duplicate_5grams`` to ``max_duplicate_10grams``: share of the words' characters that is in any n-gram which
      comes more than once, each word counted once.

    The shares of n-grams are those of RedPajama-V2's signals, of words as they stand instead of normalised ones. They
    grow with a document's length, so the same thresholds are stricter on long documents.

    ``definitions`` takes these rules as others read them:

    |  | datatrove | dclm | dolma | nemo-curator |
    | --- | --- | --- | --- | --- |
    | lines | between newlines, not stripped | as above | as datatrove's | not blank, not stripped |
    | paragraphs | between two or more newlines | between pairs of newlines | no rules | as dclm's, not stripped |
    | duplicates | all but the first | all | all | all but the first |
    | their characters per | character | character of a line or paragraph | character of a word | as dclm's |
    | words in n-grams | all | first character alphanumeric | all | all |
    | the top n-gram | spaces too | the longest of several | as above | where it stands in the text |
    | one that comes once | counts | is none | counts | counts |
    | repeated n-grams | but the first, skipping on | as above | each, overlaps again | but the first, spaces too |
    | their characters per | character | character of a word | the same of all n-grams | character |

    These are datatrove 0.10, DCLM's RefinedWeb recipe, dolma's ``gopher_v2`` and NeMo Curator 1.4. Between newlines are
    also the empty lines before the first and after the last one. datatrove compares n-grams spelled without spaces.
    NeMo Curator finds its top n-gram inside of words too, but not across line ends; in a text of fewer than n words its
    share of n-grams is 1.

    What no reading gives is the others' words: datatrove has spaCy's, DCLM uniseg's (fastText's for their number), here
    ``words`` says what one is. So to ``dclm`` a word after a quotation mark does not count: its first character is the
    mark. Of NeMo Curator's equally frequent n-grams chance decides, here the first is taken. Where they divide by zero,
    the share is 0. ``explain`` marks no places for readings other than the paper's.
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
        """Return what each rule counts and divides by, in the order in which rules speak."""
        return repetition_shares(self.definitions)


@stage
class FineWebQuality(TextRules):
    """Keep documents whose lines look like prose, by FineWeb's own rules (Penedo et al. 2024).

    Blank lines do not count; others are taken with the white space around them, as FineWeb does. The rules:

    * ``min_terminal_lines``: share of lines whose last character ends a sentence in some script (Unicode's
      Sentence_Terminal);
    * ``max_short_lines``: share of lines of up to ``short_line`` characters;
    * ``max_later_line_characters``: characters of lines that stood before already, per character that is not a newline.
      FineWeb was made with 0.01; its paper says 0.1;
    * ``max_newline_ratio``: newlines per word. FineWeb counts spaCy's tokens, of which there are more than words
      between white space, so the same bound is stricter here.
    """

    min_terminal_lines: float | None = 0.12
    max_short_lines: float | None = 0.67
    short_line: int = 30
    max_later_line_characters: float | None = 0.01
    max_newline_ratio: float | None = 0.3

    columns: ClassVar[int] = columns.LINE_RULES

    def shares(self) -> Mapping[str, Share]:
        """Return what each rule counts and divides by, in the order in which rules speak."""
        lines = columns.RAW_LINES + columns.SEGMENTS
        return {
            "min_terminal_lines": (columns.TERMINAL_LINES, lines),
            "max_short_lines": (columns.SHORT_LINES, lines),
            "max_later_line_characters": (columns.RAW_LINES + columns.LATER_CHARACTERS, columns.LINE_CHARACTERS),
            "max_newline_ratio": (columns.NEWLINES, columns.WORDS),
        }
