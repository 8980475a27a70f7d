"""URL filter of RefinedWeb: block lists, scored words, and counts of the documents that each entry removes.

The counts show where false positives are likely. Strict words are searched for as parts of a URL after its marks are
deleted; hard and soft words are compared as whole words.
"""

import hashlib
import re
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.addresses import plain_escapes, spell_host, without_dot_segments
from longcrawl.core.display import Column, Table, Tabular
from longcrawl.core.stages import Check, Judge, column, first_failure, stage
from longcrawl.errors import StageError
from longcrawl.io.files import content_digest, reread_when_changed
from longcrawl.kernels.code_points import CODE_POINTS, cached_arrays
from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.lookup import Vocabulary, find_word, make_vocabulary
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.text.presets import Presets
from longcrawl.text.refinedweb import url_lists
from longcrawl.text.refinedweb.url_lists import Lists, find_authority, make_set, next_byte
from longcrawl.text.values import tables

STRICT, HARD, SOFT = range(3)  # the kinds of words, in the order in which they are counted
_LISTS = ("strict", "hard", "soft")
_FORM = "it should be YAML like {strict: [xvideos], hard: [porn], soft: [sex, webcam]}"
URL_WORDS = Presets("longcrawl.text.presets.urls", "words for URLs", _FORM)
BREAK = 1  # value in ``load_folded`` for characters that separate the parts of a URL: marks and white space
_BETWEEN_PARTS = frozenset("/\\?&=#+")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


StrictIn = Literal["parts", "url"]  # scope of strict words: each part of a URL, or the whole URL across parts


class Automaton(NamedTuple):
    """Aho-Corasick automaton of words of a-z and 0-9; state 0 is the beginning."""

    steps: npt.NDArray[np.int32]  # shape (states, 36): the next state for each digit and letter
    words: npt.NDArray[np.int32]  # shape (states,): the number of the word that a state spells, or -1
    shorter: npt.NDArray[np.int32]  # shape (states,): the state of the longest shorter word that ends here, or 0


class WordLists(NamedTuple):
    """Words of the three lists in the form that kernels search."""

    automaton: Automaton  # the strict words, which are also found inside other words
    vocabulary: Vocabulary  # the hard and the soft words
    kinds: npt.NDArray[np.int64]  # shape (words of the vocabulary,): ``HARD`` or ``SOFT``


class UrlWords(NamedTuple):
    """Words of the three lists, ordered by their numbers in the kernels."""

    strict: tuple[str, ...]
    whole: tuple[str, ...]
    lists: WordLists


@reread_when_changed(8)
def read_url_words(name: str) -> UrlWords:
    """Read shipped words by name, or a YAML file by path; StageError for another form, or words that never match."""
    lists = _read(name)
    strict = sorted({_part(word, name) for word in lists["strict"]})
    hard = {_word(word, "hard", name) for word in lists["hard"]}
    soft = {_word(word, "soft", name) for word in lists["soft"]}
    if hard & soft:
        raise StageError(f"{name} has {min(hard & soft)!r} among the hard and the soft words; keep it in one list")
    whole = sorted(hard | soft)
    kinds = np.array([HARD if word in hard else SOFT for word in whole], np.int64)
    vocabulary = make_vocabulary((0, word) for word in whole)
    return UrlWords(tuple(strict), tuple(whole), WordLists(_make_automaton(strict), vocabulary, kinds))


@lru_cache(maxsize=2)
def load_folded(strict_in: StrictIn = "parts") -> npt.NDArray[np.uint32]:
    """Return the lower case of every code point that a word may have: letters, digits and marks.

    Other code points are 0, or ``BREAK`` if strict words may not span them: between parts of a URL, unless
    ``strict_in`` is "url".
    """
    folded = cached_arrays(
        "url-2", lambda: {"folded": np.array([_folded(chr(point)) for point in range(CODE_POINTS)], np.uint32)}
    )["folded"]
    return folded if strict_in == "parts" else np.where(folded == BREAK, 0, folded).astype(np.uint32)


def _folded(character: str) -> int:
    if not character.isalnum() and unicodedata.category(character)[0] != "M":
        return BREAK if character in _BETWEEN_PARTS or character.isspace() else 0
    # Only the capital dotted I becomes two characters: the i and a mark.
    return ord(character.lower()[0])


