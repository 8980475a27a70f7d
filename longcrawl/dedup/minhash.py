"""Near-duplicate removal by MinHash, as in RefinedWeb, FineWeb and Lee et al. (2022)."""

import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.registry import Conditions, preset_fields
from longcrawl.core.stages import column, document_ids, stage
from longcrawl.dedup.clusters import Clustering, Keep, Linkage, OnLargeCluster
from longcrawl.dedup.index import Index, SaveIndex
from longcrawl.dedup.ngrams import (
    Permutations,
    hash_units,
    make_scratch,
    ngram_hash,
    sign_all,
    sketch,
    split_words,
    unique_ngrams,
)
from longcrawl.dedup.normalize import normalize
from longcrawl.dedup.signatures import MinHashSignatures, NearDuplicates, SimilarityCurve, bands_for_threshold
from longcrawl.errors import FormatError, StageError, TokenizerError
from longcrawl.kernels.texts import fixed_binary, valid_texts
from longcrawl.tokens.encoders import Encoder, TokenizerStage, load_encoder, tokenizer_digest

Wide = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Texts: TypeAlias = Sequence[str | None] | pa.Array | pa.ChunkedArray

SAMPLE = 128
"""Number of hash values of which one byte is kept, to estimate similarities: with a standard error of 0.04 at 0.8."""

MOST_PERMUTATIONS = 1 << 20

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "fineweb": {"bands": 14, "rows": 8, "ngram": 5, "unit": "word"},
        "finepdfs": {"bands": 32, "rows": 10, "ngram": 5, "unit": "word", "max_characters": 1_000_000},
        "lee2022": {"bands": 450, "rows": 20, "ngram": 5, "unit": "word", "verify": 0.8},
        "refinedweb": {"bands": 450, "rows": 20, "ngram": 5, "unit": "token"},
    }
)


