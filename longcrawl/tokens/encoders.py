"""One tokenizer, two engines, the same ids.

`tiktoken` is the faster engine and needs ranks; `tokenizers` reads every `tokenizer.json`. An :class:`Encoder` takes
the first where the tokenizer is a byte-level BPE that ranks describe exactly, and the second elsewhere. The splits of
GPT-2, cl100k, o200k, Llama 3 and Qwen2 are done by kernels of ours, with the ids of tiktoken at many times its speed,
also behind NFC and added tokens that are not special, as Qwen's and GPT-NeoX's files have them.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl import kernels
from longcrawl.errors import TokenizerError, reason_of, warn_user
from longcrawl.kernels.kept_arrays import Arrays, kept_arrays
from longcrawl.storage.files import whole_file
from longcrawl.storage.structured import load_json
from longcrawl.tokens import _patterns, _prepared
from longcrawl.tokens._engines import Tokenizers, require_equal
from longcrawl.tokens._patterns import GPT2_PATTERN
from longcrawl.tokens._prepared import ByRanks, by_ranks
from longcrawl.tokens.byte_level import END_OF_TEXT, ByteLevelBPE, byte_level_bpe, rank_file, tokenizer_document
from longcrawl.tokens.tokenizer_files import configured_end, tokenizer_file, tokenizer_name

Engine = Literal["auto", "tiktoken", "tokenizers"]

_WORTH_KEEPING = 1 << 18
"""Bytes of the smallest tokenizer that is kept in the cache folder: smaller ones are read as fast as they are kept."""
_END_OF_TEXT_NAMES = (END_OF_TEXT, "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>", "<|im_end|>", "[EOS]", "[SEP]")
_NO_PIECES = frozenset(("'l", "'r", "'v", *_END_OF_TEXT_NAMES))
"""The only parts of GPT-2's pieces that are no pieces, and special tokens, which no text is encoded to."""


