"""Stages: the four base classes, their registry, the results of surveys, and pipelines of stages.

A stage is a frozen dataclass whose fields are its settings. There are four kinds:

* :class:`Judge` decides for each document of a batch whether it is kept.
* :class:`Rewrite` turns a table of documents into another: tokenization, truncation.
* :class:`Edit` does both.
* :class:`Survey` needs all documents: ``sketch`` works per batch, ``resolve`` turns all sketches into removals
  (deduplication), an order (shuffling) or spans (:class:`SpanSurvey`).

All work in ``crawl | stage`` and in a recipe. All except surveys also work alone, with equal rows: a judge in
``dataset.filter(stage, batched=True)``, a rewrite or an edit in ``dataset.map(stage, batched=True)``. Any other call by
`datasets` is rejected, see :mod:`longcrawl.core.batches`.
"""

import dataclasses
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, cast, dataclass_transform

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core import kinds
from longcrawl.core.batches import (
    VERDICT_SCHEMA,
    Batch,
    Check,
    Edited,
    Outcome,
    column,
    document_ids,
    first_failure,
    forget_pages,
    plain_strings,
    reject_duplicate_ids,
    with_column,
)
from longcrawl.core.exchange import Decided, Engine, InMemory, Sketched, with_report
from longcrawl.core.places import PLACE_SCHEMA, SPAN_SCHEMA, LineChange, Spans, changed_places
from longcrawl.core.registry import Conditions, Configured, Registry, check_effects, is_ours, stage_name
from longcrawl.errors import LongCrawlError, StageError
from longcrawl.io.files import content_digest

__all__ = [
    "PART",
    "REMOVAL_SCHEMA",
    "REMOVED_SCHEMA",
    "SORT_KEY",
    "SPAN_SCHEMA",
    "STAGES",
    "VERDICT_SCHEMA",
    "Check",
    "Edit",
    "Edited",
    "Judge",
    "Order",
    "Outcome",
    "Rewrite",
    "Spans",
    "Stage",
    "Survey",
    "column",
    "document_ids",
    "first_failure",
    "reject_duplicate_ids",
    "stage",
    "stage_name",
    "with_column",
]


REMOVED_SCHEMA = pa.schema([("id", pa.string()), *VERDICT_SCHEMA])
"""Schema of removed documents: one row per document, with its verdict."""

REMOVAL_SCHEMA = pa.schema([*REMOVED_SCHEMA, ("kept_id", pa.string())])
"""Schema of a survey's removals: one row per document; ``kept_id`` is the document that it duplicates."""

PART = "part"
"""Name of the int32 column of sketches by which surveys over all parts tell earlier documents from later ones."""

SORT_KEY = "sort_key"
"""Name of the uint64 column by which the output sorts documents after an ordering survey."""

Needs = Literal["batch", "order", "fit", "removals", "spans"]
"""Data that a stage needs: a batch; all sort keys, for an order; or all documents, to learn, remove or find spans."""

S = TypeVar("S", bound="Stage")


