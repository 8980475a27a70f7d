"""Lists of domains and of addresses, in files such as UT1's: which to read, and their form for the kernels."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.core.addresses import plain_escapes, spell_host, without_dot_segments
from longcrawl.errors import StageError, warn_user
from longcrawl.storage.files import reread_when_changed
from longcrawl.storage.structured import load_json
from longcrawl.text.refinedweb._list_forms import Columns, Named, find_columns, parse_line, read_blocks

UT1_CATEGORIES = (
    "adult",
    "agressif",
    "agressive",
    "arjel",
    "chat",
    "dating",
    "ddos",
    "filehosting",
    "gambling",
    "mixed_adult",
    "phishing",
    "porn",
    "violence",
)
"""What RedPajama-V2 and, as far as is known, RefinedWeb take of UT1."""

DESCRIPTION = "lists.json"
"""The file that says where the lists of a folder come from."""

_OTHER_NAMES = {"porn": "adult", "agressive": "agressif", "aggressive": "agressif", "violence": "agressif"}
"""Names that are links to another category in UT1, and that not every copy of it has."""

_PRESETS = Path(__file__).parents[1] / "presets" / "urls"

_KINDS = ("domains", "urls")
Kind = Literal["domains", "urls", "exceptions"]
"""Kinds of names in a list: domains, addresses, or domains that are taken off the list."""
_ENDINGS = ("", ".gz", ".bz2", ".xz", ".zst", ".txt", ".csv")

FETCH = "fetch UT1's with `longcrawl lists fetch ut1 --out FOLDER`"


class HashSet(NamedTuple):
    """A set of 64-bit hashes."""

    hashes: npt.NDArray[np.uint64]
    """Sorted, each once."""
    starts: npt.NDArray[np.int32]
    """Shape (buckets + 1,): where the hashes of each bucket start; a bucket is named by the first bits of a hash."""
    shift: int
    """How many bits of a hash are not of its bucket's name."""


class Lists(NamedTuple):
    """The lists by which hosts are judged."""

    blocked: HashSet
    allowed: HashSet
    curated: HashSet
    addresses: HashSet


def make_set(parts: Iterable[npt.NDArray[np.uint64]]) -> HashSet:
    """Make a set of arrays of hashes."""
    hashes = np.concatenate([np.empty(0, np.uint64), *parts])
    hashes.sort()
    # np.unique of millions takes twenty times as long.
    hashes = hashes[np.diff(hashes, prepend=~hashes[:1]) != 0]
    bits = max(len(hashes).bit_length() - 3, 1)
    firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    starts = np.append(np.searchsorted(hashes, firsts), len(hashes)).astype(np.int32)
    return HashSet(hashes, starts, 64 - bits)


class BlockLists(NamedTuple):
    """The hashes of all domains, addresses and exceptions of some files."""

    domains: HashSet
    addresses: HashSet
    exceptions: HashSet = make_set([])
    """Domains that are taken off the list."""


class Lines(NamedTuple):
    """Names of a list, all of one kind."""

    kind: Kind
    data: bytes
    hashes: npt.NDArray[np.uint64]
    """Shape (names,)."""
    spans: npt.NDArray[np.int64]
    """Shape (names, 2): where each name starts and stops in ``data``."""

    def name(self, row: int) -> str:
        """Return a name as it is compared."""
        start, stop = self.spans[row]
        return _compared(self.data[start:stop].decode("utf-8", "surrogateescape"))


def block_list_files(folder: str, categories: Iterable[str]) -> dict[str, str]:
    """Return the files of some categories in UT1's layout, and the category of each.

    ``FOLDER/CATEGORY/domains`` and ``FOLDER/CATEGORY/urls`` may have .txt, .csv or the ending of a compressed file. A
    category that is a link to another is read once.

    Raises:
        StageError: a category is not there, nor, in UT1, is the one that it is another name of.
    """
    found: dict[str, str] = {}
    seen = set()
    for category in categories:
        files = _files(folder, category) or _files(folder, _OTHER_NAMES.get(category, category))
        if not files:
            raise StageError(_missing(folder, category))
        for file in files:
            if (real := os.path.realpath(file)) not in seen:
                seen.add(real)
                found[file] = category
    return found


