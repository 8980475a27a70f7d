"""Gopher's rules for quality and repetition (Rae et al. 2021, A.1.1), as the paper words them and as others read it."""

from collections.abc import Mapping
from typing import ClassVar

from longcrawl.core.stages import stage
from longcrawl.text.gopher import page_columns as page
from longcrawl.text.gopher.pages import ratio
from longcrawl.text.gopher.variants.definitions import Definitions, Share, quality_shares, repetition_shares
from longcrawl.text.rules import Measure, TextRules

__all__ = ["GopherQuality", "GopherRepetition"]

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


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

    Blank lines are no lines. ``definitions`` takes these rules as others read them:

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

    columns: ClassVar[int] = page.QUALITY

    def measures(self) -> Mapping[str, Measure]:
        """Return each rule's value as a function of what was counted."""
        return _measures(quality_shares(self.definitions))


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

    columns: ClassVar[int] = page.REPETITION

    def measures(self) -> Mapping[str, Measure]:
        """Return each rule's value as a function of what was counted."""
        return _measures(repetition_shares(self.definitions))


def _measures(shares: Mapping[str, Share]) -> dict[str, Measure]:
    return {name: _measure(*share) for name, share in shares.items()}


def _measure(count: int, of: int | None) -> Measure:
    return lambda counts: counts[count] if of is None else ratio(counts[count], counts[of])
