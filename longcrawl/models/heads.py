"""Classifiers that are a model of `transformers` and a linear layer on its first token, as NeMo Curator saves them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from longcrawl.models.folders import read_config

MARKS = ("base_model", "fc_dropout", "id2label")
"""What their ``config.json`` has, besides the settings of the model if at all."""


def has_head(folder: str) -> bool:
    """Return whether a folder has such a classifier."""
    return all(mark in read_config(folder) for mark in MARKS)


def load_head(folder: str, dtype: Any, attention: str | None) -> tuple[Any, list[str]]:
    """Return the classifier, whose answers have ``logits``, and which of its weights are missing.

    Its settings are those of the file, or of the base model that it names, where the file has none or others than the
    weights.

    Args:
        folder: with ``config.json`` and ``model.safetensors``.
        dtype: of torch.
        attention: as for :func:`longcrawl.models.load_model`.
    """
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModel

    weights = load_file(str(Path(folder, "model.safetensors")))
    written = read_config(folder)
    config: Any = None
    if "model_type" in written:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    width = weights["fc.weight"].shape[1]
    if config is None or config.hidden_size != width or "num_hidden_layers" not in written:
        config = AutoConfig.from_pretrained(written["base_model"], trust_remote_code=False)
        config.id2label = {int(number): name for number, name in written["id2label"].items()}

    class Headed(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.config = config
            self.model = AutoModel.from_config(config, dtype=dtype, attn_implementation=attention)
            self.fc = torch.nn.Linear(width, len(weights["fc.weight"]), dtype=dtype)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            """Return the outputs of labels, of the first token."""
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            return SimpleNamespace(logits=self.fc(hidden[:, 0]))

    module = Headed()
    missing, _ = module.load_state_dict(weights, strict=False)
    return module, list(missing)
