"""The extraction engine "blocks": HTML's rules against naive readings, any bytes, and the model against a naive one."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.kernels.memory import TESTED
from longcrawl.text.extract import blocks
from longcrawl.text.extract.blocks import add_up, make_trees
from longcrawl.text.extract.html import TAGS

MARKUP = (
    *(
        "<p>",
        "</p>",
        "<div>",
        "</div>",
        "<table>",
        "</table>",
        "<tr>",
        "<td>",
        "</td>",
        "<ul>",
        "<li>",
        "</ul>",
        "<dd>",
    ),
    *(
        "<svg>",
        "</svg>",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<head>",
        "<body>",
        "<select>",
        "<pre>",
        "<br>",
        "<h1>",
    ),
    *(
        "<a href=x>",
        "</a>",
        "<nav class='a B",
        '"',
        "'",
        ">",
        "<",
        "&",
        "&amp",
        "&#x41;",
        "&#0;",
        "&nGt;",
        "=",
        "/",
        "\n",
    ),
    *("<x-y>", "</x-y>", "é", "。", "\xa0", " ", "word. "),
)


def texts(page: str) -> list[str]:
    return [block.text for block in blocks.read_blocks(page)]


# HTML.


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>One<p>Two</p>Three", ["One", "Two", "Three"]),
        ("<p>One<b>, <i>two</b></i><span> three</span></p>", ["One, two three"]),
        ("<ul><li>One<li><div>Two<li>Three</ul>Four", ["One", "Two", "Three", "Four"]),
        ("<ul><li>One<ul><li>Two</ul>Three</ul>", ["One", "Two", "Three"]),
        ("<dl><dt>Term<dd>Meaning<dt>Other</dl>", ["Term", "Meaning", "Other"]),
        ("<table><tr><td>1<td>2<tr><th>3</table>4", ["1", "2", "3", "4"]),
        ("<table><tr><td>1</div></p><td>2</table>", ["1", "2"]),
        ("<h1>Title<h2>Second</h1>text", ["Title", "Second", "text"]),
        ("One<br>two<br/> three", ["One\ntwo\nthree"]),
        ("<pre>\n a\n  b </pre> c  d\n", ["a\n  b", "c d"]),
        ("a &lt;b&gt; &amp;amp; &copy &eacute;&#233;&#x80;&#xD800;&unknown; &", ["a <b> &amp; © éé€�&unknown; &"]),
        ("x < y, a<b>c</b> <3 <", ["x < y, ac <3 <"]),
        ("a\xa0\u3000 &nbsp; b\ufeff", ["a b"]),
        ("<!-- no --><!DOCTYPE html><?no?>yes<!-->yes<!-- a > b --!>", ["yesyes"]),
        ("<title>no</title><script>'</p>' < 1</script><style>p {}</style><textarea><p>no</textarea>yes", ["yes"]),
        ("<script>no", []),
        ("<svg><title>no</title><path d=''/><text>no</text></svg>yes<select><option>no</select>", ["yes"]),
        ("<head><meta charset=utf-8>no<p>yes", ["yes"]),
        ("<a title='a > b' href=\"'\">yes</a><p id=a>b", ["yes", "b"]),
        ("<custom-part>one</custom-part><unknown>two</unknown> three", ["one", "two three"]),
        ("<DIV>one</Div>two", ["one", "two"]),
        ("a\u3000b\xa0c\u2003d\ufeffe", ["a b c de"]),
        (
            "vil\xadlage vil&shy;lage one\u200b\u2060&#8203;two \u200b &ZeroWidthSpace;three",
            ["village village onetwo three"],
        ),
        (
            "<pre>a\xadb \u200b c</pre><p>\ufeff&shy;<p>\u0645\u06cc\u200c\u062f &zwj;\u200dx",
            ["ab  c", "\u0645\u06cc\u200c\u062f \u200d\u200dx"],
        ),
        ("a<!-- - -- -->b<!----->c", ["abc"]),
        ("<script>no < no<</script>yes<style>no</style >yes", ["yesyes"]),
        ("", []),
    ],
)
@pytest.mark.parametrize("behind", ["", " " * TESTED])
def test_blocks_follow_the_rules_of_html(page, expected, behind):
    """Where 64 bytes follow, as many are looked at together."""
    assert texts(page + behind) == expected


INLINE, BLOCK = ("b", "span", "em", "font", "code"), ("div", "section", "article", "blockquote", "main", "x-part")
WORDS = st.text(st.sampled_from("ab<&é。 \n\t\xa0"), min_size=1, max_size=8)
NODES = st.recursive(
    WORDS,
    lambda inner: st.tuples(st.sampled_from((*INLINE, *BLOCK)), st.lists(inner, max_size=4)),
    max_leaves=25,
)


def render(node) -> str:
    """Write a node as HTML: text, or a tag with nodes."""
    if isinstance(node, str):
        return html.escape(node)
    return f"<{node[0]} title='>'>{''.join(map(render, node[1]))}</{node[0]}>"


def naive_blocks(node) -> list[str]:
    """Divide the text of a node where a block element begins or ends, marked by U+0000."""

    def write(node) -> str:
        if isinstance(node, str):
            return node
        inner = "".join(map(write, node[1]))
        return f"\0{inner}\0" if node[0] in BLOCK else inner

    spaced = [re.sub(r"\s+", " ", piece).strip() for piece in write(node).split("\0")]
    return [piece for piece in spaced if piece]


@given(st.lists(NODES, max_size=5))
def test_blocks_of_any_tree_are_those_of_a_naive_reading(nodes):
    assert texts("".join(map(render, nodes))) == naive_blocks(("div", nodes))


def test_every_character_reference_is_what_it_is_to_python():
    """A name without a semicolon ends at a full stop; the one reference to two spaces stays as it is."""
    names = sorted(html.entities.html5.keys() - {"ThickSpace;"})
    page = "".join(f"<p>x&{name}.</p>" for name in names)
    plain = [
        re.sub("\\s+", " ", re.sub("[\u00ad\u200b\u2060-\u2064]", "", html.unescape(f"x&{name}."))) for name in names
    ]
    assert texts(page) == plain


@given(st.lists(st.one_of(st.sampled_from(MARKUP), st.text(max_size=3)), max_size=30))
@example(["\x85"])
def test_any_page_has_blocks_of_text(pieces):
    page = "".join(pieces).encode("utf-8", "replace").decode()
    found = texts(page)
    assert all(text == text.strip() != "" for text in found)
    kept = blocks.extract_blocks(pa.array([page, None, page], pa.large_string()), np.array([True, False, False]))
    assert kept.to_pylist()[1:] == [None, None]
    assert kept[0].as_py() is not None


# The model.


def test_a_score_is_the_sum_of_the_trees_leaves():
    kept = json.loads((Path(blocks.__file__).parent / "blocks.json").read_text())
    assert kept["tags"] == list(TAGS), "the model has codes of tags: train it again"
    trees = kept["trees"]
    model, chance = blocks.load_model(), np.random.default_rng(0)
    for _ in range(20):
        row = (chance.random(len(blocks.FEATURES)) ** 4 * 300).astype(np.float32)
        total = 0.0
        for tree in trees:
            node = 0
            while node >= 0:
                right = int(row[blocks.FEATURES.index(tree["features"][node])] > tree["thresholds"][node])
                node = tree["children"][node][right]
            total += tree["leaves"][~node]
        assert add_up(model, row) == pytest.approx(total, abs=1e-9)


def grown(draw, leaves: int) -> dict:
    """Return a tree whose leaves are split one after the other."""
    tree = {"features": ["a"], "thresholds": [0.0], "children": [[-1, -2]], "leaves": [0.0, 0.0]}
    for leaf in range(2, leaves):
        node = draw(st.integers(0, leaf - 1))
        parent = next(pair for pair in tree["children"] if ~node in pair)
        parent[parent.index(~node)] = len(tree["children"])
        tree["children"].append([~node, ~leaf] if draw(st.booleans()) else [~leaf, ~node])
    floats = st.floats(-4, 4) | st.floats(-4, 4, width=32)
    tree["features"] = draw(st.lists(st.sampled_from("abc"), min_size=leaves - 1, max_size=leaves - 1))
    tree["thresholds"] = draw(st.lists(floats, min_size=leaves - 1, max_size=leaves - 1))
    tree["leaves"] = draw(st.lists(st.floats(-4, 4), min_size=leaves, max_size=leaves))
    return tree


@pytest.mark.parametrize("threshold", [0.1, 0.3, -0.1, 0.5])
def test_thresholds_between_two_values_part_them(threshold):
    """The float32 next to 0.1 is above it, that next to 0.3 as well, and that next to -0.1 below."""
    tree = {"features": ["a"], "thresholds": [threshold], "children": [[-1, -2]], "leaves": [0.0, 1.0]}
    nearest = np.float32(threshold)
    for value in (np.nextafter(nearest, np.float32(-1)), nearest, np.nextafter(nearest, np.float32(1))):
        assert add_up(make_trees([tree], "a"), np.array([value])) == (float(value) > threshold)


@settings(deadline=None)  # the first call compiles
@given(st.data())
def test_trees_of_any_shape_are_added_up_as_a_naive_walk_does(data):
    """Thresholds are rounded to float32: a value that is one, or the next above or below, goes where it went."""
    trees = [grown(data.draw, data.draw(st.integers(2, 8))) for _ in range(data.draw(st.integers(0, 3)))]
    thresholds = [np.float32(each) for tree in trees for each in tree["thresholds"]] or [np.float32(0)]
    near = [np.nextafter(each, np.float32(to)) for each in thresholds for to in (-9, 9)]
    values = st.sampled_from([*thresholds, *near]) | st.floats(-4, 4, width=32)
    row = np.array(data.draw(st.lists(values, min_size=3, max_size=3)), np.float32)
    total = 0.0
    for tree in trees:
        node = 0
        while node >= 0:
            right = float(row["abc".index(tree["features"][node])]) > tree["thresholds"][node]
            node = tree["children"][node][right]
        total += tree["leaves"][~node]
    assert add_up(make_trees(trees, "abc"), row) == total


def test_lists_and_tables_are_written_as_such():
    story = "".join(
        f"<p>It took them {number} days, and nobody had expected that it would, as the river was low.</p>"
        for number in range(9)
    )
    items = "<ul><li><p>First, the boats were brought.</p><p>They leaked, too.</p><li>Then, the cellars.</ul>"
    cells = "<table><tr><td>The lower town, in metres.<td>2.5, or more.<tr><td>The upper town, none.</table>"
    page = f"<html><body><main><article>{story}{items}{story}{cells}{story}</article></main></body></html>"
    (text,) = lc.text.ExtractText(engine="blocks", favor="recall")(pa.table({"html": [page]}))["text"].to_pylist()
    assert "\n- First, the boats were brought.\nThey leaked, too.\n- Then, the cellars.\n" in text
    assert "\nThe lower town, in metres. | 2.5, or more.\nThe upper town, none.\n" in text


@settings(max_examples=20)
@given(st.permutations(range(4)))
def test_a_text_does_not_depend_on_the_batch(order):
    pages = [f"<nav>Menu</nav><p>{'Some words, and some more of them. ' * (n + 2)}</p>" * (n + 1) for n in range(4)]
    stage = lc.text.ExtractText(engine="blocks")
    alone = [stage(pa.table({"html": [page]}))["text"][0].as_py() for page in pages]
    together = stage(pa.table({"html": [pages[number] for number in order]}))["text"].to_pylist()
    assert together == [alone[number] for number in order]
