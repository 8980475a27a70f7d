"""Token shards as the output of a run, in every format but parquet: writing, description, inspection and removal."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import Code, Column, Table, counted
from longcrawl.core.exchange import Engine
from longcrawl.core.outputs import (
    Inspection,
    Output,
    Result,
    TokenRows,
    WriteTask,
    are_shuffled,
    output,
    read_template,
    result,
)
from longcrawl.core.removal import PROOF_TOKENS, Changes, Proof, Removal, rows_of_ids
from longcrawl.core.stages import Stage
from longcrawl.errors import CorruptionError, StageError, as_lines, printable
from longcrawl.formats import order
from longcrawl.formats.documents import folder_name
from longcrawl.formats.shards import gpt_simple, nanogpt
from longcrawl.formats.shards.shard import (
    FOUND,
    N_TOKENS,
    ORIGINS,
    OVERLAP,
    TOKENS,
    Documents,
    TokenShard,
    list_column,
    shard_folder,
    stem_of,
    token_table,
)
from longcrawl.formats.shards.spec import FORMATS, STARTS, VERSION, read_description
from longcrawl.formats.shards.writing import OnLoss, TokenType, entries_of, spilled_columns, stored_type, token_bytes
from longcrawl.formats.token_output import TokenOutput, TokenWriter, decode_document, last_stage
from longcrawl.io import structured
from longcrawl.io.files import file_entries, write_text
from longcrawl.io.stored_tables import read_row, read_table, write_table
from longcrawl.io.structured import Verification
from longcrawl.tokens.encoders import local_file
from longcrawl.tokens.loss_mask import LOSS_MASK
from longcrawl.tokens.shape import WINDOWS, Windows

Longs = npt.NDArray[np.int64]
Open = Callable[[str], TokenShard]
RECORDED = (*ORIGINS, *FOUND, N_TOKENS)
GROUP_BYTES = 2 << 20
"""Bytes of tokens written at a time, unless one document has more."""


@dataclass(frozen=True)
class ShardOutput(TokenOutput):
    """Write token shards in the format of :mod:`longcrawl.formats.shards.spec`.

    Windows are those of the stage ``windows``.

    Args:
        shard_bytes: most bytes of tokens per shard, on average.
        heldout: documents to hold out as the split ``val``, as a fraction below 1 or a whole number; of each bucket if
            ``buckets`` is set. They are the first of the order.
        buckets: a text column, such as ``source`` or ``language``, whose values each get a folder.
        end_of_text: the id that ends a document; by default that of the stage ``tokenize``.
        vocabulary_size: every id must be below it; by default that of the stage ``tokenize``.
        dtype: type of a token; by default that of the stage ``tokenize``. "auto" is uint16 for vocabularies of up to
            65,536 ids, and the type of the documents' tokens if the vocabulary is unknown.
        on_loss: treatment of a loss mask that the format cannot store.
    """

    second_pass: ClassVar[tuple[str, ...]] = ("shard_bytes", "heldout", "end_of_text", "on_loss")
    windows: ClassVar[bool] = True
    """Whether a window that does not end its document can be distinguished from the next one."""

    most_shard_bytes: ClassVar[float] = math.inf

    shard_bytes: int = 500_000_000
    heldout: float = 0
    buckets: str | None = None
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    dtype: TokenType = "auto"
    on_loss: OnLoss = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(shard_bytes=1)
        if self.shard_bytes > self.most_shard_bytes:
            raise StageError(
                f"{self.name}.shard_bytes is {self.shard_bytes:,}, but its files have less than 4 GiB: set it to at "
                f"most {self.most_shard_bytes:,}"
            )

    def writer(self, stages: Sequence[Stage]) -> "ShardWriter":
        """Return a writer with the end of text and tokenizer of ``tokenize``."""
        tokenize = self.find_tokenize(stages)
        windows = last_stage(stages, Windows)
        if windows is not None:
            self._check_windows(windows)
        return ShardWriter(self, are_shuffled(stages), tokenize=tokenize, windows=windows)

    @property
    def overlaps(self) -> str:
        """Column that the format uses to exclude the beginning of a window from the loss; "" if it has none."""
        return next((name for name in (OVERLAP, LOSS_MASK) if name in FORMATS[self.name].holds), "")

    def format_settings(self) -> dict[str, Any]:
        """Return the format's own settings of ``write``, which the description also records."""
        return {}

    def _check_windows(self, windows: Windows) -> None:
        if not self.windows:
            raise StageError(
                f"{self.name} cannot tell windows apart, since they end without an end-of-text token: remove the "
                "stage windows (--max-length of longcrawl tokenize); trainers cut documents themselves"
            )
        if windows.overlap_size and not self.overlaps:
            raise StageError(
                f"{self.name} cannot record that windows overlap, so their overlaps would count twice in the loss: set "
                "windows.overlap_size to 0, or write gpt-simple or datatrove"
            )
        if self.overlaps == OVERLAP and windows.overlap_size > gpt_simple.MOST_OVERLAP:
            raise StageError(
                f"windows.overlap_size is {windows.overlap_size:,}, but the index of {self.name} holds "
                f"{gpt_simple.MOST_OVERLAP:,}: lower it, or write datatrove"
            )


