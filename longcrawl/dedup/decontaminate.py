"""Decontamination: removes training documents, or passages of them, that share n-grams with evaluation sets.

Sources: GPT-3 (arXiv 2005.14165, appendix C), Llama 2 (2307.09288, A.6), Tülu 3 (2411.15124, section 3.2).

The index of items is that of :mod:`longcrawl.dedup.index` with one band. Its documents are items, with ids such as
``gsm8k#17``. Its keys are the 64-bit hashes of n-grams, hashed as in :mod:`longcrawl.dedup.ngrams`. Two more arrays are
stored::

    positions.npy   int64 (entries,): the unit of the item at which each n-gram starts
    lengths.npy     int64 (documents,): units of each item

The index of given items and settings is made once, in ``$XDG_CACHE_HOME/longcrawl/evaluation``, and mapped by every
process. Among d n-grams of documents and i of items, the probability of any false match is below ``d * i / 2**64``.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock

from longcrawl.core.counts import MASK, TAG
from longcrawl.core.places import list_by_document, make_places
from longcrawl.core.registry import Conditions, preset_fields
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.dedup.index import (
    DESCRIPTION,
    Index,
    band_names,
    describe_index,
    first_of_equal,
    open_index,
    take_ids,
    write_array,
    write_ids,
)
from longcrawl.dedup.ngrams import NGRAM_FACTOR, find_ends, hash_units, mix
from longcrawl.dedup.normalize import BLANK
from longcrawl.dedup.substring import NormalText, Unit, cut_spans, locate, make_unit, masked_column
from longcrawl.errors import FormatError, StageError, TokenizerError, reason_of
from longcrawl.io.files import checksum, content_digest, file_entries, remove, reread_when_changed, whole_file, writing
from longcrawl.kernels.code_points import cache_folder
from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.texts import check_not_masked, read_only, text_buffers, valid_texts
from longcrawl.tokens.encoders import EncodedTexts, TokenizerStage, load_encoder, tokenizer_digest
from longcrawl.urls import REPOSITORY

if TYPE_CHECKING:
    from datasets import Dataset


FOLDER = "evaluation"
SPLITS = ("test", "validation", "dev", "valid", "val", "eval", "train")
"""Names of splits, most preferred first. A file with such a name is also named by its folder."""

_BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "text"}
_MEDIUM = {"bytes", "path"}
"""Fields of images and sounds in `datasets`, which have no text."""
_EMPTY = "has no rows: remove it, or choose another split"
_PACKED = (".gz", ".zst", ".xz", ".bz2")
_FORMS = "a dataset, a .jsonl, .json, .parquet, .csv or .txt file, a folder of save_to_disk or ORG/NAME of the Hub"


class EvaluationSet(NamedTuple):
    """The items of one evaluation set."""

    name: str
    items: pa.Array
    """Large strings, one per row; the parts of an item are joined by line breaks."""


def keep_dataset(data: Any) -> str:
    """Return the name or path of an evaluation set; the texts of a dataset are first written to the cache folder."""
    if isinstance(data, str | Path):
        return str(data)
    from datasets import Dataset, DatasetDict

    if isinstance(data, DatasetDict):
        data = _split(data, "the evaluation set")
    if not isinstance(data, Dataset):
        raise StageError(f"decontaminate.against takes {_FORMS}, not a {type(data).__name__}")
    table = _text_columns(data.with_format("arrow")[:])
    _check_items(table, data.column_names, "the dataset")
    digest = hashlib.sha256(json.dumps(table.to_pydict()).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    name = data.info.dataset_name or data.info.builder_name or "dataset"
    path = cache_folder() / FOLDER / f"{name}-{digest}.parquet"
    if not path.exists():
        with writing(path, StageError, "set XDG_CACHE_HOME, or pass the path of a file"), whole_file(path) as beside:
            pq.write_table(table, beside)
    return str(path)


def read_evaluation_set(given: str, columns: Sequence[str]) -> EvaluationSet:
    """Read ``columns`` of a set: a path, or ``ORG/NAME[@REVISION][:CONFIGURATION[:SPLIT]]`` of the Hub."""
    data, name = _opened(given)
    shown = given if kept_name(given) is None else f"the evaluation set {name}"
    held = [column for column in columns if column in data.column_names]
    if columns and not held:
        raise StageError(
            f"{shown} has none of the columns {', '.join(columns)}; it has: {', '.join(data.column_names)}; set columns"
        )
    table = _text_columns((data.select_columns(held) if held else data).with_format("arrow")[:])
    _check_items(table, data.column_names, shown)
    parts = [column.combine_chunks() for column in table.columns]
    return EvaluationSet(name, pc.binary_join_element_wise(*parts, pa.scalar("\n", pa.large_string())))


def kept_name(given: str) -> str | None:
    """Return the name, with its digest, of a dataset written by :func:`keep_dataset`, or None for any other path."""
    return Path(given).stem if Path(given).parent == cache_folder() / FOLDER else None


def _check_items(table: pa.Table, columns: Sequence[str], shown: str) -> None:
    if not table.num_columns:
        raise StageError(f"{shown} has no text column; it has: {', '.join(columns) or 'none'}")
    if not table.num_rows:
        raise StageError(f"{shown} {_EMPTY}")


def _opened(given: str) -> tuple["Dataset", str]:
    import datasets

    path = Path(given)
    suffixes = [suffix for suffix in path.suffixes if suffix not in _PACKED]
    builder = _BUILDERS.get(suffixes[-1]) if suffixes else None
    if path.is_file() and not path.stat().st_size:
        raise StageError(f"{given} {_EMPTY}")
    try:
        if path.is_dir():
            return _split(datasets.load_from_disk(given), given), _name(path)
        if path.is_file() and builder is not None:
            options = {"sep": "\t"} if suffixes[-1] == ".tsv" else {}
            return datasets.load_dataset(builder, data_files=given, split="train", **options), _name(path)
        repository, _, chosen = given.partition(":")
        repository, _, revision = repository.partition("@")
        if not path.exists() and REPOSITORY.fullmatch(repository):
            config, _, split = chosen.partition(":")
            data = datasets.load_dataset(repository, config or None, split=split or None, revision=revision or None)
            return _split(data, given), repository.partition("/")[2]
    except StageError:
        raise
    except Exception as failed:  # the error of `datasets` depends on the format
        raise StageError(
            f"{given} cannot be read as an evaluation set ({reason_of(failed)}); give {_FORMS}"
        ) from failed
    raise StageError(f"no evaluation set at {given}: give {_FORMS}")


def _split(data: Any, given: str) -> "Dataset":
    from datasets import Dataset

    if isinstance(data, Dataset):
        return data
    name = next((name for name in SPLITS if name in data), None)
    if name is None:
        raise StageError(
            f"{given} has the splits {', '.join(map(str, data))}, none of which is a test split: choose one"
        )
    return data[name]


def _name(path: Path) -> str:
    """Name an evaluation set by its file's stem without our digest, with the folder if the stem is a split."""
    if kept := kept_name(str(path)):
        return kept.rpartition("-")[0]
    stem = path.name.partition(".")[0] or path.name
    return f"{path.absolute().parent.name}/{stem}" if stem.startswith(SPLITS) else stem


