"""RefinedWeb's MacroData Refinement (MDR): an overview of its steps, and the stages that only RefinedWeb defines.

The paper's pipeline in its order; classes are in ``longcrawl.text`` and ``longcrawl.dedup``:

=======================  ==========  ==================  ===================================
step                     paper       class               module in ``longcrawl/``
=======================  ==========  ==================  ===================================
reading WARC             3.1         Warc                sources/warc/source.py
URL filter               3.1, G.1    UrlFilter           text/refinedweb/url_filter.py
text extraction          3.1         ExtractText         text/extract/stage.py
no URLs, few line feeds  3.1         format_text         text/extract/stage.py
language identification  3.1         IdentifyLanguage    text/identify.py
English only             3.1, D      Language            text/filters.py
repetition removal       3.2         GopherRepetition    text/gopher/stages.py
document-wise filter     3.2         GopherQuality       text/gopher/stages.py
line-wise corrections    3.2, G.2    LineCorrections     text/refinedweb/line_corrections.py
fuzzy deduplication      3.3, G.3.1  MinHash             dedup/minhash.py
exact deduplication      3.3, G.3.2  ExactSubstring      dedup/substring.py
URL deduplication        3.3         Urls                dedup/exact.py
=======================  ==========  ==================  ===================================

``recipes/refinedweb.yaml`` runs them as stages (``url_filter``, ``extract_text``, …), with ``urls`` before
``min_hash``: URLs of all parts are compared before any text. ``ExtractText`` calls ``format_text``. Words, curated
sources and line patterns are data in ``text/presets``; ``fetch_lists`` downloads block lists. ``text/line_places``
locates changed lines, as for C4's rules. ``docs/refinedweb.md`` describes the whole pipeline, from the archive to the
output.

Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, https://arxiv.org/abs/2306.01116.
"""