@output("gpt-simple")
class GptSimpleOutput(ShardOutput):
    """Write GPT-Simple's ``.bin`` and ``.idx``, with overlaps of windows; fields are those of :class:`ShardOutput`."""


@output("datatrove")
class DatatroveOutput(ShardOutput):
    """Write datatrove's ``.ds`` files; fields are those of :class:`ShardOutput`.

    ``.ds.loss`` has the loss mask, which also excludes overlaps of windows.
    """


@output("levanter")
class LevanterOutput(ShardOutput):
    """Write caches of Levanter and Marin; fields are those of :class:`ShardOutput`.

    Documents held out are the split ``validation``.
    """

    windows = False


@output("litdata")
class LitdataOutput(ShardOutput):
    """Write litdata's ``.bin`` files and ``index.json``; fields are those of :class:`ShardOutput`."""

    windows = False
    most_shard_bytes = 3_000_000_000


@output("mds")
class MdsOutput(ShardOutput):
    """Write MosaicML's ``.mds`` files and ``index.json``; fields are those of :class:`ShardOutput`."""

    most_shard_bytes = 3_000_000_000


@output("megatron")
class MegatronOutput(ShardOutput):
    """Write Megatron-LM's ``.bin`` and ``.idx``; fields are those of :class:`ShardOutput`."""


@output("nanogpt")
class NanoGptOutput(ShardOutput):
    """Write flat ``.bin`` files; fields are those of :class:`ShardOutput` and ``header``, "none" or "llm.c".

    With the header of llm.c the end-of-text token is at the start of each document, as llm.c expects.
    """

    windows = False
    second_pass = (*ShardOutput.second_pass, "header")

    header: Literal["none", "llm.c"] = "none"

    def format_settings(self) -> dict[str, Any]:
        """Return the setting ``header``."""
        return {"header": self.header}


@output("olmo-core")
class OlmoCoreOutput(ShardOutput):
    """Write the ``.npy`` and ``.csv.gz`` files of OLMo-core; fields are those of :class:`ShardOutput`.

    ``.npy.loss`` has the loss mask.
    """

    windows = False


