"""Models of `transformers`: files, loading, batched inference, and the base class of stages that score with them."""

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.registry import Conditions
from longcrawl.core.stages import Check, Edit, column, with_column
from longcrawl.errors import StageError, unreadable
from longcrawl.io.files import content_digest, partial_path, reread_when_changed
from longcrawl.io.structured import load_json
from longcrawl.kernels.code_points import cache_folder
from longcrawl.kernels.keyed_hash import choose, reached_by
from longcrawl.kernels.texts import valid_texts

TAKEN = "a folder that save_pretrained wrote, a Hub id, a pair (model, tokenizer) or a pipeline"
FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files to fetch from the Hub: weights only as safetensors, and no code."""
SET_BY_SAVING = ("architectures", "dtype", "_name_or_path")
"""Keys of a configuration that follow from the model or name its folder; they are not part of the digest."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")


def name_model(instance: Any) -> None:
    """Replace a model object in the field ``model`` of a frozen dataclass with the name of a folder; keep a name.

    A pair of model and tokenizer, or a pipeline that has both, is saved below ``$XDG_CACHE_HOME/longcrawl``
    (``~/.cache/longcrawl``), in a folder named after the digest of its content; StageError for other objects.
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
        if not folder.exists():  # otherwise another process was first
            raise StageError(
                f"{folder} cannot be written ({type(failed).__name__}): set XDG_CACHE_HOME, or set model to a saved one"
            ) from failed
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return str(folder)


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer with its truncation side, which ``save_pretrained`` omits if it was set later."""
    tokenizer.save_pretrained(folder)
    name = "tokenizer_config.json"
    settings = read_config(folder, name) | {"truncation_side": getattr(tokenizer, "truncation_side", "right")}
    (folder / name).write_text(json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False), "utf-8")


def _digest_model(model: Any, tokenizer: str) -> str:
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
            f"model {repository!r} is not a folder here and cannot be fetched from the Hub ({type(failed).__name__}): "
            f"run `hf download {repository}`, or set model to a folder"
        ) from failed


def read_config(folder: str | Path, name: str = "config.json") -> dict[str, Any]:
    """Read a JSON configuration file of a model's folder; StageError if it is not a JSON object."""
    file = Path(folder, name)
    with unreadable(file, StageError, "save the model with save_pretrained again, or copy the file back"):
        found = load_json(file.read_bytes())
    if not isinstance(found, dict):
        raise StageError(f"{file} is not a JSON object: save the model with save_pretrained again")
    return found


def has_tokenizer(folder: str) -> bool:
    """Return whether a folder has a tokenizer: its file, or the name of a byte or character tokenizer without files."""
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    if any(Path(folder, name).is_file() for name in TOKENIZERS):
        return True
    if not Path(folder, "tokenizer_config.json").is_file():
        return False
    kind = tokenizer_class_from_name(str(read_config(folder, "tokenizer_config.json").get("tokenizer_class")))
    return kind is not None and not kind.vocab_files_names


MARKS = ("base_model", "fc_dropout", "id2label")
"""Keys in ``config.json`` of NeMo Curator's classifiers: a model with a linear layer on its first token."""


