"""Exact deduplication by text, by URL or by a list of duplicates.

Only the first document of each hash in a group is compared with other groups, so a million equal documents take one row
per group.
"""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.addresses import plain_escapes, spell_host, without_dot_segments
from longcrawl.core.exchange import DOCUMENT, Decided, Engine, Exchange, Sketched, cut, key_ranges
from longcrawl.core.ledger import number_rule
from longcrawl.core.stages import PART, REMOVAL_SCHEMA, Check, Judge, column, document_ids, stage
from longcrawl.dedup.index import (
    REMOVALS,
    IndexedSurvey,
    Keys,
    Places,
    SaveIndex,
    removal_table,
    search_earlier,
    staying,
)
from longcrawl.dedup.normalize import normalize
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.texts import fixed_rows, valid_texts

HASH_BYTES = 16


@dataclass(frozen=True)
class EqualHashes(IndexedSurvey):
    """Base of stages that keep one of all documents with the same 128-bit hash; documents with a null hash are kept.

    Two different inputs among 1e9 share a hash with probability 1.5e-21. ``keep`` is "first", the first row in the
    order in which the source lists files, or "random", the smallest keyed hash of ``seed`` and id. A run with several
    ``parts`` removes documents of later parts by those that earlier parts finally kept.
    """

    keep: Literal["first", "random"] = "first"
    seed: int = 0
    against: tuple[str, ...] = ()
    index: SaveIndex = "none"

    after_parts: ClassVar[bool] = True
    key: ClassVar[str] = "hash"
    words: ClassVar[int] = 2
    same: ClassVar[str]

    @abstractmethod
    def hashes(self, table: pa.Table) -> pa.Array:
        """Return the 16-byte hash of each document; null keeps the document."""

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``hash`` (16 bytes)."""
        return pa.table({"id": document_ids(table, self.name), "hash": self.hashes(table)})

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided:
        """Keep one document of each hash."""
        earlier, groups = search_earlier(self, sketched, engine), sketched.groups
        first = Exchange(partial(self._make_first, sketched, earlier), _take_first, groups, sketched.place("first"))
        engine.exchange(first, range(groups))
        make, take = partial(sketched.split, first, DOCUMENT), partial(self._take_removals, sketched, earlier)
        removals = Exchange(make, take, groups, sketched.place("removals"))
        engine.exchange(removals, range(groups))
        return Decided(removals.read)

    @property
    def index_bands(self) -> int:
        """Number of bands in an index: one, with the hashes themselves."""
        return 1

    def band_keys(self, known: pa.Table) -> Iterator[Keys]:
        """Return the hashes of documents that have one."""
        yield _words(known["hash"])

    def find_earlier(self, sketches: pa.Table) -> pa.Table:
        """Return the removals of documents with a hash found in an earlier dataset."""
        removals = [REMOVAL_SCHEMA.empty_table()]
        left = sketches.filter(pc.is_valid(sketches["hash"]))
        indexes = self.open_indexes()
        for number, index in enumerate(indexes, 1):
            found = index.find(0, _words(left["hash"]))
            gone = np.flatnonzero(found >= 0)
            rule = number_rule("seen_before", number, len(indexes))
            removals.append(removal_table(left["id"].take(gone), rule, index.ids(found[gone])))
            left = left.take(np.flatnonzero(found < 0))
        return pa.concat_tables(removals)

    def _group(self, sketched: Sketched, earlier: Exchange, group: int) -> tuple[pa.Table, Places]:
        """Return a group's sorted documents, without those of earlier datasets, and the position of each leader."""
        table = sketched.table(group)
        places = staying(table["hash"], group, sketched, earlier)
        numbers = pa.array(sketched.starts[group] + places)
        known = table.take(places).append_column(DOCUMENT, numbers)
        if self.keep == "random":
            ids = (name.as_py() for name in known["id"])  # a generator, since a list would hold every id as an object
            known = known.append_column("rank", pa.array(keyed_hash(ids, self.name, self.seed), pa.uint64()))
        return _ordered(known)

    def _make_first(self, sketched: Sketched, earlier: Exchange, group: int) -> Iterator[tuple[int, pa.Table]]:
        if sketched.groups == 1:
            return
        known, leaders = self._group(sketched, earlier, group)
        first = known.take(np.flatnonzero(leaders == np.arange(len(leaders))))
        yield from cut(first, key_ranges(_words(first["hash"])[:, 0].byteswap(), sketched.groups))

    def _take_removals(self, sketched: Sketched, earlier: Exchange, group: int, tables: Iterator[pa.Table]) -> pa.Table:
        """Return the removals of a group: each duplicate is removed in favour of the document that is finally kept."""
        known, leaders = self._group(sketched, earlier, group)
        left = pa.concat_tables([FOLLOWERS.empty_table(), *tables])
        kept = known["id"].take(leaders)
        elsewhere = pc.index_in(known[DOCUMENT].take(leaders), value_set=left[DOCUMENT])
        kept = pc.coalesce(left["kept_id"].take(elsewhere), kept)
        gone = np.flatnonzero(pc.is_valid(elsewhere).to_numpy() | (leaders != np.arange(len(leaders))))
        removals = removal_table(known["id"].take(gone), self.same, kept.take(gone))
        numbered = removals.add_column(0, DOCUMENT, known[DOCUMENT].take(gone)).cast(REMOVALS)
        return pa.concat_tables([earlier.read(group), numbered]).sort_by(DOCUMENT).combine_chunks()


