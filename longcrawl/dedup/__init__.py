"""Stages that compare documents with each other."""

from longcrawl.dedup.curve import SimilarityCurve
from longcrawl.dedup.exact import ExactDocuments, ListedDuplicates
from longcrawl.dedup.minhash import MinHash
from longcrawl.dedup.ngrams import ngram_hash
from longcrawl.dedup.signatures import MinHashSignatures
from longcrawl.dedup.substring import ExactSubstring
from longcrawl.dedup.urls import TRACKING_PARAMETERS, Urls, normalise_url

__all__ = [
    "TRACKING_PARAMETERS",
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
