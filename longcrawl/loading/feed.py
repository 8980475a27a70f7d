"""Feeds: batches by step, resumable state, the identity of their data, and the documents in a batch.

A step is named by the position at which it begins, which is the same on every rank. ``batch = feed.read(step)`` is a
pure function that returns this rank's part of the step.

Data are identified by the order, sizes, first and last bytes, and samples of their files, including files of document
ends and loss masks. This takes at most about 1,000 reads of 4,096 bytes, or two per file. Changes between the samples
are not noticed. Rectangles are identified by samples of their tokens instead of their files.
"""

import hashlib
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.registry import fields_html, short_repr
from longcrawl.errors import CorruptionError, LoaderError, as_lines, check_word, quoted, unreadable, warn_user
from longcrawl.formats.buckets.spec import FILE_DOCUMENTS, ComposedBucket
from longcrawl.formats.rectangle.spec import SplitArray
from longcrawl.formats.shards import datatrove, gpt_simple, levanter, olmo_core
from longcrawl.formats.shards.shard import FOUND, ORIGINS
from longcrawl.formats.shards.spec import FORMATS, KIND, STARTS
from longcrawl.io import structured
from longcrawl.io.file_systems import fetch, fetch_spans, open_ranges
from longcrawl.io.files import reread_when_changed
from longcrawl.io.stored_tables import DAMAGED, read_row, read_table
from longcrawl.loading.collators import for_transformers
from longcrawl.loading.window_files import TokenFile, file_sizes
from longcrawl.tokens.plan import Longs
from longcrawl.urls import is_url

SPLITS = ("train", "val", "validation")
"""Split folders of a longcrawl output."""
SEARCHED_TOKENS = 1 << 22
"""Tokens searched for an end of text; no document is nearly as long."""


@dataclass(frozen=True)
class TokenFacts:
    """Facts about tokens recorded in ``file``, the description of their output; unset for tokens without an output."""

    file: str = ""
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    tokenizer: str | None = None

    def check_end_of_text(self, token: int | None, types: Iterable["np.dtype[Any]"]) -> None:
        """Check an end of text against the recorded one or, if none is recorded, against the types of stored tokens."""
        if token is None:
            return
        if self.end_of_text is not None and token != self.end_of_text:
            raise LoaderError(
                f"end_of_text is {token:,} and {self.file} records {self.end_of_text:,}: remove end_of_text"
            )
        if self.end_of_text is None:
            _check_id("end_of_text", token, self._limit(token, None, types))

    def check_vocabulary(self, vocabulary_size: int | None) -> None:
        """Check a vocabulary against the recorded one; it may be larger, as for a padded embedding."""
        if vocabulary_size is not None and self.vocabulary_size is not None and vocabulary_size < self.vocabulary_size:
            raise LoaderError(
                f"vocabulary_size is {vocabulary_size:,} and {self.file} records {self.vocabulary_size:,}: "
                "remove vocabulary_size"
            )

    def check_padding(
        self, token: int | None, vocabulary_size: int | None, types: Iterable["np.dtype[Any]"], made: Any = np.int64
    ) -> None:
        """Check that a padding id is in the vocabulary or, if that is unknown, fits the ``types`` of stored tokens.

        It must also fit ``made``, the type of tokens in a batch.
        """
        if token is not None:
            limit, what = self._limit(token, vocabulary_size, types)
            most = int(np.iinfo(made).max) + 1
            _check_id("pad_token", token, (limit, what) if limit <= most else (most, f"{np.dtype(made)} tokens"))

    def _limit(self, token: int, vocabulary_size: int | None, types: Iterable["np.dtype[Any]"]) -> tuple[int, str]:
        """Return the exclusive limit of ids and its name; reads types only until one can hold the token."""
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
    """Return the facts recorded by the outputs that shards belong to; raise a LoaderError if they differ."""
    described: dict[str, TokenFacts] = {}
    names = ("end_of_text", "vocabulary_size", "tokenizer")
    for path in {path.rpartition("/")[0]: path for path in paths}.values():
        for output, file, content in _descriptions(path, described):
            described[output] = TokenFacts(file, *(content.get(name) for name in names))
    facts = list(described.values())
    for one, other in pairwise(facts):
        for name in names:
            if getattr(one, name) != getattr(other, name):
                raise LoaderError(
                    f"{one.file} and {other.file} record different values of {name}, {getattr(one, name)!r} and "
                    f"{getattr(other, name)!r}: open one of them at a time"
                )
    return facts[0] if facts else TokenFacts()


