"""Byte-level BPE as ranks (`tiktoken`) and as merges (`tokenizers`), and the way between the two.

Both say the same thing. A list of merges names the pairs that are joined, best first; ranks name what they give.
Ranks follow from merges by counting. Merges follow from ranks because a token is the join of exactly the two parts
that byte pair encoding of its own bytes, with better ranks only, ends in. Where that holds for every token, joining
by rank and joining by merge give the same tokens for every text.
"""

import base64
import binascii
import hashlib
import itertools
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import TokenizerError
from longcrawl.tokens.bpe import find_halves
from longcrawl.tokens.splitting import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN

END_OF_TEXT = "<|endoftext|>"

_MOST_ADDED = 128
"""Texts are searched for each added token: with thousands, as files for speech have, `tokenizers` is faster."""
_MOST_SQUARES = 1 << 28
"""Limit of the sum of squared token lengths, to which the time of finding merges is proportional: 1.5 s here.

GPT-2's is 1 % of it. Runs of one character in the training text make tokens of many thousand bytes.
"""

_FILL_IN_THE_MIDDLE = {"<|fim_prefix|>": 100_258, "<|fim_middle|>": 100_259, "<|fim_suffix|>": 100_260}
_PUBLISHED: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (
        CL100K_PATTERN,
        {END_OF_TEXT: 100_257, **_FILL_IN_THE_MIDDLE, "<|endofprompt|>": 100_276},
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (
        O200K_PATTERN,
        {END_OF_TEXT: 199_999, "<|endofprompt|>": 200_018},
    ),
}
"""Patterns and special tokens of `cl100k_base.tiktoken` and `o200k_base.tiktoken`, by the SHA-256 of the file."""


@dataclass(frozen=True)
class ByteLevelBPE:
    """A byte-level BPE: pattern, ranks, the id of each rank, and what is done to a text before."""

    pattern: str
    ranks: Mapping[bytes, int]
    """Every token's bytes to its rank 0 … n - 1; lower ranks are joined first."""
    ids: npt.NDArray[np.uint32] | None
    """The id of each rank; None where the two are the same."""
    normalizer: Literal["", "NFC"] = ""
    added: tuple[str, ...] = ()
    """Tokens that a text is cut at before anything else."""

    @property
    def changes(self) -> str:
        """Return why the tokens of a text may not be its bytes, cut into pieces; empty where they are."""
        if self.normalizer:
            return f"it has a normalizer ({self.normalizer})"
        if self.added:
            return _matches_first(self.added)
        return ""

    def id_of(self, spelled: str) -> int | None:
        """Return the id of a token by its spelling in a `tokenizer.json`; None where there is none."""
        spell = _bytes_by_spelling()
        if not all(character in spell for character in spelled):
            return None
        rank = self.ranks.get(bytes(spell[character] for character in spelled))
        return rank if rank is None or self.ids is None else int(self.ids[rank])

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays that :meth:`from_arrays` makes an equal one of."""
        tokens = sorted(self.ranks, key=self.ranks.__getitem__)
        ids = np.arange(len(tokens), dtype=np.uint32) if self.ids is None else self.ids
        lengths = np.array([len(token) for token in tokens], np.int64)
        before = json.dumps([self.pattern, self.normalizer, self.added])
        joined, split = (np.frombuffer(each, np.uint8) for each in (b"".join(tokens), before.encode()))
        return {"split": split, "tokens": joined, "lengths": lengths, "ids": ids}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "ByteLevelBPE":
        """Return what :meth:`to_arrays` was called on, its ranks in ascending order."""
        joined, stops = arrays["tokens"].tobytes(), np.cumsum(arrays["lengths"]).tolist()
        tokens = [joined[start:stop] for start, stop in itertools.pairwise([0, *stops])]
        ranks = {token: rank for rank, token in enumerate(tokens)}
        pattern, normalizer, added = json.loads(arrays["split"].tobytes())
        return cls(pattern, ranks, _unless_ranks(arrays["ids"]), normalizer, tuple(added))


def parse_ranks(content: bytes, where: str) -> dict[bytes, int]:
    """Return the ranks of a `*.tiktoken` file: one base64 token and its rank per line.

    Raises:
        TokenizerError: a line is not that, the ranks are not 0 … n - 1, or one of the 256 bytes is missing.

    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as wrong:
            raise TokenizerError(f"{where}, line {number}: {line[:80]!r} is not a base64 token and its rank") from wrong
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise TokenizerError(f"{where}: its ranks are not 0 to {len(ranks) - 1}, each once; is the file cut?")
    _require_all_bytes(ranks, where)
    return ranks


