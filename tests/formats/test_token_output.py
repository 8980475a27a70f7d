"""Texts of tokens beside an output."""

import json

from hypothesis import given
from hypothesis import strategies as st

from longcrawl.formats.token_output import unescape


@given(st.text(), st.integers(0, 40), st.booleans())
def test_escapes_are_undone_and_one_cut_at_the_end_is_dropped(text, cut, ensure_ascii):
    spelled = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
    assert unescape(spelled) == text
    part = unescape(spelled[:cut])
    assert text.startswith(part)
    assert len(part) >= len(spelled[:cut]) // 12 - 1
    part.encode()
