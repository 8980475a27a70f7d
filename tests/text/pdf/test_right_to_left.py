"""Lines of Arabic and Hebrew from the places of characters, against a naive layout of the same line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.text.pdf.right_to_left import compose_forms, logical_pieces

NOT_A_NUMBER = float("nan")


def placed(left_to_right: str) -> list[tuple[float, float, float, float]]:
    return [(5.0 * place, 0.0, 5.0 * place + 5, 10.0) for place in range(len(left_to_right))]


def read(left_to_right: str) -> list[str]:
    return [text for text, _ in logical_pieces(left_to_right, placed(left_to_right), 1.4)]


@pytest.mark.parametrize(
    ("left_to_right", "logical"),
    [
        ("גבא", "אבג"),
        ("Node.js בא", "אב Node.js"),
        ("בא Node.js גד", "דג Node.js אב"),
        ("בא hello world גד", "דג hello world אב"),
        ("בא 3000 גד", "דג 3000 אב"),
        ("בא 3.14, 15 גד", "דג 15 ,3.14 אב"),
        (".בא", "אב."),
        ("Latin only", "Latin only"),
        ("3D בא", "אב 3D"),
        (" ", None),
        ("", None),
    ],
)
def test_runs_are_read_in_their_own_direction(left_to_right, logical):
    assert read(left_to_right) == ([] if logical is None else [logical])


@given(st.lists(st.text("אבגד", min_size=1, max_size=4) | st.text("abc", min_size=1, max_size=4), min_size=1))
def test_a_line_laid_out_from_the_right_is_read_back(words):
    """A naive layout: Hebrew words are reversed, and words follow each other leftwards, unless Latin ones meet."""
    words = [word for place, word in enumerate(words) if place == 0 or word[0] > "z" or words[place - 1][0] > "z"]
    laid_out = " ".join(word[::-1] if word[0] > "z" else word for word in reversed(words))
    assert read(laid_out) == [" ".join(words)]


def test_the_order_of_characters_in_the_file_does_not_matter():
    characters, boxes = "Node.js בא", placed("Node.js בא")
    assert logical_pieces(characters[::-1], boxes[::-1], 1.4) == logical_pieces(characters, boxes, 1.4)


def test_a_gap_is_a_space_and_a_wide_one_begins_a_piece():
    boxes = [(50.0, 0.0, 55.0, 10.0), (42.0, 0.0, 47.0, 10.0), (0.0, 0.0, 5.0, 10.0)]
    assert logical_pieces("אבג", boxes, 1.4) == [
        ("א ב", (42.0, 0.0, 55.0, 10.0)),
        ("ג", (0.0, 0.0, 5.0, 10.0)),
    ]


def test_letters_of_a_ligature_and_marks_keep_their_order():
    lam_alef = [(0.0, 0.0, 5.0, 10.0)] * 2
    assert logical_pieces("\u0644\u0627", lam_alef, 1.4)[0][0] == "\u0644\u0627"
    mark = [(0.0, 0.0, 5.0, 10.0), (3.0, 0.0, 4.0, 10.0)]
    assert logical_pieces("\u0628\u064e", mark, 1.4)[0][0] == "\u0628\u064e"


def test_characters_that_are_not_in_the_file_are_left_out():
    boxes = [(5.0, 0.0, 10.0, 10.0), (NOT_A_NUMBER,) * 4, (0.0, 0.0, 5.0, 10.0)]
    assert logical_pieces("א ב", boxes, 1.4)[0][0] == "אב"


def test_only_presentation_forms_are_composed():
    assert compose_forms("\ufefb \ufb01 \u2460") == "\u0644\u0627 \ufb01 \u2460"
