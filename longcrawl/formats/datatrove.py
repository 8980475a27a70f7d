"""datatrove's tokenised files: ``.ds``, with ``.ds.index``, ``.ds.loss`` and ``.ds.metadata`` beside it.

Specification
-------------
* ``NAME.ds``: tokens, little-endian uint16 or uint32, no header. Documents lie one after the other, with an end-of-text
  token at the end of each where the tokenizer added one.
* ``NAME.ds.index``: for each document the place after its last token, counted in tokens, little-endian uint64, no
  header and no leading 0.
* ``NAME.ds.loss``, if any: a byte for each token, 1 where its loss counts and 0 where not.
* ``NAME.ds.metadata``, if any: three lines of text, ``TOKENIZER|BYTES`` (bytes of a token), the number of tokens, and
  that number for people: ``gpt2|2``, ``225829``, ``226 kT``.

The files do not say the end-of-text id nor the size of the vocabulary. How wide a token is follows from the last entry
of the index and the size of ``.ds``; without an index, ``.metadata`` or the user must say it.

datatrove 0.10's own dataset gives wrong positions where an index has an empty document (two equal entries); its merger
fails on a tokenizer's name with ``|``, so such a name is refused here.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats._token_shard_checks import (
    Check,
    Opened,
    block_problems,
    check_ids,
    check_size,
    check_word,
    checked,
    end_problems,
    file_bytes,
    find_ends,
    first_checksums,
    id_problems,
    local_path,
    map_file,
    mask_problems,
    verification,
)
from longcrawl.formats._token_shard_writing import (
    DocumentBatch,
    DocumentStream,
    OnLoss,
    Terminate,
    TokenType,
    WrittenShard,
    report_losses,
    whole_shard,
    write_array,
    written_files,
)
from longcrawl.formats.token_shard import TokenShard
from longcrawl.results import Verification
from longcrawl.tokens.loss_mask import LOSS_MASK

__all__ = ["NAME", "SUFFIX", "open", "shard_files", "verify", "write"]

NAME = "datatrove"
SUFFIX = ".ds"
INDEX, LOSS, METADATA = ".index", ".loss", ".metadata"
UNKNOWN = "Unknown Tokenizer"
"""What datatrove calls a tokenizer whose name it was not told."""


def write(
    documents: Iterable[DocumentBatch] | DocumentBatch,
    path: "str | Path",
    *,
    dtype: TokenType = "auto",
    end_of_text: int | None = None,
    terminate: Terminate | None = None,
    vocabulary_size: int | None = None,
    tokenizer: str | None = None,
    on_loss: OnLoss = "error",
) -> WrittenShard:
    """Write a shard; documents are taken as they come, and memory holds one table of them at a time.

    Args:
        documents: tables, or one, with a column ``tokens`` and, if need be, ``loss_mask``; others are not written.
        path: ends in ``.ds``.
        dtype: what a token is stored as; "auto" goes by ``vocabulary_size``, and where that is not named by the
            first table.
        end_of_text: the id to end documents with; None leaves documents as they are.
        terminate: whether it is added where it is "missing", "always", or "never"; None for the first if it is named.
        vocabulary_size: an id that is not below it is an error.
        tokenizer: a name for ``.metadata``, which is written only where there is one.
        on_loss: what is done about overlaps, which the format cannot hold.

    Raises:
        FormatError: tokens cannot be stored, or overlaps would be lost; no file is changed.
        StageError: no column ``tokens``, or a loss mask that does not fit it.

    """
    file = shard_files(path)[0]
    if tokenizer is not None and ("|" in tokenizer or "\n" in tokenizer):
        raise FormatError(f"tokenizer {tokenizer!r} has a sign that .metadata cannot hold: leave | and line ends out")
    stream = DocumentStream(documents, dtype, end_of_text, terminate, vocabulary_size, frozenset([LOSS_MASK]))
    with whole_shard(*shard_files(file)) as (data, loss, metadata, index):
        with data.open("wb") as tokens, index.open("wb") as ends, _loss_file(loss, stream) as flags:
            for batch in stream:
                write_array(ends, stream.tokens - len(batch.tokens) + np.cumsum(batch.lengths), np.uint64)
                write_array(tokens, batch.tokens, stream.token_type)
                if batch.loss_mask is not None:
                    write_array(flags, batch.loss_mask, np.uint8)
        losses = report_losses(stream.losses(), on_loss, NAME)
        if tokenizer is not None:
            count = stream.tokens
            metadata.write_text(f"{tokenizer}|{stream.token_type.itemsize}\n{count}\n{_for_people(count)}", "utf-8")
    return WrittenShard(str(file), written_files(*shard_files(file)), stream.documents, stream.tokens, losses)


def open(  # noqa: A001  # datatrove.open reads as it should; files are opened by Path.open here
    path: "str | Path",
    *,
    token_size: Literal[2, 4] | None = None,
    end_of_text: int | None = None,
    vocabulary_size: int | None = None,
    check: Check = "everything",
) -> TokenShard:
    """Open a shard.

    Args:
        path: of the ``.ds`` file.
        token_size: bytes of a token; None to take it from the files.
        end_of_text: the id that documents end with; only where there is no index are ends looked for by it.
        vocabulary_size: every id is compared with it under "everything".
        check: what is looked at: "sizes", also where documents "ends", or "everything".

    Raises:
        FormatError: there is no such file, or nothing says how wide a token is.
        CorruptionError: the files contradict each other or the settings; the message names file and byte.

    """
    return checked(_open(path, token_size, end_of_text, vocabulary_size, check))


def verify(
    path: "str | Path",
    *,
    token_size: Literal[2, 4] | None = None,
    end_of_text: int | None = None,
    vocabulary_size: int | None = None,
) -> Verification:
    """Look at everything, and say all that is wrong; see :func:`open`.

    Raises:
        FormatError: there is no such file, or nothing says how wide a token is.

    """
    return verification(path, lambda: _open(path, token_size, end_of_text, vocabulary_size, "everything"))


def shard_files(path: "str | Path") -> tuple[Path, Path, Path, Path]:
    """Name the files of a shard, the index last; loss and metadata need not be there.

    Raises:
        FormatError: the path does not end in ``.ds``.

    """
    file = local_path(path)
    if file.suffix != SUFFIX:
        raise FormatError(f"{path} is no name of a datatrove shard: it must end in {SUFFIX}")
    loss, metadata, index = (file.with_name(file.name + suffix) for suffix in (LOSS, METADATA, INDEX))
    return file, loss, metadata, index


def _open(
    path: "str | Path",
    token_size: Literal[2, 4] | None,
    end_of_text: int | None,
    vocabulary_size: int | None,
    check: Check,
) -> Opened:
    check_word("check", check, Check)
    check_word("token_size", token_size, (2, 4, None))
    check_ids(end_of_text, vocabulary_size)
    file, loss, metadata, index = shard_files(path)
    size = file_bytes(file)
    checksums = first_checksums(file, loss, metadata, index)
    entries = _read_index(index) if index.is_file() else None
    told = _read_metadata(metadata)
    width = _width(file, size, token_size or told.token_size, entries)
    tokens = map_file(file, f"<u{width}", size // width)
    ends = entries
    if entries is None and end_of_text is not None:
        if checksums is not None:
            checksums.files[SUFFIX].check()
        ends = find_ends(tokens, end_of_text)
    mask = None
    if loss.is_file():
        check_size(loss, len(tokens), f"and {file.name}, with a byte for each token, asks for")
        mask = map_file(loss, np.uint8, len(tokens)).view(np.bool_)
    settings = {"token_size": width, "end_of_text": end_of_text, "vocabulary_size": vocabulary_size}
    shard = TokenShard(
        str(file),
        NAME,
        tokens,
        ends,
        loss_mask=mask,
        end_of_text=end_of_text,
        vocabulary_size=vocabulary_size,
        tokenizer=told.tokenizer,
        opened_by=(open, settings),
        checksums=checksums,
    )
    return shard, _problems(shard, told, check)


def _problems(shard: TokenShard, told: "_Metadata", check: Check) -> Iterator[str]:
    file, loss, metadata, index = shard_files(shard.path)
    yield from block_problems(shard, check)
    if told.tokens is not None and told.tokens != len(shard.tokens):
        yield (
            f"{metadata} says on line 2 that there are {told.tokens:,} tokens, {file.name} has {len(shard.tokens):,}: "
            "fetch both again, or remove the metadata"
        )
    if check != "sizes" and index.is_file():
        yield from end_problems(shard.ends, len(shard.tokens), index, lambda number: 8 * number)
    if check == "everything":
        yield from id_problems(shard, file)
        yield from mask_problems(shard, loss)


def _read_index(index: Path) -> npt.NDArray[np.int64]:
    size = file_bytes(index)
    if size % 8:
        raise CorruptionError(
            f"{index} is cut at byte {size:,}, its entries have 8 bytes: fetch it again, or write the shard anew"
        )
    # An end of 2**63 or more is negative here, and found to fall.
    return map_file(index, "<i8", size // 8)


def _width(file: Path, size: int, told: int | None, entries: npt.NDArray[np.int64] | None) -> int:
    """Find how many bytes a token has, and that the file has as many tokens as its index says."""
    last = int(entries[-1]) if entries is not None and len(entries) else None if entries is None else 0
    if told is None and last is None:
        raise FormatError(
            f"{file} has no {file.name}{INDEX} and nothing else says how wide its tokens are: open it with "
            "token_size=2 or token_size=4"
        )
    if told is None:
        told = next((width for width in (2, 4) if last is not None and size == last * width), None)
    if told is None:
        raise CorruptionError(
            f"{file} has {size:,} bytes, but its index ends at token {last:,}, which is byte {2 * (last or 0):,} or "
            f"{4 * (last or 0):,}: one of them is cut or has grown, so fetch both again, or write them anew"
        )
    if last is not None:
        check_size(file, last * told, f"and {file.name}{INDEX}, with {told} bytes a token, asks for")
    if size % told:
        raise CorruptionError(
            f"{file} has {size:,} bytes, which are no whole tokens of {told}: it is cut at byte {size:,}, or "
            "token_size is wrong"
        )
    return told


@dataclass(frozen=True)
class _Metadata:
    """What ``.metadata`` says, None for what it does not."""

    tokenizer: str | None = None
    token_size: int | None = None
    tokens: int | None = None


def _read_metadata(metadata: Path) -> _Metadata:
    if not metadata.is_file():
        return _Metadata()
    lines = metadata.read_text("utf-8", "replace").split("\n")
    name, _, width = lines[0].rpartition("|")
    if len(lines) < 2 or not re.fullmatch(r"[0-9]{1,18}", lines[1].strip()) or (name and width not in ("2", "4")):
        raise CorruptionError(
            f"{metadata} must have a tokenizer's name, | and 2 or 4 on line 1, and the number of tokens on line 2: "
            "fetch it again, or remove it"
        )
    # Older releases write the name alone.
    known = name or width
    tokenizer = None if known.startswith(UNKNOWN) else known
    return _Metadata(tokenizer, int(width) if name else None, int(lines[1]))


def _for_people(tokens: int) -> str:
    """Give a number of tokens in three digits, with the SI prefix of its thousands, as datatrove does.

    >>> _for_people(225_829), _for_people(999_900), _for_people(12)
    ('226 kT', '1.00 MT', '12.0 T')
    """
    exponent = len(str(tokens)) - 1
    carried = round(tokens / 10**exponent, 2) >= 10
    exponent += carried
    prefix = ("", "k", "M", "G", "T", "P", "E")[exponent // 3]
    return f"{tokens / 1000 ** (exponent // 3):.{2 - exponent % 3}f} {prefix}T"


def _loss_file(loss: Path, stream: DocumentStream) -> AbstractContextManager[Any]:
    return loss.open("wb") if LOSS_MASK in stream.has else nullcontext()