def describe_lists(folder: str) -> dict[str, Any] | None:
    """Return what the folder of fetched lists says of them: what they are, licence and SHA-256; None of any other."""
    try:
        found = load_json(Path(folder, DESCRIPTION).read_bytes())
        return {name: found[name] for name in ("about", "url", "licence", "sha256")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _files(folder: str, category: str) -> list[str]:
    places = [[Path(folder, category, kind + ending) for ending in _ENDINGS] for kind in _KINDS]
    return [str(next(file for file in pair if file.is_file())) for pair in places if any(map(Path.is_file, pair))]


def _missing(folder: str, category: str) -> str:
    if not Path(folder).is_dir():
        return f"{folder} is not a folder of block lists; {FETCH}"
    known = sorted(each.name for each in Path(folder).iterdir() if _files(folder, each.name))
    if not known:
        return f"{folder} has no block lists, which would be files such as {folder}/{category}/domains; {FETCH}"
    return f"{folder} has no list {category!r}, only: {', '.join(known)}; choose among these with categories"


@reread_when_changed(2)
def read_block_lists(*files: str) -> BlockLists:
    """Read domains, and addresses from files whose names begin with ``urls``, in any form of ``_list_forms``.

    ``#`` begins a comment. Case makes no difference, nor does ``*.`` or a dot before a domain, nor the scheme, ``www.``
    or a slash at the end of an address. What is of one label is that host alone: ``localhost``; ``.xxx`` is everything
    below it. An address among domains counts as an address, and an adblock rule such as ``||host^`` as a domain.

    Raises:
        StageError: a file cannot be read, or most of its lines name no host.
    """
    found: dict[Kind, list[npt.NDArray[np.uint64]]] = {"domains": [], "urls": [], "exceptions": []}
    for file in files:
        for lines in _hashed_file(file, seen := _Seen(file)):
            found[lines.kind].append(lines.hashes)
        seen.warn()
    return BlockLists(*map(make_set, found.values()))


@reread_when_changed(8)
def read_domains(path: str | None, *domains: str) -> HashSet:
    """Read a file of domains in any form of a block list, and add some to them; None is no file.

    Exceptions of a block list, such as ``@@||host^``, name domains as other rules do.

    Raises:
        StageError: the file cannot be read, most of its lines name no host, or one names an address.
    """
    of_file, seen = list[Lines](), _Seen(path or "")
    if path is not None:
        of_file = [lines for lines in _hashed_file(path, seen) if len(lines.hashes)]
        seen.warn()
    for lines in of_file:
        if lines.kind == "urls":
            raise StageError(f"{path} has the address {lines.name(0)!r}: give domains alone, such as example.org")
    given = _hash_names("domains", [spelled for each in domains if (spelled := _spell_domain(each))])
    return make_set([given.hashes, *(lines.hashes for lines in of_file)])


def read_curated_sources(name: str | None) -> HashSet:
    """Read the domains of shipped curated sources by their name, or of a file by its path; None has no domain.

    Raises:
        StageError: there is no such file.
    """
    return read_domains(name and str(_shipped_sources().get(name, name)))


def curated_files(name: str | None) -> tuple[str, ...]:
    """Name the file that :func:`read_curated_sources` reads by this name; shipped sources have none to change."""
    return () if name is None or name in _shipped_sources() else (name,)


@lru_cache(maxsize=1)
def _shipped_sources() -> Mapping[str, Path]:
    return {file.stem: file for file in _PRESETS.glob("*.txt")}


def _is_kind(file: str, kind: str) -> bool:
    return (kind == "urls") == Path(file).name.startswith("urls")


def _hashed_file(file: str, seen: "_Seen") -> Iterator[Lines]:
    """Return the names of a list in blocks, all of a block by their kinds.

    Raises:
        StageError: it cannot be read, or most of its lines name no host.
    """
    addresses, columns, is_first = _is_kind(file, "urls"), None, True
    for block in read_blocks(file):
        if is_first:
            columns, is_first = find_columns(block, file), False
        if columns is None:
            plain, named, others = _hashed_block(block, seen, addresses=addresses)
            yield plain
        else:
            named, others = [], _lines(block)
        named += _parsed(others, columns, seen, addresses=addresses)
        for kind in ("domains", "urls", "exceptions"):
            if names := [name for each, name in named if each == kind]:
                yield _hash_names(kind, names)
        seen.end_block(block)
    seen.check()


def _hashed_block(
    block: bytes, seen: "_Seen", *, addresses: bool
) -> tuple[Lines, list[tuple[Kind, str]], list[tuple[int, str]]]:
    """Return the names of lines that are hashed as they stand, those that are spelled first, and all other lines."""
    from longcrawl.text.refinedweb import _url_kernels as kernels

    most = block.count(b"\n") + 1
    hashes, spans = np.empty(most, np.uint64), np.empty((most, 3), np.int64)
    count = kernels.hash_lines(np.frombuffer(block, np.uint8), addresses, hashes, spans)
    hashes, spans = hashes[:count], spans[:count]
    is_label, is_other = spans[:, 2] == kernels.LABEL, spans[:, 2] == kernels.OTHER
    is_spelled = spans[:, 2] == kernels.SPELL
    for start in spans[is_label, 0][:1].tolist():
        seen.note_label(start, block)
    seen.hosts += int(count - is_label.sum() - is_other.sum())
    seen.labels += int(is_label.sum())
    kind: Kind = "urls" if addresses else "domains"
    spell = _spell_address if addresses else _spell_domain
    plain = Lines(kind, block, hashes[~(is_spelled | is_other)], spans[~(is_spelled | is_other), :2])
    spelled = [(kind, spell(_text(block[start:stop]))) for start, stop, _ in spans[is_spelled].tolist()]
    others = [(start, _text(block[start:stop])) for start, stop, _ in spans[is_other].tolist()]
    return plain, [(kind, name) for kind, name in spelled if name], others


def _lines(block: bytes) -> list[tuple[int, str]]:
    """Return the lines of a block, and where each starts."""
    lines = block.split(b"\n")
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)]).tolist()
    return [(start, _text(line)) for start, line in zip(starts, lines, strict=False)]


