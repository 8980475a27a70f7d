"""The stage that scores documents with classification and regression models of `transformers`."""

import sys
from collections.abc import Sequence
from dataclasses import field
from inspect import signature
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, stage
from longcrawl.errors import StageError, known_names, quoted
from longcrawl.text.classifiers import Classifier, Measured
from longcrawl.text.models import Device, Dtype, OfModel, Pretrained, load_model, name_model

_LETTERS = 32
"""Characters of a text to tokenise per token read; if they yield too few tokens, the whole text is tokenised."""


@stage
class SequenceClassifier(OfModel, Classifier):
    """Score documents with a `transformers` classifier, such as FineWeb-Edu's, and drop those with low scores.

    For a model with one output (a regression), ``column`` holds that output, and ``column_int`` holds it rounded to a
    whole number from 0 to 5, as in FineWeb-Edu. For a model with several labels, ``column_label`` holds the best label,
    and ``column`` its score, or that of ``label``. If ``label`` is a tuple, each label has its own column and rule:
    those of "High" are ``column_High`` and ``at_least_High``; otherwise the rule is ``at_least``. Documents whose best
    label is not in ``keep`` are removed by the rule ``keep``. A text without tokens has null in all these columns, and
    is removed if there is a threshold or ``keep``.

    Only the first ``max_length`` tokens are read, including those that the tokenizer adds, as in a pipeline with
    ``truncation=True``. Rows are not padded: rows of one length are computed together, and scores are rounded, so that
    a document has the same score in any batch, in any order and with any number of workers (see ``decimals``).

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
            raise StageError(f"{self.name} has the column {self.column}_label already: name the label 'label' alone")

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
        """Return scores and labels for a large string array of valid texts.

        Raises:
            StageError: the model cannot be loaded, or has no such label.
        """
        model = self.pretrained()
        names, rows = self._outputs(model), self._rows(model, [text or "" for text in texts.to_pylist()])
        found = np.full((len(rows), len(names)), np.nan)
        known = [number for number, row in enumerate(rows) if len(row)]
        if known:
            found[known] = self._ask(model, [rows[number] for number in known])
        if len(names) == 1:
            return self._regression(found[:, 0])
        # A row without scores has no best label; any index will do, as its label is masked.
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
        """Return the labels of a model, in the order of their numbers.

        Raises:
            StageError: the model lacks a requested label, or does not count labels from 0.
        """
        known = model.config.id2label
        if sorted(known) != list(range(len(known))):
            raise StageError(
                f"{self.model} has id2label {quoted(dict(known))}, which does not count labels from 0: correct "
                "config.json"
            )
        names = [str(known[number]) for number in range(len(known))]
        asked = (*(self._labels() if self.label is not None else ()), *self.keep)
        for name in asked:
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
        """Return the score of each label, float64 [rows, labels]."""
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
