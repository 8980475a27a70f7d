"""Crawls in memory: documents in a `datasets` object, with their ledgers and funnel."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl import errors
from longcrawl.builders.longcrawl import first_cause, load
from longcrawl.core import ledger, stages
from longcrawl.core.batches import Check, has_content, in_one_chunk, with_column
from longcrawl.core.documents import FILES, as_documents, warn_of_crawl, with_crawl
from longcrawl.core.funnel import Funnel, FunnelRow, count_values
from longcrawl.core.outputs import OUTPUTS, write_output
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.core.sources import SOURCES
from longcrawl.dedup.decontaminate import Decontaminate
from longcrawl.errors import LedgerError, SourceError, StageError
from longcrawl.io.file_systems import file_system_of
from longcrawl.publish.hub.client import Visibility, visibility_of
from longcrawl.publish.hub.documents import push_documents
from longcrawl.run.first_recipe import guess_source
from longcrawl.urls import is_url

Row = Mapping[str, Any]


class _OfFunction:
    name: str
    function: Callable[[Row], Any]

    def __init__(self, function: Callable[[Row], Any], name: str | None = None) -> None:
        self.function, self.name = function, name or str(getattr(function, "__name__", ""))
        if not self.name.isidentifier():
            raise StageError(f"the ledger needs a name for {function!r}: add one, name='only_poems'")

    def settings(self) -> dict[str, Any]:
        """Return the function's name; its behaviour cannot be written as settings."""
        return {"function": getattr(self.function, "__qualname__", repr(self.function))}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as function and name; `datasets` caches by the function's code."""
        return type(self), (self.function, self.name)


class FilterFunction(_OfFunction, stages.Judge):
    """A stage that keeps the documents for which a function of a row returns a true value."""

    def checks(self, table: pa.Table) -> Sequence[Check]:
        """Call the function on every row."""
        passes = pa.array([bool(self.function(row)) for row in table.to_pylist()], pa.bool_())
        return [Check(self.name, pa.nulls(table.num_rows, pa.float64()), passes)]


