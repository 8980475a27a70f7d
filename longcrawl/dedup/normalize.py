"""RefinedWeb's normalisation of text before it is compared, and the way back to the original.

Punctuation is removed, letters are lowered, NFD is applied, accents are removed and white space is normalised, in this
order. Where the paper (arXiv 2306.01116, G.3.1) leaves room:

* punctuation is what Unicode calls so (category P) and all of ASCII's, ``$+<=>^`|~`` too; it leaves no space behind;
* characters that show nothing (Default_Ignorable_Code_Point) are removed with it: soft hyphens, zero-width spaces and
  joiners, word joiners, variation selectors. Two texts that a reader cannot tell apart are then the same;
* letters are lowered as ``str.lower`` does, with the final sigma as it stands once punctuation is gone;
* accents are nonspacing marks (category Mn). That includes vowel signs of Indic scripts;
* any run of white space becomes one space, and there is none at either end.

Categories and cases follow the Unicode version of this Python: what is done with every code point is in arrays that
kernels index, shipped or kept as the tables of ``longcrawl.kernels.code_points`` are.
"""

import string
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError
from longcrawl.kernels import code_points
from longcrawl.kernels.code_points import CODE_POINTS, cached_arrays, load_characters
from longcrawl.kernels.texts import text_buffers, text_column

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

SPACE = 1 << 0
REMOVED = 1 << 1
"""Punctuation, an accent or a default ignorable: nothing is written."""
MAPPED = 1 << 2
"""What is written is in ``forms``; a character without this and the two above is written as it is."""
CASED = 1 << 3
IGNORABLE = 1 << 4
"""Passed over by the rule of the final sigma: case-ignorable, or punctuation, which is gone by then."""
MARKED = 1 << 5
"""What is written has a combining class other than 0 somewhere, so its neighbours may have to change places with it."""
BREAKS = 1 << 6
"""Removed, but of combining class 0: the marks before it do not change places with those after it."""
ACCENT = 1 << 7
"""An accent or a default ignorable, so it belongs to the character before it."""


class NormalForms(NamedTuple):
    """What is written for every code point."""

    kinds: npt.NDArray[np.uint8]
    """Shape (0x110000,): the constants of this module, or-ed."""
    places: npt.NDArray[np.uint32]
    """Shape (0x110000,): where the form of a mapped character starts in ``forms``."""
    forms: npt.NDArray[np.uint8]
    """UTF-8 of one form after the other, each after one byte that says how many bytes it has."""
    combining: npt.NDArray[np.uint8]
    """Shape (0x110000,): canonical combining class."""


class Normalized(NamedTuple):
    """Normal forms of several texts, and where each of their bytes comes from."""

    texts: pa.Array
    """Large strings, one per text, end to end in one buffer that starts at its byte 0."""
    sources: npt.NDArray[np.int32]
    """For each byte of that buffer, the byte of the original text at which the character starts that it comes from.

    A space comes from the first character of its white space.
    """
    originals: pa.Array

    def source_spans(self, texts: Longs, spans: Longs) -> Longs:
        """Find the stretches of the original texts that stretches of the normal forms come from.

        What is found never begins or ends inside a character, nor with white space; a stretch that is not one whole
        character gives [0, 0]. Accents, and what shows nothing, go with the character before them, or after them
        if white space or nothing precedes; punctuation at either end stays outside.

        Args:
            texts: int64 [spans], the number of the text that each span lies in.
            spans: int64 [spans, 2], start and stop in bytes of the text's normal form.

        Returns:
            int64 [spans, 2], start and stop in bytes of the original text.
        """
        from longcrawl.dedup._normalize_kernels import sources_of_spans

        found = np.array(spans, np.int64).reshape(-1, 2)
        originals, kinds = text_buffers(self.originals), load_normal_forms().kinds
        sources_of_spans(*text_buffers(self.texts), self.sources, *originals, kinds, np.asarray(texts, np.int64), found)
        return found


