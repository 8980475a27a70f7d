"""Deduplication and decontamination stages, which compare documents with each other or with evaluation sets."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.dedup.decontaminate import Decontaminate
    from longcrawl.dedup.exact import TRACKING_PARAMETERS, ExactDocuments, ListedDuplicates, Urls, normalise_url
    from longcrawl.dedup.minhash import MinHash
    from longcrawl.dedup.ngrams import ngram_hash
    from longcrawl.dedup.signatures import MinHashSignatures, SimilarityCurve
    from longcrawl.dedup.substring import ExactSubstring

__all__ = [
    "TRACKING_PARAMETERS",
    "Decontaminate",
    "ExactDocuments",
    "ExactSubstring",
    "ListedDuplicates",
    "MinHash",
    "MinHashSignatures",
    "SimilarityCurve",
    "Urls",
    "ngram_hash",
    "normalise_url",
]

lazy(__name__)
