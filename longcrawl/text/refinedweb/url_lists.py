"""Block lists of domains and URLs: parsers for their formats, and hash sets to look up URLs.

A line names hosts, each with all its subdomains, or addresses: a host and a path prefix. Files may be compressed and
may begin with a byte order mark; both are detected by their first bytes.
"""

import bz2
import csv
import gzip
import ipaddress
import lzma
import os
import re
import string
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from longcrawl.core.addresses import plain_escapes, spell_host, without_dot_segments
from longcrawl.errors import StageError, warn_user
from longcrawl.io.files import reread_when_changed
from longcrawl.io.structured import load_json
from longcrawl.kernels.compiling import allocating, compiled, forced_inline

BLOCK = 1 << 24  # bytes of a list that are read at a time
SAMPLE = 1000  # lines at the beginning of a list from which CSV and its column of hosts are detected
LONGEST = 4096  # greatest number of characters in a line that may name a host; some expressions take quadratic time
MOST_LINE = 500  # bytes per line that are assumed for the sample, on average

_MAGIC: Mapping[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"(\xb5/\xfd": zstandard.open,
}
_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UTF8_BOM = b"\xef\xbb\xbf"

_HOST = re.compile(r"(?=.*[a-z_-][a-z0-9_-]*$)(?:[a-z0-9_-]+\.)+[a-z0-9_-]+")
_USUAL = re.compile(r"(?:(?:0\.0\.0\.0|127\.0\.0\.1|::1?)[ \t]+|\|\|)((?:[a-z0-9_-]+\.)+[a-z_-][a-z0-9_-]*)\^?")
"""Most lines of hosts files and adblock lists: a million take 6 seconds, and 15 with the other expressions."""
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]{2}")
_COSMETIC = re.compile(r"#[@?$%]{0,2}#")
_OPTIONS = re.compile(r"\$(~?[\w-]+(?:=[^,]*)?(?:,~?[\w-]+(?:=[^,]*)?)*)$")
_DNSMASQ = re.compile(r"(?:address|server|local|ipset|nftset)=/(.+)/([^/]*)")
_UNBOUND = re.compile(r"local-(zone|data):\s*\"?([^\s\"]+)\"?\s*\"?([\w-]*)\"?.*")
_BIND = re.compile(r"zone\s+\"([^\"]+)\".*")
_RECORD = re.compile(r"(\S+)\s+(?:\d+\s+)?(?:IN\s+)?(CNAME|A|AAAA|TXT|SOA|NS|MX)\s+(\S+).*", re.IGNORECASE)
_DECIMAL = re.compile(r"[0-9]*(?:\.[0-9]*){0,2}")
_SEPARATORS = ",;\t|"
_COLUMN = re.compile(
    r"\W*(?:domains?|host(?:_?name)?s?|fqdn|sites?|web_?sites?|urls?|address(?:es)?)\W*", re.IGNORECASE
)
_LOCAL = frozenset({"0.0.0.0", "localhost", "localhost.localdomain", "local", "broadcasthost"})  # noqa: S104  # as text
"""Names of the machine itself in hosts files."""


class Named(NamedTuple):
    """A host or an address named by a line."""

    host: str  # spelled as by :func:`longcrawl.core.addresses.spell_host`; with a leading dot, all hosts below it
    path: str = ""  # path and query; "" for the host and all below it
    is_exception: bool = False  # whether the line takes the host off the list


class Columns(NamedTuple):
    """Separator of a list in CSV, and the index of its column of hosts."""

    separator: str
    column: int

    def cells(self, line: str) -> list[str]:
        """Split a line into cells."""
        return next(csv.reader([line], delimiter=self.separator, skipinitialspace=True), [])


def read_blocks(file: str) -> Iterator[bytes]:
    """Yield the bytes of a list in blocks of whole lines, decompressed, in UTF-8; StageError if it cannot be read."""
    fix = "give the path of a list of domains, one per line"
    try:
        with Path(file).open("rb") as opened:
            magic = opened.read(6)
        if magic.startswith(b"PK\x03\x04"):
            raise StageError(f"{file} is a zip archive: unpack it, and use the list in it")
        opener = next((each for start, each in _MAGIC.items() if magic.startswith(start)), open)
        with opener(file, "rb") as content:
            yield from _whole_lines(content)
    except FileNotFoundError as error:
        raise StageError(f"{file} does not exist; {fix}") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, UnicodeDecodeError) as error:
        again = "fetch UT1's with `longcrawl lists fetch ut1 --out FOLDER` again"
        raise StageError(f"{file} cannot be read as a list of domains ({error}); {again}") from error


def _whole_lines(content: IO[bytes]) -> Iterator[bytes]:
    rest = content.read(len(_UTF8_BOM)).removeprefix(_UTF8_BOM)
    if (encoding := _BOMS.get(rest[:2])) is not None:
        yield (rest[2:] + content.read()).decode(encoding).encode()
        return
    while block := content.read(BLOCK):
        whole, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            yield whole + newline
    if rest:
        yield rest


