"""Structured data: texts of JSON-LD and microdata, what is filled in, metadata, and pages that do harm."""

import json
import time

import pyarrow as pa
import pytest

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.run.recipe import parse_recipe
from longcrawl.text.extract.structured_data import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_ITEMS,
    NEARLY_EMPTY,
    Metadata,
    fill_in,
    plain_text,
    read_metadata,
    read_passages,
)

KETTLE = "The kettle holds two litres, whistles softly, and is made of steel that does not rust."
LAMP = "A lamp for the desk with an arm that bends three ways and a switch on its foot."
LONG = " ".join(f"Sentence {number} of the story tells how the ferry crossed the sound." for number in range(20))


def script(*values, raw: str | None = None) -> str:
    contents = [raw] if raw is not None else [json.dumps({"@context": "https://schema.org"} | each) for each in values]
    return "".join(f'<script type="application/ld+json">{each}</script>' for each in contents)


def item(kind: str, inside: str) -> str:
    return f'<div itemscope itemtype="https://schema.org/{kind}">{inside}</div>'


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (script({"@type": "Product", "description": KETTLE}), [KETTLE]),
        (script({"@graph": [{"@type": ["Thing", "Product"], "description": LAMP}]}), [LAMP]),
        (script({"@type": "WebPage", "mainEntity": {"@type": "NewsArticle", "articleBody": LONG}}),
         [LONG]),
        (script({"@type": "Organization", "description": KETTLE}), []),
        (script(raw='{"@type": "Product", "description": ') + script({"@type": "Product", "description": LAMP}),
         [LAMP]),
        (script(raw='<!-- [{"@type": "Product", "description": "a\nb"}]; -->'), ["a\nb"]),
        (script({"@type": "Recipe", "description": "Soup.", "recipeIngredient": ["1 leek", "2 carrots"],
                 "recipeInstructions": [{"@type": "HowToSection", "itemListElement": [{"text": "Chop."}, "Boil."]}]}),
         ["Soup.\n1 leek\n2 carrots\nChop.\nBoil."]),
        (script({"@type": "QAPage", "mainEntity": {"@type": "Question", "name": "Why?", "acceptedAnswer":
                 {"@type": "Answer", "text": "Because."}, "suggestedAnswer": [
                     {"@type": "Answer", "text": "Or not."}]}}),
         ["Why?", "Because.", "Or not."]),
        (item("DiscussionForumPosting", '<p itemprop="articleBody">One <b>two</b></p>'
              + item("Comment", '<div itemprop="text"><div>three</div><script>x</script> four</div>')),
         ["One two", "three\nfour"]),
        (item("Product", item("Offer", '<i itemprop="description">no</i>')
              + '<meta itemprop="name description" content="5 &gt; 4">'),
         ["5 > 4"]),
        (item("Product", '<img itemscope><p itemprop="description">never closed'), ["never closed"]),
        ('<p itemprop="text">of nothing</p> https://schema.org/Comment', []),
    ],
)  # fmt: skip
def test_texts_of_structured_data(page, expected):
    assert read_passages(page.encode()) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("<p>One<br/>two</p><style>p{}</style><p>a &lt;b&gt; c", "One\ntwo\na <b> c"),
        ("&lt;p&gt;Salt &amp;amp; pepper&lt;/p&gt;", "Salt & pepper"),
        ("3 < 4 &amp; 5", "3 < 4 & 5"),
        ("a \ud800 b", "a ? b"),
        (f"&#{'9' * 5000};", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_values_as_plain_text(value, expected):
    assert plain_text(value) == expected


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("", script({"@type": "Product", "description": KETTLE}), KETTLE),
        ("Kettle", script({"@type": "Product", "description": KETTLE}), f"Kettle\n\n{KETTLE}"),
        (KETTLE, script({"@type": "Product", "description": KETTLE.upper().replace(",", "")}), KETTLE),
        (KETTLE, script({"@type": "Product", "description": "A kettle."}), KETTLE),
        (LONG, script({"@type": "Product", "description": LAMP * 40}), LONG),
        ("", script({"@type": "Comment", "text": LAMP[:60]}, {"@type": "Comment", "text": LAMP}), LAMP),
        ("", script({"@type": "Comment", "text": LAMP}, {"@type": "Comment", "text": KETTLE}), f"{LAMP}\n\n{KETTLE}"),
        (LONG[:450], script({"@type": "Article", "articleBody": LONG[:1000]}), LONG[:1000]),
        ("", script({"@type": "Product", "description": LAMP}) + item("Product", f'<p itemprop="description">{LAMP}'),
         LAMP),
        (f"The ferry\n{LONG[:150]}\nRead on", script({"@type": "Article", "articleBody": LONG}),
         f"The ferry\n\n{LONG}\n\nRead on"),
        ("Kettle", "<p>schema.org</p>", "Kettle"),
    ],
)  # fmt: skip
def test_only_what_a_nearly_empty_text_lacks_is_filled_in(text, page, expected):
    assert len(LONG) > NEARLY_EMPTY
    assert fill_in(text, page.encode()) == expected


