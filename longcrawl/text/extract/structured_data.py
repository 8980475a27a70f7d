"""Structured data of pages: texts, title, author and date in JSON-LD, microdata and meta tags.

Pages repeat their content for search engines in the vocabulary of schema.org, and some content is only there: a product
description that a script shows, or posts of a forum in ``<noscript>``. Pages are read as UTF-8 bytes, of which only the
parts that are used are decoded. Time is linear in a page's bytes: JSON-LD is read up to a size and depth, and ends of
elements are searched for up to a total distance.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Literal, NamedTuple

Kind = Literal["article", "post", "recipe", "product"]
"""Kinds of objects with texts; questions, answers and comments are posts."""

MAX_SCRIPT_BYTES = 1_000_000
"""Greatest total size of a page's JSON-LD; further scripts are not read."""
MAX_DEPTH = 100
"""Greatest depth of objects and lists in JSON-LD; deeper scripts are not read."""
MAX_ITEMS = 100_000
"""Greatest number of attributes of microdata that are read."""

_VOCABULARY = b"schema.org"
_POSTS = ("DiscussionForumPosting", "Question", "Answer", "Comment")
_ARTICLES = ("BlogPosting", "LiveBlogPosting", "SocialMediaPosting", "Report")
_PRODUCTS = ("Product", "ProductGroup")
_PROPERTIES: Mapping[Kind, tuple[tuple[str, ...], ...]] = {
    "article": (("articleBody",),),
    "post": (("text", "articleBody", "name"),),
    "recipe": (("description",), ("recipeIngredient", "ingredients"), ("recipeInstructions",)),
    "product": (("description",),),
}
"""Properties with the text of an object, by kind: the first property of each group that an object has."""
_OF_TEXTS = frozenset(name for groups in _PROPERTIES.values() for names in groups for name in names) - {"name"}
_HAS_TEXT = re.compile(f'"(?:{"|".join(sorted(_OF_TEXTS))})"')


class Passage(NamedTuple):
    """A text of the structured data."""

    kind: Kind
    text: str


class Metadata(NamedTuple):
    """Title, authors and date of publication of a page, None if unknown."""

    title: str | None = None
    author: str | None = None
    published: str | None = None


def kind_of(name: str) -> Kind | None:
    """Return the kind of a type such as ``NewsArticle`` or ``https://schema.org/Recipe``, None without texts."""
    name = re.split("[/#:]", name)[-1]
    if name in _POSTS:
        return "post"
    if name.endswith("Article") or name in _ARTICLES:
        return "article"
    return "product" if name in _PRODUCTS else "recipe" if name == "Recipe" else None


# Texts.

NEARLY_EMPTY = 500
"""Characters from which on an extracted text is complete.

On pages annotated by others, texts added to longer ones were more often summaries for search engines, other answers and
comments than content.
"""
_PRESENT = 0.3
"""Share of a passage's 4-grams of words in the text from which on it counts as present.

Lower than the 0.7 of common measures of copies, since a text that is there in other words must not come twice.
"""
_CONTAINED = 0.8
"""Share of 4-grams from which on a text is a part of an article's body."""
_LONGER = 1.5
"""Least size of a body that replaces a part of it, relative to that part."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""A word, or a letter of a script without spaces."""


def fill_in(text: str, page: bytes) -> str:
    """Return an extracted text with the texts of the page's structured data if it is nearly empty.

    They follow the text after a blank line, unless they are shorter than the text or are in it. If the text is a part
    of an article's body, the body takes the place of the lines that it contains.
    """
    if len(text) >= NEARLY_EMPTY or _VOCABULARY not in page:
        return text
    words, passages = _words(text), read_passages(page)
    for passage in passages:
        if words and passage.kind == "article" and len(passage.text) >= _LONGER * len(text):
            body = _Present(_words(passage.text))
            if body.share(words) >= _CONTAINED:
                return _with_body(text, passage.text, body)
    present, missing = _Present(words), set[Passage]()
    for passage in sorted(passages, key=lambda passage: -len(passage.text)):
        own = _words(passage.text)
        if own and present.share(own) < _PRESENT:
            present.add(own)
            missing.add(passage)
    added = [passage.text for passage in passages if passage in missing]
    return "\n\n".join(filter(None, (text, *added))) if sum(map(len, added)) >= len(text) else text


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


