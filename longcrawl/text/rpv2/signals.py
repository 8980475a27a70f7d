"""RedPajama-V2's quality signals, computed from the text of any document."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Rewrite, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels import word_lists
from longcrawl.kernels.code_points import Characters, load_characters
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.storage.files import reread_when_changed
from longcrawl.text.languages import find_language, places_of_languages
from longcrawl.text.rpv2.schema import DOCUMENT_SIGNALS, LINE_SIGNALS, SIGNALS_TYPE, SPANS, line_signals_type

OF_THE_CRAWL = "__label__cc"
"""The label of text as it comes from the crawl; every other one is of the wanted kind."""


@reread_when_changed(4)
def load_model(path: str) -> Any:
    """Load a fastText model.

    Raises:
        StageError: there is no such file, it is not a model, or fastText is not installed.
    """
    if not Path(path).is_file():
        raise StageError(f"{path} does not exist; give the path of a fastText model (.bin or .ftz), or leave it out")
    try:
        import fasttext
    except ImportError as error:
        raise StageError(f"the model {path} needs fastText: pip install 'longcrawl[fasttext]'") from error
    try:
        return fasttext.load_model(path)
    except ValueError as error:
        raise StageError(f"{path} is not a fastText model: {error}") from error


def model_scores(path: str, texts: pa.Array) -> pa.Array:
    """Return float64 per document: the probability that it is not of the crawl; null for an empty one.

    As in RedPajama-V2, the model sees the lines joined by spaces, its first label counts, and the score has 8 digits.
    """
    model = load_model(path)
    return pa.array([_score(model, text.as_py()) for text in texts], pa.float64())


def _score(model: Any, text: str | None) -> float | None:
    if not text:
        return None
    # The layer below `predict`, whose arrays fastText cannot make with NumPy 2.
    found = model.f.predict(" ".join(text.splitlines()).strip() + "\n", 1, 0.0, "strict")
    if not found:
        return None
    probability, label = found[0]
    return round(float(1 - probability if label == OF_THE_CRAWL else probability), 8)


Doubles = npt.NDArray[np.float64]

_CCNET_COLUMNS = {
    "ccnet_original_length": "original_length",
    "ccnet_original_nlines": "original_nlines",
    "ccnet_language_score": "language_score",
    "ccnet_perplexity": "perplexity",
    "ccnet_bucket": "bucket",
}
"""What CCNet knew of a document before it was text: signals, and the columns that the release has them in."""

_BUCKETS = pa.array(["head", "middle", "tail"])
_HOST = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?P<host>[^/?#]*)"


class _Lists(NamedTuple):
    languages: tuple[tuple[str, ...], tuple[str, ...]]
    """The languages that have stop words, and those that have phrases."""
    stop_words: Any
    phrases: Any


@stage
class Signals(Rewrite):
    r"""Add the column ``signals``: RedPajama-V2's quality signals, equal to the release's in every digit.

    The column has the type that the source ``redpajama-v2`` gives, so ``SignalRules`` and ``MinWords`` take documents
    of any source; a column ``signals`` or ``line_signals`` that was there is replaced. Null is what cannot be known:

    * of an empty document, what the release leaves null; of a document whose text is null, everything;
    * ``rps_doc_stop_word_fraction`` without ``stop_words`` for the document's language. The release took the lists of
      github.com/6/stopwords-json (Apache-2.0), whose ``stopwords-all.json`` can be given as it is;
    * ``rps_doc_ldnoobw_words`` without ``bad_words`` for the language. The release took those of
      github.com/LDNOOBW/List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words (CC BY 4.0);
    * ``rps_doc_ut1_blacklist`` without ``domain_categories``, and for a domain that is not listed. The domain is the
      column ``source_domain``, or else the host of ``url``, as a whole: no parent domain is looked up;
    * ``rps_doc_ml_*_score`` without the fastText model of that name (``pip install 'longcrawl[fasttext]'``);
    * ``ccnet_*`` but length and lines, unless the documents have CCNet's columns (``perplexity``, ``bucket`` …);
    * the six importance weights, always: they need the release's own n-gram counts.

    Args:
        line_signals: names of line-level signals to give as lists of [start, end, value] in a column
            ``line_signals``, or "all". Their sums are in ``signals`` always.
        raw_words: whose ``\w`` and ``\s`` cut raw words. nltk used that of Python, ``re``, when the release was made;
            since nltk 3.10 it uses the package ``regex``, to which combining marks are part of a word and ² is not.
        language: the language of all documents; None takes the column ``language``, where there is one. en-GB and
            eng_Latn are English.
        stop_words: a JSON file of {language: [word, …]}, or a folder of LANGUAGE.json or LANGUAGE.txt.
        bad_words: a folder of LANGUAGE or LANGUAGE.txt, or a JSON file as above.
        domain_categories: a JSON file, plain or .gz, of {domain: number}.
        wikiref_model: a fastText model that tells references of Wikipedia from ``__label__cc``.
        palm_model: one that tells books, OpenWebText and Wikipedia from it.
        wikipedia_model: one that tells articles of Wikipedia from it.

    Source: RedPajama-Data, ``app/src/core/quality_signals``. Words and case follow this Python's Unicode version; the
    release's was 14.0. Numbers have 8 digits; offsets and lengths are in code points.

    >>> import pyarrow as pa
    >>> made = Signals(line_signals=["rps_lines_num_words"])(pa.table({"text": ["One line. And a second one!"]}))
    >>> made["signals"][0]["rps_doc_word_count"].as_py(), made["line_signals"][0].as_py()
    (6.0, {'rps_lines_num_words': [[0.0, 27.0, 6.0]]})
    """

    line_signals: tuple[str, ...] = ()
    raw_words: Literal["re", "regex"] = "re"
    language: str | None = None
    stop_words: str | None = None
    bad_words: str | None = None
    domain_categories: str | None = None
    wikiref_model: str | None = None
    palm_model: str | None = None
    wikipedia_model: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.line_signals:
            if name not in (*LINE_SIGNALS, "all"):
                raise StageError(f"signals has no line signal {name!r}; known: {', '.join(LINE_SIGNALS)}, all")

    def files(self) -> tuple[str, ...]:
        """Name the lists and models."""
        named = (self.stop_words, self.bad_words, self.domain_categories, *self._models.values())
        return tuple(path for path in named if path is not None)

    def prepare(self) -> None:
        """Load lists and models, and compile the kernels.

        Raises:
            StageError: a list or a model cannot be read.
        """
        for path in self._models.values():
            load_model(path)
        if self.domain_categories is not None:
            word_lists.read_domain_categories(self.domain_categories)
        self.rewrite(pa.table({"text": pa.array([], pa.large_string()), "url": pa.array([], pa.string())}))

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Measure the column ``text`` of every document."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        lists = _load_lists(self.stop_words, self.bad_words)
        languages = self._languages(table, lists)
        measured = _measure(texts, languages, lists, load_characters(self.raw_words))
        known = self._brought(table, texts) | _document_signals(measured)
        known["rps_doc_stop_word_fraction"][languages[0] < 0] = np.nan
        known["rps_doc_ldnoobw_words"][languages[1] < 0] = np.nan
        known |= {f"{name}.sum": measured.sums[:, at] for at, name in enumerate(LINE_SIGNALS)}
        arrays = [_nullable(known[field.name], len(texts)) for field in SIGNALS_TYPE]
        missing = pc.is_null(texts)
        struct = pa.StructArray.from_arrays(arrays, fields=list(SIGNALS_TYPE), mask=missing)
        made = with_column(table, "signals", struct)
        if not self.line_signals:
            return made
        names = LINE_SIGNALS if "all" in self.line_signals else tuple(dict.fromkeys(self.line_signals))
        spans = [_spans(measured, name) for name in names]
        fields = list(line_signals_type(names))
        return with_column(made, "line_signals", pa.StructArray.from_arrays(spans, fields=fields, mask=missing))

    @property
    def _models(self) -> dict[str, str]:
        paths = {"wikiref": self.wikiref_model, "palm": self.palm_model, "wikipedia": self.wikipedia_model}
        return {f"rps_doc_ml_{name}_score": path for name, path in paths.items() if path is not None}

    def _languages(self, table: pa.Table, lists: _Lists) -> npt.NDArray[np.int32]:
        """Return the place of each document's language among those of both lists, -1 for others: (2, documents)."""
        if self.language is None and "language" not in table.column_names:
            return np.full((2, table.num_rows), -1, np.int32)
        self._check_language(lists)
        found = [places_of_languages(table, known, self.language, self.name)[0] for known in lists.languages]
        return np.stack(found)

    def _check_language(self, lists: _Lists) -> None:
        known = sorted({name for languages in lists.languages for name in languages})
        if self.language is not None and known and find_language({name: {} for name in known}, self.language) is None:
            given = " and ".join(path for path in (self.stop_words, self.bad_words) if path is not None)
            raise StageError(
                f"signals.language is {self.language!r}, for which {given} has no list; known: {', '.join(known)}"
            )

    def _brought(self, table: pa.Table, texts: pa.Array) -> dict[str, Any]:
        """Return the signals that do not come from the text alone: float64 arrays, or None for all null."""
        known: dict[str, Any] = dict.fromkeys(DOCUMENT_SIGNALS)
        for signal, name in _CCNET_COLUMNS.items():
            if name in table.column_names:
                known[signal] = _number(column(table, name, self.name), name)
        for signal, path in self._models.items():
            known[signal] = model_scores(path, texts)
        if self.domain_categories is not None:
            categories = word_lists.read_domain_categories(self.domain_categories)
            known["rps_doc_ut1_blacklist"] = _looked_up(self._domains(table), categories)
        return known

    def _domains(self, table: pa.Table) -> pa.Array:
        if "source_domain" in table.column_names:
            return column(table, "source_domain", self.name)
        url = pc.cast(column(table, "url", self.name), pa.string())
        return pc.struct_field(pc.extract_regex(url, _HOST), "host")