def _text_columns(table: pa.Table) -> pa.Table:
    """Return the columns with text except ids, as large strings; lists and structs have a line for each text."""
    made = {field.name: table[field.name] for field in table.schema if field.name != "id" and _has_text(field.type)}
    return pa.table({name: _strings(values) for name, values in made.items()})


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        inside = [field.type for field in fields if field.name != "id"]
        return {field.name for field in fields} != _MEDIUM and any(map(_has_text, inside))
    if pa.types.is_dictionary(kind) or (pa.types.is_nested(kind) and hasattr(kind, "value_type")):
        return _has_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _strings(values: pa.ChunkedArray) -> pa.Array:
    if not pa.types.is_nested(values.type):
        return pc.fill_null(pc.cast(values.combine_chunks(), pa.large_string()), "")
    return pa.array(["\n".join(_texts(value)) for value in values.to_pylist()], pa.large_string())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and value.keys() != _MEDIUM:
        for name, inside in value.items():
            yield from _texts(inside) if name != "id" else ()
    elif isinstance(value, list):
        for inside in value:
            yield from _texts(inside)


Wide = npt.NDArray[np.uint64]

_U = np.uint64
_NGRAM_FACTOR = _U(NGRAM_FACTOR)


@forced_inline
def _bits(key: np.uint64) -> np.uint64:
    return _U(1) << (key & _U(63)) | _U(1) << (key >> _U(6) & _U(63))


@compiled
def fill_filter(keys: Wide, words: Wide, shift: int) -> None:
    """Add keys to a filter, uint64 [a power of two]; the bits of a key from ``shift`` on select its word."""
    for at in range(len(keys)):
        words[keys[at] >> _U(shift)] |= _bits(keys[at])