def _parsed(
    lines: Iterable[tuple[int, str]], columns: Columns | None, seen: "_Seen", *, addresses: bool
) -> list[tuple[Kind, str]]:
    """Return what lines in other forms name, by kind."""
    found: list[tuple[Kind, str]] = []
    for start, line in lines:
        text = line.strip()
        if columns is not None and text and not text.startswith("#"):
            cells = columns.cells(text)
            text = cells[columns.column].strip() if columns.column < len(cells) else "-"
        named = parse_line(text)
        if named:
            seen.hosts += 1
            found += [_kind(each, is_url=addresses and "//" in text) for each in named]
        elif named is None and (columns is None or seen.hosts or seen.others or seen.has_title):
            seen.note_other(start, line.strip())
        elif named is None:
            seen.has_title = True
        elif text and text[0] not in "#!;[$":
            seen.note_rule(start, line.strip())
    return found


def _kind(named: Named, *, is_url: bool) -> tuple[Kind, str]:
    if named.is_exception:
        return "exceptions", named.host
    if named.path or is_url:
        return "urls", (named.host.removeprefix("www.") + named.path).rstrip("/")
    return "domains", named.host


def _hash_names(kind: Kind, names: Sequence[str]) -> Lines:
    """Hash names that are spelled already."""
    from longcrawl.text.refinedweb._url_kernels import hash_names

    encoded = [name.encode("utf-8", "surrogateescape") for name in names]
    ends, data = np.cumsum([0, *map(len, encoded)]), b"".join(encoded)
    hashes = np.empty(len(names), np.uint64)
    hash_names(np.frombuffer(data, np.uint8), ends, kind == "urls", hashes)
    return Lines(kind, data, hashes, np.stack([ends[:-1], ends[1:]], axis=1))


