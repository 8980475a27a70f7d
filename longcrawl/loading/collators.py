"""Collators that convert batches of :class:`longcrawl.loading.Packed` or :meth:`longcrawl.tokens.Packing.fill`.

Each function takes a batch, or a list of batches or of rows such as ``torch.utils.data.DataLoader`` passes to its
``collate_fn``. In rows, each 0 in ``position_ids`` begins a document, and the last of several pieces is taken for
padding if none of its tokens has a label. :func:`for_transformers` and :func:`for_context_parallel` also take windows
and rectangles.

Models of `transformers` keep documents apart only if ``position_ids`` restart at 0, there is no ``attention_mask``, and
there is no cache of keys and values. A mask of ones, or ``use_cache=True``, which is a model's default, silently lets
documents attend to each other. So these batches have no mask, and ``"use_cache": False``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.errors import LoaderError, check_word, quoted

Batch = dict[str, Any]
Batches = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Tensors = Literal["torch", "numpy"]
Padding = Literal["drop", "keep"]
Layout = Literal["zigzag", "contiguous"]
"""Division of a row among the ranks of a context-parallel group."""

IGNORED = -100
"""Label of a token that is not a target."""
ARRAYS = ("input_ids", "labels", "doc_ids", "n_tokens")

ROW = ("input_ids", "labels", "position_ids")
"""Columns of a row that a feed passes to a DataLoader; rows without documents have no ``position_ids``."""


def for_transformers(batches: Batches, tensors: Tensors = "torch") -> dict[str, Any]:
    """Return ``input_ids``, ``labels`` and ``position_ids`` [rows, length] for eager, sdpa or flex attention.

    ``model(**batch)`` trains on each document as if it were alone. Labels are not shifted, because models do that: each
    is the token at its own position, or -100 for a token without loss.

    Windows keep all ``seq_len + 1`` tokens; without positions they have no ``position_ids``. From a rectangle, only
    ``text`` is used. All its targets are predicted but the last of each row, which is not in ``text``.
    """
    return _as_tensors(_inputs(batches), tensors) | {"use_cache": False}


def for_flash_attention(batches: Batches, padding: Padding = "drop", tensors: Tensors = "torch") -> dict[str, Any]:
    """Return all rows as one, [1, tokens], with the document boundaries in FlashAttention's form.

    ``cu_seq_lens_q`` and ``cu_seq_lens_k`` are int32 [pieces + 1], ``max_length_q`` and ``max_length_k`` int. With
    padding="drop" the number of tokens differs from batch to batch; "keep" makes each row's padding a piece.
    """
    check_word("padding", padding, Padding, LoaderError)
    batch = _joined(batches)
    kept = np.ones(batch["input_ids"].shape, np.bool_) if padding == "keep" else ~_padded(batch)
    lengths = np.concatenate([_pieces(batch, row, padding) for row in range(len(kept))])
    borders = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    made = {name: batch[name][kept][None] for name in ("input_ids", "labels")}
    made |= {"position_ids": _reset_positions(batch)[kept][None], "cu_seq_lens_q": borders, "cu_seq_lens_k": borders}
    longest = int(lengths.max(initial=0))
    return _as_tensors(made, tensors) | {"max_length_q": longest, "max_length_k": longest, "use_cache": False}


def for_flex_attention(batches: Batches, tensors: Tensors = "torch") -> dict[str, Any]:
    """Return ``input_ids``, ``labels``, ``position_ids`` and ``document_ids`` [rows, length] for FlexAttention.

    ``document_ids`` number the pieces of each row; padding has a number of its own. See :func:`document_mask`.
    """
    batch = _joined(batches)
    made = {name: batch[name] for name in ("input_ids", "labels")}
    made |= {"position_ids": _reset_positions(batch), "document_ids": batch["doc_ids"]}
    return _as_tensors(made, tensors)


def document_mask(document_ids: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """Return the ``mask_mod`` of causal attention within documents, for ``create_block_mask``.

    Args:
        document_ids: tensor [rows, length].
    """

    def within(row: Any, head: Any, query: Any, key: Any) -> Any:  # noqa: ARG001  # FlexAttention passes four
        return (query >= key) & (document_ids[row, query] == document_ids[row, key])

    return within


def for_trl(batches: Batches) -> list[dict[str, list[int]]]:
    """Return examples for TRL's collator of packed data: ``input_ids``, ``labels`` and ``seq_lengths``.

    ``DataCollatorForLanguageModeling(pad_token_id, padding_free=True)`` derives positions from ``seq_lengths``, which
    sum to the number of tokens of the example. Padding is dropped.
    """
    batch = _joined(batches)
    made = []
    for row, padded in enumerate(_padded(batch)):
        lengths = _pieces(batch, row, "drop")
        if len(lengths):
            columns = {name: batch[name][row][~padded].tolist() for name in ("input_ids", "labels")}
            made.append(columns | {"seq_lengths": lengths.tolist()})
    return made


def for_torchtitan(batches: Batches, tensors: Tensors = "torch") -> tuple[dict[str, Any], Any]:
    """Return torchtitan's pair: ``{"input", "positions"}`` and labels, each [rows, length].

    Labels are shifted: each is the next token, or -100 if that token is padding or in another document.
    """
    batch = _joined(batches)
    labels = _next_labels(batch["labels"])
    made = {"input": batch["input_ids"], "positions": _reset_positions(batch), "labels": labels}
    inputs = _as_tensors(made, tensors)
    return inputs, inputs.pop("labels")


def for_context_parallel(
    batches: Batches, rank: int, size: int, layout: Layout = "zigzag", tensors: Tensors = "torch"
) -> dict[str, Any]:
    """Return the columns of every row that belong to one rank of a context-parallel group.

    ``input_ids``, ``labels``, ``position_ids`` and ``document_ids`` are int64 [rows, length / size], all cut from whole
    rows in the same way; ``size=1`` returns whole rows. A label is the next token of the whole row, even if another
    rank has that token, or -100 without loss. Positions and ids also refer to the whole row: positions restart in each
    document that the feed keeps apart, and ``document_ids`` count these documents. A window has ``seq_len`` columns,
    because its last token is only a label.

    >>> batch = {"text": np.arange(8)[None], "targets": np.arange(1, 9)[None]}
    >>> part = for_context_parallel(batch, rank=0, size=2, tensors="numpy")
    >>> part["input_ids"].tolist(), part["labels"].tolist()
    ([[0, 1, 6, 7]], [[1, 2, 7, 8]])

    Args:
        batches: a batch, batches or rows of any feed, whole and the same on all ranks of the group: open the feed with
            ``rank`` and ``world_size`` of the data-parallel group.
        rank: index of this process in the context-parallel group.
        size: number of ranks in that group.
        layout: see :func:`context_columns`.
        tensors: "torch" or "numpy".

    Raises:
        LoaderError: the rows do not divide into equal chunks, or an argument has a wrong value.
    """
    made = _shifted(batches)
    rows, length = made["input_ids"].shape
    columns = context_columns(length, rank, size, layout)
    positions = made.setdefault("position_ids", np.tile(np.arange(length), (rows, 1)))
    # Every document, and the padding, begins at position 0.
    made["document_ids"] = np.cumsum(positions == 0, axis=1) - 1
    return _as_tensors({name: values[:, columns] for name, values in made.items()}, tensors)


def context_columns(length: int, rank: int, size: int, layout: Layout = "zigzag") -> npt.NDArray[np.int64]:
    """Return the columns of a row that one rank of a context-parallel group has, in its order: int64 [length / size].

    "zigzag" cuts a row into ``2 * size`` chunks, of which rank r has chunks r and ``2 * size - 1 - r``. Causal
    attention then costs all ranks the same. It is the order of Megatron Core, of torch's head-tail load balancer, and
    of ring-flash-attention's ``zigzag_ring_flash_attn_func``. "contiguous" gives rank r chunk r of ``size``.

    The columns also put the results of all ranks together:

    >>> parts = [[[0, 1, 6, 7]], [[2, 3, 4, 5]]]
    >>> whole = np.zeros((1, 8), np.int64)
    >>> for rank in range(2):
    ...     whole[:, context_columns(8, rank, 2)] = parts[rank]
    >>> whole.tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7]]

    Raises:
        LoaderError: the row does not divide into equal chunks, or an argument has a wrong value.
    """
    check_word("layout", layout, Layout, LoaderError)
    numbers: dict[str, Any] = {"rank": rank, "size": size}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise LoaderError(f"{name} must be a whole number, got {quoted(number)}")
    if not 0 <= rank < size:
        raise LoaderError(f"rank {rank} of {size} context-parallel ranks does not exist: count from 0 to size - 1")
    chunks = 2 * size if layout == "zigzag" else size
    if length % chunks:
        nearest = max(length // chunks, 1) * chunks
        raise LoaderError(
            f"rows of {length:,} tokens do not divide into {chunks} equal chunks, as {layout!r} needs for {size} "
            f"context-parallel ranks: set max_length, seq_len, context_length or capacities to multiples of {chunks}, "
            f"such as {nearest:,}"
        )
    own = [rank, chunks - 1 - rank] if layout == "zigzag" else [rank]
    return np.arange(length).reshape(chunks, -1)[own].ravel()


def _inputs(batches: Batches) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that a model of transformers takes, from a batch of any feed."""
    parts = _as_list(batches)
    if parts and all(_is_row(part) for part in parts):
        return {name: np.stack([np.asarray(part[name]) for part in parts]) for name in ROW if name in parts[0]}
    if parts and all("targets" in part for part in parts):
        batch = _stacked(parts)
        mask = batch["loss_mask"][:, :-1] if "loss_mask" in batch else None
        return _unshifted(batch["text"], mask, batch.get("position_ids"))
    if parts and all(_lacks_labels(part) and np.ndim(part["input_ids"]) == 2 for part in parts):
        batch = _stacked(parts)
        mask = batch["loss_mask"][:, 1:] if "loss_mask" in batch else None
        return _unshifted(batch["input_ids"], mask, batch.get("positions"))
    batch = _joined(parts)
    return {name: batch[name] for name in ("input_ids", "labels")} | {"position_ids": _reset_positions(batch)}