def find_columns(block: bytes, file: str) -> Columns | None:
    """Detect CSV and its column of hosts, or else None; StageError for several that are not told apart by a title."""
    lines = block[: SAMPLE * MOST_LINE].decode("utf-8", "replace").splitlines()[:SAMPLE]
    kept = [line for line in lines if line.strip() and line.lstrip()[0] not in "#!;[@|" and not _COSMETIC.search(line)]
    for separator in _SEPARATORS:
        if 2 * sum(separator in line for line in kept) <= len(kept):
            continue
        rows = [Columns(separator, 0).cells(line) for line in kept]
        width = max({len(row) for row in rows}, key=[len(row) for row in rows].count, default=0)
        table = [row for row in rows if len(row) == width]
        if width < 2 or 2 * len(table) <= len(rows):
            continue
        body = table if any(map(_names_host, table[0])) else table[1:] or table
        found = [at for at in range(width) if 2 * sum(_names_host(row[at]) for row in body) > len(body)]
        titled = [at for at in found if _COLUMN.fullmatch(table[0][at])]
        if len(found) > 1 and len(titled) != 1:
            raise StageError(
                f"{file} has hosts in the columns {', '.join(str(at + 1) for at in found)}: "
                "keep one of them, or rename one to domain"
            )
        if found:
            return Columns(separator, (titled or found)[0])
    return None


def _names_host(cell: str) -> bool:
    text = cell.strip()
    return not _DECIMAL.fullmatch(text) and bool(parse_line(text, loose=False))


def parse_line(line: str, *, loose: bool = True) -> list[Named] | None:  # noqa: C901, PLR0911  # a return for each form
    """Return the names in a line; none for a rule without a host, None for other forms. ``loose`` lets words follow."""
    if len(line) <= LONGEST and (found := _USUAL.fullmatch(line)) is not None and found[1] not in _LOCAL:
        return [Named(found[1])]
    if len(line) > LONGEST:
        return None
    if not line or line[0] in "#!;$" or line.startswith(("// ", "@ ", "@\t")) or line == "//":
        return []
    if line.startswith("[") and not line.startswith("[[") and line.endswith("]") and ":" not in line:
        return []
    if _COSMETIC.search(line) and not _URL.match(line):
        return []
    if (found := _DNSMASQ.fullmatch(line)) is not None:
        return _hosts(found[1].split("/"), is_exception=found[2] == "#")
    if (found := _UNBOUND.fullmatch(line)) is not None:
        return _hosts([found[2]], is_exception=found[1] == "zone" and "transparent" in found[3])
    if (found := _BIND.fullmatch(line)) is not None:
        return _hosts([found[1]])
    if line.startswith(("@@", "|")) or "^" in line.partition("/")[0] or _OPTIONS.search(line.partition("/")[0]):
        return _adblock(line)
    if line.startswith("/") and not line.startswith("//"):
        return [] if re.fullmatch(r"/.+/(?:\$\S*)?", line) and not line[1:-1].replace("/", "").isalnum() else None
    words = re.split(r"\s#", line, maxsplit=1)[0].split()
    if len(words) > 1:
        return _words(line, words, loose=loose)
    named = _address(words[0].strip("\"',"))
    return None if named is None else [named]


def _words(line: str, words: Sequence[str], *, loose: bool) -> list[Named] | None:
    if _is_ip(words[0]):
        names = [name for name in words[1:] if name.lower() not in _LOCAL and not name.lower().startswith("ip6-")]
        return _hosts(names, single=True) if names else []
    if (found := _RECORD.fullmatch(line)) is not None:
        if found[2].upper() in ("SOA", "NS", "MX"):
            return []
        return _hosts([found[1]], is_exception=found[3].lower().startswith("rpz-passthru"))
    first = _address(words[0].strip("\"',"))
    if first is not None and (loose or words[1].startswith((";", "//"))):
        return [first]
    if loose and words[0].isdigit() and len(words) == 2:  # a rank
        second = _address(words[1])
        return None if second is None else [second]
    return None


def _hosts(names: Sequence[str], *, is_exception: bool = False, single: bool = False) -> list[Named] | None:
    found = [Named(host, "", is_exception) for name in names if (host := read_host(name, single=single))]
    return found or None


def _adblock(line: str) -> list[Named] | None:
    is_exception = line.startswith("@@")
    body = line.removeprefix("@@")
    if (options := _OPTIONS.search(body)) is not None:
        body = body[: options.start()]
        if "badfilter" in options[1].split(","):  # it undoes a rule like itself
            if is_exception:
                return []
            is_exception = True
    if body.startswith("/"):
        return []
    body = body.lstrip("|").removesuffix("|").removesuffix("*").rstrip("^")
    if "*" in body.removeprefix("*.") or "^" in body:
        return []
    named = _address(body)
    if named is None or (is_exception and named.path):
        return []
    return [named._replace(is_exception=is_exception)]


