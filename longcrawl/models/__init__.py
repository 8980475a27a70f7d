"""Models of `transformers` that stages ask about documents."""

from longcrawl.models.pretrained import (
    Device,
    Dtype,
    Pretrained,
    Task,
    load_model,
    model_files,
    model_folder,
    model_materials,
    name_model,
    token_losses,
)
from longcrawl.models.scores import ModelScore

__all__ = [
    "Device",
    "Dtype",
    "ModelScore",
    "Pretrained",
    "Task",
    "load_model",
    "model_files",
    "model_folder",
    "model_materials",
    "name_model",
    "token_losses",
]