def _read(name: str) -> dict[str, list[str]]:
    found = URL_WORDS.read(name)
    if not isinstance(found, dict) or not found:
        raise StageError(f"{name} holds no words; {_FORM}")
    for kind, words in found.items():
        if kind not in _LISTS:
            raise StageError(f"{name} has the list {kind!r}; known: {', '.join(_LISTS)}")
        for word in words if isinstance(words, list) else [words]:
            if not isinstance(word, str) or not isinstance(words, list):
                raise StageError(f"{name} has {word!r} among the {kind} words, which is not a list of texts; {_FORM}")
    return {kind: found.get(kind, []) for kind in _LISTS}


def _part(word: str, name: str) -> str:
    part = re.sub(r"[\s._-]", "", word.lower())
    if not re.fullmatch("[a-z0-9]{3,}", part):
        raise StageError(
            f"{name} has the strict word {word!r}: strict words consist of at least three of a-z and 0-9; move it to "
            "the hard words"
        )
    return part


def _word(word: str, kind: str, name: str) -> str:
    folded = load_folded()
    spelled = "".join(chr(folded[ord(letter)]) for letter in word.strip())
    if not spelled or min(spelled) <= chr(BREAK):
        raise StageError(
            f"{name} has the {kind} word {word!r}, which is not a single word of letters and digits; "
            "a URL's words never have marks or spaces inside"
        )
    return spelled


def _make_automaton(words: list[str]) -> Automaton:
    steps: list[list[int]] = [[0] * len(_ALPHABET)]
    spelled = [-1]
    for number, word in enumerate(words):
        state = 0
        for letter in word:
            place = _ALPHABET.index(letter)
            if not steps[state][place]:
                steps[state][place] = len(steps)
                steps.append([0] * len(_ALPHABET))
                spelled.append(-1)
            state = steps[state][place]
        spelled[state] = number
    shorter = _complete(steps, spelled)
    return Automaton(np.array(steps, np.int32), np.array(spelled, np.int32), np.array(shorter, np.int32))


def _complete(steps: list[list[int]], spelled: list[int]) -> list[int]:
    """Point every missing step to the state of the longest suffix of the input; return the shorter words."""
    fallback, shorter = [0] * len(steps), [0] * len(steps)
    waiting = deque(state for state in steps[0] if state)
    while waiting:
        state = waiting.popleft()
        back = fallback[state]
        shorter[state] = back if spelled[back] >= 0 else shorter[back]
        for place, child in enumerate(steps[state]):
            if child:
                fallback[child] = steps[back][place]
                waiting.append(child)
            else:
                steps[state][place] = steps[back][place]
    return shorter


_PATH = re.compile(r"([^/?#]*)([^?#]*)")
_BEYOND_ASCII = re.compile("(?:%[89a-fA-F][0-9a-fA-F])+")
Bytes = npt.NDArray[np.uint8]

_NOUGHT, _LOWER_A, _PERCENT, _BEYOND = ord("0"), ord("a"), ord("%"), 128


@compiled
def _next_point(data: Bytes, at: int, stop: int) -> Any:
    """Read a character, escaped or not; return its code point, 0 if it is not UTF-8, and the start of the next one."""
    first, at = next_byte(data, at, stop)
    if first < _BEYOND:
        return first, at
    more = 1 if first >> 5 == 6 else 2 if first >> 4 == 14 else 3 if first >> 3 == 30 else 0
    point, place = first & (0x3F >> more), at
    for _ in range(more):
        if place >= stop:
            return 0, at
        byte, place = next_byte(data, place, stop)
        if byte >> 6 != 2:
            return 0, at
        point = point << 6 | (byte & 0x3F)
    # An overlong form, such as C1 B0 for p, is not UTF-8.
    least = 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
    return (point, place) if more and least <= point < 0x110000 else (0, at)


@compiled
def _read_points(data: Bytes, start: int, stop: int, folded: Any, points: Any) -> int:
    count, at = 0, start
    while at < stop:
        byte = data[at]
        if byte < _BEYOND and byte != _PERCENT:
            points[count] = folded[byte]
            at += 1
        else:
            point, at = _next_point(data, at, stop)
            points[count] = folded[point]
        count += 1
    return count