@dataclass(frozen=True)
class ShardWriter(TokenWriter):
    """Writer of one folder of token shards of any format."""

    settings: ShardOutput
    windows: Windows | None = None

    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """Spill the tokens of one part, with their origins and the column of their bucket (first pass)."""
        settings, bucket = self.settings, self.settings.buckets
        kept = (spilled_columns(table, settings.name, bucket) for table in tables)
        group = {} if bucket is None else {"group": bucket}
        order.spill_documents(kept, spill, part, shuffled=self.shuffled, sizes=self._sizes, **group)

    def order(self, spill: Path, parts: int, engine: Engine) -> None:
        """Order the documents by an exchange if there are too many for one process."""
        order.exchange_order(spill, parts, engine, shuffled=self.shuffled, grouped=self.settings.buckets is not None)

    def plan(self, spill: Path, parts: int) -> list[WriteTask]:
        """Order all documents, split off the held-out ones, and list the shards to write."""
        by_bucket, heldout, form = self.settings.buckets is not None, self.settings.heldout, FORMATS[self.settings.name]
        stretches, _ = order.order_documents(spill, parts, shuffled=self.shuffled, grouped=by_bucket)
        tasks: list[WriteTask] = []
        for stretch in stretches:
            folder = (self._bucket_folder(stretch.group),) if by_bucket else ()
            of = f" of {self.settings.buckets} {stretch.group!r}" if by_bucket else ""
            for split, bounds in order.split_rows(heldout, len(stretch.sizes), form.heldout, of).items():
                for number, shard in enumerate(order.cut(stretch, *bounds, self.settings.shard_bytes)):
                    path = "/".join([split, *folder, f"{number:05d}"])
                    tasks.append(WriteTask(f"shard-{len(tasks):06d}", (path, stretch.group, *shard)))
        return tasks

    def write(self, spill: Path, target: Path, task: WriteTask) -> dict[str, Any]:
        """Write one shard, and a table of its documents' origins (second pass)."""
        path, bucket, start, stop = task.details
        shard_format = FORMATS[self.settings.name]
        name = path + shard_format.suffix
        windows = self.windows
        # If all documents are cut alike, the sizes of windows determine where they start.
        regular = windows is not None and (windows.overlap_probability == 1 or not windows.overlap_size)
        # Without overlaps no window needs a mask.
        overlaps = "" if windows is not None and not windows.overlap_size else self.settings.overlaps
        end_of_text = None if self._header == "llm.c" else self._end_of_text()
        spilled, recorded, entry, dtype = order.SpillReader(spill), list[pa.Table](), 0, ""

        def read(places: npt.NDArray[Any]) -> Documents:
            nonlocal entry, dtype
            table = spilled.read(places)
            stored: TokenType = "uint16" if self._stored_type(table[TOKENS].type) == np.uint16 else "uint32"
            entries, counts = entries_of(table, end_of_text, self.settings.name, overlaps, stored)
            ends = entry + np.cumsum(counts)
            columns = {"shard": pa.repeat(name, len(counts)), "entry": pa.array(ends - counts)}
            columns["entries"] = pa.array(counts)
            if WINDOWS in table.column_names and not regular:
                lists = table[WINDOWS].combine_chunks()
                lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
                columns[STARTS] = list_column(lengths, pc.struct_field(lists.flatten(), "start"))
            columns |= {each: table[each] for each in RECORDED if each in table.column_names}
            recorded.append(pa.table(columns))
            entry, dtype = entry + int(counts.sum()), str(entries.tokens.dtype)
            origins = table.select(shard_format.columns(each for each in RECORDED if each in table.column_names))
            if not origins.num_columns:
                return entries
            return replace(entries, others=origins.take(pa.array(np.repeat(np.arange(len(counts)), counts))))

        entries = order.ahead(read, order.row_groups(spill, start, stop, GROUP_BYTES))
        shard = shard_format.write(entries, target / name, **self._format_settings())
        table = f"documents/{path}.parquet"
        documents = pa.concat_tables(recorded).combine_chunks()
        write_table(documents, target / table, compression="zstd", compression_level=3)
        files = [Path(file).relative_to(target).as_posix() for file in shard.files]
        return {
            "split": path.partition("/")[0],
            "bucket": bucket,
            "documents": stop - start,
            "entries": shard.documents,
            "tokens": shard.tokens,
            "dtype": dtype,
            "files": file_entries(target, [*files, table], shard.sha256),
        }

    def finish(self, spill: Path, target: Path, written: Sequence[dict[str, Any]]) -> dict[str, Any]:  # noqa: ARG002  # shards are final
        """Add the tokenizer, and describe every file in ``NAME.json``."""
        described: dict[str, Any] = {
            "longcrawl_token_shards": VERSION,
            "dtype": written[0]["dtype"],
            **self._attributes(),
            "max_length": self.windows.max_length if self.windows else None,
            "overlap_size": self.windows.overlap_size if self.windows else None,
            **self.described_order,
            **self.settings.format_settings(),
            "splits": _totals(written),
        }
        if self.settings.buckets is not None:
            described["bucket_column"] = self.settings.buckets
            described["buckets"] = [
                {"bucket": value, "folder": self._bucket_folder(value), "splits": _totals(list(group))}
                for value, group in groupby(written, itemgetter("bucket"))  # as they were planned
            ]
        files = [each["files"] for each in written]
        form = FORMATS[self.settings.name]
        folders = {
            shard_folder(name, form.suffix): None for each in files for name in each if name.endswith(form.suffix)
        }
        for folder in folders:
            indexes = form.write_index(target / folder)
            files.append(file_entries(target, [file.relative_to(target).as_posix() for file in indexes]))
        if self.tokenize is not None:
            files.append(file_entries(target, [self.tokenize.encoder().save(str(target))]))
        described["files"] = dict(sorted(entry for entries in files for entry in entries.items()))
        write_text(target / f"{self.settings.name}.json", structured.seal(described))
        return described

    @property
    def _header(self) -> Any:
        """The header of flat files, "none" or "llm.c", with which a document begins with its end-of-text token."""
        return self.settings.format_settings().get("header")

    def _sizes(self, batch: pa.RecordBatch) -> Longs:
        stored = self._stored_type(batch.column(TOKENS).type)
        if self._header is not None:
            nanogpt.check_width(stored, self._asked_type(), self._header)
        return token_bytes(batch, stored.itemsize)

    def _stored_type(self, lists: pa.DataType) -> "np.dtype[Any]":
        return stored_type(self._asked_type(), self._vocabulary_size(), np.dtype(lists.value_type.to_pandas_dtype()))

    def _format_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "end_of_text": self._end_of_text(),
            "terminate": "missing" if self._header == "llm.c" else "never",
            "vocabulary_size": self._vocabulary_size(),
            "dtype": self._asked_type(),
            "on_loss": self.settings.on_loss,
        }
        if self.settings.name == "datatrove" and self.tokenize is not None:
            # Only the file's name is recorded, since folders differ between machines.
            file = local_file(self.tokenize.tokenizer)
            settings["tokenizer"] = self.tokenize.tokenizer if file is None else file.name
        return FORMATS[self.settings.name].settings("write", settings | self.settings.format_settings())

    def _bucket_folder(self, value: str | None) -> str:
        return folder_name(value, str(self.settings.buckets), f"{self.settings.name}.buckets to another column")


def _totals(written: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    return order.split_totals(written, {name: name for name in ("documents", "entries", "tokens")}, "shards")


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
        about = f"An entry is a document with its end-of-text token{windows}. {order.describe_order(described)}."
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
        counts = order.counts_of_split(folder, described, split, row)
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