def _shifted(batches: Batches) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that a model takes, from a batch of any feed, but each label is the next token's."""
    parts = _as_list(batches)
    if parts and all("targets" in part for part in parts):
        batch = _stacked(parts)
        made = {"input_ids": batch["text"].astype(np.int64), "labels": batch["targets"].astype(np.int64)}
        if "loss_mask" in batch:
            made["labels"][~batch["loss_mask"]] = IGNORED
        return made | {name: batch[name] for name in ("position_ids",) if name in batch}
    made = _inputs(parts)
    made["labels"] = _next_labels(made["labels"])
    if parts and all(_lacks_labels(part) for part in parts):
        return {name: values[:, :-1] for name, values in made.items()}
    return made


def _next_labels(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    shifted = np.full_like(labels, IGNORED)
    shifted[:, :-1] = labels[:, 1:]
    return shifted


def _as_list(batches: Batches) -> list[Mapping[str, Any]]:
    parts = [batches] if isinstance(batches, Mapping) or not isinstance(batches, Iterable) else list(batches)
    for part in parts:
        if not isinstance(part, Mapping):
            raise LoaderError(f"this is not a batch: {quoted(part)}; pass a batch from iterating a feed")
    return parts


def _stacked(parts: Sequence[Mapping[str, Any]]) -> Batch:
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}