class MapFunction(_OfFunction, stages.Rewrite):
    """A stage that sets the columns that a function of a row returns."""

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Call the function on every row; existing columns keep their types."""
        made = [self._columns_of(row) for row in table.to_pylist()]
        names = dict.fromkeys(name for columns in made for name in columns)
        for name in names:
            there = name in table.column_names
            old = table[name].to_pylist() if there else [None] * len(made)
            values = [columns.get(name, before) for columns, before in zip(made, old, strict=True)]
            table = with_column(table, name, pa.array(values, table[name].type if there else None))
        return table

    def _columns_of(self, row: Row) -> Mapping[str, Any]:
        made = self.function(row)
        if isinstance(made, str):
            made = {"text": made}
        if not isinstance(made, Mapping):
            raise StageError(f"{self.name} returns {type(made).__name__}: return a text, or columns, {{'text': …}}")
        if made.get("id", known := row.get("id")) != known:
            raise StageError(f"{self.name} changes the id {known!r}, which ledgers refer to: keep the id")
        return made


BATCH = 200
"""Documents per batch: long ones have about 500 KB of text, so a batch has about 100 MB."""
NONE_GONE = ledger.LEDGER_SCHEMA.empty_table()


class Crawl:
    """Documents, the stages applied to them, and a reason for every removed document.

    ``crawl | stage`` returns a new crawl and does not change the old one. Filters decide in a side table and select
    rows, so no text is copied to remove a document. On a streaming dataset, stages are applied as the data is read, and
    there is no ledger. Ids must be unique once a document is removed or written: the ledger identifies documents by id.

    >>> from datasets import Dataset
    >>> import longcrawl as lc
    >>> crawl = lc.Crawl(Dataset.from_dict({"id": ["a", "b"], "text": ["too short", "just about long enough"]}))
    >>> longer = crawl | lc.text.MinChars(12)
    >>> print(longer.why("a"))
    a: removed at min_chars, rule min_chars: 9 against 12
    """

    def __init__(
        self,
        data: Any,
        source: str = "documents",
        *,
        text: str = "text",
        id: str | None = None,  # noqa: A002  # the column's name
        content: str | None = None,
    ) -> None:
        """Make a crawl of documents, without applying any stage.

        Args:
            data: a ``datasets.Dataset`` or ``IterableDataset``; a table of pandas, polars or pyarrow; a mapping of
                columns; or rows, as mappings or texts, in a list or from a generator. To open a file or a named
                dataset, use ``lc.open``. Documents of another crawl start a new ledger, with a warning.
            source: the name of the documents in the funnel.
            text: the column with the texts, or a field of a struct, such as ``doc.text``. It is renamed ``text``.
            id: the column with the ids, or a field of a struct. It is renamed ``id``. By default the column ``id``; if
                there is none, ids are ``SOURCE:ROW``, with a warning.
            content: the column with the bytes of files such as PDFs, a field of a struct, or a column of the feature
                ``Pdf``. It is renamed ``content``, from which a stage such as ``extract_pdf`` makes texts.

        Raises:
            LongCrawlError: ``data`` is of an unknown type, or lacks these columns, or ``content`` has no bytes.
        """
        warn_of_crawl(data)
        self._data = with_crawl(as_documents(data, text, id, content, source), [source])
        self.steps: tuple[stages.Stage, ...] = ()
        self.ledger: pa.Table = NONE_GONE
        self.edits: pa.Table = EDIT_SCHEMA.empty_table()
        self._funnel = None if self.streaming else Funnel(source, len(self._data))
        self._parent: Crawl | None = None

    @property
    def data(self) -> "datasets.Dataset | datasets.IterableDataset":
        """The kept documents, with the columns that stages have added."""
        return self._data

    @data.setter
    def data(self, _: Any) -> None:
        raise errors.LongCrawlError(
            "setting data would remove documents without a reason in the ledger: write crawl.filter(function) or "
            "crawl.map(function), or start another crawl with lc.Crawl(data)"
        )

    @property
    def streaming(self) -> bool:
        """Whether documents are read only as they are iterated."""
        return isinstance(self.data, datasets.IterableDataset)

    @property
    def funnel(self) -> Funnel:
        """Number of documents that each stage kept."""
        if self._funnel is None:
            judged = "a streaming crawl is filtered as it is read and keeps no ledger"
            raise LedgerError(f"{judged}; open it with streaming=False")
        return self._funnel

    def __or__(self, stage: stages.Stage) -> "Crawl":
        if not isinstance(stage, stages.Stage):
            raise StageError(f"expected a stage such as lc.text.MinWords(16_000), got {stage!r}")
        steps = [*self.steps, stage]
        labels = stages.label_stages([step.name for step in steps])
        if (fault := stages.stages_fault(list(zip(labels, steps, strict=True)))) is not None:
            raise StageError(fault)
        if isinstance(self.data, datasets.IterableDataset):
            return self._then(_stream(self.data, stage), stage)
        stage.prepare()
        return self._past(stage)

    def filter(self, function: Callable[[Mapping[str, Any]], Any], name: str | None = None) -> "Crawl":
        r"""Keep the documents for which a function returns a true value; it gets each row as a dictionary.

        The ledger lists removed documents under ``name``, by default the function's name.

        >>> crawl = Crawl({"id": ["a", "b"], "text": ["one line", "two\nlines"]})
        >>> print(crawl.filter(lambda row: row["text"].count("\n") < 1, name="one_line").why("b"))
        b: removed at one_line, rule one_line
        """
        return self | FilterFunction(function, name)

    def map(self, function: Callable[[Mapping[str, Any]], Any], name: str | None = None) -> "Crawl":
        """Set the columns that a function of a row returns, or ``text`` if it returns a string.

        The edit ledger lists changes of texts under ``name``, by default the function's name.

        >>> crawl = Crawl({"id": ["a"], "text": ["SHOUTED"]})
        >>> crawl.map(lambda row: row["text"].lower(), name="lower").data["text"][0]
        'shouted'

        Raises:
            StageError: a column has values of several types, or only None in the first 200 rows and values later.
        """
        stage = MapFunction(function, name)
        try:
            return self | stage
        except (TypeError, pa.ArrowInvalid) as wrong:  # raised by `datasets` and by pyarrow
            if not str(wrong).startswith(("Couldn't write column", "Could not convert")):
                raise
            reason = errors.one_line(wrong).partition(". ")[0]
            raise StageError(
                f"{stage.name} returned values of several types in one column ({reason}): return one type, with a "
                f"value other than None in the first {BATCH} rows"
            ) from wrong

    def why(self, document: str) -> ledger.Reason:
        """Return why a document was removed, or that it was kept, and the edits made to it.

        Raises:
            LedgerError: the crawl never had a document with this id.
        """
        funnel, document = self.funnel, str(document)
        edits = ledger.find_edits(pads.dataset(self.edits), document)
        labels = [row.stage for row in funnel]
        if (reason := ledger.find_reason(pads.dataset(self.ledger), labels, document)) is not None:
            return replace(reason, edits=edits)
        if pc.index(_ids(self.data), document).as_py() >= 0:
            return ledger.Reason(document, edits=edits)
        raise LedgerError(f"no document {document!r} among the {funnel.documents:,} of {funnel.source}")

    def clusters(self, stage: str | None = None, most: int = 10) -> ledger.Clusters:
        """Return the largest clusters of duplicates, each with a diff of two of its original documents.

        If a later stage removes the kept document of a cluster as a duplicate, the cluster joins that of the document
        kept instead.

        Args:
            stage: the stage whose removals to look at; all stages if None.
            most: maximum number of clusters to return.

        Raises:
            LedgerError: the crawl has not passed this stage, or ``most`` is less than 1.
        """
        labels = [row.stage for row in self.funnel]
        found = ledger.find_clusters(pads.dataset(self.ledger), labels, stage, most)
        first = self._before(len(labels)).data
        if not {"id", "text"} <= set(first.column_names):
            return found.with_texts({}, "No diff: the documents have no column 'text'.")
        ids = pc.cast(_all_rows(first.select_columns("id"))["id"], pa.string())
        places = np.flatnonzero(pc.is_in(ids, value_set=pa.array(found.compared(), pa.string())))
        chosen = first.select(places)
        return found.with_texts(dict(zip(map(str, chosen["id"]), chosen["text"], strict=True)))

    def contamination(self) -> ledger.Contamination:
        """Count the documents, passages and characters of each evaluation item that ``Decontaminate`` found."""
        looked_for = [each for step in self.steps if isinstance(step, Decontaminate) for each in step.limits()]
        return ledger.count_contamination(pads.dataset(self.edits), looked_for)

    def removed(self, stage: str) -> "datasets.Dataset":
        """Return the documents that a stage removed, as they were before it, with the ledger's columns.

        Raises:
            LedgerError: the crawl has not passed a stage of this name.
        """
        labels = [row.stage for row in self.funnel]
        if stage not in labels:
            raise LedgerError(f"this crawl has no stage {stage!r}; it has: {', '.join(labels) or 'none'}")
        before = self._before(len(labels) - labels.index(stage))
        gone = self.ledger.filter(pc.equal(self.ledger["stage"], stage))
        places = np.flatnonzero(pc.is_in(_ids(before.data), value_set=gone["id"]).to_numpy(zero_copy_only=False))
        documents = before.data.select(places)
        reasons = gone.take(pc.index_in(_ids(documents), value_set=gone["id"]))
        for name in ("rule", "value", "threshold", "kept_id"):
            documents = documents.add_column(name, reasons[name].combine_chunks())
        return documents

    def save_index(self, stage: str, folder: str | Path) -> None:
        """Write a stage's index of the documents kept so far, for the field ``against`` of a stage on later data.

        Args:
            stage: the label of an applied survey, such as ``urls`` or ``min_hash``.
            folder: the directory to write; an existing one is replaced.

        Raises:
            LedgerError: the crawl has not passed a stage of this name, or it has no index.
        """
        labels = [row.stage for row in self.funnel]
        known = [label for label, step in zip(labels, self.steps, strict=True) if step.saves_index is not None]
        if stage not in known:
            has = ", ".join(known) or "none"
            raise LedgerError(f"this crawl has no stage {stage!r} with an index; it has: {has}")
        place = labels.index(stage)
        survey: Any = self.steps[place]  # only surveys have indexes
        sketches = _all_rows(_sketches(survey, self._before(len(labels) - place).data))
        kept = pc.is_in(pc.cast(sketches["id"], pa.string()), value_set=_ids(self.data))
        survey.save_index(sketches.filter(kept), Path(folder))

    def __repr__(self) -> str:
        if self.streaming:
            return f"<streaming Crawl after {' | '.join(step.name for step in self.steps) or 'nothing'}>"
        return repr(self._funnel)

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>" if self._funnel is None else self._funnel._repr_html_()

    def to_rectangle(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write a rectangle; ``settings`` are fields of ``lc.formats.RectangleOutput``, such as ``heldout=0.008``."""
        return self.write("rectangle", path, **settings)

    def to_parquet(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write parquet files; ``settings`` are fields of ``lc.formats.ParquetOutput``, such as ``by="language"``."""
        return self.write("parquet", path, **settings)

    def to_gpt_simple(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write GPT-Simple shards; ``settings`` are fields of ``lc.formats.GptSimpleOutput``, such as ``heldout``."""
        return self.write("gpt-simple", path, **settings)

    def to_datatrove(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write datatrove shards; ``settings`` are fields of ``lc.formats.DatatroveOutput``, such as ``heldout``."""
        return self.write("datatrove", path, **settings)

    def to_megatron(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write Megatron-LM shards; ``settings`` are fields of ``lc.formats.MegatronOutput``, such as ``heldout``."""
        return self.write("megatron", path, **settings)

    def to_nanogpt(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write nanoGPT token files; ``settings`` are fields of ``lc.formats.NanoGptOutput``, such as ``header``."""
        return self.write("nanogpt", path, **settings)

    def to_levanter(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write caches of Levanter; ``settings`` are fields of ``lc.formats.LevanterOutput``, such as ``heldout``."""
        return self.write("levanter", path, **settings)

    def to_mds(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write MosaicML's MDS shards; ``settings`` are fields of ``lc.formats.MdsOutput``, such as ``heldout``."""
        return self.write("mds", path, **settings)

    def to_litdata(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write litdata's token files; ``settings`` are fields of ``lc.formats.LitdataOutput``, such as ``heldout``."""
        return self.write("litdata", path, **settings)

    def to_olmo_core(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write OLMo-core token files; ``settings`` are fields of ``lc.formats.OlmoCoreOutput``."""
        return self.write("olmo-core", path, **settings)

    def to_composed(self, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write composed samples in buckets; ``settings`` are fields of ``lc.formats.ComposedOutput``."""
        return self.write("composed", path, **settings)

    def push_to_hub(self, repo: str, visibility: Visibility | None = None, *, private: bool | None = None) -> None:
        """Push the documents and their ledgers to the Hub; to push a run, use ``longcrawl push``.

        One commit replaces everything that an earlier push of a crawl wrote. A repository that holds a run is refused.

        Args:
            repo: ``user/name``.
            visibility: "private" or "public". There is no default: give either this or ``private``.
            private: True or False, as in `datasets`.

        Raises:
            StageError: two documents have the same id. This is not checked on a stream.
        """
        self._check_ids("push_to_hub")
        push_documents(repo, visibility_of(repo, visibility, private), self.data, self.ledger, self.edits)

    def write(self, name: str, path: str | Path, **settings: Any) -> dict[str, Any]:
        """Write the documents with the output called ``name`` and return its description.

        Raises:
            StageError: the output or a field is unknown, the applied stages cannot feed the output, or two documents
                have the same id.
            FormatError: two documents of a stream have the same id.
        """
        self._check_ids(name)
        return write_output(_batches(self.data), self.steps, OUTPUTS.make(name, settings), Path(path))

    def _check_ids(self, needed_by: str) -> None:
        """For a stream, the output checks that ids are unique."""
        if isinstance(self.data, datasets.Dataset) and "id" in self.data.column_names:
            stages.reject_duplicate_ids(pc.drop_null(_ids(self.data)), needed_by, names_rows=True)

    def _past(self, stage: Any) -> "Crawl":
        if stage.needs == "fit":
            return self._past(stage.fit(_batches(self.data), str(_fit_folder())))
        if stage.needs == "removals":
            return self._surveyed(stage)
        if stage.needs == "order" or stage.orders:
            order = stage.order(_all_rows(_sketches(stage, self.data)))
            return self._then(self.data.select(order), stage)
        if stage.needs == "spans":
            _fit_folder().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=_fit_folder()) as directory:
                spans = stage.find(_batches(_sketches(stage, self.data)), directory)
            return self._edited(stage, stages.WithSpans(stage, spans))
        if stage.edits:
            return self._edited(stage, stage)
        verdicts = _all_rows(_map(self.data, partial(_verdicts, stage), stage))
        gone = _entries(verdicts["id"], verdicts, self._label(stage))
        return self._then(self.data, stage, gone, kept=pc.is_null(verdicts["rule"]))

    def _edited(self, stage: stages.Stage, edit: stages.Stage) -> "Crawl":
        """Apply a stage that changes documents, through ``edit``."""
        label = self._label(stage)
        traced = _map(self.data, partial(ledger.trace_batch, edit), stage)
        data, verdicts, edits = ledger.split_traced(traced, label)
        if "id" in data.column_names:
            batches = _batches(data.select_columns("id"))
            for warning in stage.check_joined(str(name) for batch in batches for name in batch["id"].to_pylist()):
                errors.warn_user(f"{label}: {warning}")
        if verdicts is None:
            return self._then(data, stage, edits=edits)
        return self._then(data, stage, _entries(_ids(data), verdicts, label), edits, pc.is_null(verdicts["rule"]))

    def _surveyed(self, stage: stages.Survey) -> "Crawl":
        removals, label = stage.removals(_all_rows(_sketches(stage, self.data))), self._label(stage)
        kept = pc.invert(pc.is_in(_ids(self.data), value_set=removals["id"]))
        if stage.saves_index:  # it lists the documents kept by the whole crawl
            errors.warn_user(
                "indexes are written automatically only by runs: call "
                f'crawl.save_index("{label}", FOLDER) after all stages'
            )
        return self._then(self.data, stage, ledger.entries(removals["id"], removals, label), kept=kept)

    def _then(
        self,
        data: Any,
        stage: stages.Stage,
        gone: pa.Table = NONE_GONE,
        edits: ledger.Edits = ledger.NO_EDITS,
        kept: Any = None,
    ) -> "Crawl":
        """Return the crawl after a stage: ``data``, and if any are ``gone`` only the rows in the mask ``kept``."""
        data, after = data.select(np.flatnonzero(kept)) if gone.num_rows else data, copy(self)
        after._data, after._parent = data, self  # noqa: SLF001  # `after` is also a Crawl
        after.steps = (*self.steps, stage)
        after.ledger = pa.concat_tables([self.ledger, gone]) if gone.num_rows else self.ledger
        if edits.table.num_rows:
            after.edits = pa.concat_tables([self.edits, edits.table], promote_options="default")
        if self._funnel is not None:
            values = count_values(_all_rows(data.select_columns(stage.counts)), stage.counts) if stage.counts else {}
            label, rules = self._label(stage), ledger.count_rules(gone)
            row = FunnelRow(label, self._funnel.kept, len(data), rules, values=values, edits=edits.counts)
            after._funnel = self._funnel.then(row)  # noqa: SLF001  # `after` is also a Crawl
            after._data = with_crawl(data, [after.funnel.source, *(row.stage for row in after.funnel)])  # noqa: SLF001
        return after

    def _label(self, *steps: stages.Stage) -> str:
        return stages.label_stages([step.name for step in (*self.steps, *steps)])[-1]

    def _before(self, steps_back: int) -> "Crawl":
        crawl = self
        for _ in range(steps_back):
            crawl = crawl._parent or crawl
        return crawl


def open_crawl(name: "str | os.PathLike[str]", split: str = "train", **settings: Any) -> Crawl:
    """Open a source, a Hub dataset, a file, a directory, a URL or a glob as a crawl.

    Args:
        name: a source, such as "redpajama-v2"; or a dataset on the Hub as "org/name", a file, a directory, a URL or a
            glob. For these the source is guessed from the names of the files.
        split: the split of the source.
        settings: fields of the source, such as ``text_field="content"``, and the arguments ``streaming``, ``num_proc``
            and ``cache_dir`` of ``load_dataset``.

    >>> open_crawl("crawl/*.jsonl.gz", text_field="content")  # doctest: +SKIP
    <2,104 documents of 'crawl/*.jsonl.gz'>

    Raises:
        SourceError: nothing has this name, a setting is wrong, or the documents cannot be read.
    """
    if isinstance(name, os.PathLike):
        name = os.fspath(name)
    if not isinstance(name, str):
        raise SourceError(
            f"lc.open needs a name, got {errors.quoted(name)}: give a file, folder, URL or glob, or several files as "
            "lc.open('text', data_files=[…]), or use lc.Crawl(rows) for rows"
        )
    if name in SOURCES or ":" in name.partition("://")[0]:
        with first_cause(), errors.no_documents(name):
            return Crawl(datasets.load_dataset("longcrawl", name, split=split, **settings), source=name)
    if is_url(name):
        file_system_of(name)  # the error of `datasets` about a missing package does not name the extra to install
    source, found = guess_source(name, any_ending=settings.get("format", "auto") != "auto")
    return Crawl(load(source, split, **found | settings), source=name)


def _entries(ids: pa.ChunkedArray, verdicts: pa.Table, label: str) -> pa.Table:
    """Return the ledger rows of removed documents; if there are any, check that all ids are unique."""
    gone = ledger.entries(ids, verdicts, label)
    if gone.num_rows:
        stages.reject_duplicate_ids(ids, label)
    return gone


def _map(data: "datasets.Dataset", function: Any, stage: stages.Stage) -> "datasets.Dataset":
    if not len(data):
        return datasets.Dataset(function(_all_rows(data)) if data.column_names else pa.table({}))
    settings = {"batched": True, "batch_size": _batch_of(data), "writer_batch_size": 64, "desc": stage.name}
    return data.with_format("arrow").map(function, **settings).with_format(None)


def _verdicts(stage: stages.Stage, table: pa.Table) -> pa.Table:
    """Return only the ids and verdicts of a batch, so that no text is copied."""
    return stage.judge(table).add_column(0, "id", stages.document_ids(table, stage.name))


def _streamed(stage: Any, table: pa.Table) -> pa.Table:
    return in_one_chunk(stage(table) if stage.edits else stage.apply(table).documents)


def _sketches(survey: stages.Survey, data: "datasets.Dataset") -> "datasets.Dataset":
    return _map(data, survey.sketch, survey)


def _batches(data: "datasets.Dataset | datasets.IterableDataset") -> Iterator[pa.Table]:
    yield from data.with_format("arrow").iter(_batch_of(data))


def _batch_of(data: "datasets.Dataset | datasets.IterableDataset") -> int:
    return FILES if data.features is not None and has_content(data.features.arrow_schema) else BATCH


def _all_rows(data: "datasets.Dataset") -> pa.Table:
    return data.with_format("arrow")[:]


def _ids(data: "datasets.Dataset") -> pa.ChunkedArray:
    return pc.cast(_all_rows(data.select_columns("id"))["id"], pa.string())


def _stream(data: "datasets.IterableDataset", stage: stages.Stage) -> "datasets.IterableDataset":
    if stage.needs != "batch":
        learns = "must learn from all documents first"
        why = learns if stage.needs == "fit" else "needs all documents and cannot run on a stream"
        raise StageError(f"{stage.name} {why}; open the crawl with streaming=False")
    stage.prepare()
    # Under the arrow format, IterableDataset.filter cannot follow another filter, so a judge is a map that drops rows.
    function: Any = partial(_streamed, stage)
    return data.with_format("arrow").map(function, batched=True, batch_size=_batch_of(data)).with_format(None)


def _fit_folder() -> Path:
    return Path(datasets.config.HF_DATASETS_CACHE) / "longcrawl"
