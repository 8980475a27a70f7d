"""Lines in reading order, from words with boxes that are made here."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.text.pdf.lines import Line, page_lines, reading_order, spelled
from longcrawl.text.pdf.words import Words


def words_of(*lines: list[tuple[str, float, float]], height: float = 10.0, characters=None) -> Words:
    """Return words of lines, each a text with left edge and bottom; a character is five points wide."""
    text, starts, numbers, boxes = "", [], [], []
    for number, line in enumerate(lines):
        for word, left, bottom in line:
            starts.append((len(text), len(text) + len(word)))
            numbers.append(number)
            boxes.append((left, bottom, left + 5 * len(word), bottom + height))
            text += f"{word} "
        text = text[:-1] + "\r\n"
    places = np.array(starts, np.int64).reshape(-1, 2)
    corners = np.array(boxes, np.float32).reshape(-1, 4)
    climbs = np.zeros(len(places), np.bool_)
    return Words(text, places[:, 0], places[:, 1], np.array(numbers, np.int64), corners, climbs, characters)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def sentence(text: str, left: float, bottom: float) -> list[tuple[str, float, float]]:
    placed = []
    for word in text.split():
        placed.append((word, left, bottom))
        left += 5 * len(word) + 3
    return placed


def column(name: str, left: float, lines: int = 8) -> list[Line]:
    return [Line(f"{name} {number} of a column", left, 700 - 12 * number, left + 200, 710 - 12 * number)
            for number in range(lines)]  # fmt: skip


@pytest.mark.parametrize("after", [True, False])
def test_markers_drawn_elsewhere_are_before_their_items(after):
    items = [sentence(f"entry {name} of a list", 70, 700 - 14 * place) for place, name in enumerate(("one", "two"))]
    markers = [[(f"{number}.", 50, 714 - 14 * number)] for number in (1, 2)]
    other = sentence("a paragraph below the list", 50, 640)
    lines = page_lines(words_of(*([*items, other, *markers] if after else [*markers, *items, other])))
    expected = ["1.", "entry one of a list", "2.", "entry two of a list", "a paragraph below the list"]
    assert texts(lines) == expected


@pytest.mark.parametrize("markers", [["(1)"], ["(21)", "(22)"], ["\u2013", "\u2013"], ["1."]])
def test_numbers_of_equations_and_cells_are_no_markers(markers):
    """They are at the right edge of a column, next to the other one."""
    left = [sentence(f"line {number} of the left column", 50, 700 - 14 * number) for number in range(4)]
    numbers = [[(marker, 280, 700 - 14 * place)] for place, marker in enumerate(markers, 1)]
    right = [sentence(f"line {number} of the right column", 310, 700 - 14 * number) for number in range(4)]
    found = texts(page_lines(words_of(*left, *numbers, *right)))
    assert found[4 : 4 + len(markers)] == markers


def test_words_taller_than_wide_do_not_turn_a_page():
    words = words_of(sentence("tallest letters", 50, 100), height=60)
    assert texts(page_lines(words)) == ["tallest letters"]


def test_a_page_without_words_has_no_lines():
    assert page_lines(words_of()) == []


def test_words_of_a_line_are_one_line_with_one_box():
    (line,) = page_lines(words_of(sentence("one small line", 50, 700)))
    assert line == Line("one small line", 50, 700, 50 + 5 * 12 + 6, 710)
    assert line.height == 10


def test_a_line_is_cut_at_a_gap_wider_than_between_words():
    found = page_lines(words_of([("left", 50, 700), ("word", 73, 700), ("right", 130, 700)]))
    assert texts(found) == ["left word", "right"]


def test_a_mark_of_a_hyphen_begins_a_line():
    whole = "exam\x02ple"
    starts, stops, numbers, climbs = np.array([0, 5]), np.array([5, 8]), np.array([0, 1]), np.zeros(2, np.bool_)
    boxes = np.array([(50, 700, 75, 710), (50, 688, 65, 698)], np.float32)
    assert texts(page_lines(Words(whole, starts, stops, numbers, boxes, climbs, None))) == [
        "exam-",
        "ple",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("of\ufb01ce \ufb04", "office ffl"),
        ("no\u00a0break", "no break"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("\x00con\x1ftrol\x7f", "control"),
        ("two  spaces\tand", "two spaces and"),
        ("soft\u00ad", "soft\u00ad"),
        ("\uf0b7 item \ue123", "\u2022 item"),
        ("plain", "plain"),
    ],
)
def test_characters_are_spelled_out(text, expected):
    assert spelled(text) == expected


@given(st.text("a \x00\ufb01\u00a0\u3000é\t", max_size=20))
def test_spelled_text_has_single_spaces_and_no_ligature(text):
    found = spelled(text)
    assert spelled(found) == found
    assert "\ufb01" not in found
    assert "\x00" not in found


def test_content_order_is_kept():
    lines = column("left", 50) + column("right", 300)
    assert reading_order(lines) == lines


def test_columns_that_the_file_writes_row_by_row_are_read_one_after_the_other():
    left, right = column("left", 50), column("right", 300)
    rows = [line for pair in zip(left, right, strict=True) for line in pair]
    assert reading_order(rows) == left + right


def test_a_heading_over_columns_is_first():
    heading = Line("A heading over both of the columns", 50, 740, 500, 750)
    left, right = column("left", 50), column("right", 300)
    rows = [line for pair in zip(left, right, strict=True) for line in pair]
    assert reading_order([*rows, heading]) == [heading, *left, *right]


def test_lines_written_from_the_bottom_are_read_from_the_top():
    lines = [Line(f"line {number}", 50, 700 - 20 * number, 200, 710 - 20 * number) for number in range(12)]
    assert reading_order(lines[::-1]) == lines


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_turned_text_is_read_as_upright_text(angle):
    plain = words_of(sentence("a margin of several words", 52, 100), sentence("beside a printed column", 52, 88))
    x0, y0, x1, y1 = plain.boxes.T
    turned = {0: [x0, y0, x1, y1], 90: [-y1, x0, -y0, x1], 180: [-x1, -y1, -x0, -y0], 270: [y0, -x1, y1, -x0]}
    climbs = np.full(len(plain.starts), angle in (90, 270))
    lines = page_lines(plain._replace(boxes=np.stack(turned[angle], axis=1), climbs=climbs))
    assert lines == page_lines(plain)
    assert texts(lines) == ["a margin of several words", "beside a printed column"]


def test_a_right_to_left_line_is_ordered_by_its_characters():
    hebrew, latin = "\u05d0\u05d1\u05d2\u05d3\u05d4\u05d5\u05d6", "Node.js"
    text = f"js.Node {hebrew}\r\n"
    # In the file, from the left: Node.js, a space, and the Hebrew letters from the right.
    places = {each: 5 * place for place, each in enumerate(f"{latin} {hebrew[::-1]}")}
    lefts = np.array([places.get(each, np.nan) for each in text], np.float32)
    boxes = np.stack([lefts, lefts * 0 + 700, lefts + 5, lefts * 0 + 710, lefts, lefts + 5], axis=1)
    bounds = np.array([[0, 7], [8, 15]])
    words = np.array([(0, 700, 35, 710), (40, 700, 75, 710)], np.float32)
    found = page_lines(
        Words(text, bounds[:, 0], bounds[:, 1], np.zeros(2, np.int64), words, np.zeros(2, np.bool_), boxes)
    )
    assert texts(found) == [f"{hebrew} {latin}"]


def test_on_a_right_to_left_page_the_right_column_is_first():
    """Boxes of all lines are mirrored, so that paragraphs and columns begin on the left."""
    lefts = {"right": 300, "left": 50}
    lines = [(name, 700 - 12 * number) for number in range(8) for name in lefts]
    text = "".join("\u05d0\u05d1\u05d2\u05d3\u05d4\u05d5 " * 5 + f"{name[0]}\r\n" for name, _ in lines)
    size = len(text) // len(lines)
    edges = np.array([(lefts[name] + 5.0 * (size - place), bottom) for name, bottom in lines for place in range(size)])
    left, bottom = edges.T.astype(np.float32)
    boxes = np.stack([left, bottom, left + 5, bottom + 10, left, left + 5], axis=1)
    starts = np.arange(0, len(text), size)
    words = boxes[starts, :4]
    words[:, 0] -= 5 * (size - 3)
    climbs = np.zeros(len(starts), np.bool_)
    found = page_lines(Words(text, starts, starts + size - 3, np.arange(len(starts)), words, climbs, boxes))
    assert "".join(line.text[-1] for line in found) == "r" * 8 + "l" * 8
    assert all(line.left == -(lefts["right"] + 5.0 * size + 5) for line in found[:8])