@compiled
def find_ngrams(
    units: Wide, bounds: Any, n: int, words: Wide, shift: int, documents: Any, places: Any, keys: Wide
) -> int:
    """Write the n-grams that pass a filter, or all if the filter is empty; return their number.

    ``words`` and ``shift`` are those of :func:`fill_filter`. ``documents``, ``places`` and ``keys``, [units], get the
    document of each n-gram, the unit of its document at which it starts, and its hash.
    """
    found, leaving, every = np.int64(0), _U(1), len(words) == 0
    for _ in range(n):
        leaving *= _NGRAM_FACTOR
    for document in range(len(bounds) - 1):
        start, stop = bounds[document], bounds[document + 1]
        if stop - start < n:
            continue
        hashed = _U(0)
        for at in range(start, start + n):
            hashed = hashed * _NGRAM_FACTOR + units[at]
        for at in range(start, stop - n + 1):
            key = mix(hashed)
            bits = _bits(key)
            if every or words[key >> _U(shift)] & bits == bits:
                documents[found], places[found], keys[found] = document, at - start, key
                found += 1
            if at + n < stop:
                hashed = hashed * _NGRAM_FACTOR + units[at + n] - leaving * units[at]
    return found


@compiled
def convert_words(data: Any, offsets: Any, ends: Wide, rows: Any, spans: Any) -> None:
    """Convert spans of words in normal forms to bytes, in place; ``ends`` is scratch memory for the longest."""
    row = -1
    for span in range(len(spans)):
        if rows[span] != row:
            row = rows[span]
            find_ends(data, offsets[row], offsets[row + 1], ends, 0)
        first, stop = spans[span, 0], spans[span, 1]
        begin = offsets[row]
        if first > 0:
            begin = np.int64(ends[first - 1])
            begin += data[begin] == BLANK
        spans[span, 0] = begin - offsets[row]
        spans[span, 1] = np.int64(ends[stop - 1]) - offsets[row]


Longs = npt.NDArray[np.int64]

STAGE = "decontaminate"
MOST_ITEMS = 64
"""Maximum number of items compared for one n-gram; only phrases common to many questions occur in more."""


