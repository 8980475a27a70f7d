"""Stages that score documents by classifiers: columns of scores, and thresholds that are given or fitted to a share."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import no_places
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.errors import StageError, known_names, quoted
from longcrawl.io.files import content_digest
from longcrawl.kernels.keyed_hash import choose, reached_by
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.text.fasttext import Model, read_model, score_labels

Scores = Mapping[str, pa.Array]
"""Of each label, float64: a score of every document, null where there is none."""


class Measured(NamedTuple):
    """What a classifier knows of documents."""

    scores: Scores
    columns: Mapping[str, pa.Array] = MappingProxyType({})
    """Further columns of documents, by name."""
    checks: Sequence[Check] = ()
    """Rules that count before those of scores."""


_LINE_ENDS = ("\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""At which Python's ``splitlines`` also ends a line, and which fastText takes for letters."""


class Classifier(Edit):
    """What stages with a model share: labels, columns of their scores, and thresholds of them."""

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
        """Return what is known of valid large strings."""

    @property
    def measures_in(self) -> tuple[str, ...]:
        """The columns of scores."""
        return tuple(self._named(self.column, label) for label in self._labels())

    @property
    def needs_fit(self) -> bool:
        """Whether a threshold is to be found first."""
        return self.top_fraction is not None

    def fit(self, tables: Iterable[pa.Table], directory: str) -> Self:  # noqa: ARG002  # there is no file
        """Return the stage with the thresholds that ``top_fraction`` of the documents reach.

        Documents without a score do not count. Their order changes nothing.

        Raises:
            StageError: no document has a score.

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
        """Set the columns of scores, and compare them with their thresholds."""
        if self.needs_fit:
            raise StageError(
                f"{self.name} has no threshold yet: call stage.fit(tables, directory) first, or set at_least"
            )
        found, bounds = (
            self.measure(valid_texts(column(table, "text", self.name), self.name)),
            self._by_label("at_least"),
        )
        checks = list(found.checks)
        for label, values in found.scores.items():
            table = with_column(table, self._named(self.column, label), values)
            if label in bounds:
                passes = pc.greater_equal(values, bounds[label])
                checks.append(Check(self._named("at_least", label), values, passes, bounds[label], "at_least"))
        for name, values in found.columns.items():
            table = with_column(table, name, values)
        return table, checks

    def trace(self, table: pa.Table) -> Edited:
        """Add the columns; no text changes."""
        return Edited(*self.edit(table), no_places())

    def _labels(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else tuple(self.label or ("",))

    def _named(self, name: str, label: str) -> str:
        """Return the name of a label's column or rule; a single label needs none of its own."""
        return f"{name}_{label}" if isinstance(self.label, tuple) else name

    def _by_label(self, name: str) -> dict[str, float]:
        """Return what a field says of each label.

        Raises:
            StageError: it names a label that the stage has not, or does not say which of several it is about.

        """
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
    r"""Score documents by a classifier of fastText, such as DCLM's, and drop those with low scores.

    The column ``column`` has the probability of ``label``, as fastText's ``predict(text, k=-1)`` returns it, equal in
    every bit: for softmax and ova that is 0.00001 more than the probability, so up to 1.00001. A label that a model
    with a tree (hs) gives less than 0.00001 is not listed there, and is 0 here. A text of which the model knows no word
    has none (null). Of several labels each has a column, ``column_label``, and a rule, ``at_least_label``; of one the
    rule is ``at_least``. Documents leave whose score is less than their threshold, or null where there is one.

    Models are those that fastText trained supervised, ``.bin`` or ``.ftz``: of any loss, with n-grams of words and
    inside words, pruned or quantised. ``longcrawl train-classifier`` makes one of two folders. A model is read, not
    run: there is no code in it. DCLM kept pages of at least 0.018112, a tenth of its crawl; its score is 1 minus that
    of the other label where that one is higher, which is as much within 0.00003.

    fastText sees one line. ``line_ends`` says how a text becomes one:

    * "newline": every ``\n`` counts as a space, as in datatrove's filter and for fastText models after FineWeb-Edu;
    * "splitlines": as DCLM's ``" ".join(text.strip().splitlines())``, for which U+001C to U+001E, U+0085, U+2028 and
      U+2029 also end a line, and white space of Unicode at both ends goes.

    Words end at ASCII white space and at U+0000. A word ``</s>`` ends the text, and words that begin with ``__label__``
    are passed over, as for fastText. Nothing is lower-cased: do so before, where the model was trained so.

    Args:
        model: the path of a ``.bin`` or ``.ftz``.
        label: one or several of the model's labels, without ``__label__``.
        at_least: the least score of documents that stay; of several labels a mapping such as ``{"hq": 0.5}``. A
            document must pass all of them. None for none.
        top_fraction: the share of documents that shall stay, in place of ``at_least``: the threshold is the greatest
            score that this share of a sample of the documents that reach the stage has. Ties may keep more.
        column: the name of the column of scores, float64.
        line_ends: see above.
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
        """Name the file of the model."""
        return (self.model,) if self.model else ()

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return the digest of the model."""
        return {path: {"about": "a model of fastText", "sha256": content_digest(path)} for path in self.files()}

    def prepare(self) -> None:
        """Load the model and compile the kernels.

        Raises:
            StageError: the file cannot be read, or has no such label.

        """
        self.measure(pa.array([], pa.large_string()))

    def measure(self, texts: pa.Array) -> Measured:
        """Return the probabilities of the labels in valid large strings.

        Raises:
            StageError: as for :meth:`prepare`.

        """
        if not self.model:
            raise StageError(
                f"{self.name}.model is empty: name a fastText model, as longcrawl train-classifier writes one"
            )
        labels, model = self._labels(), read_model(self.model)
        for label in labels:
            if label not in model.labels:
                raise StageError(f"{self.model} has no label {quoted(label)}; {known_names(model.labels, label)}")
        if self.line_ends == "splitlines":
            texts = pc.utf8_trim_whitespace(texts)
            for line_end in _LINE_ENDS:
                texts = pc.replace_substring(texts, line_end, " ")
        found = score_texts(model, texts, [model.labels.index(label) for label in labels])
        columns = [pa.array(found[:, place].astype(np.float64), from_pandas=True) for place in range(len(labels))]
        return Measured(dict(zip(labels, columns, strict=True)))


def score_texts(model: Model, texts: pa.Array, labels: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return the probabilities of labels, by number, in large strings: float32 [texts, labels], NaN where unknown."""
    data, offsets = text_buffers(texts)
    found = np.empty((len(texts), len(labels)), np.float32)
    score_labels(model.words, model.vectors, data, offsets, model.memory(), np.array(labels, np.int32), found)
    return found
