r"""Whether the regular expressions of tiktoken and of `tokenizers` cut texts at the same places.

tiktoken's are Rust's, those of `tokenizers` Oniguruma's. ``\w``, ``$`` and letters without case differ between them,
and tiktoken drops characters that a pattern does not match, which `tokenizers` keeps.
"""

import itertools
import random
from functools import cache

from longcrawl.errors import TokenizerError

_BETWEEN = "\U0010fffe"
"""Stands between pieces; nothing else that is compared has this character."""
_DENSE = (
    range(0x3400),
    range(0xA000, 0xAC00),
    range(0xF900, 0x17000),
    range(0x18D00, 0x20000),
    range(0xE0000, 0xE0200),
)
"""Blocks of many scripts, of symbols and of marks: every code point is compared."""
_SPARSE = (range(0x3400, 0xA000), range(0xAC00, 0xD800), range(0xE000, 0xF900), range(0x17000, 0x18D00))
"""Blocks of one script, and private use: one of ``_STEP``, as of all planes beyond the second."""
_STEP = 61
_LINES = 1 << 10
"""Code points of one text: for pieces of longer ones `tokenizers` takes more time than in proportion."""


@cache
def _probes() -> list[str]:
    """Return code points of all kinds beside a letter, a digit, an apostrophe, spaces, themselves and ends of lines."""
    beyond = range(0x20000, 0x110000)
    points = itertools.chain(*_DENSE, *(block[::_STEP] for block in (*_SPARSE, beyond)), (0xFFFF, 0x10FFFF))
    lines = [f"a{each}1{each} {each}{each}'{each}\n" for each in map(chr, points) if each != _BETWEEN]
    return ["".join(lines[start : start + _LINES]) for start in range(0, len(lines), _LINES)]


@cache
def _pairs() -> dict[bytes, int]:
    """Return ranks of the bytes and of pairs of the last byte of a character and the first of another.

    A place that one engine cuts and the other does not is then seen in the ids. Where a pair could be two, chance says
    which is first.
    """
    ascii_bytes = range(0x80)
    pairs = [*itertools.product((*ascii_bytes, *range(0x80, 0xC0)), (*ascii_bytes, *range(0xC2, 0xF5)))]
    random.Random(0).shuffle(pairs)  # noqa: S311  # any order will do, but always the same
    return {bytes(token): rank for rank, token in enumerate([*((byte,) for byte in range(256)), *pairs])}


def require_equal_cuts(pattern: str, *texts: str) -> None:
    """Compare where the engines cut code points of all kinds, and other texts, whatever the vocabulary.

    Raises:
        TokenizerError: they differ, or tiktoken cannot use the pattern.
    """
    import tiktoken
    from tokenizers import Regex, pre_tokenizers

    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    ours, whole = (
        tiktoken.Encoding("cuts", pat_str=each, mergeable_ranks=_pairs(), special_tokens={})
        for each in (pattern, f"[^{_BETWEEN}]+")
    )
    for text in (*texts, *_probes()):
        pieces = _BETWEEN.join(piece for piece, _ in split.pre_tokenize_str(text))
        if ours.encode_ordinary(text) != whole.encode_ordinary(pieces):
            raise TokenizerError("its pattern splits text in another way in tokenizers than in tiktoken")
