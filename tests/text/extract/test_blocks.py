"""The extraction engine "blocks": HTML's rules against naive readings, any bytes, and the model against a naive one."""

import html
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.kernels.memory import TESTED
from longcrawl.text.extract import blocks
from longcrawl.text.extract.blocks import ROWS, add_up, make_trees
from longcrawl.text.extract.features import FEATURES
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
    """With 64 more bytes behind it, the page is read by the kernel's wide loop."""
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


def added(trees, row) -> float:
    """Return the sum of trees for a row, which is the same at each place among others."""
    rows, totals = np.zeros((ROWS, len(row)), np.float32), np.empty(ROWS)
    rows[[0, ROWS - 1]] = row
    add_up(trees, 0, len(trees.roots), rows, np.zeros(ROWS, np.uint64), totals)
    assert totals[0] == totals[-1]
    return totals[0]


def test_the_model_is_of_these_tags_and_features():
    with np.load(Path(blocks.__file__).parent / "blocks.npz", allow_pickle=False) as file:
        assert file["tags"].tolist() == list(TAGS), "the model has codes of tags: train it again"
        assert file["columns"].tolist() == list(FEATURES), "the model has other features: train it again"


def test_a_score_is_the_sum_of_the_trees_leaves():
    """A naive walk ends at the node that points to itself."""
    trees, chance = blocks.load_model().trees, np.random.default_rng(0)
    children = trees.children.reshape(-1, 2)
    for _ in range(20):
        row = (chance.random(len(FEATURES)) ** 4 * 300).astype(np.float32)
        total = 0.0
        for root in trees.roots.tolist():
            node = root
            while children[node, 0] != node:
                node = children[node, int(row[trees.features[node]] > trees.thresholds[node])]
            total += float(trees.values[node])
        assert added(trees, row) == pytest.approx(total, abs=1e-9)


def grown(draw, leaves: int) -> dict:
    """Return a tree whose leaves are split one after the other."""
    tree = {"features": [0], "thresholds": [0.0], "children": [[-1, -2]], "leaves": [0.0, 0.0]}
    for leaf in range(2, leaves):
        node = draw(st.integers(0, leaf - 1))
        parent = next(pair for pair in tree["children"] if ~node in pair)
        parent[parent.index(~node)] = len(tree["children"])
        tree["children"].append([~node, ~leaf] if draw(st.booleans()) else [~leaf, ~node])
    floats = st.floats(-4, 4) | st.floats(-4, 4, width=32)
    tree["features"] = draw(st.lists(st.integers(0, 2), min_size=leaves - 1, max_size=leaves - 1))
    tree["thresholds"] = draw(st.lists(floats, min_size=leaves - 1, max_size=leaves - 1))
    tree["leaves"] = draw(st.lists(st.floats(-4, 4), min_size=leaves, max_size=leaves))
    return tree


@pytest.mark.parametrize("threshold", [0.1, 0.3, -0.1, 0.5])
def test_thresholds_between_two_values_part_them(threshold):
    """The float32 next to 0.1 is above it, that next to 0.3 as well, and that next to -0.1 below."""
    tree = {"features": [0], "thresholds": [threshold], "children": [[-1, -2]], "leaves": [0.0, 1.0]}
    nearest = np.float32(threshold)
    for value in (np.nextafter(nearest, np.float32(-1)), nearest, np.nextafter(nearest, np.float32(1))):
        assert added(make_trees([tree]), np.array([value])) == (float(value) > threshold)


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
            right = float(row[tree["features"][node]]) > tree["thresholds"][node]
            node = tree["children"][node][right]
        total += float(np.float32(tree["leaves"][~node]))
    assert added(make_trees(trees), row) == total


SENTENCE = "It took them {} days, and nobody had expected that it would, as the river was low."
STORY, SECOND, THIRD, FOURTH = (
    "".join(f"<p>{SENTENCE.format(number)}</p>" for number in range(first, first + 9)) for first in (0, 9, 18, 27)
)
"""Nine paragraphs each, none of them twice."""
FAVORS = ("precision", "balanced", "recall")


