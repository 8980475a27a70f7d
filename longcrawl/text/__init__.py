"""Stages that filter, edit or score documents by their text, one document at a time."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.text.c4 import C4Quality
    from longcrawl.text.classifiers import FastTextClassifier, SequenceClassifier
    from longcrawl.text.explain import Explanation, explain
    from longcrawl.text.extract.blocks import PageExplanation, explain_page
    from longcrawl.text.extract.stage import ExtractText, format_text
    from longcrawl.text.filters import Language, MinBytes, MinChars, MinWords, SignalRules
    from longcrawl.text.fit import FittedThresholds, fit_thresholds
    from longcrawl.text.gopher.stages import FineWebQuality, GopherQuality, GopherRepetition
    from longcrawl.text.identify import IdentifyLanguage
    from longcrawl.text.languages import find_language, language_shares, language_tables, read_languages
    from longcrawl.text.mojibake import FixText
    from longcrawl.text.pdf.stage import ExtractPdf
    from longcrawl.text.personal import PersonalData
    from longcrawl.text.refinedweb.line_corrections import LineCorrections, ProposedLines, propose_lines
    from longcrawl.text.refinedweb.opt_out import OptOut
    from longcrawl.text.refinedweb.url_filter import UrlFilter, UrlHits, UrlMatch, url_hits
    from longcrawl.text.rpv2 import Signals
    from longcrawl.text.train import TrainedClassifier, train_classifier
    from longcrawl.text.values import rule_values

__all__ = [
    "C4Quality",
    "Explanation",
    "ExtractPdf",
    "ExtractText",
    "FastTextClassifier",
    "FineWebQuality",
    "FittedThresholds",
    "FixText",
    "GopherQuality",
    "GopherRepetition",
    "IdentifyLanguage",
    "Language",
    "LineCorrections",
    "MinBytes",
    "MinChars",
    "MinWords",
    "OptOut",
    "PageExplanation",
    "PersonalData",
    "ProposedLines",
    "SequenceClassifier",
    "SignalRules",
    "Signals",
    "TrainedClassifier",
    "UrlFilter",
    "UrlHits",
    "UrlMatch",
    "explain",
    "explain_page",
    "find_language",
    "fit_thresholds",
    "format_text",
    "language_shares",
    "language_tables",
    "propose_lines",
    "read_languages",
    "rule_values",
    "train_classifier",
    "url_hits",
]

lazy(__name__)
