"""Summary, card, verification, inspection and removal for token shards."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import Code, Column, Table, counted
from longcrawl.core.outputs import Inspection, Output, Result, TokenRows, read_template, result
from longcrawl.core.removal import PROOF_TOKENS, Changes, Longs, Proof, Removal, rows_of_ids
from longcrawl.errors import CorruptionError, as_lines, printable
from longcrawl.formats.order import counts_of_split, describe_order
from longcrawl.formats.shards.shard import ORIGINS, OVERLAP, Documents, TokenShard, shard_folder, stem_of, token_table
from longcrawl.formats.shards.spec import FORMATS, read_description
from longcrawl.formats.shards.write import ShardOutput
from longcrawl.formats.token_output import decode_document
from longcrawl.io.stored_tables import read_row, read_table, write_table
from longcrawl.io.structured import Verification
from longcrawl.tokens.loss_mask import LOSS_MASK

Open = Callable[[str], TokenShard]


def without_documents(folder: Path, name: str, ids: pa.Array, opened: Open, settings: dict[str, Any]) -> Removal:
    """Rewrite the shards that contain some documents; see :class:`longcrawl.core.outputs.Result`.

    A shard without any kept document is deleted, and the last shard of its folder takes its number. ``settings`` are
    those of the format's ``write`` that the description does not record.
    """
    changes, proof, shards = Changes(folder, read_description(folder, name)), Proof(PROOF_TOKENS), list[_Shard]()
    form = FORMATS[name]
    for table in [table for table in changes.described["files"] if table.startswith("documents/")]:
        if len(rows := rows_of_ids(read_table(folder / table, ["id"]), ids)):
            held = _Shard(table, read_table(folder / table), rows)
            shard, noted = opened(held.path), zip(held.names(), held.stays.tolist(), strict=True)
            for entry, (name_of, kept) in enumerate(noted):
                proof.before(name_of, np.asarray(shard.document(entry)), kept=kept)
            shards.append(held)
    for held in shards:
        _rewrite(changes, name, held, opened, settings, proof)
    empty = [table for table in changes.changed if table.startswith("documents/") and table in changes.dropped]
    for table in sorted(empty, reverse=True):
        _fill_number(changes, name, table)
    for changed in sorted({shard_folder(held.path, form.suffix) for held in shards}):
        changes.changed += [file.relative_to(folder).as_posix() for file in form.write_index(folder / changed)]
    return changes.finish(f"{name}.json", sum(len(held.gone) for held in shards), proof)


class _Shard:
    def __init__(self, table: str, documents: pa.Table, gone: Longs) -> None:
        self.table, self.documents, self.gone = table, documents, gone
        self.path = str(documents["shard"][0].as_py())
        self.counts: Longs = np.asarray(documents["entries"].to_numpy(), np.int64)
        # Masks of the kept documents and of their entries.
        self.here = np.isin(np.arange(len(self.counts)), gone, invert=True)
        self.stays = np.repeat(self.here, self.counts)

    def names(self) -> list[bytes]:
        ids = np.repeat(np.array(self.documents["id"].to_pylist(), object), self.counts)
        return [str(each).encode("utf-8", "surrogatepass") for each in ids]


def _rewrite(changes: Changes, name: str, held: _Shard, opened: Open, settings: dict[str, Any], proof: Proof) -> None:
    path, table, stays, shard = held.path, held.table, held.stays, opened(held.path)
    everything = shard.documents()
    tokens = int(everything.lengths[~stays].sum())
    _count(changes.described, path, {"documents": len(held.gone), "entries": int((~stays).sum()), "tokens": tokens})
    beside = [each for each in changes.described["files"] if _of_shard(each, path, FORMATS[name].suffix)]
    if not held.here.any():
        _count(changes.described, path, {"shards": 1})
        changes.changed.append(table)
        changes.drop(*beside, table)
        return
    there = np.repeat(stays, everything.lengths)
    overlaps = None if everything.overlaps is None else everything.overlaps[stays]
    mask = None if everything.loss_mask is None else np.asarray(everything.loss_mask)[there]
    form, left = FORMATS[name], held.documents.filter(pa.array(held.here))
    counts = held.counts[held.here]
    origins = left.select(form.columns(left.column_names)).take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    others = origins if origins.num_columns else None
    kept = Documents(np.asarray(everything.tokens)[there], everything.lengths[stays], overlaps, mask, others)
    given = {
        "end_of_text": changes.described["end_of_text"],
        "terminate": "never",
        "vocabulary_size": changes.described.get("vocabulary_size"),
        "dtype": str(shard.tokens.dtype),
        **settings,
    }
    if shard.tokenizer is not None:
        given["tokenizer"] = shard.tokenizer
    # Writing does not change the mapped arrays: their old file keeps its bytes, unnamed, until it is unmapped.
    form.write([kept], changes.folder / path, **form.settings("write", given))
    places = pa.array(np.cumsum(counts) - counts)
    left = left.set_column(left.column_names.index("entry"), "entry", places).combine_chunks()
    write_table(left, changes.folder / table, compression="zstd", compression_level=3)
    changes.changed += [*beside, table]
    again = opened(path)
    kept_names = [name_of for name_of, stay in zip(held.names(), stays.tolist(), strict=True) if stay]
    for entry, name_of in enumerate(kept_names):
        proof.after(name_of, np.asarray(again.document(entry)))
    proof.look([np.asarray(again.tokens)])


def _of_shard(name: str, shard: str, suffix: str) -> bool:
    stem = stem_of(shard, suffix)
    return name.startswith((f"{stem}.", f"{stem}/")) and not name.startswith("documents/")


def _count(described: dict[str, Any], path: str, lost: dict[str, int]) -> None:
    split, _, rest = path.partition("/")
    groups = [described["splits"]]
    if "buckets" in described:
        groups += [each["splits"] for each in described["buckets"] if each["folder"] == rest.partition("/")[0]]
    for splits in groups:
        for name, count in lost.items():
            splits[split][name] -= count


def _fill_number(changes: Changes, name: str, table: str) -> None:
    """Rename the last shard of a folder to the number of a deleted one."""
    folder = table.rpartition("/")[0]
    others = [each for each in changes.described["files"] if each.rpartition("/")[0] == folder]
    last = max((each for each in others if each not in changes.dropped), default="")
    if last <= table:
        return
    suffix = FORMATS[name].suffix
    old, new = (each.removeprefix("documents/").removesuffix(".parquet") for each in (last, table))
    documents = read_table(changes.folder / last)
    names = pa.repeat(f"{new}{suffix}", documents.num_rows)
    documents = documents.set_column(documents.column_names.index("shard"), "shard", names)
    for each in [each for each in changes.described["files"] if _of_shard(each, f"{old}{suffix}", suffix)]:
        moved = f"{new}{each.removeprefix(old)}"
        (changes.folder / moved).parent.mkdir(parents=True, exist_ok=True)
        (changes.folder / each).rename(changes.folder / moved)
        changes.dropped.append(each)
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
SINGULAR = {"documents": "document", "entries": "entry", "tokens": "token", "shards": "shard"}


@dataclass(frozen=True, kw_only=True)
class ShardInspection(Inspection):
    """Description of one split of token shards, with one of its documents."""

    counts: Mapping[str, int]
    dtype: str
    stored_bytes: int
    shard: str
    entry: int
    entries: int
    n_tokens: int

    def __str__(self) -> str:
        held = ", ".join(counted(count, SINGULAR[name], name) for name, count in self.counts.items())
        windows = f", {self.entries:,} windows" if self.entries > 1 else ""
        lines = [
            f"{self.path}  split {self.split}: {held}, {self.dtype}",
            f"{self.stored_bytes:,} bytes stored",
            f"document {self.row}: {self.row_id or 'without an id'}  {self.url or ''}".rstrip(),
            f"  {self.shard} entry {self.entry:,}{windows}; {self.n_tokens:,} tokens",
        ]
        shown = "  (no tokenizer to decode it)" if self.text is None else printable(self.text)
        return f"{as_lines(lines)}\n{shown}"

    __repr__ = __str__


@dataclass(frozen=True)
class ShardRows(TokenRows):
    """Entries of one split, documents or windows; memory holds the table of a shard's documents and one block."""

    tables: tuple[Path, ...]
    """Tables of the documents of each shard, in the order of the shards."""
    entries: tuple[int, ...]
    rows: int
    tokens: int
    open: Callable[[str], TokenShard]
    """Function that opens a shard of this output by the name in its table; picklable."""
    overlapping: bool
    """Whether the format records the overlaps of windows."""
    masked: bool
    """Whether any shard of the output has a loss mask."""

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield blocks of entries: origins of their documents, ``overlap`` of windows, and tokens."""
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
    """Token shards for a trainer, with plain tables of the origins of their documents."""

    tags: ClassVar[tuple[str, ...]] = ("pretokenized",)
    feed: ClassVar[str] = "windows"
    lengths: ClassVar[str] = "documents/**/*.parquet"

    def __init_subclass__(cls) -> None:
        cls.description = f"{cls.name}.json"
        cls.fewer_files = f"a larger {cls.name}.shard_bytes"
        cls.smaller_files = f"a smaller {cls.name}.shard_bytes"

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return the numbers of tokens, documents and shards in each split."""
        parts = [
            f"{name} {counts['tokens']:,} tokens of {counted(counts['documents'], 'document')} in "
            f"{counted(counts['shards'], 'shard')}"
            for name, counts in described["splits"].items()
        ]
        buckets = described.get("buckets")
        return ", ".join([*parts, *([counted(len(buckets), "bucket")] if buckets else [])])

    def read_back(self, folder: Path) -> str:
        """Open the first shard as a trainer would, and describe it."""
        described = read_description(folder, self.name)
        name = self._first(described)
        shard = self._open(folder, described, name)
        first = ", ".join(map(str, shard.tokens[:4].tolist()))
        return f"{name}: {counted(len(shard), 'entry', 'entries')} of {shard.tokens.dtype} tokens, beginning {first}"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables of the documents' origins, since plain `datasets` reads no token shards."""
        depth = "*/" if "buckets" in described else ""
        files = [
            {"split": split, "path": f"{self.name}/documents/{split}/{depth}*.parquet"} for split in described["splits"]
        ]
        return [{"config_name": "documents", "data_files": files, "default": True}]

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of the counts by split and, if there are buckets, by bucket."""
        groups = [(each["folder"], each["splits"]) for each in described.get("buckets", [])]
        counts = ("documents", "entries", "tokens", "shards")
        rows = [
            [split, Code(bucket), *(each[name] for name in counts)]
            for bucket, splits in [("all", described["splits"]), *groups]
            for split, each in splits.items()
        ]
        table = Table([Column("split"), Column("bucket"), *(Column(name, "count") for name in counts)], rows)
        windows = ""
        if described["max_length"] is not None:
            windows = (
                f", or a window of at most {described['max_length']:,} tokens of one; each but the first begins with "
                f"the last {described['overlap_size']:,} of the one before"
            )
        about = f"An entry is a document with its end-of-text token{windows}. {describe_order(described)}."
        return f"{table.markdown()}\n\n{about}"

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # a trainer composes
        """Report whether documents are whole, and that a trainer composes the samples."""
        entries = sum(split["entries"] for split in described["splits"].values())
        documents = self.documents(described)
        whole = "Documents are whole: each is one entry."
        if entries > documents:
            whole = f"{documents:,} documents are {entries:,} entries: long ones are windows."
        ways = "`longcrawl compose RUN` says what each way would pad, cut and mix."
        return f"{whole} A trainer makes samples of them; {ways}"

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the first shard, a pattern for all shards, and the end of text."""
        depth = "*/" if "buckets" in described else ""
        suffix = FORMATS[self.name].suffix
        files, shard = f"{self.name}/train/{depth}*{suffix}", f"{self.name}/{self._first(described)}"
        words = {"files": files, "shard": shard, "end_of_text": str(described["end_of_text"])}
        words["folder"] = shard_folder(shard, suffix).as_posix()
        return words | {"format": self.name, "row": "an entry", "settings": "", "given": ""}

    def card_template(self) -> str:
        """Return the section of the card on loading, with the part that all token shards share."""
        shards = read_template("shards.md")
        return super().card_template().replace("$shards", shards.rstrip())

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe the token type, JSON escaping, and overlaps without a loss."""
        limits = [f"Tokens are {described['dtype']}; token {described['end_of_text']} ends each document."]
        if described["json_escaped"]:
            limits.append("Tokens are those of JSON-escaped text: a newline is a backslash and an n.")
        if described["overlap_size"]:
            limits.append("The overlap of a window is context: compute no loss on it, or its tokens count twice.")
        return limits

    def verify(self, folder: Path) -> Verification:
        """Compare every file with its checksum, and fail on files that the description does not list."""
        return Verification.by_description(folder, self.description, read_description(folder, self.name))

    def inspect(self, folder: Path, split: str, row: int) -> ShardInspection:
        """Describe a split and return one document; buckets are numbered one after the other."""
        described = read_description(folder, self.name)
        counts = counts_of_split(folder, described, split, row)
        files = described["files"].items()
        found = read_row([folder / name for name, _ in files if name.startswith(f"documents/{split}/")], row)
        if found is None:
            raise CorruptionError(
                "the tables hold fewer documents than the description records; longcrawl verify shows what is wrong"
            )
        shard = self._open(folder, described, found["shard"])
        tokens = shard.tokens[shard.start(found["entry"]) : int(shard.ends[found["entry"]])]
        return ShardInspection(
            path=str(folder),
            split=split,
            row=row,
            row_id=found.get("id"),
            url=found.get("url"),
            text=decode_document(folder, tokens.tolist(), described),
            counts=counts,
            dtype=described["dtype"],
            stored_bytes=sum(each["bytes"] for name, each in files if name.startswith(f"{split}/")),
            shard=found["shard"],
            entry=found["entry"],
            entries=found["entries"],
            n_tokens=found["n_tokens"],
        )

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:
        """Rewrite the shards that contain some documents; see :class:`longcrawl.core.outputs.Result`."""
        described = read_description(folder, self.name)
        given = settings.format_settings() if isinstance(settings, ShardOutput) else {}
        return without_documents(folder, self.name, ids, partial(self._open, folder, described), given)

    def token_rows(self, folder: Path) -> dict[str, ShardRows]:
        """Return the entries of each split, shard after shard."""
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
        if "header" in described:  # flat files record neither the type of a token nor that they have no header
            settings |= {"token_size": _width(described), "header": described["header"]}
        return FORMATS[self.name].open(folder / name, **settings)


@result
class GptSimpleResult(ShardResult):
    """Shards of GPT-Simple."""

    name: ClassVar[str] = "gpt-simple"
    feed: ClassVar[str] = "packed"


@result
class DatatroveResult(ShardResult):
    """Tokenised files of datatrove."""

    name: ClassVar[str] = "datatrove"
    citation: ClassVar[str] = DATATROVE


@result
class LevanterResult(ShardResult):
    """Caches of Levanter and Marin."""

    name: ClassVar[str] = "levanter"


@result
class LitdataResult(ShardResult):
    """Token files of litdata."""

    name: ClassVar[str] = "litdata"


@result
class MdsResult(ShardResult):
    """Shards of MosaicML's streaming datasets."""

    name: ClassVar[str] = "mds"


@result
class MegatronResult(ShardResult):
    """Indexed datasets of Megatron-LM."""

    name: ClassVar[str] = "megatron"


@result
class NanoGptResult(ShardResult):
    """Flat files of tokens."""

    name: ClassVar[str] = "nanogpt"

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Add the type of a token, which flat files do not record."""
        offset = "1024" if described["header"] == "llm.c" else "0"
        settings = f'settings = {{"end_of_text": {described["end_of_text"]}, "token_size": {_width(described)}}}'
        dataset = {"row": "a document", "settings": settings, "given": ", **settings"}
        return super().card_words(described) | {"dtype": described["dtype"], "offset": offset} | dataset


@result
class OlmoCoreResult(ShardResult):
    """Token files of OLMo-core."""

    name: ClassVar[str] = "olmo-core"

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Add the type of a token and the size of the vocabulary, which OLMo-core is given."""
        size = described["vocabulary_size"]
        vocabulary = "VOCABULARY_SIZE" if size is None else str(size)
        return super().card_words(described) | {"dtype": described["dtype"], "vocabulary": vocabulary}


def _width(described: Mapping[str, Any]) -> int:
    return 2 if described["dtype"] == "uint16" else 4