def load_head(folder: str, dtype: Any, attention: str | None) -> tuple[Any, list[str]]:
    """Load a classifier in the layout of NeMo Curator's, and return it with the names of its missing weights.

    If ``config.json`` has no model settings or they do not match the weights, those of its base model are used.
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
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            return SimpleNamespace(logits=self.fc(hidden[:, 0]))

    module = Headed()
    missing, _ = module.load_state_dict(weights, strict=False)
    return module, list(missing)


Task = Literal["causal", "classifier"]
Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]
Ids: TypeAlias = npt.NDArray[np.int64]

CPU_TOKENS, CUDA_TOKENS = 512, 1 << 15  # largest number of tokens in a batch; on a CPU, a longer row is as fast alone
TOLERANCE = 1e-5
"""Maximum difference between float32 answers in a batch and alone: absolute up to 1, relative for larger values."""


def load_model(
    model: str, task: Task, device: Device = "auto", dtype: Dtype = "float32", attention: str | None = None
) -> "Pretrained":
    """Load a model with its tokenizer, in evaluation mode; the last two models are cached until their files change.

    Weights are read only from safetensors, and a model's own code is never run. ``task`` "causal" predicts the next
    token, "classifier" gives logits of labels. ``attention`` is an implementation of transformers, "eager" if attention
    weights are needed; None leaves the choice to transformers, as some models support only one.

    Raises:
        StageError: torch, the model, its tokenizer, its weights for the task, or a GPU is missing.
    """
    # MKL's per-thread memory makes forked workers hang, because they lack their parent's threads.
    os.environ.setdefault("MKL_DISABLE_FAST_MM", "1")
    try:
        _spare_cuda()
    except ImportError as missing:
        raise StageError(f'the model {model!r} needs torch: pip install "longcrawl[torch]"') from missing
    return _load(str(_local(model) or _fetch(model)), task, device, dtype, attention)


@reread_when_changed(2)
def _load(folder: str, task: Task, device: Device, dtype: Dtype, attention: str | None) -> "Pretrained":
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    if not has_tokenizer(folder):
        raise StageError(f"{folder} has no tokenizer: save it there with tokenizer.save_pretrained(FOLDER)")
    kind = AutoModelForCausalLM if task == "causal" else AutoModelForSequenceClassification
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    headed = task == "classifier" and read_config(folder).keys() >= set(MARKS)
    try:
        with _quiet():
            if headed:
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
    except Exception as failed:  # transformers raises different exceptions for different kinds of models
        first = str(failed).strip().partition("\n")[0]
        raise StageError(
            f"{folder} does not load as a {task} model from safetensors ({type(failed).__name__}: {first}): save it "
            "with save_pretrained"
        ) from failed
    if missing:
        raise StageError(
            f"{folder} is not a {task} model, it has no weights for {', '.join(missing[:3])}: choose one that has them"
        )
    model = Pretrained(folder, module.eval(), tokenizer, device, dtype)
    if task == "causal" and attention in (None, "sdpa", "eager") and model.sees_later():
        raise StageError(
            f"{folder} is not a causal model, since its tokens attend to later ones: choose a causal model"
        )
    return model


@contextmanager
def _quiet() -> Iterator[None]:
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


def _spare_cuda() -> None:
    """Keep ``torch.cuda.is_current_stream_capturing`` from initialising CUDA.

    transformers calls it even on a CPU, and forked processes could then not use CUDA.
    """
    import torch

    asked = torch.cuda.is_current_stream_capturing
    if asked.__module__ != __name__:
        torch.cuda.is_current_stream_capturing = lambda: torch.cuda.is_initialized() and asked()


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model and its tokenizer, see :func:`load_model`.

    The answer for a row does not depend on other rows, nor on the number of threads or processes. On a CPU, one thread
    computes each row, and several threads compute rows at the same time.
    """

    name: str  # the folder of the model
    module: Any  # the model, which is on the CPU until its first use
    tokenizer: Any  # a tokenizer of `transformers`
    wanted: Device
    dtype: Dtype

    @property
    def config(self) -> Any:
        """The model's configuration, such as ``config.id2label``."""
        return self.module.config

    @property
    def longest(self) -> int:
        """The largest number of tokens of a row, ``sys.maxsize`` if the model has no limit."""
        most = getattr(self.config, "max_position_embeddings", None) or sys.maxsize
        return min(most - self._padding, getattr(self.tokenizer, "model_max_length", None) or sys.maxsize)

    @cached_property
    def _padding(self) -> int:
        """The number of unused positions before a row; models like RoBERTa count positions from the padding index."""
        tables = (table for name, table in self.module.named_modules() if name.endswith("position_embeddings"))
        return max(
            (table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None), default=0
        )

    @property
    def device(self) -> Any:
        """The torch device of this process; the first access moves the model there, or raises StageError."""
        process = os.getpid()
        if process not in self._devices:
            self._devices[process] = self._move()
        return self._devices[process]

    @cached_property
    def _devices(self) -> dict[int, Any]:
        """The device by process id, since forked workers inherit the loaded model."""
        return {}

    def _move(self) -> Any:
        import torch

        device = "cpu" if self.wanted == "cpu" or not has_gpu() else "cuda"
        if self.wanted == "cuda" and device == "cpu":
            raise StageError(f"no GPU is available for the model {self.name}: set device to 'cpu' or 'auto'")
        try:
            if device == "cuda":
                torch.cuda.init()
            self.module.to(device)
        except torch.cuda.OutOfMemoryError as full:
            raise StageError(f"the model {self.name} does not fit into the GPU's memory: set device to 'cpu'") from full
        except RuntimeError as failed:
            reason = str(failed).partition("\n")[0].partition(". ")[0]
            raise StageError(
                f"the model {self.name} cannot use {device} ({reason}): set device to 'cpu', or in a process that has "
                "used the GPU num_proc to 1"
            ) from failed
        return torch.device(device)

    def token_ids(
        self, texts: Sequence[str], special_tokens: Literal["none", "added"] = "none", most: int | None = None
    ) -> list[Ids]:
        """Return the token ids of each text, int64 [tokens], truncated to ``most`` tokens if that is given.

        "none" tokenises special tokens as text; "added" puts the usual ones around it, such as ``[CLS]``. StageError if
        the tokenizer gives an id that the model does not have.
        """
        added = special_tokens == "added"
        cut: Mapping[str, Any] = {} if most is None else {"truncation": True, "max_length": most}
        encoded = self.tokenizer(
            list(texts), add_special_tokens=added, split_special_tokens=not added, verbose=False, **cut
        )
        rows = [np.array(ids, np.int64) for ids in encoded["input_ids"]]
        known = getattr(self.config, "vocab_size", None) or sys.maxsize
        if unknown := [row.max() for row in rows if row.max(initial=0) >= known]:
            raise StageError(
                f"the tokenizer of {self.name} returns token {unknown[0]:,}, but its model has only {known:,} ids: "
                "save the tokenizer that the model was trained with"
            )
        return rows

    def each(
        self, rows: Sequence[Ids], ask: Callable[[Any, Any], Any], decimals: int | None = None
    ) -> list[npt.NDArray[np.float64]]:
        """Return the model's answer for each row, int64 [tokens] or [parts, tokens], in the order of rows.

        ``ask`` gets the module and int64 ids [rows, tokens] on its device, and returns a tensor [rows, ...]; it is
        called without gradients and in several threads. Rows of one length share a batch only if ``decimals`` to round
        answers to are given. If a value from a batch is close to a rounding boundary, its row is computed again alone,
        so each result equals that of the row alone. StageError for a row that is too long, or an answer of NaN.
        """
        device = self.device
        if too_long := [row.shape[-1] for row in rows if row.shape[-1] > self.longest]:
            raise StageError(
                f"a row has {too_long[0]:,} tokens, but {self.name} takes at most {self.longest:,}: cut it"
            )
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
        """Return whether the answer for a token depends on later tokens; computed on the CPU, where models load."""
        rows = [np.array([1, 1, 1, last], np.int64) for last in (1, 2)]
        first, other = replace(self, wanted="cpu").each(rows, lambda module, ids: module(ids).logits[:, 0])
        return not np.allclose(first, other)

    def _batches(self, lengths: Sequence[int], decimals: int | None) -> list[list[int]]:
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

        try:
            with torch.inference_mode():
                answer = ask(self.module, torch.from_numpy(np.stack(rows)).to(self.device))
                found = np.asarray(answer.to(torch.float64).cpu().numpy())
        except torch.cuda.OutOfMemoryError as full:
            raise StageError(
                f"{len(rows):,} x {rows[0].size:,} tokens do not fit into the GPU's memory beside {self.name}: lower "
                "max_length or the contexts, or set device to 'cpu'"
            ) from full
        if np.isnan(found).any():
            raise StageError(f"the model {self.name} returned NaN: set dtype to float32, or choose another model")
        return found


