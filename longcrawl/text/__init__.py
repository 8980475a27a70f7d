"""Stages that look at one document's text at a time."""

from longcrawl.text.filters import Language, MinBytes, MinChars, MinWords
from longcrawl.text.fineweb import FineWebQuality
from longcrawl.text.gopher import GopherQuality, GopherRepetition
from longcrawl.text.rpv2 import Signals
from longcrawl.text.signals import SignalRules
from longcrawl.text.values import rule_values

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
    "rule_values",
]
