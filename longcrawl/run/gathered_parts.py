"""Many small files, worked on as a few parts.

A source lists each file as a part. A run writes and syncs some files for every part, and calls stages for its tables:
for 2,000 short texts this was 18 of 19 CPU seconds (``benchmarks/small_files.py``). So small parts that
follow each other are one part of the run, made of pieces. Documents keep their order and ids, and the manifest and
errors name the pieces.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa

from longcrawl.core.sources import BadFiles, Part, Source
from longcrawl.io.structured import Marker
from longcrawl.run.manifest import INPUTS, WORK
from longcrawl.run.recipe import Recipe

ALONE = 32
"""So many parts of an input are worked on one by one; of n times as many, up to n are one."""
SMALL = 4 << 20
"""Bytes of the files of several parts that are one, at most."""
TOGETHER = 16 << 20
"""Bytes of a table that is made of several, at most."""
GATHERED = "gathered"
"""Where a run records how many parts of its input are one, for each of its own."""


def gather_small(parts: Sequence[Part], recipe: Recipe, folder: Path | None = None) -> list[Part]:
    """Return the parts that a run works on: of many, small local ones that follow each other are one.

    A run that was begun in ``folder`` goes on with the parts that it has recorded. With ``parts`` in the recipe they
    are the input's, since those decide which documents are compared.
    """
    begun = Marker.read(folder / WORK / INPUTS) if folder else None
    if recipe.parts > 1:
        counts = [1] * len(parts)
    elif begun is not None and list(begun.content["parts"]) == [part.name for part in parts]:
        counts = begun.content.get(GATHERED, [1] * len(parts))
    else:
        counts = _gathered(parts)
    left = iter(parts)
    return [_as_one(tuple(islice(left, count))) for count in counts]


def _gathered(parts: Sequence[Part]) -> list[int]:
    """Return how many parts become one, of those that follow each other."""
    most, counts, size = -(-len(parts) // ALONE), list[int](), 0
    for part in parts:
        own = local_bytes(part) if most > 1 else None
        if own is not None and counts and counts[-1] < most and size + own <= SMALL:
            counts[-1] += 1
            size += own
        else:
            counts.append(1)
            size = SMALL + 1 if own is None else own
    return counts


def local_bytes(part: Part) -> int | None:
    """Return the bytes of the files of a part; None where one is not here."""
    try:
        return sum(os.stat(file).st_size for file in part.files) if part.files else None  # noqa: PTH116  # 100,000 files
    except OSError:
        return None


def _as_one(pieces: tuple[Part, ...]) -> Part:
    if len(pieces) == 1:
        return pieces[0]
    return Part(pieces[0].name, tuple(file for piece in pieces for file in piece.files), pieces)


def read_gathered(
    source: Source, part: Part, bad_files: BadFiles, owners: list[str] | None = None
) -> Iterator[pa.Table]:
    """Read a part of a run in tables of many rows; ``owners`` takes the name of the piece of each broken file."""
    owners = [] if owners is None else owners
    together, size = list[pa.Table](), 0
    for piece in part.each():
        for table in source.read(piece, bad_files):
            if not part.pieces:
                yield table
                continue
            if together and (size + table.nbytes > TOGETHER or table.schema != together[0].schema):
                yield pa.concat_tables(together).combine_chunks()
                together, size = [], 0
            together.append(table)
            size += table.nbytes
        owners += [piece.name] * (len(bad_files.found) - len(owners))
    if together:
        yield pa.concat_tables(together).combine_chunks()