def extracted(page: str, favor: str = "precision") -> str:
    return lc.text.ExtractText(engine="blocks", favor=favor)(pa.table({"html": [page]}))["text"].to_pylist()[0]


def test_lists_and_tables_are_written_as_such():
    items = "<ul><li><p>First, the boats were brought.</p><p>They leaked, too.</p><li>Then, the cellars.</ul>"
    cells = "<table><tr><td>The lower town, in metres.<td>2.5, or more.<tr><td>The upper town, none.</table>"
    text = extracted(f"<html><body><main><article>{STORY}{items}{SECOND}{cells}{THIRD}</article></main></body></html>")
    assert "\n- First, the boats were brought.\nThey leaked, too.\n- Then, the cellars.\n" in text
    assert "\nThe lower town, in metres. | 2.5, or more.\nThe upper town, none.\n" in text


def test_empty_cells_and_paragraphs_in_cells_keep_the_columns():
    rows = "<tr><td><td>2020<td>2021<tr><td>Boats<td><td><p>12</p><p>old</p>"
    text = extracted(f"<html><body><main><article>{STORY}<table>{rows}</table>{SECOND}</article></main></body></html>")
    assert "\n| 2020 | 2021\nBoats |  | 12 old\n" in text


@pytest.mark.parametrize("favor", FAVORS)
@pytest.mark.parametrize("count", [2, 12, 40])
def test_rows_lists_and_code_are_kept_or_removed_whole(count, favor):
    rows = [f"{1990 + number} | {number} | {number * 31 % 17}.5" for number in range(count)]
    table = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row.split(" | ")) + "</tr>" for row in rows)
    items = [f"Item {number}" for number in range(count)]
    nested = "<ul>" + "".join(f"<li>{item}<ul><li>Part of {item}</ul>" for item in items) + "</ul>"
    code = "\n".join(f"    call({number})" for number in range(count))
    page = f"<article>{STORY}<table>{table}</table>{SECOND}{nested}{THIRD}<pre>{code}</pre>{FOURTH}</article>"
    lines = extracted(page, favor).split("\n")
    assert len(set(rows) & set(lines)) in (0, count)
    assert not any(line in ("1990", "1990 | 0") for line in lines)
    assert len({f"- {item}" for item in items} & set(lines)) in (0, count)
    assert len({f"- Part of {item}" for item in items} & set(lines)) == len(
        {f"- {item}" for item in items} & set(lines)
    )
    assert len(set(code.split("\n")) & {f"    {line.strip()}" for line in lines}) in (0, count)


LONG = "one day in May the boats of the whole harbour lay dry, and the crews went home on foot by the old road"


@given(
    st.lists(st.tuples(st.sampled_from(("p", "li", "td")), st.sampled_from((LONG, LONG[:32], LONG[:8]))), max_size=9)
)
def test_a_text_that_is_long_enough_comes_once(pieces):
    wrap = {"p": "<div><p>{}</div>", "li": "<ul><li>{}<li>Item</ul>", "td": "<table><tr><td>{}<td>12</table>"}
    least = {"p": 5, "li": 20, "td": 99}
    page = f"<article>{STORY}{''.join(wrap[kind].format(text) for kind, text in pieces)}{SECOND}</article>"
    read = blocks.read_blocks(page, "recall")
    kept = Counter(block.text for block in read if block.kept)
    once = {text for kind, text in pieces if len(text.split()) >= least[kind]}
    free = Counter(text for kind, text in pieces if len(text.split()) < least[kind])
    assert all(kept[text] <= (text in once) + free[text] for _, text in pieces)
    assert Counter(block.text for block in read if block.text == LONG) == Counter(
        text for _, text in pieces if text == LONG
    )


def test_siblings_may_repeat():
    refrain = "<p>And down came the rain on the old road again.</p>"
    song = "".join(f"<p>{SENTENCE.format(number)}</p>{refrain}" for number in range(9))
    assert extracted(f"<html><body><article>{song}</article></body></html>").count("down came the rain") == 9


