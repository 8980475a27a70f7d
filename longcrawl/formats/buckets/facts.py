"""Summary, card text, verification and inspection of bucketed datasets."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.composition.measures import legend_of
from longcrawl.composition.plan import JOINED
from longcrawl.core.outputs import Output
from longcrawl.core.removal import Removal
from longcrawl.core.results import Inspection, Result, TokenRows, Verification, result
from longcrawl.display.markdown import table
from longcrawl.display.table import Column, Table
from longcrawl.errors import FormatError
from longcrawl.formats.buckets import spec
from longcrawl.formats.buckets._remove import without_documents
from longcrawl.formats.buckets.build import composition_of
from longcrawl.formats.buckets.write import ComposedOutput
from longcrawl.formats.shards.shard import BLOCK_TOKENS
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.formats.token_output import decode_beginning
from longcrawl.formats.token_rows import token_table
from longcrawl.printable import as_lines, printable
from longcrawl.storage.stored_tables import read_table

BUCKETS = """@misc{liu2024bucket,
  title = {Bucket Pre-training is All You Need},
  author = {Liu, Hongtao and Peng, Qiyao and Yang, Qing and Liu, Kai and Xu, Hongyan},
  year = {2024},
  eprint = {2407.07495},
  archivePrefix = {arXiv}
}"""
MOST_PIECES = 10
SEQ_LENGTHS = "seq_lengths"
"""The column of the tokens of each piece of a sample, as TRL names it."""


@dataclass(frozen=True, kw_only=True)
class ComposedInspection(Inspection):
    """What one split of a composed dataset holds, and one of its samples."""

    counts: Mapping[str, int]
    """Samples of each bucket of the split, by its path."""
    dtype: str
    stored_bytes: int
    bucket: str
    sample: int
    """The sample's number within its bucket."""
    capacity: int
    pieces: tuple[Mapping[str, Any], ...]
    """Rows of the piece table."""
    lossless: int
    """Tokens of the sample that no loss is due on, padding included."""

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