META = '<meta property="og:title" content="Ferries &amp; tides"><META name=author content="Ada Holm">'
DATED = '<meta property="article:published_time" content="2021-02-03T04:05:06Z">'


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", (None, None, None)),
        ("<title>\n A title </title>", ("A title", None, None)),
        (f"<title>A title</title>{META}{DATED}", ("Ferries & tides", "Ada Holm", "2021-02-03T04:05:06Z")),
        (META + script({"@type": "BlogPosting", "headline": "On tides", "datePublished": "2020-01-02",
                        "author": [{"name": "B. Lund"}, "C. Dahl", {"name": "https://example.org"}]}),
         ("On tides", "B. Lund, C. Dahl", "2020-01-02")),
        (META + script(*({"@type": "Article", "headline": each} for each in "ab")),
         ("Ferries & tides", "Ada Holm", None)),
        (script({"@graph": [{"@type": "Article", "headline": "x", "author": {"@id": "#a"}},
                            {"@id": "#a", "name": "Y"}]}),
         ("x", "Y", None)),
        ('<meta name="date" content="2021-02-30"><time datetime="3 May"></time>', (None, None, None)),
        (script({"@type": "Recipe", "name": "\ud800", "datePublished": "2021-02-03\ud80010:00"}), ("?", None, None)),
        ('<meta name="author" content="https://example.org/ada"><time class="a" datetime="2019-05-03 10:00">now</time>',
         (None, None, "2019-05-03T10:00")),
    ],
)  # fmt: skip
def test_metadata(page, expected):
    assert read_metadata(page.encode()) == Metadata(*expected)


OBJECT = '{"@type":"Product","description":"a b"}'
SCOPE, TEXT = '<div itemscope itemtype="https://schema.org/Comment">', '<p itemprop="text">'


@pytest.mark.variants
@pytest.mark.parametrize(
    "page",
    [
        script(raw=f'{{"@type":"Product","description":"{"a " * MAX_BYTES}"}}'),
        script(raw=f"[{','.join([OBJECT] * 40_000)}]"),
        script(raw=OBJECT) * 3_000,
        script(raw="[" * 100_000 + OBJECT + "]" * 100_000),
        script(raw="[" * MAX_DEPTH + OBJECT + "]" * MAX_DEPTH),
        '<script type="application/ld+json">' * 10_000,
        SCOPE * 5_000,
        SCOPE + TEXT * 10_000,
        (SCOPE + TEXT) * 4_000,
        SCOPE + f"{TEXT}a b c d</p>" * 3_000 + "</div>",
        f"{SCOPE}{TEXT}a b c d</p></div>" * 3_000,
        "<ld+json" * 50_000,
        "https://schema.org/Comment" + "itemprop" * 50_000,
        "<meta " * 50_000 + "<time " * 50_000 + "<title " * 50_000,
        "<meta " + 'a="' * 100_000 + ">",
    ],
    ids=range(15),
)
def test_hostile_pages_take_bounded_time(page):
    page = f"https://schema.org {page}".encode()
    started = time.process_time()
    assert sum(map(len, read_passages(page))) < 10 * MAX_ITEMS
    assert read_metadata(page) == Metadata()
    assert time.process_time() - started < 2


def test_stage_fills_in_only_for_blocks():
    page = "<html><body><p>Kettle</p>" + script({"@type": "Product", "description": KETTLE}) + "</body></html>"
    documents = pa.table({"id": ["a"], "html": [page]})
    assert KETTLE in lc.text.ExtractText(engine="blocks")(documents)["text"][0].as_py()
    made, _ = lc.text.ExtractText(engine="resiliparse").edit(documents)
    assert KETTLE not in made["text"][0].as_py()


@pytest.mark.parametrize("engine", ["blocks", "resiliparse"])
def test_metadata_columns(engine):
    pages = [f"<html><head>{META}{DATED}</head><body><p>{LONG}</p></body></html>", None, "x" * 2000 + META]
    documents = pa.table({"id": ["a", "b", "c"], "html": pages, "text": [None, "given", None]})
    made, _ = lc.text.ExtractText(engine=engine, metadata=True, max_bytes=1999).edit(documents)
    assert made.column_names == ["id", "text", "title", "author", "published"]
    assert made.select(["title", "author", "published"]).to_pylist() == [
        {"title": "Ferries & tides", "author": "Ada Holm", "published": "2021-02-03T04:05:06Z"},
        *[dict.fromkeys(("title", "author", "published"))] * 2,
    ]
    with pytest.raises(StageError, match="extract_text.metadata adds a column 'author', which the documents already"):
        lc.text.ExtractText(engine=engine, metadata=True).edit(documents.append_column("author", documents["id"]))


def test_metadata_changes_the_digest_only_if_it_is_set():
    spec = {
        "longcrawl": 1, "name": "pages", "about": "Made in a test.",
        "source": {"builder": "text", "id_field": "id", "data_dir": "x"}, "outputs": {"parquet": {}},
    }  # fmt: skip
    plain, unset, chosen = (
        parse_recipe(spec | {"stages": [{"extract_text": fields}]})
        for fields in ({}, {"metadata": False}, {"metadata": True})
    )
    assert "metadata" not in plain.stages[0][1].settings()
    assert plain.digest == unset.digest != chosen.digest
