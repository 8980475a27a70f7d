"""The two passes that build a composed dataset.

Pass one keeps every document's tokens, ended, and where they came from. Lengths alone give the plan, which is kept in
files, too: where each piece of each sample comes from. Pass two gathers the pieces of some samples by their places, and
writes them with the table that says what they are.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.composition.plan import Plan
from longcrawl.core.stages import SORT_KEY, column
from longcrawl.errors import StageError
from longcrawl.formats.shards.entries import entries_of, refuse_no_text
from longcrawl.formats.shards.shard import N_TOKENS, TOKENS
from longcrawl.formats.shards.writing import TokenType
from longcrawl.formats.spill import ORDER, PLACE, read_batches, read_order, read_places, spill_documents
from longcrawl.storage.files import whole_file, write_text
from longcrawl.tokens.loss_mask import LOSS_MASK, MASKED
from longcrawl.tokens.windows import WINDOWS

__all__ = ["DOMAIN", "PieceStretch", "TokenFacts", "gather", "read_documents", "read_pieces", "save_plan", "spill_part"]

Longs = npt.NDArray[np.int64]

DOMAIN = "domain"
ORIGINS = ("id", "url", "language")
KEPT = (*ORIGINS, DOMAIN, N_TOKENS)
PIECE = np.dtype([("document", "<i8"), ("start", "<i8"), ("size", "<i8")])


@dataclass(frozen=True)
class TokenFacts:
    """What all spilled tokens have in common."""

    dtype: str
    masked: bool
    """Whether there is a token that no loss is due on."""

    @classmethod
    def of(cls, spill: Path, parts: int, schema: pa.Schema) -> "TokenFacts":
        """Return what is known of documents that were spilled with these columns."""
        found = [json.loads((spill / f"{part:05d}.facts").read_text("utf-8")) for part in range(parts)]
        return cls(str(schema.field(TOKENS).type.value_type), any(each["masked"] for each in found))


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
    """Write the documents of one part: what :func:`spill_documents` writes, and ``NNNNN.facts``.

    A document without tokens stays without; any other one ends with ``end_of_text``, which is added where it is
    missing. Tokens are stored as ``asked``, see :data:`TokenType`, and are below ``vocabulary_size``.

    Raises:
        FormatError: an id cannot be stored, or the vocabulary does not have it.
        StageError: there is no column of tokens, masked texts have no loss mask, or documents are to be cut into
            windows.

    """
    masked = False

    def kept(table: pa.Table) -> pa.Table:
        nonlocal masked
        _check_columns(table, domains)
        empty = pc.fill_null(pc.equal(pc.list_value_length(column(table, TOKENS, "composed")), 0), False)
        filled = pc.invert(empty)
        ended, _ = entries_of(table.filter(filled), end_of_text, "composed", "loss_mask", asked, vocabulary_size)
        lengths = np.zeros(table.num_rows, np.int64)
        lengths[filled.to_numpy(zero_copy_only=False)] = ended.lengths
        columns = {name: table[name] for name in ORIGINS if name in table.column_names}
        if domains is not None:
            columns[DOMAIN] = table[domains]
        if shuffled:
            columns[SORT_KEY] = table[SORT_KEY]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        columns |= {N_TOKENS: pa.array(lengths), TOKENS: pa.ListArray.from_arrays(offsets, pa.array(ended.tokens))}
        if ended.loss_mask is not None:
            masked = masked or not ended.loss_mask.all()
            columns[LOSS_MASK] = pa.ListArray.from_arrays(offsets, pa.array(ended.loss_mask.view(np.uint8)))
        return pa.table(columns)

    spill_documents(map(kept, tables), spill, part, shuffled=shuffled, group=DOMAIN, sizes=_sizes)
    write_text(spill / f"{part:05d}.facts", json.dumps({"masked": masked}))


def _sizes(batch: pa.RecordBatch) -> Longs:
    lengths: Longs = batch.column(N_TOKENS).to_numpy()
    return lengths


def _check_columns(table: pa.Table, domains: str | None) -> None:
    names = table.column_names
    if WINDOWS in names:
        raise StageError(
            "composed cuts documents where its plan says, and windows would cut them before: leave the stage windows "
            "out"
        )
    if MASKED in names and LOSS_MASK not in names:
        raise StageError(
            f"composed would lose the column {MASKED!r}, which is of the text: make tokens with the stage tokenize, "
            f"which gives {LOSS_MASK!r} too, or drop the column"
        )
    if domains is not None:
        refuse_no_text(table, domains, "composed.domains")


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
    recorded: pa.Table
    """What is known of the document of each: its id and the like, and ``n_tokens``."""
    spilled: npt.NDArray[Any]
    """Where the document of each was spilled, see :data:`PLACE`."""

    @property
    def lengths(self) -> Longs:
        """How many tokens each sample has: int64 [samples]."""
        return np.asarray(np.add.reduceat(self.sizes, self._firsts()), np.int64)

    def places(self, capacity: int | None = None) -> Longs:
        """Return where each piece begins, of samples of ``capacity`` tokens or, without one, end to end."""
        before = np.cumsum(self.sizes) - self.sizes
        if capacity is None:
            return before
        firsts = self._firsts()
        counts = np.diff(np.append(firsts, len(self.samples)))
        return np.asarray(before - np.repeat(before[firsts], counts) + self.samples * capacity, np.int64)

    def table(self, capacity: int, first: int) -> pa.Table:
        """Return a row for each piece, ``first`` being the number of the first sample in its bucket."""
        tail = self.starts + self.sizes == self.recorded[N_TOKENS].to_numpy()
        return pa.table(
            {
                "bucket": pa.repeat(pa.scalar(capacity, pa.int64()), len(self.sizes)),
                "sample": pa.array(self.samples + first),
                "document": pa.array(self.documents),
                **{name: self.recorded[name] for name in (*ORIGINS, DOMAIN) if name in self.recorded.column_names},
                "start": pa.array(self.starts),
                "length": pa.array(self.sizes),
                "head": pa.array(self.starts == 0),
                "tail": pa.array(tail),
            }
        )

    def _firsts(self) -> npt.NDArray[np.intp]:
        """Return the first piece of each sample."""
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
    recorded = read_places(spill, places, KEPT).take(pa.array(back))
    samples = np.repeat(np.arange(stop - first), np.diff(bounds))
    return PieceStretch(samples, documents, pieces["start"], pieces["size"], recorded, places[back])


def gather(spill: Path, pieces: PieceStretch, name: str, places: Longs, out: npt.NDArray[Any]) -> None:
    """Copy pieces of the spilled column ``name`` to ``places`` of ``out``, which is filled elsewhere.

    Raises:
        FormatError: a spill file is cut.

    """
    flat = out.reshape(-1).view(np.uint8) if out.dtype == np.bool_ else out.reshape(-1)
    for chosen, batch, rows in read_batches(spill, pieces.spilled):
        lists = batch.column(name)
        values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
        firsts = offsets[rows] + pieces.starts[chosen]
        for first, size, place in zip(
            firsts.tolist(), pieces.sizes[chosen].tolist(), places[chosen].tolist(), strict=True
        ):
            flat[place : place + size] = values[first : first + size]


def read_documents(spill: Path, start: int, stop: int, rows: int) -> Iterator[pa.Table]:
    """Yield what is known of documents ``start`` to ``stop`` of the order, so many rows at a time."""
    for first in range(start, stop, rows):
        yield read_places(spill, read_order(spill, first, min(first + rows, stop)), KEPT)
