"""Reads lists of hosts and addresses in the forms in use: hosts files, adblock rules, zones, dnsmasq, CSV and URLs.

A line names hosts, each with all below it, or addresses: a host and the beginning of a path. Files may be compressed
and begin with a byte order mark; both are found by their first bytes.
"""

import bz2
import csv
import gzip
import ipaddress
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import zstandard

from longcrawl.core.addresses import spell_host, without_dot_segments
from longcrawl.errors import StageError

BLOCK = 1 << 24
"""Bytes of a list that are read at once."""
SAMPLE = 1000
"""Lines at the beginning of a list by which CSV and its column of hosts are found."""
LONGEST = 4096
"""Characters of a line that may name a host; expressions take time that grows with the square of some."""
MOST_LINE = 500
"""Bytes of each of these lines on average."""

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
"""Most lines of hosts files and adblock lists: a million take 6 seconds, and 15 by the rest."""
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
"""Names that every hosts file has for the machine itself."""


class Named(NamedTuple):
    """A host or an address that a line names."""

    host: str
    """As :func:`longcrawl.core.addresses.spell_host` spells it; with a dot before it: all hosts below it."""
    path: str = ""
    """Path and query; "" for the host and all below it."""
    is_exception: bool = False
    """Whether the line takes the host off the list."""


class Columns(NamedTuple):
    """A list in CSV, and where its hosts are."""

    separator: str
    column: int

    def cells(self, line: str) -> list[str]:
        """Return the cells of a line."""
        return next(csv.reader([line], delimiter=self.separator, skipinitialspace=True), [])


def read_blocks(file: str) -> Iterator[bytes]:
    """Return the bytes of a list in blocks of whole lines, decompressed and in UTF-8 without a byte order mark.

    Raises:
        StageError: it is not there, or cannot be read.
    """
    fix = "give the path of a list of domains, one per line"
    try:
        with Path(file).open("rb") as opened:
            magic = opened.read(6)
        if magic.startswith(b"PK\x03\x04"):
            raise StageError(f"{file} is a zip archive: unpack it, and name the list in it")
        opener = next((each for start, each in _MAGIC.items() if magic.startswith(start)), open)
        with opener(file, "rb") as content:
            yield from _whole_lines(content)
    except FileNotFoundError as error:
        raise StageError(f"{file} cannot be read, it does not exist; {fix}") from error
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
    """Return where the hosts of a CSV are, None for a list in another form, by the lines at its beginning.

    Raises:
        StageError: several columns hold hosts, and none of them is called ``domain``, ``host`` or ``url``.
    """
    lines = block[: SAMPLE * MOST_LINE].decode("utf-8", "replace").splitlines()[:SAMPLE]
    kept = [line for line in lines if line.strip() and line.lstrip()[0] not in "#!;[@|" and not _COSMETIC.search(line)]
    for separator in _SEPARATORS:
        if 2 * sum(separator in line for line in kept) <= len(kept):
            continue
        rows = [next(csv.reader([line], delimiter=separator, skipinitialspace=True), []) for line in kept]
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
                "keep one of them, or call one domain"
            )
        if found:
            return Columns(separator, (titled or found)[0])
    return None


def _names_host(cell: str) -> bool:
    text = cell.strip()
    return not _DECIMAL.fullmatch(text) and bool(parse_line(text, loose=False))


def parse_line(line: str, *, loose: bool = True) -> list[Named] | None:  # noqa: C901, PLR0911  # a return for each form
    """Return what a line names: none for a comment or a rule without a host, None if it is in no known form.

    Args:
        line: without white space around it.
        loose: whether other words may follow a host.
    """
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
    """Return the host or the address that one word is."""
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
    """Return the spelling of a host with all below it, "" if it is none; ``single``: it may have one label."""
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