def _address(text: str) -> Named | None:
    scheme = _URL.match(text)
    behind = text[scheme.end() :] if scheme else text
    authority = re.split(r"[/\\?#]", behind, maxsplit=1)[0]
    rest = behind[len(authority) :]
    name = authority.rpartition("@")[2] if scheme else authority
    if name.startswith("["):
        name = name[: name.find("]") + 1]
    elif name.count(":") == 1:
        name, _, port = name.partition(":")
        if not (port.isdigit() or not port):
            return None
    host = read_host(name, single=scheme is not None)
    if not host:
        return None
    path, mark, query = re.match(r"([^?#]*)([?#]?)(.*)", rest.replace("\\", "/"), re.DOTALL).groups()  # type: ignore[union-attr]  # matches all
    path = without_dot_segments(path) + mark + query
    return Named(host, "" if path == "/" else path)


def read_host(name: str, *, single: bool = False) -> str:
    """Return the spelling of a host, "" if it is none; with ``single``, a host may have one label."""
    below = name.removeprefix("*") if name.startswith("*.") else name
    if below.isdigit() and not single and int(below) < 1 << 24:  # a rank or a count
        return ""
    host = spell_host(below.lstrip("."))
    if _HOST.fullmatch(host) or (host and _is_ip(host)):
        return host
    if re.fullmatch("[a-z0-9_-]+", host) and (single or below.startswith(".")):
        return host if not below.startswith(".") else f".{host}"
    return ""


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0].strip("[]"))
    except ValueError:
        return False
    return True


_UT1 = "adult agressif agressive arjel chat dating ddos filehosting gambling mixed_adult phishing porn violence"
UT1_CATEGORIES = tuple(_UT1.split())  # used by RedPajama-V2 and, as far as is known, by RefinedWeb
DESCRIPTION = "lists.json"  # name of the file that describes the origin of the lists in a folder

_OTHER_NAMES = {"porn": "adult", "agressive": "agressif", "aggressive": "agressif", "violence": "agressif"}
"""Names that are links to another category in UT1, and that some copies lack."""
_KINDS = ("domains", "urls")
Kind = Literal["domains", "urls", "exceptions"]
"""Kinds of names in a list: domains, addresses, or domains that are taken off the list."""
_ENDINGS = ("", ".gz", ".bz2", ".xz", ".zst", ".txt", ".csv")
FETCH = "fetch UT1's with `longcrawl lists fetch ut1 --out FOLDER`"


class HashSet(NamedTuple):
    """A set of 64-bit hashes."""

    hashes: npt.NDArray[np.uint64]  # sorted and unique
    starts: npt.NDArray[np.int32]
    """Shape (buckets + 1,): the start of each bucket's hashes; the first bits of a hash are its bucket."""
    shift: int  # number of bits of a hash below those of its bucket


class Lists(NamedTuple):
    """The lists in which hosts and addresses are looked up."""

    blocked: HashSet
    allowed: HashSet
    curated: HashSet
    addresses: HashSet


def make_set(parts: Iterable[npt.NDArray[np.uint64]]) -> HashSet:
    """Build a set from arrays of hashes."""
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
    exceptions: HashSet = make_set([])  # domains that are taken off the list


class Lines(NamedTuple):
    """Names of a list, all of one kind."""

    kind: Kind
    data: bytes
    hashes: npt.NDArray[np.uint64]  # shape (names,)
    spans: npt.NDArray[np.int64]  # shape (names, 2): start and stop of each name in ``data``

    def name(self, row: int) -> str:
        """Return a name in the form in which it is compared."""
        start, stop = self.spans[row]
        return _compared(self.data[start:stop].decode("utf-8", "surrogateescape"))


