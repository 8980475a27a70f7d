"""Structured data of pages: texts, title, author and date in JSON-LD, microdata and meta tags.

Pages repeat their content for search engines in the vocabulary of schema.org, and some content exists only there: a
product description that a script shows, or a hidden post. Time and memory are linear in a page's bytes. Only the first
texts, scripts and tags are read, up to limits.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from longcrawl.text.extract.html import BEGIN, END, load_markup, make_tree, scan

NEARLY_EMPTY = 500
"""Characters at which an extracted text counts as complete.

On pages annotated by others, texts added to longer ones were more often summaries for search engines, other answers and
comments than content.
"""
MAX_BYTES = 1_000_000
"""Maximum total size of a page's JSON-LD, and of its texts."""
MAX_DEPTH = 100
"""Maximum depth of JSON-LD and of nested items of microdata; deeper scripts and items are not read."""
MAX_ITEMS = 2_000
"""Maximum number of items of microdata, and of texts."""

_PRESENT = 0.3
"""Minimum share of a passage's 4-grams of words in the text for the passage to count as present.

This is lower than the common 0.7 for copies, since a text must not be repeated in other words.
"""
_CONTAINED = 0.8
"""Minimum share of 4-grams for a text or line to be part of a passage."""
_LONGER = 1.5
"""Minimum size of a passage that replaces a part of it, relative to that part."""

_TEXTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Article": (("articleBody",),),
    "Posting": (("articleBody", "text"),),
    "Question": (("text", "name"),),
    "Answer": (("text",),),
    "Comment": (("text",),),
    "Recipe": (("description",), ("recipeIngredient", "ingredients"), ("recipeInstructions",)),
    "Product": (("description",),),
    "ProductGroup": (("description",),),
}
"""Properties with the text of an object, by the end of its type's name: the first of each group that it has."""
_PROPERTIES = frozenset(name for groups in _TEXTS.values() for names in groups for name in names)

Node = dict[str, Any]
"""An object of JSON-LD or an item of microdata."""


class Metadata(NamedTuple):
    """Title, authors and date of publication of a page, None if unknown."""

    title: str | None = None
    author: str | None = None
    published: str | None = None


def fill_in(text: str, page: bytes) -> str:
    """Return an extracted text with the texts of the page's structured data if it is nearly empty.

    These texts are appended after a blank line, unless they are shorter than the text or already in it. They replace
    lines that they contain.
    """
    if len(text) >= NEARLY_EMPTY or b"schema.org" not in page:
        return text
    words, passages = _grams(text), read_passages(page)
    present, added, chosen = set(words), set[tuple[str, ...]](), set[str]()
    for passage in sorted(passages, key=len, reverse=True):
        own = _grams(passage)
        extends = not added and len(passage) >= _LONGER * len(text) and _share(words, own) >= _CONTAINED
        if own and (_share(own, present) < _PRESENT or extends):
            present |= own
            added |= own
            chosen.add(passage)
    if not chosen or sum(map(len, chosen)) < len(text):
        return text
    lines = text.split("\n")
    inside = [_share(_grams(line), added) >= _CONTAINED for line in lines]
    at = inside.index(True) if True in inside else len(lines)
    rest = [line for line, known in zip(lines[at:], inside[at:], strict=True) if not known]
    parts = ["\n".join(lines[:at]).strip(), *(each for each in passages if each in chosen), "\n".join(rest).strip()]
    return "\n\n".join(filter(None, parts))


_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""A word, or a letter of a script without spaces."""


def _grams(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return set(zip(*(words[start:] for start in range(4)), strict=False))


def _share(grams: set[tuple[str, ...]], others: set[tuple[str, ...]]) -> float:
    return len(grams & others) / max(len(grams), 1)


def read_passages(page: bytes) -> list[str]:
    """Return the texts of a page's JSON-LD and microdata as plain text, each once, in their order."""
    passages, left = dict[str, None](), MAX_BYTES
    nodes = [*_json_ld(page), *_microdata(page)]
    for text in islice((text for node in nodes if (text := _text_of(node))), MAX_ITEMS):
        left -= len(text)
        if left < 0:
            break
        passages[text] = None
    return list(passages)


def _text_of(node: Node) -> str:
    groups = next((_TEXTS[end] for name in _types(node) for end in _TEXTS if name.endswith(end)), ())
    values = (next((node[name] for name in names if node.get(name)), None) for names in groups)
    return "\n".join(filter(None, map(_value_text, values)))


def _types(node: Node) -> list[str]:
    """Return the types of an object or item without the address of the vocabulary."""
    named = node.get("@type")
    names = named if isinstance(named, list) else [named]
    return [re.split("[/#:]", name)[-1] for name in names if isinstance(name, str)]


