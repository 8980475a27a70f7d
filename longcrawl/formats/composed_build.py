"""The two passes that build a composed dataset.

Pass one appends every document's tokens, ended, to a file of its part, and keeps some bytes about each. Lengths alone
give the plan, which is kept in files, too: where each piece of each sample comes from. Pass two gathers the pieces of
some samples by their places, and writes them with the table that says what they are.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.errors import FormatError, StageError
from longcrawl.files import whole_file, write_text
from longcrawl.formats._shard_entries import entries_of, refuse_no_text
from longcrawl.formats._token_shard_writing import TokenType
from longcrawl.formats.parquet_build import ORDER, PLACE, read_places, spill_documents
from longcrawl.formats.token_shard import N_TOKENS, TOKENS
from longcrawl.stages import SORT_KEY, column
from longcrawl.tokens.loss_mask import LOSS_MASK, MASKED
from longcrawl.tokens.plan import Plan
from longcrawl.tokens.windows import WINDOWS

__all__ = ["DOMAIN", "PieceStretch", "TokenFacts", "gather", "read_documents", "read_pieces", "save_plan", "spill_part"]

Longs = npt.NDArray[np.int64]

DOMAIN = "domain"
TOLD = ("id", "url", "language")
OFFSET = "offset"
PIECE = np.dtype([("document", "<i8"), ("start", "<i8"), ("size", "<i8")])


@dataclass(frozen=True)
class TokenFacts:
    """What all spilled tokens have in common."""

    dtype: str
    masked: bool
    """Whether there is a token that no loss is due on."""

    @classmethod
    def of(cls, spill: Path, parts: int) -> "TokenFacts":
        """Give what the parts agree on.

        Raises:
            FormatError: they do not, or no document has a token.

        """
        found = [json.loads((spill / f"{part:05d}.facts").read_text("utf-8")) for part in range(parts)]
        found = [each for each in found if each["dtype"]]
        types = sorted({each["dtype"] for each in found})
        if not types:
            raise FormatError("there is no token to write: every document is empty, or left before the output")
        if len(types) > 1:
            raise FormatError(f"parts hold different token types, {' and '.join(types)}: set composed.dtype to one")
        if len({each["has_mask"] for each in found}) > 1:
            raise FormatError(f"only some parts have a column {LOSS_MASK!r}: mask the documents of all, or of none")
        return cls(types[0], any(each["masked"] for each in found))


def spill_part(
    tables: Iterable[pa.Table],
    spill: Path,
    part: int,
    *,
    end_of_text: int,
    shuffled: bool,
    domains: str | None,
    asked: TokenType = "auto",
    vocabulary_size: int | None = None,
) -> None:
    """Write the documents of one part: ``NNNNN.tokens``, ``NNNNN.mask``, what :func:`spill_documents` writes, facts.

    A document without tokens stays without; any other one ends with ``end_of_text``, which is added where it is
    missing. Tokens are stored as ``asked``, see :data:`TokenType`, and are below ``vocabulary_size``. ``.mask`` has a
    byte for each token, and none where documents have no loss mask.

    Raises:
        FormatError: an id cannot be stored, or the vocabulary does not have it.
        StageError: there is no column of tokens, masked texts have no loss mask, or documents are to be cut into
            windows.

    """
    spill.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        besides = [files.enter_context(whole_file(spill / f"{part:05d}.{name}")) for name in ("tokens", "mask")]
        opened = [files.enter_context(beside.open("wb")) for beside in besides]
        spilled = _Spilled(opened[0], opened[1], end_of_text, shuffled, domains, asked, vocabulary_size)
        spill_documents(map(spilled.add, tables), spill, part, shuffled=shuffled, group=DOMAIN, sizes=_sizes)
    told = {"dtype": spilled.dtype, "has_mask": spilled.has_mask, "masked": spilled.masked}
    write_text(spill / f"{part:05d}.facts", json.dumps(told))


def _sizes(batch: pa.RecordBatch) -> Longs:
    lengths: Longs = batch.column(N_TOKENS).to_numpy()
    return lengths


@dataclass
class _Spilled:
    """Appends the tokens of documents to a file, and gives what else is to be kept of each."""

    tokens: IO[bytes]
    mask: IO[bytes]
    end_of_text: int
    shuffled: bool
    domains: str | None
    asked: TokenType
    vocabulary_size: int | None
    dtype: str = ""
    has_mask: bool = False
    masked: bool = False
    offset: int = 0

    def add(self, table: pa.Table) -> pa.Table:
        """Append the tokens of some documents."""
        self._refuse(table)
        empty = pc.fill_null(pc.equal(pc.list_value_length(column(table, TOKENS, "composed")), 0), False)
        filled = pc.invert(empty)
        stored = (self.asked, self.vocabulary_size)
        ended, _ = entries_of(table.filter(filled), self.end_of_text, "composed", "loss_mask", *stored)
        lengths = np.zeros(table.num_rows, np.int64)
        lengths[filled.to_numpy(zero_copy_only=False)] = ended.lengths
        if len(ended.lengths):
            self._append(ended.tokens, ended.loss_mask)
        ends = self.offset + np.cumsum(lengths)
        self.offset += int(lengths.sum())
        kept = {name: table[name] for name in TOLD if name in table.column_names}
        if self.domains is not None:
            kept[DOMAIN] = table[self.domains]
        if self.shuffled:
            kept[SORT_KEY] = table[SORT_KEY]
        return pa.table(kept | {N_TOKENS: pa.array(lengths), OFFSET: pa.array(ends - lengths)})

    def _append(self, tokens: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None) -> None:
        if self.dtype and (self.dtype, self.has_mask) != (str(tokens.dtype), mask is not None):
            raise StageError(
                f"documents have tokens of {tokens.dtype} after {self.dtype}, or only some have a column "
                f"{LOSS_MASK!r}: tokenize all of them alike, and mask all or none"
            )
        self.dtype, self.has_mask = str(tokens.dtype), mask is not None
        self.tokens.write(np.ascontiguousarray(tokens, tokens.dtype.newbyteorder("<")).data)
        if mask is not None:
            self.masked = self.masked or not mask.all()
            self.mask.write(np.ascontiguousarray(mask).data)

    def _refuse(self, table: pa.Table) -> None:
        names = table.column_names
        if WINDOWS in names:
            raise StageError(
                "composed cuts documents where its plan says, and windows would cut them before: leave the stage "
                "windows out"
            )
        if MASKED in names and LOSS_MASK not in names:
            raise StageError(
                f"composed would lose the column {MASKED!r}, which is of the text: make tokens with the stage "
                f"tokenize, which gives {LOSS_MASK!r} too, or drop the column"
            )
        if self.domains is not None:
            refuse_no_text(table, self.domains, "composed.domains")


def save_plan(spill: Path, number: int, plan: Plan) -> None:
    """Write a plan, so that the pieces of any samples can be read."""
    pieces = np.empty(len(plan.sizes), PIECE)
    pieces["document"], pieces["start"], pieces["size"] = plan.documents, plan.starts, plan.sizes
    for suffix, values in (("pieces", pieces), ("bounds", plan.bounds)):
        with whole_file(spill / f"plan-{number:05d}.{suffix}") as beside:
            values.tofile(beside)


@dataclass(frozen=True, eq=False)
class PieceStretch:
    """The pieces of consecutive samples of a plan; arrays are int64 [pieces]."""

    samples: Longs
    """Counted from the first sample of the stretch."""
    documents: Longs
    """Counted within the split and domain."""
    starts: Longs
    sizes: Longs
    told: pa.Table
    """What is known of the document of each: its id and the like, ``n_tokens``, where its tokens were spilled."""
    parts: Longs
    """In which part."""

    @property
    def lengths(self) -> Longs:
        """How many tokens each sample has: int64 [samples]."""
        return np.asarray(np.add.reduceat(self.sizes, self._firsts()), np.int64)

    def places(self, capacity: int | None = None) -> Longs:
        """Give where each piece begins, of samples of ``capacity`` tokens or, without one, end to end."""
        before = np.cumsum(self.sizes) - self.sizes
        if capacity is None:
            return before
        firsts = self._firsts()
        counts = np.diff(np.append(firsts, len(self.samples)))
        return np.asarray(before - np.repeat(before[firsts], counts) + self.samples * capacity, np.int64)

    def table(self, capacity: int, first: int) -> pa.Table:
        """Give a row for each piece, ``first`` being the number of the first sample in its bucket."""
        tail = self.starts + self.sizes == self.told[N_TOKENS].to_numpy()
        return pa.table(
            {
                "bucket": pa.repeat(pa.scalar(capacity, pa.int64()), len(self.sizes)),
                "sample": pa.array(self.samples + first),
                "document": pa.array(self.documents),
                **{name: self.told[name] for name in (*TOLD, DOMAIN) if name in self.told.column_names},
                "start": pa.array(self.starts),
                "length": pa.array(self.sizes),
                "head": pa.array(self.starts == 0),
                "tail": pa.array(tail),
            }
        )

    def _firsts(self) -> npt.NDArray[np.intp]:
        """Give the first piece of each sample."""
        return np.flatnonzero(np.diff(self.samples, prepend=-1))


def read_pieces(spill: Path, number: int, first: int, stop: int, first_document: int) -> PieceStretch:
    """Read the pieces of samples ``first`` to ``stop`` of a plan.

    Args:
        spill: the folder of the first pass.
        number: of the plan.
        first: its first sample that is wanted.
        stop: the sample after the last one.
        first_document: the place, in the order of all documents, of those that were planned.

    """
    path = spill / f"plan-{number:05d}"
    bounds = np.fromfile(f"{path}.bounds", np.int64, count=stop - first + 1, offset=first * 8)
    count = int(bounds[-1] - bounds[0])
    pieces = np.fromfile(f"{path}.pieces", PIECE, count=count, offset=int(bounds[0]) * PIECE.itemsize)
    documents = pieces["document"].astype(np.int64)
    wanted, back = np.unique(documents, return_inverse=True)
    places = np.memmap(spill / ORDER, PLACE, "r")[wanted + first_document]
    told = read_places(spill, places).take(pa.array(back))
    samples = np.repeat(np.arange(stop - first), np.diff(bounds))
    parts = places["part"][back].astype(np.int64)
    return PieceStretch(samples, documents, pieces["start"], pieces["size"], told, parts)


def gather(spill: Path, pieces: PieceStretch, kind: str, places: Longs, out: npt.NDArray[Any]) -> None:
    """Copy pieces of the spilled ``tokens`` or of their ``mask`` to ``places`` of ``out``, which is filled elsewhere.

    Raises:
        FormatError: a spill file is cut.

    """
    flat, width = out.data.cast("B"), out.itemsize
    firsts = pieces.told[OFFSET].to_numpy() + pieces.starts
    order = np.lexsort((firsts, pieces.parts))
    bounds = np.flatnonzero(np.diff(pieces.parts[order], prepend=-1)).tolist()
    for first, stop in zip(bounds, [*bounds[1:], len(order)], strict=True):
        chosen = order[first:stop]
        with (spill / f"{int(pieces.parts[chosen[0]]):05d}.{kind}").open("rb", buffering=0) as file:
            numbers = (firsts[chosen] * width, pieces.sizes[chosen] * width, places[chosen] * width)
            for offset, size, place in zip(*(each.tolist() for each in numbers), strict=True):
                if os.preadv(file.fileno(), [flat[place : place + size]], offset) != size:
                    raise FormatError(f"{file.name} is cut: remove the run's folder 'work' and run again")


def read_documents(spill: Path, start: int, stop: int, rows: int) -> Iterator[pa.Table]:
    """Give what is told of documents ``start`` to ``stop`` of the order, so many rows at a time."""
    for first in range(start, stop, rows):
        count = min(rows, stop - first)
        places = np.fromfile(spill / ORDER, PLACE, count=count, offset=first * PLACE.itemsize)
        yield read_places(spill, places).drop_columns(OFFSET)
