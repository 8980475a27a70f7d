"""RedPajama-V2's classifiers as signals: a fastText model that the user brings, asked about each document."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from longcrawl.errors import StageError
from longcrawl.storage.data_files import reread_when_changed

__all__ = ["load_model", "model_scores"]

OF_THE_CRAWL = "__label__cc"
"""The label of text as it comes from the crawl; every other one is of the wanted kind."""


@reread_when_changed(4)
def load_model(path: str) -> Any:
    """Load a fastText model.

    Raises:
        StageError: there is no such file, it is no model, or fastText is not installed.

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
        raise StageError(f"{path} is no fastText model: {error}") from error


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