def block_list_files(folder: str, categories: Iterable[str]) -> dict[str, str]:
    """Return the files of some categories in UT1's layout, and the category of each; StageError if one is missing.

    ``FOLDER/CATEGORY/domains`` and ``urls`` may have .txt, .csv or the suffix of a compressed file. A category that is
    a link to another is read once.
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
    """Return description, address, licence and SHA-256 of a folder of fetched lists, or None for any other folder."""
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
        return f"{folder} has no block lists, that is, files such as {folder}/{category}/domains; {FETCH}"
    return f"{folder} has no list {category!r}, only {', '.join(known)}: set categories to some of these"


@reread_when_changed(2)
def read_block_lists(*files: str) -> BlockLists:
    """Read domains, and addresses from files whose names begin with ``urls``; see :func:`parse_line` for the forms.

    ``#`` begins a comment. Case does not matter, nor does ``*.`` or a dot before a domain, nor the scheme, ``www.`` or
    a slash at the end of an address. A single label is only that host: ``localhost``; ``.xxx`` is everything below it.
    An address among domains counts as an address, and an adblock rule such as ``||host^`` as a domain. StageError if a
    file cannot be read, or most of its lines name no host.
    """
    found: dict[Kind, list[npt.NDArray[np.uint64]]] = {"domains": [], "urls": [], "exceptions": []}
    for file in files:
        for lines in _hashed_file(file, seen := _Seen(file)):
            found[lines.kind].append(lines.hashes)
        seen.warn()
    return BlockLists(*map(make_set, found.values()))


@reread_when_changed(8)
def read_domains(path: str | None, *domains: str) -> HashSet:
    """Read a file of domains (or none) in any form of a block list, and add the given ones; StageError for URLs."""
    of_file, seen = list[Lines](), _Seen(path or "")
    if path is not None:
        of_file = [lines for lines in _hashed_file(path, seen) if len(lines.hashes)]
        seen.warn()
    for lines in of_file:
        if lines.kind == "urls":
            raise StageError(f"{path} has the address {lines.name(0)!r}: give domains alone, such as example.org")
    given = _hash_names("domains", [spelled for each in domains if (spelled := _spell_domain(each))])
    return make_set([given.hashes, *(lines.hashes for lines in of_file)])


@cache
def _shipped_sources() -> Mapping[str, Path]:
    """Return the files of the shipped curated sources by name."""
    return {file.stem: file for file in (Path(__file__).parents[1] / "presets" / "urls").glob("*.txt")}


def read_curated_sources(name: str | None) -> HashSet:
    """Read the domains of shipped curated sources by name, or of a file by path; None gives no domain."""
    return read_domains(name and str(_shipped_sources().get(name, name)))


def curated_files(name: str | None) -> tuple[str, ...]:
    """Return the file that :func:`read_curated_sources` reads for a name, if it is a user's own."""
    return () if name is None or name in _shipped_sources() else (name,)


def _hashed_file(file: str, seen: "_Seen") -> Iterator[Lines]:
    """Yield the names of a list in blocks, grouped by kind; raise StageError as :func:`read_block_lists` does."""
    addresses, columns, is_first = Path(file).name.startswith("urls"), None, True
    for block in read_blocks(file):
        if is_first:
            columns, is_first = find_columns(block, file), False
        if columns is None:
            plain, named, others = _hashed_block(block, seen, addresses=addresses)
            yield plain
        else:
            lines = block.split(b"\n")
            starts = np.cumsum([0, *(len(line) + 1 for line in lines)]).tolist()
            named, others = [], list(zip(starts, map(_text, lines), strict=False))
        named += _parsed(others, block, columns, seen, addresses=addresses)
        for kind in ("domains", "urls", "exceptions"):
            if names := [name for each, name in named if each == kind]:
                yield _hash_names(kind, names)
        seen.lines += block.count(b"\n")
    seen.check()


def _hashed_block(
    block: bytes, seen: "_Seen", *, addresses: bool
) -> tuple[Lines, list[tuple[Kind, str]], list[tuple[int, str]]]:
    most = block.count(b"\n") + 1
    hashes, spans = np.empty(most, np.uint64), np.empty((most, 3), np.int64)
    count = hash_lines(np.frombuffer(block, np.uint8), addresses, hashes, spans)
    hashes, spans = hashes[:count], spans[:count]
    is_label, is_other = spans[:, 2] == LABEL, spans[:, 2] == OTHER
    is_spelled = spans[:, 2] == SPELL
    if labels := int(is_label.sum()):
        start = int(spans[is_label, 0][0])
        seen.note("label", block, start, _text(block[start:].partition(b"\n")[0].strip()), labels)
    seen.hosts += int(count - labels - is_other.sum())
    kind: Kind = "urls" if addresses else "domains"
    spell = _spell_address if addresses else _spell_domain
    plain = Lines(kind, block, hashes[~(is_spelled | is_other)], spans[~(is_spelled | is_other), :2])
    spelled = [(kind, spell(_text(block[start:stop]))) for start, stop, _ in spans[is_spelled].tolist()]
    others = [(start, _text(block[start:stop])) for start, stop, _ in spans[is_other].tolist()]
    return plain, [(kind, name) for kind, name in spelled if name], others


def _parsed(
    lines: Iterable[tuple[int, str]], block: bytes, columns: Columns | None, seen: "_Seen", *, addresses: bool
) -> list[tuple[Kind, str]]:
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
        elif named is None and (columns is None or seen.hosts or seen.counts["other"] or seen.has_title):
            seen.note("other", block, start, line.strip())
        elif named is None:
            seen.has_title = True
        elif text and text[0] not in "#!;[$":
            seen.note("rule", block, start, line.strip())
    return found


def _kind(named: Named, *, is_url: bool) -> tuple[Kind, str]:
    if named.is_exception:
        return "exceptions", named.host
    if named.path or is_url:
        return "urls", (named.host.removeprefix("www.") + named.path).rstrip("/")
    return "domains", named.host


