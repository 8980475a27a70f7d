"""Interfaces of outputs, which write documents in a format, and of results, which describe and check written ones.

Writing has two passes, so that memory is bounded. First each part *spills* its documents. Then ``plan`` lists tasks,
each of which writes one file or shard, and ``finish`` writes the description of the whole. All steps can be repeated.
"""

import importlib
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from itertools import product
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import pyarrow as pa

import longcrawl
from longcrawl.core import kinds
from longcrawl.core.batches import HAVE_FILES, NEED_TEXTS, has_content
from longcrawl.core.exchange import Engine
from longcrawl.core.registry import Configured, Registry
from longcrawl.core.removal import Removal
from longcrawl.core.stages import Stage
from longcrawl.errors import FormatError, LongCrawlError, StageError, known_names, warn_user
from longcrawl.io.files import check_target
from longcrawl.io.stored_tables import DESCRIPTIONS, scan_tables
from longcrawl.io.structured import Verification, load_json

if TYPE_CHECKING:
    import pyarrow.dataset as pads


def read_template(name: str) -> str:
    """Read a file in ``cards/``, which is in the installed package or, in a checkout, beside it."""
    package = Path(longcrawl.__file__).parent
    inside = package / "cards"
    return ((inside if inside.is_dir() else package.parent / "cards") / name).read_text("utf-8")


@dataclass(frozen=True)
class WriteTask:
    """One file or shard of the second pass: a name for its marker, and the details that the writer needs."""

    name: str
    details: tuple[Any, ...]


