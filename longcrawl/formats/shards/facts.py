"""Summary, card, verification, inspection and removal for token shards."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import Code, Column, Table, counted
from longcrawl.core.outputs import Inspection, Output, Result, TokenRows, Verification, read_template, result
from longcrawl.core.removal import PROOF_TOKENS, Changes, Longs, Proof, Removal, rows_of_ids
from longcrawl.errors import CorruptionError, as_lines, printable
from longcrawl.formats.order import counts_of_split, describe_order
from longcrawl.formats.shards.shard import OVERLAP, Documents, TokenShard
from longcrawl.formats.shards.spec import FORMATS, read_description
from longcrawl.formats.shards.write import ShardOutput
from longcrawl.formats.token_output import decode_beginning
from longcrawl.formats.token_rows import ORIGINS, token_table
from longcrawl.io.stored_tables import read_row, read_table, write_table
from longcrawl.tokens.tokenize import LOSS_MASK

Open = Callable[[str], TokenShard]
"""Opens a shard of the output by its name."""


def without_documents(folder: Path, name: str, ids: pa.Array, opened: Open, settings: dict[str, Any]) -> Removal:
    """Write the shards that hold some documents again without them; see :class:`longcrawl.core.outputs.Result`.

    A shard that keeps none is no more, and the last one of its folder takes its number.

    Args:
        folder: of the output.
        name: of its format.
        ids: of the documents, strings.
        opened: opens a shard by its name.
        settings: of the format's ``write`` that the description does not have.
    """
    changes, proof, shards = Changes(folder, read_description(folder, name)), Proof(PROOF_TOKENS), list[_Shard]()
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


DATATROVE = """@software{penedo2024datatrove,
  title = {{DataTrove}: large scale data processing},
  author = {Penedo, Guilherme and Kydl{\\'i}{\\v{c}}ek, Hynek and Cappelli, Alessandro and Sasko, Mario
    and Wolf, Thomas},
  year = {2024},
  url = {https://github.com/huggingface/datatrove}
}"""
WORDS = {
    "documents": ("document", "documents"),
    "entries": ("entry", "entries"),
    "tokens": ("token", "tokens"),
    "shards": ("shard", "shards"),
}


@dataclass(frozen=True, kw_only=True)
class ShardInspection(Inspection):
    """What one split of token shards holds, and one of its documents."""

    counts: Mapping[str, int]
    """Documents, entries, tokens and shards of the split."""
    dtype: str
    stored_bytes: int
    shard: str
    entry: int
    entries: int
    n_tokens: int

    def __str__(self) -> str:
        held = ", ".join(counted(count, *WORDS[name]) for name, count in self.counts.items())
        windows = f", {self.entries:,} windows" if self.entries > 1 else ""
        lines = [
            f"{self.path}  split {self.split}: {held}, {self.dtype}",
            f"{self.stored_bytes:,} bytes stored",
            f"document {self.row}: {self.row_id or 'without an id'}  {self.url or ''}".rstrip(),
            f"  {self.shard} entry {self.entry:,}{windows}; {self.n_tokens:,} tokens",
        ]
        shown = "  (no tokenizer to decode it)" if self.text is None else printable(self.text)
        return f"{as_lines(lines)}\n{shown}"


@dataclass(frozen=True)
class ShardRows(TokenRows):
    """The entries of one split, documents or windows; memory holds the table of a shard's documents and a block."""

    tables: tuple[Path, ...]
    """Of the documents of each shard, in the order of the shards."""
    entries: tuple[int, ...]
    """Of each shard."""
    rows: int
    tokens: int
    open: Callable[[str], TokenShard]
    """Opens a shard of this output by the name that its table gives; picklable."""
    overlapping: bool
    """Whether the format counts by how much windows overlap."""
    masked: bool
    """Whether a shard of the output has a loss mask."""

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield blocks of entries: what is known of their documents, ``overlap`` of windows, and tokens."""
        before = 0
        for table, entries in zip(self.tables, self.entries, strict=True):
            first, last = max(start - before, 0), min(stop - before, entries)
            if first < last:
                yield from self._read_shard(table, first, last)
            before += entries

    def _read_shard(self, table: Path, first: int, last: int) -> Iterator[pa.Table]:
        documents = read_table(table)
        begins = documents["entry"].to_numpy()
        shard = self.open(documents["shard"][0].as_py())
        origins = documents.select([name for name in ORIGINS if name in documents.column_names])
        for block in shard.blocks(start=first, stop=last):
            count = len(block.lengths)
            owners = np.searchsorted(begins, np.arange(first, first + count), "right") - 1
            flags = block.loss_mask
            if flags is None and self.masked:
                flags = np.ones(len(block.tokens), np.bool_)
            overlaps = np.zeros(count, np.int64) if block.overlaps is None else block.overlaps
            others = {OVERLAP: pa.array(overlaps, pa.int64())} if self.overlapping else {}
            yield token_table(origins.take(pa.array(owners)), block.tokens, block.lengths, flags, **others)
            first += count


class ShardResult(Result):
    """Token shards for a trainer, and tables that say where their documents came from for everybody."""

    tags: ClassVar[tuple[str, ...]] = ("pretokenized",)
    feed: ClassVar[str] = "windows"
    lengths: ClassVar[str] = "documents/**/*.parquet"

    def __init_subclass__(cls) -> None:
        cls.description = f"{cls.name}.json"
        cls.fewer_files = f"a larger {cls.name}.shard_bytes"
        cls.smaller_files = f"a smaller {cls.name}.shard_bytes"

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return tokens, documents and shards of every split."""
        parts = [
            f"{name} {counts['tokens']:,} tokens of {counted(counts['documents'], 'document')} in "
            f"{counted(counts['shards'], 'shard')}"
            for name, counts in described["splits"].items()
        ]
        buckets = described.get("buckets")
        return ", ".join([*parts, *([counted(len(buckets), "bucket")] if buckets else [])])

    def read_back(self, folder: Path) -> str:
        """Open the first shard as a trainer would, and say what came."""
        described = read_description(folder, self.name)
        name = self._first(described)
        shard = self._open(folder, described, name)
        first = ", ".join(map(str, shard.tokens[:4].tolist()))
        return f"{name}: {counted(len(shard), 'entry', 'entries')} of {shard.tokens.dtype} tokens, beginning {first}"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables of where documents came from: plain `datasets` reads no token shards."""
        depth = "*/" if "buckets" in described else ""
        files = [
            {"split": split, "path": f"{self.name}/documents/{split}/{depth}*.parquet"} for split in described["splits"]
        ]
        return [{"config_name": "documents", "data_files": files, "default": True}]

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of what there is, by bucket where there are several."""
        groups = [(each["folder"], each["splits"]) for each in described.get("buckets", [])]
        counts = ("documents", "entries", "tokens", "shards")
        rows = [
            [split, Code(bucket), *(each[name] for name in counts)]
            for bucket, splits in [("all", described["splits"]), *groups]
            for split, each in splits.items()
        ]
        table = Table([Column("split"), Column("bucket"), *(Column(name, "count") for name in counts)], rows)
        about = "An entry is a document with its end-of-text token."
        if described["max_length"] is not None:
            about = (
                "An entry is a document with its end-of-text token, or a window of at most "
                f"{described['max_length']:,} tokens of one; each but the first begins with the last "
                f"{described['overlap_size']:,} of the one before."
            )
        return f"{table.markdown()}\n\n{about} {describe_order(described)}."

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # a trainer composes
        """Report that samples are made by the trainer, and what of the documents is whole."""
        entries = sum(split["entries"] for split in described["splits"].values())
        documents = self.documents(described)
        whole = "Documents are whole: each is one entry."
        if entries > documents:
            whole = f"{documents:,} documents are {entries:,} entries: long ones are windows."
        ways = "`longcrawl compose RUN` says what each way would pad, cut and mix."
        return f"{whole} A trainer makes samples of them; {ways}"

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the first shard, all of them as a pattern, and the end of text."""
        depth = "*/" if "buckets" in described else ""
        suffix = FORMATS[self.name].suffix
        files, shard = f"{self.name}/train/{depth}*{suffix}", f"{self.name}/{self._first(described)}"
        words = {"files": files, "shard": shard, "end_of_text": str(described["end_of_text"])}
        return words | {"format": self.name, "row": "an entry", "settings": "", "given": ""}

    def card_template(self) -> str:
        """Return the section on loading of a card, with what cards of all token shards have in common."""
        shards = read_template("shards.md")
        return super().card_template().replace("$shards", shards.rstrip())

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe what tokens are, and what no loss is due on."""
        limits = [f"Tokens are {described['dtype']}; token {described['end_of_text']} ends each document."]
        if described["json_escaped"]:
            limits.append("Tokens are those of JSON-escaped text: a newline is a backslash and an n.")
        if described["overlap_size"]:
            limits.append("The overlap of a window is context: compute no loss on it, or its tokens count twice.")
        return limits

    def verify(self, folder: Path) -> Verification:
        """Compare every file with its checksum; a shard that is not described would be read with the others."""
        return Verification.by_description(folder, self.description, read_description(folder, self.name))

    def inspect(self, folder: Path, split: str, row: int) -> ShardInspection:
        """Return how much a split holds, and one document; buckets come one after the other."""
        described = read_description(folder, self.name)
        counts = counts_of_split(folder, described, split, row)
        tables = [folder / name for name in described["files"] if name.startswith(f"documents/{split}/")]
        found = read_row(tables, row)
        if found is None:
            raise CorruptionError(
                "the tables hold fewer documents than was described; longcrawl verify says what is wrong"
            )
        shard = self._open(folder, described, found["shard"])
        tokens = shard.tokens[shard.start(found["entry"]) : int(shard.ends[found["entry"]])]
        return ShardInspection(
            path=str(folder),
            split=split,
            row=row,
            row_id=found.get("id"),
            url=found.get("url"),
            text=_decoded(folder, tokens.tolist(), described),
            counts=counts,
            dtype=described["dtype"],
            stored_bytes=sum(
                each["bytes"] for name, each in described["files"].items() if name.startswith(f"{split}/")
            ),
            shard=found["shard"],
            entry=found["entry"],
            entries=found["entries"],
            n_tokens=found["n_tokens"],
        )

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:
        """Write the shards that hold some documents again; see :class:`longcrawl.core.outputs.Result`."""
        described = read_description(folder, self.name)
        given = settings.format_settings() if isinstance(settings, ShardOutput) else {}
        return without_documents(folder, self.name, ids, partial(self._open, folder, described), given)

    def token_rows(self, folder: Path) -> dict[str, ShardRows]:
        """Return the entries of every split, shard after shard."""
        described, form = read_description(folder, self.name), FORMATS[self.name]
        about = {name: value for name, value in described.items() if name != "files"}
        opener = partial(self._open, folder, about)
        shards = [name for name in described["files"] if name.endswith(form.suffix)]
        masked = LOSS_MASK in form.holds and any(opener(name).loss_mask is not None for name in shards)
        overlaps = OVERLAP in form.holds and described.get("max_length") is not None
        found = {}
        for split, counts in described["splits"].items():
            names = [name for name in described["files"] if name.startswith(f"documents/{split}/")]
            tables = tuple(folder / name for name in names)
            entries = tuple(int(pc.sum(read_table(table, ["entries"])["entries"]).as_py()) for table in tables)
            found[split] = ShardRows(tables, entries, sum(entries), counts["tokens"], opener, overlaps, masked)
        return found

    def _first(self, described: Mapping[str, Any]) -> str:
        buckets = described.get("buckets")
        folder = f"train/{buckets[0]['folder']}" if buckets else "train"
        return f"{folder}/00000{FORMATS[self.name].suffix}"

    def _open(self, folder: Path, described: Mapping[str, Any], name: str) -> TokenShard:
        settings: dict[str, Any] = {"end_of_text": described["end_of_text"], "check": "ends"}
        return FORMATS[self.name].open(folder / name, **settings, **self._open_settings(described))

    def _open_settings(self, described: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  # for formats that say less
        """Return what the files do not say of themselves."""
        return {}


@result
class GptSimpleResult(ShardResult):
    """GPT-Simple's shards."""

    name: ClassVar[str] = "gpt-simple"
    feed: ClassVar[str] = "packed"


@result
class DatatroveResult(ShardResult):
    """datatrove's tokenised files."""

    name: ClassVar[str] = "datatrove"
    citation: ClassVar[str] = DATATROVE


@result
class MegatronResult(ShardResult):
    """Megatron-LM's indexed datasets."""

    name: ClassVar[str] = "megatron"


@result
class NanoGptResult(ShardResult):
    """Flat files of tokens."""

    name: ClassVar[str] = "nanogpt"

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return also the type of a token, which flat files do not say."""
        offset = "1024" if described["header"] == "llm.c" else "0"
        settings = f'settings = {{"end_of_text": {described["end_of_text"]}, "token_size": {_width(described)}}}'
        dataset = {"row": "a document", "settings": settings, "given": ", **settings"}
        return super().card_words(described) | {"dtype": described["dtype"], "offset": offset} | dataset

    def _open_settings(self, described: Mapping[str, Any]) -> dict[str, Any]:
        return {"token_size": _width(described), "header": described["header"]}


def _width(described: Mapping[str, Any]) -> int:
    return 2 if described["dtype"] == "uint16" else 4


def _decoded(folder: Path, tokens: list[int], described: Mapping[str, Any]) -> str | None:
    end = [described["end_of_text"]]
    inside = tokens[:-1] if tokens[-1:] == end else tokens
    inside = inside[1:] if inside[:1] == end else inside
    return decode_beginning(folder, inside, json_escaped=described["json_escaped"])