class _Present:
    """The n-grams of a text; those of fewer than four words are collected when they are needed."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._grams: dict[int, set[tuple[str, ...]]] = {}

    def add(self, words: Sequence[str]) -> None:
        """Add the 4-grams of another text."""
        self._of(4).update(_grams(words, 4))

    def share(self, words: Sequence[str]) -> float:
        """Return the share of the 4-grams of words that are present; fewer words are one n-gram."""
        size = min(4, len(words))
        own, grams = _grams(words, size), self._of(size)
        return sum(gram in grams for gram in own) / len(own)

    def _of(self, size: int) -> set[tuple[str, ...]]:
        if size not in self._grams:
            self._grams[size] = set(_grams(self._words, size))
        return self._grams[size]


def _grams(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(size)), strict=False))


def _with_body(text: str, body: str, present: _Present) -> str:
    """Replace the lines that a body contains by the body; it follows the text if it contains no whole line.

    Lines of fewer than four words before it, such as a title, are kept.
    """
    before, after = list[str](), list[str]()
    found = False
    for line in text.split("\n"):
        words = _words(line)
        if len(words) >= (1 if found else 4) and present.share(words) >= _CONTAINED:
            found = True
        else:
            (after if found else before).append(line)
    parts = ("\n".join(before), body, "\n".join(after))
    return "\n\n".join(filter(None, (part.strip("\n") for part in parts)))


def read_passages(page: bytes) -> list[Passage]:
    """Return the texts of a page's JSON-LD and microdata as plain text, each once, in their order."""
    passages = [
        passage
        for script in _scripts(page)
        if _HAS_TEXT.search(script)
        for node in _nodes(_parse(script))
        for passage in _passages(node)
    ]
    return list(dict.fromkeys([*passages, *_microdata(page)]))


def _passages(node: Mapping[str, Any]) -> Iterator[Passage]:
    if (kind := _node_kind(node)) is None:
        return
    values = [next((node[name] for name in names if node.get(name)), None) for names in _PROPERTIES[kind]]
    if text := "\n".join(filter(None, map(_value_text, values))):
        yield Passage(kind, text)


def _value_text(value: Any) -> str:
    """Return the text of a string, a list, or steps of instructions, a line for each."""
    lines, stack = list[str](), [value]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            lines.append(plain_text(value))
        elif isinstance(value, list):
            stack += reversed(value)
        elif isinstance(value, dict):
            stack += [value[name] for name in ("itemListElement", "text", "@value") if name in value][:1]
    return "\n".join(filter(None, lines))


_BREAK = re.compile(r"</?(?:br|p|div|li|ul|ol|h[1-6]|tr|table|blockquote|pre|section)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--[^<>]*-->")
_UNSEEN = re.compile(r"<(?=(?:script|style)\b)", re.IGNORECASE)
_UNSEEN_END = re.compile(r"</(?:script|style)\s*>", re.IGNORECASE)


def plain_text(value: str) -> str:
    """Return a value without tags, with references decoded and one blank between words.

    Escaped markup is read as markup if there is no other.

    >>> plain_text("&lt;p&gt;Salt &amp;amp; pepper&lt;/p&gt;")
    'Salt & pepper'
    """
    if "&" in value and not _TAG.search(value):
        value = _unescape(value)
    if "<" in value:
        first, *others = _UNSEEN.split(value)
        value = first + "".join(_UNSEEN_END.split(each, maxsplit=1)[-1] for each in others)
        value = _TAG.sub("", _BREAK.sub("\n", value))
    if "&" in value:
        value = _unescape(value)
    # JSON may have single surrogates, which UTF-8 cannot.
    value = value if value.isascii() else value.encode(errors="replace").decode()
    return "\n".join(filter(None, (" ".join(line.split()) for line in value.splitlines())))


def _unescape(value: str) -> str:
    """Decode character references, none if one has more digits than Python converts."""
    try:
        return html.unescape(value)
    except ValueError:
        return value


# JSON-LD.

_SCRIPT_END = re.compile(rb"</script", re.IGNORECASE)
_WRAPPERS = (("<!--", "-->"), ("//<![CDATA[", "//]]>"), ("<![CDATA[", "]]>"))
_LONGEST_TAG = 2_000


def _scripts(page: bytes) -> Iterator[str]:
    """Yield the contents of a page's scripts of JSON-LD, up to a total size."""
    left, at = MAX_SCRIPT_BYTES, page.find(b"ld+json")
    while at >= 0:
        tag, start = page.rfind(b"<", max(0, at - _LONGEST_TAG), at), page.find(b">", at, at + _LONGEST_TAG) + 1
        at += 7
        if tag >= 0 and start and page[tag + 1 : tag + 7].lower() == b"script":
            end = _SCRIPT_END.search(page, start)
            if end is None or end.start() - start > left:
                return
            at = end.end()
            left -= end.start() - start
            yield page[start : end.start()].decode(errors="replace")
        at = page.find(b"ld+json", at)


