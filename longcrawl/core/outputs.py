"""What an output is: a frozen dataclass that writes a stream of documents in some format, part by part.

Writing has two passes, so that memory is bounded whatever the size: every part *spills* its documents on its own, then
the tasks that ``plan`` lists each write one file or shard, and ``finish`` writes what describes the whole. All of it
can be repeated after a crash: what is finished is kept, and the bytes are the same.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, dataclass_transform

import pyarrow as pa

from longcrawl.core import kinds
from longcrawl.core.fields import check_fields, plain_settings
from longcrawl.core.registry import Registry
from longcrawl.core.stages import Stage
from longcrawl.engines.base import Engine
from longcrawl.errors import LongCrawlError, StageError
from longcrawl.storage.files import check_target


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
