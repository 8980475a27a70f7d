"""The first filter of a crawl, by the URL of a page alone, and how many documents each domain and word drops.

The counts show where to look for false positives.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Judge, column, first_failure, stage
from longcrawl.display.table import Column, Table, Tabular
from longcrawl.errors import StageError
from longcrawl.kernels.texts import valid_texts
from longcrawl.storage.files import content_digest
from longcrawl.text.refinedweb import _url_lists as block_lists
from longcrawl.text.refinedweb._url_words import HARD, SOFT, STRICT, URL_WORDS, StrictIn, UrlWords, read_url_words
from longcrawl.text.values import tables

HITS_SCHEMA = pa.schema(
    [
        ("rule", pa.string()),
        ("matched", pa.string()),
        ("domain", pa.string()),
        ("categories", pa.list_(pa.string())),
        ("documents", pa.int64()),
        ("example", pa.string()),
    ]
)
"""As :class:`UrlMatch`, with how many documents it removed and the first URL of them."""

_BATCH = 5000
_SHOWN = 20
_TITLES = ("documents", "rule", "matched", "domain", "categories", "example")


class UrlMatch(NamedTuple):
    """One rule that a URL fails, and what of the URL fails it."""

    rule: str
    matched: str
    """The domain or the address as it is listed, or the words, joined by commas."""
    domain: str
    """Of lists of domains what is listed, of all else the URL's host without www."""
    categories: tuple[str, ...] = ()
    """In which lists of ``UrlFilter.lists`` it stands."""


