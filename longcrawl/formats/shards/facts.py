"""Summary, card text, verification and inspection of token-shard outputs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.outputs import Output
from longcrawl.core.removal import Removal
from longcrawl.core.results import Inspection, Result, TokenRows, Verification, result
from longcrawl.core.templates import read_template
from longcrawl.display.numbers import counted
from longcrawl.display.table import Code, Column, Table
from longcrawl.errors import CorruptionError
from longcrawl.formats.order import describe_order
from longcrawl.formats.shards._remove import without_documents
from longcrawl.formats.shards.shard import OVERLAP, TokenShard
from longcrawl.formats.shards.spec import FORMATS, read_description
from longcrawl.formats.shards.write import ShardOutput
from longcrawl.formats.splits import counts_of_split
from longcrawl.formats.token_output import decode_beginning
from longcrawl.formats.token_rows import ORIGINS, token_table
from longcrawl.printable import as_lines, printable
from longcrawl.storage.stored_tables import read_row, read_table
from longcrawl.tokens.loss_mask import LOSS_MASK

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
        """Write the shards that hold some documents again; see :class:`longcrawl.core.results.Result`."""
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
