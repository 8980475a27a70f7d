"""Stages that score documents with a classifier and filter by thresholds, which are given or fitted to a share."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Edit, column, stage, with_column
from longcrawl.errors import StageError, known_names, quoted
from longcrawl.io.files import content_digest
from longcrawl.kernels.keyed_hash import choose, reached_by
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.text.fasttext import Model, read_model, score_labels

Scores = Mapping[str, pa.Array]  # scores by label: float64 arrays with one score per document, null if unknown


class Measured(NamedTuple):
    """The output of a classifier for a batch of documents."""

    scores: Scores
    columns: Mapping[str, pa.Array] = MappingProxyType({})  # further output columns, by name
    checks: Sequence[Check] = ()  # checks that come before those of the scores


_LINE_ENDS = ("\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""Characters that end a line for Python's ``splitlines`` but are letters to fastText."""


class Classifier(Edit):
    """Base class of stages that score documents with a model: labels, columns of scores, and thresholds."""

    label: Any
    at_least: Any
    top_fraction: Any
    column: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column in ("", "id", "text"):
            raise StageError(f"{self.name}.column is {self.column!r}: name a column of its own for the scores")
        if self.at_least == {} or self.top_fraction == {}:
            raise StageError(f"{self.name} has a threshold of no label: name one, or leave it out")
        if self.label == () or len(set(self._labels())) < len(self._labels()):
            raise StageError(f"{self.name}.label takes a label or several different ones, got {quoted(self.label)}")
        bounds, shares = self._by_label("at_least"), self._by_label("top_fraction")
        for label, share in shares.items():
            if not 0 < share <= 1:
                raise StageError(f"{self.name}.top_fraction is a share of at most 1, such as 0.1, got {share!r}")
            if label in bounds:
                raise StageError(f"{self.name} has at_least and top_fraction for {quoted(label)}: set one of them")

    @abstractmethod
    def measure(self, texts: pa.Array) -> "Measured":
        """Score a large string array of valid texts."""

    @property
    def measures_in(self) -> tuple[str, ...]:
        """The names of the score columns."""
        return tuple(self._named(self.column, label) for label in self._labels())

    @property
    def needs_fit(self) -> bool:
        """Whether a threshold must be fitted first."""
        return self.top_fraction is not None

    def fit(self, tables: Iterable[pa.Table], directory: str) -> Self:  # noqa: ARG002  # there is no file
        """Return the stage with the thresholds that ``top_fraction`` of the documents reach, in any order.

        Documents without a score do not count; if none has one, StageError is raised.
        """
        if not self.needs_fit:
            return self
        tables = choose(tables, self.train_documents, f"{self.name}.train_documents")
        found: list[Scores] = [
            self.measure(valid_texts(column(piece, "text", self.name), self.name)).scores
            for table in tables
            for piece in (table.slice(start, 1_000) for start in range(0, table.num_rows, 1_000))
        ]
        bounds = self._by_label("at_least")
        for label, share in self._by_label("top_fraction").items():
            values = pc.drop_null(pa.chunked_array([each[label] for each in found], pa.float64())).to_numpy()
            if not len(values):
                raise StageError(f"{self.name} has no score to fit top_fraction to: check the stages before it")
            bounds[label] = reached_by(values, share)
        several = self.label is not None and not isinstance(self.label, str)
        fitted: Any = bounds if several else next(iter(bounds.values()))
        return replace(self, at_least=fitted, top_fraction=None)  # type: ignore[type-var]  # a dataclass

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Add the score columns and compare the scores with their thresholds."""
        if self.needs_fit:
            raise StageError(
                f"{self.name} has no threshold yet: call stage.fit(tables, directory) first, or set at_least"
            )
        found = self.measure(valid_texts(column(table, "text", self.name), self.name))
        bounds = self._by_label("at_least")
        checks = list(found.checks)
        for label, values in found.scores.items():
            table = with_column(table, self._named(self.column, label), values)
            if label in bounds:
                passes = pc.greater_equal(values, bounds[label])
                checks.append(Check(self._named("at_least", label), values, passes, bounds[label], "at_least"))
        for name, values in found.columns.items():
            table = with_column(table, name, values)
        return table, checks

    def _labels(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else tuple(self.label or ("",))

    def _named(self, name: str, label: str) -> str:
        """Return the name of a label's column or rule, which has a suffix if ``label`` is a tuple."""
        return f"{name}_{label}" if isinstance(self.label, tuple) else name

    def _by_label(self, name: str) -> dict[str, float]:
        """Return the value of a threshold field for each label; raise StageError if it does not fit the labels."""
        value = getattr(self, name)
        if value is None:
            return {}
        labels = self._labels()
        if not isinstance(value, Mapping):
            if len(labels) > 1:
                raise StageError(
                    f"{self.name}.{name} is one number for {len(labels)} labels: name them, such as "
                    f"{{{labels[0]}: {value}}}"
                )
            return {labels[0]: float(value)}
        for label in value:
            if label not in labels:
                raise StageError(f"{self.name}.{name} names {quoted(label)}; label has: {', '.join(labels)}")
        return {str(label): float(number) for label, number in value.items()}


