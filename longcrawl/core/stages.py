"""Stages: the four kinds, the registry, the answers of surveys, and pipelines of stages.

A stage is a frozen dataclass that is its own configuration. :meth:`Stage.apply` is what it does to a batch of
documents, :attr:`Stage.needs` what it must have seen before. There are four kinds:

* :class:`Judge` looks at one batch and says of each document "kept", or which rule failed with which value.
* :class:`Rewrite` turns one table of documents into another: tokenisation, truncation.
* :class:`Edit` does both: it corrects documents, and measures which of them are not worth keeping.
* :class:`Survey` needs all documents: ``sketch`` is per batch and pure, ``resolve`` turns all sketches into
  removals (deduplication), an order (shuffling) or spans (:class:`SpanSurvey`).

Each works in ``crawl | stage`` and in a recipe, and all but surveys alone too, with equal rows: a judge in
``dataset.filter(stage, batched=True)``, a rewrite or an edit in ``dataset.map(stage, batched=True)``. Any other call by
`datasets` is rejected, see :mod:`longcrawl.core.batches`.

A :class:`SpanSurvey` answers with :class:`longcrawl.core.places.Spans`, and ``edit_spans`` is what it does to a batch
of documents once all spans are known: :class:`WithSpans` is that as an ordinary edit. Sketches may be larger than
memory, so ``find`` takes them table by table and has a folder for its files. One that orders documents by what is in
all of them answers with the place of each, ``sort_key``, where others have ``start`` and ``end``.

A stage that keeps one of several equal texts relies on it. If a later stage removes that one for what it shares with
another document, but not its text, the content is gone and no copy is kept.
"""

import dataclasses
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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
    plain_strings,
    reject_duplicate_ids,
    with_column,
)
from longcrawl.core.exchange import Decided, Engine, InMemory, Sketched, with_report
from longcrawl.core.places import PLACE_SCHEMA, SPAN_SCHEMA, LineChange, Spans, changed_places
from longcrawl.core.registry import (
    Conditions,
    Registry,
    check_effects,
    check_fields,
    is_ours,
    plain_settings,
    stage_name,
)
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


LIVING: dict[int, float] = {}
"""Seconds of a core that each child process has reported so far, by its id.

Whoever waits for the end of a child takes it out: from then on the system counts it. Children that end in the block
that starts them need no entry.
"""


class CoreClock:
    """Adds up the seconds of a core that this process and its children spend, by name.

    Those of all their threads count, and those that other programs take from a busy machine do not.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count what happens in the block under ``name``."""
        started = _seconds()
        try:
            yield
        finally:
            self.seconds[name] += _seconds() - started


