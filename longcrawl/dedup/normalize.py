"""RefinedWeb's normalisation of text before it is compared, and the way back to the original.

Punctuation is removed, letters are lowered, NFD is applied, accents are removed and white space is normalised, in this
order. Where the paper (arXiv 2306.01116, G.3.1) leaves room:

* punctuation is what Unicode calls so (category P) and all of ASCII's, ``$+<=>^`|~`` too; it leaves no space behind;
* letters are lowered as ``str.lower`` does, with the final sigma as it stands once punctuation is gone;
* accents are nonspacing marks (category Mn). That includes vowel signs of Indic scripts;
* any run of white space becomes one space, and there is none at either end.

Categories and cases follow the Unicode version of this Python.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError

__all__ = ["Normalized", "normal_bytes", "normalize", "normalize_with_sources", "string_buffers"]

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]


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
        character gives [0, 0]. An accent goes with its letter; punctuation at either end stays outside.

        Args:
            texts: int64 [spans], the number of the text that each span lies in.
            spans: int64 [spans, 2], start and stop in bytes of the text's normal form.

        Returns:
            int64 [spans, 2], start and stop in bytes of the original text.

        """
        from longcrawl.dedup._normal_forms import load_normal_forms
        from longcrawl.dedup._normalize_kernels import sources_of_spans

        found = np.empty((len(texts), 2), np.int64)
        normal_data, normal_offsets = string_buffers(self.texts)
        sources_of_spans(
            normal_data,
            normal_offsets,
            self.sources,
            *string_buffers(self.originals),
            load_normal_forms(),
            np.asarray(texts, np.int64),
            np.asarray(spans, np.int64).reshape(-1, 2),
            found,
        )
        return found


def normalize(texts: pa.Array) -> pa.Array:
    r"""Return the normal form of every text as large strings; null becomes empty.

    >>> import pyarrow as pa
    >>> normalize(pa.array(["  The Café's\tCRÊPES -- ΟΔΟΣ, 5 €!  "]))[0].as_py()
    'the cafes crepes οδος 5 €'

    Args:
        texts: strings or large strings, valid UTF-8 (``longcrawl.kernels.texts`` makes sure of that).

    """
    return _as_strings(*normal_bytes(_filled(texts)))


def normalize_with_sources(texts: pa.Array) -> Normalized:
    """Return the normal forms together with where each of their bytes comes from, in 4 bytes per byte.

    Raises:
        StageError: a text has 2**31 bytes or more.

    """
    originals = _filled(texts)
    _, offsets = string_buffers(originals)
    if np.diff(offsets).max(initial=0) >= 1 << 31:
        raise StageError("a text has 2 GiB or more, which is too long to map spans back to: cut it first")
    sources = np.empty(_room(offsets), np.int32)
    out, ends = normal_bytes(originals, sources)
    return Normalized(_as_strings(out, ends), sources[: ends[-1]], originals)


def string_buffers(texts: pa.Array) -> tuple[Bytes, Longs]:
    """Return bytes and offsets of large strings without nulls, without a copy, not for writing.

    Some buffers of Arrow can be written to, others not: kernels would be compiled for both.
    """
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer or b"", np.int64)[texts.offset : texts.offset + len(texts) + 1]
    offsets = offsets if len(offsets) else np.zeros(1, np.int64)
    data = np.frombuffer(data_buffer or b"\0", np.uint8)
    data.flags.writeable = offsets.flags.writeable = False
    return data, offsets


def normal_bytes(originals: pa.Array, sources: npt.NDArray[np.int32] | None = None) -> tuple[Bytes, Longs]:
    """Return the normal forms of large strings without nulls as bytes end to end, and where each starts.

    Eight bytes at least follow the last form; what they are is not defined.
    ``sources``, as long as the bytes, is written where it is given; see :class:`Normalized`.
    """
    from longcrawl.dedup._normal_forms import load_normal_forms
    from longcrawl.dedup._normalize_kernels import normalize_all

    data, offsets = string_buffers(originals)
    out = np.empty(_room(offsets), np.uint8)  # what is not written takes no memory
    ends = np.empty(len(originals) + 1, np.int64)
    normalize_all(data, offsets, load_normal_forms(), out, ends, sources)
    return out, ends


def _room(offsets: Longs) -> int:
    from longcrawl.dedup._normalize_kernels import MOST_PER_BYTE

    return MOST_PER_BYTE * int(offsets[-1] - offsets[0]) + 8


def _filled(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.cast(texts, pa.large_string()), "")


def _as_strings(out: Bytes, ends: Longs) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(out[: ends[-1]])]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)