def normalize(texts: pa.Array) -> pa.Array:
    r"""Return the normal form of every text as large strings; null becomes empty.

    >>> import pyarrow as pa
    >>> normalize(pa.array(["  The Café's\tCRÊPES -- ΟΔΟΣ, 5 €!  "]))[0].as_py()
    'the cafes crepes οδος 5 €'

    Args:
        texts: strings or large strings, valid UTF-8 (``longcrawl.kernels.texts`` makes sure of that).
    """
    originals = _filled(texts)
    return text_column(*normal_bytes(originals), originals, pa.large_string())


def normalize_with_sources(texts: pa.Array) -> Normalized:
    """Return the normal forms together with where each of their bytes comes from, in 4 bytes per byte.

    Raises:
        StageError: a text has 2**31 bytes or more.
    """
    originals = _filled(texts)
    _, offsets = text_buffers(originals)
    if np.diff(offsets).max(initial=0) >= 1 << 31:
        raise StageError("a text has 2 GiB or more, which is too long to map spans back to: cut it first")
    sources = np.empty(_room(offsets), np.int32)
    out, ends = normal_bytes(originals, sources)
    return Normalized(text_column(out, ends, originals, pa.large_string()), sources[: ends[-1]], originals)


def normal_bytes(originals: pa.Array, sources: npt.NDArray[np.int32] | None = None) -> tuple[Bytes, Longs]:
    """Return the normal forms of large strings without nulls as bytes end to end, and where each starts.

    64 bytes at least follow the last form; what they are is not defined.
    ``sources``, as long as the bytes, is written where it is given; see :class:`Normalized`.
    """
    from longcrawl.dedup._normalize_kernels import normalize_all

    data, offsets = text_buffers(originals)
    out = np.empty(_room(offsets), np.uint8)  # what is not written takes no memory
    ends = np.empty(len(originals) + 1, np.int64)
    normalize_all(data, offsets, load_normal_forms(), out, ends, sources)
    return out, ends


def _room(offsets: Longs) -> int:
    from longcrawl.dedup._normalize_kernels import MOST_PER_BYTE

    return MOST_PER_BYTE * int(offsets[-1] - offsets[0]) + 64


def _filled(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.cast(texts, pa.large_string()), "")


@lru_cache(maxsize=1)
def load_normal_forms() -> NormalForms:
    """Return the arrays of this Python's Unicode version."""
    return NormalForms(**cached_arrays("normal-2", lambda: _build()._asdict()))


def _build() -> NormalForms:
    characters = load_characters("re")
    kinds = np.zeros(CODE_POINTS, np.uint8)
    kinds[characters.flags & code_points.CASED != 0] = CASED
    kinds[characters.flags & code_points.IGNORABLE != 0] |= IGNORABLE
    places = np.zeros(CODE_POINTS, np.uint32)
    forms = bytearray()
    ignorable = np.zeros(CODE_POINTS, np.bool_)
    for first, last in code_points.DEFAULT_IGNORABLE:
        ignorable[first : last + 1] = True
    kinds[ignorable] = REMOVED | IGNORABLE | ACCENT
    for point in np.flatnonzero(~ignorable).tolist():
        character = chr(point)
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cs"):
            continue
        if character.isspace():
            kinds[point] |= SPACE
        elif category[0] == "P" or character in string.punctuation:
            kinds[point] |= REMOVED | IGNORABLE
        else:
            kept, form = _without_accents(character)
            kinds[point] |= kept
            if kept & MAPPED:
                places[point] = len(forms)
                forms += bytes([len(form)]) + form
    return NormalForms(kinds, places, np.frombuffer(bytes(forms), np.uint8), characters.combining)


def _without_accents(character: str) -> tuple[int, bytes]:
    """Return the kind of a character that is neither space nor punctuation, and its normal form."""
    decomposed = unicodedata.normalize("NFD", character.lower())
    kept = "".join(point for point in decomposed if unicodedata.category(point) != "Mn")
    if not kept:
        return REMOVED | ACCENT | (0 if all(map(unicodedata.combining, decomposed)) else BREAKS), b""
    marked = MARKED if any(map(unicodedata.combining, kept)) else 0
    return marked | (0 if kept == character else MAPPED), kept.encode()