class Tables(NamedTuple):
    """What kernels compare text with."""

    characters: Characters
    stop_words: word_lists.Vocabulary
    """Of all languages."""
    phrases: word_lists.Phrases
    """The listed ones of all languages."""


class Counted(NamedTuple):
    """What kernels write."""

    rows: Doubles
    """Counts and unrounded shares: shape (documents, MEASURES)."""
    ends: npt.NDArray[np.int64]
    """Shape (lines,): where each line ends, in code points of its document."""
    values: Doubles
    """Shape (lines, 6): the line signals."""
    sums: Doubles
    """Shape (documents, 6): the line signals added up in order."""
    first_lines: npt.NDArray[np.int64]
    """Shape (documents + 1,): the first line of each document."""


@reread_when_changed(4)
def _load_lists(stop_words: str | None, bad_words: str | None) -> _Lists:
    stops = word_lists.read_word_lists(stop_words) if stop_words is not None else {}
    bad = word_lists.read_word_lists(bad_words) if bad_words is not None else {}
    return _Lists(
        (tuple(stops), tuple(bad)),
        word_lists.make_vocabulary((number, word) for number, words in enumerate(stops.values()) for word in words),
        word_lists.make_phrases((number, word) for number, words in enumerate(bad.values()) for word in words),
    )