class Stage(Configured, ABC):
    """Base of all stages: a name, settings, and a fingerprint that changes with ``code_version``."""

    code_version: ClassVar[str] = "1"
    looks_at: ClassVar[Literal["html", "content", "text", "tokens"]] = "text"
    """Data that it works on or produces. A stage on "text" can be explained from a text alone, and one on "content"
    replaces the binary column :data:`longcrawl.core.batches.CONTENT` by texts."""
    rewrites: ClassVar[str | None] = None
    """Column that it replaces under the same name or creates, which ``remove_columns`` therefore does not remove."""
    copies_share: ClassVar[Literal["list", "url", "text", "passages"] | None] = None
    """Property that makes documents copies for a deduplication stage; :func:`order_fault` has the required order."""
    judges: ClassVar[bool] = False
    """Whether it measures documents by rules and removes those that fail."""
    edits: ClassVar[bool] = False
    """Whether it changes documents or adds columns to them."""
    orders: ClassVar[bool] = False
    """Whether it only orders documents: its sketch has a uint64 column ``sort_key``, and no document waits for it."""
    relates: ClassVar[bool] = False
    """Whether neighbours in its order belong together, so that no later stage may reorder them."""
    counts: ClassVar[str | None] = None
    """Name of a string column; the funnel counts the kept documents by its values."""
    train_documents: int | None = None
    """Number of documents that ``fit`` learns from, or None for all."""
    fits_measures: ClassVar[bool] = False
    """Whether ``fit`` learns from the :meth:`measure_to_fit` of the documents, which workers then compute."""
    only_with: ClassVar[Conditions] = MappingProxyType({})
    """Conditions on other fields under which fields have an effect."""

    @property
    def measures_in(self) -> tuple[str, ...]:
        """Columns of measures that it sets and that no other stage of a pipeline may set."""
        return ()

    @property
    def needs(self) -> Needs:
        """Data that it needs before it can be applied, for most stages only a batch."""
        return "fit" if self.needs_fit else "batch"

    @property
    def needs_fit(self) -> bool:
        """Whether ``fit`` must see all documents first."""
        return False

    @property
    def uses_gpu(self) -> bool:
        """Whether ``fit`` uses a GPU, and so runs in a worker: a process that has used CUDA cannot fork GPU workers."""
        return False

    def fit(self, tables: Iterable[pa.Table], directory: str) -> "Stage":  # noqa: ARG002  # only stages that learn use them
        """Learn from all unchanged documents and return the fitted stage; ``directory`` is for its files."""
        return self

    def measure_to_fit(self, table: pa.Table) -> pa.Table:
        """Return the measures of a batch that :meth:`fit_measures` learns from, if ``fits_measures``."""
        raise NotImplementedError

    def fit_measures(self, measures: Iterable[pa.Table], directory: str) -> "Stage":
        """Learn as ``fit`` does, from the measures of all its documents in any order."""
        raise NotImplementedError

    @abstractmethod
    def trace(self, table: pa.Table) -> "Edited":
        """Process a batch without removing documents; return them, every rule measured, and every changed place."""

    def apply(self, table: pa.Table) -> "Outcome":
        """Process a batch; return the kept documents, the removed ones with their rules, and the changed places."""
        table = plain_strings(table)
        documents, checks, places = self.trace(table)
        documents = forget_pages(table, documents)
        if not self.judges:
            return Outcome(documents, REMOVED_SCHEMA.empty_table(), places)
        verdicts = first_failure(documents.num_rows, checks)
        failed = pc.is_valid(verdicts["rule"])
        removed = verdicts.add_column(0, "id", document_ids(documents, self.name)).filter(failed)
        kept = documents.filter(pc.invert(failed)) if removed.num_rows else documents
        return Outcome(kept, removed, places, self.queue(table, documents, verdicts["rule"]))

    def queue(self, before: pa.Table, after: pa.Table, rules: pa.Array) -> Mapping[str, pa.Table]:  # noqa: ARG002  # stages with work for others use it
        """Return rows for the queues of a run, see :mod:`longcrawl.core.queues`.

        Args:
            before: the batch before the stage.
            after: all its documents as the stage edited them.
            rules: the rule that removed each document, or null.
        """
        return {}

    def check_joined(self, ids: Iterable[str]) -> Sequence[str]:  # noqa: ARG002  # stages that join results use it
        """Return warnings about the results that the stage joins; ``ids`` include all documents with results.

        Raises:
            StageError: no result belongs to a document.
        """
        return ()

    def measure_ahead(self, table: pa.Table, following: "Sequence[Stage]") -> "tuple[pa.Table, Sequence[Stage]]":  # noqa: ARG002  # stages that can use it
        """Measure a batch for this and following stages at once; return it with a column for each, and the stages."""
        return table, ()

    def checks(self, table: pa.Table) -> "Sequence[Check]":  # noqa: ARG002  # stages that measure use it
        """Measure every rule on a batch, in order of precedence, or raise StageError if the stage has no rules."""
        raise StageError(f"{self!r} does not judge documents: give a stage such as lc.text.GopherQuality()")

    def explain_page(self, page: str) -> Any:  # noqa: ARG002  # stages that extract texts can need it
        """Return an object that shows how a text is extracted from HTML, or raise StageError if the stage has none."""
        raise StageError(f"{self!r} does not show how it extracts a text")

    def judge(self, table: pa.Table) -> pa.Table:
        """Return the first failed rule of each document, ``VERDICT_SCHEMA``."""
        return first_failure(table.num_rows, self.checks(table))

    def prepare(self) -> None:  # most have nothing to load
        """Load models and data files, so that missing ones raise an error before any document is read."""

    def files(self) -> tuple[str, ...]:
        """Return the data files and directories that the stage reads, whose contents affect its results."""
        return ()

    def limits(self) -> tuple[str, ...]:
        """Return limitations that users of the documents should know, as sentences for the card."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """Return warnings that users of the documents must see: a run prints them last, a card first."""
        return ()

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return third-party materials it uses, by path: description, licence and SHA-256, for manifest and card."""
        return {}

    def libraries(self) -> dict[str, str]:
        """Return the versions of system libraries that affect its results, by name, for the manifest."""
        return {}

    def marks(self, text: str, rule: str) -> Sequence[tuple[int, int]]:  # noqa: ARG002  # others need it
        """Return the places of a text that a rule concerns: character offsets, sorted, not overlapping."""
        return ()

    def changes(self, text: str, language: str | None = None) -> Sequence[LineChange]:  # noqa: ARG002  # others need it
        """Return the changes that an edit makes to the lines of a text in a language."""
        return ()

    def used_signals(self) -> Sequence[str] | None:
        """Return the quality signals that it reads, or None if they are not known."""
        return () if is_ours(type(self)) else None

    def keeps_unread(self, table: pa.Table) -> pa.Array | None:  # noqa: ARG002  # stages that need no text do
        """Return a mask of documents to keep, or None if ``signals`` and ``duplicate`` alone are not enough to tell."""
        return None

    @property
    def saves_index(self) -> bool | None:
        """Whether a run saves an index of the kept documents; None unless it derives from ``IndexedSurvey``."""
        return None

    def used_indexes(self) -> dict[str, str]:
        """Return the SHA-256 of each index of an earlier dataset that it uses, by path."""
        return {}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_effects(self, self.only_with, StageError)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as class, code version, settings and digests of the data files, by which `datasets` caches."""
        named = [field.name for field in dataclasses.fields(self) if field.init]  # type: ignore[arg-type]  # a dataclass
        contents = tuple(content_digest(path) for path in self.files())
        settings = tuple((name, getattr(self, name)) for name in named)
        return _restore, (type(self), self.code_version, settings, *([contents] if contents else []))


STAGES: Registry[Stage] = Registry("stage", Stage, StageError, kinds.STAGES)
"""Registry of stages by the name used in recipes: the class name in snake case."""


class Judge(Stage):
    """A stage that decides whether to keep each document of a batch independently."""

    judges: ClassVar[bool] = True

    @abstractmethod
    def checks(self, table: pa.Table) -> "Sequence[Check]":
        """Measure every rule on a batch, in order of precedence."""

    def trace(self, table: pa.Table) -> "Edited":
        """Return the documents unchanged, with every rule measured on them."""
        return Edited(table, self.checks(table), PLACE_SCHEMA.empty_table())

    def __call__(self, batch: Any, *others: Any, **named: Any) -> list[bool]:
        """Return the mask that ``Dataset.filter(stage, batched=True)`` takes; StageError for any other call."""
        kept: list[bool] = pc.is_null(
            self.judge(Batch(self.name, "filter", batch, others, named).table)["rule"]
        ).to_pylist()
        return kept


class Rewrite(Stage):
    """A stage that turns a table of documents into another with as many rows."""

    edits: ClassVar[bool] = True

    @abstractmethod
    def rewrite(self, table: pa.Table) -> pa.Table:
        """Return the table of rewritten documents."""

    def trace(self, table: pa.Table) -> "Edited":
        """Rewrite, and list changed places of the text; a stage that cuts tokens overrides this."""
        rewritten = self.rewrite(table)
        return Edited(rewritten, (), changed_places(table, rewritten))

    def __call__(self, batch: Any, *others: Any, **named: Any) -> Any:
        """Rewrite a batch of ``Dataset.map(stage, batched=True)``; StageError for any other call."""
        documents = Batch(self.name, "map", batch, others, named)
        rewritten = forget_pages(documents.table, self.rewrite(documents.table))
        return documents.answer(rewritten, self.rewrites)


class Edit(Stage):
    """A stage that changes documents or adds columns, and removes some: line-wise corrections, extraction."""

    judges: ClassVar[bool] = True
    edits: ClassVar[bool] = True

    @abstractmethod
    def edit(self, table: pa.Table) -> "tuple[pa.Table, Sequence[Check]]":
        """Return all documents, corrected, and every rule measured on them."""

    def checks(self, table: pa.Table) -> "Sequence[Check]":
        """Measure every rule on the corrected documents."""
        return self.edit(table)[1]

    def trace(self, table: pa.Table) -> "Edited":
        """Edit, and list changed places of the text; a stage that knows its rules and places overrides this."""
        edited, checks = self.edit(table)
        return Edited(edited, checks, changed_places(table, edited))

    def __call__(self, batch: Any, *others: Any, **named: Any) -> Any:
        """Edit a batch of ``Dataset.map(stage, batched=True)``, without removed rows; StageError for any other call."""
        documents = Batch(self.name, "map", batch, others, named)
        edited, checks = self.edit(documents.table)
        kept = pc.is_null(first_failure(edited.num_rows, checks)["rule"]).combine_chunks()
        return documents.answer(forget_pages(documents.table, edited), self.rewrites, kept)


@dataclass(frozen=True)
class Order:
    """The answer of a survey that only orders documents: the position among the sketches of each output row."""

    indices: npt.NDArray[np.int64]


class Survey(Stage):
    """A stage that decides from sketches of all documents."""

    within_parts: ClassVar[bool] = False
    """Whether it works on each part of a run separately, if the recipe sets several ``parts``."""
    after_parts: ClassVar[bool] = False
    """Whether it works on one part after the other, each together with the documents that earlier parts kept."""
    key: ClassVar[str]
    """Column of sketches with a document's keys, required by ``after_parts``: null for documents already removed."""

    @property
    def needs(self) -> Needs:
        """All documents, to remove some, or all sort keys if it only orders them."""
        return "order" if self.orders else "removals"

    def trace(self, table: pa.Table) -> "Edited":
        """Add sort keys to the documents; StageError for a survey that does more than order them."""
        if self.needs != "order":
            raise StageError(f"{self.name} needs all documents and cannot run on one part")
        ordered = with_column(table, SORT_KEY, self.sketch(table)[SORT_KEY])
        return Edited(ordered, (), PLACE_SCHEMA.empty_table())

    @abstractmethod
    def sketch(self, table: pa.Table) -> pa.Table:
        """Return one row per document with the columns that ``resolve`` needs, ``id`` first; must be pure."""

    def resolve(self, sketches: pa.Table) -> "pa.Table | Order | Spans":
        """Turn the sketches of all documents into removals (``REMOVAL_SCHEMA``), an order or spans.

        Define this method or :meth:`exchange`, which it runs in memory by default. Ids must be unique.
        """
        reject_duplicate_ids(sketches["id"], self.name)
        if (decided := self.exchange(Sketched.held(sketches), InMemory())) is None:
            raise StageError(f"{type(self).__name__} makes no decision: define resolve or exchange")
        removals = decided.read(0).select(REMOVAL_SCHEMA.names)
        return with_report(removals, decided.report)

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided | None:  # noqa: ARG002  # surveys that work by tasks need them
        """Decide with the sketches in many tasks, or return None if all must be in one, see :meth:`resolve`."""
        return None

    def removals(self, sketches: pa.Table) -> pa.Table:
        """Return the removals (``REMOVAL_SCHEMA``) from the sketches of all documents."""
        answer = self.resolve(sketches)
        if not isinstance(answer, pa.Table):
            raise StageError(
                f"{self.name} removes documents but returned {type(answer).__name__}: set orders = True if it "
                "orders documents, and derive it from SpanSurvey if it finds spans"
            )
        return answer

    def order(self, sketches: pa.Table) -> npt.NDArray[np.int64]:
        """Return the order of documents from the sketches of all documents: int64, rows of sketches."""
        answer = self.resolve(sketches)
        if not isinstance(answer, Order):
            raise StageError(f"{self.name} orders documents but did not return an Order: set orders = False")
        return answer.indices

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise StageError for a call on a batch, which would silently remove nothing."""
        raise StageError(f"{self.name} needs all documents at once, not a batch: write lc.Crawl(dataset) | stage")


@dataclass_transform(frozen_default=True)
def stage(cls: type[S]) -> type[S]:
    """Make a class a frozen dataclass and register it as a stage under its class name in snake case."""
    return STAGES.add(stage_name(f":{cls.__name__}"), cls)


def _restore(cls: type[S], code_version: str, settings: tuple[tuple[str, Any], ...], _: tuple[Any, ...] = ()) -> S:
    if cls.code_version != code_version:
        raise LongCrawlError(
            f"stage {cls.name} was saved by code version {code_version}, but this is {cls.code_version}: create "
            "it again"
        )
    return cls(**dict(settings))


class SpanSurvey(Survey):
    """A survey that finds places in documents from sketches of all documents."""

    within_parts: ClassVar[bool] = True

    @abstractmethod
    def find(self, sketches: Iterable[pa.Table], directory: str) -> Spans:
        """Turn the sketches of all documents into spans, with files in ``directory``, from which it resumes."""

    @property
    def needs(self) -> Needs:
        """All documents, to find spans."""
        return "spans"

    @abstractmethod
    def edit_spans(self, table: pa.Table, spans: Spans) -> tuple[pa.Table, Sequence[Check]]:
        """Edit a batch of documents by their spans, like :meth:`Edit.edit`; match them by id."""

    def trace_spans(self, table: pa.Table, spans: Spans) -> Edited:
        """Edit, and list changed places of the text, like :meth:`Edit.trace`."""
        edited, checks = self.edit_spans(table, spans)
        return Edited(edited, checks, changed_places(table, edited))

    def resolve(self, sketches: pa.Table) -> Spans:
        """Turn the sketches of all documents into spans, with files in a temporary folder."""
        with tempfile.TemporaryDirectory() as directory:
            return self.find([sketches], directory)


@dataclass(frozen=True)
class WithSpans(Edit):
    """A span survey together with its spans, as an ordinary edit."""

    survey: SpanSurvey
    spans: Spans

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "name", self.survey.name)

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Apply the spans to a batch."""
        return self.survey.edit_spans(table, self.spans)

    def trace(self, table: pa.Table) -> Edited:
        """Apply the spans to a batch, and list the changed places."""
        return self.survey.trace_spans(table, self.spans)


