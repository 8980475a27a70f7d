"""Models of `transformers`: by folder, Hub id or object, loaded once in a process, with answers that repeat exactly."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.models.folders import has_tokenizer, model_folder
from longcrawl.models.heads import has_head, load_head
from longcrawl.storage.files import reread_when_changed

Task = Literal["causal", "classifier"]
Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["float32", "bfloat16"]
Ids: TypeAlias = npt.NDArray[np.int64]

CPU_TOKENS, CUDA_TOKENS = 512, 1 << 15
"""Tokens of a batch: on a CPU a row of more is as fast alone."""
TOLERANCE = 1e-5
"""How far, of values up to 1 and of larger ones by as much more, float32 answers in a batch are from those alone."""


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
        import torch
    except ImportError as missing:
        raise StageError(f'the model {model!r} needs torch: pip install "longcrawl[torch]"') from missing
    if not isinstance(torch.cuda.is_current_stream_capturing, _WhereInUse):
        torch.cuda.is_current_stream_capturing = _WhereInUse(torch.cuda.is_current_stream_capturing)
    return _load(str(model_folder(model)), task, device, dtype, attention)


@reread_when_changed(2)
def _load(folder: str, task: Task, device: Device, dtype: Dtype, attention: str | None) -> "Pretrained":
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    if not has_tokenizer(folder):
        raise StageError(f"{folder} has no tokenizer: save it there with tokenizer.save_pretrained(FOLDER)")
    kind = AutoModelForCausalLM if task == "causal" else AutoModelForSequenceClassification
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    headed = task == "classifier" and has_head(folder)
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


@dataclass(frozen=True)
class _WhereInUse:
    """Answers that no CUDA stream is being captured where CUDA is not in use.

    Masks of transformers ask, on a CPU too, and the question takes CUDA into use: no process that is forked can use it.
    """

    asked: Callable[[], bool]

    def __call__(self) -> bool:
        import torch

        return torch.cuda.is_initialized() and self.asked()


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
        return min(most - self._padding, getattr(self.tokenizer, "model_max_length", None) or sys.maxsize)

    @cached_property
    def _padding(self) -> int:
        """How many positions come before the first of a row: models like RoBERTa count on from that of padding."""
        tables = (table for name, table in self.module.named_modules() if name.endswith("position_embeddings"))
        return max(
            (table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None), default=0
        )

    @property
    def device(self) -> Any:
        """The torch device of this process; the model moves there when it is first asked for.

        Raises:
            StageError: there is no GPU, or this process was forked from one that has used it.
        """
        process = os.getpid()
        if process not in self._devices:
            self._devices[process] = self._move()
        return self._devices[process]

    @cached_property
    def _devices(self) -> dict[int, Any]:
        """The device by process, as workers are forked with what this one has loaded."""
        return {}

    def _move(self) -> Any:
        import torch

        device = "cpu" if self.wanted == "cpu" or not has_gpu() else "cuda"
        if self.wanted == "cuda" and device == "cpu":
            raise StageError(f"the model {self.name} has no GPU here: set device to 'cpu' or 'auto'")
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
        """Return the ids of each text, int64 [tokens].

        Args:
            texts: what is spelled like a special token is text where ``special_tokens`` is "none".
            special_tokens: "added" adds those that the tokenizer puts around a text, such as ``[CLS]``.
            most: longer texts are cut to so many tokens; None for no cut.

        Raises:
            StageError: the tokenizer has an id that the model does not know.
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
                f"the tokenizer of {self.name} gives token {unknown[0]:,}, its model has {known:,} ids: save the "
                "tokenizer that the model was trained with"
            )
        return rows

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
            raise StageError(f"the model {self.name} answers with NaN: take dtype float32, or another model")
        return found


def has_gpu() -> bool:
    """Return whether there is a GPU; the driver's library says it where it can, and CUDA is not taken into use."""
    import torch

    return bool(torch.cuda.device_count())


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
    import torch

    # MKL looks at the processor in its first call. Of two threads that make it at once, one may compute that call as on
    # another processor, and round otherwise: in 2 of 300 processes that asked a small GPT-2 for two rows.
    torch.exp(torch.zeros(1))
    return ThreadPoolExecutor(count, "longcrawl-model")
