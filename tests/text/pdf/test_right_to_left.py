"""Lines of Arabic and Hebrew from the places of characters, against a naive layout of the same line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.text.pdf.right_to_left import compose_forms, right_to_left_lines

Boxes = list[tuple[float, ...]]
ABSENT = (float("nan"),) * 6


def placed(left_to_right: str, bottom: float = 0.0) -> Boxes:
    """Return boxes of characters that are five points wide and painted from edge to edge."""
    edges = [(5.0 * place, 5.0 * place + 5) for place in range(len(left_to_right))]
    return [(left, bottom, right, bottom + 10, left, right) for left, right in edges]


def parts(*lines: tuple[str, Boxes], is_mostly: bool = True) -> list:
    """Return the parts of lines without their boxes."""
    boxed = [(text, np.array(boxes, np.float32).reshape(-1, 6)) for text, boxes in lines]
    return [[text for text, _ in found] for found in right_to_left_lines(boxed, 1.4, is_mostly=is_mostly)]


def read(left_to_right: str, **fields: bool) -> list[str]:
    return parts((left_to_right, placed(left_to_right)), **fields)[0]


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
        ("40% בא", "אב 40%"),
        ("%40 \u0628", "\u0628 40%"),
        ("Node.js® בא", "אב Node.js®"),
        (")בא( דג", "גד (אב)"),
        ("(בא) דג", "גד (אב)"),
        ("Lucene (2.1) דג", "גד Lucene (2.1)"),
        ("f(x) דג", "גד f(x)"),
        ("run() דג", "גד run()"),
        ("{{x}} דג", "גד {{x}}"),
        ("Node.js בא.", "Node.js אב."),
        ("Linux, בא דג", "Linux, גד אב"),
        ("בא ,Linux", "Linux, אב"),
        ("- Linux בא", "- Linux אב"),
        ("2. Linux בא", "2. Linux אב"),
        ("Linux בא -", "- אב Linux"),
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


def test_a_line_with_more_latin_letters_is_read_from_the_left_unless_the_page_is_right_to_left():
    assert read("see Node.js דג", is_mostly=False) == ["see Node.js גד"]
    assert read("see Node.js דג", is_mostly=True) == ["גד see Node.js"]


def test_the_order_of_characters_in_the_file_does_not_matter():
    characters, boxes = "Node.js בא", placed("Node.js בא")
    assert parts((characters[::-1], boxes[::-1])) == parts((characters, boxes))


def test_a_gap_is_a_space_and_a_wide_one_begins_a_part():
    boxes = [(50, 0, 55, 10, 50, 55), (42, 0, 47, 10, 42, 47), (0, 0, 5, 10, 0, 5)]
    (found,) = right_to_left_lines([("אבג", np.array(boxes, np.float32))], 1.4, is_mostly=True)
    assert found == [("א ב", (42.0, 0.0, 55.0, 10.0)), ("ג", (0.0, 0.0, 5.0, 10.0))]


def test_a_line_that_is_broken_is_joined_and_lines_that_are_joined_are_separated():
    boxes = placed("דגבא")
    assert parts(("אב", boxes[:1:-1]), ("גד", boxes[1::-1])) == [["אבגד"], []]
    assert parts(("אבגד", boxes[:1:-1] + placed("דג", bottom=8)[::-1])) == [["אב", "גד"]]


@pytest.mark.parametrize("letters", ["\u0644\u0627", "\u0627\u0644"])
def test_lam_is_before_alef_in_a_ligature(letters):
    assert parts((letters, placed("x") * 2)) == [["\u0644\u0627"]]


def test_a_mark_is_behind_its_letter():
    letters = placed("xy")
    mark = (6.0, 0.0, 9.0, 10.0, 6.0, 9.0)
    assert parts(("\u0628\u062a\u064e", [letters[1], letters[0], mark])) == [["\u0628\u064e\u062a"]]


def test_a_final_form_inside_a_word_is_before_a_non_joiner():
    """A letter that does not join the next one ends before its edge; the non-joiner itself has no width."""
    word, ends = "\u0628\u0646\u0645\u06cc\u0631\u0648\u062f", 3
    lefts = [100.0 - 5 * place for place in range(len(word))]
    boxes = [(left, 0.0, left + 5, 10.0, left + (place == ends), left + 5) for place, left in enumerate(lefts)]
    assert parts((word, boxes)) == [[word[: ends + 1] + "\u200c" + word[ends + 1 :]]]


def test_without_initial_forms_there_are_no_non_joiners():
    word = "\u06a9\u062a\u0628"
    boxes = [(left, 0.0, left + 5, 10.0, left + 1, left + 4) for left in (10.0, 5.0, 0.0)]
    assert parts((word, boxes)) == [[word]]


def test_characters_that_are_not_in_the_file_are_left_out():
    left, _, right = placed("א ב")
    assert parts(("אב", [left, ABSENT])) == [["א"]]
    pen_moved = (5.0, 0.0, 5.0, 10.0, 5.0, 5.0)
    assert parts(("א ב", [right, pen_moved, (5.0, 0.0, 10.0, 10.0, 5.0, 10.0)])) == [["אב"]]


def test_only_presentation_forms_are_composed():
    assert compose_forms("\ufefb \ufb01 \u2460") == "\u0644\u0627 \ufb01 \u2460"
