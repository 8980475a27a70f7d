"""Outputs, which write documents in a format part by part, and the facts of a written output.

Writing has two passes, so that memory is bounded whatever the size: every part *spills* its documents on its own, then
the tasks that ``plan`` lists each write one file or shard, and ``finish`` writes what describes the whole. All of it
can be repeated after a crash: what is finished is kept, and the bytes are the same.

An output says how documents are written, its result what has become of them. Everything that differs between formats
outside of writing is here, so that a run, a card and the questions to a finished run know no format by name.
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
from longcrawl.core.exchange import Engine
from longcrawl.core.registry import Registry, check_fields, plain_settings
from longcrawl.core.removal import Removal
from longcrawl.core.stages import Stage
from longcrawl.errors import FormatError, LongCrawlError, StageError, as_lines, known_names, one_line, warn_user
from longcrawl.io.files import check_target
from longcrawl.io.stored_tables import DESCRIPTIONS, scan_tables
from longcrawl.io.structured import load_json, verify_described

if TYPE_CHECKING:
    import pyarrow.dataset as pads


def read_template(name: str) -> str:
    """Return a file of ``cards/``, of the package itself or, in a checkout, beside it."""
    package = Path(longcrawl.__file__).parent
    inside = package / "cards"
    return ((inside if inside.is_dir() else package.parent / "cards") / name).read_text("utf-8")


@dataclass(frozen=True)
class WriteTask:
    """One file or shard of the second pass: a name for its done-marker, and what the output needs to write it."""

    name: str
    details: tuple[Any, ...]


class Writer(ABC):
    """An output that knows the stages before it. It is pickled to the processes that write."""

    spills: ClassVar[tuple[str, ...]]
    """What the names of the files that ``spill`` writes end with, after the number of the part: ``00000.rows``."""

    def after_shuffle(self) -> "Writer":
        """Return the writer of documents that come in the order of a shuffle already, to be described as shuffled."""
        return self

    @abstractmethod
    def spill(self, tables: Iterable[pa.Table], spill: Path, part: int) -> None:
        """Write the documents of one part to the folder ``spill``, which is there, whole or not at all: ``spills``."""

    def order(self, spill: Path, parts: int, engine: Engine) -> None:  # noqa: B027  # most formats have nothing to do
        """Prepare what ``plan`` would need more memory for than one process has; called before it in a run."""

    @abstractmethod
    def plan(self, spill: Path, parts: int, target: Path) -> list[WriteTask]:
        """Look at all spilled parts, lay out ``target``, which exists, and list the tasks that fill it."""

    @abstractmethod
    def write(self, spill: Path, target: Path, task: WriteTask) -> dict[str, Any]:
        """Do one task and describe what was written, JSON-ready.

        ``files`` has bytes and SHA-256 of each file in ``target``, ``spilled`` those of files in ``spill`` that
        ``finish`` reads.
        """

    @abstractmethod
    def finish(self, spill: Path, target: Path, written: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Write what describes the whole, last, and return it."""


@dataclass(frozen=True)
class OrderedWriter(Writer):
    """A writer of documents in the order of a shuffle, or as they come."""

    spills: ClassVar[tuple[str, ...]] = ("arrow", "index", "json")
    settings: Any
    shuffled: bool
    """Whether documents have a sort key, by which they are put in order."""
    in_order: bool = False
    """Whether they come in the order of a shuffle already."""
    related: bool = False
    """Whether it is no random order, but one in which neighbours belong together."""

    @property
    def described_order(self) -> dict[str, bool]:
        """What the description of an output says about the order."""
        if self.related:
            return {"shuffled": False, "related": True}
        return {"shuffled": self.shuffled or self.in_order}

    def after_shuffle(self) -> Self:
        """Take documents as they come, and describe them as shuffled."""
        return replace(self, in_order=True)