def has_gpu() -> bool:
    """Return whether there is a GPU, if possible by the driver's library, without initialising CUDA."""
    import torch

    return bool(torch.cuda.device_count())


def _turns(values: npt.NDArray[np.float64], decimals: int) -> bool:
    scaled = values * 10.0**decimals
    near = TOLERANCE * 10.0**decimals * np.maximum(1.0, np.abs(values))
    return bool((np.abs(scaled - np.floor(scaled) - 0.5) <= near).any())


def _each_by_one_core(compute: Callable[[Sequence[int]], None], batches: Sequence[Sequence[int]]) -> None:
    """Compute batches in threads of one core each, since rounding depends on how cores share a sum."""
    import torch

    def alone(batch: Sequence[int]) -> None:
        torch.set_num_threads(1)  # for this thread
        compute(batch)

    before = torch.get_num_threads()
    # There is one worker per core, so each uses a single core.
    count = 1 if multiprocessing.parent_process() is not None else before
    try:
        list(_threads(os.getpid(), count).map(alone, batches))
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=4)
def _threads(process: int, count: int) -> ThreadPoolExecutor:  # noqa: ARG001  # a fork has no threads of its parent
    """Return a permanent thread pool: a thread that ends holds locks of MKL, and a process forked then would wait."""
    import torch

    # MKL detects the processor in its first call. If two threads make it at once, one of them may compute as on another
    # processor and round differently. This happened in 2 of 300 processes that asked a small GPT-2 for two rows.
    torch.exp(torch.zeros(1))
    return ThreadPoolExecutor(count, "longcrawl-model")