@dataclass(frozen=True)
class Ngrams:
    """Settings of the n-grams by which items and documents are compared: words or tokens of their normal forms."""

    size: int
    unit: Literal["word", "token"]
    tokenizer: str

    def settings(self) -> dict[str, Any]:
        """Return the settings that hashes depend on; a tokenizer's file is identified by its content."""
        version = unicodedata.unidata_version
        made: dict[str, Any] = {"ngram": self.size, "unit": self.unit, "unicode": version, "version": 2}
        if self.unit == "token":
            made["tokenizer"] = tokenizer_digest(self.tokenizer) or self.tokenizer
        return made

    def hash_units(self, texts: pa.Array) -> tuple[Wide, Longs]:
        """Return the hashes of the units of large strings, and the offset of each text among them."""
        return hash_units(texts, load_encoder(self.tokenizer) if self.unit == "token" else None)

    def locate(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Convert spans of units to characters, int64 [spans, 2], as :func:`substring.locate` does."""
        unit: Unit = make_unit("token", self.tokenizer) if self.unit == "token" else _Words()
        return locate(NormalText(unit), texts, rows, spans)


class _Words:
    def encode(self, texts: pa.Array) -> EncodedTexts:
        return EncodedTexts(*hash_units(texts, None))

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        data, offsets = text_buffers(texts)
        places = spans.copy()
        convert_words(data, offsets, np.empty(int(np.diff(offsets).max(initial=0)) + 1, np.uint64), rows, places)
        return places


def write_evaluation_index(folder: Path, sets: Iterable[EvaluationSet], ngrams: Ngrams) -> None:
    """Write an index of evaluation sets, replacing the content of the folder."""
    ids, tables = [], []
    for each in sets:
        ids += [f"{each.name}#{row}" for row in range(len(each.items))]
        tables.append(each.items)
    units, bounds = ngrams.hash_units(pa.concat_arrays([pa.array([], pa.large_string()), *tables]))
    items, places, keys = _find_ngrams(units, bounds, ngrams.size, read_only(np.empty(0, np.uint64)), 63)
    order = np.lexsort((places, items, keys))
    remove(folder / DESCRIPTION)
    arrays = zip((*band_names(0), "positions"), (keys[order, None], items[order], places[order]), strict=True)
    names = [write_ids(folder, [pa.table({"id": ids})]), write_array(folder, "lengths", [np.diff(bounds)])]
    names += [write_array(folder, name, [values]) for name, values in arrays]
    describe_index(folder, STAGE, ngrams.settings(), len(ids), 1, file_entries(folder, names))


def _find_ngrams(units: Wide, bounds: Longs, size: int, words: Wide, shift: int) -> tuple[Longs, Longs, Wide]:
    documents, places = np.empty(len(units), np.int64), np.empty(len(units), np.int64)
    keys = np.empty(len(units), np.uint64)
    found = find_ngrams(read_only(units), read_only(bounds), size, words, shift, documents, places, keys)
    return documents[:found], places[:found], keys[:found]


def kept_index(sets: Sequence[EvaluationSet], ngrams: Ngrams) -> Path:
    """Return the cached index of evaluation sets; it is built if it is missing or damaged."""
    digest = hashlib.sha256(json.dumps(ngrams.settings(), sort_keys=True).encode())
    for each in sets:
        data, offsets = text_buffers(each.items)
        for part in (each.name.encode(), np.ascontiguousarray(offsets).data, np.ascontiguousarray(data).data):
            digest.update(hashlib.sha256(part).digest())
    folder = cache_folder() / FOLDER / digest.hexdigest()[:32]
    with writing(folder, StageError, f"set XDG_CACHE_HOME, or set against to an index saved by {STAGE}"):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            try:
                open_evaluation_index(str(folder), ngrams)
            except FormatError:
                remove(folder)
                write_evaluation_index(folder, sets, ngrams)
    return folder


class _Items(NamedTuple):
    ngrams: Index
    positions: Longs
    lengths: Longs
    ids: pa.ChunkedArray


class EvaluationIndexes(NamedTuple):
    """Opened indexes, and a filter of all their n-grams."""

    ngrams: Ngrams
    indexes: tuple[_Items, ...]
    words: Wide
    shift: int

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return for each evaluation set the number of its items, and of those shorter than an n-gram."""
        items, short = Counter[str](), Counter[str]()
        for each in self.indexes:
            names = (name.rpartition("#")[0] for name in each.ids.to_pylist())
            for name, length in zip(names, each.lengths.tolist(), strict=True):
                items[name] += 1
                short[name] += length < self.ngrams.size
        return {name: (count, short[name]) for name, count in items.items()}

    def find(self, texts: pa.Array, min_overlap: float) -> "Found":
        """Find the items with at least the share ``min_overlap`` of their units in n-grams shared with one text."""
        units, bounds = self.ngrams.hash_units(texts)
        size = self.ngrams.size
        pairs = self._pairs(*_find_ngrams(units, bounds, size, self.words, self.shift))
        greatest = np.zeros(len(texts))
        if not len(pairs):
            return Found(np.empty(0, np.int64), np.empty((0, 2), np.int64), pa.array([], pa.string()), greatest)
        starts, overlaps = self._overlaps(pairs)
        np.maximum.at(greatest, pairs[starts, 0], overlaps)
        chosen = pairs[np.repeat(overlaps >= min_overlap, np.diff(starts, append=len(pairs)))]
        spans = _separate(_runs(chosen, size))
        named, rows = np.unique(spans[:, 0], return_inverse=True)
        located = self.ngrams.locate(texts.take(pa.array(named)), rows.astype(np.int64), spans[:, 1:3])
        whole = located[:, 1] > located[:, 0]
        return Found(spans[whole, 0], located[whole], self._names(spans[whole, 3]), greatest)

    def _pairs(self, documents: Longs, places: Longs, keys: Wide) -> Longs:
        found, before = [np.empty((0, 4), np.int64)], 0
        for each in self.indexes:
            asked, entries = each.ngrams.entries(0, keys, MOST_ITEMS)
            items = each.ngrams.documents_of(0, entries) + before
            found.append(np.stack([documents[asked], items, places[asked], each.positions[entries]], axis=1))
            before += each.ngrams.documents
        pairs = np.concatenate(found)
        return pairs[np.lexsort((pairs[:, 3], pairs[:, 1], pairs[:, 0]))]

    def _overlaps(self, pairs: Longs) -> tuple[Longs, npt.NDArray[np.float64]]:
        """Return the start of each (document, item) among pairs, and the share of the item's units that was found."""
        new = _changes(pairs[:, :2])
        gained = np.minimum(np.diff(pairs[:, 3], prepend=0), self.ngrams.size)
        gained[new] = self.ngrams.size
        starts = np.flatnonzero(new)
        lengths = np.concatenate([each.lengths for each in self.indexes])
        return starts, np.add.reduceat(gained, starts) / lengths[pairs[starts, 1]]

    def _names(self, items: Longs) -> pa.Array:
        chunks = [chunk for each in self.indexes for chunk in each.ids.chunks]
        return take_ids(pa.chunked_array(chunks, pa.string()), items).combine_chunks()


class Found(NamedTuple):
    """Passages of texts that share n-grams with items."""

    rows: Longs
    """int64 [spans], the text of each span, in increasing order."""
    places: Longs
    """int64 [spans, 2], start and stop in characters; those of one text are sorted and do not overlap."""
    items: pa.Array
    overlaps: npt.NDArray[np.float64]
    """float64 [texts], the greatest share of an item found in each text; 0 without a shared n-gram."""


def _changes(rows: Longs) -> npt.NDArray[np.bool_]:
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return new


def _runs(pairs: Longs, size: int) -> Longs:
    """Join n-grams of one item that touch or overlap in a document: document, start and stop in units, item."""
    pairs = pairs[np.lexsort((pairs[:, 2], pairs[:, 1], pairs[:, 0]))]
    new = _changes(pairs[:, :2])
    new[1:] |= np.diff(pairs[:, 2]) > size
    starts = np.flatnonzero(new)
    lasts = np.append(starts[1:], len(pairs))[: len(starts)] - 1
    first = pairs[starts]
    return np.stack([first[:, 0], first[:, 2], pairs[lasts, 2] + size, first[:, 1]], axis=1)


def _separate(runs: Longs) -> Longs:
    """Remove overlaps: a stretch of several items goes to the run that begins first or, of these, the longest."""
    runs = runs[np.lexsort((runs[:, 3], -runs[:, 2], runs[:, 1], runs[:, 0]))]
    room = int(runs[:, 2].max(initial=0)) + 1  # shift each document behind the previous one
    behind = runs[:, 0] * room
    reached = np.maximum.accumulate(runs[:, 2] + behind)
    before = np.concatenate([[-1], reached[:-1]])[: len(runs)] - behind
    separate = np.column_stack([runs[:, 0], np.maximum(runs[:, 1], before), runs[:, 2:]])
    return separate[separate[:, 2] > separate[:, 1]]


def open_evaluation_index(folder: str, ngrams: Ngrams) -> _Items:
    """Open an index; FormatError if it is missing, damaged, or made with other settings."""
    index = open_index(folder, STAGE, ngrams.settings())
    keys = index.array(band_names(0)[0], np.uint64, None, 1)
    positions = index.array("positions", np.int64, len(keys))
    lengths = index.array("lengths", np.int64, index.documents)
    return _Items(index, positions, lengths, index.ids(np.arange(index.documents)))


@reread_when_changed(4)
def open_evaluation_indexes(ngrams: Ngrams, *folders: str) -> EvaluationIndexes:
    """Open indexes and build the filter of their n-grams, 16 to 32 bits for each."""
    opened = tuple(open_evaluation_index(folder, ngrams) for folder in folders)
    bits = max(sum(len(each.positions) for each in opened).bit_length() - 2, 1)
    words = np.zeros(1 << bits, np.uint64)
    for each in opened:
        fill_filter(each.ngrams.array(band_names(0)[0], np.uint64, None, 1)[:, 0].copy(), words, 64 - bits)
    return EvaluationIndexes(ngrams, opened, read_only(words), 64 - bits)


CONTAMINATION = "contamination"

TAG_TYPE = pa.list_(pa.struct([("item", pa.string()), ("start", pa.int64()), ("end", pa.int64())]))

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "gpt3": {"ngram": 13, "unit": "word", "policy": "cut", "window": 200, "min_piece": 200, "max_pieces": 10},
        "llama2": {"ngram": 11, "unit": "token", "policy": "drop", "min_overlap": 0.8},
        "tulu3": {"ngram": 8, "unit": "word", "policy": "drop", "min_overlap": 0.5},
    }
)


