"""Models of `transformers`: by folder, Hub id or object, loaded once in a process, with answers that repeat exactly."""

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.kernels.kept_arrays import cache_folder
from longcrawl.models.heads import has_head, load_head
from longcrawl.storage.files import content_digest, partial_path, reread_when_changed
from longcrawl.storage.structured import load_json

Task = Literal["causal", "classifier"]
Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]
Ids: TypeAlias = npt.NDArray[np.int64]

TAKEN = "a folder that save_pretrained wrote, a Hub id, a pair (model, tokenizer) or a pipeline"
FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""What is fetched from the Hub: weights as safetensors alone, and no code."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
CPU_TOKENS, CUDA_TOKENS = 512, 1 << 15
"""Tokens of a batch: on a CPU a row of more is as fast alone."""
TOLERANCE = 1e-5
"""How far, of values up to 1 and of larger ones by as much more, float32 answers in a batch are from those alone."""


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
    digest = hashlib.sha256(json.dumps(model.config.to_dict(), sort_keys=True, default=str).encode())
    digest.update(str(getattr(tokenizer, "backend_tokenizer", tokenizer).to_str()).encode())
    for name, tensor in sorted(model.state_dict().items()):
        kept = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {kept.dtype} {tuple(kept.shape)}\n".encode())
        # numpy has no bfloat16.
        digest.update(kept.flatten().view(_bytes_type()).numpy().tobytes())
    folder = cache_folder() / "models" / digest.hexdigest()[:16]
    beside = partial_path(folder)
    try:
        if not folder.exists():
            model.save_pretrained(beside)
            tokenizer.save_pretrained(beside)
            beside.rename(folder)
    except OSError as failed:
        if not folder.exists():  # else another process was first
            raise StageError(
                f"{folder} cannot be written ({type(failed).__name__}): set XDG_CACHE_HOME, or name a saved model"
            ) from failed
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return str(folder)


def _bytes_type() -> Any:
    import torch

    return torch.uint8


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
        kinds = load_json(Path(folder, "config.json").read_bytes()).get("architectures") or ["a model of transformers"]
        found[model] = {"about": ", ".join(map(str, kinds)), "sha256": content_digest(folder)}
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


def load_model(
    model: str, task: Task, device: Device = "auto", dtype: Dtype = "float32", attention: str | None = None
) -> "Pretrained":
    """Load a model with its tokenizer, in evaluation mode; the last two are kept until their files change.

    Weights are read from safetensors alone, and no code of a model is run.

    >>> loaded = load_model("gpt2", "causal", "cpu")  # doctest: +SKIP
    >>> loaded.each(loaded.token_ids(["Hello world"]), lambda model, ids: model(ids).logits[:, -1].max(-1).values)
    ... # doctest: +SKIP

    Args:
        model: see :func:`model_folder`.
        task: "causal" predicts the next token, "classifier" gives logits of labels.
        device: "auto" is the GPU where there is one.
        dtype: of weights and computation.
        attention: an implementation that transformers knows, "eager" where attention weights are asked for; None for
            the one that transformers chooses, as some models know but one.

    Raises:
        StageError: torch is missing; there is no model, no tokenizer or no weights for the task; there is no GPU.
    """
    # The memory that MKL keeps for each thread hangs in forked workers, where those threads are gone.
    os.environ.setdefault("MKL_DISABLE_FAST_MM", "1")
    try:
        import torch  # noqa: F401  # what cannot be loaded without it
    except ImportError as missing:
        raise StageError(f'the model {model!r} needs torch: pip install "longcrawl[torch]"') from missing
    return _load(str(model_folder(model)), task, device, dtype, attention)


