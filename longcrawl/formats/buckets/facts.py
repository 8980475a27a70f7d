"""Summary, card, verification, inspection and removal for bucketed datasets.

A removed document keeps its row, with no tokens and no origin, so that the numbers of the others do not change.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.display import Column, Table, table
from longcrawl.core.outputs import Inspection, Output, Result, TokenRows, result
from longcrawl.core.removal import PROOF_TOKENS, Changes, Longs, Proof, Removal, filled_holes, rows_of_ids
from longcrawl.errors import FormatError, as_lines, printable
from longcrawl.formats.buckets import spec
from longcrawl.formats.buckets.write import ComposedOutput, bucket_identity, composition_numbers, composition_of
from longcrawl.formats.rectangle.spec import LOSS_MASK_SUFFIX as MASK
from longcrawl.formats.rectangle.write import Layout, lay_out, write_band
from longcrawl.formats.shards.shard import BLOCK_TOKENS, N_TOKENS, Documents, token_table
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.formats.token_output import decode_document
from longcrawl.io.stored_tables import read_table, write_table
from longcrawl.io.structured import Verification
from longcrawl.tokens.measures import combine, legend_of, measure
from longcrawl.tokens.plan import JOINED, Plan, joined_pieces

ATTRIBUTES = ("end_of_text", "vocabulary_size", "tokenizer", "json_escaped")
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
TABLE = {"compression": "zstd", "compression_level": 3}


def without_documents(folder: Path, ids: pa.Array, layouts: Mapping[int, dict[str, Layout]]) -> Removal:
    """Rewrite the files that contain some documents; see :class:`longcrawl.core.outputs.Result`.

    ``layouts`` has for each capacity the layouts of a bucket's arrays by the suffixes of their paths; {} for shards.
    """
    changes, proof, gone = Changes(folder, dict(spec.read_description(folder))), Proof(PROOF_TOKENS), 0
    opened = spec.open_composed(folder)
    groups: dict[str, list[_Rewriting]] = {}
    for path in dict.fromkeys(bucket.path.rpartition("/")[0] for bucket in opened.buckets):
        if len(removed := _forget(changes, path, ids)):
            gone += len(removed)
            buckets = (each for each in opened.buckets if each.path.rpartition("/")[0] == path)
            groups[path] = [_Rewriting(each, changes, removed) for each in buckets]
            for rewriting in groups[path]:
                rewriting.note(proof)
    for path, rewritings in groups.items():
        kept = [each.write(layouts.get(each.bucket.capacity, {}), proof) for each in rewritings]
        _measure(changes, path, [each.bucket.capacity for each in rewritings], kept)
    if gone:
        changes.described["buckets"] = [each for each in changes.described["buckets"] if each["samples"]]
        if layouts:
            _lay_out(changes, layouts)
        _identify(changes)
    return changes.finish(spec.DESCRIPTION, gone, proof)


def _tables(changes: Changes, path: str) -> list[str]:
    begins = f"documents/{path}/"
    names = [name for name in changes.described["files"] if name.startswith(begins)]
    return sorted(name for name in names if "/" not in name.removeprefix(begins))


def _forget(changes: Changes, path: str, ids: pa.Array) -> Longs:
    """Blank the rows of some documents in the tables of a split or domain, and return their numbers, ascending."""
    found = [np.empty(0, np.int64)]
    for number, name in enumerate(_tables(changes, path)):
        table = read_table(changes.folder / name)
        rows = rows_of_ids(table, ids)
        if len(rows):
            found.append(rows + number * spec.FILE_DOCUMENTS)
            stays = np.ones(table.num_rows, bool)
            stays[rows] = False
            nothing = {
                each: pa.scalar(0 if each == N_TOKENS else None, table[each].type) for each in table.column_names
            }
            columns = {each: pc.if_else(pa.array(stays), table[each], value) for each, value in nothing.items()}
            write_table(pa.table(columns, schema=table.schema).combine_chunks(), changes.folder / name, **TABLE)
            changes.changed.append(name)
    return np.concatenate(found)


class _Rewriting:
    def __init__(self, bucket: spec.ComposedBucket, changes: Changes, gone: Longs) -> None:
        self.bucket, self.changes, step = bucket, changes, bucket.file_samples
        self.names = sorted(name for name in changes.described["files"] if name.startswith(f"pieces/{bucket.path}/"))
        pieces = [read_table(changes.folder / name) for name in self.names]
        self.table = pa.concat_tables(pieces).combine_chunks()
        self.stays = np.asarray(~np.isin(self.table["document"].to_numpy(), gone))
        self.owners = np.asarray(self.table["sample"].to_numpy(), np.int64)
        # The number of kept pieces of each sample, and the old number of each new sample: those from the end replace
        # empty ones.
        self.counts: Longs = np.asarray(np.bincount(self.owners[self.stays], minlength=len(bucket)), np.int64)
        self.source = filled_holes(len(bucket), np.flatnonzero(self.counts == 0))
        count = -(-len(self.source) // step)
        moved = np.flatnonzero(self.source != np.arange(len(self.source))).tolist()
        touched = np.unique(self.owners[~self.stays]).tolist()
        short = len(self.source) < len(bucket) and len(self.source) % step
        found = {sample // step for sample in (*moved, *touched)} & set(range(count))
        self.dirty = sorted(found | ({count - 1} if short else set()))
        self.dropped = range(count, len(self.names))

    def of(self, samples: Longs, first: int) -> pa.Table:
        """Return a table of the kept pieces of some samples, which are renumbered from ``first``."""
        bounds = np.searchsorted(self.owners, np.stack([samples, samples + 1])).T.tolist()
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(*each) for each in bounds)])
        table = self.table.take(pa.array(rows[self.stays[rows]])).combine_chunks()
        counts = self.counts[samples]
        columns = {"sample": pa.array(np.repeat(np.arange(len(samples)) + first, counts))}
        if JOINED in table.column_names:
            # A removed piece may have separated two chunks of a document, or been one of them.
            ends = np.concatenate([[0], np.cumsum(counts)])
            columns[JOINED] = pa.array(joined_pieces(ends, table["document"].to_numpy()))
        for name, values in columns.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table

    def note(self, proof: Proof) -> None:
        step = self.bucket.file_samples
        for number in (*self.dirty, *self.dropped):
            samples = np.arange(number * step, min((number + 1) * step, len(self.bucket)))
            for row, tokens, _ in self._contents(samples):
                proof.before(_name(self.table, row), tokens, kept=bool(self.stays[row]))

    def write(self, layouts: dict[str, Layout], proof: Proof) -> pa.Table:
        changes, step = self.changes, self.bucket.file_samples
        for number in self.dirty:
            chosen = self.source[number * step : (number + 1) * step]
            table = self.of(chosen, number * step)
            self._write_file(number, chosen, layouts, table, proof)
            write_table(table, changes.folder / self.names[number], **TABLE)
            changes.changed.append(self.names[number])
        for number in self.dropped:
            changes.drop(self.names[number], *self._files(number))
        entry = next(each for each in changes.described["buckets"] if each["path"] == self.bucket.path)
        kept = self.of(self.source, 0)
        heads, tokens = int((kept["start"].to_numpy() == 0).sum()), int(pc.sum(kept["length"]).as_py() or 0)
        entry |= {"samples": len(self.source), "pieces": kept.num_rows, "documents": heads, "tokens": tokens}
        return kept

    def _contents(self, samples: Longs) -> "Iterator[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]":
        for sample in samples.tolist():
            read, place = self.bucket.read([sample]), 0
            first, stop = np.searchsorted(self.owners, [sample, sample + 1]).tolist()
            for row, size in enumerate(self.table["length"][first:stop].to_pylist(), first):
                yield row, read.tokens[0, place : place + size], read.loss_mask[0, place : place + size]
                place += size

    def _write_file(
        self, number: int, samples: Longs, layouts: dict[str, Layout], table: pa.Table, proof: Proof
    ) -> None:
        bucket, changes = self.bucket, self.changes
        there = [(tokens, mask) for row, tokens, mask in self._contents(samples) if self.stays[row]]
        for row, (tokens, _) in enumerate(there):
            proof.after(_name(table, row), tokens)
            proof.look([tokens])
        owners = np.repeat(np.arange(len(samples)), self.counts[samples])
        sizes = np.array([len(tokens) for tokens, _ in there], np.int64)
        lengths = np.bincount(owners, sizes, len(samples)).astype(np.int64)
        flat, flags = (np.concatenate(each) for each in zip(*there, strict=True))
        if not layouts:
            form = FORMATS[bucket.stored_as]
            given = {"end_of_text": bucket.end_of_text, "terminate": "never", "dtype": bucket.dtype}
            given["vocabulary_size"] = changes.described.get("vocabulary_size")
            path = f"{bucket.path}/{number:05d}{form.suffix}"
            entries = Documents(flat, lengths, None, flags if bucket.masked else None)
            form.write([entries], changes.folder / path, **form.settings("write", given))
            changes.changed += self._files(number)
            return
        filled = np.arange(bucket.capacity) < lengths[:, None]
        for suffix, layout in layouts.items():
            values = np.full((layout.whole_chunks(len(samples)), bucket.capacity), layout.fill_value, layout.dtype)
            # Padding in a sample has no loss; rows after the last sample keep the fill value.
            values[: len(samples)] = False if suffix else layout.fill_value
            values[: len(samples)][filled] = flags if suffix else flat
            changes.changed += write_band(changes.folder, f"{bucket.path}{suffix}", number, values, layout)

    def _files(self, number: int) -> list[str]:
        path = self.bucket.path
        begins = [f"{path}/{number:05d}."]
        if self.bucket.stored_as == "zarr":
            begins = [f"{path}{suffix}/{part}" for suffix in ("", MASK) for part in (f"c/{number}/", f"{number}.")]
        return [name for name in self.changes.described["files"] if name.startswith(tuple(begins))]


def _name(table: pa.Table, row: int) -> bytes:
    return f"{table['document'][row]}/{table['start'][row]}".encode()


def _measure(changes: Changes, path: str, sizes: Sequence[int], tables: Sequence[pa.Table]) -> None:
    """Measure a split or domain again, from the capacities of its buckets and their remaining pieces."""
    described = changes.described
    # The description still has the sizes of the tables before the rewriting.
    names = [changes.folder / name for name in _tables(changes, path)]
    documents = pa.concat_tables([pq.read_table(name, columns=[N_TOKENS], partitioning=None) for name in names])
    counts = [np.bincount(table["sample"].to_numpy()) for table in tables]
    capacities = np.repeat(sizes, [len(each) for each in counts])
    bounds = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    pieces = {
        name: np.concatenate([table[column].to_numpy() for table in tables])
        for name, column in (("documents", "document"), ("starts", "start"), ("sizes", "length"))
    }
    split, _, folder = path.partition("/")
    domain = next((each["domain"] for each in described.get("domains", ()) if each["folder"] == folder), None)
    once = described["strategy"] == "interleaved" and domain not in described["padded_domains"]
    plan = Plan(documents[N_TOKENS].to_numpy(), capacities, bounds, **pieces, omitted=int(once))
    label = described["splits"][split]["label"]
    found = measure(plan, label, described["capacities"])
    if "domains" in described:
        for each in described["domains"]:
            if (each["split"], each["folder"]) == (split, folder):
                each.update(composition_numbers(found))
        of_split = [composition_of(each) for each in described["domains"] if each["split"] == split]
        found = combine(of_split, label)
    if split == "train" and not found.samples:
        raise FormatError("no samples would remain to train on: run the recipe again without the documents")
    described["splits"][split] = composition_numbers(found)


def _lay_out(changes: Changes, layouts: Mapping[int, dict[str, Layout]]) -> None:
    described, folder = changes.described, changes.folder
    gone = {each.path for each in spec.open_composed(folder).buckets} - {each["path"] for each in described["buckets"]}
    for name in list(described["files"]):
        if name.rpartition("/")[0].removesuffix(MASK) in gone:
            changes.drop(name)
    arrays = {
        f"{each['path']}{suffix}": (layout, each["samples"])
        for each in described["buckets"]
        for suffix, layout in layouts[each["capacity"]].items()
    }
    attributes = {name: described[name] for name in ATTRIBUTES} | ({"loss_mask": True} if described["masked"] else {})
    changes.changed += lay_out(folder, arrays, attributes)


def _identify(changes: Changes) -> None:
    described = changes.described
    for each in described["buckets"]:
        begins = (f"{each['path']}/", f"{each['path']}{MASK}/", f"pieces/{each['path']}/")
        names = {name for name in (*described["files"], *changes.changed) if name.startswith(begins)}
        names = {name for name in names - set(changes.dropped) if name.rpartition("/")[2] not in METADATA}
        digests = [(name, changes.entry(name)["sha256"]) for name in sorted(names)]
        about = [described["stored_as"], described["dtype"], described["loss_mask"], described["end_of_text"]]
        each["identity"] = bucket_identity(about, each["samples"], digests)


BUCKETS = """@misc{liu2024bucket,
  title = {Bucket Pre-training is All You Need},
  author = {Liu, Hongtao and Peng, Qiyao and Yang, Qing and Liu, Kai and Xu, Hongyan},
  year = {2024},
  eprint = {2407.07495},
  archivePrefix = {arXiv}
}"""
MOST_PIECES = 10
SEQ_LENGTHS = "seq_lengths"
"""Column with the tokens of each piece of a sample, named as in TRL."""


@dataclass(frozen=True, kw_only=True)
class ComposedInspection(Inspection):
    """Description of one split of a composed dataset, with one of its samples."""

    counts: Mapping[str, int]
    """Number of samples in each bucket of the split, by its path."""
    dtype: str
    stored_bytes: int
    bucket: str
    sample: int
    """The sample's number within its bucket."""
    capacity: int
    pieces: tuple[Mapping[str, Any], ...]
    """Rows of the table of pieces."""
    lossless: int
    """Tokens of the sample without a loss, including padding."""

    def __str__(self) -> str:
        held = ", ".join(f"{path} {count:,} samples" for path, count in self.counts.items())
        tokens = sum(piece["length"] for piece in self.pieces)
        of = f"{tokens:,} tokens of {len(self.pieces):,} pieces, {self.capacity - tokens:,} of padding"
        lines = [
            f"{self.path}  split {self.split}: {held}, {self.dtype}",
            f"{self.stored_bytes:,} bytes stored",
            f"sample {self.row}: {self.bucket} number {self.sample:,}; {of}; no loss on {self.lossless:,}",
        ]
        for piece in self.pieces[:MOST_PIECES]:
            name = piece.get("id") or f"document {piece['document']:,}"
            stop = piece["start"] + piece["length"]
            part = "a chunk" if any(each.get(JOINED) for each in self.pieces) else "cut"
            whole = "whole" if piece["head"] and piece["tail"] else part
            lines.append(f"  {name}  {piece.get('url') or ''}  tokens {piece['start']:,} to {stop:,}, {whole}")
        if len(self.pieces) > MOST_PIECES:
            lines.append(f"  and {len(self.pieces) - MOST_PIECES:,} more")
        shown = "  (no tokenizer to decode it)" if self.text is None else printable(self.text)
        return f"{as_lines(lines)}\n{shown}"

    __repr__ = __str__


