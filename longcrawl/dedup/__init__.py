"""Stages that compare documents with each other."""

from longcrawl.dedup.exact import ExactDocuments, ListedDuplicates

__all__ = ["ExactDocuments", "ListedDuplicates"]