@dataclass(frozen=True)
class ComposedRows(TokenRows):
    """The samples of one split, bucket after bucket, without padding; memory holds a block of them."""

    buckets: tuple[spec.ComposedBucket, ...]
    rows: int
    tokens: int

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield blocks of samples: ``capacity``, ``domain`` where there are some, ``seq_lengths`` and tokens."""
        before = 0
        for bucket in self.buckets:
            step = max(BLOCK_TOKENS // bucket.capacity, 1)
            last = min(stop - before, len(bucket))
            for first in range(max(start - before, 0), last, step):
                yield self._read_block(bucket, np.arange(first, min(first + step, last)))
            before += len(bucket)

    def _read_block(
        self, bucket: spec.ComposedBucket, samples: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    ) -> pa.Table:
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
    """Samples in buckets for a loader, and tables that say what they were made of for everybody."""

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
        """Count the documents, those without tokens included."""
        return sum(each["documents"] + each["empty_documents"] for each in described["splits"].values())

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return samples of every split and the measures of the composition."""
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
        """Read the first samples as a loader would, and say what came."""
        bucket = next(each for each in spec.open_composed(folder).buckets if each.split == "train")
        samples = bucket.read(np.arange(min(8, len(bucket))))
        shape, kept = tuple(samples.tokens.shape), float(samples.loss_mask.mean())
        return f"{bucket.path}: tokens {samples.tokens.dtype} {shape}, {kept:.1%} of them in the loss"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables; samples too, by capacity, where plain `datasets` reads their format."""
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
        """Return a table of the splits."""
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
        """Return the measures of each split, and the table of its buckets."""
        parts, measured = [], []
        for split, counts in sorted(described["splits"].items(), reverse=True):
            measured.append(composition_of(counts))
            parts += [f"**{split}**", measured[-1].markdown()]
        if "domains" in described:
            head = ["split", "domain", "documents", "samples", "r_pad %", "r_tru %", "r_cat"]
            parts.append(table(head, map(_domain_row, described["domains"]), 5))
        return "\n\n".join([*parts, legend_of(measured)])

    def cut(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # all is described
        """Describe how many of the tokens to train on no sample holds."""
        dropped = described["splits"]["train"]["dropped"]
        return f"{dropped:.2%} of the tokens of `train` are in no sample." if dropped else ""

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return a bucket, and how its format is read directly."""
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
        """Describe what tokens are, what no loss is due on, and what is missing."""
        end, train = described["end_of_text"], described["splits"]["train"]
        fills = "It also fills samples up, where no loss is due: their pieces say how long they are."
        limits = [f"Tokens are {described['dtype']}; token {end} ends each document. {fills}"]
        if described.get(JOINED):
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
        """Compare every file with its checksum, and find those that are not described."""
        return Verification.by_description(folder, spec.DESCRIPTION, spec.read_description(folder))

    def inspect(self, folder: Path, split: str, row: int) -> ComposedInspection:
        """Return how much a split holds, and one sample; buckets come one after the other."""
        opened = spec.open_composed(folder)
        buckets = [each for each in opened.buckets if each.split == split]
        if not buckets:
            known = ", ".join(dict.fromkeys(each.split for each in opened.buckets))
            raise FormatError(f"{folder} has no split {split!r}; there is: {known}")
        bucket, sample = _sample(buckets, row, f"{folder} split {split!r}")
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
            text=_decoded(opened, read.tokens[0, : pieces[0]["length"]].tolist()),
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
        """Write the files that hold some documents again; see :class:`longcrawl.core.results.Result`."""
        described = spec.read_description(folder)
        if not isinstance(settings, ComposedOutput):
            raise FormatError(f"{folder} is not of the output composed: run its recipe again without the documents")
        layouts = {}
        if described["stored_as"] == "zarr":
            about = (described["dtype"], described["end_of_text"])
            capacities = {each["capacity"] for each in described["buckets"]}
            layouts = {each: settings.layouts(each, *about, masked=described["masked"]) for each in capacities}
        return without_documents(folder, ids, layouts)

    def token_rows(self, folder: Path) -> dict[str, ComposedRows]:
        """Return the samples of every split that has some."""
        opened = spec.open_composed(folder)
        found = {}
        for split in sorted({each.split for each in opened.buckets}, reverse=True):
            buckets = tuple(each for each in opened.buckets if each.split == split and len(each))
            tokens = sum(each.capacity * len(each) for each in buckets)
            found[split] = ComposedRows(buckets, sum(map(len, buckets)), tokens)
        return {split: each for split, each in found.items() if each.rows}


def _domain_row(row: Mapping[str, Any]) -> list[str]:
    measures = [f"{100 * row['r_pad']:.4f}", f"{100 * row['r_tru']:.2f}", f"{row['r_cat']:.2f}"]
    return [row["split"], f"`{row['folder']}`", f"{row['documents']:,}", f"{row['samples']:,}", *measures]


def _sample(buckets: list[spec.ComposedBucket], row: int, where: str) -> tuple[spec.ComposedBucket, int]:
    total = sum(map(len, buckets))
    if not 0 <= row < total:
        raise FormatError(f"{where} has samples 0 to {total - 1:,}, not {row}")
    for bucket in buckets:
        if row < len(bucket):
            break
        row -= len(bucket)
    return bucket, row


def _decoded(opened: spec.Composed, tokens: list[int]) -> str | None:
    """Decode the beginning of a piece; one that begins within an escape stays escaped."""
    folder, escaped = Path(opened.path), opened.described["json_escaped"]
    inside = tokens[:-1] if tokens[-1:] == [opened.described["end_of_text"]] else tokens
    try:
        return decode_beginning(folder, inside, json_escaped=escaped)
    except ValueError:
        return decode_beginning(folder, inside, json_escaped=False)
