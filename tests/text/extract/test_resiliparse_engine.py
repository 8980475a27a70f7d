"""The engine resiliparse: the main text of a page, without comments and alternative texts."""

import pytest

from longcrawl.text.extract._resiliparse_engine import make_extractor


def test_the_main_text_stays():
    pytest.importorskip("resiliparse")
    page = "<html><body><main><p>The river rose in the night.</p><img alt=Bridge></main></body></html>"
    text = make_extractor("precision")(page)
    assert "The river rose in the night." in text
    assert "Bridge" not in text
