"""Documents taken out of token shards: the shards that hold them are written again, entry by entry."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from longcrawl.core.removal import TOKENS, Changes, Longs, Proof, Removal, rows_of_ids
from longcrawl.formats.shards.shard import Documents, TokenShard
from longcrawl.formats.shards.spec import FORMATS, read_description
from longcrawl.storage.stored_tables import read_table, write_table

Open = Callable[[str], TokenShard]
"""Opens a shard of the output by its name."""


def without_documents(folder: Path, name: str, ids: pa.Array, opened: Open, settings: dict[str, Any]) -> Removal:
    """Write the shards that hold some documents again without them; see :class:`longcrawl.core.results.Result`.

    A shard that keeps none is no more, and the last one of its folder takes its number.

    Args:
        folder: of the output.
        name: of its format.
        ids: of the documents, strings.
        opened: opens a shard by its name.
        settings: of the format's ``write`` that the description does not have.
    """
    changes, proof, shards = Changes(folder, read_description(folder, name)), Proof(TOKENS), list[_Shard]()
    for table in [table for table in changes.described["files"] if table.startswith("documents/")]:
        if len(rows := rows_of_ids(read_table(folder / table, ["id"]), ids)):
            shards.append(_Shard(table, read_table(folder / table), rows))
            shards[-1].note(opened, proof)
    for shard in shards:
        _rewrite(changes, name, shard, opened, settings, proof)
    empty = [table for table in changes.changed if table.startswith("documents/") and table in changes.dropped]
    for table in sorted(empty, reverse=True):
        _fill_number(changes, name, table)
    return changes.finish(f"{name}.json", sum(len(shard.gone) for shard in shards), proof)


@dataclass(frozen=True)
class _Shard:
    """A shard that holds documents which go.

    Attributes:
        table: the name of the table of its documents.
        documents: its rows.
        gone: int64, the rows that go.
    """

    table: str
    documents: pa.Table
    gone: Longs

    @property
    def path(self) -> str:
        """The name of the shard."""
        return str(self.documents["shard"][0].as_py())

    @cached_property
    def counts(self) -> Longs:
        """How many entries each document has."""
        return np.asarray(self.documents["entries"].to_numpy(), np.int64)

    @cached_property
    def here(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Which documents stay."""
        here = np.ones(len(self.counts), bool)
        here[self.gone] = False
        return here

    @property
    def stays(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Which entries stay."""
        return np.repeat(self.here, self.counts)

    def names(self) -> list[bytes]:
        """Return the id of the document of each entry."""
        names = [str(each).encode("utf-8", "surrogatepass") for each in self.documents["id"].to_pylist()]
        return [name for name, count in zip(names, self.counts.tolist(), strict=True) for _ in range(count)]

    def note(self, opened: Open, proof: Proof) -> None:
        """Note what is in the shard."""
        shard = opened(self.path)
        for entry, (name, kept) in enumerate(zip(self.names(), self.stays.tolist(), strict=True)):
            proof.before(name, np.asarray(shard.document(entry)), kept=kept)


def _rewrite(changes: Changes, name: str, held: _Shard, opened: Open, settings: dict[str, Any], proof: Proof) -> None:
    path, table, stays, shard = held.path, held.table, held.stays, opened(held.path)
    rows, counts, here = held.gone, held.counts, held.here
    lost = {"documents": len(rows), "entries": int((~stays).sum()), "tokens": _tokens(shard, ~stays)}
    _count(changes.described, path, lost)
    beside = [each for each in changes.described["files"] if _of_shard(each, path)]
    if not here.any():
        _count(changes.described, path, {"shards": 1})
        changes.changed.append(table)
        changes.drop(*beside, table)
        return
    kept = _entries(shard, np.flatnonzero(stays))
    given = {
        "end_of_text": changes.described["end_of_text"],
        "terminate": "never",
        "vocabulary_size": changes.described.get("vocabulary_size"),
        "dtype": str(shard.tokens.dtype),
        **settings,
    }
    if shard.tokenizer is not None:
        given["tokenizer"] = shard.tokenizer
    form = FORMATS[name]
    # The arrays are mapped: their file keeps its bytes under no name until they are let go.
    form.write([kept], changes.folder / path, **form.settings("write", given))
    ends = np.cumsum(counts[here])
    left = held.documents.filter(pa.array(here))
    place = left.column_names.index("entry")
    left = left.set_column(place, "entry", pa.array(ends - counts[here])).combine_chunks()
    write_table(left, changes.folder / table, compression="zstd", compression_level=3)
    changes.changed += [*beside, table]
    again = opened(path)
    kept_names = [name_of for name_of, stay in zip(held.names(), stays.tolist(), strict=True) if stay]
    for entry, name_of in enumerate(kept_names):
        proof.after(name_of, np.asarray(again.document(entry)))
    proof.look([np.asarray(again.tokens)])


def _tokens(shard: TokenShard, entries: Any) -> int:
    return int(np.diff(np.asarray(shard.ends), prepend=0)[entries].sum())


def _entries(shard: TokenShard, entries: Any) -> Documents:
    """Return some entries of a shard, copied."""
    ends = np.asarray(shard.ends)
    lengths = np.diff(ends, prepend=0).astype(np.int64)[entries]
    starts = ends[entries] - lengths
    places = np.arange(int(lengths.sum())) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    overlaps = None if shard.overlaps is None else np.asarray(shard.overlaps)[entries].astype(np.int64)
    mask = None if shard.loss_mask is None else np.asarray(shard.loss_mask)[places]
    return Documents(np.asarray(shard.tokens)[places], lengths, overlaps, mask)


def _of_shard(name: str, shard: str) -> bool:
    """Return whether a file is a shard's, or lies beside it and belongs to it."""
    stem = shard.rpartition(".")[0]
    return name.startswith(f"{stem}.") and not name.startswith("documents/")


def _count(described: dict[str, Any], path: str, lost: dict[str, int]) -> None:
    """Subtract from the counts of a shard's split, and of its bucket."""
    split, _, rest = path.partition("/")
    groups = [described["splits"]]
    if "buckets" in described:
        groups += [each["splits"] for each in described["buckets"] if each["folder"] == rest.partition("/")[0]]
    for splits in groups:
        for name, count in lost.items():
            splits[split][name] -= count


def _fill_number(changes: Changes, name: str, table: str) -> None:
    """Name the last shard of a folder by the number of one that is no more."""
    folder = table.rpartition("/")[0]
    others = [
        each for each in changes.described["files"] if each.startswith(f"{folder}/") and each not in changes.dropped
    ]
    last = max((each for each in others if each.rpartition("/")[0] == folder), default="")
    if last <= table:
        return
    suffix = FORMATS[name].suffix
    old, new = (each.removeprefix("documents/").removesuffix(".parquet") for each in (last, table))
    documents = read_table(changes.folder / last)
    names = pa.repeat(f"{new}{suffix}", documents.num_rows)
    documents = documents.set_column(documents.column_names.index("shard"), "shard", names)
    for each in [each for each in changes.described["files"] if _of_shard(each, f"{old}{suffix}")]:
        there = changes.folder / each
        there.rename(changes.folder / f"{new}{each.removeprefix(old)}")
        changes.dropped.append(each)
        moved = f"{new}{each.removeprefix(old)}"
        changes.changed.append(moved)
        if moved in changes.dropped:
            changes.dropped.remove(moved)
    write_table(documents, changes.folder / table, compression="zstd", compression_level=3)
    changes.dropped.remove(table)
    changes.drop(last)