CHUNK, CUDA_CHUNK = 1_024, 4_096
"""Tokens whose logits over all ids are in memory at once; larger chunks are faster on a GPU."""


def token_losses(module: Any, ids: Any) -> Any:
    """Return the loss of each token but the first in nats, float32 [rows, tokens - 1], for :meth:`Pretrained.each`.

    Rows longer than a chunk are computed in parts with the cached keys and values of the earlier parts.
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
            raise StageError(f"{kind} returns no keys and values: set contexts of at most {chunk:,} tokens for it")
        logits = answer.logits[:, : targets.shape[1]].float()
        flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        found.append(flat.view(targets.shape))
    return torch.cat(found, 1) if found else ids[:, :0].float()


class OfModel:
    """A mixin for stages with a model: its files, their entry in the manifest, and its device."""

    model: str

    @property
    def uses_gpu(self) -> bool:
        """Whether the model runs on a GPU."""
        return getattr(self, "device", "cpu") != "cpu" and has_gpu()

    def files(self) -> tuple[str, ...]:
        """Return the folder of the model, or nothing if a model of the Hub has not been fetched yet."""
        from huggingface_hub import snapshot_download

        folder = _local(self.model)
        if folder is None:
            with suppress(OSError, ValueError):
                folder = Path(snapshot_download(self.model, allow_patterns=list(FILES), local_files_only=True))
        return () if folder is None else (str(folder),)

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return the architecture of the model and the digest of its files."""
        found = {}
        for folder in self.files():
            kinds = read_config(folder).get("architectures")
            about = ", ".join(map(str, kinds)) if kinds and isinstance(kinds, list) else "a model of transformers"
            found[self.model] = {"about": about, "sha256": content_digest(folder)}
        return found


