"""Stages that make and shape tokens."""

from longcrawl.tokens.longcrawl64 import MinTokens, Roll, Shuffle, Truncate
from longcrawl.tokens.tokenize import Tokenize

__all__ = ["MinTokens", "Roll", "Shuffle", "Tokenize", "Truncate"]
