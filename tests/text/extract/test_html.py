"""What attributes of an element say, whatever is around them."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.kernels.memory import TESTED
from longcrawl.text.extract.html import GROUPS, load_markup, make_tree, scan


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
