"""Stages that compare documents with each other."""

from longcrawl.dedup.exact import ExactDocuments, ListedDuplicates
from longcrawl.dedup.substring import ExactSubstring

__all__ = ["ExactDocuments", "ExactSubstring", "ListedDuplicates"]
