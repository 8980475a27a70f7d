"""Opt-outs of publishers: removes documents of listed domains and addresses, optionally from a given date."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.addresses import plain_escapes, spell_host, without_dot_segments
from longcrawl.core.stages import Check, Judge, column, stage
from longcrawl.errors import StageError, unreadable
from longcrawl.kernels.texts import valid_texts
from longcrawl.text.refinedweb.url_filter import url_hosts
from longcrawl.text.refinedweb.url_lists import Columns, find_columns, parse_line, read_blocks, read_host

_AS_IT_IS = "".join(set(map(chr, range(128))) - set("*$"))


class Entry(NamedTuple):
    """Entry of a list: a path pattern and a date."""

    path: str  # a pattern of robots.txt, from the first slash on; "" for the whole domain
    date: str  # year, month and day as eight digits; "" if none is given


@stage
class OptOut(Judge):
    r"""Remove documents of publishers who have opted out.

    Lists are text files with a domain or an address in each line, and optionally the date from which it applies::

        example.org 2024-05-01
        blog.example.com
        example.net/private/ 2023-11-30
        example.net/*.pdf$

    A domain includes all its subdomains. An address is a pattern as in robots.txt (RFC 9309): a prefix of path and
    query in which ``*`` matches any characters and ``$`` the end. Blank lines and anything after a ``#`` are ignored.
    URLs and the forms of block lists (hosts files, adblock rules, CSV) are also read. A document is removed by

    * ``opted_out_domain``: its host or a parent domain is listed;
    * ``opted_out_path``: an address of its host or of a parent domain matches.

    A document without a URL is kept.

    Args:
        lists: paths of the lists.
        pages: "all" removes pages whenever they were crawled; "since" only removes pages crawled on the date of an
            entry or later, by the column ``date`` in ISO 8601. A page or an entry without a valid date is treated as
            with "all".
        as_of: ignores entries with a later date than this, such as ``2024-12-31``, so that a list may grow without
            changing the result of a recipe.

    >>> import pyarrow as pa, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "list.txt")
    >>> _ = file.write_text("example.org 2024-05-01\nexample.net/private/")
    >>> urls = ["https://www.example.org/a", "https://example.net/", "https://example.net/private/b"]
    >>> OptOut((str(file),)).judge(pa.table({"url": urls}))["rule"].to_pylist()
    ['opted_out_domain', None, 'opted_out_path']

    Raises:
        StageError: a list does not exist, or has an invalid line.
    """

    lists: tuple[str, ...] = ()
    pages: Literal["all", "since"] = "all"
    as_of: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.as_of is not None and not _day(self.as_of):
            raise StageError(f"opt_out.as_of is {self.as_of!r}: give a date such as 2024-12-31")

    code_version: ClassVar[str] = "2"

    def files(self) -> tuple[str, ...]:
        """Return the paths of the lists."""
        return self.lists

    def prepare(self) -> None:
        """Read the lists."""
        _ = self._entries

    def checks(self, table: pa.Table) -> list[Check]:
        """Match the column ``url`` of every document."""
        urls = valid_texts(column(table, "url", self.name), self.name, "url")
        dates = column(table, "date", self.name) if self.pages == "since" else pa.nulls(len(urls))
        whole, some = np.ones((2, len(urls)), bool)
        entries = of_domains(urls, self._entries)
        for row in np.flatnonzero([bool(each) for each in entries]).tolist():
            since = [each for each in entries[row] if self._holds(each, dates[row].as_py())]
            whole[row] = not any(each.path == "" for each in since)
            path = path_of(urls[row].as_py())
            some[row] = not any(each.path and matches_path(each.path, path) for each in since)
        nothing = pa.nulls(len(urls), pa.float64())
        rules = {"opted_out_domain": whole, "opted_out_path": some}
        return [Check(rule, nothing, pa.array(passes)) for rule, passes in rules.items()]

    def _holds(self, entry: Entry, date: object) -> bool:
        day = "" if self.pages == "all" or date is None else _day(str(date))
        return not day or day >= entry.date

    @cached_property
    def _entries(self) -> dict[str, list[Entry]]:
        if not self.lists:
            raise StageError("opt_out.lists is empty: add files of domains and addresses, or remove the stage")
        until = "9999" if self.as_of is None else _day(self.as_of)
        found: dict[str, list[Entry]] = {}
        for file in self.lists:
            with unreadable(file, StageError, "choose a text file in UTF-8 with a domain or address on each line"):
                data = b"".join(read_blocks(file))
                lines = data.decode().splitlines()
            columns = find_columns(data, file)
            for number, line in enumerate(lines, 1):
                for domain, entry in _parse(line, columns, f"{file}, line {number}", is_first=number == 1):
                    if entry.date <= until:
                        found.setdefault(domain, []).append(entry)
        return found


def of_domains(urls: pa.Array, listed: Mapping[str, Sequence[Entry]]) -> list[list[Entry]]:
    """Return the entries of each URL's host and its parent domains, ``listed`` in lower case and Punycode."""
    hosts = pc.dictionary_encode(url_hosts(urls))
    known = []
    for host in hosts.dictionary.to_pylist():
        labels = host.split(".")
        names = (".".join(labels[first:]) for first in range(len(labels)))
        known.append([entry for name in names for entry in listed.get(name, ())])
    return [known[place] for place in hosts.indices.to_pylist()]


def path_of(url: str) -> str:
    """Return path and query of a URL, from the first slash on, as spelled by :func:`spell_path`.

    >>> path_of("https://example.org?q"), path_of("example.org/a/../b?c"), path_of("example.org/ö%7e")
    ('/?q', '/b?c', '/%C3%B6~')
    """
    behind = url.partition("//")[2] or url
    ends = [place for mark in "/?#" if (place := behind.find(mark)) >= 0]
    path, mark, query = (behind[min(ends) :].partition("#")[0] if ends else "").partition("?")
    return without_dot_segments(spell_path(path if path.startswith("/") else f"/{path}")) + spell_path(mark + query)


def spell_path(path: str) -> str:
    """Return a path in its normal spelling, in which ``*``, ``$`` and characters beyond ASCII are escaped.

    >>> spell_path("/ö*"), spell_path("/%c3%b6%2A"), spell_path("/%70%2f")
    ('/%C3%B6%2A', '/%C3%B6%2A', '/p%2F')
    """
    return plain_escapes(quote(path, safe=_AS_IT_IS))


def matches_path(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern of robots.txt, in time linear in both.

    >>> matches_path("/a*.pdf$", "/a/b.pdf"), matches_path("/a*.pdf$", "/a/b.pdf?c"), matches_path("/a", "/ab")
    (True, False, True)
    """
    ends = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    if not others:
        return path == first if ends else True
    place = len(first)
    for part in others[:-1] if ends else others:
        found = path.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return not ends or (path.endswith(others[-1]) and len(path) - len(others[-1]) >= place)


def _parse(line: str, columns: Columns | None, where: str, *, is_first: bool) -> list[tuple[str, Entry]]:
    """Return the domains of a line with their entries; none for a blank line or a comment."""
    text, date = line.partition("#")[0].strip(), ""
    if columns is not None and text:
        cells = [cell.strip() for cell in columns.cells(text)]
        text = cells.pop(columns.column) if columns.column < len(cells) else line
        date = next((day for cell in cells if (day := _day(cell))), "")
        if is_first and parse_line(text, loose=False) is None:  # the header
            return []
    before, comma, behind = text.rpartition(",")
    if comma and (day := _day(behind.strip())):
        text, date = before.strip(), day
    words = text.split()
    if len(words) > 1 and _day(words[-1]):
        date = _day(words.pop())
        text = " ".join(words)
    if not words:
        return []
    domain, slash, path = text.partition("/")
    if len(words) == 1 and (host := read_host(domain, single=True)):
        end = "$" if path.endswith("$") else ""
        path, mark, query = f"{slash}{path.removesuffix('$')}".partition("?")
        pattern = "*".join(map(spell_path, f"{without_dot_segments(path)}{mark}{query}".split("*")))
        return [(host.removeprefix("."), Entry(f"{pattern}{end}", date))]
    named = parse_line(text, loose=False)
    if named is None or any(each.is_exception for each in named):
        raise StageError(f"{where}: {line.strip()[:80]!r} is not a domain or address with a date such as 2024-05-01")
    return [(each.host.removeprefix("."), Entry(spell_path(each.path) if each.path else "", date)) for each in named]


def named_domains(line: str) -> list[str]:
    """Return the domains that a line of a list names, in any form of a block list; none for a comment.

    A line that names no domain is returned as if it were one.

    >>> named_domains("0.0.0.0 München.de"), named_domains("||example.org^"), named_domains("a b")
    (['xn--mnchen-3ya.de'], ['example.org'], ['a b'])
    """
    named = parse_line(line.strip(), loose=False)
    if named is None or any(each.path or each.is_exception for each in named):
        return [spell_host(line.removeprefix("*.").strip("."))]
    return [each.host.removeprefix(".") for each in named]


def _day(date: str) -> str:
    """Return year, month and day of an ISO 8601 date or timestamp as eight digits; "" if it is not one."""
    day = date[:10].replace("-", "") if date[4:5] == "-" else date[:8]
    if not (day.isascii() and day.isdigit() and len(day) == 8) or (date.isdigit() and len(date) not in (8, 14)):
        return ""
    try:
        datetime.strptime(day, "%Y%m%d")  # noqa: DTZ007  # a day alone
    except ValueError:
        return ""
    return day
