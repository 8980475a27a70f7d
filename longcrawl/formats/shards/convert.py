"""Converts token shards to another format, keeps tokens and documents, and names everything that is lost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from longcrawl.core.display import counted
from longcrawl.core.outputs import RESULTS
from longcrawl.errors import FormatError, as_lines, check_word, warn_user
from longcrawl.formats.shards.base import Reading, ShardFormat
from longcrawl.formats.shards.shard import (
    OVERLAP,
    Documents,
    local_path,
    named_columns,
    shard_folder,
    stem_of,
)
from longcrawl.formats.shards.spec import FORMATS, find_format, shards_in
from longcrawl.formats.shards.writing import (
    NOTE,
    Loss,
    OnLoss,
    Terminate,
    TokenType,
    WrittenShard,
    check_overlaps,
    checksums_beside,
    documents_of,
    overlaps_masked,
    report_losses,
)
from longcrawl.io.files import check_target, writing
from longcrawl.io.structured import load_yaml
from longcrawl.tokens.loss_mask import LOSS_MASK

_ELSEWHERE = "choose another shard or folder to write"


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion: the written shards, the losses, and the facts that the target does not record."""

    target: str
    format: str
    shards: tuple[WrittenShard, ...]
    losses: tuple[str, ...]
    not_recorded: tuple[str, ...]
    kept: tuple[str, ...] = ()
    """Content that the target has no field for, and stores in another way."""

    def __str__(self) -> str:
        documents, tokens = (sum(getattr(each, name) for each in self.shards) for name in ("documents", "tokens"))
        shards, amounts = counted(len(self.shards), "shard"), (counted(documents, "document"), counted(tokens, "token"))
        lines = [f"{self.target}: {shards} of {self.format}, {', '.join(amounts)}"]
        lines += [f"  kept: {each}" for each in self.kept]
        lines += [f"  lost: {loss}" for loss in self.losses]
        if self.not_recorded:
            lines.append(f"  {self.format} does not record {', '.join(self.not_recorded)}: name them when you open it")
        return as_lines(lines)

    __repr__ = __str__


def convert(
    source: str | Path,
    target: str | Path,
    to: str | None = None,
    *,
    source_format: str | None = None,
    on_loss: OnLoss = "error",
    end_of_text: int | None = None,
    terminate: Terminate = "never",
    vocabulary_size: int | None = None,
    dtype: TokenType = "auto",
    reading: Mapping[str, Any] | None = None,
    writing: Mapping[str, Any] | None = None,
) -> Conversion:
    """Convert token shards from one format to another, a few million tokens at a time.

    For datatrove, which cannot store overlaps, they become a loss mask: overlapping tokens have no loss either way.

    Args:
        source: a shard, or a folder of shards, including those in its subfolders.
        target: the shard to write or, for a folder, the folder in which each shard keeps its name with a new suffix.
        to: the format's name: "datatrove", "gpt-simple", "levanter", "litdata", "mds", "megatron", "nanogpt",
            "olmo-core" or "token-parquet". None takes the format from the suffix of ``target``, if only one format has
            it.
        source_format: the format of ``source``, if it is not clear from the files.
        on_loss: treatment of content that the target cannot store: "error" writes nothing of that shard, "warn" writes
            the rest. Either names the content.
        end_of_text: the id that separates documents, or None for the id that a longcrawl output records. It finds
            documents in a flat file, and ``terminate`` adds it.
        terminate: whether it is added to documents if it is "missing", "always", or "never".
        vocabulary_size: exclusive upper bound of ids, or None for the one that a longcrawl output records; an id that
            reaches it is an error.
        dtype: the stored type of a token; "auto" follows from the vocabulary, or keeps the type if that is unknown.
        reading: further settings of the source's ``open``, such as ``{"token_size": 4}``.
        writing: further settings of the target's ``write``, such as ``{"header": "llm.c"}``.

    Raises:
        FormatError: no such format or setting, nothing to convert, a file of ``target`` exists, the output around the
            source records another ``end_of_text``, or something would be lost under "error".
        CorruptionError: a shard contradicts itself.
    """
    check_word("on_loss", on_loss, OnLoss, FormatError)
    pairs, into = _pairs(local_path(source), local_path(target), source_format, to)
    facts = {"end_of_text": end_of_text, "vocabulary_size": vocabulary_size}
    around = {one: RESULTS.around(find_format(one, source_format).shard_files(one)[0]) for one, _ in pairs}
    given = {one: _known(_facts(each, **facts)) | dict(reading or {}) for one, each in around.items()}
    policy = NOTE if on_loss == "warn" else on_loss
    settings = into.settings("write", {**(writing or {}), "terminate": terminate, "dtype": dtype, "on_loss": policy})
    # All shards get a mask, or none does, since feeds need one in all shards or in none.
    takes_masks = {OVERLAP, LOSS_MASK} - into.holds == {OVERLAP} and any(
        find_format(one, source_format).has_overlaps(one, given[one]) for one, _ in pairs
    )
    overlapping = 0

    def masked(documents: Iterable[pa.Table | Documents]) -> Iterator[Documents]:
        nonlocal overlapping
        first = 0
        for each in documents:
            batch = each if isinstance(each, Documents) else documents_of(each)
            check_overlaps(batch, first)
            first += len(batch.lengths)
            overlapping += 0 if batch.overlaps is None else int(np.count_nonzero(batch.overlaps))
            made = overlaps_masked(batch)
            yield replace(made, loss_mask=np.ones(len(batch.tokens), bool)) if made.loss_mask is None else made

    shards: list[WrittenShard] = []
    not_recorded: dict[str, None] = {}
    apart: dict[Path, None] = {}
    for one, other in pairs:
        read = find_format(one, source_format).reading(one, given[one])
        read = replace(read, documents=masked(read.documents)) if takes_masks else read
        shards.append(_write(read, into, other, settings))
        known = (f"{name} {value}" for name, value in _known(read.facts).items() if name not in into.records)
        not_recorded |= dict.fromkeys(known)
        output = around[one]
        if output and "id" not in read.columns and any(name.startswith("documents/") for name in output[1]["files"]):
            apart[output[0]] = None
    for folder in dict.fromkeys(shard_folder(other, into.suffix) for _, other in pairs):
        into.write_index(folder)
    losses = _summed(loss for shard in shards for loss in shard.losses)
    for loss in losses:
        warn_user(f"{into.name} cannot hold {loss}")
    for folder in apart if into.columns(["id"]) else ():
        warn_user(
            f"the ids of documents are in {folder / 'documents'} and were not converted: join them by shard and entry"
        )
    kept = (f"the overlaps of {overlapping:,} documents, by the loss mask",) if overlapping else ()
    return Conversion(str(target), into.name, tuple(shards), tuple(losses), tuple(not_recorded), kept)