FOLLOWERS = pa.schema([(DOCUMENT, pa.int64()), ("kept_id", pa.string())])


def _ordered(known: pa.Table) -> tuple[pa.Table, Places]:
    keys = [key for key in ("hash", PART, "rank", DOCUMENT) if key in known.column_names]
    known = known.take(pc.sort_indices(known, sort_keys=[(key, "ascending") for key in keys]))
    hashes, places = known["hash"], np.arange(known.num_rows)
    if len(places):
        places[1:][pc.equal(hashes[1:], hashes[:-1]).to_numpy()] = 0
    return known, np.maximum.accumulate(places)


def _take_first(_: int, tables: Iterator[pa.Table]) -> pa.Table:
    found = list(tables)
    if not found:
        return FOLLOWERS.empty_table()
    known, leaders = _ordered(pa.concat_tables(found))
    gone = np.flatnonzero(leaders != np.arange(len(leaders)))
    columns = [known[DOCUMENT].take(gone), known["id"].take(leaders[gone])]
    return pa.table(columns, schema=FOLLOWERS).combine_chunks()


def _words(hashes: pa.ChunkedArray) -> Keys:
    whole = pa.concat_arrays(hashes.chunks) if hashes.num_chunks else pa.array([], pa.binary(HASH_BYTES))
    return fixed_rows(whole).view(np.uint64)


Query = Literal["all", "drop-tracking", "none"]

TRACKING_PARAMETERS = re.compile(
    r"utm_.*|mc_[ce]id|_ga|_gl|_hs(?:enc|mi)|hsctatracking|fbclid|gclid|gclsrc|gbraid|wbraid|dclid|msclkid|yclid|twclid"
    r"|igshid|ttclid|li_fat_id|oly_(?:anon|enc)_id|vero_id|mkt_tok|ref|ref_src|ref_url|referrer|cmpid|campaign"
    r"|(?:php|j|asp)?sess(?:ion)?_?id|aspsessionid.*|cfid|cftoken|zenid|oscsid|replytocom|share|print|amp",
    re.IGNORECASE,
)
"""Names of query parameters that track a visitor or a session, or select a version to print or share."""

_SHORT_SESSION = re.compile(r"s_?id=(?=[^=]*\d)[0-9a-z]{16,}", re.IGNORECASE)
"""A ``sid`` that looks like a session; other values may be the number of a story."""

_SESSION_IN_PATH = re.compile(r";(?:jsessionid|phpsessid|sid)=[^/;]*", re.IGNORECASE)
_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_AUTHORITY_END = re.compile("[/?#]")
_ALLOWED = ":/?#[]@!$&'()*+,;=%"
MOST_AUTHORITY = 1_000
"""Characters of user, host and port together that are parsed if not all are ASCII; the DNS allows 255 for a host."""

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}


