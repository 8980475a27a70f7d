"""Stages that look at one document's text at a time."""

from longcrawl.text.filters import Language, MinBytes, MinChars, MinWords
from longcrawl.text.fineweb import FineWebQuality
from longcrawl.text.gopher import GopherQuality, GopherRepetition
from longcrawl.text.rpv2 import Signals
from longcrawl.text.signals import SignalRules

__all__ = [
    "FineWebQuality",
    "GopherQuality",
    "GopherRepetition",
    "Language",
    "MinBytes",
    "MinChars",
    "MinWords",
    "SignalRules",
    "Signals",
]