@reread_when_changed(2)
def _load(folder: str, task: Task, device: Device, dtype: Dtype, attention: str | None) -> "Pretrained":
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    if not any(Path(folder, name).is_file() for name in TOKENIZERS):
        raise StageError(f"{folder} has no tokenizer: save it there with tokenizer.save_pretrained(FOLDER)")
    kind = AutoModelForCausalLM if task == "causal" else AutoModelForSequenceClassification
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with _quiet():
            if task == "classifier" and has_head(folder):
                module, missing = load_head(folder, getattr(torch, dtype), attention)
            else:
                module, about = kind.from_pretrained(
                    folder,
                    use_safetensors=True,
                    dtype=getattr(torch, dtype),
                    attn_implementation=attention,
                    output_loading_info=True,
                    **local,
                )
                missing = sorted(about["missing_keys"])
            tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    except Exception as failed:  # what transformers raises depends on the kind of model
        first = str(failed).strip().partition("\n")[0]
        raise StageError(
            f"{folder} does not load as a {task} model from safetensors ({type(failed).__name__}: {first}): save it "
            "with save_pretrained"
        ) from failed
    if missing:
        raise StageError(
            f"{folder} is not a {task} model, it has no weights for {', '.join(missing[:3])}: name one that has"
        )
    model = Pretrained(folder, module.eval(), tokenizer, device, dtype)
    if task == "causal" and attention in (None, "sdpa", "eager") and model.sees_later():
        raise StageError(f"{folder} is not a causal model, its tokens see those behind them: name one that has a mask")
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Show no progress of loading."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model and its tokenizer, see :func:`load_model`.

    Answers of a row do not depend on which other rows there are, nor on the number of threads or processes: on a CPU
    each row is computed by one thread, and several rows at a time.

    Attributes:
        name: the folder.
        module: the model, on the CPU until it is asked.
        tokenizer: that of `transformers`.
        wanted: the device asked for.
        dtype: "float32" or "bfloat16".
    """

    name: str
    module: Any
    tokenizer: Any
    wanted: Device
    dtype: Dtype

    @property
    def config(self) -> Any:
        """The model's configuration, such as ``config.id2label``."""
        return self.module.config

    @property
    def longest(self) -> int:
        """How many tokens a row has at most; ``sys.maxsize`` where the model has no limit."""
        most = getattr(self.config, "max_position_embeddings", None) or sys.maxsize
        # Some models need places for padding, which their tokenizer knows of.
        return min(most, getattr(self.tokenizer, "model_max_length", None) or sys.maxsize)

    @cached_property
    def device(self) -> Any:
        """The torch device; the model moves there when it is first asked for.

        Raises:
            StageError: there is no GPU, or this process was forked from one that has used it.
        """
        import torch

        # Asked here and not when loading: a process that has asked a GPU anything cannot be forked.
        device = "cpu" if self.wanted == "cpu" or not torch.cuda.is_available() else "cuda"
        if self.wanted == "cuda" and device == "cpu":
            raise StageError(f"the model {self.name} has no GPU here: set device to 'cpu' or 'auto'")
        try:
            self.module.to(device)
        except RuntimeError as failed:
            raise StageError(
                f"the model {self.name} cannot use {device} ({type(failed).__name__}): run with num_proc 1, or on cpu"
            ) from failed
        return torch.device(device)

    def token_ids(
        self, texts: Sequence[str], special_tokens: Literal["none", "added"] = "none", most: int | None = None
    ) -> list[Ids]:
        """Return the ids of each text, int64 [tokens].

        Args:
            texts: what is spelled like a special token is text where ``special_tokens`` is "none".
            special_tokens: "added" adds those that the tokenizer puts around a text, such as ``[CLS]``.
            most: longer texts are cut to so many tokens; None for no cut.
        """
        added = special_tokens == "added"
        cut: Mapping[str, Any] = {} if most is None else {"truncation": True, "max_length": most}
        encoded = self.tokenizer(
            list(texts), add_special_tokens=added, split_special_tokens=not added, verbose=False, **cut
        )
        return [np.array(ids, np.int64) for ids in encoded["input_ids"]]

    def each(
        self, rows: Sequence[Ids], ask: Callable[[Any, Any], Any], decimals: int | None = None
    ) -> list[npt.NDArray[np.float64]]:
        """Return the answer about each row, in the order of rows.

        Rows of one length share a batch only where ``decimals`` are given. A value of a batch that is close to where
        rounding turns is computed again, from its row alone, so that each equals the rounded value of the row alone.

        Args:
            rows: int64 [tokens] each, one token at least; or [parts, tokens].
            ask: called with the module and int64 ids [rows, tokens] on its device, without gradients and in several
                threads; returns a tensor [rows, ...].
            decimals: to which answers are rounded; None for answers as they are.

        Raises:
            StageError: a row is longer than the model allows, or the device cannot be used.
        """
        device = self.device
        if too_long := [row.shape[-1] for row in rows if row.shape[-1] > self.longest]:
            raise StageError(f"a row has {too_long[0]:,} tokens, {self.name} takes {self.longest:,}: cut it")
        batches = self._batches([row.size for row in rows], decimals)
        found: list[Any] = [None] * len(rows)

        def compute(batch: Sequence[int]) -> None:
            for number, values in zip(batch, self._ask([rows[each] for each in batch], ask), strict=True):
                alone = values
                if decimals is not None and len(batch) > 1 and _turns(values, decimals):
                    alone = self._ask([rows[number]], ask)[0]
                found[number] = alone if decimals is None else np.round(alone, decimals)

        if device.type == "cpu":
            _each_by_one_core(compute, batches)
        else:
            for batch in batches:
                compute(batch)
        return found

    def sees_later(self) -> bool:
        """Return whether the answer about a token depends on those behind it; asked on the CPU, where models load."""
        rows = [np.array([1, 1, 1, last], np.int64) for last in (1, 2)]
        first, other = replace(self, wanted="cpu").each(rows, lambda module, ids: module(ids).logits[:, 0])
        return not np.allclose(first, other)

    def _batches(self, lengths: Sequence[int], decimals: int | None) -> list[list[int]]:
        """Return numbers of rows of one length, the longest first."""
        tokens = CPU_TOKENS if self.device.type == "cpu" else CUDA_TOKENS
        if decimals is None or self.dtype != "float32":
            tokens = 0
        order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
        batches: list[list[int]] = []
        for number in order:
            length = lengths[number]
            if batches and lengths[batches[-1][0]] == length and (len(batches[-1]) + 1) * length <= tokens:
                batches[-1].append(number)
            else:
                batches.append([number])
        return batches

    def _ask(self, rows: Sequence[Ids], ask: Callable[[Any, Any], Any]) -> npt.NDArray[np.float64]:
        import torch

        with torch.inference_mode():
            answer = ask(self.module, torch.from_numpy(np.stack(rows)).to(self.device))
            found = np.asarray(answer.to(torch.float64).cpu().numpy())
        if np.isnan(found).any():
            raise StageError(f"the model {self.name} answers with NaN: take dtype float32, or another model")
        return found


def _turns(values: npt.NDArray[np.float64], decimals: int) -> bool:
    """Return whether rounding turns near one of the values."""
    scaled = values * 10.0**decimals
    near = TOLERANCE * 10.0**decimals * np.maximum(1.0, np.abs(values))
    return bool((np.abs(scaled - np.floor(scaled) - 0.5) <= near).any())


def _each_by_one_core(compute: Callable[[Sequence[int]], None], batches: Sequence[Sequence[int]]) -> None:
    """Compute batches in threads, each with one core: sums split over several cores round as they are split."""
    import torch

    def alone(batch: Sequence[int]) -> None:
        torch.set_num_threads(1)  # of this thread
        compute(batch)

    before = torch.get_num_threads()
    # A worker is one of as many as there are cores.
    count = 1 if multiprocessing.parent_process() is not None else before
    try:
        list(_threads(os.getpid(), count).map(alone, batches))
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=4)
def _threads(process: int, count: int) -> ThreadPoolExecutor:  # noqa: ARG001  # a fork has no threads of its parent
    """Return threads that stay: one that ends holds locks of MKL, which a process forked meanwhile would wait for."""
    return ThreadPoolExecutor(count, "longcrawl-model")
