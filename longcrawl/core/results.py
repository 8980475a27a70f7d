"""Facts of a written output: for the end of a run, its card and later questions.

An output says how documents are written, its result what has become of them. Everything that differs between formats
outside of writing is here, so that a run, a card and the questions to a finished run know no format by name.
"""

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa

from longcrawl.core import kinds
from longcrawl.core.outputs import OUTPUTS, Output
from longcrawl.core.removal import Removal
from longcrawl.core.templates import read_template
from longcrawl.errors import FormatError, LongCrawlError, StageError, warn_user
from longcrawl.printable import as_lines, known_names, one_line
from longcrawl.storage.sealed import verify_described
from longcrawl.storage.stored_tables import DESCRIPTIONS, scan_tables
from longcrawl.storage.structured import load_json

if TYPE_CHECKING:
    import pyarrow.dataset as pads

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
