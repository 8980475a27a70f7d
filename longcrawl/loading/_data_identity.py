"""What the state of a feed says of its data, and in which words data are refused that are not the same.

Data are identified by sizes, edges and samples of files, in order, also of the files beside them that say where
documents end and which tokens' loss counts. That costs at most some 1,000 reads of 4,096 bytes, or two for each file,
and nothing for a document. Files of up to 1 MiB are read whole, as long as there are four or fewer; of larger ones,
and of more, bytes may change between the samples without being noticed.

Rectangles are identified by samples of their tokens, not of their files, so that a copy in other chunks is the same.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError
from longcrawl.formats.rectangle.spec import SplitArray
from longcrawl.formats.shards import datatrove, gpt_simple
from longcrawl.loading._window_files import TokenFile
from longcrawl.storage.file_systems import fetch_spans, sizes_of
from longcrawl.urls import is_url

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
