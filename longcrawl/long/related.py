"""Order in which related short documents follow each other, so that packing puts them into one sample.

A document is represented by its 32 words with the highest TF-IDF weights, or by a vector in one of its columns.

Documents are compared in pools of about ``pool_size``, which keep those with one keyword together. Pools, and all that
starts anew in them, are in the order of hashes, and ids break all other ties. So the first documents, which an output
may hold out, are a fair sample.

Sketches take some 400 bytes a document, plus twice a vector's dimensions; a pool takes some 3 KB a document in memory
(``benchmarks/related.py``). Beyond the memory of one process, pools are partitions of an exchange.

Sources: in-context pretraining, arXiv 2310.10638; Quest, 2405.19846; SPLiCe, 2312.17296.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import DOCUMENT, Decided, Engine, Exchange, Sketched, cut, key_ranges
from longcrawl.core.places import Spans, no_places
from longcrawl.core.registry import Conditions
from longcrawl.core.stages import (
    SORT_KEY,
    Check,
    Edited,
    Needs,
    SpanSurvey,
    column,
    document_ids,
    reject_duplicate_ids,
    stage,
    with_column,
)
from longcrawl.dedup.minhash import MinHash
from longcrawl.dedup.ngrams import hash_units
from longcrawl.errors import StageError
from longcrawl.kernels import term_vectors
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.term_vectors import NORM, Graph, TermVectors
from longcrawl.kernels.texts import fixed_rows, read_only, valid_texts
from longcrawl.long.lexical import CRAWL, LearnsWords, read_statistics, select_terms

Longs = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

TERMS = 32  # words that represent a document
COMMON = 0.2  # greatest share of pieces in which a term may occur; more common words do not characterise a document
KEYWORD = 0.002  # least share of pieces in which a document's keyword occurs, if one of its words is that common
MIN_HASH = MinHash(bands=16, rows=8, unit="word")
"""Stage whose samples of hash values are compared to find near duplicates."""
SIMILAR = 0.5
"""Least share of equal n-grams of five words at which two documents are near duplicates, within 0.05 (one s.e.)."""
BANDS, BITS = 32, 10  # groups of signs of random projections by which candidate vectors are found, and signs in a group
LENGTH = 1 << 10  # norm to which vectors are scaled before they are rounded to whole numbers
ORDERED = pa.schema([(DOCUMENT, pa.int64()), ("id", pa.string()), (SORT_KEY, pa.uint64())])
"""Schema of the result: the position of each document in the order."""


@stage
class Related(LearnsWords, SpanSurvey):
    """Order documents so that related ones follow each other, for outputs that keep the order of documents.

    Put it after the stages that remove documents and before ``tokenize``, which keeps no text; ``composed`` needs the
    planner "in-order" or "interleaved". No document is removed or changed.

    * "path", after in-context pretraining: each document has edges to the ``neighbours`` most similar ones. A path
      begins with the document that has the fewest edges, and continues with the most similar neighbour that is in no
      path yet, until there is none. Unlike in the paper, paths are not joined in the order in which they were found,
      which would put isolated documents first.
    * "tree", after SPLiCe: a tree begins with a random document and adds, breadth first, for each of its documents the
      ``branches`` most similar ones that are in no tree yet, until it has ``tree_length`` characters. They are chosen
      from the ``neighbours`` of the document; without any left, a tree ends earlier.
    * "keywords", after Quest: documents with one keyword follow each other in random order. Quest takes keywords from
      queries of a model. Here, it is the word with the highest weight among those in at least 0.2 % of the pieces.

    Similarity is the cosine of TF-IDF weights, (1 + log(count)) * -log(share of pieces with the word), of the 32 words
    with the highest weights. Words in more than 20 % of the pieces, or in only one piece, are ignored.

    Args:
        method: "path", "tree" or "keywords".
        near_duplicates: "apart" separates documents that share at least half of their n-grams of five words, as
            estimated by MinHash: they are no neighbours, and wait until another document is between them. "allowed"
            treats them like others.
        vectors: a column of lists of numbers, such as embeddings, by which documents are compared instead of words.
            Candidates are documents that share 10 signs of random projections, in one of 32 groups. None for words.
        neighbours: edges from a document to others, for "path" and "tree".
        branches: documents that each document adds to a tree.
        tree_length: characters of text at which a tree is finished; 4 are about a token.
        pool_size: approximate number of documents that are compared with each other.
        seed: seed of the order in which pools, paths and trees start.
        statistics: "crawl" learns word frequencies from the documents that reach the stage; otherwise the path of a
            file written by ``lc.long.count_words(tables).save(path)``.
        train_documents: number of documents from which statistics are learnt; None for all.

    >>> import longcrawl as lc
    >>> subjects = ["apples", "drums", "whales", "trains", "clocks", "tulips"]
    >>> rows = [{"id": f"{each}-{word}", "text": f"{word} {each}"} for word in ("one", "two") for each in subjects]
    >>> (lc.Crawl(rows) | Related()).data["id"][:4]
    ['tulips-two', 'tulips-one', 'trains-one', 'trains-two']
    """

    orders = True
    relates: ClassVar[bool] = True
    within_parts: ClassVar[bool] = False

    method: Literal["path", "tree", "keywords"] = "path"
    near_duplicates: Literal["apart", "allowed"] = "apart"
    vectors: str | None = None
    neighbours: int = 16
    branches: int = 2
    tree_length: int = 65_536
    pool_size: int = 100_000
    seed: int = 0
    statistics: str = CRAWL
    train_documents: int | None = 20_000
    only_with: ClassVar[Conditions] = MappingProxyType(
        {
            "neighbours": {"method": ("path", "tree")},
            "branches": {"method": ("tree",)},
            "tree_length": {"method": ("tree",)},
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(neighbours=1, branches=1, tree_length=1, pool_size=1, train_documents=1)
        if self.method == "keywords" and self.vectors is not None:
            raise StageError(
                f"{self.name}.method 'keywords' compares words: remove vectors, or choose 'path' or 'tree'"
            )

    @property
    def needs(self) -> Needs:
        """Kind of input: "fit" until word statistics are learnt, then "spans"."""
        return "fit" if self.needs_fit else "spans"

    @property
    def needs_fit(self) -> bool:
        """Whether word statistics must first be learnt from the documents."""
        return self.vectors is None and super().needs_fit

    def files(self) -> tuple[str, ...]:
        """Return the path of the statistics, if they are read from a file."""
        return super().files() if self.vectors is None else ()

    def prepare(self) -> None:
        """Read the statistics and compile the kernels."""
        if self.needs_fit:
            return
        one = {"id": ["a"], "text": pa.array(["a text"], pa.large_string())}
        if self.vectors is not None:
            one[self.vectors] = pa.array([[1.0]], pa.list_(pa.float32()))
        self.resolve(self.sketch(pa.table(one)))

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return the columns by which documents are compared.

        ``id``; ``rank`` (uint64, a keyed hash of it); ``keyword`` (uint64, a hash of the word, or ``rank`` without
        one); ``terms`` (lists of uint32) and ``weights`` (lists of uint16); ``vector`` (lists of int16), if ``vectors``
        is set; ``sample`` (128 bytes of hash values), for near duplicates; ``length`` (int64, characters), for "tree".
        """
        self.check_fitted()
        ids = pc.cast(document_ids(table, self.name), pa.string())
        ranks = keyed_hash(ids.to_pylist(), self.name, self.seed)
        made: dict[str, Any] = {"id": ids, "rank": pa.array(ranks)}
        made |= self._words(table) if self.vectors is None else _signs(self._vectors(table, self.vectors))
        made["keyword"] = pa.array(np.where(made["keyword"] == 0, ranks, made["keyword"]))
        if self.near_duplicates == "apart":
            made["sample"] = MIN_HASH.sketch(pa.table({"id": ids, "text": self._texts(table)}))["sample"]
        if self.method == "tree":
            made["length"] = pc.cast(pc.fill_null(pc.utf8_length(self._texts(table)), 0), pa.int64())
        return pa.table(made)

    def find(self, sketches: Iterable[pa.Table], directory: str) -> Spans:  # noqa: ARG002  # no files are needed
        """Return the position of each document in the order, in the column ``sort_key``, instead of spans."""
        rows = pa.concat_tables(sketches)
        reject_duplicate_ids(rows["id"], self.name)
        pools = _cut_by_keyword(self._partitions(len(rows)), rows, 0)
        return Spans(_take_places(0, (self.take(pool, iter([here])) for pool, here in pools)))

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided:
        """Order documents as :meth:`find` does, with each pool in a task of its own."""
        pools = self._partitions(int(sketched.starts[-1]))
        ordered = Exchange(partial(_make_rows, sketched, pools), self.take, pools, sketched.place("related"))
        engine.exchange(ordered, range(sketched.groups))
        back = partial(sketched.split, ordered, DOCUMENT)
        placed = Exchange(back, _take_places, sketched.groups, sketched.place("placed"))
        engine.exchange(placed, range(pools))
        return Decided(placed.read)

    def order(self, sketches: pa.Table) -> Longs:
        """Return the order of documents from the sketches of all of them."""
        found: Longs = np.argsort(self.resolve(sketches).table[SORT_KEY].to_numpy()).astype(np.int64)
        return found

    def edit_spans(self, table: pa.Table, spans: Spans) -> tuple[pa.Table, Sequence[Check]]:
        """Add the position of each document in the order as the key by which outputs sort."""
        _, rows = spans.rows_of(document_ids(table, self.name))
        return with_column(table, SORT_KEY, spans.table[SORT_KEY].take(pa.array(rows)).combine_chunks()), ()

    def trace_spans(self, table: pa.Table, spans: Spans) -> Edited:
        """Add the position of each document, without changes to its text."""
        return Edited(*self.edit_spans(table, spans), no_places())

    def limits(self) -> tuple[str, ...]:
        """Describe that neighbouring documents are related, unlike in a random order."""
        return (f"Adjacent documents are related ({self.method}), not in random order",)

    def take(self, partition: int, tables: Iterator[pa.Table]) -> pa.Table:
        """Return the order of the documents of a partition, ``ORDERED``."""
        if not (found := list(tables)):
            return ORDERED.empty_table()
        keys = [(name, "ascending") for name in ("keyword", "rank", "id")]
        rows = pa.concat_tables(found).sort_by(keys).combine_chunks()
        bounds = [*range(0, self.pool_size * self._partitions(len(rows)), self.pool_size), len(rows)]
        pools = [first + self._order_pool(rows.slice(first, stop - first)) for first, stop in pairwise(bounds)]
        ordered = rows.select([DOCUMENT, "id"]).take(np.concatenate(pools))
        places = (np.uint64(partition) << np.uint64(40)) + np.arange(len(rows), dtype=np.uint64)
        return pa.table([*ordered.columns, pa.array(places)], schema=ORDERED).combine_chunks()

    def _partitions(self, documents: int) -> int:
        return max(documents // self.pool_size, 1)

    def _order_pool(self, rows: pa.Table) -> Longs:
        """Return the order of the documents of a pool, which are sorted by keyword, rank and id."""
        # Documents are numbered in the order of hashes, so that ties go to a random document.
        numbers = pc.sort_indices(rows, sort_keys=[("rank", "ascending"), ("id", "ascending")]).to_numpy()
        numbers = numbers.astype(np.int64)
        samples = np.zeros((len(rows), 0), np.uint8)
        if self.near_duplicates == "apart":
            samples = fixed_rows(rows["sample"].combine_chunks())
        order, near = np.arange(len(rows)), _near(samples)
        if self.method != "keywords":
            here, ordered = rows.take(numbers), read_only(samples[numbers])
            graph = term_vectors.make_graph(*_vectors_of(here), ordered, near, self.neighbours)
            order = numbers[self._follow(here, graph)]
        out = np.empty_like(order)
        term_vectors.keep_apart(order, read_only(samples), near, out)
        return out

    def _follow(self, rows: pa.Table, graph: Graph) -> Longs:
        order = np.empty(len(rows), np.int64)
        if self.method == "tree":
            starts, lengths = np.arange(len(rows)), rows["length"].to_numpy()
            term_vectors.grow(starts, graph.bounds, graph.others, lengths, self.tree_length, self.branches, order)
            return order
        begins = np.zeros(len(rows), np.bool_)
        term_vectors.walk(np.argsort(np.diff(graph.bounds), kind="stable"), *graph, order, begins)
        path = np.cumsum(begins) - 1
        # Paths are sorted by the number of their first document, which is random.
        return order[np.argsort(order[begins][path], kind="stable")]

    def _texts(self, table: pa.Table) -> pa.Array:
        return valid_texts(column(table, "text", self.name), self.name)

    def _words(self, table: pa.Table) -> dict[str, Any]:
        known = read_statistics(self.statistics)
        units, bounds = hash_units(self._texts(table), None)
        documents = len(bounds) - 1
        ends, keywords = np.empty(documents + 1, np.int64), np.empty(documents, np.uint64)
        terms, weights = np.empty(documents * TERMS, np.uint32), np.empty(documents * TERMS, np.uint16)
        asked = (*known.table, known.pieces, COMMON, KEYWORD, NORM)
        select_terms(units, bounds, *asked, ends, terms, weights, keywords)
        return {**_term_lists(ends, terms[: ends[-1]], weights[: ends[-1]]), "keyword": keywords}

    def _vectors(self, table: pa.Table, name: str) -> npt.NDArray[np.float64]:
        """Return the vectors of documents, float64 [documents, dimensions]; zeros for documents without one."""
        given = column(table, name, self.name)
        lists = pa.types.is_list(given.type) or pa.types.is_large_list(given.type)
        numbers = given.type.value_type if lists or pa.types.is_fixed_size_list(given.type) else pa.null()
        if not (pa.types.is_floating(numbers) or pa.types.is_integer(numbers)):
            raise StageError(f"{self.name}.vectors must be a column of lists of numbers, but {name!r} is {given.type}")
        sizes = pc.list_value_length(given).drop_null().unique().to_pylist()
        if len(sizes) > 1:
            raise StageError(
                f"{self.name}.vectors: lists of {name!r} have {sizes[0]} and {sizes[1]} numbers: make them equally long"
            )
        there = given.is_valid().to_numpy(zero_copy_only=False)
        found = np.zeros((len(given), sizes[0] if sizes else 1))
        values = pc.cast(given.drop_null().flatten(), pa.float64()).to_numpy(zero_copy_only=False)
        found[there] = values.reshape(-1, found.shape[1])
        if not np.isfinite(found).all():
            raise StageError(f"{self.name}.vectors: a number of {name!r} is null or not finite: drop these documents")
        return found


def _vectors_of(rows: pa.Table) -> tuple[TermVectors, npt.NDArray[np.int16]]:
    """Return the term vectors of sketches, and the documents' own vectors, of no dimension if there are none."""
    terms, weights = (rows[name].combine_chunks() for name in ("terms", "weights"))
    bounds = np.concatenate([[0], np.cumsum(pc.list_value_length(terms).to_numpy())]).astype(np.int64)
    vectors = TermVectors(bounds, *(read_only(each.flatten().to_numpy()) for each in (terms, weights)))
    given = rows["vector"].combine_chunks() if "vector" in rows.column_names else pa.array([], pa.list_(pa.int16()))
    sizes = pc.list_value_length(given).to_numpy(zero_copy_only=False)
    dense = np.zeros((len(rows), sizes.max(initial=0)), np.int16)
    there = np.flatnonzero(sizes)
    if len(different := np.unique(sizes[there])) > 1:
        raise StageError(
            f"related.vectors: lists have {different[0]} and {different[-1]} numbers: make them equally long"
        )
    dense[there] = given.flatten().to_numpy(zero_copy_only=False).reshape(len(there), dense.shape[1])
    return vectors, read_only(dense)


def _near(samples: npt.NDArray[np.uint8]) -> int:
    """Return the number of equal sample bytes that makes near duplicates; one byte in 256 agrees by chance."""
    return int(np.ceil((SIMILAR * (1 - 1 / 256) + 1 / 256) * samples.shape[1])) if samples.shape[1] else 1


def _term_lists(ends: Longs, terms: npt.NDArray[np.uint32], weights: npt.NDArray[np.uint16]) -> dict[str, pa.Array]:
    offsets = pa.array(ends.astype(np.int32))
    values = {"terms": terms, "weights": weights}
    return {name: pa.ListArray.from_arrays(offsets, pa.array(each)) for name, each in values.items()}


def _signs(vectors: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Return vectors as whole numbers, and the signs of their random projections as terms of equal weight."""
    documents, dimensions = vectors.shape
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    there = lengths[:, 0] > 0
    whole = np.rint(LENGTH * vectors / np.where(lengths > 0, lengths, 1.0))
    # Sums of products of whole numbers below 2**53 are exact in any order.
    signs = (whole @ _planes(dimensions) > 0).reshape(documents, BANDS, BITS)
    codes = (signs << np.arange(BITS)).sum(axis=2) + (np.arange(BANDS) << BITS)
    terms = np.sort(codes.astype(np.uint32)[there], axis=1).ravel()
    ends, places = (np.cumsum([0, *np.where(there, each, 0)]) for each in (BANDS, dimensions))
    keywords = keyed_hash(map(str, codes[:, 0].tolist()), "signs", 0)
    return {
        **_term_lists(ends, terms, np.ones(len(terms), np.uint16)),
        "vector": pa.ListArray.from_arrays(
            pa.array(places.astype(np.int32)), pa.array(whole[there].astype(np.int16).ravel())
        ),
        "keyword": np.where(there, keywords, 0),
    }


@lru_cache(maxsize=4)
def _planes(dimensions: int) -> npt.NDArray[np.float64]:
    """Return random directions of 1 and -1: float64 [dimensions, BANDS * BITS]."""
    count = dimensions * BANDS * BITS
    hashes = keyed_hash(map(str, range(-(-count // 64))), "directions", 0)
    bits = np.unpackbits(hashes.astype("<u8").view(np.uint8))[:count]
    directions: npt.NDArray[np.float64] = np.where(bits.reshape(dimensions, BANDS * BITS), 1.0, -1.0)
    return directions


def _make_rows(sketched: Sketched, partitions: int, group: int) -> Iterator[tuple[int, pa.Table]]:
    first = int(sketched.starts[group])
    for table in sketched.read(group):
        yield from _cut_by_keyword(partitions, table, first)
        first += len(table)


def _cut_by_keyword(partitions: int, rows: pa.Table, first: int) -> Iterator[tuple[int, pa.Table]]:
    """Number documents, from ``first`` on, and cut them into partitions."""
    numbered = rows.append_column(DOCUMENT, pa.array(np.arange(first, first + len(rows))))
    return cut(numbered, key_ranges(rows["keyword"].to_numpy(), partitions))


def _take_places(_: int, tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([ORDERED.empty_table(), *tables]).sort_by(DOCUMENT).combine_chunks()