_ORDER = ("list", "url", "text", "passages")
"""Values of :attr:`Stage.copies_share` in the order in which their stages may follow each other."""


def label_stages(names: Sequence[str]) -> list[str]:
    """Return unique labels for stages: a second ``min_words`` becomes ``min_words_2``, a dotted path its class.

    >>> label_stages(["min_words", "my_package.stages:OnlyPoems", "min_words"])
    ['min_words', 'only_poems', 'min_words_2']
    """
    seen: Counter[str] = Counter()
    labels = []
    for name in map(stage_name, names):
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return labels


def stages_fault(stages: Sequence[tuple[str, Stage]]) -> str | None:
    """Return an error message about the labelled stages of a recipe or a crawl, or None if they are valid."""
    return bytes_fault(stages) or order_fault(stages)


def bytes_fault(stages: Iterable[tuple[str, Stage]]) -> str | None:
    """Return an error message if ``min_bytes`` counts the bytes of another text than ``tokenize`` encodes, or None."""
    by_name: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for label, stage in stages:
        by_name.setdefault(stage.name, []).append((label, stage.settings()))
    for counts, counted in by_name.get("min_bytes", []):
        for encodes, encoded in by_name.get("tokenize", []):
            for field in ["json_escaped", "ensure_ascii"] if encoded["json_escaped"] else ["json_escaped"]:
                if counted[field] != encoded[field]:
                    return (
                        f"{counts}.{field} is {counted[field]} and {encodes}.{field} is {encoded[field]}: set "
                        "both to the same value (in a recipe: --set "
                        f"stages.{counts}.{field}={str(encoded[field]).lower()})"
                    )
    return None