def test_the_likeliest_copy_of_a_text_is_kept():
    menu = "".join(f"<li><a href=/{day}>{SENTENCE.format(day)}</a></li>" for day in range(9))
    text = extracted(
        f"<html><body><nav class=menu><ul>{menu}</ul></nav><article>{STORY}{SECOND}</article></body></html>"
    )
    assert text.split("\n") == [SENTENCE.format(day) for day in range(18)]


@given(
    st.lists(st.sampled_from(("<p>Yes.</p>", "<li>One", "<td>2", "<nav><a href=x>Menu</a></nav>", STORY)), max_size=9)
)
def test_each_favor_keeps_all_that_the_stricter_one_keeps(pieces):
    kept = [
        {at for at, block in enumerate(blocks.read_blocks("".join(pieces), favor)) if block.kept} for favor in FAVORS
    ]
    assert kept[0] <= kept[1] <= kept[2]


@pytest.mark.parametrize(
    "hidden",
    [
        "<p style='display:none'>{}</p>",
        "<div style='color:red; display : none'><p>{}</p></div>",
        "<div hidden><p>{}</p></div>",
        "<p style='visibility:hidden'>{}</p>",
        "<P STYLE='DISPLAY:NONE !important'>{}</P>",
        "<p>Seen <span hidden>{}</span></p>",
        "<style>.x, #y {{ display: none }}</style><p class='a x'>{}</p>",
        "<style>/* .z {{}} */ #y {{ visibility: hidden }}</style><div id=y><p>{}</p></div>",
        "<style>.x {{ display: block; display: none }}</style><p class=x>{}</p>",
        "<style>.b {{ display: inline }} .x {{ display: none }}</style><p class='b x'>{}</p>",
        "<style media=screen>.x {{ display: none }}</style><p class=x>{}</p>",
    ],
)
@pytest.mark.parametrize("favor", FAVORS)
def test_hidden_text_is_never_content(hidden, favor):
    spam = hidden.format("Cheap pills at the best price, without a prescription, and delivered to your door.")
    text = extracted(f"<html><body><article>{STORY}{spam}{SECOND}</article></body></html>", favor)
    assert "pills" not in text
    assert text.count("It took them") == 18


@pytest.mark.parametrize(
    "shown",
    [
        "<style>.x {{ display: none }} .x.on {{ display: block }}</style><div class=x>{}</div>",
        "<style>@media print {{ .x {{ display: none }} }}</style><div class=x>{}</div>",
        "<div hidden=until-found>{}</div>",
        "<div class=accordion hidden>{}</div>",
        "<div hidden id='S:1f'>{}</div>",
        "<div id='S:0' hidden>{}</div>",
        "<noscript>{}</noscript>",
        "<style>.x {{ display: none; color: red; display: flex }}</style><div class=x>{}</div>",
        "<style media='(min-width: 9em)'>.x {{ display: none }}</style><div class=x>{}</div>",
        r"<style>.x{{display:none}}@media(width > 9em){{.w\:y{{display:block}}}}</style><div class='x w:y'>{}</div>",
        "<style>.x {{ display: none }}</style><div class=x style='display: block'>{}</div>",
        "<button aria-controls='y x'>More</button><div id=x hidden>{}</div>",
        "<a aria-controls=x>More</a><style>#x {{ display: none }}</style><div id=x>{}</div>",
    ],
)
def test_text_that_readers_can_display_is_read(shown):
    """The rest of the page is longer: a page that hides most of its text is one that a script displays."""
    rest = "<p>" + "Some text of another kind. " * 300
    assert any("It took them" in text for text in texts(shown.format(STORY) + rest))


