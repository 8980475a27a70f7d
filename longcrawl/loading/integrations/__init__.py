"""Helpers for the trainers of other libraries."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.loading.integrations import transformers

__all__ = ["transformers"]

lazy(__name__)