def _hash_names(kind: Kind, names: Sequence[str]) -> Lines:
    encoded = [name.encode("utf-8", "surrogateescape") for name in names]
    ends, data = np.cumsum([0, *map(len, encoded)]), b"".join(encoded)
    hashes = np.empty(len(names), np.uint64)
    hash_names(np.frombuffer(data, np.uint8), ends, kind == "urls", hashes)
    return Lines(kind, data, hashes, np.stack([ends[:-1], ends[1:]], axis=1))


class _Seen:
    def __init__(self, file: str) -> None:
        self.file = file
        self.hosts = self.lines = 0
        self.counts: Counter[str] = Counter()
        self.has_title = False  # whether the first row of a CSV has been skipped as a header
        self._first: dict[str, tuple[int, str]] = {}

    def note(self, what: str, block: bytes, start: int, line: str, count: int = 1) -> None:
        """Count lines with one label ("label"), in an unknown form ("other") or without a host ("rule")."""
        self.counts[what] += count
        if what not in self._first:
            self._first[what] = (self.lines + 1 + block.count(b"\n", 0, start), line)

    def check(self) -> None:
        """Raise StageError, with the first wrong line, if most lines do not name hosts."""
        others, labels = self.counts["other"], self.counts["label"]
        wrong = others + labels
        if wrong > self.hosts and (others or labels > 1):
            raise StageError(
                f"{self._where('other', 'label')} is not a host; {wrong:,} of {wrong + self.hosts:,} lines are not: "
                "choose a list of domains, one per line, or a hosts file, adblock rules or a CSV"
            )
        if self.counts["rule"] and not self.hosts and not labels:
            raise StageError(f"{self._where('rule')} has no host, nor has any other line: choose a list of domains")

    def warn(self) -> None:
        """Warn of skipped lines."""
        if others := self.counts["other"]:
            warn_user(f"{self._where('other')} is not a host; lines skipped: {others:,}")

    def _where(self, *kinds: str) -> str:
        number, line = min(self._first[kind] for kind in kinds if kind in self._first)
        return f"{self.file}, line {number}: {line[:80]!r}"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _spell_domain(name: str) -> str:
    below = name.strip().removeprefix("*")
    label = below.strip(".")
    if label and below.startswith(".") and "." not in label:
        # "a." keeps a numeric label from being read as an IPv4 address.
        return spell_host(f"a.{label}").removeprefix("a")
    return spell_host(label)


def _spell_address(name: str) -> str:
    host = name.partition("/")[0].partition("?")[0].partition("#")[0]
    path, mark, query = name[len(host) :].partition("?")
    return (spell_host(host) + without_dot_segments(path) + mark + query).rstrip("/")


def _compared(name: str) -> str:
    """Return a name as the kernels compare it: in ASCII lower case, without escapes of letters."""
    return plain_escapes(name).encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")


def find_categories(files: Mapping[str, str], names: Iterable[str], kind: str) -> dict[str, tuple[str, ...]]:
    """Find the categories that contain names, "domains" or "urls" without www., by reading :func:`block_list_files`."""
    wanted = {_compared(name): name for name in names}
    if not wanted:
        return {}
    places: dict[str, dict[str, None]] = {name: {} for name in wanted.values()}
    hashes = _hash_names("urls" if kind == "urls" else "domains", [*wanted]).hashes
    for file, category in files.items():
        for lines in (each for each in _hashed_file(file, _Seen(file)) if each.kind == kind):
            # Without kind="sort", numpy 2.0 fails with uint64 beyond int64.
            for row in np.flatnonzero(np.isin(lines.hashes, hashes, kind="sort")).tolist():
                if (name := wanted.get(lines.name(row))) is not None:
                    places[name][category] = None
    return {name: tuple(categories) for name, categories in places.items()}


Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

HOST, BLOCKED, ALLOWED, CURATED, URL, SPELLED = range(6)
COLUMNS = 6
"""Columns that ``match_lists`` writes for a URL: the length in bytes of its host, of the longest parent domain in each
list, and of the longest listed prefix of host and path, 0 for none; and 1 if the URL must be respelled."""

_MOST_PARENTS = 128

_U = np.uint64
_SEED = _U(0x9E3779B97F4A7C15)
_STEP = _U(0xD6E8FEB86659FD93)
_FINISH = _U(0xFF51AFD7ED558CCD)

_DOT, _SLASH, _COLON, _AT, _PERCENT = ord("."), ord("/"), ord(":"), ord("@"), ord("%")
_TWO = ord("2")
_BACKSLASH, _QUESTION, _NUMBER_SIGN = ord("\\"), ord("?"), ord("#")
_OPEN, _CLOSE, _LESS, _GREATER, _STAR = ord("["), ord("]"), ord("<"), ord(">"), ord("*")
_NOUGHT, _NINE, _UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = ord("0"), ord("9"), ord("A"), ord("Z"), ord("a"), ord("z")


def _one_of(characters: str) -> npt.NDArray[np.bool_]:
    return np.array([chr(byte) in characters for byte in range(256)], np.bool_)