def _seconds() -> float:
    """Return the seconds of this process, of children that have ended, and of those that live."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + sum(LIVING.values())


REMOVED_SCHEMA = pa.schema([("id", pa.string()), *VERDICT_SCHEMA])
"""One row per document that leaves."""

REMOVAL_SCHEMA = pa.schema([*REMOVED_SCHEMA, ("kept_id", pa.string())])
"""One row per document that a survey removes; ``kept_id`` is the document that it duplicates."""

PART = "part"
"""The int32 column of sketches by which surveys that see all parts of a run tell earlier documents from later ones."""

SORT_KEY = "sort_key"
"""The uint64 column by which documents are ordered in the end, once an ordering survey has been passed."""

Needs = Literal["batch", "order", "fit", "removals", "spans"]
"""What a stage needs: a batch; all sort keys, for an order; or all documents, to learn, remove some or find spans."""

S = TypeVar("S", bound="Stage")


class Stage(ABC):
    """What all kinds share: a name, settings, and a fingerprint that changes with ``code_version``."""

    name: ClassVar[str]
    code_version: ClassVar[str] = "1"
    looks_at: ClassVar[Literal["html", "text", "tokens"]] = "text"
    """What it works on, or turns documents into: a text alone is enough to explain a stage that looks at text."""
    rewrites: ClassVar[str | None] = None
    """The column that it replaces by another one of the same name, or makes: ``remove_columns`` does not remove it."""
    copies_share: ClassVar[Literal["list", "url", "text", "passages"] | None] = None
    """What documents have in common that it takes for copies; :mod:`longcrawl.core.stages` has the order."""
    judges: ClassVar[bool] = False
    """Whether it measures documents by rules, and removes those that fail."""
    edits: ClassVar[bool] = False
    """Whether it makes other documents of those that come, or adds columns to them."""
    orders: ClassVar[bool] = False
    """Whether it only orders documents: its sketch has a uint64 column ``sort_key``, and no document waits for it."""
    relates: ClassVar[bool] = False
    """Whether neighbours in its order belong together, so that nothing may order them again."""
    counts: ClassVar[str | None] = None
    """A column, of strings, by whose values the funnel counts the documents that the stage leaves."""
    train_documents: int | None = None
    """How many of all documents ``fit`` learns from; None for all."""
    only_with: ClassVar[Conditions] = MappingProxyType({})
    """Fields that have an effect only together with some values of others."""

    @property
    def measures_in(self) -> tuple[str, ...]:
        """Columns of measures that are its own: no other stage of a pipeline may set them again."""
        return ()

    @property
    def needs(self) -> Needs:
        """What it must have seen before it can be applied; a batch alone for most."""
        return "fit" if self.needs_fit else "batch"

    @property
    def needs_fit(self) -> bool:
        """Whether ``fit`` must see all documents first."""
        return False

    @property
    def uses_gpu(self) -> bool:
        """Whether ``fit`` uses a GPU: a worker learns then, as a process that has used one forks none that can."""
        return False

    def fit(self, tables: Iterable[pa.Table], directory: str) -> "Stage":  # noqa: ARG002  # only stages that learn use them
        """Learn from all documents before any is changed; files go to ``directory``. Most stages learn nothing."""
        return self

    @abstractmethod
    def trace(self, table: pa.Table) -> "Edited":
        """Return as many documents as came, every rule measured on them and every place that is changed."""

    def apply(self, table: pa.Table) -> "Outcome":
        """Return the documents of a batch that stay, what removed the others, and what was changed.

        Raises:
            StageError: the documents lack what it needs, or it needs more than a batch.
        """
        documents, checks, places = self.trace(plain_strings(table))
        if not self.judges:
            return Outcome(documents, REMOVED_SCHEMA.empty_table(), places)
        verdicts = first_failure(documents.num_rows, checks)
        failed = pc.is_valid(verdicts["rule"])
        removed = verdicts.add_column(0, "id", document_ids(documents, self.name)).filter(failed)
        return Outcome(documents.filter(pc.invert(failed)) if removed.num_rows else documents, removed, places)

    def measure_ahead(self, table: pa.Table, following: "Sequence[Stage]") -> "tuple[pa.Table, Sequence[Stage]]":  # noqa: ARG002  # as below
        """Return a batch with columns of what it and next stages measure at once, for each to drop, and these.

        Until the last of these has been applied, a run holds the texts back.
        """
        return table, ()

    def checks(self, table: pa.Table) -> "Sequence[Check]":  # noqa: ARG002  # the kinds that measure use it
        """Return every rule measured on a batch, in the order in which they count.

        Raises:
            StageError: it does not measure documents.
        """
        raise StageError(f"{self!r} does not judge documents: give a stage such as lc.text.GopherQuality()")

    def judge(self, table: pa.Table) -> pa.Table:
        """Return one row of ``VERDICT_SCHEMA`` per document: the first rule that it fails."""
        return first_failure(table.num_rows, self.checks(table))

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values."""
        return plain_settings(self)

    def prepare(self) -> None:  # noqa: B027  # most have nothing to load
        """Load what the stage works with, so that what is missing is an error before any document is read."""

    def files(self) -> tuple[str, ...]:
        """Name the data files, and folders of them, that the stage reads: what they hold decides with its settings."""
        return ()

    def limits(self) -> tuple[str, ...]:
        """Describe what the stage did not do and a user of the documents should know; a card has these sentences."""
        return ()

    def warnings(self) -> tuple[str, ...]:
        """Describe what a user of the documents must know first: a run ends with these sentences, a card begins so."""
        return ()

    def materials(self) -> dict[str, dict[str, Any]]:
        """Describe what of others it works with, by path: what it is, licence and SHA-256, for manifest and card."""
        return {}

    def marks(self, text: str, rule: str) -> Sequence[tuple[int, int]]:  # noqa: ARG002  # others need it
        """Return the places of a text that a rule is about: offsets in characters, sorted, none overlapping."""
        return ()

    def changes(self, text: str, language: str | None = None) -> Sequence[LineChange]:  # noqa: ARG002  # as above
        """Return what an edit does to the lines of a text of a language."""
        return ()

    def used_signals(self) -> Sequence[str] | None:
        """Name the quality signals of documents that it looks at; None of a stage that says nothing of them."""
        return () if is_ours(type(self)) else None

    def keeps_unread(self, table: pa.Table) -> pa.Array | None:  # noqa: ARG002  # stages that need no text do
        """Return which documents it keeps, by ``signals`` and ``duplicate`` alone; None where that does not decide."""
        return None

    @property
    def saves_index(self) -> bool | None:
        """Whether a run saves an index of what it keeps; None of a stage that has none."""
        return None

    def save_index(self, kept: pa.Table, folder: Path) -> None:  # noqa: ARG002  # surveys that have one need it
        """Write the index of documents whose sketches are given; a StageError where the stage has none."""
        raise StageError(f"{self.name} has no index")

    def exchange_index(self, kept: Sketched, folder: Path, engine: Engine) -> None:  # noqa: ARG002  # as above
        """Write it as :meth:`save_index` does, with sketches in many tasks."""
        raise StageError(f"{self.name} has no index")

    def used_indexes(self) -> dict[str, str]:
        """Return the SHA-256 of each index of an earlier dataset that it looks at, by path."""
        return {}

    def __post_init__(self) -> None:
        check_fields(self, StageError)
        check_effects(self, self.only_with, StageError)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as class, code version, settings and what the data files hold.

        `datasets` caches by this, and a run pins it: edited code and an edited file miss the cache. What is restored
        has the settings alone, and reads the files as they are then.
        """
        named = [field.name for field in dataclasses.fields(self) if field.init]  # type: ignore[arg-type]  # a dataclass
        contents = tuple(content_digest(path) for path in self.files())
        settings = tuple((name, getattr(self, name)) for name in named)
        return _restore, (type(self), self.code_version, settings, *([contents] if contents else []))


STAGES: Registry[Stage] = Registry("stage", Stage, StageError, kinds.STAGES)
"""Every stage by the name that recipes use: its class name in snake case."""


class Judge(Stage):
    """Decides about each document of a batch by itself."""

    judges: ClassVar[bool] = True

    @abstractmethod
    def checks(self, table: pa.Table) -> "Sequence[Check]":
        """Measure every rule on a batch, in the order in which they count."""

    def trace(self, table: pa.Table) -> "Edited":
        """Return the documents as they came, with every rule measured on them."""
        return Edited(table, self.checks(table), PLACE_SCHEMA.empty_table())

    def __call__(self, batch: Any, *others: Any, **named: Any) -> list[bool]:
        """Return the mask that ``Dataset.filter(stage, batched=True)`` takes: True for a kept document.

        Raises:
            StageError: `datasets` calls it in another way.
        """
        kept: list[bool] = pc.is_null(
            self.judge(Batch(self.name, "filter", batch, others, named).table)["rule"]
        ).to_pylist()
        return kept


class Rewrite(Stage):
    """Turns a table of documents into another with as many rows."""

    edits: ClassVar[bool] = True

    @abstractmethod
    def rewrite(self, table: pa.Table) -> pa.Table:
        """Return the table of rewritten documents."""

    def trace(self, table: pa.Table) -> "Edited":
        """Rewrite, and list what is cut; a stage that cuts tokens overrides this."""
        rewritten = self.rewrite(table)
        return Edited(rewritten, (), changed_places(table, rewritten))

    def __call__(self, batch: Any, *others: Any, **named: Any) -> Any:
        """Rewrite a batch of ``Dataset.map(stage, batched=True)``.

        Raises:
            StageError: `datasets` calls it in another way, or would keep a column that the stage removes.
        """
        documents = Batch(self.name, "map", batch, others, named)
        return documents.answer(self.rewrite(documents.table), self.rewrites)


class Edit(Stage):
    """Corrects documents or adds columns, and says which of them leave: line-wise corrections, extraction."""

    judges: ClassVar[bool] = True
    edits: ClassVar[bool] = True

    @abstractmethod
    def edit(self, table: pa.Table) -> "tuple[pa.Table, Sequence[Check]]":
        """Return the corrected documents, as many as came, and every rule measured on them."""

    def checks(self, table: pa.Table) -> "Sequence[Check]":
        """Return every rule measured on the corrected documents."""
        return self.edit(table)[1]

    def trace(self, table: pa.Table) -> "Edited":
        """Edit, and list what changed; a stage that knows rules and places overrides this."""
        edited, checks = self.edit(table)
        return Edited(edited, checks, changed_places(table, edited))

    def __call__(self, batch: Any, *others: Any, **named: Any) -> Any:
        """Edit a batch of ``Dataset.map(stage, batched=True)``: fewer rows may come back than went in.

        Raises:
            StageError: `datasets` calls it in another way, or would keep a column that the stage removes.
        """
        documents = Batch(self.name, "map", batch, others, named)
        edited, checks = self.edit(documents.table)
        kept = pc.is_null(first_failure(edited.num_rows, checks)["rule"]).combine_chunks()
        return documents.answer(edited, self.rewrites, kept)


@dataclass(frozen=True)
class Order:
    """The answer of a survey that only orders documents: position of each output row among the sketches."""

    indices: npt.NDArray[np.int64]


class Survey(Stage):
    """Decides with all documents in view."""

    within_parts: ClassVar[bool] = False
    """Whether it looks at each part of a run by itself, where the recipe asks for several ``parts``."""
    after_parts: ClassVar[bool] = False
    """Whether it looks at one part after the other, each with the documents that earlier parts kept in the end.

    It needs ``key``, a column of its sketches: documents that earlier parts removed are null there."""
    key: ClassVar[str]
    """The column of sketches that holds a document's keys; a document without keys is no duplicate."""

    @property
    def needs(self) -> Needs:
        """All documents, or of one that orders them all sort keys."""
        return "order" if self.orders else "removals"

    def trace(self, table: pa.Table) -> "Edited":
        """Return the documents with their sort keys, where it orders them.

        Raises:
            StageError: it removes documents, or changes them, and must see all of them first.
        """
        if self.needs != "order":
            raise StageError(f"{self.name} needs all documents and cannot run inside a part")
        ordered = with_column(table, SORT_KEY, self.sketch(table)[SORT_KEY])
        return Edited(ordered, (), PLACE_SCHEMA.empty_table())

    @abstractmethod
    def sketch(self, table: pa.Table) -> pa.Table:
        """Return what ``resolve`` needs to know of each document, ``id`` first; pure, one row per document."""

    def resolve(self, sketches: pa.Table) -> "pa.Table | Order | Spans":
        """Turn the sketches of all documents into removals (``REMOVAL_SCHEMA``), an order or spans.

        Define this method or :meth:`exchange`. The default runs ``exchange`` in memory with all sketches as one group.

        Raises:
            StageError: two documents have the same id, or the survey defines neither method.
        """
        reject_duplicate_ids(sketches["id"], self.name)
        if (decided := self.exchange(Sketched.held(sketches), InMemory())) is None:
            raise StageError(f"{type(self).__name__} decides nothing: define resolve or exchange")
        removals = decided.read(0).select(REMOVAL_SCHEMA.names)
        return with_report(removals, decided.report)

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided | None:  # noqa: ARG002  # those that can use them
        """Decide with sketches in many tasks; None if it needs all of them in one, see :meth:`resolve`."""
        return None

    def removals(self, sketches: pa.Table) -> pa.Table:
        """Return what it removes, by the sketches of all documents.

        Raises:
            StageError: its answer is not what it says it needs all documents for.
        """
        answer = self.resolve(sketches)
        if not isinstance(answer, pa.Table):
            raise StageError(
                f"{self.name} removes documents, and answers with {type(answer).__name__}: set orders = True if it "
                "orders documents, and derive it from SpanSurvey if it finds spans"
            )
        return answer

    def order(self, sketches: pa.Table) -> npt.NDArray[np.int64]:
        """Return the order of documents, by the sketches of all of them.

        Raises:
            StageError: its answer is none.
        """
        answer = self.resolve(sketches)
        if not isinstance(answer, Order):
            raise StageError(f"{self.name} orders documents, and does not answer with an Order: set orders = False")
        return answer.indices

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Reject being run on a batch, which would remove nothing and look as if it had.

        Raises:
            StageError: always.
        """
        raise StageError(f"{self.name} needs all documents at once, not a batch: write lc.Crawl(dataset) | stage")


@dataclass_transform(frozen_default=True)
def stage(cls: type[S]) -> type[S]:
    """Make ``cls`` a frozen dataclass and register it under its class name in snake case."""
    return STAGES.add(stage_name(f":{cls.__name__}"), cls)


def _restore(cls: type[S], code_version: str, settings: tuple[tuple[str, Any], ...], _: tuple[Any, ...] = ()) -> S:
    if cls.code_version != code_version:
        raise LongCrawlError(
            f"stage {cls.name} was saved by code version {code_version}, this is {cls.code_version}: make it again"
        )
    return cls(**dict(settings))


class SpanSurvey(Survey):
    """Finds places in documents with all of them in view."""

    within_parts: ClassVar[bool] = True

    @abstractmethod
    def find(self, sketches: Iterable[pa.Table], directory: str) -> Spans:
        """Turn the sketches of all documents into spans.

        Files go to ``directory``. Called again with the same sketches and the same ``directory``, it resumes where it
        was stopped; sketches that are not needed again are then not read.
        """

    @property
    def needs(self) -> Needs:
        """All documents, to find spans."""
        return "spans"

    @abstractmethod
    def edit_spans(self, table: pa.Table, spans: Spans) -> tuple[pa.Table, Sequence[Check]]:
        """Edit a batch of documents, as :meth:`longcrawl.core.stages.Edit.edit` does; ``spans`` are found by id."""

    def trace_spans(self, table: pa.Table, spans: Spans) -> Edited:
        """Edit, and list what changed, as :meth:`longcrawl.core.stages.Edit.trace` does."""
        edited, checks = self.edit_spans(table, spans)
        return Edited(edited, checks, changed_places(table, edited))

    def resolve(self, sketches: pa.Table) -> Spans:
        """Turn the sketches of all documents into spans, with files in a temporary folder."""
        with tempfile.TemporaryDirectory() as directory:
            return self.find([sketches], directory)


@dataclass(frozen=True)
class WithSpans(Edit):
    """The edit that a survey makes of the spans it found."""

    survey: SpanSurvey
    spans: Spans

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "name", self.survey.name)

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Apply the spans to a batch."""
        return self.survey.edit_spans(table, self.spans)

    def trace(self, table: pa.Table) -> Edited:
        """Apply the spans to a batch, and list what changed."""
        return self.survey.trace_spans(table, self.spans)


