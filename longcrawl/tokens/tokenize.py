"""Stage that tokenizes texts, with a mask of the tokens that count in the loss."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Rewrite, column, stage
from longcrawl.errors import StageError, TokenizerError
from longcrawl.io.files import whole_file
from longcrawl.kernels.compiling import expect
from longcrawl.kernels.keyed_hash import choose
from longcrawl.tokens.bpe import END_OF_TEXT, encode_texts
from longcrawl.tokens.encoders import EncodedTexts, Encoder, TokenizerStage, load_encoder, one_thread
from longcrawl.tokens.loss_mask import LOSS_MASK, MASKED

Span = tuple[int, int]


def loss_mask(
    masked: pa.Array, texts: Sequence[str | None], encoded: EncodedTexts, encoder: Encoder, spell: Callable[[str], str]
) -> pa.Array:
    """Return the column ``loss_mask``, False for every token with a byte of a masked character.

    ``masked`` has spans of ``texts``, null for none, which may overlap; ``spell`` is the change made to each character
    before it is tokenized. StageError for what is not a span within its text, or tokens that do not add up to it.
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


def _spans(masked: pa.Array) -> list[list[Span]]:
    rows: list[Any] = masked.to_pylist()
    try:
        return [[(int(span["start"]), int(span["end"])) for span in spans] if spans else [] for spans in rows]
    except (KeyError, TypeError) as wrong:
        raise StageError(
            f"the column {MASKED!r} is {masked.type}, but must be a list of spans, struct<start, end> in characters"
        ) from wrong


def _in_bytes(spans: list[Span], text: str, spell: Callable[[str], str], size: int) -> npt.NDArray[np.int64]:
    """Return the non-empty spans in bytes of the spelled text, which has ``size`` bytes: int64 [spans, 2]."""
    if wrong := [span for span in spans if not 0 <= span[0] <= span[1] <= len(text)]:
        raise StageError(
            f"the column {MASKED!r} has a span {list(wrong[0])} in a text of {len(text):,} characters: put stages that "
            "change texts before the one that masks them"
        )
    edges = sorted({0, len(text), *(edge for span in spans for edge in span)})
    pieces = (spell(text[start:stop]).encode() for start, stop in pairwise(edges))
    places = dict(zip(edges, np.cumsum([0, *map(len, pieces)]).tolist(), strict=True))
    if places[len(text)] != size:
        raise StageError("tokens do not decode to their text: choose a byte-level BPE without normalization")
    bounds = [(places[start], places[end]) for start, end in spans if start < end]
    return np.array(bounds, np.int64).reshape(-1, 2)


_TRAINED = "trained"
_REPLACED = ("text", MASKED, "tokens", "n_tokens", LOSS_MASK)


