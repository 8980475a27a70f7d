"""Stages that score documents with a classifier and filter by thresholds, either given or fitted to a share to keep."""

import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from inspect import signature
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
from longcrawl.text.models import Device, Dtype, OfModel, Pretrained, load_model, name_model

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
            raise StageError(f"{self.name}.column is {self.column!r}: choose a separate column for the scores")
        if self.at_least == {} or self.top_fraction == {}:
            raise StageError(f"{self.name} has a threshold without a label: add one, or remove it")
        if self.label == () or len(set(self._labels())) < len(self._labels()):
            raise StageError(f"{self.name}.label must be a label or several different ones, got {quoted(self.label)}")
        bounds, shares = self._by_label("at_least"), self._by_label("top_fraction")
        for label, share in shares.items():
            if not 0 < share <= 1:
                raise StageError(
                    f"{self.name}.top_fraction must be a share above 0 and up to 1, such as 0.1, got {share!r}"
                )
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
                    f"{self.name}.{name} is one number for {len(labels)} labels: set one for each, such as "
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

    ``column`` holds the probability of ``label``, bit for bit as fastText's ``predict(text, k=-1)`` returns it: up to
    1.00001, and 0 below 0.00001 for hierarchical softmax. A text without any word of the model's vocabulary has a null
    score. With a tuple of labels each has a column, ``column_label``, and a rule, ``at_least_label``; with one label
    the rule is ``at_least``. If there is a threshold, documents with a lower score or a null score are removed.

    Models are fastText's supervised ones, ``.bin`` or ``.ftz``, with any loss and n-grams, pruned or quantised;
    ``longcrawl train-classifier`` trains one from two folders. DCLM kept pages with a score of at least 0.018112, a
    tenth of its crawl. If the other label scores higher, DCLM's score is 1 minus that score, which differs by at most
    0.00003.

    fastText classifies one line. ``line_ends`` selects how a text becomes one line:

    * "newline": every ``\n`` counts as a space, as in datatrove's filter and in fastText models after FineWeb-Edu;
    * "splitlines": DCLM's ``" ".join(text.strip().splitlines())``, for which U+001C to U+001E, U+0085, U+2028 and
      U+2029 also end a line, and Unicode white space is stripped at both ends.

    As in fastText, words end at ASCII white space and at U+0000, the word ``</s>`` ends the text, words that begin with
    ``__label__`` are skipped, and nothing is lower-cased.

    Args:
        model: the path of a ``.bin`` or ``.ftz`` file.
        label: one or several of the model's labels, without ``__label__``.
        at_least: the lowest score of kept documents; for several labels, a mapping such as ``{"hq": 0.5}``, of which a
            document must pass all thresholds. None keeps all documents.
        top_fraction: the share of documents to keep, in place of ``at_least``. The threshold is the highest score that
            this share of a sample of the stage's input reaches; ties may keep more.
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
                f"{self.name}.model is empty: set it to a fastText model, such as one from longcrawl train-classifier"
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


_LETTERS = 32
"""Characters of a text to tokenise per token read; if they yield too few tokens, the whole text is tokenised."""