class Output(ABC):
    """The settings of a format as the end of a crawl or a run."""

    name: ClassVar[str]
    second_pass: ClassVar[tuple[str, ...]] = ()
    """Settings that only the second pass looks at: they may change while a run is stopped."""
    keeps_columns: ClassVar[bool] = True
    """Whether it may write any column that documents have."""
    plans_documents: ClassVar[bool] = False
    """Whether one task lays out all documents, by their lengths."""

    def __post_init__(self) -> None:
        check_fields(self, StageError)

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values."""
        return plain_settings(self)

    def check_least(self, **least: int) -> None:
        """Refuse numbers that are below the least that a setting takes.

        Raises:
            StageError: naming output and setting.
        """
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise StageError(f"{self.name}.{name} takes a whole number of {smallest} or more, got {value}")

    @abstractmethod
    def writer(self, stages: Sequence[Stage]) -> Writer:
        """Return what writes: these settings, with what the stages decide filled in (lengths, token type, tokenizer).

        Raises:
            StageError: the stages cannot feed this output; the message says which to add.
        """


OUTPUTS: Registry[Output] = Registry("output", Output, StageError, kinds.OUTPUTS)
"""Every output by the name that recipes use and that ``Crawl.to_NAME`` ends with."""


@dataclass_transform(frozen_default=True)
def output(name: str) -> Any:
    """Make a class a frozen dataclass and register it as an output called ``name``."""
    return partial(OUTPUTS.add, name)


def are_shuffled(stages: Sequence[Stage]) -> bool:
    """Return whether stages give documents a sort key, by which a writer is to put them in order."""
    return any(stage.orders for stage in stages)


def mark_related(writer: Writer, stages: Sequence[Stage]) -> Writer:
    """Return a writer that knows whether the stages put related documents together."""
    related = any(stage.relates for stage in stages)
    return replace(writer, related=True) if related and isinstance(writer, OrderedWriter) else writer


def write_output(tables: Iterable[pa.Table], steps: Sequence[Stage], output: Output, target: Path) -> dict[str, Any]:
    """Write documents to a new folder at once, in the order that the stages gave them; return what describes them.

    Raises:
        LongCrawlError: ``target`` exists, or the format cannot hold the documents.
    """
    check_target(target, LongCrawlError, "remove it, or choose another path")
    # The documents of a crawl are in their order, and have no column that says so.
    others = [step for step in steps if not step.orders]
    output.writer(steps)  # rejects an order that it would undo
    writer = output.writer(others)
    if len(others) < len(steps):
        writer = mark_related(writer.after_shuffle(), steps)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        spill, made = Path(folder) / "spill", Path(folder) / "made"
        spill.mkdir()
        made.mkdir()
        writer.spill(tables, spill, 0)
        written = [writer.write(spill, made, task) for task in writer.plan(spill, 1, made)]
        described = writer.finish(spill, made, written)
        made.rename(target)
    return described


Kind = TypeVar("Kind", bound="Result")

LEDGER = "ledger"
"""The word of a card that becomes the lines on removed documents."""


@dataclass(frozen=True)
class Verification:
    """What a verification found; ``problems`` is empty when all is well."""

    path: str
    checked: str
    problems: tuple[str, ...]

    @classmethod
    def by_description(cls, folder: Path, name: str, described: Mapping[str, Any], files: str = "*") -> "Verification":
        """Compare an output, and what matches ``files`` in its folder, with the description ``name`` in it."""
        checked = f"{len(described['files'])} files compared with their SHA-256"
        return cls(str(folder), checked, tuple(verify_described(folder, name, described, files)))

    def __str__(self) -> str:
        if not self.problems:
            return one_line(f"{self.path}: whole; {self.checked}")
        return as_lines(
            [f"{self.path}: {len(self.problems)} problem(s); {self.checked}", *(f"  {each}" for each in self.problems)]
        )


@dataclass(frozen=True, kw_only=True)
class Inspection(ABC):
    """What one split of an output holds, and one of its rows; ``str`` gives it for people."""

    path: str
    split: str
    row: int
    row_id: str | None
    url: str | None
    text: str | None
    """The beginning of the document; None where it cannot be decoded."""

    @abstractmethod
    def __str__(self) -> str: ...


class TokenRows(ABC):
    """The rows of one split of an output of tokens, for tables that plain `datasets` loads; picklable."""

    rows: int
    tokens: int
    """In all rows, about: files are cut by it."""

    @abstractmethod
    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield rows ``start:stop`` in order, in tables of any number of rows that fit into memory.

        Every table has the same columns: ``input_ids``, lists of int32; ``n_tokens``, int64, how many these are; and
        what else is known of a row, such as ``id``, ``url``, ``loss_mask`` (lists of bool) or ``roll`` (int64, by how
        much ``input_ids`` are rolled).
        """


