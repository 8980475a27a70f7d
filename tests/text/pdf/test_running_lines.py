"""Running lines, against naive rules over all pages."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.text.pdf.lines import Line
from longcrawl.text.pdf.running_lines import RunningLines, _before_leaders, without_leaders


def line(text: str, bottom: float, left: float = 50) -> Line:
    return Line(text, left, bottom, left + 6 * len(text), bottom + 10)


def unique(number: int) -> str:
    """Return a word for a number, without digits."""
    return "z" + "".join(chr(ord("k") + int(digit)) for digit in str(number))


def body(number: int) -> list[str]:
    return [unique(100 * number + place) for place in range(10)]


def page(number: int, header: str = "", footer: str = "") -> list[Line]:
    """Return a page whose body is like that of no other page."""
    lines = [line(text, 650 - 12 * place) for place, text in enumerate(body(number))]
    head = [line(header, 760)] if header else []
    foot = [line(footer, 30)] if footer else []
    return head + lines + foot


def through(pages: list[list[Line]]) -> list[list[str]]:
    window = RunningLines(len(pages))
    kept = [cleared.lines for each in pages for cleared in window.add(each)]
    kept += [cleared.lines for cleared in window.end()]
    return [[each.text for each in lines] for lines in kept]


def test_headers_footers_and_numbers_leave_and_the_rest_stays():
    pages = [page(number, "The Annual Report", f"Page {number} of 12") for number in range(12)]
    assert through(pages) == [body(number) for number in range(12)]


@pytest.mark.parametrize("shown", ["{}", "- {} -", "{} of 40", "[{}]"])
def test_page_numbers_are_removed_at_any_height(shown):
    pages = [[*page(number), line(shown.format(number + 7), 20 + number % 3 * 10)] for number in range(12)]
    assert through(pages) == [body(number) for number in range(12)]


def test_a_number_beside_a_running_line_is_removed_with_it():
    pages = [[*page(number, "Proceedings"), line("2026", 760, left=500)] for number in range(6)]
    assert through(pages) == [body(number) for number in range(6)]
    alone = [[*page(number), line("2026", 760, left=500)] for number in range(6)]
    assert through(alone) == [[*body(number), "2026"] for number in range(6)]


def test_numbers_of_spreads_beside_a_running_line_are_removed():
    pages = [[*page(number, "Proceedings"), line(str(2 * number + 1), 760, left=500)] for number in range(6)]
    assert through(pages) == [body(number) for number in range(6)]


def test_values_beside_the_labels_of_a_form_are_kept():
    pages = [[*page(number, "Invoice"), line(str(11 + 7919 * number % 8999), 760, left=500)] for number in range(8)]
    assert [texts[-1] for texts in through(pages)] == [lines[-1].text for lines in pages]


def test_roman_page_numbers_are_removed_and_single_letters_kept():
    romans = ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii"]
    pages = [[*page(number), line(roman, 30)] for number, roman in enumerate(romans)]
    assert through(pages) == [body(number) for number in range(12)]
    pages = [[*page(number), line("x", 30)] for number in range(0, 48, 4)]
    assert through(pages) == [[*body(number), "x"] for number in range(0, 48, 4)]


@pytest.mark.parametrize("entry", ["{}", "Town {}", "No. {}: sold for 38 pounds", "22.{} Version 3.5"])
def test_numbers_that_do_not_count_with_the_pages_are_kept(entry):
    """Registers, price lists and numbered headings, whose lines are at equal heights on all pages."""
    values = [[entry.format(44 * number + place * place) for place in range(12)] for number in range(9)]
    pages = [[line(text, 700 - 15 * place) for place, text in enumerate(texts)] for texts in values]
    assert through(pages) == values


def test_cells_that_repeat_in_a_column_are_kept():
    def row(number: int, place: int) -> list[Line]:
        cells = [unique(100 * number + place), "yes", "kg", "0.5"]
        return [line(cell, 700 - 15 * place, 50 + 100 * column) for column, cell in enumerate(cells)]

    pages = [[cell for place in range(8) for cell in row(number, place)] for number in range(9)]
    assert through(pages) == [[cell.text for cell in each] for each in pages]


def test_removal_ends_at_the_first_line_that_is_kept():
    pages = [[line("Running title", 760), *page(number), line("Thanks", 652)] for number in range(9)]
    pages = [[line(unique(number), 780), *each] if number == 4 else each for number, each in enumerate(pages)]
    kept = through(pages)
    assert "Running title" not in kept[3]
    assert kept[4][:2] == [unique(4), "Running title"]
    assert all("Thanks" in texts for texts in kept)


def test_a_form_is_kept_and_a_header_on_a_blank_page_removed():
    form = [line("Name:", 700), line("Signed:", 40)]
    assert through([form] * 6) == [["Name:", "Signed:"]] * 6
    pages = [page(number, "Title") if number != 3 else [line("Title", 760)] for number in range(9)]
    assert through(pages) == [body(number) if number != 3 else [] for number in range(9)]


def test_a_chapter_title_leaves_from_the_pages_of_its_chapter():
    pages = [page(number, f"{'First' if number < 5 else 'Second'} chapter") for number in range(10)]
    assert through(pages) == [body(number) for number in range(10)]


def test_entries_that_repeat_far_apart_stay():
    """A register repeats its entries, but not on neighbouring pages."""
    pages = [page(number, f"Entry {unique(number % 8)} of the register") for number in range(40)]
    assert all(len(lines) == 11 for lines in through(pages))


def test_two_pages_of_two_are_enough():
    pages = [page(number, "Letter of an office") for number in range(2)]
    assert through(pages) == [body(0), body(1)]
    assert through([*pages, page(2), page(3)])[0][0] == "Letter of an office"


def test_equal_lines_outside_the_bands_stay():
    assert through([page(1)] * 9) == [body(1)[2:-2]] * 9


def test_at_most_nine_pages_are_held():
    window = RunningLines(100)
    for number in range(100):
        list(window.add(page(number, f"Title {number}")))
        assert len(window._window) <= 9


LEADERS = re.compile(r"(?:\s*[.·…]){4,}\s*((?:\d{1,4}|[ivxlc]{1,7})?)$")


@given(st.lists(st.sampled_from(["", "one", "two"]), max_size=30))
def test_headers_are_those_of_three_pages_in_a_row_or_of_one_side(headers):
    """Headers have a place of their own, so that only they can match."""
    pages = [page(number, header and f"{header} title") for number, header in enumerate(headers)]
    least = 3 if len(headers) > 2 else 2
    expected = [not header for header in headers]
    for step in (1, 2):
        for first in range(len(headers) - step * (least - 1)):
            numbers = range(first, first + step * least, step)
            if len({headers[number] for number in numbers}) == 1:
                expected = [drops or number in numbers for number, drops in enumerate(expected)]
    assert [not lines[0].endswith("title") for lines in through(pages)] == expected


@given(st.lists(st.sampled_from([None, 0, 7]), max_size=30))
def test_page_numbers_are_those_that_count_with_three_of_nine_pages(offsets):
    pages = [
        page(number, footer="" if offset is None else f"Page {number + offset}")
        for number, offset in enumerate(offsets)
    ]
    least = 3 if len(offsets) > 2 else 2
    expected = [
        offset is None or offsets[max(0, number - 4) : number + 5].count(offset) >= least
        for number, offset in enumerate(offsets)
    ]
    assert [not lines[-1].startswith("Page") for lines in through(pages)] == expected


def test_leaders_and_their_page_numbers_leave():
    entries = [line(f"{number} Chapter . . . . . . . {number * 7}", 600 - 12 * number) for number in range(1, 4)]
    entries += [line("Preface", 500), line("iv", 500, 400), line("Dots....", 480), line("in 1995", 460)]
    found = without_leaders(entries).lines
    assert [each.text for each in found] == ["1 Chapter", "2 Chapter", "3 Chapter", "Preface", "Dots", "in 1995"]
    assert found[0].right == found[0].left


def test_a_page_without_leaders_is_returned_as_it_is():
    lines = [line("wait...", 600), line("7", 588), line("3.14", 576)]
    assert without_leaders(lines).lines is lines


@given(st.text("i1 .\u00b7\u2026", max_size=14))
def test_leaders_are_those_of_the_expression(text):
    expected = LEADERS.search(text) if text[-1:] in "0123456789ivxlc.·…" else None
    assert _before_leaders(text) == (expected and text[: expected.start()])