_ORDER = ("list", "url", "text", "passages")
"""What copies share, see :attr:`Stage.copies_share`, in the order in which stages may come."""


def label_stages(names: Sequence[str]) -> list[str]:
    """Name the stages of one pipeline apart: a second ``min_words`` is ``min_words_2``, a dotted path is its class.

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
    """Return what is wrong with the labelled stages of a recipe or a crawl, and what to do; None if nothing is."""
    return bytes_fault(stages) or order_fault(stages)


def bytes_fault(stages: Iterable[tuple[str, Stage]]) -> str | None:
    """Return in which setting ``min_bytes`` counts bytes of another text than ``tokenize`` encodes; None if in none.

    It would keep documents that are too short, or remove some that are long enough.
    """
    by_name: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for label, stage in stages:
        by_name.setdefault(stage.name, []).append((label, stage.settings()))
    for counts, counted in by_name.get("min_bytes", []):
        for encodes, encoded in by_name.get("tokenize", []):
            for field in ["json_escaped", "ensure_ascii"] if encoded["json_escaped"] else ["json_escaped"]:
                if counted[field] != encoded[field]:
                    return (
                        f"{counts}.{field} is {counted[field]} and {encodes}.{field} is {encoded[field]}: set both "
                        f"alike (of a recipe: --set stages.{counts}.{field}={str(encoded[field]).lower()})"
                    )
    return None


def order_fault(stages: Iterable[tuple[str, Stage]]) -> str | None:
    """Return what is wrong with labelled stages one after the other, and what to do; None if nothing is.

    * Copies by a list go before those by URL, and these before those by text. Else the document that stands for several
      equal texts may leave for one of another text.
    * Whole documents go before passages: of passages no copy is kept, so that two equal documents lose all they have.
      After one look at whole documents there may be others: cutting makes texts equal that were not.
    * Nothing orders documents again after a stage that has put related ones together.
    * No stage replaces the measures of another.
    """
    before: dict[str, str] = {}
    measured: dict[str, str] = {}
    related = ""
    for label, stage in stages:
        if twice := [name for name in stage.measures_in if name in measured]:
            fix = f"set {label}.column to another name" if hasattr(stage, "column") else "leave one of them out"
            return f"{label} would replace the column {twice[0]!r} that {measured[twice[0]]} sets: {fix}"
        measured |= dict.fromkeys(stage.measures_in, label)
        if related and stage.orders:
            return f"{label} would undo the order in which {related} puts related documents: leave one of them out"
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
    """Stages that run fused over each part; ``ends_with`` needs all parts before the next segment can start."""

    number: int
    stages: tuple[tuple[str, Stage], ...]
    ends_with: tuple[str, Stage] | None
    begins_with: tuple[str, SpanSurvey] | None
    """The survey that ended the segment before and found spans, which are applied first."""

    @property
    def keeps_documents(self) -> bool:
        """Whether its stages or spans may change or remove documents, so that it has to write those that stay."""
        return self.number == 0 or bool(self.stages) or self.begins_with is not None

    @property
    def survey(self) -> Survey | None:
        """The survey that ends it, which needs sketches of the documents that it keeps."""
        last: Any = self.ends_with[1] if self.ends_with else None
        return None if last is None or last.needs == "fit" else last


def next_segments(
    number: int, stages: Sequence[tuple[str, Stage]], found: tuple[str, SpanSurvey] | None, parts: int
) -> list[Segment]:
    """Return the next segment and, if its survey waits for earlier parts, those that each part then passes by itself.

    The last of them ends with a stage that needs all parts together, or with the output.
    """
    segments = [next_segment(number, stages, found)]
    if parts == 1 or segments[0].survey is None or not segments[0].survey.after_parts:
        return segments
    while (survey := segments[-1].survey) is not None and (survey.within_parts or survey.after_parts):
        stages = stages[len(segments[-1].stages) + 1 :]
        spans = segments[-1].ends_with if survey.needs == "spans" else None
        segments.append(next_segment(segments[-1].number + 1, stages, cast("Any", spans)))
    return segments


def next_segment(number: int, stages: Sequence[tuple[str, Stage]], found: tuple[str, SpanSurvey] | None) -> Segment:
    """Return the segment that the stages still to run begin with; ``found`` is the one before's survey of spans."""
    for place, (label, stage) in enumerate(stages):
        if stage.needs not in ("batch", "order"):
            return Segment(number, tuple(stages[:place]), (label, stage), found)
    return Segment(number, tuple(stages), None, found)
