"""Stages that compare documents with each other."""

from longcrawl.dedup.curve import SimilarityCurve
from longcrawl.dedup.exact import ExactDocuments, ListedDuplicates
from longcrawl.dedup.substring import ExactSubstring

__all__ = ["ExactDocuments", "ExactSubstring", "ListedDuplicates"]
from longcrawl.dedup.minhash import MinHash
from longcrawl.dedup.ngrams import ngram_hash
from longcrawl.dedup.signatures import MinHashSignatures

__all__ = ["ExactDocuments", "ListedDuplicates", "MinHash", "MinHashSignatures", "SimilarityCurve", "ngram_hash"]
from longcrawl.dedup.urls import Urls, normalise_url

__all__ = ["ExactDocuments", "ListedDuplicates", "Urls", "normalise_url"]
