"""Evaluation sets: their items as texts, an index of the n-grams of these, and where documents have them.

An index is one of :mod:`longcrawl.dedup.index` with one band. Its documents are items, with ids such as ``gsm8k#17``:
the evaluation set, and the row of the item. Its keys are the 64-bit hashes of n-grams, and beside them are::

    positions.npy   int64 (entries,): the unit of the item at which each n-gram starts
    lengths.npy     int64 (documents,): units of each item

It is made once for the same items and settings, in ``$XDG_CACHE_HOME/longcrawl/evaluation``, and mapped by every
process. Among d n-grams of documents and i of items, one is found that no item has with a probability below
``d * i / 2**64``.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from filelock import FileLock

from longcrawl.dedup.evaluation_sets import FOLDER, EvaluationSet
from longcrawl.dedup.index import (
    DESCRIPTION,
    Index,
    band_names,
    describe_index,
    open_index,
    take_ids,
    write_array,
    write_ids,
)
from longcrawl.dedup.ngrams import hash_units
from longcrawl.dedup.substring import NormalText, Unit, locate, make_unit
from longcrawl.errors import FormatError, StageError
from longcrawl.kernels.kept_arrays import cache_folder
from longcrawl.kernels.texts import read_only, text_buffers
from longcrawl.storage.files import file_entries, remove, reread_when_changed, writing
from longcrawl.tokens.encoders import EncodedTexts, load_encoder
from longcrawl.tokens.tokenizer_files import tokenizer_digest

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

STAGE = "decontaminate"
"""The stage whose index it is."""
MOST_ITEMS = 64
"""Items of an index that are looked at for one n-gram: more have it where it is of the form of all questions."""


@dataclass(frozen=True)
class Ngrams:
    """What items and documents are compared by: n-grams of words or tokens of their normal forms."""

    size: int
    unit: Literal["word", "token"]
    tokenizer: str

    def settings(self) -> dict[str, Any]:
        """Return what hashes depend on; a tokenizer's file is identified by its content."""
        made: dict[str, Any] = {
            "ngram": self.size,
            "unit": self.unit,
            "unicode": unicodedata.unidata_version,
            "version": 2,
        }
        if self.unit == "token":
            made["tokenizer"] = tokenizer_digest(self.tokenizer) or self.tokenizer
        return made

    def hash_units(self, texts: pa.Array) -> tuple[Wide, Longs]:
        """Return the hashes of the units of large strings, and where each text starts among them."""
        return hash_units(texts, load_encoder(self.tokenizer) if self.unit == "token" else None)

    def locate(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Return the characters, int64 [spans, 2], that spans of units stand for, as :func:`substring.locate` does."""
        unit: Unit = make_unit("token", self.tokenizer) if self.unit == "token" else _Words()
        return locate(NormalText(unit), texts, rows, spans)


class _Words:
    """Words of normal forms, as a unit of :mod:`longcrawl.dedup.substring`."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the hashes of the words."""
        return EncodedTexts(*hash_units(texts, None))

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Find the words again."""
        from longcrawl.dedup._contamination_kernels import convert_words

        data, offsets = text_buffers(texts)
        places = spans.copy()
        convert_words(data, offsets, np.empty(int(np.diff(offsets).max(initial=0)) + 1, np.uint64), rows, places)
        return places


def write_evaluation_index(folder: Path, sets: Iterable[EvaluationSet], ngrams: Ngrams) -> None:
    """Write the index of evaluation sets; what lies in the folder is replaced."""
    ids, tables = [], []
    for each in sets:
        ids += [f"{each.name}#{row}" for row in range(len(each.items))]
        tables.append(each.items)
    units, bounds = ngrams.hash_units(pa.concat_arrays([pa.array([], pa.large_string()), *tables]))
    items, places, keys = _all_ngrams(units, bounds, ngrams.size)
    order = np.lexsort((places, items, keys))
    remove(folder / DESCRIPTION)
    arrays = zip(
        (*band_names(0), "positions", "lengths"), (keys[order, None], items[order], places[order]), strict=False
    )
    names = [write_ids(folder, [pa.table({"id": ids})]), write_array(folder, "lengths", [np.diff(bounds)])]
    names += [write_array(folder, name, [values]) for name, values in arrays]
    describe_index(folder, STAGE, ngrams.settings(), len(ids), 1, file_entries(folder, names))


def _all_ngrams(units: Wide, bounds: Longs, size: int) -> tuple[Longs, Longs, Wide]:
    from longcrawl.dedup._contamination_kernels import find_ngrams

    items, places, keys = (
        np.empty(len(units), np.int64),
        np.empty(len(units), np.int64),
        np.empty(len(units), np.uint64),
    )
    nothing = read_only(np.empty(0, np.uint64))
    found = find_ngrams(read_only(units), read_only(bounds), size, nothing, 63, items, places, keys)
    return items[:found], places[:found], keys[:found]


def kept_index(sets: Sequence[EvaluationSet], ngrams: Ngrams) -> Path:
    """Return the folder of the index of evaluation sets in the cache folder, made where it is not there or damaged.

    Raises:
        StageError: the folder cannot be written.
    """
    digest = hashlib.sha256(json.dumps(ngrams.settings(), sort_keys=True).encode())
    for each in sets:
        data, offsets = text_buffers(each.items)
        for part in (each.name.encode(), np.ascontiguousarray(offsets).data, np.ascontiguousarray(data).data):
            digest.update(hashlib.sha256(part).digest())
    folder = cache_folder() / FOLDER / digest.hexdigest()[:32]
    with writing(folder, StageError, f"set XDG_CACHE_HOME, or name an index that {STAGE} has saved"):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            try:
                open_evaluation_index(str(folder), ngrams)
            except FormatError:
                remove(folder)
                write_evaluation_index(folder, sets, ngrams)
    return folder


class _Items(NamedTuple):
    """What an index has of its n-grams and items, mapped."""

    ngrams: Index
    positions: Longs
    lengths: Longs
    ids: pa.ChunkedArray
    """In memory: some are asked for in each batch."""


class EvaluationIndexes(NamedTuple):
    """Indexes that have been opened, and a filter of all their n-grams."""

    ngrams: Ngrams
    indexes: tuple[_Items, ...]
    words: Wide
    """uint64 [a power of two], see :func:`longcrawl.dedup._contamination_kernels.fill_filter`."""
    shift: int

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return for each evaluation set how many items it has, and how many of them are shorter than an n-gram."""
        items, short = Counter[str](), Counter[str]()
        for each in self.indexes:
            names = (name.rpartition("#")[0] for name in each.ids.to_pylist())
            for name, length in zip(names, each.lengths.tolist(), strict=True):
                items[name] += 1
                short[name] += length < self.ngrams.size
        return {name: (count, short[name]) for name, count in items.items()}

    def find(self, texts: pa.Array, min_overlap: float) -> "Found":
        """Find the items of which large strings have an n-gram, and at least a share of the units in such n-grams."""
        from longcrawl.dedup._contamination_kernels import find_ngrams

        units, bounds = self.ngrams.hash_units(texts)
        documents, places = np.empty(len(units), np.int64), np.empty(len(units), np.int64)
        keys = np.empty(len(units), np.uint64)
        size = self.ngrams.size
        units, bounds = read_only(units), read_only(bounds)
        count = find_ngrams(units, bounds, size, self.words, self.shift, documents, places, keys)
        pairs = self._pairs(documents[:count], places[:count], keys[:count])
        if not len(pairs):
            return no_contamination(len(texts))
        starts, overlaps = self._overlaps(pairs)
        enough = overlaps >= min_overlap
        firsts = pairs[starts]
        greatest = np.zeros(len(texts))
        np.maximum.at(greatest, firsts[:, 0], overlaps)
        chosen = pairs[np.repeat(enough, np.diff(starts, append=len(pairs)))]
        spans = _separate(_runs(chosen, size))
        located = self.ngrams.locate(*_dense(texts, spans[:, 0]), spans[:, 1:3])
        whole = located[:, 1] > located[:, 0]
        return Found(spans[whole, 0], located[whole], self._names(spans[whole, 3]), greatest)

    def _pairs(self, documents: Longs, places: Longs, keys: Wide) -> Longs:
        """Return n-grams of documents that items have: document, item, place in the document and in the item."""
        found, before = [np.empty((0, 4), np.int64)], 0
        for each in self.indexes:
            asked, entries = each.ngrams.entries(0, keys, MOST_ITEMS)
            items = each.ngrams.documents_of(0, entries) + before
            found.append(np.stack([documents[asked], items, places[asked], each.positions[entries]], axis=1))
            before += each.ngrams.documents
        pairs = np.concatenate(found)
        return pairs[np.lexsort((pairs[:, 3], pairs[:, 1], pairs[:, 0]))]

    def _overlaps(self, pairs: Longs) -> tuple[Longs, npt.NDArray[np.float64]]:
        """Return where each item of a document begins among pairs, and the share of its units that the document has."""
        new = _changes(pairs[:, :2])
        gained = np.minimum(np.diff(pairs[:, 3], prepend=0), self.ngrams.size)
        gained[new] = self.ngrams.size
        starts = np.flatnonzero(new)
        lengths = np.concatenate([each.lengths for each in self.indexes])
        return starts, np.add.reduceat(gained, starts) / lengths[pairs[starts, 1]]

    def _names(self, items: Longs) -> pa.Array:
        """Return the ids of items, counted through all indexes."""
        chunks = [chunk for each in self.indexes for chunk in each.ids.chunks]
        return take_ids(pa.chunked_array(chunks, pa.string()), items).combine_chunks()


class Found(NamedTuple):
    """Where texts have n-grams of items."""

    rows: Longs
    """int64 [spans], the text of each span, in increasing order."""
    places: Longs
    """int64 [spans, 2], start and stop in characters; those of one text are sorted and do not overlap."""
    items: pa.Array
    """The id of the item that each span is of."""
    overlaps: npt.NDArray[np.float64]
    """float64 [texts], the greatest share of an item that a text has; 0 for no n-gram."""


def no_contamination(texts: int) -> Found:
    """Return that nothing was found in so many texts."""
    return Found(np.empty(0, np.int64), np.empty((0, 2), np.int64), pa.array([], pa.string()), np.zeros(texts))


def _changes(rows: Longs) -> npt.NDArray[np.bool_]:
    """Return which rows differ from the one before; the first does."""
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return new


def _runs(pairs: Longs, size: int) -> Longs:
    """Join n-grams of one item that touch in a document: document, start and stop in units, item."""
    pairs = pairs[np.lexsort((pairs[:, 2], pairs[:, 1], pairs[:, 0]))]
    new = _changes(pairs[:, :2])
    new[1:] |= np.diff(pairs[:, 2]) > size
    starts = np.flatnonzero(new)
    lasts = np.append(starts[1:], len(pairs))[: len(starts)] - 1
    first = pairs[starts]
    return np.stack([first[:, 0], first[:, 2], pairs[lasts, 2] + size, first[:, 1]], axis=1)


def _separate(runs: Longs) -> Longs:
    """Cut runs so that none overlap: what several items have is of the run that begins first, or else is longest."""
    runs = runs[np.lexsort((runs[:, 3], -runs[:, 2], runs[:, 1], runs[:, 0]))]
    room = int(runs[:, 2].max(initial=0)) + 1  # so that each document begins behind the one before
    behind = runs[:, 0] * room
    reached = np.maximum.accumulate(runs[:, 2] + behind)
    before = np.concatenate([[-1], reached[:-1]])[: len(runs)] - behind
    separate = np.column_stack([runs[:, 0], np.maximum(runs[:, 1], before), runs[:, 2:]])
    return separate[separate[:, 2] > separate[:, 1]]


def _dense(texts: pa.Array, rows: Longs) -> tuple[pa.Array, Longs]:
    """Return the texts that some rows name, and the rows among these."""
    named, places = np.unique(rows, return_inverse=True)
    return texts.take(pa.array(named)), places.astype(np.int64)


def open_evaluation_index(folder: str, ngrams: Ngrams) -> _Items:
    """Open an index.

    Raises:
        FormatError: there is none, or it was made with other settings, or is damaged.
    """
    index = open_index(folder, STAGE, ngrams.settings())
    keys = index.array(band_names(0)[0], np.uint64, None, 1)
    positions = index.array("positions", np.int64, len(keys))
    lengths = index.array("lengths", np.int64, index.documents)
    return _Items(index, positions, lengths, index.ids(np.arange(index.documents)))


@reread_when_changed(4)
def open_evaluation_indexes(ngrams: Ngrams, *folders: str) -> EvaluationIndexes:
    """Open indexes and make the filter of their n-grams, 16 bits for each.

    Raises:
        FormatError: there is none in a folder, or it was made with other settings, or is damaged.
    """
    from longcrawl.dedup._contamination_kernels import fill_filter

    opened = tuple(open_evaluation_index(folder, ngrams) for folder in folders)
    bits = max(sum(len(each.positions) for each in opened).bit_length() - 2, 1)
    words = np.zeros(1 << bits, np.uint64)
    for each in opened:
        fill_filter(each.ngrams.array(band_names(0)[0], np.uint64, None, 1)[:, 0].copy(), words, 64 - bits)
    return EvaluationIndexes(ngrams, opened, read_only(words), 64 - bits)
