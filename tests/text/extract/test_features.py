"""Features of blocks, against naive readings of the same page."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.kernels.compiling import Kernel
from longcrawl.text.extract.blocks import load_model
from longcrawl.text.extract.features import FEATURES, measure_reach, put_row, study
from longcrawl.text.extract.html import BEGIN, ELEMENT, END, PARENT, SIGN, load_markup, make_tree, scan


def all_rows(tree, elements, blocks, kinds, scores):
    """Run the kernels as Python: compiling them apart from those of the extraction takes ten seconds."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore"):
        patch.setattr(Kernel, "__call__", lambda kernel, *given: kernel.py_func(*given))
        page = study(tree, elements, blocks, kinds, scores)
        reach, rows = measure_reach(tree, blocks, page), np.full((blocks, len(FEATURES)), np.nan, np.float32)
        for number in range(blocks):
            put_row(tree, number, page, reach, rows[number])
    return rows


def described(page: str):
    tree = make_tree(len(page.encode()))
    elements, blocks, kinds = scan(np.frombuffer(page.encode(), np.uint8), tree, load_markup())
    rows = all_rows(tree, elements, blocks, kinds, load_model().scores)
    return tree, {name: rows[:, column] for column, name in enumerate(FEATURES)}


PIECES = (
    "<div class='card x1'>",
    "<div class=other>",
    "</div>",
    "<p>Add to cart",
    "<p>$12.50 now",
    "<li>One",
    "<ul>",
    "</ul>",
)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=25))
def test_repetition_is_counted_as_a_naive_reading_counts_it(pieces):
    tree, found = described("".join(pieces))
    blocks = len(found["copies"])
    texts = [tree.text[block[BEGIN] : block[END]].tobytes() for block in tree.blocks[:blocks]]
    assert found["copies"].tolist() == [Counter(texts)[text] for text in texts]
    own = tree.blocks[:blocks, ELEMENT].tolist()
    paths = []
    for element in own:
        path = []
        for _ in range(3):
            path.append(tree.elements[element, SIGN])
            element = tree.elements[element, PARENT]  # noqa: PLW2901  # a walk upwards
        paths.append(tuple(path))
    assert found["path_count"].tolist() == [Counter(paths)[path] for path in paths]
    assert [bool(money) for money in found["money"]] == [b"$" in text for text in texts]
    assert all(np.isfinite(values).all() for values in found.values())


def test_siblings_of_one_kind_are_a_group():
    cards = "".join(f"<div class='card n{n}'><b>Boat {n}</b><p>{n} tons</p></div>" for n in range(5))
    _, found = described(f"<div><h2>Boats</h2>{cards}</div>")
    assert found["nearest_count"].tolist() == [-1, *[5] * 10]
    assert found["nearest_number"].tolist() == [-1, *(n for n in range(5) for _ in range(2))]
    assert found["path_count"].tolist() == [1, *[5] * 10]
    assert found["since_heading"].tolist() == [50, *range(10)]


def test_sums_of_a_level_are_those_of_its_blocks():
    _, found = described("<section><div><p>one<p>two words</div><div><p><a href=x>three</a></div></section>")
    assert found["parent_bytes"].tolist() == [12, 12, 5]
    assert found["parent_blocks"].tolist() == [2, 2, 1]
    assert found["grandparent_bytes"].tolist() == [17, 17, 17]
    assert found["parent_linked"].tolist() == [0, 0, 1]
    np.testing.assert_allclose(found["place"], [0, 3 / 17, 12 / 17], rtol=1e-6)
    assert set(found["page_blocks"].tolist()) == {3}