def shard_settings(overrides: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Parse overrides from the command line, with YAML values, to ``reading`` and ``writing`` of :func:`convert`.

    >>> shard_settings(["reading.token_size=4", "writing.header=llm.c"])
    {'reading': {'token_size': 4}, 'writing': {'header': 'llm.c'}}
    """
    given: dict[str, dict[str, Any]] = {"reading": {}, "writing": {}}
    for override in overrides:
        path, equals, text = override.partition("=")
        side, _, name = path.partition(".")
        if side not in given or not name or not equals:
            raise FormatError(
                f"--set needs reading.NAME=VALUE or writing.NAME=VALUE, such as writing.header=llm.c, got {override!r}"
            )
        try:
            given[side][name] = load_yaml(text)
        except yaml.YAMLError as wrong:
            raise FormatError(f"--set {path} has a value that is not YAML: {text!r}; put it in quotes") from wrong
    return given


def _summed(losses: Iterable[Loss]) -> list[str]:
    counts: dict[str, int | None] = {}
    for loss in losses:
        known = counts.get(loss.what)
        counts[loss.what] = loss.count if known is None or loss.count is None else known + loss.count
    return [str(Loss(what, count)) for what, count in counts.items()]


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}


def _facts(
    around: tuple[Path, Mapping[str, Any]] | None, end_of_text: int | None, vocabulary_size: int | None
) -> dict[str, int | None]:
    """Return the facts about a shard, as given or recorded by the output around it; a vocabulary may be given wider."""
    folder, described = around or (None, {})
    recorded: int | None = described.get("end_of_text")
    if None not in (recorded, end_of_text) and recorded != end_of_text:
        raise FormatError(
            f"end_of_text is {end_of_text} and {folder} records {recorded}: remove end_of_text (--end-of-text)"
        )
    size = described.get("vocabulary_size") if vocabulary_size is None else vocabulary_size
    return {"end_of_text": end_of_text if recorded is None else recorded, "vocabulary_size": size}


def _write(read: Reading, into: type[ShardFormat], target: Path, settings: Mapping[str, Any]) -> WrittenShard:
    stored = into.columns(read.columns)
    lost = (*read.left_out, *named_columns([name for name in read.columns if name not in stored]))
    losses = report_losses([Loss(each) for each in lost], settings["on_loss"], into.name)
    facts = {name: value for name, value in _known(read.facts).items() if name in into.records or name != "tokenizer"}
    with writing(target, FormatError, _ELSEWHERE):
        written = into.write(read.documents, target, **{**facts, **settings})
    return replace(written, losses=(*losses, *written.losses))


def _pairs(
    source: Path, target: Path, source_format: str | None, to: str | None
) -> tuple[list[tuple[Path, Path]], type[ShardFormat]]:
    """Pair each shard with its target, and return the target format; raise FormatError if a file would be replaced."""
    fitting = [name for name in FORMATS.loaded() if str(target).endswith(FORMATS[name].suffix)]
    if to is None and len(fitting) != 1:
        raise FormatError(
            f"the format of {target} is not clear from its suffix: add --to FORMAT, with one of "
            f"{', '.join(fitting or FORMATS.loaded())}"
        )
    into = find_format(target, to or fitting[0])
    pairs = [(source, target)]
    if source.is_dir():
        found = shards_in(source, source_format, None)
        stems = [stem_of(file, find_format(file, source_format).suffix) for file in found]
        targets = [
            stem_of(target, into.suffix) if stem == str(source) else target / Path(stem).relative_to(source)
            for stem in stems
        ]
        pairs = [(file, Path(f"{other}{into.suffix}")) for file, other in zip(found, targets, strict=True)]
    for one, other in pairs:
        own = {file.resolve() for file in find_format(one, source_format).shard_files(one)}
        written = into.shard_files(other)
        if own & {file.resolve() for file in written}:
            raise FormatError(f"{other} would overwrite the shard being read: choose another name or folder")
        for file in (*written, checksums_beside(written[0])):
            with writing(file, FormatError, _ELSEWHERE):
                check_target(file, FormatError, f"remove it, or {_ELSEWHERE}")
        folder = shard_folder(other, into.suffix)
        index = folder / into.index if into.index else None
        if index and index.exists() and index.read_text("utf-8") != into.list_shards(into.shards_of(folder)):
            raise FormatError(f"{index} lists other files than the shards of {into.name} beside it: {_ELSEWHERE}")
    return pairs, into
