"""Lists of domains and of addresses, in files such as UT1's: which to read, and their form for the kernels."""

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.storage.files import reread_when_changed
from longcrawl.storage.structured import load_json

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
_BLOCK = 1 << 24
MOST_HOST = 255
"""Characters that a host has at most, by the DNS; spelling a longer one takes time that grows with its square."""

_DOTS = re.compile("[.\N{IDEOGRAPHIC FULL STOP}\N{FULLWIDTH FULL STOP}\N{HALFWIDTH IDEOGRAPHIC FULL STOP}]")

_Lines = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64], npt.NDArray[np.int64]]

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


class BlockLists(NamedTuple):
    """The hashes of all domains, and of all addresses, of some files."""

    domains: HashSet
    addresses: HashSet


def block_list_files(folder: str, categories: Iterable[str]) -> dict[str, str]:
    """Return the files of some categories in UT1's layout, and the category of each.

    ``FOLDER/CATEGORY/domains`` and ``FOLDER/CATEGORY/urls`` are plain or have .gz at the end. A category that is a link
    to another is read once.

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
    places = [[Path(folder, category, kind + ending) for ending in ("", ".gz")] for kind in _KINDS]
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
    """Read domains, and addresses from files whose names begin with ``urls``: one per line, plain or .gz.

    ``#`` begins a comment. Case makes no difference, nor does ``*.`` or a dot before a domain, nor the scheme, ``www.``
    or a slash at the end of an address. What is of one label is that host alone: ``localhost``; ``.xxx`` is everything
    below it.

    Raises:
        StageError: a file cannot be read.
    """
    by_kind = [[file for file in files if _is_kind(file, kind)] for kind in _KINDS]
    return BlockLists(*(make_set(hashes for file in kind for _, hashes, _ in _hashed_file(file)) for kind in by_kind))


@reread_when_changed(8)
def read_domains(path: str | None, *domains: str) -> HashSet:
    """Read a file of domains, one per line as in a block list, and add some to them; None is no file.

    Raises:
        StageError: the file cannot be read.
    """
    of_file = [] if path is None else [hashes for _, hashes, _ in _hashed_file(path)]
    return make_set([*of_file, *(hashes for _, hashes, _ in _hashed(["\n".join(domains).encode()], addresses=False))])


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


def _hashed_file(file: str) -> Iterator[_Lines]:
    return _hashed(_blocks(file), addresses=_is_kind(file, "urls"))


def _hashed(blocks: Iterable[bytes], *, addresses: bool) -> Iterator[_Lines]:
    """Return blocks of whole lines as bytes, the hash of each line that has a name, and where the name stands."""
    from longcrawl.text.refinedweb._url_kernels import hash_lines

    for block in blocks:
        data = np.frombuffer(block, np.uint8)
        most = block.count(b"\n") + 1
        hashes, spans = np.empty(most, np.uint64), np.empty((most, 3), np.int64)
        count = hash_lines(data, addresses, hashes, spans)
        hashes, spans = hashes[:count], spans[:count]
        for row in np.flatnonzero(spans[:, 2]):
            name = _spelled(block[spans[row, 0] : spans[row, 1]], addresses)
            hash_lines(np.frombuffer(name, np.uint8), addresses, hashes[row : row + 1], np.empty((1, 3), np.int64))
        yield data, hashes, spans


def _spelled(name: bytes, addresses: bool) -> bytes:  # noqa: FBT001  # says which of two files
    """Spell a name that has letters beyond ASCII as URLs do: its host in Punycode."""
    text = name.decode("utf-8", "surrogateescape")
    host, slash, path = text.partition("/") if addresses else (text, "", "")
    return (ascii_host(host) + slash + path).encode("utf-8", "surrogateescape") or b"-"


def ascii_host(host: str) -> str:
    """Return a host with every label beyond ASCII in Punycode; a label that has no such form stays as it is.

    >>> ascii_host("www.bücher.example")
    'www.xn--bcher-kva.example'
    """
    return ".".join(_ascii_label(label) for label in _DOTS.split(host))


def _ascii_label(label: str) -> str:
    if label.isascii():
        return label.lower()
    if len(label) > MOST_HOST:
        return label
    try:
        return label.encode("idna").decode("ascii")
    except UnicodeError:
        return label


def _blocks(file: str) -> Iterator[bytes]:
    opener = gzip.open if file.endswith(".gz") else open
    try:
        with opener(file, "rb") as opened:
            rest = b""
            while block := opened.read(_BLOCK):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    yield whole + newline
            if rest:
                yield rest
    except FileNotFoundError as error:
        raise StageError(f"{file} does not exist; give the path of a list of domains, one per line") from error
    except (OSError, EOFError, zlib.error) as error:
        raise StageError(f"{file} cannot be read as a list of domains ({error}); {FETCH} again") from error


def find_categories(files: Mapping[str, str], names: Iterable[str], kind: str) -> dict[str, tuple[str, ...]]:
    """Find in which categories names stand, letter by letter, by reading the files again.

    Args:
        files: as :func:`block_list_files` gives them.
        names: domains, or addresses without www., as URLs spell them.
        kind: "domains" or "urls".

    Returns:
        The categories of every name; none for a name that is in no file.
    """
    wanted = {name.encode("utf-8", "surrogateescape"): name for name in names}
    places: dict[str, list[str]] = {name: [] for name in wanted.values()}
    if not wanted:
        return {}
    (_, hashes, _), *_ = _hashed([b"\n".join(wanted)], addresses=kind == "urls")
    for file, category in files.items():
        if not _is_kind(file, kind):
            continue
        for data, found, spans in _hashed_file(file):
            # Unless it sorts, numpy 2.0 fails with uint64 beyond int64.
            for row in np.flatnonzero(np.isin(found, hashes, kind="sort")):
                line = data[spans[row, 0] : spans[row, 1]].tobytes()
                spelled = _spelled(line, kind == "urls") if spans[row, 2] else line.lower()
                name = wanted.get(spelled)
                if name is not None and category not in places[name]:
                    places[name].append(category)
    return {name: tuple(categories) for name, categories in places.items()}
