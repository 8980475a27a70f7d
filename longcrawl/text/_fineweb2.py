"""FineWeb-2's configuration of one language as thresholds of ours."""

from collections.abc import Mapping
from typing import Any

from longcrawl.errors import StageError

_NAMES = {
    "dup_line_frac": "max_duplicate_lines",
    "language_score": "min_language_score",
    "line_punct_thr": "min_terminal_lines",
    "max_avg_word_length": "max_mean_word_length",
    "max_non_alpha_words_ratio": "min_alphabetic_words",
    "min_avg_word_length": "min_mean_word_length",
    "new_line_ratio": "max_newline_ratio",
    "stopwords": "stop_words",
}
"""``max_non_alpha_words_ratio`` is in truth the least share of words with a letter."""

_GRAMS = {
    "dup_n_grams": {n: f"max_duplicate_{n}grams" for n in range(5, 11)},
    "top_n_grams": {n: f"max_top_{n}gram" for n in range(2, 5)},
}

FINEWEB_2_KEYS = frozenset([*_NAMES, *_GRAMS])

_OFF_AT_ZERO = ("dup_line_frac", "max_avg_word_length", "max_non_alpha_words_ratio", "min_avg_word_length")
"""Its filters pass over these rules where the bound is 0."""

_EVERY_LANGUAGE = {
    "max_duplicate_line_characters": None,
    "max_duplicate_paragraph_characters": None,
    "max_duplicate_paragraphs": None,
    "max_later_line_characters": 0.1,
    "max_short_lines": None,
    "min_stop_words": 2,
}
"""What its pipeline sets or switches off for all languages, beside the files."""


def from_fineweb_2(content: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Return thresholds by the names of our fields; what a file leaves out is the stage's own.

    Raises:
        StageError: an unknown key, or n-grams that are no pairs of n and a share.

    """
    found: dict[str, Any] = dict(_EVERY_LANGUAGE)
    for key, value in content.items():
        if key not in FINEWEB_2_KEYS:
            raise StageError(f"{where} has an unknown key {key!r}; FineWeb-2 has: {', '.join(sorted(FINEWEB_2_KEYS))}")
        if key in _GRAMS:
            found |= _grams(key, value, where)
        else:
            found[_NAMES[key]] = None if key in _OFF_AT_ZERO and value == 0 and value is not False else value
    return found


def _grams(key: str, pairs: Any, where: str) -> dict[str, Any]:
    names = _GRAMS[key]
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise StageError(f"{where}: {key} takes pairs of n and a share, such as [[{min(names)}, 0.15]], got {pairs!r}")
    for n, _ in pairs:
        if not isinstance(n, int) or n not in names:
            raise StageError(f"{where}: {key} has n = {n!r}; known: {', '.join(map(str, names))}")
    return {names[n]: share for n, share in pairs}