def _unshifted(ids: npt.NDArray[Any], mask: npt.NDArray[Any] | None, positions: Any) -> dict[str, npt.NDArray[Any]]:
    """Return inputs whose labels are the ids, except the first of each row; ``mask`` has the loss of all others."""
    made = {"input_ids": ids.astype(np.int64), "labels": ids.astype(np.int64)}
    made["labels"][:, 0] = IGNORED
    if mask is not None:
        made["labels"][:, 1:][~mask] = IGNORED
    return made if positions is None else made | {"position_ids": positions.astype(np.int64)}


def _joined(batches: Batches) -> Batch:
    parts = _as_list(batches)
    parts = [_as_batch(part) if _is_row(part) and "position_ids" in part else part for part in parts]
    lacking = [name for name in (*ARRAYS, "seq_lengths") if any(name not in part for part in parts)]
    if lacking or not parts:
        are_windows = parts and all(_lacks_labels(part) for part in parts)
        windows = "; windows need no collator, or for_transformers" if are_windows else ""
        raise LoaderError(
            f"this is not a batch of Packed: it lacks {', '.join(lacking) or 'rows'}; pass a batch from iterating "
            "a feed"
            f"{windows}"
        )
    batch: Batch = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in ARRAYS}
    batch["seq_lengths"] = [np.asarray(lengths) for part in parts for lengths in part["seq_lengths"]]
    return batch


def _lacks_labels(part: Mapping[str, Any]) -> bool:
    return "input_ids" in part and "labels" not in part


def _is_row(part: Mapping[str, Any]) -> bool:
    return all(name in part and np.ndim(part[name]) == 1 for name in ("input_ids", "labels"))


def _as_batch(row: Mapping[str, Any]) -> Batch:
    """Return a batch of one row; only its last piece may be padding, and only its labels show that."""
    starts = np.flatnonzero(np.asarray(row["position_ids"]) == 0)
    length = len(row["position_ids"])
    sizes = np.diff(starts, append=length)
    batch: Batch = {name: np.asarray(row[name])[None] for name in ("input_ids", "labels")}
    pieces = np.repeat(np.arange(len(sizes)), sizes)[None]
    last = int(sizes[-1]) if len(sizes) > 1 else 0  # without its only piece a row would have no tokens
    padding = 0 if np.any(batch["labels"][0, length - last :] != IGNORED) else last
    return batch | {"doc_ids": pieces, "n_tokens": np.array([length - padding]), "seq_lengths": [sizes]}


def _reset_positions(batch: Batch) -> npt.NDArray[np.int64]:
    sizes = np.concatenate(batch["seq_lengths"])
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(np.arange(len(starts)) - starts, np.int64).reshape(batch["input_ids"].shape)


def _padded(batch: Batch) -> npt.NDArray[np.bool_]:
    """Mark padding: bool [rows, length]."""
    length = batch["input_ids"].shape[1]
    return np.asarray(np.arange(length) >= batch["n_tokens"][:, None])


def _pieces(batch: Batch, row: int, padding: Padding) -> npt.NDArray[np.int64]:
    """Return the lengths of a row's pieces, with or without padding."""
    lengths = batch["seq_lengths"][row]
    kept = len(lengths) if padding == "keep" else np.searchsorted(np.cumsum(lengths), batch["n_tokens"][row], "right")
    return np.asarray(lengths[:kept], np.int64)


def _as_tensors(arrays: Mapping[str, npt.NDArray[Any]], tensors: Tensors) -> dict[str, Any]:
    check_word("tensors", tensors, Tensors, LoaderError)
    if tensors == "numpy":
        return dict(arrays)
    try:
        import torch
    except ImportError as missing:
        raise LoaderError('torch is not installed: pip install "longcrawl[torch]", or tensors="numpy"') from missing
    return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in arrays.items()}