@stage
class Decontaminate(TokenizerStage, Edit):
    r"""Remove documents that contain items of evaluation sets, or cut, mask or tag the passages that do.

    Texts and items are normalised (:mod:`longcrawl.dedup.normalize`) and split into words or tokens. A document
    contains an item if at least ``min_overlap`` of the item's units are in n-grams that the document also has; with 0,
    one n-gram is enough. The passages that such n-grams cover are contaminated. Items with fewer units than an n-gram
    are not searched for; the card gives their number.

    The edit ledger lists every passage with its item, such as ``gsm8k#17``: the evaluation set and the row of the item,
    counted from 0. If two datasets have the same name, a digest is appended to the name. If items overlap, the shared
    passage belongs to the item that begins first or, of those that begin together, to the one that ends last.
    ``crawl.contamination()`` and ``longcrawl contamination RUN`` count passages, items and documents by evaluation set.

    ``policy`` decides what happens to documents with such passages:

    * "drop": the document is removed by the rule ``contaminated``, with the greatest share of an item found as value;
    * "cut": the passages and ``window`` characters on either side are removed, and the remaining pieces are joined;
    * "mask": the column ``masked`` marks where no loss is computed, as for ``ExactSubstring``;
    * "tag": the column ``contamination`` lists item, start and end; nothing else changes.

    Args:
        against: evaluation sets: datasets; .jsonl, .json, .parquet, .csv, .tsv and .txt files (an item per line);
            folders of ``save_to_disk``; ``ORG/NAME[@REVISION][:CONFIGURATION[:SPLIT]]`` on the Hub; or indexes written
            by :meth:`save_index_of_items`. If no split is named, the test split is read. One index of all sets is kept
            in ``$XDG_CACHE_HOME/longcrawl``.
        ngram: units in an n-gram.
        unit: "word", or "token" of ``tokenizer``. The first word of an item may have a different token inside a text.
        policy: "drop", "cut", "mask" or "tag".
        min_overlap: least share of an item's units that must be in shared n-grams.
        window: for "cut": characters removed on either side of a passage.
        min_piece: for "cut": a piece between two passages, before the first or after the last is also removed if it has
            fewer characters.
        max_pieces: for "cut": a document is removed if its passages split it into more pieces than this. Pieces that
            are too short count.
        min_characters: for "cut" and "mask": a document is removed if fewer characters remain, or remain unmasked.
        columns: columns that make an item; each evaluation set has at least one of them. Their values, and the texts of
            lists and structs, are joined by line breaks. By default, all columns with text except ``id``.
        tokenizer: a file, a Hub id or an object; see :func:`longcrawl.tokens.encoders.load_encoder`.

    At most 64 items are compared for each n-gram.

    >>> from datasets import Dataset
    >>> import longcrawl as lc
    >>> exam = Dataset.from_dict({"question": ["Which of the planets of the sun has the largest moon of all?"]})
    >>> page = "Quiz night! Which of the planets of the sun has\nthe LARGEST moon of all? Answers on Monday."
    >>> crawl = lc.Crawl(Dataset.from_dict({"id": ["a"], "text": [page]}))
    >>> (crawl | lc.dedup.Decontaminate(against=[exam], ngram=8, policy="cut")).data["text"][0]
    'Quiz night! ? Answers on Monday.'

    Raises:
        StageError: an evaluation set cannot be read, or the documents are already masked: cutting or masking them again
            would lose those masks.
        TokenizerError: the tokenizer cannot be loaded.
    """

    against: tuple[str, ...] = ()
    ngram: int = 13
    unit: Literal["word", "token"] = "word"
    policy: Literal["drop", "cut", "mask", "tag"] = "drop"
    min_overlap: float = 0.0
    window: int = 0
    min_piece: int = 0
    max_pieces: int | None = None
    min_characters: int = 20
    columns: tuple[str, ...] = ()
    tokenizer: str = "gpt2"

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS
    rewrites = "text"
    code_version: ClassVar[str] = "2"
    only_with: ClassVar[Conditions] = MappingProxyType(
        {
            "window": {"policy": ("cut",)},
            "min_piece": {"policy": ("cut",)},
            "max_pieces": {"policy": ("cut",)},
            "min_characters": {"policy": ("cut", "mask")},
        }
    )

    def __post_init__(self) -> None:
        given: Any = self.against
        several = given if isinstance(given, list | tuple) else [given]
        object.__setattr__(self, "against", tuple(map(keep_dataset, several)))
        super().__post_init__()
        self.check_least(ngram=1, window=0, min_piece=0, min_characters=0)
        if not 0 <= self.min_overlap <= 1:
            raise StageError(f"{self.name}.min_overlap must be a share from 0 to 1, got {self.min_overlap:g}")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "Decontaminate":
        """Return a stage with published settings; ``changes`` are other fields, such as ``against``.

        * "gpt3" (arXiv 2005.14165, appendix C): 13-grams of words are cut with 200 characters on either side, and
          pieces of fewer than 200 characters are also cut; a document in more than 10 pieces is removed. GPT-3 made
          each piece a document; here the pieces stay in one document. Not implemented: GPT-3 ignored 13-grams found in
          more than 10 training documents.
        * "llama2" (arXiv 2307.09288, A.6): an item is "dirty" if 80 % of its tokens are in shared n-grams of more than
          10 tokens. Llama 2 removed nothing. Not implemented: up to 4 tokens of an n-gram could differ, and n-grams of
          several training documents counted together. Set ``tokenizer`` to the model's. Llama 3 (arXiv 2407.21783,
          5.1.4) uses 8-grams and a share chosen for each evaluation set, so it has no preset.
        * "tulu3" (arXiv 2411.15124, 3.2): 8-grams of words, and half of an item in one training document. Tülu 3
          counted "more than half" of spaCy tokens and compared only prompts: name their columns with ``columns``. Not
          implemented: datasets that contained more than 2 % of an evaluation set's items were removed as a whole.

        Raises:
            StageError: the preset is unknown; the message lists the known ones.
        """
        return cls(**preset_fields(cls, name, changes))

    def files(self) -> tuple[str, ...]:
        """Return the local paths among the evaluation sets, and the tokenizer's file."""
        return (*super().files(), *(each for each in self.against if Path(each).exists()))

    def prepare(self) -> None:
        """Read the evaluation sets, build their index and compile the kernels."""
        if self.unit == "token":
            try:
                _ = load_encoder(self.tokenizer).token_bytes
            except TokenizerError as wrong:
                raise TokenizerError(
                    f"{self.name}.tokenizer: {wrong}; choose a byte-level BPE such as gpt2, or set unit='word'"
                ) from wrong
        self._indexes().find(pa.array(["a text"], pa.large_string()), self.min_overlap)

    def limits(self) -> tuple[str, ...]:
        """Describe how many items each evaluation set has, and how many were too short to search for."""
        sizes = self._indexes().sizes()
        unit = f"{self.ngram} {self.unit}s"
        return tuple(
            f"{name}: {items:,} items, {short:,} of which have fewer than {unit} and were not searched for"
            for name, (items, short) in sizes.items()
        )

    def used_indexes(self) -> dict[str, str]:
        """Return the SHA-256 of the index that holds each evaluation set."""
        folders = self._folders()
        return {given: checksum(Path(folders[given], DESCRIPTION)) for given in self.against}

    def save_index_of_items(self, folder: str | Path) -> None:
        """Write an index of the evaluation sets, for ``against`` on machines that cannot read them."""
        names = [each for each in self.against if not _is_index(each)]
        write_evaluation_index(Path(folder), _read(tuple(names), self.columns), self._ngrams)

    def checks(self, table: pa.Table) -> Sequence[Check]:
        """Measure the greatest share of an item found in each document."""
        return self.trace(table).checks

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Apply ``policy`` to a batch of documents."""
        edited = self.trace(table)
        return edited.documents, edited.checks

    def marks(self, text: str, rule: str) -> Sequence[tuple[int, int]]:  # noqa: ARG002  # all rules are about these
        """Return the passages of a text that are shared with evaluation items."""
        found = self._indexes().find(pa.array([text], pa.large_string()), self.min_overlap)
        return [(start, stop) for start, stop in found.places.tolist()]

    def trace(self, table: pa.Table) -> Edited:
        """Apply ``policy`` to a batch of documents, and list the passages with their items."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        if self.policy in ("cut", "mask"):
            check_not_masked(table, self.name)
        found = self._indexes().find(texts, self.min_overlap)
        lengths = np.zeros(len(texts), np.int64)
        if self.policy in ("cut", "mask"):
            lengths += pc.fill_null(pc.utf8_length(texts), 0).to_numpy()
        places, pieces = found.places, np.zeros(len(texts), np.int64)
        if self.policy == "cut":
            places, pieces = widen(found.rows, places, lengths, self.window, self.min_piece)
            table = with_column(table, "text", cut_spans(texts, found.rows, places))
        elif self.policy == "mask":
            table = with_column(table, "masked", masked_column(found.rows, places, table.num_rows))
        elif self.policy == "tag":
            spans = {"item": found.items, "start": pa.array(found.places[:, 0]), "end": pa.array(found.places[:, 1])}
            table = with_column(table, CONTAMINATION, list_by_document(found.rows, spans, len(texts)).cast(TAG_TYPE))
        checks = self._checks(found, places, lengths, pieces)
        rule, replaced_by = {"cut": ("cut", 0), "mask": (MASK, 1)}.get(self.policy, (TAG, 1))
        counts = replaced_by * (places[:, 1] - places[:, 0])
        return Edited(table, checks, make_places(found.rows, rule, places, counts, also_id=found.items))

    def _checks(self, found: Found, places: Longs, lengths: Longs, pieces: Longs) -> list[Check]:
        if self.policy == "tag":
            return []
        if self.policy == "drop":
            clean = np.ones(len(lengths), bool)
            clean[found.rows] = False
            return [Check("contaminated", pa.array(found.overlaps), pa.array(clean), self.min_overlap)]
        covered = np.zeros(len(lengths), np.int64)
        np.add.at(covered, found.rows, places[:, 1] - places[:, 0])
        left = lengths - covered
        passes = pa.array((covered == 0) | (left >= self.min_characters))
        checks = [Check("characters_left", pa.array(left), passes, self.min_characters, "at_least")]
        if self.policy == "cut" and self.max_pieces is not None:
            few = pa.array(pieces <= self.max_pieces)
            checks.insert(0, Check("max_pieces", pa.array(pieces), few, self.max_pieces, "at_most"))
        return checks

    @property
    def _ngrams(self) -> Ngrams:
        return Ngrams(self.ngram, self.unit, self.tokenizer)

    def _folders(self) -> dict[str, str]:
        if not self.against:
            raise StageError(f"{self.name}.against is empty: add evaluation sets, such as against: [exam.jsonl]")
        names = tuple(each for each in self.against if not _is_index(each))
        states = tuple(content_digest(each) for each in names)
        made = _made(names, states, self.columns, self._ngrams) if names else ""
        return {each: made if each in names else each for each in self.against}

    def _indexes(self) -> EvaluationIndexes:
        return open_evaluation_indexes(self._ngrams, *dict.fromkeys(self._folders().values()))


