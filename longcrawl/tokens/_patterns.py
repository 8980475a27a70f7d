"""The patterns that the scanner of this package splits by, which files have them, and the characters that they name."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.kept_arrays import shipped_arrays

GPT2, CL100K, LLAMA3, QWEN2, O200K = range(5)

UPPER, LOWER, EITHER_CASE, MARK, NUMBER, SPACE, OTHER = (1 << bit for bit in range(7))
"""Upper or title case, lower case, letters without case or that modify others, and what is no letter."""

SHIPPED = Path(__file__).with_name("classes.npz")

_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
"""GPT-2's pre-tokenisation, in the possessive spelling that does not backtrack over long words."""
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""tiktoken's, but for `{1,3}+`, which keeps all digits together where `tokenizers` reads it."""
O200K_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _TAIL
)

PATTERNS: Mapping[str, int] = {
    GPT2_PATTERN: GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    CL100K_PATTERN: CL100K,
    CL100K_PATTERN.replace("{1,3}", "{1,3}+"): CL100K,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: LLAMA3,
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL: QWEN2,
    O200K_PATTERN: O200K,
}
"""What the scanner splits by, in the spellings that tokenizers have; any other pattern is left to its library."""


@cache
def character_classes() -> npt.NDArray[np.uint8]:
    """Return the class of every code point.

    They are those of the regular expressions of tiktoken, of which asking takes 0.3 s; a test asks, and writes them.
    """
    return shipped_arrays(SHIPPED, "tiktoken")["classes"]