@forced_inline
def _symbol(point: int) -> int:
    if point >= _BEYOND or point <= BREAK:
        return -1
    return point - _LOWER_A + 10 if point >= _LOWER_A else point - _NOUGHT


@compiled
def _find_parts(points: Any, count: int, strict: Automaton, seen: Any) -> int:
    state, found = 0, 0
    for at in range(count):
        if points[at] == BREAK:
            state = 0
        symbol = _symbol(np.int64(points[at]))
        if symbol < 0:
            continue
        state = strict.steps[state, symbol]
        ending = state
        while ending != 0:
            word = strict.words[ending]
            if word >= 0 and not seen[word]:
                seen[word] = True
                found += 1
            ending = strict.shorter[ending]
    return found


@compiled
def _find_words(points: Any, count: int, whole: Vocabulary, kinds: Any, seen: Any, counts: Any) -> None:
    at = 0
    while at < count:
        start = at
        while at < count and points[at] > BREAK:
            at += 1
        if at > start:
            word = find_word(whole, 0, points, start, at)
            if word >= 0 and not seen[word]:
                seen[word] = True
                counts[kinds[word]] += 1
        at += 1


@compiled
def _match_words(
    data: Bytes, offsets: Any, folded: Any, lists: WordLists, points: Any, parts: Any, words: Any, counts: Any
) -> None:
    """Count the distinct words of every URL in ``counts``, zeros of (URLs, 3): STRICT, HARD and SOFT.

    ``parts``, bool (URLs or 1, strict words), and ``words``, the same for hard and soft words, get which words were
    found; with one row, those of the last URL.
    """
    strict, whole, kinds = lists.automaton, lists.vocabulary, lists.kinds
    for row in range(len(offsets) - 1):
        _, _, _, first, stop = find_authority(data, offsets[row], offsets[row + 1])
        count = _read_points(data, first, stop, folded, points)
        line = min(row, len(parts) - 1)
        parts[line, :] = False
        words[line, :] = False
        counts[row, STRICT] = _find_parts(points, count, strict, parts[line])
        _find_words(points, count, whole, kinds, words[line], counts[row])


def match_lists(urls: pa.Array, lists: Lists) -> npt.NDArray[np.int32]:
    """Look up large strings in all lists: int32, (URLs, ``COLUMNS`` of the kernels); a null is an empty URL."""
    found = _match_lists(urls, lists)
    rows = np.flatnonzero(found[:, url_lists.SPELLED])
    if len(rows):
        found[rows] = _match_lists(_respelled(urls.take(pa.array(rows)), spell_host), lists)
        found[rows, url_lists.SPELLED] = 1
    return found


def _match_lists(urls: pa.Array, lists: Lists) -> npt.NDArray[np.int32]:
    data, offsets = text_buffers(urls)
    found = np.zeros((len(urls), url_lists.COLUMNS), np.int32)
    url_lists.match_lists(data, offsets, lists, np.empty(_longest(offsets), np.uint8), found)
    return found


def url_hosts(urls: pa.Array) -> pa.Array:
    """Return the host of each URL as large strings: in lower case and Punycode, empty if it has none."""
    nothing = make_set([])
    respell = match_lists(urls, Lists(nothing, nothing, nothing, nothing))[:, url_lists.SPELLED] > 0
    data, offsets = text_buffers(_spelled(urls, respell, spell_host))
    out, ends = np.empty(int(offsets[-1] - offsets[0]), np.uint8), np.empty(len(offsets), np.int64)
    url_lists.write_hosts(data, offsets, out, ends)
    # Escapes may have been of any bytes.
    names = [out[start:stop].tobytes().decode("utf-8", "replace") for start, stop in pairwise(ends.tolist())]
    return pa.array(names, pa.large_string())