_WORD = string.ascii_letters + string.digits
_OF_SCHEME, _UNRESERVED, _OF_HOST = _one_of(_WORD + "+-."), _one_of(_WORD + "-._~"), _one_of(_WORD + "-_.")
_OF_HOST[128:] = True
_IS_SLASH = _one_of("/\\")  # browsers take a backslash for a slash
_HEX_VALUE = np.array([int(chr(byte), 16) if chr(byte) in string.hexdigits else -1 for byte in range(256)], np.int64)
_ENDS_STEP = _one_of("/?#&;")  # the text before these may be listed as an address, with everything below it


@forced_inline
def _stepped(state: np.uint64, byte: int) -> np.uint64:
    # One-to-one for every byte, so that equally long names differ until the very end.
    state = (state ^ _U(byte)) * _STEP
    return state ^ (state >> _U(29))


@forced_inline
def _finished(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> _U(32))) * _FINISH
    return state ^ (state >> _U(31))


@forced_inline
def _lowered(byte: int) -> int:
    return byte + 32 if _UPPER_A <= byte <= _UPPER_Z else byte


@forced_inline
def next_byte(data: Bytes, at: int, stop: int) -> Any:
    """Read a byte or an escape such as %41; return the byte and the start of the next one."""
    byte = np.int64(data[at])
    if byte == _PERCENT and at + 2 < stop:
        high, low = _HEX_VALUE[data[at + 1]], _HEX_VALUE[data[at + 2]]
        if high >= 0 and low >= 0:
            return high * 16 + low, at + 3
    return byte, at + 1


@compiled
def contains(listed: HashSet, name: np.uint64) -> bool:
    """Return whether a set contains a hash."""
    bucket = np.int64(name >> _U(listed.shift))
    for place in range(listed.starts[bucket], listed.starts[bucket + 1]):
        if listed.hashes[place] >= name:
            return listed.hashes[place] == name
    return False


@compiled
def _after_scheme(data: Bytes, start: int, stop: int) -> int:
    """Return the position after ``scheme://`` or ``//``, or -1 for a URL without them."""
    at = start
    while at < stop and _OF_SCHEME[data[at]]:
        at += 1
    if at > start:
        if at == stop or data[at] != _COLON or not _LOWER_A <= data[start] | 32 <= _LOWER_Z:
            return -1
        at += 1
    return at + 2 if at + 1 < stop and _IS_SLASH[data[at]] and _IS_SLASH[data[at + 1]] else -1


@compiled
def _looks_like_host(data: Bytes, start: int, stop: int) -> bool:
    """Return whether a text without a scheme begins like ``example.org/`` or ``example.org:8080``."""
    dotted = False
    for at in range(start, stop):
        byte = data[at]
        if byte in (_SLASH, _QUESTION, _NUMBER_SIGN):
            break
        if byte == _COLON:
            return dotted and at + 1 < stop and _NOUGHT <= data[at + 1] <= _NINE
        if byte == _AT:
            return False
        dotted = dotted or (byte == _DOT and at > start)
    return dotted


@compiled
def find_authority(data: Bytes, start: int, stop: int) -> Any:
    """Find the host in a URL; return its start and stop (equal for none), and starts of path, authority, and end."""
    while start < stop and (data[start] <= 32 or data[start] == _LESS):
        start += 1
    while stop > start and (data[stop - 1] <= 32 or data[stop - 1] == _GREATER):
        stop -= 1
    first = _after_scheme(data, start, stop)
    if first < 0:
        if not _looks_like_host(data, start, stop):
            return start, start, start, start, stop
        first = start
    after = first
    while after < stop and data[after] not in (_SLASH, _QUESTION, _NUMBER_SIGN, _BACKSLASH):
        after += 1
    host, last = _without_user_and_port(data, first, after)
    return host, last, after, first, stop


@compiled
def _without_user_and_port(data: Bytes, first: int, after: int) -> Any:
    host = first
    for at in range(first, after):
        if data[at] == _AT:
            host = at + 1
    if host < after and data[host] == _OPEN:
        host, end = host + 1, _CLOSE
    else:
        end = _COLON
    last = host
    while last < after and data[last] != end:
        last += 1
    return host, last


@compiled
def _read_host(data: Bytes, start: int, stop: int, host: Bytes) -> int:
    length, at = 0, start
    while at < stop:
        byte, at = next_byte(data, at, stop)
        host[length] = _lowered(byte)
        length += 1
    while length > 0 and host[length - 1] == _DOT:
        length -= 1
    return length


@compiled
def _is_spelled(host: Bytes, length: int) -> bool:
    for at in range(length):
        if host[at] >= 128 or host[at] == _COLON or _is_punycode(host, at, length):
            return True
    return _is_numeric(host, 0, length)


