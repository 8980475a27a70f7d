"""Words in which two texts differ."""

import random

from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.word_diff import COMPARED, diff_words


def test_a_diff_shows_words_and_leaves_equal_ones_out():
    words = [f"word{number}" for number in range(500)]
    changed = [*words[:100], "new", *words[101:400], *words[405:]]
    diff = diff_words(" ".join(words), "  ".join(changed))
    assert diff.differences == 2
    assert "word99 [-word100-] {+new+} word101" in str(diff)
    assert "[-word400 word401 word402 word403 word404-]" in str(diff)
    assert str(diff).startswith("[… 88 words …] word88 ")
    assert "<ins " in diff._repr_html_()
    assert diff_words("a b", "a b").summary() == "equal"
    assert diff_words("a b", "a\nb").summary() == "equal but for white space"
    assert str(diff_words("双城记", "双都记")) == "双 [-城-] {+都+} 记"
    assert diff_words("x " * COMPARED, "x " * COMPARED + "y").summary().endswith("characters of each are equal")


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.lists(st.sampled_from("abcd"), max_size=40))
def test_a_diff_holds_both_texts(one, other):
    diff = diff_words(" ".join(one), " ".join(other))
    if diff.differences > 10 or any(piece.kind == "left out" for piece in diff.pieces) or not diff.pieces:
        return
    for kind, words in (("removed", one), ("added", other)):
        assert " ".join(piece.text for piece in diff.pieces if piece.kind in ("same", kind)).split() == words


def test_texts_without_a_common_word_take_no_time_for_it():
    chance = random.Random(1)
    one, other = (" ".join(chance.choices("ab", k=200_000)) for _ in range(2))
    assert diff_words(one, other).differences >= 1