class EncodedTexts(NamedTuple):
    """Token ids of several texts end to end: text i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: npt.NDArray[Any]
    """uint16 where the vocabulary allows, else uint32; the ids of all texts."""
    offsets: npt.NDArray[np.int64]
    """One more than there are texts, in tokens, from 0."""


def load_encoder(tokenizer: Any, end_of_text: str | None = None, engine: Engine = "auto") -> "Encoder":
    """Load a tokenizer by name or file; the same file is loaded once per process.

    ``tokenizer`` is one of

    * a `tokenizer.json`, or a folder that holds one, as ``save_pretrained`` writes it. `transformers` converts what is
      in a folder without one, such as `vocab.json` or, with `sentencepiece` installed, `tokenizer.model`;
    * a `*.tiktoken` file of ranks. Such a file does not say how it splits text: the published files of cl100k and
      o200k are known by their digest, all others have GPT-2's pattern, and their end of text is the number of ranks;
    * the id of a repository on the Hub, such as ``"gpt2"``;
    * a ``PreTrainedTokenizerFast`` of `transformers` or a ``Tokenizer`` of `tokenizers`, see
      :func:`longcrawl.tokens.tokenizer_files.tokenizer_name`.

    ``end_of_text`` names the token that ends a document; None takes the tokenizer's ``eos_token``, which the object or
    the `tokenizer_config.json` beside its file names, or else the first usual one that it has, such as
    ``<|endoftext|>`` or ``</s>``.

    >>> load_encoder("gpt2").encode(["Hello world"]).ids  # doctest: +SKIP
    array([15496,   995], dtype=uint16)

    Raises:
        TokenizerError: nothing is there, it is not a tokenizer, it has no token ``end_of_text``, or ``engine`` is
            "tiktoken" and ranks cannot say what the tokenizer does. Or GPT-2's pattern cuts a token of a file of ranks.
    """
    if engine not in get_args(Engine):
        raise TokenizerError(f"engine={engine!r} is none of {', '.join(map(repr, get_args(Engine)))}")
    path = tokenizer_file(tokenizer_name(tokenizer))
    status = path.stat()
    return _load(path, (status.st_mtime_ns, status.st_size, configured_end(path)), end_of_text, engine)


@lru_cache(maxsize=8)
def _load(path: Path, _version: tuple[int, int, str | None], end_of_text: str | None, engine: Engine) -> "Encoder":
    try:
        return Encoder(path, end_of_text, engine)
    except TokenizerError as wrong:
        raise TokenizerError(f"{path}: {wrong}") from wrong


class _Ranked(NamedTuple):
    """A tokenizer by ranks, or why it is encoded by `tokenizers`."""

    bpe: ByteLevelBPE | None
    others: Mapping[str, int]
    """Ids of what has no rank, by spelling: special tokens above all."""
    reason: str
    """Empty where ranks give the same ids."""

    def to_arrays(self) -> Arrays:
        """Return arrays that :meth:`from_arrays` makes an equal one of."""
        made = {} if self.bpe is None else self.bpe.to_arrays()
        return made | {"others": _pack(json.dumps(self.others)), "reason": _pack(self.reason)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "_Ranked":
        bpe = ByteLevelBPE.from_arrays(arrays) if "tokens" in arrays else None
        return cls(bpe, json.loads(_unpack(arrays["others"])), _unpack(arrays["reason"]))

    def id_of(self, spelled: str) -> int | None:
        """Return the id of a token by its spelling in a `tokenizer.json`."""
        token = self.others.get(spelled)
        return self.bpe.id_of(spelled) if token is None and self.bpe is not None else token

    def has_rank(self, token: int) -> bool:
        """Return whether an id is of bytes that texts are cut into, or of an added token that they may hold."""
        if self.bpe is None:
            return False
        if any(self.others.get(name) == token for name in self.bpe.added):
            return True
        return token < len(self.bpe.ranks) if self.bpe.ids is None else token in self.bpe.ids

    def ids(self) -> frozenset[int]:
        """Return all ids."""
        if self.bpe is None:
            return frozenset(self.others.values())
        ids = range(len(self.bpe.ranks)) if self.bpe.ids is None else self.bpe.ids.tolist()
        return frozenset((*ids, *self.others.values()))


class Encoder:
    """Texts to token ids and back, made by :func:`load_encoder`.

    No special token is added, nothing is cut or padded, and merges are not dropped by chance (``dropout``). A special
    token spelled out in a text is text like any other: ``<|endoftext|>`` on a web page does not end a document. But a
    Unigram model of `tokenizers`, such as T5's, finds its special tokens in a text, too: ``</s>`` in a text is then the
    id of the end of text.
    """

    def __init__(self, path: Path, end_of_text: str | None = None, engine: Engine = "auto") -> None:
        self._path = path
        self._end_of_text_name = end_of_text
        self._asked_engine = engine
        self._content = path.read_bytes()
        self._ranks = rank_file(self._content, str(path)) if path.suffix == ".tiktoken" else None
        self._engine = self._choose(engine)
        self.engine: Literal["tiktoken", "tokenizers"] = self._engine.name
        self.vocabulary_size = 1 + max(self._known_ids)
        """One more than the greatest id, special tokens included."""
        self.dtype = np.dtype(np.uint16 if self.vocabulary_size <= 1 << 16 else np.uint32)
        if end_of_text is not None:
            _ = self.end_of_text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as what to load: the engines cannot be pickled."""
        return load_encoder, (str(self._path), self._end_of_text_name, self._asked_engine)

    def encode(self, texts: "Sequence[str | None] | pa.Array | pa.ChunkedArray") -> EncodedTexts:
        """Return the ids of all texts; null has none.

        Raises:
            TokenizerError: they are not texts, one has a lone surrogate, or is not valid UTF-8 in its Arrow array.
        """
        array = _as_arrow(texts)
        try:
            ids, offsets = self._engine.encode_texts(array)
        except UnicodeDecodeError as wrong:
            raise TokenizerError(
                f"a text is not valid UTF-8 ({wrong.reason}): decode it with errors='replace' before it becomes Arrow"
            ) from wrong
        return EncodedTexts(ids.astype(self.dtype, copy=False), offsets)

    def decode(self, ids: "Sequence[int] | npt.NDArray[Any]") -> str:
        """Return the text of ids, special tokens spelled out; bytes that are no UTF-8 become U+FFFD.

        Raises:
            TokenizerError: an id that the tokenizer does not have.
        """
        known = self._known_ids
        if unknown := [int(token) for token in ids if int(token) not in known]:
            raise TokenizerError(f"{self._path}: has no token {unknown[0]}; its ids end at {self.vocabulary_size - 1}")
        return self._tokenizers.decode([int(token) for token in ids])

    @cached_property
    def end_of_text(self) -> int:
        """The id of the token that ends a document.

        Raises:
            TokenizerError: the tokenizer has no token of that name, or None was asked and it has no usual one.
        """
        asked = self._end_of_text_name
        if asked is not None:
            token = self._end_of(asked)
            return self._reject_end() if token is None else token
        own = configured_end(self._path)
        token = None if own is None else self._end_of(own)
        usual = next((name for name in _END_OF_TEXT_NAMES if self._end_of(name) is not None), None)
        if own is not None and usual not in (own, None):
            ends = f"documents end with {own!r}, its eos_token, not with {usual!r}"
            if token is None:
                ends = f"documents end with {usual!r}, as its eos_token, {own!r}, is not a token that only ends texts"
            warn_user(f"{self._path}: {ends}; set end_of_text if they should end with another one")
        if token is None and usual is not None:
            token = self._end_of(usual)
        return self._reject_end() if token is None else token

    def _end_of(self, name: str) -> int | None:
        """Return the id of a token that can end documents; None if there is none, or texts can have it."""
        token = self._id_of(name)
        if token is None or (self._is_of_text(token) and self._engine.encode(name).tolist() == [token]):
            return None
        return token

    def _reject_end(self) -> NoReturn:
        asked = self._end_of_text_name
        special = [added["content"] for added in self._document.get("added_tokens") or []]
        if asked in special:
            raise TokenizerError(
                f"texts can have the id of {asked!r}, so it cannot end them: set end_of_text to another token"
            )
        raise TokenizerError(
            f"it has no special token {'that usually ends a text' if asked is None else repr(asked)}: set end_of_text "
            f"to one of {', '.join(map(repr, special[:20])) or 'its special tokens, but it has none'}"
        )

    @cached_property
    def token_bytes(self) -> npt.NDArray[np.int64]:
        """How many bytes of UTF-8 each id stands for, 0 for those that no text is encoded to.

        Raises:
            TokenizerError: it is not a byte-level BPE, whose tokens are the bytes of a text cut into pieces.
        """
        bpe = self._ranked.bpe
        if bpe is None or bpe.changes:
            raise TokenizerError(self._ranked.reason if bpe is None else bpe.changes)
        ranks = np.fromiter(bpe.ranks.values(), np.int64, len(bpe.ranks))
        found = np.zeros(self.vocabulary_size, np.int64)
        found[ranks if bpe.ids is None else bpe.ids[ranks]] = [len(token) for token in bpe.ranks]
        return found

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what decides the ids, the same for ranks and for the `tokenizer.json` that says the same."""
        return _unpack(self._kept("fingerprint", lambda: {"text": _pack(_fingerprint(self._document))})["text"])

    def save(self, directory: str | os.PathLike[str]) -> str:
        """Write ``tokenizer.json`` into ``directory`` and return that name; any reader of it gives the same ids.

        Raises:
            TokenizerError: ranks of which one cannot be made by merges.
        """
        as_read = self._ranks is None and not self._sets_dropout
        content = self._content if as_read else json.dumps(self._document, ensure_ascii=False).encode()
        with whole_file(Path(directory) / "tokenizer.json") as beside:
            beside.write_bytes(content)
        return "tokenizer.json"

    def _choose(self, engine: Engine) -> "ByRanks | Tokenizers":
        if engine == "tokenizers" and self._ranks is None:
            return self._tokenizers
        ranked, fast = self._ranked, None
        if ranked.bpe is not None and not ranked.reason:
            fast = by_ranks(ranked.bpe, lambda: self._tokenizers)
            if self._ranks is not None and self._ranks.pattern == GPT2_PATTERN:
                self._require_whole_tokens(self._ranks.ranks, fast)
        if fast is not None and engine != "tokenizers":
            return fast
        if engine != "tiktoken":
            return self._tokenizers
        raise TokenizerError(f"tiktoken cannot do what it does, use engine='auto': {ranked.reason}")

    @cached_property
    def _ranked(self) -> _Ranked:
        if self._ranks is not None:
            return _Ranked(ByteLevelBPE(self._ranks.pattern, self._ranks.ranks, None), self._ranks.special, "")
        return _Ranked.from_arrays(self._kept("ranks", lambda: self._compare().to_arrays()))

    def _require_whole_tokens(self, tokens: Iterable[bytes], by_gpt2: ByRanks) -> None:
        """Raise TokenizerError where GPT-2's pattern cuts tokens of a file of ranks, which then has another one."""
        kept = self._kept("cut", lambda: _find_cut(tokens, by_gpt2))
        if count := int(kept["count"][0]):
            raise TokenizerError(
                f"its ranks are not of GPT-2's pattern, which cuts {count:,} of its tokens, {_unpack(kept['first'])!r} "
                "among them: pass its tokenizer.json"
            )

    def _compare(self) -> _Ranked:
        """Return the ranks of a `tokenizer.json`, compared with `tokenizers`."""
        exact = self._tokenizers  # which checks the structure of the document
        ids, bpe = exact.ids_by_name(), None
        try:
            bpe = byte_level_bpe(self._document)
            require_equal(bpe, by_ranks(bpe, lambda: exact), exact)
        except TokenizerError as reason:
            return _Ranked(bpe, {}, str(reason))
        return _Ranked(bpe, {name: token for name, token in ids.items() if bpe.id_of(name) != token}, "")

    def _kept(self, name: str, build: Callable[[], Arrays]) -> Arrays:
        """Return arrays made of the file's content, kept for later processes where that is large."""
        if len(self._content) < _WORTH_KEEPING:
            return build()
        return kept_arrays(f"tokenizer-{hashlib.sha256(self._content).hexdigest()}-{name}", _stamp(), build)

    @cached_property
    def _document(self) -> dict[str, Any]:
        """The content of the `tokenizer.json`, made from the ranks where there is none."""
        if self._ranks is not None:
            return tokenizer_document(*self._ranks)
        try:
            document: dict[str, Any] = load_json(self._content)
            model = dict(document["model"])
            return {**document, "model": {**model, "dropout": None} if model.get("dropout") else model}
        except (OSError, ValueError, TypeError, KeyError) as wrong:
            raise TokenizerError("is not a tokenizer.json; convert the tokenizer with transformers first") from wrong

    @cached_property
    def _sets_dropout(self) -> bool:
        """Whether the `tokenizer.json` drops merges by chance, which is not done; to read a large one takes 0.1 s."""
        kept = self._kept(
            "dropout", lambda: {"is_set": np.array([bool(load_json(self._content)["model"].get("dropout"))])}
        )
        return bool(kept["is_set"][0])

    @cached_property
    def _tokenizers(self) -> "Tokenizers":
        return Tokenizers(self._document)

    def _is_of_text(self, token: int) -> bool:
        """Whether a text may have this id; to encode one takes kernels and tables, 0.3 s of a process without them."""
        return self.engine == "tokenizers" or self._ranked.has_rank(token)

    def _id_of(self, name: str) -> int | None:
        """Return the id of a token by its spelling in a `tokenizer.json`."""
        if self.engine == "tokenizers":
            return self._ids_by_name.get(name)
        return self._ranked.id_of(name)

    @cached_property
    def _ids_by_name(self) -> Mapping[str, int]:
        return self._tokenizers.ids_by_name()

    @cached_property
    def _known_ids(self) -> frozenset[int]:
        return frozenset(self._ids_by_name.values()) if self.engine == "tokenizers" else self._ranked.ids()


