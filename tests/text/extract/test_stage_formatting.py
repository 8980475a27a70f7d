"""Formatting: every rule on small texts, and all of them against plain loops over characters."""

import itertools
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError

OF_RFC_3986 = frozenset("-._~:/?#[]@!$&'()*+,;=%abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
PAIRS = "() [] <> （） ［］ 【】 〔〕 〈〉 《》 「」 『』 “” ‘’ «» ‹› „“".split()  # noqa: RUF001, SIM905
ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def in_a_url(letter: str) -> bool:
    if letter in OF_RFC_3986:
        return True
    spaced = 0x80 <= ord(letter) <= 0xDFF or 0x1E00 <= ord(letter) <= 0x1FFF
    return spaced and (letter.isalnum() or unicodedata.category(letter).startswith("M"))


def url_at(line: str, at: int) -> int:
    """Return where a URL that begins here ends, or 0."""
    for scheme in ("http://", "https://", "ftp://"):
        body = at + len(scheme)
        same = len(line) >= body and all(a in (b, b.upper()) for a, b in zip(line[at:], scheme, strict=False))
        if same and line[body : body + 1] and in_a_url(line[body]):
            break
    else:
        before = line[at - 1] if at else " "
        if before.isalnum() or before in "_." or line[at : at + 4] not in {
            a + b + c + "." for a in "wW" for b in "wW" for c in "wW"
        }:  # fmt: skip
            return 0
        if at + 4 >= len(line) or line[at + 4] not in ALNUM:
            return 0
    end = at
    while end < len(line) and in_a_url(line[end]):
        end += 1
    while True:
        url = line[at:end]
        closes_nothing = any(
            url[-1] == closing and url.count(closing) > url.count(opening) for opening, closing in ("()", "[]")
        )
        if url[-1] not in ".,:;!?'*" and not closes_nothing:
            return end
        end -= 1


def removed_places(line: str) -> list[tuple[int, int]]:
    """Return the URLs of a line, or the brackets around those that are alone in them, with all between."""
    urls, at = [], 0
    while at < len(line):
        end = url_at(line, at)
        if end:
            urls.append((at, end))
        # What follows a URL, as far as characters of URLs go, was looked at with it.
        at = end or at + 1
        while end and at < len(line) and in_a_url(line[at]):
            at += 1
    groups: list[list[tuple[int, int]]] = []
    for url in urls:
        if groups and all(letter.isspace() or letter in ",;|/&" for letter in line[groups[-1][-1][1] : url[0]]):
            groups[-1].append(url)
        else:
            groups.append([url])
    places, least = [], 0
    for group in groups:
        start, stop = group[0][0], group[-1][1]
        while True:
            before, behind = line[least:start].rstrip(), line[stop:].lstrip()
            if not before or not behind or before[-1] + behind[0] not in PAIRS:
                break
            start, stop = least + len(before) - 1, len(line) - len(behind) + 1
        places += [(start, stop)] if start < group[0][0] else group
        least = stop
    return places


def naive_line(line: str) -> str | None:
    """Return a line without its URLs; None where it had some and has nothing left."""
    left, at, places = "", 0, removed_places(line)
    for start, end in places:
        left += line[at:start]
        bare = left.rstrip()
        left = left if bare and line[end : end + 1].isalnum() else bare
        at = end
        while not left and at < len(line) and line[at].isspace():
            at += 1
    left += line[at:]
    return None if places and not left else left


def naive_limit(text: str, most: int) -> str:
    made, at = "", 0
    while at < len(text):
        last, feeds, end = at, 0, at
        while text[at] == "\n" and end < len(text) and text[end].isspace():
            if text[end] == "\n":
                feeds, last = feeds + 1, end
            end += 1
        made += "\n" * most if feeds > most else text[at : last + 1]
        at = last + 1
    return made


def naive(text: str, urls: str, max_newlines: int | None) -> str:
    """Do what the docstring says, one character after the other."""
    if urls == "remove":
        lines = [naive_line(line) for line in text.split("\n")]
        text = "".join(line + "\n" for line in lines[:-1] if line is not None) + (lines[-1] or "")
    return (text if max_newlines is None else naive_limit(text, max_newlines)).strip()


BITS = [
    "http://", "HTTPS://", "ftp://", "www.", "WwW.", "www", "a", "é", "e\u0301", "я", "한",
    "\u0e01", "\u0df2", "\u0dff", "\u1e00", "\u017f", "中", "_", ".", ",", ")", "(", "[", "]",
    "'", "*", "/", ":", " ", "  ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u2028", "\x1c", "\x85", "http://a.b",
    "www.a", "example.org", "（", "）", "“", "”", "„", "«", "»",  # noqa: RUF001
]  # fmt: skip
texts = st.lists(st.sampled_from(BITS), max_size=30).map("".join) | st.text(max_size=40)


@given(texts, st.sampled_from(["remove", "keep"]), st.sampled_from([2, 1, 3, None]))
@example("a http://b http://c d", "remove", 2)
@example(" http://b (http://c) d", "remove", 2)
@example("httphttp://a http://, http://.www.b http://http://", "remove", 2)
@settings(max_examples=4 * settings.default.max_examples, deadline=None)
def test_every_text_equals_plain_loops(text, urls, max_newlines):
    assert lc.text.format_text(text, urls, max_newlines) == naive(text, urls, max_newlines)


@given(texts)
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_line_feeds_are_limited_whatever_was_removed(text):
    assert "\n\n\n" not in "".join(each for each in lc.text.format_text(text) if each == "\n" or not each.isspace())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("See https://example.org for more.", "See for more."),
        ("See https://example.org.", "See."),
        ("See (https://example.org/a_(b)), too.", "See, too."),
        ("f() ([the tide](http://a.org)) <http://b.org> [ (http://c.org | http://d.org) ]", "f() ([the tide])"),
        ("(see http://a.org) (http://b.org, or http://c.org)", "(see) (, or)"),
        ("HTTPS://EXAMPLE.ORG/ÄÖ or ftp://x.org/y?z=1#k", "or"),
        ("siehe https://de.wikipedia.org/wiki/Übung hier", "siehe hier"),
        ("voir www.exemple.fr/é.", "voir."),
        ("voir www.exemple.fr/e\u0301t\u00e9, ou http://münchen.de/ß!", "voir, ou!"),
        ("см. http://пример.рф/путь_к/статье, и «https://x.org/я»", "см., и"),
        ("参见（https://x.org/a）。 “https://x.org”, „http://y.org“ und [「http://z.org」]", "参见。, und"),  # noqa: RUF001
        ("“a” http://x.org “b” «a» http://x.org «b»", "“a” “b” «a» «b»"),
        ("mehr: http://x.org/a…b", "mehr:…b"),
        ("참고 http://x.org/한국 문서", "참고 한국 문서"),
        ("a http://b http://c中 d", "a 中 d"),
        (" http://c中 d", "中 d"),
        ("参见 http://x.org/路径。", "参见 路径。"),
        *((f"{''.join(letters)}.example.org here", "here") for letters in itertools.product("wW", repeat=3)),
        ("awww.example.org, éwww.a and a.www.b stay", "awww.example.org, éwww.a and a.www.b stay"),
        ("example.org and mail@example.org stay, http:// and www. as well", None),
        ("texthttp://example.org", "text"),
        ("网站http://example.org/路径中文。", "网站路径中文。"),
        ("a\nhttp://x.org http://y.org\nb", "a\nb"),
        ("a\n\nhttp://x.org\n\nb", "a\n\nb"),
        ("a http://x.org\r\nb", "a\r\nb"),
        ("  indented\n   code stays", "indented\n   code stays"),
        ("1\n2\n\n3\n\n\n4\n \n\t\n\n   5", "1\n2\n\n3\n\n4\n\n   5"),
        (" \n ", ""),
    ],
)
def test_what_goes_and_what_stays(before, after):
    assert lc.text.format_text(before) == (before if after is None else after)


def test_both_can_be_switched_off():
    assert lc.text.format_text(" a http://b\n\n\n\nc ", urls="keep", max_newlines=None) == "a http://b\n\n\n\nc"
    with pytest.raises(StageError, match="max_newlines must be a whole number of 1 or more, or None for any, got 0"):
        lc.text.format_text("a", max_newlines=0)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("bit", "left"),
    [
        ("http://a ", 0),
        ("http://a)", 1),
        ("www.a ", 0),
        ("http://", 0),
        ("\n", 0),
        (" \n", 0),
        ("\n \n a", 5),
        ("www.", 4),
        ("(http://a ", 2),
        ("[(http://a) ", 2),
    ],
)
def test_hostile_texts_take_time_by_their_length(bit, left):
    """A square of the length would take hours."""
    assert len(lc.text.format_text(bit * 200_000)) <= left * 200_000


def test_brackets_a_million_deep_take_time_by_their_number():
    assert lc.text.format_text("(" * 500_000 + "http://a" + " )" * 500_000) == ""


@pytest.mark.slow
def test_a_million_brackets_behind_a_url_take_time_by_their_number():
    assert lc.text.format_text("http://" + ")" * 1_000_000) == ")" * 1_000_000
