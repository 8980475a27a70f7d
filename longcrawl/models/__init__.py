"""Models of `transformers` that stages ask about documents."""

from longcrawl.models.pretrained import Attention, Device, Dtype, Pretrained, Task, load_model, model_folder, name_model

__all__ = ["Attention", "Device", "Dtype", "Pretrained", "Task", "load_model", "model_folder", "name_model"]