class RankFile(NamedTuple):
    """What a `*.tiktoken` file says, and what it leaves to the program that reads it."""

    ranks: Mapping[bytes, int]
    pattern: str
    special: Mapping[str, int]
    """Ids of special tokens by their spelling; the end of text is among them."""


def rank_file(content: bytes, where: str) -> RankFile:
    """Return the ranks of a `*.tiktoken` file with its pattern and special tokens, which the file does not say.

    Those of cl100k and o200k are known by the digest of the file; any other one has GPT-2's.

    Raises:
        TokenizerError: see :func:`parse_ranks`.

    """
    ranks = parse_ranks(content, where)
    of_gpt2 = GPT2_PATTERN, {END_OF_TEXT: len(ranks)}
    return RankFile(ranks, *_PUBLISHED.get(hashlib.sha256(content).hexdigest(), of_gpt2))


def has_long_tokens(tokens: Iterable[bytes | str]) -> bool:
    """Whether tokens are so long that finding the merges behind them takes seconds to hours."""
    return sum(len(token) ** 2 for token in tokens) > _MOST_SQUARES


def recover_merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Return the merge behind every token of more than one byte, best rank first.

    Raises:
        TokenizerError: a token is not the join of two tokens of better rank, so no list of merges makes it, or tokens
            are too long.

    """
    _require_short_tokens(ranks)
    tokens = sorted(ranks, key=ranks.__getitem__)
    halves = find_halves(tokens).tolist()
    for token, (left, _) in zip(tokens, halves, strict=True):
        if left < 0 and len(token) > 1:
            raise TokenizerError(f"token {token!r} of rank {ranks[token]} cannot be made by merges of two others")
    return [(tokens[left], tokens[right]) for left, right in halves if left >= 0]


def tokenizer_document(
    ranks: Mapping[bytes, int], pattern: str = GPT2_PATTERN, special: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the content of a `tokenizer.json` whose ids are ``ranks``; None is end of text after them.

    Raises:
        TokenizerError: see :func:`recover_merges`.

    """
    spell, special = _alphabet(), {END_OF_TEXT: len(ranks)} if special is None else dict(special)
    merges = [[_spelled(left, spell), _spelled(right, spell)] for left, right in recover_merges(ranks)]
    vocabulary = {_spelled(token, spell): rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token, "content": name, **flags} for name, token in special.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level if pattern == GPT2_PATTERN else steps,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary | special,
            "merges": merges,
        },
    }


def byte_level_bpe(document: Mapping[str, Any]) -> ByteLevelBPE:
    """Return the ranks of a `tokenizer.json` that is a byte-level BPE.

    Raises:
        TokenizerError: it is something else, or something that ranks cannot say; the sentence says what.

    """
    model = document["model"]
    normalizer, added, pattern = _normalizer(document), _plain_added(document), _pattern(document)
    _require_plain_model(model)
    _require_short_tokens(model["vocab"])
    spell = _bytes_by_spelling()
    try:
        merges = [_merge(pair, spell) for pair in model["merges"]]
    except KeyError as unknown:
        raise TokenizerError(f"a merge has the character {unknown}, which is not the spelling of any byte") from unknown
    ranks = _ranks(merges, model["vocab"])
    listed = set(merges)
    if wrong := next((merge for merge in recover_merges(ranks) if merge not in listed), None):
        raise TokenizerError(f"joining by rank would merge {wrong}, which is not among its merges")
    alphabet = _alphabet()
    ids = np.array([model["vocab"][_spelled(token, alphabet)] for token in ranks], np.uint32)
    if model.get("ignore_merges") and len(ranks) != len(model["vocab"]):
        raise TokenizerError("it ignores merges for whole words, and some words of its vocabulary have no merge")
    return ByteLevelBPE(pattern, ranks, _unless_ranks(ids), normalizer, added)


def _unless_ranks(ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32] | None:
    return None if np.array_equal(ids, np.arange(len(ids))) else ids


