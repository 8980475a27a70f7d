"""Documents that have equal hashes, of which one is kept.

If documents are in several groups, the first of each hash in each group meets those of the other groups: a million
equal documents are as many rows as there are groups. Each group then learns which of its first documents are removed.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.keyed_hash import keyed_hash
from longcrawl.core.sketched import DOCUMENT, Decided, Sketched, cut, key_ranges
from longcrawl.core.stages import PART, REMOVAL_SCHEMA, document_ids
from longcrawl.dedup.earlier import search_earlier, staying
from longcrawl.dedup.index import REMOVALS, IndexedSurvey, Keys, Places, SaveIndex, removal_table
from longcrawl.engines.base import Engine, Exchange
from longcrawl.kernels.texts import fixed_rows
from longcrawl.ledger.reasons import number_rule

HASH_BYTES = 16


@dataclass(frozen=True)
class EqualHashes(IndexedSurvey):
    """Keep one of all documents that have the same 128-bit hash.

    Two different things among 1e9 share a hash with probability 1.5e-21. ``keep`` is "first" or "random". The first
    document is that of the first file, in the order in which the source lists files, and of the first row. The random
    one has the smallest keyed hash of ``seed`` and id, and does not depend on the order of documents. A run of several
    ``parts`` takes them one after the other, as RefinedWeb does: the documents that earlier parts kept in the end,
    after all stages, remove those of later parts that have their hash. A document whose hash is null is kept.
    ``against`` names indexes of earlier datasets, or runs that saved one: documents that they have are removed by the
    rule ``seen_before``, with the number of the index if there are several. With ``index="save"`` a run writes an index
    of the documents that it has kept in the end.
    """

    keep: Literal["first", "random"] = "first"
    seed: int = 0
    against: tuple[str, ...] = ()
    index: SaveIndex = "none"

    after_parts: ClassVar[bool] = True
    key: ClassVar[str] = "hash"
    words: ClassVar[int] = 2
    same: ClassVar[str]
    """The rule by which a duplicate leaves."""

    @abstractmethod
    def hashes(self, table: pa.Table) -> pa.Array:
        """Return the 16-byte hash of each document; null keeps it."""

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``hash`` (16 bytes)."""
        return pa.table({"id": document_ids(table, self.name), "hash": self.hashes(table)})

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided:
        """Keep one document of each hash; the first of each hash in each group meets those of other groups.

        Its row has 16 bytes of hash, number, rank and id; a group and the rows of as many documents are in memory.
        """
        earlier, groups = search_earlier(self, sketched, engine), sketched.groups
        first = Exchange(partial(self._make_first, sketched, earlier), _take_first, groups, sketched.place("first"))
        engine.exchange(first, range(groups))
        make, take = partial(sketched.split, first, DOCUMENT), partial(self._take_removals, sketched, earlier)
        removals = Exchange(make, take, groups, sketched.place("removals"))
        engine.exchange(removals, range(groups))
        return Decided(removals.read)

    @property
    def index_bands(self) -> int:
        """One: the hashes themselves."""
        return 1

    def band_keys(self, known: pa.Table) -> Iterator[Keys]:
        """Return the hashes of documents that have one."""
        yield _words(known["hash"])

    def find_earlier(self, sketches: pa.Table) -> pa.Table:
        """Return the removals of documents whose hash an earlier dataset has."""
        removals = [REMOVAL_SCHEMA.empty_table()]
        left = sketches.filter(pc.is_valid(sketches["hash"]))
        indexes = self.open_indexes()
        for number, index in enumerate(indexes, 1):
            found = index.find(0, _words(left["hash"]))
            gone = np.flatnonzero(found >= 0)
            rule = number_rule("seen_before", number, len(indexes))
            removals.append(removal_table(left["id"].take(gone), rule, index.ids(found[gone])))
            left = left.take(np.flatnonzero(found < 0))
        return pa.concat_tables(removals)

    def _with_rank(self, sketches: pa.Table) -> pa.Table:
        if self.keep == "first":
            return sketches
        ids = (name.as_py() for name in sketches["id"])  # not as a list, which would hold every id as an object
        return sketches.append_column("rank", pa.array(keyed_hash(ids, self.name, self.seed), pa.uint64()))

    def _group(self, sketched: Sketched, earlier: Exchange, group: int) -> tuple[pa.Table, Places]:
        """Return the documents of a group that have a hash, numbered and ordered, and the places of their leaders."""
        table = sketched.table(group)
        places = staying(table["hash"], group, sketched, earlier)
        numbers = pa.array(sketched.starts[group] + places)
        return _ordered(self._with_rank(table.take(places).append_column(DOCUMENT, numbers)))

    def _make_first(self, sketched: Sketched, earlier: Exchange, group: int) -> Iterator[tuple[int, pa.Table]]:
        """Send the first document of each hash of a group to those of other groups, by ranges of hashes."""
        if sketched.groups == 1:
            return
        known, leaders = self._group(sketched, earlier, group)
        first = known.take(np.flatnonzero(leaders == np.arange(len(leaders))))
        yield from cut(first, key_ranges(_words(first["hash"])[:, 0].byteswap(), sketched.groups))

    def _take_removals(self, sketched: Sketched, earlier: Exchange, group: int, tables: Iterator[pa.Table]) -> pa.Table:
        """Return the removals of a group: a document leaves for what its leader leaves for, or for its leader."""
        known, leaders = self._group(sketched, earlier, group)
        left = pa.concat_tables([FOLLOWERS.empty_table(), *tables])
        kept = known["id"].take(leaders)
        elsewhere = pc.index_in(known[DOCUMENT].take(leaders), value_set=left[DOCUMENT])
        kept = pc.coalesce(left["kept_id"].take(elsewhere), kept)
        gone = np.flatnonzero(pc.is_valid(elsewhere).to_numpy() | (leaders != np.arange(len(leaders))))
        removals = removal_table(known["id"].take(gone), self.same, kept.take(gone))
        numbered = removals.add_column(0, DOCUMENT, known[DOCUMENT].take(gone)).cast(REMOVALS)
        return pa.concat_tables([earlier.read(group), numbered]).sort_by(DOCUMENT).combine_chunks()