def _descriptions(path: str, known: Collection[str] = ()) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield folder, description file and its content of the outputs around a shard, innermost first."""
    folder = path.rpartition("/")[0]
    steps = (folder if is_url(folder) else str(Path(folder).absolute())).split("/")
    outputs = ["/".join(steps[:place]) for place in range(len(steps) - 1, 0, -1) if steps[place] in SPLITS]
    for output in (each for each in outputs if each not in known):
        for name in (name for name in FORMATS.loaded() if path.endswith(FORMATS[name].suffix)):
            file = f"{output}/{name}.json"
            try:
                text = fetch(file) if is_url(file) else Path(file).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            content = structured.unsealed(text, file, "restore it, or write the output again")
            if KIND in content:
                yield output, file, content
                break


def warn_of_absent(token: int, where: object, blocks: Iterable[npt.NDArray[Any]]) -> None:
    """Warn if an end of text is not among the first ``SEARCHED_TOKENS`` of blocks; ``where`` names their source."""
    searched = 0
    for block in blocks:
        if (block == token).any():
            return
        searched += len(block)
        if searched >= SEARCHED_TOKENS:
            break
    warn_user(
        f"end_of_text {token:,} is not found in the first {searched:,} tokens of {where}: check that it is the id that "
        "documents end with"
    )


def check_ids(ids: npt.NDArray[Any], vocabulary_size: int, where: Callable[[int, int], str]) -> None:
    """Raise a CorruptionError if an id of a batch, [rows, length], is too large; ``where`` names its row and column."""
    # As unsigned numbers, negative ids are also outside of the vocabulary.
    unsigned = ids.view(f"u{ids.itemsize}")
    if unsigned.size and int(unsigned.max()) >= vocabulary_size:
        row, place = (int(each) for each in np.argwhere(unsigned >= vocabulary_size)[0])
        raise CorruptionError(
            f"{where(row, place)} has id {int(unsigned[row, place]):,}, the vocabulary has {vocabulary_size:,}: check "
            "vocabulary_size, and that the data are of this tokenizer"
        )


BLOCK = 4096
"""Bytes per sample of a file."""
MOST_BLOCKS = 1024
"""Maximum number of samples of all token files together; the first and last bytes of each file are always sampled."""
BLOCKS_OF_FILE = 256
"""Most samples in one file."""
GROUPS = 256
"""Maximum number of digests in a state; with more files, several share a digest."""
SAMPLES = 64
"""Maximum number of stretches of a rectangle in a state, spread over all rows."""
SAMPLE_TOKENS = 64


class _Part(NamedTuple):
    """A file to sample: the index of its token file, its path, and its size in bytes."""

    file: int
    path: str
    size: int


def data_identity(files: Sequence[TokenFile]) -> dict[str, Any]:
    """Describe files by sizes and samples, in order and regardless of location: ``files``, ``bytes`` and ``data``."""
    digests = [blake2b(f"{file.size}\0{file.tokens}\0".encode(), digest_size=8) for file in files]
    parts = [_Part(number, file.path, file.size) for number, file in enumerate(files)]
    for part, content in _samples([*parts, *_beside(parts)], MOST_BLOCKS // max(len(files), 1)):
        digests[part.file].update(f"{part.size}\0".encode() + content)
    whole = [digest.digest() for digest in digests]
    groups = [blake2b(b"".join(whole[first:last]), digest_size=8).hexdigest() for first, last in _groups(len(whole))]
    return {"files": len(files), "bytes": sum(file.size for file in files), "data": groups}


def data_changes(was: Mapping[str, Any], now: Mapping[str, Any], files: Sequence[TokenFile]) -> list[str]:
    """List the differences between data and an identity; the list is empty if they match."""
    was = was if isinstance(was, Mapping) else {}
    changed = changed_values(was, now, apart=("data",))
    if was.get("files") == now["files"] and was.get("data") != now["data"]:
        changed.append(f"size, sampled, first or last bytes changed of {_changed_files(was, now, files)}")
    return changed


def changed_values(state: Mapping[str, Any], now: Mapping[str, Any], apart: Collection[str] = ()) -> list[str]:
    """List current values that differ from those of a state, except those in ``apart``."""
    return [
        f"{name} was {state.get(name)!r} and is {value!r}"
        for name, value in now.items()
        if name not in apart and state.get(name) != value
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
    """Name the files beside a token file that record document ends and loss masks."""
    if path.endswith(datatrove.SUFFIX):
        return [f"{path}{datatrove.INDEX}", f"{path}{datatrove.LOSS}"]
    if path.endswith(olmo_core.SUFFIX):
        stem = path.removesuffix(olmo_core.SUFFIX)
        return [f"{stem}{olmo_core.ROWS}", f"{stem}{olmo_core.LOSS}"]
    if path.endswith(levanter.SUFFIX):
        return [f"{path.removesuffix(levanter.SUFFIX)}{name}" for name in levanter.OTHER_FILES]
    return [f"{path.removesuffix(gpt_simple.SUFFIX)}.idx"] if path.endswith(gpt_simple.SUFFIX) else []


def _beside(parts: Sequence[_Part]) -> list[_Part]:
    named = [(part.file, name) for part in parts for name in _names_beside(part.path)]
    sizes = file_sizes([name for _, name in named]) if named else []
    return [_Part(file, name, size) for (file, name), size in zip(named, sizes, strict=True) if size is not None]


def _samples(parts: Sequence[_Part], blocks: int) -> Iterator[tuple[_Part, bytes]]:
    """Read up to ``blocks`` samples of every part, including the first and the last bytes."""
    places = [_places(part.size, min(max(blocks, 2), BLOCKS_OF_FILE)) for part in parts]
    if not (parts and is_url(parts[0].path)):
        for part, spans in zip(parts, places, strict=True):
            file = open_ranges(part.path)
            yield part, b"".join(file.read(start, stop - start) for start, stop in spans)
        return
    asked = [(part.path, *span) for part, spans in zip(parts, places, strict=True) for span in spans]
    contents = fetch_spans(asked)
    yield from ((part, b"".join(islice(contents, len(spans)))) for part, spans in zip(parts, places, strict=True))


def _places(size: int, blocks: int) -> list[tuple[int, int]]:
    if size <= blocks * BLOCK:
        return [(0, size)] if size else []
    starts = [(size - BLOCK) * block // (blocks - 1) for block in range(blocks)]
    return [(start, start + BLOCK) for start in starts]


def sample_digests(array: SplitArray, mask: SplitArray | None) -> list[str | None]:
    """Digest samples of rows and of their loss mask; the digest is None for a sample in a damaged chunk."""
    arrays = [each for each in (array, mask) if each is not None]
    # Remote chunks are fetched concurrently.
    with ThreadPoolExecutor(16 if is_url(array.root) else 1) as threads:
        return list(threads.map(partial(_sample_digest, arrays), _sample_places(array.shape)))


def sample_changes(was: Any, now: Sequence[str | None], shape: tuple[int, int]) -> list[str]:
    """List the differences between samples of a rectangle and those of a state, except in damaged chunks."""
    if not isinstance(was, list) or len(was) != len(now):
        return [f"samples of the data were {was!r:.40} and are {len(now):,} digests"]
    for (row, column), one, other in zip(_sample_places(shape), was, now, strict=True):
        if one != other and one is not None and other is not None:
            return [f"tokens or loss mask changed in row {row:,}, from token {column:,} on"]
    return []


def _sample_places(shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Return row and column of each sample, the very first token included; rows evenly spaced, columns scattered."""
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
    height, width = array.layout.chunks
    chunks = range(column // width, (column + length - 1) // width + 1)
    read = np.concatenate([array.read_chunk(row // height, chunk)[row % height] for chunk in chunks])
    return np.asarray(read[column - chunks[0] * width :][:length])


REMEMBERED = 16
"""Document tables kept in memory, each of one shard."""


@dataclass(frozen=True)
class Origin:
    """A part of a batch row from a single document; fields without a recorded value are None.

    Attributes:
        row: row of the batch.
        start, stop: first column of the part and the one after it, in ``input_ids`` or a rectangle's ``targets``.
        token: index of the first token within its document, counted from 0, including an end of text before it.
        stored_in: file of tokens, array, or JSON lines that are tokenised during training.
        entry: row, entry or sample in ``stored_in``; for JSON lines the line, counted from 0.
        document, url, date, source: id, URL, date of the crawl and origin of the document, as its source spells them.
        file, offset: file of the source, and first byte of the document's record in it.
        roll: number of tokens by which the row is rolled.
        seam: column at which the document's beginning follows its end, or None if the row of the batch has none.
    """

    row: int
    start: int
    stop: int
    token: int
    stored_in: str
    entry: int
    document: str | None = None
    url: str | None = None
    date: str | None = None
    source: str | None = None
    file: str | None = None
    offset: int | None = None
    roll: int | None = None
    seam: int | None = None

    __repr__ = short_repr

    def __str__(self) -> str:
        tokens = f"tokens {self.token:,} to {self.token + self.stop - self.start - 1:,}"
        lines = [f"{self.start:,}-{self.stop - 1:,}  {self.document or 'a document without an id'}, {tokens}"]
        lines += [f"  {name}  {value}" for name in ("url", "date", "source") if (value := getattr(self, name))]
        if self.file is not None:
            lines.append(f"  file  {self.file}" + ("" if self.offset is None else f", byte {self.offset:,}"))
        if self.roll is not None:
            seam = "" if self.seam is None else f"; its first token follows its last at column {self.seam:,}"
            lines.append(f"  rolled by {self.roll:,}{seam}")
        return as_lines([*lines, f"  stored in {self.stored_in}, entry {self.entry:,}"])


def recorded_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the origin fields in a row of a document table, as strings and an integer ``offset``."""
    named = {"document": document.get("id")} | {name: document.get(name) for name in ("url", *FOUND[:-1])}
    offset = document.get("offset")
    texts = {name: None if value is None else str(value) for name, value in named.items()}
    return texts | {"offset": offset if isinstance(offset, int) else None}


@dataclass(frozen=True, eq=False)
class ShardDocuments:
    """Documents of one shard, as recorded by its output: a table with a row per document, or no rows."""

    table: pa.Table
    stride: int = 0
    """Tokens from one window of a long document to the next."""

    @cached_property
    def _firsts(self) -> Longs:
        """First entry of each document: int64 [documents]."""
        if "entry" not in self.table.column_names:
            return np.arange(self.table.num_rows)
        return np.asarray(self.table["entry"].to_numpy(), np.int64)

    def find(self, entry: int) -> tuple[dict[str, Any], int]:
        """Return the recorded fields of an entry's document, and the entry's first token counted in the document."""
        if not self.table.num_rows:
            return {}, 0
        row = int(np.searchsorted(self._firsts, entry, "right")) - 1
        document = self.table.slice(row, 1).to_pylist()[0]
        window, starts = entry - int(self._firsts[row]), document.get(STARTS)
        return recorded_fields(document), starts[window] if starts and window else window * self.stride


@reread_when_changed(size=REMEMBERED)
def shard_documents(path: str) -> ShardDocuments:
    """Return the recorded documents of a shard, from the output around it or from its own columns."""
    folder, _, described = next(_descriptions(path), ("", "", {}))
    if not folder:
        return ShardDocuments(_own_columns(path))
    inside = (path if is_url(path) else str(Path(path).absolute())).removeprefix(f"{folder}/")
    name = f"documents/{inside.rpartition('.')[0]}.parquet"
    if name not in described["files"]:
        return ShardDocuments(pa.table({}))
    table = _remote_table(folder, name, described) if is_url(folder) else read_table(Path(folder, name))
    return ShardDocuments(table, (described.get("max_length") or 0) - (described.get("overlap_size") or 0))


def _own_columns(path: str) -> pa.Table:
    """Read the document columns beside the tokens of a local Parquet shard; other shards have none."""
    if not path.endswith(".parquet") or is_url(path):
        return pa.table({})
    with unreadable(path, CorruptionError, DAMAGED):
        names = [name for name in (*ORIGINS, *FOUND) if name in pq.read_schema(path).names]
    return read_table(Path(path), names) if names else pa.table({})


def _remote_table(folder: str, name: str, described: Mapping[str, Any]) -> pa.Table:
    url = f"{folder}/{name}"
    try:
        content = fetch(url)
    except FileNotFoundError as missing:
        raise CorruptionError(f"{url} is missing, which records where tokens come from; restore it") from missing
    if hashlib.sha256(content).hexdigest() != described["files"][name]["sha256"]:
        raise CorruptionError(f"{url} has been changed: its SHA-256 differs from the one recorded; copy it again")
    with unreadable(url, CorruptionError, DAMAGED):
        return pq.read_table(pa.BufferReader(content))


def entry_origins(path: str, ends: Longs | None, row: int, column: int, first: int, stop: int) -> Iterator[Origin]:
    """Yield the origins of tokens ``first:stop`` of a shard, entry by entry, in a row of the batch from a column on.

    ``ends`` has the end of each entry: int64 [entries], or None if unknown.
    """
    if ends is None:
        if stop > first:
            yield Origin(row, column, column + stop - first, first, path, 0)
        return
    documents = shard_documents(path)
    entry, shift = int(np.searchsorted(ends, first, "right")), column - first
    while first < stop:
        end = min(int(ends[entry]), stop)
        if end > first:
            recorded, token = documents.find(entry)
            token += first - (int(ends[entry - 1]) if entry else 0)
            yield Origin(row, first + shift, end + shift, token, path, entry, **recorded)
        first, entry = max(end, first), entry + 1


def sample_origins(bucket: object, sample: int, row: int) -> Iterator[Origin]:
    """Yield the origins of a sample of a composed dataset, piece by piece."""
    if not isinstance(bucket, ComposedBucket):
        raise LoaderError("a composed dataset in memory records no origins: write it with to_composed, and open that")
    file = Path(bucket.root) / "pieces" / bucket.path / f"{sample // bucket.file_samples:05d}.parquet"
    column, split = 0, bucket.path.rpartition("/")[0]
    for piece in read_table(file, condition=pc.field("sample") == sample).to_pylist():
        number, place = divmod(piece["document"], FILE_DOCUMENTS)
        documents = Path(bucket.root) / "documents" / split / f"{number:05d}.parquet"
        recorded = recorded_fields(read_row([documents], place) or piece)
        stop = column + piece["length"]
        yield Origin(row, column, stop, piece["start"], f"{bucket.root}/{bucket.path}", sample, **recorded)
        column = stop


def rolled_origins(
    row: int, columns: range, length: int, stored: tuple[str, int], document: Mapping[str, Any] | None
) -> Iterator[Origin]:
    """Yield the origins of some columns of a rectangle's row: two if the row's seam is among them, else one.

    ``stored`` is the array, and the row in it; ``document`` is the document's row in the table of rows, if any.
    """
    recorded = {} if document is None else recorded_fields(document) | {"roll": document.get("roll")}
    shift, first = recorded.get("roll") or 0, columns.start
    seam = shift - first if first < shift < columns.stop else None
    borders = [first, columns.stop] if seam is None else [first, shift, columns.stop]
    for start, stop in pairwise(borders):
        yield Origin(row, start - first, stop - first, (start - shift) % length, *stored, **recorded, seam=seam)


Item = TypeVar("Item")
Index = int | slice | Iterable[int]


class IndexTypeError(LoaderError, TypeError):
    """Error for an index that is neither an integer nor several integers."""


def items(index: Index, count: int | None, one: Callable[[int], Item], what: str = "batch") -> Item | list[Item]:
    """Return the item ``one(index)``, or the list of items for a slice or several integers.

    Negative indices count from the end, unless the ``count`` of items is unknown. Messages call an item ``what``.

    Raises:
        IndexTypeError: an index is not an integer, or is a bool.
        IndexError: an index is out of range.
    """
    if isinstance(index, slice):
        return [one(number) for number in range(count)[index]] if count is not None else _open_slice(index, one, what)
    if getattr(index, "ndim", 0) == 0 and not isinstance(index, list | tuple | range):
        return one(_from_start(whole_number(index), count, what))
    return [one(_from_start(whole_number(number), count, what)) for number in index]  # type: ignore[union-attr]  # no number


def whole_number(index: Any) -> int:
    """Return an integer of any library as a Python int; raise IndexTypeError for anything else."""
    try:
        if not (isinstance(index, bool) or "bool" in str(getattr(index, "dtype", ""))):
            return operator.index(index)
    except TypeError:
        pass
    raise IndexTypeError(
        f"the index {quoted(index)} is not a whole number ({type(index).__name__}): give a number, a slice or a list "
        "of numbers"
    )


def whole_numbers(places: Any) -> Longs:
    """Return several integers as int64; raise IndexTypeError for anything else."""
    array = np.asarray(places)
    if array.dtype.kind not in "iu" and array.size:
        raise IndexTypeError(f"places are {array.dtype}: give whole numbers")
    return array.astype(np.int64, copy=False)


def _from_start(number: int, count: int | None, what: str) -> int:
    if count is None:
        if number < 0:
            raise IndexError(f"{what} {number:,}: they are counted from 0, since their number is not known")
        return number
    if not -count <= number < count:
        raise IndexError(f"{what} {number:,} of {count:,}: they are counted from 0 to {count - 1:,}")
    return number % count


def _open_slice(index: slice, one: Callable[[int], Item], what: str) -> list[Item]:
    start, stop, step = (None if part is None else whole_number(part) for part in (index.start, index.stop, index.step))
    if stop is None or min(start or 0, stop, step or 1) < 0 or step == 0:
        raise IndexError(f"{what} {index}: they are counted from 0, since their number is not known; give [0:10] or so")
    found = []
    for number in range(start or 0, stop, step or 1):
        try:
            found.append(one(number))
        except IndexError:
            break
    return found


Items = Literal["batches", "rows"]
"""Unit that :meth:`Feed.iterable` yields."""


def rows_of(batch: dict[str, Any]) -> list[dict[str, npt.NDArray[Any]]]:
    """Return each row of a batch of any feed as a dictionary, in the form of ``collators.for_transformers``."""
    made = for_transformers(batch, tensors="numpy")
    del made["use_cache"]
    return [{name: values[row] for name, values in made.items()} for row in range(len(made["input_ids"]))]


class AskedOrder:
    """Detector of shuffling in the groups of indices that one loader process requests.

    In an unshuffled order, indices fall only at the start of a pass: below all earlier indices, or to an earlier start.

    >>> order = AskedOrder()
    >>> [order.follows(group) for group in ([4, 5], [8, 9], [0, 1], [4, 5], [2, 3])]
    [True, True, True, True, False]
    """

    def __init__(self) -> None:
        self._last = -1
        self._starts: set[int] = set()

    def follows(self, group: list[int]) -> bool:
        """Record a group, and return whether it is in order."""
        first = group[0]
        # A loader of several ranks pads its last group with the first indices.
        inside = all(after in (before + 1, 0) for before, after in pairwise(group))
        if first < min(self._starts, default=first + 1):
            self._starts.add(first)
        rises = first >= self._last or first in self._starts
        self._last = first
        return inside and rises


def check_alone(feed: "Feed", workers: int = 0) -> None:
    """Check that only the DataLoader divides batches among ranks, and that its workers keep the order of rows."""
    if feed.world_size > 1:
        raise LoaderError(
            f"the DataLoader divides batches among ranks, and this feed has world_size={feed.world_size}: open it "
            "without rank and world_size, or use feed.dataloader()"
        )
    if workers > 1:
        raise LoaderError(
            f"the order of iterable('rows') would depend on the {workers} workers: set num_workers "
            "(dataloader_num_workers) to 0 or 1"
        )


def check_asked(feed: "Feed", indices: list[int]) -> None:
    """Check that only one of DataLoader and feed handles ranks and batches, and that the feed's order is kept."""
    check_alone(feed)
    if len(indices) > 1 and feed.most_rows > 1:
        or_its_own = " or of the feed" if hasattr(feed, "batch_size") else ""
        raise LoaderError(
            f"the DataLoader asks for {len(indices)} batches of up to {feed.most_rows} rows at once: set "
            f"batch_size (per_device_train_batch_size) of the DataLoader{or_its_own} to 1"
        )
    order: AskedOrder = vars(feed).setdefault("_asked", AskedOrder())
    if order.follows(indices):
        return
    shuffled = (
        f"the DataLoader asks for batches of {feed.source_name} in another order than the feed's: set shuffle=False, "
        "or train_sampling_strategy='sequential' in TrainingArguments"
    )
    if feed.ordered:
        raise LoaderError(f"{shuffled}, as a curriculum or schedule is such an order")
    warn_user(f"{shuffled}, unless that is intended")


class FeedLoader:
    """Loader of torch tensors in the order of a feed; each of ``num_workers`` processes has its own caches."""

    def __init__(self, feed: "Feed", num_workers: int, options: dict[str, Any]) -> None:
        self._data = _torch_data("dataloader")
        taken = [name for name in options if name in feed.fixed_options]
        if taken:
            raise LoaderError(f"{', '.join(taken)} cannot be set, since {feed.fixed_because}: remove it")
        import torch

        # A loader draws a seed for its workers; drawn from torch's global generator, it would change dropout after a
        # resume.
        self._options = {"num_workers": num_workers, "generator": torch.Generator(), **options}
        self._feed = feed

    def __len__(self) -> int:
        """Count the batches of a full pass on this rank; the first pass after a resume is shorter."""
        return len(self._feed)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rest of the pass, or a new pass if the last one is complete."""
        pieces = self._data.DataLoader(_iterable_pieces(self._feed), batch_size=None, **self._options)
        for batch in self._feed.deliver(pieces):
            yield batch if "collate_fn" in self._options else self._data.default_convert(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the feed's state, for trainers that save the state of their loader, such as Lightning."""
        return self._feed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the feed from a state; see :meth:`Feed.load_state_dict`."""
        self._feed.load_state_dict(state)


def _torch_data(method: str) -> Any:
    try:
        import torch.utils.data
    except ImportError as missing:
        raise LoaderError(f'{method}() needs torch: pip install "longcrawl[torch]"') from missing
    return torch.utils.data


def _worker() -> tuple[int, int]:
    """Return the index of this worker process and the number of workers; both are 0 without workers."""
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    return (0, 0) if worker is None else (worker.id, worker.num_workers)


def _reader(feed: "Feed") -> dict[str, int]:
    worker, workers = _worker()
    names = [name for name in ("rank", "world_size", "batch_size") if hasattr(feed, name)]
    return {"num_workers": workers, "worker": worker, **feed.values_of(*names)}


def _iterable_pieces(feed: "Feed") -> Any:
    """Return a torch dataset of the pieces that worker processes make; the class is local because it needs torch."""

    class Pieces(_torch_data("dataloader").IterableDataset):  # type: ignore[misc]  # torch has no types here
        def __iter__(self) -> Iterator[Any]:
            worker, workers = _worker()
            return feed.pieces(worker, max(workers, 1))

        def __reduce__(self) -> tuple[Any, ...]:
            return _iterable_pieces, (feed,)

    return Pieces()


def _upcoming_items(
    feed: "Feed", items: Items, taken: int, row: int
) -> Iterator[tuple[dict[str, Any], tuple[int, int]]]:
    """Yield this worker's items after ``taken`` batches and ``row`` rows, each with the counts of both after it."""
    worker, workers = _worker()
    if items == "rows":
        check_alone(feed, workers)
    for batch in feed.upcoming(worker + taken * max(workers, 1), max(workers, 1)):
        parts = [batch] if items == "batches" else rows_of(batch)
        for number in range(row, len(parts) - 1):
            yield parts[number], (taken, number + 1)
        taken, row = taken + 1, 0
        yield parts[-1], (taken, row)


def iterable_items(feed: "Feed", items: Items) -> Any:
    """Return a torch dataset of a feed's batches or rows; the class is local because it needs torch."""

    class FeedItems(_torch_data("iterable").IterableDataset):  # type: ignore[misc]  # torch has no types here
        """Torch dataset in which worker w of n takes every n-th step from step w on; a loader asks workers in turn."""

        def __init__(self) -> None:
            super().__init__()
            self._resumed = self._taken = (0, 0)
            self._epoch = 0
            self._start = feed.state_dict()

        def set_epoch(self, epoch: int) -> None:
            """Select the pass of the next iteration, counted from 0 for the first; accelerate calls this."""
            self._epoch = epoch

        def __iter__(self) -> Iterator[dict[str, Any]]:
            feed.load_state_dict(self._start)
            for _ in range(self._epoch):
                feed.skip_pass()
            self._taken, self._resumed = self._resumed, (0, 0)
            for item, taken in _upcoming_items(feed, items, *self._taken):
                self._taken = taken
                yield item

        def state_dict(self) -> dict[str, Any]:
            taken, row = self._taken
            place = {"epoch": self._epoch, "taken": taken, "row": row}
            return {**_reader(feed), "items": items, **place, "start": self._start}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            changed = changed_values({"items": "batches", **state}, {**_reader(feed), "items": items})
            if changed:
                raise LoaderError(
                    f"this state is of one worker, and {', '.join(changed)}: keep a feed's own state_dict(), which "
                    "any of them can load"
                )
            self._start, self._epoch = state["start"], state["epoch"]
            self._taken = self._resumed = (state["taken"], state.get("row", 0))

        def __reduce__(self) -> tuple[Any, ...]:
            kept = {"_start": self._start, "_resumed": self._resumed, "_epoch": self._epoch}
            return iterable_items, (feed, items), kept

    return FeedItems()


Batch = dict[str, Any]
"""Arrays by name, as described in each feed."""
ORDER_OPTIONS = ("batch_sampler", "batch_size", "dataset", "drop_last", "in_order", "sampler", "shuffle")
"""DataLoader options that would change the order."""
STATE_VERSION = 1
"""Schema version of states."""


@dataclass(frozen=True)
class Status:
    """State of a feed, "running", "finished" or "halted", and the reason if it is halted."""

    state: Literal["running", "finished", "halted"]
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


class Feed(ABC):
    """Batches for one rank of a trainer, with a position that all ranks share."""

    kind: ClassVar[str]
    """Name of this kind of feed in states."""
    unit: ClassVar[str]
    """Unit of positions, counted over all ranks together."""
    fixed_options: ClassVar[tuple[str, ...]] = ORDER_OPTIONS
    fixed_because: ClassVar[str] = "order and batches are the loader's"

    rank: int
    world_size: int
    batch_size: int
    """Rows of a batch, if all batches have the same number."""

    __repr__ = short_repr
    _repr_html_ = fields_html

    @abstractmethod
    def read(self, step: int) -> Batch:
        """Return this rank's part of the step that begins at position ``step``."""

    @abstractmethod
    def origins_at(self, position: int) -> list[Origin]:
        """Return the documents of :meth:`read` at a position, row by row from left to right, without padding."""

    def origins(self, step: int) -> list[Origin]:
        """Return the documents of ``feed[step]``, this rank's batch ``step``, counted from 0."""
        return self.origins_at(self.position_of(step))

    def position_of(self, step: int) -> int:
        """Return the position at which a step begins; steps are counted from 0."""
        step = whole_number(step)
        if step < 0 or not (self.endless or step < len(self)):
            raise LoaderError(
                f"step {step} does not exist, only 0 to {len(self) - 1:,}: check the number and the feed's settings"
            )
        return step * self.step_size

    @property
    def endless(self) -> bool:
        """Whether the number of steps is unknown until they are read, or has no limit."""
        return self.batches_known is None

    @property
    def step_size(self) -> int:
        """Units by which a step moves the position: the rows of all ranks, unless the feed has another unit."""
        return self.batch_size * self.world_size

    @abstractmethod
    def stop(self, position: int) -> int:
        """Return the position at which the steps from ``position`` on end: the end of the plan or of the pass."""

    @abstractmethod
    def identity(self, position: int) -> Mapping[str, Any]:
        """Return the context of a position: settings, order and a description of the data."""

    @property
    def source_name(self) -> str:
        """Name of the data in messages."""
        return str(getattr(self, "path", "the data"))

    @property
    def position(self) -> int:
        """Units delivered to all ranks together, counted in ``unit``."""
        return int(vars(self).get("_position", 0))

    @property
    def most(self) -> int | None:
        """Last position, or None if passes repeat or the end is unknown."""
        return None

    def move_to(self, position: int) -> None:
        """Set the position without any checks."""
        vars(self)["_position"] = position

    def check_ranks(self, **least: int) -> None:
        """Check fields against their smallest allowed values, and the rank against the world size."""
        for name, number in {**least, "world_size": 1}.items():
            if getattr(self, name) < number:
                raise LoaderError(f"{name} is {getattr(self, name)}: set it to {number} or more")
        if not 0 <= self.rank < self.world_size:
            raise LoaderError(f"rank {self.rank} must be from 0 to world_size - 1 = {self.world_size - 1}")

    def values_of(self, *names: str) -> dict[str, Any]:
        """Return fields by name."""
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        """Count the steps of the whole plan, or of a pass."""
        return len(range(0, self.stop(0), self.step_size))

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice | Iterable[int]) -> list[Batch]: ...

    def __getitem__(self, index: Index) -> Batch | list[Batch]:
        """Return this rank's batch ``index`` of the plan or first pass, or a list of batches.

        A negative index counts from the end. The position does not change.
        """
        return items(index, self.batches_known, lambda step: self.read(step * self.step_size))

    def __getitems__(self, indices: list[int]) -> list[Batch]:
        """Return the rows of batches for a DataLoader that forms batches itself, such as that of transformers' Trainer.

        Each row has the fields of :func:`longcrawl.loading.collators.for_transformers`. The position does not change.

        Raises:
            LoaderError: the feed has ranks or batches of its own, or a curriculum that the DataLoader shuffles.
        """
        check_asked(self, indices)
        return [row for index in indices for row in rows_of(self[index])]

    @property
    def batches_known(self) -> int | None:
        """Number of batches that can be indexed, or None if it is unknown."""
        return len(self)

    @property
    def most_rows(self) -> int:
        """Most rows in a batch."""
        return self.batch_size

    @property
    def ordered(self) -> bool:
        """Whether the order of batches matters, as in a curriculum."""
        return False

    def remaining_steps(self) -> range:
        """Return the remaining steps of the plan or pass, or those of a new pass if the last one is complete."""
        return range(self.position, self.stop(self.position), self.step_size)

    def hand_out(self, step: int) -> None:
        """Record the delivery of a step to the trainer, which happens on all ranks at the same time."""
        self.move_to(step + self.step_size)

    def skip_pass(self) -> None:
        """Record the rest of the plan or pass as delivered."""
        for last in self.remaining_steps()[-1:]:
            self.hand_out(last)

    def upcoming(self, first: int, every: int) -> Iterator[Batch]:
        """Yield every ``every``-th remaining batch from number ``first`` on, without moving the position."""
        for step in self.remaining_steps()[first::every]:
            yield self.read(step)

    def pieces(self, worker: int, workers: int) -> Iterator[Any]:
        """Yield the input of :meth:`deliver` from one of several worker processes; by default, its batches."""
        return self.upcoming(worker, workers)

    def deliver(self, pieces: Iterable[Any]) -> Iterator[Batch]:
        """Yield batches in order from the pieces of all workers, and record each as delivered."""
        for step, batch in zip(self.remaining_steps(), pieces, strict=True):
            self.hand_out(step)
            yield batch

    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of the plan or pass, or the next pass if one is complete."""
        return self.deliver(self.pieces(0, 1))

    @property
    def status(self) -> Status:
        """Whether there is another step; the same on all ranks."""
        return Status("running" if len(self.remaining_steps()) else "finished")

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a resume, the same on every rank: the position, and its settings, order and data."""
        head = {"longcrawl_feed": STATE_VERSION, "kind": self.kind, "position": self.position}
        return {**head, **self.identity(self.position)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, taken with any world size, number of workers and batch size.

        Anything after the state may have changed, such as later phases of a curriculum.

        Raises:
            LoaderError: the state is from other data, another order or another kind of feed.
        """
        self.resume(self.compare(state))

    def compare(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state as a dict, counted in this feed's batch size; raise a LoaderError for another feed's state."""
        known = self._checked(state)
        changed = self.changes(known)
        if changed:
            raise LoaderError(
                f"this state does not match {self.source_name} as opened here: {', '.join(changed)}; open it the "
                "same way"
            )
        return known

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a complete state and this feed."""
        return changed_values(state, self.identity(state["position"]))

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take the position of a state that matches this feed."""
        self.move_to(state["position"])

    def _checked(self, state: Any) -> dict[str, Any]:
        """Return a copy of a state after checking its schema version, kind, names and position."""
        what, hint = f"a state of a {self.kind} feed", "pass what state_dict() returned"
        if not isinstance(state, Mapping):
            raise LoaderError(f"this is not {what}: it is {state!r}; {hint}")
        known = dict(state)
        if "longcrawl_feed" not in known:
            raise LoaderError(f"this is not {what}: it lacks longcrawl_feed; {hint}")
        if known["longcrawl_feed"] != STATE_VERSION:
            raise LoaderError(
                f"this is {what} of version {known['longcrawl_feed']!r}, but this longcrawl reads {STATE_VERSION}: "
                "resume with the longcrawl that wrote it, or start again"
            )
        if known.get("kind") != self.kind:
            raise LoaderError(f"this is not {what}: its kind is {known.get('kind')!r}; {hint}")
        missing = [name for name in ("position", *self.identity(0)) if name not in known]
        if missing:
            raise LoaderError(f"this is not {what}: it lacks {', '.join(missing)}; {hint}")
        position = known["position"]
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise LoaderError(f"position {position!r} of the state is not a number of {self.unit}: {hint}")
        known = self.recounted(known)
        position = known["position"]
        if self.most is not None and position > self.most:
            raise LoaderError(
                f"the state is at position {position:,} and there are {self.most:,} {self.unit} here: open the "
                "same data and curriculum"
            )
        return known

    def recounted(self, state: dict[str, Any]) -> dict[str, Any]:
        """Convert the position of a state to the unit of this feed; raise a LoaderError if that is impossible."""
        return state

    def dataloader(self, num_workers: int = 0, **options: Any) -> FeedLoader:
        """Return an iterable of torch tensors in the global order, read by ``num_workers`` processes.

        The loader updates this feed's state: ``state_dict()`` counts batches delivered to the trainer, not those that
        workers have read ahead. ``options`` are passed to ``torch.utils.data.DataLoader``.

        Raises:
            LoaderError: torch is not installed, or an option would change the order.
        """
        return FeedLoader(self, num_workers, options)

    def iterable(self, items: Items = "batches") -> Any:
        """Return a stateful ``torch.utils.data.IterableDataset`` of the remaining batches or rows of the plan or pass.

        In torchdata's ``StatefulDataLoader``, with ``batch_size=None``, it yields batches in the global order.
        Iterating again repeats the pass; after ``set_epoch(n)`` it yields the n-th pass after it. The dataset's state
        is valid for one rank and one number of workers; :meth:`state_dict` is valid for any.

        ``items="rows"`` is for loaders that form batches themselves, such as that of transformers' Trainer. It yields
        single rows, as :meth:`__getitems__` returns them, and allows at most one worker.

        Raises:
            LoaderError: torch is not installed, or ``items`` has another value.
        """
        check_word("items", items, Items, LoaderError)
        return iterable_items(self, items)
