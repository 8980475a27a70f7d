"""Attributes of an element, in any surroundings."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.kernels.memory import TESTED
from longcrawl.text.extract.html import GROUPS, SIGN, STYLES, load_markup, make_tree, scan


def marks(page: str) -> set[str]:
    """Return what the class, id and role of a page's first element below ``html`` say."""
    found = []
    for behind in (b"", b" " * TESTED):  # where 64 bytes follow, as many are looked at together
        data = np.frombuffer(page.encode() + behind, np.uint8)
        tree = make_tree(len(data))
        scan(data, tree, load_markup())
        found.append({name for bit, name in enumerate(GROUPS) if tree.marks[1] >> bit & 1})
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("post-comments", {"comment", "post"}),
        ("mainNav", {"main", "navigation"}),
        ("ad", {"advertisement"}),
        ("shadow", set()),
        ("articleBody", {"article", "content"}),
        ("xyz", set()),
    ],
)
def test_classes_say_what_an_element_is(value, expected):
    for attribute in ("class", "id", "role", "CLASS"):
        assert marks(f'<div {attribute}="{value}">text</div>') == expected
    assert marks(f'<div data-x="{value}">text</div>') == set()


@given(st.text(st.sampled_from("ADadNnvVcCoOmMeEtT-_ 1"), max_size=30))
def test_words_in_classes_are_those_that_a_regex_finds(value):
    parted = " " + re.sub("[^a-z]", " ", re.sub("(?<=[a-z])(?=[A-Z])", " ", value).lower()) + " "
    assert marks(f'<div class="{value}">text</div>') == {
        name for name, words in GROUPS.items() if any(word in parted for word in words)
    }


@pytest.mark.parametrize("attribute", ["hidden", "aria-hidden='true'", "style='color: red; DISPLAY : none'"])
def test_what_is_hidden_is_known(attribute):
    assert marks(f"<div {attribute}>text</div>") == {"hidden"}
    assert marks("<div aria-hidden=false style='display: block'>text</div>") == set()


@pytest.mark.parametrize("before", ["x ", "x/", "x=y ", "x=/ ", "/", "x\t", "x\n", "x\f"])
def test_names_of_attributes_end_where_html_ends_them(before):
    assert marks(f'<div {before}class="post">text</div>') == {"post"}
    assert marks(f"<div {before}hidden>text</div>") == {"hidden"}


def scanned(page: str):
    tree = make_tree(len(page.encode()))
    return tree, *scan(np.frombuffer(page.encode(), np.uint8), tree, load_markup())


def test_names_and_signs_ignore_numbers():
    """Cards that differ in a number are of the same kind."""
    tree, elements, _, _ = scanned(
        "<div class='card-1 big'>a</div><div class='card-22 big'>b</div><p class='card-1 big'>c"
    )
    assert elements == 4
    assert tree.elements[1, SIGN] == tree.elements[2, SIGN] != tree.elements[3, SIGN]
    assert tree.names[1].tolist() == tree.names[2].tolist() == tree.names[3].tolist()
    assert np.count_nonzero(tree.names[1]) == 2


@pytest.mark.parametrize(
    ("types", "kinds"),
    [
        ('{"@type": "Product"}', 1),
        ('{"@graph":[{"@type":["Thing","NewsArticle"]},{"@type" : "BreadcrumbList"}]}', 0),
        ('{"@graph":[{"@type":["NewsArticle"]},{"@type" : "ItemList"}]}', 6),
        ('{"type": "Product"}', 0),
        ("@type", 0),
    ],
)
def test_kinds_of_pages_are_those_of_their_structured_data(types, kinds):
    assert scanned(f"<script type='application/ld+json'>{types}</script><p>text")[3] == kinds
    assert scanned(f"<script>{types}</script><p>text")[3] == 0


@given(st.text(st.sampled_from(".#ax{}:;/* displaynoe@,-"), max_size=40))
def test_any_style_ends(style):
    assert scanned(f"<style>{style}</style><p>text")[2] == 1


def test_styles_of_many_rules_are_bounded():
    rules = "".join(f".x{number}{{display:none}}" for number in range(20_000))
    tree, _, blocks, _ = scanned(f"<style>{rules}</style><p class=x1>no<p class=x>yes<p>{'much text ' * 9}")
    assert blocks == 2
    assert np.count_nonzero(tree.styles[:, 0]) < STYLES