@compiled
def _is_numeric(host: Bytes, start: int, stop: int) -> bool:
    """Return whether the last label of a host begins with a digit, except in a normally spelled IPv4 address."""
    label = stop
    while label > start and host[label - 1] != _DOT:
        label -= 1
    if label == stop or not _NOUGHT <= host[label] <= _NINE:
        return False
    parts, at = 0, start
    while at < stop:
        first, value = at, 0
        while at < stop and at - first < 4 and _NOUGHT <= host[at] <= _NINE:
            value = value * 10 + host[at] - _NOUGHT
            at += 1
        if at == first or value > 255 or (at - first > 1 and host[first] == _NOUGHT):
            return True
        parts += 1
        if at < stop:
            if host[at] != _DOT or at + 1 == stop:
                return True
            at += 1
    return parts != 4


@forced_inline
def _is_punycode(host: Bytes, at: int, length: int) -> bool:
    if host[at] != 120 or at + 4 >= length or (at > 0 and host[at - 1] != _DOT):
        return False
    return host[at + 1] == 110 and host[at + 2] == 45 and host[at + 3] == 45


@compiled
def write_hosts(data: Bytes, offsets: Any, out: Bytes, ends: Any) -> None:
    """Write the host of every URL to ``out``, end to end; ``ends`` are the offsets, 0 first."""
    ends[0] = 0
    for row in range(len(offsets) - 1):
        first, last, _, _, _ = find_authority(data, offsets[row], offsets[row + 1])
        ends[row + 1] = ends[row] + _read_host(data, first, last, out[ends[row] :])


@compiled
def _is_number(host: Bytes, length: int) -> bool:
    at = length - 1
    while at >= 0 and _NOUGHT <= host[at] <= _NINE:
        at -= 1
    if at < length - 1 and (at < 0 or host[at] == _DOT):
        return True
    at = 0
    while at < length and host[at] != _COLON:
        at += 1
    return at < length


@compiled
def _match_parents(host: Bytes, length: int, lists: Lists, found: Any) -> None:
    """Look up a host and its parent domains, the shortest first, so that the longest listed one is recorded."""
    count, state = 0, _SEED
    parents = not _is_number(host, length)
    for at in range(length - 1, -1, -1):
        # The DNS allows no more labels than this.
        if host[at] == _DOT and parents and count < _MOST_PARENTS:
            # A single parent label is looked up as .xxx, which lists everything below xxx.
            _look_up(_finished(state if count else _stepped(state, _DOT)), length - at - 1, lists, found)
            count += 1
        state = _stepped(state, np.int64(host[at]))
    _look_up(_finished(state), length, lists, found)


@compiled
def _look_up(name: np.uint64, length: int, lists: Lists, found: Any) -> None:
    if contains(lists.blocked, name):
        found[BLOCKED] = length
    if contains(lists.allowed, name):
        found[ALLOWED] = length
    if contains(lists.curated, name):
        found[CURATED] = length


@forced_inline
def _next_of_path(data: Bytes, at: int, stop: int) -> Any:
    """Read a byte in lower case, or an escape such as %7E that is equivalent to its byte (RFC 3986, section 2.3)."""
    byte, after = next_byte(data, at, stop)
    if after > at + 1 and not _UNRESERVED[byte]:
        byte, after = np.int64(data[at]), at + 1
    return _lowered(byte), after


@compiled
def _has_dots(data: Bytes, start: int, stop: int) -> bool:
    for at in range(start, stop - 1):
        if data[at] in (_QUESTION, _NUMBER_SIGN):
            return False
        is_escape = at + 2 < stop and data[at + 1] == _PERCENT and data[at + 2] == _TWO
        if data[at] == _SLASH and (data[at + 1] == _DOT or is_escape):
            return True
    return False


@forced_inline
def _starts_with_www(data: Bytes, start: int, stop: int) -> bool:
    if start + 4 >= stop or data[start + 3] != _DOT:
        return False
    return data[start] | 32 == 119 and data[start + 1] | 32 == 119 and data[start + 2] | 32 == 119


@compiled
def _match_address(data: Bytes, after: int, stop: int, host: Bytes, length: int, listed: HashSet) -> int:
    """Return the length of the longest listed prefix of host (without www.) and path in bytes, 0 if none is listed."""
    longest, state = 0, _SEED
    first = 4 if _starts_with_www(host, 0, length) else 0
    for at in range(first, length):
        state = _stepped(state, np.int64(host[at]))
    at = after
    while at < stop:
        if _ENDS_STEP[data[at]] and contains(listed, _finished(state)):
            longest = length - first + at - after
        byte, at = _next_of_path(data, at, stop)
        state = _stepped(state, byte)
    return length - first + stop - after if contains(listed, _finished(state)) else longest


