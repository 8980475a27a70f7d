"""Megatron-LM's indexed datasets: ``.bin`` and ``.idx``.

Specification
-------------
``NAME.bin`` holds tokens, little-endian, no header. ``NAME.idx`` is also little-endian:

========================== =========================================================================
bytes                      what
========================== =========================================================================
0                          ``MMIDIDX`` and two zero bytes
9                          uint64 version, 1
17                         uint8 type of the tokens: 8 is uint16, 4 is int32
18                         uint64 number of sequences, *n*
26                         uint64 number of document indices, *d*: one more than there are documents
34                         int32 x *n*: tokens of each sequence
34 + 4 *n*                 int64 x *n*: byte of ``.bin`` where each sequence starts
34 + 12 *n*                int64 x *d*: 0, then for each document the number of sequences up to its end
34 + 12 *n* + 8 *d*        int8 x *n*, in multimodal sets only: the mode of each sequence
========================== =========================================================================

A document is one sequence, or several if the preparation split it into sentences. Here it is one run of tokens, and the
ends of sequences inside it are not kept. Documents written here have one sequence each, like those of datatrove's
writer, and equal bytes. The other token types that Megatron knows (int64, int16, int8, uint8 and floats) are refused.

The format cannot store ids from 2,147,483,648 on, or documents of as many tokens. Megatron memory-maps ``.bin``, which
fails for an empty file: a shard without tokens is refused.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.shards.base import Opening, Parsed, shard_format
from longcrawl.formats.shards.gpt_simple import BinAndIdx, read_index_header
from longcrawl.formats.shards.shard import Documents, check_size, end_problems, file_bytes, map_file
from longcrawl.formats.shards.writing import (
    MOST_INT32,
    DocumentStream,
    NewFiles,
    append_spool,
    check_int32,
    write_array,
)

NAME = "megatron"
SUFFIX = ".bin"
MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
HEADER = struct.Struct("<9sQBQQ")
WIDTHS = {8: 2, 4: 4}
"""Bytes of a token by the code of its type; int32 is read as uint32, which is equal for all non-negative ids."""
CODES = {2: 8, 4: 4}
BLOCK = 1 << 20


@shard_format(NAME)
class Megatron(BinAndIdx):
    """Shards of Megatron-LM.

    Tokens are stored as uint16 or int32. Opening a shard computes the ends of documents from the index, which needs 8
    bytes of memory for each sequence.
    """

    magic = MAGIC

    @classmethod
    def encode(cls, stream: DocumentStream, files: NewFiles) -> None:
        """Write tokens batch by batch, and the index with lengths, pointers and document indices."""
        tokens, index, pointers = files.open(".bin"), files.open(".idx"), files.spool()
        width = stream.token_type.itemsize
        index.write(bytes(HEADER.size))
        for batch in stream:
            _check_sizes(batch, stream.documents - len(batch.lengths))
            write_array(tokens, batch.tokens, np.uint16 if width == 2 else np.int32)
            write_array(index, batch.lengths, np.int32)
            starts = stream.tokens - len(batch.tokens) + np.cumsum(batch.lengths) - batch.lengths
            write_array(pointers, starts * width, np.int64)
        append_spool(index, pointers)
        for first in range(0, stream.documents + 1, BLOCK):
            write_array(index, np.arange(first, min(first + BLOCK, stream.documents + 1)), np.int64)
        if not stream.tokens:
            raise FormatError(f"{files.path} would have no tokens, and Megatron cannot map an empty file: exclude it")
        index.seek(0)
        index.write(HEADER.pack(MAGIC, VERSION, CODES[width], stream.documents, stream.documents + 1))

    @classmethod
    def decode(cls, opening: Opening) -> Parsed:
        """Memory-map tokens, and sum up the lengths of sequences."""
        data, index = opening.files
        opening.compare(1)
        width, sequences, indices, has_modes = _read_header(index)
        lengths = map_file(index, "<i4", sequences, HEADER.size)
        upto = map_file(index, "<i8", indices, HEADER.size + 12 * sequences)
        first_byte = HEADER.size + 12 * sequences
        if not len(upto) or upto[0] != 0:
            raise CorruptionError(
                f"{index} has no 0 at byte {first_byte:,}, where its document indices begin: write it again"
            )
        for problem in end_problems(
            upto[1:], sequences, index, lambda number: first_byte + 8 * (number + 1), unit="sequence"
        ):
            raise CorruptionError(problem)
        ends = np.cumsum(lengths, dtype=np.int64)
        total = max(int(ends[-1]) if sequences else 0, 0)
        check_size(data, total * width, f"and {index.name}, with {width} bytes a token, asks for")
        one_each = indices == sequences + 1
        left_out = [] if one_each else ["the ends of sequences inside of documents"]
        left_out += ["the modes of sequences"] * has_modes
        return Parsed(
            map_file(data, f"<u{width}", total),
            ends if one_each else np.concatenate([[0], ends])[upto[1:]],
            id_limit=MOST_INT32 + 1 if width == 4 else None,
            left_out=tuple(left_out),
            of_ends=_index_problems(data, index, ends, total, width),
        )


open, shard_files, verify, write = Megatron.open, Megatron.shard_files, Megatron.verify, Megatron.write  # noqa: A001  # public as megatron.open


def _index_problems(
    data: Path, index: Path, sequence_ends: npt.NDArray[np.int64], tokens: int, width: int
) -> Iterator[str]:
    sequences = len(sequence_ends)
    yield from end_problems(sequence_ends, tokens, index, lambda number: HEADER.size + 4 * number, what="sequence")
    pointers = map_file(index, "<i8", sequences, HEADER.size + 4 * sequences)
    for first in range(0, sequences, BLOCK):
        before = sequence_ends[first - 1 : first] if first else [0]
        starts = np.concatenate([before, sequence_ends[first : min(first + BLOCK, sequences) - 1]]) * width
        wrong = np.flatnonzero(pointers[first : first + BLOCK] != starts)
        if len(wrong):
            number = first + int(wrong[0])
            yield (
                f"{index} records at byte {HEADER.size + 4 * sequences + 8 * number:,} that sequence {number:,} starts "
                f"at byte {int(pointers[number]):,} of {data.name}, by the lengths it is byte "
                f"{int(starts[wrong[0]]):,}: fetch it again, or write the shard again"
            )
            break


def _read_header(index: Path) -> tuple[int, int, int, bool]:
    """Return bytes of a token, numbers of sequences and of document indices, and whether there are modes."""
    code, sequences, indices = read_index_header(index, HEADER, MAGIC, 9, "Megatron")
    if code not in WIDTHS:
        raise FormatError(
            f"{index} has the token type {code} at byte 17, only 8 (uint16) and 4 (int32) are read: write it again"
        )
    expected = HEADER.size + 12 * sequences + 8 * indices
    has_modes = file_bytes(index) == expected + sequences and sequences > 0
    if not has_modes:
        check_size(index, expected, f"and its header, with {sequences:,} sequences and {indices:,} indices, asks for")
    return WIDTHS[code], sequences, indices, has_modes


def _check_sizes(batch: Documents, first: int) -> None:
    if len(batch.lengths) and batch.lengths.max() > MOST_INT32:
        number = int(np.argmax(batch.lengths))
        raise FormatError(
            f"document {first + number:,} has {int(batch.lengths[number]):,} tokens, but Megatron counts up to "
            f"{MOST_INT32:,}: split it"
        )
    check_int32(batch, "Megatron")
