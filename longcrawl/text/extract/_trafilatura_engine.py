"""Extraction engine "trafilatura". Workers load this file by path, so it imports nothing of longcrawl.

trafilatura spends half of its time in XPath expressions that match patterns on attributes of every element. This module
replaces them by faster expressions that select the same elements; see :func:`hastened`.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

_TEST = re.compile(r"re:test\((@[\w-]+(?:\|@[\w-]+)*), ('([^']*)'(?:, '\w*')?)\)")
"""Matches a test of a pattern on an attribute, or on the first of several."""
_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAMESPACES = {"re": "http://exslt.org/regular-expressions"}
_BY_ATTRIBUTES = re.compile(r"\s*\.//\*(?:\[\s*(self::\w+(?:\s+or\s+self::\w+)*)\s*\])?\s*(\[.*\])\s*", re.DOTALL)
"""Matches an expression that selects descendants by name and conditions."""
_CONDITION = re.compile(
    r"(?:@[\w-]+|self::\w+|or|and|not\(|re:test\(|contains\(|starts-with\(|translate\(|[\s()\[\],=|])*"
)
"""Matches a condition, without its literals, that only depends on an element's name and attributes."""


def make_extractor(favor: str) -> Callable[[str], str | None]:
    """Return a function from a page to its main text.

    Reader comments are left out, and trafilatura's metadata, dates and languages are not extracted. Its ``deduplicate``
    is off, since it remembers the paragraphs of earlier pages.
    """
    from trafilatura import extract
    from trafilatura.settings import Extractor

    logging.disable()
    options = Extractor(precision=favor == "precision", recall=favor == "recall", comments=False)
    simplify_classes()
    remembering = hasten_expressions()

    def extract_page(page: str) -> str | None:
        try:
            text: str | None = extract(page, options=options)
        finally:
            for expression in remembering:
                expression.known.clear()
        return text

    return extract_page


def simplify_classes() -> None:
    """Use one class for all elements, since lxml looks up its table of classes by tag in Python for each element.

    The classes in the table only differ in methods of forms and their fields, which trafilatura does not use.
    """
    from lxml import etree, html
    from trafilatura import utils

    kinds = (html.HtmlElement, html.HtmlComment, html.HtmlProcessingInstruction, html.HtmlEntity)
    utils.HTML_PARSER.set_element_class_lookup(etree.ElementDefaultClassLookup(*kinds))


def hasten_expressions() -> "list[Remembering]":
    """Replace trafilatura's expressions in its lists, and return those that cache their decisions.

    An expression of unknown form is kept.
    """
    from lxml.etree import XPath
    from trafilatura import xpaths

    lists = [each for each in vars(xpaths).values() if isinstance(each, list)]
    for expressions in lists:
        expressions[:] = [hastened(each) if isinstance(each, XPath) else each for each in expressions]
    return [each for expressions in lists for each in expressions if isinstance(each, Remembering)]


def hastened(expression: Any) -> Any:
    """Return a faster expression that selects the same elements."""
    from lxml.etree import XPath

    path = expression.path
    prefixes = set(re.findall(r"([\w-]+):(?!:)", _LITERAL.sub("", path)))
    if prefixes != {"re"} or "and re:test" in path:
        return expression
    found = _BY_ATTRIBUTES.fullmatch(path)
    if found and _CONDITION.fullmatch(_LITERAL.sub("", found[2])):
        made = Remembering(found[1], found[2])
        if not made.selects_bare:
            return made
    return XPath(guarded(path), namespaces=_NAMESPACES, smart_strings=False)


def guarded(path: str) -> str:
    """Add a test in C that an attribute exists before a pattern is matched on it in Python.

    A pattern sees a missing attribute as an empty string, so patterns that match it are not changed.

    >>> guarded(".//*[re:test(@id, '^nav') or re:test(@class, 'x*')]")
    ".//*[(@id and re:test(@id, '^nav')) or re:test(@class, 'x*')]"
    """
    return _TEST.sub(lambda test: test[0] if re.search(test[3], "") else f"({test[1]} and {test[0]})", path)


class Remembering:
    """Expression with conditions on name and attributes only, evaluated once for all elements in which these are equal.

    The cache is cleared after each page, so that memory and time do not depend on earlier pages.
    """

    def __init__(self, names: str | None, conditions: str) -> None:
        from lxml.etree import Element, XPath

        self.tags = re.findall(r"self::(\w+)", names) if names else ["*"]
        self.attributes = frozenset(re.findall(r"@([\w-]+)", _LITERAL.sub("", conditions)))
        self.by_name = "self::" in conditions
        self.decide = XPath(f"boolean(self::*{guarded(conditions)})", namespaces=_NAMESPACES, smart_strings=False)
        named = re.findall(r"self::(\w+)", f"{names} {conditions}")
        self.selects_bare = any(self.decide(Element(tag)) for tag in ("other", *named))
        self.known: dict[Any, bool] = {}

    def __call__(self, tree: Any) -> list[Any]:
        """Return the selected descendants in document order."""
        attributes, known, selected = self.attributes, self.known, []
        for element in tree.iterdescendants(*self.tags):
            # In the page's order, since the first of several attributes counts.
            key: Any = tuple([item for item in element.items() if item[0] in attributes])
            if not key:
                continue
            if self.by_name:
                key = element.tag, key
            verdict = known.get(key)
            if verdict is None:
                verdict = known[key] = self.decide(element)
            if verdict:
                selected.append(element)
        return selected
