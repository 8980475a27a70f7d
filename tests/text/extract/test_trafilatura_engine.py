"""Expressions of trafilatura in faster form: they select the elements that they select as they come."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.text.extract._trafilatura_engine import Remembering, guarded, hastened

etree = pytest.importorskip("lxml.etree")
html = pytest.importorskip("lxml.html")
xpaths = pytest.importorskip("trafilatura.xpaths")

NAMES = {"re": "http://exslt.org/regular-expressions"}
EXPRESSIONS = [
    each
    for listed in vars(xpaths).values()
    if isinstance(listed, list)
    for each in listed
    if isinstance(each, etree.XPath)
]
WORDS = sorted({word for each in EXPRESSIONS for word in re.findall(r"[A-Za-z-]{3,}", each.path)})
TAGS = (
    "div",
    "section",
    "p",
    "span",
    "ul",
    "ol",
    "article",
    "main",
    "aside",
    "list",
    "item",
    "details",
    "h1",
    "a",
    "b",
)
VALUES = st.lists(st.sampled_from(WORDS), max_size=2).flatmap(
    lambda words: st.sampled_from((" ".join(words), "-".join(words), "_".join(words), "x".join(words)))
)
ATTRIBUTES = st.lists(
    st.tuples(st.sampled_from(("id", "class", "style", "role", "aria-hidden", "itemprop", "href")), VALUES),
    max_size=3,
    unique_by=lambda each: each[0],
)
NODES = st.recursive(
    st.tuples(st.sampled_from(TAGS), ATTRIBUTES, st.just(())),
    lambda inner: st.tuples(st.sampled_from(TAGS), ATTRIBUTES, st.lists(inner, max_size=4)),
    max_leaves=20,
)


def element(node):
    """Make an element with attributes in their order, and what is in it."""
    tag, attributes, inner = node
    made = html.HtmlElement()
    made.tag = tag
    for name, value in attributes:
        made.set(name, value)
    made.extend([element(each) for each in inner])
    return made


@given(st.lists(NODES, min_size=1, max_size=4))
def test_every_expression_selects_what_it_does_as_it_comes(nodes):
    tree = element(("body", (), nodes))
    for each in EXPRESSIONS:
        assert hastened(each)(tree) == each(tree), each.path


@pytest.mark.slow
def test_what_differs_by_name_alone_is_remembered_apart():
    """Each expression twice over one tree, in which every name has the same attributes."""
    for value in WORDS:
        tree = html.Element("body")
        for tag in TAGS:
            etree.SubElement(tree, tag, {"class": value})
        for each in EXPRESSIONS:
            fast = hastened(each)
            assert fast(tree) == fast(tree) == each(tree), each.path


@pytest.mark.skipif(not any("re:test" in each.path for each in EXPRESSIONS), reason="version 2.0 has no patterns")
def test_expressions_by_attributes_are_remembered():
    """Those that take most of the time are among them."""
    remembered = [each.path for each in EXPRESSIONS if isinstance(hastened(each), Remembering)]
    assert len(remembered) >= 5
    assert not any("[1]" in path or "not(.//" in path for path in remembered)


@pytest.mark.parametrize(
    "path",
    [
        ".//div[@id='a']",
        ".//*[re:test(@id, 'a')][1]",
        ".//*[re:test(@id, 'a')][.//p]",
        ".//*[re:test(@id, 'a') or text()]",
        ".//*[not(re:test(@class, 'a'))]",
        "(.//*[re:test(@id, 'a')])[1]",
        ".//*[re:test(@id, 'a')]/p",
    ],
)
def test_conditions_on_more_than_attributes_are_not_remembered(path):
    tree = html.fromstring("<body>x<div id=a>x<p id=a>x<p class=a></p></div><div><p id=ba>x</div></body>")
    expression = etree.XPath(path, namespaces=NAMES)
    made = hastened(expression)
    assert not isinstance(made, Remembering)
    assert made(tree) == expression(tree)


def test_the_first_of_two_attributes_counts():
    """In the order of the page: what is known of one order says nothing about the other."""
    tree = html.fromstring("<body><p id=a class=b>x</p><p class=b id=a>x</p><p id=a class=b>x</p></body>")
    expression = etree.XPath(".//*[re:test(@id|@class, 'a')]", namespaces=NAMES)
    assert isinstance(hastened(expression), Remembering)
    assert hastened(expression)(tree) == expression(tree) == [tree[0], tree[2]]


def test_patterns_that_match_nothing_are_tried_without_an_attribute():
    path = ".//*[re:test(@id, 'a*') and re:test(@class, 'b', 'i')]"
    assert guarded(path) == ".//*[re:test(@id, 'a*') and (@class and re:test(@class, 'b', 'i'))]"


def test_a_hastened_expression_stays_as_it_is():
    for each in EXPRESSIONS:
        made = hastened(each)
        assert isinstance(made, Remembering) or hastened(made) is made or made.path == each.path
