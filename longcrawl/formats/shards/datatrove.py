"""datatrove's tokenised files: ``.ds``, with ``.ds.index``, ``.ds.loss`` and ``.ds.metadata`` beside it.

Specification
-------------
* ``NAME.ds``: tokens, little-endian uint16 or uint32, no header. Documents are stored one after the other, each with an
  end-of-text token at its end if the tokenizer added one.
* ``NAME.ds.index``: for each document the place after its last token, counted in tokens, little-endian uint64, no
  header and no leading 0.
* ``NAME.ds.loss``, optional: a byte for each token, 1 if its loss counts and 0 if not.
* ``NAME.ds.metadata``, optional: three lines of text, ``TOKENIZER|BYTES`` (bytes of a token), the number of tokens, and
  that number in readable form: ``gpt2|2``, ``225829``, ``226 kT``.

The files record neither the end-of-text id nor the size of the vocabulary. The width of a token follows from the last
entry of the index and the size of ``.ds``; without an index, ``.metadata`` or the user must give it.

datatrove 0.10's merger fails on a tokenizer's name with ``|``, so such a name is refused here.
"""

import re
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError, check_word
from longcrawl.formats.shards import shard
from longcrawl.formats.shards.base import Opening, Parsed, ShardFormat, shard_format
from longcrawl.formats.shards.writing import DocumentStream, NewFiles, write_array
from longcrawl.tokens.loss_mask import LOSS_MASK

NAME = "datatrove"
SUFFIX = ".ds"
INDEX, LOSS, METADATA = ".index", ".loss", ".metadata"
UNKNOWN = "Unknown Tokenizer"
"""Name that datatrove gives to an unknown tokenizer."""


@shard_format(NAME)
class Datatrove(ShardFormat):
    """Shards of datatrove; a path names the ``.ds`` file."""

    suffix = SUFFIX
    holds = frozenset([LOSS_MASK])
    records = frozenset(["tokenizer"])

    @classmethod
    def shard_files(cls, path: "str | Path") -> tuple[Path, ...]:
        """Return the files of a shard, the index last; loss and metadata may be missing."""
        (file,) = super().shard_files(path)
        loss, metadata, index = (file.with_name(file.name + suffix) for suffix in (LOSS, METADATA, INDEX))
        return file, loss, metadata, index

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles, *, tokenizer: str | None = None) -> None:
        """Write tokens, ends, loss mask and, with the name of a tokenizer, ``.metadata``."""
        if tokenizer is not None and ("|" in tokenizer or "\n" in tokenizer):
            raise FormatError(
                f"tokenizer {tokenizer!r} has a character that .metadata cannot hold: remove | and line breaks"
            )
        tokens, ends = files.open(SUFFIX), files.open(SUFFIX + INDEX)
        flags = files.open(SUFFIX + LOSS) if LOSS_MASK in stream.has else None
        for batch in stream:
            write_array(ends, stream.tokens - len(batch.tokens) + np.cumsum(batch.lengths), np.uint64)
            write_array(tokens, batch.tokens, stream.token_type)
            if flags is not None and batch.loss_mask is not None:
                write_array(flags, batch.loss_mask, np.uint8)
        if tokenizer is not None:
            text = f"{tokenizer}|{stream.token_type.itemsize}\n{stream.tokens}\n{_for_people(stream.tokens)}"
            files.beside(SUFFIX + METADATA).write_text(text, "utf-8")

    @classmethod
    def decode(cls, opening: Opening, *, token_size: Literal[2, 4] | None = None) -> Parsed:
        """Memory-map tokens, ends and loss mask; ``token_size`` is bytes of a token, None to take it from the files."""
        check_word("token_size", token_size, (2, 4, None), FormatError)
        file, loss, metadata, index = opening.files
        size = shard.file_bytes(file)
        entries = _read_index(index) if index.is_file() else None
        tokenizer, recorded_size, count = _read_metadata(metadata)
        last = None if entries is None else int(entries[-1]) if len(entries) else 0
        width = shard.token_width(file, size, token_size or recorded_size, last, index.name)
        tokens = shard.map_file(file, f"<u{width}", size // width)
        ends = entries
        if entries is None and opening.end_of_text is not None:
            opening.compare(0)
            ends = shard.find_ends(tokens, opening.end_of_text)
        mask = None
        if loss.is_file():
            shard.check_size(loss, len(tokens), f"and {file.name}, with a byte for each token, asks for")
            mask = shard.map_file(loss, np.uint8, len(tokens)).view(np.bool_)
        contradictions = []
        if count is not None and count != len(tokens):
            contradictions.append(
                f"{metadata} records {count:,} tokens on line 2, {file.name} has {len(tokens):,}: fetch both again, or "
                "remove the metadata"
            )
        of_ends = () if entries is None else shard.end_problems(entries, len(tokens), index, lambda number: 8 * number)
        return Parsed(
            tokens,
            ends,
            loss_mask=mask,
            tokenizer=tokenizer,
            settings={"token_size": width},
            of_sizes=contradictions,
            of_ends=of_ends,
        )


open, shard_files, verify, write = Datatrove.open, Datatrove.shard_files, Datatrove.verify, Datatrove.write  # noqa: A001  # public as datatrove.open


def _read_index(index: Path) -> npt.NDArray[np.int64]:
    size = shard.file_bytes(index)
    if size % 8:
        raise CorruptionError(
            f"{index} is cut at byte {size:,}, its entries have 8 bytes: fetch it again, or write the shard again"
        )
    # An end of 2**63 or more is negative here, and is found as a falling end.
    return shard.map_file(index, "<i8", size // 8)


def _read_metadata(metadata: Path) -> tuple[str | None, int | None, int | None]:
    """Return the tokenizer, the bytes of a token and the number of tokens; None for what is not recorded."""
    if not metadata.is_file():
        return None, None, None
    lines = metadata.read_text("utf-8", "replace").split("\n")
    name, _, width = lines[0].rpartition("|")
    count = lines[1].strip(" \t\r") if len(lines) > 1 else ""
    if not re.fullmatch(r"[0-9]{1,18}", count) or (name and width not in ("2", "4")):
        raise CorruptionError(
            f"{metadata} must have a tokenizer's name, | and 2 or 4 on line 1, and the number of tokens on line 2: "
            "fetch it again, or remove it"
        )
    # Older releases write only the name.
    known = name or width
    tokenizer = None if known.startswith(UNKNOWN) else known
    return tokenizer, int(width) if name else None, int(count)


def _for_people(tokens: int) -> str:
    """Format a number of tokens with three digits and an SI prefix, as datatrove does.

    >>> _for_people(225_829), _for_people(999_900), _for_people(12)
    ('226 kT', '1.00 MT', '12.0 T')
    """
    exponent = len(str(tokens)) - 1
    exponent += round(tokens / 10**exponent, 2) >= 10
    prefix = ("", "k", "M", "G", "T", "P", "E")[exponent // 3]
    return f"{tokens / 1000 ** (exponent // 3):.{2 - exponent % 3}f} {prefix}T"