FOLLOWERS = pa.schema([(DOCUMENT, pa.int64()), ("kept_id", pa.string())])
"""Documents that are first of their hash in a group, but not among all groups."""


def _ordered(known: pa.Table) -> tuple[pa.Table, Places]:
    """Return documents with equal hashes side by side, and the place of the one of each hash that is kept."""
    keys = [key for key in ("hash", PART, "rank", DOCUMENT) if key in known.column_names]
    known = known.take(pc.sort_indices(known, sort_keys=[(key, "ascending") for key in keys]))
    hashes, places = known["hash"], np.arange(known.num_rows)
    if len(places):
        places[1:][pc.equal(hashes[1:], hashes[:-1]).to_numpy()] = 0
    return known, np.maximum.accumulate(places)


def _take_first(_: int, tables: Iterator[pa.Table]) -> pa.Table:
    found = list(tables)
    if not found:
        return FOLLOWERS.empty_table()
    known, leaders = _ordered(pa.concat_tables(found))
    gone = np.flatnonzero(leaders != np.arange(len(leaders)))
    columns = [known[DOCUMENT].take(gone), known["id"].take(leaders[gone])]
    return pa.table(columns, schema=FOLLOWERS).combine_chunks()


def _words(hashes: pa.ChunkedArray) -> Keys:
    """Return hashes without nulls as two words each: uint64 (n, 2)."""
    whole = pa.concat_arrays(hashes.chunks) if hashes.num_chunks else pa.array([], pa.binary(HASH_BYTES))
    return fixed_rows(whole).view(np.uint64)
