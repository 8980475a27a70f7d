"""What outputs of tokens have in common: the settings of a token, and what the stage ``tokenize`` says of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longcrawl.core.outputs import OrderedWriter, Output
from longcrawl.core.stages import Stage
from longcrawl.errors import StageError
from longcrawl.formats.heldout import check_heldout
from longcrawl.formats.shards.writing import TokenType
from longcrawl.tokens.tokenize import Tokenize

__all__ = ["TokenOutput", "TokenWriter"]


class TokenOutput(Output):
    """An output with these settings, among others."""

    heldout: float
    shard_bytes: int
    end_of_text: int | None
    vocabulary_size: int | None
    dtype: TokenType

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heldout(self.heldout, self.name)
        self.check_least(shard_bytes=1, end_of_text=0, vocabulary_size=1)

    def find_tokenize(self, stages: Sequence[Stage]) -> Tokenize | None:
        """Return the last stage ``tokenize``.

        Raises:
            StageError: there is none, and no setting that says the end-of-text token.

        """
        tokenize = next((stage for stage in reversed(stages) if isinstance(stage, Tokenize)), None)
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
