"""Identity of a feed's data, recorded in its state and compared on resume.

Data are identified by sizes, edges and samples of files, in order, also of the files beside them that say where
documents end and which tokens' loss counts. That costs at most some 1,000 reads of 4,096 bytes, or two for each file,
and nothing for a document. Files of up to 1 MiB are read whole, as long as there are four or fewer; of larger ones,
and of more, bytes may change between the samples without being noticed.

Rectangles are identified by samples of their tokens, not of their files, so that a copy in other chunks is the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, LoaderError, warn_user
from longcrawl.formats.rectangle.spec import SplitArray
from longcrawl.formats.shards import datatrove, gpt_simple
from longcrawl.formats.shards.spec import FORMATS, KIND
from longcrawl.io import structured
from longcrawl.io.file_systems import fetch, fetch_spans, sizes_of
from longcrawl.loading.window_files import TokenFile
from longcrawl.urls import is_url

SPLITS = ("train", "val")
"""Folders of an output of longcrawl."""

SEARCHED_TOKENS = 1 << 22
"""In which an end of text is looked for; no document is nearly as long."""


@dataclass(frozen=True)
class TokenFacts:
    """What an output has recorded of its tokens; nothing of tokens that are in no output.

    Attributes:
        file: the description that says it.
        end_of_text: the id that documents end with.
        vocabulary_size: ids are below it.
        tokenizer: its fingerprint.
    """

    file: str = ""
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    tokenizer: str | None = None

    def check_end_of_text(self, token: int | None, types: Iterable["np.dtype[Any]"]) -> None:
        """Check an end of text against the one that is recorded, or else against the types of stored tokens."""
        if token is None:
            return
        if self.end_of_text is not None and token != self.end_of_text:
            raise LoaderError(
                f"end_of_text is {token:,} and {self.file} records {self.end_of_text:,}: leave end_of_text out"
            )
        if self.end_of_text is None:
            _check_id("end_of_text", token, self._limit(token, None, types))

    def check_vocabulary(self, vocabulary_size: int | None) -> None:
        """Check a vocabulary against the one that is recorded; a larger one is that of a padded embedding."""
        if vocabulary_size is not None and self.vocabulary_size is not None and vocabulary_size < self.vocabulary_size:
            raise LoaderError(
                f"vocabulary_size is {vocabulary_size:,} and {self.file} records {self.vocabulary_size:,}: leave "
                "vocabulary_size out"
            )

    def check_padding(
        self, token: int | None, vocabulary_size: int | None, types: Iterable["np.dtype[Any]"], made: Any = np.int64
    ) -> None:
        """Check that an id of padding is one of the vocabulary, or else of the ``types`` that tokens are stored in.

        Raises:
            LoaderError: it is not, or is none of ``made``, the type of tokens in a batch.
        """
        if token is not None:
            limit, what = self._limit(token, vocabulary_size, types)
            most = int(np.iinfo(made).max) + 1
            _check_id("pad_token", token, (limit, what) if limit <= most else (most, f"{np.dtype(made)} tokens"))

    def _limit(self, token: int, vocabulary_size: int | None, types: Iterable["np.dtype[Any]"]) -> tuple[int, str]:
        """Return what ids are below, and of what; types are looked at until one holds the token."""
        if vocabulary_size is not None:
            return vocabulary_size, f"a vocabulary of {vocabulary_size:,}"
        if self.vocabulary_size is not None:
            return self.vocabulary_size, f"the vocabulary of {self.vocabulary_size:,} that {self.file} records"
        limit, what = 0, "tokens"
        for each in types:
            limit, what = max((limit, what), (int(np.iinfo(each).max) + 1, f"{each} tokens"))
            if token < limit:
                break
        return limit, what


def _check_id(name: str, token: int, limit: tuple[int, str]) -> None:
    if not 0 <= token < limit[0]:
        raise LoaderError(f"{name} {token} is not an id of {limit[1]}: set it from 0 to {limit[0] - 1:,}")


def recorded_facts(paths: Sequence[str]) -> TokenFacts:
    """Return what the outputs that shards belong to have recorded.

    Raises:
        LoaderError: two outputs contradict each other.
        CorruptionError: a description was edited.
    """
    described: dict[str, _Description] = {}
    for folder, path in {path.rpartition("/")[0]: path for path in paths}.items():
        for output in _outputs(folder):
            found = None if output in described else _read_description(output, path)
            if found is not None:
                described[output] = found
    facts = [
        TokenFacts(each.file, *(each.content.get(name) for name in ("end_of_text", "vocabulary_size", "tokenizer")))
        for each in described.values()
    ]
    for one, other in pairwise(facts):
        for name in ("end_of_text", "vocabulary_size", "tokenizer"):
            if getattr(one, name) != getattr(other, name):
                raise LoaderError(
                    f"{one.file} and {other.file} record different values of {name}, {getattr(one, name)!r} and "
                    f"{getattr(other, name)!r}: open one of them at a time"
                )
    return facts[0] if facts else TokenFacts()


def output_of(path: str) -> tuple[str, dict[str, Any]] | None:
    """Return the output that a shard belongs to, its folder and its description; None where there is none."""
    for output in _outputs(path.rpartition("/")[0]):
        found = _read_description(output, path)
        if found is not None:
            return output, found.content
    return None


class _Description(NamedTuple):
    """Where the description of an output lies, and what it says."""

    file: str
    content: dict[str, Any]


def _outputs(folder: str) -> Iterator[str]:
    """Yield the folders that may be the output of shards in a folder, the innermost first."""
    steps = (folder if is_url(folder) else str(Path(folder).absolute())).split("/")
    for place in range(len(steps) - 1, 0, -1):
        if steps[place] in SPLITS:
            yield "/".join(steps[:place])


def _read_description(output: str, path: str) -> _Description | None:
    """Read the description of token shards in a folder; None where there is none."""
    for name in (name for name in FORMATS.loaded() if path.endswith(FORMATS[name].suffix)):
        file = f"{output}/{name}.json"
        try:
            text = fetch(file) if is_url(file) else Path(file).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        content = structured.unsealed(text, file, "copy it back, or write the output again")
        if KIND in content:
            return _Description(file, content)
    return None


def warn_of_absent(token: int, where: object, blocks: Iterable[npt.NDArray[Any]]) -> None:
    """Warn of an end of text that does not occur in blocks of tokens, from the beginning of ``where`` on."""
    searched = 0
    for block in blocks:
        if (block == token).any():
            return
        searched += len(block)
        if searched >= SEARCHED_TOKENS:
            break
    warn_user(
        f"end_of_text {token:,} is not among the first {searched:,} tokens of {where}: check that it is the id that "
        "documents end with"
    )


def check_ids(ids: npt.NDArray[Any], vocabulary_size: int, where: Callable[[int, int], str]) -> None:
    """Check ids, integers [rows, length], at the moment at which they would go into a model.

    Raises:
        CorruptionError: one is not below ``vocabulary_size``; ``where`` names its row and place.
    """
    # As unsigned numbers, so that an id that did not fit is none of the vocabulary.
    unsigned = ids.view(f"u{ids.itemsize}")
    if unsigned.size and int(unsigned.max()) >= vocabulary_size:
        row, place = (int(each) for each in np.argwhere(unsigned >= vocabulary_size)[0])
        raise CorruptionError(
            f"{where(row, place)} has id {int(unsigned[row, place]):,}, the vocabulary has {vocabulary_size:,}: check "
            "vocabulary_size, and that the data are of this tokenizer"
        )


BLOCK = 4096
"""Bytes that are looked at in one place of a file."""

MOST_BLOCKS = 1024
"""Places that are looked at in all files of tokens together; of each, the first and the last bytes are."""

BLOCKS_OF_FILE = 256
"""Places of one file at most."""

GROUPS = 256
"""Digests in a state at most; of more files than that, several share one."""

SAMPLES = 64
"""Stretches of rows that a state of a rectangle describes, spread over all of them."""

SAMPLE_TOKENS = 64


@dataclass(frozen=True)
class _Part:
    """A file to look at: of which file of tokens it is, where, and its bytes."""

    file: int
    path: str
    size: int


def data_identity(files: Sequence[TokenFile]) -> dict[str, Any]:
    """Describe files by sizes and samples, in order, wherever they lie: ``files``, ``bytes`` and ``data``."""
    digests = [blake2b(f"{file.size}\0{file.tokens}\0".encode(), digest_size=8) for file in files]
    parts = [_Part(number, file.path, file.size) for number, file in enumerate(files)]
    for part, content in _samples([*parts, *_beside(parts)], MOST_BLOCKS // max(len(files), 1)):
        digests[part.file].update(f"{part.size}\0".encode())
        digests[part.file].update(content)
    whole = [digest.digest() for digest in digests]
    groups = [blake2b(b"".join(whole[first:last]), digest_size=8).hexdigest() for first, last in _groups(len(whole))]
    return {"files": len(files), "bytes": sum(file.size for file in files), "data": groups}


def data_changes(was: Mapping[str, Any], now: Mapping[str, Any], files: Sequence[TokenFile]) -> list[str]:
    """Describe in which way data are not those that an identity describes; nothing where they are."""
    was = was if isinstance(was, Mapping) else {}
    changed = [
        f"{name} was {was.get(name)!r} and is {now[name]!r}"
        for name in ("files", "bytes")
        if was.get(name) != now[name]
    ]
    if was.get("files") == now["files"] and was.get("data") != now["data"]:
        changed.append(f"size, sampled, first or last bytes changed of {_changed_files(was, now, files)}")
    return changed


def changed_values(state: Mapping[str, Any], now: Mapping[str, Any], apart: Collection[str] = ()) -> list[str]:
    """Describe which of the values now, but for those ``apart``, are not those of a state, which has them all."""
    return [
        f"{name} was {state[name]!r} and is {value!r}"
        for name, value in now.items()
        if name not in apart and state[name] != value
    ]


def _changed_files(was: Mapping[str, Any], now: Mapping[str, Any], files: Sequence[TokenFile]) -> str:
    groups = _groups(len(files))
    before = was["data"] if isinstance(was.get("data"), Sequence) and len(was["data"]) == len(groups) else groups
    first, last = next(group for one, other, group in zip(before, now["data"], groups, strict=True) if one != other)
    named = files[first].path if last - first == 1 else f"a file from {files[first].path} to {files[last - 1].path}"
    return f"{named} or its index or loss mask" if any(_names_beside(file.path) for file in files) else named


def _groups(count: int) -> list[tuple[int, int]]:
    size = max(-(-count // GROUPS), 1)
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def _names_beside(path: str) -> list[str]:
    """Name the files that say where the documents of a file of tokens end, and which tokens' loss counts."""
    if path.endswith(datatrove.SUFFIX):
        return [f"{path}{datatrove.INDEX}", f"{path}{datatrove.LOSS}"]
    return [f"{path.removesuffix(gpt_simple.SUFFIX)}.idx"] if path.endswith(gpt_simple.SUFFIX) else []


