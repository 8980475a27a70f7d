"""What exact-substring deduplication compares: texts as numbers, and the way from those back to characters.

A unit is two functions: ``encode`` turns texts into ids, equal ids for equal pieces of text, and ``to_bytes`` turns
spans of those ids into spans of bytes of the texts. :class:`NormalText` is a unit around another one: its ``encode``
normalises first, and its ``to_bytes`` goes on to the bytes that the normal form comes from.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.dedup.normalize import normalize, normalize_with_sources
from longcrawl.errors import StageError, TokenizerError
from longcrawl.kernels.texts import text_buffers
from longcrawl.tokens.encoders import EncodedTexts, Encoder, load_encoder

__all__ = ["UNITS", "Bytes", "Characters", "NormalText", "Tokens", "Unit", "locate", "make_unit"]

Longs = npt.NDArray[np.int64]

UNITS = ("token", "character", "byte")
"""The names that :func:`make_unit` knows."""


class Unit(Protocol):
    """How texts become numbers, and spans of numbers spans of bytes."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the ids of large strings: uint8, uint16 or uint32, always of one type, and never its greatest number.

        Null has none.
        """

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Find the bytes of UTF-8 that spans of ids stand for; they may begin and end inside a character.

        Args:
            texts: large strings without nulls.
            rows: int64 [spans], the text of each span, in increasing order.
            spans: int64 [spans, 2], start and stop in ids; those of one text are sorted and do not overlap.

        Returns:
            int64 [spans, 2], start and stop in bytes of the text, sorted as the spans are.

        """


def make_unit(name: str, tokenizer: str) -> Unit:
    """Return the unit of this name; ``tokenizer`` is the one that "token" takes.

    Raises:
        StageError: no such unit, or a tokenizer that cannot say which bytes a token stands for.
        TokenizerError: the tokenizer cannot be loaded.

    """
    if name == "token":
        return Tokens(tokenizer)
    if name == "character":
        return Characters()
    if name == "byte":
        return Bytes()
    raise StageError(f"unknown unit {name!r}; known: {', '.join(UNITS)}")


def locate(unit: Unit, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
    """Find the characters (code points) that lie whole in spans of ids, from what ``Unit.to_bytes`` takes.

    Returns:
        int64 [spans, 2], start and stop in characters; a span without a whole one is empty.

    """
    from longcrawl.dedup._unit_kernels import whole_characters

    places = unit.to_bytes(texts, rows, spans)
    whole_characters(*text_buffers(texts), rows, places)
    places[:, 1] = places.max(axis=1)
    return places


class Tokens:
    """Tokens of a byte-level BPE, such as GPT-2's."""

    def __init__(self, tokenizer: str) -> None:
        self._encoder: Encoder = load_encoder(tokenizer)
        try:
            self._bytes = self._encoder.token_bytes
        except TokenizerError as wrong:
            raise StageError(
                f"tokens of {tokenizer!r} do not say which bytes they stand for ({wrong}): take a byte-level BPE such "
                "as gpt2, or the unit 'character'"
            ) from wrong
        self._dtype = np.uint16 if self._encoder.vocabulary_size < 1 << 16 else np.uint32

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return token ids."""
        ids, offsets = self._encoder.encode(texts)
        return EncodedTexts(ids.astype(self._dtype, copy=False), offsets)

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Tokenise again and add up what the tokens before each place stand for."""
        ids, offsets = self._encoder.encode(texts)
        ends = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._bytes[ids], out=ends[1:])
        starts = ends[offsets]
        if not np.array_equal(np.diff(starts), pc.binary_length(texts).to_numpy()):
            raise StageError("tokens do not add up to their text: take a byte-level BPE that changes nothing in it")
        return np.asarray(ends[offsets[rows, None] + spans] - starts[rows, None])


class Characters:
    """Code points."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the code point of every character, uint32."""
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(pc.fill_null(pc.utf8_length(texts), 0).to_numpy(), out=offsets[1:])
        ids = np.empty(offsets[-1], np.uint32)
        for text, start, stop in zip(texts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            ids[start:stop] = np.frombuffer((text.as_py() or "").encode("utf-32-le"), "<u4")
        return EncodedTexts(ids, offsets)

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Count bytes instead of characters."""
        from longcrawl.dedup._unit_kernels import bytes_of_characters

        places = spans.copy()
        bytes_of_characters(*text_buffers(texts), rows, places)
        return places


class Bytes:
    """Bytes of UTF-8."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the bytes, uint8: 255 occurs in no UTF-8."""
        data, offsets = text_buffers(texts)
        return EncodedTexts(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:  # noqa: ARG002  # ids are bytes
        """Return the spans as they are."""
        return spans.copy()


class NormalText:
    """Units of the normal form of texts, see :mod:`longcrawl.dedup.normalize`."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the ids of the normal forms."""
        return self._unit.encode(normalize(texts))

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Find the bytes that the spans of the normal form come from; of a character that is cut, none."""
        normal = normalize_with_sources(texts)
        found = normal.source_spans(rows, self._unit.to_bytes(normal.texts, rows, spans))
        # Marks that change places in the normal form may come from before the end of the span before.
        text_starts = text_buffers(texts)[1][rows]
        places = found + text_starts[:, None]
        ends = np.maximum.accumulate(places[:, 1])
        places[1:, 0] = np.maximum(places[1:, 0], ends[:-1])
        places[:, 1] = places.max(axis=1)
        return places - text_starts[:, None]