@stage
class UrlFilter(Judge):
    r"""Drop documents by their URL: block lists of domains, words, and sources that are curated elsewhere.

    It looks at the column ``url`` alone and belongs before all else, extraction above all. A document leaves by the
    first of these rules:

    * ``no_host``: the URL is null, or names no host; only where ``on_no_host`` is "drop";
    * ``blocked_domain``: the host or a parent domain of it is in a ``domains`` file of ``lists``;
    * ``blocked_url``: an address of a ``urls`` file is how it begins;
    * ``strict_word``: a strict word is in a part of it once all but a-z and 0-9 is deleted:
      "foobann.edsub-wo.rdbar.com" has "bannedsubword". Parts are the host and what stands between the marks / ? & = # +
      and white space: /groups/experts has no "groupsex". What stands on both sides of a dot counts as one:
      "groups.example" has one;
    * ``hard_word``: one of its words is a hard one: "www.foo.bannedword-bar.com" has "bannedword". Words are what
      marks part, the underscore too; digits do not: "porn123" is another word;
    * ``max_soft_words``: it has more different soft words than that; the paper asks for two matches at least;
    * ``curated_source``: the host or a parent domain of it is one of ``curated_sources``.

    Words are looked for in any case and behind the scheme, in host, path and query. Escapes such as %70 are read as
    what they stand for, once, and labels in Punycode as the letters that they stand for; hard and soft words may be of
    any script. Hosts, listed or not, are compared as browsers spell them: ``faß.de`` as ``xn--fa-hia.de``, ``0x7f.1``
    as ``127.0.0.1``. Paths are compared without dot segments and needless escapes.

    A host is what stands between ``//`` and the next slash, without user and port; ``example.org/page`` has one too. A
    URL without one, such as ``urn:x`` or what is not a URL at all, is scored by its words and matches no domain. A null
    matches nothing and stays unless ``on_no_host`` is "drop".

    **Allowed domains** take precedence over listed ones that are not longer: with blogs.example listed and allowed, and
    bad.blogs.example listed, bad.blogs.example goes and the other blogs stay. Addresses of ``urls`` files are longer
    than any. :func:`longcrawl.text.url_hits` counts what to look at for them.

    **Memory and chance.** A domain is kept as a hash of 64 bits: 5 million take 44 MB. With n domains listed, one that
    is not has the hash of one that is by a chance of n / 2**64, which is 2.7e-13 for 5 million; a URL asks for two to
    four, so about one URL in 10**12 leaves wrongly. :meth:`explain` compares letters and gives no category then.

    Args:
        lists: a folder in the layout of UT1 (CATEGORY/domains and CATEGORY/urls, plain or compressed), such as
            ``longcrawl lists fetch ut1 --out ut1`` makes. Lines are domains or addresses, alone or as hosts files,
            adblock, dnsmasq, zones or a column of CSV have them; rules of adblock that are exceptions (``@@||host^``)
            count as allowed domains. None: no list; none is shipped.
        categories: which of them. The default is RedPajama-V2's choice; RefinedWeb's Table 13 is not in the text that
            we have. UT1 has ``porn`` for ``adult``, and ``agressive`` and ``violence`` for ``agressif``: where these
            are missing, the other name is enough.
        allowed_domains: domains that block lists have wrongly, with all below them.
        allow_list: a file of more of them, one per line.
        allowed_from: "lists": an allowed domain is still scored by its words, as in the paper, which took such domains
            off the list. "lists-and-words": it is not. Curated sources leave either way.
        words: shipped words by name (``refinedweb``), or a YAML file {strict: […], hard: […], soft: […]}. The shipped
            ones are the few that the paper's text names, and no filter by themselves. None: no words.
        max_soft_words: different soft words that a URL may have; None: any number.
        curated_sources: shipped ones by name, or a file of domains; None keeps them. ``refinedweb`` stands for its
            Table 14, which is not in the text that we have: the domains came by way of a reproduction and could not be
            checked. Of Wikipedia it has the English one; ``refinedweb-multilingual`` has all.
        on_no_host: what happens to a document whose URL is null or names no host.
        strict_in: "parts": strict words are looked for in each part. "url": in the whole URL, also across its parts, as
            in /x/vi/deos; so they are found where two words meet, too.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1 and G.1.

    >>> UrlFilter().explain("https://my.web-cam.example/Sex_and%20ESCORT?x")
    [UrlMatch(rule='max_soft_words', matched='escort, sex', domain='my.web-cam.example', categories=())]
    """

    code_version: ClassVar[str] = "3"

    lists: str | None = None
    categories: tuple[str, ...] = block_lists.UT1_CATEGORIES
    allowed_domains: tuple[str, ...] = ()
    allow_list: str | None = None
    allowed_from: Literal["lists", "lists-and-words"] = "lists"
    words: str | None = "refinedweb"
    max_soft_words: int | None = 1
    curated_sources: str | None = "refinedweb"
    on_no_host: Literal["keep", "drop"] = "keep"
    strict_in: StrictIn = "parts"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lists is not None and not self.categories:
            raise StageError("url_filter.categories is empty: name some of the lists, or leave url_filter.lists out")
        for domain in self.allowed_domains:
            if not domain.strip(". ") or any(mark in domain for mark in "/:# "):
                raise StageError(f"url_filter.allowed_domains has {domain!r}; give domains such as example.org")

    def files(self) -> tuple[str, ...]:
        """Name the lists and the files of words."""
        allowed = () if self.allow_list is None else (self.allow_list,)
        words = URL_WORDS.own_files(self.words)
        return (*self._categories, *allowed, *words, *block_lists.curated_files(self.curated_sources))

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return what ``lists.json`` says of lists, and the SHA-256 of lists and words of a user's own."""
        found = {}
        if self.lists is not None:
            found[self.lists] = block_lists.describe_lists(self.lists) or {"sha256": _digest(self._categories)}
        for file in URL_WORDS.own_files(self.words):
            described = block_lists.describe_lists(str(Path(file).parent)) or {}
            about = {name: described[name] for name in ("about", "licence") if name in described}
            found[file] = about | {"sha256": content_digest(file)}
        return found

    def warnings(self) -> tuple[str, ...]:
        """Report that no list was used, and how few words stood in for it."""
        if self.lists is not None:
            return ()
        words = self._words()
        by = "no words" if words is None else f"{len(words.strict) + len(words.whole):,} words ({self.words})"
        message = f"no block list was used, and {by}: pages of sites that such lists name are in the data; "
        message += "longcrawl lists fetch ut1 --out lists fetches some, --set stages.url_filter.lists=lists takes them"
        return (message,)

    def prepare(self) -> None:
        """Read lists and words, and compile the kernels.

        Raises:
            StageError: a list or a file of words is not there or cannot be read.
        """
        self.checks(pa.table({"url": pa.array([], pa.large_string())}))

    def checks(self, table: pa.Table) -> list[Check]:
        """Match the column ``url`` of every document."""
        from longcrawl.text.refinedweb import _url_kernels as kernels
        from longcrawl.text.refinedweb._url_matches import match_lists, match_url_words

        urls = self._urls(table)
        found = match_lists(urls, self._lists())
        checks = []
        if self.on_no_host == "drop":
            checks.append(_unmeasured("no_host", found[:, kernels.HOST] > 0))
        if self.lists is not None:
            checks.append(_unmeasured("blocked_domain", found[:, kernels.BLOCKED] <= found[:, kernels.ALLOWED]))
            checks.append(_unmeasured("blocked_url", found[:, kernels.URL] == 0))
        if (words := self._words()) is not None:
            counts = match_url_words(urls, words, found[:, kernels.SPELLED] > 0, self.strict_in)
            if self.allowed_from == "lists-and-words":
                counts[found[:, kernels.ALLOWED] > 0] = 0
            checks.append(_at_most("strict_word", counts[:, STRICT], 0))
            checks.append(_at_most("hard_word", counts[:, HARD], 0))
            if self.max_soft_words is not None:
                checks.append(_at_most("max_soft_words", counts[:, SOFT], self.max_soft_words))
        if self.curated_sources is not None:
            checks.append(_unmeasured("curated_source", found[:, kernels.CURATED] == 0))
        return checks

    def explain(self, url: str | None) -> list[UrlMatch]:
        """Return every rule that a URL fails and what fails it; the first is the one by which its document leaves.

        The lists are read once more for the categories, which takes a second for some million domains.

        Raises:
            StageError: a list or a file of words cannot be read.
        """
        table = pa.table({"url": pa.array([url], pa.large_string())})
        return self.with_categories(self.matches(table)[0])

    def matches(self, table: pa.Table) -> list[list[UrlMatch]]:
        """Return what :meth:`explain` gives for every row of a table, without categories."""
        from longcrawl.text.refinedweb._url_matches import name_matches

        failed = [(check.rule, check.passes.to_pylist()) for check in self.checks(table)]
        named = name_matches(self._urls(table), self._lists(), self._words(), self.strict_in)
        return [[_match(rule, each) for rule, passes in failed if not passes[row]] for row, each in enumerate(named)]

    def with_categories(self, matches: Sequence[UrlMatch]) -> list[UrlMatch]:
        """Describe in which lists the matches of ``blocked_domain`` and ``blocked_url`` stand."""
        known = {}
        for rule, kind in (("blocked_domain", "domains"), ("blocked_url", "urls")):
            names = {each.matched for each in matches if each.rule == rule}
            known[rule] = block_lists.find_categories(self._categories, names, kind)
        return [each._replace(categories=known.get(each.rule, {}).get(each.matched, ())) for each in matches]

    @cached_property
    def _categories(self) -> dict[str, str]:
        # Dozens of files are looked for: once for this stage, not for every batch.
        return {} if self.lists is None else block_lists.block_list_files(self.lists, self.categories)

    def _lists(self) -> block_lists.Lists:
        blocked = block_lists.read_block_lists(*self._categories)
        allowed = block_lists.read_domains(self.allow_list, *self.allowed_domains)
        if len(blocked.exceptions.hashes):
            allowed = block_lists.make_set([allowed.hashes, blocked.exceptions.hashes])
        return block_lists.Lists(
            blocked.domains, allowed, block_lists.read_curated_sources(self.curated_sources), blocked.addresses
        )

    def _words(self) -> UrlWords | None:
        return None if self.words is None else read_url_words(self.words)

    def _urls(self, table: pa.Table) -> pa.Array:
        return valid_texts(column(table, "url", self.name), self.name, "url")


