"""Running lines, against a window that holds all pages."""

import re

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


def test_numbers_alone_leave_at_any_height():
    pages = [[*page(number), line(str(number), 20 + number % 3 * 10)] for number in range(12)]
    assert through(pages) == [body(number) for number in range(12)]


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
    assert through([page(1)] * 9) == [body(1)[1:-1]] * 9


def test_at_most_nine_pages_are_held():
    window = RunningLines(100)
    for number in range(100):
        list(window.add(page(number, f"Title {number}")))
        assert len(window._window) <= 9


LEADERS = re.compile(r"(?:\s*[.·…]){4,}\s*((?:\d{1,4}|[ivxlc]{1,7})?)$")


@given(st.lists(st.sampled_from(["", "one", "two", "three"]), max_size=30))
def test_density_is_that_of_the_nine_pages_around(headers):
    """Headers have a place of their own, so that only they can match."""
    pages = [page(number, header and f"{header} title") for number, header in enumerate(headers)]
    expected = []
    for number, header in enumerate(headers):
        around = headers[max(0, number - 4) : number + 5]
        drops = not header or around.count(header) >= (3 if len(headers) > 2 else 2)
        expected.append(drops)
    assert [not lines[0].endswith("title") for lines in through(pages)] == expected


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
