"""FineWeb's own rules for quality, which it applies after Gopher's and C4's (Penedo et al. 2024)."""

from collections.abc import Mapping
from typing import ClassVar

from longcrawl.core.stages import stage
from longcrawl.text.gopher import page_columns as page
from longcrawl.text.gopher.pages import Counts, ratio
from longcrawl.text.rules import Doubles, Measure, TextRules

__all__ = ["FineWebQuality"]


@stage
class FineWebQuality(TextRules):
    """Keep documents whose lines look like prose, by FineWeb's rules.

    Blank lines are no lines; others are taken with the white space around them, as FineWeb does. The rules:

    * ``min_terminal_lines``: share of lines whose last character ends a sentence in some script (Unicode's
      Sentence_Terminal);
    * ``max_short_lines``: share of lines of up to ``short_line`` characters;
    * ``max_later_line_characters``: characters of lines that stood before already, per character that is no newline.
      FineWeb was made with 0.01; its paper says 0.1;
    * ``max_newline_ratio``: newlines per word. FineWeb counts spaCy's tokens, of which there are more than words
      between white space, so the same bound is stricter here.
    """

    min_terminal_lines: float | None = 0.12
    max_short_lines: float | None = 0.67
    short_line: int = 30
    max_later_line_characters: float | None = 0.01
    max_newline_ratio: float | None = 0.3

    columns: ClassVar[int] = page.LINE_RULES

    def measures(self) -> Mapping[str, Measure]:
        """Return each rule's value as a function of what was counted."""
        lines = page.RAW_LINES + page.SEGMENTS
        later = page.RAW_LINES + page.LATER_CHARACTERS

        def of_characters(counts: Counts) -> Doubles:
            return ratio(counts[later], counts[page.CHARACTERS] - counts[page.NEWLINES])

        return {
            "min_terminal_lines": lambda counts: ratio(counts[page.TERMINAL_LINES], counts[lines]),
            "max_short_lines": lambda counts: ratio(counts[page.SHORT_LINES], counts[lines]),
            "max_later_line_characters": of_characters,
            "max_newline_ratio": lambda counts: ratio(counts[page.NEWLINES], counts[page.WORDS]),
        }
