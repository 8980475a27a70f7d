"""Base class of the formats of token shards: writing, opening and verifying the files of a shard.

Each format is a subclass of :class:`ShardFormat`, in a module whose docstring is its specification. Formats share the
settings, checks, checksums, losses, messages of verification and pickling that are here.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, dataclass_transform

import numpy as np
import numpy.typing as npt

from longcrawl.core import kinds
from longcrawl.core.registry import Registry
from longcrawl.errors import CorruptionError, FormatError, check_word
from longcrawl.formats.shards import writing
from longcrawl.formats.shards.shard import BLOCK, LOSS_SUFFIX, TokenShard, check_ids, local_path, stem_of
from longcrawl.io.block_checksums import BlockChecksums, read_checksums
from longcrawl.io.files import write_text
from longcrawl.io.structured import Verification

Check = Literal["everything", "ends", "sizes"]
"""Extent of the checks on opening: only sizes and headers, also the ends of documents, or also every token's id."""


@dataclass(frozen=True)
class Opening:
    """A shard to decode: its files, tokens first, their checksums if any, and the facts that the caller gave."""

    files: tuple[Path, ...]
    end_of_text: int | None
    vocabulary_size: int | None
    checksums: BlockChecksums | None
    stem: str
    """Path of the shard without its suffix, with which the paths of all its files begin."""

    def compare(self, number: int, stop: int | None = None) -> None:
        """Raise CorruptionError if a block of the file ``number``, up to byte ``stop`` or the end, was changed."""
        blocks = self.checksums and self.checksums.files.get(str(self.files[number]).removeprefix(self.stem))
        if blocks:
            blocks.check(0, stop)


@dataclass(frozen=True, eq=False)
class Parsed:
    """Content of a shard as decoded from its files, with checks that run on demand; see also :class:`TokenShard`.

    ``ends`` is None if the files do not record them, and ``first_byte`` if the file encodes tokens. ``id_limit`` is an
    exclusive upper bound of the ids that the file's own type holds, if it is not that of ``tokens``: int32 is mapped as
    uint32. ``settings`` are to pass when the shard is opened again. Every check looks for problems ``of_sizes``, and
    all but "sizes" ``of_ends``.
    """

    tokens: npt.NDArray[Any]
    ends: npt.NDArray[np.int64] | None
    overlaps: npt.NDArray[Any] | None = None
    loss_mask: npt.NDArray[np.bool_] | None = None
    first_byte: int | None = 0
    id_limit: int | None = None
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    tokenizer: str | None = None
    left_out: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    of_sizes: Iterable[str] = ()
    of_ends: Iterable[str] = ()


@dataclass(frozen=True)
class Reading:
    """A shard to read once, from its first document to its last, in batches."""

    documents: Iterator[writing.DocumentBatch]
    left_out: tuple[str, ...]
    """Descriptions of other content of the files."""
    facts: Mapping[str, Any]
    """End of text, vocabulary and tokenizer; None if unknown."""
    columns: tuple[str, ...] = ()
    """Names of the further columns of the documents."""