@dataclass(frozen=True)
class ComposedRows(TokenRows):
    """Samples of one split without padding, bucket after bucket; one block is in memory at a time."""

    buckets: tuple[spec.ComposedBucket, ...]
    rows: int
    tokens: int

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield blocks of samples: ``capacity``, ``domain`` if there are domains, ``seq_lengths`` and tokens."""
        before = 0
        for bucket in self.buckets:
            step = max(BLOCK_TOKENS // bucket.capacity, 1)
            last = min(stop - before, len(bucket))
            for first in range(max(start - before, 0), last, step):
                yield self._read_block(bucket, np.arange(first, min(first + step, last)))
            before += len(bucket)

    def _read_block(self, bucket: spec.ComposedBucket, samples: Longs) -> pa.Table:
        found = bucket.read(samples)
        lengths = np.array([sizes.sum() for sizes in found.piece_sizes], np.int64)
        filled = np.arange(bucket.capacity) < lengths[:, None]
        names = {"capacity": pa.array(np.full(len(samples), bucket.capacity), pa.int64())}
        if any(each.domain for each in self.buckets):
            names |= {"domain": pa.array([bucket.domain] * len(samples), pa.string())}
        pieces = pa.array([sizes.tolist() for sizes in found.piece_sizes], pa.list_(pa.int32()))
        flags = found.loss_mask[filled] if bucket.masked else None
        return token_table(pa.table(names), found.tokens[filled], lengths, flags, **{SEQ_LENGTHS: pieces})


@result
class ComposedResult(Result):
    """Samples in buckets for a loader, with plain tables of their pieces and documents."""

    name: ClassVar[str] = "composed"
    description: ClassVar[str] = spec.DESCRIPTION
    tags: ClassVar[tuple[str, ...]] = ("pretokenized", "packed")
    citation: ClassVar[str] = BUCKETS
    fewer_files: ClassVar[str] = "a larger composed.shard_bytes"
    smaller_files: ClassVar[str] = "a smaller composed.shard_bytes"
    feed: ClassVar[str] = "buckets"
    lengths: ClassVar[str] = "documents/**/*.parquet"
    lengths_are_ended: ClassVar[bool] = True

    def documents(self, described: Mapping[str, Any]) -> int:
        """Return the number of documents, including those without tokens."""
        return sum(each["documents"] + each["empty_documents"] for each in described["splits"].values())

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return the samples of each split and the measures of the composition."""
        parts = []
        for split, counts in described["splits"].items():
            sizes = {each["capacity"] for each in described["buckets"] if each["split"] == split}
            measures = f"r_pad {counts['r_pad']:.2%}, r_tru {counts['r_tru']:.2%}, r_cat {counts['r_cat']:.2f}"
            if counts.get("compared_pairs"):
                measures += f", related {counts['related']:.3f} ({counts['related_by_chance']:.3f} by chance)"
            samples = f"{counts['samples']:,} samples of {', '.join(f'{size:,}' for size in sorted(sizes))} tokens"
            parts.append(f"{split} {samples} of {counts['documents']:,} documents: {measures}")
        return "; ".join(parts)

    def read_back(self, folder: Path) -> str:
        """Read the first samples as a loader would, and describe them."""
        bucket = next(each for each in spec.open_composed(folder).buckets if each.split == "train")
        samples = bucket.read(np.arange(min(8, len(bucket))))
        shape, kept = tuple(samples.tokens.shape), float(samples.loss_mask.mean())
        return f"{bucket.path}: tokens {samples.tokens.dtype} {shape}, {kept:.1%} of them in the loss"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables, and the samples by capacity if plain `datasets` reads their format."""
        depth = "*/" if "domains" in described else ""
        capacities = sorted({each["capacity"] for each in described["buckets"]})
        places = {"pieces": f"pieces/{{}}/{depth}*/*.parquet", "documents": f"documents/{{}}/{depth}*.parquet"}
        if described["stored_as"] == "token-parquet":
            places = {str(each): f"{{}}/{depth}{each}/*.parquet" for each in capacities} | places
        configs: list[dict[str, Any]] = []
        for name, place in places.items():
            here = [each for each in described["buckets"] if not name.isdigit() or each["capacity"] == int(name)]
            splits = described["splits"] if name == "documents" else dict.fromkeys(each["split"] for each in here)
            files = [{"split": split, "path": f"composed/{place.format(split)}"} for split in splits]
            configs.append({"config_name": name, "data_files": files} | ({} if configs else {"default": True}))
        return configs

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of the splits, and the definition of a sample."""
        counts = ("samples", "documents", "tokens")
        splits = sorted(described["splits"].items(), reverse=True)
        rows = [[split, *(each[name] for name in counts)] for split, each in splits]
        shown = Table([Column("split"), *(Column(name, "count") for name in counts)], rows).markdown()
        about = (
            "A sample is whole documents and parts of documents end to end, filled up to the capacity of its bucket."
        )
        if described.get(JOINED):
            about += (
                " Where it has chunks of a document with others between, it is one text: attention and positions run "
                f"on in pieces that are `{JOINED}`."
            )
        return f"{shown}\n\n{about}"

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # all is described
        """Return the measures of each split, with its buckets, and a table of the domains."""
        parts, measured = [], []
        for split, counts in sorted(described["splits"].items(), reverse=True):
            measured.append(composition_of(counts))
            parts += [f"**{split}**", measured[-1].markdown()]
        if "domains" in described:
            head = ["split", "domain", "documents", "samples", "r_pad %", "r_tru %", "r_cat"]
            rows = []
            for each in described["domains"]:
                measures = [f"{100 * each['r_pad']:.4f}", f"{100 * each['r_tru']:.2f}", f"{each['r_cat']:.2f}"]
                counts = [f"{each[name]:,}" for name in ("documents", "samples")]
                rows.append([each["split"], f"`{each['folder']}`", *counts, *measures])
            parts.append(table(head, rows, 5))
        return "\n\n".join([*parts, legend_of(measured)])

    def cut(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # all is described
        """Describe the share of training tokens that are in no sample."""
        dropped = described["splits"]["train"]["dropped"]
        return f"{dropped:.2%} of the tokens of `train` are in no sample." if dropped else ""

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of one training bucket, and code that reads its format directly."""
        bucket = next(each for each in described["buckets"] if each["split"] == "train")
        shard = f"composed/{bucket['path']}/00000"
        if described["stored_as"] == "zarr":
            directly = f'zarr.open_group("composed", mode="r")["{bucket["path"]}"]'
            code = f"import zarr\n\nrows = {directly}  # (samples, {bucket['capacity']})"
        else:
            suffix = FORMATS[described["stored_as"]].suffix
            code = (
                f"import longcrawl as lc\n\nshard = lc.formats.open_shard("
                f'"{shard}{suffix}", end_of_text={described["end_of_text"]})\n'
                "shard.document(0)  # the first sample, without its padding"
            )
        return {
            "capacity": str(bucket["capacity"]),
            "domain": f", domain={json.dumps(bucket['domain'], ensure_ascii=False)}" if bucket["domain"] else "",
            "directly": code,
            "stored_as": "rows of Zarr arrays" if described["stored_as"] == "zarr" else "entries of token shards",
        }

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe the token type, masked tokens, and tokens and documents that are in no sample."""
        end, train = described["end_of_text"], described["splits"]["train"]
        fills = "It also fills samples up, where no loss is due: their pieces say how long they are."
        once = described["strategy"] == "interleaved"
        ends = "ends samples of interleaved documents with room for it" if once else "ends each document"
        limits = [f"Tokens are {described['dtype']}; token {end} {ends}. {fills}"]
        if described.get(JOINED) and not once:
            limits.append(
                f"Samples with chunks of a document are one text with token {end} within: readers that begin again "
                "after it hide the far context."
            )
        if described["json_escaped"]:
            limits.append("Tokens are those of JSON-escaped text: a newline is a backslash and an n.")
        if described["loss_mask"]:
            limits.append("Some tokens are masked: compute no loss where the loss mask is false.")
        if described["masked"] and described["stored_as"] not in spec.HOLDS_MASK:
            limits.append(f"Documents had a loss mask, which {described['stored_as']} does not hold: it is lost.")
        if train["dropped"]:
            limits.append(f"{train['dropped']:.2%} of the tokens are in no sample.")
        if train["empty_documents"]:
            limits.append(f"{train['empty_documents']:,} documents of train have no tokens and are in no sample.")
        return limits

    def verify(self, folder: Path) -> Verification:
        """Compare every file with its checksum, and report files that the description does not list."""
        return Verification.by_description(folder, spec.DESCRIPTION, spec.read_description(folder))

    def inspect(self, folder: Path, split: str, row: int) -> ComposedInspection:
        """Describe a split and return one of its samples; buckets are numbered one after the other."""
        opened = spec.open_composed(folder)
        buckets = [each for each in opened.buckets if each.split == split]
        if not buckets:
            known = ", ".join(dict.fromkeys(each.split for each in opened.buckets))
            raise FormatError(f"{folder} has no split {split!r}; known: {known}")
        if not 0 <= row < (total := sum(map(len, buckets))):
            raise FormatError(f"{folder} split {split!r} has samples 0 to {total - 1:,}, not {row}")
        ends = np.cumsum([*map(len, buckets)])
        place = int(np.searchsorted(ends, row, "right"))
        bucket, sample = buckets[place], row - int(ends[place] - len(buckets[place]))
        read = bucket.read([sample])
        table_of_pieces = folder / "pieces" / bucket.path / f"{sample // bucket.file_samples:05d}.parquet"
        pieces = read_table(table_of_pieces, condition=pc.field("sample") == sample).to_pylist()
        files = opened.described["files"].items()
        return ComposedInspection(
            path=str(folder),
            split=split,
            row=row,
            row_id=pieces[0].get("id"),
            url=pieces[0].get("url"),
            text=decode_document(Path(opened.path), read.tokens[0, : pieces[0]["length"]].tolist(), opened.described),
            counts={each.path: len(each) for each in buckets},
            dtype=bucket.dtype,
            stored_bytes=sum(each["bytes"] for name, each in files if name.startswith(f"{split}/")),
            bucket=bucket.path,
            sample=sample,
            capacity=bucket.capacity,
            pieces=tuple(pieces),
            lossless=int((~read.loss_mask).sum()),
        )

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:
        """Rewrite the files that contain some documents; see :class:`longcrawl.core.outputs.Result`."""
        described = spec.read_description(folder)
        if not isinstance(settings, ComposedOutput):
            raise FormatError(
                f"{folder} was not written by the output composed: run its recipe again without the documents"
            )
        layouts = {}
        if described["stored_as"] == "zarr":
            about = (described["dtype"], described["end_of_text"])
            capacities = {each["capacity"] for each in described["buckets"]}
            layouts = {each: settings.layouts(each, *about, masked=described["masked"]) for each in capacities}
        return without_documents(folder, ids, layouts)

    def token_rows(self, folder: Path) -> dict[str, ComposedRows]:
        """Return the samples of each split that has any."""
        opened = spec.open_composed(folder)
        found = {}
        for split in sorted({each.split for each in opened.buckets}, reverse=True):
            buckets = tuple(each for each in opened.buckets if each.split == split and len(each))
            tokens = sum(each.capacity * len(each) for each in buckets)
            found[split] = ComposedRows(buckets, sum(map(len, buckets)), tokens)
        return {split: each for split, each in found.items() if each.rows}