class Writer(ABC):
    """Interface of writers: an output with the settings of the stages before it filled in; picklable."""

    spills: ClassVar[tuple[str, ...]]
    """Extensions of the files that ``spill`` writes, after the number of the part: "rows" for ``00000.rows``."""

    def after_shuffle(self) -> "Writer":
        """Return the writer for documents that are already shuffled, which describes them as shuffled."""
        return self

    @abstractmethod
    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """Write the documents of one part atomically to files in the existing directory ``spill``, see ``spills``."""

    def order(self, spill: Path, parts: int, engine: Engine) -> None:  # noqa: B027  # most formats have nothing to do
        """Prepare work for which ``plan`` alone would need too much memory; a run calls it before ``plan``."""

    @abstractmethod
    def plan(self, spill: Path, parts: int) -> list[WriteTask]:
        """List the tasks that write the output of all spilled parts."""

    @abstractmethod
    def write(self, spill: Path, target: Path, task: WriteTask) -> dict[str, Any]:
        """Execute a task and return a JSON-ready description, with bytes and SHA-256 of its ``files`` in ``target``.

        The entry ``spilled`` has the same for the files in ``spill`` that ``finish`` reads.
        """

    @abstractmethod
    def finish(self, spill: Path, target: Path, written: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Write the description of the whole output, last, and return it."""


@dataclass(frozen=True)
class OrderedWriter(Writer):
    """Base of writers that keep the order of documents or sort them by a shuffle's key."""

    spills: ClassVar[tuple[str, ...]] = ("arrow", "index", "json")
    settings: Any
    shuffled: bool
    """Whether documents have a sort key by which they must be sorted."""
    in_order: bool = False
    """Whether documents are already in shuffled order."""
    related: bool = False
    """Whether the order puts related documents together instead of being random."""

    @property
    def described_order(self) -> dict[str, bool]:
        """Entries on the order of documents in the description of an output."""
        if self.related:
            return {"shuffled": False, "related": True}
        return {"shuffled": self.shuffled or self.in_order}

    def after_shuffle(self) -> Self:
        """Return a writer that keeps the order of documents and describes them as shuffled."""
        return replace(self, in_order=True)


class Output(Configured, ABC):
    """Base of outputs: the settings with which a crawl or a run writes a format."""

    second_pass: ClassVar[tuple[str, ...]] = ()
    """Settings used only by the second pass, which may change while a run is stopped."""
    keeps_columns: ClassVar[bool] = True
    """Whether it may write any column of the documents."""
    plans_documents: ClassVar[bool] = False
    """Whether a single task lays out all documents, by their lengths."""

    @abstractmethod
    def writer(self, stages: Sequence[Stage]) -> Writer:
        """Return the writer: these settings, completed from the stages; StageError if they cannot feed the output."""


OUTPUTS: Registry[Output] = Registry("output", Output, StageError, kinds.OUTPUTS)
"""Registry of outputs by the name used in recipes and in ``Crawl.to_NAME``."""


@dataclass_transform(frozen_default=True)
def output(name: str) -> Any:
    """Make a class a frozen dataclass and register it as an output called ``name``."""
    return partial(OUTPUTS.add, name)


def are_shuffled(stages: Sequence[Stage]) -> bool:
    """Return whether stages give documents a sort key by which the writer must sort them."""
    return any(stage.orders for stage in stages)


def mark_related(writer: Writer, stages: Sequence[Stage]) -> Writer:
    """Mark an ordered writer as related if the stages put related documents together."""
    related = any(stage.relates for stage in stages)
    return replace(writer, related=True) if related and isinstance(writer, OrderedWriter) else writer


def without_content(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield documents for a writer; StageError if they still have the column ``content``."""
    for table in tables:
        if has_content(table.schema):
            raise StageError(f"the documents {HAVE_FILES}, which no output writes: {NEED_TEXTS}")
        yield table


def write_output(tables: Iterable[pa.Table], steps: Sequence[Stage], output: Output, target: Path) -> dict[str, Any]:
    """Write documents that are in final order to a new directory and return the output's description.

    Raises:
        LongCrawlError: ``target`` exists, or the format cannot represent the documents.
    """
    check_target(target, LongCrawlError, "remove it, or choose another path")
    # The documents of a crawl are already in order and have no sort key.
    others = [step for step in steps if not step.orders]
    output.writer(steps)  # raises an error for an order that the output would undo
    writer = output.writer(others)
    if len(others) < len(steps):
        writer = mark_related(writer.after_shuffle(), steps)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        spill, made = Path(folder) / "spill", Path(folder) / "made"
        spill.mkdir()
        made.mkdir()
        writer.spill(without_content(tables), spill, 0)
        written = [writer.write(spill, made, task) for task in writer.plan(spill, 1)]
        described = writer.finish(spill, made, written)
        made.rename(target)
    return described


Kind = TypeVar("Kind", bound="Result")

LEDGER = "ledger"
"""Placeholder in card templates for the lines on removed documents."""


@dataclass(frozen=True, kw_only=True)
class Inspection(ABC):
    """Facts about one split of an output and one of its rows; ``str`` formats them for people."""

    path: str
    split: str
    row: int
    row_id: str | None
    url: str | None
    text: str | None
    """The beginning of the document, or None if it cannot be decoded."""

    @abstractmethod
    def __str__(self) -> str: ...


class TokenRows(ABC):
    """Rows of one split of a token output, for tables that plain `datasets` loads; picklable."""

    rows: int
    tokens: int
    """Approximate number of tokens in all rows, by which files are split."""

    @abstractmethod
    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield rows ``start:stop`` in order, in tables of any size that fits into memory.

        Columns are ``input_ids`` (lists of int32), ``n_tokens`` (int64, their lengths), and other facts about a row,
        such as ``id``, ``url``, ``loss_mask`` (lists of bool) or ``roll`` (int64, the offset of rolled ``input_ids``).
        """


class Result(ABC):
    """Base of results: everything about a format other than writing it, such as cards, verification and inspection.

    The argument ``described`` of its methods is the description that the writer's ``finish`` returned. A run has its
    output in the directory ``name``.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    """Name of the file that describes the whole output, which is written last."""
    tags: ClassVar[tuple[str, ...]] = ()
    citation: ClassVar[str] = ""
    """BibTeX entry of the work that the format follows."""
    fewer_files: ClassVar[str] = "settings that make fewer files"
    smaller_files: ClassVar[str] = "settings that make smaller files"
    """Recipe settings to recommend if there are too many files for the Hub, or too large ones."""
    feed: ClassVar[str] = ""
    """Default feed of ``longcrawl trace`` for this format; empty if no feed of longcrawl reads it."""
    lengths: ClassVar[str] = ""
    """Glob of the tables with a row per document and their lengths in the column ``n_tokens``; empty if none have."""
    lengths_are_ended: ClassVar[bool] = False
    """Whether ``n_tokens`` counts an end-of-text token."""

    def documents(self, described: Mapping[str, Any]) -> int:
        """Count the documents of all splits."""
        return sum(split["documents"] for split in described["splits"].values())

    @abstractmethod
    def summary(self, described: Mapping[str, Any]) -> str:
        """Describe the written rows in a few words, such as ``heldout 4 x 4,096, train 38 x 4,096``."""

    @abstractmethod
    def read_back(self, folder: Path) -> str:
        """Read the beginning of the output as a user would and describe the result."""

    @abstractmethod
    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the dataset configurations that plain `datasets` loads, one the default; paths are in the run."""

    @abstractmethod
    def contents(self, described: Mapping[str, Any]) -> str:
        """Describe in Markdown the amount of data, and the contents of a row."""

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG002  # others need it
        """Return the values of the placeholders in the card template."""
        return {}

    def card_template(self) -> str:
        """Return the template of a card's section on loading: ``card.md`` beside this class, or ``cards/NAME.md``."""
        module = type(self).__module__
        if module.partition(".")[0] == "longcrawl":
            return read_template(f"{self.name}.md")
        package = module if hasattr(sys.modules[module], "__path__") else module.rpartition(".")[0]
        folder = resources.files(package) if package else Path(getattr(sys.modules[module], "__file__", "")).parent
        try:
            return folder.joinpath("card.md").read_text("utf-8")
        except OSError as missing:
            raise StageError(
                f"output {self.name!r} has no {folder.joinpath('card.md')}: explain there how to load the dataset, "
                f"or define {type(self).__name__}.card_template (docs/extend.md)"
            ) from missing

    def check_card(self) -> None:
        """Raise StageError if the card template is missing, or has a ``$`` alone or an unknown placeholder."""
        template = Template(self.card_template())
        for found in template.pattern.finditer(template.template):
            if found["invalid"] is not None:
                line = template.template.count("\n", 0, found.start()) + 1
                raise StageError(
                    f"line {line} of the card of output {self.name!r} has a lone $: write $$ for a dollar sign"
                )
        if type(self).card_words is Result.card_words:
            self._check_words(template, [LEDGER])

    def fill_card(self, described: Mapping[str, Any], ledger: str) -> str:
        """Return the card's section on loading with its placeholders filled in."""
        self.check_card()
        template, words = Template(self.card_template()), {LEDGER: ledger, **self.card_words(described)}
        self._check_words(template, words)
        return template.substitute(words)

    def _check_words(self, template: Template, known: Iterable[str]) -> None:
        for name in template.get_identifiers():
            if name not in known:
                raise StageError(
                    f"the card of output {self.name!r} has the word ${name}; {known_names(known, name)}. "
                    f"Write $$ for a dollar sign, or return it from {type(self).__name__}.card_words"
                )

    def limits(self, described: Mapping[str, Any]) -> list[str]:  # noqa: ARG002  # others need it
        """Return the limitations that a user must know, one sentence each."""
        return []

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # others need it
        """Describe in Markdown how samples pad, cut and mix documents; "" if the output has no samples."""
        return ""

    def cut(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # others need it
        """Describe in one sentence how much of its documents this output cuts off; "" if nothing is known to be cut."""
        return ""

    @abstractmethod
    def verify(self, folder: Path) -> Verification:
        """Verify every file, or raise FormatError if ``folder`` has no output of this format."""

    @abstractmethod
    def inspect(self, folder: Path, split: str, row: int) -> Inspection:
        """Return facts about one split, and one of its rows; FormatError if they do not exist."""

    def ids(self, folder: Path) -> "pads.FileSystemDataset":
        """Return the tables of documents, if any: ``id``, and url, language, text and n_tokens if available."""
        return scan_tables(sorted(folder.glob(self.lengths)) if self.lengths else [])

    @property
    def records_ids(self) -> bool:
        """Whether the output has tables of its documents, see :meth:`ids`."""
        return bool(self.lengths) or type(self).ids is not Result.ids

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:  # noqa: ARG002  # others need it
        """Remove documents with these ids (strings) from an output with the ``settings`` of its recipe.

        Files are replaced, never written in place: they may be hard links. FormatError if the format cannot do it.
        """
        raise FormatError(
            f"{self.name} cannot remove documents: run the recipe again without them, for example with text.OptOut"
        )

    def token_rows(self, folder: Path) -> Mapping[str, TokenRows]:  # noqa: ARG002  # others need it
        """Return the token rows by split, which a push converts to tables; none if `datasets` loads the files."""
        return {}


class Results(Mapping[str, Result]):
    """Registry of results by the name of their output; importing an output of another package registers both."""

    def __init__(self) -> None:
        self._results: dict[str, Result] = {}

    def add(self, result: Result) -> None:
        """Register a result."""
        self._results[result.name] = result
        DESCRIPTIONS.add(result.description)

    def described(self) -> dict[str, str]:
        """Return the names of outputs by their description files; warn about packages that cannot be loaded."""
        found = {}
        for name in self:
            try:
                found[self[name].description] = name
            except LongCrawlError as wrong:
                warn_user(str(wrong))
        return found

    def around(self, path: Path) -> tuple[Path, dict[str, Any]] | None:
        """Return the directory and the description of the output that a path belongs to, or None if there is none."""
        within = path.resolve()
        for place, name in product((within, *within.parents), self.described()):
            if (place / name).is_file():
                with suppress(OSError, ValueError, LookupError, TypeError):
                    described: dict[str, Any] = load_json((place / name).read_bytes())
                    if any((place / each).is_relative_to(within) for each in described["files"]):
                        return place, described
        return None

    def __getitem__(self, name: str) -> Result:
        if name not in self._results and name in kinds.RESULTS:
            importlib.import_module(kinds.RESULTS[name].partition(":")[0])
        if name not in self._results:
            kind = OUTPUTS[name]
            if name not in self._results:
                raise StageError(
                    f"output {name!r} of {kind.__module__} has no result: decorate a Result class of this name "
                    "with @result"
                )
        return self._results[name]

    def __contains__(self, name: object) -> bool:
        return name in OUTPUTS

    def __iter__(self) -> Iterator[str]:
        return iter(OUTPUTS)

    def __len__(self) -> int:
        return len(OUTPUTS)


RESULTS = Results()


def result(cls: type[Kind]) -> type[Kind]:
    """Register a class as the result of the output with the same name."""
    RESULTS.add(cls())
    return cls