def _normalizer(document: Mapping[str, Any]) -> Literal["", "NFC"]:
    if document.get("normalizer") is None:
        return ""
    kind = _object(document["normalizer"]).get("type")
    if kind != "NFC":
        raise TokenizerError(f"it has a normalizer ({kind})")
    return "NFC"


def _matches_first(added: Sequence[str]) -> str:
    return f"it matches {len(added):,} added tokens before anything else, {added[0]!r} among them"


def _plain_added(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the added tokens that texts may hold, each of which is another one, also as NFC."""
    added_tokens = [*map(_object, document.get("added_tokens") or [])]
    plain = tuple(added["content"] for added in added_tokens if added["content"] and not added["special"])
    if len(plain) > _MOST_ADDED:
        raise TokenizerError(_matches_first(plain))
    spelled = [unicodedata.normalize("NFC", added["content"]) for added in added_tokens if added["content"]]
    if plain and len(set(spelled)) < len(spelled):
        raise TokenizerError("two of its added tokens are one")
    return plain


def _pattern(document: Mapping[str, Any]) -> str:
    step = _object(document.get("pre_tokenizer") or {"type": "none"})
    steps = [*map(_object, step["pretokenizers"])] if step.get("type") == "Sequence" else [step]
    last = steps[-1] if steps else {"type": "none"}
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space", True):
        raise TokenizerError("its pre-tokenizer is not byte level without a prefix space")
    if len(steps) == 1 and last.get("use_regex", True):
        return GPT2_PATTERN
    if len(steps) == 2 and steps[0].get("type") == "Split" and not last.get("use_regex", True):
        split = steps[0]
        if "Regex" in split["pattern"] and split["behavior"] == "Isolated" and not split.get("invert"):
            return str(split["pattern"]["Regex"])
    raise TokenizerError(
        f"its pre-tokenizer is not one pattern ({' then '.join(str(step.get('type')) for step in steps)})"
    )


def _object(value: Any) -> Mapping[str, Any]:
    """Return a part of a `tokenizer.json`; `tokenizers` also reads lists of the fields in their order."""
    if not isinstance(value, Mapping):
        raise TokenizerError("it has fields without their names")
    return value


def _require_short_tokens(tokens: Iterable[bytes | str]) -> None:
    if has_long_tokens(tokens):
        longest = max(map(len, tokens))
        raise TokenizerError(
            f"its tokens, of up to {longest:,} bytes, are too long to find their merges: pass its tokenizer.json"
        )


def _require_plain_model(model: Mapping[str, Any]) -> None:
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise TokenizerError(f"its model is {model.get('type')}, not BPE")
    if len(set(model["vocab"].values())) < len(model["vocab"]):
        raise TokenizerError("its vocabulary has one id for two tokens")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            raise TokenizerError(f"its model sets {name} to {model[name]!r}")


def _merge(pair: Any, spell: Mapping[str, int]) -> tuple[bytes, bytes]:
    left, right = pair.split(" ") if isinstance(pair, str) else pair
    return bytes(spell[character] for character in left), bytes(spell[character] for character in right)


def _ranks(merges: Iterable[tuple[bytes, bytes]], vocabulary: Mapping[str, int]) -> dict[bytes, int]:
    """Rank the 256 bytes in the order of their ids, then the tokens in the order of their merges."""
    singles = [
        (vocabulary[character], bytes([byte])) for byte, character in enumerate(_alphabet()) if character in vocabulary
    ]
    ranks = {token: rank for rank, (_, token) in enumerate(sorted(singles))}
    _require_all_bytes(ranks, "its vocabulary")
    token = b""
    for left, right in merges:
        if left + right == token:
            continue
        token = left + right
        if token in ranks:
            raise TokenizerError(f"the merges that make {token!r} do not follow one another")
        ranks[token] = len(ranks)
    return ranks


def _require_all_bytes(ranks: Mapping[bytes, int], where: str) -> None:
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(f"{where}: {len(missing)} of the 256 bytes are not tokens, 0x{missing[0]:02x} among them")


def _alphabet() -> list[str]:
    """Return the character that spells each byte in a `tokenizer.json`: itself if printable, else from U+0100 on."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printing else chr(next(others)) for byte in range(256)]


@cache
def _bytes_by_spelling() -> Mapping[str, int]:
    return {character: byte for byte, character in enumerate(_alphabet())}


def _spelled(token: bytes, alphabet: list[str]) -> str:
    return "".join([alphabet[byte] for byte in token])