@allocating
def match_lists(data: Bytes, offsets: Any, lists: Lists, host: Bytes, found: Any) -> None:
    """Look up every URL in all lists; write to ``found``, zeros of (URLs, COLUMNS), with ``host`` as scratch memory."""
    addresses = lists.addresses
    for row in range(len(offsets) - 1):
        first, last, after, _, stop = find_authority(data, offsets[row], offsets[row + 1])
        length = _read_host(data, first, last, host)
        found[row, HOST] = length
        if length:
            found[row, SPELLED] = _is_spelled(host, length) or (
                len(addresses.hashes) > 0 and _has_dots(data, after, stop)
            )
            _match_parents(host, length, lists, found[row])
            if len(addresses.hashes):
                found[row, URL] = _match_address(data, after, stop, host, length, addresses)


HASHED, SPELL, OTHER, LABEL = range(4)
"""Kinds of lines: hashed unchanged, respelled before hashing, not just a name, and a single label."""


@compiled
def hash_lines(data: Bytes, addresses: bool, hashes: Hashes, spans: Any) -> int:  # noqa: C901, FBT001  # a state machine; by position: numba
    """Hash every line of a list of domains, or of addresses, up to a number sign; return the number of lines.

    ``spans``, shape (lines, 3), gets start and stop of the name in a line, or of all of an OTHER one, and its kind.
    """
    count, at, size = 0, 0, len(data)
    while at < size:
        while at < size and data[at] <= 32:
            at += 1
        start = at
        while at < size and data[at] > 32:
            at += 1
        stop = at
        while at < size and data[at] <= 32 and data[at] != 10:
            at += 1
        is_alone = at == size or data[at] in (10, _NUMBER_SIGN)
        while at < size and data[at] != 10:
            at += 1
        if start == stop or data[start] == _NUMBER_SIGN:
            continue
        kind = _kind_of_name(data, start, stop, addresses) if is_alone else OTHER
        if kind == OTHER:
            stop = at
            while data[stop - 1] <= 32:
                stop -= 1
        else:
            start, stop = _trimmed(data, start, stop, addresses)
            if start == stop:
                continue
            hashes[count] = _hash_line(data, start, stop, addresses)
            if kind == HASHED and not addresses and _is_label(data, start, stop):
                kind = LABEL
        spans[count, 0], spans[count, 1], spans[count, 2] = start, stop, kind
        count += 1
    return count


@compiled
def hash_names(data: Bytes, offsets: Any, addresses: bool, hashes: Hashes) -> None:  # noqa: FBT001  # by position: numba
    """Hash domains or addresses, end to end, that are already spelled."""
    for row in range(len(offsets) - 1):
        hashes[row] = _hash_line(data, offsets[row], offsets[row + 1], addresses)


@compiled
def _kind_of_name(data: Bytes, start: int, stop: int, addresses: bool) -> int:  # noqa: C901, FBT001  # a list of cases; by position: numba
    kind, last = HASHED, stop
    if addresses:
        first = _after_scheme(data, start, stop)
        start = start if first < 0 else first
        last = start
        while last < stop and data[last] not in (_SLASH, _QUESTION, _NUMBER_SIGN):
            if not _OF_HOST[data[last]]:
                return OTHER
            last += 1
        if _has_dots(data, last, stop):
            kind = SPELL
    elif stop - start > 2 and data[start] == _STAR and data[start + 1] == _DOT:
        start += 1
    for at in range(start, last):
        if not _OF_HOST[data[at]]:
            return OTHER
    while last > start and data[last - 1] == _DOT:
        last -= 1
    if _is_numeric(data, start, last):
        return SPELL if addresses else OTHER
    for at in range(start, last):
        if data[at] >= 128:
            kind = SPELL
    return kind


@compiled
def _is_label(data: Bytes, start: int, stop: int) -> bool:
    for at in range(start, stop):  # noqa: SIM110  # numba has no generators
        if data[at] == _DOT or data[at] >= 128:
            return False
    return True


@compiled
def _trimmed(data: Bytes, start: int, stop: int, addresses: bool) -> Any:  # noqa: FBT001  # by position: numba
    if addresses:
        first = _after_scheme(data, start, stop)
        start = start if first < 0 else first
        if _starts_with_www(data, start, stop):
            start += 4
        while stop > start and data[stop - 1] == _SLASH:
            stop -= 1
        return (start, stop) if start < stop and data[start] != _SLASH else (start, start)
    if stop - start > 2 and data[start] == _STAR and data[start + 1] == _DOT:
        start += 1
    while stop > start and data[stop - 1] == _DOT:
        stop -= 1
    if stop > start and data[start] == _DOT:
        for at in range(start + 1, stop):
            if data[at] == _DOT:
                return start + 1, stop
    return start, stop


@compiled
def _hash_line(data: Bytes, start: int, stop: int, addresses: bool) -> np.uint64:  # noqa: FBT001  # by position: numba
    state = _SEED
    if not addresses:
        for place in range(stop - 1, start - 1, -1):
            state = _stepped(state, _lowered(np.int64(data[place])))
        return _finished(state)
    at = start
    while at < stop:
        byte, at = _next_of_path(data, at, stop)
        state = _stepped(state, byte)
    return _finished(state)