class Result(ABC):
    """Facts of one format. ``described`` is always what its writer's ``finish`` gave, in a run's manifest.

    A run has its output in the folder ``name``, beside a dataset card. An output of another package is one folder, with
    the :class:`~longcrawl.core.outputs.Output`, this class and ``card.md``.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    """The file that describes the whole output and is written last."""
    tags: ClassVar[tuple[str, ...]] = ()
    """What the Hub files the dataset under."""
    citation: ClassVar[str] = ""
    """The work after which the format was made, in BibTeX."""
    fewer_files: ClassVar[str] = "settings that make fewer files"
    """What to write in a recipe where the Hub takes fewer files."""
    smaller_files: ClassVar[str] = "settings that make smaller files"
    """The same where it takes smaller ones."""
    feed: ClassVar[str] = ""
    """The usual feed of ``longcrawl trace`` for it; empty where none of longcrawl's reads it."""
    lengths: ClassVar[str] = ""
    """A pattern of the files whose column ``n_tokens`` says how long documents are; empty where all files are asked."""
    lengths_are_ended: ClassVar[bool] = False
    """Whether ``n_tokens`` counts an end-of-text token."""

    def documents(self, described: Mapping[str, Any]) -> int:
        """Count the documents of all splits."""
        return sum(split["documents"] for split in described["splits"].values())

    @abstractmethod
    def summary(self, described: Mapping[str, Any]) -> str:
        """Describe in a few words what was written: ``heldout 4 x 4,096, train 38 x 4,096``."""

    @abstractmethod
    def read_back(self, folder: Path) -> str:
        """Read the beginning as a user would, and say what came."""

    @abstractmethod
    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the dataset configurations that plain `datasets` loads, one of them the default; paths in the run.

        Files may be of any format that it knows by their endings; of parquet files the card has the features, too.
        """

    @abstractmethod
    def contents(self, described: Mapping[str, Any]) -> str:
        """Describe in Markdown how much there is, and what a row is."""

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG002  # others need it
        """Return what the template of the card leaves open."""
        return {}

    def card_template(self) -> str:
        """Return the section on loading of a card, a :class:`string.Template`: ``card.md`` beside this class.

        Those of longcrawl's own outputs are ``cards/NAME.md``.

        Raises:
            StageError: there is no such file.
        """
        module = type(self).__module__
        if module.partition(".")[0] == "longcrawl":
            return read_template(f"{self.name}.md")
        package = module if hasattr(sys.modules[module], "__path__") else module.rpartition(".")[0]
        folder = resources.files(package) if package else Path(getattr(sys.modules[module], "__file__", "")).parent
        try:
            return folder.joinpath("card.md").read_text("utf-8")
        except OSError as missing:
            raise StageError(
                f"output {self.name!r} has no {folder.joinpath('card.md')}: write in it how to load the dataset, "
                f"or define {type(self).__name__}.card_template (docs/extend.md)"
            ) from missing

    def check_card(self) -> None:
        """Check the template of the card before there is anything that it could describe.

        Raises:
            StageError: it is missing, a ``$`` in it begins no word, or a word is none that the card fills in.
        """
        template = Template(self.card_template())
        for found in template.pattern.finditer(template.template):
            if found["invalid"] is not None:
                line = template.template.count("\n", 0, found.start()) + 1
                raise StageError(
                    f"line {line} of the card of output {self.name!r} has a $ alone: write $$ for a dollar sign"
                )
        if type(self).card_words is Result.card_words:
            self._check_words(template, [LEDGER])

    def fill_card(self, described: Mapping[str, Any], ledger: str) -> str:
        """Return the section on loading with its words filled in.

        Raises:
            StageError: as :meth:`check_card` raises it.
        """
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
        """Return what a user must know, a sentence each."""
        return []

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # others need it
        """Describe in Markdown what samples pad, cut and mix, where this is an output of samples; else ""."""
        return ""

    def cut(self, folder: Path, described: Mapping[str, Any]) -> str:  # noqa: ARG002  # others need it
        """Describe how much of its documents this output cuts off, a sentence; "" where nothing is known to be."""
        return ""

    @abstractmethod
    def verify(self, folder: Path) -> Verification:
        """Check every file.

        Raises:
            FormatError: there is no such output at ``folder``.
        """

    @abstractmethod
    def inspect(self, folder: Path, split: str, row: int) -> Inspection:
        """Return what one split holds, and one row of it.

        Raises:
            FormatError: no such split or row.
        """

    def ids(self, folder: Path) -> "pads.FileSystemDataset":
        """Return a row per document: ``id``, and what there is of url, language, text, n_tokens.

        Whether a document was kept, how long documents are and where they come from is read here; the dataset has no
        files where nothing says it. It is the tables that ``lengths`` names.
        """
        return scan_tables(sorted(folder.glob(self.lengths)) if self.lengths else [])

    @property
    def records_ids(self) -> bool:
        """Whether it has tables of its documents."""
        return bool(self.lengths) or type(self).ids is not Result.ids

    def without(self, folder: Path, ids: pa.Array, settings: Output) -> Removal:  # noqa: ARG002  # others need it
        """Write the files that hold some documents again, without these, and the description of the output.

        Files are replaced by others of their names, never written in place: they may be hard links.

        Args:
            folder: of the output.
            ids: strings, of the documents.
            settings: of the output, as its recipe has them.

        Raises:
            FormatError: the output cannot do so.
        """
        raise FormatError(
            f"{self.name} cannot take documents out: run the recipe again without them, as text.OptOut does"
        )

    def token_rows(self, folder: Path) -> Mapping[str, TokenRows]:  # noqa: ARG002  # others need it
        """Return the rows of tokens by split, of which a push makes tables; none where plain `datasets` needs none."""
        return {}


class Results(Mapping[str, Result]):
    """The result of every output, by the output's name: importing an output of another package registers both."""

    def __init__(self) -> None:
        self._results: dict[str, Result] = {}

    def add(self, result: Result) -> None:
        """Make a result known."""
        self._results[result.name] = result
        DESCRIPTIONS.add(result.description)

    def described(self) -> dict[str, str]:
        """Return the names of outputs by the files that describe them; a package that cannot be loaded is a warning."""
        found = {}
        for name in self:
            try:
                found[self[name].description] = name
            except LongCrawlError as wrong:
                warn_user(str(wrong))
        return found

    def around(self, path: Path) -> tuple[Path, dict[str, Any]] | None:
        """Return the output that a path is, or that describes it as its own, and its description."""
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
                    f"output {name!r} of {kind.__module__} has no result: decorate a Result of this name with @result"
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
    """Register the facts of the output of the same name."""
    RESULTS.add(cls())
    return cls
