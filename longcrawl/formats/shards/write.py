"""Writes token shards as the output of a run, in every format but parquet."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.exchange import Engine
from longcrawl.core.outputs import WriteTask, are_shuffled, output
from longcrawl.core.stages import Stage
from longcrawl.errors import StageError
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
    list_column,
    shard_folder,
)
from longcrawl.formats.shards.spec import FORMATS, STARTS, VERSION
from longcrawl.formats.shards.writing import OnLoss, TokenType, entries_of, spilled_columns, stored_type, token_bytes
from longcrawl.formats.token_output import TokenOutput, TokenWriter, last_stage
from longcrawl.io import structured
from longcrawl.io.files import file_entries, write_text
from longcrawl.io.stored_tables import write_table
from longcrawl.tokens.encoders import local_file
from longcrawl.tokens.loss_mask import LOSS_MASK
from longcrawl.tokens.shape import WINDOWS, Windows

Longs = npt.NDArray[np.int64]
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