def name_matches(
    urls: pa.Array, lists: Lists, words: UrlWords | None, strict_in: StrictIn = "parts"
) -> list[dict[str, str]]:
    """Return the ``host`` of each URL, and by rule everything listed in it: empty for none, words joined by commas."""
    found, hosts = match_lists(urls, lists), url_hosts(urls).to_pylist()
    respell = found[:, url_lists.SPELLED] > 0
    spelled = _spelled(urls, respell, spell_host).to_pylist()
    named = [
        {
            "host": host,
            "blocked_domain": _parent(host, found[row, url_lists.BLOCKED]),
            "blocked_url": _address(spelled[row] or "", host, found[row, url_lists.URL]),
            "curated_source": _parent(host, found[row, url_lists.CURATED]),
        }
        for row, host in enumerate(hosts)
    ]
    if words is None:
        return named
    _, parts, whole = match_words(urls, words, respell, len(urls), strict_in)
    for row, names in enumerate(named):
        names["strict_word"] = ", ".join(words.strict[at] for at in np.flatnonzero(parts[row]))
        for rule, kind in (("hard_word", HARD), ("max_soft_words", SOFT)):
            seen = np.flatnonzero(whole[row] & (words.lists.kinds == kind))
            names[rule] = ", ".join(words.whole[at] for at in seen)
    return named


def _spelled(urls: pa.Array, chosen: npt.NDArray[np.bool_], spell: Callable[[str], str]) -> pa.Array:
    mask = pa.array(chosen)
    return pc.replace_with_mask(urls, mask, _respelled(urls.filter(mask), spell)) if chosen.any() else urls


def _respelled(urls: pa.Array, spell: Callable[[str], str]) -> pa.Array:
    data, offsets = text_buffers(urls)
    made = []
    for begin, end in pairwise(offsets.tolist()):
        start, stop, *_ = url_lists.find_authority(data, begin, end)
        before, host, after = (
            data[first:last].tobytes().decode() for first, last in ((begin, start), (start, stop), (stop, end))
        )
        spelled = spell(host)
        # Without //, only the dot makes "8a." a host.
        dot = "." if host.endswith(".") and "." not in spelled else ""
        made.append(before + spelled + dot + (_without_dots(after) if spell is spell_host else after))
    return pa.array(made, pa.large_string())


def _without_dots(after: str) -> str:
    """Return the rest of a URL after its host, without the dot segments of its path; it may begin with a port."""
    return _PATH.sub(lambda path: path[1] + without_dot_segments(path[2]), after, count=1)


def _unicode_host(host: str) -> str:
    unescaped = _BEYOND_ASCII.sub(lambda escapes: unquote(escapes[0]), host)
    return ".".join(_unicode_label(label) for label in unescaped.split("."))


def _unicode_label(label: str) -> str:
    if not label.lower().startswith("xn--"):
        return label
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        decoded.encode()
    except UnicodeError:
        return label
    return decoded


