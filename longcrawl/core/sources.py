"""Interface of document sources: frozen dataclasses that list their parts and read one part at a time."""

import hashlib
import os
import re
from abc import ABC, abstractmethod
from base64 import b32encode
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
"""Policy for missing, truncated or corrupt input files: stop, warn and continue, or continue. All are reported."""

OnDuplicateIds = Literal["error", "keep_first"]
"""Policy of a run for documents with the same id: stop, or keep only the first, in the order of parts and rows."""

Checksums = Literal["first", "last"]
"""When a reader compares the checksums of compressed data: before it returns any of the data, or afterwards.

A caller that chooses "last" must discard its results after any error, and read the data again with "first".
"""

StorageOptions = Mapping[str, Any] | None
"""Options of fsspec for the stores in a source's URLs, such as endpoint_url, anon, profile and requester_pays."""

_CREDENTIAL = re.compile(
    r"secret|passw|credential|signature|connection_string|(^|_)(key|token|sas|auth)($|_)", re.IGNORECASE
)

_WORDS = {("token", word) for word in ("anon", "cloud", "google_default", "browser", "cache")}
"""Values that gcsfs takes instead of a token, which are not secret."""

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("text", pa.large_string()),
        *(pa.field(name, pa.string()) for name in ("url", "date", "source", "language")),
    ]
)
"""Columns of every source of texts, which come before its own columns."""
DIGEST = pa.field("digest", pa.string())
"""Column with the digest of a page or file before processing, see :func:`digest_of`."""
MOST_REASON = 2_000
"""Maximum number of characters of a reason, as field names and errors of libraries have no limit."""
MOST_NAMED = 3
"""Maximum number of damaged places of a file that a report describes; all are counted."""
LOOKED_AT = 10
"""Maximum number of parts that are read to list known fields in an error."""
OTHER_FIELD = "= to one of them"
"""Advice, after the name of a setting, in a reason that lists the known fields."""
WITHOUT = "; to continue without it, set on_bad_files to 'warn' or 'skip' (--set source.on_bad_files=skip)"
"""End of the error about a damaged file."""


class UncheckedDataError(SourceError):
    """A reader has returned data with a wrong or missing checksum."""


@dataclass(frozen=True)
class Section:
    """Consecutive lines, rows or records of a large file, which a run reads as a part by themselves."""

    start: int
    """First byte of the decompressed text, first row group of a parquet file, or first byte of a web archive."""
    stop: int
    first: int
    """Number of lines, rows or records before the section."""
    count: int
    """Number of lines, rows or records in it."""
    bytes: int
    """Share of the stored bytes of the file; the shares of all sections add up to its size."""
    unpacked: str = ""
    """File with the lines of a compressed file, or "" if the file itself is read."""


@dataclass(frozen=True)
class Part:
    """An input shard: a name, unique within its source, and the files it reads."""

    name: str
    files: tuple[str, ...] = ()
    pieces: tuple["Part", ...] = ()
    """Parts of the source that a run combined into this one; empty for an original part."""
    section: Section | None = None
    """Section of the file that a run reads as a part; None for the whole. All sections have the name of the part."""

    def each(self) -> "tuple[Part, ...]":
        """Return the original parts of the source that this one consists of."""
        return self.pieces or (self,)

    def local_bytes(self) -> int | None:
        """Return the size of its files or section in bytes, or None if it lists none or one is not local."""
        if self.section is not None:
            return self.section.bytes
        try:
            return sum(os.stat(file).st_size for file in self.files) if self.files else None  # noqa: PTH116  # 100,000 files
        except OSError:
            return None


@dataclass(frozen=True)
class BadFile:
    """An input file that could not be read, in whole or in part."""

    file: str
    reason: str
    records_lost: int | None = None
    """Number of lost records, estimated for damaged data, or None if it cannot be known."""


@dataclass(frozen=True)
class Loss:
    """Lines of an input file that could not be read."""

    kind: Literal["line", "damage"]
    line: int
    """Number of the first lost line, from 1; after damage, of the line feeds that could be decompressed."""
    lines: int | None
    """Number of lost lines, estimated for damage, or None if it cannot be known."""
    reason: str
    """End of a message that begins with the line or the file."""