def _value_text(value: Any) -> str:
    """Return the text of a string, a list, or steps of instructions, a line for each."""
    lines, stack = list[str](), [value]
    while stack and len(lines) < MAX_ITEMS:
        value = stack.pop()
        if isinstance(value, str):
            lines.append(plain_text(value))
        elif isinstance(value, list):
            stack += reversed(value)
        elif isinstance(value, dict):
            stack += [value[name] for name in ("itemListElement", "text", "@value") if name in value][:1]
    return "\n".join(filter(None, lines))


def plain_text(value: str) -> str:
    """Return the text of HTML or of text with line breaks; markup and references may be escaped once more.

    >>> plain_text("&lt;p&gt;Salt &amp;amp; pepper&lt;/p&gt;")
    'Salt & pepper'
    """
    text = _visible(value)
    return _visible(text) if "&" in value and "<" not in value else text


def _visible(value: str) -> str:
    value = value if "<" in value else value.replace("\n", "<br>")
    # JSON may have single surrogates, which UTF-8 cannot.
    data = np.frombuffer(value.encode(errors="replace"), np.uint8)
    tree = make_tree(len(data))
    _, blocks, _ = scan(data, tree, load_markup())
    return "\n".join(tree.text[block[BEGIN] : block[END]].tobytes().decode() for block in tree.blocks[:blocks])


# JSON-LD.

_SCRIPT = re.compile(rb"<script\s([^<>]*)>", re.IGNORECASE)
_SCRIPT_END = re.compile(rb"</script", re.IGNORECASE)
_BEFORE_JSON = re.compile(r"\s*(?:<!--)?\s*(?://)?\s*(?:<!\[CDATA\[)?\s*")
_DECODER = json.JSONDecoder(strict=False)


def _json_ld(page: bytes) -> Iterator[Node]:
    """Yield all objects in a page's JSON-LD, outer ones before those inside them."""
    stack = list(map(_parse, _scripts(page)))[::-1] if b"ld+json" in page else []
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack += [each for each in reversed(value.values()) if isinstance(each, dict | list)]
        elif isinstance(value, list):
            stack += reversed(value)


def _scripts(page: bytes) -> Iterator[bytes]:
    at, left = 0, MAX_BYTES
    while (tag := _SCRIPT.search(page, at)) and (end := _SCRIPT_END.search(page, tag.end())):
        at = end.end()
        if b"ld+json" in tag[1]:
            left -= end.start() - tag.end()
            if left < 0:
                return
            yield page[tag.end() : end.start()]


def _parse(script: bytes) -> Any:
    """Return the value of a script, None if it is broken or too deep; brackets in strings count for the depth."""
    brackets = np.frombuffer(script, np.uint8) | 32  # { and } are 32 above [ and ]
    depths = np.cumsum((brackets == ord("{")).astype(np.int32) - (brackets == ord("}")))
    if depths.max(initial=0) > MAX_DEPTH:
        return None
    text = script.decode(errors="replace")
    try:
        return _DECODER.raw_decode(text, _BEFORE_JSON.match(text).end())[0]  # type: ignore[union-attr]  # it matches
    except ValueError:
        return None


# Microdata.

