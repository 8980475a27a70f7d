"""Stages that score documents by a model, and keep those above a threshold that is given or learnt."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.choice import choose, reached_by
from longcrawl.core.fields import Conditions
from longcrawl.core.places import no_places
from longcrawl.core.stages import Check, Edit, Edited, column, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.texts import valid_texts
from longcrawl.models.folders import model_files, model_materials, name_model
from longcrawl.models.pretrained import Device, Dtype, Pretrained, has_gpu, load_model

CHUNK, CUDA_CHUNK = 1_024, 4_096
"""Tokens whose logits are in memory at once, one for every id each; on a GPU more of them are faster."""


def token_losses(module: Any, ids: Any) -> Any:
    """Return the loss of each token but the first, nats, float32 [rows, tokens - 1], for :meth:`Pretrained.each`.

    Longer rows go through the model in parts that see the keys and values of those before.
    """
    import torch

    found, cache = [], None
    chunk = CHUNK if ids.device.type == "cpu" else CUDA_CHUNK
    for start in range(0, ids.shape[1] - 1, chunk):
        part, targets = ids[:, start : start + chunk], ids[:, start + 1 : start + chunk + 1]
        answer = module(part, past_key_values=cache, use_cache=ids.shape[1] > chunk + 1)
        cache = getattr(answer, "past_key_values", None)
        if cache is None and ids.shape[1] > chunk + 1:
            kind = type(module).__name__
            raise StageError(f"{kind} hands on no keys and values: set contexts of at most {chunk:,} tokens for it")
        logits = answer.logits[:, : targets.shape[1]].float()
        flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        found.append(flat.view(targets.shape))
    return torch.cat(found, 1) if found else ids[:, :0].float()


class OfModel:
    """The model of a stage: files that are its fingerprint, what the manifest says of them, and where it is."""

    model: str

    @property
    def uses_gpu(self) -> bool:
        """Whether the model is asked on a GPU."""
        return getattr(self, "device", "cpu") != "cpu" and has_gpu()

    def files(self) -> tuple[str, ...]:
        """Name the folder of the model."""
        return model_files(self.model)

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return what kind of model it is, and the digest of its files."""
        return model_materials(self.model)


@dataclass(frozen=True)
class ModelScore(OfModel, Edit):
    """What such stages share: the model, the column of measures with ``score`` among them, and the threshold.

    Args:
        model: a folder that ``save_pretrained`` wrote, with a tokenizer, or a Hub id; in Python also a pair of model
            and tokenizer or a pipeline. Recipes hold names alone.
        at_least: documents with a lower score leave, by the rule ``at_least``; None for none.
        top_fraction: in place of ``at_least``: learns the threshold that so large a share of measured documents passes.
        short: what happens to documents that are too short to be measured; "drop" needs a threshold.
        device: "auto" is the GPU where there is one.
        dtype: of weights and computation.
        train_documents: how many documents ``top_fraction`` is learnt from; None for all.
    """

    model: str = "gpt2"
    at_least: float | None = None
    top_fraction: float | None = None
    short: Literal["keep", "drop"] = "keep"
    device: Device = "auto"
    dtype: Dtype = "float32"
    train_documents: int | None = 1_000
    adds: ClassVar[str]
    """The column."""
    attention: ClassVar[str | None] = None
    only_with: ClassVar[Conditions] = MappingProxyType({"short": {"at_least": None, "top_fraction": None}})

    def __post_init__(self) -> None:
        name_model(self)
        super().__post_init__()
        if self.at_least is not None and self.top_fraction is not None:
            raise StageError(f"{self.name} has both at_least and top_fraction: take one of them")
        if self.top_fraction is not None and not 0 < self.top_fraction <= 1:
            raise StageError(f"{self.name}.top_fraction is {self.top_fraction}: take a share above 0, 1 at most")
        if self.train_documents is not None and self.train_documents < 1:
            raise StageError(f"{self.name}.train_documents is {self.train_documents}: take 1 or more")

    @property
    def measures_in(self) -> tuple[str, ...]:
        """The column."""
        return (self.adds,)

    @property
    def needs_fit(self) -> bool:
        """Whether the threshold is still to be learnt."""
        return self.top_fraction is not None

    def fit(self, tables: Iterable[pa.Table], directory: str) -> Self:  # noqa: ARG002  # it leaves no file
        """Score documents, and return the stage with the threshold that ``top_fraction`` of them pass.

        Raises:
            StageError: no document is long enough to be measured.
        """
        if self.top_fraction is None:
            return self
        tables = choose(tables, self.train_documents, f"{self.name}.train_documents")
        scores = [pc.struct_field(self._measured(table), "score").drop_null().to_numpy() for table in tables]
        every = np.concatenate([np.zeros(0), *scores])
        if not len(every):
            raise StageError(f"{self.name} has no document that is long enough to learn from: check what comes before")
        return replace(self, at_least=reached_by(every, self.top_fraction), top_fraction=None)

    def prepare(self) -> None:
        """Load the model.

        Raises:
            StageError: it cannot be loaded.
        """
        self.pretrained()

    def pretrained(self) -> Pretrained:
        """Return the model, loaded once in a process."""
        return load_model(self.model, "causal", self.device, self.dtype, self.attention)

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Add the column, and compare the score."""
        if self.needs_fit:
            raise StageError(f"{self.name} has no threshold yet: call stage.fit(tables, directory), or set at_least")
        found = self._measured(table)
        checks: list[Check] = []
        if self.at_least is not None:
            score = pc.struct_field(found, "score")
            passes = pc.fill_null(pc.greater_equal(score, self.at_least), self.short == "keep")
            checks.append(Check("at_least", score, passes, self.at_least, "at_least"))
        return with_column(table, self.adds, found), checks

    def trace(self, table: pa.Table) -> Edited:
        """Add the column; no text changes."""
        return Edited(*self.edit(table), no_places())

    def _measured(self, table: pa.Table) -> pa.StructArray:
        texts = valid_texts(column(table, "text", self.name), self.name)
        return self.measures([text or "" for text in texts.to_pylist()])

    @abstractmethod
    def measures(self, texts: Sequence[str]) -> pa.StructArray:
        """Return the measures of texts, ``score`` among them, null for those that are too short."""
