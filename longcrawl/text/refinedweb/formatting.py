"""RefinedWeb's formatting of an extracted text: no URLs, and few line feeds in a row."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import chain
from typing import Literal

from longcrawl.errors import StageError

# In any case, and without IGNORECASE, by which U+017F would be an s.
_BEGINS = r"(?:[Hh][Tt]{2}[Pp][Ss]?|[Ff][Tt][Pp])://|(?<![\w.])[Ww]{3}\.(?=[A-Za-z0-9])"
# Below U+0E00 are Latin to Sinhala, all with spaces between words; from U+1E00 on Latin and Greek with accents.
_SPACED = "".join(
    letter
    for letter in map(chr, chain(range(0x80, 0xE00), range(0x1E00, 0x2000)))
    if letter.isalnum() or unicodedata.category(letter)[0] == "M"
)
_WITHIN_BEGINS = ("://", "ww.", "wW.", "Ww.", "WW.")
"""One of these is in all that begins a URL; to look for them takes less time than to try the pattern everywhere."""
_URL = re.compile(rf"(?:{_BEGINS})[-A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%{_SPACED}]+")
_BLANKS = re.compile(r"\s*")
_NO_END = ".,:;!?'*"
_BRACKETS = {")": "(", "]": "["}
_AROUND = dict(zip(")]>）］】〕〉》」』”’»›“", "([<（［【〔〈《「『“‘«‹„", strict=True))  # noqa: RUF001
"""By what closes them brackets and quotes that go with a URL, or with several, that stands in them alone."""
_BETWEEN = re.compile(r"[\s,;|/&]*")


def format_text(text: str, urls: Literal["remove", "keep"] = "remove", max_newlines: int | None = 2) -> str:
    r"""Remove the URLs of a text, limit its line feeds in a row, and strip the white space around it, in this order.

    A URL begins with http://, https:// or ftp://, in any case and inside a word as well, or with www. and an ASCII
    letter or digit, where neither a letter, digit or _ nor a full stop is before it. It continues for as long as there
    are characters of RFC 3986, or letters, digits and marks from U+0080 to U+0DFF or from U+1E00 to U+1FFF, as people
    type them: scripts with spaces between words. Other scripts end it, since those without spaces would go with it up
    to the end of the paragraph. From its end . , : ; ! ? ' * are not part of it, nor are closing brackets of which it
    has more than opening ones. Names such as example.org are words and stay.

    Brackets and quotes go with what is removed, such as ``()``, ``[]``, ``«»`` and full-width ones, where URLs are all
    that is in them, with white space or , ; | / & between: of "the tide (https://example.org)" nothing but "the tide"
    is left. Straight quotes stay, as they do not say which of them open.

    A URL goes with the white space before it on its line, which stays where a letter or digit comes right behind it and
    something is left before it; where nothing is, the white space behind it goes as well. A line of which nothing is
    left goes with its line feed. Lines without a URL stay as they are.

    More than ``max_newlines`` line feeds with nothing but white space between them become ``max_newlines`` ones. None
    is any number.

    Raises:
        StageError: ``max_newlines`` is less than 1.

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, section 3.1: "we limit new lines to two
    consecutive ones, and remove all URLs".

    >>> format_text("See https://example.org/a_(b)?c=d, or www.example.org.\nhttp://example.org\n\n \n\nThe end.")
    'See, or.\n\nThe end.'
    >>> format_text("Siehe https://de.wikipedia.org/wiki/Übung hier. 参见http://example.org/路径")
    'Siehe hier. 参见路径'
    """
    if max_newlines is not None and max_newlines < 1:
        raise StageError(f"max_newlines is a whole number from 1 on, or None for any, got {max_newlines}")
    if urls == "remove" and _may_have_urls(text):
        lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
        text = "".join([_without_urls(line) if _may_have_urls(line) else line for line in lines])
    if max_newlines is not None:
        text = re.sub(rf"\n(?:[^\S\n]*\n){{{max_newlines},}}", "\n" * max_newlines, text)
    return text.strip()


def _may_have_urls(text: str) -> bool:
    return any(each in text for each in _WITHIN_BEGINS)


def _without_urls(line: str) -> str:
    """Return a line, with its line feed, without URLs."""
    content = line.removesuffix("\n")
    kept: list[str] = []
    at = 0
    for start, stop in _with_brackets(
        content, [(m.start(), m.start() + _length(m[0])) for m in _URL.finditer(content)]
    ):
        before = content[at:start]
        at = stop
        if bare := before.rstrip():
            kept.append(bare)
        if not kept:
            at = _BLANKS.match(content, at).end()  # type: ignore[union-attr]  # it matches anywhere
        elif content[at : at + 1].isalnum():
            kept.append(before[len(bare) :])
    kept.append(content[at:])
    left = "".join(kept)
    return left + line[len(content) :] if at == 0 or left else ""


def _with_brackets(content: str, urls: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what is to be removed: URLs one by one, or with the brackets around those that stand in them alone."""
    first, least = 0, 0
    while first < len(urls):
        last = first
        while last + 1 < len(urls) and _BETWEEN.fullmatch(content, urls[last][1], urls[last + 1][0]):
            last += 1
        start, stop = _outside(content, urls[first][0], urls[last][1], least)
        yield from [(start, stop)] if start < urls[first][0] else urls[first : last + 1]
        first, least = last + 1, stop


def _outside(content: str, start: int, stop: int, least: int) -> tuple[int, int]:
    """Return a stretch with all brackets that have nothing else in them; none begins before ``least``."""
    while True:
        begin, end = start, _BLANKS.match(content, stop).end()  # type: ignore[union-attr]  # it matches anywhere
        while begin > least and content[begin - 1].isspace():
            begin -= 1
        if begin == least or content[begin - 1] != _AROUND.get(content[end : end + 1]):
            return start, stop
        start, stop = begin - 1, end + 1


def _length(url: str) -> int:
    """Return how many characters of what looks like a URL are one."""
    surplus = {closing: url.count(closing) - url.count(opening) for closing, opening in _BRACKETS.items()}
    end = len(url)
    while url[end - 1] in _NO_END or surplus.get(url[end - 1], 0) > 0:
        if url[end - 1] in surplus:
            surplus[url[end - 1]] -= 1
        end -= 1
    return end
