"""What other libraries' trainers need of feeds beyond a dataset."""

from longcrawl.integrations import transformers

__all__ = ["transformers"]
