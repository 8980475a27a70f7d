"""Tokenizer files, and the encoders that turn texts into tokens.

`tokenizers` reads every `tokenizer.json`. If it is a byte-level BPE that ranks describe exactly, `tiktoken` is faster,
and for the splits of GPT-2, cl100k, o200k, Llama 3 and Qwen2, kernels of this package are many times as fast.
"""

import errno
import hashlib
import itertools
import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl import kernels
from longcrawl.core.stages import Stage
from longcrawl.errors import MOST_QUOTED, TokenizerError, check_word, reason_of, shortened, unreadable, warn_user
from longcrawl.io.files import content_digest, is_there, whole_file
from longcrawl.io.structured import load_json
from longcrawl.kernels.code_points import Arrays, cache_folder, kept_arrays, shipped_arrays
from longcrawl.kernels.texts import find_unordered, read_only, text_buffers
from longcrawl.tokens import bpe
from longcrawl.tokens.bpe import (
    END_OF_TEXT,
    GPT2_PATTERN,
    PAST_END,
    PATTERNS,
    ByteLevelBPE,
    byte_level_bpe,
    encode_texts,
    has_long_tokens,
    make_tables,
    rank_file,
    tokenizer_document,
)

CONFIGURATION = "tokenizer_config.json"
NAMING_END = (CONFIGURATION, "special_tokens_map.json")
"""Files beside a tokenizer that may name its ``eos_token``; the first one that does counts."""
CONVERTIBLE = (CONFIGURATION, "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
TAKEN = "a tokenizer.json, a folder that holds one, a *.tiktoken file or a Hub id"


def tokenizer_name(tokenizer: Any) -> str:
    """Return the name of a tokenizer: a name or path unchanged, and for an object the path of its saved content.

    A ``PreTrainedTokenizerFast``, or a ``Tokenizer`` of `tokenizers`, is saved without truncation, padding and chat
    template in a folder of ``$XDG_CACHE_HOME/longcrawl`` named after its content.
    """
    if isinstance(tokenizer, str | os.PathLike):
        return os.fspath(tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", None) or tokenizer
    if not hasattr(backend, "to_str"):
        raise TokenizerError(
            f"a tokenizer must be {TAKEN}, or a PreTrainedTokenizerFast, not a {type(tokenizer).__name__}"
        )
    with unreadable("a tokenizer", TokenizerError, "remove parts written in Python, or pass a saved one"):
        spelled = backend.to_str()
    document = json.loads(spelled) | {"truncation": None, "padding": None}
    content = json.dumps(document, ensure_ascii=False).encode()
    end = getattr(tokenizer, "eos_token", None)
    configuration = json.dumps({"eos_token": end if isinstance(end, str) else None}).encode()
    name = hashlib.sha256(configuration + content).hexdigest()[:16]
    folder = cache_folder() / "tokenizers" / name
    try:
        for file, written in ((CONFIGURATION, configuration), ("tokenizer.json", content)):
            if not (folder / file).exists():
                with whole_file(folder / file) as beside:
                    beside.write_bytes(written)
    except OSError as failed:
        raise TokenizerError(
            f"{folder} cannot be written ({type(failed).__name__}): set XDG_CACHE_HOME, or pass a saved tokenizer"
        ) from failed
    return str(folder / "tokenizer.json")


def name_tokenizer(instance: Any) -> None:
    """Replace an object in the field ``tokenizer`` of a frozen dataclass by its name."""
    object.__setattr__(instance, "tokenizer", tokenizer_name(instance.tokenizer))


def local_file(tokenizer: str) -> Path | None:
    """Return the local file that ``tokenizer`` names, or None if it names a repository on the Hub."""
    path = Path(tokenizer).expanduser()
    for file in (path, path / "tokenizer.json"):
        if _is_there(file) and file.is_file():
            return file.absolute()
    if present := [path / name for name in CONVERTIBLE if _is_there(path / name)]:
        return _converted(str(path.absolute()), tuple(content_digest(str(file)) for file in present))
    if path.suffix in (".json", ".tiktoken") or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", tokenizer):
        raise TokenizerError(f"no tokenizer at {shortened(tokenizer, MOST_QUOTED)!r}: pass {TAKEN}")
    return None


def _is_there(path: Path) -> bool:
    try:
        return is_there(path)
    except OSError as failed:
        if failed.errno != errno.ENAMETOOLONG:
            raise
        return False


def tokenizer_digest(tokenizer: str) -> str | None:
    """Return the SHA-256 of the local file that ``tokenizer`` names, or None for a repository on the Hub."""
    path = local_file(tokenizer)
    return None if path is None else content_digest(str(path))


class TokenizerStage(Stage):
    """Base class of stages with a field ``tokenizer``; the content of its file is part of the stage's identity."""

    tokenizer: str

    @property
    def uses_tokenizer(self) -> bool:
        """Whether the stage uses tokens, given its other fields."""
        return getattr(self, "unit", "token") == "token"

    def __post_init__(self) -> None:
        name_tokenizer(self)
        super().__post_init__()

    def files(self) -> tuple[str, ...]:
        """Return the local files of the tokenizer, after other data files."""
        file = local_file(self.tokenizer) if self.uses_tokenizer else None
        named = [] if file is None else [file, *(file.parent / name for name in NAMING_END)]
        return (*super().files(), *(str(each) for each in named if each.exists()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the digest of a local tokenizer, which is compared when the stage is restored."""
        make, arguments = super().__reduce__()[:2]
        digest = tokenizer_digest(self.tokenizer) if self.uses_tokenizer else None
        return restore_with_tokenizer, (make, arguments, digest)


def restore_with_tokenizer(make: Any, arguments: tuple[Any, ...], digest: str | None) -> Any:
    """Restore a pickled stage with a field ``tokenizer``; TokenizerError if its file has changed."""
    made = make(*arguments)
    if digest is not None and tokenizer_digest(made.tokenizer) != digest:
        raise TokenizerError(f"{made.tokenizer} changed since the stage was saved: make the stage again")
    return made


def configured_end(path: Path) -> str | None:
    """Return the ``eos_token`` that a file beside a tokenizer names, or None."""
    for name in NAMING_END:
        with suppress(OSError, ValueError):
            configuration = load_json((path.parent / name).read_bytes())
            end = configuration.get("eos_token") if isinstance(configuration, Mapping) else None
            end = end.get("content") if isinstance(end, Mapping) else end
            if isinstance(end, str):
                return end
    return None


@lru_cache(maxsize=8)
def _from_hub(repository: str) -> Path:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        path = Path(hf_hub_download(repository, "tokenizer.json"))
        _fetch_configuration(repository)
    except (OSError, ValueError) as failed:
        was_asked = not isinstance(failed, LocalEntryNotFoundError)
        # transformers takes 2.5 s to import, and finds only what is in the cache if the Hub was not asked.
        if isinstance(failed, EntryNotFoundError) and (was_asked or _is_cached(repository)):
            with suppress(TokenizerError):
                return _converted(repository)
        offline = "HF_HUB_OFFLINE is set: unset it, or"
        missing = f"cannot be fetched from the Hub ({type(failed).__name__}):"
        raise TokenizerError(
            f"tokenizer {repository!r} is not a file here and {offline if constants.HF_HUB_OFFLINE else missing} "
            "set tokenizer= to the path of a tokenizer.json or *.tiktoken file, or to an object "
            "(--tokenizer PATH, of a run --set stages.STAGE.tokenizer=PATH)"
        ) from failed
    return path


def _fetch_configuration(repository: str) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        hf_hub_download(repository, CONFIGURATION)
    except LocalEntryNotFoundError:
        warn_user(
            f"{CONFIGURATION} of {repository} is not in the cache, and the Hub cannot be reached: documents end with "
            "a common token, which may not be its eos_token; set end_of_text, or load the tokenizer once online"
        )
    except EntryNotFoundError:
        pass  # the repository has none


def _is_cached(repository: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(repository, name), str) for name in CONVERTIBLE)


@lru_cache(maxsize=8)
def _converted(name: str, _contents: tuple[str, ...] = ()) -> Path:
    from transformers import AutoTokenizer

    try:
        return Path(tokenizer_name(AutoTokenizer.from_pretrained(name)))
    except Exception as failed:  # its exceptions depend on the kind of tokenizer
        raise TokenizerError(
            f"{name} has no tokenizer.json, and transformers cannot make one ({type(failed).__name__}): save it again "
            "with AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER), where sentencepiece is installed"
        ) from failed


MOST_IDS = 1 << 24
"""Exclusive upper bound of ids, since some arrays have an entry for each; the largest vocabularies have 2**18."""
MOST_RANKS = (1 << 21) - 1
LONGEST_PIECE = 1 << 30  # maximum bytes of a piece, since positions in it are 32-bit
NOT_THIS_TOKENIZER = "pass another tokenizer.json, or save it again"
_PROBE = (
    "Don't they'll WE'RE I'VE we'd 'tis it's''s  two   three\t\ttabs \n\n\n lines\r\n end  \n"
    " 0 12 123 1234567 3.14 1e-9 x86_64 2nd ½ ² Ⅻ ٣٤ १२ 〇 "  # noqa: RUF001  # look-alikes are the point
    "naïve café cafe\u0301 \u0301x a\u0300\u0301 \u017ft '\u017f '\u212a ß ẞ İ ǅ ﬁ soft\u00adhyphen joi\u200dner "
    "Ελλάδα Москва українська עברית العربية فارسی हिन्दी বাংলা தமிழ் ไทย ລາວ မြန်မာ ქართული አማርኛ 한국어 日本語 中文，标点。 "  # noqa: RUF001  # look-alikes are the point
    "😀 👩‍👩‍👧 🇩🇪 👍🏽 ♥\ufe0f \U0001f9ff \U000e0067 \ufffd \ue000 \0 \x1c \x7f \x85\xa0\u2003\u2028\u3000x\xa0 y\u200b"
    "<|endoftext|> <s></s> [SEP] {}[]();:== != -> /* */ #include <a.h> \\n \\u00e9 https://a.b/c?d=e&f#g @me #tag $5 €"
    "aaaaaaaaaaaaaaaaaaaaaaaa        !!!!!!!!!!!!!!!! ======== --- ... … “quoted” ‘it’s’ —dash– \t \f \v tail   "  # noqa: RUF001  # look-alikes are the point
)
"""Text that two engines must encode equally before one replaces the other: scripts, marks, digits, whitespace, code."""
_NO_OPERATOR = re.compile(r"\\[pPx]\{[^}]*\}|\\[^Z]|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_READ_IN_TWO_WAYS = re.compile(r"\{\d*,?\d*\}[+{]|\{\d+\}\?|[\^$]|\\Z|\(\?#|\(\?[i-]*[a-hj-z][a-z-]*[:)]")
_BETWEEN = "\U0010fffe"
_DENSE = (
    range(0x3400),
    range(0xA000, 0xAC00),
    range(0xF900, 0x17000),
    range(0x18D00, 0x20000),
    range(0xE0000, 0xE0200),
)
"""Blocks of many scripts, of symbols and of marks, in which every code point is compared."""
_SPARSE = (range(0x3400, 0xA000), range(0xAC00, 0xD800), range(0xE000, 0xF900), range(0x17000, 0x18D00))
"""Blocks of one script, private use and, not listed, later planes; one of ``_STEP`` code points is compared."""
_STEP = 61
_LINES = 1 << 10  # code points in one text; for longer ones `tokenizers` takes more than proportional time
Texts: TypeAlias = "pa.Array | pa.ChunkedArray"
_BATCH = 1 << 20  # characters passed to `tokenizers` at once; it keeps more than a hundred bytes for each token
_GROUP_BYTES = 4 << 20
"""Bytes of texts encoded at once into one reused buffer of ranks, because new memory is slow to allocate."""
_NO_IDS = np.zeros(0, np.uint32)
_ROOM = 1 << 19  # fewest words cached before all but the vocabulary are dropped; 40 MB for 50,000 tokens


class BytePairs:
    """Encoder that uses kernels, with ranks and a pattern of ``PATTERNS``; its ids are those of tiktoken."""

    name: Literal["tiktoken"] = "tiktoken"

    def __init__(self, bpe: ByteLevelBPE, room: int = _ROOM) -> None:
        self._bpe = bpe
        self._room = room
        greatest = len(bpe.ranks) - 1 if bpe.ids is None else bpe.ids.max()
        self._dtype = np.dtype(np.uint16 if greatest < 1 << 16 else np.uint32)
        self._ids = None if bpe.ids is None else bpe.ids.astype(self._dtype)
        self._lock = threading.Lock()

    @cached_property
    def _tables(self) -> bpe.Tables:
        tokens = sorted(self._bpe.ranks, key=self._bpe.ranks.__getitem__)
        return make_tables(PATTERNS[self._bpe.pattern], tokens, self._room)

    def encode_texts(self, texts: Texts) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return the ids of all texts, as uint16 if they fit, and their offsets."""
        data, bounds = text_buffers(one_array(texts))
        # Kernels may read past the end of the last texts into memory of other owners, so these texts are copied.
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
            ends, free = np.zeros(len(group), np.int64), ranks[written:]
            with self._lock:
                count = encode_texts(read_only(text), read_only(group), self._tables, LONGEST_PIECE, free, ends)
            if count < 0:
                raise TokenizerError(f"a text has a word of more than {LONGEST_PIECE:,} bytes: split it first")
            written += ends[-1]
            offsets.append(offsets[-1][-1] + ends[1:])
        ids.append(self._ids_of(ranks[:written]))
        return np.concatenate(ids) if len(ids) > 1 else ids[0], np.concatenate(offsets)

    def _ids_of(self, ranks: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
        return ranks.astype(self._dtype) if self._ids is None else self._ids[ranks]

    def encode(self, text: str) -> npt.NDArray[Any]:
        """Return the ids of one text."""
        return self.encode_texts(pa.array([text], pa.large_string()))[0]


class Tiktoken:
    """Encoder that uses tiktoken, or ``otherwise`` for a text that tiktoken's pattern fails on or drops parts of."""

    name: Literal["tiktoken"] = "tiktoken"

    def __init__(self, bpe: ByteLevelBPE, otherwise: "Callable[[], Tokenizers]") -> None:
        import tiktoken

        self._ids = None if bpe.ids is None else np.append(bpe.ids, np.uint32(0))
        self._otherwise = otherwise
        self._lengths = np.zeros(len(bpe.ranks), np.int64)
        self._lengths[[*bpe.ranks.values()]] = [len(token) for token in bpe.ranks]
        with unreadable("its pattern", TokenizerError, NOT_THIS_TOKENIZER):
            self._encoding = tiktoken.Encoding(
                "longcrawl", pat_str=bpe.pattern, mergeable_ranks=dict(bpe.ranks), special_tokens={}
            )

    def encode(self, text: str) -> npt.NDArray[np.uint32]:
        """Return the ids of one text."""
        try:
            with unreadable("a text", TokenizerError, NOT_THIS_TOKENIZER):
                ranks: npt.NDArray[np.uint32] = self._encoding.encode_to_numpy(text, disallowed_special=())
        except TokenizerError:  # its pattern took too many steps, or matched nothing, on which it panics
            return self._otherwise().encode(text)
        if self._lengths[ranks].sum() != len(text.encode()):  # the pattern does not match all characters
            return self._otherwise().encode(text)
        return ranks if self._ids is None else self._ids[ranks]

    def encode_texts(self, texts: Texts) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of all texts and their offsets."""
        return _end_to_end([self.encode(text) if text else _NO_IDS for text in texts.to_pylist()])


class Tokenizers:
    """Encoder that uses the `tokenizers` library, in batches and on the calling thread."""

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
        """Return the ids of all texts and their offsets; an empty text has none, even if a normalizer adds text."""
        found, batch, characters = [_NO_IDS] * len(texts), dict[int, str](), 0
        for number, text in enumerate(texts.to_pylist()):
            if text:
                batch[number] = text
                characters += len(text)
            if batch and (characters >= _BATCH or number == len(texts) - 1):
                for place, ids in zip(batch, self._encode_batch(list(batch.values())), strict=True):
                    found[place] = ids
                batch, characters = {}, 0
        return _end_to_end(found)

    def _encode_batch(self, texts: list[str]) -> list[npt.NDArray[np.uint32]]:
        with one_thread, unreadable("a text", TokenizerError, NOT_THIS_TOKENIZER):
            batch = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(each.ids, np.uint32) for each in batch]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of known ids."""
        with unreadable("tokens", TokenizerError, NOT_THIS_TOKENIZER):
            text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def ids_by_name(self) -> dict[str, int]:
        """Return the ids of all tokens, including added ones, by their spelling: some, and less than ``MOST_IDS``."""
        ids: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        greatest = max(ids.values(), default=-1)
        if not 0 <= greatest < MOST_IDS:
            have = f"has the id {greatest:,}, but ids end at {MOST_IDS - 1:,}" if ids else "has no tokens"
            raise TokenizerError(f"its vocabulary {have}: pass another tokenizer.json")
        return ids


def _end_to_end(parts: list[npt.NDArray[np.uint32]]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate([_NO_IDS, *parts]), offsets


def _groups(bounds: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    start = 0
    while start < len(bounds) - 1:
        stop = max(start + 1, int(np.searchsorted(bounds, bounds[start] + _GROUP_BYTES, "right")) - 1)
        yield bounds[start : stop + 1]
        start = stop


def one_array(texts: Texts) -> pa.Array:
    """Return texts as one array of large strings that are valid UTF-8."""
    array = pc.cast(texts, pa.large_string())
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        array.to_pylist()  # raises an error with the reason
        raise
    return array


_PARALLELISM = "TOKENIZERS_PARALLELISM"


class _OneThread:
    """Keeps `tokenizers` from starting threads: a process forked after it did may wait for them forever.

    The first of several threads sets its environment variable, and the last one restores it.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, os.environ.get(_PARALLELISM)

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = os.environ.get(_PARALLELISM)
                os.environ[_PARALLELISM] = "false"
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside = max(0, self._inside - 1)
            if not self._inside:
                os.environ.pop(_PARALLELISM, None)
                if self._before is not None:
                    os.environ[_PARALLELISM] = self._before

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        if self._inside:
            self._inside = 0
            self.__exit__()


one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_thread.after_fork)


def require_equal(bpe: ByteLevelBPE, fast: "ByRanks", exact: Tokenizers) -> None:
    """Compare the engines on the probe, every token, and cuts of unknown patterns; TokenizerError if they differ."""
    _require_one_reading(bpe.pattern)
    if bpe.pattern not in PATTERNS:
        with unreadable("its pattern", TokenizerError, NOT_THIS_TOKENIZER):
            require_equal_cuts(bpe.pattern, _PROBE)
    tokens = (token.decode(errors="ignore") for token in bpe.ranks)
    for text in (_PROBE, "\n".join(tokens)):
        if not np.array_equal(fast.encode(text), exact.encode(text)):
            raise TokenizerError("its pattern splits text differently in tokenizers and in tiktoken")


def _require_one_reading(pattern: str) -> None:
    r"""Raise TokenizerError for an operator with different meanings in Oniguruma and Rust, such as ``x{1,3}+``."""
    spelled = _NO_OPERATOR.sub("x", pattern.replace(r"\s++$", r"\s++"))
    if found := _READ_IN_TWO_WAYS.search(spelled):
        raise TokenizerError(f"its pattern has {found[0]!r}, which tokenizers and tiktoken read differently")


@cache
def _probes() -> list[str]:
    beyond = range(0x20000, 0x110000)
    points = itertools.chain(*_DENSE, *(block[::_STEP] for block in (*_SPARSE, beyond)), (0xFFFF, 0x10FFFF))
    lines = [f"a{each}1{each} {each}{each}'{each}\n" for each in map(chr, points) if each != _BETWEEN]
    return ["".join(lines[start : start + _LINES]) for start in range(0, len(lines), _LINES)]


@cache
def _pairs() -> dict[bytes, int]:
    """Return ranks of the bytes and, at random, of pairs of a last and a first byte, to see what one engine cuts."""
    ascii_bytes = range(0x80)
    pairs = [*itertools.product((*ascii_bytes, *range(0x80, 0xC0)), (*ascii_bytes, *range(0xC2, 0xF5)))]
    random.Random(0).shuffle(pairs)  # noqa: S311  # any order will do, but always the same
    return {bytes(token): rank for rank, token in enumerate([*((byte,) for byte in range(256)), *pairs])}


def require_equal_cuts(pattern: str, *texts: str) -> None:
    """Compare where tiktoken and `tokenizers` cut code points of all kinds and other texts, for any vocabulary."""
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
            raise TokenizerError("its pattern splits text differently in tokenizers and in tiktoken")


SHIPPED = Path(__file__).with_name("combining.npz")


@cache
def combining_classes() -> npt.NDArray[np.uint8]:
    """Return the combining class of every code point, or 255 if a text with it may not be NFC; see the tests."""
    return shipped_arrays(SHIPPED, "unicode-14")["classes"]


def may_change(texts: "pa.LargeStringArray") -> npt.NDArray[np.bool_]:
    """Return a mask of texts that NFC may change; the texts must be valid UTF-8."""
    data, bounds = text_buffers(texts)
    found = np.zeros(len(texts), np.bool_)
    find_unordered(read_only(data), read_only(bounds), read_only(combining_classes()), found)
    return found


Encoded: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]


class Prepared:
    """Encoder that applies NFC, and encodes the text between added tokens by ranks."""

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
        added = self._any_of(self._bpe.added)
        has_added = _has(given, added) | (_has(normal, added) if changed.any() else False)
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
        changes = may_change(texts) if self._bpe.normalizer else np.zeros(len(texts), np.bool_)
        if not changes.any():
            return texts, changes
        made = [self._normalize(text) for text in _chosen(texts, changes).to_pylist()]
        return pc.replace_with_mask(texts, pa.array(changes), pa.array(made, pa.large_string())), changes

    def _normalize(self, text: str) -> str:
        if not self._bpe.normalizer:
            return text
        from tokenizers import normalizers

        normal: str = normalizers.NFC().normalize_str(text)
        return normal

    def _any_of(self, tokens: Iterable[str]) -> str:
        spelled = sorted({each for token in tokens for each in (token, self._normalize(token))})
        return "|".join("".join(f"\\x{{{ord(character):x}}}" for character in each) for each in spelled)

    def _cannot_cut(self, texts: "pa.LargeStringArray") -> npt.NDArray[np.bool_]:
        """Return a mask of the texts that have special tokens, which `tokenizers` finds here, or of all texts."""
        plain = [token for token in self._tokens.values() if token.content and not token.special]
        if any(token.lstrip or token.rstrip or token.single_word for token in plain):
            return np.ones(len(texts), np.bool_)
        return _has(texts, self._any_of(token.content for token in self._tokens.values() if token.special))

    @cached_property
    def _tokens(self) -> Mapping[int, Any]:
        tokens: Mapping[int, Any] = self._exact().tokenizer.get_added_tokens_decoder()
        return tokens

    @cached_property
    def _cuts(self) -> list[tuple[re.Pattern[str], Mapping[str, int]]]:
        """Patterns to cut texts at, with the ids of their tokens; those searched before normalization come first."""
        before, behind = dict[str, int](), dict[str, int]()
        for number, token in self._tokens.items():
            if token.content and not token.special:
                ids, name = (behind, self._normalize(token.content)) if token.normalized else (before, token.content)
                ids[name] = number
        longest_first = [(sorted(ids, key=len, reverse=True), ids) for ids in (before, behind) if ids]
        return [(re.compile(f"({'|'.join(map(re.escape, names))})"), ids) for names, ids in longest_first]

    def _cut(self, text: str) -> list[str | int]:
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
    if not any_of:
        return np.zeros(len(texts), np.bool_)
    found = pc.match_substring_regex(texts, any_of).fill_null(False)
    return np.array(found.to_numpy(zero_copy_only=False))


def _chosen(texts: "pa.LargeStringArray", which: npt.NDArray[np.bool_]) -> "pa.LargeStringArray":
    return texts.filter(pa.array(which))


def _in_order(*groups: tuple[npt.NDArray[np.bool_], Encoded]) -> Encoded:
    lengths = np.zeros(len(groups[0][0]), np.int64)
    for which, (_, offsets) in groups:
        lengths[which] = np.diff(offsets)
    ids = np.empty(lengths.sum(), np.result_type(*(each for _, (each, _) in groups)))
    for which, (each, _) in groups:
        ids[np.repeat(which, lengths)] = each
    return ids, np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


ByRanks: TypeAlias = BytePairs | Tiktoken | Prepared


def by_ranks(bpe: ByteLevelBPE, otherwise: Callable[[], Tokenizers]) -> ByRanks:
    """Return the engine for a byte-level BPE: this package's if its pattern is known and its tables can be made."""
    ours = bpe.pattern in PATTERNS and len(bpe.ranks) < MOST_RANKS and not has_long_tokens(bpe.ranks)
    engine = BytePairs(bpe) if ours else Tiktoken(bpe, otherwise)
    return Prepared(engine, bpe, otherwise) if bpe.changes else engine


Engine = Literal["auto", "tiktoken", "tokenizers"]
_WORTH_KEEPING = 1 << 18
"""Bytes of the smallest tokenizer with results kept in the cache folder; smaller ones are processed as fast."""
_END_OF_TEXT_NAMES = (END_OF_TEXT, "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>", "<|im_end|>", "[EOS]", "[SEP]")
_NO_PIECES = frozenset(("'l", "'r", "'v", *_END_OF_TEXT_NAMES))
"""Tokens that GPT-2's pattern cuts even in its own vocabulary: beginnings of contractions, and special tokens."""


class EncodedTexts(NamedTuple):
    """Concatenated token ids of several texts: those of text i are ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]


def load_encoder(tokenizer: Any, end_of_text: str | None = None, engine: Engine = "auto") -> "Encoder":
    """Load a tokenizer by name or file; the same file is loaded once per process.

    ``tokenizer`` is one of

    * a `tokenizer.json`, or a folder with one, as ``save_pretrained`` writes it. In a folder without one,
      `transformers` converts other files, such as `vocab.json` or, with `sentencepiece` installed, `tokenizer.model`;
    * a `*.tiktoken` file of ranks. The published files of cl100k and o200k are recognized by their digest; all others
      get GPT-2's pattern, and their end of text is the number of ranks;
    * the id of a repository on the Hub, such as ``"gpt2"``;
    * a ``PreTrainedTokenizerFast`` of `transformers` or a ``Tokenizer`` of `tokenizers`, see :func:`tokenizer_name`.

    ``end_of_text`` names the token that ends a document. None means the tokenizer's ``eos_token``, as named by the
    object or the `tokenizer_config.json` beside its file, or else the first usual one that it has, such as ``</s>``.

    Raises:
        TokenizerError: it is not a tokenizer, has no token ``end_of_text``, or is not one for ``engine``.
    """
    check_word("engine", engine, Engine, TokenizerError)
    name = tokenizer_name(tokenizer)
    path = local_file(name) or _from_hub(name)
    status = path.stat()
    return _load(path, (status.st_mtime_ns, status.st_size, configured_end(path)), end_of_text, engine)


@lru_cache(maxsize=8)
def _load(path: Path, _version: tuple[int, int, str | None], end_of_text: str | None, engine: Engine) -> "Encoder":
    try:
        return Encoder(path, end_of_text, engine)
    except TokenizerError as wrong:
        raise TokenizerError(f"{path}: {wrong}") from wrong


class _Ranked(NamedTuple):
    """A tokenizer as ranks, or the reason why `tokenizers` encodes with it."""

    bpe: ByteLevelBPE | None
    others: Mapping[str, int]
    reason: str

    def to_parts(self) -> list[Any]:
        parts = None
        if self.bpe is not None:
            tokens = [token.decode("latin-1") for token in sorted(self.bpe.ranks, key=self.bpe.ranks.__getitem__)]
            ids = None if self.bpe.ids is None else self.bpe.ids.tolist()
            parts = [self.bpe.pattern, tokens, ids, self.bpe.normalizer, self.bpe.added]
        return [parts, self.others, self.reason]

    @classmethod
    def from_parts(cls, parts: Any, others: Mapping[str, int], reason: str) -> "_Ranked":
        if parts is None:
            return cls(None, others, reason)
        pattern, tokens, ids, normalizer, added = parts
        ranks = {token.encode("latin-1"): rank for rank, token in enumerate(tokens)}
        ids = None if ids is None else np.array(ids, np.uint32)
        return cls(ByteLevelBPE(pattern, ranks, ids, normalizer, tuple(added)), others, reason)

    def id_of(self, spelled: str) -> int | None:
        token = self.others.get(spelled)
        return self.bpe.id_of(spelled) if token is None and self.bpe is not None else token

    def has_rank(self, token: int) -> bool:
        if self.bpe is None:
            return False
        if any(self.others.get(name) == token for name in self.bpe.added):
            return True
        return token < len(self.bpe.ranks) if self.bpe.ids is None else token in self.bpe.ids

    def ids(self) -> frozenset[int]:
        if self.bpe is None:
            return frozenset(self.others.values())
        ids = range(len(self.bpe.ranks)) if self.bpe.ids is None else self.bpe.ids.tolist()
        return frozenset((*ids, *self.others.values()))


class Encoder:
    """Encoder of texts to token ids and back, made by :func:`load_encoder`.

    No special token is added, nothing is truncated, padded or dropped, and a special token spelled out in a text is
    text, except for a Unigram model of `tokenizers`, such as T5's: ``</s>`` in a text is then the id of the end of
    text.
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
        """One more than the greatest id, including special tokens."""
        self.dtype = np.dtype(np.uint16 if self.vocabulary_size <= 1 << 16 else np.uint32)
        if end_of_text is not None:
            _ = self.end_of_text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as arguments of ``load_encoder``, since the engines cannot be pickled."""
        return load_encoder, (str(self._path), self._end_of_text_name, self._asked_engine)

    def encode(self, texts: "Sequence[str | None] | pa.Array | pa.ChunkedArray") -> EncodedTexts:
        """Return the ids of all texts; null has none. TokenizerError for what is not valid text."""
        array = _as_arrow(texts)
        try:
            ids, offsets = self._engine.encode_texts(array)
        except UnicodeDecodeError as wrong:
            raise TokenizerError(
                f"a text is not valid UTF-8 ({wrong.reason}): decode it with errors='replace' before it becomes Arrow"
            ) from wrong
        return EncodedTexts(ids.astype(self.dtype, copy=False), offsets)

    def decode(self, ids: "Sequence[int] | npt.NDArray[Any]") -> str:
        """Return the text of ids, with special tokens spelled out; bytes that are not UTF-8 become U+FFFD."""
        known = self._known_ids
        if unknown := [int(token) for token in ids if int(token) not in known]:
            raise TokenizerError(f"{self._path}: has no token {unknown[0]}; its ids end at {self.vocabulary_size - 1}")
        return self._tokenizers.decode([int(token) for token in ids])

    @cached_property
    def end_of_text(self) -> int:
        """Id of the token that ends a document; TokenizerError if there is none."""
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
                ends = f"documents end with {usual!r}, since its eos_token, {own!r}, is missing or can occur in texts"
            warn_user(f"{self._path}: {ends}; set end_of_text if they should end with another one")
        if token is None and usual is not None:
            token = self._end_of(usual)
        return self._reject_end() if token is None else token

    def _end_of(self, name: str) -> int | None:
        by_library = self.engine == "tokenizers"
        token = self._ids_by_name.get(name) if by_library else self._ranked.id_of(name)
        # Whether a text may have this id is usually known without encoding it, which takes 0.3 s in a new process.
        may_be_text = token is not None and (by_library or self._ranked.has_rank(token))
        return None if may_be_text and self._engine.encode(name).tolist() == [token] else token

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
        """Number of UTF-8 bytes of each id, 0 for ids of no text; TokenizerError unless it is a byte-level BPE."""
        bpe = self._ranked.bpe
        if bpe is None or bpe.changes:
            raise TokenizerError(self._ranked.reason if bpe is None else bpe.changes)
        ranks = np.fromiter(bpe.ranks.values(), np.int64, len(bpe.ranks))
        found = np.zeros(self.vocabulary_size, np.int64)
        found[ranks if bpe.ids is None else bpe.ids[ranks]] = [len(token) for token in bpe.ranks]
        return found

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids, the same for ranks and an equivalent `tokenizer.json`."""
        return str(self._kept("fingerprint", lambda: _fingerprint(self._document)))

    def save(self, directory: str | os.PathLike[str]) -> str:
        """Write ``tokenizer.json`` into ``directory``, and return its name; any reader of it gives the same ids."""
        with whole_file(Path(directory) / "tokenizer.json") as beside:
            beside.write_bytes(self._saved)
        return "tokenizer.json"

    @cached_property
    def _saved(self) -> bytes:
        # dropout is ignored here, and the reader of the file must ignore it as well
        as_read = self._ranks is None and not self._kept("drops", self._drops)
        return self._content if as_read else json.dumps(self._document, ensure_ascii=False).encode()

    def _drops(self) -> bool:
        return bool(load_json(self._content)["model"].get("dropout"))

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
        raise TokenizerError(f"tiktoken cannot reproduce it, set engine='auto': {ranked.reason}")

    @cached_property
    def _ranked(self) -> _Ranked:
        if self._ranks is not None:
            return _Ranked(ByteLevelBPE(self._ranks.pattern, self._ranks.ranks, None), self._ranks.special, "")
        return _Ranked.from_parts(*self._kept("ranks", lambda: self._compare().to_parts()))

    def _require_whole_tokens(self, tokens: Iterable[bytes], by_gpt2: ByRanks) -> None:
        """Raise TokenizerError if GPT-2's pattern cuts tokens of a file of ranks, which then has another pattern."""
        if cut := self._kept("cut", lambda: _find_cut(tokens, by_gpt2)):
            raise TokenizerError(
                f"its ranks are not of GPT-2's pattern, which cuts {len(cut):,} of its tokens, {cut[0]!r} among them: "
                "pass its tokenizer.json"
            )

    def _compare(self) -> _Ranked:
        exact = self._tokenizers  # loading it checks the structure of the document
        ids, bpe = exact.ids_by_name(), None
        try:
            bpe = byte_level_bpe(self._document)
            require_equal(bpe, by_ranks(bpe, lambda: exact), exact)
        except TokenizerError as reason:
            return _Ranked(bpe, {}, str(reason))
        return _Ranked(bpe, {name: token for name, token in ids.items() if bpe.id_of(name) != token}, "")

    def _kept(self, name: str, build: Callable[[], Any]) -> Any:
        """Return what ``build`` makes, which a large tokenizer keeps in the cache folder as JSON."""
        if len(self._content) < _WORTH_KEEPING:
            return build()

        def spelled() -> Arrays:
            return {"json": np.frombuffer(json.dumps(build()).encode(), np.uint8)}

        digest = hashlib.sha256(self._content).hexdigest()
        return json.loads(kept_arrays(f"tokenizer-{digest}-{name}", _stamp(), spelled)["json"].tobytes())

    @cached_property
    def _document(self) -> dict[str, Any]:
        if self._ranks is not None:
            return tokenizer_document(*self._ranks)
        try:
            document: dict[str, Any] = load_json(self._content)
            model = dict(document["model"])
            return {**document, "model": {**model, "dropout": None} if model.get("dropout") else model}
        except (OSError, ValueError, TypeError, KeyError) as wrong:
            raise TokenizerError("is not a tokenizer.json; convert the tokenizer with transformers first") from wrong

    @cached_property
    def _tokenizers(self) -> "Tokenizers":
        return Tokenizers(self._document)

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


def _find_cut(tokens: Iterable[bytes], by_gpt2: ByRanks) -> list[str]:
    texts = [text for text in (token.decode(errors="replace") for token in tokens) if "\ufffd" not in text]
    _, offsets = by_gpt2.encode_texts(pa.array(texts, pa.large_string()))
    several = (text for text, length in zip(texts, np.diff(offsets), strict=True) if length > 1)
    return [text for text in several if text not in _NO_PIECES]


@cache
def _stamp() -> str:
    folders = Path(__file__).parent, Path(kernels.__file__).parent
    files = [*chain(*(sorted(folder.glob("*.py")) for folder in folders)), bpe.SHIPPED, SHIPPED]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return " ".join([digest, version("tokenizers"), version("tiktoken")])


def _of_text(texts: "pa.Array | pa.ChunkedArray") -> "pa.Array | pa.ChunkedArray":
    kind = texts.type
    while pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind.storage_type
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):  # a cast would spell these out
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