def _measure(texts: pa.Array, languages: npt.NDArray[np.int32], lists: _Lists, characters: Characters) -> Counted:
    """Run the kernels over the buffers of valid texts; a null one is measured as if it were empty."""
    from longcrawl.text.rpv2._kernels import MEASURES, make_scratch, measure

    data, offsets = text_buffers(texts)
    documents = len(texts)
    lines = documents + np.count_nonzero(data[offsets[0] : offsets[-1]] == ord("\n"))
    measured = Counted(
        np.zeros((documents, MEASURES)),
        np.empty(lines, np.int64),
        np.empty((lines, len(LINE_SIGNALS))),
        np.zeros((documents, len(LINE_SIGNALS))),
        np.empty(documents + 1, np.int64),
    )
    scratch = make_scratch(int(np.diff(offsets).max(initial=0)))
    tables = Tables(characters, lists.stop_words, lists.phrases)
    measure(data, offsets, languages, tables, scratch, measured)
    return measured


def _document_signals(measured: Counted) -> dict[str, Doubles]:
    """Turn counts into signals by RedPajama-V2's definitions; NaN is null."""
    from longcrawl.kernels import lookup
    from longcrawl.text.rpv2 import _kernels as count

    rows = measured.rows
    length, lines, raw, words = (rows[:, at] for at in (count.CHARACTERS, count.LINES, count.RAW_WORDS, count.WORDS))
    characters = rows[:, count.WORD_CHARACTERS]
    normal_length = characters + np.maximum(words - 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {
            "rps_doc_curly_bracket": np.where(length > 0, rows[:, count.BRACES] / length, 0.0),
            "rps_doc_lorem_ipsum": np.where(words > 0, rows[:, count.LOREM_IPSUM] / normal_length, 0.0),
            "rps_doc_stop_word_fraction": np.where(words > 0, rows[:, count.STOP_WORDS] / raw, 0.0),
            "rps_doc_frac_all_caps_words": rows[:, count.CAPITAL_WORDS] / raw,
            "rps_doc_frac_lines_end_with_ellipsis": rows[:, count.ELLIPSIS_LINES] / lines,
            "rps_doc_frac_no_alph_words": 1.0 - rows[:, count.LETTER_WORDS] / raw,
            "rps_doc_frac_unique_words": rows[:, count.UNIQUE_WORDS] / words,
            "rps_doc_mean_word_length": characters / words,
            "rps_doc_symbol_to_word_ratio": rows[:, count.SYMBOLS] / raw,
            "rps_doc_unigram_entropy": np.where(words > 0, rows[:, count.ENTROPY], np.nan),
        }
    for n in (2, 3, 4):
        shares[f"rps_doc_frac_chars_top_{n}gram"] = rows[:, count.TOP_2_GRAM + n - 2].copy()
    for n in range(5, 11):
        shares[f"rps_doc_frac_chars_dupe_{n}grams"] = rows[:, count.DUPLICATE_5_GRAMS + n - 5].copy()
    for share in shares.values():
        lookup.round_all(share)
    return shares | {
        "ccnet_length": length,
        "ccnet_nlines": lines,
        "rps_doc_num_sentences": rows[:, count.SENTENCES],
        "rps_doc_word_count": words,
        "rps_doc_ldnoobw_words": rows[:, count.LISTED_PHRASES].copy(),
    }


def _spans(measured: Counted, name: str) -> pa.Array:
    """Return one line signal of all documents as lists of [start, end, value]."""
    firsts = measured.first_lines
    counts, lines = np.diff(firsts), int(firsts[-1])
    spans = np.empty((lines, 3))
    spans[1:, 0] = measured.ends[: max(lines - 1, 0)]
    spans[firsts[:-1][counts > 0], 0] = 0.0
    spans[:, 1] = measured.ends[:lines]
    spans[:, 2] = measured.values[:lines, LINE_SIGNALS.index(name)]
    if name == "rps_lines_start_with_bulletpoint":
        # The release gives a document without lines one span without a value, of this signal alone.
        spans = np.insert(spans, firsts[:-1][counts == 0], [0.0, 0.0, np.nan], axis=0)
        counts = np.maximum(counts, 1)
    triples = pa.ListArray.from_arrays(np.arange(len(spans) + 1, dtype=np.int32) * 3, _nullable(spans.ravel(), 0))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, triples).cast(SPANS)


def _nullable(values: Any, rows: int) -> pa.Array:
    """Return a float64 array in which NaN is null; None is ``rows`` nulls."""
    if values is None:
        return pa.nulls(rows, pa.float64())
    if isinstance(values, pa.Array):
        return values
    values = np.ascontiguousarray(values)
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def _number(values: pa.Array, name: str) -> pa.Array:
    if name == "bucket":
        return pc.cast(pc.index_in(pc.cast(values, pa.string()), value_set=_BUCKETS), pa.float64())
    try:
        return pc.cast(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StageError(f"the column {name!r} holds no numbers, as CCNet's does ({error}); rename it") from error


def _looked_up(domains: pa.Array, categories: Mapping[str, int]) -> pa.Array:
    encoded = pc.dictionary_encode(pc.cast(domains, pa.string()))
    numbers = [categories.get(domain) for domain in encoded.dictionary.to_pylist()]
    return pa.array(numbers, pa.float64()).take(encoded.indices)