class _Seen:
    """Counts the lines of a list that name hosts, and those that do not."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.hosts = self.labels = self.others = self.rules = self._lines = 0
        self.has_title = False
        """Whether the first row of a CSV names its columns."""
        self._first: dict[str, tuple[int, str]] = {}

    def note_label(self, start: int, block: bytes) -> None:
        """Note the first line of one label: a host in a local network, or a word."""
        self._first.setdefault("label", (start, _text(block[start:].partition(b"\n")[0].strip())))

    def note_other(self, start: int, line: str) -> None:
        """Note a line in no known form."""
        self.others += 1
        self._first.setdefault("other", (start, line))

    def note_rule(self, start: int, line: str) -> None:
        """Note a rule that names no host."""
        self.rules += 1
        self._first.setdefault("rule", (start, line))

    def end_block(self, block: bytes) -> None:
        """Turn the places of what was noted in a block into the numbers of lines."""
        for what, (start, line) in self._first.items():
            if start >= 0:
                self._first[what] = (-1 - self._lines - block.count(b"\n", 0, start), line)
        self._lines += block.count(b"\n")

    def check(self) -> None:
        """Check that most lines name hosts.

        Raises:
            StageError: they do not; it shows the first one.
        """
        wrong = self.others + self.labels
        if wrong > self.hosts and (self.others or self.labels > 1):
            raise StageError(
                f"{self._where('other', 'label')} is not a host, and {wrong:,} of {wrong + self.hosts:,} lines are "
                "none: give a list of domains, one per line, or a hosts file, adblock rules or a CSV"
            )
        if self.rules and not self.hosts and not self.labels:
            raise StageError(f"{self._where('rule')} names no host, nor does any other line: give a list of domains")

    def warn(self) -> None:
        """Warn of lines that were passed over."""
        if self.others:
            warn_user(f"{self._where('other')} is not a host; lines passed over: {self.others:,}")

    def _where(self, *kinds: str) -> str:
        number, line = max(self._first[kind] for kind in kinds if kind in self._first)
        return f"{self.file}, line {-number}: {line[:80]!r}"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _spell_domain(name: str) -> str:
    """Return a domain as hosts are spelled; a dot before one label, for everything below it, is kept."""
    below = name.strip().removeprefix("*")
    label = below.strip(".")
    if label and below.startswith(".") and "." not in label:
        return spell_host(f"a.{label}").removeprefix("a")  # no number by itself
    return spell_host(label)


def _spell_address(name: str) -> str:
    host = name.partition("/")[0].partition("?")[0].partition("#")[0]
    path, mark, query = name[len(host) :].partition("?")
    return (spell_host(host) + without_dot_segments(path) + mark + query).rstrip("/")


def _compared(name: str) -> str:
    """Return a name as the kernels compare it: in lower case by ASCII, without escapes of letters."""
    return plain_escapes(name).encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")


def find_categories(files: Mapping[str, str], names: Iterable[str], kind: str) -> dict[str, tuple[str, ...]]:
    """Find in which categories names stand, letter by letter, by reading the files again.

    Args:
        files: as :func:`block_list_files` gives them.
        names: domains, or addresses without www., as URLs spell them.
        kind: "domains" or "urls".

    Returns:
        The categories of every name; none for a name that is in no file.
    """
    wanted = {_compared(name): name for name in names}
    places: dict[str, list[str]] = {name: [] for name in wanted.values()}
    if not wanted:
        return {}
    hashes = _hash_names("urls" if kind == "urls" else "domains", [*wanted]).hashes
    for file, category in files.items():
        for lines in _hashed_file(file, _Seen(file)):
            if lines.kind != kind:
                continue
            # Unless it sorts, numpy 2.0 fails with uint64 beyond int64.
            for row in np.flatnonzero(np.isin(lines.hashes, hashes, kind="sort")).tolist():
                name = wanted.get(lines.name(row))
                if name is not None and category not in places[name]:
                    places[name].append(category)
    return {name: tuple(categories) for name, categories in places.items()}