@stage
class ListedDuplicates(Judge):
    """Remove documents that the release itself lists as duplicates (column ``duplicate``, bool).

    RedPajama-V2 lists a document if a Bloom filter had seen its digest in a newer snapshot. Because such filters err,
    between about 1 in 10,000 and 1 in 100 unique documents are also listed.

    Args:
        on_missing: treatment of a document without a list (``duplicate`` is null): "drop" removes it by the rule
            ``no_duplicates_list``, "keep" keeps it.
    """

    on_missing: Literal["drop", "keep"] = "drop"

    copies_share = "list"

    def checks(self, table: pa.Table) -> list[Check]:
        """Check the column ``duplicate``."""
        listed = pc.cast(column(table, "duplicate", self.name), pa.bool_())
        nothing = pa.nulls(table.num_rows, pa.float64())
        checks = [Check("listed_duplicate", nothing, pc.fill_null(pc.invert(listed), True))]
        if self.on_missing == "drop":
            checks.append(Check("no_duplicates_list", nothing, pc.is_valid(listed)))
        return checks

    def keeps_unread(self, table: pa.Table) -> pa.Array:
        """Return which documents are kept, without reading their texts."""
        return pc.is_null(self.judge(table)["rule"])


@stage
class ExactDocuments(EqualHashes):
    """Keep one of all documents with exactly the same text; an empty text equals a null one.

    With ``text="normalised"``, texts are equal if their normal forms are (:mod:`longcrawl.dedup.normalize`), regardless
    of case, accents, punctuation, white space and invisible characters. With ``column="digest"``, files and pages of
    web archives are compared before they are read: two PDFs with the same bytes need to be extracted only once.

    Args:
        keep: document to keep: the "first", or a "random" one that does not depend on the order of documents.
        seed: seed of the choice "random".
        against: indexes of earlier datasets, or runs that saved one; documents with a text found there are removed by
            the rule ``seen_before``.
        index: with "save", a run writes an index of the documents that it finally kept.
        text: "raw" compares texts byte by byte, "normalised" compares their normal forms, and "without-space" compares
            them without white space, as FinePDFs does.
        column: the column of texts to compare. Removals by a column other than ``text`` have the rule ``same_COLUMN``,
            and documents without a value in it are kept.

    >>> import pyarrow as pa
    >>> table = pa.table({"id": ["a", "b"], "text": ["To be, or not to be?", "to be -- or not to BE"]})
    >>> stage = ExactDocuments(text="normalised")
    >>> stage.resolve(stage.sketch(table)).to_pylist()[0]["kept_id"]
    'a'
    """

    text: Literal["raw", "normalised", "without-space"] = "raw"
    column: str = "text"

    copies_share = "text"
    code_version: ClassVar[str] = "2"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("column",)

    @property
    def same(self) -> str:  # type: ignore[override]  # a constant in the other stages
        """Rule of the removed documents."""
        return f"same_{self.column}"

    def prepare(self) -> None:
        """Open the indexes and compile the kernels."""
        super().prepare()
        self.sketch(pa.table({"id": ["a"], self.column: ["a text"]}))

    def hashes(self, table: pa.Table) -> pa.Array:
        """Hash the column: BLAKE2b, 128 bits."""
        texts = valid_texts(column(table, self.column, self.name), self.name, self.column)
        if self.text == "normalised":
            texts = normalize(texts)
        elif self.text == "without-space":
            texts = pa.array(["".join((text.as_py() or "").split()) for text in texts], pa.large_string())
        if self.column == "text":
            texts = pc.fill_null(texts, "")
        data = pc.cast(texts, pa.large_binary())
        found = [hashlib.blake2b(one.as_buffer(), digest_size=16).digest() if one.is_valid else None for one in data]
        return pa.array(found, pa.binary(16))

    def hashed(self) -> dict[str, Any]:
        """Return the settings that the hashes depend on."""
        other = {} if self.column == "text" else {"column": self.column}
        return {"text": self.text, **other, "code_version": self.code_version}