@pytest.mark.parametrize(
    "page",
    [
        f"<div style='display:none'>{STORY}</div><p>Wait.</p>",
        f"<div hidden><ul>{'<li><a href=x>It took them a day</a>' * 9}</ul></div><p>Wait.</p>",
    ],
)
def test_a_page_that_hides_most_of_its_text_is_read(page):
    assert any("It took them" in text for text in texts(page))


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>2026</p><svg><text>Axis</text><p>Next</p>", ["2026", "Next"]),
        ("<svg><foreignObject><div>Label</div></foreignObject></svg><p>Next</p>", ["Next"]),
        ("<noscript><iframe src=x /></noscript><p>Next</p>", ["Next"]),
        ("<button>Buy</button><button aria-expanded=false>How long does it take?</button><p>A day.</p>",
         ["How long does it take?", "A day."]),
        ("<p><span>2026</span><span>1h 30m</span><span>PG</span></p>", ["2026 1h 30m PG"]),
        ("<p><a href=a>river</a><a href=b>boats</a>, and fish</p>", ["river boats, and fish"]),
        ("<p><span>bo</span><span>at</span> H<sub>2</sub>O <b>b</b><i>C</i></p>", ["boat H2O bC"]),
        ("<pre><span>x1</span><span>23</span></pre>", ["x123"]),
    ],
)  # fmt: skip
def test_texts_of_elements_are_kept_and_parted_as_browsers_display_them(page, expected):
    assert texts(page) == expected


def told(first: int) -> str:
    names = ("mill", "weir", "ferry", "lock", "quay", "bridge", "tide", "market", "harbour")
    line = "The {} was closed on day {}, as the river was low, and the {} had to wait until the evening for it."
    return "".join(f"<p>{line.format(names[at], first + at, names[at - first])}</p>" for at in range(9))


MARKDOWN_PAGE = (
    f"<html><body><main><article>{told(1)}<h2>Fish <em>of</em> the year 2020</h2>{told(2)}"
    f"<ul><li>One boat, which was old<ul><li>Its inner wall</ul><li>Two boats</ul>{told(3)}"
    f"<table><tr><th>Year<th>Fish<tr><td>2020<td>a|b<tr><td>2021<td></table>{told(4)}"
    f"<pre>if x:\n    go()</pre>{told(5)}"
    "<blockquote><p>It was very low, they said, and it will be lower.</p></blockquote>"
    f"<p>See <a href='https://example.org/a?b=1'>the tide table</a> now, and before the next day.</p>{told(6)}"
)


def as_markdown(urls: str = "remove") -> str:
    stage = lc.text.ExtractText(engine="blocks", format="markdown", favor="recall", urls=urls)
    return stage(pa.table({"html": [MARKDOWN_PAGE]}))["text"].to_pylist()[0]


def test_markdown_is_what_another_reader_understands():
    from markdown_it import MarkdownIt

    html = MarkdownIt().enable("table").render(as_markdown("keep"))
    assert "<h2>Fish of the year 2020</h2>" in html
    items = ("One boat, which was old", "Its inner wall", "Two boats")
    pattern = r"<ul>\s*<li>{}\s*<ul>\s*<li>{}</li>\s*</ul>\s*</li>\s*<li>{}</li>\s*</ul>"
    assert re.search(pattern.format(*items), html)
    assert re.findall(r"<t[hd]>(.*?)</t", html) == ["Year", "Fish", "2020", "a|b", "2021", ""]
    assert "<pre><code>if x:\n    go()\n</code></pre>" in html
    assert re.search(r"<blockquote>\s*<p>It was very low, they said, and it will be lower.</p>", html)
    assert '<a href="https://example.org/a?b=1">the tide table</a> now' in html
    assert html.count("<p>The ") == 9 * 6


def test_markdown_without_urls_has_the_text_of_links():
    assert "See the tide table now," in as_markdown()
    assert "example.org" not in as_markdown()


def test_markdown_is_only_made_by_blocks():
    with pytest.raises(lc.errors.StageError, match="format"):
        lc.text.ExtractText(engine="trafilatura", format="markdown")


def test_a_page_within_one_link_has_text():
    assert "It took them" in extracted(f"<html><body><a href=/>{STORY}</a></body></html>", "recall")


@given(st.permutations(range(4)))
def test_a_text_does_not_depend_on_the_batch(order):
    pages = [f"<nav>Menu</nav><p>{'Some words, and some more of them. ' * (n + 2)}</p>" * (n + 1) for n in range(4)]
    stage = lc.text.ExtractText(engine="blocks")
    alone = [stage(pa.table({"html": [page]}))["text"][0].as_py() for page in pages]
    together = stage(pa.table({"html": [pages[number] for number in order]}))["text"].to_pylist()
    assert together == [alone[number] for number in order]
