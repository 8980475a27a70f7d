"""Batches for a trainer, with exact resume."""

from longcrawl.loading.rectangle import Rectangle

__all__ = ["Rectangle"]