def _beside(parts: Sequence[_Part]) -> list[_Part]:
    """Find the files beside those of tokens."""
    named = [(part.file, name) for part in parts for name in _names_beside(part.path)]
    if not named or not is_url(parts[0].path):
        return [_Part(file, name, Path(name).stat().st_size) for file, name in named if Path(name).is_file()]
    sizes = sizes_of([name for _, name in named])
    return [_Part(file, name, size) for (file, name), size in zip(named, sizes, strict=True) if size is not None]


def _samples(parts: Sequence[_Part], blocks: int) -> Iterator[tuple[_Part, bytes]]:
    """Read every part in so many places, the first and the last bytes among them."""
    places = [_places(part.size, min(max(blocks, 2), BLOCKS_OF_FILE)) for part in parts]
    if parts and is_url(parts[0].path):
        contents = fetch_spans(
            [(part.path, start, stop) for part, spans in zip(parts, places, strict=True) for start, stop in spans]
        )
        for part, spans in zip(parts, places, strict=True):
            yield part, b"".join(next(contents) for _ in spans)
        return
    for part, spans in zip(parts, places, strict=True):
        yield part, _read(part.path, spans)


def _places(size: int, blocks: int) -> list[tuple[int, int]]:
    """Return the bytes to look at, from and to."""
    if size <= blocks * BLOCK:
        return [(0, size)] if size else []
    starts = [(size - BLOCK) * block // (blocks - 1) for block in range(blocks)]
    return [(start, start + BLOCK) for start in starts]


def _read(path: str, spans: Sequence[tuple[int, int]]) -> bytes:
    with Path(path).open("rb", buffering=0) as opened:
        parts = []
        for start, stop in spans:
            opened.seek(start)
            parts.append(opened.read(stop - start))
        return b"".join(parts)


def sample_digests(array: SplitArray, mask: SplitArray | None) -> list[str | None]:
    """Digest samples of all rows and of their loss mask; None for one in a damaged chunk, whose batch is an error."""
    arrays = [each for each in (array, mask) if each is not None]
    # Far away, chunks are fetched at the same time.
    with ThreadPoolExecutor(16 if is_url(array.root) else 1) as threads:
        return list(threads.map(partial(_sample_digest, arrays), _sample_places(array.shape)))


def sample_changes(was: Any, now: Sequence[str | None], shape: tuple[int, int]) -> list[str]:
    """List how samples of a rectangle differ from those of a state; what a damaged chunk hides is not compared."""
    if not isinstance(was, list) or len(was) != len(now):
        return [f"samples of the data were {was!r:.40} and are {len(now):,} digests"]
    for (row, column), one, other in zip(_sample_places(shape), was, now, strict=True):
        if one != other and one is not None and other is not None:
            return [f"tokens or loss mask changed in row {row:,}, from token {column:,} on"]
    return []


def _sample_places(shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Return row and column of each sample, the first of all among them; rows evenly, columns scattered."""
    count, last = min(SAMPLES, shape[0]), max(shape[1] - SAMPLE_TOKENS, 0)
    rows = (number * (shape[0] - 1) // max(count - 1, 1) for number in range(count))
    return [(row, number * 40_503 % 65_536 * last // 65_535) for number, row in enumerate(rows)]


def _sample_digest(arrays: Sequence[SplitArray], place: tuple[int, int]) -> str | None:
    digest = blake2b(digest_size=4)
    try:
        for array in arrays:
            digest.update(_stretch(array, *place, min(SAMPLE_TOKENS, array.shape[1])).astype("<u4").tobytes())
    except CorruptionError:
        return None
    return digest.hexdigest()


def _stretch(array: SplitArray, row: int, column: int, length: int) -> npt.NDArray[Any]:
    """Read tokens of one row, whatever chunks they are in."""
    height, width = array.layout.chunks
    chunks = range(column // width, (column + length - 1) // width + 1)
    read = np.concatenate([array.read_chunk(row // height, chunk)[row % height] for chunk in chunks])
    return np.asarray(read[column - chunks[0] * width :][:length])
