"""Explanations of the engine "blocks"."""

import json
import re

import pyarrow as pa
import pytest

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text import explain_page

STORY = "".join(
    f"<p>On day {n} the boats & nets came back to the <b>harbour</b> before noon, as always.</p>" for n in range(9)
)
PAGE = f"<html><body><nav><a href=/>Home</a></nav><article>{STORY}</article><footer>Imprint</footer></body></html>"


def test_an_explanation_has_all_blocks_and_keeps_those_of_the_text():
    found = explain_page(PAGE)
    (text,) = lc.text.ExtractText(engine="blocks")(pa.table({"html": [PAGE]}))["text"].to_pylist()
    assert [block.text for block in found.blocks if block.kept] == text.split("\n")
    assert [found.blocks[0].text, found.blocks[-1].text] == ["Home", "Imprint"]
    assert all(0 < block.chance < 1 for block in found.blocks)


def test_an_explanation_is_a_line_per_block_and_colours_in_a_notebook():
    found = explain_page(PAGE)
    first, *lines = str(found).split("\n")
    assert first == "9 of 11 blocks are kept"
    assert [line[0] for line in lines] == ["-", *"+" * 9, "-"]
    assert (
        lines[1]
        == f"+ {found.blocks[1].chance:.2f} On day 0 the boats & nets came back to the harbour before noon, as always."
    )
    shown = found._repr_html_()
    assert shown.count("<div") == 3
    assert "boats &amp; nets" in shown


def test_control_characters_of_a_page_are_escaped():
    (line,) = explain_page("<p>one\u009b31m\u202etwo").lines(99)
    assert line.endswith(r" one\x9b31m\u202etwo")


def test_a_stage_explains_what_it_does_with_a_page():
    body = "The boats came back to the harbour before noon. " * 9
    article = {"@context": "https://schema.org", "@type": "Article", "articleBody": body}
    page = f"<p>Loading</p><script type='application/ld+json'>{json.dumps(article)}</script>"
    extract = lc.text.ExtractText(engine="blocks", max_bytes=9_000)
    said = extract.explain_page(page).summary()
    assert re.fullmatch("1 of 1 blocks are kept; structured data of the page adds 4.. characters", said)
    assert str(extract.explain_page(f"<p>{'é' * 5_000}")).startswith("the page has 10,003 bytes, more than max_bytes")
    with pytest.raises(StageError, match="only with engine 'blocks', not 'trafilatura'"):
        lc.text.ExtractText().explain_page(page)


def test_a_page_without_text_has_no_blocks():
    assert str(explain_page("<script>1</script>")) == "0 of 0 blocks are kept"