@stage
class MinHash(TokenizerStage, NearDuplicates):
    """Keep one of all documents with nearly the same n-grams.

    A text is normalised (:mod:`longcrawl.dedup.normalize`), split into words or tokens, and represented by the set of
    its n-grams (:mod:`longcrawl.dedup.ngrams`). Two documents are linked if their hash values agree in all rows of a
    band. A pair of Jaccard similarity s is linked with probability ``1 - (1 - s**rows)**bands``, which
    ``print(stage.curve)`` shows. Hash values equal those of datasketch's scheme "affine32", bit for bit.

    A document with at most one n-gram duplicates documents with the same normal form. A document without units (empty,
    null, only punctuation) is always kept. Among n documents, two with different hash values share a band key with
    probability n**2 / 2**65 per band.

    The result does not depend on batch size, and only ``keep="first"`` depends on the order of documents. The ledger's
    value is the Jaccard similarity to the kept document, exact if ``verify`` is set and otherwise estimated from 128
    hash values.

    Args:
        bands: number of bands. RefinedWeb's main text gives "20 buckets of 450", with which half of all pairs are found
            at similarity 0.993. Its appendix gives the formula and the parameters of Lee et al., who use 450 of 20.
        rows: hash values in a band.
        ngram: units in an n-gram.
        unit: "token" of ``tokenizer``, or "word".
        seed: seed of the permutations, as in datasketch, and of the choice "random".
        keep: document of a cluster to keep: "random", the "longest" in bytes of text (of equally long ones, the
            smallest id), or the "first" in reading order.
        tokenizer: for the unit "token": a file, a Hub id or an object; see
            :func:`longcrawl.tokens.encoders.load_encoder`.
        verify: least Jaccard similarity at which two documents that share a band are linked. The sketch then includes
            n-grams, 4 bytes each. All pairs that share a band key are compared, unless more than 1,024 different sets
            of n-grams share it: then each is compared with the 1,024 before and the 1,024 after it in size.
        linkage: "single": linked documents form one cluster, as in the paper, even if A and C are only linked through
            B. "star": a document is removed only if it is itself similar enough to a kept one; needs ``verify``. It is
            compared with the documents kept before it in its cluster, up to the first 4,096 of a suitable size.
        min_size_ratio: two documents are linked only if the smaller has at least this share of the other's n-grams.
            With linkage "single", a cluster may still chain from long to short documents; with "star", the bound also
            holds for the kept document.
        max_cluster: maximum size of a cluster, above which ``on_large_cluster`` applies; None for no bound.
        on_large_cluster: "warn", "error", or "keep" all of its documents and warn.
        max_characters: characters at the start of a text that are compared; None for all.
        against: indexes of earlier datasets, or runs that saved one. A document that shares a band with a document kept
            there is removed by the rule ``near_duplicate_of_earlier``, before the others are compared with each other.
            ``verify`` (of both) and ``min_size_ratio`` also apply here, to at most 64 documents of each band key of an
            index. See :mod:`longcrawl.dedup.clusters`.
        index: with "save", a run writes an index of the documents that it finally kept, 16 bytes per band and document.

    >>> from datasets import Dataset
    >>> import longcrawl as lc
    >>> texts = {"a": "To be, or not to be: that is the question.", "b": "to be or not to BE -- that is the question!"}
    >>> crawl = lc.Crawl(Dataset.from_dict({"id": list(texts), "text": list(texts.values())}))
    >>> print((crawl | lc.dedup.MinHash.preset("fineweb", keep="first")).why("b"))
    b: removed at min_hash, rule near_duplicate: a duplicate of a, similarity 1.00
    """

    bands: int = 450
    rows: int = 20
    ngram: int = 5
    unit: Literal["token", "word"] = "token"
    seed: int = 1
    keep: Keep = "random"
    tokenizer: str = "gpt2"
    verify: float | None = None
    linkage: Linkage = "single"
    min_size_ratio: float | None = None
    max_cluster: int | None = 10_000
    on_large_cluster: OnLargeCluster = "warn"
    max_characters: int | None = None
    against: tuple[str, ...] = ()
    index: SaveIndex = "none"

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS
    code_version: ClassVar[str] = "2"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("max_characters",)
    only_with: ClassVar[Conditions] = MappingProxyType({"on_large_cluster": {"max_cluster": None}})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(bands=1, rows=1, ngram=1, max_characters=1)
        if self.bands * self.rows > MOST_PERMUTATIONS:
            raise StageError(f"{self.name} has {self.bands} bands of {self.rows}: use at most 1,048,576 hash values")
        if not 0 <= self.seed < 1 << 32:
            raise StageError(f"{self.name}.seed is {self.seed}: set it from 0 to 4,294,967,295, as in datasketch")
        for name in ("verify", "min_size_ratio"):
            if (value := getattr(self, name)) is not None and not 0 < value <= 1:
                raise StageError(f"{self.name}.{name} is {value}: set it above 0 and up to 1, or to null")
        if self.linkage == "star" and self.verify is None:
            raise StageError(f"{self.name}.linkage 'star' compares documents with those kept: set verify, such as 0.8")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "MinHash":
        """Return a stage with published settings; ``changes`` overrides fields.

        * "refinedweb": 450 bands of 20 over GPT-2 tokens (arXiv 2306.01116, G.3.1);
        * "fineweb": 14 bands of 8 over words;
        * "finepdfs": 32 bands of 10 over words of the first 1,000,000 characters;
        * "lee2022": 450 bands of 20 over words (arXiv 2107.06499), and ``verify`` at 0.8; this is Jaccard similarity,
          while the paper used edit similarity. Set ``linkage="star"`` if each removed document must be that similar to
          the kept one.

        Raises:
            StageError: the preset is unknown; the message lists the known ones.
        """
        return cls(**preset_fields(cls, name, changes))

    @classmethod
    def for_threshold(
        cls, threshold: float, permutations: int = 128, false_positive_weight: float = 0.5, **fields: Any
    ) -> "MinHash":
        """Return a stage with the bands of the least weighted error for a similarity threshold, as in datasketch.

        >>> curve = MinHash.for_threshold(0.8, unit="word").curve
        >>> curve.bands, curve.rows
        (9, 13)
        """
        bands, rows = bands_for_threshold(threshold, permutations, false_positive_weight)
        return cls(bands=bands, rows=rows, **fields)

    @staticmethod
    def from_signatures(column: str = "signature_sim0.8", **fields: Any) -> MinHashSignatures:
        """Return a stage that uses the signatures published with RedPajama-V2; no text is read."""
        return MinHashSignatures(column, **fields)

    @property
    def permutations(self) -> int:
        """Number of hash values in a signature."""
        return self.bands * self.rows

    @property
    def curve(self) -> SimilarityCurve:
        """Probability that a pair is found, by its similarity; can be printed or plotted."""
        return SimilarityCurve(self.bands, self.rows)

    @property
    def clustering(self) -> Clustering:
        """Settings that decide about documents that share a band."""
        names = ("bands", "keep", "seed", "verify", "linkage", "min_size_ratio", "max_cluster", "on_large_cluster")
        return Clustering(self.name, **{name: getattr(self, name) for name in names})

    def prepare(self) -> None:
        """Open the indexes, load the tokenizer and compile the kernels."""
        super().prepare()
        self.sketch(pa.table({"id": ["a"], "text": ["a text"]}))

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return the columns by which documents are compared.

        ``id``; ``bands`` (8 bytes per band, null for a document without n-grams); ``sample`` (the low byte of up to 128
        hash values); ``n_ngrams`` (int32, unique ones); ``length`` (int64, bytes of the text) if the longest is kept;
        ``ngrams`` (lists of uint32, sorted) if ``verify`` is set.
        """
        ids, texts = document_ids(table, self.name), valid_texts(column(table, "text", self.name), self.name)
        units, bounds = self._hash_units(texts)
        documents = len(texts)
        counts, ends = np.empty(documents, np.int32), np.empty(documents + 1, np.int64)
        keys = np.empty((documents, self.bands), np.uint64)
        samples = np.empty((documents, min(self.permutations, SAMPLE)), np.uint8)
        kept = np.empty(0 if self.verify is None else len(units) + documents, np.uint32)
        scratch = make_scratch(int(np.diff(bounds).max(initial=0)), self.permutations)
        permutations = make_permutations(self.permutations, self.seed)
        sketch(units, bounds, self.ngram, self.rows, permutations, scratch, counts, keys, samples, kept, ends)
        made = {"id": ids, "bands": fixed_binary(keys.view(np.uint8), counts > 0)}
        made |= {"sample": fixed_binary(samples), "n_ngrams": pa.array(counts)}
        if self.keep == "longest":
            made["length"] = pc.cast(pc.fill_null(pc.binary_length(texts), 0), pa.int64())
        if self.verify is not None:
            made["ngrams"] = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(kept[: ends[-1]]))
        return pa.table(made)

    def hashed(self) -> dict[str, Any]:
        """Return the settings that the band keys depend on, with the Unicode version and the tokenizer's digest."""
        names = ("bands", "rows", "ngram", "unit", "seed", "code_version")
        made = {name: getattr(self, name) for name in names} | {"unicode": unicodedata.unidata_version}
        if self.max_characters is not None:
            made["max_characters"] = self.max_characters
        if self.unit == "token":
            made["tokenizer"] = tokenizer_digest(self.tokenizer) or self.tokenizer
        return made

    def open_indexes(self) -> list[Index]:
        """Open the indexes of ``against``; FormatError also for an index without n-grams if ``verify`` is set."""
        indexes = super().open_indexes()
        for index in indexes:
            if self.verify is not None and not index.has("ngrams"):
                raise FormatError(
                    f"the index at {index.folder} was saved with verify=null and has no n-grams, but this "
                    f"{self.name} has verify={self.verify}: save the index again with verify set, or set verify "
                    "to null here"
                )
        return indexes

    def ngrams(self, text: str) -> list[tuple[str | int, ...]]:
        """Return the unique n-grams by which a text is compared, in the order of their first occurrence.

        >>> MinHash(unit="word", ngram=2).ngrams("To be, or not")
        [('to', 'be'), ('be', 'or'), ('or', 'not')]
        """
        normal = normalize(self._beginnings(pa.array([text])))
        if self.unit == "word":
            return unique_ngrams(split_words(normal[0].as_py()), self.ngram)
        return unique_ngrams(self._encoder().encode(normal).ids.tolist(), self.ngram)

    def signatures(self, texts: Texts) -> npt.NDArray[np.uint32]:
        """Return the hash values of texts, uint32 [texts, bands * rows]; all 0xFFFFFFFF for a text without n-grams."""
        units, bounds = self._hash_units(valid_texts(column(pa.table({"text": texts}), "text", self.name), self.name))
        scratch = make_scratch(int(np.diff(bounds).max(initial=0)), self.permutations)
        found = np.empty((len(texts), self.permutations), np.uint32)
        sign_all(units, bounds, self.ngram, make_permutations(self.permutations, self.seed), scratch, found)
        return found

    def to_datasketch(self, texts: Texts) -> list[Any]:
        """Return a ``datasketch.MinHash`` per text, for its indexes and formats.

        Each equals ``datasketch.MinHash(num_perm=stage.permutations, seed=stage.seed, hashfunc=lc.dedup.ngram_hash)``
        updated with ``stage.ngrams(text)``.

        Raises:
            StageError: datasketch is not installed.
        """
        try:
            from datasketch import MinHash as Sketch
        except ImportError as missing:
            raise StageError("to_datasketch needs datasketch: pip install 'longcrawl[datasketch]'") from missing

        permutations = np.array(make_permutations(self.permutations, self.seed))
        make = partial(Sketch, seed=self.seed, hashfunc=ngram_hash, permutations=permutations, scheme="affine32")
        return [make(hashvalues=values) for values in self.signatures(texts)]

    def _encoder(self) -> Encoder:
        try:
            return load_encoder(self.tokenizer)
        except TokenizerError as missing:
            raise TokenizerError(f"{self.name}.tokenizer: {missing}; or set unit='word', which needs none") from missing

    def _hash_units(self, texts: pa.Array) -> tuple[Wide, Longs]:
        return hash_units(self._beginnings(texts), self._encoder() if self.unit == "token" else None)

    def _beginnings(self, texts: pa.Array) -> pa.Array:
        """Return the compared parts of texts; a text has no more characters than bytes."""
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        if self.max_characters is None or longest <= self.max_characters:
            return texts
        return pc.utf8_slice_codeunits(texts, 0, self.max_characters)


@lru_cache(maxsize=4)
def make_permutations(count: int, seed: int) -> Permutations:
    """Return datasketch's permutations, drawn from the same generator in the same order."""
    generator = np.random.RandomState(seed)
    factors = generator.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return Permutations(factors, generator.randint(0, 1 << 32, count, dtype=np.uint32))
