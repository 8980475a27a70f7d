"""The patterns that the scanner of this package splits by, which files have them, and the characters that they name."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.kept_arrays import shipped_arrays
from longcrawl.tokens.byte_level import END_OF_TEXT, GPT2_PATTERN, RankFile, parse_ranks

GPT2, CL100K, LLAMA3, QWEN2, O200K = range(5)

UPPER, LOWER, EITHER_CASE, MARK, NUMBER, SPACE, OTHER = (1 << bit for bit in range(7))
"""Upper or title case, lower case, letters without case or that modify others, and what is no letter."""

SHIPPED = Path(__file__).with_name("classes.npz")

_TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

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

_FILL_IN_THE_MIDDLE = {"<|fim_prefix|>": 100_258, "<|fim_middle|>": 100_259, "<|fim_suffix|>": 100_260}
_PUBLISHED: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (
        CL100K_PATTERN,
        {END_OF_TEXT: 100_257, **_FILL_IN_THE_MIDDLE, "<|endofprompt|>": 100_276},
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (
        O200K_PATTERN,
        {END_OF_TEXT: 199_999, "<|endofprompt|>": 200_018},
    ),
}
"""Patterns and special tokens of `cl100k_base.tiktoken` and `o200k_base.tiktoken`, by the SHA-256 of the file."""


def rank_file(content: bytes, where: str) -> RankFile:
    """Return the ranks of a `*.tiktoken` file with its pattern and special tokens, which the file does not say.

    Those of cl100k and o200k are known by the digest of the file; any other one has GPT-2's.

    Raises:
        TokenizerError: see :func:`longcrawl.tokens.byte_level.parse_ranks`.
    """
    ranks = parse_ranks(content, where)
    of_gpt2 = GPT2_PATTERN, {END_OF_TEXT: len(ranks)}
    return RankFile(ranks, *_PUBLISHED.get(hashlib.sha256(content).hexdigest(), of_gpt2))


@cache
def character_classes() -> npt.NDArray[np.uint8]:
    """Return the class of every code point.

    They are those of the regular expressions of tiktoken, of which asking takes 0.3 s; a test asks, and writes them.
    """
    return shipped_arrays(SHIPPED, "tiktoken")["classes"]