_TAG = re.compile(rb"<(/?)([a-zA-Z][^\s/<>]*)([^<>]*)>")
_ATTRIBUTE = re.compile(r"""([\w:.-]++)(?:\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
_VOID = (b"embed", b"img", b"input", b"link", b"meta", b"source")


class _Open(NamedTuple):
    """An open element that is an item, or the text of properties of one."""

    item: Node
    properties: frozenset[str]
    start: int


def _microdata(page: bytes) -> list[Node]:
    """Return a page's items with their texts, outer items before those inside them.

    An element ends at the end tag of its name and depth, or with an element around it. Texts inside a text are a part
    of it.
    """
    items, opened, depths = list[Node](), dict[tuple[bytes, int], _Open](), defaultdict[bytes, int](int)
    for tag in _TAG.finditer(page) if b"itemprop" in page else ():
        name = tag[2].lower()
        if tag[1]:
            depths[name] -= depths[name] > 0
            while (name, depths[name]) in opened:
                _add_text(opened.popitem()[1], page, tag.start())
            continue
        place = name, depths[name]
        depths[name] += name not in _VOID
        if b"item" not in tag[3]:
            continue
        if len(items) == MAX_ITEMS or len(opened) == MAX_DEPTH:
            break
        attributes = _attributes(tag[3])
        around = next((each.item for each in reversed(opened.values())), {})
        this = _Open(around, _PROPERTIES.intersection(attributes.get("itemprop", "").split()), tag.end())
        if "itemscope" in attributes:
            items.append({"@type": attributes.get("itemtype", "").split()})
            _add(this, items[-1])
            if name not in _VOID:
                opened[place] = _Open(items[-1], frozenset(), tag.end())
        elif "content" in attributes:
            _add(this, attributes["content"])
        elif this.properties and name not in _VOID and not any(each.properties for each in opened.values()):
            opened[place] = this
    return items


def _add(element: _Open, value: Any) -> None:
    for name in element.properties:
        element.item.setdefault(name, []).append(value)


def _add_text(element: _Open, page: bytes, end: int) -> None:
    if element.properties:
        _add(element, f"<p>{page[element.start : end].decode(errors='replace')}")


def _attributes(tag: bytes) -> dict[str, str]:
    """Return the attributes of a tag by lower-case name; the first of a name counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(tag.decode(errors="replace")):
        found.setdefault(name.lower(), double or single or bare)
    return found


# Metadata.

_HEAD_BYTES = 300_000
"""Bytes of a page that are searched for meta tags and times; later ones belong to comments and lists."""
_META = re.compile(rb"<(?:meta|time)\s([^<>]*)>", re.IGNORECASE)
_TITLE = re.compile(rb"<title(?:\s[^<>]*)?>([^<]*)", re.IGNORECASE)
_TITLES = ("og:title", "twitter:title", "dc.title")
_AUTHORS = ("author", "article:author", "dc.creator")
_DATES = ("article:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "datetime")
"""Names of meta tags in order of precedence; "datetime" is the attribute of the first ``time``."""
_MAIN = (("Article", "Posting"), ("Recipe",), ("Product", "ProductGroup"), ("Question",))
"""Ends of the types that a page is about, in order of precedence."""


def read_metadata(page: bytes) -> Metadata:
    """Return the title, the authors and the date of publication of a page.

    JSON-LD takes precedence over meta tags, and meta tags over the elements ``title`` and ``time``. JSON-LD counts if
    it describes one article or post, recipe, product or question; several are a list. Names of authors are separated by
    commas; addresses are not names. A date is one or a date and time of ISO 8601, as given; other forms are ignored.
    """
    described, meta, title = _described(page), _meta_tags(page), _TITLE.search(page)
    titles = [described.title, *map(meta.get, _TITLES), title and title[1].decode(errors="replace")]
    authors = [described.author, *map(meta.get, _AUTHORS)]
    dates = [described.published, *map(meta.get, _DATES)]
    return Metadata(
        next(filter(None, map(_line, titles)), None),
        next((name for name in map(_line, authors) if name and "://" not in name), None),
        next(filter(None, map(_iso_date, dates)), None),
    )


def _line(value: str | None) -> str:
    return " ".join(plain_text(value).split()) if value else ""


def _iso_date(value: str | None) -> str | None:
    """Return a date, or a date and time joined by a T, or None if the value is not valid."""
    value = (value or "").strip().replace(" ", "T", 1).replace(" ", "")
    try:
        return value if value[10:11] in ("", "T") and datetime.fromisoformat(value) else None
    except ValueError:
        return None


def _meta_tags(page: bytes) -> dict[str, str]:
    """Return the contents of meta tags by lower-case name; the first of a name counts."""
    found: dict[str, str] = {}
    for tag in _META.finditer(page, 0, _HEAD_BYTES):
        attributes = _attributes(tag[1])
        if "datetime" in attributes:
            found.setdefault("datetime", attributes["datetime"])
        elif content := attributes.get("content"):
            for name in filter(None, map(attributes.get, ("name", "property", "itemprop"))):
                found.setdefault(name.lower(), content)
    return found


def _described(page: bytes) -> Metadata:
    """Return the metadata of the only article or post, recipe, product or question in JSON-LD."""
    nodes = list(_json_ld(page))
    for ends in _MAIN:
        main = [node for node in nodes if any(name.endswith(ends) for name in _types(node))]
        titles = {title for node in main if isinstance(title := node.get("headline") or node.get("name"), str)}
        if len(titles) == 1:
            names = {node["@id"]: node.get("name") for node in nodes if isinstance(node.get("@id"), str)}
            authors = (", ".join(_names(node.get("author"), names)) for node in main)
            dates = (date for node in main if isinstance(date := node.get("datePublished"), str))
            return Metadata(titles.pop(), next(filter(None, authors), None), next(dates, None))
    return Metadata()


def _names(value: Any, names: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of authors: texts, objects with a name, or references to such objects, each once."""
    found = dict[str, None]()
    for each in value if isinstance(value, list) else [value]:
        name = (each.get("name") or names.get(str(each.get("@id")))) if isinstance(each, dict) else each
        if isinstance(name, str) and (line := _line(name)) and "://" not in line:
            found[line] = None
    return iter(found)
