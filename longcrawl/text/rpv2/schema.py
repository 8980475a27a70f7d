"""The quality signals of RedPajama-V2 (v1.0.0): their names, and the Arrow types in which documents carry them."""

from collections.abc import Sequence

import pyarrow as pa

DOCUMENT_SIGNALS = (
    "ccnet_length",
    "ccnet_original_length",
    "ccnet_nlines",
    "ccnet_original_nlines",
    "ccnet_language_score",
    "ccnet_perplexity",
    "ccnet_bucket",
    "rps_doc_curly_bracket",
    "rps_doc_ldnoobw_words",
    "rps_doc_lorem_ipsum",
    "rps_doc_stop_word_fraction",
    "rps_doc_ut1_blacklist",
    "rps_doc_frac_chars_dupe_10grams",
    "rps_doc_frac_chars_dupe_5grams",
    "rps_doc_frac_chars_dupe_6grams",
    "rps_doc_frac_chars_dupe_7grams",
    "rps_doc_frac_chars_dupe_8grams",
    "rps_doc_frac_chars_dupe_9grams",
    "rps_doc_frac_chars_top_2gram",
    "rps_doc_frac_chars_top_3gram",
    "rps_doc_frac_chars_top_4gram",
    "rps_doc_frac_all_caps_words",
    "rps_doc_frac_lines_end_with_ellipsis",
    "rps_doc_frac_no_alph_words",
    "rps_doc_frac_unique_words",
    "rps_doc_mean_word_length",
    "rps_doc_num_sentences",
    "rps_doc_symbol_to_word_ratio",
    "rps_doc_unigram_entropy",
    "rps_doc_word_count",
    "rps_doc_ml_palm_score",
    "rps_doc_ml_wikipedia_score",
    "rps_doc_ml_wikiref_score",
    "rps_doc_books_importance",
    "rps_doc_books_importance_length_correction",
    "rps_doc_openwebtext_importance",
    "rps_doc_openwebtext_importance_length_correction",
    "rps_doc_wikipedia_importance",
    "rps_doc_wikipedia_importance_length_correction",
)
"""Signals of one value per document, in the order of the release's files."""

LINE_SIGNALS = (
    "rps_lines_ending_with_terminal_punctution_mark",
    "rps_lines_javascript_counts",
    "rps_lines_num_words",
    "rps_lines_numerical_chars_fraction",
    "rps_lines_start_with_bulletpoint",
    "rps_lines_uppercase_letter_fraction",
)
"""Signals of one value per line; "punctution" is the release's spelling."""

SPANS = pa.list_(pa.list_(pa.float64()))
"""One line-level signal of a document: a list of [start, end, value], offsets in code points."""

SIGNALS_TYPE = pa.struct(
    [pa.field(name, pa.float64()) for name in DOCUMENT_SIGNALS]
    + [pa.field(f"{name}.sum", pa.float64()) for name in LINE_SIGNALS]
)
"""Document-level signals by name, and of each line-level signal the sum over the lines as ``NAME.sum``."""


def signals_type(names: Sequence[str]) -> pa.StructType:
    """Return the type of the signals asked for, as :data:`SIGNALS_TYPE` has them."""
    return pa.struct([field for field in SIGNALS_TYPE if field.name in names])


def line_signals_type(names: Sequence[str]) -> pa.StructType:
    """Return the type of the line-level signals asked for: lists of [start, end, value]."""
    return pa.struct([pa.field(name, SPANS) for name in names])
