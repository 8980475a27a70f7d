"""What `tokenizers` does to a text before a byte-level BPE: normalisation to NFC, and tokens that it looks for first.

Nearly all texts of the web are NFC, and hardly one holds ``<tool_call>``: kernels find those that are and do not.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.kernels.kept_arrays import shipped_arrays
from longcrawl.kernels.texts import read_only, text_buffers
from longcrawl.tokens._engines import MOST_RANKS, BytePairs, Texts, Tiktoken, Tokenizers, one_array
from longcrawl.tokens._patterns import PATTERNS
from longcrawl.tokens.byte_level import ByteLevelBPE, has_long_tokens

SHIPPED = Path(__file__).with_name("combining.npz")


@cache
def combining_classes() -> npt.NDArray[np.uint8]:
    """Return the combining class of every code point, 255 where a text that has it may not be NFC.

    Uncertain is what NFC replaces, what it may join to a character before, and what Unicode 14 does not assign. All
    else is the same in each version of Unicode: one that does not know a character leaves it, and what is before and
    behind it, as it is. A test asks Python, and writes them.
    """
    return shipped_arrays(SHIPPED, "unicode-14")["classes"]


def may_change(texts: "pa.LargeStringArray") -> npt.NDArray[np.bool_]:
    """Return of each text whether NFC may be another one; of texts that are valid UTF-8."""
    from longcrawl.kernels.utf8 import find_unordered

    data, bounds = text_buffers(texts)
    found = np.zeros(len(texts), np.bool_)
    find_unordered(read_only(data), read_only(bounds), read_only(combining_classes()), found)
    return found


Encoded: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
"""Ids of texts, and where those of each begin and the last end."""


class Prepared:
    """Encodes NFC by ranks, and what lies between added tokens where a text has some."""

    name: Literal["tiktoken"] = "tiktoken"

    def __init__(self, by_ranks: BytePairs | Tiktoken, bpe: ByteLevelBPE, exact: Callable[[], Tokenizers]) -> None:
        self.by_ranks = by_ranks
        self._bpe = bpe
        self._exact = exact

    def encode(self, text: str) -> npt.NDArray[Any]:
        """Return the ids of one text."""
        return self.encode_texts(pa.array([text], pa.large_string()))[0]

    def encode_texts(self, texts: Texts) -> Encoded:
        """Return the ids of all texts and their offsets."""
        given = one_array(texts)
        normal, changed = self._normalized(given)
        has_added = _has(given, self._added) | (_has(normal, self._added) if changed.any() else False)
        if not has_added.any():
            return self.by_ranks.encode_texts(normal)
        apart = has_added & (changed | self._cannot_cut(given))
        cut = has_added & ~apart
        return _in_order(
            (~has_added, self.by_ranks.encode_texts(_chosen(normal, ~has_added))),
            (cut, self._encode_cut(_chosen(given, cut).to_pylist())),
            (apart, self._exact().encode_texts(_chosen(given, apart))),
        )

    def _normalized(self, texts: "pa.LargeStringArray") -> tuple["pa.LargeStringArray", npt.NDArray[np.bool_]]:
        """Return texts as NFC, and which of them may have been others."""
        changes = may_change(texts) if self._bpe.normalizer else np.zeros(len(texts), np.bool_)
        if not changes.any():
            return texts, changes
        made = [self._normalize(text) for text in _chosen(texts, changes).to_pylist()]
        return pc.replace_with_mask(texts, pa.array(changes), pa.array(made, pa.large_string())), changes

    def _normalize(self, text: str) -> str:
        normal: str = self._nfc.normalize_str(text) if self._bpe.normalizer else text
        return normal

    @cached_property
    def _nfc(self) -> Any:
        from tokenizers import normalizers

        return normalizers.NFC()

    @cached_property
    def _added(self) -> str:
        return self._any_of(self._bpe.added)

    def _any_of(self, tokens: Iterable[str]) -> str:
        """Return a regular expression of tokens, as they are and as NFC."""
        spelled = sorted({each for token in tokens for each in (token, self._normalize(token))})
        return "|".join("".join(f"\\x{{{ord(character):x}}}" for character in each) for each in spelled)

    def _cannot_cut(self, texts: "pa.LargeStringArray") -> npt.NDArray[np.bool_]:
        """Return of each text whether `tokenizers` does more than to cut it at each added token.

        It also finds special tokens, which it takes for text here, but finds nothing else at the same place.
        """
        if any(token.lstrip or token.rstrip or token.single_word for token in self._plain.values()):
            return np.ones(len(texts), np.bool_)
        return _has(texts, self._any_of(token.content for token in self._tokens.values() if token.special))

    @cached_property
    def _tokens(self) -> Mapping[int, Any]:
        tokens: Mapping[int, Any] = self._exact().tokenizer.get_added_tokens_decoder()
        return tokens

    @property
    def _plain(self) -> Mapping[int, Any]:
        return {number: token for number, token in self._tokens.items() if token.content and not token.special}

    @cached_property
    def _cuts(self) -> list[tuple[re.Pattern[str], Mapping[str, int]]]:
        """What texts are cut at: tokens that are looked for before a text is normalised come first."""
        before, behind = dict[str, int](), dict[str, int]()
        for number, token in self._plain.items():
            if token.normalized:
                behind[self._normalize(token.content)] = number
            else:
                before[token.content] = number
        longest_first = [(sorted(ids, key=len, reverse=True), ids) for ids in (before, behind) if ids]
        return [(re.compile(f"({'|'.join(map(re.escape, names))})"), ids) for names, ids in longest_first]

    def _cut(self, text: str) -> list[str | int]:
        """Return the pieces of a text, and the ids of added tokens between them."""
        parts: list[str | int] = [text]
        for pattern, ids in self._cuts:
            parts = [
                made for part in parts for made in (_split(part, pattern, ids) if isinstance(part, str) else [part])
            ]
        return parts

    def _encode_cut(self, texts: list[str]) -> Encoded:
        cut = [self._cut(text) for text in texts]
        pieces = [part for parts in cut for part in parts if isinstance(part, str)]
        ids, offsets = self.by_ranks.encode_texts(pa.array(pieces, pa.large_string()))
        spans = itertools.pairwise(offsets.tolist())
        found = [
            [ids[slice(*next(spans))] if isinstance(part, str) else np.array([part], np.uint32) for part in parts]
            for parts in cut
        ]
        stops = np.cumsum([sum(map(len, parts)) for parts in found], dtype=np.int64)
        return np.concatenate([ids[:0], *itertools.chain(*found)]), np.concatenate((offsets[:1], stops))


def _split(text: str, pattern: re.Pattern[str], ids: Mapping[str, int]) -> Iterator[str | int]:
    for number, part in enumerate(pattern.split(text)):
        if part:
            yield ids[part] if number % 2 else part


def _has(texts: "pa.LargeStringArray", any_of: str) -> npt.NDArray[np.bool_]:
    """Return of each text whether it has what a regular expression names; nothing has what an empty one names."""
    if not any_of:
        return np.zeros(len(texts), np.bool_)
    found = pc.match_substring_regex(texts, any_of).fill_null(False)
    return np.array(found.to_numpy(zero_copy_only=False))


def _chosen(texts: "pa.LargeStringArray", which: npt.NDArray[np.bool_]) -> "pa.LargeStringArray":
    return texts.filter(pa.array(which))


def _in_order(*groups: tuple[npt.NDArray[np.bool_], Encoded]) -> Encoded:
    """Put the ids of groups of texts in the order of the texts, each of which is in one group."""
    lengths = np.zeros(len(groups[0][0]), np.int64)
    for which, (_, offsets) in groups:
        lengths[which] = np.diff(offsets)
    ids = np.empty(lengths.sum(), np.result_type(*(each for _, (each, _) in groups)))
    for which, (each, _) in groups:
        ids[np.repeat(which, lengths)] = each
    return ids, np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


ByRanks: TypeAlias = BytePairs | Tiktoken | Prepared


def by_ranks(bpe: ByteLevelBPE, otherwise: Callable[[], Tokenizers]) -> ByRanks:
    """Return the engine for a byte-level BPE: ours where its pattern is known and its tables can be made."""
    ours = bpe.pattern in PATTERNS and len(bpe.ranks) < MOST_RANKS and not has_long_tokens(bpe.ranks)
    engine = BytePairs(bpe) if ours else Tiktoken(bpe, otherwise)
    return Prepared(engine, bpe, otherwise) if bpe.changes else engine