def order_fault(stages: Iterable[tuple[str, Stage]]) -> str | None:
    """Return an error message about the order of labelled stages, or None if it is valid.

    * Copies by a list are removed before copies by URL, and these before copies by text. Otherwise the document kept
      for several equal texts may be removed for a document with another text.
    * Whole documents are deduplicated before passages. No copy of a passage is kept, so two equal documents would both
      lose everything. After one stage for whole documents, another may follow the passages: cutting makes texts equal.
    * No stage reorders documents after a stage that has put related ones together.
    * No stage replaces the measures of another.
    """
    before: dict[str, str] = {}
    measured: dict[str, str] = {}
    related = ""
    for label, stage in stages:
        if twice := [name for name in stage.measures_in if name in measured]:
            fix = f"set {label}.column to another name" if hasattr(stage, "column") else "remove one of them"
            return f"{label} would replace the column {twice[0]!r} that {measured[twice[0]]} sets: {fix}"
        measured |= dict.fromkeys(stage.measures_in, label)
        if related and stage.orders:
            return f"{label} would undo the order in which {related} puts related documents: remove one of the two"
        if stage.relates:
            related = label
        kind = stage.copies_share
        if kind is None:
            continue
        later = [each for each in before if _ORDER.index(each) > _ORDER.index(kind)]
        if later == ["passages"] and not (kind == "text" and "text" in before):
            cutter = before["passages"]
            return f"{label} comes after {cutter}, which keeps no copy of a repeated text: put {label} before {cutter}"
        if kind != "text" and later:
            first = before[later[0]]
            return (
                f"{label} after {first} would remove documents for which {first} has removed all copies: "
                f"put {label} before {first}"
            )
        before.setdefault(kind, label)
    return None