def _parse(script: str) -> Any:
    """Return the value of a script, None if it is broken or too deep."""
    script = script.strip()
    for begin, end in _WRAPPERS:
        script = script.removeprefix(begin).removesuffix(end).strip()
    if _is_deep(script):
        return None
    try:
        return json.loads(script.removesuffix(";"), strict=False)
    except ValueError:
        return None


def _is_deep(script: str) -> bool:
    """Return whether a script is deeper than ``MAX_DEPTH``; brackets in strings count like others."""
    if script.count("[") + script.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", script):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects in a value of JSON, outer ones before those inside them."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack += [each for each in reversed(value.values()) if isinstance(each, dict | list)]
        elif isinstance(value, list):
            stack += reversed(value)


def _types(node: Mapping[str, Any]) -> list[str]:
    named = node.get("@type")
    return [each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)]


def _node_kind(node: Mapping[str, Any]) -> Kind | None:
    return next(filter(None, map(kind_of, _types(node))), None)


# Microdata.

_HAS_TYPE = re.compile(
    rb"schema\.org/(?:Product|Recipe|Question|Answer|Comment|DiscussionForumPosting|\w*Article|Report|\w*Posting)\b"
)
_ITEM = re.compile(rb"item(?:scope|prop)")
_HAS_SCOPE = re.compile(r"\sitemscope\b", re.IGNORECASE)
_ITEM_TYPE = re.compile(r"""\sitemtype\s*=\s*["']?\s*([^\s"'>]+)""", re.IGNORECASE)
_ITEM_PROPERTIES = re.compile(r"""\sitemprop\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_CONTENT = re.compile(r"""\scontent\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_NAMES = (
    "div span p article section main body td tr tbody table li ul ol dl dd a b em strong h1 h2 h3 h4 blockquote pre "
    "noscript"
)
_SAME = {name: re.compile(rf"<(/?){name}(?=[\s>/])".encode(), re.IGNORECASE) for name in _NAMES.split()}
"""Start and end tags of the elements that contain items."""


class _Item(NamedTuple):
    """A tag with ``itemscope`` or ``itemprop``."""

    start: int
    stop: int
    tag: str


def _items(page: bytes) -> Iterator[_Item]:
    before = -1
    for found in islice(_ITEM.finditer(page), MAX_ITEMS):
        at = found.start()
        if at < before:
            continue
        start, stop = page.rfind(b"<", max(0, at - _LONGEST_TAG), at), page.find(b">", at, at + _LONGEST_TAG) + 1
        if start >= before and stop:
            before = stop
            yield _Item(start, stop, page[start:stop].decode(errors="replace"))


class _Ends:
    """Finds the ends of elements by counting tags of the same name, up to a total distance."""

    def __init__(self, page: bytes) -> None:
        self._page = page
        self._left = 4 * len(page)
        self._known: dict[int, int] = {}

    def of(self, item: _Item) -> int:
        """Return the end of an element's content, which is empty if the element has no end tag or an unknown name."""
        if item.start not in self._known:
            self._known[item.start] = self._find(item)
        return self._known[item.start]

    def _find(self, item: _Item) -> int:
        same = _SAME.get(re.split(r"[\s/>]", item.tag[1:], maxsplit=1)[0].lower())
        if same is None:
            return item.stop
        depth, limit = 1, item.stop + self._left
        for tag in same.finditer(self._page, item.stop, limit):
            depth += -1 if tag[1] else 1
            if depth == 0:
                self._left -= tag.start() - item.stop
                return tag.start()
        self._left -= max(0, min(limit, len(self._page)) - item.stop)
        return item.stop


def _microdata(page: bytes) -> Iterator[Passage]:
    """Yield the texts of a page's microdata."""
    if not _HAS_TYPE.search(page):
        return
    scopes, ends, read_to = list[tuple[_Item, Kind | None]](), _Ends(page), 0
    for item in _items(page):
        kind = None
        named = _ITEM_PROPERTIES.search(item.tag)
        names = _OF_TEXTS.intersection("".join(named.groups("")).split()) if named else ()
        if names and item.start >= read_to:
            while scopes and ends.of(scopes[-1][0]) <= item.start:
                scopes.pop()
            kind = scopes[-1][1] if scopes else None
        if _HAS_SCOPE.search(item.tag):
            typed = _ITEM_TYPE.search(item.tag)
            scopes.append((item, kind_of(typed[1]) if typed else None))
        if kind and any(name in known for name in names for known in _PROPERTIES[kind]):
            if content := _CONTENT.search(item.tag):
                text = plain_text(_unescape(content[1] or content[2] or ""))
            else:
                read_to = ends.of(item)
                text = plain_text(page[item.stop : read_to].decode(errors="replace"))
            if text:
                yield Passage(kind, text)


# Metadata.

_HEAD_BYTES = 300_000
"""Bytes of a page in which meta tags and the title are looked for."""
_META = re.compile(rb"<meta\s([^<>]{1,4000})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""(?<![\w:.-])([\w:.-]++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_TITLE = re.compile(rb"<title(?:\s[^<>]*)?>([^<]*)", re.IGNORECASE)
_TIME = re.compile(rb"""<time\s(?:[^<>]*?\s)?datetime\s*=\s*["']?([^"'<>]{1,40})""", re.IGNORECASE)
_META_NAMES = {
    "title": ("og:title", "twitter:title", "dc.title"),
    "author": ("author", "article:author", "dc.creator"),
    "published": ("article:published_time", "datepublished", "date", "dc.date", "dc.date.issued"),
}
"""Names of meta tags by column, in order of precedence."""
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)
_MAIN: tuple[Kind, ...] = ("article", "post", "recipe", "product")


def read_metadata(page: bytes) -> Metadata:
    """Return the title, the authors and the date of publication of a page.

    JSON-LD precedes meta tags, and these the elements ``title`` and ``time``. JSON-LD counts if it describes one
    article, post, recipe or product; several are a list. Names of authors are separated by commas; addresses are not
    names. A date is one or a date and time of ISO 8601, as given; other forms are ignored.
    """
    described, meta = _described(page), _meta_tags(page)
    title = _TITLE.search(page, 0, _HEAD_BYTES)
    time = _TIME.search(page)
    titles = [described.title, *(meta.get(name) for name in _META_NAMES["title"]), title and _decode(title[1])]
    authors = [described.author, *(meta.get(name) for name in _META_NAMES["author"])]
    dates = [described.published, *(meta.get(name) for name in _META_NAMES["published"]), time and _decode(time[1])]
    return Metadata(
        next(filter(None, map(_line, titles)), None),
        next((name for name in map(_line, authors) if name and "://" not in name), None),
        next(filter(None, map(_iso_date, dates)), None),
    )


def _decode(value: bytes) -> str:
    return _unescape(value.decode(errors="replace"))


def _line(value: str | None) -> str:
    return " ".join(plain_text(value).split()) if value else ""


def _iso_date(value: str | None) -> str | None:
    """Return a date, or a date and time with a T between them, None if it is not valid."""
    value = (value or "").strip()
    if not _ISO_DATE.fullmatch(value):
        return None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return None
    return value.replace(" ", "T")


def _meta_tags(page: bytes) -> dict[str, str]:
    """Return the contents of meta tags by lower-case name; the first of a name counts."""
    found: dict[str, str] = {}
    for tag in _META.finditer(page, 0, _HEAD_BYTES):
        attributes = {
            name.lower(): double or single or bare
            for name, double, single, bare in _ATTRIBUTE.findall(tag[1].decode(errors="replace"))
        }
        content = attributes.get("content")
        for name in ("name", "property", "itemprop"):
            if content and name in attributes:
                found.setdefault(attributes[name].lower(), _unescape(content))
    return found


def _described(page: bytes) -> Metadata:
    """Return the metadata of the only article, post, recipe or product in JSON-LD."""
    nodes = [node for script in _scripts(page) for node in _nodes(_parse(script))]
    for kind in _MAIN:
        of_kind = [node for node in nodes if _node_kind(node) == kind and not {"Answer", "Comment"} & {*_types(node)}]
        titles = {title for node in of_kind if isinstance(title := node.get("headline") or node.get("name"), str)}
        if len(titles) == 1:
            names = {node["@id"]: node.get("name") for node in nodes if isinstance(node.get("@id"), str)}
            authors = (", ".join(_names(node.get("author"), names)) for node in of_kind)
            dates = (date for node in of_kind if isinstance(date := node.get("datePublished"), str))
            return Metadata(titles.pop(), next(filter(None, authors), None), next(dates, None))
    return Metadata()


def _names(value: Any, names: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of authors: texts, objects with a name, or references to such objects."""
    found = list[str]()
    for each in value if isinstance(value, list) else [value]:
        name = each
        if isinstance(each, dict):
            reference = each.get("@id")
            name = each.get("name") or (names.get(reference) if isinstance(reference, str) else None)
        if isinstance(name, str) and (name := _line(name)) and "://" not in name:
            found.append(name)
    return dict.fromkeys(found)
