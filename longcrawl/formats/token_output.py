"""What outputs of tokens have in common: the settings of a token, and what the stage ``tokenize`` says of them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from longcrawl.core.outputs import OrderedWriter, Output
from longcrawl.core.stages import Stage
from longcrawl.errors import StageError
from longcrawl.formats.shards.writing import TokenType
from longcrawl.formats.splits import check_heldout
from longcrawl.tokens.encoders import load_encoder
from longcrawl.tokens.tokenize import Tokenize

TOKENIZER = "tokenizer.json"
"""The file of an output that decodes its tokens, where they were made here."""
CHARACTERS = 600
"""Of a text that are shown."""

S = TypeVar("S", bound=Stage)


class TokenOutput(Output):
    """An output with these settings, among others."""

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
        """Return the last stage ``tokenize``; raise StageError if there is none and no setting names an end of text."""
        tokenize = last_stage(stages, Tokenize)
        if tokenize is None and self.end_of_text is None:
            raise StageError(
                f"{self.name} needs an end-of-text token: add the stage tokenize, or set {self.name}.end_of_text"
            )
        return tokenize


@dataclass(frozen=True)
class TokenWriter(OrderedWriter):
    """Writes tokens; what the settings leave out comes from the stage ``tokenize``."""

    settings: TokenOutput
    tokenize: Tokenize | None = None

    def _end_of_text(self) -> int:
        if self.settings.end_of_text is not None:
            return self.settings.end_of_text
        if self.tokenize is None:
            raise StageError(f"{self.settings.name} needs an end-of-text token: set {self.settings.name}.end_of_text")
        return self.tokenize.encoder().end_of_text

    def _vocabulary_size(self) -> int | None:
        if self.settings.vocabulary_size is None and self.tokenize is not None:
            return self.tokenize.encoder().vocabulary_size
        return self.settings.vocabulary_size

    def _asked_type(self) -> TokenType:
        return self.tokenize.dtype if self.settings.dtype == "auto" and self.tokenize else self.settings.dtype

    def _attributes(self) -> dict[str, Any]:
        """Return what is to be known of tokens before they are read."""
        encoder = self.tokenize.encoder() if self.tokenize is not None else None
        return {
            "end_of_text": self._end_of_text(),
            "vocabulary_size": self._vocabulary_size(),
            "tokenizer": encoder.fingerprint if encoder else None,
            "json_escaped": self.tokenize.json_escaped if self.tokenize else False,
        }


def last_stage(stages: Sequence[Stage], kind: type[S]) -> S | None:
    """Return the last stage of a kind."""
    return next((stage for stage in reversed(stages) if isinstance(stage, kind)), None)


def decode_beginning(folder: Path, tokens: Any, *, json_escaped: bool) -> str | None:
    """Return the first text of tokens, None without a tokenizer; ValueError if it is not JSON-escaped as recorded."""
    if not (folder / TOKENIZER).exists():
        return None
    # A token is at least a character in nearly all text, so this many tokens are enough.
    return decode_tokens(folder, tokens[:CHARACTERS], json_escaped=json_escaped)[:CHARACTERS]


def decode_tokens(folder: Path, tokens: Any, *, json_escaped: bool) -> str:
    """Return the text of tokens of an output with a tokenizer; ValueError if it is not JSON-escaped as recorded."""
    text = load_encoder(str(folder / TOKENIZER)).decode(tokens)
    return unescape(text) if json_escaped else text


def unescape(text: str) -> str:
    r"""Undo JSON escaping; an escape that truncation has cut at the end is dropped.

    >>> unescape('caf\\u00e9\\n\\u00')
    'café\n'
    """
    whole = re.sub(r"(?<!\\)((?:\\\\)*)\\(u[0-9a-fA-F]{0,3})?$", r"\1", text)
    unescaped = str(json.loads(f'"{whole}"', strict=False))
    # A pair of surrogates that is cut in the middle leaves its first half, which is no character.
    return re.sub("[\ud800-\udfff]", "\ufffd", re.sub("[\ud800-\udbff]$", "", unescaped))
