"""The engines behind an encoder: kernels of ours for patterns that they know, and two libraries for all others."""

import itertools
import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import TokenizerError, unreadable
from longcrawl.kernels.texts import read_only, text_buffers
from longcrawl.tokens._patterns import PATTERNS
from longcrawl.tokens.byte_level import ByteLevelBPE

if TYPE_CHECKING:
    from longcrawl.tokens._prepared import ByRanks
    from longcrawl.tokens._word_kernels import Tables

MOST_IDS = 1 << 24
"""Ids are below it: arrays with an entry for each are made. The largest vocabularies have 2**18."""
MOST_RANKS = (1 << 21) - 1
"""Ranks are below it: three fit in 64 bits."""
LONGEST_PIECE = 1 << 30
"""In bytes; places in a piece, and three for each of its bytes, are 32 bits."""
NOT_THIS_TOKENIZER = "pass another tokenizer.json, or save it again"
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
_NO_OPERATOR = re.compile(r"\\[pPx]\{[^}]*\}|\\[^Z]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""Classes of characters, and characters that stand for themselves."""
_READ_IN_TWO_WAYS = re.compile(r"\{\d*,?\d*\}[+{]|\{\d+\}\?|[\^$]|\\Z|\(\?#|\(\?[i-]*[a-hj-z][a-z-]*[:)]")
_BETWEEN = "\U0010fffe"
"""Stands between pieces; nothing else that is compared has this character."""
_DENSE = (
    range(0x3400),
    range(0xA000, 0xAC00),
    range(0xF900, 0x17000),
    range(0x18D00, 0x20000),
    range(0xE0000, 0xE0200),
)
"""Blocks of many scripts, of symbols and of marks: every code point is compared."""
_SPARSE = (range(0x3400, 0xA000), range(0xAC00, 0xD800), range(0xE000, 0xF900), range(0x17000, 0x18D00))
"""Blocks of one script, and private use: one of ``_STEP``, as of all planes beyond the second."""
_STEP = 61
_LINES = 1 << 10
"""Code points of one text: for pieces of longer ones `tokenizers` takes more time than in proportion."""

Texts: TypeAlias = "pa.Array | pa.ChunkedArray"
_BATCH = 1 << 20
"""Characters that `tokenizers` gets at once: it keeps more than a hundred bytes for each token."""
_GROUP_BYTES = 4 << 20
"""Bytes of texts whose ranks are held at once, in memory that serves for all: new memory is slow to come by."""
_NO_IDS = np.zeros(0, np.uint32)
_ROOM = 1 << 19
"""Words that are remembered at least before all but the vocabulary are forgotten: 40 MB for 50,000 tokens."""


class BytePairs:
    """Encodes by kernels with ranks and a pattern of ``PATTERNS``; its ids are those of tiktoken."""

    name: Literal["tiktoken"] = "tiktoken"

    def __init__(self, bpe: ByteLevelBPE, room: int = _ROOM) -> None:
        self._bpe = bpe
        self._room = room
        greatest = len(bpe.ranks) - 1 if bpe.ids is None else bpe.ids.max()
        self._dtype = np.dtype(np.uint16 if greatest < 1 << 16 else np.uint32)
        self._ids = None if bpe.ids is None else bpe.ids.astype(self._dtype)
        self._lock = threading.Lock()

    @cached_property
    def _tables(self) -> "Tables":
        from longcrawl.tokens._word_kernels import make_tables

        tokens = sorted(self._bpe.ranks, key=self._bpe.ranks.__getitem__)
        return make_tables(PATTERNS[self._bpe.pattern], tokens, self._room)

    def encode_texts(self, texts: Texts) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return the ids of all texts, in uint16 where they fit, and their offsets."""
        from longcrawl.tokens._word_table import PAST_END

        data, bounds = text_buffers(one_array(texts))
        # What kernels read past the end of the last texts may be of nobody: these texts are copied.
        safe = int(np.searchsorted(bounds[1:], len(data) - PAST_END, "right"))
        last = np.zeros(bounds[-1] - bounds[safe] + PAST_END, np.uint8)
        last[:-PAST_END] = data[bounds[safe] : bounds[-1]]
        groups = [(data, group) for group in _groups(bounds[: safe + 1])]
        groups += [(last, group) for group in _groups(bounds[safe:] - bounds[safe])]
        sizes = [int(group[-1] - group[0]) for _, group in groups]
        room = max([min(sum(sizes), _GROUP_BYTES), *sizes])
        # A token is one byte or more, and three are written at once.
        ranks, written = np.empty(room + 3, np.uint32), 0
        ids, offsets = list[npt.NDArray[Any]](), [np.zeros(1, np.int64)]
        for (text, group), size in zip(groups, sizes, strict=True):
            if written + size > room:
                ids.append(self._ids_of(ranks[:written]))
                written = 0
            ends = self._encode(text, group, ranks[written:])
            written += ends[-1]
            offsets.append(offsets[-1][-1] + ends[1:])
        ids.append(self._ids_of(ranks[:written]))
        return np.concatenate(ids) if len(ids) > 1 else ids[0], np.concatenate(offsets)

    def _encode(
        self, text: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64], ranks: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.int64]:
        """Write the ranks of texts, and return where those of each begin and the last end."""
        from longcrawl.tokens._word_kernels import encode_texts

        offsets = np.zeros(len(bounds), np.int64)
        with self._lock:
            count = encode_texts(read_only(text), read_only(bounds), self._tables, LONGEST_PIECE, ranks, offsets)
        if count < 0:
            raise TokenizerError(f"a text has a word of more than {LONGEST_PIECE:,} bytes: split it first")
        return offsets

    def _ids_of(self, ranks: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
        return ranks.astype(self._dtype) if self._ids is None else self._ids[ranks]

    def encode(self, text: str) -> npt.NDArray[Any]:
        """Return the ids of one text."""
        return self.encode_texts(pa.array([text], pa.large_string()))[0]


class Tiktoken:
    """Encodes with ranks; a text that its regular expression gives up on, or drops some of, goes to ``otherwise``."""

    name: Literal["tiktoken"] = "tiktoken"

    def __init__(self, bpe: ByteLevelBPE, otherwise: "Callable[[], Tokenizers]") -> None:
        import tiktoken

        self._ids = None if bpe.ids is None else np.append(bpe.ids, np.uint32(0))
        self._otherwise = otherwise
        self._lengths = np.zeros(len(bpe.ranks), np.int64)
        self._lengths[[*bpe.ranks.values()]] = [len(token) for token in bpe.ranks]
        with unreadable("its pattern", TokenizerError, NOT_THIS_TOKENIZER):
            self._encoding = tiktoken.Encoding(
                "longcrawl",
                pat_str=bpe.pattern,
                mergeable_ranks=dict(bpe.ranks),
                special_tokens={},
            )

    def encode(self, text: str) -> npt.NDArray[np.uint32]:
        """Return the ids of one text."""
        try:
            with unreadable("a text", TokenizerError, NOT_THIS_TOKENIZER):
                ranks: npt.NDArray[np.uint32] = self._encoding.encode_to_numpy(text, disallowed_special=())
        except TokenizerError:  # its pattern took too many steps, or matched nothing, for which it panics
            return self._otherwise().encode(text)
        if self._lengths[ranks].sum() != len(text.encode()):  # a pattern that does not match all characters
            return self._otherwise().encode(text)
        return ranks if self._ids is None else self._ids[ranks]

    def encode_texts(self, texts: Texts) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of all texts and their offsets."""
        return _end_to_end([self.encode(text) if text else _NO_IDS for text in texts.to_pylist()])


class Tokenizers:
    """Encodes with the `tokenizers` library, in batches and on the calling thread."""

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
        return self._encode_batch([text])[0]

    def encode_texts(self, texts: Texts) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of all texts and their offsets; an empty text has none, whatever a normalizer adds."""
        found = [_NO_IDS] * len(texts)
        for batch in _batches(texts):
            for (number, _), ids in zip(batch, self._encode_batch([text for _, text in batch]), strict=True):
                found[number] = ids
        return _end_to_end(found)

    def _encode_batch(self, texts: list[str]) -> list[npt.NDArray[np.uint32]]:
        with one_thread(), unreadable("a text", TokenizerError, NOT_THIS_TOKENIZER):
            batch = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(each.ids, np.uint32) for each in batch]

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


def _batches(texts: Texts) -> Iterator[list[tuple[int, str]]]:
    """Return texts that are not empty, with their numbers, in lists of about ``_BATCH`` characters."""
    batch: list[tuple[int, str]] = []
    characters = 0
    for number, text in enumerate(texts.to_pylist()):
        if text:
            batch.append((number, text))
            characters += len(text)
        if characters >= _BATCH:
            yield batch
            batch, characters = [], 0
    yield batch


def _end_to_end(parts: list[npt.NDArray[np.uint32]]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate([_NO_IDS, *parts]), offsets


def _groups(bounds: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Cut bounds of texts into those of groups of ``_GROUP_BYTES``, or of one longer text."""
    start = 0
    while start < len(bounds) - 1:
        stop = max(start + 1, int(np.searchsorted(bounds, bounds[start] + _GROUP_BYTES, "right")) - 1)
        yield bounds[start : stop + 1]
        start = stop


def one_array(texts: Texts) -> pa.Array:
    """Return texts as one array of large strings that are valid UTF-8."""
    array = pc.cast(texts, pa.large_string())
    array = (
        pa.concat_arrays(array.chunks or [pa.array([], array.type)]) if isinstance(array, pa.ChunkedArray) else array
    )
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        array.to_pylist()  # raises what says why
        raise
    return array


class _Variable:
    """An environment variable that the first of several threads sets and the last one puts back."""

    def __init__(self, name: str, value: str) -> None:
        self._name, self._value = name, value
        self._before: str | None = None
        self.forget()

    def forget(self) -> None:
        """Begin without any thread inside: a forked process has none of the others, and not their lock."""
        self._lock, self._inside = threading.Lock(), 0

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = os.environ.get(self._name)
                os.environ[self._name] = self._value
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside = max(0, self._inside - 1)
            if self._inside:
                return
            os.environ.pop(self._name, None)
            if self._before is not None:
                os.environ[self._name] = self._before

    def leave_all(self) -> None:
        """Put the value back in a forked process, where no other thread will."""
        inside = self._inside
        self.forget()
        if inside:
            self.leave()


_PARALLELISM = _Variable("TOKENIZERS_PARALLELISM", "false")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PARALLELISM.leave_all)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep `tokenizers` from starting threads: a process forked after it did may wait for them for ever."""
    _PARALLELISM.enter()
    try:
        yield
    finally:
        _PARALLELISM.leave()


def require_equal(bpe: ByteLevelBPE, fast: "ByRanks", exact: Tokenizers) -> None:
    """Compare the engines on the probe and on every token of the vocabulary that is text.

    Of a pattern that is left to tiktoken, also where it cuts code points of all kinds.

    Raises:
        TokenizerError: they differ, or the pattern has what they read in different ways.
    """
    _require_one_reading(bpe.pattern)
    if bpe.pattern not in PATTERNS:
        with unreadable("its pattern", TokenizerError, NOT_THIS_TOKENIZER):
            require_equal_cuts(bpe.pattern, _PROBE)
    tokens = (token.decode(errors="ignore") for token in bpe.ranks)
    for text in (_PROBE, "\n".join(tokens)):
        if not np.array_equal(fast.encode(text), exact.encode(text)):
            raise TokenizerError("its pattern splits text in another way in tokenizers than in tiktoken")


def _require_one_reading(pattern: str) -> None:
    r"""Raise TokenizerError where a pattern has what means one thing in Oniguruma and another in Rust.

    ``x{1,3}+`` is possessive in Rust and repeats in Oniguruma; ``^`` and ``$`` are at every line there. No probe has
    all texts that show it. Comments and ``(?x)`` can hide such an operator. Behind ``\s++``, which leaves no line end,
    ``$`` is the end of the text in both.
    """
    spelled = _NO_OPERATOR.sub("x", pattern.replace(r"\s++$", r"\s++"))
    if found := _READ_IN_TWO_WAYS.search(spelled):
        raise TokenizerError(f"its pattern has {found[0]!r}, which tokenizers reads in another way than tiktoken")


@cache
def _probes() -> list[str]:
    """Return code points of all kinds beside a letter, a digit, an apostrophe, spaces, themselves and ends of lines."""
    beyond = range(0x20000, 0x110000)
    points = itertools.chain(*_DENSE, *(block[::_STEP] for block in (*_SPARSE, beyond)), (0xFFFF, 0x10FFFF))
    lines = [f"a{each}1{each} {each}{each}'{each}\n" for each in map(chr, points) if each != _BETWEEN]
    return ["".join(lines[start : start + _LINES]) for start in range(0, len(lines), _LINES)]


@cache
def _pairs() -> dict[bytes, int]:
    """Return ranks of the bytes and of pairs of the last byte of a character and the first of another.

    A place that one engine cuts and the other does not is then seen in the ids. Where a pair could be two, chance says
    which is first.
    """
    ascii_bytes = range(0x80)
    pairs = [*itertools.product((*ascii_bytes, *range(0x80, 0xC0)), (*ascii_bytes, *range(0xC2, 0xF5)))]
    random.Random(0).shuffle(pairs)  # noqa: S311  # any order will do, but always the same
    return {bytes(token): rank for rank, token in enumerate([*((byte,) for byte in range(256)), *pairs])}


def require_equal_cuts(pattern: str, *texts: str) -> None:
    r"""Compare where tiktoken and `tokenizers` cut code points of all kinds, and other texts, whatever the vocabulary.

    tiktoken's regular expressions are Rust's, those of `tokenizers` Oniguruma's. ``\w``, ``$`` and letters without case
    differ between them, and tiktoken drops characters that a pattern does not match, which `tokenizers` keeps.

    Raises:
        TokenizerError: they differ, or tiktoken cannot use the pattern.
    """
    import tiktoken
    from tokenizers import Regex, pre_tokenizers

    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    ours, whole = (
        tiktoken.Encoding("cuts", pat_str=each, mergeable_ranks=_pairs(), special_tokens={})
        for each in (pattern, f"[^{_BETWEEN}]+")
    )
    for text in (*texts, *_probes()):
        pieces = _BETWEEN.join(piece for piece, _ in split.pre_tokenize_str(text))
        if ours.encode_ordinary(text) != whole.encode_ordinary(pieces):
            raise TokenizerError("its pattern splits text in another way in tokenizers than in tiktoken")