def _fingerprint(document: Mapping[str, Any]) -> str:
    content: dict[str, Any] = {name: document.get(name) for name in ("added_tokens", "normalizer", "pre_tokenizer")}
    content["model"] = dict(document["model"])
    if merges := content["model"].get("merges"):
        content["model"]["merges"] = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _find_cut(tokens: Iterable[bytes], by_gpt2: ByRanks) -> Arrays:
    """Return how many tokens that are text become several, and the first of them."""
    texts = [text for text in (token.decode(errors="replace") for token in tokens) if "\ufffd" not in text]
    _, offsets = by_gpt2.encode_texts(pa.array(texts, pa.large_string()))
    several = (text for text, length in zip(texts, np.diff(offsets), strict=True) if length > 1)
    cut = [text for text in several if text not in _NO_PIECES]
    return {"count": np.array([len(cut)]), "first": _pack(cut[0] if cut else "")}


@cache
def _stamp() -> str:
    """Return what kept arrays depend on besides the file: the sources here and the libraries compared with."""
    folders = Path(__file__).parent, Path(kernels.__file__).parent
    files = [*chain(*(sorted(folder.glob("*.py")) for folder in folders)), _patterns.SHIPPED, _prepared.SHIPPED]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return " ".join([digest, version("tokenizers"), version("tiktoken")])