@dataclass
class BadFiles:
    """Collector of input errors that applies the policy and counts losses for the manifest and the card."""

    policy: OnBadFiles = "error"
    found: list[BadFile] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of records skipped by each rule of the source, such as redirects; this is not damage."""
    encodings: Counter[str] = field(default_factory=Counter)
    """Number of files, or pages of web archives, by encoding; not counted for sources that are always UTF-8."""
    fields: dict[str, int] = field(default_factory=dict)
    """Number of records with a value in each field named by a setting; no entry for a field that no record has."""
    checksums: Checksums = "first"
    has_unchecked: bool = False
    """Whether the reader may have returned data of the current file before comparing its checksum."""

    def count_field(self, name: str, values: int) -> None:
        """Add to the number of records that have a value in a field; ``values`` may be 0 if all are null."""
        self.fields[name] = self.fields.get(name, 0) + values

    def when_to_check(self, file: str) -> Checksums:
        """Return when a reader may compare the checksums of a file, and set ``has_unchecked``."""
        if not file.endswith((".gz", ".zst")):
            return "first"
        self.has_unchecked = self.checksums == "last"
        return self.checksums

    def report(self, file: str, reason: str, records_lost: int | None = None) -> None:
        """Record a bad file, with a warning under the policy "warn" and SourceError under "error"."""
        file, reason = without_secrets(file), shortened(hide_secrets(reason), MOST_REASON)
        if self.policy == "error":
            # Do not advise to continue if a field is misspelled: no documents would remain.
            raise SourceError(f"{file}: {reason}{'' if OTHER_FIELD in reason else WITHOUT}")
        self.found.append(BadFile(file, reason, records_lost))
        if self.policy == "warn" and self.checksums == "first":
            warn_user(f"{file}: {reason}")

    def warn_late(self) -> None:
        """Emit the warnings held back while the part might have been read again."""
        if self.policy == "warn" and self.checksums == "last":
            for bad in self.found:
                warn_user(f"{bad.file}: {bad.reason}")


def joined(found: Sequence[BadFile]) -> BadFile:
    """Join the entries of the sections of one file, in order, into one entry for the whole file."""
    first, losses = found[0], [bad.records_lost for bad in found]
    lost = None if None in losses else sum(filter(None, losses))
    reasons = list(dict.fromkeys(bad.reason for bad in found))
    more = [_more_like_it(bad.records_lost or 0) for bad in found]
    if len(reasons) == 1:
        reason = first.reason
    elif lost and all(bad.reason.endswith(others) for bad, others in zip(found, more, strict=True)):
        reason = first.reason.removesuffix(more[0]) + _more_like_it(lost)
    else:
        reason = shortened("; ".join(reasons), MOST_REASON)
    return BadFile(first.file, reason, lost)


def _more_like_it(records: int) -> str:
    return f" (and {records - 1} more like it)" if records > 1 else ""


class LostRecords:
    """Collector of the unreadable records of one file, for one report at its end, or SourceError at the first.

    ``consequence`` ends the report with the effect on the other records. ``explain`` adds advice to the first reason.
    """

    def __init__(
        self, bad_files: BadFiles, file: str, consequence: str = "", explain: Callable[[str], str] = str
    ) -> None:
        self._bad_files, self._file, self._consequence, self._explain = bad_files, file, consequence, explain
        self._first, self._count = "", 0
        self._damages: list[str] = []
        self._damage_count = 0
        self._lines: int | None = 0
        """Number of lines lost to damage, or None if it cannot be known."""

    def add(self, where: str, reason: str) -> None:
        """Record an unreadable record."""
        self._first = self._first or f"{where} {self._explain(reason)}"
        self._count += 1
        if self._bad_files.policy == "error":
            self.report()

    def add_loss(self, loss: Loss) -> None:
        """Record lines that :func:`~longcrawl.sources.blocks.read_blocks` could not yield."""
        if loss.kind == "line":
            self.add(f"line {loss.line}", loss.reason)
            return
        self._add_damage(loss.reason, loss.lines)
        if self._bad_files.policy == "error":
            self.report()

    def report(self, damage: str = "", records_lost: int | None = None) -> None:
        """Report all losses of the file in one entry, if there are any, with ``damage`` that ended the reading."""
        if damage:
            self._add_damage(damage, records_lost)
        more = self._damage_count - len(self._damages)
        reasons = self._damages + [f"and {more} more places like these"] * bool(more)
        reasons += [self._first + _more_like_it(self._count)] * bool(self._count)
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
    """Base of sources, which list their parts and read the documents of a part."""

    name: ClassVar[str]
    homepage: ClassVar[str] = "https://huggingface.co/docs/datasets"
    license: ClassVar[str] = "unknown"
    """Licence of the documents, shown in ``dataset.info``."""
    omitted_defaults: ClassVar[tuple[str, ...]] = ()
    """Fields left out of the settings while at their default, so that recipes without them keep their digests."""
    unpacks: ClassVar[bool] = False
    """Whether ``divide`` writes the content of compressed files to its folder."""
    on_bad_files: OnBadFiles
    storage_options: StorageOptions

    def __post_init__(self) -> None:
        check_fields(self, SourceError)
        for option in _nested(self._options()):
            if _CREDENTIAL.search(option):
                raise SourceError(
                    f"storage_options has {option!r}, but recipes are published: remove it, and set "
                    "credentials in the environment or in a profile"
                )

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values, without secrets in URLs and without empty ``storage_options``."""
        settings: dict[str, Any] = plain_urls(plain_settings(self))
        return settings if self._options() else {k: value for k, value in settings.items() if k != "storage_options"}

    def located(self, named: Any) -> Any:
        """Encode ``storage_options`` in every URL of nested paths, URLs and globs."""
        options = self._options()
        if isinstance(named, str):
            return with_options(named, options) if options and is_url(named) else named
        if isinstance(named, Mapping):
            return {key: self.located(each) for key, each in named.items()}
        return tuple(map(self.located, named)) if isinstance(named, list | tuple) else named

    def _options(self) -> Mapping[str, Any]:
        return getattr(self, "storage_options", None) or {}  # sources of other packages may lack the field

    def for_tokens(self, signals: Sequence[str]) -> Self:  # noqa: ARG002  # sources that have signals need it
        """Return the source for a run that writes tokens and whose stages read only these quality signals."""
        return self

    def for_stages(self, stages: "Sequence[Stage]") -> Self:  # noqa: ARG002  # sources that skip files need it
        """Return the source for a run with these stages; it may skip files of which they would keep no document."""
        return self

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""

    @abstractmethod
    def splits(self) -> dict[str, list[Part]]:
        """List the parts of every split, sorted by name; SourceError with the searched place if there are none."""

    def content(self) -> str:
        """Return a text that identifies documents not determined by the files of the parts; "" for most sources."""
        return ""

    def named_fields(self) -> Mapping[str, str]:
        """Return the settings that name fields of records, by field, without defaults."""
        return {}

    def known_fields(self, part: Part) -> Sequence[str]:  # noqa: ARG002  # sources whose settings name fields need it
        """Return the fields of the first records of a part."""
        return ()

    def lists(self) -> Mapping[str, Mapping[str, Any]]:
        """Return bytes, SHA-256 and number of paths of each file that lists the files to read, by path or URL."""
        return {}

    def fingerprint(self) -> str:
        """Return a hash of the settings, the content, the parts, and the sizes and times of local files."""
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
        """Whether ids are built from names and numbers, so that no two documents of the source can share one."""
        return False

    def list_ids(self, part: Part) -> Iterator[pa.ChunkedArray] | None:  # noqa: ARG002  # sources that can need it
        """Yield the ids of a part, also of documents that ``read`` leaves out; None if reading takes no longer."""
        return None

    def part_bytes(self, part: Part) -> int:
        """Return the bytes of a part's local files, from which a plan estimates other parts; 0 if they are unknown."""
        return part.local_bytes() or 0

    def divides(self, part: Part) -> bool:  # noqa: ARG002  # sources of large files need it
        """Return whether a large local file of a part may be read in sections, judged without opening it."""
        return False

    def divide(self, part: Part, size: int, folder: Path) -> Sequence[Section]:  # noqa: ARG002  # sources of large files need it
        """Divide the file of a part into sections of about ``size`` bytes of decompressed data.

        The lines of a compressed text file are written to ``folder``. No section is returned for a file that is read
        whole, such as a damaged one.
        """
        return ()

    @abstractmethod
    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read one part in tables of at most about 32 MB of text, always split at the same rows."""


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of a page or file, as web archives write it (WARC-Payload-Digest).

    >>> digest_of(b"")
    'sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ'
    """
    return "sha1:" + b32encode(hashlib.sha1(data).digest()).decode()  # noqa: S324  # the digest of the standard


