"""What a source of documents is: a frozen dataclass that lists its parts and reads one part at a time.

The same source object feeds ``load_dataset("longcrawl", NAME, …)`` (the builder in ``builders/``)
and ``longcrawl run``, so both see the same documents under the same ids.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, dataclass_transform

import numpy as np
import pyarrow as pa

from longcrawl.core import kinds
from longcrawl.core.registry import Registry, check_fields, plain_settings
from longcrawl.errors import SourceError, listed_with_near, shortened, warn_user
from longcrawl.urls import hide_secrets, is_url, plain_urls, with_options, without_secrets

if TYPE_CHECKING:
    from longcrawl.core.stages import Stage

OnBadFiles = Literal["error", "warn", "skip"]
"""What a missing, cut or corrupt input file does: stop, warn and continue, or continue; it is reported in each case."""

OnDuplicateIds = Literal["error", "keep_first"]
"""What documents of one id do in a run: stop it, or leave all but the first, in the order of parts and rows."""

Checksums = Literal["first", "last"]
"""When checksums of compressed data are compared: before any of it leaves a reader, or behind it.

Who takes them "last" throws away what was made of the data where :class:`UncheckedDataError` or any other error is
raised, and reads it again with its checksums "first", which finds out what is wrong with it, and applies the policy.
"""

StorageOptions = Mapping[str, Any] | None
"""What fsspec takes to open the stores that URLs of a source name: endpoint_url, anon, profile, requester_pays."""

_CREDENTIAL = re.compile(
    r"secret|passw|credential|signature|connection_string|(^|_)(key|token|sas|auth)($|_)", re.IGNORECASE
)

_WORDS = {("token", word) for word in ("anon", "cloud", "google_default", "browser", "cache")}
"""What gcsfs takes in the place of a token."""

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("text", pa.large_string()),
        *(pa.field(name, pa.string()) for name in ("url", "date", "source", "language")),
    ]
)
"""The columns of every source of texts, before its own."""
MOST_REASON = 2_000
"""Characters of a reason: names of fields in it, and what libraries say, have no limit."""
MOST_NAMED = 3
"""How many damaged places of a file are named; all are counted."""
LOOKED_AT = 10
"""Parts whose fields an error names."""
OTHER_FIELD = "= to one of them"
"""What a reason says, with its setting, where documents have other fields."""
WITHOUT = "; to continue without it, set on_bad_files to 'warn' or 'skip' (--set source.on_bad_files=skip)"
"""What a sentence on a damaged file ends with."""


class UncheckedDataError(SourceError):
    """Data has left a reader, and its checksum is wrong or missing."""


@dataclass(frozen=True)
class Part:
    """One input shard: a name that is stable and unique within its source, and the files that are read for it."""

    name: str
    files: tuple[str, ...] = ()
    pieces: tuple["Part", ...] = ()
    """The parts of the source that a run reads as this one, whose files these are; none of a part by itself."""

    def each(self) -> "tuple[Part, ...]":
        """Return the parts of the source that this one is made of."""
        return self.pieces or (self,)


@dataclass(frozen=True)
class BadFile:
    """One input file, or one record of it, that could not be read."""

    file: str
    reason: str
    records_lost: int | None = None
    """How many records are lost, those that damaged data seems to hold; None when nobody can know how many."""


@dataclass(frozen=True)
class Loss:
    """Lines of an input file that cannot be read.

    Attributes:
        kind: one "line", or "damage", after which lines are numbered by the line feeds that could be decompressed.
        line: the first one, counted from 1.
        lines: how many; None where nobody can know. Of damage, it is the lines that the damaged data seems to have.
        reason: why, as the end of a sentence that begins with the line, or with the file.
    """

    kind: Literal["line", "damage"]
    line: int
    lines: int | None
    reason: str


@dataclass
class BadFiles:
    """Applies the policy for broken input and keeps the list that manifest and card print."""

    policy: OnBadFiles = "error"
    found: list[BadFile] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """How many records are left out by a rule of the source, such as redirects; this is not damage."""
    encodings: Counter[str] = field(default_factory=Counter)
    """Number of files, or pages of web archives, by encoding, unless the source knows that they are UTF-8."""
    fields: dict[str, int] = field(default_factory=dict)
    """Number of records with a value in each field that a setting names; no entry for a field without any."""
    checksums: Checksums = "first"
    """When checksums may be compared."""
    has_unchecked: bool = False
    """Whether data of the file that is read now may have left its reader before its checksum was compared."""

    def count_field(self, name: str, values: int) -> None:
        """Count records that have a value in a field that a setting names; it may be null in all of them."""
        self.fields[name] = self.fields.get(name, 0) + values

    def when_to_check(self, file: str) -> Checksums:
        """Return when a reader may compare the checksums of a file, and note it."""
        if not file.endswith((".gz", ".zst")):
            return "first"
        self.has_unchecked = self.checksums == "last"
        return self.checksums

    def report(self, file: str, reason: str, records_lost: int | None = None) -> None:
        """Note a broken file.

        Raises:
            SourceError: under the policy "error".
        """
        file, reason = without_secrets(file), shortened(hide_secrets(reason), MOST_REASON)
        if self.policy == "error":
            # Without a field that was misspelled, one would continue without any document.
            raise SourceError(f"{file}: {reason}{'' if OTHER_FIELD in reason else WITHOUT}")
        self.found.append(BadFile(file, reason, records_lost))
        if self.policy == "warn" and self.checksums == "first":
            warn_user(f"{file}: {reason}")

    def warn_late(self) -> None:
        """Warn of what was kept back while the part might have been read again."""
        if self.policy == "warn" and self.checksums == "last":
            for bad in self.found:
                warn_user(f"{bad.file}: {bad.reason}")


class LostRecords:
    """Gathers the records of one file that cannot be read, and reports them together when the file has been read.

    Under the policy "error" the first one stops the run. ``consequence`` is what becomes of the rest, if the report is
    to say it. ``explain`` adds to the first reason what to do about it.
    """

    def __init__(
        self, bad_files: BadFiles, file: str, consequence: str = "", explain: Callable[[str], str] = str
    ) -> None:
        self._bad_files, self._file, self._consequence, self._explain = bad_files, file, consequence, explain
        self._first, self._count = "", 0
        self._damages: list[str] = []
        self._damage_count = 0
        self._lines: int | None = 0
        """How many lines damage has taken; None where nobody can know."""

    def add(self, where: str, reason: str) -> None:
        """Note one record.

        Raises:
            SourceError: under the policy "error".
        """
        self._first = self._first or f"{where} {self._explain(reason)}"
        self._count += 1
        if self._bad_files.policy == "error":
            self.report()

    def add_loss(self, loss: Loss) -> None:
        """Note lines that :func:`~longcrawl.sources.blocks.read_blocks` cannot yield.

        Raises:
            SourceError: under the policy "error".
        """
        if loss.kind == "line":
            self.add(f"line {loss.line}", loss.reason)
            return
        self._add_damage(loss.reason, loss.lines)
        if self._bad_files.policy == "error":
            self.report()

    def report(self, damage: str = "", records_lost: int | None = None) -> None:
        """Report what was lost, if anything, together with ``damage`` that ended the reading, in one entry."""
        if damage:
            self._add_damage(damage, records_lost)
        more = self._damage_count - len(self._damages)
        reasons = self._damages + [f"and {more} more places like these"] * bool(more)
        others = f" (and {self._count - 1} more like it)" if self._count > 1 else ""
        reasons += [self._first + others] * bool(self._count)
        if reasons:
            reasons += [self._consequence] * bool(self._consequence)
            lost = None if self._lines is None else self._lines + self._count
            self._bad_files.report(self._file, "; ".join(reasons), lost)

    def _add_damage(self, reason: str, lines: int | None) -> None:
        self._damage_count += 1
        if len(self._damages) < MOST_NAMED:
            self._damages.append(reason)
        self._lines = None if self._lines is None or lines is None else self._lines + lines


class Source(ABC):
    """Where documents come from."""

    name: ClassVar[str]
    homepage: ClassVar[str] = "https://huggingface.co/docs/datasets"
    """Homepage of the release or format."""
    license: ClassVar[str] = "unknown"
    """Licence of the documents, shown in ``dataset.info``."""
    on_bad_files: OnBadFiles
    storage_options: StorageOptions

    def __post_init__(self) -> None:
        check_fields(self, SourceError)
        for option in _nested(self._options()):
            if _CREDENTIAL.search(option):
                raise SourceError(
                    f"storage_options has {option!r}, and a recipe is written and published: leave it out, and set "
                    "credentials in the environment or in a profile"
                )

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values, URLs without secrets; ``storage_options`` only if there are some."""
        settings: dict[str, Any] = plain_urls(plain_settings(self))
        return settings if self._options() else {k: value for k, value in settings.items() if k != "storage_options"}

    def located(self, named: Any) -> Any:
        """Return paths, URLs and globs, nested as a field has them, with every URL carrying ``storage_options``."""
        options = self._options()
        if isinstance(named, str):
            return with_options(named, options) if options and is_url(named) else named
        if isinstance(named, Mapping):
            return {key: self.located(each) for key, each in named.items()}
        return tuple(map(self.located, named)) if isinstance(named, list | tuple) else named

    def _options(self) -> Mapping[str, Any]:
        return getattr(self, "storage_options", None) or {}  # other packages' sources may have no such field

    def for_tokens(self, signals: Sequence[str]) -> Self:  # noqa: ARG002  # sources that have signals need it
        """Return the source for a run that writes tokens, whose stages look at these quality signals and no others.

        Columns that cost time and that no stage of ours looks at may be left out.
        """
        return self

    def for_stages(self, stages: "Sequence[Stage]") -> Self:  # noqa: ARG002  # sources that skip files need it
        """Return the source for a run with these stages; files may be skipped of which they keep nothing.

        Only where a field of the source says so: what is skipped is in no ledger.
        """
        return self

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""

    @abstractmethod
    def splits(self) -> dict[str, list[Part]]:
        """List the parts of every split, sorted by name; most sources have the one split "train".

        Raises:
            SourceError: there is nothing to read; the message says where it looked and what to type.
        """

    def content(self) -> str:
        """Return what says which documents the source has and is in no file of its parts; nothing for most sources."""
        return ""

    def named_fields(self) -> Mapping[str, str]:
        """Return the fields of records that settings name, with the setting of each; defaults are left out."""
        return {}

    def known_fields(self, part: Part) -> Sequence[str]:  # noqa: ARG002  # sources whose settings name fields need it
        """Return the fields that the first records of a part have."""
        return ()

    def lists(self) -> Mapping[str, Mapping[str, Any]]:
        """Return bytes, SHA-256 and number of paths of each list that names the files of the source, by path or URL.

        Most sources have none. A run records them, and is not resumed with another list.
        """
        return {}

    def fingerprint(self) -> str:
        """Return a text that changes with the settings, the content, the parts, and size or time of a local file.

        `datasets` names its cache by it. Remote files count by their names only: `datasets` does not notice when one is
        replaced. A run records instead what it has read, see :mod:`longcrawl.sources.files`.
        """
        digest = hashlib.sha256(f"{self.settings()!r} {self.content()}".encode())
        for split, parts in self.splits().items():
            for part in parts:
                digest.update(f"{split} {part.name}\n".encode())
                for file in part.files:
                    status = Path(file).stat() if Path(file).exists() else None
                    line = f"{without_secrets(file)} {status and (status.st_size, status.st_mtime_ns)}\n"
                    digest.update(line.encode("utf-8", "backslashreplace"))
        return digest.hexdigest()

    @property
    def unique_ids(self) -> bool:
        """Whether ids are made of names and numbers, so that no two documents of the source can have the same."""
        return False

    def list_ids(self, part: Part) -> Iterator[pa.ChunkedArray] | None:  # noqa: ARG002  # sources that can need it
        """List the ids of a part, perhaps of some that ``read`` leaves out; a run compares them before its stages.

        Nothing is read before the first is asked for, and damage is not reported. None where listing takes as long as
        reading.
        """
        return None

    @abstractmethod
    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read one part in tables of some 32 MB of text at most, always cut at the same places."""


def check_fields_named(
    source: Source,
    tables: Iterable[pa.Table],
    bad_files: BadFiles,
    every_part: Callable[[], Iterable[Part]],
    seen: set[str],
) -> Iterator[pa.Table]:
    """Yield the tables of a part; before the first one, check that the input has the fields that settings name.

    The other parts are read only if this table lacks a field, and no further than to the first record that has it. So
    the answer depends neither on the part nor on how parts are shared among processes.

    Args:
        source: of the tables.
        tables: as ``source`` reads them.
        bad_files: what it counts fields in.
        every_part: returns the parts of the whole input.
        seen: fields that were found, in other parts too; added to.

    Raises:
        SourceError: no record of the input has one of the fields.
    """
    is_first = True
    for table in tables:
        if is_first and table.num_rows:
            is_first = False
            seen.update(bad_files.fields)
            missing = set(source.named_fields()) - seen
            for part in every_part() if missing else ():
                noted = BadFiles("skip")
                for _ in source.read(part, noted):
                    if missing <= noted.fields.keys():
                        break
                seen.update(noted.fields)
                missing -= noted.fields.keys()
                if not missing:
                    break
            if missing:
                raise lacks_field(source, missing, every_part())
        yield table


def lacks_field(source: Source, missing: Container[str], parts: Iterable[Part]) -> SourceError:
    """Return the error of a source whose settings name a field that no record has."""
    name, setting = next(each for each in source.named_fields().items() if each[0] in missing)
    looked_at = list(islice(parts, LOOKED_AT))
    if any(is_url(file) for part in looked_at for file in part.files):  # each would be fetched
        del looked_at[1:]
    known = dict.fromkeys(field for part in looked_at for field in source.known_fields(part))
    fix = f"set {setting}{OTHER_FIELD}" if known and setting != "fields" else f"leave it out of {setting}"
    return SourceError(
        f"source {source.name!r}: no record has the field {name!r} that {setting} names; "
        f"fields of records: {listed_with_near(known, name)}; {fix} (--set source.{setting}=…)"
    )


SOURCES: Registry[Source] = Registry("source", Source, SourceError, kinds.SOURCES)
"""Every source by the name that ``load_dataset("longcrawl", NAME)`` and recipes use."""


@dataclass_transform(frozen_default=True)
def source(name: str) -> Any:
    """Make a class a frozen dataclass and register it as a source called ``name``."""
    return partial(SOURCES.add, name)


def _nested(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of options that may hold a secret, also of those inside others; ``token: anon`` holds none."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _nested(value)
        elif (name, value) not in _WORDS:
            yield str(name)


def check_record_bytes(most: int) -> None:
    """Check the setting that says how long a record is at most.

    Raises:
        SourceError: it is not positive.
    """
    if most < 1:
        raise SourceError(f"max_record_bytes is {most}; it must be at least 1")


def make_source(name: str, settings: Mapping[str, Any]) -> Source:
    """Make the source of this name.

    Raises:
        SourceError: unknown source or field; the message lists the known ones.
    """
    return SOURCES.make(name, settings)


def is_utf8(block: bytes | memoryview) -> bool:
    """Return whether bytes are UTF-8, without building their text."""
    offsets = np.array([0, len(block)], dtype=np.int64)
    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(block))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
