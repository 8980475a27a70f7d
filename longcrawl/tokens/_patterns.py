"""The patterns that the scanner of this package splits by, and the classes of characters that they name."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from longcrawl.tokens.byte_level import GPT2_PATTERN

GPT2, CL100K, LLAMA3, QWEN2, O200K = range(5)

UPPER, LOWER, EITHER_CASE, MARK, NUMBER, SPACE, OTHER = (1 << bit for bit in range(7))
"""Upper or title case, lower case, letters without case or that modify others, and what is no letter."""

_CLASSES = {"u": UPPER, "l": LOWER, "e": EITHER_CASE, "m": MARK, "n": NUMBER, "s": SPACE, "o": OTHER}

_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

PATTERNS: Mapping[str, int] = {
    GPT2_PATTERN: GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s": CL100K,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: LLAMA3,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: QWEN2,
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _TAIL: O200K,
}
"""What the scanner splits by, in the spellings that tokenizers have; any other pattern is left to its library."""


@cache
def character_classes() -> npt.NDArray[np.uint8]:
    """Return the class of every code point.

    `unicode.txt` lists runs of a class: a letter and how many code points. They are those of the regular expressions
    of tiktoken, of which asking takes 0.3 s; a test asks.
    """
    runs = files("longcrawl.tokens").joinpath("unicode.txt").read_text("ascii").split()
    kinds = np.array([_CLASSES[run[0]] for run in runs], np.uint8)
    return np.repeat(kinds, [int(run[1:]) for run in runs])