def _is_index(given: str) -> bool:
    return Path(given, DESCRIPTION).is_file()


def _read(names: tuple[str, ...], columns: tuple[str, ...]) -> list[EvaluationSet]:
    import datasets

    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        sets = [read_evaluation_set(name, columns) for name in names]
    finally:
        if shown:
            datasets.enable_progress_bars()
    alike = _repeated(sets)
    sets = [
        each._replace(name=kept_name(name) or each.name) if each.name in alike else each
        for name, each in zip(names, sets, strict=True)
    ]
    if twice := _repeated(sets):
        raise StageError(f"several evaluation sets are named {min(twice)}: rename their files")
    return sets


def _repeated(sets: Sequence[EvaluationSet]) -> set[str]:
    counts = Counter(each.name for each in sets)
    return {name for name, count in counts.items() if count > 1}


@lru_cache(maxsize=4)
def _made(names: tuple[str, ...], _states: tuple[str | None, ...], columns: tuple[str, ...], ngrams: Ngrams) -> str:
    return str(kept_index(_read(names, columns), ngrams))


def widen(rows: Longs, places: Longs, lengths: Longs, window: int, min_piece: int) -> tuple[Longs, Longs]:
    """Widen passages by ``window`` characters on either side, and count the pieces of each document before.

    ``places``, int64 [spans, 2], are in characters, sorted within a document; ``lengths``, int64 [documents], is also
    in characters. Between two passages, the first takes its window before the second. A piece with fewer than
    ``min_piece`` characters is merged into the passage before it or, at the start of the document, into the one after
    it.
    """
    wide = places.copy()
    first = first_of_equal(rows)
    last = np.append(first[1:], True)[: len(rows)]
    following = np.append(places[1:, 0], 0)[: len(rows)]
    wide[:, 1] = np.minimum(places[:, 1] + window, np.where(last, lengths[rows], following))
    reached = np.where(first, 0, np.append(0, wide[:-1, 1])[: len(rows)])
    wide[:, 0] = np.maximum(places[:, 0] - window, reached)
    before, behind = wide[:, 0] - reached, lengths[rows] - wide[:, 1]
    pieces = np.zeros(len(lengths), np.int64)
    np.add.at(pieces, rows, np.add(before > 0, last & (behind > 0), dtype=np.int64))
    wide[:, 0] = np.where(first & (before < min_piece), 0, wide[:, 0])
    wide[:, 1] = np.where(last & (behind < min_piece), lengths[rows], wide[:, 1])
    short = np.flatnonzero(~first & (before < min_piece))
    wide[short - 1, 1] = wide[short, 0]
    return wide, pieces