@stage
class Tokenize(TokenizerStage, Rewrite):
    """Replace ``text`` with ``tokens``, a list of uint16 or uint32 ids, and ``n_tokens`` (int64).

    A null text has no tokens. Other columns are kept. No special token is added, and ``<|endoftext|>`` spelled out in a
    text is text. If documents have a column ``masked``, as made by :class:`longcrawl.dedup.ExactSubstring`, it is
    replaced by ``loss_mask``: a list of booleans as long as ``tokens``, False for every token with a byte of a masked
    character.

    ``tokenizer`` is a file, a folder, a Hub id or an object, see :func:`longcrawl.tokens.encoders.load_encoder`, or
    ``"trained"``. In that case :meth:`fit` trains a byte-level BPE of at most ``vocabulary_size`` tokens on
    ``train_documents`` documents, on one core, with ``end_of_text`` (by default ``<|endoftext|>``) as id 0.

    ``json_escaped`` tokenizes the text as spelled in JSON, without the quotes, as LongCrawl64 does. It takes 1.21 times
    as many tokens in English, 3.13 times in Russian. ``ensure_ascii`` is the setting of that escape. ``end_of_text`` is
    the token that outputs end documents with. ``dtype`` "auto" is uint16 for at most 65,536 ids, else uint32.

    >>> import pyarrow as pa
    >>> Tokenize("gpt2")(pa.table({"text": ["Hello world"]})).to_pydict()  # doctest: +SKIP
    {'tokens': [[15496, 995]], 'n_tokens': [2]}

    Raises:
        StageError: there is no column ``text`` of strings, ``"trained"`` has not been fitted, a batch has 2**31 tokens,
            or a span of ``masked`` is not within its text.
        TokenizerError: the tokenizer cannot be loaded, has more ids than ``dtype`` holds, or is not a byte-level BPE
            although documents are masked.
    """

    tokenizer: str = "gpt2"
    json_escaped: bool = False
    ensure_ascii: bool = True
    dtype: Literal["auto", "uint16", "uint32"] = "auto"
    vocabulary_size: int = 8192
    end_of_text: str | None = None
    train_documents: int | None = None
    rewrites = "tokens"
    looks_at = "tokens"
    code_version: ClassVar[str] = "2"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("end_of_text", "train_documents")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocabulary_size < 257:
            raise StageError(
                f"tokenize.vocabulary_size is {self.vocabulary_size}: set it to 257 or more, for 256 bytes and an "
                "end of text"
            )

        if self.train_documents is not None and (self.train_documents < 1 or not self.needs_fit):
            raise StageError(
                f"tokenize.train_documents is {self.train_documents} with the tokenizer {self.tokenizer!r}: "
                f"set it to 1 or more with {_TRAINED!r}, else null"
            )

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Replace ``text`` with ``tokens`` and ``n_tokens``."""
        encoder = self.encoder()
        encoded = encoder.encode(
            pa.array(self._texts(table), pa.large_string()) if self.json_escaped else self._column(table)
        )
        ids, offsets = encoded
        if offsets[-1] >= 1 << 31:
            raise StageError(
                f"a batch has {offsets[-1]:,} tokens, but a list column holds 2,147,483,647: use smaller batches"
            )
        values = pa.array(ids.astype(self._value_type(encoder), copy=False))
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
        kept = table.drop_columns([name for name in _REPLACED if name in table.column_names])
        made = kept.append_column("tokens", lists).append_column("n_tokens", pa.array(np.diff(offsets)))
        if MASKED in table.column_names:
            texts: list[str | None] = self._column(table).to_pylist()
            mask = loss_mask(column(table, MASKED, self.name), texts, encoded, encoder, self._spelled)
            return made.append_column(LOSS_MASK, mask)
        return made

    @property
    def uses_tokenizer(self) -> bool:
        """False for the tokenizer "trained", which has no file yet."""
        return not self.needs_fit

    @property
    def needs_fit(self) -> bool:
        """True for the tokenizer "trained"."""
        return self.tokenizer == _TRAINED

    def fit(self, tables: Iterable[pa.Table], directory: str) -> "Tokenize":
        """Train the tokenizer "trained" on documents, in any order, and return the stage that uses it."""
        if not self.needs_fit:
            return self
        tables = choose(tables, self.train_documents, f"{self.name}.train_documents")
        texts = (text for table in tables for text in self._texts(table) if text)
        trained = _train(texts, self.vocabulary_size, self.end_of_text or END_OF_TEXT)
        path = Path(directory) / hashlib.sha256(trained).hexdigest()[:16] / "tokenizer.json"
        with whole_file(path) as beside:
            beside.write_bytes(trained)
        return dataclasses.replace(self, tokenizer=str(path), train_documents=None)

    def prepare(self) -> None:
        """Load the tokenizer, or, if it has yet to be trained, start compiling its kernels."""
        if self.needs_fit:
            expect(encode_texts)
        else:
            self._value_type(self.encoder())

    def encoder(self) -> Encoder:
        """Load the tokenizer."""
        if self.needs_fit:
            raise StageError("tokenize has no tokenizer yet: call stage.fit(tables, directory) first, or set tokenizer")
        return load_encoder(self.tokenizer, self.end_of_text)

    def _value_type(self, encoder: Encoder) -> Any:
        if self.dtype == "uint16" and encoder.vocabulary_size > 1 << 16:
            raise TokenizerError(
                f"tokenize.dtype is uint16, but {self.tokenizer!r} has {encoder.vocabulary_size:,} ids: set it to "
                "'auto'"
            )
        return encoder.dtype if self.dtype == "auto" else np.dtype(self.dtype)

    def _column(self, table: pa.Table) -> pa.Array:
        texts = column(table, "text", self.name)
        if pa.types.is_null(texts.type):
            return pc.cast(texts, pa.large_string())
        if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
            raise StageError(f"tokenize needs strings in column 'text', but it holds {texts.type}")
        return texts

    def _texts(self, table: pa.Table) -> list[str | None]:
        texts: list[str | None] = self._column(table).to_pylist()
        if self.json_escaped:
            return [None if text is None else self._spelled(text) for text in texts]
        return texts

    def _spelled(self, text: str) -> str:
        return json_escape(text, self.ensure_ascii) if self.json_escaped else text


def json_escape(text: str, ensure_ascii: bool = True) -> str:  # noqa: FBT001, FBT002  # same name and position as in json.dumps
    r"""Spell a text as in JSON, without the quotes.

    >>> print(json_escape('one "é"\ntwo'))
    one \"\u00e9\"\ntwo
    """
    return json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]


def _train(texts: Iterator[str], vocabulary_size: int, end_of_text: str) -> bytes:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[end_of_text],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with one_thread:
        tokenizer.train_from_iterator(texts, trainer)
    content: str = tokenizer.to_str(pretty=True)
    return content.encode()