@stage
class FastTextClassifier(Classifier):
    r"""Score documents with a fastText classifier, such as DCLM's, and drop those with low scores.

    ``column`` holds the probability of ``label``, bit for bit as fastText's ``predict(text, k=-1)`` returns it. For
    softmax and ova, fastText adds 0.00001, so scores reach 1.00001. For hierarchical softmax (hs), fastText does not
    list labels below 0.00001; their score is 0. A text without any word that the model knows has a null score.
    With a tuple of labels each has a column, ``column_label``, and a rule, ``at_least_label``; with one label the rule
    is ``at_least``. If there is a threshold, documents with a lower score or a null score are removed.

    Models are fastText's supervised ones, ``.bin`` or ``.ftz``, with any loss and n-grams, pruned or quantised;
    ``longcrawl train-classifier`` trains one from two folders. DCLM kept pages of at least 0.018112, a tenth of its
    crawl. If the other label scores higher, DCLM's score is 1 minus that score, which differs by at most 0.00003.

    fastText classifies one line. ``line_ends`` selects how a text becomes one line:

    * "newline": every ``\n`` counts as a space, as in datatrove's filter and in fastText models after FineWeb-Edu;
    * "splitlines": DCLM's ``" ".join(text.strip().splitlines())``, for which U+001C to U+001E, U+0085, U+2028 and
      U+2029 also end a line, and Unicode white space is stripped at both ends.

    As in fastText, words end at ASCII white space and at U+0000, the word ``</s>`` ends the text, words that begin with
    ``__label__`` are skipped, and nothing is lower-cased.

    Args:
        model: the path of a ``.bin`` or ``.ftz`` file.
        label: one or several of the model's labels, without ``__label__``.
        at_least: the lowest score of kept documents. For several labels a mapping such as ``{"hq": 0.5}``; a document
            must pass all of them. None keeps all documents.
        top_fraction: the share of documents to keep, in place of ``at_least``. The threshold is the highest score that
            this share of a sample of the stage's input reaches. Ties may keep more.
        column: the name of the score column, float64.
        line_ends: how a text becomes one line, "newline" or "splitlines".
        train_documents: how many documents ``top_fraction`` is fitted to; None for all.

    Source: Joulin et al., "Bag of Tricks for Efficient Text Classification", 2016; Li et al., "DataComp-LM", 2024,
    section 4.4.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from longcrawl.text import train_classifier
    >>> path = Path(mkdtemp()) / "model.bin"
    >>> good, bad = (pa.table({"text": [f"{word} {n}" for n in range(9)]}) for word in ("whale", "casino"))
    >>> trained = train_classifier(good, bad, path, dimensions=4, buckets=64)
    >>> classifier = FastTextClassifier(str(path), "good", at_least=0.5)
    >>> classifier(pa.table({"text": ["a whale", "the casino"]}))["text"].to_pylist()
    ['a whale']
    """

    model: str = ""
    label: str | tuple[str, ...] = "good"
    at_least: float | dict[str, float] | None = field(default=None, hash=False)
    top_fraction: float | dict[str, float] | None = field(default=None, hash=False)
    column: str = "quality"
    line_ends: Literal["newline", "splitlines"] = "newline"
    train_documents: int | None = 20_000

    def files(self) -> tuple[str, ...]:
        """Return the path of the model file."""
        return (self.model,) if self.model else ()

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return the digest of the model."""
        return {path: {"about": "a model of fastText", "sha256": content_digest(path)} for path in self.files()}

    def prepare(self) -> None:
        """Load the model and compile the kernels; raise StageError if the file cannot be read, or has no such label."""
        self.measure(pa.array([], pa.large_string()))

    def measure(self, texts: pa.Array) -> Measured:
        """Return the probabilities of the labels; raise StageError if the file cannot be read or lacks a label."""
        if not self.model:
            raise StageError(
                f"{self.name}.model is empty: name a fastText model, as longcrawl train-classifier writes one"
            )
        labels, model = self._labels(), read_model(self.model)
        for label in labels:
            if label not in model.labels:
                raise StageError(f"{self.model} has no label {quoted(label)}; {known_names(model.labels, label)}")
        if self.line_ends == "splitlines":
            texts = join_lines(texts)
        found = score_texts(model, texts, [model.labels.index(label) for label in labels])
        columns = [pa.array(found[:, place].astype(np.float64), from_pandas=True) for place in range(len(labels))]
        return Measured(dict(zip(labels, columns, strict=True)))


def join_lines(texts: pa.Array) -> pa.Array:
    """Return texts as words of fastText, like ``" ".join(text.strip().splitlines())``."""
    texts = pc.utf8_trim_whitespace(texts)
    for line_end in _LINE_ENDS:
        texts = pc.replace_substring(texts, line_end, " ")
    return texts


def score_texts(model: Model, texts: pa.Array, labels: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return the probabilities of labels (given by number), NaN if unknown, as float32 [texts, labels]."""
    data, offsets = text_buffers(texts)
    found = np.empty((len(texts), len(labels)), np.float32)
    score_labels(model.words, model.vectors, data, offsets, model.memory(), np.array(labels, np.int32), found)
    return found
