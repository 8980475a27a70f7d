"""Which tokens a trainer computes a loss on: the column ``loss_mask``, made of the column ``masked`` of the texts."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import column
from longcrawl.errors import StageError
from longcrawl.tokens.encoders import EncodedTexts, Encoder

Span = tuple[int, int]

MASKED = "masked"
"""The column of spans of a text, list<struct<start, end>> in characters, that no loss is to be computed on."""

LOSS_MASK = "loss_mask"
"""The column beside ``tokens``, as long: False where no loss is to be computed. An Arrow boolean is one bit."""

LOSS_MASK_TYPE = pa.list_(pa.bool_())


def loss_mask(
    masked: pa.Array, texts: Sequence[str | None], encoded: EncodedTexts, encoder: Encoder, spell: Callable[[str], str]
) -> pa.Array:
    """Return the column ``loss_mask``: False for every token that has a byte of a masked character.

    Args:
        masked: the column ``masked``; null is no span, and spans may overlap.
        texts: the texts that the spans are of.
        encoded: the tokens of what ``spell`` makes of each text.
        encoder: what made them.
        spell: what is done to a text before it is tokenised, to each character by itself.

    Raises:
        StageError: the column is not one of spans, a span lies outside its text, or the tokenizer's tokens do not add
            up to the text.
        TokenizerError: a document has spans, and the tokenizer is not a byte-level BPE.
    """
    flags = np.ones(len(encoded.ids), bool)
    for row, spans in enumerate(_spans(masked)):
        if not spans:
            continue
        first, stop = encoded.offsets[row : row + 2]
        ends = np.cumsum(encoder.token_bytes[encoded.ids[first:stop]])
        bounds = _in_bytes(spans, texts[row] or "", spell, int(ends[-1]) if len(ends) else 0)
        starts = np.concatenate([[0], ends[:-1]])
        from_token = np.searchsorted(ends, bounds[:, 0], "right")
        to_token = np.searchsorted(starts, bounds[:, 1], "left")
        for one, other in zip(from_token.tolist(), to_token.tolist(), strict=True):
            flags[first + one : first + other] = False
    return pa.ListArray.from_arrays(pa.array(encoded.offsets, pa.int32()), pa.array(flags))


def loss_mask_of_tokens(table: pa.Table, lengths: npt.NDArray[np.int64], needed_by: str) -> pa.Array:
    """Return the column ``loss_mask`` of a table as a list of booleans, of the type :data:`LOSS_MASK_TYPE`.

    Raises:
        StageError: it is not as long as the tokens, of which there are ``lengths``, or holds a null.
    """
    flags = column(table, LOSS_MASK, needed_by)
    found = pc.fill_null(pc.list_value_length(flags), 0).to_numpy()
    if not np.array_equal(found, lengths):
        row = int(np.flatnonzero(found != lengths)[0])
        raise StageError(
            f"{needed_by} found {found[row]:,} values of {LOSS_MASK!r} for the {lengths[row]:,} tokens of row {row:,}: "
            "make both with the stage tokenize"
        )
    values = pc.cast(flags.flatten(), pa.bool_())
    if values.null_count:
        raise StageError(f"{needed_by} found a null among the values of {LOSS_MASK!r}: set it to true or false")
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _spans(masked: pa.Array) -> list[list[Span]]:
    rows: list[Any] = masked.to_pylist()
    try:
        return [[(int(span["start"]), int(span["end"])) for span in spans] if spans else [] for spans in rows]
    except (KeyError, TypeError) as wrong:
        raise StageError(
            f"the column {MASKED!r} is {masked.type}, it must be a list of spans, struct<start, end> in characters"
        ) from wrong


def _in_bytes(spans: list[Span], text: str, spell: Callable[[str], str], size: int) -> npt.NDArray[np.int64]:
    """Return the spans that are not empty, in bytes of the spelled text of ``size`` bytes: int64 [spans, 2]."""
    if wrong := [span for span in spans if not 0 <= span[0] <= span[1] <= len(text)]:
        raise StageError(
            f"the column {MASKED!r} has a span {list(wrong[0])} in a text of {len(text):,} characters: a text must not "
            "change once it is masked, so put the stage that changes it before"
        )
    edges = sorted({0, len(text), *(edge for span in spans for edge in span)})
    pieces = (spell(text[start:stop]).encode() for start, stop in pairwise(edges))
    places = dict(zip(edges, np.cumsum([0, *map(len, pieces)]).tolist(), strict=True))
    if places[len(text)] != size:
        raise StageError("tokens do not add up to their text: take a byte-level BPE that changes nothing in it")
    bounds = [(places[start], places[end]) for start, end in spans if start < end]
    return np.array(bounds, np.int64).reshape(-1, 2)
