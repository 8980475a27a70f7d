"""Trace from a row of a training batch to its documents and their text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.core.outputs import RESULTS
from longcrawl.errors import FormatError, LoaderError, TokenizerError, as_lines, check_word, listed, printable
from longcrawl.formats.token_output import CHARACTERS, TOKENIZER, unescape
from longcrawl.io.structured import fields_set, load_json
from longcrawl.loading import ComposedBatches, Jsonl, Packed, Rectangle, Windows
from longcrawl.loading.feed import Feed, Origin
from longcrawl.publish.questions import find_result, holds_arrays
from longcrawl.publish.sizes import check_exists
from longcrawl.tokens.encoders import Encoder, load_encoder
from longcrawl.urls import is_url

FeedName = Literal["auto", "rectangle", "windows", "packed", "buckets", "jsonl"]
"""Feed that a trainer used; "auto" is the usual one of the format."""

KINDS: Mapping[str, Any] = {"rectangle": Rectangle, "packed": Packed, "buckets": ComposedBatches, "jsonl": Jsonl}
OF_BATCHES = ("batch_size", "rank", "world_size", "leftover")
"""Settings of batches of windows; all others are settings of the windows."""
JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
FOLDERS_ABOVE = 5
ARGUMENTS = ("data", "step", "row", "feed", "tokenizer")


@dataclass(frozen=True)
class TracedPiece:
    """A part of a row from a single document."""

    origin: Origin
    tokens: npt.NDArray[Any]
    text: str | None


@dataclass(frozen=True)
class Trace:
    """Rows of a batch with the documents in each; ``str`` is a readable form."""

    source: str
    step: int
    rank: int
    world_size: int
    rows: Mapping[int, tuple[TracedPiece, ...]]

    def __str__(self) -> str:
        of = f", rank {self.rank} of {self.world_size}" if self.world_size > 1 else ""
        lines = [as_lines([f"{self.source}  step {self.step:,}{of}"])]
        for row, pieces in self.rows.items():
            lines.append(f"row {row}: {'padding' if not pieces else ''}".rstrip(": "))
            for piece in pieces:
                shown = "(no tokenizer to decode it)" if piece.text is None else printable(piece.text)
                lines += [str(piece.origin), *(f"    {line}" for line in shown.splitlines())]
        return "\n".join(lines)

    __repr__ = __str__


def trace(
    data: Any,
    step: int,
    row: int | None = None,
    *,
    feed: FeedName = "auto",
    tokenizer: str | None = None,
    **settings: Any,
) -> Trace:
    """Return the documents in a training step, and their text.

    >>> print(lc.trace("quickstart", step=7, row=0, batch_size=2, context_length=512))  # doctest: +SKIP
    quickstart/rectangle  step 7
    row 0
    0-511  numpy/doc/…, tokens 1,024 to 1,535
    ...

    Args:
        data: a feed, or the path of a run, of one of its outputs, of token shards, or of JSON lines.
        step: index of the batch, counted from 0 and equal on all ranks.
        row: row of the batch, or None for all rows.
        feed: feed with which the trainer read the path.
        tokenizer: a file or a Hub id, or None for the one beside the tokens; JSON lines then use gpt2.
        settings: fields of the feed as the trainer set them, such as ``batch_size=8``. Windows need ``seq_len``.

    Raises:
        LoaderError: the step, row or setting does not exist.
    """
    check_word("feed", feed, FeedName, LoaderError)
    opened = data if isinstance(data, Feed) else _open(str(data), feed, tokenizer, settings)
    if isinstance(data, Jsonl) and tokenizer not in (None, data.tokenizer):
        raise LoaderError(f"the feed tokenizes with {data.tokenizer}, not {tokenizer}: remove tokenizer")
    position = opened.position_of(step)
    batch, origins = opened.read(position), opened.origins_at(position)
    tokens = batch["targets" if "targets" in batch else "input_ids"]
    if row is not None and not 0 <= row < len(tokens):
        raise LoaderError(f"the batch has rows 0 to {len(tokens) - 1}, not {row}: check --row and batch_size")
    named = None if tokenizer is None else load_encoder(tokenizer, engine="tokenizers")
    find_beside = cache(_beside)

    def piece(origin: Origin) -> TracedPiece:
        found = tokens[origin.row, origin.start : origin.stop]
        beside: Encoder | None
        if isinstance(opened, Jsonl):
            beside, escaped = load_encoder(opened.tokenizer, opened.end_of_text), False
        else:
            beside, escaped = find_beside(origin.stored_in.rpartition("/")[0])
        return TracedPiece(origin, found, _decode(found, named or beside, escaped=escaped))

    chosen = range(len(tokens)) if row is None else [row]
    rows = {number: tuple(piece(each) for each in origins if each.row == number) for number in chosen}
    return Trace(opened.source_name, step, opened.rank, opened.world_size, rows)


def feed_settings(overrides: Iterable[str]) -> dict[str, Any]:
    """Parse fields of a feed from the command line, with YAML values.

    >>> feed_settings(["batch_size=8", "split=heldout"])
    {'batch_size': 8, 'split': 'heldout'}
    """
    settings = fields_set(overrides, "a feed, such as batch_size=8", LoaderError)
    for name in settings.keys() & ARGUMENTS:
        raise LoaderError(f"--set takes FIELD=VALUE of a feed, and {name} is an argument: give --{name}")
    return settings


def _open(path: str, name: str, tokenizer: str | None, settings: Mapping[str, Any]) -> Feed:
    folder, chosen = path, name
    if name == "auto":
        folder, chosen = _usual(path)
    elif not is_url(path):
        found, output = find_result(Path(path))
        described = (output / found.description).exists()
        if described and name in ("rectangle", "buckets", "jsonl") and name != found.feed:
            raise LoaderError(f"the feed {name!r} does not read {path}, which is {found.name!r}: remove --feed")
        folder = str(output) if found.feed and described else path
    if chosen == "windows":
        own = {field.name for field in fields(Windows)}
        _check_names("windows", settings, own | set(OF_BATCHES))
        if "seq_len" not in settings:
            raise LoaderError("windows have a fixed length: set it as the trainer did, such as --set seq_len=2048")
        batching = {name: value for name, value in settings.items() if name in OF_BATCHES}
        return Windows(folder, **{name: settings[name] for name in settings.keys() - batching}).batches(**batching)
    if chosen == "jsonl" and tokenizer is not None:
        settings = {**settings, "tokenizer": tokenizer}
    kind = KINDS[chosen]
    _check_names(chosen, settings, {field.name for field in fields(kind) if field.init} - {"path"})
    if chosen == "buckets" and "tokens_per_step" not in settings:
        raise LoaderError("steps have a fixed number of tokens: set it as the trainer did, --set tokens_per_step=65536")
    made: Feed = kind(folder, **settings)
    return made


def _usual(path: str) -> tuple[str, str]:
    if path.endswith(JSON_LINES):
        return path, "jsonl"
    if is_url(path):
        return path, "rectangle"
    check_exists(Path(path))
    found, output = find_result(Path(path))
    described = (output / found.description).exists()
    if described and not found.feed:
        raise FormatError(f"no feed reads {path}, which is {found.name!r}: choose the data that the trainer read")
    # The path may be a split of a rectangle, which is an array.
    if described or holds_arrays(output):
        return str(output), found.feed
    return path, "packed"


def _check_names(name: str, settings: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise LoaderError(f"the feed {name!r} has no setting {unknown[0]!r}; known: {listed(sorted(known))}")


def _decode(tokens: npt.NDArray[Any], encoder: Encoder | None, *, escaped: bool) -> str | None:
    if encoder is None:
        return None
    try:
        text = encoder.decode(np.asarray(tokens[:CHARACTERS]))
    except TokenizerError as unknown:
        return f"({unknown})"
    try:
        return (unescape(text) if escaped else text)[:CHARACTERS]
    except ValueError:
        # A window may begin in the middle of an escape.
        return text[:CHARACTERS]


def _beside(folder: str) -> tuple[Encoder | None, bool]:
    """Return the tokenizer in a folder or above it, and whether its texts are escaped as JSON."""
    steps = folder.split("/")
    for count in range(len(steps), max(len(steps) - FOLDERS_ABOVE, 0), -1):
        here = "/".join(steps[:count])
        file = f"{here}/{TOKENIZER}"
        if not is_url(here) and Path(file).is_file():
            found = (Path(here, description) for description in RESULTS.described())
            described = [load_json(each.read_text("utf-8")) for each in found if each.is_file()]
            return load_encoder(file, engine="tokenizers"), any(each.get("json_escaped") for each in described)
    return None, False