@stage
class SequenceClassifier(OfModel, Classifier):
    """Score documents with a `transformers` classifier, such as FineWeb-Edu's, and drop those with low scores.

    For a model with one output (a regression), ``column`` holds that output, and ``column_int`` holds it rounded to a
    whole number from 0 to 5, as in FineWeb-Edu. For a model with several labels, ``column_label`` holds the best label,
    and ``column`` the score of that label, or of ``label`` if it is set. If ``label`` is a tuple, each label has its
    own column and rule, such as ``column_High`` and ``at_least_High``; otherwise the rule is ``at_least``. Documents
    whose best label is not in ``keep`` are removed by the rule ``keep``. A text without tokens has null in all these
    columns, and is removed if there is a threshold or ``keep``.

    Only the first ``max_length`` tokens are read, including those that the tokenizer adds, as in a pipeline with
    ``truncation=True``. Scores are rounded, so that a document has the same score in any batch, order and process.

    Weights are read from safetensors, and a model's own code is never run: it must load as
    ``AutoModelForSequenceClassification``, or have the layout of NeMo Curator's domain, quality and type classifiers.

    Args:
        model: a folder that ``save_pretrained`` wrote, with a tokenizer, or a Hub id. In Python also a pair of model
            and tokenizer, or a pipeline; recipes can only hold names.
        label: one or several labels of the model's ``id2label``; None for the best label, or the regression.
        at_least: the lowest score of kept documents; for several labels a mapping. FineWeb-Edu kept documents with a
            rounded score of 3 of 5, which is ``at_least: 2.5``. None keeps all documents.
        top_fraction: the share of documents to keep, in place of ``at_least``, see ``FastTextClassifier``.
        keep: labels, one of which must be the best label; empty for any.
        column: the name of the score column, float64.
        activation: "softmax", "sigmoid", or "none" for raw outputs. "auto" is "none" for one output, "sigmoid" for a
            multi-label model, and otherwise "softmax".
        max_length: the number of tokens read of a text; the model's own limit applies if it is lower.
        decimals: the number of decimals that scores are rounded to. None does not round, and computes each row alone.
        device: the device to compute on; "auto" is the GPU if there is one.
        dtype: the type of weights and computation.
        train_documents: how many documents ``top_fraction`` is fitted to; None for all.

    Source: Penedo et al., "The FineWeb Datasets", 2024, section 4.

    >>> from longcrawl.text import SequenceClassifier
    >>> stage = SequenceClassifier("HuggingFaceFW/fineweb-edu-classifier", at_least=2.5, column="edu")
    >>> crawl | stage  # doctest: +SKIP
    """

    model: str = "HuggingFaceFW/fineweb-edu-classifier"
    label: str | tuple[str, ...] | None = None
    at_least: float | dict[str, float] | None = field(default=None, hash=False)
    top_fraction: float | dict[str, float] | None = field(default=None, hash=False)
    keep: tuple[str, ...] = ()
    column: str = "quality"
    activation: Literal["auto", "softmax", "sigmoid", "none"] = "auto"
    max_length: int = 512
    decimals: int | None = 4
    device: Device = "auto"
    dtype: Dtype = "float32"
    train_documents: int | None = 1_000

    def __post_init__(self) -> None:
        name_model(self)
        super().__post_init__()
        if self.max_length < 1 or (self.decimals is not None and not 0 <= self.decimals <= 9):
            given = f"{self.max_length} and {self.decimals}"
            raise StageError(f"{self.name} takes max_length from 1 and decimals from 0 to 9, got {given}")
        if isinstance(self.label, tuple) and "label" in self.label:
            raise StageError(f"{self.name} has the column {self.column}_label already: set label to 'label' alone")

    @property
    def measures_in(self) -> tuple[str, ...]:
        """The names of the columns of scores, and of labels or whole numbers."""
        return (*super().measures_in, f"{self.column}_label", f"{self.column}_int")

    def prepare(self) -> None:
        """Load the model; raise StageError if the model cannot be loaded, or has no such label."""
        self._outputs(self.pretrained())

    def pretrained(self) -> Pretrained:
        """Return the model, which is loaded once per process."""
        return load_model(self.model, "classifier", self.device, self.dtype)

    def measure(self, texts: pa.Array) -> Measured:
        """Return scores and labels for a large string array of valid texts; StageError without the model or a label."""
        model = self.pretrained()
        names, rows = self._outputs(model), self._rows(model, [text or "" for text in texts.to_pylist()])
        found = np.full((len(rows), len(names)), np.nan)
        known = [number for number, row in enumerate(rows) if len(row)]
        if known:
            found[known] = self._ask(model, [rows[number] for number in known])
        if len(names) == 1:
            return self._regression(found[:, 0])
        # A row without scores has no best label. Any index will do, because its label is masked.
        best = np.argmax(np.nan_to_num(found, nan=-np.inf), axis=1)
        highest = pa.array(found[np.arange(len(found)), best], from_pandas=True)
        labels = pa.array(names, pa.string()).take(pa.array(best, mask=np.isnan(found).any(axis=1)))
        scores = {"": highest}
        if self.label is not None:
            scores = {name: pa.array(found[:, names.index(name)].copy(), from_pandas=True) for name in self._labels()}
        checks = [Check("keep", highest, pc.is_in(labels, value_set=pa.array(self.keep, pa.string())))]
        return Measured(scores, {f"{self.column}_label": labels}, checks if self.keep else ())

    def _regression(self, values: npt.NDArray[np.float64]) -> Measured:
        (name,) = self._labels()
        whole = pa.array(np.rint(np.clip(values, 0, 5)), from_pandas=True)
        return Measured({name: pa.array(values, from_pandas=True)}, {f"{self.column}_int": pc.cast(whole, pa.int64())})

    def _outputs(self, model: Pretrained) -> list[str]:
        """Return the labels of a model, in the order of their numbers; StageError if one is missing."""
        known = model.config.id2label
        if sorted(known) != list(range(len(known))):
            given = quoted(dict(known))
            raise StageError(f"{self.model} has id2label {given}, which does not count from 0: correct config.json")
        names = [str(known[number]) for number in range(len(known))]
        for name in (*(self._labels() if self.label is not None else ()), *self.keep):
            if name not in names:
                raise StageError(f"{self.model} has no label {quoted(name)}; {known_names(names, name)}")
        if len(names) == 1 and self.keep:
            raise StageError(f"{self.model} has one output, so keep has no labels to choose from: set at_least")
        return names

    def _rows(self, model: Pretrained, texts: Sequence[str]) -> list[npt.NDArray[np.int64]]:
        """Return the token ids of each text; of a long text, only a head of sufficient length is tokenised."""
        most = min(self.max_length, model.longest)
        size = most * _LETTERS if getattr(model.tokenizer, "truncation_side", "right") == "right" else sys.maxsize
        heads = [text if len(text) <= size else text[:size].rpartition(" ")[0] or text[:size] for text in texts]
        rows = model.token_ids(heads, "added", most)
        for number, row in enumerate(rows):
            if len(row) < most and len(heads[number]) < len(texts[number]):
                (rows[number],) = model.token_ids([texts[number]], "added", most)
        return rows

    def _ask(self, model: Pretrained, rows: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float64]:
        import torch

        several = getattr(model.config, "problem_type", None) == "multi_label_classification"
        usual = "none" if len(model.config.id2label) == 1 else "sigmoid" if several else "softmax"
        activation = usual if self.activation == "auto" else self.activation
        more = {"use_cache": False} if "use_cache" in signature(model.module.forward).parameters else {}

        def ask(module: Any, ids: Any) -> Any:
            logits = module(input_ids=ids, attention_mask=torch.ones_like(ids), **more).logits.float()
            if activation == "none":
                return logits
            return logits.softmax(-1) if activation == "softmax" else logits.sigmoid()

        # Models that look for the last token before padding take one row at a time if they have no padding token.
        alone = model.config.pad_token_id is None
        found = np.stack(model.each(rows, ask, None if alone else self.decimals))
        return found if self.decimals is None else np.round(found, self.decimals)
