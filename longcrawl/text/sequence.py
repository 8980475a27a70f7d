"""The stage that scores documents by classifiers and regressions of `transformers`."""

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
"""Letters of a text that are tokenised for each token that is read; where these are too few tokens, all are."""


@stage
class SequenceClassifier(OfModel, Classifier):
    """Score documents by a classifier of `transformers`, such as FineWeb-Edu's, and drop those with low scores.

    Of a model with one output, a regression, the column ``column`` has that output, and ``column_int`` what FineWeb-Edu
    makes of it: rounded to a whole number, from 0 to 5. Of a model with several labels ``column_label`` has the best
    label; ``column`` has its score, or that of ``label``. Of several labels named each has a column and a rule: those
    of "High" are ``column_High`` and ``at_least_High``; else the rule is ``at_least``. Documents whose best label is
    none of ``keep`` leave by the rule ``keep``. A text without tokens has none of these (null), and leaves where there
    is a threshold or ``keep``.

    Only the first ``max_length`` tokens are read, with those that the tokenizer adds, as by a pipeline with
    ``truncation=True``: all of a text where it is short, the first few paragraphs of a long one. No row is padded:
    several of one length are computed at once, and scores are rounded, so that a document has the same score in any
    batch, order and number of workers (see ``decimals``). The cost is one pass over these tokens: 2 operations for each
    of them and each weight of the model.

    Weights are read from safetensors, and no code of a model is run, so a model must load as
    ``AutoModelForSequenceClassification``, or be saved as NeMo Curator's classifiers of domain, quality and type are: a
    model, ``model.*``, and a linear layer on its first token, ``fc.*``.

    Args:
        model: a folder that ``save_pretrained`` wrote, with a tokenizer, or a Hub id; in Python also a pair of model
            and tokenizer or a pipeline. Recipes hold names alone.
        label: one or several labels, as the model's ``id2label`` has them; None for the best one, or the regression.
        at_least: the least score of documents that stay; of several labels a mapping. FineWeb-Edu kept 3 of 5, by the
            rounded score, which is ``at_least: 2.5``. None for none.
        top_fraction: the share of documents that shall stay, in place of ``at_least``, see ``FastTextClassifier``.
        keep: labels, one of which must be the best one; empty for any.
        column: the name of the column of scores, float64.
        activation: "softmax", "sigmoid", or "none" for outputs as they are. "auto" is "none" of one output, "sigmoid"
            of a model for several labels at once, and else "softmax". A pipeline takes a sigmoid of one output, unless
            the configuration has ``problem_type="regression"``.
        max_length: tokens of a text that are read; fewer where the model takes fewer.
        decimals: to which scores are rounded. None leaves them as they are, and computes each row alone.
        device: "auto" is the GPU where there is one.
        dtype: of weights and computation.
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
        """The columns of scores, and of labels or whole numbers."""
        return (*super().measures_in, f"{self.column}_label", f"{self.column}_int")

    def prepare(self) -> None:
        """Load the model.

        Raises:
            StageError: it cannot be loaded, or has no such label.
        """
        self._outputs(self.pretrained())

    def pretrained(self) -> Pretrained:
        """Return the model, loaded once in a process."""
        return load_model(self.model, "classifier", self.device, self.dtype)

    def measure(self, texts: pa.Array) -> Measured:
        """Return scores and labels of valid large strings.

        Raises:
            StageError: as for :meth:`prepare`.
        """
        model = self.pretrained()
        names, rows = self._outputs(model), self._rows(model, [text or "" for text in texts.to_pylist()])
        found = np.full((len(rows), len(names)), np.nan)
        known = [number for number, row in enumerate(rows) if len(row)]
        if known:
            found[known] = self._ask(model, [rows[number] for number in known])
        if len(names) == 1:
            return self._regression(found[:, 0])
        # A row without scores has no best one; any place does, as it is masked.
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
        """Return the labels of a model, by number.

        Raises:
            StageError: it lacks one that is asked for, or does not count them from 0.
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
        """Return the tokens of each text; of a long one only what can be among them is tokenised."""
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

        # Models that look for the last token before padding take one row at a time where they know none.
        alone = model.config.pad_token_id is None
        found = np.stack(model.each(rows, ask, None if alone else self.decimals))
        return found if self.decimals is None else np.round(found, self.decimals)