def _pack(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def _unpack(packed: npt.NDArray[Any]) -> str:
    return packed.tobytes().decode()


def _of_text(texts: "pa.Array | pa.ChunkedArray") -> "pa.Array | pa.ChunkedArray":
    kind = texts.type
    while pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind.storage_type
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):  # which a cast would spell out
        raise TokenizerError(f"not an array of texts, but of {texts.type}: pass the column of texts")
    try:
        return pc.cast(texts, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise TokenizerError(
            f"not an array of texts, but of {texts.type} ({reason_of(wrong)}): decode it first"
        ) from wrong


def _as_arrow(texts: "Sequence[str | None] | pa.Array | pa.ChunkedArray") -> "pa.Array | pa.ChunkedArray":
    if isinstance(texts, pa.Array | pa.ChunkedArray):
        return _of_text(texts)
    if isinstance(texts, str | bytes):
        raise TokenizerError("encode takes a list of texts: write encoder.encode([text])")
    try:
        return pa.array(texts, pa.large_string())
    except (TypeError, pa.ArrowInvalid, pa.ArrowTypeError) as wrong:
        raise TokenizerError("encode takes a list of texts, each a str or None: decode bytes first") from wrong
    except UnicodeEncodeError as wrong:
        raise TokenizerError(
            f"a text has a lone surrogate ({wrong.object[wrong.start]!r}): clean it with "
            "text.encode('utf-8', 'replace').decode()"
        ) from wrong
