"""Folders of models of `transformers`: by name, fetched from the Hub or saved from objects, and what they must have."""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from longcrawl.errors import StageError, unreadable
from longcrawl.kernels.kept_arrays import cache_folder
from longcrawl.storage.files import content_digest, partial_path
from longcrawl.storage.structured import load_json

TAKEN = "a folder that save_pretrained wrote, a Hub id, a pair (model, tokenizer) or a pipeline"
FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""What is fetched from the Hub: weights as safetensors alone, and no code."""
SET_BY_SAVING = ("architectures", "dtype", "_name_or_path")
"""Of a configuration: what follows from a model, and its folder."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")


def name_model(instance: Any) -> None:
    """Put the name of a model in place of an object in the field ``model`` of a frozen dataclass.

    A pair of model and tokenizer, or a pipeline that has both, is saved below ``$XDG_CACHE_HOME/longcrawl``
    (``~/.cache/longcrawl``), in a folder named after weights, configuration and tokenizer. Stages name this folder.

    Raises:
        StageError: it is neither, or the folder cannot be written.
    """
    model = instance.model
    if isinstance(model, str | os.PathLike):
        object.__setattr__(instance, "model", os.fspath(model))
        return
    pair = model if isinstance(model, tuple | list) else (getattr(model, "model", None), getattr(model, "tokenizer", 0))
    if len(pair) != 2 or not all(hasattr(each, "save_pretrained") for each in pair):
        raise StageError(f"a model is {TAKEN}, not {type(model).__name__}")
    object.__setattr__(instance, "model", _save(*pair))


def _save(model: Any, tokenizer: Any) -> str:
    folder = cache_folder() / "models"
    beside = partial_path(folder / "saved")
    try:
        _save_tokenizer(tokenizer, beside)
        folder /= _digest_model(model, content_digest(str(beside)) or "")
        if not folder.exists():
            model.save_pretrained(beside)
            beside.rename(folder)
    except OSError as failed:
        if not folder.exists():  # else another process was first
            raise StageError(
                f"{folder} cannot be written ({type(failed).__name__}): set XDG_CACHE_HOME, or name a saved model"
            ) from failed
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return str(folder)


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save all that a tokenizer is, also from which side it cuts, which it does not save where that was set later."""
    tokenizer.save_pretrained(folder)
    name = "tokenizer_config.json"
    settings = read_config(folder, name) | {"truncation_side": getattr(tokenizer, "truncation_side", "right")}
    (folder / name).write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False), "utf-8")


def _digest_model(model: Any, tokenizer: str) -> str:
    """Return the first letters of a SHA-256 of a model and of the digest of its tokenizer's files."""
    import torch

    config = {name: value for name, value in model.config.to_dict().items() if name not in SET_BY_SAVING}
    settings = [type(model).__name__, config, tokenizer]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        kept = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {kept.dtype} {tuple(kept.shape)}\n".encode())
        # numpy has no bfloat16.
        digest.update(kept.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def model_folder(model: str) -> Path:
    """Return the folder of a model by its name, fetched from the Hub where it is not here.

    Raises:
        StageError: nothing is there, or it cannot be fetched.
    """
    return _local(model) or _fetch(model)


def model_files(model: str) -> tuple[str, ...]:
    """Return the folder of a model for :meth:`Stage.files`: what is in it is the model's fingerprint.

    A model of the Hub that was never fetched has none yet; :meth:`Stage.prepare` fetches it before.

    Raises:
        StageError: the name is a path, and nothing is there.
    """
    from huggingface_hub import snapshot_download

    folder = _local(model)
    if folder is None:
        with suppress(OSError, ValueError):
            folder = Path(snapshot_download(model, allow_patterns=list(FILES), local_files_only=True))
    return () if folder is None else (str(folder),)


def model_materials(model: str) -> dict[str, dict[str, Any]]:
    """Return what kind of model it is, and the digest of its files, for :meth:`Stage.materials`."""
    found = {}
    for folder in model_files(model):
        kinds = read_config(folder).get("architectures")
        about = ", ".join(map(str, kinds)) if kinds and isinstance(kinds, list) else "a model of transformers"
        found[model] = {"about": about, "sha256": content_digest(folder)}
    return found


def _local(model: str) -> Path | None:
    path = Path(model).expanduser()
    if (path / "config.json").is_file():
        return path.absolute()
    if path.exists() or path.is_absolute():
        raise StageError(f"no model at {model!r}, which has no config.json: give {TAKEN}")
    return None


@lru_cache(maxsize=8)
def _fetch(repository: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, allow_patterns=list(FILES)))
    except (OSError, ValueError) as failed:
        raise StageError(
            f"model {repository!r} is not a folder here and did not come from the Hub ({type(failed).__name__}): "
            f"fetch it with hf download {repository}, or name a folder"
        ) from failed


def read_config(folder: str | Path, name: str = "config.json") -> dict[str, Any]:
    """Return the content of a configuration.

    Raises:
        StageError: it cannot be read, or is not a JSON object.
    """
    file = Path(folder, name)
    with unreadable(file, StageError, "save the model with save_pretrained again, or copy the file back"):
        found = load_json(file.read_bytes())
    if not isinstance(found, dict):
        raise StageError(f"{file} holds no JSON object: save the model with save_pretrained again")
    return found


def has_tokenizer(folder: str) -> bool:
    """Return whether a folder has a tokenizer: its file, or the name of one of bytes or letters, which needs none."""
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    if any(Path(folder, name).is_file() for name in TOKENIZERS):
        return True
    if not Path(folder, "tokenizer_config.json").is_file():
        return False
    kind = tokenizer_class_from_name(str(read_config(folder, "tokenizer_config.json").get("tokenizer_class")))
    return kind is not None and not kind.vocab_files_names
