"""Models of `transformers` that stages ask about documents."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.models.folders import model_files, model_folder, model_materials, name_model
    from longcrawl.models.pretrained import Device, Dtype, Pretrained, Task, load_model
    from longcrawl.models.scores import ModelScore, OfModel, token_losses

__all__ = [
    "Device",
    "Dtype",
    "ModelScore",
    "OfModel",
    "Pretrained",
    "Task",
    "load_model",
    "model_files",
    "model_folder",
    "model_materials",
    "name_model",
    "token_losses",
]

lazy(__name__)