def match_words(
    urls: pa.Array, words: UrlWords, respell: npt.NDArray[np.bool_], rows: int, strict_in: StrictIn = "parts"
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Count the distinct words of large strings, int64 (URLs, 3), and mark those found in the last ``rows`` URLs."""
    data, offsets = text_buffers(_spelled(urls, respell, _unicode_host))
    counts = np.zeros((len(urls), 3), np.int64)
    parts, whole = np.zeros((rows, len(words.strict)), np.bool_), np.zeros((rows, len(words.whole)), np.bool_)
    points = np.empty(_longest(offsets), np.uint32)
    _match_words(data, offsets, load_folded(strict_in), words.lists, points, parts, whole, counts)
    return counts, parts, whole


def _longest(offsets: npt.NDArray[np.int64]) -> int:
    return int(np.diff(offsets).max(initial=0)) + 1


def _parent(host: str, length: int) -> str:
    if not length:
        return ""
    name = host[-length:]
    return name if "." in name or name == host else f".{name}"


def _address(url: str, host: str, length: int) -> str:
    if not length:
        return ""
    data = np.frombuffer(url.encode(), np.uint8)
    _, _, after, _, stop = url_lists.find_authority(data, 0, len(data))
    # bytes.lower() only changes ASCII, as the kernels do.
    listed = (host.removeprefix("www.").encode() + data[after:stop].tobytes().lower())[:length]
    return plain_escapes(listed.decode("utf-8", "surrogateescape"))


_TEXTS = [(name, pa.string()) for name in ("rule", "matched", "domain")]
HITS_SCHEMA = pa.schema(
    [*_TEXTS, ("categories", pa.list_(pa.string())), ("documents", pa.int64()), ("example", pa.string())]
)
"""Schema of :class:`UrlMatch` with the number of documents removed and the first URL among them."""

_BATCH = 5000
_SHOWN = 20
_TITLES = ("documents", "rule", "matched", "domain", "categories", "example")


class UrlMatch(NamedTuple):
    """A rule that a URL fails, and the part of the URL that fails it."""

    rule: str
    matched: str  # the domain or address as listed, or the words, joined by commas
    domain: str  # the listed domain or, for rules other than domains, the URL's host without www
    categories: tuple[str, ...] = ()  # categories of ``UrlFilter.lists`` that contain it


@stage
class UrlFilter(Judge):
    """Remove documents by their URL: block lists of domains, words, and sources that are curated elsewhere.

    The stage reads only the column ``url``. Put it before all others, in particular before extraction. A document is
    removed by the first of these rules that applies:

    * ``no_host``: the URL is null or has no host; only if ``on_no_host`` is "drop";
    * ``blocked_domain``: the host or a parent domain is in a ``domains`` file of ``lists``;
    * ``blocked_url``: the URL begins with an address in a ``urls`` file;
    * ``strict_word``: a part of the URL contains a strict word after everything but a-z and 0-9 is deleted:
      "foobann.edsub-wo.rdbar.com" contains "bannedsubword". The marks / ? & = # + and white space separate parts, dots
      do not: "groups.example" contains "groupsex", /groups/experts does not;
    * ``hard_word``: one of its words is a hard one: "www.foo.bannedword-bar.com" has "bannedword". Words are separated
      by marks, including the underscore, but not by digits: "porn123" is another word;
    * ``max_soft_words``: it has more distinct soft words than this limit; the paper removes URLs with two matches or
      more;
    * ``curated_source``: the host or a parent domain is one of ``curated_sources``.

    Words are searched for regardless of case and script in host, path and query, with escapes such as %70 and Punycode
    decoded. Hosts are compared as browsers spell them: ``faß.de`` as ``xn--fa-hia.de``, ``0x7f.1`` as ``127.0.0.1``;
    paths without dot segments and needless escapes. A URL without a host, such as ``urn:x``, is scored by its words and
    matches no domain. A null matches nothing and is kept unless ``on_no_host`` is "drop".

    Allowed domains take precedence over listed ones that are not longer: with blogs.example listed and allowed, and
    bad.blogs.example listed, bad.blogs.example is removed and the other blogs are kept. Addresses of ``urls`` files
    always count as longer. :func:`longcrawl.text.url_hits` shows candidates for them.

    A domain is stored as a 64-bit hash: 5 million take 44 MB, and about one URL in 10**12 is removed wrongly.

    Args:
        lists: a folder in the layout of UT1 (CATEGORY/domains and CATEGORY/urls, plain or compressed), such as
            ``longcrawl lists fetch ut1 --out ut1`` makes. Lines are domains or addresses, alone or in the forms of
            hosts files, adblock, dnsmasq, zones or a column of CSV; exceptions in adblock rules (``@@||host^``) count
            as allowed domains. None: no list; none is shipped.
        categories: categories to use. The default is RedPajama-V2's choice; we have no copy of RefinedWeb's Table 13.
            UT1's other names for a category (``porn`` for ``adult``) also count.
        allowed_domains: domains that are on block lists by mistake, with all their subdomains.
        allow_list: a file of more allowed domains, one per line.
        allowed_from: "lists": an allowed domain is still scored by its words, as in the paper, which took such domains
            off the list. "lists-and-words": it is not scored. Curated sources are removed in both cases.
        words: shipped words by name (``refinedweb``, the few that the paper names), or a YAML file {strict: […],
            hard: […], soft: […]}. None: no words.
        max_soft_words: maximum number of distinct soft words in a kept URL; None for no bound.
        curated_sources: shipped ones by name, or a file of domains; None keeps them. ``refinedweb`` replaces the
            paper's Table 14 by the domains of a reproduction, with only the English Wikipedia;
            ``refinedweb-multilingual`` includes all.
        on_no_host: treatment of a document with a URL that is null or has no host.
        strict_in: "parts": strict words are searched for in each part. "url": in the whole URL, also across its parts,
            as in /x/vi/deos, but then also where two words meet by chance.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1 and G.1.

    >>> UrlFilter().explain("https://my.web-cam.example/Sex_and%20ESCORT?x")
    [UrlMatch(rule='max_soft_words', matched='escort, sex', domain='my.web-cam.example', categories=())]
    """

    code_version: ClassVar[str] = "3"

    lists: str | None = None
    categories: tuple[str, ...] = url_lists.UT1_CATEGORIES
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
            raise StageError("url_filter.categories is empty: list some categories, or remove url_filter.lists")
        for domain in self.allowed_domains:
            if not domain.strip(". ") or any(mark in domain for mark in "/:# "):
                raise StageError(f"url_filter.allowed_domains has {domain!r}; give domains such as example.org")

    def files(self) -> tuple[str, ...]:
        """Return the paths of the lists and of the user's own words."""
        allowed = () if self.allow_list is None else (self.allow_list,)
        words = URL_WORDS.own_files(self.words)
        return (*self._categories, *allowed, *words, *url_lists.curated_files(self.curated_sources))

    def materials(self) -> dict[str, dict[str, Any]]:
        """Return the descriptions of lists in ``lists.json``, and the SHA-256 of the user's own lists and words."""
        found = {}
        if self.lists is not None:
            found[self.lists] = url_lists.describe_lists(self.lists) or {"sha256": _digest(self._categories)}
        for file in URL_WORDS.own_files(self.words):
            described = url_lists.describe_lists(str(Path(file).parent)) or {}
            about = {name: described[name] for name in ("about", "licence") if name in described}
            found[file] = about | {"sha256": content_digest(file)}
        return found

    def warnings(self) -> tuple[str, ...]:
        """Warn if no list is used, and give the number of words used instead."""
        if self.lists is not None:
            return ()
        words = self._words()
        by = "no words" if words is None else f"{len(words.strict) + len(words.whole):,} words ({self.words})"
        message = f"no block list was used, and {by}, so the data may include pages of blocked sites: "
        message += "run `longcrawl lists fetch ut1 --out lists`, then add --set stages.url_filter.lists=lists"
        return (message,)

    def prepare(self) -> None:
        """Read lists and words, and compile the kernels; StageError for a file that cannot be read."""
        self.checks(pa.table({"url": pa.array([], pa.large_string())}))

    def checks(self, table: pa.Table) -> list[Check]:
        """Match the column ``url`` of every document."""
        urls = self._urls(table)
        found = match_lists(urls, self._lists())
        checks = []
        if self.on_no_host == "drop":
            checks.append(_unmeasured("no_host", found[:, url_lists.HOST] > 0))
        if self.lists is not None:
            checks.append(_unmeasured("blocked_domain", found[:, url_lists.BLOCKED] <= found[:, url_lists.ALLOWED]))
            checks.append(_unmeasured("blocked_url", found[:, url_lists.URL] == 0))
        if (words := self._words()) is not None:
            counts, _, _ = match_words(urls, words, found[:, url_lists.SPELLED] > 0, 1, self.strict_in)
            if self.allowed_from == "lists-and-words":
                counts[found[:, url_lists.ALLOWED] > 0] = 0
            checks.append(_at_most("strict_word", counts[:, STRICT], 0))
            checks.append(_at_most("hard_word", counts[:, HARD], 0))
            if self.max_soft_words is not None:
                checks.append(_at_most("max_soft_words", counts[:, SOFT], self.max_soft_words))
        if self.curated_sources is not None:
            checks.append(_unmeasured("curated_source", found[:, url_lists.CURATED] == 0))
        return checks

    def explain(self, url: str | None) -> list[UrlMatch]:
        """Return every rule that a URL fails and the part that fails it; the first rule removes the document.

        The lists are read again to find the categories, which takes a second for a few million domains.
        """
        table = pa.table({"url": pa.array([url], pa.large_string())})
        return self.with_categories(self.matches(table)[0])

    def matches(self, table: pa.Table) -> list[list[UrlMatch]]:
        """Return the result of :meth:`explain` for every row of a table, without categories."""
        failed = [(check.rule, check.passes.to_pylist()) for check in self.checks(table)]
        named = name_matches(self._urls(table), self._lists(), self._words(), self.strict_in)
        return [[_match(rule, each) for rule, passes in failed if not passes[row]] for row, each in enumerate(named)]

    def with_categories(self, matches: Sequence[UrlMatch]) -> list[UrlMatch]:
        """Add the categories that contain the matches of ``blocked_domain`` and ``blocked_url``."""
        known = {}
        for rule, kind in (("blocked_domain", "domains"), ("blocked_url", "urls")):
            names = {each.matched for each in matches if each.rule == rule}
            known[rule] = url_lists.find_categories(self._categories, names, kind)
        return [each._replace(categories=known.get(each.rule, {}).get(each.matched, ())) for each in matches]

    @cached_property
    def _categories(self) -> dict[str, str]:
        # Cached, since this looks for dozens of files.
        return {} if self.lists is None else url_lists.block_list_files(self.lists, self.categories)

    def _lists(self) -> url_lists.Lists:
        blocked = url_lists.read_block_lists(*self._categories)
        allowed = url_lists.read_domains(self.allow_list, *self.allowed_domains)
        if len(blocked.exceptions.hashes):
            allowed = url_lists.make_set([allowed.hashes, blocked.exceptions.hashes])
        return url_lists.Lists(
            blocked.domains, allowed, url_lists.read_curated_sources(self.curated_sources), blocked.addresses
        )

    def _words(self) -> UrlWords | None:
        return None if self.words is None else read_url_words(self.words)

    def _urls(self, table: pa.Table) -> pa.Array:
        return valid_texts(column(table, "url", self.name), self.name, "url")


def _digest(files: Iterable[str]) -> str:
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
    """Counts of a URL filter's removals, most frequent first; prints as a table."""

    table: pa.Table  # schema ``HITS_SCHEMA``, sorted by documents; without matches below ``min_documents``
    documents: int  # number of documents checked
    dropped: int  # number of documents removed, including those of matches that the table leaves out

    def tables(self) -> tuple[Table]:
        """Return the ``_SHOWN`` most frequent matches as a table."""
        found = self.table.slice(0, _SHOWN).to_pylist()
        rows = [[", ".join(row[name]) if name == "categories" else row[name] for name in _TITLES] for row in found]
        more = self.table.num_rows - _SHOWN
        about = f"{self.dropped:,} of {self.documents:,} documents removed"
        columns = [Column(name, "count" if name == "documents" else "text") for name in _TITLES]
        return (Table(columns, rows, about, [f"and {more:,} more, in .table"] if more > 0 else []),)


def url_hits(documents: Any, stage: UrlFilter | None = None, min_documents: int = 1) -> UrlHits:
    """Count the documents that a URL filter removes by cause: a listed domain, an address, or words of a host.

    A document counts once, by the rule that removes it. RefinedWeb inspected every domain that removed more than 4,000
    of 832 million pages (``min_documents=4001``), and took about a hundred benign ones off the list: these belong in
    ``UrlFilter.allowed_domains`` or ``allow_list``.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table with a column ``url``.
        stage: the filter. None counts the documents removed by the filter of the crawl ``documents``.
        min_documents: leave out causes that remove fewer documents.

    Raises:
        StageError: the filter or the column ``url`` is missing.

    >>> urls = ["http://a.xxx-b.example/", "http://a.xxx-b.example/2", "http://plain.example/"]
    >>> print(url_hits(pa.table({"url": urls}), UrlFilter()))
    2 of 3 documents removed
    documents  rule       matched  domain           categories  example
            2  hard_word  xxx      a.xxx-b.example              http://a.xxx-b.example/
    """
    if stage is not None:
        return count_hits(tables(documents, _BATCH), stage, min_documents)
    steps = getattr(documents, "steps", None)
    if steps is None:
        raise StageError(
            "url_hits needs a filter for documents that are not a crawl: url_hits(documents, UrlFilter(…))"
        )
    labels = [row.stage for row in documents.funnel]
    passed = [(label, step) for label, step in zip(labels, steps, strict=True) if isinstance(step, UrlFilter)]
    if not passed:
        raise StageError("this crawl has no stage url_filter: pass a filter, url_hits(crawl, UrlFilter(…))")
    label, step = passed[0]
    came = next(row.documents_in for row in documents.funnel if row.stage == label)
    found = count_hits(tables(documents.removed(label).select_columns("url"), _BATCH), step, min_documents)
    return UrlHits(found.table, came, found.dropped)


def count_hits(batches: Iterable[pa.Table], stage: UrlFilter, min_documents: int = 1) -> UrlHits:
    """Count the removals of a filter in tables with a column ``url``; see :func:`url_hits`."""
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
