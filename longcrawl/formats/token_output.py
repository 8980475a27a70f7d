"""Settings and text columns that all token outputs share."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from longcrawl.core.outputs import OrderedWriter, Output
from longcrawl.core.stages import Stage
from longcrawl.errors import StageError
from longcrawl.formats.order import check_heldout
from longcrawl.formats.shards.shard import INPUT_IDS
from longcrawl.formats.shards.writing import TokenType
from longcrawl.tokens.encoders import load_encoder
from longcrawl.tokens.loss_mask import LOSS_MASK, MASKED
from longcrawl.tokens.tokenize import Tokenize

TOKENIZER = "tokenizer.json"
"""Name of the tokenizer file in an output whose tokens were made by the run."""
CHARACTERS = 600
"""Characters shown of a decoded text."""
S = TypeVar("S", bound=Stage)


class TokenOutput(Output):
    """Base of the outputs that write tokens, with the settings that they share."""

    keeps_columns: ClassVar[bool] = False

    heldout: float
    end_of_text: int | None
    vocabulary_size: int | None
    dtype: TokenType

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heldout(self.heldout, self.name)
        self.check_least(end_of_text=0, vocabulary_size=1)

    def find_tokenize(self, stages: Sequence[Stage]) -> Tokenize | None:
        """Return the last stage ``tokenize``; raise StageError if there is none and ``end_of_text`` is not set."""
        tokenize = last_stage(stages, Tokenize)
        if tokenize is None and self.end_of_text is None:
            raise StageError(
                f"{self.name} needs an end-of-text token: add the stage tokenize, or set {self.name}.end_of_text"
            )
        return tokenize


@dataclass(frozen=True)
class TokenWriter(OrderedWriter):
    """Writer of tokens; the stage ``tokenize`` supplies the settings that are not set."""

    settings: TokenOutput
    tokenize: Tokenize | None = None

    def _end_of_text(self) -> int:
        if self.settings.end_of_text is not None:
            return self.settings.end_of_text
        assert self.tokenize is not None  # find_tokenize has checked it
        return self.tokenize.encoder().end_of_text

    def _vocabulary_size(self) -> int | None:
        if self.settings.vocabulary_size is None and self.tokenize is not None:
            return self.tokenize.encoder().vocabulary_size
        return self.settings.vocabulary_size

    def _asked_type(self) -> TokenType:
        return self.tokenize.dtype if self.settings.dtype == "auto" and self.tokenize else self.settings.dtype

    def _attributes(self) -> dict[str, Any]:
        """Return the token settings that are known before any token is read."""
        encoder = self.tokenize.encoder() if self.tokenize is not None else None
        return {
            "end_of_text": self._end_of_text(),
            "vocabulary_size": self._vocabulary_size(),
            "tokenizer": encoder.fingerprint if encoder else None,
            "json_escaped": self.tokenize.json_escaped if self.tokenize else False,
        }


def check_masked(table: pa.Table, output: str) -> None:
    """Raise StageError if documents have a loss mask of their text but none of their tokens."""
    if MASKED in table.column_names and LOSS_MASK not in table.column_names:
        raise StageError(
            f"{output} would lose column {MASKED!r}, which refers to the text: make tokens with the stage "
            f"tokenize, which also adds {LOSS_MASK!r}, or drop the column"
        )


def last_stage(stages: Sequence[Stage], kind: type[S]) -> S | None:
    """Return the last stage of a kind."""
    return next((stage for stage in reversed(stages) if isinstance(stage, kind)), None)


def decode_beginning(folder: Path, tokens: Any, *, json_escaped: bool) -> str | None:
    """Decode the first ``CHARACTERS`` characters as :func:`decode_tokens` does, or return None without a tokenizer."""
    if not (folder / TOKENIZER).exists():
        return None
    # Nearly every token decodes to at least one character, so this many tokens are enough.
    return decode_tokens(folder, tokens[:CHARACTERS], json_escaped=json_escaped)[:CHARACTERS]


def decode_document(folder: Path, tokens: list[int], described: Mapping[str, Any]) -> str | None:
    """Decode the beginning of a document without its end of text; inside an escape, it stays JSON-escaped."""
    end, escaped = [described["end_of_text"]], described["json_escaped"]
    inside = tokens[:-1] if tokens[-1:] == end else tokens
    inside = inside[1:] if inside[:1] == end else inside
    try:
        return decode_beginning(folder, inside, json_escaped=escaped)
    except ValueError:
        return decode_beginning(folder, inside, json_escaped=False)


def decode_tokens(folder: Path, tokens: Any, *, json_escaped: bool) -> str:
    """Decode tokens of an output; raise ValueError if ``json_escaped`` is set and the text is not valid JSON."""
    text = load_encoder(str(folder / TOKENIZER), engine="tokenizers").decode(tokens)  # it starts fastest
    return unescape(text) if json_escaped else text


def unescape(text: str) -> str:
    r"""Undo JSON escaping, and drop an escape that truncation has cut at the end.

    >>> unescape('caf\\u00e9\\n\\u00')
    'café\n'
    """
    whole = re.sub(r"(?<!\\)((?:\\\\)*)\\(u[0-9a-fA-F]{0,3})?$", r"\1", text)
    unescaped = str(json.loads(f'"{whole}"', strict=False))
    # A surrogate pair that is cut in the middle leaves its first half, which is not a character.
    return re.sub("[\ud800-\udfff]", "\ufffd", re.sub("[\ud800-\udbff]$", "", unescaped))


BEGINNING, TEXT = "beginning", "text"
"""Names of the columns with the decoded text: of the first ``BEGINNING_TOKENS`` tokens, or of all tokens."""
BEGINNING_TOKENS = 64


def texts_of(output: Path, described: Mapping[str, Any], shown: str) -> Callable[[pa.Table], pa.Table] | None:
    """Return :func:`with_texts` for the output in a folder, or None if it has no tokenizer."""
    if not (output / TOKENIZER).exists():
        return None
    escaped, end_of_text = bool(described.get("json_escaped")), described.get("end_of_text")
    return partial(with_texts, output=output, shown=shown, json_escaped=escaped, end_of_text=end_of_text)


def with_texts(table: pa.Table, *, output: Path, shown: str, json_escaped: bool, end_of_text: int | None) -> pa.Table:
    """Add the column BEGINNING or TEXT with the text of each row, read from the start of its document if it is rolled.

    The folder ``output`` contains the tokenizer. TEXT omits the end of text.
    """
    rolls = table["roll"].to_pylist() if "roll" in table.column_names else [0] * table.num_rows
    found, begins = [], shown == BEGINNING
    decode = decode_beginning if begins else decode_tokens
    rows = (
        chunk.values.to_numpy()[first:last]
        for chunk in table[INPUT_IDS].chunks
        for first, last in pairwise(chunk.offsets.to_pylist())
    )
    for tokens, roll in zip(rows, rolls, strict=True):
        start = (roll or 0) % max(len(tokens), 1)
        most = BEGINNING_TOKENS if begins else len(tokens)
        chosen = np.concatenate([tokens[start : start + most], tokens[:start]])[:most]
        if not begins and len(chosen) and chosen[-1] == end_of_text:
            chosen = chosen[:-1]
        try:
            found.append(decode(output, chosen.tolist(), json_escaped=json_escaped))
        except ValueError:  # A window may begin inside an escape.
            found.append(decode(output, chosen.tolist(), json_escaped=False))
    return table.add_column(table.column_names.index(INPUT_IDS), shown, pa.array(found, pa.string()))