@dataclass(frozen=True)
class ModelScore(OfModel, Edit):
    """A base class of stages that score documents with a causal model: model, column of measures, and threshold.

    Args:
        model: a folder that ``save_pretrained`` wrote, with a tokenizer, or a Hub id. In Python also a pair of model
            and tokenizer, or a pipeline; recipes can only hold names.
        at_least: the lowest score of kept documents; the rule ``at_least`` removes others. None keeps all documents.
        top_fraction: the share of measured documents to keep, in place of ``at_least``; the threshold is fitted to it.
        short: whether to keep or drop documents that are too short to be measured; "drop" needs a threshold.
        device: the device to compute on; "auto" is the GPU if there is one.
        dtype: the type of weights and computation.
        train_documents: how many documents ``top_fraction`` is fitted to; None for all.
    """

    model: str = "gpt2"
    at_least: float | None = None
    top_fraction: float | None = None
    short: Literal["keep", "drop"] = "keep"
    device: Device = "auto"
    dtype: Dtype = "float32"
    train_documents: int | None = 1_000
    adds: ClassVar[str]  # name of the column of measures, a struct with the field ``score``
    attention: ClassVar[str | None] = None
    only_with: ClassVar[Conditions] = MappingProxyType({"short": {"at_least": None, "top_fraction": None}})

    def __post_init__(self) -> None:
        name_model(self)
        super().__post_init__()
        if self.at_least is not None and self.top_fraction is not None:
            raise StageError(f"{self.name} has both at_least and top_fraction: set only one of them")
        if self.top_fraction is not None and not 0 < self.top_fraction <= 1:
            raise StageError(f"{self.name}.top_fraction is {self.top_fraction}: set it above 0 and up to 1")
        if self.train_documents is not None and self.train_documents < 1:
            raise StageError(f"{self.name}.train_documents is {self.train_documents}: set it to 1 or more")

    @property
    def measures_in(self) -> tuple[str, ...]:
        """The name of the column of measures."""
        return (self.adds,)

    @property
    def needs_fit(self) -> bool:
        """Whether the threshold must be fitted first."""
        return self.top_fraction is not None

    def fit(self, tables: Iterable[pa.Table], directory: str) -> Self:  # noqa: ARG002  # no file is written
        """Return the stage with the threshold that ``top_fraction`` of documents pass; StageError if all are short."""
        if self.top_fraction is None:
            return self
        tables = choose(tables, self.train_documents, f"{self.name}.train_documents")
        scores = [pc.struct_field(self._measured(table), "score").drop_null().to_numpy() for table in tables]
        every = np.concatenate([np.zeros(0), *scores])
        if not len(every):
            raise StageError(
                f"{self.name} has no document that is long enough to learn from: check the stages before it"
            )
        return replace(self, at_least=reached_by(every, self.top_fraction), top_fraction=None)

    def prepare(self) -> None:
        """Load the model; raise StageError if the model cannot be loaded."""
        self.pretrained()

    def pretrained(self) -> Pretrained:
        """Return the model, which is loaded once per process."""
        return load_model(self.model, "causal", self.device, self.dtype, self.attention)

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Add the column of measures, and compare the score with the threshold."""
        if self.needs_fit:
            raise StageError(f"{self.name} has no threshold yet: call stage.fit(tables, directory), or set at_least")
        found = self._measured(table)
        checks: list[Check] = []
        if self.at_least is not None:
            score = pc.struct_field(found, "score")
            passes = pc.fill_null(pc.greater_equal(score, self.at_least), self.short == "keep")
            checks.append(Check("at_least", score, passes, self.at_least, "at_least"))
        return with_column(table, self.adds, found), checks

    def _measured(self, table: pa.Table) -> pa.StructArray:
        texts = valid_texts(column(table, "text", self.name), self.name)
        return self.measures([text or "" for text in texts.to_pylist()])

    @abstractmethod
    def measures(self, texts: Sequence[str]) -> pa.StructArray:
        """Return a struct of measures for each text, including ``score``, with null for texts that are too short."""
