"""The two libraries behind an encoder, each a function from one text to its ids."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.errors import TokenizerError, unreadable
from longcrawl.tokens.byte_level import ByteLevelBPE

MOST_IDS = 1 << 24
"""Ids are below it: arrays with an entry for each are made. The largest vocabularies have 2**18."""
NOT_THIS_TOKENIZER = "pass another tokenizer.json, or save it again"
SEPARATOR = "<\n>"
"""Stands between words that are encoded together; a word has no ASCII whitespace after another ASCII character."""

_PROBE = (
    "Don't they'll WE'RE I'VE we'd 'tis it's''s  two   three\t\ttabs \n\n\n lines\r\n end  \n"
    " 0 12 123 1234567 3.14 1e-9 x86_64 2nd ½ ² Ⅻ ٣٤ १२ 〇 "  # noqa: RUF001  # look-alikes are the point
    "naïve café cafe\u0301 \u0301x a\u0300\u0301 \u017ft '\u017f '\u212a ß ẞ İ ǅ ﬁ soft\u00adhyphen joi\u200dner "
    "Ελλάδα Москва українська עברית العربية فارسی हिन्दी বাংলা தமிழ் ไทย ລາວ မြန်မာ ქართული አማርኛ 한국어 日本語 中文，标点。 "  # noqa: RUF001  # as above
    "😀 👩‍👩‍👧 🇩🇪 👍🏽 ♥\ufe0f \U0001f9ff \U000e0067 \ufffd \ue000 \0 \x1c \x7f \x85\xa0\u2003\u2028\u3000x\xa0 y\u200b"
    "<|endoftext|> <s></s> [SEP] {}[]();:== != -> /* */ #include <a.h> \\n \\u00e9 https://a.b/c?d=e&f#g @me #tag $5 €"
    "aaaaaaaaaaaaaaaaaaaaaaaa        !!!!!!!!!!!!!!!! ======== --- ... … “quoted” ‘it’s’ —dash– \t \f \v tail   "  # noqa: RUF001  # as above
)
"""What two engines must agree on before one stands in for the other: scripts, marks, digits, whitespace, code."""


class Tiktoken:
    """Encodes with ranks; a text that its regular expression gives up on goes to ``otherwise``."""

    name: Literal["tiktoken"] = "tiktoken"

    def __init__(self, bpe: ByteLevelBPE, otherwise: "Callable[[], Tokenizers]") -> None:
        import tiktoken

        self.pattern = bpe.pattern
        self._ids = None if bpe.ids is None else np.append(bpe.ids, np.uint32(0))
        self._otherwise = otherwise
        self._separator = len(bpe.ranks)
        with unreadable("its pattern", TokenizerError, NOT_THIS_TOKENIZER):
            self._encoding = tiktoken.Encoding(
                "longcrawl",
                pat_str=bpe.pattern,
                mergeable_ranks=dict(bpe.ranks),
                special_tokens={SEPARATOR: self._separator},
            )

    def encode(self, text: str) -> npt.NDArray[np.uint32]:
        """Return the ids of one text."""
        try:
            with unreadable("a text", TokenizerError, NOT_THIS_TOKENIZER):
                ranks: npt.NDArray[np.uint32] = self._encoding.encode_to_numpy(text, disallowed_special=())
        except TokenizerError:  # its pattern took too many steps, or matched nothing, for which it panics
            return self._otherwise().encode(text)
        return ranks if self._ids is None else self._ids[ranks]

    def encode_words(self, words: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of short words with ``SEPARATOR`` after each, and the places of the separators among them."""
        ranks = self._encoding.encode_to_numpy(words, allowed_special={SEPARATOR}, disallowed_special=())
        return ranks if self._ids is None else self._ids[ranks], np.flatnonzero(ranks == self._separator)


class Tokenizers:
    """Encodes with the `tokenizers` library, one text at a time and on the calling thread."""

    name: Literal["tokenizers"] = "tokenizers"

    def __init__(self, document: Mapping[str, Any]) -> None:
        from tokenizers import Tokenizer

        with unreadable("its content", TokenizerError, NOT_THIS_TOKENIZER):
            self.tokenizer = Tokenizer.from_str(json.dumps(document))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True

    def encode(self, text: str) -> npt.NDArray[np.uint32]:
        """Return the ids of one text."""
        with one_thread(), unreadable("a text", TokenizerError, NOT_THIS_TOKENIZER):
            (encoded,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoded.ids, np.uint32)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids that the tokenizer has."""
        with unreadable("tokens", TokenizerError, NOT_THIS_TOKENIZER):
            text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def ids_by_name(self) -> dict[str, int]:
        """Return the ids of all tokens, added ones too, by their spelling.

        Raises:
            TokenizerError: there are none, or one of ``MOST_IDS`` or more.
        """
        ids: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        greatest = max(ids.values(), default=-1)
        if not 0 <= greatest < MOST_IDS:
            have = f"has the id {greatest:,}, ids end at {MOST_IDS - 1:,}" if ids else "has no tokens"
            raise TokenizerError(f"its vocabulary {have}: pass another tokenizer.json")
        return ids


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep `tokenizers` from starting threads: a process forked after it did may wait for them for ever."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def require_equal(bpe: ByteLevelBPE, fast: Tiktoken, exact: Tokenizers) -> None:
    """Compare the engines on the probe and on every token of the vocabulary that is text.

    Raises:
        TokenizerError: they differ.
    """
    tokens = (token.decode(errors="ignore") for token in bpe.ranks)
    for text in (_PROBE, "\n".join(tokens)):
        if not np.array_equal(fast.encode(text), exact.encode(text)):
            raise TokenizerError("its pattern splits text in another way in tokenizers than in tiktoken")