def _digest(files: Iterable[str]) -> str:
    """Return a SHA-256 of the contents of several files."""
    return hashlib.sha256("".join(f"{content_digest(file)}\n" for file in files).encode()).hexdigest()


def _unmeasured(rule: str, passes: npt.NDArray[np.bool_]) -> Check:
    return Check(rule, pa.nulls(len(passes), pa.float64()), pa.array(passes))


def _at_most(rule: str, counts: npt.NDArray[np.int64], most: int) -> Check:
    return Check(rule, pa.array(counts), pa.array(counts <= most), most, "at_most")


def _match(rule: str, named: Mapping[str, str]) -> UrlMatch:
    matched = named.get(rule, "")
    is_domain = rule in ("blocked_domain", "curated_source")
    return UrlMatch(rule, matched, matched if is_domain else named["host"].removeprefix("www."))


@dataclass(frozen=True, repr=False)
class UrlHits(Tabular):
    """What a URL filter dropped, the most frequent first; prints as a table."""

    table: pa.Table
    """``HITS_SCHEMA``, sorted by documents; of domains and words with as few as were asked for at least."""
    documents: int
    """How many were looked at."""
    dropped: int
    """How many of them leave, those that the table leaves out among them."""

    def tables(self) -> tuple[Table]:
        """Return the ``_SHOWN`` most frequent as a table."""
        found = self.table.slice(0, _SHOWN).to_pylist()
        rows = [[", ".join(row[name]) if name == "categories" else row[name] for name in _TITLES] for row in found]
        more = self.table.num_rows - _SHOWN
        about = f"{self.dropped:,} of {self.documents:,} documents leave"
        columns = [Column(name, "count" if name == "documents" else "text") for name in _TITLES]
        return (Table(columns, rows, about, [f"and {more:,} more, in .table"] if more > 0 else []),)


