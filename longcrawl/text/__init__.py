"""Stages that look at one document's text at a time."""

from longcrawl.text.c4 import C4Quality
from longcrawl.text.explain import explain
from longcrawl.text.explanation import Explanation
from longcrawl.text.extract_text import ExtractText
from longcrawl.text.filters import Language, MinBytes, MinChars, MinWords
from longcrawl.text.fineweb import FineWebQuality
from longcrawl.text.fit import FittedThresholds, fit_thresholds
from longcrawl.text.formatting import format_text
from longcrawl.text.gopher import GopherQuality, GopherRepetition
from longcrawl.text.identify import IdentifyLanguage
from longcrawl.text.languages import find_language, language_tables, read_languages
from longcrawl.text.lines import LineCorrections
from longcrawl.text.rpv2 import Signals
from longcrawl.text.shares import language_shares
from longcrawl.text.signals import SignalRules
from longcrawl.text.url_filter import UrlFilter, UrlMatch
from longcrawl.text.url_hits import UrlHits, url_hits
from longcrawl.text.values import rule_values

__all__ = [
    "C4Quality",
    "Explanation",
    "ExtractText",
    "FineWebQuality",
    "FittedThresholds",
    "GopherQuality",
    "GopherRepetition",
    "IdentifyLanguage",
    "Language",
    "LineCorrections",
    "MinBytes",
    "MinChars",
    "MinWords",
    "SignalRules",
    "Signals",
    "UrlFilter",
    "UrlHits",
    "UrlMatch",
    "explain",
    "find_language",
    "fit_thresholds",
    "format_text",
    "language_shares",
    "language_tables",
    "read_languages",
    "rule_values",
    "url_hits",
]
