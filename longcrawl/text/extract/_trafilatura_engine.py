"""The extraction engine trafilatura. A worker loads this file by its path, so nothing of longcrawl is imported here.

Half of trafilatura's time is spent in XPath expressions that try patterns on attributes of every element. They are
replaced by expressions that select the same elements, see :func:`hastened`.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

_TEST = re.compile(r"re:test\((@[\w-]+(?:\|@[\w-]+)*), ('([^']*)'(?:, '\w*')?)\)")
"""A pattern that is tried on an attribute, or on the first of several."""
_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAMESPACES = {"re": "http://exslt.org/regular-expressions"}
_BY_ATTRIBUTES = re.compile(r"\s*\.//\*(?:\[\s*(self::\w+(?:\s+or\s+self::\w+)*)\s*\])?\s*(\[.*\])\s*", re.DOTALL)
"""An expression for descendants, by name and under conditions."""
_CONDITION = re.compile(
    r"(?:@[\w-]+|self::\w+|or|and|not\(|re:test\(|contains\(|starts-with\(|translate\(|[\s()\[\],=|])*"
)
"""A condition without its literals that looks at nothing but an element's name and attributes."""


def make_extractor(favor: str) -> Callable[[str], str | None]:
    """Return the function from a page to its main text.

    Comments of readers are left out. Metadata, dates and languages, which trafilatura could find as well, are not
    looked for. Its ``deduplicate`` stays off, since it remembers the paragraphs of earlier pages.
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
    """Let all elements be of one class, which lxml knows without asking its table of tags in Python for each of them.

    The classes in the table differ in what forms and their fields can do, which trafilatura does not use.
    """
    from lxml import etree, html
    from trafilatura import utils

    kinds = (html.HtmlElement, html.HtmlComment, html.HtmlProcessingInstruction, html.HtmlEntity)
    utils.HTML_PARSER.set_element_class_lookup(etree.ElementDefaultClassLookup(*kinds))


def hasten_expressions() -> "list[Remembering]":
    """Replace trafilatura's expressions in its lists, and return those that remember.

    An expression whose form is not known here stays as it is.
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
    """Ask in C whether an attribute is there before a pattern is tried on it in Python.

    A missing attribute is an empty string to a pattern. Patterns that match it are tried as before.

    >>> guarded(".//*[re:test(@id, '^nav') or re:test(@class, 'x*')]")
    ".//*[(@id and re:test(@id, '^nav')) or re:test(@class, 'x*')]"
    """
    return _TEST.sub(lambda test: test[0] if re.search(test[3], "") else f"({test[1]} and {test[0]})", path)


class Remembering:
    """An expression whose conditions look at an element's name and attributes, and are tried once for all alike.

    What is known is forgotten after each page, so that memory and time do not depend on earlier pages.
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
        """Return the descendants that are selected, in the order of the document."""
        attributes, known, selected = self.attributes, self.known, []
        for element in tree.iterdescendants(*self.tags):
            # In the order of the page, as the first of several attributes is the one that counts.
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