@dataclass(frozen=True)
class Segment:
    """Stages that run fused over each part, up to a stage ``ends_with`` that needs all parts."""

    number: int
    stages: tuple[tuple[str, Stage], ...]
    ends_with: tuple[str, Stage] | None
    begins_with: tuple[str, SpanSurvey] | None
    """Survey that ended the segment before, with its label. Its spans are applied first."""

    @property
    def keeps_documents(self) -> bool:
        """Whether it must write the kept documents, because its stages or spans may change or remove documents."""
        return self.number == 0 or bool(self.stages) or self.begins_with is not None

    @property
    def survey(self) -> Survey | None:
        """Survey that ends the segment and needs sketches of the kept documents, or None."""
        last: Any = self.ends_with[1] if self.ends_with else None
        return None if last is None or last.needs == "fit" else last


def next_segments(
    number: int, stages: Sequence[tuple[str, Stage]], found: tuple[str, SpanSurvey] | None, parts: int
) -> list[Segment]:
    """Return the next segment and, if its survey works part after part, the segments that each part then runs alone."""
    segments = [next_segment(number, stages, found)]
    if parts == 1 or segments[0].survey is None or not segments[0].survey.after_parts:
        return segments
    while (survey := segments[-1].survey) is not None and (survey.within_parts or survey.after_parts):
        stages = stages[len(segments[-1].stages) + 1 :]
        spans = segments[-1].ends_with if survey.needs == "spans" else None
        segments.append(next_segment(segments[-1].number + 1, stages, cast("Any", spans)))
    return segments


def next_segment(number: int, stages: Sequence[tuple[str, Stage]], found: tuple[str, SpanSurvey] | None) -> Segment:
    """Return the first segment of the remaining stages; ``found`` is the span survey that ended the one before."""
    for place, (label, stage) in enumerate(stages):
        if stage.needs not in ("batch", "order"):
            return Segment(number, tuple(stages[:place]), (label, stage), found)
    return Segment(number, tuple(stages), None, found)