class ShardFormat(ABC):
    """A format of token shards; the class itself is used, as formats have no settings of their own.

    The keyword arguments of a format's :meth:`encode` are additional settings of its :meth:`write`, and those of its
    :meth:`decode` are additional settings of its :meth:`open` and :meth:`verify`. A format ``holds`` those of
    ``overlap`` and ``loss_mask`` that it can store, and ``records`` those of ``end_of_text``,
    ``vocabulary_size`` and ``tokenizer`` that its files record.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    """End of the path of a file of tokens; the paths of all files of a shard begin with the rest of that path."""
    index: ClassVar[str] = ""
    """Name of the file in a folder of shards that lists them for the peer's reader; "" if it needs none."""
    heldout: ClassVar[str] = "val"
    """Split of documents held out, named as the peer expects."""
    holds: ClassVar[frozenset[str]] = frozenset()
    records: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def shard_files(cls, path: "str | Path") -> tuple[Path, ...]:
        """Return the files of a shard, tokens first and the index last; raise FormatError for a wrong suffix."""
        file = local_path(path)
        if not str(file).endswith(cls.suffix):
            raise FormatError(f"{path} is not a shard of {cls.name}: its name must end in {cls.suffix}")
        return (file,)

    @classmethod
    def is_at(cls, path: Path) -> bool:
        """Return whether the shard at a path is of this format, judged by its suffix or its first bytes."""
        return str(path).endswith(cls.suffix)

    @classmethod
    def list_shards(cls, shards: Sequence[Path]) -> str:  # noqa: ARG003  # most formats have no such file
        """Return the content of :attr:`index` for the shards of a folder; their headers are read."""
        return ""

    @classmethod
    def write_index(cls, folder: "str | Path") -> list[Path]:
        """Write the file that lists all shards of a folder, if the format has one, and return its path.

        Runs and :func:`longcrawl.convert` do it. Call it after :meth:`write`, once all shards of a folder are written.
        """
        if not cls.index:
            return []
        file = local_path(folder) / cls.index
        write_text(file, cls.list_shards(cls.shards_of(file.parent)))
        return [file]

    @classmethod
    def shards_of(cls, folder: Path) -> list[Path]:
        """Return the shards of the format in a folder, but not in its subfolders, sorted."""
        return sorted(folder.glob(f"*{cls.suffix}"))

    @classmethod
    def columns(cls, names: Iterable[str]) -> list[str]:  # noqa: ARG003  # most formats store no further column
        """Return those of the names of further columns of documents that the format stores."""
        return []

    @classmethod
    @abstractmethod
    def encode(cls, stream: writing.DocumentStream, files: writing.NewFiles, *args: Any, **settings: Any) -> None:
        """Write all documents of a stream; raise FormatError for documents that cannot be stored."""

    @classmethod
    @abstractmethod
    def decode(cls, opening: Opening, *args: Any, **settings: Any) -> Parsed:
        """Read the headers, and memory-map the arrays; errors are those of :meth:`open`."""

    @classmethod
    def write(
        cls,
        documents: Iterable[writing.DocumentBatch] | writing.DocumentBatch,
        path: "str | Path",
        *,
        dtype: writing.TokenType = "auto",
        end_of_text: int | None = None,
        terminate: writing.Terminate | None = None,
        vocabulary_size: int | None = None,
        on_loss: writing.OnLoss = "error",
        **settings: Any,
    ) -> writing.WrittenShard:
        """Write a shard, with one table of documents in memory at a time.

        Args:
            documents: tables, or one, with a column ``tokens`` and optionally ``overlap`` and ``loss_mask``.
            path: of the file of tokens.
            dtype: the stored type of a token; "auto" follows from ``vocabulary_size`` or else from the first table.
            end_of_text: the id that documents end with; None leaves documents as they are.
            terminate: whether it is added if it is "missing", "always", or "never"; None is "missing" if
                ``end_of_text`` is given.
            vocabulary_size: exclusive upper bound of ids; an id that reaches it is an error.
            on_loss: treatment of overlaps, a loss mask or anything else that the format cannot store.
            settings: of the format, see its :meth:`encode`.

        Raises:
            FormatError: tokens cannot be stored, something would be lost, or there is no such setting; no file is
                changed.
            StageError: there is no column ``tokens``, or a loss mask does not fit it.
        """
        own = cls.settings("write", settings)
        files = cls.shard_files(path)
        stream = writing.DocumentStream(documents, dtype, end_of_text, terminate, vocabulary_size, cls.holds)
        with writing.whole_shard(*files, stem=stem_of(files[0], cls.suffix)) as new:
            cls.encode(stream, new, **own)
            losses = writing.report_losses(stream.losses(), on_loss, cls.name)
        there = tuple(str(each) for each in (*files, writing.checksums_beside(files[0])) if each.exists())
        return writing.WrittenShard(str(files[0]), there, stream.documents, stream.tokens, losses, new.sha256())

    @classmethod
    def open(
        cls,
        path: "str | Path",
        *,
        end_of_text: int | None = None,
        vocabulary_size: int | None = None,
        check: Check = "everything",
        **settings: Any,
    ) -> TokenShard:
        """Open a shard.

        Args:
            path: of the file of tokens.
            end_of_text: the id that ends documents, used to find their ends if no file records them.
            vocabulary_size: exclusive upper bound of ids, which the check "everything" compares with every id.
            check: extent of the checks: "sizes", also the "ends" of documents, or "everything".
            settings: of the format, see its :meth:`decode`.

        Raises:
            FormatError: there is no such file or setting, or the shard cannot be read without further settings.
            CorruptionError: the files contradict each other or the settings; the message names file and byte.
        """
        shard, problems = cls._load(path, end_of_text, vocabulary_size, check, settings)
        for problem in problems:
            raise CorruptionError(problem)
        return shard

    @classmethod
    def verify(
        cls, path: "str | Path", *, end_of_text: int | None = None, vocabulary_size: int | None = None, **settings: Any
    ) -> Verification:
        """Check everything, and list all problems; arguments and FormatErrors are those of :meth:`open`."""
        cls.settings("verify", settings)
        try:
            shard, found = cls._load(path, end_of_text, vocabulary_size, "everything", settings)
            problems = tuple(found)
        except CorruptionError as broken:
            return Verification(str(path), "sizes and headers looked at", (str(broken),))
        ends = shard.document_ends
        documents = "an unknown number of" if ends is None else f"{len(ends):,}"
        ids = "ids not bounded, as no vocabulary_size was given"
        if shard.vocabulary_size is not None:
            ids = f"every id compared with a vocabulary of {shard.vocabulary_size:,}"
        found_there = f"{cls.name}, {documents} documents, {len(shard.tokens):,} tokens, {shard.tokens.dtype}; {ids}"
        return Verification(str(path), found_there, problems)

    @classmethod
    def reading(cls, path: "str | Path", settings: Mapping[str, Any]) -> Reading:
        """Read a shard from its first document to its last, with the settings and errors of :meth:`open`."""
        shard = cls.open(path, **cls.settings("open", settings))
        facts = {name: getattr(shard, name) for name in ("end_of_text", "vocabulary_size", "tokenizer")}
        return Reading(shard.blocks(), shard.left_out, facts)

    @classmethod
    def has_overlaps(cls, path: "str | Path", settings: Mapping[str, Any]) -> bool:
        """Return whether any document of a shard overlaps with the one before it, with errors as in :meth:`open`."""
        shard = cls.open(path, **{**cls.settings("open", settings), "check": "sizes"})
        return shard.overlaps is not None and bool(shard.overlaps.any())

    @classmethod
    def settings(cls, verb: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Check the settings of a method, such as ``open``, and return them; raise FormatError for unknown ones."""
        functions = getattr(cls, verb), cls.encode if verb == "write" else cls.decode
        parameters = (each for function in functions for each in inspect.signature(function).parameters.values())
        known = sorted(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
        for name in settings:
            if name not in known:
                raise FormatError(f"{cls.name}.{verb} has no setting {name!r}; known: {', '.join(known)}")
        return dict(settings)

    @classmethod
    def _load(
        cls,
        path: "str | Path",
        end_of_text: int | None,
        vocabulary_size: int | None,
        check: Check,
        settings: Mapping[str, Any],
    ) -> tuple[TokenShard, Iterator[str]]:
        """Return a shard whose sizes and headers are valid, and an iterator that finds problems in its content."""
        own = cls.settings("open", settings)
        check_word("check", check, Check, FormatError)
        check_ids(end_of_text, vocabulary_size)
        files = cls.shard_files(path)
        stem = stem_of(files[0], cls.suffix)
        checksums = _first_checksums(files, stem)
        parsed = cls.decode(Opening(files, end_of_text, vocabulary_size, checksums, stem), **own)
        known = {
            "end_of_text": end_of_text if parsed.end_of_text is None else parsed.end_of_text,
            "vocabulary_size": vocabulary_size if parsed.vocabulary_size is None else parsed.vocabulary_size,
        }
        shard = TokenShard(
            str(files[0]),
            cls.name,
            parsed.tokens,
            parsed.ends,
            overlaps=parsed.overlaps,
            loss_mask=parsed.loss_mask,
            **known,
            tokenizer=parsed.tokenizer,
            left_out=parsed.left_out,
            opened_by=(cls.open, {**own, **known, **parsed.settings}),
            checksums=checksums,
            first_byte=parsed.first_byte or 0,
            suffix=cls.suffix,
        )
        return shard, _problems(shard, parsed, check)


FORMATS: Registry[ShardFormat] = Registry("shard_format", ShardFormat, FormatError, kinds.SHARD_FORMATS)
"""All formats of token shards by name."""


@dataclass_transform(frozen_default=True)
def shard_format(name: str) -> Any:
    """Register a class as the format of token shards called ``name``."""
    return partial(FORMATS.add, name)


def _problems(shard: TokenShard, parsed: Parsed, check: Check) -> Iterator[str]:
    try:
        if check == "ends":
            shard.compare_index()
        elif check == "everything" and shard.checksums is not None:
            shard.checksums.check()
    except CorruptionError as changed:
        yield str(changed)
    yield from parsed.of_sizes
    if check != "sizes":
        yield from parsed.of_ends
    if check == "everything":
        yield from _id_problems(shard, parsed)
        yield from _mask_problems(shard)


def _first_checksums(files: Sequence[Path], stem: str) -> BlockChecksums | None:
    """Read a shard's checksums, and check the first and last block of each file except that of tokens.

    These blocks have the data that opening a shard relies on: headers, and the end of the last document.
    """
    checksums = read_checksums(files, stem)
    for suffix, blocks in checksums.files.items() if checksums else ():
        if blocks.size and suffix != str(files[0]).removeprefix(stem):
            blocks.check(0, 1)
            blocks.check(blocks.size - 1, blocks.size)
    return checksums


def _id_problems(shard: TokenShard, parsed: Parsed) -> Iterator[str]:
    tokens, first_byte = shard.tokens, parsed.first_byte
    limits = [limit for limit in (shard.vocabulary_size, parsed.id_limit) if limit is not None]
    if not limits:
        return
    most = min(limits)
    for first in range(0, len(tokens), BLOCK):
        block = tokens[first : first + BLOCK]
        if int(block.max()) >= most:
            token = first + int(np.argmax(block >= most))
            byte = f"at byte {(first_byte or 0) + token * tokens.itemsize:,}"
            place = byte if first_byte is not None else f"in row {int(np.searchsorted(shard.ends, token, 'right')):,}"
            found = int(tokens[token])
            if parsed.id_limit is not None and found >= parsed.id_limit:
                yield (
                    f"{shard.path} has id {found - 2 * parsed.id_limit:,} {place}, and ids begin with 0: fix the "
                    "tokens, and write it again"
                )
                return
            yield (
                f"{shard.path} has id {found:,} {place}, the vocabulary has {most:,}: check "
                f"vocabulary_size, and that a token has {tokens.itemsize} bytes"
            )
            return


def _mask_problems(shard: TokenShard) -> Iterator[str]:
    file = Path(f"{shard.path}{LOSS_SUFFIX}")
    flags = np.empty(0, np.uint8) if shard.loss_mask is None else shard.loss_mask.view(np.uint8)
    for first in range(0, len(flags) if file.is_file() else 0, BLOCK):
        wrong = np.flatnonzero(flags[first : first + BLOCK] > 1)
        if len(wrong):
            byte = first + int(wrong[0])
            yield f"{file} has {int(flags[byte])} at byte {byte:,}, where 0 or 1 must be: write the shard again"
            return
