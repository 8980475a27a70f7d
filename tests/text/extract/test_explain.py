"""Explanations of the engine "blocks"."""

import pyarrow as pa

import longcrawl as lc
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
    assert [line.split()[1] for line in lines] == ["removed", *["kept"] * 9, "removed"]
    shown = found._repr_html_()
    assert shown.count("<div") == 3
    assert "boats &amp; nets" in shown


def test_a_page_without_text_has_no_blocks():
    assert str(explain_page("<script>1</script>")) == "0 of 0 blocks are kept"