def url_hits(documents: Any, stage: UrlFilter | None = None, min_documents: int = 1) -> UrlHits:
    """Count the documents that a URL filter drops by what drops them: a listed domain, an address, or words of a host.

    A document counts once, by the rule by which it leaves. RefinedWeb looked at every domain that dropped more than
    4,000 of 832 million pages (``min_documents=4001``), and took about a hundred benign ones off the list: these go
    into ``UrlFilter.allowed_domains`` or ``allow_list``.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table with a column ``url``.
        stage: the filter. None: ``documents`` is a crawl that has passed one, and what was removed there is counted.
        min_documents: leave out what drops fewer.

    Raises:
        StageError: there is no filter, or no column ``url``.

    >>> urls = ["http://a.xxx-b.example/", "http://a.xxx-b.example/2", "http://plain.example/"]
    >>> print(url_hits(pa.table({"url": urls}), UrlFilter()))
    2 of 3 documents leave
    documents  rule       matched  domain           categories  example
            2  hard_word  xxx      a.xxx-b.example              http://a.xxx-b.example/
    """
    if stage is not None:
        return count_hits(tables(documents, _BATCH), stage, min_documents)
    steps = getattr(documents, "steps", None)
    if steps is None:
        raise StageError("url_hits needs a filter for documents that are no crawl: url_hits(documents, UrlFilter(…))")
    labels = [row.stage for row in documents.funnel]
    passed = [(label, step) for label, step in zip(labels, steps, strict=True) if isinstance(step, UrlFilter)]
    if not passed:
        raise StageError("this crawl has not passed url_filter; name a filter: url_hits(crawl, UrlFilter(…))")
    label, step = passed[0]
    came = next(row.documents_in for row in documents.funnel if row.stage == label)
    found = count_hits(tables(documents.removed(label).select_columns("url"), _BATCH), step, min_documents)
    return UrlHits(found.table, came, found.dropped)


def count_hits(batches: Iterable[pa.Table], stage: UrlFilter, min_documents: int = 1) -> UrlHits:
    """Count what a filter drops of tables with a column ``url``, see :func:`url_hits`."""
    counts: Counter[UrlMatch] = Counter()
    examples: dict[UrlMatch, str | None] = {}
    documents = 0
    for batch in batches:
        table = pa.table({"url": column(batch, "url", stage.name)})
        documents += table.num_rows
        dropped = table.filter(pc.is_valid(first_failure(table.num_rows, stage.checks(table))["rule"]))
        for url, matches in zip(dropped["url"].to_pylist(), stage.matches(dropped), strict=True):
            counts[matches[0]] += 1
            examples.setdefault(matches[0], url)
    frequent = [match for match, count in counts.most_common() if count >= min_documents]
    frequent.sort(key=lambda match: (-counts[match], match))
    rows = [
        {**named._asdict(), "documents": counts[match], "example": examples[match]}
        for match, named in zip(frequent, stage.with_categories(frequent), strict=True)
    ]
    return UrlHits(pa.Table.from_pylist(rows, schema=HITS_SCHEMA), documents, counts.total())