def normalise_url(url: str, query: Query = "drop-tracking") -> str:
    """Return the normal form in which URLs are compared.

    It is empty or begins with a slash if the URL has no host.

    * The scheme, user names, ``www.``, a default port, the fragment, dot segments (``/a/../``) and slashes at the end
      of the path are removed.
    * The host is spelled as in browsers: in lower case and Punycode (UTS 46), without a dot at its end, ``0x7f.1`` as
      ``127.0.0.1``, an IPv6 address compressed and in brackets.
    * Escapes of letters, digits, ``-``, ``.``, ``_`` and ``~`` are decoded. Other escapes are upper case, and
      characters that need an escape get one (RFC 3986, section 6.2.2): ``a%2Fb`` is not ``a/b``.
    * Session ids in the path are removed: ``;jsessionid=…``.
    * With "drop-tracking", query parameters named in ``TRACKING_PARAMETERS`` are removed, and ``sid`` with 16 or more
      letters and digits. "none" keeps no parameters, "all" keeps all of them. Kept parameters are sorted.

    A URL that cannot be parsed keeps its host unchanged.

    >>> normalise_url("HTTPS://www.Example.org:443/a%2Db/;jsessionid=1F?b=2&utm_source=x&a=1#top")
    'example.org/a-b?a=1&b=2'
    """
    stripped = url.strip()
    if "\\" in stripped:
        stripped = _with_slashes(stripped)
    try:
        split = urlsplit(_checked(stripped if _SCHEME.match(stripped) else f"//{stripped}"))
        spelled = split.netloc.rpartition("@")[2]  # ``hostname`` of urlsplit would turn a final Σ into ς
        spelled = spelled[1:].partition("]")[0] if spelled.startswith("[") else spelled.partition(":")[0]
        host, port = spell_host(spelled), split.port
    except ValueError:
        before, _, asked = stripped.partition("#")[0].partition("?")
        return _spell(before).rstrip("/") + _query(asked, query)
    host = "" if host == "www" else host.removeprefix("www.")
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != _PORTS.get(split.scheme, 80):
        host = f"{host}:{port}"
    path = without_dot_segments(_spell(_SESSION_IN_PATH.sub("", split.path)))
    return host + path.rstrip("/") + _query(split.query, query)


def _checked(url: str) -> str:
    """Raise ValueError for a host that is not ASCII and too long: parsing time grows with the square of the length."""
    authority = _AUTHORITY_END.split(url.partition("//")[2], 1)[0]
    if len(authority) > MOST_AUTHORITY and not authority.isascii():
        raise ValueError("no host is that long")
    return url


def _with_slashes(url: str) -> str:
    before, mark, after = url.partition("?") if "?" in url.partition("#")[0] else url.partition("#")
    return before.replace("\\", "/") + mark + after


def _spell(text: str) -> str:
    unescaped = plain_escapes(text)
    plain = unescaped.isascii() and unescaped.isalnum()
    return unescaped if plain else quote(unescaped, _ALLOWED, errors="surrogatepass")


def _query(asked: str, query: Query) -> str:
    kept = sorted(_spell(part) for part in re.split("[&;]", asked) if _stays(part, query))
    return "?" + "&".join(kept) if kept else ""


def _stays(parameter: str, query: Query) -> bool:
    if not parameter or query == "none":
        return False
    if query == "all":
        return True
    name = parameter.partition("=")[0]
    return TRACKING_PARAMETERS.fullmatch(name) is None and _SHORT_SESSION.fullmatch(parameter) is None


@stage
class Urls(EqualHashes):
    """Keep one of all documents with the same URL, as normalised by :func:`normalise_url`.

    In RefinedWeb, URLs of the documents that finally remain in earlier parts remove documents of later parts. For this,
    use ``parts`` in one run, or ``index="save"`` in each run and ``against=[earlier runs]`` in the next. A document
    without a URL, or with a URL that has no host, is kept.

    Source: RefinedWeb, section 3.3; its Table 16 shows URLs that differ only in parameters.

    Args:
        keep: document to keep: the "first", or a "random" one that does not depend on the order of documents.
        seed: seed of the choice "random".
        against: indexes of earlier datasets, or runs that saved one; documents with a URL found there are removed by
            the rule ``seen_before``.
        index: with "save", a run writes an index of the documents that it finally kept.
        query: "drop-tracking" ignores tracking parameters, "none" the whole query; "all" compares the whole query.
    """

    query: Query = "drop-tracking"

    same: ClassVar[str] = "same_url"
    copies_share = "url"
    code_version: ClassVar[str] = "3"

    def hashes(self, table: pa.Table) -> pa.Array:
        """Hash the normal form of ``url``."""
        urls = column(table, "url", self.name)
        if not (pa.types.is_string(urls.type) or pa.types.is_large_string(urls.type) or pa.types.is_null(urls.type)):
            raise StageError(f"urls needs strings in column 'url', but it holds {urls.type}")
        return pa.array([self._hash(url) for url in urls.to_pylist()], pa.binary(16))

    def hashed(self) -> dict[str, Any]:
        """Return the settings that the hashes depend on."""
        return {"query": self.query, "code_version": self.code_version}

    def _hash(self, url: str | None) -> bytes | None:
        normal = normalise_url(url or "", self.query)
        if not normal or normal.startswith(("/", "?")):
            return None
        return hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=16).digest()