def check_fields_named(
    source: Source,
    tables: Iterable[pa.Table],
    bad_files: BadFiles,
    every_part: Callable[[], Iterable[Part]],
    seen: set[str],
) -> Iterator[pa.Table]:
    """Yield the tables of a part, and check before the first one that the input has all fields named by settings.

    Other parts, ``every_part``, are read only if the first table lacks a field. ``bad_files`` counts the fields of this
    part, and ``seen`` collects those of any part.

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
    """Return the error for a setting that names a field which no record has."""
    name, setting = next(each for each in source.named_fields().items() if each[0] in missing)
    looked_at = list(islice(parts, LOOKED_AT))
    if any(is_url(file) for part in looked_at for file in part.files):  # each part would be fetched
        del looked_at[1:]
    known = dict.fromkeys(field for part in looked_at for field in source.known_fields(part))
    fix = f"set {setting}{OTHER_FIELD}" if known and setting != "fields" else f"remove it from {setting}"
    return SourceError(
        f"source {source.name!r}: no record has the field {name!r} that {setting} names; "
        f"fields of records: {listed_with_near(known, name)}; {fix} (--set source.{setting}=…)"
    )


SOURCES: Registry[Source] = Registry("source", Source, SourceError, kinds.SOURCES)
"""Registry of sources by the name used in ``load_dataset("longcrawl", NAME)`` and recipes."""


@dataclass_transform(frozen_default=True)
def source(name: str) -> Any:
    """Make a class a frozen dataclass and register it as a source called ``name``."""
    return partial(SOURCES.add, name)


def _nested(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of all options, including nested ones, except tokens without a secret such as ``token: anon``."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _nested(value)
        elif (name, value) not in _WORDS:
            yield str(name)


def check_record_bytes(most: int) -> None:
    """Raise SourceError unless the maximum length of a record is positive."""
    if most < 1:
        raise SourceError(f"max_record_bytes is {most}: set it to 1 or more")


def make_source(name: str, settings: Mapping[str, Any]) -> Source:
    """Make the source with this name."""
    return SOURCES.make(name, settings)


def is_utf8(block: bytes | memoryview) -> bool:
    """Return whether bytes are valid UTF-8, without decoding them to a string."""
    offsets = np.array([0, len(block)], dtype=np.int64)
    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(block))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
